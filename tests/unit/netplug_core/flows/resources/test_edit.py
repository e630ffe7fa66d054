"""A change by a function of what is stored."""

from collections.abc import Sequence
from functools import partial

import pytest
from attrs import evolve

from netplug_core.clock import Deadline
from netplug_core.flows.resources.outcome import (
    Effect,
    LabelKept,
    ResourceMissing,
)
from netplug_core.flows.resources.read import find
from netplug_core.flows.resources.write import edit
from netplug_core.records import Create, Delete, Query, ReadResult, Record, Revision, Snapshot, Write
from netplug_core.resources.codec import Mark, with_marks
from netplug_core.resources.ippool import IPPool, ippool_key
from netplug_core.resources.kinds import Resource
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import FaultyDatastore, RunBefore
from tests.harness.resources import NODE, ResourceHarness, make_pool


def disabled(resource: Resource) -> Resource:
    assert isinstance(resource, IPPool)
    return evolve(resource, spec=evolve(resource.spec, is_disabled=True))


def test_an_edit_starts_from_what_is_stored_at_that_moment(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    other = harness.with_faults(commit_1=RunBefore(lambda: harness.apply(make_pool(has_outgoing_nat=True))))
    assert edit(other, ippool_key("p"), disabled, pace=harness.pace).effect is Effect.UPDATED
    found = harness.find(ippool_key("p"))
    assert found is not None
    assert isinstance(found.value, IPPool)
    assert (found.value.spec.is_disabled, found.value.spec.has_outgoing_nat) == (True, True)
    assert edit(harness.store, ippool_key("p"), disabled, pace=harness.pace).effect is Effect.UNCHANGED


def test_an_edit_keeps_the_rules_and_needs_something_to_change(harness: ResourceHarness) -> None:
    with pytest.raises(ResourceMissing):
        edit(harness.store, ippool_key("p"), disabled, pace=harness.pace)
    harness.create(make_pool())
    with pytest.raises(InvalidResource, match="cannot be modified"):
        edit(harness.store, ippool_key("p"), lambda _: make_pool("10.1.0.0/16"), pace=harness.pace)
    with pytest.raises(InvalidResource, match="nodeSelector"):
        edit(harness.store, ippool_key("p"), lambda _: make_pool(node_selector="("), pace=harness.pace)


class ClusterNodes(FaultyDatastore):
    """A store whose nodes are the orchestrator's own: it shows a label of the orchestrator's, whatever is written."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        snapshot = super().read(queries, deadline=deadline)
        results = {
            query: ReadResult(tuple(map(_with_zone, result.records))) for query, result in snapshot.results.items()
        }
        return Snapshot(results, snapshot.revisions)


def _with_zone(record: Record[object]) -> Record[object]:
    assert isinstance(record.value, Node)
    metadata = record.value.metadata
    labels = tuple(sorted({**dict(metadata.labels), "zone": "a"}.items()))
    return evolve(record, value=evolve(record.value, metadata=evolve(metadata, labels=labels)))


def test_a_label_of_a_node_that_is_still_there_was_not_removed(harness: ResourceHarness) -> None:
    harness.put(Create(node_key("node-a"), NODE))
    store = ClusterNodes(harness.store, {})
    with pytest.raises(LabelKept) as refusal:
        edit(store, node_key("node-a"), partial(with_marks, mark=Mark.LABEL, changes={"zone": None}), pace=harness.pace)
    assert (refusal.value.code, str(refusal.value)) == (
        7,
        "cannot remove label zone from Node(node-a): it is the orchestrator's own label of the node; remove it there",
    )
    removed = edit(
        store, node_key("node-a"), partial(with_marks, mark=Mark.LABEL, changes={"rack": None}), pace=harness.pace
    )
    assert removed.effect is Effect.UPDATED


def test_a_node_that_went_with_its_label_has_it_no_more(harness: ResourceHarness) -> None:
    harness.put(Create(node_key("node-a"), NODE))

    def go() -> None:
        (record,) = find(harness.store, [node_key("node-a")], deadline=harness.deadline)
        assert record is not None
        harness.store.commit([Delete(record.key, record.revision)], deadline=harness.deadline)

    class GoneAfterwards(FaultyDatastore):
        def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
            revisions = super().commit(writes, deadline=deadline)
            go()
            return revisions

    store = GoneAfterwards(harness.store, {})
    change = partial(with_marks, mark=Mark.LABEL, changes={"rack": None})
    assert edit(store, node_key("node-a"), change, pace=harness.pace).effect is Effect.UPDATED
