"""What is left to do until a pool is empty and can be deleted: for ``netplugctl pool drain`` and ``pool resize``.

``flows.resources.drain`` reads the view and carries out the steps. A plan follows from what is stored alone, so a run
that was interrupted is continued by any other one. No step takes an address from a workload.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.allocation.ownership import is_owned
from netplug_core.ipam.allocation.pools import Cooldown, is_enabled
from netplug_core.ipam.model import (
    RESERVED_HANDLE,
    Affinity,
    Attribute,
    Block,
    affinity_key,
    claimed_block,
    cooldown_ends_ns,
)
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.records import Key, Record, Revision
from netplug_core.resources.ippool import AssignmentMode, IPPool

__all__ = [
    "DRAIN_MARK", "DrainStep", "DrainView", "DrainedPool", "HeldAddress", "drain_view", "drain_warnings",
    "is_draining", "marked", "next_step", "unmarked", "was_disabled",
]  # fmt: skip

DRAIN_MARK = f"{RESOURCE_DOMAIN}/drain"
"""The annotation of a pool that is being drained: ``enabled`` or ``disabled``, which is what it was before."""

_BEFORE = {False: "enabled", True: "disabled"}


class DrainStep(enum.Enum):
    """A step of a drain; the value names it to programs.

    The last one is ``DELETE``, or ``KEEP`` where the pool is to stay, empty and disabled.
    """

    DISABLE = "disable"
    SETTLE = "settle"
    RELEASE = "release"
    WAIT = "wait"
    DELETE = "delete"
    KEEP = "keep"


class DrainedPool(enum.Enum):
    """What becomes of a pool that is drained, once it is empty."""

    DELETED = "deleted"
    KEPT = "kept, disabled"


@frozen(kw_only=True)
class HeldAddress:
    """An address in use, and what is known of the workload: ``name`` is its pod, service, container or type."""

    address: Address
    node: str
    namespace: str
    name: str
    handle: str


@frozen(kw_only=True)
class DrainView:
    """A pool, and what is stored in its range.

    ``cooling`` counts released addresses in cooldown, ``cooldown_ends_ns`` is when the last of them is free (None if
    there are none). ``blocks_in_use`` counts the blocks that hold an address or cool one down. ``affinities`` are those
    that can be relinquished, ``ownerless`` the blocks that can be deleted: no address in them is held.
    """

    pool: Record[IPPool]
    held: tuple[HeldAddress, ...]
    cooling: int
    cooldown_ends_ns: int | None
    blocks_in_use: int
    affinities: tuple[Key[Affinity], ...]
    ownerless: tuple[Prefix, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no address is held or cooling down."""
        return not (self.held or self.cooling)

    @property
    def unused_count(self) -> int:
        """How many claims and blocks can be released."""
        return len(self.affinities) + len(self.ownerless)


def is_draining(pool: IPPool) -> bool:
    """Whether a pool gives no address because it is drained, or deleted at the moment."""
    is_marked = pool.spec.is_disabled and any(name == DRAIN_MARK for name, _text in pool.metadata.annotations)
    return is_marked or pool.is_terminating


def was_disabled(pool: IPPool) -> bool:
    """Whether a pool was disabled before it was drained; if it is not drained, whether it is disabled."""
    mark = dict(pool.metadata.annotations).get(DRAIN_MARK)
    return pool.spec.is_disabled if mark is None or not pool.spec.is_disabled else mark == _BEFORE[True]


def marked(pool: IPPool) -> IPPool:
    """The pool as it is stored while it is drained."""
    annotations = dict(pool.metadata.annotations) | {DRAIN_MARK: _BEFORE[was_disabled(pool)]}
    metadata = evolve(pool.metadata, annotations=tuple(sorted(annotations.items())))
    return evolve(pool, metadata=metadata, spec=evolve(pool.spec, is_disabled=True))


def unmarked(pool: IPPool) -> IPPool:
    """The pool as it was before it was drained; the same pool if it is not drained."""
    annotations = tuple(pair for pair in pool.metadata.annotations if pair[0] != DRAIN_MARK)
    metadata = evolve(pool.metadata, annotations=annotations)
    return evolve(pool, metadata=metadata, spec=evolve(pool.spec, is_disabled=was_disabled(pool)))


