"""Tests of several candidates at once, and of several surfaces, from registration to what the map remembers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.adapter import MarketingAdapter, create_adapter
from autoresearch.adapters.marketing.live import CONTROL, LiveFolder, LiveTest
from autoresearch.adapters.marketing.past_tests import recall
from autoresearch.adapters.marketing.total import totals_of
from autoresearch.adapters.marketing.wording import set_slots
from autoresearch.core import (
    Artifact,
    CandidateError,
    Decision,
    Evidence,
    LiveExperiment,
    Look,
    OffersLanes,
    Outcome,
    UsageError,
    Workspace,
)
from autoresearch.core.decision.race_policy import RacePolicy
from autoresearch.core.driver import run
from autoresearch.core.ledger import Ledger, LiveLook
from tests.adapters.marketing.campaigns import edit, write_campaign
from tests.adapters.marketing.test_adapter import MONDAY, FakeSource, seen
from tests.adapters.marketing.with_surfaces import write_surfaces

CTAS = ("Plan my first week", "Try it with my team", "Start free, no card needed")


@dataclass
class Sharing(FakeSource):
    """A scripted source that runs tests of several candidates."""

    started: list[list[str]] = field(default_factory=list)

    def start_together(self, experiments: Sequence[LiveExperiment]) -> LiveTest:
        self.started.append([one.id for one in experiments])
        first = experiments[0]
        split = {CONTROL: 0.5, "treatment": 0.5}
        return LiveTest("t", "page", "s", first.control, {"treatment": first.treatment}, split, MONDAY)

    def show_to_everybody(self, artifact: Path) -> None:
        """Nobody is there."""


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A campaign that tests three candidates at a time."""
    folder = write_campaign(tmp_path / "campaign")
    edit(folder, "campaign.toml", "holdout = 0.05", "holdout = 0.05\narms = 3")
    return folder


def candidates(
    folder: Path, changes: Sequence[Mapping[str, str]], *, lane: str = "page", first: int = 1
) -> list[LiveExperiment]:
    """Return experiments of one test, their artifacts written."""
    text = (folder / "copy.toml").read_text(encoding="utf-8")
    Artifact({"copy.toml": text}).write(folder / "made" / "control")
    share = 1.0 / (len(changes) + 1)
    found = []
    for number, slots in enumerate(changes, first):
        Artifact({"copy.toml": set_slots(text, slots)}).write(folder / "made" / str(number))
        found.append(
            LiveExperiment(
                f"run-{number:04d}",
                folder / "made" / "control",
                folder / "made" / str(number),
                {"control": share, "treatment": share},
                datetime(2026, 1, 5, tzinfo=UTC),
                lane,
                f"treatment-{number}" if len(changes) > 1 else "treatment",
            )
        )
    return found


def prepared(folder: Path, source: FakeSource | None = None, **options: str) -> MarketingAdapter:
    made = create_adapter({"anyway": "yes", **options})
    made.prepare(Workspace(folder))
    if source is not None:
        made._source = source
    return made


def plan_of(folder: Path, experiment: str) -> dict[str, object]:
    path = folder / ".autoresearch" / "marketing" / "looks" / experiment / "plan.json"
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))["plan"]
    return found


def test_the_adapter_offers_lanes_before_and_after_it_knows_them(three: Path) -> None:
    """Whoever asks what it offers needs no campaign; its arms are known once it is read."""
    made = create_adapter({})
    assert isinstance(made, OffersLanes) and [lane.arms for lane in made.lanes] == [1]
    made.prepare(Workspace(three))
    assert [(lane.name, lane.arms) for lane in made.lanes] == [("page", 3)]


