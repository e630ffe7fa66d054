"""Nodes as resources: which annotation holds which member, and labels of the cluster."""

import json
from contextlib import suppress
from typing import cast

import pytest
from attrs import evolve

from netplug_backends.kubernetes.kinds.nodes import PodAddressSource, node_annotations, node_record
from netplug_core.addressing import Address
from netplug_core.errors import ConfigurationError
from netplug_core.records import Malformed
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.node import NODE, Node, NodeBGP, NodeInterface

DOMAIN = "projectnetplug.org"


def found(annotations: dict[str, str], **more: object) -> dict[str, object]:
    metadata = {
        "name": "node-a",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"zone": "a"},
        "annotations": {f"{DOMAIN}/{name}": text for name, text in annotations.items()},
    }
    return {"metadata": metadata, **more}


def read(annotations: dict[str, str], **more: object) -> dict[str, object]:
    """The resource as JSON."""
    return to_mapping(cast("Node", node_record(NODE, found(annotations, **more)).value))


def test_s19_a_node_is_read_from_its_annotations() -> None:
    interfaces = [{"name": "eth1", "addresses": ["192.0.2.1"]}, {"name": "eth0", "addresses": ["172.17.17.10"]}]
    node = read(
        {"IPv4Address": "172.17.17.10", "ASNumber": "2546", "Interfaces": json.dumps(interfaces)},
        spec={"podCIDR": "10.0.0.1/24"},
    )
    assert node["spec"] == {
        "orchRefs": [{"nodeName": "node-a", "orchestrator": "k8s"}],
        "bgp": {"ipv4Address": "172.17.17.10", "asNumber": 2546},
        "interfaces": interfaces,
    }
    assert node["status"] == {"podCIDRs": ["10.0.0.0/24"]}


@pytest.mark.parametrize("status, is_ready", [("False", False), ("Unknown", False), ("True", None), ("", None)])
def test_a_node_that_the_cluster_calls_unready_is(status: str, *, is_ready: bool | None) -> None:
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}, "odd"]
    record = node_record(NODE, {**found({}), "status": {"conditions": conditions}})
    assert cast("Node", record.value).status.is_ready is is_ready
    assert cast("Node", node_record(NODE, {**found({}), "status": {"conditions": None}}).value).status.is_ready is None


def test_s20_a_tunnel_address_is_read_from_its_annotation() -> None:
    spec = cast("dict[str, object]", read({"IPv4IPIPTunnelAddr": "10.0.0.24"})["spec"])
    assert spec["bgp"] == {"ipv4IPIPTunnelAddr": "10.0.0.24"}


@pytest.mark.parametrize("reflector", ["here", "fd00::1", ""])
def test_s22_a_route_reflector_id_that_is_no_dotted_quad_is_ignored(reflector: str) -> None:
    spec = cast("dict[str, object]", read({"RouteReflectorClusterID": reflector, "ASNumber": "many"})["spec"])
    assert "bgp" not in spec


@pytest.mark.parametrize(
    "annotations,spec,tunnel,wireguard",
    [
        ({}, {"podCIDR": "10.0.0.0/24"}, "10.0.0.1", ""),
        ({"IPv4IPIPTunnelAddr": "10.9.9.9"}, {"podCIDR": "10.0.0.0/24"}, "10.0.0.1", ""),
        ({"WireguardPublicKey": "key"}, {"podCIDRs": ["fd00::/64", "10.0.0.0/24"]}, "10.0.0.1", "10.0.0.1"),
        ({"WireguardPublicKey": "key", "ASNumber": "7"}, {}, None, ""),
    ],
)
def test_s21_tunnel_addresses_come_from_the_pod_cidr(
    annotations: dict[str, str], spec: dict[str, object], tunnel: str | None, wireguard: str
) -> None:
    record = node_record(NODE, found(annotations, spec=spec), PodAddressSource.POD_CIDR)
    node = cast("Node", record.value)
    shown = cast("dict[str, dict[str, object]]", to_mapping(node)["spec"])
    assert shown["bgp"].get("ipv4IPIPTunnelAddr") == tunnel
    assert node.spec.vxlan_tunnel_address == (None if tunnel is None else Address.parse(tunnel))
    assert node.spec.vxlan_tunnel_address_v6 == (Address.parse("fd00::1") if "podCIDRs" in spec else None)
    assert shown["wireguard"]["interfaceIPv4Address"] == wireguard


@pytest.mark.parametrize(
    "number,read_as", [("4294967295", 4294967295), ("0", None), ("4294967296", None), ("9" * 5_000, None), ("-1", None)]
)
def test_s22_an_invalid_as_number_is_ignored(number: str, read_as: int | None) -> None:
    """RFC 6793: it has 32 bits. An invalid one on one node must not make the list of nodes fail."""
    spec = cast("dict[str, object]", read({"ASNumber": number})["spec"])
    assert spec.get("bgp") == (None if read_as is None else {"asNumber": read_as})


