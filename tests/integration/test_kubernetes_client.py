"""What the client makes of servers that are slow, silent, busy, forgetful or gone; each call within its deadline."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, RateLimiter
from netplug_backends.kubernetes.client.objects import find_crd_mode
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import LiveWatch
from netplug_core.errors import ConfigurationError, InvariantBroken, Unauthorized, Unavailable
from netplug_core.ipam.model import HANDLE, Handle, handle_key
from netplug_core.records import (
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    Revision,
    Update,
    WatchExpired,
    Write,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.profile import PROFILE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.settings.model import KubernetesAccess
from tests.harness.servers.http_stub import (
    CloseConnection,
    HTTPStubServer,
    NeverReply,
    ReceivedRequest,
    SendReply,
    SendReplyAndClose,
    SendSlowly,
    SendStream,
    StubAction,
    StubScript,
    open_http_stub,
)
from tests.harness.waiting import EMERGENCY_STOP_S, MARGIN_S, wait_until

_CLOCK = SystemClock()
_EXEC = "client.authentication.k8s.io/v1"
_SECRET = "s3cret-token"  # noqa: S105  # planted, and searched for
_PATH = "/apis/crd.projectnetplug.org/v1/ipamhandles"
_ONE = Handle(blocks=((Prefix.parse("10.0.0.0/26"), 1),))
_KEY = handle_key("h")


def soon(seconds: float = 60.0) -> Deadline:
    return Deadline.after(_CLOCK, seconds)


def handle_object(name: str = "h", version: str = "7", uid: str = "u") -> dict[str, object]:
    metadata = {"name": name, "uid": uid, "resourceVersion": version}
    return {"kind": "IPAMHandle", "metadata": metadata, "spec": {"handleID": name, "block": {"10.0.0.0/26": 1}}}


def status(code: int, reason: str = "", message: str = "", **details: object) -> SendReply:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return SendReply(code, body)


def missing() -> SendReply:
    return status(404, "NotFound", name="h")


def in_turn(*acts: StubAction) -> StubScript:
    """One act for each request; the last one for all that follow."""
    left = list(acts)
    return lambda _received: left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def store_on(
    script: StubScript, access: Callable[[str], KubernetesAccess] | None = None, mode: CrdMode | None = CrdMode.V1
) -> Iterator[tuple[KubernetesDatastore, HTTPStubServer]]:
    with open_http_stub(script) as server:
        settings = access(server.url) if access else KubernetesAccess(api_root=server.url, token=_SECRET)
        client = ApiClient(AccessSource(settings, {}), clock=_CLOCK, rate_limiter=RateLimiter(clock=_CLOCK))
        store = KubernetesDatastore(client, mode=mode)
        yield store, server
        store.close()


WRITES: list[Write] = [Create(_KEY, _ONE), Delete(_KEY, Revision("u/7"))]


@pytest.mark.parametrize("act", [NeverReply(), SendSlowly()])
def test_d14_a_read_ends_by_its_deadline_whatever_the_server_does(act: StubAction) -> None:
    with store_on(lambda _: act) as (store, _):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="it did not answer by the deadline") as refusal:
            store.read([Get(_KEY)], deadline=soon(0.3))
        assert time.monotonic() - began < 0.3 + MARGIN_S
        assert not isinstance(refusal.value, OutcomeUnknown)


def test_a_reply_that_comes_after_its_head_is_read_though_the_server_closes() -> None:
    reply = SendReply(200, handle_object(), (("Connection", "close"),), pause_s=0.1)
    with store_on(lambda _: reply) as (store, _):
        for _ in range(2):
            assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is not None


@pytest.mark.parametrize("body", ["<html>Log in</html>", "[]"])
def test_an_answer_that_is_none_of_the_apis_is_not_taken_for_an_empty_one(body: str) -> None:
    with store_on(lambda _: SendReply(200, body)) as (store, _):
        with pytest.raises(Unavailable, match="the answer is none of the API's: ") as refusal:
            store.read([List(HANDLE)], deadline=soon())
        assert body in str(refusal.value)
        with pytest.raises(OutcomeUnknown):
            store.commit([WRITES[0]], deadline=soon())


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "act", [NeverReply(), SendSlowly(), CloseConnection(), status(500, message="etcd is away"), status(503)]
)
def test_a_write_whose_reply_is_lost_is_unknown(act: StubAction, write: Write) -> None:
    with store_on(lambda _: act) as (store, server):
        with pytest.raises(OutcomeUnknown) as refusal:
            store.commit([write], deadline=soon(0.3))
        assert refusal.value.applied == 0
        assert len(server.calls) == 1, "a write is sent once"
        assert _SECRET not in f"{refusal.value} {refusal.value!r}"


def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    with store_on(lambda _: CloseConnection(), lambda _: KubernetesAccess(api_root="http://127.0.0.1:1")) as (store, _):
        with pytest.raises(Unavailable, match="Connection refused") as refusal:
            store.commit([Create(_KEY, _ONE)], deadline=soon())
        assert not isinstance(refusal.value, OutcomeUnknown)


def test_a_read_on_a_connection_that_was_given_up_is_sent_again() -> None:
    with store_on(in_turn(SendReply(200, handle_object()), CloseConnection(), SendReply(200, handle_object()))) as (
        store,
        server,
    ):
        for _ in range(2):
            assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is not None
        assert len(server.calls) == 3


def test_a_write_does_not_use_a_connection_that_was_given_up() -> None:
    closing = SendReply(200, handle_object(), (("Keep-Alive", "timeout=0"),))
    made = SendReply(201, handle_object())

    def script(received: ReceivedRequest) -> StubAction:
        return made if received.method == "POST" else closing

    with store_on(script) as (store, server):
        store.read([Get(_KEY)], deadline=soon())
        assert store.commit([Create(_KEY, _ONE)], deadline=soon()) == ("u/7",)
        assert len(server.calls) == 2


@pytest.mark.parametrize("write", WRITES)
def test_a_write_does_not_go_where_nobody_is(write: Write) -> None:
    """A server may close an idle connection without having announced it; a write on that one would be lost."""
    last = SendReplyAndClose(SendReply(200, handle_object()))

    def script(received: ReceivedRequest) -> StubAction:
        return last if received.method == "GET" else SendReply(200, handle_object())

    with store_on(script) as (store, server):
        for _ in range(3):
            store.read([Get(_KEY)], deadline=soon())
            wait_until(lambda: 2 * server.closed == len(server.calls) + 1, "the server has closed the connection")
            time.sleep(0.05)  # as long as a farewell takes on loopback, many times over
            store.commit([write], deadline=soon())
        assert len(server.calls) == 6


def test_only_some_connections_are_kept_for_later() -> None:
    together = threading.Barrier(8)

    def script(_received: ReceivedRequest) -> StubAction:
        together.wait(EMERGENCY_STOP_S)
        return SendReply(200, handle_object())

    with store_on(script) as (store, server):
        for _ in range(2):
            threads = [threading.Thread(target=lambda: store.read([Get(_KEY)], deadline=soon())) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(server.calls) == 16
        assert len(server.client_addresses) == 8 + 4, "four of the first eight served again"


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    """429 says that nothing was done, so a write may be repeated too."""
    busy = SendReply(429, {}, (("Retry-After", "1"),))
    with store_on(in_turn(busy, SendReply(201, handle_object()))) as (store, server):
        began = time.monotonic()
        store.commit([Create(_KEY, _ONE)], deadline=soon())
        assert time.monotonic() - began >= 1.0
        assert len(server.calls) == 2


def test_a_server_that_is_busy_for_longer_than_there_is_time_is_not_waited_for() -> None:
    with store_on(lambda _: SendReply(429, {"message": "too many"}, (("Retry-After", "60"),))) as (store, server):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="come back in 60 s: too many"):
            store.read([Get(_KEY)], deadline=soon(30))
        assert time.monotonic() - began < MARGIN_S
        assert len(server.calls) == 1


def test_a_server_that_starts_up_is_read_again_when_it_says() -> None:
    starting = SendReply(503, {}, (("Retry-After", "0"),))
    with store_on(in_turn(starting, SendReply(200, handle_object()))) as (store, _):
        assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is not None


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_meets_a_server_that_starts_up_is_sent_once(write: Write) -> None:
    """503 does not say that nothing was done, whenever it says to come back."""
    starting = SendReply(503, {"message": "starting"}, (("Retry-After", "0"),))
    with store_on(in_turn(starting, SendReply(200, handle_object()))) as (store, server):
        with pytest.raises(OutcomeUnknown, match="starting"):
            store.commit([write], deadline=soon())
        assert len(server.calls) == 1


def test_a_read_that_fails_in_the_server_says_so() -> None:
    with (
        store_on(lambda _: status(500, message="etcd is away")) as (store, _),
        pytest.raises(Unavailable, match=r"GET .*/ipamhandles/h: etcd is away"),
    ):
        store.read([Get(_KEY)], deadline=soon())


def test_refused_credentials_are_tried_once_more() -> None:
    with store_on(in_turn(status(401), SendReply(200, handle_object()))) as (store, server):
        assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is not None
        assert {received.authorization for received in server.requests} == {f"Bearer {_SECRET}"}
    with store_on(lambda _: status(401, message="Unauthorized")) as (store, server):
        with pytest.raises(Unauthorized, match="does not accept the credentials of http://127"):
            store.commit([Create(_KEY, _ONE)], deadline=soon())
        with pytest.raises(Unauthorized):
            list(store.watch({HANDLE: Revision("7")}, deadline=soon()))
        assert len(server.calls) == 4


def kubeconfig_text(url: str, user: object) -> str:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    return json.dumps(document)


@pytest.mark.parametrize("asks", ["reads", "watches"])
def test_refused_credentials_are_read_again_though_their_file_looks_the_same(asks: str, tmp_path: Path) -> None:
    token, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    token.write_text("old")
    seen = token.stat()

    def script(received: ReceivedRequest) -> StubAction:
        if received.authorization == "Bearer old":
            token.write_text("new")
            os.utime(token, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            return status(401)
        return (
            SendStream([watch_event("ADDED", "8")]) if "watch=1" in received.path else SendReply(200, handle_object())
        )

    def access(url: str) -> KubernetesAccess:
        kubeconfig.write_text(kubeconfig_text(url, {"tokenFile": "token"}))
        return KubernetesAccess(kubeconfig=str(kubeconfig))

    with store_on(script, access) as (store, server):
        if asks == "reads":
            assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is not None
        else:
            assert next(iter(store.watch({HANDLE: Revision("7")}, deadline=soon()))).revision == "u/8"
        assert [received.authorization for received in server.requests[:2]] == ["Bearer old", "Bearer new"]


def test_refused_credentials_are_renewed_once_for_all_who_asked_with_them(tmp_path: Path) -> None:
    """Each of them is told so at another time, when there are new ones already."""
    login, runs = tmp_path / "login", tmp_path / "runs"
    credential = json.dumps({"apiVersion": _EXEC, "kind": "ExecCredential", "status": {"token": "%s"}})
    login.write_text(f"#!/bin/sh\necho >>'{runs}'\nprintf '{credential}' $(wc -l <'{runs}')\n")
    login.chmod(0o700)
    places = count()

    def script(received: ReceivedRequest) -> StubAction:
        if received.authorization == "Bearer 1":
            time.sleep(0.05 * next(places))
            return status(401)
        return SendReply(200, handle_object())

    def access(url: str) -> KubernetesAccess:
        user = {"exec": {"apiVersion": _EXEC, "command": str(login)}}
        return KubernetesAccess(kubeconfig_inline=kubeconfig_text(url, user))

    with store_on(script, access) as (store, server):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: store.read([Get(_KEY)], deadline=soon()).find(_KEY), range(8)))
        assert all(found)
        assert {received.authorization for received in server.requests} == {"Bearer 1", "Bearer 2"}
    assert runs.read_text() == "\n\n"


def test_connections_may_be_given_up_while_others_ask() -> None:
    """As happens where one thread finds that the credentials were renewed."""
    found = SendReply(200, handle_object())
    problems: list[BaseException] = []
    with open_http_stub(lambda _: found) as server:
        source = AccessSource(KubernetesAccess(api_root=server.url), {})
        client = ApiClient(source, clock=_CLOCK, rate_limiter=RateLimiter(clock=_CLOCK, qps=100_000, burst=100_000))

        def ask() -> None:
            try:
                for _ in range(60):
                    client.send(ApiRequest("GET", "/any"), deadline=soon())
            except BaseException as error:  # noqa: BLE001  # for the test to see
                problems.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            client.close()
        client.close()
    assert problems == []


def test_definitions_that_are_not_installed_are_no_missing_objects() -> None:
    nobody = SendReply(404, "404 page not found\n")
    with store_on(lambda _: nobody) as (store, _):
        for query in (Get(_KEY), List(HANDLE)):
            with pytest.raises(Unavailable, match="are netplug's custom resource definitions installed"):
                store.read([query], deadline=soon())
        for write in WRITES:
            with pytest.raises(Unavailable, match="are netplug's custom resource definitions installed"):
                store.commit([write], deadline=soon())


def test_what_the_schema_refuses_is_the_users_to_change() -> None:
    with (
        store_on(lambda _: status(422, "Invalid", "spec.cidr: no")) as (store, _),
        pytest.raises(ConfigurationError, match=r"spec\.cidr: no"),
    ):
        store.commit([Create(_KEY, _ONE)], deadline=soon())


def test_a_forgotten_page_begins_the_list_anew() -> None:
    """Trap 38: a continue token expires."""
    first = SendReply(200, {"metadata": {"resourceVersion": "8", "continue": "c"}, "items": [handle_object("a")]})
    both = [handle_object("b"), handle_object("a")]
    whole = SendReply(200, {"metadata": {"resourceVersion": "9"}, "items": both})
    with store_on(in_turn(first, status(410, "Expired"), whole)) as (store, server):
        snapshot = store.read([List(HANDLE)], deadline=soon())
        assert [record.key.name for record in snapshot.list(List(HANDLE))] == ["a", "b"]
        assert snapshot.revision(HANDLE) == "9"
        assert server.calls == [
            f"GET {_PATH}?limit=500",
            f"GET {_PATH}?limit=500&continue=c",
            f"GET {_PATH}?limit=500",
        ]


def test_each_page_says_how_many_objects_are_left() -> None:
    metadata = {"resourceVersion": "8", "continue": "c", "remainingItemCount": 1}
    first = SendReply(200, {"metadata": metadata, "items": [handle_object("a"), handle_object("b")]})
    last = SendReply(200, {"metadata": {"resourceVersion": "8"}, "items": [handle_object("c")]})
    reports = list[tuple[int, int]]()
    with store_on(in_turn(first, last)) as (store, _):
        store.report_reads(lambda found, left: reports.append((found, left)))
        assert len(store.read([List(HANDLE)], deadline=soon()).list(List(HANDLE))) == 3
    assert reports == [(2, 1), (3, 0)]


def test_a_list_that_cannot_be_had_at_all_says_so() -> None:
    with store_on(lambda _: status(410, "Expired", "gone")) as (store, _), pytest.raises(Unavailable, match="gone"):
        store.read([List(HANDLE)], deadline=soon())


def test_an_object_that_is_about_something_else_is_malformed() -> None:
    with (
        store_on(lambda _: SendReply(200, handle_object("other"))) as (store, _),
        pytest.raises(Malformed, match=r"IPAMHandle\(h\).*IPAMHandle\(other\)"),
    ):
        store.read([Get(_KEY)], deadline=soon()).find(_KEY)


@pytest.mark.parametrize(
    "groups,mode",
    [
        (["apps", "projectnetplug.org", "crd.projectnetplug.org"], CrdMode.V1),
        (["crd.projectnetplug.org"], CrdMode.V1),
        (["apps", "projectnetplug.org"], CrdMode.V3),
        (["apps"], None),
        (None, None),
    ],
)
def test_s17_the_mode_is_what_the_cluster_has(groups: list[str] | None, mode: CrdMode | None) -> None:
    """Trap 29."""
    found = {"groups": None if groups is None else [{"name": name} for name in groups]}
    with open_http_stub(lambda _: SendReply(200, found)) as server:
        source = AccessSource(KubernetesAccess(api_root=server.url), {})
        client = ApiClient(source, clock=_CLOCK, rate_limiter=RateLimiter(clock=_CLOCK))
        assert find_crd_mode(client, deadline=soon()) is mode
        assert client.location == server.url
        client.close()


def test_definitions_that_come_later_are_found() -> None:
    served: list[str] = []

    def script(received: ReceivedRequest) -> StubAction:
        if received.path == "/apis":
            return SendReply(200, {"groups": [{"name": name} for name in served]})
        return (
            missing() if received.path.startswith("/apis/projectnetplug.org/") else SendReply(404, "404 page not found")
        )

    with store_on(script, mode=None) as (store, server):
        with pytest.raises(Unavailable, match="definitions installed"):
            store.read([Get(_KEY)], deadline=soon())
        served.append("projectnetplug.org")
        for _ in range(2):
            assert store.read([Get(_KEY)], deadline=soon()).find(_KEY) is None
        assert server.calls.count("GET /apis") == 2


def test_a_server_that_does_not_tell_its_groups_is_not_guessed_at() -> None:
    with store_on(lambda _: SendReply(404, "nothing"), mode=None) as (store, server):
        with pytest.raises(Unavailable):
            store.read([Get(_KEY)], deadline=soon())
        assert server.calls == ["GET /apis"]


def test_s24_where_addresses_come_from_the_nodes_ranges_nothing_of_ours_is_kept() -> None:
    with open_http_stub(lambda _: missing()) as server:
        source = AccessSource(KubernetesAccess(api_root=server.url), {})
        client = ApiClient(source, clock=_CLOCK, rate_limiter=RateLimiter(clock=_CLOCK))
        store = KubernetesDatastore(client, mode=CrdMode.V1, uses_pod_cidr=True)
        for query in (Get(_KEY), List(HANDLE)):
            with pytest.raises(NotSupported, match="USE_POD_CIDR"):
                store.read([query], deadline=soon())
        pool: Key[object] = Kind("IPPool", ("name",)).key("main")
        assert store.read([Get(pool)], deadline=soon()).find(pool) is None
        store.close()


# --- commits -----------------------------------------------------------------------------------------------------


def test_a_prefix_is_counted_whatever_stops_the_rest() -> None:
    def refuse_second(act: StubAction) -> StubScript:
        return in_turn(SendReply(201, handle_object()), act)

    other = handle_key("other")
    writes = [Create(_KEY, _ONE), Create(other, _ONE)]
    with store_on(refuse_second(CloseConnection())) as (store, _), pytest.raises(OutcomeUnknown) as unknown:
        store.commit(writes, deadline=soon())
    assert unknown.value.applied == 1
    busy = SendReply(429, {}, (("Retry-After", "60"),))
    with store_on(refuse_second(busy)) as (store, _), pytest.raises(OutcomeUnknown) as unsent:
        store.commit(writes, deadline=soon())
    assert unsent.value.applied == 1
    with (
        store_on(refuse_second(status(403, message="cannot create"))) as (store, _),
        pytest.raises(Unauthorized, match="a right is missing: cannot create"),
    ):
        store.commit(writes, deadline=soon())


def test_a_list_of_writes_that_makes_no_sense_is_not_begun() -> None:
    with store_on(lambda _: SendReply(201, handle_object())) as (store, server):
        with pytest.raises(InvariantBroken):
            store.commit([Create(_KEY, _ONE), Create(_KEY, _ONE)], deadline=soon())
        assert server.calls == []


def test_a_refused_write_has_the_current_value() -> None:
    conflict = status(409, "Conflict", name="h")
    update = Update(_KEY, _ONE, Revision("u/7"))
    now = SendReply(200, handle_object(version="8"))

    def script(received: ReceivedRequest) -> StubAction:
        return now if received.method == "GET" else conflict

    with store_on(script) as (store, _):
        for write in (update, Delete(_KEY, Revision("u/7"))):
            with pytest.raises(Conflict) as refusal:
                store.commit([write], deadline=soon())
            assert refusal.value.current is not None
            assert refusal.value.current.revision == "u/8"
    with store_on(lambda _: missing()) as (store, _):
        for write in (update, Delete(_KEY, Revision("u/7"))):
            with pytest.raises(NotFound):
                store.commit([write], deadline=soon())


def test_a_create_that_meets_what_goes_meanwhile_is_tried_again() -> None:
    exists = status(409, "AlreadyExists", name="h")
    with store_on(in_turn(exists, missing(), SendReply(201, handle_object()))) as (store, server):
        assert store.commit([Create(_KEY, _ONE)], deadline=soon()) == ("u/7",)
        assert server.calls == [f"POST {_PATH}", f"GET {_PATH}/h", f"POST {_PATH}"]


def test_a_kind_that_is_not_kept_is_refused() -> None:
    with (
        store_on(lambda _: missing()) as (store, _),
        pytest.raises(NotSupported, match="storing of Colour is not supported"),
    ):
        store.read([Get(Key(Kind("Colour", ("name",)), ("red",)))], deadline=soon())


def test_a_node_that_changes_between_reading_and_writing_is_a_lost_race() -> None:
    """Trap 17."""
    metadata = {"name": "n", "uid": "u", "resourceVersion": "7"}
    read = SendReply(200, {"metadata": metadata})
    later = SendReply(200, {"metadata": {**metadata, "resourceVersion": "8"}})
    node = Node(metadata=Metadata(name="n"))
    write = Update(node_key("n"), node, Revision("u/7"))
    with store_on(in_turn(read, status(409, "Conflict", name="n"), later)) as (store, _):
        with pytest.raises(Conflict) as refusal:
            store.commit([write], deadline=soon())
        assert refusal.value.current is not None
        assert refusal.value.current.revision == "u/8"
    with store_on(in_turn(read, missing())) as (store, _), pytest.raises(NotFound):
        store.commit([write], deadline=soon())
    with store_on(in_turn(read, status(422, "Invalid", "no"))) as (store, _), pytest.raises(ConfigurationError):
        store.commit([write], deadline=soon())


def test_paths_that_nobody_serves_are_no_missing_pods_or_nodes() -> None:
    nobody = SendReply(404, "404 page not found\n")
    for key in (node_key("n"), WORKLOAD_ENDPOINT.key("shop", "n-k8s-web-eth0")):
        with store_on(lambda _: nobody) as (store, _), pytest.raises(Unavailable):
            store.read([Get(key)], deadline=soon())
    with open_http_stub(lambda _: nobody) as server:
        source = AccessSource(KubernetesAccess(api_root=server.url), {})
        orchestrator = KubernetesOrchestrator(ApiClient(source, clock=_CLOCK, rate_limiter=RateLimiter(clock=_CLOCK)))
        with pytest.raises(Unavailable):
            orchestrator.find_pod("shop", "web", deadline=soon())
        orchestrator.close()


def test_a_pod_that_is_not_listed_by_its_node_and_name_is_nobodys_endpoint() -> None:
    """Names that no pod has: too many parts, another orchestrator's, one that was cut."""
    empty = SendReply(200, {"metadata": {"resourceVersion": "7"}, "items": []})
    names = {"a-b-c-d-e-f": 0, "n-cni-c0ffee-eth0": 0, "n" * 200 + "-0123456789abcdef": 1}
    for name, calls in names.items():
        key = WORKLOAD_ENDPOINT.key("shop", name)
        with store_on(lambda _: empty) as (store, server):
            assert store.read([Get(key)], deadline=soon()).find(key) is None
            assert len(server.calls) == calls


