"""What everyone who programs routes and tunnels must do, as checks that run against any implementation.

Each check takes a fresh :class:`RoutingHarness`. A test module needs three lines::

    @pytest.mark.parametrize("check", ROUTING_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: RoutingCheck, harness: RoutingHarness) -> None:
        check(harness)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.routing import (
    ADVERTISED_TABLE,
    BLACKHOLE_METRIC,
    IPIP_DEVICE,
    NEXTHOP_BASE,
    VXLAN_DEVICES,
    Change,
    Entry,
    FdbEntry,
    Nexthop,
    Put,
    Remove,
    Route,
    RouteKind,
    RoutingDataplane,
    RoutingState,
    Tunnel,
    TunnelKind,
    TunnelNeighbour,
    tunnel_gateway,
)
from netplug_core.dataplane.tracker import DeltaTracker
from netplug_core.testing.assertions import expect, expect_same

__all__ = [
    "PARENT", "ROUTING_CHECKS", "RoutingCheck", "RoutingHarness", "RoutingSample", "expect_applied", "expect_state",
    "ipip_tunnel", "sample",
]  # fmt: skip

PARENT: Final = "parent0"
_PARENT_ADDRESSES: Final = ("10.240.0.11/24", "fd10::11/64")
_MAC, _REMOTE_MAC, _THIRD_MAC = "66:01:02:03:04:05", "66:11:12:13:14:15", "66:21:22:23:24:25"
_STATIC: Final = 4


class RoutingHarness(Protocol):
    """A dataplane of routes under test, in a world of its own, whose only interface is a loopback that is up."""

    @property
    def dataplane(self) -> RoutingDataplane:
        """The dataplane under test."""
        ...

    @property
    def messages(self) -> int:
        """How many messages to change something it has sent."""
        ...

    @property
    def has_ipip(self) -> bool:
        """Whether the kernel has IPIP devices."""
        ...

    def make_link(self, name: str, *addresses: str) -> None:
        """Make an interface that is not the dataplane's, with an MTU of 1500 and these addresses, and bring it up."""
        ...

    def make_vxlan(self, tunnel: Tunnel) -> None:
        """Make a VXLAN device that is not the dataplane's."""
        ...

    def set_up(self, name: str) -> None:
        """Bring an interface up."""
        ...

    def set_down(self, name: str) -> None:
        """Take an interface down."""
        ...

    def delete_link(self, name: str) -> None:
        """Delete an interface."""
        ...

    def set_mtu(self, name: str, mtu: int) -> None:
        """Change the MTU of an interface."""
        ...

    def add_address(self, name: str, held: InterfaceAddress) -> None:
        """Give an interface one more address."""
        ...

    def delete_address(self, name: str, held: InterfaceAddress) -> None:
        """Delete an address of an interface."""
        ...

    def put_by_hand(self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route, protocol: int) -> None:
        """Make an entry, or replace the one with its key, as another program does. Only some have a protocol."""
        ...

    def remove_by_hand(self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route) -> None:
        """Remove an entry as another program does."""
        ...

    def foreign_routes(self) -> frozenset[str]:
        """Destinations, metrics and devices of the routes of the main table that are not those under test."""
        ...


RoutingCheck: TypeAlias = Callable[[RoutingHarness], None]
"""One thing that a dataplane of routes must do; it raises AssertionError when it does not."""


