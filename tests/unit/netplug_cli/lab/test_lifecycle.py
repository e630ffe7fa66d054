"""``up`` and ``down`` over namespaces in memory: the order of things, and what is left when one of them fails."""

import errno
import json
from pathlib import Path

import pytest
from attrs import evolve

from netplug_cli.lab.folder import Hold, claimed, find_lab
from netplug_cli.lab.inspection import look
from netplug_cli.lab.lifecycle import Extent, Removal, down, up
from netplug_cli.lab.model import NODE_ADDRESSES, POOLS, Lab, LabError, Plan, planned
from netplug_cli.lab.runtime import PluginFailed
from netplug_cli.lab.stores import RunningServers, StoreKind
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.flows.overview import read_utilization
from netplug_core.records import Create
from netplug_core.resources.ippool import IPPool
from tests.unit.netplug_cli.lab.bench import ANSWER, Bench, KernelGone

REMOVED = Removal(extent=Extent.EVERYTHING)
ETCD = RunningServers(kind=StoreKind.ETCD, variables=(("ETCD_ENDPOINTS", "http://10.0.0.1:1"),), places=())
CLUSTER = RunningServers(kind=StoreKind.KUBERNETES, variables=(("KUBECONFIG", "/k"),), places=())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def made(bench: Bench, count: int = 2) -> Lab:
    return up(bench.means(), bench.folder, Plan(name="lab", pod_count=count))


def test_everything_of_a_lab_is_in_its_folder(bench: Bench) -> None:
    lab = made(bench)
    assert [pod.name for pod in lab.pods] == ["pod-1", "pod-2"]
    assert lab.is_complete
    assert find_lab(bench.folder) == lab
    assert [str(address) for address in lab.pods[0].addresses] == ["10.98.0.1", "fd98::1"]
    assert lab.pods[0].host_interface == "netp0123"
    assert sorted(path.name for path in (bench.home).iterdir()) == ["calls", "lab"]
    assert bench.namespaces.made == [bench.folder.netns(name) for name in ("node", "pod-1", "pod-2")]
    assert bench.namespaces.forwarding == {bench.folder.netns("node"): NODE_ADDRESSES}


def test_the_pools_are_created_as_netplugctl_creates_them(bench: Bench) -> None:
    made(bench)
    usage = read_utilization(bench.store, deadline=Deadline.after(bench.clock, 1))
    assert [(pool.name, pool.prefix, pool.pool and pool.pool.spec.block_length) for pool in usage] == [
        (pool.name, pool.prefix, pool.block_length) for pool in POOLS
    ]
    assert (bench.opened[0].type, bench.opened[0].sqlite_path) == ("sqlite", bench.folder.store_file)
    assert Path(bench.folder.pools_file).read_text().count("kind: IPPool") == len(POOLS)


def test_a_plugin_is_told_what_a_runtime_tells_it(bench: Bench) -> None:
    made(bench, 1)
    ((line, request),) = bench.calls
    folder = bench.folder
    arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME=pod-1;K8S_POD_INFRA_CONTAINER_ID=pod-1"
    assert line == f"ADD pod-1 {folder.netns('pod-1')} eth0 {arguments} {folder.bin_dir}"
    assert request["name"] == "lab"
    assert request["cniVersion"] == "1.0.0"
    assert "prevResult" not in request
    assert bench.namespaces.entered == [folder.netns("node")]


def test_down_hands_over_the_result_and_leaves_nothing(bench: Bench) -> None:
    made(bench)
    assert down(bench.means(), bench.folder) == REMOVED
    commands = [line.split()[:2] for line, _ in bench.calls]
    assert commands == [["ADD", "pod-1"], ["ADD", "pod-2"], ["DEL", "pod-1"], ["DEL", "pod-2"]]
    assert bench.calls[-1][1]["prevResult"] == ANSWER
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()
    assert "no address is held, no interface is left on the node" in bench.spoken.lines


def test_on_kubernetes_node_namespace_and_pods_are_objects_before_a_plugin_is_called(bench: Bench) -> None:
    lab = up(bench.means(), bench.folder, Plan(name="lab", pod_count=2, store=CLUSTER))
    assert bench.cluster.objects == ["lab-node", "lab", "lab/pod-1", "lab/pod-2"]
    assert bench.cluster.owner == lab.uid
    assert {settings.type for settings in bench.opened} == {"kubernetes"}
    assert {settings.kubernetes.kubeconfig for settings in bench.opened} == {"/k"}
    assert "7 definitions of custom objects installed" in bench.spoken.lines


def test_down_takes_its_own_from_servers_of_others_and_nothing_else(bench: Bench) -> None:
    theirs = IPPool.over(Prefix.parse("10.1.0.0/16"), name="theirs")
    deadline = Deadline.after(bench.clock, 1)
    bench.store.commit([Create(theirs.key, theirs)], deadline=deadline)
    up(bench.means(), bench.folder, Plan(name="lab", pod_count=1, store=CLUSTER))
    assert len(read_utilization(bench.store, deadline=deadline)) == 3
    assert down(bench.means(), bench.folder) == REMOVED
    assert [pool.name for pool in read_utilization(bench.store, deadline=deadline)] == ["theirs"]
    assert bench.cluster.objects == []
    assert "3 objects removed; the definitions stay, others may use them" in bench.spoken.lines
    assert not Path(bench.folder.path).exists()


