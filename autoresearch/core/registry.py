"""Adapters, proposers and policies by name, through entry points; a broken package stays visible and hurts nobody."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoresearch.core.adapter import CONTRACT_VERSION, Adapter, LiveAdapter
from autoresearch.core.errors import AutoresearchError, EnvironmentNotReadyError, UsageError

ADAPTERS = "autoresearch.adapters"
COMMANDS = "autoresearch.commands"

_MEMBERS = {
    "metric": "metric: Metric (a property)",
    "scope": "scope: Scope (a property)",
    "prepare": "prepare(self, workspace: Workspace) -> None",
    "measure": "measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement",
    "start": "start(self, experiment: LiveExperiment) -> None",
    "observe": "observe(self, experiment_id: str) -> Sequence[ArmTotals]",
    "finish": "finish(self, experiment_id: str, outcome: Outcome) -> None",
}
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
        # Whatever a stranger's module raises while it is imported, the sentence has to name whose module it is.
        except Exception as error:
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
    if len(matching) > 1:
        owners = " and ".join(f"{entry.distribution} {entry.version}" for entry in matching)
        raise UsageError(f"Two packages claim the name {name!r}: {owners}.\nUninstall one of them.")
    if not matching:
        there = ", ".join(entry.name for entry in entries) or "none"
        raise UsageError(
            f"No adapter named {name!r} is installed; found {there}.\n"
            "Install the package that provides it, or list what you have: autoresearch adapters"
        )
    return matching[0]


def create_adapter(name: str, options: Mapping[str, str]) -> tuple[Adapter | LiveAdapter, Registered]:
    """Create the adapter of that name and check it once against the contract.

    Raises:
        UsageError: If there is no such adapter, or it refuses the options.
        EnvironmentNotReadyError: If its package is broken or does not keep the contract.
    """
    entry = find(ADAPTERS, name)
    adapter = entry.load()(dict(options))
    check_adapter(adapter, f"{entry.distribution} {entry.version} ({entry.target})")
    return adapter, entry


def check_adapter(adapter: object, owner: str) -> None:
    """Check that an object keeps one of the two contracts.

    Raises:
        EnvironmentNotReadyError: If it does not; names the owner and the missing member with its signature.
    """
    wanted = _LIVE if _looks_live(adapter) else _MEASURED
    # Ask the class first: a property must not be computed only to see whether it is there.
    missing = [name for name in wanted if not hasattr(type(adapter), name) and not hasattr(adapter, name)]
    if missing:
        members = "\n".join(f"    {_MEMBERS[name]}" for name in missing)
        raise EnvironmentNotReadyError(
            f"The adapter {type(adapter).__name__} of {owner} lacks\n{members}\n"
            "Add it; autoresearch.core.Adapter and LiveAdapter say what each member has to do."
        )
    version = getattr(adapter, "contract_version", CONTRACT_VERSION)
    if version != CONTRACT_VERSION:
        raise EnvironmentNotReadyError(
            f"The adapter of {owner} was written for contract version {version}; "
            f"this release keeps version {CONTRACT_VERSION}.\nInstall a matching release of one of the two."
        )


def _looks_live(adapter: object) -> bool:
    """Say whether the author meant a live adapter: it starts or observes, and measures nothing."""
    return not hasattr(adapter, "measure") and (hasattr(adapter, "observe") or hasattr(adapter, "start"))


def state_of(entry: Registered, all_entries: list[Registered]) -> str:
    """Return `ok`, or the first line of what is wrong with an adapter's entry point; imports it."""
    owners = [other.distribution for other in all_entries if other.name == entry.name]
    if len(owners) > 1:
        return f"name claimed by {' and '.join(owners)}"
    try:
        entry.load()
    except AutoresearchError as error:
        return str(error).splitlines()[0]
    return "ok"
