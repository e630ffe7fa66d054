"""The command line of the controllers, and what the process says of itself."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from attrs import evolve

from netplug_cli.controllers.collection import CollectionCounts
from netplug_cli.controllers.metrics import ControllersMetrics
from netplug_cli.controllers.process import MetricsPort, controllers_pages, parse_arguments
from netplug_cli.runtime.controllers import ControllerLoop, Runtime
from netplug_cli.wiring.controllers import run
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import Controller, Plan
from netplug_core.reconcile.kubecontrollers import (
    CopySource,
    RunningControllers,
    default_configuration,
    find_running_controllers,
)
from netplug_core.resources.fields import Switch
from netplug_core.testing.clock import ManualClock
from tests.harness.node_server import Lines
from tests.harness.servers.ports import reserve_port
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until


class Vote:
    """An election of which tests say how it goes."""

    is_leading = True
    problem = ""


class Scene:
    """One controller that does what tests say, and the pages of its process."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.unready = ""
        self.vote = Vote()
        self.counts = CollectionCounts()
        self.metrics = ControllersMetrics("v1.2.3")
        controller: Controller[None, None] = Controller(
            name="one", observe=self._observe, plan=lambda _seen: Plan(), act=lambda *_: None, failure="one fails"
        )
        self.runtime = Runtime((controller,), clock=ManualClock(), log=Lines(), note_pass=self.metrics.note_pass)
        self.metrics.watch(self.runtime, self.vote, lambda: self.counts)
        self.running: RunningControllers | None = None
        self.pages = controllers_pages(
            self.runtime, self.vote, self.metrics, lambda: self.unready, lambda: self.running
        )

    def _observe(self, _deadline: Deadline) -> None:
        if self.error is not None:
            raise self.error

    def answer(self, path: str) -> tuple[int, str]:
        page = self.pages[path]()
        return page.status, page.body.decode()

    def values(self) -> dict[str, float]:
        """The values of the metrics of ours, by their names with their labels."""
        lines = (line for line in self.answer("/metrics")[1].splitlines() if line.startswith("netplug_"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_it_lives_while_its_threads_do_and_is_ready_when_it_has_read_everything() -> None:
    scene = Scene()
    assert scene.answer("/livez") == (503, "a thread has ended\n")
    scene.runtime.start()
    try:
        assert scene.answer("/livez") == (200, "ok\n")
        assert scene.answer("/readyz") == (200, "ok\n")
        scene.unready = "the records of etcdv3 have not been read yet"
        assert scene.answer("/readyz") == (503, "the records of etcdv3 have not been read yet\n")
        scene.vote.problem = "the Lease: refused"
        assert scene.answer("/readyz") == (503, "the Lease: refused\n")
        assert scene.answer("/livez") == (200, "ok\n")
    finally:
        scene.runtime.stop(EMERGENCY_STOP_S)


@pytest.mark.parametrize(
    "error, ready",
    [
        (ZeroDivisionError("ours"), (503, "one: an unexpected error: ZeroDivisionError: ours\n")),
        (Unavailable("the store", "away"), (200, "ok\n")),
    ],
)
def test_an_error_of_ours_is_not_ready_and_an_outage_is(error: Exception, ready: tuple[int, str]) -> None:
    scene = Scene()
    scene.error = error
    scene.runtime.start()
    try:
        wait_until(lambda: scene.runtime.healths[0].failures == 1, "the pass fails")
        assert scene.answer("/readyz") == ready
        assert scene.answer("/livez") == (200, "ok\n")
    finally:
        scene.runtime.stop(EMERGENCY_STOP_S)


def test_the_metrics_of_each_controller_and_of_the_collection() -> None:
    scene = Scene()
    scene.runtime.start()
    try:
        wait_until(
            lambda: 'netplug_controllers_passes_total{controller="one",outcome="done"}' in scene.values(), "a pass"
        )
        values = scene.values()
        assert values['netplug_controllers_build_info{version="v1.2.3"}'] == 1
        assert values["netplug_controllers_leader"] == 1
        assert values['netplug_controllers_problems{controller="one"}'] == 0
        assert values['netplug_controllers_failures_in_a_row{controller="one"}'] == 0
        assert 'netplug_controllers_last_success_age_seconds{controller="one"}' in values
        assert not [name for name in values if "collection" in name]
        scene.counts = CollectionCounts(ticks=3, freed=2, candidates=5, idle="locked")
        values = scene.values()
        assert values["netplug_controllers_collection_freed_addresses_total"] == 2
        assert values["netplug_controllers_collection_candidates"] == 5
        assert values["netplug_controllers_collection_idle"] == 1
        scene.vote.is_leading = False
        assert not [name for name in scene.values() if "collection" in name]
        assert scene.values()["netplug_controllers_leader"] == 0
    finally:
        scene.runtime.stop(EMERGENCY_STOP_S)


def running(**settings: Any) -> RunningControllers:  # noqa: ANN401 - settings of many types
    spec = evolve(default_configuration(CopySource.DATASTORE).spec, **settings)
    return find_running_controllers(spec, {}, CopySource.DATASTORE)


def test_probes_and_metrics_can_be_switched_off() -> None:
    scene = Scene()
    assert scene.answer("/livez")[0] == 503
    scene.running = running()
    assert scene.answer("/livez")[0] == 503
    assert scene.answer("/metrics")[0] == 200
    scene.running = running(health_checks=Switch.DISABLED, metrics_port=0)
    assert scene.answer("/livez") == (200, "ok\n")
    assert scene.answer("/readyz") == (200, "ok\n")
    assert scene.answer("/metrics") == (404, "prometheusMetricsPort is 0: there are no metrics\n")


def ask(port: int) -> str:
    """The metrics at a port; empty if nobody listens there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=EMERGENCY_STOP_S) as answer:
            return answer.read().decode()  # type: ignore[no-any-return]
    except urllib.error.URLError:
        return ""


def test_metrics_are_shown_at_the_port_of_the_settings() -> None:
    clock, log, ports = ManualClock(), Lines(), (reserve_port(), reserve_port())
    settings: list[RunningControllers | None] = [None]
    own = MetricsPort(find_running=lambda: settings[0], render=lambda: b"one 1\n", log=log)
    loop = ControllerLoop(own.controller(), clock, log, chance=lambda: 0.0)

    def use(found: RunningControllers) -> None:
        settings[0] = found
        loop.wake()
        clock.sleep(1.0)
        loop.run_due()

    loop.run_due()
    use(running())
    assert [ask(port) for port in ports] == ["", ""]
    use(running(metrics_port=ports[0]))
    assert [ask(port) for port in ports] == ["one 1\n", ""]
    use(running(metrics_port=ports[1]))
    assert [ask(port) for port in ports] == ["", "one 1\n"]
    with socket.create_server(("127.0.0.1", ports[0])):
        use(running(metrics_port=ports[0]))
        (problem,) = loop.health.problems
        assert problem.cause.startswith(f"prometheusMetricsPort: 127.0.0.1:{ports[0]}: ")
    use(running())
    assert [ask(port) for port in ports] == ["", ""]
    own.close()


def test_arguments_have_defaults_and_wrong_ones_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_arguments([]).health_port == 9094
    assert parse_arguments(["--health-port", "9200"]).health_port == 9200
    for wrong in ("0", "65536", "x", "-1"):
        with pytest.raises(SystemExit) as refused:
            parse_arguments([f"--health-port={wrong}"])
        assert refused.value.code == 2
        assert "a number from 1 to 65535 is" in capsys.readouterr().err


@pytest.mark.parametrize(
    "environ, text",
    [
        ({"DATASTORE_TYPE": "sqlite"}, "DATASTORE_TYPE: 'sqlite' is not accepted; etcdv3 or kubernetes is"),
        ({"DATASTORE_TYPE": "kubernetes", "LOG_LEVEL": "loud"}, "LOG_LEVEL: 'loud' is not accepted; one of "),
    ],
)
def test_a_wrong_environment_ends_the_process_with_one_line(
    environ: dict[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([], environ) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"netplug-controllers: {text}")
    assert said.count("\n") == 1
