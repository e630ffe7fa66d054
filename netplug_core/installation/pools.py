"""The pools of an Installation: what is refused of them, and which are created, changed, kept or deleted, and why."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Family
from netplug_core.installation.document import InstallationDocument, InvalidInstallation, IPAMType, ProblemClass
from netplug_core.installation.settings import (
    POOLS_PATH,
    SELECT_ALL,
    ClusterFacts,
    ResolvedInstallation,
    ResolvedPool,
    find_prefix,
)
from netplug_core.names import MANAGED_BY
from netplug_core.resources.installation import MAX_INSTALLATION_POOLS, PoolEncapsulation, Switch
from netplug_core.resources.ippool import IPPool, IPPoolSpec
from netplug_core.resources.validation import FieldError, InvalidResource, validate_pool_update, validate_resource

__all__ = [
    "PoolAPI", "PoolAction", "PoolStep", "find_encapsulation_problems", "find_entry_problems", "find_pool_problems",
    "plan_pools", "pools_afterwards",
]  # fmt: skip


# --- pool plan -------------------------------------------------------------------------------------------------------


class PoolAction(enum.Enum):
    """What happens to a pool. The last two leave it as it is, and the installation is degraded."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    LEAVE = "leave"
    WAIT = "ResourceNotReady"
    REFUSE = "ResourceValidationError"


@frozen(kw_only=True)
class PoolStep:
    """One action. ``pool`` is the pool as it will be; for DELETE, LEAVE, WAIT and REFUSE as it is, or is wanted."""

    action: PoolAction
    pool: IPPool
    reason: str


class PoolAPI(enum.Enum):
    """Whether pools can be written through the API that validates them."""

    AVAILABLE = "available"
    MISSING = "missing"


def plan_pools(
    resolved: ResolvedInstallation, facts: ClusterFacts, api: PoolAPI = PoolAPI.AVAILABLE
) -> tuple[PoolStep, ...]:
    """The steps for the wanted pools in their order, then for the other pools by name.

    On a cluster without any pool they are created at once: an aggregated API server itself needs pods.
    """
    existing = {pool.spec.prefix: pool for pool in sorted(facts.pools, key=lambda pool: pool.metadata.name)}
    wanted = [one.pool for one in resolved.pools]
    steps = [_step_for_wanted(pool, existing.get(pool.spec.prefix), facts, api) for pool in wanted]
    prefixes = {pool.spec.prefix for pool in wanted}
    others = (pool for prefix, pool in existing.items() if prefix not in prefixes)
    return (*steps, *(_step_for_other(pool, resolved, api) for pool in others))


def pools_afterwards(facts: ClusterFacts, steps: Iterable[PoolStep]) -> tuple[IPPool, ...]:
    """The pools of the cluster once the steps are done."""
    pools = {pool.metadata.name: pool for pool in facts.pools}
    for step in steps:
        if step.action in (PoolAction.CREATE, PoolAction.UPDATE):
            pools[step.pool.metadata.name] = step.pool
        elif step.action is PoolAction.DELETE:
            del pools[step.pool.metadata.name]
    return tuple(pools.values())


def _step_for_wanted(wanted: IPPool, found: IPPool | None, facts: ClusterFacts, api: PoolAPI) -> PoolStep:
    if found is None:
        return _step_for_missing(wanted, facts, api)
    if found.metadata.name != wanted.metadata.name:
        reason = f"the pool {found.metadata.name} has this CIDR, and the name of a pool cannot be changed"
        return _step(PoolAction.REFUSE, found, reason)
    if not _is_labelled(found) and _comparable(found.spec) != _comparable(wanted.spec):
        reason = f"it is not the operator's and differs; label it {'='.join(MANAGED_BY)} to hand it over"
        return _step(PoolAction.REFUSE, found, reason)
    return _step_for_own(wanted, found)


def _step_for_missing(wanted: IPPool, facts: ClusterFacts, api: PoolAPI) -> PoolStep:
    if not facts.pools:
        return _step(PoolAction.CREATE, _labelled(wanted), "the cluster has no pool")
    former = next((pool for pool in facts.pools if pool.metadata.name == wanted.metadata.name), None)
    if former is not None:
        return _step_for_taken_name(wanted, former)
    if api is PoolAPI.MISSING:
        return _step(PoolAction.WAIT, wanted, "the API that validates pools is not there yet")
    return _step(PoolAction.CREATE, _labelled(wanted), "no pool has this CIDR")


def _step_for_taken_name(wanted: IPPool, former: IPPool) -> PoolStep:
    """The wanted pool has the name of one with another CIDR, which is gone from the Installation."""
    prefix = former.spec.prefix
    if _is_labelled(former):
        return _step(
            PoolAction.WAIT, wanted, f"its name is that of the pool with the CIDR {prefix} until it is deleted"
        )
    return _step(
        PoolAction.REFUSE, wanted, f"its name is that of a pool with the CIDR {prefix}, which is not the operator's"
    )


