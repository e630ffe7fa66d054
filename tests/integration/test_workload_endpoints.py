"""The endpoint that an ADD stores, in full, in the form of every datastore.

The numbers are those of the black-box checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from netplug_core.records import List
from netplug_core.resources.profile import PROFILE
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.pod_cluster import NAMESPACE, PodCluster, cni_args, on_every_pod_datastore, open_pod_cluster
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.netns

POLICY = {"policy": {"type": "k8s"}}
PORTS = [
    {"name": "anamedport", "protocol": "TCP", "port": 555, "hostPort": 0, "hostIP": ""},
    {"name": "", "protocol": "UDP", "port": 53, "hostPort": 5353, "hostIP": "192.0.2.2"},
    {"name": "init", "protocol": "TCP", "port": 9, "hostPort": 0, "hostIP": ""},
]
"""What the endpoint says of the pod's ports."""
ASKED = {("get", "pods"), ("get", "namespaces"), ("get", "nodes"), ("patch", "pods/status")}
"""All that an ADD may ask of an API server about pods, namespaces and nodes: it lists and watches none of them."""


@pytest.fixture
def cluster(
    node: NetnsNode, runtime: CNIRuntime, api_server: ApiServer, plugin_datastore: PluginDatastore
) -> Iterator[PodCluster]:
    with open_pod_cluster(node, runtime, api_server, plugin_datastore) as opened:
        yield opened


def make_pod(cluster: PodCluster, name: str = "") -> PodNamespace:
    """A pod with everything that an endpoint copies, and more."""
    pod = cluster.node.make_pod()
    body = {
        "metadata": {
            "name": name or pod.name,
            "generateName": "web-",
            "labels": {"app": "x", "projectnetplug.org/orchestrator": "evil"},
        },
        "spec": {
            "nodeName": "node-1",
            "serviceAccountName": "default",
            "initContainers": [{"name": "i", "image": "none", "ports": [{"name": "init", "containerPort": 9}]}],
            "containers": [
                {
                    "name": "c",
                    "image": "none",
                    "ports": [
                        {"name": "anamedport", "containerPort": 555},
                        {"containerPort": 80},
                        {"containerPort": 53, "protocol": "UDP", "hostPort": 5353, "hostIP": "192.0.2.2"},
                    ],
                }
            ],
        },
    }
    cluster.server.create(f"/api/v1/namespaces/{NAMESPACE}/pods", body)
    return pod


def mac_of(node: NetnsNode, pod: PodNamespace) -> object:
    return node.links(pod)["eth0"]["address"]


def host_ends(node: NetnsNode) -> list[str]:
    return [name for name in node.links() if name.startswith("netp")]


def split_times(document: object) -> tuple[dict[str, object], dict[str, object]]:
    """A stored document without uid and creation time, and those two."""
    assert isinstance(document, dict)
    metadata = dict(document["metadata"])
    made = {name: metadata.pop(name) for name in ("uid", "creationTimestamp")}
    return {**document, "metadata": metadata}, made


def assert_made(made: Mapping[str, object]) -> None:
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(made["uid"]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(made["creationTimestamp"]))


@pytest.mark.parametrize("plugin_datastore", ["sqlite", pytest.param("etcdv3", marks=pytest.mark.etcd)], indirect=True)
def test_checks_39_and_40_the_endpoint_of_a_container_without_a_pod(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, plugin_datastore: PluginDatastore
) -> None:
    """The profile that it names is not written: an ADD needs none."""
    conf = runtime.make_netconf(**plugin_datastore.netconf_keys)
    added = runtime.add(conf, pod, CNI_CONTAINERID="abc123")
    documents = plugin_datastore.endpoint_documents()
    assert set(documents) == {"default/node--1-cni-abc123-eth0"}
    document, made = split_times(documents["default/node--1-cni-abc123-eth0"])
    assert document == {
        "kind": "WorkloadEndpoint",
        "apiVersion": "projectnetplug.org/v3",
        "metadata": {
            "name": "node--1-cni-abc123-eth0",
            "namespace": "default",
            "labels": {"projectnetplug.org/namespace": "default", "projectnetplug.org/orchestrator": "cni"},
        },
        "spec": {
            "orchestrator": "cni",
            "node": "node-1",
            "containerID": "abc123",
            "endpoint": "eth0",
            "ipNetworks": [f"{added.addresses[0]}/32"],
            "profiles": ["net1"],
            "interfaceName": host_ends(node)[0],
            "mac": mac_of(node, pod),
        },
    }
    assert_made(made)
    with plugin_datastore.store.open() as store:
        assert store.read([List(PROFILE)], deadline=deadline_in()).list(List(PROFILE)) == ()
    runtime.delete(conf, pod, CNI_CONTAINERID="abc123")
    assert plugin_datastore.endpoint_documents() == {}


