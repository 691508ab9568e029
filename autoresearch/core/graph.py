"""One experiment as a LangGraph graph: thin nodes over pure functions.

    propose -> check -> approve -> observe -> decide -> keep | revert -> record
       ^         |                    |  ^       |
       |         | refused            |  +-------+ continue
       +---------+---- repair <-------+ crash

Every node may run twice, because a kill can fall between a side effect and its checkpoint. So every node is idempotent:
proposals and measurements are inserted once and read back, commits carry the experiment's date and so get the same id
again, the branch moves by compare-and-swap, and recording is one UPDATE. The state holds a few numbers; history lives
in the ledger only.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from autoresearch.core import fingerprints, guards, lanes, live, memory, moments
from autoresearch.core.adapter import (
    Adapter,
    KeepsOutputs,
    LiveAdapter,
    Measurement,
    OffersBrief,
    OffersGuards,
    OffersKnobs,
    OffersLanes,
    Outcome,
    RunContext,
    Split,
)
from autoresearch.core.artifact import Artifact
from autoresearch.core.check import refusal
from autoresearch.core.decision import Decision, Policy, Verdict
from autoresearch.core.decision.early import EarlyRule, watching
from autoresearch.core.errors import (
    BudgetExhaustedError,
    CandidateError,
    CheckFailedError,
    EnvironmentNotReadyError,
    InvalidCandidateError,
    NothingLeftToProposeError,
    ProposalError,
    RunStoppedError,
)
from autoresearch.core.formats import write_by_rename
from autoresearch.core.history import History
from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow, ProposalRow, Run
from autoresearch.core.merge import ConflictError, merged
from autoresearch.core.progress import noting_curve
from autoresearch.core.proposers import Cost, FailedCandidate, OpenExperiment, Proposal, ProposalRequest, Proposer
from autoresearch.core.proposers.knobs import Knob
from autoresearch.core.store import Store
from autoresearch.core.workspace import PROGRAM_NAME, Layout, Settings

MAX_REPAIRS = 2
"""A candidate that crashes goes back to its proposer this often, then it counts as crashed."""

TREATMENT, CONTROL = "treatment", "control"
"""The two arms of an experiment: the candidate, and the incumbent measured again beside it."""

MAX_DISTURBED = 3
"""A measurement that something disturbed is taken this often, then the experiment ends without a verdict."""

PROPOSER_FAILED = "the proposer failed"
"""How the reason of a session begins that a failing proposer ended."""

BASELINE_FAILED = "The baseline cannot be measured"
"""How the reason of a session begins that ended at its baseline."""

BASELINE_HYPOTHESIS = "The artifact as found."


class Reporter(Protocol):
    """Hears what a run does; the command line draws it, the Python API stays silent."""

    def say(self, text: str) -> None:
        """One sentence to the person."""
        ...

    def phase(self, number: int, name: str) -> None:
        """A node begins."""
        ...

    def progress(self, share: float, text: str) -> None:
        """Long work inside a node or a preparation advances."""
        ...

    def experiment_ended(self, experiment: Experiment) -> None:
        """An experiment was recorded."""
        ...


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True


@dataclass(frozen=True)
class Services:
    """What the nodes of one session work with; comes in by LangGraph's runtime context, never by the state."""

    run: Run
    history: History
    session_id: int
    session_started: datetime
    ledger: Ledger
    store: Store
    layout: Layout
    adapter: Adapter | LiveAdapter
    proposer: Proposer
    policy: Policy
    settings: Settings
    sandbox: str
    reporter: Reporter
    now: Callable[[], datetime]
    watch: fingerprints.Watch
    judge: fingerprints.Judge  # as it was when the run began
    asleep: Callable[[], float]
    sleep: Callable[[float], bool] = _slept
    in_flight: dict[int, Experiment] = field(default_factory=dict)
    shown: set[tuple[int, int]] = field(default_factory=set)  # (number, repair) of tests begun in this session
    rulings: dict[int, lanes.Ruling] = field(default_factory=dict)  # of experiments in lanes, judged with their test
    budget_left: Callable[[], tuple[float | None, int | None]] = field(default=lambda: (None, None))


class State(TypedDict, total=False):
    """State of one experiment; everything in it is JSON."""

    number: int
    lane: str  # missing where the adapter offers none
    attempt: int  # of the proposal
    repair: int
    look: int
    arms: list[str]  # what this look has still to measure, in order
    disturbed: int  # how often the measurement at hand was disturbed
    route: str  # the next node
    outcome: str
    reason: str
    verdict: dict[str, Any]
    timings: dict[str, float]


class Node(Protocol):
    """A step of the graph: reads the state and the services, returns what changes in the state."""

    __name__: str

    def __call__(self, state: State, runtime: Runtime[Services]) -> State:
        """Do the step."""
        ...


