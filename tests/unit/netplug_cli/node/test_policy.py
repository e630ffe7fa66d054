"""When policy is programmed, in which steps, what is said of it, and what stays in force when something fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_backends.memory.ruleset import (
    Fate,
    MemoryConnections,
    MemoryRuleset,
    MemoryRulesetEvents,
    TrackedConnection,
)
from netplug_cli.node.metrics import NodeMetrics
from netplug_cli.node.policy import (
    ATTEMPTS,
    MAX_PROBLEMS,
    READ_EVERY_S,
    RETRY_CLOSED_S,
    NetworkProfiles,
    NodePolicy,
    obstacles_of,
    table_events_controller,
)
from netplug_core.addressing import Address, InterfaceAddress
from netplug_core.clock import Deadline
from netplug_core.dataplane.filter import NO_OVERLAY, POLICY_TABLE, Overlay, guard_table
from netplug_core.dataplane.packetfilter import (
    REQUIREMENTS,
    DroppingChain,
    ForeignChange,
    ForeignChanges,
    MissingFeature,
)
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import HostAddress, HostInterface
from netplug_core.dataplane.ruleset import ChangeTable, DeleteTable, Hook, ObservedTable, TableChange
from netplug_core.datastore.feed import Damage, follow
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import MAX_CHANGES, View
from netplug_core.policy.index import POLICY_KINDS
from netplug_core.policy.model import Packet
from netplug_core.policy.resolve import PolicyObject
from netplug_core.reconcile.controller import Controller, Outcome, Problem
from netplug_core.records import Create, Delete, Get, Update, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.nodeconfiguration import EndpointToHostAction, NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.policyrule import EntityRule
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.metrics import value_of
from tests.harness.node_server import Lines
from tests.harness.policies import allow, key_of, make_host, make_pod, make_policy, make_profile, prefixes_of

A, B, OUTSIDE, NODE = "10.0.0.1", "10.0.0.2", "198.51.100.9", "192.0.2.1"
POD_A, POD_B = make_pod("a", A, "fd00::1", labels={"app": "a"}), make_pod("b", B, "fd00::2", labels={"app": "b"})
OPEN = make_profile("kns.x", allow())
ISOLATE_B = make_policy("isolate", selector="app == 'b'")
FROM_A = make_policy("isolate", allow(source=EntityRule(selector="app == 'a'")), selector="app == 'b'")
REFUSED = KernelError("programming the packet filter", "Invalid argument")
NOT_PROGRAMMED = "policy is not programmed: what was enforced before stays in force"


def interface(name: str, *addresses: str, is_up: bool = True) -> HostInterface:
    held = tuple(HostAddress(held=InterfaceAddress(Address.parse(each), 24)) for each in addresses)
    return HostInterface(name=name, index=1, is_up=is_up, mtu=1500, addresses=held)


@define
class ScriptedRuleset(MemoryRuleset):
    """A packet filter that refuses changes of which a test says so."""

    refuses: Callable[[TableChange], bool] = field(default=lambda _change: False, kw_only=True)

    def apply(self, change: TableChange) -> None:
        if self.refuses(change):
            raise REFUSED
        MemoryRuleset.apply(self, change)


class UnreadableRuleset(MemoryRuleset):
    """A packet filter that the process may not read."""

    def read(self, name: str) -> ObservedTable | None:
        raise REFUSED

    def count_packets(self, table: str, chain: str) -> int:
        raise REFUSED


@define
class PolicyHarness:
    """The controller of the node ``here``, a memory store that is followed when a test says so, and a memory kernel."""

    clock: ManualClock = field(factory=ManualClock)
    log: Lines = field(factory=Lines)
    ruleset: ScriptedRuleset = field(factory=ScriptedRuleset)
    connections: MemoryConnections = field(factory=MemoryConnections)
    interfaces: list[HostInterface] = field(factory=lambda: [interface("lo", "127.0.0.1"), interface("eth0", NODE)])
    name: str | None = "here"
    overlay: Overlay | None = NO_OVERLAY
    reported: list[tuple[str, ...]] = field(factory=list)
    report_problems: tuple[Problem, ...] = ()
    store: Datastore = field(init=False)
    view: View = field(init=False)
    policy: NodePolicy = field(init=False)
    controller: Controller[object, object] = field(init=False)
    outcome: Outcome = field(factory=Outcome, init=False)

    def __attrs_post_init__(self) -> None:
        self.store = MemoryDatastore(clock=self.clock)
        self.restart()

    def restart(self) -> None:
        """A new process, which knows nothing."""
        self.view = View(clock=self.clock, uncached_kinds=frozenset())
        self.policy = NodePolicy(
            view=self.view,
            find_kinds=lambda: POLICY_KINDS,
            find_name=lambda: self.name,
            find_overlay=lambda: self.overlay,
            find_interfaces=lambda: tuple(self.interfaces),
            ruleset=self.ruleset,
            connections=self.connections,
            clock=self.clock,
            log=self.log,
            report=self.report,
        )
        self.controller = self.policy.controller()  # type: ignore[assignment]
        self.ruleset.changes.clear()

    def report(self, endpoints: tuple[WorkloadEndpoint, ...]) -> tuple[Problem, ...]:
        self.reported.append(tuple(each.metadata.name for each in endpoints))
        return self.report_problems

    def put(self, *values: PolicyObject) -> None:
        """Store objects."""
        self._commit((each, False) for each in values)

    def remove(self, *values: PolicyObject) -> None:
        """Delete objects."""
        self._commit((each, True) for each in values)

    def _commit(self, changes: Iterable[tuple[PolicyObject, bool]]) -> None:
        deadline = Deadline.after(self.clock, 1.0)
        for value, is_removed in changes:
            key = key_of(value)
            found = self.store.read([Get(key)], deadline=deadline).find(key)
            write: Write = Create(key, value) if found is None else Update(key, value, found.revision)
            if is_removed:
                assert found is not None
                write = Delete(key, found.revision)
            self.store.commit([write], deadline=deadline)

    def follow(self) -> None:
        """See what is stored by now."""
        deadline = Deadline.after(self.clock, 0.001)
        follow(self.store, self.view, POLICY_KINDS, deadline=deadline, damage=Damage.PASSED_OVER)

    def reconcile(self) -> Outcome:
        """One pass."""
        self.outcome = self.controller.reconcile(self.clock, lambda: True)
        return self.outcome

    def enforce(self, *values: PolicyObject) -> list[TableChange]:
        """Store objects, see them, and make a pass that succeeds; the changes of the kernel."""
        self.ruleset.changes.clear()
        self.put(*values)
        self.follow()
        assert not self.reconcile().is_failed, self.outcome
        return list(self.ruleset.changes)

    def passes(self, source: str, destination: str, *, interfaces: tuple[str, str] = ("netpa", "netpb")) -> bool:
        """Whether a new packet passes the kernel's table."""
        packet = Packet(
            source=Address.parse(source),
            destination=Address.parse(destination),
            destination_port=80,
            input_interface=interfaces[0],
            output_interface=interfaces[1],
        )
        return self.ruleset.pass_packet(POLICY_TABLE, packet) is Fate.PASSED

    @property
    def texts(self) -> list[str]:
        """The problems of the last pass."""
        return [f"{each.message}: {each.cause}" for each in self.outcome.problems]

    @property
    def said(self) -> list[str]:
        """For which endpoints policy is said to be programmed."""
        return list(self.reported[-1])

    @property
    def table(self) -> ObservedTable | None:
        return self.ruleset.read(POLICY_TABLE)


