"""The interface of every IPAM: the block IPAM, host-local files, a delegated plugin.

``assign`` and ``release`` return when the addresses *and* the endpoint are stored. A flow passes the endpoint's share
as queries and a pure function; the block IPAM adds it to its own commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from netplug_core.addressing import Family
from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Attachment, Released, ReleaseRequest
from netplug_core.records import NeedMore, Query, Snapshot, Write

__all__ = ["IPAM", "NO_ENDPOINT", "EndpointWrites"]


@frozen(kw_only=True)
class EndpointWrites:
    """The endpoint's share of a commit.

    ``writes`` is called with the answers to ``queries`` and, on ADD, the addresses (None on DEL). It may ask
    for more to be read; an error it returns refuses the whole call.
    """

    queries: tuple[Query, ...]
    writes: Callable[[Snapshot, Assignment | None], tuple[Write, ...] | NeedMore | NetplugError]


NO_ENDPOINT = EndpointWrites(queries=(), writes=lambda _snapshot, _assignment: ())
"""For calls that keep no endpoint: ``netplug-ipam`` under another main plugin, and the library."""


class IPAM(Protocol):
    """Address assignment."""

    def assign(self, request: AssignRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Assignment:
        """Hold the wanted addresses under the handle and settle the endpoint; who fails takes back what it wrote.

        Raises:
            AllocationError: they cannot be had; nothing is held.
            Unavailable, ContentionExhausted: not now.
        """
        ...

    def release(self, request: ReleaseRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Released:
        """Free whatever the handle holds and settle the endpoint; a handle that holds nothing is success."""
        ...

    def held(self, handle: str, *, deadline: Deadline) -> Released | None:
        """The addresses that a handle holds now, none for an unknown one; None if only another program knows."""
        ...

    def probe(self, request: AssignRequest, *, deadline: Deadline) -> tuple[Family, ...]:
        """The families that would be assigned, as far as they are known, if the request could be served now.

        Nothing is assigned.

        Raises:
            AllocationError, Unavailable: what ``assign`` would raise.
        """
        ...

    def attachments(self, *, node: str, network: str, deadline: Deadline) -> tuple[Attachment, ...]:
        """Every attachment of a network that holds addresses through a node, sorted."""
        ...

    def forward(self, *, deadline: Deadline) -> None:
        """Let another program that keeps the addresses do its part of a CHECK or GC; without one, nothing is done.

        Raises:
            NetplugError: it failed, or has found something wrong.
        """
        ...
