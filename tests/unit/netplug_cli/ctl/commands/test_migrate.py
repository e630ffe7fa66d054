"""``migrate auto-host-endpoints``: killed after each write and run again, with conflicts, dry, and undone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.flows.resources.automatic_endpoints import (
    OnConflict,
    find_awaited,
    set_automatic,
    take_inventory,
)
from netplug_core.installation.cluster import Cluster
from netplug_core.reconcile.hostendpoints import CREATED_BY, find_host_endpoint_changes, wanted_host_endpoints
from netplug_core.reconcile.kubecontrollers import (
    CopySource,
    default_configuration,
    find_running_controllers,
    with_status,
)
from netplug_core.records import Create, Get, Key, List, Revision, Update, Write
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint, HostEndpointSpec, NamedPort
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION_KEY
from netplug_core.resources.node import NODE, Node, NodeSpec, OrchestratorReference, node_key
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import ProcessDied
from tests.harness.ctl import ToolHarness

NODES = ("a", "b")
HEAD = "apiVersion: projectnetplug.org/v3\nmetadata: {name: x}\n"
DEFAULT_ALLOW = ("projectnetplug-default-allow",)


class Stored(MemoryDatastore):
    """A store in which no node may ever be without an endpoint for all interfaces; it may kill who writes."""

    left: int | None = None
    needed: frozenset[str] = frozenset()

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        revisions = super().commit(writes, deadline=deadline)
        kept = {each.spec.node for each in self.endpoints() if each.spec.interface_name == "*"}
        assert kept >= self.needed
        self.count()
        return revisions

    def count(self) -> None:
        """One more write of the tool."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise ProcessDied

    def endpoints(self) -> list[HostEndpoint]:
        found = self.read([List(HOST_ENDPOINT)], deadline=Deadline.after(ManualClock(), 5.0))
        return [record.value for record in found.list(List(HOST_ENDPOINT))]


