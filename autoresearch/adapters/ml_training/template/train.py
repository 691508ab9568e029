"""Train a small GPT as well as one fixed budget allows: the file that the search improves.

Read it from top to bottom: settings, model, loss, optimisers, training loop. Data, tokenizer, clock and score are not
here; they come from the installed package through `harness`. The score is taken by another process, which calls
`build_model` alone, loads the saved weights and measures bits per byte on text that this file never sees.

Shapes in comments: B sequences in a batch, T tokens in a sequence, C channels of the model, H heads, D channels of a
head, V tokens in the vocabulary, N = B * T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from autoresearch.adapters.ml_training import harness

# --- Settings: every constant below may be turned ---------------------------------------------------------------------

# Model
DEPTH = 1  # number of layers; the one dial for size, as the width follows it: a longer budget carries more
ASPECT = 64  # channels per layer of depth: C = DEPTH * ASPECT, rounded up to whole heads
HEAD_DIM = 64  # channels of one attention head
MLP_RATIO = 2  # hidden channels of the feed-forward part, as a multiple of C
CONTEXT = 256  # tokens that one sequence holds, in training and in evaluation
WINDOWS = "S"  # attention layer by layer, repeated: L looks back over everything, S over SHORT_WINDOW tokens
SHORT_WINDOW = 32  # tokens that an S layer looks back
ROTARY_BASE = 10000.0  # the slowest channel pair turns once in 2 pi times so many tokens
VALUE_EMBEDDINGS = False  # add an embedding of the token to the attention values of every second layer
GRAMS = 3  # longest run of tokens with a row in the hashed tables added to the input; 1 leaves them out
TABLE_ROWS = 262144  # rows of each of those tables: one of pairs, one of triples ...
SMEAR = True  # add a learned share of the previous token's input to each token's
LOGIT_CAP = 0.0  # squeeze logits smoothly into (-cap, cap); 0 leaves them alone, which is faster on a CPU

# Batches
TOTAL_BATCH = 4096  # tokens per optimiser step
DEVICE_BATCH = 16  # sequences per forward pass; the rest of a step is accumulated

# Optimisers
MATRIX_LR = 0.015  # Muon: matrices inside the layers
EMBEDDING_LR = 0.1  # AdamW: token and value embeddings
HEAD_LR = 0.012  # AdamW: output matrix
TABLE_LR = 0.4  # row-wise Adagrad: tables of pairs and triples
SMEAR_LR = 0.02  # AdamW: shares of the previous token's input
MUON_MOMENTUM = 0.95  # decay of Muon's mean gradient
MUON_STEPS = 3  # Newton-Schulz iterations, at most 5
ADAM_BETA1 = 0.9  # decay of AdamW's mean gradient
ADAM_BETA2 = 0.95  # decay of AdamW's mean squared gradient
WEIGHT_DECAY = 0.0  # decoupled, on Muon's matrices
WARMUP = 0.0  # share of the budget in which the learning rates rise
WARMDOWN = 0.6  # share of the budget, at its end, in which they fall
FINAL_LR = 0.0  # where they end, as a share of their peak


# --- Model ------------------------------------------------------------------------------------------------------------


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return bfloat16 where the device multiplies it faster than float32, else float32.

    On a CPU that is where the instruction exists: matrix products take half the time with AVX512-BF16, and many times
    as long without.
    """
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "cpu":
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return torch.bfloat16 if native else torch.float32
    return torch.float32


