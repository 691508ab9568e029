"""Daily totals from files."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.adapters.marketing.counts import read_csv, read_parquet
from autoresearch.core import ArmTotals, UsageError

ARMS = {"control": "old", "treatment": "new"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file of two days, two variants and one more test."""
    path = tmp_path / "totals.csv"
    path.write_text(
        "date,variant,exposures,conversions,experiment_id\n"
        "2026-03-02,new,120,9,hero\n"
        "2026-03-01,old,100,5,hero\n"
        "2026-03-01,new,110,6,hero\n"
        "2026-03-02,old,90,3,hero\n"
        "2026-03-02,old,7,1,footer\n"
    )
    return path


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "given.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_looks_are_cumulative_and_by_day(table: Path) -> None:
    """Each day is a look with the sums so far, whatever the order of the lines."""
    counts = read_csv(table)
    assert counts.randomised
    assert counts.looks(ARMS, "hero") == (
        (ArmTotals("control", 100, 5, 5), ArmTotals("treatment", 110, 6, 6)),
        (ArmTotals("control", 190, 8, 8), ArmTotals("treatment", 230, 15, 15)),
    )


def test_days_outside_do_not_count(table: Path) -> None:
    """`since` is the first day that counts and `before` the first that does not."""
    counts = read_csv(table)
    first, second = (
        counts.looks(ARMS, "hero", before=date(2026, 3, 2)),
        counts.looks(ARMS, "hero", since=date(2026, 3, 2)),
    )
    assert first == ((ArmTotals("control", 100, 5, 5), ArmTotals("treatment", 110, 6, 6)),)
    assert second == ((ArmTotals("control", 90, 3, 3), ArmTotals("treatment", 120, 9, 9)),)
    assert counts.looks(ARMS, "hero", since=date(2026, 4, 1)) == ()


def test_tests_and_variants_are_named_where_one_is_wrong(table: Path) -> None:
    """A wrong name is answered with the names that there are."""
    counts = read_csv(table)
    assert counts.experiments == ("footer", "hero")
    with pytest.raises(UsageError, match=r"no test 'head'; it has footer, hero"):
        counts.looks(ARMS, "head")
    with pytest.raises(UsageError, match=r"no variant 'B'; it has new, old"):
        counts.looks({"control": "old", "treatment": "B"}, "hero")


def test_values_and_their_squares(tmp_path: Path) -> None:
    """With value columns the totals are those of the values; units may convert more than once."""
    path = written(
        tmp_path, "variant;date;exposures;conversions;value_sum;value_sum_sq\nold;2026-03-01;3;4;12.5;100.25\n"
    )
    (only,) = read_csv(path).rows
    assert (only.n, only.total, only.total_sq) == (3, 12.5, 100.25)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("2026-02-30,old,100,5", "'2026-02-30' is no date"),
        ("yesterday,old,100,5", "'yesterday' is no date"),
        ("2026-03-01,,100,5", "the variant is empty"),
        ("2026-03-01,old,,5", "exposures is empty"),
        ("2026-03-01,old,many,5", "exposures is 'many', which is no number"),
        ("2026-03-01,old,-1,0", "exposures is -1, and must be a whole number"),
        ("2026-03-01,old,10,2.5", "conversions is 2.5, and must be a whole number"),
        ("2026-03-01,old,10,11", "11 conversions of 10 exposures"),
        ("2026-03-01,old,inf,0", "exposures is 'inf', which is no possible count"),
        ("2026-03-01,old,1,234,12", "5 cells, where the header has 4"),
        ("2026-03-01,old,10", "3 cells, where the header has 4"),
        ("2026-02-28,old,10,1", "the same day and variant as line 2; it would count twice"),
    ],
)
def test_bad_rows_are_named_by_line(tmp_path: Path, row: str, fault: str) -> None:
    """A row that makes no sense stops everything and is named by its line."""
    path = written(tmp_path, f"date,variant,exposures,conversions\n2026-02-28,old,10,1\n\n{row}\n2026-03-09,old,9,1\n")
    with pytest.raises(UsageError) as caught:
        read_csv(path)
    assert f"line 4: {fault}" in str(caught.value)
    assert "none was used" in str(caught.value)


