"""A store that stops answering after any of a call's requests: the call ends in time, and nobody else waits for it.

Each request that is not answered takes all the time that it is given. Eight or a hundred calls at once are as this one:
none of them holds the host's lock while it waits.
"""

from collections.abc import Sequence

import pytest
from attrs import define

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.cni.call import RELEASE_S
from netplug_core.records import OutcomeUnknown, Query, Revision, Snapshot, Write
from tests.harness.cni_node import DUAL_STACK, LOCK_FILE, CNINodeHarness
from tests.harness.stores import StoreWrapper

MAX_REQUESTS = 12
MODES = pytest.mark.parametrize("mode", [MemoryMode.ATOMIC, MemoryMode.ORDERED])
ANSWERED = pytest.mark.parametrize("answered", range(MAX_REQUESTS))


@define
class SilentStore(StoreWrapper):
    """A store that answers so many requests, and then none; the first commit without an answer is applied."""

    harness: CNINodeHarness
    answered: int
    unanswered_under_lock: int = 0

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        if self._is_answered(deadline):
            return self.inner.read(queries, deadline=deadline)
        raise Unavailable("the store", "no answer")

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        is_first, wait = self.answered == 0, Deadline.after(self.harness.clock, CALL_TIMEOUT_S)
        if is_first:
            self.inner.commit(writes, deadline=wait)
        if self._is_answered(deadline):
            return self.inner.commit(writes, deadline=deadline)
        raise OutcomeUnknown("the store", "no answer")

    def _is_answered(self, deadline: Deadline) -> bool:
        self.answered -= 1
        if self.answered >= 0:
            return True
        self.unanswered_under_lock += (LOCK_FILE, 0) in self.harness.host.locks.held
        self.harness.clock.sleep(deadline.remaining_s)
        return False


def go_silent(harness: CNINodeHarness, mode: MemoryMode, answered: int, command: str) -> SilentStore:
    """Make one call of a command with such a store; what is on the node afterwards is for the caller to see."""
    harness.memory = MemoryDatastore(mode, clock=harness.clock)
    harness.add_pool("four", "10.65.0.0/24")
    harness.add_pool("six", "fd00:65::/120")
    harness.store = harness.memory
    if command == "DEL":
        harness.add(ipam=DUAL_STACK)
    store = harness.store = SilentStore(harness.memory, harness, answered)
    began = harness.clock.monotonic()
    code = 0
    try:
        harness.add(ipam=DUAL_STACK) if command == "ADD" else harness.run("DEL")
    except NetplugError as error:
        code = error.code
    assert code in (0, 11)
    assert harness.clock.monotonic() - began <= limit_s(command)
    assert harness.host.locks.held == frozenset()
    return store


def limit_s(command: str) -> float:
    """A DEL has its own time. An ADD makes at most four requests without an answer: one, again, and to take it back."""
    return RELEASE_S if command == "DEL" else 4 * CALL_TIMEOUT_S


@MODES
@ANSWERED
def test_an_add_ends_and_the_next_del_leaves_nothing(harness: CNINodeHarness, mode: MemoryMode, answered: int) -> None:
    """One request at most is waited for under the host's lock."""
    store = go_silent(harness, mode, answered, "ADD")
    assert store.unanswered_under_lock <= 1
    harness.store = harness.memory
    harness.run("DEL")
    harness.assert_nothing_left()


@MODES
@ANSWERED
def test_a_del_ends_with_a_clean_node_and_the_next_one_leaves_nothing(
    harness: CNINodeHarness, mode: MemoryMode, answered: int
) -> None:
    store = go_silent(harness, mode, answered, "DEL")
    assert store.unanswered_under_lock == 0
    assert harness.dataplane.names() == ()
    harness.store = harness.memory
    harness.run("DEL")
    harness.assert_nothing_left()
