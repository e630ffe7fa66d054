"""A cluster in memory and its operator, for tests of what is done in which situation."""

from __future__ import annotations

from attrs import evolve

from netplug_core.operator.state import OperatorSettings
from netplug_core.resources.ippool import IPPool
from tests.harness.operator_cluster import VERSION, MemoryCluster, MemoryPools, make_loop, settle

__all__ = ["Scene"]


class Scene:
    """A cluster and its operator."""

    def __init__(self, *pools: IPPool, **settings: object) -> None:
        self.cluster = MemoryCluster()
        self.pools = MemoryPools(self.cluster, pools)
        self.settings = evolve(OperatorSettings(version=VERSION), **settings)  # type: ignore[arg-type]

    @classmethod
    def ready(cls, spec: object) -> Scene:
        """A cluster whose Installation has that spec, and whose nodes have their pods."""
        made = cls()
        made.cluster.install(spec)
        made.settle()
        made.cluster.roll_out()
        made.settle()
        return made

    def settle(self) -> list[str]:
        """The writes until nothing is left to do."""
        self.cluster.writes.clear()
        settle(make_loop(self.cluster, self.pools, settings=self.settings))
        return list(self.cluster.writes)

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        return self.cluster.conditions()[kind]
