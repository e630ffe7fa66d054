"""The steps of an Installation about pools, beside people who change the same pools."""

from __future__ import annotations

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.flows.resources.drain import change_pool
from netplug_core.flows.resources.outcome import ResourceExists, ResourceOutdated
from netplug_core.installation.pools import PoolAction, PoolStep
from netplug_core.resources.ippool import IPPool
from tests.harness.resources import ResourceHarness, make_pool

WANTED = make_pool("10.1.0.0/16", "p")


@pytest.fixture
def harness() -> ResourceHarness:
    return ResourceHarness.with_mode(MemoryMode.KUBE_LIKE)


def change(harness: ResourceHarness, action: PoolAction, pool: IPPool, revision: str = "") -> None:
    step = PoolStep(action=action, pool=pool, reason="a test")
    change_pool(harness.store, step, revision=revision, pace=harness.pace, new_uid=harness.new_uid)


def test_a_pool_that_another_program_has_made_is_not_overwritten(harness: ResourceHarness) -> None:
    theirs = make_pool("10.1.0.0/16", "p", is_disabled=True)
    harness.create(theirs)
    before = harness.stored()
    with pytest.raises(ResourceExists):
        change(harness, PoolAction.CREATE, WANTED)
    assert harness.stored() == before


def test_a_pool_is_created_changed_and_deleted(harness: ResourceHarness) -> None:
    change(harness, PoolAction.CREATE, WANTED)
    stored = harness.stored()
    changed = make_pool("10.1.0.0/16", "p", is_disabled=True)
    change(harness, PoolAction.UPDATE, changed, stored.revision)
    for action in (PoolAction.UPDATE, PoolAction.DELETE):
        with pytest.raises(ResourceOutdated):
            change(harness, action, WANTED, stored.revision)
    assert harness.stored().value.spec.is_disabled
    change(harness, PoolAction.DELETE, changed, harness.stored().revision)
    assert harness.names() == []
