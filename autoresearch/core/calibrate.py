"""Calibrating: the incumbent against itself shows the noise and nothing else; and what the policy makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from autoresearch.core import memory
from autoresearch.core.adapter import Metric, Split
from autoresearch.core.decision import Noise, Policy
from autoresearch.core.decision.bayes import BayesPolicy
from autoresearch.core.decision.greedy import GreedyPolicy
from autoresearch.core.decision.power import Setting, keep_rate, smallest_seen
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.fresh import CALIBRATE_SEED, ArmFailedError, Bench
from autoresearch.core.history import History

RUNS = 4
"""Measurements where nobody says how many."""

REPETITIONS, SLOW_REPETITIONS = 1000, 200
"""Simulated candidates for one rate; fewer of a policy that is not known to judge a look in microseconds."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the replicates so far tell; effects are in the metric's unit.

    Attributes:
        noise: Spread between two measurements of one artifact, from every replicate of the run.
        false_keeps: How often the policy keeps a change that changes nothing; None where the metric repeats exactly.
        smallest_effect: The smallest effect that it keeps with 80 % power; None where it sees none, or the metric
            repeats exactly.
    """

    noise: Noise
    false_keeps: float | None
    smallest_effect: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What measuring the incumbent again and again showed.

    Attributes:
        run: Id of the run.
        number: The experiment that brought the incumbent; 0 is the baseline.
        values: What was measured, by seed.
        measured: How many of these were measured in this call; others were read back.
        assessment: What these and every other replicate of the run tell; None before two values are there.
        complete: False where it was stopped before all was measured.
    """

    run: str
    number: int
    values: tuple[float, ...]
    measured: int
    assessment: Assessment | None
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
    known = assess(bench.policy, bench.metric, bench.history())
    if known is not None:
        bench.ledger.update_run(bench.run.id, noise_sd=known.noise.sd, noise_dof=known.noise.dof)
    return Calibration(bench.run.id, incumbent.number, tuple(values), bench.taken, known, complete)


def assess(policy: Policy, metric: Metric, history: History) -> Assessment | None:
    """Return the noise that a run knows of, and what `policy` makes of it; None where nothing was measured twice.

    Args:
        policy: The run's policy.
        metric: What is measured.
        history: At least the measured baseline.

    Raises:
        UsageError: If the policy cannot judge this metric.
    """
    noise = memory.noise_of(metric, history.measurements, history.calibration)
    if noise is None or noise.sd == 0:
        return None if noise is None else Assessment(noise, None, None)
    baseline = memory.baseline_value(history.experiments, history.measurements)
    first = memory.undisturbed(history.measurements[history.experiments[0].id])
    repetitions = REPETITIONS if isinstance(policy, BayesPolicy | GreedyPolicy) else SLOW_REPETITIONS
    setting = Setting(policy, metric, noise, baseline or 0.0, len(first), repetitions)
    try:
        return Assessment(noise, keep_rate(setting, 0.0), smallest_seen(setting))
    except ValueError as error:
        raise UsageError(f"The policy {policy.name} cannot judge this metric: {error}") from error


def sentence(known: Assessment, metric: Metric, policy: str) -> str:
    """Return in a line or two what a run can see, for its beginning."""
    if known.noise.sd == 0:
        return f"{metric.name} repeats exactly here: every difference on this data is real."
    text = f"Noise of one measurement: {known.noise.sd:.2g} {metric.unit}".rstrip()
    text += f", known to about {relative_error(known.noise):.0%}. With it {policy} keeps "
    text += f"{known.false_keeps:.0%} of changes that change nothing, and "
    if known.smallest_effect is None:
        return text + "sees no effect of any size with 80 % power; more --baseline-runs may help."
    effect = f"{known.smallest_effect:.2g} {metric.unit}".rstrip()
    return text + f"sees an improvement of {effect} with 80 % power (autoresearch calibrate tells more)."


def relative_error(noise: Noise) -> float:
    """Return the relative standard error of a standard deviation with so many degrees of freedom."""
    return float((2.0 * noise.dof) ** -0.5)


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
