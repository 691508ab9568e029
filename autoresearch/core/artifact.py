"""An artifact: a set of text files under a scope, and what can be said about it without running it."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from autoresearch.core.adapter import Scope
from autoresearch.core.errors import UsageError

_PRIVATE_FOLDERS = frozenset({".autoresearch", ".git"})


@dataclass(frozen=True, eq=False)
class Artifact:
    """Text files by relative POSIX path. Equal when path for path and byte for byte the same.

    Attributes:
        files: Relative path -> text.
    """

    files: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", MappingProxyType(dict(sorted(self.files.items()))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Artifact) and dict(self.files) == dict(other.files)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over paths and texts, as hexadecimal."""
        digest = hashlib.sha256()
        for path, text in self.files.items():
            for part in (path.encode(), text.encode()):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        return digest.hexdigest()

    @classmethod
    def read(cls, root: Path, globs: Iterable[str]) -> Artifact:
        """Read every file under `root` that a glob matches.

        Raises:
            UsageError: If a file is no UTF-8 text, or a link that leads out of `root`.
        """
        files: dict[str, str] = {}
        for pattern in globs:
            # A final `**` means every file below; Path.glob gives only folders for it before Python 3.13.
            for path in sorted(root.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)):
                relative = path.relative_to(root)
                if not path.is_file() or _PRIVATE_FOLDERS.intersection(relative.parts):
                    continue
                if not path.resolve().is_relative_to(root.resolve()):
                    raise UsageError(
                        f"{relative} is a link that leads out of {root}; the artifact must lie inside it.\n"
                        "Put the file itself there."
                    )
                try:
                    # newline="" keeps the line ends that the file has: what is not changed must stay byte for byte.
                    with path.open(encoding="utf-8", newline="") as file:
                        files[relative.as_posix()] = file.read()
                except UnicodeDecodeError as error:
                    raise UsageError(
                        f"{relative} is not UTF-8 text (byte {error.start}), and an artifact is made of text files.\n"
                        "Narrow the scope so that it leaves this file out."
                    ) from error
        return cls(files)

    def write(self, root: Path) -> None:
        """Write every file below `root`, which is made where it is missing."""
        for path, text in self.files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w", encoding="utf-8", newline="") as file:
                file.write(text)

    def replace(self, files: Mapping[str, str]) -> Artifact:
        """Return this artifact with the texts of `files` in place of its own."""
        return Artifact({**self.files, **files})

    def changed_paths(self, other: Artifact) -> tuple[str, ...]:
        """Return the paths whose text differs between this artifact and `other`, missing files included."""
        paths = sorted({*self.files, *other.files})
        return tuple(path for path in paths if self.files.get(path) != other.files.get(path))

    def diff(self, other: Artifact) -> str:
        """Return the unified diff that turns this artifact into `other`; empty when they are equal."""
        parts: list[str] = []
        for path in self.changed_paths(other):
            lines = difflib.unified_diff(
                self.files.get(path, "").splitlines(keepends=True),
                other.files.get(path, "").splitlines(keepends=True),
                fromfile=f"a/{path}" if path in self.files else "/dev/null",
                tofile=f"b/{path}" if path in other.files else "/dev/null",
            )
            for line in lines:
                parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        return "".join(parts)


def in_scope(path: str, globs: Iterable[str]) -> bool:
    """Say whether a relative POSIX path is inside the scope's globs; paths that climb out never are."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or _PRIVATE_FOLDERS.intersection(pure.parts):
        return False
    return any(_matches(pure.parts, PurePosixPath(pattern).parts) for pattern in globs)


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Match path components against glob components; `**` stands for any number of folders, as in `Path.glob`."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or (bool(parts) and _matches(parts[1:], pattern))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def out_of_scope(before: Artifact, after: Artifact, scope: Scope) -> tuple[str, ...]:
    """Return the changed paths that the scope does not allow to change."""
    return tuple(path for path in before.changed_paths(after) if not in_scope(path, scope.editable))
