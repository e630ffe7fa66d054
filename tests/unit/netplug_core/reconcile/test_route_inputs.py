"""What routes follow from: what stored records say of blocks, and the prefixes that an orchestrator gives to nodes."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.dataplane.bgp import BgpUse
from netplug_core.datastore.view import START, View
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    RESERVED_HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    affinity_key,
    block_key,
)
from netplug_core.keys import Key
from netplug_core.reconcile.route_inputs import (
    BlockRoutes,
    RouteInputs,
    find_block_routes,
    find_route_settings,
    update_inputs,
)
from netplug_core.reconcile.tunnels import MTUSettings
from netplug_core.records import Kind, List, Query, ReadResult, Record, Revision, Snapshot, WatchEvent
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, Encapsulation
from netplug_core.resources.node import NODE, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, NodeConfigurationSpec
from netplug_core.testing.clock import ManualClock
from tests.harness.routes import engine_of, interface, make_node, make_pool, seen

A = make_node("a", "192.0.2.1/24", tunnel="10.0.0.1")
B = make_node("b", "192.0.2.2/24", tunnel="10.0.0.65")
ETH0 = interface("eth0", "192.0.2.1/24")
ALWAYS = Encapsulation.ALWAYS
OF_B = "10.0.0.64/26"


# --- what stored records say ------------------------------------------------------------------------------------------


def attribute(handle: str, node: str = "", released_ns: int | None = None) -> Attribute:
    owner = (("node", node),) if node else ()
    return Attribute(handle=handle, owner=owner, released_ns=released_ns)


def test_only_addresses_that_other_nodes_hold_count_of_a_block() -> None:
    block = Block.new(Prefix.parse("10.0.0.0/29"), owner="host:a", now_ns=0)
    holders = (
        attribute("own", "a"),
        attribute("other", "b"),
        attribute("nobody"),
        attribute("gone", "b", released_ns=1),
        attribute(RESERVED_HANDLE),
    )
    for number, each in enumerate(holders):
        block = block.assign((Ordinal(number),), each)
    other, nobody = Address.parse("10.0.0.1"), Address.parse("10.0.0.2")
    assert find_block_routes(block, is_confirmed=True) == BlockRoutes("a", ((other, "b"),), (nobody,))
    # Without a confirmed affinity the block is nobody's, and each address has a route of its own.
    elsewhere = ((Address.parse("10.0.0.0"), "a"), (other, "b"))
    assert find_block_routes(block, is_confirmed=False) == BlockRoutes("", elsewhere, (nobody,))
    empty = Block.new(Prefix.parse("10.0.0.0/29"), owner="host:a", now_ns=0)
    assert find_block_routes(empty, is_confirmed=True) == BlockRoutes("a")


def record(key: Key[object], value: object) -> Record[object]:
    return Record(key, value, Revision("1"))


KINDS: tuple[Kind[object], ...] = (NODE, IPPOOL, BLOCK, AFFINITY, NODE_CONFIGURATION)


def view_of(*records: Record[object], kinds: tuple[Kind[object], ...] = KINDS) -> View:
    view = View(clock=ManualClock(), uncached_kinds=frozenset())
    found = {kind: tuple(each for each in records if each.key.kind == kind) for kind in kinds}
    results: dict[Query, ReadResult] = {List(kind): ReadResult(each) for kind, each in found.items()}
    view.follow_lists(Snapshot(results, {kind: Revision("1") for kind in kinds}), now_s=0.0)
    return view


def test_an_engine_follows_a_view() -> None:
    pool = make_pool("10.0.0.0/16", vxlan=ALWAYS)
    prefix = Prefix.parse(OF_B)
    block = Block.new(prefix, owner="host:b", now_ns=0)
    affinity = affinity_key("host:b", prefix)
    view = view_of(
        record(node_key("a"), A),
        record(node_key("b"), B),
        record(pool.key, pool),
        record(block_key(prefix), block),
        record(affinity, Affinity(state=AffinityState.PENDING)),
    )
    found = engine_of("a", interfaces=(ETH0,))
    mark, changed = view.changes_since(START)
    update_inputs(found.inputs, view, changed)
    assert not any(isinstance(each, str) and OF_B in each for each in seen(found)), "a pending affinity owns nothing"
    confirmed = Affinity(state=AffinityState.CONFIRMED)
    view.apply_event(WatchEvent(affinity, confirmed, Revision("2")), now_s=0.0)
    mark, changed = view.changes_since(mark)
    update_inputs(found.inputs, view, changed)
    route = f"the route to {OF_B} via the link by 10.0.0.65 over vxlan.netplug from None mtu 1450"
    assert route in seen(found)
    view.apply_event(WatchEvent(pool.key, None, Revision("2")), now_s=0.0)
    view.apply_event(WatchEvent(NODE_CONFIGURATION.key("default"), None, Revision("2")), now_s=0.0)
    view.apply_event(WatchEvent(BLOCK.key("ipv4", "no block"), None, Revision("2")), now_s=0.0)
    mark, changed = view.changes_since(mark)
    update_inputs(found.inputs, view, changed)
    assert f"the route to {OF_B} via the link by 192.0.2.2 over eth0 from 192.0.2.1 mtu 0" in seen(found)
    view.apply_event(WatchEvent(node_key("b"), None, Revision("3")), now_s=0.0)
    view.apply_event(WatchEvent(block_key(prefix), None, Revision("3")), now_s=0.0)
    mark, changed = view.changes_since(mark)
    update_inputs(found.inputs, view, changed)
    assert seen(found) == frozenset()
    unowned = evolve(block, owner="")
    view.apply_event(WatchEvent(block_key(prefix), unowned, Revision("4")), now_s=0.0)
    update_inputs(found.inputs, view, None)
    assert found.inputs.blocks == {prefix: BlockRoutes("")}


def configuration(name: str, **spec: int) -> Record[object]:
    value = NodeConfiguration(metadata=Metadata(name=name), spec=NodeConfigurationSpec(**spec))  # type: ignore[arg-type]
    return record(NODE_CONFIGURATION.key(name), value)


def test_settings_of_the_node_come_before_those_for_all_and_mtus_follow_from_the_interfaces() -> None:
    interfaces = (interface("eth0", "192.0.2.1/24", mtu=9000),)
    settings = find_route_settings(view_of(), "a", interfaces)
    assert settings.vxlan_mtu == {Family.IPV4: 8950, Family.IPV6: 8930}
    assert (settings.ipip_mtu, settings.vxlan_vni, settings.vxlan_port) == (8980, 4096, 4789)
    for_all = configuration("default", vxlan_vni=7, vxlan_port=8472, vxlan_mtu=0)
    view = view_of(for_all, configuration("node.a", vxlan_vni=8))
    settings = find_route_settings(view, "a", interfaces, bgp=BgpUse(is_enabled=True), mtus=MTUSettings(ipip=1400))
    assert (settings.vxlan_vni, settings.vxlan_port, settings.bgp.is_enabled) == (8, 8472, True)
    assert (settings.vxlan_mtu[Family.IPV4], settings.ipip_mtu) == (8950, 1400)


@pytest.mark.parametrize(
    "override, kernel, expected",
    [
        ("", "", None),
        ("", "6.1.0-18-amd64", None),
        ("", "5.8.1", None),
        ("", "5.7.19", False),
        ("", "4.18.0-513.el8.x86_64", False),
        ("ChecksumOffloadBroken=true", "6.1.0", False),
        ("ChecksumOffloadBroken=false", "5.4.0", True),
        ("MASQFullyRandom=true,ChecksumOffloadBroken=true", "6.1.0", False),
        ("MASQFullyRandom=true", "5.4.0", False),
        ("", "unknown", None),
    ],
)
def test_checksum_offload_is_off_where_the_kernel_is_known_to_sum_wrong_or_settings_say_so(
    override: str, kernel: str, *, expected: bool | None
) -> None:
    value = NodeConfiguration(metadata=Metadata(name="default"), spec=NodeConfigurationSpec(feature_overrides=override))
    view = view_of(record(NODE_CONFIGURATION.key("default"), value))
    assert find_route_settings(view, "a", (), kernel=kernel).has_checksum_offload is expected


# --- pod CIDRs --------------------------------------------------------------------------------------------------------


def test_the_pod_cidrs_of_nodes_are_their_blocks_and_no_record_of_a_block_is_asked_for() -> None:
    first = make_node("a", "192.0.2.1/24", cidrs=("10.0.0.0/24", "fd00::/64"))
    second = make_node("b", "192.0.2.2/24", cidrs=("10.0.1.0/24",))
    view = view_of(record(node_key("a"), first), record(node_key("b"), second), kinds=(NODE, IPPOOL))
    inputs = RouteInputs("a", uses_pod_cidrs=True)
    mark, changed = view.changes_since(START)
    update_inputs(inputs, view, changed)
    of_a, of_a_v6, of_b = map(Prefix.parse, ("10.0.0.0/24", "fd00::/64", "10.0.1.0/24"))
    assert inputs.blocks == {of_a: BlockRoutes("a"), of_a_v6: BlockRoutes("a"), of_b: BlockRoutes("b")}
    moved = make_node("b", "192.0.2.2/24", cidrs=("10.0.2.0/23",))
    view.apply_event(WatchEvent(node_key("b"), moved, Revision("2")), now_s=0.0)
    mark, changed = view.changes_since(mark)
    update_inputs(inputs, view, changed)
    found = inputs.find_block(Prefix.parse("10.0.3.7/32"))
    assert found == (Prefix.parse("10.0.2.0/23"), BlockRoutes("b")), "whatever the blocks of the pool are"
    assert inputs.find_block(Prefix.parse("10.0.1.7/32")) is None
    view.apply_event(WatchEvent(node_key("b"), None, Revision("3")), now_s=0.0)
    update_inputs(inputs, view, None)
    assert set(inputs.blocks) == {of_a, of_a_v6}


def test_the_pool_of_a_prefix_is_the_smallest_one_that_holds_all_of_it() -> None:
    inputs = RouteInputs("a")
    inputs.set_pools([make_pool("10.0.0.0/16"), make_pool("10.0.0.0/24"), make_pool("10.2.0.0/16")])
    names = {}
    for text in ("10.0.0.64/26", "10.0.0.0/20", "10.0.0.0/15", "10.1.0.0/26", "fd00::/64"):
        found = inputs.find_pool(Prefix.parse(text))
        names[text] = None if found is None else found.metadata.name
    assert names == {
        "10.0.0.64/26": "10.0.0.0-24",
        "10.0.0.0/20": "10.0.0.0-16",
        "10.0.0.0/15": None,
        "10.1.0.0/26": None,
        "fd00::/64": None,
    }


def test_without_pod_cidrs_as_blocks_they_do_not_count() -> None:
    inputs = RouteInputs("a")
    inputs.set_node("b", make_node("b", "192.0.2.2/24", cidrs=("10.0.1.0/24",)))
    assert inputs.blocks == {}


def test_the_tunnel_address_in_a_pod_cidr_is_behind_the_route_to_it() -> None:
    found = engine_of(
        "a",
        nodes=(
            make_node("a", "192.0.2.1/24", tunnel="10.0.0.1", cidrs=("10.0.0.0/24",)),
            make_node("b", "192.0.2.2/24", tunnel="10.0.1.1", cidrs=("10.0.1.0/24",)),
        ),
        pools=(make_pool("10.0.0.0/16", vxlan=ALWAYS),),
        interfaces=(ETH0,),
    )
    texts = {str(each) for each in seen(found)}
    assert "the route to 10.0.1.0/24 via the link by 10.0.1.1 over vxlan.netplug from None mtu 1450" in texts
    assert "the blackhole 10.0.0.0/24" in texts
    assert not any("10.0.1.1/32" in each for each in texts)
