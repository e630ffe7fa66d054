"""A configured name to a live backend, behind typed functions.

The executables hand over a catalog (a static table of names to modules), so that an ADD scans nothing; entry points
(group ``netplug.backends``) are read only for a name that it lacks. ``netplug_core.open`` has no catalog: it finds
every backend, netplug's own too, by its entry point. Exactly the backends that are named get registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from attrs import define, field
from pluggy import PluginManager

from netplug_core import hookspecs
from netplug_core.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from netplug_core.clock import Clock
    from netplug_core.dataplane.bgp import BgpDaemon
    from netplug_core.dataplane.protocol import Dataplane
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.hookspecs import BackendDescription, BgpContext, HostServices, IPAMContext
    from netplug_core.ipam.protocol import IPAM
    from netplug_core.log import Log
    from netplug_core.orchestrator.model import Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["ENTRY_POINT_GROUP", "Catalog", "Registry", "UnknownBackend"]

ENTRY_POINT_GROUP = "netplug.backends"
"""The group in which a distribution names the modules of its backends."""

Catalog = Mapping[str, Mapping[str, str]]
"""For each interface (``datastore``, ``ipam``, ``dataplane``, ``orchestrator``, ``bgp``, ``host``): a backend's name to
the module of its hooks."""

_NETCONF_KEYS = {"datastore": "datastore_type", "ipam": "ipam.type", "dataplane": "dataplane_options.type"}
_DISTRIBUTION = "netplug"
_HOOK_PREFIX = "netplug_open_"

P = ParamSpec("P")
T = TypeVar("T")


class UnknownBackend(ConfigurationError):
    """A name that no backend offers for an interface; ``accepted`` lists those that are offered."""


@define
class Registry:
    """The backends of one process, registered as they are named."""

    catalog: Catalog = field(factory=dict)
    _manager: PluginManager = field(init=False)
    _registered: set[tuple[str, str]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._manager = _new_manager()

    def open_datastore(self, name: str, settings: DatastoreSettings, clock: Clock) -> AbstractContextManager[Datastore]:
        """The datastore of that name.

        Raises:
            UnknownBackend: no backend offers it.
            ConfigurationError: its module cannot be imported.
        """
        return self._open(hookspecs.netplug_open_datastore, name=name, settings=settings, clock=clock)

    def open_ipam(self, name: str, context: IPAMContext) -> AbstractContextManager[IPAM]:
        """The IPAM of that name; errors as for ``open_datastore``."""
        return self._open(hookspecs.netplug_open_ipam, name=name, context=context)

    def open_dataplane(
        self, name: str, clock: Clock, log: Log, namespaces: Mapping[str, int] | None = None
    ) -> AbstractContextManager[Dataplane]:
        """The dataplane of that name; ``namespaces`` as its hook says, errors as for ``open_datastore``."""
        return self._open(
            hookspecs.netplug_open_dataplane, name=name, clock=clock, log=log, namespaces=namespaces or {}
        )

    def open_orchestrator(
        self, name: str, settings: DatastoreSettings, clock: Clock
    ) -> AbstractContextManager[Orchestrator]:
        """The orchestrator of that name; errors as for ``open_datastore``."""
        return self._open(hookspecs.netplug_open_orchestrator, name=name, settings=settings, clock=clock)

    def open_bgp(self, name: str, context: BgpContext) -> AbstractContextManager[BgpDaemon]:
        """The BGP daemon of that name; errors as for ``open_datastore``."""
        return self._open(hookspecs.netplug_open_bgp, name=name, context=context)

    def open_host(self, name: str = "host") -> AbstractContextManager[HostServices]:
        """Time, chance and identifiers of a machine; errors as for ``open_datastore``."""
        return self._open(hookspecs.netplug_open_host, name=name)

    def names(self, interface: str) -> tuple[str, ...]:
        """The names of all backends that offer an interface, sorted: the catalog's, or else those of entry points.

        Without a catalog every backend that is installed is imported; one that cannot be imported offers nothing.
        """
        if self.catalog:
            return tuple(sorted(self.catalog.get(interface, ())))
        described = (description.names.get(interface, ()) for description in _describe_entry_points())
        return tuple(sorted({name for names in described for name in names}))

    def _open(
        self, hook: Callable[P, AbstractContextManager[T] | None], *args: P.args, **arguments: P.kwargs
    ) -> AbstractContextManager[T]:
        """What the hook of an interface opens under a name, which is one of its arguments. All have names."""
        name = str(arguments["name"])
        interface = hook.__name__.removeprefix(_HOOK_PREFIX)
        if (interface, name) not in self._registered:
            self._register_backend(interface, name)
            self._registered.add((interface, name))
        opened: AbstractContextManager[T] | None = getattr(self._manager.hook, hook.__name__)(*args, **arguments)
        if opened is None:
            raise self._unknown_backend(interface, name)
        return opened

    def _register_backend(self, interface: str, name: str) -> None:
        module = self.catalog.get(interface, {}).get(name)
        if module is None:
            module = _find_entry_point_module(name)
        if module is None:
            raise self._unknown_backend(interface, name)
        try:
            backend = import_module(module)
        except ImportError as error:
            accepted = f"its module {module} cannot be imported: {error}"
            raise ConfigurationError(_where(interface), name, accepted) from error
        if not self._manager.is_registered(backend):
            self._manager.register(backend)

    def _unknown_backend(self, interface: str, name: str) -> UnknownBackend:
        return UnknownBackend(_where(interface), name, f"registered: {', '.join(self.names(interface))}")


def _where(interface: str) -> str:
    return _NETCONF_KEYS.get(interface, interface)


def _new_manager() -> PluginManager:
    manager = PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def _find_entry_point_module(name: str) -> str | None:
    """The module that an installed distribution names for a backend; None when none does.

    Names of netplug's own backends cannot be taken by another distribution.
    """
    points = [point for point in _entry_points() if point.name == name]
    own = (point for point in points if point.dist is not None and point.dist.name == _DISTRIBUTION)
    point = next(own, None) or next(iter(points), None)
    return point.module if point else None


def _describe_entry_points() -> Iterator[BackendDescription]:
    manager = _new_manager()
    for module in sorted({point.module for point in _entry_points()}):
        try:
            backend = import_module(module)
        except ImportError:  # what an installed package lacks is no reason to hide the names of the others
            continue
        manager.register(backend)
    described: list[BackendDescription] = manager.hook.netplug_describe()
    yield from described


def _entry_points() -> tuple[EntryPoint, ...]:
    # Imported here: walking every installed distribution costs more than everything else that an ADD does.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINT_GROUP))
