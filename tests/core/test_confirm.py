"""Confirming a run: what is measured, what is claimed, and that a kill costs nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autoresearch.core import CandidateError, EnvironmentNotReadyError, Measurement, RunContext, Split, UsageError
from autoresearch.core import lock as locks
from autoresearch.core.confirm import Confirmation, confirm, measurements_needed
from autoresearch.core.driver import RunResult, run
from autoresearch.core.fresh import CONFIRM_SEED, Bench, bench_at, rounds
from autoresearch.core.ledger import Ledger
from autoresearch.core.readmodel import status_of
from autoresearch.core.workspace import Layout
from tests.core.fakes import FakeProposer, Listening, SquareAdapter, make_workspace


@dataclass
class Watched(SquareAdapter):
    """Remembers on which split it was asked; may be told to stumble."""

    asked: list[tuple[str, int, Split]] = field(default_factory=list)
    stumble: str = ""
    stop_after: int | None = None

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        text = (artifact / "number.txt").read_text(encoding="utf-8").strip()
        if split is Split.HOLDOUT:
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append((text, seed, split))
            if text == self.stumble:
                raise CandidateError(f"{text} stumbles.")
        return super().measure(artifact, seed=seed, split=split, run=run)


def go(root: Path, script: list[str | Exception], adapter: SquareAdapter, **choices: object) -> RunResult:
    choices = {"policy": "bayes", "baseline_runs": 2, "confirm": False, **choices}
    return run(adapter, workspace=root, proposer=FakeProposer(script), **choices)  # type: ignore[arg-type]


@contextmanager
def bench(root: Path, adapter: SquareAdapter) -> Iterator[Bench]:
    layout = Layout(root)
    with Ledger.open(layout.ledger) as ledger:
        row = ledger.latest_run()
        assert row is not None
        with bench_at(layout, ledger, row, Listening(), adapter) as opened:
            yield opened


def confirmed(root: Path, adapter: SquareAdapter, **choices: int) -> Confirmation:
    with bench(root, adapter) as opened:
        return confirm(opened, **choices)


@pytest.fixture
def adapter() -> Watched:
    return Watched()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from 3 that keeps 2 and 1 and reverts 5; to be copied."""
    folder = make_workspace(tmp_path_factory.mktemp("done") / "w")
    go(folder, ["2", "5", "1"], Watched(), experiments=3)
    return folder


@pytest.fixture
def root(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "w")


def test_baseline_and_kept_steps_meet_the_same_fresh_seeds_on_the_holdout(root: Path, adapter: Watched) -> None:
    """Every arm is measured once a seed, seeds from 10,000 up, every other seed backwards; what was reverted is not."""
    found = confirmed(root, adapter)
    assert Counter(text for text, _, _ in adapter.asked) == {"3": 5, "2": 5, "1": 5}
    assert sorted({seed for _, seed, _ in adapter.asked}) == list(range(10_000, 10_005))
    assert [text for text, _, _ in adapter.asked[:6]] == ["3", "2", "1", "1", "2", "3"]
    assert (found.arms, found.measured, found.openings, found.complete) == (3, 15, 15, True)


def test_claims_are_the_incumbent_then_its_steps(root: Path, adapter: Watched) -> None:
    """The gain and both steps are confirmed, with their sizes, and status says so."""
    found = confirmed(root, adapter)
    assert [item.claim.subject for item in found.claims] == ["incumbent", "1", "3"]
    assert [item.claim.outcome for item in found.claims] == ["confirmed"] * 3
    assert [item.claim.raw for item in found.claims] == pytest.approx([8.0, 5.0, 3.0], abs=0.01)
    assert [item.claim.share for item in found.claims] == [0.5, 0.025, 0.025]
    assert found.confirmed == pytest.approx(8.0, abs=0.01)
    for item in found.claims:
        assert item.claim.low is not None and item.claim.high is not None and item.claim.raw is not None
        assert 0 < item.claim.low < item.claim.raw < item.claim.high
    with Ledger.open(Layout(root).ledger) as ledger:
        (row,) = ledger.runs()
        assert status_of(ledger, row, at_work=False).confirmed_gain == found.confirmed


def test_asking_again_opens_nothing(root: Path, adapter: Watched) -> None:
    """What was measured is read back, and the claims stand as they were."""
    first = confirmed(root, adapter)
    again = confirmed(root, adapter)
    assert again.measured == 0 and again.openings == first.openings
    assert [item.claim.e_value for item in again.claims] == [item.claim.e_value for item in first.claims]


def test_more_seeds_add_to_what_is_there(root: Path, adapter: Watched) -> None:
    """Asking for 7 seeds after 5 takes two more an arm; asking for fewer later keeps all of them."""
    confirmed(root, adapter)
    more = confirmed(root, adapter, seeds=7)
    assert more.measured == 6 and {item.claim.seeds for item in more.claims} == {7}
    assert confirmed(root, adapter, seeds=2).seeds == 7


