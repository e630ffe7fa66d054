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
from netplug_core.datastore.interface import Datastore
from netplug_core.datastore.loop import CALL_S, run
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.ipam.affinity import AFFINITY
from netplug_core.ipam.block import BLOCK
from netplug_core.ipam.collection import (
    Action,
    Failure,
    Findings,
    FreeHandle,
    GoneNode,
    Memory,
    Moment,
    Report,
    Settings,
    Standstill,
    Suspect,
    View,
    Waiting,
)
from netplug_core.ipam.confirmation import confirm, questions
from netplug_core.ipam.cooling import Cooling
from netplug_core.ipam.handle import HANDLE
from netplug_core.ipam.reclaim import COOLED, DELETING, FREEING, GIVING_UP, MENDING, Reclaimed, Rule
from netplug_core.ipam.survey import survey
from netplug_core.ipam.witness import Cluster, KnownPod, PodName, Statement, Witness
from netplug_core.log import Level, Log
from netplug_core.records import Get, Kind, List, Record
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import IPPOOL

__all__ = ["Collector", "look", "tick"]

A = TypeVar("A", bound=Action)
V = TypeVar("V")

PAGE = 1000
"""Records listed in one read."""

BATCH_S = 10.0
"""The longest that one commit, with all its attempts, may take."""


@frozen(kw_only=True)
class Collector:
    """What a tick acts through. ``chance`` jitters the waits between attempts."""

    store: Datastore
    witness: Witness
    clock: Clock
    chance: Callable[[], float]
    log: Log
    settings: Settings = field(factory=Settings)


def look(store: Datastore, cluster: Cluster | None, *, now_ns: int, deadline: Deadline) -> View:
    """A view of everything in the store, read page by page; for those who keep none up to date by a watch.

    Raises:
        Malformed: a record cannot be understood.
        Unavailable: the store does not answer.
    """
    snapshot = store.read((Get(CLUSTER_INFORMATION_KEY), Get(IPAM_CONFIGURATION_KEY)), deadline=deadline.capped(CALL_S))
    information = snapshot.find(CLUSTER_INFORMATION_KEY)
    is_locked = information is not None and information.value.is_locked
    return View(
        blocks=_all(store, BLOCK, deadline),
        handles=_all(store, HANDLE, deadline),
        affinities=_all(store, AFFINITY, deadline),
        pools=_all(store, IPPOOL, deadline),
        cooldown_ns=Cooling.of(snapshot, now_ns).cooldown_ns,
        cluster=cluster,
        standstill=Standstill.LOCKED if is_locked else None,
    )


def tick(collector: Collector, view: View, memory: Memory) -> tuple[Memory, Report]:
    """Do what is due, within the bounds of the settings; the memory for the next tick, and what was done and left.

    Nothing is done while the view is incomplete or the cluster locked; what was suspect before is then forgotten,
    since nobody saw it stay so.
    """
    if view.standstill is not None:
        collector.log(Level.INFO, "the collector stands still", why=view.standstill.value)
        return Memory(), Report(standstill=view.standstill)
    clock = collector.clock
    now = Moment(wall_ns=clock.now_ns(), elapsed_ms=round(clock.monotonic() * 1000))
    findings = survey(view, memory, collector.settings, now)
    shift = _Shift(collector=collector, deadline=Deadline.after(clock, collector.settings.longest_s))
    shift.free(findings.leaks)
    shift.perform(findings.cooled, COOLED)
    shift.perform(findings.claims, GIVING_UP)
    shift.perform(findings.blocks, DELETING)
    shift.perform(findings.handles, MENDING)
    shift.clear(findings.gone)
    report = shift.report(findings)
    _tell(collector.log, report)
    return shift.memory(findings.memory), report


