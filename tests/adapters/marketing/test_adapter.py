"""The adapter over a campaign folder: what it refuses, what its gates say, and people from end to end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoresearch.adapters.marketing.adapter import MarketingAdapter, create_adapter
from autoresearch.adapters.marketing.commands import app
from autoresearch.adapters.marketing.past_tests import PastArm, PastTest, recall, remember
from autoresearch.adapters.marketing.records import Records
from autoresearch.adapters.marketing.sources import Seen
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.adapters.marketing.wording import set_slots
from autoresearch.core import (
    ArmTotals,
    Artifact,
    CandidateError,
    LiveExperiment,
    Look,
    Outcome,
    UsageError,
    Workspace,
)
from autoresearch.core.driver import run
from tests.json_docs import as_documented

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)


@dataclass
class FakeSource:
    """Hands out looks from a script."""

    looks: Sequence[Seen] = ()
    finished: list[tuple[str, bool]] = field(default_factory=list)
    label: str = ""
    taken: int = 0

    def prepare(self) -> None:
        """Nothing to prepare."""

    def start(self, experiment: LiveExperiment) -> datetime:
        return MONDAY

    def look(self, experiment_id: str) -> Seen:
        self.taken += 1
        return self.looks[self.taken - 1]

    def wait_seconds(self, experiment_id: str) -> float:
        return 7.0

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        self.finished.append((experiment_id, kept))

    def close(self) -> None:
        """Nothing is open."""


def arms(n: int, control: float, treatment: float) -> tuple[ArmTotals, ArmTotals]:
    return ArmTotals("control", n, control, control), ArmTotals("treatment", n, treatment, treatment)


def seen(day: int, **fields: object) -> Seen:
    usual = Seen(
        arms(1000 * day, 50.0 * day, 60.0 * day),
        {"control": 1000 * day, "treatment": 1000 * day},
        0,
        {},
        MONDAY + day * DAY,
    )
    return replace(usual, **fields)  # type: ignore[arg-type]


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    folder = tmp_path / "campaign"
    for name, text in workspace_files("page").items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def adapter(campaign: Path) -> MarketingAdapter:
    made = create_adapter({})
    made.prepare(Workspace(campaign))
    return made


def begin(
    adapter: MarketingAdapter,
    looks: Sequence[Seen],
    slots: Mapping[str, str] | None = None,
    *,
    source: FakeSource | None = None,
    look: bool = True,
) -> FakeSource:
    """Start the test `t` on a scripted source and take all its looks."""
    source = source or FakeSource(looks)
    adapter._source = source
    folder = adapter.campaign.folder
    text = adapter.campaign.copy_path.read_text(encoding="utf-8")
    changed = {"cta": "Plan my first week"} if slots is None else slots
    for arm, copy in (("c", text), ("t", set_slots(text, changed))):
        Artifact({"copy.toml": copy}).write(folder / "arms" / arm)
    experiment = LiveExperiment(
        "t", folder / "arms" / "c", folder / "arms" / "t", {"control": 0.5, "treatment": 0.5}, MONDAY
    )
    adapter.start(experiment)
    for _ in looks if look else ():
        adapter.observe("t")
    return source


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_an_option_that_nobody_reads_is_refused() -> None:
    """A misspelt option does not go unnoticed."""
    with pytest.raises(UsageError, match="no option 'knd'; it has kind"):
        create_adapter({"knd": "page"})


@pytest.mark.parametrize("name", ["anyway", "whole_weeks"])
def test_a_switch_is_yes_or_no(name: str) -> None:
    """A word that nobody understands must not quietly mean one of the two."""
    with pytest.raises(UsageError, match=f"{name} must be yes or no, not 'nope'"):
        create_adapter({name: "nope"})


def test_the_campaigns_own_copy_is_held_to_its_rules(campaign: Path) -> None:
    """A baseline that would be refused is named before anybody sees it."""
    edit(campaign / "copy.toml", 'cta = "Start the free trial"', 'cta = "<b>Start</b>"')
    with pytest.raises(UsageError, match="would itself be refused"):
        create_adapter({}).prepare(Workspace(campaign))


def test_a_text_offered_to_the_search_is_held_to_the_rules_too(campaign: Path) -> None:
    """An option that every candidate with it would be refused for is named at the start."""
    edit(campaign / "copy.toml", '"Plan my first week"', '"Guaranteed success for everybody in every way"')
    with pytest.raises(UsageError, match="offers the search a text that would be refused"):
        create_adapter({}).prepare(Workspace(campaign))


def test_a_plan_that_traffic_cannot_afford_is_refused_unless_asked_for(campaign: Path) -> None:
    """300 visitors a week cannot settle a tenth more of 5 %; `anyway` runs it all the same."""
    edit(campaign / "campaign.toml", "weekly = 20_000", "weekly = 300")
    with pytest.raises(UsageError, match="all the same: --anyway"):
        create_adapter({}).prepare(Workspace(campaign))
    create_adapter({"anyway": "yes"}).prepare(Workspace(campaign))


@pytest.mark.parametrize("source", ["simulated", "email"])
def test_people_who_bring_no_values_have_no_mean(campaign: Path, source: str) -> None:
    """Revenue of people who pay nothing would be 0 in both arms for weeks, so that it is refused at once."""
    edit(campaign / "campaign.toml", 'kind = "proportion"', 'kind = "mean"')
    edit(campaign / "campaign.toml", 'source = "simulated"', f'source = "{source}"')
    with pytest.raises(UsageError, match=f"the source {source} nobody says"):
        create_adapter({}).prepare(Workspace(campaign))


def test_a_candidate_is_refused_with_its_reasons(adapter: MarketingAdapter) -> None:
    """A number that facts.md does not hold is refused before any person sees it."""
    text = adapter.campaign.copy_path.read_text(encoding="utf-8")
    with pytest.raises(CandidateError, match="97"):
        adapter.check(Artifact({"copy.toml": set_slots(text, {"headline": "97 % of cafés agree"})}))


def test_copies_that_read_the_same_are_no_test(adapter: MarketingAdapter) -> None:
    """A change outside [slots] would be an A/A test that nobody asked for."""
    with pytest.raises(CandidateError, match="read the same"):
        begin(adapter, [], {})


def test_made_up_people_are_in_the_metrics_name(adapter: MarketingAdapter) -> None:
    """Every table and summary that names the metric says that it is simulated."""
    assert adapter.metric.name == "simulated_signup_rate" and adapter.metric.min_effect == 0.1


def test_a_sound_test_passes_its_gates(adapter: MarketingAdapter) -> None:
    """Equal arms, no harm, no line crossed: nothing to say."""
    begin(adapter, [seen(1), seen(2)])
    report = adapter.gates("t", None)
    assert (report.invalid, report.harm, report.hold) == (None, None, None)


def test_what_is_left_of_a_test_shrinks_with_every_look(adapter: MarketingAdapter) -> None:
    """After three days of `max_weeks` so many days fewer are left; before the first look nobody knows."""
    begin(adapter, [seen(1), seen(3)], look=False)
    whole = 7.0 * adapter.campaign.traffic.max_weeks
    assert adapter.days_left("t") is None
    adapter.observe("t")
    assert adapter.days_left("t") == pytest.approx(whole - 1)
    adapter.observe("t")
    assert adapter.days_left("t") == pytest.approx(whole - 3)


def test_a_broken_split_is_invalid(adapter: MarketingAdapter) -> None:
    """6,000 against 5,000 is no half and half."""
    begin(adapter, [seen(6, exposed={"control": 6000, "treatment": 5000})])
    assert "The split is broken" in (adapter.gates("t", None).invalid or "")


def test_units_in_both_arms_are_invalid_when_they_are_many(adapter: MarketingAdapter) -> None:
    """A few people have two devices; a share of one in twenty is a lost cookie."""
    begin(adapter, [seen(1, crossed=9), seen(2, crossed=200)])
    assert "200 of 4000 units saw both arms" in (adapter.gates("t", None).invalid or "")


def test_harm_to_a_guardrail_ends_a_test(adapter: MarketingAdapter) -> None:
    """Refunds that triple are harm, whatever the lift."""
    begin(adapter, [seen(day, guardrails={"refund": arms(3000 * day, 15.0 * day, 60.0 * day)}) for day in (1, 2, 3)])
    assert "refund" in (adapter.gates("t", None).harm or "")


def test_a_guardrail_has_an_absolute_ceiling(adapter: MarketingAdapter, campaign: Path) -> None:
    """One per cent of complaints is too many even where the control has as many."""
    edit(
        campaign / "campaign.toml",
        "[guardrails.refund]",
        "[guardrails.complaint]\nceiling = 0.003\n[guardrails.refund]",
    )
    adapter.prepare(Workspace(campaign))
    begin(adapter, [seen(1, guardrails={"complaint": arms(4000, 40.0, 40.0)})])
    assert "above the ceiling of 0.30%" in (adapter.gates("t", None).harm or "")


@pytest.mark.parametrize(("crossed", "last", "held"), [(3, 4, True), (3, 7, False), (7, 7, False), (8, 9, True)])
def test_a_verdict_waits_for_the_week_of_its_crossing(
    adapter: MarketingAdapter, crossed: int, last: int, held: bool
) -> None:
    """A line crossed on Thursday ends the test on Monday; one crossed at the end of the week ends it at once."""
    looks = [seen(day) for day in range(1, last + 1)]
    begin(adapter, looks)
    control, treatment = looks[crossed - 1].arms
    hold = adapter.gates("t", Look(control, treatment)).hold
    assert (hold is not None) == held


def test_a_person_forgotten_since_moves_no_week(adapter: MarketingAdapter) -> None:
    """The loop's sums never fall, those of the log do; a verdict must not wait for ever-later weeks because of it."""
    looks = [seen(day) for day in range(1, 9)]
    begin(adapter, looks)
    crossed = Look(*arms(looks[1].arms[0].n + 1, 100.0, 120.0))
    assert adapter.gates("t", crossed).hold is None


