"""All that the processes publish, before they have done anything."""

from __future__ import annotations

import socket

from attrs import frozen

from netplug_backends.memory.ruleset import MemoryConnections, MemoryRuleset
from netplug_cli.controllers.collection import CollectionCounts
from netplug_cli.controllers.metrics import ControllersMetrics
from netplug_cli.node.calls import CallQueue
from netplug_cli.node.metrics import NodeMetrics
from netplug_cli.node.policy import NodePolicy
from netplug_cli.node.process import NodeIdentity, NodeOperations, NodeParts, ServiceManager
from netplug_cli.node.server import Server, Workers
from netplug_cli.node.stores import OpenDatastores
from netplug_cli.operator.process import add_values
from netplug_cli.runtime.controllers import Runtime
from netplug_cli.runtime.election import LeaderElection
from netplug_core.clock import SECOND_NS, Clock
from netplug_core.datastore.view import View
from netplug_core.flows.world import RecordCounts
from netplug_core.operator.state import LEASE
from netplug_core.policy.index import POLICY_KINDS
from netplug_core.reconcile.controller import Controller, Plan
from netplug_core.testing.clock import ManualClock
from tests.harness.node_server import REPLY, Lines, busy_reply
from tests.harness.operator_cluster import MemoryCluster, MemoryPools, make_loop
from tests.harness.waiting import wait_until

__all__ = [
    "node_operations", "node_parts", "published_by_controllers", "published_by_node", "published_by_operator",
]  # fmt: skip


def node_parts(listening: socket.socket) -> NodeParts:
    """Parts of a node process of which none has begun."""
    queue = CallQueue(7)
    return NodeParts(
        server=Server(listening=listening, queue=queue, refuse=busy_reply, log=Lines()),
        queue=queue,
        workers=Workers(3, queue, lambda _request, _namespace: REPLY, Lines()),
        tasks=Runtime((), clock=ManualClock(), log=Lines()),
    )


def node_operations(metrics: NodeMetrics, datastores: OpenDatastores, clock: Clock) -> NodeOperations:
    """What shows these metrics."""
    return NodeOperations(
        metrics=metrics,
        datastores=datastores,
        count_records=lambda: RecordCounts(own=5, foreign=3, damaged=2),
        clock=clock,
        log=Lines(),
        manager=ServiceManager("", None, Lines()),
        identity=NodeIdentity(version="1.2.3", pid=4711, started_ns=1_767_225_600 * SECOND_NS, socket="/run/node.sock"),
    )


def published_by_node() -> bytes:
    """The metrics of a node process that has served nothing yet; those without values have their heads."""
    metrics, clock = NodeMetrics("1.2.3"), ManualClock()
    metrics.add_policy(_idle_policy(clock))
    datastores = OpenDatastores(clock, metrics.note_datastore_call)
    with (
        socket.socket(socket.AF_UNIX) as unused,
        node_operations(metrics, datastores, clock).running(node_parts(unused)),
    ):
        return metrics.render()


def _idle_policy(clock: Clock) -> NodePolicy:
    """What enforces policy on a node, before it has looked."""
    return NodePolicy(
        view=View(clock=clock, uncached_kinds=frozenset()),
        find_kinds=lambda: POLICY_KINDS,
        find_name=lambda: None,
        find_overlay=lambda: None,
        find_interfaces=lambda: (),
        ruleset=MemoryRuleset(),
        connections=MemoryConnections(),
        clock=clock,
        log=Lines(),
    )


def published_by_operator() -> bytes:
    """The metrics of an operator that has not looked yet; those without values have their heads."""
    cluster, clock = MemoryCluster(), ManualClock()
    operator = make_loop(cluster, MemoryPools(cluster), clock=clock).operator
    election = LeaderElection(
        role="operator",
        store=cluster,
        lease=LEASE,
        identity="operator-1",
        clock=clock,
        log=Lines(),
        on_change=lambda: None,
    )
    add_values(operator, election)
    return operator.metrics.render()


def published_by_controllers() -> bytes:
    """The metrics of controllers of which one acts and has looked once."""
    metrics = ControllersMetrics("1.2.3")
    controller: Controller[None, None] = Controller(
        name="one", observe=lambda _deadline: None, plan=lambda _seen: Plan(), act=lambda *_: None, failure="it fails"
    )
    runtime = Runtime((controller,), clock=ManualClock(), log=Lines(), note_pass=metrics.note_pass)
    runtime.start()
    try:
        wait_until(lambda: runtime.healths[0].succeeded_s is not None, "a pass has ended")
    finally:
        runtime.stop()
    metrics.watch(runtime, Leading(), lambda: CollectionCounts(ticks=1))
    return metrics.render()


@frozen
class Leading:
    """An election that this process has won."""

    is_leading: bool = True
    problem: str = ""
