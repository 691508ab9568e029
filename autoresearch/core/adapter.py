"""The contracts between the loop and what it improves.

An adapter is a mutable artifact and a scalar metric. Write one of the two protocols, `Adapter` for a metric that can be
measured on demand or `LiveAdapter` for one that only arrives, and name its factory in an entry point:

    [project.entry-points."autoresearch.adapters"]
    banner = "my_package:create_adapter"

    def create_adapter(options: Mapping[str, str]) -> Adapter | LiveAdapter: ...

Authors inherit nothing. Everything that crosses this border is frozen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from autoresearch.core.artifact import Artifact
    from autoresearch.core.decision import Look
    from autoresearch.core.proposers.knobs import Knob

CONTRACT_VERSION = 1
"""Version of the protocols below; an adapter may state the one it was written for as `contract_version`."""


class Direction(Enum):
    """Which way is better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"

    @property
    def sign(self) -> int:
        """+1 where higher is better, -1 where lower is: multiply a value once, at the border, then higher is better."""
        return 1 if self is Direction.MAXIMIZE else -1


class MetricKind(Enum):
    """How the metric's numbers come about; it picks the statistics that judge them."""

    VALUE = "value"  # one real number per measurement: val_bpb, a latency
    PROPORTION = "proportion"  # a share of units that converted
    MEAN = "mean"  # an average over units, possibly heavy-tailed: revenue


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured and what counts as a difference.

    Attributes:
        name: As it appears in logs and tables, e.g. `val_bpb`.
        unit: Unit of one value, e.g. `bits per byte`.
        direction: Which way is better.
        kind: How values come about.
        noise: Standard deviation between two measurements of the same artifact with different seeds, in the unit of the
            metric. None: estimate it from repeated measurements of the baseline.
        min_effect: Smallest improvement worth having; relative for proportions and means, in the unit for values.
    """

    name: str
    unit: str
    direction: Direction
    kind: MetricKind = MetricKind.VALUE
    noise: float | None = None
    min_effect: float = 0.0

    def __post_init__(self) -> None:
        if self.noise is not None and not (math.isfinite(self.noise) and self.noise > 0):
            raise ValueError(f"Metric {self.name}: noise must be a positive number or None, not {self.noise}.")
        if not (math.isfinite(self.min_effect) and self.min_effect >= 0):
            raise ValueError(f"Metric {self.name}: min_effect must be zero or more, not {self.min_effect}.")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which files of the workspace are the artifact.

    Attributes:
        editable: Globs of the files that a candidate may change, relative to the workspace (`train.py`, `src/**/*.py`).
        readonly: Globs of the files that are shown to the proposer and never change.
    """

    editable: tuple[str, ...]
    readonly: tuple[str, ...] = ()


class Split(Enum):
    """Which data a measurement may see."""

    SEARCH = "search"  # what keep decisions are made on
    HOLDOUT = "holdout"  # opened only to claim; the ledger counts the openings


