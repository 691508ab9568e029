"""The adapter: a campaign folder as a subject of research, judged on people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing import lanes, watch, wording
from autoresearch.adapters.marketing.campaign import BRAND_NAME, CAMPAIGN_NAME, COPY_NAME, FACTS_NAME, Campaign
from autoresearch.adapters.marketing.live import CONTROL, TREATMENT
from autoresearch.adapters.marketing.records import Records
from autoresearch.adapters.marketing.sources import NOTES, SharesPeople, Source, create_source
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.core import (
    ArmTotals,
    Artifact,
    CandidateError,
    Direction,
    GateReport,
    Knob,
    Lane,
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
        self._kept: dict[str, Records] = {}

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

    # Several tests at once

    @property
    def lanes(self) -> Sequence[Lane]:
        """The surfaces of the campaign, or the whole copy as the only one; that too before a campaign is read."""
        return lanes.NO_SURFACES if self._campaign is None else lanes.lanes_of(self._campaign)

    def belongs(self, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
        """Return why a candidate is none of a surface's: it changes what the surface does not test, or nothing."""
        return lanes.foreign(self.campaign, lane, parent, candidate)

    def lane_knobs(self, lane: str, artifact: Artifact) -> Sequence[Knob]:
        """A knob for every slot of a surface that lists options."""
        return lanes.knobs(self.campaign, lane, artifact)

    def lane_brief(self, lane: str) -> str:
        """What may change in a surface, and who sees it."""
        return lanes.brief(self.campaign, lane)

    # The test

    def start(self, experiment: LiveExperiment) -> None:
        """Show both arms, once the plan of the test is written down and hashed: nothing is chosen after the fact.

        Raises:
            CandidateError: If nobody would see a difference.
        """
        _refuse_twin(experiment)
        records = self._records(experiment.id)
        records.register(self._registration([experiment]) | self._own(experiment))
        # Only now may anybody see it.
        records.begin(self.source.start(experiment))

    def start_together(self, experiments: Sequence[LiveExperiment]) -> None:
        """Show all arms of a test, once its plan with the texts of every one is written down and hashed.

        Raises:
            CandidateError: If nobody would see a difference between a treatment and the control.
        """
        for experiment in experiments:
            _refuse_twin(experiment)
        shared = self._shared_plan(experiments)
        for experiment in experiments:
            self._records(experiment.id).register(shared | self._own(experiment))
        began = self._sharing.start_together(experiments).started
        for experiment in experiments:
            self._records(experiment.id).begin(began)

    def show_to_everybody(self, artifact: Path) -> None:
        """Show a copy to everybody outside tests, the permanent holdout excepted."""
        self._sharing.show_to_everybody(artifact)

    @property
    def _sharing(self) -> SharesPeople:
        source = self.source
        assert isinstance(source, SharesPeople), "a campaign with several lanes or arms names a source that serves them"
        return source

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
            invalid=watch.invalid(looks, records.plan["split"]),
            harm=watch.harm(looks, self.campaign.guardrails),
            hold=watch.hold(looks, records.began(), crossed, whole_weeks=self._whole_weeks()),
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

    def days_left(self, experiment_id: str) -> float | None:
        """Return what is left of `max_weeks`; a mailing ends with its people, a past test with its data."""
        if self.campaign.traffic.source in ("email", "replay"):
            return None
        records = self._records(experiment_id)
        looks = records.looks()
        if not looks:
            return None
        gone = looks[-1].at - records.began()
        return max(0.0, 7.0 * self.campaign.traffic.max_weeks - gone.total_seconds() / 86_400)

    def used_up(self) -> str | None:
        """Return why nobody is left to test on; None where somebody is, or where people keep coming."""
        return self.source.used_up() if isinstance(self._source, RunsOut) else None

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        """End the test; a kept copy is what everybody sees."""
        if outcome in (Outcome.KEPT, Outcome.REVERTED, Outcome.INCONCLUSIVE):
            self._remember(experiment_id)
        self.source.finish(experiment_id, kept=outcome is Outcome.KEPT)
        self._kept.pop(experiment_id, None)

    def _remember(self, experiment_id: str) -> None:
        """Write the test down for the map; people made up, of the past, or chosen by somebody's tool stay out of it."""
        from autoresearch.adapters.marketing.past_tests import PastArm, PastTest, remember

        records = self._records(experiment_id)
        registered, looks = records.registered(), records.looks()
        if registered is None or not looks or self.source.label or self.metric.kind is not MetricKind.PROPORTION:
            return
        plan = registered["plan"]
        audience = lanes.audience_of(self.campaign, plan.get("surface", {}).get("name", ""))
        # Each treatment is a test of its own to the map, and people of a control that several share are counted once:
        # each test gets its share of them.
        shares = {CONTROL: len(plan["arms"]) if "arms" in plan else 1}
        arms = tuple(
            PastArm(
                wording.Copy(plan["texts"][arm.arm]).seen_by(audience).slots,
                arm.n // shares.get(arm.arm, 1),
                arm.total / shares.get(arm.arm, 1),
            )
            for arm in looks[-1].arms
        )
        state = self.campaign.folder / ".autoresearch" / "marketing"
        remember(state, PastTest(experiment_id, registered["began"], arms))

    def _whole_weeks(self) -> bool:
        return self.campaign.traffic.whole_weeks and self._options.get("whole_weeks", "yes") in _YES

    def _records(self, experiment_id: str) -> Records:
        if experiment_id not in self._kept:
            folder = self.campaign.folder / ".autoresearch" / "marketing" / "looks" / experiment_id
            self._kept[experiment_id] = Records(folder)
        return self._kept[experiment_id]

    def _shared_plan(self, experiments: Sequence[LiveExperiment]) -> dict[str, Any]:
        """Return what all experiments of a test have in common, the arms of those included that are finished by now."""
        plan = self._registration(experiments)
        surface = lanes.surface_of(self.campaign, experiments[0].lane)
        if surface is not None:
            plan["surface"] = {"name": surface.name, "slots": list(surface.slots)}
            if surface.audience:
                plan["surface"]["audience"] = {name: list(values) for name, values in surface.audience.items()}
        if len(experiments) > 1 or self.campaign.traffic.arms > 1:
            plan["arms"] = {one.arm: {"experiment": one.id, "texts": _texts(one.treatment)} for one in experiments}
        known = self._records(experiments[0].id).registered()
        if known is not None and known["plan"].get("arms", {}).items() > plan.get("arms", {}).items():
            plan |= {name: known["plan"][name] for name in ("arms", "split")}
        return plan

    def _own(self, experiment: LiveExperiment) -> dict[str, Any]:
        """Return what the plan says of one experiment."""
        return {
            "experiment": experiment.id,
            "treatment": Artifact.read(experiment.treatment, (COPY_NAME,)).fingerprint,
            "texts": {"control": _texts(experiment.control), "treatment": _texts(experiment.treatment)},
        }

    def _registration(self, experiments: Sequence[LiveExperiment]) -> dict[str, Any]:
        campaign, first = self.campaign, experiments[0]
        return {
            "metric": campaign.metric.name,
            "direction": campaign.metric.direction.value,
            "min_effect": campaign.metric.min_effect,
            "goal": campaign.goal.event,
            "guardrails": {rail.name: {"ceiling": rail.ceiling, "harm": rail.harm} for rail in campaign.guardrails},
            "split": {CONTROL: first.split[CONTROL]} | {one.arm: one.split[TREATMENT] for one in experiments},
            "whole_weeks": self._whole_weeks(),
            "maturity_days": campaign.traffic.maturity_days,
            "source": campaign.traffic.source,
            "control": Artifact.read(first.control, (COPY_NAME,)).fingerprint,
        }


