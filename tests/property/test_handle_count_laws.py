"""Handles count exactly what they hold, however often their assignment is tried.

Laws, in every mode of the memory store, with and without a cache, alone or in a batch:

- Whatever commits of an assignment lose a race or the reply, at whatever write and to whom: when it is answered,
  with addresses or with a refusal, every handle counts exactly what it holds.
- After a crash a handle counts at least what it holds, and the next assignment under it makes its counts exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from attrs import Factory, define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.datastore.batch import RequestQueue
from netplug_core.errors import AllocationError
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Automatic, Shortfall
from netplug_core.testing.faults import (
    Fault,
    FaultyDatastore,
    LostRace,
    LostReply,
    ProcessDeath,
    ProcessDied,
    RunBefore,
)
from tests.harness.allocator.invariants import STATE_INVARIANTS, handle_counts_are_exact
from tests.harness.allocator.operations import endpoint_part
from tests.harness.allocator.state import StoredState, read_state
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request

FAULTED_COMMITS = 6
WRITES = st.integers(0, 14)


@define
class Cluster:
    """Two nodes, two small pools, and what other processes do between the attempts of an assignment."""

    mode: MemoryMode
    harness: IPAMHarness = field(default=Factory(lambda self: IPAMHarness.new(self.mode), takes_self=True))
    pods: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.harness.add_pool("four", "10.0.0.0/28", 30)
        self.harness.add_pool("six", "fd00::/124", 126)

    def add_pod(self, *wanted: Automatic, node: str = NODE) -> None:
        """An ADD for another pod; it may get less than it wants."""
        self.pods.append(f"pod-{len(self.pods)}")
        self.harness.assign_up_to(self.pods[-1], *wanted, node=node)

    def delete_pod(self) -> None:
        if self.pods:
            self.harness.release(self.pods.pop())

    def call_again(self) -> None:
        """The runtime calls ADD for the same container once more, while the first call is at work."""
        self.harness.assign_up_to("h", ipv4(2), ipv6(1))

    def delete(self) -> None:
        self.harness.release("h")

    def ipam(self, script: Mapping[int, Fault], *, is_resident: bool) -> BlockIPAM:
        """The allocator whose commits suffer these faults; a resident one has a cache and a queue."""
        store = FaultyDatastore(self.harness.store, script)
        if not is_resident:
            return evolve(self.harness.ipam(), datastore=store)
        cache = make_node_cache(store, clock=self.harness.clock)
        queue = RequestQueue(store=store, cache=cache)
        return evolve(self.harness.ipam(), datastore=store, cache=cache, queue=queue)

    def assign(self, ipam: BlockIPAM, request: AssignRequest) -> Assignment | AllocationError:
        try:
            return ipam.assign(request, endpoint_part(request.handle, NODE), deadline=self.harness.deadline)
        except AllocationError as error:
            return error

    def state(self) -> StoredState:
        return read_state(self.harness.store, self.harness.deadline)


RIVALS: Mapping[str, Callable[[Cluster], None]] = {
    "a pod of the node": lambda cluster: cluster.add_pod(ipv4(), ipv6()),
    "a pod that fills a block": lambda cluster: cluster.add_pod(ipv4(3), ipv6(3)),
    "a pod of another node": lambda cluster: cluster.add_pod(ipv4(), ipv6(), node=OTHER_NODE),
    "the end of a pod": Cluster.delete_pod,
    "the same ADD": Cluster.call_again,
    "its DEL": Cluster.delete,
}
RACES = st.one_of(st.none(), st.sampled_from(sorted(RIVALS)), st.builds(LostRace, WRITES), st.builds(LostReply, WRITES))
REQUESTS = st.builds(
    lambda wanted, shortfall: evolve(make_request("h", *wanted), shortfall=shortfall),
    st.sampled_from([(ipv4(),), (ipv4(), ipv6()), (ipv4(3), ipv6(2)), (ipv4(9), ipv6(1)), (ipv4(15), ipv6(15))]),
    st.sampled_from(Shortfall),
)


def make_script(cluster: Cluster, drawn: list[str | LostRace | LostReply | None]) -> dict[int, Fault]:
    """What happens to the first commits; an atomic store applies a commit whole or not at all."""
    script: dict[int, Fault] = {}
    for number, fault in enumerate(drawn, start=1):
        if isinstance(fault, str):
            rival = RIVALS[fault]
            script[number] = RunBefore(lambda rival=rival: rival(cluster))  # type: ignore[misc] # bound in the loop
        elif fault is not None:
            is_atomic = cluster.mode is MemoryMode.ATOMIC
            script[number] = type(fault)(0) if is_atomic else fault
    return script


@pytest.mark.parametrize("is_resident", [False, True], ids=["standalone", "resident"])
@pytest.mark.parametrize("mode", MemoryMode)
@given(
    before=st.lists(st.sampled_from(sorted(RIVALS)), max_size=3),
    drawn=st.lists(RACES, max_size=FAULTED_COMMITS),
    request=REQUESTS,
)
def test_no_conflict_counts_an_address_twice(
    mode: MemoryMode, before: list[str], drawn: list[str | LostRace | LostReply | None], request: AssignRequest,
    *, is_resident: bool,
) -> None:  # fmt: skip
    cluster = Cluster(mode)
    for name in before:
        RIVALS[name](cluster)
    cluster.assign(cluster.ipam(make_script(cluster, drawn), is_resident=is_resident), request)
    state = cluster.state()
    for holds in STATE_INVARIANTS:
        holds(state)
    handle_counts_are_exact(state)


@pytest.mark.parametrize("mode", [MemoryMode.ORDERED, MemoryMode.KUBE_LIKE])
@given(
    before=st.lists(st.sampled_from(sorted(RIVALS)), max_size=2),
    drawn=st.lists(RACES, max_size=2),
    applied=WRITES,
    between=st.lists(st.sampled_from(sorted(RIVALS)), max_size=2),
    request=REQUESTS,
)
def test_the_next_assignment_mends_what_a_crash_left(
    mode: MemoryMode, before: list[str], drawn: list[str | LostRace | LostReply | None], applied: int,
    between: list[str], request: AssignRequest,
) -> None:  # fmt: skip
    cluster = Cluster(mode)
    for name in before:
        RIVALS[name](cluster)
    script = {**make_script(cluster, drawn), len(drawn) + 1: ProcessDeath(applied)}
    with suppress(ProcessDied):
        cluster.assign(cluster.ipam(script, is_resident=False), request)
    state = cluster.state()
    for holds in STATE_INVARIANTS:
        holds(state)
    for name in between:
        RIVALS[name](cluster)
    cluster.assign(cluster.ipam({}, is_resident=False), request)
    handle_counts_are_exact(cluster.state())
