"""A test of connectivity by pods: what is made, awaited and removed, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import Factory, define, evolve
from click.testing import CliRunner

from netplug_cli.lab.commands import make_connectivity_group
from netplug_cli.lab.pods import PodTest, ask_by_pods
from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.dataplane.connectivity import RunningPod, UsableNode
from netplug_core.decoding.tables import find_member
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.testing.clock import ManualClock
from tests.harness.lab import LabHarness, RecordedProgress

NODES = tuple(
    UsableNode(name=f"node-{number}", addresses=(Address.parse(f"192.0.2.{number}"),)) for number in range(1, 5)
)
WANTED = PodTest(namespace="ns", image="image", timeout_s=5.0)


def runs(pod: RunningPod) -> RunningPod:
    """A kubelet that runs every pod at once: one that asks hears each answer after 1 ms."""
    if pod.name.startswith("server-"):
        return evolve(pod, phase="Running", addresses=(Address.parse(f"10.0.0.{pod.name[-1]}"),))
    return evolve(pod, phase="Succeeded", message=json.dumps([1.0] * len(json.loads(pod.message))))


@define
class ClusterInMemory:
    """A cluster whose pods a function runs. ``removed`` are the namespaces that were removed."""

    kubelet: Callable[[RunningPod], RunningPod] = runs
    nodes: tuple[UsableNode, ...] = NODES
    image: str = "netplug/node:v1"
    pods: dict[str, RunningPod] = Factory(dict)
    images: set[str] = Factory(set)
    namespaces: list[str] = Factory(list)
    removed: list[str] = Factory(list)

    def find_image(self, *, deadline: Deadline) -> str:
        assert not deadline.has_passed
        return self.image

    def list_nodes(self, *, deadline: Deadline) -> tuple[UsableNode, ...]:
        assert not deadline.has_passed
        return self.nodes

    def make_namespace(self, name: str, *, deadline: Deadline) -> None:
        assert not deadline.has_passed
        self.namespaces.append(name)

    def make(self, document: Mapping[str, object], *, deadline: Deadline) -> None:
        assert not deadline.has_passed
        if document["kind"] != "Pod":
            return
        containers = find_member(document, "spec", "containers")
        assert isinstance(containers, list)
        self.images.add(containers[0]["image"])
        name, node = str(find_member(document, "metadata", "name")), str(find_member(document, "spec", "nodeName"))
        self.pods[name] = RunningPod(name=name, node=node, phase="Pending", message=containers[0]["command"][-1])

    def list_pods(self, namespace: str, *, deadline: Deadline) -> tuple[RunningPod, ...]:
        assert namespace in self.namespaces
        assert deadline is not None
        return tuple(map(self.kubelet, self.pods.values()))

    def find_service_addresses(self, namespace: str, name: str, *, deadline: Deadline) -> tuple[Address, ...]:
        assert (namespace, name) == (self.namespaces[-1], "answering")
        assert not deadline.has_passed
        return (Address.parse("10.96.0.1"),)

    def remove_namespace(self, name: str, *, deadline: Deadline) -> None:
        assert not deadline.has_passed
        self.removed.append(name)


def ask(cluster: ClusterInMemory, wanted: PodTest = WANTED) -> list[tuple[str, str, str]]:
    found = ask_by_pods(cluster, wanted, clock=ManualClock(), progress=RecordedProgress())
    return [(one.path.source, one.path.target, one.failure) for one in found]


def test_each_pod_asks_pods_nodes_and_the_service_and_all_is_removed() -> None:
    cluster = ClusterInMemory()
    found = ask(cluster, evolve(WANTED, node_count=2, outside=("198.51.100.1:53",)))
    targets = ("server-1", "server-2", "node-1", "node-2", "answering", "198.51.100.1:53")
    assert found == [(source, target, "") for source in ("client-1", "client-2") for target in targets]
    assert (cluster.namespaces, cluster.removed, cluster.images) == (["ns"], ["ns"], {"image"})


def test_it_says_how_many_pods_are_awaited() -> None:
    looks = iter([0, 1, 2])

    def slow(pod: RunningPod) -> RunningPod:
        """Of the answering pods one more runs with each look."""
        return runs(pod) if pod.name.startswith("client-") or int(pod.name[-1]) <= seen[0] else pod

    @define
    class Looking(ClusterInMemory):
        def list_pods(self, namespace: str, *, deadline: Deadline) -> tuple[RunningPod, ...]:
            seen[0] = next(looks, 2)
            return super().list_pods(namespace, deadline=deadline)

    seen, progress = [0], RecordedProgress()
    ask_by_pods(Looking(kubelet=slow), evolve(WANTED, node_count=2), clock=ManualClock(), progress=progress)
    assert progress.counts == [("pods that answer, of image", 0, 2), ("pods that answer, of image", 1, 2)]


def test_the_image_is_that_of_our_own_pods_unless_one_is_named() -> None:
    cluster = ClusterInMemory()
    ask(cluster, evolve(WANTED, image=""))
    assert cluster.images == {"netplug/node:v1"}
    cluster.image = ""
    with pytest.raises(ConfigurationError, match="--image"):
        ask(cluster, evolve(WANTED, image=""))


def test_a_cluster_without_a_usable_node_is_refused_and_nothing_is_made() -> None:
    cluster = ClusterInMemory(nodes=())
    with pytest.raises(ConfigurationError, match="no node with Linux"):
        ask(cluster)
    assert cluster.namespaces == []


def test_pods_that_do_not_run_in_time_are_named_with_why() -> None:
    def broken(pod: RunningPod) -> RunningPod:
        if pod.node == "node-1":
            return evolve(pod, problem="main: ImagePullBackOff", message="")
        return evolve(pod, phase="Running", message="")

    cluster = ClusterInMemory(kubelet=broken)
    with pytest.raises(Unavailable) as caught:
        ask(cluster, evolve(WANTED, node_count=2))
    assert "server-1 on node-1 is Pending: main: ImagePullBackOff" in str(caught.value)
    assert "server-2 on node-2 is Running: it has no address yet" in str(caught.value)
    assert cluster.removed == ["ns"]


def test_a_server_that_ended_is_not_awaited() -> None:
    cluster = ClusterInMemory(kubelet=lambda pod: evolve(pod, phase="Failed", message="no python3"))
    with pytest.raises(Unavailable, match="server-1 on node-1 is Failed: no python3"):
        ask(cluster)


def test_ctrl_c_removes_the_namespace() -> None:
    def interrupt(pod: RunningPod) -> RunningPod:
        raise KeyboardInterrupt

    cluster = ClusterInMemory(kubelet=interrupt)
    with suppress(KeyboardInterrupt):
        ask(cluster)
    assert cluster.removed == ["ns"]


def test_the_command_tests_the_cluster_that_is_configured(tmp_path: Path) -> None:
    harness = LabHarness(tmp_path)
    harness.pods, harness.environ = ClusterInMemory(), {"DATASTORE_TYPE": "kubernetes"}
    group = make_connectivity_group(lambda _context: harness.world())
    done = CliRunner().invoke(group, ["test", "--nodes", "1"], standalone_mode=False)
    assert (done.return_value, done.stdout.splitlines()[-1]) == (0, "All 3 paths work.")
    assert harness.progress.lines == ["namespace netplug-connectivity-test is being removed"]
    done = CliRunner().invoke(group, ["test", "-o", "json"], standalone_mode=False)
    assert (done.return_value, done.stdout) == (0, "json: 21 paths\n")
    refused = CliRunner().invoke(group, ["test", "--lab", "none-such"])
    assert "no lab is up in" in refused.output


def test_paths_that_do_not_work_are_exit_1(tmp_path: Path) -> None:
    def deaf(pod: RunningPod) -> RunningPod:
        done = runs(pod)
        return done if done.phase == "Running" else evolve(done, message='[1.0, "no answer", 2.0, 3.0, 4.0]')

    harness = LabHarness(tmp_path)
    harness.pods, harness.environ = ClusterInMemory(kubelet=deaf), {"DATASTORE_TYPE": "kubernetes"}
    group = make_connectivity_group(lambda _context: harness.world())
    done = CliRunner().invoke(group, ["test", "--nodes", "2"], standalone_mode=False)
    assert (done.return_value, done.stdout.splitlines()[-1]) == (1, "2 of 10 paths do not work.")
    assert "client-1 to server-2 over IPv4 (10.0.0.2): no answer" in harness.progress.warnings
