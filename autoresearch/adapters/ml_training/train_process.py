"""The training process: `python -m autoresearch.adapters.ml_training.train_process TASK.json`.

It runs the candidate's `train.py` as a script and tells the runner over the result pipe how that ended. It is given the
training documents and nothing else: what is scored lies in directories that its task does not name.

Messages, one JSON object each: `clock_started`, `progress` (share, loss), `trained` (what was counted), and where it
ends badly `given_up`, `crashed`, `invalid` (it reached for what the sandbox keeps from it) or `not_ready` (a fault of
the machine), each with a reason.
"""

from __future__ import annotations

import errno
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType

from autoresearch.adapters.ml_training import harness
from autoresearch.adapters.ml_training.task import TrainTask, read_task
from autoresearch.core import executor
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError

FAILED = 1


def main(argv: list[str]) -> int:
    """Train what the task file `argv[0]` names; return the exit status."""
    executor.die_with_parent()
    task = read_task(TrainTask, Path(argv[0]))
    harness.assign(task, executor.send_message)
    return run_candidate(task)


def run_candidate(task: TrainTask) -> int:
    """Run the script as `__main__`, with its folder first on the module path; return the exit status."""
    train_py = task.train_py
    sys.path.insert(0, str(train_py.parent))
    sys.argv = [str(train_py)]
    try:
        runpy.run_path(str(train_py), run_name="__main__")
    except EnvironmentNotReadyError as error:
        print(error, file=sys.stderr)
        executor.send_message({"kind": "not_ready", "reason": str(error)})
        return FAILED
    except CandidateError as error:
        print(error, file=sys.stderr)
        executor.send_message({"kind": "given_up" if error.early else "crashed", "reason": str(error)})
        return FAILED
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its crash, and goes to the runner
        traceback.print_exc()
        executor.send_message(verdict_on(error, train_py, confined=task.confined, withheld=task.train_dir.parent))
        return FAILED
    return 0


REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENETUNREACH})
"""What a sandbox answers to a process that reaches beyond it."""


def verdict_on(error: Exception, train_py: Path, *, confined: bool, withheld: Path | None = None) -> dict[str, str]:
    """Return the message about what a candidate raised; `invalid` for what the sandbox did not let it do.

    Args:
        error: What it raised.
        train_py: Its script.
        confined: Whether it ran in a sandbox that keeps files and network out of reach.
        withheld: Folder below which a missing file is one that the sandbox does not show.
    """
    reason = describe(error, train_py)
    if confined and isinstance(error, OSError) and _was_refused(error, withheld):
        return {
            "kind": "invalid",
            "reason": f"The sandbox stopped train.py: {reason}. It may read its training text and write its own "
            "folder, and there is no network.",
        }
    return {"kind": "crashed", "reason": reason}


def _was_refused(error: OSError, withheld: Path | None) -> bool:
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        return withheld in Path(error.filename).parents
    return error.errno in REFUSALS


def describe(error: BaseException, train_py: Path) -> str:
    """Return one line: class and text of an error, and the line of the candidate that it came from."""
    if isinstance(error, SyntaxError) and error.lineno:  # its own text names file and line in another way
        return f"{type(error).__name__}: {error.msg[:300]} ({train_py.name}, line {error.lineno})"
    text = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    line = _line_in(error.__traceback__, train_py)
    return text if line is None else f"{text} ({train_py.name}, line {line})"


def _line_in(trace: TracebackType | None, train_py: Path) -> int | None:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(trace)
        if os.path.basename(frame.filename) == train_py.name  # noqa: PTH119 - a file name in a trace, not a path
    ]
    return lines[-1] if lines else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