@pytest.fixture
def harness() -> PolicyHarness:
    return PolicyHarness()


@pytest.fixture
def enforcing() -> PolicyHarness:
    """With two pods in force, of which one is isolated."""
    made = PolicyHarness()
    made.interfaces += [interface("netpa"), interface("netpb")]
    made.enforce(OPEN, POD_A, POD_B, ISOLATE_B)
    return made


# --- the start --------------------------------------------------------------------------------------------------------


def test_the_guard_comes_first_where_no_workload_runs(harness: PolicyHarness) -> None:
    assert not harness.reconcile().is_failed
    assert harness.table is not None
    assert {each.name for each in harness.table.chains} == {each.name for each in guard_table().chains}
    assert not harness.passes(A, B)
    assert harness.policy.status().obstacle == "policy is not programmed yet: not all of its objects have been listed"
    harness.enforce(OPEN, POD_A, POD_B)
    assert harness.passes(A, B)
    assert harness.policy.status().obstacle == ""
    assert [text.split()[1:4] for text in harness.log.texts] == [["the", "guard", "is"], ["policy", "is", "programmed"]]


def test_workloads_that_run_without_a_table_are_left_alone_until_everything_is_listed(harness: PolicyHarness) -> None:
    harness.interfaces.append(interface("netpa"))
    harness.reconcile()
    assert harness.table is None
    harness.enforce(OPEN, POD_A, POD_B, ISOLATE_B)
    assert not harness.passes(A, B)
    assert harness.passes(B, A, interfaces=("netpb", "netpa"))


@pytest.mark.parametrize("missing", ["name", "overlay", "objects"])
def test_nothing_is_programmed_before_everything_is_known(enforcing: PolicyHarness, missing: str) -> None:
    enforcing.restart()
    before = enforcing.table
    enforcing.name = None if missing == "name" else "here"
    enforcing.overlay = None if missing == "overlay" else NO_OVERLAY
    if missing != "objects":
        enforcing.follow()
    assert not enforcing.reconcile().is_failed
    assert (enforcing.ruleset.changes, enforcing.table) == ([], before)
    assert enforcing.policy.status().obstacle
    assert enforcing.reported[1:] == [], "whether policy is programmed is not known"


def test_a_restart_writes_nothing_if_nothing_has_changed(enforcing: PolicyHarness) -> None:
    enforcing.restart()
    assert enforcing.enforce() == []
    assert enforcing.policy.status().obstacle == ""
    assert enforcing.policy.counts.transactions == {}


