"""One commit for many requests, as a pure function of the requests and a snapshot; ``batch`` reads and commits it.

Each decision sees the writes of the requests before it, as if they were committed. In the commit, the writes of
different requests to one key are one write, and the order of each request's writes is kept. So every prefix of the
commit is a prefix of each request's own writes, and is healed as if the requests had come one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from attrs import Factory, define, evolve, frozen

from netplug_core.datastore.transaction import Transaction, decide_behind
from netplug_core.datastore.write_set import apply_writes
from netplug_core.records import (
    ABSENT,
    MAX_COMMIT_WRITES,
    Create,
    Decision,
    Delete,
    Key,
    NeedMore,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    Written,
)

__all__ = ["BatchPlan", "BatchRequest", "plan_batch"]

_ChangeWrite: TypeAlias = Create[object] | Update[object] | Delete[object]


@frozen(eq=False)
class BatchRequest:
    """One request: what it reads, its rule, and the transaction that runs it if it has to run alone."""

    transaction: Transaction
    queries: tuple[Query, ...]
    decide: Callable[[Snapshot], Decision[object] | NeedMore]


@frozen(eq=False, kw_only=True)
class BatchPlan:
    """One commit for some requests, which are named by their positions.

    ``decisions``: the requests that the commit serves; one without writes depends on the writes of those before it.
    ``own_positions``: for each write of such a request its position in ``writes``; -1 if an earlier request's write
    implies it. ``needed``: queries to read before the requests in ``undecided`` can be decided. ``alone``: requests
    that cannot share a commit. ``unconfirmed``: those that no commit would confirm, so they are decided from a read,
    alone too. ``later``: requests that found the commit full.
    """

    writes: tuple[Write, ...]
    decisions: Mapping[int, Decision[object]]
    own_positions: Mapping[int, tuple[int, ...]]
    needed: tuple[Query, ...] = ()
    undecided: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()
    unconfirmed: tuple[int, ...] = ()
    later: tuple[int, ...] = ()


def plan_batch(
    requests: Sequence[BatchRequest],
    snapshot: Snapshot,
    *,
    is_from_cache: bool = False,
    max_writes: int = MAX_COMMIT_WRITES,
) -> BatchPlan:
    """Decide requests in their order, each on the writes of those before it, and make one commit of the decisions.

    A request runs alone if its decision cannot be repeated, has to be confirmed by a read, or deletes and creates what
    others of the batch write, or if its writes would need another order than theirs.
    """
    planner = _Planner(snapshot, _MergedWrites(snapshot), is_from_cache, max_writes)
    for number, request in enumerate(requests):
        planner.add(number, request)
    return planner.plan()


@define(eq=False)
class _Planner:
    """A plan in the making; see :class:`BatchPlan`."""

    read: Snapshot
    merged: _MergedWrites
    is_from_cache: bool
    max_writes: int
    decisions: dict[int, Decision[object]] = Factory(dict)
    places: dict[int, list[_Place]] = Factory(dict)
    needed: dict[Query, None] = Factory(dict)
    undecided: list[int] = Factory(list)
    alone: list[int] = Factory(list)
    unconfirmed: list[int] = Factory(list)
    later: list[int] = Factory(list)

    def add(self, number: int, request: BatchRequest) -> None:
        """Decide one more request, and add its writes to the commit if they go together."""
        decision = _decide(request, self.merged.snapshot())
        if isinstance(decision, NeedMore):
            missing = [query for query in decision.queries if query not in self.read.results]
            self.needed.update(dict.fromkeys(missing))
            (self.undecided if missing else self.alone).append(number)
            return
        if decision is not None and self.is_from_cache and not request.transaction.is_confirmed_by_commit(decision):
            self.unconfirmed.append(number)
            return
        candidate = self.merged.with_request(decision.writes) if decision is not None and _may_share(decision) else None
        if decision is None or candidate is None:
            self.alone.append(number)
        elif decision.writes and self.decisions and len(candidate[0]) > self.max_writes:
            self.later.append(number)
        else:
            self.merged, self.places[number] = candidate
            self.decisions[number] = decision

    def plan(self) -> BatchPlan:
        """The plan for the requests so far."""
        writes, positions = self.merged.in_order()
        return BatchPlan(
            writes=writes,
            decisions=self.decisions,
            own_positions={number: tuple(map(positions.__getitem__, own)) for number, own in self.places.items()},
            needed=tuple(self.needed),
            undecided=tuple(self.undecided),
            alone=tuple(self.alone),
            unconfirmed=tuple(self.unconfirmed),
            later=tuple(self.later),
        )


def _decide(request: BatchRequest, snapshot: Snapshot) -> Decision[object] | NeedMore | None:
    """The request's decision; None if it has to run alone, to raise its error or because its time is over."""
    if request.transaction.pace.deadline.has_passed:
        return None
    try:
        return decide_behind(request.transaction.gate, snapshot, request.decide)
    except Exception:  # noqa: BLE001  whatever it is, the rule raises it again to its own caller
        return None


def _may_share(decision: Decision[object]) -> bool:
    return decision.is_repeatable or not decision.writes


# --- one commit of many -----------------------------------------------------------------------------------------------

_Place: TypeAlias = Write | int | None
"""A write of a request in the merged commit: a condition, the number of a change, or None where it is implied."""


