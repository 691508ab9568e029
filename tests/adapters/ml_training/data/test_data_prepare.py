from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autoresearch.adapters.ml_training.data import PreparedData, ScoredStream, prepare, prepare_data, scored_stream
from autoresearch.adapters.ml_training.data.sources import Progress, Text
from autoresearch.adapters.ml_training.data.tokenizer import Tokenizer
from autoresearch.core.adapter import Split
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from tests.adapters.ml_training.data.texts import ListSource, made_up_documents

SCORED = pytest.mark.parametrize("split", list(Split))


def texts_of(data: PreparedData, part: Split | None) -> list[str]:
    documents = data.train_documents() if part is None else data.scored_documents(part)
    encoding = data.tokenizer()
    spans = zip(documents.offsets[:-1], documents.offsets[1:], strict=True)
    return [encoding.decode(documents.tokens[start + 1 : stop].tolist()) for start, stop in spans]


@dataclass
class CountingSource:
    """Counts how often its text is read through."""

    texts: list[str]
    reads: int = 0
    name: str = field(default="counting")

    def fetch(self, cache: Path, progress: Progress) -> Text:
        return Text(self.name, json.dumps(self.texts), self._documents)

    def _documents(self) -> Iterator[str]:
        self.reads += 1
        return iter(self.texts)


def test_every_document_comes_back_from_exactly_one_split(small: PreparedData) -> None:
    """Train, search and holdout together are the source, and share nothing."""
    parts = [set(texts_of(small, part)) for part in (None, Split.SEARCH, Split.HOLDOUT)]
    assert set.union(*parts) == set(made_up_documents(300))
    assert sum(map(len, parts)) == 300


def test_every_document_begins_with_bos(small: PreparedData) -> None:
    """BOS stands at the beginning of each document and nowhere else."""
    for documents in (small.train_documents(), small.scored_documents(Split.SEARCH)):
        assert np.flatnonzero(documents.tokens == small.bos_id).tolist() == documents.offsets[:-1].tolist()


def test_the_manifest_counts_what_is_on_disk(small: PreparedData) -> None:
    """Documents, bytes and tokens of each split are those of its files."""
    for name, documents in (("train", small.train_documents()), ("search", small.scored_documents(Split.SEARCH))):
        counts = small.manifest["splits"][name]
        assert counts["documents"] == len(documents)
        assert counts["tokens"] == len(documents.tokens)
        assert counts["bytes"] == int(small.token_bytes()[documents.tokens].sum())


def test_the_real_sample_is_split_in_seconds(sample: PreparedData) -> None:
    """The sample gives about half a megabyte to score twice over, and 11.7 MB to train on."""
    splits = sample.manifest["splits"]
    assert 11_500_000 < splits["train"]["bytes"] < 12_000_000
    assert 500_000 < splits["search"]["bytes"] < 550_000
    assert 500_000 < splits["holdout"]["bytes"] < 550_000
    assert sample.manifest["duplicates_dropped"] > 900
    assert sample.manifest["near_duplicates_dropped"] > 20
    assert sample.train_documents().tokens.dtype == np.uint16


def test_planted_near_duplicates_leave_train_only(tmp_path: Path) -> None:
    """Of a document and its copy with one word more, none is in train while the other is scored."""
    texts = [text for text in made_up_documents(400, words=100) if len(text.split()) > 20]
    pairs = [(text, f"{text} Zebra") for text in texts]
    data = prepare_data(ListSource([text for pair in pairs for text in pair]), vocab_size=300, cache=tmp_path)
    train = set(texts_of(data, None))
    search, holdout = (set(texts_of(data, split)) for split in Split)
    for pair in pairs:
        assert sum(not part.isdisjoint(pair) for part in (train, search, holdout)) == 1
    expected = sum(len(part.intersection(pair)) == 1 for part in (search, holdout) for pair in pairs)
    assert expected > 20
    assert data.manifest["near_duplicates_dropped"] + data.manifest["near_duplicates_dropped_holdout"] == expected
    kept = sum(data.manifest["splits"][name]["documents"] for name in ("train", "search", "holdout"))
    assert kept == 2 * len(pairs) - expected
    # What was dropped taught the tokenizer nothing either.
    assert Tokenizer.load(data.path / "tokenizer.json") == Tokenizer.train(texts_of(data, None), 300)


class Lossy(Tokenizer):
    """Claims that the letter b has no bytes."""

    def token_bytes(self) -> NDArray[np.int64]:
        table = super().token_bytes()
        table[ord("b")] = 0
        return table