def test_what_has_changed_while_no_process_ran_is_made_up_for(enforcing: PolicyHarness) -> None:
    enforcing.remove(POD_A)
    enforcing.put(make_pod("c", "10.0.0.3", labels={"app": "a"}), FROM_A)
    connection = TrackedConnection(source=Address.parse(A), destination=Address.parse(OUTSIDE))
    enforcing.connections.tracked.append(connection)
    enforcing.restart()
    enforcing.enforce()
    assert enforcing.passes("10.0.0.3", B, interfaces=("netpc", "netpb"))
    assert not enforcing.passes(A, OUTSIDE, interfaces=("netpa", "eth0"))
    assert enforcing.connections.tracked == [], "the address is free for another one"


# --- changes ----------------------------------------------------------------------------------------------------------


def test_policies_are_followed(enforcing: PolicyHarness) -> None:
    assert not enforcing.passes(A, B)
    enforcing.enforce(FROM_A)
    assert enforcing.passes(A, B)
    assert not enforcing.passes(OUTSIDE, B, interfaces=("eth0", "netpb"))
    enforcing.remove(FROM_A)
    enforcing.enforce()
    assert enforcing.passes(OUTSIDE, B, interfaces=("eth0", "netpb"))
    assert enforcing.policy.status().policies == 0


def test_a_pass_without_news_writes_nothing(enforcing: PolicyHarness) -> None:
    assert enforcing.enforce() == []
    enforcing.clock.sleep(2 * READ_EVERY_S)
    assert enforcing.enforce() == []


def test_the_members_of_a_set_change_alone(enforcing: PolicyHarness) -> None:
    enforcing.enforce(FROM_A)
    changes = enforcing.enforce(make_pod("other", "10.9.9.9", node="n2", labels={"app": "a"}))
    assert [type(each) for each in changes] == [ChangeTable]
    (change,) = changes
    assert isinstance(change, ChangeTable)
    assert (change.new_chains, change.filled_chains, [len(each.elements) for each in change.added]) == ((), (), [1])


def test_a_reader_that_is_far_behind_misses_no_deletion(enforcing: PolicyHarness) -> None:
    enforcing.remove(POD_B)
    for number in range(MAX_CHANGES + 1):
        enforcing.put(make_profile(f"p{number}"))
    enforcing.enforce()
    assert enforcing.policy.status().endpoints == 1


def test_another_name_of_the_node_is_another_set_of_workloads(enforcing: PolicyHarness) -> None:
    enforcing.policy.note_attached("netpa", "c1")
    enforcing.name = "n2"
    enforcing.enforce(make_pod("other", "10.9.9.9", node="n2"))
    assert enforcing.policy.status().endpoints == 1
    assert not enforcing.passes(B, A, interfaces=("netpb", "netpa"))


def test_a_host_endpoint_governs_the_interface_that_has_its_address(enforcing: PolicyHarness) -> None:
    enforcing.enforce(make_host("node", "", NODE))
    assert enforcing.policy.status().host_endpoints == 1
    assert not enforcing.passes(OUTSIDE, NODE, interfaces=("eth0", ""))
    enforcing.interfaces[1:2] = [interface("eth0"), interface("eth1", NODE)]
    enforcing.policy.note_interface_change()
    enforcing.enforce()
    assert enforcing.passes(OUTSIDE, NODE, interfaces=("eth0", ""))
    assert not enforcing.passes(OUTSIDE, NODE, interfaces=("eth1", ""))


def test_wrapped_packets_of_nodes_are_let_in(enforcing: PolicyHarness) -> None:
    enforcing.overlay = Overlay(vxlan_port=4789, nodes=frozenset({Address.parse("192.0.2.2")}))
    assert enforcing.enforce() != []
    assert enforcing.table is not None
    assert "nodes-v4" in {each.name for each in enforcing.table.sets}
    enforcing.overlay = None
    assert enforcing.enforce() == [], "what is not known any more is as before"


def test_a_change_that_cannot_be_calculated_is_calculated_from_scratch(enforcing: PolicyHarness) -> None:
    broken = evolve(POD_A, metadata=evolve(POD_A.metadata, labels=None))  # type: ignore[arg-type]
    enforcing.put(broken)
    enforcing.follow()
    assert enforcing.reconcile().is_failed
    enforcing.enforce(POD_A, FROM_A)
    assert enforcing.passes(A, B)


# --- attachments and what is said of them -----------------------------------------------------------------------------


def test_policy_is_said_to_be_programmed_once_it_is_and_the_interface_is_up(enforcing: PolicyHarness) -> None:
    assert enforcing.reported == [("a", "b")]
    enforcing.interfaces[-1] = interface("netpb", is_up=False)
    enforcing.policy.note_interface_change()
    enforcing.enforce()
    assert enforcing.reported[1:] == [("a",)]
    enforcing.enforce()
    assert enforcing.reported[2:] == [], "there is nothing new"
    enforcing.clock.sleep(READ_EVERY_S)
    enforcing.enforce()
    assert enforcing.reported[2:] == [("a",)], "a file that is lost is restored"


