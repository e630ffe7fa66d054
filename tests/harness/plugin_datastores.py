"""The datastores that a node's plugin uses in a test: a file of the node, a real etcd, a real API server.

A server runs outside the node, on the machine's loopback; the node reaches it at the same address.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager

import pytest
from attrs import frozen

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.datastore.protocol import Atomicity
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import NetConfDict, NetnsNode, PodNamespace, StoreInspector
from tests.harness.servers.etcd import make_client, read_all_entries, start_etcd
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    install_role,
    make_namespace,
    make_node,
    make_pod,
    open_store,
)
from tests.harness.servers.port_forward import OutageMode, forward_port

__all__ = ["PluginDatastore", "on_every_atomicity", "on_every_datastore", "open_plugin_datastore"]

_ETCD_ENDPOINTS = b"/netplug/resources/v3/projectnetplug.org/workloadendpoints/"
_NAMESPACE, _NODE = "places", "node-1"
_CUT_HISTORY = ("--auto-compaction-mode=revision", "--auto-compaction-retention=10000")

_SQLITE, _ETCD, _KUBERNETES = (
    "sqlite",
    pytest.param("etcdv3", marks=pytest.mark.etcd),
    pytest.param("kubernetes", marks=pytest.mark.apiserver),
)
on_every_datastore = pytest.mark.parametrize("plugin_datastore", [_SQLITE, _ETCD, _KUBERNETES], indirect=True)
"""For a test that is to run on every one of them."""

on_every_atomicity = pytest.mark.parametrize(
    "plugin_datastore", [_SQLITE, *([_ETCD] if IS_DEEP else []), _KUBERNETES], indirect=True
)
"""For a test to which a commit of several records matters, and no server: etcd, as atomic as a file, by night."""


@frozen(kw_only=True)
class PluginDatastore:
    """A store with the two pools of the usual node, and how a runtime's calls come to use it.

    ``committed`` is the function of ours that returns when a write is done: in an ADD at least ``commits`` times.
    During ``outage`` the server is away. ``restart_ended`` starts a server that ended by itself, as a service manager
    does. ``endpoint_documents`` are the stored JSON documents of endpoints by
    ``namespace/name``; none where endpoints are pods.
    """

    name: str
    store: StoreInspector
    atomicity: Atomicity
    commit_function: str
    min_commits: int
    netconf_keys: NetConfDict
    make_cni_args: Callable[[str], str] = lambda _container: ""
    register_pods: Callable[[Sequence[PodNamespace]], None] = lambda _pods: None
    is_attached: Callable[[WorkloadEndpoint], bool] = lambda _endpoint: True
    outage: Callable[[OutageMode], AbstractContextManager[None]] | None = None
    restart_ended: Callable[[], None] = lambda: None
    endpoint_documents: Callable[[], dict[str, object]] = dict

    def attached_containers(self) -> list[str]:
        """Who has an endpoint."""
        return sorted(one.spec.container_id for one in self.store.endpoints().values() if self.is_attached(one))


@contextmanager
def open_plugin_datastore(
    name: str, node: NetnsNode, find_server: Callable[[], ApiServer]
) -> Iterator[PluginDatastore]:
    """The one of that name. ``find_server`` starts an API server, if there is none yet."""
    if name == "sqlite":
        yield _sqlite(node)
        return
    with _etcd(node) if name == "etcdv3" else _kubernetes(node, find_server()) as plugin_datastore:
        plugin_datastore.store.add_pool("v4", "10.65.0.0/24")
        plugin_datastore.store.add_pool("v6", "fd65::/112")
        yield plugin_datastore


def _sqlite(node: NetnsNode) -> PluginDatastore:
    """The node's own file."""
    return PluginDatastore(
        name="sqlite",
        store=node.store,
        atomicity=Atomicity.ATOMIC,
        commit_function="SqliteDatastore._commit_transaction",
        min_commits=1,
        netconf_keys={},
        endpoint_documents=lambda: _rows(node.database),
    )


def _rows(database: str) -> dict[str, object]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT path, value FROM record WHERE kind = 'WorkloadEndpoint'").fetchall()
    return {path.replace("\x1f", "/"): json.loads(value) for path, value in rows}


@contextmanager
def _etcd(node: NetnsNode) -> Iterator[PluginDatastore]:
    """An etcd of one member. It cuts its history, as in a cluster; otherwise a long test would fill it."""
    with start_etcd(extra=_CUT_HISTORY) as etcd, forward_port(node, etcd.members[0].port) as forward:
        yield PluginDatastore(
            name="etcdv3",
            store=StoreInspector(lambda: closing(EtcdDatastore(make_client(etcd, clock=SystemClock())))),
            atomicity=Atomicity.ATOMIC,
            commit_function="EtcdClient.write",
            min_commits=1,
            netconf_keys={"datastore_type": "etcdv3", "sqlite_path": None, "etcd_endpoints": etcd.endpoints[0]},
            outage=forward.outage,
            restart_ended=etcd.restart_ended,
            endpoint_documents=lambda: {
                entry.key.removeprefix(_ETCD_ENDPOINTS).decode(): json.loads(entry.value)
                for entry in read_all_entries(etcd)
                if entry.key.startswith(_ETCD_ENDPOINTS)
            },
        )


def _is_attached_pod(endpoint: WorkloadEndpoint) -> bool:
    """Without addresses it is a pod that merely exists; other tests on the server have other namespaces."""
    return endpoint.metadata.namespace == _NAMESPACE and bool(endpoint.spec.addresses)


@contextmanager
def _kubernetes(node: NetnsNode, server: ApiServer) -> Iterator[PluginDatastore]:
    """An API server; each container is a pod there of the same name, and the plugin has the shipped rights."""
    install_definitions(server, CrdMode.V1)
    delete_custom_objects(server, CrdMode.V1)
    make_namespace(server, _NAMESPACE)
    make_node(server, _NODE)
    pods = f"/api/v1/namespaces/{_NAMESPACE}/pods"
    server.delete_collection(pods)

    def register(pods: Sequence[PodNamespace]) -> None:
        for pod in pods:
            make_pod(server, _NAMESPACE, pod.name, node=_NODE)

    kubeconfig = server.write_kubeconfig(install_role(server), name="places")
    with forward_port(node, server.port) as forward:
        yield PluginDatastore(
            name="kubernetes",
            store=StoreInspector(lambda: open_store(server, CrdMode.V1)),
            atomicity=Atomicity.ORDERED,
            commit_function="ApiClient.send",
            min_commits=3,
            netconf_keys={
                "datastore_type": "kubernetes",
                "sqlite_path": None,
                "kubernetes": {"kubeconfig": kubeconfig},
            },
            make_cni_args=lambda container: f"IgnoreUnknown=1;K8S_POD_NAMESPACE={_NAMESPACE};K8S_POD_NAME={container}",
            register_pods=register,
            is_attached=_is_attached_pod,
            outage=forward.outage,
        )
    server.delete_collection(pods)
