"""Each store, opened empty for a test: memory in its three modes, sqlite, etcd, the API server in both modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.datastore.protocol import Datastore
from netplug_core.settings.model import DatastoreSettings
from tests.harness.local_stores import MEMORY_STORES
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions, open_store

__all__ = ["STORES", "open_empty_store"]

STORES = (
    *MEMORY_STORES,
    "sqlite",
    pytest.param("etcdv3", marks=pytest.mark.etcd),
    pytest.param("kubernetes-v1", marks=pytest.mark.apiserver),
    pytest.param("kubernetes-v3", marks=pytest.mark.apiserver),
)
_MODES = {"kubernetes-v1": CrdMode.V1, "kubernetes-v3": CrdMode.V3}


@contextmanager
def open_empty_store(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Datastore]:
    """The store of that name with nothing in it; servers are those of the fixtures ``etcd`` and ``api_server``."""
    clock = SystemClock()
    if name in MEMORY_STORES:
        with MEMORY_STORES[name](clock) as store:
            yield store
    elif name == "sqlite":
        with closing(SqliteDatastore(str(folder / "netplug.db"), clock=clock)) as store:
            yield store
    elif name == "etcdv3":
        cluster: EtcdCluster = request.getfixturevalue("etcd")
        delete_all_entries(cluster)
        with _etcd_store(cluster) as store:
            yield store
    else:
        server: ApiServer = request.getfixturevalue("api_server")
        install_definitions(server, _MODES[name])
        delete_custom_objects(server, _MODES[name])
        with open_store(server, _MODES[name]) as kept:
            yield kept


@contextmanager
def _etcd_store(cluster: EtcdCluster) -> Iterator[Datastore]:
    with closing(EtcdDatastore(make_client(cluster, clock=SystemClock(), settings=DatastoreSettings()))) as store:
        yield store
