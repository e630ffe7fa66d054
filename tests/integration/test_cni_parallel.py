"""Many calls of one node at once: each address has one owner, and nothing is left behind.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode

pytestmark = pytest.mark.netns


def both(runtime: CNIRuntime, **changes: object) -> NetConfDict:
    """A configuration for both families."""
    return runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv6": "true"}, **changes)


@pytest.mark.parametrize("calls, has_lock", [(20, True), (6, False)], ids=["host-lock", "no-lock"])
def test_many_at_once(node: NetnsNode, runtime: CNIRuntime, calls: int, *, has_lock: bool) -> None:
    """Check 102: as many distinct addresses and endpoints; as many DELs at once leave nothing and a free block.

    The host's lock only saves work: without it the store alone keeps the calls apart.
    """
    before, pods = node.leftovers(), node.make_pods(calls)
    conf = both(runtime, ipam_lock_file=None if has_lock else f"{node.write_file('plain', '')}/lock")
    with ThreadPoolExecutor(calls) as pool:
        replies = list(pool.map(lambda pod: runtime.add(conf, pod), pods))

    given = [address for reply in replies for address in reply.addresses]
    assert len(set(given)) == len(given) == 2 * calls
    held = {f"net1.{pod.name}": reply.addresses for pod, reply in zip(pods, replies, strict=True)}
    assert node.store.held() == held
    assert len(node.store.endpoints()) == calls
    assert len([name for name in node.links() if name.startswith("netp")]) == calls
    assert all(node.can_ping(address) for reply in replies[::7] for address in reply.addresses)

    with ThreadPoolExecutor(calls) as pool:
        list(pool.map(lambda pod: runtime.delete(conf, pod), pods))
    assert node.store.is_empty
    assert all(block.is_empty for block in node.store.blocks())
    assert len(node.store.blocks()) == 2
    assert node.leftovers() == before


def test_the_last_address_has_one_owner(node: NetnsNode, runtime: CNIRuntime) -> None:
    """More calls than addresses: as many succeed as there are, and every loser is told that the pool is full."""
    node.store.add_pool("tiny", "10.66.0.0/30")
    pods = node.make_pods(7)
    conf = runtime.make_netconf(ipam={"type": "netplug-ipam", "ipv4_pools": ["tiny"]})
    with ThreadPoolExecutor(len(pods)) as pool:
        replies = list(pool.map(lambda pod: runtime.call("ADD", conf, pod), pods))

    winners = [reply for reply in replies if reply.status == 0]
    assert len({reply.addresses for reply in winners}) == len(winners) == 4
    assert {reply.code for reply in replies if reply.status} == {105}
    assert len(node.store.held()) == len(node.store.endpoints()) == 4
    assert len([name for name in node.links() if name.startswith("netp")]) == 4