def build_graph() -> StateGraph[State, Services, State, State]:
    """Return the uncompiled graph; compile it with a checkpointer and give it `Services` as context."""
    graph: StateGraph[State, Services, State, State] = StateGraph(State, context_schema=Services)
    for node in (propose, check, approve, observe, decide, keep, revert, record):
        graph.add_node(node.__name__, _timed(node))
    graph.add_edge(START, "propose")
    graph.add_conditional_edges("propose", _route, ["propose", "check"])
    graph.add_conditional_edges("check", _route, ["propose", "approve"])
    graph.add_conditional_edges("approve", _route, ["observe", "revert"])
    graph.add_conditional_edges("observe", _route, ["observe", "decide", "propose", "revert"])
    graph.add_conditional_edges("decide", _route, ["observe", "keep", "revert"])
    graph.add_edge("keep", "record")
    graph.add_edge("revert", "record")
    graph.add_edge("record", END)
    return graph


def _route(state: State) -> str:
    return state["route"]


def _timed(node: Node) -> Node:
    """Wrap a node so that it announces itself and adds its seconds to the timings."""

    def run_node(state: State, runtime: Runtime[Services]) -> State:
        runtime.context.reporter.phase(state["number"], node.__name__)
        began = time.monotonic()
        update = node(state, runtime)
        timings = dict(state.get("timings", {}))
        timings[node.__name__] = timings.get(node.__name__, 0.0) + time.monotonic() - began
        return {**update, "timings": timings}

    return run_node


# The nodes, in the order of an experiment.


def propose(state: State, runtime: Runtime[Services]) -> State:
    """Have one proposal written down: asked for once, read back ever after."""
    services, number, attempt = runtime.context, state["number"], state.get("attempt", 0)
    row = _proposal_row(services, number, attempt)
    if row is None:
        row = services.ledger.add_proposal(_ask(services, state))
    if row.status == "crashed":  # only where the checkpoints were lost: ask for the repair again
        return {"route": "propose", "attempt": attempt + 1, "repair": state.get("repair", 0) + 1}
    if row.status in ("failed", "refused") or row.lane != _lane(state):
        return {"route": "propose", "attempt": attempt + 1}
    return {"route": "check", "attempt": attempt}


def check(state: State, runtime: Runtime[Services]) -> State:
    """Refuse what cannot be measured before anything is spent; begin the experiment otherwise."""
    services, number = runtime.context, state["number"]
    row = _need_proposal(services, state)
    parent = services.store.read(_parent_commit(services, state), services.adapter.scope.editable)
    candidate = candidate_of(row, parent)
    if number > 0:
        reason = _refusal(services, state, parent, candidate)
        if reason is not None:
            services.ledger.update_proposal(row.id, status="refused", reason=reason)
            return {"route": "propose", "attempt": state["attempt"] + 1}
    _begin(services, state, row, parent, candidate)
    services.ledger.update_proposal(row.id, status="accepted")
    return {"route": "approve", "look": 0, "arms": [TREATMENT], "disturbed": 0}


def approve(state: State, runtime: Runtime[Services]) -> State:
    """Wait for a person where the run was told to; the driver resumes the graph with the answer."""
    if not runtime.context.settings.approve or state["number"] == 0:
        return {"route": "observe"}
    answer = interrupt({"number": state["number"]})
    if answer == "approve":
        return {"route": "observe"}
    return {"route": "revert", "outcome": Outcome.REVERTED.value, "reason": "rejected by a person"}


def observe(state: State, runtime: Runtime[Services]) -> State:
    """Take one measurement, of the candidate or of the incumbent beside it, and write it down."""
    services, arm, waiting = runtime.context, state["arms"][0], state["arms"][1:]
    experiment = _need_experiment(services, state["number"])
    if isinstance(services.adapter, LiveAdapter):
        return _observe_live(services, services.adapter, experiment, state)
    try:
        row = _measured_before(services, experiment, state, arm) or _measure(services, experiment, state, arm)
    except _SleptError as error:
        return _disturbed(state, str(error))
    except CandidateError as error:
        if arm == CONTROL:
            return _control_failed(state, error)
        return _crashed(services, state, experiment, error)
    if row.disturbed is None:
        return {"route": "observe" if waiting else "decide", "arms": waiting, "disturbed": 0}
    return _disturbed(state, row.disturbed)


def decide(state: State, runtime: Runtime[Services]) -> State:
    """Let the policy judge the evidence; the baseline is kept once it was measured often enough."""
    services, number, look = runtime.context, state["number"], state.get("look", 0)
    experiment = _need_experiment(services, number)
    if isinstance(services.adapter, LiveAdapter):
        return _decide_live(services, services.adapter, experiment, state)
    if number == 0:
        wanted = baseline_runs(services.settings, services.adapter.metric.noise)
        verdict = Verdict(Decision.KEEP if look + 1 >= wanted else Decision.CONTINUE, f"measured {look + 1} times")
    else:
        rows = services.ledger.measurements(experiment.id)
        known = services.history.evidence(services.adapter.metric, experiment, rows)
        verdict = _guarded(services, services.policy.decide(known), rows)
    if verdict.decision is Decision.CONTINUE:
        return {
            "route": "observe",
            "look": look + 1,
            "arms": list(verdict.measure),
            "verdict": _verdict_json(verdict),
        }
    kept = verdict.decision is Decision.KEEP
    outcome = Outcome.KEPT if kept else Outcome.INCONCLUSIVE if verdict.inconclusive else Outcome.REVERTED
    return {
        "route": "keep" if kept else "revert",
        "outcome": outcome.value,
        "reason": verdict.reason,
        "verdict": _verdict_json(verdict),
    }


