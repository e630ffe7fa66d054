"""The fake kernel of routes and tunnels: it passes the conformance suite, and a test can change it by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from attrs import define, evolve, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.memory.routing import MemoryKernelEvents, MemoryRouting
from netplug_core.addressing import Family, InterfaceAddress
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import (
    Change,
    FdbEntry,
    HostAddress,
    HostInterface,
    Nexthop,
    Put,
    Remove,
    Route,
    Tunnel,
    TunnelNeighbour,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.routing_checks import PARENT, ROUTING_CHECKS, RoutingCheck, sample
from tests.harness.waiting import EMERGENCY_STOP_S


class SimulatedProcessDeath(BaseException):
    pass


@define
class MemoryRoutingHarness:
    """The harness of the conformance suite over the fake."""

    dataplane: MemoryRouting = field(factory=MemoryRouting)

    @property
    def messages(self) -> int:
        return self.dataplane.messages

    @property
    def has_ipip(self) -> bool:
        return self.dataplane.has_ipip

    def make_link(self, name: str, *addresses: str) -> None:
        self.dataplane.add_interface(name, *addresses)

    def make_vxlan(self, tunnel: Tunnel) -> None:
        self.dataplane.add_foreign_tunnel(tunnel)

    def set_up(self, name: str) -> None:
        self.dataplane.set_up(name)

    def set_down(self, name: str) -> None:
        self.dataplane.set_down(name)

    def delete_link(self, name: str) -> None:
        self.dataplane.delete_interface(name)

    def set_mtu(self, name: str, mtu: int) -> None:
        self.dataplane.change_interface(evolve(self.interface(name), mtu=mtu))

    def add_address(self, name: str, held: InterfaceAddress) -> None:
        found = self.interface(name)
        self.dataplane.change_interface(evolve(found, addresses=(*found.addresses, HostAddress(held=held))))

    def delete_address(self, name: str, held: InterfaceAddress) -> None:
        found = self.interface(name)
        left = tuple(each for each in found.addresses if each.held != held)
        assert len(left) == len(found.addresses) - 1
        self.dataplane.change_interface(evolve(found, addresses=left))

    def put_by_hand(self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route, protocol: int) -> None:
        self.dataplane.put_by_hand(entry, protocol)

    def remove_by_hand(self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route) -> None:
        self.dataplane.remove_by_hand(entry)

    def foreign_routes(self) -> frozenset[str]:
        return frozenset(
            f"{route.destination} {route.metric} {route.device}" for route in self.dataplane.foreign_routes()
        )

    def interface(self, name: str) -> HostInterface:
        return next(each for each in self.dataplane.find_interfaces() if each.name == name)


@pytest.mark.parametrize("check", ROUTING_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: RoutingCheck) -> None:
    check(MemoryRoutingHarness())


def with_parent(**script: object) -> MemoryRouting:
    made = MemoryRouting(**script)  # type: ignore[arg-type]  # one of the scripts
    made.add_interface(PARENT, "10.240.0.11/24", "fd10::11/64")
    return made


def test_a_change_can_be_refused_by_a_script() -> None:
    entries = sample(Family.IPV4).entries

    def refuse(change: Change) -> None:
        if change.entry == entries[1]:
            raise KernelError("adding", "No buffer space available")

    routing = with_parent(before_change=refuse)
    failed = routing.apply([Put(entry) for entry in entries])
    assert [str(each) for each in failed] == [f"{entries[1]}: adding: No buffer space available"]
    assert routing.read().fdb == ()


def test_a_process_can_die_in_the_middle() -> None:
    entries = sample(Family.IPV4).entries

    def die(change: Change) -> None:
        if change.entry == entries[3]:
            raise SimulatedProcessDeath

    routing = with_parent(before_change=die)
    with pytest.raises(SimulatedProcessDeath):
        routing.apply([Put(entry) for entry in entries])
    found = routing.read()
    assert (found.tunnels, found.neighbours, found.nexthops) == (entries[:1], entries[2:3], ())


def test_a_read_can_be_refused_by_a_script() -> None:
    def refuse() -> None:
        raise KernelError("listing routes", "Interrupted system call")

    routing = MemoryRouting(before_read=refuse)
    for call in (routing.read, routing.find_interfaces):
        with pytest.raises(KernelError, match="listing routes"):
            call()


def test_messages_are_counted_for_each_entry_and_for_each_property_of_a_tunnel() -> None:
    made = sample(Family.IPV4)
    routing = with_parent()
    routing.apply([Put(made.tunnel)])
    assert routing.messages == 4  # the device, its MTU, its address, and up
    routing.apply([Put(made.fdb), Put(made.fdb), Remove(made.neighbour), Remove(made.tunnel), Remove(made.tunnel)])
    assert routing.messages == 8


def test_a_kernel_without_ipip_can_be_had() -> None:
    harness = MemoryRoutingHarness(MemoryRouting(has_ipip=False))
    next(check for check in ROUTING_CHECKS if "ipip" in check.__name__)(harness)


def test_an_interface_that_is_not_there_cannot_be_changed() -> None:
    with pytest.raises(KernelError, match="looking for 'eth0': No such device"):
        MemoryRouting().set_down("eth0")


def test_a_nexthop_of_another_protocol_or_number_is_not_listed() -> None:
    nexthop = sample(Family.IPV4).nexthop
    routing = with_parent()
    routing.put_by_hand(nexthop, 11)
    routing.put_by_hand(evolve(nexthop, id=7))
    assert routing.read().nexthops == ()
    routing.remove_by_hand(nexthop)
    routing.put_by_hand(nexthop)
    assert routing.read().nexthops == (nexthop,)


def test_what_a_hand_changes_is_notified_and_what_is_applied_is_not() -> None:
    made = sample(Family.IPV4)
    routing = with_parent()
    soon = Deadline.after(ManualClock(), 0)
    assert routing.events.wait(deadline=soon)
    routing.apply([Put(entry) for entry in made.entries])
    assert not routing.events.wait(deadline=soon)
    changes: tuple[Callable[[], None], ...] = (
        lambda: routing.remove_by_hand(made.route),
        lambda: routing.put_by_hand(made.route),
        lambda: routing.set_down(PARENT),
        lambda: routing.set_up(PARENT),
        lambda: routing.delete_interface(PARENT),
    )
    for change in changes:
        change()
        assert routing.events.wait(deadline=soon)
        assert not routing.events.wait(deadline=soon)


@pytest.mark.parametrize("has_changed", [True, False])
def test_another_thread_ends_the_wait(*, has_changed: bool) -> None:
    events = MemoryKernelEvents()
    other = threading.Thread(target=events.notify if has_changed else events.close)
    other.start()
    assert events.wait(deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S)) is has_changed
    other.join()


def test_events_that_are_closed_report_nothing_more() -> None:
    events = MemoryKernelEvents()
    events.close()
    events.notify()
    assert not events.wait(deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S))
