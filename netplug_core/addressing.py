"""Addresses and prefixes of both families, on integers, with one code path.

The two families differ only in the table of traits below. Only this module parses and prints addresses and prefixes.
It never builds a list of a range, so a /64 costs as much as a /24.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from functools import total_ordering
from ipaddress import IPv6Address
from operator import itemgetter
from typing import Generic, NewType, TypeVar

from attrs import define, field, frozen

from netplug_core.errors import InvalidArgument, quote, require_type

__all__ = [
    "Address", "Family", "InterfaceAddress", "Ordinal", "Prefix", "PrefixIndex", "disjoint_prefixes",
    "unusable_ranges", "without_ipv4_brackets",
]  # fmt: skip

V = TypeVar("V")

_BRACKETED = re.compile(r"\[([0-9.]+)\](?=:|,|$)")

Ordinal = NewType("Ordinal", int)
"""Zero-based offset of an address in its block."""


class Family(enum.IntEnum):
    """An IP version; its value is the number."""

    IPV4 = 4
    IPV6 = 6

    __hash__ = object.__hash__  # without a call of the function that enum has

    @property
    def width(self) -> int:
        """Bits in an address: 32 or 128."""
        return _WIDTH[self]

    @property
    def default_block_length(self) -> int:
        """Prefix length of the blocks of a pool that does not set one: 26 or 122."""
        return _DEFAULT_BLOCK[self]

    @property
    def block_lengths(self) -> tuple[int, int]:
        """Shortest and longest prefix length that a block may have: 20 and 32, or 116 and 128."""
        return _BLOCK_LENGTHS[self]

    def __str__(self) -> str:
        return f"IPv{self.value}"


# The table of traits: every difference between the families.
_WIDTH = {Family.IPV4: 32, Family.IPV6: 128}
_DEFAULT_BLOCK = {Family.IPV4: 26, Family.IPV6: 122}
_BLOCK_LENGTHS = {Family.IPV4: (20, 32), Family.IPV6: (116, 128)}
_LONGEST_LENGTH = len("128")
_NUMBERS = {str(number): number for number in range(256)}  # without leading zeros, as ipaddress has it
_ADDRESS = "an Address is expected; Address.parse makes one"
_PARTS = "a Family and whole numbers are expected; parse() makes one of a text"


@total_ordering
@frozen
class Address:
    """One address: a family and an integer of that family's width, which ``int(address)`` is too.

    Raises:
        InvalidArgument: a part of another type.
    """

    family: Family
    value: int

    def __attrs_post_init__(self) -> None:
        if self.family.__class__ is not Family or self.value.__class__ is not int:
            raise InvalidArgument("Address", (self.family, self.value), _PARTS)

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Address) -> bool:  # a quarter of the time of the one that attrs makes; many are sorted
        if other.__class__ is not Address:
            return NotImplemented
        return (self.family, self.value) < (other.family, other.value)

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address that a text names; ``::ffff:10.0.0.1`` is the IPv4 address 10.0.0.1.

        Raises:
            ValueError: it is not an address alone (masks, zones, leading zeros and spaces are refused).
            InvalidArgument: it is not a text.
        """
        require_type("Address.parse", text, str, "a text such as 10.0.0.1 is expected")
        value = _ipv4_value(text)
        if value is not None:
            return cls(Family.IPV4, value)
        try:
            parsed = IPv6Address(text)
        except ValueError:
            raise ValueError(f"{quote(text)} is not an IP address") from None
        if parsed.scope_id is not None:
            raise ValueError(f"{quote(text)} is not an IP address: a zone is not allowed")
        if parsed.ipv4_mapped is not None:
            return cls(Family.IPV4, int(parsed.ipv4_mapped))
        return cls(Family.IPV6, int(parsed))

    @property
    def packed(self) -> bytes:
        """The address in network byte order: 4 or 16 bytes."""
        return self.value.to_bytes(self.family.width // 8, "big")

    @property
    def host_prefix(self) -> Prefix:
        """The prefix of this address alone: /32 or /128."""
        return Prefix(self.family, self.value, self.family.width)

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return _text_of(self.family, self.value)


def _text_of(family: Family, value: int) -> str:
    """The text of an address, of which none has to be made: there are many of sets of the packet filter."""
    if family is Family.IPV4:
        return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"
    return str(IPv6Address(value))


@total_ordering
@frozen
class Prefix:
    """The addresses whose first ``length`` bits are those of ``base``, which has no host bits set.

    ``in`` takes an address, a prefix or the text of either; a text that is neither is an InvalidArgument. Iteration
    yields every address, the lowest first. ``len`` is ``size`` where Python's limit for lengths allows it.

    Raises:
        InvalidArgument: a part of another type.
    """

    family: Family
    base: int
    length: int

    def __attrs_post_init__(self) -> None:
        if self.family.__class__ is not Family or self.base.__class__ is not int or self.length.__class__ is not int:
            raise InvalidArgument("Prefix", (self.family, self.base, self.length), _PARTS)

    def __hash__(self) -> int:
        return hash((self.base, self.length))

    def __lt__(self, other: Prefix) -> bool:  # as in Address
        if other.__class__ is not Prefix:
            return NotImplemented
        return (self.family, self.base, self.length) < (other.family, other.base, other.length)

    @classmethod
    def parse(cls, text: str) -> Prefix:
        """The prefix that a text names; an address without a length means /32 or /128.

        Raises:
            ValueError: it is not a prefix, or has host bits set (the text then names the prefix without them).
            InvalidArgument: it is not a text.
        """
        address, length = _address_and_length(text)
        prefix = cls.at(address, length)
        if address.value != prefix.base:
            raise ValueError(f"{quote(text)} has host bits set; {prefix} is the prefix that holds it")
        return prefix

    @classmethod
    def enclosing(cls, text: str) -> Prefix:
        """The prefix of ``address/length``, with the host bits cleared.

        Raises:
            ValueError: it is not an address with a length.
        """
        return cls.at(*_address_and_length(text))

    @classmethod
    def at(cls, address: Address, length: int) -> Prefix:
        """The prefix of a length that an address lies in."""
        shift = address.family.width - length
        return cls(address.family, address.value >> shift << shift, length)

    @property
    def size(self) -> int:
        """How many addresses it has."""
        return 1 << (self.family.width - self.length)

    @property
    def first(self) -> Address:
        """The lowest address: the network address."""
        return Address(self.family, self.base)

    @property
    def last(self) -> Address:
        """The highest address: for IPv4 the broadcast address."""
        return Address(self.family, self.base + self.size - 1)

    def nth(self, offset: int) -> Address:
        """The address at an offset from the first one. The caller checks that the offset is below ``size``."""
        return Address(self.family, self.base + offset)

    def offset(self, address: Address) -> int:
        """The offset of an address of this prefix from the first one."""
        try:
            return address.value - self.base
        except AttributeError:
            raise InvalidArgument("Prefix.offset", address, _ADDRESS) from None

    def contains(self, address: Address) -> bool:
        """Whether the address lies in it; an address of the other family does not."""
        try:
            return address.family is self.family and 0 <= address.value - self.base < self.size
        except AttributeError:
            raise InvalidArgument("Prefix.contains", address, _ADDRESS) from None

    def covers(self, other: Prefix) -> bool:
        """Whether every address of the other prefix lies in it."""
        try:
            is_longer = self.family is other.family and self.length <= other.length
            return is_longer and 0 <= other.base - self.base < self.size
        except AttributeError:
            raise InvalidArgument("Prefix.covers", other, "a Prefix is expected; Prefix.parse makes one") from None

    def overlaps(self, other: Prefix) -> bool:
        """Whether an address lies in both."""
        return self.covers(other) or other.covers(self)

    def subprefix_count(self, length: int) -> int:
        """How many prefixes of a length it has; ``length`` is at least its own."""
        return 1 << (length - self.length)

    def subprefix(self, index: int, length: int) -> Prefix:
        """The prefix of a length at a position in it; position 0 is the lowest."""
        return Prefix(self.family, self.base + (index << (self.family.width - length)), length)

    def __contains__(self, other: object) -> bool:
        match other:
            case Address():
                return self.contains(other)
            case Prefix():
                return self.covers(other)
            case str():
                return self.covers(_prefix_in_question(other))
        raise InvalidArgument("Prefix.__contains__", other, "an Address, a Prefix or the text of one is expected")

    def __iter__(self) -> Iterator[Address]:
        return (Address(self.family, value) for value in range(self.base, self.base + self.size))

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:  # Python would call __len__, which fails for a wide prefix
        return True

    def __str__(self) -> str:
        return f"{_text_of(self.family, self.base)}/{self.length}"


@frozen(order=True)
class InterfaceAddress:
    """An address as an interface has it: with the length of its on-link prefix."""

    address: Address
    length: int

    @classmethod
    def parse(cls, text: str) -> InterfaceAddress:
        """The address of ``address/length``; an address without a length means /32 or /128.

        Raises:
            ValueError: it is neither.
            InvalidArgument: it is not a text.
        """
        return cls(*_address_and_length(text))

    @property
    def prefix(self) -> Prefix:
        """What is on the link: the addresses that are reached without a router."""
        return Prefix.at(self.address, self.length)

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


@define(eq=False)
class PrefixIndex(Generic[V]):
    """Values by their prefixes. It finds those that overlap a prefix without a look at the others."""

    _values: dict[Prefix, list[tuple[int, V]]] = field(factory=dict, init=False)  # numbered as they were added
    _starts: dict[Family, list[tuple[int, int]]] = field(factory=dict, init=False)  # base and length, in order
    _lengths: dict[Family, set[int]] = field(factory=dict, init=False)
    _count: int = field(default=0, init=False)

    @classmethod
    def of(cls, values: Iterable[tuple[Prefix, V]]) -> PrefixIndex[V]:
        """The index of some values."""
        index = cls()
        for prefix, value in values:
            index.add(prefix, value)
        return index

    def add(self, prefix: Prefix, value: V) -> None:
        """Add a value; several may have one prefix."""
        values = self._values.setdefault(prefix, [])
        if not values:
            insort(self._starts.setdefault(prefix.family, []), (prefix.base, prefix.length))
            self._lengths.setdefault(prefix.family, set()).add(prefix.length)
        values.append((self._count, value))
        self._count += 1

    def overlapping(self, prefix: Prefix) -> list[V]:
        """The values whose prefixes hold this one or lie in it, as they were added."""
        family = prefix.family
        outer = (Prefix.at(prefix.first, length) for length in self._lengths.get(family, ()) if length <= prefix.length)
        found = [numbered for each in outer for numbered in self._values.get(each, ())]
        starts, end = self._starts.get(family, []), prefix.base + prefix.size
        for place in range(bisect_left(starts, (prefix.base, prefix.length + 1)), len(starts)):
            base, length = starts[place]
            if base >= end:
                break
            found += self._values[Prefix(family, base, length)]  # no shorter prefix begins inside this one
        return [value for _number, value in sorted(found, key=itemgetter(0))]


def disjoint_prefixes(prefixes: Iterable[Prefix]) -> tuple[Prefix, ...]:
    """Prefixes that together have the addresses of all of these, and none twice; sorted."""
    found: list[Prefix] = []
    for prefix in sorted(prefixes):
        if not found or not found[-1].covers(prefix):
            found.append(prefix)
    return tuple(found)


def _ipv4_value(text: str) -> int | None:
    """The value of an IPv4 address, in a sixth of the time of ipaddress; None for any other text."""
    if ":" in text:
        return None
    try:
        first, second, third, fourth = map(_NUMBERS.__getitem__, text.split("."))
    except (KeyError, ValueError):
        return None
    return first << 24 | second << 16 | third << 8 | fourth


def _prefix_in_question(text: str) -> Prefix:
    try:
        return Prefix.parse(text)
    except ValueError as error:
        raise InvalidArgument("Prefix.__contains__", text, str(error)) from None


def _address_and_length(text: str) -> tuple[Address, int]:
    require_type("Prefix.parse", text, str, "a text such as 10.0.0.0/24 is expected")
    bare, slash, digits = text.partition("/")
    address = Address.parse(bare)
    if not slash:
        return address, address.family.width
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_LENGTH
    # An IPv4 address in IPv6 notation would need another length, so it is refused.
    is_mapped = address.family is Family.IPV4 and ":" in bare
    if not is_number or int(digits) > address.family.width or is_mapped:
        raise ValueError(f"{quote(text)} is not a CIDR")
    return address, int(digits)


# Source: RFC 6890, RFC 4291 section 2.4.
_UNUSABLE = tuple(
    (word, Prefix.parse(text))
    for word, texts in {
        "unspecified": ("0.0.0.0/8", "::/128"),
        "loopback": ("127.0.0.0/8", "::1/128"),
        "link-local": ("169.254.0.0/16", "fe80::/10"),
        "multicast": ("224.0.0.0/4", "ff00::/8"),
    }.items()
    for text in texts
)


def unusable_ranges(prefix: Prefix) -> Iterator[tuple[str, Prefix]]:
    """The ranges without addresses of workloads that a prefix overlaps, each with the kind of its addresses."""
    return ((word, reserved) for word, reserved in _UNUSABLE if reserved.overlaps(prefix))


def without_ipv4_brackets(url: str) -> str:
    """A URL without the brackets around an IPv4 address that stands for its host, or for one of several.

    RFC 3986 has brackets around IPv6 addresses only, and libraries differ: some refuse such a URL. But well-known
    installers write ``https://[10.96.0.1]:443``. Every reader of a URL calls this first.
    """
    head, slashes, rest = url.partition("//")
    end = min((position for position in map(rest.find, "/?#") if position >= 0), default=len(rest))
    user, at, hosts = rest[:end].rpartition("@")
    return f"{head}{slashes}{user}{at}{_BRACKETED.sub(_unbracketed, hosts)}{rest[end:]}"


def _unbracketed(found: re.Match[str]) -> str:
    try:
        return str(Address.parse(found[1]))
    except ValueError:
        return found[0]  # no address: the reader of the URL refuses it
