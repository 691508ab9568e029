"""Whether the command line takes a command, without running it."""

from __future__ import annotations

from typing import Any

from autoresearch.cli.lazy import BUILT_IN, load

PLUGIN_COMMANDS = ("marketing", "ml")
GLOBAL_OPTIONS = {"--help", "-h", "--version"}


def parse(words: list[str]) -> None:
    """Let the parser read `autoresearch ...`; it raises where an option, a value or an argument is wrong.

    Raises:
        AssertionError: If there is no such command.
        Exception: The parser's own usage error. Typer keeps its class private.
    """
    if len(words) == 1 or words[1] in GLOBAL_OPTIONS:
        return
    command, path, rest = _find(words)
    if not hasattr(command, "commands") and not GLOBAL_OPTIONS & set(rest):
        command.make_context(" ".join(path), rest)


def know(words: list[str]) -> None:
    """Raise AssertionError where a command or an option does not exist; values may be missing, as in a sentence."""
    if len(words) == 1 or words[1] in GLOBAL_OPTIONS:
        return
    command, path, rest = _find(words)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word.startswith("-") and word != "-":
            option = word.partition("=")[0]
            assert option in known | GLOBAL_OPTIONS, f"{' '.join(path)} has no option {option}"


def _find(words: list[str]) -> tuple[Any, list[str], list[str]]:
    """Return the command that some words name, those words, and the words that follow them."""
    assert words[1] in {*BUILT_IN, *PLUGIN_COMMANDS}, f"there is no command {words[1]}"
    command, path, rest = load(words[1]), words[:2], words[2:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {' '.join([*path[1:], rest[0]])}"
        command, path, rest = command.commands[rest[0]], [*path, rest[0]], rest[1:]
    return command, path, rest
