"""Connects this node with the others: the controllers of routes and tunnels, by name.

- ``network feed``: nodes, pools, blocks and their affinities are followed in the datastore of the node
- ``tunnel addresses``: the node has an address for each of its tunnel devices
- ``kernel events``: notifications of the kernel wake the next one
- ``routes``: what the cluster's state asks for is programmed, and stays

``netplug_core.reconcile.routes`` and ``tunnels`` say what should be; ``netplug_cli.wiring`` opens what these act
through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from threading import Lock

from attrs import define, field, frozen

from netplug_cli.node.bgp import BGP_USE_CHANGED
from netplug_cli.node.tasks import ENDPOINTS_CHANGED, NODE_REGISTERED
from netplug_cli.node_status import NetworkStatus, RouteStatus
from netplug_cli.runtime.feed import StoreFeed, notifications_controller
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.dataplane.bgp import NO_BGP, BgpUse
from netplug_core.dataplane.routing import (
    TUNNEL_DEVICES,
    Change,
    HostInterface,
    KernelEvents,
    RoutingDataplane,
    Tunnel,
    WorkloadRoute,
)
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import START, Mark
from netplug_core.flows.node import settle_tunnel_address
from netplug_core.ipam.model import AFFINITY, BLOCK
from netplug_core.ipam.protocol import IPAM
from netplug_core.names import HOST_INTERFACE_PREFIX
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Source, Timing, Unfinished
from netplug_core.reconcile.route_inputs import RouteInputs, find_route_settings, update_inputs
from netplug_core.reconcile.routes import RouteEngine
from netplug_core.reconcile.tunnels import NO_MTUS, MTUSettings, TunnelAddress, find_tunnel_pools
from netplug_core.records import Kind
from netplug_core.resources.bgp import BGP_CONFIGURATION, BGP_FILTER, BGP_PEER
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.node import NODE, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION

__all__ = [
    "CONDITION_EVERY_S", "KERNEL_CHANGED", "NETWORK_KINDS", "NetworkCondition", "NodeRoutes",
    "TunnelAddresses", "kernel_events_controller",
]  # fmt: skip

NETWORK_KINDS: tuple[Kind[object], ...] = (
    NODE,
    IPPOOL,
    BLOCK,
    AFFINITY,
    NODE_CONFIGURATION,
    BGP_CONFIGURATION,
    BGP_PEER,
    BGP_FILTER,
)
"""What routes and BGP sessions follow from."""

KERNEL_CHANGED = Source("kernel")
"""Interfaces, addresses or routes of the node have changed."""

RESYNC_EVERY_S = 90.0
"""The kernel is read so often, if nothing has changed: what others have changed is repaired."""

CHECK_ADDRESSES_EVERY_S = 600.0
"""It is looked so often whether the addresses of the tunnels are still held by this node."""

_SETTLE_S = 30.0


# --- addresses of tunnels ---------------------------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class TunnelAddresses:
    """Gives the node the addresses of its tunnels. ``find_name`` is the name that it is registered by; None: not yet.

    ``open_ipam`` opens what assigns addresses of a datastore.
    """

    feed: StoreFeed
    find_name: Callable[[], str | None]
    open_ipam: Callable[[Datastore], AbstractContextManager[IPAM]]
    clock: Clock
    chance: Callable[[], float]
    _check_at: float = field(default=0.0, init=False)

    def controller(self) -> Controller[tuple[TunnelAddress, ...], TunnelAddress]:
        """What assigns and releases."""
        return Controller(
            name="tunnel addresses",
            observe=self._observe,
            plan=lambda due: Plan(actions=due, look_again_s=CHECK_ADDRESSES_EVERY_S),
            act=self._settle,
            failure="the node has no address for a tunnel: pods of other nodes are not reached through it",
            inputs=frozenset((NODE, IPPOOL, NODE_REGISTERED)),
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=60.0)),
        )

    def _observe(self, _deadline: Deadline) -> tuple[TunnelAddress, ...]:
        """The addresses that may have to be settled: all of them now and then, otherwise those that look wrong."""
        name, view = self.find_name(), self.feed.view
        if name is None or self.feed.uses_pod_cidrs or not self.feed.has_listed():
            return ()  # the first address of a pod CIDR is that of each tunnel, and nothing is assigned
        record = view.find(node_key(name))
        if record is None:
            return ()
        node, pools, now = record.value, [each.value for each in view.list(IPPOOL)], self.clock.monotonic()
        if now >= self._check_at:
            self._check_at = now + CHECK_ADDRESSES_EVERY_S
            return tuple(TunnelAddress)
        due = list[TunnelAddress]()
        for sort in TunnelAddress:
            named, ranges = sort.find(node), find_tunnel_pools(sort, node, pools)
            is_right = any(named in pool.spec.prefix for pool in ranges) if named is not None else not ranges
            if not is_right:
                due.append(sort)
        return tuple(due)

    def _settle(self, sort: TunnelAddress, deadline: Deadline) -> None:
        name, datastore = self.find_name(), self.feed.datastore
        if name is None or datastore is None:
            self._check_at = 0.0
            return
        pace = Pace(clock=self.clock, deadline=deadline.capped(_SETTLE_S), chance=self.chance)
        with self.open_ipam(datastore) as ipam:
            settle_tunnel_address(datastore, ipam, name, sort, pace=pace)


# --- routes -----------------------------------------------------------------------------------------------------------


@frozen
class _Work:
    """Routes to workloads that are to be restored, and what is to be changed."""

    lost: tuple[WorkloadRoute, ...] = ()
    changes: tuple[Change, ...] = ()


@frozen
class _Look:
    work: _Work = _Work()
    problems: tuple[Problem, ...] = ()


@define(kw_only=True, eq=False)
class NodeRoutes:
    """Programs routes and tunnels. Nothing is done, and so nothing removed, before everything was listed once.

    ``kernel`` is the release of the kernel. ``find_bgp_use`` says what BGP does for the routes of this node; None: that
    is not known yet. ``find_floating`` are the floating addresses of its workloads, with their host ends; None: not all
    are known, and those of before stay. ``find_learned`` is what BGP has learned of pools with IPIP, with next hops.
    """

    feed: StoreFeed
    find_name: Callable[[], str | None]
    dataplane: RoutingDataplane
    clock: Clock
    mtus: MTUSettings = NO_MTUS
    kernel: str = ""
    find_bgp_use: Callable[[], BgpUse | None] = lambda: NO_BGP
    find_floating: Callable[[], Mapping[Address, str] | None] = dict[Address, str]
    find_learned: Callable[[], Mapping[Prefix, Address]] = dict[Prefix, Address]
    engine: RouteEngine | None = field(default=None, init=False)
    _mark: Mark = field(default=START, init=False)
    _must_read: bool = field(default=True, init=False)
    _read_at: float = field(default=0.0, init=False)
    _interfaces: tuple[HostInterface, ...] = field(default=(), init=False)
    _floating: Mapping[Address, str] | None = field(default=None, init=False)
    _is_programmed: bool = field(default=False, init=False)
    _refused: tuple[Problem, ...] = field(default=(), init=False)  # by the kernel, in the last pass
    _using: Lock = field(factory=Lock, init=False)  # the engine, which the status shows from another thread

    def controller(self) -> Controller[_Look, _Work]:
        """What programs."""
        return Controller(
            name="routes",
            observe=self._observe,
            plan=_plan_changes,
            act=self._apply,
            failure="routes to pods of other nodes cannot be programmed",
            recovered="routes to pods of all other nodes are programmed",
            inputs=frozenset((*NETWORK_KINDS, KERNEL_CHANGED, BGP_USE_CHANGED, ENDPOINTS_CHANGED, NODE_REGISTERED)),
            timing=Timing(backoff=Backoff(first_s=0.1, longest_s=10.0)),
        )

    def note_kernel_change(self) -> None:
        """Read the kernel in the next pass; any thread may call it."""
        self._must_read = True

    def status(self) -> NetworkStatus | None:
        """What is programmed; None where the node is not registered anywhere."""
        if self.find_name() is None:
            return None
        with self._using:
            engine = self.engine
            if engine is None or not self._is_programmed:
                return NetworkStatus(obstacle="routes to other nodes have not been programmed yet")
            reasons, count = engine.explain(), len(engine.inputs.nodes)
            problems = (*self._refused, *engine.problems)
            tunnels = tuple(f"{each.name} {each.address}" for each in engine.desired() if isinstance(each, Tunnel))
        routes = (
            RouteStatus(
                destination=str(each.destination), way=each.way, reason=each.reason, is_programmed=each.is_programmed
            )
            for each in reasons
        )
        texts = tuple(f"{each.message}: {each.cause}" for each in problems)
        return NetworkStatus(nodes=count, tunnels=tunnels, routes=tuple(routes), problems=texts)

    def _observe(self, _deadline: Deadline) -> _Look:
        name, bgp = self.find_name(), self.find_bgp_use()
        self._floating = self._floating if (found := self.find_floating()) is None else found
        if name is None or bgp is None or self._floating is None or not self.feed.has_listed():
            return _Look()
        with self._using:
            return self._find_changes(name, bgp)

    def _find_changes(self, name: str, bgp: BgpUse) -> _Look:
        engine, now, uses_pod_cidrs = self.engine, self.clock.monotonic(), self.feed.uses_pod_cidrs
        if engine is None or (engine.inputs.node, engine.inputs.uses_pod_cidrs) != (name, uses_pod_cidrs):
            engine = self.engine = RouteEngine(RouteInputs(name, uses_pod_cidrs=uses_pod_cidrs))
            self._mark, self._must_read = START, True
        inputs = engine.inputs
        if self._must_read or now >= self._read_at:
            self._must_read, self._read_at = False, now + RESYNC_EVERY_S
            self._interfaces = self.dataplane.find_interfaces()
            inputs.set_interfaces(tuple(filter(_may_carry, self._interfaces)))
            engine.observe(self.dataplane.read())
        self._mark, changed = self.feed.view.changes_since(self._mark)
        update_inputs(inputs, self.feed.view, changed)
        inputs.set_settings(
            find_route_settings(self.feed.view, name, self._interfaces, mtus=self.mtus, bgp=bgp, kernel=self.kernel)
        )
        ends = {each.name for each in self._interfaces}
        inputs.set_floating({each: end for each, end in (self._floating or {}).items() if end in ends})
        inputs.set_learned(self.find_learned())
        lost, engine.lost = engine.lost, ()
        work = _Work(lost, engine.changes())
        if work == _Work():
            self._is_programmed, self._refused = True, ()
        return _Look(work, engine.problems)

    def _apply(self, work: _Work, _deadline: Deadline) -> None:
        with self._using:
            self._apply_to(self.engine, work)

    def _apply_to(self, engine: RouteEngine | None, work: _Work) -> None:
        if engine is None:
            return
        self._must_read, changes = True, work.changes  # unless all of it is known to be done
        failed = (*self.dataplane.restore(work.lost), *self.dataplane.apply(changes))
        engine.note_applied(changes, failed)
        before = frozenset(self._refused)
        message = "the kernel refuses a route or tunnel"
        self._refused = tuple(Problem(message=message, cause=str(each)) for each in failed)
        # What is refused a second time may be refused for ever, and the node works without it. Without a device it does
        # not: all routes through it are missing.
        has_devices = not any(isinstance(each.change.entry, Tunnel) for each in failed)
        if has_devices and before.issuperset(self._refused):
            self._is_programmed = True
        if failed:
            raise Unfinished(self._refused)
        self._must_read = any(isinstance(change.entry, Tunnel) for change in changes)


CONDITION_EVERY_S = 600.0
"""It is looked so often whether the orchestrator counts the network of the node as working."""

_NOT_YET_S = 5.0


@define(kw_only=True, eq=False)
class NetworkCondition:
    """Lets pods be scheduled to the node where a cloud keeps them away until it has routes.

    ``find_status`` is how the network is; ``clear`` says to the orchestrator that a node's works.
    """

    find_name: Callable[[], str | None]
    find_status: Callable[[], NetworkStatus | None]
    clear: Callable[[str, Deadline], None]

    def controller(self) -> Controller[str | None, str]:
        """What says so, once routes are programmed and sessions of BGP have come up."""
        return Controller(
            name="network condition",
            observe=self._observe,
            plan=_plan_condition,
            act=self.clear,
            failure="the condition NetworkUnavailable of the node cannot be cleared",
        )

    def _observe(self, _deadline: Deadline) -> str | None:
        status = self.find_status()
        return None if status is None or status.obstacle else self.find_name()


def _plan_condition(name: str | None) -> Plan[str]:
    if name is None:
        return Plan(look_again_s=_NOT_YET_S)
    return Plan(actions=(name,), look_again_s=CONDITION_EVERY_S)


def _plan_changes(look: _Look) -> Plan[_Work]:
    # A device that is made anew has lost what was on it, so the kernel is read again.
    has_device = any(isinstance(change.entry, Tunnel) for change in look.work.changes)
    return Plan(
        actions=() if look.work == _Work() else (look.work,),
        look_again_s=0.0 if has_device else RESYNC_EVERY_S,
        problems=look.problems,
    )


def _may_carry(interface: HostInterface) -> bool:
    """Whether packets to other nodes may leave by it. The interfaces of pods come and go, and never do."""
    is_own = interface.name.startswith(HOST_INTERFACE_PREFIX) or interface.name in TUNNEL_DEVICES
    return bool(interface.addresses) and not is_own


# --- the kernel -------------------------------------------------------------------------------------------------------


def kernel_events_controller(
    events: KernelEvents, note: Callable[[], None], *, clock: Clock
) -> Controller[Plan[None], None]:
    """What waits for notifications of the kernel, and calls ``note`` after each."""

    def wait(deadline: Deadline) -> None:
        if events.wait(deadline=deadline):
            note()

    return notifications_controller(
        name="kernel events",
        failure=f"the kernel notifies of no change; routes are compared every {RESYNC_EVERY_S:g} s",
        wait=wait,
        close=events.close,
        clock=clock,
    )
