"""``netplugctl install apply``, ``status`` and ``validate --cluster`` on a real API server.

It has no controllers, so the tests write the status of the DaemonSet and the pods of the nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from netplug_backends.kubernetes.installing.cluster import KubernetesCluster
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.ctl.main import INTERRUPTED
from netplug_core.clock import Deadline
from netplug_core.installation.cluster import ApplyEffect, Ownership, Writing
from netplug_core.operator.state import ref_of
from tests.harness.charts import DEFAULT_OUTPUT, read_objects
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    delete_definition,
    install_definitions,
    install_operator_definitions,
    install_role,
    make_namespace,
    make_node,
)
from tests.harness.tool_user import CommandResult, ToolUser
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.apiserver

SYSTEM = "/api/v1/namespaces/netplug-system"
DAEMONSETS = "/apis/apps/v1/namespaces/netplug-system/daemonsets"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
INSTALLATIONS = "/apis/operator.projectnetplug.org/v1/installations"
COMPONENTS = "/apis/operator.projectnetplug.org/v1/flowlogapis"
CONTROLLERS = "/apis/apps/v1/namespaces/netplug-system/deployments/netplug-kube-controllers"
PODS = ("DaemonSet(netplug-system/netplug-node)", "Deployment(netplug-system/netplug-kube-controllers)")
STATIC = "/apis/apps/v1/namespaces/kube-system/daemonsets"
MERGE = "application/merge-patch+json"
HEAD = "apiVersion: operator.projectnetplug.org/v1\nkind: Installation\nmetadata: {name: default}\n"
SPEC = "spec: {netplugNetwork: {bgp: Disabled, ipPools: [{cidr: %s, encapsulation: VXLAN, natOutgoing: Disabled}]}}\n"
NODE = "installed-1"


@pytest.fixture
def server(api_server: ApiServer) -> Iterator[ApiServer]:
    """A server with definitions and a node, without pools, and without what other tests have installed."""
    install_definitions(api_server, CrdMode.V1)
    make_node(api_server, NODE, labels={"kubernetes.io/os": "linux"})
    for namespace in ("netplug-system", "kube-system"):
        make_namespace(api_server, namespace)
    _clear(api_server)
    yield api_server
    _clear(api_server)
    api_server.request("DELETE", f"/api/v1/nodes/{NODE}")


def _clear(server: ApiServer) -> None:
    for namespace in ("netplug-system", "kube-system"):
        for plural in ("daemonsets", "deployments"):
            server.delete_collection(f"/apis/apps/v1/namespaces/{namespace}/{plural}")
    for collection in (f"{SYSTEM}/pods", f"{SYSTEM}/configmaps", f"{RIGHTS}/namespaces/netplug-system/roles",
                       f"{RIGHTS}/namespaces/netplug-system/rolebindings"):  # fmt: skip
        server.delete_collection(collection)
    accounts = ("netplug-cni-plugin", "netplug-node", "netplug-kube-controllers")
    for kind, name in product(("clusterroles", "clusterrolebindings"), accounts):
        with suppress(RequestRefused):  # it is not there
            server.request("DELETE", f"{RIGHTS}/{kind}/{name}")
    for plural in ("rolebindings", "roles"):
        with suppress(RequestRefused):  # it is not there
            server.request("DELETE", f"{RIGHTS}/namespaces/kube-system/{plural}/netplug-kube-controllers")
    delete_custom_objects(server, CrdMode.V1)
    with suppress(RequestRefused):  # it is not there
        server.request("DELETE", f"{INSTALLATIONS}/default")


@pytest.fixture
def tool(server: ApiServer, tmp_path: Path) -> ToolUser:
    """A user with the administrator's rights. The server may serve the other group too, so it is named."""
    return ToolUser(tmp_path, _access(server.write_kubeconfig()))


