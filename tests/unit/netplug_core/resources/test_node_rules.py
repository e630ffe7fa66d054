"""What may be said of a node."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, NodeBGP, NodeSpec, OrchestratorReference, validate_node

V4, V6 = Address.parse("192.0.2.7"), Address.parse("2001:db8::7")
NODE = Node(
    metadata=Metadata(name="a"),
    spec=NodeSpec(
        bgp=NodeBGP(
            ipv4_address=InterfaceAddress(V4, 24),
            ipv6_address=InterfaceAddress(V6, 64),
            ipip_tunnel_address=V4,
            route_reflector_cluster_id="224.0.0.1",
        ),
        orchestrator_references=(OrchestratorReference(node_name="a", orchestrator="k8s"),),
        vxlan_tunnel_address=V4,
        vxlan_tunnel_address_v6=V6,
        vxlan_tunnel_mac_v6="66:00:00:00:00:01",
    ),
)


def test_a_node_has_an_address_a_tunnel_address_and_a_mac_of_each_family() -> None:
    assert NODE.find_address(Family.IPV4) == InterfaceAddress(V4, 24)
    assert NODE.find_address(Family.IPV6) == InterfaceAddress(V6, 64)
    assert NODE.find_vxlan_address(Family.IPV4) == V4
    assert NODE.find_vxlan_address(Family.IPV6) == V6
    assert NODE.vxlan_mac(Family.IPV4) == ""
    assert NODE.vxlan_mac(Family.IPV6) == "66:00:00:00:00:01"
    assert Node(metadata=Metadata(name="b")).find_address(Family.IPV4) is None


@pytest.mark.parametrize(
    "spec,field",
    [
        (NODE.spec, ""),
        (NodeSpec(), ""),
        (NodeSpec(bgp=NodeBGP()), "spec.bgp"),
        (NodeSpec(bgp=NodeBGP(route_reflector_cluster_id="here")), "spec.bgp.routeReflectorClusterID"),
        (NodeSpec(bgp=NodeBGP(route_reflector_cluster_id="fd00::1")), "spec.bgp.routeReflectorClusterID"),
        (NodeSpec(bgp=NodeBGP(ipv4_address=InterfaceAddress(V6, 64))), "spec.bgp.ipv4Address"),
        (NodeSpec(bgp=NodeBGP(ipv6_address=InterfaceAddress(V4, 24))), "spec.bgp.ipv6Address"),
        (NodeSpec(bgp=NodeBGP(ipip_tunnel_address=V6)), "spec.bgp.ipv4IPIPTunnelAddr"),
        (NodeSpec(vxlan_tunnel_address=V6), "spec.ipv4VXLANTunnelAddr"),
        (NodeSpec(vxlan_tunnel_address_v6=V4), "spec.ipv6VXLANTunnelAddr"),
        (NodeSpec(orchestrator_references=(OrchestratorReference(orchestrator=""),)), "spec.orchRefs[0].orchestrator"),
    ],
)
def test_rules(spec: NodeSpec, field: str) -> None:
    found = [each.field for each in validate_node(evolve(NODE, spec=spec))]
    assert found == ([field] if field else [])
