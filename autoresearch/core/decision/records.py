"""Reads the two tables that `autoresearch decide` takes, and turns them into races.

    arm,value                               repeated runs, one a row, in the order in which they were made
    date,variant,exposures,conversions      counts, one row per date and variant; the date may be left out

Commas, semicolons (with decimal commas) and tabs are told apart by the header. Whatever cannot be right is refused with
the number of its line.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision.noise import estimate_noise, plug_in_sd
from autoresearch.core.decision.race import ProportionRace, ValueRace
from autoresearch.core.decision.race_bernoulli import PRIOR, Counts
from autoresearch.core.decision.race_normal import t_statistic
from autoresearch.core.errors import UsageError

SHAPES = "arm,value or date,variant,exposures,conversions"
DEFAULT_LIFT = 0.2
"""Smallest lift worth having where nobody says one."""


_LARGEST = 1e100
"""Squares of larger values come near the end of double precision."""


@dataclass(frozen=True, slots=True)
class Names:
    """The two arms as the file calls them."""

    control: str
    treatment: str


@dataclass(frozen=True, slots=True)
class ProportionTable:
    """Counts of two arms.

    Attributes:
        names: The arms; a of the counts is the control.
        dates: One per look, as written.
        counts: Increments per look, shape (T,).
    """

    names: Names
    dates: tuple[str, ...]
    counts: Counts

    def race(
        self, min_effect: float, prior: tuple[float, float] = PRIOR, *, lower_is_better: bool = False
    ) -> ProportionRace:
        """Return the race of the two arms; where lower is better they are exchanged."""
        return ProportionRace(self.counts.exchanged() if lower_is_better else self.counts, min_effect, prior)


@dataclass(frozen=True, slots=True)
class ValueTable:
    """Repeated runs of two arms.

    Attributes:
        names: The arms.
        rows: (whether it is the treatment, value), in the order of the file.
    """

    names: Names
    rows: tuple[tuple[bool, float], ...]

    def looks(self, sign: float = 1.0, origin: float = 0.0) -> list[tuple[ArmTotals, ArmTotals]]:
        """Return the cumulative totals of control and treatment after every row from which on both have runs.

        Args:
            sign: -1 negates the values.
            origin: Is taken off each value first. Sums of squares of a million lose a spread of a thousandth, and
                neither a difference nor a spread depends on where values are counted from.
        """
        control, treatment = (ArmTotals(name, 0, 0.0, 0.0) for name in (self.names.control, self.names.treatment))
        looks = []
        for is_treatment, value in self.rows:
            if is_treatment:
                treatment = _with(treatment, sign * (value - origin))
            else:
                control = _with(control, sign * (value - origin))
            if control.n and treatment.n:
                looks.append((control, treatment))
        return looks

    def _origin(self) -> float:
        """Return what to take off each value: the control's first, or nothing where every run repeats exactly.

        Without a spread it is the size of the values that says what double precision could not have shown.
        """
        first = next(value for is_treatment, value in self.rows if not is_treatment)
        noise = estimate_noise(self.looks(origin=first)[-1])
        return first if noise is not None and noise.sd > 0 else 0.0

    def sd(self) -> float:
        """Return the standard deviation within the arms.

        Raises:
            UsageError: If no arm was measured twice.
        """
        control, treatment = self.looks(origin=self._origin())[-1]
        noise = estimate_noise([control, treatment])
        if noise is None:
            raise UsageError(
                f"{self.names.control} and {self.names.treatment} have one run each, and from single runs nobody can "
                "tell a difference from noise.\nRun at least one of them again with another seed and add the row."
            )
        return plug_in_sd(noise, control.mean) if noise.sd == 0 else noise.sd

    def race(
        self, min_effect: float | None = None, noise: float | None = None, *, lower_is_better: bool = False
    ) -> tuple[ValueRace, float]:
        """Return the race with a look at every row, and the smallest effect in the unit of the values.

        Args:
            min_effect: Smallest difference worth having, in the unit; None: one standard deviation.
            noise: Standard deviation of a run, known from elsewhere; None: as the runs of this file scatter. Either way
                it only turns `min_effect` into standard deviations; what the race is judged against is the scatter
                of these runs.
            lower_is_better: Negates the values.

        Raises:
            UsageError: If no arm was measured twice.
        """
        spread = self.sd()
        unit = spread if noise is None else noise
        smallest = unit if min_effect is None else min_effect
        looks = self.looks(-1.0 if lower_is_better else 1.0, self._origin())
        return ValueRace([t_statistic(*look) for look in looks], smallest, smallest / unit), smallest


def _with(totals: ArmTotals, value: float) -> ArmTotals:
    return ArmTotals(totals.arm, totals.n + 1, totals.total + value, totals.total_sq + value * value)


def read_tables(
    text: str, *, control: str | None = None, treatment: str | None = None, cumulative: bool = False
) -> list[ProportionTable] | list[ValueTable]:
    """Read a file of either shape: one table for each treatment beside the one control, in order of appearance.

    Args:
        text: The file.
        control: Name of the control arm; None: `control` where there is one, else the first arm of the file.
        treatment: Name of the one treatment that is wanted; None: all of them.
        cumulative: Counts are running totals per variant instead of increments.

    Raises:
        UsageError: If the table is of neither shape, a row cannot be right (names the line), or there are not two arms.
    """
    rows = _rows(text)
    if {"arm", "value"} <= set(rows[0].cells):
        if cumulative:
            raise UsageError("--cumulative is for counts, and this file has one run a row. Leave it out.")
        pairs = _pairs([row.name("arm") for row in rows], control, treatment)
        return [_value_table(rows, names) for names in pairs]
    _refuse_several_experiments(rows)
    pairs = _pairs([row.name("variant") for row in rows], control, treatment)
    return [_proportion_table(rows, names, cumulative) for names in pairs]


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    cells: Mapping[str, str]
    decimal_comma: bool

    def number(self, column: str) -> float:
        text = self.cells[column]
        try:
            value = float(text.replace(",", ".") if self.decimal_comma else text)
        except ValueError as error:
            said = f"is {text!r}, which is no number" if text else "is empty"
            raise UsageError(f"Line {self.line}: {column} {said}.\nWrite a number there or delete the line.") from error
        if not math.isfinite(value):
            raise UsageError(
                f"Line {self.line}: {column} is {text}; a value that was not measured is no value.\nDelete the line."
            )
        if abs(value) > _LARGEST:
            raise UsageError(f"Line {self.line}: {column} is {text}, larger than any measurement.\nCorrect the line.")
        return value

    def count(self, column: str) -> float:
        value = self.number(column)
        if value < 0 or value != int(value):
            wrong = "negative" if value < 0 else "no whole number"
            raise UsageError(f"Line {self.line}: {column} is {self.cells[column]}, {wrong}; it counts people.")
        return value

    def name(self, column: str) -> str:
        name = self.cells[column]
        if not name:
            raise UsageError(f"Line {self.line}: {column} is empty.\nWrite the name of the arm there.")
        return name


def _rows(text: str) -> list[_Row]:
    """Return the rows by column name; checks the header and the number of cells."""
    text = text.removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise UsageError(f"The file is empty.\nIt should begin with a header: {SHAPES}.")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise UsageError(f"Line {reader.line_num} is no line of a table: {error}.") from error
    line, header = lines[0]
    header = [cell.lower() for cell in header]
    _check_header(header, line)
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise UsageError(
                f"Line {line} has {len(cells)} cells where the header has {len(header)} ({', '.join(header)})."
            )
    rows = [_Row(line, dict(zip(header, cells, strict=True)), delimiter == ";") for line, cells in lines[1:]]
    if not rows:
        raise UsageError("The file has a header and no rows.\nAdd the data, one row per line.")
    return rows


def _check_header(header: Sequence[str], line: int) -> None:
    known = {"arm", "value"}, {"variant", "exposures", "conversions"}
    if not any(columns <= set(header) for columns in known):
        shown = ", ".join(header)[:200]
        raise UsageError(
            f"Line {line} is no header that decide knows: {shown}.\n"
            f"The first line must name the columns, either {SHAPES}."
        )
    if len(set(header)) < len(header):
        raise UsageError(f"Line {line} names a column twice: {', '.join(header)}.")


def _pairs(arms: Sequence[str], control: str | None, treatment: str | None) -> list[Names]:
    """Choose the control and the treatments among the arms of the file, which are given in order of appearance."""
    distinct = list(dict.fromkeys(arms))
    for option, name in (("--control", control), ("--treatment", treatment)):
        if name is not None and name not in distinct:
            raise UsageError(f"No arm is named {name!r}; the file has {', '.join(distinct)}.\nCorrect {option}.")
    if len(distinct) == 1:
        raise UsageError(
            f"The file has one arm only, {distinct[0]}, and a decision compares two.\n"
            "Add the rows of the other arm; both must have been shown or run in the same period."
        )
    chosen = control or ("control" if "control" in distinct else distinct[0])
    others = [name for name in distinct if name != chosen]
    if treatment == chosen:
        raise UsageError(f"{chosen!r} cannot be control and treatment at once.\nName another --control or --treatment.")
    return [Names(chosen, name) for name in others if treatment in (None, name)]


def _value_table(rows: Sequence[_Row], names: Names) -> ValueTable:
    values = [(row.name("arm"), row.number("value")) for row in rows]
    wanted = (names.control, names.treatment)
    return ValueTable(names, tuple((arm == names.treatment, value) for arm, value in values if arm in wanted))


_Totals = tuple[float, float]


def _proportion_table(rows: Sequence[_Row], names: Names, cumulative: bool) -> ProportionTable:
    rows = [row for row in rows if row.name("variant") in (names.control, names.treatment)]
    dates = _in_order([row.cells.get("date", "") for row in rows])
    position = {label: index for index, label in enumerate(dates)}
    ordered = sorted(rows, key=lambda row: position[row.cells.get("date", "")])
    looks = {(name, label): (0.0, 0.0) for name in (names.control, names.treatment) for label in dates}
    running: dict[str, _Totals] = {names.control: (0.0, 0.0), names.treatment: (0.0, 0.0)}
    for row in ordered:
        name, key = row.name("variant"), (row.name("variant"), row.cells.get("date", ""))
        n, x = _increment(row, running[name] if cumulative else (0.0, 0.0))
        running[name] = (running[name][0] + n, running[name][1] + x)
        looks[key] = (looks[key][0] + n, looks[key][1] + x)
    for name, (units, _) in running.items():
        if units == 0:
            raise UsageError(f"{name} has no exposures in the whole file; a decision compares two arms with people in.")
    a, b = ([looks[name, label] for label in dates] for name in (names.control, names.treatment))
    if not any(n_a and n_b for (n_a, _), (n_b, _) in zip(a, b, strict=True)):
        raise UsageError(
            f"No date has people in both {names.control} and {names.treatment}, so nothing tells a better arm from a "
            "better day.\nShow both in the same period, and write their dates alike."
        )
    counts = Counts.of([n for n, _ in a], [x for _, x in a], [n for n, _ in b], [x for _, x in b])
    return ProportionTable(names, tuple(dates), counts)


def _increment(row: _Row, before: _Totals) -> _Totals:
    """Return what a row adds to the totals before it; these are zero where rows are increments already."""
    exposures, conversions = row.count("exposures"), row.count("conversions")
    if conversions > exposures:
        raise UsageError(
            f"Line {row.line}: {conversions:.0f} conversions are more than {exposures:.0f} exposures.\n"
            "Count each exposed person once, with at most one conversion."
        )
    n, x = exposures - before[0], conversions - before[1]
    if n < 0 or x < 0:
        what = "exposures" if n < 0 else "conversions"
        raise UsageError(
            f"Line {row.line}: the running total of {what} falls for {row.name('variant')}.\n"
            "Leave --cumulative out if each row counts its own day only."
        )
    if x > n:
        raise UsageError(
            f"Line {row.line}: since the row before, {row.name('variant')} gained {x:.0f} conversions and only {n:.0f} "
            "exposures.\nCount a conversion with the row in which its person was exposed, and a person only once its "
            "outcome is final."
        )
    return n, x


def _refuse_several_experiments(rows: Sequence[_Row]) -> None:
    experiments = list(dict.fromkeys(row.cells["experiment_id"] for row in rows if "experiment_id" in row.cells))
    if len(experiments) > 1:
        raise UsageError(
            f"The file has {len(experiments)} experiments ({', '.join(experiments[:5])}), and decide judges one.\n"
            "Put each into a file of its own."
        )


def _in_order(labels: Sequence[str]) -> list[str]:
    """Return the distinct dates in the order of time where all are ISO dates or numbers, else as they appear."""
    distinct = list(dict.fromkeys(labels))
    if all(label.isdecimal() for label in distinct):
        return sorted(distinct, key=int)
    if all(map(_is_date, distinct)):
        return sorted(distinct)
    return distinct


def _is_date(label: str) -> bool:
    try:
        date.fromisoformat(label[:10])
    except ValueError:
        return False
    return label[4:5] == "-"