def test_every_plan_holds_the_texts_of_all_arms_before_anybody_is_exposed(three: Path) -> None:
    """Which arms there are, what each says and who gets which share is hashed with each of them."""
    plans: list[dict[str, object]] = []

    class Source(Sharing):
        def start_together(self, experiments: Sequence[LiveExperiment]) -> LiveTest:
            plans.extend(plan_of(three, one.id) for one in experiments)
            return super().start_together(experiments)

    prepared(three, Source()).start_together(candidates(three, [{"cta": cta} for cta in CTAS]))
    assert len(plans) == 3
    for number, plan in enumerate(plans, 1):
        arms = plan["arms"]
        assert isinstance(arms, dict)
        assert [arm["texts"]["cta"] for arm in arms.values()] == list(CTAS)
        assert plan["split"] == {CONTROL: 0.25, "treatment-1": 0.25, "treatment-2": 0.25, "treatment-3": 0.25}
        assert plan["texts"]["treatment"] == arms[f"treatment-{number}"]["texts"]  # type: ignore[index]


def test_a_test_is_taken_up_with_the_arms_that_are_left(three: Path) -> None:
    """After a restart only some are named: their plan is the one that all were registered with; another text is not."""
    source = Sharing()
    made = prepared(three, source)
    all_of = candidates(three, [{"cta": cta} for cta in CTAS])
    made.start_together(all_of)
    before = plan_of(three, "run-0002")
    prepared(three, source).start_together(all_of[1:2])
    assert plan_of(three, "run-0002") == before and source.started[-1] == ["run-0002"]
    changed = candidates(three, [{"cta": cta} for cta in ("Plan my first week", "Show me my rota", CTAS[2])])
    with pytest.raises(UsageError, match=r"another plan than the one at hand: .*texts, treatment differs"):
        prepared(three, source).start_together(changed[1:2])


def test_an_arm_that_reads_as_the_control_is_no_arm(three: Path) -> None:
    """Nobody would see a difference, so nothing begins."""
    source = Sharing()
    with pytest.raises(CandidateError, match="read the same"):
        prepared(three, source).start_together(candidates(three, [{"cta": CTAS[0]}, {}]))
    assert source.started == [] and not (three / ".autoresearch" / "marketing" / "looks").exists()


def test_the_map_counts_people_of_a_shared_control_once(three: Path) -> None:
    """Each treatment is a test to it, with a third of the control's people; those of a test of one keep them all."""
    source = Sharing([seen(2), seen(3)])
    made = prepared(three, source)
    made.start_together(candidates(three, [{"cta": cta} for cta in CTAS]))
    for number in (1, 2):
        made.observe(f"run-000{number}")
        made.finish(f"run-000{number}", Outcome.REVERTED)
    found = recall(three / ".autoresearch" / "marketing")
    assert [[(arm.slots["cta"], arm.n, arm.conversions) for arm in test.arms] for test in found] == [
        [("Start the free trial", 666, pytest.approx(100 / 3)), (CTAS[0], 2000, 120.0)],
        [("Start the free trial", 1000, 50.0), (CTAS[1], 3000, 180.0)],
    ]


def test_the_map_knows_an_audience_s_texts_by_their_slot(tmp_path: Path) -> None:
    """What resonates with an audience is a text of a slot like any other."""
    folder = write_surfaces(tmp_path / "campaign")
    made = prepared(folder, Sharing([seen(2)]))
    made.start_together(candidates(folder, [{"ads.subhead": "One rota for everybody."}], lane="ads"))
    assert plan_of(folder, "run-0001")["surface"] == {
        "name": "ads",
        "slots": ["subhead"],
        "audience": {"utm_source": ["ads", "partner"]},
    }
    made.observe("run-0001")
    made.finish("run-0001", Outcome.KEPT)
    (test,) = recall(folder / ".autoresearch" / "marketing")
    assert [arm.slots["subhead"][:8] for arm in test.arms] == ["Rota pla", "One rota"]
    assert all("." not in name for arm in test.arms for name in arm.slots)


def test_looks_are_read_once(three: Path) -> None:
    """What was looked at in this session is known; another session reads it from the file."""
    made = prepared(three, Sharing([seen(1), seen(2)]))
    made.start_together(candidates(three, [{"cta": CTAS[0]}]))
    made.observe("run-0001")
    path = three / ".autoresearch" / "marketing" / "looks" / "run-0001" / "looks.jsonl"
    assert made.gates("run-0001", None).invalid is None
    kept = path.read_bytes()
    path.write_bytes(b"no JSON\n")
    assert made.ending("run-0001") is None
    path.write_bytes(kept)
    made.observe("run-0001")
    assert [row.at for row in made._records("run-0001").looks()] == [seen(1).at, seen(2).at]
    assert [row.at for row in prepared(three)._records("run-0001").looks()] == [seen(1).at, seen(2).at]


