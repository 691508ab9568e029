from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="the extra `marketing` is not installed")

from autoresearch.adapters.marketing import events, parquet
from autoresearch.adapters.marketing.counting import Counter
from autoresearch.adapters.marketing.parquet import arm_totals, connect, write_parquet
from autoresearch.core import MetricKind
from tests.adapters.marketing.filling import DAY, START, conversion, exposure, write

ARMS = ("control", "treatment")
HOUR = timedelta(hours=1)


def random_events(folder: Path, seed: int) -> None:
    """Write 3,000 events of 400 units: some crossed, some robots, some repeated messages, some forgotten."""
    rng = np.random.default_rng(seed)
    records = []
    for unit, hour, kind, message in zip(
        rng.integers(1, 400, 3000),
        rng.integers(0, 240, 3000),
        rng.random(3000),
        rng.integers(1, 300, 3000),
        strict=True,
    ):
        when = START + int(hour) * HOUR
        if kind < 0.3:
            event = 10_000 * int(unit) + int(message) if kind < 0.2 else 0
            records.append(conversion("signup", int(unit), when, float(int(message) % 7), event))
        else:
            arm = int(unit) % 2 if kind < 0.99 else 1 - int(unit) % 2
            records.append(exposure("t", int(unit), when, arm, flags=events.BOT if 0.9 < kind < 0.93 else 0))
    write(folder, b"".join(records), records[5], records[7])
    events.forget(folder, [3, 4])


@pytest.mark.parametrize("kind", [MetricKind.PROPORTION, MetricKind.MEAN])
@pytest.mark.parametrize("window", [DAY, 3 * HOUR, None])
def test_two_languages_count_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: MetricKind, window: timedelta | None
) -> None:
    """DuckDB over Parquet and numpy over the log give the same totals to the last unit, in slices too."""
    monkeypatch.setattr(parquet, "_SLICE", 150)
    random_events(tmp_path, seed=1)
    write_parquet(tmp_path, events.key("t"), "signup", tmp_path / "t.parquet")
    counter = Counter(tmp_path, events.key("t"), ARMS, ["signup"])
    counter.update()
    for now in (START, START + DAY, START + 20 * DAY):
        expected = counter.count("signup", now=now, window=window, kind=kind).arms
        assert arm_totals(tmp_path / "t.parquet", ARMS, now=now, window=window, kind=kind) == expected
    assert sum(row.n for row in expected) > 200
    assert sum(row.total for row in expected) > 15


def test_the_file_names_nobody(tmp_path: Path) -> None:
    """Visitors are numbered in the file; their salted hashes stay behind, and the forgotten are not in it."""
    random_events(tmp_path, seed=2)
    n = write_parquet(tmp_path, events.key("t"), "signup", tmp_path / "it's.parquet")
    with connect() as connection:
        quoted = str(tmp_path / "it's.parquet").replace("'", "''")
        rows = connection.execute(f"SELECT count(*), min(unit), count(DISTINCT unit) FROM '{quoted}'").fetchone()
        names = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM '{quoted}'").fetchall()]
    assert rows is not None
    assert rows[:2] == (n, 0)
    assert rows[2] < 398
    assert names == ["unit", "time", "kind", "arm", "value"]
