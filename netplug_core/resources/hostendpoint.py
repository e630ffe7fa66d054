"""The kind HostEndpoint: an interface of a machine, or all its interfaces, as a resource that policy can select.

No program of this release reads it.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.records import Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["HOST_ENDPOINT", "HostEndpoint", "HostEndpointSpec", "NamedPort", "PortProtocol"]


class PortProtocol(enum.Enum):
    """A protocol that has ports."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


@frozen(kw_only=True)
class NamedPort:
    """A port by the name that rules use."""

    name: str
    protocol: PortProtocol
    port: int
    unknown_json: str = ""


@frozen(kw_only=True)
class HostEndpointSpec:
    """The interfaces: those of ``node`` with a name (``*`` for every one), or those that have ``expected_ips``.

    ``profiles`` decide what no policy decides. Rules match ``ports`` by name, at the expected addresses.
    """

    node: str = ""
    interface_name: str = ""
    expected_ips: tuple[Address, ...] = ()
    profiles: tuple[str, ...] = ()
    ports: tuple[NamedPort, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class HostEndpoint:
    """A host endpoint as it is stored."""

    metadata: Metadata
    spec: HostEndpointSpec = HostEndpointSpec()
    unknown_json: str = ""


HOST_ENDPOINT: Kind[HostEndpoint] = Kind("HostEndpoint", ("name",))
