"""The operator on a cluster where a static manifest has installed netplug: when it converts it, and what it says."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import pytest
from attrs import evolve

from netplug_cli.operator.world import INSTALLATION
from netplug_core.errors import Unavailable
from netplug_core.operator.state import (
    CONTROLLERS_REF,
    DAEMONSET_REF,
    FINALIZER,
    IGNORE,
    NAMESPACE_REF,
    STATIC_BUDGET_REF,
    STATIC_CONTROLLERS_REF,
    STATIC_DAEMONSET_REF,
    ClusterMode,
    CompleteInstallation,
    ObjectRef,
)
from netplug_core.operator.takeover import MIGRATION_LABEL, OVERRIDE_REF, STATIC_OVERRIDE_REF
from tests.harness.installations import network
from tests.harness.operator_cluster import MemoryCluster, make_loop, settle
from tests.harness.operator_scene import Scene
from tests.harness.static_cluster import BINDING_REF, StaticCluster, node_ref

ROLE = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRole", "netplug-cni-plugin")
ACCOUNT = ObjectRef("v1", "ServiceAccount", "netplug-cni-plugin", "netplug-system")
STATIC_ACCOUNT = ObjectRef("v1", "ServiceAccount", "netplug-cni-plugin", "kube-system")
STATIC_CONFIG = ObjectRef("v1", "ConfigMap", "netplug-config", "kube-system")
SPEC = network(ipPools=[{"cidr": "10.244.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}])
STATUS = "apply Installation default status"


class Converting:
    """A cluster with a static manifest and an operator, of which each look is followed by what controllers do."""

    def __init__(self, *nodes: str, spec: Mapping[str, object] = SPEC) -> None:
        self.static = StaticCluster.of(*nodes)
        self.cluster: MemoryCluster = self.static.cluster
        self.pools = self.static.make_pools()
        self.cluster.install(spec)

    def look(self) -> list[str]:
        """The writes of one look."""
        self.cluster.writes.clear()
        make_loop(self.cluster, self.pools).look()
        return list(self.cluster.writes)

    def look_until(self, write: str) -> None:
        """Look until the operator has done something."""
        for _ in range(40):
            if write in self.look():
                return
            self.static.come_to_rest()
        raise AssertionError(write)

    def finish(self) -> None:
        """Look until the operator has nothing to do, and nothing changes any more."""
        for _ in range(40):
            self.cluster.writes.clear()
            settle(make_loop(self.cluster, self.pools))
            self.static.come_to_rest()
            if not self.cluster.writes:
                return

    def message(self, kind: str) -> str:
        return self.cluster.conditions()[kind][2]

    def pod(self) -> dict[str, Any]:
        """The template's spec of the static DaemonSet."""
        spec = cast("dict[str, dict[str, dict[str, Any]]]", self.cluster.objects[STATIC_DAEMONSET_REF]["spec"])
        return spec["template"]["spec"]

    def labels(self) -> list[str]:
        found = [self.cluster.objects[node_ref(one)]["metadata"]["labels"] for one in self.static.nodes]  # type: ignore[index]
        return [str(labels.get(MIGRATION_LABEL)) for labels in found]

    def bound_accounts(self, role: str) -> set[str]:
        """The accounts that have a cluster role."""
        subjects = self.cluster.objects[evolve(BINDING_REF, name=role)]["subjects"]
        return {f"{one['namespace']}/{one['name']}" for one in cast("list[dict[str, str]]", subjects)}


def test_without_an_installation_nothing_happens() -> None:
    found = Converting("a")
    found.cluster.remove(INSTALLATION)
    settle(make_loop(found.cluster, found.pools))
    assert found.labels() == ["None"]
    assert DAEMONSET_REF not in found.cluster.objects


