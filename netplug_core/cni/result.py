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
from netplug_core.cni.versions import AddressShape, SpecVersion, find_version, negotiate
from netplug_core.errors import ConfigurationError, DecodeError
from netplug_core.members import Members

__all__ = [
    "DNS",
    "AssignedAddress",
    "Interface",
    "Result",
    "Route",
    "find_previous",
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
class Interface:
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
class AssignedAddress:
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
class Route:
    """A route of the container; without a gateway, its destination is on the link."""

    destination: Prefix
    gateway: Address | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


@frozen(kw_only=True)
class Result:
    """The state of an attachment after an ADD; without interfaces it is an IPAM plugin's answer.

    Source: CNI specification, "ADD Success" and "Delegated plugins (IPAM)".
    """

    interfaces: tuple[Interface, ...] = ()
    ips: tuple[AssignedAddress, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: DNS = DNS()

    def followed_by(self, own: Result) -> Result:
        """The result of a chain: this one, given to us, and behind it our own.

        Our interfaces come after those given, so our addresses point further along. Settings of name
        resolution that were given stay.
        """
        shift = len(self.interfaces)
        moved = (ip if ip.interface is None else evolve(ip, interface=ip.interface + shift) for ip in own.ips)
        return Result(
            interfaces=self.interfaces + own.interfaces,
            ips=(*self.ips, *moved),
            routes=self.routes + own.routes,
            dns=own.dns if self.dns == DNS() else self.dns,
        )


# --- to JSON ------------------------------------------------------------------------------------------------


def render_result(result: Result, cni_version: str) -> str:
    """The JSON text of a result in the shape of a version.

    The oldest versions know one address per family and no interfaces: the first of each is shown, with the
    routes of its family.

    Raises:
        ConfigurationError: a version without a shape for a result that has no address.
        IncompatibleVersion: the version is not supported.
    """
    version = negotiate(cni_version)
    members: _JSON = {"cniVersion": cni_version}
    if version.shape is AddressShape.PER_FAMILY:
        members |= _families(result, version)
    else:
        members |= _present(
            interfaces=[_interface(interface, version) for interface in result.interfaces],
            ips=[_ip(ip, version) for ip in result.ips],
            routes=[_route(route, version) for route in result.routes],
        )
    return json.dumps(members | _present(dns=_dns(result.dns)), indent=4) + "\n"


def _families(result: Result, version: SpecVersion) -> _JSON:
    members: _JSON = {}
    for key, family in _FAMILY_KEYS:
        first = next((ip for ip in result.ips if ip.address.family is family), None)
        if first is not None:
            routes = [_route(r, version) for r in result.routes if r.destination.family is family]
            members[key] = _present(ip=str(first), gateway=_maybe(first.gateway), routes=routes)
    if not members:
        raise ConfigurationError(
            "network configuration.cniVersion",
            version.text,
            "a result without an address needs 0.3.0 or later",
        )
    return members


def _interface(interface: Interface, version: SpecVersion) -> _JSON:
    members = _present(name=interface.name, mac=interface.mac)
    if version.has_details:
        members |= _present(mtu=interface.mtu or None)
    members |= _present(sandbox=interface.sandbox)
    if version.has_details:
        members |= _present(socketPath=interface.socket_path, pciID=interface.pci_id)
    return members


def _ip(ip: AssignedAddress, version: SpecVersion) -> _JSON:
    has_family = version.shape is AddressShape.WITH_FAMILY
    return _present(
        version=str(ip.address.family.value) if has_family else None,
        interface=ip.interface,
        address=str(ip),
        gateway=_maybe(ip.gateway),
    )


def _route(route: Route, version: SpecVersion) -> _JSON:
    members = _present(dst=str(route.destination), gw=_maybe(route.gateway))
    if version.has_details:
        members |= _present(
            mtu=route.mtu,
            advmss=route.advmss,
            priority=route.priority,
            table=route.table,
            scope=route.scope,
        )
    return members


def _dns(dns: DNS) -> _JSON:
    return _present(
        nameservers=list(dns.nameservers),
        domain=dns.domain,
        search=list(dns.search),
        options=list(dns.options),
    )


def _maybe(address: Address | None) -> str | None:
    return None if address is None else str(address)


def _present(**members: object) -> _JSON:
    """The members that say something; 0 does."""
    return {key: value for key, value in members.items() if value not in (None, "", [], {})}


# --- from JSON ----------------------------------------------------------------------------------------------


def find_previous(request: CNIRequest) -> Result | None:
    """What the plugins before us in the chain, or our own ADD, answered; None when the call does not say.

    Raises:
        DecodeError: it is no result.
    """
    document = request.config.get("prevResult")
    if document is None:
        return None
    return parse_result(document, where="prevResult", cni_version=request.cni_version)


def parse_result(document: object, *, where: str, cni_version: str) -> Result:
    """The result that decoded JSON holds, in the shape of any version.

    ``cni_version`` is assumed where the document names none; ``where`` begins the messages. Members that no
    version has are dropped.

    Raises:
        DecodeError: a member has the wrong type or value, or the version is not supported.
    """
    top = Members.of(document, where)
    stated = top.text("cniVersion") or cni_version
    version = find_version(stated)
    if version is None:
        raise DecodeError(f"{where}.cniVersion", f'"{stated}" is not a supported CNI version')
    if version.shape is AddressShape.PER_FAMILY:
        return _parse_families(top)
    interfaces = tuple(_parse_interface(item) for item in top.children("interfaces"))
    return Result(
        interfaces=interfaces,
        ips=tuple(_parse_ip(item, len(interfaces)) for item in top.children("ips")),
        routes=tuple(_parse_route(item) for item in top.children("routes")),
        dns=_parse_dns(top),
    )


def _parse_families(top: Members) -> Result:
    ips: list[AssignedAddress] = []
    routes: list[Route] = []
    for key, family in _FAMILY_KEYS:
        item = top.child(key)
        if item is None:
            continue
        address, prefix = item.cidr("ip")
        if address.family is not family:
            raise DecodeError(f"{item.where}.ip", f"{address} is not an {family} address")
        ips.append(AssignedAddress(address=address, length=prefix.length, gateway=item.address("gateway")))
        routes.extend(_parse_route(route) for route in item.children("routes"))
    return Result(ips=tuple(ips), routes=tuple(routes), dns=_parse_dns(top))


def _parse_interface(item: Members) -> Interface:
    return Interface(
        name=item.required("name"),
        mac=item.text("mac"),
        mtu=item.number("mtu") or 0,
        sandbox=item.text("sandbox"),
        socket_path=item.text("socketPath"),
        pci_id=item.text("pciID"),
    )


def _parse_ip(item: Members, interface_count: int) -> AssignedAddress:
    address, prefix = item.cidr("address")
    interface = item.number("interface")
    if interface is not None and interface >= interface_count:
        raise DecodeError(
            f"{item.where}.interface",
            f"{interface} is no position in interfaces, which has {interface_count}",
        )
    return AssignedAddress(address=address, length=prefix.length, gateway=item.address("gateway"), interface=interface)


def _parse_route(item: Members) -> Route:
    # Host bits in a destination say nothing, and known plugins write them.
    _, destination = item.cidr("dst")
    return Route(
        destination=destination,
        gateway=item.address("gw"),
        mtu=item.number("mtu"),
        advmss=item.number("advmss"),
        priority=item.number("priority"),
        table=item.number("table"),
        scope=item.number("scope"),
    )


def _parse_dns(top: Members) -> DNS:
    item = top.child("dns")
    if item is None:
        return DNS()
    return DNS(
        nameservers=item.texts("nameservers"),
        domain=item.text("domain"),
        search=item.texts("search"),
        options=item.texts("options"),
    )
