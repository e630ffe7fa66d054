"""``connectivity test`` on a real API server: a kubelet that is played here runs its pods in namespaces of a node.

The pods are attached by the plugin, so their packets go where those of real pods go. Nothing makes services here: that
the one of the test does not answer is seen, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from attrs import Factory, define

from tests.harness.node import CNIRuntime, NetnsNode
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import make_namespace, make_node
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

NODES = ("asked-1", "asked-2")
NODE_ADDRESS = "10.99.0.1"
_MERGE_PATCH = "application/merge-patch+json"
_DUAL_STACK = {"type": "netplug-ipam", "assign_ipv4": "true", "assign_ipv6": "true"}
_LABEL = "projectnetplug.org/connectivity-test"


@define
class PlayedKubelet:
    """Runs each pod of one namespace, on all nodes, until it is stopped."""

    server: ApiServer
    runtime: CNIRuntime
    namespace: str
    seen: set[str] = Factory(set)
    processes: list[subprocess.Popen[bytes]] = Factory(list)
    threads: list[threading.Thread] = Factory(list)
    stopped: threading.Event = Factory(threading.Event)

    def run(self) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        while not self.stopped.wait(0.05):
            for pod in self.server.get(path)["items"]:  # type: ignore[attr-defined]
                name = pod["metadata"]["name"]
                if name not in self.seen:
                    self.seen.add(name)
                    thread = threading.Thread(target=self._start, args=(pod,))
                    thread.start()
                    self.threads.append(thread)

    def stop(self) -> None:
        self.stopped.set()
        for process in self.processes:
            process.kill()
        for thread in self.threads:
            thread.join()

    def _start(self, pod: Mapping[str, Any]) -> None:
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        namespace = self.runtime.node.make_pod()
        reply = self.runtime.add(self.runtime.make_netconf(ipam=_DUAL_STACK), namespace)
        addresses = [one["address"].partition("/")[0] for one in reply.document["ips"]]  # type: ignore[attr-defined]
        written = self.runtime.node.file(name)
        environ = os.environ | {one["name"]: one["value"] for one in container["env"]} | {"RESULT_FILE": written}
        argv = self.runtime.node.entering(namespace.name, (sys.executable, *container["command"][1:]))
        process = subprocess.Popen(argv, env=environ)
        self.processes.append(process)
        self._report(name, {"phase": "Running", "podIPs": [{"ip": address} for address in addresses]})
        process.wait()
        if process.returncode == 0:
            with open(written, encoding="utf-8") as file:
                ended = {"exitCode": 0, "message": file.read()}
            state = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
            self._report(name, {"phase": "Succeeded", "containerStatuses": [state | {"state": {"terminated": ended}}]})

    def _report(self, name: str, status: Mapping[str, object]) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        self.server.request("PATCH", path, {"status": status}, content_type=_MERGE_PATCH)


@pytest.fixture
def nodes(api_server: ApiServer) -> Iterator[None]:
    """Two ready nodes with the address of the one that plays them."""
    for name in NODES:
        make_node(api_server, name, labels={"kubernetes.io/os": "linux"})
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}],
        }
        api_server.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=_MERGE_PATCH)
        api_server.request(
            "PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None, "unschedulable": None}},
            content_type=_MERGE_PATCH,
        )  # fmt: skip
    yield
    for name in NODES:
        api_server.request("DELETE", f"/api/v1/nodes/{name}")


def asking_command(server: ApiServer, namespace: str) -> list[str]:
    return [
        # A shell lets what it starts in the background, such as these tests, ignore Ctrl-C.
        *("env", "--default-signal=INT", sys.executable, "-m", "netplug_cli.wiring.ctl"),
        *("connectivity", "test", "-o", "json", "--image", "played"),
        *("--namespace", namespace, "--timeout", str(EMERGENCY_STOP_S), "--outside", f"{NODE_ADDRESS}:1"),
    ]


def environment(server: ApiServer) -> dict[str, str]:
    return os.environ | {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": server.write_kubeconfig()}


@pytest.mark.usefixtures("nodes")
def test_pods_of_two_nodes_reach_pods_nodes_and_outside(
    api_server: ApiServer, runtime: CNIRuntime, node: NetnsNode
) -> None:
    node.run("ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", "lo")
    kubelet = PlayedKubelet(api_server, runtime, "connectivity-a")
    thread = threading.Thread(target=kubelet.run)
    thread.start()
    try:
        done = subprocess.run(
            asking_command(api_server, "connectivity-a"), env=environment(api_server), capture_output=True, text=True,
            timeout=EMERGENCY_STOP_S, check=False,
        )  # fmt: skip
    finally:
        kubelet.stop()
        thread.join()
    assert done.stderr == ""
    rows = json.loads(done.stdout)["paths"]
    works = {(row["from"], row["to"], row["family"]): row["reached"] for row in rows}
    services = {key: works.pop(key) for key in list(works) if key[1] == "answering"}
    assert set(works.values()) == {True}, rows
    targets = {
        *((target, "IPv4") for target in ("server-1", "server-2", *NODES, f"{NODE_ADDRESS}:1")),
        *((target, "IPv6") for target in ("server-1", "server-2")),
    }
    assert works.keys() == {(f"client-{number}", *target) for number in (1, 2) for target in targets}
    assert services
    assert not any(services.values())
    assert done.returncode == 1
    namespace = api_server.get("/api/v1/namespaces/connectivity-a")
    assert namespace["metadata"]["deletionTimestamp"]  # type: ignore[index]


@pytest.mark.usefixtures("nodes")
def test_ctrl_c_removes_what_was_made(api_server: ApiServer) -> None:
    process = subprocess.Popen(
        asking_command(api_server, "connectivity-b"), env=environment(api_server), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    path = "/api/v1/namespaces/connectivity-b"
    wait_until(lambda: process.poll() is not None or len(_pods(api_server, path)) >= len(NODES), "the pods that answer")
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=EMERGENCY_STOP_S)
    assert (process.returncode, out, err.strip()) == (-signal.SIGINT, "", "netplugctl: interrupted")
    assert api_server.get(path)["metadata"]["deletionTimestamp"]  # type: ignore[index]


def test_a_namespace_of_others_is_not_touched(api_server: ApiServer, nodes: None) -> None:
    make_namespace(api_server, "connectivity-c")
    done = subprocess.run(
        asking_command(api_server, "connectivity-c"), env=environment(api_server), capture_output=True, text=True,
        timeout=EMERGENCY_STOP_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "connectivity-c" in done.stderr
    assert "no test has made it" in done.stderr
    metadata = api_server.get("/api/v1/namespaces/connectivity-c")["metadata"]
    assert isinstance(metadata, dict)
    assert _LABEL not in metadata["labels"]
    assert "deletionTimestamp" not in metadata


def _pods(server: ApiServer, path: str) -> list[object]:
    if all(one["metadata"]["name"] != path.rpartition("/")[2] for one in server.get("/api/v1/namespaces")["items"]):  # type: ignore[attr-defined]
        return []
    found = server.get(f"{path}/pods")["items"]
    assert isinstance(found, list)
    return found
