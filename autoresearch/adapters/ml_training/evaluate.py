"""Bits per byte of one frozen text, and the checks without which the number means nothing.

The evaluator asks a `Predictor` for logits and computes everything else itself, so that the candidate's code can live
on the other side of any border: a function call today, a pipe to another process tomorrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, InvalidCandidateError

if TYPE_CHECKING:
    from autoresearch.adapters.ml_training.data import ScoredStream

PROBE_TOLERANCE: Final = 1e-3
"""Largest allowed shift of a logit, as a share of the spread of all logits, when tokens it must not see are changed.

Kernels see the same shapes both times, so an honest model's logits stay bit for bit the same on a processor; on a GPU
reduced precision may round anew. A leak moves them by the order of the spread itself.
"""


class Predictor(Protocol):
    """The candidate's trained model, as the evaluator sees it."""

    @property
    def context(self) -> int:
        """Longest window that the model takes, in tokens, T."""
        ...

    def logits(self, tokens: NDArray[np.int64]) -> Tensor:
        """Return the logits (B, T, V) that the model gives for windows of tokens (B, T), on any device."""
        ...


@dataclass(frozen=True, slots=True)
class Score:
    """What evaluating gives.

    Attributes:
        bits_per_byte: Loss in bits per byte of text; lower is better.
        standard_error: Of `bits_per_byte` over windows, as if they were independent; in bits per byte. For differences
            between two models of the same text it is far smaller, because both meet the same hard windows.
        total_bytes: Bytes that were scored.
        windows: Windows that were scored.
    """

    bits_per_byte: float
    standard_error: float
    total_bytes: int
    windows: int


