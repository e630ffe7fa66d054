"""Blocks, claims and handles as objects of a real API server, in both modes: cases of the catalogue, by their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice

import pytest
from attrs import frozen

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, RateLimiter
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode, host_hash_label
from netplug_core.addressing import Family, Prefix
from netplug_core.ipam import model as blocks
from netplug_core.ipam.allocation.context import ADDRESSES_PER_COMMIT
from netplug_core.ipam.model import (
    AFFINITY,
    Affinity,
    AffinityState,
    Block,
    Handle,
    affinities_query,
    affinity_key,
    current_affinities_query,
    handle_key,
)
from netplug_core.records import Create, Delete, Get, Key, List, Record
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.settings.model import KubernetesAccess
from tests.harness.servers.http_stub import SendReply, open_http_stub
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_namespace,
    make_pod,
    open_store,
)
from tests.harness.waiting import deadline_in, is_eventually

pytestmark = pytest.mark.apiserver

PREFIX = Prefix.parse("192.168.1.0/24")
CONFIRMED = Affinity(state=AffinityState.CONFIRMED)
BLOCK = Block.new(Prefix.parse("10.9.0.0/30"), owner="host:node-a", now_ns=1)
RECORDS: list[tuple[Key[object], object, str]] = [
    (BLOCK.key, BLOCK, "ipamblocks/10-9-0-0-30"),
    (affinity_key("host:node-a", PREFIX), CONFIRMED, "blockaffinities/node-a-192-168-1-0-24"),
    (handle_key("k8s-pod-network.abc"), Handle(blocks=((PREFIX, 1),)), "ipamhandles/k8s-pod-network.abc"),
]


@frozen
class KubernetesStoreFixture:
    """A server with the definitions of one mode, and an empty store in it."""

    server: ApiServer
    store: KubernetesDatastore
    mode: CrdMode

    def find(self, key: Key[object]) -> Record[object] | None:
        return self.store.read([Get(key)], deadline=deadline_in()).find(key)

    def listed(self, query: List[object]) -> list[Key[object]]:
        return [record.key for record in self.store.read([query], deadline=deadline_in()).list(query)]

    def path(self, rest: str) -> str:
        return f"/apis/{self.mode.value}/{rest}"

    def metadata(self, rest: str) -> Mapping[str, object]:
        found = self.server.get(self.path(rest))["metadata"]
        assert isinstance(found, dict)
        return found

    def mark_deleted(self, rest: str) -> None:
        """Do the first step of those that delete in two, and then die."""
        deleted: object = "true" if self.mode is CrdMode.V1 and rest.startswith("blockaffinities") else True
        flag = {"spec": {"deleted": deleted}}
        self.server.request("PATCH", self.path(rest), flag, content_type="application/merge-patch+json")


@pytest.fixture(params=list(CrdMode), ids=lambda mode: mode.name)
def cluster(request: pytest.FixtureRequest, api_server: ApiServer) -> Iterator[KubernetesStoreFixture]:
    """Each mode in turn."""
    mode: CrdMode = request.param
    install_definitions(api_server, mode)
    delete_custom_objects(api_server, mode)
    with open_store(api_server, mode) as store:
        yield KubernetesStoreFixture(api_server, store, mode)


def test_s7_the_object_of_a_claim_is_labelled(cluster: KubernetesStoreFixture) -> None:
    cluster.store.commit([Create(affinity_key("host:my-host", PREFIX), CONFIRMED)], deadline=deadline_in())
    assert cluster.metadata("blockaffinities/my-host-192-168-1-0-24")["labels"] == {
        "projectnetplug.org/hostname-hash": host_hash_label("my-host"),
        "projectnetplug.org/affinity-type": "host",
        "projectnetplug.org/ip-version": "4",
    }


def test_s10_hosts_with_long_names_that_begin_alike_have_a_claim_each(cluster: KubernetesStoreFixture) -> None:
    hosts = ["h" * 240 + letter * 12 for letter in "ab"]
    keys = [affinity_key(f"host:{host}", PREFIX) for host in hosts]
    cluster.store.commit([Create(key, CONFIRMED) for key in keys], deadline=deadline_in())
    assert cluster.listed(List(AFFINITY)) == keys
    for key in keys:
        assert cluster.listed(List(AFFINITY, key.path[:2])) == [key]


def test_s11_a_claim_without_type_is_a_hosts_and_can_be_deleted(cluster: KubernetesStoreFixture) -> None:
    """Trap 7: it has no labels either, as those of the oldest writers; a list of all finds it."""
    name = "node-a-192-168-1-0-24"
    spec: dict[str, object] = {"state": "confirmed", "node": "node-a", "cidr": "192.168.1.0/24"}
    spec["deleted"] = "false" if cluster.mode is CrdMode.V1 else False
    body = {"apiVersion": cluster.mode.value, "kind": "BlockAffinity", "metadata": {"name": name}, "spec": spec}
    cluster.server.create(cluster.path("blockaffinities"), body)
    key = affinity_key("host:node-a", PREFIX)
    assert cluster.listed(List(AFFINITY)) == [key]
    record = cluster.find(key)
    assert record is not None
    assert record.value == CONFIRMED
    cluster.store.commit([Delete(key, record.revision)], deadline=deadline_in())
    assert cluster.find(key) is None


@pytest.mark.parametrize("key,value,path", RECORDS, ids=["block", "claim", "handle"])
def test_d8_a_record_that_was_marked_and_not_deleted_is_seen_by_nobody(
    cluster: KubernetesStoreFixture, key: Key[object], value: object, path: str
) -> None:
    """Trap 2: get, list, page and watch; whoever comes next finds room."""
    (revision,) = cluster.store.commit([Create(key, value)], deadline=deadline_in())
    start = dict(cluster.store.read([List(key.kind)], deadline=deadline_in()).revisions)
    cluster.mark_deleted(path)
    assert cluster.find(key) is None
    assert cluster.listed(List(key.kind)) == []
    assert cluster.listed(List(key.kind, key.path)) == []
    assert cluster.listed(List(key.kind, limit=1)) == []
    told = list(islice(cluster.store.watch(start, deadline=deadline_in()), 1))
    assert [(change.key, change.value) for change in told] == [(key, None)]
    (again,) = cluster.store.commit([Create(key, value)], deadline=deadline_in())
    assert again != revision
    assert cluster.find(key) == Record(key, value, again)


def test_s25_a_pod_that_has_no_address_is_not_written_to(api_server: ApiServer) -> None:
    """The plugin alone writes, and only when it has addresses; looking at an endpoint changes nothing."""
    namespace = make_namespace(api_server, "quiet")
    make_pod(api_server, namespace, "web-0", node="node-1")
    path = f"/api/v1/namespaces/{namespace}/pods/web-0"
    before = api_server.get(path)
    with open_store(api_server, CrdMode.V1) as store:
        query = List(WORKLOAD_ENDPOINT, (namespace,))
        (record,) = store.read([query], deadline=deadline_in()).list(query)
    assert record.value.spec.addresses == ()
    assert api_server.get(path) == before


@pytest.mark.parametrize("mode", list(CrdMode))
def test_s9_a_nodes_claims_are_asked_for_by_label_and_not_by_name(mode: CrdMode) -> None:
    clock = SystemClock()
    empty_list = SendReply(200, {"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []})
    with open_http_stub(lambda _received: empty_list) as server:
        access = AccessSource(KubernetesAccess(api_root=server.url), {})
        store = KubernetesDatastore(ApiClient(access, clock=clock, rate_limiter=RateLimiter(clock=clock)), mode=mode)
        store.read([List(AFFINITY, ("host", "my-host"))], deadline=deadline_in())
        store.close()
    listed = [call for call in server.calls if "blockaffinities" in call]
    assert listed
    assert all(f"/apis/{mode.value}/blockaffinities?" in call for call in listed)
    assert "labelSelector=" in listed[0]
    assert host_hash_label("my-host") in listed[0]
    assert not any("metadata.name" in call for call in listed)


def test_a_list_that_may_be_cached_is_asked_of_the_cache_and_its_further_pages_are_not() -> None:
    """A page's token names the state, and the server refuses another one beside it."""
    pages = [
        {"kind": "List", "metadata": {"resourceVersion": "7", "continue": "token"}, "items": []},
        {"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []},
    ]
    clock = SystemClock()
    cached, current = affinities_query("host:n", Family.IPV4), current_affinities_query("host:n", Family.IPV4)
    with open_http_stub(lambda _received: SendReply(200, pages.pop(0) if len(pages) > 1 else pages[0])) as server:
        access = AccessSource(KubernetesAccess(api_root=server.url), {})
        client = ApiClient(access, clock=clock, rate_limiter=RateLimiter(clock=clock))
        with closing(KubernetesDatastore(client, mode=CrdMode.V1)) as store:
            snapshot = store.read([cached], deadline=deadline_in())
            assert snapshot.results[cached].is_cached
            assert not store.read([current], deadline=deadline_in()).results[current].is_cached
    assert ["resourceVersion=0" in call for call in server.calls] == [True, False, False]
    assert "continue=token" in server.calls[1]


def test_blocks_beside_each_other_and_single_ones_are_read_with_one_request() -> None:
    """A request for each would take longer, and the server can select neither by the beginning of a name."""
    clock = SystemClock()
    empty_list = SendReply(200, {"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []})
    with open_http_stub(lambda _received: empty_list) as server:
        access = AccessSource(KubernetesAccess(api_root=server.url), {})
        client = ApiClient(access, clock=clock, rate_limiter=RateLimiter(clock=clock))
        with closing(KubernetesDatastore(client, mode=CrdMode.V1)) as store:
            beside = [List(blocks.BLOCK, ("ipv4",), name_prefix=text) for text in ("10.0.1.", "10.0.2.")]
            single = Get(blocks.BLOCK.key("ipv4", "10.0.0.0/20"))
            snapshot = store.read([*beside, single], deadline=deadline_in())
            assert [snapshot.list(query) for query in beside] == [(), ()]
            assert snapshot.find(single) is None
    assert len(server.calls) == 1


@pytest.mark.parametrize("count,requests", [(2 * ADDRESSES_PER_COMMIT, 2 * ADDRESSES_PER_COMMIT), (132, 1)])
def test_the_keys_of_a_bulk_change_are_read_one_by_one(count: int, requests: int) -> None:
    """A list has the whole cluster. What a new block may overlap is more than any bulk change reads."""
    clock = SystemClock()
    nothing = SendReply(404, {"kind": "Status", "reason": "NotFound", "code": 404, "details": {"name": "h"}})
    empty_list = SendReply(200, {"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []})
    with open_http_stub(lambda received: nothing if "/ipamhandles/" in received.path else empty_list) as server:
        access = AccessSource(KubernetesAccess(api_root=server.url), {})
        client = ApiClient(access, clock=clock, rate_limiter=RateLimiter(clock=clock))
        with closing(KubernetesDatastore(client, mode=CrdMode.V1)) as store:
            keys = [handle_key(f"net.c{number}") for number in range(count)]
            snapshot = store.read([Get(key) for key in keys], deadline=deadline_in())
            assert [snapshot.find(key) for key in keys] == [None] * count
    assert len(server.calls) == requests


def test_a_cached_list_shows_what_was_stored_a_while_ago(cluster: KubernetesStoreFixture) -> None:
    key = affinity_key("host:cached-host", PREFIX)
    query = affinities_query("host:cached-host", PREFIX.family)
    cluster.store.commit([Create(key, CONFIRMED)], deadline=deadline_in())
    assert is_eventually(lambda: cluster.listed(query) == [key])
