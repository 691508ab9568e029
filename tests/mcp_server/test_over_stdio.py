"""The whole way: the protocol's own client, the server as a program, a run in a process of its own, and kills."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from autoresearch.core.ledger import Ledger
from autoresearch.mcp_server.desk import Desk
from autoresearch.mcp_server.launch import Order, launch
from autoresearch.mcp_server.server import build_server
from tests.cli.plugins import write_hill
from tests.core.fakes import make_workspace
from tests.mcp_server.conftest import at_work

TOOLS = [
    "start", "status", "log", "show", "next_request", "propose", "pause", "resume", "stop", "note", "approve", "reject",
]  # fmt: skip


class Agent:
    """A coding agent: calls tools, reads structured answers."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        found: dict[str, Any] | None = result.structured_content
        assert found is not None
        return found

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Return the sentence with which a call is refused."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error and result.content[0].type == "text"
        return result.content[0].text

    async def until(self, *states: str) -> dict[str, Any]:
        """Ask for the next request until the run is in one of some states."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = await self.call("next_request", wait_seconds=10)
            if found["state"] in states:
                return found
        raise AssertionError(f"no state of {states}, but {found}")

    async def propose(self, number: int, old: str, new: str) -> dict[str, Any]:
        asked = (await self.until("asked"))["request"]
        assert asked["number"] == number
        edits = [{"path": "hill.py", "search": old, "replace": new}]
        return await self.call(
            "propose", request=asked["request"], hypothesis=f"{new} is nearer.", category="constants", edits=edits
        )


def served(folder: Path, errors: Path, work: Callable[[Agent], Coroutine[Any, Any, None]]) -> None:
    """Let an agent work with a server begun in `folder`; afterwards the server is gone."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "autoresearch", "mcp"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "packages")},
    )

    async def session() -> None:
        with errors.open("a", encoding="utf-8") as log:
            async with Client(stdio_client(command, errlog=log)) as client:
                await work(Agent(client))

    anyio.run(session)


def kill_the_run(folder: Path) -> None:
    """Kill the process at work, as a machine that lost its power does."""
    with Ledger.open(folder / "autoresearch-hill" / ".autoresearch" / "ledger.db") as ledger:
        run = ledger.latest_run()
        assert run is not None
        os.kill(ledger.sessions(run.id)[-1].pid, signal.SIGKILL)


def test_a_coding_agent_drives_a_run_from_end_to_end(tmp_path: Path) -> None:
    """Start, propose, be refused, lose the server and the run, go on, see kept and reverted, stop."""
    (tmp_path / "packages").mkdir()
    write_hill(tmp_path / "packages")

    async def before(agent: Agent) -> None:
        assert [tool.name for tool in (await agent.client.list_tools()).tools] == TOOLS
        assert "Begin one: call start" in await agent.refused("status")
        assert "no option 'steep'" in await agent.refused("start", adapter="hill", options={"steep": "yes"})
        started = await agent.call("start", adapter="hill", experiments=4)
        assert started["state"] == "running" and Path(started["workspace"]).name == "autoresearch-hill"
        again = await agent.call("start", adapter="hill", experiments=9)
        assert again["run"] == started["run"] and "nothing was started" in again["said"]
        asked = (await agent.until("asked"))["request"]
        assert asked["files"][0]["text"] == "# Turn these.\nWIDTH = 3.0\nHEIGHT = 8.0\n"
        outside = [{"path": "README.md", "text": "A mountain."}]
        said = await agent.refused(
            "propose", request=asked["request"], hypothesis="Rename it.", category="other", files=outside
        )
        assert said == "README.md is outside what may change. Only files that match hill.py may be edited."
        proposed = await agent.propose(1, "HEIGHT = 8.0", "HEIGHT = 5.0")
        assert proposed["changed"] == ["hill.py"] and "+HEIGHT = 5.0" in proposed["diff"]
        await agent.until("asked")

    async def after(agent: Agent) -> None:
        found = await agent.call("next_request", wait_seconds=0)
        assert found["state"] == "asked", "the run outlives the server that began it"
        await agent.propose(2, "HEIGHT = 5.0", "HEIGHT = 90.0")
        third = (await agent.until("asked"))["request"]
        kill_the_run(tmp_path)
        killed = await agent.until("stopped")
        assert "without a word" in killed["said"]
        edits = [{"path": "hill.py", "search": "WIDTH = 3.0", "replace": "WIDTH = 4.0"}]
        late = await agent.call(
            "propose", request=third["request"], hypothesis="Wider.", category="constants", edits=edits
        )
        assert "kept for the run, which is not at work" in late["said"]
        assert (await agent.call("status"))["state"] == "killed"
        assert (await agent.call("start"))["state"] == "running"
        assert (await agent.until("asked"))["request"]["number"] == 4
        rows = (await agent.call("log"))["experiments"]
        assert [(row["number"], row["outcome"]) for row in rows] == [
            (0, "kept"), (1, "kept"), (2, "reverted"), (3, "kept"),
        ]  # fmt: skip
        shown = await agent.call("show", which="3", log=True)
        assert shown["hypothesis"] == "Wider." and "+WIDTH = 4.0" in shown["diff"]
        assert "seed 0" in shown["log"] and "\x1b" not in shown["log"]
        await agent.call("stop")
        stopped = await agent.until("stopped")
        assert "stopped by a person" in stopped["said"]
        status = await agent.call("status")
        assert (status["experiments"], status["kept"], status["in_flight"]) == (3, 2, None)

    errors = tmp_path / "errors"
    served(tmp_path, errors, before)
    served(tmp_path, errors, after)
    assert errors.read_text() == "", "the server complains of nothing"


