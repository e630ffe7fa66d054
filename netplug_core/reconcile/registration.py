"""The addresses that a node registers, its interfaces and its AS number.

``netplug_core.flows.node`` reads what these rules need, and writes what they decide. Each rule sees the
present state alone: what the kernel has, and what is stored of the node. Nothing here reads either.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias, assert_never

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix, unusable_ranges
from netplug_core.dataplane.routing import LINK_MARK, AddressState, HostAddress, HostInterface
from netplug_core.errors import ConfigurationError
from netplug_core.log import Level
from netplug_core.names import HOST_INTERFACE_PREFIX
from netplug_core.reconcile.controller import Problem
from netplug_core.reconcile.tunnels import NO_MTUS, MTUSettings
from netplug_core.resources.fields import AS_NUMBER
from netplug_core.resources.node import Node, NodeBGP, NodeInterface

__all__ = [
    "METHODS", "AddressConflict", "AddressMode", "AddressSetting", "ByInterface", "ByPrefix", "CanReach", "Choice",
    "ConfiguredAddress", "DetectionMethod", "FamilyAddress", "FamilySettings", "FirstFound", "FoundOnHost",
    "InternalAddress", "Origin", "RegistrationSettings", "SkipInterface", "TraceStep", "choose_address",
    "describe_registered", "find_conflicts", "find_lack", "find_new_addresses", "find_node_interfaces",
    "find_relevant_interfaces",
    "is_contested", "is_own_device", "parse_address_setting", "parse_method", "register_addresses", "settle_address",
    "without_conflicts",
]  # fmt: skip


# --- methods ----------------------------------------------------------------------------------------------------------

METHODS: Final = (
    "first-found",
    "interface=<expression>,...",
    "skip-interface=<expression>,...",
    "cidr=<CIDR>,...",
    "can-reach=<address or name>",
    "kubernetes-internal-ip",
)
"""How the address of a node may be detected."""


@frozen
class FirstFound:
    """The first address of an interface that is none of containers or other networks of this machine."""

    def __str__(self) -> str:
        return "first-found"


@frozen
class ByInterface:
    """The first address of an interface whose name one of the expressions is found in."""

    expressions: tuple[str, ...]

    def __str__(self) -> str:
        return f"interface={','.join(self.expressions)}"


@frozen
class SkipInterface:
    """As ``first-found``, without interfaces whose name one of the expressions is found in."""

    expressions: tuple[str, ...]

    def __str__(self) -> str:
        return f"skip-interface={','.join(self.expressions)}"


@frozen
class ByPrefix:
    """The first address that lies in one of the prefixes."""

    prefixes: tuple[Prefix, ...]

    def __str__(self) -> str:
        return f"cidr={','.join(map(str, self.prefixes))}"


@frozen
class CanReach:
    """The address that packets to a target have. ``source`` is it, as the host has said; None: ``failure`` says why."""

    target: str
    source: Address | None = None
    failure: str = "it was not looked for"

    def __str__(self) -> str:
        return f"can-reach={self.target}"


@frozen
class InternalAddress:
    """The internal address that the orchestrator's node has."""

    def __str__(self) -> str:
        return "kubernetes-internal-ip"


DetectionMethod: TypeAlias = FirstFound | ByInterface | SkipInterface | ByPrefix | CanReach | InternalAddress


def parse_method(text: str, *, variable: str) -> DetectionMethod:
    """The method that a variable names; an empty text is ``first-found``.

    Raises:
        ConfigurationError: there is no such method, or its argument cannot be used.
    """
    name, equals, rest = text.strip().partition("=")
    items = tuple(each.strip() for each in rest.split(","))
    match name, bool(equals), all(items):
        case ("" | "first-found", False, _):
            return FirstFound()
        case ("kubernetes-internal-ip", False, _):
            return InternalAddress()
        case ("interface", True, True):
            return ByInterface(_expressions(items, text, variable))
        case ("skip-interface", True, True):
            return SkipInterface(_expressions(items, text, variable))
        case ("cidr", True, True):
            return ByPrefix(_prefixes(items, text, variable))
        case ("can-reach", True, True) if len(items) == 1:
            return CanReach(items[0])
    raise ConfigurationError(variable, text, f"one of {', '.join(METHODS)} is")


