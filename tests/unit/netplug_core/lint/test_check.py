"""Documents together: what is found between them, and what is not judged because it is not known."""

from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from netplug_core.addressing import Prefix
from netplug_core.lint.check import STORED, LintResult, check, unreadable
from netplug_core.lint.clusters import HostRoute, Surroundings, read_routes
from netplug_core.lint.documents import Document
from netplug_core.lint.rules import Rule
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPReservation, IPReservationSpec

API = "projectnetplug.org/v3"
PREFIX = "cni.projectnetplug.org"
Mappings = Mapping[str, object]


def pool(name: str = "main", cidr: str = "10.64.0.0/16", **spec: object) -> Mappings:
    return {"apiVersion": API, "kind": "IPPool", "metadata": {"name": name}, "spec": {"cidr": cidr, **spec}}


def node(name: str = "node-a", **labels: str) -> Mappings:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def namespace(**labels: str) -> Mappings:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}}


def pod(**annotations: object) -> Mappings:
    texts = {f"{PREFIX}/{name}": text for name, text in annotations.items()}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "annotations": texts}}


def netconf(ipam: Mappings | None = None, **more: object) -> Mappings:
    own = {"type": "netplug", "datastore_type": "sqlite", "ipam": ipam or {"type": "netplug-ipam"}}
    return {"name": "pods", "cniVersion": "1.0.0", **own, **more}


def lint(*mappings: Mappings, surroundings: Surroundings | None = None, stored: tuple[IPPool, ...] = ()) -> LintResult:
    documents = [Document(source=f"a#{number}", mapping=one) for number, one in enumerate(mappings, start=1)]
    return check(documents, surroundings or Surroundings(), stored)


def rules(*mappings: Mappings) -> list[Rule]:
    return [one.rule for one in lint(*mappings).found]


def stored_pool(name: str, cidr: str) -> IPPool:
    return IPPool.for_prefix(Prefix.parse(cidr), name=name)


# --- pools, nodes and namespaces --------------------------------------------------------------------------------------


def test_a_selector_that_cannot_be_read_is_found_once() -> None:
    bad = pool(nodeSelector="zone =", namespaceSelector="team =", allowedUses=["Workload"])
    assert rules(bad, node(), namespace()) == [Rule.POOL_SELECTOR, Rule.POOL_SELECTOR]


def test_a_pool_that_serves_nobody_by_itself_needs_no_node() -> None:
    disabled = pool("off", "10.65.0.0/16", disabled=True, nodeSelector="zone == 'b'")
    by_name = pool("by-name", "10.66.0.0/16", assignmentMode="Manual", nodeSelector="zone == 'b'")
    assert rules(pool(), disabled, by_name, node(zone="a")) == []


def test_a_pool_that_is_smaller_than_a_block_is_found_once() -> None:
    assert rules(pool(cidr="10.64.0.0/28"), node("a"), node("b")) == [Rule.POOL_CIDR]


def test_a_node_without_labels_and_without_a_pool() -> None:
    (found, without) = lint(pool(nodeSelector="zone == 'b'"), node()).found
    assert (found.rule, without.rule, without.value) == (Rule.POOL_WITHOUT_NODE, Rule.NODE_WITHOUT_POOL, None)
    assert "does not select this node" in without.accepted


def test_a_namespace_may_have_the_labels_that_a_pool_selects() -> None:
    assert rules(pool(namespaceSelector="team == 'blue'", allowedUses=["Workload"]), node()) == []


def test_pools_of_a_family_that_no_configuration_wants_are_not_needed() -> None:
    six = pool("six", "fd00::/64", nodeSelector="zone == 'b'")
    assert rules(pool(), six, node(), node("b", zone="b")) == [Rule.NODE_WITHOUT_POOL]
    assert rules(pool(), six, node(), node("b", zone="b"), netconf()) == []


def test_without_a_pool_nothing_is_looked_up() -> None:
    named = netconf({"type": "netplug-ipam", "ipv4_pools": ["main"]})
    assert rules(named, node(), namespace(), pod(ipv4pools='["main"]', ipAddrs='["10.0.0.1"]')) == []


def test_a_configuration_without_a_family_asks_for_no_pool() -> None:
    assert rules(netconf({"type": "netplug-ipam", "assign_ipv4": "false"}), pool(), node()) == [Rule.NO_FAMILY]


