"""Comparing: the same artifact and budget under several proposers or policies, judged on seeds that no decision saw.

Every contestant (a proposer with a policy) runs several times, each time in a workspace of its own with a base seed of
its own; then its incumbent and the baseline are measured again, in turns, on the holdout. What a run claims to have
gained does not count, what is measured afterwards does. Everything lies in the ledgers of the workspaces, so a
comparison that was cut off goes on where it was, and one with more seeds, experiments or fresh seeds adds to what is
there.
"""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.core import driver, registry
from autoresearch.core.adapter import (
    Adapter,
    CopiesCheckout,
    LiveAdapter,
    Metric,
    OffersSplits,
    OffersWorkspace,
    Split,
)
from autoresearch.core.artifact import Artifact, in_scope
from autoresearch.core.budget import Limits
from autoresearch.core.decision.policies import create_policy
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.fresh import CONFIRM_SEED, ArmFailedError, bench_at, kept_steps, rounds
from autoresearch.core.graph import BASELINE_FAILED, PROPOSER_FAILED, Reporter
from autoresearch.core.ledger import Ledger, Run, Totals
from autoresearch.core.proposers import Proposer
from autoresearch.core.readmodel import status_of
from autoresearch.core.store import Store
from autoresearch.core.workspace import PROGRAM_NAME, Layout, Settings, config_text

SEED_DISTANCE = 100
"""Distance between the base seeds of two runs of one contestant: no run has an artifact measured more often."""

CONFIDENCE = 0.9
"""Of the intervals, which have two sides."""

MOST_RUNS = 100
"""How far `runs_needed` looks."""