def _expressions(items: tuple[str, ...], text: str, variable: str) -> tuple[str, ...]:
    for each in items:
        try:
            re.compile(each)
        except (re.error, OverflowError) as error:
            raise ConfigurationError(variable, text, f"{each} is no regular expression: {error}") from None
    return items


def _prefixes(items: tuple[str, ...], text: str, variable: str) -> tuple[Prefix, ...]:
    try:
        return tuple(InterfaceAddress.parse(each).prefix for each in items)
    except ValueError as error:
        raise ConfigurationError(variable, text, str(error)) from None


# --- the choice -------------------------------------------------------------------------------------------------------

_EXCLUDED_PREFIXES: Final = (
    "docker", "cbr", "dummy", "podman", "virbr", "lxcbr", "veth", "br-", HOST_INTERFACE_PREFIX, "tunl", "flannel",
    "kube-ipvs", "cni", "nodelocaldns",
)  # fmt: skip
_LOOPBACK: Final = "lo"
_OWN_SUFFIX: Final = f".{LINK_MARK}"


@frozen
class TraceStep:
    """One thing that was considered, an interface or an address, and what became of it."""

    subject: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.outcome}"


@frozen
class Choice:
    """The address that was chosen, None if there is none, and how."""

    address: InterfaceAddress | None
    trace: tuple[TraceStep, ...] = ()


def is_own_device(interface: HostInterface) -> bool:
    """Whether it is a tunnel device of ours."""
    return interface.alias == LINK_MARK or interface.name.endswith(_OWN_SUFFIX)


def choose_address(
    method: DetectionMethod,
    family: Family,
    interfaces: Iterable[HostInterface],
    registered: InterfaceAddress | None,
    orchestrator: Iterable[Address] = (),
) -> Choice:
    """The address of a node in a family, which so far has ``registered``; ``orchestrator`` has its internal addresses.

    One that is registered is kept as long as the method allows it, so that a new interface moves no node. Otherwise the
    interface with the highest index counts; of its addresses one with a subnet of its own, and then a primary one. The
    order of the interfaces does not matter. The length is that of the interface's prefix.
    """
    ordered = sorted(interfaces, key=lambda each: each.index, reverse=True)
    match method:
        case CanReach():
            sources = () if method.source is None else (method.source,)
            subject = f"the source of packets to {method.target}"
            return _choose_named(subject, sources, ordered, method.failure, registered)
        case InternalAddress():
            named = tuple(each for each in orchestrator if each.family is family)
            failure = f"it has no internal address of {family}"
            return _choose_named("the orchestrator's node", named, ordered, failure, registered)
        case FirstFound() | ByInterface() | SkipInterface() | ByPrefix():
            return _choose_listed(method, family, ordered, registered)
        case _:
            assert_never(method)


def _choose_named(
    subject: str,
    named: tuple[Address, ...],
    interfaces: list[HostInterface],
    failure: str,
    registered: InterfaceAddress | None,
) -> Choice:
    """The choice between addresses that are named elsewhere; their prefixes are those of the interfaces."""
    own = {each.held.address for link in interfaces if is_own_device(link) for each in link.addresses}
    allowed = tuple(each for each in named if each not in own)
    if not allowed:
        outcome = f"{named[0]} is the address of a tunnel" if named else failure
        return Choice(None, (TraceStep(subject, outcome),))
    is_kept = registered is not None and registered.address in allowed
    chosen = registered.address if registered is not None and is_kept else allowed[0]
    interface, held = _find_on_host(chosen, interfaces)
    where = f"on {interface}" if interface else "on no interface, so without a prefix"
    steps = (TraceStep(subject, str(chosen)), TraceStep(str(held), f"{'kept' if is_kept else 'chosen'}; it is {where}"))
    return Choice(held, steps)