def test_of_two_endpoints_on_an_interface_that_of_the_container_counts_which_was_attached(
    enforcing: PolicyHarness,
) -> None:
    second = make_pod("z", "10.0.0.9", interface_name="netpb", container_id="c2")
    enforcing.enforce(second)
    assert enforcing.said == ["a", "b"]
    enforcing.policy.note_attached("netpb", "c2")
    enforcing.enforce()
    assert enforcing.said == ["a", "z"]
    enforcing.policy.note_attached("netpb", "c3")
    enforcing.enforce()
    assert enforcing.said == ["a"], "the endpoint of the new container is not known yet"
    enforcing.policy.note_detached("netpb", "c2")
    enforcing.enforce()
    assert enforcing.said == ["a"], "it is another one's by now"
    enforcing.policy.note_detached("netpb", "c3")
    enforcing.enforce()
    assert enforcing.said == ["a", "b"]


def test_what_cannot_be_said_is_a_problem_until_it_can(enforcing: PolicyHarness) -> None:
    problem = Problem(message="status files cannot be written", cause="read-only")
    enforcing.report_problems = (problem,)
    enforcing.put(make_pod("c", "10.0.0.3"))
    enforcing.follow()
    enforcing.interfaces.append(interface("netpc"))
    enforcing.policy.note_interface_change()
    enforcing.reconcile()
    assert (enforcing.outcome.is_failed, enforcing.outcome.problems) == (True, (problem,))
    assert enforcing.passes("10.0.0.3", A, interfaces=("netpc", "netpa")), "policy is programmed all the same"
    enforcing.enforce()
    assert enforcing.texts == ["status files cannot be written: read-only"]
    enforcing.report_problems = ()
    enforcing.clock.sleep(READ_EVERY_S)
    enforcing.enforce()
    enforcing.enforce()
    assert enforcing.texts == []


def test_the_connections_of_who_is_gone_are_forgotten(enforcing: PolicyHarness) -> None:
    own = [TrackedConnection(source=Address.parse(each), destination=Address.parse(OUTSIDE)) for each in (A, B)]
    enforcing.connections.tracked += own
    enforcing.remove(POD_A)
    enforcing.enforce()
    assert enforcing.connections.tracked == own[1:]


def test_connections_that_cannot_be_forgotten_are_tried_again(enforcing: PolicyHarness) -> None:
    class Refusing(MemoryConnections):
        refusals = 1

        def forget_workloads(self, addresses: Iterable[Address]) -> int:
            self.refusals -= 1
            if self.refusals >= 0:
                raise REFUSED
            return MemoryConnections.forget_workloads(self, addresses)

    connections = Refusing([TrackedConnection(source=Address.parse(A), destination=Address.parse(OUTSIDE))])
    enforcing.policy.connections = connections
    enforcing.remove(POD_A)
    enforcing.follow()
    enforcing.reconcile()
    assert enforcing.texts == [f"connections of a workload that is gone are not forgotten: {REFUSED}"]
    assert not enforcing.reconcile().is_failed
    assert connections.tracked == []


# --- what others do ---------------------------------------------------------------------------------------------------


def test_a_table_that_others_remove_is_guarded_first_and_made_again(enforcing: PolicyHarness) -> None:
    steps: list[bool] = []
    enforcing.ruleset.flush()
    enforcing.ruleset.changes.clear()
    enforcing.ruleset.on_step = lambda: steps.append(enforcing.passes(OUTSIDE, B, interfaces=("eth0", "netpb")))
    change = ForeignChange("nft", frozenset({POLICY_TABLE}))
    assert enforcing.policy.note_foreign_changes(ForeignChanges(changes=(change,)))
    enforcing.enforce()
    assert not enforcing.passes(A, B)
    assert enforcing.passes(B, A, interfaces=("netpb", "netpa"))
    line = "WARNING another program has removed the table of policy: it is programmed again program=nft"
    assert line in enforcing.log.texts
    assert enforcing.policy.counts.foreign == {("nft",): 1}


def test_a_rule_of_another_program_is_removed(enforcing: PolicyHarness) -> None:
    before = enforcing.table
    enforcing.ruleset.add_rule(POLICY_TABLE, "filter-forward", is_first=True)
    assert enforcing.enforce() == [], "nothing has said so"
    enforcing.clock.sleep(READ_EVERY_S)
    changes = enforcing.enforce()
    assert [len(each.filled_chains) for each in changes if isinstance(each, ChangeTable)] == [1]
    assert enforcing.table == before
    assert enforcing.policy.counts.foreign == {("unknown",): 1}
    assert any(text.endswith("it is programmed again program=unknown") for text in enforcing.log.texts)


