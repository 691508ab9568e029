"""Adapters by name: what is broken is named and hurts nobody."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from autoresearch.core import EnvironmentNotReadyError, UsageError, registry


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path in which packages can be planted."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def plant(folder: Path, distribution: str, name: str, target: str) -> None:
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[autoresearch.adapters]\n{name} = {target}\n")


def test_an_unknown_name_lists_those_there_are() -> None:
    """The message helps to find the right name."""
    with pytest.raises(UsageError, match=r"No adapter named 'mkt' is installed; found .*ml"):
        registry.create_adapter("mkt", {})


def test_a_broken_package_is_named_and_the_others_work(packages: Path) -> None:
    """An adapter that cannot be imported shows its error; others are still created."""
    (packages / "broken_one.py").write_text("import no_such_module\n")
    plant(packages, "broken-one", "broken", "broken_one:create_adapter")
    with pytest.raises(EnvironmentNotReadyError, match=r"broken-one 1\.0 declares 'broken' .*no_such_module"):
        registry.create_adapter("broken", {})
    entries = registry.registered(registry.ADAPTERS)
    states = {entry.name: registry.state_of(entry, entries) for entry in entries}
    assert "cannot be loaded" in states["broken"] and states["ml"] == "ok"


def test_two_packages_may_not_claim_one_name(packages: Path) -> None:
    """The message names both."""
    plant(packages, "first-one", "twice", "a:b")
    plant(packages, "second-one", "twice", "a:b")
    with pytest.raises(UsageError, match=r"'twice': first-one 1\.0 and second-one 1\.0"):
        registry.find(registry.ADAPTERS, "twice")


def test_a_missing_member_is_named_with_its_signature() -> None:
    """An author learns what to add."""

    class Half:
        metric = None
        scope = None

        def prepare(self, workspace: object) -> None: ...

    with pytest.raises(EnvironmentNotReadyError, match=r"lacks\n    measure\(self, artifact: Path, \*, seed: int"):
        registry.check_adapter(Half(), "half 1.0")


def test_another_contract_version_is_refused() -> None:
    """Old adapters get a sentence instead of a strange failure."""

    class Old:
        metric = scope = prepare = measure = None
        contract_version = 0

    with pytest.raises(EnvironmentNotReadyError, match="contract version 0"):
        registry.check_adapter(Old(), "old 1.0")