def _access(kubeconfig: str) -> dict[str, object]:
    return {"datastoreType": "kubernetes", "kubeconfig": kubeconfig, "netplugAPIGroup": "crd.projectnetplug.org/v1"}


def install(tool: ToolUser, *options: str, cidr: str = "10.244.0.0/16") -> CommandResult:
    return tool.run_command("install", "apply", "-f", tool.file(HEAD + SPEC % cidr), *options)


def effects(result: CommandResult) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in result.out.splitlines())


def test_everything_is_applied_and_a_second_time_nothing_changes(tool: ToolUser, server: ApiServer) -> None:
    first = install(tool)
    assert first.status == 0, first
    names = list(effects(first))
    assert names[0] == "Namespace(netplug-system)"
    assert names[-3:] == ["ConfigMap(netplug-system/cni-config)", *PODS]
    assert names.index("definitions") < names.index("IPPool(default-ipv4-ippool)") < len(names) - 3
    assert effects(first)["DaemonSet(netplug-system/netplug-node)"] == "created"
    before = server.get(f"{DAEMONSETS}/netplug-node")
    second = install(tool)
    assert second.status == 0, second
    assert {effect for name, effect in effects(second).items() if name != "definitions"} == {"unchanged"}
    assert server.get(f"{DAEMONSETS}/netplug-node") == before


def test_a_pool_that_is_gone_from_the_list_is_deleted_at_the_end(tool: ToolUser) -> None:
    listed = "{{cidr: {}, name: {}, encapsulation: VXLAN, natOutgoing: Disabled}}"
    first, second = listed.format("10.244.0.0/16", "first"), listed.format("10.245.0.0/16", "second")
    both = tool.file(HEAD + f"spec: {{netplugNetwork: {{bgp: Disabled, ipPools: [{first}, {second}]}}}}\n")
    assert tool.run_command("install", "apply", "-f", both).status == 0
    one = tool.file(HEAD + f"spec: {{netplugNetwork: {{bgp: Disabled, ipPools: [{first}]}}}}\n")
    changed = tool.run_command("install", "apply", "-f", one)
    assert changed.status == 0, changed
    assert changed.out.splitlines()[-1] == "IPPool(second) deleted"


def test_names_are_those_of_the_objects(tool: ToolUser) -> None:
    result = install(tool, "-o", "name")
    assert result.status == 0, result
    names = result.out.splitlines()
    assert names[0] == "namespace/netplug-system"
    assert {"ippool/default-ipv4-ippool", "daemonset/netplug-node", "configmap/cni-config"} < set(names)
    steps = json.loads(install(tool, "-o", "json").out)["steps"]
    assert [step["name"] for step in steps if step["name"]] == [name for name in names if name[:7] != "ippool/"]


def test_a_dry_run_stores_nothing(tool: ToolUser, server: ApiServer) -> None:
    result = install(tool, "--dry-run", "--wait")
    assert result.status == 0, result
    assert "DaemonSet(netplug-system/netplug-node) created (dry run)" in result.out
    assert "IPPool(default-ipv4-ippool) create: the cluster has no pool (dry run)" in result.out
    with pytest.raises(RequestRefused):
        server.get(f"{DAEMONSETS}/netplug-node")


def test_fields_of_another_manager_are_kept_until_they_are_taken_over(tool: ToolUser, server: ApiServer) -> None:
    assert install(tool).status == 0
    change = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 3}}}}
    server.request("PATCH", f"{DAEMONSETS}/netplug-node?fieldManager=somebody", change, content_type=MERGE)
    refused = install(tool)
    assert refused.status == 4, refused
    field = ".spec.updateStrategy.rollingUpdate.maxUnavailable"
    assert f'DaemonSet(netplug-system/netplug-node) cannot be applied: {field}: conflict with "somebody"' in refused.err
    assert "; leave the fields to it, or take them over with --force-conflicts" in refused.err
    assert f"not done: {', '.join(PODS)}; the same command continues" in refused.err
    taken = install(tool, "--force-conflicts")
    assert taken.status == 0, taken
    assert effects(taken)["DaemonSet(netplug-system/netplug-node)"] == "changed"


