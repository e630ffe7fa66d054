"""The datastores of a lab, as values: a file of its own, servers of its own, or servers that run anyway.

``store_options`` makes one from the options of a command, ``servers`` starts servers of the lab's own. The environment
of the tool and the configuration of the plugins are derived from them here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import assert_never

from attrs import frozen

from netplug_cli.lab.paths import LabFolder
from netplug_core.settings.keys import netconf_path

__all__ = [
    "API_PORT", "API_URL", "ETCD_PORT", "ETCD_URL", "ExternalServers", "LabStore", "OwnServers", "SqliteStore",
    "StoreKind", "is_kubernetes", "store_environment", "store_netconf_keys",
]  # fmt: skip

ETCD_PORT, API_PORT = 2379, 6443
ETCD_URL = f"http://127.0.0.1:{ETCD_PORT}"
"""Where a lab's own etcd answers, inside the node's namespace."""
API_URL = f"https://127.0.0.1:{API_PORT}"
"""Where a lab's own API server answers there."""


class StoreKind(enum.Enum):
    """The datastores that a lab can be on; the value is the datastore's name."""

    SQLITE = "sqlite"
    ETCD = "etcdv3"
    KUBERNETES = "kubernetes"


@frozen
class SqliteStore:
    """A sqlite file in the lab's folder."""

    @property
    def kind(self) -> StoreKind:
        """Which datastore it is."""
        return StoreKind.SQLITE


@frozen(kw_only=True)
class OwnServers:
    """Servers that the lab starts and ends, inside its node's namespace; the API server is empty for etcd alone."""

    etcd: str
    apiserver: str = ""

    @property
    def kind(self) -> StoreKind:
        """Which datastore they are."""
        return StoreKind.KUBERNETES if self.apiserver else StoreKind.ETCD


@frozen(kw_only=True)
class ExternalServers:
    """Servers outside the lab: the environment that leads ``netplugctl`` to them, and host and port of each."""

    kind: StoreKind
    environment: tuple[tuple[str, str], ...]
    addresses: tuple[tuple[str, int], ...]


LabStore = SqliteStore | OwnServers | ExternalServers


def is_kubernetes(store: LabStore) -> bool:
    """Whether nodes and pods are objects there."""
    return store.kind is StoreKind.KUBERNETES


def store_environment(store: LabStore, folder: LabFolder) -> Mapping[str, str]:
    """The environment that makes ``netplugctl`` use the store."""
    named = {"DATASTORE_TYPE": store.kind.value}
    match store:
        case SqliteStore():
            return {**named, "SQLITE_PATH": folder.store_file}
        case OwnServers(apiserver=""):
            return {**named, "ETCD_ENDPOINTS": ETCD_URL}
        case OwnServers():
            return {**named, "KUBECONFIG": folder.kubeconfig_file}
        case ExternalServers():
            return {**named, **dict(store.environment)}
    assert_never(store)


def store_netconf_keys(store: LabStore, folder: LabFolder) -> Mapping[str, object]:
    """The members of a plugin's configuration that make it use the store."""
    members: dict[str, object] = {}
    for variable, value in store_environment(store, folder).items():
        first, *inner = netconf_path(variable)
        members[first] = {inner[0]: value} if inner else value
    return members
