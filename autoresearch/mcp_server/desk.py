"""What each tool does, without the protocol: every call opens the workspace anew and leaves nothing open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autoresearch.core import lock, memory, steering
from autoresearch.core.adapter import Scope
from autoresearch.core.artifact import Artifact
from autoresearch.core.errors import UsageError
from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow, ProposalRow, Run
from autoresearch.core.progress import read_progress
from autoresearch.core.proposers.exchange import Answer, Asked, Exchange, Request, candidate_of
from autoresearch.core.proposers.redact import Redactor, clean, ending, one_line
from autoresearch.core.readmodel import status_of
from autoresearch.core.workspace import Layout, find_workspace
from autoresearch.mcp_server.launch import Child, Order, launch
from autoresearch.mcp_server.models import (
    FailedProposal,
    Logged,
    LoggedExperiment,
    MeasurementShown,
    NextRequest,
    Proposed,
    Shown,
    Started,
    Status,
    Told,
)

__all__ = ["Desk"]

AUTHOR = "coding agent"
"""Who sends what the tools send, as the ledger names it."""

_LINE = 500
_DIFF = 20_000
_LOG = 8_000
_READ_OF_A_LOG = 4 * _LOG  # bytes; what is taken away as control characters still leaves enough
_MOST_FAILED = 20
_PHASES = {
    "propose": "is being begun",
    "check": "is being checked",
    "approve": "waits for a person's approval",
    "observe": "is being measured",
    "decide": "is being judged",
}
_CAME_TO_NOTHING = ("failed", "refused", "crashed")


@dataclass(frozen=True, slots=True)
class _Place:
    layout: Layout
    ledger: Ledger
    run: Run

    @property
    def at_work(self) -> bool:
        """Whether a process works on this very run."""
        return steering.at_work(self.layout, self.ledger, self.run)

    @property
    def exchange(self) -> Exchange:
        return Exchange(self.layout.agent)


class Desk:
    """Serves one workspace.

    Args:
        workspace: The folder that was given; None: found from `cwd`, as every command does.
        cwd: Where the server was begun.
    """

    def __init__(self, workspace: Path | None, cwd: Path) -> None:
        self._given = workspace
        self._cwd = cwd
        self._adapter: str | None = None
        self._child: Child | None = None
        self._redact = Redactor(os.environ)

    def shown(self, text: str) -> str:
        """Return a message as an agent may see it: it can quote a file with a secret, or what a candidate printed."""
        return self._text(text, _LOG)

    # Beginning

    def begin(self, order: Order) -> Started | None:
        """Begin or take up a run; an answer where one is at work already, else None: ask `begun` until it has one."""
        if self._preparing():
            return self.preparing()
        layout = self._layout(order.adapter)
        if layout is not None and lock.is_held(layout):
            return self._already(layout)
        workspace = self._given
        if workspace is None and order.adapter == "command":
            workspace = self._cwd  # a checkout is improved where it is, as on the command line
        self._adapter = order.adapter or self._adapter
        if self._child is not None:
            self._child.forget()
        self._child = launch(order, workspace=workspace, cwd=self._cwd)
        return None

    def begun(self) -> Started | None:
        """Return what became of the run that was begun last; None while it is being prepared.

        Raises:
            UsageError: If it ended before it began; with what it said.
        """
        child = self._child
        assert child is not None, "begin launches before begun is asked"
        code = child.ended()
        layout = self._layout(None)
        if layout is not None and layout.ledger.is_file():
            with Ledger.open(layout.ledger) as ledger:
                run = ledger.latest_run()
                sessions = [] if run is None else ledger.sessions(run.id)
                if run is not None and sessions and sessions[-1].pid == child.pid:
                    return self._begun(_Place(layout, ledger, run), over=code is not None)
        if code is not None:
            said = self._text(child.complaint(), _LOG) or f"its process ended with code {code} and said nothing"
            raise UsageError(f"The run did not begin: {said}")
        return None

    def preparing(self) -> Started:
        """Return the answer to a start whose run takes long to prepare."""
        said = "It is being prepared (data, tokenizer); ask next_request or status until it runs."
        return Started(state="preparing", run=None, workspace=None, said=said)

    def _begun(self, place: _Place, *, over: bool) -> Started:
        run = place.run
        if over:
            said = f"Run {run.id} ended: {self._line(run.stop_reason or 'its process was killed')}"
        else:
            said = f"Run {run.id} is at work. Where its proposals come from you, call next_request now."
        state: Literal["stopped", "running"] = "stopped" if over else "running"
        return Started(state=state, run=run.id, workspace=str(place.layout.root), said=said)

    def _already(self, layout: Layout) -> Started:
        with self._opened() as place:
            return Started(
                state="paused" if place.run.state == "paused" else "running",
                run=place.run.id,
                workspace=str(layout.root),
                said=f"Run {place.run.id} is at work already, as it was begun; nothing was started or changed.",
            )

    # Looking

    def status(self) -> Status:
        """Return the run in figures."""
        with self._opened() as place:
            run, ledger = place.run, place.ledger
            metric = memory.metric_from_json(run.metric)
            in_flight = ledger.in_flight(run.id)
            hidden = _proposed_here(place)
            figures = status_of(ledger, run, at_work=place.at_work).as_json()
            figures |= {"stop_reason": self._line(run.stop_reason) if run.stop_reason else None}
            figures |= {"confirmed_gain": None} if hidden else {}
            return Status(
                **{name: value for name, value in figures.items() if name in Status.model_fields and name != "policy"},
                policy=run.policy,
                proposer=run.proposer,
                metric=metric.name,
                unit=metric.unit,
                direction=metric.direction.value,
                confirmed_hidden=hidden,
                in_flight=None if in_flight is None else in_flight.number,
            )

    def log(self, last: int) -> Logged:
        """Return the latest finished experiments."""
        with self._opened() as place:
            done = [row for row in place.ledger.experiments(place.run.id) if row.outcome is not None]
            shown = done[-last:] if last > 0 else []
            failed = [row for row in place.ledger.proposals(place.run.id) if row.status in _CAME_TO_NOTHING]
            return Logged(
                run=place.run.id,
                experiments=[self._logged(row) for row in shown],
                left_out=len(done) - len(shown),
                failed_proposals=[self._failed(row) for row in failed[-_MOST_FAILED:]],
            )

    def show(self, which: str, *, diff: bool, log: bool) -> Shown:
        """Return one experiment: a number, `best` or `baseline`."""
        with self._opened() as place:
            row = _chosen(place, which)
            measurements = place.ledger.measurements(row.id)
            return Shown(
                run=row.run_id,
                number=row.number,
                outcome=row.outcome,
                hypothesis=self._line(row.hypothesis),
                category=self._line(row.category),
                reason=self._line(row.reason),
                proposer=row.proposer,
                parent_number=row.parent_number,
                value=row.value,
                effect=row.effect,
                effect_low=row.effect_low,
                effect_high=row.effect_high,
                p_better=row.p_better,
                e_win=row.e_win,
                e_lose=row.e_lose,
                repairs=row.repairs,
                usd=row.usd,
                seconds=row.seconds,
                commit=row.kept_commit or row.candidate_commit,
                measurements=[_measured(measurement) for measurement in measurements],
                diff=self._text(row.diff, _DIFF) if diff else "",
                log=self._text(_log_of(place.layout, row), _LOG) if log else "",
            )

    # Proposing

    def is_busy(self) -> bool:
        """Say whether `next_request` would only ask for patience; may be asked often, as it costs little."""
        if self._preparing():
            return True
        with self._opened() as place:
            return self._situation(place, self._open_request(place))[0] == "busy"

    def next_request(self, have_material: str = "", seen_up_to: int = 0) -> NextRequest:
        """Return what the loop wants now, without waiting for it.

        Args:
            have_material: `material` of a request whose files the agent still has: they are left out.
            seen_up_to: Number of the last experiment that it has seen in a history: earlier ones are left out, too.
        """
        if self._preparing():
            return NextRequest(state="preparing", said=self.preparing().said, request=None, last=None)
        with self._opened() as place:
            asked = self._open_request(place)
            state, said = self._situation(place, asked)
            done = [row for row in place.ledger.experiments(place.run.id) if row.outcome is not None]
            return NextRequest(
                state=state,
                said=said,
                request=None
                if asked is None or state != "asked"
                else self._shown_request(asked, place, have_material, seen_up_to),
                last=self._logged(max(done, key=lambda row: row.number)) if done else None,
            )

    def propose(self, answer: Answer) -> Proposed:
        """Check an answer as far as that goes without measuring, and leave it for the loop.

        Raises:
            ProposalError: If it cannot be taken; the request stays open.
            UsageError: If the request is not the open one, or was answered before.
        """
        with self._opened() as place:
            asked = place.exchange.pending()
            if asked is None or asked.seen.request != answer.request:
                now = "nothing is asked for" if asked is None else f"it is {asked.seen.request}"
                raise UsageError(
                    f"{answer.request[:200]!r} is not the open request; {now}.\n"
                    "Call next_request and answer the request that it returns."
                )
            artifact = Artifact(asked.artifact)
            candidate = candidate_of(answer, artifact, Scope(tuple(asked.editable)), asked.seen.categories)
            if not place.exchange.answer(answer):
                raise UsageError(
                    f"Request {answer.request} was answered before, and that answer stands.\n"
                    "Call next_request for what comes of it."
                )
            return Proposed(
                request=answer.request,
                number=asked.seen.number,
                changed=list(artifact.changed_paths(candidate)),
                diff=self._text(artifact.diff(candidate), _DIFF),
                said="The loop checks, measures and judges it now; next_request says what came of it."
                if place.at_work
                else "It is kept for the run, which is not at work; call start, and it goes on with it.",
            )

    # Steering

    def send(self, command: str, argument: str = "") -> Told:
        """Send a word to the run at work, or a note to one that may go on later.

        Raises:
            UsageError: If nobody is there to obey, the experiment waits for no answer, or who proposed it would
                approve it.
        """
        if command == "stop" and self._preparing():
            assert self._child is not None
            self._child.terminate()
            return Told(run=None, said="The run that was being prepared ends; nothing was measured.")
        with self._opened() as place:
            if command == "approve":
                _refuse_own(place, argument)
            said = steering.steer(place.layout, place.ledger, place.run, command, AUTHOR, argument)
            return Told(run=place.run.id, said=said)

    # Inside

    def _layout(self, adapter: str | None) -> Layout | None:
        return find_workspace(self._given, cwd=self._cwd, adapter=adapter or self._adapter)

    def _preparing(self) -> bool:
        return self._child is not None and self._child.ended() is None and self.begun() is None

    @contextmanager
    def _opened(self) -> Iterator[_Place]:
        layout = self._layout(None)
        if layout is None or not layout.ledger.is_file():
            where = self._cwd if layout is None else layout.root
            raise UsageError(f"No run has begun in {where} yet.\nBegin one: call start, with an adapter.")
        with Ledger.open(layout.ledger) as ledger:
            run = ledger.latest_run()
            if run is None:
                raise UsageError(f"No run has begun in {layout.root} yet.\nBegin one: call start.")
            yield _Place(layout, ledger, run)

    def _open_request(self, place: _Place) -> Asked | None:
        """Return what the run at work waits for; an answered request is none."""
        if not place.at_work:
            return None
        asked = place.exchange.pending()
        if asked is None or place.exchange.answer_to(asked.seen.request) is not None:
            return None
        return asked

    def _situation(
        self, place: _Place, asked: Asked | None
    ) -> tuple[Literal["asked", "busy", "paused", "stopped"], str]:
        run = place.run
        if not place.at_work:
            why = run.stop_reason if run.state == "stopped" else "its process ended without a word"
            return "stopped", f"Run {run.id} is not at work: {self._line(why or 'stopped')}. Go on with it: call start."
        if run.state == "paused":
            return "paused", f"Run {run.id} is paused; it goes on after resume."
        waiting = {message.command for message in place.ledger.pending(run.id)}
        if "stop" in waiting or "pause" in waiting:
            return "busy", f"The run is about to {'stop' if 'stop' in waiting else 'pause'}; ask again."
        if asked is not None:
            what = "a repair of its candidate" if asked.seen.failed else "a proposal"
            return "asked", f"Experiment {asked.seen.number} waits for {what}. Answer with propose."
        return "busy", f"{self._doing(place)} Ask again."

    def _doing(self, place: _Place) -> str:
        """Return in a sentence what the process at work does at this moment."""
        now = read_progress(place.layout)
        if now is None or now.number is None:
            return "The run is being prepared."
        what = "The baseline" if now.number == 0 else f"Experiment {now.number}"
        how_far = "" if now.share is None or now.phase != "observe" else f" ({now.share:.0%}: {self._line(now.words)})"
        return f"{what} {_PHASES.get(now.phase, 'is being finished')}{how_far}."

    def _shown_request(self, asked: Asked, place: _Place, have_material: str, seen_up_to: int) -> Request:
        seen = asked.seen
        # Notes may have come since the request was written down.
        notes = [self._text(note, _LOG) for note in place.ledger.notes(place.run.id)]
        history = [past for past in seen.history if past.number > seen_up_to]
        left_out = seen.history_left_out + len(seen.history) - len(history)
        changes: dict[str, Any] = {"notes": notes, "history": history, "history_left_out": left_out}
        if have_material == seen.material:
            changes |= {"program": "", "brief": "", "files": [], "readonly": [], "knobs": [], "rules": ""}
        return seen.model_copy(update=changes)

    def _logged(self, row: Experiment) -> LoggedExperiment:
        return LoggedExperiment(
            number=row.number,
            outcome=row.outcome or "",
            category=self._line(row.category),
            hypothesis=self._line(row.hypothesis),
            reason=self._line(row.reason),
            value=row.value,
            effect=row.effect,
            effect_low=row.effect_low,
            effect_high=row.effect_high,
            commit=row.kept_commit or row.candidate_commit,
        )

    def _failed(self, row: ProposalRow) -> FailedProposal:
        return FailedProposal(
            number=row.number,
            attempt=row.attempt,
            status=row.status,
            reason=self._line(row.reason),
            hypothesis=self._line(row.hypothesis),
        )

    def _line(self, text: str) -> str:
        return one_line(self._redact(clean(text)), _LINE)

    def _text(self, text: str, limit: int) -> str:
        return ending(self._redact(clean(text)), limit)


def _refuse_own(place: _Place, number: str) -> None:
    """Raise UsageError where an agent would wave through what came from an agent."""
    row = place.ledger.experiment(place.run.id, int(number))
    if row is not None and row.proposer == "mcp":
        raise UsageError(
            f"Experiment {number} was proposed through these tools, and who proposes does not approve.\n"
            f"A person does it: autoresearch approve {number}"
        )


def _proposed_here(place: _Place) -> bool:
    """Say whether a coding agent proposes for this run, or ever did."""
    return place.run.proposer == "mcp" or any(row.proposer == "mcp" for row in place.ledger.experiments(place.run.id))


def _chosen(place: _Place, which: str) -> Experiment:
    rows = place.ledger.experiments(place.run.id)
    if which == "best":
        best = memory.incumbent_of(rows)
        if best is None:
            raise UsageError(f"Nothing is kept in run {place.run.id} yet, not even the baseline.\nAsk again later.")
        return best
    wanted = "0" if which == "baseline" else which
    found = next((row for row in rows if str(row.number) == wanted), None)
    if found is None:
        there = f"it has 0 to {max(row.number for row in rows)}" if rows else "it has none yet"
        raise UsageError(
            f"Run {place.run.id} has no experiment {which[:40]!r}; {there}.\nGive a number, best or baseline."
        )
    return found


def _measured(row: MeasurementRow) -> MeasurementShown:
    return MeasurementShown(
        arm=row.arm,
        look=row.look,
        seed=row.seed,
        value=row.value,
        seconds=row.seconds,
        disturbed=row.disturbed,
        secondary={clean(name): float(value) for name, value in row.secondary.items()},
    )


def _log_of(layout: Layout, row: Experiment) -> str:
    """Return the end of what a candidate printed; what the ledger kept where the file is gone."""
    path = layout.experiment(row.run_id, row.number) / "run.log"
    if not path.is_file():
        return row.log_tail
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _READ_OF_A_LOG))
        return file.read().decode("utf-8", "replace")
