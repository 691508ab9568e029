from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals, Direction, Metric
from autoresearch.core.decision import Decision, Evidence, Look, Noise, PastEvidence, Policy, Verdict
from autoresearch.core.decision.bayes import BayesPolicy, step
from autoresearch.core.decision.effects import EDGE, START_PRIOR, learn_prior

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "bayes_step.json").read_text(encoding="utf-8"))
KNOWN = Noise(1.0, math.inf)
HIGHER = Metric("score", "points", Direction.MAXIMIZE)
STILL = BayesPolicy(drifting=False)
"""On a machine that does not move."""
LOWER = Metric("loss", "nats", Direction.MINIMIZE)


def look(*candidate: float, control: tuple[float, ...] = ()) -> Look:
    return Look(ArmTotals.of("control", control), ArmTotals.of("treatment", candidate))


def past(*candidate: float, kept: bool = False, control: tuple[float, ...] = ()) -> PastEvidence:
    return PastEvidence(look(*candidate, control=control), kept)


def evidence(
    history: list[PastEvidence], *looks: Look, metric: Metric = HIGHER, noise: Noise | None = KNOWN
) -> Evidence:
    return Evidence(metric, looks or (look(0.0),), noise, tuple(history))


@pytest.mark.parametrize("case", VECTORS["cases"])
def test_step_gives_the_known_answers(case: dict[str, float]) -> None:
    """One step of the filter agrees with the published vectors to nine digits."""
    result = step(
        case["mean"],
        case["variance"],
        int(case["k"]),
        case["observed_mean"],
        case["sigma"],
        VECTORS["grid"],
        VECTORS["prior"],
    )
    assert result.p_better == pytest.approx(case["p_better"], rel=1e-9)
    assert result.expected == pytest.approx(case["expected"], rel=1e-9)
    assert list(result.posterior) == pytest.approx(case["posterior"], rel=1e-9)
    assert [result.if_kept.mean, result.if_kept.variance] == pytest.approx(case["if_kept"], rel=1e-9)
    assert [result.if_reverted.mean, result.if_reverted.variance] == pytest.approx(case["if_reverted"], rel=1e-9)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"k": 0}, "k >= 1"),
        ({"sigma": 0.0}, "sigma > 0"),
        ({"variance": -1.0}, "variance"),
        ({"mean": math.nan}, "finite"),
    ],
)
def test_step_refuses_what_is_out_of_range(change: dict[str, float], wrong: str) -> None:
    """A step with impossible numbers is refused by a sentence, not answered with nan."""
    arguments = {"mean": 0.0, "variance": 1.0, "k": 1, "observed_mean": 0.0, "sigma": 1.0} | change
    with pytest.raises(ValueError, match=wrong):
        step(**arguments, grid=[-1.0, 0.0, 1.0], prior=[0.2, 0.5, 0.3])  # type: ignore[arg-type]


@given(
    mean=st.floats(-50, 50),
    variance=st.floats(1e-3, 10),
    k=st.integers(1, 20),
    observed=st.floats(-60, 60),
)
def test_posterior_is_a_distribution_and_variances_stay_positive(
    mean: float, variance: float, k: int, observed: float
) -> None:
    """Whatever is measured, the posterior sums to one and no belief becomes more certain than a variance of zero."""
    result = step(mean, variance, k, observed, 1.0, START_PRIOR.grid, START_PRIOR.weights)
    assert float(result.posterior.sum()) == pytest.approx(1.0)
    assert 0.0 <= result.p_better <= 1.0
    assert result.interval[0] <= result.interval[1]
    assert result.if_kept.variance > 0
    assert result.if_reverted.variance > 0


def test_luck_is_not_carried_on_as_a_bar() -> None:
    """After a keep the incumbent's believed mean lies below the lucky measurement that won."""
    policy, history = BayesPolicy(), [past(0.0), past(3.0, kept=True)]
    assert 0.5 < policy.believed_gain(evidence(history)) < 2.5


def test_start_prior_is_the_stated_one() -> None:
    """The prior begins with 0.05 at zero and 65 parts harm to 15 parts help, with means near 3 and 1.5."""
    grid, weights = START_PRIOR.grid, START_PRIOR.weights
    harm, help_ = grid < 0, grid > 0
    assert float(weights.sum()) == pytest.approx(1.0)
    assert float(weights[grid == 0][0]) == pytest.approx(0.05, abs=1e-5)
    assert float(weights[harm].sum() / weights[help_].sum()) == pytest.approx(65 / 15, rel=1e-3)
    assert float(-grid[harm] @ weights[harm] / weights[harm].sum()) == pytest.approx(3.0, rel=0.05)
    assert float(grid[help_] @ weights[help_] / weights[help_].sum()) == pytest.approx(1.5, rel=0.05)


