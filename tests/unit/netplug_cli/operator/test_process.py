"""The loop: when it looks again, what it reports, and when it keeps still."""

from __future__ import annotations

from typing import cast

import pytest
from attrs import evolve

from netplug_cli.operator.process import REST_S, RESYNC_S
from netplug_cli.operator.world import Cluster
from netplug_core.errors import Unavailable
from netplug_core.operator.state import ClusterMode, OperatorSettings
from netplug_core.testing.clock import ManualClock
from tests.harness.installations import network
from tests.harness.node_server import Lines
from tests.harness.operator_cluster import DrivenOperator, MemoryCluster, MemoryPools, make_loop, settle

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


def test_it_looks_when_it_is_woken_and_rests_between_two_looks() -> None:
    """Each pod of a rollout is an event, and so is its own status."""
    clock = ManualClock()
    cluster = MemoryCluster()
    loop = make_loop(cluster, MemoryPools(cluster), clock=clock)
    cluster.install(network(bgp="Disabled", ipPools=[{"cidr": "10.0.0.0/16", "encapsulation": "VXLAN"}]))
    assert settle(loop) == 10.0
    cluster.roll_out()
    loop.wake()
    loop.wake()
    before_s = clock.monotonic()
    assert loop.look() == RESYNC_S
    assert clock.monotonic() - before_s == pytest.approx(REST_S)


def act_through(loop: DrivenOperator, cluster: MemoryCluster) -> None:
    """Let the operator write to another cluster than the one that it reads."""
    loop.operator.actor = evolve(loop.operator.actor, cluster=cast("Cluster", cluster))


def test_it_ends_before_its_next_action() -> None:
    cluster = MemoryCluster()
    cluster.install({})
    loop = make_loop(cluster, MemoryPools(cluster))

    class Ending(MemoryCluster):
        def apply(self, wanted: object, **options: object) -> object:  # type: ignore[override]
            loop.operator.ask_to_stop()
            return super().apply(wanted, **options)  # type: ignore[arg-type]

    ending = Ending(objects=cluster.objects)
    act_through(loop, ending)
    loop.look()
    loop.look()
    assert len(ending.writes) == 1


def test_an_action_that_hangs_is_seen_and_an_error_of_ours_is_one_line_and_tried_again() -> None:
    cluster, clock, log = MemoryCluster(), ManualClock(), Lines()
    cluster.install({})
    loop = make_loop(cluster, MemoryPools(cluster), clock=clock, log=log)
    hangs: list[str] = []

    class Hanging(MemoryCluster):
        def apply(self, wanted: object, **options: object) -> object:  # type: ignore[override]
            if not hangs:
                clock.sleep(301)
                hangs.append(loop.operator.find_problem())
            return super().apply(wanted, **options)  # type: ignore[arg-type]

    act_through(loop, Hanging(objects=cluster.objects))
    loop.look()
    assert hangs == ["nothing has moved for 301 s"]
    assert loop.operator.find_problem() == ""
    cluster.error = ValueError("a mistake of ours")  # type: ignore[assignment]
    assert [loop.look(), loop.look()] == [2, 4]
    (line,) = (text for text in log.texts if "unexpected" in text)
    assert line.startswith("ERROR installation: an unexpected error\nTraceback")
    cluster.error = None
    settle(loop)
    assert cluster.conditions()["Progressing"][0] == "True"


def test_why_it_is_degraded_is_one_line_also_without_an_installation() -> None:
    cluster, log = MemoryCluster(), Lines()
    settle(make_loop(cluster, MemoryPools(cluster)))
    settings = OperatorSettings(version="1.2.3", asked_mode=ClusterMode.V3)
    loop = make_loop(cluster, MemoryPools(cluster), settings=settings, log=log)
    assert [settle(loop), settle(loop)] == [10.0, 10.0]
    (line,) = log.texts
    assert line.startswith("WARNING the installation is degraded cause=NETPLUG_API_GROUP: v3 is not accepted; ")
    assert line.endswith(" reason=ResourceMigrationError")
