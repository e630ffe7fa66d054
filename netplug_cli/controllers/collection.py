"""What is in use no more goes: addresses, handles, affinities and blocks, and the history of an etcd.

``netplug_core.flows.ipam.collect`` has the tick: what is looked for, when it counts as abandoned, and how it is taken
away. Here is when ticks come, what they have seen so far, and what people see of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from attrs import define, evolve, field, frozen

from netplug_cli.controllers.nodes import CONFIGURATION_CHANGED, LEADER_CHANGED, Acting
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, KeepsHistory
from netplug_core.datastore.view import View
from netplug_core.flows.ipam.collect import Collector, DatastoreLookup, read_cluster, read_view, tick
from netplug_core.ipam.gc.candidates import CollectionReport, CollectorSettings, ScanHistory, WaitingNode
from netplug_core.ipam.model import Handle
from netplug_core.log import Log
from netplug_core.orchestrator.model import POD, PodFacts
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Timing
from netplug_core.reconcile.kubecontrollers import RunningControllers, duration_s
from netplug_core.records import Record

__all__ = ["Collection", "CollectionCounts", "History"]

_READ_S: Final = 300.0
"""The longest that reading everything may take: 250,000 addresses are some thousands of blocks."""

_SHORTEST_S: Final = 10.0
_LONGEST_S: Final = 300.0
_AGAIN_S: Final = 5.0  # after a tick that has left something undone
_WAIT_S: Final = 5.0
_SWITCHED_OFF_GRACE_S: Final = 0.0
_TICKS_A_SCAN: Final = 3  # all handles are read in one of so many ticks: there is one for each workload
_MOST_NAMED: Final = 5


@frozen(kw_only=True)
class CollectionCounts:
    """What ticks of this process have done and found, for metrics. ``freed`` and ``failed`` count from its start."""

    ticks: int = 0
    freed: int = 0
    done: int = 0
    failed: int = 0
    candidates: int = 0
    undetermined: int = 0
    unreadable: int = 0
    idle: str = ""

    def after(self, report: CollectionReport) -> CollectionCounts:
        """The counts after one more tick."""
        return CollectionCounts(
            ticks=self.ticks + 1,
            freed=self.freed + len(report.freed),
            done=self.done + len(report.done),
            failed=self.failed + len(report.failures),
            candidates=len(report.candidates),
            undetermined=len(report.undetermined),
            unreadable=len(report.unreadable),
            idle="" if report.idle is None else report.idle.value,
        )


@define(kw_only=True, eq=False)
class Collection:
    """Runs ticks while this process acts. What a process has seen is forgotten when another one acts meanwhile.

    ``pods`` has all pods as ``of_addresses`` has them, while a watch keeps them; otherwise they are read for each tick.
    ``find_source`` is the datastore that shows pods and nodes of the orchestrator; None while there is none: then no
    address is judged. ``has_source`` says whether there is one at all.
    """

    acting: Acting
    find_running: Callable[[], RunningControllers | None]
    find_source: Callable[[], Datastore | None]
    has_source: bool
    pods: View | None
    chance: Callable[[], float]
    log: Log
    counts: CollectionCounts = field(factory=CollectionCounts, init=False)
    _history: ScanHistory = field(factory=ScanHistory, init=False)
    _due_s: float = field(default=0.0, init=False)
    _waiting: tuple[WaitingNode, ...] = field(default=(), init=False)
    _handles: tuple[Record[Handle], ...] = field(default=(), init=False)  # those that differed from the blocks
    _scan_s: float = field(default=0.0, init=False)  # when all of them are read again

    def controller(self) -> Controller[_Due | None, _Due]:
        """What looks."""
        return Controller(
            name="collection",
            observe=self._observe,
            plan=self._plan,
            act=self._tick,
            failure="abandoned addresses, blocks and handles are not collected",
            recovered="abandoned addresses, blocks and handles are collected again",
            inputs=frozenset((CONFIGURATION_CHANGED, LEADER_CHANGED)),
            timing=Timing(
                backoff=Backoff(first_s=5.0, longest_s=_LONGEST_S),
                step_s=2 * _READ_S,
                stuck_s=3 * _READ_S,
                rest_s=_AGAIN_S,
            ),
        )

    def _observe(self, _deadline: Deadline) -> _Due | None:
        """What a tick is to be made with; None if none is due."""
        running, store = self.find_running(), self.acting.find_datastore()
        if running is None or running.node is None or store is None or not self.acting.is_leading():
            self._history, self._due_s, self._scan_s, self._waiting = ScanHistory(), 0.0, 0.0, ()
            return None
        if self.acting.clock.monotonic() < self._due_s:
            return None
        source = self.find_source()
        if source is None and self.has_source:
            return None
        grace_s = duration_s(running.node.leak_grace_period or "0")
        return _Due(store=store, source=source, grace_s=_SWITCHED_OFF_GRACE_S if grace_s is None else grace_s)

    def _plan(self, due: _Due | None) -> Plan[_Due]:
        problems = tuple(map(_gone_node_problem, self._waiting))
        return Plan(actions=() if due is None else (due,), look_again_s=_WAIT_S, problems=problems)

    def _tick(self, due: _Due, deadline: Deadline) -> None:
        clock = self.acting.clock
        reading = deadline.capped(_READ_S)
        # Blocks before pods: a pod that comes between is taken for one that was there.
        began_s = clock.monotonic()
        known = self._handles if began_s < self._scan_s else None
        view = read_view(due.store, None, now_ns=clock.now_ns(), deadline=reading, known_handles=known)
        source, records = due.source, due.store if due.source is not due.store else None
        if source is not None:
            cluster = read_cluster(source, records, deadline=reading, known=self._known_pods())
            view = evolve(view, cluster=cluster)
        if not self.acting.is_leading():
            return
        collector = Collector(
            store=due.store,
            live_lookup=DatastoreLookup(source or due.store, records),
            clock=clock,
            chance=self.chance,
            log=self.log,
            settings=CollectorSettings(grace_s=due.grace_s),
        )
        self._history, report = tick(collector, view, self._history)
        self.counts, self._waiting, self._handles = self.counts.after(report), report.waiting, view.handles
        period_s = min(max(due.grace_s / 2, _SHORTEST_S), _LONGEST_S) if due.grace_s else _LONGEST_S
        if known is None:
            self._scan_s = began_s + (_TICKS_A_SCAN - 0.5) * period_s
        self._due_s = clock.monotonic() + (period_s if report.is_settled or report.idle else _AGAIN_S)

    def _known_pods(self) -> Iterator[PodFacts] | None:
        """All pods, if a watch keeps them."""
        if self.pods is None or POD not in self.pods.watched:
            return None
        return (record.value for record in self.pods.list(POD))


def _gone_node_problem(waiting: WaitingNode) -> Problem:
    """That a node is gone with what its release records said."""
    named = ", ".join(map(str, waiting.addresses[:_MOST_NAMED]))
    more = len(waiting.addresses) - _MOST_NAMED
    cause = (
        f"{named}{f' and {more} more' if more > 0 else ''}: whether they are in use cannot be determined, and the "
        "release records of the node are gone with it; netplugctl ipam release frees them"
    )
    return Problem(message=f"the node {waiting.node} is gone, and addresses that it held stay", cause=cause)


@frozen(kw_only=True)
class _Due:
    """One tick: the datastore, the one that shows pods if there is one, and the grace period, 0 for none."""

    store: Datastore
    source: Datastore | None
    grace_s: float


# --- history ----------------------------------------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class History:
    """Lets a store forget what its records were, from one period to the next: a watch may be one period behind."""

    acting: Acting
    find_running: Callable[[], RunningControllers | None]
    _seen: int | None = field(default=None, init=False)
    _due_s: float = field(default=0.0, init=False)

    def controller(self) -> Controller[float | None, float]:
        """What looks."""
        return Controller(
            name="history",
            observe=self._observe,
            plan=lambda period_s: Plan(actions=() if period_s is None else (period_s,), look_again_s=_WAIT_S),
            act=self._act,
            failure="the history of the datastore is not compacted, and grows",
            recovered="the history of the datastore is compacted again",
            inputs=frozenset((CONFIGURATION_CHANGED, LEADER_CHANGED)),
            timing=Timing(backoff=Backoff(first_s=5.0, longest_s=_LONGEST_S)),
        )

    def _observe(self, _deadline: Deadline) -> float | None:
        """The period if it is over; None if nothing is to be done now."""
        running = self.find_running()
        period_s = None if running is None else duration_s(running.spec.compaction_period or "0")
        if period_s is None or not self.acting.is_leading():
            self._seen, self._due_s = None, 0.0
            return None
        return period_s if self.acting.clock.monotonic() >= self._due_s else None

    def _act(self, period_s: float, deadline: Deadline) -> None:
        store = self.acting.find_datastore()
        if store is None or not isinstance(store, KeepsHistory) or not self.acting.is_leading():
            return
        present = store.present_revision(deadline=deadline)
        if self._seen is not None:
            store.forget_history(self._seen, deadline=deadline)
        self._seen, self._due_s = present, self.acting.clock.monotonic() + period_s
