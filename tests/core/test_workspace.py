"""Settings from autoresearch.toml, and which folder is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.core import UsageError
from autoresearch.core.workspace import Layout, config_text, find_workspace, read_settings


def settings(tmp_path: Path, text: str):  # type: ignore[no-untyped-def]
    (tmp_path / "autoresearch.toml").write_text(text, encoding="utf-8")
    return read_settings(Layout(tmp_path))


def test_every_table_is_read(tmp_path: Path) -> None:
    """The file says everything that the command line could."""
    found = settings(
        tmp_path,
        '[run]\nadapter = "ml"\nseed = 3\n[policy]\nname = "bayes"\nkeep_at = 0.9\n'
        '[budget]\nexperiments = 5\nhours = 1.5\n[adapter]\npreset = "cpu"\nfast = true\n',
    )
    assert (found.adapter, found.seed, found.policy, found.policy_parameters) == ("ml", 3, "bayes", {"keep_at": 0.9})
    assert found.limits.experiments == 5 and found.limits.hours == 1.5
    assert found.options == {"preset": "cpu", "fast": "true"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[run]\nadapter = \n", r"not valid TOML: .*line 2"),
        ("[run]\nformat = 99\n", "workspace format 99, and this release of autoresearch reads format 1"),
        ("[rnu]\n", r"no table or key \[rnu\]"),
        ("[run]\nadaptor = 'ml'\n", r"\[run\] has no key 'adaptor'; known are format, adapter"),
        ("[budget]\nexperiments = 'six'\n", r"\[budget\] experiments has the wrong type: 'six'"),
        ("[budget]\nexperiments = true\n", "wrong type: True"),
        ("[policy]\nkeep_at = 'high'\n", r"\[policy\] keep_at must be a number"),
        ("[budget]\nhours = -1\n", "The limit hours"),
        ("[run]\nseed = -5\n", "The seed must be"),
        ("[run]\nbaseline_runs = 0\n", "at least once"),
        ("[run]\nbudget_seconds = nan\n", "positive number of seconds"),
        ("run = 1\n", r"\[run\] must be a table"),
    ],
)
def test_broken_settings_get_their_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    """What nobody could have meant is refused, with the key or the line."""
    with pytest.raises(UsageError, match=sentence):
        settings(tmp_path, text)


def test_a_folder_without_settings_is_no_workspace(tmp_path: Path) -> None:
    """The message says how to make one."""
    with pytest.raises(UsageError, match="autoresearch init"):
        read_settings(Layout(tmp_path))


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    """A new workspace's file is valid and holds the adapter's options as given."""
    found = settings(tmp_path, config_text("ml", {"preset": "cpu", "data": 'C:\\texts "old"'}))
    assert found.adapter == "ml" and found.options == {"preset": "cpu", "data": 'C:\\texts "old"'}
    assert found.limits.experiments == 100


def test_the_workspace_is_found(tmp_path: Path) -> None:
    """The folder given, else the current one, else the folder of the adapter, else the only one there is."""
    assert find_workspace(None, cwd=tmp_path) is None
    assert find_workspace(None, cwd=tmp_path, adapter="ml") == Layout(tmp_path / "autoresearch-ml")
    for name in ("autoresearch-ml", "autoresearch-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "autoresearch.toml").touch()
        expected = Layout(tmp_path / "autoresearch-ml") if name == "autoresearch-ml" else None
        assert find_workspace(None, cwd=tmp_path) == expected
    assert find_workspace(None, cwd=tmp_path / "autoresearch-x", adapter="ml") == Layout(tmp_path / "autoresearch-x")
    assert find_workspace(tmp_path / "elsewhere", cwd=tmp_path) == Layout(tmp_path / "elsewhere")
