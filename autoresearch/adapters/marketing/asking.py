"""Asking a Claude model about texts of past tests: under a cap, and never twice for the same question.

Answers are kept beside the campaign's state, so that a map drawn again costs nothing and one that broke off goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.core import EnvironmentNotReadyError, ProposalError, UsageError

if TYPE_CHECKING:
    import anthropic

ASKED_NAME = "asked.jsonl"
"""Questions, as hashes, with their answers; in the folder of a campaign's state."""

_MOST_ANSWER = 8_000
_BYTES = 2.5  # of a token, at the least: the cap must hold for the worst prompt


def anthropic_client(way_out: str, environ: Mapping[str, str] | None = None) -> anthropic.Anthropic:
    """Return a client of the Claude API.

    Args:
        way_out: What a person may do without one, for the message.
        environ: Where key and address are looked up; None: the process's environment.

    Raises:
        EnvironmentNotReadyError: If there is no key, or it cannot be read.
    """
    import anthropic

    from autoresearch.core.proposers.claude import has_credentials
    from autoresearch.core.proposers.prices import is_loopback

    environ = os.environ if environ is None else environ
    if not has_credentials(environ):
        raise EnvironmentNotReadyError(
            f"There is no key for the Claude API, so no model can be asked.\nSet ANTHROPIC_API_KEY, or {way_out}."
        )
    # A proxy that the environment names must not see what is meant for this machine.
    here = is_loopback(environ.get("ANTHROPIC_BASE_URL", ""))
    try:
        return anthropic.Anthropic(
            max_retries=4,
            timeout=120.0,
            http_client=anthropic.DefaultHttpxClient(trust_env=False) if here else None,
        )
    except anthropic.AnthropicError as error:
        raise EnvironmentNotReadyError(
            f"The credentials of the Claude API cannot be read: {type(error).__name__}.\n"
            f"Set ANTHROPIC_API_KEY, or {way_out}."
        ) from error


class ClaudeAsk:
    """Sends one prompt at a time and returns the answer's text; what was asked before is answered from the file.

    Args:
        folder: Folder of the campaign's state.
        model: Name of the model; empty: the default of the proposer.
        max_usd: Dollars that all calls together may cost.
        way_out: What a person may do without a model, for messages.

    Attributes:
        model: Name of the model.
        calls: Calls so far.
        usd: What they cost at list prices.

    Raises:
        EnvironmentNotReadyError: If there is no key.
    """

    def __init__(self, folder: Path, *, model: str = "", max_usd: float, way_out: str) -> None:
        from autoresearch.core.proposers.claude import DEFAULT_MODEL
        from autoresearch.core.proposers.prices import price_of

        self.model = model or DEFAULT_MODEL
        self.calls = 0
        self.usd = 0.0
        self._path = folder / ASKED_NAME
        self._way_out = way_out
        self._max_usd = max_usd
        self._client = anthropic_client(way_out)
        self._price = price_of(self.model, str(self._client.base_url))
        self._known = self._read()
        self._last = ""

    def __call__(self, prompt: str) -> str:
        """Return the answer to a prompt.

        Raises:
            UsageError: If the next call could cost more than what is left; it was not made.
            EnvironmentNotReadyError: If the model cannot be asked.
            ProposalError: If it declines, or breaks off.
        """
        key = hashlib.sha256(f"{self.model}\0{prompt}".encode()).hexdigest()
        self._last = key
        if key not in self._known:
            self._known[key] = self._asked(prompt)
            self._keep(key)
        return self._known[key]

    @property
    def spent(self) -> str:
        """What was asked and spent, in words."""
        if not self.calls:
            return f"{self.model} was asked nothing new."
        return f"{self.model} was asked {self.calls} time{'s' if self.calls > 1 else ''}, for ${self.usd:.2f}."

    def _asked(self, prompt: str) -> str:
        import anthropic

        from autoresearch.core.proposers.prices import Usage

        worst = self._price.usd(Usage(fresh=int(len(prompt.encode()) / _BYTES), out=_MOST_ANSWER))
        if self.usd + worst > self._max_usd:
            raise UsageError(
                f"The next call to {self.model} could cost ${worst:.2f}, and ${self._max_usd - self.usd:.2f} of "
                f"${self._max_usd:.2f} is left. It was not made, and the {self.calls} answers so far are kept.\n"
                f"Raise the cap with --max-usd, or {self._way_out}."
            )
        try:
            reply = self._client.messages.create(
                model=self.model,
                max_tokens=_MOST_ANSWER,
                messages=[{"role": "user", "content": [{"type": "text", "text": prompt}]}],
            )
        except anthropic.AnthropicError as error:
            what = " ".join(map(str, (type(error).__name__, getattr(error, "status_code", ""))))
            raise EnvironmentNotReadyError(
                f"{self.model} cannot be asked: {what.strip()}; what it answered before is kept.\n"
                f"Run the same command again later, or {self._way_out}."
            ) from error
        self.calls += 1
        self.usd += self._price.usd(Usage(fresh=reply.usage.input_tokens, out=reply.usage.output_tokens))
        if reply.stop_reason != "end_turn":
            raise ProposalError(
                f"{self.model} gave no whole answer ({reply.stop_reason}).\nAsk again, or {self._way_out}."
            )
        return "".join(block.text for block in reply.content if block.type == "text")

    def forget_last(self) -> None:
        """Take the latest answer back, which was of no use: next time it is asked again."""
        from autoresearch.core.formats import write_by_rename

        self._known.pop(self._last, None)
        write_by_rename(self._path, "".join(map(self._line, self._known)))

    def _read(self) -> dict[str, str]:
        try:
            whole, _, _ = self._path.read_text(encoding="utf-8").rpartition("\n")
        except FileNotFoundError:
            return {}
        # Half a line, where a kill cut one short, is asked again.
        try:
            rows: list[Any] = [json.loads(line) for line in whole.split("\n") if line]
            return {row["asked"]: row["answer"] for row in rows}
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self._path} is damaged: {error}.\nTake it away; what it holds is then asked again."
            ) from error

    def _keep(self, key: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # half a line, where a kill cut one short
            file.write(self._line(key).encode())

    def _line(self, key: str) -> str:
        return json.dumps({"asked": key, "answer": self._known[key]}, ensure_ascii=False) + "\n"
