"""A rule-based machine that holds the allocator to its invariants over any store, for our backends and a stranger's.

    TestAllocator = allocator_machine(open_store, open_ipam).TestCase

is a whole test module: ``open_store`` opens an empty store over a clock and closes it, ``open_ipam`` makes the IPAM of
one process over it. Hypothesis draws what nodes, people and the collector do, and what happens on the way: requests
and replies that get lost, lost races, deadlines, processes that die, somebody else's whole act between two calls.
After every commit and every act the invariants V1 to V18 and V20 are judged (``laws``, ``history``, ``calls``,
``ledger``); at the end everything is taken down, and nothing may be left.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import TypeAlias

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from netplug_core.datastore.interface import Datastore
from netplug_core.ipam.claiming import Claimed
from netplug_core.ipam.ensure import EnsuredBlocks
from netplug_core.ipam.request import Assignment, Released
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.allocator import draws
from netplug_core.testing.allocator.acts import (
    Apply,
    Assign,
    Collect,
    Pause,
    Release,
    SetReady,
    StoreAct,
)
from netplug_core.testing.allocator.bench import AllocatorBench, OpenIPAM
from netplug_core.testing.allocator.calls import Call
from netplug_core.testing.allocator.ending import wind_up
from netplug_core.testing.allocator.laws import order_is_a_permutation
from netplug_core.testing.allocator.line import Mishap, Sort
from netplug_core.testing.allocator.recipes import Recipe
from netplug_core.testing.bench import Make
from netplug_core.testing.clock import ManualClock

__all__ = ["allocator_machine"]

Trouble: TypeAlias = Mishap | draws.Rival | None

_STALENESS = Pause(seconds=1)  # on a store that judges no requirements a resident process is half a second behind


def allocator_machine(open_store: Make, open_ipam: OpenIPAM) -> type[RuleBasedStateMachine]:
    """A state machine that holds an IPAM over a store to the allocator's invariants; its ``TestCase`` is what runs."""

    class AllocatorMachine(_Machine):
        def open(self, clock: ManualClock) -> AbstractContextManager[Datastore]:
            return open_store(clock)

        def bench_over(self, store: Datastore, clock: ManualClock) -> AllocatorBench:
            return AllocatorBench(store=store, clock=clock, open_ipam=open_ipam)

    return AllocatorMachine


