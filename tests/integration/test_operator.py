"""The operator, as a process on a real API server: what it installs, keeps, reports and removes.

The server has no controller manager: the tests roll out the DaemonSet, and end the namespace.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.kubernetes.installing.manifests import lease_object
from netplug_cli.operator.process import RESYNC_S
from netplug_core.operator.state import CONTROLLERS_LEASE_REF
from tests.harness.controllers_process import CONTROLLERS_LEASE_PATH
from tests.harness.installations import network
from tests.harness.operator_process import (
    DAEMONSET,
    INSTALLATIONS,
    LEASE,
    OPERATOR_PATHS,
    POOLS,
    OperatorCluster,
    condition,
    open_operator_cluster,
    text_at,
)
from tests.harness.servers.hiding_proxy import open_hiding_proxy
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import apply_object, delete_definition, make_namespace, make_pod
from tests.harness.tool_user import ToolUser
from tests.harness.waiting import is_eventually, wait_until

pytestmark = pytest.mark.apiserver

PLAIN = {"encapsulation": "None", "natOutgoing": "Disabled"}
POOL = {"cidr": "10.244.0.0/16", **PLAIN}
SPEC = network(ipPools=[POOL], bgp="Enabled")
ROLE = OPERATOR_PATHS["plugin role"]
DAEMONSETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
DEFINITION = "installations.operator.projectnetplug.org"
GROUP = "/apis/operator.projectnetplug.org/v1"
STATUSES = f"{GROUP}/netplugstatuses"
EVENTS = "/api/v1/namespaces/default/events"
KILLS = 18
BLOCKS = "/apis/crd.projectnetplug.org/v1/ipamblocks"


@pytest.fixture
def cluster(api_server: ApiServer, tmp_path: Path) -> Iterator[OperatorCluster]:
    with open_operator_cluster(api_server, tmp_path) as opened:
        yield opened


@pytest.fixture
def ready(cluster: OperatorCluster) -> OperatorCluster:
    """A cluster with an operator and an Installation that is ready."""
    cluster.start()
    cluster.wait_for_definitions()
    cluster.install(SPEC)
    cluster.wait_for_objects()
    cluster.wait_for("Progressing", "True", words="controller manager")
    cluster.roll_out()
    cluster.wait_for("Ready", "True")
    return cluster


def test_an_installation_becomes_objects_and_the_status_says_so(ready: OperatorCluster) -> None:
    found = ready.installation()
    assert condition(found, "Ready")["message"] == ""
    assert condition(found, "Degraded")["status"] == "False"
    assert text_at(found, "status", "crdMode") == "v1"
    assert text_at(found, "status", "computed", "netplugNetwork", "hostPorts") == "Enabled"
    assert found["metadata"]["finalizers"] == ["operator.projectnetplug.org/operator-cleanup"]  # type: ignore[index]
    assert "annotations" not in found["metadata"]  # type: ignore[operator]
    assert ready.names(POOLS) == ["default-ipv4-ippool"]


def test_each_component_and_the_events_say_so_too(ready: OperatorCluster) -> None:
    def is_available(name: str) -> bool:
        return condition(ready.find(f"{STATUSES}/{name}"), "Available").get("status") == "True"

    wait_until(lambda: is_available("netplug") and is_available("ippools"), "both components are available")

    def reasons() -> set[str]:
        found = ready.server.get(EVENTS)["items"]
        assert isinstance(found, list)
        return {str(event["reason"]) for event in found if event["involvedObject"]["name"] == "default"}

    wait_until(lambda: {"OperatorActs", "PoolCreated", "AllObjectsAvailable"} <= reasons(), "the Events come")


@pytest.mark.night
def test_a_kind_that_the_server_lists_late_is_watched(ready: OperatorCluster) -> None:
    """Long before the next look that needs no change. A server notes a definition as established before it lists it."""
    cluster = ready  # nothing but the new kind is missing
    cluster.stop_operators()
    cluster.patch(f"{INSTALLATIONS}/default", {"metadata": {"finalizers": None}})
    delete_definition(cluster.server, DEFINITION)
    wait_until(lambda: cluster.find(INSTALLATIONS) is None, "Installations are served no more")
    with open_hiding_proxy(cluster.server, client="netplug/") as proxy:
        proxy.hidden.add(INSTALLATIONS)
        operator = cluster.start(KUBECONFIG=proxy.write_kubeconfig())
        cluster.wait_for_definitions()
        asked = proxy.asked[INSTALLATIONS]
        wait_until(lambda: proxy.asked[INSTALLATIONS] > asked, "it has looked again whether the kind is served")
        assert "hold Installation default" not in operator.lines
        proxy.hidden.clear()
        cluster.install(SPEC)
        assert is_eventually(lambda: "hold Installation default" in operator.lines, within_s=RESYNC_S / 2)
        cluster.wait_for_objects()
        cluster.patch(f"{INSTALLATIONS}/default", {"spec": network(mtu=1400)})
        mtu = '"mtu":1400'
        assert is_eventually(lambda: mtu in str(cluster.find(OPERATOR_PATHS["config map"])), within_s=RESYNC_S / 2)
        assert operator.stop() == 0


def test_what_is_as_it_should_be_is_not_written_again(ready: OperatorCluster) -> None:
    """A new operator, which remembers nothing, finds nothing to do."""
    before = {path: ready.find(path) for path in (*OPERATOR_PATHS.values(), f"{INSTALLATIONS}/default")}
    ready.stop_operators()
    operator = ready.start()
    wait_until(lambda: "acts from now on" in operator.lines, "it acts")
    ready.patch(f"{INSTALLATIONS}/default", {"spec": network(mtu=1400)})
    wait_until(lambda: "apply ConfigMap" in operator.lines, "it has looked")
    assert "apply CustomResourceDefinition" not in operator.lines
    changed = {OPERATOR_PATHS["config map"], DAEMONSET, f"{INSTALLATIONS}/default"}
    assert {path for path, found in before.items() if found != ready.find(path)} <= changed


def test_changed_fields_reach_conflist_daemonset_and_pools(ready: OperatorCluster) -> None:
    changed = network(ipPools=[POOL, {"cidr": "10.245.0.0/16", "name": "second", **PLAIN}], mtu=1400)
    ready.patch(f"{INSTALLATIONS}/default", {"spec": {**changed, "registry": "example.org/"}})
    wait_until(lambda: "second" in ready.names(POOLS), "the pool is created")
    wait_until(lambda: '"mtu":1400' in str(ready.find(OPERATOR_PATHS["config map"])), "the conflist follows")
    wait_until(lambda: "example.org/netplug/node:" in str(ready.find(DAEMONSET)), "the DaemonSet follows")
    ready.wait_for("Progressing", "True", words="controller manager")
    ready.roll_out()
    ready.wait_for("Ready", "True")
    ready.patch(f"{INSTALLATIONS}/default", {"spec": network(ipPools=[POOL])})
    wait_until(lambda: ready.names(POOLS) == ["default-ipv4-ippool"], "the second pool goes")


def test_what_is_deleted_comes_back_and_foreign_fields_are_kept(ready: OperatorCluster) -> None:
    ready.patch(ROLE, {"metadata": {"annotations": {"theirs": "1"}}, "rules": []})
    wait_until(lambda: bool((ready.find(ROLE) or {}).get("rules")), "our rules are there again")
    assert text_at(ready.find(ROLE), "metadata", "annotations", "theirs") == "1"
    for name in ("plugin account", "plugin binding", "config map", "daemonset"):
        ready.request("DELETE", OPERATOR_PATHS[name])
        wait_until(lambda path=OPERATOR_PATHS[name]: ready.find(path) is not None, f"the {name} comes back")  # type: ignore[misc]


def test_a_wrong_installation_is_degraded_with_the_next_step(ready: OperatorCluster) -> None:
    ready.patch(f"{INSTALLATIONS}/default", {"spec": network(mtu=70000)})
    found = ready.wait_for("Degraded", "True", words="OutOfRange: spec.netplugNetwork.mtu")
    assert found["reason"] == "InvalidConfigurationError"
    assert found["message"] == (
        "Installation(default): OutOfRange: spec.netplugNetwork.mtu: 70000 is not accepted; 0 to 65535 bytes"
    )
    assert '"mtu":0' in str(ready.find(OPERATOR_PATHS["config map"]))
    ready.patch(f"{INSTALLATIONS}/default", {"spec": network(mtu=1300)})
    ready.wait_for("Degraded", "False")


def test_a_deleted_installation_leaves_definitions_and_data(ready: OperatorCluster) -> None:
    block = {"apiVersion": "crd.projectnetplug.org/v1", "kind": "IPAMBlock", "metadata": {"name": "10-244-0-0-26"}}
    spec = {"cidr": "10.244.0.0/26", "allocations": [], "unallocated": [], "attributes": [], "strictAffinity": False}
    ready.server.create(BLOCKS, {**block, "spec": spec})
    apply_object(ready.server, lease_object(CONTROLLERS_LEASE_REF))
    ready.request("DELETE", f"{INSTALLATIONS}/default")
    others = [path for name, path in OPERATOR_PATHS.items() if name != "namespace"]
    wait_until(lambda: not any(map(ready.find, others)), "everything of ours goes")
    wait_until(lambda: not ready.find(CONTROLLERS_LEASE_PATH), "so does the Lease of the controllers")
    wait_until(lambda: not ready.installation(), "the Installation goes")
    assert text_at(ready.find(OPERATOR_PATHS["namespace"]), "metadata", "deletionTimestamp")
    assert ready.names(POOLS) == ["default-ipv4-ippool"]
    assert ready.names(BLOCKS) == ["10-244-0-0-26"]
    ready.request("DELETE", BLOCKS)


def test_check_96_components_say_that_nothing_serves_them(cluster: OperatorCluster) -> None:
    def reasons(path: str) -> list[str]:
        found = cluster.find(f"{path}/default")
        return [text_at(condition(found, kind), "reason") for kind in ("Ready", "Degraded")]

    api, viewer = (f"{GROUP}/{plural}" for plural in ("flowlogapis", "flowlogviewers"))
    cluster.start()
    cluster.wait_for_definitions()
    wait_until(lambda: cluster.find(viewer) is not None, "the viewer can be created")
    head = {"apiVersion": "operator.projectnetplug.org/v1", "metadata": {"name": "default"}}
    try:
        cluster.server.create(viewer, {**head, "kind": "FlowLogViewer", "spec": {"notifications": "Disabled"}})
        wait_until(lambda: reasons(viewer) == ["NotImplemented", "ResourceNotFound"], "the viewer misses the API")
        cluster.server.create(api, {**head, "kind": "FlowLogAPI"})
        wait_until(lambda: reasons(viewer) == ["NotImplemented", "Unknown"], "the viewer has the API")
        wait_until(lambda: reasons(api) == ["NotImplemented", "Unknown"], "nothing serves the API")
        with pytest.raises(RequestRefused, match="there is one, and its name is default"):
            cluster.server.create(api, {**head, "kind": "FlowLogAPI", "metadata": {"name": "other"}})
    finally:
        for path in (api, viewer):
            cluster.request("DELETE", f"{path}/default")


def test_beside_a_daemonset_of_another_form_nothing_is_written(cluster: OperatorCluster) -> None:
    labels = {"k8s-app": "netplug-node"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "node", "image": "example.org/node"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    daemonset = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "netplug-node"}, "spec": spec}
    cluster.server.create(DAEMONSETS, daemonset)
    try:
        cluster.start()
        cluster.wait_for_definitions()
        cluster.install(SPEC)
        found = cluster.wait_for("Degraded", "True", words="a container netplug-node is expected")
        assert found["reason"] == "MigrationError"
        assert not any(map(cluster.find, OPERATOR_PATHS.values()))
        assert "finalizers" not in cluster.installation()["metadata"]  # type: ignore[operator]
    finally:
        cluster.request("DELETE", f"{DAEMONSETS}/netplug-node")
    cluster.wait_for_objects()


@pytest.mark.night  # until its Lease counts as left
def test_an_operator_that_does_not_run_is_seen(ready: OperatorCluster, tmp_path: Path) -> None:
    """Killed, it leaves a status that says that all is well, also of a change that nobody acts upon."""
    access = {"datastoreType": "kubernetes", "kubeconfig": ready.server.write_kubeconfig()}
    tool = ToolUser(tmp_path, {**access, "netplugAPIGroup": "crd.projectnetplug.org/v1"})

    def found() -> dict[str, tuple[str, str]]:
        result = tool.run_command("install", "status", "-o", "json")
        return {one["name"]: (one["condition"], one["detail"]) for one in json.loads(result.out)["checks"]}

    assert found()["operator"] == ("available", "op0 acts")
    assert found()["Installation(default)"][0] == "available"
    ready.patch(LEASE, {"spec": {"renewTime": "2026-08-20T10:00:00.000000Z"}})  # the clock of its machine is late
    assert found()["operator"] == ("available", "op0 acts")
    ready.kill_operators()
    ready.patch(f"{INSTALLATIONS}/default", {"spec": network(mtu=1400)})
    ready.request("DELETE", f"{INSTALLATIONS}/default")
    wait_until(lambda: found()["operator"][0] == "degraded", "it is seen that no operator runs")
    assert "op0 has stopped renewing its Lease" in found()["operator"][1]
    assert found()["Installation(default)"] == ("degraded", "it is being deleted; the operator lets it go last")
    ready.patch(f"{INSTALLATIONS}/default", {"metadata": {"finalizers": None}})
    ready.install(SPEC)
    assert found()["Installation(default)"] == ("degraded", "no operator has acted upon it yet")


@pytest.fixture
def emptied(cluster: OperatorCluster) -> Iterator[OperatorCluster]:
    """A cluster whose definitions were deleted and made again, while two pods have addresses."""
    make_namespace(cluster.server, "lost")
    cluster.request("DELETE", BLOCKS)
    cluster.request("DELETE", CLUSTER_INFORMATION)
    for name, address in (("a", "10.244.3.1"), ("b", "10.244.3.2")):
        ips = {"cni.projectnetplug.org/podIP": f"{address}/32", "cni.projectnetplug.org/podIPs": f"{address}/32"}
        make_pod(cluster.server, "lost", name, node="n1", annotations={**ips, CONTAINER: name})
    yield cluster
    cluster.stop_operators()
    for name in ("a", "b"):
        cluster.request("DELETE", f"/api/v1/namespaces/lost/pods/{name}?gracePeriodSeconds=0")
    for path in (BLOCKS, CLUSTER_INFORMATION, *(BLOCKS.replace("ipamblocks", one) for one in KINDS_OF_BLOCKS)):
        cluster.request("DELETE", path)


CLUSTER_INFORMATION = "/apis/crd.projectnetplug.org/v1/clusterinformations/default"
CONTAINER = "cni.projectnetplug.org/containerID"
KINDS_OF_BLOCKS = ("ipamhandles", "blockaffinities")


def is_locked(cluster: OperatorCluster) -> bool:
    return text_at(cluster.find(CLUSTER_INFORMATION), "spec", "datastoreReady") == "False"


def test_lost_blocks_lock_the_datastore_until_they_are_restored(emptied: OperatorCluster, tmp_path: Path) -> None:
    access = {"datastoreType": "kubernetes", "kubeconfig": emptied.server.write_kubeconfig()}
    tool = ToolUser(tmp_path, {**access, "netplugAPIGroup": "crd.projectnetplug.org/v1"})
    pool = tool.file(
        "apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.244.0.0/16}\n"
    )
    refused = tool.run_command("create", "-f", pool)  # without an operator
    assert refused.status == 1
    assert "workloads have 2 addresses that no block holds, such as lost/a 10.244.3.1" in refused.err
    emptied.start()
    emptied.wait_for_definitions()
    emptied.install(SPEC)
    found = emptied.wait_for("Degraded", "True", words="BlocksLost")
    assert "run netplugctl ipam check --restore first" in str(found["message"])
    assert is_locked(emptied)
    assert emptied.names(POOLS) == []
    restored = tool.run_command("ipam", "check", "--restore")
    assert restored.status == 0, restored
    wait_until(lambda: not is_locked(emptied), "the datastore is unlocked")
    emptied.wait_for_objects()
    assert emptied.names(POOLS) == ["default-ipv4-ippool"]
    assert emptied.names(BLOCKS) == ["10-244-3-0-26"]
    assert sorted(emptied.names(BLOCKS.replace("ipamblocks", "ipamhandles"))) == [
        "k8s-pod-network.a",
        "k8s-pod-network.b",
    ]


@pytest.mark.night
def test_killed_at_random_it_converges(cluster: OperatorCluster) -> None:
    """In the installation, in a change, and in the removal: more than fifty times."""
    seed = time.time_ns()
    chance = random.Random(seed)  # noqa: S311  # moments of a kill

    def kill_operators() -> None:
        for _ in range(KILLS):
            operator = cluster.start()
            time.sleep(chance.uniform(0, 3))
            operator.kill()
            cluster.request("DELETE", LEASE)  # the next one needs not wait for its end
        cluster.start()

    def is_changed() -> bool:
        return '"mtu":1400' in str(cluster.find(OPERATOR_PATHS["config map"])) and "second" in cluster.names(POOLS)

    cluster.start()
    cluster.wait_for_definitions()
    cluster.stop_operators()
    cluster.install(SPEC)
    kill_operators()
    cluster.wait_for_objects()
    cluster.stop_operators()
    changed = network(ipPools=[POOL, {"cidr": "10.245.0.0/16", "name": "second", **PLAIN}], mtu=1400)
    cluster.patch(f"{INSTALLATIONS}/default", {"spec": changed})
    kill_operators()
    wait_until(is_changed, f"the change is made (seed {seed})")
    cluster.stop_operators()
    cluster.request("DELETE", f"{INSTALLATIONS}/default")
    kill_operators()
    wait_until(lambda: not cluster.installation(), f"the Installation goes (seed {seed})")
    assert [name for name, path in OPERATOR_PATHS.items() if cluster.find(path)] == ["namespace"]
    wait_until(lambda: not cluster.names(STATUSES), "the statuses of the components go")


def test_of_two_operators_one_acts_and_the_other_takes_over(cluster: OperatorCluster) -> None:
    first = cluster.start()
    wait_until(lambda: "acts from now on" in first.lines, "the first acts")
    second = cluster.start()
    cluster.wait_for_definitions()
    cluster.install(SPEC)
    cluster.wait_for_objects()
    wait_until(lambda: second.ask("/readyz")[0] == 200, "the second is ready")
    assert first.ask("/livez") == (200, "ok\n")
    assert "netplug_operator_leader 1.0" in first.ask("/metrics")[1]
    assert 'netplug_operator_writes_total{kind="DaemonSet",outcome="done",verb="apply"} 1.0' in first.ask("/metrics")[1]
    assert "netplug_operator_leader 0.0" in second.ask("/metrics")[1]
    assert "apply" not in second.lines
    assert first.stop() == 0
    wait_until(lambda: "acts from now on" in second.lines, "the second takes over")
    cluster.request("DELETE", ROLE)
    wait_until(lambda: cluster.find(ROLE) is not None, "the role comes back")
    assert "apply ClusterRole netplug-cni-plugin" in second.lines
    assert second.stop() == 0
