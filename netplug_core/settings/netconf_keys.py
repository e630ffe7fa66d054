"""Which datastore a network configuration names; what ``netplugctl`` and the daemons are told is ``tool``'s."""

from __future__ import annotations

from collections.abc import Mapping

from netplug_core.decoding.members import JSONObject
from netplug_core.errors import ConfigurationError, redact_url_credentials
from netplug_core.settings.model import (
    DEFAULT_ETCD_AUTHORITY,
    DEFAULT_SQLITE_PATH,
    ETCD_DATASTORE,
    SQLITE_DATASTORE,
    DatastoreSettings,
    KubernetesAccess,
)

__all__ = [
    "KUBERNETES_NETCONF_KEYS",
    "datastore_settings_from_netconf",
    "etcd_endpoints_source",
    "refuse_endpoints_beside_srv",
    "resolve_etcd_endpoints",
]

KUBERNETES_NETCONF_KEYS = ("kubernetes", "netplug_api_group", "qps", "burst")
"""The keys of a network configuration that say how to reach the Kubernetes API."""


def datastore_settings_from_netconf(
    top: JSONObject, *, annotation_prefix: str, request_rates: tuple[int, int], is_strict: bool
) -> DatastoreSettings:
    """The datastore that a network configuration names.

    ``annotation_prefix`` and ``requests`` (``qps`` and ``burst``) are judged already.

    Raises:
        DecodeError: a key has the wrong JSON type.
        ConfigurationError: the path of a file is relative; or etcd's endpoints are given twice, in a configuration
            that has to be right (``is_strict``).
    """
    kind = top.optional_string("datastore_type") or ETCD_DATASTORE
    access, policy = top.optional_object("kubernetes"), top.optional_object("policy")
    listed, srv = top.optional_string("etcd_endpoints"), top.optional_string("etcd_discovery_srv")
    if listed and not (is_strict and kind == ETCD_DATASTORE):
        srv = ""
    scheme, authority = top.optional_string("etcd_scheme"), top.optional_string("etcd_authority")
    where = f"{top.path}.etcd_discovery_srv"
    qps, burst = request_rates
    return DatastoreSettings(
        type=kind,
        sqlite_path=_sqlite_path(top, kind),
        etcd_endpoints=resolve_etcd_endpoints(listed, srv, (scheme, authority), where),
        etcd_endpoints_source=etcd_endpoints_source(listed, {"etcd_scheme": scheme, "etcd_authority": authority}),
        etcd_discovery_srv=srv,
        etcd_key_file=top.optional_string("etcd_key_file"),
        etcd_cert_file=top.optional_string("etcd_cert_file"),
        etcd_ca_cert_file=top.optional_string("etcd_ca_cert_file"),
        kubernetes=_kubernetes_access(access or JSONObject(top.path, {}), policy or JSONObject(top.path, {})),
        api_group=top.optional_string("netplug_api_group"),
        annotation_prefix=annotation_prefix,
        qps=qps,
        burst=burst,
    )


def resolve_etcd_endpoints(
    endpoints_text: str, discovery_srv: str, scheme_and_authority: tuple[str, str], where: str
) -> tuple[str, ...]:
    """Where etcd answers: a list, else nothing if SRV records say it, else the deprecated pair, else the default.

    ``listed`` is the list with its commas, ``srv`` a domain that people wrote at ``where``, ``pair`` a scheme and a
    ``host:port``; all may be empty.

    Raises:
        ConfigurationError: there are both a list and a domain.
    """
    refuse_endpoints_beside_srv(endpoints_text, discovery_srv, where)
    if endpoints_text:
        return tuple(part for part in (piece.strip() for piece in endpoints_text.split(",")) if part)
    if discovery_srv:
        return ()
    scheme, authority = scheme_and_authority
    return (f"{scheme or 'http'}://{authority or DEFAULT_ETCD_AUTHORITY}",)


def etcd_endpoints_source(endpoints_text: str, deprecated_keys: Mapping[str, str]) -> str:
    """What people set to say where etcd answers: the list, or else as much of the deprecated pair as they gave."""
    given = [name for name, text in deprecated_keys.items() if text]
    return "etcd_endpoints" if endpoints_text or not given else " and ".join(given)


def refuse_endpoints_beside_srv(endpoints: str | tuple[str, ...], srv: str, where: str) -> None:
    """Refuse endpoints of etcd beside a domain whose SRV records say them (spec 2.1).

    Raises:
        ConfigurationError: neither is empty.
    """
    if endpoints and srv:
        # An endpoint may be written with a password, so it is the other one that is shown.
        accepted = 'multiple discovery or bootstrap options specified, use either "etcdEndpoints" or "etcdDiscoverySrv"'
        raise ConfigurationError(where, redact_url_credentials(srv), accepted)


def _sqlite_path(top: JSONObject, kind: str) -> str:
    path = top.optional_string("sqlite_path") or DEFAULT_SQLITE_PATH
    if kind == SQLITE_DATASTORE and not path.startswith("/"):
        # Runtimes start plugins in whatever folder they are in themselves. A teardown in a file of that folder would
        # find nothing, and leave every address held that is recorded in the one that was meant.
        raise ConfigurationError(
            f"{top.path}.sqlite_path", redact_url_credentials(path), "an absolute path is expected"
        )
    return path


def _kubernetes_access(access: JSONObject, policy: JSONObject) -> KubernetesAccess:
    """``kubernetes`` (spec 2.3), with the deprecated keys of ``policy`` where it says nothing."""
    deprecated_root = policy.optional_string("k8s_api_root").partition("/api/")[0]
    return KubernetesAccess(
        kubeconfig=access.optional_string("kubeconfig"),
        api_root=access.optional_string("k8s_api_root") or deprecated_root,
        node_name=access.optional_string("node_name"),
        token=policy.optional_string("k8s_auth_token"),
        certificate=policy.optional_string("k8s_client_certificate"),
        key=policy.optional_string("k8s_client_key"),
        certificate_authority=policy.optional_string("k8s_certificate_authority"),
    )
