"""A configured name to a live backend, behind typed functions.

The catalog (a static table of names to modules) is asked first, so that an ADD scans nothing; entry points
(group ``netplug.backends``) only for a name that it lacks. Exactly the backends that are named get registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar, cast

from attrs import define, field
from pluggy import PluginManager

from netplug_core import hookspecs
from netplug_core.errors import ConfigurationError

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.dataplane.protocol import Dataplane
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.ipam.protocol import IPAM
    from netplug_core.log import Log
    from netplug_core.orchestrator.protocol import Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["ENTRY_POINT_GROUP", "Catalog", "Registry"]

ENTRY_POINT_GROUP = "netplug.backends"
"""The group in which a distribution of somebody else names its backend modules."""

Catalog = Mapping[str, Mapping[str, str]]
"""For each sort (``datastore``, ``ipam``, ``dataplane``, ``orchestrator``): a backend's name to its hooks' module."""

_NETCONF_KEYS = {
    "datastore": "datastore_type",
    "ipam": "ipam.type",
    "dataplane": "dataplane_options.type",
    "orchestrator": "orchestrator",
}

T = TypeVar("T")


@define
class Registry:
    """The backends of one process, registered as they are named."""

    catalog: Catalog
    _manager: PluginManager = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._manager = PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)

    def open_datastore(self, name: str, settings: DatastoreSettings, clock: Clock) -> AbstractContextManager[Datastore]:
        """The datastore of that name.

        Raises:
            ConfigurationError: nobody offers it; the names that are offered are listed.
        """
        self._register_backend("datastore", name)
        opened = self._manager.hook.netplug_open_datastore(name=name, settings=settings, clock=clock)
        return self._require_opened(cast("AbstractContextManager[Datastore] | None", opened), "datastore", name)

    def open_ipam(self, name: str, datastore: Datastore, clock: Clock) -> AbstractContextManager[IPAM]:
        """The IPAM of that name; errors as for ``open_datastore``."""
        self._register_backend("ipam", name)
        opened = self._manager.hook.netplug_open_ipam(name=name, datastore=datastore, clock=clock)
        return self._require_opened(cast("AbstractContextManager[IPAM] | None", opened), "ipam", name)

    def open_dataplane(self, name: str, clock: Clock, log: Log) -> AbstractContextManager[Dataplane]:
        """The dataplane of that name; errors as for ``open_datastore``."""
        self._register_backend("dataplane", name)
        opened = self._manager.hook.netplug_open_dataplane(name=name, clock=clock, log=log)
        return self._require_opened(cast("AbstractContextManager[Dataplane] | None", opened), "dataplane", name)

    def open_orchestrator(
        self, name: str, settings: DatastoreSettings, clock: Clock
    ) -> AbstractContextManager[Orchestrator]:
        """The orchestrator of that name; errors as for ``open_datastore``."""
        self._register_backend("orchestrator", name)
        opened = self._manager.hook.netplug_open_orchestrator(name=name, settings=settings, clock=clock)
        return self._require_opened(cast("AbstractContextManager[Orchestrator] | None", opened), "orchestrator", name)

    def _register_backend(self, backend_type: str, name: str) -> None:
        module = self.catalog[backend_type].get(name) or _find_entry_point_module(name)
        if module is None:
            raise self._unknown_backend(backend_type, name)
        backend = import_module(module)
        if not self._manager.is_registered(backend):
            self._manager.register(backend)

    def _require_opened(self, opened: T | None, backend_type: str, name: str) -> T:
        if opened is None:
            raise self._unknown_backend(backend_type, name)
        return opened

    def _unknown_backend(self, backend_type: str, name: str) -> ConfigurationError:
        return ConfigurationError(
            _NETCONF_KEYS[backend_type], name, f"registered: {', '.join(sorted(self.catalog[backend_type]))}"
        )


def _find_entry_point_module(name: str) -> str | None:
    """The module that an installed distribution names for a backend; None when none does."""
    # Only here: walking every installed distribution costs more than all else that an ADD does.
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return point.module
    return None
