"""What the node process counts, and the file that publishes it.

The file is for the textfile collector of the Prometheus node exporter; over HTTP the same metrics are served.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from attrs import frozen
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, remove_file, replace_file
from netplug_cli.node.calls import AnswerCall, NodeProcessBusy, RefuseCall
from netplug_cli.node_status import PolicyStatus
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Clock, Deadline
from netplug_core.cni.dispatch import CNICommand
from netplug_core.cni.wire import WireReply, WireRequest
from netplug_core.log import Log
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Timing, Unfinished

if TYPE_CHECKING:
    from netplug_cli.node.policy import NodePolicy

__all__ = [
    "WRITE_EVERY_S", "CallCount", "MetricsFile", "NodeMetrics", "ReadValues",
]  # fmt: skip


# --- metrics ---------------------------------------------------------------------------------------------------------


ReadValues: TypeAlias = Callable[[], Mapping[tuple[str, ...], float]]
"""The present values of a metric, by the values of its labels."""

_COMMANDS = frozenset(command.value for command in CNICommand)
_OTHER = "other"  # a label's value comes from a fixed set, so that a client cannot make ever more series
_SUCCESS = "0"
_OK, _FAILED = "ok", "failed"  # the outcomes of a pass of a task
_BROKEN_OFF = "broken-off"  # the outcome of a call that ended without a reply

# From a commit in memory to a call that waits for the policy of its pod.
_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_KEPT_SERIES = 256  # the labels of each metric that were used last
_DATASTORE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@frozen(kw_only=True)
class CallCount:
    """How many calls were served, how many of these failed, and how many others were refused as busy."""

    served: int
    failed: int
    refused: int


class NodeMetrics:
    """What is counted and measured in one node process. Threads may share it."""

    def __init__(self, version: str) -> None:
        # Without: twice as many lines, for the times at which series began.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        Info("netplug_node_build", "The release of the node process.", registry=registry).info({"version": version})
        self._calls = Counter(
            "netplug_node_calls",
            "Calls that were served. The code is 0 for success, that of the CNI error otherwise.",
            ("program", "command", "code"),
            registry=registry,
        )
        self._call_seconds = Histogram(
            "netplug_node_call_duration_seconds",
            "The time that serving a call took, without its wait.",
            ("program", "command"),
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self._refused = Counter(
            "netplug_node_calls_refused",
            "Calls that were refused as busy, because as many waited as may.",
            ("program", "command"),
            registry=registry,
        )
        self._datastore_seconds = Histogram(
            "netplug_node_datastore_call_duration_seconds",
            "The time that a read or a commit of a datastore took. The outcome is ok, or the class of the error.",
            ("datastore", "location", "operation", "outcome"),
            buckets=_DATASTORE_BUCKETS,
            registry=registry,
        )
        self._task_seconds = Histogram(
            "netplug_node_task_duration_seconds",
            "The time that a pass of a task took. The outcome is ok or failed.",
            ("task", "outcome"),
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        # The same few series, call after call: the library makes a text of each label and takes a lock to find one.
        self._count_of = lru_cache(_KEPT_SERIES)(self._calls.labels)
        self._duration_of = lru_cache(_KEPT_SERIES)(self._call_seconds.labels)
        self._datastore_duration_of = lru_cache(_KEPT_SERIES)(self._datastore_seconds.labels)

    def add_values(self, name: str, text: str, labels: Sequence[str], read: ReadValues) -> None:
        """Add a metric whose values are read whenever the metrics are."""
        self._registry.register(_Values(name=name, text=text, labels=tuple(labels), read=read))

    def add_value(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a metric of one value, which is read whenever the metrics are."""
        self.add_values(name, text, (), lambda: {(): read()})

    def add_policy(self, policy: NodePolicy) -> None:
        """Add what is enforced on the node."""
        counts = policy.counts
        text = "Transactions of the table of policy. The result is applied or refused."
        self._add_counter("netplug_policy_transactions", text, ("phase", "result"), lambda: counts.transactions)
        text = "Changes of other programs to the table of policy, which were repaired."
        self._add_counter("netplug_policy_foreign_changes", text, ("program",), lambda: counts.foreign)
        text = "Workload endpoints of the node: those that policy is programmed for, and the others."
        self.add_values("netplug_policy_endpoints", text, ("state",), lambda: _endpoint_counts(policy.status()))
        add = self.add_value
        add("netplug_policy_sets", "Sets that rules name.", lambda: policy.status().sets)
        add("netplug_policy_members", "Members of these sets.", lambda: policy.status().members)
        text = "Policies and profiles, or parts of them, that the kernel refuses: they let nothing pass."
        add("netplug_policy_closed_parts", text, lambda: len(policy.status().closed))
        text = "Rules and settings of policies that are not enforced as they stand."
        add("netplug_policy_unconvertible_rules", text, lambda: policy.count_problems().unconvertible)
        text = "Addresses that several workloads have: what a policy allows one of them, all can do."
        add("netplug_policy_shared_addresses", text, lambda: policy.count_problems().shared_addresses)
        text = "Packets that workloads sent from addresses that are not their own, or before policy was programmed."
        drops: ReadValues = policy.count_source_drops
        self._add_counter("netplug_policy_source_guard_drops", text, (), drops)
        text = "How long ago the objects of policy were last known to be as they are."
        add("netplug_policy_snapshot_age_seconds", text, policy.find_age_s)

    def _add_counter(self, name: str, text: str, labels: Sequence[str], read: ReadValues) -> None:
        values = _Values(name=name, text=text, labels=tuple(labels), read=read, family=CounterMetricFamily)
        self._registry.register(values)

    def measured(self, answer: AnswerCall) -> AnswerCall:
        """What answers calls, and notes how each ended and how long it took."""

        def answer_measured(request: WireRequest, namespace: int | None) -> WireReply:
            began, code = time.monotonic(), _BROKEN_OFF
            try:
                reply = answer(request, namespace)
                code = _code_of(reply)
                return reply
            finally:
                command = _command_of(request)
                self._count_of(request.program, command, code).inc()
                self._duration_of(request.program, command).observe(time.monotonic() - began)

        return answer_measured

    def counted(self, refuse: RefuseCall) -> RefuseCall:
        """What answers the calls for which there is no room, and counts them."""

        def refuse_counted(request: WireRequest, error: NodeProcessBusy) -> WireReply:
            self._refused.labels(request.program, _command_of(request)).inc()
            return refuse(request, error)

        return refuse_counted

    def count_calls(self) -> CallCount:
        """The calls so far."""
        by_code = [(sample.labels["code"], int(sample.value)) for sample in _totals(self._calls)]
        return CallCount(
            served=sum(count for _code, count in by_code),
            failed=sum(count for code, count in by_code if code != _SUCCESS),
            refused=sum(int(sample.value) for sample in _totals(self._refused)),
        )

    def note_datastore_call(self, datastore: tuple[str, str], operation: str, outcome: str, seconds: float) -> None:
        """Note a read or a commit. ``datastore`` is its name and its location."""
        self._datastore_duration_of(*datastore, operation, outcome).observe(seconds)

    def note_task(self, name: str, is_failed: bool, seconds: float) -> None:  # noqa: FBT001  a ``NotePass``
        """Note a pass of a task."""
        self._task_seconds.labels(name, _FAILED if is_failed else _OK).observe(seconds)

    def expect_tasks(self, names: Iterable[str]) -> None:
        """Begin the series of these tasks at zero, so that a first failure is seen as one."""
        for name in names:
            for outcome in (_OK, _FAILED):
                self._task_seconds.labels(name, outcome)

    def render(self) -> bytes:
        """All metrics, as text for Prometheus."""
        return generate_latest(self._registry)


