"""Taking kept steps back: ledger, branch and live surface agree, nothing is lost, and the run goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.core import UsageError
from autoresearch.core.ledger import Ledger
from autoresearch.core.rollback import RolledBack, roll_back
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout
from tests.core.fakes import SquareAdapter, make_workspace
from tests.core.test_driver import experiments, go


def back(root: Path, number: int | None = None) -> RolledBack:
    layout = Layout(root)
    with Ledger.open(layout.ledger) as ledger:
        return roll_back(layout, ledger, ledger.runs()[-1], number, SquareAdapter(), "Rolled back by a test.")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run that kept experiments 1, 3 and 4."""
    folder = make_workspace(tmp_path / "w")
    go(folder, ["2.5", "5", "2", "1"], experiments=4)
    return folder


def test_a_kept_step_goes_with_all_that_was_built_on_it(root: Path) -> None:
    """The incumbent before it is the incumbent again; rows say why, refs keep the candidates, the branch agrees."""
    commits = [row.kept_commit for row in experiments(root)]
    found = back(root, 3)
    assert (found.numbers, found.incumbent, found.ended) == ((3, 4), 1, ())
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "kept", "reverted", "reverted", "reverted"]
    assert rows[4].reason.startswith("Rolled back by a test. It was kept before:") and rows[4].kept_commit is None
    store = Store.open(root)
    assert store.head(found.run) == rows[1].kept_commit
    assert {number: store.rejected(found.run)[number] for number in (3, 4)} == {3: commits[3], 4: commits[4]}


def test_the_run_goes_on_from_the_former_incumbent(root: Path) -> None:
    """The next candidate is proposed on it and judged against it."""
    back(root, 3)
    go(root, ["2.2"], experiments=1)
    rows = experiments(root)
    assert (rows[5].parent_number, rows[5].outcome) == (1, "kept")


def test_without_a_number_the_last_kept_step_is_meant(root: Path) -> None:
    """Asked again and again it goes back to the baseline, and then says so."""
    assert [back(root).incumbent for _ in range(3)] == [3, 1, 0]
    with pytest.raises(UsageError, match="has kept nothing"):
        back(root)


def test_a_step_that_is_not_kept_is_refused(root: Path) -> None:
    """The message names those that are."""
    with pytest.raises(UsageError, match=r"Experiment 2 of run .* is not kept; kept are 1, 3, 4"):
        back(root, 2)


def test_a_kill_between_branch_and_ledger_is_mended_by_asking_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch has moved, the rows have not; the second call brings both to the same end."""
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "take_back", killed)
        with pytest.raises(KeyboardInterrupt):
            back(root, 3)
    assert back(root, 3).numbers == (3, 4)
    assert [row.outcome for row in experiments(root)].count("kept") == 2


def killed(*_: object) -> None:
    raise KeyboardInterrupt
