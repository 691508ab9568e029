from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.counting import counter_of
from autoresearch.adapters.marketing.email import suppression
from autoresearch.adapters.marketing.site.ingest import sign_webhook, webhook_secret
from autoresearch.adapters.marketing.site.links import signed_link
from autoresearch.core import MetricKind
from tests.adapters.marketing.site.browser import Browser
from tests.adapters.marketing.site.conftest import Shop

OpenShop = Callable[..., Shop]


def viewed(unit: str, variation: object = "treatment", **more: object) -> dict[str, object]:
    properties = {"experiment_id": "run/0001", "variation_id": variation}
    return {"type": "track", "event": "Experiment Viewed", "anonymousId": unit, "properties": properties, **more}


def test_a_form_post_converts_its_sender_once(shop: Shop) -> None:
    """Visit, send the form twice: one unit, one conversion, in the arm that was seen."""
    browser = shop.browser()
    arm = browser.get("/").text.split('"')[1].lower()
    assert browser.post("/convert", b"email=a%40b.c").status == 200
    browser.post("/convert", b"email=a%40b.c")
    assert {row.arm: row.total for row in shop.count().arms if row.n} == {arm: 1.0}


def test_a_form_goes_on_to_its_own_handler(open_shop: OpenShop) -> None:
    """The post is counted and then handed on as it was sent: 307 keeps method and body."""
    shop = open_shop(forms={"signup": "https://crm.example/leads"})
    answer = shop.browser().post("/convert/signup")
    assert (answer.status, answer.headers["location"]) == (307, "https://crm.example/leads")


def test_a_form_without_a_handler_leads_to_the_thanks_page(open_shop: OpenShop) -> None:
    """303: the browser fetches the page and does not post again."""
    shop = open_shop(thanks_url="https://shop.example/thanks")
    answer = shop.browser().post("/convert")
    assert (answer.status, answer.headers["location"]) == (303, "https://shop.example/thanks")


def test_a_robot_does_not_convert(shop: Shop) -> None:
    """Even with the cookie of a counted visitor."""
    browser = shop.browser()
    browser.get("/")
    Browser(shop.site, "curl/8.5", browser.cookies).post("/convert")
    assert shop.converted() == 0


def test_a_signed_link_counts_and_leads_on(shop: Shop) -> None:
    """A click is a conversion of the link's goal; a scanner is led on and not counted."""
    link = signed_link(shop.live.secret, "https://shop.example/buy?a=1&b=2", "click")
    browser = shop.browser()
    browser.get("/")
    Browser(shop.site, "Googlebot/2.1", browser.cookies).get(link)
    browser.get(link, sec_purpose="prefetch")
    browser.ask("HEAD", link)
    assert shop.converted("click") == 0
    answer = browser.get(link)
    assert (answer.status, answer.headers["location"]) == (302, "https://shop.example/buy?a=1&b=2")
    assert shop.converted("click") == 1


@pytest.mark.parametrize("change", ["to=https%3A%2F%2Fevil.example%2F", "goal=signup", "sig=" + "0" * 32, "sig=é"])
def test_the_site_is_no_open_redirect(shop: Shop, change: str) -> None:
    """Another target, another goal or another signature leads nowhere."""
    query = signed_link(shop.live.secret, "https://shop.example/", "click").partition("?")[2].split("&")
    name = change.partition("=")[0]
    changed = [change if part.startswith(f"{name}=") else part for part in query]
    answer = shop.browser().get("/go?" + "&".join(changed))
    assert answer.status == 400
    assert "location" not in answer.headers


def test_only_web_addresses_are_signed() -> None:
    """A script is no target."""
    with pytest.raises(ValueError, match="no address to lead to"):
        signed_link("secret", "javascript:alert(1)", "click")


def test_segments_shape_is_understood(shop: Shop) -> None:
    """Exposures by name or position, conversions by name with a value, in one batch."""
    batch = [
        viewed("ann"),
        viewed("bob", 0),
        viewed("cem", "1"),
        {"type": "track", "event": "signup", "userId": "ann", "properties": {"revenue": 20}},
    ]
    answer = shop.browser().post("/events", {"batch": batch})
    assert answer.json == {"accepted": 4, "refused": []}
    assert shop.count().exposed == {"control": 1, "treatment": 2}
    counter = counter_of(shop.live.events, shop.test, ["signup"])
    counter.update()
    later = datetime.now(UTC) + timedelta(days=1)
    totals = counter.count("signup", now=later, window=None, kind=MetricKind.MEAN).arms
    assert [row.total for row in totals] == [0.0, 20.0]