@dataclass(frozen=True, slots=True)
class Windows:
    """A token stream cut into consecutive windows; every token but the first is a target exactly once.

    Attributes:
        inputs: Shape (N, T), int64. The last window is filled up with token 0, which counts for nothing.
        targets: The token after each input. Shape (N, T), int64.
        target_bytes: Bytes of text of each target; 0 for filling and special tokens. Shape (N, T), int64.
        counted: False for filling. Shape (N, T), bool.
    """

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    target_bytes: NDArray[np.int64]
    counted: NDArray[np.bool_]

    @classmethod
    def cut(cls, stream: ScoredStream, context: int) -> Windows:
        """Cut `stream` into windows of `context` tokens."""
        n_targets = len(stream.tokens) - 1
        n_windows = -(-n_targets // context)
        filling = n_windows * context - n_targets

        def rows(values: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.pad(values, (0, filling)).reshape(n_windows, context)

        counted = rows(np.ones(n_targets, dtype=np.int64)).astype(np.bool_)
        return cls(rows(stream.tokens[:-1]), rows(stream.tokens[1:]), rows(stream.token_bytes[1:]), counted)


def bits_per_byte(nats: NDArray[np.float64], target_bytes: NDArray[np.int64]) -> float:
    """Return the loss in bits per byte of text; lower is better.

    Counting bytes instead of tokens keeps candidates comparable when the vocabulary changes. Special tokens cost nats
    and have no bytes: a model pays for the ends of documents that it does not foresee.

    Args:
        nats: Negative log-likelihood of each target token, in nats. Any shape.
        target_bytes: Raw bytes of each target token, same shape; 0 for special tokens.

    Raises:
        EnvironmentNotReadyError: If no target has bytes, as with an empty split.
    """
    total = int(target_bytes.sum())
    if total == 0:
        raise EnvironmentNotReadyError(
            "The scored text is empty, so there is nothing to measure bits per byte on.\n"
            "Give more text: the splits are made by document, and each needs a few documents."
        )
    return math.fsum(nats.ravel()) / (math.log(2) * total)


def score(predictor: Predictor, stream: ScoredStream, *, batch_tokens: int, vocab_size: int, seed: int) -> Score:
    """Measure the predictor on the stream, after probing it for leaks.

    Args:
        predictor: The trained model.
        stream: The text; the same for every candidate.
        batch_tokens: Tokens per call of the predictor, about.
        vocab_size: Number of tokens, V.
        seed: Places the probes; let it be unpredictable.

    Raises:
        InvalidCandidateError: If the model sees the future or keeps state.
        CandidateError: If it gives a wrong shape or a value that is not finite.
    """
    windows = Windows.cut(stream, predictor.context)
    batch = max(1, min(batch_tokens // predictor.context, len(windows.inputs)))
    probe_for_leaks(predictor, windows, batch=batch, vocab_size=vocab_size, seed=seed)
    nats = np.concatenate([_nats(predictor, windows, rows, vocab_size) for rows in _batches(windows, batch)])
    _demand_no_memory(predictor, windows, nats, batch, vocab_size)
    per_window = nats.sum(axis=1) / math.log(2)
    value = bits_per_byte(nats, windows.target_bytes)
    if not math.isfinite(value) or value <= 0:
        raise CandidateError(f"val_bpb is {value}, which no language model can reach; the model's logits are broken.")
    residuals = per_window - value * windows.target_bytes.sum(axis=1)
    total = int(windows.target_bytes.sum())
    return Score(value, math.sqrt(float(np.square(residuals).sum())) / total, total, len(per_window))


def probe_for_leaks(predictor: Predictor, windows: Windows, *, batch: int, vocab_size: int, seed: int) -> None:
    """Change tokens that a prediction must not depend on, and demand that it stays.

    Each row of a batch has a cut of its own: all tokens after it are replaced at random, and so all rows differ in what
    follows. Logits up to the cut may depend neither on later tokens nor on other rows.

    Raises:
        InvalidCandidateError: If they do.
    """
    randomness = np.random.default_rng(seed)
    context = windows.inputs.shape[1]
    rows = np.sort(randomness.choice(len(windows.inputs), size=batch, replace=False))
    original = windows.inputs[rows]
    cuts = randomness.integers(0, max(1, context - 1), size=batch)
    later = np.arange(context)[None, :] > cuts[:, None]
    shift = randomness.integers(1, vocab_size, size=original.shape)
    changed = np.where(later, (original + shift) % vocab_size, original)
    before = _checked_logits(predictor, original, vocab_size)
    after = _checked_logits(predictor, changed, vocab_size)
    kept = torch.from_numpy(~later).to(before.device)
    moved = float((after - before).abs().amax(dim=2)[kept].max())
    if moved > PROBE_TOLERANCE * max(float(before.std()), 1e-6):
        raise InvalidCandidateError(
            "The model sees the future: predictions moved when later tokens (or other rows of the batch) were changed, "
            f"by up to {moved:.3g} in a logit. Its value would mean nothing. Make attention and every mixing of "
            "positions causal, and keep rows apart."
        )


def _demand_no_memory(
    predictor: Predictor, windows: Windows, nats: NDArray[np.float64], batch: int, vocab_size: int
) -> None:
    """Score the first batch again: a model that learns from the scored text while it is scored gives another value."""
    first = next(_batches(windows, batch))
    again = _nats(predictor, windows, first, vocab_size)
    if np.abs(again - nats[: len(again)]).max() > 0.05:
        raise InvalidCandidateError(
            "The model keeps state between calls: the same windows scored twice gave different losses. Its value would "
            "depend on what it was shown before; make forward() a function of its tokens alone."
        )


def _batches(windows: Windows, batch: int) -> Iterator[slice]:
    return (slice(start, start + batch) for start in range(0, len(windows.inputs), batch))


def _nats(predictor: Predictor, windows: Windows, rows: slice, vocab_size: int) -> NDArray[np.float64]:
    """Return the loss of every target in some windows, in nats, 0 for filling; shape (B, T)."""
    logits = _checked_logits(predictor, windows.inputs[rows], vocab_size)
    targets = torch.from_numpy(windows.targets[rows]).to(logits.device)
    # The evaluator normalises by itself and in float32: what a candidate calls a probability need not sum to one.
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    nats = losses.view(targets.shape).double().cpu().numpy()
    if not np.isfinite(nats).all():
        raise CandidateError("val_bpb is not finite: the trained model gives logits that are nan or infinite.")
    return np.where(windows.counted[rows], nats, 0.0)


def _checked_logits(predictor: Predictor, tokens: NDArray[np.int64], vocab_size: int) -> Tensor:
    logits = predictor.logits(tokens)
    expected = (*tokens.shape, vocab_size)
    if tuple(logits.shape) != expected:
        raise CandidateError(
            f"The model returns logits of shape {tuple(logits.shape)} for tokens of shape {tokens.shape}, and "
            f"{expected} is needed: one score for each of the {vocab_size} tokens at each position."
        )
    # They stay on their device: a batch of logits has gigabytes on a large GPU, and its losses a few kilobytes.
    return logits.detach().float()
