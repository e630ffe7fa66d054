"""What is reserved: edges, entries together, both families, and no list of anything."""

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.allocation.pools import Reserved


def reserved(*cidrs: str) -> Reserved:
    return Reserved.of(map(Prefix.parse, cidrs))


MIXED = reserved("10.0.0.32/30", "10.0.0.5", "fd00::/64")


def test_nothing_is_reserved_of_nothing() -> None:
    assert reserved() == Reserved()
    assert not Reserved().contains(Address.parse("10.0.0.1"))
    assert not Reserved().covers(Prefix.parse("10.0.0.1"))
    assert not Reserved().overlaps(Prefix.parse("::/0"))
    assert Reserved().count(Prefix.parse("0.0.0.0/0")) == 0


@pytest.mark.parametrize(
    "address, is_reserved",
    [
        ("10.0.0.4", False),
        ("10.0.0.5", True),
        ("10.0.0.6", False),
        ("10.0.0.31", False),
        ("10.0.0.32", True),
        ("10.0.0.35", True),
        ("10.0.0.36", False),
        ("fd00::", True),
        ("fd00::ffff:ffff:ffff:ffff", True),
        ("fd00:0:0:1::", False),
        ("::a00:5", False),  # 10.0.0.5 as a number, of the other family
    ],
)
def test_an_entry_ends_where_its_prefix_ends(address: str, is_reserved: object) -> None:
    assert MIXED.contains(Address.parse(address)) is is_reserved


@pytest.mark.parametrize(
    "cidr, count, is_covered",
    [
        ("10.0.0.0/26", 5, False),
        ("10.0.0.32/30", 4, True),
        ("10.0.0.34/31", 2, True),
        ("10.0.0.36/30", 0, False),
        ("fd00::/122", 64, True),
        ("fd00::/63", 2**64, False),
        ("0.0.0.0/0", 5, False),
        ("::/0", 2**64, False),
    ],
)
def test_a_prefix_may_be_reserved_in_part_or_whole(cidr: str, count: int, is_covered: object) -> None:
    prefix = Prefix.parse(cidr)
    assert MIXED.count(prefix) == count
    assert MIXED.overlaps(prefix) is (count > 0)
    assert MIXED.covers(prefix) is is_covered


def test_entries_that_touch_cover_together() -> None:
    halves = reserved("10.0.0.128/25", "10.0.0.0/25")
    assert halves == reserved("10.0.0.0/24")
    assert halves.covers(Prefix.parse("10.0.0.0/24"))


def test_entries_that_overlap_count_once() -> None:
    """Trap 15: what is reserved twice is reserved."""
    twice = reserved("10.0.0.0/25", "10.0.0.5", "10.0.0.64/26", "10.0.0.0/25")
    assert twice.count(Prefix.parse("10.0.0.0/24")) == 128
    assert twice.count(Prefix.parse("10.0.0.64/26")) == 64
    assert hash(twice) == hash(reserved("10.0.0.0/25"))


def test_what_lies_in_several_ranges_is_counted_in_all_of_them() -> None:
    three = reserved("10.0.0.5", "10.0.0.32/30", "10.0.1.0/24")
    assert three.count(Prefix.parse("10.0.0.0/8")) == 1 + 4 + 256
    assert three.count(Prefix.parse("10.0.0.32/27")) == 4
    assert three.count(Prefix.parse("10.0.1.0/25")) == 128


@pytest.mark.parametrize(
    "first, last, count",
    [
        ("10.0.0.0", "10.0.0.31", 0),
        ("10.0.0.32", "10.0.0.32", 1),
        ("10.0.0.33", "10.0.0.36", 3),
        ("10.0.0.30", "10.0.1.9", 14),
        ("0.0.0.0", "255.255.255.255", 260),
        ("fd00::1", "ffff::", 1),
    ],
)
def test_reserved_addresses_between_two_are_counted_with_both_ends(first: str, last: str, count: int) -> None:
    found = reserved("10.0.0.32/30", "10.0.1.0/24", "fd00::/127")
    assert found.count_between(Address.parse(first), Address.parse(last)) == count


def test_the_families_are_kept_apart_where_they_meet() -> None:
    ends = reserved("255.255.255.255", "::/127")
    assert ends.count(Prefix.parse("255.255.255.254/31")) == 1
    assert ends.count(Prefix.parse("::/126")) == 2
    assert not ends.covers(Prefix.parse("::/126"))


@pytest.mark.parametrize(
    "cidrs, address, end",
    [
        (("10.0.0.32/30",), "10.0.0.33", "10.0.0.36"),
        (("10.0.0.32/30", "10.0.1.0/24"), "10.0.0.33", "10.0.0.36"),
        (("10.0.0.0/25", "10.0.0.128/26"), "10.0.0.5", "10.0.0.192"),
        (("fd00::/64", "fd00:0:0:1::"), "fd00::7", "fd00:0:0:1::1"),
    ],
)
def test_a_reserved_range_has_an_end(cidrs: tuple[str, ...], address: str, end: str) -> None:
    assert reserved(*cidrs).end(Address.parse(address)) == Address.parse(end).value


def test_a_reserved_range_ends_with_its_family() -> None:
    both = reserved("255.255.255.255", "::/127")
    assert both.end(Address.parse("255.255.255.255")) == 2**32
    assert both.end(Address.parse("::1")) == 2
    assert reserved("ff00::/8").end(Address.parse("ff00::")) == 2**128
