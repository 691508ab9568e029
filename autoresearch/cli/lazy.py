"""A group of commands that knows their names and imports a command's module only when it is typed."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import typer
from typer.core import TyperCommand, TyperGroup

from autoresearch.cli.render import clean
from autoresearch.core.errors import AutoresearchError
from autoresearch.core.registry import ADAPTERS, COMMANDS, Registered, find, registered


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A command of our own: `module:function` under this package, and its line in `--help`."""

    target: str
    help: str


BUILT_IN: dict[str, BuiltIn] = {
    "run": BuiltIn("run:run", "Run the loop until a limit ends it; go on where it stopped."),
    "init": BuiltIn("init:init", "Write a workspace to begin with."),
    "status": BuiltIn("status:status", "Show a run in figures."),
    "log": BuiltIn("log:log", "List the experiments of a run."),
    "show": BuiltIn("show:show", "Show everything about one experiment."),
    "rollback": BuiltIn("rollback:rollback", "Take kept steps back; the incumbent before them is it again."),
    "checkout": BuiltIn("checkout:checkout", "Write the artifact of an experiment into a folder of its own."),
    "gc": BuiltIn("gc:gc", "Remove scratch files, and rejected candidates if asked."),
    "confirm": BuiltIn("confirm:confirm", "Measure the gain again, on data that no decision saw."),
    "calibrate": BuiltIn("calibrate:calibrate", "Measure the noise, and what it hides."),
    "compare": BuiltIn("compare:compare", "Let proposers or policies compete, and say which gains more."),
    "watch": BuiltIn("watch:watch", "Follow the run at work from another terminal."),
    "report": BuiltIn("report:report", "Write a run as one file to look at: HTML or Markdown."),
    "dashboard": BuiltIn("dashboard:dashboard", "Show runs in a browser while they go on."),
    "export": BuiltIn("export:export", "Write the experiments, or the kept steps as a branch."),
    "import": BuiltIn("import_:import_", "Read the log of a finished run, of any tool, to look at."),
    "audit": BuiltIn("audit:audit", "Say how much of a finished run's gain is real."),
    "decide": BuiltIn("decide:decide", "Judge arms against a control: keep, revert, or what is missing."),
    "pause": BuiltIn("steer:pause", "Pause the run at work after its experiment."),
    "resume": BuiltIn("steer:resume", "Let a paused run go on."),
    "stop": BuiltIn("steer:stop", "End the run at work after its experiment."),
    "approve": BuiltIn("steer:approve", "Let a waiting experiment be measured."),
    "reject": BuiltIn("steer:reject", "Refuse a waiting experiment."),
    "note": BuiltIn("steer:note", "Tell the proposer something while the run goes on."),
    "mcp": BuiltIn("mcp:mcp", "Serve a workspace to a coding agent (MCP)."),
    "adapter": BuiltIn("adapter:app", "Write an adapter of your own, or check one."),
    "adapters": BuiltIn("adapters:adapters", "List the installed adapters and whether they work."),
    "doctor": BuiltIn("doctor:doctor", "Check this machine and say what to do."),
}


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_WRITE_ELSEWHERE = "Send it to a place with room, and give the command again."


class LazyGroup(TyperGroup):
    """Our commands and those of installed packages; turns faults into one sentence and an exit code.

    Typer hands contexts and commands around whose classes it keeps private, hence `Any`.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, built_in in BUILT_IN.items():
            self.commands[name] = TyperCommand(name, help=built_in.help)
        for entry in registered(COMMANDS):
            if entry.name not in BUILT_IN:
                self.commands[entry.name] = TyperCommand(entry.name, help=_origin(entry))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the real command and the rest of the arguments; imports that command's module."""
        name, known, rest = super().resolve_command(ctx, args)
        return name, known if name is None else load(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what a person can mend is told in its sentence, anything else keeps its traceback."""
        _never_fail_to_print()
        try:
            with _ended_like_control_c():
                value = super().invoke(ctx)
            sys.stdout.flush()
            return value
        except AutoresearchError as error:
            typer.echo(clean(str(error), lines=True), err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except BrokenPipeError as error:
            _forget(sys.stdout)
            raise typer.Exit(0) from error  # whoever read has read enough: `autoresearch log | head` did what it should
        except OSError as error:
            if not told_unwritable(error):
                raise
            raise typer.Exit(1) from error


def told_unwritable(error: OSError) -> bool:
    """Say in a sentence that standard output cannot be written, where that is what an error means."""
    # Only a stream fails without a file's name; a file that we failed to foresee keeps its traceback.
    if error.filename is not None or error.errno not in _UNWRITABLE:
        return False
    _forget(sys.stdout)
    with contextlib.suppress(OSError):  # the terminal may be gone, and with it standard error
        typer.echo(f"The output could not be written: {error.strerror}.\n{_WRITE_ELSEWHERE}", err=True)
    return True


@contextlib.contextmanager
def _ended_like_control_c() -> Iterator[None]:
    """Let a request to terminate or a closed terminal end a command as Ctrl-C does, so that it tidies up behind it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # What a parent has told us to ignore, as nohup does, stays ignored.
    ours = [number for name in names if signal.getsignal(number := getattr(signal, name)) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _origin(entry: Registered) -> str:
    """Return whose commands these are; to know more would mean to import them."""
    adapters = {(item.name, item.distribution) for item in registered(ADAPTERS)}
    what = "adapter" if (entry.name, entry.distribution) in adapters else "package"
    return f"Commands of the {what} {entry.name if what == 'adapter' else entry.distribution}."


def load(name: str) -> Any:
    """Return the command `name`, one of our own or of an installed package.

    Raises:
        EnvironmentNotReadyError: If the package that provides it cannot be loaded.
        UsageError: If two packages claim the name.
    """
    built_in = BUILT_IN.get(name)
    if built_in is None:
        # What a stranger prints while it is imported must not end up in front of JSON.
        with contextlib.redirect_stdout(sys.stderr):
            loaded = find(COMMANDS, name).load()
        return typer.main.get_command(loaded) if isinstance(loaded, typer.Typer) else loaded
    module, _, function = built_in.target.partition(":")
    found = getattr(importlib.import_module(f"autoresearch.cli.{module}"), function)
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    alone.command(name)(found)
    return typer.main.get_command(alone)


def _never_fail_to_print() -> None:
    """Show a character that the terminal's encoding lacks as its code instead of failing on it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def forget_what_cannot_be_written() -> None:
    """Flush both streams; one that is gone leads nowhere from then on, or Python would end with a code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _forget(stream)


def _forget(stream: IO[str]) -> None:
    """Point a stream at nothing, so that Python's last flush does not complain about the reader that left."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, stream.fileno())
    finally:
        os.close(nothing)
