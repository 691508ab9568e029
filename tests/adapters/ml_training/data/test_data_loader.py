from __future__ import annotations

import shutil
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autoresearch.adapters.ml_training.data import Documents, PreparedData, TrainData, training_batches
from autoresearch.adapters.ml_training.data.loader import best_fit, cut_into_pieces, packed_rows
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def numbered(lengths: list[int]) -> Documents:
    """Documents in which every token is another number, so that it can be told where each one went."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(np.arange(offsets[-1], dtype=np.uint32), offsets)


def rows_of(documents: Documents, width: int, seed: int, count: int, window: int = 200) -> NDArray[np.int64]:
    rows: list[NDArray[np.int64]] = []
    for found in packed_rows(documents, width, seed, window):
        rows.extend(found.astype(np.int64))
        if len(rows) >= count:
            return np.array(rows[:count])
    raise AssertionError("an endless stream ended")


@given(LENGTHS, st.integers(2, 20), st.integers(0, 5), st.integers(1, 100))
def test_every_token_comes_once_per_epoch(lengths: list[int], width: int, seed: int, window: int) -> None:
    """Over k epochs each token is in a row k times, less only what waits to fill a row."""
    epochs = 3
    total = sum(lengths)
    rows = rows_of(numbered(lengths), width, seed, epochs * total // width, window)
    counts = Counter(rows.ravel().tolist())
    # What waits is less than a row, so early tokens of the next epoch can be in only as far as others are still out.
    assert sum(abs(counts[token] - epochs) for token in range(total)) < 2 * width
    assert len(rows) * width > epochs * total - width


@given(LENGTHS, st.integers(2, 20), st.integers(0, 5))
def test_one_epoch_repeats_nothing(lengths: list[int], width: int, seed: int) -> None:
    """Within the first epoch no token comes twice."""
    whole = sum(lengths) // width
    if whole:
        tokens = rows_of(numbered(lengths), width, seed, whole, window=1 << 20).ravel()
        assert len(set(tokens.tolist())) == len(tokens)


@given(LENGTHS, st.integers(2, 20))
def test_pieces_are_consecutive_and_cover_everything(lengths: list[int], width: int) -> None:
    """Cutting loses nothing, and only the last piece of a document is shorter than a row."""
    documents = numbered(lengths)
    starts, sizes = cut_into_pieces(documents.offsets, width)
    covered = [token for start, size in zip(starts, sizes, strict=True) for token in range(start, start + size)]
    assert covered == list(range(sum(lengths)))
    ends = set(documents.offsets.tolist())
    assert all(size == width or start + size in ends for start, size in zip(starts, sizes, strict=True))


def test_a_document_that_fits_is_not_cut() -> None:
    """Pieces of 6, 4, 7 and 3 fill two rows of 10 without a cut."""
    segments, left = best_fit(sorted([(6, 0), (4, 6), (7, 10), (3, 17)]), 10)
    assert segments == [(10, 7), (17, 3), (0, 6), (6, 4)]
    assert left == []


def test_where_nothing_fits_the_rest_of_a_cut_piece_stays() -> None:
    """Pieces of 5, 6 and 7 in rows of 8: the shortest is cut, and its rest fills the next row."""
    segments, left = best_fit([(5, 0), (6, 100), (7, 200)], 8)
    assert segments == [(200, 7), (0, 1), (100, 6), (1, 2)]
    assert left == [(2, 3)]


def test_targets_are_the_next_tokens(small: PreparedData) -> None:
    """Targets are the inputs moved by one, and both are contiguous int64 of shape (B, T)."""
    inputs, targets = next(training_batches(small, batch=4, context=16, seed=0))
    assert inputs.shape == targets.shape == (4, 16)
    assert inputs.dtype == targets.dtype == np.int64
    assert inputs.flags.c_contiguous and targets.flags.c_contiguous
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])


def test_batches_may_be_written_to(small: PreparedData) -> None:
    """Writing to a batch changes neither the targets nor what comes later."""
    spoiled = training_batches(small, batch=2, context=8, seed=0)
    intact = training_batches(small, batch=2, context=8, seed=0)
    inputs, targets = next(spoiled)
    inputs[:] = 0
    assert np.array_equal(targets, next(intact)[1])
    assert np.array_equal(next(spoiled)[0], next(intact)[0])


def test_the_seed_decides_the_order(small: PreparedData) -> None:
    """The same seed repeats the batches, and another seed brings others."""
    first, again, other = (
        [inputs for inputs, _ in islice(training_batches(small, batch=8, context=32, seed=seed), 20)]
        for seed in (1, 1, 2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_each_epoch_has_an_order_of_its_own() -> None:
    """Documents that fill a row each come in another order the second time."""
    rows = rows_of(numbered([8] * 50), 8, 0, 100)
    first, second = rows[:50, 0], rows[50:, 0]
    assert sorted(first) == sorted(second) == list(range(0, 400, 8))
    assert not np.array_equal(first, second)


def test_kinds_of_rows_are_mixed() -> None:
    """Rows from the middle of long documents and rows of packed short ones do not come in blocks."""
    rows = rows_of(numbered([1000, *[5] * 200]), 10, 0, 200, window=1 << 20)
    from_long = np.asarray((rows < 1000).all(axis=1))
    assert from_long.sum() == 100
    assert 20 < from_long[:100].sum() < 80


def test_the_train_directory_is_enough(small: PreparedData, tmp_path: Path) -> None:
    """A process that sees nothing but a copy of `train/` gets the same batches."""
    shutil.copytree(small.train_dir, tmp_path / "train")
    ours = next(training_batches(tmp_path / "train", batch=2, context=8, seed=0))
    theirs = next(training_batches(small, batch=2, context=8, seed=0))
    loaded = next(training_batches(TrainData.load(tmp_path / "train"), batch=2, context=8, seed=0))
    assert np.array_equal(ours[0], theirs[0]) and np.array_equal(ours[1], loaded[1])


def test_a_row_longer_than_all_text_is_filled_from_several_epochs() -> None:
    """Endless means endless: a text of 5 tokens fills rows of 12."""
    rows = rows_of(numbered([2, 3]), 12, 0, 3)
    assert rows.shape == (3, 12)
    assert set(rows.ravel().tolist()) == set(range(5))


@pytest.mark.parametrize(("batch", "context"), [(0, 8), (8, 0)])
def test_an_impossible_shape_is_refused_at_once(small: PreparedData, batch: int, context: int) -> None:
    """The refusal comes from the call, not from the first batch."""
    with pytest.raises(UsageError, match="at least 1"):
        training_batches(small, batch=batch, context=context, seed=0)


def test_a_folder_that_is_no_train_directory_is_named(tmp_path: Path) -> None:
    """A wrong folder ends with its path and what to do."""
    with pytest.raises(EnvironmentNotReadyError, match=r"not complete.*\n.*run again"):
        training_batches(tmp_path, batch=1, context=1, seed=0)


def test_long_documents_do_not_fill_batches_alone(sample: PreparedData) -> None:
    """Rows of one long conversation are spread over the epoch."""
    offsets = sample.train_documents().offsets
    longest = int(np.argmax(np.diff(offsets)))
    tokens = np.arange(offsets[-1], dtype=np.uint32)
    rows = rows_of(Documents(tokens, offsets), 129, 0, 160, window=1 << 19)
    inside = (rows >= offsets[longest]) & (rows < offsets[longest + 1])
    assert inside.any(axis=1).mean() < 0.1


def test_the_loader_is_far_from_being_the_bottleneck() -> None:
    """A thousand small batches cost less than a fifth of a processor second; training takes minutes for as many."""
    lengths = np.random.default_rng(0).lognormal(4.4, 1.6, 5000).astype(int) + 2
    documents = numbered(lengths.tolist())
    data = TrainData(Path(), 1 << 20, 0, documents)
    batches = training_batches(data, batch=16, context=128, seed=0)
    began = time.process_time()
    for _ in range(1000):
        next(batches)
    assert time.process_time() - began < 0.2
