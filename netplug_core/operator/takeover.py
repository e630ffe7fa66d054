"""From a static manifest to an Installation: whether a cluster can be converted, and the move of its nodes one by one.

The old DaemonSet and the new one never serve a node at once. Each step can be repeated after a crash.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import field, frozen

from netplug_core.decoding.tables import find_member, find_object, find_text
from netplug_core.errors import narrow
from netplug_core.installation.cluster import IncompatibleCluster
from netplug_core.installation.conversion import convert
from netplug_core.installation.daemonset import ENDPOINT_CONFIG_MAP, SYSTEM_NAMESPACE
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.static import STATIC_CONFIG_MAP, STATIC_NAMESPACE
from netplug_core.installation.static_settings import StaticObjects
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.operator.report import Reason, Report, is_ready_pod, rollout_of
from netplug_core.operator.state import (
    DAEMONSET_REF,
    STATIC_BUDGET_REF,
    STATIC_CONTROLLERS_REF,
    STATIC_DAEMONSET_REF,
    Action,
    ApplyObject,
    ClusterMode,
    ClusterState,
    CompleteInstallation,
    DeleteObject,
    Json,
    ObjectRef,
    Shipped,
    is_being_deleted,
    is_ignored,
    marked,
    ref_of,
)
from netplug_core.resources.installation import NodeUpdate

__all__ = [
    "LEAVING", "MIGRATED", "MIGRATION_LABEL", "OVERRIDE_REF", "PRE_OPERATOR",
    "STATIC_CONFIG_MAP_REF", "STATIC_OVERRIDE_REF", "ConversionStep", "NodeMigration", "adapted", "begin_conversion",
    "is_restricted", "is_to_be_judged", "is_under_way", "plan_migration", "plan_return", "static_refs",
]  # fmt: skip


# --- node migration --------------------------------------------------------------------------------------------------


MIGRATION_LABEL: Final = f"{RESOURCE_DOMAIN}/operator-node-migration"
"""The label of a node that says who serves it."""

PRE_OPERATOR: Final = "pre-operator"
"""The DaemonSet of the static manifest."""

LEAVING: Final = "leaving"
"""Neither: its pod ends, and the plugin works without a node process meanwhile."""

MIGRATED: Final = "migrated"
"""The DaemonSet of the Installation."""

OVERRIDE_REF: Final = ObjectRef("v1", "ConfigMap", ENDPOINT_CONFIG_MAP, SYSTEM_NAMESPACE)
STATIC_OVERRIDE_REF: Final = ObjectRef("v1", "ConfigMap", ENDPOINT_CONFIG_MAP, STATIC_NAMESPACE)
"""Where the API server is, for the pods of a namespace, if they cannot reach its Service."""

_ON_LINUX: Final = {"kubernetes.io/os": "linux"}


@frozen(kw_only=True)
class NodeMigration:
    """What to do next. ``actions`` are for when every object is as it is wanted; ``progress`` says what is awaited.

    ``is_restricted`` is whether the DaemonSet of the Installation serves the nodes with the label only;
    ``binds_both`` whether the rights of each account are bound to that of the static manifest too.
    """

    actions: tuple[Action, ...] = field(default=(), hash=False)
    progress: str
    is_restricted: bool
    binds_both: bool


@frozen(kw_only=True)
class _Node:
    """A node, and the pods of the two DaemonSets on it."""

    name: str
    uid: str
    label: str
    static_pods: tuple[Json, ...] = field(hash=False)
    pods: tuple[Json, ...] = field(hash=False)

    @property
    def is_served(self) -> bool:
        """Whether the pod is ready that its label asks for."""
        serving = {PRE_OPERATOR: self.static_pods, MIGRATED: self.pods}.get(self.label, ())
        return any(map(is_ready_pod, serving))


def is_under_way(state: ClusterState) -> bool:
    """Whether nodes are being moved, or were when an earlier operator was killed."""
    is_labelled = any(_label_of(node) for node in state.nodes)
    return is_labelled or is_restricted(state.objects.get(DAEMONSET_REF))


def static_refs(shipped: Shipped) -> tuple[ObjectRef, ...]:
    """The objects of a static manifest that go after the last node, in that order, without its DaemonSet.

    The rights of the controllers to their Lease are in the namespace of the manifest, and stay: an Installation has
    them too.
    """
    accounts = (
        ref_of(one) for one in (*shipped.controllers_accounts, *shipped.node_accounts, *shipped.plugin_accounts)
    )
    own = (ref for ref in accounts if ref.namespace == SYSTEM_NAMESPACE)
    refs = [ObjectRef(ref.api_version, ref.kind, ref.name, STATIC_NAMESPACE) for ref in own]
    config_map = ObjectRef("v1", "ConfigMap", STATIC_CONFIG_MAP, STATIC_NAMESPACE)
    return (STATIC_CONTROLLERS_REF, STATIC_BUDGET_REF, config_map, *reversed(refs))


def adapted(wanted: Iterable[Json], migration: NodeMigration, state: ClusterState) -> tuple[Json, ...]:
    """The objects of an Installation as they are wanted meanwhile, and where the old pods found the API server."""
    first, *others = (_adapted(one, migration) for one in wanted)
    override = state.objects.get(STATIC_OVERRIDE_REF)
    if override is None or OVERRIDE_REF in state.objects:
        return first, *others
    metadata = {"name": OVERRIDE_REF.name, "namespace": OVERRIDE_REF.namespace}
    copied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": find_object(override, "data")}
    return first, copied, *others


def plan_migration(state: ClusterState, shipped: Shipped, update: NodeUpdate) -> NodeMigration:
    """The next step of a migration that begins, or is under way."""
    nodes, static = _nodes(state), state.objects.get(STATIC_DAEMONSET_REF)
    moved = [node for node in nodes if node.label == MIGRATED and not node.static_pods]
    daemonset = state.objects.get(DAEMONSET_REF)
    has_all = daemonset is not None and not is_restricted(daemonset)
    if static is None and (has_all or len(moved) == len(nodes)):
        return _plan_end(state, shipped, daemonset)
    actions, awaited = _moves(nodes, static, daemonset, update)
    progress = f"{len(moved)} of {len(nodes)} nodes have moved from the static manifest"
    progress = f"{progress}; {awaited}" if awaited else progress
    return NodeMigration(actions=actions, progress=progress, is_restricted=True, binds_both=True)


def plan_return(state: ClusterState) -> tuple[tuple[Action, ...], str]:
    """What a removal does, after the pods of the Installation have ended, so that the static manifest serves again.

    The next actions, and what is awaited.
    """
    static = state.objects.get(STATIC_DAEMONSET_REF)
    if static is not None and is_restricted(static):
        return (ApplyObject(_restored_static(static)),), "the static manifest is being restored"
    labels = tuple(_relabelled(node, "") for node in state.nodes if _label_of(node))
    if static is not None and labels and (rollout := rollout_of(static, ())).progress:
        return (), f"the static manifest serves again: {rollout.progress}"
    return labels, "the labels of nodes are being removed" if labels else ""


# --- steps -----------------------------------------------------------------------------------------------------------


def _moves(
    nodes: Sequence[_Node], static: Json | None, daemonset: Json | None, update: NodeUpdate
) -> tuple[tuple[Action, ...], str]:
    """The next labels, the restriction, or the end of the old DaemonSet; and what is awaited."""
    restricted = static is None or is_restricted(static)
    new = [node for node in nodes if not node.label]
    if new:
        return tuple(_labelled(node, _first_label(node, is_restricted=restricted)) for node in new), ""
    if static is not None and not restricted:
        return (ApplyObject(_restricted_static(static)),), ""
    ended = tuple(_labelled(node, MIGRATED) for node in nodes if node.label == LEAVING and not node.static_pods)
    steps = ended or tuple(_labelled(node, LEAVING) for node in _next(nodes, update))
    if steps or any(node.label != MIGRATED or node.static_pods for node in nodes):
        return steps, "" if steps else _awaited(nodes)
    return _end_of_static(static, daemonset)


def _end_of_static(static: Json | None, daemonset: Json | None) -> tuple[tuple[Action, ...], str]:
    """When every moved node has its pod, nothing needs the old DaemonSet any more."""
    if rollout := rollout_of(daemonset, ()).progress:
        return (), rollout
    if static is not None and not is_being_deleted(static):
        return (DeleteObject(STATIC_DAEMONSET_REF, find_text(static, "metadata", "uid")),), ""
    return (), f"{STATIC_DAEMONSET_REF} is being deleted"


def _first_label(node: _Node, *, is_restricted: bool) -> str:
    """A node that joins late gets its pod from the Installation; one of the old DaemonSet's is ending on it."""
    if not is_restricted:
        return PRE_OPERATOR
    return LEAVING if node.static_pods else MIGRATED


