"""What a lab is made with; ``netplug_cli.lab.commands`` puts it together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from attrs import evolve, frozen

from netplug_cli.ctl.session import Session
from netplug_cli.lab.cluster_objects import ClusterObjects
from netplug_cli.lab.model import NODE_NETNS, Lab
from netplug_cli.lab.namespaces import Namespaces
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.stores import OwnServers, store_environment
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.protocol import IPAM
from netplug_core.settings.model import DatastoreSettings

__all__ = ["LabWorld", "Progress"]


class Progress(Protocol):
    """Where ``up`` and ``down`` say how far they are."""

    def info(self, text: str) -> None:
        """Something is done."""
        ...

    def warn(self, text: str) -> None:
        """Something is not as it should be."""
        ...

    def activity(self, text: str) -> AbstractContextManager[object]:
        """Something is being done until the block ends."""
        ...


@frozen(kw_only=True)
class LabWorld:
    """The kernel, the installer of the executables, ``netplugctl``'s own session, and servers.

    ``open_ipam`` opens what assigns addresses from a store; ``open_cluster`` the API server that settings lead to, for
    a lab of that uid.
    """

    namespaces: Namespaces
    install: Callable[[str, Callable[[str], None]], None]
    session: Session
    open_ipam: Callable[[Datastore], AbstractContextManager[IPAM]]
    open_cluster: Callable[[DatastoreSettings, str], AbstractContextManager[ClusterObjects]]
    progress: Progress

    def lab_session(self, lab: Lab, folder: LabFolder) -> Session:
        """The session whose store is the lab's, wherever the calling thread has to be to reach it."""

        @contextmanager
        def open_store(settings: DatastoreSettings) -> Iterator[Datastore]:
            with self._in_server_namespace(lab, folder), self.session.open_backend(settings) as store:
                yield store

        return evolve(self.session.with_environment(store_environment(lab.store, folder)), open_backend=open_store)

    @contextmanager
    def open_lab_cluster(self, lab: Lab, folder: LabFolder) -> Iterator[ClusterObjects]:
        """The API server of a lab that has one."""
        settings = self.session.with_environment(store_environment(lab.store, folder)).settings()
        with self._in_server_namespace(lab, folder), self.open_cluster(settings, lab.uid) as cluster:
            yield cluster

    @contextmanager
    def _in_server_namespace(self, lab: Lab, folder: LabFolder) -> Iterator[None]:
        """Be where the lab's store can be reached: its own servers are in the node's namespace, and nowhere else."""
        if not isinstance(lab.store, OwnServers):
            yield
            return
        with self.namespaces.enter(folder.netns(NODE_NETNS)):
            yield
