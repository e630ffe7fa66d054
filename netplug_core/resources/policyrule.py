"""The rules of policies and profiles: their value, their members, and what a user may ask of them.

``networkpolicy`` and ``profile`` hold lists of them; ``netplug_core.policy`` says which packets they match. A stored
rule may be one of a newer release. A member of it that cannot be read is no reason to lose the rule: it is kept with
the unknown ones, and ``PolicyRule.as_enforced`` says what is left, which never allows more than what was meant.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Final, Never, TypeAlias

from attrs import evolve, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.decoding.codecs import PREFIX, TEXT, TEXT_MAP, Codec, Refused, codec_of, enum_codec, limited
from netplug_core.decoding.tables import Keeps, ListOf, collect_unknown, json_object, member
from netplug_core.errors import did_you_mean
from netplug_core.names import is_resource_name
from netplug_core.resources.fields import (
    MAX_PORT,
    MAX_SELECTOR_LENGTH,
    NAME_LIMITS,
    WORD_PATTERN,
    FieldError,
    Labels,
    PortRange,
    integer_between,
    validate_selector,
)
from netplug_core.selectors import parse

__all__ = [
    "DENY_EVERYTHING", "MAX_RULES", "NET", "NOT_SUPPORTED", "PORT_MATCH", "PROTOCOLS_WITH_PORTS", "PROTOCOL_NUMBERS",
    "RULE_SELECTOR", "EntityRule", "ICMPMatch", "PolicyRule", "PortMatch", "PortName", "Protocol", "RuleAction",
    "RuleMetadata", "ServiceAccountMatch", "enforced_rules", "not_supported", "validate_endpoint_selector",
    "validate_rules",
]  # fmt: skip


# --- values of members ------------------------------------------------------------------------------------------------


class RuleAction(enum.Enum):
    """What happens to a packet that a rule matches. After ``LOG`` the next rules are asked.

    ``PASS`` leaves a tier. There is one tier, so no user can write it.
    """

    ALLOW = "Allow"
    DENY = "Deny"
    LOG = "Log"
    PASS = "Pass"  # noqa: S105  # no password


_SUPPORTED_ACTIONS: Final = tuple(each for each in RuleAction if each is not RuleAction.PASS)
_ANY_ACTION: Final = enum_codec(RuleAction)


def _read_action(value: object) -> object:
    words = [each.value for each in _SUPPORTED_ACTIONS]
    if value in words:
        return RuleAction(value)
    no_tier = "there is one tier, so there is nothing to pass to" if value == RuleAction.PASS.value else ""
    meant = did_you_mean(value, words) if isinstance(value, str) else ""
    raise Refused(f"one of {', '.join(words)}", reason=no_tier or meant)


_ACTION: Final = Codec(
    _read_action,
    _ANY_ACTION.encode,
    decode_stored=_ANY_ACTION.decode,
    schema={"type": "string", "enum": [each.value for each in _SUPPORTED_ACTIONS]},
)


def not_supported(what: str) -> Codec[Never]:
    """What refuses a member that other programs have and this release has not; ``what`` says why.

    A stored one is unreadable, so that it is kept as unknown where the object keeps what it cannot read.
    """

    def decode(value: object) -> Never:
        del value
        raise Refused("nothing", reason=what)

    return Codec(decode, schema={"type": "object"})


PROTOCOL_NUMBERS: Final = {"ICMP": 1, "TCP": 6, "UDP": 17, "ICMPv6": 58, "SCTP": 132, "UDPLite": 136}
"""The protocols that rules have names for, and their numbers."""

_NAME_OF_PROTOCOL: Final = {number: name for name, number in PROTOCOL_NUMBERS.items()}
_MAX_PROTOCOL: Final = 255


@frozen(order=True)
class Protocol:
    """A protocol above IP, by its number (IANA's "Protocol Numbers"). Its text is the name that rules have for it."""

    number: int

    def __str__(self) -> str:
        return _NAME_OF_PROTOCOL.get(self.number, str(self.number))


def _read_protocol(value: object) -> Protocol:
    number = PROTOCOL_NUMBERS.get(value, 0) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MAX_PROTOCOL:
        meant = did_you_mean(value, PROTOCOL_NUMBERS) if isinstance(value, str) else ""
        raise Refused(f"one of {', '.join(PROTOCOL_NUMBERS)}, or a number from 1 to {_MAX_PROTOCOL}", reason=meant)
    return Protocol(number)


def _write_protocol(protocol: Protocol) -> str | int:
    return _NAME_OF_PROTOCOL.get(protocol.number, protocol.number)


_PROTOCOL_SCHEMA: Final = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": f"^({'|'.join(PROTOCOL_NUMBERS)})$",
    "minimum": 1,
    "maximum": _MAX_PROTOCOL,
}
_PROTOCOL: Final = codec_of(_read_protocol, _write_protocol, schema=_PROTOCOL_SCHEMA)

