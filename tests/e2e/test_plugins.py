"""Packages as a new author makes them: written, installed and run by name, in an environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent / "example_plugin"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a virtual environment that has the built wheel, and its dependencies from here: no network."""
    folder = tmp_path_factory.mktemp("plugins")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    shutil.copytree(ROOT / "autoresearch", source / "autoresearch", ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(folder / "venv", with_pip=False)
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (packages / "here.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install(folder, source)
    return folder


def call(place: Path, *arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python; fail with what it said."""
    done = subprocess.run(
        [str(place / "venv" / "bin" / "python"), *map(str, arguments)],
        cwd=cwd or place,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done


def autoresearch(place: Path, *arguments: str | Path, cwd: Path | None = None) -> str:
    return call(place, "-m", "autoresearch", *arguments, cwd=cwd).stdout


def install(place: Path, package: Path, *flags: str) -> None:
    """Build a package and install it, without a look at what it depends on."""
    pip = [sys.executable, "-m", "pip", "--python", str(place / "venv" / "bin" / "python"), "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--no-index", *flags, str(package)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("live", [False, True], ids=["measured", "live"])
def test_a_new_adapter_runs_at_once(place: Path, live: bool) -> None:
    """Written, installed, run by name and tested: nothing has to be changed in between."""
    name = "people" if live else "banner"
    autoresearch(place, "adapter", "new", name, *(["--live"] if live else []))
    text = (place / name / f"autoresearch_{name}" / "__init__.py").read_text()
    assert live or len(text.splitlines()) < 30
    install(place, place / name, "-e")
    assert name in autoresearch(place, "adapters")
    said = autoresearch(place, "run", "--adapter", name, "--experiments", "3", "--proposer", "search", "-q")
    assert "3 experiments" in said and (place / f"autoresearch-{name}").is_dir()
    assert "passed" in call(place, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=place / name).stdout


def test_the_wheel_is_what_is_tested(place: Path) -> None:
    """What runs is the installed wheel with everything in it, not this repository."""
    shown = call(
        place, "-c", "import autoresearch.testing as t, autoresearch.adapters.command as c; print(t.__file__, c)"
    )
    assert shown.stdout.count(str(place / "venv")) == 2
    assert "command" in autoresearch(place, "adapters")


def test_the_example_plugin_brings_adapter_proposer_and_policy(place: Path) -> None:
    """All three are found by name; the words that do harm are trimmed, and each was measured twice."""
    package = shutil.copytree(EXAMPLE, place / "example", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    install(place, package, "-e")
    chosen = [
        "--adapter",
        "spam",
        "--proposer",
        "trim",
        "--policy",
        "twice",
        "--experiments",
        "6",
        "-q",
        "--no-confirm",
    ]
    said = autoresearch(place, "run", *chosen)
    assert "believed gain +2 mails (mistakes 2 -> 0)" in said and "2 kept" in said
    words = autoresearch(place, "show", "best", "--diff", "-w", place / "autoresearch-spam")
    assert "-lunch" in words or "-monday" in words
    assert "passed" in call(place, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=package).stdout


def test_the_example_plugin_is_checked_from_the_command_line(place: Path) -> None:
    """With what is worse and what is broken every check holds; without, the exit code says so."""
    (place / "worse.txt").write_text("lunch\nmonday\ninvoice\n")
    (place / "broken.txt").write_text("\n")
    given = ["--worse", place / "worse.txt", "--broken", place / "broken.txt"]
    said = autoresearch(place, "adapter", "check", "spam", *given)
    assert "The contract is kept" in said and "not offered" in said
    python = str(place / "venv" / "bin" / "python")
    done = subprocess.run([python, "-m", "autoresearch", "adapter", "check", "spam"], cwd=place, capture_output=True)
    assert done.returncode == 1 and b"4 of " in done.stdout
