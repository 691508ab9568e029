"""Several tests at once: which treatments belong together, and what becomes of them when one of them wins.

Pure functions over ledger rows. A lane has one test at a time, of one or more treatments that share a control; `rounds`
steps the tests of all lanes side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoresearch.core.adapter import Lane, LiveAdapter, OffersLanes, Outcome
from autoresearch.core.decision import Decision, Verdict
from autoresearch.core.ledger import Experiment, ProposalRow

Ruling = tuple[Verdict, Outcome]
"""What is decided on a treatment, and what it ends as if it ends."""

AGAIN = "again"
"""Key in the details of a proposal that repeats an edit: the number of the experiment that had it before."""

OUTDATED = ("Won against an incumbent that has changed meanwhile", "Not shown, for the incumbent has changed meanwhile")
"""How the reason of an experiment begins whose edit is proposed again, on what is the incumbent by then."""

_REPEATED = re.compile(r"^again: #\d+: ")


def offered(adapter: object) -> tuple[Lane, ...]:
    """Return the lanes of an adapter that runs several treatments or tests at once; none where one follows another.

    Raises:
        ValueError: If two lanes have the same name.
    """
    if not (isinstance(adapter, LiveAdapter) and isinstance(adapter, OffersLanes)):
        return ()
    lanes = tuple(adapter.lanes)
    names = [lane.name for lane in lanes]
    if len(set(names)) < len(names):
        raise ValueError(f"Two lanes of an adapter need different names, and there are {', '.join(names)}.")
    return lanes if len(lanes) > 1 or any(lane.arms > 1 for lane in lanes) else ()


def reach_of(adapter: object, name: str) -> float:
    """Return the share of all people who see what is kept in a lane; everybody where there are no lanes."""
    return next((lane.reach for lane in offered(adapter) if lane.name == name), 1.0)


def begun_with(experiments: Sequence[Experiment], one: Experiment) -> list[Experiment]:
    """Return the other treatments of an experiment's test: of its lane, begun, and before people at the same time."""
    return [
        row
        for row in experiments
        if row.id != one.id
        and (row.lane, row.family) == (one.lane, one.family)
        and row.lane
        and row.family > 1
        and (row.ended is None or row.ended > one.started)
        and (one.ended is None or one.ended > row.started)
    ]


def has_won(row: Experiment) -> bool:
    """Whether an experiment ended its test by winning, be it kept or outdated."""
    return row.outcome == Outcome.KEPT.value or row.reason.startswith(OUTDATED[0])


def settled(verdicts: Mapping[int, Ruling], winner_before: int | None = None) -> dict[int, Ruling]:
    """Return what becomes of the treatments of one test after a look, the winner first.

    One treatment is kept at most. Of several that crossed the line it is the one with the highest lower bound, and with
    it the whole test ends: what is still open is inconclusive, what is decided otherwise stays so.

    Args:
        verdicts: By number of the experiment: what policy and gates say of it alone.
        winner_before: A treatment of the same test that won already; then a kill fell into the middle of its end.
    """
    won = {number: verdict for number, (verdict, outcome) in verdicts.items() if outcome is Outcome.KEPT}
    if winner_before is None and not won:
        return dict(verdicts)
    winner = winner_before if winner_before is not None else max(won, key=lambda number: _sureness(won[number]))
    found = {winner: verdicts[winner]} if winner in verdicts else {}
    for number, ruling in verdicts.items():
        if number != winner:
            found[number] = _beside(winner, ruling, won=number in won)
    return found


def _sureness(verdict: Verdict) -> tuple[float, float]:
    """Order winners by the lower bound of their effect, then by the effect."""
    effect = float("-inf") if verdict.effect is None else verdict.effect
    return (verdict.interval[0] if verdict.interval is not None else effect, effect)


def _beside(winner: int, ruling: Ruling, *, won: bool) -> Ruling:
    """Return what becomes of a treatment whose test ends because another won."""
    verdict, _ = ruling
    if not won and verdict.decision is not Decision.CONTINUE:
        return ruling
    why = f"It won too, and experiment {winner} more surely." if won else f"The test ended: experiment {winner} won."
    return replace(
        verdict, decision=Decision.REVERT, reason=f"{why} {verdict.reason}", inconclusive=True
    ), Outcome.INCONCLUSIVE


def outdated(verdict: Verdict, conflict: str = "") -> Ruling:
    """Return the ruling on a winner that cannot be kept on what is the incumbent now: it is measured again there."""
    because = f" ({conflict.rstrip('.')})" if conflict else ""
    reason = f"{OUTDATED[0]}{because}; it is tested again on the new one. {verdict.reason}"
    return replace(verdict, decision=Decision.REVERT, reason=reason, inconclusive=True), Outcome.INCONCLUSIVE


def never_shown() -> Ruling:
    """Return the ruling on a candidate that waited while another lane kept something."""
    reason = f"{OUTDATED[1]}; it is proposed again on the new one."
    return Verdict(Decision.REVERT, reason, inconclusive=True), Outcome.INCONCLUSIVE


def to_repeat(finished: Sequence[Experiment], proposals: Sequence[ProposalRow], lane: str) -> list[Experiment]:
    """Return the experiments of a lane whose edit is to be proposed again and was not yet, oldest first."""
    done = {row.details.get(AGAIN) for row in proposals}
    return [
        row
        for row in finished
        if row.lane == lane
        and row.outcome == Outcome.INCONCLUSIVE.value
        and row.reason.startswith(OUTDATED)
        and row.number not in done
    ]


def repeated_hypothesis(row: Experiment) -> str:
    """Return the hypothesis of an edit that is proposed again."""
    return f"again: #{row.number}: {_REPEATED.sub('', row.hypothesis)}"
