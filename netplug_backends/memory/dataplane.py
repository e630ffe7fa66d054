"""A dataplane over namespaces, links, addresses and routes in memory.

Tests of flows and the simulator use it in place of a node. It refuses what the kernel refuses, with the same messages.
A function given as ``before_effect`` is called before each effect and may raise: a netplug error stands for a kernel
that refuses, an exception that is not an :class:`Exception` for a process that dies there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from attrs import define, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import (
    AttachmentState,
    InterfaceState,
    ObservedRoute,
    compare_with_plan,
    find_node_problems,
)
from netplug_core.dataplane.protocol import (
    OWN_NAMESPACE,
    AttachmentPlan,
    DataplaneTimeout,
    Difference,
    Forwarding,
    HostInterfaceTaken,
    InterfacePlan,
    InterfacePresence,
    KernelError,
    Link,
    LinkExists,
    Neighbour,
    NodeProblem,
    PlannedRoute,
    RouteConflict,
    RouteScope,
    RouteTable,
    Sysctl,
)
from netplug_core.errors import NamespaceNotFound

__all__ = ["MemoryDataplane", "MemoryInterface"]

_HOST = OWN_NAMESPACE
_DEFAULT_MTU = 1500
_MIN_MTU, _MAX_MTU = 68, 65535
_FOREIGN_MAC = "02:00:00:00:00:01"
_STATIC = 4


@frozen
class _RouteEntry:
    """A route of a table; the lowest metric wins, among equals the oldest route."""

    destination: Prefix
    gateway: str
    protocol: int
    metric: int
    table: RouteTable = RouteTable.MAIN


@define(eq=False)
class MemoryInterface:
    """An interface with its addresses, neighbours, routes and settings; ``namespace`` is a path, ``table`` its own."""

    name: str
    namespace: str
    alias: str = ""
    mac: str = _FOREIGN_MAC
    mtu: int = _DEFAULT_MTU
    queues: int = 1
    is_up: bool = False
    table: int = 0
    peer: MemoryInterface | None = field(default=None, repr=False)
    addresses: list[InterfaceAddress] = field(factory=list)
    neighbours: list[Neighbour] = field(factory=list)
    routes: list[_RouteEntry] = field(factory=list)
    settings: dict[str, str] = field(factory=dict)


def _no_script(effect: str) -> None:
    del effect


@define(eq=False)
class MemoryDataplane:
    """A dataplane without a kernel. ``add_namespace`` makes every namespace except the host's.

    ``node_settings`` are those of the whole node, by their path below ``/proc/sys``. ``obstacles`` are why no workload
    can be attached.
    """

    before_effect: Callable[[str], None] = _no_script
    node_settings: dict[str, str] = field(factory=dict)
    obstacles: tuple[str, ...] = ()
    _namespaces: dict[str, dict[str, MemoryInterface]] = field(factory=lambda: {_HOST: {}}, init=False)
    _rules: dict[str, list[tuple[Address, int]]] = field(factory=dict, init=False)
    _tables: Iterator[int] = field(factory=lambda: count(101), init=False)

    # --- the dataplane ---------------------------------------------------------------------------------------------

    def find(self, link: Link) -> InterfacePresence:
        """Which interface of the name is in the namespace."""
        if link.namespace not in self._namespaces:
            return InterfacePresence.NAMESPACE_GONE
        inner, outer = self.interface(link.name, link.namespace), self.interface(link.host_name, _HOST)
        if inner is None:
            return InterfacePresence.ABSENT
        is_own = outer is not None and inner.peer is outer and link.is_pair(outer.alias)
        return InterfacePresence.OWN if is_own else InterfacePresence.FOREIGN

    def has_host_end(self, link: Link) -> bool:
        """Whether the host has this attachment's end."""
        named, former = self.interface(link.host_name), self.interface(link.former_host_name)
        return (named is not None and link.is_host_end(named.alias)) or (former is not None and not former.alias)

    def apply(self, plan: AttachmentPlan, *, deadline: Deadline) -> None:
        """Make what the plan says, or leave nothing of it."""
        if plan.link.namespace not in self._namespaces:
            raise NamespaceNotFound(f"CNI_NETNS: {plan.link.namespace!r} is not a network namespace")
        kept = self._reuse_or_remove_pair(plan)
        with ExitStack() as undo:
            if kept is None:
                self._create(plan)
                undo.enter_context(self._removed_on_error(plan))
            if deadline.has_passed:
                raise DataplaneTimeout(f"attaching {plan.link.name!r} in {plan.link.namespace}")
            container = self._get(plan.link.name, plan.link.namespace)
            host = self._get(plan.link.host_name, _HOST)
            for interface, end in ((host, plan.host), (container, plan.container)):
                self._configure(interface, end)
            for route in plan.container.routes:
                self._add_container_route(container, route)
            for address in plan.container.source_rules:
                self._add_rule(container, address)
            for route in plan.host.routes:
                self._add_host_route(host, route)

    def verify(self, plan: AttachmentPlan, *, deadline: Deadline) -> tuple[Difference, ...]:
        """The differences between the plan and what exists."""
        del deadline  # nothing here takes time
        container = self.interface(plan.link.name, plan.link.namespace)
        host = self.interface(plan.link.host_name, _HOST)
        return compare_with_plan(
            plan,
            AttachmentState(
                container=None if container is None else self._state(container, plan.container),
                host=None if host is None else self._state(host, plan.host),
                is_pair=container is not None and container.peer is host,
            ),
        )

    def remove(self, link: Link, *, deadline: Deadline) -> None:
        """Remove this attachment's host end, and its peer with it."""
        found = self._find_host_end(link)
        if found is None:
            return
        if deadline.has_passed:
            raise DataplaneTimeout(f"removing {link.name!r} from the namespace {link.namespace}")
        self.before_effect(f"removing {found.name!r}")
        inner = found.peer
        if inner is not None and inner is self.interface(link.name, link.namespace):
            self._remove_rules(inner)
        if self.interface(found.name, found.namespace) is found:  # another process may have removed it meanwhile
            self.delete_link(found.name, found.namespace)

    def is_own_namespace(self, path: str) -> bool:
        """Whether the path is the host's own namespace."""
        return path == OWN_NAMESPACE

    def find_node_problems(self, families: tuple[Family, ...]) -> tuple[NodeProblem, ...]:
        """What ``node_settings`` keep workloads of these families from."""
        return find_node_problems(families, self.node_settings.get)

    def find_obstacles(self, families: tuple[Family, ...], forwarding: Forwarding) -> tuple[str, ...]:
        """The ``obstacles``, whatever is asked for."""
        del families, forwarding
        return self.obstacles

    # --- what a runtime, a user or another program does ------------------------------------------------------------

    def add_namespace(self, path: str) -> None:
        """Make a namespace without interfaces."""
        self._namespaces[path] = {}

    def remove_namespace(self, path: str) -> None:
        """Remove a namespace, and its interfaces with their peers."""
        for name in tuple(self._namespaces.get(path, ())):
            self.delete_link(name, path)
        self._namespaces.pop(path, None)
        self._rules.pop(path, None)

    def interface(self, name: str, namespace: str = OWN_NAMESPACE) -> MemoryInterface | None:
        """The interface of that name, which the caller may change; on the host unless a namespace is named."""
        return self._namespaces.get(namespace, {}).get(name)

    def names(self, namespace: str = OWN_NAMESPACE) -> tuple[str, ...]:
        """The names of all interfaces of a namespace, sorted."""
        return tuple(sorted(self._namespaces.get(namespace, ())))

    def host_routes(self) -> tuple[tuple[Prefix, str], ...]:
        """Destination and interface of every route of the host, sorted by their texts."""
        found = [(entry.destination, link.name) for link in self._namespaces[_HOST].values() for entry in link.routes]
        return tuple(sorted(found, key=str))

    def source_rules(self, namespace: str) -> list[tuple[Address, int]]:
        """The rules of a namespace, which the caller may change: from an address, to the table with that number."""
        return self._rules.setdefault(namespace, [])

    def add_link(self, name: str, namespace: str = OWN_NAMESPACE, *, alias: str = "") -> None:
        """Make an interface as another program does: up, without a peer."""
        self._register(MemoryInterface(name, namespace, alias, is_up=True))

    def rename_link(self, name: str, new_name: str, namespace: str = OWN_NAMESPACE) -> None:
        """Rename an interface."""
        link = self._get(name, namespace)
        self._register(link, new_name)
        del self._namespaces[namespace][name]

    def delete_link(self, name: str, namespace: str = OWN_NAMESPACE) -> None:
        """Delete an interface with its routes and its peer."""
        link = self._get(name, namespace)
        for end in (link, link.peer):
            if end is not None:
                del self._namespaces[end.namespace][end.name]

    def add_route(self, destination: Prefix, name: str, metric: int = 0) -> None:
        """Make a route of the host that is not netplug's."""
        self._get(name, _HOST).routes.append(_RouteEntry(destination, "", _STATIC, metric))

    # --- what the kernel does and refuses --------------------------------------------------------------------------

    def _reuse_or_remove_pair(self, plan: AttachmentPlan) -> MemoryInterface | None:
        """The container end of an existing pair that is as planned; otherwise None, and both names are free."""
        inner = self.interface(plan.link.name, plan.link.namespace)
        outer = self.interface(plan.link.host_name, _HOST)
        if inner is not None:
            if outer is None or inner.peer is not outer or not plan.link.is_host_end(outer.alias):
                raise LinkExists(plan.link.name, plan.link.namespace)
            if _is_planned(plan, plan.container, inner) and _is_planned(plan, plan.host, outer):
                return inner
        if outer is not None:
            if not plan.link.is_of_workload(outer.alias):
                raise HostInterfaceTaken(outer.name, outer.alias)
            self.before_effect(f"removing {outer.name!r}")
            self.delete_link(outer.name)
        return None

    def _create(self, plan: AttachmentPlan) -> None:
        link = plan.link
        operation = f"creating the interfaces {link.name!r} (in {link.namespace}) and {link.host_name!r} (on the host)"
        self.before_effect(operation)
        if link.mtu and not _MIN_MTU <= link.mtu <= _MAX_MTU:
            raise KernelError(operation, "Invalid argument")
        mtu = link.mtu or _DEFAULT_MTU
        inner = MemoryInterface(link.name, link.namespace, mac=plan.container.mac, mtu=mtu, queues=link.queues)
        outer = MemoryInterface(link.host_name, _HOST, str(link.alias), plan.host.mac, mtu, link.queues)
        inner.peer, outer.peer = outer, inner
        self._register(inner)
        self._register(outer)

    @contextmanager
    def _removed_on_error(self, plan: AttachmentPlan) -> Iterator[None]:
        """Remove the pair if the block fails, but not if the process dies."""
        try:
            yield
        except Exception:
            made = self.interface(plan.link.name, plan.link.namespace)
            if made is not None:
                self._remove_rules(made)
                self.delete_link(made.name, made.namespace)
            raise

    def _register(self, link: MemoryInterface, name: str = "") -> None:
        name = name or link.name
        if link.namespace not in self._namespaces:
            raise KernelError(f"creating {name!r} in {link.namespace}", "Invalid argument")
        if name in self._namespaces[link.namespace]:
            raise KernelError(f"creating {name!r}", "File exists")
        link.name, link.table = name, link.table or next(self._tables)
        self._namespaces[link.namespace][name] = link

    def _find_host_end(self, link: Link) -> MemoryInterface | None:
        """The host end of an attachment, by its name or as the peer of the interface in the namespace."""
        named = self.interface(link.host_name)
        if named is not None and link.is_host_end(named.alias):
            return named
        inner = self.interface(link.name, link.namespace)
        outer = None if inner is None else inner.peer
        if outer is None or outer.namespace != _HOST:
            return None
        is_former = not outer.alias and outer.name == link.former_host_name
        return outer if is_former or link.is_host_end(outer.alias) else None

    def _get(self, name: str, namespace: str) -> MemoryInterface:
        link = self.interface(name, namespace)
        if link is None:
            raise KernelError(f"looking for {name!r}", "No such device")
        return link

    def _configure(self, link: MemoryInterface, end: InterfacePlan) -> None:
        for setting in end.sysctls:
            self._set(link, setting)
        self.before_effect(f"bringing up {link.name!r}")
        link.is_up = True
        for neighbour in end.neighbours:
            self.before_effect(f"adding the neighbour {neighbour} to {link.name!r}")
            link.neighbours[:] = [*(n for n in link.neighbours if n.address != neighbour.address), neighbour]
        for held in end.addresses:
            if held not in link.addresses:
                self._add_address(link, held)

    def _set(self, link: MemoryInterface, setting: Sysctl) -> None:
        self.before_effect(f"setting {setting}")
        link.settings[setting.path] = setting.value

    def _add_address(self, link: MemoryInterface, held: InterfaceAddress) -> None:
        operation = f"adding the address {held} to {link.name!r}"
        self.before_effect(operation)
        if any(other.address == held.address for other in link.addresses):
            raise KernelError(operation, "File exists")
        link.addresses.append(held)

    def _add_container_route(self, link: MemoryInterface, route: PlannedRoute) -> None:
        entry = _route_entry(route)
        if entry not in link.routes:
            self._add_entry(link, entry, route)

    def _add_rule(self, link: MemoryInterface, address: Address) -> None:
        rules, rule = self.source_rules(link.namespace), (address, link.table)
        if rule not in rules:
            self.before_effect(f"adding the rule from {address} to {link.name!r}")
            rules.append(rule)

    def _remove_rules(self, link: MemoryInterface) -> None:
        """Remove the rules to an interface's own table; they outlive the interface."""
        rules = self.source_rules(link.namespace)
        rules[:] = [rule for rule in rules if rule[1] != link.table]

    def _add_host_route(self, link: MemoryInterface, route: PlannedRoute) -> None:
        entry = _route_entry(route)
        conflicting = [
            (other.metric, owner.name)
            for owner in self._namespaces[_HOST].values()
            for other in owner.routes
            if owner is not link and other.destination == route.destination and other.metric <= route.metric
        ]
        if conflicting:
            raise RouteConflict(route.destination, link.name, min(conflicting)[1])
        if entry not in link.routes:
            self._add_entry(link, entry, route)

    def _add_entry(self, link: MemoryInterface, entry: _RouteEntry, route: PlannedRoute) -> None:
        operation = f"adding the route to {route} over {link.name!r}"
        self.before_effect(operation)
        if link.name not in self._namespaces.get(link.namespace, {}):
            raise KernelError(operation, "No such device")
        if not link.is_up:
            raise KernelError(operation, "Network is down")
        if not _is_reachable(link, route):
            raise KernelError(operation, "Network is unreachable")
        link.routes.append(entry)

    def _state(self, link: MemoryInterface, end: InterfacePlan) -> InterfaceState:
        planned = {route.destination: route.metric for route in end.routes}
        return InterfaceState(
            alias=link.alias,
            mac=link.mac,
            mtu=link.mtu,
            is_up=link.is_up,
            addresses=frozenset(link.addresses),
            neighbours=frozenset(link.neighbours),
            routes=frozenset(
                ObservedRoute(
                    destination=entry.destination, gateway=entry.gateway, protocol=entry.protocol, table=entry.table
                )
                for entry in link.routes
            ),
            source_rules=frozenset(
                address for address, table in self._rules.get(link.namespace, ()) if table == link.table
            ),
            sysctls=dict(link.settings),
            conflicting_routes={
                entry.destination: owner.name
                for owner in self._namespaces[link.namespace].values()
                for entry in owner.routes
                if owner is not link and link.namespace == _HOST and entry.metric < planned.get(entry.destination, 0)
            },
        )


def _is_planned(plan: AttachmentPlan, end: InterfacePlan, found: MemoryInterface) -> bool:
    return (found.mac, found.mtu, found.queues) == (end.mac, plan.link.mtu or found.mtu, plan.link.queues)


def _route_entry(route: PlannedRoute) -> _RouteEntry:
    return _RouteEntry(route.destination, str(route.gateway or ""), route.protocol.value, route.metric, route.table)


def _is_reachable(link: MemoryInterface, route: PlannedRoute) -> bool:
    """Whether the gateway, if there is one, is on the link: link-local addresses are, others need a route."""
    gateway = route.gateway
    if gateway is None or route.scope is RouteScope.LINK or _LINK_LOCAL.contains(gateway):
        return True
    return any(
        entry.destination.contains(gateway) and not entry.gateway and entry.table is route.table
        for entry in link.routes
    )


_LINK_LOCAL = Prefix.parse("fe80::/10")
