"""When the packet filter is programmed, what it is then, and what the log says of it."""

from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from netplug_backends.memory.ruleset import MemoryRuleset
from netplug_cli.node.packet_filter import CHECK_EVERY_S, PacketFilter
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    BaseChain,
    Chain,
    ChainType,
    DeleteTable,
    Hook,
    ObservedTable,
    PacketTable,
    ReplaceTable,
    Rule,
    TableChange,
    Verdict,
    find_change,
)
from netplug_core.reconcile.nat import FORMER_TABLE, NET_TABLE, plan_table
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

NOT_PROGRAMMED = "WARNING the packet filter is not programmed: pods with a mapped port reach the node's 127.0.0.1"
PROGRAMMED = "INFO the packet filter is programmed"
REPAIRED = "WARNING the packet filter is programmed again: another program has removed it"
REFUSED = KernelError("reading the packet filter", "Operation not permitted")
BUSY = KernelError("programming the packet filter", "Device or resource busy")


@frozen
class Deed:
    """What another program does before a look."""

    do: Callable[[MemoryRuleset], None]


FLUSHED = Deed(MemoryRuleset.flush)
NOTHING = Deed(lambda _ruleset: None)


@define
class ScriptedRuleset:
    """A packet filter with one deed or one error for each look, and errors of changes."""

    script: Iterator[Deed | KernelError]
    refused: Iterator[KernelError | None] = field(factory=lambda: iter(()))
    clock: ManualClock = field(factory=ManualClock)
    ruleset: MemoryRuleset = field(factory=MemoryRuleset)
    looked_at: list[float] = field(factory=list)

    def read(self, name: str) -> ObservedTable | None:
        if name == NET_TABLE:
            self.looked_at.append(self.clock.monotonic())
            one = next(self.script, NOTHING)
            if isinstance(one, KernelError):
                raise one
            one.do(self.ruleset)
        return self.ruleset.read(name)

    def apply(self, change: TableChange) -> None:
        error = next(self.refused, None)
        if error is not None:
            raise error
        self.ruleset.apply(change)

    @property
    def changes(self) -> list[type]:
        return [type(change) for change in self.ruleset.changes]


def run(scripted: ScriptedRuleset, seconds: float = 1000.0) -> list[str]:
    """The lines of the log after so long."""
    log = Lines()
    controller = PacketFilter(ruleset=scripted, log=log).controller()
    DrivenControllers([controller], clock=scripted.clock, log=log).pass_time(seconds)
    return log.texts


def scripted(*script: Deed | KernelError) -> ScriptedRuleset:
    return ScriptedRuleset(iter(script))


def programmed(*script: Deed | KernelError) -> ScriptedRuleset:
    """One with the table of an earlier process."""
    made = scripted(*script)
    made.ruleset.apply(ReplaceTable(plan_table()))
    made.ruleset.changes.clear()
    return made


def test_it_is_programmed_at_the_start() -> None:
    kernel = scripted()
    assert run(kernel) == [PROGRAMMED]
    assert kernel.changes == [ReplaceTable]
    assert find_change(plan_table(), kernel.ruleset.read(NET_TABLE)) is None


def test_what_an_earlier_process_left_is_nothing_new() -> None:
    kernel = programmed()
    assert run(kernel) == []
    assert kernel.changes == []


def test_it_is_programmed_again_if_others_remove_or_change_it() -> None:
    kernel = programmed(NOTHING, FLUSHED, NOTHING, Deed(lambda ruleset: ruleset.add_rule(NET_TABLE, "loopback")))
    assert run(kernel) == [REPAIRED, REPAIRED]
    assert kernel.changes == [ReplaceTable, ReplaceTable]


def test_a_failure_is_a_line_until_it_is_another_one() -> None:
    kernel = scripted(REFUSED, REFUSED, BUSY, REFUSED, NOTHING, REFUSED)
    assert run(kernel) == [
        f"{NOT_PROGRAMMED} cause={REFUSED}",
        f"{NOT_PROGRAMMED} cause={BUSY}",
        f"{NOT_PROGRAMMED} cause={REFUSED}",
        PROGRAMMED,
        f"{NOT_PROGRAMMED} cause={REFUSED}",
    ]


def test_a_change_that_is_refused_is_tried_again() -> None:
    kernel = scripted()
    kernel.refused = iter([BUSY])
    assert run(kernel) == [f"{NOT_PROGRAMMED} cause={BUSY}", PROGRAMMED]


def test_it_is_looked_at_every_few_seconds_and_sooner_after_a_failure() -> None:
    kernel = programmed()
    run(kernel, seconds=2 * CHECK_EVERY_S)
    assert kernel.looked_at == [0, CHECK_EVERY_S, 2 * CHECK_EVERY_S]
    kernel = scripted(*[REFUSED] * 100)
    run(kernel, seconds=100)
    assert kernel.looked_at[:6] == [0, 0.5, 1.5, 3.5, 7.5, 7.5 + CHECK_EVERY_S / 2]


# --- the table of a former release ------------------------------------------------------------------------------------


def former(*statements: str) -> PacketTable:
    base = BaseChain(ChainType.FILTER, Hook.PREROUTING, -300)
    rules = tuple(Rule((Verdict.DROP,), text) for text in statements)
    return PacketTable(name=FORMER_TABLE, chains=(Chain(name="prerouting", base=base, rules=rules),))


def test_the_table_of_a_former_release_goes_once_ours_is_there() -> None:
    kernel = scripted()
    kernel.ruleset.apply(ReplaceTable(former()))
    kernel.ruleset.add_rule(FORMER_TABLE, "prerouting")
    assert run(kernel) == [PROGRAMMED, "INFO the packet filter of a former release is removed table=netplug"]
    assert kernel.changes == [ReplaceTable, ReplaceTable, DeleteTable]
    assert kernel.ruleset.read(FORMER_TABLE) is None


def test_another_table_of_that_name_stays() -> None:
    kernel = scripted()
    kernel.ruleset.apply(ReplaceTable(former("policy")))
    assert run(kernel) == [PROGRAMMED]
    assert kernel.ruleset.read(FORMER_TABLE) is not None
