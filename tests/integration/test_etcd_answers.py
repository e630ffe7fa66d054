"""What each answer of a member means: asked again elsewhere, unknown, or an error; from members that say it on demand.

D14: each failing call also ends by its deadline, and says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import grpc
import pytest

from netplug_backends.etcdv3.client import EtcdClient
from netplug_backends.etcdv3.datastore import OPERATIONS, EtcdDatastore
from netplug_backends.etcdv3.endpoints import Listed, parse_endpoints
from netplug_backends.etcdv3.tls import Credentials
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import Unavailable
from netplug_core.netconf.model import DatastoreSettings
from netplug_core.records import Change, Create, Get, Key, Kind, OutcomeUnknown, Revision, WatchExpired
from netplug_core.resources.ippool import IPPOOL
from netplug_core.testing.bench import SAMPLE_CODEC
from netplug_core.testing.clock import ManualClock
from tests.integration.etcd_server import free_ports
from tests.integration.etcd_stub import Said, Stub, opened_stub, silence

Call = Callable[[EtcdDatastore, Deadline], None]

CLOCK = SystemClock()
POOLS: Kind[object] = IPPOOL  # whose values are texts here
KEY: Key[object] = POOLS.key("main")
MARGIN_S = 0.5
NOBODY = DatastoreSettings()
SOMEBODY = DatastoreSettings(etcd_username="netplug", etcd_password="secret")  # noqa: S106  # of a member that asks none

BUSY, LATE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN
NO_LEADER = Said(BUSY, "etcdserver: no leader")


def store_at(*urls: str, settings: DatastoreSettings = NOBODY, clock: Clock = CLOCK, first: int = 0) -> EtcdDatastore:
    """A store of texts whose client begins with the ``first`` of the URLs."""

    def chance(below: int) -> int:
        assert below == len(urls)
        return first

    client = EtcdClient(Listed(parse_endpoints(urls)), Credentials(settings), clock=clock, chance=chance)
    return EtcdDatastore(client, codec=SAMPLE_CODEC)


def within(seconds: float) -> Deadline:
    return Deadline.after(CLOCK, seconds)


def read(store: EtcdDatastore, deadline: Deadline | None = None) -> None:
    store.read([Get(KEY)], deadline=deadline or within(5))


def written(store: EtcdDatastore, deadline: Deadline | None = None) -> None:
    store.commit([Create(KEY, "a")], deadline=deadline or within(5))


@pytest.fixture
def dead() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def other() -> Iterator[Stub]:
    """A member that serves."""
    with opened_stub() as stub:
        yield stub


# --- what an answer means --------------------------------------------------------------------------------------------

UNSETTLED = [
    Said(BUSY, "etcdserver: request timed out"),
    Said(BUSY, "etcdserver: request timed out, possibly due to previous leader failure"),
    Said(BUSY, "etcdserver: request timed out, possibly due to connection lost"),
    Said(BUSY, "etcdserver: leader changed"),
    Said(LATE, "etcdserver: something that no release of today says"),
    Said(BUSY, "error reading from server: EOF"),
]
TURNED_AWAY = [
    NO_LEADER,
    Said(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
    Said(BUSY, "etcdserver: rpc not supported for learner"),
]


@pytest.mark.parametrize("said", UNSETTLED, ids=lambda said: said.text)
def test_a_write_whose_member_cannot_say_is_unknown_and_sent_once(said: Said, other: Stub) -> None:
    """It may have been applied; a second one would meet its own effect, or undo another's."""
    with opened_stub(lambda: said) as stub, closing(store_at(stub.url, other.url)) as store:
        with pytest.raises(OutcomeUnknown) as caught:
            written(store)
        assert str(caught.value) == f"etcd: {stub.url}: {said.text}"
        assert (len(stub.writes), len(other.txns)) == (1, 0)


@pytest.mark.parametrize("said", UNSETTLED, ids=lambda said: said.text)
def test_a_read_whose_member_cannot_say_is_asked_elsewhere(said: Said, other: Stub) -> None:
    with opened_stub(lambda: said) as stub, closing(store_at(stub.url, other.url)) as store:
        read(store)
        assert (len(stub.txns), len(other.txns)) == (1, 1)


@pytest.mark.parametrize("said", TURNED_AWAY, ids=lambda said: said.text)
def test_a_write_that_was_refused_before_anything_was_done_is_made_elsewhere(said: Said, other: Stub) -> None:
    with opened_stub(lambda: said) as stub, closing(store_at(stub.url, other.url)) as store:
        written(store)
        assert (len(stub.writes), len(other.writes)) == (1, 1)


def test_a_write_that_was_never_sent_is_made_elsewhere(dead: str, other: Stub) -> None:
    with closing(store_at(dead, other.url)) as store:
        written(store)
    assert len(other.writes) == 1


# --- short deadlines -------------------------------------------------------------------------------------------------


SHORT = pytest.mark.parametrize("call,seconds", [(read, 0.5), (written, 0.5), (written, 1.0), (read, 2.0)])


