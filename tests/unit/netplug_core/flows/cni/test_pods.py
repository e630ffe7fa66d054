"""The endpoint of a pod that was looked up; the numbers are those of the black-box checks."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.errors import ConfigurationError
from netplug_core.orchestrator.model import ContainerPort, NamespaceFacts, PodFacts
from netplug_core.resources.workloadendpoint import EndpointPort, WorkloadEndpoint
from tests.harness.cni_node import NODE, POD, CNINodeHarness, ContainerInterface

WEB = ContainerInterface(args=POD)
AGAIN = ContainerInterface(id="c2", netns="/run/netns/c2", args=POD)
POLICY = {"policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/k"}}
FACTS = PodFacts(
    namespace="test",
    name="test-pod-1",
    uid="",
    node=NODE,
    labels=(("app", "x"), ("projectnetplug.org/orchestrator", "evil")),
    service_account="default",
    generate_name="test-pod-",
    ports=(ContainerPort(name="anamedport", port=555), ContainerPort(port=80)),
)
FIXED = (("projectnetplug.org/namespace", "test"), ("projectnetplug.org/orchestrator", "k8s"))


@pytest.fixture
def orchestrator(harness: CNINodeHarness) -> MemoryOrchestrator:
    found = harness.orchestrator = MemoryOrchestrator(clock=harness.clock)
    found.put_namespace(NamespaceFacts(name="test", uid=""))
    found.put_pod(FACTS)
    return found


def stored(harness: CNINodeHarness) -> WorkloadEndpoint:
    (endpoint,) = harness.endpoints()
    return endpoint


@pytest.mark.parametrize("texts", [(), (("cni.projectnetplug.org/ipv4pools", '["four"]'),)])
def test_checks_60_to_64_the_endpoint_says_what_the_pod_says(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator, texts: tuple[tuple[str, str], ...]
) -> None:
    """With annotations of ours and without."""
    orchestrator.put_pod(evolve(FACTS, annotations=texts))
    harness.add(WEB, **POLICY)
    endpoint = stored(harness)
    account = ("projectnetplug.org/serviceaccount", "default")
    assert endpoint.metadata.labels == (("app", "x"), *FIXED, account)
    assert endpoint.metadata.generate_name == "test-pod-"
    assert (endpoint.spec.service_account, endpoint.spec.profiles) == ("default", ("kns.test", "ksa.test.default"))
    assert endpoint.spec.ports == (EndpointPort(name="anamedport", protocol="TCP", port=555),)


def test_without_a_policy_type_only_the_profiles_are_others(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    harness.add(WEB)
    endpoint = stored(harness)
    assert dict(endpoint.metadata.labels)["app"] == "x"
    assert endpoint.spec.profiles == ("net1",)


def test_a_restarted_pod_loses_the_labels_that_it_lost(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    """Policy selects by them."""
    harness.add(WEB, **POLICY)
    orchestrator.put_pod(evolve(FACTS, labels=(("tier", "y"),), generate_name="", service_account=""))
    harness.add(AGAIN, **POLICY)
    endpoint = stored(harness)
    assert endpoint.metadata.labels == (*FIXED, ("tier", "y"))
    assert (endpoint.metadata.generate_name, endpoint.spec.profiles) == ("", ("kns.test",))


def test_a_container_without_a_pod_needs_no_orchestrator_under_a_policy_type(harness: CNINodeHarness) -> None:
    harness.add(ContainerInterface(), **POLICY)
    endpoint = stored(harness)
    assert (endpoint.metadata.namespace, endpoint.spec.orchestrator) == ("default", "cni")
    assert endpoint.spec.profiles == ("net1",)


def test_a_policy_type_without_a_way_to_the_orchestrator_is_refused(harness: CNINodeHarness) -> None:
    with pytest.raises(ConfigurationError, match=r"policy\.type: 'k8s' is not accepted; .*kubernetes\.kubeconfig"):
        harness.add(WEB, policy={"type": "k8s"})
    harness.assert_nothing_left()
