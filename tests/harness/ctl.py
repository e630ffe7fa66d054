"""The tool over a store in memory: what a person types, and what comes back."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path

import pytest
from attrs import define, evolve, field

from netplug_backends.hostlocal.ipam import NetworkFiles
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.ctl.main import run
from netplug_cli.ctl.session import Session
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.installation.cluster import Cluster
from netplug_core.records import Create, Get, Key, Kind, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import DamagedDatastore, Fault, FaultyDatastore
from tests.harness.stores import StoreOfOldDefinitions


def open_no_cluster(settings: DatastoreSettings) -> AbstractContextManager[Cluster]:
    """What opens the cluster of a tool that has none."""
    raise Unavailable(settings.type, "this tool has no cluster")


@define
class ToolHarness:
    """A person at a terminal.

    ``is_unavailable`` takes the store out of reach. ``damage`` has what is read in place of some records, ``unserved``
    the kinds that the store does not know.
    ``faults`` is what the commits of each command suffer. ``opened_settings`` says which stores were asked for.
    """

    folder: Path
    capsys: pytest.CaptureFixture[str]
    clock: ManualClock
    store: MemoryDatastore
    is_unavailable: bool = False
    out: str = ""
    err: str = ""
    environ: dict[str, str] = field(factory=dict)
    host_problems: tuple[str, ...] = ()
    missing_plugins: tuple[str, ...] = ()
    damage: dict[Key[object], bytes] = field(factory=dict)
    unserved: frozenset[Kind[object]] = frozenset()
    faults: dict[int, Fault] = field(factory=dict)
    opened_settings: list[DatastoreSettings] = field(factory=list)
    numbers: Iterator[int] = field(factory=lambda: count(1))
    open_cluster: Callable[[DatastoreSettings], AbstractContextManager[Cluster]] = open_no_cluster

    @contextmanager
    def open_store(self, settings: DatastoreSettings) -> Iterator[Datastore]:
        self.opened_settings.append(settings)
        if self.is_unavailable:
            raise Unavailable(settings.sqlite_path, "unable to open the file")
        store: Datastore = DamagedDatastore(self.store, damage=self.damage) if self.damage else self.store
        store = StoreOfOldDefinitions(store, self.unserved) if self.unserved else store
        yield FaultyDatastore(store, self.faults) if self.faults else store

    def make_session(self) -> Session:
        """A run of the tool over the store in memory."""
        return Session(
            environ={"SQLITE_PATH": "/nowhere", "ETCD_PASSWORD": "hunter2", **self.environ},
            open_backend=self.open_store,
            open_memory_datastore=lambda clock: nullcontext(MemoryDatastore(clock=clock)),
            open_backend_of_cluster=self.open_cluster,
            require_trusted_environment=lambda: None,
            install_executables=lambda folder, client, report: report(f"installed {folder}, {client}"),
            uninstall_executables=lambda folder, report: report(f"removed {folder}"),
            install_node=lambda folder, units, report: report(f"installed the node process {folder}, {units}"),
            uninstall_node=lambda folder, units, report: report(f"removed the node process {folder}, {units}"),
            remove_network=lambda report: report("removed the network"),
            open_host_local_folder=NetworkFiles,
            find_host_problems=lambda _folder: self.host_problems,
            find_missing_plugins=lambda _folder: self.missing_plugins,
            clock=self.clock,
            chance=lambda: 0.5,
            new_uid=lambda: f"00000000-0000-4000-8000-{next(self.numbers):012}",
            default_config_file=str(self.folder / "netplugctl.cfg"),
        )

    def run_command(self, *argv: str) -> int:
        """Run one command line; what it printed is in ``out`` and ``err``."""
        status = run(argv, self.make_session)
        self.out, self.err = self.capsys.readouterr()
        return status

    def write_file(self, text: str, name: str = "pool.yaml") -> str:
        """Write a file; its path."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def write_pools(self, *pairs: tuple[str, str], spec: str = "") -> str:
        """A file of pools, by name and CIDR; ``spec`` is more YAML for each."""
        documents = (
            f"apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\n"
            f"spec: {{cidr: '{cidr}'{', ' if spec else ''}{spec}}}\n"
            for name, cidr in pairs
        )
        return self.write_file("---\n".join(documents))

    def store_records(self, *writes: Create[object]) -> None:
        """Store something that people cannot create."""
        self.store.commit(writes, deadline=Deadline.after(self.clock, 5))

    def set_locked(self) -> None:
        """Declare the datastore not ready, as an upgrade does."""
        deadline = Deadline.after(self.clock, 5)
        found = self.store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=deadline).find(CLUSTER_INFORMATION_KEY)
        assert found is not None
        locked = evolve(found.value, spec=evolve(found.value.spec, is_datastore_ready=False))
        self.store.commit([Update(found.key, locked, found.revision)], deadline=deadline)
