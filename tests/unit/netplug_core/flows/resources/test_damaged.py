"""Damaged records: deleted at the revision at which they were judged, or replaced whole."""

from collections.abc import Sequence

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import ErrorCode
from netplug_core.flows.resources.delete import (
    AddressesAtRisk,
    NotDamaged,
    Risk,
    delete,
    delete_damaged,
    delete_damaged_block,
)
from netplug_core.flows.resources.outcome import Effect, ResourceMissing, ResourceOutdated
from netplug_core.flows.resources.read import find
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
)
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    List,
    Malformed,
    NotSupported,
    Query,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    Update,
)
from netplug_core.resources.ippool import IPPool, ippool_key
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import DamagedDatastore, FaultyDatastore, LostReply, RunBefore
from tests.harness.resources import CLUSTER, CONFIGURATION, ENDPOINT, NODE, RESERVATION, ResourceHarness, make_pool

PREFIX = Prefix.parse("10.0.0.0/26")
POOL = ippool_key("p")


@pytest.fixture
def damaged(harness: ResourceHarness) -> DamagedDatastore:
    """The harness's store with one pool, which is damaged."""
    harness.create(make_pool())
    store = DamagedDatastore(harness.store)
    store.damage[POOL] = b'{"spec": {"cidr": 7}}'
    return store


def put_block(harness: ResourceHarness, held: int = 1, cidr: str = "10.0.0.0/26") -> Block:
    block = Block.new(Prefix.parse(cidr), owner="host:a", now_ns=1)
    block = block.assign(tuple(map(Ordinal, range(held))), Attribute(handle="h"))
    harness.put(Create(block.key, block))
    return block


def revision_of(store: DamagedDatastore, key: Key[object], harness: ResourceHarness) -> str:
    (found,) = store.read([Get(key)], deadline=harness.deadline).malformed(Get(key))
    return found.revision


# --- deletion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [NODE, RESERVATION, CONFIGURATION, CLUSTER, ENDPOINT])
def test_a_damaged_resource_of_any_kind_is_deleted(harness: ResourceHarness, resource: Resource) -> None:
    """Also of a kind that people do not write: nothing else removes it."""
    key = key_of(resource)
    harness.put(Create(key, resource))
    store = DamagedDatastore(harness.store, damage={key: b"no JSON"})
    with pytest.raises(Malformed):
        find(store, [key], deadline=harness.deadline)
    outcome = delete(store, key, pace=harness.pace)
    assert outcome.effect is Effect.DELETED
    (warning,) = outcome.warnings
    assert warning.startswith(f"{key}: it was damaged: ")
    assert harness.find(key) is None


def test_the_blocks_of_a_damaged_node_are_given_up(harness: ResourceHarness) -> None:
    harness.create(NODE)
    key = affinity_key("host:node-a", PREFIX)
    harness.put(
        Create(key, Affinity(state=AffinityState.CONFIRMED)),
        Create(block_key(PREFIX), Block.new(PREFIX, owner="host:node-a", now_ns=1)),
    )
    delete(DamagedDatastore(harness.store, damage={key_of(NODE): b"[]"}), key_of(NODE), pace=harness.pace)
    found = harness.store.read([List(AFFINITY), List(BLOCK)], deadline=harness.deadline)
    assert found.list(List(AFFINITY)) == ()
    assert found.list(List(BLOCK)) == ()


def test_a_damaged_pool_goes_if_no_address_may_be_of_it(harness: ResourceHarness, damaged: DamagedDatastore) -> None:
    harness.create(make_pool("10.1.0.0/16", "other"))
    put_block(harness, cidr="10.1.0.0/26")
    assert delete(damaged, POOL, pace=harness.pace).effect is Effect.DELETED
    assert harness.names() == ["other"]


def test_a_damaged_pool_that_may_hold_addresses_goes_with_force_alone(
    harness: ResourceHarness, damaged: DamagedDatastore
) -> None:
    put_block(harness, held=2)
    with pytest.raises(AddressesAtRisk) as refusal:
        delete(damaged, POOL, pace=harness.pace)
    assert str(refusal.value) == (
        "IPPool(p) cannot be read, and may hold addresses in use: addresses held in blocks of no other pool: 2; "
        "replace it by a pool with the same cidr and blockSize (replace -f FILE), or delete it with --force"
    )
    assert POOL in damaged.damage
    assert delete(damaged, POOL, risk=Risk.ACCEPTED, pace=harness.pace).effect is Effect.DELETED
    assert harness.names() == []


def test_a_document_with_another_resource_version_deletes_nothing(
    harness: ResourceHarness, damaged: DamagedDatastore
) -> None:
    with pytest.raises(ResourceOutdated):
        delete(damaged, POOL, revision="another", pace=harness.pace)
    latest = revision_of(damaged, POOL, harness)
    assert delete(damaged, POOL, revision=latest, pace=harness.pace).effect is Effect.DELETED


