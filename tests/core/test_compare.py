"""Comparing contestants: resumable runs in workspaces of their own, judged on fresh seeds."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autoresearch.core import (
    CandidateError,
    Cost,
    CostEstimate,
    EnvironmentNotReadyError,
    Measurement,
    Proposal,
    ProposalError,
    ProposalRequest,
    RunContext,
    Split,
    UsageError,
)
from autoresearch.core.compare import (
    SEED_DISTANCE,
    Comparison,
    Contestant,
    Estimate,
    Plan,
    RunFigures,
    compare,
    contrast,
    runs_needed,
)
from autoresearch.core.fresh import CONFIRM_SEED
from autoresearch.core.ledger import Ledger
from autoresearch.core.workspace import Layout
from tests.core.fakes import HalvingProposer, Listening, SquareAdapter

FILES = {"number.txt": "3", "rules.md": "Smaller is better."}


@dataclass
class Scaling:
    """Multiplies the number, for a fee; works from the incumbent alone. Fails as often as it is told to."""

    name: str
    factor: float
    usd: float = 0.0
    failures: int = 0

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        return CostEstimate(self.usd, 0, 0.0, "a price list")

    def propose(self, request: ProposalRequest) -> Proposal:
        if self.failures > 0:
            self.failures -= 1
            raise ProposalError("no answer")
        text = f"{float(request.artifact.files['number.txt']) * self.factor + request.number * 1e-6:.8f}"
        candidate = request.artifact.replace({"number.txt": text})
        return Proposal("Scale it.", "numbers", candidate, cost=Cost(usd=self.usd))


@dataclass
class Watched(SquareAdapter):
    """Remembers which split each measurement saw, and can crash on the holdout."""

    seen: list[tuple[str, int, Split]] = field(default_factory=list)
    crash_on_holdout: str | None = None

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        text = (artifact / "number.txt").read_text(encoding="utf-8").strip()
        self.seen.append((text, seed, split))
        if split is Split.HOLDOUT and self.crash_on_holdout is not None and text != "3":
            raise CandidateError(self.crash_on_holdout)
        return super().measure(artifact, seed=seed, split=split, run=run)


def plan(**choices: object) -> Plan:
    """Return a small plan: a dear proposer that gains much against a free one that gains little."""
    fields: dict[str, object] = {
        "adapter": SquareAdapter(),
        "proposers": (Scaling("cheap", 0.9), Scaling("dear", 0.5, usd=0.25)),
        "experiments": 2,
        "files": FILES,
    }
    return Plan(**{**fields, **choices})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Done:
    """A finished comparison with what happened on the way."""

    folder: Path
    found: Comparison
    adapter: Watched
    said: Listening


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The small plan, carried out once for all who only look."""
    folder, adapter, said = tmp_path_factory.mktemp("done") / "c", Watched(), Listening()
    return Done(folder, compare(folder, plan(adapter=adapter, fresh=2), said), adapter, said)


def of(found: Comparison, proposer: str, policy: str = "bayes") -> Contestant:
    """Return one contestant."""
    (item,) = (item for item in found.contestants if (item.proposer, item.policy) == (proposer, policy))
    return item


def test_true_gain_is_measured_and_costs_are_summed(done: Done) -> None:
    """Two keeps of a half take 9 to 9/16; what the ledgers hold of cost and effort is in the figures."""
    found = done.found
    dear, cheap = of(found, "dear"), of(found, "cheap")
    assert dear.true is not None and cheap.true is not None and dear.claimed is not None
    assert dear.true.mean == pytest.approx(9 - 9 / 16, abs=0.01)
    assert cheap.true.mean == pytest.approx(9 - 9 * 0.81**2, abs=0.01)
    assert dear.claimed.mean == pytest.approx(9 - 9 / 16, abs=0.01)
    assert (dear.usd, cheap.usd) == (0.5, 0.0)
    assert dear.gain_per_usd == pytest.approx(dear.true.mean / 0.5) and cheap.gain_per_usd is None
    assert dear.experiments == 2 and [run.kept for run in dear.runs] == [2, 2]
    assert dear.measurements >= 4, "the baseline twice and each candidate"
    assert found.complete


