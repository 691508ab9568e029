"""Which document goes where: by hash, each text once, and nothing in train that is nearly a scored document."""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SCORED_SHARE = 0.04
"""Share of all bytes that each of the two scored splits aims at."""

SCORED_LIMIT_BYTES = 4 << 20
"""Most bytes of a scored split, one document more or less; more would cost evaluation time and tell nothing new."""

TRAIN, SEARCH, HOLDOUT, EMPTY, DUPLICATE, NEAR_TRAIN, NEAR_HOLDOUT = range(7)
"""What becomes of a document; the first three are kept, the others dropped and counted."""

SCORED_DOCUMENT_BYTES = 256 << 10
"""Larger documents are always train: one of them could be most of a scored split."""

SHINGLE_WORDS = 5
"""Words of one shingle."""

SIMILARITY = 0.5
"""Jaccard similarity of shingle sets from which on two documents are near-duplicates."""

CONTAINMENT = 0.8
"""Share of the smaller document's shingles in the larger one that makes near-duplicates of long documents."""

CONTAINMENT_SHINGLES = 32
"""Shingles from which on containment counts: short documents are contained in many others by chance."""

_COMMON = 64
"""A shingle counts for at most so many scored documents, the shortest that have it: boilerplate that all documents
share would otherwise make the work quadratic, and only the shortest could be near-duplicates because of it."""


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of the text without regard to case, spacing and the form of its characters."""
    normal = unicodedata.normalize("NFKC", text).casefold()
    return hashlib.sha256(" ".join(normal.split()).encode("utf-8")).digest()


@dataclass
class _Lowest:
    """The documents with the lowest hashes, up to a number of bytes; the rest falls out."""

    limit: int
    heap: list[tuple[int, int, int]] = field(default_factory=list)  # (-hash, ordinal, bytes)
    size: int = 0

    def add(self, key: int, ordinal: int, size: int) -> None:
        heapq.heappush(self.heap, (-key, ordinal, size))
        self.size += size
        self.trim(self.limit)

    def trim(self, limit: int) -> None:
        """Drop the highest hashes while the rest still reaches `limit`."""
        while len(self.heap) > 1 and self.size - self.heap[0][2] >= limit:
            self.size -= heapq.heappop(self.heap)[2]

    def ordinals(self) -> list[int]:
        """Return the documents by rising hash."""
        return [ordinal for _, ordinal, _ in sorted(self.heap, reverse=True)]


class Splitter:
    """Assigns documents that arrive one by one to train, search and holdout.

    The first bit of a document's hash says whether it could ever be in search or in holdout; the lowest of the
    remaining bits are, until a share of the text is reached. So a document never changes from one scored split to the
    other, whatever text is added later, and memory stays bounded however long the stream.
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._labels = bytearray()
        self._scored = {SEARCH: _Lowest(SCORED_LIMIT_BYTES), HOLDOUT: _Lowest(SCORED_LIMIT_BYTES)}
        self._bytes = 0

    def add(self, text: str) -> None:
        """Take in the next document."""
        ordinal = len(self._labels)
        if not text.strip():
            self._labels.append(EMPTY)
            return
        digest = text_hash(text)
        # Half of the hash halves the memory, and still no two of 2^40 texts share it (chance 2^-49).
        if digest[:16] in self._seen:
            self._labels.append(DUPLICATE)
            return
        self._seen.add(digest[:16])
        self._labels.append(TRAIN)
        size = len(text.encode("utf-8"))
        self._bytes += size
        if size > SCORED_DOCUMENT_BYTES:
            return
        key = int.from_bytes(digest[:16], "big")
        self._scored[HOLDOUT if key >> 127 else SEARCH].add(key, ordinal, size)

    def result(self) -> Assignment:
        """Return what becomes of every document."""
        labels = np.frombuffer(bytes(self._labels), np.uint8).copy()
        order = {}
        for split, lowest in self._scored.items():
            lowest.trim(min(SCORED_LIMIT_BYTES, int(self._bytes * SCORED_SHARE)))
            order[split] = lowest.ordinals()
            labels[order[split]] = split
        return Assignment(labels, order[SEARCH], order[HOLDOUT])


