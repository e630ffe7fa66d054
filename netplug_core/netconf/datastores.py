"""Which datastore a network configuration names; what ``netplugctl`` and the daemons are told is ``tool``'s."""

from __future__ import annotations

from collections.abc import Mapping

from netplug_core.errors import ConfigurationError
from netplug_core.members import Members
from netplug_core.netconf.model import (
    DEFAULT_AUTHORITY,
    DEFAULT_SQLITE_PATH,
    ETCD_STORE,
    FILE_STORE,
    DatastoreSettings,
    KubernetesAccess,
    without_password,
)

__all__ = ["datastore_settings", "etcd_endpoints", "etcd_endpoints_key", "refuse_endpoints_beside_srv"]


def datastore_settings(
    top: Members, *, annotation_prefix: str, requests: tuple[int, int], is_strict: bool
) -> DatastoreSettings:
    """The datastore that a network configuration names.

    ``annotation_prefix`` and ``requests`` (``qps`` and ``burst``) are judged already.

    Raises:
        DecodeError: a key has the wrong JSON type.
        ConfigurationError: the path of a file is relative; or etcd's endpoints are given twice, in a configuration
            that has to be right (``is_strict``).
    """
    kind = top.text("datastore_type") or ETCD_STORE
    access, policy = top.child("kubernetes"), top.child("policy")
    listed, srv = top.text("etcd_endpoints"), top.text("etcd_discovery_srv")
    if listed and not (is_strict and kind == ETCD_STORE):
        srv = ""
    scheme, authority = top.text("etcd_scheme"), top.text("etcd_authority")
    where = f"{top.where}.etcd_discovery_srv"
    qps, burst = requests
    return DatastoreSettings(
        type=kind,
        sqlite_path=_sqlite_path(top, kind),
        etcd_endpoints=etcd_endpoints(listed, srv, (scheme, authority), where),
        etcd_endpoints_key=etcd_endpoints_key(listed, {"etcd_scheme": scheme, "etcd_authority": authority}),
        etcd_discovery_srv=srv,
        etcd_key_file=top.text("etcd_key_file"),
        etcd_cert_file=top.text("etcd_cert_file"),
        etcd_ca_cert_file=top.text("etcd_ca_cert_file"),
        kubernetes=_access(access or Members(top.where, {}), policy or Members(top.where, {})),
        api_group=top.text("netplug_api_group"),
        annotation_prefix=annotation_prefix,
        qps=qps,
        burst=burst,
    )


def etcd_endpoints(listed: str, srv: str, pair: tuple[str, str], where: str) -> tuple[str, ...]:
    """Where etcd answers: a list, else nothing if SRV records say it, else the deprecated pair, else the default.

    ``listed`` is the list with its commas, ``srv`` a domain that people wrote at ``where``, ``pair`` a scheme and a
    ``host:port``; all may be empty.

    Raises:
        ConfigurationError: there are both a list and a domain.
    """
    refuse_endpoints_beside_srv(listed, srv, where)
    if listed:
        return tuple(part for part in (piece.strip() for piece in listed.split(",")) if part)
    if srv:
        return ()
    scheme, authority = pair
    return (f"{scheme or 'http'}://{authority or DEFAULT_AUTHORITY}",)


def etcd_endpoints_key(listed: str, pair: Mapping[str, str]) -> str:
    """What people set to say where etcd answers: the list, or else as much of the deprecated pair as they gave."""
    given = [name for name, text in pair.items() if text]
    return "etcd_endpoints" if listed or not given else " and ".join(given)


def refuse_endpoints_beside_srv(endpoints: str | tuple[str, ...], srv: str, where: str) -> None:
    """Refuse endpoints of etcd beside a domain whose SRV records say them (spec 2.1).

    Raises:
        ConfigurationError: neither is empty.
    """
    if endpoints and srv:
        # An endpoint may be written with a password, so it is the other one that is shown.
        accepted = 'multiple discovery or bootstrap options specified, use either "etcdEndpoints" or "etcdDiscoverySrv"'
        raise ConfigurationError(where, without_password(srv), accepted)


def _sqlite_path(top: Members, kind: str) -> str:
    path = top.text("sqlite_path") or DEFAULT_SQLITE_PATH
    if kind == FILE_STORE and not path.startswith("/"):
        # Runtimes start plugins in whatever folder they are in themselves. A teardown in a file of that folder would
        # find nothing, and leave every address held that is recorded in the one that was meant.
        raise ConfigurationError(f"{top.where}.sqlite_path", without_password(path), "an absolute path is expected")
    return path


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
