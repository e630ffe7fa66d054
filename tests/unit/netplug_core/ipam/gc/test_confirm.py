"""The second witness: a view alone frees nothing."""

from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.gc.candidates import AllocationOwner, LeakReason
from netplug_core.ipam.gc.confirm import confirm, lookups_needed
from netplug_core.ipam.gc.lookup import LookupResult
from netplug_core.ipam.gc.model import AllocationRef, FreeCondition, FreeHandle, Leak
from netplug_core.orchestrator.model import PodFacts, PodName

WEB, DB = PodName("default", "web"), PodName("default", "db")
BLOCK = Prefix.parse("10.0.0.0/29")


def leak(n: int, pod: str = "web", basis: FreeCondition = FreeCondition.GRACE) -> Leak:
    holding = AllocationOwner(
        address=BLOCK.nth(n), block=BLOCK, handle="h", sequence=7, node="node-a", pod=pod, namespace="default"
    )
    return Leak(owner=holding, reason=LeakReason.POD_MISSING, condition=basis)


def tunnel(basis: FreeCondition = FreeCondition.NODE_GONE) -> Leak:
    holding = evolve(leak(5).owner, pod="", namespace="", type="ipipTunnelAddress")
    return Leak(owner=holding, reason=LeakReason.NODE_GONE, condition=basis)


def handle(*leaks: Leak) -> FreeHandle:
    return FreeHandle(handle="h", leaks=leaks)


def statement(
    *pods: PodFacts, gone: frozenset[str] = frozenset(), unanswered: dict[PodName | str, str] | None = None
) -> LookupResult:
    return LookupResult(pods={pod.pod_name: pod for pod in pods}, gone=gone, unanswered=unanswered or {})


def running(*addresses: Address, name: str = "web") -> PodFacts:
    return PodFacts(uid="", namespace="default", name=name, node="node-a", addresses=addresses)


def test_each_pod_and_node_is_asked_about_once() -> None:
    actions = (
        handle(leak(1), leak(2)),
        handle(leak(3, "db", FreeCondition.NODE_GONE)),
        handle(tunnel(FreeCondition.GRACE)),
    )
    assert lookups_needed(actions) == (WEB, DB, "node-a")
    assert lookups_needed((handle(leak(1)),)) == (WEB,)  # what waited needs no word about its node


def test_what_the_witness_misses_too_is_a_leak() -> None:
    found = confirm((handle(leak(1), leak(2)),), statement())
    assert found.leaks == (handle(leak(1), leak(2)),)
    assert (found.in_use, found.cleared, found.undetermined) == ((), (), ())


def test_the_reason_is_the_witnesss() -> None:
    other = running(BLOCK.nth(6))
    (action,) = confirm((handle(leak(1)),), statement(other)).leaks
    assert [found.reason for found in action.leaks] == [LeakReason.POD_DIFFERS]


def test_one_address_in_use_keeps_the_whole_handle() -> None:
    found = confirm((handle(leak(1), leak(2)),), statement(running(BLOCK.nth(2))))
    assert (found.leaks, found.in_use) == ((), (handle(leak(1), leak(2)),))
    assert found.cleared == (AllocationRef(BLOCK.nth(2), "h", 7),)


def test_a_node_that_is_there_after_all_leaves_its_pods_their_time() -> None:
    action = handle(leak(1, basis=FreeCondition.NODE_GONE))
    found = confirm((action,), statement())
    assert (found.leaks, found.in_use, found.cleared) == ((), (action,), ())
    assert confirm((action,), statement(gone=frozenset({"node-a"}))).leaks == (action,)


def test_a_tunnel_needs_the_word_that_its_node_is_gone() -> None:
    for basis in FreeCondition:
        action = handle(tunnel(basis))
        assert confirm((action,), statement(gone=frozenset({"node-a"}))).leaks == (action,)
        assert confirm((action,), statement()).cleared == (AllocationRef(BLOCK.nth(5), "h", 7),)


def test_nothing_is_freed_on_doubt() -> None:
    actions = (handle(leak(1), leak(2, "db")), handle(leak(3)))
    found = confirm(actions, statement(unanswered={DB: "forbidden"}))
    assert found.leaks == (handle(leak(3)),)
    (failure,) = found.undetermined
    assert str(failure) == (
        "could not free the addresses of handle h: "
        "10.0.0.1 of pod default/web on node node-a (its pod does not exist); "
        "10.0.0.2 of pod default/db on node node-a (its pod does not exist): "
        "pod default/db could not be looked up: forbidden"
    )
