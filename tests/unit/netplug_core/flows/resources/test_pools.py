"""The deletion of a pool before its record is deleted: it is disabled, and its blocks are relinquished."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from attrs import define, evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.clock import SECOND_NS, Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.affinities import delete_unused_blocks
from netplug_core.flows.ipam.check import RepairResult, find_loss, restore_blocks
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.flows.resources.cluster import lock, lock_for_loss, unlock_after_loss
from netplug_core.flows.resources.outcome import (
    BlocksLost,
    DeletionCancelled,
    Effect,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.flows.resources.pools import held_warnings, prepare_deletion, read_utilization
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Shortfall
from netplug_core.ipam.model import AFFINITY, BLOCK, Affinity, AffinityState, Attribute, Block, affinity_key, block_key
from netplug_core.ipam.outcome import NoPoolServes
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, Get, List, OutcomeUnknown, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool
from netplug_core.resources.kinds import key_of
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import Fault, LostReply, ProcessDeath, ProcessDied, RunBefore
from tests.harness.resources import CONFIGURATION, ENDPOINT, ResourceHarness, make_pool
from tests.harness.stores import HookedStore


@pytest.fixture
def harness() -> ResourceHarness:
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(make_pool())
    return harness


def drain(harness: ResourceHarness, revision: str = "", store: Datastore | None = None) -> None:
    prepare_deletion(store or harness.store, harness.stored(), revision=revision, pace=harness.pace)


def make_block(cidr: str, *held: int, owner: str = "host:a") -> tuple[Create[object], Create[object]]:
    block = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    block = block.assign(tuple(map(Ordinal, held)), Attribute(handle="h")) if held else block
    return Create(affinity_key(owner, block.prefix), Affinity(state=AffinityState.CONFIRMED)), Create(block.key, block)


def test_a_pool_is_disabled_before_it_is_deleted(harness: ResourceHarness) -> None:
    before = harness.stored().value
    drain(harness)
    assert harness.stored().value == evolve(before, spec=evolve(before.spec, is_disabled=True))
    commits = harness.store.calls.commits
    drain(harness)
    assert harness.store.calls.commits == commits


@pytest.mark.parametrize("mode, waited_s", [(MemoryMode.ATOMIC, 0.0), (MemoryMode.ORDERED, 10.0)])
def test_on_an_ordered_store_running_assignments_are_waited_for(mode: MemoryMode, waited_s: float) -> None:
    harness = ResourceHarness.with_mode(mode)
    harness.create(make_pool())
    before = harness.clock.monotonic()
    drain(harness)
    assert harness.clock.monotonic() - before == waited_s
    assert harness.stored().value.spec.is_disabled


def test_a_pool_of_another_version_is_not_disabled(harness: ResourceHarness) -> None:
    first = harness.stored().revision
    harness.apply(make_pool(has_outgoing_nat=True))
    with pytest.raises(ResourceOutdated):
        drain(harness, revision=first)
    assert not harness.stored().value.spec.is_disabled
    drain(harness, revision=harness.stored().revision)
    assert harness.stored().value.spec.is_disabled


def test_a_lost_reply_with_a_version_is_an_unknown_outcome(harness: ResourceHarness) -> None:
    with pytest.raises(OutcomeUnknown):
        drain(harness, revision=harness.stored().revision, store=harness.with_faults(commit_1=LostReply()))
    assert harness.stored().value.spec.is_disabled


def test_another_pool_of_the_same_name_stays_enabled(harness: ResourceHarness) -> None:
    def replace_pool() -> None:
        harness.delete("p")
        harness.create(make_pool("10.9.0.0/16"))

    drain(harness, store=harness.with_faults(commit_1=RunBefore(replace_pool)))
    assert not harness.stored().value.spec.is_disabled


def test_nothing_is_done_for_a_pool_that_is_gone(harness: ResourceHarness) -> None:
    seen = harness.stored()
    assert (
        harness.delete("p", store=harness.with_faults(commit_1=RunBefore(lambda: harness.delete("p")))).effect
        is Effect.DELETED
    )
    commits = harness.store.calls.commits
    prepare_deletion(harness.store, seen, revision="", pace=harness.pace)
    assert harness.store.calls.commits == commits


def test_the_blocks_of_a_deleted_pool_are_relinquished_for_all_owners(harness: ResourceHarness) -> None:
    """I-62 of the catalogue, and trap 33: affinities of hosts and of other owners."""
    harness.create(make_pool("10.9.0.0/16", "other"))
    harness.put(
        *make_block("10.0.0.0/26"),
        *make_block("10.0.0.64/26", 5),
        *make_block("10.0.0.128/26", owner="virtual:balancer"),
        *make_block("10.9.0.0/26"),
    )
    drain(harness)
    snapshot = harness.store.read([List(AFFINITY), List(BLOCK)], deadline=harness.deadline)
    assert [record.key.name for record in snapshot.list(List(AFFINITY))] == ["10.9.0.0/26"]
    blocks = {str(record.value.prefix): record.value for record in snapshot.list(List(BLOCK))}
    assert sorted(blocks) == ["10.0.0.64/26", "10.9.0.0/26"]
    assert blocks["10.0.0.64/26"].owner == ""
    assert [held.ordinal for held in blocks["10.0.0.64/26"].held()] == [5]


def enable(harness: ResourceHarness) -> None:
    harness.apply(make_pool())


@pytest.mark.parametrize("commit", ["commit_2", "commit_3"])
def test_a_pool_that_is_enabled_again_meanwhile_is_not_deleted(harness: ResourceHarness, commit: str) -> None:
    """The person sees the mistake before the deletion ends. Commit 2 relinquishes blocks, commit 3 deletes the pool."""
    harness.put(*make_block("10.0.0.0/26", 1))
    store = harness.with_faults(**{commit: RunBefore(lambda: enable(harness))})
    with pytest.raises(DeletionCancelled, match=r"^IPPool\(p\) was enabled again meanwhile; it is not deleted$"):
        harness.delete("p", store=store)
    assert not harness.stored().value.spec.is_disabled


@pytest.mark.parametrize("fault", [ProcessDeath(0), ProcessDeath(None)])
@pytest.mark.parametrize("commit", ["commit_1", "commit_2", "commit_3"])
def test_a_deletion_that_stopped_is_completed_by_the_next(harness: ResourceHarness, commit: str, fault: Fault) -> None:
    harness.put(*make_block("10.0.0.0/26"), *make_block("10.0.0.64/26", 5))
    with pytest.raises(ProcessDied):
        harness.delete("p", store=harness.with_faults(**{commit: fault}))
    if harness.names():
        assert harness.delete("p").effect is Effect.DELETED
    assert harness.names() == []
    snapshot = harness.store.read([List(AFFINITY), List(BLOCK)], deadline=harness.deadline)
    assert snapshot.list(List(AFFINITY)) == ()
    assert [record.value.owner for record in snapshot.list(List(BLOCK))] == [""]


def test_addresses_that_are_cooling_down_give_no_warning(harness: ResourceHarness) -> None:
    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    block = block.assign((Ordinal(0), Ordinal(5)), Attribute(handle="h"))
    resting = block.release(frozenset({Ordinal(0), Ordinal(5)}), cooling_from_ns=5_000_000_000)
    harness.put(Create(resting.key, resting))
    assert held_warnings(harness.store, harness.stored().value, deadline=harness.deadline) == ()


# --- blocks that nobody uses --------------------------------------------------------------------------------------


def stored_blocks(harness: ResourceHarness) -> dict[str, str]:
    blocks = harness.store.read([List(BLOCK)], deadline=harness.deadline).list(List(BLOCK))
    return {record.key.name: record.value.owner for record in blocks}


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_block_whose_last_address_has_cooled_down_goes_with_its_pool(mode: MemoryMode) -> None:
    harness = ResourceHarness.with_mode(mode)
    harness.create(make_pool())
    harness.put(*make_block("10.0.0.0/26", owner="")[1:], *make_block("10.0.0.64/26", 5, owner="")[1:])
    assert harness.delete("p").effect is Effect.DELETED
    assert stored_blocks(harness) == {"10.0.0.64/26": ""}


def test_a_pool_of_another_block_size_can_be_created_when_the_last_address_has_cooled_down() -> None:
    """The pool went while the address cooled down, so that its block stayed, and no command could delete it."""
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(CONFIGURATION)  # a cooldown of 60 seconds
    (created,) = make_block("10.0.0.0/26", 5, owner="")[1:]
    block = created.value
    assert isinstance(block, Block)
    harness.put(Create(block.key, block.release(frozenset({Ordinal(5)}), cooling_from_ns=harness.clock.now_ns())))
    wanted = make_pool("10.0.0.0/24", block_length=28)
    with pytest.raises(InvalidResource, match="blocksSize conflicts"):
        harness.create(wanted)
    harness.clock.sleep(62)
    assert harness.create(wanted).effect is Effect.CREATED
    assert stored_blocks(harness) == {}


def test_a_block_that_is_used_again_meanwhile_stays(harness: ResourceHarness) -> None:
    harness.put(*make_block("10.0.0.0/26", owner="")[1:])

    def use() -> None:
        found = harness.store.read([Get(key)], deadline=harness.deadline).find(key)
        assert found is not None
        if not found.value.used_count:
            used = found.value.assign((Ordinal(1),), Attribute(handle="h"))
            harness.store.commit([Update(key, used, found.revision)], deadline=harness.deadline)

    key = block_key(Prefix.parse("10.0.0.0/26"))
    delete_unused_blocks(
        HookedStore(inner=harness.store, before_commit=use), Prefix.parse("10.0.0.0/16"), pace=harness.pace
    )
    assert stored_blocks(harness) == {"10.0.0.0/26": ""}


# --- ordered stores -----------------------------------------------------------------------------------------------


@define
class EventfulClock(ManualClock):
    """A clock that calls a function while somebody sleeps on it for long."""

    during_sleep: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        """Let something happen in the meantime."""
        super().sleep(seconds)
        if seconds >= 1:
            self.during_sleep()


def make_ordered() -> tuple[ResourceHarness, EventfulClock]:
    clock = EventfulClock()
    return ResourceHarness(clock, MemoryDatastore(MemoryMode.KUBE_LIKE, clock=clock)), clock


def test_blocks_that_are_claimed_while_a_deletion_runs_are_relinquished_too() -> None:
    """Requests that read the pool before it was disabled may commit while the deletion waits, and a little later."""
    harness, clock = make_ordered()
    harness.create(make_pool())
    clock.during_sleep = lambda: harness.put(*make_block("10.0.0.0/26"), *make_block("10.0.0.64/26", 5))
    store = HookedStore(inner=harness.store)

    def claim() -> None:
        if len(store.commits) == 2:  # the second commit relinquishes
            harness.put(*make_block("10.0.0.128/26"))

    store.after_commit = claim
    assert harness.delete("p", store=store).effect is Effect.DELETED
    snapshot = harness.store.read([List(AFFINITY)], deadline=harness.deadline)
    assert snapshot.list(List(AFFINITY)) == ()
    assert stored_blocks(harness) == {"10.0.0.64/26": ""}


def test_an_add_that_read_the_pool_too_long_ago_reads_it_again() -> None:
    """The deletion has stopped waiting for it: pool, affinities and blocks are gone when it goes on."""
    harness, _clock = make_ordered()
    harness.create(make_pool())
    store = HookedStore(inner=harness.store)
    store.after_read = lambda: harness.delete("p") if harness.names() else None
    request = AssignRequest(
        handle="h", node="a", wanted=(Automatic(family=Family.IPV4),), use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )  # fmt: skip
    ipam = BlockIPAM(datastore=store, clock=harness.clock, chance=lambda: 0.5)
    with pytest.raises(NoPoolServes):
        ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(harness.clock, 60))
    assert store.commits == []
    assert stored_blocks(harness) == {}


def other_pool(harness: ResourceHarness, *, later_s: int) -> IPPool:
    """A pool in the same range that somebody else creates at the same time."""
    created_ns = harness.clock.now_ns() + later_s * SECOND_NS
    return evolve(make_pool("10.0.0.0/17", "other"), metadata=Metadata(name="other", creation_time_ns=created_ns))


def race(harness: ResourceHarness, other: IPPool) -> tuple[str, ...]:
    """Create a pool; the other one is stored when this one has decided. The names of the pools that stay."""
    store = HookedStore(inner=harness.store)
    store.before_commit = lambda: harness.put(Create(other.key, other)) if len(store.commits) == 1 else None
    with suppress(InvalidResource):
        harness.create(make_pool(), store=store)
    return tuple(harness.names())


def test_of_two_racing_creations_the_later_one_withdraws_at_once() -> None:
    harness, clock = make_ordered()
    before = clock.monotonic()
    assert race(harness, other_pool(harness, later_s=-1)) == ("other",)
    assert clock.monotonic() == before


def test_the_earlier_one_stays_when_the_later_one_has_withdrawn() -> None:
    harness, clock = make_ordered()
    clock.during_sleep = lambda: harness.remove("other")
    assert race(harness, other_pool(harness, later_s=1)) == ("p",)


def test_the_earlier_one_withdraws_if_the_later_one_ended_before_it_was_stored() -> None:
    """The creation times are those of two machines, or the earlier one was delayed: the other did not see it."""
    harness, _clock = make_ordered()
    assert race(harness, other_pool(harness, later_s=1)) == ("other",)


def test_a_pool_that_was_replaced_is_not_withdrawn() -> None:
    harness, clock = make_ordered()
    other = other_pool(harness, later_s=1)

    def replace_pool() -> None:
        harness.remove("p")
        replacement = make_pool("10.9.0.0/16")
        harness.put(Create(replacement.key, replacement))

    clock.during_sleep = replace_pool
    assert race(harness, other) == ("other", "p")


def test_without_a_race_nothing_is_waited_for() -> None:
    harness, clock = make_ordered()
    before = clock.monotonic()
    assert harness.create(make_pool()).effect is Effect.CREATED
    assert harness.create(make_pool("10.9.0.0/16", "q")).effect is Effect.CREATED
    assert clock.monotonic() == before


# --- lost blocks -----------------------------------------------------------------------------------------------------


@pytest.fixture
def emptied() -> ResourceHarness:
    """A cluster of Kubernetes whose definitions were deleted while a workload has an address."""
    made = ResourceHarness.with_mode(MemoryMode.ORDERED)
    made.store.description = evolve(made.store.description, name="kubernetes")
    endpoint = evolve(ENDPOINT, spec=evolve(ENDPOINT.spec, addresses=(Address.parse("10.0.0.5"),)))
    made.put(Create(key_of(endpoint), endpoint))
    return made


def test_no_pool_is_made_over_addresses_that_no_block_holds(emptied: ResourceHarness) -> None:
    for write in (emptied.create, emptied.apply):
        with pytest.raises(BlocksLost, match=r"IPPool\(p\): workloads have 1 addresses that no block holds") as caught:
            write(make_pool())
        assert str(caught.value).endswith("run netplugctl ipam check --restore first")
    assert emptied.create(make_pool("10.1.0.0/16", "elsewhere")).effect is Effect.CREATED


def test_a_pool_that_gives_none_by_itself_is_made_over_addresses_of_host_local(emptied: ResourceHarness) -> None:
    """Pods run with them until they are imported; then there are blocks, and the pool becomes Automatic."""
    pool = make_pool()
    manual = evolve(pool, spec=evolve(pool.spec, assignment_mode=AssignmentMode.MANUAL))
    assert emptied.apply(manual).effect is Effect.CREATED


def test_in_a_locked_datastore_a_pool_may_be_made_first(emptied: ResourceHarness) -> None:
    """Nothing is assigned from it meanwhile, and it says how large blocks are."""
    lock(emptied.store, pace=emptied.pace, new_uid=emptied.new_uid)
    assert emptied.create(make_pool(block_length=28)).effect is Effect.CREATED


def test_after_the_blocks_are_restored_a_pool_is_made(emptied: ResourceHarness) -> None:
    restoring = restore_blocks(emptied.store, network="n", chance=lambda: 0.5, deadline=emptied.deadline)
    assert [attempt.result for attempt in restoring] == [RepairResult.DONE]
    assert emptied.create(make_pool()).effect is Effect.CREATED


def test_other_datastores_have_no_definitions_to_lose(emptied: ResourceHarness) -> None:
    """A workload of host-local has an address and no block."""
    emptied.store.description = evolve(emptied.store.description, name="etcdv3")
    assert emptied.create(make_pool()).effect is Effect.CREATED


def test_a_loss_lasts_until_every_address_is_held(emptied: ResourceHarness) -> None:
    """Without the lock, one block shows that blocks were not lost."""
    other = evolve(ENDPOINT, metadata=evolve(ENDPOINT.metadata, name="v"))
    other = evolve(other, spec=evolve(other.spec, addresses=(Address.parse("10.0.9.5"),)))
    emptied.put(Create(key_of(other), other))
    lock_for_loss(emptied.store, pace=emptied.pace, new_uid=emptied.new_uid)
    assert "2 addresses" in find_loss(emptied.store, deadline=emptied.deadline)
    next(restore_blocks(emptied.store, network="n", chance=lambda: 0.5, deadline=emptied.deadline))
    assert "1 addresses" in find_loss(emptied.store, deadline=emptied.deadline)
    unlock_after_loss(emptied.store, pace=emptied.pace)
    assert find_loss(emptied.store, deadline=emptied.deadline) == ""


# --- a second family -------------------------------------------------------------------------------------------------


def test_the_first_pool_of_a_second_family_is_warned_of() -> None:
    made = ResourceHarness.with_mode(MemoryMode.ORDERED)
    made.store.description = evolve(made.store.description, name="kubernetes")
    six = make_pool("fd00::/112", "six")
    text = (
        "IPPool(six): the first pool of IPv6: with an Installation, new pods get an address of IPv6 too from now on, "
        "and the pods of netplug-node are replaced on every node"
    )
    assert made.create(make_pool()).warnings == ()
    assert made.create(six).warnings == (text,)
    assert made.apply(six).warnings == ()
    assert made.create(make_pool("fd01::/112", "more")).warnings == ()
    disabled = make_pool("fd02::/112", "off", is_disabled=True)
    assert made.create(disabled).warnings == ()


def test_without_an_api_server_there_is_no_installation() -> None:
    made = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    made.create(make_pool())
    assert made.create(make_pool("fd00::/112", "six")).warnings == ()


def test_a_pool_is_selected_by_its_name_or_cidr(harness: ResourceHarness) -> None:
    harness.put(Create(key_of(make_pool("10.0.0.0/24", "blue")), make_pool("10.0.0.0/24", "blue")))
    for word in ("blue", "10.0.0.0/24"):
        (found,) = read_utilization(harness.store, (word,), deadline=harness.deadline)
        assert found.name == "blue"
    for word in ("green", "10.0.1.0/24"):
        with pytest.raises(ResourceMissing, match=word):
            read_utilization(harness.store, (word,), deadline=harness.deadline)
