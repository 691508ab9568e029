"""What people and other programs see of a run; every listing speaks through this one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from autoresearch.core import live as live_tests
from autoresearch.core import memory
from autoresearch.core.adapter import ArmTotals, Metric, Outcome, Split
from autoresearch.core.decision import Evidence, Look, Noise, OffersInterval, Policy, Verdict
from autoresearch.core.decision.policies import create_policy, policy_names
from autoresearch.core.history import History
from autoresearch.core.ledger import Claim, Experiment, Ledger, Run, Totals

INCUMBENT = "incumbent"
"""Subject of the claim about the incumbent; the others are about the experiment whose number they bear."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run in figures, with the keys of `status --json`.

    Attributes:
        run: Id of the run.
        adapter: Name of the adapter.
        policy: Name of the rule that keeps or reverts.
        state: `running`, `paused`, `stopped`, or `killed` where a run ended without a word.
        stop_reason: Why it stopped; None while it runs.
        experiments: Finished experiments, the baseline not counted.
        kept: Of these, the kept ones; likewise the other outcomes.
        reverted: Measured, not better.
        inconclusive: Reverted for lack of evidence.
        crashed: Could not be measured.
        invalid: A gate failed.
        baseline: Mean value of the baseline; None before it is measured.
        incumbent: What the policy believes the incumbent's value to be.
        believed_gain: What the policy believes was gained, in the metric's unit, positive where better.
        confirmed_gain: What fresh measurements confirmed of the incumbent's gain; None where it is not confirmed.
        confirmed_on: Where they were taken: `holdout`, or `search` where the adapter has no holdout; None without any.
        usd: Dollars for proposals.
        seconds: Wall-clock seconds of all experiments.
    """

    run: str
    adapter: str
    policy: str
    state: str
    stop_reason: str | None
    experiments: int
    kept: int
    reverted: int
    inconclusive: int
    crashed: int
    invalid: int
    baseline: float | None
    incumbent: float | None
    believed_gain: float | None
    confirmed_gain: float | None
    confirmed_on: str | None
    usd: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the figures by key."""
        return asdict(self)


def confirmed_gain(claims: Sequence[Claim], incumbent: Experiment | None) -> float | None:
    """Return the shrunk gain of the incumbent over the baseline where its claim is confirmed, else None."""
    for claim in claims:
        if claim.subject == INCUMBENT and incumbent is not None and claim.commit == incumbent.kept_commit:
            return claim.shrunk if claim.outcome == "confirmed" else None
    return None


def share_confirmed(believed: float | None, confirmed: float | None) -> float | None:
    """Return confirmed over believed gain; None where either is missing or nothing is believed to be gained."""
    return confirmed / believed if believed and believed > 0 and confirmed is not None else None


def _claimed_on(ledger: Ledger, run_id: str, claims: Sequence[Claim]) -> str | None:
    """Return the split on which a run's claims were measured; an adapter with a holdout uses no other."""
    if ledger.fresh(run_id, Split.HOLDOUT.value):
        return "holdout"
    return "search" if any(claim.outcome != "open" for claim in claims) else None


def status_of(ledger: Ledger, run: Run, *, at_work: bool, policy: Policy | None = None) -> RunStatus:
    """Return a run in figures.

    Args:
        ledger: Where the run is written down.
        run: The run.
        at_work: Whether a process holds the workspace right now.
        policy: The run's policy; by default the one of the name that the ledger holds. What a policy that only the
            Python API was given believes can be told by that API alone.
    """
    history = History(ledger, run.id).refresh()
    metric = memory.metric_from_json(run.metric)
    believed = history.belief(policy or policy_of(run), metric)
    return _status(ledger, run, ledger.totals(run.id), history.experiments, believed, at_work=at_work)


def policy_of(run: Run) -> Policy | None:
    """Return the policy that a run names, with its parameters; None where only the Python API knows it."""
    return create_policy(run.policy, run.policy_parameters) if run.policy in policy_names() else None


def _status(
    ledger: Ledger,
    run: Run,
    totals: Totals,
    experiments: Sequence[Experiment],
    believed: memory.Belief,
    *,
    at_work: bool,
) -> RunStatus:
    claims = ledger.claims(run.id)
    return RunStatus(
        run=run.id,
        adapter=run.adapter,
        policy=run.policy,
        state="killed" if run.state != "stopped" and not at_work else run.state,
        stop_reason=run.stop_reason,
        experiments=totals.experiments,
        kept=totals.kept,
        reverted=totals.reverted,
        inconclusive=totals.inconclusive,
        crashed=totals.crashed,
        invalid=totals.invalid,
        baseline=believed.baseline,
        incumbent=believed.value,
        believed_gain=believed.gain,
        confirmed_gain=confirmed_gain(claims, memory.incumbent_of(experiments)),
        confirmed_on=_claimed_on(ledger, run.id, claims),
        usd=totals.usd,
        seconds=totals.seconds,
    )


