"""Every assigned or used address, read for a report, and the release of those that a report names as leaked.

``ipam check`` writes such a report, and ``ipam release --from-report`` reads it. What changed since is left alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Container, Iterator, Sequence

from attrs import define, evolve, frozen

from netplug_core.addressing import Address
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.errors import ConfigurationError, excerpt, quote
from netplug_core.flows.ipam.addresses import release_addresses
from netplug_core.flows.ipam.collect import read_users
from netplug_core.ipam.allocation.context import ADDRESSES_PER_COMMIT, batches
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.allocation.request import ReleaseItem
from netplug_core.ipam.gc.candidates import AllocationRef
from netplug_core.ipam.model import BLOCK, HANDLE, Block, block_key, handle_key
from netplug_core.ipam.reporting.usage import (
    AddressUse,
    AddressUsers,
    AllocationReport,
    HandleRef,
    LeakList,
    ListedAddress,
    ReportedAllocation,
    ReportHeader,
    UseState,
    common_leaks,
    handles_without_addresses,
    list_addresses,
    ref_of,
    reported_allocations,
    used_addresses,
)
from netplug_core.records import Decision, Delete, Get, Malformed, NeedMore, Snapshot
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import IPPOOL, IPRESERVATION

__all__ = [
    "HandleResult", "LeakRelease", "ReleaseNotAllowed", "ReleasePlan", "plan_release", "read_addresses",
    "read_allocation_report", "read_report_header", "release_handle", "release_planned_addresses", "require_usable",
]  # fmt: skip


# --- the report -------------------------------------------------------------------------------------------------------


_NEW = AddressUse(state=UseState.UNDETERMINED, text="it was assigned while the report was read")


def read_allocation_report(store: Datastore, *, version: str, deadline: Deadline) -> AllocationReport:
    """The report of everything that is stored; ``version`` is the release that writes it.

    Records are read page by page, so an ADD that is running looks like a leak. So if a first look finds leaks, only
    those count that a second one finds too. Blocks that cannot be read are left out: their addresses are not known.

    Raises:
        Malformed: a handle, an endpoint, a pod or a node cannot be understood, so it is not known what it uses.
        Unavailable: the store does not answer.
    """
    header = read_report_header(store, version=version, deadline=deadline)
    first = _read(store, header, deadline)
    leaked = frozenset(each.ref for each in first.of_state(UseState.LEAKED))
    if not leaked and not first.leaked_handles:
        return first
    second = _read(store, header, deadline)
    handles = frozenset(first.leaked_handles)

    def confirm(found: ReportedAllocation) -> ReportedAllocation:
        is_new = found.use.state is UseState.LEAKED and found.ref not in leaked
        return evolve(found, use=_NEW) if is_new else found

    return evolve(
        second,
        allocations=tuple(map(confirm, second.allocations)),
        leaked_handles=tuple(each for each in second.leaked_handles if each in handles),
    )


def read_report_header(store: Datastore, *, version: str, deadline: Deadline) -> ReportHeader:
    """What a report that is written now would be of.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read((Get(CLUSTER_INFORMATION_KEY),), deadline=deadline.capped(CALL_TIMEOUT_S))
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    return ReportHeader(
        version=version,
        cluster_guid=stored.value.spec.cluster_guid if stored else "",
        is_locked=stored is not None and stored.value.is_locked,
        revision=stored.revision if stored else "",
        cluster_type=stored.value.spec.cluster_type if stored else "",
    )


def _read(store: Datastore, header: ReportHeader, deadline: Deadline) -> AllocationReport:
    # Handles before blocks before users: an ADD that ends meanwhile is seen whole, or its beginning is not seen.
    damaged: list[Malformed] = []
    handles = tuple(read_pages(store, HANDLE, deadline=deadline))
    blocks = [record.value for record in read_pages(store, BLOCK, deadline=deadline, malformed=damaged)]
    users = read_users(store, deadline=deadline)
    return AllocationReport(
        header=header,
        allocations=tuple(
            each
            for block in sorted(blocks, key=lambda block: block.prefix)
            for each in reported_allocations(block, users)
        ),
        # A handle may hold addresses of a damaged block.
        leaked_handles=() if damaged else handles_without_addresses(handles, blocks),
        handles=len(handles),
        has_unread_blocks=bool(damaged),
    )