TCP: Final = Protocol(PROTOCOL_NUMBERS["TCP"])
UDP: Final = Protocol(PROTOCOL_NUMBERS["UDP"])
SCTP: Final = Protocol(PROTOCOL_NUMBERS["SCTP"])
PROTOCOLS_WITH_PORTS: Final = frozenset({TCP, UDP, SCTP})
"""The protocols whose ports a rule can name."""

_ICMP_FAMILY: Final = {
    Protocol(PROTOCOL_NUMBERS["ICMP"]): Family.IPV4,
    Protocol(PROTOCOL_NUMBERS["ICMPv6"]): Family.IPV6,
}


@frozen
class PortName:
    """A port by the name that the endpoint it belongs to has for it; each endpoint has a number of its own."""

    name: str

    def __str__(self) -> str:
        return self.name


PortMatch: TypeAlias = PortRange | PortName
"""A port or several, by number, or one by name."""

_PORT_TEXT: Final = re.compile("([0-9]{1,5})(?::([0-9]{1,5}))?")
_PORT_ACCEPTED: Final = f"a port up to {MAX_PORT}, two with ':' between, such as 8080:8090, or the name of a port"


def _read_port_match(value: object) -> PortMatch:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Refused(_PORT_ACCEPTED)
    text = str(value)
    numbers = _PORT_TEXT.fullmatch(text)
    if numbers is None:
        if not re.fullmatch(WORD_PATTERN, text, re.ASCII) or isinstance(value, int):
            raise Refused(_PORT_ACCEPTED)
        return PortName(text)
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if not first <= last <= MAX_PORT:
        raise Refused(_PORT_ACCEPTED)
    return PortRange(first, last)


def _write_port_match(value: PortMatch) -> str | int:
    match value:
        case PortRange(first=first, last=last) if first == last:
            return first
        case found:
            return str(found)


PORT_MATCH: Final = codec_of(
    _read_port_match,
    _write_port_match,
    schema={
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "minimum": 0,
        "maximum": MAX_PORT,
        "pattern": f"^(([0-9]{{1,5}}:)?{WORD_PATTERN})$",
    },
)
"""A port, ``first:last``, or the name of a port."""


def _read_family(value: object) -> Family:
    for family in Family:
        if value == family.value and not isinstance(value, bool | float):
            return family
    raise Refused("4 or 6")


_FAMILY: Final = codec_of(_read_family, lambda family: family.value, schema={"type": "integer", "enum": [4, 6]})


def _read_stored_net(value: object) -> Prefix:
    try:
        return Prefix.enclosing(TEXT.decode(value))
    except ValueError:
        raise Refused("a CIDR or an IP address") from None


NET: Final = Codec(PREFIX.decode, str, decode_stored=_read_stored_net, schema={"type": "string"})
"""A prefix, or an address, which is one of a single address. Host bits of a stored one mean nothing."""


