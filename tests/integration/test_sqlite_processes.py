"""The sqlite datastore among many processes: nothing lost, nothing torn, whoever is killed when."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import Create, Get, List, Revision
from netplug_core.testing.datastore_harness import TOOL
from tests.harness.processes.sqlite_counter import CLOCK, open_store
from tests.harness.waiting import EMERGENCY_STOP_S, MARGIN_S

Worker = subprocess.Popen[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "netplug.db"


@contextmanager
def workers(path: Path, job: str, *arguments: str) -> Iterator[list[Worker]]:
    """A process for each argument, all told to begin at once."""
    command = [sys.executable, "-m", "tests.harness.processes.sqlite_counter", str(path), job]
    started = [
        subprocess.Popen(
            [*command, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for argument in arguments
    ]
    try:
        for worker in started:
            tell_to_begin(worker)
        yield started
    finally:
        for worker in started:
            worker.kill()
            worker.communicate()


def tell_to_begin(worker: Worker) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


def results(started: list[Worker]) -> list[tuple[int | None, str, str]]:
    """Exit status, standard output and standard error of each, once it has ended."""
    ended = [(worker, *worker.communicate(timeout=EMERGENCY_STOP_S)) for worker in started]
    return [(worker.returncode, out, error) for worker, out, error in ended]


def stored(path: Path) -> dict[str, str]:
    with closing(open_store(str(path))) as store:
        records = store.read((List(TOOL),), deadline=Deadline.after(CLOCK, 5.0)).list(List(TOOL))
    return {record.key.name: record.value for record in records}


def assert_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_eight_writers_of_shared_keys_lose_nothing(path: Path) -> None:
    with workers(path, "count", *["30"] * 8) as started:
        assert results(started) == [(0, "", "")] * 8
    assert stored(path) == {"counter-0": "80", "counter-1": "80", "counter-2": "80"}
    assert_sound(path)


def test_eight_processes_make_one_file(path: Path) -> None:
    for attempt in range(3):
        fresh = path.parent / f"{attempt}" / "netplug.db"
        with workers(fresh, "open", *["-"] * 8) as started:
            assert results(started) == [(0, "0\n", "")] * 8
        # Two that close at one moment may leave the log to the next one that closes.
        assert stored(fresh) == {}
        assert [file.name for file in fresh.parent.iterdir()] == ["netplug.db"]
        assert stat.S_IMODE(fresh.stat().st_mode) == 0o600
        assert_sound(fresh)


def test_confirmed_writes_of_a_killed_writer_are_stored_and_nothing_is_torn(path: Path) -> None:
    """Each writer counts two records up together and says so; it is killed after a few, wherever it is then."""
    told: dict[str, int] = {}
    for life in range(2):
        with workers(path, "pair", "a", "b", "c", "d") as started:
            for name, worker in zip("abcd", started, strict=True):
                told[name] = last_confirmed_number(worker, after=7 + 5 * life)
    counts = {name: int(number) for name, number in stored(path).items()}
    for name, number in told.items():
        # The last commit may have been made and not been told; more than that would be somebody else's.
        assert counts[f"{name}-left"] == counts[f"{name}-right"]
        assert counts[f"{name}-left"] - number in (0, 1)
    assert_sound(path)


def last_confirmed_number(worker: Worker, *, after: int) -> int:
    """Kill a writer once it has told of some commits; the last one that it told of."""
    assert worker.stdout is not None
    lines = [worker.stdout.readline() for _ in range(after)]
    worker.kill()
    worker.wait()
    lines += [line for line in worker.stdout if line.endswith("\n")]
    return int(lines[-1])


def test_a_watch_has_the_writes_of_other_processes(path: Path) -> None:
    with closing(open_store(str(path))) as store:
        store.read((List(TOOL),), deadline=Deadline.after(CLOCK, 5.0))
        with workers(path, "count", "9", "9") as started:
            watch = store.watch({TOOL: Revision("0")}, deadline=Deadline.after(CLOCK, 30.0))
            told = [next(watch) for _ in range(18)]
            assert results(started) == [(0, "", "")] * 2
    for counter in range(3):
        key = TOOL.key(f"counter-{counter}")
        assert [change.value for change in told if change.key == key] == list("123456")


def test_a_process_that_stays_in_a_write_makes_others_give_up_at_their_deadline(path: Path) -> None:
    with closing(open_store(str(path))) as store:
        store.commit((Create(TOOL.key("saw"), "1"),), deadline=Deadline.after(CLOCK, 5.0))
        with holding_the_write_lock(path):
            begun = CLOCK.monotonic()
            with pytest.raises(Unavailable, match=f"sqlite store {path}: another process kept it locked"):
                store.commit((Create(TOOL.key("axe"), "1"),), deadline=Deadline.after(CLOCK, 0.3))
            assert 0.2 < CLOCK.monotonic() - begun < 0.3 + MARGIN_S
            saw = TOOL.key("saw")
            assert store.read((Get(saw),), deadline=Deadline.after(CLOCK, 5.0)).find(saw) is not None
        store.commit((Create(TOOL.key("axe"), "1"),), deadline=Deadline.after(CLOCK, 5.0))
    assert stored(path) == {"axe": "1", "saw": "1"}


@contextmanager
def holding_the_write_lock(path: Path) -> Iterator[None]:
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.kill()
        holder.communicate()
