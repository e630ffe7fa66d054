"""Opens a datastore from settings, and refuses unusable settings before the first call."""

from __future__ import annotations

from netplug_backends.etcdv3.client import EtcdClient, MemberSource, StaticMembers
from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.tls import Credentials
from netplug_core.clock import Clock
from netplug_core.settings.endpoints import parse_endpoints
from netplug_core.settings.model import DatastoreSettings, refuse_endpoints_beside_srv

__all__ = ["client_from_settings", "datastore_from_settings"]


def datastore_from_settings(settings: DatastoreSettings, *, clock: Clock) -> EtcdDatastore:
    """The datastore that the settings name; errors as for ``client_from_settings``."""
    return EtcdDatastore(client_from_settings(settings, clock=clock))


def client_from_settings(settings: DatastoreSettings, *, clock: Clock) -> EtcdClient:
    """The client of the cluster that the settings name; nothing is sent yet.

    Raises:
        ConfigurationError: an endpoint, a domain, a key or a certificate is missing, unusable, or given twice.
    """
    credentials = Credentials(settings)
    return EtcdClient(_member_source(settings), credentials, clock=clock)


def _member_source(settings: DatastoreSettings) -> MemberSource:
    refuse_endpoints_beside_srv(settings.etcd_endpoints, settings.etcd_discovery_srv, "etcd_discovery_srv")
    if settings.etcd_discovery_srv:
        from netplug_backends.etcdv3.discovery import SrvMembers  # loads dnspython, which few clusters need

        return SrvMembers(settings.etcd_discovery_srv)
    return StaticMembers(parse_endpoints(settings.etcd_endpoints, settings.etcd_endpoints_source))
