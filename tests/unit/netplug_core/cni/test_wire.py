"""The bytes of the protocol, which clients in other languages write and read too."""

from __future__ import annotations

import pytest

from netplug_core.cni.wire import (
    MAX_BODY_LENGTH,
    TAKEN,
    WireReply,
    WireRequest,
    encode_reply,
    encode_request,
    parse_body,
    parse_header,
    parse_reply,
)
from netplug_core.errors import DecodeError


def test_the_bytes_of_a_request() -> None:
    request = WireRequest(program="netplug", environ={"CNI_COMMAND": "ADD", "A": ""}, stdin=b"{}\0")
    assert encode_request(request, patience_s=1.5) == (
        b"netplug\x01\x00\x00\x05\xdc\x00\x00\x00\x1fnetplug\0CNI_COMMAND=ADD\0A=\0\0{}\0"
    )


def test_of_two_variables_of_one_name_the_first_counts() -> None:
    """As in Python and for getenv; a client in another language passes both."""
    assert parse_body(b"netplug\0A=1\0A=2\0\0").environ == {"A": "1"}


def test_the_bytes_of_a_reply() -> None:
    reply = WireReply(exit_status=1, stdout=b"{}", stderr=b"log")
    assert encode_reply(reply) == b"\0\0\0\x01\0\0\0\x02\0\0\0\x03{}log"
    assert parse_reply(b"T" + encode_reply(reply)) == reply


@pytest.mark.parametrize("data", [b"", b"netplug\x02" + bytes(8), b"netplug\x01" + bytes(7), b"GET / HTTP/1.1\r\n"])
def test_another_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"the request: does not begin with b'netplug\\x01'"):
        parse_header(data)


def test_a_body_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(DecodeError, match="has 4194305 bytes, at most 4194304 are accepted"):
        parse_header(b"netplug\x01" + bytes(4) + (MAX_BODY_LENGTH + 1).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "body, problem",
    [
        (b"netplug\0A=1\0", "has no end of its variables"),
        (b"netplug\0A\0\0", "has a variable without a name or a value: 'A'"),
        (b"netplug\0=1\0\0", "has a variable without a name or a value: '=1'"),
    ],
)
def test_a_body_without_its_parts_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        parse_body(body)


def test_a_reply_that_broke_off_is_none() -> None:
    whole = TAKEN + encode_reply(WireReply(exit_status=1, stdout=b"{}", stderr=b"why"))
    assert parse_reply(whole) == WireReply(exit_status=1, stdout=b"{}", stderr=b"why")
    for length in range(len(whole)):
        assert parse_reply(whole[:length]) is None
    assert parse_reply(b"?" + whole[1:]) is None