def test_a_missing_right_ends_it_and_the_next_run_completes_it(tool: ToolUser, server: ApiServer) -> None:
    poor = ToolUser(tool.folder, _access(server.write_kubeconfig(_token_without_daemonsets(server), name="poor")))
    refused = install(poor)
    assert refused.status == 1, refused
    lines = refused.err.splitlines()
    assert 'cannot patch resource "daemonsets"' in lines[-2]
    assert lines[-2].endswith("; grant the user the verb patch on daemonsets.apps")
    count = len(refused.out.splitlines())
    assert lines[-1] == (
        f"netplugctl: {count} of {count + 2} are done; not done: {', '.join(PODS)}; the same command continues"
    )
    assert install(tool).status == 0


def _token_without_daemonsets(server: ApiServer, verbs: Sequence[str] = ("get",)) -> str:
    """Everything may be done but writing DaemonSets; of them only what is said."""
    name = "installer" if verbs else "poor-installer"
    rules = [
        *([{"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": [*verbs]}] if verbs else []),
        {
            "apiGroups": ["", "admissionregistration.k8s.io", "apiextensions.k8s.io",
                          "crd.projectnetplug.org", "networking.k8s.io",
                          "operator.projectnetplug.org", "rbac.authorization.k8s.io"],
            "resources": ["*"], "verbs": ["*"],
        },
        {"apiGroups": ["projectnetplug.org"], "resources": ["*"], "verbs": ["*"]},
    ]  # fmt: skip
    named = {"metadata": {"name": name}}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "netplug-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    server.create(f"{SYSTEM}/serviceaccounts", named)
    server.create(f"{RIGHTS}/clusterroles", {**named, "rules": rules})
    server.create(f"{RIGHTS}/clusterrolebindings", {**named, "roleRef": role, "subjects": [subject]})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    reply = server.create(f"{SYSTEM}/serviceaccounts/{name}/token", request)
    status = reply["status"]
    assert isinstance(status, dict)
    return str(status["token"])


def test_without_a_right_to_read_nothing_is_written(tool: ToolUser, server: ApiServer) -> None:
    poor = ToolUser(tool.folder, _access(server.write_kubeconfig(_token_without_daemonsets(server, []), name="poorer")))
    for command in (("apply", "-f", tool.file(HEAD + SPEC % "10.244.0.0/16")), ("status",)):
        refused = poor.run_command("install", *command)
        assert (refused.status, refused.out) == (1, ""), refused
        assert 'cannot get resource "daemonsets"' in refused.err
        assert refused.err.endswith("; grant the user the verb get on daemonsets.apps\n")


def test_a_cluster_with_a_static_manifest_is_left_alone(tool: ToolUser) -> None:
    assert _install_static(tool).status == 0
    result = install(tool)
    assert (result.status, result.out) == (2, "")
    assert result.err.endswith(
        "nothing is applied: DaemonSet kube-system/netplug-node is in the cluster: netplug is installed another way; "
        "apply that again, or delete what it has installed first\n"
    )


def test_a_static_manifest_changes_nothing_the_second_time(tool: ToolUser, server: ApiServer) -> None:
    first = _install_static(tool, "--set", "veth_mtu=9000")
    assert first.status == 0, first
    assert effects(first)["DaemonSet(kube-system/netplug-node)"] == "created"
    before = server.get(f"{STATIC}/netplug-node")
    second = _install_static(tool, "--set", "veth_mtu=9000")
    assert second.status == 0, second
    assert {effect for name, effect in effects(second).items() if name != "definitions"} == {"unchanged"}
    assert server.get(f"{STATIC}/netplug-node") == before
    third = _install_static(tool, "--set", "veth_mtu=1400")
    assert [name for name, effect in effects(third).items() if effect == "changed"] == [
        "ConfigMap(kube-system/netplug-config)"
    ]
    status, found = checks(tool)
    assert (status, found["pools"][1]) == (7, "none of 0 gives addresses to pods; add one with netplugctl apply")