def test_a_long_name_that_was_not_cut_is_asked_for_by_itself() -> None:
    """The plugin's account may not list pods: where the pod is gone, DEL would fail for ever."""
    pod = "p" * 180
    key = WORKLOAD_ENDPOINT.key("shop", f"{'n' * 63}-k8s-{pod}-eth0")
    gone = status(404, "NotFound", name=pod)
    with store_on(lambda _: gone) as (store, server):
        assert store.read([Get(key)], deadline=soon()).find(key) is None
        with pytest.raises(NotFound):
            store.commit([Delete(key, Revision("u/7"))], deadline=soon())
        assert not any(call.endswith("/pods") or "/pods?" in call for call in server.calls), server.calls


# --- watches -----------------------------------------------------------------------------------------------------


def watch_event(kind: str, version: str, name: str = "h") -> dict[str, object]:
    return {"type": kind, "object": handle_object(name, version)}


def bookmark(version: str) -> dict[str, object]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}


def watched(streams: Sequence[StubAction], number: int) -> tuple[list[tuple[str, bool]], list[str]]:
    """What a watch from revision 7 tells, and where its requests begin."""
    with store_on(in_turn(*streams, NeverReply())) as (store, server):
        changes = list(islice(store.watch({HANDLE: Revision("7")}, deadline=soon()), number))
        starts = [call.partition("resourceVersion=")[2].partition("&")[0] for call in server.calls]
        return [(change.revision, change.value is None) for change in changes], starts


