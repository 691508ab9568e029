"""A conformance kit for authors of adapters: inherit one class, supply a few fixtures, and every clause is a test.

    from autoresearch.testing import AdapterConformance

    class TestBanner(AdapterConformance):
        @pytest.fixture
        def adapter(self) -> Adapter:
            return BannerAdapter()

        @pytest.fixture
        def worse_artifact(self) -> str:
            return "<h1></h1>"

        @pytest.fixture
        def broken_artifact(self) -> str:
            return "<h1"

An artifact is a mapping of relative path to text, or the text alone where it is one file. A check of something that is
offered voluntarily is skipped where it is not offered; every other check passes or fails, and a fixture that is missing
fails it. A known gap is marked `pytest.mark.xfail(strict=True, reason=...)` on an override that calls the original.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import statistics
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from autoresearch.core import (
    Adapter,
    ArmTotals,
    Artifact,
    CandidateError,
    GateReport,
    KeepsOutputs,
    Lane,
    LiveAdapter,
    LiveExperiment,
    Measurement,
    Metric,
    MetricKind,
    OffersBrief,
    OffersCheck,
    OffersEstimate,
    OffersFingerprint,
    OffersGates,
    OffersGuards,
    OffersKnobs,
    OffersLanes,
    OffersPace,
    OffersReadiness,
    OffersSplits,
    OffersWorkspace,
    Outcome,
    Prepares,
    RunContext,
    Scope,
    Split,
    WorksInCheckout,
    Workspace,
)
from autoresearch.core.artifact import in_scope
from autoresearch.core.lanes import offered
from autoresearch.core.registry import check_adapter

__all__ = ["AdapterConformance", "Checked", "LiveAdapterConformance", "run_checks"]

Files = Mapping[str, str] | str
"""Relative path -> text, or the text of the only file."""

_STATE = ".autoresearch"
_NOT_OFFERED = "not offered"


@dataclass
class Bench:
    """A prepared adapter in a workspace of its own; measures texts.

    Attributes:
        adapter: As the author's fixture made it.
        root: The workspace.
        artifact: The artifact that the workspace holds.
        folder: Where candidates, logs and scratch folders go.
        sandbox: Isolation level of the measurements.
    """

    adapter: Adapter
    root: Path
    artifact: Mapping[str, str]
    folder: Path
    sandbox: str
    _count: int = field(default=0)

    def lay_out(self, files: Mapping[str, str]) -> Path:
        """Write a candidate into a folder of its own, as the loop does."""
        self._count += 1
        place = self.folder / f"candidate-{self._count}"
        place.mkdir(parents=True)
        Artifact(files).write(place)
        return place

    def context(self) -> RunContext:
        """Return a context with an empty scratch folder."""
        self._count += 1
        scratch = self.folder / f"scratch-{self._count}"
        scratch.mkdir(parents=True)
        return RunContext(log=self.folder / f"run-{self._count}.log", scratch=scratch, sandbox=self.sandbox)

    def measure(
        self, files: Mapping[str, str] | None = None, *, seed: int = 0, split: Split = Split.SEARCH
    ) -> Measurement:
        """Measure files, by default the artifact, in a folder of their own."""
        place = self.lay_out(self.artifact if files is None else files)
        return self.adapter.measure(place, seed=seed, split=split, run=self.context())

    def tolerance(self) -> float:
        """Return how far two values of one artifact may lie apart, in the metric's unit.

        Three times the noise that the metric states. Where it states none, ten standard deviations of four values: a
        wide bound, because four values tell little.
        """
        noise = self.adapter.metric.noise
        if noise is not None:
            return 3.0 * noise
        return 10.0 * statistics.stdev(self.measure(seed=seed).value for seed in range(1, 5)) + 1e-12

    def gain(self, files: Mapping[str, str], seeds: Sequence[int]) -> float:
        """Return by how much files are better than the artifact on average, at the same seeds."""
        sign = self.adapter.metric.direction.sign
        gains = [sign * (self.measure(files, seed=seed).value - self.measure(seed=seed).value) for seed in seeds]
        return statistics.fmean(gains)


class _Fixtures:
    """What both kits ask of an author, and what follows from it."""

    @pytest.fixture
    def adapter(self) -> Any:
        """The adapter, made anew for every test."""
        _missing("adapter", "return MyAdapter()")

    @pytest.fixture
    def artifact(self, adapter: Any) -> Files:
        """The artifact to begin with; an adapter that can write a workspace has one."""
        editable = adapter.scope.editable
        if not isinstance(adapter, OffersWorkspace):
            _missing("artifact", "return 'the text of the file that may change'")
        return {path: text for path, text in adapter.workspace_files().items() if in_scope(path, editable)}

    @pytest.fixture
    def other_files(self, adapter: Any) -> Mapping[str, str]:
        """What the workspace holds besides the artifact."""
        files = adapter.workspace_files() if isinstance(adapter, OffersWorkspace) else {}
        return {path: text for path, text in files.items() if not in_scope(path, adapter.scope.editable)}

    @pytest.fixture
    def options(self) -> Mapping[str, str]:
        """The table `[adapter]`, as `prepare` gets it."""
        return {}

    def arrange(self, workspace: Path) -> None:
        """Do what the workspace needs besides its files; where the adapter works in a checkout it is one already."""

    @pytest.fixture
    def workspace(
        self, tmp_path: Path, adapter: Any, artifact: Files, other_files: Mapping[str, str], options: Mapping[str, str]
    ) -> Path:
        """A workspace with the artifact, for which the adapter is prepared."""
        root = tmp_path / "workspace"
        root.mkdir()
        Artifact({**other_files, **_files(artifact, adapter.scope)}).write(root)
        if isinstance(adapter, WorksInCheckout):
            subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
        self.arrange(root)
        if isinstance(adapter, Adapter | Prepares):
            adapter.prepare(Workspace(root, options))
        return root

    # What holds for every adapter

    def test_it_keeps_the_contract(self, adapter: Any) -> None:
        """Every member of the protocol is there and can be called as the loop calls it."""
        check_adapter(adapter, type(adapter).__module__)
        assert isinstance(adapter.metric, Metric), "metric must be an autoresearch.core.Metric"
        assert isinstance(adapter.scope, Scope), "scope must be an autoresearch.core.Scope"

    def test_metric_and_scope_stay_the_same(self, adapter: Any, workspace: Path) -> None:
        """Asked again, also after preparing, metric and scope are what they were; a run freezes them."""
        assert adapter.metric == adapter.metric and adapter.scope == adapter.scope
        assert adapter.metric.name.strip(), "the metric needs a name"
        assert adapter.scope.editable, "nothing may change, so nothing can be improved"

    def test_the_scope_holds_the_artifact(self, adapter: Any, workspace: Path, artifact: Files) -> None:
        """The globs of the scope find every file of the artifact and nothing else."""
        expected = sorted(_files(artifact, adapter.scope))
        assert sorted(Artifact.read(workspace, adapter.scope.editable).files) == expected

    def test_preparing_twice_is_preparing_once(self, adapter: Any, workspace: Path, options: Mapping[str, str]) -> None:
        """`prepare` comes again after every restart; it changes neither artifact nor metric."""
        before, metric, preparing = _snapshot(workspace), adapter.metric, adapter
        if not isinstance(preparing, Adapter | Prepares):
            _not_offered("prepare")
        preparing.prepare(Workspace(workspace, options))
        assert _changed(before, _snapshot(workspace)) == []
        assert adapter.metric == metric

    def test_its_brief_is_byte_for_byte_the_same(self, adapter: Any, workspace: Path) -> None:
        """What the language model is told does not change from call to call, or its cache would be lost."""
        if not isinstance(adapter, OffersBrief):
            _not_offered("OffersBrief")
        assert adapter.brief().strip() and adapter.brief() == adapter.brief()

    def test_its_check_lets_the_artifact_pass(self, adapter: Any, workspace: Path, artifact: Files) -> None:
        """What there is to begin with is not refused."""
        files = _files(artifact, adapter.scope)
        if not isinstance(adapter, OffersCheck):
            _not_offered("OffersCheck")
        adapter.check(Artifact(files))

    def test_its_knobs_are_in_the_artifact(self, adapter: Any, workspace: Path, artifact: Files) -> None:
        """Every knob names a file that may change."""
        files = _files(artifact, adapter.scope)
        if not isinstance(adapter, OffersKnobs):
            _not_offered("OffersKnobs")
        assert [knob for knob in adapter.knobs(Artifact(files)) if knob.path not in files] == []

    def test_its_new_workspace_holds_an_artifact(self, adapter: Any) -> None:
        """`autoresearch init` writes something that can be improved."""
        editable = adapter.scope.editable
        if not isinstance(adapter, OffersWorkspace):
            _not_offered("OffersWorkspace")
        assert any(in_scope(path, editable) for path in adapter.workspace_files())

    def test_this_machine_is_ready(self, adapter: Any) -> None:
        """`check_ready` does not complain where the adapter works."""
        if not isinstance(adapter, OffersReadiness):
            _not_offered("OffersReadiness")
        adapter.check_ready()


class AdapterConformance(_Fixtures):
    """Every clause of `autoresearch.core.Adapter` as a test; supply `adapter`, `worse_artifact`, `broken_artifact`.

    Also `artifact`, where the adapter does not write workspaces; `other_files`, `options`, `sandbox` and `arrange`
    where the workspace needs more.
    """

    @pytest.fixture
    def worse_artifact(self) -> Files:
        """An artifact that you know to be clearly worse."""
        _missing("worse_artifact", "return 'something that is clearly worse'")

    @pytest.fixture
    def broken_artifact(self) -> Files:
        """An artifact that cannot be measured at all."""
        _missing("broken_artifact", "return 'something that cannot be measured'")

    @pytest.fixture
    def sandbox(self) -> str:
        """Isolation level of the measurements."""
        return "limits"

    @pytest.fixture
    def bench(self, adapter: Adapter, workspace: Path, artifact: Files, tmp_path: Path, sandbox: str) -> Bench:
        """The prepared adapter and what it measures."""
        return Bench(adapter, workspace, _files(artifact, adapter.scope), tmp_path / "bench", sandbox)

    def test_a_measurement_is_finite(self, bench: Bench) -> None:
        """Value, seconds and secondary numbers are finite, the seed is the one asked for, the curve is in order."""
        found = bench.measure(seed=3)
        assert isinstance(found, Measurement)
        numbers = {"value": found.value, "seconds": found.seconds, **found.secondary}
        assert {name: number for name, number in numbers.items() if not math.isfinite(number)} == {}
        assert found.seed == 3 and found.seconds >= 0
        shares = [share for share, _ in found.curve]
        assert shares == sorted(shares) and all(0 <= share <= 1 for share in shares)
        assert all(math.isfinite(value) for _, value in found.curve)

    def test_the_same_seed_repeats(self, bench: Bench) -> None:
        """The same artifact with the same seed gives the same value, within the noise that the metric states."""
        first, second = bench.measure(seed=1).value, bench.measure(seed=1).value
        assert abs(first - second) <= bench.tolerance()

    def test_measuring_changes_nothing(self, bench: Bench) -> None:
        """Neither the candidate's files nor the workspace change; log and scratch folder are what may be written."""
        place = bench.lay_out(bench.artifact)
        candidate, workspace = _snapshot(place), _snapshot(bench.root)
        bench.adapter.measure(place, seed=0, split=Split.SEARCH, run=bench.context())
        assert _changed(candidate, _snapshot(place)) == [], "the candidate's folder changed"
        assert _changed(workspace, _snapshot(bench.root)) == [], "the workspace changed"

    def test_a_revert_restores_the_value(self, bench: Bench, worse_artifact: Files) -> None:
        """After another candidate was measured the artifact measures as before: nothing of a candidate stays behind."""
        before = bench.measure(seed=2).value
        bench.measure(_files(worse_artifact, bench.adapter.scope), seed=2)
        assert abs(bench.measure(seed=2).value - before) <= bench.tolerance()

    def test_a_worse_artifact_measures_worse(self, bench: Bench, worse_artifact: Files) -> None:
        """The metric sees what you know, and in the direction that it states."""
        gain = bench.gain(_files(worse_artifact, bench.adapter.scope), seeds=(0, 1))
        metric = bench.adapter.metric
        assert gain < 0, (
            f"it measures {gain:+.4g} {metric.unit} better; is the direction {metric.direction.value} right?"
        )
        assert metric.noise is None or -gain > metric.noise, (
            f"{-gain:.4g} worse is less than the noise {metric.noise:.4g}"
        )

    def test_a_broken_artifact_is_the_candidates_fault(self, bench: Bench, broken_artifact: Files) -> None:
        """What cannot be measured raises CandidateError with a sentence, instead of returning a number."""
        files = _files(broken_artifact, bench.adapter.scope)
        with pytest.raises(CandidateError) as caught:
            if isinstance(bench.adapter, OffersCheck):
                bench.adapter.check(Artifact(files))
            bench.measure(files)
        assert str(caught.value).strip(), "say what was wrong with the candidate"

    def test_every_split_can_be_measured(self, bench: Bench) -> None:
        """Keep decisions need the search split; who does not say otherwise has a holdout, too."""
        splits = bench.adapter.splits if isinstance(bench.adapter, OffersSplits) else frozenset(Split)
        assert Split.SEARCH in splits
        assert all(math.isfinite(bench.measure(split=split).value) for split in sorted(splits, key=lambda s: s.value))

    # What an adapter may offer besides

    def test_its_fingerprint_names_the_evaluator_alone(self, bench: Bench, worse_artifact: Files) -> None:
        """The fingerprint is not empty, and measuring does not change it, whatever is measured."""
        if not isinstance(bench.adapter, OffersFingerprint):
            _not_offered("OffersFingerprint")
        before = bench.adapter.evaluator_fingerprint()
        bench.measure(_files(worse_artifact, bench.adapter.scope))
        assert before and bench.adapter.evaluator_fingerprint() == before

    def test_what_it_guards_is_measured(self, bench: Bench) -> None:
        """Every guarded number is among the secondary ones."""
        if not isinstance(bench.adapter, OffersGuards):
            _not_offered("OffersGuards")
        found = bench.measure()
        assert [guard.name for guard in bench.adapter.guards if guard.name not in found.secondary] == []

    def test_its_estimate_is_a_time(self, bench: Bench) -> None:
        """The expected seconds of a measurement are a positive number."""
        if not isinstance(bench.adapter, OffersEstimate):
            _not_offered("OffersEstimate")
        seconds = bench.adapter.measure_seconds(bench.context())
        assert math.isfinite(seconds) and seconds > 0

    def test_outputs_can_be_kept_twice(self, bench: Bench) -> None:
        """What a kept candidate leaves is copied; a kill in between lets it be copied again."""
        if not isinstance(bench.adapter, KeepsOutputs):
            _not_offered("KeepsOutputs")
        context, destination = bench.context(), bench.folder / "kept"
        bench.adapter.measure(bench.lay_out(bench.artifact), seed=0, split=Split.SEARCH, run=context)
        for _ in range(2):
            bench.adapter.keep_outputs(context.scratch, destination)
        assert any(destination.rglob("*")), "nothing was kept"


