"""kopf, of which the operator takes two things: it watches objects, and ends on a signal.

No handler of kopf acts: each one only wakes the loop of ``process``. So kopf writes nothing into any object, neither
finalizers nor annotations, and its own peering is off. This is the only module that imports kopf.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import Protocol

import kopf
from attrs import define, field, frozen
from kopf._cogs.structs.references import Insights

from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.operator.objects import ObjectRef

__all__ = ["ServerLogin", "Watched", "Watcher", "watch"]

_TIMEOUT_S = 60
"""When the server ends a watch, which is then opened again. A whole number.

So a broken connection is noticed, and a definition that was deleted and made again: the watch of the old one sees
nothing of the objects of the new one.
"""

_LOOK_EVERY_S = 5.0
"""How often it is looked whether a kind is served and not watched.

kopf asks which kinds there are when a definition changes, and only then. A server may answer the last time without the
new kind: it lists a kind a moment after it has noted the definition as established.
"""

_EXPECTED = "Unresolved resources"
"""How kopf's line begins about kinds that a cluster does not have; it always lacks one of our two API groups."""

_SENT_AGAIN = "failed; will retry"
"""What kopf says, as an error, when it will ask again: a server answers 429 while it begins to serve a definition."""

_STANDING_NAMESPACE = "kube-system"
"""Without a namespace that exists kopf watches nothing, not even what has no namespace."""


class ServerLogin(Protocol):
    """The server and the credentials; certificates and keys are paths, or data, or empty."""

    @property
    def server(self) -> str:
        """Its URL."""
        ...

    @property
    def authority(self) -> str | bytes:
        """What its certificate is verified with."""
        ...

    @property
    def certificate(self) -> str | bytes:
        """Our certificate."""
        ...

    @property
    def key(self) -> str | bytes:
        """The key of our certificate."""
        ...

    @property
    def token(self) -> str:
        """Our token."""
        ...

    @property
    def is_verified(self) -> bool:
        """Whether the certificate of the server is verified."""
        ...


@frozen(kw_only=True)
class Watcher:
    """What is called: for credentials, after each change, and for the plurals that the server has in an API version.

    ``find_plurals`` raises NetplugError if the server does not answer.
    """

    log_in: Callable[[], ServerLogin]
    on_change: Callable[[], None]
    find_plurals: Callable[[str], frozenset[str]]


class Watched:
    """What is watched: some kinds whole, and some objects. ``namespace`` is the one of all objects that have one."""

    def __init__(self, kinds: Iterable[tuple[str, str]], refs: Iterable[ObjectRef], namespace: str) -> None:
        self.kinds = tuple(kinds)
        """The API version and the plural of each kind."""
        names: dict[tuple[str, str], set[str]] = {}
        for ref in refs:
            names.setdefault((ref.api_version, ref.plural), set()).add(ref.name)
        self.names = names
        """The API version and the plural of further kinds, and which of their objects."""
        self.namespace = namespace


def watch(watched: Watched, watcher: Watcher, *, stop: Event, log: Log) -> None:
    """Call ``on_change`` for every change, until a signal comes or ``stop`` is set; for the main thread."""
    logger = _forward_log(log)
    try:
        while (late := _watch(watched, watcher, stop)) and not stop.is_set():
            log(Level.INFO, "a kind is served that was not watched", kind=late)
    finally:
        logger.handlers.clear()


