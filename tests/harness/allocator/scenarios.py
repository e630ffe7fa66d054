"""The operations of an allocator as scenarios, to run each with every fault at every call to the store.

    for scenario in SCENARIOS:
        for fault in every_fault(scenario, make_harness):
            run_with_faults(scenario, make_harness, fault)

is exhaustive. ``every_fault`` runs the scenario's operation once without a fault and counts its calls. It yields each
fault at each call and, for commits, after each number of writes. ``run_with_faults`` runs the operation with one fault,
repeats it in a new process as a runtime does, runs an assignment of another workload, and removes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.datastore.protocol import Atomicity
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.release import OwnerChange
from netplug_core.ipam.allocation.request import (
    AssignRequest,
    Automatic,
    ReleaseItem,
    ReleaseRequest,
    Shortfall,
    Specific,
)
from netplug_core.ipam.model import host_owner
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, IPAMConfigurationSpec, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.node import Node, node_key
from tests.harness.allocator.client import CallFault, FaultKind
from tests.harness.allocator.collector import GRACE_PERIOD_S
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.operations import (
    NAMESPACE,
    AdvanceClock,
    ApplyResource,
    Assign,
    ChangeOwner,
    ClaimBlocks,
    ConfigureIPAM,
    DeletePod,
    DeleteResource,
    EnsureBlocks,
    Operation,
    Release,
    ReleaseAddresses,
    RelinquishNode,
    RelinquishPool,
    RunCollector,
    StoreOperation,
)
from tests.harness.allocator.strategies import SERVICE_HANDLE, make_pool, make_request
from tests.harness.allocator.teardown import tear_down

__all__ = [
    "CONCURRENT_OPERATIONS", "SCENARIOS", "FaultScenario", "MakeHarness", "every_fault", "prepare", "run_with_faults",
]  # fmt: skip

MakeHarness = Callable[[], AllocatorHarness]
"""Makes a harness over an empty store."""


@frozen(kw_only=True)
class FaultScenario:
    """The operations before, and the operation that runs with faults."""

    name: str
    setup: tuple[Operation, ...]
    operation: StoreOperation | RunCollector

    def __str__(self) -> str:
        return self.name


def prepare(scenario: FaultScenario, make_harness: MakeHarness) -> AllocatorHarness:
    """A harness after the operations that come before the scenario's own."""
    harness = make_harness()
    for operation in scenario.setup:
        harness.run(operation)
    return harness


def every_fault(scenario: FaultScenario, make_harness: MakeHarness) -> Iterator[CallFault]:
    """Each fault at each call of the operation and, for commits, after each number of writes."""
    harness = prepare(scenario, make_harness)
    atomicity = harness.store.description.atomicity
    for at, count in enumerate(harness.call(scenario.operation).writes, 1):
        yield from (
            CallFault(FaultKind.CONCURRENT_OPERATION, at, position) for position in range(len(CONCURRENT_OPERATIONS))
        )
        yield CallFault(FaultKind.LATE_REQUEST, at)
        if not count:
            yield from (
                CallFault(kind, at) for kind in (FaultKind.PROCESS_DEATH, FaultKind.LOST_REQUEST, FaultKind.LATE_REPLY)
            )
            continue
        before = range(1) if atomicity is Atomicity.ATOMIC else range(count)
        after = range(2) if atomicity is Atomicity.ATOMIC else range(count + 1)
        yield from (
            CallFault(kind, at, position)
            for kind in (FaultKind.LOST_RACE, FaultKind.LOST_REQUEST)
            for position in before
        )
        yield from (
            CallFault(kind, at, position)
            for kind in (FaultKind.PROCESS_DEATH, FaultKind.LOST_REPLY, FaultKind.LATE_REPLY)
            for position in after
        )


