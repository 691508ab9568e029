"""Landlock: rules on files that a process lays upon itself without being root, for good and for all its children.

Here they are only written down; `launcher.py` lays them on. A rule set names the rights that it handles, and everything
handled that no rule allows is refused. Rules allow, they never forbid: what is hidden below a readable folder is left
out by naming the folder's other entries instead of the folder.

Source: linux/landlock.h and Documentation/userspace-api/landlock.rst of the Linux kernel.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LOWEST_ABI", "Rules", "abi", "rules"]

LOWEST_ABI = 3
"""Before it (Linux 6.2) a file outside could be emptied by its name, which no rule can refuse."""

_SYS_LANDLOCK_CREATE_RULESET = 444
_CREATE_RULESET_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_BY_ABI = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET_BIND_AND_CONNECT = 0b11  # from ABI 4 on
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11  # from ABI 6 on

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


@dataclass(frozen=True, slots=True)
class Rules:
    """A rule set for the launcher.

    Attributes:
        handled: Rights on files, on the network and scopes that are refused unless allowed.
        size: Bytes of the attribute structure that this kernel knows.
        allowed: Path and rights below it.
    """

    handled: tuple[int, int, int]
    size: int
    allowed: tuple[tuple[str, int], ...]


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 where it has none or does not let it be used."""
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)))


def rules(
    version: int,
    *,
    readable: Iterable[Path],
    listed: Iterable[Path],
    writable: Iterable[Path],
    devices: Iterable[Path],
    hidden: Sequence[Path],
) -> Rules:
    """Write down a rule set.

    Args:
        version: What `abi()` said.
        readable: Files and folders that may be read and executed.
        listed: Folders whose names may be listed, at any depth.
        writable: Folders in which everything is allowed but making devices.
        devices: Device files that may be used.
        hidden: Real paths that stay closed even below a readable folder. A path below a hidden one may be open again.
    """
    handled = _ALL_BY_ABI[5] if version >= 5 else _ALL_BY_ABI[3]
    write = handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
    allowed = [
        *((path, _READ) for root in readable for path in _without(root, hidden)),
        *((path, _READ_DIR) for path in listed),
        *((path, write) for root in writable for path in _without(root, hidden)),
        *((path, (_READ | _WRITE_FILE | _IOCTL_DEV) & handled) for path in devices),
    ]
    network = _NET_BIND_AND_CONNECT if version >= 4 else 0
    scope = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0
    return Rules(
        (handled, network, scope),
        24 if version >= 6 else 16 if version >= 4 else 8,
        tuple((str(path), rights if path.is_dir() else rights & _ON_FILES) for path, rights in allowed),
    )


def _without(root: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield `root`, or its entries as far as needed to leave out what is hidden below it."""
    real = root.resolve()
    if any(real == path for path in hidden):
        return
    if not any(path.is_relative_to(real) for path in hidden):
        yield root
        return
    for entry in sorted(real.iterdir()):
        # A rule on a link is a rule on what it leads to, which may be anything.
        if not entry.is_symlink():
            yield from _without(entry, hidden)
