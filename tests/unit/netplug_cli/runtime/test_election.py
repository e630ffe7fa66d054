"""Several operators and one Lease."""

from __future__ import annotations

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.runtime.controllers import ControllerLoop
from netplug_cli.runtime.election import DatastoreLeases, LeaderElection
from netplug_core.clock import Deadline
from netplug_core.decoding.tables import find_text
from netplug_core.errors import Unavailable
from netplug_core.operator.state import LEASE, ObjectRef
from netplug_core.reconcile.lease import LEASE_S, RENEW_EVERY_S, TRUSTED_S
from netplug_core.records import OutcomeUnknown, Revision
from netplug_core.testing.clock import ManualClock
from tests.harness.node_server import Lines
from tests.harness.operator_cluster import MemoryCluster

KUBE_SYSTEM = ObjectRef("v1", "Namespace", "kube-system")


class Process:
    """A process that asks for the Lease, without a thread."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.election = LeaderElection(
            role="operator",
            store=scene.cluster,
            lease=LEASE,
            identity=name,
            clock=scene.clock,
            log=scene.log,
            on_change=scene.note_change,
        )
        self._loop = ControllerLoop(self.election.controller(), scene.clock, scene.log, chance=lambda: 0.0)

    @property
    def is_leading(self) -> bool:
        return self.election.is_leading

    def look(self) -> None:
        """Ask for the Lease now."""
        self._loop.wake()
        self._loop.run_due()


class Scene:
    """A cluster, a clock for all, and processes."""

    def __init__(self) -> None:
        self.cluster, self.clock, self.log, self.changes = MemoryCluster(), ManualClock(), Lines(), 0

    def note_change(self) -> None:
        self.changes += 1

    def process(self, name: str) -> Process:
        return Process(self, name)

    def holder(self) -> str:
        return find_text(self.cluster.objects.get(LEASE), "spec", "holderIdentity")


def test_one_acts_and_the_other_takes_over() -> None:
    scene = Scene()
    one, other = scene.process("one"), scene.process("other")
    for _ in range(20):
        one.look()
        other.look()
        assert (one.is_leading, other.is_leading) == (True, False)
        scene.clock.sleep(RENEW_EVERY_S)
    other.look()
    scene.clock.sleep(LEASE_S + 0.1)
    assert not one.is_leading
    other.look()
    assert (other.is_leading, scene.holder()) == (True, "other")
    one.look()
    assert not one.is_leading
    assert scene.log.texts == [
        "INFO this operator acts from now on identity=one",
        "INFO this operator acts from now on identity=other",
        "INFO this operator acts no more identity=one",
    ]
    assert scene.changes == 3
    assert find_text(scene.cluster.objects[LEASE], "spec", "renewTime").endswith("Z")


def test_a_holder_that_cannot_renew_stops_in_time() -> None:
    scene = Scene()
    one = scene.process("one")
    one.look()
    scene.cluster.error = Unavailable("kubernetes API", "it is away")
    for _ in range(3):
        scene.clock.sleep(RENEW_EVERY_S)
        one.look()
    assert one.is_leading
    scene.clock.sleep(TRUSTED_S)
    one.look()
    assert (one.is_leading,) == (False,)
    assert [line for line in scene.log.texts if "renewed" in line] == [
        "WARNING the Lease cannot be renewed cause=kubernetes API: it is away"
    ]


def test_who_is_slower_does_not_act() -> None:
    scene = Scene()
    one, other = scene.process("one"), scene.process("other")

    class Slow(MemoryCluster):
        def replace(self, wanted: object, **options: object) -> None:
            other.look()
            super().replace(wanted, **options)  # type: ignore[arg-type]

    one.election.store = Slow(objects=scene.cluster.objects)
    one.look()
    assert (one.is_leading, other.is_leading) == (False, True)


def test_an_error_of_ours_costs_the_lease_and_is_tried_again() -> None:
    scene = Scene()
    one = scene.process("one")
    one.look()
    scene.cluster.error = ValueError("a mistake of ours")  # type: ignore[assignment]
    scene.clock.sleep(TRUSTED_S + 0.1)
    one.look()
    assert not one.is_leading
    assert any(text.startswith("ERROR lease: an unexpected error\nTraceback") for text in scene.log.texts)
    scene.cluster.error = None
    scene.clock.sleep(LEASE_S)
    one.look()
    assert one.is_leading


def test_a_process_that_ends_gives_the_lease_up() -> None:
    scene = Scene()
    one, other = scene.process("one"), scene.process("other")
    one.look()
    other.look()
    assert (one.is_leading, other.is_leading) == (True, False)
    one.election.give_up()
    assert scene.holder() == ""
    scene.clock.sleep(RENEW_EVERY_S)
    other.look()
    assert other.is_leading
    scene.cluster.error = Unavailable("kubernetes API", "it is away")
    other.election.give_up()
    assert scene.log.texts[-1].startswith("WARNING the Lease is not given up")
    scene.process("third").election.give_up()
    assert scene.holder() == "other"


# --- in a datastore ---------------------------------------------------------------------------------------------------


class LeaseDatastore(MemoryDatastore):
    """A store in memory that keeps leases, as that of an etcd does. ``is_lost``: the replies of writes are lost."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.leases: dict[str, tuple[str, int]] = {}
        self.is_lost = False

    def read_lease(self, name: str, *, deadline: Deadline) -> tuple[str, Revision] | None:
        found = self.leases.get(name)
        return None if found is None else (found[0], Revision(str(found[1])))

    def write_lease(self, name: str, text: str, revision: Revision | None, *, deadline: Deadline) -> bool:
        _, number = self.leases.get(name, ("", 0))
        if number != int(revision or 0):
            return False
        self.leases[name] = text, number + 1
        if self.is_lost:
            raise OutcomeUnknown("the store", "the reply was lost")
        return True


