"""Which pods have an endpoint, and its members."""

import pytest
from attrs import evolve

from netplug_backends.kubernetes.kinds.workloadendpoints import find_pod_endpoint
from netplug_core.addressing import Address
from netplug_core.orchestrator.model import ContainerPort, PodFacts, PodNetwork, PodPhase
from netplug_core.resources.workloadendpoint import IPNAT, EndpointPort, WorkloadEndpoint

POD = PodFacts(
    namespace="default",
    name="web-0",
    uid="u",
    node="node-a",
    labels=(("app", "web"),),
    service_account="web",
    phase=PodPhase.RUNNING,
)


def annotated(pod: PodFacts, **annotations: str) -> PodFacts:
    found = {f"cni.projectnetplug.org/{name}": text for name, text in annotations.items()}
    return evolve(pod, annotations=tuple(sorted(found.items())))


def endpoint(pod: PodFacts) -> WorkloadEndpoint:
    found = find_pod_endpoint(pod)
    assert found is not None
    return found


def texts(pod: PodFacts) -> list[str]:
    return [str(address) for address in endpoint(pod).spec.addresses]


def test_s27_an_endpoint_is_named_by_node_pod_and_interface() -> None:
    found = endpoint(evolve(POD, node="node-1", name="pod-name"))
    assert found.metadata.name == "node--1-k8s-pod--name-eth0"
    assert found.metadata.namespace == "default"


def test_an_endpoint_belongs_to_its_namespace_and_account() -> None:
    found = endpoint(
        evolve(
            POD,
            ports=(
                ContainerPort(name="http", port=80),
                ContainerPort(name="s", protocol="SCTP", port=9),
                ContainerPort(port=8),
            ),
        )
    )
    assert found.spec.profiles == ("kns.default", "ksa.default.web")
    assert dict(found.metadata.labels) == {
        "app": "web",
        "projectnetplug.org/namespace": "default",
        "projectnetplug.org/orchestrator": "k8s",
        "projectnetplug.org/serviceaccount": "web",
    }
    assert found.spec.ports == (
        EndpointPort(name="http", protocol="TCP", port=80),
        EndpointPort(name="s", protocol="SCTP", port=9),
    )
    assert found.spec.interface_name.startswith("netp")
    assert len(found.spec.interface_name) == 15


@pytest.mark.parametrize("length,has_label", [(62, True), (63, False), (64, False), (253, False)])
def test_a_service_account_has_a_label_if_its_name_is_shorter_than_a_label_may_be(
    length: int, *, has_label: bool
) -> None:
    """And the pod's own label of that name counts for nothing: policies select accounts by it."""
    account, name = "a" * length, "projectnetplug.org/serviceaccount"
    found = endpoint(evolve(POD, service_account=account, labels=((name, "admin"),)))
    assert dict(found.metadata.labels).get(name) == (account if has_label else None)
    assert found.spec.profiles[1] == f"ksa.default.{account}"


def test_an_endpoint_has_the_uid_by_which_the_runtime_knows_the_pod() -> None:
    assert endpoint(POD).metadata.uid == "u"
    assert endpoint(evolve(POD, annotations=(("kubernetes.io/config.mirror", "4f2a"),))).metadata.uid == "4f2a"


def test_a_pod_without_a_service_account_has_no_label_or_profile_of_one() -> None:
    found = endpoint(evolve(POD, service_account=""))
    assert found.spec.profiles == ("kns.default",)
    assert "projectnetplug.org/serviceaccount" not in dict(found.metadata.labels)


def test_annotations_may_have_another_prefix() -> None:
    both = {"cni.projectnetplug.org/podIP": "10.0.0.1/32", "example.org/podIP": "10.0.0.2/32"}
    pod = evolve(POD, annotations=(*sorted(both.items()), ("example.org/containerID", "c0ffee")))
    found = find_pod_endpoint(pod, "example.org")
    assert found is not None
    assert (found.spec.addresses, found.spec.container_id) == ((Address.parse("10.0.0.2"),), "c0ffee")
    assert (texts(pod), endpoint(pod).spec.container_id) == (["10.0.0.1"], "")


@pytest.mark.parametrize("pod", [evolve(POD, node=""), evolve(POD, network=PodNetwork.HOST)])
def test_unscheduled_and_host_network_pods_have_no_endpoint(pod: PodFacts) -> None:
    assert find_pod_endpoint(pod) is None


def test_s25_reported_addresses_replace_those_that_the_plugin_wrote() -> None:
    written = annotated(
        POD, podIP="192.168.91.117/32", podIPs="192.168.91.117/32,fd00::1/128", containerID="abcde12345"
    )
    assert texts(written) == ["192.168.91.117", "fd00::1"]
    assert endpoint(written).spec.container_id == "abcde12345"
    assert texts(evolve(written, addresses=(Address.parse("10.0.0.9"),))) == ["10.0.0.9"]
    assert texts(annotated(POD, podIP="192.168.91.117/32")) == ["192.168.91.117"]
    assert texts(POD) == []


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_s26_a_pod_that_has_ended_has_no_addresses(phase: PodPhase) -> None:
    assert texts(evolve(annotated(POD, podIP="10.0.0.1/32"), phase=phase, addresses=(Address.parse("10.0.0.1"),))) == []


def test_s26_a_deleted_pod_whose_addresses_are_released_has_none() -> None:
    """Trap 19: the kubelet may still report the old address."""
    reported = evolve(POD, addresses=(Address.parse("10.0.0.1"),))
    assert texts(evolve(annotated(reported, podIP=""), deletion_time_ns=1)) == []
    assert texts(evolve(reported, deletion_time_ns=1)) == ["10.0.0.1"]
    assert texts(annotated(reported, podIP="")) == ["10.0.0.1"]


def test_invalid_annotations_give_no_values() -> None:
    """Any program may write them; ADD refuses invalid ones."""
    pod = annotated(POD, podIPs="10.0.0.1/32,somewhere", floatingIPs="{", allowedSourcePrefixes='["x", "1.1.1.7/24"]')
    found = endpoint(pod)
    assert texts(pod) == ["10.0.0.1"]
    assert found.spec.ip_nats == ()
    assert found.spec.allowed_source_prefixes == ("1.1.1.0/24",)
    assert endpoint(annotated(POD, floatingIPs='"10.0.0.1"')).spec.ip_nats == ()


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 900 + "]" * 900, "[" + "9" * 5_000 + "]", '[["10.0.0.1"], 7]'])
@pytest.mark.parametrize("name", ["floatingIPs", "allowedSourcePrefixes"])
def test_no_annotation_of_a_tenant_makes_a_pod_unreadable(name: str, text: str) -> None:
    """Otherwise its DEL, and every list of endpoints, would fail."""
    found = endpoint(annotated(POD, podIPs="10.0.0.1/32", **{name: text}))
    assert (found.spec.ip_nats, found.spec.allowed_source_prefixes) == ((), ())
    assert found.spec.addresses == (Address.parse("10.0.0.1"),)


def test_a_floating_address_maps_to_the_pods_address_of_the_same_family() -> None:
    pod = annotated(POD, podIPs="10.0.0.1/32", floatingIPs='["192.0.2.9", "2001:db8::9", "nowhere", "192.0.2.9"]')
    mapping = IPNAT(internal=Address.parse("10.0.0.1"), external=Address.parse("192.0.2.9"))
    assert endpoint(pod).spec.ip_nats == (mapping,)
