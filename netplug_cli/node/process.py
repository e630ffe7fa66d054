"""The node process: its health, what it notifies systemd of, and the order in which its parts begin and end."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http import HTTPStatus
from typing import TypeAlias

from attrs import frozen

from netplug_cli.http_server import METRICS_TYPE, Page, Pages, PageServer
from netplug_cli.node.calls import AnswerCall, CallQueue, RefuseCall
from netplug_cli.node.listening import Listener
from netplug_cli.node.metrics import MetricsFile, NodeMetrics
from netplug_cli.node.server import Server, Workers
from netplug_cli.node.stores import DatastoreState, OpenDatastores
from netplug_cli.node_status import (
    STATUS_PATH,
    CallFigures,
    NetworkStatus,
    NodeDatastore,
    NodeStatus,
    PolicyStatus,
    RegistrationStatus,
    encode_status,
)
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Clock
from netplug_core.flows.world import RecordCounts
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import Backoff, Controller, ControllerHealth, Plan, Problem, Timing

__all__ = [
    "NOTIFY_EVERY_S", "STOP_S", "STUCK_CALL_S", "STUCK_SERVER_S", "Health", "NodeIdentity", "NodeOperations",
    "NodeParts", "NodeProcess", "ServiceManager", "Supervision",
]  # fmt: skip


# --- service manager -------------------------------------------------------------------------------------------------


_MICROSECONDS = 1_000_000


class ServiceManager:
    """A service manager that listens at ``address``; nothing is sent to an empty one.

    ``watchdog_s``: it kills a process that has not said for so many seconds that it lives; None: it does not.
    """

    def __init__(self, address: str, watchdog_s: float | None, log: Log) -> None:
        self.watchdog_s = watchdog_s
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._log = log
        self._cause = ""

    @classmethod
    def find(cls, environ: MutableMapping[str, str], log: Log) -> ServiceManager:
        """The one that the environment names. Its variables are removed, so that no program of a call gets them."""
        address, microseconds = environ.pop("NOTIFY_SOCKET", ""), environ.pop("WATCHDOG_USEC", "")
        is_mine = environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        is_number = microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
        watchdog_s = int(microseconds) / _MICROSECONDS if address and is_number and is_mine else None
        return cls(address, watchdog_s, log)

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return bool(self._address)

    def notify(self, *assignments: str) -> None:
        """Send assignments, such as ``READY=1``. A failure is logged once, until it is another one."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(0)
                sender.connect(self._address)
                sender.send("\n".join(assignments).encode())
        except OSError as error:
            cause = error.strerror or str(error)
            if cause != self._cause:
                self._log(Level.WARNING, "the service manager cannot be notified", cause=cause)
            self._cause = cause
        else:
            self._cause = ""


# --- health ----------------------------------------------------------------------------------------------------------


STUCK_SERVER_S = 30.0
"""The thread that reads requests waits for nothing as long as that."""

STUCK_CALL_S = 300.0
"""No call takes as long as that; its client has waited for 120 s."""


@frozen(kw_only=True)
class Health:
    """Judges the parts of a node process. A process that is ending is not ready, and lives."""

    server: Server
    workers: Workers
    tasks: Runtime
    datastores: OpenDatastores
    clock: Clock
    network: Callable[[], NetworkStatus | None] = lambda: None
    policy: Callable[[], PolicyStatus | None] = lambda: None

    def find_dead(self) -> tuple[str, ...]:
        """Why the process has to be started again; nothing if its threads run and the queue moves."""
        if not self.server.is_serving:
            return ()
        now, problems = self.clock.monotonic(), []
        if not (self.workers.are_alive and self.tasks.are_alive):
            problems.append("a thread has ended")
        busy_since = self.server.busy_since
        if busy_since is not None and now - busy_since > STUCK_SERVER_S:
            problems.append(f"no request has been read for {now - busy_since:.0f} s")
        began_at = self.workers.began_at
        if len(began_at) == self.workers.count and now - max(began_at) > STUCK_CALL_S:
            problems.append(f"no worker has ended its call for {now - max(began_at):.0f} s")
        return tuple(problems)

    def find_unready(self) -> tuple[str, ...]:
        """Why calls should not come yet, or no more; nothing if it listens and the open datastores answer.

        Datastores that have not been asked lately are asked. A task that is stuck is named too: calls are served
        without it, so that it is no reason to start the process again.
        """
        problems = () if self.server.is_serving else ("the process does not serve calls",)
        silent = (state for state in self.datastores.check() if not state.does_answer)
        stuck = (f"{each.name} is stuck for {each.busy_s:.0f} s" for each in self.tasks.healths if each.is_stuck)
        states = (self.network(), self.policy())
        obstacles = (each.obstacle for each in states if each is not None and each.obstacle)
        return (*problems, *self.find_dead(), *stuck, *map(_describe, silent), *obstacles)


