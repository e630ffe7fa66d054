"""What the kernel does to packets by the table of a policy state, in both families."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from netplug_backends.linux.conntrack import LinuxConnections
from netplug_backends.linux.nftables import Run, run_library, run_program
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.ruleset import Phase
from netplug_core.policy.model import (
    UDP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    DenyAction,
    Failsafe,
    Match,
    MemberSet,
    PeerMatch,
    PolicySettings,
    PolicyState,
    PortMember,
    Rule,
    SetType,
    set_id,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction
from tests.harness.nat_scene import open_scene
from tests.harness.node import PEER_NAMESPACE, NetnsNode
from tests.harness.policy_scene import ALLOW_ALL, PolicyScene, workload
from tests.harness.policy_states import policy_id

# By night only: each closed way is asked for on a real kernel.
pytestmark = [pytest.mark.netns, pytest.mark.stress]

A, B = policy_id("a"), policy_id("b")
PEERS = set_id("app == 'a'")
OUTSIDE = PEER_NAMESPACE
ANYTHING = PeerMatch()


@pytest.fixture(params=[run_library, run_program], ids=["library", "program"])
def runner(request: pytest.FixtureRequest) -> Run:
    """P-68: without the library, the program does the same."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=Family, ids=str)
def scene(node: NetnsNode, runner: Run, request: pytest.FixtureRequest) -> Iterator[PolicyScene]:
    with open_scene(node, request.param) as nat:
        yield PolicyScene(nat, runner)


def rule(source: PeerMatch = ANYTHING, destination: PeerMatch = ANYTHING, **more: object) -> Rule:
    action = more.pop("action", Action.ALLOW)
    match = Match(source=source, destination=destination, **more)  # type: ignore[arg-type]
    return Rule(name="NetworkPolicy x/a #0", action=action, matches=(match,))  # type: ignore[arg-type]


def from_peers(*addresses: str) -> tuple[Rule, MemberSet]:
    members = MemberSet(id=PEERS, type=SetType.ADDRESSES, members=frozenset(map(Address.parse, addresses)))
    return rule(PeerMatch(sets=(PEERS,))), members


def ways(scene: PolicyScene) -> dict[str, bool]:
    """Which of the ways between client, web, the machine outside and the node are open."""
    at, web, client = scene.nat.addresses, scene.nat.web.name, scene.nat.client.name
    return {
        "client web": scene.passes(client, at.web, web),
        "outside web": scene.passes(OUTSIDE, at.web, web),
        "web outside": scene.passes(web, at.outside, OUTSIDE),
        "node web": scene.passes("", at.web, web),
        "web node": scene.passes(web, at.node, ""),
    }


def closed(*names: str) -> dict[str, bool]:
    found = dict.fromkeys(("client web", "outside web", "web outside", "node web", "web node"), True)
    return {**found, **dict.fromkeys(names, False)}


def test_isolation_in_each_direction(scene: PolicyScene) -> None:
    """P-1, P-2, P-5, P-7, P-8, P-43: from the node, a workload is always reached."""
    both = (workload("web"), workload("client"))
    scene.enforce(scene.state(*both))
    assert ways(scene) == closed()
    isolating = ActivePolicy(id=A)
    ingress = scene.state(workload("web", ingress=(A,)), both[1], policies=(isolating,))
    scene.enforce(ingress)
    assert ways(scene) == closed("client web", "outside web")
    egress = scene.state(workload("web", egress=(A,)), both[1], policies=(isolating,))
    scene.enforce(egress)
    assert ways(scene) == closed("web outside", "web node")
    scene.enforce(scene.state(*both))
    assert ways(scene) == closed()


