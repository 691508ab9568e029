"""Campaign folders for tests: the packaged ones, with files changed by replacing text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.adapters.marketing.wording import Copy

KINDS = (("page", "search"), ("email", "search"), ("ad", "search"), ("ad", "social"))


def write_campaign(folder: Path, kind: str = "page", platform: str = "search") -> Path:
    """Write a packaged campaign and return its folder."""
    for path, text in workspace_files(kind, platform).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def campaign(folder: Path, kind: str = "page", platform: str = "search") -> Campaign:
    """Write and read a packaged campaign."""
    return Campaign.load(write_campaign(folder, kind, platform))


def edit(folder: Path, path: str, old: str, new: str) -> None:
    """Replace a text that a file must hold."""
    text = (folder / path).read_text(encoding="utf-8")
    assert old in text, f"{path} no longer holds {old!r}"
    (folder / path).write_text(text.replace(old, new), encoding="utf-8")


def with_facts(of: Campaign, *facts: str) -> Campaign:
    """Return a campaign in which only these facts may be claimed."""
    return replace(of, facts="\n".join(f"- {fact}" for fact in facts))


def copy_of(of: Campaign, **slots: str) -> Copy:
    """Return the campaign's copy with some texts changed."""
    copy = Copy.load(of.folder)
    for name, text in slots.items():
        copy = copy.with_slot(name, text)
    return copy
