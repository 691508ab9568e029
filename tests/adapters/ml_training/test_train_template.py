"""The template `train.py`: its parts against their definitions, and one short training."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from importlib.resources import files
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

V = 40


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A fresh import of the template, shrunk until a step takes milliseconds, in float32."""
    path = str(files("autoresearch.adapters.ml_training") / "template" / "train.py")
    spec = importlib.util.spec_from_file_location("template_train", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    small = {"DEPTH": 2, "ASPECT": 16, "HEAD_DIM": 16, "CONTEXT": 16, "TABLE_ROWS": 64}
    for name, value in {**small, "TOTAL_BATCH": 128, "DEVICE_BATCH": 4}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "compute_dtype", lambda device: torch.float32)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return module


class FakeSession:
    """A session whose budget is a number of steps and whose text counts upwards."""

    def __init__(self, steps: int) -> None:
        self.vocab_size, self.device, self.seed, self.steps = V, torch.device("cpu"), 0, steps
        self.losses: list[float] = []
        self.tokens: list[int] = []
        self.logged: list[str] = []
        self.batch_sizes: list[int] = []
        self.finished_with: Any = None

    @property
    def progress(self) -> float:
        return len(self.losses) / self.steps

    @property
    def finished(self) -> bool:
        return len(self.losses) >= self.steps

    def log(self, text: str) -> None:
        self.logged.append(text)

    def batches(self, batch: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        self.batch_sizes.append(batch)
        while True:
            rows = (torch.randint(V, (batch, 1)) + torch.arange(context + 1)) % V
            yield rows[:, :-1], rows[:, 1:]

    def report(self, loss: float, tokens: int) -> None:
        self.losses.append(loss)
        self.tokens.append(tokens)

    def finish(self, model: torch.nn.Module) -> None:
        self.finished_with = model


def run_main(train: ModuleType, monkeypatch: pytest.MonkeyPatch, steps: int) -> FakeSession:
    session = FakeSession(steps)
    monkeypatch.setattr(train.harness, "open_session", lambda: session)
    train.main()
    return session


def awake(model: torch.nn.Module) -> torch.nn.Module:
    """Give every weight a value, so that no part of the model is multiplied by zero."""
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.3)
    return model


@pytest.mark.parametrize("windows", ["L", "SL"])
def test_later_tokens_change_no_earlier_logits(
    train: ModuleType, windows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits at a position depend on tokens up to it, and on those."""
    monkeypatch.setattr(train, "WINDOWS", windows)
    monkeypatch.setattr(train, "SHORT_WINDOW", 4)
    model = awake(train.build_model(V)).eval()
    tokens = torch.randint(V, (2, 16))
    changed = tokens.clone()
    changed[:, 9:] = (changed[:, 9:] + 1) % V
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_logits_are_float32_and_windows_may_be_shorter(train: ModuleType) -> None:
    """A window shorter than CONTEXT gives the same logits as the beginning of a longer one."""
    model = awake(train.build_model(V)).eval()
    tokens = torch.randint(V, (2, 16))
    logits = model(tokens)
    assert logits.shape == (2, 16, V) and logits.dtype == torch.float32
    torch.testing.assert_close(model(tokens[:, :5]), logits[:, :5])


def test_a_fresh_model_predicts_nothing(train: ModuleType) -> None:
    """Before training every token is about equally likely."""
    logits = train.build_model(V)(torch.randint(V, (2, 16)))
    assert float(logits.detach().log_softmax(-1).exp().std()) < 1e-3


def test_bfloat16_predicts_about_the_same(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probabilities in bfloat16, which a CPU may use, are within a few hundredths of those in float32."""
    model = awake(train.build_model(V)).eval()
    tokens = torch.randint(V, (2, 16))
    exact = model(tokens).softmax(-1)
    monkeypatch.setattr(train, "compute_dtype", lambda device: torch.bfloat16)
    rounded = model(tokens).softmax(-1)
    assert rounded.dtype == torch.float32
    assert 0 < float((rounded - exact).detach().abs().max()) < 0.05


def test_windowed_attention_equals_a_banded_mask(train: ModuleType) -> None:
    """Attention in blocks gives what a full matrix with a band of `window` tokens gives."""
    q, k, v = torch.randn(3, 2, 3, 11, 8)
    back = torch.arange(11)[:, None] - torch.arange(11)
    band = torch.zeros(11, 11).masked_fill((back < 0) | (back >= 4), -torch.inf)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=band)
    torch.testing.assert_close(train.attend_in_window(q, k, v, 4), expected)


