"""The run from end to end, on a subject that is measured in microseconds."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from autoresearch.core import CandidateError, Cost, EnvironmentNotReadyError, ProposalError, UsageError, driver
from autoresearch.core.driver import RunResult, run
from autoresearch.core.errors import InvalidCandidateError, RunStoppedError
from autoresearch.core.graph import BASELINE_FAILED
from autoresearch.core.ledger import Experiment, Ledger
from autoresearch.core.readmodel import status_of
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout
from tests.core.fakes import (
    ControlPolicy,
    FakeProposer,
    HalvingProposer,
    Listening,
    SquareAdapter,
    failing,
    make_workspace,
)


def experiments(root: Path) -> list[Experiment]:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        return ledger.experiments(ledger.runs()[-1].id)


def go(root: Path, script: list[str | Exception], adapter: SquareAdapter | None = None, **choices: object) -> RunResult:
    choices = {"policy": "greedy", "baseline_runs": 1, "confirm": False, **choices}
    return run(adapter or SquareAdapter(), workspace=root, proposer=FakeProposer(script), **choices)  # type: ignore[arg-type]


def test_better_candidates_are_kept_and_worse_ones_reverted(tmp_path: Path) -> None:
    """The incumbent is the last kept candidate; the branch, the ledger and results.tsv agree."""
    root = make_workspace(tmp_path / "w")
    result = go(root, ["2", "5", "1"], experiments=3)
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "kept", "reverted", "kept"]
    assert result.status.kept == 2 and result.status.reverted == 1 and result.status.experiments == 3
    assert result.reason.startswith("experiments: 3 of 3")
    store = Store.open(root)
    assert store.head(result.status.run) == rows[3].kept_commit
    assert store.read(rows[3].kept_commit or "", ["number.txt"]).files["number.txt"] == "1"
    table = (root / "results.tsv").read_text().splitlines()
    assert table[0] == "commit\tsquare\tmemory_gb\tstatus\tdescription"
    assert [line.split("\t")[3] for line in table[1:]] == ["keep", "keep", "discard", "keep"]
    assert (root / "number.txt").read_text() == "3", "the user's file stays as it was"


def test_parent_of_each_experiment_is_the_incumbent_of_its_time(tmp_path: Path) -> None:
    """Every experiment names the incumbent that it was proposed on."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2", "5", "1"], experiments=3)
    rows = experiments(root)
    assert [row.parent_number for row in rows] == [None, 0, 1, 1]
    assert rows[3].parent_commit == rows[1].kept_commit


def test_a_tie_with_the_incumbent_is_reverted(tmp_path: Path) -> None:
    """A candidate must be strictly better to be kept by the greedy policy."""
    root = make_workspace(tmp_path / "w")
    go(root, ["-3"], SquareAdapter(noise=None), experiments=1)
    assert experiments(root)[1].outcome == "reverted"


def test_a_crash_goes_back_to_the_proposer_twice_then_counts(tmp_path: Path) -> None:
    """Two repairs are asked for, with the end of the log; then the experiment is crashed and has no value."""
    root = make_workspace(tmp_path / "w")
    proposer = FakeProposer(["a", "b", "c", "1"])
    run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", baseline_runs=1, experiments=2)
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "crashed", "kept"]
    assert rows[1].value is None and rows[1].repairs == 2
    failed = proposer.requests[2].failed
    assert failed is not None and failed.log_tail == "Traceback: b" and failed.proposal.hypothesis == "Try b"
    assert Store.open(root).head(rows[0].run_id) == rows[2].kept_commit


def test_a_repaired_candidate_is_measured_and_kept(tmp_path: Path) -> None:
    """The repaired candidate takes the place of the crashed one within the same experiment."""
    root = make_workspace(tmp_path / "w")
    go(root, ["oops", "1"], experiments=1)
    row = experiments(root)[1]
    assert (row.outcome, row.hypothesis, row.repairs) == ("kept", "Try 1", 1)