@SHORT
def test_a_short_deadline_on_a_dead_endpoint_says_that_the_connection_was_refused(
    dead: str, call: Call, seconds: float
) -> None:
    """STATUS allows two seconds for everything."""
    started = time.monotonic()
    with closing(store_at(dead)) as store, pytest.raises(Unavailable) as caught:
        call(store, within(seconds))
    assert time.monotonic() - started < seconds + MARGIN_S
    assert not isinstance(caught.value, OutcomeUnknown)
    assert str(caught.value).startswith(f"etcd: {dead}: ")
    assert "Connection refused" in str(caught.value)


@SHORT
def test_a_short_deadline_on_a_member_without_a_leader_says_so(call: Call, seconds: float) -> None:
    started = time.monotonic()
    with opened_stub(lambda: NO_LEADER) as stub, closing(store_at(stub.url)) as store:
        with pytest.raises(Unavailable) as caught:
            call(store, within(seconds))
        assert time.monotonic() - started < seconds + MARGIN_S
        assert str(caught.value) == f"etcd: {stub.url}: etcdserver: no leader"


def test_every_call_says_that_it_needs_a_leader(other: Stub) -> None:
    """Or a member that is cut off from the others would let it wait."""
    with closing(store_at(other.url, settings=SOMEBODY)) as store:
        written(store)
        read(store)
        next(store.watch({POOLS: Revision("7")}, deadline=within(5)))
    assert (len(other.logins), len(other.txns)) == (1, 2)
    assert [each.get("hasleader") for each in other.metadata] == ["true"] * 4


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_a_short_deadline_on_a_member_that_hangs_says_how_long_it_was_waited_for(seconds: float) -> None:
    with opened_stub(silence) as stub, closing(store_at(stub.url)) as store, pytest.raises(Unavailable) as caught:
        read(store, within(seconds))
    assert str(caught.value) == f"etcd: {stub.url}: no answer within {seconds:.1f} s"


# --- logins ----------------------------------------------------------------------------------------------------------


def test_d14_a_lost_login_is_no_unknown_outcome(other: Stub) -> None:
    """The write that it was for was never sent, and so another member may log the user in and take it."""
    with opened_stub(on_login=lambda: UNSETTLED[0]) as stub:
        with closing(store_at(stub.url, settings=SOMEBODY)) as store, pytest.raises(Unavailable) as caught:
            written(store, within(1))
        assert not isinstance(caught.value, OutcomeUnknown)
        assert UNSETTLED[0].text in str(caught.value)
        with closing(store_at(stub.url, other.url, settings=SOMEBODY)) as store:
            written(store)
        assert (stub.txns, len(other.logins), len(other.writes)) == ([], 1, 1)


def test_d14_a_login_that_is_not_answered_ends_by_the_deadline() -> None:
    with opened_stub(on_login=silence) as stub, closing(store_at(stub.url, settings=SOMEBODY)) as store:
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
        stubs = [stack.enter_context(opened_stub()) for _ in range(3)]
        with closing(store_at(*(stub.url for stub in stubs), first=1)) as store:
            read(store)
        assert [len(stub.txns) for stub in stubs] == [0, 1, 0]


def test_a_member_that_failed_rests_for_fifteen_seconds_and_is_asked_first_again(other: Stub) -> None:
    clock, answers = ManualClock(), [NO_LEADER]
    with (
        opened_stub(lambda: answers.pop() if answers else None) as stub,
        closing(store_at(stub.url, other.url, clock=clock)) as store,
    ):
        asked: list[tuple[int, int]] = []
        for pause_s in (0.0, 14.0, 1.1):
            clock.sleep(pause_s)
            read(store, Deadline.after(clock, 5.0))
            asked.append((len(stub.txns), len(other.txns)))
    assert asked == [(1, 1), (1, 2), (2, 2)]


# --- one moment ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_large_read_are_pinned_to_the_moment_of_the_first(other: Stub) -> None:
    """Whatever is written in between is not seen."""
    with closing(store_at(other.url)) as store:
        snapshot = store.read([Get(POOLS.key(f"p-{n}")) for n in range(OPERATIONS + 1)], deadline=within(5))
    first, second = other.txns
    assert {each.request_range.revision for each in first.success} == {0}
    assert [each.request_range.revision for each in second.success] == [other.revision]
    assert snapshot.revision(POOLS) == str(other.revision)


def test_a_watch_from_what_the_store_never_reached_has_expired(other: Stub) -> None:
    """As after a backup was put back: the member would say nothing until the store comes so far."""
    with closing(store_at(other.url)) as store, pytest.raises(WatchExpired) as caught:
        list(store.watch({POOLS: Revision("12")}, deadline=within(5)))
    assert caught.value.revision == "12"
    (asked,) = other.txns
    assert [each.HasField("request_range") for each in asked.success] == [True], "which the others are asked about"


def test_a_watch_at_a_member_that_lags_behind_the_others_goes_on(other: Stub) -> None:
    other.watched_at, other.revision = 3, 12
    with closing(store_at(other.url)) as store:
        assert next(store.watch({POOLS: Revision("12")}, deadline=within(5))) == Change(KEY, "a", Revision("13"))
    assert len(other.txns) == 1
    other.watched_at = 12
    with closing(store_at(other.url)) as store:
        assert next(store.watch({POOLS: Revision("12")}, deadline=within(5))) == Change(KEY, "a", Revision("13"))
    assert len(other.txns) == 1, "one that has come so far is not asked"
