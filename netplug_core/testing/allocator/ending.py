"""The end of everything: workloads leave or are found dead, nodes go, and nothing may be left in the store.

It shows that what crashes left behind was reachable all the time: by a release, by giving up a node, by the collector.
"""

from __future__ import annotations

from netplug_core.ipam.affinity import claiming_owner, owner_node
from netplug_core.ipam.relinquish import Emptiness
from netplug_core.ipam.request import ReleaseItem, ReleaseRequest
from netplug_core.testing.allocator.acts import (
    Collect,
    Forget,
    Pause,
    Release,
    ReleaseAddresses,
    Relinquish,
    RelinquishNode,
    SetReady,
)
from netplug_core.testing.allocator.bench import GRACE_S, AllocatorBench
from netplug_core.testing.allocator.laws import handles_are_exact
from netplug_core.testing.bench import expect_same

__all__ = ["wind_up"]


def wind_up(bench: AllocatorBench) -> None:
    """End every workload and every node, and hold the empty store against the laws."""
    bench.do(SetReady(is_ready=True))
    _release_what_no_orchestrator_knows(bench)
    _give_up_what_no_node_has(bench)
    _lose_pods(bench)
    _lose_nodes(bench)
    stored = bench.look()
    expect_same(dict(stored.handles), {}, "V5: the handles that are left")
    expect_same(dict(stored.claims), {}, "V6: the claims that are left")
    expect_same(dict(stored.blocks), {}, "V7: the blocks that are left")


def _release_what_no_orchestrator_knows(bench: AllocatorBench) -> None:
    """Those who hold addresses for other things than pods are asked to give them back: nobody else can know."""
    stored = bench.look()
    others = {held.attribute.handle for held in stored.held.values() if not held.attribute.owner_value("pod")}
    for handle in sorted(handle for handle in others if handle is not None):
        bench.do(Release(request=ReleaseRequest(handle=handle)))
    left = bench.look().held
    items = tuple(ReleaseItem(address=a) for a, held in left.items() if not held.attribute.owner_value("pod"))
    if items:
        bench.do(ReleaseAddresses(items=items))


def _give_up_what_no_node_has(bench: AllocatorBench) -> None:
    """The claims of load balancers and the like."""
    claims = tuple(key for key in bench.look().claims if not owner_node(claiming_owner(key)))
    bench.do(Relinquish(claims=claims, emptiness=Emptiness.NOT_REQUIRED))


def _lose_pods(bench: AllocatorBench) -> None:
    """V18: what dead pods held is free after the grace period and two ticks, and what handles count is right soon."""
    for handle in sorted(bench.ledger.pods):
        bench.do(Forget(handle=handle))
    _tick(bench)
    bench.do(Collect())
    expect_same(dict(bench.look().held), {}, "V18: what nobody has freed of dead pods")
    _tick(bench)
    bench.do(Collect())
    handles_are_exact(bench.look())


def _lose_nodes(bench: AllocatorBench) -> None:
    """One node is removed in order, of the others the collector finds out; then what cools down is waited for."""
    nodes = sorted({owner_node(claiming_owner(key)) for key in bench.look().claims})
    for node in nodes[:1]:
        bench.do(RelinquishNode(node=node, emptiness=Emptiness.NOT_REQUIRED))
    for node in (*nodes, *bench.ledger.nodes):
        bench.ledger.lose_node(node)
    _tick(bench)
    _tick(bench)
    bench.do(Collect())


def _tick(bench: AllocatorBench) -> None:
    """The collector looks round, and loses patience."""
    bench.do(Collect())
    bench.do(Pause(seconds=GRACE_S + 1))
