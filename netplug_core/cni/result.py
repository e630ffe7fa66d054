"""What an ADD answers with: values, their JSON in every version of the specification, and back.

Flows build a :class:`Result` and hand it to ``dispatch``, which renders it for the version of the call;
CHECK, chained ADDs and delegates parse one. Parsing takes what any version may hold, whatever the version claims;
rendering shows only what the version has. Nothing here looks at the kernel: a result is what somebody said.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.versions import CNIVersion, ResultFormat, find_version, negotiate_version
from netplug_core.decoding.members import JSONObject
from netplug_core.errors import ConfigurationError, DecodeError

__all__ = [
    "DNS",
    "CNIInterface",
    "CNIResult",
    "CNIRoute",
    "IPConfig",
    "find_previous_result",
    "parse_result",
    "render_result",
]

_JSON: TypeAlias = dict[str, object]

# The members that the oldest versions keep their addresses under; the order is that of the answer.
_FAMILY_KEYS = (("ip4", Family.IPV4), ("ip6", Family.IPV6))


@frozen(kw_only=True)
class DNS:
    """Name resolution settings, passed on word for word."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@frozen(kw_only=True)
class CNIInterface:
    """An interface that was made or is used; one without ``sandbox`` is the host's.

    ``mtu`` 0 and empty texts: not known.
    """

    name: str
    mac: str = ""
    mtu: int = 0
    sandbox: str = ""
    socket_path: str = ""
    pci_id: str = ""


@frozen(kw_only=True)
class IPConfig:
    """An address with the prefix length it is configured with.

    ``interface`` is a position in the result's interfaces; None in the answer of an IPAM plugin.
    """

    address: Address
    length: int
    gateway: Address | None = None
    interface: int | None = None

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


@frozen(kw_only=True)
class CNIRoute:
    """A route of the container; without a gateway, its destination is on the link."""

    destination: Prefix
    gateway: Address | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


@frozen(kw_only=True)
class CNIResult:
    """The state of an attachment after an ADD; without interfaces it is an IPAM plugin's answer.

    Source: CNI specification, "ADD Success" and "Delegated plugins (IPAM)".
    """

    interfaces: tuple[CNIInterface, ...] = ()
    ips: tuple[IPConfig, ...] = ()
    routes: tuple[CNIRoute, ...] = ()
    dns: DNS = DNS()

    def chained_with(self, own: CNIResult) -> CNIResult:
        """The result of a chain: this one, given to us, and behind it our own.

        Our interfaces come after those given, so our addresses point further along. Settings of name
        resolution that were given stay.
        """
        shift = len(self.interfaces)
        moved = (ip if ip.interface is None else evolve(ip, interface=ip.interface + shift) for ip in own.ips)
        return CNIResult(
            interfaces=self.interfaces + own.interfaces,
            ips=(*self.ips, *moved),
            routes=self.routes + own.routes,
            dns=own.dns if self.dns == DNS() else self.dns,
        )


# --- to JSON ------------------------------------------------------------------------------------------------


def render_result(result: CNIResult, cni_version: str) -> str:
    """The JSON text of a result in the shape of a version.

    The oldest versions know one address per family and no interfaces: the first of each is shown, with the
    routes of its family.

    Raises:
        ConfigurationError: a version without a shape for a result that has no address.
        IncompatibleVersion: the version is not supported.
    """
    version = negotiate_version(cni_version)
    members: _JSON = {"cniVersion": cni_version}
    if version.result_format is ResultFormat.PER_FAMILY:
        members |= _render_families(result, version)
    else:
        members |= _omit_empty(
            interfaces=[_render_interface(interface, version) for interface in result.interfaces],
            ips=[_render_ip(ip, version) for ip in result.ips],
            routes=[_render_route(route, version) for route in result.routes],
        )
    return json.dumps(members | _omit_empty(dns=_render_dns(result.dns)), indent=4) + "\n"


def _render_families(result: CNIResult, version: CNIVersion) -> _JSON:
    members: _JSON = {}
    for key, family in _FAMILY_KEYS:
        first = next((ip for ip in result.ips if ip.address.family is family), None)
        if first is not None:
            routes = [_render_route(r, version) for r in result.routes if r.destination.family is family]
            members[key] = _omit_empty(ip=str(first), gateway=_optional_text(first.gateway), routes=routes)
    if not members:
        raise ConfigurationError(
            "network configuration.cniVersion",
            version.text,
            "a result without an address needs 0.3.0 or later",
        )
    return members


def _render_interface(interface: CNIInterface, version: CNIVersion) -> _JSON:
    members = _omit_empty(name=interface.name, mac=interface.mac)
    if version.has_extended_fields:
        members |= _omit_empty(mtu=interface.mtu or None)
    members |= _omit_empty(sandbox=interface.sandbox)
    if version.has_extended_fields:
        members |= _omit_empty(socketPath=interface.socket_path, pciID=interface.pci_id)
    return members


