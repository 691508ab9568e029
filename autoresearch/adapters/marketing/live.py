"""What is live: the tests, incumbents and switches that `run` writes and every server reads.

All of it lies in `<campaign>/.autoresearch/marketing/` and changes by rename, so that a reader sees the old state or
the new one and never half of either. `run` may stop and come back while servers go on showing what is written here.

    live.json       surfaces (original, incumbent) and the tests that run
    tests/          one file per test, running or ended: what it was, for counting later
    arms/           copies of the arms' artifacts by fingerprint; a candidate's own folder may vanish
    events/         the event log              salt, secret     made once, readable by the owner only
    killed          while it exists everybody sees the control and nobody is counted
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing.assignment import WHOLE, Part, bucket, check_split, layer_position, pick
from autoresearch.adapters.marketing.events import key, marks
from autoresearch.core import Artifact, EnvironmentNotReadyError, UsageError

CONTROL = "control"
"""The arm that shows the incumbent."""

TREATMENT = "treatment"
"""The arm of a test with one candidate."""

ARTIFACT = ("copy.toml",)
"""What an arm consists of; template, facts and brand are the campaign's, the same for all arms."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class LiveTest:
    """One live test on one surface.

    Attributes:
        id: Unique and stable across restarts.
        surface: What shows it: the page of a campaign, or its mails.
        salt: Makes its assignment independent of every other test's.
        control: Folder with the incumbent's artifact.
        treatments: Folder with the candidate's artifact, by arm.
        split: Share of units by arm, `control` included; sums to 1.
        started: When the first unit may be exposed.
        part: The part of the campaign's layer whose units may enter.
        ended: When it was finished; None while it runs.
        marks: Size in bytes of every segment of the event log when it began: nothing before concerns this test.
        lane: The surface of campaign.toml that it tests, see surfaces.py; empty where the whole copy is one.
        experiments: The experiment of each treatment, by arm; a test of one candidate is its experiment.
        taken_out: Treatments that are decided while others go on: whoever would see one sees the control, uncounted,
            so that the arms that are left still have people of the same days in the same shares.
    """

    id: str
    surface: str
    salt: str
    control: Path
    treatments: Mapping[str, Path]
    split: Mapping[str, float]
    started: datetime
    part: Part = WHOLE
    ended: datetime | None = None
    marks: Mapping[str, int] = field(default_factory=dict)
    lane: str = ""
    experiments: Mapping[str, str] = field(default_factory=dict)
    taken_out: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if CONTROL in self.treatments:
            raise ValueError(f"Test {self.id}: a treatment cannot be called {CONTROL!r}.")
        if set(self.split) != {CONTROL, *self.treatments}:
            raise ValueError(f"Test {self.id}: the split names {sorted(self.split)}, the arms are {sorted(self.arms)}.")
        check_split(self.split)
        # Positions follow this order, and JSON written elsewhere may have another.
        object.__setattr__(self, "split", {arm: self.split[arm] for arm in self.arms})

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms: control first, then the treatments by name; the position is the number in the log."""
        return (CONTROL, *sorted(self.treatments))

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the arms that are shown, in the same order."""
        return tuple(arm for arm in self.arms if arm not in self.taken_out)

    @property
    def place(self) -> str:
        """Where one test at a time can run."""
        return self.lane or self.surface

    def arm_tested_by(self, experiment_id: str) -> str:
        """Return the treatment of an experiment of this test. Raises KeyError if it has none."""
        if experiment_id == self.id and not self.experiments:
            return self.arms[1]
        return {experiment: arm for arm, experiment in self.experiments.items()}[experiment_id]

    def folder(self, arm: str) -> Path:
        """Return the artifact that an arm shows."""
        return self.control if arm == CONTROL else self.treatments[arm]

    def arm_of(self, campaign_salt: str, unit: str) -> str | None:
        """Return the arm of a unit; None where its arm is taken out, or it is in another surface's part."""
        if self.part != WHOLE and layer_position(campaign_salt, unit) not in self.part:
            return None
        arm = pick(bucket(self.salt, unit), self.split)
        return None if arm in self.taken_out else arm


@dataclass(frozen=True, slots=True)
class Surface:
    """What a surface shows outside tests.

    Attributes:
        original: The artifact as it was before the first test; the permanent holdout sees it for ever.
        incumbent: What everybody else sees.
    """

    original: Path
    incumbent: Path


@dataclass(frozen=True, slots=True)
class LiveState:
    """Everything that is live at one moment.

    Attributes:
        surfaces: By name.
        tests: The running test by lane, or by surface where that has no lanes.
    """

    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    tests: Mapping[str, LiveTest] = field(default_factory=dict)


