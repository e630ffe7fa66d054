"""The report on every memory store: what is in it, what comes while it is read, and what cannot be read."""

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.ipam.model import Handle, handle_key
from netplug_core.ipam.reporting.usage import ReportHeader, UseState
from netplug_core.records import Malformed
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.collector import CollectorHarness, leave_handle
from tests.harness.leaks import (
    GUID,
    VERSION,
    make_harness,
    put_endpoint,
    put_pod,
    read_leaks,
    read_report,
    set_cluster,
    show_pods,
)
from tests.harness.stores import HookedStore


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> CollectorHarness:
    return make_harness(request.param)


def states(harness: CollectorHarness) -> dict[str, UseState]:
    return {str(each.allocation.address): each.use.state for each in read_report(harness).allocations}


def test_everything_that_is_assigned_is_in_it_by_address(harness: CollectorHarness) -> None:
    harness.assign_to("fd00::1", "h-six")
    harness.assign_to("10.0.0.9", "h-used")
    harness.assign_to("10.0.0.1", None)
    put_endpoint(harness, "web", "10.0.0.9")
    leave_handle(harness)
    report = read_report(harness)
    assert states(harness) == {
        "10.0.0.1": UseState.LEAKED,
        "10.0.0.9": UseState.USED,
        "fd00::1": UseState.LEAKED,
    }
    assert list(states(harness)) == ["10.0.0.1", "10.0.0.9", "fd00::1"]
    assert [handle.id for handle in report.leaked_handles] == ["h-left"]
    assert report.handles == 3
    stored = harness.find_record(handle_key("h-left"))
    assert stored is not None
    (leaked,) = report.leaked_handles
    assert leaked.revision == stored.revision
    assert leaked.uid == stored.revision.rpartition("/")[0]


def test_the_header_is_of_the_cluster(harness: CollectorHarness) -> None:
    stored = harness.find_record(CLUSTER_INFORMATION_KEY)
    assert stored is not None
    expected = ReportHeader(
        version=VERSION, cluster_guid=GUID, is_locked=True, revision=stored.revision, cluster_type="k8s"
    )
    assert read_report(harness).header == expected
    set_cluster(harness, is_locked=False)
    after = read_report(harness).header
    assert (after.is_locked, after.revision != expected.revision) == (False, True)
    harness.remove(CLUSTER_INFORMATION_KEY)
    assert read_report(harness).header == ReportHeader(
        version=VERSION, cluster_guid="", is_locked=False, revision="", cluster_type=""
    )


def test_pods_decide_where_they_are_shown(harness: CollectorHarness) -> None:
    show_pods(harness, "node-a")
    for number, pod in enumerate(("gone", "there", "starting", "written", "other"), 1):
        harness.assign_to_pod(f"10.0.0.{number}", pod)
    put_pod(harness, "there", "10.0.0.2")
    put_pod(harness, "starting")
    put_pod(harness, "written", "10.0.0.77", podIPs="10.0.0.4/32, nonsense,fd00::4/128")  # its sandbox was made again
    put_pod(harness, "other", "10.0.0.78", podIP="")
    harness.assign_to("10.0.0.6", "vxlan-tunnel-addr-node-b", node="node-b", type="vxlanTunnelAddress")
    harness.assign_to("10.0.0.7", "vxlan-tunnel-addr-node-a", node="node-a", type="vxlanTunnelAddress")
    leaked = {address for address, state in states(harness).items() if state is UseState.LEAKED}
    assert leaked == {"10.0.0.1", "10.0.0.5", "10.0.0.6"}
    assert set(states(harness).values()) == {UseState.LEAKED, UseState.USED}


def test_what_comes_while_it_is_read_is_not_leaked(harness: CollectorHarness) -> None:
    """An ADD between two of its writes, after the first look at the blocks: its handle, or its address too."""
    harness.assign_to("10.0.0.1", "h-old")
    hooked = HookedStore(harness.inner)
    is_done = False

    def act() -> None:
        nonlocal is_done
        if not is_done and hooked.reads[-1][0].kind == WORKLOAD_ENDPOINT:
            is_done = True
            harness.put(handle_key("h-new"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
            harness.assign_to("10.0.0.2", "h-next")

    hooked.before_read = act
    harness.store = hooked
    report = read_report(harness)
    uses = {str(each.allocation.address): each.use for each in report.allocations}
    assert uses["10.0.0.1"].state is UseState.LEAKED
    assert (uses["10.0.0.2"].state, uses["10.0.0.2"].text) == (
        UseState.UNDETERMINED,
        "it was assigned while the report was read",
    )
    assert report.leaked_handles == ()
    leaks = read_leaks(harness)
    assert {str(ref.address) for ref in leaks.addresses} == {"10.0.0.1", "10.0.0.2"}
    assert {handle.id for handle in leaks.handles} == {"h-new"}


def test_damage(harness: CollectorHarness) -> None:
    """The addresses of a damaged block are not known: no handle is called leaked. A damaged endpoint may use any."""
    harness.assign_to("10.0.0.1", "h-one")
    harness.assign_to("10.0.0.5", "h-two")
    put_endpoint(harness, "web", "10.0.0.5")
    inner = harness.store
    harness.store = DamagedDatastore(inner, damage={harness.key_of("10.0.0.1"): b"{}"})
    report = read_report(harness)
    assert [str(each.allocation.address) for each in report.allocations] == ["10.0.0.5"]
    assert (report.leaked_handles, report.handles) == ((), 2)
    harness.store = DamagedDatastore(inner, damage={WORKLOAD_ENDPOINT.key("default", "web"): b"{}"})
    with pytest.raises(Malformed, match=r"WorkloadEndpoint\(default/web\)"):
        read_report(harness)
