"""When the packet filter is programmed, what it is then, and what the log says of it."""

from collections.abc import Callable, Iterable, Iterator

from attrs import define, field, frozen

from netplug_backends.memory.ruleset import MemoryConnections, MemoryRuleset, TrackedConnection
from netplug_cli.node.packet_filter import CHECK_EVERY_S, PacketFilter
from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    BaseChain,
    Chain,
    ChainType,
    ChangeElements,
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
from netplug_core.reconcile.controller import Source
from netplug_core.reconcile.nat import FORMER_TABLE, NET_TABLE, NatFacts, plan_table
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import IPPool, IPPoolSpec
from netplug_core.resources.nodeconfiguration import NodeConfigurationSpec
from netplug_core.resources.workloadendpoint import IPNAT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

NOT_PROGRAMMED = "WARNING the packet filter is not programmed: pods with a mapped port reach the node's 127.0.0.1"
PROGRAMMED = "INFO the packet filter is programmed"
REPAIRED = "WARNING the packet filter is programmed again: another program has removed it"
GUARD = plan_table(NatFacts()).table
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

    def count_packets(self, table: str, chain: str) -> int:
        return self.ruleset.count_packets(table, chain)

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
    controller = PacketFilter(ruleset=scripted, connections=MemoryConnections(), log=log).controller()
    DrivenControllers([controller], clock=scripted.clock, log=log).pass_time(seconds)
    return log.texts


def scripted(*script: Deed | KernelError) -> ScriptedRuleset:
    return ScriptedRuleset(iter(script))


def programmed(*script: Deed | KernelError) -> ScriptedRuleset:
    """One with the table of an earlier process."""
    made = scripted(*script)
    made.ruleset.apply(ReplaceTable(GUARD))
    made.ruleset.changes.clear()
    return made


def test_it_is_programmed_at_the_start() -> None:
    kernel = scripted()
    assert run(kernel) == [PROGRAMMED]
    assert kernel.changes == [ReplaceTable]
    assert find_change(GUARD, kernel.ruleset.read(NET_TABLE)) is None


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


# --- what follows from the datastore ----------------------------------------------------------------------------------

EXTERNAL, OTHER = Address.parse("203.0.113.1"), Address.parse("198.51.100.1")


def facts(*internal: str, prefix: str = "10.0.0.0/16") -> NatFacts:
    """A pool with NAT, and workloads with these addresses; the first one has the floating address."""
    pool = IPPool(metadata=Metadata(name="p"), spec=IPPoolSpec(prefix=Prefix.parse(prefix), has_outgoing_nat=True))
    return NatFacts(
        pools=(pool,),
        settings=NodeConfigurationSpec(floating_ips=Switch.ENABLED),
        endpoints=tuple(map(_endpoint, internal)),
    )


def _endpoint(text: str) -> WorkloadEndpoint:
    internal = Address.parse(text)
    spec = WorkloadEndpointSpec(
        orchestrator="k8s",
        node="n",
        endpoint="eth0",
        addresses=(internal,),
        ip_nats=(IPNAT(internal=internal, external=EXTERNAL),),
    )
    return WorkloadEndpoint(metadata=Metadata(name=text, namespace="shop"), spec=spec)


def connections_to(*destinations: Address) -> list[TrackedConnection]:
    return [TrackedConnection(source=OTHER, destination=each) for each in destinations]


