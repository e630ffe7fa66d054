"""The parts of an attachment in the kernel: the pair of links, routes and rules, settings below ``/proc/sys``."""

from __future__ import annotations

import _socket
import errno
import os
from collections.abc import Iterable
from os import urandom

from attrs import evolve, frozen

from netplug_backends.linux import netlink
from netplug_backends.linux.netlink import KernelLink, NetlinkMessage, NetlinkOutcome, NetlinkSocket, RouteInsertion
from netplug_backends.linux.netns import NamespaceDescriptors, in_new_namespace
from netplug_core.addressing import Family, Prefix
from netplug_core.dataplane.protocol import (
    AttachmentPlan,
    HostInterfaceTaken,
    InterfacePlan,
    KernelError,
    Link,
    LinkExists,
    PlannedRoute,
    RouteConflict,
    RouteScope,
    RouteTable,
)

__all__ = [
    "IPV4_OF_INTERFACES", "AttachContext", "HostSettings", "VethPair", "add_container_routes", "add_host_routes",
    "are_peers", "bring_up", "change_sysctl", "choose_index", "find_competing_routes", "find_host_end_by_name",
    "find_link", "find_pair", "find_sysctl", "has_host_end", "has_ipv6", "has_pair", "interface_name", "make_pair",
    "remove_link", "remove_source_rules", "write_sysctl",
]  # fmt: skip


# --- links -----------------------------------------------------------------------------------------------------------


_MIN_INDEX, _MAX_INDEX = 1 << 20, (1 << 31) - 1


@frozen
class AttachContext:
    """An attachment in progress: the plan, the index of a new host end, and a socket and descriptor of each namespace.

    No interface of the host had the index when it was chosen.
    """

    plan: AttachmentPlan
    container_socket: NetlinkSocket
    host_socket: NetlinkSocket
    namespaces: NamespaceDescriptors
    index: int


@frozen
class VethPair:
    """The indexes of both ends."""

    container: int
    host: int


def find_link(socket: NetlinkSocket, name: str) -> KernelLink | None:
    """The interface with that name in the socket's namespace."""
    found = socket.send_one(netlink.query_link(name)).require_success(errno.ENODEV)
    return None if found.error else netlink.decode_link(found.reply)


def are_peers(
    host_socket: NetlinkSocket, namespaces: NamespaceDescriptors, container: KernelLink, host: KernelLink
) -> bool:
    """Whether the two interfaces are one pair. Indexes alone do not show it: each namespace has its own."""
    if host.peer != container.index or host.peer_namespace is None:
        return False
    reply = host_socket.send_one(netlink.query_namespace_id(namespaces.entered)).require_success().reply
    return netlink.decode_namespace_id(reply) == host.peer_namespace


def choose_index() -> int:
    """A random index that no interface of the calling thread's namespace has.

    The kernel counts up from 1. Nothing else asks for a number of this range, so the index names the new interface from
    before it exists, and never another one.
    """
    while True:
        index = _MIN_INDEX + int.from_bytes(urandom(4)) % (_MAX_INDEX - _MIN_INDEX)
        try:
            _socket.if_indextoname(index)
        except OSError:
            return index


def find_host_end_by_name(host_socket: NetlinkSocket, link: Link) -> KernelLink | None:
    """The interface with the link's host name, if its alias says that it is this attachment's."""
    found = find_link(host_socket, link.host_name)
    return found if found is not None and link.is_host_end(found.alias) else None


def has_host_end(host_socket: NetlinkSocket, link: Link) -> bool:
    """Whether the host has the link's host end; an interface of its former name may be it if it has no alias."""
    if find_host_end_by_name(host_socket, link) is not None:
        return True
    former = find_link(host_socket, link.former_host_name) if link.former_host_name else None
    return former is not None and not former.alias


def find_pair(
    host_socket: NetlinkSocket, container_socket: NetlinkSocket, namespaces: NamespaceDescriptors, link: Link
) -> VethPair | None:
    """The container's interface and its peer, if that is on the host and this attachment's."""
    container = find_link(container_socket, link.name)
    if container is None or container.peer is None:
        return None
    found = host_socket.send_one(netlink.query_link_by_index(container.peer)).require_success(errno.ENODEV)
    if found.error:
        return None
    host = netlink.decode_link(found.reply)
    is_former = not host.alias and host.name == link.former_host_name
    is_ours = is_former or link.is_host_end(host.alias)
    if not is_ours or not are_peers(host_socket, namespaces, container, host):
        return None
    return VethPair(container=container.index, host=host.index)


def has_pair(
    host_socket: NetlinkSocket, container_socket: NetlinkSocket, namespaces: NamespaceDescriptors, link: Link
) -> bool:
    """Whether the container's interface is the peer of the host end that has the link's name and alias."""
    container, host = find_link(container_socket, link.name), find_link(host_socket, link.host_name)
    if container is None or host is None or not link.is_pair(host.alias):
        return False
    return are_peers(host_socket, namespaces, container, host)