class Outcome(Enum):
    """How an experiment ended."""

    KEPT = "kept"  # the candidate is the new incumbent
    REVERTED = "reverted"  # measured, not better
    INCONCLUSIVE = "inconclusive"  # reverted for lack of evidence: another kind of knowledge
    CRASHED = "crashed"  # could not be measured: there is no value
    INVALID = "invalid"  # a gate failed: broken split, touched evaluator, impossible value


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of one artifact.

    Attributes:
        value: The metric, in its unit. Finite; a value that could not be measured is a `CandidateError`, never 0.
        seed: The seed it was measured with.
        seconds: Wall-clock seconds that the whole measurement took.
        secondary: Further numbers by name (`peak_vram_mb`); recorded, never decided on. Leave unknown ones out.
        curve: Intermediate values as (share of the budget used, value), in order.
        disturbed: Why this value should not be judged, e.g. that other programs took the processor; None when all was
            well. A disturbed measurement is recorded and taken again.
    """

    value: float
    seed: int
    seconds: float
    secondary: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[tuple[float, float], ...] = ()
    disturbed: str | None = None


@dataclass(frozen=True, slots=True)
class ArmTotals:
    """Sufficient statistics of one arm: matured units only, cumulative.

    Attributes:
        arm: `control` or `treatment` (live tests with more arms use their own names).
        n: Number of units or measurements.
        total: Sum of their values; for proportions the number of conversions.
        total_sq: Sum of their squared values.
    """

    arm: str
    n: int
    total: float
    total_sq: float

    @classmethod
    def of(cls, arm: str, values: Sequence[float]) -> ArmTotals:
        """Return the totals of `values`."""
        return cls(arm, len(values), math.fsum(values), math.fsum(v * v for v in values))

    @property
    def mean(self) -> float:
        """Average value. Raises ZeroDivisionError without units."""
        return self.total / self.n


def no_progress(share: float, text: str) -> None:
    """Report to nobody."""


def never_hopeless(share: float, value: float) -> str | None:
    """Let every measurement run to its end."""
    return None


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a run lives.

    Attributes:
        path: The folder with the artifact and `autoresearch.toml`.
        options: The table `[adapter]` of `autoresearch.toml` overlaid by `--set name=value`.
        progress: Call it with (share done in 0..1, a few words) while preparing takes long.
    """

    path: Path
    options: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[float, str], None] = no_progress


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a measurement may use.

    Attributes:
        log: File to which the candidate's output is appended while it runs.
        scratch: An empty directory of this measurement alone; the loop deletes it afterwards.
        budget_seconds: Budget of one measurement where the person set one; None: the adapter's own.
        device: Device where the person chose one (`cpu`, `cuda:0`, `mps`); None: the adapter's own choice.
        sandbox: Isolation level for child processes.
        progress: Call it with (share done in 0..1, a few words) as often as you like.
        hopeless: Call it with every point of the curve as it comes, (share of the budget used, value) in order. A
            sentence as the answer says why the rest of this measurement is not worth its time: end it at once and raise
            `CandidateError(sentence, early=True)`. An adapter without intermediate values leaves it alone.
    """

    log: Path
    scratch: Path
    budget_seconds: float | None = None
    device: str | None = None
    sandbox: str = "limits"
    progress: Callable[[float, str], None] = no_progress
    hopeless: Callable[[float, float], str | None] = never_hopeless


@dataclass(frozen=True, slots=True)
class LiveExperiment:
    """One live test: two arms shown to people concurrently.

    Attributes:
        id: Unique and stable across restarts.
        control: Folder with the incumbent.
        treatment: Folder with the candidate.
        split: Share of traffic of `control` and of `treatment`. They sum to 1; where several treatments share a
            control, the control counted once and all treatments do.
        started: When the first unit may be exposed, in UTC.
        lane: Lane that the test runs in; empty where the adapter offers none.
        arm: Name of the treatment among those of its test.
    """

    id: str
    control: Path
    treatment: Path
    split: Mapping[str, float]
    started: datetime
    lane: str = ""
    arm: str = "treatment"


@runtime_checkable
class Adapter(Protocol):
    """A subject of research whose metric can be measured on demand: an artifact that may change and a number.

    The loop calls `prepare` once per session, then measures the baseline, then one candidate after another, each in a
    directory of its own that holds a copy of the artifact. Reverting is the loop's business: an adapter never restores
    anything. The artifact never computes its own score: `measure` lives outside it, in code that the loop never writes.

    Raise `CandidateError` when the candidate is at fault and `EnvironmentNotReadyError` when the machine is.
    """

    @property
    def metric(self) -> Metric:
        """What is measured."""
        ...

    @property
    def scope(self) -> Scope:
        """Which files may change."""
        ...

    def prepare(self, workspace: Workspace) -> None:
        """Make everything ready that measuring needs; called again after a restart, so it must be idempotent.

        Raises:
            EnvironmentNotReadyError: If something is missing that a person must provide.
        """
        ...

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        """Measure the artifact in the directory `artifact`, without changing it.

        Args:
            artifact: Directory with the candidate's files.
            seed: Measuring the same artifact with the same seed repeats within the metric's noise.
            split: Which data may be used.
            run: Where to log and what to spend.

        Raises:
            CandidateError: If the artifact crashes, diverges or gives no finite value.
            EnvironmentNotReadyError: If the machine is at fault.
        """
        ...


@runtime_checkable
class LiveAdapter(Protocol):
    """A subject of research whose metric arrives from people: conversions, replies, revenue.

    The loop calls `start` with both arms, then `observe` again and again until the policy has a verdict or `OffersPace`
    says that the test is over, then `finish`. The artifact as found is not tested: everybody sees it until the first
    treatment is kept. `start` and `finish` are idempotent: after a kill the loop calls them again with the same
    experiment.
    """

    @property
    def metric(self) -> Metric:
        """What is observed."""
        ...

    @property
    def scope(self) -> Scope:
        """Which files may change."""
        ...

    def start(self, experiment: LiveExperiment) -> None:
        """Show both arms, concurrently."""
        ...

    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        """Return cumulative totals of matured units, one per arm."""
        ...

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        """Stop showing the arms; with `Outcome.KEPT` the treatment is what everybody sees from now on."""
        ...


# What an adapter may offer besides. Each is optional; the loop asks with isinstance.


@dataclass(frozen=True, slots=True)
class Lane:
    """A place where one test at a time runs beside the tests of other lanes, on people of its own.

    Attributes:
        name: Of a page, an audience, a group of slots; unique among the lanes, and the same after a restart.
        arms: How many candidates share one control in a test; 1 is the usual test of two arms.
        alone: True where nothing that another lane keeps changes what the people of this lane see.
        reach: Share of all people who see what is kept in this lane; what is believed of the whole counts it so.
    """

    name: str
    arms: int = 1
    alone: bool = False
    reach: float = 1.0

    def __post_init__(self) -> None:
        if not self.name.strip() or self.arms < 1 or not 0.0 < self.reach <= 1.0:
            raise ValueError(
                "A lane needs a name, one arm at least and a reach above 0 and up to 1, "
                f"not {self.name!r}, {self.arms} and {self.reach:g}."
            )


@runtime_checkable
class OffersLanes(Protocol):
    """A live adapter that runs several tests at once, with each person in one of them at most.

    Where it offers one lane of one arm, or none, the loop calls `start` as for any live adapter and nothing of this.
    Otherwise it calls `start_together` with the arms of a test instead of `start`. `observe`, `gates`, `wait_seconds`,
    `ending` and `finish` stay per experiment: `observe` returns the arms `control`, the shared one, and `treatment`.
    `finish` of one treatment takes it out and leaves the others going; with a keep the loop finishes the others too,
    the kept one first.
    """

    @property
    def lanes(self) -> Sequence[Lane]:
        """Where tests may run; known after `prepare`."""
        ...

    def belongs(self, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
        """Return why a candidate does not belong to the lane, say because it changes another's text; None: it does."""
        ...

    def lane_knobs(self, lane: str, artifact: Artifact) -> Sequence[Knob]:
        """Return what may be turned in the lane; as `OffersKnobs.knobs`."""
        ...

    def lane_brief(self, lane: str) -> str:
        """Return a sentence for the language model: what may change in this lane. Byte-stable."""
        ...

    def start_together(self, experiments: Sequence[LiveExperiment]) -> None:
        """Show the arms of one test: all experiments share the control, each is one treatment.

        Idempotent: it comes again after a restart, then with the treatments that are not finished yet; their shares
        stay as they were.
        """
        ...

    def show_to_everybody(self, artifact: Path) -> None:
        """Show the artifact in a folder to everybody who is in no test; tests that go on stay as they are.

        It comes after every `finish` with a keep, and is the treatment itself unless another lane kept something since
        the test began: then it is both edits together. Idempotent.
        """
        ...


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gates of a live test say at one look; None where they say nothing.

    Attributes:
        invalid: Why nothing of this test can be believed: the split is broken, units saw both arms.
        harm: Which guardrail the treatment is shown to harm; the test ends without a keep.
        hold: Why a verdict must wait: half a week, outcomes still open. A line that was crossed stays crossed.
        note: What must be said beside any verdict: that the arms were not drawn by chance, say.
    """

    invalid: str | None = None
    harm: str | None = None
    hold: str | None = None
    note: str | None = None


@runtime_checkable
class OffersGates(Protocol):
    """A live adapter that watches over its split, its guardrails and its calendar."""

    def gates(self, experiment_id: str, crossed: Look | None) -> GateReport:
        """Return what the gates say now, on the same data as the last `observe`.

        Args:
            experiment_id: As in `observe`.
            crossed: The look at which the policy's line was crossed; None while none is. It decides which week a
                verdict waits for.
        """
        ...


@runtime_checkable
class OffersPace(Protocol):
    """A live adapter that knows when a look is worth taking and when a test has had its share."""

    def wait_seconds(self, experiment_id: str) -> float:
        """Return how long to wait before the next look; 0: look at once."""
        ...

    def ending(self, experiment_id: str) -> str | None:
        """Return why the test gets no more traffic, None while it does; without a verdict it is inconclusive then."""
        ...


@runtime_checkable
class OffersDaysLeft(Protocol):
    """A live adapter that knows how long a test may still take."""

    def days_left(self, experiment_id: str) -> float | None:
        """Return the days, as of the last look, after which the test ends in any case; None where nobody knows."""
        ...


@runtime_checkable
class ChoosesPolicy(Protocol):
    """A live adapter whose traffic only one policy fits, as a list of people that ends."""

    def policy_for(self, workspace: Workspace) -> str | None:
        """Return the name of that policy, None where any will do; called before `prepare`.

        Raises:
            UsageError: If the workspace cannot be read.
        """
        ...


@runtime_checkable
class RunsOut(Protocol):
    """A live adapter that knows when there is nobody left to test on."""

    def used_up(self) -> str | None:
        """Return why no further test can begin, None while one can; asked before every experiment but the baseline."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A live adapter that wants its workspace before the first experiment."""

    def prepare(self, workspace: Workspace) -> None:
        """As `Adapter.prepare`."""
        ...


