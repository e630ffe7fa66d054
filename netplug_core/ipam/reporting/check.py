"""What does not fit together among blocks, handles and affinities, and what of it can be repaired or restored.

Blocks have who holds which address; handles and affinities only lead to them. So a handle or an affinity can always be
made to fit the blocks, and no repair frees an address. Lost blocks are made again from endpoints. What may be lost
with a damaged record is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import format_time
from netplug_core.errors import excerpt
from netplug_core.ipam.allocation.context import BLOCKS_PER_RESTORED_HANDLE
from netplug_core.ipam.allocation.ownership import is_owned
from netplug_core.ipam.allocation.pools import find_selector_problems, unread_entries
from netplug_core.ipam.gc.candidates import (
    DeleteBlock,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
    ScanTime,
    StoreView,
    allocation_owners,
)
from netplug_core.ipam.gc.detect import HandleTally, detect_inconsistencies
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    HANDLE,
    RESERVED_HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    claiming_owner,
    handle_key,
    host_owner,
)
from netplug_core.names import DEFAULT_INTERFACE, handle_id
from netplug_core.records import (
    ABSENT,
    Absent,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    Query,
    Record,
    Require,
    Revision,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.ippool import IPPOOL, IPPool, IPReservation
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "BLOCK_RISK_QUERIES", "POOL_RISK_QUERIES", "CheckReport", "CheckedRecords", "DamagedRecord", "DeleteDamaged",
    "Repair", "RestoreAffinity", "RestoreBlock", "RestoreHandle", "UnheldAddress", "Unrepairable", "WithoutPool",
    "check", "find_block_risks", "find_pool_risks", "find_unheld", "loss_text", "plan_blocks",
]  # fmt: skip


# --- what may be lost -------------------------------------------------------------------------------------------------


_HANDLES = List(HANDLE)
_ENDPOINTS = List(WORKLOAD_ENDPOINT)
_BLOCKS = List(BLOCK)
_POOLS = List(IPPOOL)
_MAX_NAMES = 5

BLOCK_RISK_QUERIES: tuple[Query, ...] = (_HANDLES, _ENDPOINTS)
"""What to read before ``find_block_risks``."""

POOL_RISK_QUERIES: tuple[Query, ...] = (_POOLS, _BLOCKS)
"""What to read before ``find_pool_risks``."""


def find_block_risks(snapshot: Snapshot, block: Prefix) -> tuple[str, ...]:
    """Why addresses of a block may be in use; empty if none is.

    A handle never counts too little, so that a block that no handle and no endpoint names holds nothing for workloads.
    """
    handles = [record.key.name for record in snapshot.readable(_HANDLES) if record.value.count(block)]
    endpoints = [
        record.key.name
        for record in snapshot.readable(_ENDPOINTS)
        if any(block.contains(address) for address in record.value.spec.addresses)
    ]
    return (
        *_named("handles that count addresses in it", handles),
        *_named("workload endpoints with an address of it", endpoints),
        *_counted("handles that cannot be read", len(snapshot.malformed(_HANDLES))),
        *_counted("workload endpoints that cannot be read", len(snapshot.malformed(_ENDPOINTS))),
    )


def find_pool_risks(snapshot: Snapshot) -> tuple[str, ...]:
    """Why addresses of a pool whose range cannot be read may be in use; empty if none is."""
    ranges = [record.value.spec.prefix for record in snapshot.readable(_POOLS)]
    outside = [
        record.value
        for record in snapshot.readable(_BLOCKS)
        if not any(range_.covers(record.value.prefix) for range_ in ranges)
    ]
    return (
        *_counted("addresses held in blocks of no other pool", sum(len(allocation_owners(block)) for block in outside)),
        *_counted("blocks that cannot be read", len(snapshot.malformed(_BLOCKS))),
    )


def _named(what: str, names: Iterable[str]) -> tuple[str, ...]:
    """How many there are, with the first names; nothing if there is none."""
    found = sorted(map(excerpt, names))
    more = ", …" if len(found) > _MAX_NAMES else ""
    return (f"{what}: {len(found)} ({', '.join(found[:_MAX_NAMES])}{more})",) if found else ()


def _counted(what: str, count: int) -> tuple[str, ...]:
    return (f"{what}: {count}",) if count else ()


# --- from blocks and endpoints ----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class RestoreHandle:
    """Store a handle that is missing or damaged, as its blocks hold addresses for it.

    Of very many blocks only as many count as a commit takes. The next check finds that the handle lacks the others.
    """

    key: Key[Handle]
    blocks: tuple[Key[Block], ...]

    def __str__(self) -> str:
        return f"restore handle {self.key.name} from its blocks: it is missing or damaged"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key), *map(Get, self._first_blocks))

    @property
    def _first_blocks(self) -> tuple[Key[Block], ...]:
        return self.blocks[:BLOCKS_PER_RESTORED_HANDLE]

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...]:
        """The writes; empty if the handle is stored by now, or holds nothing any more."""
        if snapshot.readable(Get(self.key)):
            return ()
        found = [record for block in self._first_blocks if (record := snapshot.find(block)) is not None]
        counts = ((record.value.prefix, len(record.value.held_by(self.key.name))) for record in found)
        handle = Handle(blocks=tuple(sorted((prefix, count) for prefix, count in counts if count)))
        if not handle.blocks:
            return ()
        stored = snapshot.state(Get(self.key))
        return (*_unchanged(found), _put(self.key, handle, stored))


@frozen(kw_only=True)
class RestoreAffinity:
    """Store the affinity of a block's owner that is missing or damaged. The owner's next assignment confirms it."""

    key: Key[Affinity]
    block: Key[Block]

    def __str__(self) -> str:
        owner = claiming_owner(self.key)
        return f"restore the affinity of {owner} for block {self.block.name}: it is missing or damaged"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key), Get(self.block))

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if it is done already, None if the block has another owner by now."""
        if snapshot.readable(Get(self.key)):
            return ()
        block = snapshot.find(self.block)
        if block is None or not is_owned(block.value, self.key):
            return None
        stored = snapshot.state(Get(self.key))
        return (*_unchanged((block,)), _put(self.key, Affinity(state=AffinityState.PENDING), stored))


