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
from netplug_core.dataplane.protocol import (
    InterfacePlan,
    KernelError,
    PlannedRoute,
    RouteConflict,
    RouteScope,
    RouteTable,
)

__all__ = ["add_container_routes", "add_host_routes", "find_competing_routes", "remove_source_rules"]

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
