"""What the documentation says is true of the program: commands exist, links resolve, code runs."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoresearch.adapters.ml_training.presets import PRESETS
from autoresearch.cli.lazy import BUILT_IN, load
from autoresearch.core import registry

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
TEMPLATES = sorted((ROOT / "autoresearch").glob("**/*.md"))
PLUGIN_COMMANDS = ("marketing", "ml")
GLOBAL_OPTIONS = {"--help", "-h", "--version"}

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_INLINE = re.compile(r"`(autoresearch(?:\s[^`]+)?)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is the comment in front of it."""

    page: Path
    mark: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            yield Block(page, match["mark"] or "", match["language"], match["text"])


def spoken_commands(page: Path) -> Iterator[list[str]]:
    """Yield every `autoresearch ...` of a page, in code spans, shell blocks and indented lines, as words."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        if match["language"] not in ("bash", "sh", "console"):
            continue
        for line in match["text"].replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            words = [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word)]
            if words and Path(words[0]).name == "autoresearch":
                yield words
    rest = _BLOCK.sub("", text)
    for match in _INLINE.finditer(rest):
        yield shlex.split(" ".join(match[1].split()))
    for line in re.findall(r"^    (autoresearch .*)$", rest, re.MULTILINE):
        yield shlex.split(line, comments=True)


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that some words name, and the words that follow it."""
    name, rest = words[1], words[2:]
    command = load(name)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {name} {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def check_command(words: list[str]) -> None:
    """Raise AssertionError where a command or an option does not exist."""
    if len(words) == 1 or words[1] in GLOBAL_OPTIONS:
        return
    assert words[1] in {*BUILT_IN, *PLUGIN_COMMANDS}, f"there is no command {words[1]}"
    command, rest = find_command(words)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word.startswith("-"):
            option = word.partition("=")[0]
            assert option in known | GLOBAL_OPTIONS, f"{words[1]} has no option {option}"


def test_pages_are_found() -> None:
    """The pages that these tests are about exist."""
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/write-an-adapter.md"} <= names


@pytest.mark.parametrize("page", [*PAGES, *TEMPLATES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(page: Path) -> None:
    """Every command and option that a page shows is one that the program has."""
    for words in spoken_commands(page):
        check_command(words)


@pytest.mark.parametrize("wrong", ["autoresearch walk", "autoresearch run --faster", "autoresearch ml bake"])
def test_a_wrong_command_is_noticed(wrong: str) -> None:
    """A command, an option or a sub-command that does not exist fails the check."""
    with pytest.raises(AssertionError, match=r"there is no command|has no option"):
        check_command(wrong.split())


def test_readme_shows_commands() -> None:
    """The README is not checked vacuously: it shows at least ten commands."""
    assert len(list(spoken_commands(ROOT / "README.md"))) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    """Every relative link of a page leads to a file of the repository."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if not link.startswith(("http:", "https:", "mailto:", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name} links to {link}"


def test_index_leads_to_every_page() -> None:
    """docs/index.md links to each page beside it."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index, f"docs/index.md does not name {page.name}"


def test_code_blocks_parse() -> None:
    """Every Python and TOML block is valid."""
    for block in blocks():
        if block.language == "python":
            ast.parse(block.text, str(block.page))
        elif block.language == "toml":
            tomllib.loads(block.text)


def test_imported_names_exist() -> None:
    """What a Python block imports from autoresearch is there."""
    seen = 0
    for block in blocks():
        tree = ast.parse(block.text if block.language == "python" else "")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autoresearch"):
                module = importlib.import_module(str(node.module))
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert not missing, f"{block.page.name} imports {missing} from {node.module}"
                seen += 1
    assert seen > 0


def test_make_targets_exist() -> None:
    """Every `make` target that a page shows is one of the Makefile's."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = {name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)\b", "\n".join(_code(page)))}
    assert "test" in shown
    for name in shown:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"the Makefile has no target {name}"


def _code(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    yield from (match["text"] for match in _BLOCK.finditer(text))
    yield from re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))


def test_the_readmes_adapter_is_the_checked_one() -> None:
    """The thirty lines in the README are the file that mypy checks, and they are thirty."""
    files = {block.mark: block.text for block in blocks() if block.page.name == "README.md"}
    adapter = (ROOT / "tests" / "typing" / "api.py").read_text(encoding="utf-8")
    assert files["file: tour_adapter.py"] == adapter
    assert files["file: tour/tour.py"] == (ROOT / "tests" / "typing" / "tour.py").read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in adapter.splitlines()) <= 30


def test_the_readmes_adapter_improves_something(tmp_path: Path) -> None:
    """Written to files and run as shown, the README's example keeps a shorter tour."""
    for block in blocks():
        kind, _, name = block.mark.partition(": ")
        if block.page.name != "README.md" or not block.mark:
            continue
        if kind == "file":
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(block.text, encoding="utf-8")
        else:
            assert block.mark == "run"
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", block.text], cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            kept, before, after = (int(number) for number in re.findall(r"\d+", done.stdout))
            assert kept > 0
            assert after < before
            return
    raise AssertionError("the README runs nothing")


def test_an_entry_point_gives_the_example_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packaged as docs/write-an-adapter.md says, the example is created by its name."""
    page = [block for block in blocks() if block.page.name == "write-an-adapter.md"]
    (entry,) = (block.text for block in page if block.language == "toml")
    group, names = next(iter(tomllib.loads(entry)["project"]["entry-points"].items()))
    info = tmp_path / "tour_adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tour-adapter\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    adapter = (ROOT / "tests" / "typing" / "api.py").read_text(encoding="utf-8")
    (tmp_path / "tour_adapter.py").write_text(adapter, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        created, registered = registry.create_adapter("tour", {})
        assert type(created).__name__ == "TourAdapter"
        assert registered.distribution == "tour-adapter"
    finally:
        sys.modules.pop("tour_adapter", None)


def test_ml_page_has_the_presets() -> None:
    """The table in docs/ml.md says of every preset what the code says."""
    page = (ROOT / "docs" / "ml.md").read_text(encoding="utf-8")
    for preset in PRESETS.values():
        clock = "of processor time" if preset.clock == "cpu" else "on the wall"
        budget = f"{preset.budget_seconds:g} s {clock}"
        row = f"| `{preset.name}` | {preset.device} | {preset.vocab_size} | {preset.data} | {budget} |"
        assert row in page


def test_no_page_names_a_machine() -> None:
    """Pages carry no path of somebody's machine."""
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", page.read_text(encoding="utf-8")), page.name
