"""Why an address has its holder, and what a request would get, for ``ipam explain``: from the real decisions."""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.context import CONFIGURATION, POOLS, RESERVATIONS
from netplug_core.ipam.allocation.decide import decide, queries
from netplug_core.ipam.allocation.pools import BlockOrder, Cooldown, find_configuration, pool_state
from netplug_core.ipam.allocation.request import AssignRequest
from netplug_core.ipam.model import (
    BLOCK,
    RESERVED_HANDLE,
    AffinityState,
    Allocation,
    Block,
    affinity_key,
    block_query,
    blocks_path,
    cooldown_ends_ns,
    handle_query,
)
from netplug_core.ipam.outcome import AllocationRule, PoolTrace, RuleTrace
from netplug_core.ipam.reporting.check import RestoreAffinity, RestoreHandle
from netplug_core.records import Get, List, Malformed, NeedMore, Query, Record, Snapshot, TraceEntry
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.ippool import IPAMConfigurationSpec

__all__ = [
    "AddressExplanation", "AddressStatus", "RequestExplanation", "address_queries", "explain_address",
    "explain_request", "request_queries",
]  # fmt: skip


# --- of an address ----------------------------------------------------------------------------------------------------


_DEFAULTS = IPAMConfigurationSpec()


class AddressStatus(enum.Enum):
    """What is true of an address; the value is what follows "is"."""

    IN_USE = "in use"
    COOLING = "cooling down"
    HOST_RESERVED = "reserved by the host of its block"
    FREE = "not assigned"
    UNKNOWN = "in a block that cannot be read"


@frozen(kw_only=True)
class AddressExplanation:
    """What is stored about an address, and what it means.

    ``allocation`` is None for an address that is free, or whose block cannot be read. ``available_ns`` is when an
    address that is cooling down can be assigned again. ``pools`` are those that contain it, by name, each with its
    state. ``affinity`` is the state of the owner's affinity to the block; None without one. ``reserved_by`` names the
    reservations that contain it. ``rules`` are the settings that limit who may get it while it is free. ``problems``
    are damaged and missing records, as sentences.
    """

    address: Address
    status: AddressStatus
    allocation: Allocation | None = None
    available_ns: int | None = None
    block: Block | None = None
    affinity: AffinityState | None = None
    pools: tuple[PoolTrace, ...] = ()
    reserved_by: tuple[str, ...] = ()
    rules: tuple[RuleTrace, ...] = ()
    problems: tuple[str, ...] = ()


def address_queries() -> tuple[Query, ...]:
    """What to read before ``explain_address``."""
    return (POOLS, RESERVATIONS, CONFIGURATION)


def explain_address(snapshot: Snapshot, address: Address, now_ns: int) -> AddressExplanation | NeedMore:
    """What is known of an address, in any pool and in blocks outside all pools; or what else to read."""
    found = _find_block(snapshot, address)
    if isinstance(found, NeedMore):
        return found
    cooldown = Cooldown.of(snapshot, now_ns)
    block = cooldown.expire(found.value) if found else None
    allocation = block.find(address) if block else None
    needed = _linked_queries(block, allocation)
    if unread := tuple(query for query in needed if not snapshot.has(query)):
        return NeedMore(unread)
    released_ns = allocation.attribute.released_ns if allocation else None
    pools = snapshot.readable(POOLS)
    damaged = [error for result in snapshot.results.values() for error in result.malformed if _may_hold(error, address)]
    is_unknown = block is None and any(error.subject is not None and error.subject.kind == BLOCK for error in damaged)
    return AddressExplanation(
        address=address,
        status=AddressStatus.UNKNOWN if is_unknown else _status(allocation),
        allocation=allocation,
        available_ns=None if released_ns is None else cooldown_ends_ns(released_ns, cooldown.cooldown_ns),
        block=block,
        affinity=_affinity_state(snapshot, block),
        pools=tuple(pool_state(pools, pool) for pool in pools if pool.value.spec.prefix.contains(address)),
        reserved_by=tuple(
            record.key.name
            for record in snapshot.readable(RESERVATIONS)
            if any(prefix.contains(address) for prefix in record.value.spec.reserved)
        ),
        rules=() if allocation or is_unknown else _rules(snapshot, block),
        problems=(*map(str, damaged), *_missing(snapshot, block, allocation)),
    )


