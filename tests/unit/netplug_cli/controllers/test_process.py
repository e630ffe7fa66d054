"""The command line of the controllers, and what the process says of itself."""

from __future__ import annotations

import pytest

from netplug_cli.controllers.collection import CollectionCounts
from netplug_cli.controllers.metrics import ControllersMetrics
from netplug_cli.controllers.process import controllers_pages, parse_arguments
from netplug_cli.runtime.controllers import Runtime
from netplug_cli.wiring.controllers import run
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import Controller, Plan
from netplug_core.testing.clock import ManualClock
from tests.harness.node_server import Lines
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
        self.pages = controllers_pages(self.runtime, self.vote, self.metrics, lambda: self.unready)

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