@define(kw_only=True)
class _Shift:
    """The work of one tick, and what became of it so far."""

    collector: Collector
    deadline: Deadline
    done: list[Action] = field(default=Factory(list))
    passed_over: list[Action] = field(default=Factory(list))
    failures: list[Failure] = field(default=Factory(list))
    spared: list[FreeHandle] = field(default=Factory(list))
    cleared: list[Suspect] = field(default=Factory(list))
    postponed: int = 0

    def free(self, leaks: tuple[FreeHandle, ...]) -> None:
        """Free leaked addresses, each batch right after the witness was heard about it.

        Half of the time is the most that this takes: an orchestrator that does not answer must not keep what needs no
        witness from being done.
        """
        until = self.deadline.capped(self.deadline.remaining_s / 2)
        for batch in self._batches(leaks, until):
            confirmed = confirm(batch, self._hear(questions(batch), until))
            self.spared.extend(confirmed.spared)
            self.cleared.extend(confirmed.cleared)
            self.failures.extend(confirmed.undecided)
            self._attempt(confirmed.leaks, FREEING)

    def perform(self, actions: tuple[A, ...], rule: Rule[A]) -> None:
        """Carry out actions that need no witness."""
        for batch in self._batches(actions, self.deadline):
            self._attempt(batch, rule)

    def clear(self, nodes: tuple[GoneNode, ...]) -> None:
        """Give up the claims of gone nodes whose addresses are freed, once the witness says they are gone."""
        freed = {action.handle for action in self.done if isinstance(action, FreeHandle)}
        ready = tuple(node for node in nodes if node.claims and node.awaits <= freed)
        for (node,) in self._batches(ready, self.deadline, size=1):
            statement = self._hear((node.node,), self.deadline)
            silence = statement.silence((node.node,))
            if silence:
                self.failures.extend(Failure(action=claim, cause=silence) for claim in node.claims)
            elif node.node in statement.gone:
                self.perform(node.claims, GIVING_UP)

    def report(self, findings: Findings) -> Report:
        """What was done and left."""
        return Report(
            done=tuple(self.done),
            passed_over=tuple(self.passed_over),
            failures=tuple(self.failures),
            spared=tuple(self.spared),
            candidates=findings.candidates,
            unjudged=findings.unjudged,
            unreadable=findings.unreadable,
            waiting=tuple(Waiting(node=gone.node, addresses=gone.kept_by) for gone in findings.gone if gone.kept_by),
            postponed=self.postponed,
        )

    def memory(self, found: Memory) -> Memory:
        """What the next tick has to know: without what is settled, and with what failed."""
        freed = [suspect for action in self.done if isinstance(action, FreeHandle) for suspect in action.suspects]
        failures = dict(found.failures)
        for action in (*self.done, *self.passed_over, *self.spared):
            failures.pop(action.subject, None)
        for failure in self.failures:
            failures[failure.action.subject] = failures.get(failure.action.subject, 0) + 1
        return evolve(found.without((*self.cleared, *freed)), failures=tuple(failures.items()))

    def _batches(self, actions: tuple[V, ...], until: Deadline, size: int = 0) -> Iterator[tuple[V, ...]]:
        """As many actions as the bounds allow; the rest is counted and left."""
        due = actions[: self.collector.settings.most]
        size = size or self.collector.settings.batch
        done = 0
        while done < len(due) and not until.has_passed:
            yield due[done : done + size]
            done += size
        self.postponed += len(actions) - min(done, len(due))

    def _attempt(self, batch: tuple[A, ...], rule: Rule[A]) -> None:
        if not batch:
            return
        try:
            reclaimed = self._run(batch, rule)
        except NetplugError as error:
            if len(batch) == 1 or isinstance(error, Unavailable):
                self.failures.extend(Failure(action=action, cause=str(error)) for action in batch)
                return
            for action in batch:  # one of them is at fault, a malformed record perhaps; it must not stop the others
                self._attempt((action,), rule)
            return
        self.done.extend(reclaimed.done)
        self.passed_over.extend(reclaimed.passed_over)

    def _run(self, batch: tuple[A, ...], rule: Rule[A]) -> Reclaimed:
        clock = self.collector.clock
        pace = Pace(clock=clock, deadline=self.deadline.capped(BATCH_S), chance=self.collector.chance)
        decision = run(
            self.collector.store,
            rule.queries(batch),
            lambda snapshot: rule.decide(snapshot, batch, clock.now_ns()),
            pace=pace,
        )
        return cast("Reclaimed", decision.result)  # the loop has raised every result that is an error

    def _hear(self, asked: Iterable[PodName | str], until: Deadline) -> Statement:
        """What the witness says of some pods and nodes; a question that fails is unanswered, and nothing more."""
        witness = self.collector.witness
        pods: dict[PodName, KnownPod | None] = {}
        gone: set[str] = set()
        unanswered: dict[PodName | str, str] = {}
        for question in asked:
            try:
                if isinstance(question, PodName):
                    pods[question] = witness.find_pod(question, deadline=until.capped(CALL_S))
                elif not witness.has_node(question, deadline=until.capped(CALL_S)):
                    gone.add(question)
            except NetplugError as error:
                unanswered[question] = str(error)
        return Statement(pods=pods, gone=frozenset(gone), unanswered=unanswered)


def _all(store: Datastore, kind: Kind[V], deadline: Deadline) -> tuple[Record[V], ...]:
    found: list[Record[V]] = []
    after = ""
    while True:
        page = List(kind, limit=PAGE, after=after)
        snapshot = store.read((page,), deadline=deadline.capped(CALL_S))
        found.extend(snapshot.list(page))
        after = snapshot.after(page)
        if not after:
            return tuple(found)


# --- what an operator reads -------------------------------------------------------------------------------------------


def _tell(log: Log, report: Report) -> None:
    """A line for everything that was changed, one for each cause of failure, and one for the tick."""
    for action in report.done:
        log(Level.INFO, "collected", what=str(action))
    causes: dict[str, list[Action]] = {}
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
        passed_over=len(report.passed_over),
        failed=len(report.failures),
        spared=len(report.spared),
        candidates=len(report.candidates),
        unjudged=len(report.unjudged),
        postponed=report.postponed,
    )