@runtime_checkable
class CopiesCheckout(Protocol):
    """Can lay out a checkout once more, so that several runs begin alike (`autoresearch compare`)."""

    def copy_checkout(self, checkout: Path, folder: Path) -> None:
        """Copy everything of the checkout that a measurement needs; in a folder that is a checkout already, compare.

        Raises:
            UsageError: If `checkout` is none, or `folder` is one in which something differs (names it).
            EnvironmentNotReadyError: If something cannot be read or written.
        """
        ...


@runtime_checkable
class OffersKnobs(Protocol):
    """Declares knobs for the offline search: choices and ranges that the artifact's text does not show."""

    def knobs(self, artifact: Artifact) -> Sequence[Knob]:
        """Return what may be turned in `artifact`; see `autoresearch.core.proposers.knobs.Knob`."""
        ...


@runtime_checkable
class OffersBrief(Protocol):
    """Explains the subject to the language model."""

    def brief(self) -> str:
        """Return a few paragraphs: what the artifact is, what is measured, what is known to matter. Byte-stable."""
        ...


@runtime_checkable
class OffersWorkspace(Protocol):
    """Can write a workspace to begin with (`autoresearch init`)."""

    def workspace_files(self) -> Mapping[str, str]:
        """Return relative path -> text of every file of a new workspace, `autoresearch.toml` excepted."""
        ...


