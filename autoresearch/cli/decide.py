"""`autoresearch decide`: the race for people who only have numbers.

Of several treatments each is raced against the one control at its share of alpha, as the loop does it.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.options import JsonOption
from autoresearch.cli.render import as_json, clean, fields

if TYPE_CHECKING:
    from autoresearch.core.decision.race import Family, Judgement
    from autoresearch.core.decision.records import ProportionTable, ValueTable

_PRIOR = "1,19"
_LARGEST_LIFT = 10.0
_LARGEST_FILE = 8 << 20  # bytes; a year of days has kilobytes, and a wrong file should not keep anybody waiting


def decide(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV with the columns arm,value or date,variant,exposures,conversions; - reads stdin."
        ),
    ],
    control: Annotated[
        str | None, typer.Option(help="The arm to beat; by default control, else the first seen.", show_default=False)
    ] = None,
    treatment: Annotated[
        str | None, typer.Option(help="The one arm to judge; by default all but the control.", show_default=False)
    ] = None,
    cumulative: Annotated[bool, typer.Option("--cumulative", help="Counts are running totals.")] = False,
    alpha: Annotated[float, typer.Option(help="Chance of keeping what is not better, at most.")] = 0.05,
    beta: Annotated[
        float, typer.Option(help="Chance of reverting what is better by --min-effect, at most; 0 never does.")
    ] = 0.2,
    min_effect: Annotated[
        float | None,
        typer.Option(
            help="Smallest improvement worth having: a lift for counts (by default 0.2), in the unit for values (by "
            "default one standard deviation).",
            show_default=False,
        ),
    ] = None,
    prior: Annotated[
        str, typer.Option(metavar="A,B", help="Counts: successes and failures that the pooled rate begins with.")
    ] = _PRIOR,
    noise: Annotated[
        float | None,
        typer.Option(help="Values: standard deviation of a run, where it is known.", show_default=False),
    ] = None,
    lower_is_better: Annotated[
        bool, typer.Option("--lower-is-better", help="A smaller value or rate is the better one.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Judge arms against a control: keep, revert, or what is missing.

    Several arms share --alpha, the chance of keeping any that is not better. Looking is allowed at any time and as
    often as you like: the verdict is that of the first look at which a line is crossed.
    """
    _check_options(alpha, beta, min_effect, noise)
    counts = _prior(prior)
    from autoresearch.core.decision.arms import judge_arms
    from autoresearch.core.decision.records import DEFAULT_LIFT, ProportionTable, read_tables

    tables = read_tables(_read(file), control=control, treatment=treatment, cumulative=cumulative)
    races: dict[str, tuple[Family, float]] = {}
    for table in tables:
        if isinstance(table, ProportionTable):
            if noise is not None:
                raise typer.BadParameter("is for values; counts carry their own noise.", param_hint="--noise")
            smallest = DEFAULT_LIFT if min_effect is None else _lift(min_effect)
            races[table.names.treatment] = (table.race(smallest, counts, lower_is_better=lower_is_better), smallest)
        else:
            if prior != _PRIOR:
                raise typer.BadParameter("is for counts; values have no rate to begin with.", param_hint="--prior")
            races[table.names.treatment] = table.race(min_effect, noise, lower_is_better=lower_is_better)
    judgements = judge_arms({name: race for name, (race, _) in races.items()}, alpha, beta)
    judged = [
        _Judged(table, *races[table.names.treatment], judgements[table.names.treatment], alpha / len(tables), beta)
        for table in tables
    ]
    if json:
        typer.echo(
            as_json(_as_record(judged[0].table, judged[0].judgement) if len(judged) == 1 else _as_records(judged))
        )
        return
    typer.echo(_told(judged[0], lower_is_better) if len(judged) == 1 else _told_all(judged, lower_is_better), nl=False)


@dataclass(frozen=True)
class _Judged:
    """One treatment, its race against the control and what came of it; `alpha` is its own share."""

    table: ProportionTable | ValueTable
    race: Family
    smallest: float
    judgement: Judgement
    alpha: float
    beta: float

    @property
    def relative(self) -> bool:
        """Whether effects are lifts."""
        from autoresearch.core.decision.records import ProportionTable

        return isinstance(self.table, ProportionTable)

    @property
    def size(self) -> Callable[[float], str]:
        """How an effect is written."""
        return _percent if self.relative else _plain


