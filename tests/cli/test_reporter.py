"""How a run is drawn, on experiments that are made up."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from autoresearch.cli.reporter import JsonLines, Plain, Terminal, experiment_line, reporter_for, terminal
from autoresearch.core.ledger import Experiment
from tests.cli.filling import HOSTILE


def experiment(**fields: Any) -> Experiment:
    """Return a finished experiment."""
    row: dict[str, Any] = {"run_id": "r", "number": 3, "session_id": 1, "outcome": "kept", "value": 1.25, "effect": 0.5,
           "p_better": 0.9, "category": "numbers", "hypothesis": "Halve it.", "kept_commit": "c" * 40}  # fmt: skip
    return Experiment(**{**row, **fields})


class Reader(io.StringIO):
    """A pipe whose reader leaves after some lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.left = lines

    def write(self, text: str) -> int:
        """Take a line, or fail as a closed pipe does."""
        if self.left == 0:
            raise BrokenPipeError
        self.left -= 1
        return super().write(text)


def test_a_line_says_what_the_sign_means() -> None:
    """Number, outcome, value, effect in words, probability, category and hypothesis stand on one line."""
    assert experiment_line(experiment()).split() == [
        "3", "kept", "1.25", "+0.5", "better", "p", "0.90", "numbers:", "Halve", "it.",
    ]  # fmt: skip


def test_measuring_anew_is_followed_in_quarters() -> None:
    """A pipe hears of a long confirmation four or five times, however many measurements it takes."""
    out = io.StringIO()
    reporter = Plain(out)
    reporter.phase(7, "confirm")
    for index in range(40):
        reporter.progress(index / 40, f"measurement {index + 1} of 40")
        reporter.progress((index + 0.5) / 40, f"measurement {index + 1} of 40: training, loss 1.{index}")
    lines = out.getvalue().splitlines()
    assert lines[0] == "confirming 0%  measurement 1 of 40"
    assert [line.split()[1] for line in lines] == ["0%", "25%", "50%", "75%"]


def test_a_crash_has_its_reason_instead_of_a_value() -> None:
    """Without a value the line says why."""
    line = experiment_line(experiment(outcome="crashed", value=None, effect=None, p_better=None, reason="No number."))
    assert "crashed" in line and "  -  " in line and line.endswith("(No number.)")


def test_plain_lines_have_no_control_codes_and_do_not_repeat_themselves() -> None:
    """Each experiment is announced once however often it is measured; progress comes in quarters while preparing."""
    out = io.StringIO()
    reporter = Plain(out)
    for step in range(101):
        reporter.progress(step / 100, f"loading part {step} of 100")
    for name in ("propose", "check", "observe", "decide", "observe", "observe", "decide", "keep"):
        reporter.phase(3, name)
        reporter.progress(0.5, "step 4")
    reporter.experiment_ended(experiment(hypothesis=HOSTILE))
    lines = out.getvalue().splitlines()
    assert len([line for line in lines if line.startswith("preparing")]) == 5
    assert lines[5:] == ["measuring experiment 3", experiment_line(experiment(hypothesis=HOSTILE))]
    assert not any(ord(char) < 32 and char != "\n" for char in out.getvalue())


def test_a_run_outlives_its_reader() -> None:
    """When the pipe is closed the reporter falls silent instead of ending the run."""
    out = Reader(lines=1)
    reporter = Plain(out)
    for _ in range(3):
        reporter.say("still here")
    assert out.getvalue() == "still here\n"


def test_json_lines_and_words_take_different_streams() -> None:
    """One object per experiment on one stream, sentences on the other, phases on neither."""
    out, words = io.StringIO(), io.StringIO()
    reporter = JsonLines(out, words)
    reporter.say("Proposer: search.")
    reporter.phase(3, "observe")
    reporter.progress(0.5, "step")
    reporter.experiment_ended(experiment())
    event = json.loads(out.getvalue())
    assert (event["event"], event["number"], event["effect"], event["commit"]) == ("experiment", 3, 0.5, "c" * 40)
    assert words.getvalue() == "Proposer: search.\n"


def drawn(width: int = 80, **console: object) -> tuple[Terminal, Console, io.StringIO]:
    """Return a terminal reporter and what it draws on."""
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, width=width, highlight=False, markup=False, **console)  # type: ignore[arg-type]
    return Terminal(screen), screen, out


def test_the_living_line_is_one_line_with_phase_share_and_time() -> None:
    """However long the words, the line does not wrap."""
    reporter, screen, out = drawn(width=40)
    reporter.phase(12, "observe")
    reporter.progress(0.43, "step 310 of 700, loss 2.1, and so on and on")
    screen.print(reporter)
    line = out.getvalue()
    assert line.count("\n") == 1
    assert line.startswith(" 12  measuring   43%  0:00  step 310") and line.rstrip().endswith("…")


def test_a_terminal_keeps_one_coloured_line_per_experiment() -> None:
    """The outcome's word is coloured, the line is cut at the width, and markup in a hypothesis is only text."""
    reporter, _, out = drawn(color_system="standard", _environ={})
    reporter.experiment_ended(experiment(hypothesis="[red]Halve[/red] " * 9))
    assert out.getvalue().count("\n") == 1
    assert "\x1b[32mkept" in out.getvalue() and "[red]Halve[/red]" in out.getvalue()


def test_no_color_is_heeded() -> None:
    """With NO_COLOR nothing is coloured."""
    reporter, _, out = drawn(_environ={"NO_COLOR": "1"})
    reporter.experiment_ended(experiment())
    assert "\x1b[3" not in out.getvalue() and "kept" in out.getvalue()


def test_hostile_text_reaches_no_terminal() -> None:
    """Neither a hypothesis, nor a sentence, nor the words of progress can send an escape sequence."""
    reporter, screen, out = drawn(width=200, no_color=True)
    reporter.say(HOSTILE)
    reporter.progress(0.1, HOSTILE)
    screen.print(reporter)
    reporter.experiment_ended(experiment(hypothesis=HOSTILE, category=HOSTILE))
    assert not any(char in out.getvalue() for char in "\x1b\x07\x9b\u202e")
    assert out.getvalue().count("[bold red]Halve it[/bold red]") == 4


def test_the_living_line_vanishes_at_the_end() -> None:
    """What is left on the screen is what stays true: the experiments, not the last phase."""
    _, screen, out = drawn(no_color=True)
    with terminal(screen) as reporter:
        reporter.phase(1, "observe")
        reporter.experiment_ended(experiment())
    assert out.getvalue().endswith("\x1b[2K"), "the line is wiped"


def test_the_right_reporter_is_chosen() -> None:
    """A pipe gets plain lines, JSON gets objects, quiet gets nothing."""
    with reporter_for(quiet=False, json=False) as plain, reporter_for(quiet=False, json=True) as lines:
        assert type(plain) is Plain and type(lines) is JsonLines
    with reporter_for(quiet=True, json=False) as quiet:
        assert not isinstance(quiet, Plain | JsonLines | Terminal)


def test_experiments_that_are_measured_in_turns_are_named_once() -> None:
    """With lanes several experiments are in progress, and a pipe hears of each of them once."""
    file = io.StringIO()
    reporter = Plain(file)
    for number in (1, 5, 1, 5, 1):
        reporter.phase(number, "observe")
    assert file.getvalue().splitlines() == ["measuring experiment 1", "measuring experiment 5"]