def test_what_cannot_be_taken_over_leaves_everything_as_it_is() -> None:
    found = Converting("a", "b")
    found.pod()["containers"][0]["env"].append({"name": "MINE", "value": "1"})
    found.pod()["affinity"] = {"nodeAffinity": {"x": 1}}
    assert found.look() == [STATUS]
    status, reason, message = found.cluster.conditions()["Degraded"]
    assert (status, reason) == ("True", "MigrationError")
    assert [line.split(" cannot")[0] for line in message.splitlines()] == [
        "DaemonSet kube-system/netplug-node: affinity: {'nodeAffinity': {'x': 1}}",
        "DaemonSet kube-system/netplug-node: netplug-node.env.MINE: '1'",
    ]
    assert FINALIZER not in found.cluster.objects[INSTALLATION]["metadata"].get("finalizers", ())  # type: ignore[attr-defined]
    del found.pod()["affinity"]
    found.pod()["containers"][0]["env"].pop()
    found.finish()
    assert found.cluster.conditions()["Ready"][0] == "True"


def test_of_many_problems_some_are_shown() -> None:
    found = Converting("a")
    for number in range(23):
        found.pod()["containers"][0]["env"].append({"name": f"MINE{number}", "value": "1"})
    found.look()
    lines = found.message("Degraded").splitlines()
    assert (len(lines), lines[-1]) == (21, "3 more")


def test_rights_that_the_plugin_would_lose() -> None:
    found = Converting("a")
    rules = cast("list[object]", found.cluster.objects[ROLE]["rules"])
    rules.append({"apiGroups": ["", "apps"], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["x"]})
    rules.append("damaged")
    assert found.look() == [STATUS]
    assert found.message("Degraded").startswith(
        "ClusterRole netplug-cni-plugin: rules: 'get secrets, get secrets.apps' cannot be taken over; "
    )
    found.cluster.objects[ROLE]["rules"] = None
    assert "replace Installation default" in found.look()


def test_a_wrong_installation_or_an_unreadable_one_is_said_first() -> None:
    found = Converting("a", spec=network(mtu=70000))
    assert found.look() == [STATUS]
    assert "OutOfRange: spec.netplugNetwork.mtu" in found.message("Degraded")
    found.cluster.install({"what": 1})
    assert found.look() == [STATUS]
    assert "there is no such field" in found.message("Degraded")
    found.cluster.install(SPEC)
    found.cluster.install({"cni": {"ipam": {"type": "Netplug", "plugin": "HostLocal"}}}, name="overlay")
    assert found.look() == [STATUS]
    assert "spellings of one setting" in found.message("Degraded")


@pytest.mark.parametrize("ref", [STATIC_DAEMONSET_REF, BINDING_REF])
def test_a_manifest_that_is_to_be_ignored_is_not_converted(ref: ObjectRef) -> None:
    """Without its binding, whose subjects could not be changed, the plugin would lose its rights."""
    found = Converting("a")
    found.cluster.objects[ref]["metadata"]["annotations"] = {IGNORE: "true"}  # type: ignore[index]
    assert found.look() == [STATUS]
    assert found.cluster.conditions()["Degraded"][1] == "ResourceMigrationError"
    assert f"{ref} is to be ignored; remove that annotation" in found.message("Degraded")


def test_a_label_with_another_value_is_no_migration() -> None:
    scene = Scene.ready(SPEC)
    metadata = {"name": "a", "uid": "a", "labels": {"kubernetes.io/os": "linux", MIGRATION_LABEL: "mine"}}
    scene.cluster.objects[node_ref("a")] = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    assert scene.settle() == []


def test_the_settings_come_into_the_installation_first() -> None:
    found = Converting("a")
    assert found.look() == ["replace Installation default", STATUS]
    spec = cast("dict[str, Any]", found.cluster.objects[INSTALLATION]["spec"])
    assert spec["netplugNetwork"]["cni"] == {"type": "Netplug", "ipam": {"type": "Netplug"}}
    assert spec["netplugNetwork"]["ipPools"] == cast("dict[str, Any]", SPEC["netplugNetwork"])["ipPools"]
    assert found.message("Progressing") == "the Installation gets the settings of the static manifest"


def test_an_installation_that_changed_meanwhile_is_read_again() -> None:
    found = Converting("a")
    found.cluster.objects[INSTALLATION]["metadata"]["resourceVersion"] = "1"  # type: ignore[index]
    loop = make_loop(found.cluster, found.pools)
    action = CompleteInstallation(copy.deepcopy(found.cluster.objects[INSTALLATION]))
    found.cluster.objects[INSTALLATION]["metadata"]["resourceVersion"] = "2"  # type: ignore[index]
    with pytest.raises(Unavailable, match="it has changed meanwhile"):
        loop.operator.actor.act(action, ClusterMode.V1)
    assert found.look() == ["replace Installation default", STATUS]


