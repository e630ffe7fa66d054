"""What the packet filter follows from: what is stored, and the workload endpoints of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.node.packet_filter import LocalEndpoints, NodeFacts
from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.keys import Key, Kind
from netplug_core.reconcile.controller import Outcome
from netplug_core.reconcile.nat import NatFacts
from netplug_core.records import Query, Revision, Snapshot, WatchEvent
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.workloadendpoint import IPNAT, WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.clock import ManualClock
from tests.harness.network import NetworkHarness

WEB, DB, OTHERS = (WORKLOAD_ENDPOINT.key("shop", name) for name in ("web", "db", "others"))


def endpoint(name: str, *, node: str = "a") -> WorkloadEndpoint:
    spec = WorkloadEndpointSpec(orchestrator="k8s", node=node, endpoint="eth0", addresses=(Address.parse("10.0.0.5"),))
    return WorkloadEndpoint(metadata=Metadata(name=name, namespace="shop"), spec=spec)


@define
class Scene:
    """The network of a node in memory, and what is known for its packet filter."""

    network: NetworkHarness = field(factory=NetworkHarness)
    changes: int = 0
    store: Datastore | None = None  # instead of that of the network
    endpoints: LocalEndpoints = field(init=False)
    facts: NodeFacts = field(init=False)

    def __attrs_post_init__(self) -> None:
        view = self.network.feed.view
        self.endpoints = LocalEndpoints(
            view=view,
            find_name=lambda: self.network.name,
            find_datastore=lambda: self.store or self.network.feed.datastore,
            note_change=self._note_change,
            clock=self.network.clock,
        )
        self.facts = NodeFacts(view=view, find_name=lambda: self.network.name, endpoints=self.endpoints)

    def _note_change(self) -> None:
        self.changes += 1

    def enable(self, switch: Switch = Switch.ENABLED) -> None:
        spec = NodeConfigurationSpec(floating_ips=switch)
        configuration = NodeConfiguration(metadata=Metadata(name="default"), spec=spec)
        self.network.put(NODE_CONFIGURATION.key("default"), configuration)
        self.network.feed_once()

    def follow(self) -> Outcome:
        """One watch of the endpoints."""
        return self.endpoints.controller().reconcile(self.network.clock, lambda: True)

    @property
    def found(self) -> NatFacts | None:
        return self.facts(self.network.deadline())

    @property
    def names(self) -> set[str] | None:
        found = self.found
        return None if found is None else {each.metadata.name for each in found.endpoints}


class Away(MemoryDatastore):
    """A store that does not answer."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        raise Unavailable("the server", "connection refused")

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        raise Unavailable("the server", "the connection was lost")


def test_nothing_is_known_before_the_node_has_a_name_and_everything_was_listed() -> None:
    scene = Scene()
    assert scene.found is None
    scene.network.feed_once()
    assert scene.names == set()
    scene.network.name = None
    assert scene.found is None


def test_without_floating_addresses_no_endpoints_are_followed() -> None:
    scene = Scene()
    scene.network.put(WEB, endpoint("web"))
    scene.network.feed_once()
    outcome = scene.follow()
    assert (outcome.is_failed, outcome.look_again_s) == (False, 10.0)
    assert scene.names == set()
    scene.enable(Switch.DISABLED)
    scene.follow()
    assert (scene.names, scene.changes) == (set(), 0)


def test_the_endpoints_of_the_node_are_followed_and_no_others() -> None:
    scene = Scene()
    scene.network.put(WEB, endpoint("web"))
    scene.network.put(OTHERS, endpoint("others", node="b"))
    scene.enable()
    assert scene.found is None
    assert scene.follow().look_again_s == 0.0
    assert (scene.names, scene.changes) == ({"web"}, 1)
    scene.network.put(DB, endpoint("db"))
    scene.network.put(WORKLOAD_ENDPOINT.key("shop", "far"), endpoint("far", node="b"))
    scene.network.delete(WEB)
    scene.follow()
    assert scene.names == {"db"}
    assert scene.changes == 4