# Reasons after which a run goes on when it is asked to, by how they begin: it was cut off, or a person must mend
# something first, or it may have been asked for fewer experiments then. After any other it has come to its end.
_TO_MEND = (PROPOSER_FAILED, BASELINE_FAILED)
_EXTENDABLE = ("experiments:",)


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        adapter: Name of a registered adapter, or an adapter itself.
        proposers: Names of proposers, or proposers that work from the history alone: one object serves several runs.
        policies: Names of policies; each runs with its default parameters.
        experiments: Experiments of a run.
        seeds: Runs of each contestant.
        fresh: Fresh seeds with which incumbent and baseline of each run are measured again.
        files: Path -> text of the workspace that every run begins with; empty: the adapter's own.
        checkout: The checkout that every run begins with, for an adapter that improves files of one.
        hours: Wall-clock hours of a run; None for no limit.
        max_usd: Dollars of a run; None for no limit.
        model: Model of the proposers that use one.
        budget_seconds: Budget of one measurement.
        device: Device of the measurements.
        options: Options of the adapter.
    """

    adapter: str | Adapter
    proposers: Sequence[str | Proposer]
    policies: Sequence[str] = ("bayes",)
    experiments: int = 20
    seeds: int = 2
    fresh: int = 3
    files: Mapping[str, str] = field(default_factory=dict)
    checkout: Path | None = None
    hours: float | None = None
    max_usd: float | None = None
    model: str | None = None
    budget_seconds: float | None = None
    device: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs.

    Attributes:
        mean: In the unit of the metric, positive where better.
        error: Standard error, from the scatter between runs; None for a single run.
        n: Number of runs.
        sd: Standard deviation between runs; None for a single run.
    """

    mean: float
    error: float | None
    n: int
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate | None:
        """Return the mean of values, None where there are none."""
        if not values:
            return None
        sd = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), None if sd is None else sd / math.sqrt(len(values)), len(values), sd)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run of a contestant; gains are in the metric's unit and positive where better.

    Attributes:
        proposer: Name of its proposer.
        policy: Name of its policy.
        seed: Base seed.
        workspace: Its folder.
        run: Its id.
        reason: Why it ended.
        experiments: Finished experiments, the baseline not counted.
        kept: Of these, the kept ones.
        measurements: Measurements of the run itself, fresh ones not counted.
        usd: Dollars for proposals.
        hours: Wall-clock hours of its experiments.
        claimed: What the policy believes was gained.
        true: What fresh seeds say was gained: exactly 0 where nothing was kept; None where it could not be measured.
        true_error: Standard error of that from the fresh seeds alone; None with one fresh seed or without a keep.
        failed: Why it could not be measured; None where it could.
    """

    proposer: str
    policy: str
    seed: int
    workspace: Path
    run: str
    reason: str
    experiments: int
    kept: int
    measurements: int
    usd: float
    hours: float
    claimed: float | None
    true: float | None
    true_error: float | None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Contestant:
    """The runs of one proposer with one policy.

    Attributes:
        proposer: Its name.
        policy: Its name.
        runs: By seed.
    """

    proposer: str
    policy: str
    runs: tuple[RunFigures, ...]

    @property
    def true(self) -> Estimate | None:
        """Gain on fresh seeds; None where no run could be measured again."""
        return Estimate.of(self._measured())

    @property
    def claimed(self) -> Estimate | None:
        """Gain that the policy believes in."""
        return Estimate.of([run.claimed for run in self.runs if run.claimed is not None])

    @property
    def experiments(self) -> float:
        """Mean experiments of a run."""
        return statistics.fmean(run.experiments for run in self.runs)

    @property
    def measurements(self) -> float:
        """Mean measurements of a run."""
        return statistics.fmean(run.measurements for run in self.runs)

    @property
    def usd(self) -> float:
        """Mean dollars of a run."""
        return statistics.fmean(run.usd for run in self.runs)

    @property
    def hours(self) -> float:
        """Mean hours of a run."""
        return statistics.fmean(run.hours for run in self.runs)

    @property
    def gain_per_usd(self) -> float | None:
        """True gain per dollar; None where nothing was paid or measured."""
        return self._per(sum(run.usd for run in self.runs if run.true is not None))

    @property
    def gain_per_hour(self) -> float | None:
        """True gain per hour; None where it took no time or was not measured."""
        return self._per(sum(run.hours for run in self.runs if run.true is not None))

    def _per(self, spent: float) -> float | None:
        return math.fsum(self._measured()) / spent if spent > 0 else None

    def _measured(self) -> list[float]:
        return [run.true for run in self.runs if run.true is not None]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two contestants that differ in one thing.

    Attributes:
        first: The one that cost more for proposals, where proposers are compared.
        second: The other one.
        difference: True gain of the first less that of the second, means over runs.
        interval: Of `CONFIDENCE`, by Welch's t; None where one of them has a single run.
        runs_needed: Runs of each that would show the difference if it is what it seems; None where it is shown, or no
            affordable number would, or one run tells no spread.
    """

    first: Contestant
    second: Contestant
    difference: float
    interval: tuple[float, float] | None
    runs_needed: int | None

    @property
    def shown(self) -> int:
        """1 where the first gained more, -1 where it gained less, 0 where these runs cannot tell."""
        if self.interval is None:
            return 0
        return 1 if self.interval[0] > 0 else -1 if self.interval[1] < 0 else 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found.

    Attributes:
        metric: What was measured.
        contestants: In the order in which they were named.
        contrasts: Every pair with the same policy or the same proposer, where both could be measured.
        complete: False where a person ended it before all was done.
    """

    metric: Metric
    contestants: tuple[Contestant, ...]
    contrasts: tuple[Contrast, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """One run to be done."""

    proposer: str | Proposer
    policy: str
    seed: int
    layout: Layout

    @property
    def name(self) -> str:
        return _name(self.proposer)


def compare(folder: Path, plan: Plan, reporter: Reporter | None = None) -> Comparison:
    """Run what is missing, measure the incumbents again and compare.

    Args:
        folder: Where the workspaces lie, one folder a run; made where missing.
        plan: What to compare.
        reporter: Hears what happens.

    Raises:
        UsageError: If the plan makes no sense, or contradicts what lies in the folder.
        EnvironmentNotReadyError: If the machine is at fault, or a proposer; the same call again goes on.
    """
    said = reporter or driver.Silent()
    _refuse(plan)
    adapter = _adapter(plan)
    files = _files(plan, adapter)
    for proposer in plan.proposers:
        if isinstance(proposer, str):  # a missing key is better told before hours of the other contestant
            driver.choose_proposer(Settings(proposer=proposer, model=plan.model), said)
    entries = _entries(folder, plan)
    for entry in entries:
        _refuse_other(entry, plan, adapter, files)
    _make_folder(folder)
    found: list[RunFigures] = []
    complete = True
    for index, entry in enumerate(entries):
        said.say(f"Run {index + 1} of {len(entries)}: {entry.name}, {entry.policy}, seed {entry.seed}.")
        if not _run(entry, plan, adapter, files, said):
            complete = False
            break
        found.append(_judge(entry, plan, said))
    return _comparison(plan, adapter.metric, found, complete)


# What is compared


def _refuse(plan: Plan) -> None:
    """Raise UsageError for a plan that makes no sense."""
    names = [_name(proposer) for proposer in plan.proposers]
    for what, given in (("proposer", names), ("policy", list(plan.policies))):
        if twice := next((name for name in given if given.count(name) > 1), None):
            raise UsageError(f"The {what} {twice} is named twice; name each once and ask for more --seeds instead.")
    if "mcp" in names:
        raise UsageError("A comparison runs by itself, and mcp waits for a coding agent; leave it out of --proposers.")
    if len(names) * len(plan.policies) < 2:
        raise UsageError(
            "A comparison needs two proposers or two policies.\n"
            "Name them with commas: --proposers search,claude or --policies bayes,greedy"
        )
    for policy in plan.policies:
        create_policy(policy)
    for what, count in (("seeds", plan.seeds), ("experiments", plan.experiments), ("fresh", plan.fresh)):
        if count < 1:
            raise UsageError(f"A comparison needs 1 or more {what}, not {count}.")


def _name(proposer: str | Proposer) -> str:
    return proposer if isinstance(proposer, str) else proposer.name


def _adapter(plan: Plan) -> Adapter:
    """Return the adapter, checked for what a comparison needs."""
    created: Adapter | LiveAdapter
    if isinstance(plan.adapter, str):
        created, _ = registry.create_adapter(plan.adapter, plan.options)
    else:
        created = plan.adapter
    if not isinstance(created, Adapter):
        raise UsageError(f"{plan.adapter} is a live adapter, and comparisons run measured adapters only.")
    if isinstance(created, OffersSplits) and Split.HOLDOUT not in created.splits:
        raise UsageError(
            f"The adapter {plan.adapter} has no holdout split: it has no data that keep decisions never saw, so no "
            "gain could be called true.\nGive the adapter such data (a command takes {split}) or compare on another."
        )
    return created


def _files(plan: Plan, adapter: Adapter) -> dict[str, str]:
    """Return the files that every workspace begins with; none where it is a copy of a checkout."""
    if isinstance(adapter, CopiesCheckout):
        if plan.checkout is None:
            raise UsageError(
                f"The adapter {plan.adapter} improves files of a checkout, and none is named.\nName it: --from DIR"
            )
        return {}
    files = dict(plan.files)
    if not files and isinstance(adapter, OffersWorkspace):
        files = dict(adapter.workspace_files())
    if not any(in_scope(path, adapter.scope.editable) for path in files):
        raise UsageError(
            f"There is no artifact to begin with: nothing matches {', '.join(adapter.scope.editable)}.\n"
            "Name a workspace that holds one: --from DIR"
        )
    return files


def workspace_files(folder: Path, adapter: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return artifact, shown files and `program.md` of a workspace, for `Plan.files`.

    Raises:
        UsageError: If the folder holds no artifact of that adapter.
    """
    created, _ = registry.create_adapter(adapter, options)
    globs = (*created.scope.editable, *created.scope.readonly, PROGRAM_NAME)
    found = Artifact.read(folder, globs)
    if not any(in_scope(path, created.scope.editable) for path in found.files):
        raise UsageError(f"{folder} holds no artifact: nothing matches {', '.join(created.scope.editable)}.")
    return dict(found.files)


