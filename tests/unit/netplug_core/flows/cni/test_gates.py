"""The waits of an ADD: readiness gates before anything else, and policy after everything else, without any lock."""

from collections.abc import Callable

import pytest
from attrs import define, evolve, field

from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.errors import UnhealthyStatus
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.workload.endpoint import WorkloadIdentity
from netplug_core.workload.gates import EndpointStatus, GateNotReady, ProbeResult, render_status, status_file_of
from tests.harness.cni_node import (
    DEFAULT_CONTAINER,
    DUAL_STACK,
    NO_ANSWER,
    NODE,
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


# --- policy ----------------------------------------------------------------------------------------------------------


def identity(container: ContainerInterface = WORKLOAD) -> WorkloadIdentity:
    return WorkloadIdentity(
        node=NODE,
        network="net1",
        container_id=container.id,
        interface=container.ifname,
        pod="test-pod-1",
        pod_namespace="test",
    )


PATH = f"{NetConf().endpoint_status_dir}/{status_file_of(identity())}"


def write_status(harness: CNINodeHarness, *addresses: str, container: ContainerInterface = WORKLOAD) -> None:
    """What the node process writes when the policy of an endpoint is programmed."""
    status = EndpointStatus.of(identity(container), tuple(map(Address.parse, addresses)))
    harness.host.texts[PATH] = render_status(status)


def at(harness: CNINodeHarness, seconds: float, act: Callable[[], object]) -> None:
    """Let the node process do something when so many seconds have passed; no lock is held at any look at the file."""

    def look(path: str) -> None:
        if path == PATH:
            assert harness.host.locks.held == frozenset()
            if harness.clock.monotonic() >= seconds:
                act()

    harness.host.before_read = look


def held_addresses(harness: CNINodeHarness) -> list[str]:
    return [str(address) for address in harness.allocations()]


def warnings(harness: CNINodeHarness) -> list[tuple[str, object]]:
    return [(text, fields["cause"]) for level, text, fields in harness.log.lines if level is Level.WARNING]


LATE = "policy is not programmed in time: the pod starts without it"


def test_check_97_the_pod_starts_when_its_policy_is_programmed(harness: CNINodeHarness) -> None:
    at(harness, 1.0, lambda: write_status(harness, *held_addresses(harness)))
    added = harness.add(WORKLOAD, ipam=DUAL_STACK, policy_setup_timeout_seconds=3)
    assert 1.0 <= harness.clock.monotonic() < 1.2
    assert len(added.ips) == 2
    assert warnings(harness) == []
    assert harness.log.of(Level.INFO)[-2:] == ["waiting for policy", "policy is programmed"]


def test_policy_that_is_programmed_already_is_not_waited_for(harness: CNINodeHarness) -> None:
    at(harness, 0.0, lambda: write_status(harness))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0
    assert "waiting for policy" not in harness.log.of(Level.INFO)


def test_check_97_after_the_time_the_pod_starts_with_a_warning(harness: CNINodeHarness) -> None:
    at(harness, 0.0, lambda: None)
    harness.add(WORKLOAD, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == pytest.approx(3.0, abs=1e-6)
    assert warnings(harness) == [(LATE, "there is no such file")]
    assert len(harness.endpoints()) == 1


@pytest.mark.parametrize(
    "found, cause",
    [
        ("", "it is not whole, or not JSON"),
        ('{"containerID": "c1", "ifaceNa', "it is not whole, or not JSON"),
        (IsADirectoryError(21, "Is a directory"), "[Errno 21] Is a directory"),
        (OSError(27, "larger than 1048576 bytes"), "[Errno 27] larger than 1048576 bytes"),
    ],
)
def test_a_file_that_says_nothing_is_as_none(harness: CNINodeHarness, found: str | OSError, cause: str) -> None:
    harness.host.texts[PATH] = found
    harness.add(WORKLOAD, policy_setup_timeout_seconds=1)
    assert warnings(harness) == [(LATE, cause)]


def test_the_file_of_an_earlier_container_of_the_pod_is_waited_out(harness: CNINodeHarness) -> None:
    write_status(harness, container=ContainerInterface(id="c0"))
    at(harness, 2.0, lambda: write_status(harness))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=5)
    assert 2.0 <= harness.clock.monotonic() < 2.2
    harness.run("DEL", WORKLOAD)
    harness.host.texts[PATH] = render_status(EndpointStatus.of(identity(ContainerInterface(id="c0")), ()))
    at(harness, 99.0, lambda: None)
    harness.add(WORKLOAD, policy_setup_timeout_seconds=5)
    assert warnings(harness) == [(LATE, "it names the container 'c0'")]


def test_the_file_of_an_earlier_attachment_of_the_container_is_waited_out(harness: CNINodeHarness) -> None:
    write_status(harness, "10.65.0.99")
    harness.add(WORKLOAD, policy_setup_timeout_seconds=1)
    (address,) = held_addresses(harness)
    assert warnings(harness) == [(LATE, f"it does not have the address {address}/32")]


@pytest.mark.parametrize("container", [DEFAULT_CONTAINER, ContainerInterface(ifname="eth1")], ids=["eth0", "eth1"])
def test_a_container_that_is_no_pods_is_not_held_back(harness: CNINodeHarness, container: ContainerInterface) -> None:
    harness.add(container, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0
    assert harness.log.of(Level.WARNING) == []


def test_an_interface_without_an_endpoint_is_not_held_back(harness: CNINodeHarness) -> None:
    harness.memory.description = evolve(harness.memory.description, endpoints=EndpointStorage.PODS)
    harness.add(ContainerInterface(ifname="eth1", args=POD), policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0


def test_the_folder_of_the_configuration_counts(harness: CNINodeHarness) -> None:
    write_status(harness)
    harness.host.texts = {
        path.replace(NetConf().endpoint_status_dir, "/s"): x for path, x in harness.host.texts.items()
    }
    harness.add(WORKLOAD, policy_setup_timeout_seconds=3, endpoint_status_dir="/s")
    assert harness.clock.monotonic() == 0.0


def test_a_time_beyond_all_bounds_is_served(harness: CNINodeHarness) -> None:
    at(harness, 1.0, lambda: write_status(harness))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=10**400)
    assert 1.0 <= harness.clock.monotonic() < 1.2


def test_a_delete_during_the_wait_is_not_kept_away(harness: CNINodeHarness) -> None:
    at(harness, 1.0, lambda: harness.run("DEL", WORKLOAD))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=2)
    harness.host.before_read = lambda _path: None
    assert harness.clock.monotonic() == pytest.approx(2.0, abs=1e-6)
    harness.assert_nothing_left()


def test_no_other_command_is_held_back(harness: CNINodeHarness) -> None:
    added = harness.add(WORKLOAD)
    harness.check(WORKLOAD, added, policy_setup_timeout_seconds=3)
    harness.run("STATUS", WORKLOAD, policy_setup_timeout_seconds=3)
    harness.run("DEL", WORKLOAD, policy_setup_timeout_seconds=3)
    harness.run("ADD", ContainerInterface(id="c2", args=POD), Plugin.IPAM, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0
