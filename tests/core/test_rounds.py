"""Tests of several lanes side by side, from end to end, on people who are drawn by lot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoresearch.core import (
    Artifact,
    GateReport,
    Lane,
    LiveExperiment,
    Proposal,
    ProposalRequest,
    UsageError,
)
from autoresearch.core.driver import RunResult, run
from autoresearch.core.ledger import Experiment, Ledger
from autoresearch.core.readmodel import view_of
from autoresearch.core.rollback import roll_back
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout
from tests.core.fakes import Listening
from tests.core.town import COPY, Planner, Town, make_town, rates_of, text_of


def go(town: Town, plan: dict[str, list[float]], **choices: object) -> RunResult:
    return run(town, workspace=town.root, proposer=Planner(plan), **choices)  # type: ignore[arg-type]


def experiments(root: Path) -> list[Experiment]:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        return ledger.experiments(ledger.runs()[-1].id)


def outcomes(root: Path) -> list[str | None]:
    return [row.outcome for row in experiments(root)]


def proposals(root: Path, status: str) -> list[str]:
    """Return the reasons of the proposals with a status."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        return [row.reason for row in ledger.proposals(ledger.runs()[-1].id) if row.status == status]


def incumbent(root: Path) -> dict[str, float]:
    """Return the rates at the head of the run's branch."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        run_id = ledger.runs()[-1].id
    store = Store.open(root)
    return rates_of(store.read(store.head(run_id) or "", (COPY,)))


def test_the_best_of_several_treatments_is_kept_alone(tmp_path: Path) -> None:
    """Three treatments share a control and begin together; with the winner the test ends for all of them."""
    root = make_town(tmp_path / "w", {"page": 0.05})
    town = Town(root, [Lane("page", arms=3)])
    result = go(town, {"page": [0.055, 0.1, 0.052]})
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "inconclusive", "kept", "inconclusive"]
    assert [(row.lane, row.family) for row in rows] == [("", 1), *[("page", 3)] * 3]
    assert rows[2].e_win is not None and rows[2].e_win >= 60, "each has to reach three times the bar"
    assert "as one of 3 treatments" in rows[2].reason
    assert all("The test ended: experiment 2 won." in rows[number].reason for number in (1, 3))
    (arms,) = town.together
    assert [arm.arm for arm in arms] == ["treatment-1", "treatment-2", "treatment-3"]
    assert len({arm.control for arm in arms}) == 1 and len({arm.treatment for arm in arms}) == 3
    assert arms[0].split["control"] + sum(arm.split["treatment"] for arm in arms) == pytest.approx(1.0)
    assert town.finished == [(2, "kept"), (1, "inconclusive"), (3, "inconclusive")]
    assert town.everybody == [{"page": 0.1}] == [incumbent(root)]
    assert result.reason == "the plan for page has ended"


def test_two_treatments_that_cross_at_one_look_leave_one_keep(tmp_path: Path) -> None:
    """The one with the higher lower bound is kept, the other names it."""
    root = make_town(tmp_path / "w", {"page": 0.05})
    go(Town(root, [Lane("page", arms=2)]), {"page": [0.3, 0.4]})
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "inconclusive", "kept"]
    assert rows[1].reason.startswith("It won too, and experiment 2 more surely.")


def test_a_treatment_that_loses_leaves_the_others_going(tmp_path: Path) -> None:
    """A harmful treatment ends by itself, the others go on, and their bar stays where it was."""
    root = make_town(tmp_path / "w", {"page": 0.05})
    go(Town(root, [Lane("page", arms=2)]), {"page": [0.01, 0.09]})
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "reverted", "kept"]
    assert rows[1].sequence is not None and rows[2].sequence is not None and rows[1].sequence < rows[2].sequence
    assert rows[2].family == 2 and rows[2].e_win is not None and rows[2].e_win >= 40


def test_gates_end_one_treatment_and_not_the_test(tmp_path: Path) -> None:
    """Harm is a matter of one treatment."""
    root = make_town(tmp_path / "w", {"page": 0.05})
    town = Town(root, [Lane("page", arms=2)], reports={1: GateReport(harm="complaints rose.")})
    go(town, {"page": [0.3, 0.09]})
    assert outcomes(root) == ["kept", "reverted", "kept"]


def test_lanes_run_side_by_side_with_one_wait(tmp_path: Path) -> None:
    """Both lanes are filled before either is looked at, and a look of both is waited for once."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town, phases = Town(root, [Lane("a"), Lane("b")], most=2), Listening()
    go(town, {"a": [0.055], "b": [0.052]}, reporter=phases)
    steps = [step for step in phases.phases if step[0] > 0]
    assert steps.index((2, "approve")) < steps.index((1, "observe"))
    assert [step for step in steps if step[1] in ("observe", "decide")][:4] == [
        (1, "observe"), (2, "observe"), (1, "decide"), (2, "decide"),
    ]  # fmt: skip
    assert outcomes(root) == ["kept", "inconclusive", "inconclusive"]