def _entries(folder: Path, plan: Plan) -> list[_Entry]:
    """Return the runs in the order in which they are done: seed by seed, every other seed backwards.

    What drifts over the hours (a warm afternoon, a busy neighbour) is so booked on no contestant.
    """
    pairs = list(itertools.product(plan.proposers, plan.policies))
    found = []
    for index in range(plan.seeds):
        for proposer, policy in pairs if index % 2 == 0 else reversed(pairs):
            seed = index * SEED_DISTANCE
            layout = Layout(folder.resolve() / f"{_name(proposer)}-{policy}-{seed}")
            found.append(_Entry(proposer, policy, seed, layout))
    return found


def _refuse_other(entry: _Entry, plan: Plan, adapter: Adapter, files: Mapping[str, str]) -> None:
    """Raise UsageError where a run of another kind or of a larger budget lies in an entry's place."""
    if not entry.layout.ledger.is_file():
        return
    with Ledger.open(entry.layout.ledger) as ledger:
        run = ledger.latest_run()
        if run is None:
            return
        done, sessions = ledger.totals(run.id).experiments, ledger.sessions(run.id)
    differing = _differences(entry, plan, run, sessions[0].limits if sessions else {})
    artifact = Artifact({path: text for path, text in files.items() if in_scope(path, adapter.scope.editable)})
    if isinstance(adapter, CopiesCheckout) and plan.checkout is not None:
        adapter.copy_checkout(plan.checkout, entry.layout.root)
    elif Store.open(entry.layout.root).read(run.baseline_commit, adapter.scope.editable) != artifact:
        differing.append("another artifact")
    if differing:
        raise UsageError(
            f"{entry.layout.root} holds a run that began with {', '.join(differing)}, so it is no part of this "
            "comparison.\nAsk as you asked then, or compare in another folder: -w DIR"
        )
    if done > plan.experiments:
        raise UsageError(
            f"{entry.layout.root} has {done} experiments already, more than the {plan.experiments} asked for, and runs "
            f"of unequal length are no comparison.\nAsk for --experiments {done} or compare in another folder: -w DIR"
        )


