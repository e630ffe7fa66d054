"""Routes and tunnels on a real kernel: the conformance suite, and what only a kernel can answer.

Each test has a network namespace of its own, which is gone with the thread that made it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from attrs import define, evolve, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.netns import in_new_namespace
from netplug_backends.linux.routing import LinuxKernelEvents, LinuxRouting
from netplug_core.addressing import Address, Family, InterfaceAddress
from netplug_core.clock import Deadline
from netplug_core.dataplane.routing import (
    FdbEntry,
    Nexthop,
    Put,
    Remove,
    Route,
    RouteKind,
    Tunnel,
    TunnelNeighbour,
)
from netplug_core.testing.routing_checks import (
    PARENT,
    ROUTING_CHECKS,
    RoutingCheck,
    expect_applied,
    expect_state,
    sample,
)
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

pytestmark = pytest.mark.netns

FOREIGN_PROTOCOLS = {78: "78", 4: "static"}


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=EMERGENCY_STOP_S).stdout


@define
class LinuxRoutingHarness:
    """The harness of the conformance suite over the kernel, in the calling thread's namespace."""

    dataplane: LinuxRouting = field(factory=LinuxRouting.open)

    @property
    def messages(self) -> int:
        return self.dataplane.messages_sent

    @property
    def has_ipip(self) -> bool:
        return kernel_has_ipip()

    def make_link(self, name: str, *addresses: str) -> None:
        run("ip", "link", "add", name, "mtu", "1500", "type", "bridge")
        run("ip", "link", "set", name, "up")
        for address in addresses:
            self.add_address(name, InterfaceAddress.parse(address))

    def make_vxlan(self, tunnel: Tunnel) -> None:
        numbers = ("id", str(tunnel.vni), "dstport", str(tunnel.port))
        where = ("local", str(tunnel.local), "dev", tunnel.parent, "nolearning")
        run("ip", "link", "add", tunnel.name, "type", "vxlan", *numbers, *where)

    def set_up(self, name: str) -> None:
        run("ip", "link", "set", name, "up")

    def set_down(self, name: str) -> None:
        run("ip", "link", "set", name, "down")

    def delete_link(self, name: str) -> None:
        run("ip", "link", "del", name)

    def set_mtu(self, name: str, mtu: int) -> None:
        run("ip", "link", "set", name, "mtu", str(mtu))

    def add_address(self, name: str, held: InterfaceAddress) -> None:
        options = ("nodad",) if held.address.family is Family.IPV6 else ()
        run("ip", "address", "add", str(held), "dev", name, *options)

    def delete_address(self, name: str, held: InterfaceAddress) -> None:
        run("ip", "address", "del", str(held), "dev", name)

    def put_by_hand(self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route, protocol: int) -> None:
        match entry:
            case FdbEntry(device, mac, address):
                run("bridge", "fdb", "replace", mac, "dev", device, "dst", str(address), "self", "permanent")
            case TunnelNeighbour(device, address, mac):
                run("ip", "neigh", "replace", str(address), "lladdr", mac, "dev", device, "nud", "permanent")
            case Nexthop():
                where = ("via", str(entry.gateway), "dev", entry.device, *(("onlink",) if entry.is_onlink else ()))
                run("ip", "nexthop", "replace", "id", str(entry.id), *where, "proto", FOREIGN_PROTOCOLS[protocol])
            case Route():
                run("ip", *family_of(entry), "route", "replace", *route_words(entry, protocol))

    def remove_by_hand(self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route) -> None:
        match entry:
            case FdbEntry(device, mac):
                run("bridge", "fdb", "del", mac, "dev", device, "self")
            case TunnelNeighbour(device, address):
                run("ip", "neigh", "del", str(address), "dev", device)
            case Nexthop():
                run("ip", "nexthop", "del", "id", str(entry.id))
            case Route():
                place = ("metric", str(entry.metric), "table", str(entry.table))
                run("ip", *family_of(entry), "route", "del", str(entry.destination), *place)

    def foreign_routes(self) -> frozenset[str]:
        found = [
            (family, route)
            for family in ("-4", "-6")
            for route in json.loads(run("ip", "-j", "-N", family, "route", "show", "table", "254"))
        ]
        return frozenset(
            f"{family} {route['dst']} {route.get('metric')} {route.get('dev')}"
            for family, route in found
            if (route["protocol"] != "78" or route.get("dev", "").startswith("netp")) and route["protocol"] != "2"
        )


