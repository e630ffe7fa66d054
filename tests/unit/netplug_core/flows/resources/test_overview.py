"""A cluster on one screen: what is read, and what counts as wrong."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline, format_time
from netplug_core.errors import Unauthorized
from netplug_core.flows.resources.overview import (
    ClusterOverview,
    ControllersOverview,
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
from netplug_core.reconcile.lease import LEASE_S, LeaseRecord
from netplug_core.records import Create, Key, Revision
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPReservation, IPReservationSpec, ippool_key, ipreservation_key
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION_KEY
from netplug_core.resources.node import Node, NodeStatus, node_key
from netplug_core.testing.clock import ManualClock
from tests.harness.resources import make_pool

LEASE = "netplug-kube-controllers"


class LeaseDatastore(MemoryDatastore):
    """One that shows a lease, as soon as there is one."""

    text: str | None = None

    def read_lease(self, name: str, *, deadline: Deadline) -> tuple[str, Revision] | None:
        assert name == LEASE
        return None if self.text is None else (self.text, Revision("1"))


class ClosedDatastore(MemoryDatastore):
    """One that shows no lease to this reader."""

    def read_lease(self, name: str, *, deadline: Deadline) -> tuple[str, Revision] | None:
        raise Unauthorized("leases", "forbidden")


class Scene:
    """A store, and what is read of it."""

    def __init__(self, store_type: type[MemoryDatastore] = MemoryDatastore) -> None:
        self.clock = ManualClock()
        self.store = store_type(clock=self.clock)
        self.lease = LeaseRecord()

    def put(self, key: Key[object], value: object) -> None:
        self.store.commit([Create(key, value)], deadline=self.deadline())

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5.0)

    def run_controllers(self, **environ: str) -> None:
        """Store what controllers say of themselves."""
        stored = default_configuration(CopySource.KUBERNETES)
        running = find_running_controllers(stored.spec, environ, CopySource.KUBERNETES)
        self.put(KUBE_CONTROLLERS_CONFIGURATION_KEY, with_status(stored, running))

    def renew(self) -> None:
        """A process acts now."""
        assert isinstance(self.store, LeaseDatastore)
        self.lease = LeaseRecord(holder="a_1", renewed=format_time(self.clock.now_ns()))
        self.store.text = json.dumps(self.lease.spec())

    def controllers(self) -> ControllersOverview:
        return read_controllers(self.store, LEASE, clock=self.clock, deadline=self.deadline())

    def look(self) -> ClusterOverview:
        return read_cluster_overview(self.store, LEASE, clock=self.clock, deadline=self.deadline())


def test_controllers_that_have_never_run() -> None:
    scene = Scene()
    found = scene.controllers()
    assert (found.has_run, found.controllers, found.running, found.lease) == (False, (), (), None)
    scene.put(KUBE_CONTROLLERS_CONFIGURATION_KEY, default_configuration(CopySource.NONE))
    assert not scene.controllers().has_run


def test_controllers_that_run_and_who_acts() -> None:
    scene = Scene(LeaseDatastore)
    scene.run_controllers(ENABLED_CONTROLLERS="node,policy", AUTO_HOST_ENDPOINTS="enabled")
    scene.renew()
    found = scene.controllers()
    assert found.running == ("node", "policy")
    assert found.controllers[2] == ControllerState(name="namespace", is_running=False)
    assert found.controllers[1] == ControllerState(name="policy", is_running=True, period="5m")
    assert (found.lease, found.is_acting, found.has_automatic_endpoints) == (scene.lease, True, True)
    assert dict(found.environment)["AUTO_HOST_ENDPOINTS"] == "enabled"


def test_controllers_whose_lease_is_not_renewed_do_not_run() -> None:
    """What they have stored of themselves stays when they have ended."""
    scene = Scene(LeaseDatastore)
    scene.run_controllers()
    scene.renew()
    assert scene.look().wrong == ()
    scene.clock.sleep(LEASE_S + 1)
    assert scene.controllers().is_acting is False
    assert scene.look().wrong == ("the controllers do not run: leaked addresses stay",)


@pytest.mark.parametrize("text", [None, "no JSON", "[]", "[" * 100_000, '{"holderIdentity": 1}'])
def test_a_lease_that_is_missing_or_damaged_is_free(text: str | None) -> None:
    scene = Scene(LeaseDatastore)
    scene.run_controllers()
    assert isinstance(scene.store, LeaseDatastore)
    scene.store.text = text
    assert (scene.controllers().lease, scene.controllers().is_acting) == (LeaseRecord(), False)


@pytest.mark.parametrize("store_type", [MemoryDatastore, ClosedDatastore])
def test_where_no_lease_is_shown_nothing_is_said_of_who_acts(store_type: type[MemoryDatastore]) -> None:
    scene = Scene(store_type)
    scene.run_controllers()
    assert (scene.controllers().lease, scene.controllers().is_acting) == (None, None)
    assert scene.look().wrong == ()


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


def test_nodes_of_an_earlier_release_than_the_cluster_are_named() -> None:
    scene = Scene()
    scene.run_controllers()
    spec = ClusterInformationSpec(version="v3.33.0")
    scene.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))
    for name, release in (("a", "v3.33.0"), ("b", "v3.32.1"), ("c", ""), ("d", "v3.34.0"), ("e", "v3.33.0-rc1")):
        scene.put(node_key(name), Node(metadata=Metadata(name=name), status=NodeStatus(release=release)))
    found = scene.look()
    assert dict(found.releases) == {
        "": ("c",), "v3.32.1": ("b",), "v3.33.0": ("a",), "v3.33.0-rc1": ("e",), "v3.34.0": ("d",),
    }  # fmt: skip
    assert found.wrong == ("nodes of an earlier release than the cluster: b, e",)
