"""Takes a pool out of use: empties it step by step, replaces it by a successor, or splits it into equal parts.

The range and the block size of a pool cannot be changed, and pools must not overlap. So ``resize`` makes a successor
with the settings of the old pool, and the old pool is drained. Every step is one that can be repeated.

A pool that is split is disabled, its parts are created, and it is deleted; only then its range may be another pool's.
An annotation of the old pool says into how many parts it is split, and one of each part of which pool it is. So a run
that was interrupted is run again, and several runs may go on at once. The parts have the block size of the old pool, so
each block lies in one part, and keeps its owner and its addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from attrs import define, evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Atomicity, Datastore
from netplug_core.datastore.transaction import LATEST_COMMIT_S, Transaction
from netplug_core.errors import ConfigurationError, ContentionExhausted, NetplugError, Unavailable, excerpt
from netplug_core.flows.ipam.affinities import delete_if_unused, relinquish
from netplug_core.flows.ipam.service import read_within
from netplug_core.flows.resources.cluster import LockState, find_lock_state
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.outcome import Outcome, ResourceExists, ResourceMissing
from netplug_core.flows.resources.pools import POOLS
from netplug_core.flows.resources.write import apply, create
from netplug_core.installation.pools import PoolAction, PoolStep
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.model import AFFINITY, BLOCK
from netplug_core.ipam.reporting.drain_plan import (
    DRAIN_MARK,
    DrainedPool,
    DrainStep,
    DrainView,
    drain_view,
    drain_warnings,
    is_draining,
    marked,
    next_step,
    unmarked,
    was_disabled,
)
from netplug_core.names import MANAGED_BY, RESOURCE_DOMAIN
from netplug_core.records import (
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    WriteGate,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, READINESS_GATE
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL, IPPool, ippool_key
from netplug_core.resources.validation import validate_pool_overlaps, validate_resource

__all__ = [
    "MAX_POLL_S", "PART_MARK", "POLL_S", "SPLIT_MARK", "SUCCESSOR_MARK", "DrainCancelled", "DrainProgress", "Drainer",
    "PoolManaged", "ResizePlan", "ResizeRefused", "SplitPlan", "SplitRefused", "WantedSize", "WantedSplit",
    "cancel_drain", "change_pool", "create_successor", "drain", "plan_drain", "plan_resize", "plan_split",
    "require_unmanaged", "split",
]  # fmt: skip


# --- draining ---------------------------------------------------------------------------------------------------------


POLL_S, MAX_POLL_S = 5.0, 60.0
"""How long a drain that waits for workloads waits before it looks again, in seconds; the longest: nothing changes."""


class DrainCancelled(ConfigurationError):
    """A pool that was enabled again while it was drained."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)} {self.accepted}"


