"""Asking a node process for its status, and what answers in its place."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from attrs import evolve

from netplug_cli.ctl.commands import node as node_client
from netplug_cli.ctl.commands.node import NoNodeProcess, OddNodeProcess, ask_node
from netplug_cli.node_status import CallFigures, NodeStatus, encode_status, status_socket_of
from tests.harness.ctl import ToolHarness
from tests.harness.waiting import EMERGENCY_STOP_S

STATUS = NodeStatus(
    version="3.33.0",
    pid=1742,
    started_ns=0,
    socket="/run/netplug/node.sock",
    workers=16,
    queue_limit=256,
    calls=CallFigures(served=0, failed=0, refused=0, served_now=0, waiting=0),
    release_records=0,
)


@contextmanager
def answering(path: str, reply: bytes) -> Iterator[None]:
    """Something that answers one request at the status socket of a path."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(status_socket_of(path))
        listening.listen()

        def answer() -> None:
            connection, _address = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        thread = Thread(target=answer)
        thread.start()
        yield
        thread.join(EMERGENCY_STOP_S)


def page(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_the_status_is_that_of_the_process(tmp_path: Path) -> None:
    path = str(tmp_path / "node.sock")
    with answering(path, page(json.dumps(encode_status(STATUS)).encode())):
        assert ask_node(path) == STATUS


@pytest.mark.parametrize(
    "reply,cause",
    [
        (b"", "RemoteDisconnected Remote end closed connection without response"),
        (b"netplug 1\r\n\r\n", "BadStatusLine netplug 1"),
        (page(b"", "404 Not Found"), "the HTTP status is 404"),
        (page(b""), "its status is no JSON"),
        (page(b"\xff"), "its status is no JSON"),
        (page(b"[" * 100_000), "its status is no JSON"),
        (page(b"[]"), "expected an object @ /status $, found []"),
        (page(b"{}"), "expected is missing or empty @ /status $.version, found nothing"),
        (page(b"{").replace(b": 1", b": 9"), "its status is no JSON"),
    ],
)
def test_an_odd_reply_is_one_clear_error(tmp_path: Path, reply: bytes, cause: str) -> None:
    path = str(tmp_path / "node.sock")
    with answering(path, reply), pytest.raises(OddNodeProcess) as refusal:
        ask_node(path)
    assert str(refusal.value) == (
        f"what answers at {path}.status is no node process that this release understands: {cause}"
    )


def test_where_none_answers_the_error_says_who_serves_calls(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    text = "netplug and netplug-ipam serve each call by themselves where none answers"
    with pytest.raises(NoNodeProcess) as refusal:
        ask_node(str(path))
    assert str(refusal.value) == f"no node process answers at {path}: No such file or directory; {text}"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(status_socket_of(str(path)))
    with pytest.raises(NoNodeProcess, match=f"^no node process answers at {path}: Connection refused; {text}$"):
        ask_node(str(path))


def test_one_that_does_not_answer_in_time_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, "ANSWER_S", 0.05)
    path = str(tmp_path / "node.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(status_socket_of(path))
        silent.listen()
        with pytest.raises(NoNodeProcess, match="timed out"):
            ask_node(path)


def test_missing_plugins_are_in_the_status_and_in_its_exit_status(harness: ToolHarness, tmp_path: Path) -> None:
    path, missing = f"{tmp_path}/1.sock", "portmap is not in /opt/cni/bin: no pod starts without it"
    lacking = evolve(STATUS, missing_plugins=(missing,))
    with answering(path, page(json.dumps(encode_status(lacking)).encode())):
        assert harness.run_command("node", "status", "--socket", path) == 1
    assert f"Missing plugin:  {missing}" in harness.out.splitlines()
    path = f"{tmp_path}/2.sock"
    with answering(path, page(json.dumps(encode_status(STATUS)).encode())):
        assert harness.run_command("node", "status", "--socket", path) == 0
    assert "Missing plugin" not in harness.out
    old = {name: value for name, value in encode_status(STATUS).items() if name != "missingPlugins"}
    path = f"{tmp_path}/3.sock"
    with answering(path, page(json.dumps(old).encode())):
        assert ask_node(path) == STATUS
