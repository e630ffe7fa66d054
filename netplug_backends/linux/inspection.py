"""What is there of an attachment, for CHECK. ``dataplane`` imports it when it verifies, and only then.

The only module that imports pyroute2: listing addresses, routes and neighbours is not worth messages of our own, and
an ADD must not pay for the import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyroute2 import IPRoute

from netplug_backends.linux import lookups, sysctl
from netplug_backends.linux.channel import Channel
from netplug_backends.linux.netlink import LinkFacts
from netplug_backends.linux.netns import NamespaceGone, entered
from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.delta import EndState, FoundRoute, State
from netplug_core.dataplane.interface import AttachmentPlan, EndPlan, InterfaceAddress, Neighbour

__all__ = ["inspect"]

_MAIN_TABLE, _UNICAST = 254, 1
_UNUSABLE = 0x08 | 0x40  # of an address: found to be a duplicate, or not yet tried
_PERMANENT = 0x80


def inspect(plan: AttachmentPlan) -> State:
    """What is there of a plan, at both ends. A namespace that is gone has no interface.

    Raises:
        OSError, DataplaneError: the kernel would not say.
    """
    with Channel.open() as outside:
        theirs = lookups.find_link(outside, plan.host.name)
        container, is_pair = _look_inside(plan, outside, theirs)
        if theirs is None:
            return State(container=container, host=None, is_pair=False)
        taken = lookups.taken(outside, theirs.index, (route.destination for route in plan.host.routes))
        return State(container=container, host=_state(plan.host, theirs, taken), is_pair=is_pair)


def _look_inside(plan: AttachmentPlan, outside: Channel, theirs: LinkFacts | None) -> tuple[EndState | None, bool]:
    """The container's end, and whether the host's is its peer."""
    try:
        with entered(plan.link.namespace) as namespaces, Channel.open() as inside:
            mine = lookups.find_link(inside, plan.container.name)
            if mine is None:
                return None, False
            is_pair = theirs is not None and lookups.are_peers(outside, namespaces, mine, theirs)
            return _state(plan.container, mine, {}), is_pair
    except NamespaceGone:
        return None, False


def _state(end: EndPlan, facts: LinkFacts, taken: Mapping[Prefix, str]) -> EndState:
    """One end, looked at from the namespace that the thread is in."""
    settings = {setting.path: sysctl.read(setting.path) for setting in end.sysctls}
    with IPRoute() as kernel:
        return EndState(
            mac=facts.mac,
            mtu=facts.mtu,
            is_up=facts.is_up,
            addresses=frozenset(_addresses(kernel, facts.index)),
            neighbours=frozenset(_neighbours(kernel, facts.index)),
            routes=frozenset(_routes(kernel, facts.index)),
            settings={path: value for path, value in settings.items() if value is not None},
            taken=taken,
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


def _routes(kernel: IPRoute, index: int) -> Iterator[FoundRoute]:
    for found in kernel.get_routes(oif=index, table=_MAIN_TABLE, type=_UNICAST):
        # The kernel leaves out the destination of a default route.
        destination = found.get_attr("RTA_DST") or _ANYWHERE[found["family"]]
        yield FoundRoute(
            destination=Prefix.parse(f"{destination}/{found['dst_len']}"),
            gateway=found.get_attr("RTA_GATEWAY") or "",
            protocol=found["proto"],
        )


_ANYWHERE = {2: "0.0.0.0", 10: "::"}  # noqa: S104  a destination, not an address to listen on