class PoolManaged(ConfigurationError):
    """A pool that the operator would make again, or enable."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)} {self.accepted}"


@frozen(kw_only=True)
class Drainer:
    """What a drain acts through. ``pace`` says how long one change may take, from now."""

    store: Datastore
    clock: Clock
    pace: Callable[[], Pace]


@frozen(kw_only=True)
class DrainProgress:
    """A step, and what was stored when it began. Before ``SETTLE`` it is reported, after any other.

    ``view`` is None if the pool is gone; then the step is ``DELETE``, and the drain is done. It is also None with a
    ``problem``: the step could not be carried out, and the drain waits and tries again.
    """

    step: DrainStep
    view: DrainView | None
    problem: NetplugError | None = None


def require_unmanaged(pool: IPPool) -> None:
    """Refuse a pool that the operator keeps as its Installation says.

    Raises:
        PoolManaged: it is one.
    """
    if MANAGED_BY in pool.metadata.labels:
        how = (
            "is kept by netplug-operator as ipPools of its Installation say: give it disableNewAllocations true there, "
            "beside a pool that takes its place, and leave it out when no address of it is in use"
        )
        raise PoolManaged(str(pool.key), "=".join(MANAGED_BY), how)


def plan_drain(drainer: Drainer, name: str) -> tuple[DrainView, tuple[str, ...]]:
    """What is stored of a pool, and warnings for the person who drains it.

    Raises:
        Malformed: the pool, or a record in its range, cannot be understood.
        PoolManaged: the operator would make it again, or enable it.
        ResourceMissing: there is no such pool.
        Unavailable: the datastore is locked, or does not answer.
    """
    deadline = drainer.pace().deadline
    view = _find_view(drainer, ippool_key(name), deadline)
    if view is None:
        raise ResourceMissing.of(ippool_key(name))
    require_unmanaged(view.pool.value)
    pools = drainer.store.read((POOLS,), deadline=deadline.capped(CALL_TIMEOUT_S)).readable(POOLS)
    return view, drain_warnings(view.pool.value, tuple(record.value for record in pools))


def drain(
    drainer: Drainer,
    pool: Record[IPPool],
    until: Deadline | None = None,
    outcome: DrainedPool = DrainedPool.DELETED,
) -> Iterator[DrainProgress]:
    """Drain a pool as far as possible now; with ``until``, wait for its workloads until then.

    The last progress says how far it came: the pool is gone or empty, or addresses of it are in use. A drain that
    waits also waits for a datastore that does not answer.

    Raises:
        DrainCancelled: the pool was enabled again; nothing more is done.
        Malformed: a record in its range cannot be understood, so it is not known whether addresses are in use.
        ContentionExhausted, Unavailable: not now; a later run continues.
    """
    rounds = _Rounds(drainer, pool, outcome)
    pauses = _Pauses()
    while True:
        try:
            progress = rounds.advance()
        except (ContentionExhausted, Unavailable) as error:
            if until is None or until.has_passed:
                raise
            progress = DrainProgress(step=DrainStep.WAIT, view=None, problem=error)
        if progress.step is not DrainStep.DELETE or progress.view is None:
            yield progress
        if progress.step is DrainStep.KEEP or (progress.step is DrainStep.DELETE and progress.view is None):
            return
        if progress.step is DrainStep.SETTLE:
            rounds.settle(progress)
        elif progress.step is DrainStep.WAIT:
            if until is None or until.has_passed:
                return
            drainer.clock.sleep(min(pauses.after(progress), until.remaining_s))


@define
class _Rounds:
    """The rounds of one run."""

    drainer: Drainer
    pool: Record[IPPool]
    outcome: DrainedPool
    is_begun: bool = False
    settled: Revision | None = None

    def advance(self) -> DrainProgress:
        """Read what is stored and carry out the next step, but for waiting."""
        store, pace = self.drainer.store, self.drainer.pace()
        view = _find_view(self.drainer, self.pool.key, pace.deadline)
        if view is None or view.pool.value.metadata.uid != self.pool.value.metadata.uid:
            return DrainProgress(step=DrainStep.DELETE, view=None)
        is_ordered = store.description.atomicity is Atomicity.ORDERED
        step = next_step(view, self.settled if is_ordered else view.pool.revision, self.outcome)
        # Who replaces the annotations of a disabled pool does not ask for addresses of it.
        if step is DrainStep.DISABLE and self.is_begun and not view.pool.value.spec.is_disabled:
            raise DrainCancelled(str(self.pool.key), "", "was enabled again meanwhile; it is not drained any more")
        self.is_begun = True
        _carry_out(store, step, view, pace)
        return DrainProgress(step=step, view=view)

    def settle(self, progress: DrainProgress) -> None:
        """Wait until no assignment that read the pool as enabled can be under way any more."""
        self.drainer.clock.sleep(LATEST_COMMIT_S)
        self.settled = None if progress.view is None else progress.view.pool.revision


@define
class _Pauses:
    """How long to wait before the next look: the longer, the longer nothing has changed."""

    pause_s: float = POLL_S
    last: tuple[object, ...] = ()

    def after(self, progress: DrainProgress) -> float:
        """The pause after a look, in seconds."""
        view = progress.view
        found = (None,) if view is None else (view.held, view.cooling)
        self.pause_s = min(2 * self.pause_s, MAX_POLL_S) if found == self.last else POLL_S
        self.last = found
        return self.pause_s


def _carry_out(store: Datastore, step: DrainStep, view: DrainView, pace: Pace) -> None:
    if step is DrainStep.DISABLE:
        _change(store, view.pool, _decide_mark, pace)
    elif step is DrainStep.RELEASE:
        relinquish(store, view.affinities, Emptiness.REQUIRED, pace=pace)
        delete_if_unused(store, view.ownerless, pace=pace)
    elif step is DrainStep.DELETE:
        _change(store, view.pool, _decide_deletion, pace)


def cancel_drain(drainer: Drainer, name: str) -> bool:
    """Undo the beginning of a drain: the pool is enabled again, unless it was disabled before. False: not drained.

    Raises:
        DrainCancelled: the deletion of the pool has begun.
        ResourceMissing: there is no such pool.
        ContentionExhausted, Unavailable: not now.
    """
    key = ippool_key(name)
    found: list[bool] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(key)
        if stored is None:
            return Decision((), ResourceMissing.of(key))
        if stored.value.is_terminating:
            return Decision((), DrainCancelled(str(key), "", "is being deleted; that cannot be undone"))
        before = unmarked(stored.value)
        found.append(before != stored.value)
        return Decision((Update(key, before, stored.revision),) if before != stored.value else (), None)

    Transaction(drainer.store, drainer.pace(), READINESS_GATE).run([Get(key)], decide)
    return any(found)  # after a lost reply, the last attempt finds its own write


def _change(
    store: Datastore, pool: Record[IPPool], decide: Callable[[Record[IPPool], Record[IPPool]], tuple[Write, ...]],
    pace: Pace,
) -> None:  # fmt: skip
    """Change the pool that was seen, as long as it is stored: ``decide`` gets it as seen and as stored now."""

    def change(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(pool.key)
        is_same = stored is not None and stored.value.metadata.uid == pool.value.metadata.uid
        return Decision(decide(pool, stored) if stored is not None and is_same else (), None)

    Transaction(store, pace, READINESS_GATE).run([Get(pool.key)], change)


def _decide_mark(_seen: Record[IPPool], stored: Record[IPPool]) -> tuple[Write, ...]:
    return () if is_draining(stored.value) else (Update(stored.key, marked(stored.value), stored.revision),)


def _decide_deletion(seen: Record[IPPool], stored: Record[IPPool]) -> tuple[Write, ...]:
    """Delete the pool at the revision at which its blocks were found to be gone; at another one, look again."""
    return (Delete(stored.key, stored.revision),) if stored.revision == seen.revision else ()


def _find_view(drainer: Drainer, key: Key[IPPool], deadline: Deadline) -> DrainView | None:
    """The pool first: while it has the revision read here, no address is added to the blocks that are read after it."""
    store = drainer.store
    query, configuration = Get(key), Get(IPAM_CONFIGURATION_KEY)
    snapshot = store.read((READINESS_GATE.query, query, configuration), deadline=deadline.capped(CALL_TIMEOUT_S))
    locked = READINESS_GATE.check(snapshot)
    if isinstance(locked, NetplugError):
        raise locked
    pool = snapshot.find(query)
    if pool is None:
        return None
    read = partial(read_within, store, range_=pool.value.spec.prefix, deadline=deadline)
    affinities = tuple(record.key for record in read(AFFINITY))
    blocks = (record.value for record in read(BLOCK))
    return drain_view(pool, blocks, affinities, Cooldown.of(snapshot, drainer.clock.now_ns()))


# --- one step ---------------------------------------------------------------------------------------------------------


def change_pool(
    store: Datastore, step: PoolStep, *, revision: str, pace: Pace, new_uid: Callable[[], str]
) -> Outcome:  # fmt: skip
    """Create, update or delete a pool that was read with that revision, which is empty if there was none.

    Raises:
        InvalidResource: the pool breaks a rule, alone or beside another one.
        ResourceExists: another program has made the pool since then.
        ResourceMissing, ResourceOutdated: it was deleted or changed since then.
        ContentionExhausted, Unavailable: not now.
    """
    pool = step.pool
    if step.action is PoolAction.DELETE:
        return delete(store, pool.key, revision=revision, pace=pace)
    if step.action is PoolAction.CREATE:
        return create(store, Manifest(resource=pool), pace=pace, new_uid=new_uid)
    return apply(store, Manifest(resource=pool, revision=revision), pace=pace, new_uid=new_uid)


# --- a successor ------------------------------------------------------------------------------------------------------


SUCCESSOR_MARK = f"{RESOURCE_DOMAIN}/successor-of"
"""The annotation of a successor: the name of the old pool, a slash, and its uid."""


class ResizeRefused(ConfigurationError):
    """A size that a pool cannot get."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted}"