def _describe(state: DatastoreState) -> str:
    # Not the whole error: who asks over the network need not be root.
    return f"datastore {state.name} at {state.location} does not answer: {state.failure or 'it was not asked in time'}"


# --- supervision -----------------------------------------------------------------------------------------------------


NOTIFY_EVERY_S = 10.0
"""The pause between two notifications, unless the watchdog needs them earlier."""


class Supervision:
    """Notifies a service manager, from ``start`` to ``stop``; does nothing if there is none.

    A process that is found dead by ``find_dead`` says so and feeds the watchdog no more, so that it is started again.
    ``describe`` is the line that ``systemctl status`` shows.
    """

    def __init__(
        self,
        *,
        manager: ServiceManager,
        find_dead: Callable[[], Sequence[str]],
        describe: Callable[[], str],
        clock: Clock,
        log: Log,
    ) -> None:
        self._manager = manager
        self._find_dead = find_dead
        self._describe = describe
        self._has_noted_end = False
        # A notification that comes late by half the time is not too late.
        self._every_s = NOTIFY_EVERY_S if manager.watchdog_s is None else min(NOTIFY_EVERY_S, manager.watchdog_s / 2)
        self._runtime = Runtime((self._controller(),), clock=clock, log=log)

    def start(self) -> None:
        """Say that the process is ready."""
        if self._manager.is_there:
            self._manager.notify("READY=1")
            self._runtime.start()

    def note_end(self) -> None:
        """Say that the process ends what it has begun."""
        self._has_noted_end = True
        self._manager.notify("STOPPING=1", f"STATUS=ends the calls that have begun: {self._describe()}")

    def stop(self) -> None:
        """Say nothing more."""
        if self._manager.is_there:
            self._runtime.stop()

    def _controller(self) -> Controller[Sequence[str], Sequence[str]]:
        return Controller(
            name="notifications",
            observe=lambda _deadline: self._find_dead(),
            plan=self._plan,
            act=lambda problems, _deadline: self._notify(problems),
            failure="the service manager is not notified",
            timing=Timing(backoff=Backoff(first_s=self._every_s, longest_s=self._every_s)),
        )

    def _plan(self, dead: Sequence[str]) -> Plan[Sequence[str]]:
        text, cause = "the process does not work; a watchdog starts it again", "; ".join(dead)
        problems = (Problem(message=text, cause=cause, level=Level.ERROR),) if dead else ()
        return Plan(actions=(dead,), look_again_s=self._every_s, problems=problems)

    def _notify(self, problems: Sequence[str]) -> None:
        watchdog = ("WATCHDOG=1",) if self._manager.watchdog_s is not None and not problems else ()
        status = () if self._has_noted_end else (f"STATUS={'; '.join(problems) or self._describe()}",)
        self._manager.notify(*watchdog, *status)


# --- operations ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class NodeParts:
    """The parts of a node process that serves, as far as they are observed."""

    server: Server
    queue: CallQueue
    workers: Workers
    tasks: Runtime


@frozen(kw_only=True)
class NodeIdentity:
    """Which node process it is: its release, its number, when it was started, and the path of its socket for calls."""

    version: str
    pid: int
    started_ns: int
    socket: str


