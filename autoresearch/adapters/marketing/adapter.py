"""The adapter: a campaign folder as a subject of research, judged on people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing import wording
from autoresearch.adapters.marketing.campaign import BRAND_NAME, CAMPAIGN_NAME, COPY_NAME, FACTS_NAME, Campaign
from autoresearch.adapters.marketing.sources import NOTES, Seen, Source, create_source
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.core import (
    ArmTotals,
    Artifact,
    CandidateError,
    Direction,
    GateReport,
    Knob,
    LiveExperiment,
    Look,
    Metric,
    MetricKind,
    Outcome,
    ReportSection,
    RunsOut,
    Scope,
    UsageError,
    Workspace,
)
from autoresearch.core.decision.gates import ceiling_gate, end_of_week, harm_gate, split_gate
from autoresearch.core.decision.race_bernoulli import Counts

CROSSED_SHARE = 0.01
"""Share of units in both arms above which a test is invalid: few people have two devices, a lost cookie has many."""

_LABELS = {"simulated": "simulated_", "replay": "replayed_"}

_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")

OPTIONS = ("kind", "platform", "seed", "anyway", "whole_weeks")


def create_adapter(options: Mapping[str, str]) -> MarketingAdapter:
    """Return the adapter; the campaign is read when the workspace is known.

    Raises:
        UsageError: If an option is unknown, or is neither yes nor no where it must be.
    """
    for name in options:
        if name not in OPTIONS:
            raise UsageError(f"The marketing adapter has no option {name!r}; it has {', '.join(OPTIONS)}.")
    for name in ("anyway", "whole_weeks"):
        if options.get(name, "no") not in (*_YES, *_NO):
            raise UsageError(f"The option {name} must be yes or no, not {options[name]!r}.")
    return MarketingAdapter(dict(options))


class MarketingAdapter:
    """A `LiveAdapter` over a campaign folder.

    Args:
        options: `kind` and `platform` of a new campaign; `seed` of simulated and replayed people; `anyway`: run a plan
            that the traffic cannot afford; `whole_weeks = no`: end tests in mid-week.
        now: The clock.
    """

    def __init__(self, options: Mapping[str, str], *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._options = options
        self._now = now
        self._campaign: Campaign | None = None
        self._source: Source | None = None
        self._brief: str | None = None

    @property
    def metric(self) -> Metric:
        """The campaign's primary metric; before a campaign is read, a share of visitors.

        Where the people are made up or of the past, its name says so, and with it every output.
        """
        if self._campaign is None:
            return Metric(
                "conversion_rate", "share of visitors", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.1
            )
        primary = self._campaign.metric
        name = _LABELS.get(self._campaign.traffic.source, "") + primary.name
        return Metric(name, primary.unit, primary.direction, primary.kind, min_effect=primary.min_effect)

    @property
    def scope(self) -> Scope:
        """The texts may change; campaign, template, facts and brand are shown and stay."""
        return Scope((COPY_NAME,), (CAMPAIGN_NAME, FACTS_NAME, BRAND_NAME, "template/*"))

    @property
    def campaign(self) -> Campaign:
        """The campaign. Raises RuntimeError before `prepare`."""
        if self._campaign is None:
            raise RuntimeError("prepare() reads the campaign; call it first.")
        return self._campaign

    @property
    def source(self) -> Source:
        """Where people come from. Raises RuntimeError before `prepare`."""
        if self._source is None:
            raise RuntimeError("prepare() opens the traffic source; call it first.")
        return self._source

    def workspace_files(self) -> Mapping[str, str]:
        """A campaign to begin with."""
        return workspace_files(self._options.get("kind", "page"), self._options.get("platform", "search"))

    def policy_for(self, workspace: Workspace) -> str | None:
        """Test & Roll for a list that ends; whatever the run says for everything else."""
        from autoresearch.adapters.marketing.email.settings import spends_a_list

        return "test_and_roll" if spends_a_list(Campaign.load(workspace.path)) else None

    def prepare(self, workspace: Workspace) -> None:
        """Read the campaign, refuse what no traffic can settle, and open the source.

        Raises:
            UsageError: If the campaign is broken, its own copy would be refused, or the plan is hopeless.
            EnvironmentNotReadyError: If the traffic source is not ready.
        """
        self._campaign = Campaign.load(workspace.path)
        self._refuse_own_copy()
        if self._options.get("anyway", "no") in _NO:
            self._refuse_hopeless_plan()
        self._source = create_source(self._campaign, self._options)
        self._source.prepare()

    def _refuse_own_copy(self) -> None:
        from autoresearch.adapters.marketing.checks import option_faults, refusals

        copy = wording.Copy.load(self.campaign.copy_path)
        found = refusals(self.campaign, copy)
        if found:
            raise UsageError(
                f"{self.campaign.copy_path} would itself be refused: {found[0]}\n"
                "Mend the copy, the facts or the limits; every candidate is held to them."
            )
        found = option_faults(self.campaign, copy)
        if found:
            raise UsageError(
                f"{self.campaign.copy_path} offers the search a text that would be refused: {found[0]}\n"
                "Mend that option or take it out."
            )

    def _refuse_hopeless_plan(self) -> None:
        reason = hopelessness(self.campaign)
        if reason is not None:
            raise UsageError(
                f"{reason}\nSee what the traffic affords: autoresearch marketing plan. To run all the same: --anyway"
            )

    def report_sections(self, workspace: Path, run_id: str) -> Sequence[ReportSection]:
        """The three totals of the kept changes, and the map of what resonates where there are tests enough."""
        from autoresearch.adapters.marketing.report_sections import sections

        return sections(workspace, run_id)

    def roll_back(self, workspace: Workspace, artifact: Path, ended: str | None) -> None:
        """Show an earlier copy to everybody, the permanent holdout excepted; no server needs to be up."""
        source = create_source(Campaign.load(workspace.path), self._options)
        if ended is not None:
            source.finish(ended, kept=False)
        source.show(artifact)

    def close(self) -> None:
        """Let go of what the source holds open."""
        if self._source is not None:
            self._source.close()

    def brief(self) -> str:
        """What the language model is told of the campaign, and of what resonated before this session."""
        if self._brief is None:
            from autoresearch.adapters.marketing.brief import brief
            from autoresearch.adapters.marketing.resonance import prompt_of

            # Fitted once: a prompt that stays the same byte for byte is paid for once.
            resonated = prompt_of(self.campaign.folder)
            self._brief = "\n\n".join(part for part in (brief(self.campaign), resonated) if part)
        return self._brief

    def knobs(self, artifact: Artifact) -> Sequence[Knob]:
        """A knob for every slot that lists options."""
        return wording.knobs(artifact)

    def check(self, artifact: Artifact) -> None:
        """Refuse a copy before any person sees it; raises CandidateError with the first reason."""
        from autoresearch.adapters.marketing.checks import refusals

        copy = wording.Copy.load(artifact.files.get(COPY_NAME, ""))
        found = refusals(self.campaign, copy)
        if found:
            raise CandidateError(" ".join(found[:3]))

    # The test

    def start(self, experiment: LiveExperiment) -> None:
        """Show both arms, once the plan of the test is written down and hashed: nothing is chosen after the fact.

        Raises:
            CandidateError: If nobody would see a difference.
        """
        control, treatment = wording.Copy.load(experiment.control), wording.Copy.load(experiment.treatment)
        if not wording.changed_slots(control, treatment):
            raise CandidateError(
                "Both copies read the same, so nobody would see a difference; change a text in [slots]."
            )
        records = self._records(experiment.id)
        records.register(self._registration(experiment))
        # Only now may anybody see it.
        records.begin(self.source.start(experiment))

    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        """Return the totals of both arms, and keep what the gates will want to know."""
        seen = self.source.look(experiment_id)
        self._records(experiment_id).add(seen)
        return seen.arms

    def gates(self, experiment_id: str, crossed: Look | None) -> GateReport:
        """Judge split, guardrails and calendar by all looks so far."""
        records = self._records(experiment_id)
        looks = records.looks()
        if not looks:
            return GateReport()
        return GateReport(
            invalid=self._invalid(looks[-1]),
            harm=self._harm(looks),
            hold=self._hold(records, looks, crossed),
            note=NOTES.get(self.source.label),
        )

    def wait_seconds(self, experiment_id: str) -> float:
        """Return what is left of the source's wait since the last look, so that a run that comes back looks at once."""
        wait = self.source.wait_seconds(experiment_id)
        if not wait:
            return 0.0
        records = self._records(experiment_id)
        looks = records.looks()
        gone = (self._now() - (looks[-1].at if looks else records.began())).total_seconds()
        return min(wait, max(0.0, wait - gone))

    def ending(self, experiment_id: str) -> str | None:
        """Return why the last look was the last."""
        looks = self._records(experiment_id).looks()
        return looks[-1].over if looks else None

    def used_up(self) -> str | None:
        """Return why nobody is left to test on; None where somebody is, or where people keep coming."""
        return self.source.used_up() if isinstance(self._source, RunsOut) else None

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        """End the test; a kept copy is what everybody sees."""
        if outcome in (Outcome.KEPT, Outcome.REVERTED, Outcome.INCONCLUSIVE):
            self._remember(experiment_id)
        self.source.finish(experiment_id, kept=outcome is Outcome.KEPT)

    def _remember(self, experiment_id: str) -> None:
        """Write the test down for the map; people made up, of the past, or chosen by somebody's tool stay out of it."""
        from autoresearch.adapters.marketing.past_tests import PastArm, PastTest, remember

        records = self._records(experiment_id)
        registered, looks = records.registered(), records.looks()
        if registered is None or not looks or self.source.label or self.metric.kind is not MetricKind.PROPORTION:
            return
        texts = registered["plan"]["texts"]
        arms = tuple(PastArm(texts[arm.arm], arm.n, arm.total) for arm in looks[-1].arms)
        state = self.campaign.folder / ".autoresearch" / "marketing"
        remember(state, PastTest(experiment_id, registered["began"], arms))

    def _invalid(self, seen: Seen) -> str | None:
        units = sum(seen.exposed.values())
        if not units:
            return None
        shares = {arm: 1.0 / len(seen.exposed) for arm in seen.exposed}
        gate = split_gate([ArmTotals(arm, n, 0.0, 0.0) for arm, n in seen.exposed.items()], shares)
        if not gate.passed:
            return gate.reason
        if seen.crossed > max(10, CROSSED_SHARE * units):
            return (
                f"{seen.crossed} of {units} units saw both arms, so nobody knows what moved them. Look for a cache, or "
                "a cookie that is lost between visits."
            )
        return None

    def _harm(self, looks: Sequence[Seen]) -> str | None:
        for rail in self.campaign.guardrails:
            series = [seen.guardrails[rail.name] for seen in looks if rail.name in seen.guardrails]
            if not series or not series[-1][1].n:
                continue
            gate = harm_gate(_increments(series), effect=rail.harm, name=rail.name)
            if gate.passed and rail.ceiling is not None:
                gate = ceiling_gate(series[-1][1].n, series[-1][1].total, rail.ceiling, name=rail.name)
            if not gate.passed:
                return gate.reason
        return None

    def _hold(self, records: Records, looks: Sequence[Seen], crossed: Look | None) -> str | None:
        if looks[-1].hold is not None or crossed is None or not self._whole_weeks():
            return looks[-1].hold
        ends = end_of_week(records.began(), _moment_of(looks, crossed))
        if looks[-1].at >= ends:
            return None
        return f"A line is crossed; the test ends with its week, on {ends:%Y-%m-%d}."

    def _whole_weeks(self) -> bool:
        return self.campaign.traffic.whole_weeks and self._options.get("whole_weeks", "yes") in _YES

    def _records(self, experiment_id: str) -> Records:
        return Records(self.campaign.folder / ".autoresearch" / "marketing" / "looks" / experiment_id)

    def _registration(self, experiment: LiveExperiment) -> dict[str, Any]:
        campaign = self.campaign
        return {
            "experiment": experiment.id,
            "metric": campaign.metric.name,
            "direction": campaign.metric.direction.value,
            "min_effect": campaign.metric.min_effect,
            "goal": campaign.goal.event,
            "guardrails": {rail.name: {"ceiling": rail.ceiling, "harm": rail.harm} for rail in campaign.guardrails},
            "split": dict(experiment.split),
            "whole_weeks": self._whole_weeks(),
            "maturity_days": campaign.traffic.maturity_days,
            "source": campaign.traffic.source,
            "control": Artifact.read(experiment.control, (COPY_NAME,)).fingerprint,
            "treatment": Artifact.read(experiment.treatment, (COPY_NAME,)).fingerprint,
            "texts": {
                "control": dict(wording.Copy.load(experiment.control).slots),
                "treatment": dict(wording.Copy.load(experiment.treatment).slots),
            },
        }


