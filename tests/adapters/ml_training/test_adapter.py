from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from autoresearch.adapters.ml_training import create_adapter
from autoresearch.adapters.ml_training.adapter import MlAdapter, Options
from autoresearch.adapters.ml_training.evaluate_process import evaluate, load_text
from autoresearch.adapters.ml_training.knobs import KNOWN
from autoresearch.adapters.ml_training.predict_process import CandidateModel
from autoresearch.adapters.ml_training.presets import PRESETS, constants_of
from autoresearch.adapters.ml_training.sample import SampleTask, sample_text
from autoresearch.adapters.ml_training.task import WEIGHTS, EvaluateTask, TrainTask, read_task
from autoresearch.core import (
    Adapter,
    Artifact,
    CandidateError,
    Direction,
    EnvironmentNotReadyError,
    InvalidCandidateError,
    KeepsOutputs,
    Measurement,
    OffersBrief,
    OffersCheck,
    OffersEstimate,
    OffersFingerprint,
    OffersKnobs,
    OffersWorkspace,
    RunContext,
    Split,
    UsageError,
    Workspace,
)

from .conftest import tiny_adapter, tiny_trainer


@dataclass(frozen=True)
class Honest:
    """One measurement of the tiny trainer, taken once for several tests."""

    adapter: MlAdapter
    artifact: Path
    scratch: Path
    measurement: Measurement


@pytest.fixture(scope="module")
def honest(corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Honest:
    root = tmp_path_factory.mktemp("honest")
    for name in ("artifact", "scratch"):
        (root / name).mkdir()
    (root / "artifact" / "train.py").write_text(tiny_trainer(), encoding="utf-8")
    adapter = tiny_adapter(corpus, cache, root)
    run = RunContext(log=root / "log", scratch=root / "scratch")
    measurement = adapter.measure(root / "artifact", seed=1, split=Split.SEARCH, run=run)
    return Honest(adapter, root / "artifact", root / "scratch", measurement)


def measure(adapter: MlAdapter, folder: Path, run: RunContext, script: str, *, seed: int = 1) -> float:
    (folder / "train.py").write_text(script, encoding="utf-8")
    return adapter.measure(folder, seed=seed, split=Split.SEARCH, run=run).value


def test_creating_the_adapter_imports_neither_torch_nor_numpy() -> None:
    """Asking for help, listing adapters and writing a workspace stay fast, and work without them."""
    program = (
        "import sys\n"
        "from autoresearch.adapters.ml_training import create_adapter\n"
        "adapter = create_adapter({'preset': 'cpu'})\n"
        "adapter.workspace_files(), adapter.scope, adapter.metric, adapter.brief()\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'imported too much'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_it_keeps_the_contract_and_offers_everything_optional() -> None:
    """The loop asks with isinstance."""
    adapter = create_adapter({"preset": "cpu"})
    for protocol in (
        Adapter,
        KeepsOutputs,
        OffersBrief,
        OffersCheck,
        OffersEstimate,
        OffersFingerprint,
        OffersKnobs,
        OffersWorkspace,
    ):
        assert isinstance(adapter, protocol)
    assert (adapter.metric.name, adapter.metric.direction) == ("val_bpb", Direction.MINIMIZE)
    assert adapter.scope.editable == ("train.py",)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"presett": "cpu"}, "no option 'presett'; known are preset, data, cache"),
        ({"preset": "tpu"}, "no preset 'tpu'"),
        ({"budget_seconds": "soon"}, "must be a number, not 'soon'"),
        ({"budget_seconds": "-3"}, "zero or more"),
        ({"min_cpu_share": "nan"}, "zero or more"),
    ],
)
def test_a_wrong_option_is_refused_when_the_adapter_is_created(options: dict[str, str], sentence: str) -> None:
    """Before anything is prepared or measured."""
    with pytest.raises(UsageError, match=sentence):
        create_adapter(options)


