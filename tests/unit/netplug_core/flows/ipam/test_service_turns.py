"""When an allocator has its turn among the calls of its process: while it reads, decides and commits, never twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Conflict, OutcomeUnknown, Revision
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import FaultyDatastore, LostRace
from tests.harness.ipam import IPAMHarness, make_request
from tests.harness.ipam_service import make_cluster
from tests.harness.stores import HookedStore, ScriptedStore, SendWrites


@define
class Turn:
    """A turn that one call has."""

    is_held: bool = False
    taken: int = 0
    seen: list[bool] = field(factory=list)

    @contextmanager
    def take(self, deadline: Deadline) -> Iterator[None]:
        assert not deadline.has_passed
        assert not self.is_held, "a call that has it would wait for itself"
        self.is_held = True
        self.taken += 1
        try:
            yield
        finally:
            self.is_held = False

    def look(self) -> None:
        """Note whether it is held now."""
        self.seen.append(self.is_held)


@pytest.fixture
def harness() -> IPAMHarness:
    return make_cluster(MemoryMode.ORDERED)


def ipam_of(harness: IPAMHarness, store: Datastore, turn: Turn) -> BlockIPAM:
    return evolve(harness.ipam(), datastore=store, turn=turn.take)


def test_an_assignment_and_a_release_have_their_turn_from_the_first_read_to_the_commit(harness: IPAMHarness) -> None:
    turn = Turn()
    store = HookedStore(harness.store, before_read=turn.look, after_commit=turn.look)
    ipam = ipam_of(harness, store, turn)
    ipam.assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert (turn.taken, turn.is_held) == (1, False)
    assert ipam.release(ReleaseRequest(handle="h"), NO_ENDPOINT, deadline=harness.deadline).addresses
    assert (turn.taken, turn.is_held) == (2, False)
    assert (len(turn.seen), set(turn.seen)) == (store.calls, {True})


def test_others_need_not_wait_for_the_time_outs_of_one_call(harness: IPAMHarness) -> None:
    """A call whose commit is not answered is tried again without its turn."""
    turn = Turn()

    def unanswered(_send: SendWrites) -> tuple[Revision, ...]:
        turn.look()
        raise OutcomeUnknown("the store", "no answer")

    def answered(send: SendWrites) -> tuple[Revision, ...]:
        turn.look()
        return send(None)

    def unlucky() -> BlockIPAM:
        return ipam_of(harness, ScriptedStore(harness.store, scripts=[unanswered, answered]), turn)

    unlucky().assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert turn.seen == [True, False]
    assert unlucky().release(ReleaseRequest(handle="h"), NO_ENDPOINT, deadline=harness.deadline).addresses
    assert turn.seen == [True, False] * 2


def test_others_have_their_turn_while_a_call_waits_to_try_again(harness: IPAMHarness) -> None:
    turn = Turn()

    @define
    class WaitingClock(ManualClock):
        def sleep(self, seconds: float) -> None:
            turn.look()
            super().sleep(seconds)

    store = FaultyDatastore(harness.store, dict.fromkeys(range(1, 4), LostRace()))
    ipam = evolve(ipam_of(harness, store, turn), clock=WaitingClock())
    assert ipam.assign(make_request("h"), NO_ENDPOINT, deadline=Deadline.after(ipam.clock, 60)).addresses
    assert (turn.seen, turn.taken) == ([False] * 3, 4)


def test_what_a_failed_assignment_has_written_is_released_in_a_turn_of_its_own(harness: IPAMHarness) -> None:
    """It lost a race, and could not read again in its second turn."""
    turn, store = Turn(), HookedStore(harness.store)

    def lose() -> None:
        store.after_commit, store.before_read = nothing, fail
        applied = len(store.commits[-1])
        raise Conflict(ippool_key("main"), applied, None, applied)

    def fail() -> None:
        store.before_read = nothing
        turn.look()
        raise Unavailable("the store", "no answer")

    store.after_commit = lose
    with pytest.raises(Unavailable):
        ipam_of(harness, store, turn).assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert (turn.seen, turn.taken) == ([True], 3)


def nothing() -> None:
    """Let a call through."""
