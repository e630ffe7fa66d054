"""The BGP kinds: what a document may say, and the rules that a user's one has to keep."""

from collections.abc import Mapping

import pytest

from netplug_core.addressing import Family
from netplug_core.decoding.tables import MalformedField
from netplug_core.resources.bgp import BGPConfiguration, BGPFilter
from netplug_core.resources.validation import InvalidResource, resource_warnings, validate_resource
from tests.harness.resources import resource_of

Problem = tuple[str, str, str]

PASSWORD = {"secretKeyRef": {"name": "bgp", "key": "password"}}
EDGE = {"name": "edge", "value": "65001:100"}
RANGES = [{"cidr": "10.96.0.0/12"}, {"cidr": "fd00::/112"}]
FORMS = "two numbers up to 65535 as 65001:100, or three up to 4294967295 as 65001:100:3"
NO_INTERFACE = "must be at most 15 letters, digits, '_', '.', '-' and '*', and not '*' alone"
NEEDS_MESH = "needs nodeToNodeMeshEnabled true, its default"


def refusal(kind: str, name: str, spec: Mapping[str, object]) -> str:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(resource_of(kind, name, spec))
    return str(caught.value)


def said(subject: str, *problems: Problem) -> str:
    texts = (f"error with field {field} = '{value}' ({rule})" for field, value, rule in problems)
    return f"{subject}: {'; '.join(texts)}"


@pytest.mark.parametrize(
    "name, spec",
    [
        ("default", {}),
        ("default", {"nodeToNodeMeshEnabled": False, "asNumber": 64512, "serviceClusterIPs": RANGES}),
        ("default", {"nodeMeshPassword": PASSWORD, "nodeMeshMaxRestartTime": "2m5s"}),
        ("default", {"communities": [EDGE, {"name": "far", "value": "4294967295:0:1"}]}),
        ("node.node-a", {"listenPort": 178, "bindMode": "None", "logSeverityScreen": "Debug"}),
        ("node.a.example", {"ignoredInterfaces": ["kube-*", "docker0"]}),
        ("node.node-a", {"prefixAdvertisements": [{"cidr": "10.0.0.0/16", "communities": ["65535:0", "1:2:3"]}]}),
        (
            "node.node-a",
            {"communities": [EDGE], "prefixAdvertisements": [{"cidr": "10.0.0.0/16", "communities": ["edge"]}]},
        ),
        ("default", {"clusterRoutingMode": "Node"}),
        ("node.node-a", {"nodeMeshMaxRestartTime": "", "serviceClusterIPs": [], "asNumber": None}),
    ],
)
def test_configurations_that_may_be_wanted(name: str, spec: Mapping[str, object]) -> None:
    configuration = resource_of("BGPConfiguration", name, spec)
    validate_resource(configuration)
    warning = f"BGPConfiguration({name}): ranges of Services are stored, but not advertised yet"
    assert resource_warnings(configuration) == ((warning,) if spec.get("serviceClusterIPs") else ())


