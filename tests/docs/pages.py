"""The pages of the documentation as fenced blocks, and the marks that say what becomes of a block.

A mark is an HTML comment right before a fence. Readers of the page do not see it; readers of its source do:

    not run: WHY            a command or program that is only parsed, and why
    run with: OPTIONS       put behind every `autoresearch run` and `compare` of the block
    first: COMMANDS         run before the block, where the page supposes something that it does not show
    here: WORD is COMMAND   what stands in the place of a word such as ID: the output of a command
    slow: WHY               run by `make test-all` only
    file: NAME              written to a file instead of run
    as: NAME                checked by whatever reads a file of that name
    output                  a text: what the block before must have printed; `...` stands for anything
    not compared: WHY       a text that is no output of the block before
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md")))
SHELL = "bash"
LANGUAGES = (SHELL, "python", "toml", "json", "html", "text")
MARKS = ("not run", "run with", "first", "here", "slow", "file", "as", "output", "not compared")

_FENCE = re.compile(
    r"(?P<marks>(?:^ *<!--(?:(?!-->).)*-->\n)*)^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(r"<!-- *(?P<kind>[a-z ]+?)(?:: *(?P<value>.*?))?\s*-->", re.DOTALL)
_INLINE = re.compile(r"`(autoresearch(?:\s[^`]+)?)`")
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` is that of its fence."""

    page: Path
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page from top to bottom."""
    return list(_blocks_in(page, page.read_text(encoding="utf-8")))


def _blocks_in(page: Path, text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.end("marks")) + 1
        marks = {mark["kind"]: mark["value"] or "" for mark in _MARK.finditer(match["marks"])}
        yield Block(page, line, match["language"], textwrap.dedent(match["text"]), marks)


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page)]


def prose_of(page: Path) -> str:
    """Return a page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def commands_in(script: str) -> Iterator[list[str]]:
    """Yield every `autoresearch ...` of a shell script as words, without what is piped, chained or redirected."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        yield from _calls(list(lexer))


def _calls(words: list[str]) -> Iterator[list[str]]:
    call: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set("|&;<>"):
            if call and Path(call[0]).name == "autoresearch":
                yield call
            call = []
        elif call or not _ASSIGNMENT.fullmatch(word):
            call.append(word)


def spoken_commands(page: Path) -> Iterator[list[str]]:
    """Yield every `autoresearch ...` between backquotes in the sentences of a page."""
    for match in _INLINE.finditer(prose_of(page)):
        yield shlex.split(" ".join(match[1].split()))