def test_a_name_that_is_no_cidr_names_no_pool() -> None:
    named = netconf({"type": "netplug-ipam", "ipv4_pools": ["10.64.0.1/16"]})
    assert rules(named, pool()) == [Rule.POOL_UNKNOWN]


# --- pods -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features, rule", [({}, Rule.FEATURE_OFF), ({"ip_addrs_no_ipam": True}, Rule.ANNOTATION_IPAM)])
def test_addresses_without_an_ipam_need_a_feature_and_the_ipam(features: Mappings, rule: Rule) -> None:
    ranges = {"type": "host-local", "subnet": "10.22.0.0/24"}
    assert rules(pod(ipAddrsNoIpam='["10.0.0.1"]'), netconf(ranges, feature_control=features)) == [rule]


def test_pools_of_annotations_are_not_looked_up_for_another_ipam() -> None:
    static = netconf({"type": "static"})
    assert rules(pod(ipv4pools='["man"]'), pool(), static) == [Rule.ANNOTATION_IPAM]
    assert rules(pod(ipv4pools='["man"]'), pool(), netconf()) == [Rule.ANNOTATION_POOL_UNKNOWN]


def test_the_prefix_of_annotations_is_the_configured_one() -> None:
    other = netconf(annotation_prefix="net.example.org")
    named = {"kind": "Pod", "apiVersion": "v1", "metadata": {"annotations": {"net.example.org/ipv4pool": "x"}}}
    assert rules(named, other) == [Rule.ANNOTATION_UNKNOWN]
    assert rules(named, other, netconf()) == []  # which one counts is not known
    assert rules(named) == []


def test_each_annotation_that_cannot_be_read_is_found() -> None:
    found = lint(pod(ipv4pools="x", hwAddr="y", ipAddrs="z", zebra="", podIP="10.0.0.1")).found
    assert [one.rule for one in found] == [
        Rule.ANNOTATION_UNKNOWN,
        Rule.ANNOTATION_POOLS,
        Rule.ANNOTATION_ADDRESSES,
        Rule.ANNOTATION_MAC,
    ]
    assert found[1].field == f"metadata.annotations[{PREFIX}/ipv4pools]"


def test_annotations_that_are_no_texts_are_written_as_json() -> None:
    (found,) = lint(pod(ipv4pools=["main"])).found
    assert found.repair is not None
    assert (found.repair.path, found.repair.value) == (("metadata", "annotations", f"{PREFIX}/ipv4pools"), '["main"]')


@pytest.mark.parametrize("value", [9783981296, 1.5, True, None, [8], ["main", None], {"main": 1}, {8: "main"}, b"x"])
def test_an_annotation_is_not_repaired_if_it_may_have_been_written_otherwise(value: object) -> None:
    (found,) = lint(pod(ipv4pools=value)).found
    assert (found.rule, found.repair, found.value) == (Rule.ANNOTATION_TYPE, None, value)
    assert found.accepted.startswith("a text is expected")


@pytest.mark.parametrize("value, text", [([], "[]"), ({"main": ["a"]}, '{"main": ["a"]}')])
def test_lists_and_objects_of_texts_are_written_as_json(value: object, text: str) -> None:
    (found,) = lint(pod(ipv4pools=value)).found
    assert found.repair is not None
    assert found.repair.value == text


def odd(value: Mappings) -> Mappings:
    """An object with names that YAML reads as something other than texts, such as ``on``, ``8080`` and ``~``."""
    return {**value, **dict.fromkeys(cast("Iterator[str]", (True, 8080, None, 1.5)), "x")}


