"""Addresses that are never assigned automatically: the reserved prefixes of both families as one set.

``allocation`` asks it for blocks and addresses, ``reporting`` for pools. It counts ranges and never lists addresses,
so a reserved /64 costs what a single address costs; a lookup among many reservations is a binary search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from attrs import field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import excerpt
from netplug_core.ipam.outcome.trace import RecordTrace
from netplug_core.records import Record
from netplug_core.resources.ipreservation import IPReservation

__all__ = ["Reserved", "unread_entries"]

# Both families lie on one line, IPv6 behind IPv4, so that one sorted list serves a mixed set.
_FIRST_POSITION = {Family.IPV4: 0, Family.IPV6: 1 << Family.IPV4.width}


def unread_entries(reservation: Record[IPReservation]) -> tuple[RecordTrace, ...]:
    """The entries of a reservation that cannot be read; the others are reserved."""
    return tuple(
        [
            RecordTrace(
                kind=reservation.key.kind.name,
                record=f"{reservation.key} {entry}",
                problem=f"{reservation.key} spec.reservedCIDRs: {excerpt(entry)} is neither an address nor a CIDR",
                instead="it reserves nothing",
            )
            for entry in reservation.value.spec.unparsed
        ]
    )


@frozen
class Reserved:
    """A set of reserved addresses; equal when the same addresses are in it, however they were listed.

    It is kept as runs that neither touch nor overlap, in order: where each starts, the position behind its last
    address, and how many addresses the runs before it hold.
    """

    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    before: tuple[int, ...] = field(default=(), eq=False, repr=False)

    @classmethod
    def of(cls, prefixes: Iterable[Prefix]) -> Reserved:
        """The addresses of all prefixes together; they may overlap and repeat."""
        starts: list[int] = []
        ends: list[int] = []
        for start, end in sorted((_start(prefix), _end(prefix)) for prefix in prefixes):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        before, total = [], 0
        for start, end in zip(starts, ends, strict=True):
            before.append(total)
            total += end - start
        return cls(tuple(starts), tuple(ends), tuple(before))

    def contains(self, address: Address) -> bool:
        """Whether the address is reserved."""
        position = _FIRST_POSITION[address.family] + address.value
        run = bisect_right(self.starts, position)
        return run > 0 and position < self.ends[run - 1]

    def covers(self, prefix: Prefix) -> bool:
        """Whether every address of the prefix is reserved, by one entry or by several together."""
        run = bisect_right(self.starts, _start(prefix))
        return run > 0 and _end(prefix) <= self.ends[run - 1]

    def end(self, address: Address) -> int:
        """The first value of the family behind the reserved range that the address, which is reserved, lies in."""
        position = _FIRST_POSITION[address.family] + address.value
        end = self.ends[bisect_right(self.starts, position) - 1]
        return min(end - _FIRST_POSITION[address.family], 1 << address.family.width)

    def overlaps(self, prefix: Prefix) -> bool:
        """Whether some address of the prefix is reserved."""
        return self.count(prefix) > 0

    def count(self, prefix: Prefix) -> int:
        """How many addresses of the prefix are reserved."""
        return self._below(_end(prefix)) - self._below(_start(prefix))

    def count_between(self, first: Address, last: Address) -> int:
        """How many addresses of a range are reserved, its ends among them; both ends are of one family."""
        start = _FIRST_POSITION[first.family]
        return self._below(start + last.value + 1) - self._below(start + first.value)

    def _below(self, position: int) -> int:
        run = bisect_right(self.starts, position) - 1
        if run < 0:
            return 0
        return self.before[run] + min(position, self.ends[run]) - self.starts[run]


def _start(prefix: Prefix) -> int:
    return _FIRST_POSITION[prefix.family] + prefix.base


def _end(prefix: Prefix) -> int:
    return _start(prefix) + prefix.size
