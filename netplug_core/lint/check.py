"""All documents judged: each by itself, and all of them together with what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from attrs import field, frozen

from netplug_core.installation.rules import CheckedInstallation
from netplug_core.lint.clusters import Cluster, Surroundings, check_cluster, check_ranges, find_pool_changes
from netplug_core.lint.configurations import Configuration, find_file_order, read_configurations
from netplug_core.lint.documents import (
    Document,
    DocumentSort,
    KubernetesObject,
    Sourced,
    find_sort,
    read_kubernetes_object,
)
from netplug_core.lint.policies import (
    PolicyScene,
    check_policies,
    labels_of_profile,
    namespace_profile,
    read_policy,
    read_target,
    target_of,
)
from netplug_core.lint.resources import (
    AnnotatedObject,
    check_components,
    check_installations,
    check_namespace,
    check_resource,
    check_workload,
    node_of,
    read_resource,
)
from netplug_core.lint.rules import Finding, Rule
from netplug_core.orchestrator.networkpolicy import KubernetesNetworkPolicy
from netplug_core.policy.resolve import StoredPolicy
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.ippool import IPPool, IPReservation
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.networkpolicy import GlobalNetworkPolicy, NetworkPolicy
from netplug_core.resources.node import Node
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, Profile
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.settings.model import DEFAULT_ANNOTATION_PREFIX

__all__ = ["STORED", "LintResult", "check", "unreadable"]

STORED = "datastore"
"""The source of what is stored."""

R = TypeVar(
    "R",
    IPPool,
    IPReservation,
    Node,
    Profile,
    HostEndpoint,
    WorkloadEndpoint,
    NetworkPolicy,
    GlobalNetworkPolicy,
)

PolicyName = tuple[str, str]
"""The namespace and the name of a policy of Kubernetes."""


@frozen(kw_only=True)
class LintResult:
    """Everything that was found, in the order of the documents, and how many objects were judged."""

    found: tuple[Finding, ...]
    count: int
    skipped: tuple[str, ...] = ()


@frozen
class _Documents:
    """Documents by sort, and what was found while they were read."""

    by_sort: dict[DocumentSort | None, list[Document]]
    found: list[Finding] = field(factory=list)

    def of(self, sort: DocumentSort) -> list[Document]:
        return self.by_sort.get(sort, [])


def unreadable(source: str, reason: str) -> Finding:
    """What is found of a file that cannot be read."""
    return Finding(rule=Rule.UNREADABLE, source=source, subject="file", field="-", value=None, accepted=reason)


def check(
    documents: Sequence[Document],
    surroundings: Surroundings,
    stored: Sequence[Resource] = (),
    stored_policies: Sequence[KubernetesNetworkPolicy] = (),
) -> LintResult:
    """What documents break, alone, together, and together with ``stored`` resources, and policies of Kubernetes.

    A document takes the place of the stored resource with its name.
    """
    by_sort: dict[DocumentSort | None, list[Document]] = {}
    for document in documents:
        by_sort.setdefault(find_sort(document), []).append(document)
    read = _Documents(by_sort)
    resources = _read_resources(read, stored)
    cluster = _read_cluster(read, resources, stored)
    read.found.extend(find_file_order(read.of(DocumentSort.CONFIGURATION)))
    read.found.extend(check_cluster(cluster))
    read.found.extend(check_ranges(cluster, surroundings))
    scene = _read_scene(cluster, resources, surroundings)
    read.found.extend(check_policies(_read_policies(read, resources, stored_policies), scene))
    order = {document.source: number for number, document in enumerate(documents)}
    found = sorted(read.found, key=lambda one: (order.get(one.source, len(order)), one.rule.number, one.field))
    skipped = tuple(document.source for document in by_sort.get(None, []))
    count = len(documents) - len(skipped) + len(stored) + len(stored_policies)
    return LintResult(found=tuple(found), count=count, skipped=skipped)


def _read_cluster(read: _Documents, resources: Sequence[Sourced[Resource]], stored: Sequence[Resource]) -> Cluster:
    configurations = list[Configuration]()
    for document in read.of(DocumentSort.CONFIGURATION):
        ours, found = read_configurations(document)
        configurations.extend(ours)
        read.found.extend(found)
    checked, found = check_installations(read.of(DocumentSort.INSTALLATION))
    read.found.extend((*found, *check_components(read.of(DocumentSort.COMPONENT))))
    prefix = _annotation_prefix(configurations)
    namespaces = tuple(_read_namespaces(read, prefix))
    pools = _of_type(resources, IPPool)
    read.found.extend(find_pool_changes(pools, [one for one in stored if isinstance(one, IPPool)]))
    return Cluster(
        pools=pools,
        installed=tuple(_pools_of(checked, pools)),
        reservations=_of_type(resources, IPReservation),
        nodes=_of_type(resources, Node),
        profiles=_of_type(resources, Profile),
        host_endpoints=_of_type(resources, HostEndpoint),
        namespaces=namespaces,
        configurations=tuple(configurations),
        workloads=tuple(_read_workloads(read, prefix)),
    )


def _read_scene(cluster: Cluster, resources: Sequence[Sourced[Resource]], surroundings: Surroundings) -> PolicyScene:
    """What policies are judged beside: every pod and host endpoint, and the labels that they inherit."""
    endpoints = _of_type(resources, WorkloadEndpoint)
    targets = [target_of(one.value) for one in endpoints]
    targets.extend(target_of(one.value) for one in cluster.host_endpoints)
    for one in cluster.workloads:
        target = read_target(one.document, one.found)
        targets.extend(() if target is None else (target,))
    inherited = (
        *map(namespace_profile, cluster.namespaces),
        *(labels_of_profile(one.value) for one in cluster.profiles),
    )
    default = labels_of_profile(DEFAULT_ALLOW_PROFILE.value)
    return PolicyScene(
        targets=tuple(targets),
        profiles={name: dict(labels) for name, labels in (default, *inherited)},
        services=surroundings.services,
        is_whole=any(one.source == STORED for one in endpoints),
    )


def _read_policies(
    read: _Documents, resources: Sequence[Sourced[Resource]], stored: Sequence[KubernetesNetworkPolicy]
) -> tuple[Sourced[StoredPolicy], ...]:
    """The policies of both sorts. A document takes the place of the stored one of its name."""
    found: dict[PolicyName, Sourced[StoredPolicy]] = {}
    for document in read.of(DocumentSort.POLICY):
        named = read_kubernetes_object(document)
        policy = named if isinstance(named, Finding) else read_policy(document, named)
        if isinstance(policy, Finding):
            read.found.append(policy)
            continue
        name = policy.namespace, policy.name
        if name in found:
            read.found.append(_duplicate(document, f"NetworkPolicy({'/'.join(name)})", found[name].source))
        found[name] = Sourced(policy, document.source)
    for policy in stored:
        found.setdefault((policy.namespace, policy.name), Sourced(policy, STORED))
    own = (
        Sourced[StoredPolicy](one.value, one.source)
        for one in resources
        if isinstance(one.value, NetworkPolicy | GlobalNetworkPolicy)
    )
    return (*own, *found.values())


def _read_resources(read: _Documents, stored: Sequence[Resource]) -> tuple[Sourced[Resource], ...]:
    """The resources of documents, then the stored ones that no document replaces."""
    found: dict[str, Sourced[Resource]] = {}
    for document in (*read.of(DocumentSort.RESOURCE), *read.of(DocumentSort.NODE)):
        resource = _read_resource(document)
        if isinstance(resource, Finding):
            read.found.append(resource)
            continue
        key = str(key_of(resource))
        if key in found:
            read.found.append(_duplicate(document, key, found[key].source))
        read.found.extend(check_resource(resource, document.source))
        found[key] = Sourced(resource, document.source)
    for resource in stored:
        if str(key_of(resource)) not in found:
            if not isinstance(resource, Profile | WorkloadEndpoint):  # most of them were not written by people
                read.found.extend(check_resource(resource, STORED))
            found[str(key_of(resource))] = Sourced(resource, STORED)
    return tuple(found.values())


def _read_resource(document: Document) -> Resource | Finding:
    if find_sort(document) is DocumentSort.RESOURCE:
        return read_resource(document)
    node = read_kubernetes_object(document)
    return node if isinstance(node, Finding) else node_of(node)


def _duplicate(document: Document, subject: str, earlier: str) -> Finding:
    return Finding(
        rule=Rule.DUPLICATE_OBJECT,
        source=document.source,
        subject=subject,
        field="metadata.name",
        value=None,
        accepted=f"it is there already: {earlier}",
    )


def _read_namespaces(read: _Documents, prefix: str) -> Iterator[KubernetesObject]:
    for document in read.of(DocumentSort.NAMESPACE):
        namespace = read_kubernetes_object(document)
        if isinstance(namespace, Finding):
            read.found.append(namespace)
            continue
        read.found.extend(check_namespace(document, namespace, prefix))
        yield namespace


def _read_workloads(read: _Documents, prefix: str) -> Iterator[AnnotatedObject]:
    for document in read.of(DocumentSort.WORKLOAD):
        workload = read_kubernetes_object(document)
        if isinstance(workload, Finding):
            read.found.append(workload)
            continue
        annotated, found = check_workload(document, workload, prefix)
        read.found.extend(found)
        yield annotated


def _annotation_prefix(configurations: Iterable[Configuration]) -> str:
    """The prefix that all configurations have; if they differ or there are none, the default."""
    prefixes = {one.netconf.datastore.annotation_prefix for one in configurations if one.netconf is not None}
    return prefixes.pop() if len(prefixes) == 1 else DEFAULT_ANNOTATION_PREFIX


def _of_type(resources: Iterable[Sourced[Resource]], cls: type[R]) -> tuple[Sourced[R], ...]:
    return tuple(Sourced(one.value, one.source) for one in resources if isinstance(one.value, cls))


def _pools_of(
    checked: Sequence[Sourced[CheckedInstallation]], known: Sequence[Sourced[IPPool]]
) -> Iterator[Sourced[IPPool]]:
    """The pools that the last Installation stands for, without those that are known by their names."""
    names = {one.value.metadata.name for one in known}
    for one in checked[-1:]:
        for pool in one.value.resolved.pools if one.value.resolved is not None else ():
            if pool.pool.metadata.name not in names:
                yield Sourced(pool.pool, one.source)
