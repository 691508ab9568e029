"""Adapters, proposers and policies by name, through entry points; a broken package stays visible and hurts nobody."""

from __future__ import annotations

import importlib.metadata
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoresearch.core.adapter import CONTRACT_VERSION, Adapter, LiveAdapter
from autoresearch.core.errors import AutoresearchError, EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    from autoresearch.core.decision import Policy
    from autoresearch.core.proposers import Proposer

ADAPTERS = "autoresearch.adapters"
COMMANDS = "autoresearch.commands"
PROPOSERS = "autoresearch.proposers"
POLICIES = "autoresearch.policies"

BUILT_IN: Mapping[str, tuple[str, ...]] = {
    PROPOSERS: ("claude", "mcp", "search"),
    POLICIES: ("bayes", "greedy", "race", "test_and_roll"),
}
"""Names that the program itself answers to; a package that claims one of them is refused."""

_MEMBERS = {
    "metric": "metric: Metric (a property)",
    "scope": "scope: Scope (a property)",
    "prepare": "prepare(self, workspace: Workspace) -> None",
    "measure": "measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement",
    "start": "start(self, experiment: LiveExperiment) -> None",
    "observe": "observe(self, experiment_id: str) -> Sequence[ArmTotals]",
    "finish": "finish(self, experiment_id: str, outcome: Outcome) -> None",
}
_PROPOSER_MEMBERS = {
    "name": "name: str (a property)",
    "estimate": "estimate(self, request: ProposalRequest) -> CostEstimate",
    "propose": "propose(self, request: ProposalRequest) -> Proposal",
}
_POLICY_MEMBERS = {
    "name": "name: str (a property)",
    "parameters": "parameters: Mapping[str, float] (a property)",
    "needs_noise": "needs_noise: bool (a property)",
    "decide": "decide(self, evidence: Evidence) -> Verdict",
    "believed_gain": "believed_gain(self, evidence: Evidence) -> float",
}
_CALLS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "prepare": (1, ()),
    "measure": (1, ("seed", "split", "run")),
    "start": (1, ()),
    "observe": (1, ()),
    "finish": (2, ()),
    "estimate": (1, ()),
    "propose": (1, ()),
    "decide": (1, ()),
    "believed_gain": (1, ()),
}
"""How the loop calls each method: so many positional arguments, and these by name."""

_FACTORIES: Mapping[str, tuple[str, int, tuple[str, ...]]] = {
    ADAPTERS: ("create_adapter(options: Mapping[str, str]) -> Adapter", 1, ()),
    PROPOSERS: ("create_proposer(*, model: str | None, seed: int) -> Proposer", 0, ("model", "seed")),
    POLICIES: ("create_policy(parameters: Mapping[str, float]) -> Policy", 1, ()),
}
"""How a factory of each group is called: its signature, positional arguments, and these by name."""

_MEASURED = ("metric", "scope", "prepare", "measure")
_LIVE = ("metric", "scope", "start", "observe", "finish")


@dataclass(frozen=True, slots=True)
class Registered:
    """One entry point as the installed packages declare it.

    Attributes:
        name: Name that people type.
        distribution: Package that declares it.
        version: Version of that package.
        target: `module:attribute`.
    """

    name: str
    distribution: str
    version: str
    target: str

    def load(self) -> Any:
        """Import what the entry point names.

        Raises:
            EnvironmentNotReadyError: If importing it fails; names the package and keeps the cause.
        """
        entry = importlib.metadata.EntryPoint(self.name, self.target, "")
        try:
            return entry.load()
        # Whatever a stranger's module raises while it is imported, the sentence has to name whose module it is; a
        # module that ends the process would take the list of all adapters with it.
        except (Exception, SystemExit) as error:
            raise EnvironmentNotReadyError(
                f"{self.distribution} {self.version} declares {self.name!r} ({self.target}), "
                f"but it cannot be loaded: {type(error).__name__}: {error}.\n"
                f"Repair or remove that package: pip install --force-reinstall {self.distribution}"
            ) from error


