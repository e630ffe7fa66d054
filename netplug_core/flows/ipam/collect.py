"""One tick of the collector: look at a view, hear the witness, and give back what nobody uses any more.

Whoever owns the loop (a controller) calls ``tick`` about twice in a grace period and hands each tick the memory of
the one before. Work goes in small commits, each for itself: one that fails is reported, tried again by the next tick,
and stops no other. Correctness never depends on who else runs: every write is conditioned on what was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast

from attrs import Factory, define, evolve, field, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.readiness import READINESS_GATE
from netplug_core.ipam.allocation.cooldown import Cooldown
from netplug_core.ipam.gc.confirm import confirm, lookups_needed
from netplug_core.ipam.gc.detect import detect
from netplug_core.ipam.gc.lookup import LiveLookup, LookupResult
from netplug_core.ipam.gc.model import (
    Candidate,
    CollectionReport,
    CollectorSettings,
    FailedAction,
    FreeHandle,
    GCAction,
    GoneNode,
    IdleReason,
    ScanHistory,
    ScanResult,
    ScanTime,
    StoreView,
    WaitingNode,
)
from netplug_core.ipam.gc.reclaim import (
    DELETE_BLOCKS,
    EXPIRE_COOLDOWN,
    FREE_HANDLES,
    RELINQUISH_AFFINITIES,
    REPAIR_HANDLES,
    Reclaimer,
    ReclaimResult,
)
from netplug_core.ipam.model.affinity import AFFINITY
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.log import Level, Log
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodName
from netplug_core.records import Get
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import IPPOOL

__all__ = ["Collector", "read_view", "tick"]

A = TypeVar("A", bound=GCAction)
V = TypeVar("V")

BATCH_S = 10.0
"""The longest that one commit, with all its attempts, may take."""


@frozen(kw_only=True)
class Collector:
    """What a tick acts through. ``chance`` jitters the waits between attempts."""

    store: Datastore
    witness: LiveLookup
    clock: Clock
    chance: Callable[[], float]
    log: Log
    settings: CollectorSettings = field(factory=CollectorSettings)


def read_view(store: Datastore, cluster: ClusterView | None, *, now_ns: int, deadline: Deadline) -> StoreView:
    """A view of everything in the store, read page by page; for those who keep none up to date by a watch.

    Raises:
        Malformed: a record cannot be understood.
        Unavailable: the store does not answer.
    """
    snapshot = store.read(
        (Get(CLUSTER_INFORMATION_KEY), Get(IPAM_CONFIGURATION_KEY)), deadline=deadline.capped(CALL_TIMEOUT_S)
    )
    information = snapshot.find(CLUSTER_INFORMATION_KEY)
    is_locked = information is not None and information.value.is_locked
    return StoreView(
        blocks=tuple(read_pages(store, BLOCK, deadline=deadline)),
        handles=tuple(read_pages(store, HANDLE, deadline=deadline)),
        affinities=tuple(read_pages(store, AFFINITY, deadline=deadline)),
        pools=tuple(read_pages(store, IPPOOL, deadline=deadline)),
        cooldown_ns=Cooldown.of(snapshot, now_ns).cooldown_ns,
        cluster=cluster,
        idle=IdleReason.LOCKED if is_locked else None,
    )


def tick(collector: Collector, view: StoreView, memory: ScanHistory) -> tuple[ScanHistory, CollectionReport]:
    """Do what is due, within the bounds of the settings; the memory for the next tick, and what was done and left.

    Nothing is done while the view is incomplete or the cluster locked; what was suspect before is then forgotten,
    since nobody saw it stay so.
    """
    if view.idle is not None:
        collector.log(Level.INFO, "the collector stands still", why=view.idle.value)
        return ScanHistory(), CollectionReport(idle=view.idle)
    clock = collector.clock
    now = ScanTime(wall_ns=clock.now_ns(), elapsed_ms=round(clock.monotonic() * 1000))
    findings = detect(view, memory, collector.settings, now)
    shift = _Tick(collector=collector, deadline=Deadline.after(clock, collector.settings.tick_s))
    shift.free(findings.leaks)
    shift.perform(findings.cooldowns, EXPIRE_COOLDOWN)
    shift.perform(findings.affinities, RELINQUISH_AFFINITIES)
    shift.perform(findings.blocks, DELETE_BLOCKS)
    shift.perform(findings.handles, REPAIR_HANDLES)
    shift.relinquish_gone_nodes(findings.gone)
    report = shift.report(findings)
    _log_report(collector.log, report)
    return shift.memory(findings.history), report


@define(kw_only=True)
class _Tick:
    """The work of one tick, and what became of it so far."""

    collector: Collector
    deadline: Deadline
    done: list[GCAction] = field(default=Factory(list))
    passed_over: list[GCAction] = field(default=Factory(list))
    failures: list[FailedAction] = field(default=Factory(list))
    spared: list[FreeHandle] = field(default=Factory(list))
    cleared: list[Candidate] = field(default=Factory(list))
    postponed: int = 0

    def free(self, leaks: tuple[FreeHandle, ...]) -> None:
        """Free leaked addresses, each batch right after the witness was heard about it.

        Half of the time is the most that this takes: an orchestrator that does not answer must not keep what needs no
        witness from being done.
        """
        until = self.deadline.capped(self.deadline.remaining_s / 2)
        for batch in self._batches(leaks, until):
            confirmed = confirm(batch, self._lookup(lookups_needed(batch), until))
            self.spared.extend(confirmed.in_use)
            self.cleared.extend(confirmed.cleared)
            self.failures.extend(confirmed.undetermined)
            self._attempt(confirmed.leaks, FREE_HANDLES)

    def perform(self, actions: tuple[A, ...], rule: Reclaimer[A]) -> None:
        """Carry out actions that need no witness."""
        for batch in self._batches(actions, self.deadline):
            self._attempt(batch, rule)

    def relinquish_gone_nodes(self, nodes: tuple[GoneNode, ...]) -> None:
        """Give up the claims of gone nodes whose addresses are freed, once the witness says they are gone."""
        freed = {action.handle for action in self.done if isinstance(action, FreeHandle)}
        ready = tuple(node for node in nodes if node.affinities and node.awaits <= freed)
        for (node,) in self._batches(ready, self.deadline, size=1):
            statement = self._lookup((node.node,), self.deadline)
            silence = statement.unanswered_text((node.node,))
            if silence:
                self.failures.extend(FailedAction(action=claim, cause=silence) for claim in node.affinities)
            elif node.node in statement.gone:
                self.perform(node.affinities, RELINQUISH_AFFINITIES)

    def report(self, findings: ScanResult) -> CollectionReport:
        """What was done and left."""
        return CollectionReport(
            done=tuple(self.done),
            skipped=tuple(self.passed_over),
            failures=tuple(self.failures),
            in_use=tuple(self.spared),
            candidates=findings.candidates,
            undetermined=findings.undetermined,
            unreadable=findings.unreadable,
            waiting=tuple(
                WaitingNode(node=gone.node, addresses=gone.kept_by) for gone in findings.gone if gone.kept_by
            ),
            postponed=self.postponed,
        )

    def memory(self, found: ScanHistory) -> ScanHistory:
        """What the next tick has to know: without what is settled, and with what failed."""
        freed = [suspect for action in self.done if isinstance(action, FreeHandle) for suspect in action.candidates]
        failures = dict(found.failures)
        for action in (*self.done, *self.passed_over, *self.spared):
            failures.pop(action.subject, None)
        for failure in self.failures:
            failures[failure.action.subject] = failures.get(failure.action.subject, 0) + 1
        return evolve(found.without((*self.cleared, *freed)), failures=tuple(failures.items()))

    def _batches(self, actions: tuple[V, ...], until: Deadline, size: int = 0) -> Iterator[tuple[V, ...]]:
        """As many actions as the bounds allow; the rest is counted and left."""
        due = actions[: self.collector.settings.max_actions]
        size = size or self.collector.settings.batch_size
        done = 0
        while done < len(due) and not until.has_passed:
            yield due[done : done + size]
            done += size
        self.postponed += len(actions) - min(done, len(due))

    def _attempt(self, batch: tuple[A, ...], rule: Reclaimer[A]) -> None:
        if not batch:
            return
        try:
            reclaimed = self._run(batch, rule)
        except NetplugError as error:
            if len(batch) == 1 or isinstance(error, Unavailable):
                self.failures.extend(FailedAction(action=action, cause=str(error)) for action in batch)
                return
            for action in batch:  # one of them is at fault, a malformed record perhaps; it must not stop the others
                self._attempt((action,), rule)
            return
        self.done.extend(reclaimed.done)
        self.passed_over.extend(reclaimed.skipped)

    def _run(self, batch: tuple[A, ...], rule: Reclaimer[A]) -> ReclaimResult:
        clock = self.collector.clock
        pace = Pace(clock=clock, deadline=self.deadline.capped(BATCH_S), chance=self.collector.chance)
        decision = Transaction(self.collector.store, pace, READINESS_GATE).run(
            rule.queries(batch), lambda snapshot: rule.decide(snapshot, batch, clock.now_ns())
        )
        return cast("ReclaimResult", decision.result)  # the loop has raised every result that is an error

    def _lookup(self, asked: Iterable[PodName | str], until: Deadline) -> LookupResult:
        """What the witness says of some pods and nodes; a question that fails is unanswered, and nothing more."""
        witness = self.collector.witness
        pods: dict[PodName, PodFacts | None] = {}
        gone: set[str] = set()
        unanswered: dict[PodName | str, str] = {}
        for question in asked:
            try:
                if isinstance(question, PodName):
                    pods[question] = witness.find_pod(
                        question.namespace, question.name, deadline=until.capped(CALL_TIMEOUT_S)
                    )
                elif not witness.has_node(question, deadline=until.capped(CALL_TIMEOUT_S)):
                    gone.add(question)
            except NetplugError as error:
                unanswered[question] = str(error)
        return LookupResult(pods=pods, gone=frozenset(gone), unanswered=unanswered)


# --- what an operator reads -------------------------------------------------------------------------------------------


def _log_report(log: Log, report: CollectionReport) -> None:
    """A line for everything that was changed, one for each cause of failure, and one for the tick."""
    for action in report.done:
        log(Level.INFO, "collected", what=str(action))
    causes: dict[str, list[GCAction]] = {}
    for failure in report.failures:
        causes.setdefault(failure.cause, []).append(failure.action)
    for cause, actions in causes.items():
        log(Level.WARNING, "could not be collected", cause=cause, count=len(actions), first=str(actions[0]))
    for malformed in report.unreadable:
        log(Level.WARNING, "left alone", cause=str(malformed))
    for waiting in report.waiting:
        log(Level.INFO, str(waiting))
    log(
        Level.DEBUG if report.is_quiet else Level.INFO,
        "collector tick",
        freed=len(report.freed),
        done=len(report.done),
        passed_over=len(report.skipped),
        failed=len(report.failures),
        spared=len(report.in_use),
        candidates=len(report.candidates),
        unjudged=len(report.undetermined),
        postponed=report.postponed,
    )
