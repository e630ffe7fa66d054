"""Offers the datastore ``etcdv3``: an etcd cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.errors import ConfigurationError
from netplug_core.hookspecs import BackendDescription, hookimpl

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["netplug_describe", "netplug_open_datastore"]

_PACKAGES = {"google": "protobuf", "grpc": "grpcio", "dns": "dnspython"}  # installed under another name than imported


@hookimpl
def netplug_open_datastore(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Datastore] | None:
    """The datastore in the cluster that ``etcd_endpoints`` or ``etcd_discovery_srv`` names.

    Unusable settings are refused here; the first call connects.

    Raises:
        ConfigurationError: a package that etcd needs is not installed, or as ``factory.client_from_settings`` says.
    """
    if name != "etcdv3":
        return None
    try:
        from netplug_backends.etcdv3.datastore import datastore_from_settings

        return closing(datastore_from_settings(settings, clock=clock))
    except ModuleNotFoundError as error:
        module, _, _ = (error.name or "").partition(".")
        accepted = f"the package {_PACKAGES.get(module, module)} is not installed; netplug[etcd] brings what it needs"
        raise ConfigurationError("datastore_type", name, accepted) from error


@hookimpl
def netplug_describe() -> BackendDescription:
    """One datastore."""
    return BackendDescription(version=__version__, names={"datastore": ("etcdv3",)})