def _differences(entry: _Entry, plan: Plan, run: Run, limits: Mapping[str, object]) -> list[str]:
    """Return what a run began with that is not what the plan says."""
    pairs = {
        "proposer": (run.proposer, entry.name),
        "policy": (run.policy, entry.policy),
        "seed": (run.seed, entry.seed),
        "model": (run.model, plan.model or ""),
        "options": (run.options, dict(plan.options)),
        "budget_seconds": (run.budget_seconds, plan.budget_seconds),
        "device": (run.device, plan.device),
        "hours": (limits.get("hours"), plan.hours),
        "max_usd": (limits.get("max_usd"), plan.max_usd),
    }
    return [f"{name} {was!r} instead of {now!r}" for name, (was, now) in pairs.items() if was != now]


def _make_folder(folder: Path) -> None:
    """Make the folder, which ignores itself so that no `git add` of a user picks it up."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not any(folder.iterdir()):
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{folder} cannot be written: {error.strerror}.\nCompare in another folder: -w DIR"
        ) from error


# What is run


def _run(entry: _Entry, plan: Plan, adapter: Adapter, files: Mapping[str, str], reporter: Reporter) -> bool:
    """Run an entry to its end; return False where a person ended it before.

    Raises:
        EnvironmentNotReadyError: If the proposer failed again and again.
    """
    asked = _limits(entry.layout, plan)
    if asked is None:
        reporter.say("It is done already.")
        return True
    if not entry.layout.ledger.is_file():
        _make_workspace(entry.layout, plan, adapter, files)
    result = driver.run(
        plan.adapter,
        workspace=entry.layout.root,
        proposer=entry.proposer,
        policy=entry.policy,
        model=plan.model,
        experiments=asked.experiments,
        hours=asked.hours,
        max_usd=asked.max_usd,
        seed=entry.seed,
        budget_seconds=plan.budget_seconds,
        device=plan.device,
        confirm=False,
        options=plan.options or None,
        reporter=reporter,
    )
    if result.fault:
        raise EnvironmentNotReadyError(
            f"The run in {entry.layout.root} ended before its time: {result.reason}.\n"
            "Mend that and run the same command again; it goes on where it stopped."
        )
    return not result.reason.startswith(driver.RESUMABLE)


def _limits(layout: Layout, plan: Plan) -> Limits | None:
    """Return what to ask of the driver so that a run has the plan's budget in all; None where it has ended."""
    whole = Limits(plan.experiments, plan.hours, plan.max_usd)
    if not layout.ledger.is_file():
        return whole
    with Ledger.open(layout.ledger) as ledger:
        run = ledger.latest_run()
        sessions = ledger.sessions(run.id) if run is not None else []
        if run is None or not sessions:
            return whole
        all_of_it, last = ledger.totals(run.id), sessions[-1]
        if last.reason is None or last.reason.startswith(driver.RESUMABLE):
            # The driver goes on with such a session and counts from its beginning, which of the first is the run's.
            if last.first_number <= 1:
                return whole
            return _less(whole, all_of_it, ledger.totals(run.id, since_number=last.first_number))
    if all_of_it.experiments >= plan.experiments or not last.reason.startswith((*_TO_MEND, *_EXTENDABLE)):
        return None
    return _less(whole, all_of_it, None)


