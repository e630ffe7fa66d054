"""Addresses under the host's lock: what ADD and DEL of both executables have in common.

The lock is taken first and the clock is read after it, so that waiting for other calls of this host never eats the
time for the assignment. It is best effort: correctness is the datastore's compare-and-swap, the lock only keeps calls
of one host from colliding.
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

__all__ = ["ASSIGN_S", "RELEASE_S", "assign", "release", "take_back"]

ASSIGN_S = 60.0
"""The longest an assignment takes, counted from the moment the lock is held."""

RELEASE_S = 10.0
"""The longest a release takes, counted likewise."""


def assign(world: CNIWorld, request: AssignRequest, endpoint: EndpointWrites, *, lock: str) -> Assignment:
    """Hold addresses and settle the endpoint.

    Raises:
        AllocationError: they cannot be had.
        Unavailable, ContentionExhausted: not now.
    """
    with _locked(world, lock):
        return world.ipam.assign(request, endpoint, deadline=Deadline.after(world.clock, ASSIGN_S))


def release(world: CNIWorld, request: ReleaseRequest, endpoint: EndpointWrites, *, lock: str) -> Released:
    """Free what a handle holds and settle the endpoint."""
    with _locked(world, lock):
        return world.ipam.release(request, endpoint, deadline=Deadline.after(world.clock, RELEASE_S))


def take_back(world: CNIWorld, request: ReleaseRequest, endpoint: EndpointWrites, *, lock: str) -> None:
    """Release as the inverse of an assignment, with time of its own; a failure is logged and hides nothing.

    The error that made it necessary is the one the caller must see; what stays is freed by the runtime's DEL.
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
