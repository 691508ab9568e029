"""What a page shows as a file's content, given to the code that reads such a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomlkit

from autoresearch.adapters.command.options import Options
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.email.settings import EmailSettings
from autoresearch.adapters.marketing.site.server import campaign_settings
from autoresearch.adapters.marketing.sources import create_source
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.adapters.marketing.wording import Copy
from autoresearch.core.registry import ADAPTERS, POLICIES, PROPOSERS
from autoresearch.core.workspace import Layout, read_settings
from tests.adapters.marketing.site.conftest import Shop


def settings(text: str, folder: Path) -> None:
    """Read `autoresearch.toml`, and its table [adapter] as the command adapter does where it names a command."""
    (folder / "autoresearch.toml").write_text(text, encoding="utf-8")
    found = read_settings(Layout(folder))
    if "measure" in found.options:
        Options.parse(found.options)


def campaign(text: str, folder: Path) -> None:
    """Read tables of `campaign.toml` in the place of those of a campaign that `init` writes."""
    tables = tomllib.loads(text)
    kind = "email" if "email" in tables else "page"
    for name, content in workspace_files(kind).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    path = folder / "campaign.toml"
    begun = tomllib.loads(path.read_text(encoding="utf-8"))
    if kind == "email":  # no mail goes out without these; a page says so once
        begun["site"] = {"base_url": "https://list.example.com", "suppression": "../suppression"}
    path.write_text(tomlkit.dumps(_merged(begun, tables)), encoding="utf-8")
    read = Campaign.load(folder)
    campaign_settings(folder)
    create_source(read, {})
    if kind == "email":
        EmailSettings.of(read)


def _merged(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for name, value in other.items():
        held = both.get(name)
        both[name] = _merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return both


def copy(text: str, folder: Path) -> None:
    """Read `copy.toml`."""
    Copy.load(text)


def project(text: str, folder: Path) -> None:
    """Read the entry points in `pyproject.toml`; their groups must be ones that we look into."""
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert set(groups) <= {ADAPTERS, PROPOSERS, POLICIES}, f"nobody looks into {set(groups)}"


def events(text: str, folder: Path) -> None:
    """Send each object as the body of `POST /events` to a site whose live test is the one that the page names."""
    shop = Shop(folder)
    decoder, rest, seen = json.JSONDecoder(), text.replace("run/0007", shop.test.id).strip(), 0
    while rest:
        _, end = decoder.raw_decode(rest)
        answer = shop.browser().post("/events", rest[:end].encode())
        assert answer.status == 200, answer.text
        rest, seen = rest[end:].strip(), seen + 1
    shop.site.writer.close()
    assert seen


def assignment(text: str, folder: Path) -> None:
    """Compare an answer of `GET /assign` with one that a site gives: the same keys, and values of the same kind."""
    shop = Shop(folder)
    answer = shop.browser(agent="python-httpx/1").get("/assign?unit=user-42&expose=1").json
    shop.site.writer.close()
    shown = json.loads(text)
    assert set(shown) == set(answer)
    assert set(shown["slots"]) <= set(answer["slots"])


READERS: Mapping[str, Callable[[str, Path], None]] = {
    "autoresearch.toml": settings,
    "campaign.toml": campaign,
    "copy.toml": copy,
    "pyproject.toml": project,
    "the body of POST /events": events,
    "the answer of GET /assign": assignment,
}
