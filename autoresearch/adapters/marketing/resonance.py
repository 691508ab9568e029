"""The map of what resonates: what kinds of text do better, fitted over all tests at once.

Every tested text is tagged. Within a test, the log of an arm's rate is taken as

    test + sum over tags (tag x effect) + what is special about this text + counting noise,

so that only differences between arms of one test count, and no test's audience is compared with another's. What is
special about a text has a spread of its own, estimated from the data: without it a few large tests would pass their
luck for laws. Effects are shrunk towards zero by as much as all effects together suggest (empirical Bayes, a mixture of
normals over tags in units of their spread within tests). Standard errors are the larger of the model's
and a robust one that lets tests be as different as they are.

Three levels of evidence, which the map never mixes:

- candidate: an estimate, shrunk. Worth trying; most of them are nothing.
- claim: shown over all tests, two-sided 5 % over all tags together (Bonferroni).
- rule: a claim of the earlier half of the tests alone that the later half repeats, one-sided 5 % over those claims.

A tag is a correlate of what somebody wrote, chosen with everything else in the text; not even a rule says that adding
the tag to another text causes the effect. That is what the next test is for.

Sources: R. Paule, J. Mandel (1982) for the spread; H. White (1980) and the cluster form for robust errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.marketing.archive import ARCHIVE_NAME, headline_tests, read_archive
from autoresearch.adapters.marketing.opinion import Agreement, score_opinion
from autoresearch.adapters.marketing.past_tests import PastTest, from_archive, log_rate, log_rate_variance, recall
from autoresearch.adapters.marketing.tagging import ABOUT, Tagger, tag, tag_slots
from autoresearch.core import UsageError

Vector = NDArray[np.float64]

ALPHA = 0.05

_NORMAL = NormalDist()
_LEAST_TESTS = 3
_LEAST_HALF = 10
"""Tests in each half without which nothing can be a rule: robust errors of fewer mean little."""
_TINY = 1e-9
_WIDTHS2 = np.geomspace(1e-3, 1.0, 13) ** 2
"""Squared widths of the normals that the prior of effects is mixed of; logs of rates per spread of a tag."""
_ROUNDS = 60


class Level(Enum):
    """How good the evidence for an effect is."""

    CANDIDATE = "candidate"
    CLAIM = "claim"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Effect:
    """What is known of one tag.

    Attributes:
        tag: Name of the tag.
        level: How good the evidence is.
        shrunk: Expected relative change of the rate with the tag, or with one more unit of a measure (0.05 is 5 %).
        low: Lower end of its 90 % interval.
        high: Upper end.
        raw: The same without shrinkage, None where the tests cannot tell it from other tags.
        z: Raw effect over its standard error, both as logs of rates.
        tests: Tests in which arms differ in the tag.
    """

    tag: str
    level: Level
    shrunk: float
    low: float
    high: float
    raw: float | None
    z: float
    tests: int

    @property
    def about(self) -> str:
        """What the tag means, where its name does not say it."""
        return ABOUT.get(self.tag.rpartition(":")[2], "")

    @property
    def named(self) -> str:
        """The tag and what it means."""
        return f"{self.tag} ({self.about})" if self.about else self.tag


@dataclass(frozen=True)
class _Table:
    """Tests as arrays, padded to the largest test; padding has no weight.

    Attributes:
        tags: Names of the columns.
        x: Tags, in units of `scale`. Shape (tests, arms, tags).
        y: Log rates. Shape (tests, arms).
        variance: Of the log rates, by counting; infinite in the padding.
        scale: Spread of each tag within tests.
        varied: Tests in which each tag differs between arms.
    """

    tags: tuple[str, ...]
    x: Vector
    y: Vector
    variance: Vector
    scale: Vector
    varied: NDArray[np.int64]

    def half(self, keep: slice) -> _Table:
        """Return some of the tests, in the same units."""
        return _Table(self.tags, self.x[keep], self.y[keep], self.variance[keep], self.scale, self.varied)

    @cached_property
    def degrees(self) -> int:
        """Differences between arms of one test that there are."""
        return int(np.isfinite(self.variance).sum()) - len(self.y)


def _tabulate(tests: Sequence[PastTest], tagger: Tagger) -> _Table:
    tagged = [[tag_slots(arm.slots, tagger) for arm in test.arms] for test in tests]
    names = sorted({name for arms in tagged for tags in arms for name in tags})
    arms = max(len(test.arms) for test in tests)
    x = np.zeros((len(tests), arms, len(names)))
    y, variance = np.zeros((len(tests), arms)), np.full((len(tests), arms), np.inf)
    for row, (test, described) in enumerate(zip(tests, tagged, strict=True)):
        for column, (arm, tags) in enumerate(zip(test.arms, described, strict=True)):
            x[row, column] = [tags.get(name, 0.0) for name in names]
            y[row, column], variance[row, column] = log_rate(arm), log_rate_variance(arm)
    there = np.isfinite(variance)[:, :, None]
    centred = np.where(there, x - (x * there).sum(axis=1, keepdims=True) / there.sum(axis=1, keepdims=True), 0.0)
    scale = np.sqrt((centred**2).sum(axis=(0, 1)) / there.sum())
    varied = (np.abs(centred).max(axis=1) > _TINY).sum(axis=0)
    kept = scale > _TINY
    return _Table(
        tuple(name for name, keep in zip(names, kept, strict=True) if keep),
        (centred / np.where(kept, scale, 1.0))[:, :, kept],
        y,
        variance,
        scale[kept],
        varied[kept],
    )


@dataclass(frozen=True)
class _Fit:
    """Effects per unit of scale, on the log of the rate.

    Attributes:
        beta: Least squares, weighted by the spread and the counting noise. Shape (tags,).
        error: Their standard errors.
        shrunk: Posterior means.
        shrunk_error: Posterior standard deviations.
        spread: Standard deviation of what is special about a text.
    """

    beta: Vector
    error: Vector
    shrunk: Vector
    shrunk_error: Vector
    spread: float


def _sums(table: _Table, spread2: float) -> tuple[Vector, Vector, float, Vector, Vector]:
    """Return X'MX, X'My, y'My, and MX and My by test; M weighs arms and takes the test's own level out."""
    weight = 1.0 / (table.variance + spread2)
    total = weight.sum(axis=1, keepdims=True)
    x = table.x - ((weight[:, :, None] * table.x).sum(axis=1) / total)[:, None, :]
    y = table.y - (weight * table.y).sum(axis=1, keepdims=True) / total
    weighted = weight[:, :, None] * x
    square = np.einsum("tap,taq->pq", weighted, x, optimize=True)
    return square, np.einsum("tap,ta->p", weighted, y), float((weight * y * y).sum()), weighted, y


def _solved(square: Vector, cross: Vector) -> tuple[Vector, Vector]:
    """Return least squares and the inverse; what cannot be told apart gets an enormous variance."""
    little = _TINY * max(float(np.trace(square)), 1.0)
    inverse = np.asarray(np.linalg.inv(square + little * np.eye(len(square))), dtype=np.float64)
    return inverse @ cross, inverse


def _spread2(table: _Table) -> float:
    """Return the squared spread of texts beyond tags and counting: where the residual sum meets its expectation."""

    def excess(spread2: float) -> float:
        square, cross, whole, _, _ = _sums(table, spread2)
        beta, _ = _solved(square, cross)
        rank = int(np.linalg.matrix_rank(square, hermitian=True)) if len(square) else 0
        return whole - float(beta @ cross) - max(table.degrees - rank, 1)

    low, high = 0.0, 1.0
    if excess(low) <= 0.0:
        return 0.0
    while excess(high) > 0.0 and high < 1e4:
        high *= 4.0
    for _ in range(30):
        middle = (low + high) / 2.0
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return (low + high) / 2.0


def _shrunk(square: Vector, cross: Vector) -> tuple[Vector, Vector]:
    """Return posterior means and standard deviations of effects under a prior learned from all of them.

    The prior is a mixture of normals of 13 widths around zero, so that a few large effects may stand beside many that
    are nothing: one normal for all would take too much off those that are real and too little off the others.
    By variational EM: each effect has its own expected precision, and the mixture's weights are those of all effects.
    """
    shares = np.full(len(_WIDTHS2), 1.0 / len(_WIDTHS2))
    precision = np.full(len(square), 1.0 / _WIDTHS2[len(_WIDTHS2) // 2])
    for _ in range(_ROUNDS):
        posterior = np.asarray(np.linalg.inv(square + np.diag(precision)), dtype=np.float64)
        mean = posterior @ cross
        size = mean**2 + np.diag(posterior)
        logs = np.log(shares) - 0.5 * np.log(_WIDTHS2) - size[:, None] / (2.0 * _WIDTHS2)
        belongs = np.exp(logs - logs.max(axis=1, keepdims=True))
        belongs /= belongs.sum(axis=1, keepdims=True)
        precision = belongs @ (1.0 / _WIDTHS2)
        # One effect more, of any width: no width is ever given up for good.
        shares = (belongs.sum(axis=0) + 1.0 / len(_WIDTHS2)) / (len(square) + 1.0)
    return mean, np.sqrt(np.diag(posterior))


def _fit(table: _Table) -> _Fit:
    spread2 = _spread2(table)
    square, cross, _, weighted, y = _sums(table, spread2)
    beta, inverse = _solved(square, cross)
    residual = y - table.x @ beta
    score = np.einsum("tap,ta->tp", weighted, residual)
    few = len(score) / max(len(score) - 1.0, 1.0)
    robust = few * np.diag(inverse @ (score.T @ score) @ inverse)
    error = np.sqrt(np.maximum(np.diag(inverse), robust))
    # The robust part counts for the shrinkage as well: it stretches what the data say about every tag.
    stretch = error / np.sqrt(np.diag(inverse))
    square = square / np.outer(stretch, stretch)
    shrunk, shrunk_error = _shrunk(square, square @ beta)
    return _Fit(beta, error, shrunk, shrunk_error, math.sqrt(spread2))


def _levels(table: _Table, whole: _Fit) -> list[Level]:
    """Return the level of each tag; see the module's text."""
    bar = _NORMAL.inv_cdf(1.0 - ALPHA / 2.0 / max(len(table.tags), 1))
    claimed = np.abs(whole.beta) >= bar * whole.error
    ruled = np.zeros_like(claimed)
    middle = len(table.y) // 2
    if middle >= _LEAST_HALF:
        early, late = _fit(table.half(slice(None, middle))), _fit(table.half(slice(middle, None)))
        first = np.abs(early.beta) >= bar * early.error
        again = _NORMAL.inv_cdf(1.0 - ALPHA / max(int(first.sum()), 1))
        ruled = first & (np.sign(early.beta) * late.beta >= again * late.error)
    return [Level.RULE if r else Level.CLAIM if c else Level.CANDIDATE for r, c in zip(ruled, claimed, strict=True)]


