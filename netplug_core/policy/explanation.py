"""Whether one pod may reach another and why, and which policies apply to a pod: for ``netplugctl policy``.

Everything is asked of ``resolve`` and ``evaluate``, as the nodes of the pods do. Pure: who calls it has the objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family
from netplug_core.policy.evaluate import evaluate
from netplug_core.policy.model import (
    ActivePolicy,
    ActiveProfile,
    Decision,
    Direction,
    EndpointId,
    Packet,
    PolicyState,
    Reason,
    Rule,
    TraceStep,
)
from netplug_core.policy.resolve import PolicyObject, PolicySnapshot, resolve
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "AppliedRules", "ConnectionExplanation", "ExplainedStep", "explain_connection", "find_applied_rules",
]  # fmt: skip

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