def _step_for_own(wanted: IPPool, found: IPPool) -> PoolStep:
    """What the Installation cannot say of a pool stays as it is."""
    namespaces, unknown_json = found.spec.namespace_selector, found.spec.unknown_json
    spec = evolve(wanted.spec, namespace_selector=namespaces, unknown_json=unknown_json)
    if _is_labelled(found) and _comparable(found.spec) == _comparable(spec):
        return _step(PoolAction.LEAVE, found, "it is as the Installation wants it")
    updated = _labelled(evolve(found, spec=spec))
    try:
        validate_pool_update(found, updated)
    except InvalidResource as error:
        return _step(PoolAction.REFUSE, found, str(error))
    reason = "it differs" if _is_labelled(found) else "it equals the wanted pool, and gets the label of the operator"
    return _step(PoolAction.UPDATE, updated, reason)


def _step_for_other(found: IPPool, resolved: ResolvedInstallation, api: PoolAPI) -> PoolStep:
    if not _is_labelled(found):
        return _step(PoolAction.LEAVE, found, "it is not the operator's")
    if not resolved.lists_pools:
        return _step(PoolAction.LEAVE, found, "the Installation lists no pools")
    if api is PoolAPI.MISSING:
        return _step(
            PoolAction.WAIT, found, "it is gone from the Installation; the API that deletes pools is not there"
        )
    return _step(PoolAction.DELETE, found, "it is gone from the Installation")


def _step(action: PoolAction, pool: IPPool, reason: str) -> PoolStep:
    return PoolStep(action=action, pool=pool, reason=reason)


def _is_labelled(pool: IPPool) -> bool:
    return MANAGED_BY in pool.metadata.labels


def _labelled(pool: IPPool) -> IPPool:
    name, text = MANAGED_BY
    labels = tuple(sorted((dict(pool.metadata.labels) | {name: text}).items()))
    return evolve(pool, metadata=evolve(pool.metadata, labels=labels))


def _comparable(spec: IPPoolSpec) -> IPPoolSpec:
    """The settings without their order, and without what this release does not know."""
    uses = tuple(sorted(set(spec.allowed_uses), key=lambda use: use.value))
    return evolve(spec, allowed_uses=uses, unknown_json="")


# --- pool rules ------------------------------------------------------------------------------------------------------


_IPIP: Final = (PoolEncapsulation.IPIP, PoolEncapsulation.IPIP_CROSS_SUBNET)
# The fields of a stored pool, as an entry of an Installation spells them, with the class of their problems.
_FIELDS: Final = {
    "metadata.name": ("name", ProblemClass.FORMAT),
    "spec.cidr": ("cidr", ProblemClass.OUT_OF_RANGE),
    "spec.blockSize": ("blockSize", ProblemClass.OUT_OF_RANGE),
    "spec.nodeSelector": ("nodeSelector", ProblemClass.FORMAT),
    "spec.allowedUses": ("allowedUses", ProblemClass.INCOMPATIBLE),
    "spec.ipipMode": ("encapsulation", ProblemClass.INCOMPATIBLE),
    "spec.vxlanMode": ("encapsulation", ProblemClass.INCOMPATIBLE),
    "spec.disableBGPExport": ("disableBGPExport", ProblemClass.INCOMPATIBLE),
}


def find_entry_problems(document: InstallationDocument) -> Iterator[InvalidInstallation]:
    """What is wrong with entries in any cluster: their number, CIDRs, block sizes and selectors."""
    listed = document.installation.spec.network.pools or ()
    where = document.where
    if len(listed) > MAX_INSTALLATION_POOLS:
        accepted = f"at most {MAX_INSTALLATION_POOLS} pools"
        yield InvalidInstallation(where, f"{len(listed)} pools", accepted, ProblemClass.OUT_OF_RANGE, (POOLS_PATH,))
    for index, entry in enumerate(listed):
        path = f"{POOLS_PATH}[{index}]"
        prefix = find_prefix(entry.cidr)
        if prefix is None:
            problem_class = ProblemClass.FORMAT if entry.cidr else ProblemClass.REQUIRED
            accepted = "a CIDR such as 10.0.0.0/16 is expected"
            yield InvalidInstallation(where, entry.cidr or None, accepted, problem_class, (f"{path}.cidr",))
            continue
        shortest, longest = prefix.family.block_lengths
        if entry.block_size is not None and not shortest <= entry.block_size <= longest:
            accepted = f"{shortest} to {longest} for an {prefix.family} pool"
            field = (f"{path}.blockSize",)
            yield InvalidInstallation(where, entry.block_size, accepted, ProblemClass.OUT_OF_RANGE, field)
        if entry.node_selector == "":
            field = (f"{path}.nodeSelector",)
            yield InvalidInstallation(where, "", f"a selector such as {SELECT_ALL}", ProblemClass.REQUIRED, field)


