"""Laws of a block under any sequence of assignments and releases.

- Held and free ordinals partition the block, and its shape stays sound.
- The longest-free ordinal goes first: an address comes back only after all that were free when it was released.
- Each stored change moves the sequence number on by one, and each held ordinal remembers the number before its own.
- An address is held by the handle it was given to until that handle releases it.
- What is stored as JSON is read back as it was, numbers beyond 2**53 and unknown members included.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import format_time, parse_time
from netplug_core.ipam.affinity import AFFINITY, Affinity, AffinityState
from netplug_core.ipam.block import BLOCK, Attribute, Block
from netplug_core.ipam.codec import from_mapping, to_mapping
from netplug_core.ipam.handle import HANDLE, Handle
from netplug_core.records import Kind
from netplug_core.testing.strategies import names, prefixes

HANDLES = ("a", "b", "c")
SECOND_NS = 10**9


small_prefixes = st.integers(0, 4).flatmap(
    lambda bits: prefixes().map(lambda prefix: Prefix.at(prefix.first, prefix.family.width - bits))
)
carried = st.dictionaries(st.sampled_from(["x-new", "zone"]), st.one_of(st.none(), st.integers(), names()), max_size=2)


def as_carried(members: Mapping[str, object]) -> str:
    return json.dumps(members, sort_keys=True, separators=(",", ":")) if members else ""


class BlockLaws(RuleBasedStateMachine):
    block: Block

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[Ordinal, str] = {}
        self.queue: list[Ordinal] = []
        self.taken_at: dict[Ordinal, int] = {}

    @initialize(prefix=small_prefixes, now_ns=st.integers(0, 2**62))
    def claim(self, prefix: Prefix, now_ns: int) -> None:
        self.block = Block.new(prefix, owner="host:n", now_ns=now_ns)
        self.queue = list(self.block.free)

    @rule(handle=st.sampled_from(HANDLES), count=st.integers(0, 5), pod=st.sampled_from(["", "p"]))
    def assign(self, handle: str, count: int, pod: str) -> None:
        ordinals = self.block.available(count, lambda _address: True)
        assert list(ordinals) == self.queue[:count]
        if ordinals:
            self.taken_at.update(dict.fromkeys(ordinals, self.block.sequence))
            self.change(self.block.assign(ordinals, Attribute(handle=handle, owner=(("pod", pod),))))
            self.holders.update(dict.fromkeys(ordinals, handle))
            del self.queue[: len(ordinals)]

    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    def release(self, data: st.DataObject, handle: str) -> None:
        held = [allocation.ordinal for allocation in self.block.held_by(handle)]
        if held:
            some = data.draw(st.sets(st.sampled_from(held), min_size=1))
            self.change(self.block.release(frozenset(some)))
            self.forget(some)

    @rule()
    def store_once_more(self) -> None:
        self.change(self.block.touched())

    def change(self, block: Block) -> None:
        assert block.sequence == self.block.sequence + 1
        assert (block.prefix, block.owner, block.claim_time_ns) == (
            self.block.prefix,
            self.block.owner,
            self.block.claim_time_ns,
        )
        self.block = block

    def forget(self, ordinals: Iterable[Ordinal]) -> None:
        for ordinal in sorted(ordinals):
            del self.holders[ordinal], self.taken_at[ordinal]
            self.queue.append(ordinal)

    @invariant()
    def the_block_is_what_was_done_to_it(self) -> None:
        assert self.block.problem() == ""
        assert list(self.block.free) == self.queue
        assert {held.ordinal: held.attribute.handle for held in self.block.held()} == self.holders
        assert dict(self.block.sequences) == self.taken_at
        assert self.block.is_empty is (not self.holders)
        assert all(held.address == self.block.prefix.nth(held.ordinal) for held in self.block.held())

    @invariant()
    def json_keeps_it(self) -> None:
        mapping = json.loads(json.dumps(to_mapping(self.block)))
        assert from_mapping(BLOCK, mapping) == self.block


TestBlockLaws = BlockLaws.TestCase


@given(blocks=st.dictionaries(small_prefixes, st.integers(1, 2**70)), extra=carried)
def test_json_keeps_a_handle(blocks: dict[Prefix, int], extra: dict[str, object]) -> None:
    handle = Handle(blocks=tuple(sorted(blocks.items())), carried=as_carried(extra))
    assert from_mapping(HANDLE, json.loads(json.dumps(to_mapping(handle)))) == handle


@given(state=st.sampled_from(AffinityState), extra=carried)
def test_json_keeps_a_claim(state: AffinityState, extra: dict[str, object]) -> None:
    affinity = Affinity(state=state, carried=as_carried(extra))
    assert from_mapping(AFFINITY, json.loads(json.dumps(to_mapping(affinity)))) == affinity


@given(attribute=st.builds(
    Attribute,
    handle=st.none() | names(),
    owner=st.dictionaries(names(), names(), max_size=3).map(lambda pairs: tuple(sorted(pairs.items()))),
    alternate=st.dictionaries(names(), names(), max_size=2).map(lambda pairs: tuple(sorted(pairs.items()))),
    released_ns=st.none() | st.integers(0, 2**33).map(lambda seconds: seconds * SECOND_NS),
    carried=carried.map(as_carried),
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