@frozen(kw_only=True)
class RoutingSample:
    """What a node of one family has for one other node with a block: everything that a tunnel needs, and more."""

    tunnel: Tunnel
    fdb: FdbEntry
    neighbour: TunnelNeighbour
    nexthop: Nexthop
    route: Route
    direct: Route
    blackhole: Route
    advertised: Route

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order in which they are made."""
        over_tunnel = (self.fdb, self.neighbour, self.nexthop, self.route)
        return (self.tunnel, *over_tunnel, self.direct, self.blackhole, self.advertised)


def sample(family: Family) -> RoutingSample:
    """The entries of a family, over the parent of the checks."""
    device = VXLAN_DEVICES[family]
    is_ipv4 = family is Family.IPV4
    number = NEXTHOP_BASE + family.value

    def pod(text: str) -> Address:
        return Address.parse(f"10.65.{text}" if is_ipv4 else f"fd65::{text.replace('.', ':')}")

    def block(text: str) -> Prefix:
        return Prefix.at(pod(text), family.default_block_length)

    gateway = tunnel_gateway(pod("2.0"), _REMOTE_MAC)
    tunnel = Tunnel(
        name=device,
        kind=TunnelKind.VXLAN,
        address=pod("1.0"),
        local=_node(family, 11),
        mtu=1450 if is_ipv4 else 1430,
        parent=PARENT,
        mac=_MAC,
        vni=4096,
        port=4789,
    )
    return RoutingSample(
        tunnel=tunnel,
        fdb=FdbEntry(device, _REMOTE_MAC, _node(family, 12)),
        neighbour=TunnelNeighbour(device, gateway, _REMOTE_MAC),
        nexthop=Nexthop(number, device, gateway, is_onlink=is_ipv4),
        route=Route(destination=block("2.0"), nexthop=number, mtu=tunnel.mtu),
        direct=Route(destination=block("3.0"), device=PARENT, gateway=_node(family, 13), source=_node(family, 11)),
        blackhole=Route(destination=block("1.0"), kind=RouteKind.BLACKHOLE, metric=BLACKHOLE_METRIC),
        advertised=Route(destination=block("1.0"), kind=RouteKind.BLACKHOLE, table=ADVERTISED_TABLE),
    )


def ipip_tunnel() -> Tunnel:
    """The IPIP device of the node of the checks."""
    return Tunnel(
        name=IPIP_DEVICE,
        kind=TunnelKind.IPIP,
        address=Address.parse("10.65.9.0"),
        local=_node(Family.IPV4, 11),
        mtu=1480,
    )


def expect_applied(harness: RoutingHarness, changes: Sequence[Change]) -> None:
    """Fail unless all of the changes can be made."""
    failed = harness.dataplane.apply(changes)
    expect(not failed, f"failed: {'; '.join(map(str, failed))}")


def expect_state(harness: RoutingHarness, entries: Sequence[Entry]) -> None:
    """Fail unless exactly these entries are read."""
    expect_same(_by_text(_entries(harness.dataplane.read())), _by_text(entries), "what is read")


# --- what is put is there -----------------------------------------------------------------------------------------


def what_is_put_is_read(harness: RoutingHarness) -> None:
    """Value by value, in both families at once: their devices have one VNI and one port."""
    entries = [*_prepared(harness, Family.IPV4).entries, *sample(Family.IPV6).entries]
    expect_applied(harness, [Put(entry) for entry in entries])
    expect_state(harness, entries)


def a_resync_with_nothing_wrong_sends_nothing(harness: RoutingHarness) -> None:
    """What is read equals what was put, so there are no changes, and no change is no message."""
    entries = [*_prepared(harness, Family.IPV4).entries, *sample(Family.IPV6).entries]
    expect_applied(harness, [Put(entry) for entry in entries])
    before = harness.messages
    expect(before >= len(entries), f"{before} messages have made {len(entries)} entries")
    tracker: DeltaTracker[object, Entry] = DeltaTracker()
    tracker.desire_all({(type(entry), entry.key): entry for entry in entries})
    tracker.observe_all({(type(entry), entry.key): entry for entry in _entries(harness.dataplane.read())})
    expect(tracker.is_settled, f"differing: {[*tracker.updates()]}, {[*tracker.deletions()]}")
    expect_applied(harness, ())
    tunnels = [entry for entry in entries if isinstance(entry, Tunnel)]
    expect_applied(harness, [Put(tunnel) for tunnel in tunnels])
    expect_same(harness.messages, before, "messages")


def what_is_put_again_stays(harness: RoutingHarness) -> None:
    """All entries may be put again."""
    for family in Family:
        entries = _prepared(harness, family).entries
        for _ in range(2):
            expect_applied(harness, [Put(entry) for entry in entries])
            expect_state(harness, entries)
        _remove_all(harness, entries)


def what_is_removed_is_gone(harness: RoutingHarness) -> None:
    """Removing again is no error, and what others have made stays."""
    for family in Family:
        entries = _prepared(harness, family).entries
        foreign = harness.foreign_routes()
        expect_applied(harness, [Put(entry) for entry in entries])
        for _ in range(2):
            expect_applied(harness, [Remove(entry) for entry in reversed(entries)])
            expect_state(harness, ())
        expect_same(harness.foreign_routes(), foreign, "foreign routes")


def each_entry_is_removed_alone(harness: RoutingHarness) -> None:
    """The others stay."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        left = list(made.entries)
        for entry in (made.advertised, made.blackhole, made.direct, made.route, made.nexthop, made.neighbour, made.fdb):
            expect_applied(harness, [Remove(entry)])
            left.remove(entry)
            expect_state(harness, left)
        _remove_all(harness, [made.tunnel])


