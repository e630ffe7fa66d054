"""Pods as endpoints and nodes as nodes on a real API server: what is read, what is written, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
from attrs import evolve

from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_core.addressing import Address, InterfaceAddress
from netplug_core.errors import ConfigurationError, RequestError
from netplug_core.names import WorkloadEndpointIdentifiers, workload_endpoint_name
from netplug_core.records import (
    AlreadyExists,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    NotFound,
    NotSupported,
    Record,
    Revision,
    Update,
)
from netplug_core.resources.node import NODE, Node, NodeBGP, node_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    make_namespace,
    make_node,
    make_pod,
    open_client,
    open_store,
)
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

_NUMBERS = count()
_ADDRESSES = (Address.parse("10.65.0.7"), Address.parse("fd65::7"))


@pytest.fixture
def store(api_server: ApiServer) -> Iterator[KubernetesDatastore]:
    """A store on the server; pods and nodes need no definitions."""
    with open_store(api_server, CrdMode.V1) as opened:
        yield opened


@pytest.fixture
def namespace(api_server: ApiServer) -> Iterator[str]:
    """A namespace of the test's own, without pods at the end."""
    name = make_namespace(api_server, f"shop-{next(_NUMBERS)}", labels={"team": "a"}, annotations={"n": "v"})
    yield name
    api_server.delete_collection(f"/api/v1/namespaces/{name}/pods")


def endpoint_key(namespace: str, pod: str, *, node: str = "node-1", interface: str = "eth0") -> Key[WorkloadEndpoint]:
    identity = WorkloadEndpointIdentifiers(node=node, orchestrator="k8s", pod=pod, endpoint=interface)
    return WORKLOAD_ENDPOINT.key(namespace, workload_endpoint_name(identity))


def read(store: KubernetesDatastore, key: Key[WorkloadEndpoint]) -> Record[WorkloadEndpoint]:
    record = store.read([Get(key)], deadline=deadline_in()).find(key)
    assert record is not None
    return record


def filled(record: Record[WorkloadEndpoint]) -> WorkloadEndpoint:
    spec = evolve(record.value.spec, container_id="c0ffee", addresses=_ADDRESSES)
    return evolve(record.value, spec=spec)


def pod_annotations(server: ApiServer, namespace: str, pod: str) -> dict[str, str]:
    metadata = server.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]
    assert isinstance(metadata, dict)
    return dict(metadata.get("annotations", {}))


