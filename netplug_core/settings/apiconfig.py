"""Which datastore ``netplugctl`` and the daemons are to use: from the environment, or from the tool's own file.

Both say the same things, each in its spelling: ``_VARIABLES`` has them side by side. Where a file is there it says
everything, and the environment nothing. The plugin never comes here; ``datastores`` has its
settings, and the rules that are both's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import frozen

from netplug_core.decoding.members import is_utf8_without_nul
from netplug_core.decoding.reader import DocumentOrigin, MalformedField, ObjectReader, as_boolean, as_string
from netplug_core.errors import REDACTED, ConfigurationError
from netplug_core.names import API_VERSION, is_dns_subdomain
from netplug_core.settings.model import (
    DEFAULT_ANNOTATION_PREFIX,
    DEFAULT_SQLITE_PATH,
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    MAX_REQUEST_RATE,
    DatastoreSettings,
    KubernetesAccess,
)
from netplug_core.settings.netconf_keys import etcd_endpoints_source, resolve_etcd_endpoints

__all__ = ["API_CONFIG_KIND", "datastore_settings_from_environment", "datastore_settings_from_file"]

API_CONFIG_KIND = "NetplugAPIConfig"

# Key in the file: variable. Each variable may also have the prefix NETPLUG_, and then wins. Texts that take lines are
# in a file only; the parts of one endpoint are deprecated, and in the environment only.
_ENVIRONMENT_VARIABLES = {
    "datastoreType": "DATASTORE_TYPE",
    "sqlitePath": "SQLITE_PATH",
    "etcdEndpoints": "ETCD_ENDPOINTS",
    "etcdDiscoverySrv": "ETCD_DISCOVERY_SRV",
    "etcdUsername": "ETCD_USERNAME",
    "etcdPassword": "ETCD_PASSWORD",
    "etcdKeyFile": "ETCD_KEY_FILE",
    "etcdCertFile": "ETCD_CERT_FILE",
    "etcdCACertFile": "ETCD_CA_CERT_FILE",
    "etcdKey": "",
    "etcdCert": "",
    "etcdCACert": "",
    "kubeconfig": "KUBECONFIG",
    "kubeconfigInline": "",
    "k8sCurrentContext": "K8S_CURRENT_CONTEXT",
    "k8sAPIEndpoint": "K8S_API_ENDPOINT",
    "k8sAPIToken": "K8S_API_TOKEN",
    "k8sKeyFile": "K8S_KEY_FILE",
    "k8sCertFile": "K8S_CERT_FILE",
    "k8sCAFile": "K8S_CA_FILE",
    "k8sInsecureSkipTLSVerify": "K8S_INSECURE_SKIP_TLS_VERIFY",
    "k8sClientQPS": "K8S_CLIENT_QPS",
    "k8sClientBurst": "K8S_CLIENT_BURST",
    "usePodCIDR": "USE_POD_CIDR",
    "netplugAPIGroup": "NETPLUG_API_GROUP",
    "annotationPrefix": "ANNOTATION_PREFIX",
}
_DEPRECATED = {"etcdAuthority": "ETCD_AUTHORITY", "etcdScheme": "ETCD_SCHEME"}
_PREFIX = "NETPLUG_"
# What must not be shown, or may hold what must not: URLs can be written with a password.
_SECRET_KEYS = frozenset({"etcdPassword", "etcdKey", "etcdCert", "etcdCACert", "kubeconfigInline", "k8sAPIToken",
                     "etcdEndpoints", "k8sAPIEndpoint"})  # fmt: skip
_REQUEST_RATES = range(MAX_REQUEST_RATE + 1)
_NUMBER = f"a whole number from 0 to {MAX_REQUEST_RATE}"
_MAX_SHOWN_LENGTH = 64  # characters of what should be a number
_FLAGS = {"": False, "true": True, "1": True, "false": False, "0": False}


def datastore_settings_from_environment(environ: Mapping[str, str]) -> DatastoreSettings:
    """The datastore that ``DATASTORE_TYPE``, ``SQLITE_PATH``, ``ETCD_ENDPOINTS``, … and ``KUBECONFIG`` name.

    Raises:
        ConfigurationError: endpoints are given twice, a number or a flag is none, or a text is no UTF-8.
    """
    return _settings(_EnvironmentSource(environ))


def datastore_settings_from_file(mapping: Mapping[str, object], *, source: str) -> DatastoreSettings:
    """The datastore that a NetplugAPIConfig names; ``source`` is the file that it stands in.

    Raises:
        ConfigurationError: it is of another kind, or has a key that is unknown or of the wrong type; the error names
            file and key and shows no secret. Or endpoints are given twice, or a text is no UTF-8.
    """
    fields = ObjectReader(mapping, origin=DocumentOrigin.USER, source=source)
    for name, expected in (("kind", API_CONFIG_KIND), ("apiVersion", API_VERSION)):
        if fields.optional(name, as_string, "") != expected:
            raise fields.malformed_field(name, repr(expected), mapping.get(name))
    fields.ignore("metadata")  # as every object has it; nothing in it means anything here
    spec = _spec(fields)
    fields.finish_unknown_json()
    settings = _settings(_FileSource(spec))
    spec.finish_unknown_json()
    return settings


def _spec(fields: ObjectReader) -> ObjectReader:
    try:
        return fields.optional_object("spec")
    except MalformedField as error:
        # Somebody's slip of the indentation, and what stands there may be a password.
        raise MalformedField(error.where, REDACTED, error.accepted) from None


class _SettingsSource(Protocol):
    """Where settings are looked up, by their key in the file."""

    def text(self, key: str) -> str:
        """A text in UTF-8; empty where it is not set."""
        ...

    def flag(self, key: str) -> bool:
        """Whether it is set to true."""
        ...

    def number(self, key: str) -> int:
        """A whole number of requests; 0 where it is not set."""
        ...

    def where(self, key: str) -> str:
        """What people call the place."""
        ...


@frozen
class _EnvironmentSource:
    environ: Mapping[str, str]

    def text(self, key: str) -> str:
        name = self._variable(key)
        return _require_utf8(self.environ.get(name, ""), self.where(key)) if name else ""

    def flag(self, key: str) -> bool:
        text = self.text(key)
        if text.lower() not in _FLAGS:
            raise ConfigurationError(self.where(key), text, "true or false is expected")
        return _FLAGS[text.lower()]

    def number(self, key: str) -> int:
        text = self.text(key) or "0"
        # Of thousands of digits Python makes no number, and one more than the most has is enough to see that.
        digits = text.lstrip("0")[: len(str(MAX_REQUEST_RATE)) + 1] or "0"
        if not (text.isascii() and text.isdigit() and int(digits) in _REQUEST_RATES):
            shown = text if len(text) < _MAX_SHOWN_LENGTH else REDACTED
            raise ConfigurationError(self.where(key), shown, f"{_NUMBER} is expected")
        return int(digits)

    def where(self, key: str) -> str:
        return f"environment.{self._variable(key)}"

    def _variable(self, key: str) -> str:
        name = _ENVIRONMENT_VARIABLES.get(key) or _DEPRECATED.get(key, "")
        return f"{_PREFIX}{name}" if name and self.environ.get(f"{_PREFIX}{name}") else name


@frozen
class _FileSource:
    spec: ObjectReader

    def text(self, key: str) -> str:
        if key in _DEPRECATED:
            return ""
        try:
            return _require_utf8(self.spec.optional(key, as_string, ""), self.where(key))
        except MalformedField as error:
            if key not in _SECRET_KEYS:
                raise
            # A password that reads as a number is refused, and is a password all the same.
            raise MalformedField(error.where, REDACTED, "a text in quotes") from None

    def flag(self, key: str) -> bool:
        return self.spec.optional(key, as_boolean, default=False)

    def number(self, key: str) -> int:
        return self.spec.optional(key, _as_request_rate, 0)

    def where(self, key: str) -> str:
        return self.spec.path_of(key)


def _require_utf8(text: str, where: str) -> str:
    # Whatever took another text would fail with an error of Python's that quotes it.
    if not is_utf8_without_nul(text):
        raise ConfigurationError(where, REDACTED, "a text in UTF-8 without NUL is expected")
    return text


def _as_request_rate(value: object) -> int:
    """A number of requests; as in the network configuration, a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in _REQUEST_RATES:
        raise ValueError(_NUMBER)
    return value


