"""Assignments beside damaged records: what is passed over, what the trace says, and what damage still stops."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import follow
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import ErrorCode, Unavailable
from netplug_core.flows.ipam.collect import read_view
from netplug_core.ipam.allocation.request import Assignment, ReleaseRequest
from netplug_core.ipam.model import BLOCK, AffinityState, Handle, affinity_key, block_key, handle_key, host_owner
from netplug_core.ipam.outcome import (
    AddressOutside,
    AddressShortfall,
    AddressTaken,
    NoPoolQualifies,
    NoPoolServes,
    PoolsExhausted,
    PoolUnknown,
    RecordMemory,
)
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.log import Level
from netplug_core.records import Create, Delete, Get, Key, Malformed, Snapshot, Write
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPRESERVATION,
    AllowedUse,
    IPReservation,
    IPReservationSpec,
    ippool_key,
    ipreservation_key,
)
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request, specific

BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"


@pytest.fixture
def harness() -> IPAMHarness:
    """A pool of four blocks of four addresses."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/28", 30)
    return harness


def damage(harness: IPAMHarness, *keys: Key[object]) -> DamagedDatastore:
    """Make some records unreadable, for all that comes."""
    damaged = DamagedDatastore(harness.store, damage=dict.fromkeys(keys, b"null"))
    harness.store = damaged  # type: ignore[assignment]  # the harness only calls what both have
    return damaged


def texts(assignment: Assignment) -> list[str]:
    return [str(assigned.address) for assigned in assignment.addresses]


def affinity_of(cidr: str, node: str = NODE) -> Key[object]:
    return affinity_key(host_owner(node), Prefix.parse(cidr))


def key_of(cidr: str) -> Key[object]:
    return block_key(Prefix.parse(cidr))


def test_a_damaged_block_of_the_node_is_passed_over_and_counts_as_its_own(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True, max_blocks_per_host=2)
    harness.put_owned_block(BLOCK_0)
    damage(harness, key_of(BLOCK_0))
    assert harness.assign_or_refuse("h") == ["10.0.0.4"]
    harness.assign_or_refuse("more", *make_request().wanted)
    decision = harness.decision(make_request("again"))
    assert "block 10.0.0.0/30 is passed over: its record cannot be read" in map(str, decision.trace)


