"""``netplug-node`` as it is started, and the calls that it answers in this process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from threading import Thread

import pytest
from attrs import evolve

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.pinned_namespaces import PinnedNamespaces
from netplug_cli.ctl.commands.node import ask_node
from netplug_cli.loopback import listen_to_this_machine
from netplug_cli.node.calls import NodeProcessBusy
from netplug_cli.node.stores import OpenDatastores
from netplug_cli.node_status import NodeStatus
from netplug_cli.wiring import node
from netplug_cli.wiring.node_process import NodeCalls
from netplug_core.cni.wire import WireReply, WireRequest
from netplug_core.flows.world import RecordCounts
from netplug_core.netconf.model import NetConf
from netplug_core.settings.model import DatastoreSettings
from tests.harness.node import missing_requirement
from tests.harness.node_process import ask, listens
from tests.harness.node_server import Lines
from tests.harness.release_records import record_files
from tests.harness.waiting import wait_until


@pytest.fixture
def config(tmp_path: Path) -> dict[str, object]:
    return {
        "cniVersion": "1.1.0",
        "name": "net1",
        "type": "netplug",
        "nodename": "node-1",
        "datastore_type": "sqlite",
        "sqlite_path": str(tmp_path / "netplug.db"),
        "mtu_file": str(tmp_path / "mtu"),
        "nodename_file": str(tmp_path / "nodename"),
        "ipam_lock_file": str(tmp_path / "ipam.lock"),
        "release_record_dir": str(tmp_path / "release-records"),
        "log_file_path": str(tmp_path / "cni.log"),
        "ipam": {"type": "netplug-ipam"},
    }


def request(config: dict[str, object], command: str, program: str = "netplug") -> WireRequest:
    environ = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": "/not/a/namespace",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/opt/cni/bin",
    }
    return WireRequest(program=program, environ=environ, stdin=json.dumps(config).encode())


@contextmanager
def own_network_namespace(path: str) -> Iterator[None]:
    """A network namespace for this thread, and for those that it starts."""
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    PinnedNamespaces().make(path)
    try:
        with PinnedNamespaces().enter(path):
            yield
    finally:
        PinnedNamespaces().remove(path)


def test_it_is_what_the_installed_script_calls() -> None:
    (installed,) = entry_points(group="console_scripts", name="netplug-node")
    assert installed.value == "netplug_cli.wiring.node:main"


def test_it_listens_before_it_imports_what_calls_need() -> None:
    code = (
        "import sys, netplug_cli.wiring.node; print([m for m in sys.modules if m in ('attr', 'json', 'pluggy', 're')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "attr" not in ran.stdout
    assert "pluggy" not in ran.stdout


@pytest.fixture(autouse=True)
def status_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of endpoint status files, which a process makes."""
    folder = tmp_path / "endpoint-status"
    monkeypatch.setenv("ENDPOINT_STATUS_DIR", str(folder))
    return folder


def run_while(act: Callable[[str], None], folder: Path, *options: str) -> int:
    """Run the process until ``act``, which gets the path of its socket and makes a call at least, has ended."""
    path = str(folder / "node.sock")

    def act_and_end() -> None:
        try:
            wait_until(lambda: listens(path), "the process listens")
            act(path)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    client = Thread(target=act_and_end)
    with own_network_namespace(str(folder / "netns")):  # the process programs its packet filter
        client.start()
        status = node.run(["--socket", path, *options])
        client.join()
    return status


@pytest.mark.netns
def test_it_serves_calls_until_a_signal_comes(tmp_path: Path, config: dict[str, object]) -> None:
    replies, open_files, open_file = list[WireReply | None](), list[bool](), tmp_path / "netplug.db-wal"

    def call(path: str) -> None:
        replies.append(ask(path, request({**config, "log_level": "error"}, "DEL")))
        open_files.append(open_file.exists())

    assert run_while(call, tmp_path, "--workers", "2", "--queue", "3") == 0
    assert replies == [WireReply(exit_status=0, stdout=b"", stderr=b"")]
    assert (open_files, open_file.exists()) == ([True], False), "the datastore is closed at the end"
    assert (tmp_path / "endpoint-status").is_dir()


@pytest.mark.netns
def test_it_is_asked_for_its_status_at_a_socket_of_its_own(tmp_path: Path, config: dict[str, object]) -> None:
    found = list[NodeStatus]()

    def call(path: str) -> None:
        ask(path, request(config, "DEL"))
        found.append(ask_node(path))

    assert run_while(call, tmp_path, "--workers", "2") == 0
    (status,) = found
    assert (status.pid, status.socket, status.workers) == (os.getpid(), str(tmp_path / "node.sock"), 2)
    assert (status.calls.served, status.problems) == (1, ())
    assert [datastore.location for datastore in status.datastores] == [str(tmp_path / "netplug.db")]
    assert not (tmp_path / "node.sock.status").exists()