def _less(whole: Limits, spent: Totals, again: Totals | None) -> Limits:
    """Return limits less what was spent; `again` is the part of it that the driver itself will count."""
    experiments = spent.experiments - (again.experiments if again else 0)
    hours = (spent.seconds - (again.seconds if again else 0.0)) / 3600
    usd = spent.usd - (again.usd if again else 0.0)
    return Limits(
        experiments=(whole.experiments or 0) - experiments,
        hours=None if whole.hours is None else max(0.0, whole.hours - hours),
        max_usd=None if whole.max_usd is None else max(0.0, whole.max_usd - usd),
    )


def _make_workspace(layout: Layout, plan: Plan, adapter: Adapter, files: Mapping[str, str]) -> None:
    """Write the workspace of a run, with a repository of its own.

    In a common repository the branches of two runs that begin within one second would have the same name.
    """
    texts, config = dict(files), layout.config
    if isinstance(adapter, CopiesCheckout) and plan.checkout is not None:
        if not (layout.root / ".git").exists():
            adapter.copy_checkout(plan.checkout, layout.root)
        config = layout.config_inside
    if isinstance(plan.adapter, str):
        texts[config.relative_to(layout.root).as_posix()] = config_text(plan.adapter, plan.options)
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        Artifact(texts).write(layout.root)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The workspace {layout.root} cannot be written: {error.strerror}.\nCompare in another folder: -w DIR"
        ) from error
    if not (layout.root / ".git").exists():
        _make_repository(layout.root)


def _make_repository(folder: Path) -> None:
    try:
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise EnvironmentNotReadyError(
            "git is not installed, and kept steps are stored as its commits.\n"
            "Install it (https://git-scm.com/downloads) and run the same command again."
        ) from error
    except subprocess.CalledProcessError as error:
        raise EnvironmentNotReadyError(
            f"git cannot make a repository in {folder}: {error.stderr.strip()}.\nCompare in another folder: -w DIR"
        ) from error


# What is measured again


def _judge(entry: _Entry, plan: Plan, reporter: Reporter) -> RunFigures:
    """Measure incumbent and baseline of a finished run with fresh seeds, and return its figures."""
    given = None if isinstance(plan.adapter, str) else plan.adapter
    with Ledger.open(entry.layout.ledger) as ledger:
        run = ledger.latest_run()
        if run is None:
            raise LookupError(f"The run that just ended in {entry.layout.root} is not in its ledger.")
        failed = None
        try:
            gains = _fresh_gains(entry.layout, ledger, run, plan.fresh, reporter, given)
        except ArmFailedError as error:
            gains, failed = [], str(error)
        return _figures(entry, ledger, run, Estimate.of(gains), failed)


