"""Adapters by name: what is broken is named and hurts nobody."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from autoresearch.core import EnvironmentNotReadyError, UsageError, driver, registry
from autoresearch.core.decision import policies
from autoresearch.core.workspace import Settings


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


def test_a_member_with_other_arguments_is_named_with_its_signature() -> None:
    """What cannot be called as the loop calls it is found before anything is measured."""

    class Short:
        metric = scope = None

        def prepare(self, workspace: object) -> None: ...

        def measure(self, artifact: Path, seed: int) -> None: ...

    with pytest.raises(
        EnvironmentNotReadyError, match=r"member measure that cannot be called.*\n    measure\(self, ar"
    ):
        registry.check_adapter(Short(), "short 1.0")


def test_an_entry_point_must_name_a_factory(packages: Path) -> None:
    """A package that names a module or a constant is told to name a function."""
    (packages / "constant_one.py").write_text("adapter = 5\n")
    plant(packages, "constant-one", "constant", "constant_one:adapter")
    with pytest.raises(EnvironmentNotReadyError, match=r"constant-one 1\.0 .* is no function but int"):
        registry.create_adapter("constant", {})
    entries = registry.registered(registry.ADAPTERS)
    assert "no function" in registry.state_of(next(e for e in entries if e.name == "constant"), entries)


def test_a_module_that_ends_the_process_is_listed_as_broken(packages: Path) -> None:
    """An import that calls sys.exit does not take the list of all adapters with it."""
    (packages / "quitter.py").write_text("raise SystemExit(3)\n")
    plant(packages, "quitter", "quitting", "quitter:create_adapter")
    entries = registry.registered(registry.ADAPTERS)
    states = {entry.name: registry.state_of(entry, entries) for entry in entries}
    assert "cannot be loaded: SystemExit: 3" in states["quitting"] and states["ml"] == "ok"


def test_a_factory_that_takes_no_options_is_listed_with_the_signature_expected(packages: Path) -> None:
    """Its author learns what it must be from the list and from the refusal, not from a traceback."""
    (packages / "deaf_one.py").write_text("def create_adapter():\n    return None\n")
    plant(packages, "deaf-one", "deaf", "deaf_one:create_adapter")
    with pytest.raises(EnvironmentNotReadyError, match=r"must be create_adapter\(options: Mapping\[str, str\]\)"):
        registry.create_adapter("deaf", {})
    entries = registry.registered(registry.ADAPTERS)
    state = registry.state_of(next(e for e in entries if e.name == "deaf"), entries)
    assert state.endswith("it must be create_adapter(options: Mapping[str, str]) -> Adapter.")


def test_a_factory_that_fails_is_named_with_the_line_that_failed(packages: Path) -> None:
    """A fault in a stranger's package is a sentence that says whose it is and where."""
    (packages / "faulty_one.py").write_text("def create_adapter(options):\n    return options['model']\n")
    plant(packages, "faulty-one", "faulty", "faulty_one:create_adapter")
    with pytest.raises(
        EnvironmentNotReadyError, match=r"faulty-one 1\.0 .* KeyError: 'model' \(.*faulty_one\.py, line 2\)"
    ):
        registry.create_adapter("faulty", {})


PLUGINS = """
from autoresearch.core.decision.greedy import GreedyPolicy
from autoresearch.core.proposers.search import SearchProposer


def create_policy(parameters):
    if parameters:
        raise ValueError(f"it has no parameter {min(parameters)!r}")
    return GreedyPolicy()


def create_proposer(*, model, seed):
    return SearchProposer(seed=seed)


def half(*arguments, **named):
    return object()
"""


def plant_plugins(folder: Path, module: str, text: str) -> None:
    (folder / f"{module}.py").write_text(PLUGINS)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(text)


def test_policies_and_proposers_come_from_packages_too(packages: Path) -> None:
    """A name in the entry points is as good as one of our own, wherever a policy or proposer is asked for."""
    plant_plugins(
        packages,
        "bold_pair",
        "[autoresearch.policies]\nbold = bold_pair:create_policy\n"
        "[autoresearch.proposers]\nmuse = bold_pair:create_proposer\n",
    )
    assert "bold" in policies.policy_names()
    assert policies.create_policy("bold").name == "greedy"
    with pytest.raises(UsageError, match="cannot work like this: it has no parameter 'x'"):
        policies.create_policy("bold", {"x": 1.0})
    assert driver.choose_proposer(Settings(proposer="muse"), driver.Silent()).name == "search"


def test_a_half_policy_or_proposer_is_refused_with_what_it_lacks(packages: Path) -> None:
    """The first missing member is there with its signature, and the package with its version."""
    plant_plugins(
        packages,
        "half_pair",
        "[autoresearch.policies]\nh = half_pair:half\n[autoresearch.proposers]\nh = half_pair:half\n",
    )
    with pytest.raises(EnvironmentNotReadyError, match=r"The policy h of half_pair 1\.0 (?s:.*)decide\(self, evidence"):
        registry.create_policy("h", {})
    with pytest.raises(
        EnvironmentNotReadyError, match=r"The proposer h of half_pair 1\.0 (?s:.*)propose\(self, request"
    ):
        registry.create_proposer("h", model=None, seed=0)


def test_a_package_cannot_take_a_name_of_ours(packages: Path) -> None:
    """A second bayes is refused naming both, instead of one of them winning."""
    plant_plugins(packages, "second_bayes", "[autoresearch.policies]\nbayes = second_bayes:create_policy\n")
    with pytest.raises(UsageError, match=r"'bayes': autoresearch itself and second_bayes 1\.0"):
        policies.create_policy("bayes")
