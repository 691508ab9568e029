from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.core.adapter import Direction, Measurement
from autoresearch.core.decision.early import CHANCE, Duel, EarlyRule, watching

POINTS = [step / 100 for step in range(1, 101)]
NOISE = 0.003


def level(share: float) -> float:
    """The incumbent's curve: 3.5 at the start, 1.8 at the end, flattening."""
    return 1.8 + 1.7 * (1 - share) ** 3


GAINED = level(1 / 3) - level(1.0)
"""What the incumbent gains after the first third of its budget: 0.50."""


def training(gap: Callable[[float], float], *, seed: int = 0, final: float | None = None) -> Measurement:
    """A training that is `gap(share)` behind the incumbent at every share."""
    curve = tuple((share, level(share) + gap(share)) for share in POINTS)
    return Measurement(level(1.0) + (gap(1.0) if final is None else final), seed, 10.0, curve=curve)


def closing_to(part: float, wide: float) -> Callable[[float], float]:
    """A gap that is `wide` times what the incumbent gains from a third on, and `part` of that at the end."""
    start = wide * GAINED
    return lambda share: start * (1 - (1 - part) * max(0.0, share - 0.4) / 0.6)


INCUMBENT = [training(lambda share: 0.0), training(lambda share: NOISE, seed=1)]


def lessons(parts: Sequence[float], wide: float = 0.6) -> list[Duel]:
    """Finished candidates that were behind, and what part of their gap was left at the end."""
    return [Duel(training(closing_to(part, wide)), tuple(INCUMBENT)) for part in parts]


TIDY = lessons([0.35, 0.4, 0.45, 0.4, 0.35, 0.45] * 3)


def rule(past: Sequence[Duel] = TIDY) -> EarlyRule:
    return EarlyRule(Direction.MINIMIZE, INCUMBENT, past, noise=NOISE)


def cut_at(judge: EarlyRule, run: Measurement) -> float | None:
    """Return the share at which a measurement would be cut."""
    hopeless = watching(judge, run.seed)
    return next((share for share, value in run.curve if hopeless(share, value) is not None), None)


def test_a_wide_gap_that_stays_is_cut_when_past_gaps_stayed() -> None:
    """Nothing is judged before a third of the budget, and such a gap needs no more than that."""
    found = cut_at(rule(), training(lambda share: 1.0))
    assert found is not None
    assert 1 / 3 <= found < 0.4


def test_the_reason_is_a_sentence_in_figures() -> None:
    """It says when, how far, against what spread and what still came, and by how many candidates that was learned."""
    run = training(lambda share: 1.0)
    reason = rule().judge(run.curve[:50], 0)
    assert reason is not None
    assert "after 50% of the budget its curve is 1 behind the incumbent's" in reason
    assert "333 times the spread" in reason
    assert "(worth 17.9 wide ones), its chance of ending better is" in reason


@given(gap=st.floats(-100, 2.2), share=st.integers(34, 90))
def test_before_any_candidate_has_ended_no_common_gap_is_wide_enough(gap: float, share: int) -> None:
    """What gaps come to is learned; until then only one of 2.5 times all that the incumbent gained is hopeless."""
    outlook = rule([]).outlook(training(lambda _: gap * GAINED).curve[:share], 0)
    assert outlook is not None
    assert outlook.chance > CHANCE


def test_a_monstrous_gap_is_cut_at_once() -> None:
    """Five times all that the incumbent gains after its first third needs no experience."""
    assert cut_at(rule([]), training(lambda _: 5 * GAINED)) is not None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_tidy_candidates_do_not_teach_enough(count: int) -> None:
    """Three gaps that came to the same are no law."""
    assert cut_at(rule(lessons([0.4] * count)), training(lambda _: GAINED)) is None


@settings(max_examples=30)
@given(behind=st.floats(0.05, 0.24), turn=st.floats(0.5, 0.95))
def test_a_late_bloomer_within_reach_is_never_cut(behind: float, turn: float) -> None:
    """A candidate that holds its rates up is behind until its turn comes, and then gains what the incumbent cannot."""
    late = training(lambda share: behind * GAINED - (behind * GAINED + 0.02) * max(0.0, share - turn) / (1 - turn))
    assert late.value < level(1.0)
    assert cut_at(rule(), late) is None


@settings(max_examples=30)
@given(wide=st.floats(0.3, 1.0), end=st.floats(-0.3, -0.01))
def test_a_long_warm_up_is_not_cut_while_it_catches_up(wide: float, end: float) -> None:
    """However wide its gap, a candidate whose gap closes in time is let run."""
    assert cut_at(rule(), training(lambda share: wide + (end - wide) * share)) is None


def test_a_late_bloomer_that_was_seen_makes_the_rule_careful() -> None:
    """One wide gap that ended as a gain raises the chance of all that come after it."""
    curve = training(lambda share: 0.3).curve[:50]
    before, after = rule().outlook(curve, 0), rule([*TIDY, *lessons([-0.5])]).outlook(curve, 0)
    assert before is not None
    assert after is not None
    assert before.chance < CHANCE < after.chance


def test_gaps_that_mean_nothing_cut_nobody() -> None:
    """Where what was far behind ended anywhere, no gap is hopeless."""
    scattered = lessons([-1.0, 1.5, 0.2, -0.5, 2.0, 0.0, 1.0, -0.2, 0.8, -1.2] * 3)
    assert cut_at(rule(scattered), training(lambda share: 1.0)) is None


def test_gaps_within_the_noise_teach_nothing() -> None:
    """A candidate as good as the incumbent says nothing about what becomes of wide gaps."""
    outlook = rule(lessons([0.4] * 20, wide=0.005)).outlook(training(lambda share: 1.0).curve[:50], 0)
    assert outlook is not None
    assert outlook.taught_by < 1


