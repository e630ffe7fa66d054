"""What a command acts through: settings, datastore, time and chance. Each command gets it by ``session_of``."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import click
from attrs import define, evolve, field, frozen

from netplug_cli.ctl.documents import read_configuration
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.global_options import OPTIONS_META_KEY
from netplug_cli.formatting import print_error
from netplug_core import __version__
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CommitCall, DatastoreCall, ObservedDatastore, ReadCall
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.records import Get, List, Query, RequireUnchanged, Write
from netplug_core.settings.apiconfig import (
    datastore_settings_from_environment,
    datastore_settings_from_file,
    has_datastore,
)
from netplug_core.settings.model import (
    DEFAULT_ETCD_ENDPOINT,
    DEFAULT_SQLITE_PATH,
    KUBERNETES_DATASTORE,
    MEMORY_DATASTORE,
    DatastoreSettings,
    MissingFile,
)

if TYPE_CHECKING:
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.flows.ipam.host_local_import import HostLocalFolder
    from netplug_core.installation.cluster import Cluster
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "DEFAULT_CONFIG_FILE", "GlobalOptions", "Session", "TraceLevel", "TracedDatastore", "VersionCheck",
    "read_settings", "session_of",
]  # fmt: skip


# --- settings --------------------------------------------------------------------------------------------------------


def read_settings(environ: Mapping[str, str], *, config_file: str, default_file: str) -> DatastoreSettings:
    """The settings of ``config_file`` if one is named, else of ``default_file`` if it exists, else of the environment.

    If a file is read, the environment is ignored.

    Raises:
        ConfigurationError: the file cannot be read or understood, or a value cannot be used; no secret is shown.
    """
    file = config_file or (default_file if default_file and os.path.lexists(default_file) else "")
    if not file:
        return datastore_settings_from_environment(environ)
    document = read_configuration(file)
    try:
        return datastore_settings_from_file(document.mapping, source=file)
    except ConfigurationError as error:
        raise document.locate(error) from None


# --- tracing ---------------------------------------------------------------------------------------------------------


class TraceLevel(enum.Enum):
    """What is printed: nothing, which datastore is used, or every call to it too."""

    OFF = "off"
    STORE = "store"
    CALLS = "calls"

    @classmethod
    def of_level(cls, level: str) -> TraceLevel:
        """The trace level of a log level."""
        return {"info": cls.STORE, "debug": cls.CALLS}.get(level.lower(), cls.OFF)


@define
class TracedDatastore(ObservedDatastore):
    """A datastore that prints each of its calls when it has ended."""

    clock: Clock

    @contextmanager
    def observe(self, call: DatastoreCall) -> Iterator[None]:
        """Print its keys, how long it took, and its error."""
        began, outcome = self.clock.monotonic(), ""
        try:
            yield
        except Exception as error:
            outcome = f": {error}"
            raise
        finally:
            took_ms = (self.clock.monotonic() - began) * 1000
            print_error(f"{_format_call(call)} in {took_ms:.1f} ms{outcome}")


def _format_call(call: DatastoreCall) -> str:
    match call:
        case ReadCall(queries):
            return f"read {', '.join(map(_format_query, queries))}"
        case CommitCall(writes):
            return f"commit {', '.join(map(_format_write, writes))}"


def _format_query(query: Query) -> str:
    match query:
        case Get(key):
            return str(key)
        case List(kind, within):
            return f"{kind}({'/'.join((*within, '*'))})"


def _format_write(write: Write) -> str:
    subject = write.kind if isinstance(write, RequireUnchanged) else write.key
    return f"{type(write).__name__.lower()} {subject}"


# --- session ---------------------------------------------------------------------------------------------------------


DEFAULT_CONFIG_FILE = "/etc/netplug/netplugctl.cfg"
"""The tool's configuration file, unless ``--config`` names another. If it does not exist, the environment is used."""

_TIMEOUT_S = 30.0
_NOT_CONFIGURED = (
    "no datastore is configured: set DATASTORE_TYPE=sqlite, or DATASTORE_TYPE=kubernetes and KUBECONFIG=FILE, "
    f"or ETCD_ENDPOINTS=URL,...; or write {DEFAULT_CONFIG_FILE}"
)


class VersionCheck(enum.Enum):
    """Whether the datastore of a cluster that runs a newer release is refused."""

    ENFORCED = "enforced"
    SKIPPED = "skipped"