def test_nodes_move_one_by_one_and_the_status_counts_them() -> None:
    found = Converting("a", "b")
    found.look_until("apply Node b")
    assert found.labels() == ["pre-operator", "pre-operator"]
    assert found.message("Progressing") == "0 of 2 nodes have moved from the static manifest"
    for name in ("netplug-cni-plugin", "netplug-node"):
        assert found.bound_accounts(name) == {f"netplug-system/{name}", f"kube-system/{name}"}
    assert found.look() == [f"apply {STATIC_DAEMONSET_REF}"]
    assert found.look() == ["apply Node a"]
    assert found.labels() == ["leaving", "pre-operator"]
    assert found.look() == [STATUS]
    assert found.message("Progressing").endswith("; the pod of the static manifest on node a is ending")
    found.static.come_to_rest()
    assert found.look() == ["apply Node a", STATUS]
    assert found.look() == [STATUS]
    assert found.message("Progressing").endswith("the pod of netplug-node on node a is not ready yet")
    found.static.come_to_rest()
    assert found.look() == ["apply Node b", STATUS]
    found.finish()
    assert found.labels() == ["None", "None"]
    assert found.cluster.conditions()["Ready"][0] == "True"
    for name in ("netplug-cni-plugin", "netplug-node"):
        assert found.bound_accounts(name) == {f"netplug-system/{name}"}
    assert not {STATIC_ACCOUNT, STATIC_CONFIG, STATIC_DAEMONSET_REF} & found.cluster.objects.keys()
    assert not {STATIC_BUDGET_REF, STATIC_CONTROLLERS_REF} & found.cluster.objects.keys()
    assert CONTROLLERS_REF in found.cluster.objects
    assert (
        ObjectRef("rbac.authorization.k8s.io/v1", "Role", "netplug-kube-controllers", "kube-system")
        in found.cluster.objects
    )


def test_a_node_that_is_away_holds_the_others_that_work() -> None:
    found = Converting("a", "b", "c")
    found.static.dead.add("b")
    for pod in found.static.pods:
        pod.is_ready = pod.node != "b"
    for _ in range(20):
        found.look()
        found.static.come_to_rest()
    assert found.labels() == ["pre-operator", "leaving", "pre-operator"]
    assert found.message("Progressing").endswith("the pod of the static manifest on node b is ending")
    found.static.remove_node("b")
    found.finish()
    assert found.cluster.conditions()["Ready"][0] == "True"


@pytest.mark.parametrize("limit, at_once", [(2, 2), ("50%", 2), ("10%", 1)])
def test_as_many_nodes_at_a_time_as_an_update_takes(limit: object, at_once: int) -> None:
    spec = {**SPEC, "nodeUpdateStrategy": {"rollingUpdate": {"maxUnavailable": limit}}}
    found = Converting("a", "b", "c", "d", spec=spec)
    found.look_until(f"apply {STATIC_DAEMONSET_REF}")
    assert found.look() == [f"apply Node {name}" for name in ("a", "b", "c", "d")[:at_once]]


def test_the_old_daemonset_goes_when_every_new_pod_is_there() -> None:
    found = Converting("a")
    found.look_until(f"apply {STATIC_DAEMONSET_REF}")
    for _ in range(2):
        found.look()
        found.static.come_to_rest()
    found.cluster.objects[DAEMONSET_REF]["status"] = {}
    found.look()
    assert found.message("Progressing").endswith(
        "the DaemonSet netplug-node has not been read by the controller manager yet"
    )
    found.static.come_to_rest()
    assert found.look()[0] == f"delete {STATIC_DAEMONSET_REF}"


def test_an_old_daemonset_that_does_not_go_is_awaited() -> None:
    found = Converting("a")
    found.cluster.objects[STATIC_DAEMONSET_REF]["metadata"]["finalizers"] = ["somebody.example/x"]  # type: ignore[index]
    found.finish()
    assert found.message("Progressing").endswith("DaemonSet kube-system/netplug-node is being deleted")
    found.cluster.objects[STATIC_DAEMONSET_REF]["metadata"]["finalizers"] = []  # type: ignore[index]
    found.cluster.remove(STATIC_DAEMONSET_REF)
    found.finish()
    assert found.cluster.conditions()["Ready"][0] == "True"


