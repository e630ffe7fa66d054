"""The invariants of whole calls: what they accept."""

from typing import Any

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Family
from netplug_core.errors import Unavailable
from netplug_core.ipam.allocation.request import Assignment, Automatic
from netplug_core.ipam.model import handle_key
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.call_invariants import (
    locked_datastore_is_not_written,
    request_gets_what_is_available,
)
from tests.harness.allocator.harness import MAX_CACHE_AGE_S, AllocatorHarness, OpenIPAM
from tests.harness.allocator.observed_call import ObservedCall
from tests.harness.allocator.operations import ApplyResource, Assign, SetReady
from tests.harness.allocator.state import ClusterConfiguration, PossibleConfigurations
from tests.harness.allocator.strategies import make_pool, make_request
from tests.harness.allocator.teardown import tear_down
from tests.harness.local_stores import open_batching_ipam, open_resident_ipam, open_standalone_ipam


@pytest.mark.parametrize("open_ipam", [open_standalone_ipam, open_resident_ipam, open_batching_ipam])
@pytest.mark.parametrize("mode", MemoryMode)
def test_a_shortfall_without_a_handle_is_read_once_more_in_a_batch(mode: MemoryMode, open_ipam: OpenIPAM) -> None:
    clock = ManualClock()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_ipam)
    harness.run(ApplyResource(resource=make_pool("p2")))
    answer = harness.run(Assign(request=make_request(None, Automatic(family=Family.IPV4, count=5))))
    assert isinstance(answer, Assignment)
    assert (len(answer.addresses), len(answer.shortfalls)) == (4, 1)
    tear_down(harness)


# --- which configuration a call may have decided by -------------------------------------------------------------------

WANTED = Assign(request=make_request("w0", Automatic(family=Family.IPV4, count=1)))


def observed(harness: AllocatorHarness, **changes: Any) -> ObservedCall:  # noqa: ANN401  # any field of a call
    """A call that was served, as it was observed but for some changes."""
    return evolve(harness.call(WANTED), **changes)


def configured(harness: AllocatorHarness, **changes: Any) -> ClusterConfiguration:  # noqa: ANN401  # any field
    return evolve(harness.read_state().configuration, **changes)


@pytest.fixture
def cluster() -> AllocatorHarness:
    """An ordered store with one pool."""
    clock = ManualClock()
    store = MemoryDatastore(MemoryMode.ORDERED, clock=clock)
    harness = AllocatorHarness(store=store, clock=clock, open_ipam=open_resident_ipam)
    harness.run(ApplyResource(resource=make_pool("p2")))
    return harness


def test_an_answer_has_to_fit_a_configuration_of_the_time_in_which_it_was_decided(cluster: AllocatorHarness) -> None:
    without_pools, with_pool = configured(cluster, pools={}), configured(cluster)
    call = observed(cluster, configurations=PossibleConfigurations((with_pool, without_pools)))
    request_gets_what_is_available(call)
    with pytest.raises(AssertionError, match=r"V13: .* was served"):
        request_gets_what_is_available(evolve(call, configurations=PossibleConfigurations((without_pools,))))


def test_kinds_may_be_of_different_moments(cluster: AllocatorHarness) -> None:
    """Pools as they are now, and reservations as they were."""
    reserved = tuple(pool.spec.prefix for pool in configured(cluster).pools.values())
    before, now = configured(cluster, pools={}), configured(cluster, reserved=reserved)
    call = observed(cluster, configurations=PossibleConfigurations((before, now)))
    request_gets_what_is_available(call)
    with pytest.raises(AssertionError, match="V13"):
        request_gets_what_is_available(evolve(call, configurations=PossibleConfigurations((now,))))


def test_a_call_is_refused_as_locked_only_if_the_store_was_locked_at_some_time(cluster: AllocatorHarness) -> None:
    locked, unlocked = configured(cluster, is_locked=True), configured(cluster)
    refusal = Unavailable("ClusterInformation default", "locked")
    call = observed(cluster, answer=refusal, configurations=PossibleConfigurations((locked, unlocked)))
    request_gets_what_is_available(call)
    locked_datastore_is_not_written(call)
    with pytest.raises(AssertionError, match="V13"):
        request_gets_what_is_available(evolve(call, configurations=PossibleConfigurations((unlocked,))))
    certainly_locked = evolve(call, configurations=PossibleConfigurations((locked,)))
    request_gets_what_is_available(certainly_locked)
    with pytest.raises(AssertionError, match="D12"):
        locked_datastore_is_not_written(certainly_locked)


def test_a_cached_configuration_may_be_half_a_second_old_and_no_older(cluster: AllocatorHarness) -> None:
    cluster.run(WANTED)
    cluster.run(SetReady(is_ready=False))
    cluster.clock.sleep(MAX_CACHE_AGE_S / 2)
    assert not cluster.call(WANTED).configurations.is_certainly_locked
    cluster.clock.sleep(MAX_CACHE_AGE_S)
    assert cluster.call(WANTED).configurations.is_certainly_locked


def test_a_call_whose_commit_was_applied_in_part_may_need_a_damaged_record(cluster: AllocatorHarness) -> None:
    call = observed(cluster)
    damaged = evolve(call.before, damaged=frozenset((handle_key("another"),)))
    assert not evolve(call, before=damaged).needs_damaged
    assert evolve(call, before=damaged, has_partial_commit=True).needs_damaged
