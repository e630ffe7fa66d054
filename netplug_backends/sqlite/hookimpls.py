"""Offers the datastore ``sqlite``: one file on one host, no server."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, hookimpl

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["netplug_describe", "netplug_open_datastore"]


@hookimpl
def netplug_open_datastore(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Datastore] | None:
    """The datastore in the file that ``sqlite_path`` names; the first call opens it."""
    if name != "sqlite":
        return None
    from netplug_backends.sqlite.datastore import SqliteDatastore

    return closing(SqliteDatastore(settings.sqlite_path, clock=clock, missing_file=settings.sqlite_missing_file))


@hookimpl
def netplug_describe() -> BackendDescription:
    """One datastore."""
    return BackendDescription(version=__version__, names={"datastore": ("sqlite",)})
