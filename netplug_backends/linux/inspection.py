"""Reads the state of an attachment from the kernel, for CHECK. ``dataplane.verify`` imports it by need.

It imports pyroute2, which lists addresses, routes and neighbours. An ADD does not load it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyroute2 import IPRoute

from netplug_backends.linux import attachment
from netplug_backends.linux.netlink import MAIN_TABLE, KernelLink, NetlinkSocket, interface_table
from netplug_backends.linux.netns import NamespaceGone, entered_namespace
from netplug_core.addressing import Address, InterfaceAddress, Prefix
from netplug_core.dataplane.plan import AttachmentState, InterfaceState, ObservedRoute
from netplug_core.dataplane.protocol import AttachmentPlan, InterfacePlan, Neighbour, RouteTable

__all__ = ["inspect"]

_UNICAST = 1
_UNUSABLE = 0x08 | 0x40  # flags of an address: duplicate, or still tentative
_PERMANENT = 0x80


def inspect(plan: AttachmentPlan, namespaces: Mapping[str, int]) -> AttachmentState:
    """The state of both ends of a plan. A namespace that is gone has no interface.

    ``namespaces`` are descriptors of namespaces that are open already, by path.

    Raises:
        OSError, DataplaneError: the kernel refused a request.
    """
    with NetlinkSocket.open() as host_socket:
        host = attachment.find_link(host_socket, plan.host.name)
        container, is_pair = _inspect_container(plan, namespaces, host_socket, host)
        if host is None:
            return AttachmentState(container=container, host=None, is_pair=False)
        destinations = (route.destination for route in plan.host.routes)
        competing = attachment.find_competing_routes(host_socket, host.index, destinations)
        return AttachmentState(container=container, host=_state(plan.host, host, competing), is_pair=is_pair)


def _inspect_container(
    plan: AttachmentPlan, opened: Mapping[str, int], host_socket: NetlinkSocket, host_link: KernelLink | None
) -> tuple[InterfaceState | None, bool]:
    """The container's end, and whether the host's end is its peer."""
    try:
        with entered_namespace(plan.link.namespace, opened) as namespaces, NetlinkSocket.open() as container_socket:
            container = attachment.find_link(container_socket, plan.container.name)
            if container is None:
                return None, False
            is_pair = host_link is not None and attachment.are_peers(host_socket, namespaces, container, host_link)
            return _state(plan.container, container, {}), is_pair
    except NamespaceGone:
        return None, False


def _state(end: InterfacePlan, link: KernelLink, competing: Mapping[Prefix, str]) -> InterfaceState:
    """The state of one end, read in the calling thread's namespace."""
    settings = {setting.path: attachment.find_sysctl(setting.path) for setting in end.sysctls}
    with IPRoute() as kernel:
        return InterfaceState(
            alias=link.alias,
            mac=link.mac,
            mtu=link.mtu,
            is_up=link.is_up,
            addresses=frozenset(_addresses(kernel, link.index)),
            neighbours=frozenset(_neighbours(kernel, link.index)),
            routes=frozenset(
                route
                for table, number in (
                    (RouteTable.MAIN, MAIN_TABLE),
                    (RouteTable.INTERFACE, interface_table(link.index)),
                )
                for route in _routes(kernel, link.index, table, number)
            ),
            source_rules=frozenset(_source_rules(kernel, interface_table(link.index)))
            if end.source_rules
            else frozenset(),
            sysctls={path: value for path, value in settings.items() if value is not None},
            conflicting_routes=competing,
        )


def _addresses(kernel: IPRoute, index: int) -> Iterator[InterfaceAddress]:
    for found in kernel.get_addr(index=index):
        text = found.get_attr("IFA_LOCAL") or found.get_attr("IFA_ADDRESS")
        if not (found.get_attr("IFA_FLAGS") or found["flags"]) & _UNUSABLE:
            yield InterfaceAddress(Address.parse(text), found["prefixlen"])


def _neighbours(kernel: IPRoute, index: int) -> Iterator[Neighbour]:
    for found in kernel.get_neighbours(ifindex=index):
        if found["state"] & _PERMANENT:
            yield Neighbour(Address.parse(found.get_attr("NDA_DST")), found.get_attr("NDA_LLADDR"))


def _source_rules(kernel: IPRoute, table: int) -> Iterator[Address]:
    for family in _ANYWHERE:
        for found in kernel.get_rules(family=family):
            if found.get_attr("FRA_TABLE") == table and found.get_attr("FRA_SRC"):
                yield Address.parse(found.get_attr("FRA_SRC"))


def _routes(kernel: IPRoute, index: int, table: RouteTable, number: int) -> Iterator[ObservedRoute]:
    for found in kernel.get_routes(oif=index, table=number, type=_UNICAST):
        # A default route has no destination attribute.
        destination = found.get_attr("RTA_DST") or _ANYWHERE[found["family"]]
        yield ObservedRoute(
            destination=Prefix.parse(f"{destination}/{found['dst_len']}"),
            gateway=found.get_attr("RTA_GATEWAY") or "",
            protocol=found["proto"],
            table=table,
        )


_ANYWHERE = {2: "0.0.0.0", 10: "::"}  # noqa: S104  a destination, not an address to listen on