def test_the_noise_is_stated_only_for_the_settings_it_was_measured_with() -> None:
    """Another text or budget has a spread of its own, which the loop then estimates."""
    stated = create_adapter({"preset": "cpu"}).metric.noise
    assert stated == PRESETS["cpu"].noise
    assert create_adapter({"preset": "cpu", "data": "elsewhere"}).metric.noise is None
    assert create_adapter({"preset": "cpu", "budget_seconds": "5"}).metric.noise is None


def test_a_measurement_is_finite_and_complete(honest: Honest) -> None:
    """Value, counts and curve of an honest candidate; what a processor has not is left out."""
    measurement = honest.measurement
    assert 0.5 < measurement.value < 4.0
    assert measurement.seed == 1
    assert measurement.disturbed is None
    assert {"training_seconds", "total_seconds", "total_tokens_M", "num_steps", "num_params_M", "depth"} <= set(
        measurement.secondary
    )
    assert not {"peak_vram_mb", "mfu_percent"} & set(measurement.secondary)
    assert measurement.secondary["training_seconds"] == pytest.approx(0.5, abs=0.3)
    assert measurement.curve[-1][0] == 1.0
    assert measurement.curve[-1][1] < measurement.curve[0][1]


def test_measuring_leaves_the_artifact_alone(honest: Honest) -> None:
    """No file is changed, and no bytecode or log is left beside it."""
    assert {path.name: path.read_text() for path in honest.artifact.iterdir()} == {"train.py": tiny_trainer()}


def test_the_training_process_is_told_of_no_scored_text(honest: Honest) -> None:
    """Its task names the directory with the training documents, and scored ones lie elsewhere."""
    task = read_task(TrainTask, honest.scratch / "train.json")
    assert task.train_dir == honest.adapter.plan(1, Split.SEARCH, None).prepared.train_dir
    assert "scored" not in (honest.scratch / "train.json").read_text()
    assert not list(task.train_dir.rglob("scored"))


def test_outputs_of_a_kept_candidate_are_enough_to_sample_from(honest: Honest, tmp_path: Path) -> None:
    """Weights, script and tokenizer are copied, a second keep replaces them, and they write text."""
    destination = tmp_path / "incumbent"
    for _ in range(2):
        honest.adapter.keep_outputs(honest.scratch, destination)
    names = {path.name for path in destination.iterdir()}
    assert names == {"train.py", "weights.safetensors", "tokenizer.json", "model.json"}
    assert json.loads((destination / "model.json").read_text())["vocab_size"] == 1024
    pieces: list[str] = []
    sample_text(SampleTask(str(destination), prompt="the cät", tokens=12, temperature=0.5), pieces.append)
    text = "".join(pieces)
    assert text.startswith("the cät")
    assert len(text) > len("the cät")


def test_prepared_data_that_vanished_is_the_machines_fault(adapter: MlAdapter, run: RunContext, tmp_path: Path) -> None:
    """Somebody emptied the cache while a run was on: the candidate has no part in that."""
    plan = adapter.plan(1, Split.SEARCH, None)
    gone = replace(plan, prepared=replace(plan.prepared, path=tmp_path / "gone"))
    with pytest.raises(EnvironmentNotReadyError, match="prepared data"):
        adapter._describe_output(gone, 1.0, run.scratch)


def test_another_split_scores_other_text(honest: Honest, tmp_path: Path) -> None:
    """The weights of a training can be scored on both splits, and the values differ."""
    prepared = honest.adapter.plan(1, Split.SEARCH, None).prepared
    output = honest.scratch / "output"
    values = []
    for at, split in enumerate((Split.SEARCH, Split.SEARCH, Split.HOLDOUT)):
        folder, log = tmp_path / str(at), tmp_path / "log"
        task = EvaluateTask(output / "train.py", output / WEIGHTS, prepared.path, split.value, None, "cpu", folder, log)
        values.append(evaluate(task, *load_text(task)))
    first, again, other = (value["bits_per_byte"] for value in values)
    assert first == again == pytest.approx(honest.measurement.value, rel=1e-6)
    assert other != first


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (tiny_trainer(after_step="raise ValueError('boom')"), r"ValueError: boom \(train\.py, line 3\d\)"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("print('val_bpb: 0.1')", r"without session\.finish"),
        ("raise SystemExit(3)", "exit code 3"),
        (tiny_trainer(finished="session._budget.spent > 1.5"), r"trained for .* and the budget was 0\.5 s"),
    ],
)
def test_a_candidate_that_fails_is_at_fault_with_the_reason(
    adapter: MlAdapter, artifact: Path, run: RunContext, script: str, sentence: str
) -> None:
    """A crash, an abort, no model, an exit code and an overrun each have their sentence, and never a value."""
    with pytest.raises(CandidateError, match=sentence) as caught:
        measure(adapter, artifact, run, script)
    assert not caught.value.early
    assert not isinstance(caught.value, InvalidCandidateError)


