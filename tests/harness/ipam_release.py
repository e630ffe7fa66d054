"""What tests of releases share: decisions without their commit, items to release, and what a store holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from netplug_core.addressing import Address, Prefix
from netplug_core.flows.ipam.addresses import release_addresses
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.ipam.model import AFFINITY
from netplug_core.records import Decision, NeedMore, Query, Snapshot
from tests.harness.ipam import IPAMHarness

R = TypeVar("R")


def decide_without_commit(
    harness: IPAMHarness, queries: Sequence[Query], rule: Callable[[Snapshot], Decision[R] | NeedMore]
) -> Decision[R]:
    """What a rule makes of the store as it is; nothing is committed."""
    snapshot = harness.read(*queries)
    while True:
        decision = rule(snapshot)
        if isinstance(decision, Decision):
            return decision
        snapshot = snapshot.merged(harness.read(*decision.queries))


def release_item(address: str, handle: str | None = None, sequence: int | None = None) -> ReleaseItem:
    return ReleaseItem(address=Address.parse(address), handle=handle, sequence=sequence)


def release_addresses_of(harness: IPAMHarness, *items: ReleaseItem) -> AddressesReleased:
    """Release addresses one by one, as the collector and netplugctl do."""
    return release_addresses(harness.store, items, pace=harness.pace)


def sequence_of(harness: IPAMHarness, address: str, cidr: str) -> int:
    """The number that a block remembers for an address."""
    held = harness.block(cidr).find(Address.parse(address))
    assert held is not None, f"{address} is free"
    return held.sequence


def texts(values: Iterable[Address | Prefix]) -> list[str]:
    return [str(value) for value in values]


def affinity_names(harness: IPAMHarness) -> list[str]:
    """Every affinity as ``type:name block``; ``IPAMHarness.affinities`` has those of nodes only."""
    return ["{}:{} {}".format(*record.key.path[:2], record.key.name) for record in harness.records(AFFINITY)]
