"""The controllers that copy from Kubernetes: when they act, and what they never touch."""

from __future__ import annotations

import pytest

from netplug_core.orchestrator.model import (
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    NamespaceFacts,
    PodFacts,
    ServiceAccountFacts,
)
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY, KubernetesNetworkPolicy
from netplug_core.reconcile.kubecontrollers import CopySource
from netplug_core.records import Key, List
from netplug_core.resources.kubecontrollersconfiguration import Controllers, ControllerSettings, KubeControllersSpec
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.networkpolicy import NETWORK_POLICY, NetworkPolicy
from netplug_core.resources.profile import PROFILE, Profile
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.controllers_scene import ControllersScene

OWN_PROFILE = PROFILE.key("own")
OWN_POLICY = NETWORK_POLICY.key("x", "allow")


@pytest.fixture
def scene() -> ControllersScene:
    """A cluster with one object of each sort, beside a store with what is a user's own."""
    found = ControllersScene(source=CopySource.KUBERNETES)
    put_namespace(found, "x")
    found.put(SERVICE_ACCOUNT.key("x", "a"), ServiceAccountFacts(namespace="x", name="a", uid="u"), found.cluster)
    put_policy(found, "web")
    found.put(OWN_PROFILE, Profile(metadata=Metadata(name="own")))
    found.put(OWN_POLICY, NetworkPolicy(metadata=Metadata(name="allow", namespace="x")))
    return found


def put_namespace(scene: ControllersScene, name: str) -> None:
    scene.put(NAMESPACE.key(name), NamespaceFacts(name=name, uid="u"), scene.cluster)


def put_policy(scene: ControllersScene, name: str) -> None:
    value = KubernetesNetworkPolicy(namespace="x", name=name)
    scene.put(KUBERNETES_NETWORK_POLICY.key("x", name), value, scene.cluster)


def stored(scene: ControllersScene) -> list[str]:
    """The profiles and policies in the store."""
    queries = (List(PROFILE), List(NETWORK_POLICY))
    found = scene.store.read(queries, deadline=scene.deadline())
    return [record.key.name for query in queries for record in found.results[query].records]


def test_what_the_cluster_has_is_copied_and_goes_with_it(scene: ControllersScene) -> None:
    scene.settle()
    copies = ["kns.x", "ksa.x.a", "own", "allow", "knp.default.web"]
    assert stored(scene) == copies
    made = scene.find(PROFILE.key("kns.x"))
    assert made is not None
    assert isinstance(made.value, Profile)
    assert made.value.metadata.uid
    scene.delete(PROFILE.key("kns.x"))
    scene.settle()
    assert stored(scene) == copies
    scene.delete(NAMESPACE.key("x"), scene.cluster)
    scene.delete(SERVICE_ACCOUNT.key("x", "a"), scene.cluster)
    scene.delete(KUBERNETES_NETWORK_POLICY.key("x", "web"), scene.cluster)
    scene.settle()
    assert stored(scene) == ["own", "allow"]


def test_an_endpoint_follows_its_pod(scene: ControllersScene) -> None:
    spec = WorkloadEndpointSpec(orchestrator="k8s", node="n", endpoint="eth0", pod="web")
    key: Key[object] = WORKLOAD_ENDPOINT.key("default", "e")
    scene.put(key, WorkloadEndpoint(metadata=Metadata(name="e", namespace="default"), spec=spec))
    scene.settle()
    before = scene.find(key)
    pod = PodFacts(namespace="default", name="web", uid="u", labels=(("tier", "front"),))
    scene.put_pod(pod)
    scene.settle()
    after = scene.find(key)
    assert before is not None
    assert after is not None
    assert isinstance(after.value, WorkloadEndpoint)
    assert dict(after.value.metadata.labels)["tier"] == "front"
    scene.delete(POD.key("default", "web"), scene.cluster)
    scene.settle()
    assert scene.find(key) == after


def test_a_controller_that_is_off_copies_nothing_and_takes_nothing_away(scene: ControllersScene) -> None:
    scene.settle()
    scene.configure(KubeControllersSpec(controllers=Controllers(policy=ControllerSettings())))
    put_namespace(scene, "y")
    put_policy(scene, "db")
    scene.settle()
    assert stored(scene) == ["kns.x", "ksa.x.a", "own", "allow", "knp.default.db", "knp.default.web"]
    scene.configure(KubeControllersSpec(controllers=Controllers(namespace=ControllerSettings())))
    scene.settle()
    assert stored(scene) == ["kns.x", "kns.y", "ksa.x.a", "own", "allow", "knp.default.db", "knp.default.web"]


def test_a_process_that_takes_over_looks_at_everything(scene: ControllersScene) -> None:
    scene.settle()
    scene.lead(is_leading=False)
    put_namespace(scene, "y")
    scene.delete(PROFILE.key("kns.x"))
    scene.settle()
    assert stored(scene) == ["ksa.x.a", "own", "allow", "knp.default.web"]
    scene.lead(is_leading=True)
    scene.settle()
    assert stored(scene) == ["kns.x", "kns.y", "ksa.x.a", "own", "allow", "knp.default.web"]


def test_while_the_cluster_is_away_everything_stays(scene: ControllersScene) -> None:
    scene.settle()
    scene.away = {"cluster"}
    scene.start()
    scene.delete(NAMESPACE.key("x"), scene.cluster)
    scene.settle()
    assert "kns.x" in stored(scene)
    scene.away = set()
    scene.settle()
    assert "kns.x" not in stored(scene)


def test_nothing_is_written_where_nothing_changes(scene: ControllersScene) -> None:
    scene.settle()
    before = scene.find(PROFILE.key("kns.x")), scene.find(NETWORK_POLICY.key("x", "knp.default.web"))
    scene.settle(900.0)
    assert (scene.find(PROFILE.key("kns.x")), scene.find(NETWORK_POLICY.key("x", "knp.default.web"))) == before
    assert [scene.problems(name) for name in ("policy", "namespace", "serviceaccount", "workloadendpoint")] == [[]] * 4


def test_where_the_datastore_is_the_clusters_own_it_is_said_once_that_there_is_nothing_to_copy() -> None:
    scene = ControllersScene(environ={"ENABLED_CONTROLLERS": "policy,namespace"})
    put_namespace(scene, "x")
    scene.settle(900.0)
    said = [line for line in scene.log.texts if "nothing to copy" in line]
    assert len(said) == 1
    assert "policy, namespace" in said[0]
    assert stored(scene) == []


def test_without_a_kubernetes_a_controller_that_copies_is_a_problem() -> None:
    scene = ControllersScene(source=CopySource.NONE, environ={"ENABLED_CONTROLLERS": "node,policy"})
    scene.settle()
    assert scene.problems("configuration") == [
        "the controller policy does nothing: it is not known which Kubernetes to copy from: KUBECONFIG is not set"
    ]
