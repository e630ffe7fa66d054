"""What becomes of a packet on a node, and why: what the rules in the kernel do, as a function.

``netplugctl policy explain`` shows the trace; tests compare the dataplane with the decision. The order of the steps is
that of the hooks: first the source of packets from a workload, then egress of the sender, then ingress of the receiver.
The packets between nodes that carry those of tunnels are not judged here: they belong to the routes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, TypeAlias

from attrs import define, field

from netplug_core.addressing import Address, Prefix
from netplug_core.policy.model import (
    ALL_INTERFACES,
    ICMP,
    ICMP_V6,
    UDP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    ConnectionState,
    Decision,
    Direction,
    Failsafe,
    ICMPMatch,
    LocalEndpoint,
    Match,
    MemberSet,
    Packet,
    PeerMatch,
    PolicyId,
    PolicyState,
    PortMember,
    Reason,
    SetId,
    SetType,
    TraceStep,
    Verdict,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction

__all__ = ["LOOPBACK", "evaluate", "is_neighbour_message"]

LOOPBACK: Final = "lo"
"""The interface of packets that never leave the host."""

_IPIP: Final = 4
# Source: RFC 4861 section 4, RFC 2710 section 3, RFC 3810 section 5.
_NEIGHBOUR_TYPES: Final = frozenset((130, 131, 132, 133, 134, 135, 136, 137, 143))
_OF_ROUTERS: Final = frozenset((134, 137))  # advertisements and redirects, which a workload may not send
_LINK_LOCAL: Final = Prefix.parse("fe80::/10")
_UNSPECIFIED: Final = Address.parse("::")
_TRACKED: Final = {
    ConnectionState.ESTABLISHED: (Reason.CONNECTION_ALLOWED, Decision.ALLOW),
    ConnectionState.RELATED: (Reason.CONNECTION_ALLOWED, Decision.ALLOW),
    ConnectionState.INVALID: (Reason.CONNECTION_INVALID, Decision.DROP),
}

_Steps: TypeAlias = Generator[TraceStep, None, bool]
"""The steps of a part of the way, and whether the packet goes on after it."""


def evaluate(packet: Packet, state: PolicyState) -> Verdict:
    """What the node does with a packet, by what it enforces."""
    trace = tuple(_Evaluation(packet, state).steps())
    decision = trace[-1].decision
    return Verdict(decision=Decision.ALLOW if decision is None else decision, trace=trace)


def is_neighbour_message(packet: Packet) -> bool:
    """Whether it is one of the ICMPv6 messages without which no link works."""
    return packet.protocol == ICMP_V6 and packet.icmp_type in _NEIGHBOUR_TYPES


def _is_neighbour_message_of_workload(packet: Packet) -> bool:
    return is_neighbour_message(packet) and packet.icmp_type not in _OF_ROUTERS


def _is_from_link(packet: Packet) -> bool:
    """Whether the source is one that is only for such messages; they may also come from an address of the sender."""
    return packet.source == _UNSPECIFIED or _LINK_LOCAL.contains(packet.source)


@define(eq=False)
class _Evaluation:
    """One packet, and what the node enforces, by identity."""

    packet: Packet
    state: PolicyState
    policies: dict[PolicyId, ActivePolicy] = field(init=False)
    profiles: dict[str, ActiveProfile] = field(init=False)
    sets: dict[SetId, MemberSet] = field(init=False)
    sender: LocalEndpoint | None = field(init=False)
    receiver: LocalEndpoint | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.policies = {each.id: each for each in self.state.policies}
        self.profiles = {each.name: each for each in self.state.profiles}
        self.sets = {each.id: each for each in self.state.sets}
        endpoints = {each.interface: each for each in self.state.endpoints}
        self.sender = endpoints.get(self.packet.input_interface)
        self.receiver = endpoints.get(self.packet.output_interface)

    # --- the way of the packet ----------------------------------------------------------------------------------------

    def steps(self) -> Iterator[TraceStep]:
        """All steps; the last has the decision."""
        packet = self.packet
        is_from_workload = self._is_workload(packet.input_interface)
        if is_from_workload and not (yield from self._guard_source()):
            return
        if not packet.input_interface:
            yield from self._from_host()
        elif not packet.output_interface:
            yield from self._to_host(is_from_workload=is_from_workload)
        else:
            yield from self._forwarded(is_from_workload=is_from_workload)

    def _is_workload(self, interface: str) -> bool:
        return interface.startswith(tuple(self.state.settings.interface_prefix.split(",")))

    def _guard_source(self) -> _Steps:
        """The sender uses an address of its own."""
        packet, sender = self.packet, self.sender
        if _is_neighbour_message_of_workload(packet) and _is_from_link(packet):
            return True
        if sender is None:
            yield TraceStep(reason=Reason.UNKNOWN_INTERFACE, decision=Decision.DROP, endpoint=packet.input_interface)
        elif not _has_address(sender, packet.source):
            yield TraceStep(reason=Reason.SPOOFED_SOURCE, decision=Decision.DROP, endpoint=str(sender.id))
        else:
            return True
        return False

    def _forwarded(self, *, is_from_workload: bool) -> Iterator[TraceStep]:
        packet = self.packet
        is_to_workload = self._is_workload(packet.output_interface)
        if not (is_from_workload or is_to_workload):
            yield TraceStep(reason=Reason.NOT_JUDGED, decision=Decision.ALLOW)
            return
        if not (yield from self._track()):
            return
        if is_from_workload and not (yield from self._leave()):
            return
        if is_to_workload:
            yield from self._arrive()

    def _leave(self) -> _Steps:
        """The sender may send it."""
        packet, sender = self.packet, self.sender
        if sender is None:
            yield TraceStep(reason=Reason.UNKNOWN_INTERFACE, decision=Decision.DROP, endpoint=packet.input_interface)
            return False
        if packet.input_interface == packet.output_interface:
            yield TraceStep(reason=Reason.SELF, decision=Decision.ALLOW, endpoint=str(sender.id))
            return False
        if self._is_wrapped():
            yield TraceStep(
                reason=Reason.WRAPPED, decision=Decision.DROP, direction=Direction.EGRESS, endpoint=str(sender.id)
            )
            return False
        return (yield from self._judge(sender, str(sender.id), Direction.EGRESS))

    def _arrive(self) -> Iterator[TraceStep]:
        """The receiver may get it."""
        packet, receiver = self.packet, self.receiver
        if receiver is None:
            yield TraceStep(reason=Reason.UNKNOWN_INTERFACE, decision=Decision.DROP, endpoint=packet.output_interface)
        elif not _has_address(receiver, packet.destination):
            yield TraceStep(reason=Reason.OTHER_DESTINATION, decision=Decision.DROP, endpoint=str(receiver.id))
        else:
            yield from self._judge(receiver, str(receiver.id), Direction.INGRESS)

    def _to_host(self, *, is_from_workload: bool) -> Iterator[TraceStep]:
        settings = self.state.settings
        if is_from_workload:
            if not (yield from self._track()):
                return
            if _is_neighbour_message_of_workload(self.packet):
                yield TraceStep(reason=Reason.NEIGHBOUR_DISCOVERY, decision=Decision.ALLOW)
            elif (yield from self._leave()):
                is_closed = settings.endpoint_to_host is EndpointToHostAction.DROP
                yield TraceStep(reason=Reason.ENDPOINT_TO_HOST, decision=Decision.DENY if is_closed else Decision.ALLOW)
            return
        yield from self._host_endpoint(
            self.packet.input_interface, Direction.INGRESS, settings.inbound_failsafes, self.packet.source
        )

    def _from_host(self) -> Iterator[TraceStep]:
        interface = self.packet.output_interface
        if self._is_workload(interface):
            yield TraceStep(reason=Reason.FROM_HOST, decision=Decision.ALLOW)
        else:
            failsafes = self.state.settings.outbound_failsafes
            yield from self._host_endpoint(interface, Direction.EGRESS, failsafes, self.packet.destination)

    def _host_endpoint(
        self, interface: str, direction: Direction, failsafes: Iterable[Failsafe], other_end: Address
    ) -> Iterator[TraceStep]:
        """The host endpoint that governs the interface lets it pass."""
        if interface in ("", LOOPBACK):
            yield TraceStep(reason=Reason.LOOPBACK, decision=Decision.ALLOW)
            return
        if is_neighbour_message(self.packet):
            yield TraceStep(reason=Reason.NEIGHBOUR_DISCOVERY, decision=Decision.ALLOW)
            return
        by_interface = {each.interface: each for each in self.state.host_endpoints}
        endpoint = by_interface.get(interface, by_interface.get(ALL_INTERFACES))
        if endpoint is None:
            yield TraceStep(reason=Reason.NOT_JUDGED, decision=Decision.ALLOW)
        elif (yield from self._track()):
            if any(self._is_failsafe(each, other_end) for each in failsafes):
                yield TraceStep(
                    reason=Reason.FAILSAFE, decision=Decision.ALLOW, direction=direction, endpoint=endpoint.name
                )
            else:
                yield from self._judge(endpoint, endpoint.name, direction)

    # --- single steps -------------------------------------------------------------------------------------------------

    def _track(self) -> _Steps:
        """Connection tracking leaves the decision to the policies."""
        packet = self.packet
        is_evaluated = packet.connection is ConnectionState.INVALID and self.state.settings.is_invalid_evaluated
        if packet.connection not in _TRACKED or is_evaluated:
            return True
        reason, decision = _TRACKED[packet.connection]
        yield TraceStep(reason=reason, decision=decision)
        return False

    def _is_wrapped(self) -> bool:
        packet, settings = self.packet, self.state.settings
        is_vxlan = packet.protocol == UDP and packet.destination_port == settings.vxlan_port
        return (is_vxlan and not settings.allows_vxlan) or (packet.protocol == _IPIP and not settings.allows_ipip)

    def _is_failsafe(self, port: Failsafe, other_end: Address) -> bool:
        is_port = port.protocol == self.packet.protocol and port.port == self.packet.destination_port
        return is_port and (port.net is None or port.net.contains(other_end))

    def _judge(self, endpoint: LocalEndpoint | ActiveHostEndpoint, name: str, direction: Direction) -> _Steps:
        """The policies of a direction allow it, or if there are none, the profiles."""
        is_ingress = direction is Direction.INGRESS
        policies = [self.policies[each] for each in (endpoint.ingress if is_ingress else endpoint.egress)]
        asked: Iterable[ActivePolicy | ActiveProfile] = policies or [self.profiles[each] for each in endpoint.profiles]
        for each in asked:
            for rule in each.ingress if is_ingress else each.egress:
                if not any(self._holds(match) for match in rule.matches):
                    continue
                if rule.action is Action.LOG:
                    yield TraceStep(reason=Reason.LOG_RULE, direction=direction, endpoint=name, rule=rule.name)
                    continue
                is_allowed = rule.action is Action.ALLOW
                yield TraceStep(
                    reason=_reason_of(each),
                    decision=Decision.ALLOW if is_allowed else Decision.DENY,
                    direction=direction,
                    endpoint=name,
                    rule=rule.name,
                )
                return is_allowed
        reason = Reason.NO_RULE if policies else Reason.NO_PROFILE_RULE
        yield TraceStep(reason=reason, decision=Decision.DENY, direction=direction, endpoint=name)
        return False

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _holds(self, match: Match) -> bool:
        packet = self.packet
        return (
            match.family in (None, packet.source.family)
            and match.protocol in (None, packet.protocol)
            and match.not_protocol != packet.protocol
            and (match.icmp is None or self._is_icmp(match.icmp))
            and (match.not_icmp is None or not self._is_icmp(match.not_icmp))
            and self._is_end(match.source, packet.source, packet.source_port)
            and self._is_end(match.destination, packet.destination, packet.destination_port)
        )

    def _is_icmp(self, icmp: ICMPMatch) -> bool:
        packet = self.packet
        is_type = packet.protocol in (ICMP, ICMP_V6) and packet.icmp_type == icmp.type
        return is_type and icmp.code in (None, packet.icmp_code)

    def _is_end(self, end: PeerMatch, address: Address, port: int) -> bool:
        member = PortMember(address, self.packet.protocol, port)
        return (
            all(self._is_in(each, address) for each in end.sets)
            and not any(self._is_in(each, address) for each in end.not_sets)
            and (not end.prefixes or _is_within(end.prefixes, address))
            and not _is_within(end.not_prefixes, address)
            and (not end.ports or _is_among(end.ports, port))
            and not _is_among(end.not_ports, port)
            and (end.port_set is None or member in self.sets[end.port_set].members)
            and not any(member in self.sets[each].members for each in end.not_port_sets)
        )

    def _is_in(self, identity: SetId, address: Address) -> bool:
        found = self.sets[identity]
        if found.type is SetType.PREFIXES:
            return _is_within((each for each in found.members if isinstance(each, Prefix)), address)
        return address in found.members


def _reason_of(asked: ActivePolicy | ActiveProfile) -> Reason:
    return Reason.MISSING_PROFILE if isinstance(asked, ActiveProfile) and asked.is_missing else Reason.RULE


def _has_address(endpoint: LocalEndpoint, address: Address) -> bool:
    return address in endpoint.addresses or _is_within(endpoint.source_prefixes, address)


def _is_within(prefixes: Iterable[Prefix], address: Address) -> bool:
    return any(prefix.contains(address) for prefix in prefixes)


def _is_among(ranges: Iterable[PortRange], port: int) -> bool:
    return any(each.first <= port <= each.last for each in ranges)