def _find_block(snapshot: Snapshot, address: Address) -> Record[Block] | NeedMore | None:
    """The block of an address; None if none is stored, or if it cannot be read."""
    specs = [record.value.spec for record in snapshot.readable(POOLS)]
    lengths = {spec.block_length for spec in specs if spec.prefix.contains(address)}
    possible = [block_query(Prefix.at(address, length)) for length in sorted(lengths)]
    if unread := tuple(query for query in possible if not snapshot.has(query)):
        return NeedMore(unread)
    for query in possible:
        if records := snapshot.readable(query):
            return records[0]
        if snapshot.malformed(query):
            return None
    everything = List(BLOCK, blocks_path(address.family))
    if not snapshot.has(everything):
        return NeedMore((everything,))
    return next((record for record in snapshot.readable(everything) if record.value.prefix.contains(address)), None)


def _linked_queries(block: Block | None, allocation: Allocation | None) -> tuple[Query, ...]:
    """The affinity of the block's owner, and the handle that holds the address."""
    affinity = (Get(affinity_key(block.owner, block.prefix)),) if block and block.owner else ()
    handle = _workload_handle(allocation)
    return (*affinity, handle_query(handle)) if handle else affinity


def _workload_handle(allocation: Allocation | None) -> str | None:
    handle = allocation.attribute.handle if allocation else None
    return None if handle == RESERVED_HANDLE else handle


def _status(allocation: Allocation | None) -> AddressStatus:
    if allocation is None:
        return AddressStatus.FREE
    if allocation.is_cooling:
        return AddressStatus.COOLING
    is_host_reserved = allocation.attribute.handle == RESERVED_HANDLE
    return AddressStatus.HOST_RESERVED if is_host_reserved else AddressStatus.IN_USE


def _affinity_state(snapshot: Snapshot, block: Block | None) -> AffinityState | None:
    if block is None or not block.owner:
        return None
    records = snapshot.readable(Get(affinity_key(block.owner, block.prefix)))
    return records[0].value.state if records else None


def _rules(snapshot: Snapshot, block: Block | None) -> tuple[RuleTrace, ...]:
    """The settings that keep nodes from a free address: others than the owner of its block, or all without a block."""
    configuration = find_configuration(snapshot)
    settings = configuration.value.spec if configuration else _DEFAULTS
    if block is not None and block.owner and settings.is_affinity_strict:
        return (RuleTrace(rule=AllocationRule.STRICT_AFFINITY),)
    if block is None and not settings.may_auto_allocate_blocks:
        return (RuleTrace(rule=AllocationRule.NO_CLAIMS),)
    return ()


def _missing(snapshot: Snapshot, block: Block | None, allocation: Allocation | None) -> tuple[str, ...]:
    """What ``ipam check`` would restore: the block says so, and no record leads to it."""
    if block is None:
        return ()
    found: list[str] = []
    handle = _workload_handle(allocation)
    if handle and not snapshot.readable(handle_query(handle)):
        found.append(f"ipam check --fix would {RestoreHandle(key=handle_query(handle).key, blocks=(block.key,))}")
    if block.owner and _affinity_state(snapshot, block) is None and not block.is_empty:
        key = affinity_key(block.owner, block.prefix)
        found.append(f"ipam check --fix would {RestoreAffinity(key=key, block=block.key)}")
    return tuple(found)


def _may_hold(error: Malformed, address: Address) -> bool:
    """Whether a damaged record may concern an address: any but a block of other addresses."""
    if error.subject is None or error.subject.kind != BLOCK:
        return True
    try:
        return Prefix.parse(error.subject.name).contains(address)
    except ValueError:
        return True


# --- of a request -----------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class RequestExplanation:
    """The decision about a request: the addresses it would get, or the refusal, and what was considered."""

    request: AssignRequest
    addresses: tuple[Address, ...] = ()
    refusal: NetplugError | None = None
    trace: tuple[TraceEntry, ...] = ()


def request_queries(request: AssignRequest) -> tuple[Query, ...]:
    """What to read before ``explain_request``."""
    return (READINESS_GATE.query, *queries(request))


def explain_request(
    snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder
) -> RequestExplanation | NeedMore:
    """The decision that an assignment would make of this snapshot; or what else to read.

    A locked datastore and a damaged record refuse it as they refuse an ADD.
    """
    closed = READINESS_GATE.check(snapshot)
    if isinstance(closed, NetplugError):
        return RequestExplanation(request=request, refusal=closed)
    try:
        decision = decide(snapshot, request, now_ns, order)
    except Malformed as error:
        return RequestExplanation(request=request, refusal=error)
    if isinstance(decision, NeedMore):
        return decision
    if isinstance(decision.result, NetplugError):
        return RequestExplanation(request=request, refusal=decision.result, trace=decision.trace)
    addresses = tuple(assigned.address for assigned in decision.result.addresses)
    return RequestExplanation(request=request, addresses=addresses, trace=decision.trace)
