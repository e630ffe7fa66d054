"""The executables on the kubernetes datastore, with the shipped rights: a pod's whole life, and what goes wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count

import pytest

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, owner_node
from netplug_core.records import Create, List
from netplug_core.resources.ippool import IPPool
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace
from tests.harness.release_records import record_files
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    install_role,
    make_namespace,
    make_node,
    make_pod,
    open_store,
)
from tests.harness.servers.port_forward import forward_port
from tests.harness.waiting import deadline_in, wait_until
from tests.integration.test_imports import loaded

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

_NUMBERS = count()
_NAMESPACE = "plugin"


@pytest.fixture
def cluster(api_server: ApiServer, node: NetnsNode) -> Iterator[ApiServer]:
    """A server that the node reaches, with one pool."""
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    make_namespace(api_server, _NAMESPACE)
    make_node(api_server, "node-1")
    pool = IPPool.for_prefix(Prefix.parse("10.66.0.0/24"), name="main")
    with open_store(api_server, CrdMode.V1) as store:
        store.commit([Create(pool.key, pool)], deadline=deadline_in())
    with forward_port(node, api_server.port):
        yield api_server


def conf(runtime: CNIRuntime, cluster: ApiServer, **changes: object) -> NetConfDict:
    kubeconfig = cluster.write_kubeconfig(install_role(cluster), name="plugin")
    own = {"datastore_type": "kubernetes", "sqlite_path": None, "kubernetes": {"kubeconfig": kubeconfig}}
    return runtime.make_netconf(**{**own, **changes})


def named(pod: str) -> str:
    return f"IgnoreUnknown=1;K8S_POD_NAMESPACE={_NAMESPACE};K8S_POD_NAME={pod}"


def new_pod(cluster: ApiServer) -> str:
    name = f"web-{next(_NUMBERS)}"
    make_pod(cluster, _NAMESPACE, name, node="node-1")
    return name


def annotation(cluster: ApiServer, pod: str, name: str) -> str:
    metadata = cluster.get(f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod}")["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["annotations"][f"cni.projectnetplug.org/{name}"])


def handles(cluster: ApiServer) -> int:
    with open_store(cluster, CrdMode.V1) as store:
        return len(store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE)))


def test_a_pod_is_attached_checked_and_detached(runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace) -> None:
    given, name = conf(runtime, cluster), new_pod(cluster)
    added = runtime.add(given, pod, CNI_ARGS=named(name))
    (address,) = added.addresses
    assert annotation(cluster, name, "podIP") == f"{address}/32"
    assert annotation(cluster, name, "containerID") == pod.name
    assert runtime.check(given, pod, added, CNI_ARGS=named(name)).is_success_without_output
    assert runtime.call("STATUS", {**given, "cniVersion": "1.1.0"}).is_success_without_output
    runtime.delete(given, pod, CNI_ARGS=named(name))
    assert annotation(cluster, name, "podIP") == ""
    assert handles(cluster) == 0
    runtime.delete(given, pod, CNI_ARGS=named(name))
    cluster.request("DELETE", f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}?gracePeriodSeconds=0")
    runtime.delete(given, pod, CNI_ARGS=named(name))


def test_a_mistyped_pool_that_older_definitions_took_stops_no_pod(
    runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace
) -> None:
    store_mistyped_pool(cluster)
    given, name = conf(runtime, cluster), new_pod(cluster)
    added = runtime.add(given, pod, CNI_ARGS=named(name))
    assert added.addresses[0].startswith("10.66.0.")
    assert "IPPool mistyped (10.67.0.0/24) is passed over: its selector cannot be read" in added.stderr
    assert runtime.call("STATUS", {**given, "cniVersion": "1.1.0"}).is_success_without_output
    runtime.delete(given, pod, CNI_ARGS=named(name))
    assert handles(cluster) == 0


def store_mistyped_pool(cluster: ApiServer) -> None:
    """Store a pool under a definition without the rules about selectors, as an older release has it."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ippools.crd.projectnetplug.org"
    body = {
        "apiVersion": CrdMode.V1.value,
        "kind": "IPPool",
        "metadata": {"name": "mistyped"},
        "spec": {"cidr": "10.67.0.0/24", "nodeSelector": "zone = 'a'"},
    }

    def is_stored() -> bool:
        try:
            cluster.request("POST", f"/apis/{CrdMode.V1.value}/ippools", body)
        except RequestRefused as error:
            if error.code != 422:
                raise
            return False
        return True

    assert not is_stored()
    text = json.dumps(cluster.get(path)).replace("self.matches(", "true || self.matches(")
    cluster.request("PUT", path, json.loads(text))
    try:
        wait_until(is_stored, "the older definition is in force")
    finally:
        install_definitions(cluster, CrdMode.V1)


