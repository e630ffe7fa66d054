"""Beside the well-known plugins: ``portmap`` behind ``netplug``, and ``netplug-ipam`` under ``ptp`` and ``bridge``.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import pytest
from attrs import evolve

from tests.harness.kill_scene import open_kill_scene
from tests.harness.node import (
    NODE_ADDRESS,
    PEER_NAMESPACE,
    CNIRuntime,
    JSONObject,
    NetConfDict,
    NetnsNode,
    PluginReply,
    PodNamespace,
)
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.waiting import is_eventually

pytestmark = pytest.mark.netns

GREETING = "hello from the pod"
MAPPING: JSONObject = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}

SERVER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
print("ready", flush=True)
while True:
    connection = server.accept()[0]
    connection.sendall(sys.argv[3].encode())
    connection.close()
"""

CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3) as connection:
    print(connection.makefile().read())
"""


def serve(node: NetnsNode, pod: PodNamespace, port: int) -> None:
    """Start a server in a pod that greets whoever connects."""
    child = node.start_process(sys.executable, "-ISc", SERVER, "0.0.0.0", str(port), GREETING, inside=pod.name)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"


def answer(node: NetnsNode, address: str, port: int, *, inside: str = "") -> str:
    """What a real TCP connection gets; empty when there is none."""
    return node.run_unchecked(sys.executable, "-ISc", CLIENT, address, str(port), inside=inside).stdout.strip()


class Chain:
    """``netplug`` and ``portmap`` behind it, called as a runtime calls a list: forwards on ADD, backwards on DEL."""

    def __init__(self, runtime: CNIRuntime, version: str, mappings: tuple[JSONObject, ...] = (MAPPING,)) -> None:
        self._cni = runtime
        self._main = runtime.make_netconf(cniVersion=version)
        self._portmap: NetConfDict = {
            "cniVersion": version,
            "name": "net1",
            "type": "portmap",
            "snat": True,
            "capabilities": {"portMappings": True},
            "runtimeConfig": {"portMappings": list(mappings)},
        }

    def add(self, pod: PodNamespace) -> tuple[PluginReply, PluginReply]:
        first = self._cni.add(self._main, pod)
        return first, self._cni.add({**self._portmap, "prevResult": first.result}, pod, plugin="portmap")

    def check(self, pod: PodNamespace, result: JSONObject) -> PluginReply:
        # Only of netplug: Debian's portmap looks for a rule for IPv6 too, which it has not made.
        return self._cni.call("CHECK", {**self._main, "prevResult": result}, pod)

    def delete(self, pod: PodNamespace, result: JSONObject) -> None:
        previous: NetConfDict = {"prevResult": result}
        self._cni.delete({**self._portmap, **previous}, pod, plugin="portmap")
        self._cni.delete({**self._main, **previous}, pod)


@pytest.mark.parametrize("version", ["1.0.0", "0.3.1"])
def test_a_host_port(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, version: str) -> None:
    """Check 101: connections to the node's port reach the pod, from the node and from elsewhere, until DEL."""
    before, chain = node.leftovers(), Chain(runtime, version)
    first, last = chain.add(pod)
    serve(node, pod, 80)

    assert last.addresses == first.addresses
    assert answer(node, first.addresses[0], 80) == GREETING
    assert answer(node, NODE_ADDRESS, 8080) == GREETING
    assert answer(node, "127.0.0.1", 8080) == GREETING
    assert answer(node, NODE_ADDRESS, 8080, inside=PEER_NAMESPACE) == GREETING
    if version != "0.3.1":
        assert chain.check(pod, last.result).is_success_without_output

    chain.delete(pod, last.result)
    assert answer(node, NODE_ADDRESS, 8080, inside=PEER_NAMESPACE) == ""
    # portmap keeps its empty chains, and the setting of the loopback interface that snat needs.
    left = set(node.leftovers()) - set(before)
    assert not [line for line in left if "netp" in line or "10.65." in line or "8080" in line], left
    assert set(node.links()) == {"lo", "up0"}
    assert node.store.is_empty


