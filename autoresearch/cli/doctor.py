"""`autoresearch doctor`: this machine and this workspace, each problem with what to do about it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.cli.adapters import found_adapters
from autoresearch.cli.lazy import BUILT_IN
from autoresearch.cli.options import JsonOption, WorkspaceOption
from autoresearch.cli.place import colours_wanted, locate, suffix
from autoresearch.cli.render import as_json as json_text
from autoresearch.cli.render import clean, paint
from autoresearch.core.errors import AutoresearchError, UsageError
from autoresearch.core.registry import COMMANDS, registered
from autoresearch.core.workspace import Layout, Settings

OK, NOTE, PROBLEM = "ok", "note", "problem"

_STYLES = {OK: "green", NOTE: "yellow", PROBLEM: "red"}
_ENOUGH_MB = 1000
"""A run with trained weights, checkpoints and logs stays below this for days."""
_TOO_LITTLE_MB = 100
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        state: `ok`; `note` where something is missing that not everybody needs; `problem` where a run would fail.
        found: What was found.
        advice: What to do; empty with `ok`.
    """

    name: str
    state: str
    found: str
    advice: str = ""


def doctor(
    workspace: WorkspaceOption = None,
    notify: Annotated[
        list[str] | None,
        typer.Option(metavar="TARGET", help="Send a test there, as run --notify would.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check Python, git, torch, disk, keys, adapters and the workspace. Leaves with 1 where there is a problem."""
    found = chain(
        chain.from_iterable(examine() for examine in examinations(workspace)), notifications(notify, workspace)
    )
    checks = [clean_check(check) for check in found]
    if json:
        typer.echo(json_text([asdict(check) for check in checks]))
    else:
        typer.echo(report(checks, colour=colours_wanted()), nl=False)
    if any(check.state == PROBLEM for check in checks):
        raise typer.Exit(1)


def examinations(workspace: Path | None) -> list[Callable[[], Iterator[Check]]]:
    """Return everything that `doctor` looks at, in the order it is shown."""
    return [
        python_version,
        git_version,
        torch_devices,
        lambda: disk_space(workspace or Path.cwd()),
        api_key,
        sandbox_level,
        installed_adapters,
        extra_commands,
        packages,
        lambda: workspace_health(workspace),
    ]


def clean_check(check: Check) -> Check:
    """Return a check that is safe to print: errors of other people's packages end up in it."""
    return Check(check.name, check.state, clean(check.found), clean(check.advice, lines=True))


def report(checks: Sequence[Check], *, colour: bool = False) -> str:
    """Return the checks for people, and a last line that sums them up."""
    width = max(len(check.name) for check in checks) + 2
    lines = []
    for check in checks:
        mark = f"{check.state:<9}"
        lines.append(f"{paint(mark, _STYLES[check.state]) if colour else mark}{check.name.ljust(width)}{check.found}")
        lines += [f"{' ' * (9 + width)}{line}" for line in check.advice.splitlines()]
    problems = sum(check.state == PROBLEM for check in checks)
    lines.append("No problem found." if not problems else f"{problems} problem{'s' if problems > 1 else ''} found.")
    return "\n".join(lines) + "\n"


def python_version() -> Iterator[Check]:
    """Look at Python."""
    found = f"{platform.python_version()} on {platform.platform()}"
    if sys.version_info < (3, 11):  # noqa: UP036 - a checkout on the path runs without pip's check of the version
        yield Check("python", PROBLEM, found, "Install Python 3.11 or newer.")
    else:
        yield Check("python", OK, found)


def git_version() -> Iterator[Check]:
    """Look for git, which keeps every step."""
    advice = "Install git (https://git-scm.com) and make sure that it is on PATH; kept steps are commits."
    path = shutil.which("git")
    if path is None:
        yield Check("git", PROBLEM, "not found on PATH", advice)
        return
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        yield Check("git", PROBLEM, f"{path} does not work: {error}", advice)
        return
    yield Check("git", OK, done.stdout.strip().removeprefix("git version "))


def torch_devices() -> Iterator[Check]:
    """Look for torch, the devices that it sees and the preset that the ml adapter would choose."""
    try:
        import torch
    except ImportError as error:
        if error.name == "torch":
            yield Check("torch", NOTE, "not installed", "Only the ml adapter needs it: pip install 'autoresearch[ml]'")
        else:
            yield Check("torch", PROBLEM, f"cannot be imported: {error}", "Install it again: pip install -U torch")
        return
    cuda = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    devices = [*(f"cuda:{index} {name}" for index, name in enumerate(cuda))]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    yield Check("torch", OK, f"{torch.__version__}; {', '.join(devices) or 'processor only'}")
    yield _preset()


def _preset() -> Check:
    try:
        from autoresearch.adapters.ml_training.presets import choose_preset

        return Check("ml preset", OK, f"{choose_preset('auto', None).name} would be chosen")
    except AutoresearchError as error:
        sentence, _, advice = str(error).partition("\n")
        return Check("ml preset", NOTE, sentence, advice)  # only the ml adapter needs one


def disk_space(folder: Path) -> Iterator[Check]:
    """Look at the space where the workspace lies or would lie."""
    folder = folder.resolve()
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(there).free / 1e6
    found = f"{free / 1000:.1f} GB free in {there}"
    if free >= _ENOUGH_MB:
        yield Check("disk", OK, found)
        return
    state = PROBLEM if free < _TOO_LITTLE_MB else NOTE
    yield Check("disk", state, found, "Free some space, or put the workspace elsewhere with -w DIR.")


def api_key() -> Iterator[Check]:
    """Say whether a key is set; never a part of it."""
    found = [name for name in _KEYS if os.environ.get(name)]
    if found:
        elsewhere = ", ANTHROPIC_BASE_URL is set" if os.environ.get("ANTHROPIC_BASE_URL") else ""
        yield Check("key", OK, f"{' and '.join(found)} set{elsewhere}; proposals come from claude")
    else:
        advice = "Set it to have Claude propose: export ANTHROPIC_API_KEY=..."
        yield Check("key", NOTE, "ANTHROPIC_API_KEY is not set; proposals come from search, offline and free", advice)


def sandbox_level() -> Iterator[Check]:
    """Try the sandbox levels, strongest first, and say how candidates would be kept apart from the machine."""
    from autoresearch.core.sandbox import Level, probe

    tried = [probe(level) for level in (Level.BUBBLEWRAP, Level.LANDLOCK)]
    found = next((one.level for one in tried if one.works), Level.LIMITS)
    failed = [one for one in tried if not one.works][: list(Level).index(found)]
    sentence = f"{found.value}: {_SANDBOXES[found.value]}"
    if not failed:
        yield Check("sandbox", OK, sentence)
        return
    reasons = "; ".join(f"no {one.level.value}: {one.reason.rstrip('.')}" for one in failed)
    # What helps the strongest level is enough.
    yield Check("sandbox", NOTE, f"{sentence} ({reasons})", failed[0].advice)


_SANDBOXES = {
    "bubblewrap": "candidates see the system, their data and one folder of their own; no network, no other process",
    "landlock": "candidates read the system and their data and write one folder; no sockets, no signals to others",
    "limits": "time, memory and disk are bounded, no process outlives its measurement, but files and network are open",
}


def installed_adapters() -> Iterator[Check]:
    """Look at every adapter that an installed package declares."""
    for item in found_adapters():
        found = f"{item.name} of {item.distribution} {item.version}"
        if item.error is None:
            yield Check("adapter", OK, found)
        else:
            # A machine that runs another adapter is not ill because this package is.
            yield Check("adapter", NOTE, f"{found}: {item.error}", f"Repair or remove the package {item.distribution}.")


def extra_commands() -> Iterator[Check]:
    """Look for commands of packages that our own commands hide."""
    for entry in registered(COMMANDS):
        if entry.name in BUILT_IN:
            found = f"{entry.distribution} declares a command {entry.name!r}, which is hidden by ours"
            yield Check("commands", NOTE, found, f"Ask the authors of {entry.distribution} for another name.")


def packages() -> Iterator[Check]:
    """Look at what autoresearch needs to run at all."""
    try:
        requirements = importlib.metadata.requires("autoresearch") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("packages", PROBLEM, "autoresearch itself is not installed", "Install it: pip install autoresearch")
        return
    needed = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requirements if "extra ==" not in line]
    found, missing = [f"autoresearch {importlib.metadata.version('autoresearch')}"], []
    for name in needed:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    yield Check("packages", OK, ", ".join(found))
    if missing:
        advice = "Install them: pip install --force-reinstall autoresearch"
        yield Check("packages", PROBLEM, f"missing: {', '.join(missing)}", advice)


def workspace_health(given: Path | None) -> Iterator[Check]:
    """Look at the workspace, where there is one: settings, ledger, the process at work."""
    try:
        layout = locate(given)
    except UsageError as error:
        sentence, _, advice = str(error).partition("\n")
        yield Check("workspace", NOTE if given is None else PROBLEM, sentence, advice)
        return
    yield _settings(layout)
    yield from _ledger(layout)


def notifications(targets: Sequence[str] | None, given: Path | None) -> Iterator[Check]:
    """Send a test to every target that was named, by the mail server of the workspace where there is one.

    Raises:
        UsageError: If a target cannot be understood.
    """
    if not targets:
        return
    from autoresearch.core.notify import mail_server, target_of, test_notice

    mail = mail_server(_read(given))
    for target in [target_of(text, mail) for text in targets]:
        try:
            target.send(test_notice())
        except AutoresearchError as error:
            yield Check("notify", PROBLEM, f"{target.name} could not be told: {error}", "Mend it, and try again.")
        else:
            yield Check("notify", OK, f"{target.name} took a test")


def _read(given: Path | None) -> Settings:
    """Return the settings of the workspace that is meant; of none where there is none, or where it is broken."""
    from autoresearch.core.workspace import read_settings

    try:
        return read_settings(locate(given))
    except AutoresearchError:
        return Settings()  # what is wrong with it is told by `workspace_health`


def _settings(layout: Layout) -> Check:
    from autoresearch.core.workspace import read_settings

    if not layout.config.is_file():
        return Check("workspace", OK, f"{layout.root}, without {layout.config.name}: runs of the Python API")
    try:
        settings = read_settings(layout)
    except AutoresearchError as error:
        sentence, _, advice = str(error).partition("\n")
        return Check("workspace", PROBLEM, sentence, advice)
    return Check("workspace", OK, f"{layout.root}, adapter {settings.adapter or 'not named'}")


def _ledger(layout: Layout) -> Iterator[Check]:
    if not layout.ledger.is_file():
        yield Check("ledger", OK, "none yet; the first run makes it")
        return
    broken = _damage(layout.ledger)
    if broken:
        yield Check(
            "ledger", PROBLEM, f"{layout.ledger} is damaged: {broken}", "Put back a copy; kept steps are in git."
        )
        return
    from autoresearch.core import lock
    from autoresearch.core.ledger import Ledger

    try:
        with Ledger.open(layout.ledger) as ledger:
            runs = ledger.runs()
    except AutoresearchError as error:
        sentence, _, advice = str(error).partition("\n")
        yield Check("ledger", PROBLEM, sentence, advice)
        return
    yield Check(
        "ledger", OK, f"{len(runs)} run{'' if len(runs) == 1 else 's'}, {layout.ledger.stat().st_size / 1e6:.1f} MB"
    )
    if lock.is_held(layout):
        yield Check("run", OK, "a process is at work here")
    elif runs and runs[-1].state != "stopped":
        advice = f"Go on where it stopped: autoresearch run{suffix(layout)}"
        yield Check("run", NOTE, f"{runs[-1].id} ended without a word (killed, or the machine went down)", advice)


def _damage(path: Path) -> str:
    """Return what SQLite finds wrong with a file; empty where nothing is."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)
        ) as connection:
            answer = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return ""  # locked, or not to be opened at all: no damage, and opening the ledger says what it is
    except sqlite3.Error as error:
        return str(error)
    return "" if answer == "ok" else answer
