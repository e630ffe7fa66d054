"""A cluster that fills up: the CPU time of an assignment at 500, 2,000 and 5,000 nodes, and of a search for a block.

It runs the block IPAM over the memory store, so the allocator is measured without a network. CPU time is printed in
microseconds and, because those depend on the machine, as a multiple of the time that plain JSON takes to read and write
a block of 40 pods; both are measured in turns. Each size runs in a process of its own:
``python -m benchmarks.cluster NODES`` prints its result as JSON.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from attrs import asdict, define, evolve, field, frozen

from benchmarks.measure import run
from netplug_backends.host.machine import SystemClock
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.view import View
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.acquire import PROBE_COUNT
from netplug_core.ipam.allocation.decide import decide, queries
from netplug_core.ipam.allocation.pools import block_order, hashed_start
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.model import BLOCK, HANDLE, Attribute, Block
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, NeedMore
from netplug_core.resources.ippool import AllowedUse, IPPool

_SIZES = (500, 2_000, 5_000)
_POOL = Prefix.parse("10.0.0.0/12")
_PODS, _COLD_PODS, _RELEASED_PODS = 50, 5, 10
_RATE_GOAL = 15_000
_JSON_GOAL, _FLAT_GOAL, _RSS_GOAL_MB = 2.5, 0.8, 300
_CLAIMED, _SEARCH_GOAL_US = 5_000, 20.0
_FAMILY_GOAL = 1.1
_BATCH = 512
_CLOCK = SystemClock()
_DEADLINE = Deadline.after(_CLOCK, 3600.0)


@frozen(kw_only=True)
class ClusterCost:
    """What one cluster cost; microseconds of CPU for each call, and for the reference."""

    nodes: int
    assign_us: float
    cold_us: float
    release_us: float
    json_us: float
    rss_mb: float

    @property
    def ratio(self) -> float:
        """An assignment in times of the reference."""
        return self.assign_us / self.json_us


def measure(rounds: int) -> None:
    """Measure every size once, and the searches that many rounds, and print.

    Raises:
        SystemExit: one of the processes failed.
    """
    filled = [_measure_in_process(nodes) for nodes in _SIZES]
    print(f"{_PODS} pods a node in {_POOL}, blocks of 64, memory store; CPU (goal {_RATE_GOAL:,} assignments/s)")
    print(f"x JSON: times of what plain JSON takes to read and write a block (goal {_JSON_GOAL})")
    print(f"cold: {_COLD_PODS} more pods a node, with no memory of what was read; MB: resident (goal {_RSS_GOAL_MB})\n")
    print(f"{'nodes':>6} {'assign/s':>9} {'us':>7} {'x JSON':>7} {'cold/s':>8} {'release/s':>10} {'MB':>6}")
    for one in filled:
        print(
            f"{one.nodes:6} {1e6 / one.assign_us:9.0f} {one.assign_us:7.1f} {one.ratio:7.2f} {1e6 / one.cold_us:8.0f} "
            f"{1e6 / one.release_us:10.0f} {one.rss_mb:6.0f}"
        )
    small, large = filled[0], filled[-1]
    print(
        f"\nrate at {large.nodes} nodes to that at {small.nodes}: {small.ratio / large.ratio:.2f} "
        f"(goal {_FLAT_GOAL}; by x JSON, so that it stays what it is on a busy machine)\n"
    )
    _print_searches(rounds)
    _print_families(rounds)
    _print_shortfall(rounds)


def _measure_in_process(nodes: int) -> ClusterCost:
    sample = run([sys.executable, "-m", "benchmarks.cluster", str(nodes)], b"", os.environ)
    if sample.status:
        raise SystemExit(f"filling {nodes} nodes failed: {sample.output}")
    return ClusterCost(**json.loads(sample.output))


# --- a cluster -----------------------------------------------------------------------------------------------------


@define
class _AllocatorCluster:
    """A store with one pool, and an IPAM with a cache for each node, as in a resident process.

    Nothing watches the store, so it keeps no changes.
    """

    pool: Prefix
    nodes: int
    store: MemoryDatastore = field(factory=lambda: MemoryDatastore(clock=_CLOCK, keep_changes=0))
    names: list[str] = field(factory=list)
    ipams: list[BlockIPAM] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        pool = IPPool.for_prefix(self.pool, name="main")
        self.store.commit((Create(pool.key, pool),), deadline=_DEADLINE)
        uncached_kinds = frozenset((HANDLE,))
        self.names.extend(f"node-{node}" for node in range(self.nodes))
        self.ipams.extend(
            self.ipam(
                View.for_datastore(
                    self.store, clock=_CLOCK, uncached_kinds=uncached_kinds, uncached_absent_kinds=frozenset((BLOCK,))
                )
            )
            for _node in range(self.nodes)
        )

    def ipam(self, cache: View | None) -> BlockIPAM:
        """An IPAM, with or without a cache."""
        return BlockIPAM(datastore=self.store, clock=_CLOCK, chance=random.random, cache=cache)

    def assign(self, ipams: Iterable[BlockIPAM], pod: int) -> None:
        """Assign an address to a pod of every node."""
        for node, (name, ipam) in enumerate(zip(self.names, ipams, strict=True)):
            ipam.assign(_request(node, pod, name=name, family=self.pool.family), NO_ENDPOINT, deadline=_DEADLINE)

    def release(self, pod: int) -> None:
        """Release the addresses of a pod of every node."""
        for node, ipam in enumerate(self.ipams):
            ipam.release(ReleaseRequest(handle=_handle(node, pod)), NO_ENDPOINT, deadline=_DEADLINE)


def _fill_cluster(nodes: int) -> ClusterCost:
    """Fill a cluster in this process."""
    cluster, reference = _AllocatorCluster(_POOL, nodes), _plain_json()
    cold = [cluster.ipam(None)] * nodes
    assign_s = json_s = cold_s = release_s = 0.0
    for pod in range(_PODS):
        assign_s += _cpu_s(partial(cluster.assign, cluster.ipams, pod))
        json_s += _cpu_s(reference)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for pod in range(_PODS, _PODS + _COLD_PODS):
        cold_s += _cpu_s(partial(cluster.assign, cold, pod))
    for pod in range(_RELEASED_PODS):
        release_s += _cpu_s(partial(cluster.release, pod))
    return ClusterCost(
        nodes=nodes,
        assign_us=assign_s / (nodes * _PODS) * 1e6,
        cold_us=cold_s / (nodes * _COLD_PODS) * 1e6,
        release_us=release_s / (nodes * _RELEASED_PODS) * 1e6,
        json_us=json_s / (_PODS * _BATCH) * 1e6,
        rss_mb=rss_mb,
    )


def _plain_json() -> Callable[[], None]:
    """Reads and writes a block of 40 pods many times, as one would who has no model."""
    block = Block.new(_POOL.subprefix(0, 26), owner="host:node-0", now_ns=_CLOCK.now_ns())
    for pod in range(40):
        owner = (*_request(0, pod).owner, ("node", "node-0"), ("timestamp", "2026-08-20T10:00:00Z"))
        block = block.assign(block.find_free(1, None), Attribute(handle=_handle(0, pod), owner=owner))
    data = STORED_JSON.encode(block.key, block)

    def read_and_write() -> None:
        for _repeat in range(_BATCH):
            json.dumps(json.loads(data), separators=(",", ":"), ensure_ascii=False).encode()

    return read_and_write


def _request(node: int, pod: int, *, name: str = "", family: Family = Family.IPV4) -> AssignRequest:
    return AssignRequest(
        handle=_handle(node, pod),
        node=name or f"node-{node}",
        wanted=(Automatic(family=family),),
        use=AllowedUse.WORKLOAD,
        owner=(("namespace", "production"), ("pod", f"web-{node:05}-{pod:03}")),
    )


def _handle(node: int, pod: int) -> str:
    return f"k8s-pod-network.{node:05}{pod:03}6d4cf56db66d4cf56db66d4cf56db66d4cf56db6"


def _cpu_s(operation: Callable[[], object]) -> float:
    began = time.process_time()
    operation()
    return time.process_time() - began


def _best_us(operations: dict[str, Callable[[], object]], rounds: int, repeats: int) -> dict[str, float]:
    """The best of some rounds, the operations in turns: what another process takes from us says nothing about us."""
    best = dict.fromkeys(operations, float("inf"))
    for _round in range(rounds):
        for name, operation in operations.items():
            began = time.process_time()
            for _repeat in range(repeats):
                operation()
            best[name] = min(best[name], (time.process_time() - began) / repeats * 1e6)
    return best


# --- searches ------------------------------------------------------------------------------------------------------


def _print_searches(rounds: int) -> None:
    """How a node that has nothing yet finds its first block among many that others have."""
    cluster = _AllocatorCluster(_POOL, _CLAIMED)
    cluster.assign(cluster.ipams, 0)
    request = _request(_CLAIMED, 0)
    snapshot = cluster.store.read(queries(request), deadline=_DEADLINE)
    while isinstance(needed := decide(snapshot, request, _CLOCK.now_ns(), hashed_start), NeedMore):
        snapshot = snapshot.merged(cluster.store.read(needed.queries, deadline=_DEADLINE))
    count = _POOL.subprefix_count(26)

    def find(candidates: int) -> list[Prefix]:
        start = hashed_start(request.node, _POOL, count)
        return list(islice(block_order(start, _POOL, 26), candidates))

    took_us = _best_us(
        {
            f"find the first candidate (goal {_SEARCH_GOAL_US:.0f})": lambda: find(1),
            f"find {PROBE_COUNT} candidates": lambda: find(PROBE_COUNT),
            "decide a node's first address": lambda: decide(snapshot, request, _CLOCK.now_ns(), hashed_start),
        },
        rounds,
        100,
    )
    print(f"{_POOL.size} addresses, {_CLAIMED} blocks claimed; CPU us, the best of {rounds} rounds")
    print("\n".join(f"{name:42} {taken:8.1f}" for name, taken in took_us.items()))
    print()


def _print_families(rounds: int) -> None:
    """The same pods in a small IPv4 pool and in a huge IPv6 one; every round fills new clusters."""
    prefixes = [Prefix.parse("10.3.7.0/24"), Prefix.parse("fd00:3:7::/64")]
    best = dict.fromkeys(prefixes, float("inf"))
    for prefix in prefixes * rounds:
        cluster = _AllocatorCluster(prefix, 4)
        best[prefix] = min(
            best[prefix], sum(_cpu_s(partial(cluster.assign, cluster.ipams, pod)) for pod in range(_PODS))
        )
    small_us, huge_us = (best[prefix] / (4 * _PODS) * 1e6 for prefix in prefixes)
    small, huge = prefixes
    ratio = huge_us / small_us
    print(f"{small}: {small_us:.1f} us, {huge}: {huge_us:.1f} us; CPU, ratio {ratio:.2f} (goal {_FAMILY_GOAL})\n")


def _print_shortfall(rounds: int) -> None:
    """What it takes to say that a pool is full, when all of its blocks have to be looked at."""
    cluster = _AllocatorCluster(_POOL, 0)
    first = Block.new(_POOL.subprefix(0, 26), owner="host:elsewhere", now_ns=_CLOCK.now_ns())
    full = first.assign(first.free, Attribute(handle="all"))
    blocks = [evolve(full, prefix=_POOL.subprefix(number, 26)) for number in range(_POOL.subprefix_count(26))]
    for begin in range(0, len(blocks), _BATCH):
        creates = tuple(Create(block.key, block) for block in blocks[begin : begin + _BATCH])
        cluster.store.commit(creates, deadline=_DEADLINE)
    ipam = cluster.ipam(None)

    def assign() -> None:
        assignment = ipam.assign(_request(0, 0), NO_ENDPOINT, deadline=_DEADLINE)
        if not assignment.shortfalls:
            raise SystemExit(f"a full pool gave {assignment.addresses}")

    took_us = _best_us({"refuse": assign}, max(1, rounds // 10), 1)
    print(f"{len(blocks)} full blocks: {took_us['refuse'] / 1e3:.0f} ms of CPU to refuse an address")


if __name__ == "__main__":
    print(json.dumps(asdict(_fill_cluster(int(sys.argv[1])))))
