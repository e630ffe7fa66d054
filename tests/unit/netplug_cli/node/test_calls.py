"""The queue of calls, and what is sent for one."""

import os
import socket
from contextlib import closing
from functools import partial
from threading import Thread, current_thread

import pytest

from netplug_cli.node.calls import CallQueue, NodeProcessBusy, serve_call
from netplug_core.cni.wire import TAKEN, WireReply, WireRequest, parse_reply
from netplug_core.errors import ErrorCode
from tests.harness.node_server import REPLY, REQUEST, Lines, pending_call
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until


def test_calls_are_taken_in_the_order_in_which_they_came() -> None:
    queue, pairs = CallQueue(3), [pending_call() for _ in range(3)]
    calls = [call for call, _client in pairs]
    assert [queue.put(call) for call in calls] == [True] * 3
    assert len(queue) == 3
    assert [queue.take() for _ in calls] == calls
    for call, client in pairs:
        call.close()
        client.close()


def test_a_full_queue_takes_no_call_until_one_is_taken() -> None:
    queue, (first, one), (second, other) = CallQueue(1), pending_call(), pending_call()
    with closing(first), closing(second), one, other:
        assert queue.put(first)
        assert not queue.put(second)
        assert queue.take() is first
        assert queue.put(second)


def has_idle(queue: CallQueue, count: int) -> bool:
    return queue.idle == count


def test_the_thread_that_began_to_wait_last_gets_the_next_call() -> None:
    queue, (call, client) = CallQueue(1), pending_call()
    takers: list[str] = []

    def take() -> None:
        if queue.take() is call:
            takers.append(current_thread().name)

    threads = [Thread(target=take, name=name) for name in ("first", "second", "third")]
    for waiting, thread in enumerate(threads, 1):
        thread.start()
        wait_until(partial(has_idle, queue, waiting), "the thread waits")
    with closing(call), client:
        assert queue.put(call)
        threads[-1].join(EMERGENCY_STOP_S)
        assert (takers, queue.idle) == (["third"], 2)
    queue.close()
    for thread in threads:
        thread.join(EMERGENCY_STOP_S)


def test_closing_gives_back_what_waits_and_wakes_who_waits() -> None:
    queue, (call, client) = CallQueue(1), pending_call()
    found: list[object] = []
    queue.put(call)
    queue.close()
    assert client.recv(1) == b"", "the client serves itself"
    assert not queue.put(call)
    assert queue.take() is None
    waiting = CallQueue(1)
    thread = Thread(target=lambda: found.append(waiting.take()))
    thread.start()
    waiting.close()
    thread.join(EMERGENCY_STOP_S)
    assert found == [None]
    client.close()


def test_who_has_waited_for_long_learns_once_that_the_call_is_taken() -> None:
    queue, (late, client), (young, other) = CallQueue(2), pending_call(came_at=1.0), pending_call(came_at=9.0)
    with client, other:
        assert queue.put(late)
        assert queue.put(young)
        for _ in range(2):
            queue.acknowledge(came_before=5.0)
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        assert queue.take() is late
        serve_call(late, lambda _request, _namespace: REPLY, now=9, log=Lines())
        assert client.recv(1) == TAKEN
        assert parse_reply(TAKEN + client.recv(1000)) == REPLY, "no second acknowledgement came before it"
        young.close()


def test_who_has_gone_while_the_call_waited_is_waited_for_no_more() -> None:
    queue, (call, client) = CallQueue(1), pending_call()
    client.close()
    assert queue.put(call)
    queue.acknowledge(came_before=5.0)
    assert len(queue) == 0
    assert call.connection.fileno() == -1


def test_a_call_is_taken_before_it_is_answered() -> None:
    call, client = pending_call()
    received: list[bytes] = []

    def answer(request: WireRequest, namespace: int | None) -> WireReply:
        assert (request, namespace) == (REQUEST, None)
        received.append(client.recv(10))
        return REPLY

    serve_call(call, answer, now=0, log=Lines())
    assert received == [TAKEN]
    assert parse_reply(TAKEN + client.recv(1000)) == REPLY
    assert client.recv(1) == b""
    client.close()


def refuse_to_answer(_request: WireRequest, _namespace: int | None) -> WireReply:
    raise AssertionError("nothing may be done")


def test_nothing_is_done_if_the_client_has_gone() -> None:
    call, client = pending_call()
    client.shutdown(socket.SHUT_RDWR)
    serve_call(call, refuse_to_answer, now=0, log=Lines())
    assert client.recv(1) == b""
    client.close()


def test_nothing_is_done_if_the_client_waits_no_more() -> None:
    call, client = pending_call(gives_up_at=5)
    serve_call(call, refuse_to_answer, now=5.1, log=Lines())
    assert client.recv(1) == b""
    client.close()


def test_a_reply_that_cannot_be_sent_is_a_line_of_the_log() -> None:
    call, client = pending_call()
    log = Lines()

    def answer(_request: WireRequest, _namespace: int | None) -> WireReply:
        client.close()
        return REPLY

    serve_call(call, answer, now=0, log=log)
    assert log.texts == ["WARNING a reply could not be sent cause=[Errno 32] Broken pipe program=netplug"]


def test_the_descriptor_is_there_for_the_answer_and_closed_after_it() -> None:
    reader, writer = os.pipe()
    call, client = pending_call(namespace=reader)

    def answer(_request: WireRequest, namespace: int | None) -> WireReply:
        assert namespace == reader
        os.fstat(reader)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serve_call(call, answer, now=0, log=Lines())
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    assert client.recv(10) == TAKEN
    assert client.recv(10) == b"", "the reply breaks off"
    os.close(writer)
    client.close()


def test_busy_is_try_again() -> None:
    error = NodeProcessBusy(waiting=256)
    assert error.error_code is ErrorCode.TRY_AGAIN
    assert str(error) == "the node process is busy: 256 calls wait; try again"