def test_a_damaged_block_of_the_node_does_not_count_for_the_other_family(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    harness.add_pool("six", "fd00::/120", 126)
    harness.put_owned_block(BLOCK_0)
    damage(harness, key_of(BLOCK_0))
    assert harness.assign_or_refuse("six", ipv6(1)) == ["fd00::"]
    decision = harness.decision(make_request("both", ipv4(1), ipv6(1)))
    assert [str(entry) for entry in decision.trace].count(
        "block 10.0.0.0/30 is passed over: its record cannot be read"
    ) == 1


@pytest.mark.parametrize("probes", [True, False])
def test_a_damaged_block_is_not_created_again(
    harness: IPAMHarness, monkeypatch: pytest.MonkeyPatch, *, probes: bool
) -> None:
    harness.put_owned_block(BLOCK_0, OTHER_NODE)
    store = damage(harness, key_of(BLOCK_0))
    if not probes:
        monkeypatch.setattr("netplug_core.ipam.allocation.acquire.PROBE_COUNT", 0)
    assert harness.assign_or_refuse("h") == ["10.0.0.4"]
    store.damage.clear()
    assert harness.block(BLOCK_0).owner == host_owner(OTHER_NODE)


def test_a_block_is_not_claimed_under_a_damaged_affinity(harness: IPAMHarness) -> None:
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    damage(harness, affinity_of(BLOCK_0))
    assert harness.assign_or_refuse("h") == ["10.0.0.4"]


def test_a_block_is_not_taken_over_from_a_damaged_affinity(harness: IPAMHarness) -> None:
    for block in (BLOCK_0, BLOCK_1, BLOCK_2, "10.0.0.12/30"):
        harness.put_owned_block(block, OTHER_NODE)
    harness.clock.sleep(61)
    damage(harness, affinity_of(BLOCK_0, OTHER_NODE))
    assert harness.assign_or_refuse("h") == ["10.0.0.4"]


def test_pools_reservations_and_nodes_that_cannot_be_read_are_passed_over(harness: IPAMHarness) -> None:
    harness.add_pool("all", "10.9.0.0/28", 30)
    harness.change_pool("main", node_selector="has(zone)")
    harness.label_node(zone="z")
    harness.reserve("r", "10.9.0.0/30")
    harness.put_owned_block(BLOCK_0)
    store = damage(harness, node_key(NODE))
    assert harness.assign_or_refuse("node") == ["10.9.0.4"]
    assert BLOCK_0 in harness.blocks()
    store.damage = dict.fromkeys((ippool_key("main"), ipreservation_key("r")), b"{}")
    assert harness.assign_or_refuse("h", *make_request().wanted) == ["10.9.0.5"]
    assert BLOCK_0 in harness.blocks()


def test_a_configuration_that_cannot_be_read_is_taken_for_the_cautious_one(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=0)
    for block in (BLOCK_0, BLOCK_1, BLOCK_2, "10.0.0.12/30"):
        harness.put_owned_block(block, OTHER_NODE)
    harness.assign_or_refuse("theirs", node=OTHER_NODE)
    store = damage(harness, IPAM_CONFIGURATION_KEY)
    with pytest.raises(AddressShortfall, match="strict affinity"):
        harness.assign_or_refuse("h")
    harness.release("theirs")
    assert harness.block(BLOCK_0).cooling_count == 1
    store.damage.clear()
    assert harness.assign_or_refuse("new", node=OTHER_NODE) == ["10.0.0.1"]
    assert harness.block(BLOCK_0).cooling_count == 0


def test_what_can_be_read_of_a_damaged_reservation_stays_reserved(harness: IPAMHarness) -> None:
    store = damage(harness)
    harness.reserve("r", "10.0.0.0/30", "10.0.0.4/30")
    store.damage[ipreservation_key("r")] = b'{"spec":{"reservedCIDRs":["10.0.0.0/30",7,"10.0.0.4"], "x'
    decision = harness.decision(make_request("h"))
    assert harness.assign_or_refuse("h") == ["10.0.0.5"]
    assert str(decision.trace[0]).endswith("; the addresses and CIDRs in it that can be read stay reserved")


def test_an_entry_of_a_reservation_that_cannot_be_read_is_named(harness: IPAMHarness) -> None:
    spec = IPReservationSpec(reserved=(Prefix.parse("10.0.0.0/32"),), unparsed=('"10.0.0.1-9"',))
    harness.commit(Create(ipreservation_key("r"), IPReservation(metadata=Metadata(name="r"), spec=spec)))
    decision = harness.decision(make_request("h"))
    assert harness.assign_or_refuse("h") == ["10.0.0.1"]
    entry = 'IPReservation(r) spec.reservedCIDRs: "10.0.0.1-9" is neither an address nor a CIDR; it reserves nothing'
    assert str(decision.trace[0]) == entry


def test_settings_that_were_known_count_until_they_can_be_read_again(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    lines: list[str] = []

    def log(level: Level, _message: str, /, **fields: object) -> None:
        lines.append(f"{level.value} {fields['records']}")

    ipam = evolve(harness.ipam(), log=log, memory=RecordMemory())
    request = make_request("h")
    assert texts(ipam.assign(request, NO_ENDPOINT, deadline=harness.deadline)) == ["10.0.0.0"]
    ipam = evolve(ipam, datastore=damage(harness, IPAM_CONFIGURATION_KEY))
    ipam.release(ReleaseRequest(handle="h"), NO_ENDPOINT, deadline=harness.deadline)
    harness.clock.sleep(62)
    for handle in ("i", "j"):
        ipam.assign(evolve(request, handle=handle, wanted=(ipv4(),)), NO_ENDPOINT, deadline=harness.deadline)
    (line,) = lines
    assert line.startswith("WARNING the stored record IPAMConfiguration(default) is malformed: ")
    assert line.endswith("; the settings that were last known count")
    assert harness.block(BLOCK_0).cooling_count == 0, "it cooled for a minute, not for years"


def test_a_release_frees_what_it_can_and_then_names_the_block(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse("h", ipv4(6)) == [f"10.0.0.{number}" for number in range(6)]
    store = damage(harness, key_of(BLOCK_0))
    for _repeated in range(2):
        with pytest.raises(Malformed, match=r"IPAMBlock\(ipv4/10.0.0.0/30\)"):
            harness.release("h")
        assert harness.block(BLOCK_1).is_empty
    store.damage.clear()
    assert harness.release("h") == [f"10.0.0.{number}" for number in range(4)]
    assert harness.handles() == []


def test_a_release_frees_the_addresses_beside_a_damaged_endpoint(harness: IPAMHarness) -> None:
    harness.label_node(zone="z")
    harness.assign_or_refuse("h")
    damage(harness, node_key(NODE))
    part = EndpointWrites(queries=(Get(node_key(NODE)),), writes=lambda found, _given: _deletes(found, node_key(NODE)))
    with pytest.raises(Malformed, match=rf"Node\({NODE}\)"):
        harness.ipam().release(ReleaseRequest(handle="h"), part, deadline=harness.deadline)
    assert harness.handles() == []
    assert harness.block(BLOCK_0).is_empty


def _deletes(snapshot: Snapshot, key: Key[Node]) -> tuple[Write, ...]:
    found = snapshot.find(key)
    return (Delete(found.key, found.revision),) if found else ()


def test_a_release_of_a_block_that_may_be_about_to_come_waits_for_its_affinity(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    counts = tuple((Prefix.parse(block), 1) for block in (BLOCK_0, BLOCK_1))
    harness.put_affinity(BLOCK_1, AffinityState.PENDING)
    harness.put(handle_key("h"), Handle(blocks=counts))
    store = damage(harness, affinity_of(BLOCK_1))
    request = ReleaseRequest(handle="h", node=NODE)
    with pytest.raises(Malformed, match=r"BlockAffinity\(host/node-a/ipv4/10.0.0.4/30\)"):
        harness.ipam().release(request, NO_ENDPOINT, deadline=harness.deadline)
    assert harness.block(BLOCK_0).is_empty
    store.damage.clear()
    harness.ipam().release(request, NO_ENDPOINT, deadline=harness.deadline)
    assert harness.handles() == []


def test_more_than_a_few_records_are_one_line(harness: IPAMHarness) -> None:
    names = [f"extra-{number}" for number in range(5)]
    for number, name in enumerate(names, start=1):
        harness.add_pool(name, f"10.{number}.0.0/28", 30)
    store = damage(harness, *map(ippool_key, names))
    lines: list[Mapping[str, object]] = []

    def log(_level: Level, _message: str, /, **fields: object) -> None:
        lines.append(fields)

    ipam = evolve(harness.ipam(), log=log)
    for handle in ("h", "i"):  # a process that serves one call remembers nothing
        ipam.assign(make_request(handle), NO_ENDPOINT, deadline=harness.deadline)
    assert [(str(one["records"]).count("IPPool("), one["further"]) for one in lines] == [(3, 2), (3, 2)]
    store.damage[ippool_key("main")] = b"{"
    with pytest.raises(NoPoolServes, match=r"; 3 more records are passed over$"):
        harness.assign_or_refuse("j")


def test_a_named_pool_that_cannot_be_read_is_the_error_of_its_call(harness: IPAMHarness) -> None:
    harness.add_pool("next", "10.9.0.0/28", 30)
    damage(harness, ippool_key("main"))
    with pytest.raises(Malformed, match=r"IPPool\(main\)"):
        harness.assign_or_refuse("h", ipv4(1, "main"))
    with pytest.raises(PoolUnknown, match=r"next \(10.9.0.0/28\); the stored record IPPool\(main\) is malformed"):
        harness.assign_or_refuse("h", ipv4(1, "10.0.0.0/28"))
    with pytest.raises(AddressOutside, match=r"the stored record IPPool\(main\) is malformed"):
        harness.assign_or_refuse("h", specific("10.0.0.1"))
    assert harness.assign_or_refuse("h", ipv4(1, "next")) == ["10.9.0.0"]


def test_a_shortfall_names_pools_that_were_passed_over(harness: IPAMHarness) -> None:
    harness.add_pool("zonal", "10.9.0.0/28", 30)
    harness.change_pool("zonal", node_selector="zone = 'a'")
    harness.assign_or_refuse("all", ipv4(16))
    with pytest.raises(PoolsExhausted, match=r"IPPool zonal .* is passed over: its selector cannot be read"):
        harness.assign_or_refuse("h")


def test_a_qualified_refusal_names_pools_that_were_passed_over(harness: IPAMHarness) -> None:
    harness.change_pool("main", allowed_uses=(AllowedUse.TUNNEL,))
    harness.add_pool("other", "10.9.0.0/28", 30)
    damage(harness, ippool_key("other"))
    with pytest.raises(NoPoolQualifies, match=r"no pools match the required use; the stored record IPPool\(other\)"):
        harness.assign_or_refuse("h")


def test_an_address_that_is_taken_is_so_whatever_else_is_damaged(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    harness.add_pool("other", "10.9.0.0/28", 30)
    damage(harness, ippool_key("other"))
    with pytest.raises(AddressTaken) as refusal:
        harness.assign_or_refuse("i", specific("10.0.0.0"))
    assert "malformed" not in str(refusal.value)


def test_a_node_that_cannot_be_read_is_not_called_unregistered(harness: IPAMHarness) -> None:
    harness.change_pool("main", node_selector="!has(zone)")
    harness.label_node(zone="z")
    damage(harness, node_key(NODE))
    with pytest.raises(NoPoolServes) as refusal:
        harness.assign_or_refuse("h")
    assert "not registered" not in str(refusal.value)
    assert "it selects nodes, and the record of this node cannot be read (!has(zone))" in str(refusal.value)
    assert f"the stored record Node({NODE}) is malformed" in str(refusal.value)


def test_a_locked_cluster_stays_locked_if_that_can_be_read(harness: IPAMHarness) -> None:
    harness.set_ready(is_ready=False)
    store = damage(harness)
    store.damage[CLUSTER_INFORMATION_KEY] = b'{"spec": {"datastoreReady": false, "clusterGUID": 7}}'
    with pytest.raises(Unavailable, match="datastoreReady is false"):
        harness.assign_or_refuse("h")


def test_a_ready_flag_that_cannot_be_read_locks_nothing(harness: IPAMHarness) -> None:
    harness.set_ready(is_ready=False)
    store = damage(harness, CLUSTER_INFORMATION_KEY)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert read_view(store, None, now_ns=0, deadline=harness.deadline).idle is None


def test_a_refusal_names_the_records_that_were_passed_over(harness: IPAMHarness) -> None:
    damage(harness, ippool_key("main"))
    decision = harness.decision(make_request("h"))
    assert str(decision.trace[0]).startswith("the stored record IPPool(main) is malformed: ")


def test_a_release_of_an_address_in_a_damaged_block_names_the_block(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    damage(harness, key_of(BLOCK_0))
    with pytest.raises(Malformed, match=r"IPAMBlock\(ipv4/10.0.0.0/30\)") as refusal:
        harness.release("h")
    assert refusal.value.error_code is ErrorCode.MALFORMED_RECORD


def test_an_answer_with_damage_is_not_cached(harness: IPAMHarness) -> None:
    harness.add_pool("next", "10.9.0.0/28", 30)
    store = damage(harness, ippool_key("main"))
    harness.enable_cache()
    assert harness.assign_or_refuse("h") == ["10.9.0.0"]
    store.damage.clear()
    assert harness.assign_or_refuse("i", *make_request().wanted) == ["10.9.0.1"]
    assert "IPPool main (10.0.0.0/28) may serve" in map(str, harness.decision(make_request("j")).trace)
    store.damage[ippool_key("main")] = b"null"
    assert harness.cache is not None
    with pytest.raises(Malformed):
        follow(store, harness.cache, [IPPOOL], deadline=harness.deadline)


def test_kinds_without_damage_are_followed_and_a_repaired_one_again(harness: IPAMHarness) -> None:
    harness.reserve("r", "10.0.0.0/32")
    store = damage(harness, ippool_key("main"))
    harness.enable_cache()
    assert harness.cache is not None
    known = harness.cache
    hindrance = follow(store, known, [IPPOOL, IPRESERVATION], deadline=Deadline.after(harness.clock, 1))
    assert hindrance is not None
    assert hindrance.key == "IPPool(main)"
    assert known.watched.keys() == {IPRESERVATION}
    store.damage.clear()
    assert follow(store, known, [IPPOOL, IPRESERVATION], deadline=Deadline.after(harness.clock, 1)) is None
    assert known.watched.keys() == {IPPOOL, IPRESERVATION}


def test_pages_are_read_without_damaged_records_by_who_asks_for_it(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0)
    harness.put_owned_block(BLOCK_1)
    store = damage(harness, key_of(BLOCK_0), affinity_of(BLOCK_1))
    with pytest.raises(Malformed):
        list(read_pages(store, BLOCK, deadline=harness.deadline))
    malformed: list[Malformed] = []
    found = list(read_pages(store, BLOCK, deadline=harness.deadline, malformed=malformed))
    assert [record.key for record in found] == [key_of(BLOCK_1)]
    view = read_view(store, None, now_ns=0, deadline=harness.deadline)
    assert [error.key for error in view.unreadable] == [str(key_of(BLOCK_0)), str(affinity_of(BLOCK_1))]