def test_a_record_damaged_anew_meanwhile_stays(harness: ResourceHarness, damaged: DamagedDatastore) -> None:
    judged = revision_of(damaged, POOL, harness)

    def damage_anew() -> None:
        damaged.commit([Update(POOL, make_pool(), Revision(judged))], deadline=harness.deadline)
        damaged.damage[POOL] = b"[]"

    store = FaultyDatastore(damaged, {1: RunBefore(damage_anew)})
    with pytest.raises(ResourceOutdated):
        delete(store, POOL, revision=judged, pace=harness.pace)
    assert revision_of(damaged, POOL, harness) != judged


def test_a_lost_reply_is_no_failure(harness: ResourceHarness, damaged: DamagedDatastore) -> None:
    store = FaultyDatastore(damaged, {1: LostReply()})
    assert delete(store, POOL, pace=harness.pace).effect is Effect.DELETED
    assert harness.names() == []


def test_a_record_that_was_repaired_meanwhile_stays(harness: ResourceHarness, damaged: DamagedDatastore) -> None:
    def repair() -> None:
        revision = Revision(revision_of(damaged, POOL, harness))
        damaged.commit([Update(POOL, make_pool(), revision)], deadline=harness.deadline)

    store = FaultyDatastore(damaged, {1: RunBefore(repair)})
    with pytest.raises(NotDamaged, match=r"^IPPool\(p\) is not damaged; nothing is deleted$"):
        delete_damaged(store, POOL, Risk.REFUSED, pace=harness.pace)
    assert harness.names() == ["p"]


