"""The values that the calculation hands to the dataplane."""

from __future__ import annotations

import pytest

from netplug_core.addressing import Address
from netplug_core.errors import InvariantBroken
from netplug_core.policy.model import (
    TCP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    EndpointId,
    LocalEndpoint,
    Match,
    MemberChange,
    MemberSet,
    PeerMatch,
    PolicyDelta,
    PolicyId,
    PolicyKind,
    PolicyProblem,
    PolicySettings,
    PolicyState,
    PortMember,
    Rule,
    SetId,
    SetType,
    set_id,
)

A, B = Address.parse("10.0.0.1"), Address.parse("2001:db8::1")
WEB = PolicyId(PolicyKind.KUBERNETES_NETWORK_POLICY, "x", "web")
DENY = PolicyId(PolicyKind.GLOBAL_NETWORK_POLICY, "", "deny")
S, T = SetId("s"), SetId("t")
POD = LocalEndpoint(id=EndpointId("x", "pod"), interface="netp1", ingress=(WEB,))


def members(identity: SetId, *addresses: Address) -> MemberSet:
    return MemberSet(id=identity, type=SetType.ADDRESSES, members=frozenset(addresses))


STATE = PolicyState(
    policies=(ActivePolicy(id=WEB),), profiles=(ActiveProfile(name="kns.x"),), sets=(members(S, A),), endpoints=(POD,)
)


def test_an_identity_is_shown_with_its_kind_and_its_namespace_if_it_has_one() -> None:
    assert str(WEB) == "KubernetesNetworkPolicy x/web"
    assert str(DENY) == "GlobalNetworkPolicy deny"
    assert str(POD.id) == "x/pod"
    assert sorted((WEB, DENY)) == [DENY, WEB]
    assert str(PolicyProblem("NetworkPolicy x/a #0", "spec.x: bad")) == "NetworkPolicy x/a #0: spec.x: bad"


def test_the_id_of_a_set_is_a_hash_of_its_meaning() -> None:
    """The digits are in names that the kernel has: another release has to find them."""
    assert set_id('app == "a"') == "e808f1ed7b352a7a"
    assert set_id("\ud800") != set_id("")


def test_policies_decide_in_a_direction_if_some_apply_in_it() -> None:
    assert POD.is_ingress_policed
    assert not POD.is_egress_policed


def test_a_policy_says_which_sets_it_uses() -> None:
    peer = PeerMatch(sets=(S,), not_sets=(T,), port_set=SetId("u"), not_port_sets=(SetId("v"),))
    rule = Rule(name="r #0", action=Action.ALLOW, matches=(Match(source=peer), Match(destination=PeerMatch(sets=(S,)))))
    used = {"s", "t", "u", "v"}
    assert ActivePolicy(id=WEB, egress=(rule,)).set_ids == used
    assert ActiveProfile(name="p", ingress=(rule,)).set_ids == used


def test_a_delta_that_says_nothing_changes_nothing() -> None:
    assert PolicyDelta().is_empty
    assert PolicyDelta().apply_to(STATE) == STATE


def test_a_delta_makes_one_state_of_another() -> None:
    port = PortMember(B, TCP, 80)
    delta = PolicyDelta(
        settings=PolicySettings(vxlan_port=8472),
        policies=(ActivePolicy(id=DENY),),
        removed_policies=(WEB,),
        profiles=(ActiveProfile(name="a"),),
        removed_profiles=("kns.x",),
        sets=(MemberSet(id=T, type=SetType.PORTS, members=frozenset({port})),),
        member_changes=(MemberChange(id=S, added=frozenset({B}), removed=frozenset({A})),),
        endpoints=(LocalEndpoint(id=EndpointId("x", "a"), interface="netp0"),),
        removed_endpoints=(POD.id,),
        host_endpoints=(ActiveHostEndpoint(name="eth0", interface="eth0"),),
        problems=(PolicyProblem("a", "b"),),
    )
    after = delta.apply_to(STATE)
    assert not delta.is_empty
    assert after == PolicyState(
        settings=PolicySettings(vxlan_port=8472),
        policies=delta.policies,
        profiles=delta.profiles,
        sets=(members(S, B), *delta.sets),
        endpoints=delta.endpoints,
        host_endpoints=delta.host_endpoints,
        problems=delta.problems or (),
    )
    assert PolicyDelta(removed_sets=(S,), removed_host_endpoints=("eth0",)).apply_to(after).sets == delta.sets


@pytest.mark.parametrize(
    "delta",
    [
        PolicyDelta(removed_policies=(DENY,)),
        PolicyDelta(removed_profiles=("ksa.x.y",)),
        PolicyDelta(removed_sets=(T,)),
        PolicyDelta(removed_endpoints=(EndpointId("x", "other"),)),
        PolicyDelta(removed_host_endpoints=("eth0",)),
        PolicyDelta(member_changes=(MemberChange(id=T, added=frozenset({A})),)),
        PolicyDelta(member_changes=(MemberChange(id=S, removed=frozenset({B})),)),
        PolicyDelta(member_changes=(MemberChange(id=S, added=frozenset({A})),)),
    ],
)
def test_a_delta_of_another_state_is_refused(delta: PolicyDelta) -> None:
    with pytest.raises(InvariantBroken):
        delta.apply_to(STATE)
