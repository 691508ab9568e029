"""Daily totals from any tool: a CSV file, a Parquet file; `counts_sql` has queries to a database.

A source gives one row per day and variant with the columns

    date, variant, exposures, conversions [, experiment_id] [, value_sum, value_sum_sq]

and a look is the cumulative total up to a day. Exports of ad platforms are recognised by their column names. They are
taken as *not randomised*: a platform gives each ad the people who, it expects, will click it, so that the groups differ
and a lift between them may be the audience's.

A row that makes no sense stops everything and is named by its line: a total over the other rows would be a number about
nobody.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from autoresearch.core import ArmTotals, EnvironmentNotReadyError, UsageError

REQUIRED = ("date", "variant", "exposures", "conversions")
OPTIONAL = ("experiment_id", "value_sum", "value_sum_sq")

_FAULTS_SHOWN = 5
_PREAMBLE = 10
"""Lines in which the header is looked for: ad platforms put a title and the dates above it."""


@dataclass(frozen=True, slots=True)
class DailyTotal:
    """What one variant did on one day.

    Attributes:
        day: The day, in the time zone of the source.
        variant: Name of the arm.
        n: Units exposed.
        total: Conversions, or the sum of values where the source has values.
        total_sq: Sum of squared values; for conversions their number.
        experiment: Name of the test; empty where the source holds only one.
    """

    day: date
    variant: str
    n: int
    total: float
    total_sq: float
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Daily totals of a source, checked.

    Attributes:
        rows: By day, then experiment and variant.
        source: Where they come from, in words; never holds a password.
        randomised: False where somebody or something chose who sees which variant: no lift is then caused by the copy
            for sure.
        note: What a reader must be told about them; empty where nothing.
    """

    rows: tuple[DailyTotal, ...]
    source: str
    randomised: bool = True
    note: str = ""

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the tests, sorted."""
        return tuple(sorted({row.experiment for row in self.rows}))

    def variants(self, experiment: str = "") -> tuple[str, ...]:
        """Names of the arms of a test, sorted."""
        return tuple(sorted({row.variant for row in self.rows if row.experiment == experiment}))

    def looks(
        self,
        arms: Mapping[str, str],
        experiment: str = "",
        *,
        since: date | None = None,
        before: date | None = None,
    ) -> tuple[tuple[ArmTotals, ...], ...]:
        """Return cumulative totals after each day that has rows, the arms in the order of `arms`.

        Args:
            arms: Name of an arm here (`control`, `treatment`) -> name of the variant in the source.
            experiment: Name of the test in the source.
            since: First day that counts; None: the first there is.
            before: The first day that does not count, today for one, which is not over, or the first day whose people
                may still convert; None: all count.

        Raises:
            UsageError: If the source has no such test, or never a row of one of the variants.
        """
        rows = [row for row in self.rows if row.experiment == experiment]
        if not rows:
            raise UsageError(self._no_experiment(experiment))
        for variant in arms.values():
            if variant not in {row.variant for row in rows}:
                raise UsageError(
                    f"{self.source} has no variant {variant!r}; it has {', '.join(self.variants(experiment))}.\n"
                    "Name the variants as the source does."
                )
        of = {variant: arm for arm, variant in arms.items()}
        sums = {arm: ArmTotals(arm, 0, 0.0, 0.0) for arm in arms}
        looks: dict[date, tuple[ArmTotals, ...]] = {}
        for row in rows:
            inside = (since is None or row.day >= since) and (before is None or row.day < before)
            if inside and row.variant in of:
                sums[of[row.variant]] = _add(sums[of[row.variant]], row)
                looks[row.day] = tuple(sums.values())
        return tuple(looks.values())

    def _no_experiment(self, experiment: str) -> str:
        if not self.rows:
            return f"{self.source} has no rows yet.\nStart the test in your tool, and look again when a day has passed."
        named = ", ".join(name or "(no experiment_id)" for name in self.experiments[:8])
        return f"{self.source} has no test {experiment!r}; it has {named}.\nName the test as the source does."


def _add(sums: ArmTotals, row: DailyTotal) -> ArmTotals:
    return ArmTotals(sums.arm, sums.n + row.n, sums.total + row.total, sums.total_sq + row.total_sq)


# Formats. A format says which column is what; the one of our own comes first, ad platforms after it.


@dataclass(frozen=True, slots=True)
class AdFormat:
    """Columns of an ad platform's daily report, lower case; of several names the first that is there counts.

    Attributes:
        name: For messages.
        day: The day.
        variant: What tells the ads apart.
        exposures: Times shown, or people reached.
        results: What may be counted as a conversion, by the name of the goal.
    """

    name: str
    day: tuple[str, ...]
    variant: tuple[str, ...]
    exposures: tuple[str, ...]
    results: Mapping[str, tuple[str, ...]]


AD_FORMATS = (
    AdFormat(
        "Google Ads",
        ("day",),
        ("ad id", "ad name", "ad", "headline 1", "ad group"),
        ("impr.", "impressions"),
        {"clicks": ("clicks",), "conversions": ("conversions",)},
    ),
    AdFormat(
        "Meta Ads",
        ("reporting starts", "day"),
        ("ad id", "ad name", "ad set name"),
        ("impressions",),
        {"clicks": ("link clicks", "clicks (all)"), "conversions": ("results",)},
    ),
)
"""Reports by day of the two largest ad platforms, in English, as their help pages name the columns."""

_META_ONLY = frozenset({"reporting starts", "reporting ends", "link clicks", "clicks (all)", "ad set name", "results"})
_DELIVERED = (
    "Not randomised: {name} gives each ad the people who it expects will respond, so the groups differ and a lift may "
    "be theirs. Use the platform's own split test and say randomised = true, or read this as a hint."
)
_CHOSEN = "Not randomised, as the campaign says: what chose who sees what may be the reason for a lift. It is a hint."


@dataclass(frozen=True, slots=True)
class _Reading:
    """How to turn one raw row into a `DailyTotal`: our column -> theirs."""

    columns: Mapping[str, str]
    ads: AdFormat | None = None


def _reading(header: Sequence[str], goal: str, source: str) -> _Reading:
    """Return which column is what.

    Raises:
        UsageError: If required columns are missing.
    """
    names = {name.strip().casefold(): name for name in header}
    if all(name in names for name in REQUIRED):
        return _Reading({name: names[name] for name in (*REQUIRED, *OPTIONAL) if name in names})
    for ads in AD_FORMATS:
        if (ads.name == "Meta Ads") != bool(_META_ONLY & names.keys()):
            continue
        if goal not in ads.results:
            raise UsageError(
                f"{ads.name} reports {' and '.join(ads.results)}, not {goal!r}.\nTake one of them as goal."
            )
        parts = {"date": ads.day, "variant": ads.variant, "exposures": ads.exposures, "conversions": ads.results[goal]}
        found = {ours: next((names[name] for name in theirs if name in names), None) for ours, theirs in parts.items()}
        if all(found.values()):
            found["until"] = names.get("reporting ends", found["date"])
            return _Reading({ours: str(theirs) for ours, theirs in found.items()}, ads)
    missing = [name for name in REQUIRED if name not in names]
    raise UsageError(
        f"{source} lacks the columns {', '.join(missing)}; it has {', '.join(header) or 'none'}.\n"
        f"Daily totals need {', '.join(REQUIRED)}; {', '.join(OPTIONAL)} may be there too. Ad platforms' reports must "
        "be by day and by ad."
    )


class _Fault(Exception):
    """Why a row makes no sense, in a few words."""


def _rows(raw: Iterable[tuple[str, Mapping[str, Any] | str]], reading: _Reading, source: str) -> tuple[DailyTotal, ...]:
    """Return the checked rows, sorted.

    Args:
        raw: (where: "line 7", row by column, or what is wrong with it).
        reading: Which column is what.
        source: For the message.

    Raises:
        UsageError: If rows make no sense or come twice; names the first few by where they are.
    """
    faults, rows = [], {}
    first_seen: dict[tuple[date, str, str], str] = {}
    for where, row in raw:
        try:
            if isinstance(row, str):
                raise _Fault(row)
            total = _daily_total(row, reading)
            key = (total.day, total.experiment, total.variant)
            if key in first_seen:
                hint = "; add the column Ad ID to the report" if reading.ads else ""
                raise _Fault(f"the same day and variant as {first_seen[key]}; it would count twice{hint}")
            first_seen[key], rows[key] = where, total
        except _Fault as fault:
            faults.append(f"  {where}: {fault}")
    if faults:
        more = [f"  and {len(faults) - _FAULTS_SHOWN} more"] if len(faults) > _FAULTS_SHOWN else []
        shown = "\n".join(faults[:_FAULTS_SHOWN] + more)
        raise UsageError(
            f"{source} has rows that make no sense, so none was used:\n{shown}\nCorrect them and try again."
        )
    return tuple(rows[key] for key in sorted(rows))


def _daily_total(row: Mapping[str, Any], reading: _Reading) -> DailyTotal:
    def cell(name: str) -> Any:
        return row.get(reading.columns[name]) if name in reading.columns else None

    variant = _name(cell("variant"))
    if not variant:
        raise _Fault("the variant is empty")
    day, experiment = _day(cell("date"), cell("until")), _name(cell("experiment_id"))
    n = _whole("exposures", cell("exposures"), reading)
    results = cell("conversions")
    # Ad platforms leave a cell empty, or write two dashes, where there was nothing to count.
    nothing = reading.ads is not None and str(results or "").strip() in ("", "--")
    conversions = 0 if nothing else _whole("conversions", results, reading)
    if _blank(cell("value_sum")) and _blank(cell("value_sum_sq")):
        if conversions > n:
            raise _Fault(f"{conversions} conversions of {n} exposures; a unit converts once at most")
        return DailyTotal(day, variant, n, float(conversions), float(conversions), experiment)
    total, squares = _real("value_sum", cell("value_sum")), _real("value_sum_sq", cell("value_sum_sq"))
    # Cauchy and Schwarz; a little room, since sums come rounded.
    if squares < 0 or total * total > n * squares * (1.0 + 1e-9) + 1e-9:
        raise _Fault(f"value_sum_sq {squares:g} is too small for {n} values that sum to {total:g}")
    return DailyTotal(day, variant, n, total, squares, experiment)


def _name(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _day(value: Any, until: Any) -> date:
    """Return the day of a row; `until` is its last day where a report says so."""
    if not _blank(until) and until != value:
        raise _Fault(f"it runs from {value} to {until}; break the report down by day")
    if isinstance(value, date):
        return value.date() if isinstance(value, datetime) else value
    try:
        return datetime.fromisoformat(_name(value)).date()
    except ValueError as error:
        raise _Fault(f"{value!r} is no date like 2026-03-31") from error


def _whole(name: str, value: Any, reading: _Reading) -> int:
    number = _real(name, value, commas=reading.ads is not None)
    if number < 0 or number != int(number):
        hint = (
            "; the platform shares conversions out among ads, take clicks as goal" if reading.ads and number > 0 else ""
        )
        raise _Fault(f"{name} is {value}, and must be a whole number, 0 or more{hint}")
    return int(number)


def _real(name: str, value: Any, *, commas: bool = False) -> float:
    if _blank(value):
        raise _Fault(f"{name} is empty")
    text = str(value).strip()
    try:
        number = float(text.replace(",", "") if commas else text)
    except ValueError as error:
        raise _Fault(f"{name} is {text!r}, which is no number") from error
    if not math.isfinite(number) or abs(number) > 1e18:
        raise _Fault(f"{name} is {text!r}, which is no possible count")
    return number


def _counts(rows: tuple[DailyTotal, ...], reading: _Reading, source: str, randomised: bool | None) -> Counts:
    """Return the counts with what is known of how variants were assigned."""
    if randomised is None:
        randomised = reading.ads is None
    if randomised:
        return Counts(rows, source)
    return Counts(rows, source, False, _DELIVERED.format(name=reading.ads.name) if reading.ads else _CHOSEN)


def numbered_counts(
    header: Sequence[str], raw: Iterable[Sequence[Any]], source: str, *, randomised: bool | None = None
) -> Counts:
    """Return the checked daily totals of a table without lines of its own; faults are named by row, from 1.

    Args:
        header: Names of the columns.
        raw: The rows, each as long as the header.
        source: Where they come from, for messages; must not hold a password.
        randomised: Whether chance decided who sees what; None: yes.

    Raises:
        UsageError: If columns are missing, or rows make no sense.
    """
    reading = _reading(header, "conversions", source)
    named = ((f"row {number}", dict(zip(header, row, strict=True))) for number, row in enumerate(raw, 1))
    return _counts(_rows(named, reading, source), reading, source, randomised)


def read_csv(path: Path, *, goal: str = "clicks", randomised: bool | None = None) -> Counts:
    """Read daily totals from a CSV file, or from an ad platform's report by day and ad.

    Args:
        path: Comma, semicolon or tab separated, UTF-8 or UTF-16 as ad platforms write it, with a header line.
        goal: What counts as a conversion in an ad platform's report: `clicks` or `conversions`.
        randomised: Whether chance decided who sees what; None: yes, except in ad platforms' reports.

    Raises:
        UsageError: If the file is missing, lacks columns, or has rows that make no sense.
    """
    lines = _text(path).splitlines(keepends=True)
    dialect = _separator(lines)
    skip = _header_at(lines, dialect, goal)
    reader = csv.reader(lines[skip:], delimiter=dialect)
    header = next(reader, [])
    reading = _reading(header, goal, str(path))

    def raw() -> Iterator[tuple[str, Mapping[str, Any] | str]]:
        for cells in reader:
            where = f"line {reader.line_num + skip}"
            if not any(cell.strip() for cell in cells) or _is_sum(cells, reading):
                continue
            if len(cells) == len(header):
                yield where, dict(zip(header, cells, strict=True))
            else:
                yield where, f"{len(cells)} cells, where the header has {len(header)}"

    try:
        return _counts(_rows(raw(), reading, str(path)), reading, str(path), randomised)
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num + skip}, is no CSV: {error}.\nCorrect it.") from error


def _is_sum(cells: Sequence[str], reading: _Reading) -> bool:
    """Say whether a row of an ad platform's report is the sum below the table, which has no day."""
    return reading.ads is not None and cells[0].strip().casefold().startswith(("total", "result"))


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing.\nWrite the daily totals there, or name the right file.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.\nIt must be a file that you may read.") from error
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is no {encoding[:6].rstrip('-')} text (byte {error.start}).\nSave it as UTF-8."
        ) from error


