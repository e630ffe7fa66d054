"""Clients, signals and crashes of the node process: each call is done whole, or not begun, or can be taken back."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from attrs import frozen

from netplug_core.cni.wire import MAX_BODY_LENGTH, TAKEN, WireRequest, encode_request, parse_reply
from tests.harness.kill_scene import numbers_without_repeated_settings
from tests.harness.killer import node_process_killer
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace
from tests.harness.node_process import (
    ROOT,
    NodeProcess,
    NodeProcessRuntime,
    ask,
    connect,
    receive_all,
    start_node_process,
)
from tests.harness.scripted_plugin import ScriptedPlugin
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.alone]

NOBODY = 65534


@frozen
class OneWorker:
    """A node process with one worker and room for one more call, and calls that last until the test ends them."""

    runtime: NodeProcessRuntime
    process: NodeProcess
    plugin: ScriptedPlugin

    def request(self, pod: PodNamespace, command: str = "ADD", **changes: object) -> WireRequest:
        """A call that is done at once."""
        return self.runtime.make_request(self.runtime.make_environ(command, pod), self.conf(**changes))

    def lasting_request(self, pod: PodNamespace) -> WireRequest:
        """An ADD that lasts until ``finish``."""
        environ = self.runtime.make_environ("ADD", pod, CNI_PATH=str(self.plugin.folder))
        return self.runtime.make_request(environ, self.conf(ipam={"type": "my-ipam"}))

    def conf(self, **changes: object) -> NetConfDict:
        """A configuration."""
        return self.runtime.make_netconf(**{"cniVersion": "1.1.0", **changes})

    def begin(self, pod: PodNamespace) -> socket.socket:
        """Begin the lasting ADD; it occupies the worker when this returns."""
        connection = self.send(self.lasting_request(pod))
        assert connection.recv(1) == TAKEN
        wait_until(lambda: bool(self.plugin.calls()), "the call is being served")
        return connection

    def send(self, request: WireRequest) -> socket.socket:
        """A connection over which a request was sent."""
        connection = connect(self.process.socket)
        connection.sendall(encode_request(request, patience_s=EMERGENCY_STOP_S))
        return connection

    def finish(self) -> None:
        """Let lasting calls end."""
        (self.plugin.folder / "go").touch()


@pytest.fixture
def one_worker(node: NetnsNode, bin_dir: str) -> OneWorker:
    process = start_node_process(node, "--workers", "1", "--queue", "1")
    plugin = ScriptedPlugin.make(Path(node.file("scripted")))
    plugin.script("ADD", "while [ ! -e go ]; do sleep 0.02; done\n")
    return OneWorker(NodeProcessRuntime(node, bin_dir, process.socket), process, plugin)


# --- clients -------------------------------------------------------------------------------------------------------


def test_a_full_queue_is_an_error_at_once(one_worker: OneWorker) -> None:
    first, second, third = one_worker.runtime.node.make_pods(3)
    with closing(one_worker.begin(first)) as begun, closing(one_worker.send(one_worker.request(second))) as waiting:
        wait_until(lambda: one_worker.process.connections == 2, "the second call waits")
        reply = one_worker.runtime.call("ADD", one_worker.conf(), third)
        assert reply.error == {
            "cniVersion": "1.1.0",
            "code": 11,
            "msg": "the node process is busy: 1 calls wait; try again",
        }
        assert "cni-plugin: the final result was an error, code 11" in reply.stderr
        one_worker.finish()
        assert status_of(TAKEN + receive_all(begun)) == 0
        assert status_of(receive_all(waiting)) == 0
    assert set(one_worker.runtime.node.links(third)) == {"lo"}


def status_of(received: bytes) -> int | None:
    """The exit status of a whole reply."""
    reply = parse_reply(received)
    return None if reply is None else reply.exit_status


def test_nothing_is_done_for_a_client_that_went_away_before_its_call_was_taken(one_worker: OneWorker) -> None:
    node = one_worker.runtime.node
    first, second = node.make_pods(2)
    with closing(one_worker.begin(first)):
        gone = one_worker.send(one_worker.request(second))
        wait_until(lambda: one_worker.process.connections == 2, "its call waits")
        gone.shutdown(socket.SHUT_RDWR)
        assert gone.recv(1) == b"", "it was not taken"
        gone.close()
        one_worker.finish()
        wait_until(lambda: one_worker.process.connections == 0, "both calls are done with")
    assert set(node.links(second)) == {"lo"}
    assert f"net1.{second.name}" not in node.store.handles()


def test_what_was_taken_is_done_whole_without_its_client(one_worker: OneWorker) -> None:
    node = one_worker.runtime.node
    (pod,) = node.make_pods(1)
    with closing(one_worker.send(one_worker.request(pod))) as gone:
        assert gone.recv(1) == TAKEN
    one_worker.runtime.call("STATUS", one_worker.conf())
    assert node.store.held().keys() == {f"net1.{pod.name}"}
    assert "eth0" in node.links(pod)


def test_a_request_whose_client_waits_no_more_is_dropped(one_worker: OneWorker) -> None:
    node = one_worker.runtime.node
    first, second = node.make_pods(2)
    with closing(one_worker.begin(first)), closing(connect(one_worker.process.socket)) as impatient:
        impatient.sendall(encode_request(one_worker.request(second), patience_s=0))
        wait_until(lambda: one_worker.process.connections == 2, "its call waits")
        one_worker.finish()
        assert receive_all(impatient) == b""
    assert set(node.links(second)) == {"lo"}


def test_a_slow_client_delays_no_other_and_is_closed(one_worker: OneWorker) -> None:
    slow, pod = one_worker.runtime.node.make_pods(2)
    with closing(connect(one_worker.process.socket)) as connection:
        connection.sendall(encode_request(one_worker.request(slow), patience_s=60)[:40])
        one_worker.runtime.add(one_worker.conf(), pod)
        assert receive_all(connection) == b""
    assert 'a request cannot be served cause="it did not come within 5 s"' in one_worker.process.lines


@pytest.mark.parametrize(
    "data,cause",
    [
        (b"GET / HTTP/1.1\r\nHost: node\r\n\r\n", "does not begin with"),
        (b"netplug\x02" + b"\0" * 8, "does not begin with"),
        (b"netplug\x01" + b"\0" * 4 + (MAX_BODY_LENGTH + 1).to_bytes(4, "big"), "at most 4194304 are accepted"),
        (b"netplug\x01" + b"\0" * 4 + (4).to_bytes(4, "big") + b"abcd", "has no end of its variables"),
        (b"netplug\x01" + b"\0" * 4 + (4).to_bytes(4, "big") + b"sh\0\0", "is for 'sh', which is none of"),
        (b"netplug\x01", "the client has closed the connection"),
    ],
    ids=["http", "another protocol", "huge", "no variables", "another executable", "broken off"],
)
def test_what_is_no_request_is_closed_and_logged(one_worker: OneWorker, data: bytes, cause: str) -> None:
    with closing(connect(one_worker.process.socket)) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert receive_all(connection) == b""
    wait_until(lambda: cause in one_worker.process.lines, "the log says why")
    assert one_worker.runtime.call("STATUS", one_worker.conf()).status == 0


def test_the_longest_request_is_served(one_worker: OneWorker) -> None:
    request = WireRequest(program="netplug", environ=one_worker.runtime.make_environ("STATUS", None), stdin=b"")
    room = MAX_BODY_LENGTH - len(encode_request(request, patience_s=60)) + 16
    text = b'{"cniVersion": "1.1.0", "name": "net1", "type": "netplug"'
    longest = WireRequest(program="netplug", environ=request.environ, stdin=text + b" " * (room - len(text)))
    reply = ask(one_worker.process.socket, longest)
    assert reply is not None
    assert b"is not JSON" in reply.stdout


CLIENT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect(f"/proc/self/fd/{sys.argv[1]}/node.sock")
try:
    connection.sendall(sys.stdin.buffer.read())
    print(connection.recv(1))
except ConnectionError:
    print(b"")
"""


