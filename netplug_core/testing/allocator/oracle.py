"""How many addresses a request must get, counted address by address from what is stored.

The oracle is slow, knows nothing of orders and probes, and says a lowest and a highest number: time that passes while
a request is decided, and empty blocks that may be taken over or only lent, leave some room between them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.block import RESERVED_HANDLE, Allocation, Block
from netplug_core.ipam.request import AssignRequest, Automatic, Reach, Shortfall, Specific, Wanted
from netplug_core.resources.ippool import AssignmentMode, IPPool
from netplug_core.selectors.evaluate import matches
from netplug_core.selectors.grammar import parse
from netplug_core.testing.allocator.stored import Rules, Stored

__all__ = ["Forecast", "Refusal", "Yield", "forecast", "is_free", "limits", "serving"]

_SECOND_NS = 1_000_000_000
_RECLAIM_NS = 60 * _SECOND_NS
_MANY = 8  # empty blocks of others that one request looks at


class Refusal(enum.Enum):
    """Why no pool serves: a fault of the request, or only nothing that fits it."""

    HARD = "a named pool cannot be used, or the request is not complete"
    SOFT = "no pool is meant for it"


@frozen(kw_only=True)
class Yield:
    """What one family of a request gets: ``kept`` addresses of its handle, and from ``low`` to ``high`` new ones.

    ``refusal`` says that no pool serves. If it falls short, a setting is to blame and not a lack of addresses where
    ``is_soft``, and perhaps where ``may_be_soft``.
    """

    total: int
    kept: int = 0
    low: int = 0
    high: int = 0
    refusal: Refusal | None = None
    is_soft: bool = False
    may_be_soft: bool = False

    @property
    def may_fall_short(self) -> bool:
        """Whether the family may get less than it asks."""
        return self.refusal is not None or self.kept + self.low < self.total

    @property
    def must_fall_short(self) -> bool:
        """Whether it cannot get what it asks."""
        return self.refusal is not None or self.kept + self.high < self.total

    def allows(self, count: int) -> bool:
        """Whether so many addresses are a right answer."""
        return min(self.total, self.kept + self.low) <= count <= min(self.total, self.kept + self.high)


@frozen(kw_only=True)
class Forecast:
    """What a request as a whole may be answered, one yield for each family that it wants."""

    shortfall: Shortfall
    yields: tuple[Yield, ...]

    @property
    def may_be_refused(self) -> bool:
        """Whether a refusal can be right."""
        if self.shortfall is Shortfall.REFUSE:
            return any(share.may_fall_short for share in self.yields)
        if any(share.refusal is Refusal.HARD for share in self.yields):
            return True
        has_some = any(share.kept or share.low for share in self.yields)
        is_soft = any(share.refusal or (share.may_be_soft and share.may_fall_short) for share in self.yields)
        return is_soft and not has_some

    @property
    def may_be_served(self) -> bool:
        """Whether an answer with addresses, or an empty one, can be right."""
        if self.shortfall is Shortfall.REFUSE:
            return not any(share.must_fall_short for share in self.yields)
        if any(share.refusal is Refusal.HARD for share in self.yields):
            return False
        has_some = any(share.kept or share.high for share in self.yields)
        is_soft = any(share.refusal or (share.is_soft and share.must_fall_short) for share in self.yields)
        return has_some or not is_soft


def forecast(stored: Stored, request: AssignRequest, since_ns: int, until_ns: int) -> Forecast:
    """What a request that is decided on this state, at some time between the two, may get."""
    shares = (_share(stored, request, wanted, (since_ns, until_ns)) for wanted in request.wanted)
    return Forecast(shortfall=request.shortfall, yields=tuple(shares))


def limits(rules: Rules, request: AssignRequest) -> tuple[int, ...]:
    """How many blocks of a family the claimant may own, where somebody said so."""
    of_request = () if request.block_limit is None else (request.block_limit,)
    return (*((rules.settings.max_blocks,) if rules.settings.max_blocks else ()), *of_request)


# --- pools ------------------------------------------------------------------------------------------------------------


def serving(rules: Rules, request: AssignRequest, wanted: Automatic) -> tuple[IPPool, ...] | Refusal:
    """The pools that a family of a request may be served from."""
    if request.use is None:
        return Refusal.HARD
    pools = sorted(rules.pools.values(), key=lambda pool: pool.metadata.name)
    if wanted.pools:
        return _named(pools, request, wanted)
    found = tuple(
        pool
        for pool in pools
        if pool.spec.prefix.family is wanted.family
        and _is_enabled(pool)
        and _is_selected(pool, rules, request)
        and _is_fit(pool, request)
    )
    return found or Refusal.SOFT


def _named(pools: Iterable[IPPool], request: AssignRequest, wanted: Automatic) -> tuple[IPPool, ...] | Refusal:
    by_name = {pool.metadata.name: pool for pool in pools}
    found: dict[str, IPPool] = {}
    for name in wanted.pools:
        pool = by_name.get(name)
        if pool is None or pool.spec.prefix.family is not wanted.family or not _is_enabled(pool):
            return Refusal.HARD
        if not _is_fit(pool, request):
            return Refusal.SOFT
        found[name] = pool
    return tuple(found.values())


def _is_enabled(pool: IPPool) -> bool:
    return not (pool.spec.is_disabled or pool.is_terminating or pool.refusal)


def _is_selected(pool: IPPool, rules: Rules, request: AssignRequest) -> bool:
    spec = pool.spec
    return (
        spec.assignment_mode is AssignmentMode.AUTOMATIC
        and _matches(spec.node_selector, rules.labels.get(request.node, {}))
        and _matches(spec.namespace_selector, dict(request.namespace_labels))
    )


def _matches(selector: str, labels: Mapping[str, str]) -> bool:
    return matches(parse(selector), labels)


def _is_fit(pool: IPPool, request: AssignRequest) -> bool:
    size = pool.spec.prefix.part(0, pool.spec.block_length).size
    return request.use in pool.spec.allowed_uses and (not sum(request.kept_back) or sum(request.kept_back) < size)


# --- addresses --------------------------------------------------------------------------------------------------------


def _share(stored: Stored, request: AssignRequest, wanted: Wanted, times: tuple[int, int]) -> Yield:
    held = {address for address in stored.held_by(request.handle) if address.family is wanted.family}
    kept = held if request.handle is not None else set[Address]()
    if isinstance(wanted, Specific):
        if wanted.address in kept:
            return Yield(total=1, kept=1)
        chances = {_may_have(stored, request, wanted, now_ns) for now_ns in times}
        if chances == {False}:
            return Yield(total=1, refusal=Refusal.HARD)
        return Yield(total=1, low=int(chances == {True}), high=1)
    total = wanted.count if request.max_per_handle is None else min(wanted.count, request.max_per_handle)
    if len(kept) >= total:
        return Yield(total=total, kept=total)
    pools = serving(stored.rules, request, wanted)
    if isinstance(pools, Refusal):
        return Yield(total=total, kept=len(kept), refusal=pools)
    rooms = [_room(stored, request, pool, now_ns) for pool in pools for now_ns in times]
    lows, highs = rooms[::2], rooms[1::2]
    settings = stored.rules.settings
    return Yield(
        total=total,
        kept=len(kept),
        low=sum(room.low for room in lows),
        high=sum(room.high for room in highs),
        is_soft=not settings.claims_blocks,
        may_be_soft=bool(limits(stored.rules, request)) or not settings.claims_blocks,
    )


@frozen
class _Room:
    low: int
    high: int


def _room(stored: Stored, request: AssignRequest, pool: IPPool, now_ns: int) -> _Room:
    """How many addresses of a pool a request can have at a time."""
    spec, settings = pool.spec, stored.rules.settings
    low = high = 0
    # With a limit the order of blocks decides how far it goes: certain are only the claimant's own ones.
    is_limited = bool(limits(stored.rules, request))
    for index in range(spec.prefix.part_count(spec.block_length)):
        prefix = spec.prefix.part(index, spec.block_length)
        block = stored.blocks.get(prefix)
        as_it_is = _count(stored, request, pool, prefix, now_ns)
        if block is not None and block.owner == request.claimant:
            low, high = low + as_it_is, high + as_it_is
        elif not settings.claims_blocks:
            continue
        elif block is None or not block.owner:
            low, high = low + (0 if is_limited else as_it_is), high + as_it_is
        else:
            refilled = _refilled(stored, request, pool, block, now_ns)
            lent = 0 if settings.is_affinity_strict else as_it_is
            # An empty block is taken over or lent: which of the two depends on what else there is.
            options = (lent,) if refilled is None else (lent, refilled)
            if refilled is not None and settings.is_affinity_strict and len(stored.blocks) <= _MANY:
                options = (refilled,)
            low, high = low + (0 if is_limited else min(options)), high + max(options)
    return _Room(low, high)


def _count(stored: Stored, request: AssignRequest, pool: IPPool, prefix: Prefix, now_ns: int) -> int:
    """Addresses of a block that may be given, of one that has to be made those that are not kept back."""
    block = stored.blocks.get(prefix)
    if block is None:
        first, last = request.kept_back
        free: Iterable[int] = range(first, prefix.size - last)
    else:
        free = (n for n in range(prefix.size) if is_free(block.find(prefix.nth(n)), stored.rules, now_ns))
    return sum(_may_serve(stored.rules, request, pool, prefix.nth(ordinal)) for ordinal in free)


def _refilled(stored: Stored, request: AssignRequest, pool: IPPool, block: Block, now_ns: int) -> int | None:
    """Addresses of another's block that stands empty, once it is taken over; None if it cannot be."""
    is_empty = all(
        held.attribute.handle == RESERVED_HANDLE or is_free(held, stored.rules, now_ns) for held in block.held()
    )
    if not is_empty or (block.claim_time_ns or 0) >= now_ns - _RECLAIM_NS:
        return None
    first, last = request.kept_back
    free = range(first, block.prefix.size - last)
    return sum(_may_serve(stored.rules, request, pool, block.prefix.nth(ordinal)) for ordinal in free)