@cache
def kernel_has_ipip() -> bool:
    made = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "x", "type", "ipip", "local", "192.0.2.1"], check=False
    )
    return made.returncode == 0


def family_of(route: Route) -> tuple[str]:
    return (f"-{route.destination.family.value}",)


def route_words(route: Route, protocol: int) -> list[str]:
    words = ["blackhole"] if route.kind is RouteKind.BLACKHOLE else []
    words += [str(route.destination), "metric", str(route.metric), "table", str(route.table)]
    words += ["via", str(route.gateway)] if route.gateway is not None else []
    words += ["dev", route.device] if route.device else []
    words += ["nhid", str(route.nexthop)] if route.nexthop is not None else []
    words += ["src", str(route.source)] if route.source is not None else []
    words += ["mtu", str(route.mtu)] if route.mtu else []
    words += ["onlink"] if route.is_onlink else []
    return [*words, "proto", FOREIGN_PROTOCOLS[protocol]]


def in_namespace(work: Callable[[LinuxRoutingHarness], None]) -> None:
    """Do some work in a namespace of its own, where the loopback is up."""

    def prepared() -> None:
        run("ip", "link", "set", "lo", "up")
        harness = LinuxRoutingHarness()
        with harness.dataplane:
            work(harness)

    in_new_namespace(prepared)


@pytest.mark.parametrize("check", ROUTING_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: RoutingCheck) -> None:
    in_namespace(check)


# --- what others have -------------------------------------------------------------------------------------------------


FOREIGN_STATE = (
    "ip link add vxlan0 type vxlan id 42 dstport 8472 local 10.240.0.11 dev parent0 nolearning",
    "ip address add 10.99.0.1/24 dev vxlan0",
    "ip link set vxlan0 up",
    "ip neigh add 10.99.0.2 lladdr 66:00:00:00:00:99 nud permanent dev vxlan0",
    "bridge fdb append 66:00:00:00:00:99 dev vxlan0 dst 10.240.0.99 self permanent",
    "ip neigh add 10.240.0.77 lladdr 66:00:00:00:00:77 nud permanent dev parent0",
    "ip -6 neigh add fd10::77 lladdr 66:00:00:00:00:77 nud permanent dev parent0",
    "ip nexthop add id 7 via 10.240.0.1 dev parent0 proto 11",
    "ip nexthop add id 1313865999 via 10.240.0.1 dev parent0 proto 11",
    "ip route add 10.65.2.0/26 via 10.240.0.1 dev parent0 proto static metric 30",
    "ip route add 10.65.0.0/16 via 10.240.0.1 dev parent0 proto dhcp",
    "ip route add 10.65.3.0/26 nhid 7 proto bird metric 32",
    "ip route add blackhole 10.65.1.0/26 proto static table 7801 metric 50",
    "ip -6 route add fd65::2:0/122 via fd10::1 dev parent0 proto static metric 30",
    "ip -6 route add fd65::/96 via fd10::1 dev parent0 proto ra",
    "ip route add default via 10.240.0.1 dev parent0 proto dhcp",
)
SHOWN = (
    "ip -j -N -d link show dev vxlan0",
    "ip -j address show dev vxlan0",
    "ip -j address show dev parent0",
    "ip -N -4 route show table all",
    "ip -N -6 route show table all",
    "ip -N -4 neigh show nud permanent",
    "ip -N -6 neigh show nud permanent",
    "ip -N nexthop show",
    "bridge fdb show",
)


def test_the_state_of_others_stays_as_it_is() -> None:
    """While everything is made, made again, read, and removed; twice."""

    def check(harness: LinuxRoutingHarness) -> None:
        harness.make_link(PARENT, "10.240.0.11/24", "fd10::11/64")
        for command in FOREIGN_STATE:
            run(*command.split())
        wait_until(lambda: "tentative" not in run("ip", "-6", "address", "show"), "the addresses are checked")
        before = [run(*command.split()) for command in SHOWN]
        entries = [entry for family in Family for entry in sample(family).entries]
        for _ in range(2):
            for changes in ([Put(each) for each in entries], [Remove(each) for each in reversed(entries)]):
                expect_applied(harness, changes)
                expect_applied(harness, changes)
                harness.dataplane.read()
        assert [run(*command.split()) for command in SHOWN] == before

    in_namespace(check)


