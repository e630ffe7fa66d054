"""Checks whether blocks, handles and affinities fit together, and repairs what is safe to repair.

A repair is committed under the condition that its records are as they were judged, so nodes may go on adding and
deleting pods meanwhile. On an ordered store an ADD writes its records one after the other, and what is between two of
these writes looks like damage. There a repair waits until every ADD that was running has ended, and checks once more.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Atomicity, Datastore
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.errors import NetplugError, NotServed, Unavailable, narrow
from netplug_core.ipam.gc.candidates import DeleteBlock, GCAction, RelinquishAffinity, RepairHandle, ScanTime
from netplug_core.ipam.gc.detect import HandleTally
from netplug_core.ipam.gc.reclaim import DELETE_BLOCKS, RELINQUISH_AFFINITIES, REPAIR_HANDLES, Reclaimer, ReclaimResult
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.ipam.reporting.check import (
    CheckedRecords,
    CheckReport,
    DamagedRecord,
    DeleteDamaged,
    Repair,
    RestoreAffinity,
    RestoreBlock,
    RestoreHandle,
    UnheldAddress,
    check,
    find_unheld,
    loss_text,
    plan_blocks,
)
from netplug_core.records import Decision, Get, Kind, List, Malformed, Query, Record, Snapshot
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, is_locked_for_loss
from netplug_core.resources.ippool import IPPOOL, IPRESERVATION, IPPool, IPReservation
from netplug_core.resources.kinds import KINDS
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = [
    "SETTLE_S", "RepairAttempt", "RepairResult", "check_ipam", "find_loss", "repair", "restore_blocks", "settle_s",
]  # fmt: skip

A = TypeVar("A", bound=GCAction)
V = TypeVar("V")

SETTLE_S = 90.0
"""How long a repair waits on an ordered store: longer than the longest assignment, and its last request, take."""

_REPAIR_TIMEOUT_S = 10.0


class RepairResult(enum.Enum):
    """What became of a repair."""

    DONE = "done"
    CHANGED = "its records have changed since they were checked"
    FAILED = "failed"


@frozen(kw_only=True)
class RepairAttempt:
    """A repair and its result; ``cause`` is why it failed."""

    repair: Repair
    result: RepairResult
    cause: str = ""


def check_ipam(store: Datastore, *, clock: Clock, deadline: Deadline) -> CheckReport:
    """Check whether all records fit together.

    They are read page by page, so a pod that comes or goes meanwhile looks like damage. So what a first look finds is
    reported only if a second one finds it too.

    Raises:
        Unavailable: the store does not answer.
    """
    first = _check(store, clock, deadline)
    if not first.problems and not first.high_counts:
        return first
    second = _check(store, clock, deadline)
    repairs, unrepairable, high_counts = map(frozenset, (first.repairs, first.unrepairable, first.high_counts))
    return evolve(
        second,
        repairs=tuple(each for each in second.repairs if each in repairs),
        unrepairable=tuple(each for each in second.unrepairable if each in unrepairable),
        high_counts=tuple(each for each in second.high_counts if each in high_counts),
    )


def _check(store: Datastore, clock: Clock, deadline: Deadline) -> CheckReport:
    damaged: list[DamagedRecord] = []
    blocks = tuple(_read_all(store, BLOCK, damaged, deadline))
    handles = HandleTally.of(record.value for record in blocks)
    for record in _read_all(store, HANDLE, damaged, deadline):
        handles.add(record)
    affinities = tuple(_read_all(store, AFFINITY, damaged, deadline))
    pools: list[Record[IPPool]] = []
    reservations: list[Record[IPReservation]] = []
    has_all_pools = False
    with suppress(NotServed):  # a cluster may have the definitions of an older release
        pools.extend(_read_all(store, IPPOOL, damaged, deadline))
        has_all_pools = all(each.kind != IPPOOL for each in damaged)
    with suppress(NotServed):
        reservations.extend(_read_all(store, IPRESERVATION, damaged, deadline))
    for row in KINDS:
        if row.kind not in (IPPOOL, IPRESERVATION):
            with suppress(NotServed):
                for _readable in _read_all(store, row.kind, damaged, deadline):
                    pass
    records = CheckedRecords(
        blocks=blocks,
        affinities=affinities,
        handles=handles,
        damaged=tuple(damaged),
        pools=tuple(pools),
        has_all_pools=has_all_pools,
        reservations=tuple(reservations),
    )
    return check(records, ScanTime(wall_ns=clock.now_ns(), elapsed_ms=round(clock.monotonic() * 1000)))


def find_loss(store: Datastore, *, within: Prefix | None = None, deadline: Deadline) -> str:
    """What is wrong where workloads have addresses (``within`` a prefix) and there is no block; empty if nothing is.

    While the datastore is locked for such a loss, it lasts until a block holds every address. Blocks are looked for
    once more after the endpoints: an assignment stores its block first.

    Raises:
        Unavailable: the store does not answer.
    """
    query = Get(CLUSTER_INFORMATION_KEY)
    information = store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S)).find(query.key)
    if not (information is not None and is_locked_for_loss(information.value)) and _has_blocks(store, deadline):
        return ""
    unheld = _read_unheld(store, deadline)
    return loss_text([one for one in unheld if within is None or within.contains(one.address)])


def restore_blocks(
    store: Datastore, *, network: str, chance: Callable[[], float], deadline: Deadline
) -> Iterator[RepairAttempt]:
    """Store the blocks of the addresses that workloads have and no block holds, each in a commit of its own.

    Handles and affinities are restored from the blocks by ``check_ipam`` and ``repair``.

    Raises:
        Unavailable: the store does not answer.
    """
    unheld = _read_unheld(store, deadline)
    blocks = [record.value for record in _read_all(store, BLOCK, [], deadline)]
    pools = [record.value for record in _read_all(store, IPPOOL, [], deadline)]
    now_ns = deadline.clock.now_ns()
    for wanted in plan_blocks(unheld, pools=pools, blocks=blocks, network=network, now_ns=now_ns):
        pace = Pace(clock=deadline.clock, deadline=deadline.capped(_REPAIR_TIMEOUT_S), chance=chance)
        yield _attempt(store, wanted, pace)


def _has_blocks(store: Datastore, deadline: Deadline) -> bool:
    query = List(BLOCK, limit=1)
    snapshot = store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S))
    return bool(snapshot.readable(query) or snapshot.malformed(query))


def _read_unheld(store: Datastore, deadline: Deadline) -> tuple[UnheldAddress, ...]:
    """The addresses of endpoints that no block holds. What has begun since the endpoints were read does not matter."""
    endpoints = tuple(record.value for record in _read_all(store, WORKLOAD_ENDPOINT, [], deadline))
    return find_unheld(endpoints, (record.value for record in _read_all(store, BLOCK, [], deadline)))


def settle_s(store: Datastore) -> float:
    """How long ``repair`` waits before it changes anything on this store, in seconds."""
    return SETTLE_S if store.description.atomicity is Atomicity.ORDERED else 0.0


def repair(
    store: Datastore, report: CheckReport, *, chance: Callable[[], float], deadline: Deadline
) -> Iterator[RepairAttempt]:
    """Repair what a check found and a second one still finds, each in a commit of its own.

    Counts that are too high are corrected too, though they are no problem.

    Raises:
        Unavailable: the store does not answer; what was not tried stays as it is.
    """
    clock, repairs = deadline.clock, (*report.high_counts, *report.repairs)
    wait_s = settle_s(store)
    if repairs and wait_s:
        clock.sleep(wait_s)
        again = _check(store, clock, deadline)
        still = frozenset((*again.high_counts, *again.repairs))
        for gone in (each for each in repairs if each not in still):
            yield RepairAttempt(repair=gone, result=RepairResult.CHANGED)
        repairs = tuple(each for each in repairs if each in still)
    for each in repairs:
        pace = Pace(clock=clock, deadline=deadline.capped(_REPAIR_TIMEOUT_S), chance=chance)
        yield _attempt(store, each, pace)


def _attempt(store: Datastore, wanted: Repair, pace: Pace) -> RepairAttempt:
    queries, decide = _rule(wanted, pace.clock.now_ns)
    try:
        result = Transaction(store, pace).run(queries, decide).get_result()
    except Unavailable:
        raise
    except NetplugError as error:  # a record that it needs is damaged; the other repairs go on
        return RepairAttempt(repair=wanted, result=RepairResult.FAILED, cause=str(error))
    return RepairAttempt(repair=wanted, result=result)


def _rule(
    wanted: Repair, now_ns: Callable[[], int]
) -> tuple[tuple[Query, ...], Callable[[Snapshot], Decision[RepairResult]]]:
    """What a repair reads, and its decision."""
    match wanted:
        case RepairHandle():
            return REPAIR_HANDLES.queries((wanted,)), partial(_decide_action, REPAIR_HANDLES, wanted, now_ns)
        case RelinquishAffinity():
            queries = RELINQUISH_AFFINITIES.queries((wanted,))
            return queries, partial(_decide_action, RELINQUISH_AFFINITIES, wanted, now_ns)
        case DeleteBlock():
            return DELETE_BLOCKS.queries((wanted,)), partial(_decide_action, DELETE_BLOCKS, wanted, now_ns)
        case _:
            return wanted.queries, partial(_decide_restore, wanted)


def _decide_action(
    rule: Reclaimer[A], action: A, now_ns: Callable[[], int], snapshot: Snapshot
) -> Decision[RepairResult]:
    # Never NeedMore: these three rules read everything first.
    decision: Decision[ReclaimResult] = narrow(rule.decide(snapshot, (action,), now_ns()), Decision)
    is_done = not decision.get_result().skipped
    return Decision(decision.writes, RepairResult.DONE if is_done else RepairResult.CHANGED)


def _decide_restore(
    wanted: RestoreBlock | RestoreHandle | RestoreAffinity | DeleteDamaged, snapshot: Snapshot
) -> Decision[RepairResult]:
    writes = wanted.writes(snapshot)
    return Decision((), RepairResult.CHANGED) if writes is None else Decision(writes, RepairResult.DONE)


def _read_all(store: Datastore, kind: Kind[V], damaged: list[DamagedRecord], deadline: Deadline) -> Iterator[Record[V]]:
    """Every record of a kind. At the end those that cannot be decoded are added to ``damaged``."""
    malformed: list[Malformed] = []
    yield from read_pages(store, kind, deadline=deadline, malformed=malformed)
    damaged.extend(DamagedRecord(kind=kind, error=error) for error in malformed)
