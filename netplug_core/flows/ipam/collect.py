"""One tick of the garbage collector: detect what is abandoned in a view, confirm it, and reclaim it.

A controller owns the loop. It calls ``tick`` about twice in a grace period, each time with the history that the tick
before returned. The work is done in small commits: one that fails is reported, tried again by the next tick, and does
not stop the others. Every write is conditioned on what was read, so several collectors may run at the same time.

Pods and nodes are as the datastore shows them, here and in the report of ``netplugctl``. Only a datastore whose
endpoints are views of pods shows them. On another one it is not known which pods exist. Where
the orchestrator's nodes and the records are in two datastores, a node may have one name there and another one here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore, EndpointStorage
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.ipam.allocation.context import batches
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.gc.candidates import (
    Candidate,
    CollectionReport,
    CollectorSettings,
    FailedAction,
    FreeHandle,
    GCAction,
    GoneNode,
    IdleReason,
    LiveLookup,
    LookupResult,
    RecordRef,
    ScanHistory,
    ScanResult,
    ScanTime,
    StoreView,
    WaitingNode,
)
from netplug_core.ipam.gc.detect import HandleCounts, detect
from netplug_core.ipam.gc.reclaim import (
    DELETE_BLOCKS,
    EXPIRE_COOLDOWN,
    FREE_HANDLES,
    RELINQUISH_AFFINITIES,
    REPAIR_HANDLES,
    Reclaimer,
    ReclaimResult,
    confirm,
    lookups_needed,
    parts_to_free,
)
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Handle
from netplug_core.ipam.reporting.usage import AddressUsers
from netplug_core.log import Level, Log
from netplug_core.names import STORED_ANNOTATIONS
from netplug_core.orchestrator.model import POD, ClusterView, PodFacts, PodName
from netplug_core.records import Get, Malformed, Record
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL
from netplug_core.resources.node import NODE, node_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = [
    "Collector", "DatastoreLookup", "TickMode", "find_addresses", "of_addresses", "read_cluster", "read_pods",
    "read_users", "read_view", "tick",
]  # fmt: skip


A = TypeVar("A", bound=GCAction)
V = TypeVar("V")

COMMIT_TIMEOUT_S = 10.0
"""The longest that one commit may take, including repetitions."""


class TickMode(enum.Enum):
    """Whether a tick acts, or only looks: then what it would do counts as done, and nothing is written or logged."""

    ACT = "act"
    LOOK = "look"


@frozen(kw_only=True)
class Collector:
    """What a tick acts through. ``chance`` jitters the waits between attempts."""

    store: Datastore
    live_lookup: LiveLookup
    clock: Clock
    chance: Callable[[], float]
    log: Log
    settings: CollectorSettings = field(factory=CollectorSettings)
    mode: TickMode = TickMode.ACT


def read_view(
    store: Datastore,
    cluster: ClusterView | None,
    *,
    now_ns: int,
    deadline: Deadline,
    known_handles: Sequence[Record[Handle]] | None = None,
) -> StoreView:
    """A view of everything in the store, read page by page. A process with watches assembles its view from them.

    Of the handles it has those that differ from the blocks: there is one for each workload. ``known_handles`` are
    those of a view of shortly before, which are looked at in place of all of them. Records that cannot be decoded are
    in ``unreadable``. An action that needs one of them reads it again, and fails.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read((READINESS_GATE.query, Get(IPAM_CONFIGURATION_KEY)), deadline=deadline.capped(CALL_TIMEOUT_S))
    is_locked = isinstance(READINESS_GATE.check(snapshot), NetplugError)
    unreadable: list[Malformed] = []
    read_all = partial(read_pages, store, deadline=deadline, malformed=unreadable)
    blocks = tuple(read_all(BLOCK))
    counts = HandleCounts.of(record.value for record in blocks)
    handles = read_all(HANDLE) if known_handles is None else known_handles
    return StoreView(
        blocks=blocks,
        handles=tuple(record for record in handles if not counts.is_right(record)),
        affinities=tuple(read_all(AFFINITY)),
        pools=tuple(read_all(IPPOOL)),
        unreadable=tuple(unreadable),
        cooldown_ns=Cooldown.of(snapshot, now_ns).cooldown_ns,
        cluster=cluster,
        idle=IdleReason.LOCKED if is_locked else None,
    )