@dataclass
class LiveBench:
    """A live adapter in a workspace, and two arms to show.

    Attributes:
        adapter: As the author's fixture made it.
        folder: Where the arms lie.
        arms: Control and treatment, as files.
        visit: Brings some units to both arms of an experiment, or to whatever is shown after it.
        stands_still: Whether looking alone brings nobody.
        lane: Where the treatment may be tested; None where the adapter offers no lanes.
    """

    adapter: LiveAdapter
    folder: Path
    arms: tuple[Mapping[str, str], Mapping[str, str]]
    visit: Callable[[Any, LiveExperiment], None]
    stands_still: bool
    lane: Lane | None = None

    def experiment(self, name: str = "kit/1") -> LiveExperiment:
        """Return an experiment whose arms are laid out in folders of its own."""
        places = [self.folder / name.replace("/", "-") / arm for arm in ("control", "treatment")]
        for place, files in zip(places, self.arms, strict=True):
            place.mkdir(parents=True, exist_ok=True)
            Artifact(files).write(place)
        lane = "" if self.lane is None else self.lane.name
        split = {"control": 0.5, "treatment": 0.5}
        return LiveExperiment(name, places[0], places[1], split, datetime.now(UTC), lane)

    def start(self, experiment: LiveExperiment, adapter: LiveAdapter | None = None) -> None:
        """Start an experiment as the loop does, together with no other where there are lanes."""
        adapter = adapter or self.adapter
        if isinstance(adapter, OffersLanes) and self.lane is not None:
            adapter.start_together([experiment])
        else:
            adapter.start(experiment)

    def begun(self, name: str = "kit/1") -> LiveExperiment:
        """Start an experiment and let some units come."""
        experiment = self.experiment(name)
        self.start(experiment)
        self.visit(self.adapter, experiment)
        return experiment

    def together(self) -> tuple[OffersLanes, list[LiveExperiment]]:
        """Start two treatments of one test with one control, and let some units come to each."""
        adapter = self.adapter
        if not isinstance(adapter, OffersLanes) or self.lane is None or self.lane.arms < 2:
            _not_offered("a lane with several arms")
        alone = [self.experiment(f"kit/{number}") for number in (1, 2)]
        share = 1.0 / (len(alone) + 1)
        experiments = [
            replace(
                row,
                control=alone[0].control,
                split={"control": share, "treatment": share},
                arm=f"treatment-{number}",
            )
            for number, row in enumerate(alone, 1)
        ]
        adapter.start_together(experiments)
        for experiment in experiments:
            self.visit(self.adapter, experiment)
        return adapter, experiments

    def totals(self, experiment: LiveExperiment) -> dict[str, ArmTotals]:
        """Return what is observed, by arm."""
        return {arm.arm: arm for arm in self.adapter.observe(experiment.id)}

    def demand_kept(self, before: Mapping[str, ArmTotals], after: Mapping[str, ArmTotals]) -> None:
        """Fail where something that was counted is gone, or came although nobody was sent."""
        if self.stands_still:
            assert after == before, "the totals changed, and nobody came"
        lost = [name for name, arm in before.items() if after[name].n < arm.n or after[name].total_sq < arm.total_sq]
        assert lost == [], "units that were counted are gone"


