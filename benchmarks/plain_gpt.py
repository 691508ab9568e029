"""The comparison arm: a plain GPT trained with AdamW, on the same data, clock and evaluator as `train.py`.

Written from the published description of GPT-2 and of small trainers like it: learned positions, LayerNorm before each
part, GELU, attention by the fused kernel, residual projections scaled by depth, AdamW with weight decay on matrices,
gradient clipping, linear warm-up and cosine decay over the budget.

Published settings (matrices drawn with 0.02, tied embeddings) cost a model of this size its start. It has better
ones: at 20 CPU seconds they took depth 2 from 2.61 to 2.28 bits per byte.

`benchmarks.trainer` runs it as an artifact in place of `train.py`, with shape and learning rate set for each row.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from autoresearch.adapters.ml_training import harness

DEPTH = 4  # layers
WIDTH = 128  # channels, C
HEADS = 4  # attention heads, H
CONTEXT = 256  # tokens per sequence, T
TOTAL_BATCH = 2048  # tokens per step
LR = 0.003  # peak learning rate
WARMUP = 0.05  # share of the budget
FINAL_LR = 0.1  # share of the peak at the end
INIT = 0.08  # standard deviation of fresh matrices
TIED = False  # one matrix for input and output embeddings
BETA1 = 0.9
BETA2 = 0.95
WEIGHT_DECAY = 0.1
CLIP = 1.0  # largest norm of the whole gradient
BF16 = True  # autocast to bfloat16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(y.transpose(1, 2).reshape(B, T, C))
        update: Tensor = self.down(F.gelu(self.up(self.norm2(x))))
        return x + update


class PlainGPT(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocab_size, bias=False)
        if TIED:
            self.head.weight = self.tokens.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scaled = name.endswith(("mix.weight", "down.weight"))
                nn.init.normal_(p, std=INIT / math.sqrt(2 * DEPTH) if scaled else INIT)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=BF16):
            x = self.tokens(tokens) + self.positions.weight[: tokens.size(1)]
            logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits.float()


def build_model(vocab_size: int) -> nn.Module:
    return PlainGPT(vocab_size)


def learning_rate(progress: float) -> float:
    if progress < WARMUP:
        return LR * progress / WARMUP
    cosine = 0.5 * (1 + math.cos(math.pi * (progress - WARMUP) / (1 - WARMUP)))
    return LR * (FINAL_LR + (1 - FINAL_LR) * cosine)


def main() -> None:
    session = harness.open_session()
    model = build_model(session.vocab_size).to(session.device)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), fused=True)
    for inputs, targets in session.batches(TOTAL_BATCH // CONTEXT, CONTEXT):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(session.progress)
        optimizer.step()
        optimizer.zero_grad()
        session.report(loss.item(), inputs.numel())
        if session.finished:
            break
    session.finish(model)


if __name__ == "__main__":
    main()
