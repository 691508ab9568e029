from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.core.adapter import Direction, Metric, Outcome, Scope
from autoresearch.core.artifact import Artifact
from autoresearch.core.errors import NothingLeftToProposeError
from autoresearch.core.proposers import (
    Change,
    FailedCandidate,
    OpenExperiment,
    PastExperiment,
    Proposal,
    ProposalRequest,
    Proposer,
)
from autoresearch.core.proposers.knobs import Knob, find_knobs
from autoresearch.core.proposers.search import SearchProposer

TRAIN = """\
# Größe
DEPTH = 4
MATRIX_LR = 0.02  # Muon
HEAD_LR = 0.004
ADAM_BETA = 0.95
BATCH = 64
WARMDOWN = 0.5
USE_BIAS = False
INIT_SCALE = 1.0
"""
BASE = Artifact({"train.py": TRAIN})
LOSS = Metric("loss", "nats", Direction.MINIMIZE)


def request(
    *history: PastExperiment, artifact: Artifact = BASE, baseline: Artifact = BASE, knobs: Sequence[Knob] = ()
) -> ProposalRequest:
    return ProposalRequest(
        number=len(history) + 1,
        artifact=artifact,
        baseline=baseline,
        scope=Scope(("*.py",)),
        metric=LOSS,
        history=history,
        knobs=knobs,
    )


def finished(proposal: Proposal, number: int, outcome: Outcome, effect: float | None) -> PastExperiment:
    return PastExperiment(
        number=number,
        hypothesis=proposal.hypothesis,
        category=proposal.category,
        outcome=outcome,
        reason="",
        value=None if effect is None else 1.0 - effect,
        effect=effect,
        interval=None,
        diff="",
        fingerprint=proposal.artifact.fingerprint,
        changes=proposal.changes,
        details=proposal.details,
    )


def turned(number: int, knob: str, old: str, new: str, outcome: Outcome, effect: float | None = None) -> PastExperiment:
    category = next(found.knob.category for found in find_knobs(BASE) if found.name == knob)
    artifact = Artifact({"train.py": TRAIN.replace(f"{knob} = {old}", f"{knob} = {new}")})
    return finished(Proposal("", category, artifact, (Change(knob, old, new),)), number, outcome, effect)


def only(text: str) -> Artifact:
    return Artifact({"train.py": text})