def _next(nodes: Sequence[_Node], update: NodeUpdate) -> Iterator[_Node]:
    """The nodes that may leave now: those without a ready pod, and of the others as many as an update may take."""
    waiting = [node for node in nodes if node.label == PRE_OPERATOR]
    yield from (node for node in waiting if not node.is_served)
    unserved = sum(not node.is_served for node in nodes)
    allowed = _allowed(update.rolling_update.max_unavailable, len(nodes)) - unserved
    yield from [node for node in waiting if node.is_served][: max(0, allowed)]


def _allowed(limit: int | str, total: int) -> int:
    """How many nodes may be without a pod, at least one; a percentage is rounded up, as Kubernetes does."""
    if isinstance(limit, int):
        return max(1, limit)
    return max(1, math.ceil(int(limit.removesuffix("%")) * total / 100))


def _awaited(nodes: Sequence[_Node]) -> str:
    for node in nodes:
        if node.label == LEAVING or (node.label == MIGRATED and node.static_pods):
            return f"the pod of the static manifest on node {node.name} is ending"
    unserved = next((node.name for node in nodes if not node.is_served), "")
    return f"the pod of netplug-node on node {unserved} is not ready yet" if unserved else ""


def _plan_end(state: ClusterState, shipped: Shipped, daemonset: Json | None) -> NodeMigration:
    """Every node has moved: the DaemonSet loses its restriction, and when each pod is there again, the rest goes."""
    if daemonset is None or is_restricted(daemonset):
        awaited = "the DaemonSet netplug-node gets all nodes"
    else:
        awaited = rollout_of(daemonset, ()).progress
    progress = "all nodes have moved from the static manifest"
    if awaited:
        return NodeMigration(progress=f"{progress}; {awaited}", is_restricted=False, binds_both=True)
    old = ((ref, state.objects.get(ref)) for ref in static_refs(shipped))
    actions: tuple[Action, ...] = tuple(
        DeleteObject(ref, find_text(found, "metadata", "uid"))
        for ref, found in old
        if found is not None and not is_being_deleted(found)
    )
    labels = tuple(_relabelled(node, "") for node in state.nodes if _label_of(node))
    progress = f"{progress}; what is left of it is being removed"
    return NodeMigration(actions=(*actions, *labels), progress=progress, is_restricted=False, binds_both=False)