def _settings(source: _SettingsSource) -> DatastoreSettings:
    kind, listed, srv = _resolve_datastore_type(source), source.text("etcdEndpoints"), source.text("etcdDiscoverySrv")
    if listed and kind != ETCD_DATASTORE:
        srv = ""
    scheme, authority = source.text("etcdScheme"), source.text("etcdAuthority")
    pair = {source.where("etcdScheme"): scheme, source.where("etcdAuthority"): authority}
    return DatastoreSettings(
        type=kind,
        sqlite_path=source.text("sqlitePath") or DEFAULT_SQLITE_PATH,
        etcd_endpoints=resolve_etcd_endpoints(listed, srv, (scheme, authority), source.where("etcdDiscoverySrv")),
        etcd_endpoints_source=etcd_endpoints_source(listed, pair),
        etcd_discovery_srv=srv,
        etcd_key_file=source.text("etcdKeyFile"),
        etcd_cert_file=source.text("etcdCertFile"),
        etcd_ca_cert_file=source.text("etcdCACertFile"),
        etcd_key=source.text("etcdKey"),
        etcd_cert=source.text("etcdCert"),
        etcd_ca_cert=source.text("etcdCACert"),
        etcd_username=source.text("etcdUsername"),
        etcd_password=source.text("etcdPassword"),
        kubernetes=_kubernetes_access(source),
        api_group=source.text("netplugAPIGroup"),
        annotation_prefix=_annotation_prefix(source),
        qps=source.number("k8sClientQPS"),
        burst=source.number("k8sClientBurst"),
    )


