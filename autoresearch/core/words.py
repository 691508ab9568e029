"""From figures to words: the same ones in the terminal, in reports and on pages; pure functions that print nothing.

Hypotheses, reasons and logs were written by a model or a candidate. Everything of that kind passes `clean` before it is
shown, and is never read as markup.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from autoresearch.core.adapter import Direction, Metric

if TYPE_CHECKING:
    from autoresearch.core.readmodel import RunStatus

ABSENT = "-"
"""What a table shows where nothing was measured."""

# Escape sequences as ECMA-48 forms them: strings (OSC, DCS, SOS, PM, APC) up to their end, CSI sequences, the rest.
_SEQUENCE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DIRECTION = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str, *, lines: bool = False) -> str:
    """Return text without control characters, escape sequences and marks that reorder what is shown.

    Args:
        text: Anything, however hostile.
        lines: Keep line ends and tabs; otherwise all white space becomes single blanks, so that the text is one line.
    """
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    text = _DIRECTION.sub("", text)
    if lines:
        return _CONTROL.sub("", text.replace("\r", "\n"))
    # White space first: a line end between two words becomes a blank, while a bell between two letters becomes nothing.
    return " ".join(_CONTROL.sub("", " ".join(text.split())).split())


def number(value: float | None) -> str:
    """Return a value of the metric with six digits; a dash where there is none."""
    return ABSENT if value is None else f"{value:.6g}"


def effect(value: float | None) -> str:
    """Return an effect with its sign, positive where the candidate is better; a dash where there is none."""
    return ABSENT if value is None else f"{value:+.3g}"


def effect_in_words(value: float) -> str:
    """Return an effect with what its sign means: `+0.012 better`, `-0.3 worse`."""
    word = "better" if value > 0 else "worse" if value < 0 else "no difference"
    return f"{effect(value)} {word}"


def probability(value: float | None) -> str:
    """Return a probability with two digits, never rounded to certainty; a dash where there is none."""
    if value is None:
        return ABSENT
    return "<.01" if value < 0.01 else ">.99" if value > 0.99 else f"{value:.2f}"


def money(usd: float) -> str:
    """Return dollars: cents, or more digits where cents would hide that something was spent."""
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:.2f}"


def duration(seconds: float) -> str:
    """Return a duration in the two largest units that it has.

    Example:
        >>> duration(0.25), duration(75), duration(7300)
        ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def headline(status: RunStatus, metric: Metric) -> str:
    """Return believed gain beside confirmed gain: the line that every report of ours begins with."""
    from autoresearch.core.readmodel import share_confirmed

    again = status.confirmed_on == "search"  # no data that keep decisions never saw
    # The same words whether it was tried and failed or, after a new keep, was not tried yet.
    nothing = "not shown" if again else "not confirmed"
    confirmed = nothing if status.confirmed_gain is None else _gain(status.confirmed_gain, metric)
    share = share_confirmed(status.believed_gain, status.confirmed_gain)
    if share is not None:
        confirmed += f" ({share:.0%} of what is believed)"
    return f"{_believed(status, metric)} | {'re-measured' if again else 'confirmed'} gain: {confirmed}"


def live_headline(status: RunStatus, metric: Metric) -> str:
    """Return what live tests showed; one kept by a race is a claim already, one chosen by Test & Roll never is."""
    if status.policy == "test_and_roll":
        return f"{_believed(status, metric)}; by Test & Roll, a bet without an error rate"
    if not status.kept:
        return _believed(status, metric)
    return f"{_believed(status, metric)}, each kept test at the race's error rate"


def _believed(status: RunStatus, metric: Metric) -> str:
    if status.baseline is None:
        return "believed gain: none, the baseline is not measured yet"
    if status.believed_gain is None:
        return f"believed gain: none yet ({metric.name} of the baseline {number(status.baseline)})"
    if status.kept == 0:
        return f"believed gain: none, nothing was kept ({metric.name} {number(status.baseline)})"
    way = f"{metric.name} {number(status.baseline)} -> {number(status.incumbent)}"
    return f"believed gain {_gain(status.believed_gain, metric)} ({way})"


def _gain(value: float, metric: Metric) -> str:
    return f"{effect(value)} {clean(metric.unit)}".rstrip()


def metric_in_words(metric: Metric) -> str:
    """Return name, unit and which way is better."""
    better = "lower" if metric.direction is Direction.MINIMIZE else "higher"
    unit = f"{metric.unit}, " if metric.unit and metric.unit != metric.name else ""
    return f"{metric.name} ({unit}{better} is better)"


def counts(status: RunStatus) -> str:
    """Return how many experiments ended how; outcomes that did not happen are left out, kept ones never."""
    parts = [f"{status.kept} kept"]
    for name in ("reverted", "inconclusive", "crashed", "invalid"):
        if (count := getattr(status, name)) > 0:
            parts.append(f"{count} {name}")
    plural = "" if status.experiments == 1 else "s"
    return f"{status.experiments} experiment{plural}: {', '.join(parts)}"
