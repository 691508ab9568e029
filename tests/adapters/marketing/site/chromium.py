"""A real browser, driven over two pipes: Chromium's debugging protocol without a port, a socket or a package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.adapters.marketing.site.browser import AGENT

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "Chromium is not installed (Debian package chromium)"
SECONDS = 30.0


class Chromium:
    """One browser with one tab; the profile lives as long as its folder."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []  # what the browser reported by itself, for domains that were enabled
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def visit(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})")

    def run(self, script: str) -> Any:
        value, fault = self._evaluate(script)
        assert fault is None, fault
        return value

    def until(self, condition: str) -> None:
        """Wait until a condition holds; between two pages there may be no document that could be asked."""
        end = time.monotonic() + SECONDS
        while not (found := self._evaluate(condition))[0]:
            assert time.monotonic() < end, f"{condition} did not come true: {found}"
            time.sleep(0.05)

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Give any command of the protocol and return its result."""
        return self._call(method, **params)

    def _evaluate(self, script: str) -> tuple[Any, object]:
        answer = self._answer("Runtime.evaluate", expression=script, returnByValue=True)
        result = answer.get("result", {})
        return result.get("result", {}).get("value"), answer.get("error") or result.get("exceptionDetails")

    def _call(self, method: str, **params: object) -> dict[str, Any]:
        answer = self._answer(method, **params)
        assert "error" not in answer, answer
        return answer["result"]  # type: ignore[no-any-return]

    def _answer(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                return answer
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 65536)
            assert part, "Chromium has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)  # type: ignore[no-any-return]


@contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """Start a headless browser that introduces itself as an ordinary one."""
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()
    assert PROGRAM is not None
    arguments = [
        PROGRAM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--remote-debugging-pipe",
        f"--user-agent={AGENT}",
        f"--user-data-dir={profile}",
    ]
    # The protocol is spoken on the descriptors 3 and 4; the shell puts the pipes there.
    shell = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", shell, "chromium", *arguments],
        pass_fds=(read_commands, write_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        browser = Chromium(commands, answers)
        yield browser
        browser._session = None
        browser._call("Browser.close")
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(answers)
