"""The Claude proposer over real HTTP against a local stand-in: every answer becomes a proposal or a named fault."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from autoresearch.core.adapter import Direction, Metric, Outcome, Scope
from autoresearch.core.artifact import Artifact
from autoresearch.core.driver import run
from autoresearch.core.errors import BudgetExhaustedError, EnvironmentNotReadyError, ProposalError
from autoresearch.core.ledger import Ledger
from autoresearch.core.proposers import FailedCandidate, PastExperiment, Proposal, ProposalRequest, Proposer
from autoresearch.core.proposers.claude import DEFAULT_MODEL, ClaudeProposer, answer_schema, has_credentials
from autoresearch.core.proposers.prompt import CATEGORIES
from tests.anthropic_server import KEY, AnthropicServer, Fails, Raw, Reply, Says, Silent
from tests.core.fakes import SquareAdapter, make_workspace

ARTIFACT = Artifact({"train.py": "LR = 0.02\nDEPTH = 4\n"})
REQUEST = ProposalRequest(
    number=1,
    artifact=ARTIFACT,
    baseline=ARTIFACT,
    scope=Scope(editable=("train.py",)),
    metric=Metric("val_bpb", "bits per byte", Direction.MINIMIZE),
)


def answer(**changed: Any) -> str:
    whole = {
        "hypothesis": "A higher learning rate learns more in the same time.",
        "category": "optimizer",
        "expected_effect": "0.01 lower, fairly sure",
        "edits": [{"path": "train.py", "search": "LR = 0.02", "replace": "LR = 0.03"}],
        "files": [],
    }
    return json.dumps({**whole, **changed})


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer() as running:
        yield running


class Waits:
    """A clock that notes how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def proposer(server: AnthropicServer, **options: Any) -> ClaudeProposer:
    options = {"api_key": KEY, "base_url": server.url, "environ": {}, "sleep": Waits(), **options}
    return ClaudeProposer(options.pop("model", DEFAULT_MODEL), **options)


def failure(
    server: AnthropicServer, *replies: Reply, request: ProposalRequest = REQUEST, **options: Any
) -> ProposalError:
    server.script(*replies)
    with pytest.raises(ProposalError) as caught:
        proposer(server, **options).propose(request)
    assert not server.replies, "a scripted reply was never asked for"
    return caught.value


def stop(server: AnthropicServer, *replies: Reply, **options: Any) -> str:
    server.script(*replies)
    with pytest.raises(EnvironmentNotReadyError) as caught:
        proposer(server, **options).propose(REQUEST)
    return str(caught.value)


# Proposals


def test_proposal(server: AnthropicServer) -> None:
    """An answer becomes a proposal with its hypothesis, category, candidate and cost."""
    usage = {"input_tokens": 100, "cache_read_input_tokens": 2_000, "cache_creation_input_tokens": 300}
    server.script(Says(answer(), usage=usage, output_tokens=500, thinking="Let me see."))
    proposal = proposer(server).propose(REQUEST)
    assert proposal.hypothesis == "A higher learning rate learns more in the same time."
    assert proposal.category == "optimizer"
    assert proposal.artifact.files["train.py"] == "LR = 0.03\nDEPTH = 4\n"
    assert proposal.details == {"expected_effect": "0.01 lower, fairly sure"}
    cost = proposal.cost
    assert (cost.tokens_in, cost.tokens_cached, cost.tokens_out, cost.model) == (400, 2_000, 500, DEFAULT_MODEL)
    assert cost.usd == pytest.approx((100 * 2 + 2_000 * 0.1 + 300 * 4 + 500 * 10) / 1e6)
    assert cost.seconds > 0