class DatastoreScene(Scene):
    """Processes whose Lease is in a datastore."""

    def __init__(self) -> None:
        super().__init__()
        self.store: LeaseDatastore | None = LeaseDatastore()
        self.cluster = DatastoreLeases(lambda: self.store)  # type: ignore[assignment]  # where processes look for it


def test_without_an_orchestrator_one_acts_and_the_other_takes_over() -> None:
    scene = DatastoreScene()
    one, other = scene.process("one"), scene.process("other")
    one.look()
    other.look()
    assert (one.is_leading, other.is_leading) == (True, False)
    one.election.give_up()
    scene.clock.sleep(RENEW_EVERY_S)
    other.look()
    assert (one.is_leading, other.is_leading) == (False, True)
    scene.clock.sleep(LEASE_S + 1)
    one.look()
    assert not one.is_leading  # it sees the record of the other one for the first time
    scene.clock.sleep(LEASE_S + 1)
    one.look()
    assert (one.is_leading, other.is_leading) == (True, False)


def test_a_store_that_is_not_open_and_a_lost_reply_let_nobody_act() -> None:
    scene = DatastoreScene()
    store, scene.store = scene.store, None
    one = scene.process("one")
    one.look()
    assert (one.is_leading, one.election.problem) == (False, "the datastore: it is not open")
    assert store is not None
    scene.store, store.is_lost = store, True
    scene.clock.sleep(RENEW_EVERY_S)
    one.look()
    assert not one.is_leading
    store.is_lost = False
    scene.clock.sleep(2 * RENEW_EVERY_S)
    one.look()
    assert one.is_leading


@pytest.mark.parametrize("text", ["", "no JSON", "[1]"])
def test_a_record_that_cannot_be_read_is_free(text: str) -> None:
    scene = DatastoreScene()
    assert scene.store is not None
    scene.store.leases[LEASE.name] = text, 3
    one = scene.process("one")
    one.look()
    assert one.is_leading
