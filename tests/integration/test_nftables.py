"""Tables of nftables on a real kernel: libnftables and the program nft are held to the suite of all packet filters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from attrs import define, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.netns import entered_namespace
from netplug_backends.linux.nftables import NftablesRuleset, Run, run_library, run_program
from netplug_backends.linux.nftevents import NftablesEvents
from netplug_core.clock import Deadline
from netplug_core.dataplane.ruleset import ReplaceTable
from netplug_core.testing.ruleset_checks import RULESET_CHECKS, RulesetCheck, sample_table
from tests.harness.node import NetnsNode
from tests.harness.waiting import EMERGENCY_STOP_S

pytestmark = [pytest.mark.netns]


@define
class NodeHarness:
    """The suite's harness on a node: what others do, ``nft`` does."""

    node: NetnsNode
    ruleset: NftablesRuleset
    clock: SystemClock = field(factory=SystemClock)

    def open_events(self) -> NftablesEvents:
        return self.ruleset.open_events()

    def flush(self) -> None:
        self.node.run("nft", "flush ruleset")

    def add_rule(self, name: str, chain: str, *, is_first: bool = False) -> None:
        self.node.run("nft", f"{'insert' if is_first else 'add'} rule inet {name} {chain} accept")

    def clear_chain(self, name: str, chain: str) -> None:
        self.node.run("nft", f"flush chain inet {name} {chain}")

    def add_unreadable(self, name: str, what: str) -> None:
        self.node.run("nft", f"add counter inet {name} {what}")


@pytest.fixture(params=[run_library, run_program], ids=["library", "program"])
def harness(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[NodeHarness]:
    if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("nft is missing")
    runner: Run = request.param
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        yield NodeHarness(node, NftablesRuleset(runners=(runner,)))


@pytest.mark.parametrize("check", RULESET_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: RulesetCheck, harness: NodeHarness) -> None:
    check(harness)


def test_events_that_the_kernel_could_not_keep_are_said_to_be_lost(harness: NodeHarness) -> None:
    """And what comes after them is notified of as ever."""
    with harness.open_events() as events:
        events.set_buffer(0)
        harness.node.run("nft", "-f", "-", stdin="\n".join(f"add table inet t{number}" for number in range(500)))
        deadline = Deadline.after(harness.clock, EMERGENCY_STOP_S)
        found = events.wait(deadline=deadline)
        assert found is not None
        assert found.were_lost
        events.set_buffer(1 << 20)
        harness.node.run("nft", "flush ruleset")
        noticed = [found]
        while not noticed[-1].concern("t499") or noticed[-1].were_lost:
            found = events.wait(deadline=deadline)
            assert found is not None
            noticed.append(found)
        assert noticed[-1].programs("t499") == ("nft",)


def test_a_change_beside_one_of_ours_is_notified(harness: NodeHarness) -> None:
    """Which of two transactions was ours is not known then: the other one is among those that are notified of."""
    program = next(runner for runner in harness.ruleset.runners)

    def run_beside_others(commands: str) -> object:
        if "add" in commands:
            harness.node.run("nft", "add table inet theirs")
        return program(commands)

    harness.ruleset.runners = (run_beside_others,)  # type: ignore[assignment]
    with harness.open_events() as events:
        harness.ruleset.apply(ReplaceTable(sample_table()))
        noticed: set[str] = set()
        while "theirs" not in noticed:
            found = events.wait(deadline=Deadline.after(harness.clock, EMERGENCY_STOP_S))
            assert found is not None
            noticed |= {name for change in found.changes for name in change.tables}
