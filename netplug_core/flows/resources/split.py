"""Splits a pool into pools of equal parts of its range, in a locked datastore, without touching a block.

The old pool is disabled, its parts are created, and it is deleted; only then its range may be another pool's. An
annotation of the old pool says into how many parts it is split, and one of each part of which pool it is. So a run that
was interrupted is run again, and several runs may go on at once. The parts have the block size of the old pool, so each
block lies in one part, and keeps its owner and its addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import ConfigurationError, NetplugError, excerpt
from netplug_core.flows.resources.cluster import LockState, find_lock_state
from netplug_core.flows.resources.drain import require_unmanaged
from netplug_core.flows.resources.outcome import ResourceExists
from netplug_core.flows.resources.pools import POOLS
from netplug_core.ipam.reporting.drain_plan import DRAIN_MARK
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.records import (
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Record,
    Require,
    RequireUnchanged,
    Snapshot,
    Update,
    Write,
    WriteGate,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.validation import validate_pool_overlaps, validate_resource

__all__ = ["PART_MARK", "SPLIT_MARK", "SplitPlan", "SplitRefused", "WantedSplit", "plan_split", "split"]

SPLIT_MARK = f"{RESOURCE_DOMAIN}/split"
"""The annotation of a pool that is being split: the number of parts, a slash, and ``enabled`` or ``disabled``."""

PART_MARK = f"{RESOURCE_DOMAIN}/split-of"
"""The annotation of a part: the name of the old pool, its uid and the number of parts, with slashes between."""

_MAX_PARTS = 1024
_BEFORE = {False: "enabled", True: "disabled"}
_NOT_LOCKED = "datastore is not locked. Lock it with netplugctl datastore migrate lock in order split the IP pools"


class SplitRefused(ConfigurationError):
    """A split that is not done; ``where`` is the pool, or empty."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted}" if self.where else self.accepted


@frozen(kw_only=True)
class WantedSplit:
    """Which pool is split, by its name or (if that is empty) its range, and into how many parts."""

    count: int
    name: str = ""
    prefix: Prefix | None = None

    @property
    def subject(self) -> str:
        """The pool as it was named."""
        return self.name or str(self.prefix)


@frozen(kw_only=True)
class SplitPlan:
    """The old pool, None if it is split and gone, and its parts as they are stored or are to be."""

    name: str
    old: Record[IPPool] | None
    parts: tuple[IPPool, ...]
    created: frozenset[str] = frozenset()


def plan_split(store: Datastore, wanted: WantedSplit, *, deadline: Deadline) -> SplitPlan:
    """What is left to do until a pool is split; nothing is written.

    Raises:
        ImportUnfinished: an import has locked the datastore.
        InvalidResource: a part breaks rules, or overlaps a pool that is neither the old one nor a part.
        Malformed: a pool cannot be understood, so it is not known whether it overlaps.
        PoolManaged: the operator would make the old pool again.
        ResourceExists: a pool has the name of a part, and is none.
        SplitRefused: the datastore is not locked, there is no such pool, or it cannot be split so.
        Unavailable: the store does not answer.
    """
    if find_lock_state(store, deadline=deadline) is LockState.UNLOCKED:
        raise SplitRefused("", None, _NOT_LOCKED)
    snapshot = store.read((POOLS,), deadline=deadline.capped(CALL_TIMEOUT_S))
    pools = {record.key.name: record for record in snapshot.list(POOLS)}
    old = _find_old(pools, wanted)
    if old is None:
        return _find_done(pools, wanted)
    _require_parts(old.value, wanted.count)
    require_unmanaged(old.value)
    _require_no_other_change(old.value, wanted.count)
    parts = tuple(_parts(old.value, wanted.count))
    for part in parts:
        validate_resource(part)
        _require_fit(part, old.value, pools)
    created = frozenset(part.metadata.name for part in parts if part.metadata.name in pools)
    return SplitPlan(name=old.key.name, old=old, parts=parts, created=created)


