"""A cluster on one screen: what is read, and what counts as wrong."""

from __future__ import annotations

from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.flows.resources.overview import (
    ClusterOverview,
    ControllerState,
    read_cluster_overview,
    read_controllers,
)
from netplug_core.reconcile.kubecontrollers import (
    CopySource,
    default_configuration,
    find_running_controllers,
    with_status,
)
from netplug_core.records import Create, Key, Revision
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.ipreservation import IPReservation, IPReservationSpec, ipreservation_key
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION_KEY
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, NodeStatus, node_key
from netplug_core.testing.clock import ManualClock
from tests.harness.resources import make_pool

LEASE = "netplug-kube-controllers"


class LeaseDatastore(MemoryDatastore):
    """One that keeps a lease."""

    def read_lease(self, name: str, *, deadline: Deadline) -> tuple[str, Revision] | None:
        return (f"that of {name}", Revision("1"))

    def write_lease(self, name: str, text: str, revision: Revision | None, *, deadline: Deadline) -> bool:
        raise NotImplementedError


class Scene:
    """A store, and what is read of it."""

    def __init__(self, store_type: type[MemoryDatastore] = MemoryDatastore) -> None:
        self.clock = ManualClock()
        self.store = store_type(clock=self.clock)

    def put(self, key: Key[object], value: object) -> None:
        self.store.commit([Create(key, value)], deadline=self.deadline())

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5.0)

    def run_controllers(self, **environ: str) -> None:
        """Store what controllers say of themselves."""
        stored = default_configuration(CopySource.KUBERNETES)
        running = find_running_controllers(stored.spec, environ, CopySource.KUBERNETES)
        self.put(KUBE_CONTROLLERS_CONFIGURATION_KEY, with_status(stored, running))

    def look(self) -> ClusterOverview:
        return read_cluster_overview(self.store, LEASE, clock=self.clock, deadline=self.deadline())


def test_controllers_that_have_never_run() -> None:
    scene = Scene()
    found = read_controllers(scene.store, LEASE, deadline=scene.deadline())
    assert (found.has_run, found.controllers, found.running, found.record) == (False, (), (), "")
    scene.put(KUBE_CONTROLLERS_CONFIGURATION_KEY, default_configuration(CopySource.NONE))
    assert not read_controllers(scene.store, LEASE, deadline=scene.deadline()).has_run


def test_controllers_that_run_and_who_acts() -> None:
    scene = Scene(LeaseDatastore)
    scene.run_controllers(ENABLED_CONTROLLERS="node,policy", AUTO_HOST_ENDPOINTS="enabled")
    found = read_controllers(scene.store, LEASE, deadline=scene.deadline())
    assert found.running == ("node", "policy")
    assert found.controllers[2] == ControllerState(name="namespace", is_running=False)
    assert found.controllers[1] == ControllerState(name="policy", is_running=True, period="5m")
    assert (found.record, found.has_automatic_endpoints) == (f"that of {LEASE}", True)
    assert dict(found.environment)["AUTO_HOST_ENDPOINTS"] == "enabled"


def test_a_cluster_in_which_nothing_is_wrong() -> None:
    scene = Scene()
    scene.run_controllers()
    scene.put(ippool_key("blue"), make_pool("10.0.0.0/24", "blue"))
    for name, is_ready in (("a", True), ("b", None)):
        node = Node(metadata=Metadata(name=name), status=NodeStatus(is_ready=is_ready))
        scene.put(node_key(name), node)
    found = scene.look()
    assert found.wrong == ()
    assert [node.metadata.name for node in found.nodes] == ["a", "b"]
    assert [pool.name for pool in found.pools] == ["blue"]
    assert (found.problems, found.repairable, found.is_locked) == (0, 0, False)


def test_everything_that_is_wrong_is_a_sentence() -> None:
    scene = Scene()
    scene.put(ippool_key("full"), make_pool("10.0.0.0/30", "full", block_length=30))
    reserved = IPReservationSpec(reserved=(Prefix.parse("10.0.0.0/30"),))
    scene.put(ipreservation_key("all"), IPReservation(metadata=Metadata(name="all"), spec=reserved))
    scene.put(node_key("c"), Node(metadata=Metadata(name="c"), status=NodeStatus(is_ready=False)))
    spec = ClusterInformationSpec(is_datastore_ready=False)
    scene.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))
    found = evolve(scene.look(), problems=3)
    assert found.wrong == (
        "the datastore is locked: nothing new is attached",
        "nodes that are not ready: c",
        "pools without a free address: full",
        "3 problems of addresses and blocks: netplugctl ipam check names them",
        "no controllers have run yet: leaked addresses stay",
    )