# --- the list ---------------------------------------------------------------------------------------------------------


def read_addresses(
    store: Datastore, *, version: str, lost_handles: Collection[str], deadline: Deadline
) -> tuple[AllocationReport, tuple[ListedAddress, ...]]:
    """The report of allocations, and every address of it and of workloads with its problems.

    Users are read before the blocks and again after them. An ADD allocates before its workload is seen with the
    address, and a DEL frees before it is seen without, so what both looks at the users have, and the blocks do not, is
    no call that was running.

    Raises:
        Malformed: a handle, an endpoint, a pod or a node cannot be understood, so it is not known what it uses.
        Unavailable: the store does not answer.
    """
    damaged: list[Malformed] = []
    before = used_addresses(read_users(store, deadline=deadline))
    pools = tuple(record.value for record in read_pages(store, IPPOOL, deadline=deadline, malformed=damaged))
    # One that cannot be read hides nothing: the check names it.
    reservations = read_pages(store, IPRESERVATION, deadline=deadline, malformed=[])
    reserved = Reserved.of(prefix for record in reservations for prefix in record.value.spec.reserved)
    report = read_allocation_report(store, version=version, deadline=deadline)
    after = used_addresses(read_users(store, deadline=deadline))
    used = {address: user for address, user in after.items() if before.get(address) == user}
    addresses = list_addresses(report, used, pools, lost_handles, reserved=reserved, has_unread_pools=bool(damaged))
    return report, addresses


# --- the release of what is leaked ------------------------------------------------------------------------------------


