"""What the operator does next: from one reading of the cluster to actions, and to what the status says. Pure.

A plan needs no memory of earlier ones. So the operator may be killed after any action: the next reading leads to the
actions that are left. A plan without actions is the end, until the cluster changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from netplug_core.decoding.tables import find_member, find_text
from netplug_core.errors import ConfigurationError
from netplug_core.installation.daemonset import RenderedInstallation, render
from netplug_core.installation.document import (
    CNIType,
    InstallationDocument,
    IPAMType,
    find_selection_problems,
    overlaid,
    read_installation,
    select,
)
from netplug_core.installation.pools import PoolAction, PoolStep
from netplug_core.installation.rules import CheckedInstallation, check
from netplug_core.installation.settings import ClusterFacts, ResolvedInstallation
from netplug_core.operator.report import Reason, Report, controllers_rollout_of, rollout_of, with_pending
from netplug_core.operator.state import (
    CONFIG_MAP_REF,
    CONTROLLERS_LEASE_REF,
    CONTROLLERS_REF,
    DAEMONSET_REF,
    FINALIZER,
    NAMESPACE_REF,
    STATIC_DAEMONSET_REF,
    Action,
    ApplyObject,
    ChangePool,
    ClusterMode,
    ClusterState,
    DeleteObject,
    Json,
    LockDatastore,
    ModeRefused,
    ObjectRef,
    OperatorSettings,
    SetFinalizer,
    Shipped,
    decide_mode,
    is_being_deleted,
    is_ignored,
    may_delete,
    needs_apply,
    recorded_cni,
    recorded_provider,
    ref_of,
    wanted_definitions,
    wanted_objects,
)
from netplug_core.operator.takeover import (
    NodeMigration,
    adapted,
    begin_conversion,
    is_to_be_judged,
    is_under_way,
    plan_migration,
    plan_return,
)
from netplug_core.resources.installation import KubernetesProvider

__all__ = [
    "Plan", "plan", "plan_removal",
]  # fmt: skip


# --- the removal ------------------------------------------------------------------------------------------------------


def plan_removal(state: ClusterState, shipped: Shipped) -> tuple[tuple[Action, ...], str]:
    """The next actions, and what is awaited; nothing of both if all is gone.

    Objects without the operator's label belong to others, and stay, as do those that are to be ignored. The namespace
    goes last, unless one of these is in it, with everything else that others have put into it; its end is not awaited.
    If nodes are being moved from a static manifest, it gets them back after the pods of the Installation have ended.
    Rights of the plugin and of the controllers outside the namespace stay while a static manifest uses them too, and so
    does the Lease of the controllers.
    """
    for stage in _stages(state, shipped):
        present = {
            ref: found for ref in stage if (found := state.objects.get(ref)) is not None and _is_removable(ref, found)
        }
        standing = {ref: found for ref, found in present.items() if not is_being_deleted(found)}
        if standing:
            deletions = [DeleteObject(ref, find_text(found, "metadata", "uid")) for ref, found in standing.items()]
            return tuple(deletions), f"{deletions[0].ref} is being deleted"
        if present and stage != (NAMESPACE_REF,):
            return (), f"{next(iter(present))} is being deleted"
        if stage == (DAEMONSET_REF,) and state.pods and DAEMONSET_REF not in state.objects:
            return (), f"{len(state.pods)} pods of netplug-node are ending"
        if stage == (DAEMONSET_REF,) and any(restoring := plan_return(state)):
            return restoring
    return (), ""


def _is_removable(ref: ObjectRef, found: Json) -> bool:
    """The Lease has no label of the operator's: the controllers make it."""
    return may_delete(found) or (ref == CONTROLLERS_LEASE_REF and not is_ignored(found))


