"""Addresses and prefixes of both families: parsing, errors and arithmetic."""

import re
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import pytest

from netplug_core.addressing import (
    Address,
    Family,
    InterfaceAddress,
    Prefix,
    PrefixIndex,
    disjoint_prefixes,
    unusable_ranges,
    without_ipv4_brackets,
)
from netplug_core.errors import InvalidArgument


@pytest.mark.parametrize("family, name, width, default, lengths", [
    (Family.IPV4, "IPv4", 32, 26, (20, 32)),
    (Family.IPV6, "IPv6", 128, 122, (116, 128)),
])  # fmt: skip
def test_the_families_differ_in_four_traits(
    family: Family, name: str, width: int, default: int, lengths: tuple[int, int]
) -> None:
    assert str(family) == name
    assert family.width == width
    assert family.default_block_length == default
    assert family.block_lengths == lengths


@pytest.mark.parametrize("text, family, value, canonical", [
    ("10.0.0.1", Family.IPV4, 0x0A000001, "10.0.0.1"),
    ("0.0.0.0", Family.IPV4, 0, "0.0.0.0"),
    ("fd80:0024::0001", Family.IPV6, 0xFD800024 << 96 | 1, "fd80:24::1"),
    ("FD80::A", Family.IPV6, 0xFD80 << 112 | 10, "fd80::a"),
    ("::", Family.IPV6, 0, "::"),
    ("::ffff:10.0.0.1", Family.IPV4, 0x0A000001, "10.0.0.1"),
])  # fmt: skip
def test_an_address_is_parsed_in_any_form_and_printed_in_one(
    text: str, family: Family, value: int, canonical: str
) -> None:
    address = Address.parse(text)
    assert address == Address(family, value)
    assert str(address) == canonical


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1/32", " 10.0.0.1", "010.0.0.1", "10.0.0.256", "10.0.0", "fd00::1::", "x"]
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is not an IP address$"):
        Address.parse(text)


def test_an_address_with_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="'fe80::1%eth0' is not an IP address: a zone is not allowed"):
        Address.parse("fe80::1%eth0")


def test_an_address_packs_into_the_bytes_of_its_family() -> None:
    assert Address.parse("10.0.0.1").packed == b"\x0a\x00\x00\x01"
    assert Address.parse("fd00::1").packed == b"\xfd" + bytes(14) + b"\x01"


def test_the_host_prefix_of_an_address_has_the_longest_length() -> None:
    assert str(Address.parse("10.0.0.1").host_prefix) == "10.0.0.1/32"
    assert str(Address.parse("fd00::1").host_prefix) == "fd00::1/128"


@pytest.mark.parametrize("text, canonical", [
    ("10.0.0.0/26", "10.0.0.0/26"),
    ("10.0.0.7", "10.0.0.7/32"),
    ("fd80:24e2:f998:72d6:0:0:0:0/64", "fd80:24e2:f998:72d6::/64"),
    ("fd00::7", "fd00::7/128"),
    ("0.0.0.0/0", "0.0.0.0/0"),
    ("::/0", "::/0"),
])  # fmt: skip
def test_a_prefix_is_parsed_in_any_form_and_printed_in_one(text: str, canonical: str) -> None:
    assert str(Prefix.parse(text)) == canonical


def test_host_bits_are_refused_and_the_prefix_without_them_is_named() -> None:
    text = "'10.0.0.1/24' has host bits set; 10.0.0.0/24 is the prefix that holds it"
    with pytest.raises(ValueError, match=re.escape(text)):
        Prefix.parse("10.0.0.1/24")
    assert str(Prefix.enclosing("10.0.0.1/24")) == "10.0.0.0/24"


@pytest.mark.parametrize("length", ["", "33", "-1", "+8", "x", "\u0663", "255.255.255.0", "24/1", "1" * 5000])
def test_a_wrong_length_is_refused(length: str) -> None:
    with pytest.raises(ValueError, match=r"^'10\.0\.0\.0/.*['…] is not a CIDR$"):
        Prefix.parse(f"10.0.0.0/{length}")


def test_an_ipv4_prefix_in_ipv6_notation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'::ffff:10\.0\.0\.0/104' is not a CIDR"):
        Prefix.parse("::ffff:10.0.0.0/104")


def test_a_prefix_without_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match="'main' is not an IP address"):
        Prefix.parse("main/24")


