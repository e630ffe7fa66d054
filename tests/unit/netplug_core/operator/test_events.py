"""Events: one for each change, with what to do, and none while everything stays as it is."""

from __future__ import annotations

import pytest

from netplug_cli.operator.world import INSTALLATION
from netplug_core.cni.plugins import PLUGINS_FOUND, PLUGINS_MISSING, MissingPlugin, NeededPlugin
from netplug_core.errors import Unavailable
from netplug_core.operator.state import Json
from netplug_core.operator.status import Event, event_of_plugins, event_of_problem, ref_of_event, render_event
from netplug_core.reconcile.controller import Problem
from tests.harness.installations import manifest, network
from tests.harness.operator_scene import Scene

POOL = {"cidr": "10.244.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}
OTHER = {**POOL, "cidr": "10.245.0.0/16", "name": "other"}
SPEC = network(ipPools=[POOL])
ACTS = ("Normal", "OperatorActs", "an operator process has the Lease, and acts from now on")
READY = ("Normal", "AllObjectsAvailable", "everything of release 1.2.3 is there, and every node is ready")
NAMED = "IPPool other (10.245.0.0/16)"


@pytest.fixture
def scene() -> Scene:
    """A cluster with an Installation that is ready, and no Event yet."""
    made = Scene.ready(SPEC)
    made.cluster.events.clear()
    return made


def events(scene: Scene) -> list[tuple[str, str, str]]:
    """The Events since the last question, without those about who acts: each test starts new operators."""
    found = [(str(one["type"]), str(one["reason"]), str(one["message"])) for one in scene.cluster.events.values()]
    scene.cluster.events.clear()
    return [one for one in found if one != ACTS]


def test_an_installation_that_comes_up() -> None:
    scene = Scene.ready(SPEC)
    assert [reason for _, reason, _ in events(scene)] == ["PoolCreated", "AllObjectsAvailable"]


def test_who_acts_is_said_by_each_process_once(scene: Scene) -> None:
    scene.settle()
    scene.settle()
    (found,) = scene.cluster.events.values()
    assert (found["type"], found["reason"], found["message"], found["count"]) == (*ACTS, 2)


def test_while_nothing_changes_there_is_none(scene: Scene) -> None:
    scene.settle()
    assert events(scene) == []


def test_a_pool_that_comes_and_goes(scene: Scene) -> None:
    scene.cluster.install(network(ipPools=[POOL, OTHER]))
    scene.settle()
    assert events(scene) == [("Normal", "PoolCreated", f"{NAMED}: no pool has this CIDR"), READY]
    scene.cluster.install(SPEC)
    scene.settle()
    (kind, reason, message), ready = events(scene)
    assert (kind, reason, ready) == ("Normal", "PoolDeleted", READY)
    assert message.startswith(f"{NAMED}: ")


def test_a_mistake_says_what_to_do_once_and_again_when_it_is_another_one(scene: Scene) -> None:
    scene.cluster.install(network(ipPools=[POOL], mtu=70000))
    scene.settle()
    scene.settle()
    ((kind, reason, message),) = events(scene)
    assert (kind, reason) == ("Warning", "InvalidConfigurationError")
    assert message.endswith("\nCorrect the Installation; netplugctl install validate shows every mistake.")
    scene.cluster.install(network(ipPools=[POOL], mtu=80000))
    scene.settle()
    assert "80000" in events(scene)[0][2]
    scene.cluster.install(SPEC)
    scene.settle()
    assert events(scene) == [
        ("Normal", "AllObjectsAvailable", "everything of release 1.2.3 is there, and every node is ready")
    ]


def test_a_text_that_changes_while_the_problem_stays_is_no_new_event(scene: Scene) -> None:
    def pod(number: int) -> Json:
        waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "name": "node"}
        return {"metadata": {"name": f"pod-{number}"}, "spec": {}, "status": {"containerStatuses": [waiting]}}

    scene.cluster.roll_out(available=0)
    scene.cluster.pods = (pod(1),)
    scene.settle()
    ((_, reason, message),) = events(scene)
    assert reason == "PodFailure"
    assert message.endswith("\nLook at these pods: kubectl describe pods -n netplug-system.")
    scene.cluster.pods = (pod(2),)
    scene.settle()
    assert "pod-2" in scene.condition("Degraded")[2]
    assert events(scene) == []


