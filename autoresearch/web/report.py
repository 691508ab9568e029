"""The report of a run: everything that it says, gathered once, and written as one HTML file or as Markdown.

Nothing here measures or decides. Texts of models and candidates are cleaned where they are gathered and escaped where
they are written; the HTML has no script, asks for nothing and forbids both by its own policy.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from autoresearch.core.adapter import Estimate, MetricKind, ReportSection
from autoresearch.core.decision import Look
from autoresearch.core.decision.gates import SPLIT_LEVEL, log_split_e
from autoresearch.core.ledger import Claim, Experiment
from autoresearch.core.live import EVEN_SPLIT
from autoresearch.core.readmodel import INCUMBENT, LivePoint, RunView, share_confirmed
from autoresearch.core.words import (
    ABSENT,
    clean,
    counts,
    duration,
    effect,
    headline,
    live_headline,
    metric_in_words,
    money,
    number,
    probability,
)
from autoresearch.web import pictures
from autoresearch.web.pictures import Dot, Drawn
from autoresearch.web.svg import crop

MOST_ROWS = 1_000
"""Rows of the table; of more experiments the kept ones and the latest are shown."""

MOST_KEPT = 60
"""Kept changes that are shown in full; of more those with the largest effects."""

MOST_DIFF = 4_000
"""Characters of one diff."""

ALL_DIFFS = 100_000
"""Characters of all diffs together, so that a report of a thousand experiments stays under 500 KB."""

MOST_TESTS = 8
"""Live tests that are drawn: the latest ones, kept ones first."""

MOST_FAILED = 12
"""Hypotheses of a category that are listed among what did not work."""

_HYPOTHESIS = 150

SIGNS = {"baseline": "■", "kept": "●", "reverted": "·", "inconclusive": "○", "crashed": "×", "invalid": "+"}
"""The shapes of the picture, for the table."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table of all experiments, ready to be shown."""

    number: int
    outcome: str
    sign: str
    value: str
    effect: str
    sure: str
    category: str
    hypothesis: str
    seconds: str
    detailed: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """One kept change with what speaks for it."""

    number: int
    hypothesis: str
    category: str
    effect: str
    interval: str
    bar: Markup | None
    evidence: tuple[str, ...]
    claim: str
    diff: str
    cut: str


@dataclass(frozen=True, slots=True)
class Category:
    """What became of one kind of idea."""

    name: str
    tried: int
    kept: int
    reverted: int
    inconclusive: int
    crashed: int
    invalid: int
    failed: tuple[str, ...]
    omitted: int


@dataclass(frozen=True, slots=True)
class Test:
    """One live test with its pictures."""

    number: int
    hypothesis: str
    outcome: str
    said: str
    lift: Drawn
    e_values: Drawn | None
    split: Markup
    split_said: str