def test_refused_proposals_are_no_experiments(tmp_path: Path) -> None:
    """No change, a candidate tried before, a failed call: each gets a row of its own and is told to the proposer."""
    root = make_workspace(tmp_path / "w")
    failure = ProposalError("the answer was cut off", cost=Cost(usd=0.25, tokens_in=10, tokens_out=5))
    proposer = FakeProposer(["3", "4", "4", failure, "2"])
    result = run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", baseline_runs=1, experiments=2)
    rows = experiments(root)
    assert [row.hypothesis for row in rows[1:]] == ["Try 4", "Try 2"]
    assert "changes nothing" in proposer.requests[1].refused[0]
    assert "tried before" in proposer.requests[3].refused[0]
    assert "cut off" in proposer.requests[4].refused[1]
    assert result.status.usd == pytest.approx(0.25)
    assert rows[2].usd == pytest.approx(0.25) and rows[2].tokens == 15
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        statuses = [row.status for row in ledger.proposals(rows[0].run_id)]
    assert statuses == ["accepted", "refused", "accepted", "refused", "failed", "accepted"]


def test_changes_outside_the_scope_are_refused(tmp_path: Path) -> None:
    """A candidate that writes another file is never measured."""
    root = make_workspace(tmp_path / "w")

    class Wanderer(FakeProposer):
        def propose(self, request):  # type: ignore[no-untyped-def]
            made = super().propose(request)
            if self.asked == 1:
                files = {**made.artifact.files, "rules.md": "Bigger is better."}
                return type(made)(made.hypothesis, made.category, type(made.artifact)(files))
            return made

    proposer = Wanderer(["2", "1"])
    run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", baseline_runs=1, experiments=1)
    assert "rules.md lies outside the scope" in proposer.requests[1].refused[0]
    assert experiments(root)[1].hypothesis == "Try 1"


def test_ten_failures_in_a_row_end_the_session_with_a_reason(tmp_path: Path) -> None:
    """A proposer that only fails does not burn money for ever; the next session asks it again."""
    root = make_workspace(tmp_path / "w")
    proposer = FakeProposer([*failing(10), "1"])
    first = run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", baseline_runs=1, experiments=1)
    assert "failed 10 times in a row; the last time: failure 9" in first.reason
    assert first.status.experiments == 0 and first.fault
    second = run(SquareAdapter(), workspace=root, proposer=proposer, experiments=1)
    assert second.status.kept == 1


def test_an_exhausted_proposer_ends_the_session(tmp_path: Path) -> None:
    """Nothing left to try is a reason to stop, not an error."""
    result = go(make_workspace(tmp_path / "w"), ["2"], experiments=5)
    assert "the script has ended" in result.reason and result.status.experiments == 1 and not result.fault


def test_a_fault_of_the_machine_is_never_booked_on_the_candidate(tmp_path: Path) -> None:
    """The run stops with the reason, the experiment stays open, and the next session finishes it."""
    root = make_workspace(tmp_path / "w")
    broken = {"2"}

    def fault(text: str) -> None:
        if text in broken:
            raise EnvironmentNotReadyError("No GPU is visible.")

    adapter = SquareAdapter(fault=fault)
    with pytest.raises(EnvironmentNotReadyError, match="No GPU"):
        go(root, ["2"], adapter, experiments=1)
    assert experiments(root)[1].outcome is None
    broken.clear()
    listening = Listening()
    result = run(adapter, workspace=root, proposer=FakeProposer([]), reporter=listening)
    assert result.status.kept == 1 and result.reason.startswith("experiments: 1 of 1")
    assert any("Found experiment 1 unfinished" in text for text in listening.said)


def test_an_invalid_candidate_is_not_repaired(tmp_path: Path) -> None:
    """A failed gate ends the experiment as invalid, without a value and without a repair."""

    def fault(text: str) -> None:
        if text == "1":
            raise InvalidCandidateError("The mask leaks the future.")

    root = make_workspace(tmp_path / "w")
    go(root, ["1", "2"], SquareAdapter(fault=fault), experiments=2)
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "invalid", "kept"]
    assert rows[1].value is None and rows[1].reason == "The mask leaks the future."


