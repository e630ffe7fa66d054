"""``netplugctl`` on a real API server, in both groups of custom objects."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from itertools import count
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.flows.resources.outcome import Effect, ResourceExists
from netplug_core.flows.resources.write import create
from netplug_core.resources.codec import Manifest
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.faults import FaultyDatastore, LostReply
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_namespace,
    make_node,
    make_pod,
    open_store,
    without_definition,
)
from tests.harness.tool_stores import CRD_MODES

pytestmark = pytest.mark.apiserver

_NUMBERS = count()
_ROOT = Path(__file__).resolve().parents[2]
_POOL = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: main, labels: {tier: gold}}
spec: {cidr: 10.68.0.0/16, nodeSelector: "zone == 'a'"}
"""


class ToolProcess:
    """The tool with a configuration."""

    def __init__(self, server: ApiServer, mode: CrdMode) -> None:
        self.api_group = mode.value
        self._environ = {
            **os.environ,
            "DATASTORE_TYPE": "kubernetes",
            "KUBECONFIG": server.write_kubeconfig(),
            "NETPLUG_API_GROUP": mode.value,
        }

    def __call__(self, *arguments: str, stdin: str = "", status: int = 0) -> str:
        command = (sys.executable, "-m", "netplug_cli.wiring.ctl", *arguments)
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, cwd=_ROOT, env=self._environ, check=False
        )
        assert done.returncode == status, done
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr


@pytest.fixture(params=CRD_MODES, ids=lambda mode: mode.name)
def tool(request: pytest.FixtureRequest, api_server: ApiServer) -> ToolProcess:
    """The tool on an empty store."""
    mode: CrdMode = request.param
    install_definitions(api_server, mode)
    delete_custom_objects(api_server, mode)
    return ToolProcess(api_server, mode)


def test_pools_are_created_applied_shown_and_deleted(tool: ToolProcess) -> None:
    tool("create", "-f", "-", stdin=_POOL)
    assert "already exists" in tool("create", "-f", "-", stdin=_POOL, status=1)
    assert "10.68.0.0/16" in tool("get", "pools")
    shown = tool("get", "pool", "main", "-o", "yaml")
    assert "tier: gold" in shown
    assert "uid: " in shown
    assert "unchanged" in tool("apply", "-f", "-", stdin=_POOL)
    changed = _POOL.replace("nodeSelector", "disabled: true, nodeSelector")
    tool("apply", "-f", "-", stdin=changed)
    assert "disabled: true" in tool("get", "pool", "main", "-o", "yaml")
    assert "out of date" in tool("replace", "-f", "-", stdin=shown, status=1)
    other = _POOL.replace("10.68", "10.69")
    assert "CIDR cannot be modified" in tool("apply", "-f", "-", stdin=other, status=1)
    tool("delete", "pool", "main")
    assert "main" not in tool("get", "pools")


def test_the_configuration_is_set_and_nodes_are_the_clusters(tool: ToolProcess, api_server: ApiServer) -> None:
    tool("ipam", "configure", "--strictaffinity", "true")
    assert "strictAffinity: true" in tool("get", "ipamconfig", "default", "-o", "yaml")
    make_node(api_server, "tooled", labels={"zone": "a"})
    assert "tooled" in tool("get", "nodes")
    node = "apiVersion: projectnetplug.org/v3\nkind: Node\nmetadata: {name: fresh}\n"
    assert "the cluster's own nodes are the nodes" in tool("create", "-f", "-", stdin=node, status=1)
    assert "the cluster's own nodes are the nodes" in tool("delete", "node", "tooled", status=1)
    assert "Cluster Version" in tool("version")
    assert tool("ipam", "show")


def test_a_node_is_described_with_its_events(tool: ToolProcess, api_server: ApiServer) -> None:
    make_node(api_server, "described")
    assert tool("describe", "node", "described").endswith("Events:\n  <none>\n")
    about = {"apiVersion": "v1", "kind": "Node", "name": "described", "uid": "1"}
    for name, reason in (("described.1", "PluginsMissing"), ("described.2", "PluginsFound")):
        event = {
            "metadata": {"name": name},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": "portmap",
            "source": {"component": "netplug-node"},
            "lastTimestamp": f"2026-11-28T10:00:0{name[-1]}Z",
        }
        api_server.request("POST", "/api/v1/namespaces/default/events", event)
    shown = tool("describe", "node", "described").partition("Events:\n")[2].splitlines()
    assert [line.split()[2] for line in shown[1:]] == ["PluginsMissing", "PluginsFound"]


def test_profiles_are_the_clusters_namespaces_and_accounts(tool: ToolProcess, api_server: ApiServer) -> None:
    make_namespace(api_server, "tooled", labels={"team": "a"})
    assert "kns.tooled" in tool("get", "profiles")
    assert "pcns.team=a" in tool("get", "profile", "kns.tooled", "-o", "wide")
    assert "action: Allow" in tool("get", "profile", "projectnetplug-default-allow", "-o", "yaml")
    profile = "apiVersion: projectnetplug.org/v3\nkind: Profile\nmetadata: {name: mine}\n"
    assert "own namespaces and service accounts" in tool("create", "-f", "-", stdin=profile, status=1)
    assert "it is kept by netplug itself" in tool("delete", "profile", "projectnetplug-default-allow", status=1)


