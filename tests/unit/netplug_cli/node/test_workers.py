"""The threads that serve calls, and how they end."""

from threading import Event

import pytest

from netplug_cli.node import server
from netplug_cli.node.calls import CallQueue
from netplug_cli.node.server import Workers
from netplug_core.cni.wire import TAKEN, WireReply, WireRequest, parse_reply
from tests.harness.node_server import REPLY, Lines, pending_call
from tests.harness.waiting import wait_until


def test_as_many_calls_are_served_at_once_as_there_are_workers() -> None:
    both = [Event(), Event()]

    def answer(_request: WireRequest, _namespace: int | None) -> WireReply:
        mine = next(event for event in both if not event.is_set())
        mine.set()
        assert all(event.wait(60) for event in both)
        return REPLY

    queue = CallQueue(2)
    workers = Workers(2, queue, answer, Lines())
    clients = []
    for _ in both:
        call, client = pending_call()
        queue.put(call)
        clients.append(client)
    workers.start()
    for client in clients:
        assert client.recv(1) == TAKEN
        assert parse_reply(TAKEN + client.recv(1000)) == REPLY
        client.close()
    assert workers.stop(60) == 0


def test_a_call_that_cannot_be_answered_does_not_end_its_worker() -> None:
    log, queue, replies = Lines(), CallQueue(2), list[WireReply]()

    def answer(_request: WireRequest, _namespace: int | None) -> WireReply:
        if not replies:
            replies.append(REPLY)
            raise SystemExit
        return replies[0]

    workers = Workers(1, queue, answer, log)
    workers.start()
    (first, broken), (second, client) = pending_call(), pending_call()
    queue.put(first)
    assert broken.recv(1) == TAKEN
    assert broken.recv(1) == b""
    queue.put(second)
    assert client.recv(1) == TAKEN
    assert parse_reply(TAKEN + client.recv(1000)) == REPLY
    assert workers.stop(60) == 0
    (text,) = log.texts
    assert text.startswith("ERROR a call could not be answered\nTraceback ")
    broken.close()
    client.close()


def test_a_call_that_does_not_end_is_counted() -> None:
    begun, end, queue = Event(), Event(), CallQueue(1)

    def answer(_request: WireRequest, _namespace: int | None) -> WireReply:
        begun.set()
        end.wait(60)
        return REPLY

    workers = Workers(1, queue, answer, Lines())
    workers.start()
    call, client = pending_call()
    queue.put(call)
    assert begun.wait(60)
    assert workers.stop(0.05) == 1
    end.set()
    assert workers.stop(60) == 0
    client.close()


def test_calls_that_only_wait_for_others_occupy_no_worker() -> None:
    """One worker serves the calls that come meanwhile, and there is one again afterwards."""
    may_end, waiting = Event(), [Event(), Event(), Event()]
    queue = CallQueue(9)

    def answer(request: WireRequest, _namespace: int | None) -> WireReply:
        mine = next((event for event in waiting if not event.is_set()), None)
        if mine is not None:
            with workers.standing_in():
                mine.set()
                assert may_end.wait(60)
        return REPLY

    workers = Workers(1, queue, answer, Lines())
    workers.start()
    held = []
    for event in waiting:
        call, client = pending_call()
        queue.put(call)
        assert event.wait(60)
        held.append(client)
    served, other = pending_call()
    queue.put(served)
    assert other.recv(1) == TAKEN
    assert parse_reply(TAKEN + other.recv(1000)) == REPLY
    may_end.set()
    for client in held:
        assert client.recv(1) == TAKEN
        assert parse_reply(TAKEN + client.recv(1000)) == REPLY
    wait_until(lambda: queue.idle == 1, "one thread waits for calls")
    assert workers.are_alive
    assert workers.stop(60) == 0
    for client in (*held, other):
        client.close()


def test_beyond_a_number_a_call_that_waits_occupies_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_STAND_INS", 0)
    queue = CallQueue(1)
    workers = Workers(1, queue, lambda _request, _namespace: REPLY, Lines())
    workers.start()
    with workers.standing_in():
        wait_until(lambda: queue.idle == 1, "the one worker waits for calls")
    assert workers.stop(60) == 0
