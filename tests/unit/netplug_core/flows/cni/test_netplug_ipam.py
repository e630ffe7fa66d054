"""``netplug-ipam`` under another main plugin: addresses for a shared link, and nothing but addresses."""

import pytest

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.result import CNIResult, CNIRoute, IPConfig
from netplug_core.errors import ConfigurationError, NetplugError, NotYetSupported, Unavailable
from netplug_core.flows.cni.call import NoAddressWanted
from netplug_core.ipam.outcome import PoolsExhausted
from netplug_core.locks import AttachmentBusy
from netplug_core.log import Level
from netplug_core.names import attachment_lock_offset
from tests.harness.cni_node import DEFAULT_CONTAINER, DUAL_STACK, LOCK_FILE, POD, CNINodeHarness, ContainerInterface

OURS: dict[str, object] = {"type": "netplug-ipam"}
DEFAULTS = {Family.IPV4: Prefix.parse("0.0.0.0/0"), Family.IPV6: Prefix.parse("::/0")}
OTHERS = pytest.mark.parametrize("other", ["bridge", "ptp"])


def assigned(
    harness: CNINodeHarness, container: ContainerInterface = DEFAULT_CONTAINER, **changes: object
) -> CNIResult:
    result = harness.run("ADD", container, Plugin.IPAM, **{"type": "bridge", **changes})
    assert result is not None
    return result


@OTHERS
def test_an_address_comes_with_its_pools_length_gateway_and_default_route(harness: CNINodeHarness, other: str) -> None:
    result = assigned(harness, type=other, ipam=DUAL_STACK)
    four, six = harness.allocations()
    assert result == CNIResult(
        ips=(
            IPConfig(address=four, length=24, gateway=Address.parse("10.65.0.1")),
            IPConfig(address=six, length=120, gateway=Address.parse("fd00:65::1")),
        ),
        routes=tuple(CNIRoute(destination=DEFAULTS[family]) for family in Family),
    )
    assert harness.endpoints() == []
    assert harness.dataplane.names() == ()


def test_netplug_itself_gets_addresses_to_route(harness: CNINodeHarness) -> None:
    result = assigned(harness, type="netplug", ipam=DUAL_STACK)
    assert result.ips == tuple(
        IPConfig(address=address, length=address.family.width) for address in harness.allocations()
    )
    assert [route.destination for route in result.routes] == list(DEFAULTS.values())


@pytest.mark.parametrize(
    "cidr,families",
    [("10.66.0.0/29", {}), ("fd00:66::/125", {"assign_ipv4": "false", "assign_ipv6": "true"})],
)
def test_the_edges_of_a_pool_are_never_given(cidr: str, families: dict[str, object]) -> None:
    harness, pool, ipam = CNINodeHarness(), Prefix.parse(cidr), {**OURS, **families}
    harness.add_pool("small", cidr)
    given = {assigned(harness, ContainerInterface(id=f"c{n}"), ipam=ipam).ips[0].address for n in range(5)}
    assert given == {pool.nth(n) for n in range(8)} - {pool.first, pool.nth(1), pool.last}
    with pytest.raises(PoolsExhausted):
        assigned(harness, ContainerInterface(id="one-too-many"), ipam=ipam)
    assert len(harness.handles()) == 5


@pytest.mark.parametrize("length", [31, 32])
def test_a_pool_of_edges_serves_nobody(length: int) -> None:
    harness = CNINodeHarness()
    harness.add_pool("edges", f"10.66.0.0/{length}")
    with pytest.raises(PoolsExhausted):
        assigned(harness)


@pytest.mark.parametrize(
    "container", [DEFAULT_CONTAINER, ContainerInterface(args=POD), ContainerInterface(ifname="net0")]
)
def test_asked_again_it_answers_the_same(harness: CNINodeHarness, container: ContainerInterface) -> None:
    first = assigned(harness, container, ipam=DUAL_STACK)
    assert assigned(harness, container, ipam=DUAL_STACK) == first
    assert len(harness.allocations()) == 2
    assert harness.log.of(Level.INFO) == ["addresses assigned"] * 2


def test_what_was_assigned_is_released_again_and_again(harness: CNINodeHarness) -> None:
    assigned(harness, ipam=DUAL_STACK)
    for _ in range(2):
        assert harness.run("DEL", DEFAULT_CONTAINER, Plugin.IPAM, type="bridge") is None
        harness.assert_nothing_left()


def test_a_release_needs_neither_namespace_nor_good_settings(harness: CNINodeHarness) -> None:
    assigned(harness)
    harness.run(
        "DEL", ContainerInterface(netns="", args="IP=10.65.0.9"), Plugin.IPAM, type="bridge", ipam={"assign_ipv4": "?"}
    )
    harness.assert_nothing_left()