class ReleaseNotAllowed(ConfigurationError):
    """A report that is not released from, or a datastore in which that is not done; ``where`` is the report's file."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted}" if self.where else self.accepted


@frozen(kw_only=True)
class LeakRelease:
    """An address of the reports that is assigned as they say, and whether it is in use by now."""

    ref: AllocationRef
    use: AddressUse

    @property
    def is_due(self) -> bool:
        """Whether it is released: it is not in use."""
        return self.use.state is UseState.LEAKED


@frozen(kw_only=True)
class ReleasePlan:
    """What is left of the reports: addresses, in their order; how many are assigned no more as they say; handles."""

    addresses: tuple[LeakRelease, ...]
    outdated: int
    handles: tuple[HandleRef, ...]


class HandleResult(enum.Enum):
    """What became of a handle."""

    RELEASED = "released"
    SKIPPED = "skipped"


def require_usable(
    store: Datastore, lists: Sequence[LeakList], *, version: str, is_forced: bool, deadline: Deadline
) -> None:
    """Refuse reports of another cluster; unless forced, also those of another release or of before the lock.

    Raises:
        ReleaseNotAllowed: a report is refused, or the datastore is not locked.
        Unavailable: the store does not answer.
    """
    now = read_report_header(store, version=version, deadline=deadline)
    for each in lists:
        _require_same(each, "clusterGUID", each.header.cluster_guid, now.cluster_guid, "it is of another cluster")
    if is_forced:
        return
    for each in lists:
        reason = "another release wrote it; write a new report, or re-run with --force"
        _require_same(each, "version", each.header.version, now.version, reason)
    if not now.is_locked:
        rule = "data store is not locked. Either lock the data store, or re-run with --force"
        raise ReleaseNotAllowed("", None, rule)
    if all(each.header.revision != now.revision for each in lists):
        found = ", ".join(sorted({each.header.revision for each in lists}))
        rule = f"no report is of the current state of ClusterInformation: its revision is {now.revision}, found {found}"
        raise ReleaseNotAllowed("", None, f"{rule}; write a report now that it is locked, or re-run with --force")


def plan_release(
    store: Datastore, lists: Sequence[LeakList], *, deadline: Deadline, before_look: Callable[[], object]
) -> ReleasePlan:
    """What of the leaks that all reports agree on is left; nothing is written.

    Who holds the addresses is read before who uses them, so a user that comes later belongs to a later assignment.
    ``before_look`` is called in between if there is anything to look at. On an ordered store an ADD that was running
    when the report was written stores its endpoint after its addresses; there the caller waits (``settle_s``).

    Raises:
        Malformed: an endpoint, a pod or a node cannot be understood, so it is not known which addresses it uses.
        Unavailable: the store does not answer.
    """
    wanted, handles = common_leaks(lists)
    blocks = tuple(_blocks_with(store, wanted, deadline)) if wanted else ()
    if blocks or handles:
        before_look()
    users = read_users(store, deadline=deadline) if blocks else AddressUsers(endpoints={})
    found = (each for block in blocks for each in reported_allocations(block, users))
    addresses = [LeakRelease(ref=each.ref, use=each.use) for each in found if each.ref in wanted]
    return ReleasePlan(
        addresses=tuple(sorted(addresses, key=lambda each: each.ref.address)),
        outdated=len(wanted) - len(addresses),
        handles=tuple(sorted(handles)),
    )


def release_planned_addresses(
    store: Datastore, plan: ReleasePlan, *, pace: Callable[[], Pace]
) -> Iterator[tuple[Address, ...]]:
    """Release the addresses of a plan that are not in use; yields what each commit released.

    Raises:
        ContentionExhausted, Unavailable: try again later; some are released already.
    """
    items = [_item(each.ref) for each in plan.addresses if each.is_due]
    for batch in batches(items, ADDRESSES_PER_COMMIT):
        done = release_addresses(store, batch, pace=pace())
        yield done.released
        if done.refused:  # one that is assigned again holds up the others of its block
            left = {item.address: item for item in batch}
            for address in sorted(left.keys() - {*done.released, *done.free_already}):
                yield release_addresses(store, (left[address],), pace=pace()).released


def release_handle(store: Datastore, handle: HandleRef, *, pace: Pace) -> HandleResult:
    """Delete a handle that holds nothing, if it is unchanged since the report.

    Raises:
        ContentionExhausted, Unavailable: try again later.
        Malformed: the handle, or a block that it names, cannot be understood.
    """
    return Transaction(store, pace).run((Get(handle_key(handle.id)),), _HandleRule(handle)).get_result()


@define
class _HandleRule:
    """The decision about a handle; remembers whether it decided the deletion, whose reply may be lost."""

    handle: HandleRef
    is_decided: bool = False

    def __call__(self, snapshot: Snapshot) -> Decision[HandleResult] | NeedMore:
        """Delete the handle if no block that it names holds an address for it."""
        stored = snapshot.find(handle_key(self.handle.id))
        if stored is None:
            return Decision((), HandleResult.RELEASED if self.is_decided else HandleResult.SKIPPED)
        if stored.revision != self.handle.revision:
            return Decision((), HandleResult.SKIPPED)
        queries = tuple(Get(block_key(prefix)) for prefix, _count in stored.value.blocks)
        unread = tuple(query for query in queries if not snapshot.has(query))
        if unread:
            return NeedMore(unread)
        blocks = (snapshot.find(query) for query in queries)
        if any(block is not None and block.value.held_by(self.handle.id) for block in blocks):
            return Decision((), HandleResult.SKIPPED)
        self.is_decided = True
        return Decision((Delete(stored.key, stored.revision),), HandleResult.RELEASED)


def _require_same(report: LeakList, member: str, found: str, expected: str, reason: str) -> None:
    if found != expected:
        text = f"$.{member} is {quote(found)}, and {quote(expected)} is expected: {reason}"
        raise ReleaseNotAllowed(report.source, found, text)


def _blocks_with(store: Datastore, wanted: Container[AllocationRef], deadline: Deadline) -> Iterator[Block]:
    """The blocks with an address that is assigned as described. Damaged blocks are passed over."""
    damaged: list[Malformed] = []
    for record in read_pages(store, BLOCK, deadline=deadline, malformed=damaged):
        if any(ref_of(held) in wanted for held in record.value.held()):
            yield record.value


def _item(ref: AllocationRef) -> ReleaseItem:
    return ReleaseItem(address=ref.address, handle=ref.handle or None, sequence=ref.sequence)