def test_only_the_first_faults_are_listed(tmp_path: Path) -> None:
    """Of seven bad rows five are shown, and two counted."""
    path = written(tmp_path, "date,variant,exposures,conversions\n" + "x,old,1,1\n" * 7)
    with pytest.raises(UsageError, match=r"line 6: .*\n  and 2 more"):
        read_csv(path)


@pytest.mark.parametrize(("squares", "ok"), [("50", True), ("49.9", False), ("-1", False), ("nan", False), ("", False)])
def test_squares_must_fit_their_sum(tmp_path: Path, squares: str, ok: bool) -> None:
    """Two values that sum to 10 have squares of at least 50."""
    path = written(
        tmp_path, f"date,variant,exposures,conversions,value_sum,value_sum_sq\n2026-03-01,old,2,1,10,{squares}\n"
    )
    if ok:
        assert read_csv(path).rows[0].total_sq == 50
    else:
        with pytest.raises(UsageError, match="line 2: value_sum_sq"):
            read_csv(path)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    """A table that is something else is refused with what it lacks and what it has."""
    with pytest.raises(UsageError, match=r"lacks the columns variant, exposures; it has date, conversions"):
        read_csv(written(tmp_path, "date,conversions\n2026-03-01,4\n"))
    with pytest.raises(UsageError, match=r"it has none"):
        read_csv(written(tmp_path, ""))


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    """Missing files and bytes that are no text are told apart."""
    with pytest.raises(UsageError, match=r"none.csv is missing"):
        read_csv(tmp_path / "none.csv")
    with pytest.raises(UsageError, match=r"is no utf-8 text \(byte 0\)"):
        read_csv(written(tmp_path, b"\xff,\x00"))
    with pytest.raises(UsageError, match=r"cannot be read"):
        read_csv(tmp_path)


GOOGLE = (
    'Ad performance\n"March 1, 2026 - March 2, 2026"\nDay,Campaign,Ad ID,Impr.,Clicks,CTR,Conversions\n'
    '2026-03-01,Spring,111,"1,204",31,2.6%,2.50\n2026-03-01,Spring,222,980,40,4.1%,3.00\n'
    'Total: Campaign, , ,"2,184",71,3.3%,5.50\n'
)
META = (
    "Ad name,Day,Impressions,Reach,Link clicks,Results,Reporting starts,Reporting ends\n"
    "old,2026-03-01,500,480,9,2,2026-03-01,2026-03-01\nnew,2026-03-01,700,640,21,4,2026-03-01,2026-03-01\n"
)


def test_google_ads_report_is_recognised_and_not_randomised(tmp_path: Path) -> None:
    """Title lines, thousands, the sum below and UTF-16 are read past; who saw which ad was not chance."""
    counts = read_csv(
        written(
            tmp_path,
            GOOGLE.replace('"', "")
            .replace("1,204", "1204")
            .replace("2,184", "2184")
            .replace("March 1, 2026 - March 2, 2026", "March")
            .replace(",", "\t")
            .encode("utf-16"),
        )
    )
    assert [(row.variant, row.n, row.total) for row in counts.rows] == [("111", 1204, 31), ("222", 980, 40)]
    assert not counts.randomised
    assert "Not randomised: Google Ads" in counts.note
    assert read_csv(written(tmp_path, GOOGLE)).rows == counts.rows


def test_meta_ads_report_is_recognised(tmp_path: Path) -> None:
    """Link clicks are the default goal, results the other; both are not randomised."""
    path = written(tmp_path, META)
    assert [(row.variant, row.n, row.total) for row in read_csv(path).rows] == [("new", 700, 21), ("old", 500, 9)]
    assert [row.total for row in read_csv(path, goal="conversions").rows] == [4, 2]
    assert "Meta Ads" in read_csv(path).note