@frozen(kw_only=True)
class WantedSize:
    """What a pool shall be replaced by; None: the same as that of the old pool."""

    successor: str
    prefix: Prefix | None = None
    block_length: int | None = None


@frozen(kw_only=True)
class ResizePlan:
    """The old pool (None if it is drained and gone) and its successor, and whether that is stored already."""

    old: Record[IPPool] | None
    successor: IPPool
    is_created: bool


def plan_resize(drainer: Drainer, name: str, wanted: WantedSize) -> ResizePlan:
    """What is left to do until a pool is replaced; nothing is written.

    Raises:
        InvalidResource: the successor breaks rules, alone or beside another pool.
        PoolManaged: the operator would delete the successor, and keep the old pool.
        ResizeRefused: the wanted size is that of the pool, or the successor would overlap it.
        ResourceExists: a pool has the successor's name, and is not the successor.
        ResourceMissing: there is no such pool.
        Unavailable: the store does not answer.
    """
    old_query, new_query = Get(ippool_key(name)), Get(ippool_key(wanted.successor))
    deadline = drainer.pace().deadline
    snapshot = drainer.store.read((old_query, new_query, POOLS), deadline=deadline.capped(CALL_TIMEOUT_S))
    old, stored = snapshot.find(old_query), snapshot.find(new_query)
    if stored is not None and name != wanted.successor and _is_successor(stored.value, name, old, wanted):
        return ResizePlan(old=old, successor=stored.value, is_created=True)
    if old is None:
        raise ResourceMissing.of(ippool_key(name))
    require_unmanaged(old.value)
    if stored is not None:
        problem = f"it is not the successor of {old.key} with that size; choose another name"
        raise ResourceExists(str(stored.key), stored.key.name, problem)
    successor = _make_successor(old.value, wanted)
    _require_new_size(old.value, successor)
    validate_resource(successor)
    validate_pool_overlaps(successor, (record.value for record in snapshot.list(POOLS)))
    return ResizePlan(old=old, successor=successor, is_created=False)


