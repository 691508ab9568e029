"""The map of what resonates, on tests whose truth is known and on the real archive."""

from __future__ import annotations

import json
import os
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from autoresearch.adapters.marketing.archive import headline_tests, read_archive
from autoresearch.adapters.marketing.opinion import score_opinion
from autoresearch.adapters.marketing.past_tests import Pairs, PastArm, PastTest, from_archive, recall, remember
from autoresearch.adapters.marketing.resonance import Level, ResonanceMap, make_map
from autoresearch.adapters.marketing.resonance_picture import picture
from autoresearch.core import UsageError

TRUTH = {"question": -0.25, "you": 0.2}
NOTHING = [f"nothing{number}" for number in range(10)]


def tagger(text: str) -> Mapping[str, float]:
    """Tag a text with the words in it."""
    words = text.split()
    return {name: float(name in words) for name in (*TRUTH, *NOTHING)}


def simulated(
    count: int, *, effects: Mapping[str, float], spread: float, arms: int = 4, n: int = 4000, seed: int = 1
) -> list[PastTest]:
    """Return tests with known effects on the log of the rate, and texts that differ beyond them by `spread`."""
    rng, tests = np.random.default_rng(seed), []
    for number in range(count):
        level, made = rng.normal(-3.5, 0.4), []
        for _ in range(arms):
            words = [name for name in (*TRUTH, *NOTHING) if rng.random() < 0.3]
            log_rate = level + sum(effects.get(word, 0.0) for word in words) + rng.normal(0.0, spread)
            made.append(PastArm({"headline": " ".join(words)}, n, int(rng.binomial(n, min(np.exp(log_rate), 1.0)))))
        tests.append(PastTest(f"t{number:04}", f"{number:04}", tuple(made)))
    return tests


@pytest.fixture(scope="module")
def known() -> ResonanceMap:
    return make_map(simulated(300, effects=TRUTH, spread=0.2), tagger)


def test_known_effects_become_rules(known: ResonanceMap) -> None:
    """What is true of every test is found, replicated, and has its true size."""
    rules = {effect.tag: effect for effect in known.of(Level.RULE)}
    assert set(rules) == set(TRUTH)
    for name, truth in TRUTH.items():
        assert rules[name].shrunk == pytest.approx(np.expm1(truth), abs=0.05)
    assert known.effects[: len(rules)] == tuple(rules.values())


def test_the_spread_beyond_tags_is_found(known: ResonanceMap) -> None:
    """What is special about a text is told from counting noise."""
    assert known.spread == pytest.approx(0.2, abs=0.02)
    assert make_map(simulated(300, effects=TRUTH, spread=0.0), tagger).spread < 0.06


def test_intervals_hold_the_truth() -> None:
    """Of 120 intervals of 90 % about 108 hold the true effect."""
    held = 0
    for seed in range(60):
        found = make_map(simulated(60, effects=TRUTH, spread=0.2, seed=seed), tagger).effects
        held += sum(one.low < np.expm1(TRUTH[one.tag]) < one.high for one in found if one.tag in TRUTH)
    assert 98 <= held <= 118


def test_effects_of_nothing_are_shrunk(known: ResonanceMap) -> None:
    """Tags without an effect stay candidates and lose half their size, beside real ones and alone."""
    beside = [effect for effect in known.effects if effect.tag in NOTHING]
    assert {effect.level for effect in beside} == {Level.CANDIDATE}
    assert sum(abs(effect.shrunk) for effect in beside) < sum(abs(effect.raw or 1.0) for effect in beside) / 2
    alone = make_map(simulated(100, effects={}, spread=0.2), tagger).effects
    raw = [abs(effect.raw) for effect in alone if effect.raw is not None]
    assert len(raw) == len(NOTHING) + len(TRUTH)
    assert sum(abs(effect.shrunk) for effect in alone) < sum(raw) / 2


def test_claims_of_nothing_are_rare() -> None:
    """Over 60 maps of texts that differ by more than their tags, at most 5 in 100 claim anything; none makes a rule."""
    maps = [make_map(simulated(40, effects={}, spread=0.3, seed=seed), tagger) for seed in range(60)]
    claiming = sum(any(effect.level is not Level.CANDIDATE for effect in made.effects) for made in maps)
    assert claiming <= 60 * 0.05 + 3 * (60 * 0.05 * 0.95) ** 0.5
    assert not any(made.of(Level.RULE) for made in maps)


def test_foresight_is_that_of_the_earlier_half(known: ResonanceMap) -> None:
    """Where tags matter, a map of the earlier half orders the later; where they do not, it does not."""
    assert known.foresight is not None
    assert known.foresight.tests == 150
    assert known.foresight.low > 0.1
    blind = make_map(simulated(300, effects={}, spread=0.2, seed=3), tagger).foresight
    assert blind is not None
    assert blind.low <= 0.0 <= blind.high


