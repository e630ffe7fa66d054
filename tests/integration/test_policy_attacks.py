"""What a workload may try on a kernel whose policy denies it: protocols, headers, fragments, lies about addresses.

The objects are those that users store; what a node enforces of them is calculated and programmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family
from netplug_core.policy.model import UDP
from netplug_core.policy.resolve import PolicyObject
from netplug_core.resources.fields import PortRange
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.policyrule import EntityRule, PolicyRule, Protocol
from netplug_core.resources.workloadendpoint import EndpointPort
from tests.harness.nat_scene import open_scene
from tests.harness.node import PEER_NAMESPACE, NetnsNode
from tests.harness.policies import allow, deny, make_host, make_policy
from tests.harness.policy_node import GENERATED, enforce, kubernetes, namespace_profile, stored_pod
from tests.harness.policy_scene import PolicyScene
from tests.harness.raw_packets import (
    DESTINATION_OPTIONS,
    HOP_BY_HOP,
    RawSender,
    destination_options,
    echo,
    fragments,
    ip_packet,
    sctp_init,
    tcp_syn,
    udp,
)
from tests.harness.waiting import wait_until

# By night only: each closed way is asked for on a real kernel.
pytestmark = [pytest.mark.netns, pytest.mark.stress]

WEB = "app == 'web'"
IPIP = 4
OUTSIDE = PEER_NAMESPACE


@pytest.fixture(params=Family, ids=str)
def scene(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[PolicyScene]:
    with open_scene(node, request.param) as nat:
        yield PolicyScene(nat)


@pytest.fixture
def raw(scene: PolicyScene) -> RawSender:
    return RawSender(scene)


def ports(*entries: Mapping[str, object]) -> Mapping[str, object]:
    return {"ports": list(entries)}


# --- protocols --------------------------------------------------------------------------------------------------------


def test_a_port_counts_for_its_protocol_alone(scene: PolicyScene, raw: RawSender) -> None:
    """P-17, P-18, P-20: named ones too."""
    named = (
        EndpointPort(protocol="TCP", port=81, name="api"),
        EndpointPort(protocol="UDP", port=82, name="api"),
        EndpointPort(protocol="TCP", port=83, name="api"),
    )
    both = ports({"protocol": "SCTP", "port": 80}, {"protocol": "TCP", "port": "api"})
    enforce(scene, kubernetes(both), web=stored_pod("web", ports=named))
    expected = {
        (sctp_init, 80): True, (sctp_init, 79): False, (tcp_syn, 80): False, (udp, 80): False, (tcp_syn, 81): True,
        (tcp_syn, 83): True, (tcp_syn, 82): False, (udp, 82): False, (echo, 0): False,
    }  # fmt: skip
    assert {(make, port): raw.does_pass(make, port) for make, port in expected} == expected


def test_a_protocol_without_a_port_is_all_of_it_and_a_rule_without_ports_is_everything(
    scene: PolicyScene, raw: RawSender
) -> None:
    """P-20."""
    enforce(scene, kubernetes(ports({"protocol": "UDP"})))
    assert [raw.does_pass(make, 85) for make in (udp, tcp_syn, sctp_init, echo)] == [True, False, False, False]
    enforce(scene, kubernetes({}))
    assert [raw.does_pass(make, 86) for make in (udp, tcp_syn, sctp_init, echo)] == [True] * 4


def test_wrapped_packets_leave_a_workload_only_where_they_may(scene: PolicyScene, raw: RawSender) -> None:
    """P-47."""

    def wrapped(text: bytes) -> list[bytes]:
        return [ip_packet(raw.pair, IPIP, text)]

    enforce(scene)
    assert [raw.does_pass(udp, 4789), raw.do_pass(wrapped), raw.does_pass(udp, 4790)] == [False, False, True]
    enforce(scene, node=evolve(GENERATED, allows_vxlan=True, allows_ipip=True))
    assert [raw.does_pass(udp, 4789), raw.do_pass(wrapped)] == [True, True]


# --- headers and fragments --------------------------------------------------------------------------------------------

DENIED, ALLOWED = 9001, 9002


def closing_one_port() -> PolicyObject:
    """Everything may come in but one port of UDP: who hides the port comes in."""
    end = EntityRule(ports=(PortRange(DENIED, DENIED),))
    return make_policy("p", deny(protocol=Protocol(UDP), destination=end), allow(), selector=WEB)


def opening_one_port() -> PolicyObject:
    """One port of UDP may come in."""
    return make_policy(
        "p", allow(protocol=Protocol(UDP), destination=EntityRule(ports=(PortRange(ALLOWED, ALLOWED),))), selector=WEB
    )


@pytest.mark.parametrize("policy", [closing_one_port, opening_one_port], ids=["denied", "allowed"])
def test_a_packet_in_fragments_is_judged_as_a_whole(
    scene: PolicyScene, raw: RawSender, policy: Callable[[], PolicyObject]
) -> None:
    enforce(scene, policy())

    def in_fragments(port: int, text: bytes) -> list[bytes]:
        return fragments(raw.pair, UDP, udp(raw.pair, port, text))

    for port, is_open in ((DENIED, False), (ALLOWED, True)):
        assert raw.do_pass(partial(in_fragments, port)) is is_open, port


@pytest.mark.parametrize("policy", [closing_one_port, opening_one_port], ids=["denied", "allowed"])
@pytest.mark.parametrize("header", [HOP_BY_HOP, DESTINATION_OPTIONS])
def test_an_extension_header_hides_no_port(
    scene: PolicyScene, raw: RawSender, header: int, policy: Callable[[], PolicyObject]
) -> None:
    if scene.nat.family is Family.IPV4:
        return  # it has none
    enforce(scene, policy())

    def hidden(port: int, text: bytes) -> list[bytes]:
        return [ip_packet(raw.pair, header, destination_options(UDP, udp(raw.pair, port, text)))]

    def hidden_twice(port: int, text: bytes) -> list[bytes]:
        inner = destination_options(UDP, udp(raw.pair, port, text))
        return [ip_packet(raw.pair, header, destination_options(DESTINATION_OPTIONS, inner))]

    for make in (hidden, hidden_twice):
        for port, is_open in ((DENIED, False), (ALLOWED, True)):
            assert raw.do_pass(partial(make, port)) is is_open, (make, port)


# --- addresses --------------------------------------------------------------------------------------------------------


def test_a_workload_that_claims_another_ones_address_gets_none_of_its_packets(
    scene: PolicyScene, raw: RawSender
) -> None:
    """P-44, by an answer of ARP, or of neighbour discovery, that nobody has asked for; nor does it send as that one."""
    enforce(scene)
    nat, at = scene.nat, scene.nat.addresses
    width = 32 if nat.family is Family.IPV4 else 128
    quick = ("nodad",) if nat.family is Family.IPV6 else ()
    assert scene.passes(OUTSIDE, at.web, nat.web.name, source=at.outside)
    for lie in (at.web, at.node):
        scene.node.run("ip", "-n", nat.client.name, "address", "add", f"{lie}/{width}", "dev", "eth0", *quick)
        raw.claim(lie)
    assert scene.passes(OUTSIDE, at.web, nat.web.name, source=at.outside)
    assert scene.passes("", at.web, nat.web.name)
    for lie in (at.web, at.node, at.outside):
        lying = Address.parse(lie), raw.pair[1]
        assert not raw.does_pass(udp, 80, pair=lying), lie


def test_a_workload_that_comes_again_for_another_container_is_closed_until_it_is_known(scene: PolicyScene) -> None:
    """P-59: with other labels, under the same name, on the same interface and with the same address."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    of_old = make_policy("p", allow(), selector=WEB)
    enforce(scene, of_old)
    assert scene.passes(client, at.web, web)
    enforce(scene, of_old, attached=(("netp5", "c2"),))
    assert not scene.passes(client, at.web, web)
    assert not scene.passes(web, at.client, client)
    other = stored_pod("web", labels={"app": "other"}, container_id="c2")
    isolating = make_policy("q", selector="app == 'other'")
    enforce(scene, of_old, isolating, web=other, attached=(("netp5", "c2"),))
    assert not scene.passes(client, at.web, web)
    assert scene.passes(web, at.client, client)