def _read_stored_selector(value: object) -> str:
    text = TEXT.decode(value)
    parse(text)
    return text


RULE_SELECTOR: Final = Codec(
    TEXT.decode, decode_stored=_read_stored_selector, schema={**TEXT.schema, "maxLength": MAX_SELECTOR_LENGTH}
)
"""A selector as text. A stored one that is none is unreadable; one that a user wrote breaks a rule of its kind."""


# --- rules ------------------------------------------------------------------------------------------------------------


MAX_RULES: Final = 1024
_MAX_PREFIXES: Final = 256
_MAX_PORTS: Final = 50
_MAX_NAMES: Final = 256
_MAX_BYTE: Final = 255


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class ICMPMatch:
    """ICMP packets of a type, and of a code if one is given."""

    type: int | None = field(default=None, metadata=member("type", integer_between(0, _MAX_BYTE), "the type"))
    code: int | None = field(
        default=None, metadata=member("code", integer_between(0, _MAX_BYTE), "the code; needs type")
    )
    unknown_json: str = ""


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class ServiceAccountMatch:
    """Pods that run with one of these service accounts: one of the names, and one that the selector selects."""

    # fmt: off
    names: tuple[str, ...] = field(default=(), metadata=member("names", ListOf(limited(TEXT, **NAME_LIMITS)),
        "names of service accounts; any unless given", limits={"maxItems": _MAX_NAMES}))
    selector: str = field(default="", metadata=member("selector", RULE_SELECTOR,
        "service accounts by their labels; any unless given"))
    # fmt: on
    unknown_json: str = ""


