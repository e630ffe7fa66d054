"""Scenarios: values that are refused, and what follows from the others."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_core.addressing import Family
from netplug_core.errors import ConfigurationError
from netplug_core.simulation.scenario import PodLoad, Scenario
from tests.harness.simulation import make_pool, make_scenario

PODS = PodLoad(pods_per_node=10)


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
def test_an_impossible_value_is_refused_by_field(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^simulation {message}$"):
        make()


def test_a_scenario_has_a_number_of_pods_and_a_duration() -> None:
    scenario = make_scenario(3, (make_pool("10.0.0.0/24", 26),), PODS, steps=4, step_s=30)
    assert (scenario.pod_count, scenario.duration_s) == (30, 120)


def test_a_node_runs_no_more_pods_than_the_average_by_default() -> None:
    assert PODS.capacity_per_node == 10
    assert evolve(PODS, max_per_node=12).capacity_per_node == 12