def test_a_winner_on_an_old_incumbent_is_measured_again(tmp_path: Path) -> None:
    """Two lanes win at once: the first is kept, the second's edit is proposed again on top of it, and kept then."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a"), Lane("b")])
    go(town, {"a": [0.2], "b": [0.3]})
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "kept", "inconclusive", "kept"]
    assert rows[2].reason.startswith("Won against an incumbent that has changed meanwhile; it is tested again")
    assert rows[3].hypothesis == "again: #2: Try b 0.3" and rows[3].details["again"] == 2 and rows[3].lane == "b"
    assert (rows[3].parent_number, rows[3].proposer) == (1, "planner")
    assert incumbent(root) == {"a": 0.2, "b": 0.3} == town.everybody[-1]
    assert town.together[-1][0].control != town.together[0][0].control


def test_a_lane_of_its_own_is_kept_on_the_new_incumbent(tmp_path: Path) -> None:
    """Where nothing that another lane keeps is seen, both edits stand together, though on neighbouring lines."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a", alone=True, reach=0.25), Lane("b", alone=True, reach=0.5)])
    result = go(town, {"a": [0.2], "b": [0.3]})
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "kept", "kept"]
    assert rows[2].reason.endswith("Put together with what other lanes kept meanwhile.")
    assert rows[2].parent_number == 0, "it was measured against the artifact as found"
    assert town.everybody == [{"a": 0.2, "b": 0.05}, {"a": 0.2, "b": 0.3}] and incumbent(root) == town.everybody[-1]
    assert result.status.believed_gain == pytest.approx(0.25 * 0.15 + 0.5 * 0.25, abs=0.02), "counted by reach"
    layout = Layout(root)
    with Ledger.open(layout.ledger) as ledger:
        back = roll_back(layout, ledger, ledger.runs()[-1], None, town, "Rolled back.")
    assert (back.numbers, back.incumbent) == ((2,), 1) and incumbent(root) == {"a": 0.2, "b": 0.05}


