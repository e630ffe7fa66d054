"""Each invariant notices what it is there for: a state, or a commit, that is wrong in just that way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.ipam.allocation.request import Automatic
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key
from netplug_core.resources.ippool import IPAMConfigurationSpec
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator import invariants, pool_invariants
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.history import History
from tests.harness.allocator.operations import AdvanceClock, ApplyResource, Assign, Operation, RunCollector
from tests.harness.allocator.state import StoredState
from tests.harness.allocator.strategies import make_pool, make_request
from tests.harness.local_stores import open_standalone_ipam

BLOCK = Prefix.parse("10.0.0.0/30")
OURS = affinity_key("host:node-a", BLOCK)
CONFIRMED = Affinity(state=AffinityState.CONFIRMED)
ASSIGN = Assign(request=make_request("w0", Automatic(family=Family.IPV4)))


def make_block(*ordinals: int, handle: str = "w0") -> Block:
    """A block of node-a in which a handle holds some ordinals."""
    block = Block.new(BLOCK, owner="host:node-a", now_ns=10**18)
    return block.assign(tuple(map(Ordinal, ordinals)), Attribute(handle=handle)) if ordinals else block


def make_state(block: Block | None = None, **changes: object) -> StoredState:
    """A sound state: one pool, one block with one address, its claim and its handle; or that with changes."""
    block = make_block(0) if block is None else block
    rules = (
        AllocatorHarness(
            store=MemoryDatastore(clock=ManualClock()), clock=ManualClock(), open_ipam=open_standalone_ipam
        )
        .read_state()
        .configuration
    )
    counted = {allocation.attribute.handle or "" for allocation in block.held()}
    sound = StoredState(
        configuration=evolve(rules, pools={"p0": make_pool("p0")}),
        blocks={block.prefix: block},
        affinities={OURS: CONFIRMED},
        handles={name: Handle(blocks=((BLOCK, len(block.held_by(name))),)) for name in counted},
        endpoints={},
        held={allocation.address: allocation for allocation in block.held()},
    )
    return evolve(sound, **changes)  # type: ignore[arg-type]  # any field of it


def make_commit(
    before: StoredState, after: StoredState, act: Assign | RunCollector = ASSIGN, *, now_s: int = 10**9
) -> invariants.ObservedCommit:
    return invariants.ObservedCommit(
        operation=act,
        before=before,
        after=after,
        configurations=(before.configuration,),
        now_ns=now_s * 10**9,
        is_exact=True,
    )


@pytest.mark.parametrize(
    "law",
    [
        *invariants.STATE_INVARIANTS,
        *invariants.SETTLED_STATE_INVARIANTS,
        *pool_invariants.CHECKED_POOL_INVARIANTS,
    ],
)
def test_a_sound_state_breaks_no_law(law: Callable[[StoredState], None]) -> None:
    law(make_state())
    assert law.__doc__ is not None
    assert law.__doc__.startswith("V")


RIVAL = affinity_key("host:node-b", BLOCK)
UNSOUND: list[tuple[Callable[[StoredState], None], StoredState]] = [
    (invariants.blocks_are_consistent, make_state(evolve(make_block(0), free=(Ordinal(1), Ordinal(2))))),
    (
        invariants.blocks_are_consistent,
        make_state(evolve(make_block(0), free=(Ordinal(1), Ordinal(2), Ordinal(3), Ordinal(3)))),
    ),
    (invariants.blocks_are_consistent, make_state(evolve(make_block(0), allocations=(1, None, None, None)))),
    (invariants.sequence_numbers_are_consistent, make_state(evolve(make_block(0), sequences=(10**18 + 1, 0, 0, 0)))),
    (invariants.handle_counts_are_not_too_low, make_state(handles={})),
    (
        invariants.handle_counts_are_not_too_low,
        make_state(make_block(0, 1), handles={"w0": Handle(blocks=((BLOCK, 1),))}),
    ),
    (invariants.handle_counts_are_exact, make_state(handles={"w0": Handle(blocks=((BLOCK, 2),))})),
    (invariants.handle_counts_are_exact, make_state(make_block(), handles={"w0": Handle()})),
    (invariants.block_owners_have_affinities, make_state(affinities={})),
    (invariants.block_owners_have_affinities, make_state(affinities={OURS: CONFIRMED, RIVAL: CONFIRMED})),
    (invariants.confirmed_affinities_own_their_block, make_state(blocks={}, held={})),
    (invariants.confirmed_affinities_own_their_block, make_state(affinities={RIVAL: CONFIRMED})),
    (invariants.affinities_have_blocks, make_state(affinities={OURS: Affinity(state=AffinityState.PENDING)})),
    (
        pool_invariants.blocks_fit_their_pools,
        make_state(Block.new(Prefix.parse("10.0.0.0/31"), owner="host:node-a", now_ns=1)),
    ),
    (
        pool_invariants.blocks_do_not_overlap,
        make_state(blocks={p: Block.new(p, owner="", now_ns=1) for p in (BLOCK, Prefix.parse("10.0.0.0/29"))}),
    ),
]


@pytest.mark.parametrize("law,state", UNSOUND)
def test_a_state_that_breaks_a_law_is_noticed(law: Callable[[StoredState], None], state: StoredState) -> None:
    with pytest.raises(AssertionError, match=r"^V\d+: "):
        law(state)


def reserving(state: StoredState, *cidrs: str) -> StoredState:
    return evolve(state, configuration=evolve(state.configuration, reserved=tuple(map(Prefix.parse, cidrs))))


def configured(state: StoredState, **settings: object) -> StoredState:
    changed = evolve(IPAMConfigurationSpec(), **settings)  # type: ignore[arg-type] # any field of it
    return evolve(state, configuration=evolve(state.configuration, settings=changed))


EMPTY = make_state(make_block())
NO_BLOCK = make_state(make_block(), blocks={}, affinities={})
FOREIGN = evolve(make_block(), owner="host:node-b")
RESTING = make_block(0).release(frozenset({Ordinal(0)}), cooling_from_ns=10**18)
UNLAWFUL: list[tuple[Callable[[invariants.ObservedCommit], None], invariants.ObservedCommit]] = [
    (
        invariants.new_blocks_are_blocks_of_a_pool,
        make_commit(evolve(NO_BLOCK, configuration=evolve(NO_BLOCK.configuration, pools={})), EMPTY),
    ),
    (
        invariants.strict_affinity_is_respected,
        make_commit(
            configured(make_state(FOREIGN), is_affinity_strict=True),
            make_state(FOREIGN.assign((Ordinal(0),), Attribute(handle="w0"))),
        ),
    ),
    (invariants.only_assignable_addresses_are_assigned, make_commit(reserving(EMPTY, "10.0.0.0"), make_state())),
    (
        invariants.only_assignable_addresses_are_assigned,
        make_commit(evolve(EMPTY, configuration=evolve(EMPTY.configuration, pools={})), make_state()),
    ),
    (
        invariants.only_assignable_addresses_are_assigned,
        make_commit(evolve(EMPTY, configuration=evolve(EMPTY.configuration, is_locked=True)), make_state()),
    ),
    (invariants.longest_free_addresses_go_first, make_commit(EMPTY, make_state(make_block(1)))),
    (
        invariants.cooldown_is_respected,
        make_commit(configured(make_state(RESTING, held={}), cooldown_s=5), make_state(make_block()), now_s=10**9 + 5),
    ),
    (
        invariants.block_limits_are_respected,
        make_commit(configured(NO_BLOCK, max_blocks_per_host=0), EMPTY, RunCollector()),
    ),
]


@pytest.mark.parametrize("law,wrong", UNLAWFUL)
def test_a_commit_that_breaks_a_law_is_noticed(
    law: Callable[[invariants.ObservedCommit], None], wrong: invariants.ObservedCommit
) -> None:
    with pytest.raises(AssertionError, match=r"^V\d+: "):
        law(wrong)


@pytest.mark.parametrize("law", invariants.COMMIT_INVARIANTS)
def test_an_ordinary_assignment_breaks_no_law(law: Callable[[invariants.ObservedCommit], None]) -> None:
    law(make_commit(EMPTY, make_state()))
    law(make_commit(NO_BLOCK, make_state()))
    assert (law.__doc__ or "").startswith("V")


def test_a_limit_that_is_passed_is_noticed() -> None:
    request = evolve(ASSIGN.request, block_limit=1)
    second = Block.new(Prefix.parse("10.0.0.4/30"), owner="host:node-a", now_ns=1)
    both = make_state(blocks={BLOCK: make_block(0), second.prefix: second})
    with pytest.raises(AssertionError, match="V14: host:node-a owns 2 IPv4 blocks of at most 1"):
        invariants.block_limits_are_respected(make_commit(make_state(), both, Assign(request=request)))


def test_a_number_that_comes_twice_is_noticed_even_if_the_block_was_away() -> None:
    history = History()
    for before, after in ((NO_BLOCK, EMPTY), (EMPTY, NO_BLOCK)):
        history.check_commit(make_commit(before, after))
    with pytest.raises(AssertionError, match=r"^V3: 10.0.0.0/30 was stored with"):
        history.check_commit(make_commit(NO_BLOCK, EMPTY))


def test_an_address_that_comes_back_too_early_is_noticed() -> None:
    history = History()
    freed = make_block(0).release(frozenset({Ordinal(0)}))
    history.check_commit(make_commit(make_state(), make_state(freed, held={})))
    early = freed.assign((Ordinal(0),), Attribute(handle="w1"))
    with pytest.raises(AssertionError, match=r"^V11: 10.0.0.0 was assigned before 3 others"):
        history.check_commit(make_commit(make_state(freed, held={}), make_state(early)))


def test_the_order_of_a_pool_has_every_block_for_every_node() -> None:
    for cidr, length in (("10.0.0.0/28", 30), ("fd00::/120", 122), ("10.0.0.0/28", 32)):
        invariants.order_is_a_permutation(("node-a", "node-b", "n" * 250), Prefix.parse(cidr), length)
    assert (invariants.order_is_a_permutation.__doc__ or "").startswith("V20")


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_harness_runs_ordinary_operations(mode: MemoryMode) -> None:
    clock = ManualClock()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_standalone_ipam)
    day: tuple[Operation, ...] = (
        ApplyResource(resource=make_pool("p0")),
        ASSIGN,
        AdvanceClock(seconds=5),
        RunCollector(),
    )
    for act in day:
        harness.run(act)
    assert harness.model.held_by("w0") == harness.read_state().held_by("w0") != frozenset[Address]()
