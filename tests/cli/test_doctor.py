"""`doctor` names what is wrong with a machine and a workspace, and what to do."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autoresearch.cli.doctor import NOTE, OK, PROBLEM, Check, report
from autoresearch.core.sandbox import Level, best_level, probe
from tests.cli.conftest import invoke
from tests.cli.plugins import write_package

SECRET = "sk-ant-secret-0123456789"


def checked(*arguments: str | Path, code: int = 0) -> dict[str, dict[str, Any]]:
    """Run doctor, expect an exit code, and return its checks by name."""
    result = invoke("doctor", "--json", *arguments)
    assert result.exit_code == code, result.output
    checks = json.loads(result.stdout)
    assert all(set(check) == {"name", "state", "found", "advice"} for check in checks)
    assert all(check["advice"] for check in checks if check["state"] != OK), "whatever is not well has an advice"
    return {check["name"]: check for check in checks}


def fake_torch(*cards: str, memory: float = 0.0, mps: bool = False) -> ModuleType:
    """Return a torch that sees the cards named, each with `memory` bytes."""
    torch = ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    torch.__version__ = "9.9"  # type: ignore[attr-defined]
    torch.device = str  # type: ignore[attr-defined]
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        is_available=lambda: bool(cards),
        device_count=lambda: len(cards),
        get_device_name=lambda index: cards[index],
        get_device_properties=lambda device: SimpleNamespace(total_memory=memory),
    )
    torch.backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps))  # type: ignore[attr-defined]
    return torch


@pytest.fixture(autouse=True)
def no_card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for torch, whose import takes seconds, in every test but the one that looks at the real machine."""
    if request.node.name != "test_a_healthy_machine":
        monkeypatch.setitem(sys.modules, "torch", fake_torch())


@pytest.mark.parametrize(
    ("torch", "devices", "preset"),
    [
        (fake_torch(), "9.9; processor only", "cpu"),
        (fake_torch(mps=True), "9.9; mps", "mps"),
        (fake_torch("NVIDIA H100", "NVIDIA L4", memory=8e10), "9.9; cuda:0 NVIDIA H100, cuda:1 NVIDIA L4", "h100"),
        (fake_torch("NVIDIA RTX 4090", memory=2.5e10), "9.9; cuda:0 NVIDIA RTX 4090", "gpu-24gb"),
    ],
    ids=["cpu", "mps", "two cards", "24 GB"],
)
def test_devices_and_the_preset_for_them(
    here: Path, monkeypatch: pytest.MonkeyPatch, torch: ModuleType, devices: str, preset: str
) -> None:
    """Every device that torch sees is named, and the preset that the ml adapter would choose."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = checked()
    assert found["torch"]["found"] == devices
    assert found["ml preset"]["found"] == f"{preset} would be chosen"


def test_no_torch_is_a_note(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the ml adapter needs torch, and the command that installs it is shown."""
    monkeypatch.setitem(sys.modules, "torch", None)
    found = checked()
    assert found["torch"]["state"] == NOTE and "pip install 'autoresearch[ml]'" in found["torch"]["advice"]
    assert "ml preset" not in found


def test_a_healthy_machine(filled: Path) -> None:
    """Python, git, disk, packages, workspace and ledger are well; the missing key is a note."""
    found = checked("-w", filled)
    well = [name for name in ("python", "git", "disk", "packages", "workspace", "ledger") if found[name]["state"] == OK]
    assert len(well) == 6
    assert found["key"]["state"] == NOTE and "search" in found["key"]["found"]
    assert found["sandbox"]["found"].startswith(best_level().value)
    assert "1 run" in found["ledger"]["found"]


@pytest.fixture
def forget() -> Iterator[None]:
    """Try the sandbox anew in this test, and again after it."""
    probe.cache_clear()
    yield
    probe.cache_clear()


