"""What a user may ask of a HostEndpoint. ``validation`` calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from netplug_core.names import is_resource_name
from netplug_core.resources.field_errors import FieldError, validate_word
from netplug_core.resources.hostendpoint import HostEndpoint

__all__ = ["INTERFACE_PATTERN", "validate_host_endpoint"]

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