def test_d5_a_watch_that_ends_goes_on_where_it_stopped() -> None:
    """Trap 20: bookmarks are no events, and move it on."""
    changes, starts = watched(
        [
            SendStream([watch_event("ADDED", "8"), watch_event("MODIFIED", "9")]),
            SendStream([bookmark("20")]),
            SendStream([watch_event("DELETED", "21")], is_cut=True),
            SendStream([watch_event("ADDED", "22")]),
        ],
        4,
    )
    assert changes == [("u/8", False), ("u/9", False), ("u/21", True), ("u/22", False)]
    assert starts[:4] == ["7", "9", "20", "21"]


def test_a_watch_asks_for_bookmarks() -> None:
    """Without them one of a quiet collection would begin where the server has forgotten everything."""
    with store_on(in_turn(SendStream([watch_event("ADDED", "8")]), NeverReply())) as (store, server):
        next(iter(store.watch({HANDLE: Revision("7")}, deadline=soon())))
        assert "allowWatchBookmarks=true" in server.calls[0].partition("?")[2].split("&")


def test_d8_a_record_that_is_marked_as_deleted_is_reported_as_deleted() -> None:
    marked = handle_object(version="8") | {"spec": {"handleID": "h", "block": {}, "deleted": True}}
    changes, _ = watched([SendStream([{"type": "MODIFIED", "object": marked}])], 1)
    assert changes == [("u/8", True)]


