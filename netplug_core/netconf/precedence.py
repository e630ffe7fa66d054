"""What wins: a pod's annotations over its namespace's, those over the configuration, and that over selectors (spec 4).

``annotations`` has put the pod over its namespace; selectors count only for pools that nothing names. ``flows.cni``
makes its request of the result. A call without annotations does not come here.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family
from netplug_core.ipam.allocation.request import Specific
from netplug_core.netconf.annotations import (
    ALLOWED_SOURCE_PREFIXES,
    FLOATING_IPS,
    IP_ADDRS,
    IP_ADDRS_NO_IPAM,
    IP_FAMILIES,
    IPV4_POOLS,
    IPV6_POOLS,
    AnnotatedPod,
    PodAnnotations,
)
from netplug_core.netconf.model import BLOCK_IPAM, IPAMConfig, NetConf

__all__ = ["ResolvedAddresses", "require_allowed", "resolve_addresses"]

_OF_BLOCK_IPAM: Final = (IPV4_POOLS, IPV6_POOLS, IP_FAMILIES, IP_ADDRS, IP_ADDRS_NO_IPAM)


@frozen(kw_only=True)
class ResolvedAddresses:
    """The addresses that a pod gets: ``unmanaged`` ones, else ``specific`` ones, else those that ``ipam`` asks for.

    ``unmanaged`` addresses are held by no IPAM; ``specific`` ones are assigned by it, and no others.
    """

    ipam: IPAMConfig
    specific: tuple[Specific, ...] = ()
    unmanaged: tuple[Address, ...] = ()


def require_allowed(pod: AnnotatedPod, annotations: PodAnnotations, netconf: NetConf) -> None:
    """Return if the configuration allows every annotation of the pod, and its IPAM can do what they ask for.

    Raises:
        AnnotationRefused: a feature is off, or the IPAM is not netplug's own.
    """
    features = netconf.feature_control
    for name, feature, is_on in (
        (IP_ADDRS_NO_IPAM, "ip_addrs_no_ipam", features.ip_addrs_no_ipam),
        (FLOATING_IPS, "floating_ips", features.floating_ips),
        (ALLOWED_SOURCE_PREFIXES, "allowed_source_prefixes", features.allowed_source_prefixes),
    ):
        text = annotations.find_text(name)
        if text is not None and not is_on:
            accepted = f"requested feature is not enabled: {feature}; feature_control.{feature} must be true"
            raise pod.refusal(name, text, accepted)
    for name in _OF_BLOCK_IPAM if netconf.ipam.type != BLOCK_IPAM else ():
        text = annotations.find_text(name)
        if text is not None:
            accepted = f"{name} is not compatible with configured IPAM: {netconf.ipam.type}; {BLOCK_IPAM} is needed"
            raise pod.refusal(name, text, accepted)


def resolve_addresses(
    pod: AnnotatedPod, annotations: PodAnnotations, ipam: IPAMConfig, address: Address | None
) -> ResolvedAddresses:
    """The addresses that a pod gets with these annotations, this configuration and this ``IP`` of CNI_ARGS.

    Pools and families of an annotation replace those of the configuration. An annotation with addresses replaces
    everything else. ``IP`` belongs to the configuration, so annotations restrict it.

    Raises:
        AnnotationRefused: ``IP`` is of a family that the pod's annotation switches off.
    """
    if annotations.addresses_no_ipam:
        return ResolvedAddresses(ipam=ipam, unmanaged=annotations.addresses_no_ipam)
    if annotations.addresses:
        return ResolvedAddresses(ipam=ipam, specific=tuple(Specific(address=one) for one in annotations.addresses))
    families, pools = annotations.families, dict(annotations.pools)
    if address is not None:
        if families is not None and address.family not in families:
            accepted = (
                f"IP={address} of CNI_ARGS is an {address.family} address, and {IP_FAMILIES} must name its family"
            )
            raise pod.refusal(IP_FAMILIES, annotations.find_text(IP_FAMILIES), accepted)
        return ResolvedAddresses(ipam=ipam, specific=(Specific(address=address, pools=pools.get(address.family, ())),))
    return ResolvedAddresses(
        ipam=evolve(
            ipam,
            assign_ipv4=ipam.assign_ipv4 if families is None else Family.IPV4 in families,
            assign_ipv6=ipam.assign_ipv6 if families is None else Family.IPV6 in families,
            ipv4_pools=pools.get(Family.IPV4, ipam.ipv4_pools),
            ipv6_pools=pools.get(Family.IPV6, ipam.ipv6_pools),
        )
    )
