"""The node process registers its node: what calls, selectors of pools and ``netplugctl`` then find."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from attrs import evolve

from netplug_backends.host.machine import SystemClock
from netplug_cli.node.stores import KnownCredentials
from netplug_cli.wiring.backends import open_datastore
from netplug_cli.wiring.node_process import helper_plugins, node_registration, node_tasks
from netplug_core.addressing import Family
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.node import SettledAddresses, settle_addresses
from netplug_core.reconcile.registration import FoundOnHost, RegistrationSettings
from netplug_core.records import Create, Get, List
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.settings.apiconfig import datastore_settings_from_environment
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.datastores import open_empty_store
from tests.harness.node import CNIRuntime, NetnsNode
from tests.harness.node_process import start_node_process
from tests.harness.node_registration import NodeHarness, interface
from tests.harness.node_server import Lines
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.stores import HookedStore
from tests.harness.waiting import deadline_in, wait_until

STATUS_FOLDER = "/var/run/netplug/endpoint-status"


def variables(node: NetnsNode) -> dict[str, str]:
    return {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": node.database, "NODENAME_FILE": node.file("nodename")}


def tool(node: NetnsNode, *arguments: str) -> str:
    """What ``netplugctl`` prints about the node's store."""
    environ = [f"{name}={text}" for name, text in variables(node).items()]
    return node.run("env", *environ, sys.executable, "-m", "netplug_cli.wiring.ctl", *arguments)


@pytest.mark.netns
@pytest.mark.alone
def test_a_pod_that_waits_for_the_nodes_name_gets_addresses_of_that_node(node: NetnsNode, runtime: CNIRuntime) -> None:
    pod, conf = node.make_pod(), runtime.make_netconf(nodename=None, nodename_file_optional=False)
    early = runtime.call("ADD", conf, pod)
    assert (early.code, "check that the netplug node process is running" in early.text) == (11, True)
    process = start_node_process(node, environ=variables(node))
    wait_until(lambda: "the node is registered" in process.lines, "the node is registered")
    runtime.add(conf, pod)
    assert node.run("cat", node.file("nodename")) == "node-7.example"
    (endpoint,) = node.store.endpoints().values()
    assert endpoint.spec.node == "node-7.example"
    assert "node-7.example" in tool(node, "get", "nodes")
    assert node.run("stat", "-c", "%a %U", STATUS_FOLDER) == "755 root\n"
    assert node.run("stat", "-c", "%a %U", node.file("nodename")) == "644 root\n"


@pytest.mark.netns
@pytest.mark.alone
def test_a_process_that_starts_again_keeps_the_name_and_the_node(node: NetnsNode) -> None:
    first = start_node_process(node, environ={**variables(node), "NODENAME": "first"})
    wait_until(lambda: "the node is registered" in first.lines, "the node is registered")
    first.child.terminate()
    assert first.wait() == 0
    before = tool(node, "get", "nodes", "-o", "json")
    second = start_node_process(node, name="second", environ=variables(node))
    wait_until(lambda: "the node is registered" in second.lines, "the node is registered again")
    assert 'node="first"' in second.lines
    assert json.loads(tool(node, "get", "nodes", "-o", "json")) == json.loads(before)


@pytest.mark.netns
@pytest.mark.alone
def test_without_a_datastore_of_its_own_the_process_serves_and_says_so(node: NetnsNode) -> None:
    process = start_node_process(node)
    line = "the node is not registered: no datastore is configured for that"
    wait_until(lambda: line in process.lines, "a line says so")
    assert node.run("ls", STATUS_FOLDER) == ""


@pytest.mark.etcd
@pytest.mark.apiserver
def test_on_etcd_a_node_has_the_labels_of_the_clusters_node(
    tmp_path: Path, etcd: EtcdCluster, api_server: ApiServer
) -> None:
    name, path = "labelled-node", "/api/v1/nodes/labelled-node"
    api_server.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"zone": "a"}}})
    environ = {
        "ETCD_ENDPOINTS": ",".join(etcd.endpoints),
        "DATASTORE_TYPE": "etcdv3",
        "KUBECONFIG": api_server.write_kubeconfig(),
        "NODENAME": name,
        "NODENAME_FILE": str(tmp_path / "nodename"),
        "ENDPOINT_STATUS_DIR": str(tmp_path / "endpoint-status"),
    }
    copied = f"INFO the labels of the orchestrator's node are copied node={name}"
    assert looked(environ) == [f"INFO the node is registered datastore=etcdv3 node={name}", copied]
    assert labels(environ, name) == {"zone": "a"}
    change = {"metadata": {"labels": {"zone": None, "disk": "ssd"}}}
    api_server.request("PATCH", path, change, content_type="application/merge-patch+json")
    assert looked(environ)[1:] == [copied]
    assert labels(environ, name) == {"disk": "ssd"}
    api_server.request("DELETE", path)


def looked(environ: Mapping[str, str]) -> list[str]:
    """The lines of one look at a node whose labels have changed, but for those about its addresses and the release."""
    log = Lines()
    registration = node_tasks(
        environ,
        node_registration(environ, "", log),
        log,
        KnownCredentials(SystemClock()),
        helper_plugins({"CNI_NET_DIR": "/nowhere"}),
    )
    DrivenControllers(registration, clock=ManualClock(), log=log).pass_time()
    return [text for text in log.texts if not re.search("release|address|MTU", text)]


def labels(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """The labels of a stored node."""
    with open_datastore(datastore_settings_from_environment(environ)) as store:
        stored = store.read([Get(node_key(name))], deadline=deadline_in()).find(node_key(name))
    assert stored is not None
    return dict(stored.value.metadata.labels)


# --- one address, two nodes -------------------------------------------------------------------------------------------


@pytest.mark.etcd
def test_two_nodes_that_register_one_address_in_the_same_instant_end_with_one_conflict(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Both commits go at once, when both nodes were read; whichever is first, the lower name keeps the address."""
    with open_empty_store("etcdv3", request, tmp_path) as store:
        for number in range(3):
            low, high = f"a{number}", f"b{number}"
            nodes = [Create(node_key(name), Node(metadata=Metadata(name=name))) for name in (low, high)]
            store.commit(nodes, deadline=deadline_in())
            machine = FoundOnHost(interfaces=(interface("eth0", 2, f"10.240.{number}.11/24"),))
            settle_beside = partial(settle_at_once, store, machine, Barrier(2))
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(settle_beside, (low, high)))
            for name, expected in ((low, []), (high, [f"the node {low} has the address 10.240.{number}.11"])):
                assert [str(each) for each in settle_on(store, name, machine).conflicts] == expected
            stored = store.read([List(NODE)], deadline=deadline_in()).readable(List(NODE))
            held = {record.value.metadata.name: record.value.find_address(Family.IPV4) for record in stored}
            assert (str(held[low]), held[high]) == (f"10.240.{number}.11/24", None)


def settle_at_once(store: Datastore, found: FoundOnHost, both: Barrier, name: str) -> None:
    """Register when the other node is about to commit too."""
    is_first = iter([True])
    settle_on(HookedStore(store, before_commit=lambda: next(is_first, False) and both.wait()), name, found)


def settle_on(store: Datastore, name: str, found: FoundOnHost) -> SettledAddresses:
    """What a node registers, as it does once more a moment after a new address."""
    world = evolve(NodeHarness().world(store), clock=SystemClock())
    return settle_addresses(world, name, RegistrationSettings(), found, is_contested=True)