@pytest.mark.parametrize(
    "act", [status(410, "Expired"), SendStream([{"type": "ERROR", "object": {"code": 410, "message": "too old"}}])]
)
def test_a_forgotten_revision_ends_a_watch(act: StubAction) -> None:
    with store_on(lambda _: act) as (store, _), pytest.raises(WatchExpired) as refusal:
        list(store.watch({HANDLE: Revision("7")}, deadline=soon()))
    assert refusal.value.revision == "7"


@pytest.mark.parametrize("forgetful", ["/api/v1/namespaces", "/api/v1/serviceaccounts"])
def test_one_forgotten_collection_of_two_ends_a_watch(forgetful: str) -> None:
    def script(received: ReceivedRequest) -> StubAction:
        return status(410, "Expired") if received.path.startswith(f"{forgetful}?") else NeverReply()

    with store_on(script) as (store, _), pytest.raises(WatchExpired) as refusal:
        list(store.watch({PROFILE: Revision("7/8")}, deadline=soon()))
    assert refusal.value.revision == "7/8"


@pytest.mark.parametrize(
    "act,problem",
    [
        (SendStream([{"type": "ERROR", "object": {"code": 500, "message": "etcd is away"}}]), "etcd is away"),
        (status(500, message="etcd is away"), "etcd is away"),
        (CloseConnection(), "Remote end closed"),
        (SendReply(404, "nothing"), "are netplug's custom resource definitions installed"),
    ],
)
def test_a_watch_that_fails_says_why(act: StubAction, problem: str) -> None:
    with store_on(lambda _: act) as (store, _), pytest.raises(Unavailable, match=problem):
        list(store.watch({HANDLE: Revision("7")}, deadline=soon()))


