"""The settings of a datastore: their value, the name of each, and the URLs of an etcd's members as values.

A setting has a name in the network configuration, in the tool's file and in the environment. ``netconf`` and
``apiconfig`` read these tables. The rules between settings are the same for all three: endpoints go before SRV records,
and those before the deprecated parts of one endpoint.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urlsplit

from attrs import field, fields, frozen

from netplug_core.addressing import without_ipv4_brackets
from netplug_core.decoding.codecs import STRING, STRING_MAP, Codec, Refused, checked, exactly, number_in
from netplug_core.decoding.tables import Field, Finish, Table
from netplug_core.errors import REDACTED, ConfigurationError, redact_url_credentials, redacted_repr
from netplug_core.names import RESOURCE_DOMAIN, is_dns_subdomain

__all__ = [
    "ALL_DATASTORE_KEYS", "ANNOTATION_PREFIX", "DATASTORE_KEYS", "DEFAULT_ANNOTATION_PREFIX", "DEFAULT_ETCD_AUTHORITY",
    "DEFAULT_ETCD_ENDPOINT", "DEFAULT_SQLITE_PATH", "DEPRECATED_KEYS", "ETCD_DATASTORE", "KUBERNETES_DATASTORE",
    "KUBERNETES_NETCONF_KEYS", "LOCATION_VARIABLES", "MAX_REQUEST_RATE", "MEMORY_DATASTORE", "SECRET_SETTINGS",
    "SETTING_VARIABLES", "SQLITE_DATASTORE", "DatastoreSettings", "EtcdEndpoint", "KubernetesAccess", "MissingFile",
    "Setting", "SettingType", "netconf_path", "netconf_tables", "parse_endpoints", "refuse_endpoints_beside_srv",
    "settings_tables", "shown_settings", "with_endpoints",
]  # fmt: skip


# --- model -----------------------------------------------------------------------------------------------------------


DEFAULT_ANNOTATION_PREFIX = f"cni.{RESOURCE_DOMAIN}"
DEFAULT_ETCD_AUTHORITY = "127.0.0.1:2379"
DEFAULT_ETCD_ENDPOINT = f"http://{DEFAULT_ETCD_AUTHORITY}"
DEFAULT_SQLITE_PATH = "/var/lib/netplug/netplug.db"
MAX_REQUEST_RATE = 2**32 - 1
_FINGERPRINT_DIGITS = 16

ETCD_DATASTORE = "etcdv3"
"""The datastore if none is named."""

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
    """How to reach the Kubernetes API: the keys of ``kubernetes`` and the deprecated ones of ``policy``.

    Four fields are settings of the tool and the daemons only: ``kubeconfig_inline`` (the text of a kubeconfig),
    ``context`` (a context of the kubeconfig), ``skips_tls_verification`` (the server's certificate is not checked) and
    ``uses_pod_cidr`` (netplug does not assign the addresses).
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
        from hashlib import sha256  # it loads OpenSSL; only records of releases need this

        locations = {
            SQLITE_DATASTORE: (self.sqlite_path,),
            ETCD_DATASTORE: (self.etcd_discovery_srv, *sorted(self.etcd_endpoints)),
            KUBERNETES_DATASTORE: (self.kubernetes.kubeconfig, self.kubernetes.api_root, self.api_group),
        }
        options = tuple(f"{name}={self.options[name]}" for name in sorted(self.options))
        text = "\0".join((self.type, *locations.get(self.type, options)))
        return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_FINGERPRINT_DIGITS]

    @property
    def is_default_location(self) -> bool:
        """Whether it is where a datastore is looked for if none is configured: etcd on this machine."""
        named = (self.type, self.etcd_endpoints, self.etcd_discovery_srv)
        return named == (ETCD_DATASTORE, (DEFAULT_ETCD_ENDPOINT,), "")

    @property
    def is_kubernetes(self) -> bool:
        """Whether the records are the orchestrator's own objects, its nodes and pods among them."""
        return self.type == KUBERNETES_DATASTORE

    @property
    def uses_pod_cidrs(self) -> bool:
        """Whether addresses of pods come from the prefixes that the orchestrator gives to nodes, and not from pools.

        The datastore then has no blocks and no handles.
        """
        return self.is_kubernetes and self.kubernetes.uses_pod_cidr


