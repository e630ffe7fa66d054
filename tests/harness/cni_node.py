"""A node of fakes, for tests of flows: a store in memory, a kernel in memory, a clock that tests move.

Calls are made as a runtime makes them: variables and JSON in, through the real protocol and configuration code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from attrs import Factory, define, evolve, field, frozen

from netplug_backends.delegate.ipam import DelegatedIPAM
from netplug_backends.hostlocal.ipam import HostLocalIPAM
from netplug_backends.memory.dataplane import MemoryDataplane
from netplug_backends.memory.datastore import MemoryDatastore, MemoryLocks
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.request import CNIRequest, decode_netconf, make_request, parse_environment
from netplug_core.cni.result import CNIResult, render_result
from netplug_core.dataplane.protocol import InterfacePresence, KernelError
from netplug_core.dataplane.ruleset import PacketTable
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.cni import add, check, delete, status
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.flows.world import CNIWorld, ReplayTime
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.hostlocal.reserve import Boot
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.ipam.protocol import IPAM
from netplug_core.locks import CallLocks, HeldLock
from netplug_core.log import Level
from netplug_core.netconf.model import HOST_LOCAL_IPAM, LoadPurpose, NetConf, load
from netplug_core.orchestrator.model import NodeFacts, Orchestrator
from netplug_core.records import Create, Get, Kind, List, Record, Update, Write
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.dataplane_checks import link_to
from netplug_core.workload import BOOT_ID_FILE, ProbeResult
from tests.harness.release_records import FakeRecordFiles

NODE = "node-1"
BOOT_ID = "1f0b2b44-0000-4000-8000-000000000001"
LOCK_FILE = "/var/run/netplug/ipam.lock"
POD = "K8S_POD_NAMESPACE=test;K8S_POD_NAME=test-pod-1"
NO_ANSWER = ProbeResult(problem="Connection refused")
DUAL_STACK: dict[str, object] = {"type": "netplug-ipam", "assign_ipv6": "true"}

Flow = Callable[[CNIWorld, CNIRequest, NetConf], CNIResult | None]

FLOWS: Mapping[Plugin, Mapping[str, Flow]] = {
    Plugin.MAIN: {
        "ADD": add.add,
        "DEL": delete.delete,
        "CHECK": check.check,
        "STATUS": status.status,
        "GC": status.gc,
    },
    Plugin.IPAM: {
        "ADD": add.assign_addresses,
        "DEL": delete.release_addresses,
        "CHECK": check.check_addresses,
        "STATUS": status.status_addresses,
        "GC": status.collect,
    },
}


@define
class FakePolicyGuard:
    """The packet filter of a node of fakes. ``problem``: why no table can be made; ``looks`` come before each look."""

    dataplane: MemoryDataplane
    table: PacketTable | None = None
    problem: str = ""
    unreadable: str = ""
    on_look: Callable[[], None] = lambda: None

    def has_table(self) -> bool:
        self.on_look()
        if self.unreadable:
            raise KernelError("looking for the table of policy", self.unreadable)
        return self.table is not None

    def has_workload_links(self) -> bool:
        return any(name.startswith("netp") for name in self.dataplane.names())

    def create(self, table: PacketTable) -> None:
        if self.problem:
            raise KernelError("programming the packet filter", self.problem)
        self.table = table

    def find_problem(self) -> str:
        return self.problem


@frozen
class FakeFolderChanges:
    """A folder whose changes nobody hears: each wait takes all of its time."""

    clock: ManualClock

    def wait(self, seconds: float) -> None:
        self.clock.sleep(seconds)


@define
class FakeHost:
    """A machine of texts and locks; a path may hold an error instead. ``before_lock`` is called before each attempt.

    ``before_read`` is called with the path of a text before it is read, ``before_write`` before a file is written. In
    the folders of ``unwritable`` nothing can be written or removed. ``times`` has when release records were written.
    ``answer_probe`` answers probes; without it no URL does.
    """

    name: str = "Machine"
    clock: ManualClock = field(factory=ManualClock)
    texts: dict[str, str | OSError] = Factory(lambda: {BOOT_ID_FILE: f"{BOOT_ID}\n"})
    locks: MemoryLocks = field(factory=MemoryLocks)
    before_lock: Callable[[], None] = lambda: None
    before_read: Callable[[str], None] = lambda _path: None
    before_write: Callable[[], None] = lambda: None
    answer_probe: Callable[[str, Deadline], ProbeResult] = lambda _url, _deadline: NO_ANSWER
    unwritable: set[str] = field(factory=set)
    times: dict[str, int] = field(factory=dict)
    folders: set[str] = field(factory=set)
    _uids: Iterator[int] = field(factory=lambda: count(1))

    def host_name(self) -> str:
        return self.name

    def find_text(self, path: str) -> str | None:
        self.before_read(path)
        found = self.texts.get(path)
        if isinstance(found, OSError):
            raise found
        return found

    @contextmanager
    def watch_folder(self, path: str) -> Iterator[FakeFolderChanges]:
        yield FakeFolderChanges(self.clock)

    def probe(self, url: str, *, deadline: Deadline) -> ProbeResult:
        return self.answer_probe(url, deadline)

    def publish(self, path: str, text: str) -> None:
        self.before_write()
        if path.rsplit("/", 1)[0] in self.unwritable:
            raise OSError(28, "No space left on device")
        self.texts[path] = text

    def replace_secret(self, path: str, text: str) -> None:
        self.publish(path, text)

    def make_public_folder(self, path: str) -> None:
        if path in self.unwritable:
            raise OSError(30, "Read-only file system")
        self.folders.add(path)

    def try_lock(self, path: str, offset: int) -> HeldLock | None:
        self.before_lock()
        return self.locks.try_lock(path, offset)

    def new_uid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._uids):012}"


@define
class RecordingLog:
    """A log that keeps its lines."""

    lines: list[tuple[Level, str, dict[str, object]]] = field(factory=list)

    def __call__(self, level: Level, message: str, /, **fields: object) -> None:
        self.lines.append((level, message, fields))

    def of(self, level: Level) -> list[str]:
        """The messages of a level."""
        return [message for found, message, _fields in self.lines if found is level]


@frozen(kw_only=True)
class ContainerInterface:
    """One interface of one container, as a runtime speaks of it."""

    id: str = "c1"
    netns: str = "/run/netns/c1"
    ifname: str = "eth0"
    args: str = ""


DEFAULT_CONTAINER = ContainerInterface()


def _make_memory_store(harness: CNINodeHarness) -> MemoryDatastore:
    return MemoryDatastore(clock=harness.clock)


def _same_store(harness: CNINodeHarness) -> Datastore:
    return harness.memory


def _default_config() -> dict[str, object]:
    return {
        "cniVersion": "1.1.0",
        "name": "net1",
        "type": "netplug",
        "nodename": NODE,
        "datastore_type": "memory",
        "ipam": {"type": "netplug-ipam"},
    }


@define
class CNINodeHarness:
    """A node, what is stored, and calls to it. ``store`` may be wrapped; ``memory`` is what is inside."""

    clock: ManualClock = field(factory=ManualClock)
    memory: MemoryDatastore = Factory(_make_memory_store, takes_self=True)
    store: Datastore = Factory(_same_store, takes_self=True)
    dataplane: MemoryDataplane = field(factory=MemoryDataplane)
    guard: FakePolicyGuard = Factory(lambda self: FakePolicyGuard(self.dataplane), takes_self=True)
    host: FakeHost = Factory(lambda self: FakeHost(clock=self.clock), takes_self=True)
    log: RecordingLog = field(factory=RecordingLog)
    config: dict[str, object] = Factory(_default_config)
    orchestrator: Orchestrator | None = None
    pod_cidrs: tuple[Prefix, ...] = ()
    boot: Boot | None = None
    cni_path: str = "/opt/cni/bin"
    replay_time: ReplayTime = ReplayTime.AFTER_CALLS

    @property
    def world(self) -> CNIWorld:
        return self.open_world(LOCK_FILE)

    def open_world(self, lock_file: str, ipam: IPAM | None = None) -> CNIWorld:
        """The interfaces of a call whose configuration names that lock file, and perhaps another IPAM."""
        locks = CallLocks(host=self.host, clock=self.clock, log=self.log, path=lock_file)
        addresses = BlockIPAM(datastore=self.store, clock=self.clock, chance=lambda: 0.5, lock=locks.host_lock)
        return CNIWorld(
            datastore=self.store,
            ipam=ipam or addresses,
            dataplane=self.dataplane,
            host=self.host,
            records=self.record_files,
            locks=locks,
            clock=self.clock,
            log=self.log,
            open_guard=lambda: self.guard,
            replay_time=self.replay_time,
            open_orchestrator=None if self.orchestrator is None else self._opened_orchestrator,
        )

    @contextmanager
    def _opened_orchestrator(self) -> Iterator[Orchestrator]:
        assert self.orchestrator is not None
        yield self.orchestrator

    # --- calls -----------------------------------------------------------------------------------------------------

    def run(
        self,
        command: str,
        container: ContainerInterface = DEFAULT_CONTAINER,
        plugin: Plugin = Plugin.MAIN,
        **changes: object,
    ) -> CNIResult | None:
        """Serve a call as ``netplug_core.flows.cni.call`` does; ``changes`` are made to the configuration."""
        return self._serve(plugin, *self.make_call(command, container, plugin, **changes))

    def resume(
        self,
        command: str,
        container: ContainerInterface = DEFAULT_CONTAINER,
        plugin: Plugin = Plugin.MAIN,
        **changes: object,
    ) -> CNIResult | None:
        """Serve a call that another process began."""
        request, netconf = self.make_call(command, container, plugin, **changes)
        return self._serve(plugin, evolve(request, is_resumed=True), netconf)

    def _serve(self, plugin: Plugin, request: CNIRequest, netconf: NetConf) -> CNIResult | None:
        ipam = self.open_host_local(netconf) if netconf.ipam.type == HOST_LOCAL_IPAM else None
        ipam = self.open_delegated(request, netconf) if netconf.ipam.is_delegated and plugin is Plugin.MAIN else ipam
        return FLOWS[plugin][request.command.value](self.open_world(netconf.ipam_lock_file, ipam), request, netconf)

    def open_delegated(self, request: CNIRequest, netconf: NetConf) -> IPAM:
        """The IPAM that executes a program of ``cni_path``."""
        context = IPAMContext(
            datastore=self.store, clock=self.clock, chance=lambda: 0.5, netconf=netconf.own_keys, request=request
        )
        return DelegatedIPAM(context, request)

    def open_host_local(self, netconf: NetConf) -> IPAM:
        """The IPAM of files; ``pod_cidrs`` are those of every node."""
        context = IPAMContext(
            datastore=self.store,
            clock=self.clock,
            chance=lambda: 0.5,
            netconf=netconf.own_keys,
            find_node=lambda name, _deadline: NodeFacts(name=name, uid="u", pod_cidrs=self.pod_cidrs),
        )
        return HostLocalIPAM(context, find_boot=lambda: self.boot)

    def make_call(
        self, command: str, container: ContainerInterface, plugin: Plugin, **changes: object
    ) -> tuple[CNIRequest, NetConf]:
        """The request and the configuration of a call."""
        environ = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container.id,
            "CNI_NETNS": container.netns,
            "CNI_IFNAME": container.ifname,
            "CNI_ARGS": container.args,
            "CNI_PATH": self.cni_path,
            "PATH": os.environ["PATH"],
        }
        environment = parse_environment(environ)
        members = {**self.config, **changes}
        sent = {key: value for key, value in members.items() if value is not None or key.startswith("cni.dev/")}
        raw = json.dumps(sent)
        mapping = decode_netconf(raw)
        request = make_request(environment, netconf_text=raw, netconf_mapping=mapping, environ=environ)
        return request, load(request.netconf_mapping, plugin, LoadPurpose.of(environment.command))

    def add(self, container: ContainerInterface = DEFAULT_CONTAINER, **changes: object) -> CNIResult:
        """ADD by the main plugin; the namespace is made if need be, as a runtime does."""
        if self.is_namespace_missing(container.netns):
            self.dataplane.add_namespace(container.netns)
        result = self.run("ADD", container, Plugin.MAIN, **changes)
        assert result is not None
        return result

    def check(
        self, container: ContainerInterface, result: CNIResult, plugin: Plugin = Plugin.MAIN, **changes: object
    ) -> None:
        """CHECK with what ADD answered."""
        changes = {"prevResult": json.loads(render_result(result, "1.1.0")), **changes}
        assert self.run("CHECK", container, plugin, **changes) is None

    def is_namespace_missing(self, namespace: str) -> bool:
        """Whether there is no such namespace."""
        return self.dataplane.find(link_to(namespace)) is InterfacePresence.NAMESPACE_GONE

    # --- what is stored --------------------------------------------------------------------------------------------

    def commit(self, *writes: Write) -> None:
        """Store something as another actor would."""
        self.memory.commit(writes, deadline=Deadline.after(self.clock, 5))

    def add_pool(self, name: str, cidr: str) -> None:
        """A pool with the defaults."""
        prefix = Prefix.parse(cidr)
        spec = IPPoolSpec(prefix=prefix, block_length=max(prefix.length, prefix.family.default_block_length))
        self.commit(Create(ippool_key(name), IPPool(metadata=Metadata(name=name), spec=spec)))

    def set_ready(self, *, is_ready: bool = False) -> None:
        """Set ``datastoreReady``."""
        snapshot = self.memory.read((Get(CLUSTER_INFORMATION_KEY),), deadline=Deadline.after(self.clock, 5))
        value = ClusterInformation(
            metadata=Metadata(name="default"), spec=ClusterInformationSpec(is_datastore_ready=is_ready)
        )
        found = snapshot.find(CLUSTER_INFORMATION_KEY)
        self.commit(
            Update(CLUSTER_INFORMATION_KEY, value, found.revision) if found else Create(CLUSTER_INFORMATION_KEY, value)
        )

    def values_of_kind(self, kind: Kind[object]) -> dict[tuple[str, ...], object]:
        """Everything stored of a kind, by path."""
        query = List(kind)
        snapshot = self.memory.read((query,), deadline=Deadline.after(self.clock, 5))
        return {record.key.path: record.value for record in snapshot.list(query)}

    def stored_endpoint(self) -> Record[WorkloadEndpoint]:
        """The one endpoint there is, with its revision."""
        query = List(WORKLOAD_ENDPOINT)
        (record,) = self.memory.read([query], deadline=Deadline.after(self.clock, 5)).list(query)
        return record

    def endpoints(self) -> list[WorkloadEndpoint]:
        """The stored endpoints, in the order of their names."""
        query = List(WORKLOAD_ENDPOINT)
        snapshot = self.memory.read((query,), deadline=Deadline.after(self.clock, 5))
        return [record.value for record in snapshot.list(query)]

    def allocations(self) -> dict[Address, str | None]:
        """Every address that is held, with the handle that holds it."""
        query = List(BLOCK)
        snapshot = self.memory.read((query,), deadline=Deadline.after(self.clock, 5))
        blocks = [record.value for record in snapshot.list(query)]
        return {held.address: held.attribute.handle for block in blocks for held in block.held()}

    def handles(self) -> list[str]:
        """The ids of all handles."""
        return [path[0] for path in self.values_of_kind(HANDLE)]

    def release_records(self) -> list[str]:
        """The paths of the release records on the node below their folder, sorted; damaged ones are none."""
        start = f"{self.record_files.folder}/"
        paths = (path.removeprefix(start) for path in self.host.texts if path.startswith(start))
        return sorted(path for path in paths if path.endswith(".json"))

    @property
    def record_files(self) -> FakeRecordFiles:
        """The files of release records."""
        return FakeRecordFiles(self.host, self.clock, NetConf().release_record_dir)

    def affinities(self) -> dict[tuple[str, ...], object]:
        """All claims of nodes."""
        return self.values_of_kind(AFFINITY)

    def assert_nothing_left(self) -> None:
        """No release record, address, handle, endpoint, interface or route of any container."""
        assert self.release_records() == []
        assert self.allocations() == {}
        assert self.handles() == []
        assert self.endpoints() == []
        assert self.dataplane.names() == ()
        assert self.dataplane.host_routes() == ()
