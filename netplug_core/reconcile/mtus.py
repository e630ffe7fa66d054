"""The MTUs of a node: that of its interfaces, of its tunnels, and of its pods.

Packets in a tunnel are wrapped in a further header, so that what pods send has to be smaller than what the host can.
The registration writes the MTU of pods to a file, and routes give that of a tunnel to its device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from netplug_core.addressing import Family
from netplug_core.dataplane.routing import HostInterface
from netplug_core.errors import ConfigurationError
from netplug_core.reconcile.controller import Problem
from netplug_core.resources.ippool import Encapsulation, IPPool
from netplug_core.resources.nodeconfiguration import NodeConfiguration, NodeConfigurationSpec, effective_settings

__all__ = [
    "FALLBACK_MTU", "NO_MTUS", "EncapsulationMTUs", "MTUInputs", "MTUSettings", "PodMTU", "find_mtus", "find_pod_mtu",
    "settle_pod_mtu",
]  # fmt: skip

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
