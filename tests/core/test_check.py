"""What is refused before anything is spent."""

from __future__ import annotations

import pytest

from autoresearch.core import Artifact, CandidateError, Scope
from autoresearch.core.check import parse_fault, refusal

SCOPE = Scope(("*.py",))
PARENT = Artifact({"a.py": "x = 1\n", "b.md": "text"})


class Strict:
    """An adapter that refuses what its check does not like."""

    def check(self, artifact: Artifact) -> None:
        if "forbidden" in artifact.files["a.py"]:
            raise CandidateError("The word is forbidden.")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "changes nothing"),
        ({"b.md": "other"}, "b.md lies outside the scope"),
        ({"a.py": "x = 2\n"}, "tried before"),
        ({"a.py": "x = (\n"}, "a.py cannot be used: line 1: '(' was never closed"),
        ({"a.py": "x = '\0'"}, "a.py cannot be used"),
        ({"a.py": "x = '" + "y" * 2_000_001 + "'"}, "too large"),
        ({"a.py": "forbidden = 1"}, "The word is forbidden."),
    ],
)
def test_each_refusal_has_its_sentence(files: dict[str, str], sentence: str) -> None:
    """Every reason not to measure is told in words that help the next attempt."""
    tried = {PARENT.replace({"a.py": "x = 2\n"}).fingerprint}
    found = refusal(PARENT, PARENT.replace(files), SCOPE, tried, Strict())
    assert found is not None and sentence in found


def test_a_good_candidate_is_not_refused() -> None:
    """A new text inside the scope that parses may be measured."""
    assert refusal(PARENT, PARENT.replace({"a.py": "x = 3\n"}), SCOPE, set(), Strict()) is None


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("a.json", "{", True),
        ("a.json", "{}", False),
        ("a.toml", "x = = 1", True),
        ("a.toml", "x = 1", False),
        ("a.txt", "{ = (", False),
        ("a.py", "\ufeffx = 1", False),
        ("a.py", "(" * 5000 + ")" * 5000, True),
    ],
)
def test_texts_are_parsed_as_what_their_name_says(path: str, text: str, fault: bool) -> None:
    """Python, JSON and TOML must parse; other texts are free."""
    assert (parse_fault(path, text) is not None) is fault
