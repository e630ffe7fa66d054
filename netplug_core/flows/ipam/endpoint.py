"""The endpoint of an IPAM whose addresses are not in the datastore: it is committed alone.

On ADD that is done after the addresses are held, on DEL before they are released.
"""

from __future__ import annotations

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.request import Assignment
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.records import Decision, NeedMore, Snapshot
from netplug_core.resources.clusterinformation import READINESS_GATE

__all__ = ["require_ready", "settle_endpoint"]


def settle_endpoint(store: Datastore, endpoint: EndpointWrites, assignment: Assignment | None, *, pace: Pace) -> None:
    """Commit what an endpoint writes: for these addresses on ADD, for None on DEL.

    Raises:
        NetplugError: the endpoint refuses the call.
        Unavailable: the store does not answer, or the cluster is locked.
    """

    def decide(snapshot: Snapshot) -> Decision[None] | NeedMore:
        part = endpoint.writes(snapshot, assignment)
        if isinstance(part, NeedMore):
            return part
        return Decision((), part) if isinstance(part, NetplugError) else Decision(part, None)

    Transaction(store, pace, READINESS_GATE).run(endpoint.queries, decide)


def require_ready(store: Datastore, *, pace: Pace) -> None:
    """Return if the store answers and the cluster is not locked.

    Raises:
        Unavailable: it does not, or it is.
    """
    settle_endpoint(store, NO_ENDPOINT, None, pace=pace)
