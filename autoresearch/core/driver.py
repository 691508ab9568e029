"""The run: one LangGraph run per experiment under a budget, with resume, signals and a reason for every end."""

from __future__ import annotations

import errno
import importlib.metadata
import math
import os
import platform
import shutil
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from autoresearch.core import fingerprints, lock, memory, moments, progress, registry
from autoresearch.core.adapter import (
    Adapter,
    ChoosesPolicy,
    Closes,
    Lane,
    LiveAdapter,
    OffersEstimate,
    OffersLanes,
    OffersReadiness,
    OffersWorkspace,
    Outcome,
    Prepares,
    RunContext,
    RunsOut,
    Split,
    WorksInCheckout,
    Workspace,
)
from autoresearch.core.artifact import Artifact
from autoresearch.core.budget import Limits, Spent, limit_reached
from autoresearch.core.decision import Policy
from autoresearch.core.decision.policies import create_policy
from autoresearch.core.errors import AutoresearchError, EnvironmentNotReadyError, RunStoppedError, UsageError
from autoresearch.core.followers import Followed, Follower, Followers
from autoresearch.core.graph import READONLY_FILES, Reporter, Services, State, build_graph, request_for, tidy
from autoresearch.core.history import History
from autoresearch.core.lanes import offered
from autoresearch.core.ledger import Experiment, Ledger, Run, Session
from autoresearch.core.live import finish as finish_test
from autoresearch.core.proposers import AwaitsAnswers, Proposer
from autoresearch.core.proposers.claude import ClaudeProposer, has_credentials
from autoresearch.core.readmodel import RunStatus, status_of
from autoresearch.core.rounds import Rounds
from autoresearch.core.store import Store
from autoresearch.core.words import duration
from autoresearch.core.workspace import Layout, Settings, config_text, find_workspace, read_settings, write_options

POLL_SECONDS = 0.5
"""How often a paused or waiting run looks at the control table."""

_SENT_BY = {"SIGTERM": " by a request to terminate", "SIGHUP": " because the terminal was closed"}
"""Who sends a signal, for the reason of a session that it ends."""

RESUMABLE = ("interrupted", "environment", "stopped", "error")
"""After a reason that begins so, the next `run` goes on with the same budget, as it does after a kill."""


