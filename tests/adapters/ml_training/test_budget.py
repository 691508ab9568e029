from __future__ import annotations

import time

import pytest

from autoresearch.adapters.ml_training.budget import Budget, Load, LoadSample, disturbance


def burn(cpu_seconds: float) -> None:
    end = time.process_time() + cpu_seconds
    while time.process_time() < end:
        pass


def test_a_cpu_budget_counts_work_and_not_sleep() -> None:
    """Sleeping 0.2 s uses almost nothing of it; burning 0.1 s uses just that."""
    budget = Budget(10.0, clock="cpu")
    time.sleep(0.2)
    slept = budget.spent
    burn(0.1)
    assert slept < 0.1
    assert 0.1 <= budget.spent - slept < 0.2


def test_a_wall_budget_counts_sleep() -> None:
    """A GPU works while the processor waits."""
    budget = Budget(10.0, clock="wall")
    time.sleep(0.05)
    assert budget.spent >= 0.05


def test_the_clock_starts_after_the_warm_up_steps() -> None:
    """With two warm-up steps nothing is spent before the second step is done and the clock started."""
    budget = Budget(1.0, clock="wall", warmup_steps=2)
    assert not budget.step_done()
    assert budget.step_done()
    time.sleep(0.01)
    assert (budget.spent, budget.progress, budget.running) == (0.0, 0.0, False)
    budget.start()
    time.sleep(0.01)
    assert budget.spent > 0
    assert not budget.step_done()


def test_progress_stays_at_one_and_an_overrun_is_seen() -> None:
    """The step in flight may end; half a second more than that may not."""
    budget = Budget(0.01, clock="cpu")
    burn(0.02)
    assert budget.progress == 1.0
    assert not budget.overrun
    burn(0.52)
    assert budget.overrun


def test_the_load_separates_own_work_from_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2 processors for 10 s, 8 s were ours and 6 s were somebody else's."""
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    load = Load.between(LoadSample(0.0, 100.0, 1.0), LoadSample(10.0, 114.0, 9.0))
    assert load.own_share == pytest.approx(0.8)
    assert load.others_share == pytest.approx(0.3)


def test_a_sample_of_the_real_machine_only_grows() -> None:
    """The kernel's counters rise with our own work."""
    before = LoadSample.take(time.process_time())
    burn(0.15)
    after = LoadSample.take(time.process_time())
    assert after.busy - before.busy >= 0.1
    assert 0.0 <= Load.between(before, after).others_share <= 1.0


@pytest.mark.parametrize(
    ("own_share", "clock", "bound", "disturbed"),
    [(0.2, "cpu", 0.25, True), (0.3, "cpu", 0.25, False), (0.2, "cpu", 0.0, False), (0.01, "wall", 0.25, False)],
)
def test_only_a_starved_cpu_run_is_disturbed(own_share: float, clock: str, bound: float, disturbed: bool) -> None:
    """On a GPU the processor idles by nature, and a bound of zero accepts everything."""
    sentence = disturbance(Load(own_share, 0.9), clock=clock, min_cpu_share=bound)  # type: ignore[arg-type]
    assert (sentence is not None) is disturbed
    if sentence is not None:
        assert "20%" in sentence
