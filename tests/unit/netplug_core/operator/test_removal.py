"""What a removal leaves to others."""

from __future__ import annotations

import pytest

from netplug_cli.operator.world import INSTALLATION
from netplug_core.operator.state import (
    CONFIG_MAP_REF,
    CONTROLLERS_LEASE_REF,
    DAEMONSET_REF,
    IGNORE,
    NAMESPACE_REF,
    STATIC_DAEMONSET_REF,
    ObjectRef,
)
from tests.harness.installations import network
from tests.harness.operator_cluster import DEFINITION_KINDS
from tests.harness.operator_scene import Scene

ROLE = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRole", "netplug-cni-plugin")
SPEC = network(ipPools=[{"cidr": "10.244.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}])


@pytest.fixture
def scene() -> Scene:
    """A cluster with an Installation that is ready."""
    return Scene.ready(SPEC)


def ignore(scene: Scene, ref: ObjectRef) -> None:
    scene.cluster.objects[ref]["metadata"]["annotations"][IGNORE] = "true"  # type: ignore[index]


def give_away(scene: Scene, ref: ObjectRef) -> None:
    del scene.cluster.objects[ref]["metadata"]["labels"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("leave", [ignore, give_away])
@pytest.mark.parametrize("ref", [ROLE, CONFIG_MAP_REF, DAEMONSET_REF])
def test_what_is_left_to_others_stays_with_its_namespace(scene: Scene, leave: object, ref: ObjectRef) -> None:
    leave(scene, ref)  # type: ignore[operator]
    scene.cluster.pods = ({"metadata": {"name": "a"}},) if ref == DAEMONSET_REF else ()
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    scene.cluster.end_namespace()
    assert INSTALLATION not in scene.cluster.objects
    kept = {found for found in scene.cluster.objects if found.kind not in DEFINITION_KINDS}
    assert kept == ({ref, NAMESPACE_REF} if ref.namespace else {ref})


def test_pods_of_a_daemonset_of_ours_are_awaited(scene: Scene) -> None:
    scene.cluster.pods = ({"metadata": {"name": "a"}},)
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    assert DAEMONSET_REF not in scene.cluster.objects
    assert CONFIG_MAP_REF in scene.cluster.objects
    assert scene.condition("Progressing")[2] == "1 pods of netplug-node are ending"


def add_lease(scene: Scene) -> None:
    metadata = {"name": CONTROLLERS_LEASE_REF.name, "uid": "l", "annotations": {}}
    scene.cluster.objects[CONTROLLERS_LEASE_REF] = {"metadata": metadata, "spec": {}}


def test_the_lease_of_the_controllers_goes_when_no_process_may_make_it_again(scene: Scene) -> None:
    add_lease(scene)
    scene.cluster.remove(INSTALLATION)
    deletions = [write for write in scene.settle() if write.startswith("delete ")]
    assert deletions[-2:] == [f"delete {CONTROLLERS_LEASE_REF}", f"delete {NAMESPACE_REF}"]
    assert deletions.index(f"delete {ROLE}") < len(deletions) - 2
    assert CONTROLLERS_LEASE_REF not in scene.cluster.objects


def keep_static_pods(scene: Scene) -> None:
    scene.cluster.objects[STATIC_DAEMONSET_REF] = {"metadata": {"name": "netplug-node", "uid": "static"}}


@pytest.mark.parametrize("keep", [keep_static_pods, lambda scene: ignore(scene, CONTROLLERS_LEASE_REF)])
def test_the_lease_of_the_controllers_stays_where_others_use_it(scene: Scene, keep: object) -> None:
    add_lease(scene)
    keep(scene)  # type: ignore[operator]
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    scene.cluster.end_namespace()
    assert CONTROLLERS_LEASE_REF in scene.cluster.objects
    assert INSTALLATION not in scene.cluster.objects
