"""What every dataplane must do, as cases that run against any implementation.

Each case takes a fresh :class:`~netplug_core.testing.dataplane_bench.DataplaneBench`: the dataplane under test, and
hands to arrange the world around it and to spoil it. A test module needs three lines::

    @pytest.mark.parametrize("case", DATAPLANE_CASES, ids=lambda case: case.__name__)
    def test_conformance(case: DataplaneCase, bench: DataplaneBench) -> None:
        case(bench)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.interface import KernelRefused, LinkExists, Presence, RouteTaken, TimedOut
from netplug_core.dataplane.plan import plan
from netplug_core.errors import NamespaceMissing
from netplug_core.testing.dataplane_bench import (
    DataplaneBench,
    apply,
    endpoint,
    expect,
    expect_difference,
    expect_healthy,
    link_to,
    plan_for,
    refused,
    remove,
    unchanged,
)

__all__ = ["DATAPLANE_CASES", "DataplaneCase"]

DataplaneCase: TypeAlias = Callable[[DataplaneBench], None]
"""One thing that a dataplane must do; it raises AssertionError when it does not."""

_FAMILIES = (("10.65.0.5",), ("fd65::5",), ("10.65.0.5", "fd65::5"), ("10.65.0.5", "10.65.0.6", "fd65::5", "fd65::6"))
_DUAL = ("10.65.0.5", "fd65::5")


# --- making and finding --------------------------------------------------------------------------------------------


def an_attachment_is_as_planned(bench: DataplaneBench) -> None:
    """In either family, in both, and with several addresses."""
    for addresses in _FAMILIES:
        wanted = plan_for(bench, *addresses)
        expect(bench.dataplane.find(wanted.link) is Presence.ABSENT, "the interface is there before it is made")
        apply(bench, wanted)
        expect_healthy(bench, wanted)
        expect(bench.links(wanted.link.namespace) == {"eth0"}, "the namespace has other interfaces")
        routes = {(Address.parse(address).host_prefix, wanted.link.host_name) for address in addresses}
        expect(bench.host_routes() == routes, f"host routes: {bench.host_routes()}")
        remove(bench, wanted.link)


def applying_twice_changes_nothing(bench: DataplaneBench) -> None:
    """The second time finds everything true."""
    wanted = plan_for(bench, *_DUAL)
    apply(bench, wanted)
    with unchanged(bench):
        apply(bench, wanted)
    expect_healthy(bench, wanted)


def what_was_lost_is_made_again(bench: DataplaneBench) -> None:
    """Applying heals a spoilt attachment."""
    wanted = plan_for(bench, *_DUAL)
    apply(bench, wanted)
    bench.delete_address(wanted.container.addresses[0], "eth0", wanted.link.namespace)
    bench.delete_route(wanted.host.routes[0].destination, wanted.link.host_name)
    bench.set_down(wanted.link.host_name)
    apply(bench, wanted)
    expect_healthy(bench, wanted)


def a_changed_link_is_made_anew(bench: DataplaneBench) -> None:
    """Another MTU, and other queues."""
    wanted = plan_for(bench, *_DUAL)
    apply(bench, wanted)
    for changed in (evolve(wanted.link, mtu=1400), evolve(wanted.link, mtu=1400, queues=2)):
        wanted = plan(endpoint(*_DUAL), changed)
        apply(bench, wanted)
        expect_healthy(bench, wanted)


def a_leftover_of_the_host_name_is_replaced(bench: DataplaneBench) -> None:
    """An interface that a crash, or somebody, left there. Source: CNI plugin check 46."""
    wanted = plan_for(bench, *_DUAL)
    bench.make_link(wanted.link.host_name)
    apply(bench, wanted)
    expect_healthy(bench, wanted)


def a_restarted_workload_takes_its_host_name_along(bench: DataplaneBench) -> None:
    """The old container's end goes with the old pair; its late removal does not touch the new one."""
    old, new = plan_for(bench, *_DUAL), plan_for(bench, "10.65.0.7", "fd65::7")
    apply(bench, old)
    apply(bench, new)
    expect(bench.dataplane.find(old.link) is Presence.ABSENT, "the old interface is still there")
    remove(bench, old.link)
    expect_healthy(bench, new)
    expect(len(bench.host_routes()) == len(new.host.routes), "routes of the old container are left")


def two_interfaces_of_one_container_live_side_by_side(bench: DataplaneBench) -> None:
    """Both default routes are there, and the removal of one interface leaves the other as it was."""
    first = plan_for(bench, *_DUAL)
    second = plan(endpoint("10.65.0.9", "fd65::9"), link_to(first.link.namespace, "eth1", "netpbcdefabcdef"))
    for wanted in (first, second, second, first):
        apply(bench, wanted)
        expect_healthy(bench, wanted)
    remove(bench, second.link)
    expect_healthy(bench, first)


