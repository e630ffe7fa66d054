"""The sentences of trace entries."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.outcome import (
    AllocationRule,
    BlockOutcome,
    BlockTrace,
    PoolExhausted,
    PoolOutcome,
    PoolTrace,
    RuleTrace,
    left_out,
)
from netplug_core.records import Get, List, Malformed, Query, ReadResult, Snapshot, TraceEntry
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL, IPRESERVATION

QUERIES: tuple[Query, ...] = (
    List(IPRESERVATION),
    Get(IPAM_CONFIGURATION_KEY),
    Get(CLUSTER_INFORMATION_KEY),
    List(IPPOOL),
)
POOL = Prefix.parse("192.168.1.0/24")
BLOCK = Prefix.parse("192.168.1.64/26")


@pytest.mark.parametrize("entry, text", [
    (PoolTrace(pool="main", prefix=POOL, outcome=PoolOutcome.SERVES), "IPPool main (192.168.1.0/24) may serve"),
    (
        PoolTrace(pool="main", prefix=POOL, outcome=PoolOutcome.WRONG_USE, detail="allowedUses: Tunnel"),
        "IPPool main (192.168.1.0/24) is not for this use (allowedUses: Tunnel)",
    ),
    (BlockTrace(block=BLOCK, outcome=BlockOutcome.TAKEN_FROM), "block 192.168.1.64/26 gave addresses"),
    (
        BlockTrace(block=BLOCK, outcome=BlockOutcome.OVER_LIMIT, detail="limit 20"),
        "block 192.168.1.64/26 was not claimed: the node has reached its block limit (limit 20)",
    ),
    (
        RuleTrace(rule=AllocationRule.STRICT_AFFINITY),
        "strict affinity is on: nothing is borrowed from blocks of other nodes",
    ),
    (
        RuleTrace(rule=AllocationRule.BLOCK_LIMIT, detail="2"),
        "no more blocks are claimed: the node has reached its limit (2)",
    ),
    (
        PoolExhausted(pool="main", prefix=POOL, used=20, reserved=4, cooling=2, free_elsewhere=50),
        "IPPool main (192.168.1.0/24): 256 addresses, 20 used, 4 reserved, 2 cooling, 50 free in blocks of other nodes",
    ),
])  # fmt: skip
def test_a_trace_entry_is_a_sentence(entry: TraceEntry, text: str) -> None:
    assert str(entry) == text


@pytest.mark.parametrize("outcomes", [PoolOutcome, BlockOutcome, AllocationRule])
def test_each_outcome_says_something_of_its_own(
    outcomes: type[PoolOutcome] | type[BlockOutcome] | type[AllocationRule],
) -> None:
    said = [outcome.value for outcome in outcomes]
    assert len(set(said)) == len(said)
    assert all(said)


@pytest.mark.parametrize(
    "query, part, instead",
    [
        (QUERIES[0], object(), "the addresses and CIDRs in it that can be read stay reserved"),
        (QUERIES[0], None, "it is passed over"),
        (QUERIES[1], object(), "the settings that were last known count"),
        (QUERIES[1], None, "affinity is strict, and what is released rests"),
        (QUERIES[2], None, "the cluster counts as ready"),
        (QUERIES[3], None, "it is passed over"),
    ],
)
def test_what_is_done_instead_of_using_a_damaged_record(query: Query, part: object | None, instead: str) -> None:
    error = Malformed("X(x)", "no JSON", counts_as=part)
    snapshot = Snapshot({query: ReadResult((), malformed=(error, error))}, {})
    (entry,) = left_out(snapshot)
    assert str(entry) == f"the stored record X(x) is malformed: no JSON; {instead}"
