"""What a pod's annotations ask for, and what wins: pod, then namespace, configuration, selectors.

Each annotation is checked alone and against the others. An empty text means not set, except for ``hwAddr``. A text of
the namespace that a text of the pod replaces is not checked. Selectors count only for pools that nothing names. What
the caller asks for, by ``IP`` and ``MAC`` of CNI_ARGS, by ``runtimeConfig`` or by ``args.cni``, belongs to the
configuration: no place wins over another. ``flows.cni`` makes its request of the result. A call that asks for nothing
in particular does not come here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix, unusable_ranges
from netplug_core.cni.request import CNIArgs
from netplug_core.decoding.codecs import is_utf8_without_nul
from netplug_core.errors import ConfigurationError, RequestError, quote
from netplug_core.ipam.allocation.request import Specific
from netplug_core.names import STORED_ANNOTATIONS
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
from netplug_core.orchestrator.model import PodName
from netplug_core.resources.fields import Labels
from netplug_core.settings.model import DEFAULT_ANNOTATION_PREFIX

__all__ = [
    "ALLOWED_SOURCE_PREFIXES", "ANNOTATIONS", "FLOATING_IPS", "HW_ADDR", "IPV4_POOLS", "IPV6_POOLS", "IP_ADDRS",
    "IP_ADDRS_NO_IPAM", "IP_FAMILIES", "OF_NAMESPACES", "AnnotatedPod", "AnnotationRefused", "PodAnnotations",
    "ResolvedAddresses", "find_requested", "parse_annotations", "require_allowed", "resolve_addresses",
]  # fmt: skip


# --- annotations -----------------------------------------------------------------------------------------------------


T = TypeVar("T")

IPV4_POOLS: Final = "ipv4pools"
IPV6_POOLS: Final = "ipv6pools"
IP_FAMILIES: Final = "ipFamilies"
IP_ADDRS: Final = "ipAddrs"
IP_ADDRS_NO_IPAM: Final = "ipAddrsNoIpam"
FLOATING_IPS: Final = "floatingIPs"
HW_ADDR: Final = "hwAddr"
ALLOWED_SOURCE_PREFIXES: Final = "allowedSourcePrefixes"

OF_NAMESPACES: Final = (IPV4_POOLS, IPV6_POOLS, IP_FAMILIES)
"""Those that a namespace may have for its pods. They concern every interface of a pod, the others its first one."""

ANNOTATIONS: Final = (*OF_NAMESPACES, IP_ADDRS, IP_ADDRS_NO_IPAM, FLOATING_IPS, HW_ADDR, ALLOWED_SOURCE_PREFIXES)
"""All that there are; a pod may have each."""


_POOLS_ACCEPTED: Final = (
    'a JSON array of names or whole CIDRs of IP pools is expected, such as ["pool-1", "10.0.0.0/16"]'
)
_FAMILIES_ACCEPTED: Final = 'a JSON array of "IPv4", "IPv6" or both is expected'
_ADDRESSES_ACCEPTED: Final = (
    "a JSON array of one IPv4 address, one IPv6 address, or one of each is expected, without prefix lengths"
)
_FLOATING_ACCEPTED: Final = "a JSON array of IPv4 and IPv6 addresses without prefix lengths is expected"
_PREFIXES_ACCEPTED: Final = 'a JSON array of CIDRs is expected, such as ["192.0.2.0/24"]'
_FAMILIES: Final = {str(family): family for family in Family}


@frozen
class AnnotationRefused(ConfigurationError):
    """An annotation that cannot be accepted (code 7); ``annotation`` is its full name."""

    annotation: str


@frozen(kw_only=True)
class AnnotatedPod:
    """A pod with all its annotations and those of its namespace; netplug's begin with ``prefix``."""

    name: PodName
    annotations: Labels
    namespace_annotations: Labels = ()
    prefix: str = DEFAULT_ANNOTATION_PREFIX

    def full_name(self, name: str) -> str:
        """An annotation of ours, with the prefix."""
        return f"{self.prefix}/{name}"

    def refusal(self, name: str, value: object, accepted: str) -> AnnotationRefused:
        """The error about a value of the pod's annotation of that name."""
        annotation = self.full_name(name)
        return AnnotationRefused(f"annotation {annotation} of pod {self.name}", value, accepted, annotation)


