"""How many addresses a request must get, counted address by address from the stored state.

The oracle is slow and independent of the allocator: it repeats the rules of pools, cooldown and takeover on purpose,
and knows neither the order of blocks nor probes. It gives a lowest and a highest number. They differ where time passes
while a request is decided, and where an empty block may be taken over or only borrowed from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.allocation.request import AssignRequest, LinkLayer, Shortfall, Specific, Wanted
from netplug_core.ipam.model import RESERVED_HANDLE, Allocation, Block
from netplug_core.resources.ippool import IPPool
from tests.harness.allocator.oracle_pools import PoolRefusal, block_limits, eligible_pools, pool_of_address
from tests.harness.allocator.state import ClusterConfiguration, StoredState

__all__ = ["DEFAULT_BLOCK_LIMIT", "FamilyForecast", "Forecast", "forecast", "is_free"]

_SECOND_NS = 1_000_000_000
_TAKEOVER_AGE_NS = 60 * _SECOND_NS
DEFAULT_BLOCK_LIMIT = 20
"""The limit of a node's blocks of a family where none is configured."""

_MAX_EMPTY_BLOCKS_TRIED = 8  # empty blocks of others that one request tries


@frozen(kw_only=True)
class FamilyForecast:
    """What one family of a request gets: ``already_held`` addresses, and from ``min_new`` to ``max_new`` new ones.

    ``refusal`` is the reason why no pool serves the request. A shortfall is soft if a setting causes it and not a lack
    of addresses: certainly with ``is_soft_shortfall``, possibly with ``may_be_soft_shortfall``.
    """

    total: int
    already_held: int = 0
    min_new: int = 0
    max_new: int = 0
    refusal: PoolRefusal | None = None
    is_soft_shortfall: bool = False
    may_be_soft_shortfall: bool = False

    @property
    def may_fall_short(self) -> bool:
        """Whether the family may get fewer addresses than requested."""
        return self.refusal is not None or self.already_held + self.min_new < self.total

    @property
    def must_fall_short(self) -> bool:
        """Whether the family cannot get as many addresses as requested."""
        return self.refusal is not None or self.already_held + self.max_new < self.total

    def allows(self, count: int) -> bool:
        """Whether this number of addresses is a correct answer."""
        return (
            min(self.total, self.already_held + self.min_new)
            <= count
            <= min(self.total, self.already_held + self.max_new)
        )


@frozen(kw_only=True)
class Forecast:
    """The correct answers to a request, with a forecast for each of its families."""

    shortfall: Shortfall
    families: tuple[FamilyForecast, ...]

    @property
    def may_be_refused(self) -> bool:
        """Whether a refusal can be correct."""
        if self.shortfall is Shortfall.REFUSE:
            return any(share.may_fall_short for share in self.families)
        if any(share.refusal is PoolRefusal.HARD for share in self.families):
            return True
        has_some = any(share.already_held or share.min_new for share in self.families)
        is_soft = any(
            share.refusal or (share.may_be_soft_shortfall and share.may_fall_short) for share in self.families
        )
        return is_soft and not has_some

    @property
    def may_be_served(self) -> bool:
        """Whether an assignment, possibly an empty one, can be correct."""
        if self.shortfall is Shortfall.REFUSE:
            return not any(share.must_fall_short for share in self.families)
        if any(share.refusal is PoolRefusal.HARD for share in self.families):
            return False
        has_some = any(share.already_held or share.max_new for share in self.families)
        is_soft = any(share.refusal or (share.is_soft_shortfall and share.must_fall_short) for share in self.families)
        return has_some or not is_soft


def forecast(state: StoredState, request: AssignRequest, since_ns: int, until_ns: int) -> Forecast:
    """The forecast for a request that is decided on this state, at a time between the two."""
    shares = (_forecast_family(state, request, wanted, (since_ns, until_ns)) for wanted in request.wanted)
    return Forecast(shortfall=request.shortfall, families=tuple(shares))


# --- addresses --------------------------------------------------------------------------------------------------------


def _forecast_family(
    state: StoredState, request: AssignRequest, wanted: Wanted, times: tuple[int, int]
) -> FamilyForecast:
    held = {address for address in state.held_by(request.handle) if address.family is wanted.family}
    kept = held if request.handle is not None else set[Address]()
    if isinstance(wanted, Specific):
        return _forecast_specific(state, request, wanted, kept, times)
    total = wanted.count if request.max_per_handle is None else min(wanted.count, request.max_per_handle)
    if len(kept) >= total:
        return FamilyForecast(total=total, already_held=total)
    pools = eligible_pools(state.configuration, request, wanted)
    if isinstance(pools, PoolRefusal):
        return FamilyForecast(total=total, already_held=len(kept), refusal=pools)
    may_claim = len(state.owned_blocks(request.claimant, wanted.family)) + total - len(kept) <= DEFAULT_BLOCK_LIMIT
    # With a limit the order of blocks decides which are used: only the claimant's own ones are certain.
    is_limited = bool(block_limits(state.configuration, request)) or not may_claim
    capacities = [_capacity(state, request, pool, now_ns, is_limited=is_limited) for pool in pools for now_ns in times]
    lows, highs = capacities[::2], capacities[1::2]
    settings = state.configuration.settings
    return FamilyForecast(
        total=total,
        already_held=len(kept),
        min_new=sum(capacity.min_count for capacity in lows),
        max_new=sum(capacity.max_count for capacity in highs),
        is_soft_shortfall=not settings.may_auto_allocate_blocks,
        may_be_soft_shortfall=bool(block_limits(state.configuration, request)) or not settings.may_auto_allocate_blocks,
    )


