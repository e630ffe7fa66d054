"""A static manifest becomes an Installation on a real API server, while the operator is killed again and again.

The server has no controller manager and no kubelets: the test does what they do (``tests/harness/static_nodes.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tests.harness.operator_process import (
    INSTALLATIONS,
    LEASE,
    OPERATOR_PATHS,
    OperatorCluster,
    open_operator_cluster,
    text_at,
)
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import apply_object
from tests.harness.static_nodes import STATIC_PATHS, StaticNodes, apply_static_manifest, is_converted
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.apiserver

POOL = {
    "apiVersion": "crd.projectnetplug.org/v1", "kind": "IPPool", "metadata": {"name": "default-ipv4-ippool"},
    "spec": {"cidr": "10.244.0.0/16", "blockSize": 26, "nodeSelector": "all()", "ipipMode": "Never",
             "vxlanMode": "Never", "natOutgoing": False, "allowedUses": ["Workload", "Tunnel"],
             "assignmentMode": "Automatic"},
}  # fmt: skip


@pytest.fixture
def cluster(api_server: ApiServer, tmp_path: Path) -> Iterator[OperatorCluster]:
    with open_operator_cluster(api_server, tmp_path) as opened:
        try:
            yield opened
        finally:
            for path in STATIC_PATHS.values():
                opened.request("DELETE", path)


@pytest.fixture
def nodes(cluster: OperatorCluster) -> Iterator[StaticNodes]:
    """Two nodes with a published manifest, whose user wants an MTU and floating IPs."""
    apply_static_manifest(cluster.server, edited)
    apply_object(cluster.server, POOL)
    made = StaticNodes(cluster.server, ("conversion-1", "conversion-2"))
    try:
        made.make()
        yield made
    finally:
        made.remove()


def edited(found: Mapping[str, object]) -> Mapping[str, object]:
    if found["kind"] != "ConfigMap":
        return found
    data = cast("dict[str, str]", found["data"])
    template = data["cni_network_config"].replace(
        '"type": "netplug",', '"type": "netplug", "feature_control": {"floating_ips": true},'
    )
    return {**found, "data": {**data, "cni_network_config": template, "veth_mtu": "1450"}}


def spec_of(cluster: OperatorCluster) -> dict[str, Any]:
    return cast("dict[str, Any]", cluster.installation()["spec"])


def test_nodes_move_and_no_plugin_loses_its_rights(cluster: OperatorCluster, nodes: StaticNodes) -> None:
    """Check 115: the features of the manifest are carried over. The operator is killed at each node's move."""
    operator = cluster.start()
    cluster.wait_for_definitions()
    cluster.install({})
    for words in ("0 of 2 nodes", "1 of 2 nodes", "2 of 2 nodes", "all nodes have moved"):

        def says(words: str = words) -> bool:
            nodes.step()
            return words in str(cluster.installation().get("status"))

        wait_until(says, words)
        operator.kill()
        cluster.request("DELETE", LEASE)
        operator = cluster.start()
    wait_until(lambda: is_converted(cluster, nodes), "everything of the manifest has gone")

    def is_ready() -> bool:
        nodes.step()
        found = cluster.installation().get("status", {})
        return "'type': 'Ready', 'status': 'True'" in str(found) or "'status': 'True', 'type': 'Ready'" in str(found)

    wait_until(is_ready, "the Installation is ready")
    assert nodes.fewest_ready == 1
    assert nodes.namespaces() == {"netplug-system"}
    network = spec_of(cluster)["netplugNetwork"]
    assert (network["mtu"], network["cniFeatures"]) == (1450, {"floatingIPs": "Enabled"})
    assert network["ipPools"][0]["name"] == "default-ipv4-ippool"
    conflist = text_at(cluster.find(OPERATOR_PATHS["config map"]), "data", "config")
    assert '"feature_control":{"floating_ips":true}' in conflist
    subjects = cast("list[dict[str, str]]", (cluster.find(OPERATOR_PATHS["plugin binding"]) or {})["subjects"])
    assert [one["namespace"] for one in subjects] == ["netplug-system"]


def test_an_installation_deleted_half_way_gives_the_nodes_back(cluster: OperatorCluster, nodes: StaticNodes) -> None:
    before = cluster.find(STATIC_PATHS["daemonset"])
    cluster.start()
    cluster.wait_for_definitions()
    cluster.install({})

    def has_moved_one() -> bool:
        nodes.step()
        return "1 of 2 nodes" in str(cluster.installation().get("status"))

    wait_until(has_moved_one, "a node has moved")
    cluster.request("DELETE", f"{INSTALLATIONS}/default")

    def is_gone() -> bool:
        nodes.step()
        return not cluster.installation()

    wait_until(is_gone, "the Installation goes")
    assert nodes.namespaces() == {"kube-system"}
    assert nodes.ready() == set(nodes.names)
    after = cluster.find(STATIC_PATHS["daemonset"])
    assert before is not None
    assert after is not None
    assert after["spec"] == before["spec"]


def test_what_cannot_be_taken_over_changes_nothing(cluster: OperatorCluster, nodes: StaticNodes) -> None:
    patch = {"spec": {"template": {"metadata": {"annotations": {"mine": "1"}}}}}
    cluster.patch(STATIC_PATHS["daemonset"], patch)
    nodes.step()
    before = {path: cluster.find(path) for path in STATIC_PATHS.values()}
    cluster.start()
    cluster.wait_for_definitions()
    cluster.install({})
    found = cluster.wait_for("Degraded", "True", words="metadata.annotations[mine]")
    assert found["reason"] == "MigrationError"
    assert {path: cluster.find(path) for path in STATIC_PATHS.values()} == before
    assert cluster.find(OPERATOR_PATHS["daemonset"]) is None
    assert "finalizers" not in cluster.installation()["metadata"]  # type: ignore[operator]
    assert spec_of(cluster) == {}