@define(eq=False)
class _MergedWrites:
    """The writes of the requests so far.

    ``changes`` are the changes, with the set of those that must come before each in ``before``. ``last`` has the
    newest change of each key, and ``tokens`` stands for its revision, which the store has yet to make. ``known`` is
    what the last request was decided on; its own writes, with their revisions, are in ``newest``.
    """

    known: Snapshot
    conditions: dict[Write, None] = Factory(dict)
    changes: list[_ChangeWrite] = Factory(list)
    before: list[frozenset[int]] = Factory(list)
    last: dict[Key[object], int] = Factory(dict)
    tokens: dict[Key[object], Revision] = Factory(dict)
    token_count: int = 0
    newest: tuple[Sequence[Write], Sequence[Revision]] = ((), ())

    def snapshot(self) -> Snapshot:
        """What the next request is decided on: what was read, as it is after these writes."""
        if self.newest[0]:
            self.known, self.newest = apply_writes(self.known, *self.newest), ((), ())
        return self.known

    def __len__(self) -> int:
        return len(self.conditions) + len(self.changes)

    def with_request(self, writes: Sequence[Write]) -> tuple[_MergedWrites, list[_Place]] | None:
        """These writes and those of one more request; None if they do not go together."""
        merged = _MergedWrites(
            self.snapshot(), dict(self.conditions), list(self.changes), list(self.before), dict(self.last),
            dict(self.tokens), self.token_count,
        )  # fmt: skip
        places: list[_Place] = []
        own: dict[Key[object], int] = {}
        newest = -1
        for write in writes:
            if isinstance(write, (Require, RequireUnchanged)):
                if not merged._add_condition(write, places):
                    return None
                continue
            number = merged._add_change(write, own.get(write.key))
            if number is None:
                return None
            if newest >= 0 and number != newest:
                merged.before[number] |= {newest}
            own[write.key] = newest = number
            places.append(number)
        if len(merged._sorted()) < len(merged.changes):
            return None
        tokens = [Revision(f"pending {merged.token_count + position}") for position in range(len(writes))]
        merged.token_count += len(writes)
        for write, token in zip(writes, tokens, strict=True):
            if not isinstance(write, (Require, RequireUnchanged)):
                merged.tokens[write.key] = token
        merged.newest = (writes, tokens)
        return merged, places

    def _add_condition(self, write: Require[object] | RequireUnchanged[object], places: list[_Place]) -> bool:
        """Whether a condition can hold; one about a key that an earlier request writes holds already, or never."""
        if isinstance(write, RequireUnchanged) or write.key not in self.last:
            self.conditions[write] = None
            places.append(write)
            return True
        places.append(None)
        is_deleted = isinstance(self.changes[self.last[write.key]], Delete)
        return is_deleted if write.revision is ABSENT else write.revision == self.tokens[write.key]

    def _add_change(self, write: _ChangeWrite, own: int | None) -> int | None:
        """The number of a change; one to a key that an earlier request wrote last is folded into that change."""
        place = self.last.get(write.key)
        if place is None or own is not None:
            if own is not None and not isinstance(write, Create):
                write = evolve(write, revision=Written(own))
            self.changes.append(write)
            self.before.append(frozenset() if own is None else frozenset({own}))
            self.last[write.key] = len(self.changes) - 1
            return len(self.changes) - 1
        folded = _fold(self.changes[place], write, self.tokens[write.key])
        if folded is None:
            return None
        self.changes[place] = folded
        return place

    def in_order(self) -> tuple[tuple[Write, ...], Mapping[_Place, int]]:
        """The commit, conditions first, and the position of each of its writes."""
        order = self._sorted()
        positions: dict[_Place, int] = dict(zip(self.conditions, range(len(self.conditions)), strict=True))
        positions.update(zip(order, range(len(self.conditions), len(self)), strict=False))
        positions[None] = -1
        moved = [
            evolve(change, revision=Written(positions[change.revision.index]))
            if not isinstance(change, Create) and isinstance(change.revision, Written)
            else change
            for change in map(self.changes.__getitem__, order)
        ]
        return (*self.conditions, *moved), positions

    def _sorted(self) -> list[int]:
        """The changes in an order that keeps that of each request; shorter if there is none."""
        open_count = [len(before) for before in self.before]
        followers: dict[int, list[int]] = {}
        for number, before in enumerate(self.before):
            for earlier in before:
                followers.setdefault(earlier, []).append(number)
        ready = [number for number, count in enumerate(open_count) if not count]
        order: list[int] = []
        while ready:
            number = heappop(ready)
            order.append(number)
            for follower in followers.get(number, ()):
                open_count[follower] -= 1
                if not open_count[follower]:
                    heappush(ready, follower)
        return order


def _fold(earlier: _ChangeWrite, write: _ChangeWrite, token: Revision) -> _ChangeWrite | None:
    """One write in place of two requests' writes to a key; None if the second has to wait for the first's commit."""
    if isinstance(write, Create) or isinstance(earlier, Delete) or write.revision != token:
        return None
    if isinstance(write, Update):
        return evolve(earlier, value=write.value)
    return None if isinstance(earlier, Create) else Delete(write.key, earlier.revision)