# --- objects ---------------------------------------------------------------------------------------------------------


def _adapted(wanted: Json, migration: NodeMigration) -> Json:
    ref = ref_of(wanted)
    if ref == DAEMONSET_REF and migration.is_restricted:
        return marked(_with_node_selector(wanted, {**_ON_LINUX, MIGRATION_LABEL: MIGRATED}))
    if ref.kind.endswith("RoleBinding") and ref.namespace != SYSTEM_NAMESPACE and migration.binds_both:
        own = narrow(find_member(wanted, "subjects"), list)
        return marked({**wanted, "subjects": [*own, *({**one, "namespace": STATIC_NAMESPACE} for one in own)]})
    return wanted


def _with_node_selector(wanted: Json, selector: Mapping[str, str]) -> Json:
    spec, template, pod = (
        find_object(wanted, *path) for path in (("spec",), ("spec", "template"), ("spec", "template", "spec"))
    )
    return {**wanted, "spec": {**spec, "template": {**template, "spec": {**pod, "nodeSelector": dict(selector)}}}}


def _restricted_static(static: Json) -> Json:
    """Without an update strategy that replaces pods: the restriction changes their template."""
    pod = {"spec": {"nodeSelector": {**_node_selector(static), MIGRATION_LABEL: PRE_OPERATOR}}}
    identity = _identity(STATIC_DAEMONSET_REF, static)
    return {**identity, "spec": {"updateStrategy": {"type": "OnDelete"}, "template": pod}}


