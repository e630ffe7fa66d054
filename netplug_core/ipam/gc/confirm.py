"""The second witness: what a view says is leaked or gone, weighed against direct answers.

A view may be behind, and a broken one may be empty; so nothing that was held is freed on its word alone. A pod or a
node that nobody could be asked about is never taken for gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, frozen

from netplug_core.ipam.gc.candidates import LeakReason, Verdict, judge
from netplug_core.ipam.gc.lookup import LookupResult
from netplug_core.ipam.gc.model import AllocationRef, FailedAction, FreeCondition, FreeHandle, Leak
from netplug_core.orchestrator.model import PodName

__all__ = ["ConfirmationResult", "confirm", "lookups_needed"]


@frozen(kw_only=True)
class ConfirmationResult:
    """What remains of some leaks after the witness was heard.

    ``spared`` are handles that somebody uses after all; ``cleared`` those of their addresses that are no suspects any
    more. ``undecided`` are those of which something could not be answered.
    """

    leaks: tuple[FreeHandle, ...] = ()
    in_use: tuple[FreeHandle, ...] = ()
    cleared: tuple[AllocationRef, ...] = ()
    undetermined: tuple[FailedAction, ...] = ()


def lookups_needed(leaks: Iterable[FreeHandle]) -> tuple[PodName | str, ...]:
    """The pods and the nodes (by name) that the witness has to be asked about, each once."""
    asked: dict[PodName | str, None] = {}
    for action in leaks:
        for leak in action.leaks:
            asked.update(dict.fromkeys(_lookups_of(leak)))
    return tuple(asked)


def confirm(leaks: Iterable[FreeHandle], statement: LookupResult) -> ConfirmationResult:
    """The handles that nobody uses by what the witness said, all of their addresses or none."""
    free: list[FreeHandle] = []
    spared: list[FreeHandle] = []
    cleared: list[AllocationRef] = []
    undecided: list[FailedAction] = []
    for action in leaks:
        silence = statement.unanswered_text(lookups_needed((action,)))
        if silence:
            undecided.append(FailedAction(action=action, cause=silence))
            continue
        heard = [_judge_again(leak, statement) for leak in action.leaks]
        found = tuple(leak for leak in heard if isinstance(leak, Leak))
        if len(found) == len(heard):
            free.append(evolve(action, leaks=found))
        else:
            spared.append(action)
            cleared.extend(suspect for suspect, leak in zip(action.candidates, heard, strict=True) if leak is None)
    return ConfirmationResult(
        leaks=tuple(free), in_use=tuple(spared), cleared=tuple(cleared), undetermined=tuple(undecided)
    )


def _lookups_of(leak: Leak) -> tuple[PodName | str, ...]:
    pod = leak.owner.pod_name
    by_node = leak.owner.is_tunnel or leak.condition is FreeCondition.NODE_GONE
    pods = (pod,) if pod is not None and not leak.owner.is_tunnel else ()
    return (*pods, *((leak.owner.node,) if by_node else ()))


def _judge_again(leak: Leak, statement: LookupResult) -> Leak | Verdict:
    """The leak as the witness saw it; its basis alone if only that fell; None if the address is used."""
    reason = judge(leak.owner, statement.pods, gone=statement.gone)
    if not isinstance(reason, LeakReason):
        return None
    if leak.condition is FreeCondition.NODE_GONE and leak.owner.node not in statement.gone:
        return reason
    return evolve(leak, reason=reason)