def _fresh_gains(
    layout: Layout, ledger: Ledger, run: Run, count: int, reporter: Reporter, adapter: Adapter | None
) -> list[float]:
    """Return the incumbent's gain over the baseline at each fresh seed; a single 0 where the baseline stands."""
    kept = kept_steps(ledger.experiments(run.id))
    if not kept:
        return [0.0]
    first = run.seed + CONFIRM_SEED
    seeds = range(first, first + count)
    arms = (run.baseline_commit, kept[-1].kept_commit or "")
    with bench_at(layout, ledger, run, reporter, adapter) as bench:
        reporter.phase(kept[-1].number, "confirm")
        todo = list(rounds(arms, seeds))
        values = {
            (commit, seed): bench.value(Split.HOLDOUT, commit, seed, bench.counted(index, len(todo)))
            for index, (commit, seed) in enumerate(todo)
        }
        sign = bench.metric.direction.sign
    return [sign * (values[arms[1], seed] - values[arms[0], seed]) for seed in seeds]


def _figures(entry: _Entry, ledger: Ledger, run: Run, true: Estimate | None, failed: str | None) -> RunFigures:
    status, totals = status_of(ledger, run, at_work=True), ledger.totals(run.id)
    return RunFigures(
        proposer=entry.name,
        policy=entry.policy,
        seed=entry.seed,
        workspace=entry.layout.root,
        run=run.id,
        reason=run.stop_reason or "",
        experiments=totals.experiments,
        kept=totals.kept,
        measurements=totals.measurements,
        usd=totals.usd,
        hours=totals.seconds / 3600,
        claimed=status.believed_gain,
        true=true.mean if true else None,
        true_error=true.error if true else None,
        failed=failed,
    )


# What it says


def _comparison(plan: Plan, metric: Metric, found: Sequence[RunFigures], complete: bool) -> Comparison:
    contestants = []
    for proposer, policy in itertools.product(map(_name, plan.proposers), plan.policies):
        runs = tuple(run for run in found if (run.proposer, run.policy) == (proposer, policy))
        if runs:
            contestants.append(Contestant(proposer, policy, runs))
    return Comparison(metric, tuple(contestants), tuple(_contrasts(contestants)), complete)


def _contrasts(contestants: Sequence[Contestant]) -> list[Contrast]:
    """Return every pair that differs in one thing; of proposers the dearer one first."""
    found = []
    for first, second in itertools.combinations(contestants, 2):
        if first.proposer != second.proposer and first.policy != second.policy:
            continue
        if second.usd > first.usd and first.proposer != second.proposer:
            first, second = second, first
        if first.true is not None and second.true is not None:
            found.append(contrast(first, second, first.true, second.true))
    return found


def contrast(first: Contestant, second: Contestant, one: Estimate, other: Estimate) -> Contrast:
    """Return the difference of two means over runs with its interval.

    Source: B. L. Welch (1947), with the degrees of freedom of Welch and Satterthwaite.
    """
    difference = one.mean - other.mean
    if one.sd is None or other.sd is None:
        return Contrast(first, second, difference, None, None)
    parts = [(estimate.sd or 0.0) ** 2 / estimate.n for estimate in (one, other)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return Contrast(first, second, difference, (difference, difference), None)
    dof = sum(parts) ** 2 / sum(part**2 / (estimate.n - 1) for part, estimate in zip(parts, (one, other), strict=True))
    width = _t_quantile(dof) * error
    needed = runs_needed(difference, one.sd, other.sd) if abs(difference) <= width else None
    return Contrast(first, second, difference, (difference - width, difference + width), needed)


def runs_needed(difference: float, sd: float, other_sd: float) -> int | None:
    """Return the smallest number of runs of each whose interval would leave out 0, if all stays as it was seen."""
    for runs in range(2, MOST_RUNS + 1):
        if abs(difference) > _t_quantile(2.0 * (runs - 1)) * math.sqrt((sd**2 + other_sd**2) / runs):
            return runs
    return None


def _t_quantile(dof: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(dof, 0.5 + CONFIDENCE / 2.0))
