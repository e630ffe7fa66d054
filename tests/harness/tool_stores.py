"""The stores that tests of ``netplugctl`` run on, and users of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from netplug_backends.kubernetes.names import CrdMode
from tests.harness.local_stores import IS_DEEP
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions
from tests.harness.tool_user import ToolUser

__all__ = ["CRD_MODES", "SERVERS", "make_tool_user"]

CRD_MODES = tuple(CrdMode) if IS_DEEP else (CrdMode.V3,)
"""The forms of the definitions. By day, tests of what does not know them run on one; the store's own run on both."""

SERVERS = (
    pytest.param("etcdv3", marks=pytest.mark.etcd),
    *(pytest.param(mode, marks=pytest.mark.apiserver, id=f"kubernetes-{mode.name.lower()}") for mode in CRD_MODES),
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
