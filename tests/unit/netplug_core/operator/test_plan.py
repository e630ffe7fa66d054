"""What the operator does in which situation, and what it reports."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_cli.operator.world import INSTALLATION
from netplug_core.errors import Unavailable
from netplug_core.names import MANAGED_BY
from netplug_core.operator.state import (
    CONFIG_MAP_REF,
    CONTROLLERS_REF,
    DAEMONSET_REF,
    FINALIZER,
    IGNORE,
    KUBEADM_CONFIG,
    NAMESPACE_REF,
    ClusterMode,
    ObjectRef,
    installed_refs,
)
from tests.harness.installations import make_pool, network
from tests.harness.operator_cluster import DEFINITION_KINDS, SHIPPED, VERSION, make_loop, settle
from tests.harness.operator_scene import Scene

V4 = "10.244.0.0/16"
PLAIN = {"encapsulation": "None", "natOutgoing": "Disabled"}
SPEC = network(ipPools=[{"cidr": V4, **PLAIN}], bgp="Enabled")
ROLE = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRole", "netplug-cni-plugin")


@pytest.fixture
def scene() -> Scene:
    """A cluster with an Installation that is ready."""
    return Scene.ready(SPEC)


def test_the_order_of_a_first_installation() -> None:
    made = Scene()
    made.cluster.install(SPEC)
    writes = [write for write in made.settle() if write.split()[1] not in DEFINITION_KINDS]
    assert writes == [
        "apply Installation default",
        "apply Installation default status",
        "create pool default-ipv4-ippool",
        "apply Namespace netplug-system",
        "apply ServiceAccount netplug-system/netplug-cni-plugin",
        "apply ClusterRole netplug-cni-plugin",
        "apply ClusterRoleBinding netplug-cni-plugin",
        "apply ServiceAccount netplug-system/netplug-node",
        "apply Role netplug-system/netplug-node",
        "apply RoleBinding netplug-system/netplug-node",
        "apply ClusterRole netplug-node",
        "apply ClusterRoleBinding netplug-node",
        "apply ServiceAccount netplug-system/netplug-kube-controllers",
        "apply ClusterRole netplug-kube-controllers",
        "apply ClusterRoleBinding netplug-kube-controllers",
        "apply Role kube-system/netplug-kube-controllers",
        "apply RoleBinding kube-system/netplug-kube-controllers",
        "apply ConfigMap netplug-system/cni-config",
        "apply DaemonSet netplug-system/netplug-node",
        "apply Deployment netplug-system/netplug-kube-controllers",
        "apply Installation default status",
        "apply Installation default status",
    ]
    assert made.condition("Progressing") == (
        "True",
        "ResourceNotReady",
        "the DaemonSet netplug-node has not been read by the controller manager yet",
    )


def test_it_is_ready_when_every_node_has_its_pod(scene: Scene) -> None:
    assert scene.cluster.conditions() == {
        "Ready": ("True", "AllObjectsAvailable", ""),
        "Progressing": ("False", "AllObjectsAvailable", ""),
        "Degraded": ("False", "AllObjectsAvailable", ""),
    }
    status = scene.cluster.objects[INSTALLATION]["status"]
    assert isinstance(status, dict)
    assert (status["crdMode"], status["netplugVersion"], status["mtu"]) == ("v1", VERSION, 0)
    assert status["computed"]["cni"]["ipam"] == {"type": "Netplug"}
    assert scene.settle() == []


def test_a_changed_field_reaches_its_objects(scene: Scene) -> None:
    scene.cluster.install(network(ipPools=[{"cidr": V4, **PLAIN}], bgp="Enabled", mtu=1400))
    assert scene.settle() == [
        "apply ConfigMap netplug-system/cni-config",
        "apply DaemonSet netplug-system/netplug-node",
        "apply Installation default status",
        "apply Installation default status",
    ]
    assert '"mtu":1400' in str(scene.cluster.objects[CONFIG_MAP_REF])


@pytest.mark.parametrize("ref", [ref for ref in installed_refs(SHIPPED) if ref != NAMESPACE_REF])
def test_what_is_deleted_comes_back(scene: Scene, ref: ObjectRef) -> None:
    scene.cluster.remove(ref)
    assert f"apply {ref}" in scene.settle()
    assert ref in scene.cluster.objects


def test_fields_of_others_are_kept_and_ours_are_repaired(scene: Scene) -> None:
    role = scene.cluster.objects[ROLE]
    role["metadata"]["annotations"]["theirs"] = "1"  # type: ignore[index]
    role["rules"] = []
    assert scene.settle()[0] == f"apply {ROLE}"
    assert role["rules"]
    assert role["metadata"]["annotations"]["theirs"] == "1"  # type: ignore[index]


def test_an_object_may_be_left_to_its_owner(scene: Scene) -> None:
    role = scene.cluster.objects[ROLE]
    role["metadata"]["annotations"][IGNORE] = "true"  # type: ignore[index]
    role["rules"] = []
    assert scene.settle() == []


def test_a_deleted_installation_takes_everything_but_definitions_and_pools(scene: Scene) -> None:
    scene.cluster.pods = ({"metadata": {"name": "a"}},)
    scene.cluster.remove(INSTALLATION)
    deletions = [write for write in scene.settle() if not write.endswith("status")]
    assert deletions == [f"delete {CONTROLLERS_REF}", f"delete {DAEMONSET_REF}"]
    assert scene.condition("Progressing")[2] == "1 pods of netplug-node are ending"
    assert ROLE in scene.cluster.objects
    scene.cluster.pods = ()
    writes = [write for write in scene.settle() if not write.endswith("status")]
    assert writes == [
        "delete ConfigMap netplug-system/cni-config",
        "delete ClusterRoleBinding netplug-node",
        "delete ClusterRole netplug-node",
        "delete RoleBinding netplug-system/netplug-node",
        "delete Role netplug-system/netplug-node",
        "delete ServiceAccount netplug-system/netplug-node",
        "delete RoleBinding kube-system/netplug-kube-controllers",
        "delete Role kube-system/netplug-kube-controllers",
        "delete ClusterRoleBinding netplug-kube-controllers",
        "delete ClusterRole netplug-kube-controllers",
        "delete ServiceAccount netplug-system/netplug-kube-controllers",
        "delete ClusterRoleBinding netplug-cni-plugin",
        "delete ClusterRole netplug-cni-plugin",
        "delete ServiceAccount netplug-system/netplug-cni-plugin",
        "delete Namespace netplug-system",
        "apply Installation default",
    ]
    scene.cluster.end_namespace()
    assert {ref.kind for ref in scene.cluster.objects} == DEFINITION_KINDS
    assert [pool.metadata.name for pool in scene.pools.pools] == ["default-ipv4-ippool"]


def test_finalizers_of_others_keep_what_they_hold(scene: Scene) -> None:
    scene.cluster.objects[ROLE]["metadata"]["finalizers"] = ["theirs"]  # type: ignore[index]
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    assert scene.condition("Progressing")[2] == f"{ROLE} is being deleted"
    assert FINALIZER in scene.cluster.objects[INSTALLATION]["metadata"]["finalizers"]  # type: ignore[index]
    scene.cluster.objects[ROLE]["metadata"]["finalizers"] = []  # type: ignore[index]
    scene.cluster.remove(ROLE)
    scene.settle()
    assert INSTALLATION not in scene.cluster.objects


def test_an_installation_that_others_hold_is_released_once(scene: Scene) -> None:
    scene.cluster.remove(INSTALLATION)
    scene.cluster.objects[INSTALLATION]["metadata"]["finalizers"].append("theirs")  # type: ignore[index]
    scene.settle()
    scene.cluster.objects[INSTALLATION]["metadata"]["finalizers"] = ["theirs"]  # type: ignore[index]
    scene.settle()
    assert scene.condition("Progressing")[2] == "everything that was installed is gone"
    assert scene.settle() == []


def test_objects_without_the_label_stay(scene: Scene) -> None:
    del scene.cluster.objects[ROLE]["metadata"]["labels"]  # type: ignore[attr-defined]
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    assert INSTALLATION not in scene.cluster.objects
    assert ROLE in scene.cluster.objects


def test_a_namespace_that_ends_is_waited_for(scene: Scene) -> None:
    scene.cluster.remove(NAMESPACE_REF)
    assert scene.settle() == ["apply Installation default status"]
    assert scene.condition("Progressing")[2] == (
        "Namespace netplug-system is being deleted; it is made again when it is gone"
    )
    scene.cluster.end_namespace()
    assert f"apply {NAMESPACE_REF}" in scene.settle()


@pytest.mark.parametrize(
    "spec, message",
    [
        (
            network(mtu=70000, ipPools=[{"cidr": "10.0.0.1"}]),
            (
                "Installation(default): OutOfRange: spec.netplugNetwork.mtu: 70000 is not accepted; 0 to 65535 bytes "
                "(1 more: netplugctl install validate shows all)"
            ),
        ),
        (
            network(mtu="x"),
            "Installation(default): Format: spec.netplugNetwork.mtu: 'x' is not accepted; expected a whole number",
        ),
    ],
)
def test_a_wrong_installation_changes_nothing(scene: Scene, spec: object, message: str) -> None:
    scene.cluster.install(spec)
    before = scene.cluster.picture()[str(DAEMONSET_REF)]
    assert scene.settle() == ["apply Installation default status"]
    assert scene.condition("Degraded")[:2] == ("True", "InvalidConfigurationError")
    assert scene.condition("Degraded")[2].startswith(message)
    assert scene.condition("Ready") == ("False", "Unknown", "")
    assert scene.cluster.picture()[str(DAEMONSET_REF)] == before
    scene.cluster.install(SPEC)
    scene.settle()
    assert scene.condition("Ready")[0] == "True"


def test_an_overlay_wins_and_is_judged(scene: Scene) -> None:
    scene.cluster.install(network(mtu=9000), name="overlay")
    scene.settle()
    assert '"mtu":9000' in str(scene.cluster.objects[CONFIG_MAP_REF])
    assert scene.cluster.objects[INSTALLATION]["spec"] == SPEC
    assert scene.cluster.objects[INSTALLATION]["status"]["computed"]["netplugNetwork"]["mtu"] == 9000  # type: ignore[index]
    scene.cluster.install({"cni": {"type": "Nobody"}}, name="overlay")
    scene.settle()
    assert "Installation(overlay): Unsupported: spec.cni.type: 'Nobody'" in scene.condition("Degraded")[2]
    overlay = evolve(INSTALLATION, name="overlay")
    scene.cluster.objects[overlay]["metadata"]["finalizers"] = ["theirs"]  # type: ignore[index]
    scene.cluster.remove(overlay)
    scene.settle()
    assert '"mtu":0' in str(scene.cluster.objects[CONFIG_MAP_REF])


def test_without_a_pool_it_waits_and_keeps_what_there_is(scene: Scene) -> None:
    scene.pools.pools = ()
    scene.cluster.install(network(ipPools=[]))
    assert scene.settle() == ["apply Installation default status"]
    assert scene.condition("Degraded")[:2] == ("True", "ResourceNotFound")
    assert DAEMONSET_REF in scene.cluster.objects


def test_pools_that_go_are_deleted_last(scene: Scene) -> None:
    scene.cluster.install(network(ipPools=[{"cidr": "10.1.0.0/16", "name": "b", **PLAIN}]))
    writes = scene.settle()
    pools = [write for write in writes if "pool" in write]
    assert pools == ["create pool b", "delete pool default-ipv4-ippool"]
    assert writes[-2:] == ["delete pool default-ipv4-ippool", "apply Installation default status"] or writes[-3:-1] == [
        "delete pool default-ipv4-ippool",
        "apply Installation default status",
    ]


def test_a_pool_of_others_is_not_touched() -> None:
    made = Scene(make_pool(V4, name="default-ipv4-ippool"))
    made.cluster.install(network(ipPools=[{"cidr": V4, "blockSize": 28, **PLAIN}]))
    made.settle()
    assert made.condition("Degraded") == (
        "True",
        "ResourceValidationError",
        (
            f"IPPool default-ipv4-ippool ({V4}): it is not the operator's and differs; "
            f"label it {'='.join(MANAGED_BY)} to hand it over"
        ),
    )
    assert made.pools.pools == (make_pool(V4, name="default-ipv4-ippool"),)


def test_the_pools_of_kubeadm_are_taken() -> None:
    made = Scene()
    text = f"networking:\n  podSubnet: {V4},fd00:10:244::/56\n"
    made.cluster.objects[KUBEADM_CONFIG] = {"metadata": {"uid": "k"}, "data": {"ClusterConfiguration": text}}
    made.cluster.install({})
    made.settle()
    assert [str(pool.spec.prefix) for pool in made.pools.pools] == [V4, "fd00:10:244::/56"]


def test_another_plugin_gets_nothing_and_loses_ours(scene: Scene) -> None:
    scene.cluster.install({**network(ipPools=[{"cidr": V4, **PLAIN}]), "cni": {"type": "AmazonVPC"}})
    scene.settle()
    scene.cluster.end_namespace()
    scene.settle()
    assert not set(installed_refs(SHIPPED)) & scene.cluster.objects.keys()
    assert scene.condition("Ready")[2].endswith("nothing is installed on the nodes: the CNI plugin is AmazonVPC")


def test_pods_that_fail_are_named(scene: Scene) -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    last = {"terminated": {"exitCode": 3}}
    container = {"name": "install-cni", "state": waiting, "lastState": last}
    scene.cluster.pods = tuple(
        {
            "metadata": {"name": f"p{number}"},
            "spec": {"nodeName": f"n{number}"},
            "status": {"initContainerStatuses": [container], "containerStatuses": [{"state": {"running": {}}}]},
        }
        for number in range(5)
    )
    scene.cluster.roll_out(nodes=5, available=0)
    scene.settle()
    assert scene.condition("Degraded") == (
        "True",
        "PodFailure",
        "".join(
            f"pod p{n} on node n{n}: container install-cni: CrashLoopBackOff, it ended with status 3 before\n"
            for n in range(3)
        )
        + "2 more",
    )


@pytest.mark.parametrize(
    "available, updated, text",
    [(1, 2, "1 of 2 pods of netplug-node are available"), (0, 1, "1 of 2 pods of netplug-node are updated")],
)
def test_how_far_the_nodes_are(scene: Scene, available: int, updated: int, text: str) -> None:
    scene.cluster.roll_out(available=available)
    scene.cluster.objects[DAEMONSET_REF]["status"]["updatedNumberScheduled"] = updated  # type: ignore[index]
    scene.settle()
    assert scene.condition("Progressing") == ("True", "ResourceNotReady", text)


def test_controllers_that_do_not_run_are_seen(scene: Scene) -> None:
    scene.cluster.roll_out()
    scene.settle()
    assert scene.condition("Ready")[0] == "True"
    scene.cluster.objects[CONTROLLERS_REF]["status"] = {"replicas": 1, "unavailableReplicas": 1}
    scene.settle()
    assert scene.condition("Ready")[0] == "False"
    awaited = "netplug-kube-controllers does not run: pods that are not available: 1"
    assert scene.condition("Progressing") == ("True", "ResourceNotReady", awaited)
    container = {"name": "netplug-kube-controllers", "state": {"waiting": {"reason": "RunContainerError"}}}
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"containerStatuses": [container]}}
    scene.cluster.controller_pods = (pod,)
    scene.settle()
    failure = "pod p on node n: container netplug-kube-controllers: RunContainerError"
    assert scene.condition("Degraded") == ("True", "PodFailure", failure)
    scene.cluster.objects[CONTROLLERS_REF]["status"] = {"replicas": 1, "availableReplicas": 1}
    scene.settle()
    assert scene.condition("Ready")[0] == "True"


def test_without_an_installation_there_are_definitions_only() -> None:
    made = Scene()
    assert {write.split()[1] for write in made.settle()} == DEFINITION_KINDS
    assert made.settle() == []


def test_definitions_of_others_are_left_to_them() -> None:
    made = Scene(manages_definitions=False)
    made.cluster.install(SPEC)
    made.settle()
    assert made.condition("Degraded") == (
        "True",
        "ResourceNotFound",
        (
            "the cluster does not serve bgpconfigurations, bgpfilters, bgppeers, blockaffinities, "
            "clusterinformations, globalnetworkpolicies, globalnetworksets, hostendpoints, ipamblocks, ipamconfigs, "
            "ipamhandles, ippools, ipreservations, kubecontrollersconfigurations, networkpolicies, networksets, "
            "nodeconfigurations; apply the definitions v1, or run the operator with "
            "--manage-crds=true"
        ),
    )
    assert not any("CustomResourceDefinition" in str(ref) for ref in made.cluster.objects)


def test_the_mode_is_never_switched(scene: Scene) -> None:
    scene.settings = evolve(scene.settings, asked_mode=ClusterMode.V3)
    assert scene.settle() == ["apply Installation default status"]
    assert scene.condition("Degraded") == (
        "True",
        "ResourceMigrationError",
        (
            "NETPLUG_API_GROUP: v3 is not accepted; the cluster has v1, with its data, and is never switched; "
            "unset the variable"
        ),
    )


def test_a_new_cluster_has_the_mode_that_is_asked_for() -> None:
    made = Scene(asked_mode=ClusterMode.V3)
    made.cluster.install(SPEC)
    made.settle()
    assert made.cluster.objects[INSTALLATION]["status"]["crdMode"] == "v3"  # type: ignore[index]
    assert "projectnetplug.org/v3" in str(made.cluster.objects[CONFIG_MAP_REF])


def test_a_refused_write_is_reported_with_what_was_tried(scene: Scene) -> None:
    scene.cluster.remove(ROLE)
    scene.cluster.refused[f"apply {ROLE}"] = Unavailable("kubernetes API", "a right is missing")
    settle(make_loop(scene.cluster, scene.pools))
    status, reason, message = scene.condition("Degraded")
    assert (status, reason) == ("True", "ResourceUpdateError")
    assert message.startswith(f"apply {ROLE}: ")
    assert "a right is missing" in message


LOSS = "workloads have 2 addresses that no block holds"


def test_while_blocks_are_lost_the_datastore_is_locked_and_no_pool_is_made() -> None:
    made = Scene()
    made.pools.loss = LOSS
    made.cluster.install(SPEC)
    writes = made.settle()
    assert "lock" in writes
    assert not any("create pool" in write or "DaemonSet" in write for write in writes)
    assert made.condition("Degraded") == ("True", "BlocksLost", LOSS)
    assert made.settle() == []
    made.pools.loss = ""
    writes = made.settle()
    assert writes.index("unlock") < writes.index("create pool default-ipv4-ippool")
    assert made.condition("Degraded")[0] == "False"


def test_with_another_ipam_no_block_is_missed() -> None:
    made = Scene()
    made.pools.loss = LOSS
    made.cluster.install(network(cni={"type": "Netplug", "ipam": {"type": "HostLocal"}}))
    assert "lock" not in made.settle()
