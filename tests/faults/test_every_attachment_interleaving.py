"""Calls of one attachment at the same time, in every order in which their effects can come.

After each order the interface, its addresses and its endpoint are there together, or none of them is: a container never
keeps an interface with an address that nobody holds. Effects are the calls to the store, what is done to the kernel,
each release record that is written, and each attempt to take a lock. A call that waits for a lock and is chosen again
has waited for half a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import current_thread

import pytest
from attrs import define, field

from netplug_backends.memory.dataplane import MemoryDataplane
from netplug_backends.memory.datastore import MemoryDatastore, MemoryLocks, MemoryMode
from netplug_core.addressing import Address
from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.protocol import KernelError, LinkExists
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.cni.add import DeletedMeanwhile
from netplug_core.flows.cni.release_records import replay
from netplug_core.locks import AttachmentBusy
from netplug_core.testing.clock import ManualClock
from tests.harness.cni_node import DEFAULT_CONTAINER, LOCK_FILE, CNINodeHarness, ContainerInterface, FakeHost
from tests.harness.local_stores import FAULT_MODES
from tests.harness.schedules import CallScheduler, Choose, every_schedule
from tests.harness.stores import HookedStore

OTHER_CONTAINER = ContainerInterface(id="c2", netns="/run/netns/c2")
NO_VALID_ATTACHMENTS: dict[str, object] = {"cni.dev/valid-attachments": []}
Endings = tuple[type[NetplugError] | None, ...]

WAIT_S = 30.0
# Where calls stop at the dataplane: before the interface is made, at the last thing that is done to it, and at its end.
EFFECTS = ("creating", "adding the route to 10.65.", "removing")


@define
class SkippingClock(ManualClock):
    """A clock on which every wait is long, and lets the other calls go on first."""

    before_wait: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.before_wait()
        super().sleep(max(seconds, WAIT_S))


@define
class AttachmentScene:
    """One node and one container, whose calls are made by processes of their own."""

    mode: MemoryMode = MemoryMode.ATOMIC
    is_lockable: bool = True
    memory: MemoryDatastore = field(init=False)
    dataplane: MemoryDataplane = field(factory=MemoryDataplane)
    locks: MemoryLocks = field(factory=MemoryLocks)
    files: dict[str, str | OSError] = field(factory=dict)
    turns: CallScheduler = field(factory=CallScheduler)

    def __attrs_post_init__(self) -> None:
        self.memory = MemoryDatastore(self.mode, clock=ManualClock())
        self.process().add_pool("four", "10.65.0.0/28")
        self.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
        if not self.is_lockable:
            self.locks.errors[LOCK_FILE] = PermissionError(13, "Permission denied")

    def process(self, turn: Callable[[], None] = lambda: None) -> CNINodeHarness:
        """A process on the node that stops at each of its effects."""
        return CNINodeHarness(
            clock=SkippingClock(before_wait=turn) if self.is_lockable else ManualClock(),
            memory=self.memory,
            store=HookedStore(self.memory, before_read=turn, before_commit=turn),
            dataplane=self.dataplane,
            host=FakeHost(
                locks=self.locks,
                texts=self.files,
                before_lock=turn if self.is_lockable else lambda: None,
                before_write=turn if self.is_lockable else lambda: None,
            ),
        )

    def run(self, commands: Sequence[str], choose: Choose) -> Endings:
        """Run CNI commands at once, in the order that is chosen; the type of each one's error."""
        ended: dict[str, type[NetplugError] | None] = {}

        def stop_at(effect: str) -> None:
            if effect.startswith(EFFECTS):
                self.turns.wait(current_thread().name)

        def call(name: str, command: str) -> None:
            current_thread().name = name
            ended[name] = None
            try:
                process = self.process(partial(self.turns.wait, name))
                if command == "REPLAY":
                    _request, netconf = process.make_call("DEL", DEFAULT_CONTAINER, Plugin.MAIN)
                    replay(process.world, netconf, seconds=10 * WAIT_S)
                else:
                    process.run(command, DEFAULT_CONTAINER, Plugin.MAIN, **NO_VALID_ATTACHMENTS)
            except NetplugError as error:
                ended[name] = type(error)

        self.dataplane.before_effect = stop_at
        self.turns.run({str(n): partial(call, str(n), command) for n, command in enumerate(commands)}, choose)
        self.dataplane.before_effect = lambda _effect: None
        return tuple(ended[name] for name in sorted(ended))

    def leave_record(self) -> None:
        """The container was attached, and its DEL did not reach the store."""

        def refuse() -> None:
            raise Unavailable("the store", "connection refused")

        process = self.process()
        process.add()
        process.store = HookedStore(self.memory, before_read=refuse, before_commit=refuse)
        process.run("DEL")

    def addresses(self) -> tuple[set[Address], set[Address], set[Address]]:
        """The addresses of the container's interface, those held for it, and those of its endpoint."""
        harness = self.process()
        interface = self.dataplane.interface(DEFAULT_CONTAINER.ifname, DEFAULT_CONTAINER.netns)
        configured = {held.address for held in interface.addresses} if interface else set()
        stored = {address for endpoint in harness.endpoints() for address in endpoint.spec.addresses}
        return configured, set(harness.allocations()), stored

    def assert_whole(self) -> None:
        """The attachment is there with all that belongs to it, or not at all; a DEL leaves nothing either way.

        If a DEL left a record, any call of the node takes the attachment away.
        """
        configured, held, stored = self.addresses()
        assert configured == held == stored, (configured, held, stored)
        assert bool(configured) == bool(self.dataplane.names(DEFAULT_CONTAINER.netns))
        if self.process().release_records():
            self.process().run("DEL", OTHER_CONTAINER)
            self.process().assert_nothing_left()
        self.process().run("DEL")
        self.process().assert_nothing_left()
        assert self.locks.held == frozenset()


