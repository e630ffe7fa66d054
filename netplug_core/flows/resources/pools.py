"""Pools beside what they hold: what creating and deleting one needs besides its record, and how full they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix, PrefixIndex
from netplug_core.clock import SECOND_NS, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Atomicity, Datastore
from netplug_core.datastore.transaction import LATEST_COMMIT_S, Transaction
from netplug_core.errors import NetplugError
from netplug_core.flows.ipam.addresses import find_holder
from netplug_core.flows.ipam.affinities import delete_unused_blocks, relinquish_pool
from netplug_core.flows.ipam.check import find_loss
from netplug_core.flows.resources.outcome import BlocksLost, DeletionCancelled, ResourceMissing, ResourceOutdated
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.allocation.release import AddressHolder
from netplug_core.ipam.model import (
    BLOCK,
    Block,
    blocks_path,
    cooldown_ends_ns,
    is_within,
    raise_if_within,
)
from netplug_core.ipam.reporting.address_map import MapPool, make_address_map
from netplug_core.ipam.reporting.usage import PoolUsage, utilization
from netplug_core.records import (
    Decision,
    Delete,
    Get,
    Key,
    List,
    Malformed,
    NeedMore,
    Query,
    Record,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPRESERVATION,
    AssignmentMode,
    IPAMConfigurationSpec,
    IPPool,
    ippool_key,
)
from netplug_core.resources.kinds import Resource
from netplug_core.resources.validation import pool_overlap, validate_pool_overlaps
from netplug_core.settings.model import KUBERNETES_DATASTORE

__all__ = [
    "POOLS", "AddressState", "PoolNeighbours", "find_address", "find_ipam_configuration", "held_warnings",
    "prepare_deletion", "read_address_map", "read_utilization", "require_disabled",
]  # fmt: skip

POOLS = List(IPPOOL)
"""What a decision about a pool reads first."""


@define(eq=False)
class PoolNeighbours:
    """The pools and the blocks beside which new pools are stored: read once for all creations of a run.

    What the run creates is added. A commit that fails, or whose outcome is not known, makes it read again: the
    condition of every creation is that no pool was created or changed by another program. Blocks are those of the
    moment when the pools were read. Another one could only be made in a pool that was there, or that this condition
    notices.

    An ordered store does not judge the condition. There, the creations that are not confirmed yet are looked at again
    together; see ``confirm``.
    """

    _pools: PrefixIndex[IPPool] | None = field(default=None, init=False)
    _damaged_pools: tuple[Malformed, ...] = field(default=(), init=False)
    _blocks: dict[Family, PrefixIndex[Prefix]] = field(factory=dict, init=False)
    _damaged_blocks: dict[Family, tuple[Malformed, ...]] = field(factory=dict, init=False)
    _families: set[Family] = field(factory=set, init=False)
    _revision: Revision = field(default=Revision(""), init=False)
    _is_committing: bool = field(default=False, init=False)
    _serving: set[Family] = field(factory=set, init=False)  # the families of pools that give addresses to pods
    _is_nothing_lost: bool = field(default=False, init=False)  # of the blocks that addresses of workloads need
    _unconfirmed: list[IPPool] = field(factory=list, init=False)
    _unconfirmed_since_s: float = field(default=0.0, init=False)

    def conditions(
        self, snapshot: Snapshot, pool: IPPool, damage: Malformed | None = None
    ) -> tuple[RequireUnchanged[IPPool], ...] | NeedMore:
        """The conditions under which a new pool is stored. Blocks that an earlier pool left are checked too.

        ``damage`` is what is wrong with the record in whose place it is stored; None if there is none.

        Raises:
            InvalidResource: another pool overlaps it, or its range has blocks of another size.
            Malformed: another pool or a block of the range cannot be understood, so it is not known whether they
                overlap.
        """
        if self._is_committing:  # this is another attempt: the first one failed
            self.forget()
        is_read_now = self._learn(snapshot, pool.spec.prefix.family)
        found = self._find(pool, damage)
        if found is None or (found.is_problem and not is_read_now):
            return NeedMore(self._queries())
        if found.damage is not None:
            raise found.damage
        validate_pool_overlaps(pool, found.pools, found.blocks)
        self._is_committing = True
        # Two overlapping pools have different keys. This condition makes the second creation decide again.
        return (RequireUnchanged(IPPOOL, self._revision),)

    def prepare(self, store: Datastore, pool: IPPool, *, pace: Pace) -> tuple[str, ...]:
        """Delete what an earlier pool left in the range of a new one and is not used.

        That are blocks without an owner and without addresses. The result are warnings about the new pool.

        Raises:
            BlocksLost: workloads have addresses of the range and there is no block, the datastore is not locked, and
                the pool gives addresses by itself.
            Malformed: a block of the range cannot be understood.
            ContentionExhausted, Unavailable: try again later.
        """
        prefix, deadline = pool.spec.prefix, pace.deadline.capped(CALL_TIMEOUT_S)
        family = prefix.family
        is_kubernetes = store.description.name == KUBERNETES_DATASTORE
        # A Manual pool gives no address by itself; one is made over what host-local gave, before that is imported.
        gives_by_itself = pool.spec.assignment_mode is not AssignmentMode.MANUAL
        if is_kubernetes and gives_by_itself and not self._is_nothing_lost:
            self._refuse_after_loss(store, pool, pace)
        if not self._knows(family):
            self._families.add(family)
            self._learn(store.read(self._queries(), deadline=deadline), family)
        raise_if_within(self._damaged_blocks[family], prefix)
        if self._blocks[family].overlapping(prefix):
            delete_unused_blocks(store, prefix, pace=pace)
            self.forget()
        return tuple(_family_warnings(pool, self._serving)) if is_kubernetes else ()

    def _refuse_after_loss(self, store: Datastore, pool: IPPool, pace: Pace) -> None:
        """Definitions of Kubernetes are deleted with everything that is stored. A locked datastore gives no address."""
        query = Get(CLUSTER_INFORMATION_KEY)
        information = store.read((query,), deadline=pace.deadline.capped(CALL_TIMEOUT_S))
        if any(record.value.is_locked for record in information.readable(query)):
            return
        self._is_nothing_lost = not find_loss(store, deadline=pace.deadline)
        if self._is_nothing_lost:
            return
        if loss := find_loss(store, within=pool.spec.prefix, deadline=pace.deadline):
            raise BlocksLost(str(pool.key), str(pool.spec.prefix), loss)

    def note_creation(self, store: Datastore, pool: IPPool, revision: Revision | None, *, pace: Pace) -> None:
        """Add a pool that is stored; ``revision`` is that of its record, None if it is not known."""
        if revision is None or self._pools is None:
            self.forget()
        else:
            self._pools.add(pool.spec.prefix, pool)
            self._note_serving([pool])
            self._revision, self._is_committing = revision, False
        if store.description.atomicity is Atomicity.ORDERED:
            if not self._unconfirmed:
                self._unconfirmed_since_s = pace.clock.monotonic()
            self._unconfirmed.append(pool)

    def forget(self) -> None:
        """Read again before the next creation."""
        self._pools, self._is_committing = None, False
        self._blocks.clear()

    @property
    def has_unconfirmed(self) -> bool:
        """Whether there are creations to confirm."""
        return bool(self._unconfirmed)

    def is_due(self, now_s: float) -> bool:
        """Whether creations wait for their confirmation for so long that no more should join them."""
        return self.has_unconfirmed and now_s - self._unconfirmed_since_s >= CALL_TIMEOUT_S

    def confirm(self, store: Datastore, *, pace: Pace) -> dict[Key[object], NetplugError]:
        """Withdraw new pools in whose range another one was created at the same time; the later of two withdraws.

        An atomic store refuses the second. An ordered store stores both, so that each looks again after its own
        creation. The later one withdraws at once. The earlier one looks again after one call's time. If the other pool
        is still there, that had ended before this one was stored, and so this one withdraws.

        The errors are those of the pools that are withdrawn, or of which that is not known.
        """
        created, self._unconfirmed = self._unconfirmed, []
        if not created:
            return {}
        refused: dict[Key[object], NetplugError] = {}
        try:
            stored = _read_pools(store, pace)
            raced = [pool for pool in created if _rivals(stored, pool)]
            earlier = [pool for pool in raced if _is_earliest(pool, stored.overlapping(pool.spec.prefix))]
            if earlier:
                later = [pool for pool in raced if pool not in earlier]
                refused = {pool.key: _withdraw(store, pool, _rivals(stored, pool), pace) for pool in later}
                pace.clock.sleep(CALL_TIMEOUT_S)
                stored = _read_pools(store, pace)
                raced = [pool for pool in earlier if _rivals(stored, pool)]
            refused.update((pool.key, _withdraw(store, pool, _rivals(stored, pool), pace)) for pool in raced)
        except NetplugError as error:
            refused = {**dict.fromkeys((pool.key for pool in created), error), **refused}
        if refused:
            self.forget()
        return refused

    def require_confirmed(self, store: Datastore, *, pace: Pace) -> None:
        """Confirm the creation of a pool that is the only one.

        Raises:
            InvalidResource: another pool was created in its range at the same time, and it is deleted.
            ContentionExhausted, Unavailable: try again later.
        """
        for error in self.confirm(store, pace=pace).values():
            raise error

    def settle(self) -> None:
        """Note that nothing is committed under the conditions that were asked for."""
        self._is_committing = False

    def _note_serving(self, pools: Iterable[IPPool]) -> None:
        self._serving.update(pool.spec.prefix.family for pool in pools if pool.spec.serves_workloads)

    def _queries(self) -> tuple[Query, ...]:
        families = sorted(self._families)
        return (POOLS, *(List(BLOCK, blocks_path(family)) for family in families))

    def _knows(self, family: Family) -> bool:
        return self._pools is not None and family in self._blocks

    def _learn(self, snapshot: Snapshot, family: Family) -> bool:
        """Take what was read; whether the snapshot has all that is needed."""
        self._families.add(family)
        if not all(query in snapshot.results for query in self._queries()):
            return False
        self._pools = PrefixIndex.of((record.value.spec.prefix, record.value) for record in snapshot.readable(POOLS))
        self._serving.clear()
        self._note_serving(record.value for record in snapshot.readable(POOLS))
        self._damaged_pools = snapshot.malformed(POOLS)
        self._revision = snapshot.revision(IPPOOL)
        for each in self._families:
            query = List(BLOCK, blocks_path(each))
            prefixes = (record.value.prefix for record in snapshot.readable(query))
            self._blocks[each] = PrefixIndex.of((prefix, prefix) for prefix in prefixes)
            self._damaged_blocks[each] = snapshot.malformed(query)
        return True

    def _find(self, pool: IPPool, damage: Malformed | None) -> _Found | None:
        """What may keep a pool from being stored; None if the neighbours are not known."""
        prefix = pool.spec.prefix
        if self._pools is None or not self._knows(prefix.family):
            return None
        # Errors are compared by their texts: each read makes new ones.
        others = (other for other in self._damaged_pools if damage is None or str(other) != str(damage))
        blocks = self._damaged_blocks[prefix.family]
        within = (error for error in blocks if error.subject is None or is_within(error.subject, prefix))
        pools = [other for other in self._pools.overlapping(prefix) if other.key != pool.key]
        return _Found(
            pools=tuple(sorted(pools, key=lambda other: other.metadata.name)),
            blocks=tuple(
                block
                for block in self._blocks[prefix.family].overlapping(prefix)
                if block.length != pool.spec.block_length
            ),
            damage=next(chain(others, within), None),
        )


def _family_warnings(pool: IPPool, families: AbstractSet[Family]) -> Iterator[str]:
    """What a first pool of a second family does to a cluster whose nodes are installed by pools.

    ``families`` are those of the other pools.
    """
    family = pool.spec.prefix.family
    if families and family not in families and pool.spec.serves_workloads:
        yield (
            f"{pool.key}: the first pool of {family}: with an Installation, new pods get an address of {family} too "
            "from now on, and the pods of netplug-node are replaced on every node"
        )


@frozen(kw_only=True)
class _Found:
    """What of the neighbours concerns a new pool."""

    pools: tuple[IPPool, ...]
    blocks: tuple[Prefix, ...]
    damage: Malformed | None

    @property
    def is_problem(self) -> bool:
        """Whether the pool is refused, if all of that is still there."""
        return bool(self.pools or self.blocks or self.damage)


def _read_pools(store: Datastore, pace: Pace) -> PrefixIndex[IPPool]:
    """The stored pools, with the creation times that the store gave them."""
    stored = store.read((POOLS,), deadline=pace.deadline.capped(CALL_TIMEOUT_S)).list(POOLS)
    return PrefixIndex.of((record.value.spec.prefix, record.value) for record in stored)


def _rivals(stored: PrefixIndex[IPPool], pool: IPPool) -> list[IPPool]:
    """The other stored pools that overlap a pool."""
    return [other for other in stored.overlapping(pool.spec.prefix) if other.key != pool.key]


def _withdraw(store: Datastore, pool: IPPool, rivals: Iterable[IPPool], pace: Pace) -> NetplugError:
    """Delete a new pool; the error that says why, or that it could not be deleted."""
    try:
        Transaction(store, pace).run([Get(pool.key)], partial(_decide_withdrawal, pool))
    except NetplugError as error:
        return error
    return pool_overlap(pool, rivals)


def _is_earliest(pool: IPPool, pools: Iterable[IPPool]) -> bool:
    return min(pools, key=_age).key == pool.key


def _age(pool: IPPool) -> tuple[int, str]:
    """What orders pools by their creation."""
    return (pool.metadata.creation_time_ns or 0, pool.metadata.name)


def _decide_withdrawal(pool: IPPool, snapshot: Snapshot) -> Decision[None]:
    stored = snapshot.find(pool.key)
    is_ours = stored is not None and stored.value.spec.prefix == pool.spec.prefix
    return Decision((Delete(stored.key, stored.revision),) if stored is not None and is_ours else (), None)


def prepare_deletion(store: Datastore, pool: Record[IPPool], *, revision: str, pace: Pace) -> None:
    """Disable a pool, wait until no assignment can use it any more, and relinquish its blocks.

    ``revision`` is the resource version that the pool must have; empty for any. Blocks in use remain without an owner
    until their last address is released. Blocks that are not used are deleted.

    Raises:
        DeletionCancelled: the pool was enabled again meanwhile.
        ResourceOutdated: the pool has another resource version.
        ContentionExhausted, Unavailable: try again later; the next call continues where this one stopped.
    """
    if not _disable(store, pool, revision, pace):
        return
    prefix = pool.value.spec.prefix
    # An atomic store refuses every assignment that read the pool as enabled. An ordered store does not.
    if store.description.atomicity is Atomicity.ORDERED:
        pace.clock.sleep(min(LATEST_COMMIT_S, pace.deadline.remaining_s))
    # Looked at again after the last commit: while it ran, an unfinished request may have claimed another block.
    while relinquish_pool(store, prefix, Emptiness.NOT_REQUIRED, pace=pace).relinquished:
        require_disabled(store.read((Get(pool.key),), deadline=pace.deadline.capped(CALL_TIMEOUT_S)).find(pool.key))
    delete_unused_blocks(store, prefix, pace=pace)


def require_disabled(stored: Record[IPPool] | Record[Resource] | None) -> None:
    """Refuse to go on with the deletion of a pool that was enabled again; any other resource may be deleted.

    Raises:
        DeletionCancelled: the pool is enabled.
    """
    if stored is not None and isinstance(stored.value, IPPool) and not stored.value.spec.is_disabled:
        raise DeletionCancelled(str(stored.key), "", "was enabled again meanwhile; it is not deleted")


def _disable(store: Datastore, pool: Record[IPPool], revision: str, pace: Pace) -> bool:
    """Disable the pool; False if it was deleted, or replaced by another pool of the same name."""

    def decide(snapshot: Snapshot) -> Decision[bool]:
        stored = snapshot.find(pool.key)
        if stored is None or stored.value.metadata.uid != pool.value.metadata.uid:
            return Decision((), result=False)
        if revision and revision != stored.revision:
            return Decision((), ResourceOutdated(str(pool.key), revision, stored.revision))
        if stored.value.spec.is_disabled:
            return Decision((), result=True)
        disabled = evolve(stored.value, spec=evolve(stored.value.spec, is_disabled=True))
        # With a revision, a repetition after a lost reply would find the revision of its own write and refuse.
        return Decision((Update(pool.key, disabled, stored.revision),), result=True, is_repeatable=not revision)

    return Transaction(store, pace).run([Get(pool.key)], decide).result is True


def held_warnings(store: Datastore, pool: IPPool, *, deadline: Deadline) -> tuple[str, ...]:
    """Warnings for the person who deletes a pool: how many of its addresses are held.

    Raises:
        Malformed: a block of the pool cannot be understood.
        Unavailable: the store does not answer.
    """
    query = _blocks_of_family(pool)
    snapshot = store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S))
    raise_if_within(snapshot.malformed(query), pool.spec.prefix)
    usage = utilization([pool], (record.value for record in snapshot.readable(query)))[0]
    held = usage.in_use - usage.cooling
    if not held:
        return ()
    return (f"{pool.key}: addresses of it that are still held: {held}; their workloads keep them",)


def _blocks_of_family(pool: IPPool) -> List[Block]:
    return List(BLOCK, blocks_path(pool.spec.prefix.family))


# --- an overview ------------------------------------------------------------------------------------------------------


_BLOCKS = List(BLOCK)
_RESERVATIONS = List(IPRESERVATION)


@frozen(kw_only=True)
class AddressState:
    """What is stored about one address.

    ``is_in_no_pool`` is False also if a pool that cannot be read may contain it. ``reserved_by`` names the reservations
    that contain it. ``cooldown_ends_ns`` is when a released address can be
    assigned again; None if it is not cooling down.
    """

    holder: AddressHolder
    is_in_no_pool: bool = False
    reserved_by: tuple[str, ...] = ()
    cooldown_ends_ns: int | None = None


def find_ipam_configuration(store: Datastore, *, deadline: Deadline) -> IPAMConfigurationSpec:
    """The IPAM configuration; the defaults if none is stored. Nothing is written.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(IPAM_CONFIGURATION_KEY)], deadline=deadline.capped(CALL_TIMEOUT_S))
    stored = snapshot.find(IPAM_CONFIGURATION_KEY)
    return stored.value.spec if stored else IPAMConfigurationSpec()


