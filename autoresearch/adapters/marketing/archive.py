"""An archive of past tests: many texts for one story, each with its impressions and clicks.

Made for the Upworthy Research Archive (J. N. Matias, K. Munger, M. A. Aubin Le Quéré, C. Ebersole, "The Upworthy
Research Archive, a time series of 32,487 experiments in U.S. media", Scientific Data 8, 195 (2021), doi
10.1038/s41597-021-00934-7); any file with the same columns will do. None of it ships with this package: `autoresearch
marketing import FILE` takes it from a file that you have into the campaign's state.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from autoresearch.adapters.marketing.fixed import split_p
from autoresearch.core import UsageError

ARCHIVE_NAME = "archive.csv.gz"
SUSPECT_WEEKS = (201325, 201402)
"""First and last week (YYYYWW) in which the archive's authors found broken splits and advise against causal use."""
SPLIT_P = 0.001

_ALIASES = {
    "test_id": ("test_id", "clickability_test_id"),
    "test_week": ("test_week",),
    "image": ("image", "eyecatcher_id"),
    "headline": ("headline",),
    "impressions": ("impressions",),
    "clicks": ("clicks",),
}
_FAULTS_SHOWN = 5
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


@dataclass(frozen=True, slots=True)
class ArchiveArm:
    """One variant of a past test.

    Attributes:
        headline: Its text.
        image: Name of the picture beside it; empty where there was none.
        n: Times shown.
        clicks: Times clicked.
    """

    headline: str
    image: str
    n: int
    clicks: int


@dataclass(frozen=True, slots=True)
class ArchiveTest:
    """One past test.

    Attributes:
        id: Its name in the archive.
        week: When it ran, YYYYWW.
        arms: Its variants in the order of the archive.
    """

    id: str
    week: int
    arms: tuple[ArchiveArm, ...]

    @property
    def suspect(self) -> bool:
        """Whether it ran in the weeks in which splits were broken."""
        return SUSPECT_WEEKS[0] <= self.week <= SUSPECT_WEEKS[1]

    @property
    def split_fails(self) -> bool:
        """Whether its arms' impressions differ from equal shares at p < 0.001."""
        return split_p([arm.n for arm in self.arms]) < SPLIT_P

    def headline_arms(self) -> tuple[ArchiveArm, ...]:
        """Return arms that differ in their headline only: those with the picture that has most headlines.

        Arms alike in both differed in something that the archive's readers did not see beside the headline; they are
        added up. Fewer than two where the test varied pictures only.
        """
        headlines = Counter(image for _, image in {(arm.headline, arm.image) for arm in self.arms})
        image = max(headlines, key=lambda name: (headlines[name], name))
        merged: dict[str, ArchiveArm] = {}
        for arm in self.arms:
            if arm.image == image:
                before = merged.get(arm.headline, ArchiveArm(arm.headline, image, 0, 0))
                merged[arm.headline] = ArchiveArm(arm.headline, image, before.n + arm.n, before.clicks + arm.clicks)
        return tuple(merged.values())


def read_archive(path: Path) -> tuple[ArchiveTest, ...]:
    """Return the tests of an archive with two arms or more that were shown, by week and then in the file's order.

    Args:
        path: CSV with a header line, plain or gzip-compressed, with the columns test_id (or clickability_test_id),
            test_week, eyecatcher_id, headline, impressions and clicks.

    Raises:
        UsageError: If the file is missing, lacks columns, or has rows that make no sense; names them by line.
    """
    tests: dict[str, tuple[int, list[ArchiveArm]]] = {}
    faults: list[str] = []
    try:
        with _opened(path) as file:
            reader = csv.DictReader(file)
            columns = _columns(reader.fieldnames or (), path)
            for row in reader:
                try:
                    name, week, arm = _arm(row, columns)
                except ValueError as fault:
                    faults.append(f"  line {reader.line_num}: {fault}")
                    continue
                tests.setdefault(name, (week, []))[1].append(arm)
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        raise UsageError(
            f"{path} cannot be read as CSV: {error}.\nSave it as UTF-8, plain or gzip-compressed."
        ) from error
    if faults:
        first = "\n".join(faults[:_FAULTS_SHOWN])
        raise UsageError(f"{path} has {len(faults)} rows that make no sense:\n{first}\nCorrect them and try again.")
    found = (ArchiveTest(name, week, tuple(arms)) for name, (week, arms) in tests.items())
    shown = (test for test in found if sum(arm.n > 0 for arm in test.arms) > 1)
    return tuple(sorted(shown, key=lambda test: test.week))


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.\n"
            "Name a file with past tests; a replay takes one that was imported: autoresearch marketing import FILE"
        ) from error
    opener = gzip.open if packed else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield file


def _columns(header: Iterable[str], path: Path) -> dict[str, str]:
    """Return our name of each column -> the file's."""
    there = set(header)
    found = {ours: next((name for name in names if name in there), None) for ours, names in _ALIASES.items()}
    missing = [" or ".join(_ALIASES[ours]) for ours, name in found.items() if name is None]
    if missing:
        raise UsageError(
            f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(sorted(there)) or 'none'}.\n"
            "Past tests are read from the Upworthy Research Archive's CSV, or one like it."
        )
    return {ours: str(name) for ours, name in found.items()}


def _arm(row: Mapping[str, str | None], columns: Mapping[str, str]) -> tuple[str, int, ArchiveArm]:
    """Return the test, its week and one arm. Raises ValueError with a few words where a cell makes no sense."""

    def cell(name: str) -> str:
        return (row[columns[name]] or "").strip()

    def count(name: str) -> int:
        # The archive was written by a program that turned some whole numbers into 3118.0.
        number = float(cell(name) or "nan")
        if number != number or number < 0 or number != int(number):
            raise ValueError(f"{name} is {cell(name)!r}, and must be a whole number, 0 or more")
        return int(number)

    if not cell("test_id"):
        raise ValueError("the test's name is empty")
    n, clicks = count("impressions"), count("clicks")
    if clicks > n:
        raise ValueError(f"{clicks} clicks of {n} impressions")
    return cell("test_id"), count("test_week"), ArchiveArm(_as_read(cell("headline")), cell("image"), n, clicks)


def _as_read(text: str) -> str:
    """Return a text as its readers saw it: without tags, invisible characters and line breaks."""
    visible = "".join(sign for sign in _TAG.sub("", text) if unicodedata.category(sign) != "Cf")
    return " ".join(visible.split())


def write_archive(tests: Iterable[ArchiveTest], path: Path) -> None:
    """Write tests so that `read_archive` gets them back; by rename, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    # mtime 0: the same tests make the same file.
    with partial.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        rows = [["test_id", "test_week", "image", "headline", "impressions", "clicks"]]
        rows += [[t.id, str(t.week), a.image, a.headline, str(a.n), str(a.clicks)] for t in tests for a in t.arms]
        packed.write(_as_csv(rows).encode())
    partial.replace(path)


def _as_csv(rows: Iterable[Iterable[str]]) -> str:
    import io

    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def headline_tests(tests: Iterable[ArchiveTest]) -> tuple[ArchiveTest, ...]:
    """Return tests that can be believed: sound weeks and split, and arms that differ in the headline only."""
    sound = (ArchiveTest(test.id, test.week, test.headline_arms()) for test in tests if not test.suspect)
    return tuple(test for test in sound if len(test.arms) > 1 and not test.split_fails)