class LiveAdapterConformance(_Fixtures):
    """Every clause of `autoresearch.core.LiveAdapter` as a test; supply `adapter`, `treatment`, `visit`, `again`.

    Also `artifact`, where the adapter does not write workspaces.

    Attributes:
        stands_still: Set it to False for a source with a calendar of its own, in which each look is a later one.
    """

    stands_still = True

    @pytest.fixture
    def treatment(self) -> Files:
        """Another artifact, to be shown against the first."""
        _missing("treatment", "return 'another text'")

    @pytest.fixture
    def visit(self) -> Callable[[Any, LiveExperiment], None]:
        """A function that brings a few hundred units to an experiment, and lets what they do be counted."""
        _missing("visit", "return lambda adapter, experiment: adapter.source.send(300)")

    @pytest.fixture
    def again(self, adapter: LiveAdapter) -> Callable[[], LiveAdapter]:
        """A function that makes the adapter anew on the same workspace, as a restart does."""
        _missing("again", "return lambda: MyAdapter(...)")

    @pytest.fixture
    def bench(
        self,
        adapter: LiveAdapter,
        workspace: Path,
        artifact: Files,
        treatment: Files,
        visit: Callable[[Any, LiveExperiment], None],
        tmp_path: Path,
    ) -> LiveBench:
        """The prepared adapter and two arms."""
        arms = (_files(artifact, adapter.scope), _files(treatment, adapter.scope))
        return LiveBench(adapter, tmp_path / "bench", arms, visit, self.stands_still, _lane_for(adapter, *arms))

    def test_there_is_one_total_for_each_arm(self, bench: LiveBench) -> None:
        """What is observed has the arms of the split, each once, and units came to them."""
        experiment = bench.begun()
        names = [arm.arm for arm in bench.adapter.observe(experiment.id)]
        assert sorted(names) == sorted(experiment.split)
        assert sum(arm.n for arm in bench.totals(experiment).values()) > 0, "no unit was counted"

    def test_totals_are_possible(self, bench: LiveBench) -> None:
        """Counts are whole and not negative, and the sums could come from that many values."""
        for arm in bench.totals(bench.begun()).values():
            assert isinstance(arm.n, int) and arm.n >= 0 and math.isfinite(arm.total) and math.isfinite(arm.total_sq)
            if bench.adapter.metric.kind is MetricKind.PROPORTION:
                assert 0 <= arm.total <= arm.n and arm.total_sq == arm.total, f"{arm} is no share of units"
            elif arm.n:
                assert arm.total_sq >= arm.total**2 / arm.n * (1 - 1e-9), f"{arm} belongs to no {arm.n} values"

    def test_totals_are_cumulative(self, bench: LiveBench) -> None:
        """Later totals hold the earlier ones, and looking alone changes nothing."""
        experiment = bench.begun()
        first, same = bench.totals(experiment), bench.totals(experiment)
        bench.demand_kept(first, same)
        bench.visit(bench.adapter, experiment)
        later = bench.totals(experiment)
        assert all(later[name].n >= arm.n and later[name].total_sq >= arm.total_sq for name, arm in same.items())
        assert sum(arm.n for arm in later.values()) > sum(arm.n for arm in first.values()), "further units were lost"

    def test_starting_twice_is_starting_once(self, bench: LiveBench) -> None:
        """After a kill the loop starts the same experiment again; what was counted stays, and counts once."""
        experiment = bench.begun()
        before = bench.totals(experiment)
        bench.start(experiment)
        bench.demand_kept(before, bench.totals(experiment))

    def test_a_restart_loses_nothing(self, bench: LiveBench, again: Callable[[], LiveAdapter]) -> None:
        """A new process on the same workspace observes what the old one had counted."""
        experiment = bench.begun()
        before = bench.totals(experiment)
        other = again()
        bench.start(experiment, other)
        bench.demand_kept(before, {arm.arm: arm for arm in other.observe(experiment.id)})

    def test_experiments_do_not_mix(self, bench: LiveBench) -> None:
        """The next experiment begins with no unit of the one before."""
        first = bench.begun("kit/1")
        bench.visit(bench.adapter, first)
        before = sum(arm.n for arm in bench.totals(first).values())
        bench.adapter.finish(first.id, Outcome.REVERTED)
        second = bench.experiment("kit/2")
        bench.start(second)
        after = sum(arm.n for arm in bench.totals(second).values())
        assert after == 0 if bench.stands_still else after < before, "units of the test before are counted again"

    def test_arms_stay_as_they_are(self, bench: LiveBench) -> None:
        """Showing, counting and finishing change no file of either arm."""
        experiment = bench.experiment()
        before = [_snapshot(place) for place in (experiment.control, experiment.treatment)]
        bench.begun()
        bench.totals(experiment)
        bench.adapter.finish(experiment.id, Outcome.REVERTED)
        after = [_snapshot(place) for place in (experiment.control, experiment.treatment)]
        assert [_changed(*pair) for pair in zip(before, after, strict=True)] == [[], []]

    @pytest.mark.parametrize("outcome", [Outcome.KEPT, Outcome.REVERTED, Outcome.INCONCLUSIVE], ids=lambda o: o.value)
    def test_finishing_twice_is_finishing_once(self, bench: LiveBench, outcome: Outcome) -> None:
        """Any outcome may be told again after a kill."""
        experiment = bench.begun()
        bench.adapter.finish(experiment.id, outcome)
        bench.adapter.finish(experiment.id, outcome)

    def test_its_pace_is_a_time(self, bench: LiveBench) -> None:
        """The wait before the next look is a number of seconds, and an end has a reason."""
        if not isinstance(bench.adapter, OffersPace):
            _not_offered("OffersPace")
        experiment = bench.begun()
        bench.totals(experiment)
        seconds, ending = bench.adapter.wait_seconds(experiment.id), bench.adapter.ending(experiment.id)
        assert math.isfinite(seconds) and seconds >= 0
        assert ending is None or ending.strip()

    def test_its_gates_give_a_report(self, bench: LiveBench) -> None:
        """The gates can be asked after a look, and a sound test is not invalid."""
        if not isinstance(bench.adapter, OffersGates):
            _not_offered("OffersGates")
        experiment = bench.begun()
        bench.totals(experiment)
        report = bench.adapter.gates(experiment.id, None)
        assert isinstance(report, GateReport) and report.invalid is None, f"a sound test is called invalid: {report}"

    # Several tests at once

    def test_its_lanes_are_the_same_after_a_restart(self, bench: LiveBench, again: Callable[[], LiveAdapter]) -> None:
        """Tests in flight are found again by the name of their lane."""
        if bench.lane is None:
            _not_offered("OffersLanes")
        assert offered(again()) == offered(bench.adapter)

    def test_its_lanes_say_what_may_change(self, bench: LiveBench) -> None:
        """Every lane has a sentence for the language model, always the same, and knobs of files that there are."""
        adapter = bench.adapter
        if not isinstance(adapter, OffersLanes) or bench.lane is None:
            _not_offered("OffersLanes")
        artifact = Artifact(bench.arms[0])
        for lane in adapter.lanes:
            assert adapter.lane_brief(lane.name).strip(), f"nothing is said of {lane.name}"
            assert adapter.lane_brief(lane.name) == adapter.lane_brief(lane.name)
            assert [knob for knob in adapter.lane_knobs(lane.name, artifact) if knob.path not in artifact.files] == []

    def test_starting_together_twice_is_starting_once(self, bench: LiveBench) -> None:
        """After a kill the loop starts the same treatments again; what was counted stays, and counts once."""
        adapter, experiments = bench.together()
        before = [bench.totals(experiment) for experiment in experiments]
        adapter.start_together(experiments)
        for counted, experiment in zip(before, experiments, strict=True):
            bench.demand_kept(counted, bench.totals(experiment))

    def test_treatments_of_a_test_share_its_control(self, bench: LiveBench) -> None:
        """Whoever sees the control counts for every treatment, and whoever sees a treatment for that one alone."""
        _, experiments = bench.together()
        first, second = (bench.totals(experiment) for experiment in experiments)
        if bench.stands_still:
            assert first["control"] == second["control"], "each treatment has a control of its own"
        else:
            assert second["control"].n >= first["control"].n > 0
        assert first["treatment"].n > 0 and second["treatment"].n > 0, "a treatment was not shown"

    def test_finishing_one_treatment_leaves_the_others(self, bench: LiveBench) -> None:
        """One that lost is taken out; the other keeps what was counted and goes on."""
        _, (lost, stays) = bench.together()
        bench.adapter.observe(lost.id)
        before = bench.totals(stays)
        bench.adapter.finish(lost.id, Outcome.REVERTED)
        bench.demand_kept(before, bench.totals(stays))
        bench.visit(bench.adapter, stays)
        after = bench.totals(stays)
        assert after["treatment"].n > before["treatment"].n, "the other treatment is shown no longer"
        assert after["control"].n > before["control"].n, "the control is shown no longer"

    def test_everybody_can_be_shown_the_incumbent_twice(self, bench: LiveBench) -> None:
        """After a keep everybody sees what stands; a kill lets that be said again, and the folder stays as it is."""
        if not isinstance(bench.adapter, OffersLanes) or bench.lane is None:
            _not_offered("OffersLanes")
        experiment = bench.begun()
        bench.adapter.finish(experiment.id, Outcome.KEPT)
        before = _snapshot(experiment.treatment)
        for _ in range(2):
            bench.adapter.show_to_everybody(experiment.treatment)
        assert _changed(before, _snapshot(experiment.treatment)) == []