@frozen(kw_only=True)
class NodeOperations:
    """How a node process is observed.

    ``listening`` serves the pages for everybody on this machine, ``status_listening`` them and the status for root;
    None: nothing does. An empty path: no file. ``count_records`` counts the release records that wait;
    ``missing_plugins`` are sentences about the plugins that a runtime needs and that the host lacks. ``registration``
    says how the node is registered, ``network`` how it is connected with others, and ``policy`` what it enforces;
    ``check_policy`` compares that with what the kernel has.
    """

    metrics: NodeMetrics
    datastores: OpenDatastores
    count_records: Callable[[], RecordCounts]
    clock: Clock
    log: Log
    manager: ServiceManager
    identity: NodeIdentity
    listening: socket.socket | None = None
    status_listening: socket.socket | None = None
    metrics_file: str = ""
    missing_plugins: Callable[[], tuple[str, ...]] = tuple
    registration: Callable[[], RegistrationStatus | None] = lambda: None
    network: Callable[[], NetworkStatus | None] = lambda: None
    policy: Callable[[], PolicyStatus | None] = lambda: None
    check_policy: Callable[[], PolicyStatus | None] = lambda: None

    @contextmanager
    def running(self, parts: NodeParts) -> Iterator[Callable[[], None]]:
        """Show these parts for as long as the context lasts; what it gives notes that they begin to end."""
        self._add_values(parts)
        health = Health(
            server=parts.server,
            workers=parts.workers,
            tasks=parts.tasks,
            datastores=self.datastores,
            clock=self.clock,
            network=self.network,
            policy=self.policy,
        )
        with ExitStack() as stack:
            if self.listening is not None:
                self._serve(stack, self.listening, self._pages(health))
            if self.status_listening is not None:
                status = {STATUS_PATH: lambda: self._status_page(parts, health)}
                self._serve(stack, self.status_listening, {**status, **self._pages(health)})
            if self.metrics_file:
                file = MetricsFile(self.metrics_file, self.metrics, clock=self.clock, log=self.log)
                file.start()
                stack.callback(file.stop)
            supervision = Supervision(
                manager=self.manager,
                find_dead=health.find_dead,
                describe=lambda: self._describe(parts),
                clock=self.clock,
                log=self.log,
            )
            supervision.start()
            stack.callback(supervision.stop)
            yield supervision.note_end

    def _serve(self, stack: ExitStack, listening: socket.socket, pages: Pages) -> None:
        server = PageServer(listening, pages, self.log)
        server.start()
        stack.callback(server.stop)

    def _status_page(self, parts: NodeParts, health: Health) -> Page:
        problems, calls, records = health.find_unready(), self.metrics.count_calls(), self.count_records()
        figures = CallFigures(
            served=calls.served,
            failed=calls.failed,
            refused=calls.refused,
            served_now=len(parts.workers.began_at),
            waiting=len(parts.queue),
        )
        status = NodeStatus(
            version=self.identity.version,
            pid=self.identity.pid,
            started_ns=self.identity.started_ns,
            socket=self.identity.socket,
            problems=problems,
            missing_plugins=self.missing_plugins(),
            registration=self.registration(),
            network=self.network(),
            policy=self.check_policy(),
            workers=parts.workers.count,
            queue_limit=parts.queue.limit,
            calls=figures,
            release_records=records.own,
            foreign_records=records.foreign,
            damaged_records=records.damaged,
            datastores=tuple(map(_datastore_of, self.datastores.states())),
        )
        return Page(body=f"{json.dumps(encode_status(status))}\n".encode(), media_type="application/json")

    def _describe(self, parts: NodeParts) -> str:
        count, now, waiting = self.metrics.count_calls(), len(parts.workers.began_at), len(parts.queue)
        return f"{count.served} calls served, {count.failed} of them failed; now {now} are served and {waiting} wait"

    def _pages(self, health: Health) -> Pages:
        return {
            "/metrics": lambda: Page(body=self.metrics.render(), media_type=METRICS_TYPE),
            "/livez": lambda: _page_of(health.find_dead()),
            "/readyz": lambda: _page_of(health.find_unready()),
        }

    def _add_values(self, parts: NodeParts) -> None:
        add, workers = self.metrics.add_value, parts.workers
        add("netplug_node_workers", "Calls that may be served at once.", lambda: workers.count)
        add("netplug_node_calls_served_now", "Calls that are being served.", lambda: len(workers.began_at))
        add("netplug_node_queue_limit", "Calls that may wait.", lambda: parts.queue.limit)
        add("netplug_node_calls_waiting", "Calls that wait for a worker.", lambda: len(parts.queue))
        text = "Release records that wait, of the datastores of the configurations that calls came with."
        add("netplug_node_release_records", text, lambda: self.count_records().own)
        text = "Release records beside them, of datastores that no call came for."
        add("netplug_node_foreign_release_records", text, lambda: self.count_records().foreign)
        text = "Release records that cannot be read."
        add("netplug_node_damaged_release_records", text, lambda: self.count_records().damaged)
        text = "Plugins that a runtime needs for each pod and that this host lacks: no pod starts without them."
        add("netplug_node_missing_plugins", text, lambda: len(self.missing_plugins()))
        labels = ("datastore", "location")
        text = "1 if an open datastore answered its last call, otherwise 0."
        self.metrics.add_values("netplug_node_datastore_up", text, labels, self._datastores_up)
        text = "How long ago an open datastore answered."
        self.metrics.add_values("netplug_node_datastore_answer_age_seconds", text, labels, self._answer_ages)
        self._add_task_values(parts.tasks)
        self._add_known_values()

    def _add_task_values(self, tasks: Runtime) -> None:
        """Add how the tasks do, by their names; how often and how long they run is counted as they do."""

        def add(name: str, text: str, read: Callable[[ControllerHealth], float | None]) -> None:
            def values() -> dict[tuple[str, ...], float]:
                found = ((each.name, read(each)) for each in tasks.healths)
                return {(task,): value for task, value in found if value is not None}

            self.metrics.add_values(f"netplug_node_task_{name}", text, ("task",), values)

        text = "How long ago a task last succeeded; missing before its first success."
        add("last_success_age_seconds", text, lambda health: health.succeeded_s)
        add("failures_in_a_row", "How often a task has failed since it last succeeded.", lambda health: health.failures)
        text = "What a task has found to be wrong, or could not do."
        add("problems", text, lambda health: sum(each.level is not Level.INFO for each in health.problems))
        add("changes_waiting", "Changes that wait for the next pass of a task.", lambda health: health.woken)
        add("stuck", "1 if a step of a task takes far too long, otherwise 0.", lambda health: health.is_stuck)

    def _add_known_values(self) -> None:
        """Add what is known of credentials, and from caches."""
        add, caches = self.metrics.add_values, self.datastores.caches
        text = "How long a client certificate or a token in use is valid; negative once it has expired."
        labels: tuple[str, ...] = ("access", "location", "credential")
        add("netplug_node_credential_left_seconds", text, labels, self.datastores.credentials.seconds_left)
        text = "How long ago a watch confirmed what is kept of a datastore: pools, reservations and configuration."
        add("netplug_node_cache_age_seconds", text, ("datastore", "location"), caches.ages)
        text = "Stored records that could not be read or judged, and were passed over in the last ten minutes."
        add("netplug_node_records_passed_over", text, ("datastore", "location", "kind"), caches.passed_over)
        labels = ("datastore", "location", "pool")
        add("netplug_node_pool_addresses", "Addresses of the range of a pool.", labels, caches.range_sizes)
        text = "Addresses of this node's own blocks, as far as the process has seen them."
        add("netplug_node_pool_block_addresses", text, labels, caches.block_sizes)
        text = "Those of them that are assigned, cool down, or are reserved for the host."
        add("netplug_node_pool_block_addresses_in_use", text, labels, caches.in_use)

    def _datastores_up(self) -> dict[tuple[str, ...], float]:
        states = self.datastores.states()
        return {(state.name, state.location): float(not state.failure) for state in states}

    def _answer_ages(self) -> dict[tuple[str, ...], float]:
        states = self.datastores.states()
        return {(state.name, state.location): state.answered_s for state in states if state.answered_s is not None}


