"""The packet filter in memory is held to the suite of all packet filters."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from attrs import define, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.memory.ruleset import MemoryConnections, MemoryRuleset, MemoryRulesetEvents, TrackedConnection
from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.dataplane.packetfilter import ForeignChange, ForeignChanges
from netplug_core.testing.ruleset_checks import RULESET_CHECKS, RulesetCheck
from tests.harness.waiting import EMERGENCY_STOP_S


@define
class MemoryHarness:
    """The suite's harness: what others do, the fake does itself."""

    ruleset: MemoryRuleset = field(factory=MemoryRuleset)
    clock: SystemClock = field(factory=SystemClock)

    @contextmanager
    def open_events(self) -> Iterator[MemoryRulesetEvents]:
        yield self.ruleset.events

    def flush(self) -> None:
        self.ruleset.flush()

    def add_rule(self, name: str, chain: str, *, is_first: bool = False) -> None:
        self.ruleset.add_rule(name, chain, is_first=is_first)

    def clear_chain(self, name: str, chain: str) -> None:
        self.ruleset.clear_chain(name, chain)

    def add_unreadable(self, name: str, what: str) -> None:
        self.ruleset.add_unreadable(name, what)


@pytest.mark.parametrize("check", RULESET_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: RulesetCheck) -> None:
    check(MemoryHarness())


def test_connections_in_memory_are_forgotten_by_their_ends() -> None:
    one, other, third = (Address.parse(f"203.0.113.{number}") for number in (1, 2, 3))
    to_one = TrackedConnection(source=other, destination=one)
    from_one = TrackedConnection(source=one, destination=other)
    led_to_one = TrackedConnection(source=other, destination=third, answers=one)
    elsewhere = TrackedConnection(source=other, destination=third)
    connections = MemoryConnections([to_one, from_one, led_to_one, elsewhere, to_one])
    assert connections.forget({one}) == 2
    assert connections.forget({one}) == 0
    assert connections.tracked == [from_one, led_to_one, elsewhere]
    assert connections.forget_workloads({one}) == 2
    assert connections.forget_workloads({one}) == 0
    assert connections.tracked == [elsewhere]


def test_a_wait_in_memory_ends_with_what_another_thread_does() -> None:
    events = MemoryRulesetEvents()
    deadline = Deadline.after(SystemClock(), EMERGENCY_STOP_S)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(lambda: events.wait(deadline=deadline))
        events.notify("firewalld", "netplug", "other")
        change = ForeignChange("firewalld", frozenset({"netplug", "other"}))
        assert waiting.result() == ForeignChanges(changes=(change,))
        waiting = threads.submit(lambda: events.wait(deadline=deadline))
        events.close()
        assert waiting.result() is None


def test_events_in_memory_can_be_lost() -> None:
    events = MemoryRulesetEvents()
    events.notify("nft", "netplug")
    events.lose()
    deadline = Deadline.after(SystemClock(), 0)
    assert events.wait(deadline=deadline) == ForeignChanges(were_lost=True)
    assert events.wait(deadline=deadline) is None