def test_the_dearer_proposer_is_asked_about(done: Done) -> None:
    """A contrast of proposers puts the one with the fee first, however they were named."""
    (item,) = done.found.contrasts
    assert (item.first.proposer, item.second.proposer, item.shown) == ("dear", "cheap", 1)
    assert item.interval is not None and item.interval[0] > 0
    assert item.runs_needed is None


def test_every_run_has_a_workspace_a_repository_and_seeds_of_its_own(done: Done) -> None:
    """Base seeds lie so far apart that no two runs of one contestant share a measurement's seed."""
    folder = done.folder
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    assert names == {"cheap-bayes-0", "dear-bayes-0", f"cheap-bayes-{SEED_DISTANCE}", f"dear-bayes-{SEED_DISTANCE}"}
    for name in names:
        top = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"], cwd=folder / name, capture_output=True, text=True, check=True
        )
        assert Path(top.stdout.strip()).resolve() == (folder / name).resolve()
    searched = {seed for _, seed, split in done.adapter.seen if split is Split.SEARCH}
    assert {seed // SEED_DISTANCE for seed in searched} == {0, 1}


def test_fresh_seeds_are_on_the_holdout_and_no_decision_saw_them(done: Done) -> None:
    """Baseline and incumbent are measured in turns, with seeds that the search never used."""
    held_out = [(text, seed) for text, seed, split in done.adapter.seen if split is Split.HOLDOUT]
    searched = {seed for _, seed, split in done.adapter.seen if split is Split.SEARCH}
    assert searched.isdisjoint(seed for _, seed in held_out)
    assert [text == "3" for text, _ in held_out[:4]] == [True, False, False, True]
    assert [seed for _, seed in held_out[:4]] == [CONFIRM_SEED, CONFIRM_SEED, CONFIRM_SEED + 1, CONFIRM_SEED + 1]


def test_the_order_is_turned_around_with_every_seed(done: Done) -> None:
    """What drifts over the hours is booked on no contestant."""
    said = [text for text in done.said.said if text.startswith("Run ") and " of 4: " in text]
    order = [text.split(": ")[1].split(",")[0] for text in said]
    assert order == ["cheap", "dear", "dear", "cheap"]


def test_a_second_call_measures_nothing(done: Done) -> None:
    """What is done is read back from the ledgers, and the figures are the same."""
    count = len(done.adapter.seen)
    assert compare(done.folder, plan(adapter=done.adapter, fresh=2)) == done.found
    assert len(done.adapter.seen) == count > 0


def test_more_seeds_add_runs(tmp_path: Path) -> None:
    """The runs that are there stay as they are, and the new ones follow."""
    first = compare(tmp_path / "c", plan(seeds=1, experiments=1))
    more = compare(tmp_path / "c", plan(seeds=2, experiments=1))
    assert of(more, "dear").runs[0] == of(first, "dear").runs[0]
    assert [run.seed for run in of(more, "dear").runs] == [0, SEED_DISTANCE]


def test_more_experiments_go_on_with_the_runs(tmp_path: Path) -> None:
    """Each run has exactly as many experiments as the second call asks for."""
    compare(tmp_path / "c", plan(seeds=1, experiments=1))
    found = compare(tmp_path / "c", plan(seeds=1, experiments=2))
    assert [run.experiments for item in found.contestants for run in item.runs] == [2, 2]


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    """After a kill in the middle of a run every run still ends with its number of experiments."""
    calls = []

    def killed(text: str) -> None:
        calls.append(text)
        if len(calls) == 5:
            raise KeyboardInterrupt

    adapter = SquareAdapter()
    adapter.fault = killed
    choices = {"adapter": adapter, "experiments": 3, "seeds": 1}
    first = compare(tmp_path / "c", plan(**choices))
    assert not first.complete and first.contestants == ()
    second = compare(tmp_path / "c", plan(**choices))
    assert second.complete
    assert [run.experiments for item in second.contestants for run in item.runs] == [3, 3]


def test_a_failing_proposer_stops_the_comparison_and_may_try_again(tmp_path: Path) -> None:
    """Its run is not taken as finished; the same call goes on once it works again."""
    weak = Scaling("weak", 0.5, failures=10)
    asked = plan(proposers=(Scaling("cheap", 0.9), weak), seeds=1, experiments=1)
    with pytest.raises(EnvironmentNotReadyError, match="10 times in a row"):
        compare(tmp_path / "c", asked)
    found = compare(tmp_path / "c", asked)
    assert [run.experiments for item in found.contestants for run in item.runs] == [1, 1]


def test_nothing_kept_is_a_gain_of_exactly_nothing(tmp_path: Path) -> None:
    """A contestant that keeps nothing stands on the baseline, and the holdout stays closed."""
    adapter = Watched()
    worse = (Scaling("a", 2.0), Scaling("b", 3.0))
    found = compare(tmp_path / "c", plan(adapter=adapter, proposers=worse, experiments=1))
    assert [item.true for item in found.contestants] == [Estimate(0.0, 0.0, 2, 0.0)] * 2
    assert all(split is Split.SEARCH for _, _, split in adapter.seen)
    assert found.contrasts[0].interval == (0.0, 0.0) and found.contrasts[0].shown == 0


def test_an_incumbent_that_crashes_afresh_has_no_gain(tmp_path: Path) -> None:
    """Its gain is absent, not 0, and the sentence of the crash is kept."""
    adapter = Watched(crash_on_holdout="It fell apart.")
    both = (Scaling("a", 0.5), Scaling("b", 2.0))
    found = compare(tmp_path / "c", plan(adapter=adapter, seeds=1, experiments=1, proposers=both))
    (run,) = of(found, "a").runs
    assert run.true is None and run.failed == "It fell apart."
    assert of(found, "a").true is None and of(found, "a").gain_per_hour is None
    assert found.contrasts == ()


def test_policies_are_compared_under_one_proposer(tmp_path: Path) -> None:
    """Only pairs that differ in one thing are contrasted."""
    both = (HalvingProposer(), Scaling("cheap", 0.9))
    found = compare(tmp_path / "c", plan(proposers=both, policies=("bayes", "greedy"), seeds=1, experiments=1))
    pairs = {
        (item.first.proposer, item.first.policy, item.second.proposer, item.second.policy) for item in found.contrasts
    }
    assert len(found.contestants) == 4 and len(pairs) == 4
    assert all(a == c or b == d for a, b, c, d in pairs)
    with Ledger.open(Layout(tmp_path / "c" / "halving-greedy-0").ledger) as ledger:
        run = ledger.latest_run()
    assert run is not None and run.policy == "greedy"


def test_another_artifact_in_the_same_folder_is_refused(done: Done) -> None:
    """Runs that began with different artifacts are no comparison."""
    with pytest.raises(UsageError, match="began with another artifact"):
        compare(done.folder, plan(files={"number.txt": "4"}))


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"max_usd": 3.0}, r"max_usd None instead of 3\.0"),
        ({"hours": 1.0}, r"hours None instead of 1\.0"),
        ({"model": "another"}, "model '' instead of 'another'"),
        ({"budget_seconds": 5.0}, r"budget_seconds None instead of 5\.0"),
        ({"options": {"depth": "3"}}, "options {} instead of {'depth': '3'}"),
    ],
)
def test_another_budget_in_the_same_folder_is_refused(done: Done, choices: dict[str, object], words: str) -> None:
    """More seeds under other rules would be another comparison; the sentence names what differs."""
    with pytest.raises(UsageError, match=words):
        compare(done.folder, plan(seeds=3, **choices))


