"""What an audit says of simulated logs whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from autoresearch.core.adapter import Direction
from autoresearch.core.decision import Noise
from autoresearch.core.decision.audit import Audit, Observation, audit, effect_prior
from autoresearch.core.decision.effects import START_PRIOR

Generator = np.random.Generator
UP = Direction.MAXIMIZE
Landscape = Callable[[Generator, int], np.ndarray]
Rule = Callable[[float, float, Generator], bool]


def few_large(rng: Generator, n: int) -> np.ndarray:
    """6 % improve by 5 noises on average, 14 % by 0.6, the rest harm by 3: the design's first landscape."""
    kind = rng.random(n)
    gain = np.where(kind < 0.06, rng.exponential(5.0, n), rng.exponential(0.6, n))
    return np.where(kind < 0.2, gain, -rng.exponential(3.0, n))


def small(rng: Generator, n: int) -> np.ndarray:
    """20 % improve by 0.6 noises on average, the rest harm by 2: the design's second landscape."""
    return np.where(rng.random(n) < 0.2, rng.exponential(0.6, n), -rng.exponential(2.0, n))


def nothing(rng: Generator, n: int) -> np.ndarray:
    """No change has any effect."""
    return np.zeros(n)


@dataclass(frozen=True)
class Simulated:
    """A log under strict improvement with noise 1, its true total, and the true effects of what was kept."""

    log: list[Observation]
    total: float
    effects: list[float]


def strict(value: float, best: float, rng: Generator) -> bool:
    return value > best


def demanding(value: float, best: float, rng: Generator) -> bool:
    return value > best + 1.0


def lenient(value: float, best: float, rng: Generator) -> bool:
    return value > best - 0.5


def vetoing(value: float, best: float, rng: Generator) -> bool:
    return value > best and rng.random() < 0.5


def normal(rng: Generator) -> float:
    return float(rng.normal())


def heavy_tailed(rng: Generator) -> float:
    """Student's t with four degrees of freedom, scaled to the standard deviation 1."""
    return float(rng.standard_t(4)) / math.sqrt(2.0)


def simulate(
    rng: Generator, landscape: Landscape, n: int, rule: Rule = strict, noise: Callable[[Generator], float] = normal
) -> Simulated:
    best, true = noise(rng), 0.0
    log, kept = [Observation(best, True)], []
    for effect in landscape(rng, n):
        value = true + float(effect) + noise(rng)
        keep = rule(value, best, rng)
        log.append(Observation(value, keep))
        if keep:
            best, true = value, true + float(effect)
            kept.append(float(effect))
    return Simulated(log, true, kept)


@cache
def simulations(landscape: Landscape, runs: int = 40, n: int = 80) -> list[Simulated]:
    rng = np.random.default_rng(11)
    found = [simulate(rng, landscape, n) for _ in range(runs)]
    return [one for one in found if one.effects]


@cache
def audits(landscape: Landscape, noise: Noise | None = None) -> list[Audit]:
    return [audit(run.log, UP, noise) for run in simulations(landscape)]


@pytest.mark.parametrize("landscape", [few_large, small, nothing])
@pytest.mark.parametrize("noise", [None, Noise(1.0, math.inf)], ids=["noise from the log", "noise given"])
def test_the_expected_total_is_the_truth_and_the_claimed_one_is_not(landscape: Landscape, noise: Noise | None) -> None:
    """Over greedy runs of known truth, expected is within 0.5 noises of it on average, claimed a whole one above."""
    runs = simulations(landscape)
    found = audits(landscape, noise)
    expected = np.array([one.expected - run.total for one, run in zip(found, runs, strict=True)])
    claimed = np.array([one.claimed - run.total for one, run in zip(found, runs, strict=True)])
    assert abs(expected.mean()) < 0.5
    assert claimed.mean() > 1.0
    assert np.abs(expected).mean() < np.abs(claimed).mean()