@pytest.mark.parametrize(("kernel", "level"), [(7, "landlock"), (0, "limits")])
def test_no_bubblewrap(
    here: Path, forget: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernel: int, level: str
) -> None:
    """Without bubblewrap the next level is shown as a note, with why and what to install."""
    if kernel and not probe(Level.LANDLOCK).works:
        pytest.skip("needs a kernel with Landlock")
    if not kernel:
        monkeypatch.setattr("autoresearch.core.landlock.abi", lambda: 0)
    (tmp_path / "git").symlink_to(shutil.which("git") or "git")
    monkeypatch.setenv("PATH", str(tmp_path))
    probe.cache_clear()
    found = checked()["sandbox"]
    assert found["state"] == NOTE and found["found"].startswith(f"{level}:")
    assert "no bubblewrap: there is no program bwrap on PATH" in found["found"]
    assert "apt install bubblewrap" in found["advice"]
    if not kernel:
        assert "no landlock: this kernel has no Landlock" in found["found"]


def test_advice_of_two_lines(here: Path, forget: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where Ubuntu's AppArmor keeps bubblewrap from working, the commands that allow it stand on lines of their own."""
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    (tmp_path / "switch").write_text("1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("autoresearch.core.bubblewrap._RESTRICTED_BY_APPARMOR", tmp_path / "switch")
    lines = [line.strip() for line in invoke("doctor").stdout.splitlines()]
    assert any(line.startswith("printf") and "/etc/apparmor.d/bwrap" in line for line in lines)
    assert "sudo systemctl reload apparmor" in lines


def test_a_keys_value_is_never_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that a key is set is said."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    assert checked()["key"]["state"] == OK
    output = invoke("doctor").output + invoke("doctor", "--json").output
    assert "ANTHROPIC_API_KEY set" in output
    assert SECRET not in output and SECRET[:10] not in output


def test_no_git(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git there is a problem, and the exit code says so."""
    monkeypatch.setenv("PATH", "")
    found = checked(code=1)
    assert found["git"]["state"] == PROBLEM and "git-scm.com" in found["git"]["advice"]


def test_a_git_that_does_not_work(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program called git that fails is no git."""
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}/bin")
    assert "does not work" in checked(code=1)["git"]["found"]


def test_no_workspace_is_no_problem(here: Path) -> None:
    """Doctor is for machines too; only a workspace that was named must be there."""
    assert checked()["workspace"]["state"] == NOTE
    assert checked("-w", here / "nowhere", code=1)["workspace"]["state"] == PROBLEM


def test_broken_settings_and_a_damaged_ledger(tmp_path: Path) -> None:
    """Both are problems with their sentences; the ledger is not touched."""
    (tmp_path / "autoresearch.toml").write_text("[run]\nformat = \n", encoding="utf-8")
    ledger = tmp_path / ".autoresearch" / "ledger.db"
    ledger.parent.mkdir()
    ledger.write_bytes(b"nothing that SQLite knows " * 100)
    found = checked("-w", tmp_path, code=1)
    assert "line 2" in found["workspace"]["found"]
    assert found["ledger"]["state"] == PROBLEM and "damaged" in found["ledger"]["found"]
    assert [path.name for path in ledger.parent.iterdir()] == ["ledger.db"]


def test_a_broken_package_is_a_note(packages: Path, here: Path) -> None:
    """An adapter that cannot be loaded is named, and does not make the machine ill; what it raises is cleaned."""
    source = "raise RuntimeError('\\x1b[31mno\\x07 such thing')"
    write_package(packages, "ruin", source, {"autoresearch.adapters": {"zruin": "ruin:create"}})
    found = checked()["adapter"]
    assert found["state"] == NOTE and "no such thing" in found["found"] and "\x1b" not in found["found"]


def test_the_last_line_counts_the_problems() -> None:
    """The report ends with a verdict, and advice stands below its check."""
    text = report([Check("git", PROBLEM, "not found", "Install it."), Check("key", NOTE, "not set", "Set it.")])
    lines = text.splitlines()
    assert lines[-1] == "1 problem found."
    assert lines[0].split() == ["problem", "git", "not", "found"] and lines[1].strip() == "Install it."
    assert report([Check("git", OK, "2.40")]).splitlines()[-1] == "No problem found."


def test_a_test_is_sent_where_somebody_asks(here: Path) -> None:
    """A program that takes the test is well, one that fails is a problem; its arguments are not shown."""
    assert checked("--notify", "cmd:true")["notify"]["state"] == OK
    found = checked("--notify", "cmd:false --key hunter2", code=1)["notify"]
    assert found["state"] == PROBLEM and "status 1" in found["found"] and "hunter2" not in str(found)
