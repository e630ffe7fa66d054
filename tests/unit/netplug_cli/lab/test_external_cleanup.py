"""What a lab has on servers that it did not start: all of it is removed, whatever the plugins did, and nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.lab.model import ExternalServers, Lab, LabPlan, StoreKind
from netplug_cli.lab.setup import Removal, RemovalExtent, down, up
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.outcome import ResourceExists
from netplug_core.flows.resources.read import list_all
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.records import Create, Kind, List
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.kinds import get_kind
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.workload import WorkloadIdentity, endpoint_delete
from tests.harness.lab import LabHarness

CLUSTER = ExternalServers(kind=StoreKind.KUBERNETES, environment=(("KUBECONFIG", "/k"),), addresses=())
ETCD = ExternalServers(kind=StoreKind.ETCD, environment=(("ETCD_ENDPOINTS", "http://10.0.0.1:1"),), addresses=())
KINDS: Sequence[Kind[object]] = (IPPOOL, BLOCK, AFFINITY, HANDLE, WORKLOAD_ENDPOINT)


@pytest.fixture
def harness(tmp_path: Path) -> LabHarness:
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
    """As after a restart of the machine, or after they were unmounted: no plugin can be called any more."""
    harness.namespaces.made.clear()


def test_addresses_that_no_plugin_can_release_are_released(harness: LabHarness) -> None:
    made(harness)
    lose_namespaces(harness)
    assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.COMPLETE)
    assert list(stored(harness)) == []
    assert harness.progress.lines[-4:] == [
        "pod-1: released 10.98.0.64",
        "pod-2: released 10.98.0.65",
        "IPPool(lab-ipv4) deleted, no address of it is held",
        "IPPool(lab-ipv6) deleted, no address of it is held",
    ]


def test_so_are_those_of_plugins_that_failed_which_is_reported(harness: LabHarness) -> None:
    harness.fails_at = "DEL pod-1"
    made(harness)
    problem = "pod-1: DEL of plugin netplug failed: the store is away (code 11; try later)"
    assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.COMPLETE, problems=(problem,))
    assert list(stored(harness)) == []


def test_addresses_of_pools_of_others_are_released_and_the_claims_on_them_given_up(harness: LabHarness) -> None:
    theirs = IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name="a-theirs")
    harness.store.commit([Create(theirs.key, theirs)], deadline=Deadline.after(harness.clock, 1))
    lab = made(harness, count=1)
    lose_namespaces(harness)
    assert any("BlockAffinity(host/lab-node/ipv4/10.1." in key for key in stored(harness)), lab
    assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.COMPLETE)
    assert list(stored(harness)) == ["IPPool(a-theirs)"]


def test_addresses_of_its_pools_that_others_hold_stay_and_are_reported(harness: LabHarness) -> None:
    made(harness, count=1)
    (address,) = harness.attach(workload("web", node="other-node"))
    removal = down(harness.world(), harness.folder)
    told = "IPPool(lab-ipv4): addresses of it that are still held: 1; their workloads keep them"
    assert removal == Removal(extent=RemovalExtent.COMPLETE, problems=(told,))
    assert holders(harness) == {address: "lab.web"}
    assert "IPPool(lab-ipv4) deleted" in harness.progress.lines


def test_a_lab_that_was_refused_takes_nothing_from_the_one_that_is_up_there(
    harness: LabHarness, tmp_path: Path
) -> None:
    """They have the same name, and so have their pods."""
    made(harness)
    before = list(stored(harness))
    other = other_harness(harness, tmp_path / "elsewhere")
    with pytest.raises(ResourceExists):
        made(other)
    assert list(stored(harness)) == before
    assert not Path(other.folder.path).exists()


def delete_pools(harness: LabHarness) -> None:
    session = harness.world().session
    for record in list_all(harness.store, get_kind("IPPool"), deadline=session.deadline()):
        delete(harness.store, record.key, pace=session.pace())


def test_a_pool_that_was_deleted_by_hand_hides_no_address(harness: LabHarness) -> None:
    made(harness, count=1)
    delete_pools(harness)
    lose_namespaces(harness)
    assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.COMPLETE)
    assert list(stored(harness)) == []


def other_harness(harness: LabHarness, folder: Path) -> LabHarness:
    """The harness of another user's lab on the same servers: all names are the same."""
    folder.mkdir()
    other = LabHarness(folder, uid="00000000-0000-4000-8000-000000000002")
    other.store = harness.store
    return other


@pytest.mark.parametrize("loss", ["deleted by hand", "a server that came back empty"])
def test_a_lab_that_lost_its_pools_takes_nothing_from_another_that_is_up_there_now(
    harness: LabHarness, tmp_path: Path, loss: str
) -> None:
    made(harness)
    harness.is_store_unavailable = True
    assert down(harness.world(), harness.folder).extent is RemovalExtent.LOCAL_ONLY
    harness.is_store_unavailable = False
    if loss != "deleted by hand":
        harness.store = MemoryDatastore(clock=harness.clock)
    else:
        delete_pools(harness)
        with harness.open_ipam(harness.store) as ipam:
            for pod in ("pod-1", "pod-2"):
                request = ReleaseRequest(handle=workload(pod).handle)
                ipam.release(request, endpoint_delete(workload(pod)), deadline=Deadline.after(harness.clock, 1))
    other = other_harness(harness, tmp_path / "elsewhere")
    made(other)
    before = list(stored(other))
    told = "another lab is up there: what pods of this one may still hold is not given back"
    assert down(harness.world(), harness.folder) == Removal(extent=RemovalExtent.COMPLETE, problems=(told,))
    assert list(stored(other)) == before
    assert len(holders(other)) == 2


def test_addresses_that_others_hold_are_reported_also_where_the_rest_fails(harness: LabHarness) -> None:
    up(harness.world(), harness.folder, LabPlan(name="lab", pod_count=1, store=CLUSTER))
    harness.attach(workload("web", node="other-node"))
    harness.cluster.fails_to_remove = True
    removal = down(harness.world(), harness.folder)
    assert removal.extent is RemovalExtent.LOCAL_ONLY
    assert removal.problems[0] == "IPPool(lab-ipv4): addresses of it that are still held: 1; their workloads keep them"
    assert "the namespace does not go" in removal.problems[1]


def holders(harness: LabHarness) -> dict[Address, str | None]:
    query = List(BLOCK)
    blocks = harness.store.read([query], deadline=Deadline.after(harness.clock, 1)).list(query)
    return {held.address: held.attribute.handle for record in blocks for held in record.value.held()}
