"""Tests side by side: the experiments of all lanes, each a LangGraph thread of its own, stepped in one thread.

    fill every free lane -> begin its test -> wait, once for all -> look at what is due -> judge test by test -> ...

Each thread stops before `observe` and before `decide`. So the treatments of a test begin together, are looked at
together and are judged together: one of them at most is kept. A kill may fall anywhere: what a thread had not written
down it does again, and which steps of a round are still to be done is read from the threads and the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from autoresearch.core import lanes, live
from autoresearch.core.adapter import Lane, LiveAdapter, OffersLanes, Outcome
from autoresearch.core.check import refusal
from autoresearch.core.decision import Decision, Verdict
from autoresearch.core.errors import (
    BudgetExhaustedError,
    CandidateError,
    NothingLeftToProposeError,
    RunStoppedError,
)
from autoresearch.core.graph import Services, State, begin_together, incumbent_commit, put_together
from autoresearch.core.lanes import Ruling
from autoresearch.core.ledger import Experiment
from autoresearch.core.merge import ConflictError

_STOPS = ("observe", "decide")
"""Nodes before which a thread stops."""

_POLL_SECONDS = 0.5
"""How often a person's answer about a candidate is looked for."""

_GOES_ON = "what is before people goes on, and autoresearch run takes it up again"


class Person(Protocol):
    """What a session hears from people and its budget."""

    def over(self) -> str | None:
        """Return why the session ends now."""
        ...

    def stopped(self) -> bool:
        """Whether it ends because a person wants it to."""
        ...

    def closed(self, in_flight: int) -> str | None:
        """Return why no further experiment may begin beside so many."""
        ...

    def answer(self, number: int) -> str | None:
        """Return `approve` or `reject` once a person said so of a candidate."""
        ...

    def ended(self, experiment: Experiment) -> None:
        """Hear that an experiment was recorded."""
        ...