class LiveFolder:
    """The state folder of one campaign.

    Args:
        path: `<campaign>/.autoresearch/marketing`; made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.events.mkdir(parents=True, exist_ok=True)
            (path / "arms").mkdir(exist_ok=True)
            (path / "tests").mkdir(exist_ok=True)
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"{path} cannot be written: {error.strerror}.\nMake it writable, then run the same command again."
            ) from error

    @classmethod
    def of(cls, campaign: Path) -> LiveFolder:
        """Return the state folder of the campaign in a folder."""
        return cls(campaign / ".autoresearch" / "marketing")

    @property
    def events(self) -> Path:
        """Folder of the event log."""
        return self.path / "events"

    @property
    def live(self) -> Path:
        """The file that servers watch."""
        return self.path / "live.json"

    @cached_property
    def salt(self) -> str:
        """The campaign's salt: hashes unit ids before they are stored, and places them in holdout and layer."""
        return made_once(self.path, "salt")

    @cached_property
    def secret(self) -> str:
        """The key that signs links and unsubscribe tokens."""
        return made_once(self.path, "secret")

    def unit_key(self, unit: str) -> int:
        """Return the name of a unit in the log: a hash under the campaign's salt."""
        return key(unit, f"{self.salt}/unit")

    @property
    def killed(self) -> bool:
        """Whether the kill switch is on."""
        return (self.path / "killed").exists()

    def kill(self, on: bool) -> None:
        """Turn the kill switch on or off; servers follow within a second, and it outlives restarts."""
        if on:
            (self.path / "killed").touch()
        else:
            (self.path / "killed").unlink(missing_ok=True)

    def read(self) -> LiveState:
        """Return what is live; nothing before the first `publish`.

        Raises:
            UsageError: If live.json cannot be understood.
        """
        try:
            data = json.loads(self.live.read_bytes())
            if data["version"] != _VERSION:
                raise ValueError(f"version {data['version']}")
            surfaces = {
                name: Surface(self.path / row["original"], self.path / row["incumbent"])
                for name, row in data["surfaces"].items()
            }
            return LiveState(surfaces, {test.place: test for test in map(self._test_of, data["tests"])})
        except FileNotFoundError:
            return LiveState()
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self.live} cannot be understood: {error!r}.\n"
                "Another version wrote it, or it was edited; move it away and start the run again."
            ) from error

    def publish(self, surface: str, artifact: Path) -> None:
        """Show an artifact on a surface that has none yet; the first one is the original for ever. Idempotent."""
        state = self.read()
        if surface not in state.surfaces:
            arm = self.keep_arm(artifact)
            self._write(replace(state, surfaces={**state.surfaces, surface: Surface(arm, arm)}))

    def start(self, test: LiveTest) -> LiveTest:
        """Make a test live and return it as stored, its arms copied. Idempotent by id.

        Raises:
            UsageError: If another test runs in its place, or a test of this id ran and ended before.
        """
        known = self.find(test.id)
        if known is not None:
            if known.ended is not None:
                raise UsageError(f"Test {test.id} has ended and cannot start again; give the new test another id.")
            test = known
        else:
            treatments = {arm: self.keep_arm(path) for arm, path in test.treatments.items()}
            test = replace(test, control=self.keep_arm(test.control), treatments=treatments, marks=marks(self.events))
        state = self.read()
        running = state.tests.get(test.place)
        if running is not None and running.id != test.id:
            raise UsageError(
                f"Test {running.id} runs on {test.place!r}, and a surface holds one test at a time; finish it first."
            )
        # The record comes first: a kill in between leaves a test that is known and not yet shown.
        self._write_test(test)
        for experiment in test.experiments.values():
            if experiment != test.id:
                _replace(self._test_file(experiment), json.dumps({"of": test.id}))
        surface = state.surfaces.get(test.surface, Surface(test.control, test.control))
        self._write(
            replace(
                state,
                surfaces={**state.surfaces, test.surface: surface},
                tests={**state.tests, test.place: test},
            )
        )
        return test

    def finish(self, test_id: str, winner: str | None = None, *, now: datetime | None = None) -> None:
        """Stop a test; a winner's artifact becomes the incumbent, unless another one than its control is shown by now.

        Then somebody else's change was kept meanwhile, and only who knows both can show them together (`show`).
        Idempotent.

        Args:
            test_id: Of a test that was started.
            winner: The treatment to keep; None keeps the control.
            now: When it ended; the clock's time where it is left out.

        Raises:
            UsageError: If no such test was started, or it has no such arm.
        """
        test = self.find(test_id)
        if test is None:
            raise UsageError(f"No test {test_id} was started here; there is nothing to finish.")
        if winner is not None and winner not in test.arms:
            raise UsageError(f"Test {test_id} has no arm {winner!r}; its arms are {', '.join(test.arms)}.")
        state = self.read()
        running = state.tests.get(test.place)
        if running is not None and running.id == test.id:
            surfaces = dict(state.surfaces)
            if winner is not None and surfaces[test.surface].incumbent == test.control:
                surfaces[test.surface] = replace(surfaces[test.surface], incumbent=test.folder(winner))
            tests = {name: other for name, other in state.tests.items() if name != test.place}
            self._write(LiveState(surfaces, tests))
        if test.ended is None:
            self._write_test(replace(test, ended=now or datetime.now(UTC)))

    def take_out(self, test_id: str, arm: str, *, now: datetime | None = None) -> None:
        """Show a treatment to nobody any more; the others go on, and with the last one the test ends. Idempotent.

        Args:
            test_id: Of a test that was started.
            arm: The treatment.
            now: When; the clock's time where it is left out.

        Raises:
            UsageError: If no such test was started, or it has no such treatment.
        """
        test = self.find(test_id)
        if test is None or arm not in test.treatments:
            raise UsageError(
                f"No test {test_id} with a treatment {arm!r} was started here; there is nothing to take out."
            )
        out = test.taken_out | {arm}
        if test.ended is not None or out >= set(test.treatments):
            self.finish(test_id, now=now)
            return
        test = replace(test, taken_out=out)
        # As at the start: a kill in between leaves what is known and not yet followed, and the same call mends it.
        self._write_test(test)
        state = self.read()
        if state.tests.get(test.place, test).id == test.id and state.tests.get(test.place) != test:
            self._write(replace(state, tests={**state.tests, test.place: test}))

    def show(self, surface: str, artifact: Path) -> None:
        """Make an artifact the incumbent of a surface without a test, as a rollback does."""
        state = self.read()
        arm = self.keep_arm(artifact)
        known = state.surfaces.get(surface, Surface(arm, arm))
        self._write(replace(state, surfaces={**state.surfaces, surface: replace(known, incumbent=arm)}))

    def find(self, test_id: str) -> LiveTest | None:
        """Return a test by its id or that of one of its experiments, running or ended; None: it was never started."""
        try:
            row = json.loads(self._test_file(test_id).read_bytes())
        except FileNotFoundError:
            return None
        return self.find(row["of"]) if "of" in row else self._test_of(row)

    def keep_arm(self, folder: Path) -> Path:
        """Copy an artifact below arms/ under its fingerprint and return the copy. Idempotent."""
        if folder.parent == self.path / "arms":
            return folder
        artifact = Artifact.read(folder, ARTIFACT)
        target = self.path / "arms" / artifact.fingerprint[:32]
        if not target.exists():
            scratch = Path(tempfile.mkdtemp(dir=self.path / "arms"))
            artifact.write(scratch)
            try:
                scratch.rename(target)
            except OSError:
                # Another process was faster; its copy has the same bytes.
                shutil.rmtree(scratch)
                if not target.exists():
                    raise
        return target

    def _write(self, state: LiveState) -> None:
        data = {
            "version": _VERSION,
            "surfaces": {
                name: {"original": self._relative(row.original), "incumbent": self._relative(row.incumbent)}
                for name, row in state.surfaces.items()
            },
            "tests": [self._row_of(test) for test in state.tests.values()],
        }
        _replace(self.live, json.dumps(data, indent=2))

    def _write_test(self, test: LiveTest) -> None:
        _replace(self._test_file(test.id), json.dumps(self._row_of(test), indent=2))

    def _test_file(self, test_id: str) -> Path:
        # An id may hold slashes or be long; its hash is a safe file name.
        return self.path / "tests" / f"{hashlib.sha256(test_id.encode()).hexdigest()[:32]}.json"

    def _relative(self, path: Path) -> str:
        """Return a path below the state folder as relative text: the campaign folder may move."""
        return path.relative_to(self.path).as_posix()

    def _row_of(self, test: LiveTest) -> dict[str, Any]:
        return {
            "id": test.id,
            "surface": test.surface,
            "salt": test.salt,
            "control": self._relative(test.control),
            "treatments": {arm: self._relative(path) for arm, path in test.treatments.items()},
            "split": dict(test.split),
            "started": test.started.isoformat(),
            "part": [test.part.start, test.part.end],
            "ended": test.ended.isoformat() if test.ended else None,
            "marks": dict(test.marks),
            "lane": test.lane,
            "experiments": dict(test.experiments),
            "taken_out": sorted(test.taken_out),
        }

    def _test_of(self, row: Mapping[str, Any]) -> LiveTest:
        return LiveTest(
            id=row["id"],
            surface=row["surface"],
            salt=row["salt"],
            control=self.path / row["control"],
            treatments={arm: self.path / path for arm, path in row["treatments"].items()},
            split=row["split"],
            started=datetime.fromisoformat(row["started"]),
            part=Part(*row["part"]),
            ended=datetime.fromisoformat(row["ended"]) if row["ended"] else None,
            marks=row["marks"],
            # What an older release wrote is of one candidate, on one surface.
            lane=row.get("lane", ""),
            experiments=row.get("experiments", {}),
            taken_out=frozenset(row.get("taken_out", ())),
        )


def made_once(folder: Path, name: str) -> str:
    """Return the random text in a file that the first caller makes, for the owner only; two that race agree on one."""
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f".{name}.{secrets.token_hex(8)}"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        try:
            # A link, unlike a rename, fails where the file has appeared meanwhile.
            os.link(scratch, path)
        except FileExistsError:
            pass
        finally:
            scratch.unlink()
    return path.read_text(encoding="ascii")


def _replace(path: Path, text: str) -> None:
    """Write a file by rename, its bytes on the disk before its name."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
