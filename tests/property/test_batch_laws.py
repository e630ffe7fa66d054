"""Requests that share a commit keep the promises that they keep one by one.

Laws, in every mode of the memory store, with and without a cache, whatever happens to the commit: no address is given
twice; each answer is what is stored under its handle; handles and endpoints are right after every prefix of the commit
and exact in the end; a block is written once in a batch; and what a fault left behind is healed by a release.
"""

from collections.abc import Callable
from functools import partial

import pytest
from attrs import define, evolve, field
from hypothesis import given, settings
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.batch import RequestQueue
from netplug_core.errors import NetplugError
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Assignment, Released, ReleaseRequest
from netplug_core.testing.faults import (
    Fault,
    FaultyDatastore,
    LostRace,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
)
from tests.harness.allocator.invariants import SETTLED_STATE_INVARIANTS, STATE_INVARIANTS
from tests.harness.allocator.operations import endpoint_part
from tests.harness.allocator.state import StoredState, read_state
from tests.harness.ipam import NODE, IPAMHarness, ipv4, ipv6, make_request
from tests.harness.nested_calls import NestedTurn

HANDLES = tuple("abcdefgh")


@define
class BatchHarness:
    """Calls that wait for each other, so that one commit serves them; each runs inside the one before it."""

    harness: IPAMHarness
    ipam: BlockIPAM
    turn: NestedTurn
    answers: dict[str, object] = field(factory=dict)

    @classmethod
    def new(cls, mode: MemoryMode, fault: Fault | None, *, is_cached: bool) -> "BatchHarness":
        """A node with three handles; ``fault`` happens to the next commit."""
        harness = IPAMHarness.new(mode)
        harness.add_pool("four", "10.0.0.0/28", 30)
        harness.add_pool("six", "fd00::/124", 126)
        store = FaultyDatastore(harness.store, {4: fault} if fault else {})
        cache = make_node_cache(store, clock=harness.clock)
        turn = NestedTurn()
        queue = RequestQueue(store=store, cache=cache if is_cached else None, turn=turn)
        ipam = evolve(harness.ipam(), datastore=store, cache=queue.cache, queue=queue)
        batch = cls(harness, ipam, turn)
        for handle in HANDLES[:3]:
            batch.assign(handle, 1)
        assert store.commits == 3
        return batch

    def assign(self, handle: str, count: int) -> None:
        request = make_request(handle, ipv4(count), ipv6(count))
        self._call(handle, lambda part, until: self.ipam.assign(request, part, deadline=until))

    def release(self, handle: str) -> None:
        self._call(handle, lambda part, until: self.ipam.release(ReleaseRequest(handle=handle), part, deadline=until))

    def _call(self, handle: str, call: Callable[..., object]) -> None:
        try:
            self.answers[handle] = call(endpoint_part(handle, NODE), Deadline.after(self.harness.clock, 60))
        except NetplugError as error:
            self.answers[handle] = error

    def together(self, calls: list[tuple[str, int]]) -> None:
        """Assign so many addresses (0: release), all in one batch."""
        self.answers.clear()
        self.turn.calls = [
            partial(self.assign, handle, count) if count else partial(self.release, handle) for handle, count in calls
        ]
        while self.turn.calls:
            self.turn.calls.pop(0)()

    def state(self) -> StoredState:
        return read_state(self.harness.store, self.harness.deadline)


CALLS = st.lists(st.tuples(st.sampled_from(HANDLES), st.integers(0, 3)), min_size=2, unique_by=lambda call: call[0])
FAULTS = st.one_of(
    st.none(),
    st.builds(LostRace, st.integers(0, 12)),
    st.builds(LostRequest, st.integers(0, 12)),
    st.builds(LostReply, st.none() | st.integers(0, 12)),
    st.builds(ProcessDeath, st.none() | st.integers(0, 12)),
)
ATOMIC_FAULTS = st.sampled_from(
    [None, LostRace(), LostRequest(), LostReply(), LostReply(0), ProcessDeath(None), ProcessDeath(0)]
)


@pytest.mark.parametrize("is_cached", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize("mode", MemoryMode)
@settings(max_examples=max(10, settings().max_examples // 4))
@given(data=st.data())
def test_a_batch_keeps_the_promises_of_single_calls(mode: MemoryMode, data: st.DataObject, *, is_cached: bool) -> None:
    calls = data.draw(CALLS)
    fault = data.draw(ATOMIC_FAULTS if mode is MemoryMode.ATOMIC else FAULTS)
    harness = BatchHarness.new(mode, fault, is_cached=is_cached)
    has_died, commits = False, harness.harness.store.calls.commits
    try:
        harness.together(calls)
    except ProcessDied:
        has_died = True
    state = harness.state()
    for holds in STATE_INVARIANTS:
        holds(state)
    for handle, named in state.endpoints.items():
        assert set(named) <= state.held_by(handle)
    if not has_died:
        assert harness.answers.keys() == dict(calls).keys()
        for handle, count in calls:
            check_answer(harness.answers[handle], handle, count, state)
        if fault is None and (mode is MemoryMode.ATOMIC or harness.harness.store.calls.commits == commits + 1):
            for holds in SETTLED_STATE_INVARIANTS:
                holds(state)
    for handle in HANDLES:
        harness.harness.ipam().release(
            ReleaseRequest(handle=handle), endpoint_part(handle, NODE), deadline=harness.harness.deadline
        )
    state = harness.state()
    assert (state.held, state.handles, state.endpoints) == ({}, {}, {})


def check_answer(answer: object, handle: str, count: int, state: StoredState) -> None:
    held = state.held_by(handle)
    if isinstance(answer, Assignment):
        given = {assigned.address for assigned in answer.addresses}
        assert given == held
        assert set(state.endpoints[handle]) == held
        assert len(given) >= 2 * count
    elif isinstance(answer, Released):
        assert not held
        assert handle not in state.handles
        assert handle not in state.endpoints
    else:
        assert isinstance(answer, NetplugError)


@pytest.mark.parametrize("mode", MemoryMode)
def test_one_commit_serves_all_and_writes_each_block_once(mode: MemoryMode) -> None:
    harness = BatchHarness.new(mode, None, is_cached=True)
    commits = harness.harness.store.calls.commits
    reads = harness.harness.store.calls.reads
    harness.together([("a", 0), ("d", 1)])
    assert (harness.harness.store.calls.commits - commits, harness.harness.store.calls.reads - reads) == (1, 0)
    assert isinstance(harness.answers["d"], Assignment)
    assert {str(held) for held in harness.state().held_by("d")} == {"10.0.0.3", "fd00::3"}