@pytest.mark.parametrize("plugin_datastore", ["sqlite", pytest.param("etcdv3", marks=pytest.mark.etcd)], indirect=True)
def test_check_50_labels_of_mesos(runtime: CNIRuntime, pod: PodNamespace, plugin_datastore: PluginDatastore) -> None:
    labels = [{"key": "DCOS_SPACE", "value": "/a/b/c"}, {"key": "k", "value": "v"}]
    plain = runtime.make_netconf(**plugin_datastore.netconf_keys)
    conf = {**plain, "args": {"org.apache.mesos": {"network_info": {"labels": {"labels": labels}}}}}
    runtime.add(conf, pod, CNI_CONTAINERID="abc123")
    document, _made = split_times(plugin_datastore.endpoint_documents()["default/node--1-cni-abc123-eth0"])
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["labels"] == {
        "DCOS_SPACE": "a.b.c",
        "k": "v",
        "projectnetplug.org/namespace": "default",
        "projectnetplug.org/orchestrator": "cni",
    }
    runtime.delete(plain, pod, CNI_CONTAINERID="abc123")
    assert plugin_datastore.endpoint_documents() == {}


POD_LABELS = {
    "app": "x",
    "projectnetplug.org/namespace": NAMESPACE,
    "projectnetplug.org/orchestrator": "k8s",
    "projectnetplug.org/serviceaccount": "default",
}
POD_PROFILES = [f"kns.{NAMESPACE}", f"ksa.{NAMESPACE}.default"]


def endpoint_name(pod: PodNamespace) -> str:
    return f"node--1-k8s-{pod.name.replace('-', '--')}-eth0"


def assert_endpoint_read(cluster: PodCluster, pod: PodNamespace) -> None:
    """What the datastore gives as the pod's endpoint, the same in each form in which it is stored."""
    stored = cluster.datastore.store.endpoints()[f"{NAMESPACE}/{endpoint_name(pod)}"]
    assert (dict(stored.metadata.labels), stored.metadata.generate_name) == (POD_LABELS, "web-")
    assert (stored.spec.service_account, list(stored.spec.profiles)) == ("default", POD_PROFILES)
    assert [(port.name, port.protocol, port.port, port.host_port, port.host_ip) for port in stored.spec.ports] == [
        tuple(port.values()) for port in PORTS
    ]


def assert_annotations_written(cluster: PodCluster, pod: PodNamespace, networks: list[str]) -> None:
    own = cluster.server.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.name}")["metadata"]
    assert isinstance(own, dict)
    written = {"podIP": networks[0], "podIPs": ",".join(networks), "containerID": pod.name}
    assert own["annotations"] == {f"cni.projectnetplug.org/{key}": text for key, text in written.items()}


def assert_document_written(cluster: PodCluster, pod: PodNamespace, networks: list[str]) -> None:
    name = endpoint_name(pod)
    document, made = split_times(cluster.datastore.endpoint_documents()[f"{NAMESPACE}/{name}"])
    assert document == {
        "kind": "WorkloadEndpoint",
        "apiVersion": "projectnetplug.org/v3",
        "metadata": {"name": name, "generateName": "web-", "namespace": NAMESPACE, "labels": POD_LABELS},
        "spec": {
            "orchestrator": "k8s",
            "node": "node-1",
            "containerID": pod.name,
            "pod": pod.name,
            "endpoint": "eth0",
            "serviceAccountName": "default",
            "ipNetworks": networks,
            "profiles": POD_PROFILES,
            "interfaceName": host_ends(cluster.node)[0],
            "mac": mac_of(cluster.node, pod),
            "ports": [{key: value for key, value in port.items() if (key, value) != ("name", "")} for port in PORTS],
        },
    }
    assert_made(made)


@pytest.mark.apiserver
@on_every_pod_datastore
def test_checks_60_to_64_the_endpoint_of_a_pod(cluster: PodCluster) -> None:
    """The same in every datastore: where pods are the endpoints, three annotations are all that is written."""
    pod = make_pod(cluster)
    conf = {**POLICY, "ipam": {"type": "netplug-ipam", "assign_ipv6": "true"}}
    added = cluster.add(pod, **conf)
    networks = [f"{address}/{128 if ':' in address else 32}" for address in added.addresses]
    assert_endpoint_read(cluster, pod)
    if cluster.datastore.name == "kubernetes":
        assert_annotations_written(cluster, pod, networks)
    else:
        assert_document_written(cluster, pod, networks)
    checked = cluster.runtime.check(cluster.conf(**conf), pod, added, CNI_ARGS=cni_args(pod))
    assert checked.is_success_without_output, checked
    cluster.delete(pod)
    cluster.assert_nothing_left()


