"""The report of a run: what it says first, what it shows, and what nobody can smuggle into it."""

from __future__ import annotations

import html
import re
import sqlite3
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autoresearch.core.adapter import Estimate, ReportSection
from autoresearch.core.ledger import Experiment, Ledger, Run
from autoresearch.core.memory import metric_as_json
from autoresearch.core.readmodel import live_points, view_of
from autoresearch.web import report
from autoresearch.web.report import Page, as_html, as_markdown, escaped_markdown, fenced, page_of
from benchmarks.report import METRIC
from tests.cli.conftest import invoke

NOW = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)
HOSTILE = '<script>alert(1)</script>\x1b[31m\u202eevil\u2066 & "q" | `x` [l](javascript:1) ](http://x.example) <b>'


def page(root: Path, *, at_work: bool = False, sections: tuple[ReportSection, ...] = ()) -> Page:
    """Return the report of the latest run of a workspace."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        run = ledger.latest_run()
        assert run is not None
        view = view_of(ledger, run, at_work=at_work)
        return page_of(view, now=NOW, points=lambda row: live_points(ledger, view, row), sections=sections)


def ledger_with(root: Path, *experiments: Experiment, **fields: object) -> Path:
    """Write a ledger with one run and these experiments, and return its workspace."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        settings = {"policy": "greedy", "state": "stopped", "stop_reason": "experiments: 1 of 1 done", **fields}
        run = ledger.add_run(Run(id="r", adapter="none", metric=metric_as_json(METRIC), **settings))
        from autoresearch.core.ledger import Session

        session = ledger.add_session(Session(run_id=run.id))
        for row in experiments:
            outcome, row.outcome = row.outcome, None
            row.run_id, row.session_id = run.id, session.id
            begun = ledger.begin_experiment(row)
            if outcome is not None:
                ledger.finish_experiment(begun.id, outcome=outcome)
    return root


class Elements(HTMLParser):
    """Collects the elements of a page and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def words(text: str) -> str:
    """Return what a page says, without its markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text.partition("<body>")[2])).split())


def test_believed_and_confirmed_gain_come_first(thousand: Path) -> None:
    """The first sentence of both forms is the one that the terminal begins with."""
    found = page(thousand)
    assert found.headline.startswith("believed gain +0.0") and "confirmed gain: +" in found.headline
    assert words(as_html(found)).startswith(f"{found.title} {found.headline}")
    assert as_markdown(found).startswith(f"**{escaped_markdown(found.headline)}**")


def test_every_experiment_is_in_picture_and_table(measured: Path) -> None:
    """Baseline, keep, revert and crash each have a mark with their number, and a row."""
    found = page(measured)
    for number, outcome in ((0, "baseline"), (1, "kept"), (2, "crashed"), (3, "reverted")):
        assert f"<title>#{number} {outcome}" in found.wide.svg
    assert [row.outcome for row in found.rows] == ["baseline", "kept", "crashed", "reverted"]


def test_a_kept_change_shows_all_that_speaks_for_it(measured: Path) -> None:
    """Hypothesis, effect with interval, the policy's reason and what it leaves unsaid, number of runs and the diff."""
    (change,) = page(measured).kept
    assert change.hypothesis == "Halve it." and change.effect.endswith("units") and " to " in change.interval
    assert "P(better)" in change.evidence[0] and not any("probability" in line for line in change.evidence)
    assert any(line.endswith("of the candidate") for line in change.evidence)
    assert "-8" in change.diff and "+4" in change.diff


def test_a_diff_tells_lines_from_file_names(measured: Path) -> None:
    """Added and removed lines are marked as such; the names of the files are not."""
    text = as_html(page(measured))
    assert "<del>-8</del>" in text and "<ins>+4</ins>" in text
    assert "<del>--- " not in text and "<ins>+++ " not in text and "--- a/number.txt" in text


def test_what_failed_is_told_by_category(measured: Path) -> None:
    """A category names its outcomes, and its failures with why."""
    (category,) = page(measured).categories
    assert (category.name, category.tried, category.kept, category.crashed) == ("numbers", 3, 1, 1)
    assert any("crashed" in line and "is no number" in line for line in category.failed)