def remove_link(socket: NetlinkSocket, index: int, name: str) -> None:
    """Remove an interface and its peer; one that is gone is a success."""
    socket.send_one(netlink.delete_link(index, name)).require_success(errno.ENODEV)


def interface_name(index: int) -> str:
    """The name of an interface in the calling thread's namespace, for error texts."""
    try:
        return _socket.if_indextoname(index)
    except OSError:
        return f"number {index}"


def make_pair(context: AttachContext) -> VethPair:
    """The pair of the plan: the existing one if it is as planned, otherwise a new one.

    Raises:
        LinkExists: the container has an interface of that name that is not this attachment's.
        HostInterfaceTaken: the host has an interface of the planned name that is not this workload's.
        KernelError: the kernel refused.
    """
    created, aliased, found = _create_pair(context)
    if created.error == errno.EEXIST:
        existing = _reuse_or_remove_pair(context)
        if existing is not None:
            return existing
        created, aliased, found = _create_pair(context)
    created.require_success()
    aliased.require_success()
    host = netlink.decode_link(found.require_success().reply)
    return VethPair(container=host.peer or 0, host=host.index)


def _create_pair(context: AttachContext) -> tuple[NetlinkOutcome, ...]:
    """Create and mark the pair in one datagram, which the kernel handles in one system call.

    A process that is killed leaves a pair with its alias, or none. The alias is set by index: by name it would be given
    to a foreign interface if the creation fails. (With the creation itself, the kernel ignores an alias.)
    """
    plan, index = context.plan, context.index
    create = netlink.create_veth_pair(
        plan.link, plan.container, plan.host, index=index, container_namespace=context.namespaces.entered
    )
    alias = netlink.set_alias(index, plan.host.name, str(plan.link.alias))
    return context.host_socket.send((create, alias, netlink.query_link_by_index(index)))


def _reuse_or_remove_pair(context: AttachContext) -> VethPair | None:
    """The existing pair if it is as planned; otherwise None, and both names are free.

    A pair of this attachment with other properties is removed, and so is a host end of the same workload that an
    earlier container left.
    """
    plan = context.plan
    container = find_link(context.container_socket, plan.container.name)
    host = find_link(context.host_socket, plan.host.name)
    if container is not None:
        if (
            host is None
            or not plan.link.is_host_end(host.alias)
            or not are_peers(context.host_socket, context.namespaces, container, host)
        ):
            raise LinkExists(container.name, plan.link.namespace)
        if _is_planned(plan.link, plan.container, container) and _is_planned(plan.link, plan.host, host):
            return VethPair(container=container.index, host=host.index)
    if host is not None:
        if not plan.link.is_of_workload(host.alias):
            raise HostInterfaceTaken(host.name, host.alias)
        remove_link(context.host_socket, host.index, host.name)
    return None


def _is_planned(link: Link, end: InterfacePlan, found: KernelLink) -> bool:
    return (
        found.mac == end.mac
        and found.mtu == (link.mtu or found.mtu)
        and (found.tx_queues, found.rx_queues) == (link.queues, link.queues)
    )


def bring_up(socket: NetlinkSocket, index: int, end: InterfacePlan) -> None:
    """Set an interface up and add its neighbours and addresses.

    That includes the host end's link-local address. The kernel would add it only after it has detected the carrier,
    and with privacy addresses configured, it would not derive it from the MAC.
    """
    messages = [
        netlink.set_up(index, end.name),
        *[netlink.add_neighbour(index, end.name, neighbour) for neighbour in end.neighbours],
        *[netlink.add_address(index, end.name, address) for address in end.addresses],
    ]
    # Adding a neighbour replaces an existing one and setting up has no effect twice: only an address can exist.
    for outcome in socket.send(messages):
        outcome.require_success(errno.EEXIST)


# --- routes ----------------------------------------------------------------------------------------------------------


_MAX_RULES = 256  # of one family to the table of one interface; a workload can add rules as fast as they are removed

_DEFAULT_METRIC = 1024  # the kernel's for IPv6
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)


def add_container_routes(container_socket: NetlinkSocket, index: int, end: InterfacePlan) -> None:
    """Add the container's routes, beside those to the same destinations over another of its interfaces, and its rules.

    The rules come last: without routes, they would lead to a table that is empty.
    """
    messages = [netlink.add_route(index, end.name, route, _insertion(route)) for route in end.routes]
    for route, outcome in zip(end.routes, _add_routes(container_socket, end, messages), strict=True):
        if outcome.require_success(errno.EEXIST).error and _may_be_another(route):
            _add_second_route(container_socket, index, end.name, route)
    for outcome in container_socket.send([netlink.add_source_rule(index, end.name, a) for a in end.source_rules]):
        outcome.require_success(errno.EEXIST)


def remove_source_rules(container_socket: NetlinkSocket, index: int) -> None:
    """Remove the rules to an interface's own table. Unlike its routes, they outlive the interface."""
    for family in Family:
        message = netlink.delete_rule_to_table(family, netlink.interface_table(index))
        for _ in range(_MAX_RULES):
            # A kernel without IPv6 has no rules of that family either.
            if container_socket.send_one(message).require_success(errno.ENOENT, *_NO_SUCH_FAMILY).error:
                break


