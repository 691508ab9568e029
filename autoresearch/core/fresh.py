"""Measuring again, outside every experiment: with seeds that no decision saw, each once, written down as it goes."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from autoresearch.core import lock, moments, registry
from autoresearch.core.adapter import (
    Adapter,
    LiveAdapter,
    Metric,
    OffersSplits,
    RunContext,
    Split,
    Workspace,
    no_progress,
)
from autoresearch.core.decision import Policy
from autoresearch.core.decision.policies import create_policy, policy_names
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, UsageError
from autoresearch.core.fingerprints import explained, fingerprint_of
from autoresearch.core.graph import MAX_DISTURBED, Reporter
from autoresearch.core.history import History
from autoresearch.core.ledger import Experiment, FreshMeasurement, Ledger, Run
from autoresearch.core.memory import incumbent_of
from autoresearch.core.sandbox import resolve
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout, read_settings

CONFIRM_SEED = 10_000
"""First seed of confirmations, counted from the run's own: far above those of any run, which count up from there."""

CALIBRATE_SEED = 20_000
"""First seed of calibrations, likewise."""


Progress = Callable[[float, str], None]


class ArmFailedError(Exception):
    """An artifact that was kept crashed with a fresh seed; the message is the candidate's sentence."""


@dataclass
class Bench:
    """What measuring again works with.

    Attributes:
        layout: The workspace, whose lock the caller holds.
        ledger: The open ledger.
        run: The run that the artifacts belong to.
        adapter: Prepared.
        policy: The run's policy.
        reporter: Hears what happens.
        sandbox: Isolation level of the measurements.
        wants_stop: Asked between measurements; true ends the work early, and it goes on the next time.
        taken: Measurements taken here, not read back.
    """

    layout: Layout
    ledger: Ledger
    run: Run
    adapter: Adapter
    policy: Policy
    reporter: Reporter
    sandbox: str
    wants_stop: Callable[[], bool] = field(default=lambda: False)
    taken: int = 0

    @property
    def metric(self) -> Metric:
        """What is measured."""
        return self.adapter.metric

    def history(self) -> History:
        """Return the finished experiments of the run.

        Raises:
            UsageError: If not even the baseline is finished.
        """
        history = History(self.ledger, self.run.id).refresh()
        if incumbent_of(history.experiments) is None:
            raise UsageError(
                f"The baseline of run {self.run.id} was never measured, so there is nothing to measure again.\n"
                "Go on with the run: autoresearch run"
            )
        return history

    @property
    def claim_split(self) -> Split:
        """Where claims are measured: on the holdout, or, where there is none, anew on what keep decisions saw."""
        return Split.HOLDOUT if Split.HOLDOUT in self._splits else Split.SEARCH

    @property
    def _splits(self) -> frozenset[Split]:
        return self.adapter.splits if isinstance(self.adapter, OffersSplits) else frozenset(Split)

    def demand(self, split: Split) -> None:
        """Raise UsageError where the adapter has no such split."""
        if split not in self._splits:
            raise UsageError(
                f"The adapter {self.run.adapter} has no {split.value} split: it has no data that keep decisions never "
                "saw.\nA claim needs such data; give the adapter some, or measure again with autoresearch calibrate."
            )

    def demand_same_evaluator(self) -> None:
        """Raise EnvironmentNotReadyError where values would no longer come from what the run began with."""
        if fingerprint_of(self.adapter) != self.run.evaluator_fingerprint:
            if (what := explained(self.adapter, self.run.evaluator_fingerprint)) is not None:
                self.reporter.say(what)
            raise EnvironmentNotReadyError(
                f"The evaluator or its data changed since run {self.run.id} began, so new values could not be "
                "compared.\nPut the old data or release back."
            )

    def counted(self, index: int, total: int) -> Progress:
        """Return what reports the progress of measurement `index` of `total` as part of the whole."""
        place = f"measurement {index + 1} of {total}"
        self.reporter.progress(index / total, place)

        def progress(share: float, text: str) -> None:
            self.reporter.progress((index + min(max(share, 0.0), 1.0)) / total, f"{place}: {text}")

        return progress

    def known(self, split: Split) -> dict[tuple[str, int], float]:
        """Return (commit, seed) -> value of everything that was measured undisturbed."""
        rows = self.ledger.fresh(self.run.id, split.value)
        return {(row.commit, row.seed): row.value for row in rows if row.value is not None and row.disturbed is None}

    def value(self, split: Split, commit: str, seed: int, progress: Progress = no_progress) -> float:
        """Return the value of an artifact at a seed: read back, or measured now and written down.

        Raises:
            ArmFailedError: If the artifact crashed, now or when it was tried before.
            EnvironmentNotReadyError: If the machine is at fault, or disturbed every attempt.
        """
        rows = [row for row in self.ledger.fresh(self.run.id, split.value) if (row.commit, row.seed) == (commit, seed)]
        for row in rows:
            if row.failed is not None:
                raise ArmFailedError(row.failed)
            if row.value is not None and row.disturbed is None:
                return row.value
        for attempt in range(len(rows), len(rows) + MAX_DISTURBED):
            row = self._attempt(split, commit, seed, attempt, progress)
            if row.failed is not None:
                raise ArmFailedError(row.failed)
            if row.value is not None and row.disturbed is None:
                return row.value
        raise EnvironmentNotReadyError(
            f"Every measurement was disturbed: {row.disturbed}.\n"
            "Nothing is lost: run the same command again when the machine is quieter."
        )

    def _attempt(self, split: Split, commit: str, seed: int, attempt: int, progress: Progress) -> FreshMeasurement:
        """Measure once; the row is there before the data is opened."""
        row = self.ledger.add_fresh(
            FreshMeasurement(
                run_id=self.run.id, split=split.value, commit=commit, seed=seed, attempt=attempt, at=_now()
            )
        )
        folder = self.layout.state / "fresh" / self.run.id
        artifact, scratch = folder / "artifact", folder / "scratch"
        for path in (artifact, scratch):
            shutil.rmtree(path, ignore_errors=True)
        scratch.mkdir(parents=True)
        Store.open(self.layout.root).read(commit, self.adapter.scope.editable).write(artifact)
        context = RunContext(
            log=folder / "run.log",
            scratch=scratch,
            budget_seconds=self.run.budget_seconds,
            device=self.run.device,
            sandbox=self.sandbox,
            progress=progress,
        )
        began, asleep = time.monotonic(), moments.asleep_seconds()
        try:
            found = self.adapter.measure(artifact, seed=seed, split=split, run=context)
        except CandidateError as error:
            self.demand_same_evaluator()
            return self.ledger.update_fresh(row.id, failed=str(error), seconds=time.monotonic() - began)
        finally:
            for path in (artifact, scratch):
                shutil.rmtree(path, ignore_errors=True)  # leftovers cost space, nothing else
        self.demand_same_evaluator()
        self.taken += 1
        disturbed = found.disturbed or moments.slept(asleep, moments.asleep_seconds())
        if not math.isfinite(found.value):
            return self.ledger.update_fresh(row.id, failed=f"{self.metric.name} is {found.value}")
        return self.ledger.update_fresh(row.id, value=found.value, seconds=found.seconds, disturbed=disturbed)


