"""The kind BGPConfiguration: how nodes exchange routes by BGP, in the cluster and on single nodes.

The object ``default`` is for every node; ``node.`` and the name of a node is for that one. No program of this release
reads them.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.records import Kind
from netplug_core.resources.log_severity import LogSeverity
from netplug_core.resources.metadata import Metadata

__all__ = [
    "BGP_CONFIGURATION", "AdvertisedPrefix", "BGPConfiguration", "BGPConfigurationSpec", "BGPPassword", "BindMode",
    "Community", "SecretKeyReference", "ServiceRange",
]  # fmt: skip


class BindMode(enum.Enum):
    """Which addresses the BGP process of a node listens on: all of them, or that of the node."""

    ALL = "None"
    NODE_IP = "NodeIP"


@frozen(kw_only=True)
class SecretKeyReference:
    """A member of a Secret, in the namespace of the node process."""

    name: str
    key: str
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPPassword:
    """Where the password of a session is kept. Resources never hold it."""

    secret: SecretKeyReference
    unknown_json: str = ""


@frozen(kw_only=True)
class ServiceRange:
    """A range of Services' addresses that is advertised."""

    prefix: Prefix
    unknown_json: str = ""


@frozen(kw_only=True)
class Community:
    """A BGP community by a name of the cluster's own."""

    name: str
    value: str
    unknown_json: str = ""


@frozen(kw_only=True)
class AdvertisedPrefix:
    """The communities, by name or value, with which routes within a prefix are advertised."""

    prefix: Prefix
    communities: tuple[str, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPConfigurationSpec:
    """The settings; what is not given has the default of the program that reads it.

    Sessions between all nodes (the mesh), the number of the AS, and the addresses of Services are the whole cluster's,
    so they are settings of ``default`` alone.
    """

    log_severity: LogSeverity | None = None
    has_node_mesh: bool | None = None
    as_number: int | None = None
    listen_port: int | None = None
    bind_mode: BindMode | None = None
    mesh_password: BGPPassword | None = None
    mesh_max_restart_time: str = ""
    service_cluster_ips: tuple[ServiceRange, ...] = ()
    service_external_ips: tuple[ServiceRange, ...] = ()
    service_load_balancer_ips: tuple[ServiceRange, ...] = ()
    communities: tuple[Community, ...] = ()
    advertised: tuple[AdvertisedPrefix, ...] = ()
    ignored_interfaces: tuple[str, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPConfiguration:
    """A configuration as it is stored."""

    metadata: Metadata
    spec: BGPConfigurationSpec = BGPConfigurationSpec()
    unknown_json: str = ""


BGP_CONFIGURATION: Kind[BGPConfiguration] = Kind("BGPConfiguration", ("name",))