def test_an_edit_that_no_longer_applies_is_written_down_and_left(tmp_path: Path) -> None:
    """Two edits of one line cannot stand together: the second is refused with a sentence, and the run goes on."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})

    class Open(Town):
        def belongs(self, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
            return None

    class Both(Planner):
        def propose(self, request: ProposalRequest) -> Proposal:
            found = super().propose(request)
            also = found.artifact.replace({COPY: text_of({"a": 0.06, request.lane: self.plan[request.lane][0]})})
            return replace(found, artifact=also) if request.lane == "b" else found

    run(Open(root, [Lane("a"), Lane("b", alone=True)]), workspace=root, proposer=Both({"a": [0.2], "b": [0.3]}))
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "kept", "inconclusive"]
    assert "has changed meanwhile (both edits change copy.toml at line 1);" in rows[2].reason
    assert proposals(root, "refused") == [
        "The edit of experiment 2 cannot be tested on the new incumbent: both edits change copy.toml at line 1."
    ]


def test_what_belongs_to_another_lane_is_refused(tmp_path: Path) -> None:
    """A candidate that changes another lane's text is refused before anybody sees it, and another one asked for."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})

    class Meddler(Planner):
        def propose(self, request: ProposalRequest) -> Proposal:
            found = super().propose(request)
            both = request.artifact.replace({COPY: text_of({"a": 0.2, "b": 0.2})})
            return replace(found, artifact=both) if request.lane == "a" and not request.refused else found

    town = Town(root, [Lane("a"), Lane("b")], most=1)
    run(town, workspace=root, proposer=Meddler({"a": [0.06, 0.07], "b": [0.06]}), experiments=2)
    assert proposals(root, "refused") == ["It changes b, and this lane is a."]


def test_treatments_of_one_test_are_different(tmp_path: Path) -> None:
    """What is before people already is refused, and the proposer is told of it."""
    root = make_town(tmp_path / "w", {"page": 0.05})
    planner = Planner({"page": [0.06, 0.06, 0.07]})
    run(Town(root, [Lane("page", arms=2)], most=1), workspace=root, proposer=planner, experiments=2)
    assert [row.hypothesis for row in experiments(root)][1:] == ["Try page 0.06", "Try page 0.07"]
    assert [row.number for row in planner.requests[-1].beside] == [1]
    assert planner.requests[-1].refused == ("This exact candidate was tried before in this run.",)


def test_a_limit_of_experiments_is_what_is_begun(tmp_path: Path) -> None:
    """A run of three experiments begins three, over all lanes, and ends when they are over."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a", arms=2), Lane("b", arms=2)], most=1)
    result = go(town, {"a": [0.06, 0.07], "b": [0.06, 0.07]}, experiments=3)
    assert outcomes(root) == ["kept", *["inconclusive"] * 3] and result.status.experiments == 3
    assert [(row.lane, row.family) for row in experiments(root)[1:]] == [("a", 2), ("a", 2), ("b", 1)]


def test_a_stop_leaves_every_test_running_and_the_next_run_takes_them_up(tmp_path: Path) -> None:
    """`autoresearch stop` ends the run and no test; the next run looks at the same tests again."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a", arms=2), Lane("b")], wait=600, most=2)

    def stop(ids: object) -> None:
        with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
            ledger.send(ledger.runs()[-1].id, "stop")

    town.on_start, said = stop, Listening()
    result = go(town, {"a": [0.055, 0.052], "b": [0.052]}, reporter=said)
    assert result.reason.startswith("interrupted") and "takes it up again" in result.reason and town.finished == []
    assert any("Experiments 1, 2 are before people; the first look is in 10 min" in text for text in said.said)
    assert outcomes(root) == ["kept", None, None, None]
    town.wait, town.on_start = 0.0, lambda ids: None
    assert go(town, {}, experiments=3).status.experiments == 3
    assert outcomes(root) == ["kept", *["inconclusive"] * 3]
    assert [len(arms) for arms in town.together] == [2, 1, 2, 1]


def test_a_stop_while_candidates_are_proposed_shows_none_of_them(tmp_path: Path) -> None:
    """A test begins with all its treatments or not at all: the next run fills its lane up first."""
    root = make_town(tmp_path / "w", {"page": 0.05})
    town = Town(root, [Lane("page", arms=2)], most=1)

    def stop(number: int, name: str) -> None:
        if (number, name) == (1, "check"):
            with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
                ledger.send(ledger.runs()[-1].id, "stop")

    go(town, {"page": [0.055, 0.052]}, reporter=Listening(on_phase=stop))
    assert town.together == [] and [row.family for row in experiments(root)] == [1, 0]
    go(town, {"page": [0.055, 0.052]}, experiments=2)
    assert [len(arms) for arms in town.together] == [2]
    assert [(row.outcome, row.family) for row in experiments(root)[1:]] == [("inconclusive", 2)] * 2