def find_pool_problems(
    document: InstallationDocument, resolved: ResolvedInstallation, facts: ClusterFacts
) -> Iterator[InvalidInstallation]:
    """What is wrong with the pools that the entries become: by themselves, beside each other, in this cluster."""
    for one in resolved.pools:
        yield from _own_problems(document, one)
        yield from _platform_problems(document, one, facts)
        if not resolved.is_netplug and one.pool.spec.node_selector not in ("", SELECT_ALL):
            accepted = f"{SELECT_ALL} is expected: the CNI plugin {resolved.cni.value} assigns from every pool"
            yield _problem(document, one, "nodeSelector", one.pool.spec.node_selector, accepted)
    yield from _neighbour_problems(document, resolved.pools)


def find_encapsulation_problems(
    document: InstallationDocument, resolved: ResolvedInstallation
) -> Iterator[InvalidInstallation]:
    """Encapsulations that the family, BGP or CNI plugin exclude (V8, V9 and V11)."""
    for one in resolved.pools:
        value, prefix = one.encapsulation, one.pool.spec.prefix
        if value in _IPIP and prefix.family is Family.IPV6:
            accepted = f"the IPv6 pool {prefix} can have VXLAN, VXLANCrossSubnet or None"
        elif not resolved.is_netplug and value is not PoolEncapsulation.NONE:
            accepted = f"None is expected: netplug programs no routes with the CNI plugin {resolved.cni.value}"
        elif _needs_bgp(resolved, value):
            accepted = "with bgp Disabled no node of another subnet is reached so: set bgp Enabled, IPIP or VXLAN"
        else:
            continue
        yield _problem(document, one, "encapsulation", value.value, accepted)


def _needs_bgp(resolved: ResolvedInstallation, value: PoolEncapsulation) -> bool:
    """Without BGP a packet that is not wrapped reaches the nodes of its own subnet only."""
    return (
        resolved.is_netplug
        and resolved.ipam is IPAMType.NETPLUG
        and resolved.bgp is Switch.DISABLED
        and value is PoolEncapsulation.NONE
    )


def _own_problems(document: InstallationDocument, one: ResolvedPool) -> Iterator[InvalidInstallation]:
    """The rules of every pool; what ``find_entry_problems`` names is left out."""
    try:
        validate_resource(one.pool)
    except InvalidResource as error:
        for found in error.field_errors:
            if not _is_judged_elsewhere(one, found):
                name, problem_class = _FIELDS[found.field]
                yield _problem(document, one, name, found.value, found.reason, problem_class)


def _is_judged_elsewhere(one: ResolvedPool, found: FieldError) -> bool:
    shortest, longest = one.pool.spec.prefix.family.block_lengths
    match found.field:
        case "spec.blockSize":
            return not shortest <= one.pool.spec.block_length <= longest
        case "spec.nodeSelector":
            return not one.pool.spec.node_selector
        case "spec.ipipMode":
            return one.pool.spec.prefix.family is Family.IPV6
    return False


def _platform_problems(
    document: InstallationDocument, one: ResolvedPool, facts: ClusterFacts
) -> Iterator[InvalidInstallation]:
    """A new cluster's platform routes only the pod CIDRs that it was set up with."""
    platform, prefix = facts.platform_prefixes, one.pool.spec.prefix
    if platform and not facts.pools and not any(prefix in whole for whole in platform):
        accepted = f"a CIDR within the platform's {', '.join(map(str, platform))}"
        yield _problem(document, one, "cidr", str(prefix), accepted)


def _neighbour_problems(
    document: InstallationDocument, pools: tuple[ResolvedPool, ...]
) -> Iterator[InvalidInstallation]:
    for index, one in enumerate(pools):
        for other in pools[:index]:
            prefix, others = one.pool.spec.prefix, other.pool.spec.prefix
            fields = (f"{other.path}.cidr", f"{one.path}.cidr")
            if prefix == others:
                accepted = "each pool needs a CIDR of its own"
                yield InvalidInstallation(document.where, str(prefix), accepted, ProblemClass.DUPLICATE, fields)
                continue  # made of the CIDR, the names are equal too
            if prefix.overlaps(others):
                both = f"{others} and {prefix}"
                accepted = "pools cannot overlap"
                yield InvalidInstallation(document.where, both, accepted, ProblemClass.CONFLICT, fields)
            if one.pool.metadata.name == other.pool.metadata.name:
                fields = (f"{other.path}.name", f"{one.path}.name")
                accepted = "each pool needs a name of its own"
                name = one.pool.metadata.name
                yield InvalidInstallation(document.where, name, accepted, ProblemClass.DUPLICATE, fields)


def _problem(
    document: InstallationDocument,
    one: ResolvedPool,
    name: str,
    value: object,
    accepted: str,
    problem_class: ProblemClass = ProblemClass.INCOMPATIBLE,
) -> InvalidInstallation:
    field = f"{one.path or POOLS_PATH}.{name}"
    return InvalidInstallation(document.where, value, accepted, problem_class, (field,))