def test_cache_lifetimes_are_charged_apart(server: AnthropicServer) -> None:
    """Tokens cached for five minutes and for an hour have prices of their own."""
    split = {"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 2_000}
    usage = {"input_tokens": 0, "cache_creation_input_tokens": 3_000, "cache_creation": split}
    server.script(Says(answer(), usage=usage, output_tokens=0, piece=10_000))
    cost = proposer(server).propose(REQUEST).cost
    assert cost.usd == pytest.approx((1_000 * 2.5 + 2_000 * 4 + cost.tokens_out * 10) / 1e6)


def test_it_is_a_proposer(server: AnthropicServer) -> None:
    """The class satisfies the protocol of the loop."""
    assert isinstance(proposer(server), Proposer)


def test_request_on_the_wire(server: AnthropicServer) -> None:
    """The request streams, carries the schema, three cache marks and the key in a header, never in the body."""
    server.script(Says(answer()))
    proposer(server).propose(replace(REQUEST, program=f"my key is {KEY}", history=(_past(1),)))
    (request,) = server.requests
    body = request.body
    assert body["stream"] is True
    assert body["model"] == DEFAULT_MODEL
    assert body["output_config"]["format"]["schema"] == answer_schema(CATEGORIES)
    blocks = [*body["system"], *body["messages"][0]["content"]]
    marks = [block.get("cache_control") for block in blocks]
    assert marks == [None, *[{"type": "ephemeral", "ttl": "1h"}] * 3, None]
    assert KEY in str(request.headers)
    assert KEY.encode() not in request.raw
    assert "tool_choice" not in body


def _past(number: int) -> PastExperiment:
    return PastExperiment(
        number=number,
        hypothesis=f"Idea {number}.",
        category="optimizer",
        outcome=Outcome.REVERTED,
        reason="No better.",
        value=2.0,
        effect=-0.1,
        interval=None,
        diff="",
        fingerprint="0" * 64,
    )


def test_consecutive_requests_share_their_prefix(server: AnthropicServer) -> None:
    """On the wire, too, the second request repeats every byte that the first one had cached."""
    server.script(Says(answer()), Says(answer()))
    asking = proposer(server)
    asking.propose(replace(REQUEST, number=2, history=(_past(1),)))
    asking.propose(replace(REQUEST, number=3, history=(_past(1), _past(2)), notes=("hurry",)))
    one, two = ([*r.body["system"], *r.body["messages"][0]["content"]] for r in server.requests)
    last = max(at for at, block in enumerate(one) if "cache_control" in block)
    assert [block["text"] for block in one[: last + 1]] == [block["text"] for block in two[: last + 1]]
    fixed = ("model", "output_config", "max_tokens")
    assert [server.requests[0].body[name] for name in fixed] == [server.requests[1].body[name] for name in fixed]


def test_environment_is_honoured(server: AnthropicServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key and address come from the environment where none are given."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY + "\n")  # as a careless `export` leaves it
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    server.script(Says(answer()))
    assert ClaudeProposer().propose(REQUEST).category == "optimizer"


def test_loopback_bypasses_proxies(server: AnthropicServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names does not see what is meant for this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.script(Says(answer()))
    assert proposer(server).propose(REQUEST).category == "optimizer"


def test_local_server_needs_no_key_and_costs_nothing() -> None:
    """A model of another name on this machine needs no key, counts no dollars, and no dollar cap stops it."""
    with AnthropicServer(key="none", models=("smollm2",)) as server:
        server.script(Says(answer()))
        proposal = proposer(server, model="smollm2", api_key=None).propose(replace(REQUEST, usd_left=0.0))
    assert proposal.cost.usd == 0
    assert proposal.cost.tokens > 0


def test_repair_keeps_the_category(server: AnthropicServer) -> None:
    """A repaired candidate stays in its category even on a plateau, and its log is in the prompt without secrets."""
    broken = Proposal("Deeper.", "architecture", Artifact({"train.py": "DEPTH = 9\n"}))
    failed = FailedCandidate(broken, "It crashed.", "NameError: LR\nexport X=sk-ant-oat01-0123456789abcdef")
    request = replace(REQUEST, failed=failed, avoid_categories=frozenset({"architecture"}))
    server.script(Says(answer()))
    assert proposer(server).propose(request).category == "architecture"
    assert b"NameError: LR" in server.requests[0].raw
    assert b"sk-ant" not in server.requests[0].raw


def test_answer_is_made_harmless(server: AnthropicServer) -> None:
    """A hypothesis comes back as one line without terminal codes and without secrets, of bounded length."""
    said = f"Raise\nthe \x1b[31mrate\x1b[0m {KEY} " + "very " * 200
    server.script(Says(answer(hypothesis=said, expected_effect=KEY)))
    proposal = proposer(server).propose(REQUEST)
    assert proposal.hypothesis.startswith("Raise the rate [redacted:")
    assert len(proposal.hypothesis) <= 300
    assert KEY not in str(proposal)


def test_json_in_a_markdown_fence(server: AnthropicServer) -> None:
    """A fence around the JSON, which models write where nothing enforces the schema, is taken off."""
    server.script(Says(f"```json\n{answer()}\n```"))
    assert proposer(server).propose(REQUEST).category == "optimizer"


# Failed proposals


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Says(answer(), cut_after=2), "broke off"),
        (Says(answer(), stop_reason=None), "cut off before its end"),
        (Says("", stop_reason="refusal"), "refused to answer"),
        (
            Says("", stop_reason="refusal", stop_details={"type": "refusal", "category": "frontier_llm"}),
            "(frontier_llm)",
        ),
        (Says(answer(), stop_reason="max_tokens"), "too long and was cut off"),
        (Says("", stop_reason="model_context_window_exceeded"), "prompt is too long"),
        (Says(answer(), stop_reason="pause_turn"), "pause_turn"),
        (Says("I would raise the rate."), "not the JSON"),
        (Says(answer()[:-20]), "not the JSON"),
        (Says("[]"), "not the JSON"),
        (Says(answer(edits=3)), "edits"),
        (Says(answer(hypothesis="\n \t")), "no hypothesis"),
        (Says(answer(category="astrology")), "'astrology' is not one of the categories"),
        (Says(answer(edits=[])), "holds no edit"),
        (Says(answer(edits=[{"path": "train.py", "search": "4", "replace": "4"}])), "leave every file as it was"),
        (Says(answer(edits=[{"path": "train.py", "search": " = ", "replace": "="}])), "matches 2 places"),
        (Says(answer(edits=[{"path": "train.py", "search": "WIDTH", "replace": "x"}])), "does not occur"),
        (Says(answer(edits=[{"path": "prepare.py", "search": "x", "replace": "y"}])), "outside what may change"),
        (Says(answer(edits=[{"path": "../train.py", "search": "x", "replace": "y"}])), "no path inside"),
        (Says(answer(files=[{"path": "/etc/passwd", "text": "y"}])), "no path inside"),
        (Says(answer(), error_after=("overloaded_error", "Overloaded")), "broke off: Overloaded"),
    ],
)
def test_failed_proposal(server: AnthropicServer, reply: Says, said: str) -> None:
    """Whatever is wrong with an answer is said, and what it cost is charged, with no second call."""
    error = failure(server, reply)
    assert said in str(error)
    assert error.cost is not None
    assert error.cost.tokens_in == 1_000
    assert error.cost.usd > 1_000 * 2e-6
    assert len(server.requests) == 1


