"""A real ``netplug-operator`` on an API server of the tests, and what tests ask the server about its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

from netplug_backends.kubernetes.names import CrdMode
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions, make_namespace
from tests.harness.servers.ports import reserve_port
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

__all__ = [
    "DAEMONSET", "INSTALLATIONS", "LEASE", "OPERATOR_PATHS", "POOLS", "OperatorCluster", "OperatorProcess", "condition",
    "open_operator_cluster", "text_at",
]  # fmt: skip

ROOT = str(Path(__file__).parents[2])
INSTALLATIONS = "/apis/operator.projectnetplug.org/v1/installations"
DAEMONSET = "/apis/apps/v1/namespaces/netplug-system/daemonsets/netplug-node"
NAMESPACE = "/api/v1/namespaces/netplug-system"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/netplug-operator"
POOLS = "/apis/crd.projectnetplug.org/v1/ippools"
_STATUSES = "/apis/operator.projectnetplug.org/v1/netplugstatuses"
_EVENTS = "/api/v1/namespaces/default/events"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"

OPERATOR_PATHS = {
    "namespace": NAMESPACE,
    "plugin account": f"{NAMESPACE}/serviceaccounts/netplug-cni-plugin",
    "plugin role": f"{_RBAC}/clusterroles/netplug-cni-plugin",
    "plugin binding": f"{_RBAC}/clusterrolebindings/netplug-cni-plugin",
    "node account": f"{NAMESPACE}/serviceaccounts/netplug-node",
    "node role": f"{_RBAC}/namespaces/netplug-system/roles/netplug-node",
    "node binding": f"{_RBAC}/namespaces/netplug-system/rolebindings/netplug-node",
    "node cluster role": f"{_RBAC}/clusterroles/netplug-node",
    "node cluster binding": f"{_RBAC}/clusterrolebindings/netplug-node",
    "config map": f"{NAMESPACE}/configmaps/cni-config",
    "daemonset": DAEMONSET,
}
"""Where the objects of an installation are."""


def text_at(found: object, *path: str) -> str:
    """The text that some names lead to in an object; empty if there is none."""
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return "" if found is None else str(found)


def condition(installation: object, kind: str) -> Mapping[str, object]:
    """A condition of an Installation; empty if it has none of that type."""
    status = installation.get("status") if isinstance(installation, Mapping) else None
    listed = status.get("conditions", []) if isinstance(status, Mapping) else []
    return next((one for one in listed if one["type"] == kind), {})


@define
class OperatorProcess:
    """A running operator; ``log`` is the file with its lines."""

    child: subprocess.Popen[bytes]
    log: Path
    port: int

    @property
    def lines(self) -> str:
        """What it has written."""
        return self.log.read_text()

    def kill(self) -> None:
        """End it as a power cut does."""
        self.child.kill()
        self.child.wait(EMERGENCY_STOP_S)

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(EMERGENCY_STOP_S)

    def ask(self, path: str) -> tuple[int, str]:
        """The status and the text with which it answers at its health port; 0 if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=EMERGENCY_STOP_S) as reply:
                return int(reply.status), reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError:
            return 0, ""


@contextmanager
def open_operator_cluster(server: ApiServer, folder: Path) -> Iterator[OperatorCluster]:
    """A server with definitions and no operator yet; at the end nothing of one is left but definitions."""
    make_namespace(server, "default")  # Events are there
    install_definitions(server, CrdMode.V1)
    delete_custom_objects(server, CrdMode.V1)  # of other tests on this server
    opened = OperatorCluster(server, folder)
    try:
        yield opened
    finally:
        opened.stop()


