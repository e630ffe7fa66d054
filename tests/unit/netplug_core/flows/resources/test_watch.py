"""The resources of a kind and their changes, across interruptions."""

from collections.abc import Iterator

import pytest
from attrs import define, evolve

from netplug_core.datastore.protocol import ObservedDatastore
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.read import (
    EventType,
    ResourceEvent,
    ResourceEvents,
    Selection,
    WatchItem,
    WatchProblem,
    WatchResumed,
    watch,
)
from netplug_core.records import (
    Create,
    Delete,
    List,
    Malformed,
    Revision,
    Update,
    WatchEvent,
    WatchExpired,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPPool, ippool_key
from netplug_core.resources.kinds import get_kind, key_of
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE
from netplug_core.selectors import parse
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.interrupted_store import InterruptedDatastore
from tests.harness.resources import ENDPOINT, PROFILE, ResourceHarness, make_pool

POOLS = Selection(kind=get_kind("pool"))


@define
class Watcher:
    """A person who watches a store, and reads one item after another."""

    harness: ResourceHarness
    items: Iterator[WatchItem]

    @classmethod
    def of(
        cls, harness: ResourceHarness, selection: Selection = POOLS, store: ObservedDatastore | None = None
    ) -> "Watcher":
        opened = store or harness.store
        return cls(harness, watch(opened, selection, clock=harness.clock, chance=lambda: 0.5))

    def next_events(self) -> list[tuple[str, str]]:
        """The events of the next item: type and name."""
        item = next(self.items)
        assert isinstance(item, ResourceEvents), item
        return [(event.type.value, event.record.key.name) for event in item.events]


def put_pool(harness: ResourceHarness, name: str, cidr: str) -> None:
    pool = make_pool(cidr, name)
    harness.put(Create(pool.key, pool))


def update_pool(harness: ResourceHarness, name: str, *, is_disabled: bool) -> None:
    found = harness.find(ippool_key(name))
    assert found is not None
    pool = found.value
    assert isinstance(pool, IPPool)
    harness.store.commit(
        [Update(found.key, evolve(pool, spec=evolve(pool.spec, is_disabled=is_disabled)), found.revision)],
        deadline=harness.deadline,
    )


def delete_pool(harness: ResourceHarness, name: str) -> None:
    found = harness.find(ippool_key(name))
    assert found is not None
    harness.store.commit([Delete(found.key, found.revision)], deadline=harness.deadline)


def test_what_is_stored_comes_first_and_then_each_change(harness: ResourceHarness) -> None:
    put_pool(harness, "a", "10.0.0.0/16")
    watcher = Watcher.of(harness)
    assert watcher.next_events() == [("ADDED", "a")]
    put_pool(harness, "b", "10.1.0.0/16")
    update_pool(harness, "a", is_disabled=True)
    delete_pool(harness, "b")
    assert [watcher.next_events() for _ in range(3)] == [[("ADDED", "b")], [("MODIFIED", "a")], [("DELETED", "b")]]


def test_an_empty_kind_is_said_at_once(harness: ResourceHarness) -> None:
    assert Watcher.of(harness).next_events() == []


def test_a_deleted_resource_is_shown_as_it_was(harness: ResourceHarness) -> None:
    put_pool(harness, "a", "10.0.0.0/16")
    stored = harness.find(ippool_key("a"))
    watcher = Watcher.of(harness)
    watcher.next_events()
    delete_pool(harness, "a")
    assert stored is not None
    assert next(watcher.items) == ResourceEvents((ResourceEvent(EventType.DELETED, stored),))


def test_only_what_was_selected_is_shown(harness: ResourceHarness) -> None:
    put_pool(harness, "a", "10.0.0.0/16")
    watcher = Watcher.of(harness, Selection(kind=get_kind("pool"), keys=frozenset({ippool_key("b")})))
    assert watcher.next_events() == []
    update_pool(harness, "a", is_disabled=True)
    put_pool(harness, "b", "10.1.0.0/16")
    assert watcher.next_events() == [("ADDED", "b")]


def test_a_record_that_was_written_again_unchanged_is_no_event(harness: ResourceHarness) -> None:
    put_pool(harness, "a", "10.0.0.0/16")
    watcher = Watcher.of(harness)
    watcher.next_events()
    update_pool(harness, "a", is_disabled=False)
    put_pool(harness, "b", "10.1.0.0/16")
    assert watcher.next_events() == [("ADDED", "b")]


def test_a_deletion_of_what_was_never_shown_is_no_event(harness: ResourceHarness) -> None:
    """A damaged record that is not shown may go as damaged as it came."""
    gone = WatchEvent(
        ippool_key("ghost"), None, harness.store.read([List(IPPOOL)], deadline=harness.deadline).revision(IPPOOL)
    )
    watcher = Watcher.of(harness, store=InterruptedDatastore(harness.store, watches=[(gone,)]))
    watcher.next_events()
    put_pool(harness, "a", "10.0.0.0/16")
    assert watcher.next_events() == [("ADDED", "a")]


def test_a_namespace_is_watched_alone(harness: ResourceHarness) -> None:
    watcher = Watcher.of(harness, Selection(kind=get_kind("wep"), namespace="shop"))
    assert watcher.next_events() == []
    for namespace in ("default", "shop"):
        endpoint = evolve(ENDPOINT, metadata=Metadata(name="w", namespace=namespace))
        harness.put(Create(key_of(endpoint), endpoint))
    item = next(watcher.items)
    assert isinstance(item, ResourceEvents)
    assert [event.record.key.path for event in item.events] == [("shop", "w")]


def test_a_resource_comes_and_goes_as_its_labels_are_selected(harness: ResourceHarness) -> None:
    def label_node(name: str, rack: str) -> None:
        node = Node(metadata=Metadata(name=name, labels=(("rack", rack),)))
        found = harness.find(node_key(name))
        write = Update(found.key, node, found.revision) if found else Create(node_key(name), node)
        harness.store.commit([write], deadline=harness.deadline)

    label_node("a", "r1")
    label_node("b", "r2")
    watcher = Watcher.of(harness, Selection(kind=get_kind("node"), selector=parse("rack == 'r1'")))
    assert watcher.next_events() == [("ADDED", "a")]
    label_node("b", "r3")
    label_node("b", "r1")
    label_node("a", "r2")
    label_node("a", "r3")
    label_node("c", "r1")
    seen = [watcher.next_events() for _ in range(3)]
    assert seen == [[("ADDED", "b")], [("DELETED", "a")], [("ADDED", "c")]]


def test_the_profile_that_allows_everything_is_shown_once_and_never_changes(harness: ResourceHarness) -> None:
    watcher = Watcher.of(harness, Selection(kind=get_kind("profile")))
    assert watcher.next_events() == [("ADDED", DEFAULT_ALLOW_PROFILE.key.name)]
    harness.put(Create(DEFAULT_ALLOW_PROFILE.key, PROFILE))
    harness.put(Create(key_of(PROFILE), PROFILE))
    assert watcher.next_events() == [("ADDED", "web")]


# --- interruptions -------------------------------------------------------------------------------------------------


def test_a_watch_that_ended_goes_on_from_the_last_change(harness: ResourceHarness) -> None:
    store = InterruptedDatastore(harness.store, watches=[()])
    watcher = Watcher.of(harness, store=store)
    watcher.next_events()
    put_pool(harness, "a", "10.0.0.0/16")
    assert watcher.next_events() == [("ADDED", "a")]
    assert store.reads_done == 1


def test_after_changes_that_are_no_longer_kept_the_differences_are_shown(harness: ResourceHarness) -> None:
    for number, name in enumerate(("a", "b", "c")):
        put_pool(harness, name, f"10.{number}.0.0/16")
    store = InterruptedDatastore(harness.store, watches=[WatchExpired(Revision("1"))])
    watcher = Watcher.of(harness, store=store)
    watcher.next_events()
    delete_pool(harness, "a")
    update_pool(harness, "b", is_disabled=True)
    put_pool(harness, "d", "10.9.0.0/16")
    assert watcher.next_events() == [("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "d")]
    put_pool(harness, "e", "10.10.0.0/16")
    assert watcher.next_events() == [("ADDED", "e")]


def test_a_store_that_is_away_is_asked_again_and_each_problem_is_said_once(harness: ResourceHarness) -> None:
    away, other = Unavailable("the store", "away"), Unavailable("the store", "still away")
    store = InterruptedDatastore(harness.store, reads=[None, away, away, other], watches=[away])
    watcher = Watcher.of(harness, store=store)
    watcher.next_events()
    put_pool(harness, "a", "10.0.0.0/16")
    assert [next(watcher.items) for _ in range(2)] == [WatchProblem(away), WatchProblem(other)]
    assert watcher.next_events() == [("ADDED", "a")]
    assert next(watcher.items) == WatchResumed()
    assert harness.clock.elapsed_ns > 0
    put_pool(harness, "b", "10.1.0.0/16")
    assert watcher.next_events() == [("ADDED", "b")]


def test_an_interruption_in_which_nothing_changed_brings_no_events(harness: ResourceHarness) -> None:
    store = InterruptedDatastore(harness.store, watches=[Unavailable("the store", "away")])
    watcher = Watcher.of(harness, store=store)
    watcher.next_events()
    assert isinstance(next(watcher.items), WatchProblem)
    assert next(watcher.items) == WatchResumed()


def test_a_store_that_is_away_at_the_beginning_is_an_error(harness: ResourceHarness) -> None:
    away = Unavailable("the store", "away")
    with pytest.raises(Unavailable, match="away"):
        next(Watcher.of(harness, store=InterruptedDatastore(harness.store, reads=[away])).items)


def test_a_damaged_record_is_an_error_at_the_beginning_and_later_a_problem(harness: ResourceHarness) -> None:
    for number, name in enumerate(("a", "b")):
        put_pool(harness, name, f"10.{number}.0.0/16")
    damaged = DamagedDatastore(harness.store)
    broken = Malformed("IPPool(a)", "expected a text")
    store = InterruptedDatastore(damaged, watches=[broken, broken, None])
    watcher = Watcher.of(harness, store=store)
    assert watcher.next_events() == [("ADDED", "a"), ("ADDED", "b")]
    damaged.damage[ippool_key("a")] = b"7"
    damaged.damage[ippool_key("new")] = b"7"
    put_pool(harness, "new", "10.5.0.0/16")
    delete_pool(harness, "b")
    problems = [next(watcher.items) for _ in range(2)]
    assert ["malformed" in str(item.error) for item in problems if isinstance(item, WatchProblem)] == [True, True]
    assert watcher.next_events() == [("DELETED", "b")]
    put_pool(harness, "c", "10.2.0.0/16")
    assert watcher.next_events() == [("ADDED", "c")]  # the problem is not said again
    with pytest.raises(Malformed, match="IPPool\\(a\\) is malformed"):
        next(Watcher.of(harness, store=store).items)


def test_damage_of_other_resources_is_no_problem(harness: ResourceHarness) -> None:
    put_pool(harness, "a", "10.0.0.0/16")
    damaged = DamagedDatastore(harness.store, damage={ippool_key("a"): b"7"})
    only_b = Selection(kind=get_kind("pool"), keys=frozenset({ippool_key("b")}))
    watcher = Watcher.of(harness, only_b, InterruptedDatastore(damaged))
    assert watcher.next_events() == []
    put_pool(harness, "b", "10.1.0.0/16")
    assert watcher.next_events() == [("ADDED", "b")]
