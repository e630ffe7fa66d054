"""What came of a decision: its trace, and why addresses could not be assigned or released, each with a code.

Codes (101 to 119) and identifiers are the same in every release; docs/errors.md has their meaning and the fix. The
texts are rendered from the trace of the decision.

``ipam.allocation`` writes the entries. Refusals, ``netplugctl`` and logs are rendered from them; no other module builds
such sentences. ``flows.ipam.service`` asks the memory around each decision of a process that stays. Threads may share
it: what they may lose is one line of the log.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, ErrorCode, NetplugError, excerpt, quote
from netplug_core.ipam.model import RESERVED_HANDLE
from netplug_core.records import Get, Malformed, Snapshot, TraceEntry
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL, AllowedUse, IPAMConfiguration

__all__ = [
    "FORGOTTEN_AFTER_S", "UNJUDGED", "AddressCooling", "AddressOutside", "AddressShortfall", "AddressTaken",
    "AddressWrongUse", "AllocationRule", "BlockLimitReached", "BlockNotEmpty", "BlockOutcome", "BlockTrace",
    "BlockUnavailable", "CommitFull", "HandleMismatch", "NoPoolQualifies", "NoPoolServes", "PoolExhausted",
    "PoolOutcome", "PoolRefused", "PoolTrace", "PoolUnknown", "PoolsExhausted", "RecordMemory", "RecordTrace",
    "RuleTrace", "SequenceMismatch", "StrictAffinity", "StrictlyExhausted", "UseMissing", "is_shortfall", "left_out",
    "naming",
]  # fmt: skip


# --- trace -----------------------------------------------------------------------------------------------------------


_PASSED_OVER = "it is passed over"


class PoolOutcome(enum.Enum):
    """What a rule said of a pool; the value is the sentence after "IPPool x"."""

    SERVES = "may serve"
    WRONG_FAMILY = "is of the other address family"
    DISABLED = "is disabled"
    TERMINATING = "is being removed"
    NOT_ALLOCATABLE = "is not allocatable"
    OVERLAPS = "overlaps an older pool and gives no addresses"
    WRONG_USE = "is not for this use"
    MANUAL = "has assignmentMode Manual and was not named"
    NODE_SELECTOR = "does not select this node"
    NAMESPACE_SELECTOR = "does not select this namespace"
    TOO_SMALL = "has blocks that are too small for what the host keeps back"
    UNREADABLE_SELECTOR = "is passed over: its selector cannot be read"
    UNKNOWN_LABELS = "is passed over: it selects nodes, and the record of this node cannot be read"


class BlockOutcome(enum.Enum):
    """What became of a block that was considered; the value is the sentence after "block x"."""

    TAKEN_FROM = "gave addresses"
    CLAIMED = "was claimed"
    ADOPTED = "had no owner and was claimed"
    TAKEN_OVER = "was empty for long and was taken over"
    BORROWED_FROM = "belongs to another node and lent addresses"
    NOT_AFFINE = "belongs to another node"
    FULL = "has no free address"
    OVERLAPPED = "cannot be created: it overlaps a stored block of another size"
    TOO_LARGE = "takes no more addresses: its record nears the size that a datastore accepts"
    RESERVED = "is reserved as a whole"
    STALE = "is no longer ours: the affinity is given up"
    RELINQUISHED = "is empty, and no pool gives it to this node any more: it is given up"
    UNREADABLE = "is passed over: its record cannot be read"
    OVER_LIMIT = "was not claimed: the node has reached its block limit"


class AllocationRule(enum.Enum):
    """A setting that decided what could be looked at."""

    STRICT_AFFINITY = "strict affinity is on: nothing is borrowed from blocks of other nodes"
    BLOCK_LIMIT = "no more blocks are claimed: the node has reached its limit"
    NO_CLAIMS = "autoAllocateBlocks is off: no block is claimed"
    MAX_PER_HANDLE = "the request's maximum per handle caps what was asked"


@define(kw_only=True)  # none of the entries is frozen, as the decision that they are of
class PoolTrace(TraceEntry):
    """Whether a pool may serve; ``detail`` is the setting that decided."""

    pool: str
    prefix: Prefix
    outcome: PoolOutcome
    detail: str = ""

    def __str__(self) -> str:
        return f"IPPool {self.pool} ({self.prefix}) {self.outcome.value}" + (f" ({self.detail})" if self.detail else "")


@define(kw_only=True)
class BlockTrace(TraceEntry):
    """A block and what became of it."""

    block: Prefix
    outcome: BlockOutcome
    detail: str = ""

    def __str__(self) -> str:
        return f"block {self.block} {self.outcome.value}" + (f" ({self.detail})" if self.detail else "")


@define(kw_only=True)
class RuleTrace(TraceEntry):
    """A setting that decided; ``detail`` is its value."""

    rule: AllocationRule
    detail: str = ""

    def __str__(self) -> str:
        return self.rule.value + (f" ({self.detail})" if self.detail else "")


@define(kw_only=True)
class RecordTrace(TraceEntry):
    """A stored record that cannot be understood as a whole, and what the decision did instead of using it."""

    kind: str
    record: str
    problem: str
    instead: str = _PASSED_OVER

    def __str__(self) -> str:
        return f"{self.problem}; {self.instead}"


@define(kw_only=True)
class PoolExhausted(TraceEntry):
    """A pool without an address for this request: its size, and how its addresses are used.

    ``free_elsewhere`` are free addresses of blocks that this request may not take from.
    """

    pool: str
    prefix: Prefix
    used: int
    reserved: int
    cooling: int
    free_elsewhere: int

    def __str__(self) -> str:
        return (
            f"IPPool {self.pool} ({self.prefix}): {self.prefix.size} addresses, {self.used} used, "
            f"{self.reserved} reserved, {self.cooling} cooling, {self.free_elsewhere} free in blocks of other nodes"
        )


_INSTEAD = {
    ("IPReservation", True): "the addresses and CIDRs in it that can be read stay reserved",
    ("IPAMConfiguration", True): "the settings that were last known count",
    ("IPAMConfiguration", False): "affinity is strict, and what is released rests",
    ("ClusterInformation", False): "the cluster counts as ready",
}


def left_out(snapshot: Snapshot) -> tuple[RecordTrace, ...]:
    """The records of a snapshot that cannot be understood, each once."""
    found: dict[str, RecordTrace] = {}
    for query, result in snapshot.results.items():
        for error in result.malformed:
            found[error.key] = _left_out(query.kind.name, error)
    return tuple(found.values())


def _left_out(kind: str, error: Malformed) -> RecordTrace:
    instead = _INSTEAD.get((kind, error.counts_as is not None), _PASSED_OVER)
    return RecordTrace(kind=kind, record=error.key, problem=str(error), instead=instead)


UNJUDGED = frozenset((PoolOutcome.UNREADABLE_SELECTOR, PoolOutcome.UNKNOWN_LABELS))
"""What is said of a pool of which it is not known whether it may serve."""


# --- record memory ---------------------------------------------------------------------------------------------------


FORGOTTEN_AFTER_S = 600.0
"""A record that no decision passed over for so long counts as repaired."""

_MAX_NOTED = 10_000
_CONFIGURATION = Get(IPAM_CONFIGURATION_KEY)


@define(eq=False)
class RecordMemory:
    """The settings that were last known, and which records were passed over.

    ``noted`` has them by kind and name, each with what was said of it, and when that was.
    """

    configuration: IPAMConfiguration | None = None
    noted: dict[tuple[str, str], tuple[str, float]] = field(factory=dict)

    def completed(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, in which a configuration that cannot be understood counts as the last known one.

        One that is understood, or is gone, is remembered.
        """
        found = snapshot.results.get(_CONFIGURATION)
        if found is None:
            return snapshot
        if not found.malformed:
            self.configuration = next((r.value for r in snapshot.readable(_CONFIGURATION)), None)
            return snapshot
        damaged = tuple(evolve(error, counts_as=self.configuration) for error in found.malformed)
        return Snapshot({**snapshot.results, _CONFIGURATION: evolve(found, malformed=damaged)}, snapshot.revisions)

    def note(self, entries: Iterable[TraceEntry], now_s: float) -> tuple[str, ...]:
        """Note what a decision passed over; the texts of what is new, or has changed since it was noted last."""
        new: list[str] = []
        for entry in entries:
            subject, text = _subject(entry), str(entry)
            known, at_s = self.noted.pop(subject, ("", now_s))
            if known != text or now_s - at_s > FORGOTTEN_AFTER_S:
                new.append(text)
            self.noted[subject] = (text, now_s)  # the one that was noted last is the last
        for subject in list(self.noted)[:-_MAX_NOTED]:
            self.noted.pop(subject, None)
        return tuple(new)

    def counts(self, now_s: float) -> Mapping[str, int]:
        """How many records were passed over of late, by kind; a kind that had some before counts none."""
        counts: dict[str, int] = {}
        for (kind, _name), (_text, at_s) in list(self.noted.items()):
            counts[kind] = counts.get(kind, 0) + (now_s - at_s <= FORGOTTEN_AFTER_S)
        return counts


def _subject(entry: TraceEntry) -> tuple[str, str]:
    """The kind and the name of a record; a pool that can be read may be passed over too."""
    if isinstance(entry, PoolTrace):
        return (IPPOOL.name, entry.pool)
    return (entry.kind, entry.record) if isinstance(entry, RecordTrace) else ("", str(entry))


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
