"""Where a node's plugin keeps its books in a test: a file of the node's own, a real etcd, a real API server.

A server runs outside the node, on the machine's loopback; the node reaches it at the same address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from attrs import frozen

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.layout import Mode
from netplug_core.datastore.interface import Atomicity
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from tests.integration.etcd_server import client_of, opened_etcd
from tests.integration.kube_bridge import bridged
from tests.integration.kube_cluster import (
    empty,
    install_definitions,
    install_role,
    make_namespace,
    make_node,
    make_pod,
    open_store,
)
from tests.integration.kube_server import ApiServer
from tests.integration.node import Conf, Node, Pod, Store

__all__ = ["Place", "everywhere", "opened_place"]

_NAMESPACE, _NODE = "places", "node-1"

everywhere = pytest.mark.parametrize(
    "place",
    [
        "sqlite",
        pytest.param("etcdv3", marks=pytest.mark.etcd),
        pytest.param("kubernetes", marks=pytest.mark.apiserver),
    ],
    indirect=True,
)
"""For a test that is to run on every one of them."""


@frozen(kw_only=True)
class Place:
    """A store with the two pools of the usual node, and how a runtime's calls come to use it.

    ``committed`` is the function of ours that returns when a write is done: in an ADD at least ``commits`` times.
    """

    name: str
    store: Store
    atomicity: Atomicity
    committed: str
    commits: int
    keys: Conf
    args: Callable[[str], str] = lambda _container: ""
    register: Callable[[Sequence[Pod]], None] = lambda _pods: None
    counts: Callable[[WorkloadEndpoint], bool] = lambda _endpoint: True

    def containers(self) -> list[str]:
        """Who has an endpoint."""
        return sorted(one.spec.container_id for one in self.store.endpoints().values() if self.counts(one))


@contextmanager
def opened_place(name: str, node: Node, find_server: Callable[[], ApiServer]) -> Iterator[Place]:
    """The one of that name. ``find_server`` starts an API server, if there is none yet."""
    if name == "sqlite":
        yield _sqlite(node)
        return
    with _etcd(node) if name == "etcdv3" else _kubernetes(node, find_server()) as place:
        place.store.add_pool("v4", "10.65.0.0/24")
        place.store.add_pool("v6", "fd65::/112")
        yield place


def _sqlite(node: Node) -> Place:
    """The node's own file."""
    return Place(
        name="sqlite",
        store=node.store,
        atomicity=Atomicity.ATOMIC,
        committed="SqliteDatastore._finish",
        commits=1,
        keys={},
    )


@contextmanager
def _etcd(node: Node) -> Iterator[Place]:
    """An etcd of one member."""
    with opened_etcd() as etcd, bridged(node, etcd.members[0].port):
        yield Place(
            name="etcdv3",
            store=Store(lambda: closing(EtcdDatastore(client_of(etcd, clock=SystemClock())))),
            atomicity=Atomicity.ATOMIC,
            committed="EtcdClient.write",
            commits=1,
            keys={"datastore_type": "etcdv3", "sqlite_path": None, "etcd_endpoints": etcd.endpoints[0]},
        )


@contextmanager
def _kubernetes(node: Node, server: ApiServer) -> Iterator[Place]:
    """An API server; each container is a pod there of the same name, and the plugin has the shipped rights."""
    install_definitions(server, Mode.V1)
    empty(server, Mode.V1)
    make_namespace(server, _NAMESPACE)
    make_node(server, _NODE)
    pods = f"/api/v1/namespaces/{_NAMESPACE}/pods"
    server.empty(pods)

    def register(made: Sequence[Pod]) -> None:
        for pod in made:
            make_pod(server, _NAMESPACE, pod.name, node=_NODE)

    kubeconfig = server.kubeconfig(install_role(server), name="places")
    with bridged(node, server.port):
        yield Place(
            name="kubernetes",
            store=Store(lambda: open_store(server, Mode.V1)),
            atomicity=Atomicity.ORDERED,
            committed="Client.ask",
            commits=3,
            keys={"datastore_type": "kubernetes", "sqlite_path": None, "kubernetes": {"kubeconfig": kubeconfig}},
            args=lambda container: f"IgnoreUnknown=1;K8S_POD_NAMESPACE={_NAMESPACE};K8S_POD_NAME={container}",
            register=register,
            counts=lambda endpoint: bool(endpoint.spec.addresses),  # without them it is a pod that merely exists
        )
    server.empty(pods)
