"""The metrics of the controllers. Of their modules no other imports ``prometheus_client``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from attrs import frozen
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netplug_cli.controllers.collection import CollectionCounts
from netplug_cli.runtime.controllers import Runtime

__all__ = ["ControllersMetrics", "Election"]


class Election(Protocol):
    """Says whether this process acts."""

    @property
    def is_leading(self) -> bool:
        """Whether it may write."""
        ...

    @property
    def problem(self) -> str:
        """Why that is not known; empty if it is."""
        ...


class ControllersMetrics:
    """What is counted and measured in one process. Threads may share it."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # twice as many lines, for when series began
        self._registry = registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector):
            collector(registry=registry)
        Info("netplug_controllers_build", "The release of the controllers.", registry=registry).info(
            {"version": version}
        )
        self._passes = Counter(
            "netplug_controllers_passes",
            "Passes of each controller. The outcome is done or failed.",
            ("controller", "outcome"),
            registry=registry,
        )
        self._seconds = Counter(
            "netplug_controllers_pass_seconds",
            "The time that passes of each controller have taken.",
            ("controller",),
            registry=registry,
        )

    def note_pass(self, name: str, is_failed: bool, seconds: float) -> None:  # noqa: FBT001  a ``NotePass``
        """Count a pass of a controller."""
        self._passes.labels(name, "failed" if is_failed else "done").inc()
        self._seconds.labels(name).inc(seconds)

    def watch(self, runtime: Runtime, election: Election, counts: Callable[[], CollectionCounts]) -> None:
        """Show how the controllers do, whenever the metrics are read."""
        self._registry.register(_Controllers(runtime=runtime, election=election, counts=counts))

    def render(self) -> bytes:
        """All metrics, as text for Prometheus."""
        return generate_latest(self._registry)


@frozen(kw_only=True, eq=False)
class _Controllers(Collector):
    runtime: Runtime
    election: Election
    counts: Callable[[], CollectionCounts]

    def collect(self) -> Iterator[Metric]:
        is_leading = float(self.election.is_leading)
        yield GaugeMetricFamily("netplug_controllers_leader", "1 if this process acts; otherwise 0.", is_leading)
        yield from self._healths()
        yield from self._collection()

    def _healths(self) -> Iterator[Metric]:
        label = ["controller"]
        problems = GaugeMetricFamily("netplug_controllers_problems", "What each controller cannot do.", labels=label)
        failures = GaugeMetricFamily(
            "netplug_controllers_failures_in_a_row",
            "Passes that have failed since the last one that did not.",
            labels=label,
        )
        success = GaugeMetricFamily(
            "netplug_controllers_last_success_age_seconds",
            "The time since the last pass that did not fail.",
            labels=label,
        )
        for health in self.runtime.healths:
            problems.add_metric([health.name], len(health.problems))
            failures.add_metric([health.name], health.failures)
            if health.succeeded_s is not None:
                success.add_metric([health.name], health.succeeded_s)
        yield from (problems, failures, success)

    def _collection(self) -> Iterator[Metric]:
        """Of the process that acts only: another one has not looked."""
        counts = self.counts()
        if not self.election.is_leading or not counts.ticks:
            return
        for name, text, value in (
            ("netplug_controllers_collection_ticks", "Looks for what is in use no more.", counts.ticks),
            ("netplug_controllers_collection_freed_addresses", "Leaked addresses that were freed.", counts.freed),
            ("netplug_controllers_collection_actions", "Everything that was freed, deleted or repaired.", counts.done),
            ("netplug_controllers_collection_failures", "Actions that failed.", counts.failed),
        ):
            yield CounterMetricFamily(name, text, value)
        for name, text, value in (
            ("netplug_controllers_collection_candidates", "Addresses that look leaked now.", counts.candidates),
            ("netplug_controllers_collection_undetermined", "Addresses that cannot be judged.", counts.undetermined),
            ("netplug_controllers_collection_unreadable", "Records that cannot be read now.", counts.unreadable),
            ("netplug_controllers_collection_idle", "1 while the datastore is locked.", int(bool(counts.idle))),
        ):
            yield GaugeMetricFamily(name, text, value)
