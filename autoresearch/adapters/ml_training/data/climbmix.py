"""ClimbMix: shards of web text that karpathy's autoresearch and nanochat train on, fetched with resume and checks."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import IO

from filelock import FileLock

from autoresearch.adapters.ml_training.data.sources import Progress, Text, file_hash, parquet_documents
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

BASE_URL = "https://huggingface.co/datasets/karpathy/climbmix-400b-shuffle/resolve/main"
"""Where the shards are; the option `url` names a mirror."""

SHARDS = 10
"""Shards by default, about 90 MB each; the original takes as many."""

MAX_SHARDS = 6543
"""Shards that exist, shard_00000 to shard_06542."""

_ATTEMPTS = 6  # in a row without a new byte
_BACKOFF_SECONDS = 1.0  # after the first failure; doubled after each further one
_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class ClimbMixSource:
    """The first shards of ClimbMix, below `<cache>/climbmix/<hash of the address>/`.

    Attributes:
        shards: How many.
        url: Address under which shard_00000.parquet and the others lie.
        backoff_seconds: Pause after a first failure; doubled after each further one.
    """

    shards: int = SHARDS
    url: str = BASE_URL
    backoff_seconds: float = _BACKOFF_SECONDS

    @classmethod
    def parse(cls, text: str) -> ClimbMixSource:
        """Read `climbmix` or `climbmix:shards=4,url=http://mirror/path`.

        Raises:
            UsageError: If an option is unknown or its value impossible.
        """
        options: dict[str, str] = {}
        for part in filter(None, text.removeprefix("climbmix").removeprefix(":").split(",")):
            name, _, value = part.partition("=")
            if name not in ("shards", "url") or not value:
                raise UsageError(f"ClimbMix has no option {part!r}.\nWrite `climbmix:shards=4,url=http://mirror/path`.")
            options[name] = value
        shards = options.get("shards", str(SHARDS))
        if not shards.isdecimal() or not 1 <= int(shards) <= MAX_SHARDS:
            raise UsageError(f"ClimbMix has between 1 and {MAX_SHARDS} shards, so {shards!r} cannot be.")
        url = options.get("url", BASE_URL)
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"The address of the shards must begin with http:// or https://, not {url!r}.")
        return cls(int(shards), url.rstrip("/"))

    @property
    def name(self) -> str:
        """Name and number of shards."""
        return f"climbmix ({self.shards} shards)"

    def fetch(self, cache: Path, progress: Progress) -> Text:
        """Download the shards that are not there yet, going on where an earlier download was cut.

        Raises:
            EnvironmentNotReadyError: If a shard cannot be had whole.
        """
        folder = cache / "climbmix" / hashlib.sha256(self.url.encode()).hexdigest()[:8]
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        paths = []
        with FileLock(folder / "download.lock"):
            for number in range(self.shards):
                path = folder / f"shard_{number:05d}.parquet"
                report = _share_of(progress, number, self.shards, path.name)
                sha256 = download(f"{self.url}/{path.name}", path, report, backoff_seconds=self.backoff_seconds)
                digest.update(f"{path.name}\0{sha256}\0".encode())
                paths.append(path)
        return Text(self.name, f"climbmix {digest.hexdigest()}", lambda: _documents(paths))


def _documents(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        yield from parquet_documents(path)


def _share_of(progress: Progress, number: int, count: int, name: str) -> Callable[[int, int | None], None]:
    """Turn bytes of one download into a share of all downloads."""

    def report(done: int, total: int | None) -> None:
        of_total = f" of {total / 1e6:,.0f}" if total else ""
        words = f"downloading {name} ({number + 1} of {count}): {done / 1e6:,.0f}{of_total} MB"
        progress((number + (done / total if total else 0.0)) / count, words)

    return report


def download(
    url: str,
    target: Path,
    progress: Callable[[int, int | None], None],
    *,
    backoff_seconds: float = _BACKOFF_SECONDS,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> str:
    """Fetch a file, going on where an earlier attempt was cut, and return the SHA-256 of its content.

    Bytes go to `target.part`; only a file that has the size and checksum that the server states is renamed to `target`.
    What is there already is not fetched again.

    Args:
        url: Address of the file.
        target: Where to put it.
        progress: Called with (bytes that are here, bytes in all or None where the server does not say).
        backoff_seconds: Pause after a first failure; doubled after each further one, up to 30 times as long.
        timeout_seconds: Silence after which a connection counts as cut.

    Raises:
        EnvironmentNotReadyError: If the server refuses, or goes on failing, or what it sends is not what it states.
    """
    if target.exists():
        return _known_hash(target)
    part = _Part(target)
    failures = 0
    while True:
        before = part.size()
        try:
            stated = _fetch_rest(url, part, progress, timeout_seconds)
            sha256 = _checked(part, stated)
            break
        except _BrokenOff as error:
            failures = 1 if part.size() > before else failures + 1
            if failures >= _ATTEMPTS:
                raise EnvironmentNotReadyError(
                    f"{url} could not be downloaded: {error}, {failures} times in a row.\n"
                    "Look at the network and run again; what has arrived is kept."
                ) from error
            time.sleep(max(error.wait_seconds, min(backoff_seconds * 2 ** (failures - 1), 30 * backoff_seconds)))
    part.finish(sha256)
    return sha256


class _BrokenOff(Exception):
    """An attempt failed in a way that may pass; `wait_seconds` is what the server asks for."""

    def __init__(self, message: str, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


@dataclass(frozen=True)
class _Stated:
    """What a server says about a whole file; None where it says nothing."""

    size: int | None
    sha256: str | None
    tag: str | None


class _Part:
    """An unfinished download: the bytes so far, and the tag of the version that they are of."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.part")
        self._tag_path = target.with_name(f"{target.name}.part.tag")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def tag(self) -> str | None:
        return self._tag_path.read_text(encoding="utf-8") if self._tag_path.exists() else None

    def restart(self, tag: str | None) -> None:
        """Forget the bytes; what comes now is of the version `tag`."""
        self.path.unlink(missing_ok=True)
        self._tag_path.unlink(missing_ok=True)
        if tag is not None:
            self._tag_path.write_text(tag, encoding="utf-8")

    def finish(self, sha256: str) -> None:
        """Move the whole file to its name, the note of its checksum first."""
        _hash_note(self.target).write_text(json.dumps({"sha256": sha256, "bytes": self.size()}), encoding="utf-8")
        self.path.rename(self.target)
        self._tag_path.unlink(missing_ok=True)


