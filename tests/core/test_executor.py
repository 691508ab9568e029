"""The executor: limits, results, environment and the death of process trees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from autoresearch.core import executor
from autoresearch.core.errors import EnvironmentNotReadyError
from autoresearch.core.executor import Finished, Limits, child_environment, run_process, tail


def run(tmp_path: Path, code: str, *, on_message=None, env=None, **limits) -> Finished:
    limits = {"wall_seconds": 20.0, **limits}
    return run_process(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        log=tmp_path / "run.log",
        limits=Limits(**limits),
        env=env,
        on_message=on_message,
    )


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_dead(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def read_pid(path: Path, seconds: float = 10.0) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was never written")


def test_output_and_status(tmp_path: Path):
    """Output and errors land in the log, and the exit code is reported."""
    finished = run(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (finished.returncode, finished.stopped, finished.messages) == (3, None, ())
    assert tail(tmp_path / "run.log") == "out\nerr"
    assert finished.ending == "ended with exit code 3"


def test_log_is_appended_to(tmp_path: Path):
    """A second command adds to the log of the first."""
    run(tmp_path, "print('first')")
    run(tmp_path, "print('second')")
    assert tail(tmp_path / "run.log").split() == ["first", "second"]


def test_log_is_live(tmp_path: Path):
    """What a child printed can be read while it runs."""
    seen = []
    run(
        tmp_path,
        """
        import time
        from autoresearch.core.executor import send_message
        print("step 1")
        time.sleep(0.2)
        send_message({"now": True})
        time.sleep(0.1)
        """,
        on_message=lambda message: seen.append(tail(tmp_path / "run.log")),
    )
    assert seen == ["step 1"]


def test_messages_arrive_in_order_and_live(tmp_path: Path):
    """Messages come through the result pipe, each as soon as it is sent."""
    seen = []
    finished = run(
        tmp_path,
        """
        from autoresearch.core.executor import send_message
        for number in range(3):
            send_message({"number": number})
        """,
        on_message=seen.append,
    )
    assert seen == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert list(finished.messages) == seen


def test_printed_json_is_no_message(tmp_path: Path):
    """A value that a candidate prints is output, never a result."""
    finished = run(tmp_path, """print('{"value": 0.0}')""")
    assert finished.messages == ()


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (b"value 3\n", "not JSON"),
        (b"[1, 2]\n", "not a JSON object"),
        (b'{"value": 1', "middle of a message"),
        (b"[" * 100_000 + b"\n", "not JSON"),
    ],
)
def test_broken_message_is_named(tmp_path: Path, written: bytes, sentence: str):
    """A line that is no message is reported, not skipped."""
    code = f"import os; os.write(int(os.environ['AUTORESEARCH_RESULT_FD']), {written!r})"
    if len(written) > 1000:
        code = "import os\nfor _ in range(10): os.write(int(os.environ['AUTORESEARCH_RESULT_FD']), b'['*10_000)"
        code += "\nos.write(int(os.environ['AUTORESEARCH_RESULT_FD']), b'\\n')"
    finished = run(tmp_path, code)
    assert finished.stopped is not None
    assert sentence in finished.stopped
    assert finished.messages == ()


def test_flood_of_messages_is_stopped(tmp_path: Path):
    """A child that floods the result pipe is ended."""
    code = """
    import os
    while True:
        os.write(int(os.environ["AUTORESEARCH_RESULT_FD"]), b"x" * 4096)
    """
    finished = run(tmp_path, code)
    assert finished.stopped == "It wrote more into the result pipe than messages may hold."


def test_too_long_message_is_refused_by_the_sender(tmp_path: Path):
    """A message over 1 MiB raises where it is sent."""
    finished = run(
        tmp_path, "from autoresearch.core.executor import send_message; send_message({'x': 'y' * (1 << 20)})"
    )
    assert finished.returncode == 1
    assert "is too long" in tail(tmp_path / "run.log")


def test_sending_without_a_runner_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """There is no runner here to send to."""
    monkeypatch.delenv(executor.RESULT_FD, raising=False)
    with pytest.raises(RuntimeError, match="no runner"):
        executor.send_message({"value": 1})


def test_wall_limit(tmp_path: Path):
    """A child that sleeps past its wall-clock limit is ended."""
    finished = run(tmp_path, "import time; print('start'); time.sleep(60)", wall_seconds=0.5)
    assert finished.stopped == "It ran longer than its limit of 0.5 s of wall-clock time."
    assert finished.returncode == -signal.SIGKILL
    assert 0.5 <= finished.seconds < 3
    assert tail(tmp_path / "run.log") == "start"


def test_cpu_limit_counts_the_whole_tree(tmp_path: Path):
    """Processor seconds of a grandchild count towards the limit."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    finished = run(tmp_path, code, cpu_seconds=0.4)
    assert finished.stopped == "It used more than its limit of 0.4 s of processor time."


