"""What the server reads from clients, and what it does with those that send something else, or nothing."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from netplug_cli.node.calls import CallQueue, PendingCall
from netplug_core.cni.wire import HEADER_LENGTH, MAX_BODY_LENGTH, TAKEN, encode_request, parse_reply
from tests.harness.node_process import connect, receive_all
from tests.harness.node_server import REQUEST, Lines, served
from tests.harness.waiting import wait_until

DATA = encode_request(REQUEST, patience_s=60)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "node.sock")


def taken(queue: CallQueue) -> PendingCall:
    call = queue.take()
    assert call is not None
    return call


@pytest.mark.parametrize("size", [1, 7, HEADER_LENGTH, len(DATA)])
def test_a_request_is_read_as_it_comes(path: str, size: int) -> None:
    queue = CallQueue(1)
    with served(path, queue, Lines()), closing(connect(path)) as client:
        for at in range(0, len(DATA), size):
            client.sendall(DATA[at : at + size])
        with closing(taken(queue)) as call:
            assert (call.request, call.namespace) == (REQUEST, None)


def test_a_client_whose_call_no_worker_takes_learns_that_it_is_taken(path: str) -> None:
    """It would serve itself otherwise. When the process ends first, it resumes the call."""
    queue = CallQueue(1)
    with served(path, queue, Lines(), acknowledge_s=0.01), closing(connect(path)) as client:
        client.sendall(DATA)
        assert client.recv(10) == TAKEN
        queue.close()
        assert receive_all(client) == b""


def test_a_descriptor_comes_with_it(path: str, tmp_path: Path) -> None:
    queue, descriptor = CallQueue(1), os.open(tmp_path, os.O_RDONLY)
    with served(path, queue, Lines()), closing(connect(path)) as client:
        socket.send_fds(client, [DATA], [descriptor])
        os.close(descriptor)
        with closing(taken(queue)) as call:
            assert call.namespace is not None
            assert os.fstat(call.namespace).st_ino == tmp_path.stat().st_ino
            assert not os.get_inheritable(call.namespace)


def test_two_descriptors_are_refused_and_closed(path: str) -> None:
    reader, writer = os.pipe()
    log = Lines()
    with served(path, CallQueue(1), log), closing(connect(path)) as client:
        socket.send_fds(client, [DATA[:1]], [writer])
        socket.send_fds(client, [DATA[1:]], [writer])
        os.close(writer)
        assert receive_all(client) == b""
        assert os.read(reader, 1) == b"", "no copy of it is open"
    os.close(reader)
    assert log.texts == [
        "WARNING a request cannot be served cause=the request: came with 2 descriptors, one at most is expected"
    ]


def test_many_clients_at_once(path: str) -> None:
    """More than are read at once: the others wait to be accepted."""
    queue = CallQueue(20)
    with served(path, queue, Lines(), max_reading=2):
        clients = [connect(path) for _ in range(20)]
        for client in reversed(clients):
            client.sendall(DATA)
        for _ in clients:
            taken(queue).close()
        for client in clients:
            client.close()


def test_a_full_queue_is_answered_at_once(path: str) -> None:
    log = Lines()
    with served(path, CallQueue(0), log), closing(connect(path)) as client:
        client.sendall(DATA)
        reply = parse_reply(receive_all(client))
    assert reply is not None
    assert (reply.exit_status, reply.stdout) == (1, b"the node process is busy: 0 calls wait; try again")
    assert log.texts == ["WARNING a call is refused cause=the node process is busy: 0 calls wait; try again"]


def test_a_request_that_does_not_come_in_time_is_given_up(path: str) -> None:
    log = Lines()
    with served(path, CallQueue(1), log, read_s=0.05), closing(connect(path)) as client:
        client.sendall(DATA[:-1])
        assert receive_all(client) == b""
    assert log.texts == ["WARNING a request cannot be served cause=it did not come within 0.05 s"]


def test_an_idle_client_is_given_up_while_others_are_served(path: str) -> None:
    log, queue = Lines(), CallQueue(1)
    with served(path, queue, log, read_s=0.05), closing(connect(path)) as idle, closing(connect(path)) as client:
        client.sendall(DATA)
        taken(queue).close()
        assert receive_all(idle) == b""


@pytest.mark.parametrize(
    "data,cause",
    [
        (b"x" * HEADER_LENGTH, "does not begin with b'netplug\\x01': b'xxxxxxxx'"),
        (DATA[:12] + (MAX_BODY_LENGTH + 1).to_bytes(4, "big"), "has 4194305 bytes, at most 4194304 are accepted"),
        (DATA[:12] + (2).to_bytes(4, "big") + b"ab", "has no end of its variables"),
        (DATA[:12] + (6).to_bytes(4, "big") + b"bash\0\0", "is for 'bash', which is none of"),
        (DATA[:-1], "the client has closed the connection"),
    ],
)
def test_what_is_no_request_is_closed(path: str, data: bytes, cause: str) -> None:
    log = Lines()
    with served(path, CallQueue(1), log), closing(connect(path)) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        assert receive_all(client) == b""
    (text,) = log.texts
    assert text.startswith("WARNING a request cannot be served cause=")
    assert cause in text


def test_a_client_that_only_looks_is_no_line_of_the_log(path: str) -> None:
    log, queue = Lines(), CallQueue(1)
    with served(path, queue, log):
        connect(path).close()
        with closing(connect(path)) as client:
            client.sendall(DATA)
            taken(queue).close()
    assert log.texts == []


def test_another_user_is_not_served(path: str) -> None:
    log = Lines()
    with served(path, CallQueue(1), log, uid=os.geteuid() + 1), closing(connect(path)) as client:
        assert receive_all(client) == b""
    assert log.texts == [f"WARNING a process of another user is not served process={os.getpid()} user={os.geteuid()}"]


def test_what_has_not_come_as_a_whole_is_closed_at_the_end(path: str) -> None:
    queue = CallQueue(1)
    with closing(socket.socket(socket.AF_UNIX)) as client:
        with served(path, queue, Lines()):
            client.connect(path)
            client.sendall(DATA[:-1])
        assert receive_all(client) == b""
    assert len(queue) == 0


def test_a_client_that_is_answered_reads_the_byte_that_says_so(path: str) -> None:
    with served(path, CallQueue(0), Lines()), closing(connect(path)) as client:
        client.sendall(DATA)
        assert client.recv(1) == TAKEN


STANDARD_STREAMS = 3  # with a limit below the descriptors that one waits for, the kernel refuses to wait


@contextmanager
def without_descriptors() -> Iterator[None]:
    """This process gets no further descriptor as long as the context lasts."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (STANDARD_STREAMS, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class CountingSocket(socket.socket):
    """A listening socket that notes when a connection was to be accepted."""

    attempts: ClassVar[list[float]] = []

    def accept(self) -> tuple[socket.socket, object]:
        self.attempts.append(time.monotonic())
        return super().accept()


