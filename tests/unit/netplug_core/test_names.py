"""Computed names: known vectors that other programs share, and what cannot be made into a name."""

import hashlib
import re
from base64 import b32encode

import pytest

from netplug_core.addressing import Prefix
from netplug_core.locks import MAX_LOCK_OFFSET
from netplug_core.names import (
    HOST_INTERFACE_PREFIX,
    MAX_NAME_LENGTH,
    HostInterfaceAlias,
    InvalidName,
    WorkloadEndpointIdentifiers,
    attachment_lock_offset,
    container_mac,
    encode_segment,
    endpoint_name,
    endpoint_name_prefix,
    endpoint_status_file_name,
    former_host_interface_name,
    handle_id,
    host_interface_alias,
    host_interface_name,
    is_cni_name,
    is_resource_name,
    label_value,
    matches_endpoint_name,
    parse_endpoint_name,
    prefix_to_name,
    workload_endpoint_name,
)

POD = WorkloadEndpointIdentifiers(node="node-1", orchestrator="k8s", pod="pod-name", endpoint="eth0")
CONTAINER = WorkloadEndpointIdentifiers(
    node="node-1", orchestrator="cni", container_id="abcdefa0123456", endpoint="eth0"
)


# --- endpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "identity,name",
    [
        (POD, "node--1-k8s-pod--name-eth0"),
        (CONTAINER, "node--1-cni-abcdefa0123456-eth0"),
        (
            WorkloadEndpointIdentifiers(node="node-1", orchestrator="libnetwork", endpoint="abcdefgh"),
            "node--1-libnetwork-libnetwork-abcdefgh",
        ),
        (
            WorkloadEndpointIdentifiers(node="node-1", orchestrator="foo", workload="foo-foo", endpoint="abcdefgh"),
            "node--1-foo-foo--foo-abcdefgh",
        ),
    ],
)
def test_s27_check_104_names_have_four_parts(identity: WorkloadEndpointIdentifiers, name: str) -> None:
    assert endpoint_name(identity) == name
    assert endpoint_name_prefix(identity) == name
    assert matches_endpoint_name(identity, name)


@pytest.mark.parametrize(
    "identity,message",
    [
        (
            WorkloadEndpointIdentifiers(node="node-1", pod="p", endpoint="eth0"),
            "orchestrator: field should be assigned (it is '')",
        ),
        (
            WorkloadEndpointIdentifiers(node="node-1", orchestrator="k8s", endpoint="eth0"),
            "pod: field should be assigned (it is '')",
        ),
        (
            WorkloadEndpointIdentifiers(node="node-1", orchestrator="cni", container_id="-abc", endpoint="eth0"),
            "containerID: field must not begin with a '-' (it is '-abc')",
        ),
        (
            WorkloadEndpointIdentifiers(node="node-1", orchestrator="foo", workload="foo-foo-", endpoint="eth0"),
            "workload: field must not end with a '-' (it is 'foo-foo-')",
        ),
        (
            WorkloadEndpointIdentifiers(orchestrator="k8s", pod="p", endpoint="eth0"),
            "node: field should be assigned (it is '')",
        ),
    ],
)
def test_s27_check_105_a_bad_part_is_named(identity: WorkloadEndpointIdentifiers, message: str) -> None:
    with pytest.raises(InvalidName) as problem:
        endpoint_name(identity)
    assert str(problem.value) == message
    assert problem.value.code == 7


@pytest.mark.parametrize(
    "identity,prefix",
    [
        (WorkloadEndpointIdentifiers(node="node-1", orchestrator="k8s"), "node--1-k8s-"),
        (WorkloadEndpointIdentifiers(node="node-1"), "node--1-"),
        (WorkloadEndpointIdentifiers(node="node-1", orchestrator="k8s", pod="p"), "node--1-k8s-p-"),
        (POD, "node--1-k8s-pod--name-eth0"),
    ],
)
def test_check_105_a_prefix_ends_before_the_first_unknown_part(
    identity: WorkloadEndpointIdentifiers, prefix: str
) -> None:
    assert endpoint_name_prefix(identity) == prefix


def test_check_105_a_prefix_needs_the_node() -> None:
    with pytest.raises(InvalidName, match=r"^node: field should be assigned"):
        endpoint_name_prefix(WorkloadEndpointIdentifiers(orchestrator="k8s"))


def test_check_105_a_prefix_has_no_bad_part_either() -> None:
    with pytest.raises(InvalidName, match=r"^pod: field must not begin with a '-'"):
        endpoint_name_prefix(WorkloadEndpointIdentifiers(node="n", orchestrator="k8s", pod="-p"))


