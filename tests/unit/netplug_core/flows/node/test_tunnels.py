"""The addresses of a node's tunnels: assigned once, whoever dies in between, and never taken from anybody."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest

from netplug_core.addressing import Address
from netplug_core.clock import Pace
from netplug_core.errors import Unavailable
from netplug_core.flows.node import settle_tunnel_address
from netplug_core.ipam.allocation.request import AssignRequest, Specific
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.reconcile.tunnels import TunnelAddress
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

NODE = make_node("a", "192.0.2.1/24")
POOL = make_pool("10.0.0.0/16", vxlan=Encapsulation.ALWAYS)


def harness_with_pool() -> NetworkHarness:
    harness = NetworkHarness()
    harness.put_node(NODE)
    harness.put_pool(POOL)
    return harness


def settle(
    harness: NetworkHarness, faults: Mapping[int, Fault] = {}, sort: TunnelAddress = TunnelAddress.VXLAN
) -> bool:
    store = FaultyDatastore(harness.store, faults)
    pace = Pace(clock=harness.clock, deadline=harness.deadline(), chance=lambda: 0.5)
    return settle_tunnel_address(store, harness.ipam(store), "a", sort, pace=pace)


def held(harness: NetworkHarness) -> tuple[Address, ...]:
    return harness.ipam().held("vxlan-tunnel-addr-a", deadline=harness.deadline()).addresses


def test_an_address_is_assigned_once_and_stays() -> None:
    harness = harness_with_pool()
    assert settle(harness) is True
    address = harness.node().spec.vxlan_tunnel_address
    assert held(harness) == (address,)
    assert settle(harness) is False
    assert harness.node().spec.vxlan_tunnel_address == address
    assert settle(harness, sort=TunnelAddress.IPIP) is False


def test_without_a_node_nothing_is_assigned() -> None:
    harness = harness_with_pool()
    harness.delete(node_key("a"))
    assert settle(harness) is False
    assert held(harness) == ()


@pytest.mark.parametrize("commit", range(1, 5))
def test_a_death_at_any_write_leaves_one_address_that_the_next_one_finds(commit: int) -> None:
    harness = harness_with_pool()
    try:
        settle(harness, {commit: ProcessDeath(None)})
    except ProcessDied:
        pass
    else:
        assert commit > 2, "an address and its Node are two writes"
    settle(harness)
    assert held(harness) == (harness.node().spec.vxlan_tunnel_address,)


@pytest.mark.parametrize("fault", [LostReply(), LostRequest()])
@pytest.mark.parametrize("commit", range(1, 3))
def test_a_reply_or_request_that_is_lost_assigns_no_second_address(fault: Fault, commit: int) -> None:
    harness = harness_with_pool()
    with suppress(Unavailable):
        settle(harness, {commit: fault})
    settle(harness)
    assert held(harness) == (harness.node().spec.vxlan_tunnel_address,)


def test_an_address_of_a_pod_is_left_to_the_pod() -> None:
    harness = harness_with_pool()
    address = Address.parse("10.0.0.7")
    request = AssignRequest(
        handle="pod", node="b", wanted=(Specific(address=address),), use=AllowedUse.WORKLOAD, owner=(("node", "b"),)
    )
    harness.ipam().assign(request, NO_ENDPOINT, deadline=harness.deadline())
    harness.put_node(make_node("a", "192.0.2.1/24", tunnel="10.0.0.7"))
    assert settle(harness) is True
    assert harness.node().spec.vxlan_tunnel_address not in (None, address)
    assert harness.ipam().held("pod", deadline=harness.deadline()).addresses == (address,)


def test_an_address_moves_with_its_pool_and_goes_with_the_last_one() -> None:
    harness = harness_with_pool()
    settle(harness)
    other = make_pool("10.9.0.0/16", vxlan=Encapsulation.ALWAYS)
    harness.put_pool(other)
    harness.put_pool(make_pool("10.0.0.0/16"))
    assert settle(harness) is True
    address = harness.node().spec.vxlan_tunnel_address
    assert address is not None
    assert address in other.spec.prefix
    assert held(harness) == (address,)
    harness.delete(other.key)
    assert settle(harness) is True
    assert harness.node().spec.vxlan_tunnel_address is None
    assert held(harness) == ()


def test_a_node_that_is_deleted_or_written_meanwhile_is_not_written_again() -> None:
    harness = harness_with_pool()
    settle(harness, {1: RunBefore(lambda: harness.delete(node_key("a")))})
    assert harness.find(node_key("a")) is None
    assert settle(harness) is False
