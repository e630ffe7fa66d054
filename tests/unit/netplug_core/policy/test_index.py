"""Deltas: what a change of one object changes of the state, and what it leaves alone.

Every step is compared with the state from scratch, so these are tests of ``resolve`` and ``sets`` too.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.orchestrator.networkpolicy import (
    IPBlock,
    KubernetesNetworkPolicy,
    KubernetesNetworkPolicySpec,
    PeerEntry,
    RuleEntry,
)
from netplug_core.policy.evaluate import evaluate
from netplug_core.policy.index import POLICY_KINDS
from netplug_core.policy.model import (
    TCP,
    UDP,
    Decision,
    Direction,
    EndpointId,
    Failsafe,
    MemberChange,
    MemberSet,
    Packet,
    PolicyDelta,
    PolicyProblem,
    PolicySettings,
    PortMember,
    SetType,
)
from netplug_core.records import Kind, Unreadable
from netplug_core.resources.fields import Metadata, PortRange
from netplug_core.resources.hostendpoint import NamedPort, PortProtocol
from netplug_core.resources.nodeconfiguration import (
    DenyAction,
    EndpointToHostAction,
    FailsafePort,
    NodeConfiguration,
    NodeConfigurationSpec,
    SourceSpoofing,
)
from netplug_core.resources.policyrule import EntityRule, PortName, Protocol
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE
from netplug_core.resources.workloadendpoint import EndpointPort
from tests.harness.policies import (
    FollowedNode,
    allow,
    deny,
    key_of,
    make_global_policy,
    make_host,
    make_network_set,
    make_pod,
    make_policy,
    make_profile,
    prefixes_of,
)

A, B, C = map(Address.parse, ("10.0.0.1", "10.0.0.2", "fd00::3"))
KNS = make_profile("kns.x", allow())
POD = make_pod("a", "10.0.0.1", labels={"app": "a"})
PEER = make_pod("b", "10.0.0.2", labels={"app": "b"}, node="there")
FROM_B = make_policy("from-b", allow(source=EntityRule(selector="app == 'b'")))


@pytest.fixture
def node() -> FollowedNode:
    return FollowedNode()


def only_set(node: FollowedNode) -> MemberSet:
    (found,) = node.state.sets
    return found


def configured(name: str = "default", **spec: Any) -> NodeConfiguration:  # noqa: ANN401 - attributes of many types
    return NodeConfiguration(metadata=Metadata(name=name), spec=evolve(NodeConfigurationSpec(), **spec))


# --- policies, profiles, endpoints ------------------------------------------------------------------------------------


def test_nothing_is_enforced_without_an_endpoint_of_the_node(node: FollowedNode) -> None:
    assert node.put(KNS, PEER, FROM_B).is_empty


def test_an_endpoint_comes_with_its_policies_its_profiles_and_their_sets(node: FollowedNode) -> None:
    node.put(KNS, PEER, FROM_B)
    delta = node.put(POD)
    (endpoint,) = delta.endpoints
    assert endpoint.id == EndpointId("x", "a")
    assert (endpoint.interface, endpoint.container_id, endpoint.addresses) == ("netpa", "c1", (A,))
    assert [str(each) for each in endpoint.ingress] == ["NetworkPolicy x/from-b"]
    assert endpoint.egress == ()
    assert [each.name for each in delta.profiles] == ["kns.x"]
    assert [each.members for each in delta.sets] == [{B}]
    gone = node.remove(POD)
    assert gone == PolicyDelta(
        removed_policies=(endpoint.ingress[0],),
        removed_profiles=("kns.x",),
        removed_sets=(delta.sets[0].id,),
        removed_endpoints=(endpoint.id,),
    )


def test_a_label_of_a_peer_changes_members_only(node: FollowedNode) -> None:
    node.put(KNS, POD, FROM_B, PEER)
    (change,) = node.put(make_pod("b", "10.0.0.2", node="there")).member_changes
    assert change == MemberChange(id=only_set(node).id, removed=frozenset({B}))
    delta = node.put(PEER)
    assert delta == PolicyDelta(member_changes=delta.member_changes)
    assert delta.member_changes[0].added == {B}
    assert node.put(PEER).is_empty


def test_the_labels_of_a_namespace_change_members_only(node: FollowedNode) -> None:
    rule = allow(source=EntityRule(namespace_selector="team == 'red'"))
    pod = make_pod("b", "10.0.0.2", namespace="y", node="there")
    node.put(KNS, POD, pod, make_policy("red", rule))
    assert only_set(node).members == frozenset()
    (change,) = node.put(make_profile("kns.y", allow(), pcns__team="red")).member_changes
    assert change.added == {B}
    delta = node.remove(make_profile("kns.y"))
    assert [each.removed for each in delta.member_changes] == [{B}]


def test_an_edited_policy_changes_itself_and_its_sets(node: FollowedNode) -> None:
    node.put(KNS, POD, FROM_B, PEER)
    former = only_set(node)
    delta = node.put(make_policy("from-b", allow(source=EntityRule(selector="has(app)"))))
    assert [each.id.name for each in delta.policies] == ["from-b"]
    assert [each.members for each in delta.sets] == [{A, B}]
    assert delta.removed_sets == (former.id,)
    assert delta.endpoints == ()
    shared = node.put(make_policy("from-b", allow(source=EntityRule(selector="has(app)")), deny()))
    assert (shared.sets, shared.removed_sets, len(shared.policies)) == ((), (), 1)


def test_a_policy_without_endpoints_has_no_effect(node: FollowedNode) -> None:
    node.put(KNS, POD)
    assert node.put(make_policy("other", allow(), selector="app == 'z'")).is_empty
    assert node.put(make_policy("elsewhere", allow(), namespace="y")).is_empty
    chosen = make_policy("other", allow(), selector="app == 'a'")
    assert [len(each.ingress) for each in node.put(chosen).endpoints] == [1]
    assert [len(each.ingress) for each in node.remove(chosen).endpoints] == [0]


def test_policies_are_in_their_order(node: FollowedNode) -> None:
    node.put(KNS, POD, make_policy("b", order=10.0), make_policy("a", order=10.0), make_policy("last"))
    node.put(make_global_policy("first", order=1.0))
    (endpoint,) = node.state.endpoints
    assert [each.name for each in endpoint.ingress] == ["first", "a", "b", "last"]
    (changed,) = node.put(make_policy("a", order=20.0)).endpoints
    assert [each.name for each in changed.ingress] == ["first", "b", "a", "last"]


def test_a_policy_is_for_the_directions_that_it_names(node: FollowedNode) -> None:
    node.put(KNS, POD)
    (endpoint,) = node.put(make_policy("both", types=tuple(Direction))).endpoints
    assert endpoint.ingress == endpoint.egress != ()
    (endpoint,) = node.put(make_policy("both", types=(Direction.EGRESS,))).endpoints
    assert endpoint.ingress == ()


def test_a_profile_that_does_not_exist_closes_until_it_does(node: FollowedNode) -> None:
    (profile,) = node.put(POD).profiles
    assert profile.is_missing
    assert node.state.problems == (PolicyProblem("Profile kns.x", "does not exist: endpoints that name it are closed"),)
    delta = node.put(KNS)
    assert [each.is_missing for each in delta.profiles] == [False]
    assert delta.problems == ()
    assert [each.is_missing for each in node.remove(KNS).profiles] == [True]


def test_a_profile_stays_until_the_last_endpoint_that_names_it_goes(node: FollowedNode) -> None:
    twice = make_pod("b", "10.0.0.2", profiles=("kns.x", "kns.x"))
    node.put(KNS, POD, twice)
    assert node.remove(POD).removed_profiles == ()
    assert node.remove(twice).removed_profiles == ("kns.x",)


def test_the_profile_that_allows_everything_always_exists(node: FollowedNode) -> None:
    node.put(make_pod("a", "10.0.0.1", profiles=("projectnetplug-default-allow",)))
    assert [each.is_missing for each in node.state.profiles] == [False]
    node.index.apply(DEFAULT_ALLOW_PROFILE.key, None)
    assert node.index.take_delta().is_empty
    assert node.put(make_profile("projectnetplug-default-allow", deny())).is_empty


def test_objects_of_other_kinds_do_not_count(node: FollowedNode) -> None:
    node.index.apply(Kind("Other", ("name",)).key("a"), object())
    assert node.take().is_empty
    assert len({kind.name for kind in POLICY_KINDS}) == len(POLICY_KINDS)


def test_what_never_existed_can_be_removed(node: FollowedNode) -> None:
    for kind in POLICY_KINDS:
        node.index.apply(kind.key(*("x" for _ in kind.segments)), None)
    assert node.take().is_empty


# --- what cannot be read ----------------------------------------------------------------------------------------------


def decide(node: FollowedNode, source: str, destination: str, *interfaces: str) -> Decision:
    packet = Packet(
        source=Address.parse(source),
        destination=Address.parse(destination),
        destination_port=80,
        input_interface=interfaces[0],
        output_interface=interfaces[1],
    )
    return evaluate(packet, node.state).decision


def test_a_policy_that_cannot_be_read_closes_the_endpoints_that_it_may_be_for(node: FollowedNode) -> None:
    other = make_pod("c", "10.0.0.3", namespace="y")
    node.put(KNS, make_profile("kns.y", allow()), POD, other, make_policy("open", allow(), order=-5.0))
    assert decide(node, "192.0.2.1", "10.0.0.1", "eth0", "netpa") is Decision.ALLOW
    node.damage(make_policy("lost"))
    assert decide(node, "192.0.2.1", "10.0.0.1", "eth0", "netpa") is Decision.DENY
    assert decide(node, "10.0.0.1", "192.0.2.1", "netpa", "eth0") is Decision.DENY
    assert decide(node, "192.0.2.1", "10.0.0.3", "eth0", "netpc") is Decision.ALLOW, "another namespace"
    assert [str(each) for each in node.state.problems] == [
        "NetworkPolicy x/lost: cannot be read: the endpoints that it may be for are closed"
    ]
    node.damage(make_global_policy("lost"))
    assert decide(node, "192.0.2.1", "10.0.0.3", "eth0", "netpc") is Decision.DENY
    node.remove(make_global_policy("lost"), make_policy("lost"))
    assert decide(node, "192.0.2.1", "10.0.0.1", "eth0", "netpa") is Decision.ALLOW
    assert node.state.problems == ()


def test_a_policy_of_kubernetes_that_cannot_be_read_leaves_what_others_allow(node: FollowedNode) -> None:
    lost = KubernetesNetworkPolicy(namespace="x", name="lost", spec=KubernetesNetworkPolicySpec())
    from_net = RuleEntry(sources=(PeerEntry(ip_block=IPBlock(prefix=Prefix.parse("192.0.2.0/24"))),))
    spec = KubernetesNetworkPolicySpec(types=(Direction.INGRESS,), ingress=(from_net,))
    node.put(KNS, POD, evolve(lost, name="open", spec=spec))
    node.damage(lost)
    assert decide(node, "192.0.2.1", "10.0.0.1", "eth0", "netpa") is Decision.ALLOW
    assert decide(node, "198.51.100.1", "10.0.0.1", "eth0", "netpa") is Decision.DENY
    assert decide(node, "10.0.0.1", "192.0.2.1", "netpa", "eth0") is Decision.DENY
    node.put(lost)
    assert decide(node, "10.0.0.1", "192.0.2.1", "netpa", "eth0") is Decision.ALLOW


def test_a_value_of_another_kind_is_one_that_cannot_be_read(node: FollowedNode) -> None:
    node.put(KNS, POD)
    policy = make_policy("p", allow())
    node.index.apply(key_of(policy), make_global_policy("p", allow()))
    node.state = node.index.take_delta().apply_to(node.state)
    assert decide(node, "192.0.2.1", "10.0.0.1", "eth0", "netpa") is Decision.DENY
    assert len(node.state.problems) == 1


def test_profiles_and_endpoints_that_cannot_be_read_are_closed(node: FollowedNode) -> None:
    node.put(KNS, POD, PEER, FROM_B)
    assert only_set(node).members == {B}
    node.damage(KNS)
    assert decide(node, "10.0.0.1", "192.0.2.1", "netpa", "eth0") is Decision.DENY
    node.damage(PEER)
    assert only_set(node).members == frozenset()
    assert node.damage(POD).removed_endpoints == (EndpointId("x", "a"),)
    assert [str(each) for each in node.state.problems] == [
        "Profile kns.x: cannot be read: endpoints that name it are closed",
        "WorkloadEndpoint x/a: cannot be read: it is not programmed",
        "WorkloadEndpoint x/b: cannot be read: it is not programmed",
    ]
    host = make_host("h")
    node.put(host)
    assert node.damage(host).removed_host_endpoints == ("h",)
    assert "HostEndpoint h: cannot be read: it does not count" in map(str, node.state.problems)


def test_settings_that_cannot_be_read_close_what_they_may_close(node: FollowedNode) -> None:
    default = configured(endpoint_to_host_action=EndpointToHostAction.ACCEPT, allows_vxlan=True)
    own = configured("node.here", endpoint_to_host_action=EndpointToHostAction.ACCEPT)
    node.index.usual = PolicySettings(endpoint_to_host=EndpointToHostAction.ACCEPT)
    for damaged in (default, own):
        node.index.apply(key_of(damaged), Unreadable.UNREADABLE)
        node.state = node.index.take_delta().apply_to(node.state)
        assert node.state.settings.endpoint_to_host is EndpointToHostAction.DROP
        node.index.apply(key_of(damaged), None)
    node.index.usual = PolicySettings()
    node.put(default, own)
    node.damage(default)
    assert node.state.settings.endpoint_to_host is EndpointToHostAction.ACCEPT, "the node's own settings say so"
    node.put(default)
    assert node.state.settings.allows_vxlan
    settings = node.damage(own).settings
    assert settings is not None
    assert (settings.endpoint_to_host, settings.allows_vxlan) == (EndpointToHostAction.DROP, False)


def test_a_policy_for_another_hook_is_reported_and_never_applies(node: FollowedNode) -> None:
    delta = node.put(KNS, POD, make_global_policy("raw", allow(), is_untracked=True))
    assert delta.policies == ()
    problem = PolicyProblem("GlobalNetworkPolicy raw", "spec.doNotTrack is not supported or cannot be read")
    assert delta.problems == (problem,)
    assert node.remove(make_global_policy("raw")).problems == ()


# --- endpoints on interfaces ------------------------------------------------------------------------------------------


def test_an_endpoint_without_an_interface_is_not_programmed(node: FollowedNode) -> None:
    node.put(KNS)
    delta = node.put(make_pod("a", "10.0.0.1", interface_name=""))
    assert delta.endpoints == ()
    assert [str(each) for each in node.state.problems] == [
        "WorkloadEndpoint x/a: has no interface: it is not programmed"
    ]
    assert [each.interface for each in node.put(POD).endpoints] == ["netpa"]


@pytest.mark.parametrize("name", ["netp-of-a-long-name", "netp*", "netp 1", "@netp", 'netp"1', "netp/1"])
def test_an_endpoint_on_what_is_no_interface_is_not_programmed(node: FollowedNode, name: str) -> None:
    """The packet filter would refuse all of the table for its sake."""
    node.put(KNS, POD)
    delta = node.put(make_pod("b", "10.0.0.2", interface_name=name), make_host("h", name), make_host("any"))
    assert (delta.endpoints, [each.name for each in delta.host_endpoints]) == ((), ["any"])
    assert [str(each) for each in node.state.problems] == [
        f"HostEndpoint h: no interface has the name {name!r}: it is not programmed",
        f"WorkloadEndpoint x/b: no interface has the name {name!r}: it is not programmed",
    ]


def test_of_two_endpoints_on_one_interface_that_of_the_last_attached_container_counts(node: FollowedNode) -> None:
    one = make_pod("a", "10.0.0.1", interface_name="netp1", container_id="c1")
    other = make_pod("b", "10.0.0.2", interface_name="netp1", container_id="c2")
    node.put(KNS, one, other)
    assert [each.id.name for each in node.state.endpoints] == ["a"]
    delta = node.attach("netp1", "c2")
    assert ([each.id.name for each in delta.endpoints], [each.name for each in delta.removed_endpoints]) == (
        ["b"],
        ["a"],
    )
    node.attach("netp1", None)
    assert [each.id.name for each in node.state.endpoints] == ["a"]
    node.remove(one)
    assert [each.id.name for each in node.state.endpoints] == ["b"]


def test_an_endpoint_of_the_container_of_before_is_not_programmed(node: FollowedNode) -> None:
    """P-59: its successor on the interface, perhaps with its address, may have other labels."""
    node.put(KNS, POD)
    assert [each.name for each in node.attach("netpa", "c2").removed_endpoints] == ["a"]
    assert node.state.endpoints == ()
    unknown = make_pod("a", "10.0.0.1", container_id="")
    assert [each.id.name for each in node.put(unknown).endpoints] == ["a"]
    (found,) = node.put(make_pod("a", "10.0.0.1", container_id="c2")).endpoints
    assert found.container_id == "c2"


def test_an_endpoint_moves_to_another_interface_or_node(node: FollowedNode) -> None:
    node.put(KNS, POD)
    (moved,) = node.put(make_pod("a", "10.0.0.1", interface_name="netp9")).endpoints
    assert moved.interface == "netp9"
    assert node.put(make_pod("a", "10.0.0.1", node="there")).removed_endpoints == (EndpointId("x", "a"),)


def test_source_prefixes_count_if_the_configuration_allows_them(node: FollowedNode) -> None:
    pod = make_pod("a", "10.0.0.1", allowed_source_prefixes=("10.7.0.0/24", "10.7.0.1/32", "none"))
    node.put(KNS, pod)
    assert node.state.endpoints[0].source_prefixes == ()
    assert node.state.problems[0].subject == "WorkloadEndpoint x/a"
    delta = node.put(configured(source_spoofing=SourceSpoofing.ANY))
    assert [each.source_prefixes for each in delta.endpoints] == [prefixes_of("10.7.0.0/24")]
    assert delta.problems == ()
    assert [each.source_prefixes for each in node.remove(configured()).endpoints] == [()]


def test_addresses_of_several_endpoints_are_reported(node: FollowedNode) -> None:
    node.put(KNS, POD, FROM_B, PEER)
    twin = make_pod("c", "10.0.0.2", namespace="y", node="there", labels={"app": "c"})
    delta = node.put(twin)
    text = "is the address of x/b and y/c: what a policy allows one of them, all can do"
    assert delta.problems == (PolicyProblem("10.0.0.2", text),)
    assert node.put(make_host("h", "eth0", "10.0.0.1")).problems is None
    third = make_pod("d", "10.0.0.2", namespace="y", node="there")
    assert [str(each).count(" and ") for each in node.put(third).problems or ()] == [2]
    assert node.remove(third).problems == (PolicyProblem("10.0.0.2", text),)
    assert node.remove(PEER).problems == ()


def test_an_address_stays_a_member_until_the_last_endpoint_with_it_goes(node: FollowedNode) -> None:
    twin = make_pod("c", "10.0.0.2", node="there", labels={"app": "b"})
    node.put(KNS, POD, FROM_B, PEER, twin)
    assert node.remove(PEER).member_changes == ()
    assert [each.removed for each in node.remove(twin).member_changes] == [{B}]


def test_an_address_that_moves_is_one_change(node: FollowedNode) -> None:
    node.put(KNS, POD, FROM_B, PEER)
    (change,) = node.put(make_pod("b", "fd00::3", "fd00::3", labels={"app": "b"}, node="there")).member_changes
    assert change.added == {C}
    assert change.removed == {B}


# --- host endpoints ---------------------------------------------------------------------------------------------------


def test_the_lowest_name_governs_an_interface(node: FollowedNode) -> None:
    node.put(make_host("b"), make_host("a"), make_host("c", "eth0"), make_host("d", "eth0", node="there"))
    assert [(each.name, each.interface) for each in node.state.host_endpoints] == [("a", "*"), ("c", "eth0")]
    delta = node.remove(make_host("a"))
    assert ([each.name for each in delta.host_endpoints], delta.removed_host_endpoints) == (["b"], ("a",))
    assert node.remove(make_host("c", "eth0"), make_host("b")).host_endpoints == ()


def test_a_host_endpoint_without_a_name_is_on_the_interface_with_one_of_its_addresses(node: FollowedNode) -> None:
    node.put(make_host("h", "", "192.0.2.1"))
    assert node.state.host_endpoints == ()
    delta = node.set_interfaces(("eth0", "192.0.2.2"), ("eth1", "192.0.2.1"))
    assert [each.interface for each in delta.host_endpoints] == ["eth1"]
    assert node.set_interfaces(("eth0", "192.0.2.2")).removed_host_endpoints == ("h",)


def test_policies_and_profiles_apply_to_hosts(node: FollowedNode) -> None:
    node.put(make_host("h", profiles=("open",)), make_profile("open", allow()))
    delta = node.put(make_global_policy("host", allow(), selector="host == 'h'"))
    assert [len(each.ingress) for each in delta.host_endpoints] == [1]
    assert [each.name for each in node.state.profiles] == ["open"]


# --- sets -------------------------------------------------------------------------------------------------------------


HTTP = (EndpointPort(protocol="TCP", port=8080, name="http"), EndpointPort(protocol="OTHER", port=1, name="http"))
TO_HTTP = EntityRule(ports=(PortName("http"),))


def test_named_ports_of_ingress_are_those_of_the_nodes_endpoints(node: FollowedNode) -> None:
    pod = make_pod("a", "10.0.0.1", ports=HTTP)
    rule = allow(protocol=Protocol(TCP), destination=TO_HTTP)
    node.put(KNS, pod, make_pod("b", "10.0.0.2", ports=HTTP, node="there"), make_policy("p", rule))
    found = only_set(node)
    assert found.type is SetType.PORTS
    assert found.members == {PortMember(A, TCP, 8080)}
    moved = (
        EndpointPort(protocol="TCP", port=9090, name="http"),
        EndpointPort(protocol="TCP", port=1),
        EndpointPort(protocol="TCP", port=2, name="other"),
    )
    (change,) = node.put(make_pod("a", "10.0.0.1", ports=moved)).member_changes
    assert change.added == {PortMember(A, TCP, 9090)}
    assert change.removed == {PortMember(A, TCP, 8080)}
    host = make_host("h", "eth0", "192.0.2.1", ports=(NamedPort(name="http", protocol=PortProtocol.TCP, port=80),))
    assert [len(each.added) for each in node.put(host).member_changes] == [1]
    node.remove(make_policy("p"))
    assert node.state.sets == ()


def test_named_ports_of_egress_are_those_of_the_peers(node: FollowedNode) -> None:
    rule = allow(protocol=Protocol(TCP), destination=evolve(TO_HTTP, selector="app == 'b'"))
    peer = make_pod("b", "10.0.0.2", labels={"app": "b"}, ports=HTTP, node="there")
    policy = make_policy("p", types=(Direction.EGRESS,), egress=(rule,))
    node.put(KNS, POD, policy)
    delta = node.put(peer)
    assert sorted(map(str, (member for each in delta.member_changes for member in each.added))) == sorted(
        map(str, (B, PortMember(B, TCP, 8080)))
    )
    relabelled = make_pod("b", "10.0.0.2", labels={"app": "c"}, ports=HTTP, node="there")
    assert len(node.put(relabelled).member_changes) == 2


def test_a_set_becomes_one_of_prefixes_while_a_network_set_is_in_it(node: FollowedNode) -> None:
    networks = make_network_set("n", "10.0.0.0/30", "10.1.0.0/16", "10.1.0.0/24", app="b")
    rule = allow(source=EntityRule(selector="app == 'b'"))
    near = make_pod("b", "10.0.0.2", "fd00::3", labels={"app": "b"}, node="there")
    node.put(KNS, POD, near, make_global_policy("p", rule))
    former = only_set(node)
    delta = node.put(networks)
    found = only_set(node)
    assert (delta.removed_sets, [each.id for each in delta.sets]) == ((former.id,), [found.id])
    assert len(delta.policies) == 1
    assert found.type is SetType.PREFIXES
    assert found.members == set(prefixes_of("10.0.0.0/30", "10.1.0.0/16", "fd00::3/128"))
    far = make_pod("c", "10.0.0.3", "10.9.0.1", labels={"app": "b"}, node="there")
    assert [each.added for each in node.put(far).member_changes] == [set(prefixes_of("10.9.0.1/32"))]
    (change,) = node.put(make_network_set("n", "10.9.0.0/24", app="b")).member_changes
    assert change.removed == set(prefixes_of("10.0.0.0/30", "10.1.0.0/16", "10.9.0.1/32"))
    assert change.added == set(prefixes_of("10.9.0.0/24", "10.0.0.2/32", "10.0.0.3/32"))
    assert [each.removed for each in node.remove(far).member_changes] == [set(prefixes_of("10.0.0.3/32"))]
    back = node.remove(networks)
    assert [(each.id, each.type) for each in back.sets] == [(former.id, SetType.ADDRESSES)]
    assert node.put(make_network_set("n", app="b")).is_empty


def test_a_network_set_that_changes_nothing_of_a_set_is_no_change(node: FollowedNode) -> None:
    rule = allow(source=EntityRule(selector="app == 'b'"))
    node.put(KNS, POD, make_network_set("n", "10.0.0.0/24", app="b"), make_global_policy("p", rule))
    assert node.put(make_network_set("o", "10.0.0.0/25", app="b")).is_empty
    assert node.put(make_network_set("n", "10.0.0.0/24", app="b", other="c")).is_empty


def test_a_network_set_of_a_namespace_is_selected_in_it(node: FollowedNode) -> None:
    rule = allow(source=EntityRule(selector="app == 'b'"))
    node.put(KNS, POD, make_policy("p", rule))
    assert node.put(make_network_set("n", "10.0.0.0/24", namespace="y", app="b")).is_empty
    node.put(make_network_set("n", "10.0.0.0/24", namespace="x", app="b"))
    assert only_set(node).members == {Prefix.parse("10.0.0.0/24")}
    red = allow(source=EntityRule(namespace_selector="team == 'red'"))
    node.put(make_profile("kns.y", allow(), pcns__team="red"), make_policy("p", red))
    assert only_set(node).members == {Prefix.parse("10.0.0.0/24")}


def test_a_network_set_that_cannot_be_read_is_reported(node: FollowedNode) -> None:
    networks = make_network_set("n", "10.0.0.0/24", namespace="x")
    damaged = evolve(networks, spec=evolve(networks.spec, unparsed=('"10.0"',)))
    assert [str(each) for each in node.put(damaged).problems or ()] == [
        "NetworkSet x/n: spec.nets is not supported or cannot be read"
    ]
    everywhere = make_network_set("n", "10.0.0.0/24")
    other = evolve(everywhere, spec=evolve(everywhere.spec, unparsed=("1",)))
    assert len(node.put(other).problems or ()) == 2
    assert len(node.put(networks).problems or ()) == 1
    assert node.remove(other).problems == ()


def test_policies_with_one_selector_share_a_set_until_the_last_goes(node: FollowedNode) -> None:
    other = make_policy("other", deny(source=EntityRule(selector="app == 'b'")))
    node.put(KNS, POD, PEER, FROM_B)
    delta = node.put(other)
    assert not delta.sets
    assert not delta.removed_sets
    assert node.remove(FROM_B).removed_sets == ()
    assert len(node.remove(other).removed_sets) == 1


def test_a_set_that_is_used_and_dropped_between_two_deltas_never_was(node: FollowedNode) -> None:
    node.put(KNS, POD, PEER)
    key = FROM_B.metadata
    node.index.apply(POLICY_KINDS[2].key(key.namespace, key.name), FROM_B)
    node.index.apply(POLICY_KINDS[2].key(key.namespace, key.name), None)
    assert node.take().is_empty


def test_the_sets_of_profiles_count_too(node: FollowedNode) -> None:
    networks = make_network_set("n", "10.1.0.0/16", app="b")
    node.put(POD, PEER, make_profile("kns.x", allow(source=EntityRule(selector="app == 'b'"))))
    assert only_set(node).members == {B}
    assert [each.name for each in node.put(networks).profiles] == ["kns.x"]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_those_of_the_node_over_those_of_all(node: FollowedNode) -> None:
    port = FailsafePort(protocol=PortProtocol.UDP, port=500, net=Prefix.parse("10.0.0.0/8"))
    delta = node.put(
        configured(vxlan_port=8472, endpoint_to_host_action=EndpointToHostAction.ACCEPT, failsafe_outbound=()),
        configured("node.here", failsafe_inbound=(port,), deny_action=DenyAction.REJECT, allows_ipip=True),
    )
    assert delta.settings == PolicySettings(
        vxlan_port=8472,
        endpoint_to_host=EndpointToHostAction.ACCEPT,
        outbound_failsafes=(),
        inbound_failsafes=(Failsafe(protocol=UDP, port=500, net=Prefix.parse("10.0.0.0/8")),),
        deny_action=DenyAction.REJECT,
        allows_ipip=True,
    )
    assert node.put(configured("node.there", vxlan_port=1)).is_empty
    assert node.remove(configured(), configured("node.here")).settings == PolicySettings()


def test_ports_by_number_need_no_set(node: FollowedNode) -> None:
    rule = allow(protocol=Protocol(TCP), destination=EntityRule(ports=(PortRange(80, 80),)))
    assert node.put(KNS, POD, make_policy("p", rule)).sets == ()
