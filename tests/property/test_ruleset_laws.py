"""Tables of the packet filter and of NAT.

- whatever table is there, one change makes it the wanted one, and then nothing is left to change
- if only elements differ, only they are changed
- the prefixes of a set of pools do not overlap, and have the addresses of the pools and no others
- the table does not depend on the order of pools and workloads
"""

from __future__ import annotations

from random import Random

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.ruleset import MemoryRuleset
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.ruleset import ChangeElements, ReplaceTable, find_change
from netplug_core.reconcile.nat import NET_TABLE, NatFacts, find_table_change, plan_table
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import AllowedUse, IPPool, IPPoolSpec
from netplug_core.resources.nodeconfiguration import NodeConfigurationSpec, OutgoingExclusions
from netplug_core.resources.workloadendpoint import IPNAT, WorkloadEndpoint, WorkloadEndpointSpec

NAMES = st.sampled_from("abcdef")
PREFIXES = st.builds(
    lambda number, length: Prefix.at(Address(Family.IPV4, number << 24), length),
    st.integers(0, 7),
    st.integers(5, 9),
) | st.builds(
    lambda number, length: Prefix.at(Address(Family.IPV6, number << 120), length), st.integers(0, 7), st.integers(5, 9)
)
LOW_ADDRESSES = st.builds(Address, st.just(Family.IPV4), st.integers(1, 6)) | st.builds(
    Address, st.just(Family.IPV6), st.integers(1, 4)
)
USES = st.sampled_from([(AllowedUse.WORKLOAD, AllowedUse.TUNNEL), (AllowedUse.LOAD_BALANCER,)])


def _pool(prefix: Prefix, uses: tuple[AllowedUse, ...], *, nat: bool) -> IPPool:
    spec = IPPoolSpec(prefix=prefix, allowed_uses=uses, has_outgoing_nat=nat)
    return IPPool(metadata=Metadata(name="p"), spec=spec)


def _endpoint(name: str, addresses: list[Address], external: Address) -> WorkloadEndpoint:
    nats = tuple(IPNAT(internal=each, external=external) for each in addresses)
    spec = WorkloadEndpointSpec(orchestrator="k8s", node="n", endpoint="eth0", addresses=tuple(addresses), ip_nats=nats)
    return WorkloadEndpoint(metadata=Metadata(name=name, namespace="shop"), spec=spec)


POOLS = st.lists(st.builds(_pool, PREFIXES, USES, nat=st.booleans()), max_size=6).map(tuple)
ENDPOINTS = st.lists(
    st.builds(_endpoint, NAMES, st.lists(LOW_ADDRESSES, min_size=1, max_size=2, unique=True), LOW_ADDRESSES),
    max_size=5,
    unique_by=lambda one: one.metadata.name,
).map(tuple)
SETTINGS = st.builds(
    NodeConfigurationSpec,
    floating_ips=st.sampled_from([None, Switch.ENABLED]),
    nat_outgoing_exclusions=st.sampled_from([None, OutgoingExclusions.POOLS_AND_NODES]),
)
FACTS = st.builds(
    NatFacts,
    pools=POOLS,
    settings=SETTINGS,
    node_addresses=st.frozensets(LOW_ADDRESSES, max_size=3),
    endpoints=ENDPOINTS,
)


@given(st.lists(FACTS, min_size=1, max_size=4))
def test_one_change_makes_the_wanted_table_of_any_other(history: list[NatFacts]) -> None:
    kernel = MemoryRuleset()
    for facts in history:
        plan = plan_table(facts)
        change = find_table_change(plan, kernel.read(NET_TABLE))
        if change is not None:
            kernel.apply(change)
        assert find_table_change(plan, kernel.read(NET_TABLE)) is None


@given(FACTS, ENDPOINTS)
def test_other_workloads_are_other_elements(facts: NatFacts, endpoints: tuple[WorkloadEndpoint, ...]) -> None:
    kernel = MemoryRuleset()
    kernel.apply(ReplaceTable(plan_table(facts).table))
    change = find_change(plan_table(evolve(facts, endpoints=endpoints)).table, kernel.read(NET_TABLE))
    assert change is None or isinstance(change, ChangeElements)


@given(POOLS)
def test_the_prefixes_of_a_set_are_the_addresses_of_the_pools(pools: tuple[IPPool, ...]) -> None:
    table = plan_table(NatFacts(pools=pools)).table
    for family in Family:
        counted = [one.spec for one in pools if one.spec.allowed_uses != (AllowedUse.LOAD_BALANCER,)]
        with_nat = [spec for spec in counted if spec.has_outgoing_nat and spec.prefix.family is family]
        sets = {each.name: each for each in table.sets}
        digit = "4" if family is Family.IPV4 else "6"
        assert (f"nat_pools{digit}" in sets) is bool(with_nat)
        for name, specs in ((f"pools{digit}", counted), (f"nat_pools{digit}", with_nat)):
            if name in sets:
                found = [part for each in sets[name].elements for part in each.key if isinstance(part, Prefix)]
                given_prefixes = [spec.prefix for spec in specs if spec.prefix.family is family]
                assert all(any(one.covers(prefix) for one in found) for prefix in given_prefixes)
                assert set(found) <= set(given_prefixes)
                assert not any(one.overlaps(other) for one in found for other in found if one is not other)


@given(FACTS, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(facts: NatFacts, random: Random) -> None:
    pools, endpoints = list(facts.pools), list(facts.endpoints)
    random.shuffle(pools)
    random.shuffle(endpoints)
    assert plan_table(evolve(facts, pools=tuple(pools), endpoints=tuple(endpoints))) == plan_table(facts)
