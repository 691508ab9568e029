"""A visitor without a network: calls the application as a server would and keeps cookies as a browser would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Safari/537.36"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Browser:
    app: Any
    agent: str = AGENT
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, url: str, **headers: str) -> Answer:
        return self.ask("GET", url, headers=headers)

    def post(self, url: str, body: bytes | object = b"", **headers: str) -> Answer:
        return self.ask("POST", url, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def ask(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        path, _, query = url.partition("?")
        sent = {"user-agent": self.agent, "content-length": str(len(body))}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent |= {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        answer = asyncio.run(_call(self.app, scope, body))
        given = answer.headers.get("set-cookie", "")
        name, _, value = given.partition(";")[0].partition("=")
        if name and "Max-Age=0" in given:
            self.cookies.pop(name, None)
        elif name:
            self.cookies[name] = value
        return answer


async def _call(app: Any, scope: dict[str, Any], body: bytes) -> Answer:
    parts = [body[i : i + 65536] for i in range(0, len(body), 65536)] or [b""]
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return Answer(messages[0]["status"], headers, b"".join(m.get("body", b"") for m in messages[1:]))
