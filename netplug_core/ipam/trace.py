"""What a decision noted about every pool and block it considered, and the refusals that follow from it.

``pools`` and ``decide`` write remarks; error texts, ``netplugctl`` and logs are rendered from them, and nothing else
builds such sentences. Each refusal has a code of its own (101 to 119), stable from release to release.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.records import Remark

__all__ = [
    "BlockOutcome",
    "BlockSeen",
    "NoPoolServes",
    "PoolFull",
    "PoolOutcome",
    "PoolRefused",
    "PoolSeen",
    "PoolUnknown",
    "PoolsExhausted",
]


class PoolOutcome(enum.Enum):
    """What a rule said of a pool; the value is the sentence after "IPPool x"."""

    SERVES = "may serve"
    WRONG_FAMILY = "is of the other address family"
    DISABLED = "is disabled"
    TERMINATING = "is being removed"
    NOT_ALLOCATABLE = "is not allocatable"
    WRONG_USE = "is not for this use"
    MANUAL = "has assignmentMode Manual and was not named"
    NODE_SELECTOR = "has a nodeSelector, a rule that is not yet supported"
    NAMESPACE_SELECTOR = "has a namespaceSelector, a rule that is not yet supported"


class BlockOutcome(enum.Enum):
    """What became of a block that was considered."""

    TAKEN_FROM = "gave addresses"
    CLAIMED = "was claimed"
    FULL = "has no free address"
    FOREIGN = "belongs to another node"
    STALE = "is no longer ours: the affinity is given up"
    LIMIT = "was not claimed: the node has reached its block limit"


@frozen(kw_only=True)
class PoolSeen(Remark):
    """A pool and what the rules said of it; ``detail`` is the setting that decided."""

    pool: str
    prefix: Prefix
    outcome: PoolOutcome
    detail: str = ""

    def __str__(self) -> str:
        return f"IPPool {self.pool} ({self.prefix}) {self.outcome.value}" + (f" ({self.detail})" if self.detail else "")


@frozen(kw_only=True)
class BlockSeen(Remark):
    """A block and what became of it."""

    block: Prefix
    outcome: BlockOutcome
    detail: str = ""

    def __str__(self) -> str:
        return f"block {self.block} {self.outcome.value}" + (f" ({self.detail})" if self.detail else "")


@frozen(kw_only=True)
class PoolFull(Remark):
    """A pool that had nothing left for this request: its size, and what its blocks hold."""

    pool: str
    prefix: Prefix
    used: int
    free_elsewhere: int

    def __str__(self) -> str:
        return (
            f"IPPool {self.pool} ({self.prefix}): {self.prefix.size} addresses, {self.used} used, "
            f"{self.free_elsewhere} free in blocks of other nodes"
        )


@frozen
class PoolUnknown(AllocationError):
    """The request names a pool that does not exist (code 101)."""

    code: ClassVar[int] = 101
    entry: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        there = ", ".join(self.known) or "none"
        return f"the given pool ({self.entry}) does not exist; pools of this cluster: {there}"


@frozen
class PoolRefused(AllocationError):
    """The request names a pool that may not serve it (code 102 to 109, one for each reason)."""

    seen: PoolSeen

    @property
    def code(self) -> int:  # type: ignore[override]
        """The number of the reason."""
        return _CODES[self.seen.outcome]

    def __str__(self) -> str:
        return f"the given pool cannot be used: {self.seen}"


_CODES = {
    PoolOutcome.DISABLED: 102,
    PoolOutcome.WRONG_FAMILY: 103,
    PoolOutcome.TERMINATING: 107,
    PoolOutcome.NOT_ALLOCATABLE: 108,
    PoolOutcome.WRONG_USE: 109,
}


@frozen
class NoPoolServes(AllocationError):
    """Nothing was named, and no pool may serve the request (code 104)."""

    code: ClassVar[int] = 104
    family: Family
    node: str
    seen: tuple[PoolSeen, ...]

    def __str__(self) -> str:
        reasons = "; ".join(str(remark) for remark in self.seen) or f"there is no {self.family} pool at all"
        return f"no configured netplug pools for node {self.node} ({self.family}): {reasons}"


@frozen
class PoolsExhausted(AllocationError):
    """The pools that may serve have too few addresses left for this node (code 105)."""

    code: ClassVar[int] = 105
    family: Family
    found: int
    wanted: int
    trace: tuple[Remark, ...]

    def __str__(self) -> str:
        full = [remark for remark in self.trace if isinstance(remark, PoolFull)]
        limits = [remark for remark in self.trace if isinstance(remark, BlockSeen) and remark.outcome is _LIMIT]
        pools = " ".join(str(remark.prefix) for remark in full)
        parts = [f"Assigned {self.found} out of {self.wanted} requested {self.family} addresses"]
        if not limits:  # at the limit there are addresses, but not for this node
            parts.append(f"No IPs available in pools: [{pools}]")
        return "; ".join((*parts, *(str(remark) for remark in (*full, *limits))))


_LIMIT = BlockOutcome.LIMIT