# From end to end, with made-up people


@dataclass
class Played:
    """What came of a test: outcome by experiment, and the days that it took."""

    outcomes: dict[str, Outcome]
    days: int


def play(made: MarketingAdapter, experiments: Sequence[LiveExperiment], days: int = 14) -> Played:
    """Run one test as the loop does: a look a day and arm, e-Bonferroni, a keep ends it."""
    policy = RacePolicy()
    made.start_together(experiments)
    looks: dict[str, list[Look]] = {one.id: [] for one in experiments}
    outcomes: dict[str, Outcome] = {}
    for day in range(1, days + 1):
        for one in [one for one in experiments if one.id not in outcomes]:
            looks[one.id].append(Look(*made.observe(one.id)))
            verdict = policy.decide(Evidence(made.metric, tuple(looks[one.id]), family=len(experiments)))
            gates = made.gates(one.id, None)
            assert (gates.invalid, gates.harm) == (None, None)
            if verdict.decision is Decision.KEEP:
                outcomes[one.id] = Outcome.KEPT
            elif verdict.decision is Decision.REVERT:
                outcomes[one.id] = Outcome.REVERTED
                made.finish(one.id, Outcome.REVERTED)
        if day == days:
            outcomes |= {one.id: Outcome.INCONCLUSIVE for one in experiments if one.id not in outcomes}
        winners = [name for name, outcome in outcomes.items() if outcome is Outcome.KEPT]
        if winners:
            made.finish(winners[0], Outcome.KEPT)
            made.show_to_everybody(next(one.treatment for one in experiments if one.id == winners[0]))
        if winners or len(outcomes) == len(experiments):
            break
    for one in experiments:
        made.finish(one.id, outcomes.get(one.id, Outcome.INCONCLUSIVE))
    return Played(outcomes, day)


@pytest.fixture
def small(three: Path) -> Iterator[Path]:
    """Enough people for quick tests of three candidates."""
    pytest.importorskip("uvicorn")
    edit(three, "campaign.toml", "weekly = 20_000", "weekly = 2_800")
    edit(three, "campaign.toml", "baseline = 0.05", "baseline = 0.40")
    edit(three, "campaign.toml", "min_effect = 0.10", "min_effect = 0.25")
    edit(three, "campaign.toml", "whole_weeks = true", "whole_weeks = false")
    yield three


def with_spread(folder: Path, spread: float) -> None:
    path = folder / "campaign.toml"
    path.write_text(path.read_text(encoding="utf-8") + f"\n[simulated]\nspread = {spread}\n", encoding="utf-8")


def test_the_better_of_three_is_found_against_one_control(small: Path) -> None:
    """One is better by half and two are worse by a seventh: it is kept, shown to everybody, and the others are not."""
    with_spread(small, 0.25)
    made = prepared(small, seed="37")
    try:
        played = play(made, candidates(small, [{"cta": cta} for cta in CTAS]))
    finally:
        made.close()
    assert played.outcomes["run-0001"] is Outcome.KEPT
    assert all(played.outcomes.get(f"run-000{number}") is not Outcome.KEPT for number in (2, 3))
    state = LiveFolder.of(small).read()
    assert state.tests == {} and CTAS[0] in (state.surfaces["page"].incumbent / "copy.toml").read_text("utf-8")


def test_three_that_change_nothing_are_not_kept(small: Path) -> None:
    """A/A/A/A: of two tests of three candidates none is kept, where each may be once in twenty."""
    with_spread(small, 0.0)
    made = prepared(small, seed="5")
    try:
        found = [
            play(made, candidates(small, [{"cta": cta} for cta in CTAS], first=1 + 3 * number), days=8)
            for number in range(2)
        ]
    finally:
        made.close()
    assert Outcome.KEPT not in {outcome for played in found for outcome in played.outcomes.values()}