@pytest.mark.parametrize(
    ("rule", "noise"), [(strict, heavy_tailed), (demanding, normal), (lenient, normal), (vetoing, normal)]
)
def test_other_rules_and_other_noise_do_not_mislead(rule: Rule, noise: Callable[[Generator], float]) -> None:
    """Whatever the rule of the loop and with heavy tails, expected stays near the truth where claimed does not."""
    rng = np.random.default_rng(2)
    simulated = [simulate(rng, small, 80, rule, noise) for _ in range(25)]
    pairs = [(audit(run.log, UP), run.total) for run in simulated if run.effects]
    assert abs(np.mean([found.expected - total for found, total in pairs])) < 0.6
    assert np.mean([found.claimed - total for found, total in pairs]) > 1.0
    assert np.mean([found.low <= total <= found.high for found, total in pairs]) >= 0.75


@pytest.mark.parametrize("landscape", [few_large, small, nothing])
def test_the_interval_holds_the_truth(landscape: Landscape) -> None:
    """The 90 % interval of the total holds it in at least 80 % of 40 runs, with the noise found in the log."""
    pairs = zip(audits(landscape), simulations(landscape), strict=True)
    held = [found.low <= run.total <= found.high for found, run in pairs]
    assert np.mean(held) >= 0.8


@pytest.mark.parametrize("landscape", [few_large, small])
def test_the_noise_is_found_in_the_log(landscape: Landscape) -> None:
    """On the design's landscapes the estimate is within a quarter of the truth on average, its interval holds it."""
    found = [one.noise for one in audits(landscape)]
    assert np.exp(np.mean([math.log(noise.sd) for noise in found])) == pytest.approx(1.0, rel=0.25)
    assert np.mean([noise.low <= 1.0 <= noise.high for noise in found]) >= 0.8
    assert {noise.source for noise in found} == {"log"}


def test_probabilities_of_keeps_are_calibrated() -> None:
    """As many keeps are truly better as the probabilities sum up to; those that stand out nearly all are."""
    pairs = [
        (keep.p_better, effect > 0, keep.verdict)
        for found, run in zip(audits(few_large), simulations(few_large), strict=True)
        for keep, effect in zip(found.keeps, run.effects, strict=True)
    ]
    assert sum(p for p, _, _ in pairs) == pytest.approx(sum(better for _, better, _ in pairs), rel=0.1)
    outstanding = [better for _, better, verdict in pairs if verdict == "stands out"]
    assert len(outstanding) > 50 and np.mean(outstanding) >= 0.95


def one_log() -> list[Observation]:
    return simulate(np.random.default_rng(3), few_large, 60).log


def test_direction_and_unit_change_nothing() -> None:
    """The same log in another unit and with lower better has the same shares, probabilities and verdicts."""
    log = one_log()
    mirrored = [Observation(7.0 - 0.001 * row.value, row.kept) for row in log]
    first, second = audit(log, UP), audit(mirrored, Direction.MINIMIZE)
    assert second.share == pytest.approx(first.share)
    assert second.noise.sd == pytest.approx(0.001 * first.noise.sd)
    assert [keep.p_better for keep in second.keeps] == pytest.approx([keep.p_better for keep in first.keeps])
    assert [keep.z for keep in second.keeps] == pytest.approx([keep.z for keep in first.keeps])


def test_z_counts_both_measurements() -> None:
    """z is the claimed step over the noise of a difference of two single runs; more runs make it larger."""
    log = [Observation(0.0, True), Observation(3.0, True), Observation(4.0, True, runs=3)]
    first, second = audit(log, UP, Noise(1.0, math.inf)).keeps
    assert first.z == pytest.approx(3.0 / math.sqrt(2.0)) and not first.within_noise
    assert second.z == pytest.approx(1.0 / math.sqrt(4.0 / 3.0)) and second.within_noise


