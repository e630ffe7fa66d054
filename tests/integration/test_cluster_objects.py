"""Objects as the operator writes them: the API server, and the cluster in memory of the tests, do the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.installing.cluster import open_cluster_objects
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.operator.world import Cluster
from netplug_core.decoding.tables import find_text
from netplug_core.errors import ConfigurationError
from netplug_core.operator.state import ClusterMode, Json, ObjectRef
from netplug_core.resources.installation import KubernetesProvider
from netplug_core.settings.model import KubernetesAccess
from tests.harness.operator_cluster import MemoryCluster
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_definitions, make_node
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

RBAC = "rbac.authorization.k8s.io/v1"
REF = ObjectRef(RBAC, "ClusterRole", "operator-test")
RULE: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def role(**metadata: object) -> dict[str, object]:
    return {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": REF.name, **metadata}, "rules": [RULE]}


def uid_of(found: Json | None) -> str:
    return find_text(found, "metadata", "uid")


@pytest.fixture(params=["server", "memory"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "memory":
        yield MemoryCluster()
        return
    server: ApiServer = request.getfixturevalue("api_server")
    opened = open_cluster_objects(KubernetesAccess(kubeconfig=server.write_kubeconfig()), {}, clock=SystemClock())
    yield opened
    found = opened.find(REF, deadline=deadline_in())
    if found is not None:
        opened.apply(role(finalizers=[]), deadline=deadline_in())
        opened.delete(REF, uid_of(found), deadline=deadline_in())
    opened.close()


def test_what_is_applied_is_there_and_what_is_left_out_goes(cluster: Cluster) -> None:
    assert cluster.find(REF, deadline=deadline_in()) is None
    first = cluster.apply(role(labels={"a": "1", "b": "2"}), deadline=deadline_in())
    cluster.apply(role(labels={"a": "3"}), deadline=deadline_in())
    found = cluster.find(REF, deadline=deadline_in())
    assert found is not None
    assert uid_of(found) == uid_of(first)
    assert found["metadata"]["labels"] == {"a": "3"}  # type: ignore[index]


def test_a_uid_is_a_condition(cluster: Cluster) -> None:
    wanted = role(uid="11111111-1111-1111-1111-111111111111")
    with pytest.raises(ConfigurationError):
        cluster.apply(wanted, deadline=deadline_in())
    assert cluster.find(REF, deadline=deadline_in()) is None
    cluster.apply(role(), deadline=deadline_in())
    with pytest.raises(ConfigurationError):
        cluster.apply(wanted, deadline=deadline_in())


def test_only_the_object_with_the_uid_is_deleted(cluster: Cluster) -> None:
    found = cluster.apply(role(), deadline=deadline_in())
    cluster.delete(REF, "11111111-1111-1111-1111-111111111111", deadline=deadline_in())
    assert cluster.find(REF, deadline=deadline_in()) is not None
    for _ in range(2):
        cluster.delete(REF, uid_of(found), deadline=deadline_in())
        assert cluster.find(REF, deadline=deadline_in()) is None


def test_a_finalizer_holds_an_object_until_it_is_applied_without(cluster: Cluster) -> None:
    found = cluster.apply(role(finalizers=["example.org/ours"]), deadline=deadline_in())
    cluster.delete(REF, uid_of(found), deadline=deadline_in())
    assert find_text(cluster.find(REF, deadline=deadline_in()), "metadata", "deletionTimestamp")
    cluster.apply(role(finalizers=[], uid=uid_of(found)), deadline=deadline_in())
    assert cluster.find(REF, deadline=deadline_in()) is None


def test_a_whole_object_is_stored_by_the_one_who_is_first(cluster: Cluster) -> None:
    first = cluster.replace(role(), deadline=deadline_in())
    assert first is not None
    assert cluster.replace(role(), deadline=deadline_in()) is None
    version = find_text(first, "metadata", "resourceVersion")
    second = cluster.replace(role(resourceVersion=version, labels={"a": "1"}), deadline=deadline_in())
    assert second is not None
    assert cluster.replace(role(resourceVersion=version, labels={"a": "2"}), deadline=deadline_in()) is None
    assert find_text(cluster.find(REF, deadline=deadline_in()), "metadata", "labels", "a") == "1"


def test_what_the_server_offers(api_server: ApiServer) -> None:
    install_definitions(api_server, CrdMode.V1)
    access = KubernetesAccess(kubeconfig=api_server.write_kubeconfig())
    cluster = open_cluster_objects(access, {}, clock=SystemClock())
    assert ClusterMode.V1 in cluster.find_modes(deadline=deadline_in())
    assert {"ippools", "ipamblocks"} <= cluster.find_resources(ClusterMode.V1, deadline=deadline_in())
    assert cluster.find_plurals("example.org/v1", deadline=deadline_in()) == frozenset()
    assert cluster.list_pods("netplug-system", "k8s-app=netplug-node", deadline=deadline_in()) == ()
    make_node(api_server, "0-first", labels={"cloud.google.com/gke-nodepool": "workers"})
    try:
        assert cluster.find_provider(deadline=deadline_in()) is KubernetesProvider.GKE
    finally:
        api_server.request("DELETE", "/api/v1/nodes/0-first")
    assert cluster.find_provider(deadline=deadline_in()) is KubernetesProvider.OTHER
    cluster.close()
