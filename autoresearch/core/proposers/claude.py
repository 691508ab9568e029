"""Hypotheses from Claude, or from any server that speaks the Messages API.

One streamed call per proposal with structured output. Whatever comes back is turned into a `Proposal`, a
`ProposalError` that carries its cost, or an `EnvironmentNotReadyError` where no later call can work either.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoresearch.core.artifact import Artifact
from autoresearch.core.errors import BudgetExhaustedError, EnvironmentNotReadyError, ProposalError
from autoresearch.core.proposers import Cost, CostEstimate, Proposal, ProposalRequest
from autoresearch.core.proposers.edits import SearchReplace, WholeFile, apply_edits
from autoresearch.core.proposers.prices import MODEL_PRICES, PRICES_AS_OF, Price, Usage, is_loopback, price_of
from autoresearch.core.proposers.prompt import Block, Prompt, build_prompt, categories
from autoresearch.core.proposers.redact import Redactor, one_line

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import MessageParam, RawMessageStreamEvent, TextBlockParam

__all__ = ["DEFAULT_MODEL", "Answer", "ClaudeProposer", "answer_schema", "has_credentials"]

DEFAULT_MODEL = "claude-sonnet-5-5"
"""Half the price of the next larger model; one proposal on a small trainer costs a few cents."""

Effort = Literal["low", "medium", "high", "xhigh", "max"]

_API = "https://api.anthropic.com"
_CONSOLE = "https://platform.claude.com"

# Bytes per token. Code and English take 3 to 4 with current tokenizers; no ordinary text takes fewer than 2, so the
# second figure bounds what a call can cost.
_TYPICAL_BYTES = 3.0
_WORST_BYTES = 2.0
_SCHEMA_TOKENS = 1_500  # what structured output adds to the prompt, generously
_TYPICAL_ANSWER = 5_000  # tokens, thinking included
_TYPICAL_SECONDS = 60.0
_SMALLEST_ANSWER = 8_000  # with less room than this, thinking alone may use it up and the money buys nothing

_FIRST_BACKOFF = 0.5
_LONGEST_BACKOFF = 30.0
_SHORTEST_PAUSE = 0.25
# Before anything was ever reached, a wrong address is likelier than a passing fault, and a person may be waiting.
_PATIENCE_AT_FIRST = 6.0

_HYPOTHESIS = 300
_SAID = 300


class EditAnswer(BaseModel):
    """One search/replace block as the model writes it."""

    path: str = Field(description="Path of the file, as shown.")
    search: str = Field(description="Lines copied exactly from the file as shown; they must stand in it exactly once.")
    replace: str = Field(description="What stands there instead.")


class FileAnswer(BaseModel):
    """One whole file as the model writes it."""

    path: str = Field(description="Path of a new file, or of one to be rewritten from end to end.")
    text: str = Field(description="The whole text of the file.")


class Answer(BaseModel):
    """What the model has to answer, in the order in which it writes: reason before edit."""

    model_config = ConfigDict(title="experiment")

    hypothesis: str = Field(description="One sentence: what will change, and why the number should move.")
    category: str = Field(description="Kind of idea, from the list in the prompt.")
    expected_effect: str = Field(description="How far the number should move, in its unit, and how sure you are.")
    edits: list[EditAnswer] = Field(description="Search/replace blocks; empty where whole files are given.")
    files: list[FileAnswer] = Field(description="Whole files; empty where search/replace blocks do.")


def answer_schema(names: Iterable[str]) -> dict[str, Any]:
    """Return the JSON schema of an `Answer` whose category is one of `names`.

    It is the same for every request of a run: a changed schema would empty the prompt cache.
    """
    from anthropic import transform_schema

    schema = Answer.model_json_schema()
    schema["properties"]["category"] |= {"enum": list(names)}
    return transform_schema(schema)


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Say whether the environment holds a key or token for the Claude API; opens nothing, imports nothing."""
    return any(environ.get(name, "").strip() for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))


