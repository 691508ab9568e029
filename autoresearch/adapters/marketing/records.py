"""What is written down of each experiment: its plan, hashed before anybody is exposed, and its looks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing.sources import Seen
from autoresearch.core import ArmTotals, UsageError


@dataclass(slots=True)
class Records:
    """What is written down of one experiment: its plan with the plan's hash, then a line per look.

    Attributes:
        folder: One folder an experiment. One process at a time writes there, which reads its looks once.
    """

    folder: Path
    _looks: list[Seen] | None = None

    def register(self, plan: Mapping[str, Any]) -> None:
        """Write the plan and its hash, before anybody is exposed; a plan that is written already stays.

        Raises:
            UsageError: If another plan is written there.
        """
        known = self.registered()
        if known is None:
            self._write({"plan": plan, "sha256": _sha256(json.dumps(plan, sort_keys=True)), "began": None})
            return
        # A release that writes down more than the one that began the test is no change of plan.
        other = sorted(name for name, value in known["plan"].items() if name in plan and plan[name] != value)
        if other:
            raise UsageError(
                f"This test was registered with another plan than the one at hand: {', '.join(other)} differs from "
                f"{self.folder / 'plan.json'}.\nPut it back as it was, or begin a new run, which ends the test: --new"
            )

    def begin(self, began: datetime) -> None:
        """Write down when the test began; the first time counts."""
        known = self.registered()
        assert known is not None, "a test is registered before it begins"
        if known["began"] is None:
            self._write({**known, "began": began.isoformat()})

    def _write(self, content: Mapping[str, Any]) -> None:
        from autoresearch.core.formats import write_by_rename

        self.folder.mkdir(parents=True, exist_ok=True)
        write_by_rename(self.folder / "plan.json", json.dumps(content, indent=1))

    def registered(self) -> dict[str, Any] | None:
        """Return the plan's file; None before it was written.

        Raises:
            UsageError: If the plan was changed after it was hashed.
        """
        try:
            found: dict[str, Any] = json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if _sha256(json.dumps(found["plan"], sort_keys=True)) != found["sha256"]:
            raise UsageError(
                f"The plan {self.folder / 'plan.json'} was changed after its test began, and a plan that follows the "
                "data proves nothing.\nPut it back as it was, or begin a new run, which ends the test: --new"
            )
        return found

    @property
    def plan(self) -> dict[str, Any]:
        """The plan. Raises UsageError if it was changed."""
        found = self.registered()
        assert found is not None, "start() registers a test before it is looked at"
        plan: dict[str, Any] = found["plan"]
        return plan

    def began(self) -> datetime:
        """Return when the test began, in the source's time."""
        found = self.registered()
        assert found is not None, "start() registers a test before it is looked at"
        return datetime.fromisoformat(found["began"])

    def add(self, seen: Seen) -> None:
        """Append a look."""
        line = json.dumps(
            {
                "at": seen.at.isoformat(),
                "arms": [_row(arm) for arm in seen.arms],
                "exposed": dict(seen.exposed),
                "crossed": seen.crossed,
                "guardrails": {name: [_row(arm) for arm in arms] for name, arms in seen.guardrails.items()},
                "over": seen.over,
                "hold": seen.hold,
            }
        )
        with (self.folder / "looks.jsonl").open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # half a line, where a kill cut one short
            file.write(line.encode() + b"\n")
        if self._looks is not None:
            self._looks.append(_seen(json.loads(line)))

    def looks(self) -> Sequence[Seen]:
        """Return every look in order; half a line, where a kill cut one short, is left out."""
        if self._looks is None:
            self._looks = self._read()
        return self._looks

    def _read(self) -> list[Seen]:
        try:
            whole, _, _ = (self.folder / "looks.jsonl").read_text(encoding="utf-8").rpartition("\n")
        except FileNotFoundError:
            return []
        return [_seen(json.loads(line)) for line in whole.splitlines()]


def _row(arm: ArmTotals) -> list[Any]:
    return [arm.arm, arm.n, arm.total, arm.total_sq]


def _seen(data: Mapping[str, Any]) -> Seen:
    return Seen(
        arms=tuple(ArmTotals(*row) for row in data["arms"]),
        exposed=data["exposed"],
        crossed=data["crossed"],
        guardrails={name: tuple(ArmTotals(*row) for row in rows) for name, rows in data["guardrails"].items()},
        at=datetime.fromisoformat(data["at"]),
        over=data["over"],
        hold=data.get("hold"),
    )


def _sha256(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