# --- keys ------------------------------------------------------------------------------------------------------------


_ETCD_KEYS = ("etcd_endpoints", "etcd_discovery_srv", "etcd_authority", "etcd_scheme",
              "etcd_key_file", "etcd_cert_file", "etcd_ca_cert_file")  # fmt: skip
KUBERNETES_NETCONF_KEYS: Final = ("kubernetes", "netplug_api_group", "qps", "burst")
"""The keys of a network configuration that say how to reach the Kubernetes API."""

DATASTORE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    ETCD_DATASTORE: _ETCD_KEYS,
    SQLITE_DATASTORE: ("sqlite_path",),
    KUBERNETES_DATASTORE: (*KUBERNETES_NETCONF_KEYS, "annotation_prefix"),
}
"""The keys of a network configuration that lead to each of netplug's own datastores."""

ALL_DATASTORE_KEYS: Final = (*(key for keys in DATASTORE_KEYS.values() for key in keys), "datastore_options")
"""The keys that lead to a datastore; a backend that is not netplug's own may use any of them."""

DEPRECATED_KEYS: Final[Mapping[str, str]] = {
    "etcd_authority": "etcd_endpoints",
    "etcd_scheme": "etcd_endpoints",
    "policy.k8s_api_root": "kubernetes.k8s_api_root",
    "policy.k8s_auth_token": "kubernetes.kubeconfig",
    "policy.k8s_client_certificate": "kubernetes.kubeconfig",
    "policy.k8s_client_key": "kubernetes.kubeconfig",
    "policy.k8s_certificate_authority": "kubernetes.kubeconfig",
}
"""The keys of a network configuration that still work, and the key to use in place of each."""


class SettingType(enum.Enum):
    """What a setting's value is; each source spells it in its own way."""

    TEXT = enum.auto()
    FLAG = enum.auto()
    REQUEST_RATE = enum.auto()
    ANNOTATION_PREFIX = enum.auto()
    OPTIONS = enum.auto()


@frozen
class Setting:
    """The names of one setting. An empty name: it does not exist there.

    Texts of several lines are in the file only, and the deprecated parts of one endpoint never in the file.
    """

    file: str
    variable: str
    netconf: str | tuple[str, ...] = ""
    type: SettingType = SettingType.TEXT
    deprecated_netconf: tuple[str, ...] = ()


