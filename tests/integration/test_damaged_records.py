"""Records in the file of ``sqlite`` that cannot be read or judged, and calls of a runtime beside them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from netplug_core.addressing import Address, Prefix
from tests.harness.damaged_records import store_raw
from tests.harness.metrics import value_of
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.node_process import NodeProcessRuntime, start_node_process
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.netns

RESERVED = Prefix.parse("10.65.0.0/25")
DAMAGE = (
    ("IPPool", ("unreadable",), '{"kind": "IPPool", "spec": 7}'),
    ("IPReservation", ("half",), f'{{"spec": {{"reservedCIDRs": [7, "{RESERVED}"'),
    ("IPAMConfiguration", ("default",), 5),
    ("ClusterInformation", ("default",), "[]"),
    ("Node", ("node-1",), b"\xff"),
    ("BlockAffinity", ("host", "node-9", "ipv4", "10.65.0.128/26"), ""),
    ("IPAMBlock", ("ipv4", "10.65.0.192/26"), "{}"),
    ("IPAMHandle", ("net1.other",), "{"),
    ("WorkloadEndpoint", ("default", "node--9-cni-other-eth0"), "{}"),
)


def damage_all(node: NetnsNode) -> None:
    """Records of every kind that an ADD or a DEL reads, and a pool that cannot be judged."""
    node.store.add_pool("mistyped", "10.77.0.0/24", node_selector="zone = 'a'")
    node.store.add_pool("zonal", "10.78.0.0/24", node_selector="zone == 'a'")
    for kind, path, value in DAMAGE:
        store_raw(node.database, kind, path, value)


def repair_block(node: NetnsNode) -> None:
    with closing(sqlite3.connect(node.database, timeout=30)) as connection, connection:
        connection.execute("DELETE FROM record WHERE path IN ('ipv4\x1f10.65.0.192/26', 'net1.other')")
        connection.execute("DELETE FROM record WHERE kind = 'WorkloadEndpoint'")


def test_records_that_cannot_be_read_or_judged_stop_no_call(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    conf, before = runtime.make_netconf(cniVersion="1.1.0"), node.make_pod()
    runtime.add(conf, before)
    damage_all(node)
    added = runtime.add(conf, pod)
    (address,) = added.addresses
    assert Prefix.parse("10.65.0.128/26").contains(Address.parse(address)), "the half that is not reserved, but a block"
    assert "stored records that cannot be read or judged are passed over" in added.stderr
    assert runtime.call("STATUS", conf).is_success_without_output
    assert runtime.check(conf, pod, added).is_success_without_output
    for each in (before, pod):
        runtime.delete(conf, each)
    repair_block(node)
    assert node.store.handles() == set()
    assert set(node.store.held()) == {""}, "what is released rests while the settings cannot be read"


def test_a_damaged_pool_is_the_error_of_who_names_it(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    damage_all(node)
    refused = runtime.call(
        "ADD", runtime.make_netconf(ipam={"type": "netplug-ipam", "ipv4_pools": ["unreadable"]}), pod
    )
    assert (refused.code, "IPPool(unreadable)" in refused.text) == (140, True), refused
    named = runtime.make_netconf(ipam={"type": "netplug-ipam", "ipv4_pools": ["mistyped"]})
    (address,) = runtime.add(named, pod).addresses
    assert address.startswith("10.77.0."), "a name overrides the selector"
    runtime.delete(named, pod)


def test_where_nothing_serves_the_refusal_names_what_was_passed_over(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    damage_all(node)
    store_raw(node.database, "IPPool", ("v4",), '{"kind": "IPPool"}')
    refused = runtime.call("ADD", runtime.make_netconf(), pod)
    assert refused.code == 104
    for words in ("its selector cannot be read (spec.nodeSelector:", "IPPool zonal", "IPPool(unreadable)"):
        assert words in refused.text, refused
    assert node.links(pod).keys() == {"lo"}
    repair_block(node)
    assert node.store.handles() == set()


@pytest.mark.alone
def test_a_node_process_names_each_damage_once_and_counts_it(node: NetnsNode, bin_dir: str) -> None:
    file = node.file("netplug.prom")
    process = start_node_process(node, "--metrics-file", file)
    runtime = NodeProcessRuntime(node, bin_dir, process.socket)
    conf = runtime.make_netconf()
    damage_all(node)
    words = "stored records that cannot be read or judged are passed over"
    replies = [runtime.add(conf, pod) for pod in node.make_pods(3)]
    assert [words in reply.stderr for reply in replies] == [True, False, False]
    series = f'netplug_node_records_passed_over{{datastore="sqlite",kind="IPPool",location="{node.database}"}}'

    def is_counted() -> bool:
        with open(file, "rb") as opened:
            return value_of(opened.read(), series) == 3

    wait_until(is_counted, "the pools that cannot be read or judged are counted")
    store_raw(node.database, "IPPool", ("unreadable",), '{"kind": "Node", "apiVersion": "projectnetplug.org/v3"}')
    wait_until(lambda: "found 'Node'" in runtime.add(conf, node.make_pod()).stderr, "the change is named")
