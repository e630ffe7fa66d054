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
from netplug_core.datastore.protocol import FRESH_S
from netplug_core.ipam.model import HANDLE
from netplug_core.records import Create, List, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPPool
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode
from tests.harness.node_process import NodeProcessRuntime, start_node_process
from tests.harness.servers.hiding_proxy import open_hiding_proxy
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


def conf(served: CNIRuntime, cluster: ApiServer, kubeconfig: str = "") -> NetConfDict:
    kubeconfig = kubeconfig or cluster.write_kubeconfig(install_role(cluster), name="plugin")
    own = {"datastore_type": "kubernetes", "sqlite_path": None, "kubernetes": {"kubeconfig": kubeconfig}}
    return served.make_netconf(**own)


def named(pod: str, namespace: str = _NAMESPACE) -> str:
    return f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}"


def new_pod(cluster: ApiServer, namespace: str = _NAMESPACE) -> str:
    name = f"web-{next(_NUMBERS)}"
    make_pod(cluster, namespace, name, node="node-1")
    return name


def add(served: CNIRuntime, cluster: ApiServer, name: str, namespace: str = _NAMESPACE, *, kubeconfig: str = "") -> str:
    """Attach a new container of a pod; its address."""
    args = named(name, namespace)
    (address,) = served.add(conf(served, cluster, kubeconfig), served.node.make_pod(), CNI_ARGS=args).addresses
    return address


def is_in_other(served: CNIRuntime, cluster: ApiServer, namespace: str = _NAMESPACE) -> bool:
    """Whether a new pod gets an address of the other pool."""
    return add(served, cluster, new_pod(cluster, namespace), namespace).startswith("10.67.0.")


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

    A runtime repeats a DEL. Then the process knows the pod, but not whether the handle was made again. What is followed
    is listed again every few seconds, on a busy machine by a call.
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


def test_a_pool_that_is_switched_off_is_soon_not_used(served: NodeProcessRuntime, cluster: ApiServer) -> None:
    with open_store(cluster, CrdMode.V1) as store:
        add_pool(store, "other", "10.67.0.0/24")
        disable_pool(store, "main")
    wait_until(lambda: is_in_other(served, cluster), "the change has arrived")


def test_a_pool_that_is_switched_off_while_the_watch_is_silent_is_not_used_after_five_seconds(
    runtime: CNIRuntime, cluster: ApiServer
) -> None:
    """Something on the way keeps the connections open and swallows what the server says.

    Calls do not renew what is known, and what they use is listed again at most every five seconds.
    """
    with open_hiding_proxy(cluster, client=_AGENT) as proxy, forward_port(runtime.node, proxy.port):
        with open_store(cluster, CrdMode.V1) as store:
            add_pool(store, "other", "10.67.0.0/24")
        process = start_node_process(runtime.node)
        served = NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket)
        before = requests(cluster)

        def add_one() -> str:
            return add(served, cluster, new_pod(cluster), kubeconfig=proxy.write_kubeconfig())

        add_one()
        wait_until(lambda: made_since(cluster, before)["watch"] >= 5, "the node process follows what people change")
        proxy.swallows_watches = True
        began, began_s = requests(cluster), time.monotonic()
        with open_store(cluster, CrdMode.V1) as store:
            disable_pool(store, "main")
        disabled_s = time.monotonic()
        while time.monotonic() - disabled_s < FRESH_S:
            add_one()
        assert add_one().startswith("10.67.0.")
        lists = made_since(cluster, began)["list ippools"]
        # One of them is the store's above, and one each may come just before and just after the time.
        assert 1 <= lists <= 3 + (time.monotonic() - began_s) / FRESH_S


def test_a_locked_datastore_soon_stops_calls(served: NodeProcessRuntime, cluster: ApiServer) -> None:
    given = conf(served, cluster)

    def is_refused() -> bool:
        reply = served.call("ADD", given, served.node.make_pod(), CNI_ARGS=named(new_pod(cluster)))
        return reply.status != 0 and reply.code == 11

    with open_store(cluster, CrdMode.V1) as store:
        set_ready(store, is_ready=False)
        wait_until(is_refused, "the lock has arrived")
        set_ready(store, is_ready=True)
        wait_until(lambda: not is_refused(), "its end has arrived")


def test_annotations_of_a_pod_are_those_of_now_and_its_namespaces_follow_soon(
    served: NodeProcessRuntime, cluster: ApiServer
) -> None:
    """Those of the pod win. A namespace that was made a moment ago is known too."""
    with open_store(cluster, CrdMode.V1) as store:
        add_pool(store, "other", "10.67.0.0/24")
        add_pool(store, "third", "10.68.0.0/24")
    annotate(cluster, f"/api/v1/namespaces/{_NAMESPACE}", "other")
    wait_until(lambda: is_in_other(served, cluster), "the annotation has arrived")
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
    wait_until(lambda: is_in_other(served, cluster), "the change has arrived")
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
