"""The note of what a run does: phases at once, the rest a few times a second, and nothing that could harm the run."""

from __future__ import annotations

import shutil
from pathlib import Path

from autoresearch.core.adapter import RunContext
from autoresearch.core.progress import MOST_POINTS, Noted, noting_curve, progress_file, read_progress
from autoresearch.core.workspace import Layout
from tests.core.fakes import Listening


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def noted(tmp_path: Path) -> tuple[Layout, Clock, Listening, Noted]:
    layout, clock, listening = Layout(tmp_path), Clock(), Listening()
    layout.make_state()
    return layout, clock, listening, Noted(layout, listening, clock)


def test_a_phase_is_noted_at_once_and_passed_on(tmp_path: Path) -> None:
    """Number, phase and the moment the experiment began; the reporter beneath hears everything."""
    layout, clock, listening, reporter = noted(tmp_path)
    reporter.phase(3, "propose")
    clock.now += 5.0
    reporter.phase(3, "observe")
    found = read_progress(layout)
    assert found is not None and (found.number, found.phase, found.began) == (3, "observe", 1_000.0)
    assert listening.phases == [(3, "propose"), (3, "observe")]


def test_progress_is_written_a_few_times_a_second(tmp_path: Path) -> None:
    """Between two writes only the newest is remembered."""
    layout, clock, _, reporter = noted(tmp_path)
    reporter.phase(1, "observe")
    for share in (0.1, 0.2, 0.3):
        reporter.progress(share, f"at {share}")
    found = read_progress(layout)
    assert found is not None and found.share is None
    clock.now += 0.3
    reporter.progress(7.0, "at the end")
    found = read_progress(layout)
    assert found is not None and (found.share, found.words) == (1.0, "at the end")


def test_a_curve_belongs_to_one_measurement(tmp_path: Path) -> None:
    """Points gather, are thinned where there are many, and begin anew with the next measurement."""
    layout, clock, _, reporter = noted(tmp_path)
    context = noting_curve(reporter, RunContext(tmp_path / "log", tmp_path, hopeless=lambda share, value: "no hope"))
    for step in range(3 * MOST_POINTS):
        clock.now += 1.0
        assert context.hopeless(step / 1_000, 1.0) == "no hope"
    found = read_progress(layout)
    assert found is not None and 2 <= len(found.curve) <= MOST_POINTS and found.curve[0][0] == 0.0
    clock.now += 1.0
    context.hopeless(0.0, 2.0)
    found = read_progress(layout)
    assert found is not None and found.curve == ((0.0, 2.0),)


def test_a_note_that_cannot_be_written_or_read_harms_nobody(tmp_path: Path) -> None:
    """Without its folder a run goes on; a note of another version or half of one is none."""
    layout, _, listening, reporter = noted(tmp_path)
    for text in ("", "{", '{"phase": 1, "of": "another version"}', "[]"):
        progress_file(layout).write_text(text, encoding="utf-8")
        assert read_progress(layout) is None
    shutil.rmtree(layout.state)
    reporter.phase(1, "observe")
    assert listening.phases == [(1, "observe")] and read_progress(layout) is None