def test_memory_limit(tmp_path: Path):
    """A child that takes more memory than allowed is ended."""
    code = "import time; held = b'x' * (200 << 20); time.sleep(60)"
    finished = run(tmp_path, code, memory_mb=120)
    assert finished.stopped is not None
    assert "its limit is 120 MiB" in finished.stopped


def test_output_is_bounded(tmp_path: Path):
    """Output beyond the bound is dropped with one line that says so, and the result still counts."""
    code = """
    from autoresearch.core.executor import send_message
    for _ in range(3000):
        print("x" * 99)
    send_message({"value": 1})
    """
    finished = run(tmp_path, code, output_mb=0.125)
    text = (tmp_path / "run.log").read_text()
    assert finished.stopped is None
    assert finished.messages == ({"value": 1},)
    assert len(text) < (1 << 17) + 100
    assert text.count("is dropped") == 1
    assert text.endswith("[autoresearch] Output beyond 0.125 MiB is dropped.\n")


def test_endless_output_is_stopped(tmp_path: Path):
    """A child that never stops printing is ended."""
    finished = run(tmp_path, "while True: print('x' * 10_000)", output_mb=0.125)
    assert finished.stopped == "It wrote more than 2 MiB of output."


def test_cpu_seconds_are_measured(tmp_path: Path):
    """Processor time is reported, that of a grandchild included."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    assert 0.3 <= run(tmp_path, code).cpu_seconds < 2


DAEMON = """
import os, sys, time
first = os.fork()
if first == 0:
    os.setsid()
    if os.fork() == 0:
        with open("daemon.pid.part", "w") as file:
            file.write(str(os.getpid()))
        os.rename("daemon.pid.part", "daemon.pid")
        time.sleep(120)
    os._exit(0)
os.waitpid(first, 0)
while not os.path.exists("daemon.pid"):
    time.sleep(0.01)
"""


def test_daemon_dies_with_a_child_that_ended(tmp_path: Path):
    """A grandchild that forked twice and called setsid is dead when the command has ended by itself."""
    finished = run(tmp_path, DAEMON)
    assert finished.returncode == 0
    assert not alive(read_pid(tmp_path / "daemon.pid"))


def test_daemon_dies_when_a_limit_strikes(tmp_path: Path):
    """A limit ends the grandchild that called setsid as well."""
    finished = run(tmp_path, DAEMON + "\ntime.sleep(60)", wall_seconds=1.0)
    assert finished.stopped is not None
    assert not alive(read_pid(tmp_path / "daemon.pid"))


def test_orphan_without_environment_dies(tmp_path: Path):
    """An orphan that emptied its environment is found by its session."""
    code = """
    import os, sys
    if os.fork() == 0:
        code = "import os, time; open('orphan.pid', 'w').write(str(os.getpid())); time.sleep(60)"
        os.execve(sys.executable, [sys.executable, "-c", code], {})
    while not os.path.exists("orphan.pid") or not open("orphan.pid").read():
        pass
    """
    run(tmp_path, code)
    assert not alive(read_pid(tmp_path / "orphan.pid"))


def test_fork_chain_dies(tmp_path: Path):
    """Processes that keep forking a successor are all found."""
    code = """
    import os, time
    open("last.pid", "w").write(str(os.getpid()))
    for _ in range(200):
        if os.fork():
            os._exit(0)
        os.setsid()
        open("last.pid", "w").write(str(os.getpid()))
        time.sleep(0.005)
    time.sleep(60)
    """
    before = psutil.Process().children()
    run(tmp_path, code)
    time.sleep(0.1)
    assert not alive(read_pid(tmp_path / "last.pid"))
    known = {process.pid for process in before}
    assert [process for process in psutil.Process().children() if process.pid not in known and alive(process.pid)] == []


def test_no_zombies_are_left(tmp_path: Path):
    """Adopted processes are collected."""
    before = {child.pid for child in psutil.Process().children()}
    run(tmp_path, DAEMON)
    assert {child.pid for child in psutil.Process().children()} <= before


def test_other_children_of_the_runner_are_spared(tmp_path: Path):
    """Ending an experiment leaves the runner's other processes alone."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        run(tmp_path, DAEMON)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_process_that_the_runner_started_meanwhile_is_spared(tmp_path: Path):
    """What the runner starts by itself while a command runs is no orphan of the command."""
    others = []

    def start_another(message):
        others.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))

    try:
        run(tmp_path, "from autoresearch.core.executor import send_message; send_message({})", on_message=start_another)
        assert others[0].poll() is None
    finally:
        others[0].kill()
        others[0].wait()


