"""How full pools and blocks are, and who uses each address: for ``ipam show``, metrics and the report of a check."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.gc.candidates import (
    AllocationOwner,
    AllocationRef,
    CollectionReport,
    LeakReason,
    StoreView,
    UndeterminedReason,
    allocation_owners,
    judge,
    owner_of_allocation,
)
from netplug_core.ipam.model import (
    AFFINITY,
    RESERVED_HANDLE,
    Allocation,
    Attribute,
    Block,
    Handle,
    host_owner,
    owner_node,
)
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodName, PodNetwork
from netplug_core.records import Key, List, Record, Snapshot
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "NO_AFFINITY", "NO_POOL", "ORPHANS", "UNKNOWN_NODE", "AddressUse", "AddressUsers", "AllocationReport",
    "BlockUsage", "BorrowedAddress", "HandleRef", "LeakList", "ListedAddress", "OwnUsage", "PoolMetrics", "PoolUsage",
    "ReportHeader", "ReportedAllocation", "UseState", "borrowed", "borrowing_node", "common_leaks",
    "handles_without_addresses", "list_addresses", "own_usage", "pool_metrics", "ref_of", "reported_allocations",
    "use_of", "used_addresses", "utilization",
]  # fmt: skip


# --- how full ---------------------------------------------------------------------------------------------------------


ORPHANS = "orphaned allocation blocks"
"""The name of the group of blocks that are in no pool."""

_EVERYWHERE = Prefix(Family.IPV4, 0, 0)


@frozen(kw_only=True)
class BlockUsage:
    """One block. ``reserved`` counts its reserved addresses, ``available`` those that can be assigned."""

    block: Block
    reserved: int
    available: int

    @property
    def capacity(self) -> int:
        """How many addresses it has."""
        return self.block.prefix.size

    @property
    def in_use(self) -> int:
        """How many of them are not free: assigned, cooling down, or reserved for the host."""
        return self.block.used_count

    @property
    def cooling(self) -> int:
        """How many of those in use are cooling down."""
        return self.block.cooling_count


@frozen(kw_only=True)
class PoolUsage:
    """One pool and its blocks, by address.

    ``reserved`` counts the reserved addresses of its range, assigned or not; ``available`` those that can be assigned,
    in blocks and outside of them. If ``pool`` is None, the blocks are those in no pool, of both families, and only the
    addresses of these blocks are counted. No address of them is assigned while they are in no pool.
    """

    pool: IPPool | None
    blocks: tuple[BlockUsage, ...]
    capacity: int
    reserved: int
    available: int

    @property
    def name(self) -> str:
        """The pool's name, or ``ORPHANS``."""
        return self.pool.metadata.name if self.pool else ORPHANS

    @property
    def prefix(self) -> Prefix:
        """The pool's range; everything for the blocks in no pool."""
        return self.pool.spec.prefix if self.pool else _EVERYWHERE

    @property
    def in_use(self) -> int:
        """How many of its addresses are not free."""
        return sum(block.in_use for block in self.blocks)

    @property
    def cooling(self) -> int:
        """How many of those in use are cooling down."""
        return sum(block.cooling for block in self.blocks)


@frozen(kw_only=True)
class BorrowedAddress:
    """A borrowed address: the node that uses it, and the block of another owner that it is in."""

    allocation: Allocation
    node: str
    block: Block


def utilization(
    pools: Iterable[IPPool], blocks: Iterable[Block], reserved: Reserved | None = None
) -> tuple[PoolUsage, ...]:
    """The utilization of each pool, by name, and of the blocks in no pool, last, if there are any.

    A block counts for the first pool, by name, that covers it.
    """
    reserved = reserved or Reserved()
    remaining = [_of_block(block, reserved) for block in sorted(blocks, key=lambda block: block.prefix)]
    usages = []
    for pool in sorted(pools, key=lambda pool: pool.metadata.name):
        prefix = pool.spec.prefix
        covered = tuple(usage for usage in remaining if prefix.covers(usage.block.prefix))
        remaining = [usage for usage in remaining if not prefix.covers(usage.block.prefix)]
        usages.append(_of_pool(pool, covered, reserved.count(prefix)))
    return (*usages, _orphans(tuple(remaining))) if remaining else tuple(usages)