def test_members_of_a_set_are_let_in(scene: PolicyScene) -> None:
    """P-3, P-6, P-11: and a change of them is a change of members alone."""
    at = scene.nat.addresses
    allow, members = from_peers(at.client)
    both = (workload("web", ingress=(A,)), workload("client"))
    state = scene.state(*both, policies=(ActivePolicy(id=A, ingress=(allow,)),), sets=(members,))
    scene.enforce(state)
    assert ways(scene) == closed("outside web")
    assert scene.enforce(evolve(state, sets=(evolve(members, members=frozenset()),))) == [Phase.SWITCH]
    assert ways(scene) == closed("outside web", "client web")


def test_prefixes_ports_and_named_ports(scene: PolicyScene) -> None:
    """P-13, P-14, P-16, P-25."""
    at, web = scene.nat.addresses, scene.nat.web.name
    family = scene.nat.family
    net = Prefix.parse(at.outsides)
    own = PeerMatch(prefixes=(net,), not_prefixes=(Address.parse(at.elsewhere).host_prefix,))
    named = MemberSet(id=PEERS, type=SetType.PORTS, members=frozenset({PortMember(Address.parse(at.web), UDP, 85)}))
    ports = PeerMatch(ports=(PortRange(80, 81), PortRange(90, 92)))
    policy = ActivePolicy(
        id=A,
        ingress=(
            rule(own, ports, family=family, protocol=UDP),
            rule(own, PeerMatch(port_set=PEERS), family=family, protocol=UDP),
        ),
    )
    scene.enforce(scene.state(workload("web", ingress=(A,)), policies=(policy,), sets=(named,)))
    for port, is_open in ((79, False), (80, True), (92, True), (93, False), (85, True), (86, False)):
        assert scene.passes(OUTSIDE, at.web, web, port=port, source=at.outside) is is_open, port
    assert not scene.passes(OUTSIDE, at.web, web, port=80, source=at.elsewhere)
    other = Family.IPV6 if family is Family.IPV4 else Family.IPV4
    only_other = ActivePolicy(id=A, ingress=(rule(family=other),))
    scene.enforce(scene.state(workload("web", ingress=(A,)), policies=(only_other,)))
    assert not scene.passes(OUTSIDE, at.web, web)


def test_the_first_rule_that_decides_counts(scene: PolicyScene) -> None:
    """P-26, P-27, P-28."""
    at, web = scene.nat.addresses, scene.nat.web.name
    deny = ActivePolicy(id=B, ingress=(rule(action=Action.LOG), rule(action=Action.DENY, protocol=UDP)))
    allow = ActivePolicy(id=A, ingress=(ALLOW_ALL,))
    for order, is_open in (((A, B), True), ((B, A), False)):
        scene.enforce(scene.state(workload("web", ingress=order), policies=(allow, deny)))
        assert scene.passes(OUTSIDE, at.web, web) is is_open
    rejecting = PolicySettings(deny_action=DenyAction.REJECT)
    scene.enforce(scene.state(workload("web", ingress=(B, A)), policies=(allow, deny), settings=rejecting))
    assert not scene.passes(OUTSIDE, at.web, web)


def test_a_workload_sends_from_its_own_addresses_only(scene: PolicyScene) -> None:
    """P-44, P-45, P-48."""
    at, client, web = scene.nat.addresses, scene.nat.client.name, scene.nat.web.name
    foreign = at.floating
    length = 32 if scene.nat.family is Family.IPV4 else 128
    quick = ("nodad",) if scene.nat.family is Family.IPV6 else ()
    scene.node.run("ip", "-n", client, "address", "add", f"{foreign}/{length}", "dev", "eth0", *quick)
    scene.node.run("ip", "route", "add", f"{foreign}/{length}", "dev", "netp6")
    scene.enforce(scene.state(workload("web"), workload("client")))
    assert not scene.passes(client, at.web, web, source=foreign)
    assert scene.passes(client, at.web, web, source=at.client)
    allowed = workload("client", source_prefixes=(Address.parse(foreign).host_prefix,))
    scene.enforce(scene.state(workload("web"), allowed))
    assert scene.passes(client, at.web, web, source=foreign)