def test_a_tokenizer_that_loses_bytes_is_found_out(tmp_path: Path) -> None:
    """A total that is right by chance does not do: every document is checked, and the first wrong one shown."""
    tokenizer = Lossy(tuple(bytes([byte]) for byte in range(256)), 257)
    texts = ["fine", "a bee", "fine too"]
    with pytest.raises(EnvironmentNotReadyError, match=r"5 bytes .'a bee'.* became tokens of 4"):
        prepare._Writer(tmp_path / "out", tokenizer).write_all(enumerate(texts))


def test_preparing_again_reads_nothing(tmp_path: Path) -> None:
    """The second call finds the first one's data by fingerprint; other text or vocabulary gets its own."""
    source = CountingSource(made_up_documents(100))
    first = prepare_data(source, vocab_size=300, cache=tmp_path)
    assert source.reads == 1
    again = prepare_data(source, vocab_size=300, cache=tmp_path)
    assert source.reads == 1
    assert again == first
    other = prepare_data(source, vocab_size=301, cache=tmp_path)
    assert other.fingerprint != first.fingerprint


def test_a_source_too_large_for_memory_gives_the_same_tokens(
    small: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the source again for each pass, in small batches, changes nothing."""
    monkeypatch.setattr(prepare, "_MEMORY_BYTES", 1000)
    monkeypatch.setattr(prepare, "_BATCH_BYTES", 1000)
    source = CountingSource(made_up_documents(300))
    data = prepare_data(source, vocab_size=400, cache=tmp_path)
    assert source.reads > 2
    assert data.fingerprint == small.fingerprint
    for name in ("train/tokens.bin", "train/offsets.npy", "scored/holdout/tokens.bin", "tokenizer.json"):
        assert (data.path / name).read_bytes() == (small.path / name).read_bytes()


def test_progress_rises_to_one(tmp_path: Path) -> None:
    """Shares never fall and end at 1."""
    shares: list[float] = []
    prepare_data(
        ListSource(made_up_documents(100)),
        vocab_size=300,
        cache=tmp_path,
        progress=lambda share, words: shares.append(share),
    )
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=30), max_size=20))
def test_any_text_passes_the_byte_check(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """Whatever characters a document has, its tokens have its bytes."""
    source = ListSource([*texts, "<|bos|> 👩‍👩‍👧 \ud7ff", *made_up_documents(60)])
    data = prepare_data(source, vocab_size=270, cache=tmp_path_factory.mktemp("any"))
    kept = [text for part in (None, *Split) for text in texts_of(data, part)]
    assert sum(part["bytes"] for part in data.manifest["splits"].values()) == sum(len(text.encode()) for text in kept)


KILLED = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from autoresearch.adapters.ml_training.data import prepare_data
    from tests.adapters.ml_training.data.texts import ListSource, made_up_documents

    def die(share, words):
        if words.startswith(sys.argv[2]):
            os.kill(os.getpid(), 9)

    prepare_data(ListSource(made_up_documents(80)), vocab_size=300, cache=Path(sys.argv[1]), progress=die)
    """
)


def test_a_kill_leaves_nothing_half(tmp_path: Path) -> None:
    """Killed at any stage, no data stand under the final name, and the next call begins anew and tidies up."""
    for stage in ("reading", "comparing", "tokenizing"):
        root = Path(__file__).parents[4]
        killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), stage], cwd=root, check=False)
        assert killed.returncode == -9
        leavings = [path for path in tmp_path.iterdir() if path.is_dir()]
        assert len(leavings) == 1 and leavings[0].name.startswith(".")
    data = prepare_data(ListSource(made_up_documents(80)), vocab_size=300, cache=tmp_path)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [data.path]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    """A source that fails half way takes its unfinished files with it."""

    class Failing(CountingSource):
        def _documents(self) -> Iterator[str]:
            yield from made_up_documents(50)
            raise EnvironmentNotReadyError("broken file")

    with pytest.raises(EnvironmentNotReadyError, match="broken file"):
        prepare_data(Failing([]), vocab_size=300, cache=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_two_at_a_time_do_the_work_once(tmp_path: Path) -> None:
    """The second caller waits for the first and takes what it made."""
    source = CountingSource(made_up_documents(200))
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: prepare_data(source, vocab_size=300, cache=tmp_path), range(2)))
    assert both[0] == both[1]
    assert source.reads == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "too little to split: of 0 documents"),
        (["only one"], "too little to split: of 1 documents"),
        (["  "] * 50, "too little to split"),
    ],
)
def test_too_little_text_is_told(texts: list[str], message: str, tmp_path: Path) -> None:
    """A text that cannot be split says how many documents it has and how many are needed."""
    with pytest.raises(EnvironmentNotReadyError, match=message):
        prepare_data(ListSource(texts), vocab_size=300, cache=tmp_path)


