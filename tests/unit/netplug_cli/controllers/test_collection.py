"""When the collector of the controllers looks, what it does then, and what it has forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.controllers.collection import History
from netplug_cli.controllers.nodes import Acting
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.view import View
from netplug_core.ipam.model import HANDLE, Handle, handle_key
from netplug_core.orchestrator.model import POD, PodFacts
from netplug_core.reconcile.kubecontrollers import (
    CopySource,
    RunningControllers,
    default_configuration,
    find_running_controllers,
)
from netplug_core.records import Kind, List, Query, Snapshot
from netplug_core.resources.kubecontrollersconfiguration import Controllers, KubeControllersSpec, NodeController
from netplug_core.testing.clock import ManualClock
from tests.harness.collector import CollectorHarness
from tests.harness.controllers import DrivenControllers
from tests.harness.controllers_scene import ControllersScene, machine_node
from tests.harness.node_server import Lines

GRACE_S = 900.0
MORE_THAN_A_PASS_S = 400.0
WITHOUT_GRACE = KubeControllersSpec(controllers=Controllers(node=NodeController(leak_grace_period="0")))


@define
class CollectionScene(ControllersScene):
    """``records`` stores blocks and addresses. The cluster has the node ``node-a``."""

    records: CollectorHarness = field(init=False)

    def __attrs_post_init__(self) -> None:
        ControllersScene.__attrs_post_init__(self)
        self.records = CollectorHarness(clock=self.clock, inner=self.store)
        self.records.add_pool("four", "10.0.0.0/24")
        self.records.add_pool("six", "fd00::/120")
        self.put_machine("node-a")
        self.run_pod("web", "10.0.0.1", "fd00::1")
        self.records.assign_to_pod("10.0.0.2", "gone")
        self.records.assign_to_pod("fd00::2", "gone")

    def run_pod(self, name: str, *addresses: str) -> None:
        """A pod of the namespace ``default`` that runs and has addresses."""
        for address in addresses:
            self.records.assign_to_pod(address, name)
        self.put_pod(PodFacts(namespace="default", name=name, uid="", node="node-a"))

    @property
    def handles(self) -> set[str | None]:
        """The handles that hold addresses."""
        return set(self.records.held().values())


@pytest.fixture
def scene() -> CollectionScene:
    return CollectionScene()


def test_what_nobody_uses_is_freed_after_the_grace_period(scene: CollectionScene) -> None:
    scene.settle(GRACE_S / 2)
    assert scene.handles == {"h-web", "h-gone"}
    assert (scene.collection.counts.candidates, scene.collection.counts.freed) == (2, 0)
    scene.settle(GRACE_S)
    assert scene.records.held() == {"10.0.0.1": "h-web", "fd00::1": "h-web"}
    assert (scene.collection.counts.candidates, scene.collection.counts.freed) == (0, 2)
    assert scene.collection.counts.ticks >= 3
    assert scene.problems("collection") == []


def test_a_pod_that_runs_keeps_its_addresses(scene: CollectionScene) -> None:
    scene.put_pod(PodFacts(namespace="default", name="gone", uid="", node="node-a"))
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web", "h-gone"}


def test_a_node_with_another_name_than_its_machine_keeps_what_it_and_its_pods_have(scene: CollectionScene) -> None:
    """Its tunnel has an address, and the kubelet could not report that of a new pod yet."""
    scene.put_node(machine_node("short", "node-a"))
    scene.records.assign_to("10.0.0.5", "tunnel", node="short", type="vxlanTunnelAddress")
    scene.records.assign_to_pod("10.0.0.6", "new", node="short")
    scene.put_pod(PodFacts(namespace="default", name="new", uid="", node="node-a"))
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web", "tunnel", "h-new"}
    scene.delete_machine("node-a")
    scene.delete(POD.key("default", "new"), scene.cluster)
    scene.settle(3 * GRACE_S)
    assert scene.nodes() == []
    assert scene.handles == {"h-web"}


def test_a_renamed_node_keeps_what_its_pods_got_under_its_former_name(scene: CollectionScene) -> None:
    scene.put_node(machine_node("renamed", "node-a"))
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web"}


def test_what_a_pod_had_on_another_node_goes_once_it_reports_another_address(scene: CollectionScene) -> None:
    for name, machine in (("one", "node-a"), ("two", "node-b")):
        scene.put_machine(machine)
        scene.put_node(machine_node(name, machine))
    scene.records.assign_to_pod("10.0.0.6", "moved", node="one")
    pod = PodFacts(namespace="default", name="moved", uid="", node="node-b")
    scene.put_pod(pod)
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web", "h-moved"}
    scene.put_pod(evolve(pod, addresses=(Address.parse("10.0.0.7"),)))
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web"}


def note_lists(monkeypatch: pytest.MonkeyPatch, noted: MemoryDatastore, kind: Kind[object]) -> list[Query]:
    """The lists of a kind that a store is asked for from now on."""
    read = MemoryDatastore.read
    listed: list[Query] = []

    def note(store: MemoryDatastore, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        if store is noted:
            listed.extend(query for query in queries if isinstance(query, List) and query.kind == kind)
        return read(store, queries, deadline=deadline)

    monkeypatch.setattr(MemoryDatastore, "read", note)
    return listed


def test_pods_are_listed_only_while_no_watch_keeps_them(
    scene: CollectionScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = note_lists(monkeypatch, scene.cluster, POD)
    scene.settle(GRACE_S)
    ticks, seen = scene.collection.counts.ticks, len(listed)
    scene.settle(3 * GRACE_S)
    assert scene.collection.counts.ticks >= ticks + 3
    assert len(listed) == seen
    assert scene.handles == {"h-web"}
    scene.collection.pods = None
    scene.settle(GRACE_S)
    assert len(listed) > seen
    assert scene.handles == {"h-web"}


def test_without_a_grace_period_no_address_of_a_node_that_is_there_goes(scene: CollectionScene) -> None:
    scene.configure(WITHOUT_GRACE)
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web", "h-gone"}
    assert scene.collection.counts.ticks > 0


def test_without_the_controller_of_nodes_nothing_is_looked_at(scene: CollectionScene) -> None:
    scene.configure(KubeControllersSpec())
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web", "h-gone"}
    assert scene.collection.counts.ticks == 0


def test_a_process_that_acts_again_begins_the_grace_period_anew(scene: CollectionScene) -> None:
    """Another one acted meanwhile: what this one has seen before says nothing of the time between."""
    scene.settle(GRACE_S - MORE_THAN_A_PASS_S)
    scene.lead(is_leading=False)
    scene.settle(MORE_THAN_A_PASS_S)
    ticks = scene.collection.counts.ticks
    scene.lead(is_leading=True)
    scene.settle(MORE_THAN_A_PASS_S)
    assert scene.collection.counts.ticks > ticks
    assert scene.handles == {"h-web", "h-gone"}
    scene.settle(GRACE_S)
    assert scene.handles == {"h-web"}


@pytest.mark.parametrize("away", ["records", "cluster"])
def test_nothing_is_judged_while_a_store_is_away(scene: CollectionScene, away: str) -> None:
    scene.away = {away}
    scene.start()
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web", "h-gone"}
    assert scene.collection.counts.ticks == 0
    scene.away = set()
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web"}


def test_nothing_is_freed_while_the_datastore_is_locked(scene: CollectionScene) -> None:
    scene.records.set_ready(is_ready=False)
    scene.settle(3 * GRACE_S)
    assert scene.handles == {"h-web", "h-gone"}
    assert "datastoreReady" in scene.collection.counts.idle
    scene.records.set_ready(is_ready=True)
    scene.settle(3 * GRACE_S)
    assert (scene.handles, scene.collection.counts.idle) == ({"h-web"}, "")


def test_addresses_that_a_gone_node_keeps_are_named_until_they_are_released(scene: CollectionScene) -> None:
    """What is no pod's cannot be judged; a release record of it is gone with the node."""
    scene.put_machine("node-b")
    for number in range(10, 17):
        scene.records.assign_to(f"10.0.0.{number}", f"box-{number}", node="node-b")
    scene.settle(GRACE_S)
    assert scene.problems("collection") == []
    scene.delete_machine("node-b")
    scene.settle(GRACE_S)
    (problem,) = scene.problems("collection")
    assert problem.startswith(
        "the node node-b is gone, and addresses that it held stay: 10.0.0.10, 10.0.0.11, 10.0.0.12, 10.0.0.13, "
        "10.0.0.14 and 2 more: whether they are in use cannot be determined"
    )
    scene.put_machine("node-b")
    scene.settle(GRACE_S)
    assert scene.problems("collection") == []