def split(
    store: Datastore, plan: SplitPlan, *, pace: Callable[[], Pace], new_uid: Callable[[], str]
) -> Iterator[tuple[Key[IPPool], str]]:
    """Split a pool; yields each pool that was written, and what was done with it.

    Every write requires that the datastore is locked.

    Raises:
        InvalidResource, ResourceExists, SplitRefused: another change came between; plan again.
        ContentionExhausted, Unavailable: not now; the next run continues where this one stopped.
    """
    if plan.old is None:
        return
    old, count = plan.old, len(plan.parts)
    if _run(store, pace(), partial(_decide_disabling, old.value, count)):
        yield old.key, "disabled"
    for part in plan.parts:
        moment = pace()
        uid = new_uid()
        metadata = evolve(part.metadata, uid=uid, attempt=uid, creation_time_ns=moment.clock.now_ns())
        if _run(store, moment, partial(_decide_creation, old.value, evolve(part, metadata=metadata))):
            yield part.key, f"created: {part.spec.prefix}"
    if _run(store, pace(), partial(_decide_deletion, old.value, plan.parts)):
        yield old.key, "deleted; its blocks are as they were"


# --- what is asked for -----------------------------------------------------------------------------------------------


def _find_old(pools: Mapping[str, Record[IPPool]], wanted: WantedSplit) -> Record[IPPool] | None:
    if wanted.name:
        return pools.get(wanted.name)
    return next((record for record in pools.values() if record.value.spec.prefix == wanted.prefix), None)


def _find_done(pools: Mapping[str, Record[IPPool]], wanted: WantedSplit) -> SplitPlan:
    """The plan of a split that is done: all parts of a pool that is gone are there."""
    of_pool: dict[str, list[IPPool]] = {}
    for record in pools.values():
        of_pool.setdefault(_mark(record.value, PART_MARK), []).append(record.value)
    for mark, parts in of_pool.items():
        name, _, rest = mark.partition("/")
        is_complete = rest.rpartition("/")[2] == str(wanted.count) == str(len(parts))
        if is_complete and (name == wanted.name if wanted.name else _fill(parts, wanted.prefix)):
            return SplitPlan(name=name, old=None, parts=tuple(parts))
    raise SplitRefused("", wanted.subject, f"unable to find IP pool {wanted.subject}")


def _fill(parts: list[IPPool], prefix: Prefix | None) -> bool:
    size = sum(part.spec.prefix.size for part in parts)
    return prefix is not None and size == prefix.size and all(prefix.covers(part.spec.prefix) for part in parts)


def _require_parts(old: IPPool, count: int) -> None:
    """Refuse a number of parts that the range of the pool does not have."""
    prefix, where = old.spec.prefix, str(old.key)
    if count < 2 or count.bit_count() != 1:  # noqa: PLR2004 - one part is no split
        rule = f"number to split CIDR into is not a valid power of 2: {count}; 2, 4, 8 and so on are"
        raise SplitRefused(where, count, rule)
    if prefix.length + count.bit_length() - 1 > old.spec.block_length:
        rule = f"{prefix} is not large enough to be split into {count} pools: its blocks are /{old.spec.block_length}"
        raise SplitRefused(where, count, rule)
    if count > _MAX_PARTS:
        raise SplitRefused(
            where, count, f"{count} pools are too many: every ADD reads all; at most {_MAX_PARTS} are made"
        )


def _require_no_other_change(old: IPPool, count: int) -> None:
    if _mark(old, DRAIN_MARK):
        raise SplitRefused(str(old.key), None, "it is being drained; wait for that, or use pool drain --undo")
    begun = _mark(old, SPLIT_MARK).partition("/")[0]
    if old.is_terminating and not begun:
        raise SplitRefused(str(old.key), None, "it is being deleted")
    if begun not in ("", str(count)):
        raise SplitRefused(str(old.key), count, f"its split into {begun} pools was begun; go on with that number")


def _require_fit(part: IPPool, old: IPPool, pools: Mapping[str, Record[IPPool]]) -> None:
    """Refuse a part whose name another pool has, or whose range; the old pool and its parts do not count."""
    stored = pools.get(part.metadata.name)
    if stored is not None and not _is_same_part(stored.value, part):
        problem = f"it is not a part of {old.key}; rename it, or split the pool by hand"
        raise ResourceExists(str(part.key), part.metadata.name, problem)
    own = _mark(part, PART_MARK)
    others = (record.value for record in pools.values() if record.key != old.key)
    validate_pool_overlaps(part, (other for other in others if _mark(other, PART_MARK) != own))


# --- the parts -------------------------------------------------------------------------------------------------------


