"""Assigns and releases addresses under the host's lock, for the commands of both executables.

The lock is taken before the clock is read, so waiting for other calls of this host does not shorten the time for the
assignment. A lock that cannot be taken is logged: the conditional writes of the datastore keep every call correct, the
lock only spares calls of one host their conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Released, ReleaseRequest
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.log import Level

__all__ = ["ASSIGN_S", "RELEASE_S", "assign", "release", "release_after_failure"]

ASSIGN_S = 60.0
"""The most time that an assignment takes, counted from the moment the lock is held."""

RELEASE_S = 10.0
"""The most time that a release takes, counted likewise."""


def assign(world: CNIWorld, request: AssignRequest, endpoint: EndpointWrites, *, lock: str) -> Assignment:
    """Assign addresses and store the endpoint.

    Raises:
        AllocationError: they cannot be assigned.
        Unavailable, ContentionExhausted: not now.
    """
    with _locked(world, lock):
        return world.ipam.assign(request, endpoint, deadline=Deadline.after(world.clock, ASSIGN_S))


def release(world: CNIWorld, request: ReleaseRequest, endpoint: EndpointWrites, *, lock: str) -> Released:
    """Release what a handle holds and delete the endpoint."""
    with _locked(world, lock):
        return world.ipam.release(request, endpoint, deadline=Deadline.after(world.clock, RELEASE_S))


def release_after_failure(world: CNIWorld, request: ReleaseRequest, endpoint: EndpointWrites, *, lock: str) -> None:
    """Release an assignment because a later step failed, with a deadline of its own; a failure is only logged.

    The caller has to see the error of the later step. The runtime's DEL releases what is left.
    """
    try:
        release(world, request, endpoint, lock=lock)
    except NetplugError as error:
        world.log(Level.WARNING, "addresses could not be given back", handle=request.handle, cause=str(error))


@contextmanager
def _locked(world: CNIWorld, path: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(world.host.lock(path))
        except OSError as error:
            world.log(Level.ERROR, "going on without the host lock", path=path, cause=str(error))
        yield
