"""Whether netplug works, from what is in a cluster."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.installation.cluster import (
    ClusterState,
    Condition,
    ControllersState,
    DaemonSetState,
    FieldConflict,
    InstallationState,
    NodeReport,
    OperatorState,
    PodState,
    PoolsFound,
    Status,
    judge,
)
from netplug_core.resources.ippool import Encapsulation
from tests.harness.installations import make_pool

AVAILABLE, LIMITED, PROGRESSING, DEGRADED = Condition
DAEMONSET = DaemonSetState(
    namespace="netplug-system", is_observed=True, desired=2, updated=2, assigns_addresses=True, datastore="kubernetes"
)
CONTROLLERS = ControllersState(namespace="netplug-system", desired=1, available=1)
WORKING = ClusterState(
    crd_mode="v1",
    definitions=(("ippools.crd.projectnetplug.org", True), ("ipamblocks.crd.projectnetplug.org", True)),
    daemonsets=(DAEMONSET,),
    controllers=(CONTROLLERS,),
    pods=(PodState(name="x", node="a", is_ready=True), PodState(name="y", node="b", is_ready=True)),
    nodes=("a", "b"),
)
POOLS = PoolsFound(pools=(make_pool("10.0.0.0/16", name="main"),))


OPERATOR = OperatorState(holder="op-1_5c9fb01b", renewed="2026-08-20T10:00:00Z")
POD = PodState(name="op-1", node="a")
STOPPED = "no operator runs, so that a changed Installation has no effect and a deleted one stays"
UNRENEWED = f"{STOPPED}: op-1 has stopped renewing its Lease, last at 2026-08-20T10:00:00Z"
NO_DAEMONSET = "no DaemonSet netplug-node in kube-system or netplug-system"


def rows(status: Status) -> list[tuple[str, Condition, str]]:
    return [(check.name, check.condition, check.detail) for check in status.checks]


def test_everything_works() -> None:
    found = judge(WORKING, POOLS)
    assert found.condition is AVAILABLE
    assert rows(found) == [
        ("CRDs", AVAILABLE, "2 of 2 established, v1"),
        ("DaemonSet", AVAILABLE, "netplug-system: 2 nodes, 2 with the latest pod, 2 with a ready one"),
        ("controllers", AVAILABLE, "netplug-system: 1 of 1 pods available"),
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


def test_a_node_whose_host_lacks_a_plugin_is_named_until_it_has_it_again() -> None:
    lost = NodeReport(node="b", reason="PluginsMissing", message="each start of a pod on this node fails: portmap")
    other = NodeReport(node="b", reason="Rebooted", message="the kubelet has started")
    gone = NodeReport(node="gone", reason="PluginsMissing", message="the node was deleted")
    found = judge(evolve(WORKING, reports=(lost, other, gone)), POOLS)
    assert found.condition is DEGRADED
    assert ("node b", DEGRADED, lost.message) in rows(found)
    assert "gone" not in str(rows(found))
    again = NodeReport(node="b", reason="PluginsFound", message="no plugin is missing any more")
    assert judge(evolve(WORKING, reports=(lost, again)), POOLS) == judge(WORKING, POOLS)
    assert judge(evolve(WORKING, reports=(again, lost)), POOLS).condition is DEGRADED


@pytest.mark.parametrize(
    "controllers, condition, detail",
    [
        (evolve(CONTROLLERS, available=0), PROGRESSING, "netplug-system: 0 of 1 pods available"),
        (evolve(CONTROLLERS, is_observed=False), PROGRESSING, "netplug-system: 1 of 1 pods available"),
        (evolve(CONTROLLERS, desired=0), DEGRADED, "netplug-system: scaled to 0: leaked addresses stay; scale it to 1"),
        (
            evolve(CONTROLLERS, pods=(PodState(name="c", node="a"), PodState(name="d", node="b", problem="Crash"))),
            DEGRADED,
            "pod d: Crash; see kubectl -n netplug-system describe pod d",
        ),
        (
            evolve(CONTROLLERS, namespace="kube-system"),
            DEGRADED,
            (
                "no Deployment of the controllers in netplug-system: leaked addresses stay; "
                "apply what has installed netplug again"
            ),
        ),
    ],
)
def test_controllers_that_do_not_run(controllers: ControllersState, condition: Condition, detail: str) -> None:
    found = judge(evolve(WORKING, controllers=(controllers,)), POOLS)
    assert ("controllers", condition, detail) in rows(found)
    assert found.condition is condition


def test_controllers_that_an_operator_has_not_installed_yet_and_those_beside_an_etcd() -> None:
    installed = InstallationState(name="default", conditions=(("Ready", "True", ""),))
    state = evolve(WORKING, controllers=(), installations=(installed,), operator=OPERATOR)
    expected = "no Deployment of the controllers in netplug-system yet"
    assert ("controllers", PROGRESSING, expected) in rows(judge(state, POOLS))
    beside = evolve(WORKING, controllers=(), daemonsets=(evolve(DAEMONSET, datastore="etcdv3"),))
    detail = {name: text for name, _, text in rows(judge(beside, POOLS))}["controllers"]
    assert "leaked addresses stay, and pods of a new namespace pass nothing where policy is enforced" in detail


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
    assert [check.name for check in judge(state, PoolsFound()).checks] == ["DaemonSet", "controllers"]


def test_pools_that_give_no_addresses() -> None:
    disabled = make_pool("10.0.0.0/16", name="main")
    disabled = evolve(disabled, spec=evolve(disabled.spec, is_disabled=True))
    assert rows(judge(WORKING, PoolsFound(pools=(disabled,))))[-1] == (
        "pools", DEGRADED, "none of 1 gives addresses to pods; add one with netplugctl apply",
    )  # fmt: skip
    assert rows(judge(WORKING, PoolsFound(failure="down")))[-1] == ("pools", DEGRADED, "down")


def test_nodes_that_make_no_routes_are_named_unless_there_is_one_node() -> None:
    pool = make_pool("10.0.0.0/16", name="main")
    wrapped = evolve(pool, spec=evolve(pool.spec, vxlan_mode=Encapsulation.ALWAYS, has_outgoing_nat=True))
    without = evolve(WORKING, daemonsets=(evolve(DAEMONSET, makes_routes=False),))
    found = judge(without, PoolsFound(pools=(wrapped,)))
    cause = "netplug makes no routes between nodes: NETPLUG_NETWORKING_BACKEND of netplug-node is none"
    inert = "so that natOutgoing, vxlanMode Always of pools have no effect"
    assert rows(found)[-1] == ("routes", LIMITED, f"{cause}, {inert}")
    assert found.condition is LIMITED
    assert rows(judge(without, POOLS))[-1] == ("routes", LIMITED, cause)
    alone = evolve(
        WORKING,
        nodes=("a",),
        pods=WORKING.pods[:1],
        daemonsets=(evolve(DAEMONSET, desired=1, updated=1, makes_routes=False),),
    )
    assert judge(alone, PoolsFound(pools=(wrapped,))).condition is AVAILABLE


READY = (("Ready", "True", "all"), ("Degraded", "False", "no"))


@pytest.mark.parametrize(
    "changes, condition, detail",
    [
        ({"conditions": ()}, PROGRESSING, "no operator has acted upon it yet"),
        ({"conditions": (("Ready", "True", ""),)}, AVAILABLE, "ready"),
        ({"conditions": READY}, AVAILABLE, "all"),
        ({"conditions": (("Ready", "False", ""), ("Progressing", "True", "1 of 2"))}, PROGRESSING, "1 of 2"),
        ({"conditions": (("Ready", "False", ""),)}, PROGRESSING, "it is not ready yet"),
        ({"conditions": (("Ready", "True", ""), ("Degraded", "True", "PodFailure"))}, DEGRADED, "PodFailure"),
        (
            {"conditions": READY, "generation": 3},
            PROGRESSING,
            "its generation is 3, and the operator has acted upon 2; what the status says is of that",
        ),
        (
            {"conditions": READY, "is_being_deleted": True},
            PROGRESSING,
            "it is being deleted; the operator lets it go last",
        ),
        (
            {"conditions": (("Progressing", "True", "3 pods are ending"),), "is_being_deleted": True},
            PROGRESSING,
            "it is being deleted; 3 pods are ending",
        ),
    ],
)
def test_what_the_operator_says(changes: dict[str, object], condition: Condition, detail: str) -> None:
    known = InstallationState(name="default", generation=2, observed_generation=2)
    installation = evolve(known, **changes)  # type: ignore[arg-type]
    state = evolve(WORKING, installations=(installation,), operator=OPERATOR)
    assert rows(judge(state, POOLS))[:2] == [
        ("operator", AVAILABLE, "op-1 acts"),
        ("Installation(default)", condition, detail),
    ]
    without = rows(judge(evolve(state, operator=OperatorState()), POOLS))
    assert without[0][1] is DEGRADED
    waits_for_operator = installation.generation > 2 or installation.is_being_deleted or not installation.conditions
    assert without[1] == ("Installation(default)", DEGRADED if waits_for_operator else condition, detail)


@pytest.mark.parametrize(
    "operator, condition, detail",
    [
        (
            OperatorState(),
            DEGRADED,
            f"{STOPPED}: apply operator.yaml, or install the chart netplug-operator; if it is there, scale it to 1",
        ),
        (
            evolve(OPERATOR, is_renewed=False),
            DEGRADED,
            f"{UNRENEWED}; see kubectl -n netplug-operator get pods",
        ),
        (
            evolve(OPERATOR, is_renewed=False, pods=(POD,), namespace="mine"),
            DEGRADED,
            f"{UNRENEWED}; see kubectl -n mine get pods",
        ),
        (OperatorState(pods=(POD,), namespace="mine"), PROGRESSING, "pod op-1: it does not act yet"),
        (
            OperatorState(pods=(evolve(POD, problem="netplug-operator: ErrImagePull of image x"),), namespace="mine"),
            DEGRADED,
            f"{STOPPED}: pod op-1: netplug-operator: ErrImagePull of image x; see kubectl -n mine describe pod op-1",
        ),
    ],
)
def test_an_operator_that_does_not_run(operator: OperatorState, condition: Condition, detail: str) -> None:
    installation = InstallationState(name="default", conditions=READY)
    state = evolve(WORKING, installations=(installation,), operator=operator)
    assert rows(judge(state, POOLS))[0] == ("operator", condition, detail)


@pytest.mark.parametrize(
    "installations, condition, detail",
    [
        ((), PROGRESSING, f"{NO_DAEMONSET}: the operator waits for an Installation; create one: kubectl apply -f FILE"),
        ((InstallationState(name="default"),), PROGRESSING, f"{NO_DAEMONSET} yet: the operator installs it"),
        (
            (InstallationState(name="default", conditions=READY),),
            AVAILABLE,
            f"{NO_DAEMONSET}; the Installation needs none",
        ),
    ],
)
def test_nothing_on_the_nodes_beside_an_operator(
    installations: tuple[InstallationState, ...], condition: Condition, detail: str
) -> None:
    state = ClusterState(operator=OperatorState(pods=(POD,)), installations=installations)
    found = rows(judge(state, PoolsFound()))
    assert found[-1] == ("DaemonSet", condition, detail)
    assert ("CRDs", PROGRESSING, "there are none yet; the operator brings them") in found


def test_a_conflict_names_fields_and_the_way_out() -> None:
    conflict = FieldConflict("DaemonSet a/b", '.spec.x: conflict with "kubectl"', "take them over")
    assert str(conflict) == '.spec.x: conflict with "kubectl"; take them over'
