"""Pods and namespaces as records on a real API server: read, listed, watched, and never written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
from attrs import evolve

from netplug_backends.kubernetes.client.objects import RejectedByServer
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.datastore.protocol import LiveWatch
from netplug_core.names import WorkloadEndpointIdentifiers, workload_endpoint_name
from netplug_core.orchestrator.model import (
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    NamespaceFacts,
    PodFacts,
    ServiceAccountFacts,
)
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY
from netplug_core.records import Create, Delete, Get, Kind, List, NotSupported, Revision, Update, WatchEvent, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.kinds import key_of
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.resources import NETWORK_POLICY
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_definitions, make_namespace, make_pod, open_store
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

_NUMBERS = count()
_NODE = "node-1"
_MERGE = "application/merge-patch+json"


@pytest.fixture
def store(api_server: ApiServer) -> Iterator[KubernetesDatastore]:
    """A store on the server; pods and namespaces need no definitions."""
    with open_store(api_server, CrdMode.V1) as opened:
        yield opened


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    """A namespace of the test's own."""
    return make_namespace(api_server, f"shown-{next(_NUMBERS)}", labels={"team": "a"})


def changes(store: KubernetesDatastore, kind: Kind[object], start: Revision, number: int) -> list[WatchEvent[object]]:
    return list(islice(store.watch({kind: start}, deadline=deadline_in()), number))


def endpoint_name(pod: str) -> str:
    identity = WorkloadEndpointIdentifiers(node=_NODE, orchestrator="k8s", pod=pod, endpoint="eth0")
    return workload_endpoint_name(identity)


@pytest.mark.parametrize("pod", ["web", "w" * 240])
def test_a_pod_comes_with_its_endpoint_in_one_request(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str, pod: str
) -> None:
    """Also where the name of the endpoint is cut, so that it alone would be looked for among all pods."""
    make_pod(api_server, namespace, pod, node=_NODE, annotations={"a": "1"})
    before = len(api_server.audited_requests("netplug/"))
    wanted, endpoint = POD.key(namespace, pod), WORKLOAD_ENDPOINT.key(namespace, endpoint_name(pod))
    snapshot = store.read([Get(wanted)], deadline=deadline_in())
    found, view = snapshot.find(wanted), snapshot.find(endpoint)
    assert found is not None
    assert view is not None
    assert (found.value.annotations, found.value.node, view.revision) == ((("a", "1"),), _NODE, found.revision)
    assert len(api_server.audited_requests("netplug/")) - before <= 1
    assert store.read([Get(endpoint)], deadline=deadline_in()).find(endpoint) == view


