"""The parts of a lab, as values. Its prefixes are private; nothing outside the lab's namespaces sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import evolve, field, frozen

from netplug_cli.lab.stores import LabStore, SqliteStore
from netplug_core.addressing import Address, Prefix
from netplug_core.cni.result import CNIResult
from netplug_core.errors import NetplugError
from netplug_core.names import DEFAULT_INTERFACE

__all__ = [
    "CNI_VERSION", "IFNAME", "LAB_POOLS", "MAX_PODS", "NODE_ADDRESSES", "NODE_NETNS", "POD_NAMESPACE", "Lab",
    "LabError", "LabPlan", "LabPod", "LabPool", "as_lab_errors", "new_lab",
]  # fmt: skip

CNI_VERSION = "1.0.0"
IFNAME = DEFAULT_INTERFACE
POD_NAMESPACE = "lab"
NODE_NETNS = "node"
"""The name of the node's namespace, beside those of the pods."""

MAX_PODS = 100


@frozen
class LabPool:
    """An IP pool of the lab; ``block_length`` is the prefix length of its blocks."""

    name: str
    prefix: Prefix
    block_length: int


LAB_POOLS = (
    LabPool("lab-ipv4", Prefix.parse("10.98.0.0/24"), 26),
    # A unique local prefix (RFC 4193) of our own; the pool is its first /64.
    LabPool("lab-ipv6", Prefix.parse("fd98:6e70:6c67::/64"), 122),
)

NODE_ADDRESSES = (Address.parse("10.98.1.1"), Address.parse("fd98:6e70:6c67:1::1"))
"""The addresses of the node itself: outside the pools, as on a real node."""


class LabError(NetplugError):
    """A lab that cannot be made, shown or removed; the text is the reason."""


@contextmanager
def as_lab_errors(path: str) -> Iterator[None]:
    """Raise an OSError, such as that of a full disk, as LabError; ``path`` is named if the error names no file."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{error.filename or path}: {error.strerror or error}") from error


@frozen(kw_only=True)
class LabPod:
    """A pod of the lab. ``add_output`` is what its ADD printed, empty before; ``result`` is that as a value."""

    name: str
    add_output: str = ""
    result: CNIResult = field(default=CNIResult(), eq=False)

    @property
    def is_attached(self) -> bool:
        """Whether its ADD has succeeded."""
        return bool(self.add_output)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses that it was assigned."""
        return tuple(ip.address for ip in self.result.ips)

    @property
    def host_interface(self) -> str:
        """The node's end of its interface; empty before it is attached."""
        return next((interface.name for interface in self.result.interfaces if not interface.sandbox), "")


@frozen(kw_only=True)
class Lab:
    """The parts of a lab; recorded before any of them is made.

    ``uid`` is in the label of everything that the lab stores on external servers.
    """

    name: str
    uid: str
    pods: tuple[LabPod, ...]
    store: LabStore = field(factory=SqliteStore)
    is_complete: bool = False

    @property
    def node_name(self) -> str:
        """The name that the lab's node is registered under."""
        return f"{self.name}-node"

    def with_pod(self, pod: LabPod) -> Lab:
        """The same lab with the pod of that name replaced."""
        return evolve(self, pods=tuple(pod if other.name == pod.name else other for other in self.pods))


@frozen(kw_only=True)
class LabPlan:
    """What a person asks for."""

    name: str
    pod_count: int
    store: LabStore = field(factory=SqliteStore)


def new_lab(plan: LabPlan, *, uid: str) -> Lab:
    """A lab before any part of it is made."""
    pods = tuple(LabPod(name=f"pod-{number}") for number in range(1, plan.pod_count + 1))
    return Lab(name=plan.name, uid=uid, pods=pods, store=plan.store)
