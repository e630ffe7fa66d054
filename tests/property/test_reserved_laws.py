"""Laws of the set of reserved addresses, against the plain list of the prefixes it was made of.

1. An address is in it when it is in one of the prefixes.
2. It counts what a set of addresses would count: each once, however often it is listed.
3. It covers a prefix when it counts all of it, and overlaps one when it counts any of it.
4. Order and repetition of the prefixes mean nothing; a prefix and its two halves are the same.
5. Counting is additive: the halves of a prefix have together what the prefix has.
"""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.testing.strategies import addresses, prefixes

# Small neighbourhoods at both ends of both families, where prefixes meet and addresses can be listed.
CORNERS = st.sampled_from(
    [Prefix.parse("10.0.0.0/24"), Prefix.parse("255.255.255.0/24"), Prefix.parse("::/120"), Prefix.parse("fd00::/120")]
)
NEAR = st.builds(
    lambda corner, offset, length: Prefix.at(corner.nth(offset), corner.family.width - length),
    CORNERS,
    st.integers(0, 255),
    st.integers(0, 7),
)
LISTS = st.lists(NEAR | prefixes(), max_size=6)


def members(prefix: Prefix) -> set[Address]:
    return {prefix.nth(offset) for offset in range(prefix.size)}


@given(LISTS, addresses() | NEAR.map(lambda prefix: prefix.last))
def test_an_address_is_in_it_when_it_is_in_an_entry(entries: list[Prefix], address: Address) -> None:
    """Law 1."""
    assert Reserved.of(entries).contains(address) is any(entry.contains(address) for entry in entries)


@given(st.lists(NEAR, max_size=6), NEAR)
def test_it_counts_as_a_set_of_addresses_does(entries: list[Prefix], asked: Prefix) -> None:
    """Laws 2 and 3."""
    expected = len(set().union(*map(members, entries)) & members(asked))
    reserved = Reserved.of(entries)
    assert reserved.count(asked) == expected
    assert reserved.covers(asked) is (expected == asked.size)
    assert reserved.overlaps(asked) is (expected > 0)


@given(LISTS, st.randoms(use_true_random=False))
def test_only_the_addresses_matter(entries: list[Prefix], random: Random) -> None:
    """Law 4."""
    again = [*entries, *entries]
    random.shuffle(again)
    halves = [half for entry in again for half in _halves(entry)]
    reserved = Reserved.of(entries)
    assert Reserved.of(halves) == reserved
    assert hash(Reserved.of(halves)) == hash(reserved)
    assert (reserved == Reserved()) is (not entries)


@given(LISTS, prefixes() | NEAR)
def test_counting_is_additive(entries: list[Prefix], asked: Prefix) -> None:
    """Law 5."""
    reserved = Reserved.of(entries)
    assert sum(map(reserved.count, _halves(asked))) == reserved.count(asked)
    assert sum(reserved.count(Prefix(family, 0, 0)) for family in Family) <= sum(entry.size for entry in entries)


def _halves(prefix: Prefix) -> list[Prefix]:
    longer = prefix.length + 1
    return [prefix] if longer > prefix.family.width else [prefix.subprefix(0, longer), prefix.subprefix(1, longer)]
