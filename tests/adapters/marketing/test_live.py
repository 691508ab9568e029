from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.assignment import parts
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest
from autoresearch.core import UsageError
from tests.adapters.marketing.filling import DAY, START, artifact, exposure, half_and_half, started, write


def test_a_started_test_reads_back_the_same(tmp_path: Path) -> None:
    """What servers read is what `run` wrote, through a new object as another process has it."""
    live, test = started(tmp_path)
    assert LiveFolder(live.path).read().tests == {"page": test}
    assert LiveFolder(live.path).find("run/0001") == test


def test_arms_outlive_their_folders(tmp_path: Path) -> None:
    """A candidate's folder may vanish while people see it: the state folder has a copy."""
    live, test = started(tmp_path)
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    assert "Treatment" in (live.read().tests["page"].treatments["treatment"] / "copy.toml").read_text()
    assert "Control" in (test.control / "copy.toml").read_text()


def test_starting_twice_is_starting_once(tmp_path: Path) -> None:
    """After a kill the loop starts the same test again and nothing changes."""
    live, test = started(tmp_path)
    before = live.live.read_bytes()
    assert live.start(half_and_half(tmp_path)) == test
    assert live.live.read_bytes() == before


def test_the_winner_becomes_the_incumbent_and_the_original_stays(tmp_path: Path) -> None:
    """After a keep everybody sees the treatment, and the holdout still the original."""
    live, test = started(tmp_path)
    live.finish(test.id, "treatment", now=START + DAY)
    live.finish(test.id, "treatment", now=START + 2 * DAY)
    state = live.read()
    assert state.tests == {}
    assert state.surfaces["page"].incumbent == test.treatments["treatment"]
    assert state.surfaces["page"].original == test.control
    found = live.find(test.id)
    assert found is not None
    assert found.ended == START + DAY


def test_without_a_winner_the_incumbent_stays(tmp_path: Path) -> None:
    """A revert leaves what everybody saw before."""
    live, test = started(tmp_path)
    live.finish(test.id)
    assert live.read().surfaces["page"].incumbent == test.control


def test_a_surface_holds_one_test(tmp_path: Path) -> None:
    """A second test on the same surface is refused, one on another surface is not."""
    live, _ = started(tmp_path)
    with pytest.raises(UsageError, match="run/0001 runs on 'page'"):
        live.start(half_and_half(tmp_path, test_id="run/0002"))
    live.start(half_and_half(tmp_path, test_id="run/0003", surface="pricing"))
    assert set(live.read().tests) == {"page", "pricing"}


def test_an_ended_test_does_not_start_again(tmp_path: Path) -> None:
    """Its units have been counted; more would mix two periods."""
    live, test = started(tmp_path)
    live.finish(test.id)
    with pytest.raises(UsageError, match="has ended"):
        live.start(half_and_half(tmp_path))


def test_what_was_never_started_cannot_be_finished(tmp_path: Path) -> None:
    """A wrong id or arm is a mistake, not a no-op."""
    live, test = started(tmp_path)
    with pytest.raises(UsageError, match="nothing to finish"):
        live.finish("run/0009")
    with pytest.raises(UsageError, match="no arm 'blue'"):
        live.finish(test.id, "blue")


def test_a_damaged_file_is_an_error_and_not_an_empty_state(tmp_path: Path) -> None:
    """Reading nothing from a broken file would show everybody the original and end all tests."""
    live, _ = started(tmp_path)
    live.live.write_text('{"version": 1, "surfaces": {')
    with pytest.raises(UsageError, match="cannot be understood"):
        live.read()


def test_salts_are_made_once_and_private(tmp_path: Path) -> None:
    """Two processes agree on one salt, and nobody else can read it."""
    first, second = LiveFolder(tmp_path / "state"), LiveFolder(tmp_path / "state")
    assert first.salt == second.salt
    assert first.salt != first.secret
    assert (tmp_path / "state" / "salt").stat().st_mode & 0o077 == 0


def test_the_log_before_a_test_is_marked(tmp_path: Path) -> None:
    """A test knows where the log stood when it began, so that counting never reads the years before."""
    live = LiveFolder(tmp_path / "state")
    write(live.events, exposure("run/0000", 7, START, 0))
    test = live.start(half_and_half(tmp_path))
    assert list(test.marks.values()) == [48]


def test_units_outside_the_part_do_not_enter(tmp_path: Path) -> None:
    """With two exclusive surfaces about half of the units meet the test, and the others meet no arm of it."""
    test = replace(half_and_half(tmp_path), part=parts(["page", "mail"])["page"])
    arms = [test.arm_of("campaign", str(unit)) for unit in range(1000)]
    assert 420 < sum(arm is None for arm in arms) < 580
    assert {arm for arm in arms if arm} == {"control", "treatment"}


