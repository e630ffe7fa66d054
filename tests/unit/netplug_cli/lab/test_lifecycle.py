"""``up`` and ``down`` over namespaces in memory: the order of things, and what is left when one of them fails."""

import errno
import json
import re
import sys
import time
from pathlib import Path

import pytest
from attrs import evolve

from netplug_cli.lab.folder import LockMode, find_lab, lock_folder
from netplug_cli.lab.model import LAB_POOLS, NODE_ADDRESSES, ExternalServers, Lab, LabError, LabPlan, StoreKind, new_lab
from netplug_cli.lab.report import inspect_lab
from netplug_cli.lab.runtime import PluginFailed
from netplug_cli.lab.setup import EarlierLab, LabRuns, Removal, RemovalExtent, down, up
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.records import Create
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.clock import ManualClock
from tests.harness.lab import ADD_OUTPUT, KernelError, LabHarness
from tests.harness.umask import UMASKS, modes_below, under_umask

REMOVED = Removal(extent=RemovalExtent.COMPLETE)
ETCD = ExternalServers(kind=StoreKind.ETCD, environment=(("ETCD_ENDPOINTS", "http://10.0.0.1:1"),), addresses=())
CLUSTER = ExternalServers(kind=StoreKind.KUBERNETES, environment=(("KUBECONFIG", "/k"),), addresses=())


@pytest.fixture
def harness(tmp_path: Path) -> LabHarness:
    return LabHarness(tmp_path)


def made(harness: LabHarness, count: int = 2) -> Lab:
    return up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=count))


def test_everything_of_a_lab_is_in_its_folder(harness: LabHarness) -> None:
    lab = made(harness)
    assert [pod.name for pod in lab.pods] == ["pod-1", "pod-2"]
    assert lab.is_complete
    assert find_lab(harness.folder) == lab
    assert [str(address) for address in lab.pods[0].addresses] == ["10.98.0.1", "fd98::1"]
    assert lab.pods[0].host_interface == "netp0123"
    assert sorted(path.name for path in (harness.home).iterdir()) == ["calls", "lab"]
    assert harness.namespaces.made == [harness.folder.netns(name) for name in ("node", "pod-1", "pod-2")]
    assert harness.namespaces.forwarding == {harness.folder.netns("node"): NODE_ADDRESSES}


@pytest.mark.parametrize("umask", UMASKS)
def test_every_file_and_folder_has_its_mode(tmp_path: Path, umask: int) -> None:
    harness = LabHarness(tmp_path)
    with under_umask(umask):
        made(harness)
    modes = modes_below(harness.home)
    assert modes["lab"] == 0o700
    assert {modes[f"lab/{name}"] for name in ("bin", "conf", "log", "netns", "run", "servers", "store")} == {0o755}
    files = ("lab.json", "conf/10-netplug.conflist", "conf/pools.yaml")
    assert {name: modes[f"lab/{name}"] for name in files} == dict.fromkeys(files, 0o644)


def test_the_pools_are_created_as_netplugctl_creates_them(harness: LabHarness) -> None:
    made(harness)
    usage = read_utilization(harness.store, deadline=Deadline.after(harness.clock, 1))
    assert [(pool.name, pool.prefix, pool.pool and pool.pool.spec.block_length) for pool in usage] == [
        (pool.name, pool.prefix, pool.block_length) for pool in LAB_POOLS
    ]
    assert (harness.opened_settings[0].type, harness.opened_settings[0].sqlite_path) == (
        "sqlite",
        harness.folder.store_file,
    )
    assert Path(harness.folder.pools_file).read_text().count("kind: IPPool") == len(LAB_POOLS)


def test_a_plugin_gets_what_a_runtime_passes(harness: LabHarness) -> None:
    made(harness, 1)
    ((line, request),) = harness.calls
    folder = harness.folder
    arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME=pod-1;K8S_POD_INFRA_CONTAINER_ID=pod-1"
    assert line == f"ADD pod-1 {folder.netns('pod-1')} eth0 {arguments} {folder.bin_dir}"
    assert request["name"] == "lab"
    assert request["cniVersion"] == "1.0.0"
    assert "prevResult" not in request
    assert harness.namespaces.entered == [folder.netns("node")]


# Listens at the path behind --socket, and writes its variables beside it.
LISTENER = """
import os, socket, sys, time
path = sys.argv[sys.argv.index("--socket") + 1]
with open(path + ".variables", "w") as file:
    file.write(" ".join(sorted(os.environ)))
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
time.sleep(600)
"""


class SleepingClock(ManualClock):
    """A manual clock that lets other processes work."""

    def sleep(self, seconds: float) -> None:
        ManualClock.sleep(self, seconds / 1000)
        time.sleep(seconds)


