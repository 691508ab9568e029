"""The total of all kept changes, told three ways."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.total import Totals, in_words, log_lift, shrunk_logs, totals_of
from autoresearch.core import ArmTotals, Direction, Look
from autoresearch.core.ledger import Ledger, Run
from tests.adapters.marketing.campaigns import edit, write_campaign


def look(a: int, n: int, b: int, m: int) -> Look:
    return Look(ArmTotals("control", n, a, a), ArmTotals("treatment", m, b, b))


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
    assert "not known yet" in unknown and "truth" not in unknown


def test_traffic_without_a_holdout_says_so(tmp_path: Path) -> None:
    """Another tool and past people hold nobody back, so nothing is awaited; past people are labelled."""
    folder = write_campaign(tmp_path)
    edit(folder, "campaign.toml", 'source = "simulated"', 'source = "replay"')
    with Ledger.open(folder / ".autoresearch" / "ledger.db") as ledger:
        ledger.add_run(Run(id="r", adapter="marketing"))
        text = in_words(totals_of(folder, ledger))
    assert "(replayed)" in text and "nobody is held back" in text and "not known yet" not in text
