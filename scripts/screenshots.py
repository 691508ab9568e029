"""The pictures of report and dashboard in the README: `python -m scripts.screenshots`, with Chromium and Playwright.

Runs the README's own example, so that the pictures show what a reader gets: once to its end and confirmed for the
report, and once more for the dashboard, which is photographed while the run goes on.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"

FILE_IN_README = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)

RUN = """
import autoresearch, sys
from tour_adapter import TourAdapter

place, count, confirm = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "confirm"
autoresearch.run(TourAdapter(), workspace=place, proposer="search", experiments=count, confirm=confirm)
"""

ENOUGH = "#p24"
"""What the dashboard's picture waits for: the row of experiment 24. The run goes on behind it."""

WIDTH, SCALE = 1000, 1.1


def main() -> None:
    """Write report.png, report-dark.png, dashboard.png and dashboard-dark.png."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("Chromium takes the pictures and is not installed: apt install chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        place = Path(name)
        lay_out(place)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        finished(place)
        photograph(browser, (place / "report.html").as_uri(), "report", height=815)
        with going_on(place) as address:
            photograph(browser, address, "dashboard", height=900, wait_for=ENOUGH)
        browser.close()


def lay_out(place: Path) -> None:
    """Write the files that the README shows."""
    for path, text in FILE_IN_README.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")
    shutil.copytree(place / "tour", place / "tonight")
    (place / "run.py").write_text(RUN, encoding="utf-8")


def finished(place: Path) -> None:
    """Run sixty experiments, confirm them, and write the report."""
    subprocess.run([sys.executable, "run.py", "tour", "60", "confirm"], cwd=place, check=True)
    report = [sys.executable, "-m", "autoresearch", "report", "-w", "tour", "-o", "report.html"]
    subprocess.run(report, cwd=place, check=True)


@contextmanager
def going_on(place: Path) -> Iterator[str]:
    """Begin a run and a dashboard; yield the address of the run's page."""
    dashboard = [sys.executable, "-m", "autoresearch", "dashboard", "-w", "tonight", "--port", "0", "--no-open"]
    run = subprocess.Popen([sys.executable, "run.py", "tonight", "1000", "no"], cwd=place)
    while not (place / "tonight" / ".autoresearch" / "ledger.db").exists():
        time.sleep(0.1)  # a dashboard of no workspace would be refused
    served = subprocess.Popen(dashboard, cwd=place, stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None, "it was asked for"
        address = next(found[0] for line in served.stdout if (found := re.findall(r"http://\S+", line)))
        yield f"{address.rstrip('/')}/w/tonight"
    finally:
        for process in (served, run):
            process.terminate()
            process.wait()


def photograph(browser: Browser, address: str, name: str, *, height: int, wait_for: str | None = None) -> None:
    """Write a picture of a page for light and for dark surroundings."""
    page = browser.new_page(viewport={"width": WIDTH, "height": height}, device_scale_factor=SCALE)
    page.goto(address)
    if wait_for is not None:
        page.wait_for_selector(wait_for, timeout=60_000)
    for scheme, suffix in (("light", ""), ("dark", "-dark")):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        time.sleep(0.5)  # colours fade over
        page.screenshot(path=PICTURES / f"{name}{suffix}.png")
    page.close()


if __name__ == "__main__":
    main()