@pytest.mark.parametrize("act", [SendSlowly(), SendStream([])])
def test_a_watch_ends_by_its_deadline(act: StubAction) -> None:
    with store_on(lambda _: act) as (store, server):
        began = time.monotonic()
        assert list(store.watch({HANDLE: Revision("7")}, deadline=soon(0.4))) == []
        assert 0.3 < time.monotonic() - began < 0.4 + MARGIN_S
        assert len(server.calls) < 10, "a server that ends streams at once is not flooded"


@pytest.mark.parametrize("code", [429, 503])
def test_a_watch_comes_back_when_the_server_says(code: int) -> None:
    """As one that has just started up, and does not know yet what there is."""
    busy = SendReply(code, {"message": "storage is (re)initializing"}, (("Retry-After", "1"),))
    began = time.monotonic()
    changes, _ = watched([busy, SendStream([watch_event("ADDED", "8")])], 1)
    assert changes == [("u/8", False)]
    assert time.monotonic() - began > 0.9


def test_a_watch_of_a_server_that_is_busy_for_too_long_says_so() -> None:
    busy = SendReply(429, {"message": "too many"}, (("Retry-After", "9"),))
    with store_on(lambda _: busy) as (store, _), pytest.raises(Unavailable, match="to come back in 9 s: too many"):
        list(store.watch({HANDLE: Revision("7")}, deadline=soon(8)))


