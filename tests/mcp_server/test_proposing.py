"""A coding agent proposes, the loop decides; either side may go away at any moment."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoresearch.adapters.ml_training import create_adapter
from autoresearch.core import driver
from autoresearch.core.artifact import Artifact, in_scope
from autoresearch.core.errors import ProposalError, UsageError
from autoresearch.core.ledger import Ledger
from autoresearch.core.proposers.exchange import Answer, Edit, Exchange, FileText, asked_of, key_of
from autoresearch.core.proposers.mcp import McpProposer
from autoresearch.core.readmodel import status_of
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout
from tests.core.fakes import SquareAdapter, make_workspace
from tests.core.proposers.test_prompt import request
from tests.mcp_server.conftest import answer, at_work, experiments, proposals


def test_the_loop_judges_what_an_agent_proposes(tmp_path: Path) -> None:
    """A better candidate is kept and a worse one reverted, as with any proposer."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, experiments=2) as working:
        first = working.asked(1)
        assert [file.text for file in first.files] == ["3"] and first.editable == ["number.txt"]
        assert [file.path for file in first.readonly] == ["rules.md"] and first.program == "Find a small number."
        working.propose("2", 1)
        second = working.asked(2)
        assert [(past.outcome, past.hypothesis) for past in second.history] == [("kept", "Try 2.")]
        assert second.material != first.material and [file.text for file in second.files] == ["2"]
        working.propose("5", 2)
        result = working.result()
    assert [row.outcome for row in experiments(root)] == ["kept", "kept", "reverted"]
    assert {row.proposer for row in experiments(root)[1:]} == {"mcp"}
    assert result.reason == "experiments: 2 of 2 done"
    assert "waits for the proposal of a coding agent" in "".join(working.reporter.said)


def test_an_answer_that_cannot_be_applied_is_refused_at_once(tmp_path: Path) -> None:
    """Out of scope, no match, unknown category: each is told why, the request stays open and no row is made."""
    root = make_workspace(tmp_path / "w")
    with at_work(root) as working:
        asked = working.asked(1)
        faults: dict[str, dict[str, Any]] = {
            "rules.md is outside": {"files": [FileText(path="rules.md", text="All is well.")]},
            "no path inside": {"files": [FileText(path="../../evil.txt", text="x")]},
            "does not occur": {"edits": [Edit(path="number.txt", search="7", replace="1")]},
            "holds no edit": {},
            "leave every file as it was": {"files": [FileText(path="number.txt", text="3")]},
            "no category 'magic'": {"category": "magic", "files": [FileText(path="number.txt", text="1")]},
            "and this one has 0": {"hypothesis": " ", "files": [FileText(path="number.txt", text="1")]},
        }
        for words, given in faults.items():
            fields = {"request": asked.request, "hypothesis": "Why not.", "category": "constants", **given}
            with pytest.raises(ProposalError, match=words):
                working.desk.propose(Answer.model_validate(fields))
        assert working.asked(1).request == asked.request
        assert proposals(root) == []


def test_a_forged_answer_is_refused_by_the_loop(tmp_path: Path) -> None:
    """Who writes an answer past the server changes nothing out of scope: the loop applies the same rules again."""
    root = make_workspace(tmp_path / "w")
    with at_work(root) as working:
        asked = working.asked(1)
        forged = Answer(
            request=asked.request,
            hypothesis="Judge yourself.",
            category="constants",
            files=[FileText(path="rules.md", text="Bigger is better.")],
        )
        assert Exchange(Layout(root).agent).answer(forged)
        again = working.asked(1)
        assert again.request != asked.request and "rules.md is outside what may change" in again.refused[0]
    (row,) = proposals(root)
    assert (row.status, row.files) == ("failed", {})
    assert (root / "rules.md").read_text() == "Smaller is better."


def test_what_was_tried_comes_back_with_the_reason(tmp_path: Path) -> None:
    """A candidate that the loop's check refuses leads to another request, which says why."""
    root = make_workspace(tmp_path / "w")
    with at_work(root) as working:
        working.propose("5", 1)
        working.propose("5", 2)
        again = working.asked(2)
        assert again.kind == "propose" and "tried" in again.refused[0]
    assert [row.status for row in proposals(root)] == ["accepted", "refused"]


def test_a_crash_comes_back_for_repair(tmp_path: Path) -> None:
    """The request then holds the failed candidate with the end of its log, cleaned."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, experiments=1) as working:
        working.propose("two\u200b", 1)
        repair = working.asked(1)
        assert repair.kind == "repair" and repair.failed is not None
        assert repair.failed.log_tail == "Traceback: two" and "+two" in repair.failed.diff
        working.propose("2", 1)
        working.result()
    assert [(row.outcome, row.repairs) for row in experiments(root)] == [("kept", 0), ("kept", 1)]


def test_stop_ends_the_waiting(tmp_path: Path) -> None:
    """A run that waits for an agent stops at once; the next session asks for the same again, with the same key."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, experiments=1) as working:
        first = working.asked(1)
        working.desk.send("stop")
        assert working.result().reason == "stopped by a person"
        stopped = working.desk.next_request("")
        assert stopped.state == "stopped" and stopped.request is None and "stopped by a person" in stopped.said
        with pytest.raises(UsageError, match="nothing is asked for"):
            working.desk.propose(answer(first, "2"))
        with pytest.raises(UsageError, match="nobody to pause"):
            working.desk.send("pause")
    with at_work(root) as working:
        assert working.asked(1).request == first.request
        working.propose("2", 1)
        assert working.result().reason == "experiments: 1 of 1 done"


