"""The finished experiments of a run, read once: what is finished never changes, so only news is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch.core import formats, live, memory
from autoresearch.core.adapter import ArmTotals, Metric, Split
from autoresearch.core.decision import Evidence, Look, Policy
from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow
from autoresearch.core.proposers import PastExperiment


class History:
    """Finished experiments in the order they finished, the baseline first, and their measurements by experiment id.

    Reading a whole run anew for every experiment would make the loop slower with every experiment. The calibration is
    read at the beginning: nobody calibrates while the workspace's lock is held by a run.
    """

    def __init__(self, ledger: Ledger, run_id: str) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._sequence = 0
        self._records: dict[float | None, tuple[int, memory.Record]] = {}
        self._past: list[PastExperiment] = []
        self._lines: list[str] = []
        self.experiments: list[Experiment] = []
        self.measurements: dict[int, list[MeasurementRow]] = {}
        self.looks: dict[int, tuple[Look, ...]] = {}  # of live tests, by experiment id
        self.calibration: tuple[ArmTotals, ...] = memory.calibration_groups(ledger.fresh(run_id, Split.SEARCH.value))

    def refresh(self) -> History:
        """Read what finished since the last call, and return this history."""
        news = self._ledger.finished_after(self._run_id, self._sequence)
        unmeasured = [row.id for row, measurements in news if not measurements]
        looks = self._ledger.live_looks_of(unmeasured) if unmeasured else {}
        for experiment, measurements in news:
            self.experiments.append(experiment)
            self.measurements[experiment.id] = measurements
            if not measurements:
                self.looks[experiment.id] = live.looks_of(looks.get(experiment.id, ()))
            self._past += memory.past_experiments([experiment])
            self._lines.append(formats.results_line(experiment, measurements))
            self._sequence = experiment.sequence or self._sequence
        return self

    def judged(self, *, live: bool = False) -> list[Experiment]:
        """Return the experiments that later decisions know of, one for each entry of `Evidence.history`."""
        if live:
            return [row for row in self.experiments if memory.is_judged(row) and self.looks.get(row.id)]
        return [row for row in self.experiments if memory.teaches(row, self.measurements[row.id])]

    def past(self) -> tuple[PastExperiment, ...]:
        """Return `memory.past_experiments` of this history."""
        return tuple(self._past)

    def table(self, metric_name: str) -> str:
        """Return `formats.results_tsv` of this history."""
        return "".join([formats.results_header(metric_name), *self._lines])

    def belief(self, policy: Policy | None, metric: Metric) -> memory.Belief:
        """Return what a policy believes of the incumbent; no gain without a policy."""
        if any(self.looks.values()):
            return live.belief(policy, metric, self.experiments, self.looks)
        known = None if policy is None else self.evidence(metric)
        return memory.belief(policy, metric, self.experiments, self.measurements, known)

    def evidence(
        self, metric: Metric, current: Experiment | None = None, rows: Sequence[MeasurementRow] = ()
    ) -> Evidence:
        """Return all that a policy may know: `memory.evidence` of this history, at the cost of what is new.

        Args:
            metric: What is measured.
            current: The experiment in flight; None where only the history counts.
            rows: Its measurements so far.
        """
        taken, record = self._records.get(metric.noise) or (0, memory.Record(metric.noise, self.calibration))
        for experiment in self.experiments[taken:]:
            record.add(experiment, self.measurements[experiment.id])
        self._records[metric.noise] = (len(self.experiments), record)
        return record.evidence(metric, current, rows)