def rounds(commits: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield (commit, seed), seed by seed, every other seed backwards: what drifts is booked on no arm."""
    for index, seed in enumerate(seeds):
        for commit in commits if index % 2 == 0 else reversed(commits):
            yield commit, seed


@contextmanager
def bench_at(
    layout: Layout, ledger: Ledger, run: Run, reporter: Reporter, adapter: Adapter | None = None
) -> Iterator[Bench]:
    """Hold the workspace's lock and prepare everything for measuring artifacts of a run again.

    Args:
        layout: The workspace.
        ledger: Its ledger.
        run: The run.
        reporter: Hears what happens.
        adapter: The run's adapter; None: the registered one of the run's name, with the run's options.

    Raises:
        UsageError: If a process is at work in the workspace, the run's policy or adapter is known to the Python API
            alone, or the adapter is a live one.
        EnvironmentNotReadyError: If the machine is not ready, or the evaluator changed since the run began.
    """
    with lock.held(layout):
        lock.name_run(layout, run.id)
        if adapter is None:
            created, _ = registry.create_adapter(run.adapter, run.options)
            if isinstance(created, LiveAdapter) and not isinstance(created, Adapter):
                raise UsageError(f"{run.adapter} is a live adapter, and this release measures measured adapters only.")
            adapter = created
        if run.policy not in policy_names():
            raise UsageError(
                f"The policy {run.policy!r} of run {run.id} is known to the program alone that began it.\n"
                "Measure again from there."
            )
        adapter.prepare(Workspace(layout.root, dict(run.options), reporter.progress))
        asked = read_settings(layout).sandbox if layout.config.exists() else None
        policy = create_policy(run.policy, run.policy_parameters)
        bench = Bench(layout, ledger, run, adapter, policy, reporter, resolve(asked or "auto").value)
        bench.demand_same_evaluator()
        yield bench


def kept_steps(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Return the kept experiments in order, the baseline left out."""
    return [row for row in experiments if row.outcome == "kept" and row.number > 0]


def _now() -> datetime:
    return datetime.now(UTC)