def test_pause_holds_the_request_back(tmp_path: Path) -> None:
    """While a run is paused it hands nothing out; after resume the same request is open."""
    root = make_workspace(tmp_path / "w")
    with at_work(root) as working:
        first = working.asked(1)
        working.desk.send("pause")
        assert working.until("paused").request is None
        working.desk.send("resume")
        assert working.asked(1).request == first.request


def test_the_hours_of_a_run_include_the_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose hours are over ends although an agent has still to answer."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, hours=1) as working:
        working.asked(1)
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3601, sleep=time.sleep)
        monkeypatch.setattr(driver, "time", later)
        assert working.result().reason == "hours: 1 used"


def test_silence_ends_the_session(tmp_path: Path) -> None:
    """An agent that never answers ends the session with a reason after which the next one has the same budget left."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, experiments=1, proposer=McpProposer(patience_seconds=0.1)) as working:
        result = working.result()
    assert result.fault and result.reason.startswith("stopped: no coding agent proposed experiment 1 within")
    assert proposals(root) == [], "silence is no proposal"
    with at_work(root) as working:
        working.propose("2", 1)
        assert working.result().reason == "experiments: 1 of 1 done"


def test_an_answer_outlives_the_run_that_asked(tmp_path: Path) -> None:
    """A run that was killed while it waited takes up an answer given meanwhile; asking again loses nothing."""
    asked = asked_of(request(), str)
    exchange = Exchange(tmp_path / "agent")
    exchange.ask(asked)
    pending = exchange.pending()
    assert pending == asked
    change = {path: text + "\n# more\n" for path, text in asked.artifact.items() if path in asked.editable}
    given = Answer(
        request=asked.seen.request,
        hypothesis="More.",
        category=asked.seen.categories[0],
        files=[FileText(path=path, text=text) for path, text in change.items()],
    )
    assert exchange.answer(given)
    for _ in range(2):  # the second time as after a kill between taking the answer and writing it down
        proposer = McpProposer(environ={})
        proposer.attend(tmp_path / "agent", _never, _say_nothing)
        assert proposer.propose(request()).artifact.files == {**asked.artifact, **change}


def _never(seconds: float) -> None:
    raise AssertionError("there is nothing to wait for")


def _say_nothing(text: str) -> None:
    """Hear nothing."""


def test_the_first_answer_stands(tmp_path: Path) -> None:
    """Of two agents that answer the same request one is told that it came too late."""
    root = make_workspace(tmp_path / "w")
    asked = asked_of(request(), str)
    exchange = Exchange(root / "agent")
    exchange.ask(asked)
    first, second = (Answer(request=asked.seen.request, hypothesis=text, category="other") for text in "ab")
    assert exchange.answer(first) and not exchange.answer(second)
    assert exchange.answer_to(asked.seen.request) == first
    assert {path.name[:6] for path in (root / "agent").iterdir()} == {"reques", "answer"}, "nothing is left over"


def test_an_answer_counts_for_its_own_artifact_only(tmp_path: Path) -> None:
    """After a rollback the same experiment is asked for from another artifact, under another key."""
    asked = request()
    changed = asked.artifact.replace(dict.fromkeys(asked.artifact.files, "# other\n"))
    assert key_of(asked) != key_of(request(artifact=changed))


def test_a_later_question_clears_old_answers_away(tmp_path: Path) -> None:
    """Asking for something else removes what was answered before; asking for the same does not."""
    exchange = Exchange(tmp_path / "agent")
    one, other = asked_of(request(), str), asked_of(request(id="r/9/1"), str)
    exchange.ask(one)
    exchange.answer(Answer(request=one.seen.request, hypothesis="a", category="other"))
    exchange.ask(one)
    assert exchange.answer_to(one.seen.request) is not None
    exchange.ask(other)
    assert exchange.answer_to(one.seen.request) is None
    assert [path.name for path in (tmp_path / "agent").iterdir()] == ["request.json"]


def test_a_file_of_another_version_is_named(tmp_path: Path) -> None:
    """A request that this version does not understand is an error with a way out, not an empty desk."""
    (tmp_path / "request.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"request\.json is no asked that this version understands"):
        Exchange(tmp_path).pending()


def test_without_a_run_there_is_nobody_to_ask() -> None:
    """The proposer says so where it is used outside a run."""
    with pytest.raises(UsageError, match="through the workspace of a run"):
        McpProposer().propose(request())


def test_notes_reach_an_agent_that_is_already_asked(tmp_path: Path) -> None:
    """A note that comes while the request lies there is in the next answer of next_request."""
    root = make_workspace(tmp_path / "w")
    with at_work(root) as working:
        assert working.asked(1).notes == []
        working.desk.send("note", "Smaller\x1b[31m steps.")
        assert working.asked(1).notes == ["Smaller steps."]


def test_material_that_an_agent_has_is_left_out(tmp_path: Path) -> None:
    """Files, program and history are not sent again to who still has them; after a keep the files are."""
    root = make_workspace(tmp_path / "w")
    with at_work(root) as working:
        first = working.asked(1)
        short = working.desk.next_request(first.material).request
        assert short is not None and (short.files, short.readonly, short.program) == ([], [], "")
        working.propose("2", 1)
        working.asked(2)
        whole = working.desk.next_request(first.material).request
        assert whole is not None and [file.text for file in whole.files] == ["2"]
        assert [past.number for past in whole.history] == [1]
        later = working.desk.next_request(seen_up_to=1).request
        assert later is not None and (later.history, later.history_left_out) == ([], 1)


def test_secrets_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of the environment and keys of known shapes are hidden from an agent, which cannot overwrite them."""
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")
    root = make_workspace(tmp_path / "w")
    (root / "rules.md").write_text("key sk-ant-abcdefghijkl\ntoken hunter2-hunter2\n", encoding="utf-8")
    with at_work(root) as working:
        text = working.asked(1).model_dump_json()
        assert "hunter2" not in text and "abcdefghijkl" not in text and text.count("[redacted:") >= 2
        with pytest.raises(ProposalError, match="stands for a secret"):
            working.desk.propose(answer(working.asked(1), "[redacted: environment]"))