def test_a_pod_without_an_endpoint_comes_alone(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    pod = {"metadata": {"name": "later"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    api_server.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    wanted, gone = Get(POD.key(namespace, "later")), Get(POD.key(namespace, "gone"))
    snapshot = store.read([wanted, gone], deadline=deadline_in())
    assert snapshot.find(wanted) is not None
    assert snapshot.find(gone) is None
    assert set(snapshot.results) == {wanted, gone}


def test_pods_and_namespaces_are_listed(api_server: ApiServer, store: KubernetesDatastore, namespace: str) -> None:
    for name in ("two", "one"):
        make_pod(api_server, namespace, name, node=_NODE)
    pods, spaces, nowhere = List(POD, (namespace,)), List(NAMESPACE), List(POD, ("a/b",))
    snapshot = store.read([pods, spaces, nowhere], deadline=deadline_in())
    assert [record.key.path for record in snapshot.list(pods)] == [(namespace, "one"), (namespace, "two")]
    found = {record.key.name: record.value for record in snapshot.list(spaces)}
    assert ("team", "a") in found[namespace].labels
    assert snapshot.list(nowhere) == ()
    everywhere = store.read([List(POD)], deadline=deadline_in()).list(List(POD))
    assert set(snapshot.list(pods)) <= set(everywhere)


def test_their_changes_are_watched(api_server: ApiServer, store: KubernetesDatastore, namespace: str) -> None:
    kinds: tuple[Kind[object], ...] = (POD, NAMESPACE)
    snapshot = store.read([List(kind) for kind in kinds], deadline=deadline_in())
    body = {"metadata": {"annotations": {"a": "2"}}}
    api_server.request("PATCH", f"/api/v1/namespaces/{namespace}", body, content_type=_MERGE)
    make_pod(api_server, namespace, "web", node=_NODE)
    api_server.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/web?gracePeriodSeconds=0")
    (space,) = changes(store, NAMESPACE, snapshot.revision(NAMESPACE), 1)
    assert isinstance(space.value, NamespaceFacts)
    assert (space.key, space.value.annotations) == (NAMESPACE.key(namespace), (("a", "2"),))
    made, marked, deleted = changes(store, POD, snapshot.revision(POD), 3)
    assert isinstance(made.value, PodFacts)
    assert isinstance(marked.value, PodFacts)
    assert (made.value.deletion_time_ns, marked.value.deletion_time_ns is None, deleted.value) == (None, False, None)
    assert {made.key, marked.key, deleted.key} == {POD.key(namespace, "web")}


def test_service_accounts_and_policies_are_listed_and_watched(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    accounts, policies = List(SERVICE_ACCOUNT, (namespace,)), List(KUBERNETES_NETWORK_POLICY, (namespace,))
    snapshot = store.read([accounts, policies], deadline=deadline_in())
    assert snapshot.list(policies) == ()
    account = {"metadata": {"name": "web", "labels": {"role": "web"}}}
    api_server.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    spec = {"podSelector": {"matchLabels": {"app": "b"}}, "ingress": [{"from": [{"podSelector": {}}]}]}
    policy = {"metadata": {"name": "allow"}, "spec": spec}
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    api_server.create(path, policy)
    key = SERVICE_ACCOUNT.key(namespace, "web")
    (made,) = (
        one.value for one in changes(store, SERVICE_ACCOUNT, snapshot.revision(SERVICE_ACCOUNT), 1) if one.key == key
    )
    assert isinstance(made, ServiceAccountFacts)
    assert (made.namespace, made.name, made.labels) == (namespace, "web", (("role", "web"),))
    found = store.read([Get(key), policies], deadline=deadline_in())
    assert found.find(key) is not None
    (record,) = found.list(policies)
    assert record.key == KUBERNETES_NETWORK_POLICY.key(namespace, "allow")
    assert record.value.spec.pods.labels == (("app", "b"),)
    assert record.value.spec.directions == (Direction.INGRESS,)
    api_server.request("DELETE", f"{path}/allow")
    first, last = changes(store, KUBERNETES_NETWORK_POLICY, snapshot.revision(KUBERNETES_NETWORK_POLICY), 2)
    assert (first.value, last.value, last.key) == (record.value, None, record.key)


def test_a_resource_needs_its_namespace(api_server: ApiServer, store: KubernetesDatastore) -> None:
    install_definitions(api_server, CrdMode.V1)
    policy = evolve(NETWORK_POLICY, metadata=Metadata(name="web", namespace="nowhere"))
    with pytest.raises(RejectedByServer, match='namespaces "nowhere" not found'):
        store.commit([Create(key_of(policy), policy)], deadline=deadline_in())
    assert store.read([List(policies := key_of(policy).kind)], deadline=deadline_in()).list(List(policies)) == ()


def test_they_are_not_written(store: KubernetesDatastore, namespace: str) -> None:
    pod, space = PodFacts(namespace=namespace, name="web", uid=""), NamespaceFacts(name=namespace, uid="")
    revision = Revision("u/7")
    writes: list[Write] = [
        Create(POD.key(namespace, "web"), pod),
        Update(POD.key(namespace, "web"), pod, revision),
        Delete(POD.key(namespace, "web"), revision),
        Create(NAMESPACE.key(namespace), space),
        Update(NAMESPACE.key(namespace), space, revision),
        Delete(NAMESPACE.key(namespace), revision),
    ]
    for write in writes:
        with pytest.raises(NotSupported, match="pods, namespaces and their like are the cluster's own"):
            store.commit([write], deadline=deadline_in())


def test_the_endpoints_of_one_node_are_watched(
    api_server: ApiServer, store: KubernetesDatastore, namespace: str
) -> None:
    """Those that exist come first. Pods of other nodes do not come."""
    node = f"{_NODE}-{next(_NUMBERS)}"
    make_pod(api_server, namespace, "here", node=node)
    make_pod(api_server, namespace, "there", node=f"{node}-b")
    watch = store.watch_endpoints(node, deadline=deadline_in())
    assert isinstance(watch, LiveWatch)
    first = next(watch)
    path = f"/api/v1/namespaces/{namespace}/pods"
    api_server.request("PATCH", f"{path}/here", {"metadata": {"labels": {"a": "1"}}}, content_type=_MERGE)
    make_pod(api_server, namespace, "there-too", node=f"{node}-b")
    api_server.request("DELETE", f"{path}/here?gracePeriodSeconds=0")
    later = list(islice(watch, 3))
    watch.close()
    assert [event.value is None for event in (first, *later)] == [False, False, False, True]
    assert len({event.key for event in (first, *later)}) == 1
    changed = store.read([Get(POD.key(namespace, "there"))], deadline=deadline_in())
    assert first.key not in {query.key for query in changed.results if isinstance(query, Get)}
