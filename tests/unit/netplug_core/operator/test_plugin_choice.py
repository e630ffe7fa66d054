"""Provider and CNI plugin of a cluster are decided once: what looks like another one later changes nothing."""

from __future__ import annotations

from netplug_cli.operator.world import INSTALLATION
from netplug_core.operator.state import CONFIG_MAP_REF, DAEMONSET_REF, ObjectRef
from netplug_core.resources.installation import KubernetesProvider
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


def status_of(scene: Scene) -> dict[str, object]:
    return scene.cluster.objects[INSTALLATION]["status"]  # type: ignore[return-value]


def test_the_provider_that_a_new_cluster_shows_decides() -> None:
    scene = Scene()
    scene.cluster.provider = KubernetesProvider.GKE
    scene.cluster.install(SPEC)
    scene.settle()
    assert (plugin_of(scene), status_of(scene)["detectedProvider"]) == ("GKE", "GKE")
    assert DAEMONSET_REF not in scene.cluster.objects


def test_what_a_node_shows_later_changes_nothing() -> None:
    scene = Scene.ready(SPEC)
    before = status_of(scene)["computed"]
    scene.cluster.provider = KubernetesProvider.EKS
    assert scene.settle() == []
    assert (status_of(scene)["detectedProvider"], status_of(scene)["computed"]) == ("", before)


def test_a_cluster_of_a_release_that_detected_none_stays_as_it_is() -> None:
    scene = Scene.ready(SPEC)
    before = dict(status_of(scene))
    del status_of(scene)["detectedProvider"]
    scene.cluster.provider = KubernetesProvider.AKS
    assert scene.settle() == ["apply Installation default status"]
    assert status_of(scene) == before


def test_check_26_a_declared_provider_that_is_another_one_is_refused() -> None:
    scene = Scene()
    scene.cluster.provider = KubernetesProvider.EKS
    scene.cluster.install({**SPEC, "kubernetesProvider": "GKE"})
    scene.settle()
    _, reason, message = scene.condition("Degraded")
    assert reason == "InvalidConfigurationError"
    assert "spec.kubernetesProvider: 'GKE' is not accepted; the cluster is EKS" in message
    assert DAEMONSET_REF not in scene.cluster.objects


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
