"""The network of a node in memory: a store, a kernel, and the controllers between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from attrs import define, evolve, field

from netplug_backends.memory.bgp import MemoryBgp, MemoryBgpNetwork
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_backends.memory.routing import MemoryRouting
from netplug_cli.node.bgp import BGP_USE_CHANGED, NodeBgp
from netplug_cli.node.routing import NETWORK_KINDS, NodeRoutes, TunnelAddresses
from netplug_cli.runtime.feed import StoreFeed
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import View
from netplug_core.errors import NetplugError
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.model import Affinity, AffinityState, Block, affinity_key, host_owner
from netplug_core.keys import Key
from netplug_core.records import Create, Delete, Get, Record, Update, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import key_of
from netplug_core.resources.node import Node, node_key
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines
from tests.harness.resources import resource_of

__all__ = ["NetworkHarness"]


@define
class NetworkHarness:
    """``name`` is that of the node; None: it is not registered yet."""

    name: str | None = "a"
    settings: DatastoreSettings | None = field(factory=lambda: DatastoreSettings(type="memory"))
    clock: ManualClock = field(factory=ManualClock)
    log: Lines = field(factory=Lines)
    kernel: MemoryRouting = field(factory=MemoryRouting)
    store: MemoryDatastore = field(init=False)
    opened: Datastore | None = None  # what the feed opens; None: the store
    times_opened: int = 0
    feed: StoreFeed = field(init=False)
    addresses: TunnelAddresses = field(init=False)
    routes: NodeRoutes = field(init=False)
    daemon: MemoryBgp = field(factory=lambda: MemoryBgpNetwork().add())
    passwords: dict[tuple[str, str], str] = field(factory=dict)
    password_error: NetplugError | None = None
    bgp: NodeBgp = field(init=False)
    driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = MemoryDatastore(clock=self.clock)
        view = View(clock=self.clock, uncached_kinds=frozenset())
        self.feed = StoreFeed(
            name="network feed",
            what="nodes, pools and blocks",
            kinds=NETWORK_KINDS,
            view=view,
            read_datastore=lambda: self.settings,
            open_datastore=self._open,
            clock=self.clock,
        )
        self.addresses = TunnelAddresses(
            feed=self.feed,
            find_name=lambda: self.name,
            open_ipam=lambda store: nullcontext(self.ipam(store)),
            clock=self.clock,
            chance=lambda: 0.5,
        )
        self.bgp = NodeBgp(
            view=view,
            find_name=lambda: self.name,
            daemon=self.daemon,
            read_password=self._read_password,
            clock=self.clock,
            on_use_change=lambda: self.wake(BGP_USE_CHANGED),
        )
        self.routes = NodeRoutes(
            feed=self.feed,
            find_name=lambda: self.name,
            dataplane=self.kernel,
            clock=self.clock,
            find_bgp_use=lambda: self.bgp.use,
            find_learned=lambda: self.bgp.learned,
        )
        controllers = (
            self.feed.controller(),
            self.addresses.controller(),
            self.routes.controller(),
            self.bgp.controller(),
        )
        self.driven = DrivenControllers(controllers, clock=self.clock, log=self.log)
        view.on_change = self.wake

    def ipam(self, store: Datastore | None = None) -> BlockIPAM:
        """What assigns addresses of the store."""
        return BlockIPAM(datastore=store or self.store, clock=self.clock, chance=lambda: 0.5)

    def wake(self, changed: object) -> None:
        """Wake those that have this input."""
        for loop in self.driven.loops:
            if changed in loop.controller.inputs:
                loop.wake()

    def pass_time(self, seconds: float = 31.0) -> None:
        """Let so many seconds pass; a watch of the feed takes 30 of them."""
        self.driven.pass_time(seconds)

    def feed_once(self) -> None:
        """Let the view have what is stored; the other controllers do nothing."""
        self.feed.controller().reconcile(self.clock, lambda: True)

    def put(self, key: Key[object], value: object) -> None:
        """Store a value, whatever is there."""
        found = self.find(key)
        write: Write = Create(key, value) if found is None else Update(key, value, found.revision)
        self.store.commit([write], deadline=self.deadline())

    def delete(self, key: Key[object]) -> None:
        """Delete what is stored."""
        found = self.find(key)
        assert found is not None
        self.store.commit([Delete(key, found.revision)], deadline=self.deadline())

    def find(self, key: Key[object]) -> Record[object] | None:
        """What is stored."""
        return self.store.read([Get(key)], deadline=self.deadline()).find(key)

    def put_node(self, node: Node, **labels: str) -> None:
        """Register a node."""
        metadata = Metadata(name=node.metadata.name, labels=tuple(sorted(labels.items())))
        self.put(node_key(node.metadata.name), evolve(node, metadata=metadata))

    def node(self, name: str = "a") -> Node:
        """What is stored of a node."""
        found = self.find(node_key(name))
        assert found is not None
        assert isinstance(found.value, Node)
        return found.value

    def put_pool(self, pool: IPPool) -> None:
        """Store a pool."""
        self.put(pool.key, pool)

    def put_configuration(self, **spec: object) -> None:
        """Store the BGP settings of the cluster."""
        self.put_resource("BGPConfiguration", "default", **spec)

    def put_resource(self, kind: str, name: str, /, **spec: object) -> None:
        """Store a resource of a user."""
        resource = resource_of(kind, name, spec)
        self.put(key_of(resource), resource)

    def put_block(self, prefix: str, node: str) -> None:
        """Let a node have a block, without addresses."""
        block = Block.new(Prefix.parse(prefix), owner=host_owner(node), now_ns=self.clock.now_ns())
        self.put(block.key, block)
        self.put(affinity_key(block.owner, block.prefix), Affinity(state=AffinityState.CONFIRMED))

    def deadline(self) -> Deadline:
        """Enough for one call."""
        return Deadline.after(self.clock, 5.0)

    def _read_password(self, name: tuple[str, str], _deadline: Deadline) -> str | None:
        if self.password_error is not None:
            raise self.password_error
        return self.passwords.get(name)

    @contextmanager
    def _open(self, _settings: DatastoreSettings) -> Iterator[Datastore]:
        self.times_opened += 1
        yield self.opened or self.store
