"""Endless training batches: best-fit packing of whole documents into full rows.

Rows hold exactly context + 1 tokens and nothing is padded or thrown away. Documents longer than a row are cut into
consecutive pieces; what is shorter is packed, always the longest piece that still fits; where nothing fits, the
shortest piece is cut to fill the row and its rest stays in play. Each epoch brings every token once, in an order that
the seed decides.

The loader's processor time is paid from the candidate's budget, so the work is done a window of rows at a time, in
numpy, and only for the tokens that are asked for.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.ml_training.data.prepared import Documents, PreparedData, TrainData
from autoresearch.core.errors import UsageError

_WINDOW_TOKENS = 1 << 19
"""Tokens planned ahead at least. Rows are shuffled and packed within a window, pieces across the whole epoch."""

_WINDOW_BATCHES = 8
"""Batches planned ahead at least, for batches that are large against `_WINDOW_TOKENS`."""


def training_batches(
    data: PreparedData | TrainData | Path, *, batch: int, context: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (inputs, targets) for ever; the same arguments give the same batches.

    Args:
        data: Prepared data, or the directory `train/` of it, which is all that is read.
        batch: Rows per batch, B.
        context: Tokens per row, T.
        seed: Decides the order.

    Yields:
        Inputs and the tokens that follow them, each of shape (B, T), int64, contiguous, owned by the caller.

    Raises:
        UsageError: If `batch` or `context` is not positive.
        EnvironmentNotReadyError: If the training directory is missing or damaged.
    """
    if batch < 1 or context < 1:
        raise UsageError(f"Batch {batch} and context {context} must both be at least 1.")
    documents = _documents(data)
    return _batches(documents, batch, context + 1, seed)


def _documents(data: PreparedData | TrainData | Path) -> Documents:
    if isinstance(data, PreparedData):
        return data.train_documents()
    return data.documents if isinstance(data, TrainData) else TrainData.load(data).documents


def _batches(
    documents: Documents, batch: int, width: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Cut the rows of all windows into batches."""
    pending = np.empty((0, width), documents.tokens.dtype)
    for window in packed_rows(documents, width, seed, max(_WINDOW_TOKENS, _WINDOW_BATCHES * batch * width)):
        rows = np.concatenate([pending, window]) if len(pending) else window
        whole = len(rows) - len(rows) % batch
        for start in range(0, whole, batch):
            chunk = rows[start : start + batch]
            yield chunk[:, :-1].astype(np.int64), chunk[:, 1:].astype(np.int64)
        pending = rows[whole:]


def packed_rows(
    documents: Documents, width: int, seed: int, window_tokens: int
) -> Iterator[NDArray[np.unsignedinteger[Any]]]:
    """Yield windows of full rows for ever, shape (rows, width) and the dtype of the tokens; a window may be empty.

    Tokens that do not fill a last row are carried into the next window and the next epoch.
    """
    starts, lengths = cut_into_pieces(documents.offsets, width)
    carried: list[tuple[int, int]] = []
    epoch = 0
    while True:
        random = np.random.default_rng([seed, epoch])
        order = random.permutation(len(starts))
        bounds = _window_bounds(lengths[order], window_tokens)
        for first, last in pairwise(bounds):
            chosen = order[first:last]
            segments, carried = _plan(starts[chosen], lengths[chosen], carried, width)
            rows = _gather(documents.tokens, segments, width)
            yield rows[random.permutation(len(rows))]
        epoch += 1


def cut_into_pieces(offsets: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut every document into consecutive pieces of `width` tokens and a shorter last one.

    Returns:
        First token and length of each piece, both of shape (pieces,), int64.
    """
    sizes = np.diff(offsets)
    counts = -(-sizes // width)
    document = np.repeat(np.arange(len(sizes)), counts)
    within = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = offsets[:-1][document] + within * width
    return starts, np.minimum(offsets[1:][document] - starts, width)


def _window_bounds(lengths: NDArray[np.int64], window_tokens: int) -> list[int]:
    """Return positions that cut `lengths` into windows of about `window_tokens` tokens; first 0, last its size."""
    totals = np.cumsum(lengths)
    marks = np.arange(window_tokens, int(totals[-1]), window_tokens)
    # A window may be empty of pieces only where marks fall into one piece, which is never longer than a row.
    return [0, *(np.searchsorted(totals, marks) + 1).tolist(), len(lengths)]


def _plan(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], carried: list[tuple[int, int]], width: int
) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    """Decide which tokens make up each row.

    Returns:
        Segments as (first token, length), row after row, shape (segments, 2); and the pieces left for the next window.
    """
    full = lengths == width
    short = sorted([*zip(lengths[~full].tolist(), starts[~full].tolist(), strict=True), *carried])
    packed, left = best_fit(short, width)
    whole = np.stack([starts[full], lengths[full]], axis=1)
    return np.concatenate([whole, np.array(packed, np.int64).reshape(-1, 2)]), left


def best_fit(pieces: list[tuple[int, int]], width: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Pack pieces into full rows, the longest that fits first.

    Args:
        pieces: (length, first token), sorted, each shorter than `width`; used up.
        width: Tokens per row.

    Returns:
        Segments as (first token, length), whose lengths add up to `width` row by row; and the pieces, as given, that
        are too few for another row.
    """
    left = sum(length for length, _ in pieces)
    segments: list[tuple[int, int]] = []
    beyond = 1 << 62
    while left >= width:
        room = width
        while room:
            at = bisect_right(pieces, (room, beyond)) - 1
            # Nothing fits: cut the shortest, whose rest is a small filler for later. Cutting the longest instead cuts
            # 20 % of the documents of web text in rows of 1,025 tokens, this way 3 % (benchmarks/loader.py).
            length, start = pieces.pop(max(at, 0))
            if length > room:
                insort(pieces, (length - room, start + room))
                length = room
            segments.append((start, length))
            room -= length
        left -= width
    return segments, pieces


def _gather(
    tokens: NDArray[np.unsignedinteger[Any]], segments: NDArray[np.int64], width: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Copy the segments end to end and fold them into rows, shape (rows, width)."""
    starts, lengths = segments[:, 0], segments[:, 1]
    targets = np.cumsum(lengths) - lengths
    index = np.arange(int(lengths.sum())) + np.repeat(starts - targets, lengths)
    rows: NDArray[np.unsignedinteger[Any]] = tokens[index].reshape(-1, width)
    return rows