def test_fits_the_contract_and_costs_nothing() -> None:
    """Search is a proposer, its estimate is zero, and so is the cost of a proposal."""
    proposer = SearchProposer()
    estimate, proposal = proposer.estimate(request()), proposer.propose(request())
    assert isinstance(proposer, Proposer)
    assert (estimate.usd, estimate.tokens, proposal.cost.usd, proposal.cost.tokens) == (0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_one_knob_changes_and_the_text_says_which(seed: int) -> None:
    """A proposal changes one literal, names it in its changes and its sentence, and leaves the rest alone."""
    proposal = SearchProposer(seed).propose(request())
    (change,) = proposal.changes
    before, after = TRAIN.splitlines(), proposal.artifact.files["train.py"].splitlines()
    differing = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert len(differing) == 1
    assert differing[0][0].replace(f"= {change.old}", f"= {change.new}") == differing[0][1]
    assert change.knob in proposal.hypothesis
    assert proposal.hypothesis.endswith(".")
    assert ": " in proposal.hypothesis


def test_hypothesis_is_a_plain_sentence() -> None:
    """The sentence names direction, values, file and a reason."""
    artifact = only("MATRIX_LR = 0.02\n")
    knob = Knob("MATRIX_LR", "train.py", "optimizer", low=0.02, high=0.03)
    proposal = SearchProposer().propose(request(artifact=artifact, baseline=artifact, knobs=[knob]))
    assert proposal.hypothesis == (
        "Raise MATRIX_LR from 0.02 to 0.028 in train.py: larger steps may learn faster within the budget."
    )


def test_switch_is_worded_as_one() -> None:
    """A boolean is switched on or off."""
    artifact = only("USE_BIAS = False\n")
    proposal = SearchProposer().propose(request(artifact=artifact, baseline=artifact))
    assert proposal.hypothesis.startswith("Switch USE_BIAS on in train.py: ")


def play(
    seed: int, length: int, *, artifact: Artifact = BASE, chances: Sequence[Outcome] = tuple(Outcome)
) -> list[Proposal]:
    """Return the proposals of a run whose outcomes are drawn at random."""
    rng, incumbent = random.Random(seed), artifact
    history: list[PastExperiment] = []
    proposals: list[Proposal] = []
    for number in range(1, length + 1):
        proposal = SearchProposer(seed).propose(request(*history, artifact=incumbent, baseline=artifact))
        outcome = rng.choice(chances)
        measured = outcome not in (Outcome.CRASHED, Outcome.INVALID)
        history.append(finished(proposal, number, outcome, rng.gauss(0, 0.01) if measured else None))
        proposals.append(proposal)
        if outcome is Outcome.KEPT:
            incumbent = proposal.artifact
    return proposals


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6))
def test_nothing_is_proposed_twice(seed: int) -> None:
    """Whatever the outcomes, no candidate comes twice and no knob makes the same turn twice."""
    proposals = play(seed, 30)
    fingerprints = [proposal.artifact.fingerprint for proposal in proposals]
    assert len(set(fingerprints)) == len(fingerprints)
    assert BASE.fingerprint not in fingerprints
    turns = [frozenset(proposal.changes) for proposal in proposals]
    assert len(set(turns)) == len(turns)


def test_seed_and_history_determine_the_proposal() -> None:
    """The same seed and history give the same run; another seed gives another one."""
    assert play(3, 15) == play(3, 15)
    assert play(3, 15) != play(4, 15)


def test_first_moves_are_single_steps_over_several_categories() -> None:
    """Ten first experiments that lead nowhere touch at least four categories, each by one rung where it is untried."""
    proposals = play(1, 10, chances=[Outcome.REVERTED])
    assert len({proposal.category for proposal in proposals}) >= 4
    first = {}
    for proposal in proposals:
        first.setdefault(proposal.changes[0].knob, proposal.changes[0])
    steps = {
        "DEPTH": {"3", "5"},
        "MATRIX_LR": {"0.014", "0.028"},
        "HEAD_LR": {"0.0028", "0.0057"},
        "ADAM_BETA": {"0.929", "0.965"},
        "BATCH": {"32", "128"},
        "WARMDOWN": {"0.4", "0.6"},
        "USE_BIAS": {"True"},
        "INIT_SCALE": {"0.71", "1.4"},
    }
    assert all(change.new in steps[knob] for knob, change in first.items())


def test_what_paid_is_tried_again_in_the_same_direction() -> None:
    """After a large keep by raising a knob, most seeds raise it further and none goes straight back."""
    kept = turned(1, "MATRIX_LR", "0.02", "0.028", Outcome.KEPT, 0.1)
    artifact = only(TRAIN.replace("MATRIX_LR = 0.02", "MATRIX_LR = 0.028"))
    proposals = [SearchProposer(seed).propose(request(kept, artifact=artifact)) for seed in range(30)]
    same = [p.changes[0] for p in proposals if p.changes[0].knob == "MATRIX_LR"]
    assert len(same) > 15
    assert all(float(change.new) > 0.028 for change in same)


def test_what_was_worse_one_way_is_tried_the_other_way() -> None:
    """After lowering a knob was clearly worse, the next turn of that knob raises it and says why."""
    artifact = only("MATRIX_LR = 0.02\n")
    worse = replace(turned(1, "MATRIX_LR", "0.02", "0.014", Outcome.REVERTED, -0.1), fingerprint="other")
    for seed in range(10):
        proposal = SearchProposer(seed).propose(request(worse, artifact=artifact, baseline=artifact))
        assert float(proposal.changes[0].new) > 0.02
        assert "worse in experiment 1" in proposal.hypothesis