def test_a_diverging_candidate_ends_early(adapter: MlAdapter, artifact: Path, run: RunContext) -> None:
    """Even one that swallows the harness's exception."""
    report = "        session.report(loss.item(), targets.numel())\n"
    deaf = f"        try:\n    {report}        except Exception:\n            pass\n"
    script = tiny_trainer(lr="1e30").replace(report, deaf)
    with pytest.raises(CandidateError, match="diverged") as caught:
        measure(adapter, artifact, run, script)
    assert caught.value.early


def test_a_model_that_sees_the_future_is_invalid(adapter: MlAdapter, artifact: Path, run: RunContext) -> None:
    """The mask leaks in training as in evaluation: the best value of all, and worth nothing."""
    leaking = tiny_trainer(forward="self.table(tokens) + 9 * nn.functional.one_hot(tokens.roll(-1, 1), 1024)")
    with pytest.raises(InvalidCandidateError, match="sees the future"):
        measure(adapter, artifact, run, leaking)


def test_weights_of_another_model_are_the_candidates_fault(artifact: Path, tmp_path: Path) -> None:
    """What was trained must be what build_model builds."""
    save_file({"weight": torch.zeros(2, 2)}, tmp_path / WEIGHTS)
    with pytest.raises(CandidateError, match="do not fit the model"):
        CandidateModel(artifact / "train.py", vocab_size=300, device="cpu").load(tmp_path / WEIGHTS)


def test_a_script_that_trains_on_import_is_told_where_to_call_main(artifact: Path, tmp_path: Path) -> None:
    """The evaluator imports it, and must not train a second time."""
    eager = artifact / "train.py"
    eager.write_text(tiny_trainer().replace('if __name__ == "__main__":', "if True:"), encoding="utf-8")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from autoresearch.adapters.ml_training import harness, predict_process\n"
        "harness.forbid_training()\n"
        "predict_process.import_candidate(Path(sys.argv[1]))\n"
    )
    result = subprocess.run([sys.executable, "-c", program, eager], capture_output=True, text=True)
    assert "CandidateError: train.py begins to train when it is imported" in result.stderr


def test_operations_of_a_model_are_counted_three_times_forward(tmp_path: Path) -> None:
    """A matrix of 300 by 8 costs 2 * 300 * 8 operations per token forward; looking a row up costs none."""
    tiny = tiny_trainer(forward="self.head(self.table(tokens))").replace(
        "self.table = nn.Embedding(vocab_size, vocab_size)",
        "self.table = nn.Embedding(vocab_size, 8); self.head = nn.Linear(8, vocab_size, bias=False)",
    )
    (tmp_path / "train.py").write_text(tiny, encoding="utf-8")
    model = CandidateModel(tmp_path / "train.py", vocab_size=300, device="cpu")
    assert model.flops_per_token() == 3 * 2 * 300 * 8


def test_the_fingerprint_changes_with_the_scored_text(adapter: MlAdapter) -> None:
    """One changed byte of what is scored makes values incomparable, and it shows."""
    before = adapter.evaluator_fingerprint()
    assert adapter.evaluator_fingerprint() == before
    path = adapter.plan(0, Split.SEARCH, None).prepared.path / "scored" / "search" / "tokens.bin"
    original = path.read_bytes()
    try:
        path.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        assert adapter.evaluator_fingerprint() != before
    finally:
        path.write_bytes(original)
    assert adapter.evaluator_fingerprint() == before