def tick(collector: Collector, view: StoreView, history: ScanHistory) -> tuple[ScanHistory, CollectionReport]:
    """Do what is due, within the limits of the settings. Returns the history for the next tick, and a report.

    While the view is incomplete or the cluster is locked, nothing is done, and the history is dropped: it is not known
    whether the candidates look abandoned all the time.
    """
    if view.idle is not None:
        collector.log(Level.INFO, "the collector is idle", why=view.idle.value)
        return ScanHistory(), CollectionReport(idle=view.idle)
    clock = collector.clock
    now = ScanTime(wall_ns=clock.now_ns(), elapsed_ms=round(clock.monotonic() * 1000))
    found = detect(view, history, collector.settings, now)
    work = _Tick(collector=collector, now=now, deadline=Deadline.after(clock, collector.settings.tick_s))
    work.free(found.leaks)
    work.reclaim(found.cooldowns, EXPIRE_COOLDOWN)
    work.reclaim(found.affinities, RELINQUISH_AFFINITIES)
    work.reclaim(found.blocks, DELETE_BLOCKS)
    work.reclaim(found.handles, REPAIR_HANDLES)
    work.relinquish_gone_nodes(_emptied(found.gone, view, collector.mode))
    report = work.report(found)
    if collector.mode is TickMode.ACT:
        _log_report(collector.log, report)
    return work.history(found.history), report


def _emptied(nodes: tuple[GoneNode, ...], view: StoreView, mode: TickMode) -> tuple[GoneNode, ...]:
    """The gone nodes to look at. With a cooldown, what a look would free now does not empty a block yet."""
    if mode is TickMode.ACT or not view.cooldown_ns:
        return nodes
    return tuple(node for node in nodes if not node.awaits)


