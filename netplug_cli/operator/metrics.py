"""The metrics of the operator. Of its modules no other imports ``prometheus_client``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, assert_never

from attrs import frozen
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netplug_core.decoding.tables import find_text
from netplug_core.operator.state import (
    Action,
    ApplyObject,
    ChangePool,
    CompleteInstallation,
    DeleteObject,
    LockDatastore,
    SetFinalizer,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.installation import INSTALLATION_KIND

__all__ = ["OperatorMetrics"]

# From a look that finds nothing to do to the deletion of a pool with its blocks.
_LOOK_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class OperatorMetrics:
    """What is counted and measured in one process. Threads may share it."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # twice as many lines, for when series began
        self._registry = registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector):
            collector(registry=registry)
        Info("netplug_operator_build", "The release of the operator.", registry=registry).info({"version": version})
        self._looks = Counter(
            "netplug_operator_reconciles",
            "Looks at the cluster with what they led to. The outcome is done, failed, or unreadable.",
            ("outcome",),
            registry=registry,
        )
        self._look_seconds = Histogram(
            "netplug_operator_reconcile_duration_seconds",
            "The time that a look and its writes took.",
            buckets=_LOOK_BUCKETS,
            registry=registry,
        )
        self._writes = Counter(
            "netplug_operator_writes",
            "Writes that were tried, by the verb and the kind of the object. The outcome is done or failed.",
            ("verb", "kind", "outcome"),
            registry=registry,
        )

    def note_look(self, outcome: str, seconds: float) -> None:
        """Note a look at the cluster."""
        self._looks.labels(outcome).inc()
        self._look_seconds.observe(seconds)

    def note_action(self, action: Action, *, has_failed: bool) -> None:
        """Note a write that a plan asked for."""
        verb, kind = _write_of(action)
        self.note_write(verb, kind, has_failed=has_failed)

    def note_write(self, verb: str, kind: str, *, has_failed: bool) -> None:
        """Note another write, such as that of a status."""
        self._writes.labels(verb, kind, "failed" if has_failed else "done").inc()

    def add_values(self, name: str, text: str, label: str, read: Callable[[], dict[str, float]]) -> None:
        """Add a metric whose values, by the value of its label, are read whenever the metrics are."""
        self._registry.register(_Values(name=name, text=text, label=label, read=read))

    def add_value(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a metric of one value."""
        self.add_values(name, text, "", lambda: {"": read()})

    def render(self) -> bytes:
        """All metrics, as text for Prometheus."""
        return generate_latest(self._registry)


@frozen(kw_only=True, eq=False)
class _Values(Collector):
    name: str
    text: str
    label: str
    read: Callable[[], dict[str, float]]

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self.name, self.text, labels=[self.label] if self.label else [])
        for label, value in self.read().items():
            family.add_metric([label] if self.label else [], value)
        yield family


def _write_of(action: Action) -> tuple[str, str]:
    """The verb and the kind of an action."""
    match action:
        case ApplyObject(wanted):
            return "apply", find_text(wanted, "kind")
        case DeleteObject(ref, _):
            return "delete", ref.kind
        case ChangePool(step):
            return step.action.value, "IPPool"
        case CompleteInstallation():
            return "replace", INSTALLATION_KIND
        case SetFinalizer():
            return "apply", INSTALLATION_KIND
        case LockDatastore():
            return "update", CLUSTER_INFORMATION.name
        case _:
            assert_never(action)
