"""The little that is asked of the kernel through the hot path's own messages.

``dataplane`` calls it when a name or a route is taken, and ``inspection`` for what no listing tells.
"""

from __future__ import annotations

import _socket
import errno
from collections.abc import Iterable

from netplug_backends.linux import netlink
from netplug_backends.linux.netlink import KernelLink
from netplug_backends.linux.netlink_socket import NetlinkSocket
from netplug_backends.linux.netns import NamespaceDescriptors
from netplug_core.addressing import Prefix

__all__ = ["are_peers", "find_competing_routes", "find_link", "interface_name"]


def find_link(socket: NetlinkSocket, name: str) -> KernelLink | None:
    """The interface of a name in the channel's namespace."""
    found = socket.send_one(netlink.query_link(name)).require_success(errno.ENODEV)
    return None if found.error else netlink.decode_link(found.reply)


def are_peers(
    host_socket: NetlinkSocket, namespaces: NamespaceDescriptors, container: KernelLink, host: KernelLink
) -> bool:
    """Whether the host's interface is the other end of the container's.

    Indexes alone do not tell: each namespace counts its own.
    """
    if host.peer != container.index or host.peer_namespace is None:
        return False
    reply = host_socket.send_one(netlink.query_namespace_id(namespaces.entered)).require_success().reply
    return netlink.decode_namespace_id(reply) == host.peer_namespace


def find_competing_routes(host_socket: NetlinkSocket, index: int, destinations: Iterable[Prefix]) -> dict[Prefix, str]:
    """The destinations, each one address, whose very own route leads over another interface, and that one's name."""
    asked = tuple(destinations)
    found: dict[Prefix, str] = {}
    for destination, outcome in zip(
        asked, host_socket.send([netlink.query_route(wanted.first) for wanted in asked]), strict=True
    ):
        if outcome.require_success(errno.ENETUNREACH).error:
            continue
        facts = netlink.decode_route(outcome.reply)
        if facts.destination == destination and facts.interface != index:
            found[destination] = interface_name(facts.interface)
    return found


def interface_name(index: int) -> str:
    """The name of an interface of the calling thread's namespace, for people."""
    try:
        return _socket.if_indextoname(index)
    except OSError:
        return f"number {index}"
