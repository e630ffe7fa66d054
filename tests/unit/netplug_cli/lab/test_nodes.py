"""A lab of several nodes over namespaces in memory: its parts, what each node process is told, and what is refused."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from netplug_cli.lab.commands import make_connectivity_group, make_group
from netplug_cli.lab.folder import LockedFolder, find_lab, find_other_labs, lock_new_folder, parse_lab, render_lab
from netplug_cli.lab.model import (
    Lab,
    LabError,
    LabFolder,
    LabNetwork,
    LabPlan,
    LabPod,
    OwnServers,
    Routing,
    StoreKind,
    new_lab,
)
from netplug_cli.lab.processes import kill_all
from netplug_cli.lab.report import inspect_lab
from netplug_cli.lab.setup import Removal, RemovalExtent, down, up
from netplug_cli.node_status import CallFigures, NetworkStatus, NodeStatus
from netplug_core.clock import Deadline
from netplug_core.flows.resources.read import list_all
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import get_kind
from netplug_core.testing.clock import ManualClock
from tests.harness.lab import LabHarness
from tests.unit.netplug_cli.lab.test_lifecycle import SleepingClock

REMOVED = Removal(extent=RemovalExtent.COMPLETE)

# A node process: it writes its variables beside its socket, listens, and is registered then.
NODE_PROCESS = """
import json, os, socket, time, sys
path = sys.argv[sys.argv.index("--socket") + 1]
with open(path + ".variables", "w") as file:
    json.dump(dict(os.environ), file)
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
open(os.environ["MTU_FILE"], "w").close()
time.sleep(600)
"""


@pytest.fixture
def harness(tmp_path: Path) -> LabHarness:
    return LabHarness(tmp_path)


def plan(routing: Routing = Routing.VXLAN, nodes: int = 2, pods: int = 3) -> LabPlan:
    return LabPlan(name="lab", pod_count=pods, network=LabNetwork(node_count=nodes, routing=routing))


def made(harness: LabHarness, wanted: LabPlan) -> Lab:
    return up(harness.world(), harness.folder, wanted)


def test_nodes_are_plugged_into_a_switch_and_pods_are_spread_over_them(harness: LabHarness) -> None:
    lab = made(harness, plan())
    folder = harness.folder
    assert [(pod.name, pod.node) for pod in lab.pods] == [("pod-1", "node-1"), ("pod-2", "node-2"), ("pod-3", "node-1")]
    assert [node.name for node in lab.nodes] == ["lab-node-1", "lab-node-2"]
    names = ("switch", "node-1", "node-2", "pod-1", "pod-2", "pod-3")
    assert harness.namespaces.made == [folder.netns(name) for name in names]
    assert harness.namespaces.forwarding == {folder.netns("node-1"): (), folder.netns("node-2"): ()}
    plugged = {
        path: (interface, switch, port, [*map(str, addresses)])
        for path, (interface, switch, port, addresses) in harness.namespaces.plugged.items()
    }
    assert plugged == {
        folder.netns(name): ("lan0", folder.netns("switch"), name, [f"10.98.1.{n}/24", f"fd98:6e70:6c67:1::{n}/64"])
        for n, name in enumerate(("node-1", "node-2"), start=1)
    }
    assert harness.namespaces.entered == [folder.netns(node) for node in ("node-1", "node-2", "node-1")]
    assert find_lab(folder) == lab


def test_each_node_has_its_own_configuration(harness: LabHarness) -> None:
    lab = made(harness, plan())
    for node in lab.nodes:
        files = harness.folder.node_files(node.netns)
        (plugin,) = json.loads(Path(files.conflist_file).read_text())["plugins"]
        assert plugin["nodename"] == node.name
        own = ("nodename_file", "log_file_path", "mtu_file", "ipam_lock_file", "release_record_dir")
        assert [plugin[key] for key in own if f"/{node.netns}/" not in plugin[key]] == []
        assert plugin["sqlite_path"] == harness.folder.store_file


@pytest.mark.parametrize("routing,mode", [(Routing.VXLAN, "Always"), (Routing.BGP, "Never"), (Routing.NONE, "Never")])
def test_the_pools_have_blocks_for_all_nodes_and_the_encapsulation(
    harness: LabHarness, routing: Routing, mode: str
) -> None:
    made(harness, plan(routing))
    records = list_all(harness.store, get_kind("IPPool"), deadline=Deadline.after(harness.clock, 1))
    pools = [record.value for record in records if isinstance(record.value, IPPool)]
    assert [(pool.metadata.name, str(pool.spec.prefix), pool.spec.vxlan_mode.value) for pool in pools] == [
        ("lab-ipv4", "10.98.64.0/18", mode),
        ("lab-ipv6", "fd98:6e70:6c67::/64", mode),
    ]


@pytest.mark.parametrize("routing,backend", [(Routing.BGP, ""), (Routing.NONE, "none")])
def test_a_node_process_gets_the_variables_of_its_node_and_no_others(
    tmp_path: Path, routing: Routing, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_ENDPOINTS", "http://production:2379")
    harness = LabHarness(tmp_path, clock=SleepingClock(), node_command=(sys.executable, "-c", NODE_PROCESS))
    for netns in ("node-1", "node-2"):
        harness.statuses[harness.folder.node_files(netns).node_socket] = status()
    lab = made(harness, plan(routing, pods=0))  # without pods, there are no routes to wait for
    for node in lab.nodes:
        files = harness.folder.node_files(node.netns)
        variables = json.loads(Path(f"{files.node_socket}.variables").read_text())
        own = Path(harness.folder.path, "run", node.netns)
        assert (
            variables.items()
            >= {
                "DATASTORE_TYPE": "sqlite",
                "SQLITE_PATH": harness.folder.store_file,
                "NODENAME": node.name,
                "NODENAME_FILE": str(own / "nodename"),
                "MTU_FILE": str(own / "mtu"),
                "ENDPOINT_STATUS_DIR": str(own / "endpoint-status"),
                "NETPLUG_BGP_DIR": str(own / "bird"),
                "NETPLUG_NETWORKING_BACKEND": backend,
                "IP_AUTODETECTION_METHOD": "interface=lan0",
                "IP6_AUTODETECTION_METHOD": "interface=lan0",
                "IP6": "autodetect",
            }.items()
        )
        assert "ETCD_ENDPOINTS" not in variables
    assert down(harness.world(), harness.folder) == REMOVED
    assert "ended: netplug-node-1, netplug-node-2" in harness.progress.lines


def test_down_asks_the_node_of_each_pod_and_ignores_what_connects_nodes(harness: LabHarness) -> None:
    made(harness, plan())
    harness.namespaces.entered.clear()
    harness.namespaces.remaining_interfaces = ("lan0", "vxlan.netplug", "vxlan6.netplug")
    assert down(harness.world(), harness.folder) == REMOVED
    assert harness.namespaces.entered == [harness.folder.netns(node) for node in ("node-1", "node-2", "node-1")]
    assert "no address is held, no interface is left on any node" in harness.progress.lines
    assert harness.namespaces.made == []


def test_an_interface_that_a_pod_has_left_on_a_node_is_said(harness: LabHarness) -> None:
    made(harness, plan(nodes=1, pods=1))
    harness.namespaces.remaining_interfaces = ("lan0", "netp0123")
    assert down(harness.world(), harness.folder).problems == ("interfaces left on any node: netp0123",)


def test_pods_of_a_node_that_is_gone_are_not_asked_for_and_everything_goes(harness: LabHarness) -> None:
    made(harness, plan())
    harness.namespaces.made.remove(harness.folder.netns("node-1"))
    harness.calls.clear()
    assert down(harness.world(), harness.folder) == REMOVED
    assert [line.split()[:2] for line, _ in harness.calls if line.startswith("DEL")] == [["DEL", "pod-2"]]


def status(problems: tuple[str, ...] = (), network: NetworkStatus | None = None) -> NodeStatus:
    calls = CallFigures(served=0, failed=0, refused=0, served_now=0, waiting=0)
    return NodeStatus(
        version="1", pid=1, started_ns=0, socket="/s", problems=problems, workers=1, queue_limit=1, calls=calls,
        release_records=0, network=network,
    )  # fmt: skip


def test_the_state_of_each_node_process_is_what_it_says_itself(harness: LabHarness) -> None:
    lab = new_lab(plan(nodes=5, pods=1), uid="u")
    sockets = [harness.folder.node_files(node.netns).node_socket for node in lab.nodes]
    harness.statuses[sockets[0]] = status()
    harness.statuses[sockets[1]] = status(("it starts",), NetworkStatus(obstacle="it starts"))
    harness.statuses[sockets[2]] = status(network=NetworkStatus(obstacle="no routes yet", problems=("no way to x",)))
    for name, number in (("netplug-node-5", 2**22 + 1),):  # more than any process has
        Path(harness.folder.processes_dir).mkdir(parents=True)
        Path(harness.folder.processes_dir, f"{name}.pid").write_text(f"{number}\n")
    seen = inspect_lab(harness.world(), harness.folder, lab)
    assert [state for _, state in seen.processes] == [
        "ready",
        "it starts",
        "no routes yet; no way to x",
        "the node process: connection refused",
        "ended",
    ]
    ended = "netplug-node-5: it is not running any more; its log is "
    assert seen.missing[-1] == f"{ended}{harness.folder.process_log('netplug-node-5')}"


@pytest.mark.parametrize("routing", Routing)
def test_a_record_says_nodes_and_routing(routing: Routing) -> None:
    lab = new_lab(plan(routing), uid="u")
    assert parse_lab(render_lab(lab), "lab.json") == lab


@pytest.mark.parametrize(
    "changed,message",
    [
        ({"network": {"nodes": 0, "routing": "vxlan"}}, "lab.json.network.nodes: "),
        ({"network": {"nodes": 21, "routing": "vxlan"}}, "lab.json.network.nodes: "),
        ({"network": {"nodes": 2, "routing": "ospf"}}, "lab.json.network.routing: "),
        ({"network": {"nodes": 1, "routing": "bgp"}}, "it has pods, but no node node-2"),
    ],
)
def test_what_is_no_record_of_nodes(changed: dict[str, object], message: str) -> None:
    record = json.loads(render_lab(new_lab(plan(), uid="u")))
    with pytest.raises(LabError, match=message):
        parse_lab(json.dumps(record | changed), "lab.json")


def test_a_record_of_an_earlier_release_has_one_node() -> None:
    record = json.loads(render_lab(new_lab(LabPlan(name="lab", pod_count=1), uid="u")))
    del record["network"], record["pods"][0]["node"]
    assert parse_lab(json.dumps(record), "lab.json").pods == (LabPod(name="pod-1", node="node"),)


def invoke(harness: LabHarness, *argv: str) -> Result:
    group = make_group(lambda _context: harness.world())
    return CliRunner().invoke(group, [*argv, "--dir", harness.folder.path])


def test_a_lab_whose_pods_are_not_reached_is_kept_and_says_how_to_go_on(tmp_path: Path) -> None:
    """No host has the addresses here."""
    harness = LabHarness(tmp_path, clock=SleepingClock(), node_command=(sys.executable, "-c", NODE_PROCESS))
    lab = made(harness, plan(pods=2))
    assert lab.is_complete
    (warning,) = harness.progress.warnings
    assert warning.endswith(f": netplugctl lab status --dir {harness.folder.path} says more")
    assert down(harness.world(), harness.folder) == REMOVED


@pytest.mark.parametrize(
    "options,message",
    [
        (("--routing", "bgp"), "--routing is for several nodes: say how many with --nodes"),
        (
            ("--nodes", "2", "--datastore", "etcdv3", "--server", "http://127.0.0.1:1"),
            "several nodes need a store of their own: take --datastore sqlite, or --servers DIR",
        ),
    ],
)
def test_options_that_do_not_go_together(harness: LabHarness, options: tuple[str, ...], message: str) -> None:
    refused = invoke(harness, "up", *options)
    assert isinstance(refused.exception, LabError)
    assert str(refused.exception) == message
    assert not Path(harness.folder.path).exists()


def test_two_pods_for_each_node_unless_a_number_is_given(harness: LabHarness) -> None:
    assert "4 pods on 2 nodes" in invoke(harness, "up", "--nodes", "2").output
    assert "1 pods on 2 nodes" in invoke(harness, "up", "--nodes", "2", "--pods", "1", "--replace").output
    assert "3 pods on lab-node" in invoke(harness, "up", "--replace").output


def test_status_in_a_format_for_programs(harness: LabHarness) -> None:
    made(harness, plan(pods=1))
    harness.namespaces.made.clear()  # nothing can be probed
    shown = invoke(harness, "status", "-o", "json")
    assert re.fullmatch(r"json: 0 paths\n", shown.stdout)


def test_connectivity_from_each_pod(harness: LabHarness) -> None:
    """No host has the addresses here, so nothing is waited for and everything fails."""
    made(harness, plan(Routing.NONE, pods=2))
    group = make_connectivity_group(lambda _context: harness.world())
    shown = CliRunner().invoke(group, ["test", "--dir", harness.folder.path], standalone_mode=False)
    assert shown.return_value == 1
    rows = shown.stdout.splitlines()
    assert rows[0].split() == ["FROM", "TO", "WHICH", "IS", "FAMILY", "RESULT", "TIME"]
    assert rows[1].split()[:6] == ["pod-1", "node-1", "its", "own", "node", "IPv4"]
    assert rows[-1] == "12 of 12 paths do not work."
    failure = "pod-1 to node-1 over IPv4 (10.98.1.1): its own host has not got it: "
    assert any(warning.startswith(failure) for warning in harness.progress.warnings)
    told = CliRunner().invoke(group, ["test", "--dir", harness.folder.path, "-o", "csv"], standalone_mode=False)
    assert (told.return_value, told.stdout) == (1, "csv: 12 paths\n")


def test_there_is_no_connectivity_without_a_lab(harness: LabHarness) -> None:
    group = make_connectivity_group(lambda _context: harness.world())
    refused = CliRunner().invoke(group, ["test", "--dir", harness.folder.path])
    assert refused.exit_code == 1
    assert "no lab is up in" in refused.output


def test_other_labs_are_found(tmp_path: Path) -> None:
    for name in ("a", "b", "no-lab"):
        (tmp_path / f"netplug-{name}").mkdir()
        if name != "no-lab":
            (tmp_path / f"netplug-{name}" / "lab.json").touch()
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path / "gone")}
    found = find_other_labs(LabFolder(str(tmp_path / "netplug-a")), environ)
    assert "b" in found
    assert {"a", "no-lab"}.isdisjoint(found)


@pytest.fixture
def held(tmp_path: Path) -> LockedFolder:
    folder = LabFolder(str(tmp_path / "lab"))
    with lock_new_folder(folder, clock=ManualClock(), report=print) as opened:
        opened.make_subfolders(new_lab(plan(), uid="u"))
        return opened


def test_a_bgp_daemon_of_the_lab_is_ended_and_no_other_one(held: LockedFolder, tmp_path: Path) -> None:
    """It has gone into the background, and only its arguments say whose it is."""
    bird = tmp_path / "bird"
    bird.symlink_to(sys.executable)
    waits = "import signal; signal.pause()"
    own = held.folder.node_files("node-2").bgp_dir
    started = [
        subprocess.Popen(["bird", "-c", waits, "-c", f"{folder}/bird.conf"], executable=str(bird))
        for folder in (own, f"{tmp_path}/elsewhere")
    ]
    try:
        assert kill_all(held.folder) == ("bird of node-2",)
        assert started[0].wait() == -9
        assert os.waitid(os.P_PID, started[1].pid, os.WEXITED | os.WNOHANG) is None
    finally:
        for each in started:
            each.kill()
            each.wait()


def test_on_kubernetes_every_node_is_an_object(harness: LabHarness) -> None:
    """Only a store of the lab's own can have several nodes; its objects are made like those of others."""
    lab = evolve(new_lab(plan(), uid="u"), store=OwnServers(etcd="/e", apiserver="/a"))
    assert lab.store.kind is StoreKind.KUBERNETES
    assert lab.server_netns == "switch"


def test_the_help_is_that_of_the_tool_whichever_way_a_command_is_called_first(harness: LabHarness) -> None:
    """Click keeps the names of a command's help option from its first call."""
    for name in ("up", "status", "down"):
        assert "-h, --help" in invoke(harness, name, "--help").output
