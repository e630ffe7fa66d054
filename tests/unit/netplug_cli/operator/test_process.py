"""The loop: when it looks again, what it reports, and when it keeps still."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

import netplug_cli.operator.process as process_module
from netplug_cli.operator.observing import INSTALLATION
from netplug_cli.operator.process import RESYNC_S, OperatorLoop
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.operator.state import ClusterMode, Json, ObjectRef, OperatorSettings
from netplug_core.testing.clock import ManualClock
from tests.harness.installations import network
from tests.harness.node_server import Lines
from tests.harness.operator_cluster import MemoryCluster, MemoryPools, make_loop, settle
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

AWAY = Unavailable("kubernetes API", "it is away")


def test_it_looks_soon_while_something_is_awaited_and_seldom_otherwise() -> None:
    cluster = MemoryCluster()
    cluster.install(network(bgp="Disabled", ipPools=[{"cidr": "10.0.0.0/16", "encapsulation": "VXLAN"}]))
    loop = make_loop(cluster, MemoryPools(cluster))
    assert settle(loop) == 10.0
    cluster.roll_out()
    assert settle(loop) == RESYNC_S


def test_a_server_that_is_away_is_one_line_and_is_asked_less_and_less() -> None:
    cluster, log = MemoryCluster(error=AWAY), Lines()
    loop = make_loop(cluster, MemoryPools(cluster), log=log)
    assert [loop.look() for _ in range(7)] == [2, 4, 8, 16, 30, 30, 30]
    assert log.texts == ["ERROR the cluster cannot be read cause=kubernetes API: it is away"]


def test_what_cannot_be_read_is_in_the_status() -> None:
    cluster = MemoryCluster()
    cluster.install({})
    pools = MemoryPools(cluster)
    settle(make_loop(cluster, pools))

    class Broken(MemoryPools):
        def read(self, mode: object, *, deadline: object) -> tuple[()]:
            raise AWAY

    loop = make_loop(cluster, Broken(cluster))
    assert loop.look() == 2.0
    assert cluster.conditions()["Degraded"] == (
        "True",
        "ResourceReadError",
        "the cluster cannot be read: kubernetes API: it is away",
    )


def test_a_write_that_never_holds_is_not_repeated_at_once() -> None:
    """Another program undoes what the operator does: it does not run in a circle."""

    class Undone(MemoryCluster):
        def apply(self, wanted: object, **options: object) -> object:  # type: ignore[override]
            found = super().apply(wanted, **options)  # type: ignore[arg-type]
            if "ClusterRole netplug" in self.writes[-1]:
                found["rules"] = self.objects[self._role]["rules"] = []  # type: ignore[index]
            return found

        @property
        def _role(self) -> object:
            return next(ref for ref in self.objects if ref.kind == "ClusterRole")

    cluster = Undone()
    cluster.install({})
    loop = make_loop(cluster, MemoryPools(cluster))
    pauses = [loop.look() for _ in range(8)]
    assert pauses[-3:] in ([4.0, 8.0, 16.0], [8.0, 16.0, 30.0])


def test_without_the_lease_nothing_is_written() -> None:
    cluster = MemoryCluster()
    cluster.install({})
    assert make_loop(cluster, MemoryPools(cluster), is_leading=False).look() == 2.0
    assert cluster.writes == []


def test_a_status_that_cannot_be_written_is_tried_again() -> None:
    cluster, log = MemoryCluster(), Lines()
    cluster.install({})
    cluster.refused["apply Installation default status"] = AWAY
    loop = make_loop(cluster, MemoryPools(cluster), log=log)
    assert settle(loop) == 2.0
    assert log.texts[-1] == "ERROR the status cannot be written cause=kubernetes API: it is away"
    cluster.refused.clear()
    settle(loop)
    assert cluster.conditions()["Progressing"][0] == "True"


def test_the_thread_looks_when_it_is_woken_and_ends() -> None:
    cluster = MemoryCluster()
    loop = make_loop(cluster, MemoryPools(cluster))
    assert loop.find_problem() == "the loop has ended"
    loop.start()
    cluster.install({})
    loop.wake()
    wait_until(lambda: bool(cluster.conditions()), "the status is written")
    assert loop.find_problem() == ""
    assert loop.stop()
    assert not loop.is_alive


class Restless(MemoryCluster):
    """A cluster in which every look is followed by events at once."""

    began: tuple[float, ...] = ()
    loop: OperatorLoop | None = None

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        if ref == INSTALLATION:
            self.began = (*self.began, time.monotonic())
        if self.loop is not None:
            self.loop.wake()
        return super().find(ref, deadline=deadline)


def test_events_do_not_make_it_look_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "REST_S", 0.3)
    cluster = Restless()
    cluster.loop = loop = make_loop(cluster, MemoryPools(cluster))
    loop.start()
    wait_until(lambda: len(cluster.began) >= 3, "it has looked three times")
    assert loop.stop()
    assert all(later - earlier >= 0.29 for earlier, later in pairwise(cluster.began))


def test_it_ends_during_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "REST_S", EMERGENCY_STOP_S)
    cluster = Restless()
    loop = make_loop(cluster, MemoryPools(cluster))
    loop.start()
    wait_until(lambda: bool(cluster.writes), "it looks at once")
    assert loop.stop()


def test_a_loop_that_stands_still_or_crashes_is_seen() -> None:
    cluster, clock, log = MemoryCluster(), ManualClock(), Lines()
    loop = make_loop(cluster, MemoryPools(cluster), clock=clock, log=log)
    loop.start()
    wait_until(lambda: bool(cluster.writes), "it has looked")
    clock.sleep(2 * RESYNC_S + 1)
    assert loop.find_problem().startswith("nothing has moved for ")
    cluster.error = ValueError("a mistake of ours")  # type: ignore[assignment]
    loop.wake()
    wait_until(lambda: not loop.is_alive, "the loop ends")
    assert "the loop has ended\nTraceback" in log.texts[-1]


def test_why_it_is_degraded_is_one_line_also_without_an_installation() -> None:
    cluster, log = MemoryCluster(), Lines()
    settle(make_loop(cluster, MemoryPools(cluster)))
    settings = OperatorSettings(version="1.2.3", asked_mode=ClusterMode.V3)
    loop = make_loop(cluster, MemoryPools(cluster), settings=settings, log=log)
    assert [settle(loop), settle(loop)] == [10.0, 10.0]
    (line,) = log.texts
    assert line.startswith("WARNING the installation is degraded cause=NETPLUG_API_GROUP: v3 is not accepted; ")
    assert line.endswith(" reason=ResourceMigrationError")
