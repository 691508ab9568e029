"""Two edits of one artifact put together: what one changed applied to what the other left, or a sentence why not.

Works on lines and takes nothing for granted: where both edits touch the same lines, or both add lines at one place,
there is no merge. Edits of neighbouring lines are no conflict, for slots of a page often stand on neighbouring lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from autoresearch.core.artifact import Artifact


class ConflictError(Exception):
    """Two edits do not go together; the message says where."""


def merged(base: Artifact, edited: Artifact, onto: Artifact) -> Artifact:
    """Return `onto` with what changed from `base` to `edited`.

    Raises:
        ConflictError: If both changed the same place.
    """
    files: dict[str, str] = dict(onto.files)
    for path in base.changed_paths(edited):
        text = _merged_file(path, base.files.get(path), edited.files.get(path), onto.files.get(path))
        if text is None:
            files.pop(path, None)
        else:
            files[path] = text
    return Artifact(files)


def _merged_file(path: str, base: str | None, edited: str | None, onto: str | None) -> str | None:
    """Return the text of one file, None where it is removed; `base` and `edited` differ."""
    if onto in (base, edited):
        return edited
    if base is None or edited is None or onto is None:
        raise ConflictError(f"{path} was added or removed by one edit and changed by another")
    lines = base.splitlines(keepends=True)
    hunks = sorted({*_hunks(lines, edited), *_hunks(lines, onto)}, key=lambda hunk: (hunk.first, hunk.end))
    for one, other in pairwise(hunks):
        if one.clashes(other):
            raise ConflictError(f"both edits change {path} at line {other.first + 1}")
    for hunk in reversed(hunks):
        lines[hunk.first : hunk.end] = hunk.lines
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Lines `first` up to `end` of the base that give way to others; equal ones of both edits are one."""

    first: int
    end: int
    lines: tuple[str, ...]

    def clashes(self, later: _Hunk) -> bool:
        """Whether a hunk that begins no earlier overlaps this one, or adds lines at the same place."""
        return later.first < self.end or (self.first == later.first and self.first in (self.end, later.end))


def _hunks(lines: Sequence[str], edited: str) -> list[_Hunk]:
    after = edited.splitlines(keepends=True)
    codes = SequenceMatcher(None, lines, after, autojunk=False).get_opcodes()
    return [_Hunk(i, j, tuple(after[k:m])) for tag, i, j, k, m in codes if tag != "equal"]