def next_step(view: DrainView, settled: Revision | None, outcome: DrainedPool = DrainedPool.DELETED) -> DrainStep:
    """What to do next, if that is to become of the pool.

    ``settled`` is the revision of the pool at which no assignment that read it as enabled can be under way any more;
    None if that is not known.
    """
    if not is_draining(view.pool.value):
        return DrainStep.DISABLE
    if settled != view.pool.revision:
        return DrainStep.SETTLE
    if view.unused_count:
        return DrainStep.RELEASE
    if not view.is_empty or view.pool.value.is_terminating:  # a deleted pool waits for its finalizers
        return DrainStep.WAIT
    return DrainStep.DELETE if outcome is DrainedPool.DELETED else DrainStep.KEEP


def drain_warnings(pool: IPPool, pools: Sequence[IPPool]) -> tuple[str, ...]:
    """What the person who drains a pool should know first: whether no other pool can take its place."""
    spec = pool.spec
    uses = [
        use.value
        for use in spec.allowed_uses
        if not any(_may_replace(other, pool) and use in other.spec.allowed_uses for other in pools)
    ]
    if not uses or not is_enabled(pool) or spec.assignment_mode is AssignmentMode.MANUAL:
        return ()
    family = f"IPv{spec.prefix.family.value}"
    return (f"{pool.key}: no other enabled {family} pool serves {', '.join(uses)}; new requests will be refused",)


def _may_replace(other: IPPool, pool: IPPool) -> bool:
    is_other = other.key != pool.key and other.spec.prefix.family is pool.spec.prefix.family
    return is_other and is_enabled(other) and other.spec.assignment_mode is AssignmentMode.AUTOMATIC


def drain_view(
    pool: Record[IPPool], blocks: Iterable[Block], affinities: Sequence[Key[Affinity]], cooldown: Cooldown
) -> DrainView:
    """The view of a pool, from all blocks of its family and all affinities."""
    prefix = pool.value.spec.prefix
    stored = {block.prefix: cooldown.expire(block) for block in blocks if block.prefix.overlaps(prefix)}
    in_use = [block for block in stored.values() if not block.is_empty]
    own = [block for block in stored.values() if prefix.covers(block.prefix)]
    ends = (
        cooldown_ends_ns(released_ns, cooldown.cooldown_ns)
        for block in in_use
        for _index, released_ns in block.attributes.cooling()
    )
    return DrainView(
        pool=pool,
        held=tuple(held for block in sorted(in_use, key=lambda block: block.prefix) for held in _held(block, prefix)),
        cooling=sum(block.cooling_count for block in in_use),
        cooldown_ends_ns=max(ends, default=None),
        blocks_in_use=len(in_use),
        affinities=_releasable(prefix, stored, affinities),
        ownerless=tuple(sorted(block.prefix for block in own if not block.owner and block.is_empty)),
    )


def _releasable(
    pool: Prefix, stored: dict[Prefix, Block], affinities: Sequence[Key[Affinity]]
) -> tuple[Key[Affinity], ...]:
    """The affinities in the range whose blocks are empty or another owner's, and the lost ones of empty blocks."""
    owned = (affinity_key(block.owner, block.prefix) for block in stored.values() if block.owner)
    in_range = (key for key in dict.fromkeys((*affinities, *owned)) if pool.covers(claimed_block(key)))
    found = ((key, stored.get(claimed_block(key))) for key in in_range)
    return tuple(key for key, block in found if block is None or not is_owned(block, key) or block.is_empty)


def _held(block: Block, pool: Prefix) -> Iterable[HeldAddress]:
    for held in block.held():
        attribute = held.attribute
        is_of_workload = attribute.released_ns is None and attribute.handle != RESERVED_HANDLE
        if is_of_workload and pool.contains(held.address):
            yield HeldAddress(
                address=held.address,
                node=attribute.owner_value("node"),
                namespace=attribute.owner_value("namespace"),
                name=_name(attribute),
                handle=attribute.handle or "",
            )


def _name(attribute: Attribute) -> str:
    named = (attribute.owner_value(name) for name in ("pod", "service", "container", "type"))
    return next(filter(None, named), attribute.handle or "")
