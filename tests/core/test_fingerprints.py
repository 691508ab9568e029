"""What judged is hashed before and after, and a judge that changed ends the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.core import EnvironmentNotReadyError, Scope
from autoresearch.core.driver import run
from autoresearch.core.fingerprints import FileHashes, artifact_in
from autoresearch.core.ledger import Experiment, Ledger
from tests.core.fakes import FakeProposer, SquareAdapter, make_workspace


def go(root: Path, script: list[str | Exception], adapter: SquareAdapter, **choices: object) -> None:
    run(adapter, workspace=root, proposer=FakeProposer(script), policy="greedy", confirm=False, **choices)  # type: ignore[arg-type]


def rows(root: Path) -> list[Experiment]:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        return ledger.experiments(ledger.runs()[-1].id)


def once(number: str, deed: Callable[[], object]) -> Callable[[str], None]:
    """Return a fault that does `deed` while `number` is measured for the first time."""
    done: list[str] = []

    def fault(text: str) -> None:
        if text == number and not done:
            done.append(text)
            deed()

    return fault


def old(path: Path, text: str) -> Path:
    """Write a file that has not been touched for an hour, by what its times say."""
    path.write_text(text)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 3600 * 10**9))
    return path


def test_every_experiment_keeps_hashes_of_what_judged_it_before_and_after(tmp_path: Path) -> None:
    """Evaluator, read-only files and artifact, equal where nothing changed, for kept, reverted and crashed ones."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2", "9", "oops", "oops2", "oops3"], SquareAdapter(), experiments=3)
    found = rows(root)
    assert [row.outcome for row in found] == ["kept", "kept", "reverted", "crashed"]
    for row in found:
        kept = row.fingerprints
        assert kept["evaluator_before"] == kept["evaluator_after"] == "square-1" == row.evaluator_fingerprint
        assert kept["readonly_before"] == kept["readonly_after"] and len(kept["readonly_after"]) == 64
        assert kept["artifact_after"] == row.fingerprint
    assert list(found[0].fingerprints["readonly_files"]) == ["rules.md"]


def test_an_evaluator_that_changes_during_a_measurement_ends_the_run(tmp_path: Path) -> None:
    """The measurement is not booked; put back, the same experiment goes on; changed for good, the run does not."""
    root, adapter = make_workspace(tmp_path / "w"), SquareAdapter()
    adapter.fault = once("2", lambda: setattr(adapter, "fingerprint", "square-2"))
    with pytest.raises(EnvironmentNotReadyError, match="evaluator or its data changed"):
        go(root, ["2"], adapter, experiments=1)
    assert rows(root)[-1].outcome is None
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        assert ledger.measurements(rows(root)[-1].id) == []
        assert (ledger.sessions(rows(root)[-1].run_id)[-1].reason or "").startswith("environment: The evaluator")
    with pytest.raises(EnvironmentNotReadyError, match="--new"):
        go(root, [], adapter, experiments=1)
    adapter.fingerprint = "square-1"
    go(root, [], adapter, experiments=1)
    assert [row.outcome for row in rows(root)] == ["kept", "kept"]


def test_an_evaluator_that_changes_while_a_candidate_crashes_ends_the_run(tmp_path: Path) -> None:
    """Otherwise a candidate would be blamed for what befell its judge."""
    root, adapter = make_workspace(tmp_path / "w"), SquareAdapter()
    adapter.fault = once("oops", lambda: setattr(adapter, "fingerprint", "square-2"))
    with pytest.raises(EnvironmentNotReadyError, match="evaluator or its data changed"):
        go(root, ["oops"], adapter, experiments=1)
    assert rows(root)[-1].outcome is None


def test_an_evaluator_that_changes_between_experiments_ends_the_run(tmp_path: Path) -> None:
    """What was finished stays; the next experiment does not begin."""
    root, adapter = make_workspace(tmp_path / "w"), SquareAdapter()
    keep_outputs = adapter.keep_outputs

    def change(scratch: Path, destination: Path) -> None:
        keep_outputs(scratch, destination)
        adapter.fingerprint = "square-1" if not rows(root)[1:] else "square-2"

    adapter.keep_outputs = change  # type: ignore[method-assign]
    with pytest.raises(EnvironmentNotReadyError, match="evaluator or its data changed"):
        go(root, ["2", "1"], adapter, experiments=2)
    assert [row.outcome for row in rows(root)] == ["kept", "kept"]
    assert rows(root)[1].fingerprints["evaluator_after"] == "square-2", "what was seen is what is kept"


