"""copy.toml: read strictly, changed without touching anything else, turned by the offline search."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.adapters.marketing.checks import refusals
from autoresearch.adapters.marketing.wording import Copy, category_of, changed_slots, knobs, set_slots
from autoresearch.core import (
    Artifact,
    CandidateError,
    Direction,
    Metric,
    MetricKind,
    NothingLeftToProposeError,
    Outcome,
    PastExperiment,
    Proposal,
    ProposalRequest,
    Scope,
)
from autoresearch.core.proposers.knobs import find_knobs, turn
from autoresearch.core.proposers.search import SearchProposer
from tests.adapters.marketing.campaigns import KINDS, campaign, write_campaign

TEXT = """\
# The copy of the café.
[slots]
headline = 'Hello'  # keep it short
body = \"\"\"
One.

Two.\"\"\"

[options]
headline = ["Hello", "Good morning",
    "Servus"]
"""


def test_a_copy_is_read_from_folder_file_and_text(tmp_path: Path) -> None:
    """The same copy comes from its folder, its file and its text."""
    (tmp_path / "copy.toml").write_text(TEXT, encoding="utf-8")
    read = Copy.load(tmp_path)
    assert read == Copy.load(tmp_path / "copy.toml") == Copy.load(TEXT)
    assert dict(read.slots) == {"headline": "Hello", "body": "One.\n\nTwo."}
    assert dict(read.options) == {"headline": ("Hello", "Good morning", "Servus")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[slots", "is not valid TOML"),
        ("", "has no [slots]"),
        ("[slots]\na = 3", "[slots] a must be a text, not 3"),
        ("[slots]\nA = '3'", "'A' cannot name a slot"),
        ("[slots]\na = 'x'\n[more]\nb = 1", "'more' is unknown"),
        ("slots = 3", "slots must be a table"),
        ("[slots]\na = 'x'\n[options]\nb = ['y']", "[options] b belongs to no slot"),
        ("[slots]\na = 'x'\n[options]\na = 'y'", "[options] a must be a list of texts"),
    ],
)
def test_a_broken_copy_is_the_candidates_fault(text: str, said: str) -> None:
    """A copy that is no copy is refused with the reason, and booked on the candidate."""
    with pytest.raises(CandidateError) as caught:
        Copy.load(text)
    assert said in str(caught.value)


def test_a_missing_copy_is_named(tmp_path: Path) -> None:
    """A folder without copy.toml says so."""
    with pytest.raises(CandidateError, match="cannot be read"):
        Copy.load(tmp_path)


def test_changing_a_slot_changes_nothing_else() -> None:
    """Comments, order and other texts stay byte for byte."""
    assert set_slots(TEXT, {"headline": "Bye"}) == TEXT.replace("'Hello'", '"Bye"')
    assert set_slots(TEXT, {"headline": "Hello"}) == TEXT
    with pytest.raises(KeyError):
        set_slots(TEXT, {"missing": "x"})


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_can_stand_in_a_slot(text: str) -> None:
    """Whatever is written into a slot is read back."""
    assert Copy.load(set_slots(TEXT, {"headline": text})).slots["headline"] == text


def test_knobs_are_the_slots_with_options() -> None:
    """Each slot with options is a knob; the present text is a choice exactly as the file has it."""
    [knob] = knobs(Artifact({"copy.toml": TEXT}))
    assert (knob.name, knob.path, knob.category) == ("slots.headline", "copy.toml", "headline")
    assert knob.choices == ("'Hello'", '"Good morning"', '"Servus"')
    assert knobs(Artifact({"copy.toml": "[slots"})) == ()
    assert knobs(Artifact({"copy.toml": "[slots]\na = 'x'\n[options]\na = ['x']"})) == ()


@pytest.mark.parametrize(("kind", "platform"), KINDS)
def test_the_search_changes_one_slot_at_a_time(tmp_path: Path, kind: str, platform: str) -> None:
    """Every turn of every knob changes exactly its slot, and back again restores every byte."""
    artifact = Artifact.read(write_campaign(tmp_path, kind, platform), ("copy.toml",))
    before = Copy.load(artifact.files["copy.toml"])
    declared = knobs(artifact)
    assert {knob.name for knob in declared} == {f"slots.{name}" for name in before.slots}
    for found in find_knobs(artifact, declared):
        assert found.source in found.knob.choices
        for choice in found.knob.choices:
            turned = turn(artifact, found, choice)
            after = Copy.load(turned.files["copy.toml"])
            expected = () if choice == found.source else (found.name.removeprefix("slots."),)
            assert changed_slots(before, after) == expected
            assert after.options == before.options
            [again] = [knob for knob in find_knobs(turned, knobs(turned)) if knob.name == found.name]
            assert turn(turned, again, found.source) == artifact
            assert after.slots[found.name.removeprefix("slots.")] == tomllib.loads(f"x = {choice}")["x"]


def test_a_slots_category_is_its_name_without_number() -> None:
    """Slots that are alike share a category."""
    assert [category_of(name) for name in ("bullet_1", "bullet_12", "cta", "path2")] == [
        "bullet",
        "bullet",
        "cta",
        "path",
    ]


def past(proposal: Proposal, number: int) -> PastExperiment:
    return PastExperiment(
        number=number,
        hypothesis=proposal.hypothesis,
        category=proposal.category,
        outcome=Outcome.REVERTED,
        reason="",
        value=None,
        effect=-0.01,
        interval=None,
        diff="",
        changes=proposal.changes,
        fingerprint=proposal.artifact.fingerprint,
    )


@pytest.mark.parametrize(("kind", "platform"), [("email", "search"), ("ad", "social")])
def test_the_search_tries_every_option_once(tmp_path: Path, kind: str, platform: str) -> None:
    """Offline search proposes each option of each slot once, nothing that is refused, and then says that it is done."""
    packaged = campaign(tmp_path, kind, platform)
    start = Artifact.read(tmp_path, ("copy.toml",))
    before = Copy.load(start.files["copy.toml"])
    metric = Metric("rate", "share", Direction.MAXIMIZE, MetricKind.PROPORTION)
    history: list[PastExperiment] = []
    seen = set()
    with pytest.raises(NothingLeftToProposeError):
        while True:
            request = ProposalRequest(
                number=len(history) + 1,
                artifact=start,
                baseline=start,
                scope=Scope(("copy.toml",)),
                metric=metric,
                history=history,
                knobs=knobs(start),
            )
            proposal = SearchProposer(seed=1).propose(request)
            after = Copy.load(proposal.artifact.files["copy.toml"])
            [slot] = changed_slots(before, after)
            assert refusals(packaged, after) == ()
            assert proposal.category == category_of(slot)
            assert "\n" not in proposal.hypothesis
            assert len(proposal.hypothesis) < 260
            seen.add((slot, after.slots[slot]))
            history.append(past(proposal, len(history) + 1))
    assert len(history) == len(seen) == sum(len(texts) - 1 for texts in before.options.values())