def test_a_hopeless_candidate_is_reverted_early(tmp_path: Path) -> None:
    """Early is a reason of reverted, not an outcome."""

    def fault(text: str) -> None:
        if text == "9":
            raise CandidateError("far above the incumbent's curve", early=True)

    root = make_workspace(tmp_path / "w")
    go(root, ["9"], SquareAdapter(fault=fault), experiments=1)
    row = experiments(root)[1]
    assert (row.outcome, row.reason) == ("reverted", "early: far above the incumbent's curve")


def test_a_disturbed_measurement_is_taken_again(tmp_path: Path) -> None:
    """What another program disturbed is written down and not judged."""
    root = make_workspace(tmp_path / "w")
    adapter = SquareAdapter(disturbed=lambda count: "a neighbour took the processor" if count == 2 else None)
    go(root, ["2"], adapter, experiments=1)
    assert adapter.measured == [("3", 0), ("2", 0), ("2", 0)]
    row = experiments(root)[1]
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        found = ledger.measurements(row.id or 0)
    assert [m.disturbed for m in found] == ["a neighbour took the processor", None]
    assert row.outcome == "kept"


def test_a_machine_that_is_always_disturbed_gives_no_verdict(tmp_path: Path) -> None:
    """Three disturbed measurements end the experiment as inconclusive."""
    root = make_workspace(tmp_path / "w")
    adapter = SquareAdapter(disturbed=lambda count: "noise" if count > 1 else None)
    go(root, ["2"], adapter, experiments=1)
    assert experiments(root)[1].outcome == "inconclusive"
    assert len(adapter.measured) == 4


def test_a_baseline_that_cannot_be_measured_stops_the_run(tmp_path: Path) -> None:
    """Without a baseline there is nothing to compare with; the sentence says where its output is."""
    root = make_workspace(tmp_path / "w", number="three")
    with pytest.raises(
        RunStoppedError, match=r"The baseline cannot be measured: 'three' is no number(?s:.*)show 0 --log"
    ):
        go(root, ["2"], experiments=1)


def test_the_second_look_uses_the_next_seed_of_everybody(tmp_path: Path) -> None:
    """Candidate and baseline meet the same seeds in the same order."""
    root = make_workspace(tmp_path / "w")
    adapter = SquareAdapter(noise=1.0)
    run(adapter, workspace=root, proposer=FakeProposer(["2.9"]), seed=7, experiments=1)
    assert adapter.measured[:2] == [("3", 7), ("3", 8)]
    assert adapter.measured[2:] in ([("2.9", 7)], [("2.9", 7), ("2.9", 8)])


def test_outputs_of_the_incumbent_are_kept(tmp_path: Path) -> None:
    """What the kept measurement left is copied, and scratch folders are removed."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2", "5"], experiments=2)
    assert (root / ".autoresearch" / "incumbent" / "weights.bin").read_text() == "2"
    assert not list((root / ".autoresearch" / "experiments").glob("*/scratch-*"))


def test_a_session_that_reached_its_limit_gets_a_fresh_budget_next_time(tmp_path: Path) -> None:
    """`run` again goes on with the same run for as many experiments more."""
    root = make_workspace(tmp_path / "w")
    first = run(SquareAdapter(), workspace=root, proposer=HalvingProposer(), policy="greedy", experiments=2)
    second = run(SquareAdapter(), workspace=root, proposer=HalvingProposer(), experiments=2)
    assert second.status.run == first.status.run and second.status.experiments == 4


def test_new_begins_another_run(tmp_path: Path) -> None:
    """`--new` leaves the old run as it is."""
    root = make_workspace(tmp_path / "w")
    first = go(root, ["2"], experiments=1)
    second = go(root, ["1"], experiments=1, new=True)
    assert second.status.run != first.status.run and second.status.experiments == 1


def test_changing_the_rules_midway_is_refused(tmp_path: Path) -> None:
    """A run keeps policy, seed, budget and options; the message says what would change."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2"], experiments=1)
    with pytest.raises(UsageError, match="policy 'greedy' -> 'bayes'"):
        go(root, ["1"], experiments=1, policy="bayes")
    with pytest.raises(UsageError, match="seed 0 -> 5"):
        go(root, ["1"], experiments=1, seed=5)
    with pytest.raises(UsageError, match=r"would change option size None -> '3'\.\nLeave that out .*autoresearch.toml"):
        go(root, ["1"], experiments=1, options={"size": "3"})


