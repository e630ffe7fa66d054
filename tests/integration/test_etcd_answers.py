"""What each answer of a member means: asked again elsewhere, unknown, or an error; from members that say it on demand.

D14: each failing call also ends by its deadline, and says why.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Barrier, Event, Thread

import grpc
import pytest

from netplug_backends.etcdv3.client import ClientClosed, EtcdClient, RandomBelow, StaticMembers
from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.messages import CLASSES
from netplug_backends.etcdv3.tls import Credentials
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import InterruptibleWatch
from netplug_core.errors import Unavailable
from netplug_core.records import (
    MAX_COMMIT_WRITES,
    Create,
    Get,
    Key,
    Kind,
    OutcomeUnknown,
    Revision,
    WatchEvent,
    WatchExpired,
)
from netplug_core.resources.ippool import IPPOOL
from netplug_core.settings.model import DatastoreSettings, EtcdEndpoint, parse_endpoints
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import SAMPLE_CODEC
from tests.harness.servers.certificates import issue_certificates
from tests.harness.servers.etcd_stub import EtcdStub, GrpcRefusal, Message, answer_late, open_etcd_stub
from tests.harness.servers.ports import reserve_port
from tests.harness.waiting import MARGIN_S, is_eventually, wait_until

Call = Callable[[EtcdDatastore, Deadline], None]

CLOCK = SystemClock()
POOLS: Kind[object] = IPPOOL  # whose values are texts here
KEY: Key[object] = POOLS.key("main")
NOBODY = DatastoreSettings()
USER = DatastoreSettings(etcd_username="netplug", etcd_password="secret")  # noqa: S106  # of a member that asks none

BUSY, LATE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN
NO_LEADER = GrpcRefusal(BUSY, "etcdserver: no leader")


def store_at(*urls: str, settings: DatastoreSettings = NOBODY, clock: Clock = CLOCK, first: int = 0) -> EtcdDatastore:
    """A store of texts whose client begins with the ``first`` of the URLs."""

    def chance(below: int) -> int:
        assert below == len(urls)
        return first

    client = EtcdClient(StaticMembers(parse_endpoints(urls)), Credentials(settings), clock=clock, random_below=chance)
    return EtcdDatastore(client, codec=SAMPLE_CODEC)


def within(seconds: float) -> Deadline:
    return Deadline.after(CLOCK, seconds)


def read(store: EtcdDatastore, deadline: Deadline | None = None) -> None:
    store.read([Get(KEY)], deadline=deadline or within(5))


def written(store: EtcdDatastore, deadline: Deadline | None = None) -> None:
    store.commit([Create(KEY, "a")], deadline=deadline or within(5))


@pytest.fixture
def refused_url() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{reserve_port()}"


@pytest.fixture
def other() -> Iterator[EtcdStub]:
    """A member that serves."""
    with open_etcd_stub() as stub:
        yield stub


# --- what an answer means --------------------------------------------------------------------------------------------

UNSETTLED = [
    GrpcRefusal(BUSY, "etcdserver: request timed out"),
    GrpcRefusal(BUSY, "etcdserver: request timed out, possibly due to previous leader failure"),
    GrpcRefusal(BUSY, "etcdserver: request timed out, possibly due to connection lost"),
    GrpcRefusal(BUSY, "etcdserver: leader changed"),
    GrpcRefusal(LATE, "etcdserver: something that no release of today says"),
    GrpcRefusal(BUSY, "error reading from server: EOF"),
]
FULL = GrpcRefusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
FULL_TEXT = f"{FULL.text}; the store is full: compact and defragment it, then disarm its alarm"
TURNED_AWAY = [
    NO_LEADER,
    GrpcRefusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
    GrpcRefusal(BUSY, "etcdserver: rpc not supported for learner"),
]


@pytest.mark.parametrize("said", UNSETTLED, ids=lambda said: said.text)
def test_a_write_whose_member_cannot_say_is_unknown_and_sent_once(said: GrpcRefusal, other: EtcdStub) -> None:
    """It may have been applied; a second one would meet its own effect, or undo another's."""
    with open_etcd_stub(lambda: said) as stub, closing(store_at(stub.url, other.url)) as store:
        with pytest.raises(OutcomeUnknown) as caught:
            written(store)
        assert str(caught.value) == f"etcd: {stub.url}: {said.text}"
        assert (len(stub.writes), len(other.txns)) == (1, 0)


