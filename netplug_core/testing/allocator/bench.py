"""A cluster over one store, in which acts are done one after the other, each of them judged.

The machine and the exhaustive tests stand on it. A call may suffer mishaps; afterwards the ledger is told what was
answered. ``ending`` takes everything down again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeAlias

from attrs import Factory, define, field, frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.interface import Atomicity, Datastore
from netplug_core.errors import NetplugError
from netplug_core.flows import collect
from netplug_core.ipam.collection import Memory, Report, Settings
from netplug_core.ipam.interface import IPAM
from netplug_core.ipam.request import Released
from netplug_core.ipam.witness import Cluster, KnownPod, PodName
from netplug_core.log import Level
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.testing.allocator.acts import (
    ASSIGN_S,
    NAMESPACE,
    Act,
    Assign,
    Client,
    Collect,
    Ensure,
    Pause,
    Release,
    Sight,
    StoreAct,
)
from netplug_core.testing.allocator.calls import CALL_LAWS, UNDISTURBED_LAWS, Answer, Call, Died
from netplug_core.testing.allocator.history import History
from netplug_core.testing.allocator.laws import QUIET_LAWS, STATE_LAWS, STEP_LAWS, Step
from netplug_core.testing.allocator.ledger import Ledger
from netplug_core.testing.allocator.line import Line, Mishap
from netplug_core.testing.allocator.stored import Rules, Stored, look
from netplug_core.testing.bench import expect, expect_same
from netplug_core.testing.faults import ProcessDied

__all__ = ["GRACE_S", "AllocatorBench", "OpenIPAM"]

GRACE_S = 60.0
"""How patient the collector is here."""

STALE_S = 0.5
"""How old what a client of an ordered store remembers may be."""

OpenIPAM: TypeAlias = Callable[[Datastore, Clock], IPAM]
"""Makes the IPAM of one process over its way to the store."""


@define(eq=False, kw_only=True)
class AllocatorBench:
    """A store, the processes that use it, what they were promised, and what must hold.

    ``is_calm`` is whether nothing has happened yet that an ordered store leaves for a later call, or the collector, to
    heal.
    """

    store: Datastore
    clock: Clock
    open_ipam: OpenIPAM
    ledger: Ledger = field(factory=Ledger)
    history: History = field(factory=History)
    memory: Memory = field(factory=Memory)
    is_calm: bool = True
    _residents: dict[str, _Process] = field(default=Factory(dict))
    _homes: dict[str, str] = field(default=Factory(dict))
    _rules: list[tuple[float, Rules]] = field(default=Factory(list))
    _uids: Iterator[int] = field(factory=lambda: count(1))
    _latest: Stored | None = None
    _depth: int = 0

    @property
    def is_atomic(self) -> bool:
        """Whether the store applies all of a commit or nothing."""
        return self.store.description.atomicity is Atomicity.ATOMIC

    def look(self) -> Stored:
        """Everything that is stored: as after the last commit, because only processes of the bench write."""
        if self._latest is None:
            self._latest = look(self.store, Deadline.after(self.clock, ASSIGN_S))
        return self._latest

    def look_again(self) -> Stored:
        """The same, read anew: something may have been written."""
        self._latest = None
        return self.look()

    def do(self, act: Act, *mishaps: Mishap) -> Answer:
        """Do something, with these mishaps on the way, and judge what became of it; what was answered."""
        if isinstance(act, Pause):
            self.clock.sleep(act.seconds)
            return None
        return self.call(act, *mishaps).answer

    def call(self, act: StoreAct | Collect, *mishaps: Mishap) -> Call:
        """The same, with all that can be said of it."""
        if mishaps or self._depth:
            self.is_calm = self.is_calm and self.is_atomic
        before, since_ns = self.look(), self.clock.now_ns()
        self.note(before.rules)
        concern = self.ledger.begin(act)
        process = self._process_for(act)
        may_remember = process.begin(act, mishaps)
        self._depth += 1
        answer = self._answer(act, process)
        self._depth -= 1
        # Without a mishap too: what a resident process remembers may be a moment old.
        self.is_calm = self.is_calm and not process.line.has_half_done
        call = Call(
            act=act, before=before, after=self.look(), answer=answer, writes=tuple(process.line.writes),
            since_ns=since_ns, until_ns=self.clock.now_ns(), may_remember=may_remember,
        )  # fmt: skip
        self.ledger.end(call, concern)
        # Where nothing is conditioned on the rules, a process goes by what it remembers of them for a moment.
        is_informed = self.is_atomic or not may_remember or CLUSTER_INFORMATION in process.line.kinds
        self._judge(call, is_exact=is_informed and not mishaps)
        return call

    def repeat(self, call: Call) -> None:
        """V15: done once more, an act answers the same (a release: that nothing was held) and changes nothing."""
        again = self.call(call.act)
        expected = Released(addresses=()) if isinstance(call.act, Release) else call.answer
        expect_same(again.answer, expected, f"V15: the answer to {call.act}, done once more")
        if self.is_atomic or not again.may_remember:
            expect(again.is_without_effect, f"V15: {call.act}, done once more, changed something")

    # --- processes ---------------------------------------------------------------------------------------------------

    def _process_for(self, act: StoreAct | Collect) -> _Process:
        """Who does it: a node's resident process, unless that is busy, or somebody who came for this."""
        home = ""
        if isinstance(act, Assign | Ensure):
            home = act.request.node
            self._homes.update({act.request.handle: home} if act.request.handle else {})
        elif isinstance(act, Release):
            home = self._homes.get(act.request.handle, "")
        if not home or self._depth:
            return _Process.start(self)
        if home not in self._residents:
            self._residents[home] = _Process.start(self)
        return self._residents[home]

    def _answer(self, act: StoreAct | Collect, process: _Process) -> Answer:
        try:
            if isinstance(act, Collect):
                return self._tick(act.sight, process.line)
            client = Client(store=process.line, ipam=process.ipam, clock=self.clock, new_uid=self._new_uid)
            return act.perform(client)
        except NetplugError as error:
            return error
        except ProcessDied:
            self._residents = {home: other for home, other in self._residents.items() if other is not process}
            if isinstance(act, Collect):
                self.memory = Memory()
            return Died()

    def _tick(self, sight: Sight, store: Datastore) -> Report:
        """V18: the collector frees nothing whose owner lives, though its view may be blind: the ledger will say."""
        witness = _Witness(self.ledger)
        collector = collect.Collector(
            store=store,
            witness=witness,
            clock=self.clock,
            chance=lambda: 0.5,
            log=_say_nothing,
            settings=Settings(grace_s=GRACE_S),
        )
        cluster = Cluster() if sight.is_blind else witness.cluster
        deadline = Deadline.after(self.clock, ASSIGN_S)
        view = collect.look(self.store, cluster, now_ns=self.clock.now_ns(), deadline=deadline)
        self.memory, report = collect.tick(collector, view, self.memory)
        return report

    def _new_uid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._uids):012}"

    # --- judging -----------------------------------------------------------------------------------------------------

    def _judge(self, call: Call, *, is_exact: bool) -> None:
        self.ledger.compare(call.after)
        for law in CALL_LAWS:
            law(call)
        if is_exact:
            for exact in UNDISTURBED_LAWS:
                exact(call)
        if self.is_calm and not self._depth:
            for quiet in QUIET_LAWS:
                quiet(call.after)

    def judge_step(self, step: Step) -> None:
        """Hold a commit against all laws of commits and of what is stored."""
        self.note(step.after.rules)
        for law in STEP_LAWS:
            law(step)
        for of_state in STATE_LAWS:
            of_state(step.after)
        self.history.judge(step)

    def note(self, rules: Rules) -> None:
        """Remember since when which rules hold."""
        if not self._rules or self._rules[-1][1] != rules:
            self._rules.append((self.clock.monotonic(), rules))

    def rules_since(self, time_s: float) -> tuple[Rules, ...]:
        """The rules that held at some time since then, the oldest first."""
        newer = [rules for since, rules in self._rules if since > time_s]
        older = [rules for since, rules in self._rules if since <= time_s]
        return (*older[-1:], *newer)