def _hash_note(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def _known_hash(target: Path) -> str:
    """Return the checksum of a finished file, taken anew where there is no note that fits (a person put it there)."""
    note = _hash_note(target)
    if note.exists():
        content = json.loads(note.read_text(encoding="utf-8"))
        if content["bytes"] == target.stat().st_size:
            return str(content["sha256"])
    sha256 = file_hash(target)
    note.write_text(json.dumps({"sha256": sha256, "bytes": target.stat().st_size}), encoding="utf-8")
    return sha256


class _RememberLinked(urllib.request.HTTPRedirectHandler):
    """Keeps what a hub states about a file on the answer that redirects to its storage."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        self.linked = {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-linked-")}
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    linked: Mapping[str, str] = MappingProxyType({})


def _fetch_rest(url: str, part: _Part, progress: Callable[[int, int | None], None], timeout_seconds: float) -> _Stated:
    """Ask for the bytes that are missing and append them; return what the server states about the whole."""
    have, tag = part.size(), part.tag()
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if tag is not None:
            request.add_header("If-Range", tag)
    redirects = _RememberLinked()
    try:
        response = urllib.request.build_opener(redirects).open(request, timeout=timeout_seconds)
    except urllib.error.HTTPError as error:
        with error:
            stated = _stated(error.headers, redirects.linked, whole=False)
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and stated.size == have:
                return stated  # everything had arrived when the download was cut
            raise _refusal(url, error, part) from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOff(f"no answer ({error})") from error
    with response:
        stated = _stated(response.headers, redirects.linked, whole=response.status == http.HTTPStatus.OK)
        begins = _range_start(response) if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
        if begins != have or (have and stated.tag != tag):
            # Another version, or a server that cannot resume: these bytes do not continue ours.
            part.restart(stated.tag)
            if begins != 0:
                raise _BrokenOff("the server sent another part of the file than was asked for")
        elif not have:
            part.restart(stated.tag)
        _append(response, part, stated, progress)
    return stated


def _refusal(url: str, error: urllib.error.HTTPError, part: _Part) -> Exception:
    """Say what an HTTP error means: try again later, start anew, or give up."""
    if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        part.restart(None)
        return _BrokenOff("the server has fewer bytes than were downloaded before")
    if error.code in (http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_MANY_REQUESTS) or error.code >= 500:
        wait = error.headers.get("Retry-After", "")
        return _BrokenOff(
            f"the server answers {error.code} {error.reason}", min(float(wait), 120.0) if wait.isdecimal() else 0.0
        )
    return EnvironmentNotReadyError(
        f"{url} could not be downloaded: the server answers {error.code} {error.reason}.\n"
        "Check the address and the number of shards, or use --data PATH."
    )


def _stated(headers: Message, linked: Mapping[str, str], *, whole: bool) -> _Stated:
    """Read what an answer, and the redirect before it, state; `whole`: the answer's body is the whole file."""
    total = headers.get("Content-Range", "").rpartition("/")[2]
    size = linked.get("x-linked-size") or total or (headers.get("Content-Length") if whole else None)
    tag = headers.get("ETag")
    sha256 = None
    for candidate in (linked.get("x-linked-etag"), headers.get("X-Linked-Etag"), tag):
        # Only a tag of 64 hexadecimal digits is a SHA-256; others are made in ways of the server's own.
        if candidate is not None and re.fullmatch(r"[0-9a-f]{64}", candidate.strip('"')):
            sha256 = candidate.strip('"')
            break
    # A weak tag does not promise the same bytes, so that nothing can be resumed on it.
    strong = tag if tag is not None and not tag.startswith("W/") else None
    return _Stated(int(size) if size is not None and size.isdecimal() else None, sha256, strong)


def _range_start(response: http.client.HTTPResponse) -> int:
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found.group(1)) if found else -1