@pytest.mark.parametrize(
    "spec, problems",
    [
        (
            {"nodeMeshPassword": {"secretKeyRef": {"name": "BGP", "key": "a/b"}}},
            [
                ("spec.nodeMeshPassword.secretKeyRef.name", "BGP", "must be the name of a Secret"),
                (
                    "spec.nodeMeshPassword.secretKeyRef.key",
                    "a/b",
                    "must be 1 to 253 letters, digits, '_', '.' and '-'",
                ),
            ],
        ),
        (
            {"nodeToNodeMeshEnabled": False, "nodeMeshPassword": PASSWORD, "nodeMeshMaxRestartTime": "2m"},
            [("spec.nodeMeshPassword", "bgp/password", NEEDS_MESH), ("spec.nodeMeshMaxRestartTime", "2m", NEEDS_MESH)],
        ),
        (
            {"communities": [EDGE, {**EDGE, "value": "65001"}]},
            [
                ("spec.communities[1].name", "edge", "another community has it too"),
                ("spec.communities[1].value", "65001", f"must be {FORMS}"),
            ],
        ),
        (
            {"communities": [{"name": "a b", "value": "1:65536"}, {"name": "far", "value": "1:4294967296:3"}]},
            [
                ("spec.communities[0].name", "a b", "must be 1 to 128 letters, digits, '_', '.' and '-'"),
                ("spec.communities[0].value", "1:65536", f"must be {FORMS}"),
                ("spec.communities[1].value", "1:4294967296:3", f"must be {FORMS}"),
            ],
        ),
        (
            {"communities": [EDGE], "prefixAdvertisements": [{"cidr": "10.0.0.0/16", "communities": ["edge", "far"]}]},
            [
                (
                    "spec.prefixAdvertisements[0].communities[1]",
                    "far",
                    f"must be a name of spec.communities, or {FORMS}",
                )
            ],
        ),
        (
            {"ignoredInterfaces": ["eth0", "*", "a b", "sixteen.letters*"]},
            [
                ("spec.ignoredInterfaces[1]", "*", NO_INTERFACE),
                ("spec.ignoredInterfaces[2]", "a b", NO_INTERFACE),
                ("spec.ignoredInterfaces[3]", "sixteen.letters*", NO_INTERFACE),
            ],
        ),
    ],
)
def test_configurations_that_may_not_be_wanted(spec: Mapping[str, object], problems: list[Problem]) -> None:
    assert refusal("BGPConfiguration", "default", spec) == said("BGPConfiguration(default)", *problems)


@pytest.mark.parametrize(
    "member, value, text",
    [
        ("nodeToNodeMeshEnabled", False, "false"),
        ("nodeToNodeMeshEnabled", True, "true"),
        ("asNumber", 64512, "64512"),
        ("nodeMeshPassword", PASSWORD, "bgp/password"),
        ("nodeMeshMaxRestartTime", "2m5s", "2m5s"),
        ("serviceClusterIPs", RANGES, "10.96.0.0/12, fd00::/112"),
        ("serviceExternalIPs", RANGES, "10.96.0.0/12, fd00::/112"),
        ("serviceLoadBalancerIPs", RANGES, "10.96.0.0/12, fd00::/112"),
    ],
)
def test_s36_what_is_the_whole_clusters_is_set_in_default_only(member: str, value: object, text: str) -> None:
    title = {"asNumber": "ASNumber"}.get(member, member[0].upper() + member[1:])
    rule = f"Cannot set {title} on a non default BGP Configuration."
    found = refusal("BGPConfiguration", "node.a", {member: value})
    assert found == said("BGPConfiguration(node.a)", (f"spec.{member}", text, rule))


@pytest.mark.parametrize("name", ["another", "nodes.a", "node"])
def test_a_configuration_is_the_default_or_of_a_node(name: str) -> None:
    rule = "must be default, or node. and the name of a node, such as node.node-a"
    assert refusal("BGPConfiguration", name, {}) == said(f"BGPConfiguration({name})", ("metadata.name", name, rule))


def test_the_name_of_the_node_has_to_be_one() -> None:
    found = refusal("BGPConfiguration", "node.", {})
    assert found.startswith("BGPConfiguration(node.): error with field metadata.name = 'node.' (at most 253 ")


@pytest.mark.parametrize(
    "written, number", [(64512, 64512), ("64512", 64512), ("1.10", 65546), ("0.1", 1), ("65535.65535", 4294967295)]
)
def test_an_as_number_is_written_in_two_ways(written: object, number: int) -> None:
    configuration = resource_of("BGPConfiguration", "default", {"asNumber": written})
    assert isinstance(configuration, BGPConfiguration)
    assert configuration.spec.as_number == number


@pytest.mark.parametrize(
    "written", [0, -1, 4294967296, 1.1, True, "", "0.0", "1.65536", "65536.1", "1.2.3", "AS1", "-1", "\u0661", [1]]
)
def test_what_is_no_as_number(written: object) -> None:
    accepted = "an AS number from 1 to 4294967295, or a text such as '1.10'"
    with pytest.raises(MalformedField) as caught:
        resource_of("BGPConfiguration", "default", {"asNumber": written})
    assert str(caught.value).startswith(f"expected {accepted} @ f#1 $.spec.asNumber, found ")