def in_process(desk: Desk, work: Callable[[Agent], Coroutine[Any, Any, None]]) -> None:
    """Let an agent work with a server in this process."""

    async def session() -> None:
        async with Client(build_server(desk)) as client:
            await work(Agent(client))

    anyio.run(session)


def test_every_tool_says_what_it_takes_and_gives(tmp_path: Path) -> None:
    """Each tool has a docstring, a closed input schema and an output schema; none can name an outcome or a value."""

    async def work(agent: Agent) -> None:
        for tool in (await agent.client.list_tools()).tools:
            assert tool.description and tool.output_schema, tool.name
            assert tool.input_schema["additionalProperties"] is False
            given = json.dumps(tool.input_schema)
            assert not [word for word in ("outcome", "kept", "verdict", "holdout") if f'"{word}"' in given]

    in_process(Desk(tmp_path, tmp_path), work)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("start", {"max_experiments": 3}, "max_experiments: there is no such argument."),
        ("log", {"last": "all"}, "last: Input should be a valid integer"),
        ("log", {"last": 0}, "last: Input should be greater than or equal to 1."),
        ("propose", {"request": "r", "hypothesis": "h", "category": "c", "edits": [{"path": "a"}]}, "edits.0.search:"),
        ("show", {"which": "1", "split": "holdout"}, "split: there is no such argument."),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(tmp_path: Path, tool: str, arguments: dict[str, Any], words: str) -> None:
    """An unknown or impossible argument is refused in a sentence; nothing is dropped in silence."""

    async def work(agent: Agent) -> None:
        said = await agent.refused(tool, **arguments)
        assert said.startswith(f"{tool} cannot be called like this. ") and words in said
        assert "pydantic" not in said

    in_process(Desk(tmp_path, tmp_path), work)


def test_show_names_what_there_is(tmp_path: Path) -> None:
    """An experiment that does not exist is an error that says which do."""
    root = make_workspace(tmp_path / "w")
    with at_work(root) as working:
        working.asked(1)

        async def work(agent: Agent) -> None:
            assert "it has 0 to 0" in await agent.refused("show", which="7")
            assert (await agent.call("show", which="baseline"))["number"] == 0
            assert (await agent.call("show"))["number"] == 0

        in_process(working.desk, work)


def test_a_refusal_does_not_quote_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest lines of a file, which help the next attempt, pass the same filter as the file itself."""
    monkeypatch.setenv("DEPLOY_TOKEN", "31415926535")
    root = make_workspace(tmp_path / "w", "31415926535")
    with at_work(root) as working:
        asked = working.asked(1)

        async def work(agent: Agent) -> None:
            edits = [
                {"path": "number.txt", "search": "3141592653", "replace": "1"},
                {"path": "number.txt", "search": "31415926530", "replace": "1"},
            ]
            said = await agent.refused(
                "propose", request=asked.request, hypothesis="Less.", category="other", edits=edits
            )
            assert "The nearest there are:" in said and "[redacted: environment]" in said
            assert "31415926535" not in said

        in_process(Desk(root, root), work)


def test_a_file_of_the_workspace_is_no_module_of_the_run(tmp_path: Path) -> None:
    """What lies in the folder of the server is not imported in place of Python's own modules."""
    (tmp_path / "typing.py").write_text("raise SystemExit('taken over')\n", encoding="utf-8")
    child = launch(Order(adapter="none"), workspace=None, cwd=tmp_path)
    assert child.process.wait(60) == 1
    assert child.complaint().startswith("No adapter named 'none' is installed")
    child.forget()


def test_without_the_package_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """`autoresearch mcp` in an installation without the extra names it."""
    from tests.cli.conftest import invoke

    monkeypatch.setitem(sys.modules, "mcp", None)
    for name in [name for name in sys.modules if name.startswith(("autoresearch.mcp_server", "mcp."))]:
        monkeypatch.delitem(sys.modules, name)
    result = invoke("mcp")
    assert result.exit_code == 1
    assert 'pip install "autoresearch[mcp]"' in result.stderr