def read_utilization(store: Datastore, selected: Sequence[str] = (), *, deadline: Deadline) -> tuple[PoolUsage, ...]:
    """The utilization of all pools and their blocks; with ``selected``, only of pools with these names or CIDRs.

    Raises:
        ResourceMissing: no pool has that name or CIDR.
        Unavailable: the store does not answer.
    """
    usages, _reserved = _read_usages(store, selected, deadline)
    return usages


def read_address_map(
    store: Datastore, selected: Sequence[str] = (), *, max_rows: int, deadline: Deadline
) -> tuple[MapPool, ...]:
    """The map of the same pools; at most ``max_rows`` rows of a pool have blocks.

    Raises:
        ResourceMissing: no pool has that name or CIDR.
        Unavailable: the store does not answer.
    """
    usages, reserved = _read_usages(store, selected, deadline)
    return make_address_map(usages, reserved, max_rows=max_rows)


def find_address(store: Datastore, address: Address, *, pace: Pace) -> AddressState:
    """What is stored about an address, also about one in no pool.

    Raises:
        Unavailable: the store does not answer.
    """
    holder = find_holder(store, address, pace=pace)
    configuration = find_ipam_configuration(store, deadline=pace.deadline)
    snapshot = store.read([POOLS, _RESERVATIONS], deadline=pace.deadline.capped(CALL_TIMEOUT_S))
    is_in_pool = any(record.value.spec.prefix.contains(address) for record in snapshot.readable(POOLS))
    released_ns = holder.allocation.attribute.released_ns if holder.allocation else None
    cooldown_ns = configuration.cooldown_s * SECOND_NS
    return AddressState(
        holder=holder,
        is_in_no_pool=not is_in_pool and not snapshot.malformed(POOLS),
        reserved_by=tuple(
            record.key.name
            for record in snapshot.list(_RESERVATIONS)
            if any(prefix.contains(address) for prefix in record.value.spec.reserved)
        ),
        cooldown_ends_ns=None if released_ns is None else cooldown_ends_ns(released_ns, cooldown_ns),
    )


def _read_usages(
    store: Datastore, selected: Sequence[str], deadline: Deadline
) -> tuple[tuple[PoolUsage, ...], Reserved]:
    snapshot = store.read([POOLS, _BLOCKS, _RESERVATIONS], deadline=deadline.capped(CALL_TIMEOUT_S))
    reservations = (record.value.spec.reserved for record in snapshot.list(_RESERVATIONS))
    reserved = Reserved.of(prefix for reserved in reservations for prefix in reserved)
    usages = utilization(
        (record.value for record in snapshot.list(POOLS)),
        (record.value for record in snapshot.list(_BLOCKS)),
        reserved,
    )
    return tuple(_select(usages, word) for word in selected) if selected else usages, reserved


def _select(usages: Sequence[PoolUsage], word: str) -> PoolUsage:
    pools = [usage for usage in usages if usage.pool is not None]
    for usage in pools:
        if usage.name == word:
            return usage
    try:
        prefix = Prefix.enclosing(word)
    except ValueError:
        raise ResourceMissing.of(ippool_key(word)) from None
    for usage in pools:
        if usage.prefix == prefix:
            return usage
    raise ResourceMissing.of(ippool_key(word))
