"""The executables on etcd: the configuration that says nothing of a store, and what each call costs the server.

The etcd runs on the test's own node, at the address that is the default.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.node import (
    CNIRuntime,
    NetConfDict,
    NetnsNode,
    PluginReply,
    PodNamespace,
    missing_requirement,
    open_node,
)
from tests.harness.release_records import record_files
from tests.harness.servers.binaries import find_etcd_binary
from tests.harness.waiting import MARGIN_S, is_eventually, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

POOL = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: main}
spec: {cidr: 10.65.0.0/24}
"""

# What the server counts, asked on the node: answered calls of each method, and what its log got, which reads do not.
SERVED = """
import json, re, urllib.request
text = urllib.request.urlopen("http://127.0.0.1:2379/metrics").read().decode()
counts = {}
for method, count in re.findall(r'^grpc_server_handled_total{.*grpc_method="(\\w+)".*} (\\d+)$', text, re.M):
    counts[method] = counts.get(method, 0) + int(count)
counts["written"] = int(float(re.search(r"^etcd_server_proposals_committed_total (\\S+)$", text, re.M)[1]))
print(json.dumps({method: count for method, count in counts.items() if count}))
"""

HEALTH = 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:2379/health").read().decode())'


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NetnsNode]:
    """A node with an etcd, which gets a test's own arguments, and a pool in it."""
    extra: tuple[str, ...] = getattr(request, "param", ())
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    etcd = find_etcd_binary()
    with open_node(str(tmp_path)) as opened:
        opened.start_process(etcd, "--data-dir", opened.file("etcd"), "--log-level", "error", *extra)
        assert is_eventually(lambda: "true" in opened.run_unchecked(sys.executable, "-c", HEALTH).stdout)
        ctl(opened, "create", "-f", opened.write_file("pool.yaml", POOL))
        yield opened


def ctl(node: NetnsNode, *arguments: str) -> str:
    """What ``netplugctl`` prints, configured by nothing at all."""
    return node.run(sys.executable, "-m", "netplug_cli.wiring.ctl", *arguments, env={"PATH": "/usr/bin:/bin"})


def served(node: NetnsNode) -> dict[str, int]:
    counts: dict[str, int] = json.loads(node.run(sys.executable, "-c", SERVED))
    return counts


def conf(runtime: CNIRuntime, **changes: object) -> NetConfDict:
    """The usual configuration without a word about a datastore."""
    return runtime.make_netconf(**{"datastore_type": None, "sqlite_path": None, **changes})


def test_a_configuration_that_names_no_store_uses_etcd_on_this_machine(
    runtime: CNIRuntime, node: NetnsNode, pod: PodNamespace
) -> None:
    minimal = conf(runtime)
    added = runtime.add(minimal, pod)
    assert runtime.check(minimal, pod, added).is_success_without_output
    assert added.addresses[0] in ctl(node, "get", "workloadendpoints", "-o", "yaml")
    assert runtime.call("STATUS", {**minimal, "cniVersion": "1.1.0"}).is_success_without_output
    runtime.delete(minimal, pod)
    assert added.addresses[0] not in ctl(node, "get", "workloadendpoints", "-o", "yaml")


def test_check_15_four_keys_are_enough(runtime: CNIRuntime, node: NetnsNode, pod: PodNamespace) -> None:
    """Every other one has a default, also the plugin's own files."""
    node.run("mount", "-t", "tmpfs", "none", "/var/lib")
    minimal: NetConfDict = {
        "name": "net1", "cniVersion": "1.0.0", "type": "netplug", "ipam": {"type": "netplug-ipam"},
    }  # fmt: skip
    (address,) = runtime.add(minimal, pod).addresses
    assert address.startswith("10.65.0.")
    assert node.can_ping(address)
    runtime.delete(minimal, pod)
    assert "node--7.example" not in ctl(node, "get", "workloadendpoints", "-o", "yaml")


@pytest.mark.parametrize(
    "keys",
    [
        {"etcd_endpoints": "http://127.0.0.1:1,http://127.0.0.1:2379"},
        {"etcd_endpoints": "http://127.0.0.1:2379", "etcd_authority": "127.0.0.1:1"},
        {"etcd_authority": "localhost:2379", "etcd_scheme": "http"},
    ],
)
def test_check_25_endpoints_and_the_deprecated_pair(
    runtime: CNIRuntime, pod: PodNamespace, keys: dict[str, object]
) -> None:
    given = conf(runtime, **keys)
    assert runtime.add(given, pod).addresses
    runtime.delete(given, pod)


