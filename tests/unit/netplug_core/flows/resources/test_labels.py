"""One label of one resource: set, given another text, removed; with races and lost replies."""

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.outcome import KindNotWritable, ResourceMissing
from netplug_core.flows.resources.write import (
    MarkEffect,
    MarkPresent,
    Overwriting,
    change_marks,
)
from netplug_core.records import Create, Key
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, ClusterInformation
from netplug_core.resources.codec import Mark
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import Resource
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
) -> MarkEffect:
    changes: dict[str, str | None] = {label: text}
    return change(harness, changes, overwriting=overwriting, store=store)[label]


def change(
    harness: ResourceHarness,
    changes: dict[str, str | None],
    *,
    mark: Mark = Mark.LABEL,
    overwriting: Overwriting = Overwriting.REFUSED,
    store: Datastore | None = None,
    key: Key[Resource] = KEY,
) -> dict[str, MarkEffect]:
    return change_marks(store or harness.store, key, mark, changes, overwriting=overwriting, pace=harness.pace)


def take(harness: ResourceHarness, store: Datastore | None = None) -> MarkEffect:
    return change(harness, {"app": None}, store=store)["app"]


def labels(harness: ResourceHarness) -> Labels:
    record = harness.find(KEY)
    assert record is not None
    return record.value.metadata.labels


def test_a_label_is_set_updated_and_removed(harness: ResourceHarness) -> None:
    """S-46 of the catalogue."""
    assert give(harness, "web") is MarkEffect.SET
    with pytest.raises(MarkPresent) as present:
        give(harness, "order")
    assert str(present.value) == (
        "key app is already present on IPPool(p): its text is 'web'; --overwrite gives it another"
    )
    assert give(harness, "order", Overwriting.ALLOWED) is MarkEffect.UPDATED
    assert labels(harness) == (("app", "order"),)
    assert take(harness) is MarkEffect.REMOVED
    assert labels(harness) == ()
    assert take(harness) is MarkEffect.ABSENT


def test_several_are_changed_at_once_or_none(harness: ResourceHarness) -> None:
    give(harness, "web")
    give(harness, "r1", label="rack")
    with pytest.raises(MarkPresent):
        change(harness, {"tier": "gold", "app": "order"})
    assert labels(harness) == (("app", "web"), ("rack", "r1"))
    commits = harness.store.calls.commits
    found = change(
        harness, {"tier": "gold", "app": "order", "rack": None, "zone": None}, overwriting=Overwriting.ALLOWED
    )
    assert harness.store.calls.commits == commits + 1
    assert labels(harness) == (("app", "order"), ("tier", "gold"))
    assert found == {
        "tier": MarkEffect.SET,
        "app": MarkEffect.UPDATED,
        "rack": MarkEffect.REMOVED,
        "zone": MarkEffect.ABSENT,
    }


def test_annotations_are_changed_likewise(harness: ResourceHarness) -> None:
    assert change(harness, {"note": "any text\n"}, mark=Mark.ANNOTATION) == {"note": MarkEffect.SET}
    record = harness.find(KEY)
    assert record is not None
    assert record.value.metadata.annotations == (("note", "any text\n"),)
    assert labels(harness) == ()
    assert [mark.word for mark in Mark] == ["label", "annotation"]


def test_setting_what_is_set_changes_nothing(harness: ResourceHarness) -> None:
    give(harness, "web")
    commits = harness.store.calls.commits
    assert give(harness, "web") is MarkEffect.UPDATED
    assert harness.store.calls.commits == commits


def test_a_lost_reply_is_no_refusal(harness: ResourceHarness) -> None:
    assert give(harness, "web", store=harness.with_faults(commit_1=LostReply())) is MarkEffect.SET
    assert labels(harness) == (("app", "web"),)
    assert take(harness, store=harness.with_faults(commit_1=LostReply())) is MarkEffect.REMOVED
    assert labels(harness) == ()


def test_two_who_label_at_once_both_do(harness: ResourceHarness) -> None:
    other = harness.with_faults(commit_1=RunBefore(lambda: give(harness, "r1", label="rack")))
    give(harness, "web", store=other)
    assert labels(harness) == (("app", "web"), ("rack", "r1"))


def test_a_label_that_came_meanwhile_is_not_overwritten(harness: ResourceHarness) -> None:
    other = harness.with_faults(commit_1=RunBefore(lambda: give(harness, "theirs")))
    with pytest.raises(MarkPresent):
        give(harness, "ours", store=other)
    assert labels(harness) == (("app", "theirs"),)


def test_what_is_not_there_and_what_is_not_a_persons_is_refused(harness: ResourceHarness) -> None:
    nobody = ippool_key("nobody")
    with pytest.raises(ResourceMissing):
        change(harness, {"a": "b"}, key=nobody)
    cluster = ClusterInformation(metadata=Metadata(name="default", labels=(("a", "b"),)))
    harness.put(Create(CLUSTER_INFORMATION_KEY, cluster))
    with pytest.raises(KindNotWritable, match="operation Update is not supported"):
        change(harness, {"a": None}, key=CLUSTER_INFORMATION_KEY)
