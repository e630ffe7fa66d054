"""The attachment plan of a workload endpoint and a link, and what differs from it. Pure: the kernel is not touched.

Flows call :func:`plan` on ADD (to apply it) and on CHECK (to verify it). One table has all that differs between the
address families; a link of both families gets the sum of the two.

The container sends everything to a next hop that is the same for every workload. For IPv4 it is 169.254.1.1, which no
interface has: a permanent neighbour entry has the host end's MAC, so neither an ARP answer nor a default route of the
host is needed. For IPv6 it is the link-local address that follows from that MAC.

An interface other than the first one has a routing table of its own too, for traffic from its addresses.

Only what the attachment needs is compared. A chained plugin or the workload itself may have added addresses, routes
and settings of its own; they are no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.protocol import (
    AttachmentPlan,
    Difference,
    FamilyNotSupported,
    Forwarding,
    InterfacePlan,
    KernelError,
    Link,
    Neighbour,
    NodeProblem,
    NodeSettings,
    PlannedRoute,
    RouteProtocol,
    RouteScope,
    RouteTable,
    Sysctl,
    SysctlRequirement,
)
from netplug_core.names import HOST_MAC, HostInterfaceAlias
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "HOST_ROUTE_METRIC", "AttachmentPlan", "AttachmentState", "InterfaceState", "ObservedRoute", "compare_with_plan",
    "find_mtu_problem", "find_node_problems", "find_obstacles", "next_hop", "plan", "refused_setting",
    "require_families",
]  # fmt: skip


HOST_ROUTE_METRIC = 10
"""The metric of host routes: better than what a routing daemon learns (IPv6's default is 1024)."""

_FURTHER_METRIC = 2048
"""The metric in a container's main table of interfaces other than the first: worse than its routes (IPv6: 1024)."""

_LINK_LOCAL = Prefix.parse("fe80::/64")


def _link_local(mac: str) -> Address:
    """The link-local address with the modified EUI-64 of a MAC. Source: RFC 4291, appendix A."""
    octets = bytes.fromhex(mac.replace(":", ""))
    identifier = bytes((octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]))
    return _LINK_LOCAL.nth(int.from_bytes(identifier, "big"))


@frozen(kw_only=True)
class _FamilyTraits:
    """How a family is attached. In the paths of settings, ``{}`` stands for the interface."""

    next_hop: Address
    to_next_hop: Prefix
    next_hop_is_owned: bool
    host_scope: RouteScope
    host_sysctls: tuple[Sysctl, ...]
    container_sysctls: tuple[Sysctl, ...]
    forwarding: str
    without_forwarding: str
    min_mtu: int


# The delay is set to 0 before ARP is proxied, because some kernels crashed otherwise. Duplicate address detection is
# off: no other interface can have these addresses, and a workload would wait a second for it.
_FAMILY_TRAITS = {
    Family.IPV4: _FamilyTraits(
        next_hop=Address.parse("169.254.1.1"),
        to_next_hop=Prefix.parse("169.254.1.1"),
        next_hop_is_owned=False,
        host_scope=RouteScope.LINK,
        host_sysctls=(
            Sysctl(path="net/ipv4/neigh/{}/proxy_delay", value="0", requirement=SysctlRequirement.OPTIONAL),
            Sysctl(path="net/ipv4/conf/{}/proxy_arp", value="1"),
            Sysctl(path="net/ipv4/conf/{}/forwarding", value="1"),
        ),
        container_sysctls=(),
        forwarding="net/ipv4/ip_forward",
        # Between the pods of the node, the settings of their own interfaces count.
        without_forwarding="this node and its other pods, and nothing else",
        min_mtu=68,  # RFC 791; the kernel makes no link with less
    ),
    Family.IPV6: _FamilyTraits(
        next_hop=_link_local(HOST_MAC),
        to_next_hop=_link_local(HOST_MAC).host_prefix,
        next_hop_is_owned=True,
        host_scope=RouteScope.GLOBAL,
        host_sysctls=(
            Sysctl(path="net/ipv6/conf/{}/accept_dad", value="0"),
            Sysctl(path="net/ipv6/conf/{}/disable_ipv6", value="0"),
            Sysctl(path="net/ipv6/conf/{}/proxy_ndp", value="1"),
            Sysctl(path="net/ipv6/conf/{}/forwarding", value="1"),
        ),
        container_sysctls=(
            Sysctl(path="net/ipv6/conf/{}/accept_dad", value="0"),
            Sysctl(path="net/ipv6/conf/all/disable_ipv6", value="0"),
            Sysctl(path="net/ipv6/conf/default/disable_ipv6", value="0"),
            Sysctl(path="net/ipv6/conf/lo/disable_ipv6", value="0"),
        ),
        forwarding="net/ipv6/conf/all/forwarding",
        without_forwarding="this node, and nothing else",
        min_mtu=1280,  # RFC 8200; below, the kernel has no settings of IPv6 for a link
    ),
}