def test_text_that_repeats_itself_leaves_nothing_to_train_on(tmp_path: Path) -> None:
    """When everything is nearly the same document, there is no honest split, and that is said."""
    with pytest.raises(EnvironmentNotReadyError, match="Give more varied text"):
        prepare_data(
            ListSource([f"the same words in every document {'!' * number}" for number in range(100)]),
            vocab_size=300,
            cache=tmp_path,
        )


def test_a_full_disk_is_the_machines_fault(tmp_path: Path) -> None:
    """An error of the disk becomes a sentence with the folder and what to do."""

    class Full(CountingSource):
        def _documents(self) -> Iterator[str]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(EnvironmentNotReadyError, match=r"No space left on device.*\nMake room"):
        prepare_data(Full([]), vocab_size=300, cache=tmp_path)


def test_a_vocabulary_too_small_is_refused_before_reading(tmp_path: Path) -> None:
    """Nothing is read or written for a vocabulary that cannot be."""
    source = CountingSource([])
    with pytest.raises(UsageError, match="257"):
        prepare_data(source, vocab_size=256, cache=tmp_path / "cache")
    assert source.reads == 0 and not (tmp_path / "cache").exists()


def empty(folder: Path) -> None:
    (folder / "tokens.bin").write_bytes(b"")
    np.save(folder / "offsets.npy", np.zeros(1, np.int64))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "train" / "tokens.bin").write_bytes(b"\0" * 10),
        lambda path: (path / "train" / "offsets.npy").unlink(),
        lambda path: (path / "train" / "offsets.npy").write_bytes(b"junk"),
        lambda path: empty(path / "train"),
    ],
)
def test_damaged_files_are_told_instead_of_read(damage: object, small: PreparedData, tmp_path: Path) -> None:
    """A truncated or missing file ends with the folder to delete."""
    shutil.copytree(small.path, tmp_path / "copy")
    damage(tmp_path / "copy")  # type: ignore[operator]
    with pytest.raises(EnvironmentNotReadyError, match="Delete this folder"):
        PreparedData.load(tmp_path / "copy").train_documents()


def test_data_of_another_format_are_told(small: PreparedData, tmp_path: Path) -> None:
    """A manifest of a later version is not guessed at."""
    shutil.copytree(small.path, tmp_path / "copy")
    manifest = {**small.manifest, "format": 99}
    (tmp_path / "copy" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(EnvironmentNotReadyError, match="not of format"):
        PreparedData.load(tmp_path / "copy")


def whole(data: PreparedData, split: Split) -> ScoredStream:
    return scored_stream(data, split, max_bytes=None)


@SCORED
def test_the_stream_is_the_whole_split(small: PreparedData, split: Split) -> None:
    """Every byte of the split is scored once, and BOS costs nothing."""
    stream = whole(small, split)
    assert stream.tokens.dtype == stream.token_bytes.dtype == np.int64
    assert stream.tokens[0] == small.bos_id and stream.token_bytes[0] == 0
    assert stream.total_bytes == int(stream.token_bytes.sum()) == small.manifest["splits"][split.value]["bytes"]
    text = small.tokenizer().decode(stream.tokens[stream.tokens != small.bos_id].tolist())
    assert text == "".join(texts_of(small, split))


@SCORED
def test_a_limit_cuts_at_a_whole_document(sample: PreparedData, split: Split) -> None:
    """A smaller stream is a prefix of a larger one, ends where a document ends, and keeps the limit."""
    full = whole(sample, split)
    stream = scored_stream(sample, split, max_bytes=200_000)
    assert 100_000 < stream.total_bytes <= 200_000
    assert np.array_equal(stream.tokens, full.tokens[: len(stream.tokens)])
    assert full.tokens[len(stream.tokens)] == sample.bos_id
    assert scored_stream(sample, split, max_bytes=full.total_bytes).total_bytes == full.total_bytes
    assert scored_stream(sample, split, max_bytes=full.total_bytes - 1).total_bytes < full.total_bytes


def test_a_limit_below_the_first_document_is_refused(small: PreparedData) -> None:
    """An empty stream would make every candidate perfect."""
    with pytest.raises(UsageError, match="documents are scored whole"):
        scored_stream(small, Split.SEARCH, max_bytes=1)
