"""Interfaces and veth pairs: finding, creating, replacing and configuring them through netlink.

``dataplane`` calls it in the order of an attachment; ``inspection`` and ``pinned_namespaces`` look interfaces up.
"""

from __future__ import annotations

import _socket
import errno

from attrs import frozen

from netplug_backends.linux import netlink
from netplug_backends.linux.netlink import KernelLink
from netplug_backends.linux.netlink_socket import NetlinkOutcome, NetlinkSocket
from netplug_backends.linux.netns import NamespaceDescriptors
from netplug_core.dataplane.protocol import AttachmentPlan, InterfacePlan, Link, LinkExists

__all__ = [
    "AttachContext", "VethPair", "are_peers", "bring_up", "find_link", "interface_name", "make_pair",
]  # fmt: skip


@frozen
class AttachContext:
    """An attachment in progress: the plan, a socket in each namespace, and descriptors of both namespaces."""

    plan: AttachmentPlan
    container_socket: NetlinkSocket
    host_socket: NetlinkSocket
    namespaces: NamespaceDescriptors


@frozen
class VethPair:
    """The indexes of both ends, and whether this call created them."""

    container: int
    host: int
    is_new: bool


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


def interface_name(index: int) -> str:
    """The name of an interface in the calling thread's namespace, for error texts."""
    try:
        return _socket.if_indextoname(index)
    except OSError:
        return f"number {index}"


def make_pair(context: AttachContext) -> VethPair:
    """The pair of the plan: the existing one if it is as planned, otherwise a new one.

    Raises:
        LinkExists: the container has an interface of that name that is not the planned pair's.
        KernelError: the kernel refused.
    """
    created, found = _create_pair(context)
    if created.error == errno.EEXIST:
        existing = _reuse_or_remove_pair(context)
        if existing is not None:
            return existing
        created, found = _create_pair(context)
    created.require_success()
    link = netlink.decode_link(found.require_success().reply)
    return VethPair(link.index, link.peer or 0, is_new=True)


def _create_pair(context: AttachContext) -> tuple[NetlinkOutcome, NetlinkOutcome]:
    plan = context.plan
    created, found = context.container_socket.send(
        (
            netlink.create_veth_pair(plan.link, plan.container, plan.host, host_namespace=context.namespaces.original),
            netlink.query_link(plan.container.name),
        )
    )
    return created, found


def _reuse_or_remove_pair(context: AttachContext) -> VethPair | None:
    """The existing pair if it is as planned; otherwise None, and both names are free."""
    plan = context.plan
    container = find_link(context.container_socket, plan.container.name)
    host = find_link(context.host_socket, plan.host.name)
    if container is not None:
        if host is None or not are_peers(context.host_socket, context.namespaces, container, host):
            raise LinkExists(container.name, plan.link.namespace)
        if _is_planned(plan.link, plan.container, container) and _is_planned(plan.link, plan.host, host):
            return VethPair(container.index, host.index, is_new=False)
    if host is not None:
        context.host_socket.send_one(netlink.delete_link(host.name)).require_success(errno.ENODEV)
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
        *(netlink.add_neighbour(index, end.name, neighbour) for neighbour in end.neighbours),
        *(netlink.add_address(index, end.name, address) for address in end.addresses),
    ]
    # Adding a neighbour replaces an existing one and setting up has no effect twice: only an address can exist.
    for outcome in socket.send(messages):
        outcome.require_success(errno.EEXIST)
