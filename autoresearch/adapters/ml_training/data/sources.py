"""Where text comes from: the sample, a folder of the person's own, or the shards of ClimbMix.

A source is a stream of documents that can be read again and again in the same order, and an identity that changes when
the text does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Progress = Callable[[float, str], None]
"""Called with (share done in 0..1, a few words)."""

SUFFIXES = (".txt", ".jsonl", ".parquet")
"""Kinds of files that a folder may hold."""

LONG_TEXT_BYTES = 256 << 10
"""A .txt file above this size, or one that stands alone, is cut into documents at blank lines."""

_PASSAGE_BYTES = 4 << 10  # a cut comes at the first blank line after so many bytes
_PASSAGE_LIMIT_BYTES = 64 << 10  # or, where there is none, at the first line end after so many


@dataclass(frozen=True)
class Text:
    """Text that is on this machine.

    Attributes:
        name: As the manifest shows it.
        identity: Equal only for equal text.
        documents: Returns the documents, in the same order every time. Raises EnvironmentNotReadyError with file and
            place where a file is not what it should be.
    """

    name: str
    identity: str
    documents: Callable[[], Iterator[str]]


class DataSource(Protocol):
    """Where text comes from."""

    @property
    def name(self) -> str:
        """As the manifest shows it."""
        ...

    def fetch(self, cache: Path, progress: Progress) -> Text:
        """Bring the text onto this machine, below `cache`; quick when it is there already.

        Raises:
            EnvironmentNotReadyError: If the text cannot be had.
        """
        ...


def parse_source(text: str) -> DataSource:
    """Return the source that an option names.

    Args:
        text: `sample`; `climbmix`, or with options `climbmix:shards=4,url=http://mirror/path`; else the path of a file
            or folder with .txt, .jsonl or .parquet files.

    Raises:
        UsageError: If it is none of these.
    """
    from autoresearch.adapters.ml_training.data.climbmix import ClimbMixSource

    if text == "sample":
        return SampleSource()
    if text == "climbmix" or text.startswith("climbmix:"):
        return ClimbMixSource.parse(text)
    path = Path(text).expanduser()
    if not path.exists():
        raise UsageError(
            f"There is no data at {text}.\n"
            f"Name a file or folder with {_listed(SUFFIXES)} files, or `sample`, or `climbmix`."
        )
    return PathSource(path.resolve())


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


@dataclass(frozen=True)
class SampleSource:
    """The dialogues of the package `chitchat-dataset` (MIT): one conversation is one document, one message a line."""

    name: str = "sample"

    def fetch(self, cache: Path, progress: Progress) -> Text:
        """Find the text in the installed package.

        Raises:
            EnvironmentNotReadyError: If the package is not installed, or without its text.
        """
        path = self._path()
        identity = f"chitchat-dataset {metadata.version('chitchat-dataset')} {file_hash(path)}"
        return Text(self.name, identity, lambda: _conversations(path))

    def _path(self) -> Path:
        # Read beside the package's own reader, which leaves the file open.
        try:
            path = Path(str(resources.files("chitchat_dataset").joinpath("dataset.json")))
        except ModuleNotFoundError as error:
            raise EnvironmentNotReadyError(
                "The sample text is missing, for the package chitchat-dataset is not installed.\n"
                "Install it with `pip install chitchat-dataset`, or name your own text with --data PATH."
            ) from error
        if not path.is_file():
            raise EnvironmentNotReadyError(
                f"The package chitchat-dataset is installed without its text ({path}).\n"
                "Reinstall it with `pip install --force-reinstall chitchat-dataset`."
            )
        return path


def _conversations(path: Path) -> Iterator[str]:
    for conversation in json.loads(path.read_text(encoding="utf-8")).values():
        yield "\n".join(message["text"] for turn in conversation["messages"] for message in turn)


@dataclass(frozen=True)
class PathSource:
    """Files of the person's own.

    A .jsonl line and a .parquet row are a document each, with the text in `text`. A .txt file is a document, unless it
    stands alone or is larger than `LONG_TEXT_BYTES`: then it is cut at the first blank line after 4 KiB, again and
    again, and where no blank line comes for 64 KiB, at a line end. Line ends become "\\n" in .txt files.

    Attributes:
        path: A file, or a folder that is searched with its subfolders; names beginning with a dot are passed over.
    """

    path: Path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def fetch(self, cache: Path, progress: Progress) -> Text:
        """Find the files.

        Raises:
            EnvironmentNotReadyError: If there are none.
            UsageError: If the path is a file of another kind.
        """
        files = self._files()
        digest = hashlib.sha256()
        for path in files:
            progress(0.0, f"reading {path.name}")
            digest.update(f"{path.relative_to(self._root()).as_posix()}\0{file_hash(path)}\0".encode())
        return Text(self.name, f"files {digest.hexdigest()}", lambda: _file_documents(files))

    def _root(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def _files(self) -> list[Path]:
        if self.path.is_file():
            if self.path.suffix not in SUFFIXES:
                raise UsageError(
                    f"{self.path} is no {_listed(SUFFIXES)} file.\nConvert it, or name a folder of such files."
                )
            return [self.path]
        found = sorted(path for path in self.path.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        files = [path for path in found if not _is_hidden(path.relative_to(self.path))]
        if not files:
            raise EnvironmentNotReadyError(
                f"The data folder {self.path} holds no {_listed(SUFFIXES)} file.\nPut text there, or use --data sample."
            )
        return files


def _file_documents(files: Sequence[Path]) -> Iterator[str]:
    """Yield the documents of all files."""
    for path in files:
        if path.suffix == ".jsonl":
            yield from _jsonl_documents(path)
        elif path.suffix == ".parquet":
            yield from parquet_documents(path)
        elif len(files) == 1 or path.stat().st_size > LONG_TEXT_BYTES:
            yield from _passages(path)
        else:
            yield _decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), path).replace("\r\n", "\n")


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content, as hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _decode(raw: bytes, path: Path, line: int | None = None) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {error.start}" if line is None else f"line {line}, byte {error.start} of the line"
        raise EnvironmentNotReadyError(
            f"{path} is not UTF-8 text ({place}).\nConvert it to UTF-8, or take it out of the data."
        ) from error


def _jsonl_documents(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = _decode(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, path, number)
            if line.strip():
                yield _json_text(line, path, number)


def _json_text(line: str, path: Path, number: int) -> str:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise EnvironmentNotReadyError(
            f"{path}, line {number} is no JSON: {error}.\nPut one object with a `text` on each line, or remove it."
        ) from error
    text = row.get("text") if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise EnvironmentNotReadyError(
            f'{path}, line {number} has no text.\nEvery line must be an object like {{"text": "..."}}.'
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EnvironmentNotReadyError(
            f"{path}, line {number} escapes half a character ({error.object[error.start]!a}), which no text can hold.\n"
            "Repair or remove the line."
        ) from error
    return text


def parquet_documents(path: Path) -> Iterator[str]:
    """Yield the column `text` of a Parquet file; a null is an empty document.

    Raises:
        EnvironmentNotReadyError: If the file is no Parquet file or has no text in a column `text`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _check_text_column(file, path)
            for batch in file.iter_batches(batch_size=1024, columns=["text"], use_threads=False):
                yield from (text or "" for text in batch.column(0).to_pylist())
    except UnicodeDecodeError as error:
        raise EnvironmentNotReadyError(
            f"{path} holds text that is not UTF-8: {error}.\nWrite it again as UTF-8."
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise EnvironmentNotReadyError(
            f"{path} cannot be read as Parquet: {error}.\nDelete it and get it again, or take it out of the data."
        ) from error


def _check_text_column(file: pq.ParquetFile, path: Path) -> None:
    import pyarrow as pa

    schema = file.schema_arrow
    if "text" not in schema.names:
        raise EnvironmentNotReadyError(
            f"{path} has no column `text`; its columns are {', '.join(schema.names)}.\nRename the column with the text."
        )
    kind = schema.field("text").type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise EnvironmentNotReadyError(f"The column `text` of {path} holds {kind}, not strings.\nWrite it as strings.")


def _passages(path: Path) -> Iterator[str]:
    """Cut a long text into documents, each a run of whole paragraphs."""
    lines: list[str] = []
    size = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = _decode(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, path, number)
            lines.append(line.rstrip("\r\n"))
            size += len(raw)
            if (size >= _PASSAGE_BYTES and not line.strip()) or size >= _PASSAGE_LIMIT_BYTES:
                yield "\n".join(lines).strip("\n")
                lines, size = [], 0
    if lines:
        yield "\n".join(lines).strip("\n")
