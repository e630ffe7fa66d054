"""What a call answers: the result of an ADD in every version of the specification, or why it failed.

Flows build a :class:`CNIResult`, and ``dispatch`` renders it for the version of the call. CHECK, chained ADDs and
delegates parse one. Parsing accepts the members of every version; rendering writes only those of the version. Nothing
here looks at the kernel. The DNS members come from the text of a ``resolv.conf``, where a configuration names one.

Every exception that ended a call becomes an error object, and a text for the log. No text contains a token or password
of the network configuration.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Final, TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.cni.dispatch import CNIVersion, ResultFormat, find_version, negotiate_version
from netplug_core.cni.request import CNIRequest
from netplug_core.decoding.codecs import NONEMPTY_STRING, STRING, UINT32, Codec, Unreadable
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, cni_error, fields_of, items_of
from netplug_core.errors import ConfigurationError, DecodeError, NetplugError, excerpt, narrow, quote, shorten
from netplug_core.ipam.allocation.request import DNS, NO_DNS

__all__ = [
    "HIDDEN", "SECRET_WORDS", "CNIErrorObject", "CNIInterface", "CNIResult", "CNIRoute", "IPConfig", "collect_secrets",
    "describe_error", "find_previous_result", "hide", "parse_resolv_conf", "parse_result", "render_error",
    "render_message", "render_result",
]  # fmt: skip


# --- resolv conf -----------------------------------------------------------------------------------------------------


_COMMENTS = ("#", ";")


def parse_resolv_conf(text: str) -> DNS:
    """The settings of a file. Lines that mean nothing are skipped; the last ``domain`` counts."""
    found: dict[str, list[str]] = {"nameserver": [], "domain": [], "search": [], "options": []}
    for line in text.splitlines():
        keyword, *values = line.split() or [""]
        if values and not keyword.startswith(_COMMENTS) and keyword in found:
            found[keyword] += values if keyword in ("search", "options") else values[:1]
    return DNS(
        nameservers=tuple(found["nameserver"]),
        domain=found["domain"][-1] if found["domain"] else "",
        search=tuple(found["search"]),
        options=tuple(found["options"]),
    )


# --- result ----------------------------------------------------------------------------------------------------------


_JSON: TypeAlias = dict[str, object]

# The members that the oldest versions keep their addresses under; the order is that of the answer.
_FAMILY_KEYS = (("ip4", Family.IPV4), ("ip6", Family.IPV6))


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
    dns: DNS = NO_DNS

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
            dns=own.dns if self.dns == NO_DNS else self.dns,
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
        members |= _omit_unset(
            interfaces=[_render_interface(interface, version) for interface in result.interfaces],
            ips=[_render_ip(ip, version) for ip in result.ips],
            routes=[_render_route(route, version) for route in result.routes],
        )
    return _indented(members | _omit_unset(dns=_render_dns(result.dns)), "\n") + "\n"


def _indented(value: object, margin: str) -> str:
    """The text that ``json.dumps(value, indent=4)`` makes, whose indenting encoder calls a function for each token.

    ``margin`` is the line break and the indentation of the line that the value begins in.
    """
    inner = margin + "    "
    if isinstance(value, dict) and value:
        members = [
            f"{inner}{encode_basestring_ascii(key)}: "
            f"{encode_basestring_ascii(item) if isinstance(item, str) else _indented(item, inner)}"
            for key, item in value.items()
        ]
        return f"{{{','.join(members)}{margin}}}"
    if isinstance(value, list) and value:
        return f"[{','.join([inner + _indented(item, inner) for item in value])}{margin}]"
    return encode_basestring_ascii(value) if isinstance(value, str) else json.dumps(value)


def _render_families(result: CNIResult, version: CNIVersion) -> _JSON:
    members: _JSON = {}
    for key, family in _FAMILY_KEYS:
        first = next((ip for ip in result.ips if ip.address.family is family), None)
        if first is not None:
            routes = [_render_route(r, version) for r in result.routes if r.destination.family is family]
            members[key] = _omit_unset(ip=str(first), gateway=_optional_text(first.gateway), routes=routes)
    if not members:
        raise ConfigurationError(
            "network configuration.cniVersion", version.text, "a result without an address needs 0.3.0 or later"
        )
    return members


def _render_interface(interface: CNIInterface, version: CNIVersion) -> _JSON:
    members = _omit_unset(name=interface.name, mac=interface.mac)
    if version.has_extended_fields:
        members |= _omit_unset(mtu=interface.mtu or None)
    members |= _omit_unset(sandbox=interface.sandbox)
    if version.has_extended_fields:
        members |= _omit_unset(socketPath=interface.socket_path, pciID=interface.pci_id)
    return members


def _render_ip(ip: IPConfig, version: CNIVersion) -> _JSON:
    has_family = version.result_format is ResultFormat.LIST_WITH_VERSION
    return _omit_unset(
        version=str(ip.address.family.value) if has_family else None,
        interface=ip.interface,
        address=str(ip),
        gateway=_optional_text(ip.gateway),
    )


def _render_route(route: CNIRoute, version: CNIVersion) -> _JSON:
    members = _omit_unset(dst=str(route.destination), gw=_optional_text(route.gateway))
    if version.has_extended_fields:
        members |= _omit_unset(
            mtu=route.mtu, advmss=route.advmss, priority=route.priority, table=route.table, scope=route.scope
        )
    return members


def _render_dns(dns: DNS) -> _JSON:
    return _omit_unset(
        nameservers=list(dns.nameservers), domain=dns.domain, search=list(dns.search), options=list(dns.options)
    )


def _optional_text(address: Address | None) -> str | None:
    return None if address is None else str(address)


def _omit_unset(**members: object) -> _JSON:
    """The members that are set; 0 is a value."""
    return {key: value for key, value in members.items() if value not in (None, "", [], {})}


# --- from JSON ----------------------------------------------------------------------------------------------


def find_previous_result(request: CNIRequest) -> CNIResult | None:
    """The result of the plugins before us in the chain, or of our own ADD; None if the call has none.

    Raises:
        DecodeError: it is no result.
    """
    document = request.netconf_mapping.get("prevResult")
    if document is None:
        return None
    return parse_result(document, path="prevResult", cni_version=request.cni_version)


def parse_result(document: object, *, path: str, cni_version: str) -> CNIResult:
    """The result that decoded JSON holds, in the shape of any version.

    ``cni_version`` is assumed if the document names none; messages begin with ``path``. Members that no version has
    are dropped.

    Raises:
        DecodeError: a member has the wrong type or value, or the version is not supported.
    """
    stated = _decoder().decode(document, _Stated, path).cni_version or cni_version
    version = find_version(stated)
    if version is None:
        raise DecodeError(f"{path}.cniVersion", f'"{excerpt(stated)}" is not a supported CNI version')
    if version.result_format is ResultFormat.PER_FAMILY:
        return _decoder().decode(document, _PerFamily, path).result
    return _decoder().decode(document, CNIResult, path)


@frozen(kw_only=True)
class _Stated:
    cni_version: str = ""


@frozen(kw_only=True)
class _FamilyPart:
    """The address of one family, as the oldest versions keep it."""

    address: _Network
    gateway: Address | None = None
    routes: tuple[CNIRoute, ...] = ()

    @property
    def ip(self) -> IPConfig:
        network = self.address
        return IPConfig(address=network.address, length=network.prefix.length, gateway=self.gateway)


@frozen(kw_only=True)
class _PerFamily:
    """A result of the oldest versions."""

    ipv4: _FamilyPart | None = None
    ipv6: _FamilyPart | None = None
    dns: DNS = NO_DNS

    @property
    def result(self) -> CNIResult:
        parts = [part for part in (self.ipv4, self.ipv6) if part is not None]
        routes = tuple(route for part in parts for route in part.routes)
        return CNIResult(ips=tuple(part.ip for part in parts), routes=routes, dns=self.dns)


@frozen
class _Network:
    """An address with a prefix length, as a text has both; of a destination the address may have host bits."""

    address: Address
    prefix: Prefix


def _read_network(value: object) -> _Network:
    text = NONEMPTY_STRING.decode(value)
    bare, slash, _ = text.partition("/")
    found = _Network(Address.parse(bare), Prefix.enclosing(text))
    if not slash:
        raise ValueError(f"{quote(text)} has no prefix length; address/length is expected")
    return found


def _read_gateway(value: object) -> Address | None:
    text = STRING.decode(value)
    return Address.parse(text) if text else None


def _finish_ip(values: dict[str, object], _: object) -> dict[str, object]:
    network = narrow(values["address"], _Network)
    return {**values, "address": network.address, "length": network.prefix.length}


def _finish_route(values: dict[str, object], _: object) -> dict[str, object]:
    # Host bits in a destination mean nothing, and known plugins write them.
    return {**values, "destination": narrow(values["destination"], _Network).prefix}


def _finish_result(values: dict[str, object], _: object) -> dict[str, object]:
    count = len(items_of(values, "interfaces", CNIInterface))
    for position, ip in enumerate(items_of(values, "ips", IPConfig)):
        if ip.interface is not None and ip.interface >= count:
            problem = f"{ip.interface} is no position in interfaces, which has {count}"
            raise Unreadable(problem, path=f".ips[{position}].interface")
    return values


def _finish_families(values: dict[str, object], _: object) -> dict[str, object]:
    for name, (key, family) in zip(("ipv4", "ipv6"), _FAMILY_KEYS, strict=True):
        part = values.get(name)
        if isinstance(part, _FamilyPart) and part.ip.address.family is not family:
            raise Unreadable(f"{part.ip.address} is not an {family} address", path=f".{key}.ip")
    return values


_ADDRESS: Final = Codec(_read_network)
_GATEWAY: Final = Codec(_read_gateway)
_DNS: Final = Field("dns", DNS)
_ROUTE_NUMBERS: Final = ("mtu", "advmss", "priority", "table", "scope")
_ROUTE: Final = {"destination": Field("dst", _ADDRESS), "gateway": Field("gw", _GATEWAY)}
_ROUTES: Final = Field("routes", ListOf(CNIRoute))
_TABLES: Final[tuple[Table[object], ...]] = (
    Table(cls=_Stated, fields={"cni_version": Field("cniVersion", STRING)}),
    Table(
        cls=CNIResult,
        fields={
            "interfaces": Field("interfaces", ListOf(CNIInterface)),
            "ips": Field("ips", ListOf(IPConfig)),
            "routes": _ROUTES,
            "dns": _DNS,
        },
        finish=_finish_result,
    ),
    Table(
        cls=CNIInterface,
        fields={
            "name": Field("name", NONEMPTY_STRING),
            "mac": Field("mac", STRING),
            "mtu": Field("mtu", UINT32),
            **fields_of(STRING, sandbox="sandbox", socket_path="socketPath", pci_id="pciID"),
        },
    ),
    Table(
        cls=IPConfig,
        fields={
            "address": Field("address", _ADDRESS),
            "interface": Field("interface", UINT32),
            "gateway": Field("gateway", _GATEWAY),
        },
        finish=_finish_ip,
    ),
    Table(cls=CNIRoute, fields=_ROUTE | {name: Field(name, UINT32) for name in _ROUTE_NUMBERS}, finish=_finish_route),
    Table(
        cls=DNS,
        fields={
            "nameservers": Field("nameservers", ListOf(STRING)),
            "domain": Field("domain", STRING),
            **fields_of(ListOf(STRING), search="search", options="options"),
        },
    ),
    Table(
        cls=_PerFamily,
        fields={"ipv4": Field("ip4", _FamilyPart), "ipv6": Field("ip6", _FamilyPart), "dns": _DNS},
        finish=_finish_families,
    ),
    Table(
        cls=_FamilyPart,
        fields={"address": Field("ip", _ADDRESS), "gateway": Field("gateway", _GATEWAY), "routes": _ROUTES},
    ),
)


@cache
def _decoder() -> Decoder:
    return Decoder(cni_error, tables=_TABLES)


# --- the answer to a call that failed --------------------------------------------------------------------------------

SECRET_WORDS = ("token", "password", "secret")
"""The value of a member is secret if one of these is in its name."""

HIDDEN = "<hidden>"
"""What stands in place of a secret."""

_MAX_CHAIN_LENGTH = 16


@frozen(kw_only=True)
class CNIErrorObject:
    """What ended a call. Only ``log_text`` has a traceback, and only for an exception that is not an error of ours."""

    code: int
    message: str
    details: str
    log_text: str


def describe_error(error: Exception, *, secrets: tuple[str, ...]) -> CNIErrorObject:
    """The error object for an exception, with every secret hidden.

    The details of an error of ours are its own details, followed by the errors of ours that it was raised from. The
    details of any other exception are its text and the texts of all exceptions that it was raised from.
    """
    if isinstance(error, NetplugError):
        code, message, trace = error.reported_code, render_message(error), ""
        own: str = getattr(error, "details", "")
        pending = [str(earlier) for earlier in _exception_chain(error) if isinstance(earlier, NetplugError)]
    else:
        code, message, trace = NetplugError.code, _type_and_text(error), "\n" + _traceback(error)
        own = message
        pending = [_type_and_text(earlier) for earlier in _exception_chain(error)]
    causes = [f"raised while handling {text}" for text in pending if text not in message]  # once is enough
    details = "; ".join([own, *causes] if own else causes)
    beside = f" ({details})" if details and details != message else ""
    return CNIErrorObject(
        code=code,
        message=shorten(hide(message, secrets)),
        details=shorten(hide(details, secrets)),
        log_text=hide(f"the final result was an error, code {code}: {message}{beside}{trace}", secrets),
    )


def render_message(error: NetplugError) -> str:
    """The text of an error and, where its code has them, the identifier and the next step.

    Runtimes show this text alone, so that it has to say what to do.
    """
    if not error.next_step:
        return str(error)
    reason = f"{error.identifier}: " if error.identifier else ""
    return f"{error}; {reason}{error.next_step}"


def render_error(error: CNIErrorObject, cni_version: str) -> str:
    """The JSON text of the error object.

    Source: CNI specification, "Error".
    """
    members: dict[str, object] = {"cniVersion": cni_version, "code": error.code, "msg": error.message}
    if error.details:
        members["details"] = error.details
    return json.dumps(members, indent=4) + "\n"


def collect_secrets(document: object) -> tuple[str, ...]:
    """The texts in decoded JSON that stand under a key like ``k8s_auth_token``; the longest first."""
    return tuple(sorted(set(_secrets_in(document)), key=lambda text: (-len(text), text)))


def _secrets_in(document: object) -> Iterator[str]:
    # No recursion: the input may be nested as deeply as the JSON decoder allows.
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        if not isinstance(value, Mapping):
            continue
        waiting.extend(value.values())
        for key, member in value.items():
            if isinstance(member, str) and member and any(word in key.lower() for word in SECRET_WORDS):
                yield member


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """A text without some secrets. They come the longest first: a secret may be part of another one."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _type_and_text(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _exception_chain(error: BaseException) -> Iterator[BaseException]:
    # A chain of exceptions may be a ring, so its length is bounded.
    for _ in range(_MAX_CHAIN_LENGTH):
        earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if earlier is None:
            return
        yield earlier
        error = earlier


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
