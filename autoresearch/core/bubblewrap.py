"""Bubblewrap: the arguments that build a file system, a network and a process table for one command.

The file system begins empty and gets what is named, so there is nothing to forget. Where rules overlap, the deeper path
wins: everything is laid on from the root outwards.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

__all__ = ["PRIVATE", "advice", "arguments", "command", "obstacle"]

PRIVATE = Path("/tmp")
"""Where the private folder is seen inside."""

_INSTALL = "Install it: sudo apt install bubblewrap (Fedora: dnf install bubblewrap, Arch: pacman -S bubblewrap)."
_RESTRICTED_BY_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_ALLOWED_BY_DEBIAN = Path("/proc/sys/kernel/unprivileged_userns_clone")
_MOST_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
_APPARMOR = (
    "Ubuntu lets only programs with a profile make user namespaces; these two lines give bubblewrap one:\n"
    r"printf 'abi <abi/4.0>,\ninclude <tunables/global>\nprofile bwrap /usr/bin/bwrap flags=(unconfined) {\n"
    r"  userns,\n}\n'"
    " | sudo tee /etc/apparmor.d/bwrap\n"
    "sudo systemctl reload apparmor"
)


def obstacle() -> tuple[str, str] | None:
    """Return why bubblewrap cannot even be tried here, and what to do about it; None where it can."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap is a program for Linux.", "Run on Linux, or in a virtual machine or container with Linux."
    if shutil.which("bwrap") is None:
        return "there is no program bwrap on PATH.", _INSTALL
    return None


def advice(complaint: str) -> str:
    """Return what to do on this machine when bubblewrap is there and failed with `complaint`."""
    if _setting(_RESTRICTED_BY_APPARMOR) == "1":
        return _APPARMOR
    if _setting(_ALLOWED_BY_DEBIAN) == "0":
        return "Allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting(_MOST_NAMESPACES) == "0":
        return "Allow user namespaces: sudo sysctl -w user.max_user_namespaces=10000"
    if "proc" in complaint or "namespace" in complaint:
        return (
            "Inside a container, let it make namespaces (docker run --security-opt seccomp=unconfined), or run outside."
        )
    return "Update bubblewrap, and try it by hand: bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev true"


def _setting(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # a kernel without this switch


def command(arguments_descriptor: int) -> tuple[str, ...]:
    """Return the command's beginning; the arguments lie in a descriptor, so that no process list shows them."""
    return (shutil.which("bwrap") or "bwrap", "--args", str(arguments_descriptor))


def arguments(
    *,
    system: tuple[Path, ...],
    readable: Iterable[Path],
    writable: Iterable[Path],
    hidden: Iterable[Path],
    devices: Iterable[Path],
    files: Mapping[Path, int],
    private: Path,
    nothing: Path,
    cwd: Path,
) -> list[str]:
    """Return the arguments for one command.

    Args:
        system: Files and folders to show read-only that stay the same for the life of this process.
        readable: Further ones; links among them stay links.
        writable: Folders to show writable.
        hidden: Real paths to cover with nothing.
        devices: Device files to pass through.
        files: Small files to copy from an open descriptor.
        private: An empty folder for this command alone.
        nothing: An unreadable file.
        cwd: Where to start.
    """
    always, links = _settled(system)
    own, shown = {path.resolve() for path in writable}, always | {path.resolve() for path in readable}
    visible = shown | own
    covered = {path for path in hidden if _lies_in(path, visible) and os.access(path, os.F_OK)}
    steps: list[tuple[Path, int, list[str]]] = [
        (Path("/proc"), 0, ["--proc", "/proc"]),
        (Path("/dev"), 0, ["--dev", "/dev"]),
        # On disk and not in memory: what is written there is counted like the rest, and eats nobody's memory.
        *((seen, 0, ["--bind", str(private), str(seen)]) for seen in (PRIVATE, Path("/dev/shm"))),
    ]
    for link, target in {**links, **_links((*readable, *writable, cwd))}.items():
        if not _lies_in(link, visible):
            steps.append((link, 1, ["--symlink", str(target), str(link)]))
    for path in shown:
        if not _comes_along(path, shown, own | covered):
            steps.append((path, 2, ["--ro-bind", str(path), str(path)]))
    steps += [(path, 2, ["--file", str(descriptor), str(path)]) for path, descriptor in files.items()]
    steps += [(path, 3, ["--bind", str(path), str(path)]) for path in own]
    steps += [(path, 3, ["--dev-bind", str(path), str(path)]) for path in devices]
    for path in covered:
        cover = ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", str(nothing), str(path)]
        steps.append((path, 4, cover))
    steps.sort(key=lambda step: (len(step[0].parts), step[1], step[0]))
    # Started by root, a process without any capability still owns the kernel's settings below /proc/sys. The others are
    # folders in memory, which would be room to write that nobody counts.
    closed = ["/", "/dev", "/proc", *(str(path) for path in covered if path.is_dir())]
    return [
        *("--unshare-all", "--die-with-parent", "--cap-drop", "ALL"),
        *(part for _, _, parts in steps for part in parts),
        *(part for path in closed for part in ("--remount-ro", path)),
        *("--chdir", str(cwd)),
    ]


def _lies_in(path: Path, folders: Set[Path]) -> bool:
    return not folders.isdisjoint((path, *path.parents))


def _comes_along(path: Path, shown: Set[Path], others: Set[Path]) -> bool:
    """Say whether a path is shown with a folder above it; every mount less saves half a millisecond.

    It is not where something else is laid on between the two.
    """
    for folder in path.parents:
        if folder in others:
            return False
        if folder in shown:
            return True
    return False


@functools.lru_cache(maxsize=8)
def _settled(system: tuple[Path, ...]) -> tuple[frozenset[Path], dict[Path, Path]]:
    """Return the real paths of what stays the same, and the links on the way to it."""
    return frozenset(path.resolve() for path in system), _links((*system, Path(sys.executable)))


def _links(paths: Iterable[Path]) -> dict[Path, Path]:
    """Return every symbolic link that is met on the way to the paths, with what it leads to."""
    found: dict[Path, Path] = {}
    walked: set[Path] = set()
    ways = [path.absolute() for path in paths]
    while ways:
        way = ways.pop()
        if way in walked:
            continue
        walked.add(way)
        for here in (*reversed(way.parents), way):
            if here.is_symlink():
                found[here] = here.readlink()
                ways.append(Path(os.path.normpath(here.parent / found[here] / way.relative_to(here))))
                break
    return found
