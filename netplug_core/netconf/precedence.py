"""What wins: a pod's annotations over its namespace's, those over the configuration, and that over selectors.

``annotations`` has put the pod over its namespace; selectors count only for pools that nothing names. What the caller
asks for, by ``IP`` and ``MAC`` of CNI_ARGS, by ``runtimeConfig`` or by ``args.cni``, belongs to the configuration: no
place wins over another. ``flows.cni`` makes its request of the result. A call that asks for nothing in particular does
not come here.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family
from netplug_core.cni.request import CNIArgs
from netplug_core.errors import ConfigurationError, RequestError, quote
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
from netplug_core.netconf.model import (
    BLOCK_IPAM,
    HOST_LOCAL_IPAM,
    IPAMConfig,
    NetConf,
    Requested,
    RequestedAddress,
    RuntimeParameters,
    parse_mac,
)

__all__ = ["ResolvedAddresses", "find_requested", "require_allowed", "resolve_addresses"]

_OF_BLOCK_IPAM: Final = (IPV4_POOLS, IPV6_POOLS, IP_FAMILIES, IP_ADDRS, IP_ADDRS_NO_IPAM)


@frozen(kw_only=True)
class ResolvedAddresses:
    """The addresses that a pod gets: ``unmanaged`` ones, else ``specific`` ones, else those that ``ipam`` asks for.

    ``unmanaged`` addresses are held by no IPAM; ``specific`` ones are assigned by it, and no others.
    """

    ipam: IPAMConfig
    specific: tuple[Specific, ...] = ()
    unmanaged: tuple[Address, ...] = ()


def find_requested(args: CNIArgs, netconf: NetConf, *, has_interface: bool) -> Requested:
    """What the caller of an ADD asks for, wherever it stands; the same thing may be said twice.

    host-local and other plugins read ``ips`` themselves: they may have several ranges of a family. ``has_interface``:
    whether this plugin makes the interface; if not, its MAC is another plugin's concern and may be anything.

    Raises:
        RequestError: ``MAC`` of CNI_ARGS is none.
        ConfigurationError: two places ask for different MACs, or for different addresses of one family.
    """
    mac = _requested_mac(args, netconf.runtime) if has_interface else ""
    return Requested(addresses=_requested_addresses(args, netconf), mac=mac)


def _requested_addresses(args: CNIArgs, netconf: NetConf) -> tuple[RequestedAddress, ...]:
    of_arguments: tuple[Address, ...] = () if args.address is None else (args.address,)
    named = [("IP of CNI_ARGS", of_arguments)]
    if netconf.ipam.type != HOST_LOCAL_IPAM and not netconf.ipam.is_delegated:
        named += [("runtimeConfig.ips", netconf.runtime.runtime_ips), ("args.cni.ips", netconf.runtime.argument_ips)]
    found: dict[Family, RequestedAddress] = {}
    for source, addresses in named:
        for address in addresses:
            first = found.setdefault(address.family, RequestedAddress(address=address, source=source))
            if first.address != address:
                accepted = f"{first.source} asks for {first.address}, and one {address.family} address can be asked for"
                raise ConfigurationError(source, str(address), accepted)
    return tuple(found[family] for family in Family if family in found)


def _requested_mac(args: CNIArgs, runtime: RuntimeParameters) -> str:
    try:
        argument = parse_mac(args.mac) if args.mac else ""
    except ValueError as error:
        raise RequestError(f"ARGS: MAC: {quote(args.mac)}: {error}") from None
    named = (
        ("MAC of CNI_ARGS", argument),
        ("runtimeConfig.mac", runtime.runtime_mac),
        ("args.cni.mac", runtime.argument_mac),
    )
    (first, mac), *others = [one for one in named if one[1]] or [("", "")]
    for source, other in others:
        if other != mac:
            raise ConfigurationError(source, other, f"{first} asks for {mac}, and the interface has one MAC")
    return mac


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
    pod: AnnotatedPod, annotations: PodAnnotations, ipam: IPAMConfig, requested: tuple[RequestedAddress, ...]
) -> ResolvedAddresses:
    """The addresses that a pod gets with these annotations, this configuration and what the caller asks for.

    Pools and families of an annotation replace those of the configuration. An annotation with addresses replaces
    everything else. What the caller asks for belongs to the configuration, so annotations restrict it.

    Raises:
        AnnotationRefused: an address that is asked for is of a family that the pod's annotation switches off.
    """
    if annotations.addresses_no_ipam:
        return ResolvedAddresses(ipam=ipam, unmanaged=annotations.addresses_no_ipam)
    if annotations.addresses:
        return ResolvedAddresses(ipam=ipam, specific=tuple(Specific(address=one) for one in annotations.addresses))
    families, pools = annotations.families, dict(annotations.pools)
    for one in requested:
        if families is not None and one.address.family not in families:
            accepted = (
                f"{one.source} asks for {one.address}, an {one.address.family} address,"
                f" and {IP_FAMILIES} must name its family"
            )
            raise pod.refusal(IP_FAMILIES, annotations.find_text(IP_FAMILIES), accepted)
    if requested:
        specific = tuple(Specific(address=one.address, pools=pools.get(one.address.family, ())) for one in requested)
        return ResolvedAddresses(ipam=ipam, specific=specific)
    return ResolvedAddresses(
        ipam=evolve(
            ipam,
            assign_ipv4=ipam.assign_ipv4 if families is None else Family.IPV4 in families,
            assign_ipv6=ipam.assign_ipv6 if families is None else Family.IPV6 in families,
            ipv4_pools=pools.get(Family.IPV4, ipam.ipv4_pools),
            ipv6_pools=pools.get(Family.IPV6, ipam.ipv6_pools),
        )
    )