def test_a_longer_run_stays_within_its_dollars(tmp_path: Path) -> None:
    """The cap holds for the whole run: what was spent on the first experiments is gone."""
    choices = {"seeds": 1, "max_usd": 0.6, "proposers": (Scaling("cheap", 0.9), Scaling("dear", 0.5, usd=0.25))}
    compare(tmp_path / "c", plan(experiments=1, **choices))
    found = compare(tmp_path / "c", plan(experiments=5, **choices))
    (run,) = of(found, "dear").runs
    assert (run.experiments, run.usd) == (3, 0.75), "three proposals cross 0.6, as in a run from the start"
    assert run.reason.startswith("max_usd")
    assert of(found, "cheap").runs[0].experiments == 5


def test_fewer_experiments_than_are_there_are_refused(done: Done) -> None:
    """Runs of unequal length are no comparison."""
    with pytest.raises(UsageError, match="--experiments 2"):
        compare(done.folder, plan(experiments=1))


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"proposers": ("search",)}, "two proposers or two policies"),
        ({"proposers": ("search", "search")}, "search is named twice"),
        ({"policies": ("bayes", "bayes")}, "bayes is named twice"),
        ({"policies": ("bayes", "brave")}, "No policy named 'brave'"),
        ({"proposers": ("search", "oracle")}, "No proposer named 'oracle'"),
        ({"seeds": 0}, "1 or more seeds"),
        ({"fresh": 0}, "1 or more fresh"),
        ({"files": {"readme.md": "?"}}, "nothing matches number.txt"),
    ],
)
def test_a_plan_without_sense_is_refused_before_anything_is_made(
    tmp_path: Path, choices: dict[str, object], words: str
) -> None:
    """The sentence names what is wrong, and no folder appears."""
    with pytest.raises(UsageError, match=words):
        compare(tmp_path / "c", plan(**choices))
    assert not (tmp_path / "c").exists()


