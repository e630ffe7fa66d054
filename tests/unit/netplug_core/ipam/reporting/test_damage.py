"""What other records say about a block or a pool that cannot be read."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model import BLOCK, HANDLE, Attribute, Block, Handle, handle_key
from netplug_core.ipam.reporting.check import find_block_risks, find_pool_risks
from netplug_core.records import Kind, List, Malformed, Query, ReadResult, Record, Revision, Snapshot
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.workloadendpoint import (
    WORKLOAD_ENDPOINT,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)

BLOCK_PREFIX = Prefix.parse("10.0.0.0/30")
OTHER = Prefix.parse("10.0.0.4/30")


def snapshot_of(*found: Record[object] | tuple[Kind[object], Malformed]) -> Snapshot:
    kinds: tuple[Kind[object], ...] = (BLOCK, HANDLE, IPPOOL, WORKLOAD_ENDPOINT)
    results: dict[Query, ReadResult] = {
        List(kind): ReadResult(
            tuple(each for each in found if isinstance(each, Record) and each.key.kind == kind),
            malformed=tuple(each[1] for each in found if isinstance(each, tuple) and each[0] == kind),
        )
        for kind in kinds
    }
    return Snapshot(results, {})


def handle(name: str, *blocks: Prefix) -> Record[object]:
    return Record(handle_key(name), Handle(blocks=tuple((prefix, 1) for prefix in blocks)), Revision("1"))


def endpoint(name: str, *addresses: str) -> Record[object]:
    spec = WorkloadEndpointSpec(
        orchestrator="cni", node="a", endpoint="eth0", addresses=tuple(map(Address.parse, addresses))
    )
    value = WorkloadEndpoint(metadata=Metadata(name=name, namespace="default"), spec=spec)
    return Record(WORKLOAD_ENDPOINT.key("default", name), value, Revision("1"))


def block(prefix: Prefix, held: int) -> Record[object]:
    made = Block.new(prefix, owner="host:a", now_ns=1).assign(
        tuple(map(Ordinal, range(held))), Attribute(handle="h", owner=(("node", "a"),))
    )
    return Record(made.key, made, Revision("1"))


def pool(cidr: str) -> Record[object]:
    made = IPPool.for_prefix(Prefix.parse(cidr), name="p")
    return Record(made.key, made, Revision("1"))


def damaged(kind: Kind[object]) -> tuple[Kind[object], Malformed]:
    return (kind, Malformed(f"{kind}(x)", "it is rotten"))


def test_a_block_that_nobody_names_holds_nothing() -> None:
    found = snapshot_of(handle("h", OTHER), endpoint("e", "10.0.0.4", "fd00::1"), damaged(BLOCK), damaged(IPPOOL))
    assert find_block_risks(found, BLOCK_PREFIX) == ()


@pytest.mark.parametrize(
    "found, risk",
    [
        (handle("h", OTHER, BLOCK_PREFIX), "handles that count addresses in it: 1 (h)"),
        (endpoint("e", "10.0.0.4", "10.0.0.3"), "workload endpoints with an address of it: 1 (e)"),
        (damaged(HANDLE), "handles that cannot be read: 1"),
        (damaged(WORKLOAD_ENDPOINT), "workload endpoints that cannot be read: 1"),
    ],
)
def test_each_record_that_names_a_block_is_named(
    found: Record[object] | tuple[Kind[object], Malformed], risk: str
) -> None:
    assert find_block_risks(snapshot_of(found), BLOCK_PREFIX) == (risk,)


def test_only_the_first_names_are_shown() -> None:
    handles = [handle(f"h{number}", BLOCK_PREFIX) for number in range(6)]
    assert find_block_risks(snapshot_of(*handles), BLOCK_PREFIX) == (
        "handles that count addresses in it: 6 (h0, h1, h2, h3, h4, …)",
    )


def test_addresses_outside_every_pool_may_be_those_of_a_pool_that_cannot_be_read() -> None:
    found = (pool("10.1.0.0/24"), block(BLOCK_PREFIX, 2), block(Prefix.parse("10.1.0.0/30"), 3), block(OTHER, 1))
    assert find_pool_risks(snapshot_of(*found)) == ("addresses held in blocks of no other pool: 3",)
    assert find_pool_risks(snapshot_of(damaged(BLOCK))) == ("blocks that cannot be read: 1",)
    assert find_pool_risks(snapshot_of(block(OTHER, 0), damaged(IPPOOL))) == ()


def test_a_cooling_address_is_not_in_use() -> None:
    record = block(BLOCK_PREFIX, 1)
    assert isinstance(record.value, Block)
    cooling = evolve(record, value=record.value.release(frozenset({Ordinal(0)}), cooling_from_ns=1))
    assert find_pool_risks(snapshot_of(cooling)) == ()
