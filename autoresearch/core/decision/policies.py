"""The policies by name, as `--policy` and the table `[policy]` of `autoresearch.toml` give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from autoresearch.core import registry
from autoresearch.core.decision import Policy
from autoresearch.core.decision.bayes import BayesPolicy
from autoresearch.core.decision.finite_list import FiniteListPolicy
from autoresearch.core.decision.greedy import GreedyPolicy
from autoresearch.core.decision.race_bernoulli import PRIOR
from autoresearch.core.decision.race_policy import RacePolicy
from autoresearch.core.errors import UsageError


def create_policy(name: str, parameters: Mapping[str, float] | None = None) -> Policy:
    """Return the policy `name` with `parameters`; what is left out has its default.

    Raises:
        UsageError: If there is no such policy, it has no such parameter, or a value is out of its range.
    """
    given = dict(parameters or {})
    if not registry.is_ours(registry.POLICIES, name):
        return registry.create_policy(name, given)
    factory, known = _FACTORIES[name]
    surplus = sorted(given.keys() - known)
    if surplus:
        has = f"it has {', '.join(known)}" if known else "it has nothing to set"
        raise UsageError(f"The policy {name} has no parameter {surplus[0]!r}; {has}.")
    for parameter, value in given.items():
        if not math.isfinite(value):
            raise UsageError(f"The parameter {parameter} of the policy {name} must be a number, not {value}.")
    try:
        return factory(given)
    except ValueError as error:
        raise UsageError(f"The policy {name} cannot work like this: {error}") from error


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies, sorted."""
    return registry.names(registry.POLICIES)


def _bayes(parameters: Mapping[str, float]) -> Policy:
    return BayesPolicy(
        keep_at=parameters.get("keep_at", 0.8),
        drop_below=parameters.get("drop_below", 0.5),
        max_looks=_whole("max_looks", parameters.get("max_looks", 2.0)),
    )


def _whole(name: str, value: float) -> int:
    if value != int(value):
        raise ValueError(f"{name} must be a whole number, not {value}.")
    return int(value)


def _greedy(parameters: Mapping[str, float]) -> Policy:
    return GreedyPolicy()


def _test_and_roll(parameters: Mapping[str, float]) -> Policy:
    return FiniteListPolicy()


def _race(parameters: Mapping[str, float]) -> Policy:
    looks = parameters.get("max_looks")
    return RacePolicy(
        alpha=parameters.get("alpha", 0.05),
        beta=parameters.get("beta", 0.2),
        min_effect=parameters.get("min_effect"),
        max_looks=None if looks is None else _whole("max_looks", looks),
        prior=(parameters.get("prior_successes", PRIOR[0]), parameters.get("prior_failures", PRIOR[1])),
    )


_FACTORIES: Mapping[str, tuple[Callable[[Mapping[str, float]], Policy], tuple[str, ...]]] = {
    "bayes": (_bayes, ("keep_at", "drop_below", "max_looks")),
    "greedy": (_greedy, ()),
    "race": (_race, ("alpha", "beta", "min_effect", "max_looks", "prior_successes", "prior_failures")),
    "test_and_roll": (_test_and_roll, ()),
}
