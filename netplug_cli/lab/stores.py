"""Where a lab keeps its data: in a file of its own, on servers of its own, or on servers that run anyway.

Values only. ``choice`` makes one of what a person asks for; ``servers`` starts what a lab runs itself; ``conflist`` and
the tool's session take their settings from here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import assert_never

from attrs import frozen

from netplug_cli.lab.paths import Folder

__all__ = [
    "API_PORT",
    "API_URL",
    "ETCD_PORT",
    "ETCD_URL",
    "FileStore",
    "OwnServers",
    "RunningServers",
    "Store",
    "StoreKind",
    "has_cluster",
    "store_environment",
    "store_keys",
]

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
class FileStore:
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
class RunningServers:
    """Somebody else's servers, outside the lab: as ``netplugctl`` is told of them, and each one's host and port."""

    kind: StoreKind
    variables: tuple[tuple[str, str], ...]
    places: tuple[tuple[str, int], ...]


Store = FileStore | OwnServers | RunningServers

# The key of a plugin's configuration for each variable.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "DATASTORE_TYPE": ("datastore_type",),
    "SQLITE_PATH": ("sqlite_path",),
    "ETCD_ENDPOINTS": ("etcd_endpoints",),
    "ETCD_KEY_FILE": ("etcd_key_file",),
    "ETCD_CERT_FILE": ("etcd_cert_file",),
    "ETCD_CA_CERT_FILE": ("etcd_ca_cert_file",),
    "KUBECONFIG": ("kubernetes", "kubeconfig"),
    "NETPLUG_API_GROUP": ("netplug_api_group",),
}


def has_cluster(store: Store) -> bool:
    """Whether nodes and pods are objects there."""
    return store.kind is StoreKind.KUBERNETES


def store_environment(store: Store, folder: Folder) -> Mapping[str, str]:
    """What makes ``netplugctl`` use the store."""
    named = {"DATASTORE_TYPE": store.kind.value}
    match store:
        case FileStore():
            return {**named, "SQLITE_PATH": folder.store_file}
        case OwnServers(apiserver=""):
            return {**named, "ETCD_ENDPOINTS": ETCD_URL}
        case OwnServers():
            return {**named, "KUBECONFIG": folder.kubeconfig_file}
        case RunningServers():
            return {**named, **dict(store.variables)}
    assert_never(store)


def store_keys(store: Store, folder: Folder) -> Mapping[str, object]:
    """The same as members of a plugin's configuration."""
    members: dict[str, object] = {}
    for variable, value in store_environment(store, folder).items():
        first, *inner = _KEYS[variable]
        members[first] = {inner[0]: value} if inner else value
    return members
