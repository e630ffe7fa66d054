"""The fake kernel: it passes the conformance suite, and it refuses what a kernel refuses."""

from itertools import count

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.dataplane import MemoryDataplane, MemoryInterface
from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.dataplane.protocol import (
    OWN_NAMESPACE,
    AttachmentPlan,
    DataplaneTimeout,
    KernelError,
    RouteConflict,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.dataplane_checks import DATAPLANE_CHECKS, DataplaneCheck, endpoint, link_to

NAMESPACE = "/run/netns/one"


class SimulatedProcessDeath(BaseException):
    pass


@define
class MemoryDataplaneHarness:
    """The harness of the conformance suite over the fake kernel."""

    dataplane: MemoryDataplane = field(factory=MemoryDataplane)
    clock: ManualClock = field(factory=ManualClock)
    own_namespace: str = OWN_NAMESPACE
    numbers: "count[int]" = field(factory=count)

    def make_namespace(self) -> str:
        path = f"/run/netns/{next(self.numbers)}"
        self.dataplane.add_namespace(path)
        return path

    def remove_namespace(self, path: str) -> None:
        self.dataplane.remove_namespace(path)

    def make_file(self) -> str:
        return "/etc/hostname"

    def make_link(self, name: str, namespace: str | None = None) -> None:
        self.dataplane.add_link(name, namespace or OWN_NAMESPACE)

    def set_alias(self, alias: str, name: str) -> None:
        self.interface(name).alias = alias

    def rename_link(self, name: str, new_name: str, namespace: str | None = None) -> None:
        self.dataplane.rename_link(name, new_name, namespace or OWN_NAMESPACE)

    def delete_link(self, name: str, namespace: str | None = None) -> None:
        self.dataplane.delete_link(name, namespace or OWN_NAMESPACE)

    def make_host_route(self, destination: Prefix, name: str) -> None:
        self.dataplane.add_route(destination, name)

    def delete_route(self, destination: Prefix, name: str, namespace: str | None = None) -> None:
        routes = self.interface(name, namespace).routes
        routes[:] = [entry for entry in routes if entry.destination != destination]

    def delete_address(self, held: InterfaceAddress, name: str, namespace: str | None = None) -> None:
        self.interface(name, namespace).addresses.remove(held)

    def delete_neighbour(self, address: Address, name: str, namespace: str) -> None:
        neighbours = self.interface(name, namespace).neighbours
        neighbours[:] = [entry for entry in neighbours if entry.address != address]

    def source_rules(self, namespace: str) -> frozenset[Address]:
        return frozenset(address for address, _table in self.dataplane.source_rules(namespace))

    def delete_source_rule(self, address: Address, namespace: str) -> None:
        rules = self.dataplane.source_rules(namespace)
        rules[:] = [rule for rule in rules if rule[0] != address]

    def write_setting(self, path: str, value: str) -> None:
        if path == "net/ipv4/ip_forward":
            self.dataplane.node_settings[path] = value
            return
        interface = self.interface(path.split("/")[3])
        assert path in interface.settings
        interface.settings[path] = value

    def set_down(self, name: str, namespace: str | None = None) -> None:
        interface = self.interface(name, namespace)
        interface.is_up = False
        interface.routes.clear()
        addresses = interface.addresses
        addresses[:] = [held for held in addresses if held.address.family is Family.IPV4]

    def set_mtu(self, mtu: int, name: str, namespace: str | None = None) -> None:
        self.interface(name, namespace).mtu = mtu

    def links(self, namespace: str | None = None) -> frozenset[str]:
        return frozenset(self.dataplane.names(namespace or OWN_NAMESPACE))

    def host_routes(self) -> frozenset[tuple[Prefix, str]]:
        return frozenset(self.dataplane.host_routes())

    def interface(self, name: str, namespace: str | None = None) -> MemoryInterface:
        found = self.dataplane.interface(name, namespace or OWN_NAMESPACE)
        assert found is not None
        return found


@pytest.mark.parametrize("check", DATAPLANE_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: DataplaneCheck) -> None:
    check(MemoryDataplaneHarness())


def deadline(seconds: float = 30) -> Deadline:
    return Deadline.after(ManualClock(), seconds)


def dual(name: str = "eth0") -> AttachmentPlan:
    return plan(endpoint("10.65.0.5", "fd65::5"), link_to(NAMESPACE, name))


def effects(name: str) -> list[str]:
    """Every effect of a dual-stack attachment, in order."""
    seen: list[str] = []
    dataplane = MemoryDataplane(before_effect=seen.append)
    dataplane.add_namespace(NAMESPACE)
    dataplane.apply(dual(name), deadline=deadline())
    return seen


@pytest.mark.parametrize("name", ["eth0", "net1"])
def test_a_kernel_that_refuses_any_effect_leaves_nothing(name: str) -> None:
    for refused in effects(name):

        def script(effect: str, refused: str = refused) -> None:
            if effect == refused:
                raise KernelError(effect, "No buffer space available")

        dataplane = MemoryDataplane(before_effect=script)
        dataplane.add_namespace(NAMESPACE)
        with pytest.raises(KernelError, match="No buffer space available"):
            dataplane.apply(dual(name), deadline=deadline())
        assert (dataplane.names(), dataplane.names(NAMESPACE), dataplane.host_routes()) == ((), (), ())
        assert dataplane.source_rules(NAMESPACE) == []


@pytest.mark.parametrize("name", ["eth0", "net1"])
def test_a_process_that_dies_leaves_what_it_made_and_the_next_call_finishes_it(name: str) -> None:
    for last in effects(name)[1:]:

        def script(effect: str, last: str = last) -> None:
            if effect == last:
                raise SimulatedProcessDeath

        dataplane = MemoryDataplane(before_effect=script)
        dataplane.add_namespace(NAMESPACE)
        with pytest.raises(SimulatedProcessDeath):
            dataplane.apply(dual(name), deadline=deadline())
        assert dataplane.names(NAMESPACE) == (name,)
        dataplane.before_effect = lambda effect: None
        dataplane.apply(dual(name), deadline=deadline())
        assert dataplane.verify(dual(name), deadline=deadline()) == ()
        dataplane.remove(dual(name).link, deadline=deadline())
        assert (dataplane.names(), dataplane.names(NAMESPACE), dataplane.source_rules(NAMESPACE)) == ((), (), [])


def test_a_removal_that_has_no_time_left_is_refused() -> None:
    dataplane = MemoryDataplane()
    dataplane.add_namespace(NAMESPACE)
    dataplane.apply(dual(), deadline=deadline())
    with pytest.raises(DataplaneTimeout, match="timed out removing 'eth0' from the namespace /run/netns/one"):
        dataplane.remove(dual().link, deadline=deadline(0))
    assert dataplane.names(NAMESPACE) == ("eth0",)


def test_a_namespace_that_goes_in_the_middle_is_the_error_that_shows() -> None:
    dataplane = MemoryDataplane()
    dataplane.before_effect = lambda effect: dataplane.remove_namespace(NAMESPACE) if "route" in effect else None
    dataplane.add_namespace(NAMESPACE)
    with pytest.raises(KernelError, match="No such device"):
        dataplane.apply(dual(), deadline=deadline())
    assert dataplane.names() == ()


def test_a_route_over_a_link_that_went_down_is_refused() -> None:
    harness = MemoryDataplaneHarness()
    harness.dataplane.add_namespace(NAMESPACE)
    harness.dataplane.before_effect = lambda effect: harness.set_down("eth0", NAMESPACE) if "route" in effect else None
    with pytest.raises(KernelError, match="Network is down"):
        harness.dataplane.apply(dual(), deadline=deadline())


def test_a_gateway_that_no_route_leads_to_is_refused() -> None:
    wanted = dual()
    wanted = evolve(wanted, container=evolve(wanted.container, routes=wanted.container_routes))
    dataplane = MemoryDataplane()
    dataplane.add_namespace(NAMESPACE)
    with pytest.raises(KernelError, match="Network is unreachable"):
        dataplane.apply(wanted, deadline=deadline())


def test_an_address_twice_on_one_interface_is_refused() -> None:
    wanted = dual()
    twice = (*wanted.container.addresses, InterfaceAddress(Address.parse("10.65.0.5"), 24))
    wanted = evolve(wanted, container=evolve(wanted.container, addresses=twice))
    dataplane = MemoryDataplane()
    dataplane.add_namespace(NAMESPACE)
    with pytest.raises(KernelError, match=r"10\.65\.0\.5/24 to 'eth0': File exists"):
        dataplane.apply(wanted, deadline=deadline())


def test_a_worse_route_of_another_interface_is_no_obstacle() -> None:
    dataplane = MemoryDataplane()
    dataplane.add_namespace(NAMESPACE)
    dataplane.add_link("uplink")
    dataplane.add_route(Prefix.parse("10.65.0.5/32"), "uplink", metric=32)
    dataplane.apply(dual(), deadline=deadline())
    assert dataplane.verify(dual(), deadline=deadline()) == ()
    dataplane.add_route(Prefix.parse("fd65::5/128"), "uplink", metric=10)
    dataplane.remove(dual().link, deadline=deadline())
    with pytest.raises(RouteConflict, match="fd65::5/128"):
        dataplane.apply(dual(), deadline=deadline())


def test_interfaces_need_a_namespace_and_a_free_name() -> None:
    dataplane = MemoryDataplane()
    dataplane.add_link("one")
    with pytest.raises(KernelError, match="creating 'one': File exists"):
        dataplane.add_link("one")
    with pytest.raises(KernelError, match="creating 'one' in /gone: Invalid argument"):
        dataplane.add_link("one", "/gone")
    with pytest.raises(KernelError, match="looking for 'two': No such device"):
        dataplane.delete_link("two")
    assert dataplane.names() == ("one",)
