"""``netplugctl`` on a real API server, in both groups of custom objects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netplug_backends.kubernetes.names import CrdMode
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions, make_namespace, make_node

pytestmark = pytest.mark.apiserver

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


@pytest.fixture(params=list(CrdMode), ids=lambda mode: mode.name)
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
    assert "Cluster Version" in tool("version")
    assert tool("ipam", "show")


def test_profiles_are_the_clusters_namespaces_and_accounts(tool: ToolProcess, api_server: ApiServer) -> None:
    make_namespace(api_server, "tooled", labels={"team": "a"})
    assert "kns.tooled" in tool("get", "profiles")
    assert "pcns.team=a" in tool("get", "profile", "kns.tooled", "-o", "wide")
    assert "action: Allow" in tool("get", "profile", "projectnetplug-default-allow", "-o", "yaml")
    profile = "apiVersion: projectnetplug.org/v3\nkind: Profile\nmetadata: {name: mine}\n"
    assert "own namespaces and service accounts" in tool("create", "-f", "-", stdin=profile, status=1)
    assert "it is kept by netplug itself" in tool("delete", "profile", "projectnetplug-default-allow", status=1)
