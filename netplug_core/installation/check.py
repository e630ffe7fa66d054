"""A document judged for a cluster: what it becomes, what is wrong with it, and what is seldom meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from netplug_core.installation.defaults import ResolvedInstallation, resolve
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.pool_defaults import POOLS_PATH, encapsulation_of, find_prefix, find_service_overlaps
from netplug_core.installation.pool_rules import find_encapsulation_problems, find_entry_problems, find_pool_problems
from netplug_core.installation.problems import InvalidInstallation
from netplug_core.installation.rules import find_cluster_problems, find_document_problems
from netplug_core.installation.selection import find_selection_problems
from netplug_core.resources.installation import LinuxDataplane, PodInterfaceType, PoolEncapsulation, Switch
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.unprogrammed import NO_ROUTES, find_unrouted

__all__ = ["CheckedInstallation", "check"]

_LONG_HOLD_BACK_S: Final = 220
"""A runtime usually cancels an ADD after about four minutes."""

_NEW_CLUSTER: Final = ClusterFacts()


@frozen(kw_only=True)
class CheckedInstallation:
    """The result. ``resolved`` is None if the CNI plugin or its IPAM is not known; it is for use without problems."""

    document: InstallationDocument
    resolved: ResolvedInstallation | None
    problems: tuple[InvalidInstallation, ...]
    warnings: tuple[str, ...]


def check(document: InstallationDocument, facts: ClusterFacts = _NEW_CLUSTER) -> CheckedInstallation:
    """Judge a document by every rule; all problems are in the result: what cannot be read, then by the rules."""
    problems = [
        *find_selection_problems(document),
        *find_document_problems(document),
        *find_entry_problems(document),
    ]
    warnings = list(_document_warnings(document))
    resolved = None
    if not any(find_selection_problems(document)):
        resolved = resolve(document, facts)
        problems += find_cluster_problems(document, resolved, facts)
        problems += find_encapsulation_problems(document, resolved)
        problems += find_pool_problems(document, resolved, facts)
        warnings += _inert_settings(document, resolved, facts)
        warnings += find_service_overlaps(_pools_afterwards(resolved, facts), facts.service_prefixes)
    if document.unreadable:
        warnings = []  # of a part of what was meant
    problems = [*document.unreadable, *(one for one in problems if not _follows_from_unreadable(document, one))]
    return CheckedInstallation(document=document, resolved=resolved, problems=tuple(problems), warnings=tuple(warnings))


def _follows_from_unreadable(document: InstallationDocument, problem: InvalidInstallation) -> bool:
    """Whether a field counts as left out because it could not be read, or its entry has another position now."""
    unread = [re.sub(r"\[[0-9]+\]$", "", path) for one in document.unreadable for path in one.paths]
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for path in problem.paths for one in unread)


def _document_warnings(document: InstallationDocument) -> Iterator[str]:
    network = document.installation.spec.network
    for member in document.respelled:
        yield f"{document.where}: {member.path}: an API server drops a field with this letter case"
    timeout_s = network.policy_setup_timeout_s or 0
    path = f"{document.where}: spec.netplugNetwork.linuxPolicySetupTimeoutSeconds"
    if timeout_s > 0:
        yield f"{path}: nothing in this release writes status files, so every pod starts {timeout_s} s later"
    if timeout_s > _LONG_HOLD_BACK_S:
        yield f"{path}: more than {_LONG_HOLD_BACK_S} s; a runtime usually cancels the call of a pod after four minutes"
    for index, pool in enumerate(network.pools or ()):
        prefix = find_prefix(pool.cidr)
        if prefix is not None and str(prefix) != pool.cidr:
            yield f"{document.where}: {POOLS_PATH}[{index}].cidr: {pool.cidr} is taken as {prefix}"


def _inert_settings(
    document: InstallationDocument, resolved: ResolvedInstallation, facts: ClusterFacts
) -> Iterator[str]:
    """What is accepted and rendered although nothing in this release acts upon it, in the pools of the cluster too.

    Who asks for neither encapsulation nor BGP, or for another plugin, has routes by other means.
    """
    pools = _pools_afterwards(resolved, facts)
    wrapped = {encapsulation_of(one.spec) for one in pools} - {PoolEncapsulation.NONE, None}
    inert = [
        *(["bgp Enabled"] if resolved.bgp is Switch.ENABLED else []),
        *(f"encapsulation {value}" for value in sorted(str(one.value) for one in wrapped if one is not None)),
        *(["natOutgoing Enabled"] if any(one.spec.has_outgoing_nat for one in pools) else []),
        *([f"linuxDataplane {resolved.dataplane.value}"] if resolved.dataplane in _PLANNED_DATAPLANES else []),
        *(["linuxPodInterfaceType Netkit"] if resolved.pod_interface_type is PodInterfaceType.NETKIT else []),
    ]
    if inert:
        needs_routes = wrapped or resolved.bgp is Switch.ENABLED
        consequence = f"; {NO_ROUTES}" if needs_routes and resolved.is_netplug and find_unrouted(pools) else ""
        yield f"{document.where}: nothing in this release programs {', '.join(inert)}{consequence}"


def _pools_afterwards(resolved: ResolvedInstallation, facts: ClusterFacts) -> tuple[IPPool, ...]:
    """The pools that the cluster will have and that are not disabled: those that it has count as much as new ones."""
    wanted = {one.pool.spec.prefix: one.pool for one in resolved.pools}
    pools = {pool.spec.prefix: pool for pool in facts.pools} | wanted
    return tuple(pool for pool in pools.values() if not pool.spec.is_disabled)


_PLANNED_DATAPLANES: Final = (LinuxDataplane.BPF, LinuxDataplane.VPP)
