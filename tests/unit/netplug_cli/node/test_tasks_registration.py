"""When the node is looked at, what a failure changes, and what the log says."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock

from attrs import define, evolve, field

from netplug_cli.node.tasks import INTERFACES_CHANGED, LOOK_EVERY_S, RELEASE_EVERY_S, TRY_AGAIN_S, NodeRegistration
from netplug_core.addressing import Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.view import View
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.node import NodeWorld
from netplug_core.flows.resources.cluster import find_cluster_information
from netplug_core.netconf.model import NetConf
from netplug_core.reconcile.registration import RegistrationSettings
from netplug_core.records import Create, Get, List, Revision, Update, Write
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, Encapsulation, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.node import NODE, Node, NodeBGP, NodeSpec, NodeStatus, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION
from netplug_core.settings.model import DatastoreSettings
from tests.harness.controllers import DrivenControllers
from tests.harness.node_registration import MTU_FILE, NODE_NAME_FILE, NodeHarness, interface
from tests.harness.stores import StoreWrapper

STATUS_FOLDER = "/var/run/netplug/endpoint-status"
SETTLED = (
    "INFO the addresses of the node are registered ipv4=10.240.0.11/24 node=machine",
    f"INFO the MTU of pods is written mtu=1500 path={MTU_FILE}",
)
REGISTERED = "INFO the node is registered datastore=etcdv3 node=machine"
RELEASED = "INFO the cluster runs another release now release=v3.33.0"


@define
class RefusingStore(StoreWrapper):
    """Lets the node be made, but neither it nor ClusterInformation be written otherwise."""

    problem: Exception

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        if any(isinstance(write, Update) or self._is_of_the_cluster(write) for write in writes):
            raise self.problem
        return self.inner.commit(writes, deadline=deadline)

    @staticmethod
    def _is_of_the_cluster(write: Write) -> bool:
        return isinstance(write, Create) and write.key == CLUSTER_INFORMATION_KEY


@define
class Scene:
    """A registration whose datastore can be away, or not be configured."""

    harness: NodeHarness = field(factory=NodeHarness)
    settings: DatastoreSettings | None = field(factory=DatastoreSettings)
    problem: Exception | None = None
    write_problem: Exception | None = None
    environ: dict[str, str] = field(factory=dict)
    opened: int = 0
    registration: NodeRegistration = field(init=False)
    driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.harness.has_orchestrator, self.harness.release = False, "v3.33.0"
        self.registration = NodeRegistration(
            names=NetConf(nodename_file=NODE_NAME_FILE, mtu_file=MTU_FILE),
            read_datastore=lambda: self.settings,
            read_settings=lambda: RegistrationSettings.parse(self.environ),
            network=self.harness.network,
            open_world=self.open_world,
            cluster_types=("k8s",),
            host=self.harness.host,
            clock=self.harness.clock,
            log=self.harness.log,
        )
        harness = self.harness
        self.driven = DrivenControllers(self.registration.controllers(), clock=harness.clock, log=harness.log)

    def open_world(self, _netconf: NetConf) -> AbstractContextManager[NodeWorld]:
        return self._opened()

    def put_release(self, release: str) -> None:
        stored = self.harness.store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=self.harness.deadline()).find(
            CLUSTER_INFORMATION_KEY
        )
        assert stored is not None
        found = evolve(stored.value, spec=evolve(stored.value.spec, version=release))
        self.harness.store.commit([Update(stored.key, found, stored.revision)], deadline=self.harness.deadline())

    def put_release_of_cluster(self, release: str) -> None:
        """A cluster that runs a release already."""
        spec = ClusterInformationSpec(cluster_guid="c0ffee", version=release, is_datastore_ready=True)
        found = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
        self.harness.store.commit([Create(CLUSTER_INFORMATION_KEY, found)], deadline=self.harness.deadline())

    def put_node_release(self, name: str, release: str) -> None:
        stored = self.harness.find(name)
        assert stored is not None
        changed = evolve(stored.value, status=NodeStatus(release=release))
        self.harness.store.commit([Update(stored.key, changed, stored.revision)], deadline=self.harness.deadline())

    def release(self) -> str:
        return find_cluster_information(self.harness.store, deadline=self.harness.deadline()).version

    def put_other(self, name: str, address: str) -> None:
        bgp = NodeBGP(ipv4_address=InterfaceAddress.parse(address))
        node = Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=bgp))
        self.harness.store.commit([Create(node_key(name), node)], deadline=self.harness.deadline())

    def address(self) -> str:
        stored = self.harness.find("machine")
        assert stored is not None
        return str(stored.value.find_address(Family.IPV4))

    @contextmanager
    def _opened(self) -> Iterator[NodeWorld]:
        self.opened += 1
        if self.problem is not None:
            raise self.problem
        world = self.harness.world()
        if self.write_problem is None:
            yield world
        else:
            yield evolve(world, datastore=RefusingStore(world.datastore, self.write_problem))

    def wake_and_wait(self) -> None:
        """Let the registration know that interfaces have changed, and let it gather and act."""
        for loop in self.driven.loops:
            if INTERFACES_CHANGED in loop.controller.inputs:
                loop.wake()
        self.driven.pass_time(3.0)

    def looks(self, count: int, every_s: float = TRY_AGAIN_S) -> list[str]:
        """The new lines of some looks, with a pause after each."""
        before = len(self.harness.log.texts)
        for _ in range(count):
            self.driven.pass_time()
            self.harness.clock.sleep(every_s)
        return self.harness.log.texts[before:]


def test_a_node_is_registered_at_once_and_looked_at_now_and_then() -> None:
    scene = Scene()
    assert scene.looks(4) == [*SETTLED, REGISTERED, RELEASED]
    assert scene.opened == 2, "a new address is looked at once more"
    assert scene.harness.host.texts[NODE_NAME_FILE] == "machine"
    assert scene.harness.host.folders == {STATUS_FOLDER}
    assert scene.looks(2, LOOK_EVERY_S) == []
    assert scene.opened == 3


def test_an_address_that_another_node_has_registered_in_the_same_instant_is_given_back_to_the_lower_name() -> None:
    scene = Scene()
    store = scene.harness.store
    scene.registration.view = view = View(clock=scene.harness.clock, uncached_kinds=frozenset(), guard=Lock())
    scene.looks(3)
    for name, expected in (("zeta", []), ("alpha", ["the node alpha has the address 10.240.0.11"])):
        bgp = NodeBGP(ipv4_address=InterfaceAddress.parse("10.240.0.11/24"))
        other = Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=bgp))
        store.commit([Create(node_key(name), other)], deadline=scene.harness.deadline())
        view.follow_lists(
            store.read([List(NODE)], deadline=scene.harness.deadline()), now_s=scene.harness.clock.monotonic()
        )
        scene.driven.pass_time(LOOK_EVERY_S)
        assert scene.registration.addresses is not None
        found = scene.registration.find_conflicts()
        assert [(each.cause, each.event) for each in found] == [(cause, "AddressConflict") for cause in expected]


def test_a_node_that_is_deleted_is_registered_again() -> None:
    scene = Scene()
    scene.looks(1, LOOK_EVERY_S)
    scene.harness.delete_node("machine")
    scene.looks(1)
    assert scene.harness.find("machine") is not None


def test_a_datastore_that_is_away_is_tried_again_and_named_once() -> None:
    scene = Scene(problem=Unavailable("etcd", "connection refused"))
    assert scene.looks(3) == ["WARNING the node is not registered cause=etcd: connection refused"]
    assert scene.opened == 3
    assert NODE_NAME_FILE not in scene.harness.host.texts
    scene.problem = None
    assert scene.looks(2) == [*SETTLED, REGISTERED, RELEASED]
    assert scene.opened == 4


def test_a_configuration_that_cannot_be_used_is_tried_again() -> None:
    scene = Scene(problem=ConfigurationError("datastore_type", "foo", "registered: etcdv3"))
    (line,) = scene.looks(2)
    assert line.startswith("WARNING the node is not registered cause=")
    scene.problem = ModuleNotFoundError("No module named 'grpc'")
    assert scene.looks(1) == ["WARNING the node is not registered cause=No module named 'grpc'"]


def test_without_a_datastore_it_says_so_once_and_makes_the_folder() -> None:
    scene = Scene(settings=None)
    line = "INFO the node is not registered: no datastore is configured for that"
    assert scene.looks(3, LOOK_EVERY_S) == [line]
    assert scene.opened == 0
    assert scene.harness.host.folders == {STATUS_FOLDER}
    assert NODE_NAME_FILE not in scene.harness.host.texts


def test_a_folder_that_cannot_be_made_does_not_stop_the_registration() -> None:
    scene = Scene()
    scene.harness.host.unwritable.add(STATUS_FOLDER)
    cause = "[Errno 30] Read-only file system"
    assert scene.looks(2) == [
        f"WARNING the folder of endpoint status files cannot be made cause={cause}",
        *SETTLED,
        REGISTERED,
        RELEASED,
    ]
    scene.harness.host.unwritable.clear()
    assert scene.looks(1) == []
    assert scene.harness.host.folders == {STATUS_FOLDER}


def test_a_name_that_cannot_be_written_is_tried_again() -> None:
    scene = Scene()
    scene.harness.host.unwritable.add("/var/lib/netplug")
    cause = "[Errno 28] No space left on device"
    assert scene.looks(1) == [SETTLED[0], f"WARNING the node is not registered cause={cause}"]
    scene.harness.host.unwritable.clear()
    assert scene.looks(1) == [SETTLED[1], REGISTERED, RELEASED]


def test_labels_are_copied_and_what_keeps_them_is_named_once() -> None:
    scene = Scene()
    scene.harness.has_orchestrator = True
    *before, last = scene.looks(2, LOOK_EVERY_S)
    assert before == [*SETTLED, REGISTERED, RELEASED]
    assert last.startswith("WARNING the labels of the orchestrator's node are not copied cause=")
    scene.harness.put_cluster_node("machine", zone="a")
    copied = "INFO the labels of the orchestrator's node are copied node=machine"
    assert scene.looks(2, LOOK_EVERY_S) == [copied]
    assert scene.harness.labels("machine") == {"zone": "a"}


# --- addresses ----------------------------------------------------------------------------------------------------


def test_a_change_of_interfaces_is_registered_two_seconds_after_it_and_pods_change_nothing() -> None:
    scene = Scene()
    scene.driven.pass_time()
    network = scene.harness.network
    network.interfaces = (*network.interfaces, interface("netp12", 9, "fe80::1/64"))
    scene.wake_and_wait()
    assert scene.opened == 1
    network.interfaces = (interface("eth0", 2, "10.240.0.12/24"),)
    scene.environ["IP"] = "autodetect"
    scene.wake_and_wait()
    assert (scene.opened, scene.address()) == (2, "10.240.0.12/24")
    status = scene.registration.status()
    assert status is not None
    assert (status.node, status.pod_mtu, status.problems) == ("machine", 1500, ())
    assert [(each.family, each.address, each.origin) for each in status.addresses] == [
        ("IPv4", "10.240.0.12/24", "detected"),
        ("IPv6", "", ""),
    ]
    assert status.addresses[0].trace[-1] == "eth0 10.240.0.12/24: chosen"


def test_pools_that_are_followed_count_when_they_change_and_are_not_read() -> None:
    scene = Scene()
    store, clock = scene.harness.store, scene.harness.clock
    view = View(clock=clock, uncached_kinds=frozenset(), guard=Lock())
    scene.registration.view = view
    scene.looks(2)
    pool = IPPool(
        metadata=Metadata(name="v4"),
        spec=IPPoolSpec(prefix=Prefix.parse("10.65.0.0/16"), vxlan_mode=Encapsulation.ALWAYS),
    )
    store.commit([Create(ippool_key("v4"), pool)], deadline=scene.harness.deadline())
    scene.wake_and_wait()
    assert scene.harness.host.texts[MTU_FILE] == "1500", "nothing is followed yet"
    queries = [List(IPPOOL), List(NODE_CONFIGURATION)]
    view.follow_lists(store.read(queries, deadline=scene.harness.deadline()), now_s=clock.monotonic())
    scene.wake_and_wait()
    assert scene.harness.host.texts[MTU_FILE] == "1450"
    opened = scene.opened
    scene.wake_and_wait()
    assert scene.opened == opened, "nothing has changed"


def test_without_a_change_the_node_is_looked_at_as_often_as_is_configured() -> None:
    scene = Scene()
    scene.registration.poll_s = 7.0
    scene.driven.pass_time(7.0)
    assert scene.opened == 2
    scene.driven.pass_time(14.0)
    assert scene.opened == 4


def test_a_method_that_does_not_exist_is_named_and_the_node_not_registered() -> None:
    scene = Scene(environ={"IP_AUTODETECTION_METHOD": "best"})
    (line,) = scene.looks(2)
    assert line.startswith(
        "WARNING the node is not registered cause=IP_AUTODETECTION_METHOD: 'best' is not accepted; one of first-found,"
    )
    assert scene.opened == 0


def test_a_configured_address_of_another_node_keeps_a_node_that_starts_from_being_registered() -> None:
    scene = Scene(environ={"IP": "10.240.0.11"})
    scene.put_other("n1", "10.240.0.11/24")
    line = "ERROR the configured IPv4 address is not registered cause=the node n1 has the address 10.240.0.11"
    assert line in scene.looks(1)
    assert (scene.address(), scene.registration.name) == ("None", None)
    assert NODE_NAME_FILE not in scene.harness.host.texts


def test_a_conflict_while_the_node_serves_ends_nothing_and_lasts_until_the_address_is_free() -> None:
    scene = Scene(environ={"IP": "autodetect"})
    scene.looks(1)
    scene.put_other("n1", "10.240.0.12/24")
    scene.harness.network.interfaces = (interface("eth0", 2, "10.240.0.12/24"),)
    line = "ERROR the detected IPv4 address is not registered cause=the node n1 has the address 10.240.0.12"
    assert line in scene.looks(2, LOOK_EVERY_S)
    assert (scene.address(), scene.registration.name) == ("None", "machine")
    status = scene.registration.status()
    assert status is not None
    assert status.problems == ("the detected IPv4 address is not registered: the node n1 has the address 10.240.0.12",)
    scene.harness.delete_node("n1")
    scene.looks(1, LOOK_EVERY_S)
    assert scene.address() == "10.240.0.12/24"


def test_a_node_without_an_address_serves_and_says_so_until_it_has_one() -> None:
    scene = Scene()
    scene.harness.network.interfaces = ()
    lines = scene.looks(2)
    cause = "first-found finds no IPv4 address"
    assert f"WARNING the address of the node is not detected: other nodes do not reach its pods cause={cause}" in lines
    assert REGISTERED in lines
    assert scene.harness.host.texts[MTU_FILE] == "1460"
    scene.harness.network.interfaces = (interface("eth0", 2, "10.240.0.11/24"),)
    scene.wake_and_wait()
    assert scene.address() == "10.240.0.11/24"
    assert scene.driven.loops[1].health.problems == ()


def test_without_the_right_to_write_addresses_a_node_is_registered_without_them() -> None:
    scene = Scene(write_problem=Unavailable("the API server", "away"))
    lines = scene.looks(1)
    assert "WARNING the addresses of the node are not registered cause=the API server: away" in lines
    assert REGISTERED in lines
    assert scene.registration.status() is None
    scene.write_problem = None
    assert scene.looks(1, LOOK_EVERY_S) == [*SETTLED, RELEASED]


# --- the release of the cluster -----------------------------------------------------------------------------------


def test_the_release_is_stored_at_the_start_and_looked_at_now_and_then() -> None:
    scene = Scene()
    scene.looks(1)
    assert scene.release() == "v3.33.0"
    scene.put_release("v3.32.0")
    scene.looks(int(RELEASE_EVERY_S / LOOK_EVERY_S) - 1, LOOK_EVERY_S)
    assert scene.release() == "v3.32.0"
    assert scene.looks(2, LOOK_EVERY_S) == [RELEASED]
    scene.put_release("v3.34.0")
    assert scene.looks(int(RELEASE_EVERY_S / LOOK_EVERY_S) + 1, LOOK_EVERY_S) == []
    assert scene.release() == "v3.34.0", "no node lowers it"


def test_the_node_says_which_release_it_runs_and_others_hold_back_that_of_the_cluster() -> None:
    scene = Scene()
    scene.put_other("n1", "10.240.0.12/24")
    scene.put_node_release("n1", "v3.32.0")
    scene.looks(1)
    own = scene.harness.find("machine")
    assert own is not None
    assert own.value.status.release == "v3.33.0"
    assert scene.release() == "v3.32.0"
    scene.put_node_release("n1", "v3.33.0")
    assert scene.looks(int(RELEASE_EVERY_S / LOOK_EVERY_S) + 1, LOOK_EVERY_S) == [RELEASED]


def test_nodes_that_are_followed_are_not_read_again() -> None:
    """What is followed may show this node as it was before it started."""
    scene = Scene()
    scene.put_release_of_cluster("v3.32.0")
    for name, address in (("machine", "10.240.0.99/24"), ("n1", "10.240.0.12/24")):
        scene.put_other(name, address)
        scene.put_node_release(name, "v3.32.0")
    view = scene.registration.view = View(clock=scene.harness.clock, uncached_kinds=frozenset())

    def follow() -> None:
        view.follow_lists(scene.harness.store.read([List(NODE)], deadline=scene.harness.deadline()), now_s=0.0)

    follow()
    scene.put_node_release("n1", "v3.33.0")
    scene.looks(1)
    assert scene.release() == "v3.32.0"
    scene.put_node_release("machine", "v3.32.0")
    follow()
    assert RELEASED in scene.looks(int(RELEASE_EVERY_S / LOOK_EVERY_S) + 1, LOOK_EVERY_S)


def test_a_release_that_cannot_be_stored_is_tried_again_as_at_the_start_and_the_node_is_registered() -> None:
    scene = Scene(write_problem=Unavailable("etcd", "away"))
    failure = "WARNING the release of the cluster is not stored cause=etcd: away"
    assert scene.looks(3, LOOK_EVERY_S)[-1] == failure
    scene.write_problem = None
    assert RELEASED in scene.looks(1, LOOK_EVERY_S)
    assert scene.release() == "v3.33.0"
