"""A proposer that asks a coding agent: the question lies in the workspace until somebody answers it there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from autoresearch.core.artifact import Artifact
from autoresearch.core.errors import RunStoppedError, UsageError
from autoresearch.core.proposers import Cost, CostEstimate, Proposal, ProposalRequest
from autoresearch.core.proposers.exchange import Answer, Exchange, asked_of, candidate_of, key_of
from autoresearch.core.proposers.prompt import categories
from autoresearch.core.proposers.redact import Redactor

__all__ = ["McpProposer"]

PATIENCE_SECONDS = 3600.0
"""How long an answer is waited for before the run ends: an agent that was closed never answers."""

POLL_SECONDS = 0.5
"""How often the run looks for the answer."""


class McpProposer:
    """Leaves each request in the workspace for `autoresearch mcp` and waits for the answer.

    Args:
        patience_seconds: How long to wait for one answer.
        environ: Where secrets to be hidden are looked up; None: the process's environment.
    """

    name = "mcp"

    def __init__(self, *, patience_seconds: float = PATIENCE_SECONDS, environ: Mapping[str, str] | None = None) -> None:
        self._patience = patience_seconds
        self._redact = Redactor(os.environ if environ is None else environ)
        self._exchange: Exchange | None = None
        self._wait: Callable[[float], None] = time.sleep
        self._say: Callable[[str], None] = lambda text: None
        self._introduced = False

    def attend(self, folder: Path, wait: Callable[[float], None], say: Callable[[str], None]) -> None:
        """Begin a session; see `autoresearch.core.proposers.AwaitsAnswers`."""
        self._exchange, self._wait, self._say = Exchange(folder), wait, say
        self._exchange.forget_request()

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        """Say that nothing is known: what an agent costs is between it and its owner."""
        return CostEstimate(usd=0.0, tokens=0, seconds=0.0, basis="a coding agent proposes; its own costs are not seen")

    def propose(self, request: ProposalRequest) -> Proposal:
        """Wait for the answer of a coding agent; see `autoresearch.core.proposers.Proposer`.

        Raises:
            ProposalError: If the answer cannot be taken.
            RunStoppedError: If nobody answers for too long, or the run is to end meanwhile.
        """
        if self._exchange is None:
            raise UsageError(
                "The proposer mcp answers through the workspace of a run, and there is none.\n"
                "Begin one: autoresearch run --proposer mcp"
            )
        began = time.monotonic()
        answer = self._answer(self._exchange, request)
        candidate: Artifact = candidate_of(answer, request.artifact, request.scope, list(categories(request.knobs)))
        return Proposal(
            hypothesis=self._redact(answer.hypothesis.strip()),
            category=answer.category,
            artifact=candidate,
            cost=Cost(seconds=time.monotonic() - began, model=answer.model),
        )

    def _answer(self, exchange: Exchange, request: ProposalRequest) -> Answer:
        key = key_of(request)
        exchange.ask(asked_of(request, self._redact))
        if (answer := exchange.answer_to(key)) is not None:
            return answer  # it was given while no run was at work
        self._introduce(request.number)
        try:
            return self._awaited(exchange, key, request.number)
        except BaseException:
            exchange.forget_request()  # nobody waits any more; whoever goes on with the run asks again
            raise

    def _awaited(self, exchange: Exchange, key: str, number: int) -> Answer:
        waited = 0.0  # of this process's own time: a pause, or a machine that sleeps, is nobody's silence
        while (answer := exchange.answer_to(key)) is None:
            if waited >= self._patience:
                raise RunStoppedError(
                    f"stopped: no coding agent proposed experiment {number} within {self._patience / 60:g} min; "
                    "run again to go on where it waits",
                    fault=True,
                )
            self._wait(POLL_SECONDS)
            waited += POLL_SECONDS
        return answer

    def _introduce(self, number: int) -> None:
        """Say whom the run waits for; how to connect only once."""
        how = "" if self._introduced else " It connects with autoresearch mcp; autoresearch stop ends the waiting."
        self._say(f"Experiment {number} waits for the proposal of a coding agent.{how}")
        self._introduced = True