def test_check_26_the_test_flag(runtime: CNIRuntime, node: NetnsNode) -> None:
    """As an installer uses it, which sets no variable of CNI."""

    def tested(plugin: str, **keys: object) -> PluginReply:
        stdin, environ = json.dumps(conf(runtime, **keys)), {"PATH": "/usr/bin:/bin"}
        done = node.run_unchecked(runtime.executable(plugin), "-t", stdin=stdin, env=environ)
        return PluginReply(done.returncode, done.stdout, done.stderr)

    for plugin in ("netplug", "netplug-ipam"):
        assert tested(plugin).is_success_without_output
        refused = tested(plugin, etcd_endpoints="http://127.0.0.1:1")
        assert (refused.code, refused.error["msg"]) == (100, "data store connection failed")
        assert "http://127.0.0.1:1: " in refused.text


@pytest.mark.alone
def test_a_cold_process_costs_at_most_two_reads_and_one_commit(runtime: CNIRuntime, node: NetnsNode) -> None:
    """Also the first ADD of a node, which claims a block."""
    pods = [node.make_pod() for _ in range(2)]
    for call in (runtime.add, runtime.delete):
        for pod in pods:
            before = served(node)
            call(conf(runtime), pod)
            spent = {method: count - before.get(method, 0) for method, count in served(node).items()}
            assert {method for method, count in spent.items() if count} == {"Txn", "written"}
            assert (spent["Txn"] <= 3, spent["written"]) == (True, 1), (call, pod, spent)


def test_etcd_keys_that_cannot_be_used_are_code_7_and_a_cluster_that_is_away_is_code_11(
    runtime: CNIRuntime, pod: PodNamespace
) -> None:
    refused = runtime.call("ADD", conf(runtime, etcd_ca_cert_file="/nowhere"), pod)
    assert (refused.code, "/nowhere" in refused.text) == (7, True)
    refused = runtime.call("ADD", conf(runtime, etcd_endpoints="http://root:s3cret@127.0.0.1:2379"), pod)
    assert (refused.code, "s3cret" in refused.text + refused.stderr) == (7, False)
    away = runtime.call("ADD", conf(runtime, etcd_endpoints="http://127.0.0.1:1"), pod)
    assert (away.code, "http://127.0.0.1:1: " in away.text) == (11, True)


# Put as much as goes in; the server counts what it has on disk, which it writes ten times a second.
FILL = """
from contextlib import closing
from netplug_backends.etcdv3.operations import Put, Txn
from netplug_backends.etcdv3.datastore import client_from_settings
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.settings.model import DatastoreSettings
clock = SystemClock()
with closing(client_from_settings(DatastoreSettings(), clock=clock)) as client:
    try:
        for number in range(100):
            filler = Put(b"filler-%d" % number, b"x" * 100_000)
            client.write(Txn(success=(filler,)), deadline=Deadline.after(clock, 5.0))
            clock.sleep(0.05)
    except Unavailable as error:
        print(error)
"""


@pytest.mark.parametrize("node", [("--quota-backend-bytes", "2000000")], indirect=True)
def test_d14_on_a_full_store_add_and_del_end_at_once_and_say_what_to_do(runtime: CNIRuntime, node: NetnsNode) -> None:
    """Neither its deadline nor the time to take back what a lost call has written is waited for."""
    there, new = node.make_pods(2)
    runtime.add(conf(runtime), there)
    assert "database space exceeded" in node.run(sys.executable, "-c", FILL)
    for command, pod, code in (("ADD", new, 11), ("DEL", there, 0)):
        reply = runtime.call(command, conf(runtime, log_level="DEBUG"), pod)
        assert reply.logged_s < 5.0 + MARGIN_S
        assert (reply.code if code else reply.status) == code, reply
        said = reply.text if code else reply.stderr
        assert "database space exceeded; the store is full: compact and defragment it, then disarm" in said
        assert "eth0" not in node.links(pod), "a pod that is gone keeps no interface for it"


def test_a_del_without_the_files_of_its_configuration_leaves_a_record(runtime: CNIRuntime, node: NetnsNode) -> None:
    """A certificate is gone, as when a node is being taken down. It is back for the next call."""
    pod, before = node.make_pod(), node.leftovers()
    runtime.add(conf(runtime), pod)
    deleted = runtime.delete(conf(runtime, etcd_ca_cert_file=node.file("gone.pem")), pod)
    assert "gone.pem" in deleted.stderr
    assert set(node.links(pod)) == {"lo"}
    records = str(conf(runtime)["release_record_dir"])
    assert len(record_files(records)) == 1
    runtime.collect(conf(runtime))
    wait_until(lambda: record_files(records) == [], "the record is done")  # by a task of a node process
    assert node.leftovers() == before