@pytest.mark.parametrize("text, first, last, size", [
    ("10.0.0.64/26", "10.0.0.64", "10.0.0.127", 64),
    ("10.0.0.7/32", "10.0.0.7", "10.0.0.7", 1),
    ("0.0.0.0/0", "0.0.0.0", "255.255.255.255", 2**32),
    ("fd00::/64", "fd00::", "fd00::ffff:ffff:ffff:ffff", 2**64),
    ("ffff::/16", "ffff::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 2**112),
])  # fmt: skip
def test_a_prefix_has_a_first_and_a_last_address(text: str, first: str, last: str, size: int) -> None:
    prefix = Prefix.parse(text)
    assert (str(prefix.first), str(prefix.last), prefix.size) == (first, last, size)
    assert prefix.nth(size - 1) == prefix.last
    assert prefix.offset(prefix.last) == size - 1


def test_contains_covers_and_overlaps_never_mix_families() -> None:
    wide, narrow = Prefix.parse("10.0.0.0/24"), Prefix.parse("10.0.0.64/26")
    next_door, other = Prefix.parse("10.0.1.0/24"), Prefix.parse("::a00:0/120")
    assert other.base == wide.base
    assert wide.contains(narrow.first)
    assert not wide.contains(next_door.first)
    assert not next_door.contains(wide.last)
    assert not wide.contains(other.first)
    assert wide.covers(narrow)
    assert wide.covers(wide)
    assert not narrow.covers(wide)
    assert not wide.covers(other)
    assert wide.overlaps(narrow)
    assert narrow.overlaps(wide)
    assert not wide.overlaps(next_door)
    assert not wide.overlaps(other)


def test_subprefixes_are_computed_without_a_list_of_them() -> None:
    pool = Prefix.parse("fd00::/64")
    assert pool.subprefix_count(122) == 2**58
    assert str(pool.subprefix(0, 122)) == "fd00::/122"
    assert str(pool.subprefix(2**58 - 1, 122)) == "fd00::ffff:ffff:ffff:ffc0/122"
    assert Prefix.parse("10.0.0.7/32").subprefix_count(32) == 1


def test_addresses_and_prefixes_sort_by_family_and_number() -> None:
    unsorted = ["fd00::/64", "10.0.0.0/26", "9.0.0.0/8", "10.0.0.0/24"]
    assert [str(prefix) for prefix in sorted(map(Prefix.parse, unsorted))] == [
        "9.0.0.0/8", "10.0.0.0/24", "10.0.0.0/26", "fd00::/64",
    ]  # fmt: skip
    assert Address.parse("9.0.0.1") < Address.parse("10.0.0.1") < Address.parse("::")
    assert Prefix.parse("10.0.0.0/24") >= Prefix.parse("10.0.0.0/24") > Prefix.parse("10.0.0.0/8")
    for one in (Address.parse("9.0.0.1"), Prefix.parse("10.0.0.0/24")):
        with pytest.raises(TypeError):
            sorted([one, 7])


# --- the operators of the language ---------------------------------------------------------------------------------


def test_in_takes_addresses_prefixes_and_their_texts() -> None:
    prefix = Prefix.parse("10.0.0.0/24")
    for text in ("10.0.0.0", "10.0.0.255"):
        assert text in prefix
        assert Address.parse(text) in prefix
    for text in ("10.0.1.0", "fd00::1"):
        assert text not in prefix
        assert Address.parse(text) not in prefix
    assert "10.0.0.64/26" in prefix
    assert prefix in prefix  # noqa: PLR0124  a prefix covers itself
    assert Prefix.parse("10.0.0.0/23") not in prefix


@pytest.mark.parametrize("other", ["main", "10.0.0.1/24", 5, None, Family.IPV4])
def test_in_refuses_what_is_neither(other: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^Prefix\.__contains__: .* is not accepted; "):
        _ = other in Prefix.parse("10.0.0.0/24")


def test_a_prefix_iterates_over_its_addresses_without_a_list_of_them() -> None:
    assert [str(address) for address in Prefix.parse("10.0.0.4/30")] == ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]
    assert [str(address) for address in islice(Prefix.parse("fd00::/64"), 2)] == ["fd00::", "fd00::1"]


def test_the_length_is_the_size_where_python_has_such_lengths() -> None:
    assert len(Prefix.parse("10.0.0.0/24")) == 256
    with pytest.raises(OverflowError):
        len(Prefix.parse("fd00::/64"))
    assert Prefix.parse("fd00::/64"), "a prefix is never empty, however long it is"


def test_an_address_is_a_number() -> None:
    assert int(Address.parse("10.0.0.1")) == 0x0A000001


@pytest.mark.parametrize("parse, value, example", [
    (Address.parse, 0x0A000001, "10.0.0.1"), (Address.parse, None, "10.0.0.1"), (Prefix.parse, 5, "10.0.0.0/24"),
    (Prefix.parse, Address.parse("10.0.0.1"), "10.0.0.0/24"), (Prefix.enclosing, b"10.0.0.0/24", "10.0.0.0/24"),
])  # fmt: skip
def test_only_texts_are_parsed(parse: Callable[[object], object], value: object, example: str) -> None:
    with pytest.raises(InvalidArgument, match=f"is not accepted; a text such as {re.escape(example)} is expected$"):
        parse(value)


def test_parts_of_another_type_are_refused() -> None:
    parts: tuple[Any, ...] = (4, "10.0.0.0", 24)
    with pytest.raises(
        InvalidArgument, match=r"^Address: \(4, '10\.0\.0\.0'\) is not accepted; a Family and whole numbers"
    ):
        Address(*parts[:2])
    with pytest.raises(
        InvalidArgument, match=r"^Prefix: \(4, '10\.0\.0\.0', 24\) is not accepted; a Family and whole "
    ):
        Prefix(*parts)


@pytest.mark.parametrize("method", ["contains", "covers", "overlaps", "offset"])
@pytest.mark.parametrize("other", ["10.0.0.1", None, 5])
def test_the_methods_of_a_prefix_name_an_argument_of_another_type(method: str, other: object) -> None:
    with pytest.raises(
        InvalidArgument, match=rf"^Prefix\.\w+: {other!r} is not accepted; an? (Address|Prefix) is expect"
    ):
        getattr(Prefix.parse("10.0.0.0/24"), method)(other)


@pytest.mark.parametrize("text, kinds", [
    ("10.0.0.0/24", []), ("fd00::/64", []), ("127.0.0.1", ["loopback"]), ("169.254.1.0/24", ["link-local"]),
    ("0.0.0.0/0", ["unspecified", "loopback", "link-local", "multicast"]), ("::/127", ["unspecified", "loopback"]),
    ("febf::1", ["link-local"]), ("ff02::1", ["multicast"]),
])  # fmt: skip
def test_ranges_that_no_workload_has_an_address_of(text: str, kinds: list[str]) -> None:
    found = list(unusable_ranges(Prefix.enclosing(text)))
    assert [kind for kind, _prefix in found] == kinds
    assert all(prefix.overlaps(Prefix.enclosing(text)) for _kind, prefix in found)


@pytest.mark.parametrize(
    "url, plain",
    [
        ("https://[10.96.0.1]:443", "https://10.96.0.1:443"),
        ("https://[10.96.0.1]", "https://10.96.0.1"),
        ("https://[10.96.0.1]/path?at=//[10.0.0.1]#[10.0.0.1]", "https://10.96.0.1/path?at=//[10.0.0.1]#[10.0.0.1]"),
        ("etcd://a:[10.0.0.1]@[10.0.0.2]:2379,[10.0.0.3]", "etcd://a:[10.0.0.1]@10.0.0.2:2379,10.0.0.3"),
        ("https://[fd00::1]:443", "https://[fd00::1]:443"),
        ("https://[10.96.0.256]:443", "https://[10.96.0.256]:443"),
        ("https://[10.96.0.1]x", "https://[10.96.0.1]x"),
        ("https://10.96.0.1:443", "https://10.96.0.1:443"),
        ("[10.96.0.1]", "[10.96.0.1]"),
        ("", ""),
    ],
)
def test_brackets_around_an_ipv4_address_are_taken_off(url: str, plain: str) -> None:
    assert without_ipv4_brackets(url) == plain


# --- an index ---------------------------------------------------------------------------------------------------------


def test_an_index_finds_what_a_look_at_all_prefixes_finds_in_the_order_in_which_they_were_added() -> None:
    numbers = Random(28)  # noqa: S311  the same ones each time
    for _ in range(200):
        prefixes = [
            Prefix.at(Address(family, numbers.randrange(64) << (family.width - 6)), numbers.randrange(7))
            for family in (numbers.choice(tuple(Family)) for _ in range(numbers.randrange(20)))
        ]
        index = PrefixIndex.of((prefix, number) for number, prefix in enumerate(prefixes))
        for asked in (*prefixes, Prefix.parse("128.0.0.0/1"), Prefix.parse("::/0")):
            assert index.overlapping(asked) == [n for n, prefix in enumerate(prefixes) if prefix.overlaps(asked)]


@pytest.mark.parametrize(
    "text,printed,prefix",
    [
        ("192.0.2.7/24", "192.0.2.7/24", "192.0.2.0/24"),
        ("192.0.2.7", "192.0.2.7/32", "192.0.2.7/32"),
        ("2001:DB8::7/64", "2001:db8::7/64", "2001:db8::/64"),
    ],
)
def test_an_address_of_an_interface_has_the_length_of_its_prefix(text: str, printed: str, prefix: str) -> None:
    found = InterfaceAddress.parse(text)
    assert str(found) == printed
    assert found.prefix == Prefix.parse(prefix)
    with pytest.raises(ValueError, match="is not"):
        InterfaceAddress.parse("eth0")


def test_prefixes_inside_others_are_left_out() -> None:
    texts = ("10.0.1.0/24", "fd00::/64", "10.0.0.0/16", "10.0.0.0/24", "10.1.0.0/16", "fd00::1/128", "10.0.0.0/16")
    found = disjoint_prefixes(map(Prefix.parse, texts))
    assert [str(each) for each in found] == ["10.0.0.0/16", "10.1.0.0/16", "fd00::/64"]
    assert disjoint_prefixes(()) == ()