def _forecast_specific(
    state: StoredState, request: AssignRequest, wanted: Specific, kept: Collection[Address], times: tuple[int, int]
) -> FamilyForecast:
    if wanted.address in kept:
        return FamilyForecast(total=1, already_held=1)
    is_full = request.max_per_handle is not None and len(kept) >= request.max_per_handle
    chances = {not is_full and _may_assign_specific(state, request, wanted, now_ns) for now_ns in times}
    if chances == {False}:
        return FamilyForecast(total=1, refusal=PoolRefusal.HARD)
    return FamilyForecast(total=1, min_new=int(chances == {True}), max_new=1)


@frozen
class _Capacity:
    min_count: int
    max_count: int


def _capacity(state: StoredState, request: AssignRequest, pool: IPPool, now_ns: int, *, is_limited: bool) -> _Capacity:
    """How many addresses of a pool a request can get at a given time."""
    spec, settings = pool.spec, state.configuration.settings
    low = high = 0
    for index in range(spec.prefix.subprefix_count(spec.block_length)):
        prefix = spec.prefix.subprefix(index, spec.block_length)
        block = state.blocks.get(prefix)
        assignable = _count_assignable(state, request, pool, prefix, now_ns)
        if prefix in state.damaged_blocks:
            high += assignable
        elif block is not None and block.owner == request.claimant:
            low, high = low + assignable, high + assignable
        elif not settings.may_auto_allocate_blocks:
            continue
        elif block is None or not block.owner:
            low, high = low + (0 if is_limited else assignable), high + assignable
        else:
            after_takeover = _count_after_takeover(state, request, pool, block, now_ns)
            borrowable = 0 if settings.is_affinity_strict else assignable
            # An empty block is taken over or borrowed from, depending on the other blocks.
            options = (borrowable,) if after_takeover is None else (borrowable, after_takeover)
            if (
                after_takeover is not None
                and settings.is_affinity_strict
                and len(state.blocks) <= _MAX_EMPTY_BLOCKS_TRIED
            ):
                options = (after_takeover,)
            low, high = low + (0 if is_limited else min(options)), high + max(options)
    return _Capacity(low, high)


def _count_assignable(state: StoredState, request: AssignRequest, pool: IPPool, prefix: Prefix, now_ns: int) -> int:
    """The number of assignable addresses of a block; of a new one, those that are not host-reserved."""
    block = state.blocks.get(prefix)
    if block is None and _is_overlapped(state, prefix):
        free: Iterable[int] = ()
    elif block is None:
        first, last = request.host_reserved
        free = range(first, prefix.size - last)
    else:
        free = (n for n in range(prefix.size) if is_free(block.find(prefix.nth(n)), state.configuration, now_ns))
    return sum(_may_serve(state.configuration, request, pool, prefix.nth(ordinal)) for ordinal in free)


def _is_overlapped(state: StoredState, prefix: Prefix) -> bool:
    """Whether a block cannot be created because one of another size is stored there."""
    return any(other.overlaps(prefix) for other in state.blocks if other != prefix)


def _count_after_takeover(
    state: StoredState, request: AssignRequest, pool: IPPool, block: Block, now_ns: int
) -> int | None:
    """The number of assignable addresses of another node's block after a takeover; None if that is not allowed."""
    is_empty = all(
        held.attribute.handle == RESERVED_HANDLE or is_free(held, state.configuration, now_ns) for held in block.held()
    )
    if not is_empty or (block.claim_time_ns or 0) >= now_ns - _TAKEOVER_AGE_NS:
        return None
    first, last = request.host_reserved
    free = range(first, block.prefix.size - last)
    return sum(_may_serve(state.configuration, request, pool, block.prefix.nth(ordinal)) for ordinal in free)


def is_free(held: Allocation | None, configuration: ClusterConfiguration, now_ns: int) -> bool:
    """Whether an address may be assigned: it is not held, and its cooldown is over."""
    if held is None:
        return True
    released_ns = held.attribute.released_ns
    if released_ns is None:
        return False
    cooldown_s = configuration.settings.cooldown_s
    return cooldown_s <= 0 or released_ns <= now_ns - (cooldown_s + 1) * _SECOND_NS


def _may_serve(configuration: ClusterConfiguration, request: AssignRequest, pool: IPPool, address: Address) -> bool:
    prefix = pool.spec.prefix
    return not configuration.is_reserved(address) and not _is_link_edge(request, prefix, address)


def _is_link_edge(request: AssignRequest, pool: Prefix, address: Address) -> bool:
    """Whether an address is the network's, the gateway's or the broadcast address on a shared link."""
    edges = (pool.first, pool.nth(1 % pool.size), pool.last)
    return request.link_layer is LinkLayer.L2 and address in edges


def _may_assign_specific(state: StoredState, request: AssignRequest, wanted: Specific, now_ns: int) -> bool:
    """Whether a specific address can be assigned: its pool allows it, and it is free."""
    rules, address = state.configuration, wanted.address
    pool = pool_of_address(rules, request, wanted)
    if pool is None or _is_link_edge(request, pool.spec.prefix, address):
        return False
    prefix = Prefix.at(address, pool.spec.block_length)
    block = state.blocks.get(prefix)
    if block is None and _is_overlapped(state, prefix):
        return False
    if block is None:
        return request.host_reserved[0] <= prefix.offset(address) < prefix.size - request.host_reserved[1]
    is_of_another = block.owner not in ("", request.claimant)
    return is_free(block.find(address), rules, now_ns) and not (is_of_another and rules.settings.is_affinity_strict)