def test_an_agent_never_sees_the_holdout(tmp_path: Path) -> None:
    """What the holdout said of the gain is in the ledger and in no answer of a tool while an agent proposes."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, experiments=1, confirm=True) as working:
        working.propose("1", 1)
        working.result()
        with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
            run = ledger.latest_run()
            assert run is not None
            confirmed = status_of(ledger, run, at_work=False).confirmed_gain
            fresh = [row.value for row in ledger.fresh(run.id, "holdout")]
        assert confirmed is not None and fresh, "there is something to hide"
        desk = working.desk
        shown = [desk.status(), desk.log(10), desk.next_request(""), desk.show("1", diff=True, log=True)]
    text = json.dumps([answer.model_dump() for answer in shown])
    assert desk.status().confirmed_hidden
    assert "holdout" not in text.lower()
    assert not [value for value in (confirmed, *fresh) if value is not None and repr(value) in text]


def test_who_proposes_does_not_approve(tmp_path: Path) -> None:
    """Where a person approves first, an agent can withdraw its own candidate and not wave it through."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, approve=True) as working:
        working.propose("2", 1)
        working.until("busy", said="Experiment 1 waits for a person's approval.")
        with pytest.raises(UsageError, match="who proposes does not approve"):
            working.desk.send("approve", "1")
        working.desk.send("reject", "1")
        working.asked(2)
        with pytest.raises(UsageError, match="waits for no answer"):
            working.desk.send("reject", "1")
    assert experiments(root)[1].reason == "rejected by a person"


def test_the_branch_holds_what_the_loop_kept(tmp_path: Path) -> None:
    """The kept artifact is in git and the user's own file is as it was."""
    root = make_workspace(tmp_path / "w")
    with at_work(root, SquareAdapter(), experiments=1) as working:
        working.propose("2", 1)
        run = working.result().status.run
    store = Store.open(root)
    assert store.read(store.head(run) or "", ["number.txt"]).files == {"number.txt": "2"}
    assert (root / "number.txt").read_text() == "3"


def test_the_page_says_how_much_an_agent_reads() -> None:
    """docs/mcp.md has the size of the first request of the `ml` adapter, with and without its material."""
    adapter = create_adapter({})
    files = adapter.workspace_files()
    artifact = Artifact({path: text for path, text in files.items() if in_scope(path, adapter.scope.editable)})
    asked = asked_of(
        request(
            artifact=artifact,
            scope=adapter.scope,
            metric=adapter.metric,
            readonly={},
            program=files["program.md"],
            brief=adapter.brief(),
            knobs=adapter.knobs(artifact),
        ),
        str,
    ).seen
    empty = {"files": [], "readonly": [], "knobs": [], "program": "", "brief": "", "rules": ""}
    sizes = [len(one.model_dump_json()) / 1000 for one in (asked, asked.model_copy(update=empty))]
    page = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text(encoding="utf-8")
    assert f"has {sizes[0]:.0f} kB" in page and f"without the material {sizes[1]:.1f} kB" in page
