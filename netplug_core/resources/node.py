"""The kind Node: a machine by the name it registered, its addresses, and those of its tunnels."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.decoding.codecs import BOOLEAN, TEXT
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.records import Key, Kind
from netplug_core.resources.fields import (
    AS_NUMBER,
    CIDR,
    ENVELOPE,
    INTERFACE_ADDRESS,
    IP_ADDRESS,
    MAC_ADDRESS,
    FieldError,
    Metadata,
)

__all__ = [
    "NODE", "Node", "NodeBGP", "NodeInterface", "NodeSpec", "NodeStatus", "OrchestratorReference", "node_key",
    "validate_node",
]  # fmt: skip


# --- the value --------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class OrchestratorReference:
    """What one orchestrator (``k8s``) calls the machine."""

    node_name: str = field(
        default="", metadata=member("nodeName", TEXT, "name of the node there", is_always_written=True)
    )
    orchestrator: str = field(metadata=member("orchestrator", TEXT, "orchestrator that runs it; k8s for Kubernetes"))
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeBGP:
    """The addresses of a node, which routes to its pods lead to, and how it takes part in BGP.

    The length of an address is that of the prefix of its interface: what lies within is reached without a router.
    """

    ipv4_address: InterfaceAddress | None = field(
        default=None,
        metadata=member(
            "ipv4Address",
            INTERFACE_ADDRESS,
            "address of the node, with the prefix length of its subnet, that other nodes send to",
        ),
    )
    ipv6_address: InterfaceAddress | None = field(
        default=None, metadata=member("ipv6Address", INTERFACE_ADDRESS, "the same of IPv6")
    )
    as_number: int | None = field(
        default=None,
        metadata=member("asNumber", AS_NUMBER, "AS number of the node; that of the BGPConfiguration unless given"),
    )
    ipip_tunnel_address: Address | None = field(
        default=None,
        metadata=member("ipv4IPIPTunnelAddr", IP_ADDRESS, "address of its IPIP tunnel; the node process assigns it"),
    )
    route_reflector_cluster_id: str = field(
        default="",
        metadata=member(
            "routeReflectorClusterID",
            TEXT,
            "the node reflects routes of other nodes, as a member of this cluster of reflectors",
        ),
    )
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeInterface:
    """An interface of the node, with its addresses."""

    name: str = field(metadata=member("name", TEXT, "name of the interface"))
    addresses: tuple[Address, ...] = field(
        default=(), metadata=member("addresses", ListOf(IP_ADDRESS), "addresses of the interface")
    )
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeSpec:
    """What is known of a node. Tunnel addresses are those of its VXLAN devices; an empty MAC follows from its name."""

    bgp: NodeBGP | None = field(
        default=None, metadata=member("bgp", NodeBGP, "how other nodes reach it, and how it speaks BGP")
    )
    orchestrator_references: tuple[OrchestratorReference, ...] = field(
        default=(), metadata=member("orchRefs", ListOf(OrchestratorReference), "what orchestrators call the node")
    )
    vxlan_tunnel_address: Address | None = field(
        default=None,
        metadata=member("ipv4VXLANTunnelAddr", IP_ADDRESS, "address of its VXLAN tunnel; the node process assigns it"),
    )
    vxlan_tunnel_mac: str = field(
        default="", metadata=member("vxlanTunnelMACAddr", MAC_ADDRESS, "hardware address of its VXLAN tunnel")
    )
    vxlan_tunnel_address_v6: Address | None = field(
        default=None,
        metadata=member(
            "ipv6VXLANTunnelAddr", IP_ADDRESS, "address of its VXLAN tunnel of IPv6; the node process assigns it"
        ),
    )
    vxlan_tunnel_mac_v6: str = field(
        default="", metadata=member("vxlanTunnelMACAddrV6", MAC_ADDRESS, "hardware address of its VXLAN tunnel of IPv6")
    )
    interfaces: tuple[NodeInterface, ...] = field(
        default=(),
        metadata=member(
            "interfaces",
            ListOf(NodeInterface),
            "interfaces of the node with their addresses; the node process writes them",
        ),
    )
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeStatus:
    """What programs say of a node: the orchestrator of its pods' ranges, addresses and readiness, the node process.

    ``is_ready`` None: the orchestrator says nothing of that. ``release`` is that of the node process, empty if it has
    recorded none.
    """

    is_ready: bool | None = field(
        default=None, metadata=member("ready", BOOLEAN, "false where the orchestrator says that the node is not ready")
    )
    pod_cidrs: tuple[Prefix, ...] = field(
        default=(),
        metadata=member("podCIDRs", ListOf(CIDR), "prefixes that the orchestrator has given the node for its pods"),
    )
    internal_addresses: tuple[Address, ...] = field(
        default=(),
        metadata=member(
            "internalAddresses", ListOf(IP_ADDRESS), "addresses of the node by which the orchestrator knows it"
        ),
    )
    release: str = field(
        default="", metadata=member("netplugVersion", TEXT, "release of netplug whose node process runs there")
    )
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class Node:
    """A node as it is stored; pools select it by ``metadata.labels``."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NodeSpec = field(
        default=NodeSpec(), metadata=member("spec", NodeSpec, "what is registered of the node", is_always_written=True)
    )
    status: NodeStatus = field(
        default=NodeStatus(),
        metadata=member(
            "status", NodeStatus, "what the orchestrator and the node process have written", is_users=False
        ),
    )
    unknown_json: str = ""

    def find_address(self, family: Family) -> InterfaceAddress | None:
        """The address of the node in a family; None if it has none."""
        bgp = self.spec.bgp
        if bgp is None:
            return None
        return bgp.ipv4_address if family is Family.IPV4 else bgp.ipv6_address

    def find_vxlan_address(self, family: Family) -> Address | None:
        """The address of its VXLAN device of a family; None if it has none."""
        return self.spec.vxlan_tunnel_address if family is Family.IPV4 else self.spec.vxlan_tunnel_address_v6

    def vxlan_mac(self, family: Family) -> str:
        """The configured MAC of its VXLAN device of a family; empty if it follows from the name of the node."""
        return self.spec.vxlan_tunnel_mac if family is Family.IPV4 else self.spec.vxlan_tunnel_mac_v6