_SETTINGS: Final = {
    "type": Setting("datastoreType", "DATASTORE_TYPE", "datastore_type"),
    "sqlite_path": Setting("sqlitePath", "SQLITE_PATH", "sqlite_path"),
    "etcd_endpoints": Setting("etcdEndpoints", "ETCD_ENDPOINTS", "etcd_endpoints"),
    "etcd_discovery_srv": Setting("etcdDiscoverySrv", "ETCD_DISCOVERY_SRV", "etcd_discovery_srv"),
    "etcd_scheme": Setting("", "ETCD_SCHEME", "etcd_scheme"),
    "etcd_authority": Setting("", "ETCD_AUTHORITY", "etcd_authority"),
    "etcd_key_file": Setting("etcdKeyFile", "ETCD_KEY_FILE", "etcd_key_file"),
    "etcd_cert_file": Setting("etcdCertFile", "ETCD_CERT_FILE", "etcd_cert_file"),
    "etcd_ca_cert_file": Setting("etcdCACertFile", "ETCD_CA_CERT_FILE", "etcd_ca_cert_file"),
    "etcd_key": Setting("etcdKey", ""),
    "etcd_cert": Setting("etcdCert", ""),
    "etcd_ca_cert": Setting("etcdCACert", ""),
    "etcd_username": Setting("etcdUsername", "ETCD_USERNAME"),
    "etcd_password": Setting("etcdPassword", "ETCD_PASSWORD"),
    "api_group": Setting("netplugAPIGroup", "NETPLUG_API_GROUP", "netplug_api_group"),
    "annotation_prefix": Setting(
        "annotationPrefix", "ANNOTATION_PREFIX", "annotation_prefix", SettingType.ANNOTATION_PREFIX
    ),
    "qps": Setting("k8sClientQPS", "K8S_CLIENT_QPS", "qps", SettingType.REQUEST_RATE),
    "burst": Setting("k8sClientBurst", "K8S_CLIENT_BURST", "burst", SettingType.REQUEST_RATE),
    "options": Setting("datastoreOptions", "DATASTORE_OPTIONS", "datastore_options", SettingType.OPTIONS),
}
_KUBERNETES_SETTINGS: Final = {
    "kubeconfig": Setting("kubeconfig", "KUBECONFIG", ("kubernetes", "kubeconfig")),
    "kubeconfig_inline": Setting("kubeconfigInline", ""),
    "context": Setting("k8sCurrentContext", "K8S_CURRENT_CONTEXT"),
    "api_root": Setting(
        "k8sAPIEndpoint",
        "K8S_API_ENDPOINT",
        ("kubernetes", "k8s_api_root"),
        deprecated_netconf=("policy", "k8s_api_root"),
    ),
    "node_name": Setting("", "", ("kubernetes", "node_name")),
    "token": Setting("k8sAPIToken", "K8S_API_TOKEN", ("policy", "k8s_auth_token")),
    "certificate": Setting("k8sCertFile", "K8S_CERT_FILE", ("policy", "k8s_client_certificate")),
    "key": Setting("k8sKeyFile", "K8S_KEY_FILE", ("policy", "k8s_client_key")),
    "certificate_authority": Setting("k8sCAFile", "K8S_CA_FILE", ("policy", "k8s_certificate_authority")),
    "skips_tls_verification": Setting(
        "k8sInsecureSkipTLSVerify", "K8S_INSECURE_SKIP_TLS_VERIFY", type=SettingType.FLAG
    ),
    "uses_pod_cidr": Setting("usePodCIDR", "USE_POD_CIDR", type=SettingType.FLAG),
}


_LOCATIONS: Final = ("type", "sqlite_path", "etcd_endpoints", "etcd_discovery_srv", "etcd_authority", "kubeconfig",
                     "api_root")  # fmt: skip

LOCATION_VARIABLES: Final = tuple(
    setting.variable for name, setting in {**_SETTINGS, **_KUBERNETES_SETTINGS}.items() if name in _LOCATIONS
)
"""The environment variables that say which datastore, or where it is."""


SETTING_VARIABLES: Final = tuple(
    setting.variable for setting in (*_SETTINGS.values(), *_KUBERNETES_SETTINGS.values()) if setting.variable
)
"""The environment variables of all settings."""


def _names_of(setting: Setting) -> tuple[str, ...]:
    path = (setting.netconf,) if isinstance(setting.netconf, str) else setting.netconf
    return tuple(name for name in (setting.file, setting.variable, path[-1], *setting.deprecated_netconf[-1:]) if name)


SECRET_SETTINGS: Final = frozenset(
    name
    for cls, settings in ((DatastoreSettings, _SETTINGS), (KubernetesAccess, _KUBERNETES_SETTINGS))
    for attribute in fields(cls)
    if attribute.repr is False
    for name in _names_of(settings[attribute.name])
)
"""The names, in every source, of the settings whose values are never shown."""


def shown_settings(settings: DatastoreSettings) -> tuple[tuple[str, str], ...]:
    """The type of the datastore and all settings that are no defaults, by their names in the file.

    A value that is never shown is ``REDACTED``.
    """
    found = [("datastoreType", settings.type)]
    for holder, names in ((settings, _SETTINGS), (settings.kubernetes, _KUBERNETES_SETTINGS)):
        for attribute in fields(type(holder)):
            setting, value = names.get(attribute.name), getattr(holder, attribute.name)
            if setting is None or not setting.file or attribute.name == "type" or value in (attribute.default, {}):
                continue
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            shown = REDACTED if attribute.repr is False else str(redact_url_credentials(text))
            found.append((setting.file, shown))
    return tuple(found)