def a_failure_stops_no_other_change(harness: RoutingHarness) -> None:
    """The failures are returned in their order, with the changes."""
    made = _prepared(harness, Family.IPV4)
    other = sample(Family.IPV6)
    wrong: list[Change] = [Put(other.fdb), Put(other.nexthop), Put(evolve(made.route, nexthop=NEXTHOP_BASE + 99))]
    right: list[Change] = [Put(entry) for entry in made.entries]
    changes = [wrong[0], *right[:3], wrong[1], *right[3:5], wrong[2], *right[5:]]
    failed = harness.dataplane.apply(changes)
    expect_same([each.change for each in failed], wrong, "what failed")
    expect(all(str(each.change.entry) in str(each) for each in failed), f"the texts name no entry: {failed}")
    expect_state(harness, made.entries)


# --- tunnels --------------------------------------------------------------------------------------------------------


def a_tunnel_is_changed_in_place(harness: RoutingHarness) -> None:
    """Its MTU and its address change; FDB entries, neighbours, nexthops and routes stay."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        lower = evolve(made.tunnel, mtu=1300, address=made.blackhole.destination.nth(5))
        for tunnel in (lower, made.tunnel):
            expect_applied(harness, [Put(tunnel)])
            expect_state(harness, _with_mtu(made, tunnel))
            expect_applied(harness, [Put(made.route)])
            expect_state(harness, [tunnel, *made.entries[1:]])
        _remove_all(harness, made.entries)


def a_tunnel_that_differs_otherwise_is_made_anew(harness: RoutingHarness) -> None:
    """Everything over it is gone."""
    for family in Family:
        made = _prepared(harness, family)
        harness.make_link("other0")
        for tunnel in (
            evolve(made.tunnel, vni=4097),
            evolve(made.tunnel, port=4790),
            evolve(made.tunnel, mac=_THIRD_MAC),
            evolve(made.tunnel, parent="other0"),
            evolve(made.tunnel, local=_node(family, 12)),
        ):
            expect_applied(harness, [Put(entry) for entry in made.entries])
            expect_applied(harness, [Put(tunnel)])
            expect_state(harness, [tunnel, *made.entries[5:]])
            _remove_all(harness, [tunnel, *made.entries[5:]])
        harness.delete_link("other0")


def a_tunnel_that_is_down_is_set_up(harness: RoutingHarness) -> None:
    """Neighbours, nexthops and routes are gone, and an IPv6 address too; FDB entries stay."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        harness.set_down(made.tunnel.name)
        address = made.tunnel.address if family is Family.IPV4 else None
        found = evolve(made.tunnel, is_up=False, address=address)
        expect_state(harness, [found, made.fdb, *made.entries[5:]])
        expect_applied(harness, [Put(made.tunnel)])
        expect_state(harness, [made.tunnel, made.fdb, *made.entries[5:]])
        expect_applied(harness, [Put(entry) for entry in made.entries])
        expect_state(harness, made.entries)
        _remove_all(harness, made.entries)


def a_parent_that_goes_down_leaves_the_tunnel(harness: RoutingHarness) -> None:
    """Only direct routes over the parent are gone. One that is deleted takes the tunnel with it."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        harness.set_down(PARENT)
        left = [entry for entry in made.entries if entry is not made.direct]
        expect_state(harness, left)
        harness.set_up(PARENT)
        harness.delete_link(PARENT)
        expect_state(harness, [made.blackhole, made.advertised])
        _remove_all(harness, [made.blackhole, made.advertised])


def another_address_of_a_tunnel_is_removed(harness: RoutingHarness) -> None:
    """While it is there, the tunnel is read without an address."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(made.tunnel)])
        other = InterfaceAddress(made.blackhole.destination.nth(7), family.width)
        own = InterfaceAddress(made.blackhole.destination.nth(0), family.width)
        harness.add_address(made.tunnel.name, other)
        expect_state(harness, [evolve(made.tunnel, address=None)])
        expect_applied(harness, [Put(made.tunnel)])
        expect_state(harness, [made.tunnel])
        harness.delete_address(made.tunnel.name, own)
        expect_state(harness, [evolve(made.tunnel, address=None)])
        expect_applied(harness, [Put(made.tunnel)])
        expect_state(harness, [made.tunnel])
        _remove_all(harness, [made.tunnel])


