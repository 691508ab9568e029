"""The pictures of the documentation are what their script draws, and say in words what they show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from scripts import pictures
from tests.docs.pages import ROOT

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_up_to_date(name: str) -> None:
    """What lies in docs/pictures is what the shipped policies do today, to less than the width of a line."""
    kept, drawn = (pictures.FOLDER / name).read_text(encoding="utf-8"), pictures.PICTURES[name]().drawn()
    assert NUMBER.sub("#", kept) == NUMBER.sub("#", drawn), "draw it again: python -m scripts.pictures"
    for old, new in zip(NUMBER.findall(kept), NUMBER.findall(drawn), strict=True):
        # The last digit of a coordinate may differ between processors.
        assert float(old) == pytest.approx(float(new), abs=0.5), "draw it again: python -m scripts.pictures"


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_shown_with_words(name: str) -> None:
    """A page shows each picture; the file has a title and a description, both schemes of colour and a background."""
    page = (ROOT / "docs" / "how-it-decides.md").read_text(encoding="utf-8")
    assert re.search(rf"!\[[^\]]{{20,}}\]\(pictures/{name}\)", page)
    root = ElementTree.parse(pictures.FOLDER / name).getroot()
    words = [root.findtext(f"{{http://www.w3.org/2000/svg}}{tag}") or "" for tag in ("title", "desc", "style")]
    assert all(words)
    assert "prefers-color-scheme: dark" in words[2]
    assert root.find("{http://www.w3.org/2000/svg}rect[@class='back']") is not None


def test_labels_do_not_cover_one_another() -> None:
    """Curves that end at the same place have their names one below the other."""
    taken: list[float] = []
    for _ in range(4):
        taken.append(pictures._free(100.0, taken))
    assert all(abs(one - other) >= 17 for one in taken for other in taken if one is not other)