def test_levels_of_tests_do_not_matter() -> None:
    """Only differences inside a test count: another rate of one whole test leaves the effects where they are."""
    tests = simulated(40, effects=TRUTH, spread=0.0, n=10**6)
    doubled = [
        PastTest(test.id, test.when, tuple(PastArm(arm.slots, arm.n, 2 * arm.conversions) for arm in test.arms))
        for test in tests
    ]
    first, second = make_map(tests, tagger), make_map(doubled, tagger)
    for one in first.effects:
        other = next(effect for effect in second.effects if effect.tag == one.tag)
        assert other.shrunk == pytest.approx(one.shrunk, abs=0.01)


def test_a_test_counts_once() -> None:
    """The same test given twice makes the same map."""
    tests = simulated(20, effects=TRUTH, spread=0.1)
    assert make_map([*tests, *tests], tagger) == make_map(tests, tagger)


def test_arms_that_nobody_saw_are_left_out() -> None:
    """An arm without units says nothing, and a test with one arm left is none."""
    tests = simulated(10, effects=TRUTH, spread=0.1)
    unseen = PastTest("x", "x", (tests[0].arms[0], PastArm({"headline": "you"}, 0, 0)))
    assert make_map([*tests, unseen], tagger).tests == 10


def test_too_few_tests_are_refused() -> None:
    """Two tests are no map, and the message says where more come from."""
    with pytest.raises(UsageError, match="at least, and there are 2"):
        make_map(simulated(2, effects={}, spread=0.1), tagger)


def test_texts_without_differences_have_an_empty_map() -> None:
    """Where no tag ever differs within a test there is no effect to speak of."""
    same = make_map(simulated(5, effects={}, spread=0.1), lambda text: {"always": 1.0})
    assert same.effects == ()
    assert "nothing that could be told from chance yet" in same.for_prompt()
    assert picture(same).startswith("<svg")


def test_tags_that_always_go_together_are_not_told_apart() -> None:
    """Two names for one tag share its effect, and neither is claimed or given an unshrunk size."""
    twin = make_map(
        simulated(60, effects=TRUTH, spread=0.1), lambda text: {**tagger(text), "twin": tagger(text)["question"]}
    )
    pair = [effect for effect in twin.effects if effect.tag in ("question", "twin")]
    assert [effect.raw for effect in pair] == [None, None]
    assert {effect.level for effect in pair} == {Level.CANDIDATE}
    assert pair[0].shrunk == pytest.approx(pair[1].shrunk, rel=1e-3)
    assert (1 + pair[0].shrunk) * (1 + pair[1].shrunk) == pytest.approx(np.exp(TRUTH["question"]), abs=0.1)


def test_slots_have_effects_of_their_own() -> None:
    """A tag in the headline and the same tag on the button are two effects."""
    rng, tests = np.random.default_rng(2), []
    for number in range(120):
        arms = []
        for _ in range(2):
            headline, button = ("you" if rng.random() < 0.5 else "x" for _ in range(2))
            rate = 0.05 * (1.3 if headline == "you" else 1.0)
            arms.append(PastArm({"headline": headline, "button": button}, 5000, int(rng.binomial(5000, rate))))
        tests.append(PastTest(str(number), f"{number:03}", tuple(arms)))
    effects = {effect.tag: effect for effect in make_map(tests, tagger).effects}
    assert effects["headline:you"].level is Level.RULE
    assert effects["button:you"].level is Level.CANDIDATE


def test_the_prompt_tells_the_levels_apart(known: ResonanceMap) -> None:
    """A writer reads rules as rules and hints as hints, the same text each time, and nothing of tags without effect."""
    text = known.for_prompt()
    assert text == known.for_prompt()
    assert "- rule (replicated): question -2" in text
    assert "no instruction" in text
    assert text.count("hint (unproven)") <= 3


def test_json_table_and_picture_show_the_same(known: ResonanceMap) -> None:
    """Every effect is in all three, and the picture is well-formed, escaped and fetches nothing."""
    plain = json.loads(json.dumps(known.as_json()))
    assert [effect["tag"] for effect in plain["effects"]] == [effect.tag for effect in known.effects]
    assert plain["effects"][0]["level"] == "rule"
    table, drawn = known.table(), picture(known)
    root = ElementTree.fromstring(drawn)
    assert len(root.findall("{http://www.w3.org/2000/svg}g")) == len(known.effects)
    assert all(effect.tag in table and effect.tag in drawn for effect in known.effects)
    assert drawn.count("http") == 1
    nasty = make_map(simulated(5, effects={}, spread=0.1), lambda text: {"<b>&": float("you" in text)})
    assert "<b>" not in picture(nasty)


def test_predictions_order_ideas(known: ResonanceMap) -> None:
    """A text with what resonates scores above one with what does not."""
    scores = [known.predict({"headline": text}, tagger) for text in ("you", "", "question")]
    assert scores == sorted(scores, reverse=True)