def test_keys_inside_ipam_are_honoured(harness: CNINodeHarness) -> None:
    harness.add_pool("mine", "10.67.0.0/24")
    inside = {**OURS, "nodename": "inside", "ipam_lock_file": "/inside.lock", "ipv4_pools": ["mine"]}
    result = assigned(harness, nodename="outside", ipam_lock_file="/outside.lock", ipam=inside)
    assert Prefix.parse("10.67.0.0/24").contains(result.ips[0].address)
    assert {path for path, _offset in harness.host.locks.taken} == {"/inside.lock"}
    assert [path[:2] for path in harness.affinities()] == [("host", "inside")]


@pytest.mark.parametrize(
    "changes,error,text",
    [
        ({"ipam": {**OURS, "subnet": "10.0.0.0/8"}}, ConfigurationError, "ipam.subnet: .* it belongs to host-local"),
        ({"ipam": {"type": "host-local"}}, NotYetSupported, "ipam.type: 'host-local' is not yet supported"),
        ({"ipam": {**OURS, "assign_ipv4": "false"}}, NoAddressWanted, "asks for no address"),
        ({"nodename_file_optional": False}, Unavailable, "/var/lib/netplug/nodename: no such file"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_made(
    harness: CNINodeHarness, changes: dict[str, object], error: type[NetplugError], text: str
) -> None:
    with pytest.raises(error, match=text):
        assigned(harness, DEFAULT_CONTAINER, **changes)
    assert harness.host.locks.taken == []
    harness.assert_nothing_left()


def test_calls_with_one_configuration_get_refusals_of_their_own(harness: CNINodeHarness) -> None:
    refused = []
    for _call in range(2):
        with pytest.raises(NotYetSupported) as error:
            assigned(harness, DEFAULT_CONTAINER, ipam={"type": "host-local"})
        refused.append(error.value)
    assert str(refused[0]) == str(refused[1])
    assert refused[0] is not refused[1], "callers add notes and tracebacks to an error"


def test_check_56_a_chosen_address_is_had_with_the_length_of_its_pool(harness: CNINodeHarness) -> None:
    result = assigned(harness, ContainerInterface(args="IP=10.65.0.7"))
    assert [(str(ip.address), ip.length) for ip in result.ips] == [("10.65.0.7", 24)]


@pytest.mark.parametrize(
    "changes",
    [
        {"runtimeConfig": {"ips": ["10.65.0.7", "fd00:65::7"]}},
        {"args": {"cni": {"ips": ["fd00:65::7/9", "10.65.0.7"]}}},
    ],
)
def test_addresses_that_the_runtime_asks_for(harness: CNINodeHarness, changes: dict[str, object]) -> None:
    result = assigned(harness, DEFAULT_CONTAINER, **changes)
    assert [str(ip.address) for ip in result.ips] == ["10.65.0.7", "fd00:65::7"]
    harness.check(DEFAULT_CONTAINER, result, Plugin.IPAM, **{"type": "bridge", **changes})


def test_a_check_looks_for_the_family_that_was_asked_for(harness: CNINodeHarness) -> None:
    asking = ContainerInterface(args="IP=fd00:65::7")
    harness.check(asking, assigned(harness, asking), Plugin.IPAM, type="bridge")


def test_the_mac_is_the_main_plugins(harness: CNINodeHarness) -> None:
    """It may be anything: only who makes the interface can judge it."""
    changes: dict[str, object] = {"runtimeConfig": {"mac": "x"}, "args": {"cni": {"mac": 1}}}
    assert assigned(harness, ContainerInterface(args="MAC=none"), **changes).ips


@pytest.mark.parametrize("address", ["10.65.0.0", "10.65.0.1", "10.65.0.255"])
def test_nobody_on_a_link_chooses_the_network_the_gateway_or_the_broadcast_address(
    harness: CNINodeHarness, address: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"first two addresses of 10\.65\.0\.0/24 and the last one") as refusal:
        assigned(harness, ContainerInterface(args=f"IP={address}"))
    assert refusal.value.code == 7


def test_a_locked_cluster_means_try_again(harness: CNINodeHarness) -> None:
    harness.set_ready()
    with pytest.raises(Unavailable, match="pod networking is locked") as refusal:
        harness.run("ADD", DEFAULT_CONTAINER, Plugin.IPAM, type="bridge")
    assert refusal.value.code == 11


def test_another_call_of_the_same_attachment_is_waited_for(harness: CNINodeHarness) -> None:
    harness.host.locks.try_lock(LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    with pytest.raises(AttachmentBusy, match="within 10 s"):
        harness.run("ADD", DEFAULT_CONTAINER, Plugin.IPAM, type="bridge")
    assert harness.memory.calls.reads == 0
