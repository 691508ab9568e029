"""The brief tells a language model what it needs, in the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.adapters.marketing.brief import brief
from tests.adapters.marketing.campaigns import KINDS, campaign


@pytest.mark.parametrize(("kind", "platform"), KINDS)
def test_the_brief_holds_everything(tmp_path: Path, kind: str, platform: str) -> None:
    """Goal, audience, metric, every slot with its limit, facts and banned words are there."""
    packaged = campaign(tmp_path, kind, platform)
    text = brief(packaged)
    for part in (packaged.goal.text, packaged.goal.audience, packaged.metric.name, "1,200 cafés", "game-changing"):
        assert part in text
    for slot in packaged.slots.values():
        assert f"- {slot.name}, {slot.max_chars}" in text
        assert slot.about in text
    assert "cheapest" not in text, "what must never be claimed would only give ideas"
    assert str(tmp_path) not in text


def test_the_brief_is_byte_stable(tmp_path: Path) -> None:
    """Another folder with the same files gives the same bytes."""
    assert brief(campaign(tmp_path / "a")) == brief(campaign(tmp_path / "b"))
