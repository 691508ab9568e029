"""What reaches users is what lies in the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autoresearch.version import __version__

ROOT = Path(__file__).parent.parent
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")


def package_files() -> set[str]:
    """Return the files of the package as they lie here, bytecode left out."""
    found = (path for path in (ROOT / "autoresearch").rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(ROOT).as_posix() for path in found}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, so that nothing left in `build/` gets into it; needs no network."""
    source = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        shutil.copyfile(ROOT / name, source / name)
    shutil.copytree(ROOT / "autoresearch", source / "autoresearch", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(source / "dist")]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (source / "dist").iterdir()
    return found


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    """Migrations, templates and `py.typed` are installed with the modules, and nothing else is."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == package_files()
    assert "autoresearch/py.typed" in names
    assert any(name.startswith("autoresearch/core/migrations/versions/") for name in names)
    assert any(name.endswith("template/train.py") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    """Name, version, the command, the ml adapter and the licence stand in the metadata."""
    info = f"autoresearch-{__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
    assert "autoresearch = autoresearch.cli:main" in entries
    assert "ml = autoresearch.adapters.ml_training:create_adapter" in entries
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.11" in metadata
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: torch")]
    assert needed and all('extra == "ml"' in line for line in needed)


@pytest.mark.parametrize(
    ("version", "missing", "said"),
    [
        ("3.9.2", "version_info", "needs Python 3.11 or newer, and './python' is 3.9.2"),
        ("3.12.1", "ensurepip", "sudo apt install python3-venv"),
    ],
)
def test_an_unfit_python_gets_a_sentence(tmp_path: Path, version: str, missing: str, said: str) -> None:
    """An old interpreter, and one without the module venv, are named with what to do; nothing is installed."""
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\ncase "$2" in *{missing}*) exit 1 ;; *platform*) echo {version} ;; esac\n')
    fake.chmod(0o755)
    command = [str(ROOT / "scripts" / "install.sh"), "./python", ".venv", "anything"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_no_python_at_all_gets_a_sentence(tmp_path: Path) -> None:
    """A missing interpreter is named, with how to name another."""
    command = [str(ROOT / "scripts" / "install.sh"), "./python", ".venv", "anything"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "There is no './python' on this machine" in done.stderr
    assert "make run PYTHON=" in done.stderr