@pytest.mark.parametrize(
    "identity,name,is_match",
    [
        (
            WorkloadEndpointIdentifiers(node="node-1", orchestrator="cni", endpoint="eth0"),
            "node--1-cni-orchestratorid-eth0",
            True,
        ),
        (
            WorkloadEndpointIdentifiers(node="node-1", orchestrator="cni", container_id="abcde", endpoint="eth0"),
            "node--1-cni-abcdef-eth0",
            False,
        ),
        (WorkloadEndpointIdentifiers(node="node"), "node-cni-abc", False),
        (WorkloadEndpointIdentifiers(node="node"), "node-cni-abc-eth0-more", False),
        (WorkloadEndpointIdentifiers(node="node", endpoint="eth"), "node-cni-abc-eth0", False),
        (WorkloadEndpointIdentifiers(node="node1", orchestrator="k8s", pod="mypod"), "node1-k8s-mypod--1-eth0", False),
        (WorkloadEndpointIdentifiers(), "node1-k8s-mypod-eth0", True),
    ],
)
def test_check_106_a_match_compares_part_by_part(
    identity: WorkloadEndpointIdentifiers, name: str, *, is_match: bool
) -> None:
    assert matches_endpoint_name(identity, name) is is_match


@pytest.mark.parametrize(
    "name,identity",
    [
        ("node-", WorkloadEndpointIdentifiers(node="node")),
        ("node", WorkloadEndpointIdentifiers(node="node")),
        ("node-k8s-pod--name-", WorkloadEndpointIdentifiers(node="node", orchestrator="k8s", pod="pod-name")),
        (
            "node-foo--orch-workload-eth0",
            WorkloadEndpointIdentifiers(node="node", orchestrator="foo-orch", workload="workload", endpoint="eth0"),
        ),
        ("node--1-cni-abcdefa0123456-eth0", CONTAINER),
        (
            "coredns-668d6bf9bc-bxhr6",
            WorkloadEndpointIdentifiers(node="coredns", orchestrator="668d6bf9bc", workload="bxhr6"),
        ),
    ],
)
def test_check_106_a_name_is_parsed_as_far_as_it_goes(name: str, identity: WorkloadEndpointIdentifiers) -> None:
    assert parse_endpoint_name(name) == identity


@pytest.mark.parametrize("name", ["", "netplug-kube-controllers-7946b84856-2fwwq"])
def test_check_106_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match=r"^endpoint name: node, orchestrator, workload and endpoint joined by"):
        parse_endpoint_name(name)


@pytest.mark.parametrize("text", ["a", "0", "Net_1.a-b", "x--", "a" * 300])
def test_names_that_the_cni_specification_allows(text: str) -> None:
    assert is_cni_name(text)


@pytest.mark.parametrize("text", ["", ".a", "-a", "_a", "a/b", "a b", "a\n", "a\r", "é", "a\udcff", "\0"])
def test_names_that_it_does_not_allow(text: str) -> None:
    assert not is_cni_name(text)


# --- every text that CNI allows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "abc123", "eth0", "eth0.100", "a-b.c-d", "0"])
def test_a_part_that_a_resource_name_can_hold_stays(text: str) -> None:
    assert encode_segment(text) == text


@pytest.mark.parametrize(
    "text,kept",
    [
        ("Eth0", "eth0-"),
        ("net_1", "net-1-"),
        ("abc-", "abc-"),
        ("a..b", "a--b-"),
        ("a.-b", "a--b-"),
        ("äöü", ""),
        ("\udcff", ""),
    ],
)
def test_any_other_part_is_marked_by_its_hash(text: str, kept: str) -> None:
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    assert encode_segment(text) == f"{kept}{digest}"


def test_texts_that_would_look_alike_get_different_names() -> None:
    alike = ("net_1", "Net_1", "net-1", "NET-1")
    assert len({encode_segment(text) for text in alike}) == len(alike)


def test_plain_texts_give_the_plain_name() -> None:
    assert workload_endpoint_name(POD) == endpoint_name(POD)


def test_a_long_name_ends_in_a_hash() -> None:
    long = WorkloadEndpointIdentifiers(node="n" * 63, orchestrator="k8s", pod="p" * 253, endpoint="eth0")
    name = workload_endpoint_name(long)
    digest = hashlib.sha256(endpoint_name(long).encode()).hexdigest()[:16]
    assert len(name) == MAX_NAME_LENGTH
    assert name.startswith("n" * 63 + "-k8s-ppp")
    assert name.endswith(f"p-{digest}")


