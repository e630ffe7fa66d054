"""A lab without a kernel: namespaces that are kept in memory, and plugins that are scripts of a few lines."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from attrs import Factory, define, field

from netplug_backends.hostlocal.ipam import NetworkFiles
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.ctl.documents import render_yaml
from netplug_cli.ctl.session import Session
from netplug_cli.ctl.tables import usage_lines
from netplug_cli.lab.model import LabFolder
from netplug_cli.lab.world import LabWorld
from netplug_cli.node_status import NodeStatus
from netplug_cli.wiring.lab import server_addresses
from netplug_core.addressing import Address, Family, InterfaceAddress
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.connectivity import ClusterPods
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import DataplaneError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.protocol import IPAM
from netplug_core.resources.ippool import AllowedUse
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from netplug_core.workload import NewObjectMetadata, WorkloadIdentity, endpoint_upsert
from tests.harness.ctl import open_no_cluster

__all__ = ["ADD_OUTPUT", "KernelError", "LabHarness"]

ADD_OUTPUT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "netp0123"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/x"}],
    "ips": [{"address": "10.98.0.1/32", "interface": 1}, {"address": "fd98::1/128", "interface": 1}],
}

# Keeps its input: a line of its variables and a line of its standard input for each call.
_PLUGIN = """#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS $CNI_PATH" >> '{calls}'
cat >> '{calls}'
echo >> '{calls}'
if [ "$CNI_COMMAND $CNI_CONTAINERID" = "{fails_at}" ]; then
    echo '{{"cniVersion":"1.0.0","code":11,"msg":"the store is away","details":"try later"}}'
    exit 1
