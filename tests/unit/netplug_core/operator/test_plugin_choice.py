"""The CNI plugin of a cluster is decided once: what looks like another one later removes and installs nothing."""

from __future__ import annotations

from netplug_cli.operator.observing import INSTALLATION
from netplug_core.operator.objects import ObjectRef
from netplug_core.operator.wanted import CONFIG_MAP_REF, DAEMONSET_REF
from tests.harness.installations import network
from tests.harness.operator_scene import Scene

AWS_NODE = ObjectRef("apps/v1", "DaemonSet", "aws-node", "kube-system")
SPEC = network(ipPools=[{"cidr": "10.244.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}])


def add_aws_node(scene: Scene) -> None:
    scene.cluster.objects[AWS_NODE] = {"metadata": {"name": "aws-node", "uid": "aws"}}


def lose_status(scene: Scene) -> None:
    """As after a backup that has no status."""
    del scene.cluster.objects[INSTALLATION]["status"]


def plugin_of(scene: Scene) -> str:
    return scene.cluster.objects[INSTALLATION]["status"]["computed"]["cni"]["type"]  # type: ignore[index,no-any-return]


def test_a_daemonset_of_amazon_removes_nothing() -> None:
    scene = Scene.ready(SPEC)
    add_aws_node(scene)
    assert scene.settle() == []
    assert scene.condition("Ready")[0] == "True"
    scene.cluster.install({**SPEC, "kubernetesProvider": "EKS"})
    writes = scene.settle()
    assert not [write for write in writes if write.startswith("delete")]
    assert plugin_of(scene) == "Netplug"


def test_a_cluster_of_amazon_gets_nothing_while_its_daemonset_is_away() -> None:
    scene = Scene()
    add_aws_node(scene)
    scene.cluster.install(SPEC)
    scene.settle()
    assert plugin_of(scene) == "AmazonVPC"
    del scene.cluster.objects[AWS_NODE]
    assert scene.settle() == []
    assert DAEMONSET_REF not in scene.cluster.objects
    scene.cluster.install({**SPEC, "cni": {"type": "Netplug"}})
    scene.settle()
    assert DAEMONSET_REF in scene.cluster.objects


def test_without_a_record_what_is_installed_stays_until_the_type_is_written() -> None:
    scene = Scene.ready(SPEC)
    add_aws_node(scene)
    lose_status(scene)
    scene.cluster.install(network(ipPools=[]))
    writes = scene.settle()
    assert writes == ["apply Installation default status"]
    assert scene.condition("Degraded") == (
        "True",
        "InvalidConfigurationError",
        (
            "the default CNI plugin of this cluster is AmazonVPC, but netplug is installed; nothing is removed unless "
            "spec.cni.type says so: set it to Netplug to keep netplug, or to AmazonVPC"
        ),
    )
    scene.cluster.install({**SPEC, "cni": {"type": "AmazonVPC"}})
    assert f"delete {DAEMONSET_REF}" in scene.settle()


def test_a_type_that_was_written_counts_when_it_is_left_out_again() -> None:
    scene = Scene.ready({**SPEC, "cni": {"type": "Netplug"}})
    add_aws_node(scene)
    scene.cluster.install(SPEC)
    scene.settle()
    assert {DAEMONSET_REF, CONFIG_MAP_REF} <= scene.cluster.objects.keys()
    assert plugin_of(scene) == "Netplug"
