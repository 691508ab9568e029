"""Edits as a language model writes them, applied to an artifact or refused in words that help the next attempt."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

from autoresearch.core.adapter import Scope
from autoresearch.core.artifact import Artifact, in_scope
from autoresearch.core.errors import ProposalError
from autoresearch.core.proposers.redact import MARK

__all__ = ["SearchReplace", "WholeFile", "apply_edits"]

_LONGEST_NAME = 255  # bytes of one path component on every common file system
_SHOWN_LINES = 12
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class SearchReplace:
    """Put `replace` where `search` stands; `search` must stand exactly once in the file as it was shown."""

    path: str
    search: str
    replace: str


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A new file, or the whole new text of one that exists."""

    path: str
    text: str


def apply_edits(
    artifact: Artifact, edits: Sequence[SearchReplace], files: Sequence[WholeFile], scope: Scope
) -> Artifact:
    """Return the artifact with every edit applied.

    Every search looks at the artifact as it is given, not at the result of other edits, so their order does not matter.

    Raises:
        ProposalError: If a path is outside the scope, a search does not match exactly once, edits overlap, or nothing
            would change. No part of the edits is applied then.
    """
    if not edits and not files:
        raise ProposalError("The answer holds no edit. Give at least one search/replace block or one whole file.")
    changed = _whole_files(artifact, files, scope)
    for path, blocks in _by_path(edits, scope).items():
        if path in changed:
            raise ProposalError(f"{path} has both a whole new text and search/replace blocks. Use one of the two.")
        changed[path] = _replace_blocks(artifact.files, path, blocks)
    candidate = artifact.replace(changed)
    _refuse_clashing_paths(candidate)
    if candidate == artifact:
        raise ProposalError("The edits leave every file as it was. Change something that can move the metric.")
    return candidate


def _whole_files(artifact: Artifact, files: Sequence[WholeFile], scope: Scope) -> dict[str, str]:
    changed: dict[str, str] = {}
    for file in files:
        path = _allowed(file.path, scope)
        if path in changed:
            raise ProposalError(f"{path} is given twice as a whole file. Give its final text once.")
        changed[path] = _like(artifact.files.get(path, ""), _writable(path, file.text))
    return changed


def _by_path(edits: Sequence[SearchReplace], scope: Scope) -> Mapping[str, list[SearchReplace]]:
    grouped: dict[str, list[SearchReplace]] = {}
    for edit in edits:
        grouped.setdefault(_allowed(edit.path, scope), []).append(edit)
    return grouped


def _allowed(path: str, scope: Scope) -> str:
    """Return the normal form of a path that may be changed, or refuse it."""
    pure = PurePosixPath(path)
    odd = "\\" in path or ":" in path or _CONTROL.search(path) or "\n" in path or "\r" in path
    if odd or pure.is_absolute() or ".." in pure.parts or not pure.parts or not _encodable(path):
        raise ProposalError(
            f"{path!r} is no path inside the artifact. Write paths relative to its root with forward slashes, as shown."
        )
    if any(len(part.encode()) > _LONGEST_NAME for part in pure.parts):
        raise ProposalError(
            f"The path {path[:60]!r}... has a name of more than {_LONGEST_NAME} bytes. Use a shorter one."
        )
    if not in_scope(str(pure), scope.editable):
        raise ProposalError(
            f"{pure} is outside what may change. Only files that match {', '.join(scope.editable)} may be edited."
        )
    return str(pure)


def _replace_blocks(files: Mapping[str, str], path: str, blocks: Sequence[SearchReplace]) -> str:
    if path not in files:
        raise ProposalError(
            f"{path} does not exist, so nothing in it can be replaced. The artifact has {', '.join(files)}. "
            "To add a file, give it as a whole file."
        )
    text = files[path]
    spans = sorted(_span(path, text, block) for block in blocks)
    for (_, end, _), (start, _, _) in pairwise(spans):
        if start < end:
            raise ProposalError(f"Two search blocks for {path} overlap. Merge them into one block.")
    for start, end, replacement in reversed(spans):
        text = text[:start] + replacement + text[end:]
    return text


def _span(path: str, text: str, block: SearchReplace) -> tuple[int, int, str]:
    """Return where the block's search stands and what goes there."""
    search = _like(text, block.search)
    if not search:
        raise ProposalError(f"A search block for {path} is empty. Copy the lines to be replaced into it.")
    if MARK in search:
        raise ProposalError(
            f"A search block for {path} contains {MARK} ...], which stands for a secret that was not shown. "
            "Leave such lines alone."
        )
    places = _places(text, search)
    if len(places) != 1:
        raise ProposalError(_no_match(path, text, search) if not places else _many(path, text, places))
    return places[0], places[0] + len(search), _like(text, _writable(path, block.replace))


def _places(text: str, search: str) -> list[int]:
    """Return every start of `search` in `text`, overlapping ones included: `aa` stands twice in `aaa`."""
    places: list[int] = []
    at = text.find(search)
    while at >= 0:
        places.append(at)
        at = text.find(search, at + 1)
    return places


def _many(path: str, text: str, places: Sequence[int]) -> str:
    lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in places[:5]) + (", ..." if len(places) > 5 else "")
    return (
        f"A search block matches {len(places)} places in {path} (lines {lines}) and must "
        "match exactly one. Add lines before or after until only one place fits."
    )


def _no_match(path: str, text: str, search: str) -> str:
    first = next((line for line in search.splitlines() if line.strip()), "").strip()
    said = f"A search block for {path} does not occur in it; it begins {first[:80]!r}. "
    if _squeezed(search) and _squeezed(search) in _squeezed(text):
        return said + "Only white space differs: copy the lines exactly, with their indentation."
    near = _nearest(text, search)
    if near:
        return said + "Copy the lines exactly as the file has them. The nearest there are:\n" + near
    return said + "Nothing like it is in the file. Copy the lines to be replaced exactly as shown."


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _nearest(text: str, search: str) -> str:
    """Return the lines of the file around the one that is most like the first line of `search`; empty without one."""
    lines = text.splitlines()
    wanted = [line for line in search.splitlines() if line.strip()]
    best = difflib.get_close_matches(wanted[0], lines, n=1, cutoff=0.6) if wanted else []
    if not best:
        return ""
    at = lines.index(best[0])
    return "\n".join(lines[at : at + min(len(search.splitlines()), _SHOWN_LINES)])


def _writable(path: str, text: str) -> str:
    """Return a text that a file can hold, or refuse it."""
    if MARK in text:
        raise ProposalError(
            f"The new text for {path} contains {MARK} ...], which stands for a secret that was not shown; writing it "
            "would destroy the line. Change that file with search/replace blocks around the line."
        )
    if _CONTROL.search(text) or not _encodable(text):
        raise ProposalError(f"The new text for {path} contains control characters or broken Unicode. Write plain text.")
    return text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can carry it, a file cannot
        return False
    return True


def _like(model_of: str, text: str) -> str:
    """Return `text` with the line ends of `model_of`: a model writes \\n even where the file has \\r\\n throughout."""
    crlf = model_of.count("\r\n")
    if crlf and crlf == model_of.count("\n"):
        return re.sub(r"(?<!\r)\n", "\r\n", text)
    return text


def _refuse_clashing_paths(candidate: Artifact) -> None:
    """Refuse a candidate in which a file stands where another path needs a folder."""
    for path in candidate.files:
        for parent in PurePosixPath(path).parents:
            if str(parent) in candidate.files:
                raise ProposalError(f"{path} needs a folder where {parent} is a file. Choose another path.")
