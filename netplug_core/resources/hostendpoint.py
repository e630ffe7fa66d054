"""The kind HostEndpoint: its value, its members, and what a user may ask of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.decoding.codecs import TEXT, enum_codec
from netplug_core.decoding.tables import Field, ListOf, Table, fields_of
from netplug_core.names import is_resource_name
from netplug_core.records import Kind
from netplug_core.resources.fields import IP_ADDRESS, PORT, FieldError, validate_word
from netplug_core.resources.metadata import Metadata

__all__ = [
    "HOST_ENDPOINT", "HOST_ENDPOINT_TABLES", "HOST_ENDPOINT_TEXTS", "INTERFACE_PATTERN", "HostEndpoint",
    "HostEndpointSpec", "NamedPort", "PortProtocol", "validate_host_endpoint",
]  # fmt: skip


# --- the value --------------------------------------------------------------------------------------------------------


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


# --- members ----------------------------------------------------------------------------------------------------------


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


# --- rules ------------------------------------------------------------------------------------------------------------


INTERFACE_PATTERN: Final = r"\*|[A-Za-z0-9_.-]{1,15}"
"""The interfaces of a node: all of them, or one by its name. Source: the kernel's IFNAMSIZ of 16, with a last NUL."""


def validate_host_endpoint(endpoint: HostEndpoint) -> Iterator[FieldError]:
    """What is wrong with a host endpoint by itself."""
    spec = endpoint.spec
    if not is_resource_name(spec.node):
        yield FieldError("spec.node", spec.node, "must be the name of a node")
    if not spec.interface_name and not spec.expected_ips:
        rule = "must be given, or expectedIPs: the name of an interface, or * for all interfaces of the node"
        yield FieldError("spec.interfaceName", "", rule)
    if spec.interface_name and not re.fullmatch(INTERFACE_PATTERN, spec.interface_name):
        rule = "must be *, or at most 15 letters, digits, '_', '.' and '-'"
        yield FieldError("spec.interfaceName", spec.interface_name, rule)
    for index, name in enumerate(spec.profiles):
        if not is_resource_name(name):
            yield FieldError(f"spec.profiles[{index}]", name, "must be the name of a profile")
    yield from _validate_ports(endpoint)


def _validate_ports(endpoint: HostEndpoint) -> Iterator[FieldError]:
    ports = endpoint.spec.ports
    for index, port in enumerate(ports):
        yield from validate_word(f"spec.ports[{index}].name", port.name)
    if ports and not endpoint.spec.expected_ips:
        rule = "expectedIPs must be given too: a rule matches a named port at these addresses"
        yield FieldError("spec.ports", ", ".join(port.name for port in ports), rule)
