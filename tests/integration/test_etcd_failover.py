"""Members that come and go: every call ends by its deadline, at another member or with an error that is true.

D14: no call without a deadline. A read may be asked again anywhere; a write goes elsewhere only when it was not sent,
and when its reply is lost the outcome is unknown, which it is.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from netplug_backends.etcdv3.client import EtcdClient, StaticMembers
from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.operations import CallFailed, CallFailure, Txn
from netplug_backends.etcdv3.rpc import MemberConnection
from netplug_backends.etcdv3.tls import Credentials, TlsMaterial
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import Create, Get, Key, List, OutcomeUnknown, Revision, Update
from netplug_core.resources.ippool import IPPOOL
from netplug_core.settings.model import DatastoreSettings, parse_endpoints
from netplug_core.testing.datastore_harness import SAMPLE_CODEC
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, start_etcd
from tests.harness.servers.ports import reserve_port
from tests.harness.servers.tcp_proxy import ProxyMode, open_proxy
from tests.harness.waiting import MARGIN_S, is_eventually

pytestmark = pytest.mark.etcd

CLOCK = SystemClock()
KEY: Key[object] = IPPOOL.key("main")


def store_at(*urls: str) -> EtcdDatastore:
    """A store of texts whose client begins with the first URL."""
    client = EtcdClient(
        StaticMembers(parse_endpoints(urls)), Credentials(DatastoreSettings()), clock=CLOCK,
        random_below=lambda _below: 0,
    )  # fmt: skip
    return EtcdDatastore(client, codec=SAMPLE_CODEC)


def within(seconds: float) -> Deadline:
    return Deadline.after(CLOCK, seconds)


def found(store: EtcdDatastore, seconds: float = 5.0) -> object:
    record = store.read([Get(KEY)], deadline=within(seconds)).find(KEY)
    return None if record is None else record.value


@pytest.fixture(autouse=True)
def _empty(etcd: EtcdCluster) -> None:
    delete_all_entries(etcd)


@pytest.fixture
def url(etcd: EtcdCluster) -> str:
    return etcd.endpoints[0]


@pytest.fixture
def refused_url() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{reserve_port()}"


def test_a_dead_endpoint_is_passed_over_by_reads_and_writes(url: str, refused_url: str) -> None:
    """The write was provably not sent: there was no connection."""
    with closing(store_at(refused_url, url)) as store:
        started = time.monotonic()
        store.commit([Create(KEY, "a")], deadline=within(60))
        assert found(store, 60.0) == "a"
        assert time.monotonic() - started < MARGIN_S


def test_a_cluster_that_is_gone_is_given_up_before_the_deadline(refused_url: str) -> None:
    """A node whose store is away still takes down its pods without waiting for each of them."""
    other = f"http://localhost:{reserve_port()}"
    with closing(store_at(refused_url, other)) as store:
        started = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            found(store, 60.0)
        assert 2.0 <= time.monotonic() - started < 2.0 + MARGIN_S
        with pytest.raises(Unavailable) as of_write:
            store.commit([Create(KEY, "a")], deadline=within(10))
    assert not isinstance(of_write.value, OutcomeUnknown)
    for text in (str(caught.value), str(of_write.value)):
        assert refused_url in text
        assert other in text
        assert "Connection refused" in text


def test_a_connection_that_is_given_up_early_says_nothing(
    url: str, refused_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of gRPC's looks at a channel a little longer than it is asked to, and would end in a traceback."""
    problems: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: problems.append(told.exc_value))
    for _ in range(15):
        for endpoint in parse_endpoints([url, refused_url]):
            connection = MemberConnection(endpoint, TlsMaterial(), clock=CLOCK)
            with suppress(CallFailed):  # a connection may be there at once
                connection.wait_until_connected(timeout_s=0.0)
            connection.close()
    time.sleep(0.2)
    assert problems == []


