"""Edits are applied exactly, or refused in words that help the next attempt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.core.adapter import Scope
from autoresearch.core.artifact import Artifact
from autoresearch.core.errors import ProposalError
from autoresearch.core.proposers.edits import SearchReplace, WholeFile, apply_edits

SCOPE = Scope(editable=("train.py", "src/**/*.py"), readonly=("prepare.py",))
TRAIN = "LR = 0.02\nDEPTH = 4\n\ndef step():\n    return LR * DEPTH\n"
ARTIFACT = Artifact({"train.py": TRAIN, "src/a.py": "x = 1\nx = 1\n"})


def edited(*edits: SearchReplace | WholeFile, artifact: Artifact = ARTIFACT) -> Artifact:
    blocks = [edit for edit in edits if isinstance(edit, SearchReplace)]
    files = [edit for edit in edits if isinstance(edit, WholeFile)]
    return apply_edits(artifact, blocks, files, SCOPE)


def refusal(*edits: SearchReplace | WholeFile, artifact: Artifact = ARTIFACT) -> str:
    with pytest.raises(ProposalError) as caught:
        edited(*edits, artifact=artifact)
    assert caught.value.cost is None
    return str(caught.value)


def test_one_block() -> None:
    """A block that matches once is replaced and nothing else changes."""
    candidate = edited(SearchReplace("train.py", "LR = 0.02", "LR = 0.03"))
    assert candidate.files == {**ARTIFACT.files, "train.py": TRAIN.replace("0.02", "0.03")}


def test_blocks_look_at_the_original() -> None:
    """The text that one block writes is not found by another, and their order does not matter."""
    blocks = [SearchReplace("train.py", "LR = 0.02", "DEPTH = 9"), SearchReplace("train.py", "DEPTH = 4", "LR = 1")]
    expected = TRAIN.replace("DEPTH = 4", "LR = 1").replace("LR = 0.02", "DEPTH = 9")
    assert edited(*blocks).files["train.py"] == edited(*reversed(blocks)).files["train.py"] == expected


def test_deleting_and_dotted_path() -> None:
    """An empty replacement deletes, and `./` before a path is no other path."""
    assert edited(SearchReplace("./train.py", "DEPTH = 4\n", "")).files["train.py"] == TRAIN.replace("DEPTH = 4\n", "")


def test_new_file() -> None:
    """A whole file inside the scope is added."""
    assert edited(WholeFile("src/deep/b.py", "y = 2\n")).files["src/deep/b.py"] == "y = 2\n"


def test_rewritten_file() -> None:
    """A whole file replaces one that exists."""
    assert edited(WholeFile("train.py", "LR = 1\n")).files["train.py"] == "LR = 1\n"


def test_crlf_is_kept() -> None:
    """A file with \\r\\n throughout matches blocks written with \\n and keeps its line ends."""
    artifact = Artifact({"train.py": "a = 1\r\nb = 2\r\nc = 3\r\n"})
    candidate = edited(SearchReplace("train.py", "a = 1\nb = 2", "a = 2\nb = 3"), artifact=artifact)
    assert candidate.files["train.py"] == "a = 2\r\nb = 3\r\nc = 3\r\n"


def test_two_matches() -> None:
    """A block that matches twice is refused with the lines where it stands."""
    said = refusal(SearchReplace("src/a.py", "x = 1", "x = 2"))
    assert "matches 2 places in src/a.py (lines 1, 2)" in said


def test_overlapping_matches_count() -> None:
    """`aa` stands twice in `aaa`."""
    artifact = Artifact({"train.py": "aaa"})
    assert "2 places" in refusal(SearchReplace("train.py", "aa", "b"), artifact=artifact)


def test_no_match_shows_the_nearest() -> None:
    """A block that matches nowhere is answered with the lines that are most like it."""
    said = refusal(SearchReplace("train.py", "LR = 0.20\nDEPTH = 4", "LR = 1"))
    assert "does not occur" in said
    assert "LR = 0.02\nDEPTH = 4" in said


def test_wrong_indentation_is_named() -> None:
    """Where only white space differs, the refusal says so."""
    assert "Only white space differs" in refusal(SearchReplace("train.py", "def step():\n  return LR * DEPTH", "x"))


def test_nothing_like_it() -> None:
    """Where nothing is like it, no lines are shown."""
    assert "Nothing like it" in refusal(SearchReplace("train.py", "@@@@@@@@@@@@@", "x"))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../train.py",
        "src/../../x.py",
        "",
        ".",
        "C:/train.py",
        "src\\a.py",
        "train.py\n",
        "a\x00.py",
        "\ud800",
    ],
)
def test_path_outside(path: str) -> None:
    """A path that is absolute, climbs out or is no path at all is refused."""
    assert "is no path inside the artifact" in refusal(WholeFile(path, "x"))
    assert "is no path inside the artifact" in refusal(SearchReplace(path, "x", "y"))


@pytest.mark.parametrize("path", ["prepare.py", "other.py", ".git/config", "src/.git/x.py", ".autoresearch/ledger.py"])
def test_path_out_of_scope(path: str) -> None:
    """A file that the scope does not let change is refused with what may change."""
    assert "train.py, src/**/*.py" in refusal(WholeFile(path, "x"))


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ((), "holds no edit"),
        ((SearchReplace("train.py", "LR = 0.02", "LR = 0.02"),), "leave every file as it was"),
        ((WholeFile("train.py", TRAIN),), "leave every file as it was"),
        ((SearchReplace("train.py", "", "x"),), "is empty"),
        ((SearchReplace("src/none.py", "x", "y"),), "does not exist"),
        ((WholeFile("src/b.py", "1"), WholeFile("src/b.py", "2")), "twice"),
        ((WholeFile("train.py", "1"), SearchReplace("train.py", "LR", "x")), "both"),
        ((SearchReplace("train.py", "LR = 0.02\nDEPTH", "x"), SearchReplace("train.py", "DEPTH = 4", "y")), "overlap"),
        ((WholeFile("src/b.py", "a\x00b"),), "control characters"),
        ((WholeFile("src/b.py", "\ud800"),), "broken Unicode"),
        ((WholeFile("src/b.py", "key = '[redacted: API key]'"),), "stands for a secret"),
        ((SearchReplace("train.py", "k = '[redacted: API key]'", "x"),), "stands for a secret"),
        ((WholeFile("src/a.py/b.py", "x"),), "needs a folder where src/a.py is a file"),
        ((WholeFile(f"src/{'n' * 300}.py", "x"),), "more than 255 bytes"),
    ],
)
def test_refused(edits: tuple[SearchReplace | WholeFile, ...], said: str) -> None:
    """Each of these faults is named."""
    assert said in refusal(*edits)


@settings(deadline=None)  # the machine may be busy
@given(st.text(), st.text(min_size=1), st.text())
def test_any_single_block(text: str, search: str, replace: str) -> None:
    """Whatever a block says, it either does exactly what it says or is refused."""
    artifact = Artifact({"train.py": text.encode("utf-8", "ignore").decode()})
    before = artifact.files["train.py"]
    try:
        after = edited(SearchReplace("train.py", search, replace), artifact=artifact).files["train.py"]
    except ProposalError:
        return
    assert before.count(search) == 1
    assert after == before.replace(search, replace)


@settings(deadline=None)  # the machine may be busy
@given(st.data())
def test_a_real_line_can_be_replaced(data: st.DataObject) -> None:
    """A line that stands once in the file is always found."""
    lines = data.draw(st.lists(st.from_regex(r"[a-z]{3,9} = [0-9]{1,4}", fullmatch=True), min_size=1, unique=True))
    line = data.draw(st.sampled_from(lines))
    text = "".join(f"<{one}>\n" for one in lines)
    candidate = edited(SearchReplace("train.py", f"<{line}>\n", "gone\n"), artifact=Artifact({"train.py": text}))
    assert candidate.files["train.py"] == text.replace(f"<{line}>\n", "gone\n")
