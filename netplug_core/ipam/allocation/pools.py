"""Which pools may serve a request, and why each other pool may not.

``decide`` and ``specific`` ask before any block is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import TYPE_CHECKING

from attrs import define, evolve

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Specific
from netplug_core.ipam.outcome.trace import PoolOutcome, PoolTrace
from netplug_core.records import Record
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool

if TYPE_CHECKING:
    from netplug_core.selectors.grammar import Selector

__all__ = [
    "Choice", "Pools", "choose", "find_pool_of_block", "find_selector_problems", "is_enabled", "is_selected",
    "older_overlaps", "pool_of_address", "pool_state", "selects_some",
]  # fmt: skip

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
    for field, text in (("nodeSelector", spec.node_selector), ("namespaceSelector", spec.namespace_selector)):
        try:
            _matches(pool, field, text, {})
        except ConfigurationError as error:
            found.append(error)
    return tuple(found)


def choose(
    pools: Pools, request: AssignRequest, wanted: Automatic, node_labels: Mapping[str, str] | None
) -> Choice | NetplugError:
    """The pools for one family of a request: the named ones in the order given, or all that may serve, by name.

    Every named pool must exist and be usable, else nothing is chosen at all (spec 2.2). ``node_labels`` is None if the
    record of the node cannot be read: then no pool serves that selects nodes by labels. A pool whose selector cannot
    be read does not serve either, and stops no other.
    """
    if request.use is None:
        from netplug_core.ipam.outcome.refusals import UseMissing

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
    from netplug_core.ipam.outcome.refusals import NoPoolQualifies, NoPoolServes

    if any(trace.outcome in _UNQUALIFIED for trace in seen):
        return NoPoolQualifies(request.use, seen)
    return NoPoolServes(wanted.family, request.node, seen)


def pool_of_address(pools: Pools, wanted: Specific, use: AllowedUse | None) -> Record[IPPool] | NetplugError:
    """The first enabled pool, by name, that an address lies in: its selectors, mode and reservations are not judged."""
    from netplug_core.ipam.outcome.refusals import AddressOutside, AddressWrongUse

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
        # Naming a pool overrides its selectors and its mode (spec 4, order of precedence), and nothing else.
        trace = _trace(found, _judge_named(found.value, request, use, wanted.family))
        older = older_overlaps(pools).get(found.key.name)
        if older is not None and trace.outcome is PoolOutcome.SERVES:
            trace = evolve(trace, outcome=PoolOutcome.OVERLAPS, detail=older)
        if trace.outcome is not PoolOutcome.SERVES:
            from netplug_core.ipam.outcome.refusals import NoPoolQualifies, PoolRefused

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
    from netplug_core.ipam.outcome.refusals import PoolUnknown

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
    from netplug_core.selectors.evaluation import matches

    return matches(_parsed(pool, field, text), labels)


def _parsed(pool: Record[IPPool], field: str, text: str) -> Selector:
    from netplug_core.selectors.grammar import SelectorError, parse

    try:
        return parse(text)
    except SelectorError as error:
        raise ConfigurationError(f"{pool.key} spec.{field}", text, str(error)) from None
