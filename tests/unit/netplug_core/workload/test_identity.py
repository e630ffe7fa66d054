"""Every name that follows from one interface of one container."""

from attrs import evolve

from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.workload import DEFAULT_NAMESPACE, WorkloadIdentity

POD = WorkloadIdentity(
    node="node-a", network="k8s-pod-network", container_id="4f2a", interface="eth0", pod="web-0", pod_namespace="prod"
)
BARE = evolve(POD, pod="", pod_namespace="")


def test_a_pod_is_who_the_orchestrator_says() -> None:
    assert (POD.orchestrator, POD.namespace) == ("k8s", "prod")
    assert POD.endpoint_key == WORKLOAD_ENDPOINT.key("prod", "node--a-k8s-web--0-eth0")
    assert POD.allocation_attributes == (
        ("container", "4f2a"),
        ("interface", "eth0"),
        ("namespace", "prod"),
        ("network", "k8s-pod-network"),
        ("pod", "web-0"),
    )


def test_a_container_that_nobody_named_goes_by_its_id() -> None:
    assert (BARE.orchestrator, BARE.namespace) == ("cni", DEFAULT_NAMESPACE)
    assert BARE.endpoint_key == WORKLOAD_ENDPOINT.key("default", "node--a-cni-4f2a-eth0")
    assert BARE.allocation_attributes == (("container", "4f2a"), ("interface", "eth0"), ("network", "k8s-pod-network"))


def test_half_a_name_of_a_pod_is_none() -> None:
    for half in (evolve(POD, pod=""), evolve(POD, pod_namespace="")):
        assert half.orchestrator == "cni"
        assert (half.endpoint_key, half.allocation_attributes, half.host_interface) == (
            BARE.endpoint_key,
            BARE.allocation_attributes,
            BARE.host_interface,
        )


def test_the_handle_is_of_network_container_and_interface() -> None:
    assert POD.handle == BARE.handle == "k8s-pod-network.4f2a"
    assert evolve(POD, interface="net1").handle == "k8s-pod-network.4f2a.net1"


def test_a_restarted_pod_keeps_its_host_interface_and_gets_a_new_mac() -> None:
    restarted = evolve(POD, container_id="5b6c")
    assert restarted.host_interface == POD.host_interface
    assert restarted.endpoint_key == POD.endpoint_key
    assert restarted.handle != POD.handle
    assert restarted.mac != POD.mac


def test_the_alias_of_the_host_end_differs_between_containers_of_a_pod() -> None:
    restarted = evolve(POD, container_id="5b6c")
    assert restarted.host_interface_alias.workload == POD.host_interface_alias.workload
    assert restarted.host_interface_alias.attachment != POD.host_interface_alias.attachment
    assert evolve(POD, network="other").host_interface_alias.attachment != POD.host_interface_alias.attachment
    assert POD.former_host_interface != POD.host_interface


def test_names_of_the_machine_fit_the_machine() -> None:
    assert POD.host_interface.startswith("netp")
    assert len(POD.host_interface) == 15
    assert int(POD.mac[:2], 16) & 0b11 == 0b10  # unicast, locally administered


def test_the_names_are_worked_out_once() -> None:
    assert POD.endpoint_key is POD.endpoint_key
    assert POD.handle is POD.handle
    assert POD.host_interface is POD.host_interface
