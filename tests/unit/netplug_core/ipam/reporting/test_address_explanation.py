"""What is said about an address: its status, the records that lead to it, and what is damaged or missing."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.model import (
    RESERVED_HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
)
from netplug_core.ipam.reporting.explanation import (
    AddressExplanation,
    AddressStatus,
    address_queries,
    explain_address,
)
from netplug_core.records import Create, Key, Malformed, NeedMore
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPReservation,
    IPReservationSpec,
    ippool_key,
    ipreservation_key,
)
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.resources import ResourceHarness, make_pool

NOW_NS = 1_767_225_600_000_000_000
PREFIX = Prefix.parse("10.0.0.0/26")
MINE = Attribute(handle="net.a", owner=(("node", "a"), ("timestamp", "2026-01-01T00:00:00Z")))
AFFINITY = affinity_key("host:a", PREFIX)
BLOCK = Block.new(PREFIX, owner="host:a", now_ns=1).assign((Ordinal(5),), MINE)


@pytest.fixture
def harness() -> ResourceHarness:
    """A pool, and a block of it with one address in use."""
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(make_pool("10.0.0.0/24", "four"))
    return harness


def put_block(harness: ResourceHarness, block: Block = BLOCK) -> None:
    """Store the block with its affinity and the handle of its address."""
    harness.put(
        Create(AFFINITY, Affinity(state=AffinityState.CONFIRMED)),
        Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))),
        Create(block.key, block),
    )


def configure(harness: ResourceHarness, spec: IPAMConfigurationSpec) -> None:
    value = IPAMConfiguration(metadata=Metadata(name="default"), spec=spec)
    harness.put(Create(IPAM_CONFIGURATION_KEY, value))


def explain(
    harness: ResourceHarness, address: str, store: Datastore | None = None, now_ns: int = NOW_NS
) -> AddressExplanation:
    """The explanation, with as many reads as it asks for."""
    store = store or harness.store
    snapshot = store.read(address_queries(), deadline=harness.deadline)
    while isinstance(found := explain_address(snapshot, Address.parse(address), now_ns), NeedMore):
        snapshot = snapshot.merged(store.read(found.queries, deadline=harness.deadline))
    return found


def damaged(harness: ResourceHarness, *keys: Key[object]) -> DamagedDatastore:
    return DamagedDatastore(harness.store, damage=dict.fromkeys(keys, b"{"))


def test_an_address_in_use_is_explained_by_every_record_that_leads_to_it(harness: ResourceHarness) -> None:
    put_block(harness)
    found = explain(harness, "10.0.0.5")
    assert (found.status, found.allocation, found.block) == (AddressStatus.IN_USE, BLOCK.held()[0], BLOCK)
    assert found.affinity is AffinityState.CONFIRMED
    assert list(map(str, found.pools)) == ["IPPool four (10.0.0.0/24) may serve"]
    assert (found.reserved_by, found.rules, found.problems, found.available_ns) == ((), (), (), None)


def test_an_address_that_cools_down_has_the_time_from_which_it_is_given_again(harness: ResourceHarness) -> None:
    configure(harness, IPAMConfigurationSpec(cooldown_s=60))
    put_block(harness, BLOCK.release(frozenset({Ordinal(5)}), cooling_from_ns=NOW_NS))
    found = explain(harness, "10.0.0.5", now_ns=NOW_NS + SECOND_NS)
    assert (found.status, found.available_ns) == (AddressStatus.COOLING, NOW_NS + 61 * SECOND_NS)
    assert explain(harness, "10.0.0.5", now_ns=NOW_NS + 61 * SECOND_NS).status is AddressStatus.FREE


def test_an_address_of_the_host_needs_no_handle(harness: ResourceHarness) -> None:
    reserved = Block.new(PREFIX, owner="host:a", now_ns=1, host_reserved=(1, 0))
    assert reserved.held()[0].attribute.handle == RESERVED_HANDLE
    put_block(harness, reserved)
    found = explain(harness, "10.0.0.0")
    assert (found.status, found.problems) == (AddressStatus.HOST_RESERVED, ())


def test_a_reserved_address_names_its_reservations(harness: ResourceHarness) -> None:
    spec = IPReservationSpec(reserved=(Prefix.parse("10.0.0.0/30"),))
    harness.put(Create(ipreservation_key("routers"), IPReservation(metadata=Metadata(name="routers"), spec=spec)))
    assert explain(harness, "10.0.0.1").reserved_by == ("routers",)
    assert explain(harness, "10.0.0.9").reserved_by == ()


def test_an_address_outside_all_pools_is_found_in_its_block(harness: ResourceHarness) -> None:
    assert explain(harness, "172.16.0.3").pools == ()
    block = Block.new(Prefix.parse("172.16.0.0/28"), owner="", now_ns=1).assign((Ordinal(3),), Attribute())
    harness.put(Create(block.key, block))
    found = explain(harness, "172.16.0.3")
    assert (found.status, found.block, found.affinity) == (AddressStatus.IN_USE, block, None)
    assert (found.pools, found.problems) == ((), ())


def test_the_pools_of_an_address_say_why_they_give_nothing(harness: ResourceHarness) -> None:
    harness.put(Create(ippool_key("wide"), make_pool("10.0.0.0/16", "wide")))
    harness.put(Create(ippool_key("off"), make_pool("10.0.9.0/24", "off", is_disabled=True)))
    assert list(map(str, explain(harness, "10.0.9.1").pools)) == [
        "IPPool off (10.0.9.0/24) is disabled",
        "IPPool wide (10.0.0.0/16) overlaps an older pool and gives no addresses (off)",
    ]


STRICT = IPAMConfigurationSpec(is_affinity_strict=True)
NO_CLAIMS = IPAMConfigurationSpec(is_affinity_strict=True, may_auto_allocate_blocks=False)


@pytest.mark.parametrize("spec, rules", [(STRICT, ["strict affinity is on"]), (IPAMConfigurationSpec(), [])])
def test_strict_affinity_limits_who_gets_an_address_of_a_block(
    harness: ResourceHarness, spec: IPAMConfigurationSpec, rules: list[str]
) -> None:
    configure(harness, spec)
    put_block(harness)
    assert [str(rule).split(":")[0] for rule in explain(harness, "10.0.0.9").rules] == rules


@pytest.mark.parametrize("spec, rules", [(NO_CLAIMS, ["autoAllocateBlocks is off"]), (STRICT, [])])
def test_no_node_gets_an_address_of_no_block_where_none_is_claimed(
    harness: ResourceHarness, spec: IPAMConfigurationSpec, rules: list[str]
) -> None:
    configure(harness, spec)
    assert [str(rule).split(":")[0] for rule in explain(harness, "10.0.0.9").rules] == rules


def test_missing_records_are_named_with_their_repair(harness: ResourceHarness) -> None:
    harness.put(Create(BLOCK.key, BLOCK))
    assert explain(harness, "10.0.0.5").problems == (
        "ipam check --fix would restore handle net.a from its blocks: it is missing or damaged",
        "ipam check --fix would restore the affinity of host:a for block 10.0.0.0/26: it is missing or damaged",
    )


def test_an_empty_block_without_affinity_is_no_problem(harness: ResourceHarness) -> None:
    empty = Block.new(PREFIX, owner="host:a", now_ns=1)
    harness.put(Create(empty.key, empty))
    assert explain(harness, "10.0.0.5").problems == ()


def test_a_damaged_block_leaves_its_addresses_unknown_and_others_as_they_are(harness: ResourceHarness) -> None:
    put_block(harness)
    store = damaged(harness, block_key(PREFIX))
    found = explain(harness, "10.0.0.5", store)
    assert (found.status, found.allocation, found.rules) == (AddressStatus.UNKNOWN, None, ())
    assert "the stored record IPAMBlock(ipv4/10.0.0.0/26) is malformed" in found.problems[0]
    other = explain(harness, "10.0.0.70", store)
    assert (other.status, other.problems) == (AddressStatus.FREE, ())


@pytest.mark.parametrize(
    "key", [ippool_key("four"), AFFINITY, handle_key("net.a"), IPAM_CONFIGURATION_KEY, ipreservation_key("r")]
)
def test_any_other_damaged_record_is_named_and_the_rest_is_explained(
    harness: ResourceHarness, key: Key[object]
) -> None:
    put_block(harness)
    configure(harness, IPAMConfigurationSpec())
    spec = IPReservationSpec(reserved=(Prefix.parse("10.0.0.0/30"),))
    harness.put(Create(ipreservation_key("r"), IPReservation(metadata=Metadata(name="r"), spec=spec)))
    found = explain(harness, "10.0.0.5", damaged(harness, key))
    assert found.status is AddressStatus.IN_USE
    assert f"the stored record {key} is malformed" in found.problems[0]


def test_a_damaged_record_whose_key_names_no_prefix_may_be_the_block(harness: ResourceHarness) -> None:
    snapshot = harness.store.read(address_queries(), deadline=harness.deadline)
    while isinstance(found := explain_address(snapshot, Address.parse("10.0.0.5"), NOW_NS), NeedMore):
        snapshot = snapshot.merged(harness.store.read(found.queries, deadline=harness.deadline))
    query = next(query for query in snapshot.results if query.kind == BLOCK.key.kind)
    odd = Malformed("x", "no prefix", subject=BLOCK.key.kind.key("ipv4", "nonsense"))
    results = {**snapshot.results, query: evolve(snapshot.results[query], malformed=(odd,))}
    found = explain_address(evolve(snapshot, results=results), Address.parse("10.0.0.5"), NOW_NS)
    assert isinstance(found, AddressExplanation)
    assert (found.status, found.problems) == (AddressStatus.UNKNOWN, (str(odd),))
