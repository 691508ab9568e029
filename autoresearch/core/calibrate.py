"""Calibrating: the incumbent against itself shows the noise and nothing else; and what the policy makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from autoresearch.core import memory
from autoresearch.core.adapter import Split
from autoresearch.core.decision import Noise
from autoresearch.core.decision.power import Setting, keep_rate, smallest_seen
from autoresearch.core.decision.race_policy import RacePolicy
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.fresh import CALIBRATE_SEED, ArmFailedError, Bench

RUNS = 4
"""Measurements where nobody says how many."""

REPETITIONS, SLOW_REPETITIONS = 1000, 200
"""Simulated candidates for one rate; of a race fewer, for it judges many looks at some 3 ms each."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What measuring the incumbent again and again showed; effects are in the metric's unit.

    Attributes:
        run: Id of the run.
        number: The experiment that brought the incumbent; 0 is the baseline.
        values: What was measured, by seed.
        measured: How many of these were measured in this call; others were read back.
        noise: Spread between two measurements of one artifact, from these and every other replicate of the run.
        false_keeps: How often the policy keeps a change that changes nothing; None where the metric repeats exactly.
        smallest_effect: The smallest effect that it keeps with 80 % power; None where it sees none, or the metric
            repeats exactly.
        complete: False where it was stopped before all was measured.
    """

    run: str
    number: int
    values: tuple[float, ...]
    measured: int
    noise: Noise | None
    false_keeps: float | None
    smallest_effect: float | None
    complete: bool


def calibrate(bench: Bench, *, runs: int = RUNS) -> Calibration:
    """Measure what is missing, store the noise with the run, and try the policy on it.

    Args:
        bench: Where to measure.
        runs: Measurements of the incumbent, 2 or more; those of earlier calls count.

    Raises:
        UsageError: If fewer than two are asked for, or the baseline was never measured.
        EnvironmentNotReadyError: If the machine is at fault, or the incumbent crashes with a fresh seed.
    """
    if runs < 2:
        raise UsageError(f"A calibration needs 2 measurements or more, not {runs}: one value shows no spread.")
    history = bench.history()
    incumbent = memory.incumbent_of(history.experiments)
    assert incumbent is not None and incumbent.kept_commit is not None, "the history has a kept baseline"
    values, complete = _measure(bench, incumbent.kept_commit, runs)
    history = bench.history()
    noise = memory.noise_of(bench.metric, history.measurements, history.calibration)
    if noise is not None:
        bench.ledger.update_run(bench.run.id, noise_sd=noise.sd, noise_dof=noise.dof)
    setting = None
    if noise is not None and noise.sd > 0:
        baseline = memory.baseline_value(history.experiments, history.measurements)
        first = memory.undisturbed(history.measurements[history.experiments[0].id])
        repetitions = SLOW_REPETITIONS if isinstance(bench.policy, RacePolicy) else REPETITIONS
        setting = Setting(bench.policy, bench.metric, noise, baseline or 0.0, len(first), repetitions)
    return Calibration(
        run=bench.run.id,
        number=incumbent.number,
        values=tuple(values),
        measured=bench.taken,
        noise=noise,
        false_keeps=None if setting is None else _tried(bench, setting),
        smallest_effect=None if setting is None else smallest_seen(setting),
        complete=complete,
    )


def _measure(bench: Bench, commit: str, runs: int) -> tuple[list[float], bool]:
    """Return the values of one artifact at the seeds of calibration, and whether all of them are there."""
    first = bench.run.seed + CALIBRATE_SEED
    values: list[float] = []
    bench.reporter.phase(bench.history().experiments[-1].number, "calibrate")
    for index in range(runs):
        if bench.wants_stop():
            return values, False
        try:
            values.append(bench.value(Split.SEARCH, commit, first + index, bench.counted(index, runs)))
        except ArmFailedError as error:
            raise EnvironmentNotReadyError(
                f"The incumbent crashed with the fresh seed {first + index}: {error}\n"
                "It was kept on other seeds; look at it with autoresearch show best, or go on with autoresearch run."
            ) from error
    return values, True


def _tried(bench: Bench, setting: Setting) -> float:
    """Return the rate of false keeps; a policy that cannot work here says why."""
    try:
        return keep_rate(setting, 0.0)
    except ValueError as error:
        raise UsageError(f"The policy {bench.policy.name} cannot judge this metric: {error}") from error
