"""Block-based assignment over a datastore: the core's decisions, run through the core's loop.

Each operation is one decision; an endpoint's part is added to the same commit, so that addresses and endpoint are
settled together. Opened by ``hookimpls``, called by ``netplug_core.flows``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from attrs import evolve, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.interface import Datastore
from netplug_core.datastore.loop import CALL_S, run
from netplug_core.errors import NetplugError
from netplug_core.ipam.block import BLOCK
from netplug_core.ipam.decide import decide, queries, still_ready
from netplug_core.ipam.interface import EndpointPart
from netplug_core.ipam.leaks import attachments
from netplug_core.ipam.release import decide_release, held, release_queries
from netplug_core.ipam.request import Assignment, AssignRequest, Attachment, Released, ReleaseRequest, Shortfall
from netplug_core.ipam.search import BlockOrder, hashed_start
from netplug_core.records import Decision, List, NeedMore, Snapshot, Write

__all__ = ["BlockIPAM"]

R = TypeVar("R")

PAGE = 1000
"""Blocks listed in one read."""


@frozen(kw_only=True)
class BlockIPAM:
    """``netplug-ipam``: an IPAM that keeps blocks, affinities and handles in a datastore.

    ``chance`` jitters the waits between attempts; ``order`` says where a node starts in a pool.
    """

    datastore: Datastore
    clock: Clock
    chance: Callable[[], float]
    order: BlockOrder = hashed_start

    def assign(self, request: AssignRequest, endpoint: EndpointPart, *, deadline: Deadline) -> Assignment:
        """Hold the wanted addresses and settle the endpoint, in one commit."""

        def decided(snapshot: Snapshot) -> Decision[Assignment] | NeedMore:
            decision = decide(snapshot, request, self.clock.now_ns(), self.order)
            if isinstance(decision, NeedMore) or isinstance(decision.result, NetplugError):
                return decision
            # The endpoint last: on a store that applies a prefix it must not name addresses that are not held.
            part = endpoint.writes(snapshot, decision.result)
            if isinstance(part, NetplugError):
                return Decision((), part)
            return decision.with_writes(_condition(snapshot, decision, part), part)

        decision = run(self.datastore, (*queries(request), *endpoint.queries), decided, pace=self._pace(deadline))
        return _result(decision)

    def release(self, request: ReleaseRequest, endpoint: EndpointPart, *, deadline: Deadline) -> Released:
        """Free what the handle holds and settle the endpoint, in one commit."""

        def decided(snapshot: Snapshot) -> Decision[Released] | NeedMore:
            decision = decide_release(snapshot, request)
            if isinstance(decision, NeedMore) or isinstance(decision.result, NetplugError):
                return decision
            part = endpoint.writes(snapshot, None)
            if isinstance(part, NetplugError):
                return Decision((), part)
            return decision.with_writes((*_condition(snapshot, decision, part), *part))

        wanted = (*release_queries(request), *endpoint.queries)
        return _result(run(self.datastore, wanted, decided, pace=self._pace(deadline)))

    def held(self, handle: str, *, deadline: Deadline) -> Released:
        """The addresses that a handle holds now."""

        def decided(snapshot: Snapshot) -> Decision[Released] | NeedMore:
            found = held(snapshot, handle)
            return found if isinstance(found, NeedMore) else Decision((), Released(addresses=found))

        wanted = release_queries(ReleaseRequest(handle=handle))
        return _result(run(self.datastore, wanted, decided, pace=self._pace(deadline)))

    def probe(self, request: AssignRequest, *, deadline: Deadline) -> None:
        """Decide an assignment and throw the writes away."""

        def decided(snapshot: Snapshot) -> Decision[Assignment] | NeedMore:
            decision = decide(snapshot, evolve(request, shortfall=Shortfall.REFUSE), self.clock.now_ns(), self.order)
            return decision if isinstance(decision, NeedMore) else evolve(decision, writes=())

        run(self.datastore, queries(request), decided, pace=self._pace(deadline))

    def attachments(self, *, node: str, network: str, deadline: Deadline) -> tuple[Attachment, ...]:
        """Every attachment of a network that holds addresses through a node.

        All blocks are looked at, page by page: a node may hold addresses in blocks of others.
        """
        found: set[Attachment] = set()
        after = ""
        while True:
            page = List(BLOCK, limit=PAGE, after=after)
            snapshot = self.datastore.read((page,), deadline=deadline.capped(CALL_S))
            blocks = (record.value for record in snapshot.list(page))
            found.update(attachments(blocks, node=node, network=network))
            after = snapshot.after(page)
            if not after:
                return tuple(sorted(found))

    def _pace(self, deadline: Deadline) -> Pace:
        return Pace(clock=self.clock, deadline=deadline, chance=self.chance)


def _condition(snapshot: Snapshot, decision: Decision[R], part: tuple[Write, ...]) -> tuple[Write, ...]:
    """What an endpoint's part needs where the decision itself writes nothing: that nobody locks the store meanwhile."""
    return (still_ready(snapshot),) if part and not decision.writes else ()


def _result(decision: Decision[R]) -> R:
    return cast("R", decision.result)  # the loop has raised every result that is an error
