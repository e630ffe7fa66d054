"""Laws of addresses and prefixes, families mixed.

- Text, bytes and numbers say the same, and the standard library agrees.
- A prefix holds exactly the addresses from its first to its last.
- Two prefixes overlap only if one covers the other.
- The parts of a prefix are equally large, lie side by side, and together are the prefix.
"""

from contextlib import suppress
from ipaddress import IPv4Address, ip_address, ip_network, summarize_address_range

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.testing.strategies import addresses, prefixes


@given(addresses())
def test_text_bytes_and_numbers_say_the_same(address: Address) -> None:
    assert Address.parse(str(address)) == address
    reference = ip_address(address.packed)
    assert (reference.version, int(reference), str(reference)) == (address.family, address.value, str(address))
    assert address.host_prefix == Prefix.parse(str(address))


@given(prefixes())
def test_a_prefix_is_what_the_standard_library_says(prefix: Prefix) -> None:
    reference = ip_network(str(prefix))
    assert Prefix.parse(reference.exploded) == prefix
    assert (prefix.size, str(prefix.first)) == (reference.num_addresses, str(reference.network_address))
    assert list(summarize_address_range(reference[0], reference[-1])) == [reference]
    assert str(prefix.last) == str(reference[-1])


@given(st.lists(st.text(alphabet="0123456789 +_\u0663", max_size=4) | st.integers(0, 300).map(str), max_size=5))
@example(["1", "2", "3", "04"])
@example(["1", "2", "3", "256"])
def test_of_numbers_and_dots_those_are_addresses_that_the_standard_library_takes(parts: list[str]) -> None:
    text = ".".join(parts)
    try:
        expected = int(IPv4Address(text))
    except ValueError:
        with pytest.raises(ValueError, match="is not an IP address"):
            Address.parse(text)
    else:
        assert Address.parse(text) == Address(Family.IPV4, expected)


@given(st.text(alphabet="0123456789abcdef:./% ", max_size=24))
@example("::ffff:1.2.3.4/128")
@example("1.2.3.4/032")
def test_every_text_is_a_prefix_or_refused(text: str) -> None:
    with suppress(ValueError):
        prefix = Prefix.parse(text)
        assert Prefix.parse(str(prefix)) == prefix


@given(prefixes(), addresses())
def test_a_prefix_holds_what_lies_between_its_ends(prefix: Prefix, address: Address) -> None:
    inside = address.family is prefix.family and prefix.first.value <= address.value <= prefix.last.value
    assert prefix.contains(address) is inside
    assert prefix.contains(prefix.first)
    assert prefix.contains(prefix.last)
    if address.family is prefix.family:
        assert (Prefix.at(address, prefix.length) == prefix) is inside


@given(prefixes(), st.data())
def test_offset_and_nth_undo_each_other(prefix: Prefix, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, prefix.size - 1))
    address = prefix.nth(offset)
    assert prefix.contains(address)
    assert prefix.offset(address) == offset
    assert Prefix.at(address, prefix.length) == prefix


@given(prefixes(longest=8), prefixes(longest=8))
def test_overlapping_is_covering_one_way_or_the_other(one: Prefix, other: Prefix) -> None:
    common = one.contains(other.first) or other.contains(one.first)
    assert one.overlaps(other) is other.overlaps(one) is common
    assert (one.covers(other) and other.covers(one)) is (one == other)
    if one.covers(other):
        assert one.contains(other.last)


@given(prefixes(), st.data())
def test_the_parts_of_a_prefix_are_the_prefix(prefix: Prefix, data: st.DataObject) -> None:
    length = data.draw(st.integers(prefix.length, prefix.family.width))
    count = prefix.subprefix_count(length)
    index = data.draw(st.integers(0, count - 1))
    part = prefix.subprefix(index, length)
    assert prefix.covers(part)
    assert part == Prefix.at(part.first, length)
    assert count * part.size == prefix.size
    assert prefix.subprefix(0, length).first == prefix.first
    assert prefix.subprefix(count - 1, length).last == prefix.last
    if index + 1 < count:
        assert prefix.subprefix(index + 1, length).first.value == part.last.value + 1


@given(prefixes())
def test_host_bits_are_never_accepted(prefix: Prefix) -> None:
    # An address of IPv6 that spells one of IPv4 is refused for that.
    assume(prefix.size > 1 and Address.parse(str(prefix.last)) == prefix.last)
    text = f"{prefix.last}/{prefix.length}"
    with pytest.raises(ValueError, match=f"{prefix} is the prefix that holds it"):
        Prefix.parse(text)
    assert Prefix.enclosing(text) == prefix


@given(st.lists(prefixes(), max_size=6))
def test_order_is_by_family_then_number_then_length(found: list[Prefix]) -> None:
    assert sorted(found) == sorted(found, key=lambda prefix: (int(prefix.family), prefix.base, prefix.length))
    assert all(isinstance(prefix.family, Family) for prefix in found)
