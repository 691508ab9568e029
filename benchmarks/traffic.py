"""How fast visitors are served and events counted, and what a kill loses: `python -m benchmarks.traffic`.

    serve   page views a second, with the event written before the reply, and their latency
    kill    the same, but every worker is killed in mid-load: which acknowledged events are missing afterwards?
    count   the event log to totals per arm, by numpy
    totals  events in Parquet to per-visitor totals, by DuckDB

`--only PART` runs one of them. Client and server share this machine's cores, and whatever else runs on it runs along:
the load is printed with the figures.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import psutil

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.counting import Counter
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest
from autoresearch.adapters.marketing.parquet import arm_totals, connect
from autoresearch.adapters.marketing.site.server import Server
from benchmarks.load import Load, client, peak_mb

TEMPLATE = Path(__file__).parents[1] / "autoresearch" / "adapters" / "marketing" / "template"
CONNECTIONS = 32


def campaign(folder: Path, sync: str) -> LiveTest:
    """Write a campaign whose page has a live test, and return the test."""
    for part in ("common", "page"):
        shutil.copytree(TEMPLATE / part, folder, dirs_exist_ok=True)
    with (folder / "campaign.toml").open("a", encoding="utf-8") as file:
        file.write(f'\n[site]\nsync = "{sync}"\nmax_events_per_second = 1_000_000\n')
    live = LiveFolder.of(folder)
    other = folder / "treatment"
    other.mkdir()
    text = (folder / "copy.toml").read_text(encoding="utf-8")
    (other / "copy.toml").write_text(text + "\n# the treatment\n", encoding="utf-8")
    split = {"control": 0.5, "treatment": 0.5}
    return live.start(LiveTest("bench/1", "page", "salt", folder, {"treatment": other}, split, datetime.now(UTC)))


@contextmanager
def serving(sync: str, workers: int) -> Iterator[tuple[Server, LiveFolder, LiveTest]]:
    """Serve a fresh campaign on a free port."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        test = campaign(folder, sync)
        with Server(folder, port=0, workers=workers) as server:
            yield server, LiveFolder.of(folder), test