def test_the_plugins_ask_the_labs_own_node_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets no variable of the user: one might name a datastore that is not the lab's."""
    monkeypatch.setenv("ETCD_ENDPOINTS", "http://production:2379")
    harness = LabHarness(tmp_path, clock=SleepingClock(), node_command=(sys.executable, "-c", LISTENER))
    made(harness)
    socket_path = Path(harness.folder.node_files().node_socket)
    assert socket_path.is_socket()
    assert "ETCD_ENDPOINTS" not in Path(f"{socket_path}.variables").read_text()
    assert any(line.startswith("netplug-node runs on the node (process ") for line in harness.progress.lines)
    assert any(re.fullmatch(r"pod-1 attached in \d+ ms: .*", line) for line in harness.progress.lines)
    assert down(harness.world(), harness.folder) == REMOVED
    assert "ended: netplug-node" in harness.progress.lines


def test_a_node_process_that_ends_at_once_is_said(tmp_path: Path) -> None:
    refuses = (sys.executable, "-c", "import sys; sys.exit('the folder is not safe')")
    harness = LabHarness(tmp_path, clock=SleepingClock(), node_command=refuses)
    with pytest.raises(LabError, match="netplug-node ended as soon as it was started: the folder is not safe"):
        made(harness)
    assert not Path(harness.folder.path).exists()


def test_down_hands_over_the_result_and_leaves_nothing(harness: LabHarness) -> None:
    made(harness)
    assert down(harness.world(), harness.folder) == REMOVED
    commands = [line.split()[:2] for line, _ in harness.calls]
    assert commands == [["ADD", "pod-1"], ["ADD", "pod-2"], ["DEL", "pod-1"], ["DEL", "pod-2"]]
    assert harness.calls[-1][1]["prevResult"] == ADD_OUTPUT
    assert harness.namespaces.made == []
    assert not Path(harness.folder.path).exists()
    assert "no address is held, no interface is left on the node" in harness.progress.lines


def test_on_kubernetes_node_namespace_and_pods_are_objects_before_a_plugin_is_called(harness: LabHarness) -> None:
    lab = up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=2, store=CLUSTER))
    assert harness.cluster.objects == ["lab-node", "lab", "lab/pod-1", "lab/pod-2"]
    assert harness.cluster.owner == lab.uid
    assert {settings.type for settings in harness.opened_settings} == {"kubernetes"}
    assert {settings.kubernetes.kubeconfig for settings in harness.opened_settings} == {"/k"}
    assert "7 definitions of custom objects installed" in harness.progress.lines


def test_down_takes_its_own_from_servers_of_others_and_nothing_else(harness: LabHarness) -> None:
    theirs = IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name="theirs")
    deadline = Deadline.after(harness.clock, 1)
    harness.store.commit([Create(theirs.key, theirs)], deadline=deadline)
    up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    assert len(read_utilization(harness.store, deadline=deadline)) == 3
    assert down(harness.world(), harness.folder) == REMOVED
    assert [pool.name for pool in read_utilization(harness.store, deadline=deadline)] == ["theirs"]
    assert harness.cluster.objects == []
    assert "3 objects removed; the definitions stay, others may use them" in harness.progress.lines
    assert not Path(harness.folder.path).exists()


def test_down_forgets_nothing_while_the_servers_of_others_are_away(harness: LabHarness) -> None:
    lab = up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=ETCD))
    harness.is_store_unavailable = True
    label = f"projectnetplug.org/lab={lab.uid}"
    told = (
        f"what the lab has on its servers may still be there, with the label {label}: etcd: connection refused",
        f"{harness.folder.path} stays, so that lab down can go on when the servers answer; rm -r makes it forgotten",
    )
    for _ in range(2):
        assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.LOCAL_ONLY, problems=told)
        assert find_lab(harness.folder) == lab
        assert harness.namespaces.made == []
    harness.is_store_unavailable = False
    assert down(harness.world(), harness.folder) == REMOVED
    assert read_utilization(harness.store, deadline=Deadline.after(harness.clock, 1)) == ()
    assert not Path(harness.folder.path).exists()


def test_a_cluster_without_definitions_has_no_records_that_could_be_asked_for(harness: LabHarness) -> None:
    """As one has whose ``lab up`` was interrupted early, or whose definitions somebody removed meanwhile."""
    up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    harness.cluster.lacks_definitions = harness.is_store_unavailable = True
    assert down(harness.world(), harness.folder) == REMOVED
    assert harness.cluster.objects == []


def test_objects_go_though_the_records_cannot_be_had(harness: LabHarness) -> None:
    up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    harness.is_store_unavailable = True
    assert down(harness.world(), harness.folder).extent is RemovalExtent.LOCAL_ONLY
    assert harness.cluster.objects == []
    harness.is_store_unavailable = False
    assert down(harness.world(), harness.folder) == REMOVED