@dataclass(frozen=True, slots=True)
class ResonanceMap:
    """What resonates, over all tests.

    Attributes:
        effects: By level, then by size.
        tests: Number of tests behind it.
        arms: Number of texts.
        spread: Standard deviation, as the log of the rate, of what is special about a text beyond its tags.
        foresight: How well a map of the earlier half orders the arms of the later half; None with too few tests.
        tagger: Who tagged, in a word or two.
    """

    effects: tuple[Effect, ...]
    tests: int
    arms: int
    spread: float
    foresight: Agreement | None
    tagger: str = "rules"

    def of(self, level: Level) -> tuple[Effect, ...]:
        """Return the effects of one level."""
        return tuple(effect for effect in self.effects if effect.level is level)

    def predict(self, slots: Mapping[str, str], tagger: Tagger = tag) -> float:
        """Return a score of a text: expected log of its rate, up to a constant; for ordering ideas, never a metric."""
        tags = tag_slots(slots, tagger)
        return sum(math.log1p(effect.shrunk) * tags.get(effect.tag, 0.0) for effect in self.effects)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "tests": self.tests,
            "arms": self.arms,
            "spread": self.spread,
            "tagger": self.tagger,
            "foresight": None if self.foresight is None else _plain(self.foresight),
            "effects": [
                {**_plain(effect), "level": effect.level.value, "about": effect.about} for effect in self.effects
            ],
        }

    def for_prompt(self, most: int = 12) -> str:
        """Return what a writer should know, a few lines, the same text for the same map.

        Args:
            most: Most effects of each level.
        """
        lines = [f"What resonated in {self.tests} finished tests ({self.arms} texts), as change of the rate:"]
        for level, words in _LEVEL_WORDS.items():
            for effect in self.of(level)[:most]:
                if level is Level.CANDIDATE and (effect.low < 0.0 < effect.high or effect.shrunk == 0.0):
                    continue
                lines.append(
                    f"- {words}: {effect.named} {effect.shrunk:+.1%} ({effect.low:+.1%} to {effect.high:+.1%})"
                )
        if len(lines) == 1:
            return f"{lines[0]} nothing that could be told from chance yet.\n"
        lines.append("These are averages over other texts and no instruction: facts, brand and the story come first.")
        return "\n".join(lines) + "\n"

    def table(self) -> str:
        """Return a table for a terminal."""
        head = f"{'tag':<28} {'level':<10} {'effect':>8} {'90 % interval':>19} {'unshrunk':>9} {'tests':>6}"
        rows = [
            f"{effect.tag:<28} {effect.level.value:<10} {effect.shrunk:>+8.1%} "
            f"{f'{effect.low:+.1%} to {effect.high:+.1%}':>19} "
            f"{'-' if effect.raw is None else f'{effect.raw:+.1%}':>9} {effect.tests:>6,}"
            for effect in self.effects
        ]
        return "\n".join([self._summary(), "", head, *rows]) + "\n"

    def _summary(self) -> str:
        lines = [
            f"{self.tests:,} tests, {self.arms:,} texts, tagged by {self.tagger}: {len(self.of(Level.RULE))} rules, "
            f"{len(self.of(Level.CLAIM))} claims, {len(self.of(Level.CANDIDATE))} candidates.",
            f"Texts with the same tags still differ by {math.expm1(self.spread):.0%} (one standard deviation).",
        ]
        if self.foresight is not None:
            seen = self.foresight
            lines.append(
                "Foresight: a map of the earlier half orders the later half's texts with rank correlation "
                f"{seen.rho:.3f} ({seen.low:.3f} to {seen.high:.3f}), {seen.concordance:.1%} of pairs right."
            )
        return "\n".join(lines)