def a_changed_mtu_is_read_and_repaired(harness: RoutingHarness) -> None:
    """With one message."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        harness.set_mtu(made.tunnel.name, 1400)
        expect_state(harness, _with_mtu(made, evolve(made.tunnel, mtu=1400)))
        before = harness.messages
        expect_applied(harness, [Put(made.tunnel)])
        expect_same(harness.messages - before, 1, "messages")
        expect_state(harness, made.entries)
        _remove_all(harness, made.entries)


def checksum_offload_is_changed_in_place(harness: RoutingHarness) -> None:
    """It is read once it was asked for; None leaves it as it is."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        for has_offload, count in ((False, 1), (False, 0), (True, 1), (False, 1), (None, 0), (True, 1)):
            tunnel = evolve(made.tunnel, has_checksum_offload=has_offload)
            before = harness.messages
            expect_applied(harness, [Put(tunnel)])
            expect_same(harness.messages - before, count, f"messages for {has_offload}")
            expect_state(harness, [tunnel, *made.entries[1:]])
        _remove_all(harness, made.entries)


def a_tunnel_needs_its_parent(harness: RoutingHarness) -> None:
    """Without the interface there is no device."""
    made = _prepared(harness, Family.IPV4)
    _expect_refused(harness, Put(evolve(made.tunnel, parent="missing0")), "missing0", "No such device")
    expect_state(harness, ())


def an_mtu_above_the_parents_is_refused(harness: RoutingHarness) -> None:
    """The device is there, with another MTU, and becomes as it should be in place."""
    for family in Family:
        made = _prepared(harness, family)
        _expect_refused(harness, Put(evolve(made.tunnel, mtu=1500)), "Invalid argument")
        expect_applied(harness, [Put(made.tunnel)])
        expect_state(harness, [made.tunnel])
        _remove_all(harness, [made.tunnel])


def a_device_of_others_is_left_alone(harness: RoutingHarness) -> None:
    """It has the name and not the mark: an error names it, and nothing is put on it or removed with it."""
    for family in Family:
        made = _prepared(harness, family)
        foreign = evolve(made.tunnel, vni=7)
        harness.make_vxlan(foreign)
        harness.put_by_hand(made.fdb, _STATIC)
        for _ in range(2):
            found = harness.dataplane.read()
            expect_same([each.name for each in found.foreign], [made.tunnel.name], "foreign devices")
            expect_same(_entries(found), [], "what is read")
            for entry in (made.tunnel, made.fdb, made.neighbour):
                _expect_refused(harness, Put(entry), made.tunnel.name, "another program has made this device")
            expect_applied(harness, [Remove(entry) for entry in (made.fdb, made.neighbour, made.tunnel)])
        harness.delete_link(made.tunnel.name)
        expect_same(harness.dataplane.read().foreign, (), "foreign devices")
        expect_applied(harness, [Put(entry) for entry in made.entries])
        _remove_all(harness, made.entries)


def another_device_of_the_same_vni_and_port_is_named(harness: RoutingHarness) -> None:
    """One of a family can exist."""
    for family in Family:
        made = _prepared(harness, family)
        harness.make_vxlan(evolve(made.tunnel, name="other1"))
        _expect_refused(harness, Put(made.tunnel), "File exists", "other1")
        expect_state(harness, ())
        harness.delete_link("other1")
        expect_applied(harness, [Put(made.tunnel)])
        _remove_all(harness, [made.tunnel])


def an_ipip_device_is_made_where_the_kernel_has_it(harness: RoutingHarness) -> None:
    """Elsewhere the kernel's refusal is a failure, and the other changes are made."""
    made = _prepared(harness, Family.IPV4)
    tunnel = ipip_tunnel()
    number = NEXTHOP_BASE + 50
    over: list[Entry] = [
        Nexthop(number, tunnel.name, _node(Family.IPV4, 12), is_onlink=True),
        Route(destination=Prefix.parse("10.65.20.0/26"), nexthop=number, mtu=1480),
    ]
    failed = harness.dataplane.apply([Put(tunnel), *(Put(entry) for entry in over), Put(made.blackhole)])
    if harness.has_ipip:
        expect(not failed, f"failed: {failed}")
        expect_state(harness, [tunnel, *over, made.blackhole])
    else:
        expect_same([each.change.entry for each in failed], [tunnel, *over], "what failed")
        expect("not supported" in str(failed[0]), f"the reason of the kernel is not in {str(failed[0])!r}")
        expect_state(harness, [made.blackhole])


