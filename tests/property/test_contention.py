"""Many nodes and few blocks, all at once: everyone is served, and nobody asks the store more often than is sane.

Thirty-two nodes want their first address in the same moment, from a pool of sixteen blocks. The nodes are threads, but
time is simulated: a call to the store takes a millisecond, who waits sleeps on the same clock, and of all nodes the one
that is furthest behind goes on, alone. So each run is the one that its seed says, and no real time is waited.

- Every node gets its address, no address goes to two, and no node has to give up.
- Each block belongs to another node; those that came too late borrow.
- The calls of each node are bounded. How many they were is printed (``pytest -rP``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from statistics import median
from threading import Event, Thread

import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.interface import Atomicity, Datastore, DatastoreDescription
from netplug_core.datastore.warm import Warm
from netplug_core.ipam.affinity import AFFINITY
from netplug_core.ipam.block import BLOCK
from netplug_core.ipam.handle import HANDLE
from netplug_core.ipam.interface import NO_ENDPOINT
from netplug_core.ipam.request import AssignRequest, Automatic, Shortfall
from netplug_core.ipam.search import BlockOrder, hashed_start
from netplug_core.records import Change, Create, Kind, List, Query, Revision, Snapshot, Write
from netplug_core.resources.ippool import AllowedUse, IPPool
from netplug_core.testing.clock import ManualClock

NODES, BLOCKS = 32, 16
POOL = Prefix.parse("10.0.0.0/22")
LATENCY_S = 0.001
DEADLINE_S = 60.0
ROUNDS = 3
MOST_CALLS = 50
"""What one node may ask of the store for one address; the worst of 480 runs asked 32 times."""

# A run takes a tenth of a second.
FEWER = settings(max_examples=max(5, settings().max_examples // 6))


@define
class Turns:
    """Simulated time: everybody has a clock, and who is furthest behind goes on while all others stand still."""

    times: dict[int, float]
    _may_go: dict[int, Event] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._may_go = {who: Event() for who in self.times}

    def run(self, threads: Sequence[Thread]) -> None:
        """Let everybody begin, and wait until all are done."""
        for thread in threads:
            thread.start()
        self._pass_on()
        for thread in threads:
            thread.join()

    def begin(self, who: int) -> None:
        """Wait for the first turn."""
        self._may_go[who].wait()
        self._may_go[who].clear()

    def wait(self, who: int, seconds: float) -> None:
        """Let time pass for one of them."""
        self.times[who] += seconds
        self._pass_on()
        self.begin(who)

    def leave(self, who: int) -> None:
        """One of them is done."""
        del self.times[who]
        self._pass_on()

    def _pass_on(self) -> None:
        if self.times:
            self._may_go[min(self.times, key=lambda who: (self.times[who], who))].set()


@frozen
class NodeClock:
    """The clock of one node; sleeping on it lets others go first."""

    turns: Turns
    who: int

    def now_ns(self) -> int:
        return ManualClock().wall_ns + int(self.monotonic() * 1_000_000_000)

    def monotonic(self) -> float:
        return self.turns.times[self.who]

    def sleep(self, seconds: float) -> None:
        self.turns.wait(self.who, seconds)


@define
class Remote:
    """A store at the other end of a wire: each call takes time, and is counted."""

    inner: Datastore
    clock: NodeClock
    calls: int = 0

    @property
    def description(self) -> DatastoreDescription:
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self._take_time()
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        self._take_time()
        return self.inner.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        return self.inner.watch(start, deadline=deadline)

    def _take_time(self) -> None:
        self.calls += 1
        self.clock.sleep(LATENCY_S)


@define
class Crush:
    """One run: what each node was given, how often it asked the store, and how long it took."""

    store: MemoryDatastore
    given: dict[int, tuple[str, ...]] = field(factory=dict)
    calls: dict[int, int] = field(factory=dict)
    took_s: dict[int, float] = field(factory=dict)
    problems: list[BaseException] = field(factory=list)

    def tell(self, title: str) -> None:
        calls = sorted(self.calls.values())
        print(  # noqa: T201 # the numbers are what this test is run for
            f"{title}: calls per node {calls[0]} to {calls[-1]}, median {median(calls):g}, {sum(calls)} in all; "
            f"the last node was served after {max(self.took_s.values()) * 1000:.0f} ms of simulated time"
        )

    def owners(self) -> list[str]:
        query = List(BLOCK)
        blocks = self.store.read((query,), deadline=Deadline.after(ManualClock(), 1)).list(query)
        return [record.value.owner for record in blocks]

    def claims(self) -> list[tuple[str, str]]:
        query = List(AFFINITY)
        records = self.store.read((query,), deadline=Deadline.after(ManualClock(), 1)).list(query)
        return [(record.key.path[1], record.value.state.value) for record in records]


def chances(seed: int, who: int) -> Iterator[float]:
    """Numbers in [0, 1) that follow from seed and node."""
    for number in count():
        digest = hashlib.sha256(f"{seed} {who} {number}".encode()).digest()
        yield int.from_bytes(digest[:6], "big") / 2**48


def all_at_the_first(node: str, pool: Prefix, blocks: int) -> int:
    """The worst order there is: every node looks at the same block."""
    return 0


def crush(seed: int, atomicity: Atomicity, order: BlockOrder, *, rounds: int = 1, is_warm: bool = False) -> Crush:
    """Every node assigns ``rounds`` addresses, one after the other, beginning in the same moment."""
    run = Crush(MemoryDatastore(atomicity, clock=ManualClock()))
    pool = IPPool.over(POOL, name="main")
    run.store.commit((Create(pool.key, pool),), deadline=Deadline.after(ManualClock(), 1))
    turns = Turns(dict.fromkeys(range(NODES), 0.0))

    def act(who: int) -> None:
        clock, chance = NodeClock(turns, who), chances(seed, who)
        store = Remote(run.store, clock)
        warm = Warm.over(store, clock=clock, passing=frozenset({HANDLE})) if is_warm else None
        ipam = BlockIPAM(datastore=store, clock=clock, chance=lambda: next(chance), order=order, warm=warm)
        turns.begin(who)
        try:
            for number in range(rounds):
                wish = AssignRequest(
                    handle=f"{who}-{number}",
                    node=f"node-{who}",
                    wanted=(Automatic(family=Family.IPV4),),
                    use=AllowedUse.WORKLOAD,
                    shortfall=Shortfall.REFUSE,
                )
                made = ipam.assign(wish, NO_ENDPOINT, deadline=Deadline.after(clock, DEADLINE_S))
                run.given[who] = (*run.given.get(who, ()), *(str(assigned.address) for assigned in made.addresses))
            run.calls[who], run.took_s[who] = store.calls, clock.monotonic()
        except BaseException as problem:  # noqa: BLE001 # it is told in the thread of the test
            run.problems.append(problem)
        finally:
            turns.leave(who)

    turns.run([Thread(target=act, args=(who,)) for who in range(NODES)])
    return run


def judge(run: Crush, rounds: int = 1) -> None:
    """Everyone is served, once, and each block has one owner."""
    assert run.problems == []
    addresses = [address for given in run.given.values() for address in given]
    assert len(addresses) == len(set(addresses)) == NODES * rounds
    owners = run.owners()
    assert len(owners) == len(set(owners)) == BLOCKS
    confirmed = [f"host:{node}" for node, state in run.claims() if state == "confirmed"]
    assert sorted(confirmed) == sorted(owners)


@pytest.mark.parametrize("atomicity", Atomicity)
@pytest.mark.parametrize("order", [hashed_start, all_at_the_first])
@FEWER
@given(seed=st.integers(0, 2**32))
def test_everyone_is_served_with_few_calls(atomicity: Atomicity, order: BlockOrder, seed: int) -> None:
    run = crush(seed, atomicity, order)
    judge(run)
    assert max(run.calls.values()) <= MOST_CALLS
    assert max(run.took_s.values()) < DEADLINE_S / 10


@pytest.mark.parametrize("atomicity", Atomicity)
@pytest.mark.parametrize("is_warm", [False, True])
@FEWER
@given(seed=st.integers(0, 2**32))
def test_so_it_is_when_each_wants_one_after_the_other(atomicity: Atomicity, *, is_warm: bool, seed: int) -> None:
    """Also for resident processes, whose memory the others make stale at every turn."""
    run = crush(seed, atomicity, hashed_start, rounds=ROUNDS, is_warm=is_warm)
    judge(run, ROUNDS)
    assert max(run.calls.values()) <= ROUNDS * MOST_CALLS


def test_how_often_the_store_is_asked() -> None:
    """Trap 41: in place of the thousands of calls that loops without back-off make of this."""
    for atomicity in Atomicity:
        for order in (hashed_start, all_at_the_first):
            run = crush(0, atomicity, order)
            judge(run)
            run.tell(f"{NODES} nodes, {BLOCKS} blocks, {atomicity.value} store, {order.__name__}")
            assert sum(run.calls.values()) <= 20 * NODES


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (crush(7, Atomicity.ATOMIC, hashed_start) for _ in range(2))
    assert (first.given, first.calls, first.took_s) == (second.given, second.calls, second.took_s)
