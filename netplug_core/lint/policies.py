"""What policies are beside the pods and services of a cluster: whom they select, and what their rules can ever meet.

Who is selected is decided by the rules of policy itself. Nothing is judged by what is not known: a policy not without
a pod of its namespace, a label of a namespace not without that namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import Factory, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.members import find_at
from netplug_core.errors import ConfigurationError
from netplug_core.lint.documents import Document, KubernetesObject, Sourced, malformed_finding
from netplug_core.lint.rules import Finding, Rule
from netplug_core.names import KUBERNETES_ORCHESTRATOR, endpoint_labels
from netplug_core.orchestrator.networkpolicy import KubernetesNetworkPolicy, read_network_policy
from netplug_core.policy.convert import NamedPortSet, PolicyDefinition, define_policy
from netplug_core.policy.labelindex import effective_labels
from netplug_core.policy.model import PORT_PROTOCOLS, Direction, PeerMatch, SetId
from netplug_core.policy.model import Match as PolicyMatch
from netplug_core.policy.resolve import StoredPolicy
from netplug_core.resources.fields import Labels
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.profile import (
    NAMESPACE_LABEL_PREFIX,
    NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_LABEL_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
    Profile,
    namespace_spec,
    pod_profiles,
    profile_key,
)
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.selectors import Everything, Selector, SelectorError, canonical_text, leaf_terms, matches

__all__ = [
    "PolicyScene", "PolicyTarget", "check_policies", "labels_of_profile", "namespace_profile", "read_policy",
    "read_target", "target_of",
]  # fmt: skip

_DEFAULT: Final = "default"  # the namespace and the service account of who names none
_INHERITED: Final = {
    NAMESPACE_PROFILE_PREFIX: NAMESPACE_LABEL_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX: SERVICE_ACCOUNT_LABEL_PREFIX,
}

NamedPort: TypeAlias = tuple[int, str]
"""The number of a protocol, and the name of a port."""


# --- what policies select ---------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class PolicyTarget:
    """A pod, all pods of a template, or a host endpoint, which has no namespace."""

    namespace: str
    labels: Labels
    profiles: tuple[str, ...]
    ports: frozenset[NamedPort] = frozenset()


def target_of(endpoint: WorkloadEndpoint | HostEndpoint) -> PolicyTarget:
    """What an endpoint is to policies."""
    if isinstance(endpoint, WorkloadEndpoint):
        ports = [(each.protocol, each.name) for each in endpoint.spec.ports]
    else:
        ports = [(each.protocol.value, each.name) for each in endpoint.spec.ports]
    return PolicyTarget(
        namespace=endpoint.metadata.namespace,
        labels=endpoint.metadata.labels,
        profiles=endpoint.spec.profiles,
        ports=frozenset((PORT_PROTOCOLS.get(protocol.upper(), 0), name) for protocol, name in ports),
    )


def read_target(document: Document, found: KubernetesObject) -> PolicyTarget | None:
    """The pods of an object of Kubernetes; None if they have the network of their node, which no policy selects."""
    pod = found.template[:-2]  # its last two steps are to the annotations
    spec = _texts_at(document.mapping, (*pod, "spec"))
    if spec.get("hostNetwork") is True:
        return None
    labels = _texts_at(document.mapping, (*pod, "metadata", "labels"))
    texts = tuple((name, text) for name, text in labels.items() if isinstance(text, str))
    account, namespace = str(spec.get("serviceAccountName") or _DEFAULT), found.namespace or _DEFAULT
    return PolicyTarget(
        namespace=namespace,
        labels=endpoint_labels(
            namespace=namespace, orchestrator=KUBERNETES_ORCHESTRATOR, service_account=account, workload=texts
        ),
        profiles=pod_profiles(namespace, account),
        ports=frozenset(_ports(spec.get("containers"))),
    )


def _ports(containers: object) -> Iterator[NamedPort]:
    for container in _mappings(containers):
        for port in _mappings(container.get("ports")):
            yield PORT_PROTOCOLS.get(str(port.get("protocol") or "TCP"), 0), str(port.get("name") or "")


def _mappings(value: object) -> Iterator[Mapping[str, object]]:
    """The objects of a list. What is something else is for the API server to refuse."""
    return (each for each in (value if isinstance(value, list) else ()) if isinstance(each, Mapping))


def _texts_at(mapping: Mapping[str, object], path: tuple[str | int, ...]) -> Mapping[str, object]:
    found = find_at(mapping, path)
    return found if isinstance(found, Mapping) else {}


def namespace_profile(found: KubernetesObject) -> tuple[str, Labels]:
    """The name of a namespace's profile, and the labels that its pods inherit."""
    return f"{NAMESPACE_PROFILE_PREFIX}{found.name}", namespace_spec(found.name, found.labels).labels_to_apply


def read_policy(document: Document, found: KubernetesObject) -> KubernetesNetworkPolicy | Finding:
    """The policy of Kubernetes that a document is, or why it cannot be read."""
    metadata = {"name": found.name, "namespace": found.namespace or _DEFAULT}
    try:
        return read_network_policy({**document.mapping, "metadata": metadata}, source=document.source)
    except ConfigurationError as error:
        return malformed_finding(document, error)


# --- rules ------------------------------------------------------------------------------------------------------------


@frozen
class _Known:
    """A target with all labels that are known of it, and what those that are not known begin with."""

    target: PolicyTarget
    labels: Mapping[str, str]
    unknown: tuple[str, ...]


