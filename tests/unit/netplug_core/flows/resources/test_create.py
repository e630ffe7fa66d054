"""Creation: identity, neighbours, races and lost replies."""

from collections.abc import Callable, Sequence

import pytest
from attrs import evolve

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.outcome import (
    Effect,
    Outcome,
    ResourceExists,
)
from netplug_core.ipam.model import Attribute, Block
from netplug_core.records import Create, OutcomeUnknown, Revision, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolStatus, PoolCondition
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import FaultyDatastore, LostReply, LostRequest, RunBefore
from tests.harness.resources import (
    ResourceHarness,
    make_pool,
)


def test_create_sets_uid_and_creation_time_and_omits_what_users_do_not_write(harness: ResourceHarness) -> None:
    status = IPPoolStatus(conditions=(PoolCondition(type="Allocatable", status="False"),))
    asked = evolve(make_pool(), metadata=Metadata(name="p", deletion_time_ns=5), status=status)
    outcome = harness.create(asked)
    assert (outcome.effect, str(outcome.key), outcome.warnings) == (Effect.CREATED, "IPPool(p)", ())
    stored = harness.stored().value
    assert stored.metadata.uid == "00000000-0000-4000-8000-000000000001"
    assert stored.metadata.creation_time_ns == harness.clock.wall_ns
    assert not stored.is_terminating
    assert stored.status == IPPoolStatus()


def test_create_keeps_a_given_uid_and_creation_time(harness: ResourceHarness) -> None:
    harness.create(evolve(make_pool(), metadata=Metadata(name="p", uid="mine", creation_time_ns=7_000_000_000)))
    assert harness.stored().value.metadata == Metadata(name="p", uid="mine", creation_time_ns=7_000_000_000)


def test_create_says_what_is_seldom_meant(harness: ResourceHarness) -> None:
    (warning,) = harness.create(make_pool(block_length=22)).warnings
    assert warning.startswith("IPPool(p): blockSize 22: a block of so many addresses can outgrow what a datastore")


@pytest.mark.parametrize("uid", ["", "mine"])
def test_what_exists_is_not_created_again(harness: ResourceHarness, uid: str) -> None:
    """S-29 of the catalogue."""
    asked = evolve(make_pool(), metadata=Metadata(name="p", uid=uid))
    harness.create(asked)
    with pytest.raises(ResourceExists, match=r"^resource already exists: IPPool\(p\); choose another name, or apply$"):
        harness.create(asked)


def test_create_refuses_an_overlap_and_writes_nothing(harness: ResourceHarness) -> None:
    """S-29 of the catalogue."""
    harness.create(make_pool("1.2.3.0/24", "ippool1"))
    for name, cidr in (("ippool2", "1.2.3.0/24"), ("ippool3", "1.2.0.0/16"), ("ippool4", "1.2.3.128/25")):
        with pytest.raises(InvalidResource) as caught:
            harness.create(make_pool(cidr, name))
        assert f"IPPool({name}) CIDR overlaps with IPPool(ippool1) CIDR 1.2.3.0/24" in str(caught.value)
    assert harness.names() == ["ippool1"]


def test_of_two_racing_creations_that_overlap_one_is_refused(harness: ResourceHarness) -> None:
    store = harness.with_faults(commit_1=RunBefore(lambda: harness.create(make_pool("10.0.0.0/8", "first"))))
    with pytest.raises(InvalidResource, match=r"IPPool\(second\) CIDR overlaps with IPPool\(first\)"):
        harness.create(make_pool("10.1.0.0/16", "second"), store=store)
    assert harness.names() == ["first"]


def test_create_refuses_what_no_pool_may_be(harness: ResourceHarness) -> None:
    with pytest.raises(InvalidResource, match="IP pool size is too small"):
        harness.create(make_pool("10.0.0.0/27"))
    assert harness.names() == []


def test_create_refuses_a_resource_version(harness: ResourceHarness) -> None:
    """S-35 of the catalogue."""
    text = "error with field Metadata.ResourceVersion = '12345' (field must not be set for a Create request)"
    with pytest.raises(InvalidResource) as caught:
        harness.create(make_pool(), revision="12345")
    assert text in str(caught.value)


def test_create_refuses_blocks_of_another_size_in_its_range(harness: ResourceHarness) -> None:
    """S-31 of the catalogue."""
    block = Block.new(Prefix.parse("1.2.3.0/26"), owner="", now_ns=1).assign((Ordinal(3),), Attribute(handle="h"))
    harness.put(Create(block.key, block))
    with pytest.raises(InvalidResource, match="blocksSize conflicts with existing allocations"):
        harness.create(make_pool("1.2.3.0/26", block_length=28))
    assert harness.create(make_pool("1.2.3.0/26")).effect is Effect.CREATED


@pytest.mark.parametrize("act", [ResourceHarness.create, ResourceHarness.apply])
def test_a_lost_reply_is_no_second_creation(harness: ResourceHarness, act: Callable[..., Outcome]) -> None:
    outcome = act(harness, make_pool(), store=harness.with_faults(commit_1=LostReply()))
    assert outcome.effect is Effect.CREATED
    assert harness.names() == ["p"]


@pytest.mark.parametrize("act", [ResourceHarness.create, ResourceHarness.apply])
def test_a_lost_reply_about_an_identity_that_is_not_ours_is_reported(
    harness: ResourceHarness, act: Callable[..., Outcome]
) -> None:
    asked = evolve(make_pool(), metadata=Metadata(name="p", uid="mine"))
    with pytest.raises(OutcomeUnknown):
        act(harness, asked, store=harness.with_faults(commit_1=LostReply()))
    assert harness.names() == ["p"]


def test_a_store_that_is_away_is_reported(harness: ResourceHarness) -> None:
    with pytest.raises(Unavailable):
        harness.create(make_pool(), store=harness.with_faults(commit_1=LostRequest()))
    assert harness.names() == []


class ServerUids(FaultyDatastore):
    """A store that chooses the uids of new resources itself, as an API server does."""

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        return super().commit(list(map(_with_server_uid, writes)), deadline=deadline)


def _with_server_uid(write: Write) -> Write:
    if not isinstance(write, Create) or not isinstance(write.value, IPPool):
        return write
    return evolve(write, value=evolve(write.value, metadata=evolve(write.value.metadata, uid="the server's")))


def test_a_creation_whose_reply_was_lost_recognises_its_own_resource_by_its_attempt(harness: ResourceHarness) -> None:
    store = ServerUids(harness.store, {1: LostReply()})
    assert harness.create(make_pool(), store=store).effect is Effect.CREATED
    assert harness.stored().value.metadata.uid == "the server's"
    with pytest.raises(ResourceExists):
        harness.create(make_pool(), store=store)
