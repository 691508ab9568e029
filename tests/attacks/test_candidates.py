"""Each hostile candidate gets the outcome that it deserves, does no harm, and lets the run go on."""

from __future__ import annotations

import re

import pytest

from autoresearch.adapters.ml_training import runner
from autoresearch.core import landlock
from autoresearch.core.sandbox import Level
from tests.attacks.candidates import ATTACKS, Attack
from tests.attacks.conftest import Scene

SIGNALS_ABI = 6


def cases() -> list[object]:
    return [pytest.param(it, id=it.name.replace(" ", "-"), marks=[pytest.mark.slow] * it.slow) for it in ATTACKS]


@pytest.mark.parametrize("attack", cases())
def test_a_hostile_candidate_gets_what_it_deserves(
    attack: Attack, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is invalid, crashed, or measured as what it honestly is. Without a sandbox some do harm, and that shows."""
    expected = attack.outcome
    if not scene.level.confines:
        if attack.at_limits is None:
            pytest.skip("without a sandbox this attack succeeds, at the expense of whoever runs the tests")
        expected = attack.outcome if attack.at_limits == {"same"} else attack.at_limits
    if attack.signals and scene.level is Level.LANDLOCK and landlock.abi() < SIGNALS_ABI:
        pytest.skip("before Linux 6.12 Landlock stops no signal, and this one would end the tests")
    for name, value in attack.patches.items():
        monkeypatch.setattr(runner, name, value)
    if attack.prepare is not None:
        attack.prepare(scene)
    outcome, why = scene.measure(attack.script)
    assert outcome in expected, f"{outcome}: {why}\n{scene.log.read_text(errors='replace')[-2000:]}"
    if not scene.level.confines and attack.success is not None:
        attack.success(scene)
        return
    if expected == attack.outcome:
        assert re.search(attack.says, why), why
    if attack.harm is not None:
        attack.harm(scene)


def test_there_are_at_least_twenty_kinds_of_them() -> None:
    """Names are told apart, so that a list of them can be read."""
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 20