def routes_of_the_configuration_replace_the_default(bench: DataplaneBench) -> None:
    """Only the families that the container has addresses of get any."""
    link = evolve(link_to(bench.make_namespace()), routes=(Prefix.parse("10.96.0.0/12"), Prefix.parse("fd96::/64")))
    wanted = plan(endpoint("10.65.0.5"), link)
    apply(bench, wanted)
    expect_healthy(bench, wanted)


def only_its_own_namespace_is_its_own(bench: DataplaneBench) -> None:
    """Another one is not, nor what cannot be opened."""
    own = bench.dataplane.namespace_is_own
    expect(own(bench.own_namespace), "the host's own namespace is not recognised")
    for path in (bench.make_namespace(), bench.make_file(), "", "/nowhere/at/all"):
        expect(not own(path), f"{path!r} is taken for the host's own namespace")


# --- refusing ------------------------------------------------------------------------------------------------------


def a_namespace_that_is_gone_is_found_gone(bench: DataplaneBench) -> None:
    """No such path, and a path of something else; the attachment is refused and the removal is a success."""
    gone = bench.make_namespace()
    bench.remove_namespace(gone)
    for path in (gone, bench.make_file(), "", "/nowhere/at/all"):
        link = link_to(path)
        expect(bench.dataplane.find(link) is Presence.NAMESPACE_GONE, f"{path!r} is taken for a namespace")
        with unchanged(bench), refused(NamespaceMissing, repr(path)):
            apply(bench, plan(endpoint(*_DUAL), link))
        remove(bench, link)


def another_interface_of_the_name_is_left_alone(bench: DataplaneBench) -> None:
    """Whether the host name is free or not."""
    for host_name in ("netp0123456789a", "somebody"):
        wanted = plan(endpoint(*_DUAL), link_to(bench.make_namespace(), host_name=host_name))
        bench.make_link("eth0", wanted.link.namespace)
        if host_name == "somebody":
            bench.make_link(host_name)
        with unchanged(bench), refused(LinkExists, "eth0", wanted.link.namespace):
            apply(bench, wanted)
        expect(bench.dataplane.find(wanted.link) is Presence.PRESENT, "the other interface is gone")


def a_route_of_another_interface_is_respected(bench: DataplaneBench) -> None:
    """Both interfaces are named, and nothing is left, though the fault shows last of all."""
    bench.make_link("other")
    for address in _DUAL:
        destination = Address.parse(address).host_prefix
        bench.make_host_route(destination, "other")
        wanted = plan_for(bench, *_DUAL)
        with unchanged(bench), refused(RouteTaken, str(destination), "'other'", wanted.link.host_name):
            apply(bench, wanted)
        expect(bench.dataplane.find(wanted.link) is Presence.ABSENT, "the interface was left there")
        bench.delete_route(destination, "other")


def an_impossible_mtu_is_refused(bench: DataplaneBench) -> None:
    """In the kernel's words, naming what was to be made."""
    wanted = plan(endpoint(*_DUAL), evolve(link_to(bench.make_namespace()), mtu=20))
    with unchanged(bench), refused(KernelRefused, "eth0", wanted.link.host_name):
        apply(bench, wanted)
    expect(bench.dataplane.find(wanted.link) is Presence.ABSENT, "the interface was left there")


def nothing_is_left_when_the_time_is_up(bench: DataplaneBench) -> None:
    """A deadline that has passed before the end is an error, not half an attachment."""
    wanted = plan_for(bench, *_DUAL)
    with unchanged(bench), refused(TimedOut, wanted.link.namespace):
        bench.dataplane.apply(wanted, deadline=Deadline.after(bench.clock, 0))
    expect(bench.dataplane.find(wanted.link) is Presence.ABSENT, "the interface was left there")


# --- removing ------------------------------------------------------------------------------------------------------


def removing_leaves_nothing(bench: DataplaneBench) -> None:
    """And may be repeated."""
    with unchanged(bench):
        wanted = plan_for(bench, *_DUAL)
        apply(bench, wanted)
        for _ in range(2):
            remove(bench, wanted.link)
            expect(not bench.links(wanted.link.namespace), "an interface is left in the namespace")


def removing_needs_no_host_name(bench: DataplaneBench) -> None:
    """The host end is reached as the peer, whatever the caller takes its name to be."""
    wanted = plan_for(bench, *_DUAL)
    apply(bench, wanted)
    bench.make_link("bystander")
    remove(bench, evolve(wanted.link, host_name="bystander"))
    expect(bench.links() == {"bystander"}, f"the host has {bench.links()}")


def a_namespace_takes_its_attachment_along(bench: DataplaneBench) -> None:
    """Nothing is left to remove, and removing says so by succeeding."""
    with unchanged(bench):
        wanted = plan_for(bench, *_DUAL)
        apply(bench, wanted)
        bench.remove_namespace(wanted.link.namespace)
        remove(bench, wanted.link)


