"""Which pools may serve a request, why each other one may not, where in a pool it begins, and what is not given.

``decide`` and ``specific`` ask before any block is looked at. Reserved addresses and those that still cool down are not
given, and the order in which the blocks of a pool are tried begins at a hash of the node's name.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.errors import ConfigurationError, NetplugError, excerpt
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Specific
from netplug_core.ipam.model import Allocation, Block
from netplug_core.ipam.outcome import (
    AddressOutside,
    AddressWrongUse,
    NoPoolQualifies,
    NoPoolServes,
    PoolOutcome,
    PoolRefused,
    PoolTrace,
    PoolUnknown,
    RecordTrace,
    UseMissing,
)
from netplug_core.records import Delete, Get, Malformed, Record, Snapshot, Update, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    AllowedUse,
    AssignmentMode,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPReservation,
)
from netplug_core.selectors import SelectorError, matches, parse

if TYPE_CHECKING:
    from netplug_core.selectors import Selector

__all__ = [
    "BlockOrder", "Choice", "Cooldown", "Pools", "Reserved", "block_order", "block_positions", "choose",
    "find_configuration", "find_pool_of_block", "find_selector_problems", "hashed_start", "is_enabled", "is_selected",
    "older_overlaps", "pool_of_address", "pool_state", "selects_some", "unread_entries",
]  # fmt: skip


# --- reservations ----------------------------------------------------------------------------------------------------


# Both families lie on one line, IPv6 behind IPv4, so that one sorted list serves a mixed set.
_FIRST_POSITION = {Family.IPV4: 0, Family.IPV6: 1 << Family.IPV4.width}


def unread_entries(reservation: Record[IPReservation]) -> tuple[RecordTrace, ...]:
    """The entries of a reservation that cannot be read; the others are reserved."""
    return tuple(
        [
            RecordTrace(
                kind=reservation.key.kind.name,
                record=f"{reservation.key} {entry}",
                problem=f"{reservation.key} spec.reservedCIDRs: {excerpt(entry)} is neither an address nor a CIDR",
                instead="it reserves nothing",
            )
            for entry in reservation.value.spec.unparsed
        ]
    )


@frozen
class Reserved:
    """A set of reserved addresses; equal when the same addresses are in it, however they were listed.

    It is kept as runs that neither touch nor overlap, in order: where each starts, the position behind its last
    address, and how many addresses the runs before it hold.
    """

    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    before: tuple[int, ...] = field(default=(), eq=False, repr=False)

    @classmethod
    def of(cls, prefixes: Iterable[Prefix]) -> Reserved:
        """The addresses of all prefixes together; they may overlap and repeat."""
        starts: list[int] = []
        ends: list[int] = []
        for start, end in sorted((_start(prefix), _end(prefix)) for prefix in prefixes):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        before, total = [], 0
        for start, end in zip(starts, ends, strict=True):
            before.append(total)
            total += end - start
        return cls(tuple(starts), tuple(ends), tuple(before))

    def contains(self, address: Address) -> bool:
        """Whether the address is reserved."""
        position = _FIRST_POSITION[address.family] + address.value
        run = bisect_right(self.starts, position)
        return run > 0 and position < self.ends[run - 1]

    def covers(self, prefix: Prefix) -> bool:
        """Whether every address of the prefix is reserved, by one entry or by several together."""
        run = bisect_right(self.starts, _start(prefix))
        return run > 0 and _end(prefix) <= self.ends[run - 1]

    def end(self, address: Address) -> int:
        """The first value of the family behind the reserved range that the address, which is reserved, lies in."""
        position = _FIRST_POSITION[address.family] + address.value
        end = self.ends[bisect_right(self.starts, position) - 1]
        return min(end - _FIRST_POSITION[address.family], 1 << address.family.width)

    def overlaps(self, prefix: Prefix) -> bool:
        """Whether some address of the prefix is reserved."""
        return self.count(prefix) > 0

    def count(self, prefix: Prefix) -> int:
        """How many addresses of the prefix are reserved."""
        return self._below(_end(prefix)) - self._below(_start(prefix))

    def count_between(self, first: Address, last: Address) -> int:
        """How many addresses of a range are reserved, its ends among them; both ends are of one family."""
        start = _FIRST_POSITION[first.family]
        return self._below(start + last.value + 1) - self._below(start + first.value)

    def _below(self, position: int) -> int:
        run = bisect_right(self.starts, position) - 1
        if run < 0:
            return 0
        return self.before[run] + min(position, self.ends[run]) - self.starts[run]


def _start(prefix: Prefix) -> int:
    return _FIRST_POSITION[prefix.family] + prefix.base


def _end(prefix: Prefix) -> int:
    return _start(prefix) + prefix.size


# --- cooldown --------------------------------------------------------------------------------------------------------


_CONFIGURATION = Get(IPAM_CONFIGURATION_KEY)
_CAUTIOUS = IPAMConfiguration(
    metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(is_affinity_strict=True, cooldown_s=1 << 31)
)
"""What counts while the settings cannot be read and were never known: nothing is borrowed, and what is released rests
(for 68 years)."""


def find_configuration(snapshot: Snapshot) -> Record[IPAMConfiguration] | None:
    """The stored configuration, which does not stop every node if it cannot be understood.

    Then it counts as it was last known, else as cautious settings.
    """
    try:
        return snapshot.find(_CONFIGURATION)
    except Malformed as error:
        known = error.counts_as
        value = known if isinstance(known, IPAMConfiguration) else _CAUTIOUS
        return Record(IPAM_CONFIGURATION_KEY, value, error.revision)


@define  # not frozen: each decision makes one, and a frozen object takes three times as long to make
class Cooldown:
    """The configured cooldown, and the time now."""

    cooldown_ns: int
    now_ns: int

    @classmethod
    def of(cls, snapshot: Snapshot, now_ns: int) -> Cooldown:
        """The cooldown of the configuration in a snapshot."""
        return cls.configured(find_configuration(snapshot), now_ns)

    @classmethod
    def configured(cls, configuration: Record[IPAMConfiguration] | None, now_ns: int) -> Cooldown:
        """The cooldown of the stored configuration; 0 where there is none."""
        cooldown_s = configuration.value.spec.cooldown_s if configuration else 0
        return cls(cooldown_s * SECOND_NS, now_ns)

    def expire(self, block: Block) -> Block:
        """The block, with those addresses free whose cooldown has expired."""
        return block.expire_cooldown(self.now_ns, self.cooldown_ns)

    def release(self, record: Record[Block], held: Iterable[Allocation]) -> Write:
        """The write that frees some held addresses of a block. Without any it only stores the block once more.

        A block without an owner is deleted with its last address. An empty block with an owner stays: its node's next
        assignment or the collector relinquishes it.
        """
        ordinals = frozenset(allocation.ordinal for allocation in held)
        cooling_from_ns = self.now_ns if self.cooldown_ns > 0 else None
        block = self.expire(record.value).release(ordinals, cooling_from_ns=cooling_from_ns)
        if block.is_empty and not block.owner:
            return Delete(record.key, record.revision)
        return Update(record.key, block, record.revision)


# --- block order -----------------------------------------------------------------------------------------------------


BlockOrder = Callable[[str, Prefix, int], int]
"""The position at which a node starts, from node name, pool and number of blocks."""


def hashed_start(node: str, pool: Prefix, count: int) -> int:
    """The position that the node's name and the pool hash to."""
    digest = hashlib.sha256(f"{node} {pool}".encode()).digest()
    return int.from_bytes(digest[:16], "big") % count


