"""The conditions under which tests run do hold."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"

LEAVES_THE_MACHINE = '''
import socket

def test_hides_it():
    """Swallows the refusal, as a client that retries would."""
    with socket.socket() as client:
        client.settimeout(1)
        try:
            client.connect(("192.0.2.1", 9))
        except OSError:
            pass

def test_asks_for_a_name():
    """Looks a name up, which is a packet too."""
    try:
        socket.getaddrinfo("example.invalid", 443)
    except OSError:
        pass

def test_stays():
    """Reaches nothing but this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
'''


def test_leaving_the_machine_fails_a_test_even_when_it_hides_it(pytester: pytest.Pytester) -> None:
    """An address and a name outside fail the tests that asked for them; loopback is open."""
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(LEAVES_THE_MACHINE)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*socket.connect '192.0.2.1'*", "*socket.getaddrinfo 'example.invalid'*"])


def test_loopback_answers() -> None:
    """A server of a test's own is reached by name and by address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for host in ("127.0.0.1", "localhost"):
            socket.create_connection((host, server.getsockname()[1]), timeout=5).close()


def test_home_is_empty_and_shared_by_children() -> None:
    """Tests and their child processes have a home of this session's own, no key, and no tracing."""
    home = Path.home()
    assert str(home) == os.environ["AUTORESEARCH_TEST_HOME"]
    assert not any(name in os.environ for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))
    code = "import os, pathlib; print(pathlib.Path.home(), os.environ['LANGSMITH_TRACING'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(home), "false"]


def test_git_has_no_identity(tmp_path: Path) -> None:
    """No name and no address come from the machine, so that the store is tested without them."""
    done = subprocess.run(["git", "config", "--get", "user.email"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == ""


def test_torch_has_one_thread() -> None:
    """Tests train on one thread; two at a time would only measure each other."""
    torch = pytest.importorskip("torch")
    assert torch.get_num_threads() == 1


SKIPS = '''
import pytest

def test_wants_a_package():
    """Needs a server."""
    pytest.skip("Dovecot is not installed (Debian package dovecot-imapd)")

def test_wants_a_gpu():
    """Needs a card."""
    pytest.skip("needs a CUDA device")
'''


def test_where_all_packages_are_a_skip_for_want_of_one_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that says it has every part cannot leave a test out for lack of one; others skip with a reason."""
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(SKIPS)
    monkeypatch.delenv("AUTORESEARCH_TEST_ALL_PARTS", raising=False)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(skipped=2)
    monkeypatch.setenv("AUTORESEARCH_TEST_ALL_PARTS", "1")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(skipped=1, failed=1)