@frozen(kw_only=True, eq=False)
class PolicyScene:
    """Everything that policies are judged beside.

    ``is_whole``: every pod is known, as from a datastore. ``profiles`` have the labels that their endpoints inherit.
    """

    targets: tuple[PolicyTarget, ...]
    profiles: Mapping[str, Mapping[str, str]]
    services: tuple[Prefix, ...] = ()
    is_whole: bool = False
    _by_namespace: Mapping[str, Sequence[_Known]] = field(
        init=False, default=Factory(lambda self: self._group(), takes_self=True)
    )

    def _group(self) -> Mapping[str, Sequence[_Known]]:
        found: dict[str, list[_Known]] = {}
        for each in dict.fromkeys(self.targets):  # most pods have the labels and ports of many others
            labels = effective_labels(each.labels, each.profiles, self.profiles)
            unknown = tuple(_inherited_from(name) for name in each.profiles if name not in self.profiles)
            found.setdefault(each.namespace, []).append(_Known(each, labels, unknown))
        return found

    def find_selected(self, selector: Selector, namespace: str = "") -> Sequence[PolicyTarget] | None:
        """What a selector selects, in a namespace or in all; None if that depends on what is not known.

        Without a target it is known only where every pod is.
        """
        terms = [term.label for term in leaf_terms(selector) if not isinstance(term, Everything)]
        groups = [self._by_namespace.get(namespace, ())] if namespace else self._by_namespace.values()
        known = [each for group in groups for each in group]
        if not known and not self.is_whole:
            return None
        if any(label.startswith(each.unknown) for each in known for label in terms):
            return None
        return [each.target for each in known if matches(selector, each.labels)]


def _inherited_from(profile: str) -> str:
    """What the labels begin with that a profile of a name may give; a profile of a user may give any."""
    return next((labels for prefix, labels in _INHERITED.items() if profile.startswith(prefix)), "")


def labels_of_profile(profile: Profile) -> tuple[str, Labels]:
    """The name of a profile, and the labels that its endpoints inherit."""
    return profile_key(profile.metadata.name).name, profile.spec.labels_to_apply


def check_policies(policies: Iterable[Sourced[StoredPolicy]], scene: PolicyScene) -> Iterator[Finding]:
    """What policies can never do."""
    for one in policies:
        try:
            definition = define_policy(one.value)
        except SelectorError:
            continue  # found with the policy itself
        yield from _Judge(policy=one, definition=definition, scene=scene).find()


@frozen(kw_only=True)
class _Judge:
    policy: Sourced[StoredPolicy]
    definition: PolicyDefinition
    scene: PolicyScene

    def find(self) -> Iterator[Finding]:
        if not self.definition.directions:
            return  # it is not enforced, which is found with the policy itself
        yield from self._services()
        selected = self.scene.find_selected(self.definition.selector, self.definition.policy.id.namespace)
        if selected is not None and not selected:
            yield self._selects_nothing()
        yield from self._named_ports(selected or ())

    def _selects_nothing(self) -> Finding:
        namespace = self.definition.policy.id.namespace
        whom = f"a pod of the namespace {namespace}" if namespace else "a pod or a host endpoint"
        place = "podSelector" if isinstance(self.policy.value, KubernetesNetworkPolicy) else "selector"
        text = canonical_text(self.definition.selector)
        return self._finding(Rule.POLICY_SELECTS_NOTHING, place, text, f"what selects {whom} is expected")

    def _services(self) -> Iterator[Finding]:
        for place, match in self._matches():
            for prefix in (*match.source.prefixes, *match.destination.prefixes):
                for services in self.scene.services:
                    if services.covers(prefix):
                        accepted = f"policy sees the addresses of pods behind a service, never those in {services}"
                        yield self._finding(Rule.POLICY_OF_SERVICES, place, str(prefix), accepted)

    def _named_ports(self, selected: Sequence[PolicyTarget]) -> Iterator[Finding]:
        sets = {each.id: each for each in self.definition.sets if isinstance(each, NamedPortSet)}
        seen: set[tuple[str, str]] = set()
        for place, match in self._matches():
            used = (each for end in (match.source, match.destination) for each in _port_sets(end))
            for named in (sets[each] for each in used):
                owners = selected if named.selector is None else self._peers(named.selector)
                is_there = not owners or any((named.protocol, named.name) in each.ports for each in owners)
                if not is_there and (place, named.name) not in seen:
                    seen.add((place, named.name))
                    accepted = f"a port of the pods it is for is expected: {_port_names(owners) or 'they name none'}"
                    yield self._finding(Rule.POLICY_PORT_UNKNOWN, place, named.name, accepted)

    def _peers(self, selector: Selector) -> Sequence[PolicyTarget]:
        """The pods that may be the other end; none if that is not known."""
        return self.scene.find_selected(selector) or ()

    def _matches(self) -> Iterator[tuple[str, PolicyMatch]]:
        """What each rule matches, with its place in the spec."""
        for direction in Direction:
            policy = self.definition.policy
            for rule in policy.ingress if direction is Direction.INGRESS else policy.egress:
                place = f"{direction.member}[{rule.name.rpartition('#')[2]}]"
                for match in rule.matches:
                    yield place, match

    def _finding(self, rule: Rule, place: str, value: str, accepted: str) -> Finding:
        return Finding(
            rule=rule,
            source=self.policy.source,
            subject=str(self.definition.policy.id),
            field=f"spec.{place}",
            value=value,
            accepted=accepted,
        )


def _port_sets(end: PeerMatch) -> tuple[SetId, ...]:
    return (*(() if end.port_set is None else (end.port_set,)), *end.not_port_sets)


def _port_names(targets: Iterable[PolicyTarget]) -> str:
    return ", ".join(sorted({name for each in targets for _protocol, name in each.ports if name}))