@pytest.mark.parametrize("said", UNSETTLED, ids=lambda said: said.text)
def test_a_read_whose_member_cannot_say_is_asked_elsewhere(said: GrpcRefusal, other: EtcdStub) -> None:
    with open_etcd_stub(lambda: said) as stub, closing(store_at(stub.url, other.url)) as store:
        read(store)
        assert (len(stub.txns), len(other.txns)) == (1, 1)


def stored_now(value: bytes) -> Message:
    """The answer to a read of one key, where it is stored."""
    kv = CLASSES["KeyValue"](key=b"/netplug/resources/v3/projectnetplug.org/ippools/main", value=value, mod_revision=8)
    found = CLASSES["ResponseOp"](response_range=CLASSES["RangeResponse"](kvs=[kv]))
    return CLASSES["TxnResponse"](header=CLASSES["ResponseHeader"](revision=8), succeeded=True, responses=[found])


@pytest.mark.parametrize("read_back", [stored_now(b'"a"'), FULL], ids=["it is there", "nobody says"])
def test_a_write_that_filled_the_store_is_unknown(read_back: Message | GrpcRefusal) -> None:
    """A member makes it, and then answers that there is no room."""
    answers = [FULL, read_back]
    with open_etcd_stub(lambda: answers.pop(0)) as stub, closing(store_at(stub.url)) as store:
        with pytest.raises(OutcomeUnknown) as caught:
            written(store)
        assert str(caught.value) == f"etcd: {stub.url}: {FULL_TEXT}"
        assert (len(stub.writes), len(stub.txns)) == (1, 2)


def test_a_write_of_which_nothing_is_there_was_refused_by_a_full_store(other: EtcdStub) -> None:
    answers = [FULL, None]
    with open_etcd_stub(lambda: answers.pop(0)) as stub, closing(store_at(stub.url, other.url)) as store:
        with pytest.raises(Unavailable) as caught:
            written(store)
        assert type(caught.value) is Unavailable
        assert str(caught.value) == f"etcd: {stub.url}: {FULL_TEXT}"
        assert (len(stub.writes), len(stub.txns), other.txns) == (1, 2, [])


def test_a_read_that_a_full_store_refuses_fails_at_once(other: EtcdStub) -> None:
    """As etcd 3.5.1 does; the other members are as full."""
    with open_etcd_stub(lambda: FULL) as stub, closing(store_at(stub.url, other.url)) as store:
        with pytest.raises(Unavailable) as caught:
            read(store)
        assert type(caught.value) is Unavailable
        assert str(caught.value) == f"etcd: {stub.url}: {FULL_TEXT}"
        assert (len(stub.txns), other.txns) == (1, [])


@pytest.mark.parametrize("said", TURNED_AWAY, ids=lambda said: said.text)
def test_a_write_that_was_refused_before_anything_was_done_is_made_elsewhere(
    said: GrpcRefusal, other: EtcdStub
) -> None:
    with open_etcd_stub(lambda: said) as stub, closing(store_at(stub.url, other.url)) as store:
        written(store)
        assert (len(stub.writes), len(other.writes)) == (1, 1)


def test_a_write_that_was_never_sent_is_made_elsewhere(refused_url: str, other: EtcdStub) -> None:
    with closing(store_at(refused_url, other.url)) as store:
        written(store)
    assert len(other.writes) == 1


@pytest.mark.parametrize("host", ["[::1]", "[fe80::1%25lo]", "[fe80::1%lo]", "localhost"])
def test_a_host_is_taken_as_it_is_written(host: str) -> None:
    """None of them is called what it is not; a zone may be quoted, as in a URL (RFC 6874), or not."""
    with closing(store_at(f"http://{host}:1")) as store, pytest.raises(Unavailable) as caught:
        read(store, within(0.5))
    assert "resolving" not in str(caught.value), "it was found, and nobody listens there"