def test_crash_keeps_away_from_larger_steps() -> None:
    """After a step crashed, no seed takes a larger one in that direction while there are others."""
    crash = turned(1, "DEPTH", "4", "6", Outcome.CRASHED)
    for seed in range(30):
        change = SearchProposer(seed).propose(request(crash)).changes[0]
        assert not (change.knob == "DEPTH" and int(change.new) > 6)


def test_category_on_a_plateau_is_avoided_while_there_are_others() -> None:
    """Avoided categories are left alone, but better than having no idea at all."""
    avoided = frozenset({"optimizer", "architecture"})
    for seed in range(15):
        asked = replace(request(), avoid_categories=avoided)
        assert SearchProposer(seed).propose(asked).category not in avoided
    lonely = only("MATRIX_LR = 0.02\n")
    asked = replace(request(artifact=lonely, baseline=lonely), avoid_categories=frozenset({"optimizer"}))
    assert SearchProposer().propose(asked).category == "optimizer"


def test_refused_proposals_are_passed_over() -> None:
    """Each refusal of the same experiment leads to another candidate."""
    proposals = [
        SearchProposer(5).propose(replace(request(), refused=("outside the scope",) * refusals))
        for refusals in range(6)
    ]
    assert len({proposal.artifact.fingerprint for proposal in proposals}) == 6


def test_what_goes_on_beside_is_not_proposed_again() -> None:
    """Five candidates that are before people at once are five different ones."""
    open_now: list[OpenExperiment] = []
    for number in range(1, 6):
        found = SearchProposer().propose(replace(request(), beside=tuple(open_now)))
        open_now.append(OpenExperiment(number, found.hypothesis, "", found.artifact.fingerprint, found.changes))
    assert len({row.fingerprint for row in open_now}) == 5


def failed(proposal: Proposal) -> FailedCandidate:
    return FailedCandidate(proposal, "out of memory", "")


def test_repair_takes_a_smaller_step_of_the_same_knob() -> None:
    """A candidate that crashed by a large step is repaired by a smaller one in the same direction."""
    large = only(TRAIN.replace("BATCH = 64", "BATCH = 512"))
    crashed = Proposal("", "batch", large, (Change("BATCH", "64", "512"),))
    repaired = SearchProposer().propose(replace(request(), failed=failed(crashed)))
    assert repaired.changes == (Change("BATCH", "64", "256"),)
    assert "512 crashed" in repaired.hypothesis


def test_repair_of_a_single_step_is_another_idea_and_remembers_the_crash() -> None:
    """Where no smaller step exists another move is made, and later proposals know what crashed."""
    artifact = only("BATCH = 64\n")
    knob = Knob("BATCH", "train.py", "batch", low=32, high=128, power_of_two=True)
    crashed = Proposal("", "batch", only("BATCH = 128\n"), (Change("BATCH", "64", "128"),))
    asked = request(artifact=artifact, baseline=artifact, knobs=[knob])
    repaired = SearchProposer().propose(replace(asked, failed=failed(crashed)))
    assert repaired.changes == (Change("BATCH", "64", "32"),)
    history = (finished(repaired, 1, Outcome.REVERTED, -0.1),)
    with pytest.raises(NothingLeftToProposeError):
        SearchProposer().propose(request(*history, artifact=artifact, baseline=artifact, knobs=[knob]))


