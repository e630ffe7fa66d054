"""Splitting a pool on every memory store: refusals, every fault at every write, and others at work at the same time."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.errors import NetplugError
from netplug_core.flows.resources.cluster import ImportUnfinished, lock, unlock
from netplug_core.flows.resources.drain import (
    PART_MARK,
    SPLIT_MARK,
    PoolManaged,
    SplitPlan,
    SplitRefused,
    WantedSplit,
    plan_split,
    split,
)
from netplug_core.flows.resources.outcome import ResourceExists
from netplug_core.flows.resources.write import create
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Block
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.names import MANAGED_BY, RESOURCE_DOMAIN
from netplug_core.records import List, Malformed, Record
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, AllowedUse, Encapsulation, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import (
    DamagedDatastore,
    Fault,
    FaultyDatastore,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
    RunBefore,
)
from tests.harness.collector import CollectorHarness
from tests.harness.leaks import make_pace
from tests.harness.local_stores import open_standalone_ipam

RANGE = Prefix.parse("10.0.1.0/24")
SPEC = IPPoolSpec(
    prefix=RANGE,
    block_length=27,
    ipip_mode=Encapsulation.ALWAYS,
    node_selector="foo == 'bar' || all()",
    unknown_json="",
)
LABELS = (("tier", "gold"),)
PODS = ("a-1", "a-2", "b-1")
BY_NAME = WantedSplit(count=4, name="ippool-name1")
FAULTS = (ProcessDeath(0), ProcessDeath(None), LostReply(), LostRequest())


def make_harness(mode: MemoryMode, spec: IPPoolSpec = SPEC) -> CollectorHarness:
    """A locked cluster with a pool, in which pods of two nodes have addresses of two blocks."""
    harness = CollectorHarness()
    harness.inner = harness.store = MemoryDatastore(mode, clock=harness.clock)
    pool = IPPool(metadata=Metadata(name="ippool-name1", labels=LABELS), spec=spec)
    create_pool(harness, pool)
    for handle in PODS:
        assign(harness, handle)
    set_locked(harness)
    return harness


def new_uid() -> str:
    return f"00000000-0000-4000-8000-{next(_NUMBERS):012}"


_NUMBERS = iter(range(1, 10**9))


def create_pool(harness: CollectorHarness, pool: IPPool) -> None:
    create(harness.inner, Manifest(resource=pool), pace=make_pace(harness), new_uid=new_uid)


def set_locked(harness: CollectorHarness) -> None:
    lock(harness.inner, pace=make_pace(harness), new_uid=new_uid)


def assign(harness: CollectorHarness, handle: str) -> str:
    request = AssignRequest(
        handle=handle,
        node=f"node-{handle[0]}",
        wanted=(Automatic(family=Family.IPV4),),
        owner=(("node", f"node-{handle[0]}"),),
        use=AllowedUse.WORKLOAD,
    )
    ipam = open_standalone_ipam(harness.inner, harness.clock)
    return str(ipam.assign(request, NO_ENDPOINT, deadline=harness.deadline).addresses[0].address)


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> CollectorHarness:
    return make_harness(request.param)


def plan(harness: CollectorHarness, wanted: WantedSplit = BY_NAME, store: Datastore | None = None) -> SplitPlan:
    return plan_split(store or harness.store, wanted, deadline=harness.deadline)


def run(harness: CollectorHarness, wanted: WantedSplit = BY_NAME, store: Datastore | None = None) -> list[str]:
    store = store or harness.store
    found = plan(harness, wanted, store)
    done = split(store, found, pace=lambda: make_pace(harness), new_uid=new_uid)
    return [f"{key} {text}" for key, text in done]


def refusal(harness: CollectorHarness, wanted: WantedSplit) -> str:
    with pytest.raises(SplitRefused) as refused:
        plan(harness, wanted)
    return str(refused.value)


def pools(harness: CollectorHarness) -> dict[str, IPPool]:
    listed = harness.inner.read((List(IPPOOL),), deadline=harness.deadline).list(List(IPPOOL))
    return {record.key.name: record.value for record in listed}


def addresses(harness: CollectorHarness) -> list[Record[object]]:
    """Everything that says who has which address."""
    queries = (List(BLOCK), List(AFFINITY), List(HANDLE))
    snapshot = harness.inner.read(queries, deadline=harness.deadline)
    return [record for query in queries for record in snapshot.list(query)]


def blocks(harness: CollectorHarness) -> list[Block]:
    listed = harness.inner.read((List(BLOCK),), deadline=harness.deadline).list(List(BLOCK))
    return [record.value for record in listed]


def held_by(block: Block, handle: str) -> list[Address]:
    return [held.address for held in block.held() if held.attribute.handle == handle]


def assert_split(harness: CollectorHarness, count: int = 4) -> None:
    found = pools(harness)
    assert list(found) == [f"split-ippool-name1-{number}" for number in range(count)]
    for number, part in enumerate(found.values()):
        expected = RANGE.subprefix(number, RANGE.length + count.bit_length() - 1)
        assert part.spec == evolve(SPEC, prefix=expected, is_disabled=False)
        assert part.metadata.labels == LABELS
        assert part.metadata.uid
        assert part.metadata.creation_time_ns is not None


# --- what is done -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [BY_NAME, WantedSplit(count=4, prefix=RANGE)])
def test_a_pool_is_split_and_no_block_is_touched(harness: CollectorHarness, wanted: WantedSplit) -> None:
    before = addresses(harness)
    held = [str(one) for handle in PODS for block in blocks(harness) for one in held_by(block, handle)]
    assert run(harness, wanted) == [
        "IPPool(ippool-name1) disabled",
        "IPPool(split-ippool-name1-0) created: 10.0.1.0/26",
        "IPPool(split-ippool-name1-1) created: 10.0.1.64/26",
        "IPPool(split-ippool-name1-2) created: 10.0.1.128/26",
        "IPPool(split-ippool-name1-3) created: 10.0.1.192/26",
        "IPPool(ippool-name1) deleted; its blocks are as they were",
    ]
    assert_split(harness)
    assert addresses(harness) == before
    done = plan(harness, wanted)
    assert (done.name, done.old, len(done.parts)) == ("ippool-name1", None, 4)
    assert run(harness, wanted) == []
    unlock(harness.inner, pace=make_pace(harness))
    assert [assign(harness, handle) for handle in PODS] == held
    new = assign(harness, "a-new")
    assert new not in held
    assert new.startswith("10.0.1.")
    assert len(blocks(harness)) == 2


def test_the_smallest_parts_are_one_block(harness: CollectorHarness) -> None:
    run(harness, WantedSplit(count=8, name="ippool-name1"))
    assert_split(harness, 8)


def test_a_pool_of_the_other_family() -> None:
    harness = make_harness(MemoryMode.KUBE_LIKE)
    create_pool(harness, IPPool.for_prefix(Prefix.parse("fd00::/64"), name="six"))
    run(harness, WantedSplit(count=2, prefix=Prefix.parse("fd00::/64")))
    found = [str(pool.spec.prefix) for name, pool in pools(harness).items() if name.startswith("split-six")]
    assert found == ["fd00::/65", "fd00::8000:0:0:0/65"]


def test_parts_of_a_disabled_pool_are_disabled(harness: CollectorHarness) -> None:
    stored = pools(harness)["ippool-name1"]
    harness.put(stored.key, evolve(stored, spec=evolve(stored.spec, is_disabled=True)))
    for number in (2, 3):
        with pytest.raises(ProcessDied):
            run(harness, store=FaultyDatastore(harness.inner, {number: ProcessDeath(0)}))
    run(harness)
    assert {pool.spec.is_disabled for pool in pools(harness).values()} == {True}


def test_a_part_may_be_split_again(harness: CollectorHarness) -> None:
    run(harness, WantedSplit(count=2, name="ippool-name1"))
    run(harness, WantedSplit(count=2, prefix=Prefix.parse("10.0.1.128/25")))
    assert [(name, str(pool.spec.prefix)) for name, pool in pools(harness).items()] == [
        ("split-ippool-name1-0", "10.0.1.0/25"),
        ("split-split-ippool-name1-1-0", "10.0.1.128/26"),
        ("split-split-ippool-name1-1-1", "10.0.1.192/26"),
    ]
    assert "unable to find IP pool ippool-name1" in refusal(harness, WantedSplit(count=2, name="ippool-name1"))


# --- faults -----------------------------------------------------------------------------------------------------------


def assert_whole(harness: CollectorHarness, before: list[Record[object]]) -> None:
    """Nothing of the range is in no pool, nobody else can take a part of it, and no address is touched."""
    found = pools(harness)
    parts = [pool.spec.prefix for name, pool in found.items() if name != "ippool-name1"]
    assert "ippool-name1" in found or sum(part.size for part in parts) == RANGE.size
    assert addresses(harness) == before
    for number in range(4):
        foreign = IPPool.for_prefix(RANGE.subprefix(number, 26), name="foreign")
        with pytest.raises(InvalidResource, match="CIDR overlaps with"):
            create_pool(harness, foreign)


@pytest.mark.parametrize("mode", MemoryMode)
@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_fault_at_every_write_and_the_next_run(mode: MemoryMode, fault: Fault) -> None:
    for number in range(1, 7):
        harness = make_harness(mode)
        before = addresses(harness)
        store = FaultyDatastore(harness.inner, {number: fault})
        try:
            run(harness, store=store)
        except (ProcessDied, NetplugError):
            assert not isinstance(fault, LostReply)
        assert store.commits >= number
        assert_whole(harness, before)
        run(harness)
        assert_split(harness)
        assert addresses(harness) == before
    harness = make_harness(mode)
    counting = FaultyDatastore(harness.inner, {})
    run(harness, store=counting)
    assert counting.commits == 6


@pytest.mark.parametrize("mode", MemoryMode)
def test_two_deaths_at_any_two_writes(mode: MemoryMode) -> None:
    for first in range(1, 7):
        for second in range(1, 8 - first):
            harness = make_harness(mode)
            before = addresses(harness)
            for number in (first, second):
                try:
                    run(harness, store=FaultyDatastore(harness.inner, {number: ProcessDeath(None)}))
                except ProcessDied:
                    assert_whole(harness, before)
            run(harness)
            assert_split(harness)


@pytest.mark.parametrize("number", range(1, 7))
def test_two_runs_at_once(harness: CollectorHarness, number: int) -> None:
    before = addresses(harness)
    run(harness, store=FaultyDatastore(harness.inner, {number: RunBefore(lambda: run(harness))}))
    assert_split(harness)
    assert addresses(harness) == before


@pytest.mark.parametrize("number", range(1, 7))
def test_a_lock_that_ends_stops_the_split(harness: CollectorHarness, number: int) -> None:
    """On an atomic store also the commit that was on its way; on an ordered one that is one write, and harmless."""
    before = addresses(harness)
    store = FaultyDatastore(harness.inner, {number: RunBefore(lambda: unlock(harness.inner, pace=make_pace(harness)))})
    is_atomic = harness.store.description.atomicity is Atomicity.ATOMIC
    is_refused = number < 6 or is_atomic
    with pytest.raises(SplitRefused, match="datastore is not locked") if is_refused else nullcontext():
        run(harness, store=store)
    assert ("ippool-name1" in pools(harness)) is is_refused
    set_locked(harness)
    run(harness)
    assert_split(harness)
    assert addresses(harness) == before


def pool_changed(harness: CollectorHarness, change: Callable[[IPPool], IPPool]) -> None:
    stored = pools(harness)["ippool-name1"]
    harness.put(stored.key, change(stored))


@pytest.mark.parametrize("number", range(2, 6))
def test_a_pool_that_is_enabled_again_meanwhile(harness: CollectorHarness, number: int) -> None:
    """The split stops before its next write; on an ordered store one part may be created by then."""

    def enable() -> None:
        pool_changed(harness, lambda pool: evolve(pool, spec=evolve(pool.spec, is_disabled=False)))

    with pytest.raises(SplitRefused, match="enabled again meanwhile"):
        run(harness, store=FaultyDatastore(harness.inner, {number: RunBefore(enable)}))
    run(harness)
    assert_split(harness)


def test_a_pool_that_is_deleted_meanwhile(harness: CollectorHarness) -> None:
    found = plan(harness)
    harness.remove(ippool_key("ippool-name1"))
    with pytest.raises(SplitRefused, match="deleted or enabled again meanwhile"):
        list(split(harness.store, found, pace=lambda: make_pace(harness), new_uid=new_uid))
    assert pools(harness) == {}


def test_a_part_that_is_deleted_meanwhile(harness: CollectorHarness) -> None:
    store = FaultyDatastore(harness.inner, {5: RunBefore(lambda: harness.remove(ippool_key("split-ippool-name1-0")))})
    with pytest.raises(SplitRefused, match=r"IPPool\(split-ippool-name1-0\): it was deleted meanwhile"):
        run(harness, store=store)
    assert "ippool-name1" in pools(harness)
    run(harness)
    assert_split(harness)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_the_datastore_has_to_be_locked(harness: CollectorHarness) -> None:
    unlock(harness.inner, pace=make_pace(harness))
    text = refusal(harness, BY_NAME)
    assert text.startswith("datastore is not locked.")
    assert text.endswith("in order split the IP pools")
    harness.remove(CLUSTER_INFORMATION_KEY)
    assert refusal(harness, BY_NAME) == text


@pytest.mark.parametrize(
    "wanted, text",
    [
        (WantedSplit(count=4, prefix=Prefix.parse("10.0.2.0/24")), "unable to find IP pool 10.0.2.0/24"),
        (WantedSplit(count=4, prefix=Prefix.parse("10.0.1.0/25")), "unable to find IP pool 10.0.1.0/25"),
        (WantedSplit(count=3, name="other"), "unable to find IP pool other"),
        (
            WantedSplit(count=3, name="ippool-name1"),
            "IPPool(ippool-name1): number to split CIDR into is not a valid power of 2: 3; 2, 4, 8 and so on are",
        ),
        (
            WantedSplit(count=512, name="ippool-name1"),
            "IPPool(ippool-name1): 10.0.1.0/24 is not large enough to be split into 512 pools: its blocks are /27",
        ),
    ],
)
def test_what_is_refused_changes_nothing(harness: CollectorHarness, wanted: WantedSplit, text: str) -> None:
    before = pools(harness)
    assert refusal(harness, wanted) == text
    assert pools(harness) == before


@pytest.mark.parametrize("count", [-4, 0, 1, 6])
def test_numbers_that_are_no_power_of_2(harness: CollectorHarness, count: int) -> None:
    assert "is not a valid power of 2" in refusal(harness, WantedSplit(count=count, prefix=RANGE))


def test_no_more_pools_than_an_add_can_read() -> None:
    harness = make_harness(MemoryMode.ATOMIC)
    create_pool(harness, IPPool.for_prefix(Prefix.parse("fd00::/64"), name="six"))
    assert "2048 pools are too many" in refusal(harness, WantedSplit(count=2048, name="six"))


def test_another_number_than_that_of_the_begun_split(harness: CollectorHarness) -> None:
    with pytest.raises(ProcessDied):
        run(harness, store=FaultyDatastore(harness.inner, {2: ProcessDeath(0)}))
    assert dict(pools(harness)["ippool-name1"].metadata.annotations) == {SPLIT_MARK: "4/enabled"}
    assert refusal(harness, WantedSplit(count=2, name="ippool-name1")) == (
        "IPPool(ippool-name1): its split into 4 pools was begun; go on with that number"
    )


def test_two_runs_with_different_numbers_at_once(harness: CollectorHarness) -> None:
    other = WantedSplit(count=2, name="ippool-name1")
    with pytest.raises(ResourceExists, match="it is not a part of"):
        run(harness, store=FaultyDatastore(harness.inner, {1: RunBefore(lambda: run(harness, other))}))
    assert_split(harness, 2)


def test_pools_that_something_else_changes(harness: CollectorHarness) -> None:
    marks = {f"{RESOURCE_DOMAIN}/drain": "enabled"}
    stored = pools(harness)["ippool-name1"]
    pool_changed(harness, lambda pool: evolve(pool, metadata=evolve(pool.metadata, annotations=tuple(marks.items()))))
    assert "it is being drained" in refusal(harness, BY_NAME)
    pool_changed(harness, lambda _pool: evolve(stored, metadata=evolve(stored.metadata, deletion_time_ns=1)))
    assert "it is being deleted" in refusal(harness, BY_NAME)
    pool_changed(harness, lambda _pool: evolve(stored, metadata=evolve(stored.metadata, labels=(MANAGED_BY,))))
    with pytest.raises(PoolManaged):
        plan(harness)


def test_another_pool_of_the_name_of_a_part(harness: CollectorHarness) -> None:
    create_pool(harness, IPPool.for_prefix(Prefix.parse("10.9.0.0/24"), name="split-ippool-name1-2"))
    with pytest.raises(ResourceExists, match=r"IPPool\(split-ippool-name1-2\); it is not a part of"):
        plan(harness)
    harness.remove(ippool_key("split-ippool-name1-2"))
    late = IPPool.for_prefix(Prefix.parse("10.9.0.0/24"), name="split-ippool-name1-2")
    store = FaultyDatastore(harness.inner, {3: RunBefore(lambda: create_pool(harness, late))})
    with pytest.raises(ResourceExists):
        run(harness, store=store)
    harness.remove(ippool_key("split-ippool-name1-2"))
    run(harness)
    assert_split(harness)


def test_a_pool_that_overlaps_for_another_reason(harness: CollectorHarness) -> None:
    harness.add_pool("foreign", "10.0.1.64/28")
    with pytest.raises(InvalidResource, match=r"overlaps with IPPool\(foreign\)"):
        plan(harness)


def test_a_name_that_is_too_long_for_its_parts(harness: CollectorHarness) -> None:
    name = "a" * 250
    create_pool(harness, IPPool.for_prefix(Prefix.parse("10.7.0.0/24"), name=name))
    with pytest.raises(InvalidResource, match="split-aaa"):
        plan(harness, WantedSplit(count=2, name=name))
    assert name in pools(harness)


def test_a_damaged_pool_and_an_unfinished_import(harness: CollectorHarness) -> None:
    damaged = DamagedDatastore(harness.inner, damage={ippool_key("ippool-name1"): b"{}"})
    with pytest.raises(Malformed):
        plan(harness, store=damaged)
    stored = harness.get(CLUSTER_INFORMATION_KEY)
    marks = ((f"{RESOURCE_DOMAIN}/unfinished-import", "x"),)
    harness.put(
        stored_key := CLUSTER_INFORMATION_KEY, evolve(stored, metadata=evolve(stored.metadata, annotations=marks))
    )
    with pytest.raises(ImportUnfinished):
        plan(harness)
    assert harness.find(stored_key) is not None


def test_a_part_says_of_which_pool_it_is(harness: CollectorHarness) -> None:
    uid = pools(harness)["ippool-name1"].metadata.uid
    run(harness)
    marks = {dict(pool.metadata.annotations)[PART_MARK] for pool in pools(harness).values()}
    assert marks == {f"ippool-name1/{uid}/4"}