def test_floating_addresses_are_known_with_the_endpoints() -> None:
    scene = Scene()
    assert scene.facts.find_floating() is None
    scene.network.feed_once()
    assert scene.facts.find_floating() == {}
    nat = IPNAT(internal=Address.parse("10.0.0.5"), external=Address.parse("203.0.113.1"))
    web = endpoint("web")
    web = evolve(web, spec=evolve(web.spec, ip_nats=(nat,), interface_name="netp1"))
    scene.network.put(WEB, web)
    scene.enable()
    assert scene.facts.find_floating() is None
    scene.follow()
    assert scene.facts.find_floating() == {Address.parse("203.0.113.1"): "netp1"}


def test_endpoints_stay_known_while_the_datastore_is_away() -> None:
    scene = Scene()
    scene.network.put(WEB, endpoint("web"))
    scene.enable()
    scene.follow()
    scene.store = Away(clock=scene.network.clock)
    assert scene.follow().is_failed
    assert scene.follow().is_failed  # it cannot be listed either
    assert scene.names == {"web"}
    scene.store = None
    scene.network.put(DB, endpoint("db"))
    scene.follow()
    assert scene.names == {"web", "db"}


# --- endpoints that are pods ------------------------------------------------------------------------------------------


LOST = Unavailable("the server", "the connection was lost")


@define(eq=False)
class PodWatch:
    """The endpoints of a node as a test delivers them; so many of the first ones are a list.

    ``look`` is called before each event after the list, and before the end.
    """

    events: list[WatchEvent[object] | Unavailable]
    listed: int
    look: Callable[[], None] = lambda: None
    is_closed: bool = False
    _read: int = 0

    def __iter__(self) -> Iterator[WatchEvent[object]]:
        return self

    def __next__(self) -> WatchEvent[object]:
        self._read += 1
        if self._read > self.listed:
            self.look()
        if not self.events:
            raise StopIteration
        event = self.events.pop(0)
        if isinstance(event, Unavailable):
            raise event
        return event

    def current_until_s(self, kind: Kind[object]) -> float | None:
        assert kind == WORKLOAD_ENDPOINT
        return 1.0 if self._read > self.listed else None

    def close(self) -> None:
        self.is_closed = True


class PodStore(MemoryDatastore):
    """A store whose endpoints are views of pods. Each watch is the next one of a test."""

    def __init__(self, clock: ManualClock, *watches: PodWatch) -> None:
        super().__init__(clock=clock)
        self.watches = list(watches)

    def watch_endpoints(self, node: str, *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        assert (node, deadline.has_passed) == ("a", False)
        return self.watches.pop(0)


def event(key: Key[object], value: WorkloadEndpoint | None) -> WatchEvent[object]:
    return WatchEvent(key, value, Revision("1"))


def test_pods_of_the_node_are_known_once_they_were_listed() -> None:
    scene = Scene()
    scene.enable()
    looks: list[set[str] | None] = []
    web, database = event(WEB, endpoint("web")), event(DB, endpoint("db"))
    first = PodWatch([web, database, event(WEB, None)], listed=2, look=lambda: looks.append(scene.names))
    second = PodWatch([web], listed=1, look=lambda: looks.append(scene.names))
    scene.store = PodStore(scene.network.clock, first, second)
    assert scene.follow().look_again_s == 0.0
    assert looks == [{"web", "db"}, {"db"}]
    assert (scene.names, scene.changes) == ({"db"}, 3)
    scene.follow()  # another watch lists them again, and the other one is gone
    assert (scene.names, looks[2:]) == ({"web"}, [{"web"}])


def test_pods_stay_known_while_a_watch_breaks_before_it_has_listed_them() -> None:
    scene = Scene()
    scene.enable()
    database = event(DB, endpoint("db"))
    watches = PodWatch([database], listed=1), PodWatch([LOST], listed=1), PodWatch([database, LOST], listed=1)
    scene.store = PodStore(scene.network.clock, *watches)
    scene.follow()
    assert scene.follow().is_failed
    assert scene.names == {"db"}
    assert scene.follow().is_failed
    assert scene.names == {"db"}


def test_a_process_that_ends_waits_for_no_watch() -> None:
    scene = Scene()
    scene.enable()
    controller = scene.endpoints.controller()
    watch = PodWatch([], listed=0, look=controller.interrupt)
    scene.store = PodStore(scene.network.clock, watch)
    assert controller.reconcile(scene.network.clock, lambda: True).look_again_s is None
    assert watch.is_closed
    controller.interrupt()  # nothing is watched any more
