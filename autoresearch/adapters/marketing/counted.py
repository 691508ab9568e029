"""Traffic of another tool: it shows the arms, we read its daily totals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing.campaign import COPY_NAME, Campaign, Keys, typed_table
from autoresearch.adapters.marketing.counts import Counts, read_csv, read_parquet
from autoresearch.adapters.marketing.sources import NOT_RANDOMISED, NOTES, Seen
from autoresearch.core import ArmTotals, LiveExperiment, UsageError

KEYS: Keys = {
    "path": str,
    "url": str,
    "query": str,
    "password_variable": str,
    "goal": str,
    "control": str,
    "treatment": str,
    "randomised": bool,
}
"""What `[counts]` of campaign.toml may hold."""

LOOK_SECONDS = 6 * 3600.0
"""Between two looks: the totals are daily."""


class CountsSource:
    """Tests that somebody else runs, told by the texts of both arms in a folder and read by daily totals.

    Args:
        campaign: The campaign.
        now: The clock.
    """

    def __init__(self, campaign: Campaign, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._campaign, self._now = campaign, now
        self._table = typed_table(campaign.path, "counts", campaign.sources.get("counts", {}), KEYS)
        self._label = ""

    @property
    def label(self) -> str:
        """`not randomised` where the tool chose who sees what."""
        return self._label

    def prepare(self) -> None:
        """See that the totals can be read. A file that is not there yet is fine: the first test makes it.

        Raises:
            UsageError: If neither a file nor a query is named, or the totals are broken.
        """
        if not self._table.get("path") and not (self._table.get("url") and self._table.get("query")):
            raise UsageError(
                f"{self._campaign.path}: [counts] must name a path, or a url and a query.\n"
                'For example: [counts] path = "totals.csv", with the columns date, variant, exposures, conversions.'
            )
        if not self._table.get("path") or self._path().exists():
            self._note(self._read())

    def start(self, experiment: LiveExperiment) -> datetime:
        """Hand both arms over: their texts in a folder, and what they must be called."""
        folder = self._handover(experiment.id)
        began = folder / "test.json"
        if not began.exists():
            for arm, source in (("control", experiment.control), ("treatment", experiment.treatment)):
                (folder / arm).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / COPY_NAME, folder / arm / COPY_NAME)
            note = {
                "experiment_id": experiment.id,
                "control": self._variant("control"),
                "treatment": self._variant("treatment"),
                "began": self._now().isoformat(),
            }
            began.write_text(json.dumps(note, indent=1), encoding="utf-8")
        return datetime.fromisoformat(json.loads(began.read_text(encoding="utf-8"))["began"])

    def look(self, experiment_id: str) -> Seen:
        """Read the totals and return those of whole, matured days."""
        now, traffic = self._now(), self._campaign.traffic
        began = datetime.fromisoformat(
            json.loads((self._handover(experiment_id) / "test.json").read_text(encoding="utf-8"))["began"]
        )
        # Rows without the test's name are known by their day alone, and its first day began without it: with people
        # of an earlier test, perhaps, whose arms were called the same.
        since = began.date() + timedelta(days=1)
        arms = self._arms(experiment_id, since, (now - timedelta(days=traffic.maturity_days)).date())
        over = None
        if now - began >= timedelta(weeks=traffic.max_weeks):
            over = f"The {traffic.max_weeks} weeks that a test may take are over."
        # Where delivery is chosen and not drawn, the split says nothing; the label says that instead.
        exposed: Mapping[str, int] = {} if self._label else {arm.arm: arm.n for arm in arms}
        return Seen(arms, exposed, 0, {}, now, over)

    def wait_seconds(self, experiment_id: str) -> float:
        """Six hours."""
        return LOOK_SECONDS

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        """Write the verdict beside the arms, for whoever runs the tool."""
        folder = self._handover(experiment_id)
        if folder.exists():
            verdict = "Show the treatment to everybody." if kept else "Show the control to everybody."
            note = f"{NOTES[self._label]}\n" if self._label else ""
            (folder / "verdict.txt").write_text(f"{verdict}\n{note}", encoding="utf-8")

    def show(self, artifact: Path) -> None:
        """Write down what should be shown, for whoever runs the tool."""
        folder = self._handover("rolled-back")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(artifact / COPY_NAME, folder / COPY_NAME)

    def close(self) -> None:
        """Nothing is held open."""

    def _arms(self, experiment_id: str, since: date, before: date) -> tuple[ArmTotals, ...]:
        empty = (ArmTotals("control", 0, 0.0, 0.0), ArmTotals("treatment", 0, 0.0, 0.0))
        if self._table.get("path") and not self._path().exists():
            return empty
        counts = self._read()
        self._note(counts)
        name = experiment_id if experiment_id in counts.experiments else ""
        if not counts.rows or (name == "" and "" not in counts.experiments):
            return empty  # the tool has not begun to report this test
        arms = {arm: self._variant(arm) for arm in ("control", "treatment")}
        if not set(arms.values()) <= set(counts.variants(name)):
            return empty
        looks = counts.looks(arms, name, since=None if name else since, before=before)
        return looks[-1] if looks else empty

    def _read(self) -> Counts:
        randomised = self._table.get("randomised")
        if not self._table.get("path"):
            return self._queried(randomised)
        path = self._path()
        if path.suffix == ".parquet":
            return read_parquet(path, randomised=randomised)
        return read_csv(path, goal=self._table.get("goal", "clicks"), randomised=randomised)

    def _queried(self, randomised: bool | None) -> Counts:
        from autoresearch.adapters.marketing.counts_sql import PASSWORD_VARIABLE, read_sql

        variable: Any = self._table.get("password_variable", PASSWORD_VARIABLE)
        return read_sql(self._table["url"], self._table["query"], password_variable=variable, randomised=randomised)

    def _note(self, counts: Counts) -> None:
        self._label = "" if counts.randomised else NOT_RANDOMISED

    def _path(self) -> Path:
        return self._campaign.folder / str(self._table["path"])

    def _variant(self, arm: str) -> str:
        return str(self._table.get(arm, arm))

    def _handover(self, experiment_id: str) -> Path:
        return self._campaign.folder / ".autoresearch" / "marketing" / "handover" / experiment_id
