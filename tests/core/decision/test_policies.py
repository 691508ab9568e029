from __future__ import annotations

import math

import pytest

from autoresearch.core.decision import Policy
from autoresearch.core.decision.policies import create_policy, policy_names
from autoresearch.core.errors import UsageError


def test_every_name_makes_a_policy_of_that_name() -> None:
    """What is listed can be created, and says its own name."""
    for name in policy_names():
        policy = create_policy(name)
        assert isinstance(policy, Policy)
        assert policy.name == name


def test_parameters_are_taken_and_reported() -> None:
    """A policy made again from its own parameters has the same ones."""
    policy = create_policy("bayes", {"keep_at": 0.9, "max_looks": 3.0})
    assert dict(policy.parameters) == {"keep_at": 0.9, "drop_below": 0.5, "max_looks": 3.0}
    assert create_policy("bayes", policy.parameters).parameters == policy.parameters


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("byes", {}, "No policy named 'byes' is installed; found bayes"),
        ("bayes", {"keep": 0.9}, "no parameter 'keep'; it has keep_at, drop_below, max_looks"),
        ("greedy", {"keep_at": 0.9}, "it has nothing to set"),
        ("bayes", {"keep_at": 1.0}, "between 0 and 1"),
        ("bayes", {"keep_at": 0.4}, "drop_below must lie between 0 and keep_at"),
        ("bayes", {"drop_below": -0.1}, "drop_below must lie"),
        ("bayes", {"max_looks": 0.0}, "1 or more"),
        ("bayes", {"max_looks": 1.5}, "whole number"),
        ("bayes", {"keep_at": math.nan}, "must be a number"),
    ],
)
def test_wrong_names_and_values_get_a_sentence(name: str, parameters: dict[str, float], sentence: str) -> None:
    """A wrong policy, parameter or value is a usage error that says what is allowed."""
    with pytest.raises(UsageError, match=sentence):
        create_policy(name, parameters)
