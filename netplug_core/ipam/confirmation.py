"""The second witness: what a view says is leaked or gone, weighed against direct answers.

A view may be behind, and a broken one may be empty; so nothing that was held is freed on its word alone. A pod or a
node that nobody could be asked about is never taken for gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, frozen

from netplug_core.ipam.collection import Basis, Failure, FreeHandle, Leak, Taken
from netplug_core.ipam.holdings import LeakReason, Verdict, judge
from netplug_core.ipam.witness import PodName, Statement

__all__ = ["Confirmed", "confirm", "questions"]


@frozen(kw_only=True)
class Confirmed:
    """What remains of some leaks after the witness was heard.

    ``spared`` are handles that somebody uses after all; ``cleared`` those of their addresses that are no suspects any
    more. ``undecided`` are those of which something could not be answered.
    """

    leaks: tuple[FreeHandle, ...] = ()
    spared: tuple[FreeHandle, ...] = ()
    cleared: tuple[Taken, ...] = ()
    undecided: tuple[Failure, ...] = ()


def questions(leaks: Iterable[FreeHandle]) -> tuple[PodName | str, ...]:
    """The pods and the nodes (by name) that the witness has to be asked about, each once."""
    asked: dict[PodName | str, None] = {}
    for action in leaks:
        for leak in action.leaks:
            asked.update(dict.fromkeys(_questions(leak)))
    return tuple(asked)


def confirm(leaks: Iterable[FreeHandle], statement: Statement) -> Confirmed:
    """The handles that nobody uses by what the witness said, all of their addresses or none."""
    free: list[FreeHandle] = []
    spared: list[FreeHandle] = []
    cleared: list[Taken] = []
    undecided: list[Failure] = []
    for action in leaks:
        silence = statement.silence(questions((action,)))
        if silence:
            undecided.append(Failure(action=action, cause=silence))
            continue
        heard = [_hear(leak, statement) for leak in action.leaks]
        found = tuple(leak for leak in heard if isinstance(leak, Leak))
        if len(found) == len(heard):
            free.append(evolve(action, leaks=found))
        else:
            spared.append(action)
            cleared.extend(suspect for suspect, leak in zip(action.suspects, heard, strict=True) if leak is None)
    return Confirmed(leaks=tuple(free), spared=tuple(spared), cleared=tuple(cleared), undecided=tuple(undecided))


def _questions(leak: Leak) -> tuple[PodName | str, ...]:
    pod = leak.holding.pod_name
    by_node = leak.holding.is_tunnel or leak.basis is Basis.NODE_GONE
    pods = (pod,) if pod is not None and not leak.holding.is_tunnel else ()
    return (*pods, *((leak.holding.node,) if by_node else ()))


def _hear(leak: Leak, statement: Statement) -> Leak | Verdict:
    """The leak as the witness saw it; its basis alone if only that fell; None if the address is used."""
    reason = judge(leak.holding, statement.pods, gone=statement.gone)
    if not isinstance(reason, LeakReason):
        return None
    if leak.basis is Basis.NODE_GONE and leak.holding.node not in statement.gone:
        return reason
    return evolve(leak, reason=reason)