def test_a_static_manifest_beside_an_installation_is_refused(tool: ToolUser) -> None:
    assert install(tool).status == 0
    result = _install_static(tool)
    assert (result.status, result.out) == (2, "")
    assert "nothing is applied: DaemonSet netplug-system/netplug-node is in the cluster" in result.err


def test_with_etcd_the_pools_are_those_of_the_etcd_of_the_tool(tool: ToolUser) -> None:
    endpoints = "etcd_endpoints=http://127.0.0.1:2379"
    installed = tool.run_command("install", "apply", "--method", "manifest-etcd", "--set", endpoints)
    assert installed.status == 0, installed
    status, found = checks(tool)
    assert status == 7
    assert "CRDs" not in found
    assert found["controllers"] == ("progressing", "kube-system: 0 of 1 pods available")
    assert found["pools"] == (
        "degraded",
        "DATASTORE_TYPE: 'kubernetes' is not accepted; the pools are in etcd; name it",
    )


def _install_static(tool: ToolUser, *options: str) -> CommandResult:
    return tool.run_command("install", "apply", "--method", "manifest-kdd", *options)


def test_an_installation_of_the_operator_is_left_alone(tool: ToolUser, server: ApiServer) -> None:
    install_operator_definitions(server)
    server.create(INSTALLATIONS, {"apiVersion": "operator.projectnetplug.org/v1", "kind": "Installation",
                                  "metadata": {"name": "default"}})  # fmt: skip
    for result in (install(tool), _install_static(tool)):
        assert (result.status, result.out) == (2, "")
        assert "nothing is applied: Installation default is in the cluster: the operator installs" in result.err


def test_a_daemonset_of_the_operator_is_left_alone(tool: ToolUser, server: ApiServer) -> None:
    assert install(tool).status == 0
    label = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "netplug-operator"}}}
    server.request("PATCH", f"{DAEMONSETS}/netplug-node", label, content_type=MERGE)
    result = install(tool)
    assert (result.status, result.out) == (2, "")
    assert "nothing is applied: DaemonSet netplug-system/netplug-node is in the cluster: the operator" in result.err


@pytest.mark.parametrize("is_method", [False, True])
def test_bad_input_is_refused_before_anything_is_written(tool: ToolUser, server: ApiServer, *, is_method: bool) -> None:
    bad = tool.file(HEAD + "spec: {netplugNetwork: {bgp: Perhaps}}\n")
    options = ("--method", "manifest-kdd", "--set", "mtu=1") if is_method else ("-f", bad)
    result = tool.run_command("install", "apply", *options)
    assert (result.status, result.out) == (2, "")
    assert ("--set mtu" if is_method else "Perhaps") in result.err
    for namespace in ("netplug-system", "kube-system"):
        assert server.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets")["items"] == []


