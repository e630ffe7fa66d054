"""Each invariant notices what it is there for: a state, or a commit, that is wrong in just that way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.clock import Clock
from netplug_core.datastore.interface import Atomicity, Datastore
from netplug_core.ipam.affinity import Affinity, AffinityState, affinity_key
from netplug_core.ipam.block import Attribute, Block
from netplug_core.ipam.handle import Handle
from netplug_core.ipam.request import Automatic
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec
from netplug_core.testing.allocator import laws
from netplug_core.testing.allocator.acts import Act, Apply, Assign, Collect, Pause
from netplug_core.testing.allocator.bench import AllocatorBench
from netplug_core.testing.allocator.draws import asked_by, pool
from netplug_core.testing.allocator.history import History
from netplug_core.testing.allocator.stored import Stored
from netplug_core.testing.clock import ManualClock

BLOCK = Prefix.parse("10.0.0.0/30")
OURS = affinity_key("host:node-a", BLOCK)
CONFIRMED = Affinity(state=AffinityState.CONFIRMED)
ASSIGN = Assign(request=asked_by("w0", Automatic(family=Family.IPV4)))


def held(*ordinals: int, handle: str = "w0") -> Block:
    """A block of node-a in which a handle holds some ordinals."""
    block = Block.new(BLOCK, owner="host:node-a", now_ns=10**18)
    return block.assign(tuple(map(Ordinal, ordinals)), Attribute(handle=handle)) if ordinals else block


def stored(block: Block | None = None, **changes: object) -> Stored:
    """A sound state: one pool, one block with one address, its claim and its handle; or that with changes."""
    block = held(0) if block is None else block
    rules = AllocatorBench(store=MemoryDatastore(clock=ManualClock()), clock=ManualClock(), open_ipam=cold).look().rules
    counted = {allocation.attribute.handle or "" for allocation in block.held()}
    sound = Stored(
        rules=evolve(rules, pools={"p0": pool("p0")}),
        blocks={block.prefix: block},
        claims={OURS: CONFIRMED},
        handles={name: Handle(blocks=((BLOCK, len(block.held_by(name))),)) for name in counted},
        endpoints={},
        held={allocation.address: allocation for allocation in block.held()},
    )
    return evolve(sound, **changes)  # type: ignore[arg-type]  # any field of it


def cold(store: Datastore, clock: Clock) -> BlockIPAM:
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)


def step(before: Stored, after: Stored, act: Assign | Collect = ASSIGN, *, now_s: int = 10**9) -> laws.Step:
    return laws.Step(act=act, before=before, after=after, rules=(before.rules,), now_ns=now_s * 10**9, is_exact=True)


@pytest.mark.parametrize("law", [*laws.STATE_LAWS, *laws.QUIET_LAWS])
def test_a_sound_state_breaks_no_law(law: Callable[[Stored], None]) -> None:
    law(stored())
    assert law.__doc__ is not None
    assert law.__doc__.startswith("V")


RIVAL = affinity_key("host:node-b", BLOCK)
UNSOUND: list[tuple[Callable[[Stored], None], Stored]] = [
    (laws.blocks_are_sound, stored(evolve(held(0), free=(Ordinal(1), Ordinal(2))))),
    (laws.blocks_are_sound, stored(evolve(held(0), free=(Ordinal(1), Ordinal(2), Ordinal(3), Ordinal(3))))),
    (laws.blocks_are_sound, stored(evolve(held(0), allocations=(1, None, None, None)))),
    (laws.numbers_fit, stored(evolve(held(0), sequences=(10**18 + 1, 0, 0, 0)))),
    (laws.handles_count_enough, stored(handles={})),
    (laws.handles_count_enough, stored(held(0, 1), handles={"w0": Handle(blocks=((BLOCK, 1),))})),
    (laws.handles_are_exact, stored(handles={"w0": Handle(blocks=((BLOCK, 2),))})),
    (laws.handles_are_exact, stored(held(), handles={"w0": Handle()})),
    (laws.owners_have_claims, stored(claims={})),
    (laws.owners_have_claims, stored(claims={OURS: CONFIRMED, RIVAL: CONFIRMED})),
    (laws.confirmed_claims_own, stored(blocks={}, held={})),
    (laws.confirmed_claims_own, stored(claims={RIVAL: CONFIRMED})),
    (laws.claims_lead_to_blocks, stored(claims={OURS: Affinity(state=AffinityState.PENDING)})),
    (laws.blocks_fit, stored(Block.new(Prefix.parse("10.0.0.0/31"), owner="host:node-a", now_ns=1))),
    (
        laws.blocks_fit,
        stored(blocks={p: Block.new(p, owner="", now_ns=1) for p in (BLOCK, Prefix.parse("10.0.0.0/29"))}),
    ),
]


@pytest.mark.parametrize("law,state", UNSOUND)
def test_a_state_that_breaks_a_law_is_noticed(law: Callable[[Stored], None], state: Stored) -> None:
    with pytest.raises(AssertionError, match=r"^V\d+: "):
        law(state)


def reserving(state: Stored, *cidrs: str) -> Stored:
    return evolve(state, rules=evolve(state.rules, reserved=tuple(map(Prefix.parse, cidrs))))


def configured(state: Stored, **settings: object) -> Stored:
    return evolve(state, rules=evolve(state.rules, settings=evolve(IPAMConfigurationSpec(), **settings)))  # type: ignore[arg-type]  # any field


EMPTY = stored(held())
NO_BLOCK = stored(held(), blocks={}, claims={})
FOREIGN = evolve(held(), owner="host:node-b")
RESTING = held(0).release(frozenset({Ordinal(0)}), cooling_from_ns=10**18)
UNLAWFUL: list[tuple[Callable[[laws.Step], None], laws.Step]] = [
    (laws.new_blocks_lie_in_a_pool, step(evolve(NO_BLOCK, rules=evolve(NO_BLOCK.rules, pools={})), EMPTY)),
    (
        laws.strict_affinity_is_kept,
        step(
            configured(stored(FOREIGN), is_affinity_strict=True),
            stored(FOREIGN.assign((Ordinal(0),), Attribute(handle="w0"))),
        ),
    ),
    (laws.only_what_may_be_given_is, step(reserving(EMPTY, "10.0.0.0"), stored())),
    (laws.only_what_may_be_given_is, step(evolve(EMPTY, rules=evolve(EMPTY.rules, pools={})), stored())),
    (laws.only_what_may_be_given_is, step(evolve(EMPTY, rules=evolve(EMPTY.rules, is_locked=True)), stored())),
    (laws.the_longest_free_go_first, step(EMPTY, stored(held(1)))),
    (laws.the_rest_is_kept, step(configured(stored(RESTING, held={}), cooldown_s=5), stored(held()), now_s=10**9 + 5)),
    (laws.limits_are_kept, step(configured(NO_BLOCK, max_blocks=0), EMPTY, Collect())),
]


@pytest.mark.parametrize("law,wrong", UNLAWFUL)
def test_a_commit_that_breaks_a_law_is_noticed(law: Callable[[laws.Step], None], wrong: laws.Step) -> None:
    with pytest.raises(AssertionError, match=r"^V\d+: "):
        law(wrong)


@pytest.mark.parametrize("law", laws.STEP_LAWS)
def test_an_ordinary_assignment_breaks_no_law(law: Callable[[laws.Step], None]) -> None:
    law(step(EMPTY, stored()))
    law(step(NO_BLOCK, stored()))
    assert (law.__doc__ or "").startswith("V")


def test_a_limit_that_is_passed_is_noticed() -> None:
    request = evolve(ASSIGN.request, block_limit=1)
    second = Block.new(Prefix.parse("10.0.0.4/30"), owner="host:node-a", now_ns=1)
    both = stored(blocks={BLOCK: held(0), second.prefix: second})
    with pytest.raises(AssertionError, match="V14: host:node-a owns 2 IPv4 blocks of at most 1"):
        laws.limits_are_kept(step(stored(), both, Assign(request=request)))


def test_a_number_that_comes_twice_is_noticed_even_if_the_block_was_away() -> None:
    history = History()
    for before, after in ((NO_BLOCK, EMPTY), (EMPTY, NO_BLOCK)):
        history.judge(step(before, after))
    with pytest.raises(AssertionError, match=r"^V3: 10.0.0.0/30 was stored with"):
        history.judge(step(NO_BLOCK, EMPTY))


def test_an_address_that_comes_back_too_early_is_noticed() -> None:
    history = History()
    freed = held(0).release(frozenset({Ordinal(0)}))
    history.judge(step(stored(), stored(freed, held={})))
    early = freed.assign((Ordinal(0),), Attribute(handle="w1"))
    with pytest.raises(AssertionError, match=r"^V11: 10.0.0.0 came back before 3 others"):
        history.judge(step(stored(freed, held={}), stored(early)))


def test_the_order_of_a_pool_has_every_block_for_every_node() -> None:
    for cidr, length in (("10.0.0.0/28", 30), ("fd00::/120", 122), ("10.0.0.0/28", 32)):
        laws.order_is_a_permutation(("node-a", "node-b", "n" * 250), Prefix.parse(cidr), length)
    assert (laws.order_is_a_permutation.__doc__ or "").startswith("V20")


@pytest.mark.parametrize("atomicity", Atomicity)
def test_a_bench_goes_through_an_ordinary_day(atomicity: Atomicity) -> None:
    clock = ManualClock()
    bench = AllocatorBench(store=MemoryDatastore(atomicity, clock=clock), clock=clock, open_ipam=cold)
    day: tuple[Act, ...] = (Apply(resource=pool("p0")), ASSIGN, Pause(seconds=5), Collect())
    for act in day:
        bench.do(act)
    assert bench.ledger.held_by("w0") == bench.look().held_by("w0") != frozenset[Address]()