def test_ad_reports_leave_nothing_empty(tmp_path: Path) -> None:
    """An empty cell or two dashes are no results in an ad platform's report; impressions are never left out."""
    counts = read_csv(written(tmp_path, META.replace(",9,", ",,").replace(",21,", ",--,")))
    assert [row.total for row in counts.rows] == [0, 0]
    with pytest.raises(UsageError, match="exposures is empty"):
        read_csv(written(tmp_path, META.replace(",500,", ",,")))


def test_one_ad_in_several_sets_is_told_apart_by_its_id(tmp_path: Path) -> None:
    """Two rows of one name on one day would count twice; the way out is a column of the platform's."""
    with pytest.raises(UsageError, match="add the column Ad ID to the report"):
        read_csv(written(tmp_path, META.replace("new,", "old,")))


def test_the_platforms_own_split_test_counts_as_randomised(tmp_path: Path) -> None:
    """What the person says about the assignment overrides the guess, both ways."""
    assert read_csv(written(tmp_path, META), randomised=True).randomised
    assert read_csv(written(tmp_path, META), randomised=True).note == ""
    own = written(tmp_path, "date,variant,exposures,conversions\n2026-03-01,old,5,1\n")
    assert "as the campaign says" in read_csv(own, randomised=False).note


def test_a_report_over_several_days_is_refused(tmp_path: Path) -> None:
    """One row for a whole month has no looks; the report must be by day."""
    month = META.replace("2026-03-01\n", "2026-03-31\n")
    with pytest.raises(UsageError, match=r"runs from 2026-03-01 to 2026-03-31; break the report down by day"):
        read_csv(written(tmp_path, month))


def test_shared_out_conversions_are_no_counts(tmp_path: Path) -> None:
    """Half a conversion is refused with the way out."""
    with pytest.raises(UsageError, match=r"line 4: conversions is 2\.50.*take clicks as goal"):
        read_csv(written(tmp_path, GOOGLE), goal="conversions")
    with pytest.raises(UsageError, match="reports clicks and conversions, not 'sales'"):
        read_csv(written(tmp_path, META), goal="sales")


def test_parquet_gives_what_the_csv_gives(table: Path, tmp_path: Path) -> None:
    """The same table as Parquet, in one file or several, has the same rows."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    for number in (0, 1):
        duckdb.sql(
            f"COPY (SELECT * FROM read_csv('{table}') WHERE variant = '{('old', 'new')[number]}') "
            f"TO '{tmp_path / f'part{number}.parquet'}'"
        )
    assert read_parquet(tmp_path / "part*.parquet").rows == read_csv(table).rows
    assert len(read_parquet(tmp_path / "part1.parquet").rows) == 2


def test_parquet_that_is_none(table: Path, tmp_path: Path) -> None:
    """A missing file and one of another kind are told apart, and rows that make no sense are named."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with pytest.raises(UsageError, match="is missing"):
        read_parquet(tmp_path / "none.parquet")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        read_parquet(table)
    duckdb.sql(
        "COPY (SELECT DATE '2026-03-01' AS date, 'a' AS variant, 5 AS exposures, 6 AS conversions) "
        f"TO '{tmp_path / 'bad.parquet'}'"
    )
    with pytest.raises(UsageError, match="row 1: 6 conversions of 5 exposures"):
        read_parquet(tmp_path / "bad.parquet")


@given(
    days=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 1000), st.integers(0, 1000)),
        unique_by=lambda row: row[0],
        min_size=1,
    )
)
def test_nothing_is_lost_on_the_way(days: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The last look holds every unit of the file, and looks never fall."""
    path = tmp_path_factory.mktemp("counts") / "totals.csv"
    lines = [
        f"{date.fromordinal(738000 + day)},{variant},{n + x},{x}" for day, n, x in days for variant in ("old", "new")
    ]
    path.write_text("\n".join(["date,variant,exposures,conversions", *lines]))
    looks = read_csv(path).looks(ARMS)
    assert looks[-1][0].n == sum(n + x for _, n, x in days)
    assert looks[-1][1].total == sum(x for _, _, x in days)
    assert all(a[0].n <= b[0].n and a[0].total <= b[0].total for a, b in pairwise(looks))
