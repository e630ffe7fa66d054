"""Checks of whose an interface is: what a dataplane may replace or remove, and what it must leave alone.

Part of ``dataplane_checks.DATAPLANE_CHECKS``. The identity of a host end is its alias. Its name can be another
workload's, and a namespace's path another container's.
"""

from __future__ import annotations

from functools import partial

from attrs import evolve

from netplug_core.dataplane.plan import plan
from netplug_core.dataplane.protocol import HostInterfaceTaken, InterfacePresence, LinkExists
from netplug_core.testing.assertions import expect, expect_refused
from netplug_core.testing.dataplane_harness import (
    DataplaneHarness,
    apply,
    endpoint,
    expect_as_planned,
    expect_unchanged,
    link_to,
    plan_for,
    remove,
)

__all__ = ["OWNERSHIP_CHECKS"]

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