@frozen(kw_only=True)
class DeleteDamaged:
    """Delete a damaged handle that holds nothing, or a damaged affinity that owns no block."""

    key: Key[object]
    revision: Revision

    def __str__(self) -> str:
        return f"delete {self.key}: it is damaged, and no block needs it"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key),)

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if it is done already, None if the record has changed."""
        state = snapshot.state(Get(self.key))
        if state is ABSENT:
            return ()
        is_damaged = bool(snapshot.malformed(Get(self.key)))
        return (Delete(self.key, self.revision),) if is_damaged and state == self.revision else None


# --- lost blocks ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class UnheldAddress:
    """An address that a workload endpoint has and no block holds."""

    address: Address
    endpoint: WorkloadEndpoint

    @property
    def workload(self) -> str:
        """The workload for a person."""
        return f"{self.endpoint.metadata.namespace}/{self.endpoint.spec.pod or self.endpoint.metadata.name}"


def find_unheld(endpoints: Iterable[WorkloadEndpoint], blocks: Iterable[Block]) -> tuple[UnheldAddress, ...]:
    """The addresses of endpoints that no block holds, in their order."""
    held = {allocation.address for block in blocks for allocation in block.held() if not allocation.is_cooling}
    unheld = (
        UnheldAddress(address=address, endpoint=endpoint)
        for endpoint in endpoints
        for address in endpoint.spec.addresses
        if address not in held
    )
    return tuple(sorted(unheld, key=lambda one: (one.address.family.value, one.address)))


def loss_text(unheld: Sequence[UnheldAddress]) -> str:
    """What is wrong where workloads have addresses and there is no block, and what to do; empty if nothing is."""
    if not unheld:
        return ""
    first = unheld[0]
    return (
        f"workloads have {len(unheld)} addresses that no block holds, such as {first.workload} {first.address}: the "
        "definitions were deleted, with every block; a new pool would give these addresses a second time; run "
        "netplugctl ipam check --restore first"
    )


@frozen(kw_only=True)
class RestoreBlock:
    """Store a block that holds addresses which workloads have, or let a stored one hold them.

    ``holders`` are the addresses, each with the attribute that says who has it. ``owner`` is the node of most of them.
    An address that another workload holds by now stays with that one.
    """

    prefix: Prefix
    owner: str
    holders: tuple[tuple[Address, Attribute], ...]
    now_ns: int

    def __str__(self) -> str:
        return f"restore block {self.prefix} of {self.owner or 'no node'}: {len(self.holders)} addresses of workloads"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(block_key(self.prefix)),)

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if the block holds all of them already, None if others hold one."""
        stored = snapshot.find(block_key(self.prefix))
        before = stored.value if stored else Block.new(self.prefix, owner=self.owner, now_ns=self.now_ns)
        block, is_taken = before, False
        for address, attribute in self.holders:
            found = block.find(address)
            if found is None:
                block = block.assign((Ordinal(before.prefix.offset(address)),), attribute)
            elif found.attribute.handle != attribute.handle:
                is_taken = True
        if stored is None:
            return (Create(block_key(self.prefix), block),)
        if block is before:
            return None if is_taken else ()
        return (Update(stored.key, block, stored.revision),)