@define
class Scene:
    """Two nodes with an endpoint each that a person wrote; while the tool waits, controllers work."""

    harness: ToolHarness
    store: Stored = field(init=False)
    environ: dict[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.harness.clock = clock = WorkingClock(self)
        self.store = self.harness.store = Stored(clock=clock)
        self.harness.open_cluster = self.open_cluster
        self.put(KUBE_CONTROLLERS_CONFIGURATION_KEY, default_configuration(CopySource.DATASTORE))
        for name in NODES:
            reference = OrchestratorReference(orchestrator="k8s", node_name=name)
            metadata = Metadata(name=name, labels=(("zone", "z"),))
            self.put(node_key(name), Node(metadata=metadata, spec=NodeSpec(orchestrator_references=(reference,))))
            self.put_endpoint(f"old-{name}", name, tier=name)
        self.store.needed = frozenset(NODES)

    def put_endpoint(self, name: str, node: str, **labels: str) -> None:
        spec = HostEndpointSpec(node=node, interface_name="*", profiles=DEFAULT_ALLOW)
        metadata = Metadata(name=name, labels=tuple(sorted(labels.items())))
        self.put(HOST_ENDPOINT.key(name), HostEndpoint(metadata=metadata, spec=spec))

    def put(self, key: Key[object], value: object) -> None:
        found = self.store.read([Get(key)], deadline=self.deadline()).find(key)
        write: Write = Create(key, value) if found is None else Update(key, value, found.revision)
        left, self.store.left = self.store.left, None
        self.store.commit([write], deadline=self.deadline())
        self.store.left = left

    def deadline(self) -> Deadline:
        return Deadline.after(self.harness.clock, 5.0)

    def names(self) -> list[str]:
        return [each.metadata.name for each in self.store.endpoints()]

    @contextmanager
    def open_cluster(self, _settings: DatastoreSettings) -> Iterator[Cluster]:
        yield cast("Cluster", self)

    def label_node(self, name: str, labels: Mapping[str, str], *, deadline: Deadline) -> None:
        """What the tool asks of the API server."""
        found = self.store.read([Get(node_key(name))], deadline=deadline).find(node_key(name))
        assert found is not None
        merged = tuple(sorted({**dict(found.value.metadata.labels), **labels}.items()))
        self.put(found.key, evolve(found.value, metadata=evolve(found.value.metadata, labels=merged)))
        self.store.count()

    def work(self) -> None:
        """What controllers do."""
        key = KUBE_CONTROLLERS_CONFIGURATION_KEY
        snapshot = self.store.read([Get(key), List(NODE), List(HOST_ENDPOINT)], deadline=self.deadline())
        stored = snapshot.find(key)
        assert stored is not None
        running = find_running_controllers(stored.value.spec, self.environ, CopySource.DATASTORE)
        self.put(key, with_status(stored.value, running))
        nodes = [record.value for record in snapshot.list(List(NODE))]
        wanted = wanted_host_endpoints(nodes, running.host_endpoints, {})
        left, self.store.left = self.store.left, None
        for change in find_host_endpoint_changes(wanted, snapshot.list(List(HOST_ENDPOINT)))[0]:
            self.store.commit([change], deadline=self.deadline())
        self.store.left = left

    def run(self, *options: str) -> int:
        return self.harness.run_command("migrate", "auto-host-endpoints", *options)


class WorkingClock(ManualClock):
    """A clock during whose waits controllers work."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._scene.work()


@pytest.fixture
def scene(harness: ToolHarness) -> Scene:
    return Scene(harness)


@pytest.fixture
def backup(harness: ToolHarness) -> str:
    return str(harness.folder / "old.yaml")


AUTOMATIC = ["a-auto-hep", "b-auto-hep"]


def test_old_endpoints_are_replaced(scene: Scene, backup: str) -> None:
    assert scene.run("--backup", backup) == 0
    assert scene.names() == AUTOMATIC
    assert [dict(each.metadata.labels)["tier"] for each in scene.store.endpoints()] == ["a", "b"]
    assert scene.harness.out.splitlines() == [
        "Node a labelled",
        "Node b labelled",
        "automatic host endpoints enabled",
        f"old host endpoints written to {backup}; --undo {backup} restores them",
        "HostEndpoint(old-a) deleted",
        "HostEndpoint(old-b) deleted",
    ]
    assert scene.run("--backup", backup) == 0
    assert scene.harness.out == "No host endpoint is left to be replaced.\n"


@pytest.mark.parametrize("writes", range(5))
def test_killed_after_any_write_it_is_run_again(scene: Scene, backup: str, writes: int) -> None:
    scene.store.left = writes
    with pytest.raises(ProcessDied):
        scene.run("--backup", backup)
    scene.store.left = None
    assert scene.run("--backup", backup) == 0
    assert scene.names() == AUTOMATIC
    assert [dict(each.metadata.labels)["tier"] for each in scene.store.endpoints()] == ["a", "b"]
    assert scene.run("--undo", backup) == 0
    scene.work()
    assert scene.names() == ["old-a", "old-b"]


def test_undone_everything_is_as_before(scene: Scene, backup: str) -> None:
    before = {each.metadata.name: each.spec for each in scene.store.endpoints()}
    assert scene.run("--backup", backup) == 0
    assert scene.run("--undo", backup, "--dry-run") == 0
    assert scene.harness.out == "would restore HostEndpoint(old-a)\nwould restore HostEndpoint(old-b)\n"
    assert scene.run("--undo", backup) == 0
    scene.work()
    assert {each.metadata.name: each.spec for each in scene.store.endpoints()} == before
    assert scene.run("--undo", backup) == 0
    assert scene.harness.out == "HostEndpoint(old-a) is there\nHostEndpoint(old-b) is there\n"
    other = scene.harness.write_file(f"kind: IPPool\n{HEAD}spec: {{cidr: 10.0.0.0/24}}\n")
    assert scene.run("--undo", other) != 0
    assert "a backup has host endpoints alone" in scene.harness.err


def test_a_dry_run_says_every_step(scene: Scene) -> None:
    scene.put_endpoint("lost", "gone")
    assert scene.run("--dry-run") == 1
    assert scene.harness.out.splitlines() == [
        "would label Node a: tier=a",
        "would label Node b: tier=b",
        "would set spec.controllers.node.hostEndpoint.autoCreate of KubeControllersConfiguration default",
        "would delete HostEndpoint(old-a)",
        "would delete HostEndpoint(old-b)",
    ]
    assert "warning: HostEndpoint(lost) stays: its node 'gone' is not known to the orchestrator" in scene.harness.err
    assert scene.names() == ["lost", "old-a", "old-b"]


def test_the_steps_for_programs(scene: Scene, backup: str) -> None:
    objects = ["node/a", "node/b", "kubecontrollersconfiguration/default", "hostendpoint/old-a", "hostendpoint/old-b"]
    assert scene.run("--dry-run", "-o", "name") == 0
    assert scene.harness.out.split() == objects
    assert scene.run("--backup", backup, "-o", "json") == 0
    steps = json.loads(scene.harness.out)["steps"]
    assert [step["name"] for step in steps if step["name"]] == objects
    assert steps[-1] == {"name": "hostendpoint/old-b", "text": "HostEndpoint(old-b) deleted"}
    assert scene.run("--undo", backup, "-o", "name") == 0
    assert scene.harness.out.split() == [*objects[3:], objects[2]]


def test_a_conflict_is_decided_by_an_option(scene: Scene, backup: str) -> None:
    scene.put_endpoint("old-a", "a", zone="other")
    assert scene.run("--backup", backup) == 1
    assert "conflict: zone=other of old-a: Node a has zone=z; --on-conflict decides" in scene.harness.err
    assert scene.names() == ["old-a", "old-b"]
    assert scene.run("--backup", backup, "--on-conflict", "overwrite") == 0
    assert dict(scene.store.endpoints()[0].metadata.labels)["zone"] == "other"


def test_a_variable_of_the_controllers_stops_it(scene: Scene, backup: str) -> None:
    scene.environ["AUTO_HOST_ENDPOINTS"] = "disabled"
    scene.work()
    assert scene.run("--backup", backup) != 0
    assert "AUTO_HOST_ENDPOINTS=disabled of the controllers is above every setting" in scene.harness.err
    assert scene.names() == ["old-a", "old-b"]


def test_without_controllers_nothing_is_deleted(scene: Scene, backup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scene, "work", lambda _scene: None)
    assert scene.run("--backup", backup, "--timeout", "3") != 0
    assert "the controllers do not say yet that automatic endpoints are enabled" in scene.harness.err
    assert scene.names() == ["old-a", "old-b"]


def test_what_changes_for_people_is_said(scene: Scene) -> None:
    port = NamedPort(name="http", protocol="TCP", port=80)  # type: ignore[arg-type]  # its text is read
    spec = HostEndpointSpec(node="a", interface_name="*", ports=(port,))
    scene.put(HOST_ENDPOINT.key("old-a"), HostEndpoint(metadata=Metadata(name="old-a"), spec=spec))
    assert scene.run("--dry-run") == 0
    for text in (
        "old-a: rules that name its ports match no more",
        "old-a: what no policy decides is allowed from now on: its profiles are none",
        "old-a: the automatic endpoint of a counts when automatic ones are enabled",
    ):
        assert text in scene.harness.err


def test_another_file_is_not_written_over(scene: Scene) -> None:
    assert scene.run() == 2
    other = scene.harness.write_file(f"kind: HostEndpoint\n{HEAD}spec: {{node: a, interfaceName: '*'}}\n")
    assert scene.run("--backup", other) != 0
    assert scene.names() == ["old-a", "old-b"]


# --- what has to be decided or awaited --------------------------------------------------------------------------------


def test_labels_of_kubernetes_are_not_written_and_those_that_are_equal_are_no_conflict(
    scene: Scene, backup: str
) -> None:
    scene.put_endpoint("old-a", "a", **{"node.kubernetes.io/type": "x", "zone": "z", CREATED_BY: "somebody"})
    assert scene.run("--backup", backup) == 1
    assert "conflict: node.kubernetes.io/type=x of old-a: labels of Kubernetes are not written" in scene.harness.err
    assert "zone" not in scene.harness.err


def test_a_label_of_the_node_may_be_kept(scene: Scene, backup: str) -> None:
    scene.put_endpoint("old-a", "a", zone="other")
    assert scene.run("--backup", backup, "--on-conflict", "keep-node") == 0
    assert dict(scene.store.endpoints()[0].metadata.labels)["zone"] == "z"


def test_where_the_store_shows_the_cluster_a_node_has_the_name_of_its_machine(scene: Scene) -> None:
    node = Node(metadata=Metadata(name="a"))
    scene.put(node_key("a"), node)
    found = take_inventory(scene.store, OnConflict.ABORT, deadline=scene.deadline())
    assert found.problems == ("HostEndpoint(old-a) stays: its node 'a' is not known to the orchestrator",)
    scene.store.description = evolve(scene.store.description, endpoints=EndpointStorage.PODS)
    found = take_inventory(scene.store, OnConflict.ABORT, deadline=scene.deadline())
    assert [old.machine for old in found.endpoints] == ["a", "b"]


def test_what_is_awaited_is_said(scene: Scene) -> None:
    found = take_inventory(scene.store, OnConflict.ABORT, deadline=scene.deadline())

    def awaited() -> tuple[str, ...]:
        return find_awaited(scene.store, found.endpoints[:1], deadline=scene.deadline())

    assert awaited() == ("the controllers do not say yet that automatic endpoints are enabled",)
    assert set_automatic(scene.store, Switch.ENABLED, deadline=scene.deadline())
    assert not set_automatic(scene.store, Switch.ENABLED, deadline=scene.deadline())
    scene.work()
    assert awaited() == ("the automatic endpoint a-auto-hep has not all labels of old-a yet",)
    scene.label_node("a", {"tier": "a"}, deadline=scene.deadline())
    scene.work()
    assert awaited() == ()
    key = HOST_ENDPOINT.key("a-auto-hep")
    stored = scene.store.read([Get(key)], deadline=scene.deadline()).find(key)
    assert stored is not None
    scene.put(key, evolve(stored.value, spec=evolve(stored.value.spec, profiles=())))
    assert awaited() == ("the automatic endpoint a-auto-hep has not its profile yet",)
    scene.put(key, evolve(stored.value, metadata=Metadata(name="a-auto-hep")))
    assert awaited() == ("the automatic endpoint a-auto-hep is not there yet",)


def test_a_configuration_that_is_missing_is_made() -> None:
    clock = ManualClock()
    store, deadline = MemoryDatastore(clock=clock), Deadline.after(clock, 5.0)
    assert find_awaited(store, (), deadline=deadline)
    assert set_automatic(store, Switch.ENABLED, deadline=deadline)
    found = store.read([Get(KUBE_CONTROLLERS_CONFIGURATION_KEY)], deadline=deadline)
    stored = found.find(KUBE_CONTROLLERS_CONFIGURATION_KEY)
    assert stored is not None
    node = stored.value.spec.controllers.node
    assert node is not None
    assert node.host_endpoint.auto_create is Switch.ENABLED


def test_an_automatic_endpoint_whose_name_comes_later_counts_when_the_old_one_goes(scene: Scene) -> None:
    scene.put_endpoint("a-a", "a")
    assert scene.run("--dry-run") == 0
    assert "a-a: the automatic endpoint of a counts when it is deleted" in scene.harness.err
