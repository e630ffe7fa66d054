"""Whatever happens at any call of an operation, and after any number of its writes, nothing is lost and nothing twice.

Exhaustive, not sampled: for each scenario the operation is run once undisturbed, and then once for each mishap at each
of its calls and at each of its writes. Afterwards the call is made again, a neighbour makes one, everything is taken
down, and the laws are judged after every commit on the way (D2, V1 to V18).

With the Hypothesis profile ``nightly`` a second mishap follows the first one, at every later call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import combinations

import pytest

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Clock
from netplug_core.datastore.interface import Atomicity, Datastore
from netplug_core.testing.allocator.bench import AllocatorBench
from netplug_core.testing.allocator.line import Mishap
from netplug_core.testing.allocator.scenarios import SCENARIOS, Scenario, every_mishap, suffer
from netplug_core.testing.clock import ManualClock

IS_DEEP = os.environ.get("NETPLUG_HYPOTHESIS_PROFILE") == "nightly"


def cold(store: Datastore, clock: Clock) -> BlockIPAM:
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)


def over_memory(atomicity: Atomicity) -> AllocatorBench:
    clock = ManualClock()
    return AllocatorBench(store=MemoryDatastore(atomicity, clock=clock), clock=clock, open_ipam=cold)


def scripts(mishaps: tuple[Mishap, ...]) -> Iterator[tuple[Mishap, ...]]:
    """Every mishap alone; in a deep run also followed by every other at a later call."""
    yield from ((mishap,) for mishap in mishaps)
    if IS_DEEP:
        yield from ((one, two) for one, two in combinations(mishaps, 2) if one.at < two.at)


@pytest.mark.parametrize("atomicity", Atomicity)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_whatever_happens_nothing_is_lost_and_nothing_is_there_twice(scenario: Scenario, atomicity: Atomicity) -> None:
    arrange = partial(over_memory, atomicity)
    suffered = 0
    for script in scripts(tuple(every_mishap(scenario, arrange))):
        suffer(scenario, arrange, *script)
        suffered += 1
    assert suffered > 5
