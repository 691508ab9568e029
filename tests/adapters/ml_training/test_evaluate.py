from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autoresearch.adapters.ml_training.data import ScoredStream
from autoresearch.adapters.ml_training.evaluate import (
    Windows,
    bits_per_byte,
    lowest_possible,
    negative_log_likelihood,
    probes,
    score,
)
from autoresearch.adapters.ml_training.evaluate_process import cut
from autoresearch.core import CandidateError, EnvironmentNotReadyError
from autoresearch.core.errors import InvalidCandidateError

V = 7
Logits = NDArray[np.float32]
Tokens = NDArray[np.int64]
Spoil = Callable[[Logits, Tokens, "Table"], Logits]


def stream_of(n_tokens: int, seed: int = 0) -> ScoredStream:
    """A stream that begins with token 6 (no bytes); token i stands for i + 1 bytes otherwise."""
    tokens = np.random.default_rng(seed).integers(0, V, size=n_tokens)
    tokens[0] = V - 1
    sizes = np.where(tokens == V - 1, 0, tokens + 1)
    sizes[0] = 0
    return ScoredStream(tokens, sizes, int(sizes.sum()))


TABLE = np.random.default_rng(3).normal(size=(V, V)).astype(np.float32)


def nothing(tokens: Tokens) -> Logits:
    return np.zeros((*tokens.shape, V), dtype=np.float32)


class Table:
    """A bigram model with fixed logits; `spoil` changes logits (B, T, V) given tokens (B, T). Fresh, it knows nothing.

    It answers in blocks of five positions, which end anywhere in a row, and remembers what it was asked.
    """

    def __init__(
        self, context: int, spoil: Spoil | None = None, *, fresh: Callable[[Tokens], Logits] = nothing
    ) -> None:
        self.context = context
        self.spoil = spoil
        self.fresh = fresh
        self.asked: list[Tokens] = []

    def logits(self, tokens: Tokens, *, fresh: bool = False) -> Iterator[Logits]:
        self.asked.append(tokens)
        logits = self.fresh(tokens) if fresh else TABLE[tokens]
        if self.spoil is not None and not fresh:
            logits = self.spoil(logits, tokens, self)
        flat = np.array(logits, dtype=np.float32).reshape(tokens.size, -1)
        for start in range(0, len(flat), 5):
            yield flat[start : start + 5]


def value_of(
    context: int, stream: ScoredStream, spoil: Spoil | None = None, *, batch_tokens: int = 32, seed: int = 1
) -> float:
    scored, witness = Table(context, spoil), Table(context, spoil)
    return score(scored, witness, stream, batch_tokens=batch_tokens, vocab_size=V, seed=seed).bits_per_byte


def test_bits_per_byte_of_a_hand_computed_case() -> None:
    """Two targets of 1 and 3 bytes that cost ln 2 and 3 ln 2 nats make exactly one bit per byte."""
    nats = np.array([math.log(2), 3 * math.log(2)])
    assert bits_per_byte(nats, np.array([1, 3])) == pytest.approx(1.0, abs=1e-15)


def test_special_tokens_cost_bits_and_bring_no_bytes() -> None:
    """A document end that was not foreseen makes the text dearer, not longer."""
    nats = np.array([math.log(2), 2 * math.log(2)])
    assert bits_per_byte(nats, np.array([2, 0])) == pytest.approx(1.5)


def test_an_empty_text_is_the_machines_fault() -> None:
    """Without bytes there is no value, and the sentence says what to give."""
    with pytest.raises(EnvironmentNotReadyError, match="empty"):
        bits_per_byte(np.zeros(3), np.zeros(3, dtype=np.int64))


