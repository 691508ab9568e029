from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.counting import holdout_counter
from tests.adapters.marketing.filling import artifact
from tests.adapters.marketing.site.browser import Browser
from tests.adapters.marketing.site.conftest import Shop

OpenShop = Callable[..., Shop]


def arm_of(text: str) -> str:
    return text.split('"')[1].lower()


def test_a_visitor_keeps_its_arm_and_counts_once(shop: Shop) -> None:
    """The same browser sees the same page at every visit and is one unit."""
    browser = shop.browser()
    seen = {browser.get("/").text for _ in range(5)}
    assert len(seen) == 1
    assert shop.exposed() == 1
    assert shop.count().exposed[arm_of(seen.pop())] == 1


def test_both_arms_are_shown_and_logged_as_shown(shop: Shop) -> None:
    """Every one of 200 visitors is in the log under the arm whose page it got."""
    shown = {"control": 0, "treatment": 0}
    for _ in range(200):
        shown[arm_of(shop.browser().get("/").text)] += 1
    assert shop.count().exposed == shown
    assert min(shown.values()) > 60


def test_the_exposure_is_on_its_way_to_the_disk_before_the_reply(shop: Shop) -> None:
    """When the first byte of the reply is sent, the record is in the file already."""
    sizes: list[int] = []

    async def watching(scope: object, receive: object, send: Callable[..., object]) -> None:
        async def watched(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                sizes.append(events.size(shop.live.events))
            await send(message)  # type: ignore[misc]

        await shop.site(scope, receive, watched)  # type: ignore[arg-type]

    Browser(watching).get("/")
    assert sizes == [2 * 48]


def test_looking_again_does_not_make_the_log_grow(shop: Shop) -> None:
    """A visitor that reloads all day costs two records."""
    browser = shop.browser()
    for _ in range(50):
        browser.get("/")
    assert events.size(shop.live.events) == 2 * 48


def test_headers_keep_caches_from_mixing_arms(open_shop: OpenShop) -> None:
    """Pages are private, vary by cookie, name one canonical address for all arms, and set a first-party cookie."""
    shop = open_shop(base_url="https://shop.example")
    answer = shop.browser().get("/")
    assert answer.headers["cache-control"] == "private, no-store"
    assert "Cookie" in answer.headers["vary"]
    assert answer.headers["link"] == '<https://shop.example/>; rel="canonical"'
    cookie = answer.headers["set-cookie"]
    assert re.match(r"ar_unit=[\w-]{22}; Path=/; Max-Age=\d+; HttpOnly; SameSite=Lax; Secure$", cookie)


@pytest.mark.parametrize(
    "agent",
    [
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "curl/8.5.0",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/150.0.0.0 Safari/537.36",
        "",
    ],
)
def test_robots_see_the_control_and_do_not_count(shop: Shop, agent: str) -> None:
    """However often they come, they get the control, no cookie and no record."""
    for _ in range(10):
        answer = shop.browser(agent=agent).get("/")
        assert arm_of(answer.text) == "control"
        assert "set-cookie" not in answer.headers
    assert shop.exposed() == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("sec_purpose", "prefetch;prerender"), ("purpose", "prefetch"), ("x_moz", "prefetch"), ("x_purpose", "preview")],
)
def test_fetching_ahead_does_not_count(shop: Shop, name: str, value: str) -> None:
    """A page that nobody may ever look at is the control, uncounted, for visitors known as treated too."""
    for _ in range(10):
        browser = shop.browser()
        browser.get("/")
        assert arm_of(browser.get("/", **{name: value}).text) == "control"
    assert shop.exposed() == 10
    shop.browser().get("/", **{name: value})
    assert shop.exposed() == 10


def test_head_is_not_a_view(shop: Shop) -> None:
    """HEAD gets the control's headers and leaves no trace."""
    answer = shop.browser().ask("HEAD", "/")
    assert answer.status == 200
    assert "set-cookie" not in answer.headers
    assert shop.exposed() == 0


def test_without_consent_the_control_and_no_count(open_shop: OpenShop) -> None:
    """Where consent is asked for, only who gave it is assigned; who takes it back loses the cookie."""
    shop = open_shop(consent="consent=yes")
    for _ in range(10):
        stranger = shop.browser()
        assert arm_of(stranger.get("/").text) == "control"
        assert stranger.cookies == {}
    assert shop.exposed() == 0
    friend = shop.browser(cookies={"consent": "yes"})  # type: ignore[arg-type]
    friend.get("/")
    assert shop.exposed() == 1
    friend.cookies["consent"] = "no"
    assert arm_of(friend.get("/").text) == "control"
    assert "ar_unit" not in friend.cookies


def test_a_cookie_that_we_never_gave_out_is_replaced(shop: Shop) -> None:
    """A malformed unit id is nobody's."""
    browser = shop.browser(cookies={"ar_unit": "x" * 5000})  # type: ignore[arg-type]
    browser.get("/")
    assert len(browser.cookies["ar_unit"]) == 22


