"""What every dataplane must do, as checks that run against any implementation.

Each check takes a fresh :class:`~netplug_core.testing.dataplane_harness.DataplaneHarness`. A test module needs three
lines::

    @pytest.mark.parametrize("check", DATAPLANE_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: DataplaneCheck, harness: DataplaneHarness) -> None:
        check(harness)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.dataplane.protocol import (
    DataplaneTimeout,
    InterfacePresence,
    KernelError,
    LinkExists,
    RouteConflict,
)
from netplug_core.errors import NamespaceNotFound
from netplug_core.testing.assertions import expect, expect_refused
from netplug_core.testing.dataplane_harness import (
    DataplaneHarness,
    apply,
    endpoint,
    expect_as_planned,
    expect_difference,
    expect_unchanged,
    link_to,
    plan_for,
    remove,
)
from netplug_core.testing.dataplane_ownership_checks import OWNERSHIP_CHECKS

__all__ = ["DATAPLANE_CHECKS", "DataplaneCheck"]

DataplaneCheck: TypeAlias = Callable[[DataplaneHarness], None]
"""One thing that a dataplane must do; it raises AssertionError when it does not."""

_FAMILIES = (("10.65.0.5",), ("fd65::5",), ("10.65.0.5", "fd65::5"), ("10.65.0.5", "10.65.0.6", "fd65::5", "fd65::6"))
_DUAL = ("10.65.0.5", "fd65::5")


# --- making and finding --------------------------------------------------------------------------------------------


def an_attachment_is_as_planned(harness: DataplaneHarness) -> None:
    """In either family, in both, and with several addresses."""
    for addresses in _FAMILIES:
        wanted = plan_for(harness, *addresses)
        expect(
            harness.dataplane.find(wanted.link) is InterfacePresence.ABSENT, "the interface is there before it is made"
        )
        apply(harness, wanted)
        expect_as_planned(harness, wanted)
        expect(harness.links(wanted.link.namespace) == {"eth0"}, "the namespace has other interfaces")
        routes = {(Address.parse(address).host_prefix, wanted.link.host_name) for address in addresses}
        expect(harness.host_routes() == routes, f"host routes: {harness.host_routes()}")
        remove(harness, wanted.link)


def applying_twice_changes_nothing(harness: DataplaneHarness) -> None:
    """The second time finds everything as planned."""
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    with expect_unchanged(harness):
        apply(harness, wanted)
    expect_as_planned(harness, wanted)


def applying_restores_what_was_removed(harness: DataplaneHarness) -> None:
    """Applying again repairs an attachment of which parts were removed."""
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    harness.delete_address(wanted.container.addresses[0], "eth0", wanted.link.namespace)
    harness.delete_route(wanted.host.routes[0].destination, wanted.link.host_name)
    harness.set_down(wanted.link.host_name)
    apply(harness, wanted)
    expect_as_planned(harness, wanted)


def a_changed_link_is_recreated(harness: DataplaneHarness) -> None:
    """A plan with another MTU, or with more queues, makes the pair again."""
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    for changed in (evolve(wanted.link, mtu=1400), evolve(wanted.link, mtu=1400, queues=2)):
        wanted = plan(endpoint(*_DUAL), changed)
        apply(harness, wanted)
        expect_as_planned(harness, wanted)


def two_interfaces_of_one_container_live_side_by_side(harness: DataplaneHarness) -> None:
    """Each has its default route, and the removal of one interface does not change the other."""
    first = plan_for(harness, *_DUAL)
    second = plan(endpoint("10.65.0.9", "fd65::9"), link_to(first.link.namespace, "eth1", "netpbcdefabcdef"))
    for wanted in (first, second, second, first):
        apply(harness, wanted)
        expect_as_planned(harness, wanted)
    remove(harness, second.link)
    expect_as_planned(harness, first)


def a_second_interface_has_rules_that_go_with_it(harness: DataplaneHarness) -> None:
    """A rule that was removed is a difference. The first interface has none, and keeps what another program added."""
    first = plan_for(harness, *_DUAL)
    second = plan(endpoint("10.65.0.9", "fd65::9"), link_to(first.link.namespace, "eth1", "netpbcdefabcdef"))
    inside, addresses = first.link.namespace, frozenset(second.container.source_rules)
    apply(harness, first)
    expect(not harness.source_rules(inside), "the first interface has rules")
    for _ in range(2):
        apply(harness, second)
        expect(harness.source_rules(inside) == addresses, f"rules: {harness.source_rules(inside)}")
        for address in sorted(addresses):
            harness.delete_source_rule(address, inside)
            expect_difference(harness, second, "eth1", f"from {address} lookup")
            apply(harness, second)
            expect_as_planned(harness, second)
        remove(harness, second.link)
        expect(not harness.source_rules(inside), f"rules are left: {harness.source_rules(inside)}")
    expect_as_planned(harness, first)


def rules_are_taken_back_too(harness: DataplaneHarness) -> None:
    """The attachment of a second interface fails last of all, at a route of the host."""
    wanted = plan(endpoint(*_DUAL), link_to(harness.make_namespace(), "eth1"))
    harness.make_link("other")
    harness.make_host_route(Prefix.parse("10.65.0.5/32"), "other")
    with expect_unchanged(harness):
        expect_refused(RouteConflict, partial(apply, harness, wanted), "10.65.0.5/32", "'other'")
    left = harness.source_rules(wanted.link.namespace)
    expect(not left, f"rules are left: {left}")


def routes_of_the_configuration_replace_the_default(harness: DataplaneHarness) -> None:
    """Only families of which the container has an address get routes."""
    link = evolve(link_to(harness.make_namespace()), routes=(Prefix.parse("10.96.0.0/12"), Prefix.parse("fd96::/64")))
    wanted = plan(endpoint("10.65.0.5"), link)
    apply(harness, wanted)
    expect_as_planned(harness, wanted)


def only_the_host_namespace_is_recognised(harness: DataplaneHarness) -> None:
    """Other namespaces and paths that cannot be opened are not."""
    own = harness.dataplane.is_own_namespace
    expect(own(harness.own_namespace), "the host's own namespace is not recognised")
    for path in (harness.make_namespace(), harness.make_file(), "", "/nowhere/at/all"):
        expect(not own(path), f"{path!r} is taken for the host's own namespace")


# --- refusing ------------------------------------------------------------------------------------------------------


def a_missing_namespace_is_reported(harness: DataplaneHarness) -> None:
    """For a missing path and for another file the attachment is refused, and the removal succeeds."""
    gone = harness.make_namespace()
    harness.remove_namespace(gone)
    for path in (gone, harness.make_file(), "", "/nowhere/at/all"):
        link = link_to(path)
        expect(harness.dataplane.find(link) is InterfacePresence.NAMESPACE_GONE, f"{path!r} is taken for a namespace")
        with expect_unchanged(harness):
            attach = partial(apply, harness, plan(endpoint(*_DUAL), link))
            expect_refused(NamespaceNotFound, attach, repr(path))
        remove(harness, link)


def another_interface_of_the_name_is_left_alone(harness: DataplaneHarness) -> None:
    """Also if an interface with the host name exists."""
    for host_name in ("netp0123456789a", "foreign"):
        wanted = plan(endpoint(*_DUAL), link_to(harness.make_namespace(), host_name=host_name))
        harness.make_link("eth0", wanted.link.namespace)
        if host_name == "foreign":
            harness.make_link(host_name)
        with expect_unchanged(harness):
            expect_refused(LinkExists, partial(apply, harness, wanted), "eth0", wanted.link.namespace)
        presence = harness.dataplane.find(wanted.link)
        expect(presence is InterfacePresence.FOREIGN, f"find says {presence}")


def a_route_of_another_interface_is_respected(harness: DataplaneHarness) -> None:
    """The error names both interfaces, and nothing is left, although the route is added last."""
    harness.make_link("other")
    for address in _DUAL:
        destination = Address.parse(address).host_prefix
        harness.make_host_route(destination, "other")
        wanted = plan_for(harness, *_DUAL)
        with expect_unchanged(harness):
            words = (str(destination), "'other'", wanted.link.host_name)
            expect_refused(RouteConflict, partial(apply, harness, wanted), *words)
        expect(harness.dataplane.find(wanted.link) is InterfacePresence.ABSENT, "the interface was left there")
        harness.delete_route(destination, "other")


def an_impossible_mtu_is_refused(harness: DataplaneHarness) -> None:
    """The error names both interfaces."""
    wanted = plan(endpoint(*_DUAL), evolve(link_to(harness.make_namespace()), mtu=20))
    with expect_unchanged(harness):
        expect_refused(KernelError, lambda: apply(harness, wanted), "eth0", wanted.link.host_name)
    expect(harness.dataplane.find(wanted.link) is InterfacePresence.ABSENT, "the interface was left there")


def nothing_is_left_when_the_time_is_up(harness: DataplaneHarness) -> None:
    """If the deadline passes before the end, the call fails and leaves no part of an attachment."""
    wanted = plan_for(harness, *_DUAL)
    attach = partial(harness.dataplane.apply, wanted, deadline=Deadline.after(harness.clock, 0))
    with expect_unchanged(harness):
        expect_refused(DataplaneTimeout, attach, wanted.link.namespace)
    expect(harness.dataplane.find(wanted.link) is InterfacePresence.ABSENT, "the interface was left there")


# --- removing ------------------------------------------------------------------------------------------------------


def removing_leaves_nothing(harness: DataplaneHarness) -> None:
    """Removing again succeeds."""
    with expect_unchanged(harness):
        wanted = plan_for(harness, *_DUAL)
        apply(harness, wanted)
        for _ in range(2):
            remove(harness, wanted.link)
            expect(not harness.links(wanted.link.namespace), "an interface is left in the namespace")


def deleting_a_namespace_deletes_its_attachment(harness: DataplaneHarness) -> None:
    """Nothing is left to remove, and removing succeeds."""
    with expect_unchanged(harness):
        wanted = plan_for(harness, *_DUAL)
        apply(harness, wanted)
        harness.remove_namespace(wanted.link.namespace)
        remove(harness, wanted.link)


# --- verifying -----------------------------------------------------------------------------------------------------


def every_removal_is_a_difference(harness: DataplaneHarness) -> None:
    """Each part of either end is removed, reported and repaired."""
    wanted = plan_for(harness, *_DUAL)
    inside, outside = wanted.link.namespace, wanted.link.host_name
    held, owned = wanted.container.addresses, wanted.host.addresses[0]
    apply(harness, wanted)
    removals: tuple[tuple[Callable[[], None], tuple[str, ...]], ...] = (
        (lambda: harness.set_down("eth0", inside), ("eth0", inside, "up", "down")),
        (lambda: harness.set_down(outside), (outside, "on the host", "up", "down")),
        (lambda: harness.set_mtu(1300, "eth0", inside), ("eth0", "MTU", "1450", "1300")),
        (lambda: harness.set_mtu(1300, outside), (outside, "MTU", "1450", "1300")),
        (lambda: harness.delete_address(held[0], "eth0", inside), ("address", "10.65.0.5/32")),
        (lambda: harness.delete_address(held[1], "eth0", inside), ("address", "fd65::5/128")),
        (lambda: harness.delete_address(owned, outside), ("address", "fe80::ecee:eeff:feee:eeee/64")),
        (
            lambda: harness.delete_route(Prefix.parse("0.0.0.0/0"), "eth0", inside),
            ("route", "0.0.0.0/0", "169.254.1.1"),
        ),
        (lambda: harness.delete_route(Prefix.parse("::/0"), "eth0", inside), ("route", "::/0", "fe80::")),
        (lambda: harness.delete_route(Prefix.parse("10.65.0.5/32"), outside), (outside, "10.65.0.5/32", "protocol 78")),
        (lambda: harness.delete_route(Prefix.parse("fd65::5/128"), outside), (outside, "fd65::5/128", "protocol 78")),
        (
            lambda: harness.write_setting(f"net/ipv4/conf/{outside}/proxy_arp", "0"),
            ("proxy_arp", "expected 1, found 0"),
        ),
        (
            lambda: harness.write_setting(f"net/ipv6/conf/{outside}/proxy_ndp", "0"),
            ("proxy_ndp", "expected 1, found 0"),
        ),
        (
            lambda: harness.delete_neighbour(Address.parse("169.254.1.1"), "eth0", inside),
            ("neighbour", "169.254.1.1 at ee:ee:ee:ee:ee:ee"),
        ),
    )
    for remove_part, words in removals:
        remove_part()
        expect_difference(harness, wanted, *words)
        apply(harness, wanted)
        expect_as_planned(harness, wanted)


def a_conflicting_route_is_a_difference(harness: DataplaneHarness) -> None:
    """Another interface got a better route to one of the addresses after the attachment was made."""
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    harness.make_link("other")
    harness.make_host_route(Prefix.parse("10.65.0.5/32"), "other")
    expect_difference(harness, wanted, "10.65.0.5/32", "'other'")


def settings_that_protect_others_are_compared(harness: DataplaneHarness) -> None:
    """For every family. A setting that a chained plugin may change is not compared; loose filtering is as good."""
    for address in _DUAL:
        wanted = plan_for(harness, address)
        conf = f"net/ipv4/conf/{wanted.link.host_name}"
        apply(harness, wanted)
        for name, value in (("rp_filter", "2"), ("route_localnet", "1")):
            harness.write_setting(f"{conf}/{name}", value)
            expect_as_planned(harness, wanted)
        for name, words in (("rp_filter", "expected 1 or 2, found 0"), ("accept_redirects", "expected 0, found 1")):
            harness.write_setting(f"{conf}/{name}", words[-1])
            expect_difference(harness, wanted, name, words)
        apply(harness, wanted)
        expect_as_planned(harness, wanted)
        remove(harness, wanted.link)


def a_changed_alias_is_a_difference(harness: DataplaneHarness) -> None:
    """Only its hashes count, not its text."""
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    harness.set_alias(str(evolve(wanted.link.alias, text="other words")), wanted.link.host_name)
    expect_as_planned(harness, wanted)
    for alias, shown in (("mine", "found mine"), ("", "found none")):
        harness.set_alias(alias, wanted.link.host_name)
        expect_difference(harness, wanted, wanted.link.host_name, "alias", str(wanted.link.alias), shown)


def a_missing_end_is_a_difference(harness: DataplaneHarness) -> None:
    """The container end is deleted, its namespace is removed, or the host end is replaced."""
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    harness.delete_link("eth0", wanted.link.namespace)
    expect_difference(harness, wanted, "eth0", wanted.link.namespace, "none")
    expect_difference(harness, wanted, wanted.link.host_name, "none")
    harness.make_link("eth0", wanted.link.namespace)
    harness.make_link(wanted.link.host_name)
    expect_difference(harness, wanted, "the peer of 'eth0'")
    harness.remove_namespace(wanted.link.namespace)
    expect_difference(harness, wanted, "eth0", wanted.link.namespace, "none")


def a_node_that_does_not_forward_is_reported(harness: DataplaneHarness) -> None:
    """Nothing is changed about it."""
    families = (Family.IPV4,)
    harness.write_setting("net/ipv4/ip_forward", "1")
    expect(not harness.dataplane.find_node_problems(families), "a node that forwards has no problem")
    harness.write_setting("net/ipv4/ip_forward", "0")
    for _ in range(2):
        (problem,) = harness.dataplane.find_node_problems(families)
        expect(problem.limits_workloads and "net.ipv4.ip_forward" in str(problem), f"found {problem}")
    expect(not harness.dataplane.find_node_problems(()), "IPv4 alone is not forwarded")


DATAPLANE_CHECKS: tuple[DataplaneCheck, ...] = (
    *OWNERSHIP_CHECKS,
    an_attachment_is_as_planned,
    applying_twice_changes_nothing,
    applying_restores_what_was_removed,
    a_changed_link_is_recreated,
    two_interfaces_of_one_container_live_side_by_side,
    a_second_interface_has_rules_that_go_with_it,
    rules_are_taken_back_too,
    routes_of_the_configuration_replace_the_default,
    only_the_host_namespace_is_recognised,
    a_missing_namespace_is_reported,
    another_interface_of_the_name_is_left_alone,
    a_route_of_another_interface_is_respected,
    an_impossible_mtu_is_refused,
    nothing_is_left_when_the_time_is_up,
    removing_leaves_nothing,
    deleting_a_namespace_deletes_its_attachment,
    every_removal_is_a_difference,
    a_conflicting_route_is_a_difference,
    settings_that_protect_others_are_compared,
    a_changed_alias_is_a_difference,
    a_missing_end_is_a_difference,
    a_node_that_does_not_forward_is_reported,
)
