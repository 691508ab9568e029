"""Confirming: baseline, incumbent and every kept step measured anew on the holdout, and what may be claimed of them.

Claims are written down first, each with its share of the error rate and the effect to look for; then the holdout is
opened. A confirmation that is killed goes on where it was; one with more seeds adds to what is there, and may, because
e-values allow looking again. A claim that was confirmed once stays confirmed.

Where an adapter has no holdout, the same is done with fresh seeds on what keep decisions saw, and said so: such a gain
is re-measured. It is free of the luck of the runs that decided, not of having been fitted to the one data set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autoresearch.core import memory
from autoresearch.core.adapter import MetricKind, Split
from autoresearch.core.decision.noise import plug_in_sd
from autoresearch.core.errors import UsageError
from autoresearch.core.fresh import CONFIRM_SEED, ArmFailedError, Bench, kept_steps, rounds
from autoresearch.core.ledger import Claim, Experiment, Ledger, Run
from autoresearch.core.memory import Belief
from autoresearch.core.readmodel import INCUMBENT, confirmed_gain

if TYPE_CHECKING:
    from autoresearch.core.decision.claims import Panel, Ruling
    from autoresearch.core.decision.race_normal import TStatistic
    from autoresearch.core.history import History

SEEDS = 5
"""Seeds an arm where nobody says how many."""

_LARGEST_LOG = 700.0  # beyond it an e-value is no double any more


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim and what would settle it.

    Attributes:
        claim: As the ledger holds it.
        threshold: What its e-value must reach; infinity where no error rate is left for it.
        seeds_needed: Seeds an arm that would confirm it if it is what it seems; None where no affordable number would.
    """

    claim: Claim
    threshold: float
    seeds_needed: int | None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a confirmation found; effects are in the metric's unit and positive where better.

    Attributes:
        run: Id of the run.
        seeds: Seeds an arm that were asked for.
        arms: Artifacts measured.
        measured: Measurements taken in this call; others were read back.
        openings: How often the holdout of this run was opened so far.
        sd: Spread of one measurement, seeds' own effects taken out; None before anything could be judged.
        spread: Estimated spread of the true effects of steps around zero, which shrinks them; None without steps.
        believed: What the policy believes was gained.
        confirmed: The shrunk gain of the incumbent where its claim is confirmed, else None.
        claims: Every claim of the run, in the order of testing.
        complete: False where it was stopped before all was measured.
        split: Where it was measured: `holdout`, or `search` where the adapter has no holdout.
    """

    run: str
    seeds: int
    arms: int
    measured: int
    openings: int
    sd: float | None
    spread: float | None
    believed: float | None
    confirmed: float | None
    claims: tuple[Judged, ...]
    complete: bool
    split: str


def measurements_needed(bench: Bench, seeds: int) -> int:
    """Return how many measurements a confirmation would still take."""
    arms = _arms(bench, kept_steps(bench.history().experiments))
    known = bench.known(bench.claim_split)
    return sum((commit, seed) not in known for commit, seed in rounds(arms, _seeds(bench, seeds)))


def confirm(bench: Bench, *, seeds: int = SEEDS, declared: int | None = None) -> Confirmation:
    """Measure what is missing and judge every claim of the run.

    Args:
        bench: Where to measure.
        seeds: Seeds an arm, 2 or more.
        declared: Number of claims that half of the error rate is spread over; fixed when the first steps are claimed.

    Raises:
        UsageError: If nothing was kept, or the request contradicts an earlier one.
        EnvironmentNotReadyError: If the machine is at fault; what was measured stays.
    """
    kept = refuse(bench.ledger, bench.run, seeds, declared)
    history = bench.history()
    believed = history.belief(bench.policy, bench.metric)
    _write_claims(bench, history, kept, believed, declared)
    seeds = max(seeds, *(claim.seeds for claim in bench.ledger.claims(bench.run.id)))
    complete, failed = _measure(bench, _arms(bench, kept), seeds)
    panel, arms = _panel(bench, [arm for arm in _arms(bench, kept) if arm not in failed], seeds)
    spread = _judge(bench, panel, arms, failed)
    judged = tuple(_judged(claim, panel, arms) for claim in bench.ledger.claims(bench.run.id))
    return Confirmation(
        run=bench.run.id,
        seeds=seeds,
        arms=len(kept) + 1,
        measured=bench.taken,
        openings=len(bench.ledger.fresh(bench.run.id, Split.HOLDOUT.value)),
        sd=panel.sd if panel else None,
        spread=spread,
        believed=believed.gain,
        confirmed=confirmed_gain([item.claim for item in judged], kept[-1]),
        claims=judged,
        complete=complete,
        split=bench.claim_split.value,
    )


def refuse(ledger: Ledger, run: Run, seeds: int, declared: int | None) -> list[Experiment]:
    """Return the kept steps of a run; refuse what cannot be confirmed before anything is prepared.

    Raises:
        UsageError: If nothing was kept, or the request makes no sense.
    """
    if seeds < 2:
        raise UsageError(f"A confirmation needs 2 seeds an arm or more, not {seeds}: one value shows no spread.")
    if declared is not None and declared < 2:
        raise UsageError(f"Declare 2 claims or more, not {declared}; half of the error rate is theirs.")
    kept = kept_steps(ledger.experiments(run.id))
    if not kept:
        raise UsageError(
            f"Nothing was kept in run {run.id}, so there is nothing to confirm: the incumbent is the baseline.\n"
            "Go on with the run: autoresearch run"
        )
    return kept


# What is claimed


def _write_claims(
    bench: Bench, history: History, kept: Sequence[Experiment], believed: Belief, declared: int | None
) -> None:
    """Write down the claims that are missing, before anything is measured."""
    from autoresearch.core.decision import claims as statistics

    earlier = bench.ledger.claims(bench.run.id)
    wanted = [claim for claim in _wanted(bench, kept) if (claim.subject, claim.commit) not in _keys(earlier)]
    count = _declared(earlier, declared)
    if not earlier and len(wanted) - 1 > count:
        raise UsageError(
            f"{len(wanted) - 1} kept steps are to be claimed and {count} claims are declared.\n"
            f"Declare as many as this run may ever want: autoresearch confirm --claims {2 * len(wanted)}"
        )
    noise = memory.noise_of(bench.metric, history.measurements, history.calibration)
    sd = plug_in_sd(noise, believed.baseline or 1.0) if noise is not None and noise.sd > 0.0 else 0.0
    smallest = bench.metric.min_effect if bench.metric.kind is MetricKind.VALUE else 0.0
    given = statistics.shares(
        [claim.share for claim in earlier], [claim.subject == INCUMBENT for claim in wanted], count
    )
    effects = {row.number: row.effect for row in kept}
    for claim, share in zip(wanted, given, strict=True):
        effect = believed.gain if claim.subject == INCUMBENT else effects[claim.number]
        claim.share, claim.alternative = share, statistics.alternative(effect, smallest, sd)
        bench.ledger.add_claim(claim)


def _wanted(bench: Bench, kept: Sequence[Experiment]) -> list[Claim]:
    """Return the claims of a run as it stands: its incumbent, then its steps; a single step is the incumbent."""
    found = [_claim(bench, INCUMBENT, kept[-1], bench.run.baseline_commit)]
    if len(kept) > 1:
        found += [_claim(bench, str(row.number), row, row.parent_commit) for row in kept]
    return found


def _claim(bench: Bench, subject: str, row: Experiment, against: str) -> Claim:
    commit = row.kept_commit or ""
    return Claim(
        run_id=bench.run.id,
        subject=subject,
        number=row.number,
        commit=commit,
        against=against,
        share=0.0,
        alternative=0.0,
        created=_now(),
    )


def _keys(claims: Sequence[Claim]) -> set[tuple[str, str]]:
    return {(claim.subject, claim.commit) for claim in claims}


def _declared(earlier: Sequence[Claim], asked: int | None) -> int:
    """Return the number of declared claims: what an earlier confirmation fixed, else what is asked for."""
    from autoresearch.core.decision.claims import DECLARED_CLAIMS, INCUMBENT_SHARE

    parts = [claim.share for claim in earlier if 0.0 < claim.share < INCUMBENT_SHARE]
    fixed = round((1.0 - INCUMBENT_SHARE) / parts[0]) if parts else None
    if fixed is not None and asked is not None and asked != fixed:
        raise UsageError(
            f"This run declared {fixed} claims when it was first confirmed, and to change that now would be choosing "
            "the error rate after the fact.\nLeave --claims out."
        )
    return fixed or asked or DECLARED_CLAIMS


# What is measured


def _arms(bench: Bench, kept: Sequence[Experiment]) -> list[str]:
    """Return the commits to measure: the baseline, then every kept step; the last one is the incumbent."""
    return list(dict.fromkeys([bench.run.baseline_commit, *(row.kept_commit or "" for row in kept)]))


def _seeds(bench: Bench, count: int) -> range:
    first = bench.run.seed + CONFIRM_SEED
    return range(first, first + count)


def _measure(bench: Bench, arms: Sequence[str], seeds: int) -> tuple[bool, dict[str, str]]:
    """Measure what is missing; return whether all of it was, and the arms that crashed with their sentences."""
    failed: dict[str, str] = {}
    bench.reporter.phase(bench.history().experiments[-1].number, "confirm")
    todo = list(rounds(arms, _seeds(bench, seeds)))
    for index, (commit, seed) in enumerate(todo):
        if bench.wants_stop():
            return False, failed
        if commit in failed:
            continue
        try:
            bench.value(bench.claim_split, commit, seed, bench.counted(index, len(todo)))
        except ArmFailedError as error:
            failed[commit] = str(error)
    return True, failed


def _panel(bench: Bench, arms: Sequence[str], seeds: int) -> tuple[Panel | None, list[str]]:
    """Return the values of every arm at the seeds that all of them have, higher is better, and the arms in order."""
    import numpy as np

    from autoresearch.core.decision.claims import Panel

    known, sign = bench.known(bench.claim_split), bench.metric.direction.sign
    common = [seed for seed in _seeds(bench, seeds) if all((arm, seed) in known for arm in arms)]
    if len(arms) < 2 or len(common) < 2:
        return None, list(arms)
    return Panel(np.array([[sign * known[arm, seed] for seed in common] for arm in arms])), list(arms)


# What is said of it


def _judge(bench: Bench, panel: Panel | None, arms: Sequence[str], failed: dict[str, str]) -> float | None:
    """Write the ruling on every claim into the ledger; return the spread of the steps' true effects."""
    from autoresearch.core.decision import claims as statistics

    rows = bench.ledger.claims(bench.run.id)
    compared = _compared(rows, panel, arms)
    e_values = [_e_value(claim, compared.get(claim.id)) for claim in rows]
    rulings = statistics.rule(e_values, [claim.share for claim in rows])
    shrunk, spread = _shrunk([claim for claim in rows if claim.id in compared], compared)
    for claim, e_value, ruling in zip(rows, e_values, rulings, strict=True):
        fields: dict[str, Any] = {}
        if claim.id in compared and panel is not None:
            fields = _fields(claim, compared[claim.id], ruling)
            fields |= {"e_value": e_value, "seeds": panel.seeds, "shrunk": shrunk[claim.id]}
        elif claim.outcome != "confirmed" and (reason := failed.get(claim.commit) or failed.get(claim.against)):
            fields = {"outcome": "failed", "reason": reason, "level": ruling.level}
        if fields:
            bench.ledger.update_claim(claim.id, **fields, judged=_now())
    return spread