def test_cut_stream_charges_what_arrived(server: AnthropicServer) -> None:
    """A stream that is cut tells no final count, so the text that arrived is charged."""
    error = failure(server, Says("x" * 30_000, piece=1_000, cut_after=24))
    assert error.cost is not None
    assert error.cost.tokens_out == 8_000


def test_complete_answers_are_charged_as_counted(server: AnthropicServer) -> None:
    """A refused edit is charged with the final count of the stream."""
    error = failure(server, Says(answer(edits=[]), output_tokens=4_321))
    assert error.cost is not None
    assert error.cost.tokens_out == 4_321


def test_plateau(server: AnthropicServer) -> None:
    """An idea of a category on a plateau is refused with the others."""
    request = replace(REQUEST, avoid_categories=frozenset({"optimizer"}))
    said = str(failure(server, Says(answer()), request=request))
    assert "optimizer is on a plateau" in said
    assert "schedule" in said


def test_plateau_everywhere_stops_nothing(server: AnthropicServer) -> None:
    """Where every category is on a plateau, any is taken."""
    server.script(Says(answer()))
    request = replace(REQUEST, avoid_categories=frozenset(CATEGORIES))
    assert proposer(server).propose(request).category == "optimizer"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"event: message_start\ndata: {}\n\n",
        b"event: message_start\ndata: {broken\n\n",
        b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": "many"}}}\n\n',
        b'event: message_start\ndata: {"type": "message_start", "message": {"usage": null}}\n\n',
        b'event: message_start\ndata: {"type": "message_start"}\n\n',
        b"event: message_start\ndata: []\n\n",
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0}\n\n',
        b'event: message_delta\ndata: {"type": "message_delta", "delta": null, "usage": {}}\n\n',
        b"event: x\ndata: \xff\xfe\n\n",
        b"event: error\ndata: nothing\n\n",
    ],
)
def test_server_of_another_kind(server: AnthropicServer, body: bytes) -> None:
    """Bytes that are no Messages stream are a failed proposal, not a crash."""
    assert failure(server, Raw(body))