# --- FDB entries, neighbours, nexthops --------------------------------------------------------------------------------


def entries_are_replaced_in_place(harness: RoutingHarness) -> None:
    """Each key has one entry, the last that was put."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        changed: list[Entry] = [
            evolve(made.fdb, node_address=_node(family, 22)),
            evolve(made.neighbour, mac=_THIRD_MAC),
            evolve(made.nexthop, gateway=tunnel_gateway(made.route.destination.nth(9), _THIRD_MAC)),
        ]
        expect_applied(harness, [Put(entry) for entry in changed])
        expect_state(harness, [made.tunnel, *changed, *made.entries[4:]])
        _remove_all(harness, made.entries)


def nothing_is_put_on_a_missing_device(harness: RoutingHarness) -> None:
    """Nor on one that is no tunnel of netplug, where it would be a neighbour or an FDB entry of others."""
    for family in Family:
        made = _prepared(harness, family)
        for entry in made.entries[1:4]:
            _expect_refused(harness, Put(entry), made.tunnel.name, "No such device")
        direct = evolve(made.direct, device="missing0", source=None)
        _expect_refused(harness, Put(direct), "missing0", "No such device")
        for foreign in (evolve(made.fdb, device=PARENT), evolve(made.neighbour, device=PARENT)):
            _expect_refused(harness, Put(foreign), PARENT, "another program has made this device")
        expect_applied(harness, [Remove(entry) for entry in made.entries])
        expect_state(harness, ())


def a_node_address_of_the_other_family_is_refused(harness: RoutingHarness) -> None:
    """A device wraps packets in one family."""
    made = _prepared(harness, Family.IPV4)
    expect_applied(harness, [Put(made.tunnel)])
    wrong = evolve(made.fdb, node_address=_node(Family.IPV6, 12))
    _expect_refused(harness, Put(wrong), str(wrong), "Address family not supported")
    expect_state(harness, [made.tunnel])


def a_nexthop_takes_its_routes_with_it(harness: RoutingHarness) -> None:
    """The kernel removes them without a notification."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        expect_applied(harness, [Remove(made.nexthop)])
        left = [entry for entry in made.entries if entry not in {made.nexthop, made.route}]
        expect_state(harness, left)
        _expect_refused(harness, Put(made.route), "Nexthop id does not exist")
        _remove_all(harness, left)


def nothing_is_put_over_a_device_that_is_down(harness: RoutingHarness) -> None:
    """No nexthop and no route; a neighbour is."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(made.tunnel), Put(made.fdb)])
        harness.set_down(made.tunnel.name)
        expect_applied(harness, [Put(made.neighbour)])
        _expect_refused(harness, Put(made.nexthop), "not up")
        _expect_refused(harness, Put(evolve(made.direct, device=made.tunnel.name, gateway=None, source=None)), "not up")
        _remove_all(harness, [made.tunnel])


# --- routes -----------------------------------------------------------------------------------------------------------


def every_form_of_a_route_is_read(harness: RoutingHarness) -> None:
    """By a nexthop, via a gateway that is on the link or said to be, over the link alone; with and without MTU."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(made.tunnel), Put(made.nexthop)])
        far, destination = made.route.destination.nth(9), made.direct.destination
        on_link = tunnel_gateway(far, _THIRD_MAC)
        forms = [
            made.direct,
            evolve(made.direct, source=None),
            evolve(made.direct, mtu=1400),
            evolve(made.direct, gateway=far, is_onlink=True),
            evolve(made.direct, gateway=None),
            Route(destination=destination, nexthop=made.nexthop.id),
            Route(destination=destination, nexthop=made.nexthop.id, mtu=1280, source=made.tunnel.address),
            Route(destination=destination, kind=RouteKind.BLACKHOLE),
            Route(destination=destination, device=made.tunnel.name),
            Route(destination=destination, device=made.tunnel.name, gateway=far, is_onlink=True, mtu=1300),
            Route(destination=destination, device=made.tunnel.name, gateway=on_link, is_onlink=family is Family.IPV4),
        ]
        for form in forms * 2:  # each is a replacement of the one before
            expect_applied(harness, [Put(form)])
            expect_state(harness, [made.tunnel, made.nexthop, form])
        host = Route(destination=far.host_prefix, device=made.tunnel.name)
        everything = Route(destination=Prefix.at(Address(family, 0), 0), nexthop=made.nexthop.id)
        expect_applied(harness, [Remove(forms[-1]), Put(host), Put(everything)])
        expect_state(harness, [made.tunnel, made.nexthop, host, everything])
        _remove_all(harness, [host, everything, made.nexthop, made.tunnel])


