"""One label of one resource: set, given another text, removed; with races and lost replies."""

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.outcome import KindNotWritable, ResourceMissing
from netplug_core.flows.resources.write import (
    LabelEffect,
    LabelMissing,
    LabelPresent,
    Overwriting,
    remove_label,
    set_label,
)
from netplug_core.records import Create
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, ClusterInformation
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.metadata import Labels, Metadata
from netplug_core.testing.faults import LostReply, RunBefore
from tests.harness.resources import ResourceHarness, make_pool

KEY = ippool_key("p")


@pytest.fixture
def harness() -> ResourceHarness:
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(make_pool())
    return harness


def give(
    harness: ResourceHarness,
    text: str,
    overwriting: Overwriting = Overwriting.REFUSED,
    store: Datastore | None = None,
    label: str = "app",
) -> LabelEffect:
    return set_label(store or harness.store, KEY, label, text, overwriting=overwriting, pace=harness.pace)


def take(harness: ResourceHarness, store: Datastore | None = None) -> LabelEffect:
    return remove_label(store or harness.store, KEY, "app", pace=harness.pace)


def labels(harness: ResourceHarness) -> Labels:
    record = harness.find(KEY)
    assert record is not None
    return record.value.metadata.labels


def test_a_label_is_set_updated_and_removed(harness: ResourceHarness) -> None:
    """S-46 of the catalogue."""
    assert give(harness, "web") is LabelEffect.SET
    with pytest.raises(LabelPresent) as present:
        give(harness, "order")
    assert str(present.value) == (
        "key app is already present on IPPool(p): its text is 'web'; --overwrite gives it another"
    )
    assert give(harness, "order", Overwriting.ALLOWED) is LabelEffect.UPDATED
    assert labels(harness) == (("app", "order"),)
    assert take(harness) is LabelEffect.REMOVED
    assert labels(harness) == ()
    with pytest.raises(LabelMissing) as missing:
        take(harness)
    assert str(missing.value) == "cannot remove label app from IPPool(p): it has no label"


def test_what_a_resource_has_instead_is_said(harness: ResourceHarness) -> None:
    give(harness, "x", label="rack")
    give(harness, "x", label="zone")
    with pytest.raises(LabelMissing, match=r"it has rack, zone$"):
        take(harness)


def test_setting_what_is_set_changes_nothing(harness: ResourceHarness) -> None:
    give(harness, "web")
    commits = harness.store.calls.commits
    assert give(harness, "web") is LabelEffect.UPDATED
    assert harness.store.calls.commits == commits


def test_a_lost_reply_is_no_refusal(harness: ResourceHarness) -> None:
    assert give(harness, "web", store=harness.with_faults(commit_1=LostReply())) is LabelEffect.SET
    assert labels(harness) == (("app", "web"),)
    assert take(harness, store=harness.with_faults(commit_1=LostReply())) is LabelEffect.REMOVED
    assert labels(harness) == ()


def test_two_who_label_at_once_both_do(harness: ResourceHarness) -> None:
    other = harness.with_faults(commit_1=RunBefore(lambda: give(harness, "r1", label="rack")))
    give(harness, "web", store=other)
    assert labels(harness) == (("app", "web"), ("rack", "r1"))


def test_a_label_that_came_meanwhile_is_not_overwritten(harness: ResourceHarness) -> None:
    other = harness.with_faults(commit_1=RunBefore(lambda: give(harness, "theirs")))
    with pytest.raises(LabelPresent):
        give(harness, "ours", store=other)
    assert labels(harness) == (("app", "theirs"),)


def test_what_is_not_there_and_what_is_not_a_persons_is_refused(harness: ResourceHarness) -> None:
    nobody = ippool_key("nobody")
    with pytest.raises(ResourceMissing):
        set_label(harness.store, nobody, "a", "b", overwriting=Overwriting.ALLOWED, pace=harness.pace)
    with pytest.raises(ResourceMissing):
        remove_label(harness.store, nobody, "a", pace=harness.pace)
    cluster = ClusterInformation(metadata=Metadata(name="default", labels=(("a", "b"),)))
    harness.put(Create(CLUSTER_INFORMATION_KEY, cluster))
    with pytest.raises(KindNotWritable, match="operation Update is not supported"):
        remove_label(harness.store, CLUSTER_INFORMATION_KEY, "a", pace=harness.pace)
