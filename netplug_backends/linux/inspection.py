"""What is there of an attachment, for CHECK. ``dataplane`` imports it when it verifies, and only then.

The only module that imports pyroute2: listing addresses, routes and neighbours is not worth messages of our own, and
an ADD must not pay for the import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyroute2 import IPRoute

from netplug_backends.linux import links, sysctls
from netplug_backends.linux.netlink import KernelLink
from netplug_backends.linux.netlink_socket import NetlinkSocket
from netplug_backends.linux.netns import NamespaceGone, entered_namespace
from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.delta import AttachmentState, InterfaceState, ObservedRoute
from netplug_core.dataplane.protocol import AttachmentPlan, InterfaceAddress, InterfacePlan, Neighbour

__all__ = ["inspect"]

_MAIN_TABLE, _UNICAST = 254, 1
_UNUSABLE = 0x08 | 0x40  # of an address: found to be a duplicate, or not yet tried
_PERMANENT = 0x80


def inspect(plan: AttachmentPlan) -> AttachmentState:
    """What is there of a plan, at both ends. A namespace that is gone has no interface.

    Raises:
        OSError, DataplaneError: the kernel would not say.
    """
    with NetlinkSocket.open() as outside:
        theirs = links.find_link(outside, plan.host.name)
        container, is_pair = _inspect_container(plan, outside, theirs)
        if theirs is None:
            return AttachmentState(container=container, host=None, is_pair=False)
        taken = links.find_competing_routes(outside, theirs.index, (route.destination for route in plan.host.routes))
        return AttachmentState(container=container, host=_state(plan.host, theirs, taken), is_pair=is_pair)


def _inspect_container(
    plan: AttachmentPlan, host_socket: NetlinkSocket, host_link: KernelLink | None
) -> tuple[InterfaceState | None, bool]:
    """The container's end, and whether the host's is its peer."""
    try:
        with entered_namespace(plan.link.namespace) as namespaces, NetlinkSocket.open() as inside:
            mine = links.find_link(inside, plan.container.name)
            if mine is None:
                return None, False
            is_pair = host_link is not None and links.are_peers(host_socket, namespaces, mine, host_link)
            return _state(plan.container, mine, {}), is_pair
    except NamespaceGone:
        return None, False


def _state(end: InterfacePlan, link: KernelLink, competing: Mapping[Prefix, str]) -> InterfaceState:
    """One end, looked at from the namespace that the thread is in."""
    settings = {setting.path: sysctls.find_sysctl(setting.path) for setting in end.sysctls}
    with IPRoute() as kernel:
        return InterfaceState(
            mac=link.mac,
            mtu=link.mtu,
            is_up=link.is_up,
            addresses=frozenset(_addresses(kernel, link.index)),
            neighbours=frozenset(_neighbours(kernel, link.index)),
            routes=frozenset(_routes(kernel, link.index)),
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


def _routes(kernel: IPRoute, index: int) -> Iterator[ObservedRoute]:
    for found in kernel.get_routes(oif=index, table=_MAIN_TABLE, type=_UNICAST):
        # The kernel leaves out the destination of a default route.
        destination = found.get_attr("RTA_DST") or _ANYWHERE[found["family"]]
        yield ObservedRoute(
            destination=Prefix.parse(f"{destination}/{found['dst_len']}"),
            gateway=found.get_attr("RTA_GATEWAY") or "",
            protocol=found["proto"],
        )


_ANYWHERE = {2: "0.0.0.0", 10: "::"}  # noqa: S104  a destination, not an address to listen on