def test_a_watch_that_nobody_answers_says_so_in_time() -> None:
    with (
        store_on(lambda _: NeverReply()) as (store, _),
        pytest.raises(Unavailable, match="it did not answer by the deadline"),
    ):
        list(store.watch({HANDLE: Revision("7")}, deadline=soon(0.4)))


def test_two_kinds_are_watched_at_once_and_a_watch_can_be_left() -> None:
    def script(received: ReceivedRequest) -> StubAction:
        return SendStream([watch_event("ADDED", "8")]) if "ipamhandles" in received.path else NeverReply()

    with store_on(script) as (store, _):
        kinds: dict[Kind[object], Revision] = {HANDLE: Revision("7"), IPPOOL: Revision("7")}
        began = time.monotonic()
        assert next(iter(store.watch(kinds, deadline=soon(60)))).revision == "u/8"
        assert time.monotonic() - began < MARGIN_S


def test_a_watch_that_ends_leaves_nobody_waiting() -> None:
    """A collection that nobody answers for is given up with the one that ended the watch, long before the deadline."""

    def script(received: ReceivedRequest) -> StubAction:
        return status(410, "Expired", name="h") if "ipamhandles" in received.path else NeverReply()

    kinds: dict[Kind[object], Revision] = {HANDLE: Revision("7"), IPPOOL: Revision("7")}
    before = threading.enumerate()
    with store_on(script) as (store, server):
        for _ in range(5):
            with pytest.raises(WatchExpired):
                list(store.watch(kinds, deadline=soon(60)))
        assert server.calls
        patience = soon(20)
        # By their names: the server has threads too, and ends them when it likes.
        while any(thread.name.startswith("watch ") for thread in threading.enumerate() if thread not in before):
            assert not patience.has_passed
            time.sleep(0.01)