def test_events_of_a_browser_are_its_cookies(shop: Shop) -> None:
    """Without a name in the event the cookie says who; without a cookie nobody does."""
    browser = shop.browser()
    browser.get("/")
    assert browser.post("/events", {"event": "signup"}).status == 200
    assert shop.converted() == 1
    stranger = shop.browser().post("/events", {"event": "signup"})
    assert stranger.status == 400
    assert "Nobody is named" in stranger.json["refused"][0]["reason"]


def test_a_repeated_message_counts_once(shop: Shop) -> None:
    """Senders retry; the message id tells."""
    shop.browser().post("/events", viewed("ann"))
    for _ in range(3):
        shop.browser().post(
            "/events", {"event": "signup", "unit": "ann", "messageId": "m1", "properties": {"value": 5}}
        )
    counter = counter_of(shop.live.events, shop.test, ["signup"])
    counter.update()
    later = datetime.now(UTC) + timedelta(days=1)
    assert counter.count("signup", now=later, window=None, kind=MetricKind.MEAN).arms[1].total == 5.0


def test_events_of_robots_are_flagged(shop: Shop) -> None:
    """A server may pass on its visitor's user agent; a robot's exposure is reported and not counted."""
    shop.browser().post("/events", viewed("bot", context={"userAgent": "Googlebot/2.1"}))
    assert shop.exposed() == 0
    assert shop.count().robots == 2  # for the test and for the holdout's comparison


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (viewed("a", "purple"), "has no variation 'purple'"),
        (viewed("a", True), "has no variation"),
        (viewed("a", 7), "has no variation 7"),
        ({**viewed("a"), "properties": {"experiment_id": "run/9999"}}, "No experiment"),
        ({"event": "signup", "unit": "x" * 201}, "unit is longer than 200"),
        ({"event": "signup", "unit": 7}, "unit must be a text"),
        ({"event": "", "unit": "a"}, "event must be a text"),
        ({"unit": "a"}, "event must be a text"),
        ({"event": "signup", "unit": "a", "properties": {"value": "5"}}, "value must be a number"),
        ({"event": "signup", "unit": "a", "properties": {"value": True}}, "value must be a number"),
        ({"event": "signup", "unit": "a", "properties": {"value": 1e300}}, "value is larger"),
        ({"event": "signup", "unit": "a", "properties": [1]}, "properties must be an object"),
        ({"event": "signup", "unit": "a", "timestamp": "yesterday"}, "no ISO 8601"),
        ({"event": "signup", "unit": "a", "timestamp": 5}, "no ISO 8601"),
        ({"event": "signup", "unit": "a", "timestamp": "2001-01-01T00:00:00Z"}, "more than 30 days past"),
        ("signup", "must be an object"),
    ],
)
def test_useless_events_are_refused_with_a_reason(shop: Shop, row: object, reason: str) -> None:
    """Each by itself: the good one beside it is taken."""
    answer = shop.browser().post("/events", [row, {"event": "signup", "unit": "good"}])
    assert answer.json["accepted"] == 1
    assert reason in answer.json["refused"][0]["reason"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"null", b'{"batch": 5}', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_events_is_refused(shop: Shop, body: bytes) -> None:
    """Malformed JSON is the sender's fault, 400, and changes nothing."""
    assert shop.browser().post("/events", body).status == 400
    assert events.size(shop.live.events) == 0


def test_too_many_events_are_refused(shop: Shop) -> None:
    """A request has a limit by number."""
    assert shop.browser().post("/events", [{"event": "signup", "unit": "a"}] * 501).status == 400


@pytest.mark.parametrize("path", ["/events", "/convert", "/webhooks/crm"])
@pytest.mark.parametrize("stated", [True, False])
def test_large_bodies_are_refused(open_shop: OpenShop, path: str, stated: bool) -> None:
    """Ten megabytes are refused whether or not the sender says beforehand that they come."""
    shop = open_shop(webhooks=("crm",))
    headers = {} if stated else {"content_length": "not said"}
    answer = shop.browser().post(path, b"x" * 10_000_000, **headers)
    assert answer.status == 413
    assert events.size(shop.live.events) == 0


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_no_body_breaks_the_server(shop: Shop, body: bytes) -> None:
    """Whatever is sent, the answer is a refusal and not a failure."""
    assert shop.browser().post("/events", body).status in (200, 400)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["event", "unit", "properties", "timestamp", "messageId", "value", "context", "batch"]),
            inner,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=JSON)
def test_no_json_breaks_the_server(shop: Shop, body: object) -> None:
    """Neither does any JSON with the right names and the wrong types."""
    assert shop.browser().post("/events", body).status in (200, 400)


def test_the_log_at_fault_asks_the_sender_to_come_back(open_shop: OpenShop) -> None:
    """What was not written is not acknowledged."""
    shop = open_shop(max_log_bytes=10)
    answer = shop.browser().post("/events", {"event": "signup", "unit": "a"})
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")


