"""What every dataplane must do, as checks that run against any implementation.

Each check takes a fresh :class:`DataplaneHarness`, which an implementation provides. A test module needs three lines::

    @pytest.mark.parametrize("check", DATAPLANE_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: DataplaneCheck, harness: DataplaneHarness) -> None:
        check(harness)

Some checks are about whose an interface is: what a dataplane may replace or remove, and what it must leave alone. The
identity of a host end is its alias. Its name can be another workload's, and a namespace's path another container's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeAlias

from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.dataplane.protocol import (
    AttachmentPlan,
    Dataplane,
    DataplaneTimeout,
    HostInterfaceTaken,
    InterfacePresence,
    KernelError,
    Link,
    LinkExists,
    RouteConflict,
)
from netplug_core.errors import NamespaceNotFound
from netplug_core.names import host_interface_alias
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.assertions import expect, expect_refused

__all__ = [
    "DATAPLANE_CHECKS", "OWNERSHIP_CHECKS", "DataplaneCheck", "DataplaneHarness", "apply", "endpoint",
    "expect_as_planned", "expect_difference", "expect_unchanged", "link_to", "plan_for", "remove",
]  # fmt: skip


# --- dataplane harness -----------------------------------------------------------------------------------------------


class DataplaneHarness(Protocol):
    """A dataplane under test, in a world of its own. None as a namespace is the namespace of the host."""

    @property
    def dataplane(self) -> Dataplane:
        """The dataplane under test."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of its deadlines."""
        ...

    @property
    def own_namespace(self) -> str:
        """A path of the host's own namespace."""
        ...

    def make_namespace(self) -> str:
        """The path of a new namespace."""
        ...

    def remove_namespace(self, path: str) -> None:
        """Remove a namespace with everything in it."""
        ...

    def make_file(self) -> str:
        """The path of a file that is not a namespace."""
        ...

    def make_link(self, name: str, namespace: str | None = None) -> None:
        """Make an interface that is not the dataplane's, and bring it up."""
        ...

    def set_alias(self, alias: str, name: str) -> None:
        """Change the alias of an interface of the host."""
        ...

    def rename_link(self, name: str, new_name: str, namespace: str | None = None) -> None:
        """Rename an interface; it may be down for a moment."""
        ...

    def delete_link(self, name: str, namespace: str | None = None) -> None:
        """Delete an interface."""
        ...

    def make_host_route(self, destination: Prefix, name: str) -> None:
        """Make a route of the host, with the best metric, over an interface that is not the dataplane's."""
        ...

    def delete_route(self, destination: Prefix, name: str, namespace: str | None = None) -> None:
        """Delete one route over an interface."""
        ...

    def delete_address(self, held: InterfaceAddress, name: str, namespace: str | None = None) -> None:
        """Delete one address of an interface."""
        ...

    def delete_neighbour(self, address: Address, name: str, namespace: str) -> None:
        """Delete one neighbour entry of an interface."""
        ...

    def source_rules(self, namespace: str) -> frozenset[Address]:
        """The addresses of a namespace from which traffic uses another table than usual."""
        ...

    def delete_source_rule(self, address: Address, namespace: str) -> None:
        """Delete the rule of an address."""
        ...

    def write_setting(self, path: str, value: str) -> None:
        """Write a kernel setting of the host."""
        ...

    def set_down(self, name: str, namespace: str | None = None) -> None:
        """Take an interface down."""
        ...

    def set_mtu(self, mtu: int, name: str, namespace: str | None = None) -> None:
        """Change the MTU of an interface."""
        ...

    def links(self, namespace: str | None = None) -> frozenset[str]:
        """The names of the interfaces of a namespace, without the loopback."""
        ...

    def host_routes(self) -> frozenset[tuple[Prefix, str]]:
        """Destination and interface of every route of the host to one address that is not its own."""
        ...


def endpoint(*addresses: str, mac: str = "02:65:00:00:00:05") -> WorkloadEndpoint:
    """A workload endpoint with these addresses."""
    return WorkloadEndpoint(
        metadata=Metadata(name="node-cni-c1-eth0", namespace="default"),
        spec=WorkloadEndpointSpec(
            orchestrator="cni",
            node="node",
            endpoint="eth0",
            mac=mac,
            addresses=tuple(Address.parse(address) for address in addresses),
        ),
    )


def link_to(
    namespace: str, name: str = "eth0", host_name: str = "netp0123456789a", *, container: str = "c1", pod: str = "web-0"
) -> Link:
    """The link that the checks attach: MTU 1450, one queue."""
    alias = host_interface_alias(network="net1", container_id=container, ifname=name, pod_namespace="shop", pod=pod)
    return Link(namespace=namespace, name=name, host_name=host_name, alias=alias, mtu=1450)


