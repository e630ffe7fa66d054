"""Metrics, readiness, liveness and status of a node process that serves calls on a real kernel."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from tests.harness.metrics import value_of
from tests.harness.node import CNIRuntime, NetnsNode
from tests.harness.node_process import ROOT, NodeProcess, NodeProcessRuntime, start_node_process
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.alone]

PORT = "9470"
TOOL = (sys.executable, "-m", "netplug_cli.wiring.ctl")
GET = """
import sys, urllib.error, urllib.request
try:
    reply = urllib.request.urlopen(sys.argv[1])
except urllib.error.HTTPError as error:
    reply = error
except urllib.error.URLError:
    sys.exit("0\\n")
print(reply.status)
sys.stdout.write(reply.read().decode())
"""
CONNECT = """
import signal, socket, sys
open_ones = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(40)]
open_ones[-1].sendall(b"GET /metrics HTTP/1.0\\r\\n")
print("connected", flush=True)
signal.pause()
"""


@frozen
class Observed:
    """A node process whose pages are served, and its runtime."""

    process: NodeProcess
    runtime: NodeProcessRuntime

    @property
    def node(self) -> NetnsNode:
        return self.runtime.node

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page."""
        printed = self.node.run(sys.executable, "-c", GET, f"http://127.0.0.1:{PORT}{path}")
        status, _line, body = printed.partition("\n")
        return int(status), body

    def value(self, series: str) -> float | None:
        """The value of a series."""
        return value_of(self.get("/metrics")[1].encode(), series)


@pytest.fixture
def observed(runtime: CNIRuntime) -> Observed:
    process = start_node_process(
        runtime.node, "--metrics-port", PORT, "--metrics-file", runtime.node.file("netplug.prom")
    )
    observed = Observed(process, NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket))
    wait_until(lambda: observed.get("/readyz") == (200, "ok\n"), "it is ready")
    return observed


def test_calls_and_the_round_trips_of_their_datastore_are_counted(observed: Observed) -> None:
    pod, conf = observed.node.make_pod(), observed.runtime.make_netconf()
    observed.runtime.add(conf, pod)
    assert observed.runtime.call("ADD", conf, pod).code == 121
    observed.runtime.delete(conf, pod)
    calls = 'netplug_node_calls_total{{code="{}",command="{}",program="netplug"}}'
    assert [observed.value(calls.format(*each)) for each in (("0", "ADD"), ("121", "ADD"), ("0", "DEL"))] == [1, 1, 1]
    store = f'datastore="sqlite",location="{observed.node.database}"'
    count = f'netplug_node_datastore_call_duration_seconds_count{{{store},operation="commit",outcome="ok"}}'
    assert (observed.value(count) or 0) >= 2, "one of the ADD, one of the DEL"
    assert observed.value(f"netplug_node_datastore_up{{{store}}}") == 1
    file = Path(observed.node.file("netplug.prom"))
    wait_until(file.exists, "the file is written")
    assert value_of(file.read_bytes(), "netplug_node_workers") == 16


def test_the_fill_of_pools_is_known_without_a_read(observed: Observed) -> None:
    pod, conf = observed.node.make_pod(), observed.runtime.make_netconf()
    observed.runtime.add(conf, pod)
    store = f'datastore="sqlite",location="{observed.node.database}"'
    names = ("pool_addresses", "pool_block_addresses", "pool_block_addresses_in_use")
    series = [f'netplug_node_{name}{{{store},pool="v4"}}' for name in names]
    wait_until(lambda: observed.value(series[0]) == 256, "pools are followed")
    assert [observed.value(each) for each in series] == [256, 64, 1]
    age_s = observed.value(f"netplug_node_cache_age_seconds{{{store}}}")
    assert age_s is not None
    assert age_s >= 0
    observed.runtime.delete(conf, pod)
    assert observed.value(series[2]) == 0