def annotated(kind: str, annotations: Mappings) -> Mappings:
    metadata = {"name": "web", "namespace": "shop", "annotations": annotations}
    template = {"metadata": {"annotations": annotations}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Namespace"])
def test_a_name_of_an_annotation_that_is_no_text_is_anothers(kind: str) -> None:
    of_others = odd({"example.org/a": "b"})
    assert rules(annotated(kind, of_others)) == []
    assert Rule.ANNOTATION_POOLS in rules(annotated(kind, {**of_others, f"{PREFIX}/ipv4pools": "x"}))
    assert rules(annotated(kind, of_others), pool(cidr="10.64.0.1/16")) == [Rule.POOL_HOST_BITS]


@pytest.mark.parametrize("name", ["x of pod y", "x of pod ", "ipAddrs of pod shop/web", " of pod ", "a b"])
def test_a_name_with_the_words_of_the_error_is_found_once(name: str) -> None:
    found = lint(pod(**{name: "z", "hwAddr": "y"})).found
    assert [(one.rule, one.field) for one in found] == [
        (Rule.ANNOTATION_UNKNOWN, f"metadata.annotations[{PREFIX}/{name}]"),
        (Rule.ANNOTATION_MAC, f"metadata.annotations[{PREFIX}/hwAddr]"),
    ]


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_a_document_takes_the_place_of_what_is_stored() -> None:
    stored = (stored_pool("main", "10.64.0.0/16"), stored_pool("old", "10.65.0.0/16"))
    assert lint(pool(), stored=stored).found == ()
    (found,) = lint(pool("new", "10.65.0.0/24"), stored=stored).found
    assert (found.rule, found.source) == (Rule.POOL_OVERLAP, STORED)
    (found,) = lint(pool(cidr="10.66.0.0/16"), stored=stored).found
    assert (found.rule, found.source, found.field) == (Rule.POOL_CHANGE, "a#1", "spec.cidr")


def test_a_stored_reservation_counts() -> None:
    spec = IPReservationSpec(reserved=(Prefix.parse("10.0.0.0/8"),))
    reservation = IPReservation(metadata=Metadata(name="all"), spec=spec)
    result = check([Document(source="a#1", mapping=pool())], Surroundings(), [reservation])
    assert [one.rule for one in result.found] == [Rule.POOL_RESERVED]
    assert (result.count, result.skipped) == (2, ())


def test_the_order_is_that_of_the_documents() -> None:
    result = lint(pool("b", "10.65.0.1/16"), {"kind": "Service"}, pool("a", "10.66.0.0/28", blockSize=22))
    assert [(one.source, one.rule) for one in result.found] == [
        ("a#1", Rule.POOL_HOST_BITS),
        ("a#3", Rule.POOL_CIDR),
        ("a#3", Rule.POOL_LARGE_BLOCKS),
    ]
    assert (result.count, result.skipped) == (2, ("a#2",))


def test_a_file_that_cannot_be_read() -> None:
    found = unreadable("a.yaml", "no such file")
    assert (found.rule, found.source, found.accepted) == (Rule.UNREADABLE, "a.yaml", "no such file")


def test_a_cidr_that_is_none_cannot_be_corrected() -> None:
    (found,) = lint(pool(cidr="10.64.0.0/40")).found
    assert (found.rule, found.repair) == (Rule.MALFORMED_FIELD, None)


# --- ranges -----------------------------------------------------------------------------------------------------------


def test_ranges_of_others() -> None:
    routes = read_routes(
        [{"dst": "default", "dev": "eth0"}, {"dst": "10.64.0.9", "dev": "tun0"}, {"dst": "10.64.0.8", "dev": "netpx"}],
        source="routes",
    )
    assert routes[0] == HostRoute(destination=None, device="eth0")
    services, hosts = (Prefix.parse("10.64.0.0/24"),), (Prefix.parse("10.64.0.0/28"), Prefix.parse("fd00::/64"))
    found = lint(pool(), surroundings=Surroundings(services=services, hosts=hosts, routes=routes)).found
    assert [(one.rule, one.value) for one in found] == [
        (Rule.RANGE_OF_SERVICES, "10.64.0.0/16"),
        (Rule.RANGE_OF_HOSTS, "10.64.0.0/16"),
        (Rule.RANGE_ROUTED, "10.64.0.0/16"),
        (Rule.SERVICES_IN_HOSTS, "10.64.0.0/24"),
    ]
    assert found[2].accepted.endswith("the host has 10.64.0.9/32 dev tun0")


def test_ranges_of_host_local_are_compared_too() -> None:
    ranges = netconf({"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/24"}, {"subnet": "10.64.0.0/24"}]]})
    surroundings = Surroundings(services=(Prefix.parse("10.22.0.0/16"),))
    found = lint(ranges, pool(), surroundings=surroundings).found
    assert [(one.rule, one.field, one.value) for one in found] == [
        (Rule.RANGE_OF_SERVICES, "ipam.ranges", "10.22.0.0/24"),
        (Rule.TWO_IPAMS, "ipam.ranges", "10.64.0.0/24"),
    ]
