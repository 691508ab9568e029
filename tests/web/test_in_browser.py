"""The report as a browser shows it: nothing asked for, nothing complained about, nothing that sticks out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.core.adapter import Estimate, ReportSection
from autoresearch.web.report import as_html
from tests.adapters.marketing.site.chromium import MISSING, PROGRAM, Chromium, chromium
from tests.web.test_report import page

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

SECTION = ReportSection("Totals", "Together.", (Estimate("as tested", 0.3, 0.1, 0.5, "optimistic"),), "<svg/>")

CONTRAST = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => colour.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const worst = {};
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || ['TITLE', 'DESC'].includes(element.tagName.toUpperCase())) continue;
    const style = getComputedStyle(element);
    const front = parts(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = element.tagName + '.' + (element.getAttribute('class') || '');
    worst[name] = Math.min(worst[name] ?? 99, ratio);
  }
  return worst;
})()
"""

STICKS_OUT = """
[...document.querySelectorAll('body *')].filter(element => {
  if (element.closest('.scroll, pre') && !element.matches('.scroll, pre')) return false;
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 0.5;
}).map(element => element.outerHTML.slice(0, 120))
"""

# What a screen reader would stumble over; the rules are those of WCAG 2.1 that a page like this can break.
FAULTS = """
(() => {
  const faults = [];
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  if (new Set(ids).size !== ids.length) faults.push('an id is given twice');
  for (const image of document.querySelectorAll('img:not([alt]), svg[role=img]:not([aria-label])'))
    faults.push('no words for ' + image.outerHTML.slice(0, 80));
  for (const link of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(link.getAttribute('href').slice(1))) faults.push('no target of ' + link.outerHTML);
  for (const table of document.querySelectorAll('table')) {
    if (!table.querySelector('thead th[scope=col]')) faults.push('a table without heads');
    if ([...table.querySelectorAll('tbody tr')].some(row => !row.querySelector('th[scope=row]'))) faults.push('a row');
  }
  for (const box of document.querySelectorAll('.scroll, pre'))
    if (box.tabIndex < 0 || !(box.getAttribute('aria-label') || box.getAttribute('aria-labelledby')))
      faults.push('cannot be scrolled by keyboard: ' + box.outerHTML.slice(0, 80));
  const levels = [...document.querySelectorAll('h1, h2, h3')].map(head => Number(head.tagName[1]));
  levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) faults.push('a heading skips a level'); });
  if (levels.filter(level => level === 1).length !== 1) faults.push('one h1');
  if (!document.documentElement.lang || !document.title) faults.push('no language or title');
  return faults;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        for domain in ("Runtime", "Log", "Network"):
            started.call(f"{domain}.enable")
        yield started


@pytest.fixture(params=["measured", "tested", "thousand"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a report in a file, of one of the three runs."""
    file = tmp_path / "report.html"
    file.write_text(as_html(page(request.getfixturevalue(request.param), sections=(SECTION,))), encoding="utf-8")
    return file.as_uri()


def at_width(browser: Chromium, width: int, scheme: str = "light") -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def test_it_opens_without_a_request_or_a_complaint(browser: Chromium, url: str) -> None:
    """The browser asks for the file alone, logs nothing, and finds no script."""
    at_width(browser, 1440)
    browser.events.clear()
    browser.visit(url)
    assert browser.run("document.scripts.length") == 0
    asked = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert [address for address in asked if not address.startswith("data:")] == [url]
    told = [e for e in browser.events if e.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled")]
    assert told == []


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_sticks_out(browser: Chromium, url: str, width: int) -> None:
    """At phone width and on a screen nothing reaches beyond the right edge; the picture is the one for that width."""
    at_width(browser, width)
    browser.visit(url)
    assert browser.run(STICKS_OUT) == []
    assert browser.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    shown = browser.run("getComputedStyle(document.querySelector('.narrow')).display")
    assert (shown == "block") == (width == 360)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser: Chromium, url: str, scheme: str) -> None:
    """Light or dark, each text has a contrast of 4.5 or more against what lies behind it."""
    at_width(browser, 1440, scheme)
    browser.visit(url)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    worst = browser.run(CONTRAST)
    assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {} and len(worst) > 10


def test_a_screen_reader_and_a_keyboard_get_through(browser: Chromium, url: str) -> None:
    """Pictures have words, tables have heads, what scrolls can be focused, links have targets, headings follow."""
    at_width(browser, 1440)
    browser.visit(url)
    assert browser.run(FAULTS) == []


def test_on_paper_it_is_dark_on_white_and_complete(browser: Chromium, url: str) -> None:
    """Print is white whatever the scheme, and shows what is folded away on a screen."""
    at_width(browser, 1000, "dark")
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    browser.visit(url)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    folded = "[...document.querySelectorAll('details')].filter(one => !one.lastElementChild.checkVisibility()).length"
    assert browser.run(folded) == 0
    browser.call("Emulation.setEmulatedMedia", media="")
