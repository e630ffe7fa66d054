"""The clients of the node process, against a server that sends what a test wants: every outcome of a call.

Every test is about each client, and a reply has the same effect in all of them.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from netplug_core.cni.wire import MAX_BODY_LENGTH, WireReply, WireRequest, encode_reply, encode_request
from tests.harness.clients import InstalledClient, install_python_client, install_static_client
from tests.harness.scripted_server import answering, opened_server, sending, taking

COMMANDS = ("ADD", "DEL", "CHECK", "GC", "STATUS")
CONF = b'{"name": "net1"}'
LONG_S, SHORT_S = 600.0, 0.3
REPLY = b"T" + encode_reply(WireReply(exit_status=1, stdout=b'{"code": 11}', stderr=b"line\n"))


INSTALL = {"python": install_python_client, "static": install_static_client}
BOTH = pytest.fixture(scope="module", params=list(INSTALL))


@BOTH
def client(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> InstalledClient:
    """A client that never gives up waiting while a test runs."""
    return INSTALL[request.param](tmp_path_factory.mktemp("client"), take_s=LONG_S, reply_s=LONG_S)


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "node.sock")


def variables(path: str, command: str = "ADD", **others: str) -> dict[bytes, bytes]:
    """The variables of a call that asks at a socket. Without a locale, Python would add one."""
    found = {"CNI_COMMAND": command, "NETPLUG_NODE_SOCKET": path, "LC_ALL": "C.UTF-8", **others}
    return {os.fsencode(name): os.fsencode(value) for name, value in found.items()}


def text_of(environ: dict[bytes, bytes]) -> dict[str, str]:
    """Variables as Python reads them."""
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}


# --- the node process answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["netplug", "netplug-ipam"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_node_process_is_asked_and_its_reply_printed(
    client: InstalledClient, socket_path: str, command: str, name: str
) -> None:
    environ = variables(socket_path, command, CNI_CONTAINERID="c1")
    with opened_server(socket_path, sending(REPLY)) as server:
        result = client.run(environ, CONF, name=name)
    assert (result.status, result.stdout, result.stderr) == (1, b'{"code": 11}', b"line\n")
    (request,) = server.requests
    expected = WireRequest(program=name, environ=text_of(environ), stdin=CONF)
    assert request.data == encode_request(expected, patience_s=LONG_S)
    assert request.files == ()


@pytest.mark.parametrize("status", [0, 1, 255])
@pytest.mark.parametrize(
    "stdout,stderr",
    [(b"", b""), (b"{}", b""), (b"", b"line"), (b"x" * 2**20, b"y" * 2**20)],
    ids=["nothing", "reply", "line", "megabytes"],
)
def test_any_reply_is_printed_as_it_is(
    client: InstalledClient, socket_path: str, status: int, stdout: bytes, stderr: bytes
) -> None:
    with opened_server(socket_path, answering(status, stdout, stderr)):
        result = client.run(variables(socket_path), CONF)
    assert (result.status, result.stdout, result.stderr) == (status, stdout, stderr)


def test_a_reply_in_single_bytes_is_whole(client: InstalledClient, socket_path: str) -> None:
    with opened_server(socket_path, sending(*(REPLY[at : at + 1] for at in range(len(REPLY))))):
        assert client.run(variables(socket_path), CONF).stdout == b'{"code": 11}'


def test_what_follows_a_reply_is_not_read(client: InstalledClient, socket_path: str) -> None:
    """Nor is the end of the connection waited for."""
    with opened_server(socket_path, taking(sends=REPLY + b"more")):
        assert client.run(variables(socket_path), CONF).stdout == b'{"code": 11}'


@pytest.mark.parametrize(
    "stdin",
    [b"", b"\0", b"{}\0\0\xff\n", bytes(range(256)) * 8192, b"x" * (MAX_BODY_LENGTH // 2)],
    # pytest puts the name of a test into the environment, and no program can be started with one as long as these
    ids=["empty", "zero", "no text", "every byte", "half of the limit"],
)
def test_standard_input_arrives_as_it_is(client: InstalledClient, socket_path: str, stdin: bytes) -> None:
    with opened_server(socket_path, answering()) as server:
        assert client.run(variables(socket_path), stdin).status == 0
    assert server.requests[0].data.endswith(b"\0\0" + stdin)


def test_variables_of_any_bytes_arrive(client: InstalledClient, socket_path: str) -> None:
    odd = {b"\xff\xfe": b"\xc3(", b"EMPTY": b"", b"EQUAL": b"a=b=", b"LINES": b"1\n2", b" ": "ü".encode()}
    environ = {**variables(socket_path), **odd}
    with opened_server(socket_path, answering()) as server:
        assert client.run(environ, CONF).status == 0
    expected = WireRequest(program="netplug", environ=text_of(environ), stdin=CONF)
    assert server.requests[0].data == encode_request(expected, patience_s=LONG_S)


def test_the_network_namespace_comes_as_a_descriptor(client: InstalledClient, socket_path: str, tmp_path: Path) -> None:
    """If it cannot be opened, the server gets its path alone. A pipe without a writer is opened without waiting."""
    os.mkfifo(tmp_path / "pipe")
    own = f"/proc/{os.getpid()}/ns/net"
    for path in (own, str(tmp_path / "pipe"), "/not/there", ""):
        with opened_server(socket_path, answering()) as server:
            assert client.run(variables(socket_path, CNI_NETNS=path), CONF).status == 0
        found = [(os.stat(path).st_dev, os.stat(path).st_ino)] if os.path.exists(path) else []
        assert list(server.requests[0].files) == found


def test_output_that_cannot_be_written_is_a_failure(client: InstalledClient, socket_path: str) -> None:
    """What an ADD made is worth nothing to a runtime that did not get the result."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        for script, status in ((answering(stdout=b"{}"), 1), (answering(), 0)):
            with opened_server(socket_path, script):
                done = subprocess.run(
                    [client.folder / "netplug"], env=variables(socket_path), input=CONF, stdout=writing, check=False
                )
            assert done.returncode == status
    finally:
        os.close(writing)


