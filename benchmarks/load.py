"""A client that asks as fast as a server answers, and remembers what was acknowledged; for `benchmarks.traffic`."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36"


@dataclass
class Load:
    """What one client saw.

    Attributes:
        acknowledged: Units whose page came back complete.
        latencies: Seconds from request to the last byte, per page.
        failed: Connections that broke.
        seconds: How long it asked.
        wrong: Answers that were no page.
        cpu_seconds: Processor time that asking took.
    """

    acknowledged: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    failed: int = 0
    seconds: float = 0.0
    wrong: int = 0
    cpu_seconds: float = 0.0


class _Visitor(asyncio.Protocol):
    """One connection: asks for the page as one unit after another, one request at a time."""

    def __init__(self, load: Load, name: str, until: float, over: asyncio.Future[None]) -> None:
        self.load, self.until, self.over = load, until, over
        self.count, self.name = 0, name
        self.buffer = b""
        self.due = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport by class.
        self.transport = cast("asyncio.Transport", transport)
        self.ask()

    def ask(self) -> None:
        self.unit = f"{self.name}{self.count:014d}"
        self.count += 1
        self.asked = time.perf_counter()
        self.transport.write(
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: "
            + AGENT.encode()
            + b"\r\nAccept: text/html\r\nAccept-Language: en\r\nCookie: ar_unit="
            + self.unit.encode()
            + b"\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        if self.due < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            place = self.buffer.find(b"content-length: ", 0, end)
            self.due = end + 4 + int(self.buffer[place + 16 : self.buffer.find(b"\r\n", place)])
        if len(self.buffer) < self.due:
            return
        now = time.perf_counter()
        if not self.buffer.startswith(b"HTTP/1.1 200"):
            self.load.wrong += 1
        else:
            self.load.acknowledged.append(self.unit)
            self.load.latencies.append(now - self.asked)
        self.buffer, self.due = b"", -1
        if now < self.until:
            self.ask()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None or time.perf_counter() < self.until:
            self.load.failed += 1
        if not self.over.done():
            self.over.set_result(None)


def client(port: int, connections: int, seconds: float, mark: str, out: Connection) -> None:
    """Ask over `connections` connections for `seconds` and send the `Load` to `out`; the body of a process."""
    import uvloop

    begun = time.process_time()
    load = uvloop.run(_run(port, connections, seconds, mark))
    load.cpu_seconds = time.process_time() - begun
    out.send(load)


async def _run(port: int, connections: int, seconds: float, mark: str) -> Load:
    load = Load()
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    waiting = []
    for number in range(connections):
        over: asyncio.Future[None] = loop.create_future()
        name = f"{mark}{number:04d}"[:8].ljust(8, "_")

        def visitor(name: str = name, over: asyncio.Future[None] = over) -> _Visitor:
            return _Visitor(load, name, begun + seconds, over)

        await loop.create_connection(visitor, "127.0.0.1", port)
        waiting.append(over)
    await asyncio.gather(*waiting)
    load.seconds = time.perf_counter() - begun
    return load


def peak_mb(pid: int | None = None) -> float:
    """Return the largest resident size that a process has had, in MB."""
    status = Path(f"/proc/{pid or os.getpid()}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3
