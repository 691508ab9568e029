"""Two edits of one artifact put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core import Artifact
from autoresearch.core.merge import ConflictError, merged

BASE = 'headline = "Hello"\nbutton = "Buy"\nproof = ""\n'


def copy(text: str) -> Artifact:
    return Artifact({"copy.toml": text})


def test_edits_of_neighbouring_lines_go_together() -> None:
    """Two slots on neighbouring lines, each changed by one edit, are both changed in the merge."""
    edited, onto = BASE.replace("Hello", "Welcome"), BASE.replace("Buy", "Try")
    expected = copy(edited.replace("Buy", "Try"))
    assert merged(copy(BASE), copy(edited), copy(onto)) == expected
    assert merged(copy(BASE), copy(onto), copy(edited)) == expected


def test_edits_of_the_same_line_conflict() -> None:
    """Neither edit wins where both change one line; the sentence names it."""
    with pytest.raises(ConflictError, match=r"copy\.toml at line 2"):
        merged(copy(BASE), copy(BASE.replace("Buy", "Try")), copy(BASE.replace("Buy", "Get")))


def test_lines_added_at_one_place_conflict() -> None:
    """Which of the two comes first cannot be told."""
    with pytest.raises(ConflictError):
        merged(copy(BASE), copy(f"{BASE}a = 1\n"), copy(f"{BASE}b = 1\n"))


def test_the_same_edit_is_made_once() -> None:
    """What both changed alike stands in the merge once."""
    both = BASE.replace("Buy", "Try")
    assert merged(copy(BASE), copy(f"{both}a = 1\n"), copy(both)) == copy(f"{both}a = 1\n")


def test_files_come_and_go() -> None:
    """A file that only one edit adds or removes is added or removed; one that the other changed is a conflict."""
    base = Artifact({"a": "1\n", "b": "2\n"})
    assert merged(base, Artifact({"a": "1\n"}), Artifact({"a": "9\n", "b": "2\n"})) == Artifact({"a": "9\n"})
    assert merged(base, base.replace({"c": "3\n"}), base.replace({"a": "9\n"})) == base.replace(
        {"a": "9\n", "c": "3\n"}
    )
    with pytest.raises(ConflictError, match="added or removed"):
        merged(base, Artifact({"a": "1\n"}), base.replace({"b": "9\n"}))


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n"]), max_size=8).map("".join)


@given(base=TEXTS, edited=TEXTS, onto=TEXTS)
def test_a_merge_holds_what_each_edit_alone_did(base: str, edited: str, onto: str) -> None:
    """An edit onto its own base is the edit, one of nothing changes nothing, and the order does not matter."""
    assert merged(copy(base), copy(edited), copy(base)) == copy(edited)
    assert merged(copy(base), copy(base), copy(onto)) == copy(onto)

    def either(one: str, other: str) -> Artifact | None:
        try:
            return merged(copy(base), copy(one), copy(other))
        except ConflictError:
            return None

    assert either(edited, onto) == either(onto, edited)