def test_a_plugin_that_the_host_lacks_is_a_warning_a_metric_and_a_line_of_the_status(runtime: CNIRuntime) -> None:
    """A runtime that lacks a plugin starts no pod, and each attempt takes an address."""
    programs, configurations = Path(runtime.node.file("programs")), Path(runtime.node.file("net.d"))
    for folder in (programs, configurations):
        folder.mkdir()
    portmap, loopback = programs / "portmap", programs / "loopback"
    loopback.touch(0o755)  # which is needed too if this machine has containerd
    plugins = [{"type": "netplug"}, {"type": "portmap"}]
    (configurations / "10-netplug.conflist").write_text(json.dumps({"name": "net", "plugins": plugins}))
    (configurations / "00-damaged.conflist").write_text("{")
    os.mkfifo(configurations / "05-pipe.conflist")
    environ = {"CNI_BIN_DIR": str(programs), "CNI_NET_DIR": str(configurations)}
    process = start_node_process(runtime.node, "--metrics-port", PORT, environ=environ)
    observed = Observed(process, NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket))
    file = configurations / "10-netplug.conflist"
    sentence = f"portmap is not in {programs}: {file} names it, so no pod starts without it"
    wait_until(lambda: observed.value("netplug_node_missing_plugins") == 1, "the missing plugin is counted")
    wait_until(lambda: sentence in process.lines, "the log names it")
    assert observed.get("/readyz") == (200, "ok\n"), "calls are served all the same"
    shown = observed.node.run_unchecked(*TOOL, "node", "status", "--socket", process.socket)
    assert (shown.returncode, f"Missing plugin:  {sentence}" in shown.stdout.splitlines()) == (1, True), shown
    portmap.touch(0o755)
    wait_until(lambda: observed.value("netplug_node_missing_plugins") == 0, "the plugin is there again")
    assert process.lines.count(sentence) == 1
    assert observed.node.run_unchecked(*TOOL, "node", "status", "--socket", process.socket).returncode == 0


def test_clients_of_the_pages_that_hang_delay_no_call(observed: Observed) -> None:
    with hanging_clients(observed):
        pod, conf = observed.node.make_pod(), observed.runtime.make_netconf()
        observed.runtime.add(conf, pod)
        observed.runtime.delete(conf, pod)
        assert observed.get("/livez") == (200, "ok\n")


@contextmanager
def hanging_clients(observed: Observed) -> Iterator[None]:
    """Forty clients that have connected and send no whole request."""
    child = observed.node.start_process(sys.executable, "-c", CONNECT, PORT)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        yield
    finally:
        child.kill()
        child.wait()


def test_it_is_ready_while_its_datastore_answers(observed: Observed) -> None:
    pod, conf = observed.node.make_pod(), observed.runtime.make_netconf(cniVersion="1.1.0")
    observed.runtime.add(conf, pod)
    assert observed.get("/readyz") == (200, "ok\n")
    os.rename(observed.node.database, observed.node.file("away"))
    os.mkdir(observed.node.database)
    assert observed.runtime.call("STATUS", conf).code == 50
    text = f"datastore sqlite at {observed.node.database} does not answer: Unavailable\n"
    assert observed.get("/readyz") == (503, text)
    assert observed.get("/livez") == (200, "ok\n")
    os.rmdir(observed.node.database)
    os.rename(observed.node.file("away"), observed.node.database)
    assert observed.get("/readyz") == (200, "ok\n")


def test_a_port_that_is_in_use_ends_it_with_one_line(observed: Observed) -> None:
    argv = (sys.executable, "-m", "netplug_cli.wiring.node", "--socket", observed.node.file("other.sock"))
    ended = observed.node.run_unchecked("env", "-C", ROOT, *argv, "--metrics-port", PORT)
    assert (ended.returncode, ended.stderr) == (1, f"netplug-node: 127.0.0.1:{PORT}: Address already in use\n")


def test_the_tool_shows_its_status_and_says_when_there_is_none(observed: Observed) -> None:
    tool = ("env", "-C", ROOT, sys.executable, "-m", "netplug_cli.wiring.ctl", "node", "status")
    pod, conf = observed.node.make_pod(), observed.runtime.make_netconf()
    observed.runtime.add(conf, pod)
    shown = observed.node.run(*tool, "--socket", observed.process.socket).splitlines()
    assert f"PID:             {observed.process.child.pid}" in shown
    assert "Ready:           yes" in shown
    assert "Calls:           1 served, 0 of them failed; 0 refused as busy" in shown
    assert shown[-1].split()[:2] == ["sqlite", observed.node.database]
    observed.process.signal(signal.SIGTERM)
    assert observed.process.wait() == 0
    ended = observed.node.run_unchecked(*tool, "--socket", observed.process.socket)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"no node process answers at {observed.process.socket}: No such file or directory; " in ended.stderr
    assert not os.path.exists(f"{observed.process.socket}.status")