class _Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        clock = ManualClock()
        self.bench = self.bench_over(self._stack.enter_context(self.open(clock)), clock)
        self.has_failed = False

    def open(self, clock: ManualClock) -> AbstractContextManager[Datastore]:
        """An empty store."""
        raise NotImplementedError

    def bench_over(self, store: Datastore, clock: ManualClock) -> AllocatorBench:
        """A cluster over it."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Take everything down, unless something has failed already, and close the store."""
        with self._stack:
            if not self.has_failed:
                wind_up(self.bench)

    @initialize(names=st.sampled_from([("p1", "s1"), ("p0", "s0"), ("p2", "s1"), ("p1", "p2", "s0", "s1")]))
    def begin(self, names: tuple[str, ...]) -> None:
        """There is a small pool of each family, or a few."""
        for name in names:
            self._do(Apply(resource=draws.pool(name)), None)

    # --- nodes -------------------------------------------------------------------------------------------------------
    # What stands here twice is drawn twice as often: mostly, addresses come and go.

    @rule(act=draws.simple_assignments(), trouble=draws.troubles())
    def assign(self, act: Assign, trouble: Trouble) -> None:
        """A workload asks for an address or a few."""
        self._do(act, trouble)

    @rule(act=draws.simple_assignments())
    def assign_twice(self, act: Assign) -> None:
        """A workload asks, and asked again, it gets the same."""
        call = self._do(act, None)
        if isinstance(call.answer, Assignment) and not call.answer.shortfalls:
            self._repeat(call)

    @rule(act=draws.assignments(), trouble=draws.troubles())
    def assign_anything(self, act: Assign, trouble: Trouble) -> None:
        """Somebody asks for something out of the ordinary."""
        self._do(act, trouble)

    @rule(act=draws.releases(), trouble=draws.troubles())
    def release(self, act: Recipe, trouble: Trouble) -> None:
        """Somebody gives back what they hold."""
        self._do(act, trouble)

    @rule(act=draws.releases())
    def release_twice(self, act: Recipe) -> None:
        """Somebody gives back what they hold, and there is no more."""
        call = self._do(act, None)
        if isinstance(call.answer, Released):
            self._repeat(call)

    @rule(act=draws.corrections(), trouble=draws.troubles())
    def correct(self, act: Recipe, trouble: Trouble) -> None:
        """Addresses are freed one by one, or get other owners, if they are held as described."""
        self._do(act, trouble)

    @rule(act=draws.claims() | draws.relinquishments(), trouble=draws.troubles())
    def claim_or_relinquish(self, act: StoreAct, trouble: Trouble) -> None:
        """Blocks are claimed ahead of time, or claims given up; done once more, that is so already."""
        call = self._do(act, trouble)
        if trouble is None and isinstance(call.answer, Claimed | EnsuredBlocks):
            self._repeat(call)

    # --- people and controllers --------------------------------------------------------------------------------------

    @rule(act=draws.governments(), trouble=draws.troubles())
    def govern(self, act: StoreAct, trouble: Trouble) -> None:
        """People change pools, nodes, reservations, the configuration; pods disappear."""
        if isinstance(act, Apply) and isinstance(act.resource, IPPool):
            spec = act.resource.spec
            order_is_a_permutation(draws.NODES, spec.prefix, spec.block_length)
        self._do(act, trouble)

    @rule(act=draws.ticks(), trouble=draws.troubles())
    def collect(self, act: Collect, trouble: Trouble) -> None:
        """The collector looks round."""
        self._do(act, trouble)

    @rule(act=draws.pauses())
    def pause(self, act: Pause) -> None:
        """Time passes."""
        self.bench.do(act)

    @rule(act=draws.simple_assignments() | draws.releases() | draws.ticks())
    def lock(self, act: StoreAct | Collect | Recipe) -> None:
        """Somebody does something while the datastore is locked, once every process may know of it."""
        self._do(SetReady(is_ready=False), None)
        self.bench.do(_STALENESS)
        self._do(act, None)
        self._do(SetReady(is_ready=True), None)

    # --- means -------------------------------------------------------------------------------------------------------

    def _do(self, what: StoreAct | Collect | Recipe, trouble: Trouble) -> Call:
        act = self._resolve(what)
        note(f"    {act}")
        mishaps = self._mishaps(act, trouble)
        self.has_failed = True
        call = self.bench.call(act, *mishaps)
        self.has_failed = False
        return call

    def _repeat(self, call: Call) -> None:
        self.has_failed = True
        self.bench.repeat(call)
        self.has_failed = False

    def _mishaps(self, act: StoreAct | Collect, trouble: Trouble) -> tuple[Mishap, ...]:
        if not isinstance(trouble, draws.Rival):
            return () if trouble is None else (trouble,)
        rival = self._resolve(trouble.act)
        if not _is_about_another(rival, act):
            return ()
        note(f"        before call {trouble.at}: {rival}")
        return (Mishap(Sort.RIVAL, trouble.at, act=lambda: self.bench.do(rival)),)

    def _resolve(self, what: StoreAct | Collect | Recipe) -> StoreAct | Collect:
        return what.act(self.bench.ledger, draws.SERVICE) if isinstance(what, Recipe) else what


def _is_about_another(rival: StoreAct | Collect, act: StoreAct | Collect) -> bool:
    """Whether two acts are not about one handle: what overtakes itself on an ordered store the collector heals."""
    if not isinstance(rival, Assign | Release) or not isinstance(act, Assign | Release):
        return True
    return rival.request.handle != act.request.handle
