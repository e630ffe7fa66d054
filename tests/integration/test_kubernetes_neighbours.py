"""What a claim reads of a cluster's blocks on a real API server: names of all, and the objects of a few.

A claim asks for the blocks that are beside the new one. The server can select nothing by the beginning of a name, and
a list of whole blocks has ten times as many bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import METADATA_TYPE, ApiClient, ApiReply, ApiRequest, RateLimiter
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.kinds.customobjects import CustomObjectStore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.allocation.acquire import find_overlap, overlap_queries
from netplug_core.ipam.model import BLOCK, FULL, Attribute, Block, block_key, block_query, blocks_path, host_owner
from netplug_core.records import Create, Delete, Get, List, Query, Snapshot, Update
from netplug_core.settings.model import KubernetesAccess
from tests.harness.servers.http_stub import ReceivedRequest, SendReply, open_http_stub
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

POOL = Prefix.parse("10.8.0.0/16")
LENGTH = 26
BLOCKS = 48
NEW = POOL.subprefix(BLOCKS + 1, LENGTH)
OTHERS_OF_256 = tuple(POOL.subprefix(number, LENGTH) for number in range(BLOCKS, BLOCKS + 4) if number != BLOCKS + 1)


class CountingClient(ApiClient):
    """A client that counts its requests and the bytes of the replies; ``after_names`` runs after a list of names."""

    def __init__(self, server: ApiServer) -> None:
        clock = SystemClock()
        settings = KubernetesAccess(kubeconfig=server.write_kubeconfig())
        limiter = RateLimiter(clock=clock, qps=10_000, burst=10_000)
        super().__init__(AccessSource(settings, {}), clock=clock, rate_limiter=limiter)
        self.requests: list[str] = []
        self.received = 0
        self.after_names: Callable[[], object] = lambda: None

    def send(self, request: ApiRequest, *, deadline: Deadline) -> ApiReply:
        reply = super().send(request, deadline=deadline)
        kind = "names" if request.accept == METADATA_TYPE else "list" if "limit" in request.query else "single"
        self.requests.append(kind)
        self.received += len(json.dumps(reply.object))
        if kind == "names":
            self.after_names()
        return reply

    def take_counts(self) -> tuple[list[str], int]:
        """The requests and bytes since the last question."""
        taken = self.requests, self.received
        self.requests, self.received = [], 0
        return taken


def full_block(prefix: Prefix) -> Block:
    """Each address is held by another pod."""
    block = Block.new(prefix, owner=host_owner("node-b"), now_ns=SystemClock().now_ns())
    for ordinal in block.free:
        handle = f"k8s-pod-network.{ordinal:03}6d4cf56db66d4cf56db66d4cf56db66d4cf56db6"
        owner = (("namespace", "production"), ("node", "node-b"), ("pod", f"web-{ordinal:03}"))
        block = block.assign((ordinal,), Attribute(handle=handle, owner=owner))
    return block


@pytest.fixture(scope="module")
def filled(api_server: ApiServer) -> ApiServer:
    """A server with 48 full blocks."""
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    store = KubernetesDatastore(CountingClient(api_server), mode=CrdMode.V1)
    for number in range(BLOCKS):
        block = full_block(POOL.subprefix(number, LENGTH))
        store.commit([Create(block.key, block)], deadline=deadline_in())
    store.close()
    return api_server


@pytest.fixture
def client(filled: ApiServer) -> CountingClient:
    return CountingClient(filled)


@pytest.fixture
def store(client: CountingClient) -> Iterator[KubernetesDatastore]:
    """The store of the module; what a test has added to the blocks is deleted after it."""
    opened = KubernetesDatastore(client, mode=CrdMode.V1)
    yield opened
    client.after_names = lambda: None
    kept = {block_key(POOL.subprefix(number, LENGTH)) for number in range(BLOCKS)}
    everything = List(BLOCK)
    for record in opened.read([everything], deadline=deadline_in()).readable(everything):
        if record.key not in kept:
            opened.commit([Delete(record.key, record.revision)], deadline=deadline_in())
    opened.close()


def read(store: KubernetesDatastore, *queries: Query) -> Snapshot:
    return store.read(queries, deadline=deadline_in())


def put(store: KubernetesDatastore, prefix: Prefix) -> None:
    block = Block.new(prefix, owner=host_owner("node-b"), now_ns=1)
    store.commit([Create(block.key, block)], deadline=deadline_in())


def test_a_claim_reads_names_and_the_objects_beside_its_block(
    store: KubernetesDatastore, client: CountingClient
) -> None:
    for other in OTHERS_OF_256:
        put(store, other)
    client.take_counts()
    read(store, List(BLOCK, blocks_path(POOL.family), keys_only_if=FULL))
    _requests, of_whole_list = client.take_counts()
    snapshot = read(store, Get(block_key(NEW)), *overlap_queries([NEW]))
    requests, received = client.take_counts()
    assert requests == ["names", "single", "single", "single"]
    assert received < of_whole_list / 8
    assert snapshot.find(Get(block_key(NEW))) is None
    assert find_overlap(snapshot, NEW) is None
    (near, *_around) = overlap_queries([NEW])
    assert isinstance(near, List)
    assert [record.key for record in snapshot.list(near)] == sorted(map(block_key, OTHERS_OF_256))


@pytest.mark.parametrize("other", ["10.8.12.64/28", "10.8.12.0/25", "10.8.12.0/24", "10.8.8.0/21", "10.8.0.0/20"])
def test_a_block_of_another_size_is_found(store: KubernetesDatastore, other: str) -> None:
    assert str(NEW) == "10.8.12.64/26"
    put(store, Prefix.parse(other))
    assert find_overlap(read(store, *overlap_queries([NEW])), NEW) == Prefix.parse(other)


@pytest.mark.parametrize("other", ["fd00:8::12c0/123", "fd00:8::1200/120", "fd00:8::1000/116"])
def test_a_block_of_another_size_is_found_in_ipv6(store: KubernetesDatastore, other: str) -> None:
    new = Prefix.parse("fd00:8::12c0/122")
    put(store, Prefix.parse(other))
    assert find_overlap(read(store, *overlap_queries([new])), new) == Prefix.parse(other)


def test_a_block_that_goes_between_the_two_requests_is_absent(
    store: KubernetesDatastore, client: CountingClient
) -> None:
    put(store, Prefix.parse("10.8.12.64/28"))

    def remove() -> None:
        query = block_query(Prefix.parse("10.8.12.64/28"))
        record = read(store, query).find(query)
        assert record is not None
        store.commit([Delete(record.key, record.revision)], deadline=deadline_in())

    client.after_names = remove
    assert find_overlap(read(store, *overlap_queries([NEW])), NEW) is None


def test_a_block_that_changes_between_the_two_requests_is_shown_as_it_is_then(
    store: KubernetesDatastore, client: CountingClient
) -> None:
    put(store, NEW)
    query = block_query(NEW)

    def change() -> None:
        record = read(store, query).find(query)
        assert record is not None
        store.commit([Update(query.key, record.value.touched(), record.revision)], deadline=deadline_in())

    client.after_names = change
    found = read(store, query, *overlap_queries([NEW])).find(query)
    assert found is not None
    assert found.value.sequence == 1 + 1
    store.commit([Update(query.key, found.value.touched(), found.revision)], deadline=deadline_in())


def test_a_block_that_is_only_marked_as_deleted_is_absent(store: KubernetesDatastore, filled: ApiServer) -> None:
    put(store, Prefix.parse("10.8.12.64/28"))
    path = f"/apis/{CrdMode.V1.value}/ipamblocks/10-8-12-64-28"
    marked: dict[str, object] = {"spec": {"deleted": True}}
    filled.request("PATCH", path, marked, content_type="application/merge-patch+json")
    assert find_overlap(read(store, *overlap_queries([NEW])), NEW) is None
    filled.request("DELETE", path)


def test_a_damaged_block_is_found_too(store: KubernetesDatastore, filled: ApiServer) -> None:
    put(store, Prefix.parse("10.8.12.64/28"))
    path = f"/apis/{CrdMode.V1.value}/ipamblocks/10-8-12-64-28"
    damaged: dict[str, object] = {"spec": {"allocations": [7]}}
    filled.request("PATCH", path, damaged, content_type="application/merge-patch+json")
    snapshot = read(store, *overlap_queries([NEW]))
    found = find_overlap(snapshot, NEW)
    while not isinstance(found, Prefix):
        assert found is not None
        snapshot = snapshot.merged(read(store, *found.queries))
        found = find_overlap(snapshot, NEW)
    assert found == Prefix.parse("10.8.12.64/28")
    filled.request("DELETE", path)


def test_a_few_of_many_are_read_one_by_one_even_if_they_are_more(
    store: KubernetesDatastore, client: CountingClient
) -> None:
    for other in OTHERS_OF_256:
        put(store, other)
    client.take_counts()
    objects = CustomObjectStore(client, CrdMode.V1)
    result = objects.find_by_names(List(BLOCK), overlap_queries([NEW]), 1, deadline=deadline_in())
    assert [record.key for record in result.found.records] == sorted(map(block_key, OTHERS_OF_256))
    assert client.take_counts()[0] == ["names", "single", "single", "single"]


def test_more_blocks_than_are_read_one_by_one_are_read_with_one_list(
    store: KubernetesDatastore, client: CountingClient
) -> None:
    small = [POOL.subprefix(number, 32) for number in range(12 * 256, 12 * 256 + 65)]
    for prefix in small:
        put(store, prefix)
    client.take_counts()
    (near, *_around) = overlap_queries([NEW])
    assert isinstance(near, List)
    assert {record.key for record in read(store, near).list(near)} == set(map(block_key, small))
    assert client.take_counts()[0] == ["names", "list"]


def test_a_server_that_sends_whole_objects_instead_of_names_is_understood(
    store: KubernetesDatastore, filled: ApiServer
) -> None:
    """As one in front of the cluster may, which knows no other form of a list."""
    put(store, Prefix.parse("10.8.12.64/28"))
    collection = f"/apis/{CrdMode.V1.value}/ipamblocks"
    whole = filled.get(collection)

    def reply(received: ReceivedRequest) -> SendReply:
        path = received.path.partition("?")[0]
        return SendReply(200, whole if path == collection else filled.get(path))

    with open_http_stub(reply) as server:
        clock = SystemClock()
        access = AccessSource(KubernetesAccess(api_root=server.url), {})
        plain = ApiClient(access, clock=clock, rate_limiter=RateLimiter(clock=clock))
        with closing(KubernetesDatastore(plain, mode=CrdMode.V1)) as behind:
            assert find_overlap(read(behind, *overlap_queries([NEW])), NEW) == Prefix.parse("10.8.12.64/28")
    assert len(server.calls) == 1 + 1
