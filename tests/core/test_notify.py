"""Who is told of a run: by a webhook, a mail or a program; what fails with it never stops the run."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

from autoresearch.core import EnvironmentNotReadyError, UsageError
from autoresearch.core.driver import run
from autoresearch.core.followers import Followed
from autoresearch.core.ledger import Ledger
from autoresearch.core.notify import SECONDS_BETWEEN_BESTS, MailServer, Notifier, target_of, test_notice
from autoresearch.core.readmodel import status_of
from autoresearch.core.workspace import Layout, read_settings
from tests.core.fakes import HalvingProposer, Listening, SquareAdapter, make_workspace

go = partial(run, proposer=HalvingProposer(), policy="greedy", confirm=False)


@contextmanager
def hook(status: int = 200) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Serve a webhook on loopback; yield its address and what was posted."""
    posted: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/T0P/secret-path", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_webhook_hears_of_a_new_best_and_of_the_end(tmp_path: Path) -> None:
    """Two posts for a run of two keeps close together: the first best and the end, five lines each."""
    root = make_workspace(tmp_path)
    with hook() as (address, posted):
        go(
            SquareAdapter(),
            workspace=root,
            proposer=HalvingProposer(),
            policy="greedy",
            confirm=False,
            experiments=2,
            notify=[address],
        )
    assert [post["event"] for post in posted] == ["best", "end"]
    assert all(len(str(post["text"]).splitlines()) == 5 for post in posted)
    assert "believed gain" in str(posted[1]["text"]) and "experiments: 2 of 2 done" in str(posted[1]["text"])
    status = posted[1]["status"]
    assert isinstance(status, dict) and status["experiments"] == 2 and posted[1]["run"] == status["run"]


def test_a_webhook_that_fails_is_named_without_its_secret_and_stops_nothing(tmp_path: Path) -> None:
    """The run is as without it; the sentence names the host and the status, and not the path."""
    root, heard = make_workspace(tmp_path), Listening()
    with hook(status=500) as (address, posted):
        result = go(
            SquareAdapter(),
            workspace=root,
            proposer=HalvingProposer(),
            policy="greedy",
            confirm=False,
            experiments=3,
            notify=[address],
            reporter=heard,
        )
    assert result.status.experiments == 3
    told = [text for text in heard.said if "could not be told" in text]
    assert len(told) == 2 and all("127.0.0.1" in text and "status 500" in text for text in told)
    assert "secret-path" not in "".join(heard.said)
    # Asked at the first best and at the end, and not again in between.
    assert [post["event"] for post in posted] == ["best", "end"]


def test_no_secret_leaves_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the environment that found its way into a hypothesis is not sent."""
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2hunter2")
    proposer = HalvingProposer()
    asked = proposer.propose
    monkeypatch.setattr(
        HalvingProposer,
        "propose",
        lambda self, request: replace(asked(request), hypothesis="Try hunter2hunter2"),
    )
    with hook() as (address, posted):
        run(
            SquareAdapter(),
            workspace=make_workspace(tmp_path),
            proposer=proposer,
            policy="greedy",
            confirm=False,
            experiments=1,
            notify=[address],
        )
    assert posted[0]["hypothesis"] == "Try [redacted: environment]" and "hunter2" not in str(posted)


def test_a_run_that_a_fault_ends_is_told_of(tmp_path: Path) -> None:
    """Who sleeps hears that the machine was at fault, with the sentence that says so."""

    def no_gpu(text: str) -> None:
        raise EnvironmentNotReadyError("The GPU is gone.\nPlug it in.")

    with hook() as (address, posted), pytest.raises(EnvironmentNotReadyError):
        go(
            SquareAdapter(fault=no_gpu),
            workspace=make_workspace(tmp_path),
            proposer=HalvingProposer(),
            policy="greedy",
            confirm=False,
            notify=[address],
        )
    assert [post["event"] for post in posted] == ["fault"]
    assert "The GPU is gone." in str(posted[0]["text"])


def test_mail_arrives() -> None:
    """A notice is a mail whose subject is its first line, from the sender that was chosen."""
    mails = []

    class Kept(Message):
        def handle_message(self, message: object) -> None:
            mails.append(message)

    controller = Controller(Kept(), hostname="127.0.0.1", port=(port := free_port()))
    controller.start()
    try:
        target = target_of("mailto:me@example.org", MailServer(f"smtp://127.0.0.1:{port}", "loop@example.org"))
        target.send(test_notice())
    finally:
        controller.stop()
    assert [(mail["To"], mail["From"], mail["Subject"]) for mail in mails] == [
        ("me@example.org", "loop@example.org", "autoresearch: a test")
    ]


def test_no_password_travels_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without encryption gets no login, and the sentence says why."""
    monkeypatch.setenv("AUTORESEARCH_SMTP_PASSWORD", "hunter2")
    seen: list[str] = []

    class Refusing(Message):
        def handle_message(self, message: object) -> None:
            seen.append("a mail")

    controller = Controller(Refusing(), hostname="127.0.0.1", port=(port := free_port()))
    controller.start()
    try:
        target = target_of("mailto:me@example.org", MailServer(f"smtp://loop@127.0.0.1:{port}"))
        with pytest.raises(EnvironmentNotReadyError, match="no encryption"):
            target.send(test_notice())
    finally:
        controller.stop()
    assert not seen


