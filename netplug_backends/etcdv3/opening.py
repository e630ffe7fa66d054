"""Settings to a store: every refusal comes from here, before the first call."""

from __future__ import annotations

from netplug_backends.etcdv3.client import EtcdClient
from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.discovery import discover
from netplug_backends.etcdv3.endpoints import Endpoint, parse_endpoints
from netplug_backends.etcdv3.tls import Credentials
from netplug_core.clock import Clock
from netplug_core.errors import ConfigurationError
from netplug_core.netconf.model import DatastoreSettings

__all__ = ["open_client", "open_etcd"]


def open_etcd(settings: DatastoreSettings, *, clock: Clock) -> EtcdDatastore:
    """The store that the settings name; errors as for ``open_client``."""
    return EtcdDatastore(open_client(settings, clock=clock))


def open_client(settings: DatastoreSettings, *, clock: Clock) -> EtcdClient:
    """The cluster that the settings name; only SRV records are asked for now.

    Raises:
        ConfigurationError: an endpoint, a key or a certificate is missing, unusable, or given twice.
        Unavailable: the domain has no SRV records of etcd.
    """
    credentials = Credentials(settings)
    return EtcdClient(_endpoints(settings), credentials, clock=clock)


def _endpoints(settings: DatastoreSettings) -> tuple[Endpoint, ...]:
    if settings.etcd_endpoints and settings.etcd_discovery_srv:
        raise ConfigurationError(
            "etcd_endpoints",
            settings.etcd_discovery_srv,
            'multiple discovery or bootstrap options specified, use either "etcdEndpoints" or "etcdDiscoverySrv"',
        )
    if settings.etcd_discovery_srv:
        return discover(settings.etcd_discovery_srv)
    return parse_endpoints(settings.etcd_endpoints)