def test_learned_prior_moves_to_what_was_seen() -> None:
    """After many candidates near +4 the prior expects help, and nothing seen leaves it as it was."""
    learned = learn_prior([(4.0, 1.5)] * 100)
    assert float(learned.weights[learned.grid > 0].sum()) > 0.8
    assert learned.weights.sum() == pytest.approx(1.0)
    assert learn_prior([]) is START_PRIOR


def test_learned_prior_remembers_the_start() -> None:
    """One candidate moves a prior worth twenty by at most one part in twenty-one a step."""
    learned = learn_prior([(4.0, 1.5)], iterations=1)
    assert float(np.abs(learned.weights - START_PRIOR.weights).sum()) / 2 <= 1 / 21


POOR = [past(0.0, 0.0), *(past(-1.5 - index % 3) for index in range(30))]
"""A run in which nothing helped: a fresh candidate is worth little."""


@pytest.mark.parametrize(
    ("value", "decision"), [(6.0, Decision.KEEP), (-2.0, Decision.REVERT), (0.6, Decision.CONTINUE)]
)
def test_clear_cases_are_decided_at_once_and_others_measured_again(value: float, decision: Decision) -> None:
    """Far above is kept, below is reverted, in between is measured again."""
    assert STILL.decide(evidence(POOR, look(value))).decision is decision


def test_no_second_run_where_a_fresh_candidate_is_worth_more() -> None:
    """Where many candidates help much, the same doubtful value is decided after one run."""
    rich = [past(0.0, 0.0), *(past(-2.0) if index % 3 else past(5.0 + index % 2) for index in range(30))]
    doubtful = STILL.decide(evidence(rich, look(1.2)))
    assert doubtful.p_better is not None and 0.5 < doubtful.p_better < 0.8
    assert doubtful.decision is not Decision.CONTINUE


def test_last_look_goes_by_the_sign_of_the_expected_gain() -> None:
    """At the last look a positive expected gain keeps, and a negative one reverts as inconclusive."""
    history = [past(0.0, 0.0)]

    def judge(*values: float) -> Verdict:
        return BayesPolicy(drop_below=0.3).decide(evidence(history, look(values[0]), look(*values)))

    good, poor = judge(1.8, 1.4), judge(0.4, 0.4)
    assert (good.decision, good.inconclusive) == (Decision.KEEP, False)
    assert good.p_better is not None and good.p_better < 0.8
    assert (poor.decision, poor.inconclusive) == (Decision.REVERT, True)
    assert poor.effect is not None and poor.effect <= 0
    assert "too little to tell" in poor.reason


def test_more_looks_can_be_asked_for() -> None:
    """With three looks allowed, the second look of an open case continues."""
    looks = (look(0.6), look(0.6, -0.9))
    assert BayesPolicy(max_looks=3, drifting=False).decide(evidence(POOR, *looks)).decision is Decision.CONTINUE
    assert STILL.decide(evidence(POOR, *looks)).decision is not Decision.CONTINUE


@given(
    st.lists(st.floats(-5, 5, allow_nan=False), min_size=1, max_size=6),
    st.floats(-5, 5),
    st.floats(0.01, 100),
    st.floats(-1000, 1000),
)
def test_direction_unit_and_offset_do_not_matter(values: list[float], new: float, scale: float, offset: float) -> None:
    """Negating every value and the direction, or changing the unit, leaves the verdict."""
    plain = evidence([past(0.0), *(past(v) for v in values)], look(new))
    turned = Evidence(
        LOWER,
        (look(offset - scale * new),),
        Noise(scale, math.inf),
        (past(offset), *(past(offset - scale * v) for v in values)),
    )
    first, second = BayesPolicy().decide(plain), BayesPolicy().decide(turned)
    assert first.p_better == pytest.approx(second.p_better, abs=1e-6)
    assert first.effect is not None and second.effect is not None
    assert first.effect * scale == pytest.approx(second.effect, rel=1e-5, abs=1e-6 * scale)


def test_incumbent_measured_again_updates_its_belief_first() -> None:
    """A candidate that beats the old value of a drifted incumbent is not credited with the drift."""
    without = BayesPolicy().decide(evidence([past(0.0)], look(3.0)))
    with_control = BayesPolicy().decide(evidence([past(0.0)], look(3.0, control=(3.0, 3.0, 3.0))))
    assert without.p_better is not None and with_control.p_better is not None
    assert with_control.p_better < without.p_better - 0.2


def test_crashed_candidates_teach_nothing() -> None:
    """An experiment without measurements leaves the verdict as it is."""
    history = [past(0.0), past(-1.0)]
    assert BayesPolicy().decide(evidence([*history, past()], look(1.0))) == BayesPolicy().decide(
        evidence(history, look(1.0))
    )


