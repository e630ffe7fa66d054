"""Repairs that make handles and affinities from blocks: what they write, and when they write nothing."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.allocation.context import BLOCKS_PER_RESTORED_HANDLE
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.ipam.reporting.check import (
    DeleteDamaged,
    RestoreAffinity,
    RestoreBlock,
    RestoreHandle,
    find_unheld,
    loss_text,
    plan_blocks,
)
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Malformed,
    Query,
    ReadResult,
    Record,
    Require,
    Revision,
    Snapshot,
    Update,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.resources import make_pool

ONE, TWO = Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.0.4/30")
BLOCK = Block.new(ONE, owner="host:a", now_ns=1).assign((Ordinal(0), Ordinal(2)), Attribute(handle="h"))
KEY = affinity_key("host:a", ONE)
HANDLE = RestoreHandle(key=handle_key("h"), blocks=(BLOCK.key, Block.new(TWO, owner="", now_ns=1).key))
AFFINITY = RestoreAffinity(key=KEY, block=BLOCK.key)
DAMAGED = DeleteDamaged(key=handle_key("h"), revision=Revision("3"))


def snapshot_of(queries: tuple[Query, ...], *found: Record[object], damaged: str = "") -> Snapshot:
    """The records; the first query found a record that cannot be read, at that revision."""
    results: dict[Query, ReadResult] = {
        query: ReadResult(tuple(each for each in found if isinstance(query, Get) and query.key == each.key))
        for query in queries
    }
    if damaged:
        results[queries[0]] = ReadResult((), malformed=(Malformed("x", "it is rotten", Revision(damaged)),))
    return Snapshot(results, {})


def record(key: Key[object], value: object, revision: str = "1") -> Record[object]:
    return Record(key, value, Revision(revision))


def test_a_missing_handle_is_created_while_its_blocks_are_unchanged() -> None:
    found = snapshot_of(HANDLE.queries, record(BLOCK.key, BLOCK, "5"))
    assert HANDLE.writes(found) == (
        Require(BLOCK.key, Revision("5")),
        Create(handle_key("h"), Handle(blocks=((ONE, 2),))),
    )


def test_a_handle_over_more_blocks_than_a_commit_takes_is_restored_from_the_first() -> None:
    prefixes = [Prefix.parse(f"10.0.{number}.0/30") for number in range(BLOCKS_PER_RESTORED_HANDLE + 1)]
    blocks = [Block.new(each, owner="", now_ns=1).assign((Ordinal(1),), Attribute(handle="h")) for each in prefixes]
    wide = RestoreHandle(key=handle_key("h"), blocks=tuple(block.key for block in blocks))
    *required, made = wide.writes(snapshot_of(wide.queries, *(record(block.key, block) for block in blocks)))
    assert required == [Require(block.key, Revision("1")) for block in blocks[:-1]]
    assert made == Create(wide.key, Handle(blocks=tuple((each, 1) for each in prefixes[:-1])))


def test_a_damaged_handle_is_replaced_at_its_revision() -> None:
    found = snapshot_of(HANDLE.queries, record(BLOCK.key, BLOCK, "5"), damaged="9")
    assert HANDLE.writes(found)[-1] == Update(handle_key("h"), Handle(blocks=((ONE, 2),)), Revision("9"))


def test_a_handle_that_is_stored_by_now_or_holds_nothing_is_left() -> None:
    assert HANDLE.writes(snapshot_of(HANDLE.queries, record(handle_key("h"), Handle()))) == ()
    empty = Block.new(ONE, owner="host:a", now_ns=1)
    assert HANDLE.writes(snapshot_of(HANDLE.queries, record(BLOCK.key, empty))) == ()


def test_an_affinity_is_restored_pending_so_that_its_owner_confirms_it() -> None:
    pending = Affinity(state=AffinityState.PENDING)
    block = record(BLOCK.key, BLOCK, "5")
    required = Require(BLOCK.key, Revision("5"))
    assert AFFINITY.writes(snapshot_of(AFFINITY.queries, block)) == (required, Create(KEY, pending))
    damaged = snapshot_of(AFFINITY.queries, block, damaged="9")
    assert AFFINITY.writes(damaged) == (required, Update(KEY, pending, Revision("9")))
    stored = record(KEY, Affinity(state=AffinityState.CONFIRMED))
    assert AFFINITY.writes(snapshot_of(AFFINITY.queries, block, stored)) == ()


@pytest.mark.parametrize("block", [None, BLOCK.relinquished(), Block.new(ONE, owner="host:b", now_ns=1)])
def test_an_affinity_is_not_restored_to_a_block_of_another(block: Block | None) -> None:
    found = (record(BLOCK.key, block),) if block else ()
    assert AFFINITY.writes(snapshot_of(AFFINITY.queries, *found)) is None


def test_a_damaged_record_is_deleted_as_it_was_judged() -> None:
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries, damaged="3")) == (Delete(handle_key("h"), Revision("3")),)
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries, damaged="4")) is None
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries, record(handle_key("h"), Handle(), "3"))) is None
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries)) == ()


# --- lost blocks -----------------------------------------------------------------------------------------------------


def pod(name: str, *addresses: str, node: str = "a", container: str = "c1") -> WorkloadEndpoint:
    spec = WorkloadEndpointSpec(
        orchestrator="k8s",
        node=node,
        container_id=container,
        pod=name,
        endpoint="eth0",
        addresses=tuple(map(Address.parse, addresses)),
    )
    return WorkloadEndpoint(metadata=Metadata(name=f"{node}-k8s-{name}-eth0", namespace="web"), spec=spec)


def plan(
    *endpoints: WorkloadEndpoint, pools: tuple[IPPool, ...] = (), blocks: tuple[Block, ...] = ()
) -> list[RestoreBlock]:
    return list(plan_blocks(find_unheld(endpoints, blocks), pools=pools, blocks=blocks, network="net", now_ns=0))


def test_addresses_that_no_block_holds() -> None:
    """One in cooldown is held by nobody."""
    cooling = BLOCK.release(frozenset({Ordinal(2)}), cooling_from_ns=1)
    endpoints = [pod("x", "10.0.0.2", "fd00::1"), pod("y", "10.0.0.0"), pod("z")]
    unheld = find_unheld(endpoints, [cooling])
    assert [str(one.address) for one in unheld] == ["10.0.0.2", "fd00::1"]
    assert loss_text(unheld) == (
        "workloads have 2 addresses that no block holds, such as web/x 10.0.0.2: the definitions were deleted, with "
        "every block; a new pool would give these addresses a second time; run netplugctl ipam check --restore first"
    )
    assert loss_text(()) == ""


def test_a_workload_that_is_no_pod_is_named_by_its_endpoint() -> None:
    assert "such as web/a-k8s--eth0 10.0.0.2" in loss_text(find_unheld([pod("", "10.0.0.2")], []))


def test_blocks_are_as_large_as_those_of_the_pool() -> None:
    pools = (make_pool("10.0.0.0/16", block_length=28),)
    found = plan(pod("x", "10.0.0.17"), pod("y", "10.9.0.1", "fd00::1"), pod("z", "10.0.0.30"), pools=pools)
    assert [str(one) for one in found] == [
        "restore block 10.0.0.16/28 of host:a: 2 addresses of workloads",
        "restore block 10.9.0.0/26 of host:a: 1 addresses of workloads",
        "restore block fd00::/122 of host:a: 1 addresses of workloads",
    ]


def test_a_block_is_of_the_node_with_most_of_its_addresses() -> None:
    (found,) = plan(pod("x", "10.0.0.1", node="b"), pod("y", "10.0.0.2"), pod("z", "10.0.0.3", node="b"))
    assert found.owner == "host:b"
    (found,) = plan(pod("x", "10.0.0.1", node=""))
    assert str(found) == "restore block 10.0.0.0/26 of no node: 1 addresses of workloads"


def test_a_lost_block_holds_its_addresses_again_under_the_handles_of_their_attachments() -> None:
    (found,) = plan(pod("x", "10.0.0.1"), pod("y", "10.0.0.2", container=""))
    writes = found.writes(snapshot_of(found.queries))
    assert writes is not None
    (write,) = writes
    assert isinstance(write, Create)
    block = write.value
    assert isinstance(block, Block)
    assert not block.problem()
    held = [(str(one.address), one.attribute.handle, dict(one.attribute.owner)) for one in block.held()]
    stamp = "1970-01-01T00:00:00Z"
    assert held == [
        ("10.0.0.1", "net.c1", {"namespace": "web", "node": "a", "pod": "x", "timestamp": stamp}),
        ("10.0.0.2", "net.web-y", {"namespace": "web", "node": "a", "pod": "y", "timestamp": stamp}),
    ]


def test_a_stored_block_takes_what_is_free_in_it() -> None:
    """After a lost reply nothing is left to write. An address that another workload has by now stays with it."""
    stored = Block.new(ONE, owner="host:b", now_ns=1).assign((Ordinal(2),), Attribute(handle="h"))
    (found,) = plan(pod("x", "10.0.0.1"), blocks=(stored,))
    assert found.prefix == ONE
    writes = found.writes(snapshot_of(found.queries, record(stored.key, stored, "5")))
    assert writes is not None
    (write,) = writes
    assert isinstance(write, Update)
    assert isinstance(write.value, Block)
    assert write.value.owner == "host:b"
    assert [str(one.address) for one in write.value.held()] == ["10.0.0.1", "10.0.0.2"]
    assert found.writes(snapshot_of(found.queries, record(stored.key, write.value))) == ()
    (taken,) = plan(pod("y", "10.0.0.2"))
    taken = evolve(taken, prefix=ONE)
    assert taken.writes(snapshot_of(taken.queries, record(stored.key, stored))) is None
