"""How fast batches come, and what packing does to documents: `python -m benchmarks.loader`.

Runs on made-up documents, so that it needs no download: lengths as of the sample (median 80 tokens, a long tail) and as
of web text (median 600), which is what the loader's speed depends on. One thread, process CPU time.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.ml_training.data import Documents, TrainData, training_batches
from autoresearch.adapters.ml_training.data.loader import packed_rows

BOS = 1023


@dataclass(frozen=True)
class Case:
    """A shape of batches on a kind of text, and the tokens per second that training takes."""

    name: str
    batch: int
    context: int
    documents: int
    median: float
    spread: float
    needed: float


CASES = (
    Case("cpu preset, dialogue", 16, 128, 6_000, 80, 1.9, 20_000),
    Case("cpu, longer context", 8, 512, 6_000, 80, 1.9, 20_000),
    Case("8 GB GPU, web text", 16, 1024, 100_000, 600, 0.9, 150_000),
    Case("H200, web text", 128, 2048, 300_000, 600, 0.9, 1_500_000),
)


def made_up(case: Case) -> TrainData:
    """Return documents with lengths drawn for the case; tokens are random but for BOS."""
    random = np.random.default_rng(0)
    lengths = random.lognormal(np.log(case.median), case.spread, case.documents).astype(np.int64) + 2
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    tokens: NDArray[np.uint16] = random.integers(0, BOS, int(offsets[-1]), np.uint16)
    tokens[offsets[:-1]] = BOS
    return TrainData(Path(), 1024, BOS, Documents(tokens, offsets))


def speed(case: Case, data: TrainData, seconds: float) -> tuple[float, float, float]:
    """Return CPU seconds to the first batch, and batches and tokens per CPU second after it."""
    began = time.process_time()
    batches = training_batches(data, batch=case.batch, context=case.context, seed=0)
    next(batches)
    first = time.process_time() - began
    began, count = time.process_time(), 0
    while (spent := time.process_time() - began) < seconds or count < 64:
        next(batches)
        count += 1
    return first, count / spent, count * case.batch * case.context / spent


def packing(case: Case, data: TrainData) -> tuple[float, float]:
    """Return the share of documents that fit a row but are cut, and of rows that begin with BOS, over an epoch."""
    documents = data.documents
    numbered = Documents(np.arange(len(documents.tokens), dtype=np.uint32), documents.offsets)
    width = case.context + 1
    wanted = len(documents.tokens) // width
    row_of = np.full(len(documents.tokens), -1, np.int64)
    done = begins = 0
    for rows in packed_rows(numbered, width, 0, 1 << 19):
        rows = rows[: wanted - done]
        row_of[rows] = np.arange(done, done + len(rows))[:, None]
        begins += int((documents.tokens[rows[:, 0]] == BOS).sum())
        done += len(rows)
        if done == wanted:
            break
    fits = np.diff(documents.offsets) <= width
    split = row_of[documents.offsets[:-1]] != row_of[documents.offsets[1:] - 1]
    return float(split[fits].mean()), begins / wanted


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds for each case")
    seconds = parser.parse_args().seconds
    print(
        f"{'':22} {'first ms':>9} {'batches/s':>10} {'Mtokens/s':>10} {'of training':>12} {'cut':>7} {'BOS first':>10}"
    )
    for case in CASES:
        data = made_up(case)
        first, batches, tokens = speed(case, data, seconds)
        cut, begins = packing(case, data)
        figures = f"{first * 1e3:9.1f} {batches:10,.0f} {tokens / 1e6:10.1f} {case.needed / tokens:12.3%}"
        print(f"{case.name:22} {figures} {cut:7.2%} {begins:10.1%}")


if __name__ == "__main__":
    main()