def test_cpu_attention_equals_the_fused_kernel(train: ModuleType) -> None:
    """Plain products and the fused kernel agree."""
    q, k, v = torch.randn(3, 2, 3, 11, 8)
    mask = torch.full((11, 11), -torch.inf).triu(1)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(train.attend(q, k, v, mask), expected)


def test_own_gradients_are_the_true_ones(train: ModuleType) -> None:
    """The hand-written gradients of the norm and of the squared ReLU agree with finite differences."""
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(train.CpuNorm.apply, x)
    assert torch.autograd.gradcheck(train.CpuSquaredReLU.apply, x)
    torch.testing.assert_close(train.norm(x), F.rms_norm(x, (8,), eps=1e-6))


@pytest.mark.parametrize("logit_cap", [0.0, 5.0])
def test_chunked_loss_equals_cross_entropy(
    train: ModuleType, logit_cap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and both gradients are those of torch's cross-entropy, also where the last chunk is short."""
    monkeypatch.setattr(train, "LOGIT_CAP", logit_cap)
    monkeypatch.setattr(train.ChunkedLoss, "ROWS", 4)
    x, weight, targets = torch.randn(10, 8), torch.randn(V, 8), torch.randint(V, (10,))
    results = []
    for loss_of in (train.ChunkedLoss.apply, train.plain_loss):
        a, b = x.clone().requires_grad_(), weight.clone().requires_grad_()
        loss = loss_of(a, b, targets)
        (3 * loss).backward()
        results.append((loss.detach(), a.grad, b.grad))
    for chunked, plain in zip(*results, strict=True):
        torch.testing.assert_close(chunked, plain)


def test_orthogonalize_brings_singular_values_near_one(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five iterations leave singular values between 0.7 and 1.3, whatever they were, and keep the directions."""
    monkeypatch.setattr(train, "MUON_STEPS", 5)
    u, _ = torch.linalg.qr(torch.randn(8, 8))
    w, _ = torch.linalg.qr(torch.randn(24, 8))
    x = u @ torch.logspace(0, -2, 8).diag() @ w.T
    y = train.orthogonalize(x[None])[0]
    assert ((values := torch.linalg.svdvals(y)) > 0.7).all() and (values < 1.3).all()
    torch.testing.assert_close(y, u @ (u.T @ y @ w) @ w.T, atol=1e-4, rtol=0)
    assert float((u.T @ y @ w).diagonal().min()) > 0.7


def test_muon_moves_tall_matrices_like_their_transposes(train: ModuleType) -> None:
    """A tall matrix steps along the transpose of what its wide twin does, longer by the root of its aspect."""
    tall, wide = torch.nn.Parameter(torch.zeros(24, 8)), torch.nn.Parameter(torch.zeros(8, 24))
    tall.grad = torch.randn(24, 8)
    wide.grad = tall.grad.T.clone()
    train.Muon([tall, wide]).step(0.1)
    torch.testing.assert_close(tall.detach(), wide.detach().T * 3**0.5)


def test_sparse_and_dense_table_gradients_give_the_same_step(train: ModuleType) -> None:
    """Row-wise Adagrad sums rows that occur twice and leaves rows without gradient alone."""
    rows, values = torch.tensor([1, 3, 1]), torch.randn(3, 4)
    sparse = torch.sparse_coo_tensor(rows[None], values, (5, 4), check_invariants=True)
    tables = []
    for gradient in (sparse, sparse.to_dense()):
        table = torch.nn.Parameter(torch.ones(5, 4))
        optimizer = train.RowAdagrad(table)
        for _ in range(2):
            table.grad = gradient
            optimizer.step(0.1)
        tables.append(table.detach())
    torch.testing.assert_close(tables[0], tables[1])
    assert torch.equal(tables[0][[0, 2, 4]], torch.ones(3, 4))
    assert not torch.allclose(tables[0][1], torch.ones(4))


def test_learning_rate_ends_at_its_floor(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate rises over WARMUP, stays at one, and falls to FINAL_LR."""
    for name, value in {"WARMUP": 0.1, "WARMDOWN": 0.5, "FINAL_LR": 0.2}.items():
        monkeypatch.setattr(train, name, value)
    rates = [train.learning_rate(p) for p in (0.0, 0.05, 0.1, 0.5, 0.75, 1.0)]
    assert rates == pytest.approx([0.0, 0.5, 1.0, 1.0, 0.6, 0.2])


def test_training_learns(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """On text in which each token determines the next, forty steps bring the loss to a quarter."""
    session = run_main(train, monkeypatch, 40)
    assert session.losses[0] == pytest.approx(torch.tensor(V).log().item(), abs=0.1)
    assert session.losses[-1] < session.losses[0] / 4
    assert isinstance(session.finished_with, train.GPT)


def test_a_step_sees_the_total_batch_however_it_is_cut(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passes of half the sequences count as one step of all tokens."""
    session = run_main(train, monkeypatch, 2)
    assert session.tokens == [128, 128] and session.batch_sizes == [4]


def test_out_of_memory_halves_the_device_batch_once(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one failure training goes on with half the sequences a pass and as many tokens a step; it says so."""
    features, calls = train.GPT.features, []

    def too_large(model: Any, tokens: Tensor) -> Tensor:
        calls.append(len(tokens))
        if len(tokens) > 2:
            raise torch.OutOfMemoryError("planted")
        return features(model, tokens)  # type: ignore[no-any-return]

    monkeypatch.setattr(train.GPT, "features", too_large)
    session = run_main(train, monkeypatch, 2)
    assert session.batch_sizes == [4, 2] and session.tokens == [128, 128]
    assert calls == [4, *[2] * 8]
    assert len(session.logged) == 1 and "Out of memory" in session.logged[0]


def test_a_second_out_of_memory_is_the_end(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is halved once, not until it fits."""

    def never(model: Any, tokens: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("planted")

    monkeypatch.setattr(train.GPT, "features", never)
    with pytest.raises(torch.OutOfMemoryError):
        run_main(train, monkeypatch, 2)


@pytest.mark.parametrize(
    "change", [{"DEPTH": 1}, {"DEPTH": 3}, {"GRAMS": 1}, {"VALUE_EMBEDDINGS": True}, {"SMEAR": False}]
)
def test_one_dial_is_enough(train: ModuleType, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Turning a single constant leaves a model that trains."""
    for name, value in change.items():
        monkeypatch.setattr(train, name, value)
    assert len(run_main(train, monkeypatch, 1).losses) == 1


def test_accelerators_take_a_path_of_the_same_shapes(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off the CPU (here: torch's device without data) forward, loss and backward pass fit, with dense gradients."""
    monkeypatch.setattr(train, "DEPTH", 4)
    monkeypatch.setattr(train, "WINDOWS", "SL")
    monkeypatch.setattr(train, "SHORT_WINDOW", 4)
    monkeypatch.setattr(train, "VALUE_EMBEDDINGS", True)
    model = train.build_model(V).to("meta")
    tokens = torch.zeros(2, 15, dtype=torch.int64, device="meta")
    assert model(tokens).shape == (2, 15, V)
    loss = train.loss_for(tokens.device)(model.features(tokens).flatten(0, 1), model.head.weight, tokens.flatten())
    loss.backward()
    assert all(p.grad is not None and not p.grad.is_sparse for p in model.parameters())
    train.Muon(model.blocks.parameters()).step(0.1)
    train.RowAdagrad(model.tables).step(0.1)


def test_settings_are_literals_with_comments() -> None:
    """Every setting is a literal on a line of its own that says what it is, so that a search can turn it."""
    text = (files("autoresearch.adapters.ml_training") / "template" / "train.py").read_text(encoding="utf-8")
    settings = text[text.index("# --- Settings") : text.index("# --- Model ---")]
    lines = [line for line in settings.splitlines() if line and not line.startswith("#")]
    assert len(lines) > 20
    for line in lines:
        (node,) = ast.parse(line).body
        assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant), line
        assert "  # " in line, line