# --- it does not, and the standalone program does the job ------------------------------------------------------------


@pytest.mark.parametrize("length", range(len(REPLY)))
def test_a_reply_that_breaks_off_is_resumed_once_the_request_was_taken(
    client: InstalledClient, socket_path: str, length: int
) -> None:
    environ = variables(socket_path)
    with opened_server(socket_path, sending(REPLY[:length])):
        call = client.run(environ, CONF, name="netplug-ipam").standalone_call
    assert (call.name, call.flags, call.stdin) == ("netplug-ipam", (), CONF)
    assert call.is_resumed == (length > 0)
    assert call.environ == environ


@pytest.mark.parametrize("reply", [b"X", b"netplug", b"\0" * 20, b"t" + REPLY[1:]])
def test_a_server_of_another_protocol_has_not_taken_the_request(
    client: InstalledClient, socket_path: str, reply: bytes
) -> None:
    with opened_server(socket_path, sending(reply)):
        assert not client.run(variables(socket_path), CONF).standalone_call.is_resumed


@pytest.mark.parametrize("start", [b"T\0\0\1\0", b"T\xff\xff\xff\xff"])
def test_an_exit_status_that_no_process_has_is_no_reply(
    client: InstalledClient, socket_path: str, start: bytes
) -> None:
    with opened_server(socket_path, sending(start + bytes(8))):
        assert client.run(variables(socket_path), CONF).standalone_call.is_resumed


def test_lengths_that_are_never_sent_break_the_reply_off(client: InstalledClient, socket_path: str) -> None:
    with opened_server(socket_path, sending(b"T" + bytes(4) + b"\xff" * 8 + b"text")):
        assert client.run(variables(socket_path), CONF).standalone_call.is_resumed


def test_where_nobody_listens_the_standalone_program_does_the_job(
    client: InstalledClient, socket_path: str, tmp_path: Path
) -> None:
    file, refused = tmp_path / "file", tmp_path / "refused.sock"
    file.write_text("")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(refused))
    for path in ("", socket_path, str(file), str(refused), str(tmp_path), f"/{'x' * 107}", f"{tmp_path}/{'x' * 200}"):
        environ = variables(path)
        call = client.run(environ, CONF).standalone_call
        assert (call.flags, call.is_resumed, call.stdin, call.environ) == ((), False, CONF, environ)


