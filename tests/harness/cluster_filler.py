"""Fills a datastore and an API server with the objects of a large cluster, many in each transaction.

Values are encoded by the codecs of the product. Objects of Kubernetes itself are copies of one that the server made
and completed; they are written into the server's own etcd, as JSON, which it reads as well as its own form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from uuid import NAMESPACE_URL, uuid5

from attrs import field, frozen

from netplug_backends.etcdv3.client import EtcdClient
from netplug_backends.etcdv3.datastore import client_from_settings
from netplug_backends.etcdv3.layout import ETCD_JSON, LAYOUT
from netplug_backends.etcdv3.operations import Put, Txn
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.model import (
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
    host_owner,
)
from netplug_core.names import (
    STORED_ANNOTATIONS,
    WorkloadEndpointIdentifiers,
    endpoint_labels,
    handle_id,
    workload_endpoint_name,
)
from netplug_core.records import Key
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.node import Node as NodeResource
from netplug_core.resources.node import NodeSpec, OrchestratorReference, node_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.settings.model import DEFAULT_ANNOTATION_PREFIX, DatastoreSettings
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import make_namespace, make_node, make_pod

__all__ = ["BLOCK_LENGTH", "NAMESPACE", "POOL", "ClusterFiller"]

NAMESPACE = "production"
POOL = Prefix.parse("10.128.0.0/9")
BLOCK_LENGTH = 26

_BATCH = 100  # etcd takes 128 operations in one transaction
_UID = re.compile(r'"uid":"[0-9a-f]{8}')
_LABELS = {"app": "web", "pod-template-hash": "6d4cf56db6", "tier": "front"}
_CLOCK = SystemClock()


@frozen(kw_only=True)
class ClusterFiller:
    """A cluster of ``nodes`` nodes with ``pods_per_node`` pods each, all in one namespace.

    ``etcd`` is the datastore; None: the custom objects of ``server`` are.
    """

    server: ApiServer
    nodes: int
    pods_per_node: int
    etcd: EtcdCluster | None = None
    mode: CrdMode = CrdMode.V1
    created_ns: int = field(factory=_CLOCK.now_ns)

    @property
    def pods(self) -> int:
        """The number of pods."""
        return self.nodes * self.pods_per_node

    def node_name(self, node: int) -> str:
        """The name of a node."""
        return f"worker-{node:05}"

    def pod_name(self, node: int, pod: int) -> str:
        """The name of a pod."""
        return f"web-{node:05}-{pod:03}"

    def endpoint_name(self, node: int, pod: int) -> str:
        """The name of a pod's endpoint."""
        identity = WorkloadEndpointIdentifiers(
            node=self.node_name(node), orchestrator="k8s", pod=self.pod_name(node, pod), endpoint="eth0"
        )
        return workload_endpoint_name(identity)

    def handle(self, node: int, pod: int) -> str:
        """The handle of a pod's addresses."""
        return handle_id("k8s-pod-network", self._container(node, pod), "eth0")

    def address(self, node: int, pod: int) -> Address:
        """The address of a pod."""
        return self._block_prefix(node).nth(pod)

    def fill(self) -> None:
        """Write everything. The server has the definitions, and neither these nodes nor these pods."""
        make_namespace(self.server, NAMESPACE)
        with closing(_client(f"http://127.0.0.1:{self.server.etcd_port}")) as kubernetes:
            _write(kubernetes, self._kubernetes_objects())
            if self.etcd is None:
                _write(kubernetes, (self._custom_object(key, value) for key, value in self._allocations()))
        if self.etcd is not None:
            with closing(_client(self.etcd.endpoints[0])) as client:
                entries = (*self._allocations(), *self._endpoints())
                _write(client, (Put(LAYOUT.key(key), ETCD_JSON.encode(key, value)) for key, value in entries))

    # --- records of netplug -----------------------------------------------------------------------------------------

    def _allocations(self) -> Iterator[tuple[Key[object], object]]:
        """The pool, and the affinity, the block and the handles of each node."""
        spec = IPPoolSpec(prefix=POOL, block_length=BLOCK_LENGTH)
        yield ippool_key("main"), IPPool(metadata=Metadata(name="main"), spec=spec)
        for node in range(self.nodes):
            prefix, owner = self._block_prefix(node), host_owner(self.node_name(node))
            block = Block.new(prefix, owner=owner, now_ns=self.created_ns)
            for pod in range(self.pods_per_node):
                names = {"namespace": NAMESPACE, "node": self.node_name(node), "pod": self.pod_name(node, pod)}
                attribute = Attribute(handle=self.handle(node, pod), owner=tuple(sorted(names.items())))
                block = block.assign((Ordinal(pod),), attribute)
                yield handle_key(self.handle(node, pod)), Handle(blocks=((prefix, 1),))
            yield affinity_key(owner, prefix), Affinity(state=AffinityState.CONFIRMED)
            yield block_key(prefix), block

    def _endpoints(self) -> Iterator[tuple[Key[object], object]]:
        """The Nodes and the endpoints, which only an etcd has as records."""
        labels = endpoint_labels(
            namespace=NAMESPACE, orchestrator="k8s", service_account="web", workload=tuple(_LABELS.items())
        )
        for node in range(self.nodes):
            name = self.node_name(node)
            reference = OrchestratorReference(orchestrator="k8s", node_name=name)
            spec = NodeSpec(orchestrator_references=(reference,))
            yield node_key(name), NodeResource(metadata=Metadata(name=name), spec=spec)
            for pod in range(self.pods_per_node):
                pod_name = self.pod_name(node, pod)
                endpoint_name = self.endpoint_name(node, pod)
                metadata = Metadata(name=endpoint_name, namespace=NAMESPACE, labels=labels)
                endpoint = WorkloadEndpointSpec(
                    orchestrator="k8s",
                    node=name,
                    pod=pod_name,
                    endpoint="eth0",
                    container_id=self._container(node, pod),
                    service_account="web",
                    addresses=(self.address(node, pod),),
                    profiles=(f"kns.{NAMESPACE}", f"ksa.{NAMESPACE}.web"),
                    interface_name=f"net{node:05}{pod:03}",
                    mac="ee:ee:ee:ee:ee:ee",
                )
                key = WORKLOAD_ENDPOINT.key(NAMESPACE, endpoint_name)
                yield key, WorkloadEndpoint(metadata=metadata, spec=endpoint)

    def _block_prefix(self, node: int) -> Prefix:
        """One of four blocks of a /24, so that the address of a pod ends in its number."""
        return Prefix.parse(f"10.{128 + (node >> 8)}.{node & 255}.0/{BLOCK_LENGTH}")

    def _container(self, node: int, pod: int) -> str:
        return f"{node:05}{pod:03}" + "6d4cf56db6" * 5 + "6d4cf5"

    # --- objects of the API server ----------------------------------------------------------------------------------

    def _custom_object(self, key: Key[object], value: object) -> Put:
        mapping, mode = KIND_MAPPINGS[key.kind.name], self.mode
        found = mapping.encode(mode, key, value)
        given = found.get("metadata")
        name = mapping.name(key.path)
        metadata = {
            **(given if isinstance(given, dict) else {}),
            "name": name,
            "uid": _uid(key),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
        }
        body = {**found, "apiVersion": mode.value, "kind": mapping.object_kind[mode], "metadata": metadata}
        return Put(f"/registry/{mode.group}/{mapping.plural[mode]}/{name}".encode(), json.dumps(body).encode())

    def _kubernetes_objects(self) -> Iterator[Put]:
        """Copies of the first node and of its pods, each of which the server makes."""
        name = self.node_name(0)
        make_node(self.server, name, labels={"zone": "a"})
        machine = _text_of(self.server.get(f"/api/v1/nodes/{name}"))
        for node in range(1, self.nodes):
            text = _with_uid(machine, f"{node:08x}").replace(name, self.node_name(node))
            yield Put(f"/registry/minions/{self.node_name(node)}".encode(), text.encode())
        make_pod(self.server, NAMESPACE, self.pod_name(0, 0), node=name, labels=_LABELS)
        path, first = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.pod_name(0, 0)}", str(self.address(0, 0))
        status = {"phase": "Running", "podIP": first, "podIPs": [{"ip": first}], "hostIP": "192.0.2.1"}
        written = zip(STORED_ANNOTATIONS, (f"{first}/32", f"{first}/32", self._container(0, 0)), strict=True)
        annotations = {f"{DEFAULT_ANNOTATION_PREFIX}/{name}": value for name, value in written}
        change = {"metadata": {"annotations": annotations}, "status": status}
        self.server.request("PATCH", f"{path}/status", change, content_type="application/merge-patch+json")
        template = _text_of(self.server.get(path))
        for node in range(self.nodes):
            for pod in range(self.pods_per_node):
                pod_name = self.pod_name(node, pod)
                text = (
                    _with_uid(template, f"{node * self.pods_per_node + pod + 1:08x}")
                    .replace(self._container(0, 0), self._container(node, pod))
                    .replace(self.pod_name(0, 0), pod_name)
                    .replace(f'"{first}', f'"{self.address(node, pod)}')
                    .replace(name, self.node_name(node))
                )
                if (node, pod) != (0, 0):
                    yield Put(f"/registry/pods/{NAMESPACE}/{pod_name}".encode(), text.encode())


def _text_of(found: object) -> str:
    """An object as it is stored: its revision is that of its entry."""
    assert isinstance(found, dict)
    metadata = {name: value for name, value in found["metadata"].items() if name != "resourceVersion"}
    return json.dumps({**found, "metadata": metadata}, separators=(",", ":"))


def _with_uid(text: str, start: str) -> str:
    return _UID.sub(f'"uid":"{start}', text, count=1)


def _uid(key: Key[object]) -> str:
    return str(uuid5(NAMESPACE_URL, str(key)))


def _client(endpoint: str) -> EtcdClient:
    return client_from_settings(DatastoreSettings(type="etcdv3", etcd_endpoints=(endpoint,)), clock=_CLOCK)


def _write(client: EtcdClient, puts: Iterable[Put]) -> None:
    remaining = iter(puts)
    while batch := tuple(islice(remaining, _BATCH)):
        client.write(Txn(success=batch), deadline=Deadline.after(_CLOCK, 120.0))