def _render_ip(ip: IPConfig, version: CNIVersion) -> _JSON:
    has_family = version.result_format is ResultFormat.LIST_WITH_VERSION
    return _omit_empty(
        version=str(ip.address.family.value) if has_family else None,
        interface=ip.interface,
        address=str(ip),
        gateway=_optional_text(ip.gateway),
    )


def _render_route(route: CNIRoute, version: CNIVersion) -> _JSON:
    members = _omit_empty(dst=str(route.destination), gw=_optional_text(route.gateway))
    if version.has_extended_fields:
        members |= _omit_empty(
            mtu=route.mtu,
            advmss=route.advmss,
            priority=route.priority,
            table=route.table,
            scope=route.scope,
        )
    return members


def _render_dns(dns: DNS) -> _JSON:
    return _omit_empty(
        nameservers=list(dns.nameservers),
        domain=dns.domain,
        search=list(dns.search),
        options=list(dns.options),
    )


def _optional_text(address: Address | None) -> str | None:
    return None if address is None else str(address)


def _omit_empty(**members: object) -> _JSON:
    """The members that say something; 0 does."""
    return {key: value for key, value in members.items() if value not in (None, "", [], {})}


# --- from JSON ----------------------------------------------------------------------------------------------


def find_previous_result(request: CNIRequest) -> CNIResult | None:
    """What the plugins before us in the chain, or our own ADD, answered; None when the call does not say.

    Raises:
        DecodeError: it is no result.
    """
    document = request.netconf_mapping.get("prevResult")
    if document is None:
        return None
    return parse_result(document, path="prevResult", cni_version=request.cni_version)


def parse_result(document: object, *, path: str, cni_version: str) -> CNIResult:
    """The result that decoded JSON holds, in the shape of any version.

    ``cni_version`` is assumed where the document names none; ``where`` begins the messages. Members that no
    version has are dropped.

    Raises:
        DecodeError: a member has the wrong type or value, or the version is not supported.
    """
    top = JSONObject.of(document, path)
    stated = top.optional_string("cniVersion") or cni_version
    version = find_version(stated)
    if version is None:
        raise DecodeError(f"{path}.cniVersion", f'"{stated}" is not a supported CNI version')
    if version.result_format is ResultFormat.PER_FAMILY:
        return _parse_families(top)
    interfaces = tuple(_parse_interface(item) for item in top.object_list("interfaces"))
    return CNIResult(
        interfaces=interfaces,
        ips=tuple(_parse_ip(item, len(interfaces)) for item in top.object_list("ips")),
        routes=tuple(_parse_route(item) for item in top.object_list("routes")),
        dns=_parse_dns(top),
    )


def _parse_families(top: JSONObject) -> CNIResult:
    ips: list[IPConfig] = []
    routes: list[CNIRoute] = []
    for key, family in _FAMILY_KEYS:
        item = top.optional_object(key)
        if item is None:
            continue
        address, prefix = item.cidr("ip")
        if address.family is not family:
            raise DecodeError(f"{item.path}.ip", f"{address} is not an {family} address")
        ips.append(IPConfig(address=address, length=prefix.length, gateway=item.optional_address("gateway")))
        routes.extend(_parse_route(route) for route in item.object_list("routes"))
    return CNIResult(ips=tuple(ips), routes=tuple(routes), dns=_parse_dns(top))


def _parse_interface(item: JSONObject) -> CNIInterface:
    return CNIInterface(
        name=item.required_string("name"),
        mac=item.optional_string("mac"),
        mtu=item.optional_uint32("mtu") or 0,
        sandbox=item.optional_string("sandbox"),
        socket_path=item.optional_string("socketPath"),
        pci_id=item.optional_string("pciID"),
    )


def _parse_ip(item: JSONObject, interface_count: int) -> IPConfig:
    address, prefix = item.cidr("address")
    interface = item.optional_uint32("interface")
    if interface is not None and interface >= interface_count:
        raise DecodeError(
            f"{item.path}.interface",
            f"{interface} is no position in interfaces, which has {interface_count}",
        )
    return IPConfig(
        address=address, length=prefix.length, gateway=item.optional_address("gateway"), interface=interface
    )


def _parse_route(item: JSONObject) -> CNIRoute:
    # Host bits in a destination say nothing, and known plugins write them.
    _, destination = item.cidr("dst")
    return CNIRoute(
        destination=destination,
        gateway=item.optional_address("gw"),
        mtu=item.optional_uint32("mtu"),
        advmss=item.optional_uint32("advmss"),
        priority=item.optional_uint32("priority"),
        table=item.optional_uint32("table"),
        scope=item.optional_uint32("scope"),
    )


def _parse_dns(top: JSONObject) -> DNS:
    item = top.optional_object("dns")
    if item is None:
        return DNS()
    return DNS(
        nameservers=item.string_list("nameservers"),
        domain=item.optional_string("domain"),
        search=item.string_list("search"),
        options=item.string_list("options"),
    )