def test_a_host_that_nobody_knows_says_so(other: EtcdStub, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with closing(store_at("http://nowhere.invalid:1")) as store, pytest.raises(Unavailable) as caught:
        read(store, within(5.0))
    problem = "no address of nowhere.invalid is known: Name or service not known"
    assert str(caught.value) == f"etcd: http://nowhere.invalid:1: {problem}"
    with closing(store_at("http://nowhere.invalid:1", other.url)) as store:
        written(store)
    assert len(other.writes) == 1


@pytest.mark.parametrize("act", [read, written], ids=["read", "write"])
def test_d14_silent_name_servers_cost_no_more_than_the_deadline(
    act: Callable[..., object], other: EtcdStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many names wait for them: gRPC, which has few threads, is asked for none of these."""
    answer, names = Event(), [f"http://{name}.example:1" for name in ("one", "two", "three", "four")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: answer.wait(60))
    with closing(store_at(*names)) as store:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no name server answered by the deadline") as caught:
            act(store, within(0.4))
        assert time.monotonic() - began < 0.4 + MARGIN_S
        assert not isinstance(caught.value, OutcomeUnknown)
    with closing(store_at(*names, other.url)) as store:
        act(store, within(2.0))
    answer.set()
    assert other.txns


# --- short deadlines -------------------------------------------------------------------------------------------------


SHORT = pytest.mark.parametrize("call,seconds", [(read, 0.5), (written, 0.5), (written, 1.0), (read, 2.0)])


@SHORT
def test_a_short_deadline_on_a_dead_endpoint_says_that_the_connection_was_refused(
    refused_url: str, call: Call, seconds: float
) -> None:
    """STATUS allows two seconds for everything."""
    started = time.monotonic()
    with closing(store_at(refused_url)) as store, pytest.raises(Unavailable) as caught:
        call(store, within(seconds))
    assert time.monotonic() - started < seconds + MARGIN_S
    assert not isinstance(caught.value, OutcomeUnknown)
    assert str(caught.value).startswith(f"etcd: {refused_url}: ")
    assert "Connection refused" in str(caught.value)


@SHORT
def test_a_short_deadline_on_a_member_without_a_leader_says_so(call: Call, seconds: float) -> None:
    started = time.monotonic()
    with open_etcd_stub(lambda: NO_LEADER) as stub, closing(store_at(stub.url)) as store:
        with pytest.raises(Unavailable) as caught:
            call(store, within(seconds))
        assert time.monotonic() - started < seconds + MARGIN_S
        assert str(caught.value) == f"etcd: {stub.url}: etcdserver: no leader"


def test_every_call_says_that_it_needs_a_leader(other: EtcdStub) -> None:
    """Or a member that is cut off from the others would let it wait."""
    with closing(store_at(other.url, settings=USER)) as store:
        written(store)
        read(store)
        next(store.watch({POOLS: Revision("7")}, deadline=within(5)))
    assert (len(other.logins), len(other.txns)) == (1, 2)
    assert [each.get("hasleader") for each in other.metadata] == ["true"] * 4


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_a_short_deadline_on_a_member_that_hangs_says_how_long_it_was_waited_for(seconds: float) -> None:
    with (
        open_etcd_stub(answer_late) as stub,
        closing(store_at(stub.url)) as store,
        pytest.raises(Unavailable) as caught,
    ):
        read(store, within(seconds))
    assert str(caught.value) == f"etcd: {stub.url}: no answer within {seconds:.1f} s"


# --- logins ----------------------------------------------------------------------------------------------------------


def test_d14_a_lost_login_is_no_unknown_outcome(other: EtcdStub) -> None:
    """The write that it was for was never sent, and so another member may log the user in and take it."""
    with open_etcd_stub(on_login=lambda: UNSETTLED[0]) as stub:
        with closing(store_at(stub.url, settings=USER)) as store, pytest.raises(Unavailable) as caught:
            written(store, within(1))
        assert not isinstance(caught.value, OutcomeUnknown)
        assert UNSETTLED[0].text in str(caught.value)
        with closing(store_at(stub.url, other.url, settings=USER)) as store:
            written(store)
        assert (stub.txns, len(other.logins), len(other.writes)) == ([], 1, 1)


def test_d14_a_login_that_is_not_answered_ends_by_the_deadline() -> None:
    with open_etcd_stub(on_login=answer_late) as stub, closing(store_at(stub.url, settings=USER)) as store:
        for call in (read, written):
            started = time.monotonic()
            with pytest.raises(Unavailable, match="no answer within") as caught:
                call(store, within(1))
            assert time.monotonic() - started < 1 + MARGIN_S
            assert not isinstance(caught.value, OutcomeUnknown)
        assert stub.txns == []


# --- whom a client asks ----------------------------------------------------------------------------------------------


def test_the_member_to_begin_with_is_drawn() -> None:
    with ExitStack() as stack:
        stubs = [stack.enter_context(open_etcd_stub()) for _ in range(3)]
        with closing(store_at(*(stub.url for stub in stubs), first=1)) as store:
            read(store)
        assert [len(stub.txns) for stub in stubs] == [0, 1, 0]


class CountingDirectory:
    """A directory that takes its time to say who the members are, and counts how often it is asked."""

    location = "counted"

    def __init__(self, members: tuple[EtcdEndpoint, ...], *, takes_s: float = 0.2) -> None:
        self.members = members
        self.takes_s = takes_s
        self.lookups = 0

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        self.lookups += 1
        random_below(1)
        CLOCK.sleep(min(self.takes_s, deadline.remaining_s))
        return self.members


def test_calls_that_begin_at_once_ask_for_the_members_once(other: EtcdStub) -> None:
    """And begin with one and the same member, as all that come later."""
    directory, drawn = CountingDirectory(parse_endpoints([other.url])), list(range(4))
    client = EtcdClient(directory, Credentials(NOBODY), clock=CLOCK, random_below=lambda _below: drawn.pop())
    start = Barrier(4)
    with closing(EtcdDatastore(client, codec=SAMPLE_CODEC)) as store:

        def begin() -> None:
            start.wait()
            read(store)

        threads = [Thread(target=begin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (directory.lookups, len(drawn), len(other.txns)) == (1, 3, 4)


def test_d14_a_call_waits_for_what_another_one_asks_no_longer_than_it_may(other: EtcdStub) -> None:
    directory = CountingDirectory(parse_endpoints([other.url]), takes_s=1.0)
    client = EtcdClient(directory, Credentials(NOBODY), clock=CLOCK, random_below=lambda _below: 0)
    with closing(EtcdDatastore(client, codec=SAMPLE_CODEC)) as store:
        first = Thread(target=read, args=(store,))
        first.start()
        while not directory.lookups:
            CLOCK.sleep(0.01)
        started = time.monotonic()
        with pytest.raises(Unavailable, match="the deadline passed before it could be asked"):
            read(store, within(0.2))
        assert time.monotonic() - started < 0.2 + MARGIN_S
        first.join()
    assert directory.lookups == 1


def test_a_member_that_failed_rests_for_fifteen_seconds_and_is_asked_first_again(other: EtcdStub) -> None:
    clock, answers = ManualClock(), [NO_LEADER]
    with (
        open_etcd_stub(lambda: answers.pop() if answers else None) as stub,
        closing(store_at(stub.url, other.url, clock=clock)) as store,
    ):
        asked: list[tuple[int, int]] = []
        for pause_s in (0.0, 14.0, 1.1):
            clock.sleep(pause_s)
            read(store, Deadline.after(clock, 5.0))
            asked.append((len(stub.txns), len(other.txns)))
    assert asked == [(1, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize("said", [NO_LEADER, UNSETTLED[3]], ids=lambda said: said.text)
def test_a_read_is_served_by_members_that_elect_although_the_last_one_asked_hangs(said: GrpcRefusal) -> None:
    """The paused member gets no more than half of the time that is left: those that said "not yet" are asked again."""
    answers = [said, said]
    with (
        open_etcd_stub(lambda: answers.pop() if answers else None) as electing,
        open_etcd_stub(answer_late) as paused,
        closing(store_at(electing.url, paused.url)) as store,
    ):
        read(store, within(2.0))
    assert (len(electing.txns), len(paused.txns)) == (3, 2)


# --- closing ---------------------------------------------------------------------------------------------------------


def watching(store: EtcdDatastore) -> tuple[Thread, list[WatchEvent[object]]]:
    """A thread that follows until the watch ends; it has been told of one change."""
    told: list[WatchEvent[object]] = []
    thread = Thread(target=lambda: told.extend(store.watch({POOLS: Revision("7")}, deadline=within(20))), daemon=True)
    thread.start()
    return thread, told


def test_a_watch_that_waits_is_interrupted_and_its_store_goes_on() -> None:
    """Whether it waits, or has not begun yet."""
    with open_etcd_stub() as stub, closing(store_at(stub.url)) as store:
        told: list[WatchEvent[object]] = []
        watch = store.watch({POOLS: Revision("7")}, deadline=within(3600))
        assert isinstance(watch, InterruptibleWatch)
        thread = Thread(target=lambda: told.extend(watch), daemon=True)
        thread.start()
        wait_until(lambda: len(stub.metadata) == 1, "it has begun")
        watch.interrupt()
        wait_until(lambda: not thread.is_alive(), "it ends long before its deadline")
        assert len(told) == 1
        begun = len(stub.metadata)
        other = store.watch({POOLS: Revision("7")}, deadline=within(3600))
        assert isinstance(other, InterruptibleWatch)
        other.interrupt()
        assert (list(other), len(stub.metadata)) == ([], begun)
        read(store)


def test_closing_a_store_ends_its_watches_and_connects_to_nobody_again(other: EtcdStub) -> None:
    with open_etcd_stub() as stub:
        store = store_at(stub.url, other.url)
        thread, told = watching(store)
        assert is_eventually(lambda: len(stub.metadata) == 1)
        CLOCK.sleep(0.6)  # a look at a channel delays its end
        store.close()
        thread.join(MARGIN_S)
        assert (thread.is_alive(), len(told)) == (False, 1), "it ends as at its deadline, with what it has told"
        assert (len(stub.metadata), other.metadata) == (1, [])
        read(store)
        store.close()
        assert (len(stub.txns), other.txns) == (1, []), "a later call connects again, and to the same member"


def test_closing_a_store_ends_a_call_that_waits_and_asks_nobody_else(other: EtcdStub) -> None:
    with open_etcd_stub(answer_late) as stub:
        for call, failure in ((read, ClientClosed), (written, OutcomeUnknown)):
            store, raised = store_at(stub.url, other.url), list[BaseException]()

            def begin(call: Call = call, store: EtcdDatastore = store, raised: list[BaseException] = raised) -> None:
                try:
                    call(store, within(20))
                except Unavailable as error:
                    raised.append(error)

            asked = len(stub.txns)
            thread = Thread(target=begin, daemon=True)
            thread.start()
            while len(stub.txns) == asked:
                CLOCK.sleep(0.01)
            CLOCK.sleep(0.6)
            store.close()
            thread.join(MARGIN_S)
            assert ([type(each) for each in raised], other.txns) == ([failure], [])


def test_closing_a_store_ends_a_watch_that_outlived_a_rotation(other: EtcdStub, tmp_path: Path) -> None:
    """Its connection was made with other certificates, and no other call has used it for long."""
    clock, roots = ManualClock(), issue_certificates(tmp_path)
    settings = DatastoreSettings(etcd_ca_cert_file=str(roots.root))
    store = store_at(other.url, settings=settings, clock=clock)
    thread, _ = watching(store)
    assert is_eventually(lambda: len(other.metadata) == 1)
    roots.root.write_bytes(roots.root.read_bytes() + roots.other_root.read_bytes())
    for _ in range(2):
        read(store)
        clock.sleep(11.0)
    read(store)
    assert thread.is_alive()
    store.close()
    thread.join(MARGIN_S)
    assert not thread.is_alive()
    assert len(other.metadata) == 4, "one watch and three reads"


# --- one moment ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_large_read_are_pinned_to_the_moment_of_the_first(other: EtcdStub) -> None:
    """Whatever is written in between is not seen."""
    with closing(store_at(other.url)) as store:
        snapshot = store.read([Get(POOLS.key(f"p-{n}")) for n in range(MAX_COMMIT_WRITES + 1)], deadline=within(5))
    first, second = other.txns
    assert {each.request_range.revision for each in first.success} == {0}
    assert [each.request_range.revision for each in second.success] == [other.revision]
    assert snapshot.revision(POOLS) == str(other.revision)


def test_a_watch_from_what_the_store_never_reached_has_expired(other: EtcdStub) -> None:
    """As after a backup was put back: the member would say nothing until the store comes so far."""
    with closing(store_at(other.url)) as store, pytest.raises(WatchExpired) as caught:
        list(store.watch({POOLS: Revision("12")}, deadline=within(5)))
    assert caught.value.revision == "12"
    (asked,) = other.txns
    assert [each.HasField("request_range") for each in asked.success] == [True], "which the others are asked about"


def test_a_watch_at_a_member_that_lags_behind_the_others_goes_on(other: EtcdStub) -> None:
    other.watched_at, other.revision = 3, 12
    with closing(store_at(other.url)) as store:
        assert next(store.watch({POOLS: Revision("12")}, deadline=within(5))) == WatchEvent(KEY, "a", Revision("13"))
    assert len(other.txns) == 1
    other.watched_at = 12
    with closing(store_at(other.url)) as store:
        assert next(store.watch({POOLS: Revision("12")}, deadline=within(5))) == WatchEvent(KEY, "a", Revision("13"))
    assert len(other.txns) == 1, "one that has come so far is not asked"
