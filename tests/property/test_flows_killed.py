"""Laws of flows whose process dies, as by ``kill -9``: after any write to the store, before any effect on the kernel.

1. ADD killed anywhere, then DEL: nothing of it is left, and the node's other container notices nothing.
2. ADD killed anywhere, then GC once the runtime has given the namespace up: the same.
3. ADD killed anywhere, then ADD again: it succeeds with one address of each family, or says that the interface is
   there already; DEL leaves nothing either way.
4. ADD killed anywhere, then resumed: the whole result, with the addresses that were held; then DEL leaves nothing.
5. DEL killed anywhere, then DEL; GC killed anywhere, then GC: nothing left.
6. Every flow may be run twice, and the second time changes nothing.

Stores come in both sorts: all of a commit or nothing, and any prefix of it. On the second sort GC may leave a handle
that holds nothing: it starts from addresses, and handles are written before and removed after them. The collector's
business, or the next DEL's.
"""

from collections.abc import Callable, Sequence

import pytest
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.result import CNIResult
from netplug_core.dataplane.protocol import LinkExists
from netplug_core.datastore.protocol import Atomicity
from netplug_core.records import Query, Revision, Snapshot, Write
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import FaultyDatastore, ProcessDeath, ProcessDied
from tests.harness.cni_node import DEFAULT_CONTAINER, DUAL_STACK, POD, CNINodeHarness, ContainerInterface
from tests.harness.stores import StoreWrapper

OTHER = ContainerInterface(id="other", netns="/run/netns/other")
BRIDGE = {"type": "bridge", "nodename": "node-1"}
IPAMS: tuple[dict[str, object], ...] = (
    {"type": "netplug-ipam"},
    {"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true"},
    DUAL_STACK,
)


# --- a process that dies -------------------------------------------------------------------------------------------


@define
class ProcessLifetime:
    """How many effects a process survives. A dead one has no effects, not even those of its handlers."""

    effects: int
    is_dead: bool = False

    def ends_here(self) -> bool:
        """Count one effect; true if the process dies instead of having it."""
        self.require_alive()
        self.is_dead = self.effects == 0
        self.effects -= 1
        return self.is_dead

    def require_alive(self) -> None:
        """Whatever a living process may do and a dead one does not."""
        if self.is_dead:
            raise ProcessDied

    def effect(self, _what: str = "") -> None:
        """An effect that happens or does not."""
        if self.ends_here():
            raise ProcessDied


@define
class DyingStore(StoreWrapper):
    """A store as one process sees it that may die before, within (ordered stores) and after any commit."""

    lifetime: ProcessLifetime

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.lifetime.require_alive()
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        is_atomic = self.description.atomicity is Atomicity.ATOMIC
        for applied in (0, len(writes)) if is_atomic else range(len(writes) + 1):
            if self.lifetime.ends_here():
                FaultyDatastore(self.inner, {1: ProcessDeath(applied)}).commit(writes, deadline=deadline)
        return self.inner.commit(writes, deadline=deadline)


# --- a node, and what happens to it --------------------------------------------------------------------------------


@frozen(kw_only=True)
class KilledFlowScenario:
    """Who is attached how, on which sort of store, and whether it was attached before in another namespace."""

    container: ContainerInterface = DEFAULT_CONTAINER
    ipam: dict[str, object] = DUAL_STACK
    mode: MemoryMode = MemoryMode.ATOMIC
    is_repetition: bool = False


SCENARIOS = st.builds(
    KilledFlowScenario,
    container=st.builds(ContainerInterface, ifname=st.sampled_from(("eth0", "net0")), args=st.sampled_from(("", POD))),
    ipam=st.sampled_from(IPAMS),
    mode=st.sampled_from(MemoryMode),
    is_repetition=st.booleans(),
)
# Every effect of every scenario has a number below this; a longer life sees the end of the flow.
LIFETIMES = st.integers(0, 60)
STORES = pytest.mark.parametrize("mode", list(MemoryMode))


