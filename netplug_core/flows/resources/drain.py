"""Drains a pool: no new address is assigned from it, and when its workloads are gone, it is empty, or deleted.

``netplugctl`` calls it. Each round reads what is stored and carries out the next step of ``ipam.reporting.drain_plan``.
Nothing is kept besides the records of the datastore, so after a crash, or beside another operator, any run continues.
No address is taken from a workload: a block is released only while it is empty, and the pool is deleted only under the
revision at which it was disabled before its blocks were found to be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from attrs import define, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, LATEST_COMMIT_S, Transaction
from netplug_core.errors import ConfigurationError, ContentionExhausted, NetplugError, Unavailable, excerpt
from netplug_core.flows.ipam.affinities import delete_if_unused, relinquish
from netplug_core.flows.ipam.ranges import read_within
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.flows.resources.pools import POOLS
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.model.affinity import AFFINITY
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.reporting.drain_plan import (
    DrainedPool,
    DrainStep,
    DrainView,
    drain_view,
    drain_warnings,
    is_draining,
    marked,
    next_step,
    unmarked,
)
from netplug_core.names import MANAGED_BY
from netplug_core.records import Decision, Delete, Get, Key, Record, Revision, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import IPPool, ippool_key

__all__ = [
    "MAX_POLL_S", "POLL_S", "DrainCancelled", "DrainProgress", "Drainer", "PoolManaged", "cancel_drain", "drain",
    "plan_drain", "require_unmanaged",
]  # fmt: skip

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
