"""Hypothesis strategies for acts and mishaps, in a small world that is crowded enough for everything to happen.

Three nodes, a few workloads, pools of a handful of blocks in both families: whatever is drawn meets what was drawn
before. What depends on who holds what is drawn from a ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias, TypeVar

from attrs import evolve, frozen
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.affinity import affinity_key, host_owner
from netplug_core.ipam.relinquish import Emptiness
from netplug_core.ipam.request import (
    AssignRequest,
    Automatic,
    Reach,
    Shortfall,
    Specific,
    Wanted,
)
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.ipreservation import IPReservation, IPReservationSpec, ipreservation_key
from netplug_core.resources.metadata import Labels, Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.allocator.acts import (
    NAMESPACE,
    Apply,
    Assign,
    Claim,
    Collect,
    Configure,
    Ensure,
    Forget,
    Pause,
    Relinquish,
    RelinquishAct,
    RelinquishBlock,
    RelinquishNode,
    RelinquishPool,
    Remove,
    Sight,
    StoreAct,
)
from netplug_core.testing.allocator.line import Mishap, Sort
from netplug_core.testing.allocator.recipes import ItemRecipe, OwnerRecipe, Recipe, ReleaseItemsRecipe, ReleaseRecipe

__all__ = [
    "HANDLES",
    "NODES",
    "POOLS",
    "SERVICE",
    "WORKLOADS",
    "Rival",
    "asked_by",
    "assignments",
    "claims",
    "corrections",
    "governments",
    "pauses",
    "pool",
    "releases",
    "relinquishments",
    "simple_assignments",
    "ticks",
    "troubles",
]

NODES = ("node-a", "node-b", "node-c")
WORKLOADS = {"w0": "node-a", "w1": "node-a", "w2": "node-b", "w3": "node-b", "w4": "node-c"}
"""Handles of pods, and where those run."""

SERVICE = "service"
"""A handle without a pod, for which any node asks."""

HANDLES = (*WORKLOADS, SERVICE)
POOLS = {
    "p0": ("10.0.0.0/28", (30, 31)),
    "p1": ("10.0.1.0/29", (30, 32)),
    "p2": ("10.0.2.0/30", (32,)),
    "s0": ("fd00::/125", (126, 127)),
    "s1": ("fd00:0:0:1::/126", (128,)),
}
"""Names, ranges and the block sizes that they may have."""

_USES = (
    (AllowedUse.WORKLOAD, AllowedUse.TUNNEL),
    (AllowedUse.WORKLOAD,),
    (AllowedUse.WORKLOAD,),
    (AllowedUse.TUNNEL,),
    (AllowedUse.LOAD_BALANCER,),
)
_RESERVED = ("10.0.0.0/31", "10.0.0.4/30", "10.0.1.3", "10.0.2.0/30", "fd00::/126", "fd00:0:0:1::1")
_SETTINGS = (
    IPAMConfigurationSpec(),
    IPAMConfigurationSpec(cooldown_s=5),
    IPAMConfigurationSpec(is_affinity_strict=True),
    IPAMConfigurationSpec(is_affinity_strict=True, max_blocks=1),
    IPAMConfigurationSpec(is_affinity_strict=True, max_blocks=2, cooldown_s=5),
    IPAMConfigurationSpec(is_affinity_strict=True, claims_blocks=False),
)

T = TypeVar("T")
Twist: TypeAlias = Callable[[AssignRequest], AssignRequest]
_TWISTS: tuple[Twist, ...] = (
    lambda plain: plain,
    lambda plain: evolve(plain, shortfall=Shortfall.REFUSE),
    lambda plain: evolve(plain, reach=Reach.ON_LINK),
    lambda plain: evolve(plain, block_limit=1),
    lambda plain: evolve(plain, block_limit=2),
    lambda plain: evolve(plain, max_per_handle=1),
    lambda plain: evolve(plain, max_per_handle=3),
    lambda plain: evolve(plain, kept_back=(1, 1)),
    lambda plain: evolve(plain, namespace_labels=(("env", "x"),)),
    lambda plain: evolve(plain, use=AllowedUse.TUNNEL),
    lambda plain: evolve(plain, use=AllowedUse.LOAD_BALANCER, affine_to="virtual:lb"),
    lambda plain: evolve(plain, use=None),
)

_nodes = st.sampled_from(NODES)
_handles = st.sampled_from(HANDLES)
_names = st.sampled_from(sorted(POOLS))
_emptiness = st.sampled_from(Emptiness)
_picks = st.integers(0, 60)


# --- workloads --------------------------------------------------------------------------------------------------------


def asked_by(handle: str | None, *wanted: Wanted, node: str = "", call: int = 0) -> AssignRequest:
    """What a workload wants, on its own node unless another is named."""
    is_pod = handle in WORKLOADS
    owner = (("namespace", NAMESPACE), ("pod", handle or "")) if is_pod else (("service", f"{handle}-{call}"),)
    home = node or WORKLOADS.get(handle or "", NODES[0])
    return AssignRequest(handle=handle, node=home, wanted=wanted, owner=owner, use=AllowedUse.WORKLOAD)


def simple_assignments() -> st.SearchStrategy[Assign]:
    """A workload wants an address, a few, or one of each family."""
    return _listed(_SIMPLE)


@st.composite
def assignments(draw: st.DrawFn) -> Assign:
    """Requests of every sort, mostly of one or two simple things."""
    handle = draw(st.one_of(_handles, _handles, _handles, st.none()))
    node = "" if handle in WORKLOADS else draw(_nodes)
    number = draw(st.integers(0, 2**20)) if handle is None else 0
    wish = asked_by(handle, *draw(_wants()), node=node, call=number)
    for twist in draw(st.lists(st.sampled_from(_TWISTS), max_size=2)):
        wish = twist(wish)
    return Assign(request=wish)


@st.composite
def _wants(draw: st.DrawFn) -> tuple[Wanted, ...]:
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


def releases() -> st.SearchStrategy[ReleaseRecipe]:
    """Of somebody who holds something, by number or not."""
    return st.builds(ReleaseRecipe, pick=_picks, by_number=_picks)


def corrections() -> st.SearchStrategy[Recipe]:
    """Addresses freed one by one, and owners changed."""
    items = st.builds(ItemRecipe, pick=_picks, address=_addresses(), handle=_picks, number=_picks)
    return st.one_of(
        st.builds(ReleaseItemsRecipe, items=st.lists(items, min_size=1, max_size=4).map(tuple)),
        st.builds(OwnerRecipe, pick=_picks, address=_addresses(), handle=_picks, mark=st.sampled_from("ab")),
    )


# --- blocks -----------------------------------------------------------------------------------------------------------


def claims() -> st.SearchStrategy[Claim | Ensure]:
    """Claims ahead of time, of nodes and of a load balancer."""
    claimants = st.sampled_from([*map(host_owner, NODES), "virtual:lb"])
    ranges = st.builds(_part, _names, st.sampled_from([0, 1, 2]), st.integers(0, 3))
    ensured = assignments().map(lambda act: Ensure(request=act.request))
    return st.one_of(st.builds(Claim, claimant=claimants, wanted=ranges), ensured)


def _part(name: str, longer: int, index: int) -> Prefix:
    whole = Prefix.parse(POOLS[name][0])
    return whole.part(index % whole.part_count(whole.length + longer), whole.length + longer)


def relinquishments() -> st.SearchStrategy[RelinquishAct]:
    """Claims given up by node, by pool, by block, and by name whether there are such claims or not."""
    ranges = _names.map(lambda name: Prefix.parse(POOLS[name][0]))
    blocks = st.builds(lambda name, at: Prefix.parse(POOLS[name][0]).part(at, POOLS[name][1][0]), _names, _places)
    keys = st.builds(lambda node, block: affinity_key(host_owner(node), block), _nodes, blocks)
    return st.one_of(
        st.builds(RelinquishNode, node=_nodes, emptiness=_emptiness),
        st.builds(RelinquishPool, pool=ranges, emptiness=_emptiness),
        st.builds(RelinquishBlock, block=blocks, emptiness=_emptiness),
        st.builds(Relinquish, claims=st.lists(keys, max_size=3, unique=True).map(tuple), emptiness=_emptiness),
    )


_places = st.integers(0, 1)


# --- people -----------------------------------------------------------------------------------------------------------


def pool(name: str) -> IPPool:
    """One of ``POOLS``, with the first of its block sizes and every default."""
    cidr, lengths = POOLS[name]
    return IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(prefix=Prefix.parse(cidr), block_length=lengths[0]))


def _forms(name: str) -> tuple[IPPool, ...]:
    """A pool in all its forms: as it usually is, and with each setting in turn that says who may use it."""
    usual = pool(name)
    specs = [evolve(usual.spec, block_length=length) for length in POOLS[name][1]]
    specs += [evolve(usual.spec, allowed_uses=uses) for uses in _USES]
    specs += [evolve(usual.spec, node_selector=selector) for selector in ("zone == 'a'", "!has(zone)")]
    specs.append(evolve(usual.spec, allowed_uses=(AllowedUse.WORKLOAD,), namespace_selector="env == 'x'"))
    specs.append(evolve(usual.spec, assignment_mode=AssignmentMode.MANUAL))
    specs += [evolve(usual.spec, is_disabled=True)] * 2
    return tuple(evolve(usual, spec=spec) for spec in specs)


def governments() -> st.SearchStrategy[StoreAct]:
    """What people do: to pools, nodes, reservations and the configuration."""
    return st.one_of(_listed(_POOL_ACTS), _listed(_OTHER_ACTS))


def _reservation(name: str, *cidrs: str) -> IPReservation:
    spec = IPReservationSpec(reserved=tuple(map(Prefix.parse, cidrs)))
    return IPReservation(metadata=Metadata(name=name), spec=spec)


# --- what comes in between --------------------------------------------------------------------------------------------


def pauses() -> st.SearchStrategy[Pause]:
    """From a moment to more than every patience."""
    return st.builds(Pause, seconds=st.sampled_from([0.2, 1.0, 5.0, 7.0, 61.0, 200.0]))


def ticks() -> st.SearchStrategy[Collect]:
    """The collector's, mostly with its eyes open."""
    return st.builds(Collect, sight=st.builds(Sight, is_blind=st.sampled_from([False, False, False, True])))


