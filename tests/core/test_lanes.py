"""What becomes of the treatments of one test: pure decisions over rows and verdicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoresearch.core import Lane, Outcome
from autoresearch.core.decision import Decision, Verdict
from autoresearch.core.lanes import begun_with, outdated, repeated_hypothesis, settled, to_repeat
from autoresearch.core.ledger import Experiment, ProposalRow

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def row(number: int, begun: float, ended: float | None = None, **fields: Any) -> Experiment:
    """Return an experiment of the lane `page`, its times in hours."""
    times = {"started": START + timedelta(hours=begun)}
    if ended is not None:
        times["ended"] = START + timedelta(hours=ended)
    known: dict[str, Any] = {
        "id": number,
        "run_id": "r",
        "number": number,
        "session_id": 1,
        "lane": "page",
        "family": 2,
    }
    return Experiment(**{**known, **times, **fields})


def keep(low: float, high: float = 2.0) -> tuple[Verdict, Outcome]:
    return Verdict(Decision.KEEP, "Better.", (low + high) / 2, (low, high)), Outcome.KEPT


OPEN = (Verdict(Decision.CONTINUE, "Undecided."), Outcome.INCONCLUSIVE)
LOST = (Verdict(Decision.REVERT, "Worse."), Outcome.REVERTED)


def test_without_a_winner_everybody_gets_the_own_verdict() -> None:
    """What is open goes on, and what lost ends alone."""
    assert settled({1: OPEN, 2: LOST}) == {1: OPEN, 2: LOST}


def test_the_surest_winner_comes_first_and_ends_the_test() -> None:
    """By the lower bound, not by the effect; who lost keeps the own verdict, everybody else is inconclusive."""
    found = settled({1: keep(0.1, 9.0), 2: LOST, 3: keep(0.2), 4: OPEN})
    assert next(iter(found)) == 3 and found[3] == keep(0.2) and found[2] == LOST
    assert {number: found[number][1] for number in (1, 4)} == {1: Outcome.INCONCLUSIVE, 4: Outcome.INCONCLUSIVE}
    assert found[1][0].reason == "It won too, and experiment 3 more surely. Better."
    assert found[4][0].reason == "The test ended: experiment 3 won. Undecided."
    assert all(verdict.decision is not Decision.CONTINUE for verdict, _ in found.values())


def test_a_race_without_upper_bounds_goes_by_the_effect() -> None:
    """With beta 0 there is no interval; the larger effect is the surer winner then."""
    small, large = ((Verdict(Decision.KEEP, "Better.", effect), Outcome.KEPT) for effect in (0.1, 0.4))
    assert next(iter(settled({1: small, 2: large}))) == 2


def test_a_winner_before_the_kill_ends_the_rest() -> None:
    """Where one was kept and the process was killed, the others end as they would have ended, a late winner too."""
    found = settled({2: keep(0.3), 4: OPEN}, winner_before=1)
    assert {outcome for _, outcome in found.values()} == {Outcome.INCONCLUSIVE}
    assert all("experiment 1" in verdict.reason for verdict, _ in found.values())


def test_treatments_of_one_test_are_those_that_met() -> None:
    """Same lane, begun together, at the same time before people; neither the test before nor one alone."""
    rows = [
        row(1, 0, 5),
        row(2, 1, 9),
        row(3, 10, 12),
        row(4, 10.5),
        row(5, 1, 9, lane="other"),
        row(6, 0.5, 0.7, family=0),
    ]
    assert [found.number for found in begun_with(rows, rows[1])] == [1]
    assert [found.number for found in begun_with(rows, rows[3])] == [3]
    assert begun_with(rows, rows[5]) == []


def test_an_outdated_winner_is_repeated_once() -> None:
    """Until a proposal names it, whatever became of that; its hypothesis names the last try alone."""
    reason = outdated(Verdict(Decision.KEEP, "Better."))[0].reason
    rows = [
        row(1, 0, 1, outcome="inconclusive", reason=reason),
        row(2, 0, 1, outcome="inconclusive", reason="Undecided."),
        row(3, 0, 1, outcome="inconclusive", reason=reason, lane="other"),
    ]
    assert to_repeat(rows, [], "page") == rows[:1]
    proposed = ProposalRow(run_id="r", number=4, attempt=0, status="refused", details={"again": 1})
    assert to_repeat(rows, [proposed], "page") == []
    assert repeated_hypothesis(row(4, 0, hypothesis="again: #1: Ask a question.")) == "again: #4: Ask a question."


@pytest.mark.parametrize(
    ("name", "arms", "reach"), [("", 1, 1.0), ("page", 0, 1.0), ("page", 1, 0.0), ("page", 1, 1.5)]
)
def test_impossible_lanes_are_refused(name: str, arms: int, reach: float) -> None:
    """A lane has a name, a treatment and somebody whom it reaches."""
    with pytest.raises(ValueError, match="A lane needs a name"):
        Lane(name, arms, reach=reach)
