"""NAT, floating addresses and the guards of tunnels on a real kernel, as others see them, in both families."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import pytest
from attrs import evolve

from netplug_backends.linux.conntrack import LinuxConnections
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.resources.fields import PortRange
from netplug_core.resources.ippool import AllowedUse
from netplug_core.resources.nodeconfiguration import NodeConfigurationSpec, OutgoingExclusions
from tests.harness.nat_scene import NatScene, open_scene, pool
from tests.harness.node import PEER_NAMESPACE as WORLD
from tests.harness.node import NetnsNode
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns]

NODE = ""
VXLAN = 4789
WITH_VXLAN = NodeConfigurationSpec(is_vxlan_enabled=True)


@pytest.fixture(params=list(Family), ids=str)
def scene(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[NatScene]:
    with open_scene(node, request.param) as opened:
        yield opened


# --- outgoing NAT -----------------------------------------------------------------------------------------------------


def test_packets_that_leave_the_pools_have_the_address_of_the_node(scene: NatScene) -> None:
    own = scene.addresses
    pools = (pool(own.pods, nat=True), pool(own.other_pods))
    scene.program(*pools)
    assert scene.source_of_web(own.outside) == own.node
    assert scene.source_of_web(own.other_node) == own.node
    assert scene.source_of_web(own.other_pod) == own.web
    assert scene.source_of_web(own.node, NODE) == own.web
    assert scene.source_of_web(own.client, scene.client.name) == own.web
    assert scene.seen_source(WORLD, own.web, scene.web.name, source=own.outside)[0] == own.outside
    exclusions = NodeConfigurationSpec(nat_outgoing_exclusions=OutgoingExclusions.POOLS_AND_NODES)
    scene.program(*pools, settings=exclusions)
    assert scene.source_of_web(own.other_node) == own.web
    assert scene.source_of_web(own.outside) == own.node


def test_without_it_they_have_the_address_of_the_workload(scene: NatScene) -> None:
    scene.program(pool(scene.addresses.pods), pool(scene.addresses.other_pods, nat=True))
    assert scene.source_of_web(scene.addresses.outside) == scene.addresses.web


def test_a_disabled_pool_exempts_a_range_and_one_for_load_balancers_does_not(scene: NatScene) -> None:
    own = scene.addresses
    inside = pool(own.pods, nat=True)
    scene.program(inside, pool(own.outsides, AllowedUse.LOAD_BALANCER))
    assert scene.source_of_web(own.outside) == own.node
    scene.program(inside, pool(own.outsides, is_disabled=True))
    assert scene.source_of_web(own.outside) == own.web


def test_ports_address_and_interface_may_be_configured(scene: NatScene) -> None:
    own, inside = scene.addresses, pool(scene.addresses.pods, nat=True)
    scene.program(inside, settings=NodeConfigurationSpec(nat_port_range=PortRange(6000, 6001)))
    ports = {scene.seen_source(scene.web.name, own.outside, WORLD) for _ in range(10)}
    assert ports <= {(own.node, 6000), (own.node, 6001)}
    scene.program(inside, settings=NodeConfigurationSpec(nat_outgoing_interfaces="eth+"))
    assert scene.source_of_web(own.outside) == own.web
    scene.program(inside, settings=NodeConfigurationSpec(nat_outgoing_interfaces="up+"))
    assert scene.source_of_web(own.outside) == own.node
    if scene.family is Family.IPV4:
        scene.program(inside, settings=NodeConfigurationSpec(nat_outgoing_address=Address.parse(own.second)))
        assert scene.source_of_web(own.outside) == own.second


def test_with_vxlan_no_answer_can_be_taken_for_a_wrapped_packet(scene: NatScene) -> None:
    narrow = evolve(WITH_VXLAN, nat_port_range=PortRange(VXLAN - 1, VXLAN + 2))
    scene.program(pool(scene.addresses.pods, nat=True), settings=narrow)
    ports = {scene.seen_source(scene.web.name, scene.addresses.outside, WORLD)[1] for _ in range(20)}
    assert ports <= {VXLAN + 1, VXLAN + 2}


def test_one_prefix_of_many_changes_and_nat_is_never_absent(scene: NatScene) -> None:
    own = scene.addresses
    first = Prefix.parse("100.64.0.0/30" if scene.family is Family.IPV4 else "fd70::/112")
    firsts = (Address(scene.family, int(first.first) + number * first.size) for number in range(10_000))
    many = tuple(pool(str(Prefix.at(each, first.length)), nat=True) for each in firsts)
    pools = (pool(own.pods, nat=True), *many)
    scene.program(*pools)
    sources: list[str] = []
    done = Event()

    def probe() -> None:
        while not done.is_set():
            sources.append(scene.source_of_web(own.outside))

    thread = Thread(target=probe, daemon=True)
    thread.start()
    try:
        wait_until(lambda: len(sources) > 5, "packets leave")
        scene.program(*pools[:-1], pool(f"{own.elsewhere}/{scene.family.width}"))
        assert scene.source_of_web(own.elsewhere) == own.web
        scene.program(*pools)
        assert scene.source_of_web(own.elsewhere) == own.node
        seen = len(sources)
        wait_until(lambda: len(sources) > seen + 5, "packets still leave")
    finally:
        done.set()
        thread.join()
    assert set(sources) == {own.node}


# --- tunnels ----------------------------------------------------------------------------------------------------------


def test_only_nodes_reach_the_port_of_vxlan_and_their_packets_are_not_tracked(scene: NatScene) -> None:
    own = scene.addresses
    scene.program(settings=WITH_VXLAN)
    with scene.socket_at(NODE, own.node, VXLAN) as receiver:
        for source in (own.outside, own.other_node):
            with scene.socket_at(WORLD, source) as sender:
                sender.sendto(source.encode(), (own.node, VXLAN))
        assert receiver.recvfrom(100)[0] == own.other_node.encode()  # the first one was dropped
        with scene.inside():
            assert LinuxConnections().forget({Address.parse(own.node)}) == 0
        receiver.sendto(b"wrapped", (own.other_node, VXLAN))
        with scene.inside():
            assert LinuxConnections().forget({Address.parse(own.other_node)}) == 0
        external = evolve(WITH_VXLAN, external_nodes=(Prefix.parse(own.outsides),))
        scene.program(settings=external)
        with scene.socket_at(WORLD, own.outside) as sender:
            sender.sendto(b"external", (own.node, VXLAN))
        assert receiver.recvfrom(100)[0] == b"external"


def test_other_packets_to_that_port_go_through_the_node_as_ever(scene: NatScene) -> None:
    own = scene.addresses
    scene.program(pool(own.pods, nat=True), settings=WITH_VXLAN)
    with scene.socket_at(WORLD, own.outside, VXLAN) as server, scene.socket_at(scene.web.name) as client:
        client.sendto(b"request", (own.outside, VXLAN))
        _, peer = server.recvfrom(100)
        server.sendto(b"answer", peer)
        assert (peer[0], client.recvfrom(100)[0]) == (own.node, b"answer")


def test_the_nodes_own_packets_into_a_tunnel_have_its_address(scene: NatScene) -> None:
    own, node = scene.addresses, scene.node
    here, there = "02:00:00:00:00:01", "02:00:00:00:00:02"
    for line in (
        f"link add vxlan.netplug address {here} type veth peer name stand-in address {there} netns {WORLD}",
        f"address add {own.tunnel} dev vxlan.netplug" + (" nodad" if ":" in own.tunnel else ""),
        "link set vxlan.netplug up",
        f"-n {WORLD} link set stand-in up",
        f"neigh add {own.other_pod} lladdr {there} dev vxlan.netplug",
        f"-n {WORLD} neigh add {own.tunnel} lladdr {here} dev stand-in",
        f"-n {WORLD} neigh add {own.web} lladdr {here} dev stand-in",
        f"route replace {own.other_pod} dev vxlan.netplug",
        f"-n {WORLD} route add {own.tunnel} dev stand-in",
    ):
        node.run("ip", *line.split())
    scene.program(settings=WITH_VXLAN)
    assert scene.seen_source(NODE, own.other_pod, WORLD, source=own.node)[0] == own.tunnel
    assert scene.seen_source(NODE, own.other_pod, WORLD)[0] == own.tunnel
    assert scene.source_of_web(own.other_pod) == own.web


# --- floating addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_in_a_pool", [False, True])
def test_rt37_a_floating_address_is_answered_wherever_one_asks_from(scene: NatScene, *, is_in_a_pool: bool) -> None:
    """Also where packets that leave the pools get another source: none of these leaves them for the workload."""
    own, web = scene.addresses, scene.web.name
    pools = (pool(own.pods, nat=True), pool(own.floatings)) if is_in_a_pool else ()
    scene.program_floating(own.web, *pools)
    for sender, source, seen in (
        (WORLD, own.outside, own.outside),
        (WORLD, own.other_node, own.other_node),
        (WORLD, own.other_pod, own.other_pod),
        (scene.client.name, own.client, own.client),
        (NODE, own.node, own.node),
        (web, own.web, own.floating),
    ):
        assert scene.seen_source(sender, own.floating, web, source=source, at=own.web)[0] == seen
    assert scene.source_of_web(own.outside) == (own.node if is_in_a_pool else own.web)


def test_a_flow_to_a_floating_address_goes_on_to_the_workload_that_gets_it(scene: NatScene) -> None:
    own = scene.addresses
    scene.program_floating(own.web)
    with (
        scene.socket_at(WORLD, own.outside) as sender,
        scene.socket_at(scene.web.name, port=7000) as web,
        scene.socket_at(scene.client.name, port=7000) as other,
    ):
        sender.sendto(b"first", (own.floating, 7000))
        assert web.recvfrom(100)[0] == b"first"
        scene.program_floating(own.client)
        sender.sendto(b"second", (own.floating, 7000))
        assert other.recvfrom(100)[0] == b"second"
        scene.program_floating(own.web)
        sender.sendto(b"third", (own.floating, 7000))
        assert web.recvfrom(100)[0] == b"third"


def test_connections_to_other_addresses_are_not_forgotten(scene: NatScene) -> None:
    own = scene.addresses
    scene.program_floating(own.web)
    for _ in range(2):
        scene.seen_source(WORLD, own.floating, scene.web.name, at=own.web)
    scene.seen_source(WORLD, own.client, scene.client.name)
    with scene.inside():
        floating, client = Address.parse(own.floating), Address.parse(own.client)
        assert LinuxConnections().forget({floating}) == 2
        assert LinuxConnections().forget({floating}) == 0
        assert LinuxConnections().forget({floating, client}) == 1


def test_connections_of_a_workload_are_forgotten_at_every_end(scene: NatScene) -> None:
    """Those that it began, that were begun to it, and that were led to it; and no others."""
    own = scene.addresses
    scene.program_floating(own.web)
    for _ in range(2):
        scene.seen_source(WORLD, own.floating, scene.web.name, at=own.web)
    scene.seen_source(WORLD, own.web, scene.web.name)
    scene.source_of_web(own.outside)
    scene.seen_source(WORLD, own.client, scene.client.name)
    with scene.inside():
        web, client = Address.parse(own.web), Address.parse(own.client)
        assert LinuxConnections().forget_workloads({web}) == 4
        assert LinuxConnections().forget_workloads({web}) == 0
        assert LinuxConnections().forget_workloads({web, client}) == 1


def test_connections_of_many_workloads_are_forgotten_at_once(scene: NatScene) -> None:
    own = scene.addresses
    scene.program_floating(own.client)  # without a translation, the kernel tracks nothing
    scene.seen_source(WORLD, own.web, scene.web.name)
    scene.seen_source(WORLD, own.client, scene.client.name)
    gone = {Address(scene.family, int(Address.parse(own.web)) + 1000 + number) for number in range(20)}
    with scene.inside():
        assert LinuxConnections().forget_workloads(gone) == 0
        assert LinuxConnections().forget_workloads(gone | {Address.parse(own.web)}) == 1
