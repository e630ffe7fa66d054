"""The stores that tests of ``netplugctl`` run on, and users of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from netplug_backends.kubernetes.names import CrdMode
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions
from tests.harness.tool_user import ToolUser

__all__ = ["SERVERS", "make_tool_user"]

SERVERS = (
    pytest.param("etcdv3", marks=pytest.mark.etcd),
    pytest.param(CrdMode.V1, marks=pytest.mark.apiserver, id="kubernetes-v1"),
    pytest.param(CrdMode.V3, marks=pytest.mark.apiserver, id="kubernetes-v3"),
)
"""The stores that need a server."""


def make_tool_user(request: pytest.FixtureRequest, folder: Path, store: str | CrdMode) -> ToolUser:
    """A user whose configuration leads to an empty store: ``sqlite``, ``etcdv3``, or an API server in a group."""
    if store == "sqlite":
        user = ToolUser(folder, {"datastoreType": "sqlite", "sqlitePath": str(folder / "netplug.db")})
        with user.session.for_creation().open_datastore():
            return user
    if store == "etcdv3":
        etcd: EtcdCluster = request.getfixturevalue("etcd")
        delete_all_entries(etcd)
        return ToolUser(folder, {"etcdEndpoints": ",".join(etcd.endpoints)})
    assert isinstance(store, CrdMode)
    server: ApiServer = request.getfixturevalue("api_server")
    install_definitions(server, store)
    delete_custom_objects(server, store)
    return ToolUser(folder, {"kubeconfig": server.write_kubeconfig(), "netplugAPIGroup": store.value})
