"""Cases of claims, races and single addresses, by the ids of the project's list: I-39 to I-50, I-65 to I-72."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import ContentionExhausted, Unavailable
from netplug_core.flows.ipam.addresses import release_addresses
from netplug_core.flows.ipam.affinities import affinities_of, claim, ensure_blocks, relinquish_block
from netplug_core.ipam.allocation.affinities import ClaimResult, Emptiness
from netplug_core.ipam.allocation.pools import block_order, hashed_start
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem, Shortfall
from netplug_core.ipam.model import AffinityState, Attribute, affinity_key, block_key, host_owner
from netplug_core.ipam.outcome import (
    AddressWrongUse,
    BlockLimitReached,
    BlockUnavailable,
    NoPoolServes,
    PoolUnknown,
    UseMissing,
)
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse
from netplug_core.testing.faults import (
    DamagedDatastore,
    Fault,
    FaultyDatastore,
    LostRace,
    ProcessDeath,
    ProcessDied,
    RunBefore,
)
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, first_block_first, ipv4, ipv6, make_request, specific

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


@pytest.fixture
def one_block() -> IPAMHarness:
    """A cluster with one pool of one block, and strict affinity."""
    made = IPAMHarness.new()
    made.add_pool("main", BLOCK_0)
    made.configure(is_affinity_strict=True)
    return made


# --- races --------------------------------------------------------------------------------------------------------


def test_four_claims_of_one_range_at_once_all_succeed() -> None:
    """I-39."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/22")
    reports: list[ClaimResult] = []

    def claim_all(rivals: int) -> None:
        script: dict[int, Fault] = {1: RunBefore(lambda: claim_all(rivals - 1))} if rivals else {}
        store = FaultyDatastore(harness.store, script)
        reports.append(claim(store, host_owner(NODE), Prefix.parse("10.0.0.0/22"), pace=harness.pace))

    claim_all(3)
    assert [(len(report.claimed), report.failed) for report in reports] == [(16, ())] * 4
    assert len(harness.blocks()) == 16
    assert list(harness.affinities().values()) == ["confirmed"] * 16


def test_a_damaged_block_of_a_range_is_named_and_the_others_are_claimed(harness: IPAMHarness) -> None:
    """One bad record harms only itself."""
    claim(harness.store, host_owner(OTHER_NODE), Prefix.parse(BLOCK_1), pace=harness.pace)
    key = block_key(Prefix.parse(BLOCK_1))
    store = DamagedDatastore(harness.store, damage={key: b"{"})
    report = claim(store, host_owner(NODE), Prefix.parse("10.0.0.0/24"), pace=harness.pace)
    assert [str(block) for block in report.claimed] == [BLOCK_0, "10.0.0.128/26", "10.0.0.192/26"]
    assert (report.failed, [error.subject for error in report.damaged]) == ((), [key])
    assert store.damage == {key: b"{"}, "nothing is written over it"


def test_a_claim_that_was_only_begun_is_given_up_when_another_took_the_block() -> None:
    """I-40."""
    harness = IPAMHarness.new(MemoryMode.ORDERED)
    harness.add_pool("main", "10.0.0.0/24")
    conditions = 5
    with pytest.raises(ProcessDied):
        harness.assign(make_request("h1"), {1: ProcessDeath(conditions + 1)})
    assert harness.affinities() == {(NODE, BLOCK_0): "pending"}
    assert harness.assign_or_refuse("h2", node=OTHER_NODE) == ["10.0.0.0"]
    assert harness.assign_or_refuse("h3") == ["10.0.0.64"]
    assert harness.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_claim_that_another_process_is_giving_up_is_not_confirmed_behind_its_back(mode: MemoryMode) -> None:
    """I-41: the confirmation meets another revision, reads again and makes the claim pending first."""
    harness = IPAMHarness.new(mode)
    harness.add_pool("main", "10.0.0.0/24")
    harness.put_block(BLOCK_0)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    ipam = harness.ipam({1: RunBefore(lambda: harness.put_affinity(BLOCK_0, AffinityState.PENDING_DELETION))})
    ipam.assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert isinstance(ipam.datastore, FaultyDatastore)
    assert ipam.datastore.commits == 2
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.held() == {"10.0.0.0": "h"}


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_block_that_is_claimed_again_is_not_deleted(mode: MemoryMode) -> None:
    """I-41, the other half: a concurrent relinquishment meets the block's new revision."""
    harness = IPAMHarness.new(mode)
    harness.add_pool("main", "10.0.0.0/24")
    harness.put_owned_block(BLOCK_0)
    store = FaultyDatastore(harness.store, {1: RunBefore(lambda: harness.assign_or_refuse("h"))})
    result = relinquish_block(store, Prefix.parse(BLOCK_0), Emptiness.REQUIRED, pace=harness.pace)
    assert [refusal.block for refusal in result.refused] == [Prefix.parse(BLOCK_0)]
    assert harness.held() == {"10.0.0.0": "h"}
    assert harness.blocks() == {BLOCK_0: "host:node-a"}
    harness.refresh_cache()
    harness.assign_or_refuse("h2")  # what a store that is ordered may have left of the mark is put right
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}


