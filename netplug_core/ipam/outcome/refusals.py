"""Why addresses could not be assigned or released: one class, one code and one identifier for each reason.

Codes (101 to 119) and identifiers are the same in every release; docs/errors.md has their meaning and the fix. The
texts are rendered from the trace of the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, ErrorCode, NetplugError, excerpt, quote
from netplug_core.ipam.model import RESERVED_HANDLE
from netplug_core.ipam.outcome.trace import BlockOutcome, BlockTrace, PoolExhausted, PoolOutcome, PoolTrace, RuleTrace
from netplug_core.records import TraceEntry
from netplug_core.resources.ippool import AllowedUse

__all__ = [
    "AddressCooling", "AddressOutside", "AddressShortfall", "AddressTaken", "AddressWrongUse", "BlockLimitReached",
    "BlockNotEmpty", "BlockUnavailable", "CommitFull", "HandleMismatch", "NoPoolQualifies", "NoPoolServes",
    "PoolRefused", "PoolUnknown", "PoolsExhausted", "SequenceMismatch", "StrictAffinity", "StrictlyExhausted",
    "UseMissing", "is_shortfall", "naming",
]  # fmt: skip

# --- which pools ----------------------------------------------------------------------------------------------------


@frozen
class PoolUnknown(AllocationError, error_code=ErrorCode.POOL_NOT_FOUND):
    """The request names a pool that does not exist, as far as pools can be read."""

    entry: str
    known: tuple[str, ...]
    passed_over: tuple[TraceEntry, ...] = ()

    def __str__(self) -> str:
        known = f"{_listed(self.known)}{_also(self.passed_over)}"
        return f"the given pool ({excerpt(self.entry)}) does not exist, or is not enabled; {known}"


def _listed(pools: tuple[str, ...]) -> str:
    return f"pools of this cluster: {', '.join(pools) or 'none'}"


@frozen
class PoolRefused(AllocationError):
    """The request names a pool that may not serve it: a code and an identifier for each reason."""

    entry: str
    seen: PoolTrace

    @property
    def code(self) -> int:  # type: ignore[override]
        """The number of the reason."""
        return _REASONS[self.seen.outcome].number

    @property
    def identifier(self) -> str:  # type: ignore[override]
        """The name of the reason."""
        return _REASONS[self.seen.outcome].identifier

    @property
    def next_step(self) -> str:  # type: ignore[override]
        """What a person can do about the reason."""
        return _REASONS[self.seen.outcome].next_step

    def __str__(self) -> str:
        if self.seen.outcome in _NOT_ENABLED:
            return f"the given pool ({excerpt(self.entry)}) does not exist, or is not enabled: {self.seen}"
        return f"the given pool ({excerpt(self.entry)}) cannot be used: {self.seen}"


_NOT_ENABLED = (PoolOutcome.DISABLED, PoolOutcome.TERMINATING, PoolOutcome.NOT_ALLOCATABLE, PoolOutcome.OVERLAPS)
_REASONS = {
    PoolOutcome.DISABLED: ErrorCode.POOL_DISABLED,
    PoolOutcome.WRONG_FAMILY: ErrorCode.POOL_WRONG_FAMILY,
    PoolOutcome.TERMINATING: ErrorCode.POOL_BEING_REMOVED,
    PoolOutcome.NOT_ALLOCATABLE: ErrorCode.POOL_NOT_ALLOCATABLE,
    PoolOutcome.OVERLAPS: ErrorCode.POOL_NOT_ALLOCATABLE,
}


@frozen
class NoPoolServes(AllocationError, error_code=ErrorCode.NO_POOL_SELECTED):
    """Nothing was named, and no pool selects the workload; ``is_registered`` is whether its node is known at all."""

    family: Family
    node: str
    seen: tuple[PoolTrace, ...]
    is_registered: bool = True
    passed_over: tuple[TraceEntry, ...] = ()

    def __str__(self) -> str:
        reasons = "; ".join(str(entry) for entry in self.seen) or f"there is no {self.family} pool at all"
        labels = "" if self.is_registered else ", which is not registered and so has no labels"
        place = f" for node {self.node}" if self.node else ""
        return f"no configured netplug pools{place} ({self.family}){labels}: {reasons}{_also(self.passed_over)}"


@frozen
class NoPoolQualifies(AllocationError, error_code=ErrorCode.POOL_WRONG_USE):
    """Of the pools that were named, or that select the workload, none is for this use or has large enough blocks."""

    use: AllowedUse
    seen: tuple[PoolTrace, ...]
    passed_over: tuple[TraceEntry, ...] = ()

    def __str__(self) -> str:
        reasons = "; ".join(str(entry) for entry in self.seen)
        found = f"{reasons}: no pools match the required use{_also(self.passed_over)}"
        return f"cannot find a qualified ippool for use {self.use.value}: {found}"


@frozen
class UseMissing(AllocationError, error_code=ErrorCode.USE_MISSING):
    """A request for automatic addresses does not say what they are for."""

    def __str__(self) -> str:
        uses = ", ".join(use.value for use in AllowedUse)
        return f"must specify the intended use when assigning an IP: one of {uses}"


_MAX_PASSED_OVER = 3


def _also(passed_over: Sequence[TraceEntry]) -> str:
    """What a refusal says of records that could not be read or judged: the first ones, and how many more."""
    more = len(passed_over) - _MAX_PASSED_OVER
    shown = "".join(f"; {entry}" for entry in passed_over[:_MAX_PASSED_OVER])
    return f"{shown}; {more} more records are passed over" if more > 0 else shown


_MAX_DETAILS = 20  # entries of a trace, which in a full cluster has one for every block

# --- fewer addresses than asked ---------------------------------------------------------------------------------------


@frozen
class AddressShortfall(AllocationError):
    """Base of the reasons why a family gets fewer addresses than are wanted.

    ``found`` of ``wanted`` are available. ``has_host_reserved``: hosts reserve addresses of their blocks, which may be
    the reason. ``is_refused``: the request gets none of them.
    """

    family: Family
    found: int
    wanted: int
    trace: tuple[TraceEntry, ...]
    has_host_reserved: bool = False
    is_refused: bool = False
    passed_over: tuple[TraceEntry, ...] = ()

    def message(self) -> str:
        """The reason in a few words."""
        raise NotImplementedError

    @property
    def details(self) -> str:
        """What was considered on the way, besides what the text says already: the pools, the blocks and the rules."""
        text = str(self)
        considered = [entry for entry in map(str, self.trace) if entry not in text]
        shown = considered[:_MAX_DETAILS]
        more = len(considered) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)

    def __str__(self) -> str:
        requested = f"requested {self.family} addresses"
        if self.is_refused and self.found:
            count = f"Only {self.found} of the {self.wanted} {requested} are available, so nothing new is held"
        else:
            count = f"Assigned {self.found} out of {self.wanted} {requested}"
        parts = [count, self.message()]
        parts.extend(str(entry) for entry in self.trace if isinstance(entry, PoolExhausted))
        if self.has_host_reserved:
            parts.append(f"HostReservedAttr: {RESERVED_HANDLE}")
        return "; ".join(parts) + _also(self.passed_over)


@frozen
class PoolsExhausted(AddressShortfall, error_code=ErrorCode.POOLS_EXHAUSTED):
    """No free address is left in the pools that may serve."""

    @property
    def next_step(self) -> str:  # type: ignore[override]
        """What a person can do: more addresses for the pools, or more blocks for this node."""
        if any(map(_is_over_limit, self.trace)):
            return "use larger blocks in the next pool, or set maxBlocksPerHost, which needs strict affinity"
        return ErrorCode.POOLS_EXHAUSTED.next_step

    def message(self) -> str:
        """Names every pool that was looked at, or the block that the node does not claim."""
        over_limit = [entry for entry in self.trace if _is_over_limit(entry)]
        if over_limit:  # blocks are left, but this node may not claim them
            return str(over_limit[0])
        pools = " ".join(str(entry.prefix) for entry in self.trace if isinstance(entry, PoolExhausted))
        return f"No IPs available in pools: [{pools}]"


def _is_over_limit(entry: TraceEntry) -> bool:
    return isinstance(entry, BlockTrace) and entry.outcome is BlockOutcome.OVER_LIMIT


@frozen
class BlockLimitReached(AddressShortfall, error_code=ErrorCode.BLOCK_LIMIT_REACHED):
    """The node may not own more blocks, by the configuration's or the request's limit."""

    limit: int = 0

    def message(self) -> str:
        """Names the limit."""
        return f"Need to allocate an IPAM block but could not - limit of {self.limit} blocks reached for this node"


@frozen
class CommitFull(AddressShortfall, error_code=ErrorCode.BLOCK_LIMIT_REACHED):
    """The request needs addresses of more blocks than one commit may change."""

    next_step: ClassVar[str] = "ask for fewer addresses at once, or use larger blocks in the next pool"

    def message(self) -> str:
        """Says that the limit is one of a commit."""
        return "the others lie in more blocks than one commit changes"


@frozen
class StrictlyExhausted(AddressShortfall, error_code=ErrorCode.STRICT_AFFINITY):
    """The node's own blocks are full, no block is left to claim, and strict affinity forbids to borrow."""

    def message(self) -> str:
        """Names the setting."""
        return "No more free affine blocks and strict affinity enabled"


