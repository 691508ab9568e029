"""The dashboard's pages: what they say of a run, in every state a workspace can be in, and what its buttons do."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlmodel import create_engine

from autoresearch.core.ledger import LEDGER_VERSION, MeasurementRow
from autoresearch.core.progress import progress_file
from autoresearch.web.dashboard import hall as halls
from tests.web.dashboard.conftest import Bench, client_of, run_page, settled, words
from tests.web.dashboard.test_security import form_token


def waiting_for(bench: Bench, number: int) -> None:
    """Let the run wait for a person's word about an experiment, as the process at work notes it."""
    note = {"phase": "approve", "number": number, "share": None, "words": "", "began": time.time(), "curve": []}
    progress_file(bench.layout).write_text(json.dumps(note), encoding="utf-8")


def note(bench: Bench, **noted: object) -> None:
    known = {"phase": "observe", "number": 4, "share": 0.25, "words": "training", "began": time.time(), "curve": []}
    progress_file(bench.layout).write_text(json.dumps({**known, **noted}), encoding="utf-8")


def test_a_run_that_ended_says_so_and_shows_everything(bench: Bench) -> None:
    """State, believed beside confirmed gain, every section of the report and every row."""
    bench.ledger.update_run("r1", state="stopped", stop_reason="experiments: 3 of 3 done")
    with client_of(bench.root) as client:
        said = words(settled(client, "What it cost"))
    assert "The run ended: experiments: 3 of 3 done." in said and "believed gain" in said and "not confirmed" in said
    for head in ("Progress", "Every experiment", "What was kept", "What may be claimed", "did not work"):
        assert head in said
    assert "4 of 4 experiments" in said and "To go on: autoresearch run" in said


def test_a_run_at_work_shows_what_it_does(bench: Bench) -> None:
    """Phase, share, hypothesis, what of the limits is left, the curve beside the incumbent's, the end of the log."""
    bench.work()
    kept = bench.ledger.experiment("r1", 1)
    assert kept is not None
    bench.ledger.add_measurement(MeasurementRow(experiment_id=kept.id, value=0.99, curve=[[0.5, 1.2], [1.0, 0.99]]))
    row = bench.begin(4, "Halve the batch")
    folder = bench.layout.experiment("r1", row.number)
    folder.mkdir(parents=True)
    (folder / "run.log").write_text("\n".join(f"step {at}" for at in range(5_000)), encoding="utf-8")
    note(bench, curve=[[0.1, 2.0], [0.2, 1.5], [0.25, 1.4]])
    with client_of(bench.root) as client:
        page = run_page(client)
    said = words(page)
    assert "at work on experiment 4 (Halve the batch)" in said and "measuring: training" in said
    assert "this candidate" in said and "the incumbent" in said and 'value="25"' in page
    assert "3 of 10" in said and "$2.00 left of $2.00" in said and "left of 8 h" in said
    assert "step 4999" in said and "step 4900" not in said
    assert "Pause" in said and "Stop" in said and "Approve" not in said


def test_a_killed_run_says_that_its_process_is_gone(bench: Bench) -> None:
    """Nobody holds the lock and no end is written down; there is no button that nobody would obey."""
    with client_of(bench.root) as client:
        said = words(run_page(client))
    assert "its process was killed or the machine went down" in said and "autoresearch run goes on" in said
    assert "Pause" not in said


def test_an_empty_workspace_says_how_to_begin(tmp_path: Path) -> None:
    """Before the first run there is a sentence, on the overview as on its own page; while one prepares, another."""
    with client_of(tmp_path) as client:
        for path in ("/", f"/w/{tmp_path.name.replace('.', '-')}"):
            assert "No run has begun here yet. Begin one: autoresearch run -w" in words(client.get(path).text)
    from autoresearch.core import lock
    from autoresearch.core.workspace import Layout

    (tmp_path / ".autoresearch").mkdir()
    with lock.held(Layout(tmp_path)), client_of(tmp_path) as client:
        assert "A run is being prepared" in words(client.get("/").text)


