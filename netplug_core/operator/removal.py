"""What has to go when an Installation goes, in the order in which it may go. Pure.

The pods of the nodes end first: until then they use their accounts, and the plugin can take down the pods of others.
The accounts of the plugin go after everything that may still call it. Definitions, pools and all other data stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from netplug_core.operator.actions import Action, DeleteObject
from netplug_core.operator.cluster import ClusterState, Shipped
from netplug_core.operator.node_migration import plan_return
from netplug_core.operator.objects import ObjectRef, find_text, is_being_deleted, may_delete, ref_of
from netplug_core.operator.wanted import CONFIG_MAP_REF, DAEMONSET_REF, NAMESPACE_REF, STATIC_DAEMONSET_REF

__all__ = ["plan_removal"]


def plan_removal(state: ClusterState, shipped: Shipped) -> tuple[tuple[Action, ...], str]:
    """The next actions, and what is awaited; nothing of both if all is gone.

    Objects without the operator's label belong to others, and stay, as do those that are to be ignored. The namespace
    goes last, unless one of these is in it, with everything else that others have put into it; its end is not awaited.
    If nodes are being moved from a static manifest, it gets them back after the pods of the Installation have ended.
    The cluster role of the plugin and its binding stay while the DaemonSet of a static manifest uses them too.
    """
    for stage in _stages(state, shipped):
        present = {ref: found for ref in stage if (found := state.objects.get(ref)) is not None and may_delete(found)}
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


def _stages(state: ClusterState, shipped: Shipped) -> Iterator[tuple[ObjectRef, ...]]:
    has_static_pods = STATIC_DAEMONSET_REF in state.objects
    plugin_refs = reversed(tuple(map(ref_of, shipped.plugin_accounts)))
    yield (DAEMONSET_REF,)
    yield (CONFIG_MAP_REF, *reversed(tuple(map(ref_of, shipped.node_accounts))))
    yield tuple(ref for ref in plugin_refs if ref.namespace or not has_static_pods)
    staying = (ref for ref, found in state.objects.items() if ref.namespace and not may_delete(found))
    if NAMESPACE_REF.name not in {ref.namespace for ref in staying}:
        yield (NAMESPACE_REF,)
