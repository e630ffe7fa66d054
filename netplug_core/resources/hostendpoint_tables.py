"""The members of a HostEndpoint; ``codec`` reads and writes them by these tables.

The definitions of the kind are made from the same tables, with the texts of ``HOST_ENDPOINT_TEXTS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from netplug_core.decoding.codecs import TEXT, enum_codec
from netplug_core.decoding.tables import Field, ListOf, Table, fields_of
from netplug_core.resources.field_codecs import IP_ADDRESS, PORT
from netplug_core.resources.hostendpoint import HostEndpointSpec, NamedPort, PortProtocol

__all__ = ["HOST_ENDPOINT_TABLES", "HOST_ENDPOINT_TEXTS"]

HOST_ENDPOINT_TEXTS: Final[Mapping[str, str]] = {
    "node": "the node whose interfaces it stands for",
    "interfaceName": "the name of one interface, or * for all interfaces of the node",
    "expectedIPs": "addresses of the interface; without a name, those by which it is found",
    "profiles": "the profiles that decide what no policy decides",
    "ports": "ports that rules match by name, at the expected addresses",
    "ports[].name": "the name",
    "ports[].protocol": "the protocol",
    "ports[].port": "the number",
}
"""What each field of ``spec`` is for, by its path; ``[]`` stands behind a list."""

HOST_ENDPOINT_TABLES: Final[tuple[Table[object], ...]] = (
    Table(
        cls=HostEndpointSpec,
        fields={
            **fields_of(TEXT, node="node", interface_name="interfaceName"),
            "expected_ips": Field("expectedIPs", ListOf(IP_ADDRESS)),
            "profiles": Field("profiles", ListOf(TEXT)),
            "ports": Field("ports", ListOf(NamedPort)),
        },
    ),
    Table(
        cls=NamedPort,
        fields={
            "name": Field("name", TEXT),
            "protocol": Field("protocol", enum_codec(PortProtocol)),
            "port": Field("port", PORT),
        },
    ),
)
