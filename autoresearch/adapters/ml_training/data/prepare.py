"""From a source of text to tokens on disk: split, train the tokenizer, tokenize, check, and move into place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.ml_training.data.prepared import FORMAT_VERSION, PreparedData, scored_dir, token_dtype
from autoresearch.adapters.ml_training.data.sources import DataSource, Progress, Text
from autoresearch.adapters.ml_training.data.split import (
    DUPLICATE,
    EMPTY,
    HOLDOUT,
    NEAR_HOLDOUT,
    NEAR_TRAIN,
    SEARCH,
    TRAIN,
    Assignment,
    NearDuplicates,
    Splitter,
)
from autoresearch.adapters.ml_training.data.tokenizer import Tokenizer, check_vocab_size, slices
from autoresearch.core.adapter import Split
from autoresearch.core.errors import EnvironmentNotReadyError

if TYPE_CHECKING:
    import tiktoken

TOKENIZER_BYTES = 256 << 20
"""Train text from which merges are learned at most; more hardly changes them and takes memory and minutes."""

_MEMORY_BYTES = 128 << 20  # a source up to this size is read once and kept, a larger one is read three times
_BATCH_BYTES = 1 << 20  # text that is compared or tokenized at once
_THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _no_progress(share: float, text: str) -> None:
    """Report to nobody."""


def prepare_data(
    source: DataSource, *, vocab_size: int, cache: Path, progress: Progress = _no_progress
) -> PreparedData:
    """Make tokens of a source, once: later calls find them by their fingerprint.

    Safe against being killed (everything is written beside and renamed when whole) and against running twice at a time
    (the second waits for the first and takes what it made).

    Args:
        source: Where the text comes from.
        vocab_size: Number of token ids, BOS included.
        cache: Directory for prepared data and downloads; made where it is missing.
        progress: Called with (share done in 0..1, a few words).

    Raises:
        UsageError: If the vocabulary is too small or the source cannot be what was asked for.
        EnvironmentNotReadyError: If the text cannot be had or read, is too little to split, or cannot be written.
    """
    check_vocab_size(vocab_size)
    with _disk_faults(cache):
        cache.mkdir(parents=True, exist_ok=True)
        downloaded = 0.0

        def fetching(share: float, words: str) -> None:
            nonlocal downloaded
            downloaded = max(downloaded, share)
            progress(share / 2, words)

        text = source.fetch(cache, fetching)
        # A download counts as half of the work; most sources have none.
        begin = 0.5 if downloaded else 0.0
        fingerprint = data_fingerprint(text, vocab_size)
        final = cache / fingerprint
        if not final.exists():
            _prepare_once(
                text, vocab_size, fingerprint, cache, lambda share, words: progress(begin + (1 - begin) * share, words)
            )
        progress(1.0, "data ready")
    return PreparedData.load(final)


def data_fingerprint(text: Text, vocab_size: int) -> str:
    """Name the tokens that come of a text: 16 hexadecimal digits over text, vocabulary size and format."""
    identity = f"{FORMAT_VERSION}\0{vocab_size}\0{text.identity}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


@contextmanager
def _disk_faults(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"Data could not be prepared in {cache}: {error}.\nMake room or set another data folder, then run again."
        ) from error


def _prepare_once(text: Text, vocab_size: int, fingerprint: str, cache: Path, progress: Progress) -> None:
    from filelock import FileLock

    with FileLock(cache / f"{fingerprint}.lock"):
        # Whoever held the lock before is done or dead: its data are in place, or its leavings are of no use.
        for leaving in cache.glob(f".{fingerprint}-*"):
            shutil.rmtree(leaving)
        if (cache / fingerprint).exists():
            return
        work = Path(tempfile.mkdtemp(prefix=f".{fingerprint}-", dir=cache))
        try:
            _Preparation(text, vocab_size, fingerprint, work, progress).run()
            # mkdtemp makes it private; others on the machine may share the cache.
            work.chmod(0o755)
            work.rename(cache / fingerprint)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


class _Corpus:
    """The documents of a source, kept in memory where they are few."""

    def __init__(self, source: Text) -> None:
        self._source = source
        self._kept: list[str] | None = None

    def first_pass(self) -> Iterator[str]:
        """Yield the documents and keep them if they turn out to be few."""
        kept: list[str] | None = []
        size = 0
        for text in self._source.documents():
            size += len(text)
            if kept is not None:
                kept.append(text)
                if size > _MEMORY_BYTES:
                    kept = None
            yield text
        self._kept = kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept) if self._kept is not None else self._source.documents()


@dataclass
class _Counts:
    """Size of one split on disk."""

    documents: int = 0
    bytes: int = 0
    tokens: int = 0


class _Preparation:
    """One preparation in a directory of its own."""

    def __init__(self, source: Text, vocab_size: int, fingerprint: str, work: Path, progress: Progress) -> None:
        self.source = source
        self.vocab_size = vocab_size
        self.fingerprint = fingerprint
        self.work = work
        self.progress = progress
        self.corpus = _Corpus(source)
        self.scored: dict[Split, list[str]] = {}

    def run(self) -> None:
        """Fill the directory; the manifest comes last."""
        began = time.monotonic()
        split = self._split()
        self._collect_scored(split)
        tokenizer = Tokenizer.train(self._train_texts(split), self.vocab_size)
        counts = self._write_splits(tokenizer, split)
        self._write_manifest(tokenizer, split, counts, time.monotonic() - began)

    def _split(self) -> Assignment:
        splitter = Splitter()
        for number, text in enumerate(self.corpus.first_pass()):
            if number % 2048 == 0:
                self.progress(0.01, f"reading documents: {number:,}")
            splitter.add(text)
        split = splitter.result()
        for part, label in (("search", SEARCH), ("holdout", HOLDOUT), ("train", TRAIN)):
            if not (split.labels == label).any():
                raise EnvironmentNotReadyError(
                    f"The text of {self.source.name} is too little to split: of {len(split.labels)} documents, none "
                    f"falls to {part}.\nGive more documents (a few hundred at least), each under 256 KiB."
                )
        return split

    def _collect_scored(self, split: Assignment) -> None:
        """Keep the scored texts in scoring order, holdout without what is nearly in search."""
        wanted = {*split.search, *split.holdout}
        texts = {at: text for at, text in enumerate(self.corpus) if at in wanted}
        self.scored[Split.SEARCH] = [texts[at] for at in split.search]
        near = NearDuplicates(self.scored[Split.SEARCH]).matches([texts[at] for at in split.holdout])
        dropped = np.array(split.holdout)[near]
        split.labels[dropped] = NEAR_HOLDOUT
        self.scored[Split.HOLDOUT] = [texts[at] for at, is_near in zip(split.holdout, near, strict=True) if not is_near]
        if not self.scored[Split.HOLDOUT]:
            raise EnvironmentNotReadyError(
                f"Every holdout document of {self.source.name} is nearly a search document, so no claim could be "
                "checked.\nGive more varied text."
            )

    def _train_texts(self, split: Assignment) -> Iterator[str]:
        """Yield train texts for the tokenizer, entering on the way which are nearly scored ones."""
        near = NearDuplicates([*self.scored[Split.SEARCH], *self.scored[Split.HOLDOUT]])
        learned = 0
        for positions, texts in _batched(self._labelled(split, TRAIN)):
            self.progress(0.1 + 0.4 * positions[-1] / len(split.labels), "comparing train with scored documents")
            matches = near.matches(texts)
            split.labels[np.array(positions)[matches]] = NEAR_TRAIN
            for text, is_near in zip(texts, matches, strict=True):
                if not is_near and learned < TOKENIZER_BYTES:
                    learned += len(text)
                    yield text
        if not (split.labels == TRAIN).any():
            raise EnvironmentNotReadyError(
                f"Every train document of {self.source.name} is nearly a scored document, so there is nothing to train "
                "on.\nGive more varied text."
            )

    def _labelled(self, split: Assignment, label: int) -> Iterator[tuple[int, str]]:
        for at, text in enumerate(self.corpus):
            if split.labels[at] == label:
                yield at, text

    def _write_splits(self, tokenizer: Tokenizer, split: Assignment) -> dict[str, _Counts]:
        counts = {}
        for part, texts in self.scored.items():
            writer = _Writer(scored_dir(self.work, part), tokenizer)
            counts[part.value] = writer.write_all(enumerate(texts))
        writer = _Writer(self.work / "train", tokenizer)
        total = len(split.labels)
        counts["train"] = writer.write_all(
            self._labelled(split, TRAIN), lambda at: self.progress(0.5 + 0.5 * at / total, "tokenizing")
        )
        return counts

    def _write_manifest(
        self, tokenizer: Tokenizer, split: Assignment, counts: dict[str, _Counts], seconds: float
    ) -> None:
        shape = {"format": FORMAT_VERSION, "vocab_size": self.vocab_size, "bos_id": tokenizer.bos_id}
        dropped = np.bincount(split.labels, minlength=NEAR_HOLDOUT + 1).tolist()
        manifest = {
            **shape,
            "fingerprint": self.fingerprint,
            "source": self.source.name,
            "identity": self.source.identity,
            "versions": {package: metadata.version(package) for package in ("rustbpe", "tiktoken")},
            "merges": len(tokenizer.tokens) - 256,
            "splits": {name: vars(count) for name, count in counts.items()},
            "duplicates_dropped": dropped[DUPLICATE],
            "near_duplicates_dropped": dropped[NEAR_TRAIN],
            "near_duplicates_dropped_holdout": dropped[NEAR_HOLDOUT],
            "empty_skipped": dropped[EMPTY],
            "seconds": round(seconds, 2),
        }
        tokenizer.save(self.work / "tokenizer.json")
        np.save(self.work / "token_bytes.npy", tokenizer.token_bytes())
        (self.work / "train" / "train.json").write_text(json.dumps(shape), encoding="utf-8")
        (self.work / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _batched(documents: Iterable[tuple[int, str]]) -> Iterator[tuple[list[int], list[str]]]:
    """Group (position, text) pairs into batches of about `_BATCH_BYTES`."""
    positions: list[int] = []
    texts: list[str] = []
    size = 0
    for at, text in documents:
        positions.append(at)
        texts.append(text)
        size += len(text)
        if size >= _BATCH_BYTES:
            yield positions, texts
            positions, texts, size = [], [], 0
    if texts:
        yield positions, texts


class _Writer:
    """Tokenizes documents into a directory and checks that no byte was lost or added."""

    def __init__(self, directory: Path, tokenizer: Tokenizer) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._encoding: tiktoken.Encoding = tokenizer.encoding()
        self._token_bytes = tokenizer.token_bytes()
        self._bos = tokenizer.bos_id
        self._dtype = token_dtype(tokenizer.vocab_size)
        self._lengths: list[NDArray[np.int64]] = []
        self._counts = _Counts()

    def write_all(
        self, documents: Iterable[tuple[int, str]], progress: Callable[[int], None] = lambda at: None
    ) -> _Counts:
        """Write (position, text) pairs and return what they amount to."""
        with ThreadPoolExecutor(_THREADS) as pool, (self._directory / "tokens.bin").open("wb") as file:
            for positions, texts in _batched(documents):
                self._write(file, texts, pool)
                progress(positions[-1])
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(self._lengths))])
        np.save(self._directory / "offsets.npy", offsets)
        return self._counts

    def _write(self, file: IO[bytes], texts: Sequence[str], pool: ThreadPoolExecutor) -> None:
        # tiktoken works without the lock of the interpreter; a share for each thread, as single texts are too small.
        size = -(-len(texts) // _THREADS)
        shares = [texts[start : start + size] for start in range(0, len(texts), size)]
        encoded = [ids for share in pool.map(self._encode, shares) for ids in share]
        tokens = np.concatenate(encoded).astype(np.int64)
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        sizes = np.add.reduceat(self._token_bytes[tokens], np.cumsum(lengths) - lengths)
        expected = np.array([len(text.encode("utf-8")) for text in texts], np.int64)
        if not np.array_equal(sizes, expected):
            at = int(np.flatnonzero(sizes != expected)[0])
            raise EnvironmentNotReadyError(
                f"The tokenizer does not give text back byte for byte: {expected[at]} bytes ({texts[at][:40]!r}...) "
                f"became tokens of {sizes[at]}, so bits per byte would be wrong.\nReinstall tiktoken and rustbpe."
            )
        file.write(tokens.astype(self._dtype).tobytes())
        self._lengths.append(lengths)
        self._counts.documents += len(texts)
        self._counts.bytes += int(expected.sum())
        self._counts.tokens += len(tokens)

    def _encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the tokens of each text behind a BOS; text that looks like a special token is text."""
        bos = np.array([self._bos], np.uint32)
        return [
            np.concatenate(
                [bos, *(self._encoding.encode_to_numpy(piece, disallowed_special=()) for piece in slices(text))]
            )
            for text in texts
        ]
