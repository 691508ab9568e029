"""What keeps others out: host, token, cookie, form token, origin, and pages in which nothing foreign runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autoresearch.core.ledger import ControlMessage
from autoresearch.web.dashboard.guard import Guard, named_host
from tests.web.dashboard.conftest import Bench, client_of, run_page, settled
from tests.web.test_report import HOSTILE, Elements

TOKEN = "correct-horse-battery-staple"
OUTSIDE = Guard("192.0.2.7", 8470, TOKEN)


def form_token(page: str) -> str:
    found = re.search(r'"X-CSRF-Token": "([0-9a-f]+)"', page)
    assert found is not None
    return found[1]


def messages(bench: Bench) -> list[ControlMessage]:
    return bench.ledger.pending("r1")


@pytest.mark.parametrize(
    ("header", "host"),
    [("localhost:1", "localhost"), ("[::1]:80", "::1"), ("EVIL.example:8470", "evil.example"), ("", ""), ("[", "")],
)
def test_a_host_header_is_read_as_a_browser_means_it(header: str, host: str) -> None:
    """The port goes, brackets go, case goes; nonsense is no host."""
    assert named_host(header) == host


def test_another_name_is_turned_away(bench: Bench) -> None:
    """A site that resolves its own name to this machine gets nothing, whatever it asks for."""
    with client_of(bench.root, host="rebound.example:8470") as client:
        for path in ("/", "/w/bench", "/static/live.js", "/events"):
            answer = client.get(path)
            assert answer.status_code == 421 and "bench" not in answer.text
    with client_of(bench.root, host="localhost:9999") as client:
        assert client.get("/").status_code == 200, "a tunnel may end at another port"


def test_beyond_loopback_nothing_is_shown_without_the_token(bench: Bench) -> None:
    """No page, no stream, no file and no button without it; a wrong one is none."""
    with client_of(bench.root, guard=OUTSIDE, host="192.0.2.7:8470") as client:
        for path in ("/", "/w/bench/r1", "/w/bench/r1/events", "/static/live.js", "/?token=", f"/?token={TOKEN}x"):
            answer = client.get(path)
            assert answer.status_code == 401 and "bench" not in answer.text and not client.cookies
        assert client.post("/w/bench/r1/steer", data={"command": "stop"}).status_code == 401


def test_the_token_opens_once_and_the_cookie_after_it(bench: Bench) -> None:
    """The address with the token leads to one without it, by a cookie that scripts and other sites cannot use."""
    with client_of(bench.root, guard=OUTSIDE, host="192.0.2.7:8470") as client:
        answer = client.get(f"/w/bench?x=1&token={TOKEN}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/w/bench?x=1")
        kind = answer.headers["set-cookie"].lower()
        assert "httponly" in kind and "samesite=strict" in kind and TOKEN not in kind
        assert "bench" in run_page(client)
        client.cookies.set("autoresearch-8470", "made.up")
        assert client.get("/w/bench", headers={"cookie": "autoresearch-8470=made.up"}).status_code == 401


def test_a_token_leads_to_no_other_site(bench: Bench) -> None:
    """An address that begins with two slashes is a path all the same."""
    with client_of(bench.root, guard=OUTSIDE, host="192.0.2.7:8470") as client:
        answer = client.get(f"http://192.0.2.7:8470//evil.example/?token={TOKEN}", follow_redirects=False)
        assert answer.headers["location"].startswith("/evil.example")


def test_cookies_outlive_a_restart_with_the_same_token_only() -> None:
    """The cookie of another token, or of another start without one, is not known."""
    cookie = OUTSIDE.new_cookie()
    assert Guard("192.0.2.7", 8470, TOKEN).knows_cookie(cookie)
    assert not Guard("192.0.2.7", 8470, TOKEN + "!").knows_cookie(cookie)
    here = Guard("127.0.0.1", 8470)
    assert here.knows_cookie(here.new_cookie()) and not Guard("127.0.0.1", 8470).knows_cookie(here.new_cookie())


def test_a_button_needs_the_token_of_a_page_of_ours(bench: Bench) -> None:
    """A form without it, with another reader's, or without a cookie leaves no message."""
    bench.work()
    with client_of(bench.root) as client:
        token = form_token(run_page(client))
        with client_of(bench.root) as other:
            foreign = form_token(run_page(other))
        for given in ("", "0" * 64, foreign):
            answer = client.post("/w/bench/r1/steer", data={"command": "stop", "csrf": given})
            assert answer.status_code == 403 and "Reload" in answer.text
        client.cookies.clear()
        assert client.post("/w/bench/r1/steer", data={"command": "stop", "csrf": token}).status_code == 403
    assert messages(bench) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_button_pressed_from_another_site_does_nothing(bench: Bench, headers: dict[str, str]) -> None:
    """Even with the right token and cookie the browser's word that the page is another one counts."""
    bench.work()
    with client_of(bench.root) as client:
        token = form_token(run_page(client))
        answer = client.post("/w/bench/r1/steer", data={"command": "stop", "csrf": token}, headers=headers)
        assert answer.status_code == 403
    assert messages(bench) == []