@define
class OperatorCluster:
    """A server with operators on it."""

    server: ApiServer
    folder: Path
    _operators: list[OperatorProcess] = field(factory=list)

    def start(self, *options: str, **variables: str) -> OperatorProcess:
        """A further operator."""
        number, port = len(self._operators), reserve_port()
        log = self.folder / f"operator{number}.log"
        environ = {**os.environ, "KUBECONFIG": self.server.write_kubeconfig(), "POD_NAME": f"op{number}", **variables}
        command = [sys.executable, "-m", "netplug_cli.wiring.operator", f"--health-port={port}", *options]
        with log.open("wb") as file:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=ROOT, env=environ)
        operator = OperatorProcess(child, log, port)
        self._operators.append(operator)
        return operator

    def stop(self) -> None:
        """Kill what runs, and remove what it has made; definitions stay."""
        self.stop_operators()
        for name in self.names(INSTALLATIONS):
            self.patch(f"{INSTALLATIONS}/{name}", {"metadata": {"finalizers": None}})
            self.request("DELETE", f"{INSTALLATIONS}/{name}")
        for path in (*reversed(OPERATOR_PATHS.values()), _STATUSES, _EVENTS):
            self.request("DELETE", path)
        self.end_namespace()
        self.request("DELETE", POOLS)

    def stop_operators(self) -> None:
        """Kill what runs, and let the next one act at once."""
        self.kill_operators()
        self.request("DELETE", LEASE)

    def kill_operators(self) -> None:
        """Kill what runs; the Lease stays."""
        while self._operators:
            self._operators.pop().kill()

    def find(self, path: str) -> Mapping[str, object] | None:
        """An object; None if it does not exist."""
        try:
            return self.server.get(path)
        except RequestRefused as error:
            if error.code != 404:
                raise
            return None

    def names(self, path: str) -> list[str]:
        """The names of the objects of a collection; none if it does not exist."""
        found = self.find(path)
        items = found["items"] if found is not None else []
        assert isinstance(items, list)
        return [text_at(item, "metadata", "name") for item in items]

    def request(self, method: str, path: str, body: object = None) -> None:
        """A request whose object may be missing."""
        try:
            self.server.request(method, path, body)
        except RequestRefused as error:
            if error.code != 404:
                raise

    def patch(self, path: str, change: object) -> None:
        """Merge a change into an object, as kubectl does."""
        self.server.request("PATCH", path, change, content_type="application/merge-patch+json")

    def end_namespace(self) -> None:
        """Do what the controller manager does with a namespace that is being deleted, once it is empty."""
        found = self.find(NAMESPACE)
        if found is not None and text_at(found, "metadata", "deletionTimestamp"):
            self.server.request("PUT", f"{NAMESPACE}/finalize", {**found, "spec": {"finalizers": []}})

    def install(self, spec: object, *, name: str = "default") -> None:
        """Create an Installation."""
        document = {"apiVersion": "operator.projectnetplug.org/v1", "kind": "Installation"}
        self.server.create(INSTALLATIONS, {**document, "metadata": {"name": name}, "spec": spec})

    def installation(self) -> Mapping[str, object]:
        """The Installation named default; empty if there is none."""
        return self.find(f"{INSTALLATIONS}/default") or {}

    def roll_out(self, *, nodes: int = 2) -> None:
        """Do what the controller manager does with the DaemonSet: every node has its pod."""
        found = self.find(DAEMONSET)
        assert found is not None
        counts = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable")
        generation = int(text_at(found, "metadata", "generation"))
        status = {**dict.fromkeys((*counts, "numberReady"), nodes), "observedGeneration": generation}
        self.patch(f"{DAEMONSET}/status", {"status": status})

    def wait_for(self, kind: str, status: str, *, words: str = "") -> Mapping[str, object]:
        """The condition of that type, once it has a status, and some words in its message or reason."""

        def is_there() -> bool:
            found = condition(self.installation(), kind)
            return found.get("status") == status and words in f"{found.get('reason')}: {found.get('message')}"

        wait_until(is_there, f"{kind} becomes {status} with {words!r}: {self.installation().get('status')}")
        return condition(self.installation(), kind)

    def wait_for_definitions(self) -> None:
        """Return when an Installation can be created."""
        wait_until(lambda: self.find(INSTALLATIONS) is not None, "the definitions are there")

    def wait_for_objects(self) -> None:
        """Return when everything of an installation is there."""
        wait_until(lambda: all(map(self.find, OPERATOR_PATHS.values())), "everything is installed")
