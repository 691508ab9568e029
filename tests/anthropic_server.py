"""A local HTTP stand-in for the Messages API, on the loopback interface: the real wire format without a model.

It checks requests as strictly as the API does where the checks are known (headers, cache markers, output schema), keeps
them for the test to look at, and answers from a queue of scripted replies, streamed or as one JSON body.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast

KEY = "sk-ant-api03-not-a-real-key-0123456789"


@dataclass(frozen=True)
class Says:
    """A message.

    Attributes:
        text: Its text; streamed in pieces of `piece` characters.
        cut_after: Close the connection after that many pieces, without any further event; None: send all.
        thinking: Text of a thinking block in front; empty for none.
        error_after: Send this error event (type, message) after the text instead of the end; None: the normal end.
    """

    text: str
    stop_reason: str | None = "end_turn"
    stop_details: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] = field(default_factory=lambda: {"input_tokens": 1000})
    output_tokens: int = 200
    piece: int = 40
    cut_after: int | None = None
    thinking: str = ""
    error_after: tuple[str, str] | None = None


@dataclass(frozen=True)
class Fails:
    """An error response."""

    status: int
    kind: str = "api_error"
    message: str = "Internal server error"
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None


@dataclass(frozen=True)
class Raw:
    """Any bytes at all, as a server that is no Messages API would send them."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream"


@dataclass(frozen=True)
class Silent:
    """Says nothing for that many seconds and closes."""

    seconds: float


Reply = Says | Fails | Raw | Silent


@dataclass(frozen=True)
class Received:
    """One request: when it came (monotonic seconds), its headers in lower case, its body."""

    at: float
    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.raw))


class AnthropicServer:
    """Use as a context manager; `url` is its address."""

    def __init__(self, key: str = KEY, models: tuple[str, ...] = ("claude-sonnet-5-5",)) -> None:
        self.key = key
        self.models = models
        self.replies: deque[Reply] = deque()
        self.requests: list[Received] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def script(self, *replies: Reply) -> None:
        """Queue what the next requests get; a request beyond the queue gets an error that names the mistake."""
        self.replies.extend(replies)

    def __enter__(self) -> AnthropicServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _handler(server: AnthropicServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Received(time.monotonic(), self.path, headers, raw)
            server.requests.append(request)
            reply = _refusal(server, request) or (server.replies.popleft() if server.replies else _NOT_SCRIPTED)
            self._answer(reply, request)

        def _answer(self, reply: Reply, request: Received) -> None:
            self.close_connection = True
            match reply:
                case Fails():
                    self._send(reply.status, "application/json", _error_body(reply), reply.headers)
                case Raw():
                    self._send(reply.status, reply.content_type, reply.body, {})
                case Silent():
                    time.sleep(reply.seconds)
                case Says() if request.body.get("stream"):
                    self._stream(reply, request.body["model"])
                case Says():
                    body = json.dumps(_message(reply, request.body["model"])).encode()
                    self._send(200, "application/json", body, {})

        def _send(self, status: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("request-id", "req_test")
            self.send_header("connection", "close")
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, reply: Says, model: str) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            self.send_header("request-id", "req_test")
            # Chunked, so that a client can tell a cut stream from one that has ended.
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in _events(reply, model):
                data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            if reply.cut_after is None:
                self.wfile.write(b"0\r\n\r\n")

    return Handler


_NOT_SCRIPTED = Fails(418, "invalid_request_error", "The test scripted no reply for this request.")


def _refusal(server: AnthropicServer, request: Received) -> Fails | None:
    """Return the error that the API would give for a malformed request; None for a good one."""
    sent = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
    if request.path != "/v1/messages":
        return Fails(404, "not_found_error", f"{request.path} not found")
    if sent != server.key:
        return Fails(401, "authentication_error", "invalid x-api-key")
    if "anthropic-version" not in request.headers:
        return Fails(400, "invalid_request_error", "anthropic-version: header is required")
    body = request.body
    if body.get("model") not in server.models:
        return Fails(404, "not_found_error", f"model: {body.get('model')}")
    fault = _fault(body)
    return Fails(400, "invalid_request_error", fault) if fault else None


def _fault(body: Mapping[str, Any]) -> str | None:
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        return "max_tokens: Field required"
    if not body.get("messages") or body["messages"][-1]["role"] != "user":
        return "messages: must end with a user message"
    blocks = [*body.get("system", []), *(block for message in body["messages"] for block in message["content"])]
    if sum("cache_control" in block for block in blocks) > 4:
        return "A maximum of 4 blocks with cache_control may be provided."
    if any(not block["text"].strip() for block in blocks):
        return "messages: text content blocks must contain non-whitespace text"
    return _schema_fault(body.get("output_config", {}).get("format", {}).get("schema", {}))


def _schema_fault(schema: Any) -> str | None:
    """Structured output takes a part of JSON schema only; objects have to be closed."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            return (
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )
        for name in ("minLength", "maxLength", "minimum", "maximum", "pattern", "maxItems"):
            if name in schema:
                return f"output_config.format.schema: property '{name}' is not supported"
        return next(filter(None, map(_schema_fault, schema.values())), None)
    if isinstance(schema, list):
        return next(filter(None, map(_schema_fault, schema)), None)
    return None


def _error_body(reply: Fails) -> bytes:
    error: dict[str, Any] = {"type": reply.kind, "message": reply.message}
    if reply.code is not None:
        error["details"] = {"error_code": reply.code}
    return json.dumps({"type": "error", "error": error, "request_id": "req_test"}).encode()


def _content(reply: Says) -> list[dict[str, Any]]:
    thinking = [{"type": "thinking", "thinking": reply.thinking, "signature": "sig"}] if reply.thinking else []
    return [*thinking, {"type": "text", "text": reply.text}]


def _message(reply: Says, model: str) -> dict[str, Any]:
    return {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _content(reply),
        "stop_reason": reply.stop_reason,
        "stop_sequence": None,
        "stop_details": reply.stop_details,
        "usage": {**reply.usage, "output_tokens": reply.output_tokens},
    }


def _events(reply: Says, model: str) -> Iterator[dict[str, Any]]:
    start = _message(reply, model) | {"content": [], "stop_reason": None, "stop_details": None}
    start["usage"] = {**reply.usage, "output_tokens": 1}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    index = 0
    if reply.thinking:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}
        delta = {"type": "thinking_delta", "thinking": reply.thinking}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}}
        yield {"type": "content_block_stop", "index": 0}
        index = 1
    yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
    pieces = [reply.text[at : at + reply.piece] for at in range(0, len(reply.text), reply.piece)]
    for piece in pieces[: reply.cut_after]:
        yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": piece}}
    if reply.cut_after is not None:
        return
    if reply.error_after is not None:
        kind, message = reply.error_after
        yield {"type": "error", "error": {"type": kind, "message": message}}
        return
    yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": None, "stop_details": reply.stop_details}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": reply.output_tokens}}
    yield {"type": "message_stop"}
