"""Decoding pods, namespaces and nodes of the API."""

import pytest

from netplug_backends.kubernetes.kinds.profiles import namespace_facts, node_facts, pod_facts
from netplug_core.addressing import Address, Prefix
from netplug_core.orchestrator.model import ContainerPort, PodNetwork, PodPhase
from netplug_core.records import Malformed

METADATA = {"namespace": "shop", "name": "web-0", "uid": "u"}


def test_every_member_of_a_pod_is_decoded() -> None:
    port = {"name": "http", "containerPort": 80, "protocol": "TCP", "hostPort": 8080, "hostIP": "192.0.2.1"}
    pod = pod_facts(
        {
            "metadata": METADATA
            | {
                "labels": {"b": "2", "a": "1"},
                "annotations": {"k": "v"},
                "generateName": "web-",
                "creationTimestamp": "2026-08-20T10:00:00Z",
                "deletionTimestamp": "2026-08-20T10:00:01Z",
            },
            "spec": {
                "nodeName": "node-a",
                "serviceAccountName": "web",
                "hostNetwork": True,
                "initContainers": [{"ports": [{"name": "init", "containerPort": 9}]}],
                "containers": [{"ports": [port, {"containerPort": 53, "protocol": "UDP"}]}, {}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }
    )
    assert (pod.namespace, pod.name, pod.uid, pod.node, pod.service_account) == ("shop", "web-0", "u", "node-a", "web")
    assert (pod.labels, pod.annotations, pod.generate_name) == ((("a", "1"), ("b", "2")), (("k", "v"),), "web-")
    assert (pod.network, pod.phase) == (PodNetwork.HOST, PodPhase.RUNNING)
    assert pod.ports == (
        ContainerPort(name="http", protocol="TCP", port=80, host_port=8080, host_ip="192.0.2.1"),
        ContainerPort(protocol="UDP", port=53),
        ContainerPort(name="init", port=9),
    )
    assert pod.addresses == (Address.parse("10.0.0.1"), Address.parse("fd00::1"))
    assert pod.creation_time_ns == 1_787_220_000_000_000_000
    assert pod.deletion_time_ns == 1_787_220_001_000_000_000


def test_a_pod_without_spec_and_status_is_pending_with_its_own_network() -> None:
    pod = pod_facts({"metadata": METADATA})
    assert (pod.phase, pod.network, pod.node, pod.ports, pod.addresses) == (
        PodPhase.PENDING,
        PodNetwork.OWN,
        "",
        (),
        (),
    )
    assert (pod.creation_time_ns, pod.deletion_time_ns) == (None, None)


def test_pod_ip_is_used_without_pod_ips() -> None:
    assert pod_facts({"metadata": METADATA, "status": {"podIP": "10.0.0.1"}}).addresses == (Address.parse("10.0.0.1"),)


def test_a_namespace_is_decoded() -> None:
    found = namespace_facts({"metadata": {"name": "shop", "uid": "u", "labels": {"team": "a"}, "annotations": None}})
    assert (found.name, found.uid, found.labels, found.annotations) == ("shop", "u", (("team", "a"),), ())


@pytest.mark.parametrize(
    "spec,prefixes",
    [
        ({}, ()),
        ({"podCIDR": "10.0.0.1/24"}, ("10.0.0.0/24",)),
        ({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]}, ("10.0.0.0/24", "fd00::/64")),
    ],
)
def test_a_node_has_its_pod_cidrs(spec: dict[str, object], prefixes: tuple[str, ...]) -> None:
    node = node_facts({"metadata": {"name": "n", "uid": "u"}, "spec": spec})
    assert node.pod_cidrs == tuple(map(Prefix.parse, prefixes))


def test_a_node_has_its_internal_addresses() -> None:
    listed = [
        {"type": "Hostname", "address": "n"},
        {"type": "InternalIP", "address": "192.0.2.7"},
        {"type": "ExternalIP", "address": "203.0.113.7"},
        {"type": "InternalIP", "address": "n.example"},
        {"type": "InternalIP", "address": "2001:db8::7"},
        {"type": "InternalIP"},
    ]
    node = node_facts({"metadata": {"name": "n", "uid": "u"}, "status": {"addresses": listed}})
    assert node.internal_addresses == (Address.parse("192.0.2.7"), Address.parse("2001:db8::7"))


@pytest.mark.parametrize(
    "found,problem",
    [
        ({"metadata": METADATA, "spec": []}, "expected an object @ $.spec, found []"),
        ({"metadata": METADATA, "spec": {"containers": {}}}, "expected a list @ $.spec.containers, found {}"),
        ({"metadata": METADATA, "spec": {"containers": [1]}}, "expected an object @ $.spec.containers[0], found 1"),
        ({"metadata": METADATA, "spec": {"nodeName": 1}}, "expected a text @ $.spec.nodeName, found 1"),
        (
            {"metadata": METADATA, "spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}},
            "expected a whole number @ $.spec.containers[0].ports[0].containerPort",
        ),
        ({"metadata": METADATA, "status": {"podIP": "here"}}, "here"),
        ({"metadata": METADATA, "status": {"phase": "Dancing"}}, "Dancing"),
        ({"metadata": METADATA | {"creationTimestamp": "now"}}, "now"),
    ],
)
def test_an_invalid_pod_is_malformed_and_named(found: dict[str, object], problem: str) -> None:
    with pytest.raises(Malformed) as refusal:
        pod_facts(found)
    assert refusal.value.key == "Pod(shop/web-0)"
    assert problem in refusal.value.problem


def test_a_node_whose_pod_cidrs_are_no_list_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"Node\(n\) is malformed: expected a list @ \$\.spec\.podCIDRs"):
        node_facts({"metadata": {"name": "n"}, "spec": {"podCIDRs": "10.0.0.0/24"}})