def registered(group: str) -> list[Registered]:
    """Return what installed packages declare in an entry-point group, sorted by name; nothing is imported."""
    found = {
        Registered(
            entry.name,
            entry.dist.name if entry.dist else "unknown",
            entry.dist.version if entry.dist else "unknown",
            entry.value,
        )
        for entry in importlib.metadata.entry_points(group=group)
    }
    return sorted(found, key=lambda item: (item.name, item.distribution))


def find(group: str, name: str) -> Registered:
    """Return the one entry point of that name.

    Raises:
        UsageError: If there is none (names those there are), or two packages claim the name (names both).
    """
    entries = registered(group)
    matching = [entry for entry in entries if entry.name == name]
    owners = _owners(group, name, entries)
    if len(owners) > 1:
        raise UsageError(f"Two packages claim the name {name!r}: {' and '.join(owners)}.\nUninstall one of them.")
    if not matching:
        there = ", ".join(names(group)) or "none"
        kind = {PROPOSERS: "proposer", POLICIES: "policy"}.get(group, "adapter")
        raise UsageError(
            f"No {kind} named {name!r} is installed; found {there}.\n"
            "Install the package that provides it, or list what you have: autoresearch adapters"
        )
    return matching[0]


def names(group: str) -> tuple[str, ...]:
    """Return every name of a group, those of the program itself included, sorted."""
    return tuple(sorted({*BUILT_IN.get(group, ()), *(entry.name for entry in registered(group))}))


def is_ours(group: str, name: str) -> bool:
    """Say whether the program itself answers to a name.

    Raises:
        UsageError: If an installed package claims it too; names that package.
    """
    if name not in BUILT_IN.get(group, ()):
        return False
    owners = _owners(group, name, registered(group))
    if len(owners) > 1:
        raise UsageError(f"Two packages claim the name {name!r}: {' and '.join(owners)}.\nUninstall the second.")
    return True


def _owners(group: str, name: str, entries: Sequence[Registered]) -> list[str]:
    ours = ["autoresearch itself"] if name in BUILT_IN.get(group, ()) else []
    return ours + [f"{entry.distribution} {entry.version}" for entry in entries if entry.name == name]


def create_adapter(name: str, options: Mapping[str, str]) -> tuple[Adapter | LiveAdapter, Registered]:
    """Create the adapter of that name and check it once against the contract.

    Raises:
        UsageError: If there is no such adapter, or it refuses the options.
        EnvironmentNotReadyError: If its package is broken or does not keep the contract.
    """
    entry = find(ADAPTERS, name)
    adapter = _made(entry, ADAPTERS, dict(options))
    check_adapter(adapter, _owner(entry))
    return adapter, entry


def create_proposer(name: str, *, model: str | None, seed: int) -> Proposer:
    """Create a proposer of an installed package and check it once against its contract.

    Its entry point names `create_proposer(*, model: str | None, seed: int) -> Proposer`.

    Raises:
        UsageError: If there is no such proposer.
        EnvironmentNotReadyError: If its package is broken or does not keep the contract.
    """
    entry = find(PROPOSERS, name)
    made = _made(entry, PROPOSERS, model=model, seed=seed)
    _demand(made, _PROPOSER_MEMBERS, tuple(_PROPOSER_MEMBERS), f"The proposer {name} of {_owner(entry)}")
    proposer: Proposer = made
    return proposer


def create_policy(name: str, parameters: Mapping[str, float]) -> Policy:
    """Create a policy of an installed package and check it once against its contract.

    Its entry point names `create_policy(parameters: Mapping[str, float]) -> Policy`, which raises ValueError where a
    parameter is unknown or out of its range.

    Raises:
        UsageError: If there is no such policy, or it refuses the parameters.
        EnvironmentNotReadyError: If its package is broken or does not keep the contract.
    """
    entry = find(POLICIES, name)
    made = _made(entry, POLICIES, dict(parameters))
    _demand(made, _POLICY_MEMBERS, tuple(_POLICY_MEMBERS), f"The policy {name} of {_owner(entry)}")
    policy: Policy = made
    return policy


def _owner(entry: Registered) -> str:
    return f"{entry.distribution} {entry.version} ({entry.target})"


