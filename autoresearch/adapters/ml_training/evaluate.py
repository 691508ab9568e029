"""Bits per byte of one frozen text, and the checks without which the number means nothing.

Numpy only: nothing in here runs a candidate. The candidate's model is asked through a `Predictor`, twice over:

- The **scored** model meets the text itself. It answers for the tokens of a window at once, so a model could use the
  inputs of later positions, which are the targets of earlier ones.
- The **witness** is the same model elsewhere, in a process that never gets to see those later tokens: it is asked
  about windows cut at random and filled up with noise. Where both had the same past they must agree. A model that looks
  ahead, or carries over what it saw in other windows, cannot make its witness foresee the same, however well it
  recognises that it is being examined.
"""

from __future__ import annotations

import bz2
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, InvalidCandidateError

if TYPE_CHECKING:
    from autoresearch.adapters.ml_training.data import ScoredStream

LOSS_TOLERANCE: Final = 5e-3
"""Largest allowed difference, in nats, between the losses that a model and its witness give the same token.

Both see batches of the same shape and each window in the same row, so that an honest model repeats itself nearly bit
for bit; a look ahead that moved every loss by less than this would gain 0.004 bits per byte at most.
"""
PROBED_SHARE: Final = 0.25
"""Share of the windows that the witness is asked about.

A model that looks at the next token at a share p of all places escapes n such windows with a chance of (1 - p) ** n: of
the 184 on the packaged text, one per cent of the places escapes once in six, two per cent once in forty.
"""
PROBED_WINDOWS: Final = 64
"""The same as a number: no fewer, where there are so many."""
FLOOR_SHARE: Final = 0.125
"""A value below this share of what bzip2 needs for the same text is impossible.

bzip2 needs 2.35 bits per byte for the scored part of the packaged text, so its floor is 0.29; a model of 20 s reaches
1.7 there.
"""
FRESH_SHARE: Final = 0.8
"""A fresh model's loss may not be below this share of the entropy of single tokens.

The best that can be said without any context, knowing how often each token occurs, costs that entropy: 6.0 nats on the
packaged text, where guessing costs 6.9, a model that counts tokens within its window 6.9, and one trained for 20 s 3.3.
"""