def test_two_bad_points_are_not_enough() -> None:
    """A curve is averaged over a stretch, and several points in a row must say the same."""
    run = training(lambda share: 0.0)
    judge = rule()
    spiked = [(share, value + (30.0 if share in (0.5, 0.51) else 0.0)) for share, value in run.curve]
    assert judge.judge(spiked[:50], 0) is None
    assert judge.judge(spiked[:51], 0) is None


def test_nothing_is_judged_before_a_third_or_near_the_end() -> None:
    """Early points say little, and late cuts save little."""
    curve = training(lambda share: 100.0).curve
    assert [rule().outlook(curve[:end], 0) is None for end in (10, 33, 34, 90, 91, 100)] == [
        *(True, True),
        *(False, False),
        *(True, True),
    ]


def test_where_higher_is_better_the_mirrored_curve_is_judged_alike() -> None:
    """The direction is applied once: mirrored data and direction give the same chance."""

    def mirrored(run: Measurement) -> Measurement:
        return Measurement(-run.value, run.seed, 1.0, curve=tuple((share, -value) for share, value in run.curve))

    incumbent = [mirrored(run) for run in INCUMBENT]
    past = [Duel(mirrored(duel.candidate), tuple(incumbent)) for duel in TIDY]
    run = training(lambda share: 0.3)
    there = rule().outlook(run.curve[:50], 0)
    here = EarlyRule(Direction.MAXIMIZE, incumbent, past, noise=NOISE).outlook(mirrored(run).curve[:50], 0)
    assert there is not None
    assert here is not None
    assert here.chance == pytest.approx(there.chance)
    assert here.behind == pytest.approx(there.behind)


def test_the_unit_of_the_curve_does_not_matter() -> None:
    """Everything is counted in what the incumbent still gained."""

    def scaled(run: Measurement) -> Measurement:
        return Measurement(1000 * run.value, run.seed, 1.0, curve=tuple((s, 1000 * v) for s, v in run.curve))

    incumbent = [scaled(run) for run in INCUMBENT]
    past = [Duel(scaled(duel.candidate), tuple(incumbent)) for duel in TIDY]
    run = training(lambda share: 0.3)
    one = rule().outlook(run.curve[:50], 0)
    other = EarlyRule(Direction.MINIMIZE, incumbent, past, noise=1000 * NOISE).outlook(scaled(run).curve[:50], 0)
    assert one is not None
    assert other is not None
    assert other.chance == pytest.approx(one.chance)


def test_the_incumbents_curve_of_the_same_seed_is_the_one_beside() -> None:
    """Common random numbers make the gap of two curves steadier."""
    incumbent = [training(lambda share: 0.0), training(lambda share: 0.2, seed=1)]
    curve = training(lambda share: 0.2).curve[:50]
    judge = EarlyRule(Direction.MINIMIZE, incumbent, [], noise=NOISE)
    behind = [outlook.behind for seed in (0, 1, 2) if (outlook := judge.outlook(curve, seed)) is not None]
    assert behind == pytest.approx([0.2, 0.0, 0.1])


@pytest.mark.parametrize("part", ["no curve", "no spread", "flat", "short"])
def test_what_cannot_be_compared_is_not_judged(part: str) -> None:
    """Without a curve, a spread or a gain of the incumbent there is no yardstick."""
    runs = INCUMBENT
    curve = training(lambda share: 100.0).curve[:50]
    if part == "no curve":
        runs = [Measurement(1.8, 0, 1.0)]
    elif part == "flat":
        runs = [Measurement(1.8, 0, 1.0, curve=tuple((share, 1.8) for share in POINTS))]
    elif part == "short":
        runs = [Measurement(1.8, 0, 1.0, curve=run.curve[:20]) for run in INCUMBENT]
    if part == "no spread":
        runs = runs[:1]
    judge = EarlyRule(Direction.MINIMIZE, runs, TIDY, noise=0.0 if part == "no spread" else NOISE)
    assert judge.outlook(curve, 0) is None
    assert judge.judge(curve, 0) is None


def test_the_chance_without_lessons_is_the_priors() -> None:
    """By hand, for a gap x below g: 0.5 x against a t of 6 degrees with scale sqrt(n^2 + (x / 4)^2 (1 + 1 / 4))."""
    outlook = rule([]).outlook(training(lambda _: 0.4).curve[:50], 0)
    assert outlook is not None
    t = 0.5 * 0.4 / math.sqrt(2.5 * NOISE**2 + 0.1**2 * 1.25)
    # Distribution function of Student's t with 6 degrees of freedom in closed form (Abramowitz and Stegun, 26.7.4).
    cosine = 6 / (6 + t * t)
    inside = math.sqrt(1 - cosine) * (1 + cosine / 2 + 3 * cosine**2 / 8)
    assert outlook.chance == pytest.approx((1 - inside) / 2)


def test_few_of_the_cut_would_have_ended_better() -> None:
    """In a world where gaps come to 40 % give or take 15, at most 1 in 50 of those cut was better in truth."""
    randomness = random.Random(5)
    past: list[Duel] = []
    cut, wrong = 0, 0
    for _ in range(150):
        wide, part = abs(randomness.gauss(0, 1.0)), randomness.gauss(0.4, 0.15)
        run = training(closing_to(part, wide), final=part * wide * GAINED + randomness.gauss(0, NOISE))
        if cut_at(rule(past), run) is None:
            past.append(Duel(run, tuple(INCUMBENT)))
            continue
        cut += 1
        wrong += run.value < level(1.0)
    assert cut > 30
    assert wrong <= cut / 50
