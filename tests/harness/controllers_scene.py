"""The controllers of ``netplug-controllers`` without threads, over a store of records and one that shows a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.controllers.collection import Collection
from netplug_cli.controllers.copies import Copying
from netplug_cli.controllers.nodes import (
    CONFIGURATION_CHANGED,
    CONTROLLER_KINDS,
    LEADER_CHANGED,
    Acting,
    ClusterIdentity,
    Configuration,
    GoneNodes,
    HostEndpoints,
)
from netplug_cli.runtime.controllers import Reconciler
from netplug_cli.runtime.feed import StoreFeed
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, EndpointStorage
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.collect import find_addresses
from netplug_core.orchestrator.model import KUBERNETES_NODE, POD, NodeFacts, PodFacts
from netplug_core.reconcile.copies import (
    COPIED_KINDS,
    COPY_KINDS,
    CopyRules,
    KeptParts,
    account_copies,
    endpoint_copies,
    namespace_copies,
    node_label_copies,
    policy_copies,
)
from netplug_core.reconcile.kubecontrollers import CopySource
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Query,
    Record,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    Write,
)
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.hostendpoint import HOST_ENDPOINT
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    KubeControllersConfiguration,
    KubeControllersSpec,
)
from netplug_core.resources.node import NODE, Node, NodeSpec, OrchestratorReference, node_key
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines
from tests.harness.stores import StoreWrapper

_FEED_S = 61.0
"""Two watches in memory take so long, one after the other."""


def machine_node(name: str, machine: str = "", **labels: str) -> Node:
    """A Node that names a machine of the orchestrator; without one it names none."""
    reference = OrchestratorReference(orchestrator="k8s", node_name=machine)
    return Node(
        metadata=Metadata(name=name, labels=tuple(sorted(labels.items()))),
        spec=NodeSpec(orchestrator_references=(reference,) if machine else ()),
    )


def _all_copies() -> tuple[CopyRules, ...]:
    """The rules of everything that is copied."""
    return (policy_copies(), namespace_copies(), account_copies(), endpoint_copies(), node_label_copies())


@define
class _Reached(StoreWrapper):
    """A store as one process reaches it: ``check`` raises while it does not."""

    check: Callable[[], None]

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer if it is reached."""
        self.check()
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply the writes if it is reached."""
        self.check()
        return self.inner.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Every change as long as it is reached."""
        self.check()
        for event in self.inner.watch(start, deadline=deadline):
            self.check()
            yield event