@dataclass
class Rounds:
    """The tests of one session.

    Attributes:
        graph: Of one experiment, compiled with `saver`.
        saver: Where its threads are kept.
        services: Shared by all threads.
        lanes: Where tests may run.
        person: What is heard from outside.
        clock: Seconds that only rise.
    """

    graph: CompiledStateGraph[State, Services, State, State]
    saver: SqliteSaver
    services: Services
    lanes: Sequence[Lane]
    person: Person
    clock: Callable[[], float] = time.monotonic
    _at: dict[int, str] = field(default_factory=dict)  # number -> the node that its thread stands before
    _due: dict[str, float] = field(default_factory=dict)  # lane -> when its next look is; its test is shown
    _asked: set[int] = field(default_factory=set)  # candidates whose approval was asked for
    _empty: dict[str, tuple[str, str]] = field(default_factory=dict)  # lane -> (incumbent, why nothing is left for it)
    _no_more: str | None = None  # why nothing more is proposed in this session

    def work(self) -> str:
        """Run tests until something ends the session; return why.

        Raises:
            RunStoppedError: If a person ends it while tests go on.
        """
        self._take_up()
        self._judge()  # what a kill left between its looks and its verdict, before anything builds on the incumbent
        while True:
            finished = len(self.services.history.experiments)
            why_none = self._fill()
            self._hear_answers()
            reason = self.person.over()
            if reason is not None:
                return self._left(reason)
            self._begin()
            if not self._at and why_none is not None and len(self.services.history.experiments) == finished:
                return why_none
            self._look()
            self._judge()

    def _left(self, reason: str) -> str:
        if not self._open():
            return reason
        if self.person.stopped():
            raise RunStoppedError(f"interrupted; {_GOES_ON}")
        return f"{reason}; {_GOES_ON}"

    # Threads

    def _config(self, number: int) -> Any:
        return {"configurable": {"thread_id": f"{self.services.run.id}/{number}"}, "recursion_limit": 1000}

    def _step(self, number: int, entry: Any = None) -> None:
        """Let a thread go on to its next stop, or to its end."""
        config = self._config(number)
        self.graph.invoke(entry, config, context=self.services, durability="sync", interrupt_before=_STOPS)
        following = self.graph.get_state(config).next
        if following:
            self._at[number] = following[0]
            return
        self._at.pop(number, None)
        self._asked.discard(number)
        self.saver.delete_thread(config["configurable"]["thread_id"])
        self.person.ended(self.services.history.experiments[-1])

    def _rule(self, number: int, ruling: Ruling) -> None:
        """Let a thread go on with what was decided on it beside the others."""
        self.services.rulings[number] = ruling
        self._step(number)

    def _take_up(self) -> None:
        """Bring the thread of every experiment that was begun to a stop, wherever a kill left it."""
        for row in self._open():
            self._go_on(row.number, row.lane)
        number = self._free_number()
        if self.saver.get_tuple(self._config(number)) is not None:  # killed before the experiment was begun
            lane = self.graph.get_state(self._config(number)).values.get("lane", "")
            self._propose(number, lane, None)

    def _go_on(self, number: int, lane: str) -> None:
        if self.saver.get_tuple(self._config(number)) is None:  # the checkpoints were lost
            self._step(number, {"number": number, "lane": lane})
            return
        # Empty in the middle of an experiment where a kill fell between a node's writes and the next checkpoint.
        following = self.graph.get_state(self._config(number)).next
        if following and following[0] in _STOPS:
            self._at[number] = following[0]
        else:
            self._step(number)

    # The ledger

    def _open(self, lane: str | None = None) -> list[Experiment]:
        """Return the experiments in flight, of one lane where it is named."""
        rows = self.services.ledger.unfinished(self.services.run.id)
        return [row for row in rows if lane is None or row.lane == lane]

    def _free_number(self) -> int:
        known = [*self.services.history.experiments, *self._open()]
        return max(row.number for row in known) + 1

    def _tests(self) -> dict[str, list[Experiment]]:
        """Return lane -> the treatments of its test that are in flight."""
        found: dict[str, list[Experiment]] = {}
        for row in self._open():
            found.setdefault(row.lane, []).append(row)
        return found

    # Filling

    def _fill(self) -> str | None:
        """Have candidates proposed for every lane without a test; return why there are not more, None: all are full."""
        tests, why = self._tests(), None
        for lane in self.lanes:
            mine = tests.get(lane.name, [])
            if any(row.family > 0 for row in mine):
                continue
            for _ in range(lane.arms - len(mine)):
                why = self._next_candidate(lane) or why
                if why is not None:
                    break
        return why

    def _next_candidate(self, lane: Lane) -> str | None:
        """Have one candidate proposed and checked; return why there is none."""
        incumbent = incumbent_commit(self.services)
        before, why = self._empty.get(lane.name, ("", ""))
        if before == incumbent:
            return why
        closed = self._no_more or self.person.over() or self.person.closed(len(self._open()))
        if closed is not None:
            return closed
        number = self._free_number()
        return self._propose(number, lane.name, {"number": number, "lane": lane.name})

    def _propose(self, number: int, lane: str, entry: Any) -> str | None:
        """Step an experiment that has not begun; return why nothing was proposed."""
        try:
            self._step(number, entry)
        except NothingLeftToProposeError as error:
            self._empty[lane] = (incumbent_commit(self.services), str(error))
            why = str(error)
        except BudgetExhaustedError as error:
            self._no_more = why = str(error)
        else:
            return None
        self.saver.delete_thread(f"{self.services.run.id}/{number}")  # another lane may take the number
        return why

    def _hear_answers(self) -> None:
        """Ask a person about candidates that wait for approval, and let those go on that have an answer."""
        for number in [number for number, node in self._at.items() if node == "approve"]:
            if number not in self._asked:
                self._asked.add(number)
                self.services.reporter.say(
                    f"Experiment {number} waits: autoresearch show {number} --diff, then autoresearch approve {number} "
                    f"or autoresearch reject {number}"
                )
            answer = self.person.answer(number)
            if answer is not None:
                self._step(number, Command(resume=answer))

    # Beginning

    def _begin(self) -> None:
        """Show every test whose treatments are all there, and that was not shown in this session."""
        for name, rows in self._tests().items():
            if name in self._due or any(self._at[row.number] == "approve" for row in rows):
                continue
            if self._drop_outdated(name, rows):
                continue  # the lane is filled again first
            try:
                begin_together(self.services, rows)
            except CandidateError as error:
                for row in rows:
                    self._rule(row.number, (Verdict(Decision.REVERT, str(error)), Outcome.CRASHED))
                continue
            self._due[name] = self.clock() + self._wait(rows)
            fresh = [row for row in rows if not self.services.ledger.live_looks(row.id)]
            if (said := live.announcement(fresh, self._wait(rows))) is not None:
                self.services.reporter.say(said)

    def _drop_outdated(self, name: str, rows: Sequence[Experiment]) -> bool:
        """End candidates that waited for a person while another lane kept something, unless that is nothing to them."""
        lane = self._lane(name)
        if lane is not None and lane.alone:
            return False
        incumbent = incumbent_commit(self.services)
        old = [row for row in rows if row.family == 0 and row.parent_commit != incumbent]
        for row in old:
            self._rule(row.number, lanes.never_shown())
        return bool(old)

    def _lane(self, name: str) -> Lane | None:
        """Return a lane; None for one that is not offered any more, whose test is brought to its end all the same."""
        return next((lane for lane in self.lanes if lane.name == name), None)

    # Looking

    def _adapter(self) -> LiveAdapter:
        assert isinstance(self.services.adapter, LiveAdapter), "only such an adapter has lanes"
        return self.services.adapter

    def _wait(self, rows: Sequence[Experiment]) -> float:
        return max(live.wait_seconds(self._adapter(), row) for row in rows)

    def _look(self) -> None:
        """Wait until a look is due, once for all tests, and take it for every treatment of the tests that are due."""
        tests = {name: rows for name, rows in self._tests().items() if name in self._due}
        waiting = [name for name, rows in tests.items() if any(self._at[row.number] == "observe" for row in rows)]
        asking = "approve" in self._at.values()
        pause = min((self._due[name] - self.clock() for name in waiting), default=_POLL_SECONDS if asking else 0.0)
        if asking:
            pause = min(pause, _POLL_SECONDS)
        if pause > 0 and not self.services.sleep(pause):
            raise RunStoppedError(f"interrupted; {_GOES_ON}")
        now = self.clock()
        for name in waiting:
            for row in tests[name] if self._due[name] <= now else ():
                if self._at[row.number] == "observe":
                    self._step(row.number)

    # Judging

    def _judge(self) -> None:
        """Judge the tests whose treatments were all looked at."""
        for name, rows in self._tests().items():
            if any(self._at[row.number] != "decide" for row in rows):
                continue
            for number, ruling in self._rulings(name, rows).items():
                self._rule(number, ruling)
            left = self._open(name)
            if self._due.pop(name, None) is not None and left:
                self._due[name] = self.clock() + self._wait(left)

    def _rulings(self, name: str, rows: Sequence[Experiment]) -> dict[int, Ruling]:
        """Return what becomes of the treatments of one test, the winner first."""
        adapter, ledger = self._adapter(), self.services.ledger
        alone = {
            row.number: live.judge(adapter, self.services.policy, row, live.looks_of(ledger.live_looks(row.id)))
            for row in rows
        }
        others = lanes.begun_with(self.services.history.experiments, rows[0])
        found = lanes.settled(alone, next((row.number for row in others if lanes.has_won(row)), None))
        incumbent = incumbent_commit(self.services)
        for row in rows:
            verdict, outcome = found[row.number]
            if outcome is Outcome.KEPT and row.parent_commit != incumbent:
                found[row.number] = self._moved(name, row, verdict, incumbent)
        return found

    def _moved(self, name: str, row: Experiment, verdict: Verdict, incumbent: str) -> Ruling:
        """Return the ruling on a winner whose parent is the incumbent no longer: kept where its lane is alone."""
        lane = self._lane(name)
        if lane is None or not lane.alone:
            return lanes.outdated(verdict)
        problem = self._does_not_fit(name, row, incumbent)
        if problem is not None:
            return lanes.outdated(verdict, problem)
        reason = f"{verdict.reason} Put together with what other lanes kept meanwhile."
        return replace(verdict, reason=reason), Outcome.KEPT

    def _does_not_fit(self, name: str, row: Experiment, incumbent: str) -> str | None:
        """Return why an edit cannot stand on the incumbent as it is now; None where it can."""
        adapter = self.services.adapter
        try:
            together = put_together(self.services, row, incumbent)
        except ConflictError as error:
            return str(error)
        now = self.services.store.read(incumbent, adapter.scope.editable)
        problem = refusal(now, together, adapter.scope, (), adapter)
        if problem is None and isinstance(adapter, OffersLanes):
            problem = adapter.belongs(name, now, together)
        return problem