def test_a_changed_evaluator_is_refused(tmp_path: Path) -> None:
    """Values of another evaluator or other data cannot be compared."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2"], experiments=1)
    with pytest.raises(EnvironmentNotReadyError, match="evaluator or its data changed"):
        go(root, ["1"], SquareAdapter(fingerprint="square-2"), experiments=1)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_samples": 3}, "max_samples: 3 of 3 taken"),
        ({"target": 1.2}, "target: square"),
        ({"patience": 2}, "patience: 2 experiments in a row"),
        ({"hours": 1e-9}, "hours: "),
    ],
)
def test_every_limit_ends_the_session_with_its_reason(tmp_path: Path, limit: dict[str, float], reason: str) -> None:
    """Samples, a target, patience and hours each end the session and say so."""
    result = go(make_workspace(tmp_path / "w"), ["2", "1", "8", "9", "7"], **limit)
    assert result.reason.startswith(reason)


def test_a_second_run_in_one_workspace_is_refused(tmp_path: Path) -> None:
    """The message names the process that holds the workspace."""
    root = make_workspace(tmp_path / "w")
    refused: list[str] = []

    def second(number: int, phase: str) -> None:
        if not refused:
            with pytest.raises(UsageError) as caught:
                go(root, ["1"], experiments=1)
            refused.append(str(caught.value))

    run(
        SquareAdapter(),
        workspace=root,
        proposer=FakeProposer(["2"]),
        policy="greedy",
        experiments=1,
        reporter=Listening(on_phase=second),
    )
    assert f"process {os.getpid()}" in refused[0]


def test_controls_stop_a_run_and_notes_reach_the_proposer(tmp_path: Path) -> None:
    """A note sent while the run goes on is in the next request; stop ends the session after the experiment."""
    root = make_workspace(tmp_path / "w")
    proposer = HalvingProposer()
    notes: list[tuple[str, ...]] = []
    original = proposer.propose

    def watch(request):  # type: ignore[no-untyped-def]
        notes.append(request.notes)
        return original(request)

    proposer.propose = watch  # type: ignore[method-assign]

    def send(number: int, phase: str) -> None:
        with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
            run_id = ledger.runs()[-1].id
            if (number, phase) == (1, "observe"):
                ledger.send(run_id, "note", "try smaller numbers")
            if (number, phase) == (2, "observe"):
                ledger.send(run_id, "stop")

    result = run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", reporter=Listening(on_phase=send))
    assert result.reason == "stopped by a person" and result.status.experiments == 2
    assert notes == [(), ("try smaller numbers",)]


def test_a_candidate_waits_for_approval_and_may_be_rejected(tmp_path: Path) -> None:
    """With --approve nothing new is measured before a person says so."""
    root = make_workspace(tmp_path / "w")
    adapter = SquareAdapter()
    listening = Listening()

    def answer() -> None:
        deadline = time.monotonic() + 20
        for number, command in ((1, "reject"), (2, "approve")):
            while not any(f"Experiment {number} waits" in text for text in listening.said):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
                ledger.send(ledger.runs()[-1].id, command, str(number))

    helper = threading.Thread(target=answer)
    helper.start()
    run(
        adapter,
        workspace=root,
        proposer=FakeProposer(["1", "2"]),
        policy="greedy",
        baseline_runs=1,
        experiments=2,
        approve=True,
        reporter=listening,
    )
    helper.join()
    rows = experiments(root)
    assert [(row.outcome, row.reason) for row in rows[1:2]] == [("reverted", "rejected by a person")]
    assert rows[2].outcome == "kept" and ("1", 0) not in adapter.measured


def test_stop_while_a_candidate_waits_leaves_it_waiting(tmp_path: Path) -> None:
    """The session ends as stopped, not interrupted, and the next one asks again."""
    root = make_workspace(tmp_path / "w")

    def stop(number: int, phase: str) -> None:
        if (number, phase) == (1, "approve"):
            with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
                ledger.send(ledger.runs()[-1].id, "stop")

    choices = {"policy": "greedy", "baseline_runs": 1, "experiments": 1, "approve": True}
    first = run(
        SquareAdapter(),
        workspace=root,
        proposer=FakeProposer(["2"]),
        reporter=Listening(on_phase=stop),
        **choices,  # type: ignore[arg-type]
    )
    assert first.reason == "stopped by a person" and not first.interrupted
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        ledger.send(ledger.runs()[-1].id, "approve", "1")
    second = run(SquareAdapter(), workspace=root, proposer=FakeProposer([]), approve=True)
    assert second.status.kept == 1


def test_a_stop_that_nobody_heard_does_not_end_the_next_session(tmp_path: Path) -> None:
    """A message to a dead session is not obeyed by the next; notes stay."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2"], experiments=1)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        ledger.send(ledger.runs()[-1].id, "stop")
        ledger.send(ledger.runs()[-1].id, "note", "smaller")
    proposer = FakeProposer(["1"])
    run(SquareAdapter(), workspace=root, proposer=proposer, experiments=1)
    assert proposer.requests[0].notes == ("smaller",)