MODES = pytest.mark.parametrize("mode", FAULT_MODES)


@MODES
@pytest.mark.parametrize("second", ["ADD", "DEL"])
@pytest.mark.parametrize("first", ["ADD", "DEL"])
def test_two_calls_of_one_attachment(mode: MemoryMode, first: str, second: str) -> None:
    """A DEL succeeds. So does an ADD, or it is to be repeated because of the other call, or the interface is there."""
    endings = set[Endings]()

    def run(choose: Choose) -> None:
        scene = AttachmentScene(mode)
        endings.add(scene.run((first, second), choose))
        scene.assert_whole()

    assert len(list(every_schedule(run))) > 1
    commands = (first, second)
    of_adds = {ending for pair in endings for command, ending in zip(commands, pair, strict=True) if command == "ADD"}
    of_dels = {ending for pair in endings for command, ending in zip(commands, pair, strict=True) if command == "DEL"}
    assert of_dels <= {None}
    lost = LinkExists if "DEL" not in commands else DeletedMeanwhile
    assert of_adds == ({None, AttachmentBusy, lost} if of_adds else set())


@MODES
def test_a_gc_of_the_attachment_that_an_add_makes(mode: MemoryMode) -> None:
    """A runtime does not do this (CNI specification, "GC"); the attachment is whole all the same."""
    endings = set[Endings]()

    def run(choose: Choose) -> None:
        scene = AttachmentScene(mode)
        endings.add(scene.run(("ADD", "GC"), choose))
        scene.assert_whole()

    assert len(list(every_schedule(run))) > 1
    assert endings <= {(None, None), (None, Unavailable)}


@MODES
def test_where_nothing_can_be_locked_an_add_and_a_del_look_twice(mode: MemoryMode) -> None:
    """No order leaves an interface without addresses; the ADD that lost says so."""
    endings = set[Endings]()

    def run(choose: Choose) -> None:
        scene = AttachmentScene(mode, is_lockable=False)
        endings.add(scene.run(("ADD", "DEL"), choose))
        scene.assert_whole()

    assert len(list(every_schedule(run))) > 100
    assert (DeletedMeanwhile, None) in endings
    assert {first for first, _second in endings} <= {None, DeletedMeanwhile, KernelError}
    assert {second for _first, second in endings} == {None}


@MODES
@pytest.mark.parametrize("other", ["REPLAY", "ADD", "DEL", "GC"])
def test_a_replay_beside_another_process(mode: MemoryMode, other: str) -> None:
    """A task of the node process and an executable alone. What an ADD makes beside it is whole and stays."""
    endings = set[Endings]()

    def run(choose: Choose) -> None:
        scene = AttachmentScene(mode)
        scene.leave_record()
        ended = scene.run(("REPLAY", other), choose)
        endings.add(ended)
        if other == "ADD" and ended[1] is None:
            scene.process().run("DEL", OTHER_CONTAINER)  # which replays what is left
            configured, held, stored = scene.addresses()
            assert configured == held == stored != set()
        scene.assert_whole()

    assert len(list(every_schedule(run))) > 1
    assert {first for first, _second in endings} == {None}
    may_fail = {"ADD": AttachmentBusy, "GC": Unavailable}
    assert {second for _first, second in endings} <= {None, may_fail.get(other)}
