"""Blocks of thousands of addresses: they stop before their records outgrow what a store accepts, and say so."""

import pytest
from attrs import evolve

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.ipam.model import LARGE_BLOCK, MAX_STORED_SIZE, Attribute, Attributes, Block, block_key
from netplug_core.ipam.outcome import BlockUnusable
from tests.harness.ipam import NODE, IPAMHarness, make_request, specific

ETCD_REQUEST = 1_572_864
WHOLE = Prefix.parse("10.0.0.0/20")


def owner(number: int) -> tuple[tuple[str, str], ...]:
    """What an ADD on Kubernetes stores, with names of the usual length."""
    return (
        ("container", f"{number:064x}"),
        ("interface", "eth0"),
        ("namespace", "a-namespace-of-a-team"),
        ("network", "k8s-pod-network"),
        ("node", "ip-10-0-0-1.eu-central-1.compute.internal"),
        ("pod", f"a-deployment-of-a-team-6d4cf56db6-{number:05}"),
        ("timestamp", "2026-01-01T00:00:00Z"),
    )


def filled(count: int, prefix: Prefix = WHOLE) -> Block:
    """A block whose first addresses are held by a workload each."""
    attributes = Attributes.of(
        Attribute(handle=f"k8s-pod-network.{number:064x}", owner=owner(number)) for number in range(count)
    )
    new = Block.new(prefix, owner=f"host:{NODE}", now_ns=1_760_000_000_000_000_000)
    return evolve(
        new,
        allocations=(*range(count), *(None,) * (prefix.size - count)),
        free=tuple(map(Ordinal, range(count, prefix.size))),
        attributes=attributes,
        sequences=(new.sequence,) * count + (0,) * (prefix.size - count),
    )


def full_count() -> int:
    """How many addresses a block of 4,096 gives before it takes no more."""
    low, high = 0, WHOLE.size
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if filled(middle).is_at_size_limit else (middle + 1, high)
    return low


def stored(block: Block) -> int:
    return len(STORED_JSON.encode(block.key, block))


def test_a_block_stops_well_before_the_request_is_too_large_and_not_long_before() -> None:
    last = filled(full_count())
    assert 2000 < full_count() < WHOLE.size
    assert stored(last) < last.stored_size() < 1.2 * stored(last)
    assert MAX_STORED_SIZE * 0.8 < stored(last) < ETCD_REQUEST * 0.8
    whole_request = last.assign(last.free, Attribute(handle="h" * 253, owner=owner(1)))
    assert stored(whole_request) < ETCD_REQUEST


def test_the_estimate_counts_what_json_escapes_and_what_others_stored() -> None:
    attribute = Attribute(
        handle='"' * 100, owner=(("k", "\u0001" * 100),), alternate=(("ä" * 9, "b"),), unknown_json='{"x": 1}'
    )
    cooling = Attribute(released_ns=0)
    block = evolve(filled(0), unknown_json='{"y": 2}').assign((Ordinal(0),), attribute).assign((Ordinal(1),), cooling)
    assert stored(block) < block.stored_size()


def test_only_large_blocks_can_be_too_large() -> None:
    long_name = (("pod", "x" * 10_000),)
    small = Prefix.parse("10.0.0.0/23")
    assert small.size == LARGE_BLOCK
    huge = evolve(
        filled(512, small), attributes=Attributes.of(Attribute(handle="h", owner=long_name) for _ in range(512))
    )
    assert huge.stored_size() > MAX_STORED_SIZE
    assert not huge.is_at_size_limit


@pytest.fixture
def harness() -> IPAMHarness:
    """A pool of two blocks of 4,096 addresses; the node's has room for more addresses than a store takes."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/19", 20)
    harness.put_owned_block("10.0.0.0/20")
    record = harness.find_record(block_key(WHOLE))
    assert record is not None
    harness.put(record.key, filled(full_count()))
    return harness


def test_the_next_block_serves_and_the_trace_says_why(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse("h") == ["10.0.16.0"]
    trace = [str(entry) for entry in harness.decision(make_request("next")).trace]
    assert "block 10.0.0.0/20 takes no more addresses: its record nears the size that a datastore accepts" in trace


def test_a_specific_address_of_it_is_refused(harness: IPAMHarness) -> None:
    with pytest.raises(BlockUnusable, match=r"10\.0\.15\.255: block 10\.0\.0\.0/20 takes no more addresses"):
        harness.assign_or_refuse("h", specific("10.0.15.255"))