def borrowed(blocks: Iterable[Block]) -> tuple[BorrowedAddress, ...]:
    """Every borrowed address, by address. An address in a block without an owner is not borrowed."""
    return tuple(
        BorrowedAddress(allocation=held, node=node, block=block)
        for block in sorted(blocks, key=lambda block: block.prefix)
        for held in block.held()
        if (node := borrowing_node(block, held.attribute))
    )


def borrowing_node(block: Block, attribute: Attribute) -> str:
    """The node that borrows the addresses of a block with that attribute; empty if none does."""
    node = attribute.owner_value("node")
    return node if block.owner and host_owner(node) != block.owner else ""


def _of_block(block: Block, reserved: Reserved) -> BlockUsage:
    count = reserved.count(block.prefix)
    free = len(block.free)
    if count:
        free = sum(not reserved.contains(block.prefix.nth(ordinal)) for ordinal in block.free)
    return BlockUsage(block=block, reserved=count, available=free)


def _of_pool(pool: IPPool, blocks: tuple[BlockUsage, ...], reserved: int) -> PoolUsage:
    capacity = pool.spec.prefix.size
    in_no_block = capacity - sum(usage.capacity for usage in blocks)
    reserved_in_no_block = reserved - sum(usage.reserved for usage in blocks)
    return PoolUsage(
        pool=pool,
        blocks=blocks,
        capacity=capacity,
        reserved=reserved,
        available=sum(usage.available for usage in blocks) + in_no_block - reserved_in_no_block,
    )


def _orphans(blocks: tuple[BlockUsage, ...]) -> PoolUsage:
    return PoolUsage(
        pool=None,
        blocks=blocks,
        capacity=sum(usage.capacity for usage in blocks),
        reserved=sum(usage.reserved for usage in blocks),
        available=sum(usage.available for usage in blocks),
    )


# --- metrics ----------------------------------------------------------------------------------------------------------


NO_POOL = "no_ippool"
UNKNOWN_NODE = "unknown_node"
NO_AFFINITY = "no_affinity"


@frozen(kw_only=True)
class PoolMetrics:
    """The counts of one node in one pool.

    ``in_use`` are assigned addresses, and ``borrowed`` those of them that are in blocks of other owners. ``blocks`` are
    the blocks that the node owns. ``candidates`` look leaked and are not freed yet. ``reclaimed`` were freed by the
    tick.
    """

    pool: str
    node: str
    in_use: int = 0
    borrowed: int = 0
    blocks: int = 0
    candidates: int = 0
    reclaimed: int = 0


def pool_metrics(view: StoreView, report: CollectionReport) -> tuple[PoolMetrics, ...]:
    """The counts of every pool and node with a block or an address, by their names."""
    pool_of = _PoolNames(view)
    counts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for record in view.blocks:
        block, pool = record.value, pool_of.name(record.value.prefix)
        owner = owner_node(block.owner)
        counts[pool, owner or NO_AFFINITY]["blocks"] += 1
        for holder in allocation_owners(block):
            held = counts[pool, holder.node or UNKNOWN_NODE]
            held["in_use"] += 1
            held["borrowed"] += bool(holder.node) and holder.node != owner
    for name, leaks in (("candidates", report.candidates), ("reclaimed", report.freed)):
        for leak in leaks:
            counts[pool_of.name(leak.owner.block), leak.owner.node or UNKNOWN_NODE][name] += 1
    return tuple(PoolMetrics(pool=pool, node=node, **found) for (pool, node), found in sorted(counts.items()))


@define(eq=False)
class _PoolNames:
    """The names of the pools of blocks; each block is looked up once."""

    _view: StoreView
    _known: dict[Prefix, str] = field(factory=dict, init=False)

    def name(self, block: Prefix) -> str:
        """The first pool, by name, that covers the block."""
        if block not in self._known:
            covering = (pool.key.name for pool in self._view.pools if pool.value.spec.prefix.covers(block))
            self._known[block] = min(covering, default=NO_POOL)
        return self._known[block]