def run_with_faults(scenario: FaultScenario, make_harness: MakeHarness, *faults: CallFault) -> None:
    """Run the operation with faults, then without, check every invariant, and check that nothing is left at the end."""
    harness = prepare(scenario, make_harness)
    harness.run(scenario.operation, *(_with_concurrent_operation(harness, fault) for fault in faults))
    harness.run(scenario.operation)
    harness.run(_OTHER_ASSIGNMENT)
    tear_down(harness)


def _with_concurrent_operation(harness: AllocatorHarness, fault: CallFault) -> CallFault:
    """The fault, with the concurrent operation that its position chooses."""
    if fault.kind is not FaultKind.CONCURRENT_OPERATION:
        return fault
    concurrent = CONCURRENT_OPERATIONS[fault.position % len(CONCURRENT_OPERATIONS)]
    return evolve(fault, operation=lambda _writes: harness.run(concurrent))


# --- nodes, pools and requests ----------------------------------------------------------------------------------------

_NODE, _OTHER_NODE = "node-a", "node-b"
_P0 = Prefix.parse("10.0.0.0/28")


def _make_request(handle: str | None, v4: int = 1, v6: int = 0) -> AssignRequest:
    counts = zip(Family, (v4, v6), strict=True)
    return make_request(handle, *(Automatic(family=family, count=count) for family, count in counts if count))


def _assign(handle: str | None, v4: int = 1, v6: int = 0, *, shortfall: Shortfall = Shortfall.RETURN) -> Assign:
    return Assign(request=evolve(_make_request(handle, v4, v6), shortfall=shortfall))


def _assign_address(handle: str, address: str) -> Assign:
    return Assign(request=make_request(handle, Specific(address=Address.parse(address))))


def _release(handle: str) -> Release:
    return Release(request=ReleaseRequest(handle=handle))


def _claim(node: str, wanted: Prefix = _P0) -> ClaimBlocks:
    return ClaimBlocks(claimant=host_owner(node), prefix=wanted)


def _relinquish_node(node: str, emptiness: Emptiness = Emptiness.NOT_REQUIRED) -> RelinquishNode:
    return RelinquishNode(node=node, emptiness=emptiness)


def _release_items(*described: tuple[str, str | None]) -> ReleaseAddresses:
    return ReleaseAddresses(
        items=tuple(ReleaseItem(address=Address.parse(text), handle=handle) for text, handle in described)
    )


def _pool_selecting(selected: str) -> IPPool:
    usual = make_pool("p0")
    return evolve(usual, spec=evolve(usual.spec, node_selector=selected))


_OTHER_ASSIGNMENT = _assign("w1")
_POOLS: tuple[Operation, ...] = (ApplyResource(resource=make_pool("p0")), ApplyResource(resource=make_pool("s0")))
_STRICT = ConfigureIPAM(settings=IPAMConfigurationSpec(is_affinity_strict=True))
_ONE_BLOCK = ConfigureIPAM(settings=IPAMConfigurationSpec(is_affinity_strict=True, max_blocks_per_host=1))
_COOLDOWN = ConfigureIPAM(settings=IPAMConfigurationSpec(cooldown_s=5))
_AFTER_GRACE_PERIOD = AdvanceClock(seconds=GRACE_PERIOD_S + 1)
_LARGE = IPPool(metadata=Metadata(name="large"), spec=IPPoolSpec(prefix=Prefix.parse("10.0.4.0/26"), block_length=29))
_RELINQUISH_POOL = RelinquishPool(pool=_P0, emptiness=Emptiness.NOT_REQUIRED)
_REGISTERED = ApplyResource(resource=Node(metadata=Metadata(name=_NODE)))
_FIRST_ADDRESSES = (("10.0.0.0", None), ("10.0.0.4", None), ("10.0.0.8", None), ("10.0.0.12", None))
_LOAD_BALANCER_ASSIGNMENT = Assign(
    request=evolve(_make_request(SERVICE_HANDLE, 3), use=AllowedUse.LOAD_BALANCER, affine_to="virtual:load-balancer")
)
_HOST_RESERVED_ASSIGNMENT = Assign(request=evolve(_make_request("w0", 3), host_reserved=(1, 1)))
_LOAD_BALANCER_POOL = evolve(
    make_pool("p1"), spec=evolve(make_pool("p1").spec, allowed_uses=(AllowedUse.LOAD_BALANCER,))
)

