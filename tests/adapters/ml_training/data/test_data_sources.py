from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from autoresearch.adapters.ml_training.data import ClimbMixSource, PathSource, SampleSource, parse_source
from autoresearch.adapters.ml_training.data.sources import LONG_TEXT_BYTES, Text
from autoresearch.core.errors import AutoresearchError, EnvironmentNotReadyError, UsageError
from tests.adapters.ml_training.data.texts import made_up_documents


def fetch(path: Path) -> Text:
    return parse_source(str(path)).fetch(path.parent / "cache", lambda share, words: None)


def documents(path: Path) -> list[str]:
    return list(fetch(path).documents())


def write_parquet(path: Path, values: object, column: str = "text") -> None:
    pq.write_table(pa.table({column: values}), path)


def test_names_become_sources(tmp_path: Path) -> None:
    """`sample`, `climbmix` with or without options, and a path that exists."""
    assert parse_source("sample") == SampleSource()
    assert parse_source("climbmix") == ClimbMixSource()
    assert parse_source("climbmix:shards=3,url=http://localhost/x/") == ClimbMixSource(3, "http://localhost/x")
    assert parse_source(str(tmp_path)) == PathSource(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "no/such/folder",
        "climbmix:shards=0",
        "climbmix:shards=many",
        "climbmix:speed=9",
        "climbmix:url=ftp://x",
        "climbmix:shards",
    ],
)
def test_an_option_that_names_nothing_is_a_usage_error(text: str) -> None:
    """A wrong --data is the person's to correct, and is told before anything is done."""
    with pytest.raises(UsageError, match=r"\.$"):
        parse_source(text)


def test_the_sample_is_whole_conversations() -> None:
    """The sample has 7,168 conversations, messages one to a line."""
    texts = list(SampleSource().fetch(Path(), lambda share, words: None).documents())
    assert len(texts) == 7168
    assert texts[0].startswith("Hello\nHow are you doing today?\nwhats up MD\n")


def test_files_of_a_folder_are_read_by_name(tmp_path: Path) -> None:
    """Text, JSONL and Parquet side by side, subfolders too, hidden files not."""
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\nthree")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.jsonl").write_text('{"text": "first \\u00e9"}\n\n{"text": "second", "id": 1}')
    write_parquet(tmp_path / "d.parquet", ["row", None, "last"])
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "notes.md").write_text("no")
    assert documents(tmp_path) == ["one\ntwo\n\nthree", "first é", "second", "row", "", "last"]


def test_a_lone_text_is_cut_between_paragraphs(tmp_path: Path) -> None:
    """One .txt file becomes documents of a little over 4 KiB, whole paragraphs each, nothing lost."""
    paragraphs = made_up_documents(300)
    path = tmp_path / "book.txt"
    path.write_text("\n\n".join(paragraphs))
    found = documents(path)
    assert [paragraph for text in found for paragraph in text.split("\n\n")] == paragraphs
    assert all(4000 < len(text) < 5000 for text in found[:-1])


def test_only_large_texts_of_a_folder_are_cut(tmp_path: Path) -> None:
    """A small file is one document however many paragraphs it has; a large one is cut, also without blank lines."""
    (tmp_path / "small.txt").write_text("one\n\ntwo\n\nthree")
    (tmp_path / "large.txt").write_text("a line of text\n" * (LONG_TEXT_BYTES // 10))
    *large, small = documents(tmp_path)
    assert small == "one\n\ntwo\n\nthree"
    assert len(large) > 5 and all(len(text) < 66_000 for text in large)
    assert "\n".join(large) == ("a line of text\n" * (LONG_TEXT_BYTES // 10)).strip()


Case = tuple[str, Callable[[Path], object], str]
BROKEN: list[Case] = [
    ("x.jsonl", lambda path: path.write_text('{"text": "a"}\n{"text": '), "line 2 is no JSON"),
    ("x.jsonl", lambda path: path.write_text('{"text": "a"}\n{"body": "b"}'), "line 2 has no text"),
    ("x.jsonl", lambda path: path.write_text('["a"]'), "line 1 has no text"),
    ("x.jsonl", lambda path: path.write_text('{"text": null}'), "line 1 has no text"),
    ("x.jsonl", lambda path: path.write_text('{"text": "a\\ud800"}'), "line 1 escapes half a character"),
    ("x.jsonl", lambda path: path.write_bytes(b'{"text": "a"}\n{"text": "\xff"}'), "not UTF-8 text .line 2, byte 10"),
    ("x.txt", lambda path: path.write_bytes(b"one\n\ntw\xe9"), "not UTF-8 text .line 3, byte 2"),
    ("x.parquet", lambda path: path.write_bytes(b"PAR1 no PAR1"), "cannot be read as Parquet"),
    ("x.parquet", lambda path: write_parquet(path, ["a"], "body"), "no column `text`; its columns are body"),
    ("x.parquet", lambda path: write_parquet(path, [1, 2]), "holds int64, not strings"),
    ("x.parquet", lambda path: write_parquet(path, invalid_strings()), "not UTF-8"),
]


def invalid_strings() -> pa.Array:
    raw = pa.array([b"fine", b"\xff\xfe"], pa.binary())
    return pa.Array.from_buffers(pa.string(), 2, raw.buffers())


@pytest.mark.parametrize(("name", "write", "message"), BROKEN)
def test_a_broken_file_is_named_with_its_place(
    name: str, write: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    """Every defect of the person's data has its sentence: file, place, what to do."""
    write(tmp_path / name)
    with pytest.raises(EnvironmentNotReadyError, match=message) as caught:
        documents(tmp_path)
    assert name in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2


def test_a_text_among_others_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """A small .txt file is read at once; its defect is told by its byte."""
    (tmp_path / "a.txt").write_text("fine")
    (tmp_path / "b.txt").write_bytes(b"caf\xe9")
    with pytest.raises(EnvironmentNotReadyError, match=r"b\.txt is not UTF-8 text .byte 3"):
        documents(tmp_path)


def test_an_empty_folder_says_what_belongs_there(tmp_path: Path) -> None:
    """An empty data folder is not an empty text."""
    with pytest.raises(EnvironmentNotReadyError, match=r"holds no \.txt, \.jsonl or \.parquet file"):
        fetch(tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A .csv file is not guessed at."""
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(UsageError, match=r"x\.csv is no \.txt"):
        fetch(tmp_path / "x.csv")


def test_identity_follows_the_text(tmp_path: Path) -> None:
    """The identity changes with a byte or a name, not with time or place."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "a.jsonl").write_text(json.dumps({"text": "same"}))
    before = fetch(ours).identity
    assert fetch(theirs).identity == before
    (theirs / "a.jsonl").write_text(json.dumps({"text": "sane"}))
    assert fetch(theirs).identity != before
    (ours / "a.jsonl").rename(ours / "b.jsonl")
    assert fetch(ours).identity != before


def test_a_missing_package_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without chitchat-dataset the sample says how to install it."""
    monkeypatch.setitem(__import__("sys").modules, "chitchat_dataset", None)
    with pytest.raises(AutoresearchError, match="pip install chitchat-dataset"):
        SampleSource().fetch(Path(), lambda share, words: None)