def routes_of_one_destination_have_metrics_and_tables(harness: RoutingHarness) -> None:
    """The blackhole of a block, a route to it and its announcement live side by side."""
    for family in Family:
        made = _prepared(harness, family)
        block = made.blackhole.destination
        beside: list[Entry] = [evolve(made.direct, destination=block), made.blackhole, made.advertised]
        expect_applied(harness, [Put(entry) for entry in beside])
        expect_state(harness, beside)
        for entry in tuple(beside):
            expect_applied(harness, [Remove(entry)])
            beside.remove(entry)
            expect_state(harness, beside)


def an_impossible_route_is_refused(harness: RoutingHarness) -> None:
    """A gateway that is not on the link, a source that the node does not have, an IPv4 nexthop of an IPv6 route."""
    for family in Family:
        made = _prepared(harness, family)
        far = made.route.destination.nth(9)
        _expect_refused(harness, Put(evolve(made.direct, gateway=far)), str(made.direct.destination))
        _expect_refused(harness, Put(evolve(made.direct, source=far)), "Invalid")
        expect_applied(harness, [Put(made.direct)])
        _expect_refused(harness, Put(evolve(made.direct, gateway=far)), str(made.direct.destination))
        expect_state(harness, [made.direct])
        _remove_all(harness, [made.direct])
    first, second = sample(Family.IPV4), sample(Family.IPV6)
    expect_applied(harness, [Put(first.tunnel), Put(first.nexthop)])
    _expect_refused(harness, Put(evolve(second.route, nexthop=first.nexthop.id)), "IPv4 nexthop")


def an_ipv6_gateway_on_the_link_must_not_lead_elsewhere(harness: RoutingHarness) -> None:
    """The kernel refuses it if a route leads to it over another device; blackholes do not count.

    A link-local gateway is never refused, and IPv4 has no such rule.
    """
    for family in Family:
        made = _prepared(harness, family)
        tunnel_address = made.route.destination.first
        onlink = evolve(made.nexthop, gateway=tunnel_address, is_onlink=True)
        around = evolve(made.direct, destination=Prefix.at(tunnel_address, made.route.destination.length - 8))
        expect_applied(harness, [Put(made.tunnel), Put(around)])
        if family is Family.IPV4:
            expect_applied(harness, [Put(onlink)])
        else:
            _expect_refused(harness, Put(onlink), "device mismatch")
            direct = Route(destination=made.direct.destination, device=made.tunnel.name, gateway=tunnel_address)
            _expect_refused(harness, Put(evolve(direct, is_onlink=True)), "device mismatch")
            over = Route(destination=tunnel_address.host_prefix, device=made.tunnel.name)
            expect_applied(harness, [Put(over), Put(onlink), Remove(onlink), Remove(over)])
        expect_applied(harness, [Put(made.nexthop), Put(made.route)])
        expect_state(harness, [made.tunnel, around, made.nexthop, made.route])
        hole = evolve(made.blackhole, destination=around.destination, metric=around.metric)
        expect_applied(harness, [Put(hole), Put(evolve(onlink, id=onlink.id + 1))])
        _remove_all(harness, [made.tunnel, hole])


def a_route_goes_with_its_source(harness: RoutingHarness) -> None:
    """An IPv6 route stays and loses the source, which is read as a difference."""
    for family in Family:
        made = _prepared(harness, family)
        held = InterfaceAddress(_node(family, 77), family.width)
        harness.add_address(PARENT, held)
        route = evolve(made.direct, source=held.address)
        expect_applied(harness, [Put(route)])
        expect_state(harness, [route])
        harness.delete_address(PARENT, held)
        left = [] if family is Family.IPV4 else [evolve(route, source=None)]
        expect_state(harness, left)
        _remove_all(harness, left)