def hopelessness(campaign: Campaign) -> str | None:
    """Return why the campaign's traffic could not settle its tests; None where it could, or where nobody knows it."""
    from autoresearch.adapters.marketing.email.settings import spends_a_list
    from autoresearch.adapters.marketing.planning import Setting, hopelessness_of

    traffic, metric = campaign.traffic, campaign.metric
    if spends_a_list(campaign):
        return None  # it is spent as well as it can be, and nothing is to be settled
    if traffic.weekly is None or traffic.baseline is None or traffic.source == "replay":
        return None
    if metric.kind is not MetricKind.PROPORTION or metric.direction is not Direction.MAXIMIZE:
        return None
    setting = Setting(
        weekly=traffic.weekly,
        baseline=traffic.baseline,
        lift=metric.min_effect,
        max_weeks=traffic.max_weeks,
        holdout=traffic.holdout,
        whole_weeks=traffic.whole_weeks,
        maturity_days=traffic.maturity_days,
    )
    return hopelessness_of(setting)


def _increments(series: Sequence[Sequence[ArmTotals]]) -> Counts:
    """Return what each look added to the cumulative totals of (control, treatment); a person forgotten adds nothing."""
    rows = [(0.0, 0.0, 0.0, 0.0), *((a.n, a.total, b.n, b.total) for a, b in series)]
    steps = [[max(0.0, after - before) for before, after in zip(*pair, strict=True)] for pair in pairwise(rows)]
    return Counts.of(*map(list, zip(*steps, strict=True)))


def _moment_of(looks: Sequence[Seen], crossed: Look) -> datetime:
    """Return when a look was taken; the loop knows it by its totals, which do not fall where a person was forgotten."""
    wanted = crossed.control.n + crossed.treatment.n
    return next((seen.at for seen in looks if seen.arms[0].n + seen.arms[1].n >= wanted), looks[-1].at)


@dataclass(frozen=True, slots=True)
class Records:
    """What is written down of one test: its plan with the plan's hash, then a line per look.

    Attributes:
        folder: One folder a test.
    """

    folder: Path

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

    def looks(self) -> list[Seen]:
        """Return every look in order; half a line, where a kill cut one short, is left out."""
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