def test_another_user_is_not_served(one_worker: OneWorker) -> None:
    """Even if the file lets it connect."""
    node = one_worker.runtime.node
    os.chmod(one_worker.process.socket, 0o666)  # noqa: S103  so that only the process refuses
    os.chmod(node.file("node"), 0o711)  # noqa: S103
    folder = os.open(node.file("node"), os.O_PATH)
    data = encode_request(one_worker.request(node.make_pod()), patience_s=60)
    try:
        ran = subprocess.run(
            [sys.executable, "-IS", "-c", CLIENT, str(folder), str(NOBODY)],
            input=data,
            pass_fds=[folder],
            capture_output=True,
            check=False,
        )
    finally:
        os.close(folder)
    assert (ran.stdout, ran.stderr) == (b"b''\n", b"")
    assert 'a process of another user is not served process="' in one_worker.process.lines
    assert f'user="{NOBODY}"' in one_worker.process.lines


# --- the socket ----------------------------------------------------------------------------------------------------


def test_the_socket_is_for_root_alone(one_worker: OneWorker) -> None:
    status = os.stat(one_worker.process.socket)
    assert (stat.S_ISSOCK(status.st_mode), stat.S_IMODE(status.st_mode)) == (True, 0o600)
    assert stat.S_IMODE(os.stat(f"{one_worker.process.socket}.lock").st_mode) == 0o600


