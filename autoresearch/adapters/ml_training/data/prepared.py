"""What `prepare_data` leaves on disk, and how it is read back.

    <cache>/<fingerprint>/
        manifest.json           counts, source, seconds
        tokenizer.json          pattern and merges
        token_bytes.npy         int64 (V,)
        train/                  all that a training process needs
            train.json          vocabulary size, BOS, number of documents
            tokens.bin          uint16 or uint32, documents end to end, each beginning with BOS
            offsets.npy         int64 (documents + 1,)
        scored/search/          tokens.bin and offsets.npy, withheld from a training process
        scored/holdout/         the same; opened only to claim

Train and scored files never share a directory, so that a sandbox can leave the scored ones out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.adapter import Split
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    import tiktoken

FORMAT_VERSION = 1
"""Part of every fingerprint: raise it when prepared data would come out differently."""


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest of uint16 and uint32 that holds every token id."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def scored_dir(root: Path, split: Split) -> Path:
    """Return the directory of a scored split below the prepared directory `root`."""
    return root / "scored" / split.value


@dataclass(frozen=True, eq=False)
class Documents:
    """Tokenized documents end to end.

    Attributes:
        tokens: Token ids, memory-mapped, read-only. Shape (N,), uint16 or uint32.
        offsets: Document i is `tokens[offsets[i]:offsets[i + 1]]` and begins with BOS. Shape (documents + 1,), int64.
    """

    tokens: NDArray[np.unsignedinteger[Any]]
    offsets: NDArray[np.int64]

    @classmethod
    def load(cls, directory: Path, vocab_size: int) -> Documents:
        """Map the documents in `directory`.

        Raises:
            EnvironmentNotReadyError: If files are missing, or shorter or longer than their offsets say.
        """
        dtype = token_dtype(vocab_size)
        try:
            offsets: NDArray[np.int64] = np.load(directory / "offsets.npy")
            size = (directory / "tokens.bin").stat().st_size
        except (OSError, ValueError) as error:
            raise _damaged(directory, str(error)) from error
        if size == 0 or size != int(offsets[-1]) * dtype.itemsize:
            raise _damaged(directory, f"tokens.bin has {size} bytes, {int(offsets[-1]) * dtype.itemsize} expected")
        return cls(np.memmap(directory / "tokens.bin", dtype=dtype, mode="r"), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def _damaged(path: Path, why: str) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"The prepared data in {path} is damaged or not complete: {why}.\nDelete this folder and run again."
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path.parent, str(error)) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT_VERSION:
        raise _damaged(path.parent, f"{path.name} is not of format {FORMAT_VERSION}")
    return content


@dataclass(frozen=True, eq=False)
class TrainData:
    """What a training process may see; loaded from the directory `train/` alone.

    Attributes:
        path: The directory.
        vocab_size: Number of token ids, BOS included.
        bos_id: Token that begins every document.
        documents: The training documents.
    """

    path: Path
    vocab_size: int
    bos_id: int
    documents: Documents

    @classmethod
    def load(cls, train_dir: Path) -> TrainData:
        """Map the training documents in `train_dir`.

        Raises:
            EnvironmentNotReadyError: If the directory is no complete training directory of this format.
        """
        meta = _read_json(train_dir / "train.json")
        vocab_size = int(meta["vocab_size"])
        return cls(train_dir, vocab_size, int(meta["bos_id"]), Documents.load(train_dir, vocab_size))


@dataclass(frozen=True)
class PreparedData:
    """Split and tokenized text on disk.

    Attributes:
        path: Its directory.
        fingerprint: Names the text, the vocabulary size and the format; with the same `versions` in the manifest, equal
            fingerprints mean equal tokens.
        vocab_size: Number of token ids, specials included. A tiny text may use fewer of them.
        bos_id: Token that begins every document, `vocab_size - 1`.
        manifest: `source`, `seconds`, `splits` (documents, bytes and tokens of each), `duplicates_dropped`,
            `near_duplicates_dropped` (from train), `near_duplicates_dropped_holdout`, `empty_skipped`, `merges`, and
            `versions` of the tokenizers.
    """

    path: Path
    fingerprint: str
    vocab_size: int
    bos_id: int
    manifest: Mapping[str, Any]

    @classmethod
    def load(cls, path: Path) -> PreparedData:
        """Read back what `prepare_data` wrote.

        Raises:
            EnvironmentNotReadyError: If `path` holds no prepared data of this format.
        """
        manifest = _read_json(path / "manifest.json")
        return cls(path, str(manifest["fingerprint"]), int(manifest["vocab_size"]), int(manifest["bos_id"]), manifest)

    @property
    def train_dir(self) -> Path:
        """The directory that a training process gets to see."""
        return self.path / "train"

    def token_bytes(self) -> NDArray[np.int64]:
        """Return how many bytes of text each token stands for; 0 for BOS and unused ids. Shape (V,), int64."""
        try:
            table: NDArray[np.int64] = np.load(self.path / "token_bytes.npy")
        except (OSError, ValueError) as error:
            raise _damaged(self.path, str(error)) from error
        return table

    def tokenizer(self) -> tiktoken.Encoding:
        """Return the tokenizer; encode with `encode_ordinary`, which takes special tokens in a text as text."""
        from autoresearch.adapters.ml_training.data.tokenizer import Tokenizer

        return Tokenizer.load(self.path / "tokenizer.json").encoding()

    def train_documents(self) -> Documents:
        """Map the training documents."""
        return Documents.load(self.train_dir, self.vocab_size)

    def scored_documents(self, split: Split) -> Documents:
        """Map the documents of a scored split, in the order in which they are scored."""
        return Documents.load(scored_dir(self.path, split), self.vocab_size)


@dataclass(frozen=True, eq=False)
class ScoredStream:
    """The frozen text that every candidate is scored on.

    Attributes:
        tokens: Documents end to end, each beginning with BOS. Shape (N,), int64.
        token_bytes: Bytes of text of each token as a target; 0 for BOS. Shape (N,), int64.
        total_bytes: Their sum, the denominator of bits per byte.
    """

    tokens: NDArray[np.int64]
    token_bytes: NDArray[np.int64]
    total_bytes: int


def scored_stream(prepared: PreparedData, split: Split, *, max_bytes: int | None = None) -> ScoredStream:
    """Return the stream to score: the same bytes for every candidate, whatever its context length or batch.

    Documents come in a fixed order that has nothing to do with their content (by hash); the stream ends with the last
    whole document that fits, so a smaller `max_bytes` gives a prefix of a larger one.

    Args:
        prepared: The prepared data.
        split: Which scored split.
        max_bytes: Upper limit of the bytes of text; None for the whole split.

    Raises:
        UsageError: If not even the first document fits into `max_bytes`.
        EnvironmentNotReadyError: If the split's files are missing or damaged.
    """
    documents = prepared.scored_documents(split)
    sizes = prepared.token_bytes()[documents.tokens]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])[documents.offsets]
    count = len(documents)
    if max_bytes is not None:
        count = int(np.searchsorted(ends, max_bytes, side="right")) - 1
    if count < 1:
        raise UsageError(
            f"The first document of the {split.value} split has {int(ends[1])} bytes, more than the {max_bytes} that "
            "may be scored.\nRaise the limit: documents are scored whole."
        )
    stop = int(documents.offsets[count])
    tokens = documents.tokens[:stop].astype(np.int64)
    return ScoredStream(tokens, sizes[:stop].astype(np.int64), int(ends[count]))