@pytest.mark.parametrize(
    "spec, problem",
    [
        ({"listenPort": 0}, "a port from 1 to 65535 @ f#1 $.spec.listenPort, found 0"),
        ({"bindMode": "All"}, "one of None, NodeIP @ f#1 $.spec.bindMode, found 'All'"),
        ({"nodeMeshMaxRestartTime": "soon"}, "a duration such as 90s or 15m0s, or 0 @ f#1 $.spec.nodeMeshMaxRestartT"),
        ({"serviceClusterIPs": [{"cidr": "10.96.0.1/12"}]}, "a CIDR without host bits (10.96.0.0/12) @ f#1 $.spec.ser"),
        ({"serviceClusterIPs": ["10.96.0.0/12"]}, "an object @ f#1 $.spec.serviceClusterIPs[0], found '10.96.0.0/12'"),
        ({"nodeMeshPassword": {}}, "a text @ f#1 $.spec.nodeMeshPassword.secretKeyRef.name, found "),
    ],
)
def test_what_cannot_be_read(spec: Mapping[str, object], problem: str) -> None:
    with pytest.raises(MalformedField) as caught:
        resource_of("BGPConfiguration", "default", spec)
    assert str(caught.value).startswith(f"expected {problem}")


# --- peers -----------------------------------------------------------------------------------------------------------

ROUTER: Mapping[str, object] = {"peerIP": "192.0.2.1", "asNumber": 65001}
NO_PEER = "must be an IP address, which may have a port: 192.0.2.1:179 or [2001:db8::1]:179"
NO_GATEWAY = "needs peerIP, and must be of its family"


@pytest.mark.parametrize(
    "spec",
    [
        ROUTER,
        {**ROUTER, "node": "node-a", "reachableBy": "10.0.0.1", "password": PASSWORD},
        {**ROUTER, "peerIP": "192.0.2.1:179", "nodeSelector": "rack == 'r1'"},
        {**ROUTER, "peerIP": "[2001:db8::1]:65535", "reachableBy": "fe80::1"},
        {**ROUTER, "peerIP": "2001:db8::1", "sourceAddress": "None", "nextHopMode": "Self"},
        {**ROUTER, "keepOriginalNextHop": True, "nextHopMode": "Keep", "filters": ["edge"], "localASNumber": "1.10"},
        {**ROUTER, "keepOriginalNextHop": True, "keepaliveTime": "30s"},
        {"localWorkloadSelector": "app == 'router'", "asNumber": 65001},
        {"peerSelector": "all()", "reversePeering": "Manual"},
        {"peerSelector": "has(reflector)", "maxRestartTime": "0", "numAllowedLocalASNumbers": 0, "ttlSecurity": 255},
    ],
)
def test_peers_that_may_be_wanted(spec: Mapping[str, object]) -> None:
    peer = resource_of("BGPPeer", "a", spec)
    validate_resource(peer)
    warning = "BGPPeer(a): localWorkloadSelector is not yet supported: there is no session"
    assert resource_warnings(peer) == ((warning,) if "localWorkloadSelector" in spec else ())


