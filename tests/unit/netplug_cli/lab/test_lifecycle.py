"""``up`` and ``down`` over namespaces in memory: the order of things, and what is left when one of them fails."""

import errno
import json
from pathlib import Path

import pytest
from attrs import evolve

from netplug_cli.lab.folder import LockMode, find_lab, lock_folder
from netplug_cli.lab.model import LAB_POOLS, NODE_ADDRESSES, Lab, LabError, LabPlan, new_lab
from netplug_cli.lab.runtime import PluginFailed
from netplug_cli.lab.setup import up
from netplug_cli.lab.status import inspect_lab
from netplug_cli.lab.stores import ExternalServers, StoreKind
from netplug_cli.lab.teardown import Removal, RemovalExtent, down
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.overview import read_utilization
from netplug_core.records import Create
from netplug_core.resources.ippool import IPPool
from tests.harness.lab import ADD_OUTPUT, KernelError, LabHarness

REMOVED = Removal(extent=RemovalExtent.COMPLETE)
ETCD = ExternalServers(kind=StoreKind.ETCD, environment=(("ETCD_ENDPOINTS", "http://10.0.0.1:1"),), addresses=())
CLUSTER = ExternalServers(kind=StoreKind.KUBERNETES, environment=(("KUBECONFIG", "/k"),), addresses=())


@pytest.fixture
def bench(tmp_path: Path) -> LabHarness:
    return LabHarness(tmp_path)


def made(harness: LabHarness, count: int = 2) -> Lab:
    return up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=count))


def test_everything_of_a_lab_is_in_its_folder(bench: LabHarness) -> None:
    lab = made(bench)
    assert [pod.name for pod in lab.pods] == ["pod-1", "pod-2"]
    assert lab.is_complete
    assert find_lab(bench.folder) == lab
    assert [str(address) for address in lab.pods[0].addresses] == ["10.98.0.1", "fd98::1"]
    assert lab.pods[0].host_interface == "netp0123"
    assert sorted(path.name for path in (bench.home).iterdir()) == ["calls", "lab"]
    assert bench.namespaces.made == [bench.folder.netns(name) for name in ("node", "pod-1", "pod-2")]
    assert bench.namespaces.forwarding == {bench.folder.netns("node"): NODE_ADDRESSES}


def test_the_pools_are_created_as_netplugctl_creates_them(bench: LabHarness) -> None:
    made(bench)
    usage = read_utilization(bench.store, deadline=Deadline.after(bench.clock, 1))
    assert [(pool.name, pool.prefix, pool.pool and pool.pool.spec.block_length) for pool in usage] == [
        (pool.name, pool.prefix, pool.block_length) for pool in LAB_POOLS
    ]
    assert (bench.opened_settings[0].type, bench.opened_settings[0].sqlite_path) == ("sqlite", bench.folder.store_file)
    assert Path(bench.folder.pools_file).read_text().count("kind: IPPool") == len(LAB_POOLS)


def test_a_plugin_is_told_what_a_runtime_tells_it(bench: LabHarness) -> None:
    made(bench, 1)
    ((line, request),) = bench.calls
    folder = bench.folder
    arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME=pod-1;K8S_POD_INFRA_CONTAINER_ID=pod-1"
    assert line == f"ADD pod-1 {folder.netns('pod-1')} eth0 {arguments} {folder.bin_dir}"
    assert request["name"] == "lab"
    assert request["cniVersion"] == "1.0.0"
    assert "prevResult" not in request
    assert bench.namespaces.entered == [folder.netns("node")]


def test_down_hands_over_the_result_and_leaves_nothing(bench: LabHarness) -> None:
    made(bench)
    assert down(bench.world(), bench.folder) == REMOVED
    commands = [line.split()[:2] for line, _ in bench.calls]
    assert commands == [["ADD", "pod-1"], ["ADD", "pod-2"], ["DEL", "pod-1"], ["DEL", "pod-2"]]
    assert bench.calls[-1][1]["prevResult"] == ADD_OUTPUT
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()
    assert "no address is held, no interface is left on the node" in bench.progress.lines


def test_on_kubernetes_node_namespace_and_pods_are_objects_before_a_plugin_is_called(bench: LabHarness) -> None:
    lab = up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=2, store=CLUSTER))
    assert bench.cluster.objects == ["lab-node", "lab", "lab/pod-1", "lab/pod-2"]
    assert bench.cluster.owner == lab.uid
    assert {settings.type for settings in bench.opened_settings} == {"kubernetes"}
    assert {settings.kubernetes.kubeconfig for settings in bench.opened_settings} == {"/k"}
    assert "7 definitions of custom objects installed" in bench.progress.lines