# --- what others do --------------------------------------------------------------------------------------------------


def routes_of_others_are_left_alone(harness: RoutingHarness) -> None:
    """Another protocol is another owner. Only a route with our table, destination and metric is replaced."""
    for family in Family:
        made = _prepared(harness, family)
        others = [
            evolve(made.direct, metric=metric, destination=Prefix.at(made.route.destination.first, length))
            for metric, length in ((30, family.default_block_length), (20, family.width))
        ]
        taken = evolve(made.direct, source=None, gateway=_node(family, 33))
        for route in (*others, taken):
            harness.put_by_hand(route, _STATIC)
        expect_state(harness, ())
        expect_applied(harness, [Remove(route) for route in (*others, taken)])
        foreign = harness.foreign_routes()
        expect_applied(harness, [Put(entry) for entry in made.entries])
        expect_state(harness, made.entries)
        _remove_all(harness, made.entries)
        expect_same(len(foreign - harness.foreign_routes()), 1, "foreign routes that were replaced")
        for route in others:
            harness.remove_by_hand(route)


def routes_of_workloads_are_not_touched(harness: RoutingHarness) -> None:
    """They have our protocol, and lead over a host end; nothing has their metric besides."""
    for family in Family:
        made = _prepared(harness, family)
        harness.make_link("netp0123456789a")
        workload = Route(destination=made.blackhole.destination.first.host_prefix, device="netp0123456789a", metric=10)
        harness.put_by_hand(workload, 78)
        foreign = harness.foreign_routes()
        expect_state(harness, ())
        (read,) = harness.dataplane.read().workloads
        expect_same((read.route, read.index in harness.dataplane.read().host_ends), (workload, True), "the workload")
        harness.remove_by_hand(workload)
        gone = evolve(read, address=made.blackhole.destination.nth(2), index=2**30)
        expect_same(harness.dataplane.restore((read, gone)), (), "what is refused")
        expect_same(harness.dataplane.restore((read,)), (), "what is there already")
        expect_same(harness.dataplane.read().workloads, (read,), "what is restored")
        for change in (Put(evolve(made.blackhole, metric=10)), Remove(workload)):
            _expect_refused(harness, change, "metric of routes to workloads")
        expect_applied(harness, [Put(entry) for entry in made.entries])
        expect_state(harness, made.entries)
        _remove_all(harness, made.entries)
        expect_same(harness.foreign_routes(), foreign, "foreign routes")
        floating = Route(destination=made.blackhole.destination.nth(1).host_prefix, device="netp0123456789a")
        expect_applied(harness, [Put(floating)])
        expect_state(harness, (floating,))
        expect_applied(harness, [Remove(floating)])
        harness.delete_link("netp0123456789a")


def damage_by_hand_is_read(harness: RoutingHarness) -> None:
    """A route or an FDB entry that is deleted, a gateway or a MAC that is changed: putting repairs it."""
    for family in Family:
        made = _prepared(harness, family)
        expect_applied(harness, [Put(entry) for entry in made.entries])
        for removed in (made.route, made.direct, made.blackhole, made.advertised, made.fdb, made.neighbour):
            harness.remove_by_hand(removed)
            expect_state(harness, [each for each in made.entries if each is not removed])
            expect_applied(harness, [Put(removed)])
            expect_state(harness, made.entries)
        changed: tuple[tuple[Entry, FdbEntry | TunnelNeighbour | Nexthop | Route], ...] = (
            (made.direct, evolve(made.direct, gateway=_node(family, 44))),
            (made.route, Route(destination=made.route.destination, device=PARENT, gateway=_node(family, 44))),
            (made.fdb, evolve(made.fdb, node_address=_node(family, 44))),
            (made.neighbour, evolve(made.neighbour, mac=_THIRD_MAC)),
            (made.nexthop, evolve(made.nexthop, gateway=tunnel_gateway(made.route.destination.nth(9), _THIRD_MAC))),
        )
        for entry, other in changed:
            harness.put_by_hand(other, 78)
            expect_state(harness, [other if each is entry else each for each in made.entries])
            expect_applied(harness, [Put(entry)])
            expect_state(harness, made.entries)
        _remove_all(harness, made.entries)