def test_opinions_are_scored() -> None:
    """A perfect order has correlation 1, its reverse -1, no opinion 0, and a coin's interval holds 0."""
    tests = simulated(40, effects=TRUTH, spread=0.3)
    right = [[arm.conversions / arm.n for arm in test.arms] for test in tests]
    assert score_opinion(tests, right).rho == pytest.approx(1.0, abs=0.01)
    assert score_opinion(tests, [[-score for score in scores] for scores in right]).concordance < 0.02
    silent = score_opinion(tests, [[7.0] * len(test.arms) for test in tests])
    assert (silent.rho, silent.concordance) == (0.0, 0.5)
    coin = random.Random(3)
    tossed = score_opinion(tests, [[coin.random() for _ in test.arms] for test in tests])
    assert tossed.low < 0.0 < tossed.high


def test_tests_with_more_arms_weigh_more() -> None:
    """A pair in the right order and four arms in the wrong one have the correlation (1 - 3) / 4."""
    pair, four = (
        PastTest(str(count), "x", tuple(PastArm({}, 100, 10 + rank) for rank in range(count))) for count in (2, 4)
    )
    found = score_opinion([pair, four], [[1.0, 2.0], [4.0, 3.0, 2.0, 1.0]])
    assert found.rho == pytest.approx(-0.5)
    assert found.concordance == pytest.approx(1 / 7)


def test_the_interval_of_an_opinion_covers() -> None:
    """Of 200 coins, the 90 % interval of about 180 holds 0."""
    tests, coin = simulated(30, effects={}, spread=0.3), random.Random(5)
    scored = [score_opinion(tests, [[coin.random() for _ in test.arms] for test in tests]) for _ in range(200)]
    assert 165 <= sum(one.low <= 0.0 <= one.high for one in scored) <= 195


def test_opinions_must_fit_their_tests() -> None:
    """A score for each arm, and two tests at least."""
    tests = simulated(2, effects={}, spread=0.3)
    with pytest.raises(ValueError, match="has 4 arms and 1 scores"):
        score_opinion(tests, [[1.0], [1.0]])
    with pytest.raises(ValueError, match="two tests at least"):
        score_opinion(tests[:1], [[1.0] * 4])


def test_a_campaign_remembers_its_tests(tmp_path: Path) -> None:
    """What is written down once or twice is recalled once, texts in any language included."""
    tests = simulated(3, effects={}, spread=0.1)
    odd = PastTest(
        "ö", "2026-03-01", (PastArm({"headline": "Größe\u2028zählt\n"}, 5, 1), PastArm({"headline": "b"}, 5, 2))
    )
    for test in (*tests, odd, odd, tests[0]):
        remember(tmp_path / "state", test)
    assert recall(tmp_path / "state") == (*tests, odd)
    assert recall(tmp_path) == ()


def test_a_damaged_memory_names_its_line(tmp_path: Path) -> None:
    """Half a line is not passed over in silence."""
    remember(tmp_path, simulated(1, effects={}, spread=0.1)[0])
    with (tmp_path / "tested.jsonl").open("a") as file:
        file.write('{"id": "x"\n')
    with pytest.raises(UsageError, match="line 2, is damaged"):
        recall(tmp_path)


# The real archive.


@pytest.fixture(scope="module")
def upworthy() -> tuple[tuple[PastTest, ...], tuple[PastTest, ...]]:
    """All tests outside the suspect weeks, and those of headlines alone."""
    path = os.environ.get("AUTORESEARCH_UPWORTHY")
    if not path:
        pytest.skip("AUTORESEARCH_UPWORTHY does not name a file with the Upworthy Research Archive")
    archive = read_archive(Path(path))
    return from_archive(test for test in archive if not test.suspect), from_archive(headline_tests(archive))


def test_known_spread_of_upworthy(upworthy: tuple[tuple[PastTest, ...], ...]) -> None:
    """Best over second best: the true log ratios spread by 0.131, and significant pairs overstate theirs 3.3 times."""
    pairs = Pairs.best_two(upworthy[0])
    assert len(pairs.log_ratio) == 3771
    assert pairs.spread == pytest.approx(0.131, abs=5e-4)
    assert pairs.overstatement == pytest.approx(3.3, abs=0.06)


def test_all_pairs_of_upworthy_spread_more(upworthy: tuple[tuple[PastTest, ...], ...]) -> None:
    """Over all pairs of arms the spread is 0.33, and significant pairs overstate 1.7 times: the best two lie close."""
    pairs = Pairs.all_of(upworthy[0])
    assert pairs.spread == pytest.approx(0.326, abs=0.002)
    assert pairs.overstatement == pytest.approx(1.68, abs=0.02)


def test_questions_do_not_resonate_in_upworthy(upworthy: tuple[tuple[PastTest, ...], ...]) -> None:
    """In the real archive a question lowers the click rate, as a rule, and a map of the earlier half has foresight."""
    found = make_map(upworthy[1])
    rules = {effect.tag: effect for effect in found.of(Level.RULE)}
    assert rules["question"].high < 0.0
    assert found.foresight is not None
    assert found.foresight.low > 0.05
