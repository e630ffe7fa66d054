"""The host endpoints that nodes have by themselves: what should exist, and what has to change for it."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Address, InterfaceAddress, Prefix
from netplug_core.reconcile.hostendpoints import (
    CREATED_BY,
    CREATOR,
    automatic_name,
    find_host_endpoint_changes,
    wanted_host_endpoints,
)
from netplug_core.records import Create, Delete, Record, Revision, Update
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint, HostEndpointSpec, NamedPort, PortProtocol
from netplug_core.resources.kubecontrollersconfiguration import HostEndpointSettings, HostEndpointTemplate
from netplug_core.resources.node import Node, NodeBGP, NodeInterface, NodeSpec

ON = HostEndpointSettings(auto_create=Switch.ENABLED)
V4, V6, TUNNEL, TUNNEL_V6, IPIP, SECOND = (
    Address.parse(text) for text in ("192.0.2.1", "2001:db8::1", "10.65.0.1", "fd65::1", "10.65.0.2", "198.51.100.1")
)
NODE = Node(
    metadata=Metadata(name="worker-1", labels=(("zone", "a"),)),
    spec=NodeSpec(
        bgp=NodeBGP(
            ipv4_address=InterfaceAddress.parse("192.0.2.1/24"),
            ipv6_address=InterfaceAddress.parse("2001:db8::1/64"),
            ipip_tunnel_address=IPIP,
        ),
        vxlan_tunnel_address=TUNNEL,
        vxlan_tunnel_address_v6=TUNNEL_V6,
        interfaces=(NodeInterface(name="eth0", addresses=(V4, V6)), NodeInterface(name="eth1", addresses=(SECOND,))),
    ),
)
BARE = Node(metadata=Metadata(name="worker-2"))
OWN_LABEL = (CREATED_BY, CREATOR)


def stored(endpoint: HostEndpoint) -> Record[HostEndpoint]:
    return Record(HOST_ENDPOINT.key(endpoint.metadata.name), endpoint, Revision("7"))


def template(name: str = "extra", **members: object) -> HostEndpointTemplate:
    return HostEndpointTemplate(generate_name=name, **members)  # type: ignore[arg-type]  # the members of the test


def wanted(*nodes: Node, settings: HostEndpointSettings = ON) -> dict[str, HostEndpoint]:
    found = wanted_host_endpoints(nodes, settings, {})
    assert found.problems == ()
    return dict(found.endpoints)


def test_a_node_has_one_endpoint_for_all_its_interfaces() -> None:
    known = {"worker-1": (SECOND, V4)}
    endpoints = wanted_host_endpoints((NODE, BARE), ON, known).endpoints
    assert list(endpoints) == ["worker-1-auto-hep", "worker-2-auto-hep"]
    first, second = endpoints.values()
    assert first.metadata.labels == (OWN_LABEL, ("zone", "a"))
    assert first.spec == HostEndpointSpec(
        node="worker-1",
        interface_name="*",
        expected_ips=(V4, V6, IPIP, TUNNEL, TUNNEL_V6, SECOND),
        profiles=("projectnetplug-default-allow",),
    )
    assert second.spec.expected_ips == ()


def test_switched_off_there_is_none() -> None:
    assert wanted(NODE, settings=HostEndpointSettings()) == {}
    assert wanted(NODE, settings=evolve(ON, create_default=Switch.DISABLED)) == {}


def test_a_template_of_cidrs_has_the_addresses_within_them() -> None:
    cidrs = (Prefix.parse("198.51.100.0/24"), Prefix.parse("2001:db8::/64"))
    settings = evolve(ON, create_default=Switch.DISABLED, templates=(template(interface_cidrs=cidrs),))
    (endpoint,) = wanted(NODE, BARE, settings=settings).values()
    assert endpoint.metadata.name == "worker-1-extra-auto-hep"
    assert (endpoint.spec.interface_name, endpoint.spec.expected_ips) == ("", (V6, SECOND))


def test_a_template_of_interfaces_makes_one_for_each() -> None:
    made = template(
        interface_pattern="^eth",
        node_selector="zone == 'a'",
        labels=(("zone", "b"), (CREATED_BY, "somebody")),
        annotations=(("note", "x"),),
    )
    settings = evolve(ON, create_default=Switch.DISABLED, templates=(made,))
    endpoints = wanted(NODE, BARE, settings=settings)
    assert {
        name: (endpoint.spec.interface_name, endpoint.spec.expected_ips) for name, endpoint in endpoints.items()
    } == {
        "worker-1-extra-eth0-auto-hep": ("eth0", (V4, V6)),
        "worker-1-extra-eth1-auto-hep": ("eth1", (SECOND,)),
    }
    labels = {endpoint.metadata.labels for endpoint in endpoints.values()}
    assert labels == {(OWN_LABEL, ("zone", "b"))}
    assert {endpoint.metadata.annotations for endpoint in endpoints.values()} == {(("note", "x"),)}


def test_a_template_without_matching_interface_makes_none() -> None:
    settings = evolve(ON, create_default=Switch.DISABLED, templates=(template(interface_pattern="wlan"),))
    assert wanted(NODE, settings=settings) == {}


@pytest.mark.parametrize(
    "wrong, cause",
    [
        (template(""), "generateName is empty"),
        (template(), "interfaceCIDRs or interfacePattern must be given"),
        (template(interface_pattern="(", node_selector=""), "interfacePattern '('"),
        (template(interface_pattern="e", node_selector="zone = "), "nodeSelector: "),
    ],
)
def test_a_template_that_cannot_be_read_harms_only_itself(wrong: HostEndpointTemplate, cause: str) -> None:
    settings = evolve(ON, templates=(wrong, template("good", interface_pattern="eth1")))
    found = wanted_host_endpoints((NODE,), settings, {})
    assert list(found.endpoints) == ["worker-1-auto-hep", "worker-1-good-eth1-auto-hep"]
    (problem,) = found.problems
    assert cause in problem.cause


def test_two_templates_of_one_name_make_one_endpoint() -> None:
    twice = (template(interface_pattern="eth1"), template(interface_pattern="eth1", labels=(("late", "1"),)))
    found = wanted_host_endpoints((NODE,), evolve(ON, create_default=Switch.DISABLED, templates=twice), {})
    assert [endpoint.metadata.labels for endpoint in found.endpoints.values()] == [(OWN_LABEL, ("zone", "a"))]
    assert [problem.message for problem in found.problems] == [
        "two host endpoints would be called worker-1-extra-eth1-auto-hep"
    ]


def test_a_long_name_becomes_a_hash() -> None:
    long, other = automatic_name("n" * 250), automatic_name("n" * 251)
    assert long != other
    assert all(len(name) <= 253 and name.endswith("-auto-hep") for name in (long, other))
    assert automatic_name("N" * 250) == long
    assert automatic_name("Worker", "", "Eth0") == "worker-eth0-auto-hep"


def test_what_is_missing_is_made_and_what_is_right_stays() -> None:
    found = wanted_host_endpoints((NODE, BARE), ON, {})
    first, second = found.endpoints.values()
    changes, problems = find_host_endpoint_changes(found, [stored(first)])
    assert changes == (Create(HOST_ENDPOINT.key("worker-2-auto-hep"), second),)
    assert problems == ()


def test_an_edited_one_is_brought_back_and_keeps_what_is_not_ours() -> None:
    found = wanted_host_endpoints((NODE,), ON, {})
    (endpoint,) = found.endpoints.values()
    kept = evolve(endpoint, metadata=evolve(endpoint.metadata, uid="u", annotations=()))
    port = NamedPort(name="http", protocol=PortProtocol.TCP, port=80)
    edited = evolve(kept, spec=evolve(endpoint.spec, profiles=(), ports=(port,), unknown_json='{"new":1}'))
    changes, _ = find_host_endpoint_changes(found, [stored(edited)])
    wanted_value = evolve(kept, spec=evolve(endpoint.spec, unknown_json='{"new":1}'))
    assert changes == (Update(HOST_ENDPOINT.key("worker-1-auto-hep"), wanted_value, Revision("7")),)
    assert find_host_endpoint_changes(found, [stored(wanted_value)]) == ((), ())


def test_one_whose_node_is_gone_goes_and_a_users_own_stays() -> None:
    gone = next(iter(wanted(BARE).values()))
    own = HostEndpoint(metadata=Metadata(name="mine"), spec=HostEndpointSpec(node="worker-1", interface_name="*"))
    changes, problems = find_host_endpoint_changes(wanted_host_endpoints((), ON, {}), [stored(gone), stored(own)])
    assert changes == (Delete(HOST_ENDPOINT.key("worker-2-auto-hep"), Revision("7")),)
    assert problems == ()


def test_a_users_own_of_the_wanted_name_stays_and_is_named() -> None:
    own = HostEndpoint(
        metadata=Metadata(name="worker-1-auto-hep"), spec=HostEndpointSpec(node="worker-1", interface_name="*")
    )
    changes, (problem,) = find_host_endpoint_changes(wanted_host_endpoints((NODE,), ON, {}), [stored(own)])
    assert changes == ()
    assert problem.message == "the host endpoint worker-1-auto-hep is not made"
    assert CREATED_BY in problem.cause