@define(kw_only=True)
class ControllersScene:
    """``is_leading`` says whether the process acts; ``away`` names stores that the process does not reach.

    ``other`` is another process over the same stores. ``faulty`` is what the process opens in place of ``store``.
    """

    other: ControllersScene | None = None
    clock: ManualClock = field(factory=ManualClock)
    log: Lines = field(factory=Lines)
    environ: dict[str, str] = field(factory=dict)
    is_leading: bool = True
    source: CopySource = CopySource.DATASTORE
    store: MemoryDatastore = field(init=False)
    cluster: MemoryDatastore = field(init=False)
    away: set[str] = field(factory=set)
    faulty: Datastore | None = None
    configuration: Configuration = field(init=False)
    collection: Collection = field(init=False)
    driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        if self.other is not None:
            self.clock, self.store, self.cluster = self.other.clock, self.other.store, self.other.cluster
            self.start()
            return
        self.store, self.cluster = MemoryDatastore(clock=self.clock), MemoryDatastore(clock=self.clock)
        self.cluster.description = evolve(self.cluster.description, endpoints=EndpointStorage.PODS)
        self.start()

    def start(self) -> None:
        """Begin anew, as a process that was started again: nothing is remembered."""
        feed, cluster = self._feed("records", self.store), self._feed("cluster", self.cluster)
        numbers = count(1)
        acting = Acting(
            view=feed.view,
            find_datastore=lambda: feed.datastore,
            is_leading=lambda: self.is_leading,
            new_uid=lambda: f"uid-{next(numbers)}",
            clock=self.clock,
        )
        self.configuration = Configuration(
            acting=acting,
            environ=self.environ,
            source=self.source,
            note_change=lambda: self.wake(CONFIGURATION_CHANGED),
            log=self.log,
        )
        self.collection = Collection(
            acting=acting,
            find_running=lambda: self.configuration.running,
            find_source=lambda: cluster.datastore,
            has_source=True,
            pods=cluster.view,
            chance=lambda: 0.5,
            log=self.log,
        )
        controllers: tuple[Reconciler, ...] = (
            feed.controller(),
            cluster.controller(),
            self.configuration.controller(),
            ClusterIdentity(acting=acting, chance=lambda: 0.5, log=self.log).controller(),
            HostEndpoints(acting=acting, find_running=lambda: self.configuration.running).controller(),
            GoneNodes(
                acting=acting,
                find_running=lambda: self.configuration.running,
                cluster=cluster.view,
                find_source=lambda: cluster.datastore,
                log=self.log,
            ).controller(),
            self.collection.controller(),
            *(
                Copying(
                    acting=acting,
                    rules=rules,
                    sources=cluster.view,
                    copies=feed.view,
                    find_running=lambda: self.configuration.running,
                    find_source=lambda: cluster.datastore,
                ).controller()
                for rules in _all_copies()
            ),
        )
        self.driven = DrivenControllers(controllers, clock=self.clock, log=self.log)
        feed.view.on_change = cluster.view.on_change = self.wake

    def wake(self, changed: object) -> None:
        """Wake those that have this input."""
        for loop in self.driven.loops:
            if changed in loop.controller.inputs:
                loop.wake()

    def lead(self, *, is_leading: bool) -> None:
        """Let this process act, or no more."""
        self.is_leading = is_leading
        self.wake(LEADER_CHANGED)

    def settle(self, seconds: float = 2 * _FEED_S) -> None:
        """Let the feeds see what is stored, and the controllers do what is due."""
        self.driven.pass_time(seconds)

    def problems(self, name: str) -> list[str]:
        """What a controller cannot do now."""
        (loop,) = (loop for loop in self.driven.loops if loop.controller.name == name)
        return [f"{problem.message}: {problem.cause}" for problem in loop.health.problems]

    # --- what is stored --------------------------------------------------------------------------------------------

    def put(self, key: Key[object], value: object, store: MemoryDatastore | None = None) -> None:
        """Store a value, whatever is there."""
        found = self.find(key, store)
        write: Write = Create(key, value) if found is None else Update(key, value, found.revision)
        (store or self.store).commit([write], deadline=self.deadline())

    def delete(self, key: Key[object], store: MemoryDatastore | None = None) -> None:
        """Delete what is stored."""
        found = self.find(key, store)
        assert found is not None
        (store or self.store).commit([Delete(key, found.revision)], deadline=self.deadline())

    def find(self, key: Key[object], store: MemoryDatastore | None = None) -> Record[object] | None:
        """What is stored."""
        return (store or self.store).read([Get(key)], deadline=self.deadline()).find(key)

    def put_node(self, node: Node) -> None:
        """Store a Node."""
        self.put(node_key(node.metadata.name), node)

    def put_machine(self, name: str, **labels: str) -> None:
        """Let the orchestrator have a node, as both kinds show it."""
        self.put(node_key(name), machine_node(name, **labels), self.cluster)
        facts = NodeFacts(name=name, uid="u", labels=tuple(sorted(labels.items())))
        self.put(KUBERNETES_NODE.key(name), facts, self.cluster)

    def delete_machine(self, name: str) -> None:
        """Let the orchestrator have a node no more, if it has one."""
        for key in (node_key(name), KUBERNETES_NODE.key(name)):
            if self.find(key, self.cluster) is not None:
                self.delete(key, self.cluster)

    def put_pod(self, pod: PodFacts) -> None:
        """Let the orchestrator have a pod."""
        self.put(POD.key(pod.namespace, pod.name), pod, self.cluster)

    def configure(self, spec: KubeControllersSpec) -> None:
        """Store settings of the controllers."""
        value = KubeControllersConfiguration(metadata=Metadata(name="default"), spec=spec)
        self.put(KUBE_CONTROLLERS_CONFIGURATION_KEY, value)

    def stored_configuration(self) -> KubeControllersConfiguration:
        """The stored settings, with their status."""
        found = self.find(KUBE_CONTROLLERS_CONFIGURATION_KEY)
        assert found is not None
        assert isinstance(found.value, KubeControllersConfiguration)
        return found.value

    def cluster_information(self) -> ClusterInformationSpec:
        """The stored identity of the cluster."""
        found = self.find(CLUSTER_INFORMATION_KEY)
        assert found is not None
        assert isinstance(found.value, ClusterInformation)
        return found.value.spec

    def nodes(self) -> list[str]:
        """The names of the stored Nodes."""
        return self._names(List(NODE))

    def host_endpoints(self) -> list[str]:
        """The names of the stored host endpoints."""
        return self._names(List(HOST_ENDPOINT))

    def deadline(self) -> Deadline:
        """Enough for one call."""
        return Deadline.after(self.clock, 5.0)

    def _names(self, query: List[object]) -> list[str]:
        found = self.store.read([query], deadline=self.deadline())
        return [record.key.name for record in found.results[query].records]

    def _feed(self, name: str, store: MemoryDatastore) -> StoreFeed:
        def check() -> None:
            if name in self.away:
                raise Unavailable(name, "it does not answer")

        @contextmanager
        def open_datastore(_settings: DatastoreSettings) -> Iterator[Datastore]:
            check()
            yield _Reached(store if name == "cluster" or self.faulty is None else self.faulty, check)

        settings = DatastoreSettings()
        return StoreFeed(
            name=f"{name} feed",
            what=name,
            kinds=(*CONTROLLER_KINDS, *COPY_KINDS) if name == "records" else (KUBERNETES_NODE, *COPIED_KINDS),
            view=View(clock=self.clock, uncached_kinds=frozenset(), keep=KeptParts(find_addresses).keep),
            read_datastore=lambda: settings,
            open_datastore=open_datastore,
            clock=self.clock,
        )
