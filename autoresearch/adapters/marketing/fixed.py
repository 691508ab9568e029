"""Figures of fixed-sample statistics, for comparison: z, p and sample sizes as other tools print them.

Nothing here decides. A z test is valid at one moment fixed beforehand, and its p-value says so only there; keep and
revert come from the race. These numbers are shown so that a person can check our arithmetic against a tool they know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist

from autoresearch.core import ArmTotals

_NORMAL = NormalDist()


class NullVariance(Enum):
    """Which rate the variance under "no effect" is taken from; calculators differ by this and hide it."""

    CONTROL = "control"  # both arms at the control's rate: 7,663 for 5 % to 6 %
    POOLED = "pooled"  # both arms at the mean of the two rates: 8,158


@dataclass(frozen=True, slots=True)
class ZTest:
    """Two proportions compared once.

    Attributes:
        lift: rate(treatment) / rate(control) - 1; infinity where the control has no conversion.
        z: Difference over its standard error under the pooled rate; positive where the treatment is higher.
        p: Two-sided p-value.
    """

    lift: float
    z: float
    p: float


def z_test(control: ArmTotals, treatment: ArmTotals) -> ZTest:
    """Return the pooled z test of two proportions.

    Raises:
        ValueError: If an arm is empty, or nobody or everybody converted.
    """
    if control.n <= 0 or treatment.n <= 0:
        raise ValueError("Both arms need people before their rates can be compared.")
    pooled = (control.total + treatment.total) / (control.n + treatment.n)
    variance = pooled * (1.0 - pooled) * (1.0 / control.n + 1.0 / treatment.n)
    if variance <= 0.0:
        raise ValueError(
            "Nobody or everybody converted in both arms, so there is no spread to compare a difference to."
        )
    z = (treatment.mean - control.mean) / math.sqrt(variance)
    lift = treatment.mean / control.mean - 1.0 if control.total else math.inf
    return ZTest(lift, z, 2.0 * _NORMAL.cdf(-abs(z)))


def split_p(counts: Sequence[int], split: Sequence[float] | None = None) -> float:
    """Return the p-value of Pearson's chi-square test that units came to the arms with the shares `split`.

    Valid for one look. The gate of a running test is `autoresearch.core.decision.gates.split_gate`.

    Args:
        counts: Units per arm, two arms at least, somebody in one of them.
        split: Intended shares, positive, summing to 1; None: equal.
    """
    from scipy.stats import chi2

    shares = [1.0 / len(counts)] * len(counts) if split is None else list(split)
    total = sum(counts)
    statistic = sum((count - total * share) ** 2 / (total * share) for count, share in zip(counts, shares, strict=True))
    return float(chi2.sf(statistic, len(counts) - 1))


def sample_size(
    baseline: float,
    lift: float,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    variance: NullVariance = NullVariance.CONTROL,
) -> int:
    """Return units per arm for a two-sided z test, fixed beforehand and looked at once.

    (z_(alpha/2) sqrt(V0) + z_power sqrt(V1))² / difference², where V1 is the sum of both arms' variances and V0 twice
    the variance of the rate that `variance` names; to the nearest unit, as other calculators round it.

    Args:
        baseline: Rate of the control.
        lift: Relative difference to be found, not 0.
        alpha: Two-sided error rate.
        power: Chance of finding it.
        variance: Where the variance under "no effect" is taken from.

    Raises:
        ValueError: If a rate is out of its range.
    """
    higher = baseline * (1.0 + lift)
    if not (0.0 < baseline < 1.0 and 0.0 < higher < 1.0 and lift != 0.0):
        raise ValueError(
            f"A baseline of {baseline:g} with a lift of {lift:+g} is no pair of different rates between 0 and 1."
        )
    if not (0.0 < alpha < 1.0 and 0.0 < power < 1.0):
        raise ValueError(f"alpha and power lie between 0 and 1, and are {alpha:g} and {power:g}.")
    both = baseline * (1.0 - baseline) + higher * (1.0 - higher)
    middle = (baseline + higher) / 2.0
    null = 2.0 * (baseline * (1.0 - baseline) if variance is NullVariance.CONTROL else middle * (1.0 - middle))
    reach = _NORMAL.inv_cdf(1.0 - alpha / 2.0) * math.sqrt(null) + _NORMAL.inv_cdf(power) * math.sqrt(both)
    return round((reach / (higher - baseline)) ** 2)