def _annotation_prefix(source: _SettingsSource) -> str:
    prefix = source.text("annotationPrefix") or DEFAULT_ANNOTATION_PREFIX
    if not is_dns_subdomain(prefix):
        accepted = f"a DNS name such as {DEFAULT_ANNOTATION_PREFIX} is expected"
        raise ConfigurationError(source.where("annotationPrefix"), prefix, accepted)
    return prefix


def _resolve_datastore_type(source: _SettingsSource) -> str:
    """The store that is named, else the one that the other settings are about; etcd where there are none."""
    named = source.text("datastoreType")
    if named:
        return named
    is_about_etcd = any(map(source.text, ("etcdEndpoints", "etcdDiscoverySrv", *_DEPRECATED)))
    is_about_kubernetes = any(map(source.text, ("kubeconfig", "kubeconfigInline", "k8sAPIEndpoint")))
    return KUBERNETES_DATASTORE if is_about_kubernetes and not is_about_etcd else ETCD_DATASTORE


def _kubernetes_access(source: _SettingsSource) -> KubernetesAccess:
    return KubernetesAccess(
        kubeconfig=source.text("kubeconfig"),
        kubeconfig_inline=source.text("kubeconfigInline"),
        context=source.text("k8sCurrentContext"),
        api_root=source.text("k8sAPIEndpoint"),
        token=source.text("k8sAPIToken"),
        certificate=source.text("k8sCertFile"),
        key=source.text("k8sKeyFile"),
        certificate_authority=source.text("k8sCAFile"),
        skips_tls_verification=source.flag("k8sInsecureSkipTLSVerify"),
        uses_pod_cidr=source.flag("usePodCIDR"),
    )