# --- own blocks -------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class OwnUsage:
    """One pool: the addresses of its range, those of the node's own blocks, and how many of these are not free."""

    pool: str
    range_size: int
    block_size: int
    in_use: int


def own_usage(known: Snapshot) -> tuple[OwnUsage, ...]:
    """Each pool, by name; none if the pools are not known.

    A block is the node's own if its affinity is one that the node has listed: it lists its own alone.
    """
    if not known.has(List(IPPOOL)):
        return ()
    usages = utilization([record.value for record in known.readable(List(IPPOOL))], _own_blocks(known))
    return tuple(
        OwnUsage(
            pool=usage.name,
            range_size=usage.capacity,
            block_size=sum(block.capacity for block in usage.blocks),
            in_use=usage.in_use,
        )
        for usage in usages
        if usage.pool is not None
    )


def _own_blocks(known: Snapshot) -> tuple[Block, ...]:
    owners = {
        ":".join(query.within[:2]) for query in known.results if query.kind == AFFINITY and isinstance(query, List)
    }
    records = (record for result in known.results.values() for record in result.records)
    blocks = (record.value for record in records if isinstance(record.value, Block))
    # Several answers may have the same block; they agree on it.
    return tuple({block.prefix: block for block in blocks if block.owner in owners}.values())


# --- the use of an address --------------------------------------------------------------------------------------------


_NO_ENDPOINT = "no workload endpoint has it"


class UseState(enum.Enum):
    """Whether an address is used."""

    USED = "used"
    LEAKED = "leaked"
    COOLING = "cooling"
    UNDETERMINED = "undetermined"


@frozen(kw_only=True)
class AddressUse:
    """The state of an address, and as a text who has it, why it is leaked, or why that cannot be determined."""

    state: UseState
    text: str


@frozen(kw_only=True)
class AddressUsers:
    """Who uses addresses: workload endpoints, and the pods and nodes of the cluster.

    ``cluster`` is None if the datastore shows no pods.
    """

    endpoints: Mapping[Address, Key[WorkloadEndpoint]]
    cluster: ClusterView | None = None
    pods: Mapping[PodName, PodFacts | None] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        pods = {pod.pod_name: pod for pod in self.cluster.pods} if self.cluster else {}
        object.__setattr__(self, "pods", pods)


def use_of(allocation: Allocation, block: Block, users: AddressUsers) -> AddressUse:
    """Whether an address of a block is used. It is not one that its host reserves for itself."""
    if allocation.is_cooling:
        return AddressUse(state=UseState.COOLING, text="")
    endpoint = users.endpoints.get(allocation.address)
    if endpoint is not None:
        return AddressUse(state=UseState.USED, text=str(endpoint))
    owner = owner_of_allocation(allocation, block.prefix, owner_node(block.owner))
    by_cluster = _use_in_cluster(owner, users)
    if by_cluster is not None:
        return by_cluster
    unknown = _undetermined_text(allocation, owner, block.owner)
    if unknown:
        return AddressUse(state=UseState.UNDETERMINED, text=unknown)
    return AddressUse(state=UseState.LEAKED, text=_NO_ENDPOINT)


def _use_in_cluster(owner: AllocationOwner, users: AddressUsers) -> AddressUse | None:
    """What pods and nodes say of an address; None if they do not know it. Its handle does not matter to them."""
    cluster = users.cluster
    if cluster is None or not (owner.pod_name or (owner.is_tunnel and owner.node)):
        return None
    gone = frozenset({owner.node} - cluster.nodes)
    verdict = judge(evolve(owner, handle=owner.handle or ""), users.pods, gone=gone)
    if isinstance(verdict, LeakReason):
        return AddressUse(state=UseState.LEAKED, text=verdict.value)
    user = f"node {owner.node}" if owner.is_tunnel else f"pod {owner.pod_name}"
    return AddressUse(state=UseState.USED, text=user)