@given(n=st.integers(2, 90), context=st.integers(1, 40))
def test_every_token_but_the_first_is_a_target_exactly_once(n: int, context: int) -> None:
    """Windows of any length score the same tokens and the same bytes."""
    stream = stream_of(n)
    windows = Windows.cut(stream, context)
    assert np.array_equal(windows.targets[windows.counted], stream.tokens[1:])
    assert np.array_equal(windows.inputs[windows.counted], stream.tokens[:-1])
    assert windows.target_bytes[windows.counted].sum() == stream.total_bytes == windows.target_bytes.sum()


@pytest.mark.parametrize("context", [1, 5, 16, 64, 500])
def test_a_bigram_model_scores_the_same_whatever_its_context_and_batch(context: int) -> None:
    """A model that looks one token back gains nothing by another context length, batch or filling."""
    stream = stream_of(300)
    nats = negative_log_likelihood(TABLE[stream.tokens[:-1]].copy(), stream.tokens[1:]).sum()
    expected = float(nats) / math.log(2) / stream.total_bytes
    assert value_of(context, stream, batch_tokens=48) == pytest.approx(expected, rel=1e-6)


@given(
    logits=st.lists(
        st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=4, max_size=4), min_size=1, max_size=5
    ),
)
def test_probabilities_of_all_tokens_sum_to_one_whatever_the_logits(logits: list[list[float]]) -> None:
    """A candidate cannot claim more than one in total: the evaluator normalises by itself."""
    rows = np.array(logits, dtype=np.float32)
    losses = [negative_log_likelihood(rows.copy(), np.full(len(rows), token)) for token in range(4)]
    assert np.exp(-np.array(losses)).sum(axis=0) == pytest.approx(1.0, abs=1e-6)
    assert (np.array(losses) >= -1e-6).all()


def test_the_loss_agrees_with_torch() -> None:
    """The reference is torch's cross entropy in float64."""
    import torch

    randomness = np.random.default_rng(5)
    logits = (10 * randomness.normal(size=(200, 50))).astype(np.float32)
    targets = randomness.integers(0, 50, size=200)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits).double(), torch.from_numpy(targets), reduction="none"
    )
    assert negative_log_likelihood(logits.copy(), targets) == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_token_may_be_called_impossible() -> None:
    """Minus infinity is a probability of zero: fine for other tokens, no finite loss for the target itself."""
    logits = np.array([[0.0, 0.0, -np.inf]], dtype=np.float32)
    assert negative_log_likelihood(logits.copy(), np.array([0]))[0] == pytest.approx(math.log(2))
    assert negative_log_likelihood(logits.copy(), np.array([2]))[0] == np.inf


