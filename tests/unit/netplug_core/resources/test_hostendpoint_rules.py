"""HostEndpoint: what a document may say, and the rules that a user's one has to keep."""

from collections.abc import Mapping

import pytest

from netplug_core.decoding.tables import MalformedField, UnknownField
from netplug_core.resources.validation import InvalidResource, resource_warnings, validate_resource
from tests.harness.resources import resource_of

LAN: Mapping[str, object] = {"node": "node-a", "interfaceName": "eth0"}
WEB = {"name": "web", "protocol": "TCP", "port": 80}


@pytest.mark.parametrize(
    "spec",
    [
        LAN,
        {"node": "node-a", "interfaceName": "*"},
        {"node": "node-a", "interfaceName": "bond0.100_x-y.z"},
        {"node": "node-a.example", "expectedIPs": ["10.0.0.1", "fd00::1"]},
        {**LAN, "expectedIPs": ["10.0.0.1"], "ports": [WEB, {"name": "dns_1.x-y", "protocol": "UDP", "port": 65535}]},
        {**LAN, "profiles": ["projectnetplug-default-allow", "kns.shop"], "ports": []},
    ],
)
def test_what_may_be_wanted(spec: Mapping[str, object]) -> None:
    endpoint = resource_of("HostEndpoint", "a", spec)
    validate_resource(endpoint)
    assert resource_warnings(endpoint) == ()


NO_NODE = ("spec.node", "", "must be the name of a node")
NO_INTERFACE = (
    "spec.interfaceName",
    "",
    "must be given, or expectedIPs: the name of an interface, or * for all interfaces of the node",
)
INTERFACES = "must be *, or at most 15 letters, digits, '_', '.' and '-'"
PROFILES = "must be the name of a profile"


@pytest.mark.parametrize(
    "spec, problems",
    [
        ({"interfaceName": "*"}, [NO_NODE]),
        ({**LAN, "node": "Node_A"}, [("spec.node", "Node_A", "must be the name of a node")]),
        ({"node": "node-a"}, [NO_INTERFACE]),
        ({**LAN, "interfaceName": "sixteen.letters_"}, [("spec.interfaceName", "sixteen.letters_", INTERFACES)]),
        ({**LAN, "interfaceName": "eth*"}, [("spec.interfaceName", "eth*", INTERFACES)]),
        ({**LAN, "profiles": ["web", "Web!"]}, [("spec.profiles[1]", "Web!", PROFILES)]),
        (
            {**LAN, "expectedIPs": ["10.0.0.1"], "ports": [WEB, {**WEB, "name": "web port"}]},
            [("spec.ports[1].name", "web port", "must be 1 to 128 letters, digits, '_', '.' and '-'")],
        ),
        (
            {**LAN, "ports": [WEB, {**WEB, "name": "more"}]},
            [
                (
                    "spec.ports",
                    "web, more",
                    "expectedIPs must be given too: a rule matches a named port at these addresses",
                )
            ],
        ),
        ({"profiles": [""]}, [NO_NODE, NO_INTERFACE, ("spec.profiles[0]", "", PROFILES)]),
    ],
)
def test_what_may_not_be_wanted(spec: Mapping[str, object], problems: list[tuple[str, str, str]]) -> None:
    with pytest.raises(InvalidResource) as caught:
        validate_resource(resource_of("HostEndpoint", "a", spec))
    said = "; ".join(f"error with field {field} = '{value}' ({rule})" for field, value, rule in problems)
    assert str(caught.value) == f"HostEndpoint(a): {said}"


@pytest.mark.parametrize(
    "spec, problem",
    [
        ({**LAN, "expectedIPs": ["10.0.0.0/24"]}, "an IP address @ f#1 $.spec.expectedIPs[0], found '10.0.0.0/24'"),
        ({**LAN, "ports": [{**WEB, "port": 0}]}, "a port from 1 to 65535 @ f#1 $.spec.ports[0].port, found 0"),
        ({**LAN, "ports": [{**WEB, "port": 65536}]}, "a port from 1 to 65535 @ f#1 $.spec.ports[0].port, found 65536"),
        (
            {**LAN, "ports": [{**WEB, "protocol": "tcp"}]},
            "one of TCP, UDP, SCTP @ f#1 $.spec.ports[0].protocol, found 'tcp'",
        ),
        ({**LAN, "ports": [{"name": "a", "port": 1}]}, "one of TCP, UDP, SCTP @ f#1 $.spec.ports[0].protocol, found "),
        ({**LAN, "profiles": "web"}, "a list @ f#1 $.spec.profiles, found 'web'"),
    ],
)
def test_what_cannot_be_read(spec: Mapping[str, object], problem: str) -> None:
    with pytest.raises(MalformedField) as caught:
        resource_of("HostEndpoint", "a", spec)
    assert str(caught.value).startswith(f"expected {problem}")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(
        UnknownField,
        match=r"interface @ f#1 \$\.spec; did you mean interfaceName\? there are expectedIPs, interfaceName, node",
    ):
        resource_of("HostEndpoint", "a", {**LAN, "interface": "eth0"})
