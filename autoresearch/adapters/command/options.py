"""What may be set about a command: the table `[adapter]`, `--set name=value`, and the flags of `autoresearch run`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoresearch.core import Direction, Guard, Metric, UsageError

SPLIT_MARK: Final = "{split}"
SEED_MARK: Final = "{seed}"

_PATTERN: Final = "pattern"
_REQUIRED: Final = {
    "edit": "which files may change: --edit 'src/**/*.py'",
    "measure": "what measures them: --measure 'python bench.py'",
    "metric": "the name of the number that it prints: --metric latency_ms",
    "direction": "which way is better: --minimize or --maximize",
}
_KNOWN: Final = (
    *("edit", "measure", "metric", "direction", "unit", "noise", "min_effect", "check", "repeat", "timeout"),
    *("guard", "pattern", "json_path", "summary", "read_only", "link", "writes", "gpu", "memory_mb"),
)
_GUARD = re.compile(r"(?P<name>[^\s<>=]+)\s*(?P<relation><=|>=)\s*(?P<sign>[+-]?)(?P<number>[\d.]+)\s*(?P<percent>%?)")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a command, as parsed; lists are separated by commas in the text.

    Attributes:
        edit: Globs of the files that may change.
        measure: Shell command that prints the number; `{seed}` and `{split}` are filled in.
        metric: What is measured: name, unit, direction, noise, min_effect.
        check: Shell command that must end with exit code 0 for a candidate to be measured at all; empty without.
        repeat: How often the command runs for one measurement, whose value is the median.
        timeout_seconds: Longest time of one run of either command.
        guards: What must not get worse by much.
        patterns: Regular expressions by metric name, each with one group; empty: `METRIC name=value` lines are read.
        json_path: Keys to the number in the JSON that the command prints; empty without.
        summary: Whether the number stands in a block of `name: value` lines below a line `---`.
        read_only: Globs of the files that are shown to the proposer.
        link: Files and folders that are used where they lie and not copied: data, a virtual environment.
        writes: Globs of files that the commands themselves may change.
        gpu: Whether the commands may use the GPU; `--device` may say so too.
        memory_mb: Resident memory that the commands may use; None without a limit.
    """

    edit: tuple[str, ...]
    measure: str
    metric: Metric
    check: str = ""
    repeat: int = 1
    timeout_seconds: float = 300.0
    guards: tuple[Guard, ...] = ()
    patterns: Mapping[str, str] = field(default_factory=dict)
    json_path: tuple[str, ...] = ()
    summary: bool = False
    read_only: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    gpu: bool = False
    memory_mb: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Read options as text.

        Raises:
            UsageError: If one is unknown (lists those there are), missing, or makes no sense.
        """
        unknown = sorted(name for name in given if name not in _KNOWN and not name.startswith(f"{_PATTERN}."))
        if unknown:
            raise UsageError(
                f"The command adapter has no option {unknown[0]!r}; known are {', '.join(_KNOWN)}.\n"
                "Mend the table [adapter] of autoresearch.toml or the --set on the command line."
            )
        missing = [words for name, words in _REQUIRED.items() if not given.get(name, "").strip()]
        if missing:
            raise UsageError("The command adapter has to know " + "; ".join(missing) + ".")
        options = cls(
            edit=_globs("edit", given["edit"]),
            measure=given["measure"].strip(),
            metric=_metric(given),
            check=given.get("check", "").strip(),
            repeat=_repeat(given.get("repeat", "auto")),
            timeout_seconds=_positive("timeout", given.get("timeout", "300")),
            guards=tuple(parse_guard(text) for text in _list(given.get("guard", ""))),
            patterns=_patterns(given),
            json_path=_path(given.get("json_path", "")),
            summary=_truth("summary", given.get("summary", "false")),
            read_only=_globs("read_only", given.get("read_only", "")),
            link=tuple(_list(given.get("link", ""))),
            writes=_globs("writes", given.get("writes", "")),
            gpu=_truth("gpu", given.get("gpu", "false")),
            memory_mb=int(_positive("memory_mb", given["memory_mb"])) if "memory_mb" in given else None,
        )
        if sum((bool(options.patterns), bool(options.json_path), options.summary)) > 1:
            raise UsageError(
                "The number can be read in one way only: by pattern, json_path or summary.\nLeave the others out."
            )
        return options

    @property
    def seeded(self) -> bool:
        """Whether the command is told the seed."""
        return SEED_MARK in self.measure

    @property
    def has_holdout(self) -> bool:
        """Whether the command can be told to use other data."""
        return SPLIT_MARK in self.measure


def parse_guard(text: str) -> Guard:
    """Read a guard such as `memory_mb<=+5%`, `accuracy>=-0.01` or `size_kb<=512`.

    With a sign the limit counts from the baseline, with `%` as a share of it.

    Raises:
        UsageError: If it is none.
    """
    found = _GUARD.fullmatch(text.strip())
    number = _number(found["number"]) if found else None
    if found is None or number is None or (found["percent"] and not found["sign"]):
        raise UsageError(
            f"{text!r} is no guard.\n"
            "Write NAME<=+5% (at most 5 % above the baseline), NAME>=-0.01 (at most 0.01 below it) or NAME<=512."
        )
    limit = -number if found["sign"] == "-" else number
    relation = "relative" if found["percent"] else "difference" if found["sign"] else "absolute"
    return Guard(found["name"], found["relation"] == "<=", limit / 100 if found["percent"] else limit, relation)


def _metric(given: Mapping[str, str]) -> Metric:
    noise = given.get("noise", "").strip()
    try:
        direction = Direction(given["direction"].strip())
    except ValueError as error:
        raise UsageError(f"direction must be minimize or maximize, not {given['direction']!r}.") from error
    name = given["metric"].strip()
    if re.search(r"[\s=]", name):
        raise UsageError(f"The metric's name must be one word without '=', not {name!r}.")
    try:
        return Metric(
            name,
            given.get("unit", "").strip(),
            direction,
            noise=_positive("noise", noise) if noise else None,
            min_effect=_at_least_zero("min_effect", given.get("min_effect", "0")),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _patterns(given: Mapping[str, str]) -> dict[str, str]:
    """Return regular expressions by metric name; the bare option is that of the metric itself."""
    found = {given["metric"].strip(): given[_PATTERN]} if given.get(_PATTERN) else {}
    found |= {key.partition(".")[2]: text for key, text in given.items() if key.startswith(f"{_PATTERN}.") and text}
    for name, text in found.items():
        try:
            groups = re.compile(text, re.MULTILINE).groups
        except re.error as error:
            raise UsageError(f"The pattern of {name} is no regular expression: {error}.") from error
        if groups != 1:
            raise UsageError(
                f"The pattern of {name} has {groups} groups, and exactly one must hold the number: "
                r"'^latency: ([\d.]+)'"
            )
    if found and given["metric"].strip() not in found:
        raise UsageError(f"There are patterns, and none of {given['metric']}.\nGive it with --pattern.")
    return found


def _path(text: str) -> tuple[str, ...]:
    keys = tuple(text.strip().split(".")) if text.strip() else ()
    if any(not key for key in keys):
        raise UsageError(f"json_path is keys joined by dots, such as results.latency.p50, not {text!r}.")
    return keys


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _globs(name: str, text: str) -> tuple[str, ...]:
    globs = tuple(part.removeprefix("./") for part in _list(text))
    for pattern in globs:
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            raise UsageError(f"{name} names files of the checkout, relative to its folder, not {pattern!r}.")
    return globs


def _repeat(text: str) -> int:
    if text.strip() == "auto":
        return 1
    if not text.strip().isdecimal() or int(text) < 1:
        raise UsageError(f"repeat must be auto or a whole number from 1 on, not {text!r}.")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"{name} must be true or false, not {text!r}.")
    return text == "true"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _positive(name: str, text: str) -> float:
    value = _number(text)
    if value is None or value <= 0:
        raise UsageError(f"{name} must be a positive number, not {text!r}.")
    return value


def _at_least_zero(name: str, text: str) -> float:
    value = _number(text)
    if value is None or value < 0:
        raise UsageError(f"{name} must be zero or more, not {text!r}.")
    return value