@define(eq=False, kw_only=True)
class _Process:
    """One process, and the eye that the bench has on its commits."""

    bench: AllocatorBench
    line: Line = field(init=False)
    ipam: IPAM = field(init=False)
    act: StoreAct | Collect | None = None
    before: Stored | None = None

    @classmethod
    def start(cls, bench: AllocatorBench) -> _Process:
        """A process that knows nothing yet."""
        process = cls(bench=bench)
        process.line = Line(inner=bench.store, clock=bench.clock, watcher=process)
        process.ipam = bench.open_ipam(process.line, bench.clock)
        return process

    def begin(self, act: StoreAct | Collect, mishaps: tuple[Mishap, ...]) -> bool:
        """Turn to something; whether it did something else before."""
        is_old, self.act = self.act is not None, act
        self.line.arm(*mishaps)
        return is_old

    def before_commit(self, line: Line) -> None:
        """A commit is about to arrive."""
        del line
        self.before = self.bench.look()

    def after_commit(self, line: Line) -> None:
        """It has, or it has not."""
        bench, before, after = self.bench, self.before, self.bench.look_again()
        if before is None or self.act is None:
            return
        is_exact = bench.is_atomic
        rules = (before.rules,) if is_exact else bench.rules_since(line.reading_since - STALE_S)
        bench.judge_step(
            Step(
                act=self.act,
                before=before,
                after=after,
                rules=rules,
                now_ns=bench.clock.now_ns(),
                is_exact=is_exact,
            )
        )


@frozen
class _Witness:
    """Who knows which pods and nodes there are: those of the ledger."""

    ledger: Ledger

    @property
    def cluster(self) -> Cluster:
        """Everything there is."""
        return Cluster(pods=tuple(map(self._facts, self.ledger.pods)), nodes=frozenset(self.ledger.nodes))

    def find_pod(self, pod: PodName, *, deadline: Deadline) -> KnownPod | None:
        """The pod as it is now."""
        del deadline
        return self._facts(pod.name) if pod.name in self.ledger.pods else None

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        """Whether there is such a node."""
        del deadline
        return name in self.ledger.nodes

    def _facts(self, handle: str) -> KnownPod:
        held = tuple(sorted(self.ledger.held_by(handle)))
        return KnownPod(namespace=NAMESPACE, name=handle, node=self.ledger.pods[handle], addresses=held)


def _say_nothing(_level: Level, _message: str, /, **_fields: object) -> None:
    """What is done is seen in the store."""