@dataclass(frozen=True, slots=True)
class Section:
    """What an adapter adds, with its estimates drawn."""

    title: str
    text: str
    estimates: tuple[tuple[Estimate, str, Markup | None], ...]
    image: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that a report says; every text is clean, and none is escaped yet."""

    title: str
    headline: str
    state: str
    tiles: tuple[tuple[str, str, str], ...]
    wide: Drawn
    narrow: Drawn
    drawn: str
    kept: tuple[Kept, ...]
    kept_note: str
    tests: tuple[Test, ...]
    tests_note: str
    sections: tuple[Section, ...]
    categories: tuple[Category, ...]
    claims: tuple[tuple[str, ...], ...]
    claims_note: str
    costs: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    rows_note: str
    metric: str
    facts: tuple[tuple[str, str], ...]
    reading: tuple[str, ...]
    live: bool


Points = Callable[[Experiment], Sequence[LivePoint]]


def page_of(view: RunView, *, now: datetime, points: Points, sections: Sequence[ReportSection] = ()) -> Page:
    """Return what the report of a run says.

    Args:
        view: The run.
        now: When the report is made.
        points: Gives a live test look by look.
        sections: What the adapter adds.
    """
    kept, kept_note = _kept(view)
    tests, tests_note = _tests(view, points)
    rows, rows_note = _rows(view, frozenset(change.number for change in kept))
    confirmed = view.confirmed
    dots = [_dot(row, view, row.number in confirmed) for row in view.experiments]
    percent = view.metric.kind is MetricKind.PROPORTION
    noise = None if view.noise is None else view.noise.sd
    wide, narrow = (
        pictures.progress(dots, view.standings, view.metric, frame, noise=noise, percent=percent)
        for frame in (pictures.WIDE, pictures.NARROW)
    )
    return Page(
        title=clean(f"{view.run.adapter}: run {view.run.id}"),
        headline=headline_of(view),
        state=state_of(view, f"this report shows what had ended by {now:%Y-%m-%d %H:%M} UTC"),
        tiles=tiles_of(view),
        wide=wide,
        narrow=narrow,
        drawn=_LIVE_LINE if view.live else _MEASURED_LINE,
        kept=kept,
        kept_note=kept_note,
        tests=tests,
        tests_note=tests_note,
        sections=tuple(_section(section) for section in sections),
        categories=_categories(view),
        claims=tuple(_claim_row(claim, view) for claim in view.claims),
        claims_note=_claims_note(view),
        costs=_costs(view),
        rows=rows,
        rows_note=rows_note,
        metric=metric_in_words(view.metric),
        facts=_facts(view, now),
        reading=_reading(view),
        live=view.live,
    )


_MEASURED_LINE = (
    "Every experiment is a dot. The line is what the incumbent is believed to be worth after each experiment, judged "
    "on all that was known by then; a kept dot beyond it was partly luck."
)
_LIVE_LINE = (
    "Every test is a dot: the rate of its treatment, in its own weeks. The line adds to the baseline's rate what each "
    "kept test showed."
)


# ---- Writing


def as_html(page: Page) -> str:
    """Return the report as one HTML file that needs nothing besides."""
    return environment().get_template("report.html.j2").render(page=page)


def as_markdown(page: Page) -> str:
    """Return the report as Markdown, without the pictures."""
    text = _plain_environment().get_template("report.md.j2").render(page=page)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def environment() -> Environment:
    """Return what writes HTML: everything is escaped, and cleaned first."""
    return Environment(
        loader=PackageLoader("autoresearch.web"),
        autoescape=True,
        finalize=_finally,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finally(value: object) -> object:
    """Clean every text once more as it is written, so that nobody can forget it; what is marked up is ours."""
    return clean(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _plain_environment() -> Environment:
    made = environment().overlay(autoescape=False)
    made.filters["md"] = escaped_markdown
    made.filters["fenced"] = fenced
    return made


_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|~>$-])")


def escaped_markdown(words: str) -> str:
    """Return words that Markdown shows as they are: no markup, no HTML, no cell ends, no links made of addresses.

    Example:
        >>> print(escaped_markdown("<b> a|b *c*"))
        &lt;b&gt; a\\|b \\*c\\*
    """
    words = " ".join(clean(words).split()).replace("&", "&amp;").replace("<", "&lt;")
    words = _MARKS.sub(r"\\\1", words.replace(">", "&gt;"))
    return words.replace("://", ":&#47;&#47;").replace("@", "&#64;").replace("www.", "www&#46;")


def fenced(words: str, language: str = "") -> str:
    """Return words as a code block whose fence is longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if words.endswith("\n") else "\n"
    return f"{fence}{language}\n{words}{end}{fence}"


# ---- The head


def headline_of(view: RunView) -> str:
    """Return believed gain beside confirmed gain."""
    return (live_headline if view.live else headline)(view.status, view.metric)


def state_of(view: RunView, shown: str = "") -> str:
    """Return in a sentence or two what the run is doing; `shown` says of when that is, where it may be old."""
    state, end = view.status.state, f"; {shown}." if shown else "."
    if state == "running":
        doing = "the baseline" if view.in_flight is None or view.in_flight.number == 0 else _doing(view.in_flight)
        if len(view.going_on) > 1:
            doing = f"{len(view.going_on)} live tests at once, {' and '.join(str(row.number) for row in view.going_on)}"
        said = f"The run is at work on {doing}{end}"
    elif state == "paused":
        said = f"The run is paused{end}"
    elif state == "killed":
        said = "The run ended without a word: its process was killed or the machine went down. Nothing that had ended "
        said += "is lost, and autoresearch run goes on where it stopped."
    else:
        said = f"The run ended: {clean(view.status.stop_reason or 'no reason is written down').rstrip('.')}."
    if not view.experiments:
        said += " Not even the baseline has been measured, so there is nothing to show yet."
    elif view.status.experiments == 0:
        said += " Only the baseline has been measured so far."
    return said