def test_a_program_gets_the_text_and_the_event(tmp_path: Path) -> None:
    """Its standard input is the text; the event is in its environment."""
    out = tmp_path / "out"
    program = tmp_path / "tell"
    program.write_text(f'#!/bin/sh\n{{ echo "$AUTORESEARCH_EVENT"; cat; }} > "{out}"\n')
    program.chmod(0o755)
    target_of(f"cmd:{program}").send(test_notice())
    assert out.read_text() == "test\nautoresearch: a test\nThis target can be reached.\n"


@pytest.mark.parametrize(
    ("command", "why"), [("cmd:false --key hunter2", "status 1"), ("cmd:/no/such/program", "cannot be started")]
)
def test_a_program_that_fails_says_how(command: str, why: str) -> None:
    """The sentence names the program and the failure, and not the arguments."""
    target = target_of(command)
    with pytest.raises(EnvironmentNotReadyError, match=why):
        target.send(test_notice())
    assert "hunter2" not in target.name


@pytest.mark.parametrize("text", ["", "example.org", "ftp://example.org", "mailto:", "cmd:", "https://", "cmd:'open"])
def test_what_is_no_target_is_refused_before_anything_runs(text: str) -> None:
    """A target that cannot be understood is a mistake of the request."""
    with pytest.raises(UsageError):
        target_of(text)


@pytest.mark.parametrize("url", ["localhost", "smtp://", "http://x", "smtp://u:secret@host", "smtp://h:port"])
def test_a_mail_server_that_cannot_be_understood_is_refused(url: str) -> None:
    """A password in the address is refused too: it belongs into the environment."""
    with pytest.raises(UsageError) as refused:
        target_of("mailto:me@example.org", MailServer(url))
    assert "secret" not in str(refused.value)


def test_new_bests_are_told_of_now_and_then(tmp_path: Path) -> None:
    """Of many keeps in a row the first is told of, and the next one after ten minutes."""
    root = make_workspace(tmp_path)
    heard, now = Listening(), [0.0]
    go(
        SquareAdapter(),
        workspace=root,
        experiments=3,
        reporter=heard,
    )
    layout = Layout(root)
    with hook() as (address, posted), Ledger.open(layout.ledger) as ledger:
        made = ledger.runs()[-1]
        status = partial(status_of, ledger, made, at_work=False)
        notifier = Notifier(target_of(address), clock=lambda: now[0])
        notifier.begun(Followed(made, SquareAdapter().metric, layout, ledger, live=False, status=status))
        for experiment, moment in zip(heard.ended, (0.0, 0.0, 1.0, SECONDS_BETWEEN_BESTS), strict=True):
            now[0] = moment
            notifier.experiment_ended(experiment)
    assert [post["experiment"] for post in posted] == [1, 3]


def test_settings_of_a_workspace_name_targets(tmp_path: Path) -> None:
    """[notify] takes one address or a list; anything else is refused with the file's name."""
    config = tmp_path / "autoresearch.toml"
    config.write_text('[notify]\nto = "cmd:true"\nsmtp = "smtps://me@mail.example.org"\nfrom = "a@example.org"\n')
    found = read_settings(Layout(tmp_path))
    assert (found.notify, found.smtp) == (("cmd:true",), "smtps://me@mail.example.org")
    assert found.mail_from == "a@example.org"
    config.write_text("[notify]\nto = [3]\n")
    with pytest.raises(UsageError, match=r"autoresearch\.toml.*list of addresses"):
        read_settings(Layout(tmp_path))