def keep(state: State, runtime: Runtime[Services]) -> State:
    """Make the candidate the incumbent: one commit on the run's branch, outputs copied."""
    services = runtime.context
    experiment = _need_experiment(services, state["number"])
    if experiment.number == 0:
        commit = services.run.baseline_commit
    else:
        parent = incumbent_commit(services) if _lane(state) else experiment.parent_commit
        artifact = put_together(services, experiment, parent)
        message = kept_message(experiment, state, services)
        commit = services.store.commit(artifact, parent=parent, message=message, at=experiment.started)
        services.store.keep(services.run.id, commit, parent=parent)
    _hold(services, services.ledger.update_experiment(experiment.id, kept_commit=commit, candidate_commit=commit))
    if isinstance(services.adapter, KeepsOutputs):
        scratch = _scratch(services, state, TREATMENT, _last_look(services, experiment))
        if scratch.is_dir():
            services.adapter.keep_outputs(scratch, services.layout.incumbent)
    _finish_live(services, experiment, Outcome.KEPT)
    if _lane(state) and isinstance(services.adapter, OffersLanes):
        services.adapter.show_to_everybody(_folder_of(services, experiment.number, commit, "kept"))
    return {}


def revert(state: State, runtime: Runtime[Services]) -> State:
    """Leave the incumbent as it is; the candidate stays as a ref so that no idea is lost."""
    services = runtime.context
    experiment = _need_experiment(services, state["number"])
    if experiment.candidate_commit:
        services.store.reject(services.run.id, experiment.number, experiment.candidate_commit)
    _finish_live(services, experiment, Outcome(state["outcome"]))
    return {}


def record(state: State, runtime: Runtime[Services]) -> State:
    """Finish the experiment: one UPDATE, then the table, then the scratch folders go."""
    services = runtime.context
    experiment = _need_experiment(services, state["number"])
    services.ledger.finish_experiment(experiment.id, **_conclusion(services, experiment, state))
    services.in_flight.pop(experiment.number)
    tidy(services, experiment.number)
    return {}


# What the nodes are made of.


def tidy(services: Services, number: int) -> None:
    """Write the table anew and remove the scratch folders of a finished experiment; may be done again at any time."""
    write_by_rename(services.layout.results, services.history.refresh().table(services.adapter.metric.name))
    for scratch in services.layout.experiment(services.run.id, number).glob("scratch-*"):
        shutil.rmtree(scratch, ignore_errors=True)  # leftovers cost space, nothing else


def baseline_runs(settings: Settings, stated_noise: float | None) -> int:
    """Return how often the baseline is measured: replicates are the first thing known about the noise."""
    if settings.baseline_runs is not None:
        return max(1, settings.baseline_runs)
    return 3 if stated_noise is None else 2


def candidate_of(row: ProposalRow, parent: Artifact) -> Artifact:
    """Return the artifact that a written-down proposal leads to; a file of None is removed."""
    files = {**parent.files, **row.files}
    return Artifact({path: text for path, text in files.items() if text is not None})


def changed_files(parent: Artifact, candidate: Artifact) -> dict[str, str | None]:
    """Return path -> new text of every changed file, None for a removed one."""
    return {path: candidate.files.get(path) for path in parent.changed_paths(candidate)}


def kept_message(experiment: Experiment, state: State, services: Services) -> str:
    """Return the commit message of a kept step: hypothesis, effect and evidence."""
    verdict = state.get("verdict", {})
    metric = services.adapter.metric
    lines = [experiment.hypothesis, ""]
    value = _mean_value(services, experiment)
    if value is not None:
        effect = verdict.get("effect")
        gain = "" if effect is None else f", expected gain {effect:.4g} {metric.unit}"
        lines.append(f"{metric.name} {value:.6g}{gain}")
    lines += [state.get("reason", ""), "", f"Experiment {experiment.number} of run {experiment.run_id}"]
    lines.append(f"Category: {experiment.category}")
    return "\n".join(lines) + "\n"


def _proposal_row(services: Services, number: int, attempt: int) -> ProposalRow | None:
    rows = services.ledger.proposals(services.run.id, number)
    return next((row for row in rows if row.attempt == attempt), None)


def _need_proposal(services: Services, state: State) -> ProposalRow:
    row = _proposal_row(services, state["number"], state.get("attempt", 0))
    assert row is not None, "check runs only after propose wrote a proposal"
    return row


def _need_experiment(services: Services, number: int) -> Experiment:
    """Return the experiment in flight; read once per session and experiment, as nobody else writes to it."""
    row = services.in_flight.get(number) or services.ledger.experiment(services.run.id, number)
    assert row is not None, "check begins the experiment before any later node runs"
    _hold(services, row)
    return row


def _hold(services: Services, row: Experiment) -> None:
    services.in_flight[row.number] = row


def _lane(state: State) -> str:
    return state.get("lane", "")


def _parent_commit(services: Services, state: State) -> str:
    """Return what a candidate is built on: the incumbent, in a lane as it was when the experiment began."""
    begun = services.ledger.experiment(services.run.id, state["number"]) if _lane(state) else None
    return incumbent_commit(services) if begun is None else begun.parent_commit


