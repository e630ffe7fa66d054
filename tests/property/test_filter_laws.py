"""What a node enforces, and the table that does it.

- the walk of a packet through the rendered table ends as ``evaluate`` says
- a renderer that has rendered other states before renders the same table as one that has not
- from whatever table, the transactions lead to the wanted one, and then nothing is left to change
- in the middle of them nothing passes that neither the table of before nor the one of afterwards lets pass
- that holds also if they are left off at any of them, and found again by another process
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.ruleset import Fate, MemoryRuleset
from netplug_core.dataplane.filter import POLICY_TABLE, FilterRenderer, render_state
from netplug_core.dataplane.phases import TableTracker, find_phases
from netplug_core.dataplane.ruleset import ReplaceTable
from netplug_core.policy.evaluate import evaluate
from netplug_core.policy.model import Decision, DenyAction, Packet, PolicyState
from tests.harness.example_counts import POLICY_EXAMPLES
from tests.harness.policy_states import PACKETS, STATES, histories


def _expected(packet: Packet, state: PolicyState) -> Fate:
    decision = evaluate(packet, state).decision
    if decision is Decision.ALLOW:
        return Fate.PASSED
    is_answered = state.settings.deny_action is DenyAction.REJECT and packet.input_interface
    return Fate.REJECTED if decision is Decision.DENY and is_answered else Fate.DROPPED


def _enforcing(state: PolicyState) -> MemoryRuleset:
    kernel = MemoryRuleset()
    for change in find_phases(render_state(state), None):
        kernel.apply(change)
    return kernel


@POLICY_EXAMPLES
@given(STATES, PACKETS)
def test_a_walk_ends_as_the_evaluation_says(state: PolicyState, packets: list[Packet]) -> None:
    kernel = _enforcing(state)
    for packet in packets:
        assert kernel.pass_packet(POLICY_TABLE, packet) is _expected(packet, state), packet


@POLICY_EXAMPLES
@given(histories(3))
def test_a_renderer_forgets_what_was_before(states: list[PolicyState]) -> None:
    renderer = FilterRenderer()
    for state in (*states, states[0]):
        assert renderer.render(state) == render_state(state)


@POLICY_EXAMPLES
@given(histories(3))
def test_the_transactions_lead_to_the_wanted_table(states: list[PolicyState]) -> None:
    kernel, tracker = MemoryRuleset(), TableTracker(POLICY_TABLE)
    for state in states:
        wanted = render_state(state)
        for change in tracker.plan(wanted):
            kernel.apply(change)
            tracker.note(change)
        assert tracker.plan(wanted) == ()
        observed = kernel.read(POLICY_TABLE)
        assert find_phases(wanted, observed) == ()
        assert observed is not None
        assert {each.name: each for each in observed.sets} == dict(tracker.sets)


@POLICY_EXAMPLES
@given(histories(3), PACKETS)
def test_nothing_passes_in_between_that_passes_neither_before_nor_afterwards(
    states: list[PolicyState], packets: list[Packet]
) -> None:
    kernel, tracker = MemoryRuleset(), TableTracker(POLICY_TABLE)
    for change in tracker.plan(render_state(states[0])):
        kernel.apply(change)
        tracker.note(change)
    seen: list[list[Fate]] = []
    kernel.on_step = lambda: seen.append([kernel.pass_packet(POLICY_TABLE, each) for each in packets])
    for state in states[1:]:
        before = [kernel.pass_packet(POLICY_TABLE, each) for each in packets]
        after = [_enforcing(state).pass_packet(POLICY_TABLE, each) for each in packets]
        seen.clear()
        for change in tracker.plan(render_state(state)):
            assert not isinstance(change, ReplaceTable)
            kernel.apply(change)
            tracker.note(change)
        _require_closed(packets, before, after, seen)


@POLICY_EXAMPLES
@given(histories(2), PACKETS, st.integers(0, 5))
def test_another_process_goes_on_where_one_was_killed(
    states: list[PolicyState], packets: list[Packet], killed_after: int
) -> None:
    kernel, tracker = MemoryRuleset(), TableTracker(POLICY_TABLE)
    for change in tracker.plan(render_state(states[0])):
        kernel.apply(change)
        tracker.note(change)
    before = [kernel.pass_packet(POLICY_TABLE, each) for each in packets]
    after = [_enforcing(states[1]).pass_packet(POLICY_TABLE, each) for each in packets]
    seen: list[list[Fate]] = []
    kernel.on_step = lambda: seen.append([kernel.pass_packet(POLICY_TABLE, each) for each in packets])
    for change in tracker.plan(render_state(states[1]))[:killed_after]:
        kernel.apply(change)
    for change in find_phases(render_state(states[1]), kernel.read(POLICY_TABLE)):
        kernel.apply(change)
    _require_closed(packets, before, after, seen)
    assert [kernel.pass_packet(POLICY_TABLE, each) for each in packets] == after


def _require_closed(packets: list[Packet], before: list[Fate], after: list[Fate], seen: list[list[Fate]]) -> None:
    for step in seen:
        for packet, first, last, fate in zip(packets, before, after, step, strict=True):
            assert fate is not Fate.PASSED or Fate.PASSED in (first, last), packet
