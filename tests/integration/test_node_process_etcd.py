"""What a call that the node process serves costs an etcd: the server counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, missing_requirement, open_node
from tests.harness.node_process import ROOT, NodeProcess, NodeProcessRuntime, start_node_process
from tests.harness.servers.binaries import find_etcd_binary
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

POOL = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {{name: {name}}}
spec: {{cidr: {cidr}, disabled: {disabled}}}
"""
# Lock pod networking, or unlock it: no command does that yet.
SET_READY = """
import sys
from netplug_backends.host.machine import SystemClock
from netplug_cli.wiring.backends import open_registry
from netplug_core.settings.model import DatastoreSettings
from tests.harness.node import StoreInspector
open_store = lambda: open_registry().open_datastore("etcdv3", DatastoreSettings(), SystemClock())
StoreInspector(open_store).set_ready(is_ready=sys.argv[1] == "true")
"""
HEALTH = 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:2379/health").read().decode())'

# The calls that the server has answered, by method, and how many watches there are.
COUNTS = """
import json, re, urllib.request
text = urllib.request.urlopen("http://127.0.0.1:2379/metrics").read().decode()
counts = {}
for method, count in re.findall(r'^grpc_server_handled_total{.*grpc_method="(\\w+)".*} (\\d+)$', text, re.M):
    counts[method] = counts.get(method, 0) + int(count)
counts["written"] = int(float(re.search(r"^etcd_server_proposals_committed_total (\\S+)$", text, re.M)[1]))
counts["watchers"] = int(float(re.search(r"^etcd_debugging_mvcc_watcher_total (\\S+)$", text, re.M)[1]))
print(json.dumps(counts))
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NetnsNode]:
    """A node with an etcd and a pool in it."""
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    etcd = find_etcd_binary()
    with open_node(str(tmp_path)) as opened:
        opened.start_process(etcd, "--data-dir", opened.file("etcd"), "--log-level", "error")
        wait_until(lambda: "true" in opened.run_unchecked(sys.executable, "-c", HEALTH).stdout, "etcd serves")
        apply(opened, POOL.format(name="main", cidr="10.65.0.0/24", disabled="false"))
        yield opened


@pytest.fixture
def process(node: NetnsNode) -> NodeProcess:
    return start_node_process(node)


@pytest.fixture
def served(runtime: CNIRuntime, process: NodeProcess) -> NodeProcessRuntime:
    return NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket)


def apply(node: NetnsNode, text: str) -> None:
    ctl(node, "apply", "-f", node.write_file("applied.yaml", text))


def ctl(node: NetnsNode, *arguments: str) -> str:
    return node.run(sys.executable, "-m", "netplug_cli.wiring.ctl", *arguments, env={"PATH": "/usr/bin:/bin"})


def counts(node: NetnsNode) -> dict[str, int]:
    found: dict[str, int] = json.loads(node.run(sys.executable, "-c", COUNTS))
    return found


def cost_of(node: NetnsNode, call: Callable[[], object]) -> dict[str, int]:
    """What a call that commits costs; the server counts a commit a moment after its answer."""
    before = counts(node)
    call()
    wait_until(
        lambda: all(counts(node).get(name, 0) > before.get(name, 0) for name in ("Txn", "written")),
        "the commit is counted",
    )
    after = counts(node)
    return {name: after.get(name, 0) - before.get(name, 0) for name in ("Txn", "Range", "written")}


def conf(runtime: CNIRuntime) -> NetConfDict:
    """The usual configuration without a word about a datastore: etcd on this machine."""
    return runtime.make_netconf(datastore_type=None, sqlite_path=None)


def warm_up(served: NodeProcessRuntime) -> None:
    """The first ADD claims a block; the watch of what people change is there when this returns."""
    served.add(conf(served), served.node.make_pod())
    wait_until(lambda: counts(served.node)["watchers"] == 4, "the node process follows what people change")


@pytest.mark.parametrize(
    "plugin, type_",
    [("netplug", "netplug"), ("netplug-ipam", "bridge")],
)
def test_add_and_del_of_a_warm_process_are_one_commit_each_and_read_nothing(
    served: NodeProcessRuntime, plugin: str, type_: str
) -> None:
    """Also the ADD after a DEL."""
    given: NetConfDict = {**conf(served), "type": type_}
    warm_up(served)
    for _ in range(3):
        pod = served.node.make_pod()
        for call in (served.add, served.delete):
            cost = cost_of(served.node, lambda: call(given, pod, plugin=plugin))  # noqa: B023 - called at once
            assert cost == {"Txn": 1, "Range": 0, "written": 1}, (call, cost)


def test_a_change_of_a_pool_reaches_the_process_before_its_next_call(served: NodeProcessRuntime) -> None:
    """The watch brings it, or the commit fails and reads again: no address comes from a pool that is switched off."""
    node, given = served.node, conf(served)
    warm_up(served)
    apply(node, POOL.format(name="other", cidr="10.66.0.0/24", disabled="false"))
    apply(node, POOL.format(name="main", cidr="10.65.0.0/24", disabled="true"))
    (address,) = served.add(given, node.make_pod()).addresses
    assert address.startswith("10.66.0.")


def test_a_locked_datastore_stops_the_next_call(served: NodeProcessRuntime) -> None:
    node, given = served.node, conf(served)
    warm_up(served)
    node.run(sys.executable, "-c", SET_READY, "false")
    refused = served.call("ADD", given, pod := node.make_pod())
    assert refused.code == 11
    node.run(sys.executable, "-c", SET_READY, "true")
    assert served.add(given, pod).addresses


def test_executables_and_the_process_take_turns_on_one_attachment(
    runtime: CNIRuntime, served: NodeProcessRuntime
) -> None:
    """What the process remembers of an attachment is outdated when an executable has deleted it."""
    node, given = served.node, conf(served)
    warm_up(served)
    pod = node.make_pod()
    for first, second in ((served, runtime), (runtime, served)):
        first.add(given, pod)
        second.delete(given, pod)
        second.add(given, pod)
        first.delete(given, pod)
        second.delete(given, pod)
    assert ctl(node, "ipam", "check").count("10.65.0") == 0


# A tenth more than it takes (Python 3.11), for other versions of Python and of libraries. Each call sees anew what may
# change without it: the MTU of the host, settings of the kernel that may be read-only, and records of its attachment.
MOST_CALLS = {"ADD": 2160, "DEL": 1270, "modules": 40, "crossings": 42}


def test_a_served_call_runs_no_more_python_than_it_has_to(runtime: CNIRuntime) -> None:
    """What depends on the configuration alone, or on what has not changed, is done once and not for each call."""
    node = runtime.node
    given = {**conf(runtime), "log_level": "error"}
    variables = runtime.make_environ("ADD", node.make_pod(), CNI_ARGS="K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0")
    program = ("-m", "tests.harness.served_calls", json.dumps(given), json.dumps(variables))
    found: dict[str, int] = json.loads(node.run("env", f"PYTHONPATH={ROOT}", sys.executable, *program))
    assert {name: count for name, count in found.items() if count > MOST_CALLS[name]} == {}, found
    assert all(found.values()), found
