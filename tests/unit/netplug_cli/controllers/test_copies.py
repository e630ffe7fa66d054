"""The controllers that copy from Kubernetes, labels of nodes too: when they act, and what they never touch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import define, evolve, field

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S
from netplug_core.errors import narrow
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
from netplug_core.reconcile.nodes import COPIED_LABELS
from netplug_core.records import Key, List, Revision, Write
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.kubecontrollersconfiguration import (
    Controllers,
    ControllerSettings,
    KubeControllersSpec,
    NodeController,
)
from netplug_core.resources.networkpolicy import NETWORK_POLICY, NetworkPolicy
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.profile import PROFILE, Profile
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.faults import FaultyDatastore, LostReply
from tests.harness.controllers_scene import ControllersScene, machine_node
from tests.harness.stores import StoreWrapper

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


@define
class TimedStore(StoreWrapper):
    """A store that records how long each write may take."""

    times_s: list[float] = field(factory=list)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Record the time, then apply the writes."""
        self.times_s.append(deadline.remaining_s)
        return self.inner.commit(writes, deadline=deadline)


def test_a_write_that_is_not_answered_holds_up_no_other_one_for_long(scene: ControllersScene) -> None:
    """A server that has died in silence answers none: the next pass looks at what has become of it."""
    scene.environ["AUTO_HOST_ENDPOINTS"] = "enabled"
    scene.put_node(machine_node("worker-1", "gone"))
    scene.put_node(machine_node("bare"))
    scene.faulty = store = TimedStore(scene.store)
    scene.settle()
    assert "kns.x" in stored(scene)
    assert scene.host_endpoints() == ["bare-auto-hep"]
    assert scene.nodes() == ["bare"]
    assert set(store.times_s) == {CALL_TIMEOUT_S}


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


# --- labels of nodes --------------------------------------------------------------------------------------------------


def node_labels(scene: ControllersScene, name: str) -> dict[str, str]:
    found = scene.find(node_key(name))
    assert found is not None
    return dict(narrow(found.value, Node).metadata.labels)


def test_a_node_has_the_labels_of_its_machine_beside_its_own(scene: ControllersScene) -> None:
    scene.put_machine("machine-1", zone="a", disk="ssd")
    scene.put_node(machine_node("worker-1", "machine-1", rack="7"))
    scene.put_node(machine_node("machine-1", rack="8"))
    scene.settle()
    assert node_labels(scene, "worker-1") == {"disk": "ssd", "rack": "7", "zone": "a"}
    assert node_labels(scene, "machine-1") == {"rack": "8"}, "it names no machine"
    scene.put_machine("machine-1", zone="b")
    scene.settle()
    assert node_labels(scene, "worker-1") == {"rack": "7", "zone": "b"}


def test_labels_stay_as_they_are_while_they_are_not_to_be_copied(scene: ControllersScene) -> None:
    node = NodeController(sync_labels=Switch.DISABLED)
    scene.configure(KubeControllersSpec(controllers=Controllers(node=node)))
    scene.put_machine("machine-1", zone="a")
    scene.put_node(machine_node("worker-1", "machine-1"))
    scene.settle()
    assert node_labels(scene, "worker-1") == {}
    scene.configure(KubeControllersSpec(controllers=Controllers(node=NodeController())))
    scene.settle()
    assert node_labels(scene, "worker-1") == {"zone": "a"}
    scene.configure(KubeControllersSpec(controllers=Controllers(node=node)))
    scene.put_machine("machine-1", zone="b")
    scene.settle()
    assert node_labels(scene, "worker-1") == {"zone": "a"}


def test_what_cannot_be_read_of_one_nodes_labels_is_named_and_harms_no_other(scene: ControllersScene) -> None:
    for number in (1, 2):
        scene.put_machine(f"machine-{number}", zone="a")
        scene.put_node(machine_node(f"worker-{number}", f"machine-{number}"))
    damaged = machine_node("worker-1", "machine-1")
    annotations = ((COPIED_LABELS, "{"),)
    scene.put_node(evolve(damaged, metadata=evolve(damaged.metadata, annotations=annotations)))
    scene.settle()
    assert node_labels(scene, "worker-2") == {"zone": "a"}
    (problem,) = scene.problems("node labels")
    assert problem.startswith("the labels of machine-1 are not copied to Node(worker-1): the stored record")
    scene.put_node(damaged)
    scene.settle()
    assert (node_labels(scene, "worker-1"), scene.problems("node labels")) == ({"zone": "a"}, [])


def test_a_write_of_labels_that_fails_is_made_by_a_later_pass(scene: ControllersScene) -> None:
    scene.put_machine("machine-1")
    scene.put_node(machine_node("worker-1", "machine-1"))
    scene.settle()
    scene.faulty = store = FaultyDatastore(scene.store, {1: LostReply(applied=0)})
    scene.start()
    scene.put_machine("machine-1", zone="a")
    scene.settle()
    assert (node_labels(scene, "worker-1"), store.commits) == ({"zone": "a"}, 2)