def test_s25_addresses_are_written_into_the_pod_and_emptied(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    make_pod(api_server, namespace, "web-0", node="node-1", annotations={"mine": "stays"})
    key = endpoint_key(namespace, "web-0")
    before = read(store, key)
    assert before.value.spec.addresses == ()
    (written,) = store.commit([Update(key, filled(before), before.revision)], deadline=deadline_in())
    assert pod_annotations(api_server, namespace, "web-0") == {
        "mine": "stays",
        "cni.projectnetplug.org/podIP": "10.65.0.7/32",
        "cni.projectnetplug.org/podIPs": "10.65.0.7/32,fd65::7/128",
        "cni.projectnetplug.org/containerID": "c0ffee",
    }
    after = read(store, key)
    assert after.revision == written
    assert (after.value.spec.addresses, after.value.spec.container_id) == (_ADDRESSES, "c0ffee")
    store.commit([Delete(key, after.revision)], deadline=deadline_in())
    assert pod_annotations(api_server, namespace, "web-0") == {
        "mine": "stays",
        "cni.projectnetplug.org/podIP": "",
        "cni.projectnetplug.org/podIPs": "",
        "cni.projectnetplug.org/containerID": "c0ffee",
    }
    assert read(store, key).value.spec.addresses == ()


def test_another_prefix_of_annotations_is_written_and_read(api_server: ApiServer, namespace: str) -> None:
    make_pod(api_server, namespace, "web-0", node="node-1", annotations={"cni.projectnetplug.org/podIP": "10.9.9.9/32"})
    key = endpoint_key(namespace, "web-0")
    store = KubernetesDatastore(open_client(api_server), mode=CrdMode.V1, annotation_prefix="example.org")
    before = read(store, key)
    assert before.value.spec.addresses == ()
    store.commit([Update(key, filled(before), before.revision)], deadline=deadline_in())
    after = read(store, key)
    assert after.value.spec.addresses == _ADDRESSES
    store.commit([Delete(key, after.revision)], deadline=deadline_in())
    assert read(store, key).value.spec.addresses == ()
    store.close()
    assert pod_annotations(api_server, namespace, "web-0") == {
        "cni.projectnetplug.org/podIP": "10.9.9.9/32",
        "example.org/podIP": "",
        "example.org/podIPs": "",
        "example.org/containerID": "c0ffee",
    }


def test_an_update_does_not_mind_that_the_kubelet_changed_the_pod(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    """Trap 18: the patch names the pod's identity and not its version; a delete names both."""
    make_pod(api_server, namespace, "web-0", node="node-1")
    key = endpoint_key(namespace, "web-0")
    before = read(store, key)
    status = {"status": {"phase": "Running"}}
    path = f"/api/v1/namespaces/{namespace}/pods/web-0/status"
    api_server.request("PATCH", path, status, content_type="application/merge-patch+json")
    with pytest.raises(Conflict) as refusal:
        store.commit([Delete(key, before.revision)], deadline=deadline_in())
    assert refusal.value.current is not None
    store.commit([Update(key, filled(before), before.revision)], deadline=deadline_in())
    assert read(store, key).value.spec.addresses == _ADDRESSES


def test_a_pod_of_the_same_name_is_another_pod(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    make_pod(api_server, namespace, "web-0", node="node-1")
    key = endpoint_key(namespace, "web-0")
    before = read(store, key)
    api_server.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/web-0?gracePeriodSeconds=0")
    for write in (Update(key, filled(before), before.revision), Delete(key, before.revision)):
        with pytest.raises(NotFound):
            store.commit([write], deadline=deadline_in())
    make_pod(api_server, namespace, "web-0", node="node-1")
    for write in (Update(key, filled(before), before.revision), Delete(key, before.revision)):
        with pytest.raises(Conflict) as refusal:
            store.commit([write], deadline=deadline_in())
        assert refusal.value.current == read(store, key)
    assert pod_annotations(api_server, namespace, "web-0") == {}


def test_a_pod_cannot_be_made_an_endpoint_twice_nor_without_a_pod(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    key = endpoint_key(namespace, "web-0")
    make_pod(api_server, namespace, "web-0", node="node-1")
    value = read(store, key).value
    with pytest.raises(AlreadyExists) as refusal:
        store.commit([Create(key, value)], deadline=deadline_in())
    assert refusal.value.current == read(store, key)
    gone = endpoint_key(namespace, "gone")
    with pytest.raises(RequestError, match=f"pod {namespace}/gone, which .* does not exist"):
        store.commit([Create(gone, evolve(value, spec=evolve(value.spec, pod="gone")))], deadline=deadline_in())
    elsewhere = endpoint_key(namespace, "web-0", node="node-2")
    with pytest.raises(ConfigurationError, match="is on node 'node-1': nodename must be that"):
        store.commit([Create(elsewhere, evolve(value, spec=evolve(value.spec, node="node-2")))], deadline=deadline_in())
    second = endpoint_key(namespace, "web-0", interface="net1")
    assert store.read([Get(second)], deadline=deadline_in()).find(second) is None
    with pytest.raises(NotSupported, match="eth0 only"):
        store.commit([Create(second, evolve(value, spec=evolve(value.spec, endpoint="net1")))], deadline=deadline_in())
    with pytest.raises(ConfigurationError, match="K8S_POD_NAMESPACE and K8S_POD_NAME"):
        store.commit(
            [Create(second, evolve(value, spec=evolve(value.spec, orchestrator="cni")))], deadline=deadline_in()
        )


def test_a_pod_with_the_longest_names_is_found(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    name, node = "p-" * 100 + "end", "n-" * 100 + "end"
    make_pod(api_server, namespace, name, node=node)
    key = endpoint_key(namespace, name, node=node)
    record = read(store, key)
    assert record.value.spec.pod == name
    store.commit([Update(key, filled(record), record.revision)], deadline=deadline_in())
    assert read(store, key).value.spec.addresses == _ADDRESSES


def test_a_list_and_a_watch_show_endpoints_only(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    query = List(WORKLOAD_ENDPOINT, (namespace,))
    snapshot = store.read([query], deadline=deadline_in())
    assert snapshot.list(query) == ()
    make_pod(api_server, namespace, "web-1", node="node-1")
    make_pod(api_server, namespace, "web-0", node="node-1")
    host = {"containers": [{"name": "main", "image": "none"}], "hostNetwork": True, "nodeName": "node-1"}
    api_server.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "host"}, "spec": host})
    waiting = {"containers": [{"name": "main", "image": "none"}]}
    api_server.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "later"}, "spec": waiting})
    listed = store.read([query], deadline=deadline_in()).list(query)
    keys = [endpoint_key(namespace, "web-0"), endpoint_key(namespace, "web-1")]
    assert [record.key for record in listed] == keys
    api_server.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/web-1?gracePeriodSeconds=0")
    start: dict[Kind[object], Revision] = {WORKLOAD_ENDPOINT: snapshot.revision(WORKLOAD_ENDPOINT)}
    told = [(change.key, change.value is None) for change in islice(store.watch(start, deadline=deadline_in(3)), 4)]
    assert told[:2] == [(keys[1], False), (keys[0], False)]
    assert told[-1] == (keys[1], True), "one between may say that it is going"