def put_together(services: Services, experiment: Experiment, onto: str) -> Artifact:
    """Return the candidate on top of a commit: itself on its own parent, else its edit applied there.

    Raises:
        ConflictError: If what changed since the experiment began does not go together with the edit.
    """
    globs = services.adapter.scope.editable
    candidate = services.store.read(experiment.candidate_commit or "", globs)
    if onto == experiment.parent_commit or experiment.kept_commit is not None:  # the latter after a kill
        return candidate
    return merged(services.store.read(experiment.parent_commit, globs), candidate, services.store.read(onto, globs))


def incumbent_commit(services: Services) -> str:
    """Return the commit of the incumbent."""
    incumbent = memory.incumbent_of(services.history.experiments)
    return (incumbent.kept_commit if incumbent else None) or services.run.baseline_commit


def _incumbent_artifact(services: Services) -> Artifact:
    return services.store.read(incumbent_commit(services), services.adapter.scope.editable)


def _ask(services: Services, state: State) -> ProposalRow:
    """Return the row of one answer of the proposer, a failed one included."""
    number, attempt = state["number"], state.get("attempt", 0)
    parent = _incumbent_artifact(services)
    if (again := _repeated(services, state, parent)) is not None:
        return again
    if number == 0:
        proposal = Proposal(BASELINE_HYPOTHESIS, "baseline", parent)
        return _row_of(services, state, proposal, parent, proposer="none")
    _stop_when_hopeless(services)
    try:
        proposal = services.proposer.propose(request_for(services, state))
        _demand_text(proposal)
    except ProposalError as error:
        row = _failed_row(services, number, attempt, error, lane=_lane(state))
        if isinstance(error, NothingLeftToProposeError | BudgetExhaustedError):
            if _lane(state):
                raise  # another lane may go on, so nothing has failed; such an answer costs nothing
            services.ledger.add_proposal(row)
            raise RunStoppedError(str(error)) from error
        return row
    return _row_of(services, state, proposal, parent, proposer=services.proposer.name)


def _repeated(services: Services, state: State, parent: Artifact) -> ProposalRow | None:
    """Return the proposal of an edit that won on an earlier incumbent; None where its lane has none."""
    if not _lane(state):
        return None
    run = services.run.id
    waiting = lanes.to_repeat(services.history.experiments, services.ledger.proposals(run), _lane(state))
    if not waiting:
        return None
    row, problem, artifact = waiting[0], "", parent
    try:
        artifact = put_together(services, row, incumbent_commit(services))
    except ConflictError as error:
        problem = f"The edit of experiment {row.number} cannot be tested on the new incumbent: {error}."
    proposal = Proposal(
        lanes.repeated_hypothesis(row),
        row.category,
        artifact,
        memory.changes_from_json(row.changes),
        details={**row.details, lanes.AGAIN: row.number},
    )
    found = _row_of(services, state, proposal, parent, proposer=row.proposer)
    if problem:
        found.status, found.reason = "refused", problem
    return found


def _refusal(services: Services, state: State, parent: Artifact, candidate: Artifact) -> str | None:
    """Return why a candidate is not measured; in a lane also what is before people already, or belongs elsewhere."""
    adapter, lane = services.adapter, _lane(state)
    tried = services.ledger.tried_fingerprints(services.run.id)
    if lane:
        tried |= {row.fingerprint for row in _beside(services, state)}
    reason = refusal(parent, candidate, adapter.scope, tried, adapter)
    if reason is None and lane and isinstance(adapter, OffersLanes):
        return adapter.belongs(lane, parent, candidate)
    return reason


def _beside(services: Services, state: State) -> list[Experiment]:
    """Return the other experiments that have begun and not ended."""
    return [row for row in services.ledger.unfinished(services.run.id) if row.number != state["number"]]


def _demand_text(proposal: Proposal) -> None:
    """Refuse half characters (lone surrogates), which a model's answer may hold and no file or table can."""
    try:
        "".join([proposal.hypothesis, proposal.category, *proposal.artifact.files.values()]).encode()
    except UnicodeEncodeError as error:
        raise ProposalError("The proposal holds half a character, which is no text.", cost=proposal.cost) from error


def _stop_when_hopeless(services: Services) -> None:
    """End the session after ten failures in a row; wait a little longer after each failed call before the next."""
    rows = services.ledger.recent_proposals(services.run.id, memory.MAX_FAILED_PROPOSALS)
    failures = memory.failures_in_a_row(rows, services.session_started)
    if failures >= memory.MAX_FAILED_PROPOSALS:
        last = rows[-1].reason
        raise RunStoppedError(f"{PROPOSER_FAILED} {failures} times in a row; the last time: {last}", fault=True)
    if failures and rows[-1].status == "failed" and rows[-1].seconds > 0:
        services.sleep(min(60.0, 2.0 ** (failures - 1)))


