from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from autoresearch.adapters.ml_training.data import ScoredStream
from autoresearch.adapters.ml_training.evaluate import Windows, bits_per_byte, probe_for_leaks, score
from autoresearch.adapters.ml_training.evaluate_process import cut
from autoresearch.core import CandidateError, EnvironmentNotReadyError
from autoresearch.core.errors import InvalidCandidateError

V = 7


def stream_of(n_tokens: int, seed: int = 0) -> ScoredStream:
    """A stream that begins with token 6 (no bytes); token i stands for i + 1 bytes otherwise."""
    tokens = np.random.default_rng(seed).integers(0, V, size=n_tokens)
    tokens[0] = V - 1
    sizes = np.where(tokens == V - 1, 0, tokens + 1)
    sizes[0] = 0
    return ScoredStream(tokens, sizes, int(sizes.sum()))


class Table:
    """A bigram model with fixed logits; `spoil` changes logits (B, T, V) given tokens (B, T)."""

    def __init__(self, context: int, spoil: object = None) -> None:
        self.context = context
        self.table = torch.randn(V, V, generator=torch.Generator().manual_seed(3))
        self.spoil = spoil
        self.calls = 0

    def logits(self, tokens: NDArray[np.int64]) -> Tensor:
        self.calls += 1
        logits = self.table[torch.from_numpy(tokens)]
        return logits if self.spoil is None else self.spoil(logits, torch.from_numpy(tokens), self.calls)  # type: ignore[operator]


def value_of(model: Table, stream: ScoredStream, batch_tokens: int = 32) -> float:
    return score(model, stream, batch_tokens=batch_tokens, vocab_size=V, seed=1).bits_per_byte


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
    nats = torch.nn.functional.cross_entropy(
        Table(1).table[torch.from_numpy(stream.tokens[:-1])], torch.from_numpy(stream.tokens[1:]), reduction="sum"
    )
    expected = float(nats) / math.log(2) / stream.total_bytes
    assert value_of(Table(context), stream, batch_tokens=48) == pytest.approx(expected, rel=1e-5)


def test_a_uniform_model_costs_the_logarithm_of_the_vocabulary() -> None:
    """Equal logits make log2(V) bits for each of the 299 targets."""
    stream = stream_of(300)
    value = value_of(Table(10, lambda logits, tokens, calls: torch.zeros_like(logits)), stream)
    assert value == pytest.approx(299 * math.log2(V) / stream.total_bytes, rel=1e-6)


def test_logits_need_not_be_normalised_and_cannot_claim_more_than_one() -> None:
    """Adding a constant to all logits, which would be a probability of e^50 each, changes nothing."""
    stream = stream_of(200)
    shifted = Table(10, lambda logits, tokens, calls: logits + 50)
    assert value_of(shifted, stream) == pytest.approx(value_of(Table(10), stream), rel=1e-4)


def leak_next(logits: Tensor, tokens: Tensor, calls: int) -> Tensor:
    following = torch.roll(tokens, -1, dims=1)
    return logits + 0.05 * torch.nn.functional.one_hot(following, V)


def leak_mean(logits: Tensor, tokens: Tensor, calls: int) -> Tensor:
    return logits + 0.1 * tokens.float().mean(dim=1)[:, None, None] * torch.linspace(0, 1, V)


def leak_rows(logits: Tensor, tokens: Tensor, calls: int) -> Tensor:
    return logits - logits.mean(dim=0, keepdim=True)


@pytest.mark.parametrize("leak", [leak_next, leak_mean, leak_rows])
def test_a_model_that_sees_later_tokens_or_other_rows_is_invalid(leak: object) -> None:
    """A slight leak is found at every seed of the probe."""
    windows = Windows.cut(stream_of(400), 16)
    for seed in range(10):
        with pytest.raises(InvalidCandidateError, match="sees the future"):
            probe_for_leaks(Table(16, leak), windows, batch=8, vocab_size=V, seed=seed)


def test_an_honest_model_passes_the_probe_at_every_seed() -> None:
    """A running mean of the past is causal, whatever is changed behind the cut."""

    def past(logits: Tensor, tokens: Tensor, calls: int) -> Tensor:
        return logits + (tokens.float().cumsum(dim=1) / torch.arange(1, 17))[..., None] * torch.linspace(0, 1, V)

    windows = Windows.cut(stream_of(400), 16)
    for seed in range(30):
        probe_for_leaks(Table(16, past), windows, batch=8, vocab_size=V, seed=seed)


def test_a_model_that_learns_while_it_is_scored_is_invalid() -> None:
    """The same windows scored twice must cost the same."""
    learner = Table(16, lambda logits, tokens, calls: logits * (1 + max(0, calls - 2)))
    with pytest.raises(InvalidCandidateError, match="keeps state"):
        value_of(learner, stream_of(400))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_the_candidates_fault(bad: float) -> None:
    """One bad logit at one position is enough."""

    def spoil(logits: Tensor, tokens: Tensor, calls: int) -> Tensor:
        logits = logits.clone()
        logits[0, 0, 0] = bad
        return logits

    with pytest.raises(CandidateError, match="not finite"):
        value_of(Table(16, spoil), stream_of(200))


def test_logits_of_another_shape_are_refused_with_both_shapes() -> None:
    """A model without the last token of the vocabulary would get away with fewer choices."""
    with pytest.raises(CandidateError, match=r"\(2, 16, 6\).*\(2, 16, 7\)"):
        value_of(Table(16, lambda logits, tokens, calls: logits[..., :-1]), stream_of(200))


def test_the_standard_error_is_the_one_of_a_ratio() -> None:
    """For a uniform model over tokens of one byte every window costs the same, so the error is zero."""
    tokens = np.zeros(161, dtype=np.int64)
    stream = ScoredStream(tokens, np.ones(161, dtype=np.int64), 161)
    result = score(
        Table(16, lambda logits, tokens, calls: torch.zeros_like(logits)), stream, batch_tokens=32, vocab_size=V, seed=0
    )
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