def add_host_routes(host_socket: NetlinkSocket, index: int, end: InterfacePlan) -> None:
    """Add the host's routes.

    Raises:
        RouteConflict: traffic to a destination takes a route over another interface.
    """
    messages = [netlink.add_route(index, end.name, route, RouteInsertion.EXCLUSIVE) for route in end.routes]
    for outcome in _add_routes(host_socket, end, messages):
        outcome.require_success(errno.EEXIST)
    competing = find_competing_routes(host_socket, index, (route.destination for route in end.routes))
    for destination, name in competing.items():
        raise RouteConflict(destination, end.name, name)


def find_competing_routes(host_socket: NetlinkSocket, index: int, destinations: Iterable[Prefix]) -> dict[Prefix, str]:
    """The destinations (single addresses) with a route of their own over another interface, and its name."""
    listed = tuple(destinations)
    outcomes = host_socket.send([netlink.query_route(destination.first) for destination in listed])
    competing: dict[Prefix, str] = {}
    for destination, outcome in zip(listed, outcomes, strict=True):
        if outcome.require_success(errno.ENETUNREACH).error:
            continue
        route = netlink.decode_route(outcome.reply)
        if route.destination == destination and route.interface != index:
            competing[destination] = interface_name(route.interface)
    return competing


def _add_routes(
    socket: NetlinkSocket, end: InterfacePlan, messages: list[NetlinkMessage]
) -> tuple[NetlinkOutcome, ...]:
    """Send routes, and then query the interface, so that the kernel detects the carrier now and not a little later."""
    *added, found = socket.send([*messages, netlink.query_link(end.name)])
    reply = found.require_success().reply
    if not netlink.has_mac(reply, end.mac):
        mac = netlink.decode_link(reply).mac
        raise KernelError(f"giving {end.name!r} the MAC {end.mac}", f"another program changed it to {mac}")
    return tuple(added)


def _insertion(route: PlannedRoute) -> RouteInsertion:
    # Next hops are looked up by interface, so their routes may be alike.
    return RouteInsertion.APPEND if route.scope is RouteScope.LINK else RouteInsertion.EXCLUSIVE


def _may_be_another(route: PlannedRoute) -> bool:
    """Whether a route that exists may lead over another interface: not one in a table of the interface's own."""
    return _insertion(route) is RouteInsertion.EXCLUSIVE and route.table is RouteTable.MAIN


def _add_second_route(container_socket: NetlinkSocket, index: int, name: str, route: PlannedRoute) -> None:
    """Add a route whose destination and metric exist already, with a metric of this interface's own.

    The kernel would take turns between IPv4 default routes of one metric, and join IPv6 routes into one over both
    interfaces.
    """
    replies = container_socket.send_one(netlink.query_routes(route.destination.family)).require_success().replies
    existing = {(each.destination, each.interface, each.table) for each in map(netlink.decode_route, replies)}
    if (route.destination, index, netlink.MAIN_TABLE) not in existing:
        second = evolve(route, metric=(route.metric or _DEFAULT_METRIC) + index)
        container_socket.send_one(netlink.add_route(index, name, second, RouteInsertion.EXCLUSIVE)).require_success()


# --- sysctls ---------------------------------------------------------------------------------------------------------


_ROOT = "/proc/sys/"

IPV4_OF_INTERFACES = "net/ipv4/conf/"
"""Where the settings are that netlink changes too: those of IPv4, for each interface."""


def write_sysctl(path: str, value: str) -> None:
    """Write a setting.

    Raises:
        OSError: the kernel has no such setting, or does not take the value.
    """
    # The kernel takes each write for a whole value, so the value must go in one write.
    descriptor = os.open(_ROOT + path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        data = value.encode()
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.EIO, "the kernel took only a part of the value")
    finally:
        os.close(descriptor)


def change_sysctl(path: str, value: str) -> None:
    """Write a setting, unless it has the value already.

    Raises:
        OSError: the kernel has no such setting, or does not take the value.
    """
    if find_sysctl(path) != value:
        write_sysctl(path, value)


def find_sysctl(path: str) -> str | None:
    """The value of a setting; None if the kernel has no such setting.

    Raises:
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(_ROOT + path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, 4096).decode().strip()
    finally:
        os.close(descriptor)


def has_ipv6() -> bool:
    """Whether this kernel supports IPv6."""
    return os.access(_ROOT + "net/ipv6/conf/all", os.F_OK)


class HostSettings:
    """The settings of this node; a :class:`netplug_core.dataplane.protocol.NodeSettings`."""

    def find(self, path: str) -> str | None:
        """The value on the host."""
        return find_sysctl(path)

    def find_in_new_namespace(self, path: str) -> str | None:
        """The value in a network namespace that is made for it, and that goes with its thread."""
        return in_new_namespace(lambda: find_sysctl(path))

    def is_changeable(self, path: str) -> bool:
        """Whether it can be written, or belongs to an interface and can be changed by netlink."""
        return path.startswith(IPV4_OF_INTERFACES) or os.access(_ROOT + path, os.W_OK)