def _datastore_of(state: DatastoreState) -> NodeDatastore:
    answered_s = None if state.answered_s is None else round(state.answered_s)
    return NodeDatastore(name=state.name, location=state.location, answered_s=answered_s, failure=state.failure)


def _page_of(problems: Sequence[str]) -> Page:
    if not problems:
        return Page(body=b"ok\n")
    body = "".join(f"{problem}\n" for problem in problems)
    return Page(body=body.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


# --- process ---------------------------------------------------------------------------------------------------------


STOP_S = 30.0
"""The longest that calls which have begun may take when the process is asked to end."""


StandIn: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Entered by a call while it only waits for others: another thread serves in its place."""


def _share_with_none(_stand_in: StandIn) -> None:
    """No call waits for others."""


@frozen(kw_only=True)
class NodeProcess:
    """Everything that serves calls. ``answer`` serves one, ``refuse`` answers one for which there is no room.

    ``workers`` calls are served at once, and at most ``queue`` further ones wait. ``tasks`` are done besides.
    ``observe`` is entered when all of them have begun, and left when they have ended; what it gives is called between
    the two, when no further call is accepted. ``share_workers`` gets what a call enters while it only waits for others.
    """

    answer: AnswerCall
    refuse: RefuseCall
    tasks: Runtime
    observe: Callable[[NodeParts], AbstractContextManager[Callable[[], None]]]
    log: Log
    workers: int
    queue: int
    share_workers: Callable[[StandIn], None] = _share_with_none

    def run(self, listener: Listener, wakeup: socket.socket) -> int:
        """Serve until ``wakeup`` is readable, and end what has begun; return the exit status.

        Calls that have not begun are given back: their connections are closed. The status is 1 if a call that has
        begun did not end in time.
        """
        queue = CallQueue(self.queue)
        workers = Workers(self.workers, queue, self.answer, self.log)
        self.share_workers(workers.standing_in)
        server = Server(listening=listener.socket, queue=queue, refuse=self.refuse, log=self.log)
        workers.start()
        self.tasks.start()
        with self.observe(NodeParts(server=server, queue=queue, workers=workers, tasks=self.tasks)) as note_end:
            self.log(Level.INFO, "the node process serves", socket=listener.path, workers=self.workers)
            try:
                server.run(wakeup)
            finally:
                listener.close()
                note_end()
                unfinished = workers.stop(STOP_S)
                self.tasks.stop()
        if unfinished:
            self.log(Level.ERROR, f"calls have not ended within {STOP_S:g} s", calls=unfinished)
            return 1
        self.log(Level.INFO, "the node process has ended")
        return 0