class Silent:
    """A reporter that says nothing; the default of the Python API."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def phase(self, number: int, name: str) -> None:
        """Say nothing."""

    def progress(self, share: float, text: str) -> None:
        """Say nothing."""

    def experiment_ended(self, experiment: Experiment) -> None:
        """Say nothing."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a call of `run` ended.

    Attributes:
        status: The run in figures.
        reason: Why this session ended.
        interrupted: True after Ctrl-C.
        fault: True where a person should look into it: the proposer failed again and again.
        workspace: Folder of the workspace.
        branch: Git branch that holds the kept steps.
        live: Whether the metric arrived from people, so that nothing can be measured again.
    """

    status: RunStatus
    reason: str
    interrupted: bool
    fault: bool
    workspace: Path
    branch: str
    live: bool = False


def run(
    adapter: str | Adapter | LiveAdapter | None = None,
    *,
    workspace: str | Path | None = None,
    proposer: str | Proposer | None = None,
    policy: str | Policy | None = None,
    policy_parameters: Mapping[str, float] | None = None,
    model: str | None = None,
    experiments: int | None = None,
    hours: float | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    max_samples: int | None = None,
    target: float | None = None,
    patience: int | None = None,
    seed: int | None = None,
    baseline_runs: int | None = None,
    budget_seconds: float | None = None,
    device: str | None = None,
    early_stop: bool | None = None,
    approve: bool | None = None,
    confirm: bool | None = None,
    sandbox: str | None = None,
    options: Mapping[str, str] | None = None,
    notify: Sequence[str] | None = None,
    mlflow: str | None = None,
    wandb: str | None = None,
    new: bool = False,
    reporter: Reporter | None = None,
) -> RunResult:
    """Run the loop in a workspace until a limit ends it; go on where the last session stopped.

    Does what `autoresearch run` does. Every choice left out comes from `autoresearch.toml`.

    Args:
        adapter: Name of a registered adapter, or an adapter itself.
        workspace: Folder to work in; without one the current folder if it is a workspace, else
            `./autoresearch-<adapter>`.
        proposer: Name of a proposer, or a proposer itself.
        policy: Name of a policy, or a policy itself.
        policy_parameters: Parameters of a policy given by name.
        model: Model of the proposer.
        experiments: Stop after this many finished experiments in this session; see `Limits` for the other limits.
        hours: Stop after this many hours.
        max_usd: Stop before more than this is spent on proposals.
        max_tokens: Stop before more tokens than this are used by proposals.
        max_samples: Stop after this many measurements.
        target: Stop when the incumbent is believed to be this good.
        patience: Stop after this many experiments in a row without a keep.
        seed: Base seed of the measurements and of offline proposers.
        baseline_runs: How often the baseline is measured first.
        budget_seconds: Budget of one measurement in seconds.
        device: Device of the measurements.
        early_stop: Cut the first measurement of a candidate whose curve leaves no hope of beating the incumbent.
        approve: Wait for a person's approval before each candidate is measured.
        confirm: Confirm what was gained when a limit ends the session, as far as the budget allows; None: in no more
            time than the session took.
        sandbox: How candidates are kept apart: `auto`, `bubblewrap`, `landlock`, `limits` or `none`.
        options: Options of the adapter, on top of the table `[adapter]`.
        notify: Who is told of a new best and of the end, on top of the table `[notify]`: `https://...`, `mailto:...`,
            `cmd:...`.
        mlflow: Mirror the run to this MLflow address or folder.
        wandb: Mirror the run to this project of Weights & Biases.
        new: Begin a new run from the artifact as it is now, even where an earlier one could go on.
        reporter: Hears what happens.

    Raises:
        UsageError: If the request cannot be carried out as asked.
        EnvironmentNotReadyError: If the machine is at fault; run again once it is mended.
    """
    limits = Limits(experiments, hours, max_usd, max_tokens, max_samples, target, patience)
    name = adapter if isinstance(adapter, str) else None
    layout = find_workspace(Path(workspace) if workspace else None, cwd=Path.cwd(), adapter=name)
    if layout is None:
        there = ", ".join(entry.name for entry in registry.registered(registry.ADAPTERS)) or "none"
        raise UsageError(
            f"There is no workspace here. Name an adapter to make one: autoresearch run --adapter NAME (found {there})."
        )
    said = reporter or Silent()
    settings = _settings_of(layout, name, isinstance(adapter, str | None), options or {}, said).overlay(
        proposer=proposer if isinstance(proposer, str) else None,
        policy=policy if isinstance(policy, str) else None,
        policy_parameters=policy_parameters,
        model=model,
        seed=seed,
        baseline_runs=baseline_runs,
        budget_seconds=budget_seconds,
        device=device,
        early_stop=early_stop,
        approve=approve,
        confirm=confirm,
        sandbox=sandbox,
        options=options,
        mlflow=mlflow,
        wandb=wandb,
    )
    followers = Followers(said, _followers_of(settings, notify or ()))
    layout.make_state()
    with lock.held(layout), _machine_faults(), Ledger.open(layout.ledger) as ledger:
        driver = _Driver(layout, ledger, progress.Noted(layout, followers), settings)
        with driver.signals(), driver.closing():
            driver.begin(
                adapter if not isinstance(adapter, str | None) else None,
                policy if not isinstance(policy, str | None) else None,
                proposer if not isinstance(proposer, str | None) else None,
                limits,
                new=new,
            )
            followers.begun(driver.followed())
            try:
                result = driver.work()
            except Exception as error:
                followers.ended(str(error), fault=True)
                raise
            followers.ended(result.reason, fault=result.fault)
            return result


def _followers_of(settings: Settings, targets: Sequence[str]) -> list[Follower]:
    """Return who is told of a session; imported only where somebody is."""
    found: list[Follower] = []
    if settings.notify or targets:
        from autoresearch.core.notify import mail_server, notifiers

        found += notifiers([*settings.notify, *targets], mail_server(settings))
    if settings.mlflow:
        from autoresearch.core.mirrors import MlflowMirror

        found.append(MlflowMirror(settings.mlflow))
    if settings.wandb:
        from autoresearch.core.mirrors import WandbMirror

        found.append(WandbMirror(settings.wandb))
    return found


def create_workspace(layout: Layout, adapter: str, options: Mapping[str, str]) -> list[Path]:
    """Write a new workspace and return its files; files that are already there stay as they are.

    Raises:
        UsageError: If there is a workspace already, or the adapter cannot write one.
        EnvironmentNotReadyError: If the folder cannot be written.
    """
    if layout.config.exists():
        raise UsageError(f"{layout.root} is a workspace already.\nRun it: autoresearch run -w {layout.root}")
    created, _ = registry.create_adapter(adapter, options)
    files = dict(created.workspace_files()) if isinstance(created, OffersWorkspace) else {}
    config = layout.config_inside if isinstance(created, WorksInCheckout) else layout.config
    files[config.relative_to(layout.root).as_posix()] = config_text(adapter, options)
    written = []
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        for relative, text in files.items():
            path = layout.root / relative
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                written.append(path)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The workspace {layout.root} cannot be written: {error.strerror}.\nChoose another folder with -w DIR."
        ) from error
    layout.make_state()
    return written


def _settings_of(
    layout: Layout, adapter: str | None, by_name: bool, options: Mapping[str, str], reporter: Reporter
) -> Settings:
    """Read the workspace's settings; make the workspace first where an adapter is named and there is none."""
    if not by_name and not layout.config.exists():
        return Settings(adapter=None)  # the Python API with an adapter object needs no configuration
    if not layout.config.exists() and adapter is not None:
        created, _ = registry.create_adapter(adapter, options)
        if isinstance(created, OffersReadiness):
            created.check_ready()
        create_workspace(layout, adapter, options)
        reporter.say(f"Made a workspace in {layout.root}")
    settings = read_settings(layout)
    if adapter is not None and settings.adapter not in (None, adapter):
        raise UsageError(
            f"{layout.root} is a workspace of the adapter {settings.adapter!r}, not of {adapter!r}.\n"
            "Leave --adapter out, or name another workspace with -w DIR."
        )
    return settings if adapter is None else settings.overlay(adapter=adapter)