def test_what_another_program_does_while_the_table_is_read_is_read_again(enforcing: PolicyHarness) -> None:
    before, ruleset = enforcing.table, enforcing.ruleset
    lost, left = ForeignChanges(were_lost=True), [True]

    @define
    class Interrupted:
        """A rule is added, and notified of, right after the first reading."""

        def apply(self, change: TableChange) -> None:
            ruleset.apply(change)

        def read(self, name: str) -> ObservedTable | None:
            observed = ruleset.read(name)
            if left:
                left.clear()
                ruleset.add_rule(POLICY_TABLE, "filter-forward", is_first=True)
                enforcing.policy.note_foreign_changes(lost)
            return observed

        def count_packets(self, table: str, chain: str) -> int:
            return ruleset.count_packets(table, chain)

    enforcing.policy.ruleset = Interrupted()
    enforcing.policy.note_foreign_changes(lost)
    enforcing.reconcile()
    assert enforcing.table != before
    enforcing.reconcile()
    assert enforcing.table == before


def test_what_policy_cannot_overrule_is_a_problem_as_long_as_it_is_there(enforcing: PolicyHarness) -> None:
    chain = DroppingChain(family="ip", table="filter", name="FORWARD", hook=Hook.FORWARD)
    missing = MissingFeature(REQUIREMENTS[0], KernelError("programming the packet filter", "No such file or directory"))
    enforcing.policy.find_obstacles = lambda: obstacles_of((missing,), (chain,))
    enforcing.clock.sleep(READ_EVERY_S)
    enforcing.reconcile()
    lacking, dropping = enforcing.texts
    assert lacking.endswith(f": {missing}")
    assert dropping.startswith("another program may drop packets that policy allows: the chain FORWARD of the table ip")
    assert dropping.endswith(f"to change that: {chain.remedy}")
    enforcing.policy.find_obstacles = lambda: ()
    enforcing.clock.sleep(READ_EVERY_S)
    enforcing.reconcile()
    assert enforcing.texts == []


def test_what_others_do_to_other_tables_is_not_looked_at(enforcing: PolicyHarness) -> None:
    other = ForeignChanges(changes=(ForeignChange("nft", frozenset({"filter"})),))
    assert not enforcing.policy.note_foreign_changes(other)
    assert enforcing.policy.note_foreign_changes(ForeignChanges(were_lost=True))
    assert enforcing.enforce() == []


def test_programs_beyond_a_number_have_no_series_of_their_own(enforcing: PolicyHarness) -> None:
    for number in range(100):
        enforcing.policy.counts.add_foreign(f"program {number}")
    assert len(enforcing.policy.counts.foreign) <= 21
    assert enforcing.policy.counts.foreign["unknown",] == 80


def test_changes_of_others_are_waited_for(enforcing: PolicyHarness) -> None:
    events, seen = MemoryRulesetEvents(), list[ForeignChanges]()
    controller = table_events_controller(events, seen.append, clock=enforcing.clock)
    events.notify("nft", POLICY_TABLE)
    assert controller.reconcile(enforcing.clock, lambda: True).look_again_s == 0.0
    assert [each.programs(POLICY_TABLE) for each in seen] == [("nft",)]
    controller.interrupt()
    assert controller.reconcile(enforcing.clock, lambda: True).look_again_s is None
    assert len(seen) == 1


# --- what the kernel refuses ------------------------------------------------------------------------------------------


def names_of(change: TableChange) -> Iterator[str]:
    if isinstance(change, ChangeTable):
        yield from (each.name for each in (*change.new_chains, *change.filled_chains) if each.rules)
        yield from (each.name for each in change.new_sets)


def test_a_change_that_is_refused_once_is_tried_again(enforcing: PolicyHarness) -> None:
    refusals = iter([True])
    enforcing.ruleset.refuses = lambda _change: next(refusals, False)
    enforcing.put(FROM_A)
    enforcing.follow()
    enforcing.reconcile()
    assert enforcing.texts == [f"{NOT_PROGRAMMED}: {REFUSED}"]
    assert not enforcing.passes(A, B)
    assert not enforcing.reconcile().is_failed
    assert enforcing.passes(A, B)
    assert {result for _, result in enforcing.policy.counts.transactions} == {"applied", "refused"}


def test_a_policy_that_the_kernel_refuses_is_closed_and_the_others_are_programmed(enforcing: PolicyHarness) -> None:
    pod = make_pod("c", "10.0.0.3", labels={"app": "c"})
    nets = prefixes_of("203.0.113.0/24", "192.0.2.0/24")
    odd = make_policy("odd", allow(source=EntityRule(nets=nets)), selector="app == 'c'")
    enforcing.ruleset.refuses = lambda change: any(name.startswith("n4-") for name in names_of(change))
    enforcing.interfaces.append(interface("netpc"))
    enforcing.policy.note_interface_change()
    enforcing.put(odd, FROM_A, pod)
    enforcing.follow()
    for _ in range(ATTEMPTS):
        assert enforcing.reconcile().is_failed
    cause = "NetworkPolicy x/odd: Invalid argument"
    assert enforcing.texts == [f"the kernel refuses a part of policy: it lets nothing pass: {cause}"]
    assert enforcing.passes(A, B), "the other policy is programmed"
    assert not enforcing.passes("203.0.113.5", "10.0.0.3", interfaces=("eth0", "netpc"))
    assert enforcing.policy.status().closed == ("NetworkPolicy x/odd",)
    assert enforcing.policy.status().obstacle == ""
    assert enforcing.said == ["a", "b"], "of the third one, it is not said"
    assert not enforcing.reconcile().is_failed
    assert len(enforcing.texts) == 1, "the problem lasts"
    enforcing.ruleset.refuses = lambda _change: False
    enforcing.clock.sleep(RETRY_CLOSED_S)
    enforcing.enforce()
    assert enforcing.passes("203.0.113.5", "10.0.0.3", interfaces=("eth0", "netpc"))
    assert enforcing.policy.status().closed == ()
    enforcing.enforce()
    assert enforcing.texts == []