@frozen(kw_only=True)
class GlobalOptions:
    """The values of the global options.

    ``config`` is a configuration file, ``context`` a context of the kubeconfig; empty for none.
    """

    config: str = ""
    context: str = ""
    version_check: VersionCheck = VersionCheck.ENFORCED
    log_level: str = "panic"


@frozen(kw_only=True)
class Session:
    """One run of the tool. The environment may hold passwords, so it is never printed.

    ``open_backend`` opens the datastore that settings name. ``open_memory_datastore`` opens an empty one in this
    process, for a simulation, with a clock of its own. ``require_trusted_environment`` refuses to install what others
    than root may write; ``install_executables`` and ``uninstall_executables`` get a folder of this host and
    report each step as a line, the first also which client to install: ``static``, ``python``, or ``built`` for the
    static one if it was built before. ``install_node`` and ``uninstall_node`` get a folder for the node process and one
    for its units, and report likewise; ``remove_network`` takes off this host what connects it with other nodes;
    ``find_host_problems`` gets that folder and says what else the host lacks,
    ``find_missing_plugins`` which plugins it lacks without which no pod starts.
    ``open_host_local_folder`` opens the folder of a network of host-local, perhaps a missing one.
    ``open_backend_of_cluster`` opens the cluster that settings lead to. ``default_config_file`` is the configuration
    that is read when none is named; empty for none. ``datastore_type`` is the type of the datastore if the
    configuration does not decide; empty if it does. ``missing_file`` is what opening the datastore does about a file
    that is missing. ``is_dry_run``: what is written to the datastore is kept in this process.
    """

    environ: Mapping[str, str] = field(repr=False)
    open_backend: Callable[[DatastoreSettings], AbstractContextManager[Datastore]]
    open_memory_datastore: Callable[[Clock], AbstractContextManager[Datastore]]
    open_backend_of_cluster: Callable[[DatastoreSettings], AbstractContextManager[Cluster]]
    require_trusted_environment: Callable[[], None]
    install_executables: Callable[[str, str, Callable[[str], None]], None]
    uninstall_executables: Callable[[str, Callable[[str], None]], None]
    install_node: Callable[[str, str, Callable[[str], None]], None]
    uninstall_node: Callable[[str, str, Callable[[str], None]], None]
    remove_network: Callable[[Callable[[str], None]], None]
    find_host_problems: Callable[[str], tuple[str, ...]]
    find_missing_plugins: Callable[[str], tuple[str, ...]]
    open_host_local_folder: Callable[[str], HostLocalFolder]
    clock: Clock
    chance: Callable[[], float]
    new_uid: Callable[[], str]
    default_config_file: str = ""
    datastore_type: str = ""
    missing_file: MissingFile = MissingFile.REFUSED
    is_dry_run: bool = False
    options: GlobalOptions = field(factory=GlobalOptions)

    def with_environment(self, environ: Mapping[str, str]) -> Session:
        """The same run with the datastore that an environment names; no configuration file is read.

        Its file is created if it is missing: the datastore is the caller's own.
        """
        options = evolve(self.options, config="", context="")
        return evolve(self, environ=environ, default_config_file="", missing_file=MissingFile.CREATED, options=options)

    def for_creation(self) -> Session:
        """The same run for a command that creates the datastore's file if it is missing; a dry run only assumes it."""
        return evolve(self, missing_file=MissingFile.ASSUMED_EMPTY if self.is_dry_run else MissingFile.CREATED)

    def for_cluster(self) -> Session:
        """The same run with the datastore in the API server that the configuration leads to, whatever type it names."""
        return evolve(self, datastore_type=KUBERNETES_DATASTORE)

    def open_cluster(self) -> AbstractContextManager[Cluster]:
        """The cluster that the configuration leads to; nothing is sent before the first call."""
        return self.open_backend_of_cluster(self.settings())

    @contextmanager
    def open_datastore(self) -> Iterator[Datastore]:
        """The configured datastore, open for as long as the context lasts.

        Raises:
            ConfigurationError: the settings cannot be used.
            VersionMismatch: the cluster runs a newer release than this tool, and the version check is enforced.
            Unavailable: the store does not answer.
        """
        from netplug_core.flows.resources.cluster import refuse_older_client

        with self.open_datastore_of_any_release() as store:
            if self.options.version_check is VersionCheck.ENFORCED:
                refuse_older_client(store, __version__, deadline=self.deadline())
            yield store

    @contextmanager
    def open_datastore_of_any_release(self) -> Iterator[Datastore]:
        """The configured datastore without the version check, for ``version``."""
        settings = self.settings()
        if settings.type == MEMORY_DATASTORE:
            raise ConfigurationError("datastore", settings.type, "it ends with this command; name one that stays")
        try:
            with self.open_backend(evolve(settings, sqlite_missing_file=self.missing_file)) as store:
                traced = self._traced(store)
                used = _dry_run(traced) if self.is_dry_run else traced
                try:
                    with _shown(used, self.clock) as shown:
                        yield shown
                except ResourceMissing as error:
                    raise self.explain(used, error) from error
        except Unavailable as error:
            if self._is_unconfigured(settings) and DEFAULT_ETCD_ENDPOINT in error.cause:
                raise InputError("", None, f"{_not_configured()} (an etcd was looked for: {error.cause})") from error
            raise
        except ConfigurationError as error:
            if self._is_unconfigured(settings) and isinstance(error.__cause__, ModuleNotFoundError):
                raise InputError("", None, _not_configured()) from error
            raise

    def _is_unconfigured(self, settings: DatastoreSettings) -> bool:
        """Whether the datastore is the default one, and no setting names it."""
        return settings.is_default_location and not self.options.config and not has_datastore(self.environ)

    def explain(self, store: Datastore, error: NetplugError) -> NetplugError:
        """The error, of a missing resource with the name of a similar one."""
        if isinstance(error, ResourceMissing):
            from netplug_core.flows.resources.read import with_similar_name

            return with_similar_name(store, error, deadline=self.deadline())
        return error

    def settings(self) -> DatastoreSettings:
        """The settings of the datastore: from the named file, else from the default file, else from the environment.

        Raises:
            ConfigurationError: a file or a value cannot be used; no secret is shown.
        """
        options = self.options
        settings = read_settings(self.environ, config_file=options.config, default_file=self.default_config_file)
        if self.datastore_type:
            settings = evolve(settings, type=self.datastore_type)
        if not options.context:
            return settings
        if not settings.is_kubernetes:
            raise ConfigurationError("--context", options.context, f"leave it out: the datastore is {settings.type}")
        return evolve(settings, kubernetes=evolve(settings.kubernetes, context=options.context))

    def pace(self) -> Pace:
        """How long one change may take, from now, and how to wait between attempts."""
        return Pace(clock=self.clock, deadline=self.deadline(), chance=self.chance)

    def deadline(self) -> Deadline:
        """How long one question may take, from now."""
        return Deadline.after(self.clock, _TIMEOUT_S)

    def _traced(self, store: Datastore) -> Datastore:
        tracing = TraceLevel.of_level(self.options.log_level)
        if tracing is TraceLevel.OFF:
            return store
        print_error(f"datastore {store.description.name}: {store.description.location}")
        return TracedDatastore(store, self.clock) if tracing is TraceLevel.CALLS else store