# What protects the host and other workloads, whatever families the workload has addresses of: it can send any packet.
# - route_localnet: 1 would let it reach what listens on the host's 127.0.0.1. portmap sets 1 where a port is mapped.
# - rp_filter: it must not use an address that is not its own. Loose (2) is as strict on an interface without an IPv4
#   address; systemd writes it to new interfaces. 0 for a workload with allowed source prefixes: the kernel has no
#   list of them, so they are left to packet filters.
# - accept_redirects, accept_ra: it must not move the host's routes.
_RP_FILTER = Sysctl(path="net/ipv4/conf/{}/rp_filter", value="1", also_accepted=("2",))
_NO_RP_FILTER = evolve(_RP_FILTER, value="0", also_accepted=("1", "2"))
_PROTECTION = (
    Sysctl(path="net/ipv4/conf/{}/route_localnet", value="0", requirement=SysctlRequirement.INITIAL),
    _RP_FILTER,
    Sysctl(path="net/ipv4/conf/{}/accept_redirects", value="0"),
    Sysctl(path="net/ipv6/conf/{}/accept_redirects", value="0", requirement=SysctlRequirement.OPTIONAL),
    Sysctl(path="net/ipv6/conf/{}/accept_ra", value="0", requirement=SysctlRequirement.OPTIONAL),
)


_LOCALNET_OF_ALL = "net/ipv4/conf/all/route_localnet"
_LOCALNET_IS_OPEN = NodeProblem(
    "net.ipv4.conf.all.route_localnet is 1 on this node: every pod reaches what listens on the node's 127.0.0.1"
    " (kube-proxy sets it; it does not with --iptables-localhost-nodeports=false)",
    "sysctl -w net.ipv4.conf.all.route_localnet=0",
    limits_workloads=False,
)


def next_hop(family: Family) -> Address:
    """The gateway that a container uses for a family."""
    return _FAMILY_TRAITS[family].next_hop


def find_node_problems(
    families: tuple[Family, ...], find_setting: Callable[[str], str | None]
) -> tuple[NodeProblem, ...]:
    """What the settings of a whole node keep workloads with addresses of these families from, or open to them.

    ``find_setting`` returns the value of a path below ``/proc/sys``; None if the kernel does not have it.
    """
    found = []
    for family in families:
        traits = _FAMILY_TRAITS[family]
        if find_setting(traits.forwarding) == "0":
            name = traits.forwarding.replace("/", ".")
            message = f"{name} is 0 on this node: over {family}, pods reach {traits.without_forwarding}"
            found.append(NodeProblem(message, f"sysctl -w {name}=1", limits_workloads=True))
    if find_setting(_LOCALNET_OF_ALL) == "1":
        found.append(_LOCALNET_IS_OPEN)
    return tuple(found)


def find_mtu_problem(mtu: int, families: Iterable[Family]) -> str:
    """Why a link of that MTU cannot carry these families; empty if it can. 0 is the kernel's default."""
    least = _FAMILY_TRAITS[Family.IPV4].min_mtu
    if 0 < mtu < least:
        return f"the MTU {mtu} is too small: a link needs {least}"
    for family in families:
        least = _FAMILY_TRAITS[family].min_mtu
        if 0 < mtu < least:
            return f"the MTU {mtu} is too small for {family}, which needs {least}"
    return ""


