"""Settings to a store: every refusal comes from here, before the first call."""

from __future__ import annotations

from netplug_backends.etcdv3.client import EtcdClient
from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.discovery import Discovered
from netplug_backends.etcdv3.endpoints import Directory, Listed, parse_endpoints
from netplug_backends.etcdv3.tls import Credentials
from netplug_core.clock import Clock
from netplug_core.netconf.datastores import refuse_endpoints_beside_srv
from netplug_core.netconf.model import DatastoreSettings

__all__ = ["open_client", "open_etcd"]


def open_etcd(settings: DatastoreSettings, *, clock: Clock) -> EtcdDatastore:
    """The store that the settings name; errors as for ``open_client``."""
    return EtcdDatastore(open_client(settings, clock=clock))


def open_client(settings: DatastoreSettings, *, clock: Clock) -> EtcdClient:
    """The cluster that the settings name; nobody is asked anything now.

    Raises:
        ConfigurationError: an endpoint, a domain, a key or a certificate is missing, unusable, or given twice.
    """
    credentials = Credentials(settings)
    return EtcdClient(_directory(settings), credentials, clock=clock)


def _directory(settings: DatastoreSettings) -> Directory:
    refuse_endpoints_beside_srv(settings.etcd_endpoints, settings.etcd_discovery_srv, "etcd_discovery_srv")
    if settings.etcd_discovery_srv:
        return Discovered(settings.etcd_discovery_srv)
    return Listed(parse_endpoints(settings.etcd_endpoints, settings.etcd_endpoints_key))
