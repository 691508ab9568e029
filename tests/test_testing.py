"""The conformance kit: an adapter that keeps the contract passes, and each check sees the fault it is there for."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoresearch.core import (
    ArmTotals,
    Artifact,
    CandidateError,
    Direction,
    EnvironmentNotReadyError,
    GateReport,
    Guard,
    Knob,
    Lane,
    LiveExperiment,
    Look,
    Measurement,
    Metric,
    MetricKind,
    Outcome,
    RunContext,
    Scope,
    Split,
    Workspace,
)
from autoresearch.testing import AdapterConformance, Checked, LiveAdapterConformance, run_checks


class Line:
    """The artifact is a number; the metric is its distance from three. Keeps the contract and offers everything."""

    metric = Metric("distance", "steps", Direction.MINIMIZE, noise=0.01)
    scope = Scope(("number.txt",))
    guards: Sequence[Guard] = (Guard("size", at_most=True, limit=0.05, kind="relative"),)
    splits = frozenset(Split)

    def prepare(self, workspace: Workspace) -> None:
        self.root = workspace.path

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        text = (artifact / "number.txt").read_text()
        try:
            value = abs(float(text) - 3)
        except ValueError as error:
            raise CandidateError(f"{text!r} is no number.") from error
        (run.scratch / "out.txt").write_text(text)
        return Measurement(value, seed, 0.01, {"size": float(len(text))}, curve=((0.5, value + 1), (1.0, value)))

    def workspace_files(self) -> Mapping[str, str]:
        return {"number.txt": "5", "README.md": "A line."}

    def check_ready(self) -> None: ...

    def check(self, artifact: Artifact) -> None: ...

    def brief(self) -> str:
        return "Find three."

    def knobs(self, artifact: Artifact) -> Sequence[Knob]:
        return ()

    def measure_seconds(self, run: RunContext) -> float:
        return 0.01

    def evaluator_fingerprint(self) -> str:
        return "line-1"

    def keep_outputs(self, scratch: Path, destination: Path) -> None:
        destination.mkdir(parents=True, exist_ok=True)
        (destination / "out.txt").write_bytes((scratch / "out.txt").read_bytes())


def kit_of(adapter: Callable[[], Any], **texts: str) -> type:
    """Return a conformance class of an adapter."""

    class Kit(AdapterConformance):
        @pytest.fixture
        def adapter(self) -> Any:
            return adapter()

        @pytest.fixture
        def worse_artifact(self) -> str:
            return texts.get("worse", "9")

        @pytest.fixture
        def broken_artifact(self) -> str:
            return texts.get("broken", "nine")

    return Kit


def failures(found: Sequence[Checked]) -> set[str]:
    return {item.name for item in found if item.outcome == "failed"}


class TestLine(kit_of(Line)):  # type: ignore[misc]
    """The sound adapter, through pytest itself as an author would run it."""


class Shifted(Line):
    """What a fault is planted into: changes one measurement."""

    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        return found

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        return self.measured(super().measure(artifact, seed=seed, split=split, run=run), artifact)


class LacksMeasure:
    metric, scope = Line.metric, Line.scope
    prepare, workspace_files = Line.prepare, Line.workspace_files


class MetricMoves(Line):
    _counter = itertools.count()

    @property
    def metric(self) -> Metric:  # type: ignore[override]
        return replace(Line.metric, name=f"distance{next(self._counter)}")


class ScopeTooWide(Line):
    scope = Scope(("*",))

    def workspace_files(self) -> Mapping[str, str]:
        return {"number.txt": "5"}

    def prepare(self, workspace: Workspace) -> None:
        (workspace.path / "cache.txt").write_text("left by prepare")


class PreparesTwice(Line):
    def prepare(self, workspace: Workspace) -> None:
        path = workspace.path / "README.md"
        path.write_text(path.read_text() + "Prepared. ")


class NotFinite(Shifted):
    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        return replace(found, secondary={"size": math.nan})


class WrongSeed(Shifted):
    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        return replace(found, seed=0)


class Drifts(Shifted):
    def __init__(self) -> None:
        self.count = 0

    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        self.count += 1
        return replace(found, value=found.value + 0.1 * self.count)


class TidiesUp(Shifted):
    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        (artifact / "number.txt").unlink()
        return found


class WritesBeside(Shifted):
    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        (self.root / "last.txt").write_text("x")
        return found


class RemembersTheWorst(Shifted):
    def __init__(self) -> None:
        self.worst = 0.0

    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        self.worst = max(self.worst, found.value)
        return replace(found, value=self.worst)


class WrongDirection(Line):
    metric = replace(Line.metric, direction=Direction.MAXIMIZE)


class IgnoresTheArtifact(Shifted):
    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        return replace(found, value=abs(float((self.root / "number.txt").read_text()) - 3))


class BrokenIsZero(Line):
    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        try:
            return super().measure(artifact, seed=seed, split=split, run=run)
        except CandidateError:
            return Measurement(0.0, seed, 0.01, {"size": 0.0})


class NoHoldout(Line):
    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        if split is Split.HOLDOUT:
            raise CandidateError("There is no holdout.")
        return super().measure(artifact, seed=seed, split=split, run=run)


class FingerprintMoves(Shifted):
    print_ = "line-1"

    def measured(self, found: Measurement, artifact: Path) -> Measurement:
        self.print_ += "+"
        return found

    def evaluator_fingerprint(self) -> str:
        return self.print_


class GuardUnknown(Line):
    guards = (Guard("memory_mb", at_most=True, limit=1.0),)


class NoTime(Line):
    def measure_seconds(self, run: RunContext) -> float:
        return math.nan


class KeepsOnce(Line):
    def keep_outputs(self, scratch: Path, destination: Path) -> None:
        destination.mkdir()
        (destination / "out.txt").write_text("x")


class BriefMoves(Line):
    _counter = itertools.count()

    def brief(self) -> str:
        return f"Find three, {next(self._counter)}."


class ChecksTooMuch(Line):
    def check(self, artifact: Artifact) -> None:
        raise CandidateError("Nothing is good enough.")


class KnobElsewhere(Line):
    def knobs(self, artifact: Artifact) -> Sequence[Knob]:
        return [Knob("SPEED", "engine.py")]


class EmptyWorkspace(Line):
    def workspace_files(self) -> Mapping[str, str]:
        return {"README.md": "Nothing here."}


class NeverReady(Line):
    def check_ready(self) -> None:
        raise EnvironmentNotReadyError("There is no line here.")


FAULTS: dict[type, str] = {
    LacksMeasure: "it keeps the contract",
    MetricMoves: "metric and scope stay the same",
    ScopeTooWide: "the scope holds the artifact",
    PreparesTwice: "preparing twice is preparing once",
    NotFinite: "a measurement is finite",
    WrongSeed: "a measurement is finite",
    Drifts: "the same seed repeats",
    TidiesUp: "measuring changes nothing",
    WritesBeside: "measuring changes nothing",
    RemembersTheWorst: "a revert restores the value",
    WrongDirection: "a worse artifact measures worse",
    IgnoresTheArtifact: "a worse artifact measures worse",
    BrokenIsZero: "a broken artifact is the candidates fault",
    NoHoldout: "every split can be measured",
    FingerprintMoves: "its fingerprint names the evaluator alone",
    GuardUnknown: "what it guards is measured",
    NoTime: "its estimate is a time",
    KeepsOnce: "outputs can be kept twice",
    BriefMoves: "its brief is byte for byte the same",
    ChecksTooMuch: "its check lets the artifact pass",
    KnobElsewhere: "its knobs are in the artifact",
    EmptyWorkspace: "its new workspace holds an artifact",
    NeverReady: "this machine is ready",
}


def test_a_sound_adapter_passes_every_check() -> None:
    """Nothing fails and nothing is skipped where everything is offered."""
    found = run_checks(kit_of(Line))
    assert {item.outcome for item in found} == {"passed"}, [item for item in found if not item.holds]
    assert all(item.clause for item in found)


def test_every_check_has_a_planted_fault() -> None:
    """A check that no fault can fail would prove nothing."""
    names = {item.name for item in run_checks(kit_of(Line))}
    assert names == set(FAULTS.values())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_fault_is_seen(fault: type) -> None:
    """Each planted fault fails the check that is there for it."""
    assert FAULTS[fault] in failures(run_checks(kit_of(fault)))


def test_a_missing_fixture_fails_its_checks() -> None:
    """An author who does not say what is worse has not passed, and is told what to write."""

    class Kit(AdapterConformance):
        @pytest.fixture
        def adapter(self) -> Line:
            return Line()

    found = {item.name: item for item in run_checks(Kit)}
    assert found["a worse artifact measures worse"].outcome == "failed"
    assert "def worse_artifact(self):" in found["a worse artifact measures worse"].detail
    assert found["a measurement is finite"].outcome == "passed"


def test_a_skipped_check_does_not_hold() -> None:
    """Skipping is told apart from not offering, and neither is called a pass."""

    class Kit(kit_of(Line)):  # type: ignore[misc]
        def test_the_same_seed_repeats(self) -> None:
            """It does."""
            pytest.skip("slow")

        @pytest.mark.xfail(strict=True, reason="the line is bent")
        def test_measuring_changes_nothing(self) -> None:
            """It does not."""
            raise AssertionError

    found = {item.name: item for item in run_checks(Kit)}
    assert (found["the same seed repeats"].outcome, found["the same seed repeats"].holds) == ("skipped", False)
    assert found["measuring changes nothing"].outcome == "known gap"
    assert found["measuring changes nothing"].detail == "the line is bent"


def test_what_is_not_offered_is_said() -> None:
    """An adapter of four members is sound, and eight checks say what it does not offer."""

    class Bare:
        metric, scope = Line.metric, Line.scope
        prepare, measure = Line.prepare, Line.measure

    class Kit(kit_of(Bare)):  # type: ignore[misc]
        @pytest.fixture
        def artifact(self) -> str:
            return "5"

    found = run_checks(Kit)
    assert all(item.holds for item in found), [item for item in found if not item.holds]
    assert sum(item.outcome == "not offered" for item in found) == 9


# Live adapters


class Crowd:
    """Units live in a file of the workspace; every other one converts. Keeps the contract and offers pace and gates."""

    metric = Metric("conversion", "", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.1)
    scope = Scope(("page.txt",))

    def __init__(self, root: Path | None = None) -> None:
        self.root = root

    def workspace_files(self) -> Mapping[str, str]:
        return {"page.txt": "Buy."}

    def prepare(self, workspace: Workspace) -> None:
        self.root = workspace.path

    def path(self, experiment_id: str) -> Path:
        assert self.root is not None
        return self.root / ".autoresearch" / f"{experiment_id.replace('/', '-')}.json"

    def read(self, experiment_id: str) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.path(experiment_id).read_text())
        return found

    def start(self, experiment: LiveExperiment) -> None:
        path = self.path(experiment.id)
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps({"control": 0, "treatment": 0}))

    def visit(self, experiment_id: str) -> None:
        counts = {arm: n + 100 for arm, n in self.read(experiment_id).items()}
        self.path(experiment_id).write_text(json.dumps(counts))

    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        return [ArmTotals(arm, n, n / 2, n / 2) for arm, n in self.read(experiment_id).items()]

    def finish(self, experiment_id: str, outcome: Outcome) -> None: ...

    def wait_seconds(self, experiment_id: str) -> float:
        return 0.0

    def ending(self, experiment_id: str) -> str | None:
        return None

    def gates(self, experiment_id: str, crossed: Look | None) -> GateReport:
        return GateReport()


def live_kit_of(adapter: Callable[..., Any]) -> type:
    class Kit(LiveAdapterConformance):
        @pytest.fixture
        def adapter(self) -> Any:
            return adapter()

        @pytest.fixture
        def treatment(self) -> str:
            return "Buy now."

        @pytest.fixture
        def visit(self) -> Callable[[Any, LiveExperiment], None]:
            return lambda adapter, experiment: adapter.visit(experiment.id)

        @pytest.fixture
        def again(self, workspace: Path) -> Callable[[], Any]:
            return lambda: adapter(workspace)

    return Kit


class TestCrowd(live_kit_of(Crowd)):  # type: ignore[misc]
    """The sound live adapter, through pytest itself."""


class LacksFinish:
    metric, scope, start, observe = Crowd.metric, Crowd.scope, Crowd.start, Crowd.observe
    workspace_files, path, read = Crowd.workspace_files, Crowd.path, Crowd.read


class OneArm(Crowd):
    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        return super().observe(experiment_id)[:1]


class TooManyConvert(Crowd):
    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        return [replace(arm, total=arm.n + 1.0, total_sq=arm.n + 1.0) for arm in super().observe(experiment_id)]


class OnlyNewUnits(Crowd):
    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        found = super().observe(experiment_id)
        self.path(experiment_id).write_text(json.dumps({"control": 0, "treatment": 0}))
        return found


class StartsAnew(Crowd):
    def start(self, experiment: LiveExperiment) -> None:
        super().start(experiment)
        self.path(experiment.id).write_text(json.dumps({"control": 0, "treatment": 0}))


class InMemory(Crowd):
    def __init__(self, root: Path | None = None) -> None:
        super().__init__(root)
        self.counts: dict[str, dict[str, int]] = {}

    def start(self, experiment: LiveExperiment) -> None:
        self.counts.setdefault(experiment.id, {"control": 0, "treatment": 0})

    def read(self, experiment_id: str) -> dict[str, int]:
        return self.counts[experiment_id]

    def visit(self, experiment_id: str) -> None:
        self.counts[experiment_id] = {arm: n + 100 for arm, n in self.read(experiment_id).items()}


class OnePot(Crowd):
    def path(self, experiment_id: str) -> Path:
        return super().path("all")


class TouchesArms(Crowd):
    def start(self, experiment: LiveExperiment) -> None:
        super().start(experiment)
        (experiment.treatment / "page.txt").write_text("Buy now!!!")


class FinishesOnce(Crowd):
    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        self.path(experiment_id).unlink()


class KeepsOnceOnly(Crowd):
    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        if outcome is Outcome.KEPT:
            self.path(experiment_id).unlink()


class StumblesOnDoubt(Crowd):
    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        if outcome is Outcome.INCONCLUSIVE:
            raise ValueError("inconclusive")


class WaitsForever(Crowd):
    def wait_seconds(self, experiment_id: str) -> float:
        return math.inf


class CriesWolf(Crowd):
    def gates(self, experiment_id: str, crossed: Look | None) -> GateReport:
        return GateReport(invalid="Something is wrong.")


class Streets(Crowd):
    """Two streets with people of their own; two treatments share a control in each."""

    lanes: Sequence[Lane] = (Lane("north", arms=2), Lane("south", arms=2))

    def belongs(self, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
        return None if lane == "north" else "The page is in the north."

    def lane_knobs(self, lane: str, artifact: Artifact) -> Sequence[Knob]:
        return (Knob("words", "page.txt", choices=("1", "2")),)

    def lane_brief(self, lane: str) -> str:
        return f"What the {lane} reads."

    def start_together(self, experiments: Sequence[LiveExperiment]) -> None:
        for experiment in experiments:
            super().start(experiment)
            self.test_path(experiment.id).write_text(self.path(experiments[0].id).as_posix())

    def test_path(self, experiment_id: str) -> Path:
        return self.path(f"{experiment_id}-test")

    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        control = json.loads(Path(self.test_path(experiment_id).read_text()).read_text())["control"]
        n = self.read(experiment_id)["treatment"]
        return [ArmTotals("control", control, 0.0, 0.0), ArmTotals("treatment", n, 0.0, 0.0)]

    def visit(self, experiment_id: str) -> None:
        first = Path(self.test_path(experiment_id).read_text())
        counts = json.loads(first.read_text())
        first.write_text(json.dumps({**counts, "control": counts["control"] + 100}))
        mine = self.read(experiment_id)
        self.path(experiment_id).write_text(json.dumps({**mine, "treatment": mine["treatment"] + 100}))

    def show_to_everybody(self, artifact: Path) -> None: ...


class MovesHouse(Streets):
    def __init__(self, root: Path | None = None) -> None:
        super().__init__(root)
        self.lanes = Streets.lanes if root is None else (Lane("north", arms=2), Lane("east"))


class SaysNothing(Streets):
    def lane_brief(self, lane: str) -> str:
        return ""


class CountsAnew(Streets):
    def start_together(self, experiments: Sequence[LiveExperiment]) -> None:
        super().start_together(experiments)
        if len(experiments) > 1:
            self.path(experiments[1].id).write_text(json.dumps({"control": 0, "treatment": 0}))


class OwnControls(Streets):
    def start_together(self, experiments: Sequence[LiveExperiment]) -> None:
        for experiment in experiments:
            super().start_together([experiment])

    def visit(self, experiment_id: str) -> None:
        super().visit(experiment_id)
        if experiment_id.endswith("2"):
            super().visit(experiment_id)


class ClosesTheStreet(Streets):
    closed = False

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        self.closed = True

    def visit(self, experiment_id: str) -> None:
        if not self.closed:
            super().visit(experiment_id)


class PaintsOver(Streets):
    def show_to_everybody(self, artifact: Path) -> None:
        (artifact / "page.txt").write_text("Bought.")


LANE_FAULTS: dict[type, str] = {
    MovesHouse: "its lanes are the same after a restart",
    SaysNothing: "its lanes say what may change",
    CountsAnew: "starting together twice is starting once",
    OwnControls: "treatments of a test share its control",
    ClosesTheStreet: "finishing one treatment leaves the others",
    PaintsOver: "everybody can be shown the incumbent twice",
}

LIVE_FAULTS: dict[type, str] = {
    LacksFinish: "it keeps the contract",
    OneArm: "there is one total for each arm",
    TooManyConvert: "totals are possible",
    OnlyNewUnits: "totals are cumulative",
    StartsAnew: "starting twice is starting once",
    InMemory: "a restart loses nothing",
    OnePot: "experiments do not mix",
    TouchesArms: "arms stay as they are",
    KeepsOnceOnly: "finishing twice is finishing once[kept]",
    FinishesOnce: "finishing twice is finishing once[reverted]",
    StumblesOnDoubt: "finishing twice is finishing once[inconclusive]",
    WaitsForever: "its pace is a time",
    CriesWolf: "its gates give a report",
}


def test_a_sound_live_adapter_passes() -> None:
    """Nothing fails; what it does not offer is said."""
    found = run_checks(live_kit_of(Crowd))
    assert all(item.holds for item in found), [item for item in found if not item.holds]


def test_every_live_check_has_a_planted_fault() -> None:
    """What both kits share is proved above."""
    shared = {item.name for item in run_checks(kit_of(Line))}
    names = {item.name for item in run_checks(live_kit_of(Crowd))}
    assert names - shared == {*LIVE_FAULTS.values(), *LANE_FAULTS.values()} - {"it keeps the contract"}


def test_a_sound_adapter_with_lanes_passes() -> None:
    """Every check is passed or about something that it does not offer, and none of the lanes' is skipped."""
    found = run_checks(live_kit_of(Streets))
    assert all(item.holds for item in found), [item for item in found if not item.holds]
    assert {item.name for item in found if item.outcome == "passed"} >= set(LANE_FAULTS.values())


@pytest.mark.parametrize("fault", LANE_FAULTS, ids=lambda fault: fault.__name__)
def test_the_fault_of_lanes_is_seen(fault: type) -> None:
    """Each planted fault fails the check that is there for it."""
    assert LANE_FAULTS[fault] in failures(run_checks(live_kit_of(fault)))


def test_a_treatment_of_no_lane_is_told() -> None:
    """An author whose treatment no lane takes is told so instead of seeing every check fail."""

    class Gated(Streets):
        def belongs(self, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
            return f"Not in the {lane}."

    found = {item.name: item for item in run_checks(live_kit_of(Gated))}
    assert "belongs to no lane: Not in the north.; Not in the south." in found["totals are possible"].detail


@pytest.mark.parametrize("fault", LIVE_FAULTS, ids=lambda fault: fault.__name__)
def test_the_live_fault_is_seen(fault: type) -> None:
    """Each planted fault fails the check that is there for it."""
    assert LIVE_FAULTS[fault] in failures(run_checks(live_kit_of(fault)))