@frozen
class BlockUnavailable(AddressShortfall, error_code=ErrorCode.CLAIMS_OFF):
    """The node's own blocks are full, and the configuration lets it claim none."""

    def message(self) -> str:
        """Names the setting."""
        return "failed to find or claim a block: autoAllocateBlocks is false"


# --- one address ----------------------------------------------------------------------------------------------------


@frozen
class AddressOutside(AllocationError, error_code=ErrorCode.ADDRESS_OUTSIDE_POOLS):
    """The requested address lies in no enabled pool, or in none of the named ones; ``known`` has all pools."""

    address: Address
    named: tuple[str, ...]
    seen: tuple[PoolTrace, ...]
    known: tuple[str, ...]
    passed_over: tuple[TraceEntry, ...] = ()

    def __str__(self) -> str:
        among = f" named ({', '.join(map(excerpt, self.named))})" if self.named else ""
        reasons = "".join(f"; {entry}" for entry in self.seen) or f"; {_listed(self.known)}"
        reasons += _also(self.passed_over)
        return f"The provided IP address is not in a configured pool{among}: {self.address}{reasons}"


@frozen
class AddressWrongUse(AllocationError, error_code=ErrorCode.POOL_WRONG_USE):
    """The pool of the requested address is not for the stated use."""

    address: Address
    pool: str
    use: AllowedUse
    allowed: tuple[AllowedUse, ...]

    def __str__(self) -> str:
        uses = " ".join(use.value for use in self.allowed)
        return (
            f'IP address {self.address} is in IP pool "{self.pool}", which is not allowed for use "{self.use.value}" '
            f"(allowedUses: [{uses}])"
        )