def plan_for(harness: DataplaneHarness, *addresses: str, container: str = "c1", pod: str = "web-0") -> AttachmentPlan:
    """The plan that attaches these addresses to a new namespace."""
    return plan(endpoint(*addresses), link_to(harness.make_namespace(), container=container, pod=pod))


def apply(harness: DataplaneHarness, wanted: AttachmentPlan) -> None:
    """Apply a plan, with enough time."""
    harness.dataplane.apply(wanted, deadline=Deadline.after(harness.clock, 30))


def remove(harness: DataplaneHarness, link: Link) -> None:
    """Remove an attachment, with enough time."""
    harness.dataplane.remove(link, deadline=Deadline.after(harness.clock, 30))


def expect_as_planned(harness: DataplaneHarness, wanted: AttachmentPlan) -> None:
    """Fail unless everything is as planned and the interface is found."""
    found = harness.dataplane.verify(wanted, deadline=Deadline.after(harness.clock, 5))
    expect(not found, f"the attachment is not as planned: {'; '.join(map(str, found))}")
    presence = harness.dataplane.find(wanted.link)
    expect(presence is InterfacePresence.OWN, f"find says {presence}")


def expect_difference(harness: DataplaneHarness, wanted: AttachmentPlan, *words: str) -> None:
    """Fail unless the text of one difference has all these words."""
    found = harness.dataplane.verify(wanted, deadline=Deadline.after(harness.clock, 0))
    texts = [str(difference) for difference in found]
    expect(any(all(word in text for word in words) for text in texts), f"no difference says {words!r}: {texts}")


@contextmanager
def expect_unchanged(harness: DataplaneHarness) -> Iterator[None]:
    """Fail unless the host has the same links and routes after the block as before."""
    before = harness.links(), harness.host_routes()
    yield
    after = harness.links(), harness.host_routes()
    expect(before == after, f"the host had {before} and has {after}")


# --- dataplane ownership checks --------------------------------------------------------------------------------------


_DUAL = ("10.65.0.5", "fd65::5")


def a_leftover_of_the_workload_is_replaced(harness: DataplaneHarness) -> None:
    """Its alias names the workload, whatever the container."""
    wanted, earlier = plan_for(harness, *_DUAL), link_to("", container="earlier")
    harness.make_link(wanted.link.host_name)
    harness.set_alias(str(earlier.alias), wanted.link.host_name)
    apply(harness, wanted)
    expect_as_planned(harness, wanted)


def a_restarted_workload_reuses_its_host_interface_name(harness: DataplaneHarness) -> None:
    """The old container's end goes with the old pair; its late removal does not touch the new one."""
    old, new = plan_for(harness, *_DUAL), plan_for(harness, "10.65.0.7", "fd65::7", container="c2")
    apply(harness, old)
    apply(harness, new)
    expect(harness.dataplane.find(old.link) is InterfacePresence.ABSENT, "the old interface is still there")
    remove(harness, old.link)
    expect_as_planned(harness, new)
    expect(len(harness.host_routes()) == len(new.host.routes), "routes of the old container are left")


def a_host_end_is_known_by_its_alias(harness: DataplaneHarness) -> None:
    """Also while its namespace is not known; an end without an alias counts only under its former name."""
    wanted = plan_for(harness, *_DUAL)
    unnamed = evolve(wanted.link, namespace="", former_host_name="netpformerhosts")
    restarted = evolve(plan_for(harness, *_DUAL, container="c2").link, former_host_name=unnamed.former_host_name)
    expect(not harness.dataplane.has_host_end(unnamed), "there is a host end before it is made")
    apply(harness, wanted)
    expect(harness.dataplane.has_host_end(unnamed), "the host end is not found")
    expect(not harness.dataplane.has_host_end(restarted), "the end of another container counts")
    harness.set_alias("uplink of the rack", wanted.link.host_name)
    expect(not harness.dataplane.has_host_end(unnamed), "a foreign interface of the name counts")
    harness.make_link(unnamed.former_host_name)
    expect(harness.dataplane.has_host_end(unnamed), "an end of the former name without an alias does not count")
    harness.set_alias("uplink of the rack", unnamed.former_host_name)
    expect(not harness.dataplane.has_host_end(unnamed), "a foreign interface of the former name counts")


def a_host_interface_of_someone_else_is_left_alone(harness: DataplaneHarness) -> None:
    """It has no alias, a foreign one, or that of another workload whose name has the same hash."""
    wanted, other = plan_for(harness, *_DUAL), plan_for(harness, "10.65.0.7", "fd65::7", container="c2", pod="web-1")
    apply(harness, other)
    for alias in (
        str(other.link.alias),
        "",
        "uplink of the rack",
        f"netplug {'a' * 26}",
        f"netplug {'!' * 26} {'a' * 26}",
    ):
        harness.set_alias(alias, other.link.host_name)
        with expect_unchanged(harness):
            expect_refused(HostInterfaceTaken, partial(apply, harness, wanted), wanted.link.host_name, repr(alias))
            remove(harness, wanted.link)
        expect(harness.dataplane.find(wanted.link) is InterfacePresence.ABSENT, "an interface was left there")
    harness.set_alias(str(other.link.alias), other.link.host_name)
    expect_as_planned(harness, other)