def _check_options(alpha: float, beta: float, min_effect: float | None, noise: float | None) -> None:
    if not 0 < alpha < 1:
        raise typer.BadParameter(
            f"an error rate lies between 0 and 1, and {alpha:g} does not; 0.05 is the default.", param_hint="--alpha"
        )
    if not 0 <= beta < 1:
        raise typer.BadParameter(
            f"an error rate lies between 0 and 1, and {beta:g} does not; 0.2 is the default, 0 never reverts.",
            param_hint="--beta",
        )
    for name, value in (("--min-effect", min_effect), ("--noise", noise)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise typer.BadParameter(f"must be a number above 0, not {value:g}.", param_hint=name)


def _lift(min_effect: float) -> float:
    if min_effect >= _LARGEST_LIFT:
        raise typer.BadParameter(
            f"is a lift for counts, where 0.2 means 20 %, and {min_effect:g} means {100 * min_effect:g} %; it must be "
            f"below {_LARGEST_LIFT:g}.",
            param_hint="--min-effect",
        )
    return min_effect


def _prior(text: str) -> tuple[float, float]:
    try:
        successes, failures = (float(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not of the form A,B: two counts, such as 1,19.", param_hint="--prior"
        ) from error
    if not all(math.isfinite(count) and count > 0 for count in (successes, failures)):
        raise typer.BadParameter(f"both counts must be above 0, and {text} has others.", param_hint="--prior")
    return successes, failures


def _read(file: Path) -> str:
    """Return the text of a file or of standard input.

    Raises:
        UsageError: If it cannot be read or is no text.
    """
    from autoresearch.core.errors import UsageError

    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as source:
            data = source.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.\nName a CSV file, or - for stdin.") from error
    if len(data) > _LARGEST_FILE:
        raise UsageError(
            f"{file} has more than {_LARGEST_FILE >> 20} MiB, and no table of looks has.\n"
            "Give one row per day and arm with the sums of that day, or the file that was meant."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not UTF-8 text (byte {error.start}).\n"
            "Save it as CSV in UTF-8; a spreadsheet itself is not read."
        ) from error


def _as_record(table: ProportionTable | ValueTable, judgement: Judgement) -> dict[str, object]:
    """Return the object that `--json` prints; a bound that is not there is null."""
    return {
        "verdict": judgement.decision.value,
        "e_win": judgement.e_win,
        "e_lose": judgement.e_lose,
        "lift": judgement.effect,
        "lift_low": judgement.low if math.isfinite(judgement.low) else None,
        "lift_high": judgement.high if math.isfinite(judgement.high) else None,
        "n": _units(table, judgement.look),
        "looks": judgement.look + 1,
    }


def _as_records(judged: Sequence[_Judged]) -> dict[str, object]:
    """Return the object that `--json` prints for several treatments."""
    return {
        "best": _best(judged),
        "control": judged[0].table.names.control,
        "treatments": [
            {"treatment": one.table.names.treatment, **_as_record(one.table, one.judgement)} for one in judged
        ],
    }


def _best(judged: Sequence[_Judged]) -> str | None:
    from autoresearch.core.decision.arms import best_kept

    return best_kept({one.table.names.treatment: one.judgement for one in judged})


def _units(table: ProportionTable | ValueTable, look: int) -> int:
    """Return the units or runs of both arms up to a look."""
    from autoresearch.core.decision.records import ProportionTable

    if isinstance(table, ProportionTable):
        seen = table.counts.upto(look)
        return round(float(seen.n_a.sum() + seen.n_b.sum()))
    control, treatment = table.looks()[look]
    return control.n + treatment.n


def _told(one: _Judged, lower_is_better: bool) -> str:
    """Return what is printed of one treatment: one sentence, then the figures behind it."""
    return f"{clean(_sentence(one.table, one.judgement, one.size(one.smallest)))}\n\n{_figures(one, lower_is_better)}"


def _figures(one: _Judged, lower_is_better: bool) -> str:
    judgement, alpha, beta = one.judgement, one.alpha, one.beta
    return fields(
        [
            ("lift" if one.relative else "gain", _bounds(judgement, one.size, alpha, beta)),
            ("", _meaning(one.table) if one.relative and lower_is_better else ""),
            ("win", f"{judgement.e_win:.4g}; {1 / alpha:.4g} is enough to keep"),
            ("lose", f"{judgement.e_lose:.4g}; " + (f"{1 / beta:.4g} is enough to revert" if beta else "switched off")),
            ("data", _data(one.table, judgement.look)),
            ("missing", _missing(one.table, one.race, judgement, alpha, beta)),
        ]
    )


def _told_all(judged: Sequence[_Judged], lower_is_better: bool) -> str:
    """Return what is printed of several treatments: which is best, then each of them as if it were the only one."""
    from autoresearch.core.decision import Decision

    best, control = _best(judged), judged[0].table.names.control
    if best is not None:
        winners = sum(one.judgement.decision is Decision.KEEP for one in judged)
        head = f"Keep {best}: of {len(judged)} treatments it alone is shown to be better than {control}."
        if winners > 1:
            head = f"Keep {best}: of the {winners} treatments that are better than {control} it is the surest."
    elif all(one.judgement.decision is Decision.REVERT for one in judged):
        head = f"Revert to {control}: none of {len(judged)} treatments is better by as much as is worth having."
    else:
        head = f"Go on: nothing is decided yet between {control} and the best of {len(judged)} treatments."
    parts = [_told(one, lower_is_better) for one in judged]
    return "\n".join([f"{clean(head)}\n", *parts])


def _bounds(judgement: Judgement, size: Callable[[float], str], alpha: float, beta: float) -> str:
    """Return the improvement as seen and its bounds, each with its own confidence."""
    seen = "none to see yet" if judgement.effect is None else f"{size(judgement.effect)} as seen"
    low, high = judgement.low, judgement.high
    low_text = f"above {size(low)} ({100 * (1 - alpha):.4g} % sure)" if math.isfinite(low) else "no lower bound"
    high_text = f"below {size(high)} ({100 * (1 - beta):.4g} % sure)" if math.isfinite(high) else "no upper bound"
    return f"{seen}; {low_text}, {high_text}"


def _meaning(table: ProportionTable | ValueTable) -> str:
    """Return what a lift means where it is not the usual ratio."""
    names = table.names
    return (
        f"the rate of {names.control} over that of {names.treatment}, less 1: positive where {names.treatment} is lower"
    )


def _percent(value: float) -> str:
    return f"{100 * value:+.3g} %"


def _plain(value: float) -> str:
    return f"{value:+.4g}"


def _sentence(table: ProportionTable | ValueTable, judgement: Judgement, smallest: str) -> str:
    """Return the verdict in one plain sentence."""
    from autoresearch.core.decision import Decision

    names = table.names
    if judgement.decision is Decision.KEEP:
        return f"Keep {names.treatment}: it is better than {names.control}."
    if judgement.decision is Decision.REVERT:
        return f"Revert to {names.control}: {names.treatment} is not better by {smallest} or more."
    return f"Go on: nothing is decided yet between {names.treatment} and {names.control}."


def _data(table: ProportionTable | ValueTable, look: int) -> str:
    """Return the figures of both arms at the deciding look, and which look that is."""
    from autoresearch.core.decision.records import ProportionTable

    names = table.names
    if isinstance(table, ProportionTable):
        seen, looks = table.counts.upto(look), len(table.dates)
        arms = ((names.control, seen.n_a, seen.x_a), (names.treatment, seen.n_b, seen.x_b))
        shown = [
            f"{name}: {x.sum():.0f} of {n.sum():.0f}" + (f" ({x.sum() / n.sum():.3%})" if n.sum() else "")
            for name, n, x in arms
        ]
        when = f", {table.dates[look]}" if table.dates[look] else ""
    else:
        looks = len(table.looks())
        arms_by_value = table.looks()[look]
        # Six digits do where they tell the arms apart; latencies in nanoseconds need more.
        alike = len({f"{arm.mean:.6g}" for arm in arms_by_value}) == 1
        shown = [f"{arm.arm}: mean {arm.mean:.{12 if alike else 6}g} of {arm.n}" for arm in arms_by_value]
        when = ""
    return f"{'; '.join(shown)}; look {look + 1} of {looks}{when}"


def _missing(table: ProportionTable | ValueTable, race: Family, judgement: Judgement, alpha: float, beta: float) -> str:
    """Return about how many more units settle an open race; empty where it is settled."""
    from autoresearch.core.decision import Decision
    from autoresearch.core.decision.race import settling_share
    from autoresearch.core.decision.records import ProportionTable

    if judgement.decision is not Decision.CONTINUE:
        return ""
    unit = "exposures" if isinstance(table, ProportionTable) else "runs"
    found = settling_share(race, alpha, beta)
    if found is None:
        return f"no number of {unit} decides, if the arms stay as far apart as now"
    share, decision = found
    more = math.ceil(share * _units(table, judgement.look))
    way = "a keep" if decision is Decision.KEEP else "a revert"
    pace = ""
    if isinstance(table, ProportionTable) and len(table.dates) > 1:
        looks = math.ceil(share * len(table.dates))
        pace = f" ({looks} more look{'s' if looks > 1 else ''} at the pace so far)"
    count = f"{_round(more):,} more {unit[:-1] if more == 1 else unit}"
    return f"about {count} in both arms together{pace} for {way}, if they stay as far apart as now"


def _round(count: int) -> int:
    """Return a count to two digits: a forecast knows no more."""
    digits = max(0, len(str(count)) - 2)
    return int(round(count, -digits))
