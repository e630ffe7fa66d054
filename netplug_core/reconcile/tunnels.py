"""The tunnels of a node: which addresses its devices need and from which pools, and which MTUs follow from them.

Packets that a node itself sends to pods of others have the address of the tunnel as their source, so that the answers
find their way back. The address is one of a pool, assigned as those of pods are, under a handle of its own.

``netplug_core.flows.node`` assigns and releases by these rules.

Packets in a tunnel are wrapped in a further header, so that what pods send has to be smaller than what the host can.
The registration writes the MTU of pods to a file, and routes give that of a tunnel to its device.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.routing import HostInterface
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.pools import is_enabled
from netplug_core.ipam.model import Pairs
from netplug_core.reconcile.controller import Problem
from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool
from netplug_core.resources.node import Node, NodeBGP
from netplug_core.resources.nodeconfiguration import NodeConfiguration, NodeConfigurationSpec, effective_settings
from netplug_core.selectors import SelectorError, matches, parse

__all__ = [
    "FALLBACK_MTU", "NO_MTUS", "EncapsulationMTUs", "MTUInputs", "MTUSettings", "PodMTU", "TunnelAddress",
    "TunnelChange", "find_mtus", "find_pod_mtu", "find_tunnel_pools", "plan_tunnel_address", "settle_pod_mtu",
    "with_tunnel_address",
]  # fmt: skip


class TunnelAddress(enum.Enum):
    """A sort of tunnel address, of which a node has at most one.

    The value has the family, what the handle begins with, and the type that is stored with the address.
    """

    VXLAN = (Family.IPV4, "vxlan-tunnel-addr", "vxlanTunnelAddress")
    VXLAN_V6 = (Family.IPV6, "vxlan-v6-tunnel-addr", "vxlanV6TunnelAddress")
    IPIP = (Family.IPV4, "ipip-tunnel-addr", "ipipTunnelAddress")

    @property
    def family(self) -> Family:
        """The family of the address."""
        return self.value[0]

    def handle(self, node: str) -> str:
        """The handle that holds the address of a node."""
        return f"{self.value[1]}-{node}"

    def owner(self, node: str) -> Pairs:
        """What is stored with the address."""
        return (("node", node), ("type", self.value[2]))

    def find(self, node: Node) -> Address | None:
        """The address that a Node names; None if it names none."""
        match self:
            case TunnelAddress.VXLAN:
                return node.spec.vxlan_tunnel_address
            case TunnelAddress.VXLAN_V6:
                return node.spec.vxlan_tunnel_address_v6
            case TunnelAddress.IPIP:
                return None if node.spec.bgp is None else node.spec.bgp.ipip_tunnel_address
            case _:
                assert_never(self)

    def is_needed_by(self, pool: IPPool) -> bool:
        """Whether packets to a pool are wrapped so."""
        spec = pool.spec
        mode = spec.ipip_mode if self is TunnelAddress.IPIP else spec.vxlan_mode
        return spec.prefix.family is self.family and mode is not Encapsulation.NEVER


def with_tunnel_address(node: Node, sort: TunnelAddress, address: Address | None) -> Node:
    """The Node with another address; None: without one."""
    match sort:
        case TunnelAddress.VXLAN:
            return evolve(node, spec=evolve(node.spec, vxlan_tunnel_address=address))
        case TunnelAddress.VXLAN_V6:
            return evolve(node, spec=evolve(node.spec, vxlan_tunnel_address_v6=address))
        case TunnelAddress.IPIP:
            bgp = evolve(node.spec.bgp or NodeBGP(), ipip_tunnel_address=address)
            return evolve(node, spec=evolve(node.spec, bgp=None if bgp == NodeBGP() else bgp))
        case _:
            assert_never(sort)


def find_tunnel_pools(sort: TunnelAddress, node: Node, pools: Iterable[IPPool]) -> tuple[IPPool, ...]:
    """The pools that an address may come from: enabled, wrapped so, for this node, and for tunnels.

    A pool whose selector cannot be read is passed over, as everywhere.
    """
    return tuple(
        pool
        for pool in pools
        if sort.is_needed_by(pool)
        and is_enabled(pool)
        and AllowedUse.TUNNEL in pool.spec.allowed_uses
        and _selects(pool, node)
    )


def _selects(pool: IPPool, node: Node) -> bool:
    try:
        return matches(parse(pool.spec.node_selector), dict(node.metadata.labels))
    except SelectorError:
        return False


@frozen(kw_only=True)
class TunnelChange:
    """What is to be done about one address, in this order.

    - ``released``: what the handle holds is released, since it cannot be used; then an address is assigned
    - ``pools``: an address is assigned from these; empty: none is
    - ``stored``: the Node names this one; None: none. After an assignment it is the one that was assigned
    - ``is_given_up``: what the handle holds is released at the end
    """

    pools: tuple[Prefix, ...] = ()
    stored: Address | None = None
    is_released: bool = False
    is_given_up: bool = False


def plan_tunnel_address(
    sort: TunnelAddress, node: Node, pools: Iterable[IPPool], held: tuple[Address, ...]
) -> TunnelChange | None:
    """What is to be done about an address of a node; None: nothing. ``held`` are the addresses of its handle.

    The handle says whose an address is, and not the Node: an address that the Node names and the handle does not hold
    is another's, and stays that.
    """
    named, ranges = sort.find(node), tuple(pool.spec.prefix for pool in find_tunnel_pools(sort, node, pools))
    usable = [address for address in held if any(address in prefix for prefix in ranges)]
    if not ranges:
        return TunnelChange(is_given_up=bool(held)) if held or named is not None else None
    if named in usable:
        return None
    if usable:  # it was assigned, and the Node was not written
        return TunnelChange(stored=min(usable))
    return TunnelChange(pools=ranges, is_released=bool(held))


# --- MTUs ------------------------------------------------------------------------------------------------------------

FALLBACK_MTU: Final = 1460
"""The MTU of a host none of whose interfaces matches: small enough for the networks of all clouds."""

_UPLINKS: Final = "^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)"
_IPIP_OVERHEAD: Final = 20
_VXLAN_OVERHEAD: Final = {Family.IPV4: 50, Family.IPV6: 70}


@frozen(kw_only=True)
class MTUSettings:
    """MTUs that are configured for the devices of tunnels; 0: what the host's leaves."""

    ipip: int = 0
    vxlan: int = 0
    vxlan_v6: int = 0

    @classmethod
    def parse(cls, environ: Mapping[str, str]) -> MTUSettings:
        """Those of the variables. ``NETPLUG_VXLANMTU`` counts for both families, unless there is one of IPv6.

        Raises:
            ConfigurationError: one of them is no number.
        """
        ipip, vxlan, vxlan_v6 = (
            _parse_mtu(environ.get(name, ""), name)
            for name in ("NETPLUG_IPINIPMTU", "NETPLUG_VXLANMTU", "NETPLUG_VXLANMTUV6")
        )
        return cls(ipip=ipip, vxlan=vxlan, vxlan_v6=vxlan_v6 or vxlan)

    def over(self, spec: NodeConfigurationSpec) -> MTUSettings:
        """These, and where they say nothing those of a NodeConfiguration."""
        return MTUSettings(
            ipip=self.ipip or spec.ipip_mtu or 0,
            vxlan=self.vxlan or spec.vxlan_mtu or 0,
            vxlan_v6=self.vxlan_v6 or spec.vxlan_mtu_v6 or 0,
        )


