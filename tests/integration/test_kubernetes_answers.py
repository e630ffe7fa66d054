"""What the store makes of answers that are none, of conditions that are none, and of names that nothing can have."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, RateLimiter
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode, affinity_name
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.ipam.model import AFFINITY, HANDLE, Affinity, AffinityState, Handle, affinity_key, handle_key
from netplug_core.records import (
    AlreadyExists,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    List,
    Malformed,
    NotFound,
    OutcomeUnknown,
    Query,
    Revision,
    Update,
    Write,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.profile import PROFILE
from netplug_core.resources.workloadendpoint import (
    WORKLOAD_ENDPOINT,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from netplug_core.settings.model import KubernetesAccess
from tests.harness.servers.http_stub import (
    CloseConnection,
    HTTPStubServer,
    ReceivedRequest,
    SendReply,
    SendStream,
    StubAction,
    StubScript,
    open_http_stub,
)

_CLOCK = SystemClock()
_PATH = "/apis/crd.projectnetplug.org/v1/ipamhandles"
_PREFIX = Prefix.parse("10.0.0.0/26")
_ONE = Handle(blocks=((_PREFIX, 1),))
_KEY = handle_key("h")
_SEEN = Revision("u/7")
_POD = WORKLOAD_ENDPOINT.key("shop", "n-k8s-web-eth0")
_ENDPOINT = WorkloadEndpoint(
    metadata=Metadata(name=_POD.name, namespace="shop"),
    spec=WorkloadEndpointSpec(orchestrator="k8s", node="n", pod="web", endpoint="eth0"),
)
_NODE = Node(metadata=Metadata(name="n"))


def soon(seconds: float = 60.0) -> Deadline:
    return Deadline.after(_CLOCK, seconds)


def named(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "uid": "u", "resourceVersion": "7", **more}


def handle_object(**metadata: object) -> dict[str, object]:
    return {"metadata": named("h", **metadata), "spec": {"handleID": "h", "block": {"10.0.0.0/26": 1}}}


def pod_object(name: str = "web") -> dict[str, object]:
    return {"metadata": named(name, namespace="shop"), "spec": {"nodeName": "n"}}


def refused(code: int, reason: str, message: str = "") -> SendReply:
    return SendReply(
        code, {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {"name": "h"}}
    )


@contextmanager
def store_on(
    script: StubScript, mode: CrdMode | None = CrdMode.V1
) -> Iterator[tuple[KubernetesDatastore, HTTPStubServer]]:
    with open_http_stub(script) as server:
        store = KubernetesDatastore(open_client(server), mode=mode)
        yield store, server
        store.close()


def open_client(server: HTTPStubServer) -> ApiClient:
    source = AccessSource(KubernetesAccess(api_root=server.url), {})
    return ApiClient(source, clock=_CLOCK, rate_limiter=RateLimiter(clock=_CLOCK))


def by_method(acts: Mapping[str, StubAction]) -> StubScript:
    return lambda received: acts[received.method]


# --- answers that are none -------------------------------------------------------------------------------------------

_LISTS: tuple[Query, ...] = (List(HANDLE), List(IPPOOL), List(NODE), List(WORKLOAD_ENDPOINT), List(PROFILE))
_GETS: tuple[Query, ...] = (Get(_KEY), Get(node_key("n")), Get(_POD), Get(PROFILE.key("kns.shop")))
_NONE = [
    "",
    "{}",
    '{"status":"ok"}',
    '{"kind":"Status"}',
    '{"items":{}}',
    '{"items":["x"]}',
    '{"metadata":{"uid":"u"}}',
]


@pytest.mark.parametrize("body", _NONE)
@pytest.mark.parametrize("query", [*_LISTS, *_GETS], ids=str)
def test_what_is_no_list_and_no_object_does_not_say_that_there_is_nothing(query: Query, body: str) -> None:
    """As somebody between us and the server may answer: a controller would take it for an empty cluster."""
    with store_on(lambda _: SendReply(200, body)) as (store, _):
        with pytest.raises(Unavailable, match="the answer is none of the API's: it has no ") as refusal:
            store.read([query], deadline=soon())
        assert not isinstance(refusal.value, OutcomeUnknown)


@pytest.mark.parametrize("query", _LISTS, ids=str)
def test_a_list_without_items_is_an_empty_one_if_it_says_so(query: Query) -> None:
    with store_on(lambda _: SendReply(200, {"metadata": {"resourceVersion": "7"}, "items": None})) as (store, _):
        listed = store.read([query], deadline=soon()).results[query].records
        assert [record.key.name for record in listed if record.key.kind != PROFILE] == []


@pytest.mark.parametrize("body", _NONE)
@pytest.mark.parametrize(
    "write",
    [
        Create(_KEY, _ONE),
        Update(_KEY, _ONE, _SEEN),
        Delete(_KEY, _SEEN),
        Update(node_key("n"), _NODE, _SEEN),
        Update(_POD, _ENDPOINT, _SEEN),
        Delete(_POD, _SEEN),
    ],
    ids=lambda write: f"{type(write).__name__}-{write.key.kind}",
)
def test_a_write_that_brings_no_object_back_has_an_unknown_outcome(write: Write, body: str) -> None:
    now = {"metadata": named("n")} if isinstance(write, Update) and write.key == node_key("n") else handle_object()

    def script(received: ReceivedRequest) -> StubAction:
        return SendReply(200, now if received.method == "GET" else body)

    with store_on(script) as (store, server):
        with pytest.raises(OutcomeUnknown, match="none of the API's: it has no uid and resourceVersion"):
            store.commit([write], deadline=soon())
        assert [received.method != "GET" for received in server.requests].count(True) == 1, "a write is sent once"


@pytest.mark.parametrize("answer", [{"kind": "Status", "status": "Success"}, handle_object(finalizers=["a.example/x"])])
def test_a_deletion_is_answered_by_a_status_or_by_what_waits_for_its_finalizers(answer: object) -> None:
    with store_on(lambda _: SendReply(200, answer)) as (store, _):
        assert store.commit([Delete(_KEY, _SEEN)], deadline=soon()) == (_SEEN,)


@pytest.mark.parametrize("body", ["", "{}", '{"status":"ok"}', '{"groups":{}}'])
def test_an_answer_without_groups_is_not_an_empty_list(body: str) -> None:
    with store_on(lambda _: SendReply(200, body), mode=None) as (store, server):
        with pytest.raises(Unavailable, match="the answer is none of the API's: it has no list of groups"):
            store.read([Get(_KEY)], deadline=soon())
        assert server.calls == ["GET /apis"]


@pytest.mark.parametrize("event", ["Log in", "{}", {"type": "ADDED"}, {"type": "ADDED", "object": []}])
def test_a_watch_that_answers_no_events_is_not_taken_for_a_quiet_one(event: object) -> None:
    with (
        store_on(lambda _: SendStream([event])) as (store, _),
        pytest.raises(Unavailable, match="none of the API's: "),
    ):
        list(store.watch({HANDLE: Revision("7")}, deadline=soon()))


def test_an_answer_that_is_nested_beyond_measure_is_none_of_the_apis() -> None:
    with (
        store_on(lambda _: SendReply(200, "[" * 100_000)) as (store, _),
        pytest.raises(Unavailable, match="none of the API"),
    ):
        store.read([List(HANDLE)], deadline=soon())


# --- refusals that say what to do ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mode,query,hint",
    [
        (None, Get(_KEY), "no Kubernetes API answers at this address: 404 page not found"),
        (CrdMode.V1, Get(_POD), "no Kubernetes API answers at this address: 404 page not found"),
        (CrdMode.V1, List(NODE), "no Kubernetes API answers at this address: 404 page not found"),
        (CrdMode.V1, Get(_KEY), "are netplug's custom resource definitions installed?"),
        (CrdMode.V3, List(HANDLE), "are netplug's custom resource definitions installed?"),
    ],
)
def test_only_our_own_paths_are_missing_for_want_of_definitions(mode: CrdMode | None, query: Query, hint: str) -> None:
    with store_on(lambda _: SendReply(404, "404 page not found\n"), mode) as (store, _):
        with pytest.raises(Unavailable) as refusal:
            store.read([query], deadline=soon())
        assert str(refusal.value).endswith(hint)


def test_what_the_schema_refuses_is_one_sentence_and_the_servers() -> None:
    sentence = 'IPAMHandle.crd.projectnetplug.org "h" is invalid: spec.block: no'
    with store_on(lambda _: refused(422, "Invalid", sentence)) as (store, server):
        with pytest.raises(ConfigurationError) as refusal:
            store.commit([Create(_KEY, _ONE)], deadline=soon())
        assert str(refusal.value) == f"kubernetes API {server.url}: POST {_PATH}: {sentence}"
        assert refusal.value.code == 7


@pytest.mark.parametrize("code", [301, 302, 307, 308])
@pytest.mark.parametrize(
    "location,shown",
    [
        ("https://login.example/in?token=s3cret", "https://login.example/in"),
        ("https://login.example/in#token=s3cret", "https://login.example/in"),
        ("https://us:s3cret@login.example/in", "…"),
    ],
)
def test_an_answer_that_leads_elsewhere_says_where_and_no_secret(code: int, location: str, shown: str) -> None:
    with store_on(lambda _: SendReply(code, "", (("Location", location),))) as (store, _):
        for act in (
            lambda: store.read([Get(_KEY)], deadline=soon()),
            lambda: store.commit([Create(_KEY, _ONE)], deadline=soon()),
        ):
            with pytest.raises(Unavailable) as refusal:
                act()
            assert str(refusal.value).endswith(f": HTTP status {code}, which leads to {shown}")
    with (
        store_on(lambda _: SendReply(code)) as (store, _),
        pytest.raises(Unavailable, match=f"{code}, which leads to nowhere"),
    ):
        store.read([Get(_KEY)], deadline=soon())


def test_a_server_that_does_not_speak_http_may_speak_tls() -> None:
    with store_on(lambda _: CloseConnection()) as (store, _):
        with pytest.raises(Unavailable, match=r"does the server speak TLS\? Then write https"):
            store.read([Get(_KEY)], deadline=soon())
        with pytest.raises(OutcomeUnknown, match="Then write https"):
            store.commit([Create(_KEY, _ONE)], deadline=soon())
        with pytest.raises(Unavailable, match="Then write https"):
            list(store.watch({HANDLE: Revision("7")}, deadline=soon()))


def test_a_server_that_has_answered_is_not_suspected_of_tls() -> None:
    acts: list[StubAction] = [SendReply(200, handle_object()), CloseConnection()]
    with store_on(lambda _: acts.pop(0)) as (store, _):
        store.read([Get(_KEY)], deadline=soon())
        with pytest.raises(OutcomeUnknown) as refusal:
            store.commit([Create(_KEY, _ONE)], deadline=soon())
        assert "TLS" not in str(refusal.value)


def test_an_address_may_be_of_ipv6() -> None:
    found = SendReply(200, handle_object())
    with open_http_stub(lambda _: found, "::1") as server:
        store = KubernetesDatastore(open_client(server), mode=CrdMode.V1)
        assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is not None
        store.close()
        assert [f"http://{received.host}" for received in server.requests] == [server.url]


# --- conditions that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["", "5", "abc", "/", "u/", "/7", "u/x", "u/\u0667", "u/-7"])
@pytest.mark.parametrize(
    "key,value,found",
    [
        (_KEY, _ONE, handle_object()),
        (_POD, _ENDPOINT, pod_object()),
        (
            IPPOOL.key("main"),
            IPPool.for_prefix(_PREFIX, name="main"),
            {"metadata": named("main"), "spec": {"cidr": "10.0.0.0/26"}},
        ),
        (node_key("n"), _NODE, {"metadata": named("n")}),
    ],
    ids=["handle", "endpoint", "pool", "node"],
)
def test_s1_s5_a_revision_that_nothing_ever_had_is_a_lost_race_and_no_write(
    key: Key[object], value: object, found: Mapping[str, object], revision: str
) -> None:
    """S-4 as well: the server takes an empty condition for none, and would do it."""
    writes: list[Write] = [Update(key, value, Revision(revision))]
    if key.kind != NODE:
        writes.append(Delete(key, Revision(revision)))
    with store_on(lambda _: SendReply(200, found)) as (store, server):
        for write in writes:
            with pytest.raises(Conflict) as refusal:
                store.commit([write], deadline=soon())
            assert refusal.value.current is not None
            assert refusal.value.current.revision == "u/7"
        assert {received.method for received in server.requests} == {"GET"}
    with store_on(lambda _: refused(404, "NotFound")) as (store, server):
        for write in writes:
            with pytest.raises(NotFound):
                store.commit([write], deadline=soon())
        assert {received.method for received in server.requests} == {"GET"}


def test_a_write_names_the_object_and_its_state_in_its_body() -> None:
    """The uid as well: an object that was made again under the name is another."""
    with store_on(lambda _: SendReply(200, handle_object())) as (store, server):
        store.commit([Update(_KEY, _ONE, _SEEN)], deadline=soon())
        store.commit([Delete(_KEY, _SEEN)], deadline=soon())
    _, put, delete = [received.body for received in server.requests]
    assert isinstance(put, dict)
    assert isinstance(delete, dict)
    assert {name: put["metadata"][name] for name in ("name", "uid", "resourceVersion")} == named("h")
    assert delete["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_a_node_is_written_through_its_status_under_the_version_that_was_read() -> None:
    """Trap 17."""
    with store_on(lambda _: SendReply(200, {"metadata": named("n")})) as (store, server):
        store.commit([Update(node_key("n"), _NODE, _SEEN)], deadline=soon())
    assert server.calls == ["GET /api/v1/nodes/n", "PUT /api/v1/nodes/n/status"]
    body = server.requests[-1].body
    assert isinstance(body, dict)
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == ("u", "7")


def test_an_endpoint_is_written_through_its_pods_status() -> None:
    """Trap 18: an update names the pod's identity alone, a deletion its version as well."""
    with store_on(lambda _: SendReply(200, pod_object())) as (store, server):
        store.commit([Update(_POD, _ENDPOINT, _SEEN)], deadline=soon())
        store.commit([Delete(_POD, _SEEN)], deadline=soon())
    assert server.calls == ["PATCH /api/v1/namespaces/shop/pods/web/status"] * 2
    update, delete = [received.body for received in server.requests]
    assert isinstance(update, dict)
    assert isinstance(delete, dict)
    assert (update["metadata"]["uid"], "resourceVersion" in update["metadata"]) == ("u", False)
    assert (delete["metadata"]["uid"], delete["metadata"]["resourceVersion"]) == ("u", "7")


