"""When a node process lives, and when it is ready."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from attrs import define, field

from netplug_cli.node.calls import CallQueue
from netplug_cli.node.process import STUCK_CALL_S, STUCK_SERVER_S, Health
from netplug_cli.node.server import Server, Workers
from netplug_cli.node.stores import OpenDatastores
from netplug_cli.runtime.controllers import Runtime
from netplug_core.cni.wire import TAKEN, WireReply, WireRequest
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import Controller, Plan, Source, Timing
from netplug_core.testing.clock import ManualClock, RealClock
from tests.harness.node_server import REPLY, Lines, busy_reply, pending_call
from tests.harness.observed_stores import SlowDatastore
from tests.harness.waiting import wait_until

WORK = Source("work")


@define
class LaterClock(RealClock):
    """The machine's monotonic clock, some time ahead."""

    ahead_s: float = 0.0

    def monotonic(self) -> float:
        return RealClock.monotonic(self) + self.ahead_s


@define
class Parts:
    """The parts of a node process with one worker."""

    path: str
    clock: LaterClock = field(factory=LaterClock)
    end: Event = field(factory=Event)
    queue: CallQueue = field(factory=lambda: CallQueue(1))
    stay: Event = field(factory=Event)
    tasks: Runtime = field(init=False)
    datastores: OpenDatastores = field(factory=lambda: OpenDatastores(RealClock(), lambda *_call: None))
    workers: Workers = field(init=False)
    server: Server = field(init=False)
    health: Health = field(init=False)

    def __attrs_post_init__(self) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self.path)
        listening.listen()
        listening.settimeout(0)
        self.workers = Workers(1, self.queue, self.answer, Lines())
        self.server = Server(listening=listening, queue=self.queue, refuse=busy_reply, log=Lines())
        controller = Controller(
            name="the work",
            observe=lambda _deadline: self.stay.is_set() and self.end.wait(60),
            plan=lambda _state: Plan[None](),
            act=lambda _action, _deadline: None,
            failure="failed",
            inputs=frozenset({WORK}),
        )
        self.tasks = Runtime((controller,), clock=self.clock, log=Lines())
        self.health = Health(
            server=self.server,
            workers=self.workers,
            tasks=self.tasks,
            datastores=self.datastores,
            clock=self.clock,
        )

    def answer(self, _request: WireRequest, _namespace: int | None) -> WireReply:
        self.end.wait(60)
        return REPLY

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Begin to serve; end it at the end of the context."""
        stop, wakeup = socket.socketpair()
        thread = Thread(target=self.server.run, args=(wakeup,))
        with stop, wakeup, self.server.listening:
            self.workers.start()
            self.tasks.start()
            thread.start()
            wait_until(lambda: self.server.is_serving, "it serves")
            yield
            stop.send(b"\0")
            thread.join()
            self.end.set()
            assert self.workers.stop(60) == 0
            self.tasks.stop()


@pytest.fixture
def parts(tmp_path: object) -> Parts:
    return Parts(f"{tmp_path}/node.sock")


def test_a_process_that_serves_lives_and_is_ready_until_it_ends(parts: Parts) -> None:
    assert parts.health.find_unready() == ("the process does not serve calls",)
    with parts.serving():
        assert parts.health.find_dead() == ()
        assert parts.health.find_unready() == ()
    assert parts.health.find_dead() == (), "who ends it knows why"
    assert parts.health.find_unready() == ("the process does not serve calls",)


def test_one_call_that_lasts_is_no_fault_until_it_lasts_too_long(parts: Parts) -> None:
    with parts.serving():
        call, client = pending_call()
        parts.queue.put(call)
        assert client.recv(1) == TAKEN
        parts.clock.ahead_s = STUCK_CALL_S - 100
        assert parts.health.find_dead() == ()
        parts.clock.ahead_s = STUCK_CALL_S + 100
        (problem,) = parts.health.find_dead()
        assert problem.startswith("no worker has ended its call for 4")
        assert parts.health.find_unready() == (problem,)
        parts.end.set()
        wait_until(lambda: not parts.workers.began_at, "the call has ended")
        assert parts.health.find_dead() == ()
        client.close()


def test_a_server_that_waits_may_wait_and_one_that_hangs_may_not(parts: Parts) -> None:
    with parts.serving():
        wait_until(lambda: parts.server.busy_since is None, "it waits for clients")
        parts.clock.ahead_s = STUCK_SERVER_S + 10
        assert parts.health.find_dead() == ()
        parts.server.busy_since = RealClock().monotonic()
        (problem,) = parts.health.find_dead()
        assert problem.startswith("no request has been read for 4")


def test_a_thread_that_has_ended_is_a_fault(parts: Parts) -> None:
    with parts.serving():
        parts.tasks.stop()
        assert parts.health.find_dead() == ("a thread has ended",)


def test_a_task_that_is_stuck_makes_the_process_unready_and_not_dead(parts: Parts) -> None:
    with parts.serving():
        wait_until(lambda: parts.tasks.healths[0].succeeded_s is not None, "the first pass has ended")
        parts.stay.set()
        parts.tasks.wake(WORK)
        wait_until(lambda: parts.tasks.healths[0].busy_s is not None, "the next one is stuck")
        parts.clock.ahead_s = Timing().stuck_s + 100
        (problem,) = parts.health.find_unready()
        assert problem.startswith("the work is stuck for 4")
        assert parts.health.find_dead() == ()
        parts.end.set()


def test_a_datastore_that_does_not_answer_is_named_without_its_error(parts: Parts) -> None:
    store = SlowDatastore.make(ManualClock())
    store.failure = Unavailable("https://user:secret@etcd", "refused")
    with parts.serving(), parts.datastores.measured(store):
        assert parts.health.find_unready() == ("datastore memory at this process does not answer: Unavailable",)
        assert parts.health.find_dead() == ()
        store.failure = None
        assert parts.health.find_unready() == ()