def test_a_policy_of_kubernetes_is_explained(tool: ToolProcess, api_server: ApiServer) -> None:
    namespace = make_namespace(api_server, f"policed-{uuid.uuid4().hex[:8]}")
    for name, address in (("client", "10.0.0.1"), ("web", "10.0.0.2"), ("other", "10.0.0.3")):
        annotations = {"cni.projectnetplug.org/podIP": f"{address}/32"}
        make_pod(api_server, namespace, name, node="worker-1", labels={"app": name}, annotations=annotations)
    rule = {"from": [{"podSelector": {"matchLabels": {"app": "client"}}}], "ports": [{"port": 80}]}
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [rule]}
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    api_server.create(path, {"metadata": {"name": "web"}, "spec": spec})
    client, web, other = (f"{namespace}/{name}" for name in ("client", "web", "other"))
    allowed = tool("policy", "explain", client, web)
    assert f"ingress is allowed by KubernetesNetworkPolicy {namespace}/web #0" in allowed
    assert "may not connect" in tool("policy", "explain", client, web, "--port", "81", status=1)
    assert "none of their rules matches" in tool("policy", "explain", other, web, status=1)
    assert "allowed" in tool("policy", "explain", web, other)
    assert f"KubernetesNetworkPolicy {namespace}/web  #0 Allow" in tool("policy", "show", web)


def test_a_label_of_the_cluster_is_refused_and_one_of_ours_is_kept(tool: ToolProcess, api_server: ApiServer) -> None:
    """A label of ours, hidden by one that Kubernetes got later, is there again once that is gone."""
    path = f"/api/v1/nodes/{make_node(api_server, f'labelled-{next(_NUMBERS)}')}"
    node, merge = path.rpartition("/")[2], "application/merge-patch+json"
    tool("label", "node", node, "zone=ours")
    api_server.request("PATCH", path, {"metadata": {"labels": {"zone": "a"}}}, content_type=merge)
    refused = tool("label", "node", node, "zone=b", "--overwrite", status=1)
    assert f"Node({node}) metadata.labels[zone]: 'b' is not accepted" in refused
    assert "label with the text 'a'; change it there" in refused
    assert "cannot remove label zone" in tool("label", "node", node, "zone", "--remove", status=1)
    removal = '{"metadata": {"labels": {"zone": null}}}'
    assert "cannot remove label zone" in tool("patch", "node", node, "-p", removal, status=1)
    tool("label", "node", node, "rack=1")
    manifest = f"apiVersion: projectnetplug.org/v3\nkind: Node\nmetadata: {{name: {node}, labels: {{rack: '2'}}}}\n"
    tool("apply", "-f", "-", stdin=manifest)
    assert "zone: a" in tool("get", "node", node, "-o", "yaml")
    api_server.request("PATCH", path, {"metadata": {"labels": {"zone": None}}}, content_type=merge)
    shown = tool("get", "node", node, "-o", "yaml")
    assert "zone: ours" in shown
    assert "rack: '2'" in shown


def test_a_creation_whose_reply_was_lost_recognises_its_own_object(tool: ToolProcess, api_server: ApiServer) -> None:
    clock = SystemClock()
    pace = Pace(clock=clock, deadline=Deadline.after(clock, 30), chance=lambda: 0.5)
    pool = IPPool.for_prefix(Prefix.parse("10.68.0.0/16"), name="main")
    with open_store(api_server, CrdMode.parse(tool.api_group)) as store:
        unlucky = FaultyDatastore(store, {1: LostReply()})
        made = create(unlucky, Manifest(resource=pool), pace=pace, new_uid=lambda: str(uuid.uuid4()))
        assert made.effect is Effect.CREATED
        with pytest.raises(ResourceExists):
            create(store, Manifest(resource=pool), pace=pace, new_uid=lambda: str(uuid.uuid4()))
    assert "attempt" not in tool("get", "pool", "main", "-o", "yaml")
    assert "unchanged" in tool("apply", "-f", "-", stdin=tool("get", "pool", "main", "-o", "yaml"))


@pytest.mark.parametrize("mode", CrdMode)
def test_a_cluster_may_have_the_definitions_of_an_older_release(
    api_server: ApiServer, tmp_path: Path, mode: CrdMode
) -> None:
    """What looks at all kinds goes on without those that it lacks; one that is asked for is named."""
    tool = ToolProcess(api_server, mode)
    with without_definition(api_server, mode, "kubecontrollersconfigurations"):
        tool("apply", "-f", "-", stdin=_POOL)
        assert "no problems" in tool("ipam", "check")
        hint = "are netplug's custom resource definitions installed?"
        assert hint in tool("get", "kubecontrollersconfigurations", status=1)
        assert hint in tool("support", "bundle", "-f", str(tmp_path / "bundle.tar.gz"), status=3)
