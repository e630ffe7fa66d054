"""The waits of an ADD: readiness gates before anything else, and policy after everything else, without any lock."""

from collections.abc import Callable

import pytest
from attrs import define, field

from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.errors import UnhealthyStatus
from netplug_core.log import Level
from netplug_core.workload import GateNotReady, ProbeResult
from tests.harness.cni_node import (
    DEFAULT_CONTAINER,
    NO_ANSWER,
    POD,
    CNINodeHarness,
    ContainerInterface,
)

FIRST, SECOND = "http://127.0.0.1:1/first", "http://127.0.0.1:2/second"
READY, BUSY = ProbeResult(status=204), ProbeResult(status=503)
WORKLOAD = ContainerInterface(args=POD)


@define
class GateServers:
    """URLs whose answers are scripted, one after the other; the last one stays. Each takes so many seconds."""

    harness: CNINodeHarness
    answers: dict[str, list[ProbeResult]]
    seconds: float = 0.0
    asked: list[tuple[float, str]] = field(factory=list)
    on_probe: Callable[[], None] = lambda: None

    def __call__(self, url: str, deadline: Deadline) -> ProbeResult:
        self.asked.append((self.harness.clock.monotonic(), url))
        self.on_probe()
        if self.seconds > deadline.remaining_s:
            self.harness.clock.sleep(deadline.remaining_s)
            return ProbeResult(problem="no answer in time")
        self.harness.clock.sleep(self.seconds)
        left = self.answers[url]
        return left.pop(0) if len(left) > 1 else left[0]


def serve_gates(harness: CNINodeHarness, seconds: float = 0.0, **answers: list[ProbeResult]) -> GateServers:
    by_url = {{"first": FIRST, "second": SECOND}[name]: list(scripted) for name, scripted in answers.items()}
    servers = GateServers(harness, by_url, seconds)
    harness.host.answer_probe = servers
    return servers


def waits(harness: CNINodeHarness) -> list[str]:
    """Gate and answer of each line about a gate."""
    return [f"{fields['gate']}: {fields['answer']}" for _, text, fields in harness.log.lines if "gate" in text]


# --- readiness gates -------------------------------------------------------------------------------------------------


def test_check_95_ready_gates_cost_no_time_and_are_asked_once_each_in_their_order(harness: CNINodeHarness) -> None:
    servers = serve_gates(harness, first=[READY], second=[READY])
    harness.add(readiness_gates=[FIRST, SECOND])
    assert servers.asked == [(0.0, FIRST), (0.0, SECOND)]
    assert waits(harness) == []


def test_check_95_gates_are_asked_before_anything_is_read_or_locked(harness: CNINodeHarness) -> None:
    servers = serve_gates(harness, first=[BUSY, READY])
    before = harness.memory.calls.reads
    seen = []
    servers.on_probe = lambda: seen.append((harness.memory.calls.reads - before, len(harness.host.locks.taken)))
    harness.add(WORKLOAD, readiness_gates=[FIRST])
    assert seen == [(0, 0), (0, 0)]
    assert harness.memory.calls.reads > before


def test_check_96_a_gate_is_polled_every_five_seconds_until_it_is_ready(harness: CNINodeHarness) -> None:
    servers = serve_gates(harness, first=[BUSY, BUSY, NO_ANSWER, READY], second=[READY])
    harness.add(readiness_gates=[FIRST, SECOND])
    assert servers.asked == [(0.0, FIRST), (5.0, FIRST), (10.0, FIRST), (15.0, FIRST), (15.0, SECOND)]
    shown = f"readiness_gates[0] {FIRST}"
    assert waits(harness) == [f"{shown}: status 503", f"{shown}: status 503", f"{shown}: Connection refused"]
    assert {level for level, text, _ in harness.log.lines if "gate" in text} == {Level.ERROR}


def test_check_96_a_dead_gate_is_code_11_after_30_seconds_and_nothing_is_held(harness: CNINodeHarness) -> None:
    servers = serve_gates(harness, first=[READY], second=[NO_ANSWER, BUSY])
    with pytest.raises(GateNotReady) as refused:
        harness.add(readiness_gates=[FIRST, SECOND])
    assert str(refused.value) == (
        f"readiness_gates[1] {SECOND}: it is not ready within 30 s; its last answer: status 503"
    )
    assert refused.value.code == 11
    assert harness.clock.monotonic() == 30.0
    assert len(servers.asked) == 7
    harness.assert_nothing_left()


def test_gates_share_one_deadline(harness: CNINodeHarness) -> None:
    serve_gates(harness, first=[BUSY] * 5 + [READY], second=[BUSY])
    with pytest.raises(GateNotReady, match=r"readiness_gates\[1\]"):
        harness.add(readiness_gates=[FIRST, SECOND])
    assert harness.clock.monotonic() == 30.0


def test_a_gate_for_which_no_time_is_left_is_named(harness: CNINodeHarness) -> None:
    servers = serve_gates(harness, seconds=3.75, first=[READY], second=[READY])
    with pytest.raises(GateNotReady) as refused:
        harness.add(readiness_gates=[FIRST] * 8 + [SECOND])
    assert str(refused.value) == (
        f"readiness_gates[8] {SECOND}: it is not ready within 30 s; its last answer: it was not asked, because the time"
        " was up"
    )
    assert SECOND not in [url for _, url in servers.asked]


def test_a_silent_gate_is_left_after_five_seconds_and_asked_again_at_once(harness: CNINodeHarness) -> None:
    servers = serve_gates(harness, seconds=60.0, first=[READY])
    with pytest.raises(GateNotReady, match="no answer in time"):
        harness.add(readiness_gates=[FIRST])
    assert [at for at, _ in servers.asked] == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]


def test_no_other_command_waits_for_gates(harness: CNINodeHarness) -> None:
    added = harness.add()
    for plugin in Plugin:
        harness.run("DEL", ContainerInterface(id="c2"), plugin, readiness_gates=[FIRST])
    harness.check(DEFAULT_CONTAINER, added, readiness_gates=[FIRST])
    harness.run("GC", DEFAULT_CONTAINER, Plugin.MAIN, **{"readiness_gates": [FIRST], "cni.dev/valid-attachments": []})
    assert harness.clock.monotonic() == 0.0
    assert waits(harness) == []


def test_status_asks_each_gate_once(harness: CNINodeHarness) -> None:
    servers = serve_gates(harness, first=[READY], second=[BUSY, READY])
    with pytest.raises(UnhealthyStatus) as refused:
        harness.run("STATUS", DEFAULT_CONTAINER, readiness_gates=[FIRST, SECOND])
    assert str(refused.value) == f"readiness_gates[1] {SECOND}: it is not ready; its answer: status 503"
    harness.run("STATUS", DEFAULT_CONTAINER, readiness_gates=[FIRST, SECOND])
    assert [url for _, url in servers.asked] == [FIRST, SECOND] * 2
    assert harness.clock.monotonic() == 0.0