def _doing(row: Experiment) -> str:
    return f"experiment {row.number} ({crop(row.hypothesis, 100).rstrip('.')})"


def tiles_of(view: RunView) -> tuple[tuple[str, str, str], ...]:
    """Return the figures at the top as (name, figure, words below)."""
    status, unit = view.status, clean(view.metric.unit)
    way = f"{number(status.baseline)} → {number(status.incumbent)}" if status.incumbent is not None else "no value yet"
    return (
        ("believed gain", _gain(view, status.believed_gain), f"{unit}; {view.metric.name} {way}".removeprefix("; ")),
        _confirmed_tile(view),
        ("experiments", f"{status.experiments:,}", counts(status).partition(": ")[2]),
        ("spent", money(status.usd), f"{view.totals.tokens:,} tokens, {duration(status.seconds)}"),
    )


def _confirmed_tile(view: RunView) -> tuple[str, str, str]:
    status = view.status
    if view.live:
        alpha = view.policy.parameters.get("alpha") if view.policy is not None else None
        if view.run.policy == "test_and_roll":
            return ("chosen by Test & Roll", f"{status.kept:,} kept", "a bet, without an error rate")
        rate = f"at most {alpha:.0%} of harmless changes are kept" if alpha else "see the single tests"
        return ("shown by tests", f"{status.kept:,} kept", rate)
    again = status.confirmed_on == "search"
    name = "re-measured gain" if again else "confirmed gain"
    if status.confirmed_gain is None:
        return (name, "none", "not shown by measuring again" if again else "not confirmed")
    share = share_confirmed(status.believed_gain, status.confirmed_gain)
    part = "" if share is None else f"{share:.0%} of what is believed, "
    return (name, _gain(view, status.confirmed_gain), part + ("on the same data" if again else "on the holdout"))


def _gain(view: RunView, value: float | None) -> str:
    if value is None or (view.status.kept == 0 and not value):
        return "none"
    return effect(value)


# ---- Kept changes


def _kept(view: RunView) -> tuple[tuple[Kept, ...], str]:
    rows = view.kept
    shown = sorted(sorted(rows, key=lambda row: -(row.effect or 0.0))[:MOST_KEPT], key=lambda row: row.number)
    note = "" if len(shown) == len(rows) else f"The {len(shown)} largest of {len(rows)} kept changes, in their order."
    reach = max((abs(end) for row in shown for end in _ends(row)), default=0.0) or 1.0
    room, changes = ALL_DIFFS, []
    for row in shown:
        diff, cut = _diff(row, min(room, MOST_DIFF))
        room -= len(diff)
        changes.append(_change(row, view, reach, diff, cut))
    return tuple(changes), note


def _ends(row: Experiment) -> list[float]:
    return [end for end in (row.effect, row.effect_low, row.effect_high) if end is not None]


def _change(row: Experiment, view: RunView, reach: float, diff: str, cut: str) -> Kept:
    shown, interval = effect_of(row.effect, view), interval_of(row, view)
    bar = None
    if row.effect is not None:
        words = f"effect {shown}{f', interval {interval}' if interval else ''}"
        bar = pictures.effect_bar(row.effect, row.effect_low, row.effect_high, reach, words)
    return Kept(
        number=row.number,
        hypothesis=clean(row.hypothesis),
        category=clean(row.category),
        effect=f"{shown} {clean(view.metric.unit)}".rstrip() if view.metric.kind is MetricKind.VALUE else shown,
        interval=interval,
        bar=bar,
        evidence=_evidence(row, view),
        claim=_claim_of(row, view),
        diff=diff,
        cut=cut,
    )


def effect_of(value: float | None, view: RunView) -> str:
    """Return an effect: in the metric's unit for values, a lift in percent for proportions and means."""
    if value is None or view.metric.kind is MetricKind.VALUE:
        return effect(value)
    return f"{value:+.1%}"


def interval_of(row: Experiment, view: RunView) -> str:
    """Return the interval of an effect; empty where there is none."""
    if row.effect_low is None or row.effect_high is None:
        return ""
    return f"{effect_of(row.effect_low, view)} to {effect_of(row.effect_high, view)}"


