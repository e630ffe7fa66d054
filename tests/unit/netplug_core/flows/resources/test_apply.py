"""Apply: creation, or a change of labels, annotations and spec."""

import pytest
from attrs import evolve

from netplug_core.flows.resources.outcome import (
    Effect,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.records import Create, OutcomeUnknown
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolStatus, PoolCondition, ippool_key
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import LostReply
from tests.harness.resources import ResourceHarness, make_pool


def test_apply_creates_what_is_not_there(harness: ResourceHarness) -> None:
    assert harness.apply(make_pool()).effect is Effect.CREATED
    assert harness.stored().value.metadata.uid


def test_apply_looks_at_the_neighbours_of_what_it_creates(harness: ResourceHarness) -> None:
    harness.create(make_pool(name="a"))
    with pytest.raises(InvalidResource, match="CIDR overlaps"):
        harness.apply(make_pool(name="b"))


def test_apply_that_changes_nothing_writes_nothing(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    before, commits = harness.stored(), harness.store.calls.commits
    assert harness.apply(make_pool()).effect is Effect.UNCHANGED
    assert harness.stored() == before
    assert harness.store.calls.commits == commits


def test_apply_takes_labels_annotations_and_spec_and_keeps_the_rest(harness: ResourceHarness) -> None:
    """S-34 and S-44 of the catalogue."""
    metadata = Metadata(
        name="p",
        uid="theirs",
        creation_time_ns=7_000_000_000,
        labels=(("old", "1"),),
        finalizers=("f",),
        unknown_json='{"new":1}',
    )
    status = IPPoolStatus(conditions=(PoolCondition(type="Allocatable", status="True"),))
    stored = IPPool(
        metadata=metadata, spec=make_pool(unknown_json='{"newer":2}').spec, status=status, unknown_json='{"newest":3}'
    )
    harness.put(Create(ippool_key("p"), stored))
    asked = Metadata(name="p", uid="other", creation_time_ns=9, labels=(("a", "b"),), annotations=(("c", "d"),))
    outcome = harness.apply(IPPool(metadata=asked, spec=make_pool(is_disabled=True).spec))
    assert outcome.effect is Effect.UPDATED
    assert harness.stored().value == evolve(
        stored,
        metadata=evolve(metadata, labels=asked.labels, annotations=asked.annotations),
        spec=evolve(stored.spec, is_disabled=True),
    )


@pytest.mark.parametrize(
    "wanted, rule",
    [
        (make_pool("1.2.4.0/24"), "IPPool CIDR cannot be modified"),
        (make_pool("1.2.3.0/24", block_length=25), "blockSize|BlockSize cannot be modified"),
    ],
)
def test_apply_refuses_what_never_changes(harness: ResourceHarness, wanted: IPPool, rule: str) -> None:
    """S-30 of the catalogue."""
    harness.create(make_pool("1.2.3.0/24"))
    before = harness.stored()
    with pytest.raises(InvalidResource, match=rule):
        harness.apply(wanted)
    assert harness.stored() == before


def test_a_resource_version_has_to_be_the_latest(harness: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    harness.create(make_pool())
    first = harness.stored().revision
    harness.apply(make_pool(is_disabled=True), revision=first)
    latest = harness.stored().revision
    with pytest.raises(ResourceOutdated) as caught:
        harness.apply(make_pool(), revision=first)
    assert str(caught.value) == (
        f"update conflict: IPPool(p): resource version '{first}' is out of date (latest: {latest}). "
        "Update the resource YAML/JSON in order to make changes."
    )
    with pytest.raises(ResourceOutdated, match="update conflict"):
        harness.delete("p", revision=first)
    assert harness.apply(make_pool(), revision=latest).effect is Effect.UPDATED
    assert harness.delete("p", revision=harness.stored().revision).effect is Effect.DELETED
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        harness.apply(make_pool(), revision=latest)


def test_apply_after_a_lost_reply_finds_its_own_change(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    outcome = harness.apply(make_pool(is_disabled=True), store=harness.with_faults(commit_1=LostReply()))
    assert outcome.effect is Effect.UNCHANGED
    assert harness.stored().value.spec.is_disabled


def test_apply_of_one_version_after_a_lost_reply_is_not_blamed_on_others(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    with pytest.raises(OutcomeUnknown):
        harness.apply(
            make_pool(is_disabled=True), harness.stored().revision, store=harness.with_faults(commit_1=LostReply())
        )
    assert harness.stored().value.spec.is_disabled
