"""What the tests of live tests and their counting share: a folder with two artifacts, and records written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest

START = datetime(2026, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)


def artifact(folder: Path, text: str) -> Path:
    """Return a folder with a copy.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "copy.toml").write_text(f'[slots]\nheadline = "{text}"\n', encoding="utf-8")
    return folder


def half_and_half(tmp_path: Path, *, test_id: str = "run/0001", surface: str = "page") -> LiveTest:
    """Return a test with two arms, not started yet."""
    return LiveTest(
        test_id,
        surface,
        f"salt of {test_id}",
        artifact(tmp_path / "a", "Control"),
        {"treatment": artifact(tmp_path / "b", "Treatment")},
        {"treatment": 0.5, "control": 0.5},
        START,
    )


def started(tmp_path: Path, **changes: object) -> tuple[LiveFolder, LiveTest]:
    """Return a state folder with one live test."""
    live = LiveFolder(tmp_path / "state")
    test = half_and_half(tmp_path)
    return live, live.start(replace(test, **changes))  # type: ignore[arg-type]


def exposure(test: str, unit: int, when: datetime, arm: int, **more: int) -> bytes:
    """Return a packed exposure."""
    return events.pack(unit, micros(when), events.key(test), kind=events.EXPOSURE, arm=arm, **more)


def conversion(goal: str, unit: int, when: datetime, value: float = 0.0, event: int = 0) -> bytes:
    """Return a packed conversion."""
    return events.pack(unit, micros(when), events.key(goal), kind=events.CONVERSION, value=value, event=event)


def micros(when: datetime) -> int:
    """Return microseconds since 1970."""
    return (when - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def write(folder: Path, *records: bytes) -> None:
    """Append records as one worker would."""
    writer = events.EventWriter(folder)
    for record in records:
        writer.write(record)
    writer.close()


def by_arm(arms: object) -> Mapping[str, tuple[int, float]]:
    """Return (units, total) by arm."""
    return {row.arm: (row.n, row.total) for row in arms}  # type: ignore[attr-defined]
