"""A dashboard that really listens, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoresearch.core.workspace import Layout
from autoresearch.web.dashboard.serve import Dashboard, opened


@contextmanager
def serving(*roots: Path, token: str | None = None) -> Iterator[Dashboard]:
    """Serve workspaces on a free port of loopback until the block ends."""
    dashboard = opened([Layout(root) for root in roots], host="127.0.0.1", port=0, token=token)
    ready, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=dashboard.serve, args=(ready.set, ended.is_set))
    thread.start()
    try:
        assert ready.wait(60.0), "the server never answered"
        yield dashboard
    finally:
        ended.set()
        thread.join(60.0)
        dashboard.listening.close()
        assert not thread.is_alive(), "the server never ended"