@define
class KilledFlowNode:
    """A node with one container attached for good, and the scenario's in some state."""

    scenario: KilledFlowScenario
    harness: CNINodeHarness = field(init=False)
    unaffected_result: CNIResult = field(init=False)

    def __attrs_post_init__(self) -> None:
        clock = ManualClock()
        self.harness = CNINodeHarness(clock=clock, memory=MemoryDatastore(self.scenario.mode, clock=clock))
        self.harness.add_pool("four", "10.65.0.0/28")
        self.harness.add_pool("six", "fd00:65::/124")
        self.unaffected_result = self.harness.add(OTHER, ipam=DUAL_STACK)
        if self.scenario.is_repetition:
            self.add()
            self.harness.dataplane.remove_namespace(self.container.netns)

    @property
    def container(self) -> ContainerInterface:
        return self.scenario.container

    def add(self) -> CNIResult:
        return self.harness.add(self.container, ipam=self.scenario.ipam)

    def resume(self) -> CNIResult:
        if self.harness.is_namespace_missing(self.container.netns):
            self.harness.dataplane.add_namespace(self.container.netns)
        result = self.harness.resume("ADD", self.container, ipam=self.scenario.ipam)
        assert result is not None
        return result

    def delete(self) -> None:
        self.harness.run("DEL", self.container)

    def collect(self) -> None:
        valid = {"containerID": OTHER.id, "ifname": OTHER.ifname}
        self.harness.run("GC", OTHER, Plugin.MAIN, **{"cni.dev/valid-attachments": [valid]})

    def finish_collection(self) -> None:
        """What GC left where it may leave anything: one handle, without an address and without an endpoint."""
        if self.scenario.mode is not MemoryMode.ATOMIC:
            assert len(self.harness.allocations()) == len(self.unaffected_result.ips)
            assert len(self.harness.endpoints()) == 1
            self.delete()

    def dies(self, life: ProcessLifetime, flow: Callable[[], object]) -> bool:
        """Run a flow in a process of its own; whether it died in it."""
        harness = self.harness
        harness.store, harness.dataplane.before_effect, harness.host.before_lock = (
            DyingStore(harness.memory, life),
            life.effect,
            life.require_alive,
        )
        try:
            flow()
            life.effect("printing the answer")
        except ProcessDied:
            return True
        finally:
            harness.store, harness.dataplane.before_effect, harness.host.before_lock = (
                harness.memory,
                lambda _: None,
                lambda: None,
            )
            harness.host.locks.release_all()  # the kernel releases them with the process
        return False

    def assert_only_the_other_is_left(self) -> None:
        """The other container's attachment is as it was, and there is no trace of the scenario's."""
        harness = self.harness
        harness.check(OTHER, self.unaffected_result, ipam=DUAL_STACK)
        assert harness.allocations() == {ip.address: "net1.other" for ip in self.unaffected_result.ips}
        assert harness.handles() == ["net1.other"]
        assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["other"]
        assert harness.dataplane.names() == (self.unaffected_result.interfaces[0].name,)
        assert len(harness.dataplane.host_routes()) == len(self.unaffected_result.ips)
        assert harness.dataplane.names(self.container.netns) == ()


def every_death(
    prepare: Callable[[], KilledFlowNode],
    flow: Callable[[KilledFlowNode], object],
    heal: Callable[[KilledFlowNode], object],
) -> int:
    """Let a flow die at each of its effects, heal, and see nothing left; how many effects there were."""
    for effects in range(1000):
        node = prepare()
        died = node.dies(ProcessLifetime(effects), lambda node=node: flow(node))  # type: ignore[misc]  # bound at once
        heal(node)
        node.assert_only_the_other_is_left()
        heal(node)
        node.assert_only_the_other_is_left()
        if not died:
            return effects
    raise AssertionError("the flow never ends")


def attached_node(scenario: KilledFlowScenario) -> KilledFlowNode:
    node = KilledFlowNode(scenario)
    node.add()
    return node


# --- the laws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scenario",
    [KilledFlowScenario(), KilledFlowScenario(mode=MemoryMode.ORDERED, is_repetition=True)],
    ids=["first", "repetition"],
)
def test_add_dies_at_each_effect_then_del(scenario: KilledFlowScenario) -> None:
    assert every_death(lambda: KilledFlowNode(scenario), KilledFlowNode.add, KilledFlowNode.delete) > 20


@STORES
def test_add_dies_at_each_effect_then_is_resumed(mode: MemoryMode) -> None:
    scenario = KilledFlowScenario(mode=mode)

    def resume_then_delete(node: KilledFlowNode) -> None:
        node.resume()
        node.delete()

    assert every_death(lambda: KilledFlowNode(scenario), KilledFlowNode.add, resume_then_delete) > 20


@STORES
def test_del_dies_at_each_effect_then_del(mode: MemoryMode) -> None:
    assert (
        every_death(lambda: attached_node(KilledFlowScenario(mode=mode)), KilledFlowNode.delete, KilledFlowNode.delete)
        >= 3
    )