def test_down_forgets_nothing_while_the_servers_of_others_are_away(bench: Bench) -> None:
    lab = up(bench.means(), bench.folder, Plan(name="lab", pod_count=1, store=ETCD))
    bench.store_is_away = True
    label = f"projectnetplug.org/lab={lab.uid}"
    told = (
        f"what the lab has on its servers may still be there, with the label {label}: etcd: connection refused",
        f"{bench.folder.path} stays, so that lab down can go on when the servers answer; rm -r makes it forgotten",
    )
    for _ in range(2):
        assert down(bench.means(), bench.folder) == Removal(extent=Extent.HERE, problems=told)
        assert find_lab(bench.folder) == lab
        assert bench.namespaces.made == []
    bench.store_is_away = False
    assert down(bench.means(), bench.folder) == REMOVED
    assert read_utilization(bench.store, deadline=Deadline.after(bench.clock, 1)) == ()
    assert not Path(bench.folder.path).exists()


def test_a_cluster_without_definitions_has_no_records_that_could_be_asked_for(bench: Bench) -> None:
    """As one has whose ``lab up`` was interrupted early, or whose definitions somebody removed meanwhile."""
    up(bench.means(), bench.folder, Plan(name="lab", pod_count=1, store=CLUSTER))
    bench.cluster.is_bare = bench.store_is_away = True
    assert down(bench.means(), bench.folder) == REMOVED
    assert bench.cluster.objects == []


def test_objects_go_though_the_records_cannot_be_had(bench: Bench) -> None:
    up(bench.means(), bench.folder, Plan(name="lab", pod_count=1, store=CLUSTER))
    bench.store_is_away = True
    assert down(bench.means(), bench.folder).extent is Extent.HERE
    assert bench.cluster.objects == []
    bench.store_is_away = False
    assert down(bench.means(), bench.folder) == REMOVED


def test_up_forgets_no_earlier_lab_whose_servers_are_away(bench: Bench) -> None:
    earlier = up(bench.means(), bench.folder, Plan(name="lab", pod_count=1, store=CLUSTER))
    bench.cluster.is_away = True
    with pytest.raises(LabError, match="the earlier lab has to go first; choose another folder with --dir to leave it"):
        made(bench)
    assert find_lab(bench.folder) == earlier
    assert "kubernetes API: connection refused" in bench.spoken.warnings[0]
    bench.cluster.is_away = False
    assert made(bench).pods


@pytest.mark.parametrize("store", [ETCD, CLUSTER])
def test_up_makes_nothing_while_the_servers_of_others_are_away(bench: Bench, store: RunningServers) -> None:
    bench.store_is_away = bench.cluster.is_away = True
    with pytest.raises(Unavailable, match="connection refused"):
        up(bench.means(), bench.folder, Plan(name="lab", pod_count=1, store=store))
    assert (bench.spoken.lines, bench.spoken.warnings) == ([], [])
    assert not Path(bench.folder.path).exists()


def test_an_earlier_lab_survives_an_up_on_servers_that_are_away(bench: Bench) -> None:
    earlier = made(bench)
    bench.store_is_away = True
    with pytest.raises(Unavailable):
        up(bench.means(), bench.folder, Plan(name="lab", pod_count=1, store=ETCD))
    assert find_lab(bench.folder) == earlier
    assert bench.namespaces.made == [bench.folder.netns(name) for name in ("node", "pod-1", "pod-2")]


def test_down_of_nothing(bench: Bench) -> None:
    assert down(bench.means(), bench.folder) == Removal(extent=Extent.NOTHING)


def test_down_removes_the_empty_folder_of_an_up_that_died_at_once(bench: Bench) -> None:
    Path(bench.folder.path).mkdir()
    assert down(bench.means(), bench.folder) == REMOVED
    assert not Path(bench.folder.path).exists()


def test_down_of_a_record_alone(bench: Bench) -> None:
    """The record is written first, so it may be all there is."""
    Path(bench.folder.path).mkdir()
    with claimed(bench.folder, Hold.ALONE, clock=bench.clock, say=bench.spoken.say) as held:
        assert held is not None
        held.write_lab(planned(Plan(name="lab", pod_count=3), uid="u"))
    assert down(bench.means(), bench.folder) == REMOVED
    assert bench.calls == []
    assert not Path(bench.folder.path).exists()


def test_down_detaches_a_pod_whose_add_was_never_heard_of_again(bench: Bench) -> None:
    """Its namespace is there and its result is not: the ADD may have done anything."""
    made(bench)
    record = Path(bench.folder.record_file)
    content = json.loads(record.read_text())
    content["isComplete"], content["pods"][1]["result"] = False, None
    record.write_text(json.dumps(content))
    assert down(bench.means(), bench.folder) == REMOVED
    line, request = bench.calls[-1]
    assert line.startswith("DEL pod-2 ")
    assert "prevResult" not in request