def test_two_near_misses_are_joined() -> None:
    """When all single turns are used up, two of one category that came out slightly better are tried together."""
    text = "A_LR = 0.02\nB_LR = 0.02\n"
    knobs = [Knob(name, "train.py", "rates", choices=("0.02", "0.04")) for name in ("A_LR", "B_LR")]
    history = [
        finished(
            Proposal(
                "", "rates", only(text.replace(f"{name} = 0.02", f"{name} = 0.04")), (Change(name, "0.02", "0.04"),)
            ),
            number,
            Outcome.INCONCLUSIVE,
            0.001,
        )
        for number, name in enumerate(("A_LR", "B_LR"), 1)
    ]
    asked = request(*history, artifact=only(text), baseline=only(text), knobs=knobs)
    proposal = SearchProposer().propose(asked)
    assert proposal.artifact == only(text.replace("0.02", "0.04"))
    assert len(proposal.changes) == 2
    both = finished(proposal, 3, Outcome.REVERTED, -0.1)
    with pytest.raises(NothingLeftToProposeError, match="has been tried"):
        SearchProposer().propose(replace(asked, history=(*history, both)))


def test_artifact_without_constants_has_nothing_to_propose() -> None:
    """No knob at all ends the run with a sentence that says what search looks for."""
    empty = Artifact({"train.py": "print('no constants')\n", "page.html": "<p>1</p>"})
    with pytest.raises(NothingLeftToProposeError, match="NAME = number"):
        SearchProposer().propose(request(artifact=empty, baseline=empty))


def test_constants_outside_the_scope_are_left_alone() -> None:
    """Only files that may change are turned."""
    artifact = Artifact({"train.py": "A = 0.5\n", "lib/fixed.py": "B = 0.5\n"})
    for seed in range(8):
        asked = request(artifact=artifact, baseline=artifact)
        assert SearchProposer(seed).propose(asked).changes[0].knob == "A"


def test_equal_names_in_two_files_are_told_apart() -> None:
    """A name that two files hold is recorded with its file, and each is tried on its own."""
    artifact = Artifact({"a.py": "FLAG = True\n", "b.py": "FLAG = True\n"})
    history: list[PastExperiment] = []
    for number in (1, 2):
        proposal = SearchProposer().propose(request(*history, artifact=artifact, baseline=artifact))
        history.append(finished(proposal, number, Outcome.REVERTED, -0.1))
    assert {past.changes[0].knob for past in history} == {"a.py:FLAG", "b.py:FLAG"}


def test_history_of_another_proposer_is_understood() -> None:
    """Experiments without changes, with foreign details, or with values off every rung do no harm."""
    foreign = PastExperiment(1, "x", "idea", Outcome.KEPT, "", 1.0, 0.1, None, "", "f", details={"crashed": "yes"})
    odd = turned(2, "MATRIX_LR", "0.02", "sqrt(2)", Outcome.REVERTED, -0.1)
    artifact = only("MATRIX_LR = 0.0233\nUSE_BIAS = 7\n")
    seen = {SearchProposer(seed).propose(request(foreign, odd, artifact=artifact)).changes[0] for seed in range(40)}
    lr = [float(change.new) for change in seen if change.knob == "MATRIX_LR"]
    assert min(lr) < 0.0233 < max(lr)


def loss(artifact: Artifact) -> float:
    """Return a smooth bowl over the constants of the script, best away from the baseline."""
    best = {"DEPTH": 6, "MATRIX_LR": 0.04, "HEAD_LR": 0.002, "ADAM_BETA": 0.9, "BATCH": 32, "WARMDOWN": 0.7}
    values = {knob.name: float(knob.value or 0) for knob in find_knobs(artifact)}
    return sum(math.log(values[name] / optimum) ** 2 for name, optimum in best.items())


def test_finds_its_way_down_a_bowl() -> None:
    """Forty experiments without noise take away at least four fifths of what can be gained."""
    incumbent, history = BASE, []
    for number in range(1, 41):
        proposal = SearchProposer(0).propose(request(*history, artifact=incumbent))
        effect = loss(incumbent) - loss(proposal.artifact)
        outcome = Outcome.KEPT if effect > 0 else Outcome.REVERTED
        history.append(finished(proposal, number, outcome, effect))
        if outcome is Outcome.KEPT:
            incumbent = proposal.artifact
    assert loss(incumbent) < 0.2 * loss(BASE)
