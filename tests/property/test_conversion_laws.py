"""A cluster with a static manifest becomes that of an Installation, whatever happens on the way.

- No node's plugin loses its rights at any moment: whatever token is on a node, its account exists, and is bound.
- No node has two node processes at once, also while one of them ends.
- With nothing failing, as many nodes as an update may take are without a ready pod, and no more.
- From any order of looks, kills at any write, and steps of controllers and kubelets, the end is the same: that of an
  operator on a new cluster, without labels, and without an object of the manifest.
- An Installation that is deleted half-way leaves a manifest that serves every node, or nothing if it had gone already.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import event, given
from hypothesis import strategies as st

from netplug_cli.operator.world import INSTALLATION
from netplug_core.decoding.tables import find_text
from netplug_core.operator.state import CONTROLLERS_LEASE_REF, DAEMONSET_REF, STATIC_DAEMONSET_REF
from netplug_core.operator.takeover import MIGRATION_LABEL, static_refs
from tests.harness.example_counts import CONVERSION_EXAMPLES
from tests.harness.installations import network
from tests.harness.operator_cluster import SHIPPED, Killed, MemoryPools, make_loop, settle
from tests.harness.static_cluster import StaticCluster, node_ref

POOL = {"cidr": "10.1.0.0/16", "name": "pool1", "encapsulation": "None", "natOutgoing": "Disabled"}
SPEC = network(ipPools=[POOL])
NODES = ("a", "b", "c")

Step = Callable[[StaticCluster, MemoryPools], None]


def look(kill_in: int | None) -> Step:
    """One look of an operator, which is killed at a write."""

    def step(static: StaticCluster, pools: MemoryPools) -> None:
        static.cluster.kill_in = kill_in
        with suppress(Killed):
            make_loop(static.cluster, pools).look()
        static.cluster.kill_in = None

    return step


def kubelet(node: str) -> Step:
    return lambda static, _: static.kubelet(node)


def renew(node: str) -> Step:
    return lambda static, _: static.renew(node)


calm_steps = st.one_of(
    st.one_of(st.none(), st.integers(0, 14)).map(look),
    st.just(look(None)),
    st.sampled_from((STATIC_DAEMONSET_REF, DAEMONSET_REF)).map(lambda ref: lambda static, _: static.control(ref)),
    st.sampled_from(NODES).map(kubelet),
    st.sampled_from(NODES).map(renew),
)


def join(static: StaticCluster, _: MemoryPools) -> None:
    if "d" not in static.nodes:
        static.add_node("d")


def delete_manifest(static: StaticCluster, _: MemoryPools) -> None:
    """Somebody deletes the DaemonSet while nodes are moved."""
    if labels(static) != {""}:
        static.cluster.remove(STATIC_DAEMONSET_REF)


steps = st.one_of(
    calm_steps,
    st.just(join),
    st.just(lambda static, _: static.remove_node("c")),
    st.just(delete_manifest),
)


def require_rights(static: StaticCluster) -> None:
    assert static.without_rights() == []
    assert static.doubly_served() == []


def finish(static: StaticCluster, pools: MemoryPools) -> None:
    """Looks of operator, controllers and kubelets, until the operator has nothing to write with all pods at rest."""
    for _ in range(40):
        static.come_to_rest()
        require_rights(static)
        static.cluster.writes.clear()
        settle(make_loop(static.cluster, pools))
        require_rights(static)
        if not static.cluster.writes:
            return
    raise AssertionError(static.cluster.conditions())


def labels(static: StaticCluster) -> set[str]:
    return {
        find_text(static.cluster.objects[node_ref(one)], "metadata", "labels", MIGRATION_LABEL) for one in static.nodes
    }


@CONVERSION_EXAMPLES
@given(st.lists(steps, max_size=40))
def test_one_end(happenings: list[Step]) -> None:
    static = StaticCluster.of(*NODES)
    pools = static.make_pools()
    static.cluster.install(SPEC)
    for happening in happenings:
        happening(static, pools)
        require_rights(static)
    event(f"labels after the steps: {sorted(labels(static))}")
    finish(static, pools)
    assert static.cluster.conditions()["Ready"][0] == "True"
    assert labels(static) == {""}
    assert set(static.credentials.values()) == {"netplug-system"}
    assert static.served() == static.nodes
    assert not {STATIC_DAEMONSET_REF, *static_refs(SHIPPED)} & static.cluster.objects.keys()
    del static.cluster.objects[CONTROLLERS_LEASE_REF]  # those of the Installation go on with it
    fresh = StaticCluster()
    for node in static.nodes:
        fresh.add_node(node)
    fresh.cluster.install({**SPEC, **dict(static.cluster.objects[INSTALLATION]["spec"])})  # type: ignore[call-overload]
    finish(fresh, fresh.make_pools())
    for one in (static, fresh):
        del one.cluster.objects[DAEMONSET_REF]["status"]  # counts how often it was changed
    assert static.cluster.picture() == fresh.cluster.picture()


@CONVERSION_EXAMPLES
@given(st.lists(calm_steps, max_size=50))
def test_at_most_one_node_is_without_a_ready_pod(happenings: list[Step]) -> None:
    static = StaticCluster.of(*NODES)
    pools = static.make_pools()
    static.cluster.install(SPEC)
    for happening in happenings:
        happening(static, pools)
        assert len(static.served()) >= len(NODES) - 1


@CONVERSION_EXAMPLES
@given(st.lists(steps, max_size=40), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=8))
def test_a_deleted_installation_gives_the_nodes_back(happenings: list[Step], kills: list[int | None]) -> None:
    static = StaticCluster.of(*NODES)
    pools = static.make_pools()
    static.cluster.install(SPEC)
    settle(make_loop(static.cluster, pools))
    for happening in happenings:
        happening(static, pools)
    static.cluster.remove(INSTALLATION)
    for kill_in in kills:
        look(kill_in)(static, pools)
        static.come_to_rest()
    for _ in range(12):
        settle(make_loop(static.cluster, pools))
        static.come_to_rest()
        static.cluster.end_namespace()
    assert INSTALLATION not in static.cluster.objects
    assert labels(static) == {""}
    assert DAEMONSET_REF not in static.cluster.objects
    has_manifest = STATIC_DAEMONSET_REF in static.cluster.objects
    event(f"the manifest is there: {has_manifest}")
    if has_manifest:
        assert static.served() == static.nodes
        assert static.without_rights() == []
        assert set(static.credentials.values()) == {"kube-system"}
