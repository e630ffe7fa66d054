"""The configuration of the controllers, host endpoints that nodes have by themselves, and Nodes that are gone."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.reconcile.hostendpoints import CREATED_BY
from netplug_core.reconcile.kubecontrollers import CopySource, default_configuration
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import LogSeverity, Metadata, Switch
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint, HostEndpointSpec
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    Controllers,
    HostEndpointSettings,
    KubeControllersSpec,
    LoadBalancerController,
    NodeController,
)
from netplug_core.resources.node import node_key
from tests.harness.controllers_scene import ControllersScene, machine_node

AUTOMATIC = KubeControllersSpec(
    controllers=Controllers(
        node=NodeController(host_endpoint=HostEndpointSettings(auto_create=Switch.ENABLED), leak_grace_period="15m")
    )
)


@pytest.fixture
def scene() -> ControllersScene:
    return ControllersScene()


# --- cluster information ----------------------------------------------------------------------------------------------


def put_release(scene: ControllersScene, name: str, release: str) -> None:
    node = machine_node(name)
    scene.put_node(evolve(node, status=evolve(node.status, release=release)))


def test_a_cluster_without_an_identity_gets_one_and_its_release_follows_the_last_node(scene: ControllersScene) -> None:
    scene.settle()
    made = scene.cluster_information()
    assert made.cluster_guid.startswith("uid")
    assert (made.version, made.is_datastore_ready) == ("", True)
    for name, release, expected in (
        ("a", "v3.32.0", "v3.32.0"),
        ("b", "v3.33.0", "v3.32.0"),
        ("a", "v3.33.0", "v3.33.0"),
        ("b", "v3.32.0", "v3.33.0"),
        ("c", "latest", "v3.33.0"),
    ):
        put_release(scene, name, release)
        scene.settle()
        assert scene.cluster_information() == evolve(made, version=expected)
    assert "INFO the cluster runs another release now release=v3.33.0" in scene.log.texts
    scene.delete(node_key("b"))
    put_release(scene, "a", "v3.34.0")
    scene.settle()
    assert scene.cluster_information().version == "v3.34.0", "a node that is gone holds nothing back"


def test_a_locked_cluster_and_what_people_have_set_stay(scene: ControllersScene) -> None:
    put_release(scene, "a", "v3.33.0")
    own = ClusterInformationSpec(cluster_guid="mine", cluster_type="own", version="v3.32.0", is_datastore_ready=False)
    scene.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=own))
    scene.settle()
    assert scene.cluster_information() == own
    unlocked = evolve(own, is_datastore_ready=True)
    scene.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=unlocked))
    scene.settle()
    assert scene.cluster_information() == evolve(unlocked, version="v3.33.0")
    scene.delete(CLUSTER_INFORMATION_KEY)
    scene.settle()
    assert scene.cluster_information().version == "v3.33.0"


def test_two_processes_of_which_each_believes_to_act_make_one_identity(scene: ControllersScene) -> None:
    other = ControllersScene(other=scene)
    put_release(scene, "a", "v3.33.0")
    for each in (scene, other, scene):
        each.settle()
    made = scene.cluster_information()
    assert made.version == "v3.33.0"
    assert not scene.problems("cluster information")
    assert not other.problems("cluster information")
    other.settle()
    assert scene.cluster_information() == made


def test_a_process_that_does_not_act_makes_no_identity(scene: ControllersScene) -> None:
    scene.settle()
    scene.delete(CLUSTER_INFORMATION_KEY)
    scene.is_leading = False
    scene.settle()
    assert scene.find(CLUSTER_INFORMATION_KEY) is None


# --- configuration ----------------------------------------------------------------------------------------------------


def test_a_cluster_without_a_configuration_gets_the_default_one_with_its_status(scene: ControllersScene) -> None:
    scene.settle()
    found = scene.stored_configuration()
    assert found.spec == default_configuration(CopySource.DATASTORE).spec
    assert found.status.running is not None
    assert found.status.running.compaction_period == "10m"
    assert found.metadata.uid


def test_the_status_follows_the_settings_and_the_environment() -> None:
    scene = ControllersScene(environ={"LOG_LEVEL": "debug"})
    scene.configure(AUTOMATIC)
    scene.settle()
    status = scene.stored_configuration().status
    assert status.environment == (("LOG_LEVEL", "debug"),)
    assert status.running is not None
    assert status.running.log_severity is LogSeverity.DEBUG
    assert status.running.controllers.policy is None
    scene.configure(evolve(AUTOMATIC, compaction_period="0"))
    scene.settle()
    changed = scene.stored_configuration().status.running
    assert changed is not None
    assert changed.compaction_period == "0"


def test_nothing_is_written_where_nothing_changes(scene: ControllersScene) -> None:
    scene.configure(AUTOMATIC)
    scene.put_node(machine_node("worker-1"))
    scene.settle()
    keys = (KUBE_CONTROLLERS_CONFIGURATION_KEY, HOST_ENDPOINT.key("worker-1-auto-hep"))
    before = [scene.find(key) for key in keys]
    assert None not in before
    scene.settle(900.0)
    assert [scene.find(key) for key in keys] == before


def test_a_controller_that_is_not_there_is_named(scene: ControllersScene) -> None:
    scene.configure(KubeControllersSpec(controllers=Controllers(load_balancer=LoadBalancerController())))
    scene.settle()
    assert scene.problems("configuration") == [
        "the controller loadbalancer is not there; its settings count for nothing: "
    ]


def test_a_process_that_does_not_act_writes_nothing(scene: ControllersScene) -> None:
    scene.is_leading = False
    scene.put_node(machine_node("worker-1", "machine-1"))
    scene.settle()
    assert scene.find(KUBE_CONTROLLERS_CONFIGURATION_KEY) is None
    assert scene.nodes() == ["worker-1"]
    scene.lead(is_leading=True)
    scene.settle()
    assert scene.find(KUBE_CONTROLLERS_CONFIGURATION_KEY) is not None
    assert scene.nodes() == []


# --- host endpoints ---------------------------------------------------------------------------------------------------


def test_host_endpoints_come_and_go_with_the_setting_and_the_nodes(scene: ControllersScene) -> None:
    scene.put_node(machine_node("worker-1", zone="a"))
    scene.settle()
    assert scene.host_endpoints() == []
    scene.configure(AUTOMATIC)
    scene.put_node(machine_node("worker-2"))
    scene.settle()
    assert scene.host_endpoints() == ["worker-1-auto-hep", "worker-2-auto-hep"]
    found = scene.find(HOST_ENDPOINT.key("worker-1-auto-hep"))
    assert found is not None
    assert isinstance(found.value, HostEndpoint)
    assert dict(found.value.metadata.labels) == {"zone": "a", CREATED_BY: "netplug-kube-controllers"}
    assert found.value.metadata.uid
    scene.delete(node_key("worker-2"))
    scene.settle()
    assert scene.host_endpoints() == ["worker-1-auto-hep"]
    scene.configure(KubeControllersSpec(controllers=Controllers(node=NodeController())))
    scene.settle()
    assert scene.host_endpoints() == []


def test_what_others_change_or_take_away_is_as_before(scene: ControllersScene) -> None:
    scene.configure(AUTOMATIC)
    scene.put_node(machine_node("worker-1"))
    scene.settle()
    key = HOST_ENDPOINT.key("worker-1-auto-hep")
    found = scene.find(key)
    assert found is not None
    wanted = found.value
    assert isinstance(wanted, HostEndpoint)
    scene.put(key, evolve(wanted, spec=evolve(wanted.spec, profiles=())))
    scene.settle()
    again = scene.find(key)
    assert again is not None
    assert again.value == wanted
    scene.delete(key)
    scene.settle()
    assert scene.host_endpoints() == ["worker-1-auto-hep"]


def test_an_endpoint_of_a_user_stays_and_stands_in_the_way(scene: ControllersScene) -> None:
    own = HostEndpoint(
        metadata=Metadata(name="worker-1-auto-hep"), spec=HostEndpointSpec(node="worker-1", interface_name="*")
    )
    scene.put(HOST_ENDPOINT.key("worker-1-auto-hep"), own)
    scene.configure(AUTOMATIC)
    scene.put_node(machine_node("worker-1"))
    scene.put_node(machine_node("worker-2"))
    scene.settle()
    found = scene.find(HOST_ENDPOINT.key("worker-1-auto-hep"))
    assert found is not None
    assert found.value == own
    assert scene.host_endpoints() == ["worker-1-auto-hep", "worker-2-auto-hep"]
    (problem,) = scene.problems("host endpoints")
    assert problem.startswith("the host endpoint worker-1-auto-hep is not made: ")


def test_nothing_is_deleted_before_all_is_listed(scene: ControllersScene) -> None:
    """A store that does not answer shows no nodes: their endpoints stay, and so do the Nodes."""
    scene.configure(AUTOMATIC)
    scene.put_machine("machine-1")
    scene.put_node(machine_node("worker-1", "machine-1"))
    scene.settle()
    for away in ("records", "cluster"):
        scene.away = {away}
        scene.start()
        scene.settle()
        assert scene.host_endpoints() == ["worker-1-auto-hep"]
        assert scene.nodes() == ["worker-1"]


# --- gone nodes -------------------------------------------------------------------------------------------------------


def test_a_node_goes_with_its_machine(scene: ControllersScene) -> None:
    scene.put_machine("machine-1")
    scene.put_machine("machine-2")
    for name, machine in (("worker-1", "machine-1"), ("worker-2", "machine-2"), ("bare", "")):
        scene.put_node(machine_node(name, machine))
    scene.settle()
    assert scene.nodes() == ["bare", "worker-1", "worker-2"]
    scene.delete_machine("machine-2")
    scene.settle(400.0)
    assert scene.nodes() == ["bare", "worker-1"]
    assert [text for text in scene.log.texts if "a Node is deleted" in text] == [
        "INFO a Node is deleted: its machine is gone machine=machine-2 node=worker-2"
    ]


def test_without_the_controller_of_nodes_they_stay(scene: ControllersScene) -> None:
    scene.configure(KubeControllersSpec())
    scene.put_node(machine_node("worker-1", "machine-1"))
    scene.settle()
    assert scene.nodes() == ["worker-1"]