def block_order(start: int, pool: Prefix, length: int, reserved: Reserved | None = None) -> Iterator[Prefix]:
    """Every block of a pool once, from a position upwards and around, without those that are reserved as a whole."""
    return (pool.subprefix(position, length) for position in block_positions(start, pool, length, reserved))


def block_positions(start: int, pool: Prefix, length: int, reserved: Reserved | None = None) -> Iterator[int]:
    """The same as positions in the pool; a reserved range is skipped in one step, however long it is."""
    count = pool.subprefix_count(length)
    if reserved is None:
        yield from ((start + distance) % count for distance in range(count))
        return
    shift = pool.family.width - length
    distance = 0
    while distance < count:
        position = (start + distance) % count
        block = pool.subprefix(position, length)
        if not reserved.covers(block):
            yield position
            distance += 1
        else:
            behind = (reserved.end(block.first) - pool.base) >> shift
            distance += min(behind, count) - position


# --- pools -----------------------------------------------------------------------------------------------------------


Pools = tuple[Record[IPPool], ...]

_UNQUALIFIED = (PoolOutcome.WRONG_USE, PoolOutcome.TOO_SMALL)
_SELECTS_ALL = ("", "all()")


@define(kw_only=True)  # not frozen: each decision makes one, and a frozen object takes three times as long to make
class Choice:
    """The pools that may serve, in the order to try them, and the trace of each pool that was considered."""

    pools: Pools
    seen: tuple[PoolTrace, ...]


