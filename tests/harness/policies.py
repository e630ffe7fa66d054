"""Objects of network policy, in few words, and the deltas that a list of changes makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import define, evolve, field

from netplug_core.addressing import Address, Prefix
from netplug_core.names import endpoint_labels
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY, KubernetesNetworkPolicy
from netplug_core.policy.index import PolicyIndex
from netplug_core.policy.model import PolicyDelta, PolicyState
from netplug_core.policy.resolve import Interfaces, PolicyObject, PolicySnapshot, resolve
from netplug_core.records import Key, Unreadable
from netplug_core.resources import kinds
from netplug_core.resources.fields import Metadata
from netplug_core.resources.hostendpoint import HostEndpoint, HostEndpointSpec
from netplug_core.resources.networkpolicy import (
    Direction,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    GlobalNetworkSet,
    NetworkPolicy,
    NetworkPolicySpec,
    NetworkSet,
    NetworkSetSpec,
)
from netplug_core.resources.policyrule import PolicyRule, RuleAction
from netplug_core.resources.profile import Profile, ProfileSpec, pod_profiles
from netplug_core.resources.workloadendpoint import EndpointPort, WorkloadEndpoint, WorkloadEndpointSpec

__all__ = [
    "Change", "FollowedNode", "allow", "apply_all", "deny", "fold", "key_of", "make_global_policy", "make_host",
    "make_network_set", "make_pod", "make_policy", "make_profile", "prefixes_of",
]  # fmt: skip

Change = tuple[Key[object], PolicyObject | Unreadable | None]


def key_of(value: PolicyObject) -> Key[object]:
    """Where an object is stored."""
    if isinstance(value, KubernetesNetworkPolicy):
        return KUBERNETES_NETWORK_POLICY.key(value.namespace, value.name)
    return kinds.key_of(value)


def apply_all(index: PolicyIndex, changes: Iterable[Change]) -> None:
    """Changes, in this order."""
    for key, value in changes:
        index.apply(key, value)


def fold(state: PolicyState, index: PolicyIndex, steps: Iterable[Iterable[Change]]) -> PolicyState:
    """The state after some steps, of which each is one delta."""
    for changes in steps:
        apply_all(index, changes)
        state = index.take_delta().apply_to(state)
    return state


# --- objects ----------------------------------------------------------------------------------------------------------


def make_pod(
    name: str,
    *addresses: str,
    namespace: str = "x",
    labels: dict[str, str] | None = None,
    ports: tuple[EndpointPort, ...] = (),
    **spec: Any,  # noqa: ANN401 - attributes of many types
) -> WorkloadEndpoint:
    """The endpoint of a pod of the node ``here``, with the profile of its namespace, on an interface of its own name.

    ``spec`` has other attributes of its spec.
    """
    given: dict[str, Any] = {
        "node": "here",
        "interface_name": f"netp{name}",
        "profiles": pod_profiles(namespace, ""),
        "container_id": "c1",
    }
    return WorkloadEndpoint(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            labels=endpoint_labels(
                namespace=namespace, orchestrator="k8s", workload=tuple(sorted((labels or {}).items()))
            ),
        ),
        spec=evolve(
            WorkloadEndpointSpec(
                orchestrator="k8s",
                node="",
                endpoint="eth0",
                addresses=tuple(map(Address.parse, addresses)),
                ports=ports,
            ),
            **{**given, **spec},
        ),
    )


def make_host(name: str, interface: str = "*", *expected: str, **spec: Any) -> HostEndpoint:  # noqa: ANN401 - attributes of many types
    """A host endpoint of the node ``here``."""
    plain = HostEndpointSpec(node="here", interface_name=interface, expected_ips=tuple(map(Address.parse, expected)))
    labels = (("host", name),)
    return HostEndpoint(metadata=Metadata(name=name, labels=labels), spec=evolve(plain, **spec))


def make_profile(name: str, *rules: PolicyRule, **labels: str) -> Profile:
    """A profile with the same rules in both directions."""
    applied = tuple(sorted((label.replace("__", "."), value) for label, value in labels.items()))
    return Profile(metadata=Metadata(name=name), spec=ProfileSpec(ingress=rules, egress=rules, labels_to_apply=applied))


def make_policy(name: str, *rules: PolicyRule, namespace: str = "x", **spec: Any) -> NetworkPolicy:  # noqa: ANN401 - attributes of many types
    """A policy for packets to the endpoints of a namespace."""
    plain = NetworkPolicySpec(ingress=rules, types=(Direction.INGRESS,))
    return NetworkPolicy(metadata=Metadata(name=name, namespace=namespace), spec=evolve(plain, **spec))


def make_global_policy(name: str, *rules: PolicyRule, **spec: Any) -> GlobalNetworkPolicy:  # noqa: ANN401 - attributes of many types
    """A policy for packets to all endpoints."""
    plain = GlobalNetworkPolicySpec(ingress=rules, types=(Direction.INGRESS,))
    return GlobalNetworkPolicy(metadata=Metadata(name=name), spec=evolve(plain, **spec))


def make_network_set(name: str, *nets: str, namespace: str = "", **labels: str) -> NetworkSet | GlobalNetworkSet:
    """A set of prefixes, global unless a namespace is given."""
    metadata = Metadata(name=name, namespace=namespace, labels=tuple(sorted(labels.items())))
    spec = NetworkSetSpec(nets=prefixes_of(*nets))
    return NetworkSet(metadata=metadata, spec=spec) if namespace else GlobalNetworkSet(metadata=metadata, spec=spec)


def allow(**conditions: Any) -> PolicyRule:  # noqa: ANN401 - attributes of many types
    """A rule that allows; ``conditions`` are attributes of a rule."""
    return evolve(PolicyRule(action=RuleAction.ALLOW), **conditions)


def deny(**conditions: Any) -> PolicyRule:  # noqa: ANN401 - attributes of many types
    """A rule that denies, likewise."""
    return evolve(PolicyRule(action=RuleAction.DENY), **conditions)


def prefixes_of(*texts: str) -> tuple[Prefix, ...]:
    """The prefixes of some texts."""
    return tuple(map(Prefix.parse, texts))


# --- a node that follows changes --------------------------------------------------------------------------------------


@define(eq=False)
class FollowedNode:
    """The node ``here``: an index, the state that its deltas make, and the same from scratch."""

    index: PolicyIndex = field(factory=lambda: PolicyIndex("here"))
    state: PolicyState = field(factory=PolicyState)
    objects: dict[Key[object], PolicyObject] = field(factory=dict)
    unreadable: dict[Key[object], None] = field(factory=dict)
    attached: dict[str, str] = field(factory=dict)
    interfaces: Interfaces = ()

    def put(self, *values: PolicyObject) -> PolicyDelta:
        """Objects are new or changed. The delta is compared with what follows from scratch."""
        for value in values:
            self.objects[key_of(value)] = value
            self.unreadable.pop(key_of(value), None)
            self.index.apply(key_of(value), value)
        return self.take()

    def remove(self, *values: PolicyObject) -> PolicyDelta:
        """Objects do not exist any more."""
        for value in values:
            self.objects.pop(key_of(value), None)
            self.unreadable.pop(key_of(value), None)
            self.index.apply(key_of(value), None)
        return self.take()

    def damage(self, *values: PolicyObject) -> PolicyDelta:
        """What is stored of objects cannot be read."""
        for value in values:
            self.objects.pop(key_of(value), None)
            self.unreadable[key_of(value)] = None
            self.index.apply(key_of(value), Unreadable.UNREADABLE)
        return self.take()

    def attach(self, interface: str, container_id: str | None) -> PolicyDelta:
        """An interface is attached for a container, or detached."""
        self.attached.pop(interface, None)
        if container_id is not None:
            self.attached[interface] = container_id
        self.index.set_attached(interface, container_id)
        return self.take()

    def set_interfaces(self, *interfaces: tuple[str, str]) -> PolicyDelta:
        """The interfaces of the node with an address each."""
        self.interfaces = tuple((name, (Address.parse(address),)) for name, address in interfaces)
        self.index.set_interfaces(self.interfaces)
        return self.take()

    def take(self) -> PolicyDelta:
        """The delta."""
        delta = self.index.take_delta()
        self.state = delta.apply_to(self.state)
        assert self.state == resolve(self.snapshot)
        assert self.index.take_delta().is_empty
        return delta

    @property
    def snapshot(self) -> PolicySnapshot:
        """Everything as it is."""
        return PolicySnapshot(
            node="here",
            objects=tuple(self.objects.values()),
            unreadable=tuple(self.unreadable),
            attached=tuple(self.attached.items()),
            interfaces=self.interfaces,
        )
