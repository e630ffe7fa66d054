"""What a user may ask of a NodeConfiguration. ``validation`` calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from netplug_core.addressing import Address, Family
from netplug_core.names import is_resource_name
from netplug_core.resources.field_errors import FieldError, validate_regular_expression
from netplug_core.resources.nodeconfiguration import NodeConfiguration

__all__ = ["INTERFACE_PREFIXES_PATTERN", "validate_node_configuration"]

_INTERFACE_PREFIX: Final = "[A-Za-z0-9_-]{1,15}"
INTERFACE_PREFIXES_PATTERN: Final = f"{_INTERFACE_PREFIX}(,{_INTERFACE_PREFIX})*"


def validate_node_configuration(configuration: NodeConfiguration) -> Iterator[FieldError]:
    """What is wrong with the configuration of a node by itself."""
    spec = configuration.spec
    if spec.interface_prefix and not re.fullmatch(INTERFACE_PREFIXES_PATTERN, spec.interface_prefix):
        rule = "must be 1 to 15 letters, digits, '_' and '-', or several such prefixes with ',' between"
        yield FieldError("spec.interfacePrefix", spec.interface_prefix, rule)
    yield from validate_regular_expression("spec.mtuIfacePattern", spec.mtu_interface_pattern)
    for member, address, family in (
        ("natOutgoingAddress", spec.nat_outgoing_address, Family.IPV4),
        ("deviceRouteSourceAddress", spec.route_source, Family.IPV4),
        ("deviceRouteSourceAddressIPv6", spec.route_source_v6, Family.IPV6),
    ):
        if address is not None and address.family is not family:
            yield FieldError(f"spec.{member}", address, f"must be an address of {family}")
    for member, host in (("healthHost", spec.health_host), ("prometheusMetricsHost", spec.metrics_host)):
        if host and not _is_host(host):
            yield FieldError(f"spec.{member}", host, "must be an IP address, or the name of a host")


def _is_host(text: str) -> bool:
    try:
        Address.parse(text)
    except ValueError:
        return is_resource_name(text)
    return True