def test_commands_side_by_side_are_spared(tmp_path: Path):
    """A command that ends takes no other command with it that runs in another thread."""
    started = threading.Event()
    (tmp_path / "long").mkdir()
    code = "import time; from autoresearch.core.executor import send_message; send_message({}); time.sleep(1.5)"
    with ThreadPoolExecutor() as pool:
        long = pool.submit(run, tmp_path / "long", code, on_message=lambda message: started.set())
        assert started.wait(20)
        run(tmp_path, "pass")
        assert not long.done()
        run(tmp_path, DAEMON)
        assert long.result().ending == "ended with exit code 0"


def test_no_descriptor_leaks(tmp_path: Path):
    """Running a command leaves no open descriptor behind."""
    run(tmp_path, "pass")
    before = psutil.Process().num_fds()
    run(tmp_path, "pass")
    with pytest.raises(EnvironmentNotReadyError):
        run_process(["no-such-program"], cwd=tmp_path, log=tmp_path / "run.log", limits=Limits(5))
    assert psutil.Process().num_fds() == before


def test_raising_callback_ends_the_child(tmp_path: Path):
    """What `on_message` raises comes through, and the child is dead by then."""
    code = """
    import os, time
    from autoresearch.core.executor import send_message
    send_message({"pid": os.getpid()})
    time.sleep(60)
    """
    pids = []

    def refuse(message):
        pids.append(message["pid"])
        raise KeyError("refused")

    with pytest.raises(KeyError, match="refused"):
        run(tmp_path, code, on_message=refuse)
    assert not alive(pids[0])


def test_interrupt_kills_the_tree(tmp_path: Path):
    """Ctrl-C in the runner ends the tree and comes through."""

    def interrupt(message):
        signal.raise_signal(signal.SIGINT)

    code = "from autoresearch.core.executor import send_message\n" + DAEMON + "\nsend_message({})\ntime.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, code, on_message=interrupt)
    assert not alive(read_pid(tmp_path / "daemon.pid"))


def test_killed_runner_leaves_no_child(tmp_path: Path):
    """SIGKILL of the runner ends a child that called `die_with_parent`, with its process group."""
    child = """
    import os, subprocess, sys, time
    from autoresearch.core.executor import die_with_parent
    die_with_parent()
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open("grandchild.pid", "w").write(str(grandchild.pid))
    open("child.pid", "w").write(str(os.getpid()))
    time.sleep(60)
    """
    runner = f"""
import sys
from pathlib import Path
from autoresearch.core.executor import Limits, run_process
run_process([sys.executable, "-c", {textwrap.dedent(child)!r}], cwd=Path("."), log=Path("run.log"), limits=Limits(60))
"""
    process = subprocess.Popen([sys.executable, "-c", runner], cwd=tmp_path)
    pids = [read_pid(tmp_path / "child.pid"), read_pid(tmp_path / "grandchild.pid")]
    process.kill()
    process.wait()
    assert all(wait_until_dead(pid) for pid in pids)


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="Linux only")
def test_candidate_is_ended_before_the_run_when_memory_is_short(tmp_path: Path):
    """A child is a better victim for the system's out-of-memory killer than the runner."""
    run(tmp_path, "import time; time.sleep(0.1); print(open('/proc/self/oom_score_adj').read())")
    assert int(tail(tmp_path / "run.log")) > int(Path("/proc/self/oom_score_adj").read_text())


