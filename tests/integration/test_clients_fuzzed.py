"""Any bytes as a reply and as input: each client prints a whole reply, or goes on in the standalone program.

The static client is built with checks of every access to memory, so a mistake there ends it with another status.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netplug_core.cni.dispatch import Invocation, Plugin, PluginIdentity, answer_at_once
from netplug_core.cni.wire import WireReply, encode_reply, parse_reply
from tests.harness.clients import InstalledClient, install_python_client, install_static_client
from tests.harness.scripted_server import opened_server, sending

LONG_S = 600.0
INSTALL = {"python": install_python_client, "static": install_static_client}

replies = st.builds(
    WireReply, exit_status=st.integers(0, 255), stdout=st.binary(max_size=50), stderr=st.binary(max_size=50)
).map(lambda reply: b"T" + encode_reply(reply))


@st.composite
def damaged_replies(draw: st.DrawFn) -> bytes:
    """A reply with some bytes changed, cut, or continued."""
    data = bytearray(draw(replies))
    for at, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=3)):
        data[at] = value
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=5))


@pytest.fixture(scope="module", params=list(INSTALL))
def client(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> InstalledClient:
    return INSTALL[request.param](tmp_path_factory.mktemp("client"), take_s=LONG_S, reply_s=LONG_S)


@pytest.fixture(scope="module")
def static_client(tmp_path_factory: pytest.TempPathFactory) -> InstalledClient:
    return install_static_client(tmp_path_factory.mktemp("static"), take_s=LONG_S, reply_s=LONG_S)


@contextmanager
def socket_path() -> Iterator[str]:
    """A path for the socket of one example."""
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "node.sock")


def whole_reply(sent: bytes) -> WireReply | None:
    """What a client has to print of what it is sent; None: the reply breaks off, or is none."""
    prefixes = (parse_reply(sent[:length]) for length in range(len(sent) + 1))
    return next((reply for reply in prefixes if reply is not None and reply.exit_status <= 255), None)


@given(sent=st.one_of(st.binary(max_size=40), damaged_replies()), stdin=st.binary(max_size=100))
@example(sent=b"T" + bytes(8) + b"\xff\xff\xff\xff", stdin=b"")
@example(sent=b"T" + bytes(4) + b"\x80\0\0\0\x80\0\0\0" + b"x" * 100, stdin=b"")
def test_any_bytes_are_a_reply_or_none(client: InstalledClient, sent: bytes, stdin: bytes) -> None:
    with socket_path() as path, opened_server(path, sending(sent)) as server:
        environ = {b"CNI_COMMAND": b"ADD", b"NETPLUG_NODE_SOCKET": os.fsencode(path), b"LC_ALL": b"C.UTF-8"}
        result = client.run(environ, stdin)
    assert server.requests[0].data.endswith(b"\0\0" + stdin)
    expected = whole_reply(sent)
    if expected is not None:
        assert (result.status, result.stdout, result.stderr) == (
            expected.exit_status, expected.stdout, expected.stderr,
        )  # fmt: skip
    else:
        call = result.standalone_call
        assert (call.stdin, call.is_resumed) == (stdin, sent.startswith(b"T"))


# What configurations are made of, and what is left of them.
TOKENS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b'"cniVersion"', b'"0.4.0"', b'"1.0.0"', b'"a"', b"1", b"0", b"-", b".",
    b"e", b"+", b" ", b"\n", b"\\", b"u0030", b"null", b"true", b"NaN", b"Infinity", b"\0", b"\x1f", b"\xc3", b"\xbc",
    b'{"cniVersion": "0.4.0"', b'"cniVersion": "1.0.0"',
)  # fmt: skip


@given(stdin=st.lists(st.sampled_from(TOKENS), max_size=12).map(b"".join))
def test_the_version_of_any_input_is_as_by_python(static_client: InstalledClient, stdin: bytes) -> None:
    result = static_client.run({b"CNI_COMMAND": b"VERSION"}, stdin)
    identity = PluginIdentity(plugin=Plugin.MAIN, version="1")
    expected = answer_at_once(Invocation(identity=identity, environ={"CNI_COMMAND": "VERSION"}, stdin=lambda: stdin))
    assert expected is not None
    assert (result.status, result.stdout.decode(), result.stderr) == (0, expected.stdout, b"")
