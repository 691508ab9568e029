from __future__ import annotations

import ast

import pytest

from autoresearch.adapters.ml_training import devices
from autoresearch.adapters.ml_training.adapter import MlAdapter, Options
from autoresearch.adapters.ml_training.presets import PRESETS, choose_preset, constants_of, set_constants
from autoresearch.core import EnvironmentNotReadyError, UsageError, Workspace


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_sets_constants_that_the_template_has(name: str) -> None:
    """The workspace's train.py carries the preset's values and is otherwise the template."""
    text = MlAdapter(Options(preset=name)).workspace_files()["train.py"]
    found = constants_of(text)
    for constant, value in PRESETS[name].constants.items():
        assert found[constant] == ast.unparse(ast.parse(value, mode="eval").body)
    plain = MlAdapter(Options(preset="cpu")).workspace_files()["train.py"]
    changed = [line for line in text.splitlines() if line not in plain.splitlines()]
    assert len(changed) <= len(PRESETS[name].constants)


@pytest.mark.parametrize("name", PRESETS)
def test_a_step_of_every_preset_is_a_whole_number_of_device_batches(name: str) -> None:
    """Otherwise the template would refuse its own settings."""
    found = constants_of(MlAdapter(Options(preset=name)).workspace_files()["train.py"])
    assert int(found["TOTAL_BATCH"]) % (int(found["DEVICE_BATCH"]) * int(found["CONTEXT"])) == 0


def test_setting_a_constant_keeps_comments_and_characters_of_all_kinds() -> None:
    """Columns are counted in bytes by ast; an umlaut before a value must not shift it."""
    source = 'A = 1  # größer\nÄ = "ö"; \nB = -2.5  # x\n'
    assert set_constants(source, {"A": "10", "B": "3", "Ä": '"ß"'}) == 'A = 10  # größer\nÄ = "ß"; \nB = 3  # x\n'


def test_a_constant_that_is_not_there_is_an_error() -> None:
    """A preset that silently sets nothing would train another model than it says."""
    with pytest.raises(KeyError, match="NOPE"):
        set_constants("A = 1\n", {"NOPE": "2"})


def test_an_unknown_preset_names_the_known_ones() -> None:
    """So does the adapter's factory, before anything is done."""
    with pytest.raises(UsageError, match=r"'h200'; known are auto, h100, gpu-24gb, gpu-8gb, mps, cpu"):
        choose_preset("h200", None)


def test_h100_without_a_gpu_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is at fault, and the sentence names the way out."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(
        EnvironmentNotReadyError, match="No CUDA device is visible, and preset h100 needs one"
    ) as caught:
        devices.demand_device("cuda", "h100")
    assert "--preset cpu" in str(caught.value)


def test_preparing_a_gpu_preset_without_a_gpu_touches_no_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """The device is asked for before anything is downloaded."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    adapter = MlAdapter(Options(preset="h100", cache=str(tmp_path)))
    with pytest.raises(EnvironmentNotReadyError, match="h100"):
        adapter.prepare(Workspace(tmp_path))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []  # type: ignore[attr-defined]


def test_a_missing_torch_gives_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch there is a sentence and no trace."""
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentNotReadyError, match=r"pip install 'autoresearch\[ml\]'"):
        devices.require_torch()


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "tpu:0"])
def test_a_device_that_does_not_exist_is_a_fault_in_use(device: str) -> None:
    """Known devices are listed."""
    with pytest.raises(UsageError, match="known are cpu, cuda"):
        devices.demand_device(device, "cpu")


def test_auto_takes_the_preset_of_the_device_given() -> None:
    """Without asking torch what there is."""
    assert choose_preset("auto", "cpu").name == "cpu"
    assert choose_preset("auto", "mps").name == "mps"


@pytest.mark.parametrize(
    ("memory", "preset"), [(80e9, "h100"), (141e9, "h100"), (24e9, "gpu-24gb"), (48e9, "gpu-24gb"), (8e9, "gpu-8gb")]
)
def test_auto_on_a_gpu_goes_by_its_memory(memory: float, preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest preset that fits."""
    monkeypatch.setattr(devices, "demand_device", lambda device, name: None)
    monkeypatch.setattr(devices, "memory_gb", lambda device: memory / 1e9)
    assert choose_preset("auto", "cuda").name == preset


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA GeForce RTX 4090", 165.2e12),
        ("Tesla T4", None),
        (None, None),
    ],
)
def test_a_peak_is_known_or_absent(name: str | None, peak: float | None) -> None:
    """A longer name is not taken for a shorter one, and an unknown card has no peak."""
    assert devices.peak_flops(name) == peak
