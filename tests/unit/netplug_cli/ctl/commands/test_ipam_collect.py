"""``ipam collect``: what it prints, when it acts, and how it exits."""

import json
from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.orchestrator.model import POD, PodFacts
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import LostRequest
from tests.harness.ctl import ToolHarness

PREFIX, GONE = Prefix.parse("10.65.0.0/26"), Prefix.parse("10.65.0.64/26")
LOST = "free the addresses of handle net.b: 10.65.0.64 of pod shop/db on node b (its pod does not exist)"
RELINQUISHED = "relinquish the affinity of host:b for block 10.65.0.64/26: the node is gone"
WEB = "10.65.0.0 of pod shop/web on node a (its pod does not exist)"


class SleepingClock(ManualClock):
    """A clock on which something happens when so long was slept."""

    def __init__(self, slept_s: float, act: Callable[[], None]) -> None:
        super().__init__()
        self._acts = [(self.monotonic() + slept_s, act)]

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        while self._acts and self.monotonic() >= self._acts[0][0]:
            self._acts.pop()[1]()


def block(prefix: Prefix, node: str, pod: str, handle: str) -> tuple[Create[object], ...]:
    owner = (("namespace", "shop"), ("node", node), ("pod", pod))
    made = Block.new(prefix, owner=f"host:{node}", now_ns=1)
    made = made.assign((Ordinal(0),), Attribute(handle=handle, owner=owner))
    return (
        Create(made.key, made),
        Create(handle_key(handle), Handle(blocks=((prefix, 1),))),
        Create(affinity_key(f"host:{node}", prefix), Affinity(state=AffinityState.CONFIRMED)),
    )


@pytest.fixture(params=MemoryMode)
def leaking(request: pytest.FixtureRequest, harness: ToolHarness) -> ToolHarness:
    """A pod that is gone, another that is gone with its node, and a handle that holds nothing."""
    harness.store = MemoryDatastore(request.param, clock=harness.clock)
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/16")))
    harness.store_records(
        *block(PREFIX, "a", "web", "net.a"),
        *block(GONE, "b", "db", "net.b"),
        Create(handle_key("left"), Handle(blocks=((PREFIX, 1),))),
        Create(node_key("a"), Node(metadata=Metadata(name="a"))),
    )
    return harness


@pytest.fixture
def cluster(leaking: ToolHarness) -> ToolHarness:
    """The same in a store that shows pods."""
    leaking.store.description = evolve(leaking.store.description, endpoints=EndpointStorage.PODS)
    return leaking


def test_one_look_changes_nothing(cluster: ToolHarness) -> None:
    for _time in range(2):
        assert cluster.run_command("ipam", "collect") == 0
        assert cluster.out.splitlines() == [
            f"would {LOST}",
            f"would {RELINQUISHED}",
            f"waits for the grace period, or for other addresses of its handle: {WEB}",
            "waits for the grace period: IPAMHandle(left) looks abandoned",
            "Would free 1 addresses in 2 actions; 2 candidates wait.",
        ]
        assert cluster.err == ""


def test_apply_does_what_is_due(cluster: ToolHarness) -> None:
    assert cluster.run_command("ipam", "collect", "--apply") == 0
    assert cluster.out.splitlines()[:2] == [f"done: {LOST}", f"done: {RELINQUISHED}"]
    assert cluster.out.endswith("Freed 1 addresses in 2 actions; 2 candidates wait.\n")
    assert cluster.run_command("ipam", "show", "--ip", "10.65.0.64") == 0
    assert cluster.out == "10.65.0.64 is not assigned\n"
    assert cluster.run_command("ipam", "collect", "--apply") == 0
    assert cluster.out.endswith("Freed 0 addresses in 0 actions; 2 candidates wait.\n")


def test_wait_takes_the_grace_period(cluster: ToolHarness) -> None:
    began = cluster.clock.monotonic()
    assert cluster.run_command("ipam", "collect", "--apply", "--wait", "15m") == 0
    assert cluster.clock.monotonic() - began == 900
    assert cluster.out.endswith("Freed 2 addresses in 4 actions; 0 candidates wait.\n")
    assert cluster.err == "netplugctl: looking again until the grace period of 15m has passed\n"
    assert cluster.run_command("ipam", "check") == 0


def test_a_pod_that_comes_while_it_waits_keeps_its_address(cluster: ToolHarness) -> None:
    came = Create(POD.key("shop", "web"), PodFacts(namespace="shop", name="web", uid="", node="a"))
    cluster.clock = SleepingClock(110, lambda: cluster.store_records(came))
    assert cluster.run_command("ipam", "collect", "--apply", "--wait", "2m") == 0
    assert "10.65.0.0" not in cluster.out
    assert cluster.out.endswith("Freed 1 addresses in 3 actions; 0 candidates wait.\n")


def test_without_pods_no_address_is_judged(leaking: ToolHarness) -> None:
    assert leaking.run_command("ipam", "collect", "--apply") == 0
    assert leaking.out.splitlines() == [
        "waits for the grace period: IPAMHandle(left) looks abandoned",
        "not known whether in use: 2 addresses (there is no orchestrator that knows its pod or node)",
        "Freed 0 addresses in 0 actions; 1 candidates wait.",
    ]


def test_a_locked_datastore_is_left_alone(cluster: ToolHarness) -> None:
    cluster.set_locked()
    for options in ((), ("--apply",), ("--apply", "--wait", "2m")):
        assert cluster.run_command("ipam", "collect", *options) == 1
        assert cluster.out == ""
        assert cluster.err.endswith(
            "netplugctl: ipam collect: nothing is collected: ClusterInformation default: spec.datastoreReady is false\n"
        )


def test_json(cluster: ToolHarness) -> None:
    assert cluster.run_command("ipam", "collect", "--apply", "-o", "json") == 0
    found = json.loads(cluster.out)
    assert [(each["text"], each["result"]) for each in found["actions"]] == [(LOST, "done"), (RELINQUISHED, "done")]
    (freed,) = found["freed"]
    assert (freed["ip"], freed["handle"], freed["reason"]) == ("10.65.0.64", "net.b", "its pod does not exist")
    assert found["candidates"] == [WEB, "IPAMHandle(left)"]
    assert (found["applied"], found["postponed"], found["undetermined"], found["unreadable"]) == (True, 0, [], [])


def test_a_failure_is_said_and_the_status_is_1(cluster: ToolHarness) -> None:
    cluster.faults = {1: LostRequest()}
    assert cluster.run_command("ipam", "collect", "--apply", "-o", "json") == 1
    assert cluster.err.startswith(f"netplugctl: could not {LOST}: ")
    (failed, *_rest) = json.loads(cluster.out)["actions"]
    assert (failed["result"], failed["text"]) == ("failed", LOST)


def test_a_grace_period_of_less_than_an_add_is_refused(cluster: ToolHarness) -> None:
    assert cluster.run_command("ipam", "collect", "--wait", "1m") == 2
    assert "a grace period of at least 2m is expected" in cluster.err