def test_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch):
    """Secrets and unknown variables do not reach a child; what it is given on purpose does."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "PYTHON_TOKEN", "XDG_SECRET", "HF_TOKEN", "RANDOM_THING"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    names = child_environment({"MINE": "1"})
    assert {"PATH", "OMP_NUM_THREADS", "LC_ALL", "MINE"} <= names.keys()
    secrets = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "PYTHON_TOKEN", "XDG_SECRET", "HF_TOKEN", "RANDOM_THING"}
    assert not names.keys() & secrets


def test_child_sees_only_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The allow-list is what the child really gets."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    run(tmp_path, "import os; print(dict(os.environ))", env={"GIVEN": "yes"})
    text = tail(tmp_path / "run.log")
    assert "sk-secret" not in text
    assert "'GIVEN': 'yes'" in text


def test_missing_program_is_the_machines_fault(tmp_path: Path):
    """A missing program stops the run with a sentence that names it."""
    with pytest.raises(EnvironmentNotReadyError, match="no-such-program cannot be started: there is no such program"):
        run_process(["no-such-program"], cwd=tmp_path, log=tmp_path / "run.log", limits=Limits(5))


def test_missing_interpreter_is_no_missing_program(tmp_path: Path):
    """A script whose interpreter is missing is not said to be missing itself, nor to be hidden by a sandbox."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(EnvironmentNotReadyError, match="script cannot be started: No such file or directory"):
        run_process([script], cwd=tmp_path, log=tmp_path / "run.log", limits=Limits(5))


def test_closed_folder_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder on PATH that cannot be entered does not change what is said of a missing program."""
    monkeypatch.setenv("PATH", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentNotReadyError, match="there is no such program"):
        run_process(["no-such-program"], cwd=tmp_path, log=tmp_path / "run.log", limits=Limits(5))


def test_missing_folder_is_named(tmp_path: Path):
    """A missing working directory is not mistaken for a missing program."""
    with pytest.raises(EnvironmentNotReadyError, match="there is no such folder"):
        run_process([sys.executable], cwd=tmp_path / "gone", log=tmp_path / "run.log", limits=Limits(5))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_is_the_machines_fault(tmp_path: Path):
    """A log on a full disk stops the run; it is not booked on the candidate."""
    with pytest.raises(EnvironmentNotReadyError, match="is full"):
        run_process([sys.executable, "-c", "print(1)"], cwd=tmp_path, log=Path("/dev/full"), limits=Limits(5))


def test_signal_is_named(tmp_path: Path):
    """A child that dies by a signal says which."""
    finished = run(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert finished.ending == "was killed by SIGSEGV"


def test_tail_is_plain_text(tmp_path: Path):
    """Colours, titles, progress bars and control characters do not survive."""
    log = tmp_path / "run.log"
    log.write_bytes(
        b"\x1b[31mred\x1b[0m\n\x1b]0;title\x07named\nstep 1\rstep 2\rstep 3\r\n"
        b"bell\x07 nul\x00 \xff\n\xe2\x80\xaeevil\n\ttab\n"
    )
    assert tail(log) == "red\nnamed\nstep 3\nbell nul \ufffd\nevil\n\ttab"


def test_tail_is_bounded(tmp_path: Path):
    """Only the last lines, and only the last bytes, are read."""
    log = tmp_path / "run.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert tail(log, lines=2) == "line 998\nline 999"
    assert tail(log, max_bytes=12) == "line 999"
    log.write_text("x" * 100_000)
    assert len(tail(log, max_bytes=100)) == 100


def test_tail_of_nothing_is_empty(tmp_path: Path):
    """A log that was never begun has no end."""
    assert tail(tmp_path / "none.log") == ""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
def test_works_without_process_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the system has no descriptors for processes, the end is found by asking."""
    monkeypatch.delattr(os, "pidfd_open")
    finished = run(tmp_path, "print('done')")
    assert finished.returncode == 0
    assert tail(tmp_path / "run.log") == "done"
