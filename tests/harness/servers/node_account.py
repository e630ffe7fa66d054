"""The service account of the node process on an API server, with the rights that ``docs/node.md`` gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.harness.node_process import ROOT
from tests.harness.servers.kube_apiserver import ApiServer

__all__ = ["ACCOUNTS", "NAMESPACE", "NODE_ACCOUNT", "install_node_account"]

NAMESPACE, NODE_ACCOUNT = "netplug-system", "netplug-node"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


def documented_role() -> Iterator[dict[str, object]]:
    """The objects of ``docs/node.md`` that give the node process its own rights."""
    text = (Path(ROOT) / "docs" / "node.md").read_text()
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        yield from yaml.safe_load_all(block)


def install_node_account(server: ApiServer) -> str:
    """Install the account of the node process; its token."""
    apply = {"content_type": "application/apply-patch+yaml"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NODE_ACCOUNT, "namespace": NAMESPACE}}
    query = "?fieldManager=tests&force=true"
    server.request("PATCH", f"{ACCOUNTS}/{NODE_ACCOUNT}{query}", account, **apply)
    rights = "/apis/rbac.authorization.k8s.io/v1"
    for found in documented_role():
        kind = str(found["kind"])
        folder = rights if kind.startswith("Cluster") else f"{rights}/namespaces/{NAMESPACE}"
        path = f"{folder}/{kind.lower()}s/{NODE_ACCOUNT}"
        server.request("PATCH", f"{path}{query}", found, **apply)
    status = server.create(f"{ACCOUNTS}/{NODE_ACCOUNT}/token", {"spec": {}})["status"]
    assert isinstance(status, dict)
    return str(status["token"])
