"""What the command line says of itself, and what it imports to say it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch.cli import app
from autoresearch.cli.lazy import BUILT_IN, load
from autoresearch.version import __version__
from tests.cli.conftest import invoke
from tests.cli.plugins import write_package

HEAVY = (
    "torch",
    "langgraph",
    "langchain_core",
    "anthropic",
    "sqlmodel",
    "sqlalchemy",
    "scipy",
    "numpy",
    "optuna",
    "rich",
)

PROBE = """
import json, sys
from autoresearch.cli import app
try:
    app(sys.argv[1:], prog_name="autoresearch")
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(*arguments: str) -> set[str]:
    """Return what a fresh Python has imported once a command is done."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, env=os.environ, check=True
    )
    return set(json.loads(done.stderr))


def test_help_imports_nothing_heavy() -> None:
    """`--help` loads neither the loop, nor the ledger, nor torch, nor any command's module."""
    loaded = modules_after("--help")
    assert not loaded.intersection(HEAVY)
    commands = {f"autoresearch.cli.{item.target.partition(':')[0]}" for item in BUILT_IN.values()}
    assert not loaded.intersection(commands)
    assert "autoresearch.cli.lazy" in loaded, "the probe sees what is loaded"


def test_a_commands_help_imports_that_command_only() -> None:
    """`run --help` loads the module of `run` and of no other command, and nothing heavy."""
    loaded = modules_after("run", "--help")
    assert "autoresearch.cli.run" in loaded
    assert not loaded.intersection({"autoresearch.cli.doctor", "autoresearch.cli.show", *HEAVY})


def test_every_command_is_listed_and_loads() -> None:
    """The names in `--help` are those that work, and the line beside each is the beginning of its own help."""
    listed = invoke("--help").output
    for name, item in BUILT_IN.items():
        assert f"  {name} " in listed
        assert item.help in listed
        assert load(name).name == name
        assert invoke(name, "--help").exit_code == 0


def test_version_is_the_packages() -> None:
    """`--version` prints name and version."""
    assert invoke("--version").output == f"autoresearch {__version__}\n"


def test_module_and_script_are_one() -> None:
    """`python -m autoresearch` is the same program."""
    done = subprocess.run([sys.executable, "-m", "autoresearch", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"autoresearch {__version__}\n")


def test_nothing_typed_is_wrong_usage() -> None:
    """Without a command the help is shown and the exit code is 2."""
    result = invoke()
    assert result.exit_code == 2
    assert "Usage: " in result.output


def test_a_mistyped_command_is_named_with_the_one_meant() -> None:
    """An unknown command is wrong usage and the nearest name is offered."""
    result = invoke("statsu")
    assert result.exit_code == 2
    assert "'statsu'" in result.output and "'status'" in result.output


GREET = """
import typer
app = typer.Typer()

@app.command()
def greet(name: str) -> None:
    print(f"Good morning, {name}")

@app.command()
def leave() -> None:
    print("Good night")
"""


def test_a_packages_commands_are_reached_by_its_name(packages: Path) -> None:
    """An entry point in `autoresearch.commands` adds a group of commands, listed in `--help`."""
    write_package(packages, "greeter", GREET, {"autoresearch.commands": {"hello": "greeter:app"}})
    assert "Commands of the package greeter." in invoke("--help").output
    assert "Commands of the adapter ml." in invoke("--help").output
    assert "greeter" not in sys.modules, "listing imports nothing"
    assert invoke("hello", "greet", "Ada").output == "Good morning, Ada\n"


def test_a_broken_package_does_not_hurt_help(packages: Path) -> None:
    """Its command stays listed; typing it names the package and the reason, without a traceback."""
    write_package(packages, "ruin", "import no_such_module", {"autoresearch.commands": {"ruin": "ruin:app"}})
    assert invoke("--help").exit_code == 0
    result = invoke("ruin")
    assert result.exit_code == 1
    assert "ruin 1.0" in result.stderr and "no_such_module" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_a_package_prints_while_imported_stays_off_stdout(packages: Path) -> None:
    """Standard output belongs to the command, for it may be JSON."""
    write_package(packages, "loud", f"print('I am here')\n{GREET}", {"autoresearch.commands": {"loud": "loud:app"}})
    result = invoke("loud", "leave")
    assert result.stdout == "Good night\n"
    assert "I am here" in result.stderr


def test_a_package_cannot_replace_our_commands(packages: Path) -> None:
    """`status` stays ours whoever else claims it, and doctor tells."""
    write_package(packages, "thief", GREET, {"autoresearch.commands": {"status": "thief:app"}})
    assert BUILT_IN["status"].help in invoke("--help").output
    assert "thief declares a command 'status'" in invoke("doctor").output


def test_an_interrupt_before_a_run_listens_exits_with_130(packages: Path) -> None:
    """Ctrl-C while something is still being imported or prepared is quiet and has the code of an interrupt."""
    source = "import typer\napp = typer.Typer()\n@app.command()\ndef fail() -> None:\n    raise KeyboardInterrupt\n"
    write_package(packages, "slow", source, {"autoresearch.commands": {"slow": "slow:app"}})
    result = invoke("slow")
    assert (result.exit_code, result.output) == (130, "")


def test_a_bug_keeps_its_traceback(packages: Path) -> None:
    """What is no fault of a person escapes as it is."""
    source = "import typer\napp = typer.Typer()\n@app.command()\ndef fail() -> None:\n    raise ZeroDivisionError\n"
    write_package(packages, "buggy", source, {"autoresearch.commands": {"buggy": "buggy:app"}})
    with pytest.raises(ZeroDivisionError):
        app(["buggy"])
