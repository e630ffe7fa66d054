"""Two clients at a time, in every order in which their calls to the store can come: the laws hold after each commit.

Exhaustive, not sampled; of orders that differ only in which of two reads comes first, one is run. A deep run
(Hypothesis profile ``nightly``) lets every act meet every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations_with_replacement

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import Automatic, ReleaseRequest
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.client import CallFault, FaultKind
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.operations import (
    ApplyResource,
    Assign,
    ClaimBlocks,
    DeleteResource,
    Operation,
    Release,
    RelinquishNode,
    RunCollector,
    StoreOperation,
)
from tests.harness.allocator.strategies import make_pool, make_request
from tests.harness.allocator.teardown import tear_down
from tests.harness.local_stores import FAULT_MODES, IS_DEEP, open_standalone_ipam
from tests.harness.schedules import CallScheduler, Choose, every_schedule

MAX_CALLS = 200


def make_assignment(handle: str, v4: int, v6: int = 0) -> Assign:
    counts = zip(Family, (v4, v6), strict=True)
    return Assign(request=make_request(handle, *(Automatic(family=family, count=n) for family, n in counts if n)))


# w0 and w1 are pods of node-a, w2 and w3 of node-b; w1 and w3 hold addresses when it begins.
SETUP: tuple[Operation, ...] = (
    *(ApplyResource(resource=make_pool(name)) for name in ("p1", "s1")),
    make_assignment("w1", 1),
    make_assignment("w3", 2, 1),
)
OPERATIONS: Mapping[str, StoreOperation | RunCollector] = {
    "assign on a": make_assignment("w0", 1, 1),
    "assign on a again": make_assignment("w4", 1),  # another node, and the same request as its neighbour's
    "assign on b": make_assignment("w2", 3),
    "release on a": Release(request=ReleaseRequest(handle="w1")),
    "release on b": Release(request=ReleaseRequest(handle="w3")),
    "claim for b": ClaimBlocks(claimant="host:node-b", prefix=Prefix.parse("10.0.1.0/29")),
    "leave a": RelinquishNode(node="node-a", emptiness=Emptiness.NOT_REQUIRED),
    "remove the pool": DeleteResource(key=ippool_key("p1")),
    "disable the pool": ApplyResource(
        resource=evolve(make_pool("p1"), spec=evolve(make_pool("p1").spec, is_disabled=True))
    ),
    "collect": RunCollector(),
}
PAIRS = (
    ("assign on a", "assign on b"),
    ("assign on a", "assign on a again"),
    ("assign on a", "release on b"),
    ("assign on a", "leave a"),
    ("release on a", "leave a"),
    ("claim for b", "assign on a"),
)


def run_concurrently(operations: Sequence[StoreOperation | RunCollector], mode: MemoryMode, choose: Choose) -> None:
    """Do some acts at once, in the order that is chosen; then take everything down."""
    clock, turns = ManualClock(), CallScheduler()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_standalone_ipam)
    for act in SETUP:
        harness.run(act)

    def wait(name: str, writes: int) -> None:
        turns.wait(name, is_read=not writes)

    def client(name: str, act: StoreOperation | RunCollector) -> object:
        stops = (
            CallFault(FaultKind.CONCURRENT_OPERATION, at, operation=partial(wait, name)) for at in range(1, MAX_CALLS)
        )
        return harness.run(act, *stops)

    turns.run({str(n): partial(client, str(n), act) for n, act in enumerate(operations)}, choose)
    tear_down(harness)


def pairs() -> list[tuple[str, str]]:
    every = combinations_with_replacement(OPERATIONS, 2)
    return [pair for pair in every if pair[0] != pair[1]] if IS_DEEP else list(PAIRS)


@pytest.mark.parametrize("mode", FAULT_MODES)
@pytest.mark.parametrize("names", pairs(), ids=" and ".join)
def test_in_whatever_order_two_clients_call_nothing_is_lost(names: tuple[str, str], mode: MemoryMode) -> None:
    acts = [OPERATIONS[name] for name in names]
    ran = list(every_schedule(partial(run_concurrently, acts, mode)))
    assert len(set(ran)) == len(ran) > 1