@pytest.mark.netns
def test_without_room_for_its_status_it_serves_all_the_same(
    tmp_path: Path, config: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    replies, taken = list[WireReply | None](), tmp_path / "node.sock.status"
    taken.mkdir()
    assert run_while(lambda path: replies.append(ask(path, request(config, "DEL"))), tmp_path) == 0
    assert [reply.exit_status for reply in replies if reply is not None] == [0]
    text = f"netplug-node: its status cannot be asked for: {taken}: something else than a socket is there\n"
    assert capsys.readouterr().err.startswith(text)


def test_where_it_cannot_listen_it_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.run(["--socket", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"netplug-node: {tmp_path}: something else than a socket is there\n"


def test_a_missing_library_is_named_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert node.run(["--socket", str(tmp_path / "node.sock")]) == 1
    assert capsys.readouterr().err == "netplug-node needs netplug[host]: not installed here: prometheus_client\n"


def test_a_port_that_is_in_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listen_to_this_machine(0) as other:
        port = str(other.getsockname()[1])
        assert node.run(["--socket", str(tmp_path / "node.sock"), "--metrics-port", port]) == 1
    assert capsys.readouterr().err == f"netplug-node: 127.0.0.1:{port}: Address already in use\n"
    assert not (tmp_path / "node.sock").exists()


@pytest.mark.parametrize("option", ["--workers", "--queue", "--metrics-port"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "100000", "²"])
def test_numbers_have_a_range(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        node.run([f"{option}={value}"])
    assert ended.value.code == 2
    assert "is not accepted; a number from 1 to" in capsys.readouterr().err


def test_main_runs_with_the_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["netplug-node", "--help"])
    with pytest.raises(SystemExit) as ended:
        node.main()
    assert ended.value.code == 0


# --- calls ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def calls() -> NodeCalls:
    return NodeCalls(Lines(), OpenDatastores(SystemClock(), lambda *_call: None))


def test_log_lines_of_a_call_are_in_its_reply_and_in_the_file(
    calls: NodeCalls, config: dict[str, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reply = calls.answer(request(config, "DEL"), None)
    assert (reply.exit_status, reply.stdout) == (0, b"")
    assert b"cni-plugin: container detached" in reply.stderr
    assert (tmp_path / "cni.log").read_bytes() == reply.stderr
    assert capfd.readouterr() == ("", "")
    calls.close()


def test_an_error_is_the_object_that_the_executable_prints(calls: NodeCalls, config: dict[str, object]) -> None:
    reply = calls.answer(request(config, "ADD", "netplug-ipam"), None)
    assert (reply.exit_status, json.loads(reply.stdout)["code"]) == (1, 104)
    assert b" ipam: the final result was an error, code 104: " in reply.stderr
    calls.close()


def test_a_descriptor_stands_for_the_path_of_the_call(calls: NodeCalls, config: dict[str, object]) -> None:
    descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
    reply = calls.answer(request(config, "ADD"), descriptor)
    assert json.loads(reply.stdout)["msg"] == "plugin's netns and netns from CNI_NETNS should not be the same"
    os.close(descriptor)
    calls.close()


def test_a_refused_call_gets_its_error_unless_it_is_wrong_itself(calls: NodeCalls, config: dict[str, object]) -> None:
    error = NodeProcessBusy(waiting=7)
    reply = calls.refuse(request(config, "ADD"), error)
    assert reply.exit_status == 1
    assert json.loads(reply.stdout) == {
        "cniVersion": "1.1.0",
        "code": 11,
        "msg": "the node process is busy: 7 calls wait; try again",
    }
    assert b"the final result was an error, code 11" in reply.stderr
    wrong = calls.refuse(request({**config, "cniVersion": "9"}, "ADD"), error)
    assert json.loads(wrong.stdout)["code"] == 1
    calls.close()


def test_an_add_opens_as_many_files_with_10000_records_of_other_stores_as_without(
    calls: NodeCalls, config: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    config["ipam"], folder = {"type": "netplug-ipam", "assign_ipv4": "false"}, Path(str(config["release_record_dir"]))
    config["type"] = "bridge"
    opened: list[str] = []

    def count_opens() -> int:
        opened.clear()
        with monkeypatch.context() as patch:
            for name in ("open", "listdir", "scandir"):
                patch.setattr(os, name, noting(getattr(os, name), opened))
            calls.answer(request(config, "ADD", "netplug-ipam"), None)
        return len(opened)

    count_opens()  # opens the store
    without = count_opens()
    for number in range(10_000):
        path = folder / "stores" / f"etcdv3-{number % 100}" / f"{number:026}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert count_opens() == without
    assert not [path for path in opened if "etcdv3" in path]
    Path(str(config["sqlite_path"])).unlink()
    Path(str(config["sqlite_path"])).mkdir()
    for number in range(10):
        asked = request(config, "DEL", "netplug-ipam")
        environ = {**asked.environ, "CNI_CONTAINERID": f"own-{number}"}
        assert calls.answer(evolve(asked, environ=environ), None).exit_status == 0
    assert calls.replay.count() == RecordCounts(own=10, foreign=10_000)
    Path(str(config["sqlite_path"])).rmdir()
    assert count_opens() == without
    calls.replay.controller().reconcile(SystemClock(), lambda: True)
    assert calls.replay.count() == RecordCounts(foreign=10_000)
    calls.close()


def noting(function: Callable[..., object], opened: list[str]) -> Callable[..., object]:
    """The same function; what it opens is noted."""

    def call(path: object, *args: object, **kwargs: object) -> object:
        opened.append(str(path))
        return function(path, *args, **kwargs)

    return call


def test_records_are_done_through_the_store_of_the_calls(calls: NodeCalls, config: dict[str, object]) -> None:
    Path(str(config["sqlite_path"])).mkdir()
    assert calls.answer(request(config, "DEL"), None).exit_status == 0
    folder = str(config["release_record_dir"])
    assert len(record_files(folder)) == 1
    Path(str(config["sqlite_path"])).rmdir()
    settings = DatastoreSettings(type="sqlite", sqlite_path=str(config["sqlite_path"]))
    netconf = NetConf(datastore=settings, release_record_dir=folder, ipam_lock_file=str(config["ipam_lock_file"]))
    assert calls._replay(netconf, None)  # noqa: SLF001  what the thread of ``RecordReplay`` calls
    assert record_files(folder) == []
    calls.close()
