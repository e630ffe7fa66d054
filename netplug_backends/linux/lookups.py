"""The little that is asked of the kernel through the hot path's own messages.

``dataplane`` calls it when a name or a route is taken, and ``inspection`` for what no listing tells.
"""

from __future__ import annotations

import _socket
import errno
from collections.abc import Iterable

from netplug_backends.linux import netlink
from netplug_backends.linux.channel import Channel
from netplug_backends.linux.netlink import LinkFacts
from netplug_backends.linux.netns import Entered
from netplug_core.addressing import Prefix

__all__ = ["are_peers", "find_link", "interface_name", "taken"]


def find_link(channel: Channel, name: str) -> LinkFacts | None:
    """The interface of a name in the channel's namespace."""
    found = channel.ask(netlink.find_link(name)).accept(errno.ENODEV)
    return None if found.error else netlink.link_facts(found.reply)


def are_peers(outside: Channel, namespaces: Entered, container: LinkFacts, host: LinkFacts) -> bool:
    """Whether the host's interface is the other end of the container's.

    Indexes alone do not tell: each namespace counts its own.
    """
    if host.peer != container.index or host.peer_namespace is None:
        return False
    reply = outside.ask(netlink.find_namespace_id(namespaces.there)).accept().reply
    return netlink.namespace_id(reply) == host.peer_namespace


def taken(outside: Channel, index: int, destinations: Iterable[Prefix]) -> dict[Prefix, str]:
    """The destinations, each one address, whose very own route leads over another interface, and that one's name."""
    asked = tuple(destinations)
    found: dict[Prefix, str] = {}
    for destination, outcome in zip(
        asked, outside.send([netlink.find_route(wanted.first) for wanted in asked]), strict=True
    ):
        if outcome.accept(errno.ENETUNREACH).error:
            continue
        facts = netlink.route_facts(outcome.reply)
        if facts.destination == destination and facts.interface != index:
            found[destination] = interface_name(facts.interface)
    return found


def interface_name(index: int) -> str:
    """The name of an interface of the calling thread's namespace, for people."""
    try:
        return _socket.if_indextoname(index)
    except OSError:
        return f"number {index}"