def _evidence(row: Experiment, view: RunView) -> tuple[str, ...]:
    """Return what a keep rests on, one thing a line; what the policy's reason says already is not said again."""
    reason = clean(row.reason)
    said = [reason] if reason else []
    looks = view.looks.get(row.id, ())
    if looks:
        said.append(_arms(looks[-1], len(looks), live=view.live))
    if row.p_better is not None and probability(row.p_better) not in reason:
        said.append(f"probability of being better {probability(row.p_better)}")
    if row.e_win is not None and f"{row.e_win:.3g}" not in reason:
        said.append(f"e-value {row.e_win:.3g} for being better")
    return tuple(said)


def _arms(look: Look, count: int, *, live: bool) -> str:
    if live:
        arms = ", ".join(f"{arm.arm} {arm.total:,.0f} of {arm.n:,}" for arm in (look.control, look.treatment))
        return f"{arms} after {count} {'look' if count == 1 else 'looks'}"
    runs = f"{look.treatment.n} {'run' if look.treatment.n == 1 else 'runs'} of the candidate"
    beside = f", {look.control.n} of the incumbent beside it" if look.control.n else ""
    return f"{runs}{beside}"


def _claim_of(row: Experiment, view: RunView) -> str:
    """Return what `confirm` said of a step, or of the incumbent that it is."""
    mine = [claim for claim in view.claims if claim.number == row.number]
    mine.sort(key=lambda claim: claim.subject == INCUMBENT)  # what is said of the step itself, where anything is
    if not mine:
        return ""
    than = "the baseline" if mine[0].subject == INCUMBENT else "its parent"
    name = _outcome_of(mine[0], view)
    return f"{name}: {effect(mine[0].shrunk)} against {than}" if mine[0].outcome == "confirmed" else name


def _diff(row: Experiment, room: int) -> tuple[str, str]:
    """Return a diff, at most `room` characters of it, and what is said where something was cut."""
    diff = clean(row.diff, lines=True)
    if len(diff) <= room:
        return diff, ""
    whole = diff[:room].rpartition("\n")[0]
    return whole, f"{len(diff) - len(whole):,} more characters: autoresearch show {row.number} --diff"


# ---- Live tests


def _tests(view: RunView, points: Points) -> tuple[tuple[Test, ...], str]:
    if not view.live:
        return (), ""
    known = [*view.experiments, *view.going_on]
    rows = [row for row in known if view.looks.get(row.id)]
    latest = sorted(rows, key=lambda row: (row.outcome in ("kept", None), row.number))[-MOST_TESTS:]
    shown = sorted(latest, key=lambda row: row.number)
    note = "" if len(shown) == len(rows) else f"{len(shown)} of {len(rows)} tests, kept and latest ones first."
    return tuple(test for row in shown if (test := _test(row, view, points(row))) is not None), note


def _test(row: Experiment, view: RunView, points: Sequence[LivePoint]) -> Test | None:
    if not points or view.policy is None:
        return None
    rates = view.policy.parameters
    last = points[-1]
    raced = any(point.verdict.e_win is not None for point in points) and "alpha" in rates
    alpha = rates.get("alpha", 0.0) / max(row.family, 1)  # treatments that were begun together share it
    smallest = rates.get("min_effect", view.metric.min_effect)
    split_e = log_split_e([last.control.n, last.treatment.n], list(EVEN_SPLIT.values()))
    sound = "sound" if split_e < math.log(SPLIT_LEVEL) else "broken"
    return Test(
        number=row.number,
        hypothesis=clean(row.hypothesis),
        outcome=row.outcome or "in progress",
        said=clean(row.reason),
        lift=pictures.lift_by_look(points, smallest),
        e_values=pictures.e_values(points, alpha, rates.get("beta", 0.0)) if raced else None,
        split=pictures.split_bar(last.control.n, last.treatment.n),
        split_said=f"The split is {sound}: e-value {_exp(split_e)} against it, which breaks at {SPLIT_LEVEL:,.0f}.",
    )


def _exp(log: float) -> str:
    return f"{math.exp(min(log, 690.0)):.2g}"


# ---- What did not work


