"""Interfaces and veth pairs: finding, creating, replacing and configuring them through netlink.

``dataplane`` calls it in the order of an attachment; ``inspection`` and ``pinned_namespaces`` look interfaces up.
"""

from __future__ import annotations

import _socket
import errno
from os import urandom

from attrs import frozen

from netplug_backends.linux import netlink
from netplug_backends.linux.netlink import KernelLink
from netplug_backends.linux.netlink_socket import NetlinkOutcome, NetlinkSocket
from netplug_backends.linux.netns import NamespaceDescriptors
from netplug_core.dataplane.protocol import AttachmentPlan, HostInterfaceTaken, InterfacePlan, Link, LinkExists

__all__ = [
    "AttachContext", "VethPair", "are_peers", "bring_up", "choose_index", "find_host_end_by_name", "find_link",
    "find_pair", "has_host_end", "has_pair", "interface_name", "make_pair", "remove_link",
]  # fmt: skip

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