@define(kw_only=True)
class _Tick:
    """The work of one tick, and its results so far."""

    collector: Collector
    now: ScanTime
    deadline: Deadline
    done: list[GCAction] = field(default=Factory(list))
    skipped: list[GCAction] = field(default=Factory(list))
    failures: list[FailedAction] = field(default=Factory(list))
    in_use: list[FreeHandle] = field(default=Factory(list))
    cleared: list[Candidate] = field(default=Factory(list))
    postponed: int = 0

    def free(self, leaks: tuple[FreeHandle, ...]) -> None:
        """Free leaked addresses, each batch right after the live lookups that confirm it.

        This takes at most half of the time, so that an orchestrator that does not answer does not stop the work that
        needs no lookup.
        """
        until = self.deadline.capped(self.deadline.remaining_s / 2)
        for batch in self._batches(leaks, until):
            confirmed = confirm(batch, _look_up(self.collector.live_lookup, lookups_needed(batch), until))
            self.in_use.extend(confirmed.in_use)
            self.cleared.extend(confirmed.cleared)
            self.failures.extend(confirmed.undetermined)
            for part in parts_to_free(confirmed.leaks):
                self._attempt(part, FREE_HANDLES)

    def reclaim(self, actions: tuple[A, ...], rule: Reclaimer[A]) -> None:
        """Carry out actions that need no live lookup."""
        for batch in self._batches(actions, self.deadline):
            self._attempt(batch, rule)

    def relinquish_gone_nodes(self, nodes: tuple[GoneNode, ...]) -> None:
        """Relinquish the affinities of gone nodes whose addresses are freed, if a live lookup confirms it."""
        freed = {action.handle for action in self.done if isinstance(action, FreeHandle)}
        ready = tuple(gone for gone in nodes if gone.affinities and gone.awaits <= freed)
        for (gone,) in self._batches(ready, self.deadline, size=1):
            lookups = _look_up(self.collector.live_lookup, (gone.node,), self.deadline)
            unanswered = lookups.unanswered_text((gone.node,))
            if unanswered:
                self.failures.extend(FailedAction(action=action, cause=unanswered) for action in gone.affinities)
            elif gone.node in lookups.gone:
                self.reclaim(gone.affinities, RELINQUISH_AFFINITIES)

    def report(self, found: ScanResult) -> CollectionReport:
        """What was done, and what was not."""
        return CollectionReport(
            done=tuple(self.done),
            skipped=tuple(self.skipped),
            failures=tuple(self.failures),
            in_use=tuple(self.in_use),
            candidates=found.candidates,
            undetermined=found.undetermined,
            unreadable=found.unreadable,
            waiting=tuple(WaitingNode(node=gone.node, addresses=gone.kept_by) for gone in found.gone if gone.kept_by),
            pending=tuple(self._pending(found.history)),
            postponed=self.postponed,
        )

    def _pending(self, history: ScanHistory) -> Iterator[RecordRef[object]]:
        grace_ms = self.collector.settings.grace_s * 1000
        for candidate, since_ms in history.since:
            if isinstance(candidate, RecordRef) and self.now.elapsed_ms - since_ms < grace_ms:
                yield candidate

    def history(self, found: ScanHistory) -> ScanHistory:
        """The history for the next tick: without what is done, and with the new failures."""
        freed = [candidate for action in self.done if isinstance(action, FreeHandle) for candidate in action.candidates]
        failures = dict(found.failures)
        for action in (*self.done, *self.skipped, *self.in_use):
            failures.pop(action.subject, None)
        for failure in self.failures:
            failures[failure.action.subject] = failures.get(failure.action.subject, 0) + 1
        return evolve(found.without((*self.cleared, *freed)), failures=tuple(failures.items()))

    def _batches(self, actions: tuple[V, ...], until: Deadline, size: int = 0) -> Iterator[Sequence[V]]:
        """As many actions as the limits allow. The others are counted as postponed."""
        settings = self.collector.settings
        started = 0
        for batch in batches(actions[: settings.max_actions], size or settings.batch_size):
            if until.has_passed:
                break
            started += len(batch)
            yield batch
        self.postponed += len(actions) - started

    def _attempt(self, batch: Sequence[A], rule: Reclaimer[A]) -> None:
        if self.collector.mode is TickMode.LOOK:
            self.done.extend(batch)
            return
        try:
            result = self._commit(tuple(batch), rule)
        except NetplugError as error:
            if len(batch) == 1 or isinstance(error, Unavailable):
                self.failures.extend(FailedAction(action=action, cause=str(error)) for action in batch)
                return
            for action in batch:  # one of them fails, because of a malformed record perhaps; the others must not
                self._attempt((action,), rule)
            return
        self.done.extend(result.done)
        self.skipped.extend(result.skipped)

    def _commit(self, batch: tuple[A, ...], rule: Reclaimer[A]) -> ReclaimResult:
        clock = self.collector.clock
        pace = Pace(clock=clock, deadline=self.deadline.capped(COMMIT_TIMEOUT_S), chance=self.collector.chance)
        decision = Transaction(self.collector.store, pace, READINESS_GATE).run(
            rule.queries(batch), lambda snapshot: rule.decide(snapshot, batch, clock.now_ns())
        )
        return decision.get_result()


def _look_up(live_lookup: LiveLookup, subjects: Iterable[PodName | str], until: Deadline) -> LookupResult:
    """Look up some pods and nodes (by name). A lookup that fails is unanswered; the others go on."""
    pods: dict[PodName, PodFacts | None] = {}
    gone: set[str] = set()
    unanswered: dict[PodName | str, str] = {}
    for subject in subjects:
        deadline = until.capped(CALL_TIMEOUT_S)
        try:
            if isinstance(subject, PodName):
                pods[subject] = live_lookup.find_pod(subject.namespace, subject.name, deadline=deadline)
            elif not live_lookup.has_node(subject, deadline=deadline):
                gone.add(subject)
        except NetplugError as error:
            unanswered[subject] = str(error)
    return LookupResult(pods=pods, gone=frozenset(gone), unanswered=unanswered)


def _log_report(log: Log, report: CollectionReport) -> None:
    """One line for each action that was done, one for each cause of failure, and one for the tick."""
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
        skipped=len(report.skipped),
        failed=len(report.failures),
        in_use=len(report.in_use),
        candidates=len(report.candidates),
        undetermined=len(report.undetermined),
        postponed=report.postponed,
    )


# --- what the datastore shows of pods and nodes ----------------------------------------------------------------------

_ADDRESS_ANNOTATIONS = STORED_ANNOTATIONS[:2]