ACCEPTED = 2  # attempts, of which the second finds that there is no further one
CANNOT_ACCEPT = "ERROR no connection can be accepted cause=[Errno 24] Too many open files"


def test_it_goes_on_when_no_connection_can_be_accepted(path: str) -> None:
    """As when the process has no descriptors left: clients wait for some, and the log has a line for each change."""
    log, queue, attempts = Lines(), CallQueue(4), CountingSocket.attempts
    attempts.clear()
    with served(path, queue, log, kind=CountingSocket, settled_s=0.0), closing(connect(path)) as begun:
        begun.sendall(DATA[:1])
        wait_until(lambda: len(attempts) >= ACCEPTED, "it is accepted")
        with ExitStack() as late:
            clients = [late.enter_context(closing(socket.socket(socket.AF_UNIX))) for _ in range(3)]
            attempts.clear()
            with without_descriptors():
                for client in clients:
                    client.connect(path)
                    client.sendall(DATA)
                wait_until(lambda: len(attempts) >= 4, "it has tried again")
                begun.sendall(DATA[1:])
                taken(queue).close()
                assert log.texts == [CANNOT_ACCEPT]
            assert attempts[3] - attempts[0] >= 0.05 + 0.1 + 0.2
            for _ in clients:
                taken(queue).close()
    assert len(log.texts) == 2
    assert log.texts[1].startswith("INFO connections are accepted again after_s=")


def test_descriptors_that_come_and_go_are_one_line(path: str) -> None:
    log, queue = Lines(), CallQueue(1)
    with served(path, queue, log):
        for _ in range(3):
            with closing(socket.socket(socket.AF_UNIX)) as client:
                with without_descriptors():
                    client.connect(path)
                    wait_until(lambda: bool(log.texts), "it cannot accept")
                client.sendall(DATA)
                taken(queue).close()
    assert log.texts == [CANNOT_ACCEPT]


def test_a_namespace_for_which_no_descriptor_is_left_is_not_forgotten(path: str, tmp_path: Path) -> None:
    """The client learns that its request is not taken, and serves itself."""
    log, queue, namespace = Lines(), CallQueue(1), os.open(tmp_path, os.O_RDONLY)
    CountingSocket.attempts.clear()
    with served(path, queue, log, kind=CountingSocket), closing(connect(path)) as client:
        client.sendall(DATA[:1])
        wait_until(lambda: len(CountingSocket.attempts) >= ACCEPTED, "it is accepted")
        with without_descriptors():
            socket.send_fds(client, [DATA[1:]], [namespace])
            assert receive_all(client) == b""
    os.close(namespace)
    cause = "[Errno 24] no descriptor is left for the one that came with the request"
    assert log.texts == [f"WARNING a request cannot be served cause={cause}"]
    assert len(queue) == 0
