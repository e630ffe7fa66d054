"""What a run that creates many pools reads of their neighbours: once, and again where somebody else may have come."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.datastore.protocol import CALL_TIMEOUT_S
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.resources.outcome import Effect
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.flows.resources.write import apply, create, preview
from netplug_core.ipam.model import BLOCK, Block, block_key, host_owner
from netplug_core.records import Create, List, Malformed, OutcomeUnknown
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.validation import InvalidResource
from netplug_core.settings.model import KUBERNETES_DATASTORE
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.resources import ResourceHarness, make_pool
from tests.harness.stores import HookedStore

NS = 1_000_000_000


@define
class Run:
    """A run of creations on a store whose reads and commits are counted."""

    of: ResourceHarness
    store: HookedStore
    neighbours: PoolNeighbours = field(factory=PoolNeighbours)

    @classmethod
    def make(cls, mode: MemoryMode = MemoryMode.ATOMIC) -> Run:
        of = ResourceHarness.with_mode(mode)
        return cls(of, HookedStore(of.store))

    def create(self, pool: IPPool) -> Effect:
        manifest = Manifest(resource=pool)
        pace, new_uid = self.of.pace, self.of.new_uid
        return create(self.store, manifest, pace=pace, new_uid=new_uid, run=self.neighbours).effect

    def apply(self, pool: IPPool) -> Effect:
        manifest = Manifest(resource=pool)
        pace, new_uid = self.of.pace, self.of.new_uid
        return apply(self.store, manifest, pace=pace, new_uid=new_uid, run=self.neighbours).effect

    def confirm(self) -> dict[str, str]:
        """The pools that were withdrawn, and why."""
        refused = self.neighbours.confirm(self.store, pace=self.of.pace)
        return {key.name: str(error) for key, error in refused.items()}

    @property
    def lists(self) -> int:
        """How many lists were read."""
        return sum(isinstance(query, List) for queries in self.store.reads for query in queries)

    def put_other(self, pool: IPPool | None = None, *, later_s: int = 0) -> None:
        """Store a pool as somebody else."""
        wanted = pool or make_pool("10.1.0.0/17", "other")
        created_ns = self.of.clock.now_ns() + later_s * NS
        metadata = Metadata(name=wanted.metadata.name, creation_time_ns=created_ns)
        self.of.put(Create(wanted.key, evolve(wanted, metadata=metadata)))


def numbered(number: int) -> IPPool:
    return make_pool(f"10.{number}.0.0/16", f"p{number}")


@pytest.mark.parametrize("mode", [MemoryMode.ATOMIC, MemoryMode.KUBE_LIKE])
def test_the_neighbours_of_many_pools_are_read_once(mode: MemoryMode) -> None:
    """The pools and the blocks of the family. Each creation reads its own key."""
    run = Run.make(mode)
    counts = []
    for number in range(20):
        assert run.create(numbered(number)) is Effect.CREATED
        counts.append((run.lists, len(run.store.reads), len(run.store.commits)))
    assert counts == [(2, 3 + 2 * number, number + 1) for number in range(20)]
    assert run.confirm() == {}
    assert run.lists == 2 + (mode is MemoryMode.KUBE_LIKE)


def test_of_pools_that_are_stored_no_neighbours_are_read() -> None:
    run = Run.make()
    for number in range(3):
        run.create(numbered(number))
    again = Run(run.of, HookedStore(run.of.store))
    assert [again.apply(numbered(number)) for number in range(3)] == [Effect.UNCHANGED] * 3
    assert again.lists == 0
    for number in range(3):
        preview(again.store, Manifest(resource=numbered(number)), pace=again.of.pace, run=again.neighbours)
    assert again.lists == 0


def test_pools_of_both_families_take_one_more_read() -> None:
    run = Run.make()
    for number in range(4):
        run.create(numbered(number))
        run.create(make_pool(f"fd00:{number}::/48", f"six{number}"))
    assert run.lists == 2 + 3


def test_a_pool_that_overlaps_an_earlier_one_of_the_run_is_refused() -> None:
    run = Run.make()
    run.create(numbered(1))
    with pytest.raises(InvalidResource, match=r"IPPool\(p\) CIDR overlaps with IPPool\(p1\) CIDR 10.1.0.0/16"):
        run.create(make_pool("10.1.128.0/17"))
    assert run.create(numbered(2)) is Effect.CREATED


def test_a_neighbour_that_is_gone_by_now_is_none() -> None:
    run = Run.make()
    run.create(numbered(1))
    run.of.remove("p1")
    assert run.create(make_pool("10.1.128.0/17")) is Effect.CREATED


def test_a_pool_that_another_program_has_created_since_is_seen() -> None:
    """The condition of the commit notices it."""
    run = Run.make()
    run.create(numbered(0))
    run.put_other()
    with pytest.raises(InvalidResource, match="overlaps with"):
        run.create(numbered(1))
    assert run.create(numbered(2)) is Effect.CREATED
    assert run.of.names() == ["other", "p0", "p2"]


def test_after_a_lost_reply_the_neighbours_are_read_again() -> None:
    run = Run.make()
    run.create(numbered(0))
    lists = run.lists
    run.store.after_commit = raising_once(run, OutcomeUnknown("the store", "the reply was lost"))
    assert run.create(numbered(1)) is Effect.CREATED
    assert run.create(numbered(2)) is Effect.CREATED
    assert run.lists == lists + 2


def raising_once(run: Run, error: NetplugError) -> Callable[[], None]:
    def act() -> None:
        run.store.after_commit = lambda: None
        raise error

    return act


def test_after_a_failure_the_neighbours_are_read_again() -> None:
    run = Run.make()
    run.create(numbered(0))
    lists = run.lists

    def fail() -> None:
        run.store.before_commit = lambda: None
        raise Unavailable("the store", "away")

    run.store.before_commit = fail
    with pytest.raises(Unavailable):
        run.create(numbered(1))
    assert run.create(numbered(1)) is Effect.CREATED
    assert run.lists == lists + 2


def test_blocks_that_an_earlier_pool_left_are_found_and_the_unused_ones_deleted() -> None:
    run = Run.make()
    held, unused = Prefix.parse("10.1.0.0/27"), Prefix.parse("10.2.0.0/27")
    run.of.put(
        Create(block_key(held), Block.new(held, owner=host_owner("a"), now_ns=0)),
        Create(block_key(unused), Block.new(unused, owner="", now_ns=0)),
    )
    with pytest.raises(InvalidResource, match=r"different blockSize: 10\.1\.0\.0/27"):
        run.create(numbered(1))
    assert run.create(numbered(2)) is Effect.CREATED
    blocks = run.of.store.read([List(BLOCK)], deadline=run.of.deadline).list(List(BLOCK))
    assert [block.key for block in blocks] == [block_key(held)]


def test_a_damaged_pool_is_repaired_beside_its_neighbours() -> None:
    run = Run.make()
    run.create(numbered(0))
    run.create(numbered(1))
    run.store.inner = DamagedDatastore(run.of.store, damage={numbered(1).key: b"{"})
    run.neighbours.forget()
    with pytest.raises(Malformed):
        run.create(numbered(2))
    assert run.apply(numbered(1)) is Effect.REPAIRED


# --- an ordered store -------------------------------------------------------------------------------------------------


def test_new_pools_of_an_ordered_store_are_confirmed_together() -> None:
    """Those beside which somebody else has created another one meanwhile: the later of the two goes."""
    run = Run.make(MemoryMode.KUBE_LIKE)
    assert (run.neighbours.has_unconfirmed, run.neighbours.is_due(0.0), run.confirm()) == (False, False, {})
    for number in range(3):
        run.create(numbered(number))
    assert run.neighbours.has_unconfirmed
    now_s = run.of.clock.monotonic()
    assert [run.neighbours.is_due(now_s + after_s) for after_s in (0.0, CALL_TIMEOUT_S)] == [False, True]
    run.put_other(later_s=-60)
    (name, why), *rest = run.confirm().items()
    assert (name, rest) == ("p1", [])
    assert "IPPool(p1) CIDR overlaps with IPPool(other)" in why
    assert run.of.names() == ["other", "p0", "p2"]


def test_on_kubernetes_lost_blocks_are_looked_for_once_in_a_run() -> None:
    run = Run.make(MemoryMode.KUBE_LIKE)
    run.of.store.description = evolve(run.of.store.description, name=KUBERNETES_DATASTORE)
    counts = []
    for number in range(10):
        run.create(numbered(number))
        counts.append((run.lists, len(run.store.reads)))
    (lists, reads), *_ = counts
    assert counts == [(lists, reads + 2 * number) for number in range(10)]


def test_the_earlier_one_waits_for_the_other_and_goes_if_that_stays() -> None:
    run = Run.make(MemoryMode.KUBE_LIKE)
    for number in range(3):
        run.create(numbered(number))
    run.put_other(later_s=60)
    run.put_other(make_pool("10.2.0.0/17", "sooner"), later_s=-60)
    before_s = run.of.clock.monotonic()
    assert set(run.confirm()) == {"p1", "p2"}
    assert run.of.clock.monotonic() - before_s == CALL_TIMEOUT_S
    assert run.of.names() == ["other", "p0", "sooner"]


def test_pools_that_cannot_be_confirmed_are_reported() -> None:
    run = Run.make(MemoryMode.KUBE_LIKE)
    run.create(numbered(0))
    run.create(numbered(1))
    run.put_other(later_s=-60)

    def fail() -> None:
        raise Unavailable("the store", "away")

    run.store.before_commit = fail
    assert run.confirm() == {"p1": "the store: away"}
    run.store.before_commit = lambda: None
    run.create(numbered(2))
    run.store.before_read = fail
    assert run.confirm() == {"p2": "the store: away"}
