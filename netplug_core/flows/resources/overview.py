"""Utilization of pools and the state of one address, for ``netplugctl ipam``. Read only."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import SECOND_NS, Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.flows.ipam.addresses import find_holder
from netplug_core.flows.resources.cluster import find_ipam_configuration
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.ipam.allocation.owners import AddressHolder
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.model.block import BLOCK, cooldown_ends_ns
from netplug_core.ipam.reporting.address_map import MapPool, make_address_map
from netplug_core.ipam.reporting.utilization import PoolUsage, utilization
from netplug_core.records import List
from netplug_core.resources.ippool import IPPOOL, ippool_key
from netplug_core.resources.ipreservation import IPRESERVATION

__all__ = ["AddressState", "find_address", "read_address_map", "read_utilization"]

_POOLS = List(IPPOOL)
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
    snapshot = store.read([_POOLS, _RESERVATIONS], deadline=pace.deadline.capped(CALL_TIMEOUT_S))
    is_in_pool = any(record.value.spec.prefix.contains(address) for record in snapshot.readable(_POOLS))
    released_ns = holder.allocation.attribute.released_ns if holder.allocation else None
    cooldown_ns = configuration.cooldown_s * SECOND_NS
    return AddressState(
        holder=holder,
        is_in_no_pool=not is_in_pool and not snapshot.malformed(_POOLS),
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
    snapshot = store.read([_POOLS, _BLOCKS, _RESERVATIONS], deadline=deadline.capped(CALL_TIMEOUT_S))
    reservations = (record.value.spec.reserved for record in snapshot.list(_RESERVATIONS))
    reserved = Reserved.of(prefix for reserved in reservations for prefix in reserved)
    usages = utilization(
        (record.value for record in snapshot.list(_POOLS)),
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