def test_assigning_only_asks_unless_told(shop: Shop) -> None:
    """The same unit gets the same arm and texts at every question; expose=1 counts it."""
    answers = [shop.browser(agent="python-httpx/1").get("/assign?unit=u7").json for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["counted"] is False
    assert shop.exposed() == 0
    counted = shop.browser(agent="python-httpx/1").get("/assign?unit=u7&expose=1").json
    assert counted == {**answers[0], "counted": True}
    assert shop.count().exposed[counted["arm"]] == 1


def test_assigning_agrees_with_the_page(shop: Shop) -> None:
    """A browser that asks by script gets the arm that its page would have shown."""
    for _ in range(10):
        browser = shop.browser()
        answer = browser.get("/assign?surface=page&expose=1").json
        assert browser.get("/").text.split('"')[1] == answer["slots"]["headline"]
    assert shop.exposed() == 10


def test_a_passed_on_robot_gets_the_control(shop: Shop) -> None:
    """A server that asks for a robot passes its user agent on."""
    for unit in range(10):
        answer = shop.browser().get(f"/assign?unit={unit}&expose=1&ua=Googlebot/2.1").json
        assert (answer["arm"], answer["counted"]) == ("control", False)


def test_unknown_surfaces_are_named(shop: Shop) -> None:
    """A wrong name is an error that says which there are."""
    answer = shop.browser().get("/assign?unit=a&surface=popup")
    assert answer.status == 404
    assert "page" in answer.json["error"]


class Sender:
    """A system that sends signed events."""

    def __init__(self, shop: Shop) -> None:
        self.browser = shop.browser(agent="crm/1.0")
        self.secret = webhook_secret(shop.live.path, "crm").encode()

    def send(self, body: bytes, *, message: str = "m1", age: float = 0.0, name: str = "crm", **changed: str) -> int:
        stamp = str(int(time.time() - age))
        headers: Mapping[str, str] = {
            "webhook_id": message,
            "webhook_timestamp": stamp,
            "webhook_signature": sign_webhook(self.secret, message, stamp, body),
            **changed,
        }
        return self.browser.post(f"/webhooks/{name}", body, **headers).status


BODY = b'{"event": "signup", "unit": "ann"}'


def test_a_genuine_webhook_is_taken_and_its_repetition_changes_nothing(open_shop: OpenShop) -> None:
    """The same id again is acknowledged, so that the sender stops, and leaves no record, after a restart too."""
    shop = open_shop(webhooks=("crm",))
    sender = Sender(shop)
    assert sender.send(BODY) == 200
    size = events.size(shop.live.events)
    assert size == 48
    assert sender.send(BODY) == 200
    restarted = type(shop.site)(shop.live, shop.site._pages, shop.settings)
    sender.browser.app = restarted
    assert sender.send(BODY) == 200
    restarted.writer.close()
    assert events.size(shop.live.events) == size


@pytest.mark.parametrize(
    "wrong",
    [
        {"age": 301.0},
        {"age": -301.0},
        {"webhook_signature": "v1,AAAA"},
        {"webhook_signature": "é"},
        {"webhook_id": "m2"},
        {"webhook_timestamp": "soon"},
        {"webhook_timestamp": "²"},
        {"message": ""},
        {"name": "other"},
    ],
)
def test_a_webhook_that_is_not_genuine_changes_nothing(open_shop: OpenShop, wrong: dict[str, object]) -> None:
    """Old, early, with a foreign signature, id or time, or from nobody we know."""
    shop = open_shop(webhooks=("crm",))
    assert Sender(shop).send(BODY, **wrong) == 401  # type: ignore[arg-type]
    assert events.size(shop.live.events) == 0


def test_a_changed_body_is_not_genuine(open_shop: OpenShop) -> None:
    """The signature covers every byte."""
    shop = open_shop(webhooks=("crm",))
    stamp = str(int(time.time()))
    signature = sign_webhook(webhook_secret(shop.live.path, "crm").encode(), "m1", stamp, BODY)
    answer = shop.browser().post(
        "/webhooks/crm", BODY + b" ", webhook_id="m1", webhook_timestamp=stamp, webhook_signature=signature
    )
    assert answer.status == 401
    assert events.size(shop.live.events) == 0


def test_a_sender_may_sign_with_two_keys(open_shop: OpenShop) -> None:
    """While it changes its key, one of the signatures must fit."""
    shop = open_shop(webhooks=("crm",))
    sender = Sender(shop)
    stamp = str(int(time.time()))
    both = f"v1,AAAA {sign_webhook(sender.secret, 'm1', stamp, BODY)}"
    assert sender.send(BODY, webhook_signature=both) == 200


def test_getting_the_unsubscribe_page_unsubscribes_nobody(shop: Shop) -> None:
    """Scanners follow every link in a mail; only a post, by a person or by one click in the mail program, counts."""
    folder = shop.live.path / "suppression"
    hashed = suppression.address_hash(folder, "Ann@Example.com")
    link = f"/unsubscribe/{suppression.unsubscribe_token(shop.live.secret, hashed)}"
    page = shop.browser().get(link)
    assert '<form method="post">' in page.text
    shop.browser().ask("HEAD", link)
    assert suppression.suppressed(folder) == frozenset()
    answer = shop.browser(agent="GoogleImageProxy").post(link, b"List-Unsubscribe=One-Click")
    assert answer.status == 200
    assert suppression.suppressed(folder) == {suppression.address_hash(folder, " ann@example.COM")}


def test_a_forged_unsubscribe_link_does_nothing(shop: Shop) -> None:
    """Nobody can unsubscribe others by guessing."""
    hashed = suppression.address_hash(shop.live.path / "suppression", "ann@example.com")
    for token in (hashed, f"{hashed}-{'0' * 32}", "", "é"):
        assert shop.browser().post(f"/unsubscribe/{token}").status == 404
    assert suppression.suppressed(shop.live.path / "suppression") == frozenset()


def test_unsubscribing_is_an_event_of_the_guardrail(shop: Shop) -> None:
    """The unit is the address hash, as in the exposures of mails."""
    hashed = suppression.address_hash(shop.live.path / "suppression", "ann@example.com")
    shop.browser().post("/events", viewed(hashed))
    shop.browser().post(f"/unsubscribe/{suppression.unsubscribe_token(shop.live.secret, hashed)}")
    assert shop.converted("unsubscribe") == 1


def test_no_address_is_on_the_suppression_list(shop: Shop) -> None:
    """The list holds salted hashes and nothing that names a person."""
    folder = shop.live.path / "suppression"
    suppression.suppress(folder, suppression.address_hash(folder, "ann@example.com"), "bounce")
    assert "ann" not in (folder / "suppressed.tsv").read_text()


def test_other_origins_are_let_in_by_name_only(open_shop: OpenShop) -> None:
    """A page of a named origin may ask from the browser, any other may not."""
    shop = open_shop(origins=("https://www.example.com",))
    allowed = shop.browser().get("/assign", origin="https://www.example.com")
    assert allowed.headers["access-control-allow-origin"] == "https://www.example.com"
    other = shop.browser().get("/assign", origin="https://evil.example")
    assert "access-control-allow-origin" not in other.headers


def test_the_snippet_is_small(shop: Shop) -> None:
    """At most 2 KB as it is sent, without any build step."""
    answer = shop.browser().get("/snippet.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert 0 < len(answer.body) <= 2048


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"consent": "yes"}, "cookie=value"),
        ({"base_url": "shop.example"}, "no address"),
        ({"webhooks": ("../x",)}, "lower-case"),
        ({"forms": {"signup": "javascript:1"}}, "no address"),
    ],
)
def test_senseless_settings_are_refused(open_shop: OpenShop, settings: dict[str, object], message: str) -> None:
    """Before anything is served."""
    from autoresearch.core import UsageError

    with pytest.raises(UsageError, match=message):
        open_shop(**settings)