fi
[ "$CNI_COMMAND" = DEL ] || echo '{answer}'
"""


class KernelError(DataplaneError):
    """What the namespaces raise in a test of a failure."""

    def __str__(self) -> str:
        return "the kernel would not"


@define
class FakeNamespaces:
    """Strict: nothing is made twice, and nothing that is not there is entered."""

    made: list[str] = Factory(list)
    forwarding: dict[str, tuple[Address, ...]] = Factory(dict)
    switches: list[str] = Factory(list)
    plugged: dict[str, tuple[str, str, str, tuple[InterfaceAddress, ...]]] = Factory(dict)
    remaining_interfaces: tuple[str, ...] = ()
    entered: list[str] = Factory(list)
    failing_suffix: str = ""

    def make(self, path: str) -> None:
        if self.failing_suffix and path.endswith(self.failing_suffix):
            raise KernelError
        Path(path).touch(exist_ok=False)
        assert path not in self.made
        self.made.append(path)

    def remove(self, path: str) -> None:
        self.made.remove(path)
        self.switches = [each for each in self.switches if each != path]
        self.plugged.pop(path, None)
        Path(path).unlink()

    def find_below(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(path for path in self.made if path.startswith(f"{folder}/")))

    def configure_node(self, path: str, addresses: Iterable[Address]) -> None:
        assert path in self.made
        self.forwarding[path] = tuple(addresses)

    def make_switch(self, path: str) -> None:
        assert path in self.made
        assert path not in self.switches
        self.switches.append(path)

    def plug_in(self, path: str, interface: str, switch: str, port: str, addresses: Iterable[InterfaceAddress]) -> None:
        assert path in self.made
        assert switch in self.switches
        assert path not in self.plugged
        self.plugged[path] = interface, switch, port, tuple(addresses)

    def interfaces(self, path: str) -> tuple[str, ...]:
        assert path in self.made
        return self.remaining_interfaces

    @contextmanager
    def enter(self, path: str) -> Iterator[None]:
        assert path in self.made
        self.entered.append(path)
        yield


@define
class FakeCluster:
    """An API server that knows one lab; ``is_away`` makes it fail at everything, ``is_stuck`` at removing.

    One that ``is_bare`` has no definitions.
    """

    owner: str = ""
    objects: list[str] = Factory(list)
    is_unavailable: bool = False
    lacks_definitions: bool = False
    fails_to_remove: bool = False

    def require_ready(self) -> None:
        assert self.owner
        if self.is_unavailable:
            raise Unavailable("kubernetes API", "connection refused")

    def install_definitions(self) -> int:
        return 7

    def has_definitions(self) -> bool:
        if self.is_unavailable:
            raise Unavailable("kubernetes API", "connection refused")
        return not self.lacks_definitions

    def make_node(self, name: str) -> None:
        self.objects.append(name)

    def make_namespace(self, name: str) -> None:
        self.objects.append(name)

    def make_pod(self, namespace: str, name: str, *, node: str) -> None:
        assert {namespace, node} <= set(self.objects)
        self.objects.append(f"{namespace}/{name}")

    def remove_all(self) -> int:
        if self.is_unavailable:
            raise Unavailable("kubernetes API", "connection refused")
        if self.fails_to_remove:
            raise Unavailable("kubernetes API", "the namespace does not go")
        count = len(self.objects)
        self.objects.clear()
        return count


@define
class RecordedProgress:
    """Progress that is kept."""

    lines: list[str] = Factory(list)
    warnings: list[str] = Factory(list)
    counts: list[tuple[str, int, int]] = Factory(list)

    def info(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    @contextmanager
    def activity(self, text: str) -> Iterator[None]:
        yield

    @contextmanager
    def waiting(self, text: str, total: int, clock: Clock, deadline: Deadline) -> Iterator[Callable[[int], None]]:
        yield lambda done: self.counts.append((text, done, total))


@define
class LabHarness:
    """One lab's surroundings. ``fails_at`` is a command and a pod whose plugin call fails, such as ``ADD pod-2``."""

    home: Path
    fails_at: str = ""
    clock: ManualClock = Factory(ManualClock)
    namespaces: FakeNamespaces = Factory(FakeNamespaces)
    progress: RecordedProgress = Factory(RecordedProgress)
    opened_settings: list[DatastoreSettings] = Factory(list)
    cluster: FakeCluster = Factory(FakeCluster)
    store: MemoryDatastore = field(init=False)
    is_store_unavailable: bool = False
    node_command: tuple[str, ...] = ()
    statuses: dict[str, NodeStatus] = Factory(dict)
    uid: str = "00000000-0000-4000-8000-000000000001"
    environ: dict[str, str] = Factory(dict)
    pods: ClusterPods | None = None

    def __attrs_post_init__(self) -> None:
        self.store = MemoryDatastore(clock=self.clock)

    @property
    def folder(self) -> LabFolder:
        return LabFolder(str(self.home / "lab"))

    @property
    def calls(self) -> list[tuple[str, dict[str, object]]]:
        """The input of each plugin call: variables as one line, and the request."""
        file = self.home / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(lines[at], json.loads(lines[at + 1])) for at in range(0, len(lines), 2)]

    def world(self) -> LabWorld:
        session = Session(
            environ=self.environ,
            open_backend=self.open_store,
            open_memory_datastore=lambda clock: nullcontext(MemoryDatastore(clock=clock)),
            open_backend_of_cluster=open_no_cluster,
            require_trusted_environment=lambda: None,
            install_executables=lambda folder, _client, report: self.install(folder, report),
            open_host_local_folder=NetworkFiles,
            find_host_problems=lambda _folder: (),
            find_missing_plugins=lambda _folder: (),
            uninstall_executables=lambda folder, report: report(f"removed {folder}"),
            install_node=lambda folder, _units, report: report(f"installed the node process {folder}"),
            uninstall_node=lambda folder, _units, report: report(f"removed the node process {folder}"),
            remove_network=lambda report: report("removed the network"),
            clock=self.clock,
            chance=lambda: 0.5,
            new_uid=lambda: self.uid,
        )
        return LabWorld(
            namespaces=self.namespaces,
            install=self.install,
            node_command=self.node_command,
            session=session,
            open_ipam=self.open_ipam,
            open_cluster=self.open_cluster,
            open_pods=self.open_pods,
            server_addresses=server_addresses,
            usage_lines=lambda store, deadline: usage_lines(
                read_utilization(store, deadline=deadline), shows_blocks=True
            ),
            ask_node=self.ask_node,
            render_yaml=render_yaml,
            render_table=lambda table, output: f"{output}: {len(table.rows)} {table.name}",
            progress=self.progress,
        )

    def open_pods(self, settings: DatastoreSettings) -> AbstractContextManager[ClusterPods]:
        assert settings.is_kubernetes
        assert self.pods is not None
        return nullcontext(self.pods)

    def ask_node(self, path: str) -> NodeStatus:
        found = self.statuses.get(path)
        if found is None:
            raise Unavailable("the node process", "connection refused")
        return found

    @contextmanager
    def open_store(self, settings: DatastoreSettings) -> Iterator[Datastore]:
        self.opened_settings.append(settings)
        if self.is_store_unavailable:
            raise Unavailable("etcd", "connection refused")
        yield self.store

    def open_ipam(self, store: Datastore) -> AbstractContextManager[IPAM]:
        return nullcontext(BlockIPAM(datastore=store, clock=self.clock, chance=lambda: 0.5))

    def attach(self, workload: WorkloadIdentity) -> tuple[Address, ...]:
        """What the ADD of a pod leaves in a store, which the scripts do not."""
        request = AssignRequest(
            handle=workload.handle,
            node=workload.node,
            wanted=(Automatic(family=Family.IPV4),),
            owner=workload.allocation_attributes,
            use=AllowedUse.WORKLOAD,
        )
        endpoint = endpoint_upsert(workload, NewObjectMetadata(uid="u", creation_time_ns=0))
        with self.open_ipam(self.store) as ipam:
            assignment = ipam.assign(request, endpoint, deadline=Deadline.after(self.clock, 1))
        return tuple(assigned.address for assigned in assignment.addresses)

    @contextmanager
    def open_cluster(self, settings: DatastoreSettings, owner: str) -> Iterator[FakeCluster]:
        self.opened_settings.append(settings)
        self.cluster.owner = owner
        yield self.cluster

    def install(self, bin_dir: str, say: Callable[[str], None]) -> None:
        file = Path(bin_dir) / "netplug"
        text = _PLUGIN.format(calls=self.home / "calls", fails_at=self.fails_at, answer=json.dumps(ADD_OUTPUT))
        file.write_text(text)
        file.chmod(0o755)
        say(f"installed {file}")
