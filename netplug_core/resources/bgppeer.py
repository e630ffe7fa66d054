"""The kind BGPPeer: with whom some nodes exchange routes by BGP, beside the mesh of the nodes.

No program of this release reads it.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.records import Kind
from netplug_core.resources.bgpconfiguration import BGPPassword
from netplug_core.resources.metadata import Metadata

__all__ = ["BGP_PEER", "BGPPeer", "BGPPeerSpec", "NextHopMode", "SourceAddress"]


class NextHopMode(enum.Enum):
    """The next hop of routes that are passed on: as usual in BGP, the node itself, or as they came."""

    AUTO = "Auto"
    SELF = "Self"
    KEEP = "Keep"


class SourceAddress(enum.Enum):
    """The address from which the session is opened: the node's BGP address, or what the kernel chooses."""

    NODE_IP = "UseNodeIP"
    ANY = "None"


@frozen(kw_only=True)
class BGPPeerSpec:
    """The nodes (one, those of a selector, or all) and their peer (an address, or the nodes of a selector).

    ``peer_ip`` may have a port, as ``192.0.2.1:179`` or ``[2001:db8::1]:179``; ``as_number`` belongs to it.
    ``reachable_by`` is the gateway to it. ``ttl_security`` is the distance to the peer, in hops.
    """

    node: str = ""
    node_selector: str = ""
    peer_ip: str = ""
    peer_selector: str = ""
    as_number: int | None = None
    password: BGPPassword | None = None
    source_address: SourceAddress | None = None
    next_hop_mode: NextHopMode | None = None
    reachable_by: Address | None = None
    max_restart_time: str = ""
    allowed_local_as_numbers: int | None = None
    ttl_security: int | None = None
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPPeer:
    """A peer as it is stored."""

    metadata: Metadata
    spec: BGPPeerSpec = BGPPeerSpec()
    unknown_json: str = ""


BGP_PEER: Kind[BGPPeer] = Kind("BGPPeer", ("name",))
