"""What a run remembers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from autoresearch.core import Direction, Metric, Outcome, PastExperiment, memory
from autoresearch.core.history import History
from autoresearch.core.ledger import Experiment, MeasurementRow, ProposalRow

METRIC = Metric("loss", "", Direction.MINIMIZE)


def past(number: int, category: str, outcome: Outcome) -> PastExperiment:
    return PastExperiment(number, "h", category, outcome, "", None, None, None, "", "")


def row(value: float, **fields: object) -> MeasurementRow:
    return MeasurementRow(experiment_id=1, value=value, **fields)


def test_looks_are_cumulative_and_leave_disturbed_runs_out() -> None:
    """A disturbed measurement is known and not judged."""
    rows = [row(1.0, look=0, disturbed="noise"), row(2.0, look=0, attempt=1), row(4.0, look=1)]
    looks = memory.looks_of(rows)
    assert [(look.treatment.n, look.treatment.total) for look in looks] == [(1, 2.0), (2, 6.0)]


def test_only_the_last_repair_counts() -> None:
    """What was measured before a crash and its repair belongs to another candidate."""
    looks = memory.looks_of([row(9.0, repair=0), row(1.0, repair=1)])
    assert [(look.treatment.n, look.treatment.total) for look in looks] == [(1, 1.0)]


def test_crashed_and_invalid_experiments_are_no_evidence() -> None:
    """History for decisions holds measured experiments only, the baseline at its head."""
    outcomes = ["kept", "crashed", "invalid", "reverted"]
    experiments = [
        Experiment(id=index + 1, run_id="r", number=index, session_id=1, outcome=outcome)
        for index, outcome in enumerate(outcomes)
    ]
    measurements = {index + 1: [row(float(index))] for index in range(4)}
    found = memory.past_evidence(experiments, measurements)
    assert [(item.look.treatment.total, item.kept) for item in found] == [(0.0, True), (3.0, False)]


def test_noise_comes_from_replicates() -> None:
    """Two measurements of one artifact say how far apart measurements lie; single ones say nothing."""
    noise = memory.noise_of(METRIC, {1: [row(1.0), row(3.0, look=1)], 2: [row(100.0)]})
    assert noise is not None and abs(noise.sd - 2**0.5) < 1e-12


def test_a_category_without_a_keep_is_on_a_plateau_until_others_had_their_turn() -> None:
    """Four misses in a row switch the category; four experiments elsewhere switch it back."""
    misses = [past(n, "a", Outcome.REVERTED) for n in range(4)]
    assert memory.plateaued(misses) == {"a"}
    assert memory.plateaued([*misses[:3], past(4, "a", Outcome.KEPT)]) == frozenset()
    assert memory.plateaued([*misses, *(past(n, "b", Outcome.KEPT) for n in range(4))]) == frozenset()


def test_failures_in_a_row_are_counted_from_the_newest() -> None:
    """An accepted proposal ends the row, and failures of earlier sessions do not count."""
    now = datetime.now(UTC)

    def made(status: str, minutes: int = 0) -> ProposalRow:
        return ProposalRow(run_id="r", number=1, attempt=1, status=status, created=now + timedelta(minutes=minutes))

    rows = [made("failed", -9), made("failed"), made("accepted"), made("failed"), made("refused")]
    assert memory.failures_in_a_row(rows, now - timedelta(minutes=1)) == 2
    assert memory.failures_in_a_row(rows[:2], now - timedelta(minutes=1)) == 1


def judged(number: int, *, session: int = 1, outcome: str = "reverted") -> Experiment:
    return Experiment(id=number + 1, run_id="r", number=number, session_id=session, outcome=outcome)


def test_pairs_are_runs_of_both_arms_on_the_same_seed() -> None:
    """The sum of products runs over common seeds only, and is absent where there is none."""
    rows = [row(2.0, seed=1), row(3.0, seed=1, arm="control", look=1), row(5.0, seed=2, look=2)]
    assert [look.cross for look in memory.looks_of(rows)] == [None, 6.0, 6.0]


def test_blocks_count_sessions_with_judged_experiments() -> None:
    """Each session that judged something is a block of its own, and one that only crashed is none."""
    experiments = [judged(0, outcome="kept"), judged(1), judged(2, session=5, outcome="crashed"), judged(3, session=7)]
    measurements = {item.id: [row(1.0)] for item in experiments}
    assert [past.block for past in memory.past_evidence(experiments, measurements)] == [0, 0, 1]
    known = memory.evidence(METRIC, experiments, measurements, judged(4, session=9))
    assert known.block == 2
    assert memory.evidence(METRIC, experiments, measurements, judged(4, session=7)).block == 1


def test_past_experiments_remember_their_looks() -> None:
    """Which run had which seed can be told later: each look of the past is there, in order."""
    rows = [row(1.0, seed=0), row(2.0, seed=1, look=1)]
    (past,) = memory.past_evidence([judged(0, outcome="kept")], {1: rows})
    assert [look.treatment.n for look in past.all_looks] == [1, 2]


def test_the_noise_is_settled_between_estimates() -> None:
    """The noise stays while its degrees of freedom grow by less than a tenth; the experiment in flight is no part."""
    record = memory.Record()
    estimates = []
    for number in range(40):
        pair = [row(float(number % 2), seed=0), row(float(number % 3), seed=1, look=1)]
        record.add(judged(number, outcome="kept" if number == 0 else "reverted"), pair)
        assert record.noise is not None
        estimates.append(record.noise.dof)
    assert estimates[:10] == list(range(1, 11))
    assert len(set(estimates[20:])) < 10
    current = record.evidence(METRIC, judged(40), [row(0.0, seed=0), row(50.0, seed=1, look=1)])
    assert current.noise == record.noise


class FinishedLedger:
    """Hands out finished experiments, one measured pair each, and counts how many it handed out."""

    def __init__(self) -> None:
        self.finished: list[tuple[Experiment, list[MeasurementRow]]] = []

    def finish(self, *values: float) -> None:
        number = len(self.finished)
        experiment = judged(number, session=1 + number // 3, outcome="kept" if number == 0 else "reverted")
        experiment.sequence = number + 1
        self.finished.append((experiment, [row(v, seed=seed, look=seed) for seed, v in enumerate(values)]))

    def fresh(self, run_id: str, split: str) -> list[object]:
        return []

    def finished_after(self, run_id: str, sequence: int) -> list[tuple[Experiment, list[MeasurementRow]]]:
        return self.finished[sequence:]


def test_a_history_gives_the_same_evidence_for_the_price_of_what_is_new() -> None:
    """Kept up experiment by experiment, it is what is found by reading the whole run, block and noise included."""
    ledger = FinishedLedger()
    history = History(ledger, "r")  # type: ignore[arg-type]
    for values in ((1.0, 1.5), (3.0,), (0.0, 2.0), (1.0,), (5.0, 5.1)):
        ledger.finish(*values)
        history.refresh()
        current, rows = judged(len(ledger.finished), session=8), [row(0.5)]
        found = history.evidence(METRIC, current, rows)
        measurements = {**history.measurements, current.id: rows}
        assert found == memory.evidence(METRIC, history.experiments, measurements, current)
    before = history.evidence(METRIC).history
    ledger.finish(2.0)
    after = history.refresh().evidence(METRIC).history
    assert all(one is same for one, same in zip(before, after, strict=False)), "what is known is not made anew"
