"""The operator reaches one end, whatever happens on the way.

- From any order of changes, of deletions by others and of kills at any write, the cluster becomes what a new operator
  makes of the last Installation.
- At the end nothing is written any more.
- After the deletion of the Installation there are definitions and pools only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from netplug_cli.operator.world import INSTALLATION
from netplug_core.operator.state import NAMESPACE_REF, installed_refs
from tests.harness.installations import network
from tests.harness.operator_cluster import SHIPPED, Killed, MemoryCluster, MemoryPools, make_loop, settle

PLAIN = {"encapsulation": "None", "natOutgoing": "Disabled"}
A, B = ({"cidr": f"10.{number}.0.0/16", "name": f"pool{number}", **PLAIN} for number in (1, 2))
"""With names: a pool without one keeps the name that it has, and another history may have given it another one."""

SPECS: list[dict[str, object]] = [
    network(ipPools=[A]),
    network(ipPools=[A, B]),
    network(ipPools=[B], mtu=1400),
    network(ipPools=[A], mtu=70000),
    network(ipPools=[A], hostPorts="Disabled"),
    {**network(ipPools=[A]), "registry": "example.org/", "kubernetesProvider": "AKS", "cni": {"type": "Netplug"}},
]
REFS = [ref for ref in installed_refs(SHIPPED) if ref != NAMESPACE_REF]

Step = Callable[[MemoryCluster, MemoryPools], None]


def look(kill_in: int | None) -> Step:
    """Some looks of an operator, which is killed at a write."""

    def step(cluster: MemoryCluster, pools: MemoryPools) -> None:
        cluster.kill_in = kill_in
        with suppress(Killed):
            settle(make_loop(cluster, pools))
        cluster.kill_in = None

    return step


steps = st.one_of(
    st.sampled_from(SPECS).map(lambda spec: lambda cluster, _: cluster.install(spec)),
    st.sampled_from(REFS).map(lambda ref: lambda cluster, _: cluster.remove(ref)),
    st.just(lambda cluster, _: cluster.remove(NAMESPACE_REF)),
    st.just(lambda cluster, _: cluster.end_namespace()),
    st.just(lambda cluster, _: cluster.remove(INSTALLATION)),
    st.one_of(st.none(), st.integers(0, 25)).map(look),
)


def run(happenings: list[Step]) -> tuple[MemoryCluster, MemoryPools]:
    cluster = MemoryCluster()
    pools = MemoryPools(cluster)
    for happening in happenings:
        happening(cluster, pools)
    return cluster, pools


def come_to_rest(cluster: MemoryCluster, pools: MemoryPools) -> None:
    for _ in range(2):
        settle(make_loop(cluster, pools))
        cluster.end_namespace()
    settle(make_loop(cluster, pools))


@given(st.lists(steps, max_size=8), st.sampled_from([spec for spec in SPECS if spec != SPECS[3]]))
def test_one_end(happenings: list[Step], spec: dict[str, object]) -> None:
    cluster, pools = run(happenings)
    come_to_rest(cluster, pools)
    cluster.install(spec)
    come_to_rest(cluster, pools)
    fresh = MemoryCluster()
    fresh.install(spec)
    fresh_pools = MemoryPools(fresh)
    come_to_rest(fresh, fresh_pools)
    assert cluster.picture() == fresh.picture()
    assert {pool.spec.prefix for pool in pools.pools} == {pool.spec.prefix for pool in fresh_pools.pools}
    cluster.writes.clear()
    settle(make_loop(cluster, pools))
    assert cluster.writes == []


@given(st.lists(steps, max_size=8), st.lists(st.integers(0, 12), max_size=6))
def test_a_deletion_takes_all(happenings: list[Step], kills: list[int]) -> None:
    cluster, pools = run(happenings)
    cluster.end_namespace()
    cluster.install(SPECS[0])
    come_to_rest(cluster, pools)
    before = pools.pools
    cluster.remove(INSTALLATION)
    for kill_in in kills:
        look(kill_in)(cluster, pools)
    come_to_rest(cluster, pools)
    # The definitions stay, with their data, and what keeps them from being deleted.
    kept = {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert {ref.kind for ref in cluster.objects} == kept
    assert pools.pools == before