def netconf_path(variable: str) -> tuple[str, ...]:
    """The members of a network configuration that lead to the setting of an environment variable."""
    settings = (*_SETTINGS.values(), *_KUBERNETES_SETTINGS.values())
    path = next(setting.netconf for setting in settings if setting.variable == variable)
    return (path,) if isinstance(path, str) else path


# --- codecs -----------------------------------------------------------------------------------------------------


_DNS_LABEL: Final = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
ANNOTATION_PREFIX: Final = checked(
    STRING,
    is_dns_subdomain,
    f"a DNS name such as {DEFAULT_ANNOTATION_PREFIX} is expected",
    schema={"pattern": exactly(rf"|{_DNS_LABEL}(?:\.{_DNS_LABEL})*")},
)
_NETCONF_RATE: Final = number_in(0, MAX_REQUEST_RATE, f"a number from 0 to {MAX_REQUEST_RATE} is expected")
_NETCONF_CODECS: Final = {
    SettingType.TEXT: STRING,
    SettingType.REQUEST_RATE: _NETCONF_RATE,
    SettingType.ANNOTATION_PREFIX: ANNOTATION_PREFIX,
    SettingType.OPTIONS: STRING_MAP,
}


# --- tables ---------------------------------------------------------------------------------------------------------


def _netconf_field(setting: Setting) -> Field | None:
    if not setting.netconf:
        return None
    old = setting.deprecated_netconf
    return Field(
        setting.netconf,
        _NETCONF_CODECS[setting.type],
        alternatives=(Field(old, Codec(_read_deprecated_api_root, schema=STRING.schema)),) if old else (),
        is_unset_if_empty=True,
    )


def _read_deprecated_api_root(value: object) -> str:
    return STRING.decode(value).partition("/api/")[0]


def settings_tables(field_of: Callable[[Setting], Field | None], finish: Finish) -> tuple[Table[object], ...]:
    """The tables of one source. ``field_of`` is None for a setting that the source does not have."""
    fields = {name: line for name, setting in _SETTINGS.items() if (line := field_of(setting))}
    access = {name: line for name, setting in _KUBERNETES_SETTINGS.items() if (line := field_of(setting))}
    return (
        Table(cls=DatastoreSettings, fields={**fields, "kubernetes": Field((), KubernetesAccess)}, finish=finish),
        Table(cls=KubernetesAccess, fields=access, is_partial=True),
    )


def netconf_tables(*, is_strict: bool) -> tuple[Table[object], ...]:
    """The settings in a network configuration. If it is not strict, endpoints win over SRV records."""
    return settings_tables(_netconf_field, partial(_finish_netconf, is_strict=is_strict))


def _finish_netconf(values: dict[str, object], keys: Mapping[str, str], *, is_strict: bool) -> dict[str, object]:
    datastore = values.setdefault("type", ETCD_DATASTORE)
    if values.get("etcd_endpoints") and not (is_strict and datastore == ETCD_DATASTORE):
        values.pop("etcd_discovery_srv", None)
    path = str(values.get("sqlite_path", "/"))
    if datastore == SQLITE_DATASTORE and not path.startswith("/"):
        # Runtimes start plugins in their own working directory. A teardown that reads a file there would find nothing,
        # and leave held every address that is recorded in the right file.
        raise Refused("an absolute path is expected", value=path, path=".sqlite_path")
    return with_endpoints(values, keys, key_prefix="")