def test_approval_holds_up_its_own_lane_only(tmp_path: Path) -> None:
    """While a candidate waits for a person the other lane's test goes on; what won meanwhile is what it is built on."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a"), Lane("b")])

    def answer(number: int, name: str) -> None:
        with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
            run_id = ledger.runs()[-1].id
            if (number, name) == (2, "approve"):
                ledger.send(run_id, "approve", "2")
            elif (number, name) == (2, "record"):
                ledger.send(run_id, "approve", "1")
            elif (number, name) == (3, "approve"):
                ledger.send(run_id, "reject", "3")

    go(town, {"a": [0.2], "b": [0.3]}, approve=True, reporter=Listening(on_phase=answer))
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "inconclusive", "kept", "reverted"]
    assert rows[1].reason.startswith("Not shown, for the incumbent has changed meanwhile")
    assert rows[3].hypothesis == "again: #1: Try a 0.2" and rows[3].reason == "rejected by a person"
    assert [arm.id[-4:] for arms in town.together for arm in arms] == ["0002"]


def test_one_lane_of_one_arm_is_the_usual_run(tmp_path: Path) -> None:
    """Nothing of lanes is asked for or written down."""
    root = make_town(tmp_path / "w", {"page": 0.05})

    class Hamlet(Town):
        def start(self, experiment: LiveExperiment) -> None:
            self.start_together([replace(experiment, lane="page")])

        def belongs(self, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
            raise AssertionError("no lane is asked for")

    class Usual(Planner):
        def propose(self, request: ProposalRequest) -> Proposal:
            assert request.lane == "" and request.beside == ()
            return super().propose(replace(request, lane="page"))

    town = Hamlet(root, [Lane("page")])
    run(town, workspace=root, proposer=Usual({"page": [0.2]}))
    assert [(row.outcome, row.lane, row.family) for row in experiments(root)] == [("kept", "", 1)] * 2
    ((shown,),) = town.together
    assert (shown.arm, dict(shown.split), town.everybody) == ("treatment", {"control": 0.5, "treatment": 0.5}, [])


def test_tests_in_flight_need_an_adapter_that_knows_their_lanes(tmp_path: Path) -> None:
    """A run that left tests in lanes cannot go on with an adapter that offers none."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a"), Lane("b")], wait=600)

    def stop(ids: object) -> None:
        with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
            ledger.send(ledger.runs()[-1].id, "stop")

    town.on_start = stop
    go(town, {"a": [0.06], "b": [0.06]})

    class Plain:
        def __init__(self, town: Town) -> None:
            for name in ("start", "observe", "finish"):
                setattr(self, name, getattr(town, name))
            self.metric, self.scope = town.metric, town.scope

    Plain.__name__ = "Town"
    with pytest.raises(UsageError, match="tests before people in a, b"):
        run(Plain(town), workspace=root, proposer=Planner({}))  # type: ignore[arg-type]


def test_what_was_believed_is_told_in_rising_order(tmp_path: Path) -> None:
    """An experiment that ends after later ones stands at their number, so that a picture never goes back."""
    root = make_town(tmp_path / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a"), Lane("b")], most=4, reports={1: GateReport(hold="The week is not over.")})
    go(town, {"a": [0.2], "b": [0.3]})
    rows = sorted(experiments(root), key=lambda row: row.sequence or 0)
    assert [row.number for row in rows if row.outcome == "kept"] == [0, 2, 3]
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        view = view_of(ledger, ledger.runs()[-1], at_work=False)
    numbers = [one.number for one in view.standings]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 3
    assert view.standings[-1].value == view.status.incumbent and view.going_on == ()