def test_a_long_name_is_cut_where_a_resource_name_may_end() -> None:
    dashes = WorkloadEndpointIdentifiers(node="n", orchestrator="k8s", pod="p" + "-" * 200 + "p", endpoint="eth0")
    name = workload_endpoint_name(dashes)
    assert name.startswith("n-k8s-p-")
    assert len(name) == len("n-k8s-p-") + 16


# --- handles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "triple,handle",
    [
        (("net1", "badbeef", "eth0"), "net1.badbeef"),
        (("net1", "badbeef", "net0"), "net1.badbeef.net0"),
        (("net.1", "badbeef", "eth0"), "net.1.badbeef~9ee3a4cf"),
        (("net", "1.badbeef", "eth0"), "net.1.badbeef~f3d2a5c0"),
        (("net1", "badbeef", "eth0.1"), "net1.badbeef.eth0.1~dff50f1f"),
        (("net1", "badbeef", "a~b"), "net1.badbeef.a~b~05269ada"),
    ],
)
def test_a_handle_names_network_container_and_interface(triple: tuple[str, str, str], handle: str) -> None:
    assert handle_id(*triple) == handle


def test_handles_that_could_be_read_two_ways_differ() -> None:
    assert handle_id("net", "a.b", "eth0") != handle_id("net.a", "b", "eth0")
    assert handle_id("net", "a", "b") != handle_id("net", "a.b", "eth0")


# --- interfaces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod_namespace,pod,container_id,ifname,digits,former_digits",
    [
        ("default", "nginx", "abc123", "eth0", "mkg42m52qnw", "c440f455693"),
        ("default", "nginx-6c8b449b8f-abcde", "abc123", "eth0", "pntsxrwrht5", "bd37e2e16c8"),
        ("test", "test-pod-1", "abc123", "eth0", "fpjvd75v4hp", "618a041cd51"),
        ("test", "test-pod-1", "another", "eth0", "fpjvd75v4hp", "618a041cd51"),
        ("test", "test-pod-1", "abc123", "net1", "7c7gck5k3vv", "b9956a37986"),
        ("", "", "abc123", "eth0", "fuz5buijwhr", "6367c48dd19"),
        ("", "", "abc123", "net1", "usuuvwwefab", "ae756419f3b"),
        ("test", "", "abc123", "eth0", "fuz5buijwhr", "6367c48dd19"),
        ("", "test-pod-1", "abc123", "eth0", "fuz5buijwhr", "6367c48dd19"),
    ],
)
def test_check_60_a_host_interface_is_named_by_a_hash_and_was_by_another(
    pod_namespace: str, pod: str, container_id: str, ifname: str, digits: str, former_digits: str
) -> None:
    attachment = {"pod_namespace": pod_namespace, "pod": pod, "container_id": container_id, "ifname": ifname}
    name, former = host_interface_name(**attachment), former_host_interface_name(**attachment)
    parts = (pod_namespace, pod, ifname) if pod_namespace and pod else ("", container_id, ifname)
    assert digits == b32encode(hashlib.sha256("/".join(parts).encode()).digest()).decode().lower()[:11]
    assert name == HOST_INTERFACE_PREFIX + digits
    assert former == HOST_INTERFACE_PREFIX + former_digits
    assert len(name) == len(former) == 15


@pytest.mark.parametrize(
    "pod_namespace,pod,workload,text",
    [
        ("shop", "web-0", "shop\0web-0\0net1", "net1 of shop/web-0, container 3f2a, network net-a"),
        ("", "web-0", "\x003f2a\0net1", "net1 of container 3f2a, network net-a"),
        ("shop", "", "\x003f2a\0net1", "net1 of container 3f2a, network net-a"),
    ],
)
def test_an_alias_names_attachment_and_workload(pod_namespace: str, pod: str, workload: str, text: str) -> None:
    found = host_interface_alias(
        network="net-a", container_id="3f2a", ifname="net1", pod_namespace=pod_namespace, pod=pod
    )
    hashes = [
        b32encode(hashlib.sha256(source.encode()).digest()).decode().lower()[:26]
        for source in ("net-a\x003f2a\0net1", workload)
    ]
    assert str(found) == f"netplug {hashes[0]} {hashes[1]} {text}"
    assert HostInterfaceAlias.parse(str(found)) == found


