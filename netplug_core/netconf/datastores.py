"""Which datastore, from a network configuration or from the environment of ``netplugctl`` and the daemons."""

from __future__ import annotations

from collections.abc import Mapping

from netplug_core.errors import ConfigurationError
from netplug_core.members import Members
from netplug_core.netconf.model import DEFAULT_AUTHORITY, DEFAULT_SQLITE_PATH, DatastoreSettings, KubernetesAccess

__all__ = ["datastore_settings", "datastore_settings_from_environment"]

# One environment variable for each key, in upper case; user and password exist only there.
_FROM_ENVIRONMENT = (
    "datastore_type", "sqlite_path", "etcd_endpoints", "etcd_discovery_srv", "etcd_key_file", "etcd_cert_file",
    "etcd_ca_cert_file", "etcd_authority", "etcd_scheme", "etcd_username", "etcd_password",
)  # fmt: skip


def datastore_settings(top: Members, *, is_strict: bool) -> DatastoreSettings:
    """The datastore that a network configuration names.

    Raises:
        DecodeError: a key has the wrong JSON type.
        ConfigurationError: endpoints are given twice, and it matters (``is_strict``).
    """
    access, policy = top.child("kubernetes"), top.child("policy")
    endpoints = _endpoints(top, is_strict=is_strict)
    return DatastoreSettings(
        type=top.text("datastore_type") or "etcdv3",
        sqlite_path=top.text("sqlite_path") or DEFAULT_SQLITE_PATH,
        etcd_endpoints=endpoints,
        etcd_discovery_srv="" if endpoints else top.text("etcd_discovery_srv"),
        etcd_key_file=top.text("etcd_key_file"),
        etcd_cert_file=top.text("etcd_cert_file"),
        etcd_ca_cert_file=top.text("etcd_ca_cert_file"),
        kubernetes=_access(access or Members(top.where, {}), policy or Members(top.where, {})),
        api_group=top.text("netplug_api_group"),
        qps=top.integer("qps") or 0,
        burst=top.integer("burst") or 0,
    )


def datastore_settings_from_environment(environ: Mapping[str, str]) -> DatastoreSettings:
    """The datastore that ``DATASTORE_TYPE``, ``SQLITE_PATH``, ``ETCD_ENDPOINTS``, … and ``KUBECONFIG`` name.

    Raises:
        ConfigurationError: endpoints are given twice, or what has to be a number is none.
    """
    given = {key: environ[key.upper()] for key in _FROM_ENVIRONMENT if environ.get(key.upper())}
    top = Members("environment", given)
    return DatastoreSettings(
        type=top.text("datastore_type") or "etcdv3",
        sqlite_path=top.text("sqlite_path") or DEFAULT_SQLITE_PATH,
        etcd_endpoints=_endpoints(top, is_strict=True),
        etcd_discovery_srv=top.text("etcd_discovery_srv"),
        etcd_key_file=top.text("etcd_key_file"),
        etcd_cert_file=top.text("etcd_cert_file"),
        etcd_ca_cert_file=top.text("etcd_ca_cert_file"),
        etcd_username=top.text("etcd_username"),
        etcd_password=top.text("etcd_password"),
        kubernetes=_access_from_environment(environ),
        api_group=environ.get("NETPLUG_API_GROUP", ""),
        qps=_number(environ, "K8S_CLIENT_QPS"),
        burst=_number(environ, "K8S_CLIENT_BURST"),
    )


def _endpoints(top: Members, *, is_strict: bool) -> tuple[str, ...]:
    """Where etcd answers: the list, else nothing if SRV records say it, else the deprecated pair, else the default."""
    text, srv = top.text("etcd_endpoints"), top.text("etcd_discovery_srv")
    if text and srv and is_strict:
        raise ConfigurationError(
            f"{top.where}.etcd_endpoints", text, f"it excludes etcd_discovery_srv ({srv!r}); give one of the two"
        )
    if text:
        return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
    if srv:
        return ()
    return (f"{top.text('etcd_scheme') or 'http'}://{top.text('etcd_authority') or DEFAULT_AUTHORITY}",)


def _access_from_environment(environ: Mapping[str, str]) -> KubernetesAccess:
    return KubernetesAccess(
        kubeconfig=environ.get("KUBECONFIG", ""),
        context=environ.get("K8S_CURRENT_CONTEXT", ""),
        api_root=environ.get("K8S_API_ENDPOINT", ""),
        token=environ.get("K8S_API_TOKEN", ""),
        certificate=environ.get("K8S_CERT_FILE", ""),
        key=environ.get("K8S_KEY_FILE", ""),
        certificate_authority=environ.get("K8S_CA_FILE", ""),
        skips_verification=environ.get("K8S_INSECURE_SKIP_TLS_VERIFY", "").lower() == "true",
        uses_pod_cidr=environ.get("USE_POD_CIDR", "").lower() == "true",
    )


def _number(environ: Mapping[str, str], name: str) -> int:
    """A whole number that a variable holds; 0 where it is not set."""
    text = environ.get(name) or "0"
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(f"environment.{name}", text, "a whole number is expected")
    return int(text)


def _access(access: Members, policy: Members) -> KubernetesAccess:
    """``kubernetes`` (spec 2.3), with the deprecated keys of ``policy`` where it says nothing."""
    deprecated_root = policy.text("k8s_api_root").partition("/api/")[0]
    return KubernetesAccess(
        kubeconfig=access.text("kubeconfig"),
        api_root=access.text("k8s_api_root") or deprecated_root,
        node_name=access.text("node_name"),
        token=policy.text("k8s_auth_token"),
        certificate=policy.text("k8s_client_certificate"),
        key=policy.text("k8s_client_key"),
        certificate_authority=policy.text("k8s_certificate_authority"),
    )
