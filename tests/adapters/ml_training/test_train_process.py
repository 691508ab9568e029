from __future__ import annotations

import errno
from pathlib import Path

import pytest

from autoresearch.adapters.ml_training.train_process import describe, verdict_on

TRAIN_PY = Path("/somewhere/train.py")
WITHHELD = Path("/data/prepared")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/home/a"), "invalid"),
        (OSError(errno.EROFS, "Read-only file system", "/etc/hosts"), "invalid"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "invalid"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/data/prepared/scored/search/tokens.bin"), "invalid"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/data/elsewhere/vocabulary.txt"), "crashed"),
        (FileNotFoundError(errno.ENOENT, "No such file", None), "crashed"),
        (OSError(errno.ENOSPC, "No space left on device"), "crashed"),
        (ValueError("boom"), "crashed"),
    ],
)
def test_what_a_sandbox_refused_is_invalid_and_anything_else_a_crash(error: Exception, kind: str) -> None:
    """Text that is scored is not there in a sandbox, so that asking for it looks like a missing file."""
    message = verdict_on(error, TRAIN_PY, confined=True, withheld=WITHHELD)
    assert message["kind"] == kind
    assert ("The sandbox stopped train.py" in message["reason"]) == (kind == "invalid")


def test_without_a_sandbox_a_refusal_is_a_crash_like_any_other() -> None:
    """Then it was the system's own, and says nothing about what the candidate is after."""
    error = PermissionError(errno.EACCES, "Permission denied", "/home/a")
    assert verdict_on(error, TRAIN_PY, confined=False, withheld=WITHHELD)["kind"] == "crashed"


def test_a_syntax_error_names_its_line_once() -> None:
    """Python's own text has the place in it already; ours says it as for any other error."""
    try:
        compile("a = 1\nb =\n", "train.py", "exec")
    except SyntaxError as error:
        assert describe(error, Path("x/train.py")) == "SyntaxError: invalid syntax (train.py, line 2)"
    else:
        pytest.fail("that was no syntax error")
