"""Decodes what the API server answers about nodes, pods, DaemonSets and Installations, for ``cluster``. Pure.

What cannot be read counts as not there: these objects are the cluster's own, and nothing is written by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netplug_backends.kubernetes.client.messages import Json
from netplug_backends.kubernetes.client.objects import metadata_of
from netplug_backends.kubernetes.kinds.pod_and_node_facts import node_facts
from netplug_core.addressing import Address
from netplug_core.decoding.tables import find_member
from netplug_core.errors import excerpt
from netplug_core.installation.cluster import (
    ClusterNode,
    DaemonSetState,
    InstallationState,
    OperatorState,
    PodState,
)
from netplug_core.operator.lease import read_lease
from netplug_core.operator.nodes import ContainerFailure, failures_of
from netplug_core.operator.objects import find_text, is_being_deleted
from netplug_core.settings.model import ETCD_DATASTORE, KUBERNETES_DATASTORE

__all__ = [
    "is_established", "members_at", "number_at", "read_daemonset", "read_installation", "read_node", "read_operator",
    "read_pod",
]  # fmt: skip

_BLOCK_IPAM = '"netplug-ipam"'


def number_at(found: Json, *path: str) -> int:
    """The number at a path; 0 if there is none."""
    value = find_member(found, *path)
    return value if isinstance(value, int) else 0


def members_at(found: Json, *path: str) -> list[Json]:
    """The objects in the list at a path."""
    value = find_member(found, *path)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def read_node(found: Json) -> ClusterNode:
    """A node of the cluster."""
    facts = node_facts(found)
    texts = [find_text(one, "address") for one in members_at(found, "status", "addresses") if _is_address(one)]
    addresses = tuple(map(Address.parse, texts))
    return ClusterNode(name=facts.name, addresses=addresses, pod_prefixes=facts.pod_cidrs)


def is_established(definition: Json) -> bool:
    """Whether objects of a definition can be stored."""
    return _has_condition(definition, "Established")


def read_daemonset(found: Json, *, namespace: str, template: str) -> DaemonSetState:
    """A DaemonSet of netplug. ``template`` is the text of its conflist."""
    observed = number_at(found, "status", "observedGeneration")
    containers = members_at(found, "spec", "template", "spec", "containers")
    variables = [one for container in containers for one in members_at(container, "env")]
    datastores = [find_text(one, "value") for one in variables if one.get("name") == "DATASTORE_TYPE"]
    return DaemonSetState(
        namespace=namespace,
        is_observed=observed >= number_at(metadata_of(found), "generation"),
        desired=number_at(found, "status", "desiredNumberScheduled"),
        updated=number_at(found, "status", "updatedNumberScheduled"),
        assigns_addresses=_BLOCK_IPAM in template,
        datastore=next(iter(datastores), KUBERNETES_DATASTORE),
    )


def read_pod(found: Json, *, datastore: str) -> PodState:
    """A pod of a node.

    With etcd it counts as ready with one ready container: the node process is not ready while the datastore is
    locked, as during an upgrade, and serves all the same.
    """
    containers = members_at(found, "status", "containerStatuses")
    is_ready = _has_condition(found, "Ready")
    if datastore == ETCD_DATASTORE:
        is_ready = is_ready or any(one.get("ready") is True for one in containers)
    return PodState(
        name=find_text(found, "metadata", "name"),
        node=find_text(found, "spec", "nodeName"),
        is_ready=is_ready,
        problem=next(map(_describe, failures_of(found)), ""),
    )


def read_installation(found: Json) -> InstallationState:
    """An Installation with what its operator says."""
    conditions = (
        (find_text(one, "type"), find_text(one, "status"), excerpt(find_text(one, "message")))
        for one in members_at(found, "status", "conditions")
    )
    generations = [number_at(one, "observedGeneration") for one in members_at(found, "status", "conditions")]
    return InstallationState(
        name=find_text(found, "metadata", "name"),
        conditions=tuple(conditions),
        generation=number_at(found, "metadata", "generation"),
        observed_generation=min(generations, default=0),
        is_being_deleted=is_being_deleted(found),
    )


def read_operator(lease: Json | None, pods: Sequence[Json]) -> OperatorState:
    """What shows whether an operator runs: its Lease, and its pods."""
    record = read_lease(lease)
    staying = [pod for pod in pods if not is_being_deleted(pod)]
    return OperatorState(
        holder=record.holder,
        renewed=record.renewed,
        pods=tuple(read_pod(pod, datastore=KUBERNETES_DATASTORE) for pod in staying),
        namespace=next((find_text(pod, "metadata", "namespace") for pod in staying), ""),
    )


def _describe(failure: ContainerFailure) -> str:
    return excerpt(f"{failure}: {failure.message}" if failure.message else str(failure))


def _has_condition(found: Json, kind: str) -> bool:
    return any(
        one.get("type") == kind and one.get("status") == "True" for one in members_at(found, "status", "conditions")
    )


def _is_address(found: Json) -> bool:
    if find_text(found, "type") not in ("InternalIP", "ExternalIP"):
        return False
    try:
        Address.parse(find_text(found, "address"))
    except ValueError:
        return False
    return True
