"""The layout of the package is its architecture, and it holds."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import autoresearch
from autoresearch import core

HEAVY = ("torch", "numpy", "scipy", "optuna", "langgraph", "langchain_core", "anthropic", "sqlmodel", "alembic")


def imported_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_core_exports_its_public_names_sorted() -> None:
    """`autoresearch.core.__all__` is exactly what the module holds without underscore, in order."""
    public = [
        name for name, value in vars(core).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    constants = sorted(name for name in public if name.isupper())
    others = sorted(name for name in public if not name.isupper())
    assert core.__all__ == [*constants, *others]


def test_package_exports_run_and_its_version() -> None:
    """`autoresearch.run` is the driver's, resolved on first use; a wrong name is an AttributeError."""
    from autoresearch.core.driver import run

    assert autoresearch.run is run
    assert sorted(autoresearch.__all__) == ["__version__", "run"]
    assert not hasattr(autoresearch, "walk")


def test_contracts_import_nothing_heavy() -> None:
    """A plugin author who imports the contracts pays for no library of ours."""
    found = imported_by("import autoresearch.core")
    assert "autoresearch" in found
    assert found.isdisjoint(HEAVY)


def test_the_loop_needs_no_torch() -> None:
    """Driving a run imports no torch: core knows no adapter."""
    found = imported_by("import autoresearch.core.driver")
    assert "langgraph" in found
    assert "torch" not in found


def test_naming_the_ml_adapter_needs_no_torch() -> None:
    """Creating the ml adapter and asking for its scope imports neither torch nor numpy."""
    found = imported_by("from autoresearch.adapters.ml_training import create_adapter; create_adapter({}).scope")
    assert found.isdisjoint({"torch", "numpy"})