@frozen
class AddressTaken(AllocationError, error_code=ErrorCode.ADDRESS_TAKEN):
    """The requested address is held already; ``owner`` has the attributes that are stored with it."""

    address: Address
    block: Prefix
    handle: str | None
    owner: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.address}: Address already assigned in block {self.block}{self._holder()}"

    def _holder(self) -> str:
        """Who holds it, by the name that people know: a handle is only the key of an attachment."""
        owner = dict(self.owner)
        if owner.get("pod"):
            return f" by pod {excerpt(owner.get('namespace') or '-')}/{excerpt(owner['pod'])}"
        if owner.get("container"):
            return f" by container {excerpt(owner['container'])}"
        return f" by handle {excerpt(self.handle)}" if self.handle else ""


@frozen
class AddressCooling(AllocationError, error_code=ErrorCode.ADDRESS_COOLING):
    """The requested address was released, and its cooldown has not expired."""

    address: Address
    block: Prefix
    cooldown_s: int

    def __str__(self) -> str:
        return (
            f"{self.address}: Address already assigned in block {self.block}: "
            f"it was released less than {self.cooldown_s} s ago and cools down"
        )


@frozen
class StrictAffinity(AllocationError, error_code=ErrorCode.STRICT_AFFINITY):
    """The requested address lies in a block of another node, and strict affinity is on."""

    address: Address
    seen: BlockTrace
    rule: RuleTrace

    def __str__(self) -> str:
        return f"{self.address}: {self.seen}; {self.rule}"


@frozen
class BlockUnusable(AllocationError, error_code=ErrorCode.POOLS_EXHAUSTED):
    """The requested address is free, and no block can give it."""

    address: Address
    seen: BlockTrace

    def __str__(self) -> str:
        return f"{self.address}: {self.seen}; ask for an address of another block"


# --- release ----------------------------------------------------------------------------------------------------------


@frozen
class SequenceMismatch(AllocationError, error_code=ErrorCode.SEQUENCE_MISMATCH):
    """An address is held under another sequence number than the release names: by a later allocation."""

    address: Address
    requested: int
    expected: int

    def __str__(self) -> str:
        return f"{self.address} is not released: bad sequence number {self.requested}, expected {self.expected}"


@frozen
class HandleMismatch(AllocationError, error_code=ErrorCode.HANDLE_MISMATCH):
    """An address is held by another handle than the release names."""

    address: Address
    requested: str
    expected: str | None

    def __str__(self) -> str:
        return f"{self.address} is not released: bad handle {quote(self.requested)}, expected {quote(self.expected)}"


@frozen
class BlockNotEmpty(AllocationError, error_code=ErrorCode.BLOCK_NOT_EMPTY):
    """A block that shall be given up only if it is empty has addresses."""

    block: Prefix
    owner: str
    used: int

    def __str__(self) -> str:
        return f"block {self.block} of {self.owner} is not given up: it is not empty ({self.used} addresses held)"


def is_shortfall(refusal: NetplugError, *, has_some: bool) -> bool:
    """Whether a refusal means fewer addresses than wanted, so that a request that accepts this gets the rest.

    A full pool always does. What a setting forbids does only if other addresses could be had (``has_some``).
    """
    if isinstance(refusal, PoolsExhausted | StrictlyExhausted):
        return True
    return has_some and isinstance(refusal, AddressShortfall | NoPoolServes | NoPoolQualifies)


def naming(refusal: NetplugError, passed_over: Sequence[TraceEntry]) -> NetplugError:
    """The refusal, which also names the records that could not be read or judged, unless its text does already."""
    if isinstance(refusal, NoPoolServes | NoPoolQualifies):
        return evolve(refusal, passed_over=tuple(entry for entry in passed_over if entry not in refusal.seen))
    if isinstance(refusal, PoolUnknown | AddressOutside | AddressShortfall):
        return evolve(refusal, passed_over=tuple(passed_over))
    return refusal