@runtime_checkable
class OffersEstimate(Protocol):
    """Knows about how long one measurement takes."""

    def measure_seconds(self, run: RunContext) -> float:
        """Return wall-clock seconds that one measurement is expected to take."""
        ...


@runtime_checkable
class OffersFingerprint(Protocol):
    """Can name the exact evaluator and data that its values come from."""

    def evaluator_fingerprint(self) -> str:
        """Return a hash over evaluator code and data; values with different fingerprints are not comparable."""
        ...


@runtime_checkable
class ExplainsFingerprint(Protocol):
    """Can say what is behind a change of its fingerprint."""

    def changed_since(self, fingerprint: str) -> Sequence[str]:
        """Return the names of what differs from the evaluator of that fingerprint; empty where that is not known."""
        ...


@runtime_checkable
class OffersSplits(Protocol):
    """Says which splits there are; an adapter that does not say is taken to have them all."""

    @property
    def splits(self) -> frozenset[Split]:
        """What `measure` may be asked for; without `Split.HOLDOUT` nothing can be confirmed."""
        ...


@dataclass(frozen=True, slots=True)
class Guard:
    """What a candidate must not make worse, however good it is otherwise.

    Attributes:
        name: Key among `Measurement.secondary`.
        at_most: True where higher is worse: the limit is an upper one.
        limit: In the unit of the number; a share of the baseline's where `kind` is `relative`.
        kind: `absolute`, `difference` from the baseline, or `relative` to it.
    """

    name: str
    at_most: bool
    limit: float
    kind: str = "absolute"

    def __post_init__(self) -> None:
        if self.kind not in ("absolute", "difference", "relative") or not math.isfinite(self.limit):
            raise ValueError(f"A guard of {self.name} needs a finite limit and a known kind: {self}.")


