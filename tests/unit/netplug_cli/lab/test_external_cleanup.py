"""What a lab has on somebody else's servers: all of it is taken back, whatever the plugins did, and nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.lab.model import Lab, LabPlan
from netplug_cli.lab.setup import up
from netplug_cli.lab.stores import ExternalServers, StoreKind
from netplug_cli.lab.teardown import Removal, RemovalExtent, down
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.outcome import ResourceExists
from netplug_core.flows.resources.read import list_all
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.model.affinity import AFFINITY
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.records import Create, Kind, List
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.kinds import get_kind
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.workload.endpoint import endpoint_delete
from netplug_core.workload.identity import WorkloadIdentity
from tests.harness.lab import LabHarness

CLUSTER = ExternalServers(kind=StoreKind.KUBERNETES, environment=(("KUBECONFIG", "/k"),), addresses=())
ETCD = ExternalServers(kind=StoreKind.ETCD, environment=(("ETCD_ENDPOINTS", "http://10.0.0.1:1"),), addresses=())
KINDS: Sequence[Kind[object]] = (IPPOOL, BLOCK, AFFINITY, HANDLE, WORKLOAD_ENDPOINT)


@pytest.fixture
def bench(tmp_path: Path) -> LabHarness:
    return LabHarness(tmp_path)


def made(harness: LabHarness, *, name: str = "lab", count: int = 2) -> Lab:
    """A lab on etcd, whose pods hold an address each: its plugins are scripts, so DEL releases nothing."""
    lab = up(harness.world(), harness.folder, LabPlan(name=name, pod_count=count, store=ETCD))
    for pod in lab.pods:
        harness.attach(workload(pod.name))
    return lab


def workload(pod: str, *, node: str = "lab-node") -> WorkloadIdentity:
    return WorkloadIdentity(node=node, network="lab", container_id=pod, interface="eth0", pod=pod, pod_namespace="lab")


def stored(harness: LabHarness) -> Iterator[str]:
    """The keys of everything that is stored."""
    queries = [List(kind) for kind in KINDS]
    snapshot = harness.store.read(queries, deadline=Deadline.after(harness.clock, 1))
    return (str(record.key) for query in queries for record in snapshot.list(query))


def lose_namespaces(harness: LabHarness) -> None:
    """As after a restart of the machine, or when somebody unmounts them: no plugin can be called any more."""
    harness.namespaces.made.clear()


def test_addresses_that_no_plugin_can_release_are_released(bench: LabHarness) -> None:
    made(bench)
    lose_namespaces(bench)
    assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.COMPLETE)
    assert list(stored(bench)) == []
    assert bench.progress.lines[-4:] == [
        "pod-1: released 10.98.0.64",
        "pod-2: released 10.98.0.65",
        "IPPool(lab-ipv4) deleted, no address of it is held",
        "IPPool(lab-ipv6) deleted, no address of it is held",
    ]


def test_so_are_those_of_plugins_that_failed_which_is_told(bench: LabHarness) -> None:
    bench.fails_at = "DEL pod-1"
    made(bench)
    problem = "pod-1: DEL of plugin netplug failed: the store is away (code 11; try later)"
    assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.COMPLETE, problems=(problem,))
    assert list(stored(bench)) == []


def test_addresses_of_pools_of_others_are_released_and_the_claims_on_them_given_up(bench: LabHarness) -> None:
    theirs = IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name="a-theirs")
    bench.store.commit([Create(theirs.key, theirs)], deadline=Deadline.after(bench.clock, 1))
    lab = made(bench, count=1)
    lose_namespaces(bench)
    assert any("BlockAffinity(host/lab-node/ipv4/10.1." in key for key in stored(bench)), lab
    assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.COMPLETE)
    assert list(stored(bench)) == ["IPPool(a-theirs)"]


def test_addresses_of_its_pools_that_others_hold_stay_theirs_and_are_told(bench: LabHarness) -> None:
    made(bench, count=1)
    (address,) = bench.attach(workload("web", node="other-node"))
    removal = down(bench.world(), bench.folder)
    told = "IPPool(lab-ipv4): addresses of it that are still held: 1; their workloads keep them"
    assert removal == Removal(extent=RemovalExtent.COMPLETE, problems=(told,))
    assert holders(bench) == {address: "lab.web"}
    assert "IPPool(lab-ipv4) deleted" in bench.progress.lines


def test_a_lab_that_was_refused_takes_nothing_from_the_one_that_is_up_there(bench: LabHarness, tmp_path: Path) -> None:
    """They have the same name, and so have their pods."""
    made(bench)
    before = list(stored(bench))
    other = other_bench(bench, tmp_path / "elsewhere")
    with pytest.raises(ResourceExists):
        made(other)
    assert list(stored(bench)) == before
    assert not Path(other.folder.path).exists()


def delete_pools(harness: LabHarness) -> None:
    session = harness.world().session
    for record in list_all(harness.store, get_kind("IPPool"), deadline=session.deadline()):
        delete(harness.store, record.key, pace=session.pace())


def test_a_pool_that_somebody_deleted_by_hand_hides_no_address(bench: LabHarness) -> None:
    made(bench, count=1)
    delete_pools(bench)
    lose_namespaces(bench)
    assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.COMPLETE)
    assert list(stored(bench)) == []


def other_bench(harness: LabHarness, folder: Path) -> LabHarness:
    """Somebody else's, on the same servers: all names are the same."""
    folder.mkdir()
    other = LabHarness(folder, uid="00000000-0000-4000-8000-000000000002")
    other.store = harness.store
    return other


@pytest.mark.parametrize("loss", ["deleted by hand", "a server that came back empty"])
def test_a_lab_that_lost_its_pools_takes_nothing_from_another_that_is_up_there_now(
    bench: LabHarness, tmp_path: Path, loss: str
) -> None:
    made(bench)
    bench.is_store_unavailable = True
    assert down(bench.world(), bench.folder).extent is RemovalExtent.LOCAL_ONLY
    bench.is_store_unavailable = False
    if loss != "deleted by hand":
        bench.store = MemoryDatastore(clock=bench.clock)
    else:
        delete_pools(bench)
        with bench.open_ipam(bench.store) as ipam:
            for pod in ("pod-1", "pod-2"):
                request = ReleaseRequest(handle=workload(pod).handle)
                ipam.release(request, endpoint_delete(workload(pod)), deadline=Deadline.after(bench.clock, 1))
    other = other_bench(bench, tmp_path / "elsewhere")
    made(other)
    before = list(stored(other))
    told = "another lab is up there: what pods of this one may still hold is not given back"
    assert down(bench.world(), bench.folder) == Removal(extent=RemovalExtent.COMPLETE, problems=(told,))
    assert list(stored(other)) == before
    assert len(holders(other)) == 2


def test_what_others_hold_is_told_also_where_the_rest_fails(bench: LabHarness) -> None:
    up(bench.world(), bench.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    bench.attach(workload("web", node="other-node"))
    bench.cluster.fails_to_remove = True
    removal = down(bench.world(), bench.folder)
    assert removal.extent is RemovalExtent.LOCAL_ONLY
    assert removal.problems[0] == "IPPool(lab-ipv4): addresses of it that are still held: 1; their workloads keep them"
    assert "the namespace does not go" in removal.problems[1]


def holders(harness: LabHarness) -> dict[Address, str | None]:
    query = List(BLOCK)
    blocks = harness.store.read([query], deadline=Deadline.after(harness.clock, 1)).list(query)
    return {held.address: held.attribute.handle for record in blocks for held in record.value.held()}