def _separator(lines: Sequence[str]) -> str:
    """Return the separator that the first lines have most of; ties go to the comma."""
    head = "".join(lines[:_PREAMBLE])
    return max(",\t;", key=head.count)


def _header_at(lines: Sequence[str], separator: str, goal: str) -> int:
    """Return the index of the first line that reads as a header; 0 where none does, for the message."""
    for index, line in enumerate(lines[:_PREAMBLE]):
        try:
            _reading(next(csv.reader([line], delimiter=separator), []), goal, "")
        except UsageError:
            continue
        return index
    return 0


def read_parquet(path: Path, *, randomised: bool | None = None) -> Counts:
    """Read daily totals from a Parquet file, or from several by a pattern such as `totals/*.parquet`, with DuckDB.

    Raises:
        UsageError: If there is no such file, or it lacks columns or has rows that make no sense.
        EnvironmentNotReadyError: If DuckDB is not installed.
    """
    duckdb = _duckdb()
    if not any(path.parent.glob(path.name)):
        raise UsageError(f"{path} is missing.\nWrite the daily totals there, or name the right file.")
    # Nothing may be fetched: a file names no address, and no extension is installed behind the person's back.
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
    with duckdb.connect(":memory:", config=settings) as connection:
        try:
            cursor = connection.execute("SELECT * FROM read_parquet(?, union_by_name = true)", [str(path)])
            header = [column[0] for column in cursor.description]
            raw = cursor.fetchall()
        except duckdb.Error as error:
            raise UsageError(f"{path} cannot be read as Parquet: {error}.\nWrite it anew.") from error
    return numbered_counts(header, raw, str(path), randomised=randomised)


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise EnvironmentNotReadyError(
            "Reading Parquet needs DuckDB, which is not installed.\nInstall it: pip install 'autoresearch[marketing]'"
        ) from error
    return duckdb