class StoreWithoutRevisions(MemoryDatastore):
    """A store that does not know the revisions of damaged records."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        found = super().read(queries, deadline=deadline)
        broken = ReadResult((), malformed=(Malformed("IPPool(p)", "it is rotten"),))
        return Snapshot({**found.results, Get(POOL): broken}, found.revisions)


def test_a_store_that_does_not_know_the_revision_deletes_nothing(harness: ResourceHarness) -> None:
    with pytest.raises(NotSupported) as refusal:
        delete(StoreWithoutRevisions(MemoryMode.ATOMIC, clock=harness.clock), POOL, pace=harness.pace)
    assert refusal.value.error_code is ErrorCode.NOT_STORED
    assert "its revision is not known" in str(refusal.value)


# --- blocks ----------------------------------------------------------------------------------------------------------


def test_a_damaged_block_that_nothing_names_is_deleted(harness: ResourceHarness) -> None:
    block = put_block(harness)
    store = DamagedDatastore(harness.store, damage={block.key: b"{}"})
    (warning,) = delete_damaged_block(store, PREFIX, Risk.REFUSED, pace=harness.pace)
    assert warning.startswith("IPAMBlock(ipv4/10.0.0.0/26): it was damaged: ")
    assert harness.store.read([List(BLOCK)], deadline=harness.deadline).list(List(BLOCK)) == ()


def test_a_damaged_block_that_may_hold_addresses_goes_with_force_alone(harness: ResourceHarness) -> None:
    block = put_block(harness)
    harness.put(Create(handle_key("h"), Handle(blocks=((PREFIX, 1),))))
    store = DamagedDatastore(harness.store, damage={block.key: b"{}"})
    with pytest.raises(AddressesAtRisk) as refusal:
        delete_damaged_block(store, PREFIX, Risk.REFUSED, pace=harness.pace)
    assert str(refusal.value) == (
        "IPAMBlock(ipv4/10.0.0.0/26) cannot be read, and may hold addresses in use: handles that count addresses in "
        "it: 1 (h); stop their workloads first, or delete it with --force and then start them anew"
    )
    assert delete_damaged_block(store, PREFIX, Risk.ACCEPTED, pace=harness.pace)


def test_a_sound_block_and_one_that_is_not_stored_are_refused(harness: ResourceHarness) -> None:
    put_block(harness)
    with pytest.raises(NotDamaged):
        delete_damaged_block(harness.store, PREFIX, Risk.ACCEPTED, pace=harness.pace)
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPAMBlock\(ipv4/10.9.0.0/26\)$"):
        delete_damaged_block(harness.store, Prefix.parse("10.9.0.0/26"), Risk.ACCEPTED, pace=harness.pace)


# --- replacement -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["replace", "apply"])
def test_a_damaged_pool_is_replaced_whole(harness: ResourceHarness, damaged: DamagedDatastore, verb: str) -> None:
    put_block(harness)
    run = harness.replace if verb == "replace" else harness.apply
    assert run(make_pool(), store=damaged).effect is Effect.REPAIRED
    assert not damaged.damage
    stored = harness.stored().value
    assert str(stored.spec.prefix) == "10.0.0.0/16"
    assert stored.metadata.uid
    assert run(make_pool(), store=damaged).effect is Effect.UNCHANGED


def test_a_damaged_reservation_is_replaced_whole(harness: ResourceHarness) -> None:
    harness.create(RESERVATION)
    key = key_of(RESERVATION)
    assert harness.replace(RESERVATION, store=DamagedDatastore(harness.store, damage={key: b"1"})).effect is (
        Effect.REPAIRED
    )


def test_the_pool_has_to_fit_the_stored_blocks_and_pools(harness: ResourceHarness, damaged: DamagedDatastore) -> None:
    put_block(harness)
    with pytest.raises(InvalidResource, match="different blockSize"):
        harness.replace(make_pool(block_length=28), store=damaged)
    harness.put(Create(ippool_key("other"), make_pool("10.1.0.0/16", "other")))
    with pytest.raises(InvalidResource, match="overlaps"):
        harness.replace(make_pool("10.1.0.0/16"), store=damaged)


def test_a_second_damaged_pool_keeps_the_first_from_being_replaced(
    harness: ResourceHarness, damaged: DamagedDatastore
) -> None:
    """Its range is not known, so nobody knows whether the two overlap."""
    harness.put(Create(ippool_key("other"), make_pool("10.1.0.0/16", "other")))
    damaged.damage[ippool_key("other")] = b"[]"
    with pytest.raises(Malformed, match=r"IPPool\(other\)"):
        harness.replace(make_pool(), store=damaged)


def test_a_manifest_with_another_resource_version_replaces_nothing(
    harness: ResourceHarness, damaged: DamagedDatastore
) -> None:
    with pytest.raises(ResourceOutdated):
        harness.replace(make_pool(), revision="another", store=damaged)
    latest = revision_of(damaged, POOL, harness)
    assert harness.replace(make_pool(), revision=latest, store=damaged).effect is Effect.REPAIRED


def test_a_replacement_that_loses_its_race_looks_again(harness: ResourceHarness, damaged: DamagedDatastore) -> None:
    def remove() -> None:
        revision = Revision(revision_of(damaged, POOL, harness))
        damaged.commit([Delete(POOL, revision)], deadline=harness.deadline)

    with pytest.raises(ResourceMissing):
        harness.replace(make_pool(), store=FaultyDatastore(damaged, {1: RunBefore(remove)}))


def test_creation_says_that_the_name_is_taken_by_a_damaged_record(
    harness: ResourceHarness, damaged: DamagedDatastore
) -> None:
    with pytest.raises(Malformed, match=r"IPPool\(p\)"):
        harness.create(make_pool(), store=damaged)


def test_a_sound_pool_changes_beside_a_damaged_one(harness: ResourceHarness, damaged: DamagedDatastore) -> None:
    other: Record[IPPool] = Record(ippool_key("other"), make_pool("10.1.0.0/16", "other"), Revision("0"))
    harness.put(Create(other.key, other.value))
    disabled = evolve(other.value, spec=evolve(other.value.spec, is_disabled=True))
    assert harness.apply(disabled, store=damaged).effect is Effect.UPDATED


# --- pools beside damaged blocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cidr", ["192.168.0.0/26", "no block"])
def test_a_damaged_block_elsewhere_keeps_no_pool_from_being_made_or_deleted(
    harness: ResourceHarness, cidr: str
) -> None:
    """3 a.m.: one bad record of another pool must not stop the pools of everybody else."""
    key, affinity = BLOCK.key("ipv4", cidr), AFFINITY.key("host", "a", "ipv4", cidr)
    harness.put(Create(key, put_block(harness, cidr="192.168.0.64/26")))
    harness.put(Create(affinity, Affinity(state=AffinityState.CONFIRMED)))
    store = DamagedDatastore(harness.store, damage={key: b"no JSON", affinity: b"no JSON"})
    assert harness.create(make_pool(), store=store).effect is Effect.CREATED
    harness.put(Create(block_key(PREFIX), Block.new(PREFIX, owner="host:a", now_ns=1)))
    assert delete(store, POOL, pace=harness.pace).effect is Effect.DELETED
    assert store.damage.keys() == {key, affinity}
    assert store.read([Get(block_key(PREFIX))], deadline=harness.deadline).find(block_key(PREFIX)) is None


def test_a_damaged_block_of_its_range_keeps_a_pool_from_being_made(harness: ResourceHarness) -> None:
    key = put_block(harness).key
    store = DamagedDatastore(harness.store, damage={key: b"no JSON"})
    with pytest.raises(Malformed) as error:
        harness.create(make_pool(), store=store)
    assert error.value.subject == key
    assert harness.store.read([Get(POOL)], deadline=harness.deadline).find(POOL) is None
