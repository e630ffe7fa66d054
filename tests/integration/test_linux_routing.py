"""Routes and tunnels on a real kernel: the conformance suite, and what only a kernel can answer.

Each test has a network namespace of its own, which is gone with the thread that made it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache

import pytest
from attrs import define, field

from netplug_backends.linux.netns import in_new_namespace
from netplug_backends.linux.routing import LinuxRouting
from netplug_core.addressing import Family, InterfaceAddress
from netplug_core.dataplane.routing import FdbEntry, Nexthop, Route, RouteKind, Tunnel, TunnelNeighbour
from netplug_core.testing.routing_checks import ROUTING_CHECKS, RoutingCheck
from tests.harness.waiting import EMERGENCY_STOP_S

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
