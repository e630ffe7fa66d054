"""What a simulation found, for programs: one JSON object, or a CSV line for each step; the same in every run."""

from __future__ import annotations

import csv
import io

from netplug_core.flows.study import Findings, PoolSample, Sample, Spread, Study

__all__ = ["findings_csv", "findings_mapping"]

_STEP = (
    "seconds", "pods", "waiting", "held", "borrowed", "blocks", "unowned", "blocksPerNodeLeast",
    "blocksPerNodeMedian", "blocksPerNodeMost", "started", "ended", "refused", "reads", "commits",
)  # fmt: skip
_POOL = ("inUse", "cooling", "reserved", "free", "borrowed", "blocks", "unowned")


def findings_mapping(study: Study, findings: Findings) -> dict[str, object]:
    """The findings, and what was asked, with JSON's types."""
    first = findings.first_refusal
    return {
        "study": _study(study),
        "holds": first is None,
        "firstRefusal": first
        and {"seconds": first.at_s, "node": first.node, "identifier": first.identifier, "text": first.text},
        "firstLoanSeconds": findings.first_loan_s,
        "refusals": dict(findings.refusals),
        "reads": findings.calls.reads,
        "commits": findings.calls.commits,
        "pools": [
            {
                "name": pool.name,
                "cidr": str(pool.prefix),
                "total": pool.prefix.size,
                **_pool(pool),
                "mostBlocks": pool.most_blocks,
                "blocksPerNode": _spread(pool.blocks_per_node),
                "fullSeconds": findings.full_s(pool.name),
            }
            for pool in findings.last.pools
        ],
        "steps": [
            {
                **_step(sample),
                "refusals": dict(sample.refusals),
                "pools": {pool.name: _pool(pool) for pool in sample.pools},
            }
            for sample in findings.samples
        ],
    }


def findings_csv(findings: Findings) -> str:
    """A line for each step, under a line of names; the columns of a pool begin with its name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_STEP, *(f"{pool.name}.{name}" for pool in findings.last.pools for name in _POOL)))
    for sample in findings.samples:
        pools = (value for pool in sample.pools for value in _pool(pool).values())
        writer.writerow((*_step(sample).values(), *pools))
    return text.getvalue()


def _study(study: Study) -> dict[str, object]:
    workload = study.workload
    return {
        "nodes": len(study.nodes),
        "podsPerNode": workload.pods_per_node,
        "mostPodsPerNode": workload.places_per_node,
        "podsPerSecond": workload.arrivals_per_s,
        "churn": workload.churn,
        "lifetimeSeconds": workload.lifetime_s,
        "placement": workload.placement.value,
        "process": study.process.value,
        "families": [family.value for family in workload.families],
        "steps": study.steps,
        "stepSeconds": study.step_s,
        "seed": study.seed,
    }


def _step(sample: Sample) -> dict[str, object]:
    spread = sample.blocks_per_node
    values = (
        sample.at_s, sample.running, sample.waiting, sample.held, sample.borrowed, sample.blocks, sample.unowned,
        spread.least, spread.median, spread.most, sample.started, sample.ended, sample.refused, sample.calls.reads,
        sample.calls.commits,
    )  # fmt: skip
    return dict(zip(_STEP, values, strict=True))


def _pool(pool: PoolSample) -> dict[str, object]:
    values = (
        pool.in_use, pool.cooling, pool.reserved, pool.available, pool.borrowed, pool.blocks, pool.unowned,
    )  # fmt: skip
    return dict(zip(_POOL, values, strict=True))


def _spread(spread: Spread) -> dict[str, int]:
    return {"least": spread.least, "median": spread.median, "most": spread.most}
