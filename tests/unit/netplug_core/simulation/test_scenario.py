"""The values of a simulation: what cannot be asked, and what is worked out from the answer."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.simulation.counting_datastore import DatastoreCallCount
from netplug_core.simulation.scenario import Distribution, PodLoad, PoolSample, Scenario, SimulationResult, StepSample
from tests.harness.simulation import make_pool, make_scenario

PODS = PodLoad(pods_per_node=10)
ONE = Distribution(minimum=1, median=1, maximum=1)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: PodLoad(pods_per_node=0), r"pods_per_node: 0 is not accepted; at least 1"),
        (lambda: evolve(PODS, max_per_node=9), r"most_per_node: 9 is not accepted; pods_per_node or more"),
        (lambda: evolve(PODS, arrivals_per_s=-1.0), r"arrivals_per_s: -1.0 is not accepted; more than 0"),
        (lambda: evolve(PODS, arrivals_per_s=0.0), r"arrivals_per_s: 0.0 is not accepted; more than 0"),
        (lambda: evolve(PODS, churn=1.5), r"churn: 1.5 is not accepted; a share from 0 to 1"),
        (lambda: evolve(PODS, churn=-0.5), r"churn: -0.5 is not accepted; a share from 0 to 1"),
        (lambda: evolve(PODS, lifetime_s=0.0), r"lifetime_s: 0.0 is not accepted; more than 0"),
        (lambda: evolve(PODS, families=()), r"families: \(\) is not accepted; one family, or each once"),
        (lambda: evolve(PODS, families=(Family.IPV4,) * 2), r"families: .* is not accepted; one family, or each once"),
        (lambda: Scenario(nodes=(), pools=(), load=PODS, steps=1), r"nodes: \(\) is not accepted; at least one node"),
        (lambda: make_scenario(1, (), PODS, steps=0), r"steps: 0 is not accepted; at least 1"),
        (lambda: make_scenario(1, (), PODS, step_s=0), r"step_s: 0 is not accepted; at least 1"),
    ],
)
def test_what_cannot_be_is_refused_by_field(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^simulation {message}$"):
        make()


def test_a_study_knows_how_many_pods_and_how_long() -> None:
    wish = make_scenario(3, (make_pool("10.0.0.0/24", 26),), PODS, steps=4, step_s=30)
    assert (wish.pod_count, wish.duration_s) == (30, 120)


def test_a_node_runs_no_more_than_the_average_unless_it_is_told() -> None:
    assert PODS.capacity_per_node == 10
    assert evolve(PODS, max_per_node=12).capacity_per_node == 12


@pytest.mark.parametrize(
    "numbers, spread", [([5], (5, 5, 5)), ([3, 1], (1, 1, 3)), ([9, 1, 2], (1, 2, 9)), ([4, 3, 2, 1], (1, 2, 4))]
)
def test_a_spread_has_the_lower_of_two_in_the_middle(numbers: list[int], spread: tuple[int, int, int]) -> None:
    found = Distribution.of(numbers)
    assert (found.minimum, found.median, found.maximum) == spread


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
    found = sample(
        60,
        pool_sample("a", in_use=30, cooling=10, available=226, borrowed=5),
        pool_sample("b", in_use=80, available=176, borrowed=20),
    )
    assert (found.held, found.borrowed, found.borrowed_share) == (100, 25, 0.25)
    assert (found.blocks, found.unaffined_blocks) == (6, 2)
    assert found.pools[0].utilization == 30 / 256


def test_where_nothing_is_held_nothing_is_borrowed() -> None:
    assert sample(60, pool_sample("a", in_use=0, available=256)).borrowed_share == 0


def test_findings_add_up_their_samples() -> None:
    found = SimulationResult(
        samples=(
            sample(60, pool_sample("a", in_use=250, available=6), refusals=(("full", 2), ("limit", 1))),
            sample(120, pool_sample("a", in_use=256, available=0), refusals=(("full", 3),)),
            sample(180, pool_sample("a", in_use=256, available=0)),
        ),
        usages=(),
    )
    assert found.refusals == (("full", 5), ("limit", 1))
    assert [seen.refused for seen in found.samples] == [3, 3, 0]
    assert found.calls == DatastoreCallCount(reads=6, commits=3)
    assert found.last.at_s == 180
    assert found.find_exhausted_s("a") == 120
    assert found.find_exhausted_s("b") is None
