"""A filter of system calls: closes the ways out that neither namespaces nor Landlock close.

A program of the kernel's classic packet filter, eight bytes an instruction, made here and loaded by `launcher.py`. A
refused call fails with an error number, so that a program which can do without goes on.

Source: linux/seccomp.h, linux/filter.h, asm/unistd_64.h and asm-generic/unistd.h of the Linux headers.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from dataclasses import dataclass

__all__ = ["program", "supported"]

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little endian
_X32 = 0x40000000  # x86-64 has a second table of calls, with this bit in their numbers


@dataclass(frozen=True, slots=True)
class _Machine:
    audit: int
    calls: dict[str, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        {
            "socket": 41,
            "ptrace": 101,
            "chmod": 90,
            "fchmod": 91,
            "chown": 92,
            "fchown": 93,
            "lchown": 94,
            "utime": 132,
            "utimes": 235,
            "futimesat": 261,
            "fchownat": 260,
            "fchmodat": 268,
            "utimensat": 280,
            "fchmodat2": 452,
            "setxattr": 188,
            "lsetxattr": 189,
            "fsetxattr": 190,
            "removexattr": 197,
            "lremovexattr": 198,
            "fremovexattr": 199,
            "setxattrat": 463,
            "removexattrat": 466,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "bpf": 321,
            "perf_event_open": 298,
            "userfaultfd": 323,
            "io_uring_setup": 425,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            "socket": 198,
            "ptrace": 117,
            "fchmod": 52,
            "fchmodat": 53,
            "fchownat": 54,
            "fchown": 55,
            "utimensat": 88,
            "fchmodat2": 452,
            "setxattr": 5,
            "lsetxattr": 6,
            "fsetxattr": 7,
            "removexattr": 14,
            "lremovexattr": 15,
            "fremovexattr": 16,
            "setxattrat": 463,
            "removexattrat": 466,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "bpf": 280,
            "perf_event_open": 241,
            "userfaultfd": 282,
            "io_uring_setup": 425,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
        },
    ),
}

# io_uring opens sockets past this filter; keys of the person lie in the kernel's keyring; the others are large doors
# into the kernel or into other processes that no training needs.
_DOORS = (
    "add_key",
    "request_key",
    "keyctl",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
)
# Landlock lets modes, owners, times and extended attributes of any file of the same user be changed.
_ATTRIBUTES = (
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
)
_LOCAL_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16)  # 16: AF_NETLINK


def supported() -> bool:
    """Say whether the calls of this machine's processor are known here."""
    return platform.system() == "Linux" and platform.machine() in _MACHINES


def program(*, own_network: bool) -> bytes:
    """Return the filter.

    Args:
        own_network: True inside a network namespace and a file system of its own, where sockets reach nobody, except
            for families that no namespace holds (vsock leads to a virtual machine's host). False: no socket at all
            can be opened, and what Landlock leaves open about files is closed too. Pairs of connected sockets work.
    """
    machine = _MACHINES[platform.machine()]
    refused = _DOORS if own_network else (*_DOORS, *_ATTRIBUTES)
    allow, refuse = _instruction(_RETURN, _ALLOW), _instruction(_RETURN, _ERRNO | errno.EPERM)
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, machine.audit, 1, 0),
        refuse,  # a 32-bit program has other numbers
        _instruction(_LOAD, _NUMBER),
    ]
    if machine.audit == _MACHINES["x86_64"].audit:
        code += [_instruction(_AT_LEAST, _X32, 0, 1), refuse]
    for name in refused:
        if name in machine.calls:
            code += [_instruction(_EQUAL, machine.calls[name], 0, 1), refuse]
    families = _LOCAL_FAMILIES if own_network else ()
    code += [_instruction(_EQUAL, machine.calls["socket"], 1, 0), allow]
    code += [_instruction(_LOAD, _FIRST_ARGUMENT)]
    for family in families:
        code += [_instruction(_EQUAL, int(family), 0, 1), allow]
    return b"".join([*code, _instruction(_RETURN, _ERRNO | errno.EACCES)])


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