def test_json_instead_of_a_stream(server: AnthropicServer) -> None:
    """A server that ignores `stream` is a failed proposal that says so."""
    said = str(failure(server, Raw(b'{"type": "message"}', content_type="application/json")))
    assert "answered without a message" in said


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            Fails(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            "prompt is too long",
        ),
        (Fails(413, "request_too_large", "Request too large"), "HTTP 413: Request too large"),
        (Fails(422, "invalid_request_error", "no"), "HTTP 422"),
    ],
)
def test_refused_request(server: AnthropicServer, reply: Fails, said: str) -> None:
    """A request that the API finds wrong is a failed proposal without cost, and is not sent again."""
    error = failure(server, reply)
    assert said in str(error)
    assert error.cost is None
    assert len(server.requests) == 1


# Waiting


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_passing_fault_is_waited_out(server: AnthropicServer, status: int) -> None:
    """A server that is busy twice and then answers has answered."""
    waits = Waits()
    server.script(Fails(status), Fails(status), Says(answer()))
    assert proposer(server, sleep=waits).propose(REQUEST).category == "optimizer"
    assert len(waits.seconds) == 2
    assert 0.375 <= waits.seconds[0] <= 0.5 < waits.seconds[1] <= 1.0


def test_retry_after_is_honoured(server: AnthropicServer) -> None:
    """With 429 and retry-after the next call really comes that much later."""
    server.script(Fails(429, "rate_limit_error", "slow down", {"retry-after": "0.3"}), Says(answer()))
    ClaudeProposer(api_key=KEY, base_url=server.url, environ={}).propose(REQUEST)
    first, second = server.requests
    assert 0.3 <= second.at - first.at < 5


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5, 1.5),
        ({"retry-after": "soon"}, 0.3, 0.5),
        ({"retry-after": "0"}, 0.3, 0.5),
        ({"retry-after": "-3"}, 0.3, 0.5),
        ({"retry-after-ms": "1"}, 0.25, 0.25),
    ],
)
def test_forms_of_retry_after(server: AnthropicServer, headers: dict[str, str], low: float, high: float) -> None:
    """Seconds and milliseconds are understood; what cannot be read falls back to the usual backoff."""
    waits = Waits()
    server.script(Fails(429, headers=headers), Says(answer()))
    proposer(server, sleep=waits).propose(REQUEST)
    assert low <= waits.seconds[0] <= high


def test_retry_after_as_a_date(server: AnthropicServer) -> None:
    """A date says until when to wait."""
    import time

    waits = Waits()
    server.script(Fails(429, headers={"retry-after": formatdate(time.time() + 20, usegmt=True)}), Says(answer()))
    proposer(server, sleep=waits).propose(REQUEST)
    assert 15 < waits.seconds[0] <= 20


def test_too_long_a_wait_is_a_failed_proposal(server: AnthropicServer) -> None:
    """A server that asks to wait for an hour is not waited for."""
    waits = Waits()
    error = failure(server, Fails(429, "rate_limit_error", "slow down", {"retry-after": "3600"}), sleep=waits)
    assert "asks to wait 3600 s" in str(error)
    assert waits.seconds == []
    assert error.cost is None


def test_patience_ends(server: AnthropicServer) -> None:
    """A server that stays overloaded is given up after the patience that was set."""
    waits = Waits()
    said = str(failure(server, *[Fails(529, "overloaded_error", "Overloaded")] * 4, sleep=waits, patience_seconds=4))
    assert "busy or at fault for 4 attempts" in said
    assert "HTTP 529: Overloaded" in said
    assert sum(waits.seconds) <= 4