def test_a_call_that_is_too_long_is_not_asked(client: InstalledClient, socket_path: str) -> None:
    stdin = b"x" * MAX_BODY_LENGTH
    with opened_server(socket_path, answering()) as server:
        call = client.run(variables(socket_path), stdin).standalone_call
    assert (call.is_resumed, call.stdin, server.connections) == (False, stdin, 0)


@pytest.mark.parametrize("flag", ["-v", "-t", "--resume", "anything"])
def test_a_call_with_an_argument_is_not_asked(client: InstalledClient, socket_path: str, flag: str) -> None:
    with opened_server(socket_path, answering()) as server:
        call = client.run(variables(socket_path), CONF, flag).standalone_call
    assert (call.flags, call.is_resumed) == (((), True) if flag == "--resume" else ((flag,), False))
    assert (call.stdin, server.connections) == (CONF, 0)


@pytest.mark.parametrize("command", ["", "add", "ADDED", "FOO"])
def test_an_unknown_command_is_not_asked(client: InstalledClient, socket_path: str, command: str) -> None:
    with opened_server(socket_path, answering()) as server:
        call = client.run(variables(socket_path, command), CONF).standalone_call
    assert (call.is_resumed, call.stdin, server.connections) == (False, CONF, 0)


def test_without_standard_input_the_standalone_program_reports_it(client: InstalledClient, socket_path: str) -> None:
    with opened_server(socket_path, answering()) as server:
        done = subprocess.run(
            ["sh", "-c", 'exec "$0" <&-', client.folder / "netplug"],
            env=variables(socket_path), capture_output=True, check=False,
        )  # fmt: skip
    assert (done.returncode, server.connections) == (7, 0)
    assert b'"stdin": null' in done.stdout


# --- it is slow ------------------------------------------------------------------------------------------------------


@BOTH
def impatient_client(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> InstalledClient:
    """A client that soon gives up waiting for its request to be taken."""
    return INSTALL[request.param](tmp_path_factory.mktemp("impatient"), take_s=SHORT_S, reply_s=LONG_S)


@BOTH
def hasty_client(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> InstalledClient:
    """A client that waits for its request to be taken, and then soon gives up waiting for the reply."""
    return INSTALL[request.param](tmp_path_factory.mktemp("hasty"), take_s=LONG_S, reply_s=SHORT_S)


def test_a_request_that_is_not_taken_in_time_is_done_alone(impatient_client: InstalledClient, socket_path: str) -> None:
    """The server learns that the client has gone: it cannot send that it takes the request."""
    with opened_server(socket_path, taking(sends=b"", late=REPLY)) as server:
        call = impatient_client.run(variables(socket_path), CONF).standalone_call
        server.wait_for_the_end()
    assert (call.is_resumed, call.stdin, server.failures) == (False, CONF, ["BrokenPipeError"])


@pytest.mark.parametrize("sent", [REPLY[:1], REPLY[:7], REPLY[:-1]])
def test_a_reply_that_is_not_whole_in_time_is_resumed(
    hasty_client: InstalledClient, socket_path: str, sent: bytes
) -> None:
    with opened_server(socket_path, taking(sends=sent, late=REPLY[len(sent) :])) as server:
        call = hasty_client.run(variables(socket_path), CONF).standalone_call
        server.wait_for_the_end()
    assert (call.is_resumed, call.stdin, server.failures) == (True, CONF, ["BrokenPipeError"])


def test_a_request_that_is_never_read_is_done_alone(impatient_client: InstalledClient, socket_path: str) -> None:
    """It is longer than what a socket takes."""
    stdin = b"x" * (MAX_BODY_LENGTH // 2)
    with opened_server(socket_path, taking(sends=b""), reads_request=False):
        call = impatient_client.run(variables(socket_path), stdin).standalone_call
    assert (call.is_resumed, call.stdin) == (False, stdin)


@pytest.mark.parametrize("sent,is_resumed", [(b"", False), (b"T", True)])
def test_what_the_server_sent_counts_if_it_reads_no_more(
    client: InstalledClient, socket_path: str, sent: bytes, *, is_resumed: bool
) -> None:
    """The request cannot be sent whole: it is longer than what a socket takes."""
    stdin = b"x" * (MAX_BODY_LENGTH // 2)
    with opened_server(socket_path, sending(sent), reads_request=False):
        call = client.run(variables(socket_path), stdin).standalone_call
    assert (call.is_resumed, call.stdin) == (is_resumed, stdin)
