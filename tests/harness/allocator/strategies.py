"""Hypothesis strategies for operations and faults in a small cluster.

There are three nodes, five workloads, and pools of a few blocks in both families, so that drawn operations often
concern the same blocks. Operations that depend on held addresses are drawn as deferred ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias, TypeVar

from attrs import evolve, frozen
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import (
    AssignRequest,
    Automatic,
    LinkLayer,
    Shortfall,
    Specific,
    Wanted,
)
from netplug_core.ipam.model import affinity_key, host_owner
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.ippool import (
    AllowedUse,
    AssignmentMode,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
    ippool_key,
    ipreservation_key,
)
from netplug_core.resources.node import Node, node_key
from tests.harness.allocator.client import CallFault, FaultKind
from tests.harness.allocator.deferred import (
    DeferredOperation,
    DeferredOwnerChange,
    DeferredRelease,
    DeferredReleaseAddresses,
    DeferredReleaseItem,
)
from tests.harness.allocator.operations import (
    NAMESPACE,
    AdvanceClock,
    ApplyResource,
    Assign,
    ClaimBlocks,
    CollectorView,
    ConfigureIPAM,
    DeletePod,
    DeleteResource,
    EnsureBlocks,
    RelinquishAffinities,
    RelinquishBlock,
    RelinquishNode,
    RelinquishOperation,
    RelinquishPool,
    RunCollector,
    StoreOperation,
    StorePool,
)

__all__ = [
    "HANDLES", "NODES", "POOLS", "SERVICE_HANDLE", "UNCHECKED_POOLS", "WIDE_POOL", "WORKLOADS", "ConcurrentOperation",
    "address_corrections", "admin_operations", "assignments", "call_faults", "claims", "clock_advances",
    "collector_runs", "make_pool", "make_request", "make_unchecked_pool", "releases", "relinquishments",
    "simple_assignments", "unchecked_pools", "wide_assignments",
]  # fmt: skip

NODES = ("node-a", "node-b", "node-c")
WORKLOADS = {"w0": "node-a", "w1": "node-a", "w2": "node-b", "w3": "node-b", "w4": "node-c"}
"""Handles of pods, and the nodes on which the pods run."""

SERVICE_HANDLE = "service"
"""A handle without a pod; any node may assign to it."""

HANDLES = (*WORKLOADS, SERVICE_HANDLE)
POOLS = {
    "p0": ("10.0.0.0/28", (30, 31)),
    "p1": ("10.0.1.0/29", (30, 32)),
    "p2": ("10.0.2.0/30", (32,)),
    "s0": ("fd00::/125", (126, 127)),
    "s1": ("fd00:0:0:1::/126", (128,)),
}
"""Names of pools, with their prefixes and possible block lengths."""

UNCHECKED_POOLS = (
    ("p0", "10.0.0.0/28", 29),
    ("p0", "10.0.0.0/28", 32),
    ("p1", "10.0.1.0/29", 31),
    ("p2", "10.0.2.0/30", 30),
    ("s0", "fd00::/125", 128),
    ("s1", "fd00:0:0:1::/126", 127),
    ("a0", "10.0.0.0/30", 32),
    ("q0", "10.0.0.8/29", 30),
    ("q1", "10.0.0.0/22", 29),
    ("t0", "fd00::4/126", 127),
)
"""Pools that a program stores without a comparison: over leftovers with other block sizes, or over other pools."""

WIDE_POOL = ("wide", "10.0.8.0/27", 32)
"""A pool of more blocks than one commit of a release takes."""

_ALLOWED_USES = (
    (AllowedUse.WORKLOAD, AllowedUse.TUNNEL),
    (AllowedUse.WORKLOAD,),
    (AllowedUse.WORKLOAD,),
    (AllowedUse.TUNNEL,),
    (AllowedUse.LOAD_BALANCER,),
)
_RESERVED_PREFIXES = ("10.0.0.0/31", "10.0.0.4/30", "10.0.1.3", "10.0.2.0/30", "fd00::/126", "fd00:0:0:1::1")
_SETTINGS = (
    IPAMConfigurationSpec(),
    IPAMConfigurationSpec(cooldown_s=5),
    IPAMConfigurationSpec(is_affinity_strict=True),
    IPAMConfigurationSpec(is_affinity_strict=True, max_blocks_per_host=1),
    IPAMConfigurationSpec(is_affinity_strict=True, max_blocks_per_host=2, cooldown_s=5),
    IPAMConfigurationSpec(is_affinity_strict=True, may_auto_allocate_blocks=False),
)

T = TypeVar("T")
RequestVariant: TypeAlias = Callable[[AssignRequest], AssignRequest]
_REQUEST_VARIANTS: tuple[RequestVariant, ...] = (
    lambda plain: plain,
    lambda plain: evolve(plain, shortfall=Shortfall.REFUSE),
    lambda plain: evolve(plain, link_layer=LinkLayer.L2),
    lambda plain: evolve(plain, block_limit=1),
    lambda plain: evolve(plain, block_limit=2),
    lambda plain: evolve(plain, max_per_handle=1),
    lambda plain: evolve(plain, max_per_handle=3),
    lambda plain: evolve(plain, host_reserved=(1, 1)),
    lambda plain: evolve(plain, namespace_labels=(("env", "x"),)),
    lambda plain: evolve(plain, use=AllowedUse.TUNNEL),
    lambda plain: evolve(plain, use=AllowedUse.LOAD_BALANCER, affine_to="virtual:lb"),
    lambda plain: evolve(plain, use=None),
)

_nodes = st.sampled_from(NODES)
_handles = st.sampled_from(HANDLES)
_names = st.sampled_from(sorted(POOLS))
_emptiness = st.sampled_from(Emptiness)
_indices = st.integers(0, 60)


# --- workloads --------------------------------------------------------------------------------------------------------


def make_request(handle: str | None, *wanted: Wanted, node: str = "", number: int = 0) -> AssignRequest:
    """The request of a workload, on its own node unless another is given."""
    is_pod = handle in WORKLOADS
    owner = (("namespace", NAMESPACE), ("pod", handle or "")) if is_pod else (("service", f"{handle}-{number}"),)
    own_node = node or WORKLOADS.get(handle or "", NODES[0])
    return AssignRequest(handle=handle, node=own_node, wanted=wanted, owner=owner, use=AllowedUse.WORKLOAD)


def simple_assignments() -> st.SearchStrategy[Assign]:
    """Assignments of one address, several, or one of each family."""
    return _sampled(_SIMPLE_ASSIGNMENTS)


@st.composite
def assignments(draw: st.DrawFn) -> Assign:
    """Assignments with all kinds of options, at most two at a time."""
    handle = draw(st.one_of(_handles, _handles, _handles, st.none()))
    node = "" if handle in WORKLOADS else draw(_nodes)
    number = draw(st.integers(0, 2**20)) if handle is None else 0
    request = make_request(handle, *draw(_wanted()), node=node, number=number)
    for vary in draw(st.lists(st.sampled_from(_REQUEST_VARIANTS), max_size=2)):
        request = vary(request)
    return Assign(request=request)


@st.composite
def _wanted(draw: st.DrawFn) -> tuple[Wanted, ...]:
    v4, v6 = Family.IPV4, Family.IPV6
    families: tuple[Family, ...] = draw(st.sampled_from([(v4,), (v4,), (v6,), (v4, v6)]))
    is_specific = draw(st.integers(0, 5)) == 0
    if is_specific:
        return tuple(draw(_specific(family)) for family in families)
    return tuple(draw(_automatic(family)) for family in families)


@st.composite
def _automatic(draw: st.DrawFn, family: Family) -> Automatic:
    count = draw(st.sampled_from([1, 1, 2, 3, 5]))
    named = draw(st.sampled_from([0, 0, 0, 1, 2]))
    return Automatic(family=family, count=count, pools=tuple(draw(_names_of(family)) for _ in range(named)))


@st.composite
def _specific(draw: st.DrawFn, family: Family) -> Specific:
    named = (draw(_names_of(family)),) if draw(st.integers(0, 3)) == 0 else ()
    return Specific(address=draw(_addresses(family)), pools=named)


def _names_of(family: Family) -> st.SearchStrategy[str]:
    names = [name for name, (cidr, _lengths) in POOLS.items() if Prefix.parse(cidr).family is family]
    return st.sampled_from([*names, *names, *names, "p0", "none"])


@st.composite
def _addresses(draw: st.DrawFn, family: Family | None = None) -> Address:
    ranges = [Prefix.parse(cidr) for cidr, _lengths in POOLS.values()]
    chosen = draw(st.sampled_from([prefix for prefix in ranges if family in (None, prefix.family)]))
    return chosen.nth(draw(st.integers(0, chosen.size - 1)))


def releases() -> st.SearchStrategy[DeferredRelease]:
    """Releases of a handle that holds addresses, with or without a sequence number."""
    return st.builds(DeferredRelease, index=_indices, sequence_index=_indices)


def address_corrections() -> st.SearchStrategy[DeferredOperation]:
    """Releases of single addresses, and changes of owners."""
    items = st.builds(
        DeferredReleaseItem, index=_indices, address=_addresses(), handle_index=_indices, sequence_index=_indices
    )
    return st.one_of(
        st.builds(DeferredReleaseAddresses, items=st.lists(items, min_size=1, max_size=4).map(tuple)),
        st.builds(
            DeferredOwnerChange, index=_indices, address=_addresses(), handle_index=_indices, mark=st.sampled_from("ab")
        ),
    )


# --- blocks -----------------------------------------------------------------------------------------------------------


def claims() -> st.SearchStrategy[ClaimBlocks | EnsureBlocks]:
    """Claims of blocks without an assignment, by nodes and by a load balancer."""
    claimants = st.sampled_from([*map(host_owner, NODES), "virtual:lb"])
    ranges = st.builds(_subprefix, _names, st.sampled_from([0, 1, 2]), st.integers(0, 3))
    ensured = assignments().map(lambda assignment: EnsureBlocks(request=assignment.request))
    return st.one_of(st.builds(ClaimBlocks, claimant=claimants, prefix=ranges), ensured)


def _subprefix(name: str, longer: int, index: int) -> Prefix:
    whole = Prefix.parse(POOLS[name][0])
    return whole.subprefix(index % whole.subprefix_count(whole.length + longer), whole.length + longer)


def relinquishments() -> st.SearchStrategy[RelinquishOperation]:
    """Affinities relinquished by node, by pool, by block, and by keys that may not exist."""
    ranges = _names.map(lambda name: Prefix.parse(POOLS[name][0]))
    blocks = st.builds(
        lambda name, at: Prefix.parse(POOLS[name][0]).subprefix(at, POOLS[name][1][0]), _names, _block_indices
    )
    keys = st.builds(lambda node, block: affinity_key(host_owner(node), block), _nodes, blocks)
    return st.one_of(
        st.builds(RelinquishNode, node=_nodes, emptiness=_emptiness),
        st.builds(RelinquishPool, pool=ranges, emptiness=_emptiness),
        st.builds(RelinquishBlock, block=blocks, emptiness=_emptiness),
        st.builds(
            RelinquishAffinities, affinities=st.lists(keys, max_size=3, unique=True).map(tuple), emptiness=_emptiness
        ),
    )


_block_indices = st.integers(0, 1)


# --- users ------------------------------------------------------------------------------------------------------------


def make_pool(name: str) -> IPPool:
    """One of ``POOLS``, with the first of its block sizes and every default."""
    cidr, lengths = POOLS[name]
    return IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(prefix=Prefix.parse(cidr), block_length=lengths[0]))


def make_unchecked_pool(name: str, cidr: str, block_length: int) -> IPPool:
    """A pool with every default."""
    return IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(prefix=Prefix.parse(cidr), block_length=block_length))


def unchecked_pools() -> st.SearchStrategy[StorePool]:
    """Pools that a program stores without a comparison with other pools and stored blocks."""
    return _sampled(tuple(StorePool(pool=make_unchecked_pool(*pool)) for pool in UNCHECKED_POOLS))


def wide_assignments() -> st.SearchStrategy[Assign]:
    """Assignments from more blocks than one commit of a release takes."""
    return st.builds(_wide_assignment, _handles, st.sampled_from([21, 25, 32]))


def _wide_assignment(handle: str, count: int) -> Assign:
    request = make_request(handle, Automatic(family=Family.IPV4, count=count, pools=(WIDE_POOL[0],)))
    return Assign(request=evolve(request, block_limit=count))


def _pool_variants(name: str) -> tuple[IPPool, ...]:
    """The usual pool, and variants of it that differ in one setting each."""
    usual = make_pool(name)
    specs = [evolve(usual.spec, block_length=length) for length in POOLS[name][1]]
    specs += [evolve(usual.spec, allowed_uses=uses) for uses in _ALLOWED_USES]
    specs += [evolve(usual.spec, node_selector=selector) for selector in ("zone == 'a'", "!has(zone)")]
    specs.append(evolve(usual.spec, allowed_uses=(AllowedUse.WORKLOAD,), namespace_selector="env == 'x'"))
    specs.append(evolve(usual.spec, assignment_mode=AssignmentMode.MANUAL))
    specs += [evolve(usual.spec, is_disabled=True)] * 2
    return tuple(evolve(usual, spec=spec) for spec in specs)


def admin_operations() -> st.SearchStrategy[StoreOperation]:
    """Changes of pools, nodes, reservations and the configuration by users."""
    return st.one_of(_sampled(_POOL_OPERATIONS), _sampled(_OTHER_OPERATIONS))


def _make_reservation(name: str, *cidrs: str) -> IPReservation:
    spec = IPReservationSpec(reserved=tuple(map(Prefix.parse, cidrs)))
    return IPReservation(metadata=Metadata(name=name), spec=spec)


# --- time, collector, faults ------------------------------------------------------------------------------------------


def clock_advances() -> st.SearchStrategy[AdvanceClock]:
    """From a fraction of a second to more than every grace period."""
    return st.builds(AdvanceClock, seconds=st.sampled_from([0.2, 1.0, 5.0, 7.0, 61.0, 200.0]))


def collector_runs() -> st.SearchStrategy[RunCollector]:
    """Ticks of the collector, in most cases with a full view."""
    return st.builds(RunCollector, view=st.builds(CollectorView, is_empty=st.sampled_from([False, False, False, True])))


@frozen(kw_only=True)
class ConcurrentOperation:
    """An operation of another client, just before the call ``at`` of an operation."""

    at: int
    operation: StoreOperation | RunCollector | DeferredOperation


def call_faults() -> st.SearchStrategy[CallFault | ConcurrentOperation | None]:
    """A fault of one of the first calls to the store, or None half of the time."""
    kinds = st.sampled_from([kind for kind in FaultKind if kind is not FaultKind.CONCURRENT_OPERATION])
    at = st.sampled_from([1, 2, 2, 3, 3, 4])
    faults = st.builds(CallFault, kinds, at, st.integers(0, 12))
    operations = st.one_of(simple_assignments(), releases(), admin_operations(), relinquishments(), collector_runs())
    return st.one_of(st.none(), st.none(), faults, st.builds(ConcurrentOperation, at=at, operation=operations))


# --- lists of operations, which are quick to draw ---------------------------------------------------------------------


def _sampled(catalogue: tuple[T, ...]) -> st.SearchStrategy[T]:
    # By index: Hypothesis would print the whole list in its messages.
    return st.sampled_from(range(len(catalogue))).map(catalogue.__getitem__)


_COUNTS = ((1, 0), (1, 1), (2, 0), (3, 1), (5, 0), (0, 2))
_SIMPLE_ASSIGNMENTS = tuple(
    Assign(
        request=make_request(
            handle,
            *(Automatic(family=family, count=n) for family, n in zip(Family, counts, strict=True) if n),
            node=node,
        )
    )
    for counts in _COUNTS
    for handle, node in (*WORKLOADS.items(), *((SERVICE_HANDLE, node) for node in NODES))
)
_LABELS: tuple[Labels, ...] = ((), (("zone", "a"),), (("zone", "b"),))
_POOL_OPERATIONS: tuple[StoreOperation, ...] = (
    *(ApplyResource(resource=variant) for name in POOLS for variant in _pool_variants(name)),
    *[ApplyResource(resource=make_pool(name)) for name in POOLS] * 4,
    *[DeleteResource(key=ippool_key(name)) for name in POOLS] * 4,
    *[DeleteResource(key=ippool_key(name)) for name in ("a0", "q0", "q1", "t0", WIDE_POOL[0])],
)
_OTHER_OPERATIONS: tuple[StoreOperation, ...] = (
    *(ConfigureIPAM(settings=settings) for settings in _SETTINGS),
    *(DeletePod(handle=handle) for handle in WORKLOADS),
    *(ApplyResource(resource=Node(metadata=Metadata(name=n, labels=labels))) for n in NODES for labels in _LABELS),
    *(DeleteResource(key=node_key(name)) for name in NODES),
    *(ApplyResource(resource=_make_reservation("r", cidr)) for cidr in _RESERVED_PREFIXES),
    *(ApplyResource(resource=_make_reservation("s", *pair)) for pair in pairwise(_RESERVED_PREFIXES)),
    *(DeleteResource(key=ipreservation_key(name)) for name in "rsrsrs"),
)
