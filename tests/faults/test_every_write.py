"""Whatever happens at any call of an operation, and after any number of its writes, nothing is lost and nothing twice.

Exhaustive, not sampled: for each scenario the operation is run once undisturbed, and then once for each fault at each
of its calls and at each of its writes. Afterwards the call is made again, a neighbour makes one, everything is taken
down, and the laws are judged after every commit on the way (D2, V1 to V18).

With the Hypothesis profile ``nightly`` a second fault follows the first one, at a later call: all such pairs would take
half an hour, so each night draws some of each scenario. On the ordered store there are none: what is wrong there is
wrong on the kube-like one.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.client import CallFault
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.scenarios import (
    SCENARIOS,
    FaultScenario,
    every_fault,
    run_with_faults,
)
from tests.harness.local_stores import FAULT_MODES, IS_DEEP, open_standalone_ipam

PAIRS = 100


def make_harness(mode: MemoryMode) -> AllocatorHarness:
    clock = ManualClock()
    return AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_standalone_ipam)


def draw_pairs(faults: Sequence[CallFault]) -> list[tuple[CallFault, ...]]:
    """Some of the pairs of a fault and a later one; the seed that is printed draws the same ones."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 # shown if the test fails
    pairs = [(one, two) for one, two in combinations(faults, 2) if one.call_number < two.call_number]
    return random.Random(seed).sample(pairs, min(PAIRS, len(pairs)))  # noqa: S311 # not for secrets


def fault_sequences(faults: Sequence[CallFault], *, has_pairs: bool) -> Iterator[tuple[CallFault, ...]]:
    """Every fault alone; if pairs are wanted, also some faults that another one follows."""
    yield from ((fault,) for fault in faults)
    if has_pairs:
        yield from draw_pairs(faults)


@pytest.mark.parametrize("mode", FAULT_MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_whatever_happens_nothing_is_lost_and_nothing_is_there_twice(scenario: FaultScenario, mode: MemoryMode) -> None:
    arrange = partial(make_harness, mode)
    suffered = 0
    has_pairs = IS_DEEP and mode is not MemoryMode.ORDERED
    for script in fault_sequences(tuple(every_fault(scenario, arrange)), has_pairs=has_pairs):
        run_with_faults(scenario, arrange, *script)
        suffered += 1
    assert suffered > 5
