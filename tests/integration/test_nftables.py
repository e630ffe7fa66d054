"""Tables of nftables on a real kernel: libnftables and the program nft are held to the suite of all packet filters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import define, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.netns import entered_namespace
from netplug_backends.linux.nftables import KeptNftables, NftablesRuleset, run_library, run_program
from netplug_backends.linux.nftevents import NftablesEvents
from netplug_core.clock import Deadline
from netplug_core.dataplane.packetfilter import find_missing
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import DeleteTable, Hook, ReplaceTable
from netplug_core.testing.ruleset_checks import RULESET_CHECKS, TABLE, RulesetCheck, sample_table
from tests.harness.node import NetnsNode
from tests.harness.waiting import EMERGENCY_STOP_S

pytestmark = [pytest.mark.netns]


@define
class NodeHarness:
    """The suite's harness on a node: what others do, ``nft`` does."""

    node: NetnsNode
    ruleset: NftablesRuleset | KeptNftables
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


@pytest.fixture(params=["kept library", "kept program", "library", "program"])
def harness(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[NodeHarness]:
    if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("nft is missing")
    is_kept, by = request.param.startswith("kept "), request.param.removeprefix("kept ")
    with ExitStack() as opened:
        opened.enter_context(entered_namespace(f"/proc/{node.pid}/ns/net"))
        if is_kept:
            kept = opened.enter_context(KeptNftables.open(has_library=by == "library"))
            yield NodeHarness(node, kept)
        else:
            yield NodeHarness(node, NftablesRuleset(runners=(run_library if by == "library" else run_program,)))


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


def test_a_change_beside_one_of_ours_is_notified(node: NetnsNode) -> None:
    """Which of two transactions was ours is not known then: the other one is among those that are notified of."""

    def run_beside_others(commands: str) -> object:
        if '"add"' in commands:
            node.run("nft", "add table inet theirs")
        return run_library(commands)

    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        ruleset = NftablesRuleset(runners=(run_beside_others,))  # type: ignore[arg-type]
        with ruleset.open_events() as events:
            ruleset.apply(ReplaceTable(sample_table()))
            noticed: set[str] = set()
            while "theirs" not in noticed:
                found = events.wait(deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S))
                assert found is not None
                noticed |= {name for change in found.changes for name in change.tables}


def test_a_kept_packet_filter_stays_in_its_namespace(node: NetnsNode) -> None:
    """Whoever calls it, from wherever."""
    with ExitStack() as opened:
        with entered_namespace(f"/proc/{node.pid}/ns/net"):
            kept = opened.enter_context(KeptNftables.open())
        kept.apply(ReplaceTable(sample_table()))
        assert kept.read(TABLE) is not None
        assert f"table inet {TABLE}" in node.run("nft", "list", "tables")


def test_the_kernel_has_what_policy_needs(harness: NodeHarness) -> None:
    assert find_missing(harness.ruleset) == ()
    assert harness.node.run("nft", "list", "tables") == ""


def test_base_chains_of_others_that_drop_are_found(harness: NodeHarness) -> None:
    """Those that judge what workloads and the node receive; and the remedy is one."""
    lines = (
        "table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }",
        "table inet fw { chain in { type filter hook input priority 0; policy drop; }; chain y { }; }",
        "table inet fw { chain out { type filter hook output priority 0; policy drop; }; }",
        "table inet fw { chain through { type filter hook forward priority 0; policy accept; }; }",
    )
    harness.node.run("nft", "-f", "-", stdin="\n".join(lines))
    found = sorted(harness.ruleset.find_dropping_chains(), key=str)
    assert [(str(each), each.hook) for each in found] == [
        ("the chain FORWARD of the table ip filter", Hook.FORWARD),
        ("the chain in of the table inet fw", Hook.INPUT),
    ]
    for each in found:
        harness.node.run("sh", "-c", each.remedy)
    assert harness.ruleset.find_dropping_chains() == ()


@pytest.mark.stress
def test_many_transactions_take_no_memory(node: NetnsNode) -> None:
    """Those that are made, and those that are refused."""
    few, more = sample_table(), sample_table(f"{TABLE}_other")
    with entered_namespace(f"/proc/{node.pid}/ns/net"), KeptNftables.open() as kept:

        def change(times: int) -> None:
            for _ in range(times):
                kept.apply(ReplaceTable(few))
                with pytest.raises(KernelError):
                    kept.apply(DeleteTable(more.name))

        change(100)
        before = _memory_kb()
        change(1000)
        assert _memory_kb() - before < 2000


def _memory_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))
