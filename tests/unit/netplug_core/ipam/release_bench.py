"""What tests of giving back have in common: decisions without their commit, items to release, what a store holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from netplug_backends.memory.faults import Death, Fault, FaultyDatastore, ProcessDied
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Pace
from netplug_core.datastore.interface import Atomicity, Datastore
from netplug_core.flows.addresses import release_addresses
from netplug_core.ipam.affinity import AFFINITY
from netplug_core.ipam.request import AddressesReleased, ReleaseItem
from netplug_core.records import Decision, Get, NeedMore, Query, Record, Snapshot
from tests.unit.netplug_core.ipam.bench import Bench

R = TypeVar("R")
V = TypeVar("V")


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


def give_back(bench: Bench, *items: ReleaseItem, store: Datastore | None = None) -> AddressesReleased:
    """Release addresses one by one, as the collector and netplugctl do."""
    return release_addresses(store or bench.store, items, pace=bench.pace)


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


def records(bench: Bench, keys: Iterable[Get[V]]) -> list[Record[V] | None]:
    return [bench.find_record(key.key) for key in keys]


def dying(bench: Bench, applied: int | None) -> FaultyDatastore:
    """The store, for a process that dies at its first commit, after so many of its writes."""
    return FaultyDatastore(bench.store, {1: Death(applied)})


def cut(bench: Bench, act: Callable[[Datastore], object], applied: int) -> bool:
    """Whether a process that is to die after so many writes of its first commit was killed by that."""
    try:
        act(dying(bench, applied))
    except ProcessDied:
        return True
    return False


def script(bench: Bench, faults: Mapping[int, Fault]) -> FaultyDatastore:
    return FaultyDatastore(bench.store, faults)


def after(bench: Bench, seconds: float) -> Pace:
    """Let some time pass."""
    bench.clock.sleep(seconds)
    return bench.pace


ORDERED = Atomicity.ORDERED
