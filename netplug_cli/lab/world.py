"""The opened interfaces that a lab acts through; ``netplug_cli.wiring.lab`` opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from attrs import frozen

from netplug_cli.lab.model import Lab, LabFolder, Namespaces, OwnServers, store_environment
from netplug_cli.node_status import NodeStatus
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.dataplane.connectivity import ClusterPods
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.protocol import IPAM
from netplug_core.settings.model import DatastoreSettings

__all__ = ["ClusterObjects", "LabWorld", "Progress", "Table", "ToolSession"]


@frozen(kw_only=True)
class Table:
    """Rows for programs: the ``members`` of each, the member ``name`` that has them, and other members as ``facts``."""

    members: tuple[str, ...]
    rows: tuple[tuple[str | float | bool | None, ...], ...]
    name: str
    facts: Mapping[str, object]


class ClusterObjects(Protocol):
    """The objects of a lab's node and pods on an API server. Each method raises NetplugError when the server refuses.

    Making an object that exists and belongs to the lab changes nothing.
    """

    def require_ready(self) -> None:
        """Return if the server is ready and allows the lab to list its objects."""
        ...

    def install_definitions(self) -> int:
        """Install the definitions of netplug that are missing; return how many were."""
        ...

    def make_node(self, name: str) -> None:
        """Make a node that gets no pods scheduled."""
        ...

    def make_namespace(self, name: str) -> None:
        """Make a namespace, and the service account that its pods need."""
        ...

    def make_pod(self, namespace: str, name: str, *, node: str) -> None:
        """Make a pod on a node."""
        ...

    def has_definitions(self) -> bool:
        """Whether the server has netplug's definitions, so that there may be records."""
        ...

    def remove_all(self) -> int:
        """Remove everything of the lab but the definitions; return how many objects were removed."""
        ...


class Progress(Protocol):
    """Where ``up`` and ``down`` report their progress."""

    def info(self, text: str) -> None:
        """Report a step that is done."""
        ...

    def warn(self, text: str) -> None:
        """Report a problem."""
        ...

    def activity(self, text: str) -> AbstractContextManager[object]:
        """Report an activity that lasts until the block ends."""
        ...

    def waiting(
        self, text: str, total: int, clock: Clock, deadline: Deadline
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Report how many of those that are awaited until the deadline are as they have to be."""
        ...


class ToolSession(Protocol):
    """A run of ``netplugctl``, as far as a lab needs it."""

    @property
    def clock(self) -> Clock:
        """The machine's time."""
        ...

    @property
    def new_uid(self) -> Callable[[], str]:
        """Makes a fresh random UUID."""
        ...

    def settings(self) -> DatastoreSettings:
        """The settings of the datastore."""
        ...

    def with_environment(self, environ: Mapping[str, str]) -> ToolSession:
        """The same run with the datastore that an environment names."""
        ...

    def open_datastore(self) -> AbstractContextManager[Datastore]:
        """Open the configured datastore."""
        ...

    def pace(self) -> Pace:
        """How long one change may take, from now, and how to wait between attempts."""
        ...

    def deadline(self) -> Deadline:
        """How long one question may take, from now."""
        ...


@frozen(kw_only=True)
class LabWorld:
    """The kernel, the installer of the executables, a run of ``netplugctl``, and servers.

    ``node_command`` is the program of the node process with its first arguments; without one, the executables serve
    every call by themselves. ``open_ipam`` opens the IPAM of a datastore. ``open_cluster`` opens the API server that
    settings lead to, for the lab with that uid, and ``open_pods`` the cluster there, for a test of its connectivity.
    ``server_addresses`` returns host and port of each server that settings name. ``ask_node`` asks the node process
    whose socket for calls is at a path. ``usage_lines`` renders the pools, the blocks and the addresses of a datastore;
    ``render_yaml`` renders a value as YAML, and ``render_table`` a table in the format of that name.
    """

    namespaces: Namespaces
    install: Callable[[str, Callable[[str], None]], None]
    node_command: tuple[str, ...]
    session: ToolSession
    open_ipam: Callable[[Datastore], AbstractContextManager[IPAM]]
    open_cluster: Callable[[DatastoreSettings, str], AbstractContextManager[ClusterObjects]]
    open_pods: Callable[[DatastoreSettings], AbstractContextManager[ClusterPods]]
    server_addresses: Callable[[DatastoreSettings], tuple[tuple[str, int], ...]]
    ask_node: Callable[[str], NodeStatus]
    usage_lines: Callable[[Datastore, Deadline], Iterable[str]]
    render_yaml: Callable[[object], str]
    render_table: Callable[[Table, str], str]
    progress: Progress

    @contextmanager
    def open_store(self, lab: Lab, folder: LabFolder) -> Iterator[Datastore]:
        """The lab's datastore; the calling thread is in the namespace from which it can be reached."""
        session = self.session.with_environment(store_environment(lab.store, folder))
        with self._in_server_namespace(lab, folder), session.open_datastore() as store:
            yield store

    @contextmanager
    def open_lab_cluster(self, lab: Lab, folder: LabFolder) -> Iterator[ClusterObjects]:
        """The API server of a lab that has one."""
        settings = self.session.with_environment(store_environment(lab.store, folder)).settings()
        with self._in_server_namespace(lab, folder), self.open_cluster(settings, lab.uid) as cluster:
            yield cluster

    @contextmanager
    def _in_server_namespace(self, lab: Lab, folder: LabFolder) -> Iterator[None]:
        """Enter the namespace of the lab's own servers, if it has such: they can be reached only from there."""
        if not isinstance(lab.store, OwnServers):
            yield
            return
        with self.namespaces.enter(folder.netns(lab.server_netns)):
            yield
