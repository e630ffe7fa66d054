"""Laws of a block under any sequence of changes.

- Held and free ordinals partition the block, and its shape stays sound (V2).
- Each stored change moves the sequence number on by one and collecting does not; each ordinal that is not free
  remembers the number before its own change, which is smaller than the block's (V3).
- The longest-free ordinal goes first: an address that leaves the block with f free ones comes back only after f - 1
  others, unless it was asked for by name; and never within its cooldown, whatever clocks ahead of ours wrote (V11).
- An address is held by the handle it was given to until that handle releases it, whoever owns the block.
- Another holder of one address is no other holder of those it was given with (trap 36).
- The handles of a block are counted as the owners of its addresses are, which the collector judges.
- What is stored as JSON is read back as it was, numbers beyond 2**53 and unknown members included.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import format_time, parse_time
from netplug_core.encoding.ipam import from_mapping, to_mapping
from netplug_core.ipam.gc.candidates import allocation_owners
from netplug_core.ipam.gc.detect import HandleCounts
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    HANDLE,
    RESERVED_HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
)
from netplug_core.records import Kind
from netplug_core.testing.strategies import names, prefixes

HANDLES = ("a", "b", None)
SECOND_NS = 10**9


small_prefixes = st.integers(0, 4).flatmap(
    lambda bits: prefixes().map(lambda prefix: Prefix.at(prefix.first, prefix.family.width - bits))
)
ends = st.sampled_from([0, 0, 0, 1, 2, 17])
carried = st.dictionaries(st.sampled_from(["x-new", "zone"]), st.one_of(st.none(), st.integers(), names()), max_size=2)


def as_carried(members: Mapping[str, object]) -> str:
    return json.dumps(members, sort_keys=True, separators=(",", ":")) if members else ""


class BlockLaws(RuleBasedStateMachine):
    """A block, and what a reader of its history would say of it."""

    block: Block

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        self.holders: dict[Ordinal, Attribute] = {}
        self.cooling: dict[Ordinal, int] = {}
        self.released_ns: dict[Ordinal, int] = {}
        self.queue: list[Ordinal] = []
        self.taken_at: dict[Ordinal, int] = {}
        self.given = 0
        self.not_before: dict[Ordinal, int] = {}

    @initialize(prefix=small_prefixes, now_ns=st.integers(1, 2**62), kept_back=st.tuples(ends, ends))
    def create(self, prefix: Prefix, now_ns: int, kept_back: tuple[int, int]) -> None:
        self.now_ns = now_ns
        self.block = Block.new(prefix, owner="host:n", now_ns=now_ns, host_reserved=kept_back)
        self.queue = list(self.block.free)
        self.keep_back(kept_back)

    def keep_back(self, ends: tuple[int, int]) -> None:
        size = self.block.prefix.size
        for n in {*range(size)[: ends[0]], *range(size)[size - min(ends[1], size) :]}:
            self.holders[Ordinal(n)], self.taken_at[Ordinal(n)] = Attribute(handle=RESERVED_HANDLE), 0

    # --- assigning

    @rule(handle=st.sampled_from(HANDLES), count=st.integers(0, 5), pod=st.sampled_from(["", "p"]))
    def assign(self, handle: str | None, count: int, pod: str) -> None:
        ordinals = self.block.find_free(count, None)
        assert ordinals == self.block.find_free(count, lambda _address: True)
        for ordinal in ordinals:
            assert self.given >= self.not_before.get(ordinal, 0)
            self.given += 1
        self.take(ordinals, Attribute(handle=handle, owner=(("pod", pod),)))

    @precondition(lambda self: self.queue)
    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    def assign_by_name(self, data: st.DataObject, handle: str | None) -> None:
        self.given += 1
        self.take((data.draw(st.sampled_from(self.queue)),), Attribute(handle=handle))

    def take(self, ordinals: tuple[Ordinal, ...], attribute: Attribute) -> None:
        self.taken_at.update(dict.fromkeys(ordinals, self.block.sequence))
        self.holders.update(dict.fromkeys(ordinals, attribute))
        self.queue = [ordinal for ordinal in self.queue if ordinal not in ordinals]
        self.change(self.block.assign(ordinals, attribute))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    def change_holder(self, data: st.DataObject, handle: str | None) -> None:
        ordinal = data.draw(st.sampled_from(sorted(self.holders)))
        self.holders[ordinal] = Attribute(handle=handle, owner=(("pod", "moved"),))
        self.change(self.block.with_attribute(ordinal, self.holders[ordinal]))

    # --- releasing

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), ahead_s=st.sampled_from([None, 0, 5]))
    def release(self, data: st.DataObject, ahead_s: int | None) -> None:
        """At once, or to cool down by a clock that may be ahead of ours."""
        some = data.draw(st.sets(st.sampled_from(sorted(self.holders)), min_size=1))
        for ordinal in some:
            del self.holders[ordinal]
        if ahead_s is None:
            self.change(self.block.release(frozenset(some)))
            self.let_go(some)
        else:
            stamp_ns = self.now_ns + ahead_s * SECOND_NS
            self.cooling.update(dict.fromkeys(some, stamp_ns - stamp_ns % SECOND_NS))
            self.released_ns.update(dict.fromkeys(some, self.now_ns))
            self.taken_at.update(dict.fromkeys(some, self.block.sequence))
            self.change(self.block.release(frozenset(some), cooling_from_ns=stamp_ns))

    @rule(passed_ns=st.integers(0, 8 * SECOND_NS), cooldown_s=st.sampled_from([-1, 0, 2, 3, 4]))
    def collect(self, passed_ns: int, cooldown_s: int) -> None:
        self.now_ns += passed_ns
        over, late = set[Ordinal](), set[Ordinal]()
        for ordinal, stamp_ns in self.cooling.items():
            if cooldown_s <= 0 or self.now_ns - stamp_ns >= (cooldown_s + 1) * SECOND_NS:
                over.add(ordinal)
            elif stamp_ns > self.now_ns:
                late.add(ordinal)
        before, self.block = self.block, self.block.expire_cooldown(self.now_ns, cooldown_s * SECOND_NS)
        assert self.block.sequence == before.sequence
        assert (self.block is before) is (not (over or late))
        assert self.block.problem(self.now_ns) == ""
        self.cooling.update(dict.fromkeys(late, self.now_ns - self.now_ns % SECOND_NS))
        for ordinal in over:
            assert self.now_ns - self.released_ns[ordinal] >= cooldown_s * SECOND_NS
            del self.cooling[ordinal]
        self.let_go(over)

    def let_go(self, ordinals: Iterable[Ordinal]) -> None:
        for ordinal in sorted(ordinals):
            del self.taken_at[ordinal]
            self.not_before[ordinal] = self.given + len(self.queue)
            self.queue.append(ordinal)

    # --- changing hands

    @rule()
    def store_once_more(self) -> None:
        self.change(self.block.touched())

    @rule(node=st.sampled_from("mn"))
    def claim(self, node: str) -> None:
        self.change(self.block.claimed(f"host:{node}", self.now_ns))
        assert (self.block.owner, self.block.claim_time_ns) == (f"host:{node}", self.now_ns - self.now_ns % SECOND_NS)

    @rule()
    def relinquish(self) -> None:
        self.change(self.block.relinquished())
        assert (self.block.owner, self.block.claim_time_ns) == ("", None)

    @precondition(lambda self: self.block.is_empty)
    @rule(kept_back=st.tuples(ends, ends))
    def take_over(self, kept_back: tuple[int, int]) -> None:
        self.change(self.block.taken_over("host:o", self.now_ns, kept_back))
        assert self.block.owner == "host:o"
        freed = set(self.holders)
        self.holders.clear()
        self.keep_back(kept_back)
        self.given += len(self.holders.keys() & set(self.queue))
        self.queue = [ordinal for ordinal in self.queue if ordinal not in self.holders]
        self.let_go(freed - self.holders.keys())

    def change(self, block: Block) -> None:
        assert block.sequence == self.block.sequence + 1
        assert (block.prefix, block.unknown_json) == (self.block.prefix, self.block.unknown_json)
        self.block = block

    # --- what always holds

    @invariant()
    def the_block_is_what_was_done_to_it(self) -> None:
        assert self.block.problem() == ""
        assert list(self.block.free) == self.queue
        found = {held.ordinal: held for held in self.block.held()}
        assert {n: held.attribute for n, held in found.items() if not held.is_cooling} == self.holders
        assert {n: held.attribute.released_ns for n, held in found.items() if held.is_cooling} == self.cooling
        assert {n: held.sequence for n, held in found.items()} == self.taken_at
        assert all(number < self.block.sequence for number in self.taken_at.values())
        assert all(held.address == self.block.prefix.nth(held.ordinal) for held in found.values())
        assert all(self.block.find(held.address) == held for held in found.values())
        assert not any(self.block.find(self.block.prefix.nth(ordinal)) for ordinal in self.queue)

    @invariant()
    def what_is_counted_adds_up(self) -> None:
        handles = {attribute.handle for attribute in self.holders.values()}
        assert self.block.is_empty is (handles <= {RESERVED_HANDLE} and not self.cooling)
        assert self.block.used_count == len(self.holders) + len(self.cooling)
        assert self.block.cooling_count == len(self.cooling)
        for handle in handles - {None}:
            held = [allocation.ordinal for allocation in self.block.held_by(str(handle))]
            assert held == sorted(n for n, attribute in self.holders.items() if attribute.handle == handle)

    @invariant()
    def handles_are_counted_as_the_owners_of_addresses_are(self) -> None:
        owners = allocation_owners(self.block)
        held = Counter(owner.handle for owner in owners if owner.handle is not None)
        counts = HandleCounts.of([self.block])
        assert counts.by_handle == {handle: ((self.block.prefix, count),) for handle, count in held.items()}
        assert counts.addresses == len(owners)

    @invariant()
    def json_keeps_it(self) -> None:
        mapping = json.loads(json.dumps(to_mapping(self.block)))
        assert from_mapping(BLOCK, mapping) == self.block


TestBlockLaws = BlockLaws.TestCase


@given(blocks=st.dictionaries(small_prefixes, st.integers(1, 2**70)), extra=carried)
def test_json_keeps_a_handle(blocks: dict[Prefix, int], extra: dict[str, object]) -> None:
    handle = Handle(blocks=tuple(sorted(blocks.items())), unknown_json=as_carried(extra))
    assert from_mapping(HANDLE, json.loads(json.dumps(to_mapping(handle)))) == handle


@given(state=st.sampled_from(AffinityState), extra=carried)
def test_json_keeps_a_claim(state: AffinityState, extra: dict[str, object]) -> None:
    affinity = Affinity(state=state, unknown_json=as_carried(extra))
    assert from_mapping(AFFINITY, json.loads(json.dumps(to_mapping(affinity)))) == affinity


@given(attribute=st.builds(
    Attribute,
    handle=st.none() | names(),
    owner=st.dictionaries(names(), names(), max_size=3).map(lambda pairs: tuple(sorted(pairs.items()))),
    alternate=st.dictionaries(names(), names(), max_size=2).map(lambda pairs: tuple(sorted(pairs.items()))),
    released_ns=st.none() | st.integers(0, 2**33).map(lambda seconds: seconds * SECOND_NS),
    unknown_json=carried.map(as_carried),
), extra=carried)  # fmt: skip
def test_json_keeps_who_holds_an_address(attribute: Attribute, extra: dict[str, object]) -> None:
    block = Block.new(Prefix.parse("10.0.0.0/30"), owner="", now_ns=2**63).assign((Ordinal(2),), attribute)
    stored = {**json.loads(json.dumps(to_mapping(block))), **extra}
    read = from_mapping(BLOCK, stored)
    assert isinstance(read, Block)
    assert read.held()[0].attribute == attribute
    assert json.loads(json.dumps(to_mapping(read))) == stored


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = (
    "cidr", "affinity", "affinity_claim_time", "allocations", "unallocated", "attributes", "sequenceNumber",
    "sequenceNumberForAllocation", "block", "state",
)  # fmt: skip


@given(
    kind=st.sampled_from([BLOCK, HANDLE, AFFINITY]),
    mapping=st.dictionaries(st.sampled_from(MEMBERS), json_values, max_size=6),
    is_rooted=st.booleans(),
)
def test_any_json_object_is_a_value_or_refused(
    kind: Kind[object], mapping: dict[str, object], *, is_rooted: bool
) -> None:
    if is_rooted:
        mapping = {"allocations": [None], "unallocated": [0], **mapping, "cidr": "10.0.0.7/32"}
    with suppress(ValueError):
        value = from_mapping(kind, mapping)
        assert from_mapping(kind, json.loads(json.dumps(to_mapping(value)))) == value


@given(st.integers(-(2**35), 2**37))
def test_times_are_whole_seconds_and_keep_their_text(seconds: int) -> None:
    assert parse_time(format_time(seconds * SECOND_NS)) == seconds * SECOND_NS
