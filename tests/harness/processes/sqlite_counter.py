"""One process of ``test_sqlite_processes``: waits for a line, opens the store, does its work, and prints the result.

``python -m tests.harness.processes.sqlite_counter <path> open|count|pair <argument>``. It begins when its standard
input has a line, so that many of them begin at one moment.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import closing

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import Unavailable
from netplug_core.records import Create, Decision, Get, Key, List, OutcomeUnknown, Snapshot, Update, Write
from netplug_core.testing.datastore_harness import SAMPLE_CODEC, TOOL

__all__ = ["CLOCK", "open_store"]

CLOCK = SystemClock()


def open_store(path: str) -> SqliteDatastore:
    """The store that test and workers share."""
    return SqliteDatastore(path, clock=CLOCK, codec=SAMPLE_CODEC)


def increment(store: Datastore, *names: str) -> str:
    """Count the records of those names up by one, in one commit; what they count to."""
    keys = [TOOL.key(name) for name in names]

    def decide(snapshot: Snapshot) -> Decision[str]:
        number = ""
        writes: list[Write] = []
        for key in keys:
            number, write = incremented(snapshot, key)
            writes.append(write)
        return Decision(tuple(writes), number, is_repeatable=False)

    while True:
        pace = Pace(clock=CLOCK, deadline=Deadline.after(CLOCK, 60.0), chance=random.random)
        try:
            return str(Transaction(store, pace).run([Get(key) for key in keys], decide).result)
        except OutcomeUnknown:
            raise
        except Unavailable:
            # sqlite's lock is not fair: on a busy machine one writer may lose it for longer than a call may take.
            # Nothing was written, so the work is still to do.
            continue


def incremented(snapshot: Snapshot, key: Key[str]) -> tuple[str, Write]:
    """The number after the one that is stored, and the write that stores it."""
    record = snapshot.find(key)
    if record is None:
        return "1", Create(key, "1")
    number = str(int(record.value) + 1)
    return number, Update(key, number, record.revision)


def read_empty_store(store: Datastore, _argument: str) -> None:
    """Read an empty store."""
    print_line(str(len(store.read((List(TOOL),), deadline=Deadline.after(CLOCK, 30.0)).list(List(TOOL)))))


def count_up(store: Datastore, argument: str) -> None:
    """Count three records up, in turn, that many times in all."""
    for number in range(int(argument)):
        increment(store, f"counter-{number % 3}")


def count_pair(store: Datastore, argument: str) -> None:
    """Count two records up together until killed, and print each number that was committed."""
    while True:
        print_line(increment(store, f"{argument}-left", f"{argument}-right"))


def print_line(line: str) -> None:
    """Print a line for the test, without delay."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


JOBS: dict[str, Callable[[Datastore, str], None]] = {"open": read_empty_store, "count": count_up, "pair": count_pair}


if __name__ == "__main__":
    _program, path, job, argument = sys.argv
    sys.stdin.readline()
    with closing(open_store(path)) as store:
        JOBS[job](store, argument)