@frozen(kw_only=True)
class Rival:
    """Somebody else's act, just before the call ``at`` of another one."""

    at: int
    act: StoreAct | Collect | Recipe


def troubles() -> st.SearchStrategy[Mishap | Rival | None]:
    """What may happen to one of the first calls to the store; nothing, every other time."""
    sorts = st.sampled_from([sort for sort in Sort if sort is not Sort.RIVAL])
    at = st.sampled_from([1, 2, 2, 3, 3, 4])
    mishap = st.builds(Mishap, sorts, at, st.integers(0, 12))
    acts = st.one_of(simple_assignments(), releases(), governments(), relinquishments(), ticks())
    return st.one_of(st.none(), st.none(), mishap, st.builds(Rival, at=at, act=acts))


# --- catalogues: to draw one of a list is quick -----------------------------------------------------------------------


def _listed(catalogue: tuple[T, ...]) -> st.SearchStrategy[T]:
    # By position: the texts of whole catalogues would fill pages.
    return st.sampled_from(range(len(catalogue))).map(catalogue.__getitem__)


_COUNTS = ((1, 0), (1, 1), (2, 0), (3, 1), (5, 0), (0, 2))
_SIMPLE = tuple(
    Assign(
        request=asked_by(
            handle,
            *(Automatic(family=family, count=n) for family, n in zip(Family, counts, strict=True) if n),
            node=node,
        )
    )
    for counts in _COUNTS
    for handle, node in (*WORKLOADS.items(), *((SERVICE, node) for node in NODES))
)
_LABELS: tuple[Labels, ...] = ((), (("zone", "a"),), (("zone", "b"),))
_POOL_ACTS: tuple[StoreAct, ...] = (
    *(Apply(resource=form) for name in POOLS for form in _forms(name)),
    *[Apply(resource=pool(name)) for name in POOLS] * 4,
    *[Remove(key=ippool_key(name)) for name in POOLS] * 4,
)
_OTHER_ACTS: tuple[StoreAct, ...] = (
    *(Configure(settings=settings) for settings in _SETTINGS),
    *(Forget(handle=handle) for handle in WORKLOADS),
    *(Apply(resource=Node(metadata=Metadata(name=n, labels=labels))) for n in NODES for labels in _LABELS),
    *(Remove(key=node_key(name)) for name in NODES),
    *(Apply(resource=_reservation("r", cidr)) for cidr in _RESERVED),
    *(Apply(resource=_reservation("s", *pair)) for pair in pairwise(_RESERVED)),
    *(Remove(key=ipreservation_key(name)) for name in "rsrsrs"),
)