def uniform(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    return np.zeros_like(logits)


def test_a_uniform_model_costs_the_logarithm_of_the_vocabulary() -> None:
    """Equal logits make log2(V) bits for each of the 299 targets."""
    stream = stream_of(300)
    assert value_of(10, stream, uniform) == pytest.approx(299 * math.log2(V) / stream.total_bytes, rel=1e-6)


def test_logits_need_not_be_normalised() -> None:
    """Adding a constant to all logits, which would be a probability of e^50 each, changes nothing."""
    stream = stream_of(200)
    shifted = value_of(10, stream, lambda logits, tokens, model: logits + 50)
    assert shifted == pytest.approx(value_of(10, stream), rel=1e-4)


def hot(tokens: Tokens) -> Logits:
    return np.eye(V, dtype=np.float32)[tokens]


def leak_next(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    return logits + np.float32(0.05) * hot(np.roll(tokens, -1, axis=1))


def leak_mean(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    return logits + 0.1 * tokens.mean(axis=1)[:, None, None] * np.linspace(0, 1, V)


def leak_rows(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    return logits - logits.mean(axis=0, keepdims=True)


def leak_late(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    """Is honest at first, for as long as an examiner might look."""
    return leak_next(logits, tokens, model) if len(model.asked) > 4 else logits


def leak_in_text(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    """Looks ahead only where what follows is no noise: here, where it was asked before or is asked first."""
    known = any(np.array_equal(tokens, asked) for asked in model.asked[:-1]) or len(model.asked) % 2
    return leak_next(logits, tokens, model) if known else logits


def leak_consistently(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    """Remembers what it said and repeats itself wherever the past is the same, however its examiner comes back."""
    said: dict[bytes, Logits] = model.__dict__.setdefault("said", {})
    leaking = leak_next(logits, tokens, model)
    for row, window in enumerate(tokens):
        for place in range(len(window)):
            leaking[row, place] = said.setdefault(window[: place + 1].tobytes(), leaking[row, place].copy())
    return leaking


@pytest.mark.parametrize("leak", [leak_next, leak_mean, leak_rows, leak_late, leak_in_text, leak_consistently])
def test_a_model_that_sees_what_it_must_not_is_invalid(leak: Spoil) -> None:
    """A slight leak is found at every seed of the probe, also one that hides from whoever asks the same model twice."""
    for seed in range(10):
        with pytest.raises(InvalidCandidateError, match=r"sees the future|keeps state"):
            value_of(16, stream_of(2000), leak, seed=seed)


def past(logits: Logits, tokens: Tokens, model: Table) -> Logits:
    mean = tokens.cumsum(axis=1) / np.arange(1, tokens.shape[1] + 1)
    return logits + mean[..., None] * np.linspace(0, 1, V)


def test_an_honest_model_passes_at_every_seed() -> None:
    """A running mean of the past is causal, whatever is changed behind the cut."""
    for seed in range(20):
        assert math.isfinite(value_of(16, stream_of(400), past, seed=seed))


@given(n=st.integers(2, 400), context=st.integers(1, 20), batch=st.integers(1, 9), seed=st.integers(0, 2**64 - 1))
def test_a_witness_never_sees_what_comes_after_a_cut(n: int, context: int, batch: int, seed: int) -> None:
    """Every token behind the cut is another one than in the text; before it, and at it, all are the same."""
    windows = Windows.cut(stream_of(n), context, multiple=batch)
    asked: list[int] = []
    for probe in probes(windows, batch=batch, vocab_size=V, seed=seed):
        original = windows.inputs[probe.windows]
        assert np.array_equal(probe.inputs == original, probe.kept)
        assert probe.kept[:, 0].all()
        calls = len(windows.inputs) // batch
        assert (probe.windows // calls).tolist() == list(range(batch))  # each in the row in which it is scored
        asked.extend(probe.windows.tolist())
    assert len(set(asked)) == len(asked) >= min(64, len(windows.inputs))


def test_no_call_has_a_window_together_with_the_one_before_it() -> None:
    """The first token of a window is the last target of the window before: it is shown later, in another call."""
    scored, stream = Table(8), stream_of(400)
    score(scored, Table(8), stream, batch_tokens=32, vocab_size=V, seed=0)
    windows = Windows.cut(stream, 8, multiple=4).inputs[:50].tolist()
    calls = [[windows.index(row) for row in asked.tolist() if row in windows] for asked in scored.asked[:-1]]
    assert sorted(at for call in calls for at in call) == list(range(len(windows)))
    when = {at: number for number, call in enumerate(calls) for at in call}
    late = [at for at in when if at + 1 in when and when[at + 1] <= when[at]]
    assert late == [12, 25, 38]  # the last windows of a row: what begins the next row was shown at the very beginning


def test_a_model_that_learns_while_it_is_scored_is_invalid() -> None:
    """The same windows scored twice must cost the same."""
    with pytest.raises(InvalidCandidateError, match="keeps state"):
        value_of(16, stream_of(400), lambda logits, tokens, model: logits * (1 + len(model.asked)))


def test_a_model_that_knows_the_text_before_it_is_trained_is_invalid() -> None:
    """What was not learned within the budget is no result of it."""
    text = ScoredStream(np.arange(400) % V, np.ones(400, dtype=np.int64), 400)
    knowing = Table(16, fresh=lambda tokens: 9 * hot((tokens + 1) % V))
    with pytest.raises(InvalidCandidateError, match="before it is trained"):
        score(Table(16), knowing, text, batch_tokens=32, vocab_size=V, seed=0)
    honest = score(Table(16), Table(16), text, batch_tokens=32, vocab_size=V, seed=0)
    assert honest.fresh_loss == pytest.approx(math.log(V))


def test_a_value_below_what_the_text_allows_is_invalid() -> None:
    """However it came about; the sentence has both numbers."""
    stream = stream_of(300)
    honest = value_of(16, stream)
    with pytest.raises(InvalidCandidateError, match=r"no language model gets below 9\.00"):
        score(Table(16), Table(16), stream, batch_tokens=32, vocab_size=V, seed=0, floor=9.0)
    assert score(Table(16), Table(16), stream, batch_tokens=32, vocab_size=V, seed=0, floor=0.9 * honest)


def test_the_floor_is_an_eighth_of_what_bzip2_needs() -> None:
    """Random bytes cannot be compressed: one bit per byte. Repetition can, and its floor is near zero."""
    noise = np.random.default_rng(0).bytes(50_000)
    assert lowest_possible(noise) == pytest.approx(1.0, abs=0.02)
    assert lowest_possible(b"again and " * 5_000) < 0.01


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_the_candidates_fault(bad: float) -> None:
    """One bad logit at one position is enough."""

    def spoil(logits: Logits, tokens: Tokens, model: Table) -> Logits:
        logits = logits.copy()
        logits[0, 0, 0] = bad
        return logits

    with pytest.raises(CandidateError, match="not finite"):
        value_of(16, stream_of(200), spoil)


def test_a_context_that_changes_between_processes_is_invalid() -> None:
    """It would cut the text for the witness elsewhere."""
    with pytest.raises(InvalidCandidateError, match="16 at one time and 8 at another"):
        score(Table(16), Table(8), stream_of(200), batch_tokens=32, vocab_size=V, seed=0)


def test_the_standard_error_is_the_one_of_a_ratio() -> None:
    """For a uniform model over tokens of one byte every window costs the same, so the error is zero."""
    tokens = np.zeros(161, dtype=np.int64)
    stream = ScoredStream(tokens, np.ones(161, dtype=np.int64), 161)
    result = score(Table(16, uniform), Table(16, uniform), stream, batch_tokens=32, vocab_size=V, seed=0)
    assert result.standard_error == pytest.approx(0.0, abs=1e-6)
    assert (result.windows, result.total_bytes) == (10, 160)


@given(n=st.integers(2, 60), max_bytes=st.integers(0, 300))
def test_a_bound_keeps_the_beginning_of_the_stream(n: int, max_bytes: int) -> None:
    """As many whole tokens as fit, at least one to score, and the same for every candidate."""
    stream = stream_of(n)
    part = cut(stream, max_bytes)
    count = len(part.tokens)
    assert np.array_equal(part.tokens, stream.tokens[:count])
    assert part.total_bytes == part.token_bytes.sum()
    assert part.total_bytes <= max_bytes or count == 2
    assert count == n or part.total_bytes + stream.token_bytes[count] > max_bytes
    assert cut(stream, None) is stream


def test_the_evaluating_process_imports_no_torch_and_nothing_that_runs_a_candidate() -> None:
    """It computes with numpy alone; and on Linux no other process of the user may look into its memory."""
    program = (
        "import ctypes, sys\n"
        "from autoresearch.adapters.ml_training import evaluate_process\n"
        "prefix = 'autoresearch.adapters.ml_training.'\n"
        "unwanted = {'torch', *(prefix + name for name in ('harness', 'train_process', 'predict_process'))}\n"
        "assert not unwanted & set(sys.modules), unwanted & set(sys.modules)\n"
        "evaluate_process._close_memory_to_others()\n"
        "get_dumpable = 3\n"
        "assert sys.platform != 'linux' or ctypes.CDLL(None).prctl(get_dumpable, 0, 0, 0, 0) == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