def _compared(rows: Sequence[Claim], panel: Panel | None, arms: Sequence[str]) -> dict[int, TStatistic]:
    """Return the t statistic of every claim both of whose arms were measured, by the claim's id."""
    if panel is None:
        return {}
    return {
        claim.id: panel.compare(arms.index(claim.commit), arms.index(claim.against))
        for claim in rows
        if claim.commit in arms and claim.against in arms
    }


def _e_value(claim: Claim, statistic: TStatistic | None) -> float:
    """Return the e-value that counts: of a confirmed claim the one that confirmed it, for there its test stopped."""
    from autoresearch.core.decision.claims import log_e_value

    if claim.outcome == "confirmed" or statistic is None:
        return claim.e_value or 0.0
    return math.exp(min(log_e_value(statistic, claim.alternative), _LARGEST_LOG))


def _shrunk(rows: Sequence[Claim], compared: Mapping[int, TStatistic]) -> tuple[dict[int, float], float | None]:
    """Return shrunk effects by claim, and the spread of the steps' true effects; an incumbent is a group of its own."""
    from autoresearch.core.decision.claims import shrink

    steps = [claim for claim in rows if claim.subject != INCUMBENT]
    found: dict[int, float] = {}
    for group in (steps, *([claim] for claim in rows if claim.subject == INCUMBENT)):
        if group:
            raw = [compared[claim.id].difference for claim in group]
            effects = shrink(raw, compared[group[0].id].error).effects
            found |= zip((claim.id for claim in group), effects, strict=True)
    if not steps:
        return found, None
    return found, shrink([compared[claim.id].difference for claim in steps], compared[steps[0].id].error).spread


def _fields(claim: Claim, statistic: TStatistic, ruling: Ruling) -> dict[str, Any]:
    """Return what the ledger holds of a claim that was tested."""
    from autoresearch.core.decision.claims import interval

    low, high = interval(statistic, claim.alternative, ruling.level)
    if claim.outcome == "confirmed":  # bounds of a confidence sequence hold all together, so the best one stands
        low = max(bound for bound in (low, claim.low, 0.0) if bound is not None)
    return {
        "level": ruling.level,
        "raw": statistic.difference,
        "low": low,
        "high": high,
        "outcome": "confirmed" if ruling.confirmed else "unconfirmed",
        "reason": "",
    }


def _judged(claim: Claim, panel: Panel | None, arms: Sequence[str]) -> Judged:
    from autoresearch.core.decision.claims import seeds_needed

    level = claim.level or 0.0
    needed = None
    if panel is not None and claim.outcome == "unconfirmed":
        statistic = panel.compare(arms.index(claim.commit), arms.index(claim.against))
        needed = seeds_needed(statistic, panel.arms, panel.seeds, claim.alternative, level)
    return Judged(claim, 1.0 / level if level > 0 else float("inf"), needed)


def _now() -> datetime:
    return datetime.now(UTC)