NOT_SUPPORTED: Final[Mapping[str, str]] = {
    "services": "rules that name Services are not supported yet: name the pods behind them, by a selector",
    "http": "rules about HTTP are not supported: packets are judged by addresses, protocols and ports",
}
"""The members of rules that are refused by name, and why."""


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class EntityRule:
    """One end of a packet. Everything that is given must match; what is not given matches everything.

    An address matches ``nets`` if it lies in one of them. ``selector`` matches known endpoints only; ``not_selector``
    matches everything else in the world too. ``namespace_selector`` and ``service_accounts`` restrict ``selector``.
    ``services`` is never set.
    """

    # fmt: off
    nets: tuple[Prefix, ...] = field(default=(), metadata=member("nets", ListOf(NET),
        "addresses, of which one must match", limits={"maxItems": _MAX_PREFIXES}))
    not_nets: tuple[Prefix, ...] = field(default=(), metadata=member("notNets", ListOf(NET),
        "addresses, of which none may match", limits={"maxItems": _MAX_PREFIXES}))
    selector: str = field(default="", metadata=member("selector", RULE_SELECTOR,
        "endpoints by their labels; in a namespaced policy those of its namespace, unless namespaceSelector is given"))
    not_selector: str = field(default="", metadata=member("notSelector", RULE_SELECTOR,
        "what no endpoint that matches has; also matches addresses of no endpoint"))
    namespace_selector: str = field(default="", metadata=member("namespaceSelector", RULE_SELECTOR,
        "endpoints by the labels of their namespace; all() for any namespace, global() for those without one"))
    service_accounts: ServiceAccountMatch | None = field(default=None, metadata=member("serviceAccounts",
        ServiceAccountMatch, "endpoints by the service account of their pod"))
    ports: tuple[PortMatch, ...] = field(default=(), metadata=member("ports", ListOf(PORT_MATCH),
        "ports, of which one must match; needs protocol TCP, UDP or SCTP", limits={"maxItems": _MAX_PORTS}))
    not_ports: tuple[PortMatch, ...] = field(default=(), metadata=member("notPorts", ListOf(PORT_MATCH),
        "ports, of which none may match; needs protocol TCP, UDP or SCTP", limits={"maxItems": _MAX_PORTS}))
    services: None = field(default=None, metadata=member("services", not_supported(NOT_SUPPORTED["services"]),
        "not supported"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class RuleMetadata:
    """Notes about a rule, which match nothing."""

    # fmt: off
    annotations: Labels = field(default=(), metadata=member("annotations", TEXT_MAP,
        "names and texts for people and programs"))
    # fmt: on
    unknown_json: str = ""


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class PolicyRule:
    """One rule: what happens to the packets that match everything that is given.

    ``action`` is None only in a stored rule, whose action this release does not know. ``http`` is never set.
    """

    # fmt: off
    action: RuleAction | None = field(default=None, metadata=member("action", _ACTION,
        "what happens to a packet that matches: Allow, Deny, or Log, after which the next rules are asked",
        is_required=True))
    family: Family | None = field(default=None, metadata=member("ipVersion", _FAMILY,
        "the IP version: 4 or 6; any unless given"))
    protocol: Protocol | None = field(default=None, metadata=member("protocol", _PROTOCOL,
        "the protocol, by name or number; any unless given"))
    not_protocol: Protocol | None = field(default=None, metadata=member("notProtocol", _PROTOCOL,
        "a protocol that does not match"))
    icmp: ICMPMatch | None = field(default=None, metadata=member("icmp", ICMPMatch,
        "ICMP packets that match; needs protocol ICMP or ICMPv6"))
    not_icmp: ICMPMatch | None = field(default=None, metadata=member("notICMP", ICMPMatch,
        "ICMP packets that do not match; needs protocol ICMP or ICMPv6"))
    source: EntityRule = field(default=EntityRule(), metadata=member("source", EntityRule,
        "where the packet comes from"))
    destination: EntityRule = field(default=EntityRule(), metadata=member("destination", EntityRule,
        "where the packet goes to"))
    metadata: RuleMetadata | None = field(default=None, metadata=member("metadata", RuleMetadata,
        "notes about the rule"))
    http: None = field(default=None, metadata=member("http", not_supported(NOT_SUPPORTED["http"]), "not supported"))
    # fmt: on
    unknown_json: str = ""

    @property
    def not_supported(self) -> tuple[str, ...]:
        """The paths of what this release does not know of a stored rule, or cannot read; notes do not count."""
        unknown = tuple(path for path in collect_unknown(self) if not path.startswith("metadata."))
        return ("action", *unknown) if self.action is RuleAction.PASS else unknown

    def as_enforced(self) -> PolicyRule | None:
        """The rule that counts; None if the rule matches nothing.

        A rule that denies, or whose action is not known, denies everything that its known members match. Any other rule
        with a member that is not known matches nothing.
        """
        if self.action is RuleAction.DENY:
            return self
        if self.action is None:
            return evolve(self, action=RuleAction.DENY)
        return None if self.not_supported else self


DENY_EVERYTHING: Final = PolicyRule(action=RuleAction.DENY)
"""What stands for a list of rules that cannot be read."""


def enforced_rules(rules: tuple[PolicyRule, ...], *, is_readable: bool = True) -> tuple[tuple[int, PolicyRule], ...]:
    """The rules that count, each with its position in the list as it was written; a list may be unreadable."""
    if not is_readable:
        return ((0, DENY_EVERYTHING),)
    found = ((position, rule.as_enforced()) for position, rule in enumerate(rules))
    return tuple((position, rule) for position, rule in found if rule is not None)


# --- what a user may ask for ------------------------------------------------------------------------------------------


_PORTS_RULE: Final = "needs protocol TCP, UDP or SCTP"
_GLOBAL: Final = "global()"


def validate_rules(field: str, rules: tuple[PolicyRule, ...]) -> Iterator[FieldError]:
    """What is wrong with the rules of one direction; ``field`` is the member that holds them."""
    if len(rules) > MAX_RULES:
        yield FieldError(field, len(rules), f"must be at most {MAX_RULES} rules")
    for index, rule in enumerate(rules):
        yield from _validate_rule(f"{field}[{index}]", rule)


def _validate_rule(field: str, rule: PolicyRule) -> Iterator[FieldError]:
    yield from _validate_icmp(field, rule)
    yield from _validate_families(field, rule)
    for name, entity in (("source", rule.source), ("destination", rule.destination)):
        yield from _validate_entity(f"{field}.{name}", entity, rule)


def _validate_icmp(field: str, rule: PolicyRule) -> Iterator[FieldError]:
    for name, icmp in (("icmp", rule.icmp), ("notICMP", rule.not_icmp)):
        if icmp is None:
            continue
        if rule.protocol not in _ICMP_FAMILY:
            yield FieldError(f"{field}.{name}", rule.protocol or "", "needs protocol ICMP or ICMPv6")
        if icmp.code is not None and icmp.type is None:
            yield FieldError(f"{field}.{name}.code", icmp.code, "needs type")


def _validate_families(field: str, rule: PolicyRule) -> Iterator[FieldError]:
    """The IP version, the protocol and the prefixes are of one family; a rule of two can match no packet."""
    wanted = rule.family
    if rule.protocol in _ICMP_FAMILY and rule.protocol is not None:
        family = _ICMP_FAMILY[rule.protocol]
        if wanted not in (None, family):
            yield FieldError(f"{field}.ipVersion", rule.family, f"protocol {rule.protocol} is of {family}")
        wanted = wanted or family
    for end, entity in (("source", rule.source), ("destination", rule.destination)):
        for name, prefixes in (("nets", entity.nets), ("notNets", entity.not_nets)):
            for index, prefix in enumerate(prefixes):
                wanted = wanted or prefix.family
                if prefix.family is not wanted:
                    text = f"must be a prefix of {wanted}, like the rest of the rule; write a rule for each IP version"
                    yield FieldError(f"{field}.{end}.{name}[{index}]", prefix, text)


def _validate_entity(field: str, entity: EntityRule, rule: PolicyRule) -> Iterator[FieldError]:
    for name, prefixes in (("nets", entity.nets), ("notNets", entity.not_nets)):
        if len(prefixes) > _MAX_PREFIXES:
            yield FieldError(f"{field}.{name}", len(prefixes), f"must be at most {_MAX_PREFIXES} prefixes")
    for name, ports in (("ports", entity.ports), ("notPorts", entity.not_ports)):
        if ports and rule.protocol not in PROTOCOLS_WITH_PORTS:
            yield FieldError(f"{field}.{name}", ", ".join(str(_write_port_match(port)) for port in ports), _PORTS_RULE)
        if len(ports) > _MAX_PORTS:
            yield FieldError(f"{field}.{name}", len(ports), f"must be at most {_MAX_PORTS} ports")
    for name, selector in (("selector", entity.selector), ("notSelector", entity.not_selector)):
        yield from validate_endpoint_selector(f"{field}.{name}", selector)
    if entity.namespace_selector.strip() != _GLOBAL:
        rule_text = "global() cannot be combined with anything else"
        yield from validate_selector(f"{field}.namespaceSelector", entity.namespace_selector, no_global=rule_text)
    if entity.service_accounts is not None:
        yield from _validate_accounts(f"{field}.serviceAccounts", entity.service_accounts)


def _validate_accounts(field: str, accounts: ServiceAccountMatch) -> Iterator[FieldError]:
    yield from validate_endpoint_selector(f"{field}.selector", accounts.selector)
    for index, account in enumerate(accounts.names):
        if not is_resource_name(account):
            yield FieldError(f"{field}.names[{index}]", account, "must be the name of a service account")


def validate_endpoint_selector(field: str, text: str) -> Iterator[FieldError]:
    """What is wrong with a selector of endpoints or service accounts, or of the namespaces that a policy is for."""
    return validate_selector(field, text, no_global="global() can only be used in the namespaceSelector of a rule")
