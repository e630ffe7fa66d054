"""When the node is looked at, what a failure changes, and what the log says."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from attrs import define, field

from netplug_cli.node.tasks import LOOK_EVERY_S, RELEASE_EVERY_S, TRY_AGAIN_S, NodeRegistration
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.node.registration import NodeWorld
from netplug_core.netconf.model import NetConf
from netplug_core.settings.model import DatastoreSettings
from tests.harness.controllers import DrivenControllers
from tests.harness.node_registration import NODE_NAME_FILE, NodeHarness

STATUS_FOLDER = "/var/run/netplug/endpoint-status"
REGISTERED = "INFO the node is registered datastore=etcdv3 node=machine"
RELEASED = "INFO the release of the cluster is that of this process now"


@define
class Scene:
    """A registration whose datastore can be away, or not be configured."""

    harness: NodeHarness = field(factory=NodeHarness)
    settings: DatastoreSettings | None = field(factory=DatastoreSettings)
    problem: Exception | None = None
    release_problem: Exception | None = None
    starts: list[bool] = field(factory=list)
    opened: int = 0
    driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.harness.has_orchestrator = False
        registration = NodeRegistration(
            names=NetConf(nodename_file=NODE_NAME_FILE),
            read_datastore=lambda: self.settings,
            open_world=self.open_world,
            store_release=self.store_release,
            host=self.harness.host,
            clock=self.harness.clock,
            log=self.harness.log,
        )
        harness = self.harness
        self.driven = DrivenControllers(registration.controllers(), clock=harness.clock, log=harness.log)

    def open_world(self, _netconf: NetConf) -> AbstractContextManager[NodeWorld]:
        return self._opened()

    def store_release(self, world: NodeWorld, settings: DatastoreSettings, *, has_just_started: bool) -> bool:
        assert (world.datastore, settings) == (self.harness.store, self.settings)
        if self.release_problem is not None:
            raise self.release_problem
        self.starts.append(has_just_started)
        return has_just_started

    @contextmanager
    def _opened(self) -> Iterator[NodeWorld]:
        self.opened += 1
        if self.problem is not None:
            raise self.problem
        yield self.harness.world()

    def looks(self, count: int, every_s: float = TRY_AGAIN_S) -> list[str]:
        """The new lines of some looks, with a pause after each."""
        before = len(self.harness.log.texts)
        for _ in range(count):
            self.driven.pass_time()
            self.harness.clock.sleep(every_s)
        return self.harness.log.texts[before:]


def test_a_node_is_registered_at_once_and_looked_at_now_and_then() -> None:
    scene = Scene()
    assert scene.looks(3) == [REGISTERED, RELEASED]
    assert scene.opened == 1
    assert scene.harness.host.texts[NODE_NAME_FILE] == "machine"
    assert scene.harness.host.folders == {STATUS_FOLDER}
    assert scene.looks(2, LOOK_EVERY_S) == []
    assert scene.opened == 2


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
    assert scene.looks(2) == [REGISTERED, RELEASED]
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
        REGISTERED,
        RELEASED,
    ]
    scene.harness.host.unwritable.clear()
    assert scene.looks(1) == []
    assert scene.harness.host.folders == {STATUS_FOLDER}


def test_a_name_that_cannot_be_written_is_tried_again() -> None:
    scene = Scene()
    scene.harness.host.unwritable.add("/var/lib/netplug")
    assert scene.looks(1) == ["WARNING the node is not registered cause=[Errno 28] No space left on device"]
    scene.harness.host.unwritable.clear()
    assert scene.looks(1) == [REGISTERED, RELEASED]


def test_labels_are_copied_and_what_keeps_them_is_named_once() -> None:
    scene = Scene()
    scene.harness.has_orchestrator = True
    first, second, third = scene.looks(2, LOOK_EVERY_S)
    assert (first, second) == (REGISTERED, RELEASED)
    assert third.startswith("WARNING the labels of the orchestrator's node are not copied cause=")
    scene.harness.put_cluster_node("machine", zone="a")
    copied = "INFO the labels of the orchestrator's node are copied node=machine"
    assert scene.looks(2, LOOK_EVERY_S) == [copied]
    assert scene.harness.labels("machine") == {"zone": "a"}


# --- the release of the cluster -----------------------------------------------------------------------------------


def test_the_release_is_stored_at_the_start_and_looked_at_now_and_then() -> None:
    scene = Scene()
    scene.looks(int(RELEASE_EVERY_S / LOOK_EVERY_S), LOOK_EVERY_S)
    assert scene.starts == [True]
    assert scene.looks(2, LOOK_EVERY_S) == []
    assert scene.starts == [True, False]


def test_a_release_that_cannot_be_stored_is_tried_again_as_at_the_start_and_the_node_is_registered() -> None:
    scene = Scene(release_problem=Unavailable("etcd", "away"))
    failure = "WARNING the release of the cluster is not stored cause=etcd: away"
    assert scene.looks(3, LOOK_EVERY_S) == [REGISTERED, failure]
    scene.release_problem = None
    assert scene.looks(1, LOOK_EVERY_S) == [RELEASED]
    assert scene.starts == [True]