def _lane_for(adapter: LiveAdapter, artifact: Mapping[str, str], treatment: Mapping[str, str]) -> Lane | None:
    """Return the lane that the treatment belongs to, one of several arms if there is; None without lanes."""
    lanes = offered(adapter)
    if not isinstance(adapter, OffersLanes) or not lanes:
        return None
    there = Artifact(artifact)
    refusals = {lane.name: adapter.belongs(lane.name, there, there.replace(treatment)) for lane in lanes}
    fitting = [lane for lane in lanes if refusals[lane.name] is None]
    if not fitting:
        why = "; ".join(filter(None, refusals.values()))
        pytest.fail(f"The treatment belongs to no lane: {why} Give another `treatment`.", pytrace=False)
    return max(fitting, key=lambda lane: lane.arms)


def _missing(name: str, line: str) -> NoReturn:
    pytest.fail(
        f"The kit needs a fixture `{name}`. Add it to your class:\n\n"
        f"    @pytest.fixture\n    def {name}(self):\n        {line}\n",
        pytrace=False,
    )


def _not_offered(what: str) -> NoReturn:
    pytest.skip(f"{_NOT_OFFERED}: {what}")


def _files(files: Files, scope: Scope) -> Mapping[str, str]:
    """Return files by path; a text alone is the file that the scope names."""
    if not isinstance(files, str):
        return files
    if len(scope.editable) != 1 or any(mark in scope.editable[0] for mark in "*?["):
        pytest.fail(
            f"The scope {', '.join(scope.editable)} does not name one file, so an artifact must be a mapping of path "
            "to text.",
            pytrace=False,
        )
    return {scope.editable[0]: files}


