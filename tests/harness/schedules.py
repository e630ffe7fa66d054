"""Clients of one store in every order in which their calls can come.

Exhaustive, not sampled: a schedule says who makes the next call; each is run, then the one that differs from it in the
last choice that can be made otherwise. A client is a thread only so that it can be stopped at each of its calls; no
two of them ever run at once.

Two reads have the same answers in either order. Where a client says that it waits with a read, only one of these orders
is run: of adjacent reads, that of the first client comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Semaphore, Thread
from typing import TypeAlias

from attrs import Factory, define, field

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, Datastore, DatastoreDescription
from netplug_core.records import Kind, Query, Revision, Snapshot, WatchEvent, Write
from netplug_core.testing.faults import LateWrite, ProcessDied, SentWrites

__all__ = ["CallScheduler", "Choose", "ScheduledDatastore", "every_schedule"]

Choose: TypeAlias = Callable[[Sequence[str]], str]
"""Chooses who goes on, from the sorted names of those who wait."""


@define
class CallScheduler:
    """Lets one client run at a time, from one call to the store to the next."""

    waiting: dict[str, Semaphore] = field(default=Factory(dict))
    reading: set[str] = field(default=Factory(set))
    paused: Semaphore = field(factory=lambda: Semaphore(0))
    errors: list[BaseException] = field(default=Factory(list))

    def wait(self, name: str, *, is_read: bool = False) -> None:
        """Stop here until it is this client's turn; ``is_read``: then it will do nothing but read."""
        (self.reading.add if is_read else self.reading.discard)(name)
        mine = self.waiting[name] = Semaphore(0)
        self.paused.release()
        mine.acquire()

    def run(self, clients: Mapping[str, Callable[[], object]], choose: Choose) -> None:
        """Run all clients to their ends, in the chosen order."""
        for name, client in clients.items():
            Thread(target=self._run_client, args=(name, client), daemon=True).start()
            self.paused.acquire()
        last_reader = ""
        while self.waiting:
            chosen = choose(self._candidates(last_reader))
            last_reader = chosen if chosen in self.reading else ""
            self.waiting.pop(chosen).release()
            self.paused.acquire()
        if self.errors:
            raise self.errors[0]

    def _candidates(self, last_reader: str) -> Sequence[str]:
        waiting = sorted(self.waiting)
        return [name for name in waiting if name >= last_reader or name not in self.reading] or waiting

    def _run_client(self, name: str, client: Callable[[], object]) -> None:
        self.wait(name, is_read=True)  # nothing but what it does before its first call
        try:
            client()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test raises it
            self.errors.append(error)
        finally:
            self.paused.release()


def every_schedule(run: Callable[[Choose], None]) -> Iterator[str]:
    """Run every schedule once; what was chosen in each."""
    script: list[int] = []
    while True:
        options: list[int] = []
        chosen: list[str] = []

        def choose(
            waiting: Sequence[str],
            script: Sequence[int] = script,
            options: list[int] = options,
            chosen: list[str] = chosen,
        ) -> str:
            pick = script[len(options)] if len(options) < len(script) else 0
            options.append(len(waiting))
            chosen.append(waiting[pick])
            return waiting[pick]

        run(choose)
        yield " ".join(chosen)
        script = [*script, *[0] * (len(options) - len(script))]
        while script and script[-1] + 1 >= options[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


@define(eq=False, kw_only=True)
class ScheduledDatastore:
    """A store on which each step of a client waits for its turn: each read, and on an ordered store each write.

    At step ``dies_at`` the client dies: a write of that step is on its way, and ``late`` has it. ``steps`` counts.
    ``is_reading`` says, while the client waits for its turn, whether the step is a read.
    """

    inner: Datastore
    turn: Callable[[], object]
    dies_at: int = 0
    steps: int = 0
    late: LateWrite | None = None
    is_reading: bool = False

    @property
    def description(self) -> DatastoreDescription:
        """The description of the inner store."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries, at this client's turn."""
        self._step(())
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply writes, at this client's turn; on an ordered store at one turn for each."""
        if self.inner.description.atomicity is Atomicity.ATOMIC:
            self._step(tuple(writes))
            return self.inner.commit(writes, deadline=deadline)
        sent = SentWrites(self.inner, deadline)
        for write in writes:
            if sent.is_change(write):
                self._step((sent.prepared(write),))
            sent.send(write)
        return tuple(sent.revisions)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given, at once."""
        return self.inner.watch(start, deadline=deadline)

    def _step(self, writes: tuple[Write, ...]) -> None:
        self.is_reading = not writes
        self.turn()
        self.steps += 1
        if self.steps == self.dies_at:
            self.late = LateWrite(writes) if writes else None
            raise ProcessDied