@pytest.mark.parametrize("age_s, given", [(30, []), (61, ["10.0.0.0"])])
def test_an_empty_block_of_another_is_taken_over_after_a_minute(
    one_block: IPAMHarness, age_s: int, given: list[str]
) -> None:
    """I-42, trap 16."""
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    one_block.clock.sleep(age_s)
    assert one_block.assign_up_to("h") == given


def test_where_the_owner_is_quicker_there_is_nothing_to_take_over_and_no_error(one_block: IPAMHarness) -> None:
    """I-42."""
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    one_block.clock.sleep(61)
    request = evolve(make_request("h"), shortfall=Shortfall.RETURN)
    assert one_block.assign(request, {1: RunBefore(lambda: one_block.assign_or_refuse("h1", node=OTHER_NODE))}) == []
    assert one_block.blocks() == {BLOCK_0: "host:node-b"}


def test_a_deadline_that_passes_ends_the_search(one_block: IPAMHarness) -> None:
    """I-42."""
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    one_block.clock.sleep(61)
    soon = Deadline.after(one_block.clock, 0.001)
    ipam = one_block.ipam({number: LostRace() for number in range(1, 9)})
    with pytest.raises(ContentionExhausted):
        ipam.assign(make_request("h"), NO_ENDPOINT, deadline=soon)
    with pytest.raises(Unavailable):
        ipam.assign(make_request("h"), NO_ENDPOINT, deadline=soon)
    assert one_block.blocks() == {BLOCK_0: "host:node-b"}


# --- settings and limits of a request -----------------------------------------------------------------------------


def test_where_blocks_are_not_claimed_a_node_without_one_gets_nothing(harness: IPAMHarness) -> None:
    """I-44."""
    harness.configure(is_affinity_strict=True, may_auto_allocate_blocks=False)
    with pytest.raises(BlockUnavailable, match="failed to find or claim a block"):
        harness.assign_up_to("h")
    assert harness.blocks() == {}


@pytest.mark.parametrize("shortfall", Shortfall)
def test_the_use_must_be_stated(harness: IPAMHarness, shortfall: Shortfall) -> None:
    """I-45."""
    with pytest.raises(UseMissing, match="must specify the intended use when assigning an IP"):
        harness.assign(evolve(make_request("h"), use=None, shortfall=shortfall))


def test_at_most_so_many_addresses_for_a_handle(harness: IPAMHarness) -> None:
    """I-46, in totals: with a maximum of two, totals of one, two and three give a; a, b; a, b."""
    one = evolve(make_request("one"), max_per_handle=1)
    assert [harness.assign(one), harness.assign(one)] == [["10.0.0.0"], ["10.0.0.0"]]
    two = [evolve(make_request("two", ipv4(total)), max_per_handle=2) for total in (1, 2, 3)]
    assert [harness.assign(request) for request in two] == [
        ["10.0.0.1"],
        ["10.0.0.1", "10.0.0.2"],
        ["10.0.0.1", "10.0.0.2"],
    ]


def test_node_names_that_differ_only_at_their_end_are_two_nodes() -> None:
    """I-47, trap 24: names of the full 252 characters."""
    harness = IPAMHarness.new()
    harness.add_pool("six", "fd80:24e2:f998:72d6::/120")
    names = [f"{'n' * 251}{last}" for last in "ab"]
    for name in names:
        harness.assign_or_refuse(f"h-{name[-1]}", ipv6(), node=name)
    listed = [affinities_of(harness.store, host_owner(name), deadline=harness.deadline) for name in names]
    assert [[key.name for key in keys] for keys in listed] == [
        ["fd80:24e2:f998:72d6::/122"], ["fd80:24e2:f998:72d6::40/122"],
    ]  # fmt: skip