def test_showing_an_artifact_rolls_back(tmp_path: Path) -> None:
    """A rollback changes what everybody sees and neither the original nor the log."""
    live, test = started(tmp_path)
    live.finish(test.id, "treatment")
    live.show("page", artifact(tmp_path / "c", "Third"))
    assert "Third" in (live.read().surfaces["page"].incumbent / "copy.toml").read_text()
    assert live.read().surfaces["page"].original == test.control


def test_the_kill_switch_outlives_the_process(tmp_path: Path) -> None:
    """It is a file: on until somebody turns it off."""
    live = LiveFolder(tmp_path / "state")
    live.kill(True)
    assert LiveFolder(live.path).killed
    live.kill(False)
    live.kill(False)
    assert not live.killed


def three_arms(tmp_path: Path) -> tuple[LiveFolder, LiveTest]:
    """Return a state folder with a live test of two candidates in a lane."""
    live = LiveFolder(tmp_path / "state")
    test = replace(
        half_and_half(tmp_path, test_id="r-1+2"),
        treatments={"a": artifact(tmp_path / "b", "A"), "b": artifact(tmp_path / "c", "B")},
        split={"control": 0.5, "a": 0.25, "b": 0.25},
        lane="hero",
        experiments={"a": "r-1", "b": "r-2"},
    )
    return live, live.start(test)


def test_a_test_is_found_by_each_of_its_experiments(tmp_path: Path) -> None:
    """Each knows its arm, and reading back gives the same."""
    live, test = three_arms(tmp_path)
    assert live.find("r-1") == live.find("r-2") == test == live.read().tests["hero"]
    assert (test.arm_tested_by("r-1"), test.arm_tested_by("r-2")) == ("a", "b")
    with pytest.raises(KeyError):
        test.arm_tested_by("r-3")


def test_an_arm_is_taken_out_once_and_the_last_ends_the_test(tmp_path: Path) -> None:
    """What was taken out stays out after a restart; the same call again changes nothing."""
    live, test = three_arms(tmp_path)
    live.take_out(test.id, "a")
    before = live.live.read_bytes()
    live.take_out(test.id, "a")
    assert live.live.read_bytes() == before and live.read().tests["hero"].shown == ("control", "b")
    again = live.start(test)
    assert again.taken_out == {"a"} and live.read().tests["hero"] == again
    live.take_out(test.id, "b", now=START + DAY)
    ended = live.find("r-2")
    assert live.read().tests == {} and ended is not None and ended.ended == START + DAY
    live.take_out(test.id, "b")
    with pytest.raises(UsageError, match="nothing to take out"):
        live.take_out(test.id, "control")


def test_a_kill_before_servers_know_that_an_arm_is_out_is_mended(tmp_path: Path) -> None:
    """The record is written first; where live.json still has the arm the same call takes it out there too."""
    live, test = three_arms(tmp_path)
    shown = live.live.read_bytes()
    live.take_out(test.id, "a")
    live.live.write_bytes(shown)
    live.take_out(test.id, "a")
    assert live.read().tests["hero"].shown == ("control", "b")


def test_people_of_an_arm_that_is_out_move_to_no_other(tmp_path: Path) -> None:
    """Everybody else keeps the arm, and those of the one that is out have none."""
    live, test = three_arms(tmp_path)
    before = {str(unit): test.arm_of("campaign", str(unit)) for unit in range(1000)}
    live.take_out(test.id, "a")
    after = live.read().tests["hero"]
    assert all(after.arm_of("campaign", unit) == (None if arm == "a" else arm) for unit, arm in before.items())


def test_a_winner_does_not_undo_what_another_surface_kept(tmp_path: Path) -> None:
    """Where something else than its control is shown by now, both together come by `show`, and not the winner alone."""
    live, test = three_arms(tmp_path)
    live.show("page", artifact(tmp_path / "d", "Kept by another surface"))
    live.finish(test.id, "a")
    assert "Kept by another" in (live.read().surfaces["page"].incumbent / "copy.toml").read_text()


def test_a_state_of_an_older_release_is_read(tmp_path: Path) -> None:
    """Tests that it wrote have one candidate, on one surface, and go on."""
    live, test = started(tmp_path)
    data = json.loads(live.live.read_text())
    for name in ("lane", "experiments", "taken_out"):
        del data["tests"][0][name]
    live.live.write_text(json.dumps(data))
    assert live.read().tests == {"page": test} and test.arm_tested_by("run/0001") == "treatment"