def require_families(families: Iterable[Family], find_setting: Callable[[str], str | None]) -> None:
    """Return if the kernel has these families.

    Raises:
        FamilyNotSupported: it was started without IPv6, and then has none of its settings.
    """
    if Family.IPV6 in families and find_setting(_FAMILY_TRAITS[Family.IPV6].forwarding) is None:
        raise FamilyNotSupported(Family.IPV6)


def find_obstacles(families: tuple[Family, ...], forwarding: Forwarding, settings: NodeSettings) -> tuple[str, ...]:
    """Why no workload with addresses of these families can be attached: what ADD would say, in sentences."""
    try:
        require_families(families, settings.find)
    except FamilyNotSupported as error:
        return (str(error),)
    found: list[str] = []
    for setting in _container_sysctls(families, forwarding):
        found += _unchangeable(setting, settings.find_in_new_namespace, settings, "in a new network namespace")
    for setting in _host_sysctls(families, may_spoof=False):
        found += _unchangeable(setting, settings.find, settings, "on the host")
    return tuple(found)


def _unchangeable(
    setting: Sysctl, find: Callable[[str], str | None], settings: NodeSettings, where: str
) -> tuple[str, ...]:
    """Why a setting that new attachments need cannot be made. A new interface begins with the defaults."""
    path = setting.path.replace("{}", "default")
    if setting.requirement is SysctlRequirement.OPTIONAL or settings.is_changeable(path):
        return ()
    value = find(path)
    if value in (setting.value, *setting.also_accepted):
        return ()
    return (str(refused_setting(f"{path} = {setting.value}", where, value, "Read-only file system")),)


def refused_setting(setting: str, where: str, value: str | None, reason: str) -> KernelError:
    """The error about a setting that cannot be made, with its present value (None: there is no such setting)."""
    found = "" if value is None else f" (it is {value}; /proc/sys has to be writable)"
    return KernelError(f"setting {setting} {where}", f"{reason}{found}")


def plan(endpoint: WorkloadEndpoint, link: Link) -> AttachmentPlan:
    """What attaches the endpoint with its addresses and its MAC to the node over that link.

    Source: docs/configuration.md (``container_settings``, ``num_queues``).
    """
    addresses = tuple(dict.fromkeys(endpoint.spec.addresses))
    present = {address.family for address in addresses}
    families = tuple(family for family in Family if family in present)
    owned = [next_hop(family) for family in families if _FAMILY_TRAITS[family].next_hop_is_owned]
    permanent = [next_hop(family) for family in families if not _FAMILY_TRAITS[family].next_hop_is_owned]
    return AttachmentPlan(
        link=link,
        container=InterfacePlan(
            name=link.name,
            mac=endpoint.spec.mac,
            sysctls=_sysctls_of_interface(link.name, _container_sysctls(families, link.forwarding)),
            neighbours=tuple([Neighbour(address, HOST_MAC) for address in permanent]),
            routes=tuple([route for family in families for route in _container_routes(family, link)]),
            addresses=tuple([InterfaceAddress(address, address.family.width) for address in addresses]),
            source_rules=addresses if link.has_own_table else (),
        ),
        host=InterfacePlan(
            name=link.host_name,
            mac=HOST_MAC,
            sysctls=_sysctls_of_interface(
                link.host_name, _host_sysctls(families, may_spoof=bool(endpoint.spec.allowed_source_prefixes))
            ),
            routes=tuple([_host_route(address) for address in addresses]),
            addresses=tuple([InterfaceAddress(address, _LINK_LOCAL.length) for address in owned]),
        ),
    )


def _container_sysctls(families: tuple[Family, ...], forwarding: Forwarding) -> list[Sysctl]:
    value = "1" if forwarding is Forwarding.ENABLED else "0"
    settings: list[Sysctl] = []
    for family in families:
        traits = _FAMILY_TRAITS[family]
        # The forwarding is said either way: a new namespace may inherit the host's setting.
        settings += (*traits.container_sysctls, Sysctl(path=traits.forwarding, value=value))
    return settings