@given(st.floats(EDGE + 1, 1e6))
def test_effects_beyond_the_prior_are_taken_at_their_word(effect: float) -> None:
    """A gain far outside the noise is kept with its measured size, and so believed."""
    verdict = BayesPolicy().decide(evidence([past(0.0)], look(effect)))
    assert verdict.decision is Decision.KEEP
    assert verdict.effect == pytest.approx(effect)
    assert BayesPolicy().believed_gain(evidence([past(0.0), past(effect, kept=True)])) == pytest.approx(effect)


def test_disasters_do_not_shift_the_incumbent() -> None:
    """A candidate a thousand noises worse leaves the belief about the incumbent alone."""
    calm = BayesPolicy().decide(evidence([past(0.0)], look(1.0)))
    after = BayesPolicy().decide(evidence([past(0.0), past(-1000.0)], look(1.0)))
    assert calm.effect is not None
    assert after.effect == pytest.approx(calm.effect, abs=0.1)


def test_metric_without_spread_is_decided_exactly() -> None:
    """Where measurements repeat exactly, any improvement is kept, a tie and any loss are reverted."""
    exact = Noise(0.0, 3.0)
    for value, expected in [(1.0 - 1e-6, True), (1.0, False), (1.0 + 1e-6, False)]:
        looks = (look(value), look(value, value))
        verdict = BayesPolicy().decide(evidence([past(1.0)], *looks, metric=LOWER, noise=exact))
        assert (verdict.decision is Decision.KEEP) is expected


def test_few_degrees_of_freedom_make_it_cautious() -> None:
    """The same candidate is less surely better when the noise is known from few replicates only."""
    sure = BayesPolicy().decide(evidence([past(0.0)], look(4.0)))
    unsure = BayesPolicy().decide(evidence([past(0.0)], look(4.0), noise=Noise(1.0, 3.0)))
    assert sure.p_better is not None and unsure.p_better is not None
    assert unsure.p_better < sure.p_better


def test_unknown_noise_is_refused_with_what_to_do() -> None:
    """Without a noise there is no verdict, and the sentence says to measure the baseline twice."""
    with pytest.raises(ValueError, match="at least twice"):
        BayesPolicy().decide(evidence([past(0.0)], noise=None))


def test_missing_baseline_is_refused() -> None:
    """Without a baseline nothing can be compared."""
    with pytest.raises(ValueError, match="no baseline"):
        BayesPolicy().decide(evidence([]))


def test_largest_number_leaves_the_belief_standing() -> None:
    """A diverged candidate whose value overflows in units of the noise is reverted, and the next one judged as ever."""
    small, before = Noise(0.001, math.inf), [past(1.0, 1.001), past(1.1, kept=True)]
    diverged = BayesPolicy().decide(evidence(before, look(-1.7e308), noise=small))
    assert diverged.decision is Decision.REVERT and diverged.effect is not None and math.isfinite(diverged.effect)
    after = [*before, past(-1.7e308)]
    assert BayesPolicy().decide(evidence(after, look(1.2), noise=small)).decision is Decision.KEEP
    assert BayesPolicy().believed_gain(evidence(after, noise=small)) == pytest.approx(0.1, abs=0.01)


def test_value_that_is_not_finite_is_refused() -> None:
    """A nan that slipped through the gates is not judged."""
    with pytest.raises(ValueError, match="not finite"):
        BayesPolicy().decide(evidence([past(0.0)], look(math.nan)))


def test_unmeasured_candidate_continues() -> None:
    """A look without measurements of the candidate asks for one."""
    assert BayesPolicy().decide(evidence([past(0.0)], look())).decision is Decision.CONTINUE


def test_reason_is_a_plain_sentence() -> None:
    """The reason names probability, number of runs, expected gain and unit; no probability is rounded to certainty."""
    reason = BayesPolicy().decide(evidence([past(0.0, 0.0)], look(6.0))).reason
    assert reason.startswith("P(better) >.99 from 1 run; expected gain ")
    assert reason.endswith(" points.")


def test_interval_and_probability_agree() -> None:
    """The interval excludes zero from below exactly where P(better) is above 95 %."""
    for value in np.linspace(-3, 6, 40):
        verdict = BayesPolicy().decide(evidence([past(0.0)], look(float(value))))
        assert verdict.interval is not None and verdict.p_better is not None
        assert (verdict.interval[0] > 0) is (verdict.p_better > 0.95)