def test_what_was_cut_off_goes_on(root: Path, adapter: Watched) -> None:
    """An interruption loses only the measurement in flight, whose opening stays counted."""
    adapter.stop_after = 7
    with pytest.raises(KeyboardInterrupt):
        confirmed(root, adapter)
    with bench(root, adapter) as opened:
        assert measurements_needed(opened, 5) == 8
        claims = opened.ledger.claims(opened.run.id)
    assert [claim.outcome for claim in claims] == ["open"] * 3, "claims are written down before the holdout is opened"
    adapter.stop_after = None
    found = confirmed(root, adapter)
    assert found.measured == 8 and found.openings == 16
    assert max(Counter((text, seed) for text, seed, _ in adapter.asked).values()) == 1


def test_a_claim_that_was_confirmed_stays(root: Path, adapter: Watched) -> None:
    """Its test stopped when it was confirmed: later values change its size, never its ruling."""
    confirmed(root, adapter)
    adapter.noise = 500.0
    later = confirmed(root, adapter, seeds=8)
    assert [item.claim.outcome for item in later.claims] == ["confirmed"] * 3
    assert all(item.claim.low is not None and item.claim.low > 0 for item in later.claims)


def test_a_gain_that_was_luck_is_not_confirmed(tmp_path: Path) -> None:
    """What shows no gain on fresh seeds is not claimed, and the first line of the status has no number."""
    adapter = Watched(noise=200.0)
    root = make_workspace(tmp_path / "w", "3")
    go(root, ["2.99", "2.98", "2.97", "2.96"], adapter, policy="greedy", baseline_runs=2, experiments=4)
    found = confirmed(root, adapter)
    assert found.confirmed is None
    assert {item.claim.outcome for item in found.claims} == {"unconfirmed"}


def test_a_single_step_is_the_incumbent(tmp_path: Path, adapter: Watched) -> None:
    """One kept step is claimed once, with the incumbent's share of the error rate."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2"], adapter, experiments=1)
    assert [item.claim.subject for item in confirmed(root, adapter).claims] == ["incumbent"]


def test_a_new_incumbent_is_a_new_claim(tmp_path: Path, adapter: Watched) -> None:
    """After a further keep the old claim stands, the new incumbent is not confirmed until it is measured."""
    root = make_workspace(tmp_path / "w")
    go(root, ["2"], adapter, experiments=1)
    confirmed(root, adapter)
    result = go(root, ["1"], adapter, experiments=1)
    assert result.status.confirmed_gain is None
    found = confirmed(root, adapter)
    assert [(item.claim.subject, item.claim.number) for item in found.claims] == [
        ("incumbent", 1), ("incumbent", 2), ("1", 1), ("2", 2),
    ]  # fmt: skip
    assert found.measured == 5 and found.confirmed == pytest.approx(8.0, abs=0.01)
    assert sum(item.claim.share for item in found.claims) == pytest.approx(0.575)


def test_a_step_that_crashes_is_not_claimed(root: Path, adapter: Watched) -> None:
    """A kept step that fails with a fresh seed fails its claims; the others are judged without it."""
    adapter.stumble = "2"
    found = confirmed(root, adapter)
    outcomes = {item.claim.subject: item.claim.outcome for item in found.claims}
    assert outcomes == {"incumbent": "confirmed", "1": "failed", "3": "failed"}
    assert "2 stumbles." in found.claims[1].claim.reason
    assert Counter(text for text, _, _ in adapter.asked)["2"] == 1


def test_without_a_holdout_the_gain_is_remeasured(root: Path) -> None:
    """Fresh seeds on what decisions saw are called by their name, and open no holdout."""

    class Searching(SquareAdapter):
        splits = frozenset({Split.SEARCH})

    adapter = Searching()
    found = confirmed(root, adapter)
    assert found.split == "search" and found.openings == 0
    assert len(adapter.measured) == 15 and min(seed for _, seed in adapter.measured) >= CONFIRM_SEED
    with Ledger.open(Layout(root).ledger) as ledger:
        run = ledger.latest_run()
        assert run is not None
        assert status_of(ledger, run, at_work=False).confirmed_on == "search"


def test_nothing_kept_is_nothing_to_confirm(tmp_path: Path, adapter: Watched) -> None:
    """A run without a keep is told so."""
    root = make_workspace(tmp_path / "w")
    go(root, ["5"], adapter, experiments=1)
    with pytest.raises(UsageError, match="Nothing was kept in run"):
        confirmed(root, adapter)


def test_a_run_at_work_is_left_alone(root: Path, adapter: Watched) -> None:
    """The workspace's lock keeps a confirmation out while a run is at work."""
    with locks.held(Layout(root)), pytest.raises(UsageError, match="Another run is at work"):
        confirmed(root, adapter)