def test_costs_are_told_for_each_thing_that_was_had(measured: Path, thousand: Path) -> None:
    """Dollars include refused proposals; without a confirmed gain there is no cost of one."""
    costs = dict(page(measured).costs)
    assert costs["dollars for proposals, refused and failed ones included"] == "$1.62"
    assert costs["for one kept change"].startswith("$1.62 and")
    assert costs["for one confirmed gain"] == "there is none"
    assert dict(page(thousand).costs)["for one confirmed gain"].startswith("$")


def test_live_tests_show_lift_and_e_values_with_their_lines(tested: Path) -> None:
    """Every look has its lift, both e-values have the line at which they decide, the split its two arms."""
    found = page(tested)
    assert [test.outcome for test in found.tests] == ["inconclusive", "reverted", "kept"]
    kept = found.tests[-1]
    assert kept.e_values is not None
    assert "keep when win reaches 20" in kept.e_values.svg and "revert when lose reaches 5" in kept.e_values.svg
    assert kept.lift.svg.count("<title>look ") == kept.e_values.svg.count(": win ") > 1
    assert "control 4,000 (50.00%)" in kept.split and "sound" in kept.split_said
    assert found.kept[0].effect.endswith("%"), "the effect of a live test is a lift"


def test_claims_are_shown_and_mark_the_picture(thousand: Path) -> None:
    """A confirmed step has its ring, its sentence and its row; another says that it is not confirmed."""
    found = page(thousand)
    assert {row[7] for row in found.claims} == {"confirmed", "not confirmed"}
    ringed = found.wide.svg.count('class="confirmed"') - 1  # one is the legend's
    assert ringed == len({change.number for change in found.kept if change.claim.startswith("confirmed")}) > 0


def test_a_thousand_experiments_fit_into_half_a_megabyte(thousand: Path) -> None:
    """The HTML stays under 500 KB, and shows every experiment."""
    found = page(thousand)
    assert len(as_html(found).encode()) < 500_000
    assert len(found.rows) == 1_001 - 1 and "All of them" in found.rows_note


