from __future__ import annotations

import time

import pytest

from autoresearch.adapters.ml_training.budget import Budget, Load, LoadJudge, LoadSample
from autoresearch.adapters.ml_training.task import ClockKind


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


def judged(shares: list[float], *, clock: ClockKind = "cpu", min_cpu_share: float = 0.25) -> list[bool]:
    """Return for trainings with these shares of a processor, one after another, which were called disturbed."""
    judge = LoadJudge(clock=clock, min_cpu_share=min_cpu_share)
    return [judge.disturbance(Load(share, 0.9)) is not None for share in shares]


def test_a_starved_training_is_disturbed_from_the_first_on() -> None:
    """Below the bound, whatever the others got; a bound of zero accepts everything."""
    assert judged([0.2, 0.3]) == [True, False]
    assert judged([0.2, 0.9, 0.9, 0.9, 0.1], min_cpu_share=0.0) == [False] * 5


def test_a_training_that_got_much_less_than_the_ones_before_is_disturbed() -> None:
    """A third less is nothing, half is too much, and afterwards all is as before."""
    assert judged([0.95, 0.9, 0.9, 0.65, 0.45, 0.9, 0.95]) == [False, False, False, False, True, False, False]


def test_a_lasting_load_is_the_usual_one_after_two_trainings() -> None:
    """Nothing is measured again for ever: the third of a row is judged, as are all after it."""
    assert judged([0.9] * 4 + [0.4] * 5) == [False] * 4 + [True, True, False, False, False]


def test_a_machine_that_is_always_busy_disturbs_nobody() -> None:
    """All trainings lose alike."""
    assert not any(judged([0.4, 0.45, 0.38, 0.42, 0.4]))


def test_a_gpu_training_is_never_called_disturbed() -> None:
    """Its processor idles by nature."""
    assert not any(judged([0.9, 0.9, 0.9, 0.01], clock="wall"))


def test_the_sentence_names_the_shares() -> None:
    """Own and others', and what was usual."""
    judge = LoadJudge(clock="cpu", min_cpu_share=0.25)
    for _ in range(3):
        judge.disturbance(Load(0.9, 0.1))
    sentence = judge.disturbance(Load(0.4, 0.8))
    assert sentence is not None
    assert all(share in sentence for share in ("40%", "80%", "90%"))
