"""The trace of a decision: what it found about every pool, block and rule, and what a process remembers of bad records.

``ipam.allocation`` writes the entries. Refusals, ``netplugctl`` and logs are rendered from them; no other module builds
such sentences. ``flows.ipam.service`` asks the memory around each decision of a process that stays. Threads may share
it: what they may lose is one line of the log.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from attrs import define, evolve, field

from netplug_core.addressing import Prefix
from netplug_core.records import Get, Malformed, Snapshot, TraceEntry
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY, IPAMConfiguration
from netplug_core.resources.ippool import IPPOOL

__all__ = [
    "FORGOTTEN_AFTER_S", "UNJUDGED", "AllocationRule", "BlockOutcome", "BlockTrace", "PoolExhausted", "PoolOutcome",
    "PoolTrace", "RecordMemory", "RecordTrace", "RuleTrace", "left_out",
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
