"""Cases of automatic assignment, by the ids of the project's list: I-15 to I-37."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Automatic, Shortfall
from netplug_core.ipam.outcome import (
    BlockLimitReached,
    NoPoolQualifies,
    NoPoolServes,
    PoolRefused,
    PoolsExhausted,
    PoolUnknown,
)
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse, ippool_key
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request

FOUR, SIX = "192.168.1.0/24", "fd80:24e2:f998:72d6::/120"


def cluster(*pools: tuple[str, str, int]) -> IPAMHarness:
    """Pools by name, CIDR and block length (0: the default)."""
    harness = IPAMHarness.new()
    for name, cidr, length in pools:
        harness.add_pool(name, cidr, length)
    return harness


def both_families(four_length: int = 0, six_length: int = 0) -> IPAMHarness:
    return cluster(("four", FOUR, four_length), ("six", SIX, six_length))


def assigned(harness: IPAMHarness, request: AssignRequest) -> Assignment:
    """What the allocator answers where less than asked will do."""
    request = evolve(request, shortfall=Shortfall.RETURN)
    return harness.ipam().assign(request, NO_ENDPOINT, deadline=harness.deadline)


def texts(harness: IPAMHarness, request: AssignRequest) -> list[str]:
    """Why each family got less than it wanted."""
    return [str(shortfall) for shortfall in assigned(harness, request).shortfalls]


# --- how many, and from where -------------------------------------------------------------------------------------


@pytest.mark.parametrize("four, six, lengths", [
    (FOUR, SIX, (26, 122)), (FOUR, SIX, (32, 128)), ("192.168.0.0/16", "fd80:24e2:f998:72d6::/110", (20, 116)),
])  # fmt: skip
def test_one_address_of_each_family(four: str, six: str, lengths: tuple[int, int]) -> None:
    """I-15."""
    harness = cluster(("four", four, lengths[0]), ("six", six, lengths[1]))
    harness.take_call_counts()
    first, second = harness.assign_or_refuse("h", ipv4(), ipv6())
    assert harness.take_call_counts() == (2, 1)
    assert (first, second) == (str(Prefix.parse(four).first), str(Prefix.parse(six).first))
    assert harness.handle_counts("h") == {f"{first}/{lengths[0]}": 1, f"{second}/{lengths[1]}": 1}


def test_a_whole_pool_of_each_family() -> None:
    """I-16."""
    harness = both_families()
    taken = harness.assign_or_refuse("h", ipv4(256), ipv6(256))
    assert len(set(taken)) == 512
    assert len(harness.blocks()) == 8
    assert set(harness.handle_counts("h").values()) == {64}
    assert sorted(harness.release("h")) == sorted(taken)
    assert harness.held() == {}


def test_a_whole_pool_of_tiny_blocks_where_the_request_allows_as_many() -> None:
    """I-16, with blocks of four addresses."""
    harness = both_families(30, 126)
    wanted = evolve(make_request("h", ipv4(256), ipv6(256)), block_limit=256)
    taken = harness.assign(evolve(wanted, shortfall=Shortfall.RETURN))
    assert len(set(taken)) == 512
    assert len(harness.blocks()) == 2 * 64


@pytest.mark.parametrize("wanted, pool", [(ipv4(257), FOUR), (ipv6(257), SIX)])
def test_one_more_than_a_pool_has(wanted: Automatic, pool: str) -> None:
    """I-17."""
    harness = both_families()
    result = assigned(harness, make_request("h", wanted))
    assert len(set(result.addresses)) == 256
    (shortfall,) = result.shortfalls
    assert str(shortfall).startswith(
        f"Assigned 256 out of 257 requested {wanted.family} addresses; No IPs available in pools: [{pool}]; IPPool "
    )
    with pytest.raises(PoolsExhausted):
        harness.assign_or_refuse("h", wanted)


def test_a_node_borrows_what_its_own_block_lacks() -> None:
    """I-19."""
    harness = cluster(("main", "10.0.0.0/25", 0))
    assert harness.assign_or_refuse("a", node="host-a") == ["10.0.0.0"]
    assert harness.assign_or_refuse("b", node="host-b") == ["10.0.0.64"]
    assert harness.assign_or_refuse("c", ipv4(64), node="host-a") == [
        f"10.0.0.{number}" for number in (*range(1, 64), 65)
    ]
    assert harness.blocks() == {"10.0.0.0/26": "host:host-a", "10.0.0.64/26": "host:host-b"}


def test_strict_affinity_keeps_a_request_to_the_pool_it_names() -> None:
    """I-20."""
    harness = cluster(("one", "192.168.1.0/26", 0), ("two", "192.168.1.64/26", 0))
    harness.configure(is_affinity_strict=True)
    request = make_request("h", ipv4(256, "192.168.1.0/26"))
    assert len(assigned(harness, request).addresses) == 64
    (text,) = texts(harness, request)
    assert text.startswith(
        "Assigned 64 out of 256 requested IPv4 addresses; No more free affine blocks and strict affinity enabled; "
    )


def test_pools_serve_the_uses_they_allow() -> None:
    """I-21."""
    harness = cluster(("two", "192.168.2.0/24", 32), ("three", "192.168.3.0/24", 32))
    harness.change_pool("two", allowed_uses=(AllowedUse.WORKLOAD,))
    harness.change_pool("three", allowed_uses=(AllowedUse.TUNNEL,))
    with pytest.raises(NoPoolQualifies, match="no pools match the required use"):
        harness.assign_or_refuse("a", ipv4(1, "192.168.3.0/24"))
    assert harness.assign_or_refuse("b", ipv4(1, "192.168.2.0/24")) == ["192.168.2.0"]
    assert harness.assign_or_refuse("c") == ["192.168.2.1"]
    tunnel = evolve(make_request("d", ipv4(1, "192.168.3.0/24")), use=AllowedUse.TUNNEL)
    assert harness.assign(tunnel) == ["192.168.3.0"]
    harness.remove(ippool_key("two"))
    with pytest.raises(NoPoolQualifies):
        harness.assign_or_refuse("e")


def test_reserved_addresses_are_not_given() -> None:
    """I-22."""
    harness = cluster(("main", "10.0.0.0/26", 0))
    harness.reserve("one", "10.0.0.1/32", "10.0.0.32/30")
    harness.reserve("two", "11.0.0.0/30", "10.0.0.17/32")
    left = [number for number in range(64) if number not in {1, 17, 32, 33, 34, 35}]
    assert len(left) == 58
    assert harness.assign_up_to("h", ipv4(64)) == [f"10.0.0.{number}" for number in left]
    harness.release("h")
    harness.reserve("one")
    harness.reserve("two")
    assert len(harness.assign_or_refuse("h", ipv4(64))) == 64


def test_a_host_keeps_the_first_and_last_addresses_of_its_blocks() -> None:
    """I-24, I-71."""
    harness = cluster(("main", "10.0.0.0/24", 30))
    request = evolve(make_request("h1"), host_reserved=(2, 1), block_limit=1, shortfall=Shortfall.RETURN)
    assert harness.assign(request) == ["10.0.0.2"]
    with pytest.raises(BlockLimitReached) as caught:
        harness.assign(evolve(request, handle="h2"))
    assert str(caught.value) == (
        "Assigned 0 out of 1 requested IPv4 addresses; "
        "Need to allocate an IPAM block but could not - limit of 1 blocks reached for this node; "
        "HostReservedAttr: windows-reserved-ipam-handle"
    )
    assert harness.assign(evolve(request, handle="h3", wanted=(ipv4(3),), block_limit=4)) == [
        "10.0.0.6", "10.0.0.10", "10.0.0.14",
    ]  # fmt: skip
    assert not harness.block("10.0.0.0/30").is_empty
    harness.release("h1")
    assert harness.block("10.0.0.0/30").is_empty


def test_a_block_of_its_own_with_room_comes_before_a_new_one() -> None:
    """I-34: each block has one usable address."""
    harness = cluster(("main", "10.0.0.0/24", 30))
    request = evolve(make_request("h1", ipv4(2)), host_reserved=(2, 1))
    assert harness.assign(request) == ["10.0.0.2", "10.0.0.6"]
    harness.release("h1")
    given = [harness.assign(evolve(request, handle=handle, wanted=(ipv4(),))) for handle in ("h2", "h3", "h4")]
    assert given == [["10.0.0.2"], ["10.0.0.6"], ["10.0.0.10"]]
    assert list(harness.blocks()) == ["10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"]


def test_the_longest_free_address_is_given_first() -> None:
    """I-25."""
    harness = cluster(("main", "10.0.0.0/24", 30))
    given = []
    for _round in range(5):
        given += harness.assign_or_refuse("h")
        harness.release("h")
    assert given == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.0"]


# --- pools that come and go ---------------------------------------------------------------------------------------


def test_after_its_pool_is_replaced_a_node_takes_from_the_new_one() -> None:
    """I-26."""
    harness = cluster(("old", "10.0.0.0/24", 0))
    harness.assign_or_refuse("h1")
    harness.remove(ippool_key("old"))
    harness.add_pool("new", "11.0.0.0/24")
    assert harness.assign_or_refuse("h2") == ["11.0.0.0"]


def test_no_node_takes_from_a_block_of_a_pool_that_is_gone() -> None:
    """I-27, trap 8."""
    harness = cluster(("p10", "10.0.0.0/24", 0), ("p20", "20.0.0.0/24", 0))
    assert harness.assign_or_refuse("h1") == ["10.0.0.0"]
    harness.remove(ippool_key("p10"))
    assert harness.assign_or_refuse("h2", node=OTHER_NODE) == ["20.0.0.0"]
    assert harness.assign_or_refuse("h3") == ["20.0.0.64"]
    assert harness.held()["10.0.0.0"] == "h1"


def test_one_bad_pool_in_a_list_spoils_the_request() -> None:
    """I-29."""
    harness = cluster(("one", "10.0.0.0/24", 0), ("six", SIX, 0))
    with pytest.raises(PoolUnknown, match=r"the given pool \(40\.0\.0\.0/24\) does not exist, or is not enabled"):
        harness.assign_or_refuse("h", ipv4(1, "10.0.0.0/24", "40.0.0.0/24"))
    harness.add_pool("forty", "40.0.0.0/24")
    harness.disable_pool("forty")
    with pytest.raises(PoolRefused, match=r"the given pool \(40\.0\.0\.0/24\) does not exist, or is not enabled"):
        harness.assign_or_refuse("h", ipv4(1, "10.0.0.0/24", "40.0.0.0/24"))
    with pytest.raises(AllocationError, match="is of the other address family"):
        harness.assign_or_refuse("h", ipv4(1, "10.0.0.0/24", SIX))
    assert (harness.blocks(), harness.handles()) == ({}, [])


def test_strict_affinity_on_and_off_decides_who_may_share_a_block() -> None:
    """I-30."""
    harness = cluster(("main", "10.0.0.0/28", 28))

    def both(name: str) -> list[list[str]]:
        requests = (
            evolve(make_request(f"{name}-{node}", node=node), shortfall=Shortfall.RETURN) for node in (NODE, OTHER_NODE)
        )
        return [harness.assign(request) for request in requests]

    assert both("first") == [["10.0.0.0"], ["10.0.0.1"]]
    harness.configure(is_affinity_strict=True)
    assert both("second") == [["10.0.0.2"], []]
    harness.configure(is_affinity_strict=False)
    assert both("third") == [["10.0.0.3"], ["10.0.0.4"]]
    assert harness.blocks() == {"10.0.0.0/28": "host:node-a"}


def test_owner_and_borrower_release_in_any_order() -> None:
    """I-31."""
    harness = cluster(("main", "10.0.0.0/28", 28))
    harness.assign_or_refuse("h1")
    harness.assign_or_refuse("h2", node=OTHER_NODE)
    assert harness.release("h2") == ["10.0.0.1"]
    assert harness.release("h1") == ["10.0.0.0"]
    assert harness.block("10.0.0.0/28").free == (*range(2, 16), 1, 0)


def test_a_limit_of_blocks_is_one_of_the_cluster_or_of_the_request() -> None:
    """I-32."""
    harness = cluster(("main", "10.0.0.0/28", 30))
    harness.configure(is_affinity_strict=True, max_blocks_per_host=2)
    for number in range(8):
        assert harness.assign_or_refuse(f"h{number}") == [f"10.0.0.{number}"]
    with pytest.raises(BlockLimitReached, match="but could not - limit of 2 blocks reached for this node"):
        harness.assign_up_to("h8")
    assert harness.assign_or_refuse("h9", node=OTHER_NODE) == ["10.0.0.8"]
    with pytest.raises(BlockLimitReached):
        harness.assign_or_refuse("h10")
    with pytest.raises(BlockLimitReached, match="limit of 2 blocks"):
        harness.assign(evolve(make_request("h10"), block_limit=3))
    harness.configure(is_affinity_strict=True, max_blocks_per_host=3)
    with pytest.raises(BlockLimitReached, match="limit of 2 blocks"):
        harness.assign(evolve(make_request("h10"), block_limit=2))
    assert harness.assign_or_refuse("h10") == ["10.0.0.12"]


# --- nodes that pools select no more ------------------------------------------------------------------------------


def test_a_node_that_a_pool_selects_no_more_gets_nothing_and_another_borrows_from_it() -> None:
    """I-35."""
    harness = cluster(("main", "10.0.0.0/30", 30))
    harness.change_pool("main", node_selector="foo == 'bar'")
    harness.label_node("host1", foo="bar")
    harness.label_node("host2", foo="baz")
    assert harness.assign_or_refuse("h1", ipv4(3), node="host1") == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    harness.label_node("host1", foo="baz")
    harness.label_node("host2", foo="bar")
    with pytest.raises(NoPoolServes, match="no configured netplug pools for node host1"):
        harness.assign_up_to("h2", node="host1")
    assert harness.assign_or_refuse("h3", node="host2") == ["10.0.0.3"]
    assert harness.blocks() == {"10.0.0.0/30": "host:host1"}


def emptied() -> IPAMHarness:
    """A node that had three addresses of a pool, and gave them back."""
    harness = cluster(("pool1", "10.0.0.0/24", 30))
    harness.label_node(foo="bar")
    harness.assign_or_refuse("h1", ipv4(3))
    harness.release("h1")
    return harness


def test_the_next_allocation_gives_up_an_empty_block_of_a_pool_that_selects_the_node_no_more() -> None:
    """I-36."""
    harness = emptied()
    harness.change_pool("pool1", node_selector="foo == 'baz'")
    assert harness.blocks() == {"10.0.0.0/30": "host:node-a"}
    assert harness.affinities() == {(NODE, "10.0.0.0/30"): "confirmed"}
    harness.add_pool("pool2", "20.0.0.0/24", 30)
    assert harness.assign_or_refuse("h2", ipv4(3)) == ["20.0.0.0", "20.0.0.1", "20.0.0.2"]
    assert harness.blocks() == {"20.0.0.0/30": "host:node-a"}
    assert harness.affinities() == {(NODE, "20.0.0.0/30"): "confirmed"}


@pytest.mark.parametrize("named", [(), ("pool2",)])
def test_an_empty_block_stays_where_only_the_use_differs_or_another_pool_is_named(named: tuple[str, ...]) -> None:
    """I-37, trap 25."""
    harness = emptied()
    if not named:
        harness.change_pool("pool1", allowed_uses=(AllowedUse.TUNNEL,))
    harness.add_pool("pool2", "20.0.0.0/24", 30)
    assert harness.assign_or_refuse("h2", ipv4(3, *named)) == ["20.0.0.0", "20.0.0.1", "20.0.0.2"]
    assert harness.affinities() == {(NODE, "10.0.0.0/30"): "confirmed", (NODE, "20.0.0.0/30"): "confirmed"}


@pytest.mark.parametrize("four, six, given", [
    ("0.0.0.0/30", "::/126", ["0.0.0.0", "::"]),
    ("255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", ["255.255.255.255", "ffff:" * 7 + "ffff"]),
    ("0.0.0.0/1", "::/1", ["0.0.0.0", "::"]),
])  # fmt: skip
def test_blocks_of_one_address_and_pools_at_the_ends_of_a_family(four: str, six: str, given: list[str]) -> None:
    """Trap 9."""
    harness = cluster(("four", four, 32), ("six", six, 128))
    assert harness.assign_or_refuse("h", ipv4(), ipv6()) == given
    assert sorted(harness.release("h")) == sorted(str(Address.parse(address)) for address in given)
