"""What the cases of ``dataplane`` stand on: the hands they need, and what they say of a dataplane.

An implementation provides a :class:`DataplaneHarness`; the rest is the suite's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.dataplane.protocol import AttachmentPlan, Dataplane, InterfaceAddress, InterfacePresence, Link
from netplug_core.errors import NetplugError
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec

__all__ = [
    "DataplaneHarness",
    "apply",
    "endpoint",
    "expect",
    "expect_as_planned",
    "expect_difference",
    "expect_refused",
    "expect_unchanged",
    "link_to",
    "plan_for",
    "remove",
]


class DataplaneHarness(Protocol):
    """A dataplane under test, in a world of its own. Where a namespace may be None, that is the host's."""

    @property
    def dataplane(self) -> Dataplane:
        """What is tested."""
        ...

    @property
    def clock(self) -> Clock:
        """What its deadlines run on."""
        ...

    @property
    def own_namespace(self) -> str:
        """A path of the host's own namespace."""
        ...

    def make_namespace(self) -> str:
        """The path of a new namespace."""
        ...

    def remove_namespace(self, path: str) -> None:
        """A namespace goes, with all that is in it."""
        ...

    def make_file(self) -> str:
        """The path of something that is no namespace."""
        ...

    def make_link(self, name: str, namespace: str | None = None) -> None:
        """An interface that the dataplane did not make; up."""
        ...

    def delete_link(self, name: str, namespace: str | None = None) -> None:
        """An interface goes."""
        ...

    def make_host_route(self, destination: Prefix, name: str) -> None:
        """A route of the host, with the best metric, over an interface that the dataplane did not make."""
        ...

    def delete_route(self, destination: Prefix, name: str, namespace: str | None = None) -> None:
        """One route over an interface goes."""
        ...

    def delete_address(self, held: InterfaceAddress, name: str, namespace: str | None = None) -> None:
        """One address of an interface goes."""
        ...

    def delete_neighbour(self, address: Address, name: str, namespace: str) -> None:
        """One neighbour entry of an interface goes."""
        ...

    def write_setting(self, path: str, value: str) -> None:
        """A setting of the host is changed."""
        ...

    def set_down(self, name: str, namespace: str | None = None) -> None:
        """An interface is taken down."""
        ...

    def set_mtu(self, mtu: int, name: str, namespace: str | None = None) -> None:
        """An interface gets another MTU."""
        ...

    def links(self, namespace: str | None = None) -> frozenset[str]:
        """The names of the interfaces of a namespace, the loopback aside."""
        ...

    def host_routes(self) -> frozenset[tuple[Prefix, str]]:
        """Destination and interface of every route of the host to a single address that is not its own."""
        ...


def endpoint(*addresses: str, mac: str = "02:65:00:00:00:05") -> WorkloadEndpoint:
    """A workload endpoint with these addresses, and nothing else that a dataplane looks at."""
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


def link_to(namespace: str, name: str = "eth0", host_name: str = "netp0123456789a") -> Link:
    """Where the cases attach: MTU 1450, one queue."""
    return Link(namespace=namespace, name=name, host_name=host_name, mtu=1450)


def plan_for(harness: DataplaneHarness, *addresses: str) -> AttachmentPlan:
    """The plan that attaches these addresses to a new namespace."""
    return plan(endpoint(*addresses), link_to(harness.make_namespace()))


def apply(harness: DataplaneHarness, wanted: AttachmentPlan) -> None:
    """Apply a plan, with time enough."""
    harness.dataplane.apply(wanted, deadline=Deadline.after(harness.clock, 30))


def remove(harness: DataplaneHarness, link: Link) -> None:
    """Remove an attachment, with time enough."""
    harness.dataplane.remove(link, deadline=Deadline.after(harness.clock, 30))


def expect(condition: bool, problem: str) -> None:  # noqa: FBT001  it is the condition of an assertion
    """Fail with a sentence unless the condition holds."""
    if not condition:
        raise AssertionError(problem)


def expect_as_planned(harness: DataplaneHarness, wanted: AttachmentPlan) -> None:
    """Everything is as planned, and the interface is found."""
    found = harness.dataplane.verify(wanted, deadline=Deadline.after(harness.clock, 5))
    expect(not found, f"the attachment is not as planned: {'; '.join(map(str, found))}")
    presence = harness.dataplane.find(wanted.link)
    expect(presence is InterfacePresence.PRESENT, f"find says {presence}")


def expect_difference(harness: DataplaneHarness, wanted: AttachmentPlan, *words: str) -> None:
    """One difference at least, and one of them has all these words in its text."""
    found = harness.dataplane.verify(wanted, deadline=Deadline.after(harness.clock, 0))
    texts = [str(difference) for difference in found]
    expect(any(all(word in text for word in words) for text in texts), f"no difference says {words!r}: {texts}")


@contextmanager
def expect_refused(kind: type[NetplugError], *words: str) -> Iterator[None]:
    """The block raises an error of that kind, with all these words in its text."""
    try:
        yield
    except kind as error:
        expect(all(word in str(error) for word in words), f"{words!r} are not all in {str(error)!r}")
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


@contextmanager
def expect_unchanged(harness: DataplaneHarness) -> Iterator[None]:
    """The host has the same links and routes afterwards."""
    before = harness.links(), harness.host_routes()
    yield
    after = harness.links(), harness.host_routes()
    expect(before == after, f"the host had {before} and has {after}")