def test_what_the_tools_of_a_host_show() -> None:
    """docs/routing.md has such lines."""

    def check(harness: LinuxRoutingHarness) -> None:
        harness.make_link(PARENT, "10.240.0.11/24", "fd10::11/64")
        made = sample(Family.IPV4)
        expect_applied(harness, [Put(each) for each in made.entries])
        routes = run("ip", "route", "show", "proto", "78")
        assert "10.65.2.0/26 nhid 1313865732 via 10.65.2.0 dev vxlan.netplug metric 20 onlink mtu 1450" in routes
        assert "10.65.3.0/26 via 10.240.0.13 dev parent0 src 10.240.0.11 metric 20" in routes
        assert "blackhole 10.65.1.0/26 metric 4096" in routes
        assert run("ip", "route", "show", "table", "7801") == "blackhole 10.65.1.0/26 proto 78 metric 20 \n"
        assert "66:11:12:13:14:15 dst 10.240.0.12 self permanent" in run(
            "bridge", "fdb", "show", "dev", made.fdb.device
        )
        assert "alias netplug" in run("ip", "link", "show", "dev", made.tunnel.name)

    in_namespace(check)


def test_an_interface_that_was_renamed_has_its_name() -> None:
    """What was decoded before is decoded again then."""

    def check(harness: LinuxRoutingHarness) -> None:
        harness.make_link(PARENT, "10.240.0.11/24")
        direct = evolve(sample(Family.IPV4).direct, source=None)
        expect_applied(harness, [Put(direct)])
        expect_state(harness, [direct])
        run("ip", "link", "set", PARENT, "down")
        run("ip", "link", "set", PARENT, "name", "other0")
        run("ip", "link", "set", "other0", "up")
        expect_applied(harness, [Put(evolve(direct, device="other0"))])
        expect_state(harness, [evolve(direct, device="other0")])

    in_namespace(check)


def test_a_batch_of_which_everything_fails_names_everything() -> None:
    """The kernel answers each of 2,000 messages, in three datagrams."""

    def check(harness: LinuxRoutingHarness) -> None:
        route = sample(Family.IPV4).route
        wrong = [Put(evolve(route, metric=metric)) for metric in range(20, 2020)]
        failed = harness.dataplane.apply(wrong)
        assert [each.change for each in failed] == wrong
        assert {each.error.reason for each in failed} == {"Invalid argument (Nexthop id does not exist)"}

    in_namespace(check)


# --- notifications ----------------------------------------------------------------------------------------------------


@define
class Watched:
    """A node whose notifications are waited for."""

    harness: LinuxRoutingHarness
    events: LinuxKernelEvents

    def is_notified(self) -> bool:
        """Of some of what has been done, at last: of an IPv6 address a little later."""
        return self.events.wait(deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S))

    def has_changed(self) -> bool:
        """What has been done is notified of by now, so nothing is waited for."""
        return self.events.wait(deadline=Deadline.after(SystemClock(), 0))


def watching(work: Callable[[Watched], None]) -> None:
    """Do some work on a node with a parent and a tunnel in each family."""

    def prepared(harness: LinuxRoutingHarness) -> None:
        # Link-local addresses of IPv6 come of themselves, and are notified of when they were checked.
        Path("/proc/sys/net/ipv6/conf/default/addr_gen_mode").write_text("1")
        harness.make_link(PARENT, "10.240.0.11/24", "fd10::11/64")
        harness.make_link("netp0123456789a", "169.254.7.7/32")
        expect_applied(harness, [Put(sample(family).tunnel) for family in Family])
        wait_until(lambda: "tentative" not in run("ip", "-6", "address", "show"), "the addresses are checked")
        with LinuxKernelEvents.open(harness.dataplane.port) as events:
            work(Watched(harness, events))

    in_namespace(prepared)