def _host_sysctls(families: tuple[Family, ...], *, may_spoof: bool) -> list[Sysctl]:
    settings = [_NO_RP_FILTER if may_spoof and setting is _RP_FILTER else setting for setting in _PROTECTION]
    for family in families:
        settings += _FAMILY_TRAITS[family].host_sysctls
    return settings


def _sysctls_of_interface(interface: str, settings: list[Sysctl]) -> tuple[Sysctl, ...]:
    return tuple(
        [
            Sysctl(
                path=setting.path.replace("{}", interface),
                value=setting.value,
                also_accepted=setting.also_accepted,
                requirement=setting.requirement,
            )
            for setting in settings
        ]
    )


def _container_routes(family: Family, link: Link) -> list[PlannedRoute]:
    everything = Prefix(family, 0, 0)
    metric = _FURTHER_METRIC if link.has_own_table else 0
    destinations = (everything,) if link.routes is None else link.routes
    routes = _routes_over_next_hop(family, destinations, RouteTable.MAIN, metric)
    if link.has_own_table:
        routes += _routes_over_next_hop(family, (everything,), RouteTable.INTERFACE)
    return routes


def _routes_over_next_hop(
    family: Family, destinations: tuple[Prefix, ...], table: RouteTable, metric: int = 0
) -> list[PlannedRoute]:
    """The route to the next hop where it needs one, and those over it to the destinations of that family."""
    traits = _FAMILY_TRAITS[family]
    gateway, to_gateway = traits.next_hop, traits.to_next_hop
    over_gateway = [
        PlannedRoute(
            destination=destination,
            gateway=gateway,
            scope=RouteScope.GLOBAL,
            protocol=RouteProtocol.BOOT,
            metric=metric,
            table=table,
        )
        for destination in dict.fromkeys(destinations)
        if destination.family is family and destination != to_gateway
    ]
    if traits.next_hop_is_owned:
        return over_gateway
    first = PlannedRoute(
        destination=to_gateway, scope=RouteScope.LINK, protocol=RouteProtocol.BOOT, metric=metric, table=table
    )
    return [first, *over_gateway]


def _host_route(address: Address) -> PlannedRoute:
    return PlannedRoute(
        destination=address.host_prefix,
        scope=_FAMILY_TRAITS[address.family].host_scope,
        protocol=RouteProtocol.NETPLUG,
        metric=HOST_ROUTE_METRIC,
    )


# --- what differs from it --------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ObservedRoute:
    """A route over one end, as it was found; any protocol may have made it."""

    destination: Prefix
    gateway: str = ""
    protocol: int
    table: RouteTable = RouteTable.MAIN

    def __str__(self) -> str:
        via = f" via {self.gateway}" if self.gateway else ""
        return f"{self.destination}{via} (protocol {self.protocol})"


@frozen(kw_only=True)
class InterfaceState:
    """One end of the link as it was found.

    ``sysctls`` has the value of each sysctl of the plan that exists. ``conflicting_routes`` names, for each planned
    destination that the kernel reaches through another interface, that interface. ``source_rules`` are the addresses
    from which traffic uses the interface's own table. ``alias`` is empty if it has none.
    """

    alias: str
    mac: str
    mtu: int
    is_up: bool
    addresses: frozenset[InterfaceAddress]
    neighbours: frozenset[Neighbour]
    routes: frozenset[ObservedRoute]
    source_rules: frozenset[Address]
    sysctls: Mapping[str, str]
    conflicting_routes: Mapping[Prefix, str]


@frozen(kw_only=True)
class AttachmentState:
    """What was found of an attachment: each end (None: no such interface), and whether they are one pair."""

    container: InterfaceState | None
    host: InterfaceState | None
    is_pair: bool


def compare_with_plan(plan: AttachmentPlan, observed: AttachmentState) -> tuple[Difference, ...]:
    """What is not as planned, the container first."""
    return tuple(_compare_with_plan(plan, observed))