def test_a_device_that_does_not_fit_the_preset_names_the_one_that_does(adapter: MlAdapter, run: RunContext) -> None:
    """A budget of CPU seconds means nothing on a GPU."""
    elsewhere = RunContext(log=run.log, scratch=run.scratch, device="mps")
    with pytest.raises(UsageError, match="--preset mps"):
        adapter.plan(0, Split.SEARCH, elsewhere)


def test_the_budget_of_the_run_comes_before_the_options(adapter: MlAdapter, run: RunContext) -> None:
    """And the option before the preset's."""
    longer = RunContext(log=run.log, scratch=run.scratch, budget_seconds=7.0)
    assert adapter.plan(0, Split.SEARCH, longer).budget_seconds == 7.0
    assert adapter.plan(0, Split.SEARCH, run).budget_seconds == 0.5
    assert 7.0 < adapter.measure_seconds(longer) < 30.0


def test_a_cache_that_cannot_be_written_is_replaced_by_the_workspace(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read-only home is said in one line and stops nothing."""
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "home" / name))
    workspace = tmp_path / "workspace"
    adapter = MlAdapter(Options(preset="cpu", data=str(corpus)))
    prepared = adapter.prepare_text(Workspace(workspace))
    assert prepared.path.is_relative_to(workspace / ".autoresearch" / "data")
    assert "not writable" in capsys.readouterr().err


def test_a_relative_data_path_means_the_workspaces_file(corpus: Path, cache: Path, tmp_path: Path) -> None:
    """So that a run can be resumed from anywhere."""
    (tmp_path / "my.jsonl").write_bytes(corpus.read_bytes())
    adapter = MlAdapter(Options(preset="cpu", data="my.jsonl", cache=str(cache)))
    assert "my.jsonl" in str(adapter.prepare_text(Workspace(tmp_path)).manifest["source"])


def test_declared_knobs_are_constants_of_the_template() -> None:
    """None is declared for a constant that is gone, and each allows the value that stands there."""
    for preset in PRESETS:
        adapter = create_adapter({"preset": preset})
        template = adapter.workspace_files()["train.py"]
        knobs = {knob.name: knob for knob in adapter.knobs(Artifact({"train.py": template}))}
        assert set(knobs) == {knob.name for knob in KNOWN}
        values = {name: ast.literal_eval(text) for name, text in constants_of(template).items() if name in knobs}
        for name, knob in knobs.items():
            assert (knob.path, knob.category != "constants") == ("train.py", True)
            if knob.choices:
                assert values[name] in [ast.literal_eval(choice) for choice in knob.choices], name
            elif not knob.frozen:
                assert (knob.low or 0) <= values[name] <= (knob.high or 0), name


def test_a_script_that_does_not_parse_has_no_knobs() -> None:
    """Its check says what is wrong."""
    assert create_adapter({"preset": "cpu"}).knobs(Artifact({"train.py": "x = ("})) == []


def test_a_knob_that_turns_nothing_is_frozen() -> None:
    """A window that no layer uses, tables that are left out, and how a step is cut up: turning them wastes a run."""
    adapter = create_adapter({"preset": "cpu"})

    def frozen(script: str) -> set[str]:
        return {knob.name for knob in adapter.knobs(Artifact({"train.py": script})) if knob.frozen}

    rest = "SHORT_WINDOW = 64\nTABLE_ROWS = 8\nTABLE_LR = 0.1\nDEVICE_BATCH = 8\n"
    assert frozen(f'WINDOWS = "L"\nGRAMS = 1\n{rest}') == {"SHORT_WINDOW", "TABLE_ROWS", "TABLE_LR", "DEVICE_BATCH"}
    assert frozen(f'WINDOWS = "SL"\nGRAMS = 3\n{rest}') == {"DEVICE_BATCH"}


def test_the_templates_own_script_passes_its_check() -> None:
    """Every preset begins with an artifact that the loop would accept."""
    for name in PRESETS:
        adapter = create_adapter({"preset": name})
        adapter.check(Artifact(adapter.workspace_files()))