def test_a_policy_that_needs_the_noise_says_so(tmp_path: Path) -> None:
    """One measurement of the baseline is too few for bayes where the adapter states no noise."""
    root = make_workspace(tmp_path / "w")
    with pytest.raises(UsageError, match="measured twice"):
        go(root, ["2"], SquareAdapter(noise=None), policy="bayes")


def test_a_metric_that_repeats_exactly_is_judged_by_bayes(tmp_path: Path) -> None:
    """Without any noise every difference is real."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2", "2.5", "1"], SquareAdapter(noise=None), policy="bayes", baseline_runs=2, experiments=3)
    assert [row.outcome for row in experiments(root)] == ["kept", "kept", "reverted", "kept"]


def test_pause_holds_the_run_until_resume(tmp_path: Path) -> None:
    """While paused nothing is measured and the ledger says so."""
    root = make_workspace(tmp_path / "w")
    seen: list[str] = []
    path = root / ".autoresearch" / "ledger.db"

    def pause(number: int, phase: str) -> None:
        if (number, phase) == (1, "observe"):
            with Ledger.open(path) as ledger:
                ledger.send(ledger.runs()[-1].id, "pause")

    def resume() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if path.exists():
                with Ledger.open(path) as ledger:
                    if ledger.runs() and ledger.runs()[-1].state == "paused":
                        seen.append("paused")
                        ledger.send(ledger.runs()[-1].id, "resume")
                        return
            time.sleep(0.05)

    helper = threading.Thread(target=resume)
    helper.start()
    result = run(
        SquareAdapter(),
        workspace=root,
        proposer=FakeProposer(["2", "1"]),
        policy="greedy",
        experiments=2,
        reporter=Listening(on_phase=pause),
    )
    helper.join()
    assert seen == ["paused"] and result.status.experiments == 2


def test_damaged_checkpoints_are_made_anew(tmp_path: Path) -> None:
    """Only the place in the experiment is lost: its proposal and measurements are read back from the ledger."""
    root = make_workspace(tmp_path / "w")
    broken = {"2"}

    def fault(text: str) -> None:
        if text in broken:
            raise EnvironmentNotReadyError("No GPU is visible.")

    with pytest.raises(EnvironmentNotReadyError):
        go(root, ["oops", "2"], SquareAdapter(fault=fault), experiments=1)
    broken.clear()
    (root / ".autoresearch" / "checkpoints.db").write_bytes(os.urandom(5000))
    listening = Listening()
    result = run(SquareAdapter(), workspace=root, proposer=FakeProposer([]), reporter=listening)
    assert result.status.kept == 1 and experiments(root)[1].repairs == 1
    assert any("checkpoints.db was damaged" in text for text in listening.said)


def test_a_full_disk_is_the_machines_fault_in_the_ledger_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints that cannot be written for want of space are not called damaged, and stay."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2"], experiments=1)
    checkpoints, listening = root / ".autoresearch" / "checkpoints.db", Listening()

    def full(path: Path) -> NoReturn:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(driver, "_open_saver", full)
    with pytest.raises(EnvironmentNotReadyError, match="The disk is full"):
        run(SquareAdapter(), workspace=root, proposer=FakeProposer(["1"]), experiments=1, reporter=listening)
    assert checkpoints.exists() and not any("damaged" in text for text in listening.said)
    with Ledger.open(Layout(root).ledger) as ledger:
        reason = status_of(ledger, ledger.runs()[0], at_work=False).stop_reason
    assert reason is not None and reason.startswith("environment: The disk is full")


def test_half_a_character_is_a_failed_proposal(tmp_path: Path) -> None:
    """What no file can hold never reaches the ledger or git."""
    root = make_workspace(tmp_path / "w")
    proposer = FakeProposer(["\ud800", "2"])
    run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", baseline_runs=1, experiments=1)
    assert "half a character" in proposer.requests[1].refused[0]


def test_a_hangup_that_comes_ignored_stays_ignored(tmp_path: Path) -> None:
    """Under nohup a run outlives its terminal."""
    root = make_workspace(tmp_path / "w")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = run(
            SquareAdapter(),
            workspace=root,
            proposer=HalvingProposer(),
            policy="greedy",
            experiments=2,
            reporter=Listening(on_phase=lambda number, phase: os.kill(os.getpid(), signal.SIGHUP)),
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not result.interrupted and result.status.experiments == 2


def test_many_interrupts_leave_a_tidy_end(tmp_path: Path) -> None:
    """Whoever leans on Ctrl-C still gets a session with a reason, and no trace."""
    root = make_workspace(tmp_path / "w")

    def interrupt(number: int, phase: str) -> None:
        if (number, phase) == (1, "observe"):
            for _ in range(8):
                os.kill(os.getpid(), signal.SIGINT)

    listening = Listening(on_phase=interrupt)
    result = run(SquareAdapter(), workspace=root, proposer=HalvingProposer(), policy="greedy", reporter=listening)
    assert result.reason == "interrupted at once" and result.status.state == "stopped"


def test_the_run_that_began_last_goes_on_whatever_the_clock_says(tmp_path: Path) -> None:
    """A clock set back does not bring an older run back."""
    root = make_workspace(tmp_path / "w")
    first = go(root, ["2"], experiments=1)
    second = go(root, ["1"], experiments=1, new=True)
    assert first.status.run != second.status.run
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        ledger.update_run(first.status.run, created=ledger.run(second.status.run).created + timedelta(days=1))
        latest = ledger.latest_run()
    assert latest is not None and latest.id == second.status.run


def test_the_first_interrupt_finishes_the_experiment(tmp_path: Path) -> None:
    """Ctrl-C once ends the session after the experiment; the next session has the rest of the budget."""
    root = make_workspace(tmp_path / "w")

    def interrupt(number: int, phase: str) -> None:
        if (number, phase) == (1, "propose"):
            os.kill(os.getpid(), signal.SIGINT)

    first = run(
        SquareAdapter(),
        workspace=root,
        proposer=HalvingProposer(),
        policy="greedy",
        experiments=3,
        reporter=Listening(on_phase=interrupt),
    )
    assert first.interrupted and first.status.experiments == 1
    second = run(SquareAdapter(), workspace=root, proposer=HalvingProposer())
    assert second.status.experiments == 3 and second.reason.startswith("experiments: 3 of 3")


def test_the_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    """The experiment in flight stays open and goes on next time; no thread of it is lost."""
    root = make_workspace(tmp_path / "w")

    def interrupt(number: int, phase: str) -> None:
        if (number, phase) == (1, "observe"):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    first = run(
        SquareAdapter(),
        workspace=root,
        proposer=HalvingProposer(),
        policy="greedy",
        experiments=2,
        reporter=Listening(on_phase=interrupt),
    )
    assert first.interrupted and first.status.experiments == 0
    second = run(SquareAdapter(), workspace=root, proposer=HalvingProposer())
    assert second.status.experiments == 2


def test_the_users_dirty_checkout_is_never_touched(tmp_path: Path) -> None:
    """Index, staged and untracked files and branches are the same after a run inside a user's repository."""
    repository = tmp_path / "Mein Projekt ü"
    root = make_workspace(repository / "sub folder")

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=u", "-c", "user.email=u@example.org", *words],
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    (repository / "staged.txt").write_text("staged")
    git("add", "staged.txt")
    (root / "number.txt").write_text("4")
    (repository / "untracked.txt").write_text("precious")
    before = (git("status", "--porcelain=v2"), (repository / ".git" / "index").read_bytes(), git("rev-parse", "main"))
    go(root, ["2", "9"], experiments=2)
    (root / "results.tsv").unlink()
    after = (git("status", "--porcelain=v2"), (repository / ".git" / "index").read_bytes(), git("rev-parse", "main"))
    assert after == before
    assert (repository / "untracked.txt").read_text() == "precious"
    assert git("fsck", "--strict", "--no-dangling") == ""