def plan_blocks(
    unheld: Iterable[UnheldAddress],
    *,
    pools: Iterable[IPPool],
    blocks: Iterable[Block],
    network: str,
    now_ns: int,
) -> tuple[RestoreBlock, ...]:
    """The blocks that hold these addresses again.

    A block is the stored one of the range, or as large as those of the pool that has the address; without a pool it has
    the default size. Handles are those of the attachments to ``network``, as a DEL of the workload makes them.
    """
    ranges = tuple(pools)
    prefixes = [block.prefix for block in blocks]
    found = dict[Prefix, list[UnheldAddress]]()
    for one in unheld:
        stored = next((prefix for prefix in prefixes if prefix.contains(one.address)), None)
        found.setdefault(stored or _block_of(one.address, ranges), []).append(one)
    return tuple(
        RestoreBlock(
            prefix=prefix,
            owner=_owner_of(of_block),
            holders=tuple((one.address, _attribute(one, network, now_ns)) for one in of_block),
            now_ns=now_ns,
        )
        for prefix, of_block in sorted(found.items())
    )


def _block_of(address: Address, pools: Iterable[IPPool]) -> Prefix:
    specs = (pool.spec for pool in pools if pool.spec.prefix.contains(address))
    length = next((spec.block_length for spec in specs), address.family.default_block_length)
    return Prefix.at(address, length)


def _owner_of(unheld: Sequence[UnheldAddress]) -> str:
    nodes = Counter(one.endpoint.spec.node for one in unheld if one.endpoint.spec.node)
    if not nodes:
        return ""
    return host_owner(min(nodes, key=lambda node: (-nodes[node], node)))


def _attribute(one: UnheldAddress, network: str, now_ns: int) -> Attribute:
    """Who has an address. Without a container id the handle is of the pod, so that a collector may free it."""
    spec, metadata = one.endpoint.spec, one.endpoint.metadata
    container = spec.container_id or f"{metadata.namespace}-{spec.pod or metadata.name}"
    owner = {"namespace": metadata.namespace, "node": spec.node, "pod": spec.pod, "timestamp": format_time(now_ns)}
    return Attribute(
        handle=handle_id(network, container, spec.endpoint or DEFAULT_INTERFACE),
        owner=tuple(sorted((name, text) for name, text in owner.items() if text)),
    )


def _unchanged(blocks: Iterable[Record[Block]]) -> tuple[Write, ...]:
    return tuple(Require(block.key, block.revision) for block in blocks)


def _put(key: Key[object], value: object, stored: Revision | Absent) -> Write:
    return Create(key, value) if isinstance(stored, Absent) else Update(key, value, stored)


# --- all rules together -----------------------------------------------------------------------------------------------