def test_an_adapter_without_a_holdout_is_refused(tmp_path: Path) -> None:
    """Without data that decisions never saw no gain can be called true."""

    class Open(SquareAdapter):
        splits = frozenset({Split.SEARCH})

    with pytest.raises(UsageError, match="no holdout"):
        compare(tmp_path / "c", plan(adapter=Open()))


def contestant(name: str, gains: list[float], usd: float = 0.0) -> Contestant:
    """Return a contestant with such true gains."""
    runs = tuple(
        RunFigures(name, "bayes", index, Path(), "", "", 1, 1, 3, usd, 0.5, gain, gain, None)
        for index, gain in enumerate(gains)
    )
    return Contestant(name, "bayes", runs)


def test_the_interval_is_welchs() -> None:
    """Two samples with the interval computed by hand: 2 +- 2.1318 at 4 degrees of freedom and error 0.8165."""
    first, second = contestant("a", [3.0, 4.0, 5.0]), contestant("b", [1.0, 2.0, 3.0])
    assert first.true is not None and second.true is not None
    found = contrast(first, second, first.true, second.true)
    assert found.difference == pytest.approx(2.0)
    assert found.interval == pytest.approx((2 - 2.1318 * 0.8165, 2 + 2.1318 * 0.8165), abs=1e-3)
    assert found.shown == 1
    assert contrast(second, first, second.true, first.true).shown == -1


def test_one_run_of_each_shows_nothing() -> None:
    """However far apart: nobody knows how far two runs of one contestant lie apart."""
    first, second = contestant("a", [9.0]), contestant("b", [1.0])
    assert first.true is not None and second.true is not None
    found = contrast(first, second, first.true, second.true)
    assert (found.interval, found.shown, found.runs_needed) == (None, 0, None)


def test_runs_needed_is_the_smallest_number_that_would_show_it() -> None:
    """At one standard deviation, t(0.95) sqrt(2/n) falls under 1 at n = 7; a hundredth of it is out of reach."""
    assert runs_needed(1.0, 1.0, 1.0) == 7
    assert runs_needed(-1.0, 1.0, 1.0) == 7
    assert runs_needed(0.01, 1.0, 1.0) is None