def test_a_node_that_joins_meanwhile_gets_its_pod_from_the_installation() -> None:
    found = Converting("a", "b")
    found.look_until(f"apply {STATIC_DAEMONSET_REF}")
    found.static.add_node("c")
    assert found.look()[0] == "apply Node c"
    assert found.labels()[2] == "migrated"


def test_nodes_of_another_system_are_left_alone() -> None:
    found = Converting("a")
    found.static.add_node("w")
    found.cluster.objects[node_ref("w")]["metadata"]["labels"] = {"kubernetes.io/os": "windows"}  # type: ignore[index]
    found.finish()
    assert found.cluster.conditions()["Ready"][0] == "True"


def test_where_the_api_server_is_is_taken_over() -> None:
    found = Converting("a")
    data = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    metadata = {"name": STATIC_OVERRIDE_REF.name, "namespace": "kube-system", "uid": "x"}
    found.cluster.objects[STATIC_OVERRIDE_REF] = {"kind": "ConfigMap", "metadata": metadata, "data": data}
    found.finish()
    assert found.cluster.objects[OVERRIDE_REF]["data"] == data
    assert found.cluster.conditions()["Ready"][0] == "True"


def test_a_manifest_over_an_installation_is_no_conversion() -> None:
    scene = Scene.ready(SPEC)
    scene.cluster.objects[STATIC_DAEMONSET_REF] = {"metadata": {"name": "netplug-node", "uid": "static"}}
    assert scene.settle() == [STATUS]
    status, reason, message = scene.condition("Degraded")
    assert (status, reason) == ("True", "ResourceMigrationError")
    assert "has been applied over this installation" in message
    del scene.cluster.objects[STATIC_DAEMONSET_REF]
    scene.settle()
    assert scene.condition("Ready")[0] == "True"


def test_a_removal_leaves_the_rights_that_static_pods_use() -> None:
    scene = Scene.ready(SPEC)
    scene.cluster.objects[STATIC_DAEMONSET_REF] = {"metadata": {"name": "netplug-node", "uid": "static"}}
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    assert {ROLE, BINDING_REF} <= scene.cluster.objects.keys()
    assert ACCOUNT not in scene.cluster.objects
    assert INSTALLATION not in scene.cluster.objects
    assert "deletionTimestamp" in scene.cluster.objects[NAMESPACE_REF]["metadata"]  # type: ignore[operator]


def test_an_installation_that_is_deleted_half_way_gives_the_nodes_back() -> None:
    found = Converting("a", "b")
    found.look_until("apply Node a")
    found.look_until("apply Node a")
    found.look_until("apply Node a")
    found.static.come_to_rest()
    assert found.labels() == ["migrated", "pre-operator"]
    found.cluster.remove(INSTALLATION)
    assert found.look()[0] == f"delete {CONTROLLERS_REF}"
    assert found.look()[0] == f"delete {DAEMONSET_REF}"
    found.static.come_to_rest()
    assert found.look() == [f"apply {STATIC_DAEMONSET_REF}", STATUS]
    assert found.message("Progressing") == "the static manifest is being restored"
    assert found.look() == [STATUS]
    assert "the static manifest serves again: " in found.message("Progressing")
    found.static.come_to_rest()
    assert found.look() == ["apply Node a", "apply Node b", STATUS]
    assert found.message("Progressing") == "the labels of nodes are being removed"
    assert MIGRATION_LABEL not in str(found.cluster.objects[STATIC_DAEMONSET_REF])
    assert "OnDelete" not in str(found.cluster.objects[STATIC_DAEMONSET_REF])
    assert found.pod()["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert found.static.served() == ["a", "b"]


def test_a_manifest_without_a_node_selector_gets_none_back() -> None:
    found = Converting("a")
    del found.pod()["nodeSelector"]
    found.look_until(f"apply {STATIC_DAEMONSET_REF}")
    assert found.pod()["nodeSelector"] == {MIGRATION_LABEL: "pre-operator"}
    found.cluster.remove(INSTALLATION)
    found.look_until(f"apply {STATIC_DAEMONSET_REF}")
    assert not found.pod().get("nodeSelector")