def test_the_reason_of_a_failed_baseline_begins_as_a_comparison_expects(tmp_path: Path) -> None:
    """What reads reasons and what writes them share the words."""
    root = make_workspace(tmp_path / "w", number="three")
    with pytest.raises(RunStoppedError):
        go(root, ["2"], experiments=1)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        reason = ledger.sessions(ledger.runs()[-1].id)[-1].reason
    assert reason is not None and reason.startswith(BASELINE_FAILED)


def arms_of(root: Path, number: int) -> list[tuple[str, int, int]]:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        row = ledger.experiment(ledger.runs()[-1].id, number)
        assert row is not None
        return [(m.arm, m.look, m.seed) for m in ledger.measurements(row.id)]


def test_the_incumbent_is_measured_beside_the_candidate_where_asked(tmp_path: Path) -> None:
    """Arms are measured in the order asked for, with seeds that the other arm met, the incumbent by its own text."""
    root, adapter = make_workspace(tmp_path / "w"), SquareAdapter()
    go(root, ["2", "1"], adapter, experiments=2, seed=7, policy=ControlPolicy((("control",), ("control", "treatment"))))
    assert arms_of(root, 2) == [
        ("treatment", 0, 7),
        ("control", 1, 7),
        ("control", 2, 8),
        ("treatment", 2, 8),
    ]
    assert adapter.measured[-4:] == [("1", 7), ("2", 7), ("2", 8), ("1", 8)]
    assert [row.value for row in experiments(root)][2] == pytest.approx(1, abs=0.01), "the candidate's runs alone"
    assert (root / ".autoresearch" / "incumbent" / "weights.bin").read_text() == "1"


