"""The last step of ours inside a sandbox: take away what is left to take away, then become the command.

The runner compiles this file and hands the code over in memory to a bare interpreter (`python -I -S`), so that nothing
of the person's Python environment is loaded before the rules hold, and the start costs a few milliseconds. It imports
nothing of this package and nothing large.

What it is to do was settled by the runner (`sandbox.py`), where the rules are explained: resource limits and, where no
bubblewrap stands around it, a Landlock rule set and a filter of system calls. All are inherited by everything that the
command starts, and none can be undone.

On STATUS it says `ready` when the command starts. Where it stays beside the command, it says how that ended in the
system's own terms (bubblewrap makes 139 out of a signal 11). A fault of the machine is told there as well, as `failed`
with the number and the step; inside bubblewrap that is not believed after `ready`, since there a command can find the
pipe through /proc. What it could say of its own end, it could as well do.
"""

from __future__ import annotations

import os
import resource
import sys

TYPE_CHECKING = False  # the module that has it takes longer to load than everything here to run
if TYPE_CHECKING:
    from typing import Any

_SYS_LANDLOCK_CREATE_RULESET, _SYS_LANDLOCK_ADD_RULE, _SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on every processor
_LANDLOCK_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


def main(spec: dict[str, Any], status: int) -> None:
    """Apply the rules and run the command.

    Args:
        spec: `argv`; `limits`, pairs of a resource's number and an amount; `stay` beside the command or become it;
            `landlock`, rights handled, size of their structure and pairs of a path and rights below it, or None;
            `seccomp`, a packet filter's program.
        status: The descriptor to report on.
    """
    os.set_inheritable(status, False)
    step = "limit the process"
    try:
        _offer_to_the_oom_killer()
        for which, amount in spec["limits"]:
            _lower(which, amount)
        step = "confine the process"
        if spec["landlock"] is not None:
            _confine(spec["landlock"], spec["seccomp"])
        step = "start"
        if spec["stay"]:
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


def _confine(landlock: tuple[tuple[int, int, int], int, list[tuple[str, int]]], seccomp: bytes) -> None:
    """Lay a Landlock rule set and a filter of system calls upon this process."""
    import ctypes  # takes milliseconds to load, and bubblewrap does without

    libc = ctypes.CDLL(None, use_errno=True)

    def demand(result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), "")
        return result

    demand(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    handled, size, rules = landlock
    # struct landlock_ruleset_attr: rights on files, rights on the network, scopes; 64 bits each
    attributes = (ctypes.c_uint64 * 3)(*handled)
    ruleset = demand(libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    for path, allowed in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # gone since the runner looked; what is not there needs no right
        # struct landlock_path_beneath_attr: rights, 64 bits; descriptor, 32 bits
        rule = allowed.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        demand(libc.syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0))
        os.close(descriptor)
    demand(libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    # struct sock_fprog: number of instructions, and where they are
    program = ctypes.create_string_buffer(seccomp, len(seccomp))
    head = (ctypes.c_size_t * 2)(len(seccomp) // 8, ctypes.addressof(program))
    demand(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head, 0, 0))


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
    os.write(status, f"ended {os.waitstatus_to_exitcode(ending)}\n".encode())
    os._exit(0)