NODE: Kind[Node] = Kind("Node", ("name",))


def node_key(name: str) -> Key[Node]:
    """The key of the node with that name."""
    return NODE.key(name)


# --- rules ------------------------------------------------------------------------------------------------------------


def validate_node(node: Node) -> Iterator[FieldError]:
    """What is wrong with a node by itself."""
    spec, bgp = node.spec, node.spec.bgp
    for index, reference in enumerate(spec.orchestrator_references):
        if not reference.orchestrator:
            yield FieldError(f"spec.orchRefs[{index}].orchestrator", "", "must name an orchestrator, such as k8s")
    if bgp is not None:
        if bgp == NodeBGP():
            yield FieldError("spec.bgp", "{}", "must not be empty; leave it out")
        if bgp.route_reflector_cluster_id and not _is_ipv4(bgp.route_reflector_cluster_id):
            rule = "must be four numbers with dots between, such as 224.0.0.1"
            yield FieldError("spec.bgp.routeReflectorClusterID", bgp.route_reflector_cluster_id, rule)
    for name, address, family in (
        ("bgp.ipv4Address", None if bgp is None or bgp.ipv4_address is None else bgp.ipv4_address.address, Family.IPV4),
        ("bgp.ipv6Address", None if bgp is None or bgp.ipv6_address is None else bgp.ipv6_address.address, Family.IPV6),
        ("bgp.ipv4IPIPTunnelAddr", None if bgp is None else bgp.ipip_tunnel_address, Family.IPV4),
        ("ipv4VXLANTunnelAddr", spec.vxlan_tunnel_address, Family.IPV4),
        ("ipv6VXLANTunnelAddr", spec.vxlan_tunnel_address_v6, Family.IPV6),
    ):
        if address is not None and address.family is not family:
            yield FieldError(f"spec.{name}", address, f"must be an address of {family}")


def _is_ipv4(text: str) -> bool:
    try:
        return Address.parse(text).family is Family.IPV4
    except ValueError:
        return False
