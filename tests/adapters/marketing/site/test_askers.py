"""Who asks for pages is counted, roughly and without naming anybody."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from autoresearch.adapters.marketing.live import LiveFolder
from autoresearch.adapters.marketing.report_sections import _askers
from autoresearch.adapters.marketing.site import askers
from autoresearch.adapters.marketing.site.askers import AskerCount
from autoresearch.adapters.marketing.site.server import Server
from tests.adapters.marketing.site.browser import AGENT
from tests.adapters.marketing.site.conftest import Shop
from tests.adapters.marketing.site.test_server import write_campaign


def test_each_request_has_one_kind(tmp_path: Path) -> None:
    """People, crawlers, HEAD, fetching ahead and those without consent are told apart; the health page shows them."""
    shop = Shop(tmp_path, consent="ok=yes")
    shop.browser().get("/")
    person = shop.browser()
    person.cookies["ok"] = "yes"
    person.get("/")
    person.get("/")
    shop.browser(agent="Googlebot/2.1").get("/")
    shop.browser().ask("HEAD", "/")
    shop.browser().get("/", sec_purpose="prefetch")
    wanted = {"people": 2, "no consent": 1, "robots": 1, "head": 1, "ahead": 1}
    assert shop.site.askers.counts == {"page": wanted}
    assert json.loads(shop.browser().get("/healthz").body)["requests"] == {"page": wanted}


def test_asking_for_a_unit_is_counted_by_what_is_said_of_the_visitor(tmp_path: Path) -> None:
    """A server that asks for a person is no robot, whatever its own user agent; one that passes a crawler's on is."""
    shop = Shop(tmp_path)
    shop.browser(agent="python-requests/2").get("/assign?unit=u1")
    shop.browser(agent="python-requests/2").get("/assign?unit=u1&ua=Googlebot/2.1")
    assert shop.site.askers.counts == {"page": {"people": 1, "robots": 1}}


def test_counts_outlive_their_workers(tmp_path: Path) -> None:
    """Files of workers are added up, made one when no worker runs, and never counted twice."""
    for _ in range(3):
        count = AskerCount(tmp_path)
        count.note("page", askers.PEOPLE)
        count.note("page", askers.ROBOTS)
        count.write()
    assert askers.read(tmp_path) == {"page": {"people": 3, "robots": 3}}
    for _ in range(2):
        askers.fold(tmp_path)
        assert askers.read(tmp_path) == {"page": {"people": 3, "robots": 3}}
        assert len(list((tmp_path / askers.FOLDER).iterdir())) == 1
    (tmp_path / askers.FOLDER / "half.json").write_text('{"page": {"peo')
    assert askers.read(tmp_path)["page"]["people"] == 3


def test_a_server_leaves_its_count_and_the_report_tells_it(tmp_path: Path) -> None:
    """What a worker counted is there after it was told to stop, and a report has a section of it."""
    write_campaign(tmp_path)
    assert _askers(tmp_path) == ()
    with Server(tmp_path, port=0, workers=1) as server:
        for agent in (AGENT, AGENT, "Googlebot/2.1"):
            urllib.request.urlopen(
                urllib.request.Request(server.url, headers={"user-agent": agent}), timeout=20
            ).close()
    assert askers.read(LiveFolder.of(tmp_path).path) == {"page": {"people": 2, "robots": 1}}
    (section,) = _askers(tmp_path)
    assert "page: 3 requests since it was first served: people 2 (67%), robots by their name 1 (33%)" in section.text