Repair: TypeAlias = (
    RepairHandle | RestoreHandle | RelinquishAffinity | RestoreAffinity | RestoreBlock | DeleteBlock | DeleteDamaged
)
"""A change that makes records fit together. Its text says what is done and why."""


@frozen(kw_only=True)
class DamagedRecord:
    """A record that cannot be decoded, and its kind."""

    kind: Kind[object]
    error: Malformed


@frozen(kw_only=True)
class CheckedRecords:
    """What is checked: blocks and affinities, the stored handles compared with the blocks, and what is damaged.

    Of pools and reservations it is checked whether assignments can use the whole of them. ``has_all_pools``: every pool
    was read, so that an address which none of them contains is in no pool.
    """

    blocks: tuple[Record[Block], ...]
    affinities: tuple[Record[Affinity], ...]
    handles: HandleTally
    damaged: tuple[DamagedRecord, ...] = ()
    pools: tuple[Record[IPPool], ...] = ()
    has_all_pools: bool = False
    reservations: tuple[Record[IPReservation], ...] = ()


@frozen
class Unrepairable:
    """What does not fit, and why no repair is safe."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@frozen
class WithoutPool(Unrepairable):
    """Addresses of a block that are held and in no pool."""


@frozen(kw_only=True)
class CheckReport:
    """The problems that a check found, and how much it looked at.

    ``high_counts`` are handles that count more than they hold: no problem, but a repair corrects them too.
    """

    repairs: tuple[Repair, ...]
    unrepairable: tuple[Unrepairable, ...]
    high_counts: tuple[RepairHandle, ...] = ()
    blocks: int
    addresses: int
    handles: int
    affinities: int

    @property
    def problems(self) -> int:
        """How many there are."""
        return len(self.repairs) + len(self.unrepairable)

    def before_pools(self) -> CheckReport:
        """The report on a cluster whose pools are still to be made: addresses in no pool are no problem there."""
        return evolve(self, unrepairable=tuple(each for each in self.unrepairable if not isinstance(each, WithoutPool)))


def check(records: CheckedRecords, now: ScanTime) -> CheckReport:
    """Everything that does not fit together. Pods and nodes are not considered: no address is called leaked."""
    damaged, handles = records.damaged, records.handles
    kinds = {each.kind for each in damaged}
    view = StoreView(blocks=records.blocks, affinities=records.affinities, handles=tuple(handles.wrong))
    found = detect_inconsistencies(view, handles.counts, now)
    deleted = (action for action in found.blocks if action.affinity is None or AFFINITY not in kinds)
    restored = tuple(_lost_handles(records))
    claimed = tuple(_lost_affinities(records, is_damaged=AFFINITY in kinds))
    candidates: tuple[Repair, ...] = (
        *found.handles,
        *restored,
        *found.affinities,
        *claimed,
        *deleted,
        *_useless(damaged, restored, claimed),
    )
    readable = frozenset(record.value.prefix for record in records.blocks)
    kept = frozenset(repair for repair in candidates if BLOCK in kinds and _may_lead_to_damage(readable, repair))
    high = frozenset(record.key for record in handles.wrong if handles.counts.is_high(record))
    high_counts = tuple(repair for repair in found.handles if repair.record.key in high and repair not in kept)
    passed = kept.union(high_counts)
    repairs = tuple(repair for repair in candidates if repair not in passed)
    replaced = {repair.key for repair in repairs if isinstance(repair, DeleteDamaged | RestoreHandle | RestoreAffinity)}
    return CheckReport(
        repairs=repairs,
        unrepairable=(
            *(Unrepairable(str(each.error)) for each in damaged if each.error.subject not in replaced),
            *(Unrepairable(str(error)) for error in found.unreadable),
            *(
                Unrepairable(f"{repair}: not while a block is damaged, which it may lead to")
                for repair in candidates
                if repair in kept
            ),
            *_overlaps(record.value.prefix for record in records.blocks),
            *_without_pool(records),
            *_unjudged(records),
        ),
        high_counts=high_counts,
        blocks=len(records.blocks),
        addresses=handles.counts.addresses,
        handles=handles.count,
        affinities=len(records.affinities),
    )


def _without_pool(records: CheckedRecords) -> Iterator[WithoutPool]:
    """The blocks that hold addresses of no pool: it was deleted, or replaced by a smaller one.

    Their workloads go on, and a new pool around them may have blocks of another size. Addresses that cool down end by
    themselves, and those that a host reserves are of no workload.
    """
    if not records.has_all_pools:
        return
    pools = [record.value.spec.prefix for record in records.pools]
    for record in records.blocks:
        block = record.value
        if any(pool.covers(block.prefix) for pool in pools):
            continue
        held = [
            each.address
            for each in block.held()
            if not each.is_cooling
            and each.attribute.handle != RESERVED_HANDLE
            and not any(pool.contains(each.address) for pool in pools)
        ]
        if held:
            which = f"{held[0]} is" if len(held) == 1 else f"{len(held)} addresses, {held[0]} to {held[-1]}, are"
            remedy = f"create a pool with block size {block.prefix.length} around the block, or let its workloads end"
            yield WithoutPool(f"block {block.prefix}: {which} held, and in no pool; {remedy}")


def _unjudged(records: CheckedRecords) -> Iterator[Unrepairable]:
    """What assignments pass over because they cannot judge it."""
    for pool in records.pools:
        for problem in find_selector_problems(pool):
            yield Unrepairable(f"{problem}; the pool serves only who names it")
    for reservation in records.reservations:
        yield from (Unrepairable(str(entry)) for entry in unread_entries(reservation))


def _lost_handles(records: CheckedRecords) -> Iterator[RestoreHandle]:
    """The handles that hold addresses and are not stored, or cannot be read."""
    keys = {record.value.prefix: record.key for record in records.blocks}
    for handle in sorted(records.handles.missing):
        blocks = sorted(records.handles.counts.blocks_of(handle))
        yield RestoreHandle(key=handle_key(handle), blocks=tuple(map(keys.__getitem__, blocks)))


def _lost_affinities(records: CheckedRecords, *, is_damaged: bool) -> Iterator[RestoreAffinity]:
    """The affinities of blocks with an owner that are not stored, or cannot be read.

    An empty block goes without its affinity, unless that may be a damaged one.
    """
    known = {record.key for record in records.affinities}
    for record in records.blocks:
        block = record.value
        if block.owner and (is_damaged or not block.is_empty):
            key = affinity_key(block.owner, block.prefix)
            if key not in known:
                yield RestoreAffinity(key=key, block=record.key)


def _useless(
    damaged: Iterable[DamagedRecord], handles: Iterable[RestoreHandle], affinities: Iterable[RestoreAffinity]
) -> Iterator[DeleteDamaged]:
    """Damaged handles that hold nothing, and damaged affinities that own no block."""
    needed: set[Key[Handle] | Key[Affinity]] = {*(each.key for each in handles), *(each.key for each in affinities)}
    for each in damaged:
        key = each.error.subject
        if key is not None and each.kind in (HANDLE, AFFINITY) and key not in needed:
            yield DeleteDamaged(key=key, revision=each.error.revision)


def _may_lead_to_damage(readable: frozenset[Prefix], repair: Repair) -> bool:
    """Whether a repair drops or shortens what may lead to a block that cannot be read; ``readable`` are the others."""
    match repair:
        case RepairHandle():
            return not readable.issuperset(repair.blocks)
        case RelinquishAffinity():
            return repair.reason is RelinquishReason.NO_BLOCK
        case RestoreHandle() | DeleteDamaged():
            return True
        case _:
            return False


def _overlaps(prefixes: Iterable[Prefix]) -> Iterator[Unrepairable]:
    """The blocks that lie in other blocks: an address of both may be held twice."""
    widest: Prefix | None = None
    for prefix in sorted(prefixes):
        if widest is not None and widest.covers(prefix):
            yield Unrepairable(f"block {prefix} lies in block {widest}: an address of both may have two owners")
        else:
            widest = prefix
