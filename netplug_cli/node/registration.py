"""Keeps the node registered: its Node in the datastore, the orchestrator's labels on it, and the files beside it.

It needs a datastore of its own configuration, as there may be no call for a long time. A datastore that is away is
tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from attrs import define, evolve, field

from netplug_cli.node.failures import RepeatedFailure
from netplug_cli.node.periodic import PeriodicTask
from netplug_core.clock import Clock
from netplug_core.errors import NetplugError
from netplug_core.flows.node.registration import (
    NodeHost,
    NodeWorld,
    copy_cluster_labels,
    publish_node_name,
    register_node,
)
from netplug_core.log import Level, Log
from netplug_core.netconf.model import NetConf
from netplug_core.settings.model import DatastoreSettings

__all__ = ["LOOK_EVERY_S", "RELEASE_EVERY_S", "TRY_AGAIN_S", "NodeRegistration", "StoreRelease"]

LOOK_EVERY_S = 60.0
"""The pause between two looks at a Node that is registered."""

RELEASE_EVERY_S = 600.0
"""The pause between two looks at the release of the cluster."""

TRY_AGAIN_S = 5.0
"""The pause after a failure."""


class StoreRelease(Protocol):
    """Stores the release of this process as that of the cluster, with the rights of the process."""

    def __call__(self, world: NodeWorld, settings: DatastoreSettings, *, has_just_started: bool) -> bool:
        """Return whether that changed anything; see :func:`~netplug_core.flows.node.registration.store_release`."""
        ...


@define(kw_only=True)
class NodeRegistration:
    """``names`` has the configured name of the node, and the paths of its files.

    ``read_datastore`` reads which datastore the node is registered in, with access to the orchestrator; None if none is
    configured. ``open_world`` opens what a configuration names.
    """

    names: NetConf
    read_datastore: Callable[[], DatastoreSettings | None]
    open_world: Callable[[NetConf], AbstractContextManager[NodeWorld]]
    store_release: StoreRelease
    host: NodeHost
    clock: Clock
    log: Log
    _next_look: float = field(default=0.0, init=False)
    _next_release: float | None = field(default=None, init=False)
    _reported: str = field(default="", init=False)
    _failures: dict[str, RepeatedFailure] = field(factory=dict, init=False)

    def task(self, every_s: float = TRY_AGAIN_S) -> PeriodicTask:
        """What looks again and again."""
        return PeriodicTask("registration of the node", self.look, every_s=every_s, log=self.log)

    def look(self) -> None:
        """Do what is missing, unless all was well a short time ago. A failure is a line of the log."""
        if self.clock.monotonic() < self._next_look:
            return
        has_folder = self._try("the folder of endpoint status files cannot be made", self._make_status_folder)
        is_registered = self._try("the node is not registered", self._register)
        if has_folder and is_registered:
            self._next_look = self.clock.monotonic() + LOOK_EVERY_S

    def _make_status_folder(self) -> None:
        self.host.make_public_folder(self.names.endpoint_status_dir)

    def _register(self) -> None:
        settings = self.read_datastore()
        if settings is None:
            self._report("the node is not registered: no datastore is configured for that")
            return
        netconf = evolve(self.names, datastore=settings)
        with self.open_world(netconf) as world:
            name = register_node(world, netconf)
            publish_node_name(world, netconf, name)
            self._report("the node is registered", node=name, datastore=settings.type)
            # Without its labels the node is registered all the same, and they are tried at the next look.
            self._try("the labels of the orchestrator's node are not copied", partial(self._copy_labels, world, name))
            self._try("the release of the cluster is not stored", partial(self._store_release, world, settings))

    def _copy_labels(self, world: NodeWorld, name: str) -> None:
        if copy_cluster_labels(world, name):
            self.log(Level.INFO, "the labels of the orchestrator's node are copied", node=name)

    def _store_release(self, world: NodeWorld, settings: DatastoreSettings) -> None:
        now = self.clock.monotonic()
        if self._next_release is not None and now < self._next_release:
            return
        if self.store_release(world, settings, has_just_started=self._next_release is None):
            self.log(Level.INFO, "the release of the cluster is that of this process now")
        self._next_release = now + RELEASE_EVERY_S

    def _report(self, message: str, **fields: object) -> None:
        """Log what is so, if it was otherwise at the last look."""
        text = f"{message} {fields}"
        if text != self._reported:
            self._reported = text
            self.log(Level.INFO, message, **fields)

    def _try(self, failure: str, step: Callable[[], None]) -> bool:
        """Whether a step could be done; if not, a line says why, until the cause is another one."""
        failed = self._failures.setdefault(failure, RepeatedFailure(failure, self.log))
        try:
            step()
        except (NetplugError, ImportError, OSError) as error:
            failed.report(error)
            return False
        failed.clear()
        return True
