"""What a command acts through: the settings, the store, time and chance. ``main`` hands it to every command."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.errors import ConfigurationError

if TYPE_CHECKING:
    import click

    from netplug_core.datastore.protocol import Datastore
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["DEFAULT_CONFIG_FILE", "OPTIONS_META_KEY", "GlobalOptions", "Session", "VersionCheck", "session_of"]

DEFAULT_CONFIG_FILE = "/etc/netplug/netplugctl.cfg"
"""The tool's configuration, where nobody names another; where it is missing, the environment counts."""

OPTIONS_META_KEY = "netplugctl.wishes"
"""The member of click's ``meta`` that has what the global options say."""

_TIMEOUT_S = 30.0


class VersionCheck(enum.Enum):
    """Whether the store of a cluster that runs a newer release is refused."""

    ENFORCED = "kept"
    SKIPPED = "waived"


@frozen(kw_only=True)
class GlobalOptions:
    """What the global options say.

    ``config`` is a configuration file, ``context`` one of the kubeconfig; empty for none. ``level`` is a log level.
    """

    config: str = ""
    context: str = ""
    version_check: VersionCheck = VersionCheck.ENFORCED
    log_level: str = "panic"


@frozen(kw_only=True)
class Session:
    """One run of the tool. The environment may hold passwords, so it is never printed.

    ``default_config_file`` is where a configuration is looked for that nobody named; empty for nowhere. ``wishes`` is
    None
    until the command line has been read.
    """

    environ: Mapping[str, str] = field(repr=False)
    open_backend: Callable[[DatastoreSettings], AbstractContextManager[Datastore]]
    clock: Clock
    chance: Callable[[], float]
    new_uid: Callable[[], str]
    default_config_file: str = ""
    options: GlobalOptions | None = None

    def with_environment(self, environ: Mapping[str, str]) -> Session:
        """A session whose store is the one that an environment names, whatever this one's is."""
        return evolve(
            self, environ=environ, default_config_file="", options=evolve(self._options, config="", context="")
        )

    @contextmanager
    def open_datastore(self) -> Iterator[Datastore]:
        """The store that is configured, open for as long as the context lasts.

        Raises:
            ConfigurationError: the settings make no sense.
            VersionMismatch: the cluster runs a newer release than this tool is of, and the guard is kept.
            Unavailable: the store does not answer.
        """
        with self.open_datastore_of_any_release() as store:
            if self._options.version_check is VersionCheck.ENFORCED:
                from netplug_cli.release import RELEASE
                from netplug_core.flows.resources.cluster import refuse_older_client

                refuse_older_client(store, RELEASE, deadline=self.deadline())
            yield store

    @contextmanager
    def open_datastore_of_any_release(self) -> Iterator[Datastore]:
        """The same store, whatever release its cluster runs: for those who only ask for that."""
        with self.open_backend(self.settings()) as store:
            yield self._traced(store)

    def settings(self) -> DatastoreSettings:
        """What is configured: by the file that was named, else by the usual one, else by the environment.

        Raises:
            ConfigurationError: a file or a value cannot be used; no secret is shown.
        """
        from netplug_cli.ctl.settings import read_settings

        wishes = self._options
        settings = read_settings(self.environ, config_file=wishes.config, default_file=self.default_config_file)
        if not wishes.context:
            return settings
        if not settings.is_kubernetes:
            raise ConfigurationError("--context", wishes.context, f"leave it out: the datastore is {settings.type}")
        return evolve(settings, kubernetes=evolve(settings.kubernetes, context=wishes.context))

    def pace(self) -> Pace:
        """How long one change may take, from now, and how to wait in between."""
        return Pace(clock=self.clock, deadline=self.deadline(), chance=self.chance)

    def deadline(self) -> Deadline:
        """How long one question may take, from now."""
        return Deadline.after(self.clock, _TIMEOUT_S)

    def _traced(self, store: Datastore) -> Datastore:
        from netplug_cli.ctl.tracing import TracedDatastore, TraceLevel, print_trace

        tracing = TraceLevel.of_level(self._options.log_level)
        if tracing is TraceLevel.OFF:
            return store
        print_trace(f"datastore {store.description.name}: {store.description.location}")
        return TracedDatastore(store, self.clock) if tracing is TraceLevel.CALLS else store

    @property
    def _options(self) -> GlobalOptions:
        return self.options or GlobalOptions()


def session_of(context: click.Context) -> Session:
    """The session that ``main`` was given, or this machine's, with what the global options wish."""
    session = context.obj if isinstance(context.obj, Session) else _default_session()
    if session.options is not None:
        return session
    said = context.meta.get(OPTIONS_META_KEY, {})
    wishes = GlobalOptions(
        config=said.get("config", ""),
        context=said.get("context", ""),
        version_check=VersionCheck.SKIPPED if said.get("allow_version_mismatch") else VersionCheck.ENFORCED,
        log_level=said.get("log_level", "panic"),
    )
    return evolve(session, options=wishes)


def _default_session() -> Session:
    import os
    import random

    from netplug_cli.wiring import backends

    return Session(
        environ=os.environ,
        open_backend=backends.open_datastore,
        clock=backends.system_clock(),
        chance=random.random,
        new_uid=_random_uuid,
        default_config_file=DEFAULT_CONFIG_FILE,
    )


def _random_uuid() -> str:
    import uuid

    return str(uuid.uuid4())
