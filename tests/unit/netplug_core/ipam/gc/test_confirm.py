"""Leaks of a view, compared with live lookups."""

from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.gc.candidates import (
    AllocationOwner,
    AllocationRef,
    FreeCondition,
    FreeHandle,
    Leak,
    LeakReason,
    LookupResult,
)
from netplug_core.ipam.gc.reclaim import confirm, lookups_needed
from netplug_core.orchestrator.model import PodFacts, PodName

WEB, DB = PodName("default", "web"), PodName("default", "db")
BLOCK = Prefix.parse("10.0.0.0/29")


def leak(n: int, pod: str = "web", condition: FreeCondition = FreeCondition.GRACE) -> Leak:
    owner = AllocationOwner(
        address=BLOCK.nth(n), block=BLOCK, handle="h", sequence=7, node="node-a", pod=pod, namespace="default"
    )
    return Leak(owner=owner, reason=LeakReason.POD_MISSING, condition=condition)


def tunnel(condition: FreeCondition = FreeCondition.NODE_GONE) -> Leak:
    owner = evolve(leak(5).owner, pod="", namespace="", type="ipipTunnelAddress")
    return Leak(owner=owner, reason=LeakReason.NODE_GONE, condition=condition)


def handle(*leaks: Leak) -> FreeHandle:
    return FreeHandle(handle="h", leaks=leaks)


def lookups(
    *pods: PodFacts, gone: frozenset[str] = frozenset(), unanswered: dict[PodName | str, str] | None = None
) -> LookupResult:
    return LookupResult(pods={pod.pod_name: pod for pod in pods}, gone=gone, unanswered=unanswered or {})


def running(*addresses: Address, name: str = "web") -> PodFacts:
    return PodFacts(uid="", namespace="default", name=name, node="node-a", addresses=addresses)


def test_each_pod_and_node_is_looked_up_once() -> None:
    actions = (
        handle(leak(1), leak(2)),
        handle(leak(3, "db", FreeCondition.NODE_GONE)),
        handle(tunnel(FreeCondition.GRACE)),
    )
    assert lookups_needed(actions) == (WEB, DB, "node-a")
    assert lookups_needed((handle(leak(1)),)) == (WEB,)  # after the grace period the node need not be looked up


def test_a_pod_that_the_lookup_does_not_find_either_is_confirmed() -> None:
    found = confirm((handle(leak(1), leak(2)),), lookups())
    assert found.leaks == (handle(leak(1), leak(2)),)
    assert (found.in_use, found.cleared, found.undetermined) == ((), (), ())


def test_the_reason_is_that_of_the_lookup() -> None:
    other = running(BLOCK.nth(6))
    (action,) = confirm((handle(leak(1)),), lookups(other)).leaks
    assert [found.reason for found in action.leaks] == [LeakReason.POD_DIFFERS]


def test_one_address_in_use_keeps_the_whole_handle() -> None:
    found = confirm((handle(leak(1), leak(2)),), lookups(running(BLOCK.nth(2))))
    assert (found.leaks, found.in_use) == ((), (handle(leak(1), leak(2)),))
    assert found.cleared == (AllocationRef(BLOCK.nth(2), "h", 7),)


def test_pods_of_a_node_that_exists_after_all_stay_candidates() -> None:
    action = handle(leak(1, condition=FreeCondition.NODE_GONE))
    found = confirm((action,), lookups())
    assert (found.leaks, found.in_use, found.cleared) == ((), (action,), ())
    assert confirm((action,), lookups(gone=frozenset({"node-a"}))).leaks == (action,)


def test_a_tunnel_address_needs_a_lookup_of_its_node() -> None:
    for condition in FreeCondition:
        action = handle(tunnel(condition))
        assert confirm((action,), lookups(gone=frozenset({"node-a"}))).leaks == (action,)
        assert confirm((action,), lookups()).cleared == (AllocationRef(BLOCK.nth(5), "h", 7),)


def test_a_handle_with_a_failed_lookup_is_undetermined() -> None:
    actions = (handle(leak(1), leak(2, "db")), handle(leak(3)))
    found = confirm(actions, lookups(unanswered={DB: "forbidden"}))
    assert found.leaks == (handle(leak(3)),)
    (failure,) = found.undetermined
    assert str(failure) == (
        "could not free the addresses of handle h: "
        "10.0.0.1 of pod default/web on node node-a (its pod does not exist); "
        "10.0.0.2 of pod default/db on node node-a (its pod does not exist): "
        "pod default/db could not be looked up: forbidden"
    )