@frozen
class DatastoreLookup:
    """A :class:`~netplug_core.ipam.gc.candidates.LiveLookup` at a datastore that shows pods and nodes.

    ``records`` is the one with the Nodes, if that is another one.
    """

    store: Datastore
    records: Datastore | None = None

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod as it is now; None if there is none."""
        wanted = Get(POD.key(namespace, name))
        found = self.store.read((wanted,), deadline=deadline).find(wanted)
        if found is None:
            return None
        pod = _with_written_addresses(found.value)
        return pod if self.records is None else _without_node(pod)

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        """Whether there is a node of that name, or one is registered."""
        wanted = Get(node_key(name))
        stores = (self.store,) if self.records is None else (self.records, self.store)
        return any(store.read((wanted,), deadline=deadline).find(wanted) is not None for store in stores)


def read_cluster(
    store: Datastore,
    records: Datastore | None = None,
    *,
    deadline: Deadline,
    known: Iterable[PodFacts] | None = None,
) -> ClusterView | None:
    """All pods and nodes; None if the datastore does not show them. ``records`` has the Nodes, if it is another one.

    ``known`` are all pods, if a watch keeps them; as ``of_addresses`` has them.

    Raises:
        Malformed: a pod or a node cannot be understood, so it is not known which addresses it uses.
        Unavailable: the store does not answer.
    """
    if store.description.endpoints is not EndpointStorage.PODS:
        return None
    found = map(of_addresses, _iter_pods(store, deadline)) if known is None else known
    pods = tuple(found if records is None else map(_without_node, found))
    nodes = frozenset(record.key.name for record in read_pages(store, NODE, deadline=deadline))
    if records is None:
        return ClusterView(pods=pods, nodes=nodes)
    registered = frozenset(record.key.name for record in read_pages(records, NODE, deadline=deadline))
    return ClusterView(pods=pods, nodes=nodes | registered)


def read_pods(store: Datastore, *, deadline: Deadline) -> tuple[PodFacts, ...]:
    """All pods of a datastore that shows them.

    Raises:
        Malformed: a pod cannot be understood, so it is not known which addresses it uses.
        Unavailable: the store does not answer.
    """
    return tuple(map(_with_written_addresses, _iter_pods(store, deadline)))


def _iter_pods(store: Datastore, deadline: Deadline) -> Iterator[PodFacts]:
    return (record.value for record in read_pages(store, POD, deadline=deadline))


def of_addresses(pod: PodFacts) -> PodFacts:
    """What a pod says of its addresses, all of them. A large cluster has some 100,000 pods."""
    return PodFacts(
        namespace=pod.namespace,
        name=pod.name,
        uid="",
        node=pod.node,
        network=pod.network,
        phase=pod.phase,
        addresses=find_addresses(pod),
        deletion_time_ns=pod.deletion_time_ns,
    )


def read_users(store: Datastore, *, deadline: Deadline) -> AddressUsers:
    """All users of addresses. Read the blocks before: a user that comes later belongs to a later assignment.

    Raises:
        Malformed: an endpoint, a pod or a node cannot be understood, so it is not known which addresses it uses.
        Unavailable: the store does not answer.
    """
    return AddressUsers(
        endpoints={
            address: record.key
            for record in read_pages(store, WORKLOAD_ENDPOINT, deadline=deadline)
            for address in record.value.spec.addresses
        },
        cluster=read_cluster(store, deadline=deadline),
    )


def find_addresses(pod: PodFacts) -> tuple[Address, ...]:
    """The addresses of a pod, also those that the plugin wrote, which its node may not have reported yet."""
    known = {f"{address.host_prefix}" for address in pod.addresses}
    written = [
        text.strip()
        for name, value in pod.annotations
        if name.rpartition("/")[2] in _ADDRESS_ANNOTATIONS  # the prefix depends on the API group
        for text in value.split(",")
    ]
    more = [text for text in dict.fromkeys(written) if text and text not in known]
    return tuple(dict.fromkeys((*pod.addresses, *_parse_each(more)))) if more else pod.addresses


def _parse_each(texts: Iterable[str]) -> Iterator[Address]:
    for text in texts:
        try:
            yield Prefix.enclosing(text).first
        except ValueError:
            continue  # an invalid text is no address


def _without_node(pod: PodFacts) -> PodFacts:
    """A pod as if its node were not known: it may have another name where addresses are stored, and had one before."""
    return evolve(pod, node="") if pod.node else pod


def _with_written_addresses(pod: PodFacts) -> PodFacts:
    return evolve(pod, addresses=find_addresses(pod))
