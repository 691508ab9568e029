"""docs/ is a site that builds without a warning and fetches nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
SITE = CONFIG["site_dir"]


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a copy of the site, so that a checkout that is read-only, or another test, is left alone."""
    pytest.importorskip("zensical", reason="zensical is not installed; it comes with the extra dev")
    if not (folder / "docs").exists():
        shutil.copytree(ROOT / "docs", folder / "docs")
        shutil.copyfile(ROOT / "zensical.toml", folder / "zensical.toml")
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, re.sub(r"\x1b\[[\d;]*m", "", done.stderr + done.stdout)
    return folder / str(SITE)


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else _pages(value)


def test_every_page_is_built(site: Path) -> None:
    """The site builds without a warning: no dead link, no missing anchor; every page becomes one."""
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()


def test_every_page_is_in_the_navigation() -> None:
    """A page that no menu names is found by nobody."""
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").glob("**/*.md")}
    named = list(_pages(CONFIG["nav"]))
    missing = pages - set(named)
    assert not missing, f"put {', '.join(sorted(missing))} into a group of nav in zensical.toml"
    assert sorted(named) == sorted(pages)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures lie beside the pages: the site works without a network."""
    for page in site.glob("**/*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s>]+", text)
        fetched += re.findall(r"<link\b(?![^>]*rel=[\"']?canonical)[^>]*href=[\"']?(?:https?:)?//[^\s>]+", text)
        assert not fetched, f"{page.name} fetches {fetched}"
        assert 'class="mermaid"' not in text, f"{page.name} has a diagram whose script comes from another host"


def test_marks_are_not_shown(site: Path) -> None:
    """The comments that tell a test what to do with a block are comments in the site, too."""
    for page in site.glob("*.html"):
        shown = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "&lt;!--" not in shown, page.name


def test_pictures_have_a_text(site: Path) -> None:
    """Who cannot see a picture is told what it shows."""
    seen = 0
    for page in site.glob("*.html"):
        for picture in re.findall(r"<img\b[^>]*>", page.read_text(encoding="utf-8")):
            text = re.search(r'alt="([^"]*)"', picture)
            assert text and len(text[1]) > 20, f"{page.name}: {picture}"
            seen += 1
    assert seen


@pytest.mark.parametrize("fault", ["[gone](gone.md)", "[gone](ml.md#no-such-heading)", "[gone](#no-such-heading)"])
def test_a_dead_link_fails(tmp_path: Path, fault: str) -> None:
    """A page or a heading that is not there stops the build."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Documentation\n\n{fault}\n", encoding="utf-8")
    (tmp_path / "docs" / "ml.md").write_text("# ml\n", encoding="utf-8")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\n', encoding="utf-8")
    assert build(tmp_path).returncode != 0
