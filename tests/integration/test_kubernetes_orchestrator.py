"""The orchestrator of a real API server, held to ``netplug_core.testing.orchestrator_checks``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from threading import Lock

import pytest
from attrs import define

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_cli.node.calls import CachedLookups
from netplug_cli.node.stores import CacheFeed
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Deadline
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.orchestrator.model import (
    NAMESPACE,
    ContainerPort,
    NamespaceFacts,
    NodeFacts,
    Orchestrator,
    PodFacts,
    PodNetwork,
)
from netplug_core.testing.orchestrator_checks import ORCHESTRATOR_CHECKS, OrchestratorCheck
from tests.harness.cni_node import RecordingLog
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import (
    open_client,
    open_store,
)
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.apiserver

_NUMBERS = count()
_MERGE = "application/merge-patch+json"
_CONFLICT = 409


@define
class KubernetesOrchestratorHarness:
    """An orchestrator, and the administrator's hands on its server."""

    server: ApiServer
    orchestrator: Orchestrator

    def deadline(self, seconds: float = 10.0) -> Deadline:
        return deadline_in(seconds)

    def new_name(self) -> str:
        return f"told-{next(_NUMBERS)}"

    def put_pod(self, pod: PodFacts) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods"
        container = {"name": "main", "image": "none", "ports": [port_of(port) for port in pod.ports]}
        spec = {
            "containers": [container],
            **({"nodeName": pod.node} if pod.node else {}),
            **({"serviceAccountName": pod.service_account} if pod.service_account else {}),
            **({"hostNetwork": True} if pod.network is PodNetwork.HOST else {}),
        }
        self._put(path, {"metadata": metadata_of(pod), "spec": spec})
        addresses = [str(address) for address in pod.addresses]
        status = {
            "phase": pod.phase.value,
            **({"podIP": addresses[0], "podIPs": [{"ip": address} for address in addresses]} if addresses else {}),
        }
        self.server.request("PATCH", f"{path}/{pod.name}/status", {"status": status}, content_type=_MERGE)

    def put_namespace(self, namespace: NamespaceFacts) -> None:
        self._put("/api/v1/namespaces", {"metadata": metadata_of(namespace)})

    def put_node(self, node: NodeFacts) -> None:
        ranges = [str(prefix) for prefix in node.pod_cidrs]
        spec = {"podCIDR": ranges[0], "podCIDRs": ranges} if ranges else {}
        self._put("/api/v1/nodes", {"metadata": metadata_of(node), "spec": spec})
        listed = [{"type": "InternalIP", "address": str(address)} for address in node.internal_addresses]
        status = {"addresses": [{"type": "Hostname", "address": node.name}, *listed]}
        self.server.request("PATCH", f"/api/v1/nodes/{node.name}/status", {"status": status}, content_type=_MERGE)

    def delete_pod(self, namespace: str, name: str) -> None:
        self.server.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")

    def _put(self, path: str, body: Mapping[str, Mapping[str, object]]) -> None:
        try:
            self.server.create(path, body)
        except RequestRefused as error:
            if error.code != _CONFLICT:
                raise
            name = body["metadata"]["name"]
            self.server.request("PATCH", f"{path}/{name}", {"metadata": body["metadata"]}, content_type=_MERGE)


def metadata_of(facts: PodFacts | NamespaceFacts | NodeFacts) -> Mapping[str, object]:
    return {"name": facts.name, "labels": dict(facts.labels), "annotations": dict(facts.annotations)}


def port_of(port: ContainerPort) -> Mapping[str, object]:
    said = {"name": port.name, "hostPort": port.host_port, "hostIP": port.host_ip}
    return {
        "protocol": port.protocol,
        "containerPort": port.port,
        **{key: value for key, value in said.items() if value},
    }


@pytest.fixture
def harness(api_server: ApiServer) -> Iterator[KubernetesOrchestratorHarness]:
    orchestrator = KubernetesOrchestrator(open_client(api_server))
    yield KubernetesOrchestratorHarness(api_server, orchestrator)
    orchestrator.close()


@pytest.fixture
def cached(api_server: ApiServer) -> Iterator[KubernetesOrchestratorHarness]:
    """The lookups of a node process whose datastore is the same server, with a watch that is open."""
    clock, orchestrator = SystemClock(), KubernetesOrchestrator(open_client(api_server))
    with open_store(api_server, CrdMode.V1) as store:
        cache = make_node_cache(store, clock=clock, guard=Lock())
        feed = CacheFeed(store, cache, (NAMESPACE,)).controller
        with Runtime((feed,), clock=SystemClock(), log=RecordingLog()).running():
            wait_until(lambda: cache.watch is not None, "the namespaces are followed")
            lookups = CachedLookups(orchestrator=orchestrator, datastore=store, cache=cache)
            yield KubernetesOrchestratorHarness(api_server, lookups)
    orchestrator.close()


@pytest.mark.parametrize("case", ORCHESTRATOR_CHECKS, ids=lambda case: case.__name__)
def test_the_lookups_of_a_node_process_pass_it_too(
    case: OrchestratorCheck, cached: KubernetesOrchestratorHarness
) -> None:
    case(cached)
    assert case.__doc__


@pytest.mark.parametrize("case", ORCHESTRATOR_CHECKS, ids=lambda case: case.__name__)
def test_it_passes_the_conformance_suite(case: OrchestratorCheck, harness: KubernetesOrchestratorHarness) -> None:
    case(harness)
    assert case.__doc__
