"""Whether policy opens, or closes, for an instant while it changes: on a kernel, under a flood of packets.

One workload sends to another as fast as it can, to a port that each state denies and to one that each state allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family
from netplug_core.policy.model import (
    UDP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    DenyAction,
    EndpointId,
    Failsafe,
    LocalEndpoint,
    Match,
    MemberSet,
    PeerMatch,
    PolicyId,
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
from tests.harness.node import NetnsNode
from tests.harness.policy_flood import ALLOWED, DENIED, Count, count, count_packets, flooded
from tests.harness.policy_scene import ALLOW_ALL, PolicyScene, workload
from tests.harness.policy_states import policy_id

pytestmark = [pytest.mark.netns, pytest.mark.stress]

CHANGES = 1000
LEAST = 20  # packets for each change, so that some come while it is made
A, B, C, D = (policy_id(name) for name in "abcd")


@pytest.fixture(params=Family, ids=str)
def scene(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[PolicyScene]:
    with open_scene(node, request.param) as nat:
        count_packets(node)
        yield PolicyScene(nat)


# --- states that change -----------------------------------------------------------------------------------------------


def allow(*ports: PortRange, **more: object) -> Rule:
    peer = PeerMatch(ports=ports)
    return Rule(name="Rule x/a #0", action=Action.ALLOW, matches=(Match(protocol=UDP, destination=peer, **more),))  # type: ignore[arg-type]


def deny(*ports: PortRange, **more: object) -> Rule:
    return evolve(allow(*ports, **more), action=Action.DENY)


def port(number: int) -> PortRange:
    return PortRange(number, number)


ALLOWING = allow(port(ALLOWED))
"""What each state has that lets the allowed packets in."""

States: TypeAlias = Sequence[PolicyState]


def isolated(scene: PolicyScene, *rules: Rule, **more: object) -> PolicyState:
    """The web lets in what some rules say; so does the client let out."""
    policy = ActivePolicy(id=A, ingress=rules, egress=rules)
    both = (workload("web", ingress=(A,)), workload("client", egress=(A,)))
    return scene.state(*both, policies=(policy,), **more)


def edits(scene: PolicyScene) -> States:
    """A policy gets other rules in place."""
    others = (
        (),
        (allow(port(80), port(443), PortRange(8000, 8999)),),
        (deny(port(DENIED)), allow(PortRange(9003, 9010))),
        (allow(port(80)), deny(PortRange(9000, 9001)), ALLOW_ALL),
    )
    return [
        isolated(scene, *rules)
        for other in others
        for rules in ((ALLOWING, *other), (*other[:1], ALLOWING, *other[1:]))
    ]


def exceptions(scene: PolicyScene) -> States:
    """P-57: all of a family may come in but some prefixes, more or fewer: literals, and sets of them."""
    family = scene.nat.family
    client = Address.parse(scene.nat.addresses.client)
    others = [Address(family, int(client) + 8 + number).host_prefix for number in range(20)]
    first = Match(family=family, source=PeerMatch(not_prefixes=(client.host_prefix,)))

    def state(excluded: int) -> PolicyState:
        prefixes = tuple(sorted((client.host_prefix, *others[:excluded]), key=lambda each: int(each.first)))
        match = evolve(first, source=PeerMatch(not_prefixes=prefixes))
        return isolated(scene, ALLOWING, Rule(name="Rule x/a #1", action=Action.ALLOW, matches=(match,)))

    return [state(excluded) for excluded in (0, 12, 13, 3, 20, 7, 15)]


def moving_denials(scene: PolicyScene) -> States:
    """P-27: a rule that denies goes from one policy to another, in one change."""
    rule = deny(port(DENIED))

    def state(*holders: str) -> PolicyState:
        policies = [
            ActivePolicy(id=each, ingress=(rule,) if name in holders else (deny(port(7)),))
            for name, each in (("c", C), ("d", D))
        ]
        opening = ActivePolicy(id=B, ingress=(ALLOW_ALL,))
        both = (workload("web", ingress=(C, D, B)), workload("client"))
        return scene.state(*both, policies=(*policies, opening))

    return [state("c"), state("d"), state("c", "d"), state("d")]


def members(scene: PolicyScene) -> States:
    """Sets of each sort get and lose members: some let in, others keep out."""
    family = scene.nat.family
    client, web = Address.parse(scene.nat.addresses.client), Address.parse(scene.nat.addresses.web)
    others = [Address(family, int(client) + 8 + number) for number in range(30)]
    inside, outside, nets, ports = (set_id(name) for name in ("inside", "outside", "nets", "ports"))

    def state(number: int) -> PolicyState:
        some = frozenset(others[number % 20 : number % 20 + 10])
        sets = (
            MemberSet(id=inside, type=SetType.ADDRESSES, members=some),
            MemberSet(id=outside, type=SetType.ADDRESSES, members=some | {client}),
            MemberSet(id=nets, type=SetType.PREFIXES, members=frozenset(each.host_prefix for each in (*some, client))),
            MemberSet(id=ports, type=SetType.PORTS, members=frozenset(PortMember(each, UDP, DENIED) for each in some)),
        )
        rules = (
            ALLOWING,
            Rule(name="Rule x/a #1", action=Action.ALLOW, matches=(Match(source=PeerMatch(sets=(inside,))),)),
            Rule(name="Rule x/a #2", action=Action.ALLOW, matches=(Match(destination=PeerMatch(port_set=ports)),)),
            deny(port(DENIED), source=PeerMatch(sets=(nets,))),
            Rule(name="Rule x/a #3", action=Action.ALLOW, matches=(Match(source=PeerMatch(not_sets=(outside,))),)),
        )
        return isolated(scene, *rules, sets=sets)

    assert web not in others
    return [state(number) for number in (0, 7, 14, 3, 20)]


def selectors(scene: PolicyScene) -> States:
    """A policy refers to other sets, which are made and deleted with it."""
    client = Address.parse(scene.nat.addresses.client)

    def state(name: str) -> PolicyState:
        sort = SetType.PREFIXES if name in "xz" else SetType.ADDRESSES
        held = client if sort is SetType.ADDRESSES else client.host_prefix
        of_client = MemberSet(id=set_id(name), type=sort, members=frozenset({held}))
        is_not = Match(source=PeerMatch(not_sets=(of_client.id,)))
        return isolated(
            scene, ALLOWING, Rule(name="Rule x/a #1", action=Action.ALLOW, matches=(is_not,)), sets=(of_client,)
        )

    return [state(name) for name in "wxyz"]


def other_endpoints(scene: PolicyScene) -> States:
    """P-56: workloads come and go."""
    family = scene.nat.family
    client = Address.parse(scene.nat.addresses.client)
    first = isolated(scene, ALLOWING)

    def other(number: int) -> LocalEndpoint:
        address = Address(family, int(client) + 100 + number)
        open_policy = first.endpoints[0].egress
        return LocalEndpoint(
            id=EndpointId("x", f"other-{number}"), interface=f"netpx{number}", addresses=(address,),
            ingress=(A,), egress=open_policy,
        )  # fmt: skip

    return [
        evolve(first, endpoints=(*first.endpoints, *(other(number) for number in numbers)))
        for numbers in ((), (1,), (1, 2, 3), (2, 3, 4, 5, 6), (3,), range(20))
    ]


def policies_of_an_endpoint(scene: PolicyScene) -> States:
    """An endpoint gets other policies, in another order, and profiles in their place."""
    contents = {A: (ALLOWING,), B: (allow(port(80)), ALLOWING), C: (deny(port(DENIED)), allow(port(81)), ALLOWING)}
    policies = tuple(ActivePolicy(id=each, ingress=rules, egress=rules) for each, rules in contents.items())
    profile = ActiveProfile(name="kns.x", ingress=(ALLOWING,), egress=(ALLOWING,))
    orders = ((A,), (B, A), (A, B), (C,), (A, C, B), (), (B,))
    found: list[PolicyState] = []
    for order in orders:
        web = workload("web", ingress=order, profiles=("kns.x",))
        client = workload("client", egress=order, profiles=("kns.x",))
        used = tuple(each for each in policies if each.id in order)
        found.append(scene.state(web, client, policies=used, profiles=(profile,)))
    return found


def _settings() -> tuple[PolicySettings, ...]:
    usual = PolicySettings(endpoint_to_host=EndpointToHostAction.ACCEPT)
    return (
        usual,
        evolve(usual, endpoint_to_host=EndpointToHostAction.DROP),
        evolve(usual, deny_action=DenyAction.REJECT),
        evolve(usual, inbound_failsafes=(Failsafe(protocol=UDP, port=68),), is_invalid_evaluated=True),
        evolve(usual, interface_prefix="netp,other"),
    )


def _hosts() -> tuple[tuple[ActiveHostEndpoint, ...], ...]:
    host = ActiveHostEndpoint(name="any", interface="*")
    return (), (host,), (evolve(host, interface="up0"),)


def settings(scene: PolicyScene) -> States:
    """What all chains have: how is denied, what of the node is closed, and which ports stay open."""
    return [isolated(scene, ALLOWING, settings=each, host_endpoints=_hosts()[1]) for each in _settings()]


def host_endpoints(scene: PolicyScene) -> States:
    """What guards the node itself comes and goes."""
    return [isolated(scene, ALLOWING, host_endpoints=each) for each in _hosts()]


def settings_and_hosts(scene: PolicyScene) -> States:
    """Both in one change: packets between workloads meet none of what guards the node itself."""
    return [
        isolated(scene, ALLOWING, settings=each, host_endpoints=hosts) for each in _settings() for hosts in _hosts()
    ]


def receiver(scene: PolicyScene) -> States:
    """The workload that is sent to comes and goes, and so does the one that sends; then nothing passes."""
    whole = isolated(scene, ALLOWING)
    web, client = whole.endpoints
    return [evolve(whole, endpoints=each) for each in ((web, client), (client,), (web, client), (web,))]


def replaced_policies(scene: PolicyScene) -> States:
    """P-52: one policy goes and another comes, also while no process runs."""
    contents = {A: (ALLOWING,), B: (deny(port(DENIED)), ALLOW_ALL), C: (allow(port(80)), ALLOWING)}

    def state(name: PolicyId) -> PolicyState:
        policy = ActivePolicy(id=name, ingress=contents[name], egress=contents[name])
        return scene.state(workload("web", ingress=(name,)), workload("client", egress=(name,)), policies=(policy,))

    return [state(name) for name in contents]


Kind: TypeAlias = Callable[[PolicyScene], States]
KEEPING: tuple[Kind, ...] = (
    edits, exceptions, moving_denials, members, selectors, other_endpoints, policies_of_an_endpoint, settings,
    host_endpoints, settings_and_hosts, replaced_policies,
)  # fmt: skip


# --- floods -----------------------------------------------------------------------------------------------------------


def change_under_flood(scene: PolicyScene, states: States, *, restarts: bool = False) -> Count:
    """Make each change between states many times; what has come, and what has passed, is since the first state."""
    scene.enforce(states[0])
    begun = count(scene)
    order = list(chain(states, reversed(states)))
    with flooded(scene):
        for number in range(CHANGES):
            scene.enforce(order[number % len(order)], restarted=restarts and number % 2 == 0)
    return count(scene).since(begun)


@pytest.mark.parametrize("kind", KEEPING, ids=lambda kind: kind.__name__)
def test_no_change_lets_anything_in_or_loses_anything(scene: PolicyScene, kind: Kind) -> None:
    found = change_under_flood(scene, kind(scene))
    assert min(found.denied_in, found.allowed_in) > CHANGES * LEAST
    assert found.denied_out == 0
    assert found.allowed_out == found.allowed_in


@pytest.mark.parametrize("kind", KEEPING, ids=lambda kind: kind.__name__)
def test_no_restart_lets_anything_in(scene: PolicyScene, kind: Kind) -> None:
    """A process that does not know which rules are in force closes rather than mixes them."""
    found = change_under_flood(scene, kind(scene), restarts=True)
    assert min(found.denied_in, found.allowed_in) > CHANGES * LEAST
    assert found.denied_out == 0


def test_nothing_gets_in_while_workloads_come_and_go(scene: PolicyScene) -> None:
    found = change_under_flood(scene, receiver(scene))
    assert min(found.denied_in, found.allowed_in) > CHANGES * LEAST
    assert found.denied_out == 0
    assert found.allowed_in > found.allowed_out > 0
