"""What a node process shows: its metrics, whether it lives and whether it is ready, as pages and as a file."""

import socket
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from attrs import evolve

from netplug_backends.host.machine import SystemClock
from netplug_cli.ctl.commands.node import ask_node
from netplug_cli.loopback import listen_to_this_machine
from netplug_cli.node.listening import listen
from netplug_cli.node.metrics import NodeMetrics
from netplug_cli.node.stores import OpenDatastores
from netplug_cli.node_status import CallFigures, NodeDatastore, NodeStatus, status_socket_of
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import SECOND_NS, Deadline
from netplug_core.errors import Unavailable
from netplug_core.log import Level
from netplug_core.reconcile.controller import Controller, Plan, Problem
from netplug_core.testing.clock import ManualClock
from tests.harness.metrics import value_of
from tests.harness.node_server import REPLY, REQUEST, Lines, pending_call
from tests.harness.observed_stores import SlowDatastore
from tests.harness.published_metrics import node_operations, node_parts
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until


def get(port: int, path: str) -> tuple[int, bytes]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=EMERGENCY_STOP_S)) as connection:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()


def test_the_pages_say_what_the_parts_do() -> None:
    metrics = NodeMetrics("1.2.3")
    listening = listen_to_this_machine(0)
    port: int = listening.getsockname()[1]
    datastores = OpenDatastores(SystemClock(), metrics.note_datastore_call)
    operations = evolve(node_operations(metrics, datastores, SystemClock()), listening=listening)
    with socket.socket(socket.AF_UNIX) as unused, operations.running(node_parts(unused)):
        assert get(port, "/livez") == (200, b"ok\n")
        assert get(port, "/readyz") == (503, b"the process does not serve calls\n")
        status, text = get(port, "/metrics")
        assert status == 200
        assert value_of(text, "netplug_node_workers") == 3


def test_the_parts_are_counted_and_so_are_datastores() -> None:
    metrics, clock = NodeMetrics("1.2.3"), ManualClock()
    datastores = OpenDatastores(clock, metrics.note_datastore_call)
    with socket.socket(socket.AF_UNIX) as unused:
        parts = node_parts(unused)
        call, client = pending_call()
        parts.queue.put(call)
        with node_operations(metrics, datastores, SystemClock()).running(parts):
            text = metrics.render()
            assert value_of(text, "netplug_node_queue_limit") == 7
            assert value_of(text, "netplug_node_calls_waiting") == 1
            assert value_of(text, "netplug_node_calls_served_now") == 0
            assert value_of(text, "netplug_node_release_records") == 5
            assert value_of(text, "netplug_node_foreign_release_records") == 3
            assert value_of(text, "netplug_node_damaged_release_records") == 2
            assert b"netplug_node_datastore_up{" not in text
            store = SlowDatastore.make(clock)
            with datastores.measured(store) as measured:
                labels = '{datastore="memory",location="this process"}'
                measured.read([], deadline=Deadline.after(clock, 1))
                clock.sleep(3)
                text = metrics.render()
                assert value_of(text, f"netplug_node_datastore_up{labels}") == 1
                assert value_of(text, f"netplug_node_datastore_answer_age_seconds{labels}") == 3
                store.failure = Unavailable("etcd", "refused")
                clock.sleep(60)
                datastores.check()
                assert value_of(metrics.render(), f"netplug_node_datastore_up{labels}") == 0
        parts.queue.close()
        client.close()


def test_the_status_is_served_at_a_socket_of_its_own(tmp_path: Path) -> None:
    metrics, clock, path = NodeMetrics("1.2.3"), ManualClock(), str(tmp_path / "node.sock")
    datastores = OpenDatastores(clock, metrics.note_datastore_call)
    operations = evolve(
        node_operations(metrics, datastores, SystemClock()), status_listening=listen(status_socket_of(path)).socket
    )
    store = SlowDatastore.make(clock)
    store.failure = Unavailable("etcd", "refused")
    metrics.measured(lambda _request, _namespace: REPLY)(REQUEST, None)
    with socket.socket(socket.AF_UNIX) as unused, operations.running(node_parts(unused)), datastores.measured(store):
        assert ask_node(path) == NodeStatus(
            version="1.2.3",
            pid=4711,
            started_ns=1_767_225_600 * SECOND_NS,
            socket="/run/node.sock",
            problems=(
                "the process does not serve calls",
                "datastore memory at this process does not answer: Unavailable",
            ),
            workers=3,
            queue_limit=7,
            calls=CallFigures(served=1, failed=0, refused=0, served_now=0, waiting=0),
            release_records=5,
            foreign_records=3,
            damaged_records=2,
            datastores=(NodeDatastore(name="memory", location="this process", failure="Unavailable"),),
        )
        store.failure = None
        assert ask_node(path).datastores == (NodeDatastore(name="memory", location="this process", answered_s=0),)


def test_the_file_is_there_while_they_run(tmp_path: Path) -> None:
    metrics, path = NodeMetrics("1.2.3"), tmp_path / "netplug.prom"
    datastores = OpenDatastores(SystemClock(), metrics.note_datastore_call)
    operations = evolve(node_operations(metrics, datastores, SystemClock()), metrics_file=str(path))
    with socket.socket(socket.AF_UNIX) as unused, operations.running(node_parts(unused)):
        wait_until(path.exists, "it is written")
        assert value_of(path.read_bytes(), "netplug_node_workers") == 3
    assert not path.exists()


def test_tasks_are_shown_by_their_names() -> None:
    def fail(_deadline: Deadline) -> None:
        raise Unavailable("etcd", "away")

    def controller(name: str, observe: Callable[[Deadline], None]) -> Controller[None, None]:
        return Controller(
            name=name,
            observe=observe,
            plan=lambda _state: Plan(problems=(Problem(message="nothing is to be done", level=Level.INFO),)),
            act=lambda _action, _deadline: None,
            failure="no",
        )

    metrics, clock = NodeMetrics("1.2.3"), ManualClock()
    tasks = Runtime([controller("well", lambda _deadline: None), controller("ill", fail)], clock=clock, log=Lines())
    tasks.start()
    with socket.socket(socket.AF_UNIX) as unused:
        parts = evolve(node_parts(unused), tasks=tasks)
        datastores = OpenDatastores(clock, metrics.note_datastore_call)
        with node_operations(metrics, datastores, SystemClock()).running(parts):
            wait_until(lambda: tasks.healths[1].failures == 1, "one has failed")
            wait_until(lambda: tasks.healths[0].succeeded_s is not None, "one has succeeded")
            text = metrics.render()
    tasks.stop()
    assert value_of(text, 'netplug_node_task_last_success_age_seconds{task="well"}') == 0
    assert value_of(text, 'netplug_node_task_last_success_age_seconds{task="ill"}') is None
    for name in ("failures_in_a_row", "problems"):
        assert value_of(text, f'netplug_node_task_{name}{{task="well"}}') == 0
        assert value_of(text, f'netplug_node_task_{name}{{task="ill"}}') == 1
    assert value_of(text, 'netplug_node_task_stuck{task="ill"}') == 0
    assert value_of(text, 'netplug_node_task_changes_waiting{task="ill"}') == 0