@pytest.mark.parametrize(
    "spec, problems",
    [
        ({}, [("spec.peerIP", "", "must be given, or peerSelector")]),
        (
            {"localWorkloadSelector": "all()"},
            [("spec.asNumber", "", "must be given with localWorkloadSelector")],
        ),
        (
            {**ROUTER, "localWorkloadSelector": "all()"},
            [("spec.localWorkloadSelector", "all()", "cannot be used with peerIP")],
        ),
        (
            {**ROUTER, "keepOriginalNextHop": True, "nextHopMode": "Self"},
            [("spec.keepOriginalNextHop", "true", "cannot be used with nextHopMode Self")],
        ),
        (
            {**ROUTER, "filters": ["edge", "Edge!"]},
            [("spec.filters[1]", "Edge!", "must be the name of a BGPFilter")],
        ),
        ({"asNumber": 65001}, [("spec.peerIP", "", "must be given, or peerSelector")]),
        ({**ROUTER, "node": "Node_A"}, [("spec.node", "Node_A", "must be the name of a node")]),
        (
            {**ROUTER, "node": "node-a", "nodeSelector": "all()"},
            [("spec.nodeSelector", "all()", "cannot be used with node")],
        ),
        ({**ROUTER, "peerSelector": "all()"}, [("spec.peerSelector", "all()", "cannot be used with peerIP")]),
        ({"peerIP": "192.0.2.1"}, [("spec.asNumber", "", "must be given with peerIP")]),
        (
            {"peerSelector": "all()", "asNumber": 65001},
            [("spec.asNumber", "65001", "cannot be used with peerSelector: the selected nodes have their own")],
        ),
        ({**ROUTER, "reachableBy": "fd00::1"}, [("spec.reachableBy", "fd00::1", NO_GATEWAY)]),
        ({"peerSelector": "all()", "reachableBy": "10.0.0.1"}, [("spec.reachableBy", "10.0.0.1", NO_GATEWAY)]),
        (
            {**ROUTER, "peerIP": "router", "reachableBy": "10.0.0.1"},
            [("spec.peerIP", "router", NO_PEER), ("spec.reachableBy", "10.0.0.1", NO_GATEWAY)],
        ),
        (
            {"peerSelector": "global()"},
            [("spec.peerSelector", "global()", "global() cannot be used: it selects neither nodes nor namespaces")],
        ),
        (
            {**ROUTER, "password": {"secretKeyRef": {"name": "bgp", "key": ""}}},
            [("spec.password.secretKeyRef.key", "", "must be 1 to 253 letters, digits, '_', '.' and '-'")],
        ),
    ],
)
def test_peers_that_may_not_be_wanted(spec: Mapping[str, object], problems: list[Problem]) -> None:
    assert refusal("BGPPeer", "a", spec) == said("BGPPeer(a)", *problems)


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.0/24",
        "192.0.2.1:",
        "192.0.2.1:0",
        "192.0.2.1:65536",
        "192.0.2:179",
        "[192.0.2.1]:179",
        "[2001:db8::1]",
        "[2001:db8::1]179",
        "2001:db8::1%eth0",
        "\u0661.0.2.1",
    ],
)
def test_what_is_no_address_of_a_peer(address: str) -> None:
    found = refusal("BGPPeer", "a", {**ROUTER, "peerIP": address})
    assert found == said("BGPPeer(a)", ("spec.peerIP", address, NO_PEER))


def test_the_selectors_of_a_peer_are_judged() -> None:
    found = refusal("BGPPeer", "a", {**ROUTER, "nodeSelector": "rack =="})
    assert found.startswith("BGPPeer(a): error with field spec.nodeSelector = 'rack ==' (")


@pytest.mark.parametrize(
    "spec, problem",
    [
        ({**ROUTER, "ttlSecurity": 0}, "a whole number from 1 to 255 @ f#1 $.spec.ttlSecurity, found 0"),
        ({**ROUTER, "numAllowedLocalASNumbers": 256}, "a whole number from 0 to 255 @ f#1 $.spec.numAllowedLocalAS"),
        ({**ROUTER, "nextHopMode": "Never"}, "one of Auto, Self, Keep @ f#1 $.spec.nextHopMode, found 'Never'"),
        ({**ROUTER, "sourceAddress": "all"}, "one of UseNodeIP, None @ f#1 $.spec.sourceAddress, found 'all'"),
        ({**ROUTER, "reachableBy": "router"}, "an IP address @ f#1 $.spec.reachableBy, found 'router'"),
    ],
)
def test_peers_that_cannot_be_read(spec: Mapping[str, object], problem: str) -> None:
    with pytest.raises(MalformedField) as caught:
        resource_of("BGPPeer", "a", spec)
    assert str(caught.value).startswith(f"expected {problem}")


# --- filters ---------------------------------------------------------------------------------------------------------

