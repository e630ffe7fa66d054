"""What an endpoint gets of its pod."""

import pytest

from netplug_core.orchestrator.model import ContainerPort, PodFacts
from netplug_core.resources.workloadendpoint import EndpointPort
from netplug_core.workload import PodDetails, pod_details


def test_labels_names_and_profiles_are_the_pods() -> None:
    pod = PodFacts(
        namespace="test", name="web-0", uid="u", labels=(("app", "x"),), service_account="web", generate_name="web-"
    )
    assert pod_details(pod) == PodDetails(
        labels=(("app", "x"),), generate_name="web-", service_account="web", profiles=("kns.test", "ksa.test.web")
    )


def test_a_pod_without_a_service_account_has_the_profile_of_its_namespace() -> None:
    assert pod_details(PodFacts(namespace="test", name="web-0", uid="u")) == PodDetails(profiles=("kns.test",))


@pytest.mark.parametrize(
    "declared, expected",
    [
        (ContainerPort(name="anamedport", port=555), EndpointPort(name="anamedport", protocol="TCP", port=555)),
        (
            ContainerPort(port=80, protocol="udp", host_port=8080, host_ip="192.0.2.1"),
            EndpointPort(protocol="UDP", port=80, host_port=8080, host_ip="192.0.2.1"),
        ),
        (ContainerPort(name="s", port=9, protocol="SCTP"), EndpointPort(name="s", protocol="SCTP", port=9)),
        (ContainerPort(port=80), None),
        (ContainerPort(name="nothing", port=0), None),
        (ContainerPort(name="other", port=7, protocol="DCCP"), None),
    ],
)
def test_check_62_which_ports_count(declared: ContainerPort, expected: EndpointPort | None) -> None:
    pod = PodFacts(namespace="test", name="web-0", uid="u", ports=(declared,))
    assert pod_details(pod).ports == (() if expected is None else (expected,))