def _watch(watched: Watched, watcher: Watcher, stop: Event) -> str:
    """Watch until a signal comes, or ``stop`` is set, or a kind is served that is not watched: its name, or empty."""
    registry, insights = kopf.OperatorRegistry(), Insights()  # kopf takes the second, and exports no name for it
    looking = _LateKinds(kinds=watched.kinds, find_plurals=watcher.find_plurals, insights=insights, stop=stop)

    @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=2.0)
    def login(**_: object) -> kopf.ConnectionInfo:
        return _connection(watcher.log_in())

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: object) -> None:
        # A thread of kopf waits for it, and a signal would not end the process before.
        looking.ended.set()
        if not looking.late:
            stop.set()

    for api_version, plural in watched.kinds:
        _add(registry, api_version, plural, watcher.on_change)
    for (api_version, plural), names in watched.names.items():
        _add(registry, api_version, plural, watcher.on_change, names)
    Thread(target=looking.run, name="late kinds", daemon=True).start()
    kopf.run(
        registry=registry,
        settings=_settings(),
        insights=insights,
        standalone=True,
        namespaces=[watched.namespace, _STANDING_NAMESPACE],
        stop_flag=looking.ended,
    )
    return looking.late


@define(kw_only=True)
class _LateKinds:
    """Ends the watching when a kind is served that kopf does not watch: begun again, it finds the kind.

    ``ended`` is set at the end of the watching. ``late`` is the kind; it is seen twice, as kopf may be about to see it.
    """

    kinds: tuple[tuple[str, str], ...]
    find_plurals: Callable[[str], frozenset[str]]
    insights: Insights
    stop: Event
    ended: Event = field(factory=Event)
    late: str = ""
    _seen: str = ""

    def run(self) -> None:
        """Look again and again, until the watching ends."""
        while not self.stop.wait(_LOOK_EVERY_S) and not self.ended.is_set():
            found = self._find()
            if found and found == self._seen:
                self.late = found
                break
            self._seen = found
        self.ended.set()

    def _find(self) -> str:
        """A kind that is served and not watched; empty if there is none, or the server does not answer."""
        if not self.insights.ready_resources.is_set():
            return ""
        known = {(f"{kind.group}/{kind.version}", kind.plural) for kind in self.insights.watched_resources.copy()}
        missing = [kind for kind in self.kinds if kind not in known]
        try:
            served = {version: self.find_plurals(version) for version in dict(missing)}
        except NetplugError:
            return ""
        return next((f"{plural} of {version}" for version, plural in missing if plural in served[version]), "")


def _add(
    registry: kopf.OperatorRegistry,
    api_version: str,
    plural: str,
    on_change: Callable[[], None],
    names: set[str] | None = None,
) -> None:
    group, _, version = api_version.rpartition("/")

    async def changed(**_: object) -> None:
        on_change()

    def is_wanted(*, name: str | None, **_: object) -> bool:
        return names is None or name in names

    kopf.on.event(group, version, plural, registry=registry, id=f"{plural}.{group}", when=is_wanted)(changed)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.watching.server_timeout = _TIMEOUT_S
    settings.watching.client_timeout = _TIMEOUT_S + 10
    settings.process.ultimate_exiting_timeout = None  # kopf would kill the process while an action ends
    return settings


def _connection(found: ServerLogin) -> kopf.ConnectionInfo:
    def path(value: str | bytes) -> str | None:
        return value if isinstance(value, str) and value else None

    def data(value: str | bytes) -> bytes | None:
        return value if isinstance(value, bytes) and value else None

    return kopf.ConnectionInfo(
        server=found.server,
        ca_path=path(found.authority),
        ca_data=data(found.authority),
        certificate_path=path(found.certificate),
        certificate_data=data(found.certificate),
        private_key_path=path(found.key),
        private_key_data=data(found.key),
        token=found.token or None,
        insecure=not found.is_verified,
    )


class _Forward(logging.Handler):
    """Writes warnings of kopf as lines of our log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(_EXPECTED):
            return
        if _SENT_AGAIN in text:
            self._log(Level.INFO, "a request is sent again", cause=text)
            return
        level = Level.ERROR if record.levelno >= logging.ERROR else Level.WARNING
        self._log(level, "kopf reports a problem", cause=text)


def _forward_log(log: Log) -> logging.Logger:
    logger = logging.getLogger("kopf")
    logger.handlers[:] = [_Forward(log)]
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    return logger
