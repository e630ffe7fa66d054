"""The trace of a decision: what it found about every pool, block and rule that it considered.

``ipam.allocation`` writes the entries. Refusals, ``netplugctl`` and logs are rendered from them; no other module builds
such sentences.
"""

from __future__ import annotations

import enum

from attrs import define

from netplug_core.addressing import Prefix
from netplug_core.records import Malformed, Snapshot, TraceEntry

__all__ = [
    "UNJUDGED",
    "AllocationRule",
    "BlockOutcome",
    "BlockTrace",
    "PoolExhausted",
    "PoolOutcome",
    "PoolTrace",
    "RecordTrace",
    "RuleTrace",
    "left_out",
]  # fmt: skip

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
