"""The kind HostEndpoint: its value, its members, and what a user may ask of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final

from attrs import field, frozen

from netplug_core.addressing import Address
from netplug_core.decoding.codecs import TEXT, limited
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.names import is_resource_name
from netplug_core.records import Kind
from netplug_core.resources.fields import (
    ENVELOPE,
    IP_ADDRESS,
    NAME_LIMITS,
    PORT,
    WORD_PATTERN,
    FieldError,
    Metadata,
    validate_word,
)

__all__ = ["HOST_ENDPOINT", "HostEndpoint", "HostEndpointSpec", "NamedPort", "PortProtocol", "validate_host_endpoint"]


# --- the value and its members ----------------------------------------------------------------------------------------


class PortProtocol(enum.Enum):
    """A protocol that has ports."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


_INTERFACE_PATTERN: Final = r"\*|[A-Za-z0-9_.-]{1,15}"
"""The interfaces of a node: all of them, or one by its name. Source: the kernel's IFNAMSIZ of 16, with a last NUL."""


@frozen(kw_only=True)
class NamedPort:
    """A port by the name that rules use."""

    name: str = field(metadata=member("name", TEXT, "the name", limits={"pattern": f"^{WORD_PATTERN}$"}))
    protocol: PortProtocol = field(metadata=member("protocol", PortProtocol, "the protocol"))
    port: int = field(metadata=member("port", PORT, "the number"))
    unknown_json: str = ""


@frozen(kw_only=True)
class HostEndpointSpec:
    """The interfaces: those of ``node`` with a name (``*`` for every one), or those that have ``expected_ips``.

    ``profiles`` decide what no policy decides. Rules match ``ports`` by name, at the expected addresses.
    """

    # fmt: off
    node: str = field(default="", metadata=member("node", TEXT, "the node whose interfaces it stands for",
        limits=NAME_LIMITS))
    interface_name: str = field(default="", metadata=member("interfaceName", TEXT,
        "the name of one interface, or * for all interfaces of the node",
        limits={"pattern": f"^({_INTERFACE_PATTERN})?$"}))
    expected_ips: tuple[Address, ...] = field(default=(), metadata=member("expectedIPs", ListOf(IP_ADDRESS),
        "addresses of the interface; without a name, those by which it is found"))
    profiles: tuple[str, ...] = field(default=(), metadata=member("profiles", ListOf(limited(TEXT, **NAME_LIMITS)),
        "the profiles that decide what no policy decides"))
    ports: tuple[NamedPort, ...] = field(default=(), metadata=member("ports", ListOf(NamedPort),
        "ports that rules match by name, at the expected addresses"))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class HostEndpoint:
    """A host endpoint as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: HostEndpointSpec = field(default=HostEndpointSpec(), metadata=member("spec", HostEndpointSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


HOST_ENDPOINT: Kind[HostEndpoint] = Kind("HostEndpoint", ("name",))


# --- rules ------------------------------------------------------------------------------------------------------------


def validate_host_endpoint(endpoint: HostEndpoint) -> Iterator[FieldError]:
    """What is wrong with a host endpoint by itself."""
    spec = endpoint.spec
    if not is_resource_name(spec.node):
        yield FieldError("spec.node", spec.node, "must be the name of a node")
    if not spec.interface_name and not spec.expected_ips:
        rule = "must be given, or expectedIPs: the name of an interface, or * for all interfaces of the node"
        yield FieldError("spec.interfaceName", "", rule)
    if spec.interface_name and not re.fullmatch(_INTERFACE_PATTERN, spec.interface_name):
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
