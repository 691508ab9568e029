from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `marketing` is not installed")

from autoresearch.adapters.marketing.counting import Count, counter_of
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest
from autoresearch.adapters.marketing.site import views
from autoresearch.adapters.marketing.site.app import Site
from autoresearch.adapters.marketing.site.settings import SiteSettings
from autoresearch.adapters.marketing.surfaces import Surface
from tests.adapters.marketing.filling import started
from tests.adapters.marketing.site.browser import Browser


class CopyPages:
    """The page is the text of copy.toml."""

    routes: Mapping[str, str] = {"/": "page"}
    surfaces: tuple[Surface, ...] = ()

    def shows(self, page: str, surface: str) -> bool:
        return True

    def html(self, artifact: Path, page: str = "page", audience: str = "") -> bytes:
        return (artifact / "copy.toml").read_bytes()

    def slots(self, artifact: Path, page: str = "page", audience: str = "") -> Mapping[str, str]:
        return {"headline": (artifact / "copy.toml").read_text().split('"')[1]}


class Shop:
    """One campaign with a live test, served by one application; settings can be changed."""

    def __init__(self, tmp_path: Path, **settings: object) -> None:
        self.live, self.test = started(tmp_path)
        settings = {"holdout": 0.0, **settings}
        self.settings = replace(SiteSettings(goal="signup"), **settings)  # type: ignore[arg-type]
        self.site = Site(self.live, CopyPages(), self.settings)

    def browser(self, **more: str) -> Browser:
        return Browser(self.site, **more)  # type: ignore[arg-type]

    def count(self, goal: str = "signup") -> Count:
        counter = counter_of(self.live.events, self.test, ["signup", "unsubscribe", "click"])
        counter.update()
        return counter.count(goal, now=datetime.now(UTC) + timedelta(days=1), window=None)

    def exposed(self) -> int:
        return sum(self.count().exposed.values())

    def converted(self, goal: str = "signup") -> float:
        return sum(arm.total for arm in self.count(goal).arms)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request looks at the state folder, so that no test waits for a quarter of a second."""
    monkeypatch.setattr(views, "LOOK_SECONDS", 0.0)


@pytest.fixture
def open_shop(tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    """Returns a shop with the settings given; its log is closed afterwards."""
    shops: list[Shop] = []

    def make(**settings: object) -> Shop:
        shops.append(Shop(tmp_path, **settings))
        return shops[-1]

    yield make
    for shop in shops:
        shop.site.writer.close()


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    return open_shop()


__all__ = ["LiveFolder", "LiveTest", "Shop"]