def _undetermined_text(allocation: Allocation, owner: AllocationOwner, block_owner: str) -> str:
    """Why it cannot be known whether an address without an endpoint is in use; empty if it is leaked."""
    container, service = (allocation.attribute.owner_value(name) for name in ("container", "service"))
    if container:
        return f"container {container} has no endpoint, as one that another main plugin attached"
    if service:
        return f"service {service} is not looked up"
    if block_owner and not owner_node(block_owner):
        return f"its block is no node's but {block_owner}'s, as that of a program or of services"
    if owner.pod_name is None and (owner.pod or owner.namespace):
        return UndeterminedReason.HALF_A_POD.value
    if owner.is_tunnel:
        return f"it is not known whether node {owner.node or 'unknown'} exists"
    return ""


# --- the report -------------------------------------------------------------------------------------------------------


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


# --- the list ---------------------------------------------------------------------------------------------------------


_NO_HANDLE = "its handle is missing or damaged"
_NO_POOL = "no IPPool contains it"
_NOT_RESERVED = Reserved()


@frozen(kw_only=True)
class ListedAddress:
    """An address, its handle (empty for none), whether it is used, and its problems, each as a text.

    ``is_allocated`` is False for one that a workload has and no block holds.
    """

    address: Address
    handle: str
    use: AddressUse
    problems: tuple[str, ...]
    is_allocated: bool = True


def used_addresses(users: AddressUsers) -> dict[Address, str]:
    """Who has which address, by pods where the datastore shows them, otherwise by endpoints.

    A pod that ends may have lost its address already, and one of the host's network has its node's.
    """
    if users.cluster is None:
        return {address: str(endpoint) for address, endpoint in users.endpoints.items()}
    return {
        address: f"pod {pod.pod_name}"
        for pod in users.cluster.pods
        if pod.network is PodNetwork.OWN and not pod.is_terminated and pod.deletion_time_ns is None
        for address in pod.addresses
    }


def list_addresses(
    report: AllocationReport,
    used: Mapping[Address, str],
    pools: Collection[IPPool],
    lost_handles: Collection[str],
    *,
    reserved: Reserved = _NOT_RESERVED,
    has_unread_pools: bool = False,
) -> tuple[ListedAddress, ...]:
    """All addresses of a report, and those that are ``used`` though no block holds them, in their order.

    Addresses that are used and in no pool are not netplug's, unless a block holds them; nor are those that
    reservations keep from being assigned (``reserved``). ``lost_handles`` hold addresses and cannot be found. With
    ``has_unread_pools`` there are more pools, and each may contain any address.
    """
    listed = [
        *(_listed(each, None if has_unread_pools else pools, lost_handles) for each in report.allocations),
        *_unallocated(report, used, pools, reserved),
    ]
    return tuple(sorted(listed, key=lambda each: each.address))


def _listed(
    reported: ReportedAllocation, pools: Collection[IPPool] | None, lost_handles: Collection[str]
) -> ListedAddress:
    """An allocated address; ``pools`` is None if it is not known whether one contains it."""
    allocation, use = reported.allocation, reported.use
    handle, problems = allocation.attribute.handle or "", list[str]()
    if use.state is UseState.LEAKED:
        problems.append(use.text)
    if handle in lost_handles:
        problems.append(_NO_HANDLE)
    if pools is not None and not any(pool.spec.prefix.contains(allocation.address) for pool in pools):
        problems.append(_NO_POOL)
    if use.state is UseState.COOLING:  # no workload has it, and its cooldown ends by itself
        problems.clear()
    return ListedAddress(address=allocation.address, handle=handle, use=use, problems=tuple(problems))


def _unallocated(
    report: AllocationReport, used: Mapping[Address, str], pools: Collection[IPPool], reserved: Reserved
) -> Iterator[ListedAddress]:
    """The used addresses of pools that no block holds; none if a block cannot be read, which may hold them."""
    if report.has_unread_blocks:
        return
    held = {each.allocation.address for each in report.allocations}
    for address, user in used.items():
        pool = next((pool for pool in pools if pool.spec.prefix.contains(address)), None)
        if pool is None or address in held or reserved.contains(address):
            continue
        yield ListedAddress(
            address=address,
            handle="",
            use=AddressUse(state=UseState.USED, text=user),
            problems=(f"it is not allocated, so another workload may get it from {pool.key}",),
            is_allocated=False,
        )
