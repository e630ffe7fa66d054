"""What becomes of a packet on a node, and why: what the rules in the kernel do, as a function.

``netplugctl policy explain`` shows the trace; tests compare the dataplane with the decision. The order of the steps is
that of the hooks: first the source of packets from a workload, then egress of the sender, then ingress of the receiver.
The packets between nodes that carry those of tunnels are not judged here: they belong to the routes.

What ``netplugctl policy`` shows is asked of ``resolve`` and of this function, as the nodes of the pods do. Pure: who
calls it has the objects.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
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
    EndpointId,
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
    Rule,
    SetId,
    SetType,
    TraceStep,
    Verdict,
)
from netplug_core.policy.resolve import PolicyObject, PolicySnapshot, resolve
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "LOOPBACK", "AppliedRules", "ConnectionExplanation", "ExplainedStep", "evaluate", "explain_connection",
    "find_applied_rules", "is_neighbour_message",
]  # fmt: skip


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


_UPLINK: Final = "uplink"
_SOURCE_PORT: Final = 49_152


# --- connections ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ExplainedStep:
    """One step of an evaluation, and the node on which it is made."""

    node: str
    step: TraceStep


@frozen(kw_only=True)
class ConnectionExplanation:
    """Whether a new connection from one pod to another is allowed in one family, and every step that led there."""

    source: str
    destination: str
    source_address: Address
    destination_address: Address
    decision: Decision
    steps: tuple[ExplainedStep, ...]

    @property
    def is_allowed(self) -> bool:
        """Whether the connection is allowed."""
        return self.decision is Decision.ALLOW

    def sentence(self, what: str) -> str:
        """The answer; ``what`` names the protocol and the port."""
        verb = "may connect" if self.is_allowed else "may not connect"
        deciding = [each.step for each in self.steps if each.step.decision is not None]
        reasons = map(_reason_text, deciding if self.is_allowed else deciding[-1:])
        family = self.source_address.family
        return f"{self.source} {verb} to {self.destination} ({what}, {family}): {', '.join(reasons)}"


def explain_connection(
    objects: Sequence[PolicyObject], ends: tuple[WorkloadEndpoint, WorkloadEndpoint], *, protocol: int, port: int
) -> Iterator[ConnectionExplanation]:
    """The answer for each family in which both pods have an address; the first of the two connects to the second."""
    nodes = dict.fromkeys(each.spec.node for each in ends)
    states = {node: resolve(PolicySnapshot(node=node, objects=tuple(objects))) for node in nodes}
    for family in Family:
        source_address, destination_address = (_address_of(each, family) for each in ends)
        if source_address is not None and destination_address is not None:
            packet = Packet(
                source=source_address,
                destination=destination_address,
                protocol=protocol,
                source_port=_SOURCE_PORT,
                destination_port=port,
            )
            yield _explain_packet(states, ends, packet)


def _explain_packet(
    states: Mapping[str, PolicyState], ends: tuple[WorkloadEndpoint, WorkloadEndpoint], packet: Packet
) -> ConnectionExplanation:
    source, destination = ends
    decision, steps = Decision.ALLOW, list[ExplainedStep]()
    for node, leg in _legs(states, ends, packet):
        verdict = evaluate(leg, states[node])
        decision = verdict.decision
        steps += [ExplainedStep(node=node, step=step) for step in verdict.trace]
        if decision is not Decision.ALLOW:
            break
    return ConnectionExplanation(
        source=_name_of(source),
        destination=_name_of(destination),
        source_address=packet.source,
        destination_address=packet.destination,
        decision=decision,
        steps=tuple(steps),
    )


def _legs(
    states: Mapping[str, PolicyState], ends: tuple[WorkloadEndpoint, WorkloadEndpoint], packet: Packet
) -> Iterator[tuple[str, Packet]]:
    """The packet as each node sees it."""
    source, destination = ends
    first, last = source.spec.node, destination.spec.node
    enters, leaves = _interface_of(source, states[first]), _interface_of(destination, states[last])
    if first == last:
        yield first, evolve(packet, input_interface=enters, output_interface=leaves)
        return
    yield first, evolve(packet, input_interface=enters, output_interface=_UPLINK)
    yield last, evolve(packet, input_interface=_UPLINK, output_interface=leaves)


def _interface_of(endpoint: WorkloadEndpoint, state: PolicyState) -> str:
    """The interface of a pod; one that has none yet is on an interface that no endpoint is known on."""
    return endpoint.spec.interface_name or state.settings.interface_prefix.partition(",")[0]


def _address_of(endpoint: WorkloadEndpoint, family: Family) -> Address | None:
    return next((address for address in endpoint.spec.addresses if address.family is family), None)


def _name_of(endpoint: WorkloadEndpoint) -> str:
    return f"{endpoint.metadata.namespace}/{endpoint.spec.pod or endpoint.metadata.name}"


def _reason_text(step: TraceStep) -> str:
    direction = "" if step.direction is None else step.direction.value.lower()
    if step.rule and step.reason is Reason.RULE:
        return f"{direction} is {'allowed' if step.decision is Decision.ALLOW else 'denied'} by {step.rule}"
    if step.reason is Reason.MISSING_PROFILE:
        return f"{direction}: no policy applies, and {step.rule.rpartition(' ')[0]} does not exist"
    return f"{direction}: {step.reason.value}" if direction else step.reason.value


# --- what applies -----------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class AppliedRules:
    """What decides about the packets of a pod in one direction: policies in their order, or else profiles."""

    direction: Direction
    policies: tuple[ActivePolicy, ...]
    profiles: tuple[ActiveProfile, ...]

    def rows(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each policy or profile by its name, with its rules in words; the first that matches decides."""
        is_ingress = self.direction is Direction.INGRESS
        for policy in self.policies:
            yield str(policy.id), tuple(map(_rule_text, policy.ingress if is_ingress else policy.egress))
        for profile in () if self.policies else self.profiles:
            yield f"Profile {profile.name}", tuple(map(_rule_text, profile.ingress if is_ingress else profile.egress))


def find_applied_rules(
    objects: Sequence[PolicyObject], endpoint: WorkloadEndpoint
) -> tuple[AppliedRules, AppliedRules] | None:
    """What decides about packets to a pod, and about those from it; None if its node does not program it."""
    state = resolve(PolicySnapshot(node=endpoint.spec.node, objects=tuple(objects)))
    identity = EndpointId(endpoint.metadata.namespace, endpoint.metadata.name)
    found = next((each for each in state.endpoints if each.id == identity), None)
    if found is None:
        return None
    policies = {each.id: each for each in state.policies}
    profiles = {each.name: each for each in state.profiles}
    named = tuple(profiles[name] for name in found.profiles)
    return (
        AppliedRules(
            direction=Direction.INGRESS, policies=tuple(policies[each] for each in found.ingress), profiles=named
        ),
        AppliedRules(
            direction=Direction.EGRESS, policies=tuple(policies[each] for each in found.egress), profiles=named
        ),
    )


def _rule_text(rule: Rule) -> str:
    return f"{rule.name.rpartition(' ')[2]} {rule.action.value}"