def with_endpoints(values: dict[str, object], keys: Mapping[str, str], *, key_prefix: str) -> dict[str, object]:
    """Settings with the endpoints of etcd: the list, else none if SRV records name them, else the deprecated parts.

    ``keys`` are the keys that the values were read from; errors name them with the prefix.
    """
    listed = str(values.pop("etcd_endpoints", ""))
    parts = {name: str(values.pop(name)) for name in ("etcd_scheme", "etcd_authority") if name in values}
    srv = values.get("etcd_discovery_srv")
    if listed and srv:
        # An endpoint may contain a password, so the error shows the domain.
        both = _one_way(keys["etcd_endpoints"], keys["etcd_discovery_srv"])
        raise Refused(both, value=redact_url_credentials(srv), path=f".{keys['etcd_discovery_srv']}")
    if listed:
        values["etcd_endpoints"] = tuple(part for part in map(str.strip, listed.split(",")) if part)
    elif srv:
        values["etcd_endpoints"] = ()
    elif parts:
        scheme, authority = parts.get("etcd_scheme", "http"), parts.get("etcd_authority", DEFAULT_ETCD_AUTHORITY)
        values["etcd_endpoints"] = (f"{scheme}://{authority}",)
    if parts and not listed:
        values["etcd_endpoints_source"] = " and ".join(f"{key_prefix}{keys[name]}" for name in parts)
    return values


def _one_way(endpoints: str, srv: str) -> str:
    return f'multiple discovery or bootstrap options specified, use either "{endpoints}" or "{srv}"'


def refuse_endpoints_beside_srv(endpoints: tuple[str, ...], srv: str, where: str) -> None:
    """Refuse endpoints of etcd beside a domain whose SRV records name them.

    Raises:
        ConfigurationError: neither is empty.
    """
    if endpoints and srv:
        raise ConfigurationError(where, redact_url_credentials(srv), _one_way("etcdEndpoints", "etcdDiscoverySrv"))


# --- endpoints of etcd -----------------------------------------------------------------------------------------------

_SCHEMES = ("http", "https")
_PORT = 2379
_MAX_LABEL_LENGTH = 63
_ACCEPTED = "give http://host:port or https://host:port, more of them after commas"


@frozen(order=True)
class EtcdEndpoint:
    """One member's address. An IPv6 address in ``host`` has no brackets."""

    scheme: str
    host: str
    port: int

    @property
    def is_secure(self) -> bool:
        """Whether the member uses TLS."""
        return self.scheme == "https"

    @property
    def has_name(self) -> bool:
        """Whether the host is a name, which has to be resolved, and not an address."""
        return ":" not in self.host and not self.host.rpartition(".")[2].isdigit()

    @property
    def target(self) -> str:
        """The address as ``host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.target}"


def parse_endpoints(urls: Sequence[str], where: str = "etcd_endpoints") -> tuple[EtcdEndpoint, ...]:
    """The addresses in URLs, each once, in order; ``where`` is the setting that an error names.

    Raises:
        ConfigurationError: there are none, or one is not the URL of a member.
    """
    if not urls:
        raise ConfigurationError(where, "", f"no etcd endpoints specified: {_ACCEPTED}")
    found: dict[EtcdEndpoint, None] = {}
    for url in urls:
        endpoint = _find_endpoint(url)
        if endpoint is None:
            # If a password contains a comma, the part with the @ is another entry of the list.
            shown = "…" if any("@" in each for each in urls) else url
            raise ConfigurationError(where, shown, _ACCEPTED)
        found[endpoint] = None
    return tuple(found)


def _find_endpoint(url: str) -> EtcdEndpoint | None:
    """The address in a URL; None if it is not the URL of a member."""
    try:
        parts = urlsplit(without_ipv4_brackets(url))
        port = _PORT if parts.port is None else parts.port
    except ValueError:
        return None
    host = parts.hostname or ""
    # A user and a password in a URL would appear in logs; they have settings of their own.
    if parts.scheme not in _SCHEMES or not port or not _is_host(host) or _has_extra_parts(parts) or not _is_plain(url):
        return None
    return EtcdEndpoint(parts.scheme, host, port)


def _is_plain(url: str) -> bool:
    """Whether a URL has no blanks (parsing drops some) and only printable characters."""
    return url.isprintable() and " " not in url


def _is_host(host: str) -> bool:
    if ":" in host:
        return True
    return all(0 < len(label) <= _MAX_LABEL_LENGTH for label in host.removesuffix(".").split("."))


def _has_extra_parts(parts: SplitResult) -> bool:
    return "@" in parts.netloc or parts.path not in ("", "/") or bool(parts.query or parts.fragment)