@frozen(kw_only=True, eq=False)
class _Values(Collector):
    name: str
    text: str
    labels: tuple[str, ...]
    read: ReadValues
    family: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily

    def collect(self) -> Iterator[Metric]:
        family = self.family(self.name, self.text, labels=self.labels)
        for labels, value in self.read().items():
            family.add_metric(labels, value)
        yield family


def _endpoint_counts(status: PolicyStatus) -> Mapping[tuple[str, ...], float]:
    return {("programmed",): status.programmed, ("other",): status.endpoints - status.programmed}


def _totals(counter: Counter) -> Iterator[Sample]:
    return (sample for metric in counter.collect() for sample in metric.samples)


def _command_of(request: WireRequest) -> str:
    command = request.environ.get("CNI_COMMAND", "")
    return command if command in _COMMANDS else _OTHER


def _code_of(reply: WireReply) -> str:
    """0, or the code of the error object that a reply has."""
    if reply.exit_status == 0:
        return _SUCCESS
    try:
        return str(int(json.loads(reply.stdout)["code"]))
    except (ValueError, TypeError, KeyError):
        return _OTHER


# --- metrics file ----------------------------------------------------------------------------------------------------


WRITE_EVERY_S = 15.0
"""The pause between two writes."""

_NOT_WRITTEN = "the metrics file cannot be written"


class MetricsFile:
    """A file that is replaced every few seconds, and removed at the end, since its values would look current."""

    def __init__(
        self, path: str, metrics: NodeMetrics, *, clock: Clock, log: Log, every_s: float = WRITE_EVERY_S
    ) -> None:
        self._path = path
        self._metrics = metrics
        controller: Controller[None, None] = Controller(
            name="metrics file",
            observe=lambda _deadline: None,
            plan=lambda _state: Plan(actions=(None,), look_again_s=every_s),
            act=self._write,
            failure=_NOT_WRITTEN,
            timing=Timing(backoff=Backoff(first_s=every_s, longest_s=every_s)),
            recovered="the metrics file is written again",
            fields=(("path", path),),
        )
        self._runtime = Runtime((controller,), clock=clock, log=log)

    def start(self) -> None:
        """Begin to write."""
        self._runtime.start()

    def stop(self) -> None:
        """Write no more, and remove the file."""
        self._runtime.stop()
        with suppress(OSError):  # there may be none, or its folder cannot be written
            remove_file(self._path)

    def _write(self, _action: None, _deadline: Deadline) -> None:
        try:
            replace_file(self._path, self._metrics.render(), OPEN_FILE_MODE)
        except OSError as error:
            # The error names a file beside it, which the line of the log need not.
            cause = error.strerror or str(error)
            problem = Problem(message=_NOT_WRITTEN, cause=cause, fields=(("path", self._path),))
            raise Unfinished((problem,)) from error