def test_all_handles_are_read_in_one_of_three_ticks_and_wrong_ones_repaired_all_the_same(
    scene: CollectionScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = note_lists(monkeypatch, scene.store, HANDLE)
    scene.settle(60.0)
    ticks, scans = scene.collection.counts.ticks, len(listed)
    assert scans >= 1
    scene.put(handle_key("dead"), Handle(blocks=((Prefix.parse("10.0.0.0/26"), 1),)))
    scene.settle(8 * GRACE_S)
    more = scene.collection.counts.ticks - ticks
    assert more >= 9
    assert 3 <= len(listed) - scans <= more // 3 + 1
    assert scene.find(handle_key("dead")) is None


# --- history ----------------------------------------------------------------------------------------------------------


class HistoryStore(MemoryDatastore):
    """A store that says what it was told to forget."""

    present: int
    forgotten: list[int]

    def present_revision(self, *, deadline: Deadline) -> int:
        return self.present

    def forget_history(self, before: int, *, deadline: Deadline) -> None:
        self.forgotten.append(before)


class HistoryScene:
    """The controller ``history`` over such a store, with a period of ten minutes."""

    def __init__(self, store: MemoryDatastore) -> None:
        self.clock, self.is_leading = ManualClock(), True
        self.running: RunningControllers | None = None
        acting = Acting(
            view=View(clock=self.clock, uncached_kinds=frozenset()),
            find_datastore=lambda: store,
            is_leading=lambda: self.is_leading,
            new_uid=lambda: "u",
            clock=self.clock,
        )
        history = History(acting=acting, find_running=lambda: self.running)
        self.driven = DrivenControllers((history.controller(),), clock=self.clock, log=Lines())

    def use(self, **settings: str) -> None:
        spec = evolve(default_configuration(CopySource.NONE).spec, **settings)  # type: ignore[arg-type]
        self.running = find_running_controllers(spec, {}, CopySource.NONE)


def test_history_is_forgotten_up_to_the_last_period() -> None:
    store = HistoryStore(clock=ManualClock())
    store.present, store.forgotten = 7, []
    scene = HistoryScene(store)
    scene.driven.pass_time(700.0)
    assert store.forgotten == []
    scene.use()
    scene.driven.pass_time(60.0)
    assert store.forgotten == []
    store.present = 20
    scene.driven.pass_time(600.0)
    assert store.forgotten == [7]
    scene.driven.pass_time(600.0)
    assert store.forgotten == [7, 20]
    scene.is_leading = False
    scene.driven.pass_time(1200.0)
    scene.is_leading = True
    scene.driven.pass_time(60.0)
    assert store.forgotten == [7, 20]
    scene.use(compaction_period="0")
    scene.driven.pass_time(3600.0)
    assert store.forgotten == [7, 20]


def test_a_store_without_history_is_left_alone() -> None:
    scene = HistoryScene(MemoryDatastore(clock=ManualClock()))
    scene.use()
    scene.driven.pass_time(1800.0)
    (loop,) = scene.driven.loops
    assert loop.health.problems == ()
