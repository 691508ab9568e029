"""What the pages say is true of the repository: links, names, tables, the adapter of thirty lines."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch import core
from autoresearch.adapters.ml_training.presets import PRESETS
from autoresearch.core import registry
from tests.docs.pages import PAGES, ROOT, all_blocks, blocks_of, prose_of

EVERYTHING = [*PAGES, ROOT / "CHANGELOG.md"]
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_pages_are_found() -> None:
    """The pages that these tests are about exist."""
    names = {_name(page) for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md", "docs/start-here.md", "docs/write-an-adapter.md"} <= names


@pytest.mark.parametrize("page", EVERYTHING, ids=_name)
def test_links_resolve(page: Path) -> None:
    """Every relative link of a page leads to a file of the repository."""
    for link in _LINK.findall(prose_of(page)):
        if not link.startswith(("http:", "https:", "mailto:", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), f"{_name(page)} links to {link}"


def test_index_leads_to_every_page() -> None:
    """docs/index.md links to each page beside it."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index, f"docs/index.md does not name {page.name}"


def test_imported_names_exist() -> None:
    """What a Python block imports from autoresearch is there, also where the block is not run."""
    seen = 0
    for block in all_blocks():
        for node in ast.walk(ast.parse(block.text if block.language == "python" else "")):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autoresearch."):
                module = importlib.import_module(str(node.module))
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert not missing, f"{block} imports {missing} from {node.module}"
                seen += 1
    assert seen > 0


def _code(page: Path) -> Iterator[str]:
    yield from (block.text for block in blocks_of(page))
    yield from re.findall(r"`([^`\n]+)`", prose_of(page))


def test_make_targets_exist() -> None:
    """Every `make` target that a page shows is one of the Makefile's."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = {name for page in EVERYTHING for name in re.findall(r"\bmake ([a-z-]+)\b", "\n".join(_code(page)))}
    assert {"test", "docs"} <= shown
    for name in shown:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"the Makefile has no target {name}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_named_files_exist(page: Path) -> None:
    """A file, folder or module of the repository that a page names is there."""
    for code in re.findall(r"`([^`\n]+)`", prose_of(page)):
        for path in re.findall(
            r"^(?:python -m )?((?:tests|benchmarks|scripts|examples)[/.][\w./-]+)", code
        ) + re.findall(r"^autoresearch/(?:core|cli|web|adapters)[\w./-]*|^autoresearch/\w+\.py", code):
            file = f"{path.replace('.', '/')}.py" if path.startswith("benchmarks.") else path
            assert (ROOT / file).exists(), f"{_name(page)} names {path}"


def test_the_architecture_names_what_is_there() -> None:
    """Every module and folder that docs/architecture.md lists is one of the package, and no folder is left out."""
    package, text = ROOT / "autoresearch", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named: set[str] = set()
    for row in re.findall(r"^\| (`[a-z_]+[/.].*?) \|", text.partition("| in a workspace")[0], re.MULTILINE):
        first, *others = re.findall(r"`([\w./]+)`", row)
        folder = first.rpartition("/")[0] if "/" in first.rstrip("/") else ""
        named |= {first.rstrip("/"), *(f"{folder}/{other.rstrip('/')}".lstrip("/") for other in others)}
    assert len(named) > 20
    for path in named:
        assert (package / path).exists(), f"docs/architecture.md names {path}"
    for inside in ("", "adapters", "core"):
        for entry in (package / inside).iterdir():
            name = entry.relative_to(package).as_posix()
            if entry.is_dir() and (entry / "__init__.py").exists() and name not in ("adapters", "core"):
                assert name in named, f"docs/architecture.md does not say what {name} is for"


def test_every_offer_is_explained() -> None:
    """docs/write-an-adapter.md names each protocol that the contract exports."""
    page = (ROOT / "docs" / "write-an-adapter.md").read_text(encoding="utf-8")
    protocols = {name for name in core.__all__ if getattr(getattr(core, name), "_is_protocol", False)}
    for name in protocols - {"Adapter", "LiveAdapter", "Policy", "Proposer"}:
        assert f"`{name}`" in page, f"docs/write-an-adapter.md does not name {name}"


def test_the_readmes_adapter_is_the_checked_one() -> None:
    """The thirty lines in the README are the file that mypy checks, and they are thirty."""
    files = {block.marks["file"]: block.text for block in blocks_of(ROOT / "README.md") if "file" in block.marks}
    adapter = (ROOT / "tests" / "typing" / "api.py").read_text(encoding="utf-8")
    assert files["tour_adapter.py"] == adapter
    assert files["tour/tour.py"] == (ROOT / "tests" / "typing" / "tour.py").read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in adapter.splitlines()) <= 30


def test_an_entry_point_gives_the_example_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packaged as docs/write-an-adapter.md says, the example is created by its name."""
    page = blocks_of(ROOT / "docs" / "write-an-adapter.md")
    (entry,) = (block.text for block in page if block.marks.get("as") == "pyproject.toml")
    group, names = re.findall(r'entry-points\."(.+?)"\]\n(.*)', entry, re.DOTALL)[0]
    info = tmp_path / "tour_adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tour-adapter\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\n{names.replace(chr(34), '')}", encoding="utf-8")
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


@pytest.mark.parametrize("page", EVERYTHING, ids=_name)
def test_no_page_names_a_machine(page: Path) -> None:
    """Pages carry no path of somebody's machine."""
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", page.read_text(encoding="utf-8"))