def _factory(entry: Registered, group: str) -> Callable[..., Any]:
    """Return what an entry point names, which must be something to call as factories of its group are called."""
    loaded = entry.load()
    if not callable(loaded):
        raise EnvironmentNotReadyError(
            f"{_owner(entry)} is no function but {type(loaded).__name__}, and the entry point {entry.name!r} must name "
            "one that makes it.\nName the factory in the entry points of that package."
        )
    wanted, positional, named = _FACTORIES[group]
    if not _fits(loaded, positional, named):
        raise EnvironmentNotReadyError(
            f"{_owner(entry)} cannot be called as the loop does; it must be {wanted}.\nMend its arguments."
        )
    factory: Callable[..., Any] = loaded
    return factory


def _made(entry: Registered, group: str, *arguments: Any, **named: Any) -> Any:
    """Call a factory; whatever a stranger's one raises, the sentence names whose it is."""
    factory = _factory(entry, group)
    try:
        return factory(*arguments, **named)
    except AutoresearchError:
        raise
    except ValueError as error:
        kind = _FACTORIES[group][0].partition("(")[0].removeprefix("create_")
        raise UsageError(f"The {kind} {entry.name} cannot work like this: {error}") from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise EnvironmentNotReadyError(
            f"{_owner(entry)} failed with {type(error).__name__}: {error} ({place.filename}, line {place.lineno}).\n"
            f"Mend it there, or remove that package: pip uninstall {entry.distribution}"
        ) from error


def check_adapter(adapter: object, owner: str) -> None:
    """Check that an object keeps one of the two contracts.

    Raises:
        EnvironmentNotReadyError: If it does not; names the owner and the missing member with its signature.
    """
    version = getattr(adapter, "contract_version", CONTRACT_VERSION)
    if version != CONTRACT_VERSION:
        raise EnvironmentNotReadyError(
            f"The adapter of {owner} was written for contract version {version}; "
            f"this release keeps version {CONTRACT_VERSION}.\nInstall a matching release of one of the two."
        )
    wanted = _LIVE if _looks_live(adapter) else _MEASURED
    _demand(adapter, _MEMBERS, wanted, f"The adapter {type(adapter).__name__} of {owner}")


def _demand(made: object, members: Mapping[str, str], wanted: Sequence[str], whose: str) -> None:
    """Raise EnvironmentNotReadyError where a member is missing, or cannot be called as the loop calls it."""
    # Ask the class first: a property must not be computed only to see whether it is there.
    missing = [name for name in wanted if not hasattr(type(made), name) and not hasattr(made, name)]
    if missing:
        lines = "\n".join(f"    {members[name]}" for name in missing)
        raise EnvironmentNotReadyError(
            f"{whose} lacks\n{lines}\nAdd it; the protocols in autoresearch.core say what each member has to do."
        )
    for name in wanted:
        if name in _CALLS and not _fits(getattr(made, name), *_CALLS[name]):
            raise EnvironmentNotReadyError(
                f"{whose} has a member {name} that cannot be called as the loop does. It must be\n    {members[name]}\n"
                "Mend its arguments; the protocols in autoresearch.core say what each is."
            )


def _fits(method: object, positional: int, named: tuple[str, ...]) -> bool:
    """Say whether a method takes so many positional arguments and these named ones, and needs no other."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*range(positional), **dict.fromkeys(named))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature to read
        return True
    return True


def _looks_live(adapter: object) -> bool:
    """Say whether the author meant a live adapter: it starts or observes, and measures nothing."""
    return not hasattr(adapter, "measure") and (hasattr(adapter, "observe") or hasattr(adapter, "start"))


def state_of(entry: Registered, all_entries: list[Registered], group: str = ADAPTERS) -> str:
    """Return `ok`, or the first line of what is wrong with an entry point; imports it."""
    owners = ["autoresearch itself"] if entry.name in BUILT_IN.get(group, ()) else []
    owners += [other.distribution for other in all_entries if other.name == entry.name]
    if len(owners) > 1:
        return f"name claimed by {' and '.join(owners)}"
    try:
        _factory(entry, group)
    except AutoresearchError as error:
        return str(error).splitlines()[0]
    return "ok"