def test_further_interfaces_of_a_pod_are_attached(runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace) -> None:
    """Multus names them ``net1``: their addresses are in the blocks, and the pod is not written for them."""
    given, name = conf(runtime, cluster), new_pod(cluster)
    second = {"CNI_ARGS": named(name), "CNI_IFNAME": "net1"}
    first_result = runtime.add(given, pod, CNI_ARGS=named(name))
    before = cluster.get(f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}")
    added = runtime.add(given, pod, **second)
    (address,) = added.addresses
    assert cluster.get(f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}") == before
    assert annotation(cluster, name, "podIP") == f"{first_result.addresses[0]}/32"
    assert runtime.check(given, pod, added, **second).is_success_without_output
    with open_store(cluster, CrdMode.V1) as store:
        snapshot = store.read([List(BLOCK), List(HANDLE)], deadline=deadline_in())
    held = [held for record in snapshot.list(List(BLOCK)) for held in record.value.held()]
    owner = dict(next(found for found in held if str(found.address) == address).attribute.owner)
    assert {key: text for key, text in owner.items() if key != "timestamp"} == {
        "container": pod.name, "interface": "net1", "namespace": _NAMESPACE, "network": given["name"],
        "node": "node-1", "pod": name,
    }  # fmt: skip
    assert len(snapshot.list(List(HANDLE))) == 2
    runtime.delete(given, pod, **second)
    assert annotation(cluster, name, "podIP") == f"{first_result.addresses[0]}/32"
    assert handles(cluster) == 1
    again = runtime.add(given, pod, **second)
    listed = [{"containerID": pod.name, "ifname": "eth0"}]
    gone = runtime.call("GC", {**given, "cniVersion": "1.1.0", "cni.dev/valid-attachments": listed})
    assert gone.is_success_without_output, again
    assert handles(cluster) == 1
    runtime.delete(given, pod, CNI_ARGS=named(name))


def test_a_late_add_does_not_touch_the_pod_that_has_the_name_now(
    runtime: CNIRuntime, cluster: ApiServer, node: NetnsNode
) -> None:
    """A StatefulSet's pod is deleted and made again; the runtime still works on the first one."""
    given, name = conf(runtime, cluster), new_pod(cluster)
    path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}"
    uids = [uid_of(cluster, path)]
    cluster.request("DELETE", f"{path}?gracePeriodSeconds=0")
    make_pod(cluster, _NAMESPACE, name, node="node-1")
    uids.append(uid_of(cluster, path))
    late, current = node.make_pods(2)
    refused = runtime.call("ADD", given, late, CNI_ARGS=f"{named(name)};K8S_POD_UID={uids[0]}")
    assert refused.code == 4
    assert f"pod {_NAMESPACE}/{name} has the uid {uids[1]}" in refused.text
    assert uids[0] in refused.text
    metadata = cluster.get(path)["metadata"]
    assert isinstance(metadata, dict)
    assert "annotations" not in metadata
    assert handles(cluster) == 0
    arguments = f"{named(name)};K8S_POD_UID={uids[1]}"
    runtime.add(given, current, CNI_ARGS=arguments)
    assert annotation(cluster, name, "containerID") == current.name
    runtime.delete(given, current, CNI_ARGS=arguments)


def test_a_static_pod_is_known_by_the_uid_that_its_mirror_names(
    runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace
) -> None:
    name, uid = f"static-{next(_NUMBERS)}", "0123456789abcdef0123456789abcdef"
    make_pod(cluster, _NAMESPACE, name, node="node-1", annotations={"kubernetes.io/config.mirror": uid})
    given, arguments = conf(runtime, cluster), f"{named(name)};K8S_POD_UID={uid}"
    runtime.add(given, pod, CNI_ARGS=arguments)
    assert annotation(cluster, name, "containerID") == pod.name
    runtime.delete(given, pod, CNI_ARGS=arguments)