def ask(server: Server, seconds: float, mark: str, *, kill_after: float | None = None) -> Load:
    """Load the server from a process of its own; on the way, kill all workers where that is asked."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    port = int(server.url.rsplit(":", 1)[1])
    process = context.Process(target=client, args=(port, CONNECTIONS, seconds, mark, theirs))
    process.start()
    if kill_after is not None:
        time.sleep(kill_after)
        for pid in server.pids:
            os.kill(pid, signal.SIGKILL)
    load: Load = ours.recv()
    process.join()
    return load


def logged(live: LiveFolder, test: LiveTest) -> set[int]:
    """Return the units whose exposure to the test is in the log and sound."""
    found: set[int] = set()
    for _, _, records in events.read(live.events, {}):
        good = records[events.sound(records)]
        mine = (good["kind"] == events.EXPOSURE) & (good["subject"] == events.key(test.id))
        found.update(good["unit"][mine].tolist())
    return found


def entered(live: LiveFolder, test: LiveTest, load: Load) -> set[int]:
    """Return the acknowledged units that are not in the holdout: each of them must be in the log."""
    from autoresearch.adapters.marketing.assignment import held_out

    keys = (live.unit_key(unit) for unit in load.acknowledged)
    return {key for key in keys if not held_out(live.salt, f"{key:016x}")}


def serve(sync: str, seconds: float, workers: int) -> None:
    with serving(sync, workers) as (server, live, test):
        ask(server, 2.0, "w")  # warm: connections, caches of user agents
        before = cpu_seconds(server)
        load = ask(server, seconds, "s")
        each = (cpu_seconds(server) - before) / len(load.latencies) * 1e6
        theirs = load.cpu_seconds / len(load.latencies) * 1e6
        missing = len(entered(live, test, load) - logged(live, test))
        times = np.array(load.latencies) * 1e3
        p50, p99, p999 = np.percentile(times, [50, 99, 99.9])
        print(
            f"serve  sync={sync:<7} {len(times) / load.seconds:>8,.0f} page views/s over {load.seconds:.0f} s, "
            f"{CONNECTIONS} connections, {workers} workers: p50 {p50:.1f} ms, p99 {p99:.1f} ms, p99.9 {p999:.1f} ms; "
            f"{missing} of {len(times):,} not in the log, {load.wrong} other answers; processor time per view: "
            f"server {each:.0f} us, client {theirs:.0f} us  [{state()}]"
        )


def cpu_seconds(server: Server) -> float:
    """Return the processor time that the workers have used."""
    times = [psutil.Process(pid).cpu_times() for pid in server.pids]
    return float(sum(used.user + used.system for used in times))


def kill(sync: str, rounds: int, workers: int) -> None:
    acknowledged = lost = broken = damaged = 0
    for number in range(rounds):
        with serving(sync, workers) as (server, live, test):
            load = ask(server, 30.0, "k", kill_after=2.0 + random.Random(number).random())
            due = entered(live, test, load)
            acknowledged += len(due)
            lost += len(due - logged(live, test))
            broken += load.failed
            damaged += sum(int((~events.sound(records)).sum()) for _, _, records in events.read(live.events, {}))
    print(
        f"kill   sync={sync:<7} {rounds} times all workers killed in mid-load: {acknowledged:,} acknowledged events, "
        f"{lost} lost, {damaged} damaged records, {broken} connections broken  [{state()}]"
    )


def count(n_events: int) -> None:
    """Write a log as workers do and count it: half exposures to it, 5 % conversions, 10 events a unit."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in range(0, n_events, 5_000_000):
            random_log(folder / f"{part:020d}.events", min(5_000_000, n_events - part), n_events // 10, rng)
        counter = Counter(folder, events.key("t"), ("control", "treatment"), ["signup"])
        begun, cpu = time.perf_counter(), time.process_time()
        counter.update()
        result = counter.count("signup", now=datetime(2030, 1, 1, tzinfo=UTC), window=timedelta(days=1))
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        begun = time.perf_counter()
        counter.update()
        counter.count("signup", now=datetime(2030, 1, 1, tzinfo=UTC), window=timedelta(days=1))
        again = time.perf_counter() - begun
        units = sum(result.exposed.values())
        print(
            f"count  {n_events:>11,} events, {units:,} units: {seconds:.2f} s ({n_events / seconds / 1e6:.1f} million "
            f"events/s; {cpu:.1f} s of processor time), again with nothing new {again:.2f} s, "
            f"peak {peak_mb():,.0f} MB  [{state()}]"
        )


def totals(n_events: int, by_visitor: bool) -> None:
    """Count Parquet with integer ids by DuckDB: 95 % exposures, 5 % conversions, 10 events a visitor."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "events.parquet"
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=write_random_parquet, args=(path, n_events, by_visitor))
        process.start()
        process.join()
        begun, cpu = time.perf_counter(), time.process_time()
        arms = arm_totals(
            path, ("control", "treatment"), now=datetime(2030, 1, 1, tzinfo=UTC), window=timedelta(days=1)
        )
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        units = sum(arm.n for arm in arms)
        print(
            f"totals {n_events:>11,} events in {path.stat().st_size / 1e6:,.0f} MB of Parquet "
            f"{'by visitor' if by_visitor else 'as they came'}, {units:,} visitors: {seconds:.2f} s "
            f"({cpu:.1f} s of processor time on 2 threads), peak {peak_mb():,.0f} MB  [{state()}]"
        )


def write_random_parquet(path: Path, n_events: int, by_visitor: bool) -> None:
    """Write events of n / 10 visitors in the columns of `parquet.write_parquet`, in its order or in order of time."""
    n_visitors = n_events // 10
    unit = "i // 10" if by_visitor else f"hash(i) % {n_visitors}"
    moment = "hash(i + 1) % 1000000000000" if by_visitor else "i * 1000"
    with connect(memory_mb=4000) as connection:
        connection.execute(f"""
            COPY (
                SELECT unit::INTEGER AS unit,
                       1700000000000000 + moment::BIGINT AS time,
                       (CASE WHEN converted THEN 2 ELSE 1 END)::TINYINT AS kind,
                       (CASE WHEN converted THEN 0 ELSE hash(unit) % 2 END)::TINYINT AS arm,
                       converted::INTEGER::DOUBLE AS value
                FROM (
                    SELECT {unit} AS unit, {moment} AS moment, hash(i + 7) % 20 = 0 AS converted
                    FROM range({n_events}) t(i)
                )
            ) TO '{path}' (FORMAT parquet, COMPRESSION zstd)
        """)


def random_log(path: Path, n: int, n_units: int, rng: np.random.Generator) -> None:
    """Write n records: half of the test asked about, 45 % of another one, 5 % conversions."""
    records = np.zeros(n, events.RECORD)
    unit = rng.integers(1, n_units + 1, n, dtype=np.uint64)
    records["unit"] = unit * np.uint64(0x9E3779B97F4A7C15)
    records["time"] = 1_700_000_000_000_000 + rng.integers(0, 10**12, n)
    kind = rng.random(n)
    records["kind"] = np.where(kind < 0.05, events.CONVERSION, events.EXPOSURE)
    subject = np.where(kind < 0.05, events.key("signup"), np.where(kind < 0.55, events.key("t"), events.key("u")))
    records["subject"] = subject
    records["arm"] = np.where(kind < 0.05, 0, unit % np.uint64(2))
    records["check"] = events.checks(records)
    records.tofile(path)


def state() -> str:
    """Return what the machine is busy with."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def isolated(name: str, *arguments: object) -> None:
    """Run one measurement in a process of its own, so that its peak of memory is its own."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=globals()[name], args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["serve", "kill", "count", "totals"])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--events", type=int, default=100_000_000, help="the largest log")
    parser.add_argument("--as-they-came", action="store_true", help="totals of a file that is not sorted by visitor")
    given = parser.parse_args()
    sizes = [n for n in (1_000_000, 10_000_000, 100_000_000) if n <= given.events]
    if given.only in (None, "serve"):
        for sync in ("second", "always"):
            serve(sync, given.seconds, given.workers)
    if given.only in (None, "kill"):
        for sync in ("second", "always"):
            kill(sync, given.rounds, given.workers)
    if given.only in (None, "count"):
        for n in sizes:
            isolated("count", n)
    if given.only in (None, "totals"):
        for n in sizes:
            isolated("totals", n, not given.as_they_came)


if __name__ == "__main__":
    main()