def test_a_second_process_is_refused_and_harms_nothing(one_worker: OneWorker) -> None:
    ran = one_worker.runtime.node.run_unchecked(
        "sh",
        "-c",
        f"cd {ROOT} && exec {sys.executable} -m netplug_cli.wiring.node --socket {one_worker.process.socket}",
    )
    assert ran.returncode == 1
    assert ran.stderr == f"netplug-node: {one_worker.process.socket}: another process listens there\n"
    assert one_worker.runtime.call("STATUS", one_worker.conf()).status == 0


def test_a_socket_of_systemd_is_used_and_stays(node: NetnsNode, bin_dir: str) -> None:
    path = node.file("activated.sock")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listening:
        listening.bind(path)
        listening.listen()
        command = f"cd {ROOT} && export LISTEN_PID=$$ LISTEN_FDS=1 && exec {sys.executable} -m netplug_cli.wiring.node"
        child = subprocess.Popen(
            node.entering("", ("bash", "-c", f"{command} 3<&{listening.fileno()}")), pass_fds=[listening.fileno()]
        )
        try:
            runtime = NodeProcessRuntime(node, bin_dir, path)
            assert runtime.call("STATUS", runtime.make_netconf(cniVersion="1.1.0")).is_success_without_output
        finally:
            child.terminate()
            assert child.wait(EMERGENCY_STOP_S) == 0
        assert os.path.exists(path)
        assert not os.path.exists("/run/netplug/node.sock")
        connect(path).close()


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_asked_to_end_finishes_what_it_began(one_worker: OneWorker, number: signal.Signals) -> None:
    node = one_worker.runtime.node
    first, second = node.make_pods(2)
    with closing(one_worker.begin(first)) as begun, closing(one_worker.send(one_worker.request(second))) as waiting:
        wait_until(lambda: one_worker.process.connections == 2, "the second call waits")
        one_worker.process.signal(number)
        assert receive_all(waiting) == b"", "it is given back, and nothing was done"
        assert not os.path.exists(one_worker.process.socket)
        one_worker.finish()
        assert status_of(TAKEN + receive_all(begun)) == 0
    assert one_worker.process.wait() == 0
    assert "eth0" in node.links(first)
    assert set(node.links(second)) == {"lo"}
    assert "the node process has ended" in one_worker.process.lines


def test_a_second_signal_ends_it_at_once(one_worker: OneWorker) -> None:
    with closing(one_worker.begin(one_worker.runtime.node.make_pod())) as begun:
        one_worker.process.signal(signal.SIGTERM)
        wait_until(lambda: not os.path.exists(one_worker.process.socket), "it listens no more")
        one_worker.process.signal(signal.SIGTERM)
        assert one_worker.process.wait() == 128 + signal.SIGTERM
        assert receive_all(begun) == b"", "the client finds its reply broken off"
    one_worker.finish()