@frozen(kw_only=True)
class PodAnnotations:
    """What the annotations of a pod ask for. None and empty: nothing.

    ``pools`` are names and prefixes for each family that an annotation names pools of, in the order to try them.
    ``families`` are those that the pod gets an address of. ``texts`` are the names and texts that count, sorted.
    ``unused`` are the full names of annotations of the namespace that only a pod can have, or that do not exist.
    """

    pools: tuple[tuple[Family, tuple[str, ...]], ...] = ()
    families: frozenset[Family] | None = None
    addresses: tuple[Address, ...] = ()
    addresses_no_ipam: tuple[Address, ...] = ()
    floating_ips: tuple[Address, ...] = ()
    mac: str = ""
    allowed_source_prefixes: tuple[Prefix, ...] = ()
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    unused: tuple[str, ...] = ()

    def find_text(self, name: str) -> str | None:
        """The text of an annotation; None if it is not set."""
        return dict(self.texts).get(name)


def parse_annotations(pod: AnnotatedPod) -> PodAnnotations:
    """What a pod's annotations ask for; where the pod has none, those of its namespace about pools and families.

    Raises:
        AnnotationRefused: a value is not accepted, two annotations exclude each other, or one does not exist.
    """
    own, of_namespace = _own(pod.annotations, pod.prefix), _own(pod.namespace_annotations, pod.prefix)
    for name, text in own.items():
        if name not in ANNOTATIONS and name not in STORED_ANNOTATIONS:
            raise pod.refusal(name, text, f"there is no such annotation: {', '.join(ANNOTATIONS)} are accepted")
    texts = _texts(own, of_namespace)
    if IP_ADDRS in texts and IP_ADDRS_NO_IPAM in texts:
        both = (
            f"can't have both annotations: '{IP_ADDRS}' and '{IP_ADDRS_NO_IPAM}' in use at the same time; leave one out"
        )
        raise pod.refusal(IP_ADDRS_NO_IPAM, texts[IP_ADDRS_NO_IPAM], both)
    reader = _Reader(pod, texts)
    pools = ((Family.IPV4, reader.pools(IPV4_POOLS)), (Family.IPV6, reader.pools(IPV6_POOLS)))
    return PodAnnotations(
        pools=tuple((family, named) for family, named in pools if named),
        families=reader.families(),
        addresses=reader.addresses(IP_ADDRS),
        addresses_no_ipam=reader.addresses(IP_ADDRS_NO_IPAM),
        floating_ips=reader.items(FLOATING_IPS, _FLOATING_ACCEPTED, _parse_usable, "invalid IP format"),
        mac=reader.mac(),
        allowed_source_prefixes=reader.items(
            ALLOWED_SOURCE_PREFIXES, _PREFIXES_ACCEPTED, _enclosing_prefix, "failed to parse as a CIDR"
        ),
        texts=tuple(sorted(texts.items())),
        unused=tuple(sorted(pod.full_name(name) for name in of_namespace if name not in OF_NAMESPACES)),
    )


def _own(annotations: Labels, prefix: str) -> dict[str, str]:
    start = f"{prefix}/"
    return {name.removeprefix(start): text for name, text in annotations if name.startswith(start)}


def _texts(own: Mapping[str, str], of_namespace: Mapping[str, str]) -> dict[str, str]:
    """The texts that count: those of the pod, else of its namespace; an empty text is not set."""
    texts: dict[str, str] = {}
    for name in ANNOTATIONS:
        text = own.get(name) or (of_namespace.get(name, "") if name in OF_NAMESPACES else "")
        if text or (name == HW_ADDR and name in own):
            texts[name] = text
    return texts


