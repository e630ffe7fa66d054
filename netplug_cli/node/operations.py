"""What operators see of a node process while it serves: metrics, readiness and liveness."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus

from attrs import frozen

from netplug_cli.http_server import Page, Pages, PageServer
from netplug_cli.node.calls import CallQueue
from netplug_cli.node.datastores import DatastoreState, OpenDatastores
from netplug_cli.node.health import Health
from netplug_cli.node.metrics import METRICS_TYPE, NodeMetrics
from netplug_cli.node.metrics_file import MetricsFile
from netplug_cli.node.server import Server
from netplug_cli.node.service_manager import ServiceManager
from netplug_cli.node.supervision import Supervision
from netplug_cli.node.workers import Workers
from netplug_cli.node_status import STATUS_PATH, CallFigures, NodeDatastore, NodeStatus, encode_status
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Clock
from netplug_core.flows.world import RecordCounts
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import ControllerHealth

__all__ = ["NodeIdentity", "NodeOperations", "NodeParts"]


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
    None: nothing does. An empty path: no file. ``count_records`` counts the release records that wait.
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