def test_a_part_that_is_refused_again_stays_closed_alone(enforcing: PolicyHarness) -> None:
    enforcing.ruleset.refuses = lambda change: any(name.startswith("s4-") for name in names_of(change))
    enforcing.put(FROM_A)
    enforcing.follow()
    for _ in range(ATTEMPTS):
        assert enforcing.reconcile().is_failed
    enforcing.clock.sleep(RETRY_CLOSED_S)
    for _ in range(ATTEMPTS):
        assert enforcing.reconcile().is_failed
        assert enforcing.passes(B, A, interfaces=("netpb", "netpa"))
        assert not enforcing.passes(A, B)
    assert enforcing.policy.status().closed == ("NetworkPolicy x/isolate",)
    assert not enforcing.reconcile().is_failed
    assert enforcing.policy.status().obstacle == ""


def test_changes_of_other_nodes_cost_no_look_at_the_table(enforcing: PolicyHarness) -> None:
    rendered = enforcing.policy.find_wanted()
    enforcing.enforce(make_pod("other", "10.9.9.9", node="n2"))
    assert enforcing.policy.find_wanted() is rendered
    enforcing.enforce(
        make_pod("b", B, "fd00::2", labels={"app": "b"}, ports=()), make_policy("other", selector="app == 'x'")
    )
    assert enforcing.policy.find_wanted() is rendered
    enforcing.enforce(FROM_A)
    assert enforcing.policy.find_wanted() is not rendered


def test_interfaces_that_cannot_be_listed_are_looked_at_again(enforcing: PolicyHarness) -> None:
    failing = iter([True])

    def find_interfaces() -> tuple[HostInterface, ...]:
        if next(failing, False):
            raise REFUSED
        return tuple(enforcing.interfaces)

    enforcing.policy.find_interfaces = find_interfaces
    enforcing.policy.note_interface_change()
    enforcing.interfaces[-1] = interface("netpb", is_up=False)
    assert enforcing.reconcile().is_failed
    enforcing.enforce()
    assert enforcing.said == ["a"]


def test_a_policy_that_is_changed_is_tried_at_once(enforcing: PolicyHarness) -> None:
    enforcing.ruleset.refuses = lambda change: any(name.startswith("s4-") for name in names_of(change))
    enforcing.put(FROM_A)
    enforcing.follow()
    for _ in range(ATTEMPTS):
        assert enforcing.reconcile().is_failed
    assert enforcing.policy.status().closed == ("NetworkPolicy x/isolate",)
    enforcing.enforce(make_policy("isolate", allow(), selector="app == 'b'"))
    assert enforcing.passes(A, B)
    assert enforcing.policy.status().closed == ()


def test_where_everything_is_refused_from_the_start_that_is_what_is_said() -> None:
    harness = PolicyHarness()
    harness.ruleset.refuses = lambda _change: True
    harness.interfaces += [interface("netpa")]  # so that no guard is made
    harness.put(OPEN, POD_A)
    harness.follow()
    for _ in range(ATTEMPTS):
        assert harness.reconcile().is_failed
    assert harness.policy.status().obstacle == "policy is not programmed: the kernel refuses all of it"


def test_where_everything_is_refused_the_process_is_not_ready_and_tries_on(enforcing: PolicyHarness) -> None:
    before = enforcing.table
    enforcing.ruleset.refuses = lambda _change: True
    enforcing.put(FROM_A, make_pod("c", "10.0.0.3"))
    enforcing.follow()
    for _ in range(2 * ATTEMPTS):
        assert enforcing.reconcile().is_failed
    assert enforcing.policy.status().obstacle == "policy is not programmed: the kernel refuses all of it"
    assert enforcing.table == before
    enforcing.ruleset.refuses = lambda _change: False
    enforcing.enforce()
    assert enforcing.policy.status().obstacle == ""
    assert enforcing.passes(A, B)


def test_a_kernel_that_cannot_be_read_is_changed_by_no_guess(enforcing: PolicyHarness) -> None:
    enforcing.policy.ruleset = UnreadableRuleset()
    enforcing.clock.sleep(READ_EVERY_S)
    enforcing.put(FROM_A)
    enforcing.follow()
    enforcing.reconcile()
    assert enforcing.texts == [f"{NOT_PROGRAMMED}: {REFUSED}"]