# --- what is going ---------------------------------------------------------------------------------------------------

_GOING = {"deletionTimestamp": "2026-08-20T10:00:00Z", "finalizers": ["a.example/x"]}


def test_a_record_that_waits_for_finalizers_is_gone_for_everybody() -> None:
    going = handle_object(**_GOING)
    listing = {"metadata": {"resourceVersion": "9"}, "items": [going]}
    with store_on(lambda received: SendReply(200, listing if "?" in received.path else going)) as (store, _):
        assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is None
        assert store.read([List(HANDLE)], deadline=soon()).list(List(HANDLE)) == ()
    with store_on(lambda _: SendStream([{"type": "MODIFIED", "object": going}])) as (store, _):
        change = next(iter(store.watch({HANDLE: Revision("7")}, deadline=soon())))
        assert (change.key, change.value) == (_KEY, None)


def test_a_create_does_not_run_in_circles_while_finalizers_hold_what_is_in_the_way() -> None:
    acts = {"POST": refused(409, "AlreadyExists"), "GET": SendReply(200, handle_object(**_GOING))}
    with store_on(by_method(acts)) as (store, server):
        began = time.monotonic()
        with pytest.raises(Unavailable) as refusal:
            store.commit([Create(_KEY, _ONE)], deadline=soon())
        assert time.monotonic() - began >= 0.2, "whoever has to finish is given a moment"
        assert not isinstance(refusal.value, OutcomeUnknown)
        assert str(refusal.value).endswith(f"POST {_PATH}: h was deleted, and finalizers hold it: a.example/x")
        assert [received.method for received in server.requests] == ["POST", "GET"] * 3