@dataclass(frozen=True)
class Assignment:
    """What becomes of every document of a source.

    Attributes:
        labels: One of the constants above for each document. Shape (documents,), uint8; near-duplicates are entered
            later.
        search: Positions of the search documents, in the order in which they are scored.
        holdout: The same for holdout.
    """

    labels: NDArray[np.uint8]
    search: list[int]
    holdout: list[int]


class NearDuplicates:
    """Finds documents that are nearly one of a given set.

    Exact, not sketched: the scored set is small, so all its shingles fit into memory, and looking them up finds every
    pair above the threshold, where MinHash would find most and bring a dependency. Shingles are of five words; a word
    is a run of ASCII letters and digits or two-byte characters (Cyrillic, Greek, accents), or one character of three
    or four bytes that is no punctuation, so that scripts without spaces work too.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        shingles, owners = _shingles(texts)
        self._shingles, at = np.unique(shingles, return_inverse=True)
        owned = np.unique(owners * len(self._shingles) + at)
        owners, at = np.divmod(owned, max(len(self._shingles), 1))
        self._sizes = np.bincount(owners, minlength=len(texts))
        order = np.lexsort((self._sizes[owners], at))
        self._owners = owners[order]
        counts = np.bincount(at, minlength=len(self._shingles))
        self._starts = np.cumsum(counts) - counts
        self._counts = np.minimum(counts, _COMMON)
        self._filter = np.zeros(_FILTER_SIZE, np.bool_)
        self._filter[self._shingles % _FILTER_SIZE] = True

    def matches(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Say for each text whether it is nearly one of the set. Shape (texts,)."""
        found = np.zeros(len(texts), np.bool_)
        shingles, owners = _shingles(texts)
        at, owners_of_hits = self._hits(shingles, owners)
        if not len(at):
            return found
        sizes = _distinct_counts(shingles, owners, len(texts))
        counts = self._counts[at]
        postings = np.repeat(self._starts[at] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        keys = np.repeat(owners_of_hits, counts) * len(self._sizes) + self._owners[postings]
        pairs, common = np.unique(keys, return_counts=True)
        mine, theirs = np.divmod(pairs, len(self._sizes))
        found[mine[_similar(common, sizes[mine], self._sizes[theirs])]] = True
        return found

    def _hits(self, shingles: NDArray[np.uint64], owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return places in the set and the texts that have them, each pair once; both of shape (hits,)."""
        maybe = np.flatnonzero(self._filter[shingles % _FILTER_SIZE])
        at = np.searchsorted(self._shingles, shingles[maybe])
        known = at < len(self._shingles)
        known[known] = self._shingles[at[known]] == shingles[maybe[known]]
        pairs = np.unique(owners[maybe[known]] * len(self._shingles) + at[known])
        texts, places = np.divmod(pairs, max(len(self._shingles), 1))
        return places, texts


def _similar(common: NDArray[np.int64], a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Judge pairs by the numbers of shingles that they share and have; all of shape (pairs,)."""
    smaller = np.minimum(a, b)
    alike = common >= SIMILARITY * (a + b - common)
    contained = (smaller >= CONTAINMENT_SHINGLES) & (common >= CONTAINMENT * smaller)
    return np.asarray(alike | contained)


_WORD = np.zeros(256, np.bool_)  # bytes that belong to words
_WORD[[*b"0123456789abcdefghijklmnopqrstuvwxyz"]] = True
_WORD[0x80:] = True
_ALONE = np.arange(256) >= 0xE0  # bytes that begin a character which is a word of its own
_VALUE = np.where(_WORD, np.arange(1, 257), 0).astype(np.uint64)  # nothing between words, so spacing does not count
_FILTER_SIZE = np.uint64(1 << 24)  # most shingles are known to be new by one look at a table of 16 MB
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so invertible modulo 2^64
_INVERSE = pow(_MULTIPLIER, -1, 1 << 64)


def _shingles(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the shingles of all texts, in order and with repeats, and which text each is of."""
    words, owners = _words(texts)
    counts = np.bincount(owners, minlength=len(texts))
    mixed = words.copy()
    for step in range(1, SHINGLE_WORDS):
        # A text of fewer words is one shingle of all it has: words beyond the end of a text count as nothing.
        ahead = np.zeros_like(words)
        same = owners[step:] == owners[:-step]
        ahead[:-step][same] = words[step:][same]
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_MULTIPLIER) + ahead
    # Once more, so that the last word too reaches the upper bits, which the counting sorts by.
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_MULTIPLIER)
    mixed ^= mixed >> np.uint64(32)
    position = np.arange(len(words)) - np.repeat(np.cumsum(counts) - counts, counts)
    complete = position < np.maximum(np.repeat(counts, counts) - SHINGLE_WORDS + 1, 1)
    return mixed[complete], owners[complete]


def _distinct_counts(shingles: NDArray[np.uint64], owners: NDArray[np.int64], texts: int) -> NDArray[np.int64]:
    """Return how many distinct shingles each text has. Shape (texts,), int64.

    Text and the upper 40 bits of the shingle share one number, since sorting plain numbers is ten times as fast as
    sorting pairs; two shingles of one text fall together once in a thousand texts of 30,000 words.
    """
    keys = np.sort(owners.astype(np.uint64) << np.uint64(40) | shingles >> np.uint64(24))
    new = np.ones(len(keys), np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    return np.bincount((keys[new] >> np.uint64(40)).astype(np.int64), minlength=texts)


def _words(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return a hash of each word of all texts, in order, and which text each is of."""
    raws = [unicodedata.normalize("NFKC", text).casefold().encode("utf-8") + b" " for text in texts]
    data = np.frombuffer(b"".join(raws), np.uint8)
    ends = np.cumsum([len(raw) for raw in raws]) if raws else np.empty(0, np.int64)
    inside = _WORD[data]
    values = _VALUE[data]
    for byte in _typographic(data):
        inside[byte], values[byte] = False, 0
    before = np.r_[False, inside[:-1]] if len(data) else inside
    alone = _ALONE[data]
    starts = np.flatnonzero(inside & (~before | alone | _after_alone(data)))
    # A word is hashed as the difference of two running sums, shifted back to its own beginning.
    bits = len(data).bit_length()
    values *= _powers(bits, _MULTIPLIER)[: len(data)]
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(values, out=sums[1:])
    stops = np.r_[starts[1:], len(data)] if len(starts) else starts
    hashes = (sums[stops] - sums[starts]) * _powers(bits, _INVERSE)[starts]
    return hashes, np.repeat(np.arange(len(raws)), np.diff(np.searchsorted(starts, ends), prepend=0))


def _typographic(data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], ...]:
    """Return where the three bytes of curly quotes, dashes and the like (U+2000 to U+203F) stand."""
    first = np.flatnonzero(data == 0xE2)
    first = first[data[first + 1] == 0x80]
    return first, first + 1, first + 2


def _after_alone(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mark the first byte after each character of three or four bytes."""
    mark = np.zeros(len(data), np.bool_)
    for first, last, length in ((0xE0, 0xEF, 3), (0xF0, 0xFF, 4)):
        at = np.flatnonzero((data >= first) & (data <= last)) + length
        mark[at[at < len(data)]] = True
    return mark


@lru_cache(maxsize=4)
def _powers(bits: int, base: int) -> NDArray[np.uint64]:
    """Return base^0, base^1, ... modulo 2^64, 2^bits of them."""
    factors = np.full(1 << bits, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