def _find_on_host(address: Address, interfaces: Iterable[HostInterface]) -> tuple[str, InterfaceAddress]:
    """The interface that carries an address, and it with its length there; on no interface it is alone."""
    for interface in interfaces:
        for each in interface.addresses:
            if each.held.address == address:
                return interface.name, each.held
    return "", InterfaceAddress(address, address.family.width)


def _choose_listed(
    method: FirstFound | ByInterface | SkipInterface | ByPrefix,
    family: Family,
    interfaces: list[HostInterface],
    registered: InterfaceAddress | None,
) -> Choice:
    trace: list[TraceStep] = []
    allowed = tuple(_allowed(method, family, interfaces, trace))
    if registered is not None:
        for interface, each in allowed:
            if each.held.address == registered.address:
                step = TraceStep(f"{interface.name} {each.held}", "kept, as it is registered")
                return Choice(each.held, (*trace, step))
        trace.append(TraceStep(str(registered), "registered, but the method does not allow it now"))
    chosen: InterfaceAddress | None = None
    for interface, each in allowed:
        obstacle = _obstacle(interface, each)
        if chosen is None and not obstacle:
            chosen = each.held
            trace.append(TraceStep(f"{interface.name} {each.held}", "chosen"))
        else:
            trace.append(TraceStep(f"{interface.name} {each.held}", obstacle or "not needed"))
    return Choice(chosen, tuple(trace))


def _allowed(
    method: FirstFound | ByInterface | SkipInterface | ByPrefix,
    family: Family,
    interfaces: list[HostInterface],
    trace: list[TraceStep],
) -> Iterator[tuple[HostInterface, HostAddress]]:
    """The addresses that a method allows, the best first, whatever state they are in; the others go to the trace."""
    for interface in interfaces:
        refusal = _refuse_interface(method, interface)
        found = sorted((each for each in interface.addresses if each.held.address.family is family), key=_rank)
        if not found and not refusal:
            refusal = f"it has no address of {family}"
        if refusal:
            trace.append(TraceStep(interface.name, refusal))
            continue
        for each in found:
            refusal = _refuse_address(method, each)
            if refusal:
                trace.append(TraceStep(f"{interface.name} {each.held}", refusal))
            else:
                yield interface, each


def _rank(address: HostAddress) -> tuple[bool, bool]:
    """A floating address of the machine has no subnet; a secondary one is removed with the primary one."""
    held = address.held
    return held.length == held.address.family.width, address.is_secondary


def _refuse_interface(method: FirstFound | ByInterface | SkipInterface | ByPrefix, interface: HostInterface) -> str:
    """Why a method does not consider an interface; empty if it does."""
    if is_own_device(interface):
        return "a tunnel of netplug"
    match method:
        case FirstFound():
            return _refuse_usual(interface.name)
        case SkipInterface():
            return _refuse_usual(interface.name) or _refuse_match(method.expressions, interface.name)
        case ByInterface():
            has_match = any(re.search(each, interface.name) for each in method.expressions)
            return "" if has_match else f"{method} does not match"
        case ByPrefix():
            return ""
        case _:
            assert_never(method)


def _refuse_match(expressions: tuple[str, ...], name: str) -> str:
    found = next((each for each in expressions if re.search(each, name)), None)
    return "" if found is None else f"skip-interface={found} matches"


def _refuse_usual(name: str) -> str:
    """Why an interface is none that leads to other machines, by its name."""
    if name == _LOOPBACK:
        return "the loopback interface"
    prefix = next((each for each in _EXCLUDED_PREFIXES if name.startswith(each)), None)
    return "" if prefix is None else f"names with {prefix} are of containers or networks of this machine"


def _refuse_address(method: FirstFound | ByInterface | SkipInterface | ByPrefix, address: HostAddress) -> str:
    if not _is_global(address):
        return "not a global unicast address"
    if isinstance(method, ByPrefix) and not any(each.contains(address.held.address) for each in method.prefixes):
        return f"not in {', '.join(map(str, method.prefixes))}"
    return ""