def test_a_form_without_end_is_cut_off(bench: Bench) -> None:
    """A body larger than any form of ours is refused before it is held."""
    with client_of(bench.root) as client:
        run_page(client)
        assert client.post("/w/bench/r1/steer", data={"argument": "x" * 30_000}).status_code == 413


def test_every_answer_forbids_what_no_page_needs(bench: Bench) -> None:
    """Pages, fragments, files, refusals: no script from elsewhere, no frame, no sniffing, nothing kept."""
    with client_of(bench.root) as client:
        for path in ("/", "/w/bench/r1", "/w/bench/r1/table", "/static/style.css", "/nowhere", "/w/none"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy and headers["x-content-type-options"] == "nosniff"
        assert client.get("/w/bench/r1").headers["cache-control"] == "no-store"


def test_nothing_of_a_model_or_a_candidate_runs_or_misleads(tmp_path: Path) -> None:
    """Script tags, ANSI codes, direction marks, null bytes and lines without end are text on every page."""
    bench = Bench(tmp_path / "bench", experiments=1)
    evil = f"{HOSTILE}\x00 @csrf@ {{{{ 7*7 }}}}"
    bench.end(bench.begin(2, evil, category=evil, diff=f"--- a/x\n+++ b/x\n+{evil}\n"), "crashed", reason=evil)
    bench.end(bench.begin(3, evil, category=evil), "kept", reason=evil)
    row = bench.begin(4, evil, category=evil)
    bench.work()
    folder = bench.layout.experiment("r1", row.number)
    folder.mkdir(parents=True)
    (folder / "run.log").write_bytes(b"\xff\x00" + evil.encode() + b"\n" + b"y" * 3_000_000 + b"\n\x1b]0;x\x07end\n")
    with client_of(bench.root) as client:
        pages = [settled(client, "What was kept")]
        token = form_token(pages[0])
        found = ("/", "/w/bench/r1/experiment/2", "/w/bench/r1/experiment/4", "/w/bench/r1/compare?pick=2&pick=3")
        pages += [client.get(path).text for path in (*found, "/w/bench/r1/table?text=%3Cscript%3E")]
        pages.append(client.get("/w/bench/r1", params={"said": evil, "text": evil, "category": evil}).text)
    bench.close()
    assert "49" not in re.findall(r"\b49\b", pages[1])
    for page in pages:
        names = {name for name, _ in Elements(page).found}
        assert "b" not in names
        sources = [attributes.get("src") for name, attributes in Elements(page).found if name == "script"]
        assert all(source and source.startswith("/static/") for source in sources)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
        for _, attributes in Elements(page).found:
            assert not any(name.startswith("on") for name in attributes)
            assert not (attributes.get("href") or "").startswith("javascript:")
    assert "end" in pages[0] and len(pages[0]) < 200_000
    hidden = [a for name, a in Elements(pages[0]).found if name == "input" and a.get("name") == "csrf"]
    assert hidden and all(attributes.get("value") == token for attributes in hidden)