def create_successor(drainer: Drainer, plan: ResizePlan, *, new_uid: Callable[[], str]) -> Outcome:
    """Store the successor of a plan.

    Raises:
        InvalidResource: another pool overlaps it, or blocks of another size in its range are in use.
        ResourceExists: its name was taken meanwhile, perhaps by another run of the same resize: plan again.
        ContentionExhausted, Unavailable: not now.
    """
    return create(drainer.store, Manifest(resource=plan.successor), pace=drainer.pace(), new_uid=new_uid)


def _make_successor(old: IPPool, wanted: WantedSize) -> IPPool:
    metadata = Metadata(
        name=wanted.successor, labels=old.metadata.labels, annotations=((SUCCESSOR_MARK, _mark(old)),)
    )  # fmt: skip
    spec = evolve(
        old.spec,
        prefix=wanted.prefix or old.spec.prefix,
        block_length=old.spec.block_length if wanted.block_length is None else wanted.block_length,
        is_disabled=was_disabled(old),
    )
    return IPPool(metadata=metadata, spec=spec)


def _mark(old: IPPool) -> str:
    return f"{old.metadata.name}/{old.metadata.uid}"


def _is_successor(pool: IPPool, name: str, old: Record[IPPool] | None, wanted: WantedSize) -> bool:
    """Whether a stored pool is the one that an earlier run created for this size; its other settings may be changed."""
    mark = dict(pool.metadata.annotations).get(SUCCESSOR_MARK, "")
    is_of_old = mark.startswith(f"{name}/") if old is None else mark == _mark(old.value)
    has_range = wanted.prefix in (None, pool.spec.prefix)
    return is_of_old and has_range and wanted.block_length in (None, pool.spec.block_length)