def test_down_takes_its_own_from_servers_of_others_and_nothing_else(bench: LabHarness) -> None:
    theirs = IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name="theirs")
    deadline = Deadline.after(bench.clock, 1)
    bench.store.commit([Create(theirs.key, theirs)], deadline=deadline)
    up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    assert len(read_utilization(bench.store, deadline=deadline)) == 3
    assert down(bench.world(), bench.folder) == REMOVED
    assert [pool.name for pool in read_utilization(bench.store, deadline=deadline)] == ["theirs"]
    assert bench.cluster.objects == []
    assert "3 objects removed; the definitions stay, others may use them" in bench.progress.lines
    assert not Path(bench.folder.path).exists()


def test_down_forgets_nothing_while_the_servers_of_others_are_away(bench: LabHarness) -> None:
    lab = up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=ETCD))
    bench.is_store_unavailable = True
    label = f"projectnetplug.org/lab={lab.uid}"
    told = (
        f"what the lab has on its servers may still be there, with the label {label}: etcd: connection refused",
        f"{bench.folder.path} stays, so that lab down can go on when the servers answer; rm -r makes it forgotten",
    )
    for _ in range(2):
        assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.LOCAL_ONLY, problems=told)
        assert find_lab(bench.folder) == lab
        assert bench.namespaces.made == []
    bench.is_store_unavailable = False
    assert down(bench.world(), bench.folder) == REMOVED
    assert read_utilization(bench.store, deadline=Deadline.after(bench.clock, 1)) == ()
    assert not Path(bench.folder.path).exists()


def test_a_cluster_without_definitions_has_no_records_that_could_be_asked_for(bench: LabHarness) -> None:
    """As one has whose ``lab up`` was interrupted early, or whose definitions somebody removed meanwhile."""
    up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    bench.cluster.lacks_definitions = bench.is_store_unavailable = True
    assert down(bench.world(), bench.folder) == REMOVED
    assert bench.cluster.objects == []


def test_objects_go_though_the_records_cannot_be_had(bench: LabHarness) -> None:
    up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    bench.is_store_unavailable = True
    assert down(bench.world(), bench.folder).extent is RemovalExtent.LOCAL_ONLY
    assert bench.cluster.objects == []
    bench.is_store_unavailable = False
    assert down(bench.world(), bench.folder) == REMOVED


def test_up_forgets_no_earlier_lab_whose_servers_are_away(bench: LabHarness) -> None:
    earlier = up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    bench.cluster.is_unavailable = True
    with pytest.raises(LabError, match="the earlier lab has to go first; choose another folder with --dir to leave it"):
        made(bench)
    assert find_lab(bench.folder) == earlier
    assert "kubernetes API: connection refused" in bench.progress.warnings[0]
    bench.cluster.is_unavailable = False
    assert made(bench).pods


@pytest.mark.parametrize("store", [ETCD, CLUSTER])
def test_up_makes_nothing_while_the_servers_of_others_are_away(bench: LabHarness, store: ExternalServers) -> None:
    bench.is_store_unavailable = bench.cluster.is_unavailable = True
    with pytest.raises(Unavailable, match="connection refused"):
        up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=store))
    assert (bench.progress.lines, bench.progress.warnings) == ([], [])
    assert not Path(bench.folder.path).exists()


def test_an_earlier_lab_survives_an_up_on_servers_that_are_away(bench: LabHarness) -> None:
    earlier = made(bench)
    bench.is_store_unavailable = True
    with pytest.raises(Unavailable):
        up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=ETCD))
    assert find_lab(bench.folder) == earlier
    assert bench.namespaces.made == [bench.folder.netns(name) for name in ("node", "pod-1", "pod-2")]


def test_down_of_nothing(bench: LabHarness) -> None:
    assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.NOTHING)


def test_down_removes_the_empty_folder_of_an_up_that_died_at_once(bench: LabHarness) -> None:
    Path(bench.folder.path).mkdir()
    assert down(bench.world(), bench.folder) == REMOVED
    assert not Path(bench.folder.path).exists()


def test_down_of_a_record_alone(bench: LabHarness) -> None:
    """The record is written first, so it may be all there is."""
    Path(bench.folder.path).mkdir()
    with lock_folder(bench.folder, LockMode.EXCLUSIVE, clock=bench.clock, report=bench.progress.info) as held:
        assert held is not None
        held.write_lab(new_lab(LabPlan(name="lab", pod_count=3), uid="u"))
    assert down(bench.world(), bench.folder) == REMOVED
    assert bench.calls == []
    assert not Path(bench.folder.path).exists()


def test_down_detaches_a_pod_whose_add_was_never_heard_of_again(bench: LabHarness) -> None:
    """Its namespace is there and its result is not: the ADD may have done anything."""
    made(bench)
    record = Path(bench.folder.record_file)
    content = json.loads(record.read_text())
    content["isComplete"], content["pods"][1]["result"] = False, None
    record.write_text(json.dumps(content))
    assert down(bench.world(), bench.folder) == REMOVED
    line, request = bench.calls[-1]
    assert line.startswith("DEL pod-2 ")
    assert "prevResult" not in request


