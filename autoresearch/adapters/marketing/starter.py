"""Campaigns to begin with: what `autoresearch init --adapter marketing --kind page|email|ad` writes."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

from autoresearch.adapters.marketing.campaign import KINDS, PLATFORMS
from autoresearch.core import UsageError


def workspace_files(kind: str = "page", platform: str = "search") -> dict[str, str]:
    """Return relative path -> text of a complete campaign with an invented product.

    Args:
        kind: `page`, `email` or `ad`.
        platform: For ads, `search` or `social`.

    Raises:
        UsageError: If there is no such kind or platform.
    """
    if kind not in KINDS:
        raise UsageError(f"There is no kind {kind!r} of campaign.\nChoose one of {', '.join(KINDS)}.")
    if platform not in PLATFORMS:
        raise UsageError(f"There is no platform {platform!r} for ads.\nChoose one of {', '.join(PLATFORMS)}.")
    root = resources.files(__package__) / "template"
    own = "social" if kind == "ad" and platform == "social" else kind
    return {**_texts(root / "common"), **_texts(root / own)}


def _texts(folder: Traversable, prefix: str = "") -> dict[str, str]:
    """Return every file below `folder`, by path."""
    texts: dict[str, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            texts.update(_texts(entry, f"{prefix}{entry.name}/"))
        else:
            texts[f"{prefix}{entry.name}"] = entry.read_text(encoding="utf-8")
    return texts
