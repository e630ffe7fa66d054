"""The differences between a plan and what was found. Pure; dataplanes call it for ``verify``.

Only what the attachment needs is compared. A chained plugin or the workload itself may have added addresses, routes
and settings of its own; they are no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from netplug_core.addressing import Address, InterfaceAddress, Prefix
from netplug_core.dataplane.protocol import (
    AttachmentPlan,
    Difference,
    InterfacePlan,
    Neighbour,
    PlannedRoute,
    RouteTable,
    SysctlRequirement,
)
from netplug_core.names import HostInterfaceAlias

__all__ = ["AttachmentState", "InterfaceState", "ObservedRoute", "compare_with_plan"]


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