def _compare_with_plan(plan: AttachmentPlan, observed: AttachmentState) -> Iterator[Difference]:
    inside = f"interface {plan.container.name!r} in {plan.link.namespace}"
    outside = f"interface {plan.host.name!r} on the host"
    for label, end, found in ((inside, plan.container, observed.container), (outside, plan.host, observed.host)):
        if found is None:
            yield Difference(label, "an interface", "none")
            continue
        yield from _link_differences(label, end, plan.link.mtu, found)
        yield from _missing_items(f"{label}: address", end.addresses, found.addresses)
        yield from _missing_items(f"{label}: neighbour", end.neighbours, found.neighbours)
    if observed.container is not None:
        yield from _source_rule_differences(inside, plan.container, observed.container)
        yield from _container_route_differences(inside, plan, observed.container)
    if observed.host is not None:
        if HostInterfaceAlias.parse(observed.host.alias) != plan.link.alias:
            yield Difference(f"{outside}: alias", str(plan.link.alias), observed.host.alias or "none")
        yield from _host_route_differences(outside, plan.host, observed.host)
        yield from _sysctl_differences(plan.host, observed.host)
    if observed.container is not None and observed.host is not None and not observed.is_pair:
        yield Difference(outside, f"the peer of {plan.container.name!r}", "an interface with another peer")


def _link_differences(label: str, end: InterfacePlan, mtu: int, found: InterfaceState) -> Iterator[Difference]:
    if not found.is_up:
        yield Difference(f"{label}: state", "up", "down")
    if found.mac != end.mac:
        yield Difference(f"{label}: MAC", end.mac, found.mac)
    if mtu and found.mtu != mtu:
        yield Difference(f"{label}: MTU", str(mtu), str(found.mtu))


def _missing_items(
    thing: str,
    expected: tuple[InterfaceAddress, ...] | tuple[Neighbour, ...],
    found: frozenset[InterfaceAddress] | frozenset[Neighbour],
) -> Iterator[Difference]:
    for item in expected:
        if item not in found:
            yield Difference(thing, str(item), ", ".join(sorted(map(str, found))) or "none")


def _source_rule_differences(label: str, end: InterfacePlan, found: InterfaceState) -> Iterator[Difference]:
    for address in end.source_rules:
        if address not in found.source_rules:
            yield Difference(f"{label}: rule", f"from {address} lookup the table of the interface", "none")


def _container_route_differences(label: str, plan: AttachmentPlan, found: InterfaceState) -> Iterator[Difference]:
    there = {(route.destination, route.gateway, route.table) for route in found.routes}
    for route in plan.container.routes:
        # Routes that the configuration asked for may have been changed by a later plugin of the chain.
        if route.gateway is not None and plan.link.routes is not None and route.table is RouteTable.MAIN:
            continue
        if (route.destination, str(route.gateway or ""), route.table) not in there:
            yield Difference(f"{label}: route", str(route), _routes_to(route, found))


def _host_route_differences(label: str, end: InterfacePlan, found: InterfaceState) -> Iterator[Difference]:
    there = {(route.destination, route.protocol) for route in found.routes}
    for route in end.routes:
        if (route.destination, route.protocol.value) not in there:
            yield Difference(f"{label}: route", str(route), _routes_to(route, found))
        elif route.destination in found.conflicting_routes:
            owner = found.conflicting_routes[route.destination]
            yield Difference(f"{label}: route", str(route), f"one over the interface {owner!r} that wins")


def _routes_to(route: PlannedRoute, found: InterfaceState) -> str:
    others = sorted(
        str(other) for other in found.routes if (other.destination, other.table) == (route.destination, route.table)
    )
    return ", ".join(others) or "none"


def _sysctl_differences(end: InterfacePlan, found: InterfaceState) -> Iterator[Difference]:
    for sysctl in end.sysctls:
        value = found.sysctls.get(sysctl.path, "no such setting")
        accepted = (sysctl.value, *sysctl.also_accepted)
        if sysctl.requirement is SysctlRequirement.REQUIRED and value not in accepted:
            yield Difference(f"setting {sysctl.path} on the host", " or ".join(accepted), value)
