"""Which datastore a network configuration names; what ``netplugctl`` and the daemons are told is ``tool``'s."""

from __future__ import annotations

from netplug_core.errors import ConfigurationError
from netplug_core.members import Members
from netplug_core.netconf.model import (
    DEFAULT_ANNOTATION_PREFIX,
    DEFAULT_AUTHORITY,
    DEFAULT_SQLITE_PATH,
    DatastoreSettings,
    KubernetesAccess,
)

__all__ = ["datastore_settings"]


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
        annotation_prefix=top.text("annotation_prefix") or DEFAULT_ANNOTATION_PREFIX,
        qps=top.integer("qps") or 0,
        burst=top.integer("burst") or 0,
    )


def _endpoints(top: Members, *, is_strict: bool) -> tuple[str, ...]:
    """Where etcd answers: the list, else nothing if SRV records say it, else the deprecated pair, else the default."""
    text, srv = top.text("etcd_endpoints"), top.text("etcd_discovery_srv")
    if text and srv and is_strict:
        # An endpoint may be written with a password, so it is the other one that is shown.
        raise ConfigurationError(
            f"{top.where}.etcd_discovery_srv", srv, "it excludes etcd_endpoints; give one of the two"
        )
    if text:
        return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
    if srv:
        return ()
    return (f"{top.text('etcd_scheme') or 'http'}://{top.text('etcd_authority') or DEFAULT_AUTHORITY}",)


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