def test_a_pod_without_a_mapping_has_no_rule(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """The section of ``portmap`` costs such a pod nothing but the start of a program."""
    chain = Chain(runtime, "1.0.0", mappings=())
    rules = node.run("iptables-save"), node.run("ip6tables-save")
    _first, last = chain.add(pod)
    assert (node.run("iptables-save"), node.run("ip6tables-save")) == rules
    chain.delete(pod, last.result)
    assert (node.run("iptables-save"), node.run("ip6tables-save")) == rules


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_a_mapping_is_no_work_for_netplug(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore
) -> None:
    """Its calls have the same effects, in the same order, with a mapping and without."""
    scene = open_kill_scene(node, runtime, plugin_datastore, is_dual_stack=False)
    mapped = evolve(scene, conf={**scene.conf, "runtimeConfig": {"portMappings": [MAPPING]}})
    pods = scene.pods(2)
    for command in ("ADD", "DEL"):
        without, with_mapping = scene.run_to_end(command, pods[0]), mapped.run_to_end(command, pods[1])
        assert with_mapping == without != []


def test_tuning_and_bandwidth_behind_netplug(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Both find the interfaces of our result, CHECK accepts what they changed, and nothing of them is left."""
    before, rate = node.leftovers(), {"ingressRate": 8_000_000, "ingressBurst": 800_000}
    rates = {**rate, "egressRate": rate["ingressRate"], "egressBurst": rate["ingressBurst"]}
    conf: NetConfDict = {"cniVersion": "1.0.0", "name": "net1"}
    tuning: NetConfDict = {**conf, "type": "tuning", "sysctl": {"net.ipv4.conf.eth0.log_martians": "1"}}
    bandwidth: NetConfDict = {**conf, "type": "bandwidth", "runtimeConfig": {"bandwidth": rates}}
    main = runtime.make_netconf()

    first = runtime.add(main, pod)
    second = runtime.add({**tuning, "prevResult": first.result}, pod, plugin="tuning")
    last = runtime.add({**bandwidth, "prevResult": second.result}, pod, plugin="bandwidth")
    assert last.addresses == first.addresses
    assert node.setting("ipv4/conf/eth0/log_martians", pod) == "1"
    (host_end,) = [name for name in node.links() if name.startswith("netp")]
    assert "tbf" in node.run("tc", "qdisc", "show", "dev", host_end)
    assert "rate 8Mbit" in node.run("tc", "qdisc")
    assert node.can_ping(first.addresses[0])
    for conf_of, plugin in ((main, "netplug"), (tuning, "tuning"), (bandwidth, "bandwidth")):
        checked = runtime.call("CHECK", {**conf_of, "prevResult": last.result}, pod, plugin=plugin)
        assert checked.is_success_without_output, checked

    for conf_of, plugin in ((bandwidth, "bandwidth"), (tuning, "tuning"), (main, "netplug")):
        runtime.delete({**conf_of, "prevResult": last.result}, pod, plugin=plugin)
    assert set(node.links()) == {"lo", "up0"}
    assert node.leftovers() == before
    assert node.store.is_empty


def test_what_came_before_is_passed_on(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """As a chained plugin: interfaces, addresses and routes of the one before stay in front, and indexes fit."""
    interface, address = {"name": "net0", "sandbox": pod.path}, {"address": "172.31.0.2/24", "interface": 0}
    route, dns = {"dst": "172.31.0.0/16"}, {"nameservers": ["172.31.0.53"]}
    before: NetConfDict = {
        "cniVersion": "1.0.0",
        "interfaces": [interface],
        "ips": [address],
        "routes": [route],
        "dns": dns,
    }
    added = runtime.add(runtime.make_netconf(prevResult=before), pod)

    ips, interfaces, routes = added.result["ips"], added.result["interfaces"], added.result["routes"]
    assert isinstance(ips, list)
    assert isinstance(interfaces, list)
    assert isinstance(routes, list)
    assert (interfaces[0], ips[0], routes[0]) == (interface, address, route)
    assert [item["name"] for item in interfaces[2:]] == ["eth0"]
    assert ips[1]["interface"] == 2
    assert added.result["dns"] == dns
    runtime.delete(runtime.make_netconf(prevResult=before), pod)


PTP: NetConfDict = {"type": "ptp", "ipMasq": False}
OURS = ("nodename", "datastore_type", "sqlite_path", "ipam_lock_file", "release_record_dir")
BRIDGE: NetConfDict = {"type": "bridge", "bridge": "br0", "isGateway": True, "ipMasq": False}


@pytest.mark.parametrize(
    "main, is_inside", [(PTP, True), (BRIDGE, False)], ids=["ptp-keys-in-ipam", "bridge-keys-at-the-top"]
)
def test_addresses_for_another_main_plugin(
    node: NetnsNode, runtime: CNIRuntime, main: NetConfDict, *, is_inside: bool
) -> None:
    """``netplug-ipam`` alone: the pool's length, the address after the network's as gateway, and a default route.

    Those plugins put the address on a link, so the pool's first two addresses and its last are never given.
    """
    node.store.add_pool("shared", "10.66.0.0/29", block_length=29)
    ours = {key: runtime.make_netconf()[key] for key in OURS}
    ipam = {"type": "netplug-ipam", "ipv4_pools": ["shared"]}
    conf: NetConfDict = {"cniVersion": "1.0.0", "name": "net1", **main}
    conf |= {"ipam": {**ipam, **ours}} if is_inside else {"ipam": ipam, **ours}
    plugin, pods = str(main["type"]), node.make_pods(6)

    replies = [runtime.add(conf, pod, plugin=plugin) for pod in pods[:5]]
    addresses = [reply.addresses[0] for reply in replies]
    assert sorted(addresses) == [f"10.66.0.{last}" for last in (2, 3, 4, 5, 6)]
    ips = replies[0].result["ips"]
    assert isinstance(ips, list)
    assert ips[0]["address"].endswith("/29")
    assert ips[0]["gateway"] == "10.66.0.1"
    assert "default" in {route["dst"] for route in node.routes(pods[0])}

    assert all(node.can_ping(address) for address in addresses)
    assert node.can_ping("10.66.0.1", inside=pods[0].name)
    assert node.can_ping("192.0.2.2", inside=pods[0].name)
    assert node.can_ping(addresses[1], inside=pods[0].name)
    assert runtime.check(conf, pods[0], replies[0], plugin=plugin).is_success_without_output

    full = runtime.call("ADD", conf, pods[5], plugin=plugin)
    assert full.code == 105
    assert "10.66.0.0/29" in full.text
    assert node.store.endpoints() == {}
    for pod in pods:
        runtime.delete(conf, pod, plugin=plugin)
    assert node.store.is_empty


def test_both_families_for_another_main_plugin(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """One address of each, both with a gateway, and both answer."""
    ours = {key: runtime.make_netconf()[key] for key in OURS}
    ipam = {"type": "netplug-ipam", "assign_ipv6": "true", **ours}
    conf: NetConfDict = {"cniVersion": "1.0.0", "name": "net1", **BRIDGE, "ipam": ipam}
    added = runtime.add(conf, pod, plugin="bridge")

    assert '"gateway": "fd65::1"' in json.dumps(added.result)
    # The bridge waits a while for somebody who has its IPv6 address already.
    assert all(is_eventually(partial(node.can_ping, address)) for address in added.addresses)
    runtime.delete(conf, pod, plugin="bridge")
    assert node.store.is_empty