def test_a_connection_that_is_given_up_is_closed_soon(etcd: EtcdCluster) -> None:
    with open_proxy(etcd.members[0].port) as proxy:
        (endpoint,) = parse_endpoints([proxy.url])
        connection = MemberConnection(endpoint, TlsMaterial(), clock=CLOCK)
        connection.wait_until_connected(timeout_s=5.0)
        connection.txn(Txn(), token="", timeout_s=5.0)
        connection.close()

        def is_closed() -> bool:
            try:
                connection.txn(Txn(), token="", timeout_s=5.0)
            except CallFailed as error:
                return error.failure is CallFailure.UNREACHABLE
            return False

        assert is_eventually(is_closed)


def test_a_member_that_is_back_within_the_call_serves_it(etcd: EtcdCluster, url: str) -> None:
    with closing(store_at(url)) as store:
        store.commit([Create(KEY, "a")], deadline=within(5))
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url)) as store:
        proxy.refusals_left = 2
        assert found(store, seconds=30) == "a"
        assert proxy.refusals_left == 0


def test_a_server_that_is_killed_between_two_calls_was_never_sent_the_second(etcd: EtcdCluster, url: str) -> None:
    with closing(store_at(url)) as store:
        store.commit([Create(KEY, "a")], deadline=within(5))
        etcd.members[0].kill()
        try:
            time.sleep(1.2)  # longer than a connection is trusted without a look
            with pytest.raises(Unavailable) as caught:
                store.commit([Create(IPPOOL.key("other"), "b")], deadline=within(5))
            assert not isinstance(caught.value, OutcomeUnknown)
        finally:
            etcd.members[0].start()
            etcd.wait_until_ready()


@pytest.mark.parametrize("seconds", [0.4, 1.5])
def test_d14_an_endpoint_that_accepts_and_never_answers_costs_no_more_than_the_deadline(
    etcd: EtcdCluster, seconds: float
) -> None:
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url)) as store:
        proxy.mode = ProxyMode.DROP_DATA
        calls: tuple[Callable[[], object], ...] = (
            lambda: found(store, seconds),
            lambda: store.commit([Create(KEY, "a")], deadline=within(seconds)),
        )
        for call in calls:
            started = time.monotonic()
            with pytest.raises(Unavailable, match="no answer within") as caught:
                call()
            assert time.monotonic() - started < seconds + MARGIN_S
            assert not isinstance(caught.value, OutcomeUnknown), "it was never sent"


def test_a_silent_endpoint_costs_a_read_its_share_and_then_rests(etcd: EtcdCluster, url: str) -> None:
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url, url)) as store:
        proxy.mode = ProxyMode.DROP_DATA
        started = time.monotonic()
        assert found(store, 4.0) is None
        assert time.monotonic() - started > 1.9
        started = time.monotonic()
        store.commit([Create(KEY, "a")], deadline=within(60))
        assert found(store) == "a"
        assert time.monotonic() - started < MARGIN_S, "the silent one is asked last"


def test_an_endpoint_that_served_again_takes_its_place_again(etcd: EtcdCluster) -> None:
    port = etcd.members[0].port
    with open_proxy(port) as first, open_proxy(port) as second, closing(store_at(first.url, second.url)) as store:
        first.mode = ProxyMode.REFUSE
        assert found(store) is None
        first.mode, second.mode = ProxyMode.FORWARD, ProxyMode.REFUSE
        second.close_connections()
        assert found(store) is None, "the first one was back"
        second.mode = ProxyMode.DROP_DATA
        store.commit([Create(KEY, "a")], deadline=within(2))
        assert found(store, 2.0) == "a", "and is asked first again"


def test_a_connection_that_breaks_under_a_read_is_no_error(etcd: EtcdCluster, url: str) -> None:
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url, url)) as store:
        store.commit([Create(KEY, "a")], deadline=within(5))
        proxy.mode = ProxyMode.DROP_REPLIES
        assert found(store) == "a"


def test_a_lost_reply_is_an_unknown_outcome_and_the_write_is_not_made_twice(etcd: EtcdCluster, url: str) -> None:
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url, url)) as store:
        (revision,) = store.commit([Create(KEY, "a")], deadline=within(5))
        proxy.mode = ProxyMode.DROP_REPLIES
        with pytest.raises(OutcomeUnknown) as caught:
            store.commit([Update(KEY, "b", revision)], deadline=within(5))
        assert str(caught.value).startswith(f"etcd: {proxy.url}: ")
        assert is_eventually(lambda: found(store) == "b"), "it was applied"
        again = store.read([Get(KEY)], deadline=within(5)).find(KEY)
        assert again is not None
        assert int(again.revision) == int(revision) + 1, "and once"


