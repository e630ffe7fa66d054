"""Everything an allocator does, as scenarios in each of which every call to the store can be made to go wrong.

    for scenario in SCENARIOS:
        for mishap in every_mishap(scenario, arrange):
            suffer(scenario, mishap, arrange)

is exhaustive: ``every_mishap`` does the scenario's act undisturbed once and counts what it sends; what it yields is
each mishap at each call and, for commits, after each number of writes. ``suffer`` lets one happen, has the same done
once more by a new process, as a runtime does, lets somebody else go on beside it, and takes everything down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.datastore.interface import Atomicity
from netplug_core.ipam.affinity import host_owner
from netplug_core.ipam.owners import OwnerChange
from netplug_core.ipam.relinquish import Emptiness
from netplug_core.ipam.request import AssignRequest, Automatic, ReleaseItem, ReleaseRequest, Shortfall, Specific
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec
from netplug_core.resources.ippool import AllowedUse, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.allocator.acts import (
    NAMESPACE,
    Act,
    Apply,
    Assign,
    ChangeOwner,
    Claim,
    Collect,
    Configure,
    Ensure,
    Forget,
    Pause,
    Release,
    ReleaseAddresses,
    RelinquishNode,
    RelinquishPool,
    Remove,
    StoreAct,
)
from netplug_core.testing.allocator.bench import GRACE_S, AllocatorBench
from netplug_core.testing.allocator.draws import SERVICE, asked_by, pool
from netplug_core.testing.allocator.ending import wind_up
from netplug_core.testing.allocator.line import Mishap, Sort

__all__ = ["RIVALS", "SCENARIOS", "Arrange", "Scenario", "arranged", "every_mishap", "suffer"]

Arrange = Callable[[], AllocatorBench]
"""Makes a bench over an empty store."""


@frozen(kw_only=True)
class Scenario:
    """What has happened before, and the act that is about to be disturbed."""

    name: str
    before: tuple[Act, ...]
    act: StoreAct | Collect

    def __str__(self) -> str:
        return self.name


def arranged(scenario: Scenario, arrange: Arrange) -> AllocatorBench:
    """A bench in which everything has happened but the act itself."""
    bench = arrange()
    for act in scenario.before:
        bench.do(act)
    return bench


def every_mishap(scenario: Scenario, arrange: Arrange) -> Iterator[Mishap]:
    """Each mishap at each call that the act makes when nothing disturbs it, and after each number of writes."""
    bench = arranged(scenario, arrange)
    atomicity = bench.store.description.atomicity
    for at, count in enumerate(bench.call(scenario.act).writes, 1):
        yield from (Mishap(Sort.RIVAL, at, position) for position in range(len(RIVALS)))
        yield Mishap(Sort.STALL, at)
        if not count:
            yield from (Mishap(sort, at) for sort in (Sort.DEATH, Sort.REQUEST, Sort.LATE))
            continue
        before = range(1) if atomicity is Atomicity.ATOMIC else range(count)
        after = range(2) if atomicity is Atomicity.ATOMIC else range(count + 1)
        yield from (Mishap(sort, at, position) for sort in (Sort.RACE, Sort.REQUEST) for position in before)
        yield from (Mishap(sort, at, position) for sort in (Sort.DEATH, Sort.REPLY, Sort.LATE) for position in after)


def suffer(scenario: Scenario, arrange: Arrange, *mishaps: Mishap) -> None:
    """Let the act suffer, and hold everything that follows against the laws; at the end nothing may be left."""
    bench = arranged(scenario, arrange)
    bench.do(scenario.act, *(_with_rival(bench, mishap) for mishap in mishaps))
    bench.do(scenario.act)
    bench.do(_NEIGHBOUR)
    wind_up(bench)


def _with_rival(bench: AllocatorBench, mishap: Mishap) -> Mishap:
    """The mishap with the rival that its position stands for."""
    if mishap.sort is not Sort.RIVAL:
        return mishap
    rival = RIVALS[mishap.position % len(RIVALS)]
    return evolve(mishap, act=lambda: bench.do(rival))


# --- who is about and what they want ----------------------------------------------------------------------------------

_NODE, _OTHER_NODE = "node-a", "node-b"
_P0 = Prefix.parse("10.0.0.0/28")


def _asking(handle: str | None, v4: int = 1, v6: int = 0) -> AssignRequest:
    counts = zip(Family, (v4, v6), strict=True)
    return asked_by(handle, *(Automatic(family=family, count=count) for family, count in counts if count))


def _assign(handle: str | None, v4: int = 1, v6: int = 0, *, shortfall: Shortfall = Shortfall.RETURN) -> Assign:
    return Assign(request=evolve(_asking(handle, v4, v6), shortfall=shortfall))


def _take(handle: str, address: str) -> Assign:
    return Assign(request=asked_by(handle, Specific(address=Address.parse(address))))


def _release(handle: str) -> Release:
    return Release(request=ReleaseRequest(handle=handle))


def _claim(node: str, wanted: Prefix = _P0) -> Claim:
    return Claim(claimant=host_owner(node), wanted=wanted)


def _leave(node: str, emptiness: Emptiness = Emptiness.NOT_REQUIRED) -> RelinquishNode:
    return RelinquishNode(node=node, emptiness=emptiness)


def _items(*described: tuple[str, str | None]) -> ReleaseAddresses:
    return ReleaseAddresses(
        items=tuple(ReleaseItem(address=Address.parse(text), handle=handle) for text, handle in described)
    )


def _only(selected: str) -> IPPool:
    usual = pool("p0")
    return evolve(usual, spec=evolve(usual.spec, node_selector=selected))


_NEIGHBOUR = _assign("w1")
_POOLS: tuple[Act, ...] = (Apply(resource=pool("p0")), Apply(resource=pool("s0")))
_STRICT = Configure(settings=IPAMConfigurationSpec(is_affinity_strict=True))
_ONE_BLOCK = Configure(settings=IPAMConfigurationSpec(is_affinity_strict=True, max_blocks=1))
_COOLDOWN = Configure(settings=IPAMConfigurationSpec(cooldown_s=5))
_LATER = Pause(seconds=GRACE_S + 1)
_LARGE = IPPool(metadata=Metadata(name="large"), spec=IPPoolSpec(prefix=Prefix.parse("10.0.4.0/26"), block_length=29))
_CLEAR = RelinquishPool(pool=_P0, emptiness=Emptiness.NOT_REQUIRED)
_REGISTERED = Apply(resource=Node(metadata=Metadata(name=_NODE)))
_EDGES = (("10.0.0.0", None), ("10.0.0.4", None), ("10.0.0.8", None), ("10.0.0.12", None))
_BALANCING = Assign(
    request=evolve(_asking(SERVICE, 3), use=AllowedUse.LOAD_BALANCER, affine_to="virtual:load-balancer")
)
_KEEPING_BACK = Assign(request=evolve(_asking("w0", 3), kept_back=(1, 1)))
_BALANCED = evolve(pool("p1"), spec=evolve(pool("p1").spec, allowed_uses=(AllowedUse.LOAD_BALANCER,)))

RIVALS: tuple[StoreAct | Collect, ...] = (
    _assign("w2", 2, 1),
    _assign("w1"),
    _release("w1"),
    _release("w2"),
    Apply(resource=evolve(pool("p0"), spec=evolve(pool("p0").spec, is_disabled=True))),
    Remove(key=ippool_key("p0")),
    _leave(_NODE),
    _leave(_OTHER_NODE),
    RelinquishPool(pool=_P0, emptiness=Emptiness.REQUIRED),
    _STRICT,
    Collect(),
    _release("w0"),
)
"""What somebody else may do, from beginning to end, between two calls of the act; the last one overtakes the act."""


# --- the scenarios ----------------------------------------------------------------------------------------------------


def _scenario(name: str, *acts: StoreAct | Collect | Pause) -> Scenario:
    """Over two pools, the last act is the one that is disturbed."""
    *before, act = acts
    if isinstance(act, Pause):
        raise AssertionError(f"{name}: nothing can happen to a pause")
    return Scenario(name=name, before=(*_POOLS, *before), act=act)


_FULL = (_assign("w2", 10), _assign("w3", 6))
_LEFT = (_STRICT, *_FULL, _leave(_OTHER_NODE))
_MANY = ReleaseAddresses(items=tuple(ReleaseItem(address=_LARGE.spec.prefix.nth(n)) for n in range(64)))
_MARKED = OwnerChange(
    address=Address.parse("10.0.0.0"), handle="w0", owner=(("mark", "x"), ("namespace", NAMESPACE), ("pod", "w0"))
)

_ASSIGNING = (
    _scenario("the first address of a node", _assign("w0")),
    _scenario("the first addresses of both families", _assign("w0", 1, 1)),
    _scenario("an address of a block with room", _assign("w1", 1, 1), _assign("w0")),
    _scenario("addresses of both families of blocks with room", _assign("w1", 1, 1), _assign("w0", 1, 1)),
    _scenario("more addresses for who has some", _assign("w0", 1, 1), _assign("w0", 2, 1)),
    _scenario("addresses of several blocks", _assign("w1"), _assign("w0", 7, 3)),
    _scenario("addresses without a handle", _assign(None, 6)),
    _scenario("borrowed addresses", _claim(_OTHER_NODE), _assign("w2"), _assign("w0", 2, 1)),
    _scenario("addresses of a block that is taken over", _claim(_OTHER_NODE), _LATER, _assign("w0", 2)),
    _scenario("addresses of a block that nobody owns", *_LEFT, _items(*_EDGES), _assign("w0", 2)),
    _scenario("one address in a new block", _take("w0", "10.0.0.9")),
    _scenario("one address in another's block", _claim(_OTHER_NODE), _take("w0", "10.0.0.9")),
    _scenario(
        "one address in nobody's block",
        *(_STRICT, _take("w2", "10.0.0.8"), _leave(_OTHER_NODE)),
        _take("w0", "10.0.0.9"),
    ),
    _scenario(
        "an address when a pool does not select the node any more",
        *(_claim(_NODE), Apply(resource=pool("p1")), Apply(resource=_only("zone == 'a'"))),
        _assign("w0"),
    ),
    _scenario("the last block of a limit", _ONE_BLOCK, _assign("w0", 2)),
    _scenario("more than there is, refused", _assign("w2", 15), _assign("w0", 2, 1, shortfall=Shortfall.REFUSE)),
    _scenario("more than there is, returned", _assign("w2", 15), _assign("w0", 2, 1)),
    _scenario("addresses of a load balancer", Apply(resource=_BALANCED), _BALANCING),
    _scenario("addresses beside those that a host keeps back", _KEEPING_BACK),
)
_RELEASING = (
    _scenario("a release", _assign("w0", 1, 1), _release("w0")),
    _scenario("a release of several blocks", _assign("w1"), _assign("w0", 7, 3), _release("w0")),
    _scenario("a release into the cooldown", _COOLDOWN, _assign("w0", 5, 1), _release("w0")),
    _scenario("a release of what was borrowed", _claim(_OTHER_NODE), _assign("w0", 2), _release("w0")),
    _scenario("a release of the last address of nobody's block", _assign("w0", 5), _leave(_NODE), _release("w0")),
    _scenario(
        "a release address by address",
        *(_take("w0", "10.0.0.0"), _take("w1", "10.0.0.4"), _take("w2", "10.0.0.8")),
        _items(("10.0.0.0", "w0"), ("10.0.0.4", None), ("10.0.0.8", "w1")),
    ),
    _scenario(
        "a release of more addresses than a commit takes",
        *(Apply(resource=_LARGE), Remove(key=ippool_key("p0")), _assign("w0", 40)),
        _MANY,
    ),
    _scenario("a change of owner", _take("w0", "10.0.0.0"), ChangeOwner(change=_MARKED)),
)
_CLAIMING = (
    _scenario("a claim of a range", _claim(_NODE)),
    _scenario(
        "a claim of a range in which others are",
        *(_assign("w2", 5), _assign("w3", 5), _leave(_OTHER_NODE), _assign("w3", 6)),
        _claim(_NODE),
    ),
    _scenario("a node makes sure of its blocks", Ensure(request=_asking("w0", 1, 1))),
    _scenario("claims on empty blocks are given up", _claim(_NODE), _leave(_NODE, Emptiness.REQUIRED)),
    _scenario("claims on blocks in use are given up", _assign("w0", 7, 1), _leave(_NODE)),
    _scenario("claims in a pool are given up", _assign("w0", 3), _assign("w2", 3), _CLEAR),
    _scenario("a node is removed", _REGISTERED, _assign("w0", 7, 1), Remove(key=node_key(_NODE))),
    _scenario("a pool is removed", _assign("w0", 3), _assign("w2", 5), Remove(key=ippool_key("p0"))),
)
_COLLECTING = (
    _scenario(
        "the collector frees what a dead pod held",
        *(_assign("w0", 7, 1), _assign("w1"), Forget(handle="w0"), Collect(), _LATER),
        Collect(),
    ),
    _scenario(
        "the collector clears up after a gone node",
        *(_assign("w0", 5, 1), _assign("w2", 1), Remove(key=node_key(_NODE))),
        Collect(),
    ),
    _scenario(
        "the collector frees what has cooled down",
        *(_COOLDOWN, _assign("w0", 5), _release("w0"), Pause(seconds=10)),
        Collect(),
    ),
    _scenario("the collector gives up spare blocks", _claim(_NODE), Collect(), _LATER, Collect()),
)

SCENARIOS: tuple[Scenario, ...] = (*_ASSIGNING, *_RELEASING, *_CLAIMING, *_COLLECTING)
"""All of them."""