class _Driver:
    """One session of a run; made, begun and worked once."""

    def __init__(self, layout: Layout, ledger: Ledger, reporter: Reporter, settings: Settings) -> None:
        self.layout = layout
        self.ledger = ledger
        self.reporter = reporter
        self.settings = settings
        self.moments = moments.Moments(ledger.latest_moment())
        self.begun = False
        self.interrupts = 0
        self.at_once = "interrupted at once"
        self.stop_wanted: str | None = None

    # Beginning

    def begin(
        self,
        adapter: Adapter | LiveAdapter | None,
        policy: Policy | None,
        proposer: Proposer | None,
        limits: Limits,
        *,
        new: bool,
    ) -> None:
        """Open or create the run and its session; nothing is measured and nothing is paid yet."""
        try:
            self._prepare(adapter, policy, proposer, new=new)
        except KeyboardInterrupt:
            said = self.at_once.capitalize()
            self.reporter.say(f"{said} while preparing; nothing was measured. Run the same again to go on.")
            raise
        self.begun = True
        self._begin_session(limits)

    def _prepare(
        self, adapter: Adapter | LiveAdapter | None, policy: Policy | None, proposer: Proposer | None, *, new: bool
    ) -> None:
        """Make everything ready, and open or create the run."""
        name, distribution, version = self._open_adapter(adapter)
        earlier = None if new else self.ledger.latest_run(name)
        if earlier is not None:
            given = self.settings.options
            self._adopt(earlier, policy)
            if self.settings.options != given:
                # What was left out now comes from the run, and the adapter must know of it.
                self._open_adapter(adapter)
        self.policy = self._choose_policy(policy)
        self.proposer = proposer or choose_proposer(self.settings, self.reporter)
        if isinstance(self.proposer, AwaitsAnswers):
            self.proposer.attend(self.layout.agent, self._await_answer, self.reporter.say)
        self.sandbox = self._choose_sandbox()
        self._demand_replicates()
        if isinstance(self.adapter, Adapter | Prepares):
            self.adapter.prepare(Workspace(self.layout.root, dict(self.settings.options), self.reporter.progress))
        self.store = Store.open(self.layout.root)
        self.watch = fingerprints.Watch(self.adapter, self.adapter.scope, self.layout.root)
        self.judge = self.watch.look()
        if earlier is None and isinstance(self.adapter, LiveAdapter):
            self._end_earlier_tests(self.adapter, name)
        self.run = earlier or self._create_run(name, distribution, version)
        self.history = History(self.ledger, self.run.id).refresh()
        self.lanes = self._open_lanes()
        if earlier is not None:
            self._resume(earlier)
        lock.name_run(self.layout, self.run.id)

    def _open_lanes(self) -> Sequence[Lane]:
        """Return the lanes to run tests in; none where one experiment follows another."""
        found = offered(self.adapter)
        going_on = sorted({row.lane for row in self.ledger.unfinished(self.run.id)} - {""})
        if found or not going_on:
            return found
        if isinstance(self.adapter, OffersLanes):
            return tuple(self.adapter.lanes)
        raise UsageError(
            f"The run {self.run.id} has tests before people in {', '.join(going_on)}, and its adapter knows no such "
            "places any more.\nGo on with the adapter that began them, or end them and begin a new run: --new"
        )

    def _choose_sandbox(self) -> str:
        """Return the level of isolation; say so where it leaves files and network open."""
        if isinstance(self.adapter, LiveAdapter):
            return ""  # nothing of a candidate is executed here
        from autoresearch.core.sandbox import resolve

        level = resolve(self.settings.sandbox or "auto")
        if not level.confines:
            self.reporter.say(
                f"Sandbox: {level.value}. Candidates are not kept from files and network; autoresearch doctor says how "
                "to mend that."
            )
        return level.value

    def _demand_replicates(self) -> None:
        """Refuse a baseline measured once where the policy needs the noise and nobody states it."""
        if isinstance(self.adapter, LiveAdapter):
            return
        if self.settings.baseline_runs == 1 and self.policy.needs_noise and self.adapter.metric.noise is None:
            raise UsageError(
                f"The policy {self.policy.name} weighs every value against the noise of {self.adapter.metric.name}, "
                "which is unknown before the baseline was measured twice.\n"
                "Leave --baseline-runs out, or take --policy greedy."
            )

    def _open_adapter(self, given: Adapter | LiveAdapter | None) -> tuple[str, str, str]:
        """Create the adapter; return its name, distribution and version."""
        if given is None:
            if self.settings.adapter is None:
                raise UsageError(
                    f'{self.layout.config} names no adapter.\nAdd adapter = "NAME" to [run], or give --adapter NAME.'
                )
            created, entry = registry.create_adapter(self.settings.adapter, self.settings.options)
            identity = (entry.name, entry.distribution, entry.version)
        else:
            registry.check_adapter(given, type(given).__module__)
            created = given
            identity = (type(given).__name__, type(given).__module__, "")
        self.adapter: Adapter | LiveAdapter = created
        return identity

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Let the adapter go of what it holds open, however the session ends."""
        try:
            yield
        finally:
            adapter = getattr(self, "adapter", None)  # none was opened where its name was wrong
            if isinstance(adapter, Closes):
                adapter.close()

    def _choose_policy(self, given: Policy | None) -> Policy:
        """Return the run's policy; people are judged by a sequential test, repeated measurements by expected gain."""
        if given is not None:
            return given
        live = isinstance(self.adapter, LiveAdapter)
        only = self._only_policy()
        name = self.settings.policy or only or ("race" if live else "bayes")
        if name != only and "test_and_roll" in (name, only):
            raise UsageError(
                f"The policy {name} does not fit this traffic: test_and_roll spends a list of people that ends, and no "
                "other policy does.\nLeave --policy out; what the artifact's own settings say of its people decides."
            )
        if live and name in ("bayes", "greedy"):
            raise UsageError(
                f"The policy {name} judges repeated measurements, and {self.adapter.metric.name} arrives from people.\n"
                "Leave --policy out: race may be looked at any time and states its error rates."
            )
        return create_policy(name, dict(self.settings.policy_parameters))

    def _only_policy(self) -> str | None:
        """Return the one policy that fits the adapter's traffic; None where any does."""
        if not isinstance(self.adapter, ChoosesPolicy):
            return None
        return self.adapter.policy_for(Workspace(self.layout.root, dict(self.settings.options)))

    def _adopt(self, run: Run, policy: Policy | None) -> None:
        """Take over what a run was started with; refuse what would change it midway."""
        asked = self.settings
        wanted: dict[str, tuple[Any, Any]] = {
            "policy": (policy.name if policy else asked.policy or run.policy, run.policy),
            "seed": (run.seed if asked.seed is None else asked.seed, run.seed),
            "budget_seconds": (asked.budget_seconds or run.budget_seconds, run.budget_seconds),
            "device": (asked.device or run.device, run.device),
            **{f"option {name}": (new, run.options.get(name)) for name, new in asked.options.items()},
        }
        if wanted["policy"][0] == run.policy:
            parameters, known = asked.policy_parameters, run.policy_parameters
            wanted.update({name: (new, known.get(name)) for name, new in parameters.items()})
        changed = [f"{name} {old!r} -> {new!r}" for name, (new, old) in wanted.items() if new != old]
        if changed:
            raise UsageError(
                f"The run {run.id} keeps the rules it was started with, and this would change {'; '.join(changed)}.\n"
                f"Leave that out to go on with it (what the command line does not say comes from "
                f"{self._config_in_words()}), or begin a new run: --new"
            )
        self.settings = replace(
            asked,
            policy=run.policy,
            policy_parameters=run.policy_parameters,
            seed=run.seed,
            budget_seconds=run.budget_seconds,
            device=run.device,
            options=run.options,
        )

    def _config_in_words(self) -> str:
        config = self.layout.config
        return str(config.relative_to(self.layout.root)) if config.is_relative_to(self.layout.root) else str(config)

    def _create_run(self, name: str, distribution: str, version: str) -> Run:
        now = self.moments.now()
        artifact = Artifact.read(self.layout.root, self.adapter.scope.editable)
        if not artifact.files:
            raise UsageError(
                f"{self.layout.root} holds no artifact: nothing matches {', '.join(self.adapter.scope.editable)}.\n"
                f"Write one with autoresearch init --adapter {name} DIR, or put your own file there."
            )
        run_id = self._free_id(f"{name}-{now:%Y%m%d-%H%M%S}")
        commit = self.store.baseline(run_id, artifact, at=now)
        if isinstance(self.adapter, WorksInCheckout) and self.layout.config == self.layout.config_inside:
            # There the file is ours and came from flags: the run must be found again without giving them.
            write_options(self.layout, self.settings.options)
        self.reporter.say(f"Run {run_id}: policy {self.policy.name}, proposals by {self.proposer.name}.")
        return self.ledger.add_run(
            Run(
                id=run_id,
                adapter=name,
                adapter_distribution=distribution,
                adapter_version=version,
                metric=memory.metric_as_json(self.adapter.metric),
                policy=self.policy.name,
                policy_parameters=dict(self.policy.parameters),
                proposer=self.proposer.name,
                model=self.settings.model or "",
                seed=self.settings.seed or 0,
                options=dict(self.settings.options),
                budget_seconds=self.settings.budget_seconds,
                device=self.settings.device,
                state="running",
                ref=f"refs/heads/autoresearch/{run_id}",
                baseline_commit=commit,
                evaluator_fingerprint=self.judge.evaluator,
                created=now,
            )
        )

    def _end_earlier_tests(self, adapter: LiveAdapter, name: str) -> None:
        """End what earlier runs left in front of people: only their own run would ever look at it again."""
        rows = [row for run in self.ledger.runs() if run.adapter == name for row in self.ledger.experiments(run.id)]
        for row in rows:
            if row.outcome is not None or row.number == 0:
                continue
            finish_test(adapter, row, Outcome.INCONCLUSIVE)
            self.ledger.finish_experiment(
                row.id, outcome=Outcome.INCONCLUSIVE.value, reason="A new run began before it was decided."
            )
            self.reporter.say(
                f"Experiment {row.number} of run {row.run_id} was still going on; it ends without a verdict."
            )

    def _free_id(self, wanted: str) -> str:
        """Return the wanted id, numbered where a run of the same second, or a clock set back, already took it."""
        taken = {run.id for run in self.ledger.runs()}
        candidate, count = wanted, 1
        while candidate in taken or self.store.head(candidate) is not None:
            count += 1
            candidate = f"{wanted}-{count}"
        return candidate

    def _resume(self, run: Run) -> None:
        """Say what was found, and refuse to compare values that are not comparable."""
        rows = self.ledger.experiments(run.id)
        found = self.judge
        # A run whose baseline has not begun, or that an older release began, knows no hashes of read-only files.
        known = rows[0].fingerprints.get(READONLY_FILES) if rows else None
        self.judge = fingerprints.Judge(run.evaluator_fingerprint, found.readonly if known is None else known)
        if (what := fingerprints.explained(self.adapter, run.evaluator_fingerprint)) is not None:
            self.reporter.say(what)
        fingerprints.demand_same(run.id, self.judge, found)
        done = [row for row in rows if row.outcome is not None and row.number > 0]
        kept = sum(row.outcome == "kept" for row in done)
        self.reporter.say(f"Going on with run {run.id}: {len(done)} experiments, {kept} kept.")
        for row in rows:
            if row.outcome is None:
                what = "the baseline" if row.number == 0 else f"experiment {row.number}"
                self.reporter.say(f"Found {what} unfinished ({row.hypothesis}); it goes on where it stopped.")
        here = Artifact.read(self.layout.root, self.adapter.scope.editable)
        if here != self.store.read(run.baseline_commit, self.adapter.scope.editable):
            self.reporter.say(
                "The artifact in the workspace differs from this run's baseline; the run goes on from its own "
                "incumbent. To start from your file: --new"
            )

    def _begin_session(self, asked: Limits) -> None:
        """Begin a session: with a fresh budget, or with the rest of one that was cut off."""
        sessions = self.ledger.sessions(self.run.id)
        last = sessions[-1] if sessions else None
        first, limits, same = self._free_number(), self.settings.limits, _one_budget(sessions)
        self.seconds_before = sum(_session_seconds(row, self.ledger) for row in same)
        if last is not None and same:
            first, limits = last.first_number, Limits(**last.limits)
        self.limits = Limits(**{**limits.as_json(), **asked.as_json()})
        self.first_number = first
        self.began = time.monotonic()
        self.session = self.ledger.add_session(
            Session(
                run_id=self.run.id,
                started=self.moments.now(),
                pid=os.getpid(),
                host=socket.gethostname(),
                limits=self.limits.as_json(),
                first_number=first,
                versions=versions(),
            )
        )
        self.budget_began = same[0].started if same else self.session.started
        self.ledger.update_run(self.run.id, state="running", stop_reason=None)
        for message in self.ledger.pending(self.run.id):
            # A stop or pause was meant for the session that did not live to hear it; an answer about a candidate stays.
            if message.command not in ("approve", "reject"):
                self.ledger.mark_handled(message.id)

    # Working

    def work(self) -> RunResult:
        """Run experiments until something ends the session; write down why."""
        fault = False
        try:
            with _machine_faults():  # inside, so that the ledger too calls a full disk a fault of the machine
                with _checkpointer(self.layout, self.reporter) as saver:
                    reason = self._loop(build_graph().compile(checkpointer=saver), saver)
                self._confirm()
            reason = self.stop_wanted or reason
        except RunStoppedError as error:
            reason, fault = str(error), error.fault
            if not self._baseline_done():
                self._end(reason)
                raise
        except KeyboardInterrupt:
            reason = self.at_once
        except AutoresearchError as error:
            self._end(f"environment: {error}")
            raise
        except BaseException as error:
            # The ledger must not say "running" of a session that a bug ended; the traceback goes on its way.
            self._end(f"error: {type(error).__name__}: {error}")
            raise
        self._end(reason)
        return RunResult(
            status=status_of(self.ledger, self.ledger.run(self.run.id), at_work=True, policy=self.policy),
            reason=reason,
            interrupted=reason.startswith("interrupted"),
            fault=fault,
            workspace=self.layout.root,
            branch=f"autoresearch/{self.run.id}",
            live=isinstance(self.adapter, LiveAdapter),
        )

    def _loop(self, graph: CompiledStateGraph[State, Services, State, State], saver: SqliteSaver) -> str:
        """Run one experiment after another; return why it ended."""
        self._tidy_last(saver)
        estimated = False
        while True:
            self._obey_controls()
            reason = self.stop_wanted or self._limit_reached() or self._nobody_left()
            if reason:
                return reason
            if self.lanes and self._baseline_done():
                return self._side_by_side(graph, saver)
            number = self._next_number()
            if number > 0 and not estimated and isinstance(self.adapter, Adapter):
                self._say_estimate(number)
                estimated = True
            self._one_experiment(graph, saver, number)
            if self.history.experiments and self.history.experiments[-1].number == number:
                self.reporter.experiment_ended(self.history.experiments[-1])
                if number == 0 and isinstance(self.adapter, Adapter):
                    self._say_what_can_be_seen()
                    self._say_if_nothing_can_be_cut()

    def _side_by_side(self, graph: CompiledStateGraph[State, Services, State, State], saver: SqliteSaver) -> str:
        """Run the tests of all lanes until something ends the session; return why."""
        for row in self.ledger.unfinished(self.run.id):
            if not row.lane:  # begun before there were lanes
                self._one_experiment(graph, saver, row.number)
                self.reporter.experiment_ended(self.history.experiments[-1])
        return Rounds(graph, saver, self._services(), self.lanes, self).work()

    def followed(self) -> Followed:
        """Return what followers of this session are told of it."""
        return Followed(
            run=self.run,
            metric=self.adapter.metric,
            layout=self.layout,
            ledger=self.ledger,
            live=isinstance(self.adapter, LiveAdapter),
            status=lambda: status_of(self.ledger, self.ledger.run(self.run.id), at_work=True, policy=self.policy),
        )

    def over(self) -> str | None:
        """Return why the session ends now, controls and limits considered."""
        self._obey_controls()
        return self.stop_wanted or self._limit_reached()

    def stopped(self) -> bool:
        """Whether a person wants the session to end."""
        return self.stop_wanted is not None

    def closed(self, in_flight: int) -> str | None:
        """Return why no further experiment may begin beside so many: what is begun is meant to be finished."""
        most = self.limits.experiments
        if most is not None and self._spent().experiments + in_flight >= most:
            return f"experiments: {most} begun"
        return self.adapter.used_up() if isinstance(self.adapter, RunsOut) else None

    def answer(self, number: int) -> str | None:
        """Return `approve` or `reject` once a person said so of a candidate."""
        for message in self.ledger.pending(self.run.id):
            if message.command in ("approve", "reject") and message.argument == str(number):
                self.ledger.mark_handled(message.id)
                return message.command
        return None

    def ended(self, experiment: Experiment) -> None:
        """Tell the person that an experiment was recorded."""
        self.reporter.experiment_ended(experiment)

    def _confirm(self) -> None:
        """Confirm what was gained where a limit, and no person, ended the session and enough of the budget is left."""
        if self.settings.confirm is False or self.stop_wanted or len(self.history.experiments) < 2:
            return
        if isinstance(self.adapter, LiveAdapter):
            return  # its tests are claims already, each with the error rates of the race
        from autoresearch.core import confirm, fresh

        if not fresh.kept_steps(self.history.experiments):
            if self.settings.confirm:
                self.reporter.say("Nothing was kept, so there is nothing to confirm.")
            return
        run = self.ledger.run(self.run.id)
        bench = fresh.Bench(
            self.layout, self.ledger, run, self.adapter, self.policy, self.reporter, self.sandbox, self._stop_wanted
        )
        count = confirm.measurements_needed(bench, confirm.SEEDS)
        refusal = self._no_room_for(count)
        if refusal is not None:
            self.reporter.say(f"Not confirmed: {refusal}. Do it with autoresearch confirm.")
            return
        where = "on the holdout" if bench.claim_split is Split.HOLDOUT else "with fresh seeds"
        if count:
            self.reporter.say(
                f"Confirming: {count} measurements {where}, about {duration(count * self._measure_seconds())}. "
                "Ctrl-C ends this, and what was measured stays."
            )
        try:
            confirm.confirm(bench)
        except UsageError as error:
            self.reporter.say(f"Not confirmed: {error}")

    def _no_room_for(self, count: int) -> str | None:
        """Say why so many measurements are more than the session has left; None where they are not."""
        seconds, spent = count * self._measure_seconds(), self._spent()
        takes = f"that takes about {duration(seconds)}"
        if self.limits.hours is not None and spent.seconds + seconds > self.limits.hours * 3600:
            return f"{takes}, and less is left"
        if self.limits.max_samples is not None and spent.samples + count > self.limits.max_samples:
            return f"that takes {count} measurements, and fewer are left"
        if self.settings.confirm is None and seconds > spent.seconds:
            return f"{takes}, more than the run itself took"
        return None

    def _say_what_can_be_seen(self) -> None:
        """Say what the baseline's replicates, a calibration in small, tell of the noise and of what it hides."""
        from autoresearch.core import calibrate

        known = calibrate.assess(self.policy, self.adapter.metric, self.history)
        if known is None:
            return
        self.run = self.ledger.update_run(self.run.id, noise_sd=known.noise.sd, noise_dof=known.noise.dof)
        self.reporter.say(calibrate.sentence(known, self.adapter.metric, self.policy.name))

    def _say_if_nothing_can_be_cut(self) -> None:
        """Say so where early stopping was asked for and the baseline's measurements brought no curve to judge by."""
        found = [row for rows in self.history.measurements.values() for row in rows]
        if self.settings.early_stop and not any(row.curve for row in found):
            self.reporter.say(
                "Nothing can be stopped early here: measurements of this adapter bring no curve, so each runs to its "
                "end."
            )

    def _stop_wanted(self) -> bool:
        """Say whether a person wants the confirmation to end, by Ctrl-C or by `autoresearch stop`."""
        for message in self.ledger.pending(self.run.id):
            if message.command == "stop":
                self.ledger.mark_handled(message.id)
                self.stop_wanted = "stopped by a person"
        return self.stop_wanted is not None

    def _tidy_last(self, saver: SqliteSaver) -> None:
        """Do again what a kill right after the last recording may have left undone."""
        if self.history.experiments:
            last = self.history.experiments[-1].number
            tidy(self._services(), last)
            saver.delete_thread(f"{self.run.id}/{last}")

    def _one_experiment(
        self, graph: CompiledStateGraph[State, Services, State, State], saver: SqliteSaver, number: int
    ) -> None:
        """Run the graph of one experiment to its end, from its last checkpoint where there is one."""
        thread = f"{self.run.id}/{number}"
        config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 1000}
        # A checkpoint, not `get_state().next`, tells that the experiment began: a kill between a node's writes and the
        # next checkpoint leaves `next` empty although the experiment is in its middle.
        entry: Any = {"number": number} if saver.get_tuple(config) is None else None
        services = self._services()
        while True:
            result = graph.invoke(entry, config, context=services, durability="sync")
            if "__interrupt__" not in result:
                break
            answer = self._wait_for_approval(number)
            if answer is None:
                return  # asked to stop meanwhile; the experiment waits in its checkpoint
            entry = Command(resume=answer)
        saver.delete_thread(thread)

    def _services(self) -> Services:
        return Services(
            run=self.run,
            history=self.history,
            session_id=self.session.id,
            session_started=self.session.started,
            ledger=self.ledger,
            store=self.store,
            layout=self.layout,
            adapter=self.adapter,
            proposer=self.proposer,
            policy=self.policy,
            settings=self.settings,
            sandbox=self.sandbox,
            reporter=self.reporter,
            now=self.moments.now,
            watch=self.watch,
            judge=self.judge,
            asleep=moments.asleep_seconds,
            sleep=self._sleep,
            budget_left=self._budget_left,
        )

    def _next_number(self) -> int:
        return max((row.number for row in self.history.experiments), default=-1) + 1

    def _free_number(self) -> int:
        """Return the first number that no experiment of a lane has; without lanes it is the next."""
        in_lanes = [row.number + 1 for row in self.ledger.unfinished(self.run.id) if row.lane]
        return max(self._next_number(), *in_lanes, 1)

    def _baseline_done(self) -> bool:
        return bool(self.history.experiments)

    # Budget

    def _spent(self) -> Spent:
        totals = self.ledger.totals(self.run.id, since_number=self.first_number)
        # By time: in lanes experiments end in another order than they begin.
        mine = [row for row in self.history.experiments if row.number > 0 and _ended(row) >= self.budget_began]
        return Spent(
            experiments=len(mine),
            seconds=self.seconds_before + time.monotonic() - self.began,
            usd=totals.usd,
            tokens=totals.tokens,
            samples=totals.measurements,
            since_keep=memory.experiments_since_keep(mine),
        )

    def _limit_reached(self) -> str | None:
        if not self._baseline_done():
            return None
        value = None
        if self.limits.target is not None:
            value = self.history.belief(self.policy, self.adapter.metric).value
        return limit_reached(self.limits, self._spent(), self.adapter.metric, value)

    def _nobody_left(self) -> str | None:
        """Return why no further live test can begin; one that was begun is finished all the same."""
        if not isinstance(self.adapter, RunsOut) or not self._baseline_done():
            return None
        return None if self.ledger.in_flight(self.run.id) is not None else self.adapter.used_up()

    def _budget_left(self) -> tuple[float | None, int | None]:
        """Return the dollars and tokens that the session may still spend; None without a cap."""
        if self.limits.max_usd is None and self.limits.max_tokens is None:
            return None, None
        spent = self._spent()
        usd = None if self.limits.max_usd is None else self.limits.max_usd - spent.usd
        tokens = None if self.limits.max_tokens is None else self.limits.max_tokens - spent.tokens
        return usd, tokens

    def _say_estimate(self, number: int) -> None:
        """Say what the session will take before the first call that may cost something."""
        services = self._services()
        cost = self.proposer.estimate(request_for(services, {"number": number, "attempt": 0}))
        seconds = self._measure_seconds() * 1.3 + cost.seconds
        left = "each experiment"
        factor = 1
        if self.limits.experiments is not None:
            factor = max(0, self.limits.experiments - self._spent().experiments)
            left = "1 experiment" if factor == 1 else f"{factor} experiments"
        self.reporter.say(
            f"Estimate for {left}: about {duration(seconds * factor)} (1.3 measurements each, some are taken twice) "
            f"and ${cost.usd * factor:.2f} for proposals ({cost.basis})."
        )
        if cost.usd > 0 and self.limits.max_usd is None:
            self.reporter.say("There is no cap on the cost; set one with --max-usd.")

    def _measure_seconds(self) -> float:
        """Return how long one measurement takes: as seen on the baseline, else as the adapter expects."""
        known = self.history
        rows = known.measurements[known.experiments[0].id] if known.experiments else []
        if rows:
            return sum(row.seconds for row in rows) / len(rows)
        if isinstance(self.adapter, OffersEstimate):
            context = RunContext(self.layout.state / "run.log", self.layout.state, self.settings.budget_seconds)
            return self.adapter.measure_seconds(context)
        return 0.0

    # Steering

    def _obey_controls(self) -> None:
        """Carry out what people sent through the control table."""
        paused = shown = False
        while True:
            for message in self.ledger.pending(self.run.id):
                if message.command in ("approve", "reject"):
                    continue  # answered where an experiment waits for it
                self.ledger.mark_handled(message.id)
                if message.command == "pause":
                    paused = True
                elif message.command == "resume":
                    paused = False
                elif message.command == "stop":
                    self.stop_wanted = "stopped by a person"
            if not paused or self.stop_wanted:
                break
            if not shown:
                self.ledger.update_run(self.run.id, state="paused")
                self.reporter.say("Paused; go on with autoresearch resume, or end with autoresearch stop.")
                shown = True
            time.sleep(POLL_SECONDS)
        if shown:
            self.ledger.update_run(self.run.id, state="running")
            self.reporter.say("Resumed.")

    def _wait_for_approval(self, number: int) -> str | None:
        """Return `approve` or `reject` once a person said so; None when asked to stop meanwhile."""
        self.reporter.say(
            f"Experiment {number} waits: autoresearch show {number} --diff, then autoresearch approve {number} "
            f"or autoresearch reject {number}"
        )
        while True:
            if (answer := self.answer(number)) is not None:
                return answer
            self._obey_controls()
            if self.stop_wanted:
                return None
            time.sleep(POLL_SECONDS)

    def _sleep(self, seconds: float) -> bool:
        """Wait, but not past a wish to stop; False when that cut the waiting short.

        Raises:
            RunStoppedError: If the hours of the session end meanwhile: a test takes weeks, and its run need not.
        """
        until = time.monotonic() + seconds
        hours = math.inf if self.limits.hours is None else self.limits.hours
        end = time.monotonic() + hours * 3600.0 - self._spent().seconds
        while (left := until - time.monotonic()) > 0:
            if self._stop_wanted():
                return False
            if time.monotonic() >= end:
                live = isinstance(self.adapter, LiveAdapter)
                goes_on = "; what is before people goes on, and run takes it up again" if live else ""
                raise RunStoppedError(f"hours: {hours:g} used{goes_on}")
            time.sleep(min(POLL_SECONDS, left))
        return True

    def _await_answer(self, seconds: float) -> None:
        """Wait a little for an answer from outside; longer while the run is paused.

        Raises:
            RunStoppedError: If a person wants the run to end, or its hours are over.
        """
        self._obey_controls()
        if self.stop_wanted is None and self._sleep(seconds):
            return
        by_signal = (self.stop_wanted or "").startswith("interrupted")
        reason = "interrupted while an answer was awaited" if by_signal else self.stop_wanted
        raise RunStoppedError(reason or "stopped by a person")

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Ctrl-C once: finish this experiment; twice, a request to terminate, or while preparing: now."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signal handlers belong to the main thread; a caller elsewhere steers by the control table
            return

        names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
        # Under nohup, or in the background of a script, some signals come ignored: then they are meant to be.
        heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

        def stop_at_once(number: int) -> None:
            for other in heard:
                signal.signal(other, signal.SIG_IGN)  # a third Ctrl-C must not break the tidying up
            self.at_once = f"interrupted at once{_SENT_BY.get(signal.Signals(number).name, '')}"
            raise KeyboardInterrupt

        def on_signal(number: int, frame: object) -> None:
            self.interrupts += 1
            if number != signal.SIGINT or self.interrupts > 1 or not self.begun:
                stop_at_once(number)
            self.stop_wanted = "interrupted after finishing the experiment"
            doing = "Ending the run, while its tests go on" if self.lanes else "Finishing this experiment"
            self.reporter.say(f"{doing}; press Ctrl-C again to stop at once.")

        for number in heard:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, before[number])

    def _end(self, reason: str) -> None:
        """Write down why the session ended."""
        now = self.moments.now()
        self.ledger.update_session(self.session.id, ended=now, reason=reason)
        self.ledger.update_run(self.run.id, state="stopped", stop_reason=reason, ended=now)