_MAX_MTU: Final = 65_535


def _parse_mtu(text: str, variable: str) -> int:
    digits = text.strip() or "0"
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_MAX_MTU)) and int(digits) <= _MAX_MTU):
        raise ConfigurationError(variable, text, f"a number from 0, which is automatic, to {_MAX_MTU} is")
    return int(digits)


NO_MTUS: Final = MTUSettings()
"""All MTUs follow from the host's."""


@frozen(kw_only=True)
class EncapsulationMTUs:
    """The MTU of the host, and those of the devices of tunnels."""

    host: int
    ipip: int
    vxlan: Mapping[Family, int]
    problems: tuple[Problem, ...] = ()


def find_mtus(
    interfaces: Iterable[HostInterface], spec: NodeConfigurationSpec, configured: MTUSettings = NO_MTUS
) -> EncapsulationMTUs:
    """The MTUs of a node: that of the host is the smallest of its interfaces that are up and match the pattern."""
    pattern = spec.mtu_interface_pattern or _UPLINKS
    found = [each.mtu for each in interfaces if each.is_up and re.search(pattern, each.name)]
    host, wanted = min(found, default=FALLBACK_MTU), configured.over(spec)
    problems: list[Problem] = []
    if not found:
        cause = f"no interface that is up matches {pattern}; NodeConfiguration mtuIfacePattern can name them"
        problems.append(Problem(message=f"the MTU of the host is not known; {FALLBACK_MTU} is taken", cause=cause))
    for name, mtu in (("ipipMTU", wanted.ipip), ("vxlanMTU", wanted.vxlan), ("vxlanMTUV6", wanted.vxlan_v6)):
        if found and mtu > host:
            cause = f"{name} is {mtu}, and the MTU of the host {host}"
            problems.append(Problem(message="packets of pods are too large for the host", cause=cause))
    return EncapsulationMTUs(
        host=host,
        ipip=wanted.ipip or host - _IPIP_OVERHEAD,
        vxlan={
            Family.IPV4: wanted.vxlan or host - _VXLAN_OVERHEAD[Family.IPV4],
            Family.IPV6: wanted.vxlan_v6 or host - _VXLAN_OVERHEAD[Family.IPV6],
        },
        problems=tuple(problems),
    )


def find_pod_mtu(mtus: EncapsulationMTUs, pools: Iterable[IPPool], spec: NodeConfigurationSpec) -> int:
    """The MTU of pods: the smallest of the encapsulations that pools use, disabled ones too; otherwise the host's.

    Pods keep the MTU that they were attached with, so a pool that is disabled still counts.
    """
    used: list[int] = []
    for pool in pools:
        family = pool.spec.prefix.family
        if pool.spec.vxlan_mode is not Encapsulation.NEVER and spec.is_vxlan_enabled is not False:
            used.append(mtus.vxlan[family])
        has_ipip = pool.spec.ipip_mode is not Encapsulation.NEVER and family is Family.IPV4
        if has_ipip and spec.is_ipip_enabled is not False:
            used.append(mtus.ipip)
    return min(used, default=mtus.host)


@frozen(kw_only=True)
class MTUInputs:
    """What is stored and decides about the MTU of pods: all pools, and all NodeConfigurations."""

    pools: tuple[IPPool, ...] = ()
    configurations: tuple[NodeConfiguration, ...] = ()


@frozen(kw_only=True)
class PodMTU:
    """The MTU of the pods of a node, and what is wrong with the MTUs that it follows from."""

    mtu: int
    problems: tuple[Problem, ...] = ()


def settle_pod_mtu(
    node: str, interfaces: Iterable[HostInterface], stored: MTUInputs, configured: MTUSettings = NO_MTUS
) -> PodMTU:
    """The MTU of the pods of a node."""
    spec = effective_settings(stored.configurations, node)
    mtus = find_mtus(interfaces, spec, configured)
    return PodMTU(mtu=find_pod_mtu(mtus, stored.pools, spec), problems=mtus.problems)