def _is_global(address: HostAddress) -> bool:
    return address.is_global and not any(unusable_ranges(address.held.address.host_prefix))


def _obstacle(interface: HostInterface, address: HostAddress) -> str:
    """Why an address is not chosen now; a node that has it keeps it."""
    if not interface.is_up:
        return "the interface is down"
    match address.state:
        case AddressState.USABLE:
            return ""
        case AddressState.TENTATIVE:
            return "it is still checked for duplicates, or is one"
        case AddressState.DEPRECATED:
            return "it is deprecated"
        case _:
            assert_never(address.state)


# --- what is configured -----------------------------------------------------------------------------------------------


class AddressMode(enum.Enum):
    """What ``IP`` or ``IP6`` asks for, beside an address.

    - ``UNSET``: the stored address is kept; without one, that of IPv4 is detected, and IPv6 is not used
    - ``DETECT``: it is detected
    - ``NONE``: it is never detected; a stored one is kept
    """

    UNSET = ""
    DETECT = "autodetect"
    NONE = "none"


@frozen
class ConfiguredAddress:
    """An address that ``IP`` or ``IP6`` gives. ``length`` None: that of the interface that carries it."""

    address: Address
    length: int | None = None


AddressSetting: TypeAlias = AddressMode | ConfiguredAddress


def parse_address_setting(text: str, family: Family, *, variable: str) -> AddressSetting:
    """What a variable asks for.

    Raises:
        ConfigurationError: it is none of the words, and no address of the family that a node may have.
    """
    bare = text.strip()
    if bare in {each.value for each in AddressMode}:
        return AddressMode(bare)
    accepted = f"autodetect, none, or an {family} address, with or without the length of its prefix, is"
    try:
        held = InterfaceAddress.parse(bare)
    except ValueError:
        raise ConfigurationError(variable, text, accepted) from None
    if held.address.family is not family:
        raise ConfigurationError(variable, text, accepted)
    kind = next((word for word, _ in unusable_ranges(held.address.host_prefix)), None)
    if kind is not None:
        raise ConfigurationError(variable, text, f"it is {kind}: other nodes do not reach it")
    return ConfiguredAddress(held.address, held.length if "/" in bare else None)


@frozen
class FamilySettings:
    """How a node gets its address of a family."""

    setting: AddressSetting = AddressMode.UNSET
    method: DetectionMethod = FirstFound()

    def may_detect(self, family: Family) -> bool:
        """Whether the method may be used: IPv6 is detected only if that is asked for."""
        return self.setting is AddressMode.DETECT or (self.setting is AddressMode.UNSET and family is Family.IPV4)


_SUFFIXES: Final = {Family.IPV4: "", Family.IPV6: "6"}
_NO_NETWORKING: Final = "none"


@frozen(kw_only=True)
class RegistrationSettings:
    """What the environment says of the registration.

    ``has_addresses``: whether this node takes part in a network of netplug's at all. ``checks_conflicts``: whether
    other nodes are looked at before an address is registered.
    """

    families: Mapping[Family, FamilySettings] = field(factory=lambda: dict.fromkeys(Family, FamilySettings()))
    as_number: int | None = None
    has_addresses: bool = True
    checks_conflicts: bool = True
    mtu: MTUSettings = NO_MTUS

    @classmethod
    def parse(cls, environ: Mapping[str, str]) -> RegistrationSettings:
        """The settings of the variables ``IP``, ``IP6``, their methods, ``AS``, and those about conflicts and MTUs.

        Raises:
            ConfigurationError: one of them cannot be used.
        """
        as_number = environ.get("AS", "").strip()
        try:
            number = AS_NUMBER.decode(as_number) if as_number else None
        except ValueError as error:
            raise ConfigurationError("AS", as_number, f"{error} is") from None
        return cls(
            families={family: _parse_family(environ, family) for family in Family},
            as_number=None if number is None else int(str(number)),
            has_addresses=environ.get("NETPLUG_NETWORKING_BACKEND", "") != _NO_NETWORKING,
            checks_conflicts=environ.get("DISABLE_NODE_IP_CHECK", "").lower() != "true",
            mtu=MTUSettings.parse(environ),
        )