@pytest.mark.parametrize("host", ["unix", "dns", "ipv4", "xds"])
def test_a_host_may_have_the_name_of_a_scheme_of_grpcs(node: NetnsNode, host: str) -> None:
    node.run("mount", "--bind", node.write_file("hosts", f"127.0.0.1 localhost {host}\n::1 {host}\n"), "/etc/hosts")
    environ = {"PATH": "/usr/bin:/bin", "ETCD_ENDPOINTS": f"http://{host}:2379"}
    assert "main" in node.run(sys.executable, "-m", "netplug_cli.wiring.ctl", "get", "ippools", env=environ)


# Take what comes at the port of name servers, over either transport, and say nothing.
SILENT = """
import socket
listener, datagrams = socket.create_server(("127.0.0.1", 53)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 53))
print("ready", flush=True)
while True:
    datagrams.recv(512)
"""


@pytest.fixture
def silent(node: NetnsNode) -> str:
    """Where somebody on the node takes connections and questions and never answers: its name server, for one."""
    started = node.start_process(sys.executable, "-c", SILENT)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    node.run("mount", "--bind", node.write_file("resolv.conf", "nameserver 127.0.0.1\n"), "/etc/resolv.conf")
    return "127.0.0.1:53"


DISCOVERY = "failed to discover etcd endpoints through SRV discovery: domain 'etcd.local': no name server answered"


def test_a_status_that_fails_is_code_50_and_says_where_and_why(runtime: CNIRuntime, silent: str) -> None:
    """And in time: the store's part of a STATUS is two seconds."""
    for keys, text in (
        ({"etcd_endpoints": "http://127.0.0.1:1"}, "http://127.0.0.1:1: Failed to connect to remote host: Conn"),
        ({"etcd_authority": silent}, f"http://{silent}: no answer within "),
        ({"etcd_discovery_srv": "etcd.local"}, DISCOVERY),
    ):
        refused = runtime.call("STATUS", conf(runtime, cniVersion="1.1.0", log_level="DEBUG", **keys))
        assert refused.logged_s < 2.0 + MARGIN_S
        assert (refused.code, text in refused.text) == (50, True), refused


def test_a_member_that_the_hosts_file_names_needs_no_name_server(
    runtime: CNIRuntime, node: NetnsNode, silent: str
) -> None:
    del silent
    node.run("mount", "--bind", node.write_file("hosts", "127.0.0.1 localhost etcd.local\n"), "/etc/hosts")
    assert (
        runtime.call("STATUS", conf(runtime, cniVersion="1.1.0", etcd_endpoints="http://etcd.local:2379")).status == 0
    )
    environ = {"PATH": "/usr/bin:/bin", "ETCD_ENDPOINTS": "http://etcd.local:2379"}
    assert "main" in node.run(sys.executable, "-m", "netplug_cli.wiring.ctl", "get", "ippools", env=environ)


def test_names_that_nobody_answers_for_keep_nobody_from_a_member_that_is_there(
    runtime: CNIRuntime, silent: str
) -> None:
    del silent
    names = (f"http://{name}.etcd.local:2379" for name in ("one", "two", "three"))
    endpoints = ",".join((*names, "http://127.0.0.1:2379"))
    for _ in range(3):  # whoever is drawn to be the first
        assert runtime.call("STATUS", conf(runtime, cniVersion="1.1.0", etcd_endpoints=endpoints)).status == 0


def test_a_silent_name_server_does_not_keep_a_del_from_the_pod(
    runtime: CNIRuntime, node: NetnsNode, pod: PodNamespace, silent: str
) -> None:
    del silent
    runtime.add(conf(runtime), pod)
    deleted = runtime.call("DEL", conf(runtime, etcd_discovery_srv="etcd.local", log_level="DEBUG"), pod)
    assert deleted.logged_s < 6.0 + MARGIN_S
    assert "eth0" not in node.links(pod)
    runtime.delete(conf(runtime), pod)


def test_the_deprecated_pair_is_named_where_it_makes_no_endpoint(runtime: CNIRuntime, pod: PodNamespace) -> None:
    refused = runtime.call("ADD", conf(runtime, etcd_authority="a b:1"), pod)
    assert (refused.code, "etcd_authority: 'http://a b:1' is not accepted" in refused.text) == (7, True), refused
    refused = runtime.call("ADD", conf(runtime, etcd_scheme="ftp", etcd_authority="a:1"), pod)
    assert (refused.code, "etcd_scheme and etcd_authority: 'ftp://a:1'" in refused.text) == (7, True), refused