CONCURRENT_OPERATIONS: tuple[StoreOperation | RunCollector, ...] = (
    _assign("w2", 2, 1),
    _assign("w1"),
    _release("w1"),
    _release("w2"),
    ApplyResource(resource=evolve(make_pool("p0"), spec=evolve(make_pool("p0").spec, is_disabled=True))),
    DeleteResource(key=ippool_key("p0")),
    _relinquish_node(_NODE),
    _relinquish_node(_OTHER_NODE),
    RelinquishPool(pool=_P0, emptiness=Emptiness.REQUIRED),
    _STRICT,
    RunCollector(),
    _release("w0"),
)
"""Operations of other clients, run between two calls; the last one releases the scenario's own handle."""


# --- the scenarios ----------------------------------------------------------------------------------------------------


def _scenario(name: str, *operations: StoreOperation | RunCollector | AdvanceClock) -> FaultScenario:
    """A scenario over two pools; the last operation runs with faults."""
    *before, operation = operations
    if isinstance(operation, AdvanceClock):
        raise AssertionError(f"{name}: an AdvanceClock makes no calls")
    return FaultScenario(name=name, setup=(*_POOLS, *before), operation=operation)


_FULL_POOL = (_assign("w2", 10), _assign("w3", 6))
_UNOWNED_BLOCKS = (_STRICT, *_FULL_POOL, _relinquish_node(_OTHER_NODE))
_MANY_ADDRESSES = ReleaseAddresses(items=tuple(ReleaseItem(address=_LARGE.spec.prefix.nth(n)) for n in range(64)))
_OWNER_CHANGE = OwnerChange(
    address=Address.parse("10.0.0.0"), handle="w0", owner=(("mark", "x"), ("namespace", NAMESPACE), ("pod", "w0"))
)

