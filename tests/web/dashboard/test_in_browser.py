"""The dashboard in a real browser: news without a reload, filters, buttons, and nothing that a person stumbles over."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import invoke
from tests.web.dashboard.conftest import Bench
from tests.web.dashboard.serving import serving
from tests.web.dashboard.test_pages import waiting_for

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed (Debian package chromium)")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (pip install playwright)")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def _is_ours(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "file:", "data:"))


@pytest.fixture(params=[390, 1440])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page at phone width and on a screen; a complaint, a failed answer or a request elsewhere fails the test."""
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    opened.set_default_timeout(30_000)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda asked: complaints.extend([] if _is_ours(asked.url) else [f"elsewhere: {asked.url}"]))
    opened.on("response", lambda got: complaints.extend([f"{got.status} of {got.url}"] if got.status >= 400 else []))
    yield opened
    opened.close()
    assert complaints == []


def test_an_evening_at_the_dashboard(bench: Bench, page: Page) -> None:
    """Watch an experiment end, filter, unfold a diff that stays unfolded, approve the next one, stop, send a note."""
    bench.work()
    row = bench.begin(4, "Halve the batch")
    with serving(bench.root) as dashboard:
        page.goto(f"{dashboard.url}w/bench")
        page.wait_for_selector("#link.on")
        page.wait_for_selector("text=Halve the batch")
        page.click("#d1 summary")
        page.check("#p2")

        bench.end(row, "kept")
        page.wait_for_selector("#p4")
        page.wait_for_selector("#e4")
        assert page.is_visible("#d1 pre") and page.is_checked("#p2"), "what a reader did outlives the news"

        page.select_option("#f-outcome", "kept")
        page.wait_for_selector("text=2 of 5 experiments")
        page.fill("#f-text", "halve")
        page.wait_for_selector("text=1 of 5 experiments")
        assert page.evaluate("document.activeElement.id") == "f-text"
        page.evaluate("document.activeElement.blur()")

        bench.begin(5, "Widen it")
        waiting_for(bench, 5)
        page.click("text=Approve 5")
        page.wait_for_selector("#said >> text=to approve experiment 5")
        page.click("button >> text=Stop")
        page.wait_for_selector("#said >> text=to stop")
        page.fill("#note", "try smaller batches")
        page.press("#note", "Enter")
        page.wait_for_selector("#said >> text=Noted for run r1")
        assert page.input_value("#note") == ""
        assert page.inner_text("#table caption").startswith("1 of 5"), "the filter outlives the news, too"
        sent = [(one.command, one.argument) for one in bench.ledger.pending("r1")]
        assert sent == [("approve", "5"), ("stop", ""), ("note", "try smaller batches")]


def test_every_page_can_be_used_by_everybody(bench: Bench, page: Page) -> None:
    """axe finds nothing serious on any page, light or dark, and nothing sticks out to the right."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    bench.work()
    bench.begin(4, "Halve the batch")
    waiting_for(bench, 4)
    with serving(bench.root) as dashboard:
        for path in ("", "w/bench", "w/bench/r1/experiment/1", "w/bench/r1/compare?pick=1&pick=2"):
            page.goto(f"{dashboard.url}{path}")
            if path == "w/bench":
                page.wait_for_selector("text=What it cost")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                faults = axe.Axe().run(page).response["violations"]
                serious = [one["id"] for one in faults if one["impact"] in ("serious", "critical")]
                assert serious == [], (path, scheme, [one["nodes"][0]["html"] for one in faults])
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path


def test_a_report_can_be_used_by_everybody(bench: Bench, page: Page, tmp_path: Path) -> None:
    """axe finds nothing serious in the file of a report, light or dark."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    bench.work()
    file = tmp_path / "report.html"
    assert invoke("report", "-w", bench.root, "-o", file).exit_code == 0
    page.goto(file.as_uri())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        faults = axe.Axe().run(page).response["violations"]
        assert [one["id"] for one in faults if one["impact"] in ("serious", "critical")] == [], scheme


def test_what_a_model_wrote_never_runs(bench: Bench, page: Page) -> None:
    """A hypothesis full of markup is shown as text, at first and when it arrives on an open page."""
    evil = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script></td>{0} \u202e"
    bench.work()
    bench.end(bench.begin(4, evil.format("early")), "kept")
    with serving(bench.root) as dashboard:
        page.goto(f"{dashboard.url}w/bench")
        page.wait_for_selector("#link.on")
        bench.begin(5, evil.format("late"))
        page.wait_for_selector("text=late")
        assert page.locator("text=<script>").count() > 1, "it is there to be read"
        assert page.locator("img").count() == 0
        page.goto(f"{dashboard.url}w/bench/r1/experiment/4")
        assert page.locator("img").count() == 0 and "taken" not in page.title().partition("<")[0]


def test_without_scripts_it_can_be_read_and_steered(bench: Bench, browser: Browser) -> None:
    """Everything that is known stands in the page itself, the filter is a form, and so is every button."""
    bench.work()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    with serving(bench.root) as dashboard:
        for _ in range(100):
            page.goto(f"{dashboard.url}w/bench")
            if page.is_visible("text=What it cost"):
                break
        page.select_option("#f-outcome", "kept")
        page.click("button >> text=Filter")
        assert page.inner_text("#table caption").startswith("1 of 4")
        page.click("button >> text=Pause")
        assert "Told run r1 to pause" in page.inner_text("#said")
    context.close()
    assert [one.command for one in bench.ledger.pending("r1")] == ["pause"]
