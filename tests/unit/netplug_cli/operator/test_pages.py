"""What the operator answers to probes and to collectors of metrics."""

from __future__ import annotations

from netplug_cli.operator.process import CHANGES, add_values, operator_pages
from netplug_cli.runtime.controllers import ControllerLoop, Runtime
from netplug_cli.runtime.election import LeaderElection
from netplug_core.errors import Unavailable
from netplug_core.operator.state import LEASE
from netplug_core.reconcile.lease import RENEW_EVERY_S
from netplug_core.testing.clock import ManualClock
from tests.harness.installations import network
from tests.harness.node_server import Lines
from tests.harness.operator_cluster import MemoryCluster, MemoryPools, make_loop, settle
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

SPEC = network(ipPools=[{"cidr": "10.244.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}])
AWAY = Unavailable("kubernetes API", "it is away")


class Running:
    """An operator on a cluster in memory."""

    def __init__(self) -> None:
        self.cluster, self.clock = MemoryCluster(), ManualClock()
        self.loop = make_loop(self.cluster, MemoryPools(self.cluster), clock=self.clock)
        self.operator = self.loop.operator
        self.election = LeaderElection(
            role="operator",
            store=self.cluster,
            lease=LEASE,
            identity="operator-1",
            clock=self.clock,
            log=Lines(),
            on_change=lambda: None,
        )
        self._election_loop = ControllerLoop(self.election.controller(), self.clock, Lines(), chance=lambda: 0.0)
        controllers = (self.operator.controller(), self.election.controller())
        self.runtime = Runtime(controllers, clock=self.clock, log=Lines(), note_pass=self.operator.note_pass)
        self.pages = operator_pages(self.operator, self.election, self.runtime)
        add_values(self.operator, self.election)

    def ask_for_the_lease(self) -> None:
        self.clock.sleep(RENEW_EVERY_S)
        self._election_loop.run_due()

    def answer(self, path: str) -> tuple[int, str]:
        page = self.pages[path]()
        return page.status, page.body.decode()

    def value(self, name: str) -> float | None:
        """The value of a metric, by its name with its labels."""
        lines = self.pages["/metrics"]().body.decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), None)


def test_it_lives_while_both_threads_do_and_is_ready_when_it_has_read_the_cluster() -> None:
    running = Running()
    assert running.answer("/livez") == (503, "a thread has ended\n")
    running.runtime.start()
    try:
        wait_until(lambda: running.answer("/readyz") == (200, "ok\n"), "it is ready")
        assert running.answer("/livez") == (200, "ok\n")
    finally:
        running.runtime.stop(EMERGENCY_STOP_S)
    assert running.runtime.has_ended
    assert running.answer("/readyz")[0] == 503


def test_an_error_of_ours_lets_it_live_but_is_not_ready() -> None:
    """It is tried again, and nothing is done meanwhile: a probe that stays green would hide that."""
    running = Running()
    running.cluster.error = ValueError("a mistake of ours")  # type: ignore[assignment]
    running.runtime.start()
    try:
        wait_until(lambda: "unexpected error: ValueError" in running.answer("/readyz")[1], "it is not ready")
        assert running.answer("/readyz")[0] == 503
        assert running.answer("/livez") == (200, "ok\n")
        running.cluster.error = None

        def is_tried_again() -> bool:
            running.clock.sleep(60)  # a pass that has ended only now waits from now on
            running.runtime.wake(CHANGES)
            return "unexpected" not in running.answer("/readyz")[1]

        wait_until(is_tried_again, "it is tried again")
    finally:
        running.runtime.stop(EMERGENCY_STOP_S)


def test_before_the_first_look_and_while_the_server_is_away_it_is_not_ready() -> None:
    running = Running()
    assert running.operator.find_unready() == "the cluster has not been read yet"
    assert running.election.problem == "the Lease has not been read yet"
    running.cluster.error = AWAY
    running.loop.look()
    running.ask_for_the_lease()
    assert running.operator.find_unready() == "the cluster cannot be read: kubernetes API: it is away"
    assert running.election.problem == "kubernetes API: it is away"
    running.cluster.error = None
    running.loop.look()
    running.ask_for_the_lease()
    assert running.operator.find_unready() == running.election.problem == ""


def test_one_that_waits_for_the_lease_is_ready_without_a_look() -> None:
    cluster = MemoryCluster()
    waiting = make_loop(cluster, MemoryPools(cluster), is_leading=False)
    waiting.look()
    assert waiting.operator.find_unready() == ""
    assert waiting.operator.conditions == {}


def test_looks_writes_and_conditions_are_counted() -> None:
    running = Running()
    running.cluster.install(SPEC)
    settle(running.loop)
    running.cluster.roll_out()
    settle(running.loop)
    looks = running.value('netplug_operator_reconciles_total{outcome="done"}')
    assert looks is not None
    assert looks == running.value("netplug_operator_reconcile_duration_seconds_count")
    assert running.value('netplug_operator_writes_total{kind="DaemonSet",outcome="done",verb="apply"}') == 1
    assert running.value('netplug_operator_writes_total{kind="IPPool",outcome="done",verb="create"}') == 1
    assert running.value('netplug_operator_writes_total{kind="Installation",outcome="done",verb="apply"}') == 1
    assert running.value('netplug_operator_condition{type="Ready"}') == 1
    assert running.value('netplug_operator_condition{type="Degraded"}') == 0
    running.cluster.remove(next(ref for ref in running.cluster.objects if ref.kind == "DaemonSet"))
    running.cluster.refused["apply DaemonSet netplug-system/netplug-node"] = AWAY
    settle(running.loop)
    assert running.value('netplug_operator_reconciles_total{outcome="failed"}') == 1
    assert running.value('netplug_operator_writes_total{kind="DaemonSet",outcome="failed",verb="apply"}') == 1
    assert running.value('netplug_operator_condition{type="Ready"}') == 0
    assert running.value('netplug_operator_condition{type="Degraded"}') == 1
    running.cluster.error = AWAY
    running.loop.look()
    assert running.value('netplug_operator_reconciles_total{outcome="unreadable"}') == 1


def test_a_removal_and_a_status_that_is_refused_are_counted_too() -> None:
    running = Running()
    running.cluster.install(SPEC)
    settle(running.loop)
    running.cluster.remove(next(ref for ref in running.cluster.objects if ref.kind == "Installation"))
    running.cluster.refused["apply Installation default status"] = AWAY
    running.loop.look()
    assert running.value('netplug_operator_writes_total{kind="Deployment",outcome="done",verb="delete"}') == 1
    assert running.value('netplug_operator_writes_total{kind="Installation/status",outcome="failed",verb="apply"}') == 1


def test_who_acts_is_a_metric() -> None:
    running = Running()
    assert running.value("netplug_operator_leader") == 0
    running.ask_for_the_lease()
    assert running.value("netplug_operator_leader") == 1
    assert 'netplug_operator_build_info{version="1.2.3"} 1.0' in running.answer("/metrics")[1]