_ASSIGNING = (
    _scenario("the first address of a node", _assign("w0")),
    _scenario("the first addresses of both families", _assign("w0", 1, 1)),
    _scenario("an address of a block with room", _assign("w1", 1, 1), _assign("w0")),
    _scenario("addresses of both families of blocks with room", _assign("w1", 1, 1), _assign("w0", 1, 1)),
    _scenario("more addresses for a handle that has some", _assign("w0", 1, 1), _assign("w0", 2, 1)),
    _scenario("addresses of several blocks", _assign("w1"), _assign("w0", 7, 3)),
    _scenario("addresses without a handle", _assign(None, 6)),
    _scenario("borrowed addresses", _claim(_OTHER_NODE), _assign("w2"), _assign("w0", 2, 1)),
    _scenario("addresses of a block that is taken over", _claim(_OTHER_NODE), _AFTER_GRACE_PERIOD, _assign("w0", 2)),
    _scenario(
        "addresses of a block without an owner", *_UNOWNED_BLOCKS, _release_items(*_FIRST_ADDRESSES), _assign("w0", 2)
    ),
    _scenario("one address in a new block", _assign_address("w0", "10.0.0.9")),
    _scenario("one address in another node's block", _claim(_OTHER_NODE), _assign_address("w0", "10.0.0.9")),
    _scenario(
        "one address in a block without an owner",
        *(_STRICT, _assign_address("w2", "10.0.0.8"), _relinquish_node(_OTHER_NODE)),
        _assign_address("w0", "10.0.0.9"),
    ),
    _scenario(
        "an address after a pool ceased to select the node",
        *(
            _claim(_NODE),
            ApplyResource(resource=make_pool("p1")),
            ApplyResource(resource=_pool_selecting("zone == 'a'")),
        ),
        _assign("w0"),
    ),
    _scenario("the last block of a limit", _ONE_BLOCK, _assign("w0", 2)),
    _scenario("more than there is, refused", _assign("w2", 15), _assign("w0", 2, 1, shortfall=Shortfall.REFUSE)),
    _scenario("more than there is, returned", _assign("w2", 15), _assign("w0", 2, 1)),
    _scenario("addresses of a load balancer", ApplyResource(resource=_LOAD_BALANCER_POOL), _LOAD_BALANCER_ASSIGNMENT),
    _scenario("addresses beside host-reserved ones", _HOST_RESERVED_ASSIGNMENT),
)
_RELEASING = (
    _scenario("a release", _assign("w0", 1, 1), _release("w0")),
    _scenario("a release of several blocks", _assign("w1"), _assign("w0", 7, 3), _release("w0")),
    _scenario("a release into the cooldown", _COOLDOWN, _assign("w0", 5, 1), _release("w0")),
    _scenario("a release of borrowed addresses", _claim(_OTHER_NODE), _assign("w0", 2), _release("w0")),
    _scenario(
        "a release of the last address of a block without an owner",
        _assign("w0", 5),
        _relinquish_node(_NODE),
        _release("w0"),
    ),
    _scenario(
        "a release address by address",
        *(_assign_address("w0", "10.0.0.0"), _assign_address("w1", "10.0.0.4"), _assign_address("w2", "10.0.0.8")),
        _release_items(("10.0.0.0", "w0"), ("10.0.0.4", None), ("10.0.0.8", "w1")),
    ),
    _scenario(
        "a release of more addresses than a commit takes",
        *(ApplyResource(resource=_LARGE), DeleteResource(key=ippool_key("p0")), _assign("w0", 40)),
        _MANY_ADDRESSES,
    ),
    _scenario("a change of owner", _assign_address("w0", "10.0.0.0"), ChangeOwner(change=_OWNER_CHANGE)),
)
_CLAIMING = (
    _scenario("a claim of a prefix", _claim(_NODE)),
    _scenario(
        "a claim of a prefix in which others have blocks",
        *(_assign("w2", 5), _assign("w3", 5), _relinquish_node(_OTHER_NODE), _assign("w3", 6)),
        _claim(_NODE),
    ),
    _scenario("a node ensures its blocks", EnsureBlocks(request=_make_request("w0", 1, 1))),
    _scenario(
        "affinities to empty blocks are relinquished", _claim(_NODE), _relinquish_node(_NODE, Emptiness.REQUIRED)
    ),
    _scenario("affinities to blocks in use are relinquished", _assign("w0", 7, 1), _relinquish_node(_NODE)),
    _scenario("affinities in a pool are relinquished", _assign("w0", 3), _assign("w2", 3), _RELINQUISH_POOL),
    _scenario("a node is removed", _REGISTERED, _assign("w0", 7, 1), DeleteResource(key=node_key(_NODE))),
    _scenario("a pool is removed", _assign("w0", 3), _assign("w2", 5), DeleteResource(key=ippool_key("p0"))),
)
_COLLECTING = (
    _scenario(
        "the collector frees the addresses of a deleted pod",
        *(_assign("w0", 7, 1), _assign("w1"), DeletePod(handle="w0"), RunCollector(), _AFTER_GRACE_PERIOD),
        RunCollector(),
    ),
    _scenario(
        "the collector frees what a deleted node held",
        *(_assign("w0", 5, 1), _assign("w2", 1), DeleteResource(key=node_key(_NODE))),
        RunCollector(),
    ),
    _scenario(
        "the collector frees addresses after their cooldown",
        *(_COOLDOWN, _assign("w0", 5), _release("w0"), AdvanceClock(seconds=10)),
        RunCollector(),
    ),
    _scenario(
        "the collector relinquishes spare blocks", _claim(_NODE), RunCollector(), _AFTER_GRACE_PERIOD, RunCollector()
    ),
)

SCENARIOS: tuple[FaultScenario, ...] = (*_ASSIGNING, *_RELEASING, *_CLAIMING, *_COLLECTING)
"""All scenarios."""
