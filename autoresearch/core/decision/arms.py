"""Many arms at once: which treatments are better than the control, and what to do with a list of people that ends.

`judge_arms` races every treatment against the one control. Their e-processes share the control and so depend on each
other, which e-Bonferroni does not mind: each treatment has to reach K/alpha, and then the chance that any of K useless
treatments is ever kept is at most alpha, however often anybody looks.

`plan_finite_list` is for a mailing or any other list of known length: show both arms to a part, then the better-looking
one to all the rest. It maximises the expected total, and controls no error rate: which arm wins is a bet.

Sources: V. Vovk, R. Wang, "E-values: calibration, combination and applications" (2021); E. Feit, R. Berman, "Test &
Roll: profit-maximizing A/B tests" (2019), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Decision
from autoresearch.core.decision.race import Family, Judgement, judge


def judge_arms(families: Mapping[str, Family], alpha: float, beta: float) -> dict[str, Judgement]:
    """Return the verdict on every treatment, each raced against the control at alpha divided by their number.

    Args:
        families: One race per treatment, by its name; all that were begun, those given up included, for leaving out
            the losers afterwards would lower the bar.
        alpha: Chance of keeping any treatment that is not better, at most, over all of them.
        beta: Chance of reverting a treatment that is better by `min_effect`, at most, for each of them: an arm that is
            dropped wrongly costs no more when there are others.

    Raises:
        ValueError: If there is no treatment, or a rate is out of its range.
    """
    if not families:
        raise ValueError("A test of many arms needs one treatment at least beside the control.")
    return {name: judge(family, alpha / len(families), beta) for name, family in families.items()}


def best_kept(judgements: Mapping[str, Judgement]) -> str | None:
    """Return the kept treatment with the highest lower bound, the earlier of equals; None where none is kept.

    The lower bounds hold together at the level of the family, so the choice among the winners needs no correction.
    """
    kept = [name for name, judgement in judgements.items() if judgement.decision is Decision.KEEP]
    return max(kept, key=lambda name: judgements[name].low) if kept else None


@dataclass(frozen=True, slots=True)
class RatePrior:
    """What rates of variants are usually like: normal around `mean`.

    Attributes:
        mean: Usual rate.
        sd: Standard deviation of the true rates of variants around it, above 0.
    """

    mean: float
    sd: float

    def __post_init__(self) -> None:
        if not (0.0 < self.mean < 1.0 and self.sd > 0.0 and math.isfinite(self.sd)):
            raise ValueError(
                f"Rates have a mean between 0 and 1 and a spread above 0, not {self.mean:g} and {self.sd:g}."
            )


@dataclass(frozen=True, slots=True)
class FiniteListPlan:
    """How to spend a list of people that ends.

    Attributes:
        per_arm: People in each of the two arms of the test.
        rolled: People who get the arm that looked better, without being tested.
        expected_rate: Expected conversion rate over the whole list.
        untested_rate: The same when everybody gets one arm that nobody tested.
        perfect_rate: The same when the better arm is known beforehand.
    """

    per_arm: int
    rolled: int
    expected_rate: float
    untested_rate: float
    perfect_rate: float


def plan_finite_list(people: int, prior: RatePrior) -> FiniteListPlan:
    """Return how many of a list of `people` to test on, two arms of equal size, the rest getting the better-looking.

    With noise s² = mean (1 - mean) of one response and r = s²/sd², per_arm = sqrt(people r/4 + (3r/4)²) - 3r/4. That
    grows with the square root of the list, where a test for significance takes the same number whatever the list.

    Args:
        people: Length of the list, 2 at least.
        prior: What rates of variants are usually like; `learned_prior` takes it from earlier tests.

    Raises:
        ValueError: If the list is too short to compare anything.
    """
    if people < 2:
        raise ValueError(f"Two arms need two people at least, and the list has {people}.")
    noise = prior.mean * (1.0 - prior.mean)
    ratio = noise / prior.sd**2
    exact = math.sqrt(people * ratio / 4.0 + (0.75 * ratio) ** 2) - 0.75 * ratio
    per_arm = min(max(round(exact), 1), people // 2)
    rolled = people - 2 * per_arm
    # The better-looking arm's true rate is above the mean by sd²/(sqrt(pi) sqrt(sd² + s²/n)), in expectation.
    gain = prior.sd**2 / math.sqrt(math.pi * (prior.sd**2 + noise / per_arm))
    return FiniteListPlan(
        per_arm,
        rolled,
        prior.mean + rolled / people * gain,
        prior.mean,
        prior.mean + prior.sd / math.sqrt(math.pi),
    )


def learned_prior(arms: Sequence[ArmTotals]) -> RatePrior:
    """Return what earlier arms say about rates: their mean, and their spread with the noise of counting taken off.

    By moments, every arm alike. Take arms of tests on the same audience; another audience has another mean.

    Raises:
        ValueError: If fewer than three arms have people, or their rates spread no more than chance makes them.
    """
    seen = [arm for arm in arms if arm.n > 0]
    if len(seen) < 3:
        raise ValueError(
            f"{len(seen)} earlier arms say nothing about how rates spread; three is the least, and thirty are better.\n"
            "State mean and spread yourself until there are."
        )
    rates = np.array([arm.mean for arm in seen])
    mean = float(rates.mean())
    noise = float(np.mean([mean * (1.0 - mean) / arm.n for arm in seen]))
    variance = float(rates.var(ddof=1)) - noise
    if variance <= 0.0:
        raise ValueError(
            "The rates of the earlier arms spread no more than chance alone would make them, so testing has shown no "
            "gain here yet.\nState a spread yourself, or send everybody the arm that you like."
        )
    return RatePrior(mean, math.sqrt(variance))
