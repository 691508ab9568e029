"""The packaged campaigns: complete, passing their own checks, and good pages to begin with."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.checks import campaign_faults, check, option_faults
from autoresearch.adapters.marketing.render import render, slots_in
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.adapters.marketing.structure import read_structure
from autoresearch.core import UsageError
from tests.adapters.marketing.campaigns import KINDS, campaign, copy_of


@pytest.mark.parametrize(("kind", "platform"), KINDS)
def test_a_packaged_campaign_passes_its_own_checks(tmp_path: Path, kind: str, platform: str) -> None:
    """Template, copy and every option pass, without a remark."""
    packaged = campaign(tmp_path, kind, platform)
    copy = copy_of(packaged)
    assert campaign_faults(packaged) == ()
    assert check(packaged, copy).refusals == ()
    assert check(packaged, copy).warnings == ()
    assert option_faults(packaged, copy) == ()


@pytest.mark.parametrize(("kind", "platform"), KINDS)
def test_every_slot_has_texts_to_choose_from(tmp_path: Path, kind: str, platform: str) -> None:
    """Each slot lists four to six different texts, the present one among them, and says what it is for."""
    packaged = campaign(tmp_path, kind, platform)
    copy = copy_of(packaged)
    assert list(copy.slots) == list(packaged.slots)
    assert set(copy.slots) == set(slots_in(packaged))
    for name, text in copy.slots.items():
        assert packaged.slots[name].about
        assert text in copy.options[name]
        assert 4 <= len(set(copy.options[name])) == len(copy.options[name]) <= 6


@pytest.mark.parametrize(
    ("kind", "platform"), [("page", "search"), ("email", "search"), ("ad", "search"), ("ad", "social")]
)
def test_html_is_small_and_asks_nobody_else(tmp_path: Path, kind: str, platform: str) -> None:
    """No picture, script, style or font comes from elsewhere, and the whole is under 30 KB."""
    packaged = campaign(tmp_path, kind, platform)
    html = render(packaged, copy_of(packaged)).html or ""
    assert 500 < len(html.encode()) < 30_000
    assert not re.search(r"""\ssrc=|@import|url\(|<script|<iframe|rel=["']?(stylesheet|preload|preconnect)""", html)
    assert '<html lang="en">' in html
    assert '<meta name="viewport"' in html
    assert len(re.findall("<h1", html)) == (0 if kind == "email" else 1)


def test_the_page_can_be_used_without_eyes_or_mouse(tmp_path: Path) -> None:
    """Every field has its label, ids are unique, references lead somewhere, and the first link skips to the content."""
    page = campaign(tmp_path)
    html = render(page, copy_of(page)).html or ""
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    for attribute in ("for", "aria-labelledby", "aria-describedby"):
        assert set(re.findall(rf'\s{attribute}="([^"]+)"', html)) <= set(ids)
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)
    assert set(re.findall(r'<label for="([^"]+)"', html)) == {"email"}
    assert html.index('class="skip"') < html.index("<header")
    found = read_structure(html)
    assert list(found.forms) == [("post", "/convert", ("email",))]
    assert found.empty_links == []


def test_colours_can_be_told_apart(tmp_path: Path) -> None:
    """Text on its ground has a contrast of at least 4.5 in the light and in the dark (WCAG 2.2, 1.4.3)."""
    page = campaign(tmp_path)
    html = render(page, copy_of(page)).html or ""
    schemes = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{([^}]*)\}", html)
    ]
    light, dark = (scheme for scheme in schemes if "accent" in scheme)
    for scheme in (light, dark):
        for text, ground in (
            ("ink", "paper"),
            ("soft", "paper"),
            ("soft", "card"),
            ("accent", "paper"),
            ("on-accent", "accent"),
        ):
            assert _contrast(scheme[text], scheme[ground]) >= 4.5, (text, ground)


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_contrast_of_black_and_white_is_known() -> None:
    """The formula gives 21 for black on white, as the standard says."""
    assert _contrast("#000000", "#ffffff") == pytest.approx(21.0)


def test_mjml_is_well_formed(tmp_path: Path) -> None:
    """The mail's MJML is XML, whatever a text holds."""
    mail = campaign(tmp_path, "email")
    mjml = render(mail, copy_of(mail, ask="Tea & cake < bread?")).mjml or ""
    assert ET.fromstring(mjml).tag == "mjml"


def test_kinds_that_are_not_there_are_refused() -> None:
    """An unknown kind or platform names those that are."""
    with pytest.raises(UsageError, match="page, email, ad"):
        workspace_files("banner")
    with pytest.raises(UsageError, match="search, social"):
        workspace_files("ad", "radio")


def test_a_workspace_has_everything_but_its_settings() -> None:
    """What is written makes a campaign; autoresearch.toml comes from the command."""
    assert set(workspace_files("email")) == {
        "README.md",
        "brand.md",
        "campaign.toml",
        "copy.toml",
        "facts.md",
        "program.md",
        "template/email.html.j2",
        "template/email.mjml.j2",
        "template/email.subject.j2",
        "template/email.txt.j2",
    }