def test_an_unknown_interface_passes_nothing(scene: PolicyScene) -> None:
    """P-49, P-58: the guard alone; and an endpoint that is gone."""
    nothing = closed("client web", "outside web", "web outside", "node web", "web node")
    scene.enforce(PolicyState())
    assert ways(scene) == nothing
    scene.enforce(scene.state(workload("web"), workload("client")))
    assert ways(scene) == closed()
    assert scene.enforce(scene.state(workload("client"))) == [Phase.SWITCH, Phase.DELETE]
    assert ways(scene) == nothing


def test_host_endpoints(scene: PolicyScene) -> None:
    """P-34, P-35, P-37, P-38, P-39, P-40."""
    at = scene.nat.addresses
    both = (workload("web"), workload("client"))
    settings = PolicySettings(
        endpoint_to_host=EndpointToHostAction.ACCEPT,
        inbound_failsafes=(Failsafe(protocol=UDP, port=68),),
        outbound_failsafes=(Failsafe(protocol=UDP, port=53),),
    )
    anywhere = ActiveHostEndpoint(name="any", interface="*")

    def of_host(*hosts: ActiveHostEndpoint, policy: ActivePolicy | None = None) -> dict[str, bool]:
        policies = () if policy is None else (policy,)
        scene.enforce(scene.state(*both, policies=policies, settings=settings, host_endpoints=hosts))
        return {
            "in": scene.passes(OUTSIDE, at.node, ""),
            "in failsafe": scene.passes(OUTSIDE, at.node, "", port=68),
            "out": scene.passes("", at.outside, OUTSIDE),
            "out failsafe": scene.passes("", at.outside, OUTSIDE, port=53),
        }

    everything = {"in": True, "in failsafe": True, "out": True, "out failsafe": True}
    assert of_host() == everything
    assert of_host(anywhere) == {**everything, "in": False, "out": False}
    assert ways(scene) == closed()
    allow_in = ActivePolicy(id=A, ingress=(ALLOW_ALL,))
    assert of_host(evolve(anywhere, ingress=(A,)), policy=allow_in) == {**everything, "out": False}
    uplink = evolve(anywhere, name="up", interface="up0", ingress=(A,), egress=(A,))
    allow_both = ActivePolicy(id=A, ingress=(ALLOW_ALL,), egress=(ALLOW_ALL,))
    assert of_host(anywhere, uplink, policy=allow_both) == everything


def test_what_others_change_is_repaired(scene: PolicyScene) -> None:
    """P-50, P-54, P-55: a restart writes nothing, and what is damaged comes back, and nothing else."""
    state = scene.state(workload("web", ingress=(A,)), workload("client"), policies=(ActivePolicy(id=A),))
    scene.enforce(state)
    assert scene.enforce(state, restarted=True) == []
    scene.node.run("nft", "insert rule inet netplug tw-netp5 accept")
    assert scene.enforce(state, restarted=True) == [Phase.SWITCH]
    scene.node.run("nft", "flush chain inet netplug filter-forward")
    assert scene.enforce(state, restarted=True) == [Phase.SWITCH]
    scene.node.run("nft", "flush ruleset")
    assert scene.enforce(state, restarted=True) == [Phase.CREATE, Phase.SWITCH]
    assert ways(scene) == closed("client web", "outside web")


def test_an_address_that_another_workload_gets_has_none_of_its_connections(scene: PolicyScene) -> None:
    """P-58: what policy decided of a connection counts for its workload alone."""
    at, web = scene.nat.addresses, scene.nat.web.name
    scene.enforce(scene.state(workload("web")))
    with scene.connection(OUTSIDE, at.outside, web, at.web) as answers:
        assert answers()
        isolated = workload("web", ingress=(A,), egress=(A,))
        scene.enforce(scene.state(isolated, policies=(ActivePolicy(id=A),)))
        assert answers()  # connections survive a change of policy
        with scene.nat.inside():
            assert LinuxConnections().forget_workloads({Address.parse(at.web)}) == 1
        assert not answers()