def test_labels_of_the_cluster_hide_ours() -> None:
    node = node_record(NODE, found({"labels": '{"zone":"ours","rack":"1"}', "annotations": '{"k":"v"}'})).value
    assert isinstance(node, Node)
    assert node.metadata.labels == (("rack", "1"), ("zone", "a"))
    assert node.metadata.annotations == (("k", "v"),)


def test_written_members_are_read_again_and_removed_ones_lose_their_annotation() -> None:
    record = node_record(NODE, found({"IPv6VXLANTunnelAddr": "fd00::1"}))
    node = cast("Node", record.value)
    labels = (("rack", "1"), ("zone", "a"))
    spec = evolve(
        node.spec,
        bgp=NodeBGP(as_number=64512, route_reflector_cluster_id="1.0.0.1"),
        vxlan_tunnel_address_v6=None,
        vxlan_tunnel_mac="66:00:00:00:00:01",
        interfaces=(NodeInterface(name="eth0"),),
        unknown_json='{"wireguard":{"interfaceIPv4Address":"10.0.0.9"}}',
    )
    status = '{"status":{"wireguardPublicKey":"key"}}'
    wanted = evolve(node, metadata=evolve(node.metadata, labels=labels), spec=spec, unknown_json=status)
    annotations = node_annotations(wanted, found({}))
    assert {name.partition("/")[2]: text for name, text in annotations.items() if text is not None} == {
        "ASNumber": "64512",
        "RouteReflectorClusterID": "1.0.0.1",
        "VXLANTunnelMACAddr": "66:00:00:00:00:01",
        "IPv4WireguardInterfaceAddr": "10.0.0.9",
        "WireguardPublicKey": "key",
        "Interfaces": '[{"name":"eth0"}]',
        "labels": '{"rack":"1"}',
    }
    assert annotations[f"{DOMAIN}/IPv6VXLANTunnelAddr"] is None


@pytest.mark.parametrize(
    "annotations,problem",
    [
        ({"labels": "{"}, "annotation projectnetplug.org/labels"),
        ({"labels": "[]"}, "a JSON object of texts is expected"),
        ({"kube-labels": "{"}, "annotation projectnetplug.org/kube-labels"),
        ({"kube-labels": '{"zone":1}'}, "a JSON object of texts is expected"),
        ({"annotations": '{"a":1}'}, "a JSON object of texts is expected"),
        ({"Interfaces": "eth0"}, "annotation projectnetplug.org/Interfaces"),
        ({"Interfaces": "[" * 100_000}, "annotation projectnetplug.org/Interfaces: it is nested too deeply"),
        ({"labels": "[" * 100_000}, "annotation projectnetplug.org/labels: it is nested too deeply"),
    ],
)
def test_invalid_annotations_are_malformed_and_named(annotations: dict[str, str], problem: str) -> None:
    with pytest.raises(Malformed) as refusal:
        node_record(NODE, found(annotations))
    assert refusal.value.key == "Node(node-a)"
    assert problem in refusal.value.problem


def test_an_annotation_of_any_depth_is_decoded_or_malformed() -> None:
    """At some depth JSON can be decoded and not encoded again; which one depends on the version of Python."""
    refused = 0
    for depth in (*range(100, 1100), 200_000):
        text = f'[{{"name":"eth0","x":{"[" * depth}{"]" * depth}}}]'
        with suppress(Malformed):
            node_record(NODE, found({"Interfaces": text}))
            continue
        refused += 1
    assert 0 < refused <= 1000


def with_labels(annotations: dict[str, str], **labels: str | None) -> dict[str, str]:
    """Our labels after a write that gives the node some labels, or removes them (None)."""
    node = cast("Node", node_record(NODE, found(annotations)).value)
    wanted = {**dict(node.metadata.labels), **labels}
    kept = tuple(sorted((name, text) for name, text in wanted.items() if text is not None))
    changed = evolve(node, metadata=evolve(node.metadata, labels=kept))
    stored = node_annotations(changed, found(annotations))[f"{DOMAIN}/labels"]
    return cast("dict[str, str]", json.loads(stored or "{}"))


def test_labels_of_ours_that_the_clusters_hide_are_kept_at_every_write() -> None:
    ours = {"labels": '{"zone":"ours","rack":"1"}'}
    assert with_labels(ours) == {"zone": "ours", "rack": "1"}
    assert with_labels(ours, rack="2", row="b") == {"zone": "ours", "rack": "2", "row": "b"}
    assert with_labels(ours, rack=None) == {"zone": "ours"}
    assert with_labels({}) == {}


def test_another_text_for_a_label_of_the_cluster_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        with_labels({"labels": '{"zone":"b"}'}, zone="b")
    assert str(refusal.value) == (
        "Node(node-a) metadata.labels[zone]: 'b' is not accepted; "
        "the cluster's own Node has this label with the text 'a'; change it there, with kubectl"
    )


def test_a_resource_need_not_repeat_the_labels_of_the_cluster() -> None:
    assert with_labels({"labels": '{"rack":"1"}'}, zone=None, rack="2") == {"rack": "2"}
