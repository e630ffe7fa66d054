"""Which pools may serve a request. ``decide`` asks; the answer carries what was said of every pool."""

from __future__ import annotations

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.request import AssignRequest, Wanted
from netplug_core.ipam.trace import NoPoolServes, PoolOutcome, PoolRefused, PoolSeen, PoolUnknown
from netplug_core.records import Record
from netplug_core.resources.ippool import AssignmentMode, IPPool

__all__ = ["Choice", "choose"]

Pools = tuple[Record[IPPool], ...]

# Naming a pool overrides these (spec 4, order of precedence), and nothing else.
_OVERRIDDEN = (PoolOutcome.MANUAL, PoolOutcome.NODE_SELECTOR, PoolOutcome.NAMESPACE_SELECTOR)
_SELECTS_ALL = ("", "all()", "global()")


@frozen(kw_only=True)
class Choice:
    """The pools that may serve, in the order to try them, and what was said of each pool that was looked at."""

    pools: Pools
    seen: tuple[PoolSeen, ...]


def choose(pools: Pools, request: AssignRequest, wanted: Wanted) -> Choice | NetplugError:
    """The pools for one family of a request: the named ones in the order given, or all that may serve, by name.

    Every named pool must exist and be usable, else nothing is chosen at all (spec 2.2).
    """
    if wanted.pools:
        return _named(pools, request, wanted)
    seen = tuple(
        _look(record, request, wanted.family) for record in pools if record.value.spec.prefix.family is wanted.family
    )
    serving = {remark.pool for remark in seen if remark.outcome is PoolOutcome.SERVES}
    if not serving:
        return NoPoolServes(wanted.family, request.node, seen)
    return Choice(pools=tuple(record for record in pools if record.key.name in serving), seen=seen)


def _named(pools: Pools, request: AssignRequest, wanted: Wanted) -> Choice | NetplugError:
    chosen: dict[str, Record[IPPool]] = {}
    seen: list[PoolSeen] = []
    for entry in wanted.pools:
        found = _resolve(pools, entry, wanted.family)
        if isinstance(found, NetplugError):
            return found
        remark = _look(found, request, wanted.family)
        if remark.outcome not in (PoolOutcome.SERVES, *_OVERRIDDEN):
            return PoolRefused(remark)
        chosen[found.key.name] = found
        seen.append(remark)
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
    return PoolUnknown(entry, tuple(f"{record.key.name} ({record.value.spec.prefix})" for record in pools))


def _look(pool: Record[IPPool], request: AssignRequest, family: Family) -> PoolSeen:
    outcome, detail = _judge(pool.value, request, family)
    return PoolSeen(pool=pool.key.name, prefix=pool.value.spec.prefix, outcome=outcome, detail=detail)


def _judge(pool: IPPool, request: AssignRequest, family: Family) -> tuple[PoolOutcome, str]:
    spec, refusal = pool.spec, pool.refusal
    uses = [use.value for use in spec.allowed_uses]
    rules = (
        (spec.prefix.family is not family, PoolOutcome.WRONG_FAMILY, str(spec.prefix)),
        (spec.is_disabled, PoolOutcome.DISABLED, ""),
        (pool.is_terminating, PoolOutcome.TERMINATING, ""),
        (refusal is not None, PoolOutcome.NOT_ALLOCATABLE, refusal.reason if refusal else ""),
        (request.use not in spec.allowed_uses, PoolOutcome.WRONG_USE, f"allowedUses: {', '.join(uses)}"),
        (spec.assignment_mode is AssignmentMode.MANUAL, PoolOutcome.MANUAL, ""),
        (spec.node_selector not in _SELECTS_ALL, PoolOutcome.NODE_SELECTOR, spec.node_selector),
        (spec.namespace_selector not in _SELECTS_ALL, PoolOutcome.NAMESPACE_SELECTOR, spec.namespace_selector),
    )
    for applies, outcome, detail in rules:
        if applies:
            return outcome, detail
    return PoolOutcome.SERVES, ""