@runtime_checkable
class OffersGuards(Protocol):
    """Names secondary numbers that a kept candidate must not make worse; they are compared with the baseline's."""

    @property
    def guards(self) -> Sequence[Guard]:
        """What is guarded; every measurement has these numbers among its `secondary`."""
        ...


@runtime_checkable
class WorksInCheckout(Protocol):
    """Improves files where they lie: all that is written into the workspace goes into its ignored folder."""

    @property
    def in_checkout(self) -> bool:
        """True: `autoresearch.toml` and `results.tsv` lie in `.autoresearch`, and the folder is not touched."""
        ...


@runtime_checkable
class Closes(Protocol):
    """Holds something open from `prepare` on: a process, a connection."""

    def close(self) -> None:
        """Let go of it; called once when a session ends, however it ends."""
        ...


@runtime_checkable
class RollsBack(Protocol):
    """A live adapter that can show an earlier incumbent again at once."""

    @property
    def scope(self) -> Scope:
        """Which files may change."""
        ...

    def roll_back(self, workspace: Workspace, artifact: Path, ended: str | None) -> None:
        """Show the artifact in a folder to everybody; works without `prepare`.

        Args:
            workspace: Where the run lives.
            artifact: Folder with the former incumbent.
            ended: Id of a test in flight that ends without a verdict; None where there is none. With several tests in
                flight it is called for each.
        """
        ...


@runtime_checkable
class OffersReadiness(Protocol):
    """Can say quickly that this machine will not do, before a workspace is made for it."""

    def check_ready(self) -> None:
        """Raise `EnvironmentNotReadyError` when something is missing that `prepare` would miss; fetch nothing."""
        ...


@runtime_checkable
class OffersCheck(Protocol):
    """Can refuse a candidate before anything is spent."""

    def check(self, artifact: Artifact) -> None:
        """Raise `CandidateError` with one sentence when the candidate cannot be measured."""
        ...


@runtime_checkable
class KeepsOutputs(Protocol):
    """Produces outputs worth keeping for the incumbent, e.g. trained weights."""

    def keep_outputs(self, scratch: Path, destination: Path) -> None:
        """Copy what should outlive the measurement from its scratch directory; called only for kept candidates."""
        ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """A relative change with its interval, 0.1 for 10 % more; positive is better.

    Attributes:
        label: Of what.
        value: The change; None where it is not known yet.
        low: Lower end of its interval; None where unbounded or not known.
        high: Upper end.
        note: What must be said of it.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Something that a report of a run shows besides what every run has.

    Attributes:
        title: Its heading.
        text: A paragraph.
        estimates: Figures, drawn on one line beneath each other.
        picture: An SVG document; empty for none. It is shown as an image, so nothing in it runs or is fetched.
    """

    title: str
    text: str = ""
    estimates: tuple[Estimate, ...] = ()
    picture: str = ""


@runtime_checkable
class OffersReportSections(Protocol):
    """Knows something of a run that the ledger alone does not show."""

    def report_sections(self, workspace: Path, run_id: str) -> Sequence[ReportSection]:
        """Return what a report should show; measure nothing and write nothing, the workspace may be read only.

        Raises:
            AutoresearchError: If it cannot be told; the report then shows the sentence instead.
        """
        ...