WITHIN: Mapping[str, object] = {"cidr": "10.91.1.0/24", "matchOperator": "In", "action": "Accept"}
REJECT: Mapping[str, object] = {"action": "Reject"}
ONE_PRIORITY: list[object] = [{"setPriority": {"value": 1}}]
TWO_OPERATIONS: list[object] = [{"setPriority": {"value": 1}, "addCommunity": {"value": "1:2"}}]
NO_SOURCE = "cannot be used in a rule for import: every route that is imported comes from a peer"
NO_GLOB = "must be at most 15 letters, digits, '_', '.', '-' and '*'"
ONE_OF_THREE = "must have exactly one of addCommunity, prependASPath and setPriority"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"exportV4": [REJECT, {**WITHIN, "prefixLength": {"min": 24, "max": 32}, "source": "RemotePeers"}]},
        {"importV6": [{**REJECT, "cidr": "fd00::/8", "matchOperator": "NotIn", "prefixLength": {"max": 128}}]},
        {"exportV6": [{**REJECT, "interface": "eth*", "communities": {"values": ["1:2:3"]}, "asPathPrefix": [65001]}]},
        {"importV4": [{**WITHIN, "peerType": "iBGP", "operations": [{"prependASPath": {"prefix": ["1.10"]}}]}]},
    ],
)
def test_filters_that_may_be_wanted(spec: Mapping[str, object]) -> None:
    bgp_filter = resource_of("BGPFilter", "a", spec)
    validate_resource(bgp_filter)
    assert resource_warnings(bgp_filter) == ()


@pytest.mark.parametrize(
    "name, rule, field, value, text",
    [
        ("exportV4", {**REJECT, "matchOperator": "In"}, "matchOperator", "In", "needs cidr"),
        ("exportV4", {**REJECT, "cidr": "10.0.0.0/8"}, "cidr", "10.0.0.0/8", "needs matchOperator"),
        ("importV6", WITHIN, "cidr", "10.91.1.0/24", "must be a prefix of IPv6"),
        ("exportV4", {**REJECT, "prefixLength": {"min": 8}}, "prefixLength", "", "needs cidr"),
        ("exportV4", {**WITHIN, "prefixLength": {"max": 33}}, "prefixLength.max", "33", "must be at most 32"),
        (
            "exportV4",
            {**WITHIN, "prefixLength": {"min": 9, "max": 8}},
            "prefixLength.min",
            "9",
            "must not be above max",
        ),
        ("importV4", {**REJECT, "source": "RemotePeers"}, "source", "RemotePeers", NO_SOURCE),
        ("exportV4", {**REJECT, "interface": "a b"}, "interface", "a b", NO_GLOB),
        ("exportV4", {**REJECT, "communities": {}}, "communities.values", "", "must be one community"),
        ("exportV4", {**REJECT, "communities": {"values": ["a"]}}, "communities.values[0]", "a", f"must be {FORMS}"),
        (
            "exportV4",
            {**REJECT, "operations": ONE_PRIORITY},
            "operations",
            "Reject",
            "cannot be used with action Reject",
        ),
        ("exportV4", {**WITHIN, "operations": ONE_PRIORITY * 11}, "operations", "11", "must be at most 10"),
        ("exportV4", {**WITHIN, "operations": TWO_OPERATIONS}, "operations[0]", "", ONE_OF_THREE),
        (
            "exportV4",
            {**WITHIN, "operations": [{"addCommunity": {"value": "1:65536"}}]},
            "operations[0].addCommunity.value",
            "1:65536",
            f"must be {FORMS}",
        ),
        (
            "exportV4",
            {**WITHIN, "operations": [{"prependASPath": {}}]},
            "operations[0].prependASPath.prefix",
            "0",
            "must be 1 to 10 numbers",
        ),
    ],
)
def test_filters_that_may_not_be_wanted(
    name: str, rule: Mapping[str, object], field: str, value: str, text: str
) -> None:
    found = refusal("BGPFilter", "a", {name: [rule]})
    assert found == said("BGPFilter(a)", (f"spec.{name}[0].{field}", value, text))


def test_a_filter_has_rules_for_each_family() -> None:
    bgp_filter = resource_of("BGPFilter", "a", {"importV4": [WITHIN], "exportV6": [REJECT, REJECT]})
    assert isinstance(bgp_filter, BGPFilter)
    of_families = [tuple(map(len, bgp_filter.rules_for(family))) for family in Family]
    assert of_families == [(1, 0), (0, 2)]