@pytest.mark.parametrize(
    "table", [{"origins": [1]}, {"webhooks": [True]}, {"forms": {"signup": 7}}, {"sync": "never"}, {"consent": "yes"}]
)
def test_a_wrong_setting_names_its_file(tmp_path: Path, table: dict[str, object]) -> None:
    """What campaign.toml holds is refused with the file's name, never met while people are served."""
    from autoresearch.adapters.marketing.site.settings import SiteSettings
    from autoresearch.core import UsageError

    with pytest.raises(UsageError, match=r"campaign\.toml: \[site\]"):
        SiteSettings.parse(tmp_path / "campaign.toml", table, goal="signup", holdout=0.05)


def test_settings_are_read_as_documented(tmp_path: Path) -> None:
    """The example in docs/marketing-site.md is what the server understands, to the last key."""
    from autoresearch.adapters.marketing.site.settings import KEYS, SiteSettings

    text = (Path(__file__).parents[4] / "docs" / "marketing-site.md").read_text(encoding="utf-8")
    example = text.partition("```toml\n")[2].partition("```")[0]
    table = tomllib.loads(example)["site"]
    assert set(table) == set(KEYS)
    settings = SiteSettings.parse(tmp_path / "campaign.toml", table, goal="signup", holdout=0.05)
    assert settings.forms == {"signup": "https://www.example.com/register"}
    assert settings.suppression == tmp_path / "../suppression"