def test_a_newer_ledger_is_left_alone(bench: Bench) -> None:
    """The sentence names both formats and the command that helps; the file stays as it is."""
    bench.close()
    with closing(sqlite3.connect(bench.layout.ledger)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = bench.layout.ledger.read_bytes()
    with client_of(bench.root) as client:
        said = words(client.get("/w/bench").text)
    assert "has format 9999" in said and LEDGER_VERSION in said and "pip install --upgrade autoresearch" in said
    assert bench.layout.ledger.read_bytes() == before


def made_old(ledger: Path, version: str = "0004") -> None:
    """Write the rows of a ledger into one of an older format, in its place."""
    new = ledger.with_name("new.db")
    ledger.rename(new)
    config = Config()
    config.set_main_option("script_location", str(files("autoresearch.core").joinpath("migrations")))
    engine = create_engine(f"sqlite:///{ledger}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
    engine.dispose()
    with closing(sqlite3.connect(ledger)) as old:
        old.execute("ATTACH ? AS new", (str(new),))
        for table in ("run", "session", "experiment"):
            names = ", ".join(f'"{row[1]}"' for row in old.execute(f"PRAGMA main.table_info({table})"))
            old.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}")
        old.commit()


def test_an_older_ledger_is_read_in_a_copy(bench: Bench) -> None:
    """It is shown, nothing in it is migrated, and the buttons are off with a reason."""
    bench.close()
    made_old(bench.layout.ledger)
    before = bench.layout.ledger.read_bytes()
    with client_of(bench.root) as client:
        page = run_page(client)
        said = words(page)
        answer = client.post("/w/bench/r1/steer", data={"command": "note", "argument": "x", "csrf": form_token(page)})
    assert "an older version wrote it" in said and "4 of 4 experiments" in said
    assert answer.status_code == 200 and "buttons are off" in words(answer.text)
    assert bench.layout.ledger.read_bytes() == before


def test_a_workspace_that_goes_away_says_so_and_comes_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved while the dashboard watches, it is a sentence; back again, it is shown again."""
    monkeypatch.setattr(halls, "CALM_SECONDS", 0.0)
    away = bench.root.with_name("away")
    bench.close()
    with client_of(bench.root) as client:
        assert "4 of 4" in words(run_page(client))
        bench.root.rename(away)
        said = words(client.get("/").text)
        assert "is gone: it was moved or deleted" in said
        assert client.get("/w/bench/r1").status_code == 404
        away.rename(bench.root)
        assert "4 of 4" in words(run_page(client))


def test_a_damaged_ledger_is_a_sentence(bench: Bench) -> None:
    """What is no database says so instead of a traceback."""
    bench.close()
    bench.layout.ledger.write_bytes(b"not a database at all, but long enough to be read as one" * 20)
    with client_of(bench.root) as client:
        assert "is damaged or no ledger at all" in words(client.get("/w/bench").text)


def test_several_workspaces_stand_side_by_side(bench: Bench, tmp_path: Path, measured: Path) -> None:
    """Each has a card with its state and its gain; two of one name have addresses of their own."""
    twin = Bench(tmp_path / "other" / "bench", experiments=1)
    twin.close()
    with client_of(bench.root, twin.root, measured, bench.root) as client:
        page = client.get("/").text
        assert page.count("<article") == 3 and 'href="/w/bench-2"' in page
        assert "believed gain" in words(page) and "killed" in words(page)
        assert "2 of 2" in words(run_page(client, "bench-2")), "the other one of that name"


def test_what_is_not_there_is_a_sentence(bench: Bench) -> None:
    """Workspaces, runs, experiments and files that nobody has are 404, with words."""
    with client_of(bench.root) as client:
        run_page(client)
        for path in ("/w/none", "/w/bench/none", "/w/bench/r1/experiment/99", "/static/../app.py", "/static/none"):
            answer = client.get(path)
            assert answer.status_code == 404 and "Traceback" not in answer.text
        assert "mark two of them" in client.get("/w/bench/r1/compare?pick=1").text


# ---- The table


def test_filters_narrow_the_table(bench: Bench) -> None:
    """By outcome, category and words, alone and together; the page without JavaScript has the same table."""
    bench.end(bench.begin(4, "Widen the window", category="shape"), "crashed")
    with client_of(bench.root) as client:
        run_page(client)

        def numbers(query: str, path: str = "/table") -> list[str]:
            text = client.get(f"/w/bench/r1{path}?{query}").text
            return [part.partition('"')[0] for part in text.split('name="pick" value="')[1:]]

        assert numbers("") == ["4", "3", "2", "1", "0"]
        assert numbers("outcome=kept") == ["1"] == numbers("outcome=kept", path="")
        assert numbers("category=shape") == ["4"] and numbers("text=WINDOW+widen") == ["4"]
        assert numbers("text=%233+because") == ["3"] and numbers("outcome=kept&category=shape") == []
        assert numbers("order=oldest")[0] == "0" and numbers("outcome=nonsense&page=0&order=x")[0] == "4"


def test_a_long_table_has_pages(thousand: Path) -> None:
    """25 rows a page, newest first; a page beyond the last is the last; filters stay while pages turn."""
    with client_of(thousand) as client:
        first = settled(client, "page 1 of 41", "w")
        assert first.count('name="pick"') == 25 and 'value="1000"' in first
        table = client.get("/w/w/made-up/table?page=999999").text
        assert "page 41 of 41" in table and 'value="0"' in table and "Next" not in table
        reverted = client.get("/w/w/made-up/table?outcome=reverted&page=2").text
        assert "/w/w/made-up/table?outcome=reverted&amp;page=3" in reverted


def test_an_experiment_has_a_page(measured: Path) -> None:
    """Hypothesis, reason, measurements, every try of the proposer, the diff and the log."""
    with client_of(measured) as client:
        client.get("/w/w")
        run = client.get("/w/w").url.path
        kept, crashed = (client.get(f"{run}/experiment/{number}").text for number in (1, 2))
    assert "Halve it." in kept and "<ins>+4</ins>" in kept and "read 4 with seed" in kept
    assert "Tries of the proposer" in crashed and "The answer was cut off." in words(crashed)


def test_two_experiments_stand_side_by_side(measured: Path) -> None:
    """Values, effects, both diffs, and whether the noise alone explains what lies between them."""
    with client_of(measured) as client:
        run = client.get("/w/w").url.path
        said = words(client.get(f"{run}/compare?pick=1&pick=3").text)
    assert "Experiment 3 measured -1 units against experiment 1" in said and "is more than noise" in said
    assert "Experiment 1 Experiment 3" in said and "+4" in said and "+5" in said


# ---- Buttons


def press(client: object, page: str, word: str, argument: str = "", **headers: str) -> tuple[int, str]:
    answer = client.post(  # type: ignore[attr-defined]
        "/w/bench/r1/steer",
        data={"command": word, "argument": argument, "csrf": form_token(page)},
        headers={"hx-request": "true", **headers},
    )
    return answer.status_code, words(f"<body>{answer.text}")


def test_buttons_leave_the_messages_of_the_command_line(bench: Bench) -> None:
    """Pause, resume, stop and a note come to the ledger's control table as they do from a terminal."""
    bench.work()
    with client_of(bench.root) as client:
        page = run_page(client)
        for word, argument in (("pause", ""), ("resume", ""), ("stop", ""), ("note", "try smaller <b> batches")):
            status, said = press(client, page, word, argument)
            assert status == 200 and said
    sent = [(one.command, one.argument) for one in bench.ledger.pending("r1")]
    assert sent == [("pause", ""), ("resume", ""), ("stop", ""), ("note", "try smaller <b> batches")]


def test_an_experiment_that_waits_can_be_approved(bench: Bench) -> None:
    """Its diff stands beside the buttons; an answer about another experiment is refused with a reason."""
    bench.work()
    bench.begin(4, "Halve the batch")
    waiting_for(bench, 4)
    with client_of(bench.root) as client:
        page = run_page(client)
        assert "Approve 4" in words(page) and "Reject 4" in words(page) and "+new 4" in page
        assert press(client, page, "approve", "2") == (
            409, "Experiment 2 of run r1 waits for no answer: it is reverted. See what goes on: autoresearch status",
        )  # fmt: skip
        assert press(client, page, "approve", "4")[0] == 200
    assert [(one.command, one.argument) for one in bench.ledger.pending("r1")] == [("approve", "4")]


def test_without_javascript_a_button_leads_back_with_a_word(bench: Bench) -> None:
    """A plain form is answered by the page it stood on, which says what was done."""
    bench.work()
    with client_of(bench.root) as client:
        page = run_page(client)
        answer = client.post("/w/bench/r1/steer", data={"command": "pause", "csrf": form_token(page)})
        assert answer.status_code == 200 and "Told run r1 to pause." in words(answer.text)
        assert answer.url.path == "/w/bench/r1"


@pytest.mark.parametrize(("word", "argument"), [("pause", ""), ("approve", "1"), ("note", "  "), ("format c:", "")])
def test_what_nobody_could_obey_is_refused(bench: Bench, word: str, argument: str) -> None:
    """With nobody at work, without words, or without such a command, nothing is written."""
    with client_of(bench.root) as client:
        status, said = press(client, run_page(client), word, argument)
        assert status in (400, 409) and said.endswith((".", "run", "know"))
    assert bench.ledger.pending("r1") == []
