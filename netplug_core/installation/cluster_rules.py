"""What is wrong with an Installation in a cluster that exists, beyond the rules for every cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import evolve

from netplug_core.addressing import Family, Prefix
from netplug_core.installation.check import CheckedInstallation, check
from netplug_core.installation.cluster import ClusterInventory
from netplug_core.installation.defaults import ResolvedInstallation
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.node_daemonset import NODE_ACCOUNT
from netplug_core.installation.pool_defaults import POOLS_PATH, ResolvedPool
from netplug_core.installation.pool_plan import PoolAction, plan_pools
from netplug_core.installation.problems import InvalidInstallation, ProblemClass
from netplug_core.installation.selection import IPAMType
from netplug_core.resources.installation import Switch
from netplug_core.resources.ippool import IPPool

__all__ = ["check_in_cluster", "facts_of", "find_obstacle"]

_MANY_NODES: Final = 100
_MANY_SERVICES: Final = 4000
_MAX_NAMES: Final = 3


def facts_of(inventory: ClusterInventory, pools: tuple[IPPool, ...]) -> ClusterFacts:
    """The facts that defaults depend on. ``pools`` are those of the cluster."""
    return ClusterFacts(
        provider=inventory.provider,
        has_aws_node=inventory.has_aws_node,
        pools=pools,
        platform_prefixes=inventory.platform_prefixes,
    )


def find_obstacle(inventory: ClusterInventory, namespace: str, definitions: str = "") -> str:
    """Why netplug must not be installed into a namespace; empty if nothing is in the way.

    ``definitions`` is the version of the CRDs that come with it, such as ``v1``; empty if there are none.
    """
    if inventory.operated_object:
        return (
            f"{inventory.operated_object} is in the cluster: the operator installs netplug here; "
            "change the Installation in the cluster, or delete it first"
        )
    other = next((place for place in inventory.daemonsets if place != namespace), "")
    if other:
        return (
            f"DaemonSet {other}/{NODE_ACCOUNT} is in the cluster: netplug is installed another way; "
            "apply that again, or delete what it has installed first"
        )
    if definitions and inventory.crd_mode not in ("", definitions):
        return f"the cluster has the CRDs {inventory.crd_mode}, with its data; this would bring {definitions}"
    return ""


def check_in_cluster(
    document: InstallationDocument, facts: ClusterFacts, inventory: ClusterInventory
) -> CheckedInstallation:
    """Judge a document by every rule, and by what the cluster has; ``facts`` are those of ``facts_of``."""
    checked = check(document, facts)
    if checked.resolved is None:
        return checked
    problems = _find_problems(document, checked.resolved, facts, inventory)
    warnings = _find_warnings(document, checked.resolved, inventory)
    return evolve(checked, problems=(*checked.problems, *problems), warnings=(*checked.warnings, *warnings))


def _find_problems(
    document: InstallationDocument, resolved: ResolvedInstallation, facts: ClusterFacts, inventory: ClusterInventory
) -> Iterator[InvalidInstallation]:
    """Pools that belong to others, and CIDRs that are in use already."""
    for step in plan_pools(resolved, facts):
        if step.action in (PoolAction.REFUSE, PoolAction.WAIT):
            name, path = step.pool.metadata.name, (POOLS_PATH,)
            yield InvalidInstallation(document.where, name, step.reason, ProblemClass.CONFLICT, path)
    for one in resolved.pools:
        for found, what in _uses_of(one.pool.spec.prefix, facts, inventory):
            value = f"{one.pool.spec.prefix} and {found}"
            accepted = f"a CIDR that does not overlap {what}"
            path = (f"{one.path}.cidr" if one.path else POOLS_PATH,)
            yield InvalidInstallation(document.where, value, accepted, ProblemClass.CONFLICT, path)


def _find_warnings(
    document: InstallationDocument, resolved: ResolvedInstallation, inventory: ClusterInventory
) -> Iterator[str]:
    """What is accepted, and does not work well in this cluster."""
    node_count, service_count = len(inventory.nodes), inventory.service_count
    is_large = node_count >= _MANY_NODES and service_count >= _MANY_SERVICES
    if resolved.host_ports is Switch.ENABLED and is_large:
        yield (
            f"{document.where}: spec.netplugNetwork.hostPorts: with {node_count} nodes and {service_count} services"
            " a node drains slowly; Disabled leaves out the plugin portmap"
        )
    if resolved.ipam is IPAMType.HOST_LOCAL:
        yield from _host_local_warnings(document, resolved, inventory)


def _uses_of(prefix: Prefix, facts: ClusterFacts, inventory: ClusterInventory) -> Iterator[tuple[str, str]]:
    """What has addresses of a pool that the cluster shall have: the text of its addresses, and what it is."""
    for service in inventory.service_prefixes:
        if prefix.overlaps(service):
            yield str(service), "the addresses of services"
    for node in inventory.nodes:
        for address in node.addresses:
            if prefix.contains(address):
                yield str(address), f"the addresses of nodes; this one is the node {node.name}'s"
    for pool in facts.pools:
        if pool.spec.prefix != prefix and prefix.overlaps(pool.spec.prefix):
            yield str(pool.spec.prefix), f"the pool {pool.metadata.name}"


def _host_local_warnings(
    document: InstallationDocument, resolved: ResolvedInstallation, inventory: ClusterInventory
) -> Iterator[str]:
    """The addresses of pods are those that the platform has given their node."""
    path = f"{document.where}: spec.cni.ipam"
    families = {one.pool.spec.prefix.family for one in resolved.pools} or {Family.IPV4}
    for family in sorted(families):
        without = [node.name for node in inventory.nodes if all(one.family != family for one in node.pod_prefixes)]
        if without:
            yield f"{path}: {_names(without)} no {family} pod CIDR; pods there get no address with the IPAM HostLocal"
    outside = [node.name for node in inventory.nodes if _is_outside(node.pod_prefixes, resolved.pools)]
    if outside:
        yield f"{path}: {_names(outside)} a pod CIDR outside of every pool"


def _is_outside(prefixes: tuple[Prefix, ...], pools: tuple[ResolvedPool, ...]) -> bool:
    return bool(pools) and any(all(prefix not in one.pool.spec.prefix for one in pools) for prefix in prefixes)


def _names(nodes: list[str]) -> str:
    """The nodes as the subject of a sentence, with its verb."""
    shown = ", ".join(nodes[:_MAX_NAMES])
    if len(nodes) == 1:
        return f"the node {shown} has"
    further = f" and {len(nodes) - _MAX_NAMES} more" if len(nodes) > _MAX_NAMES else ""
    return f"the nodes {shown}{further} have"