def interfaces_are_found_by_their_index(harness: RoutingHarness) -> None:
    """With their addresses, which a tunnel has too."""
    made = _prepared(harness, Family.IPV4)
    expect_applied(harness, [Put(made.tunnel)])
    found = {each.name: each for each in harness.dataplane.find_interfaces()}
    indexes = [each.index for each in harness.dataplane.find_interfaces()]
    expect(indexes == sorted(indexes), f"indexes: {indexes}")
    parent, tunnel = found[PARENT], found[made.tunnel.name]
    held = {str(each.held) for each in parent.addresses}
    expect(set(_PARENT_ADDRESSES) <= held, f"addresses of the parent: {held}")
    expect_same((parent.is_up, parent.mtu, parent.alias), (True, 1500, ""), "the parent")
    expect_same((tunnel.is_up, tunnel.mtu, tunnel.alias), (True, 1450, "netplug"), "the tunnel")
    expect("10.65.1.0/32" in {str(each.held) for each in tunnel.addresses}, f"addresses: {tunnel.addresses}")
    harness.set_down(PARENT)
    states = {each.name: each.is_up for each in harness.dataplane.find_interfaces()}
    expect(not states[PARENT], "a parent that is down is found up")


def _node(family: Family, number: int) -> Address:
    return Address.parse(f"10.240.0.{number}" if family is Family.IPV4 else f"fd10::{number}")


def _with_mtu(made: RoutingSample, tunnel: Tunnel) -> list[Entry]:
    """What is read once the MTU of the tunnel was changed: an IPv6 route over it has got the same."""
    is_ipv4 = tunnel.local.family is Family.IPV4
    route = made.route if is_ipv4 else evolve(made.route, mtu=tunnel.mtu)
    return [tunnel, *made.entries[1:4], route, *made.entries[5:]]


def _prepared(harness: RoutingHarness, family: Family) -> RoutingSample:
    """The sample of a family, and its parent, if it is not there yet."""
    if PARENT not in {each.name for each in harness.dataplane.find_interfaces()}:
        harness.make_link(PARENT, *_PARENT_ADDRESSES)
    return sample(family)


def _remove_all(harness: RoutingHarness, entries: Sequence[Entry]) -> None:
    expect_applied(harness, [Remove(entry) for entry in reversed(entries)])
    expect_state(harness, ())


def _expect_refused(harness: RoutingHarness, change: Change, *words: str) -> None:
    failed = harness.dataplane.apply([change])
    expect_same([each.change for each in failed], [change], "what failed")
    expect(all(word in str(failed[0]) for word in words), f"{words!r} are not all in {str(failed[0])!r}")


def _entries(state: RoutingState) -> list[Entry]:
    return [*state.tunnels, *state.fdb, *state.neighbours, *state.nexthops, *state.routes]


def _by_text(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=repr)


ROUTING_CHECKS: tuple[RoutingCheck, ...] = (
    what_is_put_is_read,
    a_resync_with_nothing_wrong_sends_nothing,
    what_is_put_again_stays,
    what_is_removed_is_gone,
    each_entry_is_removed_alone,
    a_failure_stops_no_other_change,
    a_tunnel_is_changed_in_place,
    a_tunnel_that_differs_otherwise_is_made_anew,
    a_tunnel_that_is_down_is_set_up,
    a_parent_that_goes_down_leaves_the_tunnel,
    another_address_of_a_tunnel_is_removed,
    a_changed_mtu_is_read_and_repaired,
    checksum_offload_is_changed_in_place,
    a_tunnel_needs_its_parent,
    an_mtu_above_the_parents_is_refused,
    a_device_of_others_is_left_alone,
    another_device_of_the_same_vni_and_port_is_named,
    an_ipip_device_is_made_where_the_kernel_has_it,
    entries_are_replaced_in_place,
    nothing_is_put_on_a_missing_device,
    a_node_address_of_the_other_family_is_refused,
    a_nexthop_takes_its_routes_with_it,
    nothing_is_put_over_a_device_that_is_down,
    every_form_of_a_route_is_read,
    routes_of_one_destination_have_metrics_and_tables,
    an_impossible_route_is_refused,
    an_ipv6_gateway_on_the_link_must_not_lead_elsewhere,
    a_route_goes_with_its_source,
    routes_of_others_are_left_alone,
    routes_of_workloads_are_not_touched,
    damage_by_hand_is_read,
    interfaces_are_found_by_their_index,
)
"""All checks."""
