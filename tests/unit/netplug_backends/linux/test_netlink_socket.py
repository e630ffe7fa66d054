"""The outcomes of a batch, for answers of the kernel in any order and mixture, and late ones."""

import _socket
import os
import struct
from collections.abc import Iterator

import pytest

from netplug_backends.linux.addresses import list_host_links
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


def test_an_error_at_the_end_of_a_listing_is_its_outcome(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    (found,) = send(netlink_peer, [message(DONE, 1, struct.pack("=i", -105), MULTI)], "a")
    assert found.error == 105


def list_all(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]", answers: list[list[bytes]], *tolerated: int
) -> list[bytes]:
    """What a listing returns whose first attempts have these answers; a body of x is left out."""
    netlink_socket, far = netlink_peer
    for answer in answers:
        for datagram in answer:
            far.send(datagram)

    def decode(datagram: bytes, start: int, end: int) -> bytes | None:
        body = datagram[start:end]
        return None if body == b"x" else body

    return netlink_socket.list_all(query_link("a"), decode, *tolerated)


def done(number: int, code: int = 0, flags: int = MULTI) -> bytes:
    return message(DONE, number, struct.pack("=i", -code), flags)


def test_a_listing_has_what_its_decoder_makes_of_each_message(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]",
) -> None:
    late = message(NEWLINK, 0, b"late", MULTI)
    pages = [late + message(NEWLINK, 1, b"odd", MULTI) + message(NEWLINK, 1, b"x", MULTI), message(NEWLINK, 1, b"two!")]
    assert list_all(netlink_peer, [[*pages, done(1)]]) == [b"odd", b"two!"]


@pytest.mark.parametrize(
    "interrupted",
    [
        [message(NEWLINK, 1, b"one!", MULTI | INTERRUPTED), done(1)],
        [message(NEWLINK, 1, b"one!", MULTI), done(1, 0, MULTI | INTERRUPTED)],
        [message(NEWLINK, 1, b"one!", MULTI), done(1, 4)],
        [error(1, 4)],
    ],
    ids=["an entry says so", "the end says so", "the end is an error", "an error"],
)
def test_a_listing_that_a_change_has_interrupted_is_made_again(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]", interrupted: list[bytes]
) -> None:
    again = [message(NEWLINK, 2, b"one!", MULTI), message(NEWLINK, 2, b"two!", MULTI), done(2)]
    assert list_all(netlink_peer, [interrupted, again]) == [b"one!", b"two!"]


def test_a_listing_is_made_three_times_at_most(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    answers = [[done(number, 4)] for number in (1, 2, 3)]
    with pytest.raises(KernelError, match="looking for 'a': the list changed while the kernel wrote it, three times"):
        list_all(netlink_peer, answers)


@pytest.mark.parametrize("answer", [[error(1, 2)], [message(NEWLINK, 1, b"x", MULTI), done(1, 2)]])
def test_an_error_of_a_listing_may_be_tolerated(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]", answer: list[bytes]
) -> None:
    assert list_all(netlink_peer, [answer], 2) == []


def test_another_error_of_a_listing_is_raised(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    with pytest.raises(KernelError, match="looking for 'a': Operation not permitted"):
        list_all(netlink_peer, [[error(1, 1)]], 2)


def test_a_silent_kernel_lists_nothing(netlink_peer: "tuple[NetlinkSocket, _socket.socket]") -> None:
    with pytest.raises(DataplaneTimeout, match="looking for 'a'"):
        list_all(netlink_peer, [])


def test_many_messages_are_one_datagram_and_errors_have_positions(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]",
) -> None:
    netlink_socket, far = netlink_peer
    first = netlink_socket.reserve_numbers(3)
    sent = [HEADER.pack(HEADER.size + 4, NEWLINK, 0x401, first + place, 0) + b"body" for place in range(3)]
    far.send(error(first + 1, 17, CAPPED | EXPLAINED, words("it is there")) + error(first + 2, 0))
    assert netlink_socket.send_many(sent, first, "working") == {1: (17, "it is there")}
    assert far.recv(4096) == b"".join(sent[:2]) + HEADER.pack(HEADER.size + 4, NEWLINK, 0x405, first + 2, 0) + b"body"
    assert netlink_socket.reserve_numbers(1) == first + 3
    assert netlink_socket.send_many([], first, "working") == {}


def test_many_messages_to_a_socket_that_fails_are_an_error(
    netlink_peer: "tuple[NetlinkSocket, _socket.socket]",
) -> None:
    netlink_socket, far = netlink_peer
    far.close()
    with pytest.raises(KernelError, match=f"working: {os.strerror(32)}"):
        netlink_socket.send_many([HEADER.pack(16, NEWLINK, 1, 1, 0)], 1, "working")


def test_a_real_kernel_filters_what_it_lists() -> None:
    with NetlinkSocket.open() as netlink_socket:
        netlink_socket.prepare_for_many()
        assert netlink_socket.port > 0
        names = netlink_socket.list_all(list_host_links(), lambda datagram, start, end: datagram[start:end])
    assert any(b"lo\0" in name for name in names)


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