def test_a_run_that_was_interrupted_is_completed(
    tool: ToolUser, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes after the definitions, and then one of them goes."""
    apply_object = KubernetesCluster.apply

    def apply_until_accounts(
        cluster: KubernetesCluster,
        wanted: Mapping[str, object],
        *,
        ownership: Ownership,
        writing: Writing,
        deadline: Deadline,
    ) -> ApplyEffect:
        if wanted["kind"] == "ServiceAccount":
            raise KeyboardInterrupt
        return apply_object(cluster, wanted, ownership=ownership, writing=writing, deadline=deadline)

    with monkeypatch.context() as patch:
        patch.setattr(KubernetesCluster, "apply", apply_until_accounts)
        result = install(tool)
    assert result.status == INTERRUPTED
    lines = result.err.splitlines()
    assert lines[-1] == "netplugctl: interrupted"
    assert "not done: ServiceAccount(netplug-system/netplug-cni-plugin), " in result.err
    assert "; the same command continues\n" in result.err
    pools = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ippools.crd.projectnetplug.org"
    delete_definition(server, "ippools.crd.projectnetplug.org")
    wait_until(lambda: not _is_there(server, pools), "the definition is gone")
    completed = install(tool)
    assert completed.status == 0, completed
    assert effects(completed)["IPPool(default-ipv4-ippool)"] == "created"
    assert _is_there(server, f"{DAEMONSETS}/netplug-node")


def _is_there(server: ApiServer, path: str) -> bool:
    try:
        server.get(path)
    except RequestRefused:
        return False
    return True


def test_addresses_of_services_are_no_pool(tool: ToolUser) -> None:
    """The server's range is 10.96.0.0/16."""
    file = tool.file(HEAD + SPEC % "10.96.0.0/14")
    assert tool.run_command("install", "validate", "-f", file).status == 0
    checked = tool.run_command("install", "validate", "--cluster", "-f", file)
    text = "Conflict: spec.netplugNetwork.ipPools[0].cidr: '10.96.0.0/14 and 10.96.0.0/16' is not accepted"
    assert (checked.status, checked.out) == (2, "")
    assert text in checked.err
    refused = install(tool, cidr="10.96.0.0/14")
    assert (refused.status, refused.out) == (2, "")
    assert text in refused.err


def test_a_new_pool_over_addresses_of_services_is_warned_of(tool: ToolUser) -> None:
    pool = "apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {name: over}\nspec: {cidr: 10.96.0.0/24}\n"
    made = tool.run_command("create", "-f", tool.file(pool))
    assert made.status == 0, made
    assert (
        "warning: IPPool(over): spec.cidr: 10.96.0.0/24: it has addresses of the cluster's services (10.96.0.0/16), so "
        "that pods with them are not reached; choose another range"
    ) in made.err
    assert tool.run_command("apply", "-f", tool.file(pool)).err == ""


def checks(tool: ToolUser) -> tuple[int, dict[str, tuple[str, str]]]:
    result = tool.run_command("install", "status", "-o", "json")
    found = json.loads(result.out)
    return result.status, {one["name"]: (one["condition"], one["detail"]) for one in found["checks"]}


def test_the_status_from_nothing_to_a_working_plugin_on_every_node(tool: ToolUser, server: ApiServer) -> None:
    status, found = checks(tool)
    assert (status, found["DaemonSet"][0]) == (7, "degraded")
    assert install(tool).status == 0
    assert checks(tool)[0] == 6
    pod = _make_pod(server, {"containerStatuses": [_container("ErrImagePull")]})
    _set_status(server, f"{DAEMONSETS}/netplug-node", _counts(server))
    status, found = checks(tool)
    assert status == 7
    see = f"see kubectl -n netplug-system describe pod {pod}"
    assert found[f"node {NODE}"] == (
        "degraded",
        f"pod {pod}: netplug-node: ErrImagePull of image a: no such image; {see}",
    )
    waiting = install(tool, "--wait", "--timeout", "1")
    assert waiting.status == 5
    assert f"node {NODE}: degraded: pod {pod}" in waiting.err
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": None}
    _set_status(server, f"{SYSTEM}/pods/{pod}", ready)
    status, found = checks(tool)
    assert (status, found["controllers"]) == (6, ("progressing", "netplug-system: 0 of 1 pods available"))
    controllers = server.get(CONTROLLERS)["metadata"]
    assert isinstance(controllers, dict)
    counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), 1)
    _set_status(server, CONTROLLERS, {**counts, "observedGeneration": controllers["generation"]})
    status, found = checks(tool)
    assert status == 0, found
    assert found["controllers"] == ("available", "netplug-system: 1 of 1 pods available")
    assert found["pools"] == ("available", "default-ipv4-ippool 10.244.0.0/16")
    assert install(tool, "--wait").out.splitlines()[-1] == "netplug works on every node"
    table = tool.run_command("install", "status").out.splitlines()
    assert table[0].split() == ["WHAT", "CONDITION", "DETAIL"]


