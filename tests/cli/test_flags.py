"""Flags of one adapter beside a command's own: what they stand for, and whom they are refused to."""

from __future__ import annotations

import inspect

import pytest
import typer

from autoresearch.adapters.command.options import Options
from autoresearch.cli.flags import command_flags, merged, taking

GIVEN = {
    "edit": ["a.py", "b/*.py"],
    "measure": "run",
    "metric": "ms",
    "minimize": False,
    "check": "test",
    "guard": ["rss<=+5%", "kb<=9"],
    "repeat": "3",
    "timeout": 60.0,
    "unit": "ms",
    "noise": 0.25,
    "read_only": ["c.py"],
    "link": ["data"],
}


def test_every_flag_is_an_option_that_the_adapter_reads() -> None:
    """Given together they parse to what was meant; none is lost on the way."""
    options = Options.parse(command_flags(**GIVEN))
    assert options.edit == ("a.py", "b/*.py") and options.link == ("data",) and options.read_only == ("c.py",)
    assert (options.measure, options.check, options.repeat, options.timeout_seconds) == ("run", "test", 3, 60.0)
    assert (options.metric.unit, options.metric.noise, options.metric.direction.value) == ("ms", 0.25, "maximize")
    assert [guard.name for guard in options.guards] == ["rss", "kb"]


@pytest.mark.parametrize("way", [{"pattern": "(x)"}, {"json_path": "a.b"}, {"summary": True}])
def test_each_way_to_read_the_number_has_its_flag(way: dict[str, object]) -> None:
    """A pattern, keys in JSON and a summary block."""
    options = Options.parse(command_flags(**GIVEN, **way) | {"guard": ""})  # type: ignore[arg-type]
    assert [bool(options.patterns), bool(options.json_path), options.summary].count(True) == 1


def test_nothing_given_is_nothing() -> None:
    """A run of another adapter hears of no flag."""
    assert command_flags() == {}
    assert merged({"preset": "cpu"}, {}, "ml") == {"preset": "cpu"}


@pytest.mark.parametrize(("adapter", "options"), [("ml", {}), ("command", {"edit": "z.py"})])
def test_a_flag_that_does_not_fit_is_refused(adapter: str, options: dict[str, str]) -> None:
    """For another adapter, and against a --set of the same name."""
    with pytest.raises(typer.BadParameter):
        merged(options, {"edit": "a.py"}, adapter)


def test_the_flags_come_after_the_commands_own() -> None:
    """The command sees its own parameters, and what the flags make of theirs in one."""

    def more(*, speed: int = 1) -> dict[str, str]:
        return {"speed": str(speed)}

    heard: list[tuple[str, dict[str, str]]] = []

    @taking(more)
    def command(*, name: str = "x", flagged: dict[str, str]) -> None:
        heard.append((name, flagged))

    assert list(inspect.signature(command).parameters) == ["name", "speed"]
    command(name="y", speed=3)
    assert heard == [("y", {"speed": "3"})]