# --- who is who -------------------------------------------------------------------------------------------------------


def test_what_selectors_exclude_and_what_is_outside_the_cluster(scene: PolicyScene) -> None:
    """P-32."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name

    def ways(end: EntityRule) -> list[bool]:
        enforce(scene, make_policy("p", allow(source=end), selector=WEB))
        return [scene.passes(OUTSIDE, at.web, web, source=at.outside), scene.passes(client, at.web, web)]

    assert ways(EntityRule(not_selector="has(app)")) == [True, False]
    assert ways(EntityRule(selector="!has(app)")) == [False, False]
    assert ways(EntityRule(selector="has(app)")) == [False, True]


def test_host_endpoints_and_workloads_as_peers(scene: PolicyScene) -> None:
    """P-33, P-42: a host endpoint stands for the addresses that are expected there."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    far = make_host("far", "", at.outside, node="there")

    def ways(rule: PolicyRule) -> list[bool]:
        enforce(scene, far, make_policy("p", rule, selector=WEB))
        return [scene.passes(OUTSIDE, at.web, web, source=at.outside), scene.passes(client, at.web, web)]

    assert ways(allow(source=EntityRule(namespace_selector="global()"))) == [True, False]
    assert ways(allow(source=EntityRule(namespace_selector="all()"))) == [False, True]
    assert ways(allow(source=EntityRule(selector="host == 'far'", namespace_selector="global()"))) == [True, False]