def test_a_lucky_keep_is_paid_back_by_what_follows() -> None:
    """Where every later candidate falls back to the baseline, little of a claimed step is expected to be real."""
    log = [Observation(0.0, True), Observation(2.0, True)]
    alone = audit(log, UP, Noise(1.0, math.inf))
    later = [Observation(value, False) for value in (-0.2, 0.3, 0.1, -0.4, 0.2, -0.1, 0.0, 0.3)]
    followed = audit([*log, *later], UP, Noise(1.0, math.inf))
    assert followed.claimed == alone.claimed == 2.0
    assert followed.expected < alone.expected < 2.0


def test_without_noise_everything_is_real() -> None:
    """A metric that repeats exactly is taken at its word, ties and worsening included."""
    log = [Observation(10.0, True), Observation(12.0, True), Observation(11.0, False), Observation(11.5, True)]
    found = audit(log, UP, Noise(0.0, math.inf))
    assert found.expected == pytest.approx(1.5) and found.low == pytest.approx(1.5, rel=1e-4)
    assert [keep.p_better for keep in found.keeps] == [1.0, 0.0]
    assert [keep.z for keep in found.keeps] == [None, None]
    assert [keep.within_noise for keep in found.keeps] == [False, True]


def test_replicates_sharpen_the_noise() -> None:
    """Twenty degrees of freedom of repeated measurements outweigh what the log alone suggests."""
    log = one_log()
    alone, sharpened = audit(log, UP).noise, audit(log, UP, Noise(2.0, 20.0)).noise
    assert sharpened.source == "replicates"
    assert math.log(sharpened.high / sharpened.low) < math.log(alone.high / alone.low)
    assert abs(math.log(sharpened.sd / 2.0)) < abs(math.log(alone.sd / 2.0))


def test_a_diverged_run_does_not_move_the_noise() -> None:
    """One value a million noises away changes the estimate by less than a tenth."""
    log = one_log()
    diverged = [*log[:20], Observation(-1e6, False), *log[20:]]
    assert audit(diverged, UP).noise.sd == pytest.approx(audit(log, UP).noise.sd, rel=0.1)


def test_effect_priors_are_the_start_prior_stretched() -> None:
    """At scale 1 it is the prior of `bayes`; larger scales have larger effects, and all sum to 1."""
    assert effect_prior(1.0) == pytest.approx(START_PRIOR.weights, rel=1e-12)
    sizes = [float(effect_prior(scale) @ np.abs(START_PRIOR.grid)) for scale in (0.15, 0.4, 1.0, 3.0, 10.0)]
    assert sizes == sorted(sizes)
    assert all(effect_prior(scale).sum() == pytest.approx(1.0) for scale in (0.15, 10.0))


def test_more_candidates_than_are_remembered() -> None:
    """A log of 600 rows is audited as well, with the latest 500 candidates teaching the prior."""
    found = audit(simulate(np.random.default_rng(5), small, 600).log, UP, Noise(1.0, math.inf))
    assert found.candidates == 600 and found.low < found.expected < found.high < found.claimed


@pytest.mark.parametrize(
    ("log", "noise", "said"),
    [
        ([], None, "no measured candidate"),
        ([Observation(1.0, True)], None, "no measured candidate"),
        ([Observation(1.0, True), Observation(2.0, False)], None, "no candidate was kept"),
        ([Observation(1.0, True), Observation(math.nan, True)], None, "cannot be judged"),
        ([Observation(1.0, True), Observation(1.0, True)], None, "repeat the incumbent's value exactly"),
        ([Observation(1.0, True), Observation(2.0, True)], Noise(-1.0, math.inf), "must be zero or a positive number"),
    ],
)
def test_what_cannot_be_audited_is_a_sentence(log: list[Observation], noise: Noise | None, said: str) -> None:
    """Nothing measured, nothing kept, no number, no spread: each has its reason."""
    with pytest.raises(ValueError, match=said):
        audit(log, UP, noise)


def test_luck_and_share_add_up() -> None:
    """Claimed is expected plus luck, and the share is expected over claimed."""
    found: Audit = audit(one_log(), UP)
    assert found.expected + found.luck == pytest.approx(found.claimed)
    assert found.share == pytest.approx(found.expected / found.claimed)
