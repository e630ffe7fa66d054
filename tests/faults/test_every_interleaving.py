"""Two clients at a time, in every order in which their calls to the store can come: the laws hold after each commit.

Exhaustive, not sampled: a schedule says who makes the next call; each is run, then the one that differs from it in the
last choice that can be made otherwise. A client is a thread only so that it can be stopped at each of its calls; no
two of them ever run at once. A deep run (Hypothesis profile ``nightly``) lets every act meet every other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations_with_replacement
from threading import Semaphore, Thread

import pytest
from attrs import Factory, define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.allocation.request import Automatic, ReleaseRequest
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.allocator.client import CallFault, FaultKind
from netplug_core.testing.allocator.harness import AllocatorHarness
from netplug_core.testing.allocator.operations import (
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
from netplug_core.testing.allocator.strategies import make_pool, make_request
from netplug_core.testing.allocator.teardown import tear_down
from netplug_core.testing.clock import ManualClock
from tests.harness.local_stores import FAULT_MODES, IS_DEEP, open_standalone_ipam

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
MAX_TXN_OPERATIONS: Mapping[str, StoreOperation | RunCollector] = {
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


@define
class CallScheduler:
    """Lets one client run at a time, from one call to the store to the next."""

    waiting: dict[str, Semaphore] = field(default=Factory(dict))
    paused: Semaphore = field(factory=lambda: Semaphore(0))
    errors: list[BaseException] = field(default=Factory(list))

    def wait(self, name: str) -> None:
        """Stop here until it is this client's turn."""
        mine = self.waiting[name] = Semaphore(0)
        self.paused.release()
        mine.acquire()

    def run(self, clients: Mapping[str, Callable[[], object]], choose: Callable[[Sequence[str]], str]) -> None:
        """Run all clients to their ends, in the chosen order."""
        for name, client in clients.items():
            Thread(target=self._run_client, args=(name, client), daemon=True).start()
            self.paused.acquire()
        while self.waiting:
            self.waiting.pop(choose(sorted(self.waiting))).release()
            self.paused.acquire()
        if self.errors:
            raise self.errors[0]

    def _run_client(self, name: str, client: Callable[[], object]) -> None:
        self.wait(name)
        try:
            client()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test raises it
            self.errors.append(error)
        finally:
            self.paused.release()


def every_schedule(run: Callable[[Callable[[Sequence[str]], str]], None]) -> Iterator[str]:
    """Run every schedule once; what was chosen in each."""
    script: list[int] = []
    while True:
        options: list[int] = []
        chosen: list[str] = []

        def choose(
            waiting: Sequence[str],
            script: Sequence[int] = script,
            options: list[int] = options,
            chosen: list[str] = chosen,
        ) -> str:
            pick = script[len(options)] if len(options) < len(script) else 0
            options.append(len(waiting))
            chosen.append(waiting[pick])
            return waiting[pick]

        run(choose)
        yield " ".join(chosen)
        script = [*script, *[0] * (len(options) - len(script))]
        while script and script[-1] + 1 >= options[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


def run_concurrently(
    operations: Sequence[StoreOperation | RunCollector], mode: MemoryMode, choose: Callable[[Sequence[str]], str]
) -> None:
    """Do some acts at once, in the order that is chosen; then take everything down."""
    clock, turns = ManualClock(), CallScheduler()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_standalone_ipam)
    for act in SETUP:
        harness.run(act)

    def client(name: str, act: StoreOperation | RunCollector) -> object:
        stops = (
            CallFault(FaultKind.CONCURRENT_OPERATION, at, operation=partial(turns.wait, name))
            for at in range(1, MAX_CALLS)
        )
        return harness.run(act, *stops)

    turns.run({str(n): partial(client, str(n), act) for n, act in enumerate(operations)}, choose)
    tear_down(harness)


def pairs() -> list[tuple[str, str]]:
    every = combinations_with_replacement(MAX_TXN_OPERATIONS, 2)
    return [pair for pair in every if pair[0] != pair[1]] if IS_DEEP else list(PAIRS)


@pytest.mark.parametrize("mode", FAULT_MODES)
@pytest.mark.parametrize("names", pairs(), ids=" and ".join)
def test_in_whatever_order_two_clients_call_nothing_is_lost(names: tuple[str, str], mode: MemoryMode) -> None:
    acts = [MAX_TXN_OPERATIONS[name] for name in names]
    ran = list(every_schedule(partial(run_concurrently, acts, mode)))
    assert len(set(ran)) == len(ran) > 1
