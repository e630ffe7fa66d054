"""Laws of a cluster in which some stored records are damaged, of whatever kinds, or cannot be judged.

1. Workloads that hold nothing in a damaged record are deleted as ever, and leave nothing.
2. New workloads get addresses on every node as long as one pool serves; no address is given twice, none that is
   reserved as far as that can be read.
3. Where a damaged record itself is needed, the error names it, with the code of malformed records. Where no pool serves
   any more, the refusal names pools that were passed over, and nothing is held.
4. GC goes on.
5. An attribute that no ordinal uses stops nobody, and the next write removes it.
6. Handles and affinities that are damaged, gone or wrong are repaired from the blocks: no address changes, and then
   every workload is deleted and leaves nothing.

The flows are those of the plugin. Stores are atomic, ordered and like an API server.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.errors import Unavailable
from netplug_core.flows.cni.release_records import replay
from netplug_core.flows.ipam.check import RepairResult, check_ipam, repair
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Block, Handle
from netplug_core.ipam.outcome import NoPoolServes
from netplug_core.records import Create, Delete, Key, Kind, List, Malformed, Record, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION,
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPRESERVATION,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
    ippool_key,
    ipreservation_key,
)
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.cni_node import DEFAULT_CONTAINER, CNINodeHarness, ContainerInterface

NODES = ("node-1", "node-2")
KINDS: tuple[Kind[object], ...] = (
    BLOCK, AFFINITY, HANDLE, IPPOOL, IPRESERVATION, IPAM_CONFIGURATION, CLUSTER_INFORMATION, NODE, WORKLOAD_ENDPOINT,
)  # fmt: skip
PODS_PER_NODE = 4
POOLS = {"first": "10.0.0.0/28", "second": "10.1.0.0/24", "third": "10.2.0.0/24"}

JSON_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.floats()
JSON_VALUES = (
    JSON_SCALARS | st.lists(JSON_SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), JSON_SCALARS, max_size=2)
)


def pod(node: str, number: int) -> ContainerInterface:
    name = f"{node}-{number}"
    return ContainerInterface(id=name, netns=f"/run/netns/{name}", args=f"K8S_POD_NAMESPACE=test;K8S_POD_NAME={name}")


PODS = tuple(pod(node, number) for node in NODES for number in range(PODS_PER_NODE))


def make_cluster(mode: MemoryMode) -> CNINodeHarness:
    """Two nodes with pods in blocks of two pools, and a record of every kind."""
    cluster = CNINodeHarness()
    cluster.memory = MemoryDatastore(mode, clock=cluster.clock)
    cluster.store = DamagedDatastore(cluster.memory)
    for name, cidr in POOLS.items():
        selector = "has(zone)" if name == "first" else ""
        spec = IPPoolSpec(prefix=Prefix.parse(cidr), block_length=30, node_selector=selector)
        cluster.commit(Create(ippool_key(name), IPPool(metadata=Metadata(name=name), spec=spec)))
    reserved = IPReservationSpec(reserved=(Prefix.parse("10.1.0.0/30"),))
    cluster.commit(Create(ipreservation_key("r"), IPReservation(metadata=Metadata(name="r"), spec=reserved)))
    settings = IPAMConfiguration(metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(cooldown_s=60))
    cluster.commit(Create(IPAM_CONFIGURATION_KEY, settings))
    cluster.set_ready(is_ready=True)
    for node in NODES:
        labels = (("zone", "z"),)
        cluster.commit(Create(node_key(node), Node(metadata=Metadata(name=node, labels=labels))))
    for each in PODS:
        cluster.add(each, nodename=each.id.rpartition("-")[0])
    return cluster


def stored(cluster: CNINodeHarness, kind: Kind[object]) -> list[Record[object]]:
    found = cluster.memory.read([List(kind)], deadline=Deadline.after(cluster.clock, 5))
    return list(found.list(List(kind)))


def held(cluster: CNINodeHarness) -> dict[str, set[Address]]:
    """What each handle holds, as it was stored before the damage."""
    found: dict[str, set[Address]] = {}
    for address, handle in cluster.allocations().items():
        found.setdefault(handle or "", set()).add(address)
    return found


def paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The place of every member and item of a JSON value."""
    members: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        members = list(cast("dict[str | int, object]", value).items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    return [path, *(inner for name, member in members for inner in paths(member, (*path, name)))]


def replaced(value: object, path: tuple[str | int, ...], new: object) -> object:
    if not path:
        return new
    copy = (
        dict(cast("Mapping[str | int, object]", value))
        if isinstance(value, dict)
        else list(cast("list[object]", value))
    )
    inner = cast("dict[str | int, object]", copy)
    inner[path[0]] = replaced(inner[path[0]], path[1:], new)
    return copy


@st.composite
def damaged(draw: st.DrawFn, record: Record[object]) -> bytes:
    """Other bytes for a record, which no longer stand for a value of its kind."""
    data = STORED_JSON.encode(record.key, record.value)
    if draw(st.booleans()):
        place = draw(st.integers(0, len(data) - 1))
        data = data[:place] + draw(st.binary(max_size=3)) + data[place + 1 :]
    else:
        whole = json.loads(data)
        data = json.dumps(replaced(whole, draw(st.sampled_from(paths(whole))), draw(JSON_VALUES))).encode()
    assume(is_malformed(record.key, data))  # another value of its kind is no damage that can be seen
    return data


def is_malformed(key: Key[object], data: bytes) -> bool:
    try:
        STORED_JSON.decode(key, data)
    except Malformed:
        return True
    return False


def needs(record: Record[object], handle: str, container: ContainerInterface) -> bool:
    """Whether a workload cannot be deleted without a record: its own, or a block that it holds an address in."""
    if isinstance(record.value, Block):
        return bool(record.value.held_by(handle))
    if record.key.kind == HANDLE:
        return record.key.name == handle
    return record.key.kind == WORKLOAD_ENDPOINT and container.id in record.key.name.replace("--", "-")


def damage_some(cluster: CNINodeHarness, data: st.DataObject, *, spared: str) -> tuple[Record[object], ...]:
    """Damage some records, and mistype selectors; nothing happens to one pool."""
    assert isinstance(cluster.store, DamagedDatastore)
    chosen: dict[Key[object], Record[object]] = {}
    for name in data.draw(st.sets(st.sampled_from(sorted(POOLS.keys() - {spared}))), label="mistyped"):
        cluster.memory.commit([mistyped(cluster, name)], deadline=Deadline.after(cluster.clock, 5))
    for kind in data.draw(st.lists(st.sampled_from(KINDS), max_size=5), label="kinds"):
        records = [each for each in stored(cluster, kind) if each.key not in (*chosen, ippool_key(spared))]
        if records:
            record = data.draw(st.sampled_from(records), label="record")
            chosen[record.key] = record
            cluster.store.damage[record.key] = data.draw(damaged(record), label="damage")
    return tuple(chosen.values())


def mistyped(cluster: CNINodeHarness, name: str) -> Update[object]:
    (record,) = (each for each in stored(cluster, IPPOOL) if each.key.name == name)
    value = cast("IPPool", record.value)
    return Update(record.key, evolve(value, spec=evolve(value.spec, node_selector="zone = 'z'")), record.revision)


@pytest.mark.parametrize("mode", MemoryMode)
@given(data=st.data())
def test_any_damage_leaves_the_rest_serving(mode: MemoryMode, data: st.DataObject) -> None:
    cluster = make_cluster(mode)
    before = held(cluster)
    records = damage_some(cluster, data, spared=data.draw(st.sampled_from(("second", "third")), label="spared"))
    in_use = {address for addresses in before.values() for address in addresses}
    for node in NODES:
        result = cluster.add(pod(node, 100), nodename=node)
        fresh = {Prefix.parse(str(each.address)).first for each in result.ips}
        assert not fresh & in_use, f"given twice: {fresh & in_use}"
        assert not any(is_reserved(cluster, address) for address in fresh)
        in_use |= fresh
    for container in PODS:
        handle, node = f"net1.{container.id}", container.id.rpartition("-")[0]
        needed = [record for record in records if needs(record, handle, container)]
        if not needed:
            cluster.run("DEL", container, Plugin.MAIN, nodename=node)
            assert (handle,) not in cluster.values_of_kind(HANDLE)
            continue
        cluster.run("DEL", container, Plugin.MAIN, nodename=node)  # its pod goes; the rest is done once it can be read
        _level, message, fields = cluster.log.lines[-1]
        assert message == "addresses are released later: a record keeps them"
        assert any(str(record.key) in str(fields["cause"]) for record in needed)
        if {record.key.kind for record in needed} == {WORKLOAD_ENDPOINT}:
            assert handle not in cluster.allocations().values()
    for node in NODES:  # it may say what could not be freed, at the end
        with suppress(Unavailable):
            no_attachments: dict[str, object] = {"nodename": node, "cni.dev/valid-attachments": []}
            cluster.run("GC", DEFAULT_CONTAINER, Plugin.MAIN, **no_attachments)
    left = {handle for handle in cluster.allocations().values() if handle}
    stuck = {each.id for each in PODS if any(needs(record, f"net1.{each.id}", each) for record in records)}
    assert left <= {f"net1.{each}" for each in stuck}
    repaired = cluster.store
    assert isinstance(repaired, DamagedDatastore)
    repaired.damage.clear()
    for node in NODES:
        _request, netconf = cluster.make_call("DEL", DEFAULT_CONTAINER, Plugin.MAIN, nodename=node)
        replay(cluster.world, netconf, seconds=60)
    assert not {handle for handle in cluster.allocations().values() if handle in {f"net1.{each}" for each in stuck}}


def is_reserved(cluster: CNINodeHarness, address: Address) -> bool:
    """Whether an address lies in the reserved range, as long as that is still readable in the reservation."""
    assert isinstance(cluster.store, DamagedDatastore)
    data = cluster.store.damage.get(ipreservation_key("r"), b'"10.1.0.0/30"')
    return b'"10.1.0.0/30"' in data and Prefix.parse("10.1.0.0/30").contains(address)


@pytest.mark.parametrize("mode", MemoryMode)
@settings(max_examples=max(10, settings().max_examples // 4))
@given(data=st.data())
def test_where_no_pool_serves_any_more_the_refusal_names_what_was_passed_over(
    mode: MemoryMode, data: st.DataObject
) -> None:
    cluster = make_cluster(mode)
    assert isinstance(cluster.store, DamagedDatastore)
    damage_some(cluster, data, spared="third")
    mistypes = data.draw(st.booleans(), label="mistyped")
    (third,) = (each for each in stored(cluster, IPPOOL) if each.key.name == "third")
    if mistypes:
        cluster.memory.commit([mistyped(cluster, "third")], deadline=Deadline.after(cluster.clock, 5))
    else:
        cluster.store.damage[third.key] = data.draw(damaged(third), label="damage of the last")
    for name in ("first", "second"):
        cluster.store.damage[ippool_key(name)] = b"{"
    before = cluster.allocations()
    with pytest.raises(NoPoolServes) as refusal:
        cluster.add(pod("node-1", 100), nodename="node-1")
    assert "its selector cannot be read" in str(refusal.value) if mistypes else "IPPool(" in str(refusal.value)
    assert cluster.allocations() == before


@pytest.mark.parametrize("mode", MemoryMode)
def test_an_attribute_that_no_ordinal_uses_stops_nobody_and_goes_with_the_next_write(mode: MemoryMode) -> None:
    cluster = make_cluster(mode)
    assert isinstance(cluster.store, DamagedDatastore)
    unused = {"handle_id": "nobody", "secondary": {"node": "node-9"}}
    records = stored(cluster, BLOCK)
    for record in records:
        whole = json.loads(STORED_JSON.encode(record.key, record.value))
        attributes = [unused, *whole["attributes"]]
        allocations = [None if index is None else index + 1 for index in whole["allocations"]]
        damage = json.dumps({**whole, "attributes": attributes, "allocations": allocations})
        cluster.store.damage[record.key] = damage.encode()
    for each in PODS:
        cluster.run("DEL", each, Plugin.MAIN, nodename=each.id.rpartition("-")[0])
    assert cluster.store.damage == {}
    assert cluster.handles() == []


@pytest.mark.parametrize("mode", MemoryMode)
@settings(max_examples=max(10, settings().max_examples // 4))  # each one adds and deletes every pod
@given(data=st.data())
def test_handles_and_affinities_are_repaired_from_the_blocks(mode: MemoryMode, data: st.DataObject) -> None:
    cluster = make_cluster(mode)
    assert isinstance(cluster.store, DamagedDatastore)
    before = cluster.allocations()
    records = [*stored(cluster, HANDLE), *stored(cluster, AFFINITY)]
    for record in data.draw(st.lists(st.sampled_from(records), min_size=1, unique_by=lambda each: each.key)):
        damage_record(cluster, record, data)
    deadline = Deadline.after(cluster.clock, 600)
    report = check_ipam(cluster.store, clock=cluster.clock, deadline=deadline)
    attempts = tuple(repair(cluster.store, report, chance=lambda: 0.5, deadline=deadline))
    assert {attempt.result for attempt in attempts} <= {RepairResult.DONE}
    assert check_ipam(cluster.store, clock=cluster.clock, deadline=deadline).problems == 0
    assert cluster.store.damage == {}
    assert cluster.allocations() == before
    for each in PODS:
        cluster.run("DEL", each, Plugin.MAIN, nodename=each.id.rpartition("-")[0])
    cooling = set(cluster.allocations().values())
    assert (cooling, cluster.handles()) == ({None}, [])


def damage_record(cluster: CNINodeHarness, record: Record[object], data: st.DataObject) -> None:
    """Other bytes for a handle or an affinity, a wrong count, or nothing at all in its place."""
    assert isinstance(cluster.store, DamagedDatastore)
    way = data.draw(st.sampled_from(("damaged", "gone", "wrong")))
    if way == "damaged":
        cluster.store.damage[record.key] = data.draw(damaged(record), label="damage")
    elif way == "gone":
        cluster.memory.commit([Delete(record.key, record.revision)], deadline=Deadline.after(cluster.clock, 5))
    elif isinstance(record.value, Handle):
        blocks = st.sampled_from(
            [each.value.prefix for each in stored(cluster, BLOCK) if isinstance(each.value, Block)]
        )
        counts = data.draw(st.dictionaries(blocks, st.integers(1, 5)), label="counts")
        wrong = Handle(blocks=tuple(sorted(counts.items())))
        cluster.memory.commit([Update(record.key, wrong, record.revision)], deadline=Deadline.after(cluster.clock, 5))