def _stages(state: ClusterState, shipped: Shipped) -> Iterator[tuple[ObjectRef, ...]]:
    has_static_pods = STATIC_DAEMONSET_REF in state.objects
    shared = [*map(ref_of, (*shipped.plugin_accounts, *shipped.controllers_accounts))]
    yield (CONTROLLERS_REF,)
    yield (DAEMONSET_REF,)
    yield (CONFIG_MAP_REF, *reversed(tuple(map(ref_of, shipped.node_accounts))))
    yield tuple(ref for ref in reversed(shared) if ref.namespace == NAMESPACE_REF.name or not has_static_pods)
    if not has_static_pods:
        yield (CONTROLLERS_LEASE_REF,)  # without its rights, a pod that is still ending makes no other one
    staying = (ref for ref, found in state.objects.items() if ref.namespace and not may_delete(found))
    if NAMESPACE_REF.name not in {ref.namespace for ref in staying}:
        yield (NAMESPACE_REF,)


# --- the plan ---------------------------------------------------------------------------------------------------------


_CHANGING = (PoolAction.CREATE, PoolAction.UPDATE)
_TROUBLED = (PoolAction.WAIT, PoolAction.REFUSE)
_NOTHING_TO_REPORT = Report()


@frozen(kw_only=True)
class Plan:
    """``actions`` in their order, and what there is to report. ``mode`` is None if it is refused.

    ``provider`` is the one that the defaults are chosen for; None if they have not been chosen yet.
    ``checked`` is the Installation that the plan is for; None if there is none that can be acted upon. ``pools`` and
    ``nodes`` are the parts of the report that are about the pools, and about all else; None if it is of all together.
    """

    actions: tuple[Action, ...] = ()
    report: Report = _NOTHING_TO_REPORT
    mode: ClusterMode | None = None
    checked: CheckedInstallation | None = None
    provider: KubernetesProvider | None = None
    pools: Report | None = None
    nodes: Report | None = None


def plan(state: ClusterState, shipped: Shipped, settings: OperatorSettings) -> Plan:
    """What to do in a cluster."""
    try:
        mode = decide_mode(state.evidence(settings.asked_mode))
    except ModeRefused as refused:
        return Plan(report=_degraded(Reason.MIGRATION, str(refused)))
    if state.installation is None:
        return Plan(mode=mode, actions=_definition_actions(state, shipped, settings, mode))
    if is_being_deleted(state.installation):
        return evolve(_plan_removal(state.installation, state, shipped), mode=mode)
    first = _plan_conversion(state.installation, state, shipped, mode) if is_to_be_judged(state) else None
    return evolve(first or _plan_installation(state.installation, state, shipped, settings, mode), mode=mode)


def _plan_conversion(installation: Json, state: ClusterState, shipped: Shipped, mode: ClusterMode) -> Plan | None:
    """What has to be done or said before nodes are moved from a static manifest; None if they can be."""
    try:
        checked = check(_read(installation, state.overlay), state.facts)
    except ConfigurationError as error:
        return Plan(report=_degraded(Reason.INVALID, str(error)))
    if checked.problems:
        return Plan(report=_degraded(Reason.INVALID, _describe_problems(checked)))
    step = begin_conversion(checked.document, installation, state, shipped, mode)
    return None if step is None else Plan(actions=step.actions, report=step.report)


def _plan_installation(
    installation: Json, state: ClusterState, shipped: Shipped, settings: OperatorSettings, mode: ClusterMode
) -> Plan:
    first = (*_definition_actions(state, shipped, settings, mode), *_finalizer_actions(installation))
    missing = sorted(shipped.definitions[mode].keys() - state.served_resources)
    if missing:
        return Plan(actions=first, report=_without_definitions(missing, settings, mode))
    facts = _facts(state, installation)
    try:
        checked = check(_read(installation, state.overlay), facts)
    except ConfigurationError as error:
        return Plan(actions=first, report=_degraded(Reason.INVALID, str(error)))
    if checked.problems:
        return Plan(actions=first, report=_degraded(Reason.INVALID, _describe_problems(checked)))
    if state.loss and checked.resolved is not None and _uses_blocks(checked.resolved):
        locking = () if state.is_locked_for_loss else (LockDatastore(is_locked=True),)
        return Plan(actions=(*first, *locking), report=_degraded(Reason.BLOCKS_LOST, state.loss), checked=checked)
    if state.is_locked_for_loss and not state.loss:
        first = (*first, LockDatastore(is_locked=False))
    rendered = render(checked.document, facts, version=settings.version, api_group=mode.api_group)
    then = _plan_rendered(checked, rendered, state, shipped)
    actions = (*first, *then.actions)
    provider = facts.provider if facts.recorded_provider is None else facts.recorded_provider
    return evolve(then, actions=actions, report=with_pending(then.report, len(actions)), provider=provider)