@dataclass(slots=True)
class _Reply:
    """What has arrived of an answer so far."""

    started: bool = False
    text: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    stop_reason: str | None = None
    refusal: str = ""

    def take(self, event: RawMessageStreamEvent) -> None:
        """Add one event of the stream."""
        if event.type == "message_start":
            self.started = True
            self.usage = _usage(event.message.usage, self.usage)
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            self.text.append(event.delta.text)
        elif event.type == "message_delta":
            self.stop_reason = event.delta.stop_reason
            self.usage = _usage(event.usage, self.usage)
            details = event.delta.stop_details
            if details is not None:
                self.refusal = " ".join(filter(None, (details.category, details.explanation)))

    @property
    def billed(self) -> Usage:
        """Tokens to be charged.

        A stream that is cut reports no final count, but what was written was written: the text that arrived is counted.
        """
        if self.stop_reason is not None:
            return self.usage
        arrived = int(len("".join(self.text).encode()) / _TYPICAL_BYTES)
        usage = self.usage
        return Usage(usage.fresh, usage.cache_read, usage.write_5m, usage.write_1h, max(usage.out, arrived))


def _usage(raw: Any, before: Usage) -> Usage:
    """Return the counts of an event; they are cumulative, and one that is missing stays as it was."""
    written = getattr(raw, "cache_creation_input_tokens", None)
    split = getattr(raw, "cache_creation", None)
    write_5m, write_1h = before.write_5m, before.write_1h
    if split is not None:
        write_5m, write_1h = split.ephemeral_5m_input_tokens or 0, split.ephemeral_1h_input_tokens or 0
    elif written is not None and written != write_5m + write_1h:
        write_5m, write_1h = 0, written  # an hour is what is asked for
    return Usage(
        fresh=_count(raw, "input_tokens", before.fresh),
        cache_read=_count(raw, "cache_read_input_tokens", before.cache_read),
        write_5m=write_5m,
        write_1h=write_1h,
        out=_count(raw, "output_tokens", before.out),
    )


def _count(raw: Any, name: str, before: int) -> int:
    value = getattr(raw, name, None)
    return before if value is None else int(value)