def test_up_forgets_no_earlier_lab_whose_servers_are_away(harness: LabHarness) -> None:
    earlier = up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    harness.cluster.is_unavailable = True
    with pytest.raises(LabError, match="the earlier lab has to go first; choose another folder with --dir to leave it"):
        made(harness)
    assert find_lab(harness.folder) == earlier
    assert "kubernetes API: connection refused" in harness.progress.warnings[0]
    harness.cluster.is_unavailable = False
    assert made(harness).pods


@pytest.mark.parametrize("store", [ETCD, CLUSTER])
def test_up_makes_nothing_while_the_servers_of_others_are_away(harness: LabHarness, store: ExternalServers) -> None:
    harness.is_store_unavailable = harness.cluster.is_unavailable = True
    with pytest.raises(Unavailable, match="connection refused"):
        up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=store))
    assert (harness.progress.lines, harness.progress.warnings) == ([], [])
    assert not Path(harness.folder.path).exists()


def test_an_earlier_lab_survives_an_up_on_servers_that_are_away(harness: LabHarness) -> None:
    earlier = made(harness)
    harness.is_store_unavailable = True
    with pytest.raises(Unavailable):
        up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=ETCD))
    assert find_lab(harness.folder) == earlier
    assert harness.namespaces.made == [harness.folder.netns(name) for name in ("node", "pod-1", "pod-2")]


def test_down_of_nothing(harness: LabHarness) -> None:
    assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.NOTHING)


def test_down_removes_the_empty_folder_of_an_up_that_died_at_once(harness: LabHarness) -> None:
    Path(harness.folder.path).mkdir()
    assert down(harness.world(), harness.folder) == REMOVED
    assert not Path(harness.folder.path).exists()


def test_down_of_a_record_alone(harness: LabHarness) -> None:
    """The record is written first, so it may be all there is."""
    Path(harness.folder.path).mkdir()
    with lock_folder(harness.folder, LockMode.EXCLUSIVE, clock=harness.clock, report=harness.progress.info) as held:
        assert held is not None
        held.write_lab(new_lab(LabPlan(name="lab", pod_count=3), uid="u"))
    assert down(harness.world(), harness.folder) == REMOVED
    assert harness.calls == []
    assert not Path(harness.folder.path).exists()


def test_down_detaches_a_pod_whose_add_did_not_return(harness: LabHarness) -> None:
    """Its namespace is there and its result is not: the ADD may have done anything."""
    made(harness)
    record = Path(harness.folder.record_file)
    content = json.loads(record.read_text())
    content["isComplete"], content["pods"][1]["result"] = False, None
    record.write_text(json.dumps(content))
    assert down(harness.world(), harness.folder) == REMOVED
    line, request = harness.calls[-1]
    assert line.startswith("DEL pod-2 ")
    assert "prevResult" not in request


def test_down_after_the_namespaces_are_gone(harness: LabHarness) -> None:
    """As when the user namespace that they were made in has ended: only files are left."""
    made(harness)
    harness.namespaces.made.clear()
    assert down(harness.world(), harness.folder) == REMOVED
    assert not [line for line, _ in harness.calls if line.startswith("DEL")]
    assert not Path(harness.folder.path).exists()


def test_down_goes_on_when_a_plugin_fails(harness: LabHarness) -> None:
    harness.fails_at = "DEL pod-1"
    made(harness)
    removal = down(harness.world(), harness.folder)
    assert removal.problems == ("pod-1: DEL of plugin netplug failed: the store is away (code 11; try later)",)
    assert [line.split()[1] for line, _ in harness.calls if line.startswith("DEL")] == ["pod-1", "pod-2"]
    assert harness.namespaces.made == []
    assert not Path(harness.folder.path).exists()


def test_down_says_what_the_plugins_left(harness: LabHarness) -> None:
    harness.namespaces.remaining_interfaces = ("netp0123",)
    made(harness)
    assert down(harness.world(), harness.folder).problems == ("interfaces left on the node: netp0123",)


def test_down_leaves_what_is_not_the_labs(harness: LabHarness) -> None:
    made(harness, 1)
    mine = Path(harness.folder.path) / "notes"
    mine.write_text("mine")
    told = f"{harness.folder.path} stays, as others use it: notes"
    assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.FOLDER_KEPT, problems=(told,))
    assert mine.read_text() == "mine"