def request_for(services: Services, state: State) -> ProposalRequest:
    """Return all that the proposer may know."""
    known = services.history
    parent = _incumbent_artifact(services)
    history = known.past()
    adapter, metric = services.adapter, services.adapter.metric
    baseline = services.store.read(services.run.baseline_commit, adapter.scope.editable)
    usd_left, tokens_left = services.budget_left()
    # The first attempt has nothing behind it.
    mine = services.ledger.proposals(services.run.id, state["number"]) if state.get("attempt", 0) else []
    mine = [row for row in mine if row.lane == _lane(state) and lanes.AGAIN not in row.details]
    return ProposalRequest(
        number=state["number"],
        artifact=parent,
        baseline=baseline,
        scope=adapter.scope,
        metric=metric,
        readonly=Artifact.read(services.layout.root, adapter.scope.readonly).files,
        incumbent_value=known.belief(services.policy, metric).value,
        program=_read_program(services.layout),
        brief=adapter.brief() if isinstance(adapter, OffersBrief) else "",
        notes=tuple(services.ledger.notes(services.run.id)),
        history=history,
        refused=tuple(row.reason for row in mine if row.status in ("failed", "refused")),
        failed=_failed_candidate(mine, parent) if state.get("repair", 0) else None,
        avoid_categories=memory.plateaued(history),
        knobs=_knobs(adapter, _lane(state), parent),
        usd_left=usd_left,
        tokens_left=tokens_left,
        seed=services.settings.seed or 0,
        id="/".join(
            [services.run.id, str(state["number"]), str(state.get("attempt", 0)), *filter(None, [_lane(state)])]
        ),
        lane=adapter.lane_brief(_lane(state)) if _lane(state) and isinstance(adapter, OffersLanes) else "",
        beside=tuple(_open(row) for row in _beside(services, state)) if _lane(state) else (),
    )


def _knobs(adapter: Adapter | LiveAdapter, lane: str, artifact: Artifact) -> Sequence[Knob]:
    if lane and isinstance(adapter, OffersLanes):
        return adapter.lane_knobs(lane, artifact)
    return adapter.knobs(artifact) if isinstance(adapter, OffersKnobs) else ()


def _open(row: Experiment) -> OpenExperiment:
    return OpenExperiment(row.number, row.hypothesis, row.diff, row.fingerprint, memory.changes_from_json(row.changes))


def _read_program(layout: Layout) -> str:
    path = layout.root / PROGRAM_NAME
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _failed_candidate(rows: list[ProposalRow], parent: Artifact) -> FailedCandidate | None:
    """Return the newest candidate of this experiment that crashed."""
    crashed = [row for row in rows if row.status == "crashed"]
    if not crashed:
        return None
    row = crashed[-1]
    proposal = Proposal(
        hypothesis=row.hypothesis,
        category=row.category,
        artifact=candidate_of(row, parent),
        changes=memory.changes_from_json(row.changes),
        details=row.details,
    )
    return FailedCandidate(proposal, row.reason, row.log_tail)


def _row_of(services: Services, state: State, proposal: Proposal, parent: Artifact, *, proposer: str) -> ProposalRow:
    return ProposalRow(
        run_id=services.run.id,
        number=state["number"],
        attempt=state.get("attempt", 0),
        lane=_lane(state),
        status="open",
        hypothesis=proposal.hypothesis,
        category=proposal.category,
        files=changed_files(parent, proposal.artifact),
        fingerprint=proposal.artifact.fingerprint,
        changes=[{"knob": c.knob, "old": c.old, "new": c.new} for c in proposal.changes],
        details=dict(proposal.details),
        proposer=proposer,
        created=services.now(),
        **_cost_fields(proposal.cost),
    )


def _failed_row(services: Services, number: int, attempt: int, error: ProposalError, *, lane: str) -> ProposalRow:
    return ProposalRow(
        run_id=services.run.id,
        number=number,
        attempt=attempt,
        lane=lane,
        status="failed",
        reason=str(error),
        proposer=services.proposer.name,
        created=services.now(),
        **_cost_fields(error.cost or Cost()),
    )


def _cost_fields(cost: Cost) -> dict[str, Any]:
    return {
        "usd": cost.usd,
        "tokens_in": cost.tokens_in,
        "tokens_cached": cost.tokens_cached,
        "tokens_out": cost.tokens_out,
        "seconds": cost.seconds,
        "model": cost.model,
    }


def _begin(services: Services, state: State, row: ProposalRow, parent: Artifact, candidate: Artifact) -> None:
    """Insert the experiment once, or point it at its repaired candidate; lay the candidate out for measuring."""
    fingerprints.demand_same(services.run.id, services.judge, services.watch.look())
    incumbent = memory.incumbent_of(services.history.experiments)
    parent_commit = _parent_commit(services, state)
    commit = services.run.baseline_commit
    if row.number > 0:
        commit = services.store.commit(candidate, parent=parent_commit, message=row.hypothesis, at=row.created)
    fields: dict[str, Any] = {
        "proposal_id": row.id,
        "hypothesis": row.hypothesis,
        "category": row.category,
        "proposer": row.proposer,
        "fingerprint": candidate.fingerprint,
        "candidate_commit": commit,
        "diff": parent.diff(candidate),
        "changes": row.changes,
        "details": row.details,
        "repairs": state.get("repair", 0),
    }
    begun = services.ledger.begin_experiment(
        Experiment(
            run_id=services.run.id,
            number=row.number,
            session_id=services.session_id,
            parent_number=incumbent.number if incumbent else None,
            parent_commit=parent_commit,
            started=row.created,
            sandbox=services.sandbox,
            lane=_lane(state),
            family=0 if _lane(state) else 1,
            reach=lanes.reach_of(services.adapter, _lane(state)),
            evaluator_fingerprint=services.judge.evaluator,
            fingerprints=_fingerprints_before(services, row.number),
            **fields,
        )
    )
    if begun.fingerprint != candidate.fingerprint:  # it began with a candidate that crashed
        begun = services.ledger.update_experiment(begun.id, **fields)
    _hold(services, begun)
    folder = _artifact_folder(services, state)
    shutil.rmtree(folder, ignore_errors=True)
    candidate.write(folder)


