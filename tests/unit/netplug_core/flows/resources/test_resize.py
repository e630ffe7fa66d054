"""The successor of a pool: its settings, which sizes are refused, and runs that were interrupted."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.drain import (
    SUCCESSOR_MARK,
    Drainer,
    PoolManaged,
    ResizePlan,
    ResizeRefused,
    WantedSize,
    create_successor,
    drain,
    plan_resize,
)
from netplug_core.flows.resources.outcome import ResourceExists, ResourceMissing
from netplug_core.ipam.reporting.drain_plan import marked
from netplug_core.names import MANAGED_BY
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AssignmentMode, IPPool, ippool_key
from netplug_core.resources.validation import InvalidResource
from tests.harness.resources import ResourceHarness, make_pool

OLD = evolve(
    make_pool("10.0.0.0/24", "old", assignment_mode=AssignmentMode.MANUAL, has_outgoing_nat=True),
    metadata=evolve(make_pool(name="old").metadata, labels=(("tier", "gold"),), annotations=(("note", "x"),)),
)
NEW = WantedSize(successor="new", prefix=Prefix.parse("10.1.0.0/24"))


def drainer(harness: ResourceHarness) -> Drainer:
    return Drainer(store=harness.store, clock=harness.clock, pace=lambda: harness.pace)


def plan(harness: ResourceHarness, wanted: WantedSize = NEW, name: str = "old") -> ResizePlan:
    return plan_resize(drainer(harness), name, wanted)


def resize(harness: ResourceHarness, wanted: WantedSize = NEW) -> IPPool:
    create_successor(drainer(harness), plan(harness, wanted), new_uid=harness.new_uid)
    return harness.stored(wanted.successor).value


def drain_old(harness: ResourceHarness) -> None:
    assert list(drain(drainer(harness), harness.stored("old")))[-1].view is None


@pytest.fixture
def old(harness: ResourceHarness) -> ResourceHarness:
    harness.create(OLD)
    return harness


def test_a_successor_has_the_settings_and_labels_of_the_old_pool(old: ResourceHarness) -> None:
    before = old.stored("old").value
    successor = resize(old, evolve(NEW, block_length=28))
    assert successor.spec == evolve(before.spec, prefix=Prefix.parse("10.1.0.0/24"), block_length=28)
    assert successor.metadata.labels == (("tier", "gold"),)
    assert successor.metadata.annotations == ((SUCCESSOR_MARK, f"old/{before.metadata.uid}"),)


@pytest.mark.parametrize("was", ["enabled", "disabled"])
def test_a_successor_is_disabled_if_the_old_pool_was_before_its_drain(harness: ResourceHarness, was: str) -> None:
    harness.create(evolve(OLD, spec=evolve(OLD.spec, is_disabled=was == "disabled")))
    harness.apply(marked(harness.stored("old").value))
    assert resize(harness).spec.is_disabled is (was == "disabled")


@pytest.mark.parametrize(
    "cidr, length, problem",
    [
        ("10.0.0.0/24", None, "it has that CIDR and block size already"),
        (None, 26, "it has that CIDR and block size already"),
        (
            None,
            28,
            (
                "another block size needs another pool, and two pools must not have 10.0.0.0/24: give a CIDR that "
                "no pool has, or drain IPPool(old), and create it again when it is gone"
            ),
        ),
        (
            "10.0.0.0/22",
            None,
            (
                "10.0.0.0/22 contains 10.0.0.0/24: keep IPPool(old) and create pools for what lies beside it, "
                "10.0.2.0/23, 10.0.1.0/24; or give a CIDR apart from it"
            ),
        ),
        (
            "10.0.0.128/25",
            None,
            (
                "10.0.0.128/25 is a part of 10.0.0.0/24: give a CIDR apart from it, or drain IPPool(old), and create "
                "the smaller pool when it is gone"
            ),
        ),
        ("fd00::/112", 122, "fd00::/112 is of another family than 10.0.0.0/24"),
    ],
)
def test_sizes_that_are_refused(old: ResourceHarness, cidr: str | None, length: int | None, problem: str) -> None:
    wanted = WantedSize(successor="new", prefix=Prefix.parse(cidr) if cidr else None, block_length=length)
    with pytest.raises(ResizeRefused) as refused:
        plan(old, wanted)
    assert str(refused.value) == f"IPPool(old): {problem}"
    assert old.names() == ["old"]


def test_a_successor_that_overlaps_another_pool_is_refused(old: ResourceHarness) -> None:
    old.create(make_pool("10.1.0.0/16", "other"))
    with pytest.raises(InvalidResource, match=r"IPPool\(new\) CIDR overlaps with IPPool\(other\) CIDR 10.1.0.0/16"):
        plan(old)


@pytest.mark.parametrize(
    "wanted, rule",
    [
        (evolve(NEW, block_length=19), "blockSize must be between"),
        (evolve(NEW, successor="No"), "lower-case letters"),
    ],
)
def test_a_successor_that_breaks_rules_is_refused(old: ResourceHarness, wanted: WantedSize, rule: str) -> None:
    with pytest.raises(InvalidResource, match=rule):
        plan(old, wanted)


def test_a_pool_that_does_not_exist(harness: ResourceHarness) -> None:
    with pytest.raises(ResourceMissing, match=r"IPPool\(old\)"):
        plan(harness)
    harness.create(make_pool("10.1.0.0/24", "new"))
    with pytest.raises(ResourceMissing, match=r"IPPool\(old\)"):
        plan(harness)


def test_a_pool_of_the_operator_is_not_resized(old: ResourceHarness) -> None:
    """Its successor would have the label, and not be in the Installation: the operator would delete it in use."""
    pool = old.stored("old").value
    old.apply(evolve(pool, metadata=Metadata(name="old", labels=(MANAGED_BY,))))
    with pytest.raises(PoolManaged, match=r"IPPool\(old\) is kept by netplug-operator"):
        plan(old)


def test_a_name_that_another_pool_has(old: ResourceHarness) -> None:
    old.create(make_pool("10.1.0.0/24", "new"))
    taken = "it is not the successor of IPPool(old) with that size; choose another name"
    for wanted in (NEW, evolve(NEW, successor="old")):
        with pytest.raises(ResourceExists) as refused:
            plan(old, wanted)
        assert str(refused.value).endswith(taken)


# --- runs that were interrupted ---------------------------------------------------------------------------------------


def test_a_second_run_finds_the_successor(old: ResourceHarness) -> None:
    successor = resize(old)
    again = plan(old)
    assert (again.is_created, again.successor) == (True, successor)
    assert again.old is not None
    with pytest.raises(ResourceExists):
        plan(old, evolve(NEW, prefix=Prefix.parse("10.2.0.0/24")))
    with pytest.raises(ResourceExists):
        plan(old, evolve(NEW, block_length=28))


def test_a_successor_may_be_changed_meanwhile(old: ResourceHarness) -> None:
    successor = resize(old)
    old.apply(evolve(successor, spec=evolve(successor.spec, node_selector="rack == 'b'")))
    assert plan(old).is_created


def test_a_run_after_the_last_step_finds_that_all_is_done(old: ResourceHarness) -> None:
    resize(old)
    drain_old(old)
    done = plan(old)
    assert (done.is_created, done.old) == (True, None)
    with pytest.raises(ResourceMissing):
        plan(old, evolve(NEW, prefix=Prefix.parse("10.2.0.0/24")))


def test_the_successor_of_an_earlier_pool_of_the_name_is_not_taken(old: ResourceHarness) -> None:
    resize(old)
    delete(old.store, ippool_key("old"), pace=old.pace)
    old.create(OLD)
    with pytest.raises(ResourceExists):
        plan(old)
