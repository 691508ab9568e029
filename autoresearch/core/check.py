"""What is refused before anything is spent: no change, out of scope, tried already, text that does not parse."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Collection
from pathlib import PurePosixPath

from autoresearch.core.adapter import OffersCheck, Scope
from autoresearch.core.artifact import Artifact, out_of_scope
from autoresearch.core.errors import CandidateError

MAX_FILE_BYTES = 2_000_000
"""A candidate's file may not be larger; nobody reviews a diff of that size."""


def refusal(parent: Artifact, candidate: Artifact, scope: Scope, tried: Collection[str], adapter: object) -> str | None:
    """Return the sentence that says why a candidate is refused, or None when it may be measured."""
    if candidate == parent:
        return "The proposal changes nothing."
    outside = out_of_scope(parent, candidate, scope)
    if outside:
        return f"{', '.join(outside)} lies outside the scope; only {', '.join(scope.editable)} may change."
    if candidate.fingerprint in tried:
        return "This exact candidate was tried before in this run."
    for path in parent.changed_paths(candidate):
        text = candidate.files.get(path)
        if text is None:
            continue
        fault = "too large" if len(text) > MAX_FILE_BYTES else parse_fault(path, text)
        if fault:
            return f"{path} cannot be used: {fault}."
    if isinstance(adapter, OffersCheck):
        try:
            adapter.check(candidate)
        except CandidateError as error:
            return str(error)
    return None


def parse_fault(path: str, text: str) -> str | None:
    """Return what keeps a text from being parsed as what its name says it is; None when nothing does."""
    suffix = PurePosixPath(path).suffix
    try:
        if suffix == ".py":
            ast.parse(text.removeprefix("\ufeff"), path)  # Python itself skips a byte order mark
        elif suffix == ".json":
            json.loads(text)
        elif suffix == ".toml":
            tomllib.loads(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        # ast raises ValueError on null bytes and RecursionError or MemoryError on absurdly nested text.
        return str(error) or type(error).__name__
    return None