def test_up_removes_an_earlier_lab_and_says_so(harness: LabHarness) -> None:
    made(harness, 3)
    harness.store = type(harness.store)(clock=harness.clock)  # it was a file in the folder
    lab = made(harness, 1)
    assert len(lab.pods) == 1
    assert "an earlier lab is there (complete): it goes first" in harness.progress.lines
    assert harness.namespaces.made == [harness.folder.netns(name) for name in ("node", "pod-1")]


def test_a_lab_that_is_up_is_left_alone_where_it_is_to_be_kept(harness: LabHarness) -> None:
    lab, namespaces = made(harness, 3), list(harness.namespaces.made)
    plan = LabPlan(name="lab", pod_count=1)
    with pytest.raises(LabRuns, match=r"^the lab lab is up in .*, with 3 pods: --replace removes it first, --name"):
        up(harness.world(), harness.folder, plan, EarlierLab.KEPT)
    assert find_lab(harness.folder) == lab
    assert harness.namespaces.made == namespaces


def test_what_an_interrupted_up_has_left_goes_in_any_case(harness: LabHarness) -> None:
    lab = made(harness, 3)
    with lock_folder(harness.folder, LockMode.EXCLUSIVE, clock=harness.clock, report=harness.progress.warn) as locked:
        assert locked is not None
        locked.write_lab(evolve(lab, is_complete=False))
    harness.store = type(harness.store)(clock=harness.clock)  # it was a file in the folder
    assert len(up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1), EarlierLab.KEPT).pods) == 1


def test_up_changes_no_folder_that_is_not_a_labs(harness: LabHarness) -> None:
    mine = Path(harness.folder.path) / "notes"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(LabError, match="holds no lab but notes; choose another folder with --dir"):
        made(harness)
    with pytest.raises(LabError, match="holds no lab but notes"):
        down(harness.world(), harness.folder)
    assert mine.read_text() == "mine"


def test_up_that_fails_in_a_plugin_takes_down_what_it_made(harness: LabHarness) -> None:
    harness.fails_at = "ADD pod-2"
    with pytest.raises(PluginFailed, match=r"^pod-2: ADD of plugin netplug failed: the store is away \(code 11; try"):
        made(harness, 3)
    assert [line.split()[:2] for line, _ in harness.calls][2:] == [["DEL", "pod-1"], ["DEL", "pod-2"]]
    assert harness.namespaces.made == []
    assert not Path(harness.folder.path).exists()
    assert harness.progress.warnings == ["the lab could not be made: removing what there is of it"]


@pytest.mark.parametrize("refused", ["node", "pod-1", "pod-2"])
def test_up_that_may_not_make_a_namespace_leaves_nothing(harness: LabHarness, refused: str) -> None:
    harness.namespaces.failing_suffix = refused
    with pytest.raises(KernelError):
        made(harness)
    assert harness.namespaces.made == []
    assert not Path(harness.folder.path).exists()


def test_a_folder_that_cannot_be_made(harness: LabHarness) -> None:
    harness.home /= "missing"
    with pytest.raises(LabError, match="cannot be made: No such file or directory; choose a folder with --dir"):
        made(harness)


def test_an_error_of_the_file_system_is_a_sentence(harness: LabHarness) -> None:
    def install(bin_dir: str, _say: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", bin_dir)

    with pytest.raises(LabError, match=r"lab/bin: No space left on device$"):
        up(evolve(harness.world(), install=install), harness.folder, LabPlan(name="lab", pod_count=1))
    assert not Path(harness.folder.path).exists()


def test_another_command_is_waited_for_but_not_for_ever(harness: LabHarness) -> None:
    made(harness)
    with (
        lock_folder(harness.folder, LockMode.SHARED, clock=harness.clock, report=harness.progress.info),
        pytest.raises(LabError, match="another command has been at work there for 90 s"),
    ):
        down(harness.world(), harness.folder)
    assert [line for line in harness.progress.lines if "waiting" in line] == [
        f"another command is at work in {harness.folder.path}: waiting for it to end"
    ]


def test_several_may_look_at_once(harness: LabHarness) -> None:
    made(harness)
    with (
        lock_folder(harness.folder, LockMode.SHARED, clock=harness.clock, report=harness.progress.info) as first,
        lock_folder(harness.folder, LockMode.SHARED, clock=harness.clock, report=harness.progress.info) as second,
    ):
        assert first is not None
        assert second is not None


def test_what_is_missing_is_said(harness: LabHarness) -> None:
    lab = made(harness)
    harness.namespaces.made.clear()
    seen = inspect_lab(
        harness.world(), harness.folder, lab.with_pod(new_lab(LabPlan(name="lab", pod_count=2), uid="u").pods[1])
    )
    assert seen.missing == (
        "node: its namespace is gone",
        "pod-1: its namespace is gone",
        "pod-2: its namespace is gone",
        "pod-2: it was never attached",
    )