def test_whole_weeks_may_be_switched_off(campaign: Path) -> None:
    """Then a verdict stands at the look that crossed the line."""
    made = create_adapter({"whole_weeks": "no"})
    made.prepare(Workspace(campaign))
    looks = [seen(1), seen(2)]
    begin(made, looks)
    assert made.gates("t", Look(*looks[0].arms)).hold is None


def test_a_plan_that_was_changed_after_the_start_proves_nothing(adapter: MarketingAdapter) -> None:
    """The plan is hashed before the first exposure."""
    begin(adapter, [seen(1)])
    path = adapter.campaign.folder / ".autoresearch" / "marketing" / "looks" / "t" / "plan.json"
    data = json.loads(path.read_text())
    assert data["plan"]["metric"] == "signup_rate" and data["plan"]["min_effect"] == 0.1
    data["plan"]["min_effect"] = 0.01
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="was changed after its test began"):
        Records(path.parent).began()


def test_the_plan_is_written_before_anybody_is_exposed(campaign: Path) -> None:
    """Where the server learns of a test, its plan is on the disk with its hash already."""
    made = create_adapter({})
    made.prepare(Workspace(campaign))
    path = campaign / ".autoresearch" / "marketing" / "looks" / "t" / "plan.json"
    found: list[dict[str, object]] = []

    class Source(FakeSource):
        def start(self, experiment: LiveExperiment) -> datetime:
            found.append(json.loads(path.read_text()))
            return MONDAY

    begin(made, [], source=Source())
    assert found[0]["began"] is None and found[0]["sha256"]
    assert Records(path.parent).began() == MONDAY