def _categories(view: RunView) -> tuple[Category, ...]:
    groups: dict[str, list[Experiment]] = {}
    for row in view.experiments:
        if row.number > 0:
            groups.setdefault(clean(row.category) or "none", []).append(row)
    found = [_category(name, rows, view) for name, rows in groups.items()]
    return tuple(sorted(found, key=lambda one: (-one.tried, one.name)))


def _category(name: str, rows: Sequence[Experiment], view: RunView) -> Category:
    ended = [row.outcome for row in rows]
    failed = [row for row in rows if row.outcome != "kept"]
    # The nearest misses first, then what could not be measured: what to think about again stands on top.
    failed.sort(key=lambda row: (row.effect is None, -(row.effect or 0.0), -row.number))
    return Category(
        name=name,
        tried=len(rows),
        kept=ended.count("kept"),
        reverted=ended.count("reverted"),
        inconclusive=ended.count("inconclusive"),
        crashed=ended.count("crashed"),
        invalid=ended.count("invalid"),
        failed=tuple(_failure(row, view) for row in failed[:MOST_FAILED]),
        omitted=max(0, len(failed) - MOST_FAILED),
    )


def _failure(row: Experiment, view: RunView) -> str:
    why = effect_of(row.effect, view) if row.effect is not None else crop(row.reason, 80)
    return f"#{row.number} {crop(row.hypothesis, 110)} ({row.outcome}{f', {why}' if why else ''})"


# ---- Claims


def _claim_row(claim: Claim, view: RunView) -> tuple[str, ...]:
    what = "incumbent / baseline" if claim.subject == INCUMBENT else f"experiment {claim.number} / parent"
    e_value = ABSENT if claim.e_value is None else f"{claim.e_value:.3g}"
    needed = f"{1 / claim.level:.3g}" if claim.level else ABSENT
    bounds = [ABSENT if bound is None else effect(bound) for bound in (claim.low, claim.high)]
    return (what, effect(claim.raw), effect(claim.shrunk), *bounds, e_value, needed, _outcome_of(claim, view))


def _outcome_of(claim: Claim, view: RunView) -> str:
    again = view.status.confirmed_on == "search"
    names = {"confirmed": "re-measured" if again else "confirmed", "unconfirmed": "not confirmed"}
    return names.get(claim.outcome, claim.outcome)


def _claims_note(view: RunView) -> str:
    if view.live:
        return ""
    if not view.claims:
        return "Nothing has been claimed: autoresearch confirm measures the gain again, on data that no decision saw."
    unit = clean(view.metric.unit) or "the metric"
    times = "once" if view.openings == 1 else f"{view.openings} times"
    opened = f"The holdout was opened {times}. " if view.openings else ""
    return (
        f"Effects in {unit}, positive is better, at each claim's own level. {opened}"
        "At most a tenth of a run's claims are false on average (e-LOND)."
    )


# ---- Cost


def _costs(view: RunView) -> tuple[tuple[str, str], ...]:
    totals, hours = view.totals, view.totals.seconds / 3600.0
    device = f" on {clean(view.run.device)}" if view.run.device else ""
    confirmed = len(view.confirmed)
    return (
        ("dollars for proposals, refused and failed ones included", money(totals.usd)),
        ("tokens, cached ones included", f"{totals.tokens:,}"),
        (f"hours of experiments{device}", f"{hours:,.2f}"),
        ("measurements", f"{totals.measurements:,}"),
        ("for one experiment", _each(totals.usd, hours, totals.experiments)),
        ("for one kept change", _each(totals.usd, hours, totals.kept)),
        (
            "for one confirmed gain",
            _each(totals.usd, hours, confirmed) if not view.live else "see kept: each is a claim",
        ),
    )


def _each(usd: float, hours: float, count: int) -> str:
    return f"{money(usd / count)} and {duration(3600 * hours / count)}" if count else "there is none"


# ---- The table


def _rows(view: RunView, detailed: frozenset[int]) -> tuple[tuple[Row, ...], str]:
    chosen = list(view.experiments)
    note = ""
    if len(chosen) > MOST_ROWS:
        kept = [row for row in chosen if row.outcome == "kept"][-MOST_ROWS:]
        others = [row for row in chosen if row.outcome != "kept"]
        room = MOST_ROWS - len(kept)
        chosen = sorted([*kept, *(others[-room:] if room else [])], key=lambda row: row.number)
        note = (
            f"{len(chosen):,} of {len(view.experiments):,} rows: the kept ones and the latest. "
            "All of them: autoresearch export --format csv"
        )
    return tuple(row_of(row, view, detailed) for row in chosen), note


