from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from typer.testing import CliRunner

from autoresearch.adapters.ml_training.commands import _with_shards, app
from autoresearch.adapters.ml_training.sample import SampleTask, continue_tokens, printable, sample_text
from autoresearch.core import UsageError
from tests.json_docs import as_documented

END = 9


class Counter:
    """Says that after token n comes n + 1, and remembers the windows it was shown."""

    context = 4

    def __init__(self) -> None:
        self.windows: list[list[int]] = []

    def logits(self, tokens: NDArray[np.int64]) -> Tensor:
        self.windows.append(tokens[0].tolist())
        following = torch.from_numpy(tokens + 1).clamp(max=END)
        return 5.0 * torch.nn.functional.one_hot(following, END + 1).float()


def written(used: int = 9, **choices: float) -> tuple[list[int], Counter]:
    model = Counter()
    task = SampleTask("", **choices)  # type: ignore[arg-type]
    return list(continue_tokens(model, [END - 9, 1], task, end=END, used=used)), model


def test_a_temperature_of_zero_takes_the_likeliest_until_the_document_ends() -> None:
    """The end itself is not written, and the model never sees more than its context."""
    tokens, model = written(temperature=0.0)
    assert tokens == [2, 3, 4, 5, 6, 7, 8]
    assert max(len(window) for window in model.windows) == 4
    assert model.windows[-1] == [5, 6, 7, 8]


def test_the_number_of_tokens_is_a_bound() -> None:
    """No more than asked for."""
    assert written(temperature=0.0, tokens=3)[0] == [2, 3, 4]


def test_the_same_seed_writes_the_same_text_and_another_seed_another() -> None:
    """Choices come from the seed alone."""
    assert written(temperature=3.0, tokens=6, seed=1)[0] == written(temperature=3.0, tokens=6, seed=1)[0]
    texts = {tuple(written(temperature=3.0, tokens=6, seed=seed)[0]) for seed in range(8)}
    assert len(texts) > 1


def test_tokens_without_a_text_are_never_chosen() -> None:
    """A vocabulary that a small text did not fill has ids between the last merge and the end."""
    for seed in range(20):
        assert set(written(used=3, temperature=10.0, tokens=30, seed=seed)[0]) <= {0, 1, 2}


def test_a_text_cannot_steer_the_terminal() -> None:
    """Escape sequences lose their escape; line ends, tabs and letters of all scripts stay."""
    assert printable("a\x1b[31mü\n\t\x07\u202e字") == "a[31mü\n\t字"


def test_sampling_without_weights_says_how_to_get_them(tmp_path: Path) -> None:
    """Before the first kept experiment there is nothing to sample from."""
    with pytest.raises(UsageError, match="no trained model"):
        sample_text(SampleTask(str(tmp_path)), print)


def test_the_command_refuses_a_folder_that_is_no_workspace(tmp_path: Path) -> None:
    """The sentence names the folder and the command that makes a workspace."""
    result = CliRunner().invoke(app, ["sample", "-w", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert "autoresearch init" in str(result.exception)


def test_a_seed_that_no_generator_takes_is_refused() -> None:
    """A number beyond 64 bits is wrong usage, not a trace out of torch."""
    for seed in ("-1", str(2**63)):
        assert CliRunner().invoke(app, ["sample", "--seed", seed]).exit_code == 2


def test_data_describes_what_was_prepared(corpus: Path, cache: Path) -> None:
    """Source, folder, and documents, bytes and tokens of each split."""
    arguments = ["data", "--data", str(corpus), "--preset", "cpu", "--cache", str(cache)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for word in ("source", "1,024 tokens", "train", "search", "holdout", "bytes"):
        assert word in result.output


def test_data_as_json_carries_the_manifest(corpus: Path, cache: Path) -> None:
    """For other programs."""
    arguments = ["data", "--data", str(corpus), "--preset", "cpu", "--cache", str(cache), "--json"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    manifest = as_documented("ml data", result.stdout)
    assert set(manifest["splits"]) == {"train", "search", "holdout"}
    assert Path(manifest["path"]).is_dir()


def test_download_replaces_the_number_of_shards_and_keeps_the_mirror() -> None:
    """Whatever order the options stand in."""
    assert _with_shards("climbmix", 3) == "climbmix:shards=3"
    assert _with_shards("climbmix:shards=9,url=http://127.0.0.1/x", 2) == "climbmix:shards=2,url=http://127.0.0.1/x"


def test_download_of_anything_but_climbmix_is_refused(corpus: Path) -> None:
    """A text of one's own has no shards."""
    result = CliRunner().invoke(app, ["data", "--data", str(corpus), "--download", "2"])
    assert isinstance(result.exception, UsageError)
    assert "climbmix" in str(result.exception)
