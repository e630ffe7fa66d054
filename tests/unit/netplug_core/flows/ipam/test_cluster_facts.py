"""Pods and nodes of a datastore that shows them: all of them, and one at a time."""

from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address
from netplug_core.flows.ipam.collect import DatastoreLookup, of_addresses, read_cluster, read_users
from netplug_core.orchestrator.model import PodFacts, PodName, PodPhase
from tests.harness.leaks import make_harness, put_endpoint, put_pod, show_pods


def test_a_datastore_that_shows_no_pods() -> None:
    harness = make_harness(MemoryMode.ATOMIC)
    put_endpoint(harness, "web", "10.0.0.1", "fd00::1")
    assert read_cluster(harness.store, deadline=harness.deadline) is None
    users = read_users(harness.store, deadline=harness.deadline)
    assert users.cluster is None
    assert [str(address) for address in users.endpoints] == ["10.0.0.1", "fd00::1"]


def test_a_pod_has_also_what_the_plugin_wrote() -> None:
    harness = make_harness(MemoryMode.KUBE_LIKE)
    show_pods(harness, "node-a")
    put_pod(
        harness, "web", "10.0.0.1", podIP="10.0.0.2/32", podIPs="10.0.0.2/32,10.0.0.1/32,nonsense", other="10.0.0.3"
    )
    put_pod(harness, "released", "10.0.0.4", podIP="", podIPs="")
    cluster = read_cluster(harness.store, deadline=harness.deadline)
    assert cluster is not None
    assert {pod.name: tuple(map(str, pod.addresses)) for pod in cluster.pods} == {
        "web": ("10.0.0.1", "10.0.0.2"),
        "released": ("10.0.0.4",),
    }
    assert cluster.nodes == {"node-a"}
    assert read_users(harness.store, deadline=harness.deadline).pods.keys() == {
        PodName("default", "web"),
        PodName("default", "released"),
    }


def test_one_pod_and_one_node() -> None:
    harness = make_harness(MemoryMode.KUBE_LIKE)
    show_pods(harness, "node-a")
    put_pod(harness, "web", podIP="10.0.0.2/32")
    lookup = DatastoreLookup(harness.store)
    found = lookup.find_pod("default", "web", deadline=harness.deadline)
    assert found is not None
    assert found.addresses == (Address.parse("10.0.0.2"),)
    assert lookup.find_pod("default", "gone", deadline=harness.deadline) is None
    assert lookup.has_node("node-a", deadline=harness.deadline)
    assert not lookup.has_node("node-b", deadline=harness.deadline)


def test_pods_that_a_watch_keeps_are_not_read() -> None:
    harness = make_harness(MemoryMode.KUBE_LIKE)
    show_pods(harness, "node-a")
    put_pod(harness, "stored", "10.0.0.1")
    known = PodFacts(namespace="default", name="known", uid="", node="node-a", addresses=(Address.parse("10.0.0.9"),))
    cluster = read_cluster(harness.store, deadline=harness.deadline, known=[known])
    assert cluster is not None
    assert (cluster.pods, cluster.nodes) == ((known,), frozenset({"node-a"}))


def test_of_a_pod_what_says_something_of_its_addresses() -> None:
    pod = PodFacts(
        namespace="default", name="web", uid="u", node="n", labels=(("a", "b"),), phase=PodPhase.RUNNING,
        annotations=(("x/podIPs", " 10.0.0.1/32 ,10.0.0.2/32"), ("x/podIP", "10.0.0.1/32"), ("note", "10.0.0.3")),
        addresses=(Address.parse("10.0.0.1"),), deletion_time_ns=5,
    )  # fmt: skip
    assert of_addresses(pod) == PodFacts(
        namespace="default", name="web", uid="", node="n", phase=PodPhase.RUNNING, deletion_time_ns=5,
        addresses=(Address.parse("10.0.0.1"), Address.parse("10.0.0.2")),
    )  # fmt: skip
    plain = evolve(pod, annotations=(("x/podIP", "10.0.0.1/32"),))
    assert of_addresses(plain).addresses is plain.addresses


def test_where_the_records_are_elsewhere_registered_nodes_count_and_names_of_nodes_say_nothing_of_pods() -> None:
    cluster, records = make_harness(MemoryMode.KUBE_LIKE), make_harness(MemoryMode.ATOMIC)
    show_pods(cluster, "machine-a")
    put_pod(cluster, "web", "10.0.0.1")
    show_pods(records, "node-a")
    found = read_cluster(cluster.store, records.store, deadline=cluster.deadline)
    assert found is not None
    assert ({pod.node for pod in found.pods}, found.nodes) == ({""}, frozenset({"machine-a", "node-a"}))
    lookup = DatastoreLookup(cluster.store, records.store)
    names = ("machine-a", "node-a", "gone")
    assert [lookup.has_node(name, deadline=cluster.deadline) for name in names] == [True, True, False]
    pod = lookup.find_pod("default", "web", deadline=cluster.deadline)
    assert pod is not None
    assert pod.node == ""
