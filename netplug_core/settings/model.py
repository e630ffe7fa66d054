"""Which datastore, and how to reach it: the values that backends read.

The plugin makes them from its network configuration (``keys``), the tool and the daemons from the environment
or from a file (``apiconfig``). An empty text or tuple means not set.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping

from attrs import field, frozen

from netplug_core.errors import redacted_repr
from netplug_core.names import RESOURCE_DOMAIN

__all__ = [
    "DEFAULT_ANNOTATION_PREFIX", "DEFAULT_ETCD_AUTHORITY", "DEFAULT_ETCD_ENDPOINT", "DEFAULT_SQLITE_PATH",
    "ETCD_DATASTORE", "KUBERNETES_DATASTORE", "MAX_REQUEST_RATE", "MEMORY_DATASTORE", "SQLITE_DATASTORE",
    "DatastoreSettings", "KubernetesAccess", "MissingFile",
]  # fmt: skip

DEFAULT_ANNOTATION_PREFIX = f"cni.{RESOURCE_DOMAIN}"
DEFAULT_ETCD_AUTHORITY = "127.0.0.1:2379"
DEFAULT_ETCD_ENDPOINT = f"http://{DEFAULT_ETCD_AUTHORITY}"
DEFAULT_SQLITE_PATH = "/var/lib/netplug/netplug.db"
MAX_REQUEST_RATE = 2**32 - 1
_FINGERPRINT_DIGITS = 16

ETCD_DATASTORE = "etcdv3"
"""The datastore if none is named (spec 2.1)."""

SQLITE_DATASTORE = "sqlite"
"""The datastore that is one file on one host."""

KUBERNETES_DATASTORE = "kubernetes"
"""The datastore whose records are objects of the orchestrator."""

MEMORY_DATASTORE = "memory"
"""The datastore that ends with its process."""


class MissingFile(enum.Enum):
    """What opening a datastore does about a file that does not exist.

    ``ASSUMED_EMPTY``: it is read as one without records, and not made; for dry runs, which write nothing.
    """

    CREATED = "created"
    REFUSED = "refused"
    ASSUMED_EMPTY = "assumed empty"


@frozen(kw_only=True)
class KubernetesAccess:
    """How to reach the Kubernetes API: spec 2.3 and the deprecated keys of ``policy``.

    Four fields are settings of the tool and the daemons only: ``kubeconfig_inline`` (the text of a kubeconfig),
    ``context`` (a context of the kubeconfig), ``skips_tls_verification`` (the server's certificate is not checked) and
    ``uses_pod_cidr`` (netplug does not assign the addresses, spec 2.6).
    """

    kubeconfig: str = ""
    kubeconfig_inline: str = field(default="", repr=False)
    context: str = ""
    api_root: str = field(default="", repr=redacted_repr)
    node_name: str = ""
    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    certificate_authority: str = ""
    skips_tls_verification: bool = False
    uses_pod_cidr: bool = False

    @property
    def is_configured(self) -> bool:
        """Whether it says where the API is."""
        return bool(self.kubeconfig or self.kubeconfig_inline or self.api_root)


@frozen(kw_only=True, cache_hash=True)  # each call looks for the datastore that was opened with them
class DatastoreSettings:
    """Which datastore, and how to reach it.

    ``sqlite_missing_file`` is decided by the command that opens the datastore, never by its configuration.
    ``etcd_endpoints_source`` names the key or variable that the endpoints were read from, for errors. A user, a
    password and PEM texts in place of files are settings of the tool and the daemons only.

    ``options`` are names and values that only the backend itself understands. Netplug's own backends have fields of
    their own and ignore them. They are never shown, as one of them may be a password.
    """

    type: str = ETCD_DATASTORE
    sqlite_path: str = DEFAULT_SQLITE_PATH
    sqlite_missing_file: MissingFile = MissingFile.CREATED
    etcd_endpoints: tuple[str, ...] = field(default=(DEFAULT_ETCD_ENDPOINT,), repr=redacted_repr)
    etcd_endpoints_source: str = "etcd_endpoints"
    etcd_discovery_srv: str = field(default="", repr=redacted_repr)
    etcd_key_file: str = ""
    etcd_cert_file: str = ""
    etcd_ca_cert_file: str = ""
    etcd_key: str = field(default="", repr=False)
    etcd_cert: str = field(default="", repr=False)
    etcd_ca_cert: str = field(default="", repr=False)
    etcd_username: str = ""
    etcd_password: str = field(default="", repr=False)
    kubernetes: KubernetesAccess = KubernetesAccess()
    api_group: str = ""
    annotation_prefix: str = DEFAULT_ANNOTATION_PREFIX
    qps: int = 0
    burst: int = 0
    options: Mapping[str, str] = field(factory=dict, repr=False, hash=False)

    @property
    def fingerprint(self) -> str:
        """A hash of type and location, and not of how to be let in: equal for the same configured location.

        A list with another endpoint of the same etcd cluster has another one.
        """
        locations = {
            SQLITE_DATASTORE: (self.sqlite_path,),
            ETCD_DATASTORE: (self.etcd_discovery_srv, *sorted(self.etcd_endpoints)),
            KUBERNETES_DATASTORE: (self.kubernetes.kubeconfig, self.kubernetes.api_root, self.api_group),
        }
        options = tuple(f"{name}={self.options[name]}" for name in sorted(self.options))
        text = "\0".join((self.type, *locations.get(self.type, options)))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_FINGERPRINT_DIGITS]

    @property
    def is_default_location(self) -> bool:
        """Whether it is where a datastore is looked for if none is configured: etcd on this machine."""
        named = (self.type, self.etcd_endpoints, self.etcd_discovery_srv)
        return named == (ETCD_DATASTORE, (DEFAULT_ETCD_ENDPOINT,), "")

    @property
    def is_kubernetes(self) -> bool:
        """Whether the records are the orchestrator's own objects, its nodes and pods among them."""
        return self.type == KUBERNETES_DATASTORE