def _snapshot(root: Path) -> dict[str, bytes]:
    """Return path -> content of every file, our own folder and what git keeps left out."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not {_STATE, ".git"}.intersection(path.relative_to(root).parts)
    }


def _changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


# Running the checks without a test file


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one check.

    Attributes:
        name: Name of the test, without `test_`, in words.
        clause: What the contract says.
        outcome: `passed`, `failed`, `not offered`, `skipped`, or `known gap` for an expected failure.
        detail: Why it did not pass; empty where it did.
    """

    name: str
    clause: str
    outcome: str
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing is wanting: it passed, or is about something that is not offered."""
        return self.outcome in ("passed", _NOT_OFFERED)


def run_checks(kit: type) -> list[Checked]:
    """Run every check of a conformance class, with the fixtures that it supplies, and say what became of each.

    Args:
        kit: A subclass of `AdapterConformance` or `LiveAdapterConformance`.
    """
    collector = _Collector()
    with tempfile.TemporaryDirectory(prefix="autoresearch-kit-") as folder, _as_module(kit) as module:
        # pytest keeps the modules that it has imported, so that each run needs a name of its own.
        file = Path(folder) / f"test_{module}.py"
        file.write_text(f"from {module} import TestKit\n", encoding="utf-8")
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        arguments = [str(file), "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", folder]
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main([*arguments, "-c", str(Path(folder) / "pytest.ini")], plugins=[collector])
    return collector.found


_runs = itertools.count(1)


@contextlib.contextmanager
def _as_module(kit: type) -> Iterator[str]:
    """Let a class be imported by the name `TestKit`, from a module of its own."""
    name = f"autoresearch_kit_{next(_runs)}"
    module = types.ModuleType(name)
    module.TestKit = kit  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        yield name
    finally:
        for own in (name, f"test_{name}"):
            sys.modules.pop(own, None)


class _Collector:
    """Takes down what pytest reports."""

    def __init__(self) -> None:
        self.found: list[Checked] = []
        self._clauses: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember the first line of each check's docstring."""
        for item in items:
            doc = getattr(getattr(item, "function", None), "__doc__", None) or ""
            self._clauses[item.nodeid] = doc.strip().partition("\n")[0]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down how a check ended; what fails while it is set up has failed."""
        ended = report.when == "call" or report.outcome != "passed"
        if ended and not any(item.name == _words(report.nodeid) and not item.holds for item in self.found):
            outcome, detail = _outcome(report)
            self.found.append(Checked(_words(report.nodeid), self._clauses.get(report.nodeid, ""), outcome, detail))


def _words(nodeid: str) -> str:
    return nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")


def _outcome(report: pytest.TestReport) -> tuple[str, str]:
    if report.outcome == "passed":
        return "passed", ""
    if report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        return "failed", crash.message if crash is not None else str(report.longrepr).strip()
    if hasattr(report, "wasxfail"):
        return "known gap", report.wasxfail.removeprefix("reason: ")
    reason = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
    return (_NOT_OFFERED if reason.startswith(_NOT_OFFERED) else "skipped"), reason