READONLY_FILES = "readonly_files"
"""Where the baseline keeps path -> hash of the files that never change, so that a later session knows them."""


def _fingerprints_before(services: Services, number: int) -> dict[str, Any]:
    before: dict[str, Any] = dict(services.judge.as_json("before"))
    return before if number > 0 else {**before, READONLY_FILES: dict(services.judge.readonly)}


def _fingerprints_after(services: Services, experiment: Experiment, state: State) -> dict[str, Any]:
    after = services.watch.look().as_json("after")
    artifact = _artifact_now(services, experiment, _artifact_folder(services, state))
    found = {} if artifact is None else {"artifact_after": artifact.fingerprint}
    return {**experiment.fingerprints, **after, **found}


def _artifact_now(services: Services, experiment: Experiment, folder: Path) -> Artifact | None:
    """Return what the files of a candidate hold now; None where one is gone or no text any more."""
    return fingerprints.artifact_in(folder, services.store.paths(experiment.candidate_commit or ""))


def _artifact_folder(services: Services, state: State) -> Path:
    return services.layout.experiment(services.run.id, state["number"]) / f"artifact-{state.get('repair', 0)}"


def _laid_out(services: Services, experiment: Experiment, state: State, arm: str) -> Path:
    """Return the folder with the artifact of an arm; the incumbent's is made when it is first wanted."""
    if arm == TREATMENT:
        return _artifact_folder(services, state)
    return _folder_of(services, experiment.number, experiment.parent_commit, "incumbent")


def _folder_of(services: Services, number: int, commit: str, name: str) -> Path:
    """Lay out the artifact of a commit in a folder of an experiment."""
    folder = services.layout.experiment(services.run.id, number) / name
    shutil.rmtree(folder, ignore_errors=True)  # a kill may have left half of it
    services.store.read(commit, services.adapter.scope.editable).write(folder)
    return folder


def begin_together(services: Services, experiments: Sequence[Experiment]) -> None:
    """Show the treatments of one test beside one control: what they are built on, laid out for the first of them."""
    assert isinstance(services.adapter, OffersLanes), "only such an adapter has lanes"
    services.ledger.begin_test([row.id for row in experiments])
    begun = [services.ledger.experiment(row.run_id, row.number) or row for row in experiments]
    for row in begun:
        _hold(services, row)
    # The folder stays the same when the first of them has ended.
    first = min([*begun, *lanes.begun_with(services.history.experiments, begun[0])], key=lambda row: row.number)
    control = _folder_of(services, first.number, begun[0].parent_commit, "incumbent")
    arms = [(row, _artifact_folder(services, {"number": row.number})) for row in begun]
    live.begin_together(services.adapter, arms, control)


def _scratch(services: Services, state: State, arm: str, look: int) -> Path:
    name = f"scratch-{state.get('repair', 0)}-{look}-{arm}"
    return services.layout.experiment(services.run.id, state["number"]) / name


def _last_look(services: Services, experiment: Experiment) -> int:
    """Return the last look at which the candidate was measured; the last of all may be at the incumbent alone."""
    rows = memory.undisturbed(services.ledger.measurements(experiment.id))
    return max(row.look for row in rows if row.arm == TREATMENT)


def _measured_before(services: Services, experiment: Experiment, state: State, arm: str) -> MeasurementRow | None:
    """Return the measurement that an earlier run of this node already wrote."""
    wanted = (arm, state.get("repair", 0), state.get("look", 0), state.get("disturbed", 0))
    for row in services.ledger.measurements(experiment.id):
        if (row.arm, row.repair, row.look, row.attempt) == wanted:
            return row
    return None


def _measure(services: Services, experiment: Experiment, state: State, arm: str) -> MeasurementRow:
    """Measure one arm once and write it down."""
    scratch = _scratch(services, state, arm, state.get("look", 0))
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    folder = services.layout.experiment(services.run.id, experiment.number)
    context = RunContext(
        log=folder / ("run.log" if arm == TREATMENT else "incumbent.log"),
        scratch=scratch,
        budget_seconds=services.settings.budget_seconds,
        device=services.settings.device,
        sandbox=services.sandbox,
        progress=services.reporter.progress,
    )
    seed = _seed(services, experiment, state, arm)
    if arm == TREATMENT and state.get("look", 0) == 0 and experiment.number > 0 and services.settings.early_stop:
        context = replace(context, hopeless=watching(_early_rule(services), seed))
    context = noting_curve(services.reporter, context)
    started = services.now()
    measurement = _measurement(services, experiment, _laid_out(services, experiment, state, arm), arm, seed, context)
    if not math.isfinite(measurement.value):
        raise CandidateError(f"{services.adapter.metric.name} is {measurement.value}, which is no measurement.")
    row = services.ledger.add_measurement(_measurement_row(experiment, state, arm, measurement, started))
    if arm == TREATMENT:
        write_by_rename(folder / "result.json", row.model_dump_json(indent=1))
    return row