def _require_new_size(old: IPPool, successor: IPPool) -> None:
    before, after, where = old.spec, successor.spec, str(old.key)
    if before.prefix.family is not after.prefix.family:
        raise ResizeRefused(where, str(after.prefix), f"{after.prefix} is of another family than {before.prefix}")
    if (before.prefix, before.block_length) == (after.prefix, after.block_length):
        raise ResizeRefused(where, str(after.prefix), "it has that CIDR and block size already")
    if after.prefix == before.prefix:
        how = f"give a CIDR that no pool has, or drain {where}, and create it again when it is gone"
        problem = f"another block size needs another pool, and two pools must not have {before.prefix}"
        raise ResizeRefused(where, str(after.prefix), f"{problem}: {how}")
    if after.prefix.covers(before.prefix):
        beside = ", ".join(map(str, _beside(before.prefix, after.prefix)))
        how = f"keep {where} and create pools for what lies beside it, {beside}; or give a CIDR apart from it"
        raise ResizeRefused(where, str(after.prefix), f"{after.prefix} contains {before.prefix}: {how}")
    if before.prefix.covers(after.prefix):
        how = f"give a CIDR apart from it, or drain {where}, and create the smaller pool when it is gone"
        raise ResizeRefused(where, str(after.prefix), f"{after.prefix} is a part of {before.prefix}: {how}")


def _beside(inner: Prefix, outer: Prefix) -> Iterator[Prefix]:
    """The prefixes that make up ``outer`` together with ``inner``, the largest first."""
    for length in range(outer.length + 1, inner.length + 1):
        around = Prefix.at(inner.first, length)
        sibling = around.base ^ (1 << (inner.family.width - length))
        yield Prefix(inner.family, sibling, length)


# --- splitting -------------------------------------------------------------------------------------------------------

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
    if _run(store, pace(), partial(_decide_end, old.value, plan.parts)):
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
        of_pool.setdefault(_annotation(record.value, PART_MARK), []).append(record.value)
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
    if _annotation(old, DRAIN_MARK):
        raise SplitRefused(str(old.key), None, "it is being drained; wait for that, or use pool drain --undo")
    begun = _annotation(old, SPLIT_MARK).partition("/")[0]
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
    own = _annotation(part, PART_MARK)
    others = (record.value for record in pools.values() if record.key != old.key)
    validate_pool_overlaps(part, (other for other in others if _annotation(other, PART_MARK) != own))


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
    is_of_same = _annotation(stored, PART_MARK) == _annotation(part, PART_MARK)
    return is_of_same and (theirs.prefix, theirs.block_length) == (ours.prefix, ours.block_length)


def _was_disabled(old: IPPool) -> bool:
    before = _annotation(old, SPLIT_MARK).rpartition("/")[2]
    return before == _BEFORE[True] if before else old.spec.is_disabled


def _annotation(pool: IPPool, name: str) -> str:
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
    if pool.spec.is_disabled and _annotation(pool, SPLIT_MARK) == mark:
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


def _decide_end(old: IPPool, parts: tuple[IPPool, ...], snapshot: Snapshot) -> Decision[bool]:
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
    if stored is None or not stored.value.spec.is_disabled or not _annotation(stored.value, SPLIT_MARK):
        raise SplitRefused(
            str(old.key), None, "it was deleted or enabled again meanwhile; look at it, and run the split again"
        )