def test_down_after_the_namespaces_are_gone(bench: Bench) -> None:
    """As when the user namespace that they were made in has ended: only files are left."""
    made(bench)
    bench.namespaces.made.clear()
    assert down(bench.means(), bench.folder) == REMOVED
    assert not [line for line, _ in bench.calls if line.startswith("DEL")]
    assert not Path(bench.folder.path).exists()


def test_down_goes_on_when_a_plugin_fails(bench: Bench) -> None:
    bench.fails_at = "DEL pod-1"
    made(bench)
    removal = down(bench.means(), bench.folder)
    assert removal.problems == ("pod-1: DEL of plugin netplug failed: the store is away (code 11; try later)",)
    assert [line.split()[1] for line, _ in bench.calls if line.startswith("DEL")] == ["pod-1", "pod-2"]
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()


def test_down_says_what_the_plugins_left(bench: Bench) -> None:
    bench.namespaces.left = ("netp0123",)
    made(bench)
    assert down(bench.means(), bench.folder).problems == ("interfaces left on the node: netp0123",)


def test_down_leaves_what_is_not_the_labs(bench: Bench) -> None:
    made(bench, 1)
    mine = Path(bench.folder.path) / "notes"
    mine.write_text("mine")
    told = f"{bench.folder.path} stays, as others use it: notes"
    assert down(bench.means(), bench.folder) == Removal(extent=Extent.CONTENT, problems=(told,))
    assert mine.read_text() == "mine"


def test_up_removes_an_earlier_lab_and_says_so(bench: Bench) -> None:
    made(bench, 3)
    bench.store = type(bench.store)(clock=bench.clock)  # it was a file in the folder
    lab = made(bench, 1)
    assert len(lab.pods) == 1
    assert "an earlier lab is there (complete): it goes first" in bench.spoken.lines
    assert bench.namespaces.made == [bench.folder.netns(name) for name in ("node", "pod-1")]


def test_up_touches_no_folder_of_somebody_else(bench: Bench) -> None:
    mine = Path(bench.folder.path) / "notes"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(LabError, match="holds no lab but notes; choose another folder with --dir"):
        made(bench)
    with pytest.raises(LabError, match="holds no lab but notes"):
        down(bench.means(), bench.folder)
    assert mine.read_text() == "mine"


def test_up_that_fails_in_a_plugin_takes_down_what_it_made(bench: Bench) -> None:
    bench.fails_at = "ADD pod-2"
    with pytest.raises(PluginFailed, match=r"^pod-2: ADD of plugin netplug failed: the store is away \(code 11; try"):
        made(bench, 3)
    assert [line.split()[:2] for line, _ in bench.calls][2:] == [["DEL", "pod-1"], ["DEL", "pod-2"]]
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()
    assert bench.spoken.warnings == ["the lab could not be made: removing what there is of it"]


@pytest.mark.parametrize("refused", ["node", "pod-1", "pod-2"])
def test_up_that_may_not_make_a_namespace_leaves_nothing(bench: Bench, refused: str) -> None:
    bench.namespaces.refuses = refused
    with pytest.raises(KernelGone):
        made(bench)
    assert bench.namespaces.made == []
    assert not Path(bench.folder.path).exists()


def test_a_folder_that_cannot_be_made(bench: Bench) -> None:
    bench.home /= "missing"
    with pytest.raises(LabError, match="cannot be made: No such file or directory; choose a folder with --dir"):
        made(bench)


def test_an_error_of_the_file_system_is_a_sentence(bench: Bench) -> None:
    def install(bin_dir: str, _say: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", bin_dir)

    with pytest.raises(LabError, match=r"lab/bin: No space left on device$"):
        up(evolve(bench.means(), install=install), bench.folder, Plan(name="lab", pod_count=1))
    assert not Path(bench.folder.path).exists()


def test_another_command_is_waited_for_but_not_for_ever(bench: Bench) -> None:
    made(bench)
    with (
        claimed(bench.folder, Hold.SHARED, clock=bench.clock, say=bench.spoken.say),
        pytest.raises(LabError, match="another command has been at work there for 90 s"),
    ):
        down(bench.means(), bench.folder)
    assert [line for line in bench.spoken.lines if "waiting" in line] == [
        f"another command is at work in {bench.folder.path}: waiting for it to end"
    ]


def test_several_may_look_at_once(bench: Bench) -> None:
    made(bench)
    with (
        claimed(bench.folder, Hold.SHARED, clock=bench.clock, say=bench.spoken.say) as first,
        claimed(bench.folder, Hold.SHARED, clock=bench.clock, say=bench.spoken.say) as second,
    ):
        assert first is not None
        assert second is not None


def test_what_is_missing_is_said(bench: Bench) -> None:
    lab = made(bench)
    bench.namespaces.made.clear()
    seen = look(bench.means(), bench.folder, lab.with_pod(planned(Plan(name="lab", pod_count=2), uid="u").pods[1]))
    assert seen.missing == (
        "node: its namespace is gone",
        "pod-1: its namespace is gone",
        "pod-2: its namespace is gone",
        "pod-2: it was never attached",
    )
    assert not seen.is_well
