"""The report of ``netplugctl ipam check``: every assigned address with its user, and the handles that hold nothing.

``flows.ipam.allocation_report`` reads it, ``encoding.allocation_report`` is its file, and ``flows.ipam.release_leaked``
releases what several reports agree on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from netplug_core.ipam.gc.model import AllocationRef
from netplug_core.ipam.model.affinity import owner_node
from netplug_core.ipam.model.block import RESERVED_HANDLE, Allocation, Block
from netplug_core.ipam.model.handle import Handle
from netplug_core.ipam.reporting.address_use import AddressUse, AddressUsers, UseState, use_of
from netplug_core.records import Record

__all__ = [
    "AllocationReport", "HandleRef", "LeakList", "ReportHeader", "ReportedAllocation", "common_leaks",
    "handles_without_addresses", "ref_of", "reported_allocations",
]  # fmt: skip


@frozen(kw_only=True)
class ReportHeader:
    """What a report is of. ``revision`` is that of ClusterInformation; empty if there is none."""

    version: str
    cluster_guid: str
    is_locked: bool
    revision: str
    cluster_type: str


@frozen(order=True)
class HandleRef:
    """A handle at the revision at which it held nothing. ``uid`` is that of its object, where a store has objects."""

    id: str
    revision: str
    uid: str = ""


@frozen(kw_only=True)
class ReportedAllocation:
    """An assigned address, the node of its block (empty for none), and whether it is in use."""

    allocation: Allocation
    block_node: str
    use: AddressUse

    @property
    def ref(self) -> AllocationRef:
        """The assignment."""
        return ref_of(self.allocation)

    @property
    def is_borrowed(self) -> bool:
        """Whether it was assigned through another node than that of its block."""
        node = self.allocation.attribute.owner_value("node")
        return bool(node and self.block_node and node != self.block_node)


@frozen(kw_only=True)
class AllocationReport:
    """A whole report. Addresses that a host reserves for itself are not in it; those that cool down are.

    ``has_unread_blocks``: the addresses of some blocks are missing, because these cannot be read.
    """

    header: ReportHeader
    allocations: tuple[ReportedAllocation, ...]
    leaked_handles: tuple[HandleRef, ...]
    handles: int
    has_unread_blocks: bool = False

    def of_state(self, state: UseState) -> tuple[ReportedAllocation, ...]:
        """The addresses in one state."""
        return tuple(each for each in self.allocations if each.use.state is state)


@frozen(kw_only=True)
class LeakList:
    """What one report calls leaked, as its file has it; ``source`` names the file in errors."""

    source: str
    header: ReportHeader
    addresses: frozenset[AllocationRef]
    handles: frozenset[HandleRef]


def ref_of(allocation: Allocation) -> AllocationRef:
    """The assignment of an address. The handle is empty if it has none."""
    return AllocationRef(allocation.address, allocation.attribute.handle or "", allocation.sequence)


def reported_allocations(block: Block, users: AddressUsers) -> Iterator[ReportedAllocation]:
    """The assigned addresses of a block."""
    node = owner_node(block.owner)
    for allocation in block.held():
        if allocation.attribute.handle != RESERVED_HANDLE:
            yield ReportedAllocation(allocation=allocation, block_node=node, use=use_of(allocation, block, users))


def handles_without_addresses(handles: Iterable[Record[Handle]], blocks: Iterable[Block]) -> tuple[HandleRef, ...]:
    """The handles that hold no address in any block."""
    holding = {handle for block in blocks for handle in block.attributes.handles}
    return tuple(sorted(_handle_ref(record) for record in handles if record.key.name not in holding))


def common_leaks(lists: Sequence[LeakList]) -> tuple[frozenset[AllocationRef], frozenset[HandleRef]]:
    """The addresses and the handles that every one of some reports, at least one, calls leaked."""
    addresses = lists[0].addresses.intersection(*(each.addresses for each in lists[1:]))
    handles = lists[0].handles.intersection(*(each.handles for each in lists[1:]))
    return addresses, handles


def _handle_ref(record: Record[Handle]) -> HandleRef:
    # The revision of an object in Kubernetes is its uid, a slash, and its resourceVersion. A store without objects has
    # no slash in its revisions.
    uid, _, _version = record.revision.rpartition("/")
    return HandleRef(id=record.key.name, revision=record.revision, uid=uid)