class Predictor(Protocol):
    """The candidate's model, as the evaluator sees it: tokens in, logits out."""

    @property
    def context(self) -> int:
        """Longest window that the model takes, in tokens, T."""
        ...

    def logits(self, tokens: NDArray[np.int64], *, fresh: bool = False) -> Iterable[NDArray[np.float32]]:
        """Yield the logits for windows of tokens (B, T), in blocks of consecutive positions.

        Args:
            tokens: Shape (B, T).
            fresh: Ask the model as `build_model` returns it; possible only before the first question without it.

        Yields:
            Logits of shape (n, V) float32; the sizes of all blocks add up to B * T. A block is the caller's to
            overwrite, and good until the next one is asked for.
        """
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
        fresh_loss: Loss of the model before its training, in nats per token; near ln V when it knows nothing. None
            where it is not finite.
    """

    bits_per_byte: float
    standard_error: float
    total_bytes: int
    windows: int
    fresh_loss: float | None


@dataclass(frozen=True, slots=True)
class Windows:
    """A token stream cut into consecutive windows; every token but the first is a target exactly once.

    Attributes:
        inputs: Shape (N, T), int64. What is missing at the end is filled up with token 0, which counts for nothing.
        targets: The token after each input. Shape (N, T), int64.
        target_bytes: Bytes of text of each target; 0 for filling and special tokens. Shape (N, T), int64.
        counted: False for filling. Shape (N, T), bool.
    """

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    target_bytes: NDArray[np.int64]
    counted: NDArray[np.bool_]

    @classmethod
    def cut(cls, stream: ScoredStream, context: int, *, multiple: int = 1) -> Windows:
        """Cut `stream` into windows of `context` tokens; whole windows of filling make N a multiple of `multiple`."""
        n_targets = len(stream.tokens) - 1
        n_windows = -(-n_targets // (context * multiple)) * multiple
        filling = n_windows * context - n_targets

        def rows(values: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.pad(values, (0, filling)).reshape(n_windows, context)

        counted = rows(np.ones(n_targets, dtype=np.int64)).astype(np.bool_)
        return cls(rows(stream.tokens[:-1]), rows(stream.tokens[1:]), rows(stream.token_bytes[1:]), counted)


@dataclass(frozen=True, slots=True)
class Probe:
    """One question to the witness.

    Attributes:
        windows: Windows that it is about, each in the row in which it is scored. Shape (B,), int64.
        inputs: Their tokens, noise after each one's cut. Shape (B, T), int64.
        kept: Where the past is unchanged, the token at the place included. Shape (B, T), bool.
    """

    windows: NDArray[np.int64]
    inputs: NDArray[np.int64]
    kept: NDArray[np.bool_]


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


def negative_log_likelihood(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the loss of each target in nats, after a softmax: whatever the logits, probabilities sum to one.

    Args:
        logits: Shape (n, V), overwritten.
        targets: Shape (n,).

    Returns:
        Shape (n,); nan where a position has a logit that is nan or plus infinity.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # nan and infinities are looked for in the result
        logits -= logits.max(axis=1, keepdims=True)
        of_target = logits[np.arange(len(targets)), targets].astype(np.float64)
        np.exp(logits, out=logits)
        return np.asarray(np.log(logits.sum(axis=1).astype(np.float64)) - of_target)


def score(
    scored: Predictor,
    witness: Predictor,
    stream: ScoredStream,
    *,
    batch_tokens: int,
    vocab_size: int,
    seed: int,
    floor: float = 0.0,
) -> Score:
    """Measure a model on the stream, and refuse a value that is none.

    Args:
        scored: The trained model.
        witness: The same model, in a place that knows nothing of what `scored` is asked.
        stream: The text; the same for every candidate.
        batch_tokens: Tokens per call of a predictor, about.
        vocab_size: Number of tokens, V.
        seed: Places the probes; let it be unpredictable.
        floor: Bits per byte that no model can reach; see `lowest_possible`.

    Raises:
        InvalidCandidateError: If the model sees the future, keeps state, knew the text before it was trained, or is
            better than can be.
        CandidateError: If it gives a wrong shape or a value that is not finite.
    """
    context = scored.context
    batch = max(1, min(batch_tokens // context, -(-(len(stream.tokens) - 1) // context)))
    windows = Windows.cut(stream, context, multiple=batch)
    nats = np.empty(windows.targets.shape)
    for chosen in _calls(len(nats), batch):
        nats[chosen] = _losses(scored, windows.inputs[chosen], windows.targets[chosen])
    _demand_finite(nats[windows.counted])
    _demand_no_memory(scored, windows, nats, batch)
    fresh = _ask_witness(witness, windows, nats, batch=batch, vocab_size=vocab_size, seed=seed)
    _demand_innocence(fresh, stream, vocab_size)
    return _score(windows, nats, floor, fresh)


def _score(windows: Windows, nats: NDArray[np.float64], floor: float, fresh: float) -> Score:
    nats = np.where(windows.counted, nats, 0.0)
    value = bits_per_byte(nats, windows.target_bytes)
    if value < floor or value <= 0:
        raise InvalidCandidateError(
            f"val_bpb is {value:.4f}, and for this text no language model gets below {floor:.2f}: the model must know "
            "the text from somewhere. Its value would mean nothing."
        )
    bits, sizes = nats.sum(axis=1) / math.log(2), windows.target_bytes.sum(axis=1)
    total = int(sizes.sum())
    error = math.sqrt(float(np.square(bits - value * sizes).sum())) / total
    return Score(value, error, total, int(windows.counted.any(axis=1).sum()), fresh if math.isfinite(fresh) else None)


def lowest_possible(text: bytes) -> float:
    """Return bits per byte that no language model reaches on `text`, as a share of what bzip2 needs for it."""
    return FLOOR_SHARE * 8 * len(bz2.compress(text, 9)) / len(text)


def probes(windows: Windows, *, batch: int, vocab_size: int, seed: int) -> list[Probe]:
    """Choose at random what the witness is asked.

    Each row has a cut of its own, anywhere in the window: all tokens after it are replaced by other ones. Windows meet
    other neighbours than when they are scored, but stand in the same row of a batch of the same size, so that a model
    without memory computes the very same sums for them.
    """
    randomness = np.random.default_rng(seed)
    calls = len(windows.inputs) // batch
    wanted = min(calls, -(-max(PROBED_WINDOWS, math.ceil(PROBED_SHARE * len(windows.inputs))) // batch))
    columns = np.stack([randomness.permutation(calls)[:wanted] for _ in range(batch)])  # (B, questions)
    context = windows.inputs.shape[1]
    questions = []
    for column in columns.T:
        chosen = np.arange(batch) * calls + column
        kept = np.arange(context) <= randomness.integers(0, context, size=(batch, 1))
        shift = randomness.integers(1, vocab_size, size=kept.shape)
        original = windows.inputs[chosen]
        questions.append(Probe(chosen, np.where(kept, original, (original + shift) % vocab_size), kept))
    return questions


def _ask_witness(
    witness: Predictor, windows: Windows, nats: NDArray[np.float64], *, batch: int, vocab_size: int, seed: int
) -> float:
    """Compare the witness's losses with those that were scored; return the loss of the fresh model on the first probe.

    Raises:
        InvalidCandidateError: If they differ.
    """
    if witness.context != windows.inputs.shape[1]:
        raise InvalidCandidateError(
            f"CONTEXT of train.py is {windows.inputs.shape[1]} at one time and {witness.context} at another; make it a "
            "constant."
        )
    questions = probes(windows, batch=batch, vocab_size=vocab_size, seed=seed)
    first = questions[0]
    kept = first.kept & windows.counted[first.windows]
    fresh = _losses(witness, first.inputs, windows.targets[first.windows], fresh=True)[kept].mean()
    for probe in questions:
        losses = _losses(witness, probe.inputs, windows.targets[probe.windows])
        kept = probe.kept & windows.counted[probe.windows]
        moved = np.abs(losses - nats[probe.windows])[kept].max(initial=0.0)
        if not moved <= LOSS_TOLERANCE:
            raise InvalidCandidateError(
                "The model sees the future, or other windows: where later tokens, other rows of the batch and what was "
                f"asked before were changed, losses moved by up to {moved:.3g} nats. Its value means nothing. Make "
                "attention and every mixing of positions causal, and keep rows and calls apart."
            )
    return float(fresh)


def _demand_innocence(fresh: float, stream: ScoredStream, vocab_size: int) -> None:
    """Refuse a model that knows the language before it was trained; what it knows was not learned within the budget."""
    counts = np.bincount(stream.tokens[1:], minlength=vocab_size)
    shares = counts[counts > 0] / counts.sum()
    bar = FRESH_SHARE * -float((shares * np.log(shares)).sum())
    if fresh < bar:
        raise InvalidCandidateError(
            f"The model that build_model returns has a loss of {fresh:.2f} nats per token before it is trained; one "
            f"that knows nothing has about {math.log(vocab_size):.2f}, and below {bar:.2f} it must carry knowledge of "
            "the text. Begin with random weights."
        )


def _demand_no_memory(scored: Predictor, windows: Windows, nats: NDArray[np.float64], batch: int) -> None:
    """Ask about the first batch again: a model that learns from the scored text while it is scored answers anew."""
    first = next(_calls(len(nats), batch))
    again = _losses(scored, windows.inputs[first], windows.targets[first])
    if not np.abs(again - nats[first])[windows.counted[first]].max() <= LOSS_TOLERANCE:
        raise InvalidCandidateError(
            "The model keeps state between calls: the same windows scored twice gave different losses. Its value would "
            "depend on what it was shown before; make forward() a function of its tokens alone."
        )


def _calls(n_windows: int, batch: int) -> Iterator[NDArray[np.int64]]:
    """Yield the windows of each call, one from each of `batch` equal parts of the text, from front to back.

    The first token of a window is the last target of the window before, so the two never stand in one call, and the
    later one comes later.
    """
    calls = n_windows // batch
    return (np.arange(batch) * calls + call for call in range(calls))


def _losses(
    predictor: Predictor, inputs: NDArray[np.int64], targets: NDArray[np.int64], *, fresh: bool = False
) -> NDArray[np.float64]:
    """Return the loss of every target, in nats, filling included; shape (B, T)."""
    flat = targets.ravel()
    losses: list[NDArray[np.float64]] = []
    done = 0
    for block in predictor.logits(inputs, fresh=fresh):
        losses.append(negative_log_likelihood(block, flat[done : done + len(block)]))
        done += len(block)
    return np.concatenate(losses).reshape(targets.shape)


def _demand_finite(nats: NDArray[np.float64]) -> None:
    if not np.isfinite(nats).all():
        raise CandidateError("val_bpb is not finite: the trained model gives logits that are nan or infinite.")
