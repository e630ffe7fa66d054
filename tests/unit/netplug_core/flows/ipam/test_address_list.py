"""The list of addresses on every memory store: what is in it, and calls that run while it is read."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.flows.ipam.leaks import read_addresses
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPRESERVATION, IPReservation, IPReservationSpec, ippool_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.collector import CollectorHarness
from tests.harness.leaks import VERSION, make_harness, put_endpoint, put_pod, show_pods
from tests.harness.stores import HookedStore

UNALLOCATED = "it is not allocated, so another workload may get it from IPPool(four)"


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> CollectorHarness:
    return make_harness(request.param)


def problems(harness: CollectorHarness, *lost_handles: str) -> dict[str, tuple[str, ...]]:
    _, found = read_addresses(harness.store, version=VERSION, lost_handles=lost_handles, deadline=harness.deadline)
    return {str(each.address): each.problems for each in found}


def test_allocated_and_used_addresses_are_in_it(harness: CollectorHarness) -> None:
    harness.assign_to("10.0.0.9", "h-used")
    harness.assign_to("10.0.0.1", None)
    harness.assign_to("192.0.2.1", "h-far")
    put_endpoint(harness, "web", "10.0.0.9", "10.0.0.17", "198.51.100.1")
    put_endpoint(harness, "far", "192.0.2.1")
    assert problems(harness, "h-far") == {
        "10.0.0.1": ("no workload endpoint has it",),
        "10.0.0.9": (),
        "10.0.0.17": (UNALLOCATED,),
        "192.0.2.1": ("its handle is missing or damaged", "no IPPool contains it"),
    }


def test_reserved_addresses_are_not_missing_in_blocks(harness: CollectorHarness) -> None:
    put_endpoint(harness, "web", "10.0.0.9", "10.0.0.17")
    key = IPRESERVATION.key("kept")
    spec = IPReservationSpec(reserved=(Prefix.parse("10.0.0.16/28"),))
    harness.put(key, IPReservation(metadata=Metadata(name="kept"), spec=spec))
    assert problems(harness) == {"10.0.0.9": (UNALLOCATED,)}
    harness.store = DamagedDatastore(harness.store, damage={key: b"{}"})
    assert problems(harness) == {"10.0.0.9": (UNALLOCATED,), "10.0.0.17": (UNALLOCATED,)}


def test_pods_decide_where_they_are_shown(harness: CollectorHarness) -> None:
    show_pods(harness, "node-a")
    harness.assign_to_pod("10.0.0.1", "web")
    put_pod(harness, "web", "10.0.0.1")
    put_pod(harness, "written", podIPs="10.0.0.2/32")
    put_endpoint(harness, "old", "10.0.0.3")
    assert problems(harness) == {"10.0.0.1": (), "10.0.0.2": (UNALLOCATED,)}


def test_damage(harness: CollectorHarness) -> None:
    put_endpoint(harness, "web", "10.0.0.9")
    harness.assign_to("192.0.2.1", None)
    harness.assign_to("10.0.0.1", "h-one")
    inner = harness.store
    harness.store = DamagedDatastore(inner, damage={harness.key_of("10.0.0.1"): b"{}"})
    assert problems(harness) == {"192.0.2.1": ("no workload endpoint has it", "no IPPool contains it")}
    harness.store = DamagedDatastore(inner, damage={ippool_key("six"): b"{}"})
    assert problems(harness) == {
        "10.0.0.1": ("no workload endpoint has it",),
        "10.0.0.9": (UNALLOCATED,),
        "192.0.2.1": ("no workload endpoint has it",),
    }


def assign(harness: CollectorHarness) -> None:
    harness.assign_to("10.0.0.1", "h-web")


def attach(harness: CollectorHarness) -> None:
    put_endpoint(harness, "web", "10.0.0.1")


def detach(harness: CollectorHarness) -> None:
    """One commit, as on every store with endpoints of its own."""
    harness.release("10.0.0.1")
    harness.remove(WORKLOAD_ENDPOINT.key("default", "web"))


Step = Callable[[CollectorHarness], None]


def act_before_reads(harness: CollectorHarness, steps: Mapping[int, Sequence[Step]]) -> int:
    """Let others act before some reads of the list, counted from 1, while it is read; how many reads there are."""
    hooked = HookedStore(harness.inner)

    def act() -> None:
        for step in steps.get(len(hooked.reads), ()):
            step(harness)

    hooked.before_read = act
    harness.store = hooked
    found = problems(harness)
    assert UNALLOCATED not in {text for texts in found.values() for text in texts}
    return len(hooked.reads)


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_call_that_runs_while_it_is_read_is_no_problem(mode: MemoryMode) -> None:
    """An ADD with its two writes, and a DEL, before every read."""
    count = act_before_reads(make_harness(mode), {})
    assert count > 4
    for first in range(1, count + 1):
        for second in range(first, count + 1):
            steps: dict[int, list[Step]] = {first: [assign]}
            steps.setdefault(second, []).append(attach)
            act_before_reads(make_harness(mode), steps)
        harness = make_harness(mode)
        assign(harness)
        attach(harness)
        act_before_reads(harness, {first: [detach]})