class _SleptError(Exception):
    """The machine was asleep while a candidate failed, which proves nothing: a limit may have run out meanwhile."""


def _measurement(
    services: Services, experiment: Experiment, folder: Path, arm: str, seed: int, context: RunContext
) -> Measurement:
    """Measure; neither what judges nor what is judged may change meanwhile, nor the machine sleep."""
    assert isinstance(services.adapter, Adapter), "a live adapter's metric is observed"
    asleep = services.asleep()
    try:
        measurement = services.adapter.measure(folder, seed=seed, split=Split.SEARCH, run=context)
    except CandidateError as error:
        fingerprints.demand_same(services.run.id, services.judge, services.watch.look())
        nap = moments.slept(asleep, services.asleep())
        if nap is not None:
            raise _SleptError(nap) from error
        raise
    fingerprints.demand_same(services.run.id, services.judge, services.watch.look())
    if arm == TREATMENT:
        found = _artifact_now(services, experiment, folder)
        if found is None or found.fingerprint != experiment.fingerprint:
            raise InvalidCandidateError("The candidate's own files changed while it was measured.")
    nap = moments.slept(asleep, services.asleep())
    return measurement if nap is None else replace(measurement, disturbed=measurement.disturbed or nap)


def _disturbed(state: State, why: str) -> State:
    """Take a measurement again that something disturbed; give up without a verdict after a few."""
    disturbed = state.get("disturbed", 0) + 1
    if disturbed < MAX_DISTURBED:
        return {"route": "observe", "disturbed": disturbed}
    reason = f"every measurement was disturbed: {why}"
    return {"route": "revert", "outcome": Outcome.INCONCLUSIVE.value, "reason": reason}


def _early_rule(services: Services) -> EarlyRule:
    """Return what judges the curve of a candidate's first measurement; a later one was asked for and is never cut."""
    known = services.history
    return memory.early_rule(services.adapter.metric, known.experiments, known.measurements, known.calibration)


def _seed(services: Services, experiment: Experiment, state: State, arm: str) -> int:
    """Return the seed of an arm's next measurement.

    Every artifact meets the same seeds in the same order, and the incumbent measured beside a candidate meets them
    again: common random numbers make differences steadier.
    """
    rows = memory.undisturbed(services.ledger.measurements(experiment.id))
    repair, look = state.get("repair", 0), state.get("look", 0)
    done = sum(row.arm == arm and row.repair == repair and row.look < look for row in rows)
    return (services.settings.seed or 0) + done


def _measurement_row(
    experiment: Experiment, state: State, arm: str, measurement: Measurement, started: datetime
) -> MeasurementRow:
    return MeasurementRow(
        experiment_id=experiment.id,
        arm=arm,
        repair=state.get("repair", 0),
        look=state.get("look", 0),
        attempt=state.get("disturbed", 0),
        seed=measurement.seed,
        split=Split.SEARCH.value,
        value=measurement.value,
        secondary=dict(measurement.secondary),
        curve=[list(point) for point in measurement.curve],
        seconds=measurement.seconds,
        disturbed=measurement.disturbed,
        started=started,
    )


def _observe_live(services: Services, adapter: LiveAdapter, experiment: Experiment, state: State) -> State:
    """Show both arms and wait for the next look; the artifact as found is shown already, and to everybody."""
    look = state.get("look", 0)
    if _lane(state):
        # `rounds` has shown the test and waited, once for all experiments.
        ruling = services.rulings.pop(experiment.number, None)
        if ruling is not None:
            return _judged_live(state, *ruling)
        live.take_look(adapter, services.ledger, experiment, look, services.now)
    elif experiment.number > 0:
        try:
            _show_both(services, adapter, experiment, state)
        except CandidateError as error:
            return _crashed(services, state, experiment, error)
        live.next_look(
            adapter,
            services.ledger,
            experiment,
            look,
            now=services.now,
            sleep=services.sleep,
            say=services.reporter.say,
        )
    return {"route": "decide"}


def _show_both(services: Services, adapter: LiveAdapter, experiment: Experiment, state: State) -> None:
    """Begin the test, or take it up again: once per session and candidate, however many looks it takes."""
    this = (experiment.number, state.get("repair", 0))
    if this not in services.shown:
        control = _laid_out(services, experiment, state, CONTROL)
        live.begin(adapter, experiment, control, _artifact_folder(services, state))
        services.shown.add(this)