# ---- A whole run, for pages that show it


@dataclass(frozen=True, slots=True)
class Standing:
    """What is believed of the incumbent after an experiment, judged on all that was known by then.

    Attributes:
        number: The experiment.
        value: Believed value of the incumbent, in the metric's unit.
        low: Lower end of the interval of 90 % for it, the baseline's mean taken as known; None where there is none.
        high: Upper end.
    """

    number: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class LivePoint:
    """A live test at one look, everything cumulative.

    Attributes:
        look: From 1.
        at: When it was taken.
        control: Totals of the arm that shows the incumbent.
        treatment: Of the arm that shows the candidate.
        verdict: What the policy says of everything up to this look; a line that was crossed stays crossed.
    """

    look: int
    at: datetime
    control: ArmTotals
    treatment: ArmTotals
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with everything that a report or a page shows; rows are the ledger's.

    Attributes:
        run: The run.
        metric: What is measured.
        status: The run in figures.
        totals: What was done and spent, refused and failed proposals included.
        experiments: Finished experiments in the order they finished, the baseline first.
        in_flight: The experiment that has not ended, the latest of several; None where there is none.
        going_on: All experiments that have not ended: in lanes several at once.
        looks: Experiment id -> cumulative looks of both arms: of every live test, those in flight included, or of every
            kept measured experiment.
        standings: The believed incumbent at the baseline, at every keep and at points between, by number.
        live: Whether the metric arrives from people.
        noise: Spread between two measurements of one artifact; None where it is unknown.
        claims: What `confirm` wrote down.
        openings: How often the holdout was opened.
        policy: The run's policy; None where only the Python API knows it.
    """

    run: Run
    metric: Metric
    status: RunStatus
    totals: Totals
    experiments: Sequence[Experiment]
    in_flight: Experiment | None
    looks: Mapping[int, Sequence[Look]]
    standings: tuple[Standing, ...]
    live: bool
    noise: Noise | None
    claims: tuple[Claim, ...]
    openings: int
    policy: Policy | None
    going_on: tuple[Experiment, ...] = ()

    @property
    def kept(self) -> list[Experiment]:
        """The kept experiments without the baseline."""
        return [row for row in self.experiments if row.outcome == Outcome.KEPT.value and row.number > 0]

    @property
    def confirmed(self) -> frozenset[int]:
        """Numbers of the experiments with a confirmed claim."""
        return frozenset(claim.number for claim in self.claims if claim.outcome == "confirmed")


MOST_STANDINGS = 300
"""Points of the believed incumbent between keeps: more than a screen can tell apart."""


def view_of(ledger: Ledger, run: Run, *, at_work: bool, policy: Policy | None = None) -> RunView:
    """Return a whole run; arguments as for `status_of`."""
    return RunReader(ledger, run.id, policy).view(at_work=at_work)


class RunReader:
    """Reads a run again and again at the cost of what is new: for pages that stay open beside a run at work.

    One caller at a time.

    Args:
        ledger: Where the run is written down.
        run_id: The run.
        policy: As for `status_of`.
    """

    def __init__(self, ledger: Ledger, run_id: str, policy: Policy | None = None) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._policy = policy
        self._begin(0)

    def _begin(self, judged: int) -> None:
        """Forget everything; `judged` is how many measurements the calibration stands on."""
        self._history = History(self._ledger, self._run_id)
        self._judged = judged
        self._taken = 0
        self._kept: list[Experiment] = []  # of the history, the baseline included
        self._known: tuple[object, dict[int, Standing]] = (None, {})

    def view(self, *, at_work: bool, standings: bool = True) -> RunView:
        """Return the run as it is now.

        Args:
            at_work: Whether a process holds the workspace right now.
            standings: Work out what was believed along the way, too, which takes longest; else there are none.
        """
        ledger, run = self._ledger, self._ledger.run(self._run_id)
        if self._policy is None:
            self._policy = policy_of(run)
        policy, metric = self._policy, memory.metric_from_json(run.metric)
        history, totals = self._read(run)
        going_on = ledger.unfinished(run.id)
        found = ledger.live_looks_of([row.id for row in going_on])
        tested = {id: live_tests.looks_of(rows) for id, rows in found.items()}
        live = bool(tested) or any(history.looks.values())
        looks = {**history.looks, **tested} if live else _looks_of_kept(history, self._kept)
        believed = history.belief(policy, metric)
        return RunView(
            run=run,
            metric=metric,
            status=_status(ledger, run, totals, self._kept, believed, at_work=at_work),
            totals=totals,
            experiments=tuple(history.experiments),
            in_flight=going_on[-1] if going_on else None,
            going_on=tuple(going_on),
            looks=looks,
            standings=self._standings(policy, metric, live=live) if standings else (),
            live=live,
            noise=None if live or policy is None else history.evidence(metric).noise,
            claims=tuple(ledger.claims(run.id)),
            openings=len(ledger.fresh(run.id, Split.HOLDOUT.value)),
            policy=policy,
        )

    def _read(self, run: Run) -> tuple[History, Totals]:
        """Return the history with its news, and the totals; all anew where more changed than is ever added."""
        judged = len(self._ledger.fresh(run.id, Split.SEARCH.value))
        self._take_news()
        totals = self._ledger.totals(run.id)
        # A kept step may have been taken back, and a calibration moves what was believed of everything.
        if judged != self._judged or sum(row.number > 0 for row in self._kept) > totals.kept:
            self._begin(judged)
            self._take_news()
        return self._history, totals

    def _take_news(self) -> None:
        rows = self._history.refresh().experiments
        self._kept += [row for row in rows[self._taken :] if row.outcome == Outcome.KEPT.value]
        self._taken = len(rows)

    def _standings(self, policy: Policy | None, metric: Metric, *, live: bool) -> tuple[Standing, ...]:
        """Return what was believed along the way; points that nothing new can change are remembered."""
        noise = None if live else self._history.evidence(metric).noise
        if self._known[0] != (noise, live):
            self._known = ((noise, live), {})
        return _standings(self._history, policy, metric, live=live, known=self._known[1])


def _looks_of_kept(history: History, kept: Sequence[Experiment]) -> dict[int, tuple[Look, ...]]:
    return {row.id: memory.looks_of(history.measurements[row.id]) for row in kept}


def _standings(
    history: History, policy: Policy | None, metric: Metric, *, live: bool, known: dict[int, Standing]
) -> tuple[Standing, ...]:
    """Return what the policy believes of the incumbent along the way, by the noise as it is known now.

    Standings are looked up in `known` by their number, and added to it.
    """
    start = history.belief(None, metric).baseline
    if policy is None or start is None:
        return ()
    sign = metric.direction.sign
    found = [Standing(0, start)] if live else []  # no test is one of the artifact as found alone
    for number, evidence in _along(history, metric, live=live):
        if number not in known:
            known[number] = _standing(number, policy, evidence(), start, sign)
        found.append(known[number])
    return tuple(_rising(found))


def _rising(standings: Sequence[Standing]) -> list[Standing]:
    """Place what was believed after an experiment that ended late, as happens in lanes, at the last number by then."""
    placed: list[Standing] = []
    for one in standings:
        highest = max([one.number, *(before.number for before in placed[-1:])])
        if placed and placed[-1].number == highest:
            placed.pop()
        placed.append(replace(one, number=highest))
    return placed


def _standing(number: int, policy: Policy, evidence: Evidence, start: float, sign: int) -> Standing:
    gain = policy.believed_gain(evidence)
    ends = policy.believed_interval(evidence) if isinstance(policy, OffersInterval) else None
    low, high = sorted(start + sign * end for end in ends) if ends is not None else (None, None)
    return Standing(number, start + sign * gain, low, high)


def _along(history: History, metric: Metric, *, live: bool) -> Iterator[tuple[int, Callable[[], Evidence]]]:
    """Yield (number, how to get the evidence up to it) at every keep and at points between, in order."""
    known = Evidence(metric, ()) if live else history.evidence(metric)
    judged = history.judged(live=live)
    past = live_tests.past_evidence(history.experiments, history.looks) if live else known.history
    step = max(1, len(judged) // MOST_STANDINGS)
    for index, row in enumerate(judged):
        if row.outcome == Outcome.KEPT.value or index % step == 0 or index == len(judged) - 1:
            yield row.number, partial(_up_to, known, past, index)


def _up_to(known: Evidence, past: Sequence[Any], index: int) -> Evidence:
    return replace(known, history=tuple(past[: index + 1]))


def live_points(ledger: Ledger, view: RunView, experiment: Experiment, most: int = 60) -> tuple[LivePoint, ...]:
    """Return a live test look by look; of more than `most` looks evenly chosen ones, the last among them."""
    rows = ledger.live_looks(experiment.id)
    looks, moments = live_tests.looks_of(rows), {row.look: row.at for row in rows}
    if view.policy is None:
        return ()
    step = -(-len(looks) // most)
    points = []
    for index, (look, (_, at)) in enumerate(zip(looks, sorted(moments.items()), strict=True)):
        if (len(looks) - 1 - index) % step == 0:
            verdict = view.policy.decide(live_tests.evidence_of(view.metric, experiment, looks[: index + 1]))
            points.append(LivePoint(index + 1, at, look.control, look.treatment, verdict))
    return tuple(points)