# --- verifying -----------------------------------------------------------------------------------------------------


def every_loss_is_a_difference(bench: DataplaneBench) -> None:
    """Of either end; each is made, reported, and healed again."""
    wanted = plan_for(bench, *_DUAL)
    inside, outside = wanted.link.namespace, wanted.link.host_name
    held, owned = wanted.container.addresses, wanted.host.addresses[0]
    apply(bench, wanted)
    spoilers: tuple[tuple[Callable[[], None], tuple[str, ...]], ...] = (
        (lambda: bench.set_down("eth0", inside), ("eth0", inside, "up", "down")),
        (lambda: bench.set_down(outside), (outside, "on the host", "up", "down")),
        (lambda: bench.set_mtu(1300, "eth0", inside), ("eth0", "MTU", "1450", "1300")),
        (lambda: bench.set_mtu(1300, outside), (outside, "MTU", "1450", "1300")),
        (lambda: bench.delete_address(held[0], "eth0", inside), ("address", "10.65.0.5/32")),
        (lambda: bench.delete_address(held[1], "eth0", inside), ("address", "fd65::5/128")),
        (lambda: bench.delete_address(owned, outside), ("address", "fe80::ecee:eeff:feee:eeee/64")),
        (lambda: bench.delete_route(Prefix.parse("0.0.0.0/0"), "eth0", inside), ("route", "0.0.0.0/0", "169.254.1.1")),
        (lambda: bench.delete_route(Prefix.parse("::/0"), "eth0", inside), ("route", "::/0", "fe80::")),
        (lambda: bench.delete_route(Prefix.parse("10.65.0.5/32"), outside), (outside, "10.65.0.5/32", "protocol 78")),
        (lambda: bench.delete_route(Prefix.parse("fd65::5/128"), outside), (outside, "fd65::5/128", "protocol 78")),
        (lambda: bench.write_setting(f"net/ipv4/conf/{outside}/proxy_arp", "0"), ("proxy_arp", "expected 1, found 0")),
        (lambda: bench.write_setting(f"net/ipv6/conf/{outside}/proxy_ndp", "0"), ("proxy_ndp", "expected 1, found 0")),
        (
            lambda: bench.delete_neighbour(Address.parse("169.254.1.1"), "eth0", inside),
            ("neighbour", "169.254.1.1 at ee:ee:ee:ee:ee:ee"),
        ),
    )
    for spoil, words in spoilers:
        spoil()
        expect_difference(bench, wanted, *words)
        apply(bench, wanted)
        expect_healthy(bench, wanted)


def a_stolen_route_is_a_difference(bench: DataplaneBench) -> None:
    """Another interface got a better route to one of the addresses after the attachment was made."""
    wanted = plan_for(bench, *_DUAL)
    apply(bench, wanted)
    bench.make_link("other")
    bench.make_host_route(Prefix.parse("10.65.0.5/32"), "other")
    expect_difference(bench, wanted, "10.65.0.5/32", "'other'")


def a_missing_end_is_a_difference(bench: DataplaneBench) -> None:
    """Gone from the namespace, gone with the namespace, or replaced on the host."""
    wanted = plan_for(bench, *_DUAL)
    apply(bench, wanted)
    bench.delete_link("eth0", wanted.link.namespace)
    expect_difference(bench, wanted, "eth0", wanted.link.namespace, "none")
    expect_difference(bench, wanted, wanted.link.host_name, "none")
    bench.make_link("eth0", wanted.link.namespace)
    bench.make_link(wanted.link.host_name)
    expect_difference(bench, wanted, "the peer of 'eth0'")
    bench.remove_namespace(wanted.link.namespace)
    expect_difference(bench, wanted, "eth0", wanted.link.namespace, "none")


DATAPLANE_CASES: tuple[DataplaneCase, ...] = (
    an_attachment_is_as_planned,
    applying_twice_changes_nothing,
    what_was_lost_is_made_again,
    a_changed_link_is_made_anew,
    a_leftover_of_the_host_name_is_replaced,
    a_restarted_workload_takes_its_host_name_along,
    two_interfaces_of_one_container_live_side_by_side,
    routes_of_the_configuration_replace_the_default,
    only_its_own_namespace_is_its_own,
    a_namespace_that_is_gone_is_found_gone,
    another_interface_of_the_name_is_left_alone,
    a_route_of_another_interface_is_respected,
    an_impossible_mtu_is_refused,
    nothing_is_left_when_the_time_is_up,
    removing_leaves_nothing,
    removing_needs_no_host_name,
    a_namespace_takes_its_attachment_along,
    every_loss_is_a_difference,
    a_stolen_route_is_a_difference,
    a_missing_end_is_a_difference,
)