class ClaudeProposer:
    """Asks a Claude model for one experiment at a time.

    Args:
        model: Name of the model.
        max_tokens: Most tokens of one answer, thinking included. Less is asked for where a cap leaves less.
        effort: How hard the model thinks; None: the model's own default. Older models refuse any value.
        patience_seconds: How long in all to wait for a busy or unreachable server before the attempt counts as failed.
        timeout_seconds: How long the server may be silent.
        api_key: The key; None: as the SDK finds it (`ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN`, a profile).
        base_url: Address of the server; None: `ANTHROPIC_BASE_URL`, else Anthropic's.
        environ: Where secrets to be hidden, the key and the address are looked up; None: the process's environment.
        sleep: Waits that many seconds.
    """

    name = "claude"

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        max_tokens: int = 32_000,
        effort: Effort | None = None,
        patience_seconds: float = 300.0,
        timeout_seconds: float = 600.0,
        api_key: str | None = None,
        base_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        environ = os.environ if environ is None else environ
        self.model = model
        self._address = base_url or environ.get("ANTHROPIC_BASE_URL", "").strip() or None
        self._key = (api_key or environ.get("ANTHROPIC_API_KEY", "")).strip()
        self._redact = Redactor({**environ, "ANTHROPIC_API_KEY": self._key})
        self._max_tokens = max_tokens
        self._effort = effort
        self._patience = patience_seconds
        self._timeout = timeout_seconds
        self._sleep = sleep
        self._reached = False
        self._spent: list[Cost] = []

    @property
    def base_url(self) -> str:
        """Address of the server."""
        return self._address or _API

    @property
    def price(self) -> Price:
        """What a call costs; see `autoresearch.core.proposers.prices`."""
        return price_of(self.model, self.base_url)

    def check_ready(self) -> None:
        """Find out before the first measurement whether a call can be made at all; opens no connection.

        Raises:
            EnvironmentNotReadyError: If there is no key, or key, address or credentials profile cannot be used.
        """
        self._client().close()

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        """Say what one proposal costs, from earlier calls where there were any; opens no connection."""
        if self._spent:
            n = len(self._spent)
            return CostEstimate(
                usd=sum(cost.usd for cost in self._spent) / n,
                tokens=round(sum(cost.tokens for cost in self._spent) / n),
                seconds=sum(cost.seconds for cost in self._spent) / n,
                basis=f"mean of {n} earlier call{'s' if n > 1 else ''} to {self.model}",
            )
        prompt = int(build_prompt(request, self._redact).size / _TYPICAL_BYTES) + _SCHEMA_TOKENS
        answer = min(_TYPICAL_ANSWER, self._max_tokens)
        return CostEstimate(
            usd=self.price.usd(Usage(write_1h=prompt, out=answer)),
            tokens=prompt + answer,
            seconds=_TYPICAL_SECONDS,
            basis=f"about {prompt:,} prompt and {answer:,} answer tokens of {self.model}, {self._price_basis()}",
        )

    def propose(self, request: ProposalRequest) -> Proposal:
        """Form one proposal; see `autoresearch.core.proposers.Proposer`.

        Raises:
            BudgetExhaustedError: If the call could cost more than what is left; nothing was spent.
            ProposalError: If this attempt failed; carries its cost.
            EnvironmentNotReadyError: If no later call can work either (no key, key refused, no credit, no network).
        """
        prompt = build_prompt(request, self._redact)
        room = self._room(request, prompt)
        started = time.monotonic()
        reply = _Reply()
        try:
            self._ask(prompt, room, categories(request.knobs), reply)
            return self._proposal(request, reply, started)
        except ProposalError as error:
            if not reply.started:
                raise
            raise type(error)(str(error), cost=self._cost(reply, started)) from error
        finally:
            if reply.started:
                self._spent.append(self._cost(reply, started))

    # Before the call

    def _room(self, request: ProposalRequest, prompt: Prompt) -> int:
        """Return how many tokens the answer may have, so that prompt and answer together stay below every cap."""
        prompt_tokens = int(prompt.size / _WORST_BYTES) + _SCHEMA_TOKENS
        rate = self.price.rate_for(prompt_tokens)
        room = self._max_tokens
        if request.tokens_left is not None:
            room = min(room, request.tokens_left - prompt_tokens)
        if request.usd_left is not None and rate.out > 0:
            left = request.usd_left - rate.usd(Usage(write_1h=prompt_tokens))
            room = min(room, int(left / rate.out * 1_000_000))
        smallest = min(_SMALLEST_ANSWER, self._max_tokens)
        if room >= smallest:
            return room
        worst = rate.usd(Usage(write_1h=prompt_tokens, out=smallest))
        raise BudgetExhaustedError(
            f"The next call to {self.model} could take {prompt_tokens + smallest:,} tokens and ${worst:.2f} "
            f"({self._price_basis()}), and {_left(request)} left. It was not made. Raise the cap, take a cheaper "
            "model, or go on with --proposer search, which costs nothing."
        )

    def _price_basis(self) -> str:
        price = self.price
        if price.rate.out == 0:
            return "at no price, as the server is on this machine"
        if not price.known:
            return "at a deliberately high price, as this model is not in the price table"
        return f"at list prices of {PRICES_AS_OF.isoformat()}"

    # The call

    def _ask(self, prompt: Prompt, max_tokens: int, names: tuple[str, ...], reply: _Reply) -> None:
        """Fill `reply`; wait and try again while the server is busy and has not begun to answer."""
        import anthropic
        import httpx2

        waited, attempts = 0.0, 0
        while True:
            attempts += 1
            try:
                self._stream(prompt, max_tokens, names, reply)
                return
            except (anthropic.APIError, httpx2.HTTPError) as error:
                if reply.started:
                    # What was written is paid for; whether to pay again is for the loop to say.
                    raise ProposalError(
                        f"The answer broke off: {self._said(error)}. It will be asked for again."
                    ) from error
                self._reached |= isinstance(error, anthropic.APIStatusError)
                pause = _pause(error, attempts)
                if pause is None or waited + pause > self._patience_for(error):
                    raise self._translated(error, attempts, waited, pause) from error
            self._sleep(pause)
            waited += pause

    def _stream(self, prompt: Prompt, max_tokens: int, names: tuple[str, ...], reply: _Reply) -> None:
        with self._client() as client:
            events = client.messages.create(
                model=self.model,
                max_tokens=max_tokens,
                system=[_block(block) for block in prompt.system],
                messages=[_message(prompt.content)],
                output_config=self._output_config(names),
                stream=True,
            )
            self._reached = True
            with events:
                self._consume(events, reply)

    def _output_config(self, names: tuple[str, ...]) -> Any:
        # The schema goes in by hand and not as `output_format`: the SDK would validate in the middle of the stream, and
        # an answer that fails there would never report what it cost.
        config: dict[str, Any] = {"format": {"type": "json_schema", "schema": answer_schema(names)}}
        if self._effort is not None:
            config["effort"] = self._effort
        return config

    def _consume(self, events: Iterable[RawMessageStreamEvent], reply: _Reply) -> None:
        try:
            for event in events:
                reply.take(event)
                if event.type == "message_stop":
                    break
        except (AttributeError, TypeError, ValueError) as error:
            # The SDK does not check what it receives; a server that is no Messages API shows here.
            raise ProposalError(
                f"The server at {self.base_url} sent something that is no Messages stream: {self._said(error)}."
            ) from error

    def _client(self) -> anthropic.Anthropic:
        import anthropic

        self._check_address()
        # A key is not needed on the person's own server, but the SDK insists on one.
        key = self._key or ("none" if is_loopback(self.base_url) else None)
        try:
            client = anthropic.Anthropic(
                api_key=key,
                base_url=self._address,  # None lets a credentials profile name its own
                timeout=anthropic.Timeout(self._timeout, connect=10.0),
                # Retried here: the SDK would sleep for as long as a retry-after header says, be it a day.
                max_retries=0,
                # A proxy that the environment names must not see what is meant for this machine.
                http_client=anthropic.DefaultHttpxClient(trust_env=False) if is_loopback(self.base_url) else None,
            )
        except anthropic.AnthropicError as error:
            raise EnvironmentNotReadyError(
                f"The credentials of the Claude API cannot be read: {self._said(error)}. "
                "Setting ANTHROPIC_API_KEY is enough."
            ) from error
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            client.close()
            raise EnvironmentNotReadyError(
                f"There is no key for the Claude API. Set ANTHROPIC_API_KEY (keys are made at "
                f"{_CONSOLE}/settings/keys), or run with --proposer search, which needs none."
            )
        return client

    def _check_address(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EnvironmentNotReadyError(
                f"ANTHROPIC_BASE_URL is {self._redact(self.base_url)!r}, which is no web address. "
                "Write it like http://127.0.0.1:8080."
            )
        if not self._key.isascii() or any(c.isspace() for c in self._key):
            raise EnvironmentNotReadyError(
                "ANTHROPIC_API_KEY holds white space or letters that no key has. Copy the key again, on one line."
            )

    def _patience_for(self, error: Exception) -> float:
        return self._patience if self._reached else min(self._patience, _PATIENCE_AT_FIRST)

    # After the call

    def _proposal(self, request: ProposalRequest, reply: _Reply, started: float) -> Proposal:
        answer = self._answer(reply)
        category = self._category(request, answer)
        hypothesis = one_line(self._redact(answer.hypothesis), _HYPOTHESIS)
        if not hypothesis:
            raise ProposalError(
                "The answer has no hypothesis. Say in one sentence what changes and why it should help."
            )
        return Proposal(
            hypothesis=hypothesis,
            category=category,
            artifact=self._edited(request.artifact, answer, request),
            cost=self._cost(reply, started),
            details={"expected_effect": one_line(self._redact(answer.expected_effect), _HYPOTHESIS)},
        )

    def _answer(self, reply: _Reply) -> Answer:
        text = "".join(reply.text)
        if not reply.started:
            raise ProposalError(f"The server at {self.base_url} answered without a message. Is it a Messages API?")
        if reply.stop_reason != "end_turn":
            raise ProposalError(self._why_stopped(reply))
        try:
            return Answer.model_validate_json(_unwrapped(text))
        except ValidationError as error:
            raise ProposalError(
                f"The answer is not the JSON that was asked for ({_first_fault(error)}); it begins "
                f"{one_line(self._redact(text), 120)!r}. Answer with the one JSON object and nothing else."
            ) from error

    def _why_stopped(self, reply: _Reply) -> str:
        match reply.stop_reason:
            case None:
                return "The answer was cut off before its end. It will be asked for again."
            case "refusal":
                detail = f" ({one_line(self._redact(reply.refusal), _SAID)})" if reply.refusal else ""
                return (
                    f"{self.model} refused to answer{detail}. If this repeats, say in program.md what the work is for, "
                    "or choose another model."
                )
            case "max_tokens":
                return "The answer was too long and was cut off. Change less at once, with search/replace blocks."
            case "model_context_window_exceeded":
                return f"The prompt is too long for {self.model}. Make the artifact smaller or take another model."
            case reason:
                return f"The answer stopped for another reason than its end ({one_line(str(reason), 60)})."

    def _category(self, request: ProposalRequest, answer: Answer) -> str:
        names = categories(request.knobs)
        if request.failed is not None:
            return request.failed.proposal.category  # a repair is the same experiment
        if answer.category not in names:
            said = one_line(self._redact(answer.category), 60)
            raise ProposalError(f"{said!r} is not one of the categories. Choose from {', '.join(names)}.")
        free = [name for name in names if name not in request.avoid_categories]
        if free and answer.category not in free:
            raise ProposalError(
                f"{answer.category} is on a plateau. Propose an idea of another kind: {', '.join(free)}."
            )
        return answer.category

    def _edited(self, artifact: Artifact, answer: Answer, request: ProposalRequest) -> Artifact:
        edits = [SearchReplace(edit.path, edit.search, edit.replace) for edit in answer.edits]
        files = [WholeFile(file.path, file.text) for file in answer.files]
        try:
            return apply_edits(artifact, edits, files, request.scope)
        except ProposalError as error:
            raise ProposalError(self._redact(str(error))) from error

    def _cost(self, reply: _Reply, started: float) -> Cost:
        usage = reply.billed
        return Cost(
            usd=self.price.usd(usage),
            tokens_in=usage.prompt - usage.cache_read,
            tokens_cached=usage.cache_read,
            tokens_out=usage.out,
            seconds=time.monotonic() - started,
            model=self.model,
        )

    # Faults

    def _said(self, error: Exception) -> str:
        """Return what an error says, in one line and without secrets."""
        said = getattr(error, "api_message", None) or str(error) or type(error).__name__
        return one_line(self._redact(str(said)), _SAID).rstrip(".")

    def _translated(
        self, error: Exception, attempts: int, waited: float, pause: float | None
    ) -> ProposalError | EnvironmentNotReadyError:
        """Return the error of ours that says what to do about one of the SDK's."""
        import anthropic

        if isinstance(error, anthropic.APITimeoutError) and not _never_connected(error):
            return ProposalError(
                f"{self.model} was silent for {self._timeout:.0f} s, so the call was given up; it may be charged."
            )
        if not isinstance(error, anthropic.APIStatusError) and not _is_connection(error):
            return ProposalError(f"The server at {self.base_url} sent something unreadable: {self._said(error)}.")
        if not isinstance(error, anthropic.APIStatusError):
            return EnvironmentNotReadyError(
                f"{self.base_url} cannot be reached ({self._cause(error)}) after {_tries(attempts)}. Check the network "
                "and ANTHROPIC_BASE_URL, then run again: the run goes on where it stopped."
            )
        lasting = self._lasting(error)
        if lasting is not None:
            return EnvironmentNotReadyError(lasting)
        said = f"HTTP {error.status_code}: {self._said(error)}"
        if pause is not None and pause > _LONGEST_BACKOFF:
            return ProposalError(f"The server asks to wait {pause:.0f} s, longer than this run waits ({said}).")
        if _is_passing(error):
            return ProposalError(f"The server was busy or at fault for {_tries(attempts)} in {waited:.0f} s ({said}).")
        return ProposalError(f"The server refused the request as it is ({said}).")

    def _lasting(self, error: anthropic.APIStatusError) -> str | None:
        """Say what a person must do about an error that every later call would meet too; None for any other."""
        status, said = error.status_code, self._said(error)
        if _is_about_money(error):
            return (
                f"The account cannot pay for the call (HTTP {status}: {said}). Add credit or raise the spend limit at "
                f"{_CONSOLE}/settings/billing, then run again: the run goes on where it stopped."
            )
        match status:
            case 401:
                return (
                    f"The API key was refused (HTTP 401: {said}). Set ANTHROPIC_API_KEY to a valid key from "
                    f"{_CONSOLE}/settings/keys, or run with --proposer search."
                )
            case 403:
                return (
                    f"The API key may not use {self.model} (HTTP 403: {said}). Take a key or a model that is allowed, "
                    "or run with --proposer search."
                )
            case 404:
                return (
                    f"{self.base_url} knows no model {self.model!r} (HTTP 404: {said}). Give one with --model "
                    f"({', '.join(MODEL_PRICES)}) and check ANTHROPIC_BASE_URL."
                )
            case _ if 400 <= status < 500 and status not in (400, 408, 409, 413, 422, 429):
                return f"{self.base_url} does not take the call (HTTP {status}: {said}). Check ANTHROPIC_BASE_URL."
            case _:
                return None

    def _cause(self, error: Exception) -> str:
        return self._said(error.__cause__ if isinstance(error.__cause__, Exception) else error)


def _block(block: Block) -> TextBlockParam:
    if not block.cached:
        return {"type": "text", "text": block.text}
    # For an hour: a measurement takes minutes, and the five minutes that are the default would have passed each time.
    return {"type": "text", "text": block.text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}


def _message(content: Iterable[Block]) -> MessageParam:
    return {"role": "user", "content": [_block(block) for block in content]}


def _unwrapped(text: str) -> str:
    """Return the answer without the Markdown fence that models put around JSON where nothing enforces the schema."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text[3:-3].removeprefix("json").strip()
    return text


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    return one_line(f"{where}: {fault['msg']}" if where else fault["msg"], 160)


def _left(request: ProposalRequest) -> str:
    left = []
    if request.usd_left is not None:
        left.append(f"${max(0.0, request.usd_left):.2f}")
    if request.tokens_left is not None:
        left.append(f"{max(0, request.tokens_left):,} tokens")
    return " and ".join(left) + " are"


def _tries(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _is_connection(error: Exception) -> bool:
    import anthropic
    import httpx2

    return isinstance(error, anthropic.APIConnectionError | httpx2.HTTPError)


def _never_connected(error: Exception) -> bool:
    import httpx2

    return isinstance(error.__cause__, httpx2.ConnectTimeout)


def _is_about_money(error: anthropic.APIStatusError) -> bool:
    """Say whether the account is the reason: no later call works, and no waiting helps."""
    if error.status_code == 402 or error.type == "billing_error" or "spend_limit" in (error.error_code or ""):
        return True
    # These two come as an ordinary 400 or 429 without a code of their own; only the words tell.
    said = (error.api_message or "").lower()
    return error.status_code in (400, 403, 429) and any(
        words in said for words in ("credit balance", "usage limits", "spend limit")
    )


def _is_passing(error: anthropic.APIStatusError) -> bool:
    """Say whether the same call may work a little later."""
    said = error.response.headers.get("x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    if error.status_code < 400:  # an error event inside a stream that had begun as a success
        return error.type in ("overloaded_error", "rate_limit_error", "api_error", "timeout_error")
    return error.status_code in (408, 409, 429) or error.status_code >= 500


def _pause(error: Exception, attempts: int) -> float | None:
    """Return how many seconds to wait before the next attempt; None where there should be none."""
    import anthropic

    backoff = min(_FIRST_BACKOFF * 2.0 ** (attempts - 1), _LONGEST_BACKOFF) * random.uniform(0.75, 1.0)
    if isinstance(error, anthropic.APIStatusError):
        if not _is_passing(error) or _is_about_money(error):
            return None
        asked = _retry_after(error.response.headers)
        # Zero would let a server keep us calling for ever without the patience running out.
        return max(asked, _SHORTEST_PAUSE) if asked else backoff
    if isinstance(error, anthropic.APITimeoutError) and not _never_connected(error):
        return None  # the call may be under way and charged; a second one would be charged too
    return backoff if _is_connection(error) else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait; None where it says nothing that can be read."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) * scale)
        except ValueError:
            pass  # the other form of the header is a date
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None
    return None
