"""From what a command printed to numbers. Nothing but the line that holds a number is looked at."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoresearch.adapters.command.options import Options
from autoresearch.core import CandidateError, InvalidCandidateError

_METRIC_LINE = re.compile(r"METRIC ([^\s=]+)=(\S*)")
_SUMMARY_LINE = re.compile(r"([A-Za-z_][\w.]*):\s+(\S+)")


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one run of the command gave.

    Attributes:
        value: The metric.
        others: Every other number by name.
    """

    value: float
    others: Mapping[str, float]


def read_numbers(output: str, options: Options) -> Numbers:
    """Return the numbers in the output of a command that ended well.

    Raises:
        InvalidCandidateError: If the metric, or what a guard needs, stands there more than once: which one counts would
            be the candidate's choice.
        CandidateError: If it stands there not at all, or is no finite number.
    """
    find, expected = _reader(options)
    found: dict[str, list[str]] = {}
    for name, text in find(output):
        found.setdefault(name, []).append(text)
    wanted = [options.metric.name, *(guard.name for guard in options.guards if guard.name != options.metric.name)]
    needed = {name: _only(name, found, expected(name)) for name in wanted}
    return Numbers(
        needed[options.metric.name],
        {name: value for name, value in {**_others(found), **needed}.items() if name != options.metric.name},
    )


_Found = Iterator[tuple[str, str]]


def _reader(options: Options) -> tuple[Callable[[str], _Found], Callable[[str], str]]:
    """Return what finds (name, text) in an output, and how a place is described where one is missing."""
    if options.patterns:
        return (
            lambda output: _by_pattern(output, options.patterns),
            lambda name: f"a match of the pattern {options.patterns.get(name, '(none given)')!r}",
        )
    if options.json_path:
        path = ".".join(options.json_path)
        return (
            lambda output: _in_json(output, options.json_path, options.metric.name),
            lambda name: f"a JSON object with {path}" if name == options.metric.name else f"{name} beside {path}",
        )
    if options.summary:
        return _in_summary, lambda name: f"a line '{name}: NUMBER' below a line '---'"
    return _metric_lines, lambda name: f"a line METRIC {name}=NUMBER"


def _only(name: str, found: Mapping[str, Sequence[str]], expected: str) -> float:
    """Return the number of that name if it is there once and is one."""
    texts = found.get(name, ())
    if not texts:
        there = f" It did print {', '.join(sorted(found)[:8])}." if found else ""
        raise CandidateError(f"The command ended well and printed no {name}: {expected} was expected.{there}")
    if len(texts) > 1:
        raise InvalidCandidateError(
            f"The command printed {name} {len(texts)} times ({', '.join(texts[:4])}), and only the evaluator may say "
            "it, once; which one counts is not for the candidate to choose."
        )
    try:
        value = float(texts[0])
    except ValueError as error:
        raise CandidateError(f"The command printed {name} as {texts[0][:40]!r}, which is no number.") from error
    if not math.isfinite(value):
        raise CandidateError(f"{name} is {texts[0]}, and a measurement must be finite.")
    return value


def _others(found: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return what else was printed; what is no number, or not one, is left out as unknown."""
    numbers: dict[str, float] = {}
    for name, texts in found.items():
        try:
            value = float(texts[0])
        except ValueError:
            continue
        if len(texts) == 1 and math.isfinite(value):
            numbers[name] = value
    return numbers


def _lines(output: str) -> list[str]:
    """Return the lines as a terminal leaves them: of a progress bar only its last state."""
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in output.split("\n")]


def _metric_lines(output: str) -> _Found:
    for line in _lines(output):
        found = _METRIC_LINE.fullmatch(line)
        if found:
            yield found[1], found[2]


def _by_pattern(output: str, patterns: Mapping[str, str]) -> _Found:
    text = "\n".join(_lines(output))
    for name, pattern in patterns.items():
        for found in re.finditer(pattern, text, re.MULTILINE):
            yield name, found[1] or ""


def _in_summary(output: str) -> _Found:
    """Yield the `name: value` lines of every block that begins with `---` and goes on to a line of another shape."""
    inside = False
    for line in _lines(output):
        if line == "---":
            inside = True
            continue
        found = _SUMMARY_LINE.fullmatch(line) if inside else None
        inside = found is not None
        if found:
            yield found[1], found[2].removesuffix("%")


def _in_json(output: str, path: Sequence[str], metric: str) -> _Found:
    """Yield the number at `path` under the metric's name, and its numeric neighbours under theirs."""
    for data in _json_objects(output):
        holder: Any = data
        for key in path[:-1]:
            holder = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(holder, dict) or path[-1] not in holder:
            continue
        for name, value in holder.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield metric if name == path[-1] else name, repr(value)
            elif name == path[-1]:
                yield metric, json.dumps(value)


def _json_objects(output: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of an output: all of it as one, or else each line that is one."""
    for text in (output, *_lines(output)):
        if not text.lstrip().startswith("{"):
            continue
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            continue  # other output may begin with a brace
        if isinstance(data, dict):
            yield data
            if text is output:
                return
