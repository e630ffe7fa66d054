"""Registers this node: its Node in the datastore, with the orchestrator's labels, and the file with its name.

The node process does it when it starts, and again every now and then. Where the datastore is the orchestrator's own, so
is the Node, and nothing is created. It also stores which release the cluster runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from attrs import evolve, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.cni.call import machine_file, machine_identity, node_of
from netplug_core.flows.resources.cluster import ensure_initialized, find_cluster_information, is_older_release
from netplug_core.flows.world import Host
from netplug_core.log import Log
from netplug_core.netconf.model import NetConf
from netplug_core.orchestrator.protocol import Orchestrator
from netplug_core.reconcile.nodes import follow_cluster_node
from netplug_core.records import Create, Decision, Get, Snapshot, Update
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.validation import validate_resource

__all__ = [
    "NodeHost",
    "NodeUnknown",
    "NodeWorld",
    "copy_cluster_labels",
    "publish_node_name",
    "register_node",
    "store_release",
]

_REGISTER_S = 20.0


class NodeHost(Host, Protocol):
    """The machine that the node process runs on."""

    def publish(self, path: str, text: str) -> None:
        """Write a small file that everybody may read, whole or not at all. The folder is made.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def make_public_folder(self, path: str) -> None:
        """Make a folder that only its owner may write to and everybody may look into, if it does not exist.

        Raises:
            OSError: it cannot be made.
        """
        ...


@frozen(kw_only=True)
class NodeWorld:
    """The interfaces that the node process acts through for its node; ``open_orchestrator`` as for a ``CNIWorld``."""

    datastore: Datastore
    host: NodeHost
    clock: Clock
    chance: Callable[[], float]
    log: Log
    open_orchestrator: Callable[[], AbstractContextManager[Orchestrator]] | None = None

    def pace(self) -> Pace:
        """How long one change may take, from now."""
        return Pace(clock=self.clock, deadline=Deadline.after(self.clock, _REGISTER_S), chance=self.chance)


class NodeUnknown(ConfigurationError):
    """The orchestrator has no node of the name; ``value`` is the name."""

    @classmethod
    def of(cls, name: str) -> NodeUnknown:
        """The error about a name."""
        return cls("nodename", name, "the cluster has no node of that name; set nodename to the name of one")


def register_node(world: NodeWorld, netconf: NetConf) -> str:
    """Register this node if it is not; return the name, which is that of CNI calls.

    Raises:
        ConfigurationError: the machine has no name of its own, or one that no node may have.
        NodeUnknown: the datastore is the orchestrator's, and has no such node.
        Unavailable, ContentionExhausted: not now; the datastore is away or locked.
    """
    name, pace = _own_node(world, netconf), world.pace()
    if netconf.datastore.is_kubernetes:
        snapshot = world.datastore.read([Get(node_key(name))], deadline=pace.deadline.capped(CALL_TIMEOUT_S))
        if snapshot.find(node_key(name)) is None:
            raise NodeUnknown.of(name)
        return name
    node = Node(metadata=Metadata(name=name, uid=world.host.new_uid(), creation_time_ns=world.clock.now_ns()))
    validate_resource(node)

    def decide(snapshot: Snapshot) -> Decision[None]:
        is_registered = snapshot.find(node_key(name)) is not None
        return Decision(() if is_registered else (Create(node_key(name), node),), None)

    Transaction(world.datastore, pace, READINESS_GATE).run((Get(node_key(name)),), decide)
    return name


def publish_node_name(world: NodeWorld, netconf: NetConf, name: str) -> None:
    """Write the name to the node-name file, which ADD may wait for, and beside it which machine has written it.

    Raises:
        OSError: a file cannot be read or written.
    """
    if (world.host.find_text(netconf.nodename_file) or "").strip() != name:
        world.host.publish(netconf.nodename_file, name)
    # Last: a process that is killed before leaves a name that does not count, and none of another machine that does.
    identity = machine_identity(world.host)
    if world.host.find_text(machine_file(netconf)) != identity:
        world.host.publish(machine_file(netconf), identity)


def _own_node(world: NodeWorld, netconf: NetConf) -> str:
    """The name of this node; a file that another machine has written does not count."""
    try:
        return node_of(world, netconf)
    except Unavailable:
        return node_of(world, evolve(netconf, nodename_file=""))


def copy_cluster_labels(world: NodeWorld, name: str) -> bool:
    """Give a registered node the labels of the orchestrator's node; return whether anything changed.

    Nothing is copied where no orchestrator is configured.

    Raises:
        NodeUnknown: the orchestrator has no node of that name.
        Malformed: the Node's record of what was copied cannot be read.
        Unauthorized: the orchestrator or the datastore refuses.
        Unavailable, ContentionExhausted: not now.
    """
    if world.open_orchestrator is None:
        return False
    pace = world.pace()
    with world.open_orchestrator() as orchestrator:
        facts = orchestrator.find_node(name, deadline=pace.deadline)
    if facts is None:
        raise NodeUnknown.of(name)

    def decide(snapshot: Snapshot) -> Decision[bool]:
        stored = snapshot.find(node_key(name))
        if stored is None:  # deleted meanwhile; it is registered again
            return Decision((), result=False)
        wanted = follow_cluster_node(stored.value, facts)
        if wanted == stored.value:
            return Decision((), result=False)
        return Decision((Update(stored.key, wanted, stored.revision),), result=True)

    return Transaction(world.datastore, pace, READINESS_GATE).run((Get(node_key(name)),), decide).result is True


def store_release(world: NodeWorld, release: str, *, has_just_started: bool) -> bool:
    """Store the release of this node as that of the cluster; return whether that changed anything.

    A node that starts has the last word, so that a downgrade counts too. Later it only raises the release: in the
    middle of an upgrade a node of the former release may have started again. A cluster without an identity gets one.

    Raises:
        Unauthorized: the datastore refuses.
        Unavailable, ContentionExhausted: not now; the datastore is away or locked.
    """
    pace = world.pace()
    known = find_cluster_information(world.datastore, deadline=pace.deadline)
    if known.is_datastore_ready is False:
        raise Unavailable("ClusterInformation default", "spec.datastoreReady is false: nothing is changed meanwhile")
    if known.version == release or not (has_just_started or is_older_release(known.version, than=release)):
        return False
    ensure_initialized(world.datastore, pace=pace, new_uid=world.host.new_uid, version=release)
    return True