@define
class Scene:
    """A node process on a kernel in memory, whose datastore says what a test puts there."""

    known: NatFacts | None = None
    kernel: ScriptedRuleset = field(factory=scripted)
    connections: MemoryConnections = field(factory=MemoryConnections)
    log: Lines = field(factory=Lines)
    refused: list[KernelError] = field(factory=list)
    _driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        made = PacketFilter(
            ruleset=self.kernel, connections=self, log=self.log, find_facts=lambda _deadline: self.known
        )
        loops = [made.controller(frozenset({Source("pools")}))]
        self._driven = DrivenControllers(loops, clock=self.kernel.clock, log=self.log)

    def forget(self, destinations: Iterable[Address]) -> int:
        if self.refused:
            raise self.refused.pop()
        return self.connections.forget(destinations)

    def forget_workloads(self, addresses: Iterable[Address]) -> int:
        return self.connections.forget_workloads(addresses)

    def learn(self, known: NatFacts | None) -> None:
        """The datastore has changed; the passes that follow are made."""
        self.known = known
        self.kernel.ruleset.changes.clear()
        for loop in self._driven.loops:
            loop.wake()
        self._driven.pass_time(1)

    @property
    def is_as_planned(self) -> bool:
        assert self.known is not None
        return find_change(plan_table(self.known).table, self.kernel.ruleset.read(NET_TABLE)) is None


def test_before_the_facts_are_known_the_table_of_an_earlier_process_stays() -> None:
    scene = Scene()
    scene.kernel.ruleset.apply(ReplaceTable(plan_table(facts("10.0.0.5")).table))
    scene.learn(None)
    assert (scene.kernel.changes, scene.log.texts) == ([], [])
    scene.learn(facts("10.0.0.5"))
    assert scene.kernel.changes == []
    assert scene.is_as_planned


def test_the_table_follows_the_datastore_and_elements_are_changed_in_place() -> None:
    scene = Scene()
    scene.learn(facts())
    assert scene.kernel.changes == [ReplaceTable]
    scene.learn(facts(prefix="10.0.0.0/17"))
    assert scene.kernel.changes == [ChangeElements]
    assert scene.is_as_planned
    scene.learn(scene.known)
    assert scene.kernel.changes == []
    assert scene.log.texts == [PROGRAMMED]


def test_while_the_datastore_is_away_the_table_stays_and_is_repaired() -> None:
    scene = Scene()
    scene.learn(facts("10.0.0.5"))
    before = scene.known
    scene.kernel.ruleset.flush()
    scene.learn(None)
    scene.known = before
    assert scene.is_as_planned
    assert scene.log.texts == [PROGRAMMED, REPAIRED]


def test_elements_that_the_kernel_does_not_take_are_brought_by_a_new_table() -> None:
    scene = Scene()
    scene.learn(facts())
    scene.kernel.refused = iter([BUSY])
    scene.learn(facts(prefix="10.0.0.0/17"))
    assert scene.kernel.changes == [ReplaceTable]
    assert scene.is_as_planned


def test_connections_to_a_floating_address_are_forgotten_when_it_leads_elsewhere() -> None:
    scene = Scene()
    scene.learn(facts("10.0.0.5"))
    scene.connections.tracked[:] = connections_to(EXTERNAL, OTHER, EXTERNAL)
    scene.learn(facts("10.0.0.5", prefix="10.0.0.0/17"))
    assert scene.connections.tracked == connections_to(EXTERNAL, OTHER, EXTERNAL)
    scene.learn(facts("10.0.0.6"))
    assert scene.connections.tracked == connections_to(OTHER)
    scene.connections.tracked += connections_to(EXTERNAL)
    scene.learn(facts())
    assert scene.connections.tracked == connections_to(OTHER)


def test_connections_that_could_not_be_forgotten_are_tried_again() -> None:
    scene = Scene()
    scene.learn(facts("10.0.0.5"))
    scene.connections.tracked[:] = connections_to(EXTERNAL)
    scene.refused.append(BUSY)
    scene.learn(facts("10.0.0.6"))
    assert scene.connections.tracked == []
    message = "WARNING connections to a floating address stay with the workload that had it"
    assert scene.log.texts == [PROGRAMMED, f"{message} cause={BUSY}"]


def test_what_is_not_programmed_is_said_once() -> None:
    scene = Scene()
    scene.learn(facts("10.0.0.5", "10.0.0.6"))
    scene.learn(scene.known)
    cause = "203.0.113.1 of shop/10.0.0.6: shop/10.0.0.5 has it, whose address is lower"
    assert scene.log.texts == [PROGRAMMED, f"WARNING a floating address is not programmed cause={cause}"]
