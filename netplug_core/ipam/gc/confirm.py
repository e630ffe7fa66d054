"""The second check before an address is freed: a leak that was found in a view has to be confirmed by live lookups.

A view may be out of date, and a faulty one may be empty, so a view alone never frees an address. A pod or a node whose
lookup failed is never taken to be gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, frozen

from netplug_core.ipam.gc.candidates import LeakReason, judge
from netplug_core.ipam.gc.lookup import LookupResult
from netplug_core.ipam.gc.model import AllocationRef, FailedAction, FreeCondition, FreeHandle, Leak
from netplug_core.orchestrator.model import PodName

__all__ = ["ConfirmationResult", "confirm", "lookups_needed"]


@frozen(kw_only=True)
class ConfirmationResult:
    """The leaks that the lookups confirmed, and the others.

    ``leaks`` may be freed. ``in_use`` are handles of which an address is in use after all; ``cleared`` are those
    addresses of them that are no candidates any more. ``undetermined`` are handles for which a lookup failed.
    """

    leaks: tuple[FreeHandle, ...] = ()
    in_use: tuple[FreeHandle, ...] = ()
    cleared: tuple[AllocationRef, ...] = ()
    undetermined: tuple[FailedAction, ...] = ()


def lookups_needed(leaks: Iterable[FreeHandle]) -> tuple[PodName | str, ...]:
    """The pods and the nodes (by name) that have to be looked up to confirm some leaks, each once."""
    return tuple(dict.fromkeys(subject for action in leaks for leak in action.leaks for subject in _lookups_of(leak)))


def confirm(leaks: Iterable[FreeHandle], lookups: LookupResult) -> ConfirmationResult:
    """Compare leaks with live lookups. A handle is confirmed with all of its addresses or not at all."""
    confirmed: list[FreeHandle] = []
    in_use: list[FreeHandle] = []
    cleared: list[AllocationRef] = []
    undetermined: list[FailedAction] = []
    for action in leaks:
        unanswered = lookups.unanswered_text(lookups_needed((action,)))
        if unanswered:
            undetermined.append(FailedAction(action=action, cause=unanswered))
            continue
        checked = [_check(leak, lookups) for leak in action.leaks]
        found = tuple(leak for leak in checked if leak is not None and leak.condition)
        if len(found) == len(checked):
            confirmed.append(evolve(action, leaks=found))
        else:
            in_use.append(action)
            cleared.extend(
                candidate for candidate, leak in zip(action.candidates, checked, strict=True) if leak is None
            )
    return ConfirmationResult(
        leaks=tuple(confirmed), in_use=tuple(in_use), cleared=tuple(cleared), undetermined=tuple(undetermined)
    )


def _lookups_of(leak: Leak) -> tuple[PodName | str, ...]:
    pod = leak.owner.pod_name
    by_node = leak.owner.is_tunnel or leak.condition is FreeCondition.NODE_GONE
    pods = (pod,) if pod is not None and not leak.owner.is_tunnel else ()
    return (*pods, *((leak.owner.node,) if by_node else ()))


def _check(leak: Leak, lookups: LookupResult) -> Leak | None:
    """The leak with the reason that the lookups give; None if the address is in use.

    If its node was the condition for freeing it and exists after all, the leak has no condition any more: it is still a
    candidate.
    """
    reason = judge(leak.owner, lookups.pods, gone=lookups.gone)
    if not isinstance(reason, LeakReason):
        return None
    node_exists = leak.condition is FreeCondition.NODE_GONE and leak.owner.node not in lookups.gone
    return evolve(leak, reason=reason, condition=None if node_exists else leak.condition)