def test_ready_or_not(server: AnthropicServer) -> None:
    """Whether a call can be made is known without making one."""
    proposer(server).check_ready()
    proposer(server, api_key=None).check_ready()
    for broken in (ClaudeProposer(environ={}), proposer(server, api_key="a b"), proposer(server, base_url="localhost")):
        with pytest.raises(EnvironmentNotReadyError):
            broken.check_ready()
    assert server.requests == []


def test_broken_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A credentials profile that cannot be read stops the run with the way around it."""
    monkeypatch.setenv("ANTHROPIC_PROFILE", "none-of-that-name")
    with pytest.raises(EnvironmentNotReadyError, match=r"cannot be read.*Setting ANTHROPIC_API_KEY is enough"):
        ClaudeProposer(environ={}).propose(REQUEST)


def test_dropped_connection_is_tried_again(server: AnthropicServer) -> None:
    """A server that closes without a word has not answered, and is asked again."""
    server.script(Silent(0), Says(answer()))
    assert proposer(server).propose(REQUEST).category == "optimizer"


def test_server_says_not_to_retry(server: AnthropicServer) -> None:
    """`x-should-retry: false` is obeyed."""
    failure(server, Fails(500, headers={"x-should-retry": "false"}))
    assert len(server.requests) == 1


def test_overload_before_the_answer_begins(server: AnthropicServer) -> None:
    """An error event at the very start of a stream has cost nothing and is waited out."""
    event = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n'
    server.script(Raw(event), Says(answer()))
    assert proposer(server).propose(REQUEST).category == "optimizer"


def test_silence_is_not_paid_twice(server: AnthropicServer) -> None:
    """A call that times out may be charged, so it is not repeated at once."""
    error = failure(server, Silent(1.0), timeout_seconds=0.2)
    assert "silent" in str(error)
    assert len(server.requests) == 1


# Faults that end the run


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Fails(401, "authentication_error", "invalid x-api-key"), "Set ANTHROPIC_API_KEY to a valid key"),
        (Fails(403, "permission_error", "not allowed"), "may not use claude-sonnet-5-5"),
        (Fails(404, "not_found_error", "model: x"), "Give one with --model"),
        (Fails(402, "billing_error", "payment failed"), "Add credit"),
        (Fails(400, "invalid_request_error", "Your credit balance is too low to access the API."), "Add credit"),
        (Fails(400, "invalid_request_error", "You have reached your specified API usage limits."), "Add credit"),
        (Fails(429, "rate_limit_error", "limit", code="enforced_spend_limit_reached"), "Add credit"),
        (Fails(405, "invalid_request_error", "Method Not Allowed"), "does not take the call"),
    ],
)
def test_lasting_fault(server: AnthropicServer, reply: Fails, said: str) -> None:
    """A fault that every later call would meet stops the run with the sentence what to do, after one call."""
    whole = stop(server, reply)
    assert said in whole
    assert f"HTTP {reply.status}" in whole
    assert len(server.requests) == 1


def test_bad_key(server: AnthropicServer) -> None:
    """A wrong key is refused by the server, the run stops, and the key is not in the message."""
    wrong = "sk-ant-api03-wrong-key-0123456789"
    whole = stop(server, api_key=wrong)
    assert "The API key was refused" in whole
    assert wrong not in whole


def test_unknown_model(server: AnthropicServer) -> None:
    """A model that the server does not know stops the run and lists those there are."""
    whole = stop(server, model="claude-typo")
    assert "'claude-typo'" in whole
    assert DEFAULT_MODEL in whole


def test_no_key() -> None:
    """Without a key nothing is sent, and the message says where to get one and what works without."""
    with pytest.raises(EnvironmentNotReadyError, match=r"Set ANTHROPIC_API_KEY .*--proposer search"):
        ClaudeProposer(environ={}).propose(REQUEST)


@pytest.mark.parametrize("key", ["sk-ant two words", "sk-änt-key"])
def test_mangled_key(server: AnthropicServer, key: str) -> None:
    """A key that no header can carry is refused with a sentence and not shown."""
    whole = stop(server, api_key=key)
    assert "Copy the key again" in whole
    assert key not in whole


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://127.0.0.1", "http://", "/v1"])
def test_address_that_is_none(url: str) -> None:
    """An address without http is refused with an example."""
    with pytest.raises(EnvironmentNotReadyError, match="no web address"):
        ClaudeProposer(api_key=KEY, base_url=url, environ={}).propose(REQUEST)


def _closed_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_unreachable() -> None:
    """An address where nobody listens is tried a few times, then the run stops with what to check."""
    waits = Waits()
    asking = ClaudeProposer(api_key=KEY, base_url=f"http://127.0.0.1:{_closed_port()}", environ={}, sleep=waits)
    with pytest.raises(EnvironmentNotReadyError, match=r"cannot be reached.*Check the network"):
        asking.propose(REQUEST)
    assert 2 <= len(waits.seconds) <= 6
    assert sum(waits.seconds) <= 6


def test_network_that_was_there_is_awaited_longer() -> None:
    """A network that fails in the middle of a run is waited for as long as was set."""
    waits = Waits()
    with AnthropicServer() as server:
        server.script(Says(answer()))
        asking = proposer(server, sleep=waits)
        asking.propose(REQUEST)
    with pytest.raises(EnvironmentNotReadyError, match="cannot be reached"):
        asking.propose(REQUEST)
    assert 250 < sum(waits.seconds) <= 300


def test_secrets_do_not_come_back_in_errors(server: AnthropicServer) -> None:
    """A server that echoes the key does not get it into the ledger."""
    said = str(failure(server, Fails(400, "invalid_request_error", f"bad header Bearer {KEY}")))
    assert KEY not in said
    assert "[redacted:" in said


# Caps and estimates


def test_dollar_cap(server: AnthropicServer) -> None:
    """With too few dollars left no call is made, and the message says what is needed and what is left."""
    with pytest.raises(BudgetExhaustedError, match=r"\$0\.\d\d .*\$0\.01 are left.*not made") as caught:
        proposer(server).propose(replace(REQUEST, usd_left=0.01))
    assert caught.value.cost is None
    assert server.requests == []


def test_token_cap(server: AnthropicServer) -> None:
    """With too few tokens left no call is made."""
    with pytest.raises(BudgetExhaustedError, match="1,000 tokens are left"):
        proposer(server).propose(replace(REQUEST, tokens_left=1_000))
    assert server.requests == []


@pytest.mark.parametrize("left", [0.12, 0.2, 0.3])
def test_cap_shortens_the_answer(server: AnthropicServer, left: float) -> None:
    """With enough for a shorter answer the call is made, and even its dearest outcome stays below the cap."""
    server.script(Says(answer()))
    proposer(server).propose(replace(REQUEST, usd_left=left))
    (request,) = server.requests
    allowed = request.body["max_tokens"]
    assert 8_000 <= allowed < 32_000
    assert len(request.raw) / 2 * 4e-6 + allowed * 10e-6 <= left


def test_no_cap_no_shortening(server: AnthropicServer) -> None:
    """Without a cap the whole answer length is allowed."""
    server.script(Says(answer()))
    proposer(server).propose(REQUEST)
    assert server.requests[0].body["max_tokens"] == 32_000


def test_unknown_model_counts_dear(server: AnthropicServer) -> None:
    """A cap that would do for the default model does not do for an unknown one, and the message says why."""
    with pytest.raises(BudgetExhaustedError, match="not in the price table"):
        proposer(server, model="claude-next").propose(replace(REQUEST, usd_left=0.4))


def test_estimate_before_and_after(server: AnthropicServer) -> None:
    """An estimate says where it comes from, opens no connection, and learns from real calls."""
    asking = proposer(server)
    before = asking.estimate(REQUEST)
    assert 0 < before.usd < 1
    assert "list prices of 2026" in before.basis
    assert server.requests == []
    server.script(Says(answer(), output_tokens=1_000), Says("", stop_reason="refusal", output_tokens=0))
    cost = asking.propose(REQUEST).cost
    after = asking.estimate(REQUEST)
    assert (after.usd, after.tokens) == (pytest.approx(cost.usd), 2_000)
    assert after.basis == f"mean of 1 earlier call to {DEFAULT_MODEL}"
    with pytest.raises(ProposalError):
        asking.propose(REQUEST)
    assert asking.estimate(REQUEST).tokens == 1_500


def test_failed_calls_without_an_answer_are_not_in_the_estimate(server: AnthropicServer) -> None:
    """A call that was refused cost nothing and teaches nothing about cost."""
    asking = proposer(server)
    server.script(Fails(400))
    with pytest.raises(ProposalError):
        asking.propose(REQUEST)
    assert "earlier call" not in asking.estimate(REQUEST).basis


# Odds and ends


def test_effort_is_passed_on(server: AnthropicServer) -> None:
    """Effort is sent where it is set and left out where not, because older models refuse it."""
    server.script(Says(answer()), Says(answer()))
    proposer(server, effort="low").propose(REQUEST)
    proposer(server).propose(REQUEST)
    assert [request.body["output_config"].get("effort") for request in server.requests] == ["low", None]


def test_schema_is_closed_and_stable() -> None:
    """The schema names every key as required, allows no others, and is the same each time."""
    schema = answer_schema(("a", "b"))
    assert schema["required"] == ["hypothesis", "category", "expected_effect", "edits", "files"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["category"]["enum"] == ["a", "b"]
    assert json.dumps(schema) == json.dumps(answer_schema(("a", "b")))


def test_has_credentials() -> None:
    """A key or a token counts; an empty one does not."""
    assert has_credentials({"ANTHROPIC_API_KEY": "x"})
    assert has_credentials({"ANTHROPIC_AUTH_TOKEN": "x"})
    assert not has_credentials({"ANTHROPIC_API_KEY": " "})
    assert not has_credentials({})


def test_importing_does_not_import_the_sdk() -> None:
    """The module can be imported without the SDK, which takes a second to load."""
    code = "import sys, autoresearch.core.proposers.claude; sys.exit('anthropic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# In the loop


def _number(text: str) -> Says:
    return Says(answer(edits=[], files=[{"path": "number.txt", "text": text}], hypothesis=f"Try {text}."))


def test_loop_with_every_kind_of_answer(server: AnthropicServer, tmp_path: Path) -> None:
    """A run over broken, refused, crashing, worse and better answers keeps the better one and charges all of them."""
    root = make_workspace(tmp_path / "w")
    server.script(
        Says("nonsense"),
        Fails(529, "overloaded_error", "Overloaded"),
        _number("../2"),  # crashes: no number
        _number("2"),  # the repair
        Says("", stop_reason="refusal"),
        _number("5"),
    )
    result = run(
        SquareAdapter(), workspace=root, proposer=proposer(server), policy="greedy", baseline_runs=1, experiments=2
    )
    assert (result.status.kept, result.status.reverted, result.status.crashed) == (1, 1, 0)
    assert not server.replies
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        rows = ledger.proposals(ledger.runs()[-1].id)
    usd = [row.usd for row in rows if row.proposer == "claude"]
    assert len(usd) == 5
    assert all(usd)
    assert result.status.usd == pytest.approx(sum(usd))
    repair = server.requests[3].body["messages"][0]["content"][-1]["text"]
    assert "is no number" in repair
    last = server.requests[-1].body["messages"][0]["content"]
    assert "Try 2." in last[1]["text"]
    assert "refused to answer" in last[-1]["text"]


def test_loop_stops_at_the_dollar_cap(server: AnthropicServer, tmp_path: Path) -> None:
    """A run with a cap ends before the call that could cross it, with the reason and less than the cap spent."""
    root = make_workspace(tmp_path / "w")
    server.script(*[replace(_number(f"2.{n}"), output_tokens=8_000) for n in range(20)])
    result = run(
        SquareAdapter(), workspace=root, proposer=proposer(server), policy="greedy", baseline_runs=1, max_usd=0.3
    )
    assert "was not made" in result.reason
    assert 0.16 <= result.status.usd <= 0.3


def test_loop_stops_at_a_bad_key(server: AnthropicServer, tmp_path: Path) -> None:
    """A refused key ends the run with what to do, and no experiment is booked as crashed."""
    root = make_workspace(tmp_path / "w")
    asking = proposer(server, api_key="sk-ant-api03-wrong-key-0123456789")
    with pytest.raises(EnvironmentNotReadyError, match="Set ANTHROPIC_API_KEY"):
        run(SquareAdapter(), workspace=root, proposer=asking, policy="greedy", baseline_runs=1, experiments=3)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        assert [row.outcome for row in ledger.experiments(ledger.runs()[-1].id) if row.number > 0 and row.outcome] == []