def _parse_family(environ: Mapping[str, str], family: Family) -> FamilySettings:
    name = f"IP{_SUFFIXES[family]}"
    method = f"{name}_AUTODETECTION_METHOD"
    return FamilySettings(
        parse_address_setting(environ.get(name, ""), family, variable=name),
        parse_method(environ.get(method, ""), variable=method),
    )


# --- what is registered -----------------------------------------------------------------------------------------------


class Origin(enum.Enum):
    """Where the address of a node is from: the environment, the stored Node, or what was detected."""

    CONFIGURED = "configured"
    STORED = "kept"
    DETECTED = "detected"


@frozen(kw_only=True)
class FoundOnHost:
    """What was found for a decision: the interfaces, and the internal addresses of the orchestrator's node."""

    interfaces: tuple[HostInterface, ...] = ()
    internal: tuple[Address, ...] = ()


@frozen(kw_only=True)
class FamilyAddress:
    """The address that a node is to have in a family, and why. ``problems`` do not keep it from being registered."""

    family: Family
    address: InterfaceAddress | None
    origin: Origin | None = None
    trace: tuple[TraceStep, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def origin_text(self) -> str:
        """Where it is from, in a word; empty if there is none."""
        return "" if self.origin is None else self.origin.value


def find_lack(addresses: Iterable[FamilyAddress]) -> Problem | None:
    """That a node has no address at all, and nothing else says so."""
    listed = tuple(addresses)
    if any(each.address is not None or each.problems for each in listed):
        return None
    return Problem(message=_NO_ADDRESS, cause="IP and IP6 ask for none, and none is stored", level=Level.ERROR)


_NO_ADDRESS: Final = "the node has no address: other nodes do not reach its pods"


def settle_address(
    settings: FamilySettings, family: Family, found: FoundOnHost, stored: InterfaceAddress | None
) -> FamilyAddress:
    """The address of a node in a family, by what is configured, found and stored."""
    setting = settings.setting
    if isinstance(setting, ConfiguredAddress):
        return _settle_configured(setting, family, found)
    is_kept = stored is not None and setting is not AddressMode.DETECT
    if is_kept or not settings.may_detect(family):
        return _settle_stored(family, found, stored)
    choice = choose_address(settings.method, family, found.interfaces, stored, found.internal)
    if choice.address is not None:
        return FamilyAddress(family=family, address=choice.address, origin=Origin.DETECTED, trace=choice.trace)
    cause = f"{settings.method} finds no {family} address"
    if stored is None:
        return FamilyAddress(
            family=family, address=None, trace=choice.trace, problems=(Problem(message=_NOT_DETECTED, cause=cause),)
        )
    return FamilyAddress(
        family=family,
        address=stored,
        origin=Origin.STORED,
        trace=(*choice.trace, TraceStep(str(stored), "kept, as nothing else is found")),
        problems=(Problem(message="the node keeps the address that is registered", cause=cause),),
    )


_NOT_DETECTED: Final = "the address of the node is not detected: other nodes do not reach its pods"


def _settle_configured(setting: ConfiguredAddress, family: Family, found: FoundOnHost) -> FamilyAddress:
    interface, carried = _find_on_host(setting.address, found.interfaces)
    held = carried if setting.length is None else InterfaceAddress(setting.address, setting.length)
    outcome = f"configured; it is on {interface}" if interface else "configured; it is on no interface"
    problems: tuple[Problem, ...] = ()
    if not interface and setting.length is None:
        cause = f"no interface has {setting.address}; give the length of its prefix too"
        problems = (Problem(message="no node counts as being in the subnet of this one", cause=cause),)
    return FamilyAddress(
        family=family,
        address=held,
        origin=Origin.CONFIGURED,
        trace=(TraceStep(str(held), outcome),),
        problems=problems,
    )


def _settle_stored(family: Family, found: FoundOnHost, stored: InterfaceAddress | None) -> FamilyAddress:
    if stored is None:
        return FamilyAddress(family=family, address=None, trace=(TraceStep(str(family), "not asked for"),))
    interface, _ = _find_on_host(stored.address, found.interfaces)
    outcome = f"kept, as it is registered; it is on {interface or 'no interface'}"
    problems: tuple[Problem, ...] = ()
    if not interface:
        cause = f"{stored} is registered, and no interface of this host has it"
        problems = (Problem(message="the registered address of the node is not on this host", cause=cause),)
    return FamilyAddress(
        family=family,
        address=stored,
        origin=Origin.STORED,
        trace=(TraceStep(str(stored), outcome),),
        problems=problems,
    )


def find_node_interfaces(interfaces: Iterable[HostInterface]) -> tuple[NodeInterface, ...]:
    """What a Node says of its interfaces: those that lead to other machines, with their addresses, sorted by name."""
    return tuple(
        NodeInterface(name=interface.name, addresses=addresses)
        for interface in sorted(interfaces, key=lambda each: each.name)
        if not is_own_device(interface) and not _refuse_usual(interface.name)
        if (addresses := _usual_addresses(interface))
    )


def _usual_addresses(interface: HostInterface) -> tuple[Address, ...]:
    usable = (each for each in interface.addresses if _is_global(each) and each.state is not AddressState.TENTATIVE)
    return tuple(sorted({each.held.address for each in usable}))


def find_relevant_interfaces(interfaces: Iterable[HostInterface]) -> tuple[HostInterface, ...]:
    """The interfaces whose change may change what is registered: not those of pods, which come and go."""
    return tuple(
        interface
        for interface in interfaces
        if not is_own_device(interface) and not interface.name.startswith(HOST_INTERFACE_PREFIX)
        if not _refuse_usual(interface.name) or any(map(_is_global, interface.addresses))
    )


def register_addresses(
    node: Node,
    addresses: Iterable[FamilyAddress],
    interfaces: tuple[NodeInterface, ...],
    as_number: int | None,
) -> Node:
    """The Node with these addresses and interfaces, and with the AS number if there is one. The rest stays."""
    bgp = node.spec.bgp or NodeBGP()
    by_family = {each.family: each.address for each in addresses}
    bgp = evolve(
        bgp,
        ipv4_address=by_family.get(Family.IPV4, bgp.ipv4_address),
        ipv6_address=by_family.get(Family.IPV6, bgp.ipv6_address),
        as_number=bgp.as_number if as_number is None else as_number,
    )
    spec = evolve(node.spec, bgp=None if bgp == NodeBGP() else bgp, interfaces=interfaces)
    return evolve(node, spec=spec)


# --- conflicts --------------------------------------------------------------------------------------------------------


@frozen
class AddressConflict:
    """Another node has the address that this one is about to register."""

    wanted: FamilyAddress
    node: str

    @property
    def is_configured(self) -> bool:
        """Whether a person has given the address to this node, and so has to change it."""
        return self.wanted.origin is Origin.CONFIGURED

    @property
    def problem(self) -> Problem:
        """That the address is not registered. A person has to act; a node goes on with what it has."""
        return Problem(
            message=f"the {self.wanted.origin_text} {self.wanted.family} address is not registered",
            cause=str(self),
            level=Level.ERROR,
            event="AddressConflict",
        )

    def __str__(self) -> str:
        held = self.wanted.address
        return f"the node {self.node} has the address {None if held is None else held.address}"


def find_new_addresses(node: Node, wanted: Iterable[FamilyAddress]) -> tuple[FamilyAddress, ...]:
    """What would be new to a node. What another one has already is a conflict then.

    So of two nodes it is the later one that goes without, also after both were started again.
    """
    return tuple(each for each in wanted if each.address is not None and each.address != node.find_address(each.family))


def find_conflicts(node: Node, wanted: Iterable[FamilyAddress], nodes: Iterable[Node]) -> tuple[AddressConflict, ...]:
    """The other nodes that have an address which would be new to this node.

    Two that register one in the same instant do not see each other, and both have it afterwards. Then the one with the
    higher name is in conflict, and gives it back.
    """
    owners: dict[Address, str] = {}
    for other in sorted(nodes, key=lambda each: each.metadata.name):
        if other.metadata.name == node.metadata.name:
            continue
        for family in Family:
            held = other.find_address(family)
            if held is not None:
                owners.setdefault(held.address, other.metadata.name)
    listed = tuple(wanted)
    new, conflicts = find_new_addresses(node, listed), list[AddressConflict]()
    for each in listed:
        owner = None if each.address is None else owners.get(each.address.address)
        if owner is not None and (each in new or owner < node.metadata.name):
            conflicts.append(AddressConflict(each, owner))
    return tuple(conflicts)


def is_contested(node: Node, nodes: Iterable[Node]) -> bool:
    """Whether a node with a lower name has an address that this one has registered too."""
    own = {held.address for family in Family if (held := node.find_address(family)) is not None}
    return any(
        held is not None and held.address in own
        for other in nodes
        if other.metadata.name < node.metadata.name
        for held in map(other.find_address, Family)
    )


def without_conflicts(
    node: Node, addresses: Iterable[FamilyAddress], conflicts: Iterable[AddressConflict]
) -> tuple[FamilyAddress, ...]:
    """What is registered all the same: of a configured address the one that is stored, of a detected one none.

    A detected address replaces one that is gone from the host: that one is free then.
    """
    in_conflict = {conflict.wanted.family: conflict for conflict in conflicts}
    kept: list[FamilyAddress] = []
    for each in addresses:
        conflict = in_conflict.get(each.family)
        if conflict is None:
            kept.append(each)
            continue
        stored = node.find_address(each.family) if conflict.is_configured else None
        stored = None if stored == each.address else stored
        trace = (*each.trace, TraceStep(str(each.address), f"not registered: {conflict}"))
        kept.append(evolve(each, address=stored, origin=None if stored is None else Origin.STORED, trace=trace))
    return tuple(kept)


# --- another node -----------------------------------------------------------------------------------------------------


def describe_registered(node: Node, nodes: Iterable[Node]) -> tuple[tuple[FamilyAddress, ...], tuple[Problem, ...]]:
    """The addresses that a node has registered, by what is stored of it alone, and what is wrong with them.

    How they were chosen is known on the node; the trace has what it has registered of its interfaces.
    """
    addresses = tuple(_describe_address(node, family) for family in Family)
    problems = [] if any(each.address is not None for each in addresses) else [_NOTHING_REGISTERED]
    for other in sorted(nodes, key=lambda each: each.metadata.name):
        for each in addresses if other.metadata.name != node.metadata.name else ():
            held = other.find_address(each.family)
            if held is not None and each.address is not None and held.address == each.address.address:
                cause = f"the node {other.metadata.name} has the address {held.address}"
                problems.append(Problem(message="two nodes have the same address", cause=cause, level=Level.ERROR))
    return addresses, tuple(problems)


_NOTHING_REGISTERED: Final = Problem(
    message=_NO_ADDRESS, cause="its node process has registered none: see what it logs", level=Level.ERROR
)


def _describe_address(node: Node, family: Family) -> FamilyAddress:
    held = node.find_address(family)
    trace = tuple(
        TraceStep(f"{interface.name} {address}", "registered" if is_chosen else "not chosen")
        for interface in node.spec.interfaces
        for address in interface.addresses
        if address.family is family
        for is_chosen in (held is not None and address == held.address,)
    )
    if held is not None and not any(step.outcome == "registered" for step in trace):
        trace = (*trace, TraceStep(str(held), "on no interface that the node has registered"))
    return FamilyAddress(family=family, address=held, trace=trace)