class CpuNorm(torch.autograd.Function):
    """RMS norm with its gradient in three passes; what torch derives by itself takes four times as long on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return x (..., D) divided by its root mean square over D."""
        scale = torch.linalg.vecdot(x, x).div_(x.size(-1)).add_(1e-6).rsqrt_().unsqueeze(-1)
        y: Tensor = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Return the gradient of x: (g - y mean(g y)) / rms."""
        y, scale = ctx.saved_tensors
        mean = torch.linalg.vecdot(grads[0], y).div_(y.size(-1)).unsqueeze(-1)
        return torch.addcmul(grads[0], y, mean, value=-1).mul_(scale)


class CpuSquaredReLU(torch.autograd.Function):
    """max(x, 0) squared, with its gradient in two passes instead of five."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return max(x, 0) ** 2."""
        positive = x.clamp(min=0)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Return the gradient of x: 2 g max(x, 0)."""
        positive: Tensor
        (positive,) = ctx.saved_tensors
        return (grads[0] * positive).mul_(2)


def norm(x: Tensor) -> Tensor:
    """Scale the last dimension to a root mean square of one; there are no weights."""
    return apply(CpuNorm, x) if x.device.type == "cpu" else F.rms_norm(x, (x.size(-1),), eps=1e-6)


def squared_relu(x: Tensor) -> Tensor:
    """Return max(x, 0) ** 2."""
    return apply(CpuSquaredReLU, x) if x.device.type == "cpu" else F.relu(x).square()


def apply(function: type[torch.autograd.Function], *args: Tensor) -> Tensor:
    """Call a function that has its own gradient."""
    result: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return result


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the channel pairs of x (..., T, D) by angles that grow with the position; cos and sin are (T, D / 2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Mix values by the softmax of scores: q (..., T, D), k and v (..., S, D), mask (T, S) added, None for causal."""
    if q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    # Plain products take a quarter of the time of the fused kernel here: its backward pass is slow on short sequences.
    assert mask is not None
    scores = torch.matmul(q * q.size(-1) ** -0.5, k.mT) + mask
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def attend_in_window(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attend to the last `window` tokens at a cost of T * 2 * window; q, k, v are (B, H, T, D).

    Blocks of `window` queries look at their own block of keys and the one before.
    """
    B, H, T, D = q.shape
    padding = (0, 0, 0, -T % window)
    q, k, v = (F.pad(x, padding).reshape(B * H, -1, window, D) for x in (q, k, v))  # (B * H, T/W, W, D)
    k, v = (torch.cat((F.pad(x[:, :-1], (0, 0, 0, 0, 1, 0)), x), dim=2) for x in (k, v))  # (B * H, T/W, 2W, D)
    back = torch.arange(window, device=q.device)[:, None] + window - torch.arange(2 * window, device=q.device)
    seen = ((back >= 0) & (back < window)).repeat(q.size(1), 1, 1)  # (T/W, W, 2W)
    seen[0, :, :window] = False  # before the first block is only padding
    mask = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill(~seen, -torch.inf)
    return attend(q, k, v, mask).reshape(B, H, -1, D)[:, :, :T]


class Matrix(nn.Linear):
    """A linear map without bias that works in the precision of its input."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T."""
        return F.linear(x, self.weight.to(x.dtype))


class Block(nn.Module):
    """One layer: attention, then a feed-forward part with squared ReLU, each added to the stream."""

    def __init__(self, channels: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.qkv = Matrix(channels, 3 * channels)
        self.mix = Matrix(channels, channels)
        self.up = Matrix(channels, MLP_RATIO * channels)
        self.down = Matrix(MLP_RATIO * channels, channels)
        for matrix in (self.qkv, self.up):
            nn.init.normal_(matrix.weight, std=channels**-0.5)
        for matrix in (self.mix, self.down):  # what a fresh layer adds is zero
            nn.init.zeros_(matrix.weight)

    def forward(self, x: Tensor, value: Tensor | None, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """Return the stream x (B, T, C) after this layer; value (B, T, C) is added to the attention values."""
        x = x + self.attention(norm(x), value, cos, sin, mask)
        update: Tensor = self.down(squared_relu(self.up(norm(x))))
        return x + update

    def attention(self, x: Tensor, value: Tensor | None, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the attention adds to the stream (B, T, C)."""
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, C // HEAD_DIM, HEAD_DIM).permute(2, 0, 3, 1, 4)  # (3, B, H, T, D)
        q, k = rotate(norm(qkv[:2]), cos, sin)
        v = qkv[2]
        if value is not None:
            v = v + value.view(B, T, C // HEAD_DIM, HEAD_DIM).transpose(1, 2)
        y = attend_in_window(q, k, v, self.window) if self.window < T else attend(q, k, v, mask)
        update: Tensor = self.mix(y.transpose(1, 2).reshape(B, T, C))
        return update


def gram_rows(tokens: Tensor) -> Tensor:
    """Return the rows (B, T, GRAMS - 1) that the last 2, 3, ... tokens up to each position have in the tables.

    Different runs of tokens may share a row: the hash is a sum of products with large odd numbers, modulo TABLE_ROWS.
    """
    mixed, rows = tokens.clone(), []
    for order in range(2, GRAMS + 1):
        mixed[:, order - 1 :] += (tokens[:, : 1 - order] + 1) * (0x9E3779B1 * order + 2 * order + 1)
        rows.append((mixed ^ (mixed >> 15)) % TABLE_ROWS + (order - 2) * TABLE_ROWS)
    return torch.stack(rows, dim=-1)


class GPT(nn.Module):
    """Tokens (B, T) int64 to logits (B, T, V) float32; position t sees tokens 0 to t and nothing later."""

    cos: Tensor
    sin: Tensor
    mask: Tensor

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        C = math.ceil(DEPTH * ASPECT / HEAD_DIM) * HEAD_DIM
        self.embedding = nn.Embedding(vocab_size, C)
        self.tables = nn.Parameter(torch.zeros((GRAMS - 1) * TABLE_ROWS, C)) if GRAMS > 1 else None
        self.smear = nn.Parameter(torch.zeros(C)) if SMEAR else None
        with_value = range((DEPTH - 1) % 2, DEPTH, 2) if VALUE_EMBEDDINGS else ()  # counted from the last layer
        self.values = nn.ModuleDict({str(layer): nn.Embedding(vocab_size, C) for layer in with_value})
        windows = [{"L": CONTEXT, "S": SHORT_WINDOW}[WINDOWS[layer % len(WINDOWS)]] for layer in range(DEPTH)]
        self.blocks = nn.ModuleList(Block(C, window) for window in windows)
        self.head = Matrix(C, vocab_size)
        frequencies = ROTARY_BASE ** -torch.linspace(0, 1, HEAD_DIM // 2)
        angles = torch.arange(CONTEXT)[:, None] * frequencies  # (T, D / 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -torch.inf).triu(1), persistent=False)
        nn.init.normal_(self.embedding.weight)
        nn.init.normal_(self.head.weight, std=0.001)  # at first every token is equally likely
        for table in self.values.parameters():
            nn.init.normal_(table, std=C**-0.5)

    def features(self, tokens: Tensor) -> Tensor:
        """Return what the output matrix is applied to, (B, T, C), in the precision of the device."""
        dtype, T = compute_dtype(tokens.device), tokens.size(1)
        cos, sin = self.cos[:T].to(dtype), self.sin[:T].to(dtype)
        mask = self.mask[:T, :T].to(dtype) if tokens.device.type == "cpu" else None
        x = self.embedding(tokens)
        if self.tables is not None:
            # On a CPU the gradient keeps only the rows in use: a dense one would cost more than the model.
            sparse = tokens.device.type == "cpu"
            rows = gram_rows(tokens).flatten(0, 1)  # (N, GRAMS - 1)
            x = x + F.embedding_bag(rows, self.tables, mode="sum", sparse=sparse).view_as(x)
        x = norm(x).to(dtype)
        if self.smear is not None:
            # With the token before in sight, one layer of attention suffices to look up what followed it earlier.
            x = torch.cat((x[:, :1], torch.addcmul(x[:, 1:], x[:, :-1], self.smear.to(dtype))), dim=1)
        for layer, block in enumerate(self.blocks):
            value = self.values[str(layer)](tokens).to(dtype) if str(layer) in self.values else None
            x = block(x, value, cos, sin, mask)
        return norm(x)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V), float32."""
        return cap(F.linear(self.features(tokens).float(), self.head.weight))


def cap(logits: Tensor) -> Tensor:
    """Squeeze logits into (-LOGIT_CAP, LOGIT_CAP)."""
    return LOGIT_CAP * torch.tanh(logits / LOGIT_CAP) if LOGIT_CAP else logits


def build_model(vocab_size: int) -> nn.Module:
    """Return the model with fresh weights; evaluation builds it by this function alone."""
    return GPT(vocab_size)


# --- Loss -------------------------------------------------------------------------------------------------------------


class ChunkedLoss(torch.autograd.Function):
    """Mean cross-entropy of a linear output layer, with its gradient of the logits written over the logits.

    The softmax goes over 256 rows at a time, which stay in a CPU's cache; over all rows at once it takes six times as
    long, most of it to have memory mapped.
    """

    ROWS = 256

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of x (N, C) under weight (V, C) and targets (N,), in nats."""
        logits = x @ weight.to(x.dtype).T  # (N, V)
        total = x.new_zeros((), dtype=torch.float32)
        for start in range(0, len(x), ChunkedLoss.ROWS):
            rows = logits[start : start + ChunkedLoss.ROWS]
            ys = targets[start : start + ChunkedLoss.ROWS, None]
            p = torch.softmax(cap(rows.float()), dim=-1)
            p_target = p.gather(1, ys)
            total -= p_target.clamp(min=1e-30).log().sum()
            p.scatter_(1, ys, p_target - 1)
            if LOGIT_CAP:
                p *= 1 - torch.tanh(rows.float() / LOGIT_CAP).square()
            rows.copy_(p)
        ctx.save_for_backward(x, weight, logits)
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of x and weight."""
        x, weight, dlogits = ctx.saved_tensors
        scale = grads[0] / len(x)
        dx = dlogits @ weight.to(x.dtype)
        return dx.mul_(scale), (dlogits.T @ x).to(weight.dtype).mul_(scale), None


def plain_loss(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the same loss in one piece, for compilers."""
    return F.cross_entropy(cap(F.linear(x, weight.to(x.dtype)).float()), targets)


def loss_for(device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the loss of (x, weight, targets) that is fast on a device."""
    if device.type == "cpu":
        return partial(apply, ChunkedLoss)
    return torch.compile(plain_loss, dynamic=False) if device.type == "cuda" else plain_loss


# --- Optimisers -------------------------------------------------------------------------------------------------------

# Coefficients (a, b, c) of x -> a x + b (x x') x + c (x x')^2 x, one per iteration, that bring all singular values near
# one as fast as an odd polynomial of degree five can. Source: Amsel et al., "The Polar Express", 2025.
POLAR = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def orthogonalize(x: Tensor) -> Tensor:
    """Replace the singular values of every matrix in x (n, rows, columns), rows <= columns, by about one."""
    dtype = x.dtype
    x = (x / (x.norm(dim=(1, 2), keepdim=True) * 1.01 + 1e-7)).to(compute_dtype(x.device))
    for a, b, c in POLAR[:MUON_STEPS]:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(dtype)


class Muon:
    """Momentum whose step is orthogonalised, for matrices; those of one shape are worked on together.

    Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
    """

    def __init__(self, matrices: Iterable[nn.Parameter]) -> None:
        groups: dict[tuple[int, int], list[nn.Parameter]] = {}
        for p in matrices:
            groups.setdefault((min(p.shape), max(p.shape)), []).append(p)
        self.groups = [(group, torch.zeros(len(group), *shape).to(group[0])) for shape, group in groups.items()]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Take one step along the gradients."""
        for group, momentum in self.groups:
            gradient = torch.stack([wide(p.grad) for p in group if p.grad is not None])
            momentum.lerp_(gradient, 1 - MUON_MOMENTUM)
            updates = orthogonalize(gradient.lerp_(momentum, MUON_MOMENTUM))  # Nesterov: look ahead
            for p, update in zip(group, updates, strict=True):
                p.mul_(1 - lr * WEIGHT_DECAY)
                wide(p).add_(update, alpha=-lr * max(1.0, p.size(0) / p.size(1)) ** 0.5)


def wide(x: Tensor) -> Tensor:
    """Return a view of the matrix x with no more rows than columns."""
    return x if x.size(0) <= x.size(1) else x.mT


class RowAdagrad:
    """Adagrad with one step size a row, for tables of which a step touches few rows."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.total = torch.zeros(table.size(0), 1).to(table)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Take one step along the gradient, sparse or dense."""
        gradient = self.table.grad
        assert gradient is not None
        if not gradient.is_sparse:
            self.total += gradient.square().mean(dim=1, keepdim=True)
            self.table.sub_(lr * gradient / (self.total.sqrt() + 1e-10))
            return
        gradient = gradient.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        self.total.index_add_(0, rows, values.square().mean(dim=1, keepdim=True))
        self.table.index_add_(0, rows, values / (self.total[rows].sqrt() + 1e-10), alpha=-lr)


class Optimizers:
    """Muon for matrices, row-wise Adagrad for the tables, AdamW for everything else."""

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.muon = Muon(model.blocks.parameters())
        self.table = RowAdagrad(model.tables) if model.tables is not None else None
        embeddings = [model.embedding.weight, *model.values.parameters()]
        groups = [{"params": embeddings, "lr": EMBEDDING_LR}, {"params": [model.head.weight], "lr": HEAD_LR}]
        if model.smear is not None:
            groups.append({"params": [model.smear], "lr": SMEAR_LR})
        self.adam = torch.optim.AdamW(groups, betas=(ADAM_BETA1, ADAM_BETA2), eps=1e-10, weight_decay=0.0, fused=True)
        self.peaks = [group["lr"] for group in self.adam.param_groups]

    def step(self, rate: float) -> None:
        """Take one step at `rate` times the peak learning rates, then forget the gradients."""
        self.muon.step(MATRIX_LR * rate)
        if self.table is not None:
            self.table.step(TABLE_LR * rate)
        for group, peak in zip(self.adam.param_groups, self.peaks, strict=True):
            group["lr"] = peak * rate
        self.adam.step()
        self.forget()

    def forget(self) -> None:
        """Drop the gradients."""
        self.model.zero_grad(set_to_none=True)


def learning_rate(progress: float) -> float:
    """Return the share of the peak learning rates at a share `progress` of the budget."""
    rising = progress / WARMUP if progress < WARMUP else 1.0
    falling = (1 - progress) / WARMDOWN if progress > 1 - WARMDOWN else 1.0
    return min(rising, FINAL_LR + (1 - FINAL_LR) * falling)


# --- Training ---------------------------------------------------------------------------------------------------------


def train(session: harness.Session, model: GPT, optimizers: Optimizers, device_batch: int) -> None:
    """Train until the budget is used; every step sees TOTAL_BATCH tokens, `device_batch` sequences at a time."""
    loss_of = loss_for(session.device)
    passes = max(1, round(TOTAL_BATCH / (device_batch * CONTEXT)))
    tokens = passes * device_batch * CONTEXT
    losses: list[Tensor] = []
    for inputs, targets in session.batches(device_batch, CONTEXT):
        x = model.features(inputs).flatten(0, 1)  # (N, C)
        loss = loss_of(x, model.head.weight, targets.flatten()) / passes
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
        if len(losses) < passes:
            continue
        optimizers.step(learning_rate(session.progress))
        session.report(float(sum(losses)), tokens)
        losses.clear()
        if session.finished:
            return


def fits(session: harness.Session, model: GPT, optimizers: Optimizers, device_batch: int) -> bool:
    """Train, and return False if the memory of the device does not suffice for `device_batch` sequences."""
    try:
        train(session, model, optimizers, device_batch)
    except torch.OutOfMemoryError:
        if device_batch == 1:
            raise
        return False  # the caller goes on only after the error, which holds on to the tensors, is gone
    return True


def main() -> None:
    """Train from fresh weights and hand the result over."""
    session = harness.open_session()
    model = GPT(session.vocab_size).to(session.device)
    if session.device.type == "cuda":
        for block in model.blocks:
            block.compile(dynamic=False)
    optimizers = Optimizers(model)
    batch = max(1, min(DEVICE_BATCH, TOTAL_BATCH // CONTEXT))
    if not fits(session, model, optimizers, batch):
        optimizers.forget()
        session.log(f"Out of memory with {batch} sequences at a time: on with {batch // 2}, as many tokens a step.")
        train(session, model, optimizers, batch // 2)
    session.finish(model)


if __name__ == "__main__":
    main()