def test_a_read_only_file_that_changes_ends_the_run_and_is_named(tmp_path: Path) -> None:
    """During an experiment as between sessions; put back, the run goes on."""
    root, adapter = make_workspace(tmp_path / "w"), SquareAdapter()
    rules = root / "rules.md"
    adapter.fault = once("2", lambda: rules.write_text("Larger is better!"))
    with pytest.raises(EnvironmentNotReadyError, match=r"^rules.md changed since run"):
        go(root, ["2"], adapter, experiments=1)
    with pytest.raises(EnvironmentNotReadyError, match=r"^rules.md changed since run"):
        go(root, [], adapter, experiments=1)
    rules.write_text("Smaller is better.")
    go(root, [], adapter, experiments=1)
    assert [row.outcome for row in rows(root)] == ["kept", "kept"]


def test_what_people_and_the_loop_write_may_change_whatever_the_scope_says(tmp_path: Path) -> None:
    """With a glob for everything: the table, the word to the proposer, settings and the workspace's own artifact."""

    class Wide(SquareAdapter):
        @property
        def scope(self) -> Scope:
            return Scope(("number.txt",), ("*", "**/*"))

    root, adapter = make_workspace(tmp_path / "w"), Wide()

    def edit() -> None:
        for name in ("number.txt", "program.md"):
            (root / name).write_text("7")

    adapter.fault = once("2", edit)
    go(root, ["2", "1"], adapter, experiments=2)
    assert [row.outcome for row in rows(root)] == ["kept", "kept", "kept"]
    assert list(rows(root)[0].fingerprints["readonly_files"]) == ["rules.md"]


def test_a_candidate_whose_files_change_while_it_is_measured_is_invalid(tmp_path: Path) -> None:
    """What would be committed is not what was measured; the run goes on."""
    root, adapter = make_workspace(tmp_path / "w"), SquareAdapter()
    measure = adapter.measure

    def rewriting(artifact: Path, **rest: object) -> object:
        found = measure(artifact, **rest)  # type: ignore[arg-type]
        if (artifact / "number.txt").read_text() == "2":
            (artifact / "number.txt").write_text("0")
        return found

    adapter.measure = rewriting  # type: ignore[assignment, method-assign]
    go(root, ["2", "1"], adapter, experiments=2)
    assert [row.outcome for row in rows(root)] == ["kept", "invalid", "kept"]
    spoilt = rows(root)[1]
    assert spoilt.fingerprints["artifact_after"] != spoilt.fingerprint


def test_a_file_is_read_again_only_after_it_was_touched(tmp_path: Path) -> None:
    """Same size, same time of modification: the time of change tells; a file replaced by another, too."""
    hashes, path = FileHashes(), tmp_path / "data.bin"
    path.write_bytes(b"one")
    first = hashes.of(path)
    path.write_bytes(b"two")
    times = path.stat()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - 10**9))
    assert hashes.of(path) != first
    path.write_bytes(b"one")
    assert hashes.of(path) == first


def test_a_file_at_rest_is_not_read_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds after its last change a stat is enough."""
    path = tmp_path / "data.bin"
    path.write_bytes(b"one")
    hashes = FileHashes()
    changed = path.stat().st_ctime_ns
    monkeypatch.setattr("autoresearch.core.fingerprints.time.time_ns", lambda: changed + 3 * 10**9)
    first = hashes.of(path)
    monkeypatch.setattr(Path, "open", lambda *_, **__: pytest.fail("it was read again"))
    assert hashes.of(path) == first


def test_links_and_bytes_are_no_artifact(tmp_path: Path) -> None:
    """What a candidate turned into a link, removed or filled with bytes is not what was laid out."""
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert artifact_in(tmp_path, ["a"]) is not None
    assert [artifact_in(tmp_path, [name]) for name in ("link", "bytes", "missing")] == [None, None, None]
