"""Laws of the protocol between the executables and the node process.

* What one side writes, the other reads.
* A reply that breaks off anywhere is none.
* Any other bytes are refused with an error of ours.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netplug_core.cni.wire import (
    HEADER_LENGTH,
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

# A kernel passes any bytes but NUL in a variable; Python reads those that are no UTF-8 as surrogates.
texts = st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
names = texts.map(lambda text: text.replace("=", "")).filter(bool)
requests = st.builds(
    WireRequest,
    program=st.sampled_from(["netplug", "netplug-ipam"]),
    environ=st.dictionaries(names, texts, max_size=5),
    stdin=st.binary(max_size=200),
)
replies = st.builds(
    WireReply,
    exit_status=st.integers(0, 255),
    stdout=st.binary(max_size=100),
    stderr=st.binary(max_size=100),
)


@given(requests, st.integers(0, 2**32 - 1))
@example(WireRequest(program="netplug", environ={}, stdin=b""), 129052)  # no float of it is exact
def test_a_request_is_read_as_it_was_written(request: WireRequest, patience_ms: int) -> None:
    data = encode_request(request, patience_s=patience_ms / 1000)
    header = parse_header(data[:HEADER_LENGTH])
    assert header.body_length == len(data) - HEADER_LENGTH
    assert header.patience_s == patience_ms / 1000
    assert parse_body(data[HEADER_LENGTH:]) == request


@given(replies, st.data())
def test_a_reply_is_read_whole_or_not_at_all(reply: WireReply, data: st.DataObject) -> None:
    text = TAKEN + encode_reply(reply)
    assert parse_reply(text) == reply
    assert parse_reply(text[: data.draw(st.integers(0, len(text) - 1))]) is None
    assert parse_reply(text + b"x") is None


@given(st.binary(max_size=40))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="the request: does not begin with"):
        parse_header(data)
    try:
        request = parse_body(data)
    except DecodeError:
        return
    # The list of variables ends at the first of two NULs, and a name that stands twice counts once.
    assert request.stdin == data.partition(b"\0\0")[2]
