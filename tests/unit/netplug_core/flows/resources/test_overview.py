"""The utilization of pools and the state of an address, read from a store."""

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.flows.resources.pools import AddressState, find_address, read_address_map, read_utilization
from netplug_core.flows.resources.read import with_similar_name
from netplug_core.ipam.model.block import Attribute, Block
from netplug_core.ipam.reporting.usage import ORPHANS
from netplug_core.records import Create, Key
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY, IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.ipreservation import IPReservation, IPReservationSpec, ipreservation_key
from netplug_core.resources.metadata import Metadata
from netplug_core.testing.damage import DamagedDatastore
from tests.harness.resources import ResourceHarness, make_pool

RELEASED_NS = 1_767_225_600_000_000_000
MINE = Attribute(handle="h", owner=(("node", "a"),))


def reservation(name: str, *cidrs: str) -> Create[object]:
    spec = IPReservationSpec(reserved=tuple(map(Prefix.parse, cidrs)), unparsed=('"nonsense"',))
    return Create(ipreservation_key(name), IPReservation(metadata=Metadata(name=name), spec=spec))


def block(cidr: str, *held: int) -> Block:
    return Block.new(Prefix.parse(cidr), owner="host:a", now_ns=1).assign(tuple(map(Ordinal, held)), MINE)


@pytest.fixture
def harness() -> ResourceHarness:
    """Two pools, a block in one and a block in none, and reservations in both, twice."""
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(make_pool("10.0.0.0/24", "four"))
    harness.create(make_pool("fd00::/64", "six"))
    stored = [block("10.0.0.0/26", 5), block("172.16.0.0/28", 3)]
    harness.put(
        *(Create(block.key, block) for block in stored),
        reservation("a", "10.0.0.0/25", "fd00::/66"),
        reservation("b", "10.0.0.5", "10.0.0.64/26"),
    )
    return harness


def find_state(harness: ResourceHarness, address: str) -> AddressState:
    return find_address(harness.store, Address.parse(address), pace=harness.pace)


def test_utilization_reads_pools_blocks_and_reservations_at_once(harness: ResourceHarness) -> None:
    """I-66 of the catalogue."""
    reads = harness.store.calls.reads
    four, six, orphans = read_utilization(harness.store, deadline=harness.deadline)
    assert harness.store.calls.reads == reads + 1
    assert (four.capacity, four.in_use, four.reserved, four.available) == (256, 1, 128, 128)
    assert (six.reserved, six.available) == (2**62, 2**64 - 2**62)
    assert (orphans.name, orphans.in_use) == (ORPHANS, 1)


@pytest.mark.parametrize(
    "selected, names",
    [
        (("six",), ["six"]),
        (("six", "four"), ["six", "four"]),
        (("10.0.0.0/24",), ["four"]),
        (("FD00:0::/64", "four"), ["six", "four"]),
    ],
)
def test_pools_are_selected_by_name_or_cidr(
    harness: ResourceHarness, selected: tuple[str, ...], names: list[str]
) -> None:
    usages = read_utilization(harness.store, selected, deadline=harness.deadline)
    assert [usage.name for usage in usages] == names


@pytest.mark.parametrize("word", ["five", "10.0.0.0/25", "0.0.0.0/0", ORPHANS])
def test_a_selected_pool_has_to_exist(harness: ResourceHarness, word: str) -> None:
    with pytest.raises(ResourceMissing) as caught:
        read_utilization(harness.store, ("four", word), deadline=harness.deadline)
    assert str(caught.value) == f"resource does not exist: IPPool({word})"


def test_a_map_is_made_of_the_same_read(harness: ResourceHarness) -> None:
    reads = harness.store.calls.reads
    found = read_address_map(harness.store, max_rows=64, deadline=harness.deadline)
    assert harness.store.calls.reads == reads + 1
    usages = read_utilization(harness.store, deadline=harness.deadline)
    assert [pool.pool for pool in found] == [usage.pool for usage in usages]
    assert [pool.counts.total for pool in found] == [usage.capacity for usage in usages]
    (six,) = read_address_map(harness.store, ["fd00::/64"], max_rows=64, deadline=harness.deadline)
    assert six == found[1]
    with pytest.raises(ResourceMissing):
        read_address_map(harness.store, ["five"], max_rows=64, deadline=harness.deadline)


@pytest.mark.parametrize("address", ["10.0.0.5", "172.16.0.3"])
def test_an_address_is_found_in_a_pool_and_outside_of_pools(harness: ResourceHarness, address: str) -> None:
    state = find_state(harness, address)
    assert state.holder.allocation is not None
    assert state.holder.allocation.attribute == MINE
    assert state.cooldown_ends_ns is None
    assert state.is_in_no_pool is (address == "172.16.0.3")


def test_a_pool_that_cannot_be_read_may_contain_an_address(harness: ResourceHarness) -> None:
    store = DamagedDatastore(harness.store, damage={ippool_key("four"): b"no JSON"})
    state = find_address(store, Address.parse("172.16.0.9"), pace=harness.pace)
    assert not state.is_in_no_pool


@pytest.mark.parametrize(
    "address, reserved_by", [("10.0.0.6", ("a",)), ("10.0.0.70", ("a", "b")), ("10.0.0.200", ()), ("fd00::1", ("a",))]
)
def test_a_free_address_may_be_reserved(harness: ResourceHarness, address: str, reserved_by: tuple[str, ...]) -> None:
    state = find_state(harness, address)
    assert state.holder.allocation is None
    assert state.reserved_by == reserved_by


@pytest.mark.parametrize("cooldown_s, remaining_s", [(0, 0), (60, 61)])
def test_the_end_of_a_cooldown_is_known(harness: ResourceHarness, cooldown_s: int, remaining_s: int) -> None:
    resting = block("10.0.0.64/26", 1).release(frozenset({Ordinal(1)}), cooling_from_ns=RELEASED_NS)
    harness.put(Create(resting.key, resting))
    if cooldown_s:
        spec = IPAMConfigurationSpec(cooldown_s=cooldown_s)
        harness.put(Create(IPAM_CONFIGURATION_KEY, IPAMConfiguration(metadata=Metadata(name="default"), spec=spec)))
    state = find_state(harness, "10.0.0.65")
    assert state.holder.is_cooling
    assert state.cooldown_ends_ns == RELEASED_NS + remaining_s * 1_000_000_000


def test_a_missing_resource_is_named_with_a_similar_one(harness: ResourceHarness) -> None:
    def text_about(key: Key[object]) -> str:
        return str(with_similar_name(harness.store, ResourceMissing.of(key), deadline=harness.deadline))

    assert text_about(ippool_key("fuor")) == "resource does not exist: IPPool(fuor); did you mean four?"
    assert text_about(ippool_key("other")) == "resource does not exist: IPPool(other)"
    assert text_about(block("10.9.0.0/26").key) == "resource does not exist: IPAMBlock(ipv4/10.9.0.0/26)"


def test_where_names_cannot_be_read_the_error_stays(harness: ResourceHarness) -> None:
    error = ResourceMissing.of(ippool_key("fuor"))
    late = Deadline.after(harness.clock, -1)
    assert with_similar_name(harness.store, error, deadline=late) is error
