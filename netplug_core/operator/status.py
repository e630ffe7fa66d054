"""The status of an Installation as the operator writes it. Pure."""

from __future__ import annotations

from attrs import evolve

from netplug_core.decoding.tables import find_member
from netplug_core.errors import excerpt
from netplug_core.installation.computed import computed_spec
from netplug_core.operator.actions import Action, ChangePool, describe
from netplug_core.operator.conditions import Reason, Report, conditions_of
from netplug_core.operator.objects import Json, find_text
from netplug_core.operator.plan import Plan

__all__ = ["has_status", "plan_after_failure", "report_failure", "status_of"]

_MEMBERS = ("conditions", "computed", "crdMode", "detectedProvider", "mtu", "netplugVersion")


def status_of(plan: Plan, installation: Json, *, version: str, now: str) -> Json:
    """The status after a plan. What it does not know stays as it was: the mode, the settings, the version.

    The version is that of the release whose objects were all there last.
    """
    before = find_member(installation, "status")
    status = {name: before[name] for name in _MEMBERS if name in before} if isinstance(before, dict) else {}
    status["conditions"] = conditions_of(plan.report, installation, now)
    if plan.mode is not None:
        status["crdMode"] = find_text(installation, "status", "crdMode") or plan.mode.value
    if plan.checked is not None and plan.checked.resolved is not None:
        status["computed"] = computed_spec(plan.checked.resolved)
        status["mtu"] = plan.checked.resolved.mtu
    if plan.provider is not None:
        status["detectedProvider"] = plan.provider.value
    if plan.report.is_ready:
        status["netplugVersion"] = version
    return status


def has_status(installation: Json, status: Json) -> bool:
    """Whether the object has this status already. Members of others do not count."""
    return all(find_member(installation, "status", name) == status.get(name) for name in _MEMBERS)


def plan_after_failure(plan: Plan, action: Action, error: Exception) -> Plan:
    """A plan of which an action has failed: the component that the action is of is degraded."""

    def failed(report: Report) -> Report:
        return report_failure(report, describe(action), error)

    is_pool, pools, nodes = isinstance(action, ChangePool), plan.pools or plan.report, plan.nodes or plan.report
    return evolve(
        plan,
        report=failed(plan.report),
        pools=failed(pools) if is_pool else pools,
        nodes=nodes if is_pool else failed(nodes),
    )


def report_failure(report: Report, what: str, error: Exception, *, is_read: bool = False) -> Report:
    """The report if an action failed, or if the cluster could not be read; ``what`` names it."""
    reason = Reason.READ_ERROR if is_read else Reason.UPDATE_ERROR
    return evolve(report, degraded=(reason, f"{what}: {excerpt(error)}"))