def test_a_member_that_has_answered_is_not_asked_whether_it_speaks_tls(etcd: EtcdCluster) -> None:
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url)) as store:
        proxy.mode = ProxyMode.REFUSE
        with pytest.raises(Unavailable, match=r"(closed|peer \(104\)); does the server speak TLS\? Then write https$"):
            found(store, 0.5)
        proxy.mode = ProxyMode.FORWARD
        assert found(store) is None
        proxy.mode = ProxyMode.REFUSE
        proxy.close_connections()
        with pytest.raises(Unavailable, match=r"(closed|peer \(104\))$"):
            found(store, 0.5)


def test_a_reply_that_does_not_come_is_an_unknown_outcome_at_the_deadline(etcd: EtcdCluster) -> None:
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url)) as store:
        (revision,) = store.commit([Create(KEY, "a")], deadline=within(5))
        proxy.mode = ProxyMode.DROP_DATA
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown, match="no answer within"):
            store.commit([Update(KEY, "b", revision)], deadline=within(1))
        assert time.monotonic() - started < 1 + MARGIN_S


def test_d5_a_watch_goes_on_at_another_member(etcd: EtcdCluster, url: str) -> None:
    with open_proxy(etcd.members[0].port) as proxy, closing(store_at(proxy.url, url)) as store:
        start = dict(store.read([List(IPPOOL)], deadline=within(5)).revisions)
        watch = iter(store.watch(start, deadline=within(10)))
        with closing(store_at(url)) as writer:
            (revision,) = writer.commit([Create(KEY, "0")], deadline=within(5))
            told = [next(watch)]
            proxy.mode = ProxyMode.REFUSE
            proxy.close_connections()
            for number in range(1, 4):
                (revision,) = writer.commit([Update(KEY, str(number), revision)], deadline=within(5))
            told += [next(watch) for _ in range(3)]
    assert [change.value for change in told] == ["0", "1", "2", "3"]
    assert told[-1].revision == revision


def test_a_watch_that_ends_at_its_deadline_is_no_fault_of_the_member(etcd: EtcdCluster) -> None:
    port = etcd.members[0].port
    with open_proxy(port) as first, open_proxy(port) as second, closing(store_at(first.url, second.url)) as store:
        start = store.read([List(IPPOOL)], deadline=within(5)).revisions
        assert list(store.watch(start, deadline=within(0.3))) == []
        second.mode = ProxyMode.DROP_DATA
        assert found(store, 0.3) is None, "the first one is asked first, as before"


def test_three_members_serve_while_one_is_killed_or_paused_and_refuse_without_a_leader() -> None:
    """The reply of a paused member is not waited for by a read; a write that it was sent is unknown."""
    with start_etcd(size=3) as cluster, closing(store_at(*cluster.endpoints)) as store:
        first, second, third = cluster.members
        (revision,) = store.commit([Create(KEY, "a")], deadline=within(10))
        first.kill()
        assert found(store) == "a"
        first.start()
        first.wait_until_accepting()
        second.signal(signal.SIGSTOP)
        try:
            assert found(store, 6.0) == "a"
            started = time.monotonic()
            revision = _settled_update(store, "b", revision)
            assert time.monotonic() - started < 60.0
        finally:
            second.signal(signal.SIGCONT)
        assert found(store, 10.0) == "b"
        second.kill()
        third.kill()
        started = time.monotonic()
        with pytest.raises(Unavailable):
            found(store, 3.0)
        assert time.monotonic() - started < 3.0 + MARGIN_S


def _settled_update(store: EtcdDatastore, value: str, revision: Revision) -> Revision:
    """Update the record, reading again while the outcome is unknown; its revision."""
    while True:
        try:
            return store.commit([Update(KEY, value, revision)], deadline=within(5))[0]
        except OutcomeUnknown:
            record = store.read([Get(KEY)], deadline=within(6)).find(KEY)
            assert record is not None
            if record.value == value:
                return record.revision
