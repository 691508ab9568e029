"""A town of pages: a live adapter with lanes; its artifact is a rate for each page, its people are drawn by lot."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.core import (
    ArmTotals,
    Artifact,
    CostEstimate,
    Direction,
    GateReport,
    Knob,
    Lane,
    LiveExperiment,
    Look,
    Metric,
    MetricKind,
    NothingLeftToProposeError,
    Outcome,
    Proposal,
    ProposalRequest,
    Scope,
)

PER_LOOK = 400
COPY = "copy.toml"


def rates_of(artifact: Artifact) -> dict[str, float]:
    """Return page -> rate."""
    pairs = (line.split(" = ") for line in artifact.files[COPY].splitlines())
    return {page: float(rate) for page, rate in pairs}


def text_of(rates: Mapping[str, float]) -> str:
    """Return the artifact's text, one page a line."""
    return "".join(f"{page} = {rate:.4f}\n" for page, rate in rates.items())


def make_town(root: Path, rates: Mapping[str, float]) -> Path:
    """Write a workspace and return its folder."""
    root.mkdir(parents=True, exist_ok=True)
    (root / COPY).write_text(text_of(rates), encoding="utf-8")
    return root


@dataclass
class Town:
    """Every look brings 400 people to each arm; what it shows and has seen lies in a file, as after a kill."""

    root: Path
    lanes: Sequence[Lane]
    most: int = 28
    wait: float = 0.0
    reports: Mapping[int, GateReport] = field(default_factory=dict)
    on_start: Callable[[Sequence[str]], None] = lambda ids: None
    together: list[list[LiveExperiment]] = field(default_factory=list)
    finished: list[tuple[int, str]] = field(default_factory=list)
    everybody: list[dict[str, float]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    @property
    def metric(self) -> Metric:
        return Metric("conversion", "", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.2)

    @property
    def scope(self) -> Scope:
        return Scope((COPY,))

    def belongs(self, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
        before, after = rates_of(parent), rates_of(candidate)
        others = [page for page in before if page != lane and before[page] != after.get(page)]
        return f"It changes {', '.join(others)}, and this lane is {lane}." if others else None

    def lane_knobs(self, lane: str, artifact: Artifact) -> Sequence[Knob]:
        return ()

    def lane_brief(self, lane: str) -> str:
        return lane

    def start(self, experiment: LiveExperiment) -> None:
        raise AssertionError("a test of a lane is started together")

    def start_together(self, experiments: Sequence[LiveExperiment]) -> None:
        self.on_start([row.id for row in experiments])
        self.together.append(list(experiments))
        for row in experiments:
            arms = {
                arm: rates_of(Artifact.read(folder, (COPY,)))[row.lane]
                for arm, folder in (("control", row.control), ("treatment", row.treatment))
            }
            file = self._file(row.id)
            if not file.exists():
                file.write_text(json.dumps({**arms, "looks": 0, "lane": row.lane}), encoding="utf-8")

    def show_to_everybody(self, artifact: Path) -> None:
        self.everybody.append(rates_of(Artifact.read(artifact, (COPY,))))

    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        file = self._file(experiment_id)
        test = json.loads(file.read_text(encoding="utf-8"))
        test["looks"] += 1
        file.write_text(json.dumps(test), encoding="utf-8")
        totals = []
        for arm in ("control", "treatment"):
            # The control is shared: the same people for every treatment of the lane.
            dice = random.Random(f"{test['lane']}{test['control']}" if arm == "control" else experiment_id[-4:])
            converted = sum(dice.random() < test[arm] for _ in range(PER_LOOK * test["looks"]))
            totals.append(ArmTotals(arm, PER_LOOK * test["looks"], converted, converted))
        return totals

    def gates(self, experiment_id: str, crossed: Look | None) -> GateReport:
        return self.reports.get(int(experiment_id[-4:]), GateReport())

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        self.finished.append((int(experiment_id[-4:]), outcome.value))

    def wait_seconds(self, experiment_id: str) -> float:
        self.asked.append(int(experiment_id[-4:]))
        return self.wait

    def ending(self, experiment_id: str) -> str | None:
        looks = json.loads(self._file(experiment_id).read_text(encoding="utf-8"))["looks"]
        return "The traffic is used up." if looks >= self.most else None

    def _file(self, experiment_id: str) -> Path:
        return self.root / f"{experiment_id}.json"


@dataclass
class Planner:
    """Proposes the rates of a plan for each lane in order; knows from the request alone how far it is."""

    plan: Mapping[str, Sequence[float]]
    name: str = "planner"
    requests: list[ProposalRequest] = field(default_factory=list)

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        return CostEstimate(0.0, 0, 0.0, "a plan")

    def propose(self, request: ProposalRequest) -> Proposal:
        self.requests.append(request)
        page = request.lane
        done = sum(past.category == page and not past.hypothesis.startswith("again") for past in request.history)
        done += sum(f"Try {page}" in row.hypothesis and "again" not in row.hypothesis for row in request.beside)
        done += len(request.refused)
        steps = self.plan.get(page, ())
        if done >= len(steps):
            raise NothingLeftToProposeError(f"the plan for {page} has ended")
        rates = {**rates_of(request.artifact), page: steps[done]}
        return Proposal(f"Try {page} {steps[done]}", page, request.artifact.replace({COPY: text_of(rates)}))
