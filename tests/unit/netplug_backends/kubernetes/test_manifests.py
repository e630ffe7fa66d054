"""The shipped manifests match the tables, and grant no more than the plugin needs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import netplug_cli
from netplug_backends.kubernetes.installing.manifests import (
    definitions,
    etcd_plugin_role,
    node_role,
    operator_definitions,
    plugin_role,
    static_manifest,
)
from netplug_backends.kubernetes.kinds.schemas import SCHEMAS
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.installation.static import Method

MANIFESTS = Path(netplug_cli.__file__).parent / "manifests"


@pytest.mark.parametrize("mode", CrdMode)
def test_the_shipped_definitions_match_the_tables(mode: CrdMode) -> None:
    """``make manifests`` writes them."""
    folder = MANIFESTS / "crds" / mode.name.lower()
    wanted = dict(definitions(mode))
    assert sorted(path.stem for path in folder.iterdir()) == sorted(wanted)
    for plural, definition in wanted.items():
        assert yaml.safe_load((folder / f"{plural}.yaml").read_text()) == definition


def test_the_shipped_roles_match_the_tables() -> None:
    for name, role in (("cni-plugin", plugin_role()), ("node", node_role())):
        assert list(yaml.safe_load_all((MANIFESTS / "rbac" / f"{name}.yaml").read_text())) == list(role)


def test_the_node_process_may_do_what_its_node_and_its_network_need_and_nothing_else() -> None:
    _, role, _, cluster_role, _ = node_role()
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "verbs": ["create"],
            "resourceNames": ["netplug-cni-plugin"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    ]
    assert cluster_role["rules"] == [
        {
            "apiGroups": ["crd.projectnetplug.org", "projectnetplug.org"],
            "resources": ["clusterinformations"],
            "verbs": ["create", "get", "update"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "get", "update"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["crd.projectnetplug.org", "projectnetplug.org"],
            "resources": ["bgpconfigurations", "bgpfilters", "bgppeers", "ippools", "nodeconfigurations"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": ["crd.projectnetplug.org", "projectnetplug.org"],
            "resources": [
                "globalnetworkpolicies",
                "globalnetworksets",
                "hostendpoints",
                "networkpolicies",
                "networksets",
            ],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": [""], "resources": ["namespaces", "serviceaccounts"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["crd.projectnetplug.org", "projectnetplug.org"],
            "resources": ["blockaffinities", "ipamblocks"],
            "verbs": ["create", "delete", "get", "list", "update", "watch"],
        },
        {
            "apiGroups": ["crd.projectnetplug.org", "projectnetplug.org"],
            "resources": ["ipamhandles"],
            "verbs": ["create", "delete", "get", "update"],
        },
        {
            "apiGroups": ["crd.projectnetplug.org", "projectnetplug.org"],
            "resources": ["ipamconfigs", "ipamconfigurations", "ipreservations"],
            "verbs": ["get", "list"],
        },
    ]


def test_every_stored_kind_has_a_schema() -> None:
    assert sorted(SCHEMAS) == sorted(KIND_MAPPINGS)


def test_rights_that_the_plugin_never_gets() -> None:
    """The specification needs pods to be read (4, 5); the endpoint is stored in their status."""
    _, role, _ = plugin_role()
    rules = role["rules"]
    assert isinstance(rules, list)
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert not any(resource == "secrets" for resource, _ in granted)
    assert {verb for resource, verb in granted if resource == "pods"} == {"get", "list", "watch"}
    assert {verb for resource, verb in granted if resource == "nodes"} == {"get"}
    assert {verb for resource, verb in granted if resource == "pods/status"} == {"patch"}
    assert {verb for resource, verb in granted if resource == "clusterinformations"} == {"get", "list", "watch"}


def test_the_shipped_definitions_of_the_operator_match_the_tables() -> None:
    folder = MANIFESTS / "crds" / "operator"
    shipped = {path.stem: yaml.safe_load(path.read_text()) for path in folder.iterdir()}
    assert shipped == dict(operator_definitions())


def test_with_etcd_the_plugin_only_looks_up() -> None:
    """Check 67."""
    _, role, _ = etcd_plugin_role("kube-system")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["namespaces", "nodes", "pods"], "verbs": ["get"]}]


PODS = ("DaemonSet", "Deployment")


@pytest.mark.parametrize("method", list(Method))
def test_every_account_of_a_static_manifest_has_its_rights(method: Method) -> None:
    """Check 69: pods have accounts that exist, and each account a binding to a role that exists."""
    objects = list(static_manifest(method, version="1.2.3"))
    by_kind: dict[str, list[Any]] = {}
    for one in objects:
        by_kind.setdefault(str(one["kind"]), []).append(one)
    accounts = {one["metadata"]["name"] for one in by_kind["ServiceAccount"]}
    used = {each["spec"]["template"]["spec"]["serviceAccountName"] for kind in PODS for each in by_kind[kind]}
    assert used == {"netplug-node", "netplug-kube-controllers"}
    assert used <= accounts
    bound = set()
    for kind in ("Role", "ClusterRole"):
        names = {one["metadata"]["name"] for one in by_kind[kind]}
        bindings = by_kind[f"{kind}Binding"]
        assert {one["roleRef"]["name"] for one in bindings} == names
        subjects = [subject for one in bindings for subject in one["subjects"]]
        assert {(one["kind"], one["namespace"]) for one in subjects} == {("ServiceAccount", "kube-system")}
        bound |= {one["name"] for one in subjects}
    assert bound == accounts
    flannel = {"netplug-flannel"} if method is Method.KDD_FLANNEL else set()
    names = {one["metadata"]["name"] for one in by_kind["ClusterRole"]}
    assert names == {"netplug-cni-plugin", "netplug-node", "netplug-kube-controllers", *flannel}


@pytest.mark.parametrize("method", list(Method))
def test_definitions_come_first_and_only_for_the_orchestrators_datastore(method: Method) -> None:
    kinds = [one["kind"] for one in static_manifest(method, version="1.2.3")]
    count = 0 if method.has_etcd else len(dict(definitions(CrdMode.V1)))
    assert [kind == "CustomResourceDefinition" for kind in kinds] == [index < count for index in range(len(kinds))]