_LEVEL_WORDS = {Level.RULE: "rule (replicated)", Level.CLAIM: "claim (shown once)", Level.CANDIDATE: "hint (unproven)"}


def _plain(value: Effect | Agreement) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def tests_of(folder: Path, *, archive: bool = True) -> tuple[PastTest, ...]:
    """Return the finished tests of a campaign folder: its own and, unless left out, those of an imported archive.

    Raises:
        UsageError: If what is stored is damaged.
    """
    state = folder / ".autoresearch" / "marketing"
    own = recall(state)
    if not archive or not (state / ARCHIVE_NAME).exists():
        return own
    return (*from_archive(headline_tests(read_archive(state / ARCHIVE_NAME))), *own)


def prompt_of(folder: Path) -> str:
    """Return what the proposer should know of a campaign's map; empty while there are too few tests for one.

    Raises:
        UsageError: If what is stored is damaged.
    """
    tests = tests_of(folder)
    return make_map(tests).for_prompt() if len(tests) >= _LEAST_TESTS else ""


def make_map(tests: Iterable[PastTest], tagger: Tagger = tag, tagged_by: str = "rules") -> ResonanceMap:
    """Fit the map.

    Args:
        tests: Finished, randomised tests; one that comes twice by its id is taken once.
        tagger: Turns a text into tags.
        tagged_by: Who that is, for the reader.

    Raises:
        UsageError: If there are fewer than three tests whose arms were shown to anybody.
    """
    shown = {test.id: _shown(test) for test in tests}
    used = sorted((test for test in shown.values() if len(test.arms) > 1), key=lambda test: (test.when, test.id))
    if len(used) < _LEAST_TESTS:
        raise UsageError(
            f"A map needs {_LEAST_TESTS} finished tests on real people at least, and there are {len(used)}.\n"
            "Run more experiments, or import past tests: autoresearch marketing import FILE. Tests on people made up, "
            "of the past, or chosen by a platform stay out of it."
        )
    table = _tabulate(used, tagger)
    arms = sum(len(test.arms) for test in used)
    if not table.tags:
        return ResonanceMap((), len(used), arms, math.sqrt(_spread2(table)), None, tagged_by)
    fit = _fit(table)
    effects = [_effect(table, fit, index, level) for index, level in enumerate(_levels(table, fit))]
    order = list(Level)[::-1]
    effects.sort(key=lambda effect: (order.index(effect.level), -abs(effect.shrunk), effect.tag))
    return ResonanceMap(tuple(effects), len(used), arms, fit.spread, _foresight(table, used), tagged_by)