def test_the_kill_switch_shows_everybody_the_control(shop: Shop) -> None:
    """At once, uncounted, the treated too; and back again."""
    browsers = [shop.browser() for _ in range(10)]
    before = [browser.get("/").text for browser in browsers]
    shop.live.kill(True)
    assert {arm_of(browser.get("/").text) for browser in browsers} == {"control"}
    assert arm_of(shop.browser().get("/").text) == "control"
    assert shop.exposed() == 10
    assert shop.browser().get("/healthz").json["status"] == "killed"
    shop.live.kill(False)
    assert [browser.get("/").text for browser in browsers] == before


def test_the_winner_is_shown_to_everybody_and_the_original_to_the_holdout(open_shop: OpenShop) -> None:
    """After a keep a fixed share goes on seeing the original, counted apart: the truth about the total."""
    shop = open_shop(holdout=0.25)
    shop.live.finish(shop.test.id, "treatment")
    shown = [arm_of(shop.browser().get("/").text) for _ in range(200)]
    counter = holdout_counter(shop.live.events, "page", ["signup"])
    counter.update()
    exposed = counter.count("signup", now=shop.test.started, window=None).exposed
    assert exposed == {"holdout": shown.count("control"), "rest": shown.count("treatment")}
    assert 25 < exposed["holdout"] < 80


def test_the_holdout_is_in_no_test(open_shop: OpenShop) -> None:
    """While a test runs, units of the holdout are in neither of its arms."""
    shop = open_shop(holdout=0.5)
    for _ in range(100):
        shop.browser().get("/")
    counter = holdout_counter(shop.live.events, "page", ["signup"])
    counter.update()
    exposed = counter.count("signup", now=shop.test.started, window=None).exposed
    assert exposed["rest"] == shop.exposed() < 80
    assert sum(exposed.values()) == 100


def test_a_test_may_start_and_end_while_the_server_runs(shop: Shop) -> None:
    """Servers follow what `run` writes; without a test everybody sees the incumbent."""
    shop.live.finish(shop.test.id)
    assert {arm_of(shop.browser().get("/").text) for _ in range(20)} == {"control"}
    assert shop.browser().get("/healthz").json["tests"] == {}


def test_a_broken_state_file_does_not_reach_visitors(shop: Shop) -> None:
    """They go on seeing what was live, and the health page tells."""
    browser = shop.browser()
    before = browser.get("/").text
    good = shop.live.live.read_bytes()
    shop.live.live.write_text("{")
    assert browser.get("/").text == before
    health = browser.get("/healthz")
    assert health.status == 503
    assert "cannot be understood" in health.json["fault"]
    shop.live.live.write_bytes(good)
    assert browser.get("/healthz").status == 200


def test_a_full_disk_shows_the_control_and_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written must not be shown as a treatment; visitors get their page all the same."""

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        answers = [shop.browser().get("/") for _ in range(20)]
        assert {(answer.status, arm_of(answer.text)) for answer in answers} == {(200, "control")}
        health = shop.browser().get("/healthz")
        assert health.status == 503
        assert health.json["uncounted"] == 20
    shop.browser().get("/")
    assert shop.browser().get("/healthz").status == 200
    assert shop.exposed() == 1


def test_a_flood_is_bounded(open_shop: OpenShop) -> None:
    """Beyond the allowed rate visitors see the control and the log stops growing."""
    shop = open_shop(max_events_per_second=0.5)  # a minute's worth: 30 records, so 15 visitors
    for _ in range(40):
        assert shop.browser().get("/").status == 200
    assert events.size(shop.live.events) <= 31 * 48


def test_the_forgotten_are_not_counted_again(shop: Shop) -> None:
    """A person who asked to be forgotten sees the control and leaves no record."""
    browser = shop.browser()
    browser.get("/")
    events.forget(shop.live.events, [shop.live.unit_key(browser.cookies["ar_unit"])])
    size = events.size(shop.live.events)
    assert arm_of(browser.get("/").text) == "control"
    browser.post("/convert")
    assert events.size(shop.live.events) == size
    assert shop.exposed() == 0


def test_no_address_and_no_cookie_is_in_the_log(shop: Shop) -> None:
    """The log holds hashes: neither the cookie's id nor any text that was sent can be found in it."""
    browser = shop.browser()
    browser.get("/?email=ann@example.com")
    browser.post("/convert", b"email=ann%40example.com")
    written = b"".join(path.read_bytes() for path in events.segments(shop.live.events))
    assert browser.cookies["ar_unit"].encode() not in written
    assert b"ann" not in written


def test_other_surfaces_exist_only_when_live(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A surface without a path on this site can be asked for by name."""
    shop.live.publish("banner", artifact(tmp_path_factory.mktemp("banner"), "Banner"))
    answer = shop.browser().get("/assign?surface=banner&unit=u1").json
    assert answer["slots"] == {"headline": "Banner"}
    assert shop.browser().get("/banner").status == 404


def test_one_artifact_on_two_surfaces_is_rendered_for_each(open_shop: OpenShop) -> None:
    """A surface without a page of its own does not take the page from one that has the same texts."""
    shop = open_shop()
    shop.live.finish(shop.test.id)
    shop.live.publish("banner", shop.test.control)
    assert shop.browser().get("/assign?surface=banner&unit=u1").json["slots"] == {"headline": "Control"}
    assert "Control" in shop.browser().get("/").text
