"""Whether the installation of a static manifest can become that of an Installation, before anything is written. Pure.

``node_migration`` does it. It begins only if there is an Installation that has installed nothing yet: creating it
asks for an operator, while a manifest that is applied over an operator's work is a mistake.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import field, frozen

from netplug_core.decoding.tables import find_member, find_object
from netplug_core.installation.conversion import convert
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.incompatible import IncompatibleCluster
from netplug_core.installation.static_manifest import STATIC_CONFIG_MAP, STATIC_NAMESPACE
from netplug_core.installation.static_pod import StaticObjects
from netplug_core.operator.actions import Action, CompleteInstallation
from netplug_core.operator.cluster import ClusterState, Shipped
from netplug_core.operator.conditions import Reason, Report
from netplug_core.operator.crd_mode import ClusterMode
from netplug_core.operator.node_migration import is_under_way
from netplug_core.operator.objects import Json, ObjectRef, find_text, is_ignored, ref_of
from netplug_core.operator.wanted import DAEMONSET_REF, STATIC_DAEMONSET_REF

__all__ = ["CONTROLLERS_REF", "STATIC_CONFIG_MAP_REF", "ConversionStep", "begin_conversion", "is_to_be_judged"]

STATIC_CONFIG_MAP_REF: Final = ObjectRef("v1", "ConfigMap", STATIC_CONFIG_MAP, STATIC_NAMESPACE)
CONTROLLERS_REF: Final = ObjectRef("apps/v1", "Deployment", "netplug-kube-controllers", STATIC_NAMESPACE)

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
        controllers=state.objects.get(CONTROLLERS_REF),
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