def test_another_evaluator_is_refused(root: Path, adapter: Watched) -> None:
    """Values of a changed evaluator are not comparable with those of the run."""
    adapter.fingerprint = "square-2"
    with pytest.raises(EnvironmentNotReadyError, match="changed since run"):
        confirmed(root, adapter)


@pytest.mark.parametrize(
    ("choices", "said"),
    [({"seeds": 1}, "2 seeds an arm or more"), ({"declared": 1}, "2 claims or more")],
)
def test_senseless_numbers_are_refused(root: Path, adapter: Watched, choices: dict[str, int], said: str) -> None:
    """One seed shows no spread, and fewer than two further claims leave nothing to spread."""
    with pytest.raises(UsageError, match=said):
        confirmed(root, adapter, **choices)


def test_the_number_of_claims_is_fixed_once(root: Path, adapter: Watched) -> None:
    """It cannot be chosen after the fact."""
    confirmed(root, adapter, declared=4)
    assert [item.claim.share for item in confirmed(root, adapter).claims] == [0.5, 0.125, 0.125]
    with pytest.raises(UsageError, match="declared 4 claims"):
        confirmed(root, adapter, declared=5)


def test_more_steps_than_declared_claims_are_refused_before_anything_is_opened(tmp_path: Path) -> None:
    """Three kept steps do not fit into two declared claims."""
    adapter = Watched()
    root = make_workspace(tmp_path / "w")
    go(root, ["2", "1", "0.1"], adapter, experiments=3)
    with pytest.raises(UsageError, match="3 kept steps are to be claimed and 2 claims are declared"):
        confirmed(root, adapter, declared=2)
    assert adapter.asked == []


def test_a_disturbed_measurement_is_taken_again(root: Path, adapter: Watched) -> None:
    """A value that something disturbed is recorded and never judged."""
    begun = len(adapter.measured)
    adapter.disturbed = lambda count: "a neighbour" if count == begun + 1 else None
    found = confirmed(root, adapter)
    assert found.openings == 16 and found.claims[0].claim.outcome == "confirmed"
    adapter.disturbed = lambda count: "a neighbour"
    with pytest.raises(EnvironmentNotReadyError, match="Every measurement was disturbed: a neighbour"):
        confirmed(root, adapter, seeds=6)


def test_a_run_confirms_by_itself_where_it_was_told_to(tmp_path: Path, adapter: Watched) -> None:
    """With `confirm` a run that a limit ended confirms; one without room in its budget says why it did not."""
    root = make_workspace(tmp_path / "w")
    assert go(root, ["2"], adapter, experiments=1).status.confirmed_gain is None
    reporter = Listening()
    result = go(root, ["1"], adapter, experiments=1, confirm=True, max_samples=8, reporter=reporter)
    assert result.status.confirmed_gain is None and adapter.asked == []
    assert any("Not confirmed: that takes 15 measurements" in said for said in reporter.said)
    result = go(root, ["0.5"], adapter, experiments=1, confirm=True)
    assert result.status.confirmed_gain == pytest.approx(8.75, abs=0.01)
    assert result.reason.startswith("experiments: 1 of 1")


def test_a_run_that_has_nothing_left_to_confirm_says_nothing(tmp_path: Path, adapter: Watched) -> None:
    """Where every fresh measurement is there already, no run announces that it takes none."""
    root = make_workspace(tmp_path / "w")
    heard = []
    for script in (["2"], ["5"]):  # one that is kept, one that is not
        reporter = Listening()
        go(root, script, adapter, experiments=1, confirm=True, reporter=reporter)
        heard.append([text for text in reporter.said if text.startswith("Confirming")])
    assert [len(said) for said in heard] == [1, 0]


@dataclass
class Timed(Watched):
    """Says that a measurement took long."""

    took: float = 0.0

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        return replace(super().measure(artifact, seed=seed, split=split, run=run), seconds=self.took)


@pytest.mark.parametrize(("took", "confirms"), [(0.0, True), (3600.0, False)])
def test_a_run_told_nothing_confirms_in_no_more_time_than_it_took(tmp_path: Path, took: float, confirms: bool) -> None:
    """By default a session at most doubles; where confirming takes longer it says how to."""
    reporter = Listening()
    result = go(make_workspace(tmp_path / "w"), ["2"], Timed(took=took), experiments=1, confirm=None, reporter=reporter)
    assert (result.status.confirmed_gain is not None) == confirms
    refused = [text for text in reporter.said if "more than the run itself took. Do it with autoresearch" in text]
    assert bool(refused) != confirms


def test_order_runs_forth_and_back() -> None:
    """Drift over time is booked on no arm."""
    assert list(rounds(["a", "b"], [7, 8])) == [("a", 7), ("b", 7), ("b", 8), ("a", 8)]