def test_a_process_that_is_killed_leaves_what_the_executables_clean_up(
    node: NetnsNode, runtime: CNIRuntime, bin_dir: str
) -> None:
    before, pods = node.leftovers(), node.make_pods(20)
    process = start_node_process(node)
    served = NodeProcessRuntime(node, bin_dir, process.socket)
    conf = served.make_netconf()
    requests = [served.make_request(served.make_environ("ADD", pod), conf) for pod in pods]
    with ThreadPoolExecutor(len(pods)) as pool:
        replies = [pool.submit(ask_until_killed, process, request) for request in requests]
        wait_until(lambda: any(reply.done() for reply in replies), "an ADD is done")
        process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert os.path.exists(process.socket)
    for pod in pods:
        runtime.delete(conf, pod)
    assert node.store.is_empty
    assert node.leftovers() == before

    again = NodeProcessRuntime(node, bin_dir, start_node_process(node).socket)
    again.add(conf, pods[0])
    again.delete(conf, pods[0])
    assert node.leftovers() == before


@pytest.mark.parametrize("folder", ["bin_dir", "static_bin_dir"])
def test_no_call_of_the_installed_executables_fails_when_it_is_killed(
    node: NetnsNode, folder: str, request: pytest.FixtureRequest
) -> None:
    runtime = CNIRuntime(node, request.getfixturevalue(folder))
    before, pods, conf = node.leftovers(), node.make_pods(12), runtime.make_netconf()
    process = start_node_process(node, "--workers", "4")
    with ThreadPoolExecutor(len(pods)) as pool:
        calls = [pool.submit(runtime.add, conf, pod, NETPLUG_NODE_SOCKET=process.socket) for pod in pods]
        wait_until(lambda: any(call.done() for call in calls), "an ADD is done")
        process.signal(signal.SIGKILL)
        given = [address for call in calls for address in call.result().addresses]
    assert len(set(given)) == len(given) == len(pods)
    assert sorted(address for held in node.store.held().values() for address in held) == sorted(given)
    for pod in pods:
        runtime.delete(conf, pod, NETPLUG_NODE_SOCKET=process.socket)
    assert node.store.is_empty
    assert node.leftovers() == before


@pytest.mark.night
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_a_call_survives_a_process_that_dies_after_any_of_its_effects(
    node: NetnsNode, runtime: CNIRuntime, command: str
) -> None:
    """The executable goes on where the process ended, or begins anew if it had not taken the call."""
    before, conf = node.leftovers(), runtime.make_netconf()

    def call_through(stop_at: int) -> tuple[int | None, list[str]]:
        """The process's exit status, if it has ended, and its effects; the call succeeded in any case."""
        pod, listed = node.make_pod(), node.file("effects")
        if command == "DEL":
            runtime.add(conf, pod)
        program = node_process_killer(stop_at=stop_at, effects_file=listed)
        # Only effects of the call are counted: without the controllers of routes, which have some at their start.
        alone = {"NETPLUG_NETWORKING_BACKEND": "none"}
        process = start_node_process(node, name=f"node{stop_at}", program=program, environ=alone)
        reply = runtime.call(command, conf, pod, NETPLUG_NODE_SOCKET=process.socket)
        assert reply.status == 0, (stop_at, reply)
        assert ("eth0" in node.links(pod)) is (command == "ADD")
        runtime.delete(conf, pod)
        assert node.store.is_empty
        status = process.child.poll()
        process.signal(signal.SIGKILL)
        process.wait()
        return status, Path(listed).read_text().split()

    _status, effects = call_through(0)
    assert {"NetlinkSocket.send", "SqliteDatastore._commit_transaction", "serve_call"} <= set(effects)
    statuses = [call_through(number)[0] for number in _chosen(effects)]
    assert statuses.count(-signal.SIGKILL) >= len(statuses) - 2, "the last effects may come after the reply"
    assert node.leftovers() == before


def _chosen(effects: list[str]) -> list[int]:
    """All numbers in a deep run; otherwise the last of each kind of effect."""
    numbers = numbers_without_repeated_settings(effects)
    if IS_DEEP:
        return numbers
    return sorted({effects[number - 1]: number for number in numbers}.values())


def ask_until_killed(process: NodeProcess, request: WireRequest) -> None:
    """Ask, whatever becomes of the reply."""
    try:
        ask(process.socket, request)
    except ConnectionError:
        return