def _plan_rendered(
    checked: CheckedInstallation, rendered: RenderedInstallation, state: ClusterState, shipped: Shipped
) -> Plan:
    """The pools first, because the conflist depends on them; those that are gone last, because they take long."""
    made = tuple(ChangePool(step) for step in rendered.steps if step.action in _CHANGING)
    gone = tuple(ChangePool(step) for step in rendered.steps if step.action is PoolAction.DELETE)
    pools = Report(degraded=_troubled_pools(rendered.steps))
    if checked.resolved is not None and not checked.resolved.is_netplug:
        deletions, awaited = plan_removal(state, shipped)
        if (deletions or awaited) and select(checked.document).cni.value is None:
            return Plan(report=_degraded(Reason.INVALID, _describe_derived_plugin(checked.resolved.cni)))
        notes = (*checked.warnings, f"nothing is installed on the nodes: {rendered.no_conflist_reason}")
        nodes = Report(notes=notes, progressing=(Reason.NOT_READY, awaited) if awaited else None)
        return _plan_of((*made, *deletions, *gone), checked, pools, nodes)
    if rendered.conflist is None:
        waiting = (Reason.NOT_FOUND, f"waiting for a pool: {rendered.no_conflist_reason}; create an IPPool, or list it")
        return _plan_of((*made, *gone), checked, pools, Report(degraded=waiting, notes=checked.warnings))
    wanted, migration = wanted_objects(rendered, shipped), _find_migration(checked, state, shipped)
    if migration is not None:
        wanted = adapted(wanted, migration, state)
    leaving = next((ref_of(one) for one in wanted if is_being_deleted(state.objects.get(ref_of(one)))), None)
    if leaving is not None:
        progress = (Reason.NOT_READY, f"{leaving} is being deleted; it is made again when it is gone")
        return _plan_of(made, checked, pools, Report(progressing=progress, notes=checked.warnings))
    objects = tuple(ApplyObject(one) for one in wanted if needs_apply(state.objects.get(ref_of(one)), one))
    moves = migration.actions if migration is not None and not objects else ()
    nodes = _with_migration(_with_rollout(Report(notes=checked.warnings), state), migration)
    return _plan_of((*made, *objects, *gone, *moves), checked, pools, nodes)


def _plan_of(actions: tuple[Action, ...], checked: CheckedInstallation, pools: Report, nodes: Report) -> Plan:
    """A plan whose report is that of the pools and of all else together."""
    report = evolve(nodes, degraded=pools.degraded or nodes.degraded)
    return Plan(actions=actions, report=report, checked=checked, pools=pools, nodes=nodes)


def _find_migration(checked: CheckedInstallation, state: ClusterState, shipped: Shipped) -> NodeMigration | None:
    """The move of nodes from a static manifest, if there is one."""
    if checked.resolved is None or not (STATIC_DAEMONSET_REF in state.objects or is_under_way(state)):
        return None
    return plan_migration(state, shipped, checked.resolved.node_update)


def _plan_removal(installation: Json, state: ClusterState, shipped: Shipped) -> Plan:
    """The Installation is being deleted: everything of ours goes, then the finalizer."""
    deletions, awaited = plan_removal(state, shipped)
    report = Report(progressing=(Reason.NOT_READY, awaited or "everything that was installed is gone"))
    if deletions or awaited:
        return Plan(actions=deletions, report=report)
    held = FINALIZER in _finalizers(installation)
    return Plan(actions=(_set_finalizer(installation, is_held=False),) if held else (), report=report)


def _facts(state: ClusterState, installation: Json) -> ClusterFacts:
    """What is known of the cluster, with what was decided before."""
    return evolve(
        state.facts, recorded_cni=recorded_cni(installation), recorded_provider=recorded_provider(installation)
    )


# --- parts ------------------------------------------------------------------------------------------------------------


