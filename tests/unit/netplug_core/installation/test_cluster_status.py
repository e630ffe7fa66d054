"""Whether netplug works, from what is in a cluster."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.installation.cluster import (
    ClusterState,
    DaemonSetState,
    FieldConflict,
    InstallationState,
    PodState,
)
from netplug_core.installation.cluster_status import Condition, PoolsFound, Status, judge
from tests.harness.installations import make_pool

AVAILABLE, PROGRESSING, DEGRADED = Condition
DAEMONSET = DaemonSetState(
    namespace="netplug-system", is_observed=True, desired=2, updated=2, assigns_addresses=True, datastore="kubernetes"
)
WORKING = ClusterState(
    crd_mode="v1",
    definitions=(("ippools.crd.projectnetplug.org", True), ("ipamblocks.crd.projectnetplug.org", True)),
    daemonsets=(DAEMONSET,),
    pods=(PodState(name="x", node="a", is_ready=True), PodState(name="y", node="b", is_ready=True)),
    nodes=("a", "b"),
)
POOLS = PoolsFound(pools=(make_pool("10.0.0.0/16", name="main"),))


def rows(status: Status) -> list[tuple[str, Condition, str]]:
    return [(check.name, check.condition, check.detail) for check in status.checks]


def test_everything_works() -> None:
    found = judge(WORKING, POOLS)
    assert found.condition is AVAILABLE
    assert rows(found) == [
        ("CRDs", AVAILABLE, "2 of 2 established, v1"),
        ("DaemonSet", AVAILABLE, "netplug-system: 2 nodes, 2 with the latest pod, 2 with a ready one"),
        ("pools", AVAILABLE, "main 10.0.0.0/16"),
    ]


def test_an_empty_cluster() -> None:
    found = judge(ClusterState(), PoolsFound())
    assert rows(found) == [
        ("CRDs", DEGRADED, "there are none; netplugctl install apply brings them"),
        (
            "DaemonSet", DEGRADED,
            (
                "no DaemonSet netplug-node in kube-system or netplug-system: netplug is not installed; "
                "see netplugctl install apply --help"
            ),
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "daemonset",
    [
        evolve(DAEMONSET, is_observed=False),
        evolve(DAEMONSET, updated=1),
        evolve(DAEMONSET, desired=0, updated=0),
        evolve(DAEMONSET, desired=3, updated=3),
    ],
)
def test_a_rollout_that_is_not_complete(daemonset: DaemonSetState) -> None:
    found = judge(evolve(WORKING, daemonsets=(daemonset,)), POOLS)
    assert found.condition is PROGRESSING
    detail = next(check.detail for check in found.checks if check.name == "DaemonSet")
    assert ("not rolled out yet" in detail) == (not daemonset.is_observed)


def test_nodes_without_a_working_plugin_are_named() -> None:
    pods = (PodState(name="z", node="b", problem="install-cni: ErrImagePull"), PodState(name="y", node="a"))
    unscheduled = PodState(name="p", node="")
    state = evolve(WORKING, pods=(*pods, unscheduled))
    assert rows(judge(state, POOLS))[2:5] == [
        ("pod p", PROGRESSING, "pod p: it is not ready yet"),
        ("node a", PROGRESSING, "pod y: it is not ready yet"),
        ("node b", DEGRADED, "pod z: install-cni: ErrImagePull; see kubectl -n netplug-system describe pod z"),
    ]
    assert judge(state, POOLS).condition is DEGRADED


def test_a_node_without_a_pod_is_named() -> None:
    state = evolve(WORKING, pods=WORKING.pods[:1])
    assert ("node b", PROGRESSING, "no pod of netplug-node") in rows(judge(state, POOLS))


def test_two_installations_in_one_cluster() -> None:
    state = evolve(WORKING, daemonsets=(DAEMONSET, evolve(DAEMONSET, namespace="kube-system")))
    detail = "there is one in each of netplug-system and kube-system; remove one"
    assert ("DaemonSet", DEGRADED, detail) in rows(judge(state, POOLS))


def test_definitions_that_are_missing() -> None:
    state = evolve(WORKING, definitions=(("ippools.crd.projectnetplug.org", False), WORKING.definitions[1]))
    detail = "1 of 2 established; missing: ippools.crd.projectnetplug.org; install again"
    assert rows(judge(state, POOLS))[0] == ("CRDs", DEGRADED, detail)


def test_with_etcd_there_are_no_definitions_and_without_own_addresses_no_pools() -> None:
    state = evolve(WORKING, daemonsets=(evolve(DAEMONSET, datastore="etcdv3", assigns_addresses=False),))
    assert [check.name for check in judge(state, PoolsFound()).checks] == ["DaemonSet"]


def test_pools_that_give_no_addresses() -> None:
    disabled = make_pool("10.0.0.0/16", name="main")
    disabled = evolve(disabled, spec=evolve(disabled.spec, is_disabled=True))
    assert rows(judge(WORKING, PoolsFound(pools=(disabled,))))[-1] == (
        "pools", DEGRADED, "none of 1 gives addresses to pods; add one with netplugctl apply",
    )  # fmt: skip
    assert rows(judge(WORKING, PoolsFound(failure="down")))[-1] == ("pools", DEGRADED, "down")


@pytest.mark.parametrize(
    "conditions, condition, detail",
    [
        ((), AVAILABLE, "no operator acts upon it"),
        ((("Ready", "True", ""),), AVAILABLE, "ready"),
        ((("Ready", "True", "all"), ("Degraded", "False", "no")), AVAILABLE, "all"),
        ((("Ready", "False", ""), ("Progressing", "True", "1 of 2")), PROGRESSING, "1 of 2"),
        ((("Ready", "False", ""),), PROGRESSING, "it is not ready yet"),
        ((("Ready", "True", ""), ("Degraded", "True", "PodFailure")), DEGRADED, "PodFailure"),
    ],
)
def test_what_the_operator_says(
    conditions: tuple[tuple[str, str, str], ...], condition: Condition, detail: str
) -> None:
    state = evolve(WORKING, installations=(InstallationState(name="default", conditions=conditions),))
    assert rows(judge(state, POOLS))[0] == ("Installation(default)", condition, detail)


def test_a_conflict_names_fields_and_the_way_out() -> None:
    conflict = FieldConflict("DaemonSet a/b", '.spec.x: conflict with "kubectl"', "take them over")
    assert str(conflict) == '.spec.x: conflict with "kubectl"; take them over'