def test_down_after_the_namespaces_are_gone(bench: LabHarness) -> None:
    """As when the user namespace that they were made in has ended: only files are left."""
    made(bench)
    bench.namespaces.made.clear()
    assert down(bench.world(), bench.folder) == REMOVED
    assert not [line for line, _ in bench.calls if line.startswith("DEL")]
    assert not Path(bench.folder.path).exists()


def test_down_goes_on_when_a_plugin_fails(bench: LabHarness) -> None:
    bench.fails_at = "DEL pod-1"
    made(bench)
    removal = down(bench.world(), bench.folder)
    assert removal.problems == ("pod-1: DEL of plugin netplug failed: the store is away (code 11; try later)",)
    assert [line.split()[1] for line, _ in bench.calls if line.startswith("DEL")] == ["pod-1", "pod-2"]
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()


def test_down_says_what_the_plugins_left(bench: LabHarness) -> None:
    bench.namespaces.remaining_interfaces = ("netp0123",)
    made(bench)
    assert down(bench.world(), bench.folder).problems == ("interfaces left on the node: netp0123",)


def test_down_leaves_what_is_not_the_labs(bench: LabHarness) -> None:
    made(bench, 1)
    mine = Path(bench.folder.path) / "notes"
    mine.write_text("mine")
    told = f"{bench.folder.path} stays, as others use it: notes"
    assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.FOLDER_KEPT, problems=(told,))
    assert mine.read_text() == "mine"


def test_up_removes_an_earlier_lab_and_says_so(bench: LabHarness) -> None:
    made(bench, 3)
    bench.store = type(bench.store)(clock=bench.clock)  # it was a file in the folder
    lab = made(bench, 1)
    assert len(lab.pods) == 1
    assert "an earlier lab is there (complete): it goes first" in bench.progress.lines
    assert bench.namespaces.made == [bench.folder.netns(name) for name in ("node", "pod-1")]


def test_up_touches_no_folder_of_somebody_else(bench: LabHarness) -> None:
    mine = Path(bench.folder.path) / "notes"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(LabError, match="holds no lab but notes; choose another folder with --dir"):
        made(bench)
    with pytest.raises(LabError, match="holds no lab but notes"):
        down(bench.world(), bench.folder)
    assert mine.read_text() == "mine"


def test_up_that_fails_in_a_plugin_takes_down_what_it_made(bench: LabHarness) -> None:
    bench.fails_at = "ADD pod-2"
    with pytest.raises(PluginFailed, match=r"^pod-2: ADD of plugin netplug failed: the store is away \(code 11; try"):
        made(bench, 3)
    assert [line.split()[:2] for line, _ in bench.calls][2:] == [["DEL", "pod-1"], ["DEL", "pod-2"]]
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()
    assert bench.progress.warnings == ["the lab could not be made: removing what there is of it"]


@pytest.mark.parametrize("refused", ["node", "pod-1", "pod-2"])
def test_up_that_may_not_make_a_namespace_leaves_nothing(bench: LabHarness, refused: str) -> None:
    bench.namespaces.failing_suffix = refused
    with pytest.raises(KernelError):
        made(bench)
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()


def test_a_folder_that_cannot_be_made(bench: LabHarness) -> None:
    bench.home /= "missing"
    with pytest.raises(LabError, match="cannot be made: No such file or directory; choose a folder with --dir"):
        made(bench)


def test_an_error_of_the_file_system_is_a_sentence(bench: LabHarness) -> None:
    def install(bin_dir: str, _say: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", bin_dir)

    with pytest.raises(LabError, match=r"lab/bin: No space left on device$"):
        up(evolve(bench.world(), install=install), bench.folder, LabPlan(name="lab", pod_count=1))
    assert not Path(bench.folder.path).exists()


def test_another_command_is_waited_for_but_not_for_ever(bench: LabHarness) -> None:
    made(bench)
    with (
        lock_folder(bench.folder, LockMode.SHARED, clock=bench.clock, report=bench.progress.info),
        pytest.raises(LabError, match="another command has been at work there for 90 s"),
    ):
        down(bench.world(), bench.folder)
    assert [line for line in bench.progress.lines if "waiting" in line] == [
        f"another command is at work in {bench.folder.path}: waiting for it to end"
    ]


def test_several_may_look_at_once(bench: LabHarness) -> None:
    made(bench)
    with (
        lock_folder(bench.folder, LockMode.SHARED, clock=bench.clock, report=bench.progress.info) as first,
        lock_folder(bench.folder, LockMode.SHARED, clock=bench.clock, report=bench.progress.info) as second,
    ):
        assert first is not None
        assert second is not None


def test_what_is_missing_is_said(bench: LabHarness) -> None:
    lab = made(bench)
    bench.namespaces.made.clear()
    seen = inspect_lab(
        bench.world(), bench.folder, lab.with_pod(new_lab(LabPlan(name="lab", pod_count=2), uid="u").pods[1])
    )
    assert seen.missing == (
        "node: its namespace is gone",
        "pod-1: its namespace is gone",
        "pod-2: its namespace is gone",
        "pod-2: it was never attached",
    )
    assert not seen.is_healthy