def _shown(store: Datastore, clock: Clock) -> AbstractContextManager[Datastore]:
    """The datastore; on a terminal with a line about each read that takes long."""
    if not sys.stderr.isatty():
        return nullcontext(store)
    from netplug_cli.ctl.reading import show_reads

    return show_reads(store, clock)


def _dry_run(store: Datastore) -> Datastore:
    from netplug_core.datastore.dry_run import DryRunDatastore

    return DryRunDatastore(store)


def _not_configured() -> str:
    """What to set where no datastore is configured; the sqlite store of this host, if there is one."""
    if not os.path.exists(DEFAULT_SQLITE_PATH):
        return _NOT_CONFIGURED
    return f"{_NOT_CONFIGURED}; {DEFAULT_SQLITE_PATH} exists, so DATASTORE_TYPE=sqlite is probably meant"


def session_of(context: click.Context, *, is_dry_run: bool = False) -> Session:
    """The session of a command, with the values of the global options."""
    make_session: Callable[[], Session] = context.find_root().obj
    values = context.meta.get(OPTIONS_META_KEY, {})
    options = GlobalOptions(
        config=values.get("config", ""),
        context=values.get("context", ""),
        version_check=VersionCheck.SKIPPED if values.get("allow_version_mismatch") else VersionCheck.ENFORCED,
        log_level=values.get("log_level", "panic"),
    )
    return evolve(make_session(), options=options, is_dry_run=is_dry_run)