def test_what_is_left_out_is_said(thousand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, kept changes and characters of diffs that are not shown are counted where they are missing."""
    monkeypatch.setattr(report, "MOST_ROWS", 50)
    monkeypatch.setattr(report, "MOST_KEPT", 5)
    monkeypatch.setattr(report, "MOST_DIFF", 60)
    found = page(thousand)
    assert len(found.rows) == 50 and found.rows_note.startswith("50 of 1,001 rows")
    assert len(found.kept) == 5 and re.match(r"The 5 largest of \d+ kept changes", found.kept_note)
    assert all(len(change.diff) <= 60 and "more characters" in change.cut for change in found.kept)
    assert any("beyond the scale" in note for note in found.wide.notes)


def test_the_page_needs_nothing_and_allows_nothing(thousand: Path) -> None:
    """No script, no handler, no address but those inside the page; its own policy forbids the rest."""
    text = as_html(page(thousand, sections=(ReportSection("S", picture="<svg onload='x()'/>"),)))
    elements = Elements(text).found
    assert not [tag for tag, _ in elements if tag in ("script", "iframe", "object", "embed", "form", "base")]
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert "url(" not in text and "@import" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize("column", ["hypothesis", "category", "reason", "diff"])
def test_nothing_that_a_model_wrote_is_obeyed(tmp_path: Path, column: str) -> None:
    """Tags are shown as text; escape sequences and marks that turn the reading direction are gone."""
    rows = [
        Experiment(number=0, outcome="kept", value=1.0),
        Experiment(number=1, outcome="kept", value=0.5, effect=0.5, **{column: HOSTILE}),
        Experiment(number=2, outcome="crashed", **{column: HOSTILE}),
    ]
    found = page(ledger_with(tmp_path, *rows), sections=(ReportSection(HOSTILE, HOSTILE, (Estimate(HOSTILE, 0.1),)),))
    text, markdown = as_html(found), as_markdown(found)
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not [tag for tag, _ in Elements(text).found if tag in ("script", "b")]
    for written in (text, markdown):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", written)
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", markdown)
    assert "<" not in outside and "](" not in outside and "http://" not in outside


def test_markdown_cells_and_fences_hold() -> None:
    """A bar does not end a cell, and a fence inside a diff does not end its block."""
    assert escaped_markdown("a|b\nc") == "a\\|b c"
    assert fenced("x\n````\ny").startswith("`````\n") and fenced("x\n````\ny").endswith("\n`````")


@pytest.mark.parametrize(
    ("state", "at_work", "said"),
    [
        (
            "running",
            True,
            "The run is at work on experiment 2 (Try it); this report shows what had ended by 2026-02-03",
        ),
        ("paused", True, "The run is paused"),
        ("running", False, "The run ended without a word"),
        ("stopped", False, "The run ended: experiments: 1 of 1 done."),
    ],
)
def test_the_state_of_the_run_is_said_in_a_sentence(tmp_path: Path, state: str, at_work: bool, said: str) -> None:
    """At work, paused, killed and stopped runs each say so."""
    rows = [Experiment(number=n, outcome="kept" if n == 0 else "reverted", value=1.0) for n in (0, 1)]
    root = ledger_with(tmp_path, *rows, Experiment(number=2, hypothesis="Try it."), state=state)
    assert page(root, at_work=at_work).state.startswith(said)


def test_a_run_without_a_measurement_says_so(tmp_path: Path) -> None:
    """Before the baseline is measured there is no picture and no table, and a sentence instead."""
    found = page(ledger_with(tmp_path))
    assert "Not even the baseline has been measured" in found.state
    assert found.headline.startswith("believed gain: none")
    assert '<h2 id="progress">' not in as_html(found) and "## Every experiment" not in as_markdown(found)


def test_a_section_of_an_adapter_is_shown(measured: Path) -> None:
    """Estimates are drawn with their interval, unknown ones said to be so; a picture is an image that runs nothing."""
    section = ReportSection(
        "Three totals", "Together.", (Estimate("tested", 0.3, 0.1, 0.5, "lucky"), Estimate("holdout", None)), "<svg/>"
    )
    text = as_html(page(measured, sections=(section,)))
    assert "tested" in text and "+30.0% (+10.0% to +50.0%)" in text and "not known" in text
    assert 'src="data:image/svg+xml;base64,PHN2Zy8+"' in text


# ---- The command


def test_the_command_writes_beside_nothing_that_is_edited(measured: Path) -> None:
    """By default the report lies in the folder that git ignores, and its place is told."""
    done = invoke("report", "-w", measured)
    file = measured / ".autoresearch" / "report.html"
    assert done.exit_code == 0 and f"wrote {file}" in done.stderr
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_name_of_the_file_tells_the_form(measured: Path, tmp_path: Path) -> None:
    """FILE.md is Markdown without being asked for; --format wins over the name; - is standard output."""
    assert invoke("report", "-w", measured, "-o", tmp_path / "r.md").exit_code == 0
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("**believed gain")
    assert invoke("report", "-w", measured, "-o", tmp_path / "r.md", "--format", "html").exit_code == 0
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("<!DOCTYPE")
    assert invoke("report", "-w", measured, "-f", "md", "-o", "-").stdout.startswith("**believed gain")


def test_an_empty_workspace_a_newer_ledger_and_a_full_disk_are_sentences(measured: Path, tmp_path: Path) -> None:
    """Each says what is wrong and exits 1."""
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "autoresearch.toml").write_text("format = 1\n", encoding="utf-8")
    assert "No run has begun in" in invoke("report", "-w", empty).stderr
    newer = ledger_with(tmp_path / "newer")
    with sqlite3.connect(newer / ".autoresearch" / "ledger.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    done = invoke("report", "-w", newer)
    assert done.exit_code == 1 and "has format 9999" in done.stderr and "Update it" in done.stderr
    done = invoke("report", "-w", measured, "-o", tmp_path / "missing" / "r.html")
    assert done.exit_code == 1 and "cannot be written" in done.stderr


def test_another_run_is_reported_by_its_id(measured: Path) -> None:
    """--run names the run; an unknown one is refused with those there are."""
    done = invoke("report", "-w", measured, "--run", "nothing")
    assert done.exit_code == 1 and "There is no run 'nothing'" in done.stderr