def test_a_create_gives_what_was_marked_the_second_step_and_then_waits_for_it() -> None:
    marked = handle_object(finalizers=["a.example/x"]) | {"spec": {"handleID": "h", "block": {}, "deleted": True}}
    going = handle_object(**_GOING)
    found: list[StubAction] = [SendReply(200, marked), SendReply(200, going)]
    posts: list[StubAction] = [
        refused(409, "AlreadyExists"),
        refused(409, "AlreadyExists"),
        SendReply(201, handle_object()),
    ]

    def script(received: ReceivedRequest) -> StubAction:
        left: dict[str, list[StubAction]] = {"POST": posts, "GET": found, "DELETE": [SendReply(200, going)]}
        return left[received.method].pop(0)

    with store_on(script) as (store, server):
        assert store.commit([Create(_KEY, _ONE)], deadline=soon()) == (_SEEN,)
    assert [received.method for received in server.requests] == ["POST", "GET", "DELETE", "POST", "GET", "POST"]
    body = server.requests[2].body
    assert isinstance(body, dict)
    assert body["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_a_create_that_always_comes_too_late_is_a_lost_race() -> None:
    acts = {"POST": refused(409, "AlreadyExists"), "GET": refused(404, "NotFound")}
    with store_on(by_method(acts)) as (store, server):
        with pytest.raises(AlreadyExists) as refusal:
            store.commit([Create(_KEY, _ONE)], deadline=soon())
        assert refusal.value.current is None
        assert server.calls.count(f"POST {_PATH}") == 3


# --- names that nothing has ------------------------------------------------------------------------------------------


def _keys(name: str) -> Iterator[Key[object]]:
    yield IPPOOL.key(name)
    yield node_key(name)
    yield PROFILE.key(f"kns.{name}")
    yield PROFILE.key(f"ksa.shop.{name}")
    yield WORKLOAD_ENDPOINT.key(name, "n-k8s-web-eth0")
    yield WORKLOAD_ENDPOINT.key("shop", f"n-k8s-{name}-eth0")


@pytest.mark.parametrize(
    "name", ["a/b", "a/status", "..", ".", "", "a%2Fb", "a?x=1", "a b", "A", "a,b", "x" * 254, "a\udcff"]
)
def test_names_that_no_object_has_are_asked_nobody(name: str) -> None:
    """The server reads a slash in a name as a slash, however it is quoted: another path would answer."""
    with store_on(lambda _: SendReply(200, {"metadata": named(name)})) as (store, server):
        for key in _keys(name):
            assert store.read([Get(key)], deadline=soon()).find(key) is None
            for write in _writes(key):
                with pytest.raises(NotFound):
                    store.commit([write], deadline=soon())
        for query in (List(IPPOOL, (name,)), List(NODE, (name,)), List(WORKLOAD_ENDPOINT, (name,))):
            assert store.read([query], deadline=soon()).list(query) == ()
        orchestrator = KubernetesOrchestrator(open_client(server))
        assert orchestrator.find_pod("shop", name, deadline=soon()) is None
        assert orchestrator.find_pod(name, "web", deadline=soon()) is None
        assert orchestrator.find_namespace(name, deadline=soon()) is None
        assert orchestrator.find_node(name, deadline=soon()) is None
        assert server.calls == []


def _writes(key: Key[object]) -> Iterator[Write]:
    if key.kind == IPPOOL:
        yield Update(key, IPPool.for_prefix(_PREFIX, name="main"), _SEEN)
        yield Delete(key, _SEEN)
    if key.kind == NODE:
        yield Update(key, _NODE, _SEEN)
    if key.kind == WORKLOAD_ENDPOINT:
        yield Update(key, _ENDPOINT, _SEEN)
        yield Delete(key, _SEEN)


@pytest.mark.parametrize(
    "key,found",
    [
        (node_key("n"), {"metadata": named("other")}),
        (PROFILE.key("kns.shop"), {"metadata": named("other")}),
        (PROFILE.key("ksa.shop.web"), {"metadata": named("web", namespace="other")}),
        (IPPOOL.key("main"), {"metadata": named("other"), "spec": {"cidr": "10.0.0.0/26"}}),
    ],
    ids=str,
)
def test_another_object_than_the_one_that_was_asked_for_is_malformed(
    key: Key[object], found: Mapping[str, object]
) -> None:
    with (
        store_on(lambda _: SendReply(200, found)) as (store, _),
        pytest.raises(Malformed, match=r"says that it is .*other"),
    ):
        store.read([Get(key)], deadline=soon()).find(key)


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_a_list_of_a_hosts_claims_has_no_others_whatever_their_labels_say() -> None:
    """Labels are somebody else's to change, and the hashes of two hosts may be equal."""
    items = [
        {
            "metadata": named(affinity_name("host", host, _PREFIX)),
            "spec": {"state": "confirmed", "node": host, "type": "host", "cidr": str(_PREFIX), "deleted": "false"},
        }
        for host in ("mine", "other")
    ]
    with store_on(lambda _: SendReply(200, {"metadata": {"resourceVersion": "7"}, "items": items})) as (store, _):
        query = List(AFFINITY, ("host", "mine"))
        (record,) = store.read([query], deadline=soon()).list(query)
        assert record.key == affinity_key("host:mine", _PREFIX)
        assert record.value == Affinity(state=AffinityState.CONFIRMED)


def test_the_endpoints_of_a_namespace_are_asked_for_in_it() -> None:
    items = [pod_object(), pod_object("api")]
    with store_on(lambda _: SendReply(200, {"metadata": {"resourceVersion": "7"}, "items": items})) as (store, server):
        query = List(WORKLOAD_ENDPOINT, ("shop",))
        assert [record.key.name for record in store.read([query], deadline=soon()).list(query)] == [
            "n-k8s-api-eth0",
            "n-k8s-web-eth0",
        ]
        assert server.calls == ["GET /api/v1/namespaces/shop/pods?limit=500"]


def test_lists_are_asked_for_before_single_records() -> None:
    """What is read first must not be newer than the revision that a list gives its kind."""

    def script(received: ReceivedRequest) -> StubAction:
        listing = {"metadata": {"resourceVersion": "6"}, "items": []}
        return SendReply(200, listing if "?" in received.path else handle_object())

    with store_on(script) as (store, server):
        assert store.read([Get(_KEY), List(HANDLE)], deadline=soon()).revision(HANDLE) == "6"
        assert server.calls == [f"GET {_PATH}?limit=500", f"GET {_PATH}/h"]
