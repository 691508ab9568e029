"""The evaluator's side of a predicting process: starts it, asks it, and believes nothing but the numbers it gets.

Questions and answers are raw numbers on two named pipes, read and written without ever waiting for a process that has
ended. Whatever the other side does - crash, hang, lie about shapes, write too much - ends as a `CandidateError`.
"""

from __future__ import annotations

import fcntl
import os
import queue
import select
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.ml_training.task import (
    ANSWERS,
    END,
    FRESH,
    LONGEST_REASON,
    REQUEST_HEADER,
    REQUESTS,
    TRAINED,
    PredictTask,
    write_task,
)
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, InvalidCandidateError
from autoresearch.core.executor import Finished, Limits, run_process
from autoresearch.core.sandbox import Confinement, Level

BLOCK_BYTES: Final = 4 << 20
"""Logits that are read at once: they stay in the processor's cache while their losses are computed."""
PIPE_BYTES: Final = 1 << 20
"""Size asked for the pipe of answers; the usual 64 KiB would make the two processes wake each other for every row."""
LONGEST_CONTEXT: Final = 1 << 20
END_SECONDS: Final = 5.0
"""Time that a predicting process has to end by itself once there are no more questions."""


class RemoteModel:
    """A candidate's model in another process; a `Predictor`. Get it from `remote_model`.

    Attributes:
        folder: Where the pipes and the task file are; nothing else that the process may write to.
    """

    def __init__(self, task: PredictTask, *, limits: Limits, log: Path, level: Level) -> None:
        self.folder = task.folder
        self._vocab_size = task.vocab_size
        self._news: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self._complaint: CandidateError | None = None
        self._finished: Finished | None = None
        self._fault: BaseException | None = None
        self._about: Mapping[str, Any] | None = None
        self._stack = ExitStack()
        self._open_pipes()
        path = self.folder / "predict.json"
        write_task(replace(task, confined=level.confines), path)
        command = partial(
            run_process,
            [sys.executable, "-P", "-m", f"{__package__}.predict_process", str(path)],
            cwd=self.folder,
            log=log,
            limits=limits,
            on_message=self._take_message,
            level=level,
            confinement=Confinement(
                readable=(task.train_py, task.weights), writable=(self.folder,), gpu=task.device.startswith("cuda")
            ),
        )
        self._thread = threading.Thread(target=self._run, args=(command,), name="predicting", daemon=True)
        self._thread.start()

    # Predictor

    @property
    def context(self) -> int:
        """Longest window that the model takes, in tokens; waits until the model is built."""
        context = self._built().get("context")
        if isinstance(context, bool) or not isinstance(context, int) or not 1 <= context <= LONGEST_CONTEXT:
            raise CandidateError(f"CONTEXT of train.py is {context!r}; it must be a positive whole number of tokens.")
        return context

    @property
    def flops_per_token(self) -> float | None:
        """Floating-point operations of training per token, by the process's own account; None where not counted."""
        flops = self._built().get("flops_per_token")
        return float(flops) if isinstance(flops, int | float) else None

    def logits(self, tokens: NDArray[np.int64], *, fresh: bool = False) -> Iterator[NDArray[np.float32]]:
        """Ask for logits; see `Predictor.logits`.

        Raises:
            CandidateError: If the process ended instead of answering.
            EnvironmentNotReadyError: If the machine is at fault.
        """
        rows, columns = tokens.shape
        header = struct.pack(REQUEST_HEADER, FRESH if fresh else TRAINED, rows, columns)
        self._send(header + tokens.astype(np.int32).tobytes())
        row_bytes = 4 * self._vocab_size
        positions = max(1, BLOCK_BYTES // row_bytes)
        buffer = np.empty((positions, self._vocab_size), dtype=np.float32)
        left = rows * columns
        while left:
            block = buffer[: min(left, positions)]
            self._receive_into(block.data.cast("B"))
            left -= len(block)
            yield block

    def close(self) -> None:
        """Let the process end, and wait for it a moment; one that stays is ended with this process at the latest."""
        if self._thread.is_alive():
            self._try_to_send(struct.pack(REQUEST_HEADER, END, 0, 0))
            self._thread.join(END_SECONDS)
        if not self._thread.is_alive():
            self._stack.close()

    # Inside

    def _open_pipes(self) -> None:
        self.folder.mkdir(parents=True)
        for name in (REQUESTS, ANSWERS):
            os.mkfifo(self.folder / name)
        # Both ends here: opened before there is a reader, and no signal once there is none any more.
        self._requests = self._opened(self.folder / REQUESTS, os.O_RDWR | os.O_NONBLOCK)
        self._answers = self._opened(self.folder / ANSWERS, os.O_RDONLY | os.O_NONBLOCK)
        self._ended, self._ending = os.pipe()
        self._stack.callback(os.close, self._ended)
        if sys.platform.startswith("linux"):
            try:
                fcntl.fcntl(self._answers, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            except PermissionError:
                print("The pipe of answers stays small: this user has too many large pipes.", file=sys.stderr)

    def _opened(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def _run(self, command: Callable[[], Finished]) -> None:
        """Run the process in a thread of its own, whose end is the end of the pipe `_ended`."""
        try:
            self._finished = command()
        except BaseException as error:  # noqa: BLE001 - raised anew in the thread that waits for answers
            self._fault = error
        finally:
            self._news.put({})
            os.close(self._ending)

    def _take_message(self, message: Mapping[str, Any]) -> None:
        kind, reason = message.get("kind"), str(message.get("reason"))[:LONGEST_REASON]
        if kind in ("crashed", "invalid"):
            self._complaint = CandidateError(reason) if kind == "crashed" else InvalidCandidateError(reason)
        elif kind == "built" and self._about is None:
            self._news.put(message)

    def _built(self) -> Mapping[str, Any]:
        if self._about is None:
            about = self._news.get()
            if not about:
                raise self._failure()
            self._about = about
        return self._about

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            _, writable, _ = select.select([self._ended], [self._requests], [])
            if not writable or self._has_ended():
                raise self._failure()
            rest = rest[os.write(self._requests, rest) :]

    def _try_to_send(self, data: bytes) -> None:
        try:
            os.write(self._requests, data)
        except BlockingIOError:  # it does not read: it will not end by itself either
            return

    def _receive_into(self, rest: memoryview) -> None:
        while rest:
            readable, _, _ = select.select([self._answers, self._ended], [], [])
            try:
                count = os.readv(self._answers, [rest])
            except BlockingIOError:
                if self._ended in readable:
                    raise self._failure() from None
                continue
            if count == 0:
                raise self._failure()
            rest = rest[count:]

    def _has_ended(self) -> bool:
        return bool(select.select([self._ended], [], [], 0)[0])

    def _failure(self) -> BaseException:
        """Return why there is no answer."""
        self._thread.join()
        if isinstance(self._fault, EnvironmentNotReadyError):
            return EnvironmentNotReadyError(str(self._fault))
        if self._fault is not None:
            return self._fault
        assert self._finished is not None, "the thread ends with a result or an exception"
        if self._complaint is not None and self._finished.stopped is None:
            return self._complaint
        return CandidateError(f"The evaluation of the trained model {self._finished.ending}.")


@contextmanager
def remote_model(task: PredictTask, *, limits: Limits, log: Path, level: Level) -> Iterator[RemoteModel]:
    """Start a predicting process; it ends with the block.

    Args:
        task: The model; its folder must not exist yet.
        limits: When the process is ended.
        log: File that its output is appended to.
        level: How far it is kept apart from the machine.
    """
    model = RemoteModel(task, limits=limits, log=log, level=level)
    try:
        yield model
    finally:
        model.close()
