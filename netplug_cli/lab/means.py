"""What a lab is made with; ``netplug_cli.ctl.commands.lab`` puts it together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from attrs import evolve, frozen

from netplug_cli.ctl.session import Session
from netplug_cli.lab.cluster import Cluster
from netplug_cli.lab.model import NODE, Lab
from netplug_cli.lab.namespaces import Namespaces
from netplug_cli.lab.paths import Folder
from netplug_cli.lab.stores import OwnServers, store_environment
from netplug_core.datastore.interface import Datastore
from netplug_core.ipam.interface import IPAM
from netplug_core.netconf.model import DatastoreSettings

__all__ = ["Means", "Progress"]


class Progress(Protocol):
    """Where ``up`` and ``down`` say how far they are."""

    def say(self, text: str) -> None:
        """Something is done."""
        ...

    def warn(self, text: str) -> None:
        """Something is not as it should be."""
        ...

    def working(self, text: str) -> AbstractContextManager[object]:
        """Something is being done until the block ends."""
        ...


@frozen(kw_only=True)
class Means:
    """The kernel, the installer of the executables, ``netplugctl``'s own session, and servers.

    ``open_ipam`` opens what assigns addresses from a store; ``open_cluster`` the API server that settings lead to, for
    a lab of that uid.
    """

    namespaces: Namespaces
    install: Callable[[str, Callable[[str], None]], None]
    session: Session
    open_ipam: Callable[[Datastore], AbstractContextManager[IPAM]]
    open_cluster: Callable[[DatastoreSettings, str], AbstractContextManager[Cluster]]
    progress: Progress

    def session_of(self, lab: Lab, folder: Folder) -> Session:
        """The session whose store is the lab's, wherever the calling thread has to be to reach it."""

        @contextmanager
        def open_store(settings: DatastoreSettings) -> Iterator[Datastore]:
            with self._beside(lab, folder), self.session.open_store(settings) as store:
                yield store

        return evolve(self.session.on(store_environment(lab.store, folder)), open_store=open_store)

    @contextmanager
    def cluster_of(self, lab: Lab, folder: Folder) -> Iterator[Cluster]:
        """The API server of a lab that has one."""
        settings = self.session.on(store_environment(lab.store, folder)).settings()
        with self._beside(lab, folder), self.open_cluster(settings, lab.uid) as cluster:
            yield cluster

    @contextmanager
    def _beside(self, lab: Lab, folder: Folder) -> Iterator[None]:
        """Be where the lab's store can be reached: its own servers are in the node's namespace, and nowhere else."""
        if not isinstance(lab.store, OwnServers):
            yield
            return
        with self.namespaces.enter(folder.netns(NODE)):
            yield