def _texts(artifact: Path) -> dict[str, str]:
    return dict(wording.Copy.load(artifact).slots)


def _refuse_twin(experiment: LiveExperiment) -> None:
    """Raise CandidateError unless somebody would see a difference."""
    control, treatment = wording.Copy.load(experiment.control), wording.Copy.load(experiment.treatment)
    if not wording.changed_slots(control, treatment):
        raise CandidateError("Both copies read the same, so nobody would see a difference; change a text in [slots].")


def hopelessness(campaign: Campaign) -> str | None:
    """Return why the campaign's traffic could not settle its tests; None where it could, or where nobody knows it."""
    from autoresearch.adapters.marketing.email.settings import spends_a_list
    from autoresearch.adapters.marketing.email.volume import bound_of
    from autoresearch.adapters.marketing.planning import hopelessness_of, setting_of

    traffic, metric = campaign.traffic, campaign.metric
    if spends_a_list(campaign):
        return None  # it is spent as well as it can be, and nothing is to be settled
    if traffic.weekly is None or traffic.baseline is None or traffic.source == "replay":
        return None
    if metric.kind is not MetricKind.PROPORTION or metric.direction is not Direction.MAXIMIZE:
        return None
    bound = bound_of(campaign, traffic.weekly, traffic.max_weeks)
    reason = hopelessness_of(setting_of(campaign, weekly=None if bound is None else bound.weekly))
    return reason if reason is None or bound is None else f"{bound.why}\n{reason}"
