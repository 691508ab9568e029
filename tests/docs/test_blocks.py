"""Every code block of the documentation runs, or says why not; what it shows is what is printed."""

from __future__ import annotations

import ast
import json
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs import commands, readers
from tests.docs.pages import (
    LANGUAGES,
    MARKS,
    PAGES,
    ROOT,
    SHELL,
    Block,
    _blocks_in,
    all_blocks,
    blocks_of,
    commands_in,
    prose_of,
)
from tests.docs.pages import spoken_commands as spoken
from tests.docs.runner import Terminal, matches

NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
BLOCKS = all_blocks()
NOT_RUN = [block for block in BLOCKS if "not run" in block.marks]
TEMPLATES = sorted((ROOT / "autoresearch").glob("**/*.md"))


def runs(block: Block) -> bool:
    """Say whether a block is run as a program."""
    return block.language in (SHELL, "python") and not {"not run", "file"} & set(block.marks)


def read(page: Path, tmp_path: Path, *, slow: bool) -> None:
    terminal = Terminal(tmp_path)
    for block in blocks_of(page):
        if slow or "slow" not in block.marks:
            terminal.run(block)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(runs(block) and "slow" not in block.marks for block in blocks_of(page))],
    ids=lambda page: page.stem,
)
def test_a_page_runs(page: Path, tmp_path: Path) -> None:
    """What a page shows can be done from top to bottom, and prints what the page says."""
    read(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any("slow" in block.marks for block in blocks_of(page))],
    ids=lambda page: page.stem,
)
def test_a_page_runs_with_its_slow_blocks(page: Path, tmp_path: Path) -> None:
    """What takes minutes can be done, too."""
    read(page, tmp_path, slow=True)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_what_becomes_of_it(block: Block) -> None:
    """Its marks are known, and a block that nobody runs or reads gives a reason."""
    assert set(block.marks) <= set(MARKS), f"{block} has the marks {set(block.marks) - set(MARKS)}; there are {MARKS}"
    reasons = {mark: block.marks[mark] for mark in ("not run", "not compared", "slow") if mark in block.marks}
    assert all(reasons.values()), f"{block} gives no reason: say <!-- {next(iter(reasons), '')}: WHY -->"
    assert block.language in LANGUAGES, f"{block} is in {block.language or 'no language'}; there are {LANGUAGES}"
    if block.language not in (SHELL, "python"):
        told = {"file", "as", "output", "not compared", "not run"} & set(block.marks)
        assert told, f"{block} is {block.language}: say what it is, by one of the marks file, as, output, not compared"


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_valid(block: Block) -> None:
    """What a block is written in, it is written in rightly, whether it is run or not."""
    if block.language == SHELL:
        for words in commands_in(block.text):
            commands.parse(words)
    elif block.language == "python":
        ast.parse(block.text, str(block))
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json" and "as" not in block.marks:
        json.loads(block.text)
    elif block.language == "html":
        HTMLParser().feed(block.text)


@pytest.mark.parametrize("block", [block for block in BLOCKS if "as" in block.marks], ids=str)
def test_a_file_is_accepted(block: Block, tmp_path: Path) -> None:
    """What a page shows as the content of a file is taken by whatever reads that file."""
    readers.READERS[block.marks["as"]](block.text, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_stand_in_blocks(page: Path) -> None:
    """No command hides in an indented paragraph, where nothing would run it."""
    for line in prose_of(page).splitlines():
        assert not line.startswith(("    autoresearch ", "    python ", "    pip ", "    export ")), line


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md", *TEMPLATES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_spoken_commands_exist(page: Path) -> None:
    """Every command and option that a sentence names is one that the program has."""
    for words in spoken(page):
        commands.know(words)


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_what_is_not_run(block: Block) -> None:
    """Skipped with its reason, so that the end of every test session lists what was only parsed."""
    pytest.skip(block.marks["not run"])


def test_most_blocks_are_run() -> None:
    """Not running is the exception: of all commands and programs, two thirds run."""
    programs = [block for block in BLOCKS if block.language in (SHELL, "python")]
    assert len([block for block in programs if "not run" in block.marks]) < len(programs) / 3


@pytest.mark.parametrize(
    "wrong", ["autoresearch walk", "autoresearch run --faster", "autoresearch ml bake", "autoresearch run -n many"]
)
def test_a_wrong_command_is_noticed(wrong: str) -> None:
    """A command, an option or a value that the program does not take fails the check."""
    with pytest.raises(Exception, match=r"there is no command|No such option|valid integer"):
        commands.parse(wrong.split())


def test_a_wrong_word_in_a_sentence_is_noticed() -> None:
    """A sentence may leave out values, and may not make up options."""
    commands.know(["autoresearch", "show"])
    with pytest.raises(AssertionError, match="has no option --colour"):
        commands.know(["autoresearch", "show", "--colour"])


def test_commands_are_found() -> None:
    """Comments, variables in front, pipes, folded lines and redirections do not hide a command."""
    script = "KEY=1 autoresearch log  # all\nautoresearch run \\\n  -n 1 && autoresearch status | head > f\n:"
    assert list(commands_in(script)) == [
        ["autoresearch", "log"],
        ["autoresearch", "run", "-n", "1"],
        ["autoresearch", "status"],
    ]


def test_marks_are_read() -> None:
    """Marks belong to the fence below them, and may have several lines."""
    page = (
        "<!-- first: a\nb -->\n<!-- not run: why -->\n```bash\nx\n```\n\n1. In a list\n\n    ```text\n    y\n    ```\n"
    )
    one, two = _blocks_in(PAGES[0], page)
    assert (one.line, one.marks) == (4, {"first": "a\nb", "not run": "why"})
    assert (two.language, two.text, two.marks) == ("text", "y\n", {})


@pytest.mark.parametrize(
    ("shown", "same"),
    [("b 2", True), ("a  1\nb ...", True), ("a 1\n...\nd 4", True), ("a 1\nc 3", False), ("b", False)],
)
def test_output_is_compared(shown: str, same: bool) -> None:
    """Lines must follow one another; dots stand for anything, and blanks do not count."""
    assert matches(shown, "a 1\nb   2\nc 3\nd 4\n") is same


def test_a_failing_block_fails(tmp_path: Path) -> None:
    """A command that fails, in the middle too, and a text that was not printed are errors."""
    terminal = Terminal(tmp_path)
    with pytest.raises(AssertionError, match="ended with 1"):
        terminal.run(Block(PAGES[0], 1, "bash", "false\ntrue\n"))
    terminal.run(Block(PAGES[0], 1, "bash", "mkdir a && cd a\nexport WORD=there\n"))
    terminal.run(Block(PAGES[0], 1, "bash", 'echo "$WORD" in "$(basename "$PWD")"\n'))
    terminal.run(Block(PAGES[0], 1, "text", "there in a\n", {"output": ""}))
    with pytest.raises(AssertionError, match="this was printed"):
        terminal.run(Block(PAGES[0], 1, "text", "elsewhere\n", {"output": ""}))