def _append(
    response: http.client.HTTPResponse, part: _Part, stated: _Stated, progress: Callable[[int, int | None], None]
) -> None:
    done = part.size()
    with part.path.open("ab") as file:
        while chunk := _read(response):
            file.write(chunk)
            done += len(chunk)
            progress(done, stated.size)


def _read(response: http.client.HTTPResponse) -> bytes:
    # Apart from writing, so that a full disk is not taken for a cut connection and tried again; and what is there at
    # once instead of a whole chunk, since a chunk that a timeout cuts short would be lost.
    try:
        return response.read1(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOff(f"the connection was cut ({type(error).__name__})") from error


def _checked(part: _Part, stated: _Stated) -> str:
    """Return the checksum of the whole file if size and checksum are what the server states."""
    size = part.size()
    if stated.size is not None and size < stated.size:
        raise _BrokenOff(f"only {size} of {stated.size} bytes arrived")
    sha256 = file_hash(part.path)
    if stated.size is not None and size > stated.size:
        part.restart(None)
        raise _BrokenOff(f"{size} bytes arrived where {stated.size} are stated")
    if stated.sha256 is not None and sha256 != stated.sha256:
        part.restart(None)
        raise _BrokenOff(f"the content has the SHA-256 {sha256[:12]}... where {stated.sha256[:12]}... is stated")
    return sha256
