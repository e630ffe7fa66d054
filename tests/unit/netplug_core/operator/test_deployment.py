"""The operator as objects of a cluster: what refers to what, and which rights it has."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from netplug_core.installation.settings import NODE_IMAGE, image_reference
from netplug_core.operator.deployment import HEALTH_PORT, OPERATOR_NAMESPACE, default_image, render_operator
from netplug_core.operator.state import NAMESPACE_REF
from tests.harness.installations import resolved
from tests.harness.operator_cluster import SHIPPED

Right = tuple[str, str, str]
Object: TypeAlias = dict[str, Any]


def objects(*, manages_definitions: bool = True) -> list[Object]:
    found = render_operator(SHIPPED, image="example.org/node:v1", manages_definitions=manages_definitions)
    return [dict(one) for one in found]


def find(kind: str, name: str = "netplug-operator") -> Object:
    return next(one for one in objects() if (one["kind"], one["metadata"]["name"]) == (kind, name))


def rules(name: str = "netplug-operator", *, manages_definitions: bool = True) -> list[Object]:
    found = objects(manages_definitions=manages_definitions)
    return next(one["rules"] for one in found if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", name))


def rights(rule: Object) -> set[Right]:
    return {(group, of, verb) for group in rule["apiGroups"] for of in rule["resources"] for verb in rule["verbs"]}


def test_the_objects_in_their_order() -> None:
    assert [(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "")) for one in objects()] == [
        ("Namespace", "netplug-operator", ""),
        ("ServiceAccount", "netplug-operator", "netplug-operator"),
        ("ClusterRole", "netplug-operator", ""),
        ("ClusterRole", "netplug-operator-lease", ""),
        ("ClusterRoleBinding", "netplug-operator", ""),
        ("RoleBinding", "netplug-operator", "kube-system"),
        ("Deployment", "netplug-operator", "netplug-operator"),
    ]


def test_the_namespace_is_its_own_and_admits_pods_of_the_host_network() -> None:
    assert NAMESPACE_REF.name != OPERATOR_NAMESPACE  # which goes with an Installation
    assert find("Namespace")["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}


@pytest.mark.parametrize(
    "kind, role", [("ClusterRoleBinding", "netplug-operator"), ("RoleBinding", "netplug-operator-lease")]
)
def test_bindings_give_the_account_of_the_pod_its_roles(kind: str, role: str) -> None:
    binding, account = find(kind), find("ServiceAccount")["metadata"]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert find("ClusterRole", role)["rules"]


def test_the_pod_runs_before_there_is_a_network_and_as_nobody() -> None:
    deployment = find("Deployment")
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert pod["serviceAccountName"] == find("ServiceAccount")["metadata"]["name"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["image"] == "example.org/node:v1"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_dead_node_is_left_and_one_that_is_not_ready_is_not() -> None:
    """A pod that tolerates every taint stays bound to a node that does not answer."""
    tolerated = find("Deployment")["spec"]["template"]["spec"]["tolerations"]
    assert tolerated == [
        {"operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    ]


def test_probes_ask_the_port_of_the_command_line() -> None:
    (container,) = find("Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--manage-crds=true", f"--health-port={HEALTH_PORT}"]
    assert [port["containerPort"] for port in container["ports"]] == [HEALTH_PORT]
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"host": "127.0.0.1", "port": HEALTH_PORT, "path": path}


def test_the_image_is_that_of_the_nodes() -> None:
    assert default_image("1.2.3") == image_reference(resolved(), NODE_IMAGE, "1.2.3")


def test_it_has_every_right_that_it_gives() -> None:
    accounts = (*SHIPPED.plugin_accounts, *SHIPPED.node_accounts)
    given: list[Any] = [rule for account in accounts if "rules" in account for rule in account["rules"]]  # type: ignore[attr-defined]
    assert len(given) > 5
    assert [rule for rule in given if rule not in rules()] == []


def test_what_it_changes_is_named() -> None:
    """Of kinds that others use too, it may change its own objects alone, but for Events; the plugin changes pods.

    Nodes are labelled while they move from a static manifest, and node processes register their addresses.
    """
    unnamed = {right for rule in rules() if "resourceNames" not in rule for right in rights(rule)}
    changing = {(group, of) for group, of, verb in unnamed if verb in ("delete", "patch", "update")}
    own = {"crd.projectnetplug.org", "projectnetplug.org"}
    assert {of for group, of in changing if group not in own} == {"events", "nodes", "nodes/status", "pods/status"}


def test_definitions_are_never_deleted_and_without_managing_them_not_touched() -> None:
    def verbs(*, manages_definitions: bool) -> set[str]:
        every = {right for rule in rules(manages_definitions=manages_definitions) for right in rights(rule)}
        return {verb for _, of, verb in every if of == "customresourcedefinitions"}

    assert verbs(manages_definitions=True) == {"create", "get", "list", "patch", "watch"}
    assert verbs(manages_definitions=False) == set()


def test_of_leases_it_writes_one_and_takes_another_away() -> None:
    created, named, taken = rules("netplug-operator-lease")
    assert rights(created) == {("coordination.k8s.io", "leases", "create")}
    assert named["resourceNames"] == ["netplug-operator"]
    assert rights(named) == {("coordination.k8s.io", "leases", verb) for verb in ("get", "update")}
    assert taken["resourceNames"] == ["netplug-kube-controllers"]
    assert rights(taken) == {("coordination.k8s.io", "leases", verb) for verb in ("delete", "get")}


def test_the_installation_is_patched_by_its_name_alone() -> None:
    (rule,) = [rule for rule in rules() if "installations/status" in rule["resources"]]
    assert rule["resourceNames"] == ["default"]
    assert rule["verbs"] == ["patch"]


def test_of_components_only_the_status_is_written() -> None:
    plurals = {"apiservers", "flowlogapis", "flowlogviewers"}
    every = {right for rule in rules() for right in rights(rule) if right[1].partition("/")[0] in plurals}
    assert {(of.partition("/")[2], verb) for _, of, verb in every} == {
        *(("", verb) for verb in ("get", "list", "watch")),
        ("status", "patch"),
    }