@pytest.mark.parametrize("killed_at", range(6))
def test_a_process_that_is_killed_at_any_step_leaves_nothing_more_open(
    enforcing: PolicyHarness, killed_at: int
) -> None:
    """And the next one goes on from there."""
    left = iter(range(killed_at))

    def is_killed(_change: TableChange) -> bool:
        return next(left, None) is None

    families = ((A, B, OUTSIDE), ("fd00::1", "fd00::2", "2001:db8::9"))
    ways = [
        way
        for a, b, outside in families
        for way in ((a, b, ("netpa", "netpb")), (outside, b, ("eth0", "netpb")), (outside, a, ("eth0", "netpa")))
    ]

    def open_ways() -> set[tuple[str, str]]:
        return {(source, to) for source, to, both in ways if enforcing.passes(source, to, interfaces=both)}

    before = open_ways()
    enforcing.ruleset.refuses = is_killed
    enforcing.put(FROM_A, make_policy("all", selector="app == 'a'"))
    enforcing.follow()
    enforcing.reconcile()
    meanwhile = open_ways()
    enforcing.ruleset.refuses = lambda _change: False
    enforcing.restart()
    enforcing.enforce()
    assert open_ways() == {(a, b) for a, b, _ in families}
    assert meanwhile <= before | open_ways()


def test_a_policy_that_cannot_be_read_opens_nothing(enforcing: PolicyHarness) -> None:
    """What was known of it stays in force; where nothing is known, all is closed that it may close. Others go on."""
    sound, key = enforcing.store, key_of(ISOLATE_B)
    enforcing.store = DamagedDatastore(sound, damage={key: b"{"})
    far, kns = make_pod("f", "10.0.0.9", namespace="y"), make_profile("kns.y", allow())
    enforcing.interfaces.append(interface("netpf"))
    enforcing.policy.note_interface_change()
    enforcing.view.lose({key.kind})
    enforcing.enforce(far, kns)
    assert (enforcing.passes(A, B), enforcing.passes(B, A, interfaces=("netpb", "netpa"))) == (False, True)
    assert enforcing.passes(A, "10.0.0.9", interfaces=("netpa", "netpf"))
    enforcing.restart()
    enforcing.enforce()
    assert (enforcing.passes(A, B), enforcing.passes(B, A, interfaces=("netpb", "netpa"))) == (False, False)
    assert enforcing.passes(OUTSIDE, "10.0.0.9", interfaces=("eth0", "netpf")), "it is another namespace's"
    text = "NetworkPolicy x/isolate: cannot be read: the endpoints that it may be for are closed"
    assert enforcing.texts == [f"a part of a policy is not enforced as it stands: {text}"]
    enforcing.enforce(make_policy("other", selector="all()", namespace="y"))
    assert not enforcing.passes(OUTSIDE, "10.0.0.9", interfaces=("eth0", "netpf"))
    enforcing.store = sound
    enforcing.enforce()
    assert (enforcing.passes(A, B), enforcing.passes(B, A, interfaces=("netpb", "netpa"))) == (False, True)
    assert enforcing.texts == []


def test_rules_that_cannot_be_enforced_are_named_and_beyond_a_number_counted(enforcing: PolicyHarness) -> None:
    spoofing = [
        make_pod(f"s{number}", f"10.1.0.{number}", allowed_source_prefixes=("10.7.0.0/24",)) for number in range(1, 31)
    ]
    enforcing.enforce(*spoofing)
    assert len(enforcing.texts) == MAX_PROBLEMS + 1
    assert enforcing.texts[-1] == f"a part of a policy is not enforced as it stands: and {30 - MAX_PROBLEMS} more"
    assert len(enforcing.policy.status().problems) == MAX_PROBLEMS + 1


# --- profiles of networks ---------------------------------------------------------------------------------------------


def test_the_profile_of_a_network_is_stored_where_it_is_missing(enforcing: PolicyHarness) -> None:
    missing: list[bool] = []
    enforcing.policy.on_missing = lambda: missing.append(True)
    store: Datastore | None = None
    profiles = NetworkProfiles(policy=enforcing.policy, find_datastore=lambda: store, log=enforcing.log).controller()
    enforcing.enforce(make_pod("c", "10.0.0.3", profiles=("net1",)))
    assert missing == [True]
    assert not enforcing.passes("10.0.0.3", OUTSIDE, interfaces=("netpc", "eth0"))
    assert not profiles.reconcile(enforcing.clock, lambda: True).is_failed, "the datastore is away"
    store = enforcing.store
    for _ in range(2):
        assert not profiles.reconcile(enforcing.clock, lambda: True).is_failed
    assert enforcing.log.texts[-1] == "INFO the profile of a network is stored profile=net1", "once"
    enforcing.enforce()
    assert enforcing.passes("10.0.0.3", OUTSIDE, interfaces=("netpc", "eth0"))
    assert enforcing.policy.missing_profiles == ()
    profiles.act(make_profile("lab"), Deadline.after(enforcing.clock, 1.0))
    store = None
    profiles.act(make_profile("other"), Deadline.after(enforcing.clock, 1.0))
    assert enforcing.log.texts[-1] == "INFO the profile of a network is stored profile=lab"


