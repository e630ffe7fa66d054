"""The outcomes of a batch, for answers of the kernel in any order and mixture, and late ones."""

import _socket
import os
import struct
from collections.abc import Iterator

import pytest

from netplug_backends.linux.netlink import NetlinkOutcome, NetlinkSocket, query_link
from netplug_core.dataplane.protocol import DataplaneTimeout, KernelError

HEADER = struct.Struct("=IHHII")
NEWLINK, ERROR, DONE, MULTI, INTERRUPTED = 16, 2, 3, 2, 0x10
CAPPED, EXPLAINED = 0x100, 0x200


def message(kind: int, number: int, body: bytes, flags: int = 0) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, flags, number, 0) + body + bytes(-len(body) % 4)


def error(number: int, code: int, flags: int = CAPPED, more: bytes = b"", request: bytes = b"") -> bytes:
    original = HEADER.pack(HEADER.size + len(request), NEWLINK, 0, number, 0) + request
    return message(ERROR, number, struct.pack("=i", -code) + original + more, flags)


def words(text: str) -> bytes:
    payload = text.encode() + b"\0"
    return struct.pack("=HH", 4 + len(payload), 1) + payload + bytes(-len(payload) % 4)


@pytest.fixture
def netlink_peer() -> "Iterator[tuple[NetlinkSocket, _socket.socket]]":
    """A netlink socket, and the kernel's end of it."""
    ours, kernel_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    ours.settimeout(0)
    with NetlinkSocket(ours) as netlink_socket:
        yield netlink_socket, kernel_end
    kernel_end.close()


def send(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]", replies: list[bytes], names: str = "ab"
) -> tuple[NetlinkOutcome, ...]:
    netlink_socket, far = netlink_peer
    for reply in replies:
        far.send(reply)
    return netlink_socket.send([query_link(name) for name in names])


def test_a_batch_is_one_datagram_and_only_its_last_message_requests_an_acknowledgement(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]",
) -> None:
    send(netlink_peer, [error(2, 0)])
    sent = netlink_peer[1].recv(4096)
    first, kind, flags, number, _ = HEADER.unpack_from(sent)
    assert (kind, flags, number) == (18, 0x1, 1)
    second, kind, flags, number, _ = HEADER.unpack_from(sent, first)
    assert (kind, flags, number) == (18, 0x5, 2)
    assert first + second == len(sent)


def test_replies_and_errors_go_to_their_messages(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    one, two = send(netlink_peer, [error(1, 19), message(NEWLINK, 2, b"body"), error(2, 0)])
    assert (one.error, one.replies) == (19, ())
    assert (two.error, two.reply) == (0, b"body")


def test_several_answers_may_come_in_one_datagram(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    one, two = send(netlink_peer, [message(NEWLINK, 1, b"odd") + error(2, 17)])
    assert (one.error, two.error) == (0, 17)
    assert one.reply == b"odd"


def test_a_listing_ends_with_a_done_message(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    pages = [message(NEWLINK, 1, b"one!", MULTI), message(NEWLINK, 1, b"two!", MULTI)]
    (found,) = send(netlink_peer, [*pages, message(DONE, 1, struct.pack("=i", 0), MULTI)], "a")
    assert (found.error, found.replies) == (0, (b"one!", b"two!"))
    assert not found.is_interrupted


@pytest.mark.parametrize("interrupted", [0, 1])
def test_a_listing_that_a_change_has_interrupted_is_known(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]", interrupted: int
) -> None:
    flags = [MULTI, MULTI]
    flags[interrupted] |= INTERRUPTED
    pages = [message(NEWLINK, 1, b"one!", flags[0]), message(DONE, 1, struct.pack("=i", 0), flags[1])]
    (found,) = send(netlink_peer, pages, "a")
    assert (found.is_interrupted, found.replies) == (True, (b"one!",))


def test_an_error_at_the_end_of_a_listing_is_its_outcome(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    (found,) = send(netlink_peer, [message(DONE, 1, struct.pack("=i", -105), MULTI)], "a")
    assert found.error == 105


def test_answers_to_earlier_batches_are_ignored(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    found = send(netlink_peer, [error(0, 5), error(1, 0)], "a")
    assert found[0].error == 0


@pytest.mark.parametrize(
    "answer,text",
    [
        (error(1, 22), "looking for 'a': Invalid argument"),
        (error(1, 22, CAPPED | EXPLAINED, words("no such thing")), "looking for 'a': Invalid argument (no such thing)"),
        (
            error(1, 22, EXPLAINED, words("too long"), request=b"four" * 3),
            "looking for 'a': Invalid argument (too long)",
        ),
        (error(1, 22, CAPPED | EXPLAINED), "looking for 'a': Invalid argument"),
    ],
    ids=["bare", "explained", "with the request", "explained by nothing"],
)
def test_a_refusal_names_the_operation_and_both_reasons(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]", answer: bytes, text: str
) -> None:
    (found,) = send(netlink_peer, [answer], "a")
    with pytest.raises(KernelError) as refused:
        found.require_success(17)
    assert str(refused.value) == text
    assert found.require_success(22) is found


def test_a_silent_kernel_is_a_timeout(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]",
) -> None:
    with pytest.raises(DataplaneTimeout, match="looking for 'b'"):
        send(netlink_peer, [])


def test_a_socket_that_fails_is_an_error_of_ours(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    netlink_socket, far = netlink_peer
    far.close()
    with pytest.raises(KernelError, match=f"looking for 'a': {os.strerror(32)}"):
        netlink_socket.send_one(query_link("a"))


def test_an_empty_batch_sends_nothing(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    assert send(netlink_peer, [], "") == ()


def test_a_real_kernel_answers_an_unprivileged_process() -> None:
    with NetlinkSocket.open() as netlink_socket:
        found, absent = netlink_socket.send([query_link("lo"), query_link("no-such-link")])
    assert found.reply
    assert absent.error == 19


def test_a_transaction_is_one_datagram_between_its_boundaries(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]",
) -> None:
    """What the kernel says about a boundary is about the whole, and so counts as said about the last message."""
    netlink_socket, far = netlink_peer
    far.send(error(2, 1))
    one, two = netlink_socket.send([query_link("a"), query_link("b")], subsystem=10)
    assert (one.error, two.error) == (0, 1)
    sent, seen, offset = far.recv(4096), [], 0
    while offset < len(sent):
        length, kind, flags, number, _ = HEADER.unpack_from(sent, offset)
        seen.append((kind, flags, number, sent[offset + HEADER.size : offset + length]))
        offset += length
    begin, first, last, end = seen
    assert begin == (0x10, 0x1, 2, b"\0\0\0\x0a")
    assert (first[:3], last[:3]) == ((18, 0x1, 1), (18, 0x5, 2))
    assert end == (0x11, 0x1, 2, b"\0\0\0\x0a")
