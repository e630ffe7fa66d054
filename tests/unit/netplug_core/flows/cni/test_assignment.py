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
WISH = AssignRequest(handle="h", node="node-1", wanted=(Automatic(family=Family.IPV4),), use=AllowedUse.WORKLOAD)


def test_both_are_done_under_the_lock(bench: CNINodeHarness) -> None:
    given = assign(bench.world, WISH, NO_ENDPOINT, lock=LOCK)
    freed = release(bench.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK)
    assert [one.address for one in given.addresses] == list(freed.addresses)
    assert bench.host.locked == [LOCK, LOCK]
    assert bench.host.held == set()


def test_check_59_and_trap_5_waiting_for_the_lock_costs_no_time_of_the_call(bench: CNINodeHarness) -> None:
    bench.host.lock_wait = lambda: bench.clock.sleep(10 * (ASSIGN_S + RELEASE_S))
    assert assign(bench.world, WISH, NO_ENDPOINT, lock=LOCK).addresses
    assert release(bench.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK).addresses


def test_check_59_without_the_lock_it_goes_on_with_an_error_line(bench: CNINodeHarness) -> None:
    bench.host.lock_error = PermissionError(13, "Permission denied", LOCK)
    assert assign(bench.world, WISH, NO_ENDPOINT, lock=LOCK).addresses
    ((level, message, fields),) = bench.log.lines
    assert (level, message) == (Level.ERROR, "going on without the host lock")
    assert fields == {"path": LOCK, "cause": str(bench.host.lock_error)}


def test_the_lock_is_free_after_a_failure(bench: CNINodeHarness) -> None:
    bench.set_ready()
    with pytest.raises(Unavailable):
        assign(bench.world, WISH, NO_ENDPOINT, lock=LOCK)
    assert bench.host.held == set()


def test_giving_back_hides_no_error_and_says_its_own(bench: CNINodeHarness) -> None:
    assign(bench.world, WISH, NO_ENDPOINT, lock=LOCK)
    bench.store = FaultyDatastore(bench.memory, {1: LostRequest()})
    release_after_failure(bench.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK)
    ((level, message, fields),) = bench.log.lines
    assert (level, message) == (Level.WARNING, "addresses could not be given back")
    assert fields == {"handle": "h", "cause": "the scripted datastore: the request was lost"}
    assert bench.handles() == ["h"]


def test_giving_back_frees(bench: CNINodeHarness) -> None:
    assign(bench.world, WISH, NO_ENDPOINT, lock=LOCK)
    release_after_failure(bench.world, ReleaseRequest(handle="h"), NO_ENDPOINT, lock=LOCK)
    assert bench.log.lines == []
    bench.assert_nothing_left()
