"""The network configuration as values: every key of spec 2.1 to 2.3 and what practice adds, defaults filled in.

``load`` makes them; flows and wiring read them. Wire spellings that mislead (string booleans, deprecated keys) exist
only there. Empty texts and tuples mean not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from netplug_core.log import Level

__all__ = [
    "DEFAULT_ANNOTATION_PREFIX",
    "DEFAULT_ETCD_AUTHORITY",
    "DEFAULT_ETCD_ENDPOINT",
    "DEFAULT_SQLITE_PATH",
    "ETCD_DATASTORE",
    "KUBERNETES_DATASTORE",
    "KUBERNETES_NETCONF_KEYS",
    "MAX_MTU",
    "MAX_QUEUES",
    "MAX_REQUEST_RATE",
    "REDACTED",
    "SQLITE_DATASTORE",
    "ContainerSettings",
    "DatastoreSettings",
    "FeatureControl",
    "IPAMConfig",
    "KubernetesAccess",
    "LogSettings",
    "NetConf",
    "redact_url_credentials",
]

DEFAULT_ANNOTATION_PREFIX = "cni.projectnetplug.org"
DEFAULT_ETCD_AUTHORITY = "127.0.0.1:2379"
DEFAULT_ETCD_ENDPOINT = f"http://{DEFAULT_ETCD_AUTHORITY}"
DEFAULT_SQLITE_PATH = "/var/lib/netplug/netplug.db"
MAX_MTU = 0xFFFF
MAX_QUEUES = 4096  # the kernel refuses more for any link
MAX_REQUEST_RATE = 2**32 - 1
REDACTED = "…"

ETCD_DATASTORE = "etcdv3"
"""The datastore where none is named (spec 2.1)."""

SQLITE_DATASTORE = "sqlite"
"""The datastore that is a file of one host's."""

KUBERNETES_DATASTORE = "kubernetes"
"""The datastore whose records are the orchestrator's own objects."""

KUBERNETES_NETCONF_KEYS = ("kubernetes", "netplug_api_group", "qps", "burst")
"""Keys of a network configuration that lead to it."""


def redact_url_credentials(value: object) -> object:
    """What may be shown of a value that may be a URL: nobody can tell a user from a password in one that has either."""
    return REDACTED if "@" in repr(value) else value


def _redacted_repr(value: object) -> str:
    return repr(redact_url_credentials(value))


@frozen(kw_only=True)
class KubernetesAccess:
    """How to reach the orchestrator's API: spec 2.3 and the deprecated keys of ``policy``.

    ``kubeconfig_inline`` (the file's text in its place), ``context`` (of the kubeconfig), ``skips_tls_verification``
    (whoever answers is believed) and ``uses_pod_cidr`` (addresses are not netplug's to assign, spec 2.6) exist only in
    the settings of the tool and the daemons.
    """

    kubeconfig: str = ""
    kubeconfig_inline: str = field(default="", repr=False)
    context: str = ""
    api_root: str = field(default="", repr=_redacted_repr)
    node_name: str = ""
    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    certificate_authority: str = ""
    skips_tls_verification: bool = False
    uses_pod_cidr: bool = False


@frozen(kw_only=True)
class DatastoreSettings:
    """Which datastore, and how to reach it.

    ``etcd_endpoints_source`` is what people set to say the endpoints. User and password, and PEM texts in place of
    files,
    exist only in the tool's settings.
    """

    type: str = ETCD_DATASTORE
    sqlite_path: str = DEFAULT_SQLITE_PATH
    etcd_endpoints: tuple[str, ...] = field(default=(DEFAULT_ETCD_ENDPOINT,), repr=_redacted_repr)
    etcd_endpoints_source: str = "etcd_endpoints"
    etcd_discovery_srv: str = field(default="", repr=_redacted_repr)
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

    @property
    def is_kubernetes(self) -> bool:
        """Whether the records are the orchestrator's own objects, its nodes and pods among them."""
        return self.type == KUBERNETES_DATASTORE


@frozen(kw_only=True)
class LogSettings:
    """Where log lines go besides standard error: no file without a path. Sizes in MB, ages in days."""

    level: Level = Level.INFO
    file_path: str = ""
    max_size_mb: int = 100
    max_age_days: int = 30
    max_count: int = 10


@frozen(kw_only=True)
class IPAMConfig:
    """The ``ipam`` object (spec 2.2); pools are names or CIDRs in the order to try them."""

    type: str = ""
    assign_ipv4: bool = True
    assign_ipv6: bool = False
    ipv4_pools: tuple[str, ...] = ()
    ipv6_pools: tuple[str, ...] = ()


@frozen(kw_only=True)
class ContainerSettings:
    """Settings inside the container's namespace."""

    allow_ip_forwarding: bool = False


@frozen(kw_only=True)
class FeatureControl:
    """Features that are off unless asked for."""

    ip_addrs_no_ipam: bool = False
    floating_ips: bool = False


@frozen(kw_only=True)
class NetConf:
    """One network configuration, as a plugin is handed it.

    ``valid_attachments`` is GC's list of container and interface; None when the runtime sent none. ``raw`` has
    every key that speaks to us as it came, also those that nothing here reads; it is never shown.
    """

    type: str = ""
    nodename: str = ""
    hostname: str = ""
    nodename_file: str = "/var/lib/netplug/nodename"
    nodename_file_optional: bool = True
    datastore: DatastoreSettings = DatastoreSettings()
    log: LogSettings = LogSettings()
    ipam: IPAMConfig = IPAMConfig()
    container_settings: ContainerSettings = ContainerSettings()
    feature_control: FeatureControl = FeatureControl()
    policy_type: str = ""
    readiness_gates: tuple[str, ...] = field(default=(), repr=_redacted_repr)
    num_queues: int = 1
    mtu: int = 0
    mtu_file: str = "/var/lib/netplug/mtu"
    require_mtu_file: bool = False
    include_default_routes: bool = False
    policy_setup_timeout_s: int = 0
    endpoint_status_dir: str = "/var/run/netplug/endpoint-status"
    ipam_lock_file: str = "/var/run/netplug/ipam.lock"
    device_type: str = "veth"
    dataplane_type: str = ""
    valid_attachments: frozenset[tuple[str, str]] | None = None
    own_keys: Mapping[str, object] = field(factory=dict, repr=False, eq=False)