def uid_of(cluster: ApiServer, path: str) -> str:
    metadata = cluster.get(path)["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["uid"])


def test_a_pod_that_is_gone_is_refused_at_once_and_leaves_nothing(
    runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace
) -> None:
    """Trap 18."""
    began = time.monotonic()
    refused = runtime.call("ADD", conf(runtime, cluster), pod, CNI_ARGS=named("gone"))
    assert time.monotonic() - began < 30
    assert refused.code == 4
    assert f"pod {_NAMESPACE}/gone" in refused.text
    assert handles(cluster) == 0


def test_check_74_a_del_without_rights_and_one_after_its_pod(
    runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace
) -> None:
    """The first leaves the addresses and a release record; the second finds no pod, and frees them."""
    given, name = conf(runtime, cluster), new_pod(cluster)
    records = str(given["release_record_dir"])
    runtime.add(given, pod, CNI_ARGS=named(name))
    install_role(cluster, without=("pods/status", "patch"))  # a node process reads no pod for a DEL
    assert "cannot patch resource" in runtime.delete(given, pod, CNI_ARGS=named(name)).stderr
    assert (handles(cluster), len(record_files(records))) == (1, 1)
    install_role(cluster)
    cluster.request("DELETE", f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}?gracePeriodSeconds=0")
    runtime.delete(given, pod, CNI_ARGS=named(name))
    assert (handles(cluster), record_files(records)) == (0, [])


def test_a_container_without_a_pod_cannot_be_kept(runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace) -> None:
    refused = runtime.call("ADD", conf(runtime, cluster), pod)
    assert refused.code == 7
    assert "K8S_POD_NAMESPACE and K8S_POD_NAME" in refused.text
    assert handles(cluster) == 0


def test_a_refused_endpoint_leaves_no_block_to_a_node_that_nobody_will_ever_remove(
    runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace
) -> None:
    refused = runtime.call("ADD", conf(runtime, cluster, nodename="no-node"), pod, CNI_ARGS=named(new_pod(cluster)))
    assert (refused.code, "is on node 'node-1': nodename must be that" in refused.text) == (7, True)
    sick = runtime.call("STATUS", {**conf(runtime, cluster, nodename="no-node"), "cniVersion": "1.1.0"})
    assert (sick.code, "the cluster has no node 'no-node'" in sick.text) == (50, True)
    with open_store(cluster, CrdMode.V1) as store:
        snapshot = store.read([List(AFFINITY), List(BLOCK), List(HANDLE)], deadline=deadline_in())
    claimants = {record.key.path[1] for record in snapshot.list(List(AFFINITY))}
    owners = {record.value.owner for record in snapshot.list(List(BLOCK))}
    assert "no-node" not in claimants | {owner_node(owner) for owner in owners}
    assert snapshot.list(List(HANDLE)) == ()


def test_a_server_that_is_away_and_a_token_that_is_refused_are_code_11(
    runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace
) -> None:
    secret = "s3cret-token"  # noqa: S105  # planted, and searched for
    away = conf(runtime, cluster, kubernetes={"k8s_api_root": "https://127.0.0.1:1"})
    refused = runtime.call("ADD", away, pod, CNI_ARGS=named("web"))
    assert (refused.code, "https://127.0.0.1:1" in refused.text) == (11, True)
    bad = conf(runtime, cluster, kubernetes={"kubeconfig": cluster.write_kubeconfig(secret, name="bad")})
    refused = runtime.call("ADD", bad, pod, CNI_ARGS=named("web"))
    assert (refused.code, "does not accept the credentials" in refused.text) == (11, True)
    assert secret not in refused.text + refused.stderr


@pytest.mark.alone
def test_a_cold_process_asks_the_server_no_more_than_it_must(
    runtime: CNIRuntime, cluster: ApiServer, node: NetnsNode
) -> None:
    """Counted at the server; the group is named, and no pool selects nodes: then they are not read either."""
    given = conf(runtime, cluster, netplug_api_group="crd.projectnetplug.org")
    first, second = (node.make_pod() for _ in range(2))
    names = {first: new_pod(cluster), second: new_pod(cluster)}
    before = len(cluster.audited_requests("netplug/"))
    runtime.add(given, first, CNI_ARGS=named(names[first]))  # the node has a block of its own now
    assert affinity_lists(cluster, before) == [True, False], "a claim reads the list again, without a cache"
    for command, reads in (("ADD", 10), ("DEL", 5)):
        before = len(cluster.audited_requests("netplug/"))
        assert runtime.call(command, given, second, CNI_ARGS=named(names[second])).status == 0
        verbs = [verb for verb, _ in cluster.audited_requests("netplug/")[before:]]
        asked = [verb for verb in verbs if verb in ("get", "list")]
        assert (len(asked), len(verbs) - len(asked)) == (reads, 3), cluster.audited_requests("netplug/")[before:]
        assert affinity_lists(cluster, before) == ([True] if command == "ADD" else [])
    runtime.delete(given, first, CNI_ARGS=named(names[first]))


def affinity_lists(cluster: ApiServer, since: int) -> list[bool]:
    """For each list of affinities since a request: whether the server may answer it from its cache."""
    targets = cluster.audited_targets("netplug/")[since:]
    return ["resourceVersion=0" in target for target in targets if "/blockaffinities?" in target]


def test_a_call_loads_the_standard_librarys_http_and_no_client(
    runtime: CNIRuntime, cluster: ApiServer, pod: PodNamespace
) -> None:
    given, name = conf(runtime, cluster, netplug_api_group="crd.projectnetplug.org"), new_pod(cluster)
    for command in ("ADD", "DEL"):
        modules = loaded(runtime, given, runtime.make_environ(command, pod, CNI_ARGS=named(name))).modules
        assert modules & {"kubernetes", "urllib3", "requests", "yaml", "asyncio", "grpc", "sqlite3"} == set()
        assert {"http.client", "ssl"} <= modules
    assert json.dumps(given)