def _definition_actions(
    state: ClusterState, shipped: Shipped, settings: OperatorSettings, mode: ClusterMode
) -> tuple[Action, ...]:
    if not settings.manages_definitions:
        return ()
    wanted = wanted_definitions(mode, shipped)
    return tuple(ApplyObject(one) for one in wanted if needs_apply(state.objects.get(ref_of(one)), one))


def _finalizer_actions(installation: Json) -> tuple[Action, ...]:
    return () if FINALIZER in _finalizers(installation) else (_set_finalizer(installation, is_held=True),)


def _set_finalizer(installation: Json, *, is_held: bool) -> SetFinalizer:
    name, uid = (find_text(installation, "metadata", member) for member in ("name", "uid"))
    return SetFinalizer(name, uid, is_held)


def _finalizers(installation: Json) -> Sequence[object]:
    found = find_member(installation, "metadata", "finalizers")
    return found if isinstance(found, list) else ()


def _read(installation: Json, overlay: Json | None) -> InstallationDocument:
    """The settings that count.

    Raises:
        ConfigurationError: one of the objects cannot be read, or its spellings contradict each other.
    """
    default = _read_object(installation)
    if overlay is None or is_being_deleted(overlay):
        return default
    above = _read_object(overlay)
    for problem in (*find_selection_problems(above), *find_selection_problems(default)):
        raise problem
    return overlaid(default, above)


def _read_object(found: Json) -> InstallationDocument:
    """Only what the user wrote of an object: its other members are the server's."""
    written = {"apiVersion", "kind", "spec"} & found.keys()
    name = find_text(found, "metadata", "name")
    return read_installation({**{member: found[member] for member in written}, "metadata": {"name": name}})


def _describe_problems(checked: CheckedInstallation) -> str:
    first, more = checked.problems[0], len(checked.problems) - 1
    return f"{first} ({more} more: netplugctl install validate shows all)" if more else str(first)


def _describe_derived_plugin(derived: CNIType) -> str:
    """Netplug is installed, no status says that it was chosen, and the cluster looks like that of another plugin."""
    return (
        f"the default CNI plugin of this cluster is {derived.value}, but netplug is installed; nothing is removed "
        f"unless spec.cni.type says so: set it to {CNIType.NETPLUG.value} to keep netplug, or to {derived.value}"
    )


def _troubled_pools(steps: Sequence[PoolStep]) -> tuple[str, str] | None:
    """The reason and the message about pools that cannot be as they are wanted."""
    troubled = [step for step in steps if step.action in _TROUBLED]
    if not troubled:
        return None
    texts = (f"IPPool {step.pool.metadata.name} ({step.pool.spec.prefix}): {step.reason}" for step in troubled)
    return troubled[0].action.value, "\n".join(texts)


def _uses_blocks(resolved: ResolvedInstallation) -> bool:
    """Whether addresses come from blocks: others hold those of another IPAM."""
    return resolved.is_netplug and resolved.ipam is IPAMType.NETPLUG


def _without_definitions(missing: Sequence[str], settings: OperatorSettings, mode: ClusterMode) -> Report:
    what = f"the cluster does not serve {', '.join(missing)}"
    if settings.manages_definitions:
        return Report(progressing=(Reason.NOT_READY, f"{what} yet"))
    step = f"apply the definitions {mode.value}, or run the operator with --manage-crds=true"
    return _degraded(Reason.NOT_FOUND, f"{what}; {step}")


def _with_rollout(report: Report, state: ClusterState) -> Report:
    nodes = rollout_of(state.objects.get(DAEMONSET_REF), state.pods)
    controllers = controllers_rollout_of(state.objects.get(CONTROLLERS_REF), state.controller_pods)
    failures, awaited = (*nodes.failures, *controllers.failures), nodes.progress or controllers.progress
    failing = (Reason.POD_FAILURE, "\n".join(failures)) if failures else None
    progress = (Reason.NOT_READY, awaited) if awaited and not failing else None
    return evolve(report, degraded=failing, progressing=progress)


def _with_migration(report: Report, migration: NodeMigration | None) -> Report:
    return report if migration is None else evolve(report, progressing=(Reason.NOT_READY, migration.progress))


def _degraded(reason: str, message: str) -> Report:
    return Report(degraded=(reason, message))
