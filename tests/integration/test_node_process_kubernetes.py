"""What a call that the node process serves costs an API server, which counts, and how soon it follows changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.datastore.cache import ORDERED_MAX_AGE_S
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.records import Create, List, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.metadata import Metadata
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode
from tests.harness.node_process import NodeProcessRuntime, start_node_process
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
from tests.harness.servers.port_forward import OutageMode, PortForward, forward_port
from tests.harness.waiting import deadline_in, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

_NUMBERS = count()
_NAMESPACE = "node-process"
_AGENT = "netplug/"


@pytest.fixture
def forward(api_server: ApiServer, node: NetnsNode) -> Iterator[PortForward]:
    """The way from the node to the server."""
    with forward_port(node, api_server.port) as forward:
        yield forward


@pytest.fixture
def cluster(api_server: ApiServer, forward: PortForward) -> ApiServer:
    """A server that the node reaches, with one pool."""
    del forward
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    make_namespace(api_server, _NAMESPACE)
    make_node(api_server, "node-1")
    with open_store(api_server, CrdMode.V1) as store:
        add_pool(store, "main", "10.66.0.0/24")
    return api_server


@pytest.fixture
def served(runtime: CNIRuntime, cluster: ApiServer) -> Iterator[NodeProcessRuntime]:
    """A node process that has claimed a block, and whose watches are open."""
    before = requests(cluster)
    process = start_node_process(runtime.node)
    served = NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket)
    add(served, cluster, new_pod(cluster))
    wait_until(lambda: (requests(cluster) - before)["watch"] >= 5, "the node process follows what people change")
    add(served, cluster, new_pod(cluster))
    time.sleep(2 * ORDERED_MAX_AGE_S)  # the watches count half a second after they were opened
    yield served
    with open_store(cluster, CrdMode.V1) as store:
        set_ready(store, is_ready=True)


def add_pool(store: KubernetesDatastore, name: str, cidr: str) -> None:
    pool = IPPool.for_prefix(Prefix.parse(cidr), name=name)
    store.commit([Create(pool.key, pool)], deadline=deadline_in())


def disable_pool(store: KubernetesDatastore, name: str) -> None:
    found = store.read([List(IPPOOL)], deadline=deadline_in()).find(IPPOOL.key(name))
    assert found is not None
    disabled = evolve(found.value, spec=evolve(found.value.spec, is_disabled=True))
    store.commit([Update(found.key, disabled, found.revision)], deadline=deadline_in())


def set_ready(store: KubernetesDatastore, *, is_ready: bool) -> None:
    spec = ClusterInformationSpec(is_datastore_ready=is_ready)
    found = store.read([List(CLUSTER_INFORMATION_KEY.kind)], deadline=deadline_in()).find(CLUSTER_INFORMATION_KEY)
    if found is None:
        value = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
        store.commit([Create(CLUSTER_INFORMATION_KEY, value)], deadline=deadline_in())
    else:
        store.commit([Update(found.key, evolve(found.value, spec=spec), found.revision)], deadline=deadline_in())


def conf(served: CNIRuntime, cluster: ApiServer) -> NetConfDict:
    kubeconfig = cluster.write_kubeconfig(install_role(cluster), name="plugin")
    own = {"datastore_type": "kubernetes", "sqlite_path": None, "kubernetes": {"kubeconfig": kubeconfig}}
    return served.make_netconf(**own)


def named(pod: str, namespace: str = _NAMESPACE) -> str:
    return f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}"


def new_pod(cluster: ApiServer, namespace: str = _NAMESPACE) -> str:
    name = f"web-{next(_NUMBERS)}"
    make_pod(cluster, namespace, name, node="node-1")
    return name


def add(served: CNIRuntime, cluster: ApiServer, name: str, namespace: str = _NAMESPACE) -> str:
    """Attach a new container of a pod; its address."""
    args = named(name, namespace)
    (address,) = served.add(conf(served, cluster), served.node.make_pod(), CNI_ARGS=args).addresses
    return address


def requests(cluster: ApiServer) -> Counter[str]:
    """The requests of the product that the server has answered: by verb, and by verb and resource."""
    found = cluster.audited_requests(_AGENT)
    return Counter(verb for verb, _resource in found) + Counter(f"{verb} {resource}" for verb, resource in found)


def cost(cluster: ApiServer, call: Callable[[], object], expected: Counter[str]) -> Counter[str]:
    """What a call costs the server, by verb and resource. It writes its log a moment after its answers."""
    before = requests(cluster)
    call()

    def found() -> Counter[str]:
        return Counter({name: number for name, number in (requests(cluster) - before).items() if " " in name})

    wait_until(lambda: sum(found().values()) >= sum(expected.values()), "the server has logged the call")
    return found()


def test_calls_of_a_warm_process_read_what_others_change_and_nothing_else(
    served: NodeProcessRuntime, cluster: ApiServer
) -> None:
    """The pod. Blocks, affinities and handles are known, and the rest is followed.

    A runtime repeats a DEL. Then the process knows the pod, but not whether the handle was made again. A call that
    takes longer than half a second, on a machine that is busy, may have to read more.
    """
    given = conf(served, cluster)
    of_add = Counter({"get pods": 1, "create ipamhandles": 1, "update ipamblocks": 1, "patch pods/status": 1})
    of_delete = Counter({"patch pods/status": 1, "update ipamblocks": 1, "delete ipamhandles": 1})
    of_repetition = Counter({"patch pods/status": 1, "get ipamhandles": 1})
    calls = ((served.add, of_add), (served.delete, of_delete), (served.delete, of_repetition))

    def costs() -> list[Counter[str]]:
        name, pod = new_pod(cluster), served.node.make_pod()
        found = []
        for call, expected in calls:
            time.sleep(ORDERED_MAX_AGE_S)  # a process that is asked rarely pays no more
            found.append(cost(cluster, partial(call, given, pod, CNI_ARGS=named(name)), expected))
        return found

    wait_until(lambda: costs() == [expected for _call, expected in calls], "an ADD reads its pod, and a DEL nothing")


def test_calls_at_once_do_not_make_each_others_writes_fail(served: NodeProcessRuntime, cluster: ApiServer) -> None:
    """They change the same block, each of them once."""
    given, number = conf(served, cluster), 4  # few enough that each has its turn on a slow machine
    pods = [(named(new_pod(cluster)), pod) for pod in served.node.make_pods(number)]
    for call, last_write in ((served.add, "patch pods/status"), (served.delete, "delete ipamhandles")):
        before = requests(cluster)
        with ThreadPoolExecutor(number) as threads:
            for ended in [threads.submit(call, given, pod, CNI_ARGS=args) for args, pod in pods]:
                ended.result()
        made = partial(made_since, cluster, before)
        wait_until(lambda: made()[last_write] >= number, "the server has logged the calls")  # noqa: B023  called at once
        assert (made()[last_write], made()["update ipamblocks"]) == (number, number)


def made_since(cluster: ApiServer, before: Counter[str]) -> Counter[str]:
    return requests(cluster) - before


def test_a_pool_that_is_switched_off_is_not_used_half_a_second_later(
    served: NodeProcessRuntime, cluster: ApiServer
) -> None:
    with open_store(cluster, CrdMode.V1) as store:
        add_pool(store, "other", "10.67.0.0/24")
        disable_pool(store, "main")
    time.sleep(ORDERED_MAX_AGE_S)
    assert add(served, cluster, new_pod(cluster)).startswith("10.67.0.")


def test_a_locked_datastore_stops_calls_half_a_second_later(served: NodeProcessRuntime, cluster: ApiServer) -> None:
    given, pod, name = conf(served, cluster), served.node.make_pod(), new_pod(cluster)
    with open_store(cluster, CrdMode.V1) as store:
        set_ready(store, is_ready=False)
        time.sleep(ORDERED_MAX_AGE_S)
        assert served.call("ADD", given, pod, CNI_ARGS=named(name)).code == 11
        set_ready(store, is_ready=True)
        time.sleep(ORDERED_MAX_AGE_S)
        assert served.add(given, pod, CNI_ARGS=named(name)).addresses


def test_annotations_of_a_pod_are_those_of_now_and_of_its_namespace_half_a_second_old(
    served: NodeProcessRuntime, cluster: ApiServer
) -> None:
    """Those of the pod win. A namespace that was made a moment ago is known too."""
    with open_store(cluster, CrdMode.V1) as store:
        add_pool(store, "other", "10.67.0.0/24")
        add_pool(store, "third", "10.68.0.0/24")
    annotate(cluster, f"/api/v1/namespaces/{_NAMESPACE}", "other")
    time.sleep(ORDERED_MAX_AGE_S)
    assert add(served, cluster, new_pod(cluster)).startswith("10.67.0.")
    name = new_pod(cluster)
    annotate(cluster, f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}", "third")
    assert add(served, cluster, name).startswith("10.68.0.")
    annotate(cluster, f"/api/v1/namespaces/{_NAMESPACE}", None)
    space = make_namespace(cluster, f"{_NAMESPACE}-{next(_NUMBERS)}")
    annotate(cluster, f"/api/v1/namespaces/{space}", "other")
    assert add(served, cluster, new_pod(cluster, space), space).startswith("10.67.0.")


def annotate(cluster: ApiServer, path: str, pool: str | None) -> None:
    """Set the annotation for pools, or remove it."""
    text = None if pool is None else f'["{pool}"]'
    body = {"metadata": {"annotations": {"cni.projectnetplug.org/ipv4pools": text}}}
    cluster.request("PATCH", path, body, content_type="application/merge-patch+json")


def test_a_server_that_is_started_again_is_followed_again(
    served: NodeProcessRuntime, cluster: ApiServer, forward: PortForward
) -> None:
    """Until then calls read what they need: nothing that changed meanwhile is missed."""
    with forward.outage(OutageMode.REFUSED):
        cluster.kill()
        cluster.start()
    with open_store(cluster, CrdMode.V1) as store:
        add_pool(store, "other", "10.67.0.0/24")
        disable_pool(store, "main")
    time.sleep(ORDERED_MAX_AGE_S)
    assert add(served, cluster, new_pod(cluster)).startswith("10.67.0.")
    log = Path(served.node.file("node/node.log"))
    wait_until(lambda: "are followed again" in log.read_text(), "the watches are open again")
    assert add(served, cluster, new_pod(cluster)).startswith("10.67.0.")


def test_a_late_add_does_not_touch_the_pod_that_has_the_name_now(
    served: NodeProcessRuntime, cluster: ApiServer
) -> None:
    """A StatefulSet's pod is deleted and made again; the process has attached the first one."""
    given, name = conf(served, cluster), new_pod(cluster)
    path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}"
    uids = [uid_of(cluster, path)]
    first, late, current = served.node.make_pods(3)
    served.add(given, first, CNI_ARGS=f"{named(name)};K8S_POD_UID={uids[0]}")
    cluster.request("DELETE", f"{path}?gracePeriodSeconds=0")
    make_pod(cluster, _NAMESPACE, name, node="node-1")
    uids.append(uid_of(cluster, path))
    refused = served.call("ADD", given, late, CNI_ARGS=f"{named(name)};K8S_POD_UID={uids[0]}")
    assert refused.code == 4
    assert f"pod {_NAMESPACE}/{name} has the uid {uids[1]}" in refused.text
    added = served.add(given, current, CNI_ARGS=f"{named(name)};K8S_POD_UID={uids[1]}")
    served.delete(given, first, CNI_ARGS=f"{named(name)};K8S_POD_UID={uids[0]}")
    metadata = cluster.get(path)["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["annotations"]["cni.projectnetplug.org/podIP"] == f"{added.addresses[0]}/32"
    with open_store(cluster, CrdMode.V1) as store:
        assert len(store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE))) == 3


def uid_of(cluster: ApiServer, path: str) -> str:
    metadata = cluster.get(path)["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["uid"])