def test_an_event_that_is_refused_holds_nothing_up(scene: Scene) -> None:
    scene.cluster.install(network(ipPools=[POOL, OTHER]))
    event = Event(reason="PoolCreated", message=f"{NAMED}: no pool has this CIDR")
    ref = ref_of_event(event, scene.cluster.objects[INSTALLATION])
    scene.cluster.refused[f"replace {ref}"] = Unavailable("events", "a right is missing")
    scene.settle()
    assert events(scene) == [READY]
    assert [pool.metadata.name for pool in scene.pools.pools] == ["default-ipv4-ippool", "other"]
    assert scene.condition("Degraded")[0] == "False"


def test_the_object_of_an_event_and_the_same_once_more() -> None:
    installation: Json = {**manifest({}), "metadata": {"name": "default", "uid": "u1"}}
    event = Event(reason="PodFailure", message="x" * 2000, is_warning=True)
    first = render_event(event, installation, None, identity="operator-1", now="2026-01-01T00:00:00Z")
    assert first["metadata"] == {"name": ref_of_event(event, installation).name, "namespace": "default"}
    assert first["involvedObject"] == {
        "apiVersion": "operator.projectnetplug.org/v1",
        "kind": "Installation",
        "name": "default",
        "uid": "u1",
    }
    assert (first["type"], first["reason"], first["count"]) == ("Warning", "PodFailure", 1)
    assert first["message"] == "x" * 1000
    stored = {
        **first,
        "metadata": {"name": ref_of_event(event, installation).name, "namespace": "default", "resourceVersion": "7"},
    }
    again = render_event(event, installation, stored, identity="operator-2", now="2026-01-01T00:01:00Z")
    assert again["metadata"] == stored["metadata"]
    assert (again["count"], again["firstTimestamp"], again["lastTimestamp"]) == (
        2,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:01:00Z",
    )


def test_a_problem_of_a_node_is_a_warning_of_the_node_process() -> None:
    problem = Problem(message="the address is not registered", cause="the node b has it", event="AddressConflict")
    assert event_of_problem(problem) == Event(
        reason="AddressConflict",
        message="the address is not registered: the node b has it",
        is_warning=True,
        component="netplug-node",
    )


def test_the_same_text_about_another_installation_is_another_object() -> None:
    event = Event(reason="PoolCreated", message="IPPool a")
    names = {ref_of_event(event, {"metadata": {"name": "default", "uid": uid}}).name for uid in ("u1", "u2")}
    assert len(names) == 2


def test_a_first_pool_of_a_second_family_is_said_once(scene: Scene) -> None:
    six = {"cidr": "fd00::/112", "name": "six", "encapsulation": "None", "natOutgoing": "Disabled"}
    scene.cluster.install(network(ipPools=[POOL, six]))
    scene.settle()
    text = (
        "the cluster has its first pool of IPv6: new pods get such an address too, and the pods of netplug-node are "
        "replaced on every node"
    )
    assert ("Normal", "FamilyAdded", text) in events(scene)
    scene.cluster.install(network(ipPools=[POOL, six], mtu=1400))
    scene.settle()
    assert "FamilyAdded" not in [reason for _, reason, _ in events(scene)]


def test_with_host_local_no_family_is_added() -> None:
    scene = Scene.ready(network(cni={"type": "Netplug", "ipam": {"type": "HostLocal"}}))
    scene.cluster.events.clear()
    scene.cluster.install(network(cni={"type": "Netplug", "ipam": {"type": "HostLocal"}}, mtu=1400))
    scene.settle()
    assert "FamilyAdded" not in [reason for _, reason, _ in events(scene)]


def test_plugins_that_a_host_lacks_and_that_are_there_again() -> None:
    missing = MissingPlugin(
        plugin=NeededPlugin("portmap", "/etc/cni/net.d/10-netplug.conflist"), folders=("/opt/cni/bin",)
    )
    lacking = event_of_plugins((missing,))
    assert (lacking.reason, lacking.is_warning) == (PLUGINS_MISSING, True)
    assert lacking.message == (
        "each start of a pod on this node fails: portmap is not in /opt/cni/bin: "
        "/etc/cni/net.d/10-netplug.conflist names it, so no pod starts without it"
    )
    there = event_of_plugins(())
    assert (there.reason, there.message, there.is_warning) == (PLUGINS_FOUND, "no plugin is missing any more", False)
