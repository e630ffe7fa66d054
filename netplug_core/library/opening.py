"""A URL to an open network: the function ``netplug_core.open``.

Backends and the host are found by their entry points, so that this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import NoReturn, TypedDict, Unpack

from attrs import frozen

from netplug_core.errors import InvalidArgument
from netplug_core.hookspecs import HostServices, IPAMContext
from netplug_core.library.arguments import Arguments, is_key_text
from netplug_core.library.checked_datastore import CheckedDatastore
from netplug_core.library.network import Network
from netplug_core.registry import Registry, UnknownBackend
from netplug_core.settings.model import DatastoreSettings
from netplug_core.settings.url import InvalidURL, datastore_settings_from_url

__all__ = ["OpenOptions", "open"]


class OpenOptions(TypedDict, total=False):
    """What ``open`` takes besides the URL.

    ``node``: the node of this program, whose blocks its addresses come from; the default is none. ``timeout_s``: how
    many seconds one call may take; the default is 10. ``host``: replaces clock, chance and identifiers of the machine,
    for tests.
    """

    node: str
    timeout_s: float
    host: HostServices | None


def open(  # noqa: A001  as its users write it: netplug_core.open
    url: str | DatastoreSettings, **options: Unpack[OpenOptions]
) -> AbstractContextManager[Network]:
    """The network in a datastore, open for as long as the context lasts: use it in a ``with`` block.

    ``url`` names the datastore: ``memory:`` (empty, and gone with the process), ``sqlite:///path/of/file``,
    ``etcd://host:2379``, ``kubernetes:``, or the name of an installed backend and a colon; or it is settings that were
    read elsewhere. :class:`OpenOptions` has the other arguments.

    Raises:
        InvalidURL: it is not the URL of a datastore; no password is shown.
        ConfigurationError: a package is missing, or the backend cannot use its settings.
        InvalidArgument: an argument of a wrong type or value, or one that does not exist.
    """
    given = Arguments("open", options)
    given.refuse_unknown(OpenOptions.__annotations__)
    settings = _settings(url)
    node, timeout_s = given.get("node", _check_node, ""), given.get("timeout_s", _check_timeout, 10.0)
    return _Opening(_open(url, settings, (node, timeout_s), given.get("host", _check_host, None)))


@frozen
class _Opening(AbstractContextManager[Network]):
    """A network that is opened on entry to a ``with`` block. Its error says so to a program that forgets the block."""

    context: AbstractContextManager[Network]

    def __enter__(self) -> Network:
        return self.context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self.context.__exit__(kind, error, traceback)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"what netplug_core.open() returns has no attribute {name!r}: use it in a with block, "
            "such as: with netplug_core.open(url) as net: net.pools()"
        )


def _settings(url: object) -> DatastoreSettings:
    if isinstance(url, DatastoreSettings):
        return url
    if not isinstance(url, str):
        raise InvalidArgument("open(url)", url, "a URL such as memory: is expected, or DatastoreSettings")
    return datastore_settings_from_url(url)


def _check_node(where: str, node: object) -> str:
    if not isinstance(node, str) or not is_key_text(node):
        raise InvalidArgument(where, node, "the name of a node is expected, of printable characters, or an empty text")
    return node


def _check_timeout(where: str, seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidArgument(where, seconds, "a number of seconds greater than 0 is expected")
    return seconds


def _check_host(where: str, host: object) -> HostServices | None:
    if host is None or isinstance(host, HostServices):
        return host
    raise InvalidArgument(where, host, "a HostServices is expected")


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