def is_enabled(pool: IPPool) -> bool:
    """Whether a pool may give addresses and blocks at all: it is not disabled, terminating or not allocatable."""
    return _enabled(pool, pool.spec.prefix.family)[0] is PoolOutcome.SERVES


def find_pool_of_block(pools: Pools, block: Prefix) -> Record[IPPool] | None:
    """The pool among some that a block belongs to: the pool covers it and has its block size; None if there is none."""
    for pool in pools:
        if pool.value.spec.prefix.covers(block) and pool.value.spec.block_length == block.length:
            return pool
    return None


def older_overlaps(pools: Pools) -> Mapping[str, str]:
    """The pools that overlap an older one (by creation time, then name), each with the name of that one."""
    if len(pools) < 2:  # noqa: PLR2004  # one pool overlaps nothing
        return {}
    entries = ((pool.value.metadata.creation_time_ns or 0, pool.key.name, pool.value.spec.prefix) for pool in pools)
    return _older_overlaps(tuple(entries))


@lru_cache(maxsize=64)  # the pools of a cluster are the same for many requests
def _older_overlaps(pools: tuple[tuple[int, str, Prefix], ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    in_order = sorted(pools, key=lambda pool: pool[:2])
    for place, (_created, name, prefix) in enumerate(in_order):
        older = next((other for _at, other, older in in_order[:place] if older.overlaps(prefix)), None)
        if older is not None:
            found[name] = older
    return found


def selects_some(pools: Pools, families: AbstractSet[Family]) -> bool:
    """Whether any pool of the families selects nodes by labels, so that those of the node have to be known."""
    for pool in pools:
        spec = pool.value.spec
        if spec.node_selector not in _SELECTS_ALL and spec.prefix.family in families:
            return True
    return False


def is_selected(pool: Record[IPPool], node_labels: Mapping[str, str]) -> bool:
    """Whether a pool selects a node with these labels.

    Raises:
        ConfigurationError: the pool's selector cannot be read.
    """
    return _matches(pool, "nodeSelector", pool.value.spec.node_selector, node_labels)


def find_selector_problems(pool: Record[IPPool]) -> tuple[ConfigurationError, ...]:
    """What is wrong with the selectors of a pool; empty if they can be read."""
    found: list[ConfigurationError] = []
    spec = pool.value.spec
    for name, text in (("nodeSelector", spec.node_selector), ("namespaceSelector", spec.namespace_selector)):
        try:
            _matches(pool, name, text, {})
        except ConfigurationError as error:
            found.append(error)
    return tuple(found)


def choose(
    pools: Pools, request: AssignRequest, wanted: Automatic, node_labels: Mapping[str, str] | None
) -> Choice | NetplugError:
    """The pools for one family of a request: the named ones in the order given, or all that may serve, by name.

    Every named pool must exist and be usable, else nothing is chosen at all. ``node_labels`` is None if the
    record of the node cannot be read: then no pool serves that selects nodes by labels. A pool whose selector cannot
    be read does not serve either, and stops no other.
    """
    if request.use is None:
        return UseMissing()
    if wanted.pools:
        return _named(pools, request, request.use, wanted)
    overlaps = older_overlaps(pools)
    serving: list[Record[IPPool]] = []
    looked: list[PoolTrace] = []
    for record in pools:
        if record.value.spec.prefix.family is not wanted.family:
            continue
        trace = _judge(record, request, request.use, node_labels)
        if record.key.name in overlaps and trace.outcome is PoolOutcome.SERVES:
            trace = evolve(trace, outcome=PoolOutcome.OVERLAPS, detail=overlaps[record.key.name])
        looked.append(trace)
        if trace.outcome is PoolOutcome.SERVES:
            serving.append(record)
    seen = tuple(looked)
    if serving:
        return Choice(pools=tuple(serving), seen=seen)

    if any(trace.outcome in _UNQUALIFIED for trace in seen):
        return NoPoolQualifies(request.use, seen)
    return NoPoolServes(wanted.family, request.node, seen)


def pool_of_address(pools: Pools, wanted: Specific, use: AllowedUse | None) -> Record[IPPool] | NetplugError:
    """The first enabled pool, by name, that an address lies in: its selectors, mode and reservations are not judged."""
    named: list[str] = []
    for entry in wanted.pools:
        found = _resolve(pools, entry, wanted.family)
        if isinstance(found, NetplugError):
            return found
        named.append(found.key.name)
    seen: list[PoolTrace] = []
    for pool in pools:
        spec = pool.value.spec
        if not spec.prefix.contains(wanted.address):
            continue
        state = pool_state(pools, pool)
        if state.outcome is not PoolOutcome.SERVES:
            seen.append(state)
        elif not named or pool.key.name in named:
            if use is not None and use not in spec.allowed_uses:
                return AddressWrongUse(wanted.address, pool.key.name, use, spec.allowed_uses)
            return pool
    return AddressOutside(wanted.address, wanted.pools, tuple(seen), _labels(pools))


def pool_state(pools: Pools, pool: Record[IPPool]) -> PoolTrace:
    """Whether one of some pools may give addresses at all, for any request: selectors, mode and use are not judged."""
    prefix = pool.value.spec.prefix
    outcome, detail = _enabled(pool.value, prefix.family)
    if outcome is PoolOutcome.SERVES and (older := older_overlaps(pools).get(pool.key.name)):
        outcome, detail = PoolOutcome.OVERLAPS, older
    return PoolTrace(pool=pool.key.name, prefix=prefix, outcome=outcome, detail=detail)


def _named(pools: Pools, request: AssignRequest, use: AllowedUse, wanted: Automatic) -> Choice | NetplugError:
    chosen: dict[str, Record[IPPool]] = {}
    seen: list[PoolTrace] = []
    for entry in wanted.pools:
        found = _resolve(pools, entry, wanted.family)
        if isinstance(found, NetplugError):
            return found
        # Naming a pool overrides its selectors and its mode, and nothing else.
        trace = _trace(found, _judge_named(found.value, request, use, wanted.family))
        older = older_overlaps(pools).get(found.key.name)
        if older is not None and trace.outcome is PoolOutcome.SERVES:
            trace = evolve(trace, outcome=PoolOutcome.OVERLAPS, detail=older)
        if trace.outcome is not PoolOutcome.SERVES:
            return NoPoolQualifies(use, (trace,)) if trace.outcome in _UNQUALIFIED else PoolRefused(entry, trace)
        chosen[found.key.name] = found
        seen.append(trace)
    return Choice(pools=tuple(chosen.values()), seen=tuple(seen))


def _resolve(pools: Pools, entry: str, family: Family) -> Record[IPPool] | NetplugError:
    """The pool that an entry names: by name, or by its exact prefix in any spelling."""
    for record in pools:
        if record.key.name == entry:
            return record
    if "/" in entry:
        try:
            prefix = Prefix.parse(entry)
        except ValueError as error:
            return ConfigurationError(f"ipv{family.value}_pools", entry, str(error))
        for record in pools:
            if record.value.spec.prefix == prefix:
                return record

    return PoolUnknown(entry, _labels(pools))


def _labels(pools: Pools) -> tuple[str, ...]:
    return tuple(f"{record.key.name} ({record.value.spec.prefix})" for record in pools)


def _judge(
    pool: Record[IPPool], request: AssignRequest, use: AllowedUse, node_labels: Mapping[str, str] | None
) -> PoolTrace:
    """Whether a pool that was not named may serve, and if not, why."""
    found = _enabled(pool.value, pool.value.spec.prefix.family)
    if found[0] is PoolOutcome.SERVES:
        found = _selected(pool, request, node_labels)
    if found[0] is PoolOutcome.SERVES:
        found = _qualified(pool.value, request, use)
    return _trace(pool, found)


def _judge_named(pool: IPPool, request: AssignRequest, use: AllowedUse, family: Family) -> tuple[PoolOutcome, str]:
    found = _enabled(pool, family)
    return _qualified(pool, request, use) if found[0] is PoolOutcome.SERVES else found


def _trace(pool: Record[IPPool], found: tuple[PoolOutcome, str]) -> PoolTrace:
    outcome, detail = found
    return PoolTrace(pool=pool.key.name, prefix=pool.value.spec.prefix, outcome=outcome, detail=detail)


def _enabled(pool: IPPool, family: Family) -> tuple[PoolOutcome, str]:
    if pool.spec.prefix.family is not family:
        return PoolOutcome.WRONG_FAMILY, ""
    if pool.spec.is_disabled:
        return PoolOutcome.DISABLED, ""
    if pool.is_terminating:
        return PoolOutcome.TERMINATING, ""
    refusal = pool.not_allocatable_condition
    if refusal is not None:
        return PoolOutcome.NOT_ALLOCATABLE, refusal.reason
    return PoolOutcome.SERVES, ""


def _selected(
    pool: Record[IPPool], request: AssignRequest, node_labels: Mapping[str, str] | None
) -> tuple[PoolOutcome, str]:
    spec = pool.value.spec
    if spec.assignment_mode is AssignmentMode.MANUAL:
        return PoolOutcome.MANUAL, ""
    try:
        is_node_selected = is_selected(pool, node_labels or {})
        if node_labels is None and spec.node_selector not in _SELECTS_ALL:
            return PoolOutcome.UNKNOWN_LABELS, spec.node_selector
        if not is_node_selected:
            return PoolOutcome.NODE_SELECTOR, spec.node_selector
        if not _matches(pool, "namespaceSelector", spec.namespace_selector, dict(request.namespace_labels)):
            return PoolOutcome.NAMESPACE_SELECTOR, spec.namespace_selector
    except ConfigurationError as error:
        return PoolOutcome.UNREADABLE_SELECTOR, str(error).removeprefix(f"{pool.key} ")
    return PoolOutcome.SERVES, ""


def _qualified(pool: IPPool, request: AssignRequest, use: AllowedUse) -> tuple[PoolOutcome, str]:
    if use not in pool.spec.allowed_uses:
        return PoolOutcome.WRONG_USE, f"allowedUses: {', '.join(use.value for use in pool.spec.allowed_uses)}"
    if sum(request.host_reserved) and sum(request.host_reserved) >= 1 << (
        pool.spec.prefix.family.width - pool.spec.block_length
    ):
        return PoolOutcome.TOO_SMALL, f"blockSize {pool.spec.block_length}"
    return PoolOutcome.SERVES, ""


def _matches(pool: Record[IPPool], field: str, text: str, labels: Mapping[str, str]) -> bool:
    if text in _SELECTS_ALL:
        return True

    return matches(_parsed(pool, field, text), labels)


def _parsed(pool: Record[IPPool], field: str, text: str) -> Selector:
    try:
        return parse(text)
    except SelectorError as error:
        raise ConfigurationError(f"{pool.key} spec.{field}", text, str(error)) from None
