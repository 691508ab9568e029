"""The adapter itself: prepares the text, trains a candidate in one process and measures it in another.

Importing this imports neither torch nor numpy.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoresearch.adapters.ml_training import devices
from autoresearch.adapters.ml_training.budget import LoadJudge
from autoresearch.adapters.ml_training.knobs import declared_knobs
from autoresearch.adapters.ml_training.presets import AUTO, PRESETS, Preset, choose_preset, set_constants
from autoresearch.adapters.ml_training.runner import Plan, score, secondary, train
from autoresearch.adapters.ml_training.script import check_script
from autoresearch.adapters.ml_training.task import WEIGHTS
from autoresearch.core import (
    Artifact,
    Direction,
    EnvironmentNotReadyError,
    FileHashes,
    Knob,
    Measurement,
    Metric,
    RunContext,
    Scope,
    Split,
    UsageError,
    Workspace,
)

if TYPE_CHECKING:
    from autoresearch.adapters.ml_training.data import PreparedData

TRAIN_PY: Final = "train.py"
MIN_EFFECT: Final = 0.002
"""Bits per byte. Smaller gains would need dozens of repetitions to be told from the spread between seeds."""

_TEMPLATES: Final = "template"
_EVALUATOR_FILES: Final = (
    "budget.py",
    "evaluate.py",
    "evaluate_process.py",
    "harness.py",
    "predict_process.py",
    "remote.py",
    "runner.py",
    "task.py",
    "train_process.py",
)


@dataclass(frozen=True, slots=True)
class Options:
    """The table `[adapter]` of `autoresearch.toml`, and `--set name=value`.

    Attributes:
        preset: `h100`, `gpu-24gb`, `gpu-8gb`, `mps`, `cpu`, or `auto`: by the device found.
        data: `sample`, `climbmix` (`climbmix:shards=4`), or a file or folder of .txt, .jsonl or .parquet files; `auto`
            takes the preset's.
        cache: Folder for prepared data; `auto` takes the user's cache folder, or the workspace where that is read-only.
        device: `cpu`, `cuda`, `cuda:N`, `mps`; `auto` takes the preset's.
        budget_seconds: Length of one training; 0 takes the preset's.
        min_cpu_share: A CPU training that got less of a processor than this is measured again, and so is one that got
            much less than the ones before it; 0 accepts all.
        eval_bytes: Upper bound of the scored bytes; 0 takes the preset's.
    """

    preset: str = AUTO
    data: str = AUTO
    cache: str = AUTO
    device: str = AUTO
    budget_seconds: float = 0.0
    min_cpu_share: float = 0.25
    eval_bytes: int = 0

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Options:
        """Read options as text.

        Raises:
            UsageError: If one is unknown (lists those there are) or makes no sense.
        """
        kinds = {field.name: type(field.default) for field in fields(cls)}
        unknown = sorted(set(options) - set(kinds))
        if unknown:
            raise UsageError(
                f"The ml adapter has no option {unknown[0]!r}; known are {', '.join(kinds)}.\n"
                "Mend the table [adapter] of autoresearch.toml or the --set on the command line."
            )
        parsed = cls(**{name: _parsed(name, text, kinds[name]) for name, text in options.items()})
        if parsed.preset not in (AUTO, *PRESETS):
            choose_preset(parsed.preset, None)
        return parsed


def _parsed(name: str, text: str, kind: type) -> Any:
    if kind is str:
        return text
    try:
        value = kind(text)
    except ValueError as error:
        raise UsageError(f"The ml adapter's option {name} must be a number, not {text!r}.") from error
    if not 0 <= value < float("inf"):
        raise UsageError(f"The ml adapter's option {name} must be zero or more, not {text!r}.")
    return value


class MlAdapter:
    """A language-model trainer, `train.py`, judged by the bits per byte that its model reaches in a fixed budget.

    The candidate trains in a process of its own, which is told where the training text is and nothing else. When it has
    ended, another process loads the weights into the model that the candidate's `build_model` returns and scores one
    frozen text, the same for every candidate.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._hashes = FileHashes()
        self._prepared: PreparedData | None = None

    @cached_property
    def preset(self) -> Preset:
        """The preset; asking for it imports torch when it has to be found out from the device."""
        return choose_preset(self.options.preset, None if self.options.device == AUTO else self.options.device)

    @cached_property
    def _load_judge(self) -> LoadJudge:
        return LoadJudge(clock=self.preset.clock, min_cpu_share=self.options.min_cpu_share)

    @property
    def metric(self) -> Metric:
        """val_bpb in bits per byte; its noise is stated where it was measured for these very settings."""
        return Metric(
            name="val_bpb",
            unit="bits per byte",
            direction=Direction.MINIMIZE,
            noise=self.preset.noise if self._as_measured else None,
            min_effect=MIN_EFFECT,
        )

    @property
    def _as_measured(self) -> bool:
        """Whether data, budget and scored bytes are those that the preset's noise was measured with."""
        chosen = self.options
        return chosen.data in (AUTO, self.preset.data) and chosen.budget_seconds == 0 and chosen.eval_bytes == 0

    @property
    def scope(self) -> Scope:
        """`train.py` may change."""
        return Scope(editable=(TRAIN_PY,))

    # Preparing

    def prepare(self, workspace: Workspace) -> None:
        """Check the device, then fetch, split and tokenize the text; quick when that is done already.

        Raises:
            EnvironmentNotReadyError: If torch, the device or the text is missing.
            UsageError: If the data option names nothing.
        """
        self.check_ready()
        self._prepared = self.prepare_text(workspace)

    def check_ready(self) -> None:
        """Check for torch and the device.

        Raises:
            EnvironmentNotReadyError: If torch or the device is missing.
        """
        devices.require_torch()
        devices.demand_device(self._device(None), self.preset.name)

    def prepare_text(self, workspace: Workspace) -> PreparedData:
        """Fetch, split and tokenize the text without asking for a device; see `prepare`."""
        from autoresearch.adapters.ml_training.data import parse_source, prepare_data

        return prepare_data(
            parse_source(self._source(workspace.path)),
            vocab_size=self.preset.vocab_size,
            cache=self._cache(workspace),
            progress=workspace.progress,
        )

    def _source(self, workspace: Path) -> str:
        """Return the data option; a relative path means the workspace's file where there is one."""
        chosen = self.preset.data if self.options.data == AUTO else self.options.data
        inside = workspace / chosen
        return str(inside) if chosen not in ("sample", "climbmix") and inside.exists() else chosen

    def _cache(self, workspace: Workspace) -> Path:
        if self.options.cache != AUTO:
            return Path(self.options.cache).expanduser()
        import platformdirs

        cache = Path(platformdirs.user_cache_dir("autoresearch")) / "data"
        if _writable(cache):
            return cache
        inside = workspace.path / ".autoresearch" / "data"
        print(f"{cache} is not writable; the prepared data goes to {inside}.", file=sys.stderr)
        return inside

    def _device(self, run: RunContext | None) -> str:
        if run is not None and run.device is not None:
            return run.device
        return self.preset.device if self.options.device == AUTO else self.options.device

    def plan(self, seed: int, split: Split, run: RunContext | None) -> Plan:
        """Settle one measurement; `run` overrides device and budget.

        Raises:
            UsageError: If the device does not fit the preset.
        """
        if self._prepared is None:
            raise RuntimeError("MlAdapter.prepare must be called before anything is measured.")
        device = self._device(run)
        if device.partition(":")[0] != self.preset.device:
            raise UsageError(
                f"The preset {self.preset.name} trains on {self.preset.device}, and device {device} was asked for.\n"
                f"Choose a preset for it: --preset {choose_preset(AUTO, device).name}"
            )
        given = run.budget_seconds if run is not None and run.budget_seconds else self.options.budget_seconds
        return Plan(
            preset=self.preset,
            device=device,
            budget_seconds=given or self.preset.budget_seconds,
            eval_bytes=self._eval_bytes,
            prepared=self._prepared,
            seed=seed,
            split=split,
        )

    # Measuring

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        """Train the artifact's `train.py` and score its model; see `autoresearch.core.Adapter.measure`."""
        began = time.monotonic()
        plan = self.plan(seed, split, run)
        devices.demand_device(plan.device, plan.preset.name)
        output = run.scratch / "output"
        # A measurement that was killed may have left weights here, which must not be taken for new ones.
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        shutil.copyfile(artifact / TRAIN_PY, output / TRAIN_PY)
        trained = train(plan, artifact / TRAIN_PY, output, run, self._load_judge)
        scored = score(plan, output / TRAIN_PY, output, run)
        seconds = time.monotonic() - began
        self._describe_output(plan, scored.value, output)
        return Measurement(
            value=scored.value,
            seed=seed,
            seconds=seconds,
            secondary=secondary(trained, scored, plan, seconds),
            curve=trained.curve,
            disturbed=self._load_judge.disturbance(trained.load),
        )

    def _describe_output(self, plan: Plan, value: float, output: Path) -> None:
        """Leave beside the weights what sampling needs, so that they can be used without the cache."""
        try:
            shutil.copyfile(plan.prepared.path / "tokenizer.json", output / "tokenizer.json")
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"The prepared data in {plan.prepared.path} cannot be read any more: {error.strerror}.\n"
                "If somebody emptied the cache, run again: what is missing is prepared anew."
            ) from error
        about = {"vocab_size": plan.prepared.vocab_size, "val_bpb": value, "seed": plan.seed}
        (output / "model.json").write_text(json.dumps(about), encoding="utf-8")

    # What the adapter offers besides

    def keep_outputs(self, scratch: Path, destination: Path) -> None:
        """Copy weights, tokenizer and script of a kept candidate; each file is replaced whole."""
        destination.mkdir(parents=True, exist_ok=True)
        # The weights go last: whoever reads them finds the script that fits.
        for name in ("model.json", "tokenizer.json", TRAIN_PY, WEIGHTS):
            partial = destination / f"{name}.partial"
            shutil.copyfile(scratch / "output" / name, partial)
            partial.replace(destination / name)

    def check(self, artifact: Artifact) -> None:
        """Refuse a script that does not parse or lacks what the harness and the evaluator call.

        Raises:
            CandidateError: With one sentence that says what is wrong, and where.
        """
        check_script(artifact.files.get(TRAIN_PY))

    def knobs(self, artifact: Artifact) -> Sequence[Knob]:
        """Return what is known about the constants of `train.py` beyond their values."""
        return declared_knobs(artifact.files.get(TRAIN_PY, ""), TRAIN_PY)

    def brief(self) -> str:
        """Explain the subject to a language model."""
        return _template("brief.md").format(
            budget=_budget_in_words(self.preset, self.options.budget_seconds or self.preset.budget_seconds),
            vocab_size=self.preset.vocab_size,
            preset=self.preset.name,
        )

    def workspace_files(self) -> Mapping[str, str]:
        """Return `train.py` with the preset's settings, `program.md` and a README."""
        return {
            TRAIN_PY: set_constants(_template(TRAIN_PY), self.preset.constants),
            "program.md": _template("program.md"),
            "README.md": _template("README.md"),
        }

    def measure_seconds(self, run: RunContext) -> float:
        """Return the seconds of one measurement on a free machine, starting and evaluating included."""
        budget = run.budget_seconds or self.options.budget_seconds or self.preset.budget_seconds
        return budget * 1.02 + self.preset.extra_seconds

    def evaluator_fingerprint(self) -> str:
        """Return a hash over evaluator, harness and data code, the tokenizer, the training and the scored texts.

        The first call of a process reads every byte; later ones read what was touched since, as `FileHashes` says.

        Raises:
            RuntimeError: Before `prepare`.
        """
        if self._prepared is None:
            raise RuntimeError("MlAdapter.prepare must be called before the evaluator can be named.")
        here = resources.files(__package__)
        digest = hashlib.sha256(f"{self._prepared.fingerprint} {self._eval_bytes}".encode())
        modules = sorted(module for module in Path(str(here.joinpath("data"))).iterdir() if module.suffix == ".py")
        code = [*(Path(str(here.joinpath(name))) for name in _EVALUATOR_FILES), *modules]
        digest.update(self._hashes.of_all(code).encode())
        digest.update(self._hashes.of_all(_data_files(self._prepared.path)).encode())
        return digest.hexdigest()

    @property
    def _eval_bytes(self) -> int | None:
        return self.options.eval_bytes or self.preset.eval_bytes


def _data_files(prepared: Path) -> list[Path]:
    """Return what was prepared, without the manifest: it says how long that took, which changes no value."""
    folders = (prepared / "train", prepared / "scored")
    inside = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
    return [prepared / "tokenizer.json", prepared / "token_bytes.npy", *inside]


def _writable(folder: Path) -> bool:
    """Say whether a folder can be made and written to; it is made where that is possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _template(name: str) -> str:
    return resources.files(__package__).joinpath(_TEMPLATES, name).read_text(encoding="utf-8")


def _budget_in_words(preset: Preset, seconds: float) -> str:
    if preset.clock == "cpu":
        return f"{seconds:g} s of processor time on one thread"
    return f"{seconds:g} s on the wall, after the first {preset.warmup_steps} optimiser steps"
