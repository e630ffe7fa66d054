"""The operator on a cluster where a static manifest has installed netplug: both use one cluster role."""

from __future__ import annotations

from netplug_cli.operator.observing import INSTALLATION
from netplug_core.operator.cluster import FINALIZER
from netplug_core.operator.objects import ObjectRef
from netplug_core.operator.wanted import DAEMONSET_REF, NAMESPACE_REF, STATIC_DAEMONSET_REF
from tests.harness.installations import network
from tests.harness.operator_scene import Scene

ROLE = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRole", "netplug-cni-plugin")
BINDING = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "netplug-cni-plugin")
ACCOUNT = ObjectRef("v1", "ServiceAccount", "netplug-cni-plugin", "netplug-system")
SPEC = network(ipPools=[{"cidr": "10.244.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}])


def add_static_pods(scene: Scene) -> None:
    scene.cluster.objects[STATIC_DAEMONSET_REF] = {"metadata": {"name": "netplug-node", "uid": "static"}}


def test_nothing_is_written_while_the_static_daemonset_is_there() -> None:
    scene = Scene()
    add_static_pods(scene)
    scene.settle()
    scene.cluster.install(SPEC)
    assert scene.settle() == ["apply Installation default status"]
    assert FINALIZER not in scene.cluster.objects[INSTALLATION]["metadata"].get("finalizers", ())  # type: ignore[attr-defined]
    assert scene.condition("Degraded") == (
        "True",
        "ResourceMigrationError",
        (
            "netplug is installed by a static manifest: DaemonSet kube-system/netplug-node is there, and an "
            "Installation would take the rights of its plugin away; delete that DaemonSet, and the Installation takes "
            "over, or delete the Installation"
        ),
    )
    del scene.cluster.objects[STATIC_DAEMONSET_REF]
    assert f"apply {DAEMONSET_REF}" in scene.settle()


def test_a_removal_leaves_the_rights_that_static_pods_use() -> None:
    scene = Scene.ready(SPEC)
    add_static_pods(scene)
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    assert {ROLE, BINDING} <= scene.cluster.objects.keys()
    assert ACCOUNT not in scene.cluster.objects
    assert INSTALLATION not in scene.cluster.objects
    assert "deletionTimestamp" in scene.cluster.objects[NAMESPACE_REF]["metadata"]  # type: ignore[operator]
