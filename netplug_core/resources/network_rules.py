"""What a user may ask of the kinds that describe the network of nodes: the rules of each. ``validation`` calls it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from netplug_core.resources.bgp import BGPConfiguration, BGPPeer, validate_bgp_configuration, validate_bgp_peer
from netplug_core.resources.fields import FieldError
from netplug_core.resources.hostendpoint import HostEndpoint, validate_host_endpoint
from netplug_core.resources.kinds import NetworkResource
from netplug_core.resources.nodeconfiguration import NodeConfiguration, validate_node_configuration

__all__ = ["validate_network_resource"]


def validate_network_resource(resource: NetworkResource) -> Iterator[FieldError]:
    """What is wrong with a resource by itself."""
    match resource:
        case HostEndpoint():
            return validate_host_endpoint(resource)
        case BGPConfiguration():
            return validate_bgp_configuration(resource)
        case BGPPeer():
            return validate_bgp_peer(resource)
        case NodeConfiguration():
            return validate_node_configuration(resource)
        case _:
            assert_never(resource)