# --- single addresses ---------------------------------------------------------------------------------------------


def test_a_single_address_must_be_for_the_stated_use(harness: IPAMHarness) -> None:
    """I-49, trap 14."""
    harness.add_pool("tunnels", "11.0.0.0/24")
    harness.change_pool("tunnels", allowed_uses=(AllowedUse.TUNNEL,))
    with pytest.raises(AddressWrongUse, match='is in IP pool "tunnels"'):
        harness.assign_or_refuse("h", specific("11.0.0.1"))
    assert harness.assign(evolve(make_request("h", specific("11.0.0.1")), use=None)) == ["11.0.0.1"]
    for_tunnel = evolve(make_request("h2", specific("10.0.0.1")), use=AllowedUse.TUNNEL)
    assert harness.assign(for_tunnel) == ["10.0.0.1"]  # a pool that states no uses is for tunnels too


@pytest.mark.parametrize("item, is_released", [
    ({"sequence": 0}, True), ({"sequence": 1}, False), ({"handle": "fakehandle"}, False), ({}, True),
])  # fmt: skip
def test_an_address_of_a_hand_made_block_is_released_by_what_is_written_there(
    item: dict[str, object], *, is_released: bool
) -> None:
    """I-50: a block with number 0, in which 192.168.0.1 is held."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "192.168.0.0/24")
    harness.put_block("192.168.0.0/26")
    key, address = block_key(Prefix.parse("192.168.0.0/26")), Address.parse("192.168.0.1")
    made = evolve(harness.get(key), sequence=0)
    harness.put(key, made.assign((made.free[1],), Attribute(handle="h")))
    wanted = ReleaseItem(address=address, **item)  # type: ignore[arg-type] # some of its fields
    result = release_addresses(harness.store, [wanted], pace=harness.pace)
    if is_released:
        assert result == AddressesReleased(released=(address,))
    else:
        assert (result.released, len(result.refused)) == ((), 1)
    assert (harness.held() == {}) is is_released


# --- a block ahead of time ----------------------------------------------------------------------------------------


def test_a_node_is_ensured_one_block_of_each_family(harness: IPAMHarness) -> None:
    """I-65, trap 12."""
    harness.add_pool("six", "fd80:24e2:f998:72d6::/120")

    def ensured(*wanted: str) -> list[str]:
        requests = make_request("h", ipv4(), ipv6()) if not wanted else make_request("h", ipv6(1, *wanted))
        made = ensure_blocks(harness.store, requests, order=first_block_first, pace=harness.pace)
        return [str(block) for block in made.blocks]

    assert ensured() == ensured() == [BLOCK_0, "fd80:24e2:f998:72d6::/122"]
    assert ensured("six") == ["fd80:24e2:f998:72d6::/122"]
    with pytest.raises(PoolUnknown, match=r"the given pool \(fd00::/64\) does not exist, or is not enabled"):
        ensured("fd00::/64")


# --- which pools --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first, second, given", [
    ("all()", "all()", ["10.0.0.0", "20.0.0.0"]),
    ('foo == "bar"', 'foo != "bar"', ["10.0.0.0"]),
    ('foo != "bar"', "all()", ["20.0.0.0"]),
])  # fmt: skip
def test_pools_that_select_the_node_serve_in_the_order_of_their_names(
    first: str, second: str, given: list[str]
) -> None:
    """I-67: each pool has one address, and both are asked for."""
    harness = IPAMHarness.new()
    harness.add_pool("p1", "10.0.0.0/32")
    harness.add_pool("p2", "20.0.0.0/32")
    harness.change_pool("p1", node_selector=first)
    harness.change_pool("p2", node_selector=second)
    harness.label_node(foo="bar")
    assert harness.assign_up_to("h", ipv4(2)) == given


def test_pools_that_are_disabled_or_do_not_match_serve_nobody() -> None:
    """I-67."""
    harness = IPAMHarness.new()
    harness.add_pool("p1", "10.0.0.0/32")
    harness.add_pool("p2", "20.0.0.0/32")
    harness.disable_pool("p1")
    harness.label_node(foo="bar")
    assert harness.assign_up_to("h1", ipv4(2)) == ["20.0.0.0"]
    harness.change_pool("p2", node_selector='foo != "bar"')
    with pytest.raises(NoPoolServes):
        harness.assign_up_to("h2")


@pytest.mark.parametrize("zone, environment, is_served", [
    ("us-west", "production", True), ("us-west", "development", False), ("us-east", "production", False),
])  # fmt: skip
def test_node_and_namespace_are_both_selected(
    harness: IPAMHarness, zone: str, environment: str, *, is_served: bool
) -> None:
    """I-69."""
    harness.change_pool("main", node_selector="zone == 'us-west'", namespace_selector="environment == 'production'")
    harness.label_node(zone=zone)
    request = evolve(make_request("h"), namespace_labels=(("environment", environment),))
    if is_served:
        assert harness.assign(request) == ["10.0.0.0"]
    else:
        with pytest.raises(NoPoolServes):
            harness.assign(request)
    assert harness.assign(evolve(request, handle="named", wanted=(ipv4(1, "main"),)))  # a name overrides both


def test_a_selector_that_cannot_be_read_takes_its_own_pool_out(harness: IPAMHarness) -> None:
    harness.change_pool("main", namespace_selector="environment == production")
    with pytest.raises(NoPoolServes, match=r"IPPool main .* its selector cannot be read \(spec.namespaceSelector: "):
        harness.assign_up_to("h")
    harness.add_pool("other", "11.0.0.0/24")
    assert harness.assign_up_to("h") == ["11.0.0.0"]


@pytest.mark.parametrize("entry", ["fd80:24e2:f998:72d6:0000:0000:0000:0000/120", "FD80:24E2:F998:72D6::/120"])
def test_a_pool_is_named_by_its_prefix_in_any_spelling(entry: str) -> None:
    """I-70, trap 23."""
    harness = IPAMHarness.new()
    harness.add_pool("six", "fd80:24e2:f998:72d6::/120")
    assert harness.assign_or_refuse("h", ipv6(1, entry)) == ["fd80:24e2:f998:72d6::"]


@pytest.mark.parametrize("cidr, length, count", [
    ("10.10.0.0/24", 26, 4), ("fd80:24e2:f998:72d6::/120", 122, 4),
    ("10.10.0.0/16", 20, 16), ("fd80:24e2:f998:72d6::/114", 116, 4),
    ("10.10.0.0/24", 32, 256), ("fd80:24e2:f998:72d6::/120", 128, 256),
])  # fmt: skip
def test_a_node_looks_at_each_block_of_a_pool_once(cidr: str, length: int, count: int) -> None:
    """I-72, V20."""
    pool = Prefix.parse(cidr)
    assert pool.subprefix_count(length) == count
    blocks = list(block_order(hashed_start(NODE, pool, count), pool, length))
    assert sorted(blocks) == [pool.subprefix(position, length) for position in range(count)]
    assert {block.family for block in blocks} <= set(Family)


def test_claims_of_a_range_are_refused_where_others_have_blocks(harness: IPAMHarness) -> None:
    """What I-39 is without a race: a stale claim of ours on another's block goes."""
    harness.assign_or_refuse("h", node=OTHER_NODE)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    made = claim(harness.store, host_owner(NODE), Prefix.parse("10.0.0.0/24"), pace=harness.pace)
    assert (len(made.claimed), made.failed) == (3, (Prefix.parse(BLOCK_0),))
    assert harness.find(affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0))) is None


def test_claims_that_race_never_exceed_a_limit_together() -> None:
    """V14, which a condition on the last claim alone does not keep: each of the three sees room for two."""
    harness = IPAMHarness.new()
    for number in range(3):
        harness.add_pool(f"p{number}", f"10.{number}.0.0/24")
    harness.configure(is_affinity_strict=True, max_blocks_per_host=2)

    def third() -> None:
        harness.assign(make_request("h2", ipv4(1, "p2")))

    def second() -> None:
        harness.assign(make_request("h1", ipv4(1, "p1")), {1: RunBefore(third)})

    with pytest.raises(BlockLimitReached):
        harness.assign(make_request("h0", ipv4(1, "p0")), {1: RunBefore(second)})
    assert len(harness.affinity_records()) == 2
