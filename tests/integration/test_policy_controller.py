"""The controller of policy on a real kernel that refuses a change, or while its process is killed, in both families."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from attrs import define, evolve, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.addresses import find_interfaces
from netplug_backends.linux.conntrack import LinuxConnections
from netplug_backends.linux.nftables import NftablesRuleset
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.node.policy import ATTEMPTS, NodePolicy
from netplug_core.addressing import Family
from netplug_core.dataplane.filter import NO_OVERLAY
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import Chain, ChangeTable, Jump, Rule, TableChange
from netplug_core.datastore.feed import follow
from netplug_core.datastore.view import View
from netplug_core.policy.index import POLICY_KINDS
from netplug_core.policy.model import UDP
from netplug_core.policy.resolve import PolicyObject
from netplug_core.reconcile.controller import Controller, Outcome
from netplug_core.records import Create, Delete, Get, Key, Update, Write
from netplug_core.resources.fields import Metadata, PortRange
from netplug_core.resources.nodeconfiguration import NodeConfiguration
from netplug_core.resources.policyrule import EntityRule, PolicyRule, Protocol
from tests.harness.nat_scene import open_scene
from tests.harness.node import NetnsNode
from tests.harness.node_server import Lines
from tests.harness.policies import allow, deny, key_of, make_policy
from tests.harness.policy_flood import ALLOWED, DENIED, count, count_packets, flooded
from tests.harness.policy_node import GENERATED, OUTSIDE, namespace_profile, stored_pod
from tests.harness.policy_scene import PolicyScene
from tests.harness.waiting import deadline_in, wait_until

pytestmark = [pytest.mark.netns]

WEB, CLIENT = "app == 'web'", "app == 'client'"


class Killed(BaseException):
    """The process ends before a change."""


def as_it_is(change: TableChange) -> TableChange:
    """Nothing happens to a change."""
    return change


@define
class ScriptedKernel(NftablesRuleset):
    """The packet filter of a real kernel; ``script`` sees each change before it does."""

    script: Callable[[TableChange], TableChange] = field(default=as_it_is, kw_only=True)

    def apply(self, change: TableChange) -> None:
        NftablesRuleset.apply(self, self.script(change))


@define
class Controlled:
    """The scene, with the controller of the node ``here`` and a memory store."""

    scene: PolicyScene
    kernel: ScriptedKernel = field(factory=ScriptedKernel)
    store: MemoryDatastore = field(factory=lambda: MemoryDatastore(clock=SystemClock()))
    view: View = field(init=False)
    policy: NodePolicy = field(init=False)
    controller: Controller[object, object] = field(init=False)

    def restart(self) -> None:
        """A new process, which knows nothing."""
        self.view = View(clock=SystemClock(), uncached_kinds=frozenset())
        self.policy = NodePolicy(
            view=self.view,
            find_kinds=lambda: POLICY_KINDS,
            find_name=lambda: "here",
            find_overlay=lambda: NO_OVERLAY,
            find_interfaces=find_interfaces,
            ruleset=self.kernel,
            connections=LinuxConnections(),
            clock=SystemClock(),
            log=Lines(),
        )
        self.controller = self.policy.controller()  # type: ignore[assignment]

    def commit(self, *changes: tuple[PolicyObject, bool]) -> None:
        """Store objects, or delete those that have False."""
        for value, is_there in changes:
            key: Key[object] = key_of(value)
            found = self.store.read([Get(key)], deadline=deadline_in()).find(key)
            write: Write = Create(key, value) if found is None else Update(key, value, found.revision)
            if not is_there:
                assert found is not None
                write = Delete(key, found.revision)
            self.store.commit([write], deadline=deadline_in())

    def reconcile(self) -> Outcome:
        """See what is stored by now, and make a pass."""
        follow(self.store, self.view, POLICY_KINDS, deadline=deadline_in(0.01))
        with self.scene.nat.inside():
            return self.controller.reconcile(SystemClock(), lambda: True)

    def enforce(self, *values: PolicyObject) -> None:
        """Store objects, and make a pass that succeeds."""
        self.commit(*((value, True) for value in values))
        outcome = self.reconcile()
        assert not outcome.is_failed, outcome


@pytest.fixture(params=Family, ids=str)
def node_of(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[Controlled]:
    with open_scene(node, request.param) as nat:
        made = Controlled(PolicyScene(nat))
        made.restart()
        yield made


@pytest.fixture
def enforcing(node_of: Controlled) -> Controlled:
    """Both workloads are known, and nothing is denied."""
    settings = NodeConfiguration(metadata=Metadata(name="default"), spec=GENERATED)
    node_of.enforce(settings, namespace_profile("x"), stored_pod("web"), stored_pod("client"))
    return node_of


def to_port(port: int, make: Callable[..., PolicyRule] = allow) -> PolicyRule:
    """A rule about packets of UDP to a port."""
    return make(protocol=Protocol(UDP), destination=EntityRule(ports=(PortRange(port, port),)))


# --- refusals ---------------------------------------------------------------------------------------------------------


def with_fault(name: str, change: TableChange) -> TableChange:
    """The change, in which each chain that has a rule of a name jumps to one that is not there."""
    if not isinstance(change, ChangeTable):
        return change
    fault = Rule(statements=(Jump("nowhere"),), comment="a fault")

    def damaged(chain: Chain) -> Chain:
        has_rule = any(name in rule.comment for rule in chain.rules)
        return evolve(chain, rules=(*chain.rules, fault)) if has_rule else chain

    return evolve(
        change,
        new_chains=tuple(map(damaged, change.new_chains)),
        filled_chains=tuple(map(damaged, change.filled_chains)),
    )


def test_a_chain_that_the_kernel_refuses_closes_its_workload_alone(enforcing: Controlled) -> None:
    """P-67: the others are as policy says, and the next change too."""
    scene, at = enforcing.scene, enforcing.scene.nat.addresses
    web, client = scene.nat.web.name, scene.nat.client.name
    enforcing.kernel.script = partial(with_fault, "x/odd #")
    closed_to_web = make_policy("client", deny(source=EntityRule(selector=WEB)), allow(), selector=CLIENT)
    enforcing.commit((make_policy("odd", allow(), selector=WEB), True), (closed_to_web, True))
    assert [enforcing.reconcile().is_failed for _ in range(ATTEMPTS)] == [True] * ATTEMPTS
    assert enforcing.policy.status().closed == ("NetworkPolicy x/odd",)

    def ways() -> list[bool]:
        return [
            scene.passes(OUTSIDE, at.web, web),
            scene.passes(OUTSIDE, at.client, client),
            scene.passes(web, at.client, client),
        ]

    assert ways() == [False, True, False]
    enforcing.enforce(make_policy("client", allow(), selector=CLIENT))
    assert ways() == [False, True, True]
    enforcing.kernel.script = as_it_is
    enforcing.enforce(make_policy("odd", allow(), to_port(80), selector=WEB))
    assert ways() == [True, True, True]
    assert enforcing.policy.status().closed == ()


def test_where_the_kernel_refuses_everything_what_was_enforced_stays_in_force(enforcing: Controlled) -> None:
    scene, at = enforcing.scene, enforcing.scene.nat.addresses
    enforcing.enforce(make_policy("p", to_port(80), selector=WEB))

    def refuse(_change: TableChange) -> TableChange:
        raise KernelError("programming the packet filter", "Operation not permitted")

    enforcing.kernel.script = refuse
    enforcing.commit((make_policy("p", allow(), selector=WEB), True))
    for _ in range(ATTEMPTS):
        assert enforcing.reconcile().is_failed
        assert not scene.passes(OUTSIDE, at.web, scene.nat.web.name)
    assert enforcing.policy.status().obstacle == "policy is not programmed: the kernel refuses all of it"
    enforcing.kernel.script = as_it_is
    enforcing.enforce()
    assert scene.passes(OUTSIDE, at.web, scene.nat.web.name)
    assert enforcing.policy.status().obstacle == ""


# --- kills ------------------------------------------------------------------------------------------------------------


def test_a_process_that_is_killed_before_any_transaction_leaves_nothing_more_open(enforcing: Controlled) -> None:
    """A flood to a port that is closed before and after; at each step of A, B and C, until a change needs no more."""
    scene = enforcing.scene
    closing = to_port(DENIED, deny)
    states: list[tuple[tuple[PolicyObject, bool], ...]] = [
        ((make_policy("a", to_port(ALLOWED), selector=WEB), True),),
        ((make_policy("a"), False), (make_policy("b", closing, allow(), selector=WEB), True)),
        (
            (make_policy("b", to_port(80), to_port(ALLOWED), selector="all()"), True),
            (make_policy("c", to_port(81)), True),
        ),
        (
            (make_policy("c"), False),
            (make_policy("b", allow(), order=2.0), True),
            (make_policy("d", closing, order=1.0), True),
        ),
    ]
    count_packets(scene.node)
    enforcing.commit(*states[0])
    assert not enforcing.reconcile().is_failed
    killed = 0
    with flooded(scene):
        begun = count(scene)
        for changes in states[1:]:
            enforcing.commit(*changes)
            killed += pass_with_kills(enforcing)
        ended = count(scene)
        wait_until(lambda: count(scene).denied_in > ended.denied_in, "more packets come")
    found = count(scene).since(begun)
    assert killed > len(states)
    assert min(found.denied_in, found.allowed_out) > 0
    assert found.denied_out == 0


def pass_with_kills(enforcing: Controlled) -> int:
    """Make a pass whose process is killed before its first transaction, the next one's before its second, and so on.

    How often one was killed; the last was not.
    """
    killed = 0
    while True:
        left = iter(range(killed))

        def step(change: TableChange, left: Iterator[int] = left) -> TableChange:
            if next(left, None) is None:
                raise Killed
            return change

        enforcing.restart()
        enforcing.kernel.script = step
        try:
            outcome = enforcing.reconcile()
        except Killed:
            killed += 1
            continue
        assert not outcome.is_failed
        return killed
