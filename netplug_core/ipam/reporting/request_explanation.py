"""What a request for an address would get now, or why it would be refused: the allocator's decision, not committed."""

from __future__ import annotations

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.decide import decide, queries
from netplug_core.ipam.allocation.pools import BlockOrder
from netplug_core.ipam.allocation.request import AssignRequest
from netplug_core.records import Malformed, NeedMore, Query, Snapshot, TraceEntry
from netplug_core.resources.clusterinformation import READINESS_GATE

__all__ = ["RequestExplanation", "explain_request", "request_queries"]


@frozen(kw_only=True)
class RequestExplanation:
    """The decision about a request: the addresses it would get, or the refusal, and what was considered."""

    request: AssignRequest
    addresses: tuple[Address, ...] = ()
    refusal: NetplugError | None = None
    trace: tuple[TraceEntry, ...] = ()


def request_queries(request: AssignRequest) -> tuple[Query, ...]:
    """What to read before ``explain_request``."""
    return (READINESS_GATE.query, *queries(request))


def explain_request(
    snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder
) -> RequestExplanation | NeedMore:
    """The decision that an assignment would make of this snapshot; or what else to read.

    A locked datastore and a damaged record refuse it as they refuse an ADD.
    """
    closed = READINESS_GATE.check(snapshot)
    if isinstance(closed, NetplugError):
        return RequestExplanation(request=request, refusal=closed)
    try:
        decision = decide(snapshot, request, now_ns, order)
    except Malformed as error:
        return RequestExplanation(request=request, refusal=error)
    if isinstance(decision, NeedMore):
        return decision
    if isinstance(decision.result, NetplugError):
        return RequestExplanation(request=request, refusal=decision.result, trace=decision.trace)
    addresses = tuple(assigned.address for assigned in decision.result.addresses)
    return RequestExplanation(request=request, addresses=addresses, trace=decision.trace)
