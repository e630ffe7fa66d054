"""What tests of giving back have in common: decisions without their commit, items to release, what a store holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from netplug_core.addressing import Address, Prefix
from netplug_core.flows.addresses import release_addresses
from netplug_core.ipam.affinity import AFFINITY
from netplug_core.ipam.request import AddressesReleased, ReleaseItem
from netplug_core.records import Decision, NeedMore, Query, Snapshot
from tests.unit.netplug_core.ipam.bench import Bench

R = TypeVar("R")


def decided(bench: Bench, queries: Sequence[Query], rule: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
    """What a rule makes of the store as it is; nothing is committed."""
    snapshot = bench.read(*queries)
    while True:
        made = rule(snapshot)
        if isinstance(made, Decision):
            return made
        snapshot = snapshot.merged(bench.read(*made.queries))


def item(address: str, handle: str | None = None, sequence: int | None = None) -> ReleaseItem:
    return ReleaseItem(address=Address.parse(address), handle=handle, sequence=sequence)


def give_back(bench: Bench, *items: ReleaseItem) -> AddressesReleased:
    """Release addresses one by one, as the collector and netplugctl do."""
    return release_addresses(bench.store, items, pace=bench.pace)


def sequence(bench: Bench, address: str, cidr: str) -> int:
    """The number that a block remembers for an address."""
    held = bench.block(cidr).find(Address.parse(address))
    assert held is not None, f"{address} is free"
    return held.sequence


def texts(values: Iterable[Address | Prefix]) -> list[str]:
    return [str(value) for value in values]


def claim_names(bench: Bench) -> list[str]:
    """Every claim as ``type:name block``; ``Bench.claims`` knows those of nodes alone."""
    return ["{}:{} {}".format(*record.key.path[:2], record.key.name) for record in bench.records(AFFINITY)]