def _decide_live(services: Services, adapter: LiveAdapter, experiment: Experiment, state: State) -> State:
    """Let the gates and the policy judge a live test; the artifact as found is what everything starts from."""
    if experiment.number == 0:
        return {"route": "keep", "outcome": Outcome.KEPT.value, "reason": "shown to everybody", "verdict": {}}
    looks = live.looks_of(services.ledger.live_looks(experiment.id))
    ruling = services.rulings.pop(experiment.number, None)
    verdict, outcome = ruling or live.judge(adapter, services.policy, experiment, looks)
    if verdict.decision is Decision.CONTINUE:
        services.reporter.progress(*live.progress(adapter, experiment, verdict.reason))
    return _judged_live(state, verdict, outcome)


def _judged_live(state: State, verdict: Verdict, outcome: Outcome) -> State:
    """Return what follows from a verdict on a live test."""
    if verdict.decision is Decision.CONTINUE:
        look = state.get("look", 0) + 1
        return {"route": "observe", "look": look, "arms": [TREATMENT], "verdict": _verdict_json(verdict)}
    return {
        "route": "keep" if outcome is Outcome.KEPT else "revert",
        "outcome": outcome.value,
        "reason": verdict.reason,
        "verdict": _verdict_json(verdict),
    }


def _finish_live(services: Services, experiment: Experiment, outcome: Outcome) -> None:
    if isinstance(services.adapter, LiveAdapter) and experiment.number > 0:
        live.finish(services.adapter, experiment, outcome)


def _control_failed(state: State, error: CandidateError) -> State:
    """Try the incumbent again when it fails beside a candidate; it was measured before, so the machine is suspect."""
    failed = state.get("disturbed", 0) + 1
    if failed < MAX_DISTURBED:
        return {"route": "observe", "disturbed": failed}
    raise EnvironmentNotReadyError(
        f"The incumbent was measured before, and now it fails {failed} times in a row: {error}\n"
        "Something about this machine changed. Nothing is booked on the candidate; see that the machine is well and "
        "run again."
    ) from error


def _crashed(services: Services, state: State, experiment: Experiment, error: CandidateError) -> State:
    """Send a crash back to the proposer, at most twice; end the experiment otherwise."""
    if state["number"] == 0:
        raise RunStoppedError(
            f"{BASELINE_FAILED}: {error}\n"
            "See what it printed with autoresearch show 0 --log. Repair the artifact, or what measures it, then begin "
            "again: autoresearch run --new",
            fault=True,
        ) from error
    _hold(services, services.ledger.update_experiment(experiment.id, log_tail=error.log_tail))
    if isinstance(error, InvalidCandidateError):
        return {"route": "revert", "outcome": Outcome.INVALID.value, "reason": str(error), "verdict": {}}
    if error.early or isinstance(error, CheckFailedError):
        why = "early" if error.early else "check failed"
        return {"route": "revert", "outcome": Outcome.REVERTED.value, "reason": f"{why}: {error}", "verdict": {}}
    repair = state.get("repair", 0)
    row = _need_proposal(services, state)
    services.ledger.update_proposal(row.id, status="crashed", reason=str(error), log_tail=error.log_tail)
    if repair >= MAX_REPAIRS:
        return {"route": "revert", "outcome": Outcome.CRASHED.value, "reason": str(error), "verdict": {}}
    return {"route": "propose", "attempt": state["attempt"] + 1, "repair": repair + 1}


def _guarded(services: Services, verdict: Verdict, rows: Sequence[MeasurementRow]) -> Verdict:
    """Refuse to keep what makes a guarded number worse than the baseline's by more than it may be."""
    if not isinstance(services.adapter, OffersGuards):
        return verdict
    baseline, candidate = (
        [row.secondary for row in memory.undisturbed(of) if row.arm == TREATMENT]
        for of in (services.history.measurements[services.history.experiments[0].id], rows)
    )
    return guards.held(verdict, services.adapter.guards, baseline, candidate)


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    low, high = verdict.interval or (None, None)
    return {
        "effect": verdict.effect,
        "effect_low": low,
        "effect_high": high,
        "p_better": verdict.p_better,
        "e_win": verdict.e_win,
        "e_lose": verdict.e_lose,
    }


def _mean_value(services: Services, experiment: Experiment) -> float | None:
    if isinstance(services.adapter, LiveAdapter):
        return live.value_of(live.looks_of(services.ledger.live_looks(experiment.id)))
    rows = services.ledger.measurements(experiment.id)
    values = [row.value for row in memory.undisturbed(rows) if row.arm == TREATMENT]
    return sum(values) / len(values) if values else None


def _conclusion(services: Services, experiment: Experiment, state: State) -> dict[str, Any]:
    """Return the fields that finish an experiment."""
    ended = services.now()
    proposals = services.ledger.proposals(services.run.id, experiment.number)
    measured = state["outcome"] not in (Outcome.CRASHED.value, Outcome.INVALID.value)
    return {
        "outcome": state["outcome"],
        "reason": state["reason"],
        "value": _mean_value(services, experiment) if measured else None,
        "usd": sum(row.usd for row in proposals),
        "tokens": sum(row.tokens_in + row.tokens_cached + row.tokens_out for row in proposals),
        "seconds": max(0.0, (ended - experiment.started).total_seconds()),
        "timings": state.get("timings", {}),
        "fingerprints": _fingerprints_after(services, experiment, state),
        "ended": ended,
        **state.get("verdict", {}),
    }