# --- what metrics are of ----------------------------------------------------------------------------------------------


def test_the_age_of_what_is_known_grows_while_the_store_is_away(enforcing: PolicyHarness) -> None:
    enforcing.clock.sleep(5.0)
    enforcing.follow()
    enforcing.reconcile()
    assert enforcing.policy.find_age_s() < 1.0
    enforcing.view.lose(frozenset(POLICY_KINDS))
    enforcing.clock.sleep(60.0)
    assert 60.0 <= enforcing.policy.find_age_s() < 61.0
    enforcing.restart()
    assert enforcing.policy.find_age_s() == float("inf")


def test_the_kernel_is_compared_with_what_was_programmed(enforcing: PolicyHarness) -> None:
    assert enforcing.policy.check() == enforcing.policy.status()
    enforcing.ruleset.add_rule(POLICY_TABLE, "filter-forward")
    assert [(each.part, each.difference) for each in enforcing.policy.check().differences] == [
        ("chain filter-forward", "has other rules")
    ]
    enforcing.policy.ruleset = UnreadableRuleset()
    assert [(each.part, each.difference) for each in enforcing.policy.check().differences] == [
        ("table netplug", str(REFUSED))
    ]
    enforcing.restart()
    assert enforcing.policy.check().obstacle


def test_a_state_that_changes_while_it_is_compared_is_not_at_fault(enforcing: PolicyHarness) -> None:
    class Changing(ScriptedRuleset):
        def read(self, name: str) -> ObservedTable | None:
            enforcing.policy.ruleset = enforcing.ruleset
            enforcing.enforce(FROM_A)
            return None

    enforcing.policy.ruleset = Changing()
    assert enforcing.policy.check().differences == ()


def test_metrics_are_read_from_what_is_enforced(enforcing: PolicyHarness) -> None:
    metrics = NodeMetrics("1.0.0")
    metrics.add_policy(enforcing.policy)
    enforcing.policy.counts.add_foreign("nft")
    text = metrics.render()
    assert value_of(text, 'netplug_policy_endpoints{state="programmed"}') == 2
    assert value_of(text, 'netplug_policy_endpoints{state="other"}') == 0
    assert value_of(text, 'netplug_policy_foreign_changes_total{program="nft"}') == 1
    assert value_of(text, 'netplug_policy_transactions_total{phase="create",result="applied"}') == 1
    assert value_of(text, "netplug_policy_source_guard_drops_total") == 0
    assert not enforcing.passes(NODE, B, interfaces=("netpa", "netpb"))
    assert value_of(metrics.render(), "netplug_policy_source_guard_drops_total") == 1
    for name in ("sets", "members", "closed_parts", "unconvertible_rules", "shared_addresses"):
        assert value_of(text, f"netplug_policy_{name}") == 0
    assert value_of(text, "netplug_policy_snapshot_age_seconds") == enforcing.policy.find_age_s()


def test_packets_that_the_kernel_does_not_count_have_no_value(enforcing: PolicyHarness) -> None:
    metrics = NodeMetrics("1.0.0")
    metrics.add_policy(enforcing.policy)
    enforcing.policy.ruleset = UnreadableRuleset()
    assert value_of(metrics.render(), "netplug_policy_source_guard_drops_total") is None


def test_what_is_enforced_is_counted(enforcing: PolicyHarness) -> None:
    enforcing.enforce(FROM_A, make_pod("c", A))
    status, counts = enforcing.policy.status(), enforcing.policy.count_problems()
    assert (status.sets, status.members, status.endpoints, status.programmed) == (1, 2, 3, 2)
    assert (counts.unconvertible, counts.shared_addresses) == (0, 1)
    enforcing.restart()
    assert enforcing.policy.status().members == 0


def test_a_policy_of_the_host_decides_about_packets_of_workloads_to_it(enforcing: PolicyHarness) -> None:
    assert not enforcing.passes(A, NODE, interfaces=("netpa", ""))
    spec = NodeConfigurationSpec(endpoint_to_host_action=EndpointToHostAction.ACCEPT)
    enforcing.enforce(NodeConfiguration(metadata=Metadata(name="default"), spec=spec))
    assert enforcing.passes(A, NODE, interfaces=("netpa", ""))


def test_a_table_that_is_gone_before_anything_is_known_is_guarded(enforcing: PolicyHarness) -> None:
    enforcing.restart()
    enforcing.reconcile()
    enforcing.ruleset.apply(DeleteTable(POLICY_TABLE))
    enforcing.policy.note_foreign_changes(ForeignChanges(were_lost=True))
    enforcing.reconcile()
    assert enforcing.table is not None
    assert not enforcing.passes(B, A, interfaces=("netpb", "netpa")), "what was policed is not open"
