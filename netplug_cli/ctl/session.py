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

    from netplug_core.datastore.interface import Datastore
    from netplug_core.netconf.model import DatastoreSettings

__all__ = ["USUAL_FILE", "WISHES", "Guard", "Session", "Wishes", "session_of"]

USUAL_FILE = "/etc/netplug/netplugctl.cfg"
"""The tool's configuration, where nobody names another; where it is missing, the environment counts."""

WISHES = "netplugctl.wishes"
"""The member of click's ``meta`` that has what the global options say."""

_PATIENCE_S = 30.0


class Guard(enum.Enum):
    """Whether the store of a cluster that runs a newer release is refused."""

    KEPT = "kept"
    WAIVED = "waived"


@frozen(kw_only=True)
class Wishes:
    """What the global options say.

    ``config`` is a configuration file, ``context`` one of the kubeconfig; empty for none. ``level`` is a log level.
    """

    config: str = ""
    context: str = ""
    guard: Guard = Guard.KEPT
    level: str = "panic"


@frozen(kw_only=True)
class Session:
    """One run of the tool. The environment may hold passwords, so it is never printed.

    ``usual_file`` is where a configuration is looked for that nobody named; empty for nowhere. ``wishes`` is None
    until the command line has been read.
    """

    environ: Mapping[str, str] = field(repr=False)
    open_store: Callable[[DatastoreSettings], AbstractContextManager[Datastore]]
    clock: Clock
    chance: Callable[[], float]
    new_uid: Callable[[], str]
    usual_file: str = ""
    wishes: Wishes | None = None

    def on(self, environ: Mapping[str, str]) -> Session:
        """A session whose store is the one that an environment names, whatever this one's is."""
        return evolve(self, environ=environ, usual_file="", wishes=evolve(self._wishes, config="", context=""))

    @contextmanager
    def store(self) -> Iterator[Datastore]:
        """The store that is configured, open for as long as the context lasts.

        Raises:
            ConfigurationError: the settings make no sense.
            VersionMismatch: the cluster runs a newer release than this tool is of, and the guard is kept.
            Unavailable: the store does not answer.
        """
        with self.unguarded_store() as store:
            if self._wishes.guard is Guard.KEPT:
                from netplug_cli.release import RELEASE
                from netplug_core.flows.cluster import refuse_older_client

                refuse_older_client(store, RELEASE, deadline=self.deadline())
            yield store

    @contextmanager
    def unguarded_store(self) -> Iterator[Datastore]:
        """The same store, whatever release its cluster runs: for those who only ask for that."""
        with self.open_store(self.settings()) as store:
            yield self._traced(store)

    def settings(self) -> DatastoreSettings:
        """What is configured: by the file that was named, else by the usual one, else by the environment.

        Raises:
            ConfigurationError: a file or a value cannot be used; no secret is shown.
        """
        from netplug_cli.ctl.configuration import read_settings

        wishes = self._wishes
        settings = read_settings(self.environ, named=wishes.config, usual=self.usual_file)
        if not wishes.context:
            return settings
        if not settings.is_orchestrators:
            raise ConfigurationError("--context", wishes.context, f"leave it out: the datastore is {settings.type}")
        return evolve(settings, kubernetes=evolve(settings.kubernetes, context=wishes.context))

    def pace(self) -> Pace:
        """How long one change may take, from now, and how to wait in between."""
        return Pace(clock=self.clock, deadline=self.deadline(), chance=self.chance)

    def deadline(self) -> Deadline:
        """How long one question may take, from now."""
        return Deadline.after(self.clock, _PATIENCE_S)

    def _traced(self, store: Datastore) -> Datastore:
        from netplug_cli.ctl.tracing import TracedDatastore, Tracing, tell

        tracing = Tracing.of_level(self._wishes.level)
        if tracing is Tracing.OFF:
            return store
        tell(f"datastore {store.description.name}: {store.description.location}")
        return TracedDatastore(store, self.clock) if tracing is Tracing.CALLS else store

    @property
    def _wishes(self) -> Wishes:
        return self.wishes or Wishes()


def session_of(context: click.Context) -> Session:
    """The session that ``main`` was given, or this machine's, with what the global options wish."""
    session = context.obj if isinstance(context.obj, Session) else _this_machine()
    if session.wishes is not None:
        return session
    said = context.meta.get(WISHES, {})
    wishes = Wishes(
        config=said.get("config", ""),
        context=said.get("context", ""),
        guard=Guard.WAIVED if said.get("allow_version_mismatch") else Guard.KEPT,
        level=said.get("log_level", "panic"),
    )
    return evolve(session, wishes=wishes)


def _this_machine() -> Session:
    import os
    import random

    from netplug_cli import wiring

    return Session(
        environ=os.environ,
        open_store=wiring.open_datastore,
        clock=wiring.system_clock(),
        chance=random.random,
        new_uid=_random_uuid,
        usual_file=USUAL_FILE,
    )


def _random_uuid() -> str:
    import uuid

    return str(uuid.uuid4())
