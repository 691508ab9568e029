"""Every test runs on a machine of its own: an empty home, one torch thread, no key, and no network but loopback."""

from __future__ import annotations

import atexit
import ipaddress
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

_HOME = "AUTORESEARCH_TEST_HOME"
_SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_refused: list[str] = []


def _session_home() -> Path:
    """Return this session's home; worker processes share the one that their controller made, and its data cache."""
    if _HOME not in os.environ:
        home = Path(tempfile.mkdtemp(prefix="autoresearch-tests-"))
        os.environ[_HOME] = str(home)
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    return Path(os.environ[_HOME])


def _prepare_environment() -> None:
    """Set up this process and, through the environment, every child; must run before torch or langgraph is imported."""
    home = _session_home()
    # Started in the background of a script, or under nohup, these come ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for name in [name for name in os.environ if name in _SECRETS or name.startswith(("LANGCHAIN_", "LANGSMITH_"))]:
        del os.environ[name]
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    os.environ |= {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_STATE_HOME": str(home / "state"),
        # No identity and no setting from outside: the store must work on a machine where git was never set up.
        "GIT_CONFIG_NOSYSTEM": "1",
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "NO_COLOR": "1",
        "COLUMNS": "120",
    }
    for name in ("GIT_CONFIG_GLOBAL", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "FORCE_COLOR"):
        os.environ.pop(name, None)


def _is_loopback(host: object) -> bool:
    if host in (None, "", "localhost", b"localhost"):
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse_the_network(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook, because it also sees what reaches past `socket.socket`; it cannot be taken away again."""
    if event in ("socket.connect", "socket.sendto"):
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None
    elif event == "socket.getaddrinfo":
        host = args[0]
    else:
        return
    if not _is_loopback(host):
        _refused.append(f"{event} {host!r}")
        raise PermissionError(f"This test tried to reach {host!r}; tests reach loopback only. Serve it from 127.0.0.1.")


_prepare_environment()
sys.addaudithook(_refuse_the_network)

# A change must not fail on a case that chance draws only now, nor because the machine is busy. New cases are looked for
# by `make test-all`, which chooses the other profile.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _only_loopback() -> Iterator[None]:
    """Fail a test that tried to leave the machine even where the code under test swallowed the refusal."""
    _refused.clear()
    yield
    tried, _refused[:] = list(_refused), []
    assert not tried, f"tests reach loopback only, and this one tried: {', '.join(tried)}"


@pytest.fixture(scope="session")
def session_cache() -> Path:
    """The cache folder that all tests of a session share: data is prepared once, whichever test comes first.

    `platformdirs` finds it by itself, also in children; pass it on only where the environment is emptied.
    """
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "autoresearch"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests with a reason where there is no CUDA device; torch is imported only where one was collected."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if not torch.cuda.is_available():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and none is visible here"))


_ALL_PARTS = "AUTORESEARCH_TEST_ALL_PARTS"
"""Set where every system package is installed: then a test that skips for want of one fails."""
_WANTS_A_PACKAGE = ("Debian package", "there is no program bwrap")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where what it wants should be there."""
    report = yield
    reason = str(report.longrepr)
    if report.skipped and _ALL_PARTS in os.environ and any(words in reason for words in _WANTS_A_PACKAGE):
        report.outcome = "failed"
        report.longrepr = f"{_ALL_PARTS} is set, and this test skipped: {reason}"
    return report