def test_nodes_are_read_and_keep_what_netplug_knows_of_them(api_server: ApiServer, store: KubernetesDatastore) -> None:
    """Trap 17: the status subresource, under the version that was read."""
    name = f"machine-{next(_NUMBERS)}"
    make_node(api_server, name, labels={"zone": "a"}, annotations={"mine": "stays"})
    key = node_key(name)
    record = store.read([Get(key)], deadline=deadline_in()).find(key)
    assert record is not None
    assert dict(record.value.metadata.labels)["zone"] == "a"
    labels = tuple(sorted({**dict(record.value.metadata.labels), "ours": "b"}.items()))
    bgp = NodeBGP(as_number=64512, ipv4_address=InterfaceAddress.parse("172.17.0.10/24"))
    spec = evolve(record.value.spec, bgp=bgp)
    wanted: Node = evolve(record.value, metadata=evolve(record.value.metadata, labels=labels), spec=spec)
    store.commit([Update(key, wanted, record.revision)], deadline=deadline_in())
    after = store.read([Get(key), List(NODE)], deadline=deadline_in()).find(key)
    assert after is not None
    assert after.value == wanted
    metadata = api_server.get(f"/api/v1/nodes/{name}")["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["labels"]["zone"] == "a"
    assert "ours" not in metadata["labels"]
    assert metadata["annotations"]["mine"] == "stays"
    assert metadata["annotations"]["projectnetplug.org/ASNumber"] == "64512"
    with pytest.raises(Conflict):
        store.commit([Update(key, wanted, record.revision)], deadline=deadline_in())
    for write in (Create(key, wanted), Delete(key, after.revision)):
        with pytest.raises(NotSupported):
            store.commit([write], deadline=deadline_in())
    absent = node_key("nowhere")
    with pytest.raises(NotFound):
        store.commit([Update(absent, wanted, record.revision)], deadline=deadline_in())


def test_nodes_are_listed_and_watched(api_server: ApiServer, store: KubernetesDatastore) -> None:
    before = store.read([List(NODE)], deadline=deadline_in())
    name = make_node(api_server, f"machine-{next(_NUMBERS)}")
    one = List(NODE, (name,))
    assert [record.key for record in store.read([one], deadline=deadline_in()).list(one)] == [node_key(name)]
    api_server.request("DELETE", f"/api/v1/nodes/{name}")
    start: dict[Kind[object], Revision] = {NODE: before.revision(NODE)}
    told = [(change.key, change.value is None) for change in islice(store.watch(start, deadline=deadline_in()), 2)]
    assert told == [(node_key(name), False), (node_key(name), True)]


def test_the_orchestrator_has_pods_namespaces_and_nodes(api_server: ApiServer, namespace: str) -> None:
    node = make_node(api_server, f"machine-{next(_NUMBERS)}", labels={"zone": "a"})
    make_pod(api_server, namespace, "web-0", node=node, labels={"app": "web"}, annotations={"k": "v"})
    client = open_client(api_server)
    orchestrator = KubernetesOrchestrator(client)
    pod = orchestrator.find_pod(namespace, "web-0", deadline=deadline_in())
    assert pod is not None
    assert (pod.node, pod.labels, pod.annotations) == (node, (("app", "web"),), (("k", "v"),))
    assert [port.name for port in pod.ports] == ["http"]
    assert orchestrator.find_pod(namespace, "web-9", deadline=deadline_in()) is None
    found = orchestrator.find_namespace(namespace, deadline=deadline_in())
    assert found is not None
    assert dict(found.labels)["team"] == "a"
    assert orchestrator.find_namespace("nowhere", deadline=deadline_in()) is None
    machine = orchestrator.find_node(node, deadline=deadline_in())
    assert machine is not None
    assert dict(machine.labels)["zone"] == "a"
    assert orchestrator.find_node("nowhere", deadline=deadline_in()) is None
    orchestrator.close()