def is_free(held: Allocation | None, rules: Rules, now_ns: int) -> bool:
    """Whether an address may be given: nobody has it, and if somebody had, its rest is over."""
    if held is None:
        return True
    released_ns = held.attribute.released_ns
    if released_ns is None:
        return False
    cooldown_s = rules.settings.cooldown_s
    return cooldown_s <= 0 or released_ns <= now_ns - (cooldown_s + 1) * _SECOND_NS


def _may_serve(rules: Rules, request: AssignRequest, pool: IPPool, address: Address) -> bool:
    prefix = pool.spec.prefix
    is_edge = address in (prefix.first, prefix.nth(1 % prefix.size), prefix.last)
    return not rules.is_reserved(address) and not (request.reach is Reach.ON_LINK and is_edge)


def _may_have(stored: Stored, request: AssignRequest, wanted: Specific, now_ns: int) -> bool:
    """Whether one address can be had: its pool is enabled and for the use, and nobody has it."""
    rules, address = stored.rules, wanted.address
    if not all(name in rules.pools and rules.pools[name].spec.prefix.family is address.family for name in wanted.pools):
        return False
    pools = sorted(rules.pools.values(), key=lambda pool: pool.metadata.name)
    pool = next((pool for pool in pools if pool.spec.prefix.contains(address) and _is_enabled(pool)), None)
    if pool is None or (wanted.pools and pool.metadata.name not in wanted.pools):
        return False
    if request.use is not None and request.use not in pool.spec.allowed_uses:
        return False
    spec = pool.spec
    if request.reach is Reach.ON_LINK and address in (spec.prefix.first, spec.prefix.last):
        return False
    prefix = Prefix.at(address, spec.block_length)
    block = stored.blocks.get(prefix)
    if block is None:
        return request.kept_back[0] <= prefix.offset(address) < prefix.size - request.kept_back[1]
    is_foreign = block.owner not in ("", request.claimant)
    return is_free(block.find(address), rules, now_ns) and not (is_foreign and rules.settings.is_affinity_strict)
