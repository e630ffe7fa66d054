"""A drain over a store in memory: its steps, what refuses it, other operators, and every crash."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.datastore.transaction import LATEST_COMMIT_S
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.drain import (
    MAX_POLL_S,
    POLL_S,
    DrainCancelled,
    Drainer,
    DrainProgress,
    PoolManaged,
    cancel_drain,
    drain,
    plan_drain,
)
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.ipam.model import AFFINITY, Affinity, AffinityState, block_key
from netplug_core.ipam.outcome import NoPoolServes
from netplug_core.ipam.reporting.drain_plan import DRAIN_MARK, DrainedPool, DrainStep, is_draining, marked
from netplug_core.names import MANAGED_BY
from netplug_core.records import Malformed
from netplug_core.resources.ippool import IPPool, ippool_key
from netplug_core.testing.faults import (
    DamagedDatastore,
    Fault,
    FaultyDatastore,
    LostReply,
    ProcessDeath,
    ProcessDied,
    RunBefore,
)
from tests.harness.ipam import IPAMHarness, make_pool
from tests.harness.stores import HookedStore

MAIN = ippool_key("main")
MODES = (MemoryMode.ATOMIC, MemoryMode.ORDERED)


@define
class Draining:
    """An operator who drains the pool ``main``, of 10.0.0.0/24, beside the workloads of two nodes."""

    harness: IPAMHarness
    seen: list[DrainProgress] = field(factory=list)

    def drainer(self, store: Datastore | None = None) -> Drainer:
        return Drainer(store=store or self.harness.store, clock=self.harness.clock, pace=lambda: self.harness.pace)

    def drain(self, store: Datastore | None = None, wait_s: float | None = None) -> list[str]:
        """Drain it; the steps that were reported."""
        until = None if wait_s is None else Deadline.after(self.harness.clock, wait_s)
        record = self.harness.find_record(MAIN)
        assert record is not None
        self.seen.clear()
        for progress in drain(self.drainer(store), record, until):
            self.seen.append(progress)
        return [each.step.value for each in self.seen]

    def with_faults(self, script: Mapping[int, Fault]) -> FaultyDatastore:
        return FaultyDatastore(self.harness.store, script)

    @property
    def pool(self) -> IPPool | None:
        return self.harness.find(MAIN)

    def replace_pool(self) -> None:
        """Another person deletes the pool, and creates another one of its name."""
        self.harness.remove(MAIN)
        pool = make_pool("main", "10.9.0.0/24")
        self.harness.put(MAIN, evolve(pool, metadata=evolve(pool.metadata, uid="another")))


def make_draining(mode: MemoryMode) -> Draining:
    """A pool with a held address, and an empty block of another node."""
    harness = IPAMHarness.new(mode)
    harness.add_pool("main", "10.0.0.0/24")
    harness.assign_or_refuse("web")
    harness.put_owned_block("10.0.0.64/26", "node-b")
    return Draining(harness)


@pytest.fixture(params=MODES)
def draining(request: pytest.FixtureRequest) -> Draining:
    return make_draining(request.param)


def settled(draining: Draining, *steps: str) -> list[str]:
    """The steps, with the wait that an ordered store needs after the first one."""
    is_ordered = draining.harness.store.description.atomicity is Atomicity.ORDERED
    return [*steps[:1], *(["settle"] if is_ordered else []), *steps[1:]]


def test_a_pool_is_disabled_and_waits_for_its_workloads(draining: Draining) -> None:
    held = draining.harness.held()
    assert draining.drain() == settled(draining, "disable", "release", "wait")
    assert draining.harness.held() == held
    assert draining.harness.blocks() == {"10.0.0.0/26": "host:node-a"}
    pool = draining.pool
    assert pool is not None
    assert pool.metadata.annotations == ((DRAIN_MARK, "enabled"),)
    with pytest.raises(NoPoolServes):
        draining.harness.assign_or_refuse("late")
    draining.harness.release("web")
    draining.drain()
    assert draining.seen[-1] == DrainProgress(step=DrainStep.DELETE, view=None)
    assert (draining.pool, draining.harness.blocks(), draining.harness.affinities()) == (None, {}, {})


def test_an_unused_pool_goes_at_once(draining: Draining) -> None:
    draining.harness.release("web")
    assert draining.drain() == settled(draining, "disable", "release", "delete")


def test_a_pool_that_is_to_stay_is_empty_and_disabled_in_the_end(draining: Draining) -> None:
    record = draining.harness.find_record(MAIN)
    assert record is not None
    draining.harness.release("web")
    for steps in (settled(draining, "disable", "release", "keep"), None):
        found = [each.step.value for each in drain(draining.drainer(), record, outcome=DrainedPool.KEPT)]
        assert found[-1] == "keep"
        assert steps is None or found == steps
    pool = draining.pool
    assert pool is not None
    assert pool.spec.is_disabled
    assert (draining.harness.blocks(), draining.harness.affinities()) == ({}, {})
    assert draining.drain()[-1] == "delete"


def test_what_a_crash_left_of_claims_goes_too(draining: Draining) -> None:
    draining.harness.release("web")
    draining.harness.put_affinity("10.0.0.128/26", AffinityState.PENDING)
    draining.harness.put_affinity("10.0.0.128/26", AffinityState.PENDING_DELETION, "node-b")
    draining.harness.put_block("10.0.0.192/26", "")
    draining.drain()
    assert (draining.pool, draining.harness.blocks(), draining.harness.affinities()) == (None, {}, {})


def test_blocks_and_affinities_of_other_pools_stay(draining: Draining) -> None:
    draining.harness.add_pool("other", "10.1.0.0/24")
    draining.harness.put_owned_block("10.1.0.0/26")
    draining.harness.release("web")
    draining.drain()
    assert draining.harness.blocks() == {"10.1.0.0/26": "host:node-a"}


def test_addresses_in_cooldown_are_waited_for(draining: Draining) -> None:
    draining.harness.configure(cooldown_s=60)
    draining.harness.release("web")
    assert draining.drain()[-1] == "wait"
    assert draining.seen[-1].view is not None
    assert (draining.seen[-1].view.cooling, draining.seen[-1].view.held) == (1, ())
    assert draining.drain(wait_s=120)[-1] == "delete"
    assert draining.pool is None


def test_a_drain_that_waits_looks_again_until_the_workloads_are_gone(draining: Draining) -> None:
    record = draining.harness.find_record(MAIN)
    assert record is not None
    rounds = 0
    for progress in drain(draining.drainer(), record, Deadline.after(draining.harness.clock, 1000)):
        rounds += progress.step is DrainStep.WAIT
        if rounds == 3:
            draining.harness.release("web")
    assert rounds == 3
    assert draining.pool is None


def test_a_drain_waits_no_longer_than_it_may(draining: Draining) -> None:
    draining.drain()
    before = draining.harness.clock.monotonic()
    draining.drain(wait_s=3 * POLL_S)
    waits = sum(each.step is DrainStep.WAIT for each in draining.seen)
    assert draining.harness.clock.monotonic() - before <= LATEST_COMMIT_S + 3 * POLL_S
    assert 2 <= waits <= 4
    assert draining.pool is not None


def test_a_drain_that_waits_looks_less_often_while_nothing_changes(draining: Draining) -> None:
    draining.drain()
    before = draining.harness.clock.monotonic()
    draining.drain(wait_s=3600)
    waits = sum(each.step is DrainStep.WAIT for each in draining.seen)
    assert draining.harness.clock.monotonic() - before >= 3600
    assert waits <= 3600 / MAX_POLL_S + 5


def test_a_drain_that_waits_also_waits_for_the_datastore(draining: Draining) -> None:
    """3 a.m.: the server is started again, and the drain of the evening goes on."""
    draining.harness.release("web")
    back_s = draining.harness.clock.monotonic() + 100

    def be_silent() -> None:
        if draining.harness.clock.monotonic() < back_s:
            raise Unavailable("store", "it does not answer")

    store = HookedStore(draining.harness.store, before_read=be_silent)
    with pytest.raises(Unavailable):
        draining.drain(store)
    with pytest.raises(Unavailable):
        draining.drain(store, wait_s=20)
    assert {str(each.problem) for each in draining.seen} == {"store: it does not answer"}
    assert draining.drain(store, wait_s=3600)[-1] == "delete"
    assert draining.pool is None


# --- the way back -----------------------------------------------------------------------------------------------------


def test_a_drain_is_undone(draining: Draining) -> None:
    before = draining.pool
    draining.drain()
    assert cancel_drain(draining.drainer(), "main")
    assert draining.pool == before
    assert not cancel_drain(draining.drainer(), "main")
    assert draining.harness.assign_or_refuse("late") != []


def test_a_pool_that_was_disabled_before_stays_disabled(draining: Draining) -> None:
    draining.harness.disable_pool("main")
    before = draining.pool
    draining.drain()
    assert cancel_drain(draining.drainer(), "main")
    assert draining.pool == before


def test_an_undoing_whose_reply_was_lost_was_one(draining: Draining) -> None:
    draining.drain()
    assert cancel_drain(draining.drainer(draining.with_faults({1: LostReply()})), "main")
    assert draining.pool is not None
    assert not draining.pool.spec.is_disabled


def test_a_deletion_that_has_begun_is_not_undone(draining: Draining) -> None:
    pool = draining.pool
    assert pool is not None
    terminating = evolve(marked(pool), metadata=evolve(pool.metadata, deletion_time_ns=1, finalizers=("a.b/c",)))
    draining.harness.put(MAIN, terminating)
    with pytest.raises(DrainCancelled, match=r"^IPPool\(main\) is being deleted; that cannot be undone$"):
        cancel_drain(draining.drainer(), "main")
    draining.harness.release("web")
    assert draining.drain()[-1] == "wait"
    assert draining.seen[-1].view is not None
    assert draining.seen[-1].view.is_empty


# --- what refuses it --------------------------------------------------------------------------------------------------


def test_a_pool_that_does_not_exist(draining: Draining) -> None:
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(blue\)$"):
        plan_drain(draining.drainer(), "blue")
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(blue\)$"):
        cancel_drain(draining.drainer(), "blue")


def test_a_locked_datastore(draining: Draining) -> None:
    draining.harness.set_ready(is_ready=False)
    for operation in (partial(plan_drain, draining.drainer(), "main"), draining.drain):
        with pytest.raises(Unavailable, match="datastoreReady is false"):
            operation()
    assert draining.pool is not None
    assert not draining.pool.spec.is_disabled


@pytest.mark.parametrize(
    "cidr, is_refused", [("10.0.0.128/26", True), ("10.0.9.0/26", False)]
)  # fmt: skip
def test_a_damaged_block_counts_if_it_is_in_the_range(draining: Draining, cidr: str, *, is_refused: bool) -> None:
    draining.harness.release("web")
    draining.harness.put_block(cidr)
    key = block_key(Prefix.parse(cidr))
    store = DamagedDatastore(draining.harness.store, damage={key: b"{"})
    if is_refused:
        with pytest.raises(Malformed, match=cidr):
            draining.drain(store)
        assert draining.pool is not None
    else:
        assert draining.drain(store)[-1] == "delete"


def test_an_affinity_that_names_no_block_is_in_no_range(draining: Draining) -> None:
    draining.harness.release("web")
    odd = AFFINITY.key("host", "node-a", "ipv4", "no-cidr")
    draining.harness.put(odd, Affinity(state=AffinityState.CONFIRMED))
    assert draining.drain()[-1] == "delete"
    assert [record.key for record in draining.harness.records(AFFINITY)] == [odd]


def test_a_plan_warns_where_no_other_pool_serves(draining: Draining) -> None:
    view, warnings = plan_drain(draining.drainer(), "main")
    assert [str(held.address) for held in view.held] == list(draining.harness.held())
    assert warnings == (
        "IPPool(main): no other enabled IPv4 pool serves Workload, Tunnel; new requests will be refused",
    )
    assert draining.pool is not None
    assert not is_draining(draining.pool)


# --- other operators --------------------------------------------------------------------------------------------------


def test_a_drain_ends_where_the_pool_is_enabled_again(draining: Draining) -> None:
    record = draining.harness.find_record(MAIN)
    assert record is not None
    progress = drain(draining.drainer(), record, Deadline.after(draining.harness.clock, 1000))
    while next(progress).step is not DrainStep.WAIT:
        pass
    cancel_drain(draining.drainer(), "main")
    ended = r"^IPPool\(main\) was enabled again meanwhile; it is not drained any more$"
    with pytest.raises(DrainCancelled, match=ended):
        next(progress)
    assert draining.pool is not None
    assert not draining.pool.spec.is_disabled


def test_a_pool_that_stays_disabled_without_its_mark_is_drained(draining: Draining) -> None:
    """Somebody applies a file that disables the pool: its annotations are replaced."""
    record = draining.harness.find_record(MAIN)
    assert record is not None
    progress = drain(draining.drainer(), record, Deadline.after(draining.harness.clock, 1000))
    while next(progress).step is not DrainStep.WAIT:
        pass
    pool = draining.pool
    assert pool is not None
    draining.harness.put(MAIN, evolve(pool, metadata=evolve(pool.metadata, annotations=())))
    draining.harness.release("web")
    assert [each.step for each in progress][-1] is DrainStep.DELETE
    assert draining.pool is None


def test_a_pool_of_the_operator_is_not_drained(draining: Draining) -> None:
    assert draining.pool is not None
    draining.harness.put(MAIN, evolve(draining.pool, metadata=evolve(draining.pool.metadata, labels=(MANAGED_BY,))))
    with pytest.raises(PoolManaged, match=r"^IPPool\(main\) is kept by netplug-operator .*disableNewAllocations true"):
        plan_drain(draining.drainer(), "main")


@pytest.mark.parametrize("commit", range(1, 5))
def test_another_pool_of_the_name_is_not_drained(draining: Draining, commit: int) -> None:
    draining.harness.release("web")
    store = draining.with_faults({commit: RunBefore(draining.replace_pool)})
    assert draining.drain(store)[-1] == "delete"
    assert draining.pool is None or str(draining.pool.spec.prefix) == "10.9.0.0/24"
    assert draining.pool is None or not draining.pool.spec.is_disabled


@pytest.mark.parametrize("mode", MODES)
def test_a_pool_that_was_used_again_before_its_deletion_is_looked_at_again(mode: MemoryMode) -> None:
    draining = make_draining(mode)
    draining.harness.release("web")

    def use_again() -> None:
        cancel_drain(draining.drainer(), "main")
        draining.harness.assign_or_refuse("late")
        assert draining.pool is not None
        draining.harness.put(MAIN, marked(draining.pool))

    deletion = count_commits(mode)
    assert draining.drain(draining.with_faults({deletion: RunBefore(use_again)}))[-1] == "wait"
    assert list(draining.harness.held().values()) == ["late"]


def count_commits(mode: MemoryMode) -> int:
    """The commits of a whole drain of an unused pool; the last one deletes it."""
    draining = make_draining(mode)
    draining.harness.release("web")
    store = draining.with_faults({})
    draining.drain(store)
    return store.commits


@pytest.mark.parametrize("mode", MODES)
def test_another_operator_may_drain_the_pool_at_the_same_time(mode: MemoryMode) -> None:
    for commit in range(1, count_commits(mode) + 1):
        draining = make_draining(mode)
        draining.harness.release("web")
        other = Draining(draining.harness)
        with suppress(Unavailable):  # the other one has waited for longer than a call may take
            assert draining.drain(draining.with_faults({commit: RunBefore(other.drain)}))[-1] == "delete"
        assert [each.view for each in other.seen[-1:]] == [None]
        assert (draining.pool, draining.harness.blocks(), draining.harness.affinities()) == (None, {}, {})


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_used", [False, True], ids=["unused", "used"])
def test_a_drain_that_is_killed_anywhere_is_ended_by_the_next_one(mode: MemoryMode, *, is_used: bool) -> None:
    deaths = 0
    for commit in range(1, count_commits(mode) + 1):
        for applied in (0, None) if mode is MemoryMode.ATOMIC else (0, 1, 2, 3, None):
            draining = make_draining(mode)
            if not is_used:
                draining.harness.release("web")
            held = draining.harness.held()
            with suppress(ProcessDied):
                draining.drain(draining.with_faults({commit: ProcessDeath(applied)}))
                continue
            deaths += 1
            assert draining.harness.held() == held
            draining.harness.release("web")
            if draining.pool is not None:
                draining.drain()
            assert (draining.pool, draining.harness.blocks(), draining.harness.affinities()) == (None, {}, {})
    assert deaths >= 4


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_reply_changes_nothing(mode: MemoryMode) -> None:
    for commit in range(1, count_commits(mode) + 1):
        draining = make_draining(mode)
        draining.harness.release("web")
        assert draining.drain(draining.with_faults({commit: LostReply()}))[-1] == "delete"
        assert (draining.pool, draining.harness.blocks(), draining.harness.affinities()) == (None, {}, {})
