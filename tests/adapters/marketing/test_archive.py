"""Reading archives of past tests, and what is known of the real one."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.archive import (
    ArchiveArm,
    ArchiveTest,
    headline_tests,
    read_archive,
    write_archive,
)
from autoresearch.core import UsageError

HEADER = "test_id,test_week,eyecatcher_id,headline,impressions,clicks\n"
SMALL = HEADER + (
    "t1,201303,cat,One,1000,10\nt1,201303,cat,Two,1010,20\nt1,201303,dog,Two,990,30\nt1,201303,cat,Two,5,1\n"
    "t2,201330,cat,Other,500,5\nt2,201330,cat,More,900,9\nlone,201303,cat,Alone,10,1\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "past.csv"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def upworthy() -> tuple[ArchiveTest, ...]:
    """The exploratory set of the Upworthy Research Archive, where the person has it."""
    path = os.environ.get("AUTORESEARCH_UPWORTHY")
    if not path:
        pytest.skip("AUTORESEARCH_UPWORTHY does not name a file with the Upworthy Research Archive")
    return read_archive(Path(path))


def test_tests_have_their_arms(file: Path) -> None:
    """Rows of one test belong together; a test of one arm is none."""
    assert [(test.id, len(test.arms), test.suspect) for test in read_archive(file)] == [
        ("t1", 4, False),
        ("t2", 2, True),
    ]


def test_headline_arms_share_a_picture(file: Path) -> None:
    """Arms with another picture are left out, and equal ones are added up."""
    first = read_archive(file)[0]
    assert first.headline_arms() == (ArchiveArm("One", "cat", 1000, 10), ArchiveArm("Two", "cat", 1015, 21))


def test_only_sound_tests_of_headlines_are_taken(file: Path) -> None:
    """Suspect weeks and broken splits are left out."""
    tests = read_archive(file)
    assert [test.id for test in headline_tests(tests)] == ["t1"]
    broken = ArchiveTest("t3", 201303, (ArchiveArm("a", "", 1000, 1), ArchiveArm("b", "", 1300, 1)))
    assert broken.split_fails
    assert headline_tests([broken]) == ()


def test_archive_columns_of_the_original_are_known(tmp_path: Path) -> None:
    """The original calls its tests clickability_test_id, has further columns, and writes 3118.0; gzip is fine."""
    path = tmp_path / "original.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as packed:
        packed.write(
            ",created_at,test_week,clickability_test_id,eyecatcher_id,headline,impressions,clicks\n"
            '0,2014-11-20,201446,x,e,"It\'s, well, fine",3118.0,8\n1,2014-11-20,201446,x,,Second,4587,130\n'
        )
    (only,) = read_archive(path)
    assert only.arms == (ArchiveArm("It's, well, fine", "e", 3118, 8), ArchiveArm("Second", "", 4587, 130))


def test_what_is_written_is_read_back(file: Path, tmp_path: Path) -> None:
    """Tests survive being written, and the same tests make the same bytes."""
    tests, one, two = read_archive(file), tmp_path / "new" / "one.csv.gz", tmp_path / "two.csv.gz"
    write_archive(tests, one)
    write_archive(tests, two)
    assert read_archive(one) == tests
    assert one.read_bytes() == two.read_bytes()
    assert [path.name for path in one.parent.iterdir()] == ["one.csv.gz"]


def test_headlines_are_as_readers_saw_them(tmp_path: Path) -> None:
    """Tags, zero-width characters and line breaks, which some rows of the archive have, were never read by anybody."""
    path = tmp_path / "past.csv"
    path.write_text(f'{HEADER}x,201303,e,"A <b>bold</b>\n  claim:\u200b 2 < 3",10,1\nx,201303,e,Other,10,1\n', "utf-8")
    assert read_archive(path)[0].arms[0].headline == "A bold claim: 2 < 3"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("t9,201303,cat,One,100,101", "101 clicks of 100 impressions"),
        ("t9,201303,cat,One,-1,0", "impressions is '-1'"),
        ("t9,201303,cat,One,ten,0", "could not convert"),
        ("t9,201303,cat,One,10", "clicks is ''"),
        (",201303,cat,One,10,1", "the test's name is empty"),
        ("t9,,cat,One,10,1", "test_week is ''"),
    ],
)
def test_rows_without_sense_are_named_by_line(file: Path, row: str, fault: str) -> None:
    """A bad row is named by its line, and nothing is taken."""
    file.write_text(f"{SMALL}{row}\n")
    with pytest.raises(UsageError) as caught:
        read_archive(file)
    assert f"line 9: {fault}" in str(caught.value)


def test_what_is_no_archive(tmp_path: Path) -> None:
    """A missing file, other columns and no text are told apart."""
    other = tmp_path / "other.csv"
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_archive(other)
    other.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"lacks the columns test_id or clickability_test_id, test_week"):
        read_archive(other)
    other.write_bytes(gzip.compress(SMALL.encode())[:60])
    with pytest.raises(UsageError, match="cannot be read as CSV"):
        read_archive(other)


def test_known_counts_of_upworthy(upworthy: tuple[ArchiveTest, ...]) -> None:
    """4,873 tests; 736 of 1,102 of the suspect weeks fail the equal split at p < 0.001, 17 of the 3,771 others."""
    assert len(upworthy) == 4873
    suspect = [test for test in upworthy if test.suspect]
    others = [test for test in upworthy if not test.suspect]
    assert (sum(test.split_fails for test in suspect), len(suspect)) == (736, 1102)
    assert (sum(test.split_fails for test in others), len(others)) == (17, 3771)
