"""The addresses of a node's tunnels: assigned once, whoever dies in between, and never taken from anybody."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Pace
from netplug_core.errors import Unavailable
from netplug_core.flows.node import settle_tunnel_address
from netplug_core.ipam.allocation.request import AssignRequest, Specific
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.reconcile.tunnels import TunnelAddress, with_tunnel_address
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, Encapsulation
from netplug_core.resources.node import node_key
from netplug_core.testing.faults import (
    Fault,
    FaultyDatastore,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
    RunBefore,
)
from tests.harness.network import NetworkHarness
from tests.harness.routes import make_node, make_pool

V4, V6, IPIP = TunnelAddress.VXLAN, TunnelAddress.VXLAN_V6, TunnelAddress.IPIP
NODE = make_node("a", "192.0.2.1/24", "fd24::1/64")
POOLS = {
    V4: make_pool("10.0.0.0/16", vxlan=Encapsulation.ALWAYS),
    V6: make_pool("fd65::/64", vxlan=Encapsulation.ALWAYS),
    IPIP: make_pool("10.1.0.0/16", ipip=Encapsulation.ALWAYS),
}

of_every_sort = pytest.mark.parametrize("sort", TunnelAddress, ids=lambda sort: sort.name)


def harness_with_pool(sort: TunnelAddress) -> NetworkHarness:
    harness = NetworkHarness()
    harness.put_node(NODE)
    harness.put_pool(POOLS[sort])
    return harness


def settle(harness: NetworkHarness, sort: TunnelAddress, faults: Mapping[int, Fault] = {}) -> bool:
    store = FaultyDatastore(harness.store, faults)
    pace = Pace(clock=harness.clock, deadline=harness.deadline(), chance=lambda: 0.5)
    return settle_tunnel_address(store, harness.ipam(store), "a", sort, pace=pace)


def held(harness: NetworkHarness, sort: TunnelAddress) -> tuple[Address, ...]:
    return harness.ipam().held(sort.handle("a"), deadline=harness.deadline()).addresses


@of_every_sort
def test_an_address_is_assigned_once_and_stays(sort: TunnelAddress) -> None:
    harness = harness_with_pool(sort)
    assert settle(harness, sort) is True
    address = sort.find(harness.node())
    assert held(harness, sort) == (address,)
    assert settle(harness, sort) is False
    assert sort.find(harness.node()) == address
    assert [other for other in TunnelAddress if other is not sort and settle(harness, other)] == []


def test_without_a_node_nothing_is_assigned() -> None:
    harness = harness_with_pool(V4)
    harness.delete(node_key("a"))
    assert settle(harness, V4) is False
    assert held(harness, V4) == ()


@of_every_sort
@pytest.mark.parametrize("commit", range(1, 5))
def test_a_death_at_any_write_leaves_one_address_that_the_next_one_finds(sort: TunnelAddress, commit: int) -> None:
    harness = harness_with_pool(sort)
    try:
        settle(harness, sort, {commit: ProcessDeath(None)})
    except ProcessDied:
        pass
    else:
        assert commit > 2, "an address and its Node are two writes"
    settle(harness, sort)
    assert held(harness, sort) == (sort.find(harness.node()),)


@of_every_sort
@pytest.mark.parametrize("fault", [LostReply(), LostRequest()])
@pytest.mark.parametrize("commit", range(1, 3))
def test_a_reply_or_request_that_is_lost_assigns_no_second_address(
    sort: TunnelAddress, fault: Fault, commit: int
) -> None:
    harness = harness_with_pool(sort)
    with suppress(Unavailable):
        settle(harness, sort, {commit: fault})
    settle(harness, sort)
    assert held(harness, sort) == (sort.find(harness.node()),)


@of_every_sort
def test_an_address_of_a_pod_is_left_to_the_pod(sort: TunnelAddress) -> None:
    harness = harness_with_pool(sort)
    address = POOLS[sort].spec.prefix.nth(7)
    request = AssignRequest(
        handle="pod", node="b", wanted=(Specific(address=address),), use=AllowedUse.WORKLOAD, owner=(("node", "b"),)
    )
    harness.ipam().assign(request, NO_ENDPOINT, deadline=harness.deadline())
    harness.put_node(with_tunnel_address(NODE, sort, address))
    assert settle(harness, sort) is True
    assert sort.find(harness.node()) not in (None, address)
    assert harness.ipam().held("pod", deadline=harness.deadline()).addresses == (address,)


@of_every_sort
def test_an_address_moves_with_its_pool_and_goes_with_the_last_one(sort: TunnelAddress) -> None:
    harness, pool = harness_with_pool(sort), POOLS[sort]
    settle(harness, sort)
    other = evolve(pool, spec=evolve(pool.spec, prefix=OTHER[sort.family]), metadata=Metadata(name="other"))
    harness.put_pool(other)
    harness.put_pool(make_pool(str(pool.spec.prefix)))
    assert settle(harness, sort) is True
    address = sort.find(harness.node())
    assert address is not None
    assert address in other.spec.prefix
    assert held(harness, sort) == (address,)
    harness.delete(other.key)
    assert settle(harness, sort) is True
    assert sort.find(harness.node()) is None
    assert held(harness, sort) == ()


OTHER = {Family.IPV4: Prefix.parse("10.9.0.0/16"), Family.IPV6: Prefix.parse("fd69::/64")}


def test_a_node_that_is_deleted_or_written_meanwhile_is_not_written_again() -> None:
    harness = harness_with_pool(V4)
    settle(harness, V4, {1: RunBefore(lambda: harness.delete(node_key("a")))})
    assert harness.find(node_key("a")) is None
    assert settle(harness, V4) is False
