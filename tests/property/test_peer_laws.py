"""Laws of BGP peers.

1. Equal facts in another order give an equal plan, so that a daemon is not configured anew for nothing.
2. The names in a plan are different and have letters, digits and ``_`` only, whatever resources are called.
3. Of two nodes of the mesh each has the other as a peer, and one of the two connects.
"""

import re
from random import Random
from typing import TypeVar

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.bgp import BgpPlan
from netplug_core.reconcile.peers import PeerFacts, plan_peers
from netplug_core.resources.bgp import (
    BGPConfiguration,
    BGPConfigurationSpec,
    BGPFilter,
    BGPFilterRule,
    BGPFilterSpec,
    BGPPeer,
    BGPPeerSpec,
    FilterAction,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import Encapsulation, IPPool
from netplug_core.resources.node import Node, NodeBGP, NodeSpec

T = TypeVar("T")

NAMES = ["n1", "n2", "n.3", "n-3", "n4"]
FILTERS = ["edge", "a.b", "a-b", "x" * 70]
SELECTORS = ["", "all()", "has(rack)", "!has(rack)"]


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    """Nodes with different addresses."""
    made = []
    for number, name in enumerate(NAMES, start=11):
        four = InterfaceAddress(Address.parse(f"10.240.0.{number}"), 24)
        six = InterfaceAddress(Address.parse(f"fd10::{number}"), 64)
        bgp = NodeBGP(
            ipv4_address=four if draw(st.booleans()) else None,
            ipv6_address=six if draw(st.booleans()) else None,
            as_number=draw(st.sampled_from([None, 64600])),
            route_reflector_cluster_id=draw(st.sampled_from(["", "", "224.0.0.1"])),
        )
        labels = draw(st.sampled_from([(), (("rack", "r1"),)]))
        made.append(Node(metadata=Metadata(name=name, labels=labels), spec=NodeSpec(bgp=bgp)))
    return tuple(made)


def peers() -> st.SearchStrategy[tuple[BGPPeer, ...]]:
    filters = st.lists(st.sampled_from(FILTERS), max_size=2).map(tuple)
    of_address = st.builds(
        BGPPeerSpec,
        node=st.sampled_from(["", "n1"]),
        peer_ip=st.sampled_from(["192.0.2.1", "192.0.2.1:1790", "10.240.0.12", "fd10::12", "router"]),
        as_number=st.sampled_from([64512, 65001]),
        filters=filters,
    )
    of_nodes = st.builds(
        BGPPeerSpec,
        node_selector=st.sampled_from(SELECTORS),
        peer_selector=st.sampled_from(SELECTORS[1:]),
        filters=filters,
    )
    specs = st.lists(st.one_of(of_address, of_nodes), max_size=4)
    return specs.map(
        lambda found: tuple(
            BGPPeer(metadata=Metadata(name=f"peer-{number}"), spec=spec) for number, spec in enumerate(found)
        )
    )


def a_pool(number: int, mode: Encapsulation) -> IPPool:
    pool = IPPool.for_prefix(Prefix.parse(f"10.9{number}.0.0/16"), name=f"pool-{number}")
    return evolve(pool, spec=evolve(pool.spec, vxlan_mode=mode))


def filters_of(action: FilterAction) -> tuple[BGPFilter, ...]:
    rules = (BGPFilterRule(action=action),)
    return tuple(BGPFilter(metadata=Metadata(name=name), spec=BGPFilterSpec(export_v4=rules)) for name in FILTERS)


@st.composite
def facts(draw: st.DrawFn) -> PeerFacts:
    modes = draw(st.lists(st.sampled_from(Encapsulation), max_size=3))
    has_mesh = draw(st.sampled_from([None, False]))
    configuration = BGPConfiguration(
        metadata=Metadata(name="default"), spec=BGPConfigurationSpec(has_node_mesh=has_mesh)
    )
    of_node = BGPConfiguration(metadata=Metadata(name="node.n2"), spec=BGPConfigurationSpec(listen_port=1790))
    return PeerFacts(
        node=draw(st.sampled_from(NAMES)),
        nodes=draw(nodes()),
        pools=tuple(a_pool(number, mode) for number, mode in enumerate(modes)),
        configurations=(configuration, of_node),
        peers=draw(peers()),
        filters=filters_of(draw(st.sampled_from(FilterAction)))[draw(st.integers(0, 1)) :],
    )


def mixed(items: tuple[T, ...], random: Random) -> tuple[T, ...]:
    """The items in another order."""
    return tuple(random.sample(items, len(items)))


@given(facts(), st.randoms(use_true_random=False))
def test_the_order_of_the_facts_changes_nothing(known: PeerFacts, random: Random) -> None:
    shuffled = evolve(
        known,
        nodes=mixed(known.nodes, random),
        pools=mixed(known.pools, random),
        configurations=mixed(known.configurations, random),
        peers=mixed(known.peers, random),
        filters=mixed(known.filters, random),
    )
    assert plan_peers(shuffled) == plan_peers(known)


@given(facts())
def test_every_name_is_a_symbol_of_its_own(known: PeerFacts) -> None:
    plan = plan_peers(known).outcome
    if isinstance(plan, BgpPlan):
        names = [one.name for one in plan.sessions] + [one.name for one in plan.filters]
        assert all(re.fullmatch("[A-Za-z0-9_]{1,64}", name) for name in names)
        assert len(set(names)) == len(names)
        ends = [(one.address, one.port) for one in plan.sessions]
        assert len(set(ends)) == len(ends)


@given(nodes())
def test_one_end_of_each_pair_connects(known: tuple[Node, ...]) -> None:
    pool = a_pool(0, Encapsulation.NEVER)
    plans = {name: plan_peers(PeerFacts(node=name, nodes=known, pools=(pool,))).outcome for name in NAMES}
    connects = {
        (name, session.peer, session.family): not session.is_passive
        for name, plan in plans.items()
        if isinstance(plan, BgpPlan)
        for session in plan.sessions
    }
    assert all(connects[peer, name, family] is not connecting for (name, peer, family), connecting in connects.items())
    assert all(family in Family for _name, _peer, family in connects)