# --- how far a watch has come ---------------------------------------------------------------------------------------

BOOKMARK: dict[str, object] = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}


def read_on(watch: Iterator[object], into: list[object]) -> threading.Thread:
    """Read a watch to its end in a thread."""
    reader = threading.Thread(target=lambda: into.extend(watch), daemon=True)
    reader.start()
    return reader


def test_a_bookmark_says_that_nothing_is_missing_and_an_event_just_after_the_opening_does_not() -> None:
    """Not before the reader has applied what came before it; and a stream that is open and silent says nothing."""
    began_s = time.monotonic()
    actions = in_turn(SendStream([watch_event("ADDED", "8")]), SendStream([BOOKMARK]), SendSlowly())
    with store_on(actions) as (store, server):
        watch = store.watch({HANDLE: Revision("7")}, deadline=soon(60))
        assert isinstance(watch, LiveWatch)
        assert watch.current_until_s(HANDLE) is None
        assert next(watch).revision == "u/8"
        assert watch.current_until_s(HANDLE) is None
        rest: list[object] = []
        reader = read_on(watch, rest)
        wait_until(lambda: watch.current_until_s(HANDLE) is not None, "the bookmark has arrived")
        wait_until(lambda: len(server.calls) == 3, "the watch goes on")
        current_until_s = watch.current_until_s(HANDLE)
        assert current_until_s is not None
        assert began_s < current_until_s <= time.monotonic()
        watch.close()
        reader.join(60)
        assert (rest, reader.is_alive(), watch.current_until_s(HANDLE)) == ([], False, current_until_s)


def test_of_two_kinds_each_says_how_far_it_has_come() -> None:
    def script(received: ReceivedRequest) -> StubAction:
        return SendStream([BOOKMARK]) if "ipamhandles" in received.path else NeverReply()

    kinds: dict[Kind[object], Revision] = {HANDLE: Revision("7"), IPPOOL: Revision("7")}
    with store_on(script) as (store, _):
        watch = store.watch(kinds, deadline=soon(60))
        assert isinstance(watch, LiveWatch)
        reader = read_on(watch, [])
        wait_until(lambda: watch.current_until_s(HANDLE) is not None, "a bookmark has arrived")
        assert watch.current_until_s(IPPOOL) is None
        watch.close()
        reader.join(60)