def _parse_usable(text: str) -> Address:
    address = Address.parse(text)
    for kind, prefix in unusable_ranges(address.host_prefix):
        raise ValueError(f"no workload can have an address of the {kind} range {prefix}")
    return address


def _enclosing_prefix(text: str) -> Prefix:
    if "/" not in text:
        raise ValueError("it has no prefix length")
    return Prefix.enclosing(text)


@frozen
class _Reader:
    """Reads the texts of one pod; each method returns what an annotation of that name asks for."""

    pod: AnnotatedPod
    texts: Mapping[str, str]

    def pools(self, name: str) -> tuple[str, ...]:
        pools = self._array(name, _POOLS_ACCEPTED)
        if pools is None:
            return ()
        if not pools:
            raise self._refusal(name, f"specified but empty; {_POOLS_ACCEPTED}")
        for pool in filter(lambda item: "/" in item, pools):
            try:
                Prefix.parse(pool)
            except ValueError as error:
                raise self._refusal(name, f"{error}; {_POOLS_ACCEPTED}") from None
        return pools

    def families(self) -> frozenset[Family] | None:
        names = self._array(IP_FAMILIES, _FAMILIES_ACCEPTED)
        if names is None:
            return None
        if not names or not set(names) <= set(_FAMILIES):
            raise self._refusal(IP_FAMILIES, f"error parsing ipFamilies; {_FAMILIES_ACCEPTED}")
        return frozenset(_FAMILIES[name] for name in names)

    def addresses(self, name: str) -> tuple[Address, ...]:
        if name not in self.texts:
            return ()
        # The texts of other programs for the same mistakes, so that they can be searched for.
        found: dict[Family, Address] = {}
        for address in self.items(name, _ADDRESSES_ACCEPTED, _parse_usable, "invalid IP format", is_set=False):
            if address.family in found:
                reason = (
                    f'cannot have more than one {address.family} address for "{self.pod.full_name(name)}" annotation'
                )
                raise self._refusal(name, f"{reason}; {_ADDRESSES_ACCEPTED}")
            found[address.family] = address
        if not found:
            raise self._refusal(
                name, f'annotation "{self.pod.full_name(name)}" specified but empty; {_ADDRESSES_ACCEPTED}'
            )
        return tuple(found.values())

    def items(
        self, name: str, accepted: str, parse: Callable[[str], T], problem: str, *, is_set: bool = True
    ) -> tuple[T, ...]:
        """The parsed members of an array; if it is a set, each once."""
        found: list[T] = []
        for item in self._array(name, accepted) or ():
            try:
                found.append(parse(item))
            except ValueError as error:
                raise self._refusal(name, f"{problem}: {quote(item)} ({error}); {accepted}") from None
        return tuple(dict.fromkeys(found)) if is_set else tuple(found)

    def mac(self) -> str:
        text = self.texts.get(HW_ADDR)
        if text is None:
            return ""
        try:
            return parse_mac(text)
        except ValueError as error:
            reason = f"failed to parse MAC address provided via {self.pod.full_name(HW_ADDR)}"
            raise self._refusal(HW_ADDR, f"{reason}; {error}") from None

    def _array(self, name: str, accepted: str) -> tuple[str, ...] | None:
        """The members of a JSON array of texts; None if the annotation is not set."""
        text = self.texts.get(name)
        if text is None:
            return None
        try:
            members = json.loads(text)
        except (ValueError, RecursionError):
            raise self._refusal(name, f"failed to parse as JSON; {accepted}") from None
        if not isinstance(members, list):
            raise self._refusal(name, f"it is no array; {accepted}")
        for member in members:
            if not isinstance(member, str) or not is_utf8_without_nul(member):
                raise self._refusal(name, f"{quote(member)} is no text; {accepted}")
        return tuple(members)

    def _refusal(self, name: str, accepted: str) -> AnnotationRefused:
        return self.pod.refusal(name, self.texts[name], accepted)


# --- precedence ------------------------------------------------------------------------------------------------------


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