def test_a_test_is_not_taken_up_under_another_plan(adapter: MarketingAdapter) -> None:
    """Whatever way the plan came to differ, the test that was begun is not judged by it."""
    begin(adapter, [])
    with pytest.raises(UsageError, match="another plan than the one at hand: texts, treatment differs"):
        begin(adapter, [], slots={"cta": "Try it with my team"})


def test_a_run_that_comes_back_looks_when_the_next_look_is_due(campaign: Path) -> None:
    """The wait counts from the last look, or from the beginning, and not from the moment of coming back."""
    moment = [MONDAY]
    made = MarketingAdapter({}, now=lambda: moment[0])
    made.prepare(Workspace(campaign))
    begin(made, [seen(1)], look=False)
    assert made.wait_seconds("t") == 7.0
    made.observe("t")
    moment[0] = seen(1).at + timedelta(seconds=3)
    assert made.wait_seconds("t") == 4.0
    moment[0] = seen(1).at + DAY
    assert made.wait_seconds("t") == 0.0


def test_people_who_were_chosen_are_told_of_beside_every_verdict(adapter: MarketingAdapter) -> None:
    """Where a platform chose who saw what, no lift is told without it."""
    begin(adapter, [seen(1)], source=FakeSource([seen(1)], label="not randomised"))
    assert (adapter.gates("t", None).note or "").startswith("Not randomised")
    begin(adapter, [seen(2)])
    assert adapter.gates("t", None).note is None


def test_half_a_line_of_a_killed_run_is_left_out(adapter: MarketingAdapter) -> None:
    """The look that a kill cut short is taken again."""
    begin(adapter, [seen(1), seen(2)])
    records = Records(adapter.campaign.folder / ".autoresearch" / "marketing" / "looks" / "t")
    path = records.folder / "looks.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(records.looks()) == 1
    records.add(seen(2))
    assert records.looks() == [seen(1), seen(2)]


def test_the_source_is_told_how_it_ended(adapter: MarketingAdapter) -> None:
    """Kept treatments are shown to everybody, others to nobody."""
    source = begin(adapter, [seen(1, over="No more traffic.")])
    assert adapter.ending("t") == "No more traffic."
    adapter.finish("t", Outcome.KEPT)
    adapter.finish("u", Outcome.INVALID)
    assert source.finished == [("t", True), ("u", False)]


