from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from autoresearch.adapters.ml_training.data import ClimbMixSource, prepare_data
from autoresearch.adapters.ml_training.data.climbmix import download
from autoresearch.core.errors import EnvironmentNotReadyError
from tests.adapters.ml_training.data.texts import made_up_documents

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves files from memory; misbehaves as scripted, one script entry for each request, then behaves."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT}
        self.script: list[Callable[[Handler], None]] = []
        self.ranges: list[str | None] = []
        self.tag = '"v1"'

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        if self.server.script:
            self.server.script.pop(0)(self)
        else:
            self.serve()

    def serve(self, *, cut: int | None = None, resume: bool = True, extra: dict[str, str] | None = None) -> None:
        """Answer properly, but for stopping after `cut` bytes or not being able to resume."""
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = self._start(len(content)) if resume else 0
        if start >= len(content) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        headers = {"Content-Length": str(len(content) - start), "ETag": self.server.tag, **(extra or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[start:][:cut])

    def _start(self, size: int) -> int:
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted is None or self.headers.get("If-Range", self.server.tag) != self.server.tag:
            return 0
        return min(int(wanted.group(1)), size)

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def cut(count: int) -> Callable[[Handler], None]:
    return lambda handler: handler.serve(cut=count)


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


def get(server: Server, tmp_path: Path, **settings: float) -> Path:
    """Download the file and check that it is whole and nothing else lies about."""
    target = tmp_path / "file"
    sha256 = download(f"{server.url}/file", target, lambda done, total: None, **{"backoff_seconds": 0.0, **settings})
    assert sha256 == hashlib.sha256(target.read_bytes()).hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.json"]
    return target


def test_a_file_arrives_whole_and_is_fetched_once(server: Server, tmp_path: Path) -> None:
    """The second call asks the server nothing."""
    assert get(server, tmp_path).read_bytes() == CONTENT
    get(server, tmp_path)
    assert server.ranges == [None]


def test_cut_connections_are_resumed_where_they_broke(server: Server, tmp_path: Path) -> None:
    """Two cuts cost two requests for the rest, and no byte is fetched twice."""
    server.script = [cut(100_000), cut(50_000)]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_more_cuts_than_attempts_are_stood_while_bytes_arrive(server: Server, tmp_path: Path) -> None:
    """Only attempts that bring nothing count; a bad line that moves on is no reason to give up."""
    server.script = [cut(10_000)] * 20
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_download_goes_on_in_a_later_session(server: Server, tmp_path: Path) -> None:
    """What arrived before giving up is kept, and the next call asks for the rest."""
    server.script = [cut(100_000), *[status(500)] * 6]
    with pytest.raises(EnvironmentNotReadyError, match=r"answers 500 .*6 times in a row\.\n.*what has arrived is kept"):
        get(server, tmp_path)
    assert (tmp_path / "file.part").stat().st_size == 100_000
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=100000-"


def test_a_finished_part_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    """Killed between the last byte and the rename: the next call only checks and renames."""
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == ["bytes=256000-"]


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_passing_errors_are_tried_again(code: int, server: Server, tmp_path: Path) -> None:
    """A busy or broken server gets another chance."""
    server.script = [status(code), status(code)]
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_the_server_may_ask_for_a_pause(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry-After is kept, and pauses double without it."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    server.script = [status(500), status(500), status(429, Retry_After="7"), status(500)]
    get(server, tmp_path, backoff_seconds=0.5)
    assert pauses == [0.5, 1.0, 7.0, 4.0]


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_a_refusal_ends_at_once(code: int, server: Server, tmp_path: Path) -> None:
    """What will not pass is not tried again, and names the address."""
    server.script = [status(code)]
    with pytest.raises(EnvironmentNotReadyError, match=f"/file could not be downloaded: the server answers {code}"):
        get(server, tmp_path)
    assert len(server.ranges) == 1


def test_nobody_answers(tmp_path: Path) -> None:
    """Without a server the message says so."""
    with pytest.raises(EnvironmentNotReadyError, match=r"no answer .*Connection refused.*\n"):
        download("http://127.0.0.1:9/file", tmp_path / "file", lambda done, total: None, backoff_seconds=0.0)


def test_a_server_that_cannot_resume_starts_over(server: Server, tmp_path: Path) -> None:
    """Without Range support the file is fetched from its beginning, not appended to the half."""
    server.script = [cut(100_000), lambda handler: handler.serve(resume=False)]
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_file_that_changed_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    """Halves of two versions are never put together."""

    def change(handler: Handler) -> None:
        server.files["/file"], server.tag = CONTENT[::-1], '"v2"'
        handler.serve()

    server.script = [cut(100_000), change]
    assert get(server, tmp_path).read_bytes() == CONTENT[::-1]
    # The server was told which version the half is of, so that one request was enough.
    assert server.ranges == [None, "bytes=100000-"]


def test_a_server_that_ignores_the_version_is_not_believed(server: Server, tmp_path: Path) -> None:
    """A rest with another tag is thrown away, even where the server sends it as asked."""

    def change(handler: Handler) -> None:
        server.files["/file"], server.tag = CONTENT[::-1], '"v2"'
        del handler.headers["If-Range"]
        handler.serve()

    server.script = [cut(100_000), change]
    assert get(server, tmp_path).read_bytes() == CONTENT[::-1]


def test_another_range_than_asked_for_is_not_appended(server: Server, tmp_path: Path) -> None:
    """A Content-Range that begins elsewhere starts the file over."""
    server.script = [cut(100_000), lambda handler: status(206, Content_Range="bytes 5-9/256000")(handler)]
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_checksum_that_is_stated_is_checked(server: Server, tmp_path: Path) -> None:
    """A tag of 64 hexadecimal digits is the SHA-256; content that differs is fetched again, then given up."""
    server.tag = f'"{SHA256}"'

    def spoil(handler: Handler) -> None:
        server.files["/file"] = CONTENT[:-1] + b"x"
        handler.serve()
        server.files["/file"] = CONTENT

    server.script = [spoil]
    assert get(server, tmp_path).read_bytes() == CONTENT
    (tmp_path / "file").unlink()
    server.tag = f'"{SHA256[::-1]}"'
    with pytest.raises(EnvironmentNotReadyError, match="the content has the SHA-256"):
        get(server, tmp_path)
    assert not (tmp_path / "file").exists()


def test_what_the_hub_states_before_redirecting_is_checked(server: Server, tmp_path: Path) -> None:
    """Size and checksum on the redirect are the file's, and resuming goes through the redirect too."""
    server.files["/storage"] = CONTENT

    def redirect(sha256: str, size: int) -> Callable[[Handler], None]:
        headers = {"Location": "/storage", "X_Linked_Etag": f'"{sha256}"', "X_Linked_Size": str(size)}
        return status(302, **headers)

    good = redirect(SHA256, len(CONTENT))
    server.script = [good, cut(1000), good]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=1000-"
    (tmp_path / "file").unlink()
    wrong = redirect(SHA256, len(CONTENT) - 1)
    behave = Handler.serve
    server.script = [wrong, behave] * 6
    with pytest.raises(EnvironmentNotReadyError, match="256000 bytes arrived where 255999 are stated"):
        get(server, tmp_path)
    server.script = [redirect(SHA256[::-1], len(CONTENT)), behave] * 6
    with pytest.raises(EnvironmentNotReadyError, match="the content has the SHA-256"):
        get(server, tmp_path)


def test_a_file_shorter_than_stated_never_counts_as_whole(server: Server, tmp_path: Path) -> None:
    """A Content-Length that the server never delivers ends with both numbers."""

    def promise(handler: Handler) -> None:
        handler.serve(extra={"Content-Length": str(len(CONTENT) + 5)})

    def nothing_more(handler: Handler) -> None:
        status(206, Content_Range="bytes 256000-256004/256005", ETag='"v1"')(handler)

    server.script = [promise, *[nothing_more] * 6]
    with pytest.raises(EnvironmentNotReadyError, match="only 256000 of 256005 bytes arrived"):
        get(server, tmp_path)


def test_silence_counts_as_a_cut(server: Server, tmp_path: Path) -> None:
    """A connection that stays open and says nothing is given up after the timeout, and resumed."""
    release = threading.Event()

    def stall(handler: Handler) -> None:
        handler.serve(cut=1000)
        handler.wfile.flush()
        release.wait(5)

    server.script = [stall]
    assert get(server, tmp_path, timeout_seconds=0.2).read_bytes() == CONTENT
    release.set()
    assert server.ranges == [None, "bytes=1000-"]


def test_a_shard_that_a_person_put_there_is_taken(server: Server, tmp_path: Path) -> None:
    """Without network, shards may be copied into the folder."""
    (tmp_path / "file").write_bytes(b"brought along")
    get(server, tmp_path)
    assert server.ranges == []


def test_shards_become_prepared_data(server: Server, tmp_path: Path) -> None:
    """Two shards over a bad line: documents of both, progress rising, identity by content."""
    texts = made_up_documents(200)
    for number, part in enumerate((texts[:100], texts[100:])):
        buffer = io.BytesIO()
        pq.write_table(pa.table({"text": part}), buffer)
        server.files[f"/data/shard_0000{number}.parquet"] = buffer.getvalue()
    server.script = [cut(1000), status(503)]
    source = ClimbMixSource(2, f"{server.url}/data", backoff_seconds=0.0)
    shares: list[tuple[float, str]] = []
    data = prepare_data(
        source, vocab_size=300, cache=tmp_path, progress=lambda share, words: shares.append((share, words))
    )
    assert sum(part["documents"] for part in data.manifest["splits"].values()) == 200
    downloading = [share for share, words in shares if words.startswith("downloading")]
    assert downloading[-1] == 0.5
    assert [share for share, _ in shares] == sorted(share for share, _ in shares)
    requests = len(server.ranges)
    assert prepare_data(source, vocab_size=300, cache=tmp_path) == data
    assert len(server.ranges) == requests
    assert list(source.fetch(tmp_path, lambda share, words: None).documents()) == texts


def test_a_number_of_shards_that_does_not_exist_is_told(server: Server, tmp_path: Path) -> None:
    """A missing shard names its address."""
    with pytest.raises(EnvironmentNotReadyError, match=r"shard_00000\.parquet could not be downloaded.*404"):
        ClimbMixSource(1, server.url, backoff_seconds=0.0).fetch(tmp_path, lambda share, words: None)
