"""Addresses under the host's lock: when the clock starts, and what a lock that cannot be had means."""

import pytest

from netplug_core.addressing import Family
from netplug_core.errors import Unavailable
from netplug_core.flows.cni.assignment import ASSIGN_S, RELEASE_S, assign, release, release_after_failure
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.log import Level
from netplug_core.resources.ippool import AllowedUse
from netplug_core.testing.faults import FaultyDatastore, LostRequest
from tests.harness.cni_node import CNINodeHarness

LOCK = "/var/run/netplug/ipam.lock"
REQUEST = AssignRequest(handle="h", node="node-1", wanted=(Automatic(family=Family.IPV4),), use=AllowedUse.WORKLOAD)


def test_both_are_done_under_the_lock(harness: CNINodeHarness) -> None:
    given = assign(harness.world, REQUEST, NO_ENDPOINT, lock=LOCK)
    freed = release(harness.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK)
    assert [one.address for one in given.addresses] == list(freed.addresses)
    assert harness.host.locked == [LOCK, LOCK]
    assert harness.host.held == set()


def test_check_59_and_trap_5_waiting_for_the_lock_costs_no_time_of_the_call(harness: CNINodeHarness) -> None:
    harness.host.lock_wait = lambda: harness.clock.sleep(10 * (ASSIGN_S + RELEASE_S))
    assert assign(harness.world, REQUEST, NO_ENDPOINT, lock=LOCK).addresses
    assert release(harness.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK).addresses


def test_check_59_without_the_lock_it_goes_on_with_an_error_line(harness: CNINodeHarness) -> None:
    harness.host.lock_error = PermissionError(13, "Permission denied", LOCK)
    assert assign(harness.world, REQUEST, NO_ENDPOINT, lock=LOCK).addresses
    ((level, message, fields),) = harness.log.lines
    assert (level, message) == (Level.ERROR, "going on without the host lock")
    assert fields == {"path": LOCK, "cause": str(harness.host.lock_error)}


def test_the_lock_is_free_after_a_failure(harness: CNINodeHarness) -> None:
    harness.set_ready()
    with pytest.raises(Unavailable):
        assign(harness.world, REQUEST, NO_ENDPOINT, lock=LOCK)
    assert harness.host.held == set()


def test_giving_back_hides_no_error_and_says_its_own(harness: CNINodeHarness) -> None:
    assign(harness.world, REQUEST, NO_ENDPOINT, lock=LOCK)
    harness.store = FaultyDatastore(harness.memory, {1: LostRequest()})
    release_after_failure(harness.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK)
    ((level, message, fields),) = harness.log.lines
    assert (level, message) == (Level.WARNING, "addresses could not be given back")
    assert fields == {"handle": "h", "cause": "the scripted datastore: the request was lost"}
    assert harness.handles() == ["h"]


def test_giving_back_frees(harness: CNINodeHarness) -> None:
    assign(harness.world, REQUEST, NO_ENDPOINT, lock=LOCK)
    release_after_failure(harness.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK)
    assert harness.log.lines == []
    harness.assert_nothing_left()