def simulate(policy: Policy, seed: int, *, help_share: float, budget: int = 60) -> tuple[float, float]:
    """Return (true, believed) gain of a run of `budget` measurements with noise 1."""
    rng = np.random.default_rng(seed)
    history, used, true = [past(float(rng.normal()))], 1, 0.0
    while used < budget:
        is_help, size = rng.random() < help_share, rng.exponential()
        effect = 0.0 if help_share == 0 else 0.6 * size if is_help else -2.0 * size
        values: dict[str, list[float]] = {"control": [], "treatment": []}
        looks: list[Look] = []
        verdict = Verdict(Decision.CONTINUE, "")
        while verdict.decision is Decision.CONTINUE and used < budget:
            for arm in verdict.measure:
                values[arm].append(true + effect * (arm == "treatment") + float(rng.normal()))
                used += 1
            looks.append(look(*values["treatment"], control=tuple(values["control"])))
            verdict = policy.decide(evidence(history, *looks))
        kept = verdict.decision is Decision.KEEP
        true += effect * kept
        history.append(PastEvidence(looks[-1], kept))
    return true, policy.believed_gain(evidence(history))


def test_believed_gain_is_near_the_true_one() -> None:
    """Over runs with small effects, what is believed and what is true agree within their spread."""
    runs = np.array([simulate(BayesPolicy(), seed, help_share=0.2) for seed in range(12)])
    error = runs[:, 1] - runs[:, 0]
    assert abs(error.mean()) < 4 * error.std() / math.sqrt(12)
    assert runs[:, 0].mean() > 1.5


def test_claims_little_where_nothing_helps() -> None:
    """When no candidate has any effect, the believed gain is under 0.8 noise units on average."""
    assert np.mean([simulate(BayesPolicy(), seed, help_share=0.0)[1] for seed in range(12)]) < 0.8


def in_block(history: list[PastEvidence], block: int, *looks: Look) -> Evidence:
    return Evidence(HIGHER, looks, KNOWN, tuple(history), block)


def test_after_a_pause_the_incumbent_is_measured_again_unless_the_case_is_clear() -> None:
    """In a new block a promising candidate asks for the control; a hopeless and an overwhelming one do not."""
    policy = BayesPolicy()
    asked = policy.decide(in_block(POOR, 1, look(2.0)))
    assert (asked.decision, asked.measure) == (Decision.CONTINUE, ("control",))
    assert policy.decide(in_block(POOR, 1, look(-3.0))).decision is Decision.REVERT
    assert policy.decide(in_block(POOR, 1, look(20.0))).decision is Decision.KEEP


def test_a_pause_that_moved_the_machine_is_not_booked_on_a_candidate() -> None:
    """A candidate that looks better by what the incumbent gained too is not kept; without the control it would be."""
    higher = look(3.0, control=(3.1,))
    assert BayesPolicy().decide(in_block(POOR, 1, look(3.0), higher)).decision is not Decision.KEEP
    assert STILL.decide(in_block(POOR, 1, look(3.0))).decision is Decision.KEEP


def test_drift_is_no_gain() -> None:
    """The incumbent found higher than it was is the machine's doing: the believed gain stays where it was."""
    history = [past(0.0, 0.0), past(4.0, kept=True)]
    before = BayesPolicy().believed_gain(evidence(history))
    moved = PastEvidence(look(1.0, control=(9.0, 9.2)), kept=False, block=1)
    assert BayesPolicy().believed_gain(evidence([*history, moved])) == pytest.approx(before, abs=0.5)


def test_runs_of_the_incumbent_are_no_looks_of_the_candidate() -> None:
    """With two looks allowed a candidate gets its second run although the incumbent was measured in between."""
    looks = (look(0.6), look(0.6, control=(0.0,)))
    again = BayesPolicy().decide(in_block(POOR, 0, *looks))
    assert (again.decision, again.measure) == (Decision.CONTINUE, ("treatment",))


def test_the_unsure_incumbent_is_measured_rather_than_the_candidate() -> None:
    """Where little is known of the incumbent and much of the candidate, its own run says more of the difference."""
    policy = BayesPolicy(max_looks=6, drop_below=0.1, keep_at=0.95)
    unsure = [past(0.0), PastEvidence(look(-1.0), False, block=1)]
    candidate = tuple(look(*[0.8] * n) for n in range(1, 6))
    verdict = policy.decide(Evidence(HIGHER, candidate, Noise(1.0, math.inf), tuple(unsure), 1))
    assert (verdict.decision, verdict.measure) == (Decision.CONTINUE, ("control",))


def test_shared_seeds_make_one_run_tell_more() -> None:
    """Told that most of the noise comes with the seed, the same small gain is surer; told of none, nothing changes."""
    history = [past(0.0), *(past(-1.0 - n % 3) for n in range(10))]
    plain, shared, none = (
        BayesPolicy().decide(evidence(history, look(1.0), noise=Noise(1.0, math.inf, seed))) for seed in (0.0, 0.9, 0.0)
    )
    assert plain == none
    assert shared.p_better is not None and plain.p_better is not None
    assert shared.p_better > plain.p_better
