"""What the dataplane checks need: a dataplane in a world that they can change, and assertions about it.

An implementation provides a :class:`DataplaneHarness`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from netplug_core.addressing import Address, InterfaceAddress, Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.dataplane.protocol import AttachmentPlan, Dataplane, InterfacePresence, Link
from netplug_core.names import host_interface_alias
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.assertions import expect

__all__ = [
    "DataplaneHarness", "apply", "endpoint", "expect_as_planned", "expect_difference", "expect_unchanged", "link_to",
    "plan_for", "remove",
]  # fmt: skip


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
