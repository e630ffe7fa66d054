"""Several operators and one Lease."""

from __future__ import annotations

from threading import Event

from netplug_cli.operator.election import Election
from netplug_core.errors import Unavailable
from netplug_core.operator.lease import LEASE, LEASE_S, RENEW_EVERY_S, TRUSTED_S
from netplug_core.operator.state import ObjectRef, find_text
from netplug_core.testing.clock import ManualClock
from tests.harness.node_server import Lines
from tests.harness.operator_cluster import MemoryCluster
from tests.harness.waiting import wait_until

KUBE_SYSTEM = ObjectRef("v1", "Namespace", "kube-system")


class Scene:
    """A cluster, a clock for all, and processes."""

    def __init__(self) -> None:
        self.cluster, self.clock, self.log, self.changes = MemoryCluster(), ManualClock(), Lines(), 0
        self.crashed = Event()

    def process(self, name: str) -> Election:
        def changed() -> None:
            self.changes += 1

        return Election(
            cluster=self.cluster,
            identity=name,
            clock=self.clock,
            log=self.log,
            on_change=changed,
            on_crash=self.crashed.set,
        )

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
    assert [line for line in scene.log.texts if line.startswith("ERROR")] == [
        "ERROR the Lease cannot be renewed cause=kubernetes API: it is away"
    ]


def test_who_is_slower_does_not_act() -> None:
    scene = Scene()
    one, other = scene.process("one"), scene.process("other")

    class Slow(MemoryCluster):
        def replace(self, wanted: object, **options: object) -> None:
            other.look()
            super().replace(wanted, **options)  # type: ignore[arg-type]

    one.cluster = Slow(objects=scene.cluster.objects)
    one.look()
    assert (one.is_leading, other.is_leading) == (False, True)


def test_an_election_that_crashes_ends_the_process() -> None:
    scene = Scene()
    scene.cluster.error = ValueError("a mistake of ours")  # type: ignore[assignment]
    one = scene.process("one")
    one.start()
    wait_until(scene.crashed.is_set, "the process is told to end")
    wait_until(lambda: not one.is_alive, "the thread ends")
    assert scene.log.texts[-1].startswith("ERROR the election has ended\nTraceback")
    assert not one.is_leading


def test_a_process_that_ends_gives_the_lease_up() -> None:
    scene = Scene()
    one, other = scene.process("one"), scene.process("other")
    one.start()
    wait_until(lambda: one.is_leading, "it acts")
    other.look()
    one.stop()
    assert not one.is_alive
    assert scene.holder() == ""
    other.look()
    assert other.is_leading
    scene.cluster.error = Unavailable("kubernetes API", "it is away")
    other.stop()
    assert scene.log.texts[-1].startswith("WARNING the Lease is not given up")
    scene.process("third").stop()
    assert scene.holder() == "other"