def _restored_static(static: Json) -> Json:
    """What is applied in place of the restriction. A node selector has one owner, who has to name all of it."""
    selector = {name: value for name, value in _node_selector(static).items() if name != MIGRATION_LABEL}
    template = {"spec": {"template": {"spec": {"nodeSelector": selector}}}} if selector else {}
    return {**_identity(STATIC_DAEMONSET_REF, static), **template}


def _node_selector(daemonset: Json) -> Json:
    return find_object(daemonset, "spec", "template", "spec", "nodeSelector")


def _identity(ref: ObjectRef, found: Json) -> Json:
    """An object without settings; its uid is a condition. Applied alone, it takes back what was applied before."""
    metadata = {"name": ref.name, "uid": find_text(found, "metadata", "uid")}
    namespace = {"namespace": ref.namespace} if ref.namespace else {}
    return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": {**metadata, **namespace}}


def _labelled(node: _Node, label: str) -> Action:
    metadata = {"name": node.name, "uid": node.uid, "labels": {MIGRATION_LABEL: label}}
    return ApplyObject({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def _relabelled(node: Json, label: str) -> Action:
    """The node with another label, or without one."""
    identity = _identity(ObjectRef("v1", "Node", find_text(node, "metadata", "name")), node)
    labels = {"labels": {MIGRATION_LABEL: label}} if label else {}
    return ApplyObject({**identity, "metadata": {**find_object(identity, "metadata"), **labels}})


# --- reading ---------------------------------------------------------------------------------------------------------


def _nodes(state: ClusterState) -> list[_Node]:
    """The nodes that the DaemonSets are for, by name."""
    static_pods, pods = _by_node(state.static_pods), _by_node(state.pods)
    found = [
        _Node(
            name=(name := find_text(node, "metadata", "name")),
            uid=find_text(node, "metadata", "uid"),
            label=_label_of(node),
            static_pods=tuple(static_pods.get(name, ())),
            pods=tuple(pods.get(name, ())),
        )
        for node in state.nodes
        if _ON_LINUX.items() <= find_object(node, "metadata", "labels").items()
    ]
    return sorted(found, key=lambda node: node.name)


def _by_node(pods: Iterable[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for pod in pods:
        found.setdefault(find_text(pod, "spec", "nodeName"), []).append(pod)
    return found


def _label_of(node: Json) -> str:
    """One of our labels; empty for any other value, which is not ours."""
    found = find_text(node, "metadata", "labels", MIGRATION_LABEL)
    return found if found in (PRE_OPERATOR, LEAVING, MIGRATED) else ""


def is_restricted(daemonset: Json | None) -> bool:
    """Whether a DaemonSet serves only nodes whose label says so."""
    return bool(find_text(daemonset, "spec", "template", "spec", "nodeSelector", MIGRATION_LABEL))


# --- conversion ------------------------------------------------------------------------------------------------------


STATIC_CONFIG_MAP_REF: Final = ObjectRef("v1", "ConfigMap", STATIC_CONFIG_MAP, STATIC_NAMESPACE)

_MAX_SHOWN: Final = 20
_APPLIED_OVER: Final = (
    f"a static manifest has been applied over this installation: {STATIC_DAEMONSET_REF} is there, and would take the "
    "rights of the plugin away; delete that DaemonSet, and the Installation repairs the rest"
)
_IGNORED: Final = (
    "is to be ignored; remove that annotation, and its nodes are moved to the Installation, or delete the Installation"
)

Right = tuple[str, str, str, str]


@frozen(kw_only=True)
class ConversionStep:
    """What to report, and what to do first, before any node is moved."""

    actions: tuple[Action, ...] = field(default=(), hash=False)
    report: Report


def is_to_be_judged(state: ClusterState) -> bool:
    """Whether the DaemonSet of a static manifest is there, and no node has been moved."""
    return STATIC_DAEMONSET_REF in state.objects and not is_under_way(state)


def begin_conversion(
    document: InstallationDocument, installation: Json, state: ClusterState, shipped: Shipped, mode: ClusterMode
) -> ConversionStep | None:
    """Why it cannot begin, or what the Installation has to get first; None if nodes can be moved.

    The ``document`` is what counts of the ``installation``, and has no problems.
    """
    static = state.objects[STATIC_DAEMONSET_REF]
    if DAEMONSET_REF in state.objects or find_text(installation, "status", "netplugVersion"):
        return _refused(Reason.MIGRATION, _APPLIED_OVER)
    for ref in (STATIC_DAEMONSET_REF, *map(ref_of, shipped.plugin_accounts)):
        if is_ignored(state.objects.get(ref, {})):
            return _refused(Reason.MIGRATION, f"netplug is installed by a static manifest, and {ref} {_IGNORED}")
    objects = StaticObjects(
        daemonset=static,
        config_map=state.objects.get(STATIC_CONFIG_MAP_REF),
        controllers=state.objects.get(STATIC_CONTROLLERS_REF),
    )
    conversion = convert(objects, document, state.facts, api_group=mode.api_group)
    problems = (*conversion.problems, *_role_problems(state, shipped))
    if problems:
        lines = [str(problem) for problem in problems[:_MAX_SHOWN]]
        hidden = len(problems) - len(lines)
        return _refused(Reason.CONVERSION, "\n".join([*lines, *([f"{hidden} more"] if hidden else [])]))
    if conversion.missing:
        completed = {**installation, "spec": _completed(find_object(installation, "spec"), conversion.missing)}
        progress = (Reason.NOT_READY, "the Installation gets the settings of the static manifest")
        return ConversionStep(actions=(CompleteInstallation(completed),), report=Report(progressing=progress))
    return None


def _refused(reason: str, message: str) -> ConversionStep:
    return ConversionStep(report=Report(degraded=(reason, message)))


def _completed(spec: Json, missing: Json) -> Json:
    """A spec with the members that it lacks, at every depth."""
    inner = {
        name: _completed(find_object(spec, name), value) if isinstance(value, Mapping) and name in spec else value
        for name, value in missing.items()
    }
    return {**spec, **inner}


def _role_problems(state: ClusterState, shipped: Shipped) -> Iterator[IncompatibleCluster]:
    """The rights of the plugin become those of this release: there may not be others."""
    for wanted in shipped.plugin_accounts:
        ref = ref_of(wanted)
        found = state.objects.get(ref)
        if ref.kind != "ClusterRole" or found is None:
            continue
        extra = sorted(set(_rights(found)) - set(_rights(wanted)))
        if extra:
            named = ", ".join(f"{verb} {resource}.{group}".rstrip(".") for group, resource, verb, _names in extra)
            fix = (
                "the plugin of this release has no such right; apply the manifest of this release, or give it elsewhere"
            )
            yield IncompatibleCluster(str(ref), named, fix, "rules")


def _rights(role: Json) -> Iterator[Right]:
    """Each single right: API group, resource, verb, and the names that it is restricted to."""
    rules = find_member(role, "rules")
    for rule in rules if isinstance(rules, list | tuple) else ():
        groups, resources, verbs, names = (
            _list(rule, member) for member in ("apiGroups", "resources", "verbs", "resourceNames")
        )
        for group, resource, verb in itertools.product(groups, resources, verbs):
            yield group, resource, verb, ",".join(names)


def _list(rule: object, member: str) -> list[str]:
    found = find_member(rule, member) if isinstance(rule, Mapping) else None
    return [str(one) for one in found] if isinstance(found, list | tuple) else []