@given(SCENARIOS, LIFETIMES)
def test_add_dies_then_del(scenario: KilledFlowScenario, effects: int) -> None:
    node = KilledFlowNode(scenario)
    node.dies(ProcessLifetime(effects), node.add)
    node.delete()
    node.assert_only_the_other_is_left()


@given(SCENARIOS, LIFETIMES)
def test_add_dies_then_gc(scenario: KilledFlowScenario, effects: int) -> None:
    node = KilledFlowNode(scenario)
    node.dies(ProcessLifetime(effects), node.add)
    node.harness.dataplane.remove_namespace(node.container.netns)
    node.collect()
    node.finish_collection()
    node.assert_only_the_other_is_left()


@given(SCENARIOS, LIFETIMES)
def test_add_dies_then_add(scenario: KilledFlowScenario, effects: int) -> None:
    node = KilledFlowNode(scenario)
    node.dies(ProcessLifetime(effects), node.add)
    try:
        result = node.add()
    except LinkExists:
        assert node.container.ifname in node.harness.dataplane.names(node.container.netns)
    else:
        node.harness.check(node.container, result, ipam=scenario.ipam)
        assert len(node.harness.allocations()) == len(node.unaffected_result.ips) + len(result.ips)
        assert len({ip.address.family for ip in result.ips}) == len(result.ips)
    node.delete()
    node.assert_only_the_other_is_left()


@given(SCENARIOS, LIFETIMES, LIFETIMES)
def test_add_dies_then_is_resumed(scenario: KilledFlowScenario, effects: int, effects_of_resumed: int) -> None:
    """Also if the call that resumes it dies."""
    node = KilledFlowNode(scenario)
    node.dies(ProcessLifetime(effects), node.add)
    held = set(node.harness.allocations())
    node.dies(ProcessLifetime(effects_of_resumed), node.resume)
    result = node.resume()
    node.harness.check(node.container, result, ipam=scenario.ipam)
    assert len({ip.address.family for ip in result.ips}) == len(result.ips)
    expected = {ip.address for ip in (*node.unaffected_result.ips, *result.ips)}
    assert held <= set(node.harness.allocations()) == expected
    node.delete()
    node.assert_only_the_other_is_left()


@given(SCENARIOS, LIFETIMES)
def test_add_and_del_both_die(scenario: KilledFlowScenario, effects: int) -> None:
    node = KilledFlowNode(scenario)
    node.dies(ProcessLifetime(effects), node.add)
    node.dies(ProcessLifetime(effects % 7), node.delete)
    node.delete()
    node.assert_only_the_other_is_left()


@given(SCENARIOS, st.integers(0, 12))
def test_gc_dies_then_gc(scenario: KilledFlowScenario, effects: int) -> None:
    node = attached_node(scenario)
    node.harness.dataplane.remove_namespace(node.container.netns)
    node.dies(ProcessLifetime(effects), node.collect)
    node.collect()
    node.finish_collection()
    node.assert_only_the_other_is_left()


@given(SCENARIOS, st.integers(0, 12))
def test_netplug_ipam_dies_then_del(scenario: KilledFlowScenario, effects: int) -> None:
    node = KilledFlowNode(scenario)

    def assign() -> object:
        return node.harness.run("ADD", node.container, Plugin.IPAM, **BRIDGE, ipam=scenario.ipam)

    node.dies(ProcessLifetime(effects), assign)
    first = assign()
    assert assign() == first
    node.dies(ProcessLifetime(effects % 5), lambda: node.harness.run("DEL", node.container, Plugin.IPAM, **BRIDGE))
    node.harness.run("DEL", node.container, Plugin.IPAM, **BRIDGE)
    assert node.harness.allocations() == {ip.address: "net1.other" for ip in node.unaffected_result.ips}
    assert node.harness.handles() == ["net1.other"]


@given(SCENARIOS)
def test_every_flow_runs_twice(scenario: KilledFlowScenario) -> None:
    node = KilledFlowNode(scenario)
    harness, result = node.harness, node.add()
    for _ in range(2):
        stored = (harness.allocations(), harness.handles(), harness.endpoints(), harness.affinities())
        with pytest.raises(LinkExists):
            node.add()
        harness.check(node.container, result, ipam=scenario.ipam)
        harness.run("STATUS", node.container, Plugin.MAIN, ipam=scenario.ipam)
        assert (harness.allocations(), harness.handles(), harness.endpoints(), harness.affinities()) == stored
    for flow in (node.delete, node.collect):
        commits = harness.memory.calls.commits
        flow()
        node.assert_only_the_other_is_left()
        flow()
        node.assert_only_the_other_is_left()
        assert harness.memory.calls.commits <= commits + 1