def test_made_up_people_walk_through_the_real_server(campaign: Path) -> None:
    """From the command's API to HTTP and back: a verdict with e-values, robots uncounted, the truth known."""
    pytest.importorskip("uvicorn")
    from autoresearch.adapters.marketing.total import totals_of
    from autoresearch.core.ledger import Ledger

    edit(campaign / "campaign.toml", "weekly = 20_000", "weekly = 2_100")
    edit(campaign / "campaign.toml", "baseline = 0.05", "baseline = 0.40")
    edit(campaign / "campaign.toml", "min_effect = 0.10", "min_effect = 0.25")
    (campaign / "autoresearch.toml").write_text('[run]\nadapter = "marketing"\n', encoding="utf-8")
    result = run(workspace=campaign, proposer="search", experiments=1, options={"seed": "3"})
    assert result.live and result.status.experiments == 1
    assert result.status.baseline == pytest.approx(0.40, abs=0.05)
    with Ledger.open(campaign / ".autoresearch" / "ledger.db") as ledger:
        row = ledger.experiments(result.status.run)[1]
        looks = ledger.live_looks(row.id)
        found = totals_of(campaign, ledger)
    printed = CliRunner().invoke(app, ["totals", "-w", str(campaign), "--json"], catch_exceptions=False).stdout
    assert as_documented("marketing totals", printed)["kept"] == found.kept
    assert row.outcome in ("kept", "reverted") and row.e_win is not None
    assert found.truth is not None and found.held_out > 0
    section = create_adapter({}).report_sections(campaign, result.status.run)[0]
    assert [one.value for one in section.estimates][:2] == [found.believed, found.shrunk]
    people = sum(look.n for look in looks if look.look == looks[-1].look)
    days = looks[-1].look  # maturity: the last day is not counted yet
    assert people == pytest.approx(300 * days * 0.95, rel=0.2), "a person counts once, a robot never, the holdout apart"


@pytest.mark.parametrize(
    ("outcome", "label", "known"),
    [
        (Outcome.KEPT, "", 1),
        (Outcome.REVERTED, "", 1),
        (Outcome.INCONCLUSIVE, "", 1),
        (Outcome.INVALID, "", 0),
        (Outcome.KEPT, "simulated", 0),
        (Outcome.KEPT, "not randomised", 0),
    ],
)
def test_sound_tests_on_real_people_go_on_the_map(
    adapter: MarketingAdapter, outcome: Outcome, label: str, known: int
) -> None:
    """A finished test is remembered with its texts and last totals; made-up people and broken tests are not."""
    begin(adapter, [seen(1), seen(2)]).label = label
    adapter.finish("t", outcome)
    adapter.finish("t", outcome)
    past = recall(adapter.campaign.folder / ".autoresearch" / "marketing")
    assert len(past) == known
    for test in past:
        assert [(arm.slots["cta"], arm.n, arm.conversions) for arm in test.arms] == [
            ("Start the free trial", 2000, 100),
            ("Plan my first week", 2000, 120),
        ]


def test_the_brief_tells_what_resonated(campaign: Path) -> None:
    """With three finished tests the language model is told what they showed; the brief stays the same all session."""
    state = campaign / ".autoresearch" / "marketing"
    first = create_adapter({})
    first.prepare(Workspace(campaign))
    bare = first.brief()
    for number in range(3):
        texts = ({"headline": f"Plan it {number}"}, {"headline": f"Why wait {number}?"})
        remember(state, PastTest(f"r/{number}", "2026-01-05", tuple(PastArm(slots, 1000, 50) for slots in texts)))
    assert first.brief() == bare
    later = create_adapter({})
    later.prepare(Workspace(campaign))
    assert later.brief().startswith(bare)
    assert "What resonated in 3 finished tests" in later.brief()


def test_a_rollback_shows_the_former_copy_and_ends_the_test(campaign: Path, tmp_path: Path) -> None:
    """No server needs to be up; everybody outside the holdout sees the former copy, and no test runs any more."""
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.live import LiveFolder
    from autoresearch.adapters.marketing.served import ServedSource

    edit(campaign / "campaign.toml", 'source = "simulated"', 'source = "site"')
    text = (campaign / "copy.toml").read_text(encoding="utf-8")
    for arm, slots in (("old", {}), ("new", {"cta": "Plan my first week"})):
        Artifact({"copy.toml": set_slots(text, slots)}).write(tmp_path / arm)
    source = ServedSource(Campaign.load(campaign))
    source.show_original()
    source.start(LiveExperiment("t", tmp_path / "old", tmp_path / "new", {"control": 0.5, "treatment": 0.5}, MONDAY))
    create_adapter({}).roll_back(Workspace(campaign), tmp_path / "new", "t")
    state = LiveFolder.of(campaign).read()
    assert state.tests == {}
    assert "Plan my first week" in (state.surfaces["page"].incumbent / "copy.toml").read_text(encoding="utf-8")