@pytest.mark.apiserver
@pytest.mark.alone  # the node process watches namespaces
@on_every_pod_datastore
def test_check_65_nothing_of_the_orchestrator_is_listed_or_watched(cluster: PodCluster) -> None:
    pod, before = make_pod(cluster), len(cluster.server.audited_requests("netplug/"))
    cluster.add(pod, **POLICY)
    asked = set(cluster.server.audited_requests("netplug/")[before:])
    assert {("get", "pods"), ("get", "namespaces")} <= asked
    assert {one for one in asked if one[1].partition("/")[0] in ("pods", "namespaces", "nodes")} <= ASKED
    cluster.delete(pod)


@pytest.mark.apiserver
@on_every_pod_datastore
def test_check_71_pods_with_names_that_begin_alike(cluster: PodCluster) -> None:
    """Each ADD and DEL concerns its own pod's endpoint."""
    first, second = make_pod(cluster, "p"), make_pod(cluster, "p-1")
    args = {pod: f"K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={name}" for pod, name in ((first, "p"), (second, "p-1"))}
    for pod in (first, second):
        cluster.runtime.add(cluster.conf(**POLICY), pod, CNI_ARGS=args[pod])

    def attached() -> dict[str, str]:
        found = cluster.datastore.store.endpoints().items()
        return {
            key.partition("/")[2]: one.spec.container_id
            for key, one in found
            if key.startswith(f"{NAMESPACE}/") and one.spec.addresses
        }

    names = {first: "node--1-k8s-p-eth0", second: "node--1-k8s-p--1-eth0"}
    assert attached() == {names[pod]: pod.name for pod in (first, second)}
    cluster.runtime.delete(cluster.conf(**POLICY), first, CNI_ARGS=args[first])
    assert attached() == {names[second]: second.name}
    cluster.runtime.delete(cluster.conf(**POLICY), second, CNI_ARGS=args[second])
    assert attached() == {}
    cluster.assert_nothing_left()


@pytest.mark.apiserver
@on_every_pod_datastore
@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_checks_66_and_67_a_late_del_leaves_the_new_container(
    cluster: PodCluster,
    is_deleted_first: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    """The pod was restarted; the former container's DEL comes once or twice, the last one late."""
    former, new = make_pod(cluster), cluster.node.make_pod()
    args = {"CNI_ARGS": cni_args(former)}
    cluster.runtime.add(cluster.conf(**POLICY), former, **args)
    if is_deleted_first:
        cluster.runtime.delete(cluster.conf(**POLICY), former, **args)
    added = cluster.runtime.add(cluster.conf(**POLICY), new, **args)
    cluster.runtime.delete(cluster.conf(**POLICY), former, **args)
    key = f"{NAMESPACE}/node--1-k8s-{former.name.replace('-', '--')}-eth0"
    endpoint = cluster.datastore.store.endpoints()[key]
    assert (endpoint.spec.container_id, list(map(str, endpoint.spec.addresses))) == (new.name, list(added.addresses))
    assert list(cluster.datastore.store.held().values()) == [tuple(added.addresses)]
    assert cluster.node.can_ping(added.addresses[0])
    cluster.runtime.delete(cluster.conf(**POLICY), new, **args)
    cluster.assert_nothing_left()


@pytest.mark.apiserver
@pytest.mark.parametrize("plugin_datastore", ["sqlite", pytest.param("etcdv3", marks=pytest.mark.etcd)], indirect=True)
def test_check_72_without_a_policy_type_the_profile_is_that_of_the_network(cluster: PodCluster) -> None:
    """Labels and ports are the pod's all the same."""
    pod = make_pod(cluster)
    cluster.add(pod)
    (endpoint,) = cluster.datastore.store.endpoints().values()
    assert endpoint.spec.profiles == ("net1",)
    assert dict(endpoint.metadata.labels)["app"] == "x"
    assert len(endpoint.spec.ports) == len(PORTS)
    cluster.delete(pod)
    cluster.assert_nothing_left()


@pytest.mark.parametrize("policy, text", [({"type": "foo"}, "'foo'"), ({"type": "k8s"}, "kubernetes.kubeconfig")])
def test_check_37_policy_types(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, policy: dict[str, str], text: str
) -> None:
    """An unknown one is refused, and the known one where no pod could be looked up."""
    reply = runtime.call("ADD", runtime.make_netconf(policy=policy), pod)
    assert (reply.code, "policy.type" in reply.text, text in reply.text) == (7, True, True)
    assert node.store.is_empty
    runtime.delete(runtime.make_netconf(policy=policy), pod)