def choose_proposer(settings: Settings, reporter: Reporter) -> Proposer:
    """Return the proposer that was asked for: `claude` with a key, else `search`, where nobody asked.

    Raises:
        UsageError: If there is no proposer of that name.
        EnvironmentNotReadyError: If it cannot work here: no key.
    """
    has_key = has_credentials(os.environ)
    name = settings.proposer or ("claude" if has_key else "search")
    if settings.proposer is None:
        why = "an Anthropic key is set" if has_key else "no ANTHROPIC_API_KEY is set; offline and free"
        reporter.say(f"Proposer: {name} ({why}).")
    if not registry.is_ours(registry.PROPOSERS, name):
        return registry.create_proposer(name, model=settings.model, seed=settings.seed or 0)
    if name == "search":
        from autoresearch.core.proposers.search import SearchProposer

        return SearchProposer(seed=settings.seed or 0)
    if name == "mcp":
        from autoresearch.core.proposers.mcp import McpProposer

        return McpProposer()
    claude = ClaudeProposer(settings.model) if settings.model else ClaudeProposer()
    claude.check_ready()
    return claude


def versions() -> dict[str, str]:
    """Return the versions of everything that could change a result."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("autoresearch", "langgraph", "anthropic", "optuna", "scipy", "numpy", "torch", "sqlmodel"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed has no version
    return found


def _ended(row: Experiment) -> datetime:
    assert row.ended is not None, "it is among the finished ones"
    return row.ended


def _one_budget(sessions: Sequence[Session]) -> list[Session]:
    """Return the sessions, cut off one after another, whose budget the next one goes on with; none: a fresh budget."""
    found: list[Session] = []
    for row in reversed(sessions):
        if row.reason is not None and not row.reason.startswith(RESUMABLE):
            break
        found.insert(0, row)
    return found


def _session_seconds(session: Session, ledger: Ledger) -> float:
    """Return how long a session lasted; of a killed one, until the last thing that it wrote down."""
    end = session.ended
    if end is None:
        written = [
            row.ended or row.started for row in ledger.experiments(session.run_id) if row.session_id == session.id
        ]
        end = max(written, default=session.started)
    return max(0.0, (end - session.started).total_seconds())


_FULL = "database or disk is full"
"""What SQLite says where no space is left."""


@contextmanager
def _checkpointer(layout: Layout, reporter: Reporter) -> Iterator[SqliteSaver]:
    """Open LangGraph's checkpointer; its file holds the experiment in flight and nothing else."""
    try:
        saver = _open_saver(layout.checkpoints)
    except sqlite3.DatabaseError as error:
        if _FULL in str(error):
            raise
        # Nothing but the place in one experiment is lost: what it proposed and measured is in the ledger.
        reporter.say(f"{layout.checkpoints} was damaged and is made anew; the experiment in flight starts over.")
        for suffix in ("", "-wal", "-shm"):
            layout.checkpoints.with_name(layout.checkpoints.name + suffix).unlink(missing_ok=True)
        saver = _open_saver(layout.checkpoints)
    try:
        yield saver
    finally:
        saver.conn.close()


def _open_saver(path: Path) -> SqliteSaver:
    """Open the checkpoints and read them once, so that damage shows now."""
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        saver = SqliteSaver(connection)
        saver.setup()
        connection.execute("SELECT count(*) FROM checkpoints").fetchone()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return saver


@contextmanager
def _machine_faults() -> Iterator[None]:
    """Turn what the system says of a full disk into the sentence that a person needs."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _disk_full(str(error.filename or "")) from error
    except Exception as error:
        if _FULL not in str(error):
            raise
        raise _disk_full("the ledger") from error


def _disk_full(where: str) -> EnvironmentNotReadyError:
    free = shutil.disk_usage(Path.cwd()).free / 1e6
    return EnvironmentNotReadyError(
        f"The disk is full: {where or 'a file'} could not be written ({free:.0f} MB free here).\n"
        "Free some space and run again; the run goes on where it stopped."
    )
