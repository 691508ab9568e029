"""The policies by name, as `--policy` and the table `[policy]` of `autoresearch.toml` give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from autoresearch.core.decision import Policy
from autoresearch.core.decision.bayes import BayesPolicy
from autoresearch.core.decision.greedy import GreedyPolicy
from autoresearch.core.errors import UsageError


def create_policy(name: str, parameters: Mapping[str, float] | None = None) -> Policy:
    """Return the policy `name` with `parameters`; what is left out has its default.

    Raises:
        UsageError: If there is no such policy, it has no such parameter, or a value is out of its range.
    """
    if name not in _FACTORIES:
        raise UsageError(f"No policy is named {name!r}; there are {', '.join(sorted(_FACTORIES))}.")
    factory, known = _FACTORIES[name]
    given = dict(parameters or {})
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
    return tuple(sorted(_FACTORIES))


def _bayes(parameters: Mapping[str, float]) -> Policy:
    looks = parameters.get("max_looks", 2.0)
    if looks != int(looks):
        raise ValueError(f"max_looks must be a whole number, not {looks}.")
    return BayesPolicy(
        keep_at=parameters.get("keep_at", 0.8), drop_below=parameters.get("drop_below", 0.5), max_looks=int(looks)
    )


def _greedy(parameters: Mapping[str, float]) -> Policy:
    return GreedyPolicy()


_FACTORIES: Mapping[str, tuple[Callable[[Mapping[str, float]], Policy], tuple[str, ...]]] = {
    "bayes": (_bayes, ("keep_at", "drop_below", "max_looks")),
    "greedy": (_greedy, ()),
}
