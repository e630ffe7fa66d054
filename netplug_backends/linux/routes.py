"""Routes of an attachment: adding them, and finding competing routes over other interfaces.

``dataplane`` adds routes; ``inspection`` asks for competing ones.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from attrs import evolve

from netplug_backends.linux import netlink
from netplug_backends.linux.links import interface_name
from netplug_backends.linux.netlink import NetlinkMessage, RouteInsertion
from netplug_backends.linux.netlink_socket import NetlinkOutcome, NetlinkSocket
from netplug_core.addressing import Family, Prefix
from netplug_core.dataplane.protocol import InterfacePlan, KernelError, PlannedRoute, RouteConflict

__all__ = ["add_container_routes", "add_host_routes", "find_competing_routes"]

_IPV6_METRIC = 1024


def add_container_routes(container_socket: NetlinkSocket, index: int, end: InterfacePlan) -> None:
    """Add the container's routes, beside those to the same destinations over another of its interfaces."""
    messages = [netlink.add_route(index, end.name, route, _insertion(route)) for route in end.routes]
    for route, outcome in zip(end.routes, _add_routes(container_socket, end, messages), strict=True):
        if outcome.require_success(errno.EEXIST).error and _insertion(route) is RouteInsertion.EXCLUSIVE:
            _add_second_route(container_socket, index, end.name, route)


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
    """Send routes, and then query the interface.

    The query makes the kernel detect the carrier at once. If both ends have the same index, that may otherwise take a
    second, in which the end that came up first sends nothing.
    """
    *added, found = socket.send([*messages, netlink.query_link(end.name)])
    mac = netlink.decode_link(found.require_success().reply).mac
    if mac != end.mac:
        raise KernelError(f"giving {end.name!r} the MAC {end.mac}", f"another program changed it to {mac}")
    return tuple(added)


def _insertion(route: PlannedRoute) -> RouteInsertion:
    # The kernel would join IPv6 routes of one metric into a multipath route over both interfaces.
    return RouteInsertion.EXCLUSIVE if route.destination.family is Family.IPV6 else RouteInsertion.APPEND


def _add_second_route(container_socket: NetlinkSocket, index: int, name: str, route: PlannedRoute) -> None:
    """Add a route whose destination and metric exist already, with a metric of this interface's own."""
    replies = container_socket.send_one(netlink.query_routes(route.destination.family)).require_success().replies
    existing = {(each.destination, each.interface) for each in map(netlink.decode_route, replies)}
    if (route.destination, index) not in existing:
        second = evolve(route, metric=_IPV6_METRIC + index)
        container_socket.send_one(netlink.add_route(index, name, second, RouteInsertion.EXCLUSIVE)).require_success()
