"""A URL to an open network: the function ``netplug_core.open``.

Backends and the host are found by their entry points, so that this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from netplug_core.errors import InvalidArgument, require_type
from netplug_core.hookspecs import HostServices, IPAMContext
from netplug_core.library.checked_datastore import CheckedDatastore
from netplug_core.library.network import Network
from netplug_core.registry import Registry, UnknownBackend
from netplug_core.settings.model import DatastoreSettings
from netplug_core.settings.url import InvalidURL, datastore_settings_from_url

__all__ = ["open"]


def open(  # noqa: A001  as its users write it: netplug_core.open
    url: str | DatastoreSettings, *, node: str = "", timeout_s: float = 10.0, host: HostServices | None = None
) -> AbstractContextManager[Network]:
    """The network in a datastore, open for as long as the context lasts.

    ``url`` names the datastore: ``memory:`` (empty, and gone with the process), ``sqlite:///path/of/file``,
    ``etcd://host:2379``, ``kubernetes:``, or the name of an installed backend and a colon; or it is settings that were
    read elsewhere. ``node`` is the node of this program, as its addresses are assigned; empty for none. Each call
    takes at most ``timeout_s`` seconds. ``host`` replaces clock, chance and identifiers of the machine, for tests.

    Raises:
        InvalidURL: it is not the URL of a datastore; no password is shown.
        ConfigurationError: a package is missing, or the backend cannot use its settings.
        InvalidArgument: an argument of another type.
    """
    settings = _settings(url)
    require_type("open(node)", node, str, "the name of a node is expected, or an empty text")
    _check_timeout(timeout_s)
    if host is not None:
        require_type("open(host)", host, HostServices, "a HostServices is expected")
    return _open(url, settings, (node, timeout_s), host)


def _settings(url: object) -> DatastoreSettings:
    if isinstance(url, DatastoreSettings):
        return url
    if not isinstance(url, str):
        raise InvalidArgument("open(url)", url, "a URL such as memory: is expected, or DatastoreSettings")
    return datastore_settings_from_url(url)


def _check_timeout(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidArgument("open(timeout_s)", seconds, "a number of seconds greater than 0 is expected")


@contextmanager
def _open(
    url: str | DatastoreSettings, settings: DatastoreSettings, options: tuple[str, float], host: HostServices | None
) -> Iterator[Network]:
    node, timeout_s = options
    registry = Registry()
    with ExitStack() as stack:
        services = stack.enter_context(registry.open_host()) if host is None else host
        try:
            opening = registry.open_datastore(settings.type, settings, services.clock)
        except UnknownBackend as error:
            if not isinstance(url, str):
                raise
            raise InvalidURL.of(url, f"no datastore is called {settings.type!r}", error.accepted) from None
        backend = stack.enter_context(opening)
        context = IPAMContext(datastore=backend, clock=services.clock, chance=services.chance)
        ipam = stack.enter_context(registry.open_ipam("netplug-ipam", context))
        yield Network(store=CheckedDatastore(backend), ipam=ipam, host=services, node=node, timeout_s=timeout_s)