def _parts(old: IPPool, count: int) -> Iterator[IPPool]:
    """The parts as they are to be, from the lowest."""
    name, length = old.metadata.name, old.spec.prefix.length + count.bit_length() - 1
    is_disabled = _was_disabled(old)
    for number in range(count):
        metadata = Metadata(
            name=f"split-{name}-{number}",
            labels=old.metadata.labels,
            annotations=((PART_MARK, f"{name}/{old.metadata.uid}/{count}"),),
        )
        prefix = old.spec.prefix.subprefix(number, length)
        yield IPPool(metadata=metadata, spec=evolve(old.spec, prefix=prefix, is_disabled=is_disabled))


def _is_same_part(stored: IPPool, part: IPPool) -> bool:
    """Whether a stored pool is a part that an earlier run created; its other settings may have been changed since."""
    ours, theirs = part.spec, stored.spec
    is_of_same = _mark(stored, PART_MARK) == _mark(part, PART_MARK)
    return is_of_same and (theirs.prefix, theirs.block_length) == (ours.prefix, ours.block_length)


def _was_disabled(old: IPPool) -> bool:
    before = _mark(old, SPLIT_MARK).rpartition("/")[2]
    return before == _BEFORE[True] if before else old.spec.is_disabled


def _mark(pool: IPPool, name: str) -> str:
    return dict(pool.metadata.annotations).get(name, "")


# --- the writes ------------------------------------------------------------------------------------------------------


def _check_locked(snapshot: Snapshot) -> NetplugError | Write:
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    if stored is None or not stored.value.is_locked:
        return SplitRefused("", None, _NOT_LOCKED)
    return Require(CLUSTER_INFORMATION_KEY, stored.revision)


_LOCKED = WriteGate(Get(CLUSTER_INFORMATION_KEY), _check_locked)


def _run(store: Datastore, pace: Pace, decide: Callable[[Snapshot], Decision[bool]]) -> bool:
    return Transaction(store, pace, _LOCKED).run((POOLS,), decide).get_result()


def _stored(snapshot: Snapshot) -> dict[str, Record[IPPool]]:
    return {record.key.name: record for record in snapshot.list(POOLS)}


def _find_same(pools: Mapping[str, Record[IPPool]], old: IPPool) -> Record[IPPool] | None:
    """The old pool as it is stored; None if it is gone, or another pool has its name."""
    stored = pools.get(old.metadata.name)
    return stored if stored is not None and stored.value.metadata.uid == old.metadata.uid else None


def _decide_disabling(old: IPPool, count: int, snapshot: Snapshot) -> Decision[bool]:
    """Disable the old pool, and note what is done with it."""
    stored = _find_same(_stored(snapshot), old)
    if stored is None:
        return Decision((), result=False)
    pool = stored.value
    _require_no_other_change(pool, count)
    mark = f"{count}/{_BEFORE[_was_disabled(pool)]}"
    if pool.spec.is_disabled and _mark(pool, SPLIT_MARK) == mark:
        return Decision((), result=False)
    annotations = tuple(sorted({**dict(pool.metadata.annotations), SPLIT_MARK: mark}.items()))
    metadata = evolve(pool.metadata, annotations=annotations)
    disabled = evolve(pool, metadata=metadata, spec=evolve(pool.spec, is_disabled=True))
    return Decision((Update(stored.key, disabled, stored.revision),), result=True)


def _decide_creation(old: IPPool, part: IPPool, snapshot: Snapshot) -> Decision[bool]:
    """Create a part beside the old pool."""
    pools = _stored(snapshot)
    _require_fit(part, old, pools)
    if part.metadata.name in pools:
        return Decision((), result=False)
    _require_begun(_find_same(pools, old), old)
    return Decision((RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)), Create(part.key, part)), result=True)


def _decide_deletion(old: IPPool, parts: tuple[IPPool, ...], snapshot: Snapshot) -> Decision[bool]:
    """Delete the record of the old pool, once all parts are there."""
    pools = _stored(snapshot)
    stored = _find_same(pools, old)
    if stored is None:
        return Decision((), result=False)
    _require_begun(stored, old)
    for part in parts:
        if part.metadata.name not in pools:
            raise SplitRefused(str(part.key), None, "it was deleted meanwhile; run the split again")
        _require_fit(part, old, pools)
    unchanged = RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL))
    return Decision((unchanged, Delete(stored.key, stored.revision)), result=True)


def _require_begun(stored: Record[IPPool] | None, old: IPPool) -> None:
    if stored is None or not stored.value.spec.is_disabled or not _mark(stored.value, SPLIT_MARK):
        raise SplitRefused(
            str(old.key), None, "it was deleted or enabled again meanwhile; look at it, and run the split again"
        )