def a_second_container_in_the_namespace_is_refused(harness: DataplaneHarness) -> None:
    """Of the same workload or of another one; neither its attempt nor its removal changes the first attachment."""
    first = plan_for(harness, *_DUAL)
    apply(harness, first)
    for host_name in (first.link.host_name, "netpbcdefabcdef"):
        link = link_to(first.link.namespace, host_name=host_name, container="c2", pod=host_name)
        with expect_unchanged(harness):
            second = plan(endpoint("10.65.0.7", "fd65::7", mac="02:65:00:00:00:07"), link)
            expect_refused(LinkExists, partial(apply, harness, second), "eth0", link.namespace)
            remove(harness, link)
            presence = harness.dataplane.find(link)
            expect(presence is InterfacePresence.FOREIGN, f"find says {presence}")
        expect_as_planned(harness, first)


def removing_needs_no_host_name(harness: DataplaneHarness) -> None:
    """The host end is found as the peer if another interface has its name."""
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    harness.rename_link(wanted.link.host_name, "renamed")
    harness.make_link(wanted.link.host_name)
    remove(harness, wanted.link)
    expect(harness.links() == {wanted.link.host_name}, f"the host has {harness.links()}")


def removing_needs_no_namespace(harness: DataplaneHarness) -> None:
    """The path is empty, missing, no namespace, or the workload has renamed its interface: the name is enough."""
    for path in ("", "/nowhere/at/all", harness.make_file()):
        wanted = plan_for(harness, *_DUAL)
        apply(harness, wanted)
        remove(harness, evolve(wanted.link, namespace=path))
        expect(not harness.links(), f"the host has {harness.links()}")
    wanted = plan_for(harness, *_DUAL)
    apply(harness, wanted)
    harness.rename_link("eth0", "hidden", wanted.link.namespace)
    remove(harness, wanted.link)
    expect(not harness.links(wanted.link.namespace), "an interface is left in the namespace")


def a_recycled_namespace_keeps_its_interface(harness: DataplaneHarness) -> None:
    """A late removal names the path of a namespace that is another container's, or another program's, by now."""
    old = plan_for(harness, *_DUAL, container="old", pod="old")
    new = plan_for(harness, "10.65.0.7", "fd65::7", container="new", pod="new")
    apply(harness, new)
    for stale in (old.link, evolve(old.link, host_name="netpbcdefabcdef")):
        remove(harness, evolve(stale, namespace=new.link.namespace))
        expect_as_planned(harness, new)
    foreign = harness.make_namespace()
    harness.make_link("eth0", foreign)
    remove(harness, evolve(old.link, namespace=foreign))
    expect(harness.links(foreign) == {"eth0"}, "an interface that is not netplug's was removed")


def an_attachment_without_an_alias_is_removed_by_its_former_name(harness: DataplaneHarness) -> None:
    """It is found from inside its namespace only; none with an alias or another name is taken for it."""
    wanted = plan_for(harness, *_DUAL)
    former = evolve(wanted.link, former_host_name="netp00000000000")
    apply(harness, wanted)
    harness.rename_link(wanted.link.host_name, former.former_host_name)
    for alias, link in (
        ("", wanted.link),
        ("", evolve(former, namespace="")),
        ("", evolve(former, former_host_name="netp11111111111")),
        ("uplink", former),
    ):
        harness.set_alias(alias, former.former_host_name)
        with expect_unchanged(harness):
            remove(harness, link)
    harness.set_alias("", former.former_host_name)
    remove(harness, former)
    expect(not harness.links(), f"the host has {harness.links()}")


OWNERSHIP_CHECKS = (
    a_leftover_of_the_workload_is_replaced,
    a_restarted_workload_reuses_its_host_interface_name,
    a_host_end_is_known_by_its_alias,
    a_host_interface_of_someone_else_is_left_alone,
    a_second_container_in_the_namespace_is_refused,
    removing_needs_no_host_name,
    removing_needs_no_namespace,
    a_recycled_namespace_keeps_its_interface,
    an_attachment_without_an_alias_is_removed_by_its_former_name,
)
"""Every check of this module."""


# --- dataplane checks ------------------------------------------------------------------------------------------------


DataplaneCheck: TypeAlias = Callable[[DataplaneHarness], None]
"""One thing that a dataplane must do; it raises AssertionError when it does not."""

_FAMILIES = (("10.65.0.5",), ("fd65::5",), ("10.65.0.5", "fd65::5"), ("10.65.0.5", "10.65.0.6", "fd65::5", "fd65::6"))


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
