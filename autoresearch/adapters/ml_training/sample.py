"""Text from the incumbent's saved weights.

Runner's side: `sample_text` starts `python -m autoresearch.adapters.ml_training.sample TASK.json` and passes the text
on as it comes. The candidate's model runs in that process only, as it does when it is trained and scored.
"""

from __future__ import annotations

import codecs
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from autoresearch.adapters.ml_training.task import WEIGHTS
from autoresearch.core import CandidateError, EnvironmentNotReadyError, UsageError
from autoresearch.core.executor import Limits, die_with_parent, run_process, send_message, tail
from autoresearch.core.sandbox import Confinement, best_level

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

WALL_SECONDS: Final = 3600.0
NEEDED: Final = ("train.py", "tokenizer.json", "model.json", WEIGHTS)
"""What `MlAdapter.keep_outputs` leaves for the incumbent."""


class Model(Protocol):
    """The trained model, in this very process."""

    @property
    def context(self) -> int:
        """Longest window that it takes, in tokens, T."""
        ...

    def logits(self, tokens: NDArray[np.int64]) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T)."""
        ...


@dataclass(frozen=True, slots=True)
class SampleTask:
    """What to write.

    Attributes:
        folder: Folder with the incumbent's weights, tokenizer and script.
        prompt: Text to go on from; empty begins a new document.
        tokens: Most tokens to write; the text ends earlier where the model ends its document.
        temperature: 0 always takes the likeliest token, 1 follows the model's probabilities.
        seed: Of the random choices.
        threads: Torch threads.
    """

    folder: str
    prompt: str = ""
    tokens: int = 200
    temperature: float = 0.8
    seed: int = 0
    threads: int = 1


def sample_text(task: SampleTask, write: Callable[[str], None]) -> None:
    """Let the model write; `write` gets piece after piece, the prompt first, without control characters.

    Raises:
        UsageError: If there are no weights yet, or a number makes no sense.
        CandidateError: If the incumbent's script fails.
    """
    if task.tokens < 1 or task.temperature < 0:
        raise UsageError("Ask for at least one token, and a temperature of zero or more.")
    missing = [name for name in NEEDED if not (Path(task.folder) / name).is_file()]
    if missing:
        raise UsageError(
            f"There is no trained model in {task.folder} yet ({missing[0]} is missing).\n"
            "Weights are saved when an experiment is kept, the baseline first: autoresearch run --adapter ml"
        )
    with tempfile.TemporaryDirectory(prefix="autoresearch-") as name:
        scratch = Path(name)
        (scratch / "task.json").write_text(json.dumps(asdict(task)), encoding="utf-8")
        _run(scratch, Path(task.folder), write)


def _run(scratch: Path, folder: Path, write: Callable[[str], None]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def receive(message: Any) -> None:
        if message.get("kind") == "bytes":
            write(printable(decoder.decode(bytes.fromhex(str(message["hex"])))))

    log = scratch / "log"
    finished = run_process(
        [sys.executable, "-P", "-m", "autoresearch.adapters.ml_training.sample", str(scratch / "task.json")],
        cwd=scratch,
        log=log,
        limits=Limits(WALL_SECONDS),
        env={"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        on_message=receive,
        # Being kept has made the incumbent's script no more trustworthy.
        level=best_level(),
        confinement=Confinement(readable=(folder.absolute(),), writable=(scratch,)),
    )
    write(printable(decoder.decode(b"", final=True)))
    if finished.stopped is not None or finished.returncode != 0:
        raise CandidateError(f"Sampling from the incumbent's model {finished.ending}.\n{tail(log, lines=8)}")


def printable(text: str) -> str:
    """Drop control characters other than line ends and tabs: a model's text must not steer the terminal."""
    return "".join(letter for letter in text if letter in "\n\t" or letter.isprintable())


def continue_tokens(model: Model, start: list[int], task: SampleTask, *, end: int, used: int) -> Iterator[int]:
    """Yield sampled tokens until `end` comes up or `task.tokens` are written.

    Args:
        model: The trained model.
        start: Tokens to go on from, at least one; only the last `context` of them are seen.
        task: How to choose.
        end: Token that ends a document; the last of the vocabulary.
        used: Tokens with a text. A small text leaves ids between them and `end` without any, and a young model still
            gives those some probability.
    """
    import numpy as np
    import torch

    randomness = torch.Generator().manual_seed(task.seed)
    tokens = list(start)
    for _ in range(task.tokens):
        window = np.array([tokens[-model.context :]], dtype=np.int64)
        logits = model.logits(window)[0, -1].float().cpu()
        logits[used:end] = -torch.inf
        if task.temperature == 0:
            chosen = int(logits.argmax())
        else:
            weights = torch.softmax(logits / task.temperature, dim=0)
            chosen = int(torch.multinomial(weights, 1, generator=randomness))
        if chosen == end:
            return
        tokens.append(chosen)
        yield chosen


def _sample(task: SampleTask) -> None:
    import torch

    from autoresearch.adapters.ml_training import harness
    from autoresearch.adapters.ml_training.data.tokenizer import Tokenizer
    from autoresearch.adapters.ml_training.predict_process import CandidateModel

    harness.forbid_training()
    folder = Path(task.folder)
    torch.set_num_threads(task.threads)
    vocab_size = int(json.loads((folder / "model.json").read_text(encoding="utf-8"))["vocab_size"])
    model = CandidateModel(folder / "train.py", vocab_size=vocab_size, device="cpu")
    model.load(folder / WEIGHTS)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    start = [tokenizer.bos_id, *tokenizer.encoding().encode_ordinary(task.prompt)]
    send_message({"kind": "bytes", "hex": task.prompt.encode().hex()})
    for token in continue_tokens(model, start, task, end=tokenizer.bos_id, used=len(tokenizer.tokens)):
        send_message({"kind": "bytes", "hex": tokenizer.tokens[token].hex()})


def main(argv: list[str]) -> int:
    """Write what the task file `argv[0]` asks for; return the exit status."""
    die_with_parent()
    task = SampleTask(**json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    try:
        _sample(task)
    except (CandidateError, EnvironmentNotReadyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
