"""Results: what follows from the samples."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.simulation.simulator import DatastoreCallCount, Distribution, PoolSample, SimulationResult, StepSample

ONE = Distribution(minimum=1, median=1, maximum=1)


@pytest.mark.parametrize(
    "numbers, expected", [([5], (5, 5, 5)), ([3, 1], (1, 1, 3)), ([9, 1, 2], (1, 2, 9)), ([4, 3, 2, 1], (1, 2, 4))]
)
def test_the_median_is_the_lower_of_two_middle_values(numbers: list[int], expected: tuple[int, int, int]) -> None:
    result = Distribution.of(numbers)
    assert (result.minimum, result.median, result.maximum) == expected


def pool_sample(name: str, *, in_use: int, available: int, cooling: int = 0, borrowed: int = 0) -> PoolSample:
    return PoolSample(
        name=name,
        prefix=Prefix.parse("10.0.0.0/24"),
        in_use=in_use,
        cooling=cooling,
        reserved=0,
        available=available,
        borrowed=borrowed,
        blocks=3,
        max_blocks=4,
        unaffined_blocks=1,
        blocks_per_node=ONE,
    )


def sample(at_s: int, *pools: PoolSample, refusals: tuple[tuple[str, int], ...] = ()) -> StepSample:
    return StepSample(
        at_s=at_s,
        running=0,
        waiting=0,
        pools=pools,
        blocks_per_node=ONE,
        started=0,
        ended=0,
        refusals=refusals,
        calls=DatastoreCallCount(reads=2, commits=1),
    )


def test_a_sample_adds_up_its_pools() -> None:
    result = sample(
        60,
        pool_sample("a", in_use=30, cooling=10, available=226, borrowed=5),
        pool_sample("b", in_use=80, available=176, borrowed=20),
    )
    assert (result.held, result.borrowed, result.borrowed_share) == (100, 25, 0.25)
    assert (result.blocks, result.unaffined_blocks) == (6, 2)
    assert result.pools[0].utilization == 30 / 256


def test_without_addresses_the_borrowed_share_is_zero() -> None:
    assert sample(60, pool_sample("a", in_use=0, available=256)).borrowed_share == 0


def test_a_result_adds_up_its_samples() -> None:
    result = SimulationResult(
        samples=(
            sample(60, pool_sample("a", in_use=250, available=6), refusals=(("full", 2), ("limit", 1))),
            sample(120, pool_sample("a", in_use=256, available=0), refusals=(("full", 3),)),
            sample(180, pool_sample("a", in_use=256, available=0)),
        ),
        usages=(),
    )
    assert result.refusals == (("full", 5), ("limit", 1))
    assert [step.refused for step in result.samples] == [3, 3, 0]
    assert result.calls == DatastoreCallCount(reads=6, commits=3)
    assert result.last.at_s == 180
    assert result.find_exhausted_s("a") == 120
    assert result.find_exhausted_s("b") is None
