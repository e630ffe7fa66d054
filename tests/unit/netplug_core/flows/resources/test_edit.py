"""A change by a function of what is stored."""

import pytest
from attrs import evolve

from netplug_core.flows.resources.edit import edit
from netplug_core.flows.resources.outcome import (
    Effect,
    ResourceMissing,
)
from netplug_core.resources.ippool import IPPool, ippool_key
from netplug_core.resources.kinds import Resource
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import RunBefore
from tests.harness.resources import ResourceHarness, make_pool


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