def _container(reason: str) -> dict[str, object]:
    waiting = {"reason": reason, "message": "no such image"}
    fixed = {"name": "netplug-node", "image": "a", "imageID": "", "ready": False, "restartCount": 0}
    return {**fixed, "state": {"waiting": waiting}}


def _counts(server: ApiServer) -> dict[str, object]:
    metadata = server.get(f"{DAEMONSETS}/netplug-node")["metadata"]
    assert isinstance(metadata, dict)
    counts = dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"), 1)
    return {**counts, "numberReady": 1, "numberMisscheduled": 0, "observedGeneration": metadata["generation"]}


def _make_pod(server: ApiServer, status: Mapping[str, object]) -> str:
    name = "netplug-node-x"
    spec = {"nodeName": NODE, "containers": [{"name": "netplug-node", "image": "a"}]}
    server.create(f"{SYSTEM}/pods", {"metadata": {"name": name, "labels": {"k8s-app": "netplug-node"}}, "spec": spec})
    _set_status(server, f"{SYSTEM}/pods/{name}", status)
    return name


def _set_status(server: ApiServer, path: str, status: Mapping[str, object]) -> None:
    server.request("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)


def test_uninstalling_waits_until_the_operator_lets_the_installation_go(tool: ToolUser, server: ApiServer) -> None:
    install_operator_definitions(server)
    metadata = {"name": "default", "finalizers": ["operator.projectnetplug.org/operator-cleanup"]}
    head = {"apiVersion": "operator.projectnetplug.org/v1", "metadata": metadata}
    server.create(INSTALLATIONS, {**head, "kind": "Installation"})
    server.create(COMPONENTS, {**head, "kind": "FlowLogAPI", "metadata": {"name": "default"}})
    named = tool.run_command("uninstall", "cluster", "--timeout", "1", "-o", "name")
    assert (named.status, named.out) == (1, "installation/default\nflowlogapi/default\n")
    waiting = tool.run_command("uninstall", "cluster", "--timeout", "1")
    assert (waiting.status, waiting.out) == (1, "Installation default is being deleted\n")
    assert (
        "Installation default: still there after 1 s; the operator removes what it has installed first" in waiting.err
    )
    assert server.get(f"{INSTALLATIONS}/default")["metadata"]["deletionTimestamp"]  # type: ignore[index]
    server.request("PATCH", f"{INSTALLATIONS}/default", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert tool.run_command("uninstall", "cluster") == CommandResult(0, "there is no Installation\n", "")
    with pytest.raises(RequestRefused):
        server.get(f"{COMPONENTS}/default")


def test_the_account_of_the_job_of_the_chart_may_uninstall(server: ApiServer, tmp_path: Path) -> None:
    install_operator_definitions(server)
    make_namespace(server, "netplug-operator")
    hooks = [one for one in read_objects(DEFAULT_OUTPUT.read_text()) if ref_of(one).name == "netplug-uninstall"]
    token = install_role(server, objects=[one for one in hooks if one["kind"] != "Job"])
    tool = ToolUser(tmp_path, _access(server.write_kubeconfig(token, name="uninstall")))
    head = {"apiVersion": "operator.projectnetplug.org/v1", "metadata": {"name": "default"}}
    server.create(INSTALLATIONS, {**head, "kind": "Installation"})
    server.create(COMPONENTS, {**head, "kind": "FlowLogAPI"})
    result = tool.run_command("uninstall", "cluster")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "Installation default is being deleted\nFlowLogAPI default is being deleted\n"
        "there is no Installation any more\n"
    )