def test_a_change_that_concerns_routes_is_notified() -> None:
    def check(node: Watched) -> None:
        made, harness = sample(Family.IPV4), node.harness
        expect_applied(harness, [Put(each) for each in made.entries])
        held = InterfaceAddress.parse("10.240.0.50/24")
        changes: tuple[Callable[[], None], ...] = (
            lambda: harness.make_link("eth7"),
            lambda: harness.add_address(PARENT, held),
            lambda: harness.delete_address(PARENT, held),
            lambda: harness.add_address(PARENT, InterfaceAddress.parse("fd10::50/64")),
            lambda: harness.remove_by_hand(made.route),
            lambda: harness.put_by_hand(evolve(made.direct, gateway=Address.parse("10.240.0.44")), 78),
            lambda: harness.remove_by_hand(made.nexthop),
            lambda: harness.set_down(made.tunnel.name),
            lambda: harness.set_up(made.tunnel.name),
            lambda: harness.set_down(PARENT),
            lambda: harness.delete_link(PARENT),
        )
        for change in changes:
            change()
            assert node.is_notified()
            while node.has_changed():
                pass

    watching(check)


def test_other_changes_are_not_notified() -> None:
    """Routes of others, pods that come and go, and what netplug has changed itself."""

    def check(node: Watched) -> None:
        harness = node.harness
        for family in Family:
            made = sample(family)
            workload = Route(
                destination=made.blackhole.destination.first.host_prefix, device="netp0123456789a", metric=10
            )
            expect_applied(harness, [Put(each) for each in made.entries])
            expect_applied(harness, [Remove(each) for each in reversed(made.entries[1:])])
            harness.put_by_hand(evolve(made.direct, source=None), 4)
            harness.remove_by_hand(made.direct)
            harness.put_by_hand(workload, 78)
            harness.remove_by_hand(workload)
            harness.put_by_hand(workload, 78)
        run("ip", "link", "add", "netpb", "type", "veth", "peer", "name", "netpc")
        run("ip", "link", "set", "netpb", "up")
        harness.delete_link("netpb")
        harness.delete_link("netp0123456789a")
        assert not node.has_changed()

    watching(check)


def test_notifications_that_were_lost_count_as_a_change() -> None:
    def check(node: Watched) -> None:
        node.events.set_buffer(1)
        route = sample(Family.IPV4).direct
        batch = "\n".join(f"route add 10.70.{number}.0/24 dev {PARENT} proto static" for number in range(250))
        subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True, timeout=EMERGENCY_STOP_S)
        assert node.has_changed()
        assert not node.has_changed()
        node.harness.put_by_hand(route, 78)
        assert node.has_changed()

    watching(check)


def test_another_thread_ends_the_wait_at_once() -> None:
    def check(node: Watched) -> None:
        deadline = Deadline.after(SystemClock(), EMERGENCY_STOP_S)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(node.events.wait, deadline=deadline)
            node.events.close()
            assert not waiting.result(timeout=EMERGENCY_STOP_S)
        assert not deadline.has_passed
        assert not node.events.wait(deadline=deadline)
        node.harness.make_link("eth7")
        assert not node.has_changed()
        node.events.close()

    watching(check)


def test_a_wait_ends_with_the_first_change() -> None:
    def check(node: Watched) -> None:
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(node.events.wait, deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S))
            node.harness.set_down(PARENT)
            assert waiting.result(timeout=EMERGENCY_STOP_S)

    watching(check)


def test_damage_to_a_tunnel_is_notified_read_and_repaired() -> None:
    """As the controller does it: what is notified of is read, compared and put."""

    def check(node: Watched) -> None:
        harness = node.harness
        made = sample(Family.IPV4)
        expect_applied(harness, [Put(each) for each in made.entries])
        harness.set_down(made.tunnel.name)
        harness.set_up(made.tunnel.name)
        assert node.is_notified()
        found = harness.dataplane.read()
        left = {*found.tunnels, *found.fdb, *found.neighbours, *found.nexthops, *found.routes}
        lost = [entry for entry in made.entries if entry not in left]
        assert lost == [made.neighbour, made.nexthop, made.route]
        expect_applied(harness, [Put(entry) for entry in lost])
        expect_state(harness, [*made.entries, sample(Family.IPV6).tunnel])
        assert not node.has_changed()

    watching(check)
