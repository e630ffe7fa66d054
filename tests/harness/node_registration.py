"""A node that is to be registered, on a store, a machine, a network and an orchestrator in memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.addressing import Address, Family, InterfaceAddress
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import HostAddress, HostInterface
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.node import NodeWorld
from netplug_core.netconf.model import NetConf
from netplug_core.orchestrator.model import NodeFacts
from netplug_core.records import Create, Delete, Get, Record, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from tests.harness.cni_node import FakeHost
from tests.harness.node_server import Lines

__all__ = ["MTU_FILE", "NODE_NAME_FILE", "FakeNetwork", "NodeHarness", "interface"]

NODE_NAME_FILE = "/var/lib/netplug/nodename"
MTU_FILE = "/var/lib/netplug/mtu"


def interface(name: str, index: int, *addresses: str, mtu: int = 1500) -> HostInterface:
    """An interface that is up, with usable addresses."""
    held = tuple(HostAddress(held=InterfaceAddress.parse(text)) for text in addresses)
    return HostInterface(name=name, index=index, is_up=True, mtu=mtu, addresses=held)


@define
class FakeNetwork:
    """The network of a machine. ``sources`` has the local address for each target that can be reached."""

    interfaces: tuple[HostInterface, ...] = (interface("eth0", 2, "10.240.0.11/24", "fd10::11/64"),)
    sources: dict[str, str] = field(factory=dict)

    def find_interfaces(self) -> tuple[HostInterface, ...]:
        return self.interfaces

    def find_source_address(self, target: str, family: Family, *, deadline: Deadline) -> Address:
        found = self.sources.get(target)
        if found is None:
            raise KernelError(f"looking for the local {family} address for {target}", "Network is unreachable")
        return Address.parse(found)


@define
class NodeHarness:
    """``has_orchestrator``: whether access to one is configured. ``names`` are those that a person has configured."""

    names: NetConf = field(factory=NetConf)
    has_orchestrator: bool = True
    release: str = ""
    clock: ManualClock = field(factory=ManualClock)
    host: FakeHost = field(factory=FakeHost)
    network: FakeNetwork = field(factory=FakeNetwork)
    log: Lines = field(factory=Lines)
    store: MemoryDatastore = field(init=False)
    orchestrator: MemoryOrchestrator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = MemoryDatastore(clock=self.clock)
        self.orchestrator = MemoryOrchestrator(clock=self.clock)

    def world(self, datastore: Datastore | None = None) -> NodeWorld:
        return NodeWorld(
            datastore=datastore or self.store,
            host=self.host,
            clock=self.clock,
            chance=lambda: 0.5,
            log=self.log,
            open_orchestrator=(lambda: nullcontext(self.orchestrator)) if self.has_orchestrator else None,
            release=self.release,
        )

    def netconf(self, datastore_type: str = "etcdv3") -> NetConf:
        return NetConf(
            nodename=self.names.nodename,
            nodename_file=NODE_NAME_FILE,
            mtu_file=MTU_FILE,
            datastore=DatastoreSettings(type=datastore_type),
        )

    def put_cluster_node(self, name: str, **labels: str) -> None:
        self.orchestrator.put_node(NodeFacts(name=name, uid="", labels=tuple(sorted(labels.items()))))

    def put_node(self, name: str, labels: Mapping[str, str]) -> None:
        node = Node(metadata=Metadata(name=name, labels=tuple(sorted(labels.items()))))
        stored = self.find(name)
        write = Update(node_key(name), node, stored.revision) if stored else Create(node_key(name), node)
        self.store.commit([write], deadline=self.deadline())

    def delete_node(self, name: str) -> None:
        stored = self.find(name)
        assert stored is not None
        self.store.commit([Delete(stored.key, stored.revision)], deadline=self.deadline())

    def find(self, name: str) -> Record[Node] | None:
        return self.store.read([Get(node_key(name))], deadline=self.deadline()).find(node_key(name))

    def labels(self, name: str) -> dict[str, str]:
        stored = self.find(name)
        assert stored is not None
        return dict(stored.value.metadata.labels)

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 60)