# --- ways back --------------------------------------------------------------------------------------------------------


def test_answers_and_errors_come_back_to_a_workload_that_nobody_may_reach(scene: PolicyScene) -> None:
    """P-23."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    enforce(
        scene, make_policy("p", selector="app == 'client'"), make_policy("q", selector=WEB, types=(Direction.EGRESS,))
    )
    assert not scene.passes(web, at.client, client)
    assert scene.passes(client, at.web, web)
    with scene.nat.socket_at(client) as asking:
        asking.connect((at.web, 4242))  # nobody listens there
        asking.settimeout(0)

        def is_refused() -> bool:
            try:
                asking.send(b"request")
                asking.recv(100)
            except ConnectionRefusedError:
                return True
            except BlockingIOError:
                return False
            return False

        wait_until(is_refused, "the error of the other end comes back")


def test_an_isolated_workload_reaches_itself_behind_a_service(scene: PolicyScene, raw: RawSender) -> None:
    """P-22, P-21: policy sees the workload behind the service, and never the address of the service."""
    at, client = scene.nat.addresses, scene.nat.client.name
    family = "ip" if scene.nat.family is Family.IPV4 else "ip6"
    service, rule = Address.parse(at.floating), f"{family} daddr {at.floating} dnat {family} to {at.web}"
    chain = f"{{ type nat hook prerouting priority -100; {rule}; }}"
    scene.node.run("nft", "-f", "-", stdin=f"table inet service {{ chain prerouting {chain}; }}")
    isolated = make_policy("p", selector=WEB, types=tuple(Direction))
    enforce(scene, isolated)
    assert raw.does_pass(udp, 80, pair=(raw.pair[1], service), by="web")
    assert not raw.does_pass(udp, 80, pair=(raw.pair[0], service))

    def to(*ends: EntityRule) -> bool:
        rules = tuple(allow(destination=end) for end in ends)
        egress = make_policy("q", egress=rules, selector="app == 'client'", types=(Direction.EGRESS,))
        enforce(scene, egress)
        return scene.passes(client, at.floating, scene.nat.web.name, at=at.web)

    assert to(EntityRule(selector=WEB))
    assert not to(EntityRule(nets=(service.host_prefix,)))


def test_a_policy_that_changes_leaves_connections_that_live(scene: PolicyScene) -> None:
    """P-12: the old one lives, and a new one is closed."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    from_client = allow(source=EntityRule(selector="app == 'client'"))
    enforce(scene, make_policy("p", from_client, selector=WEB))
    with scene.connection(client, at.client, web, at.web) as answers:
        assert answers()
        enforce(scene, make_policy("p", allow(source=EntityRule(selector="app == 'other'")), selector=WEB))
        assert answers()
    assert not scene.passes(client, at.web, web, port=8081)


def test_who_has_no_profile_is_closed_until_it_exists(scene: PolicyScene) -> None:
    """P-31."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    other = stored_pod("web", profiles=("own",))
    enforce(scene, web=other)
    assert not scene.passes(client, at.web, web)
    own = namespace_profile("x")
    enforce(scene, evolve(own, metadata=evolve(own.metadata, name="own")), web=other)
    assert scene.passes(client, at.web, web)
