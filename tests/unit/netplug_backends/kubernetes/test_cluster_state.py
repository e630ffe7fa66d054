"""What the API server answers about a cluster, as values; what cannot be read counts as not there."""

from __future__ import annotations

import pytest

from netplug_backends.kubernetes.installing.cluster import (
    is_established,
    members_at,
    number_at,
    read_controllers,
    read_daemonset,
    read_installation,
    read_node,
    read_operator,
    read_pod,
)
from netplug_core.addressing import Address, Prefix
from netplug_core.installation.cluster import ClusterNode, ControllersState, InstallationState, OperatorState, PodState


def test_a_node() -> None:
    addresses = [
        {"type": "InternalIP", "address": "192.168.0.1"},
        {"type": "Hostname", "address": "10.0.0.9"},
        {"type": "ExternalIP", "address": "nonsense"},
    ]
    found = {"metadata": {"name": "a"}, "spec": {"podCIDRs": ["10.244.0.0/24"]}, "status": {"addresses": addresses}}
    assert read_node(found) == ClusterNode(
        name="a", addresses=(Address.parse("192.168.0.1"),), pod_prefixes=(Prefix.parse("10.244.0.0/24"),)
    )


def container(name: str, state: object = None, *, is_ready: bool = False) -> dict[str, object]:
    return {"name": name, "ready": is_ready, "state": state or {}}


@pytest.mark.parametrize(
    "state, problem",
    [
        ({"waiting": {"reason": "ContainerCreating"}}, ""),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "x: CrashLoopBackOff"),
        ({"waiting": {"reason": "ErrImagePull", "message": "no"}}, "x: ErrImagePull: no"),
        ({"terminated": {"exitCode": 2}}, ""),
        ({"running": {}}, ""),
    ],
)
def test_why_a_container_does_not_run(state: object, problem: str) -> None:
    found = {
        "metadata": {"name": "p"}, "spec": {"nodeName": "a"},
        "status": {"initContainerStatuses": [container("x", state)], "containerStatuses": [container("y")]},
    }  # fmt: skip
    assert read_pod(found, datastore="kubernetes") == PodState(name="p", node="a", problem=problem)


def test_an_image_that_is_the_cause_is_named() -> None:
    for reason, text in (
        ("ImagePullBackOff", "x: ImagePullBackOff of image r/n:v1"),
        ("RunContainerError", "x: RunContainerError"),
    ):
        failing = {**container("x", {"waiting": {"reason": reason}}), "image": "r/n:v1"}
        found = {"metadata": {"name": "p"}, "status": {"initContainerStatuses": [failing]}}
        assert read_pod(found, datastore="kubernetes").problem == text


def test_the_deployment_of_the_controllers_with_its_pods_that_stay() -> None:
    waiting = {"metadata": {"name": "c"}, "spec": {"nodeName": "a"}}
    ending = {"metadata": {"name": "d", "deletionTimestamp": "2026-08-20T10:00:00Z"}}
    status = {"observedGeneration": 2, "availableReplicas": 1}
    found = {"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": status}
    expected = ControllersState(namespace="x", desired=1, available=1, pods=(PodState(name="c", node="a"),))
    assert read_controllers(found, (waiting, ending), namespace="x") == expected
    changed = {**found, "metadata": {"generation": 3}}
    assert not read_controllers(changed, (), namespace="x").is_observed
    assert read_controllers({}, (), namespace="x") == ControllersState(namespace="x", desired=0, available=0)


def test_with_etcd_one_ready_container_is_enough() -> None:
    statuses = [container("netplug-node"), container("install-cni", is_ready=True)]
    found = {"metadata": {"name": "p"}, "status": {"containerStatuses": statuses}}
    assert read_pod(found, datastore="etcdv3").is_ready
    assert not read_pod(found, datastore="kubernetes").is_ready
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert read_pod(ready, datastore="kubernetes").is_ready


def test_a_daemonset() -> None:
    env = [{"name": "A", "value": "b"}, {"name": "DATASTORE_TYPE", "value": "etcdv3"}]
    found = {
        "metadata": {"generation": 2},
        "spec": {"template": {"spec": {"containers": [{"name": "x"}, {"name": "y", "env": env}]}}},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1},
    }
    read = read_daemonset(found, namespace="kube-system", template='{"ipam": {"type": "netplug-ipam"}}')
    assert (read.is_observed, read.desired, read.updated) == (False, 3, 1)
    assert (read.assigns_addresses, read.datastore) == (True, "etcdv3")
    empty = read_daemonset({}, namespace="netplug-system", template="")
    assert (empty.is_observed, empty.desired, empty.assigns_addresses, empty.datastore) == (
        True, 0, False, "kubernetes",
    )  # fmt: skip


def test_an_installation() -> None:
    found = {
        "metadata": {"name": "default", "generation": 3, "deletionTimestamp": "2026-08-20T10:00:00Z"},
        "status": {
            "conditions": [
                {"type": "Degraded", "status": "True", "message": "m", "observedGeneration": 2},
                "nonsense",
                {"type": "Ready", "status": "False", "message": "", "observedGeneration": 3},
            ]
        },
    }
    assert read_installation(found) == InstallationState(
        name="default",
        conditions=(("Degraded", "True", "m"), ("Ready", "False", "")),
        generation=3,
        observed_generation=2,
        is_being_deleted=True,
    )
    assert read_installation({}) == InstallationState(name="")


def test_an_operator() -> None:
    """A pod that ends is none."""
    lease = {"spec": {"holderIdentity": "op-1", "renewTime": "2026-08-20T10:00:00.5Z"}}
    pod = {"metadata": {"name": "op-1", "namespace": "mine"}, "spec": {"nodeName": "a"}}
    ending = {"metadata": {"name": "op-0", "namespace": "mine", "deletionTimestamp": "2026-08-20T10:00:00Z"}}
    assert read_operator(lease, [ending, pod]) == OperatorState(
        holder="op-1",
        renewed="2026-08-20T10:00:00.5Z",
        pods=(PodState(name="op-1", node="a"),),
        namespace="mine",
    )
    assert read_operator(None, []) == OperatorState()


def test_a_definition() -> None:
    assert is_established({"status": {"conditions": [{"type": "Established", "status": "True"}]}})
    assert not is_established({"status": {"conditions": [{"type": "Established", "status": "False"}]}})


def test_members_that_are_something_else() -> None:
    found = {"a": {"b": [1]}}
    assert (number_at(found, "a", "b"), members_at(found, "a", "b")) == (0, [])
    assert members_at(found, "a", "b", "c") == []
