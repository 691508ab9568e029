"""The last step of ours inside a sandbox: take away what is left to take away, then become the command.

Run as a script, `python -I -S launcher.py SPECIFICATION STATUS`, both numbers of open descriptors, so that nothing of
the person's Python environment is loaded before the rules hold, and the start costs a few milliseconds. It imports
nothing of this package and nothing large, which is why it reads `marshal` and not JSON.

What it is to do was settled by the runner (`sandbox.py`), where the rules are explained: resource limits, a Landlock
rule set and a seccomp filter, each one inherited by everything that the command starts, and none of them to be undone.

On STATUS it says `ready` before the command starts. It says how the command ended, as the system reports it, where it
stays beside the command (bubblewrap makes 139 out of a signal 11). A fault of the machine is told there as well, as
`failed` with the number and the step.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import sys

TYPE_CHECKING = False  # the module that has it takes longer to load than everything here to run
if TYPE_CHECKING:
    from typing import Any

_SYS_LANDLOCK_CREATE_RULESET, _SYS_LANDLOCK_ADD_RULE, _SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on every processor
_LANDLOCK_RULE_PATH_BENEATH = 1
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 4, 38, 22, 2


class _Ruleset(ctypes.Structure):
    """`struct landlock_ruleset_attr` of linux/landlock.h."""

    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr` of linux/landlock.h."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


class _Filter(ctypes.Structure):
    """`struct sock_fprog` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def main(specification: int, status: int) -> None:
    """Apply the rules and run the command."""
    with open(specification, "rb") as file:
        spec: dict[str, Any] = marshal.load(file)
    os.set_inheritable(status, False)
    step = "limit the process"
    try:
        _offer_to_the_oom_killer()
        for which, amount in spec["limits"]:
            _lower(which, amount)
        step = "confine the process"
        libc = ctypes.CDLL(None, use_errno=True)
        _demand(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        if spec["landlock"] is not None:
            _landlock(libc, *spec["landlock"])
        _seccomp(libc, spec["seccomp"])
        step = "start"
        if spec["stay"]:
            # What is said on STATUS must be ours: without this, the command could open the pipe through /proc.
            _demand(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
            _stay_beside(spec["argv"], status)
        else:
            os.write(status, b"ready\n")
            os.execvp(spec["argv"][0], spec["argv"])
    except OSError as error:
        os.write(status, f"failed {error.errno} {step}\n".encode())
        os._exit(127)


def _lower(which: int, amount: int) -> None:
    """Lower a limit for good; a stricter one that is there already stays."""
    _, hard = resource.getrlimit(which)
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(which, (amount, amount))


def _landlock(libc: ctypes.CDLL, handled: tuple[int, int, int], size: int, rules: list[tuple[str, int]]) -> None:
    attributes = _Ruleset(*handled)
    ruleset = _demand(libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0))
    for path, allowed in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # gone since the runner looked; what is not there needs no right
        rule = _PathBeneath(allowed, descriptor)
        _demand(libc.syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(rule), 0))
        os.close(descriptor)
    _demand(libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _seccomp(libc: ctypes.CDLL, program: bytes) -> None:
    if program:
        filter_ = _Filter(len(program) // 8, program)
        _demand(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0))


def _demand(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def _offer_to_the_oom_killer() -> None:
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return  # a courtesy to the runner, who asks for it as well; bubblewrap's /proc is read-only
    os.write(descriptor, b"500")
    os.close(descriptor)


def _stay_beside(argv: list[str], status: int) -> None:
    """Run the command as a child and report how it ended in the system's own terms."""
    failed_read, failed_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(failed_write, str(error.errno).encode())
            os._exit(127)
    os.close(failed_write)
    failed = os.read(failed_read, 16)
    if failed:
        raise OSError(int(failed), "")
    os.write(status, b"ready\n")
    _, ending = os.waitpid(child, 0)
    os.write(status, f"ended {ending}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