def test_outputs_are_kept_where_the_last_look_was_at_the_incumbent(tmp_path: Path) -> None:
    """The weights kept are the candidate's, of the last look that measured it."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2"], experiments=1, policy=ControlPolicy((("control",),)))
    assert (root / ".autoresearch" / "incumbent" / "weights.bin").read_text() == "2"


def test_an_incumbent_that_fails_beside_a_candidate_stops_the_run(tmp_path: Path) -> None:
    """What was measured before and fails three times now is the machine's fault, and nothing is booked."""
    root = make_workspace(tmp_path / "w")
    adapter, policy = SquareAdapter(), ControlPolicy((("control",),))
    go(root, ["2"], adapter, experiments=1, policy=policy)
    adapter.fault = lambda text: failed("the card fell off") if text == "2" else None
    with pytest.raises(EnvironmentNotReadyError, match="measured before, and now it fails 3 times in a row: the card"):
        go(root, ["1"], adapter, experiments=1, policy=policy)
    assert experiments(root)[-1].outcome is None


def failed(reason: str) -> None:
    raise CandidateError(reason)


def test_the_level_of_isolation_is_recorded(tmp_path: Path) -> None:
    """What was asked for is what each experiment and each measurement's context says; unconfined levels are told."""
    root, reporter = make_workspace(tmp_path / "w"), Listening()
    go(root, ["2"], experiments=1, sandbox="limits", reporter=reporter)
    assert [row.sandbox for row in experiments(root)] == ["limits", "limits"]
    assert any(said.startswith("Sandbox: limits. Candidates are not kept from files") for said in reporter.said)


def test_a_level_that_is_none_is_refused(tmp_path: Path) -> None:
    """A misspelt level does not fall back to another."""
    with pytest.raises(UsageError, match="no sandbox level 'bubble'"):
        go(make_workspace(tmp_path / "w"), ["2"], experiments=1, sandbox="bubble")