def test_an_alias_is_cut_at_what_the_kernel_keeps() -> None:
    for length in range(180, 220):
        alias = host_interface_alias(
            network="n", container_id="c", ifname="eth0", pod_namespace="ä" * (length // 2), pod="p" * length
        )
        assert 250 < len(str(alias).encode()) <= 255
        assert HostInterfaceAlias.parse(str(alias)) == alias
    unprintable = host_interface_alias(network="n", container_id="c", ifname="e", pod_namespace="a", pod="\udcff")
    assert " e of a/?, " in str(unprintable)


@pytest.mark.parametrize(
    "alias",
    ["", "netplug", f"netplug {'a' * 26}", f"other {'a' * 26} {'a' * 26}", f"netplug {'a' * 25} {'a' * 26} x",
     f"netplug {'a' * 26} {'a' * 27}", f"netplug {'A' * 26} {'a' * 26}", f"netplug  {'a' * 26} {'a' * 26}"],
)  # fmt: skip
def test_any_other_alias_is_nobodys(alias: str) -> None:
    assert HostInterfaceAlias.parse(alias) is None
    assert HostInterfaceAlias.parse(f"netplug {'a' * 26} {'7' * 26}") is not None


def test_a_mac_follows_from_the_handle() -> None:
    digest = hashlib.sha256(b"net1.abc123").digest()
    mac = bytes.fromhex(container_mac("net1.abc123").replace(":", ""))
    assert mac[1:] == digest[1:6]
    assert mac[0] & 0b11 == 0b10, "unicast, locally administered"
    assert mac[0] >> 2 == digest[0] >> 2


# --- files and prefixes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts,name",
    [
        (("k8s", "default/testpod1", "eth0"), "k8s default%2Ftestpod1 eth0"),
        (("k8/s", "defaul/t/testp/od1", "eth/0"), "k8%2Fs defaul%2Ft%2Ftestp%2Fod1 eth%2F0"),
        (("k8s", "default/t est pod1", "eth0"), "k8s default%2Ft%20est%20pod1 eth0"),
        (("k8s", "-_.~$&+:=@", "ä%"), "k8s -_.~$&+:=@ %C3%A4%25"),
    ],
)
def test_check_107_status_files_have_three_encoded_parts(parts: tuple[str, str, str], name: str) -> None:
    assert endpoint_status_file_name(*parts) == name


@pytest.mark.parametrize(
    "prefix,name",
    [("10.0.0.0/26", "10-0-0-0-26"), ("fd00:65::/122", "fd00-65---122"), ("0.0.0.0/0", "0-0-0-0-0")],
)
def test_a_prefix_as_part_of_a_name(prefix: str, name: str) -> None:
    assert prefix_to_name(Prefix.parse(prefix)) == name


@pytest.mark.parametrize("name", ["a", "a-1.b", "1", "x" * 253])
def test_names_that_resources_may_have(name: str) -> None:
    assert is_resource_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a%2Fb", "A", "a_b", "-a", "a-", "a..b", "a b", "a\n", "é", "x" * 254]
)
def test_names_that_no_resource_has(name: str) -> None:
    assert not is_resource_name(name)


@pytest.mark.parametrize("text", ["", "web", "a" * 63, "Web_1.b-C", "0", "a_" + "0" * 15, "a_" + "g" * 16])
def test_a_text_that_the_api_accepts_is_the_value_of_a_label(text: str) -> None:
    assert label_value(text) == text


@pytest.mark.parametrize(
    "text,value",
    [
        ("a" * 64, "a" * 46 + "_ffe054fe7ae0cb6d"),
        ("web.", "web._"),
        ("-", "x_"),
        ("a\nb", "a-b_"),
        ("web_0123456789abcdef", "web_0123456789abcdef_"),
        ("web\n", "web-_"),
        ("\udcff", "x_"),
    ],
)
def test_any_other_text_is_cut_and_gets_a_hash(text: str, value: str) -> None:
    made = label_value(text)
    assert made.startswith(value)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*_[0-9a-f]{16}", made)
    assert len(made) <= 63
    assert made == label_value(text)


# --- locks ---------------------------------------------------------------------------------------------------------


def test_the_lock_of_an_attachment_is_a_byte_of_its_own() -> None:
    """Other programs lock the same byte, so the vector is fixed."""
    assert attachment_lock_offset("net1", "c1", "eth0") == 1_245_227_054_675_288_641
    triples = [("a", "b", "c"), ("ab", "", "c"), ("a", "bc", ""), ("a", "b.c", "eth0"), ("a.b", "c", "eth0")]
    offsets = {attachment_lock_offset(*triple) for triple in triples}
    assert len(offsets) == len(triples)
    assert all(0 < offset <= MAX_LOCK_OFFSET for offset in offsets)