TWO = """
[slots.price_note]
max_chars = 90

[surfaces.hero]
slots = ["headline", "cta"]

[surfaces.pricing]
path = "/pricing"
template = "pricing.html.j2"
slots = ["price_note"]
reach = 0.9

[simulated]
spread = 0.3
"""

RUN = "import sys; from pathlib import Path; from tests.adapters.marketing.test_lanes import go; go(Path(sys.argv[1]))"


def go(folder: Path) -> None:
    """Begin the run in a folder, or go on with it."""
    options = {"seed": "3", "anyway": "yes"}
    run(workspace=folder, proposer="search", experiments=4, seed=1, options=options)


def two_surfaces(folder: Path) -> Path:
    """Two surfaces, each with tests of two candidates."""
    write_surfaces(folder, surfaces=TWO, arms=2)
    for old, new in (
        ("weekly = 20_000", "weekly = 2_800"),
        ("baseline = 0.05", "baseline = 0.40"),
        ("min_effect = 0.10", "min_effect = 0.25"),
        ("whole_weeks = true", "whole_weeks = false"),
    ):
        edit(folder, "campaign.toml", old, new)
    (folder / "autoresearch.toml").write_text('[run]\nadapter = "marketing"\n', encoding="utf-8")
    return folder


@dataclass
class Told:
    """What the ledger says of an experiment."""

    lane: str
    family: int
    hypothesis: str
    outcome: str | None
    looks: list[tuple[int, float, int, float]]


def story(folder: Path) -> list[Told]:
    """Return what the ledger says of each experiment but the baseline."""
    with Ledger.open(folder / ".autoresearch" / "ledger.db") as ledger:
        latest = ledger.latest_run()
        assert latest is not None
        found = []
        for row in ledger.experiments(latest.id)[1:]:
            looks: dict[int, dict[str, LiveLook]] = {}
            for look in ledger.live_looks(row.id):
                looks.setdefault(look.look, {})[look.arm] = look
            assert list(looks) == list(range(len(looks)))
            totals = [(a.n, a.total, b.n, b.total) for a, b in ((x["control"], x["treatment"]) for x in looks.values())]
            found.append(Told(row.lane, row.family, row.hypothesis, row.outcome, totals))
        return found


def test_a_run_on_two_surfaces_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Two candidates on each of two surfaces; killed on the way, it counts the same people, each once.

    A kill between a look and its row in the ledger costs that look, and nobody: so days are compared, not numbers.
    """
    pytest.importorskip("uvicorn")
    whole, killed = two_surfaces(tmp_path / "whole"), two_surfaces(tmp_path / "killed")
    go(whole)
    process = subprocess.Popen([sys.executable, "-c", RUN, str(killed)], stderr=subprocess.DEVNULL)
    try:
        wait_for_day(killed, "2026-01-07", process)
    finally:
        process.kill()
        process.wait()
    go(killed)
    expected, told = story(whole), story(killed)
    assert [(one.lane, one.family) for one in told] == [("hero", 2), ("hero", 2), ("pricing", 2), ("pricing", 2)]
    for one, other in zip(told, expected, strict=True):
        assert one.hypothesis == other.hypothesis and one.outcome is not None
        by_day = {look[0]: look for look in other.looks}
        assert [look for look in one.looks if look[0] in by_day] == [
            by_day[look[0]] for look in one.looks if look[0] in by_day
        ]
        assert one.looks[0][0] in by_day
    assert LiveFolder.of(killed).read().tests == {}
    with Ledger.open(killed / ".autoresearch" / "ledger.db") as ledger:
        assert totals_of(killed, ledger).kept == sum(one.outcome == "kept" for one in told)


def wait_for_day(folder: Path, day: str, process: subprocess.Popen[bytes]) -> None:
    """Return when the people of a day before this one have come."""
    state = folder / ".autoresearch" / "marketing" / "simulated.json"
    deadline = time.monotonic() + 120.0
    while not state.exists() or json.loads(state.read_text(encoding="utf-8"))["now"] < day:
        assert process.poll() is None and time.monotonic() < deadline, f"the run did not get to {day}"
        time.sleep(0.01)