def row_of(row: Experiment, view: RunView, detailed: frozenset[int] = frozenset()) -> Row:
    """Return an experiment as a line of the table; `detailed` are the numbers that are shown in full elsewhere."""
    outcome = "baseline" if row.number == 0 else row.outcome or "in progress"
    return Row(
        number=row.number,
        outcome=outcome,
        sign=SIGNS.get(outcome, ""),
        value=number(row.value),
        effect=effect_of(row.effect, view),
        sure=probability(row.p_better) if row.e_win is None else f"e {row.e_win:.2g}",
        category=crop(row.category, 40),
        hypothesis=crop(row.hypothesis, _HYPOTHESIS),
        seconds=f"{row.seconds:,.0f}",
        detailed=row.number in detailed,
    )


def _dot(row: Experiment, view: RunView, confirmed: bool) -> Dot:
    outcome = "baseline" if row.number == 0 else row.outcome or "in progress"
    value = view.status.baseline if row.number == 0 else row.value
    return Dot(row.number, outcome, value, row.hypothesis, row.effect, confirmed)


# ---- What the adapter adds, and the small print


def _section(section: ReportSection) -> Section:
    ends = [abs(end) for one in section.estimates for end in (one.value, one.low, one.high) if end is not None]
    reach = min(max(ends, default=1.0), 2.0) or 1.0
    image = b64encode(section.picture.encode()).decode() if section.picture else ""
    drawn = tuple((one, *_estimate(one, reach)) for one in section.estimates)
    return Section(clean(section.title), clean(section.text), drawn, image)


def _estimate(one: Estimate, reach: float) -> tuple[str, Markup | None]:
    if one.value is None:
        return "not known", None
    words = f"{one.value:+.1%}"
    if one.low is not None or one.high is not None:
        low, high = ("?" if end is None else f"{end:+.1%}" for end in (one.low, one.high))
        words += f" ({low} to {high})"
    return words, pictures.effect_bar(one.value, one.low, one.high, reach, f"{one.label}: {words}")


def _facts(view: RunView, now: datetime) -> tuple[tuple[str, str], ...]:
    run = view.run
    settings = ", ".join(f"{name} {value:g}" for name, value in run.policy_parameters.items())
    noise = (
        ""
        if view.noise is None
        else f"{number(view.noise.sd)} {view.metric.unit} ({view.noise.dof:.0f} degrees of freedom)"
    )
    pairs = [
        ("run", f"{run.id}, begun {run.created:%Y-%m-%d %H:%M} UTC"),
        ("metric", metric_in_words(view.metric)),
        ("policy", f"{run.policy}{f' ({settings})' if settings else ''}"),
        ("proposer", f"{run.proposer}{f', model {run.model}' if run.model else ''}"),
        ("noise", noise),
        ("evaluator", run.evaluator_fingerprint[:16]),
        ("adapter", f"{run.adapter} {run.adapter_distribution} {run.adapter_version}"),
        ("report", f"made {now:%Y-%m-%d %H:%M} UTC"),
    ]
    return tuple((name, clean(words)) for name, words in pairs if words)


def _reading(view: RunView) -> tuple[str, ...]:
    said = [
        "Believed is a bet: what the policy expects of the incumbent after one or two looks at each candidate. "
        "Confirmed is a statement: shown with a known error rate on data that no keep decision saw.",
        "A positive effect is a better candidate, whichever way the metric points.",
    ]
    if view.run.policy == "greedy":
        said.append("The policy greedy keeps every strict improvement, luck included: believe its gain accordingly.")
    if view.run.policy == "test_and_roll":
        said.append(
            "Test & Roll sends the better-looking arm to the rest of a list that ends. It brings the most conversions "
            "and shows nothing: what it chose is a bet, and the gain beside it has the winner's luck in it."
        )
    elif view.live:
        said.append(
            "Intervals of live tests run from the bound at alpha to the bound at beta and may be looked at any time; "
            "a line that was crossed stays crossed, so what came after it changes nothing."
        )
    return tuple(said)
