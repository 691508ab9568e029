"""The total of all kept changes, told three ways."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.total import Totals, in_words, log_lift, shrunk_logs, totals_of
from autoresearch.core import ArmTotals, Direction, Look
from autoresearch.core.ledger import Experiment, Ledger, LiveLook, Run, Session
from tests.adapters.marketing.campaigns import edit, write_campaign
from tests.adapters.marketing.with_surfaces import write_surfaces


def look(a: int, n: int, b: int, m: int) -> Look:
    return Look(ArmTotals("control", n, a, a), ArmTotals("treatment", m, b, b))


def kept_in_lane(ledger: Ledger, lane: str, last: Look) -> None:
    """Write a kept experiment of a lane with one look into the run `r`."""
    session = ledger.add_session(Session(run_id="r", pid=1, host="here"))
    row = ledger.begin_experiment(Experiment(run_id="r", number=1, session_id=session.id, lane=lane))
    ledger.add_live_look(
        [
            LiveLook(experiment_id=row.id, look=1, arm=arm.arm, n=arm.n, total=arm.total, total_sq=arm.total_sq)
            for arm in (last.control, last.treatment)
        ]
    )
    ledger.finish_experiment(row.id, outcome="kept", reason="")


def test_a_log_lift_is_positive_where_better() -> None:
    """Twice the rate is log 2 where more is better, and its negative where less is."""
    log, variance = log_lift(look(500, 10_000, 1000, 10_000), Direction.MAXIMIZE)
    assert log == pytest.approx(math.log(2), abs=1e-3)
    assert variance == pytest.approx(1 / 500 + 1 / 1000 - 2 / 10_000, rel=1e-2)
    assert log_lift(look(500, 10_000, 1000, 10_000), Direction.MINIMIZE)[0] == pytest.approx(-log)


def test_nobody_who_converts_has_a_finite_log_lift() -> None:
    """An arm without conversions says little and breaks nothing."""
    log, variance = log_lift(look(0, 100, 3, 100), Direction.MAXIMIZE)
    assert math.isfinite(log) and variance > 1


def test_the_variance_of_a_mean_is_that_of_its_values() -> None:
    """One in twenty buys for 40 or so: the log lifts of equal arms vary by what is said, and a sum is no count."""
    dice = random.Random(1)

    def arm() -> ArmTotals:
        return ArmTotals.of("any", [dice.expovariate(1 / 40) if dice.random() < 0.05 else 0.0 for _ in range(2000)])

    found = [log_lift(Look(arm(), arm()), Direction.MAXIMIZE) for _ in range(60)]
    assert statistics.fmean(said for _, said in found) == pytest.approx(
        statistics.variance(log for log, _ in found), rel=0.5
    )


def test_refunds_above_sales_have_a_finite_log_lift() -> None:
    """A sum below nothing has no logarithm, and breaks nothing."""
    refunded = Look(ArmTotals("control", 100, 300.0, 9_000.0), ArmTotals("treatment", 100, -20.0, 400.0))
    log, variance = log_lift(refunded, Direction.MAXIMIZE)
    assert log < 0 and math.isfinite(log) and variance > 0


def test_shrinking_takes_the_luck_off_winners() -> None:
    """Over many runs the winners' shrunk lifts sum to their true ones; as measured they sum to far more."""
    dice = random.Random(3)
    raw, shrunk, true = [], [], []
    for _ in range(200):
        truths = [dice.gauss(0.0, 0.05) for _ in range(40)]
        logs = [(dice.gauss(truth, 0.05), 0.05**2) for truth in truths]
        after = shrunk_logs(logs)
        winners = [index for index, (log, _) in enumerate(logs) if log > 0.08]
        raw += [logs[index][0] for index in winners]
        shrunk += [after[index] for index in winners]
        true += [truths[index] for index in winners]
    assert statistics.fmean(raw) > 1.7 * statistics.fmean(true)
    assert statistics.fmean(shrunk) == pytest.approx(statistics.fmean(true), rel=0.1)


def test_no_tests_have_nothing_to_shrink() -> None:
    """An empty run is an empty list."""
    assert shrunk_logs([]) == []


def test_totals_in_words_say_what_each_is_worth() -> None:
    """Simulated numbers are labelled, an unknown holdout is said to be unknown, a missing bound is a question mark."""
    known = Totals("r", 2, 0.3, 0.2, 0.25, None, 0.6, 120, 0.22, "simulated")
    text = in_words(known)
    assert "2 kept changes of run r (simulated)" in text and "from ? to +60.0%" in text and "truth       +22.0%" in text
    unknown = in_words(Totals("r", 0, 0.0, 0.0, None, None, None, 0, None, ""))
    assert "not known yet: since the last change nobody was counted yet" in unknown and "truth" not in unknown
    assert "to more than tenfold;" in in_words(Totals("r", 1, 0.3, 0.2, 0.25, -0.8, 1.8e8, 110, None, ""))
    assert "first original" not in text


@pytest.mark.parametrize(("others", "says"), [(1, "the change that another run kept counts"), (3, "the 3 changes")])
def test_what_other_runs_kept_is_said_to_be_in_the_holdout(others: int, says: str) -> None:
    """The holdout sees the original of the first run, so that its lift is over all runs and not over the latest."""
    assert says in in_words(Totals("r", 2, 0.3, 0.2, 0.25, None, 0.6, 120, 0.22, "simulated", others=others))


def test_traffic_without_a_holdout_says_so(tmp_path: Path) -> None:
    """Another tool and past people hold nobody back, so nothing is awaited; past people are labelled."""
    folder = write_campaign(tmp_path)
    edit(folder, "campaign.toml", 'source = "simulated"', 'source = "replay"')
    with Ledger.open(folder / ".autoresearch" / "ledger.db") as ledger:
        ledger.add_run(Run(id="r", adapter="marketing"))
        text = in_words(totals_of(folder, ledger))
    assert "(replayed)" in text and "nobody is held back" in text and "not known yet" not in text


@pytest.mark.parametrize(("reach", "expected"), [(1.0, 0.2), (0.25, 0.05)])
def test_a_change_for_a_part_of_the_people_counts_for_that_part(tmp_path: Path, reach: float, expected: float) -> None:
    """A fifth more of an audience of a quarter is a twentieth more of all."""
    folder = write_surfaces(tmp_path)
    edit(folder, "campaign.toml", 'slots = ["subhead"]', f'slots = ["subhead"]\nreach = {reach}')
    with Ledger.open(folder / ".autoresearch" / "ledger.db") as ledger:
        ledger.add_run(Run(id="r", adapter="marketing"))
        kept_in_lane(ledger, "ads", look(100_000, 1_000_000, 120_000, 1_000_000))
        found = totals_of(folder, ledger)
    assert found.kept == 1 and found.believed == pytest.approx(expected, rel=1e-3)