def _shown(test: PastTest) -> PastTest:
    return PastTest(test.id, test.when, tuple(arm for arm in test.arms if arm.n > 0))


def _effect(table: _Table, fit: _Fit, index: int, level: Level) -> Effect:
    scale, wide = table.scale[index], _NORMAL.inv_cdf(0.95)
    shrunk, error = fit.shrunk[index] / scale, fit.shrunk_error[index] / scale
    # An error of more than a factor of e on the rate means that other tags stand for this one in every test.
    raw = None if fit.error[index] / scale > 1.0 else math.expm1(fit.beta[index] / scale)
    return Effect(
        tag=table.tags[index],
        level=level,
        shrunk=math.expm1(shrunk),
        low=math.expm1(shrunk - wide * error),
        high=math.expm1(shrunk + wide * error),
        raw=raw,
        z=float(fit.beta[index] / fit.error[index]),
        tests=int(table.varied[index]),
    )


def _foresight(table: _Table, tests: Sequence[PastTest]) -> Agreement | None:
    middle = len(tests) // 2
    if middle < _LEAST_HALF:
        return None
    early = _fit(table.half(slice(None, middle)))
    scores = table.x[middle:] @ early.shrunk
    later = tests[middle:]
    return score_opinion(later, [row[: len(test.arms)].tolist() for row, test in zip(scores, later, strict=True)])
