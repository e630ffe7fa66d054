"""What a program reads of a simulation: every value under its name, and the same names in both forms."""

import csv
import io
import json

from netplug_cli.ctl.simulation_report import result_to_mapping, simulation_report
from netplug_cli.ctl.tables import ReportFormat
from netplug_core.addressing import Family
from netplug_core.simulation.scenario import PodLoad, Scenario
from netplug_core.simulation.simulator import SimulationResult
from tests.harness.simulation import make_pool, make_scenario, run_scenario

FULL = make_scenario(2, (make_pool("10.0.0.0/28", 29),), PodLoad(pods_per_node=10, churn=0.1), steps=2)
FINE = make_scenario(
    1,
    (make_pool("10.0.0.0/28", 29), make_pool("fd00::/120", 124, "six")),
    PodLoad(pods_per_node=3, families=(Family.IPV4, Family.IPV6)),
)


def result_of(scenario: Scenario) -> SimulationResult:
    return run_scenario(scenario)[0]


def test_an_answer_that_holds() -> None:
    found = result_to_mapping(FINE, result_of(FINE))
    assert json.loads(json.dumps(found)) == found
    assert (found["holds"], found["firstRefusal"], found["firstBorrowedSeconds"], found["refusals"]) == (
        True,
        None,
        None,
        {},
    )
    assert (found["reads"], found["commits"]) == (6, 3)
    assert found["scenario"] == {
        "nodes": 1,
        "podsPerNode": 3,
        "mostPodsPerNode": 3,
        "podsPerSecond": None,
        "churn": 0.0,
        "lifetimeSeconds": None,
        "placement": "spread",
        "process": "one-shot",
        "families": [4, 6],
        "steps": 1,
        "stepSeconds": 60,
        "seed": 1,
    }


def test_an_answer_has_the_usage_of_each_pool() -> None:
    assert result_to_mapping(FINE, result_of(FINE))["pools"] == [
        {
            "name": "main",
            "cidr": "10.0.0.0/28",
            "total": 16,
            "inUse": 3,
            "cooling": 0,
            "reserved": 0,
            "free": 13,
            "borrowed": 0,
            "blocks": 1,
            "unowned": 0,
            "mostBlocks": 2,
            "blocksPerNode": {"least": 1, "median": 1, "most": 1},
            "fullSeconds": None,
        },
        {
            "name": "six",
            "cidr": "fd00::/120",
            "total": 256,
            "inUse": 3,
            "cooling": 0,
            "reserved": 0,
            "free": 253,
            "borrowed": 0,
            "blocks": 1,
            "unowned": 0,
            "mostBlocks": 16,
            "blocksPerNode": {"least": 1, "median": 1, "most": 1},
            "fullSeconds": None,
        },
    ]


def test_an_answer_that_does_not_hold() -> None:
    seen = result_of(FULL)
    found = result_to_mapping(FULL, seen)
    assert found["holds"] is False
    assert seen.first_refusal is not None
    assert found["firstRefusal"] == {
        "seconds": 48.0,
        "node": seen.first_refusal.node,
        "identifier": "pools-exhausted",
        "text": seen.first_refusal.text,
    }
    assert found["refusals"] == dict(seen.refusals)


def test_every_step_is_in_both_forms_with_the_same_values() -> None:
    seen = result_of(FULL)
    steps = result_to_mapping(FULL, seen)["steps"]
    assert isinstance(steps, list)
    rows = list(csv.DictReader(io.StringIO(simulation_report(FULL, seen).render(ReportFormat.CSV))))
    assert len(steps) == len(rows) == 2
    for step, row in zip(steps, rows, strict=True):
        pools, refusals = step.pop("pools"), step.pop("refusals")
        flat = {**step, **{f"main.{name}": value for name, value in pools["main"].items()}}
        assert row == {name: str(value) for name, value in flat.items()}
        assert sum(refusals.values()) == step["refused"]
    assert rows[0]["seconds"] == "60"
    assert (rows[1]["pods"], rows[1]["waiting"], rows[1]["main.inUse"]) == ("16", "4", "16")
