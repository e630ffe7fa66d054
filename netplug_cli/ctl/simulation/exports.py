"""The result of a simulation for programs: one JSON object, or a CSV line for each step."""

from __future__ import annotations

import csv
import io

from netplug_core.simulation.result import Distribution, PoolSample, SimulationResult, StepSample
from netplug_core.simulation.scenario import Scenario

__all__ = ["result_to_csv", "result_to_mapping"]

_STEP_COLUMNS = (
    "seconds", "pods", "waiting", "held", "borrowed", "blocks", "unowned", "blocksPerNodeLeast",
    "blocksPerNodeMedian", "blocksPerNodeMost", "started", "ended", "refused", "reads", "commits",
)  # fmt: skip
_POOL_COLUMNS = ("inUse", "cooling", "reserved", "free", "borrowed", "blocks", "unowned")


def result_to_mapping(scenario: Scenario, result: SimulationResult) -> dict[str, object]:
    """The result and its scenario, with the types of JSON."""
    first = result.first_refusal
    return {
        "scenario": _scenario(scenario),
        "holds": first is None,
        "firstRefusal": first
        and {"seconds": first.at_s, "node": first.node, "identifier": first.identifier, "text": first.text},
        "firstBorrowedSeconds": result.first_borrowed_s,
        "refusals": dict(result.refusals),
        "reads": result.calls.reads,
        "commits": result.calls.commits,
        "pools": [
            {
                "name": pool.name,
                "cidr": str(pool.prefix),
                "total": pool.prefix.size,
                **_pool_values(pool),
                "mostBlocks": pool.max_blocks,
                "blocksPerNode": _distribution(pool.blocks_per_node),
                "fullSeconds": result.find_exhausted_s(pool.name),
            }
            for pool in result.last.pools
        ],
        "steps": [
            {
                **_step_values(sample),
                "refusals": dict(sample.refusals),
                "pools": {pool.name: _pool_values(pool) for pool in sample.pools},
            }
            for sample in result.samples
        ],
    }


def result_to_csv(result: SimulationResult) -> str:
    """A line for each step, under a header; the columns of a pool begin with its name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_STEP_COLUMNS, *(f"{pool.name}.{name}" for pool in result.last.pools for name in _POOL_COLUMNS)))
    for sample in result.samples:
        pools = (value for pool in sample.pools for value in _pool_values(pool).values())
        writer.writerow((*_step_values(sample).values(), *pools))
    return text.getvalue()


def _scenario(scenario: Scenario) -> dict[str, object]:
    load = scenario.load
    return {
        "nodes": len(scenario.nodes),
        "podsPerNode": load.pods_per_node,
        "mostPodsPerNode": load.capacity_per_node,
        "podsPerSecond": load.arrivals_per_s,
        "churn": load.churn,
        "lifetimeSeconds": load.lifetime_s,
        "placement": load.placement.value,
        "process": scenario.process_model.value,
        "families": [family.value for family in load.families],
        "steps": scenario.steps,
        "stepSeconds": scenario.step_s,
        "seed": scenario.seed,
    }


def _step_values(sample: StepSample) -> dict[str, object]:
    per_node = sample.blocks_per_node
    values = (
        sample.at_s, sample.running, sample.waiting, sample.held, sample.borrowed, sample.blocks,
        sample.unaffined_blocks,
        per_node.minimum, per_node.median, per_node.maximum, sample.started, sample.ended, sample.refused,
        sample.calls.reads,
        sample.calls.commits,
    )  # fmt: skip
    return dict(zip(_STEP_COLUMNS, values, strict=True))


def _pool_values(pool: PoolSample) -> dict[str, object]:
    values = (
        pool.in_use, pool.cooling, pool.reserved, pool.available, pool.borrowed, pool.blocks, pool.unaffined_blocks,
    )  # fmt: skip
    return dict(zip(_POOL_COLUMNS, values, strict=True))


def _distribution(distribution: Distribution) -> dict[str, int]:
    return {"least": distribution.minimum, "median": distribution.median, "most": distribution.maximum}
