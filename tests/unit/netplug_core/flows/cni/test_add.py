"""ADD: what it makes, what it answers, and that a failure leaves nothing behind."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.result import CNIInterface, CNIResult, CNIRoute, IPConfig
from netplug_core.dataplane.protocol import (
    HostInterfaceTaken,
    KernelError,
    LinkExists,
    Neighbour,
    RouteConflict,
)
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.errors import (
    ConfigurationError,
    DecodeError,
    NamespaceNotFound,
    NetplugError,
    Unavailable,
)
from netplug_core.flows.cni.add import DeletedMeanwhile
from netplug_core.flows.cni.call import NoAddressWanted
from netplug_core.ipam.model import BLOCK, HANDLE, Block
from netplug_core.ipam.outcome import AddressTaken, NoPoolServes, PoolsExhausted, PoolUnknown
from netplug_core.locks import AttachmentBusy
from netplug_core.log import Level
from netplug_core.names import HOST_MAC, attachment_lock_offset, container_mac, host_interface_alias
from netplug_core.records import Create
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from netplug_core.workload import PodReplaced
from tests.harness.cni_node import (
    DEFAULT_CONTAINER,
    DUAL_STACK,
    LOCK_FILE,
    NODE,
    POD,
    CNINodeHarness,
    ContainerInterface,
)
from tests.harness.stores import HookedStore

ONLY_IPV6 = {"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true"}
HOPS = {Family.IPV4: Address.parse("169.254.1.1"), Family.IPV6: Address.parse("fe80::ecee:eeff:feee:eeee")}
FAMILIES = pytest.mark.parametrize(
    "ipam,families",
    [
        ({"type": "netplug-ipam"}, (Family.IPV4,)),
        (ONLY_IPV6, (Family.IPV6,)),
        (DUAL_STACK, (Family.IPV4, Family.IPV6)),
    ],
)


# --- what an attachment is -----------------------------------------------------------------------------------------


@FAMILIES
def test_the_result_says_what_was_made(
    harness: CNINodeHarness, ipam: dict[str, object], families: tuple[Family, ...]
) -> None:
    result = harness.add(ipam=ipam, mtu=1450)
    (host,) = harness.dataplane.names()
    held = tuple(harness.allocations())
    assert [address.family for address in held] == list(families)
    assert result == CNIResult(
        interfaces=(
            CNIInterface(name=host),
            CNIInterface(name="eth0", mac=container_mac("net1.c1"), mtu=1450, sandbox=DEFAULT_CONTAINER.netns),
        ),
        ips=tuple(IPConfig(address=address, length=address.family.width, interface=1) for address in held),
        routes=tuple(CNIRoute(destination=Prefix(family, 0, 0), gateway=HOPS[family]) for family in families),
    )


@FAMILIES
def test_what_the_result_says_is_there(
    harness: CNINodeHarness, ipam: dict[str, object], families: tuple[Family, ...]
) -> None:
    result = harness.add(ipam=ipam, mtu=1450, num_queues=2)
    inside = harness.dataplane.interface("eth0", DEFAULT_CONTAINER.netns)
    assert inside is not None
    outside = inside.peer
    assert outside is not None
    assert (inside.mac, inside.mtu, inside.queues, inside.is_up) == (result.interfaces[1].mac, 1450, 2, True)
    assert (outside.mac, outside.mtu, outside.queues, outside.is_up) == (HOST_MAC, 1450, 2, True)
    assert inside.addresses == [InterfaceAddress(ip.address, ip.length) for ip in result.ips]
    assert {(entry.destination, entry.gateway) for entry in inside.routes} >= {
        (route.destination, str(route.gateway)) for route in result.routes
    }
    assert inside.neighbours == [Neighbour(HOPS[family], HOST_MAC) for family in families if family is Family.IPV4]
    assert harness.dataplane.host_routes() == tuple((ip.address.host_prefix, outside.name) for ip in result.ips)


def test_an_unknown_mtu_is_not_reported(harness: CNINodeHarness) -> None:
    assert harness.add().interfaces[1].mtu == 0


@pytest.mark.parametrize(
    "container,key,workload,host",
    [
        (DEFAULT_CONTAINER, ("default", "node--1-cni-c1-eth0"), ("cni", ""), "netpbqv2v2guorc"),
        (
            ContainerInterface(args=POD),
            ("test", "node--1-k8s-test--pod--1-eth0"),
            ("k8s", "test-pod-1"),
            "netpfpjvd75v4hp",
        ),
    ],
)
def test_check_52_endpoint_and_handle_are_stored(
    harness: CNINodeHarness, container: ContainerInterface, key: tuple[str, str], workload: tuple[str, str], host: str
) -> None:
    result = harness.add(container, ipam=DUAL_STACK)
    (endpoint,) = harness.endpoints()
    addresses = tuple(ip.address for ip in result.ips)
    assert (endpoint.metadata.namespace, endpoint.metadata.name) == key
    assert endpoint.metadata.uid == "00000000-0000-4000-8000-000000000001"
    assert endpoint.metadata.creation_time_ns == harness.clock.now_ns()
    assert (endpoint.spec.orchestrator, endpoint.spec.pod) == workload
    assert (endpoint.spec.node, endpoint.spec.container_id, endpoint.spec.endpoint) == (NODE, "c1", "eth0")
    assert (endpoint.spec.addresses, endpoint.spec.mac) == (addresses, result.interfaces[1].mac)
    assert endpoint.spec.interface_name == result.interfaces[0].name == host
    assert harness.allocations() == dict.fromkeys(addresses, "net1.c1")
    assert harness.handles() == ["net1.c1"]


MESOS = {
    "org.apache.mesos": {
        "network_info": {"labels": {"labels": [{"key": "DCOS_SPACE", "value": "/a/b/c"}, {"key": "k", "value": "v"}]}}
    }
}


def test_check_50_the_endpoint_of_a_container_has_the_labels_of_mesos(harness: CNINodeHarness) -> None:
    """A DEL with other labels, or without any, deletes it all the same."""
    harness.add(args=MESOS)
    (endpoint,) = harness.endpoints()
    assert endpoint.metadata.namespace == "default"
    assert endpoint.metadata.labels == (
        ("DCOS_SPACE", "a.b.c"),
        ("k", "v"),
        ("projectnetplug.org/namespace", "default"),
        ("projectnetplug.org/orchestrator", "cni"),
    )
    harness.run("DEL")
    assert (harness.endpoints(), harness.allocations()) == ([], {})


def test_a_pods_endpoint_has_no_labels_of_mesos(harness: CNINodeHarness) -> None:
    harness.add(ContainerInterface(args=POD), args=MESOS)
    (endpoint,) = harness.endpoints()
    assert dict(endpoint.metadata.labels).keys() == {"projectnetplug.org/namespace", "projectnetplug.org/orchestrator"}


def test_each_phase_has_its_line(harness: CNINodeHarness) -> None:
    result = harness.add()
    identity = {"container": "c1", "interface": "eth0", "network": "net1", "node": NODE}
    assert harness.log.lines == [
        (Level.INFO, "addresses assigned", {**identity, "addresses": str(result.ips[0].address)}),
        (Level.INFO, "container attached", identity),
    ]


def test_check_102_containers_get_addresses_of_their_own(harness: CNINodeHarness) -> None:
    results = [
        harness.add(ContainerInterface(id=f"c{n}", netns=f"/run/netns/c{n}"), ipam=DUAL_STACK) for n in range(20)
    ]
    assert len({ip.address for result in results for ip in result.ips}) == 40
    assert len({result.interfaces[0].name for result in results}) == 20
    assert len(harness.endpoints()) == 20


def test_check_70_a_second_interface_lives_beside_the_first(harness: CNINodeHarness) -> None:
    first, second = harness.add(), harness.add(ContainerInterface(ifname="net0"))
    assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ("eth0", "net0")
    assert first.ips != second.ips
    assert first.interfaces[0] != second.interfaces[0]
    assert harness.handles() == ["net1.c1", "net1.c1.net0"]
    assert len(harness.endpoints()) == 2


def test_a_result_of_the_chain_comes_first(harness: CNINodeHarness) -> None:
    before = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "lo", "sandbox": DEFAULT_CONTAINER.netns}],
        "dns": {"domain": "example"},
    }
    result = harness.add(prevResult=before)
    assert [interface.name for interface in result.interfaces][::2] == ["lo", "eth0"]
    assert [ip.interface for ip in result.ips] == [2]
    assert result.dns.domain == "example"


# --- again ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [DEFAULT_CONTAINER, ContainerInterface(args=POD)])
def test_check_54_a_second_add_is_an_error_and_harms_nothing(
    harness: CNINodeHarness, container: ContainerInterface
) -> None:
    result = harness.add(container)
    stored = (harness.allocations(), harness.handles(), harness.endpoints(), harness.memory.calls.commits)
    with pytest.raises(LinkExists) as refusal:
        harness.add(container)
    assert (refusal.value.code, refusal.value.name, refusal.value.namespace) == (121, "eth0", DEFAULT_CONTAINER.netns)
    assert (harness.allocations(), harness.handles(), harness.endpoints(), harness.memory.calls.commits) == stored
    harness.check(container, result)


def test_an_interface_that_is_not_ours_is_left_alone(harness: CNINodeHarness) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.dataplane.add_link("eth0", DEFAULT_CONTAINER.netns)
    with pytest.raises(LinkExists):
        harness.add()
    assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ("eth0",)
    harness.assert_nothing_left()


def test_an_interface_that_appears_meanwhile_is_left_alone(harness: CNINodeHarness) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.store = FaultyDatastore(
        harness.memory, {1: RunBefore(lambda: harness.dataplane.add_link("eth0", DEFAULT_CONTAINER.netns))}
    )
    with pytest.raises(LinkExists):
        harness.add()
    assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ("eth0",)
    harness.assert_nothing_left()


@pytest.mark.parametrize("netns", ["/run/netns/c1", "/run/netns/another"])
def test_check_55_a_new_namespace_gets_the_same_addresses(harness: CNINodeHarness, netns: str) -> None:
    first = harness.add(ipam=DUAL_STACK)
    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    again = harness.add(ContainerInterface(netns=netns), ipam=DUAL_STACK)
    assert (again.ips, again.interfaces[0]) == (first.ips, first.interfaces[0])
    assert len(harness.allocations()) == 2
    (endpoint,) = harness.endpoints()
    assert endpoint.metadata.uid == "00000000-0000-4000-8000-000000000001"
    harness.check(ContainerInterface(netns=netns), again, ipam=DUAL_STACK)


def test_check_46_a_stale_host_interface_of_the_workload_is_replaced(harness: CNINodeHarness) -> None:
    alias = host_interface_alias(network="net0", container_id="c1", ifname="eth0", pod_namespace="", pod="")
    harness.dataplane.add_link("netpbqv2v2guorc", alias=str(alias))
    result = harness.add()
    harness.check(DEFAULT_CONTAINER, result)


def test_a_host_interface_of_our_name_that_is_not_the_workloads_is_named(harness: CNINodeHarness) -> None:
    """Another pod's name can have the same hash: that pod keeps its interface, and this call leaves nothing."""
    harness.dataplane.add_link("netpbqv2v2guorc", alias="uplink")
    with pytest.raises(HostInterfaceTaken) as refusal:
        harness.add()
    assert refusal.value.code == 125
    assert str(refusal.value) == (
        "the host already has an interface 'netpbqv2v2guorc' that is not this workload's: its alias is 'uplink';"
        " remove or rename that interface"
    )
    assert harness.dataplane.names() == ("netpbqv2v2guorc",)
    assert (harness.allocations(), harness.handles(), harness.endpoints()) == ({}, [], [])


@pytest.mark.parametrize("second", [ContainerInterface(id="c2"), ContainerInterface(id="c2", args=POD)])
@pytest.mark.parametrize("first", [ContainerInterface(), ContainerInterface(args=POD)])
def test_a_second_container_in_the_namespace_is_refused_and_changes_nothing(
    harness: CNINodeHarness, first: ContainerInterface, second: ContainerInterface
) -> None:
    result = harness.add(first)
    commits = harness.memory.calls.commits
    with pytest.raises(LinkExists) as refusal:
        harness.add(second)
    assert (refusal.value.code, harness.memory.calls.commits) == (121, commits)
    harness.run("DEL", second)
    harness.check(first, result)


def test_a_restarted_pod_takes_its_endpoint_over(harness: CNINodeHarness) -> None:
    harness.add(ContainerInterface(args=POD))
    restarted = ContainerInterface(id="c2", netns="/run/netns/c2", args=POD)
    result = harness.add(restarted)
    (endpoint,) = harness.endpoints()
    assert endpoint.spec.container_id == "c2"
    assert endpoint.spec.addresses == (result.ips[0].address,)
    assert harness.handles() == ["net1.c1", "net1.c2"]
    harness.check(restarted, result)


# --- sandboxes that failed, and whose DEL did not come ---------------------------------------------------------------


def fail_sandbox(harness: CNINodeHarness, number: int, **changes: object) -> ContainerInterface:
    """A sandbox of the pod whose next plugin fails: the runtime's DEL does not reach netplug, its namespace goes."""
    sandbox = ContainerInterface(id=f"c{number}", netns=f"/run/netns/c{number}", args=POD)
    harness.dataplane.add_namespace(sandbox.netns)
    harness.add(sandbox, **changes)
    harness.dataplane.remove_namespace(sandbox.netns)
    return sandbox


@pytest.mark.parametrize("ipam", [DUAL_STACK, ONLY_IPV6])
def test_the_next_sandbox_releases_what_a_failed_one_held(harness: CNINodeHarness, ipam: dict[str, object]) -> None:
    for number in range(1, 6):
        fail_sandbox(harness, number, ipam=ipam)
        assert harness.handles() == [f"net1.c{number}"]
        assert set(harness.allocations().values()) == {f"net1.c{number}"}
    assert sum("whose interface is gone" in text for text in harness.log.of(Level.WARNING)) == 4


def test_a_first_sandbox_and_a_repeated_add_cost_no_more(harness: CNINodeHarness) -> None:
    container = ContainerInterface(args=POD)
    harness.add(ContainerInterface(id="c9", netns="/run/netns/c2"))
    harness.memory.calls.reads = harness.memory.calls.commits = 0
    harness.add(container)
    assert (harness.memory.calls.reads, harness.memory.calls.commits) == (2, 1)
    harness.resume("ADD", container)
    assert (harness.memory.calls.reads, harness.memory.calls.commits) == (4, 1)


def test_a_failed_sandbox_costs_the_next_one_a_release(harness: CNINodeHarness) -> None:
    fail_sandbox(harness, 1)
    harness.memory.calls.reads = harness.memory.calls.commits = 0
    harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args=POD))
    assert (harness.memory.calls.reads, harness.memory.calls.commits) == (4, 2)


def test_a_former_container_whose_interface_is_there_keeps_its_addresses(harness: CNINodeHarness) -> None:
    """Its DEL comes, or GC."""
    harness.add(ContainerInterface(args=POD))
    harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args=POD))
    assert harness.handles() == ["net1.c1", "net1.c2"]


def test_a_former_container_that_another_call_works_on_is_left_to_it(harness: CNINodeHarness) -> None:
    """Its ADD may have committed and not have made its interface yet."""
    fail_sandbox(harness, 1)
    held = harness.host.try_lock(LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    assert held is not None
    harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args=POD))
    assert harness.handles() == ["net1.c1", "net1.c2"]


def test_a_failed_sandbox_is_found_after_a_lost_reply(harness: CNINodeHarness) -> None:
    """The second attempt finds the endpoint of its own container."""
    fail_sandbox(harness, 1)
    harness.store = FaultyDatastore(harness.memory, {1: LostReply()})
    harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args=POD))
    assert harness.handles() == ["net1.c2"]


def test_an_error_of_that_release_does_not_fail_the_add(harness: CNINodeHarness) -> None:
    fail_sandbox(harness, 1)
    harness.store = FaultyDatastore(harness.memory, {2: LostRequest()})
    harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args=POD))
    assert harness.handles() == ["net1.c1", "net1.c2"]
    assert "addresses of a former container of the pod could not be released" in harness.log.of(Level.WARNING)


def test_a_sandbox_that_held_nothing_any_more_is_not_logged(harness: CNINodeHarness) -> None:
    sandbox = fail_sandbox(harness, 1)
    endpoint = harness.stored_endpoint()
    harness.run("DEL", sandbox)
    harness.commit(Create(endpoint.key, endpoint.value))
    harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args=POD))
    assert (harness.handles(), harness.log.of(Level.WARNING)) == (["net1.c2"], [])


def refuse(effect: str) -> Callable[[str], None]:
    """A kernel that refuses every effect whose description begins so."""

    def before_effect(found: str) -> None:
        if found.startswith(effect):
            raise KernelError(found, "Operation not permitted")

    return before_effect


# --- resumed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [DEFAULT_CONTAINER, ContainerInterface(args=POD)])
def test_a_resumed_add_completes_the_interface_of_its_attachment(
    harness: CNINodeHarness, container: ContainerInterface
) -> None:
    first = harness.add(container, ipam=DUAL_STACK)
    inside = harness.dataplane.interface("eth0", container.netns)
    assert inside is not None
    inside.addresses.clear()
    inside.routes.clear()
    stored = (harness.allocations(), harness.handles(), harness.endpoints())
    assert harness.resume("ADD", container, ipam=DUAL_STACK) == first
    assert (harness.allocations(), harness.handles(), harness.endpoints()) == stored
    assert harness.dataplane.interface("eth0", container.netns) is inside
    harness.check(container, first, ipam=DUAL_STACK)


@pytest.mark.parametrize("second", [ContainerInterface(id="c2"), ContainerInterface(id="c2", args=POD)])
@pytest.mark.parametrize("first", [ContainerInterface(), ContainerInterface(args=POD)])
def test_a_resumed_add_refuses_the_interface_of_another_attachment(
    harness: CNINodeHarness, first: ContainerInterface, second: ContainerInterface
) -> None:
    """Of another container of the same pod, too."""
    result, commits = harness.add(first), harness.memory.calls.commits
    with pytest.raises(LinkExists):
        harness.resume("ADD", second)
    assert harness.memory.calls.commits == commits
    harness.check(first, result)


def test_a_resumed_add_refuses_an_interface_that_is_not_ours(harness: CNINodeHarness) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.dataplane.add_link("eth0", DEFAULT_CONTAINER.netns)
    with pytest.raises(LinkExists):
        harness.resume("ADD")
    assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ("eth0",)
    harness.assert_nothing_left()


def test_a_resumed_add_that_fails_leaves_nothing(harness: CNINodeHarness) -> None:
    """Not even the interface that it found."""
    result = harness.add()
    inside = harness.dataplane.interface("eth0", DEFAULT_CONTAINER.netns)
    assert inside is not None
    inside.addresses.clear()
    harness.dataplane.before_effect = refuse("adding the address")
    with pytest.raises(KernelError):
        harness.resume("ADD")
    assert harness.dataplane.names() == harness.dataplane.names(DEFAULT_CONTAINER.netns) == ()
    assert result.ips[0].address not in harness.allocations()
    harness.assert_nothing_left()


def test_a_resumed_add_that_cannot_remove_the_interface_keeps_its_addresses(harness: CNINodeHarness) -> None:
    harness.add()
    held = harness.allocations()
    harness.dataplane.before_effect = refuse("")
    inside = harness.dataplane.interface("eth0", DEFAULT_CONTAINER.netns)
    assert inside is not None
    inside.addresses.clear()
    with pytest.raises(KernelError):
        harness.resume("ADD")
    assert harness.allocations() == held
    assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ("eth0",)


# --- refused before anything is made -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes,error,text",
    [
        ({"policy": {"type": "k8s"}}, ConfigurationError, "network configuration.policy.type: 'k8s' is not accepted"),
        ({"dataplane_options": {"type": "invalid"}}, ConfigurationError, "invalid dataplane type"),
        ({"require_mtu_file": True}, ConfigurationError, "failed to read MTU file"),
        ({"nodename_file_optional": False}, Unavailable, "/var/lib/netplug/nodename: no such file"),
        ({"ipam": {"type": "netplug-ipam", "assign_ipv4": "false"}}, NoAddressWanted, "asks for no address"),
        ({"prevResult": {"ips": 1}}, DecodeError, "prevResult.ips: must be an array"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_made(
    harness: CNINodeHarness, changes: dict[str, object], error: type[NetplugError], text: str
) -> None:
    with pytest.raises(error, match=text):
        harness.add(DEFAULT_CONTAINER, **changes)
    assert harness.memory.calls.reads == 0
    assert (harness.host.locks.taken, harness.log.lines) == ([], [])
    harness.assert_nothing_left()


def test_check_56_a_chosen_address_is_had_and_had_again_and_nobody_else_gets_it(harness: CNINodeHarness) -> None:
    asking = ContainerInterface(args="IP=10.65.0.7")
    for _ in range(2):
        assert [str(ip.address) for ip in harness.add(asking).ips] == ["10.65.0.7"]
        harness.run("DEL", asking)
    harness.add(asking)
    with pytest.raises(AddressTaken, match=r"^10\.65\.0\.7: Address already assigned in block 10\.65\.0\.0/26"):
        harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args="IP=10.65.0.7"))


def test_a_chosen_address_makes_families_and_pools_of_the_configuration_void(harness: CNINodeHarness) -> None:
    ipam = {"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true", "ipv6_pools": ["nowhere"]}
    assert [str(ip.address) for ip in harness.add(ContainerInterface(args="IP=10.65.0.7"), ipam=ipam).ips] == [
        "10.65.0.7"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"runtimeConfig": {"ips": ["10.65.0.7/24", "fd00:65::7/112"], "mac": "02-00-00-00-00-0A"}},
        {"args": {"cni": {"ips": ["10.65.0.7", "fd00:65::7"], "mac": "0200.0000.000a"}}},
        {
            "runtimeConfig": {"ips": ["fd00:65::7"], "mac": "02:00:00:00:00:0a"},
            "args": {"cni": {"ips": ["10.65.0.7/16"]}},
        },
    ],
)
def test_addresses_and_mac_that_the_runtime_asks_for(harness: CNINodeHarness, changes: dict[str, object]) -> None:
    """Podman by ``--ip``, ``--ip6`` and ``--mac-address``, Multus and Nomad: they were dropped without a word."""
    result = harness.add(DEFAULT_CONTAINER, **changes)
    assert [str(ip.address) for ip in result.ips] == ["10.65.0.7", "fd00:65::7"]
    assert result.interfaces[1].mac == "02:00:00:00:00:0a"
    assert harness.stored_endpoint().value.spec.mac == "02:00:00:00:00:0a"
    harness.check(DEFAULT_CONTAINER, result, Plugin.MAIN, **changes)
    harness.run("DEL")
    harness.assert_nothing_left()


def test_mac_and_address_of_cni_args_stand_beside_those_of_the_configuration(harness: CNINodeHarness) -> None:
    asking = ContainerInterface(args="IP=10.65.0.7;MAC=02:00:00:00:00:0a")
    same = {"ips": ["10.65.0.7", "fd00:65::7"], "mac": "0200.0000.000A"}
    result = harness.add(asking, runtimeConfig=same)
    assert [str(ip.address) for ip in result.ips] == ["10.65.0.7", "fd00:65::7"]
    assert result.interfaces[1].mac == "02:00:00:00:00:0a"
    harness.run("DEL", asking)
    with pytest.raises(ConfigurationError, match=r"^runtimeConfig.mac: '.*:0b' .* MAC of CNI_ARGS asks for .*:0a"):
        harness.add(asking, runtimeConfig={"mac": "02:00:00:00:00:0b"})
    with pytest.raises(ConfigurationError, match=r"^runtimeConfig.ips: '10.65.0.8' .* IP of CNI_ARGS asks for .*\.7,"):
        harness.add(asking, runtimeConfig={"ips": ["10.65.0.8"]})
    harness.assert_nothing_left()


def test_a_namespace_that_is_gone_is_refused(harness: CNINodeHarness) -> None:
    with pytest.raises(NamespaceNotFound) as refusal:
        harness.run("ADD")
    assert (refusal.value.code, str(refusal.value)) == (4, "CNI_NETNS '/run/netns/c1' is not a network namespace")
    harness.assert_nothing_left()


def test_check_27_a_locked_cluster_refuses_with_try_again(harness: CNINodeHarness) -> None:
    harness.set_ready()
    with pytest.raises(Unavailable) as refusal:
        harness.add()
    assert (refusal.value.code, refusal.value.what) == (11, "ClusterInformation default")
    harness.assert_nothing_left()
    harness.set_ready(is_ready=True)
    assert harness.add().ips


@pytest.mark.parametrize(
    "ipam,error,text",
    [
        (
            {"type": "netplug-ipam", "ipv4_pools": ["nowhere"]},
            PoolUnknown,
            r"the given pool \(nowhere\) does not exist",
        ),
        (
            {"type": "netplug-ipam", "ipv4_pools": ["10.65.0.0/24", "192.169.1.0/24"]},
            PoolUnknown,
            r"\(192.169.1.0/24\) does not exist",
        ),
        ({"type": "netplug-ipam", "ipv4_pools": ["10.65.0.1/24"]}, ConfigurationError, "host bits"),
    ],
)
def test_check_20_a_pool_that_does_not_exist_is_an_error(
    harness: CNINodeHarness, ipam: dict[str, object], error: type[NetplugError], text: str
) -> None:
    with pytest.raises(error, match=text):
        harness.add(ipam=ipam)
    harness.assert_nothing_left()


def test_one_family_short_is_both_refused() -> None:
    harness = CNINodeHarness()
    harness.add_pool("four", "10.65.0.0/24")
    with pytest.raises(NoPoolServes, match="there is no IPv6 pool at all"):
        harness.add(ipam=DUAL_STACK)
    harness.assert_nothing_left()


def test_a_full_pool_says_so() -> None:
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.0/32")
    harness.add()
    with pytest.raises(PoolsExhausted, match="Assigned 0 out of 1 requested IPv4 addresses"):
        harness.add(ContainerInterface(id="c2", netns="/run/netns/c2"))
    assert harness.handles() == ["net1.c1"]


# --- a dataplane that fails ----------------------------------------------------------------------------------------


def failing_at(number: int) -> tuple[Callable[[str], None], list[str]]:
    """A script under which the kernel refuses the n-th effect, and the effects it was asked for."""
    seen: list[str] = []

    def before(effect: str) -> None:
        seen.append(effect)
        if len(seen) == number:
            raise KernelError(effect, "Operation not permitted")

    return before, seen


def test_check_31_wherever_the_kernel_refuses_everything_is_given_back() -> None:
    number, count = 0, 1
    while number < count:
        number += 1
        harness = CNINodeHarness()
        harness.add_pool("four", "10.65.0.0/24")
        harness.add_pool("six", "fd00:65::/120")
        harness.dataplane.before_effect, seen = failing_at(number)
        try:
            harness.add(ipam=DUAL_STACK)
        except KernelError:
            harness.assert_nothing_left()
            assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ()
        count = len(seen) + 1
    assert count > 20, "every effect had its turn"


def test_a_route_that_is_not_netplugs_stays_and_the_address_is_free_again() -> None:
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.7/32")
    harness.dataplane.add_link("other")
    harness.dataplane.add_route(Prefix.parse("10.65.0.7/32"), "other")
    with pytest.raises(RouteConflict) as refusal:
        harness.add()
    assert (refusal.value.code, refusal.value.owner) == (122, "other")
    assert (harness.allocations(), harness.handles(), harness.endpoints()) == ({}, [], [])
    assert harness.dataplane.host_routes() == ((Prefix.parse("10.65.0.7/32"), "other"),)


def test_a_failure_of_a_repetition_gives_everything_back(harness: CNINodeHarness) -> None:
    harness.add()
    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    harness.dataplane.before_effect, _seen = failing_at(1)
    with pytest.raises(KernelError):
        harness.add()
    harness.assert_nothing_left()


# --- a store that fails --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [LostRace(), LostReply()])
def test_a_lost_race_or_reply_is_made_good(harness: CNINodeHarness, fault: Fault) -> None:
    harness.store = FaultyDatastore(harness.memory, {1: fault})
    result = harness.add(ipam=DUAL_STACK)
    assert set(harness.allocations()) == {ip.address for ip in result.ips}
    harness.check(DEFAULT_CONTAINER, result, ipam=DUAL_STACK)


def test_a_store_that_is_away_means_try_again(harness: CNINodeHarness) -> None:
    harness.store = FaultyDatastore(harness.memory, {1: LostRequest()})
    with pytest.raises(Unavailable) as refusal:
        harness.add()
    assert refusal.value.code == 11
    assert harness.log.of(Level.WARNING) == []  # a store that was never reached is not asked to take anything back
    harness.assert_nothing_left()


def test_a_lock_that_comes_meanwhile_counts(harness: CNINodeHarness) -> None:
    harness.store = FaultyDatastore(harness.memory, {1: RunBefore(harness.set_ready)})
    with pytest.raises(Unavailable, match="pod networking is locked"):
        harness.add()
    harness.assert_nothing_left()


def test_addresses_that_cannot_be_given_back_hide_no_error(harness: CNINodeHarness) -> None:
    harness.dataplane.before_effect, _seen = failing_at(1)
    harness.store = FaultyDatastore(harness.memory, {2: LostRequest()})
    with pytest.raises(KernelError):
        harness.add()
    assert harness.log.of(Level.WARNING) == ["addresses could not be given back"]
    assert harness.handles() == ["net1.c1"]
    harness.store, harness.dataplane.before_effect = harness.memory, lambda _effect: None
    harness.run("DEL")
    harness.assert_nothing_left()


def test_a_further_interface_of_a_pod_whose_store_keeps_endpoints_in_pods_is_attached(harness: CNINodeHarness) -> None:
    """A pod can hold one endpoint; the addresses of the others are in the blocks alone, with all their attributes."""
    harness.memory.description = evolve(harness.memory.description, endpoints=EndpointStorage.PODS)
    second = ContainerInterface(ifname="net1", args=POD)
    result = harness.add(second)
    (address,) = harness.allocations()
    assert result.ips[0].address == address
    assert harness.values_of_kind(WORKLOAD_ENDPOINT) == {}
    assert list(harness.values_of_kind(HANDLE)) == [("net1.c1.net1",)]
    (block,) = harness.values_of_kind(BLOCK).values()
    assert isinstance(block, Block)
    (allocation,) = block.held()
    attributes = {name: text for name, text in allocation.attribute.owner if name != "timestamp"}
    assert attributes == {
        "container": "c1", "interface": "net1", "namespace": "test", "network": "net1", "node": NODE,
        "pod": "test-pod-1",
    }  # fmt: skip
    harness.check(second, result)
    harness.add(ContainerInterface(args=POD))
    assert harness.run("DEL", second) is None
    assert list(harness.values_of_kind(HANDLE)) == [("net1.c1",)]
    assert harness.stored_endpoint().value.spec.endpoint == "eth0"
    valid = [{"containerID": "c9", "ifname": "eth0"}]
    harness.add(second)
    harness.run("GC", DEFAULT_CONTAINER, Plugin.MAIN, **{"cni.dev/valid-attachments": valid})
    assert harness.values_of_kind(HANDLE) == {}


def test_a_late_add_of_a_pod_that_was_made_again_changes_nothing(harness: CNINodeHarness) -> None:
    harness.memory.description = evolve(harness.memory.description, endpoints=EndpointStorage.PODS)
    harness.add(ContainerInterface(args=POD))
    before = harness.stored_endpoint()
    held = harness.allocations()
    late = ContainerInterface(id="old", netns="/run/netns/old", args=f"{POD};K8S_POD_UID=gone")
    with pytest.raises(PodReplaced):
        harness.add(late)
    assert (harness.stored_endpoint(), harness.allocations()) == (before, held)
    same = ContainerInterface(id="c2", netns="/run/netns/c2", args=f"{POD};K8S_POD_UID={before.value.metadata.uid}")
    harness.run("DEL", ContainerInterface(args=POD))
    harness.add(same)


# --- other calls of the same attachment ----------------------------------------------------------------------------


def test_the_attachment_is_locked_from_before_the_commit_until_the_interface_stands(harness: CNINodeHarness) -> None:
    lock = (LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    unlocked = list[str]()

    def note(effect: str) -> None:
        if lock not in harness.host.locks.held:
            unlocked.append(effect)

    harness.store = HookedStore(harness.memory, before_commit=lambda: note("commit"))
    harness.dataplane.before_effect = note
    harness.add()
    assert (unlocked, harness.host.locks.held) == ([], frozenset())


def test_while_another_call_is_at_work_nothing_is_changed(harness: CNINodeHarness) -> None:
    harness.host.locks.try_lock(LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    with pytest.raises(AttachmentBusy, match="has not ended within 10 s"):
        harness.add()
    assert harness.memory.calls.reads == 0
    harness.add(ContainerInterface(ifname="net1"))


def test_without_a_lock_an_add_that_was_deleted_meanwhile_takes_itself_back(harness: CNINodeHarness) -> None:
    """The DEL comes between the commit and the interface."""
    harness.host.locks.errors[LOCK_FILE] = PermissionError(13, "Permission denied")

    def delete_first(effect: str) -> None:
        harness.dataplane.before_effect = lambda _effect: None
        assert effect.startswith("creating")
        harness.run("DEL")

    harness.dataplane.before_effect = delete_first
    with pytest.raises(DeletedMeanwhile) as refusal:
        harness.add()
    assert (refusal.value.code, str(refusal.value)) == (
        11,
        (
            "the attachment of the interface 'eth0' of container 'c1' was deleted while it was made, and is"
            " removed again"
        ),
    )
    harness.assert_nothing_left()


def test_without_a_lock_an_add_that_cannot_look_takes_itself_back(harness: CNINodeHarness) -> None:
    harness.host.locks.errors[LOCK_FILE] = PermissionError(13, "Permission denied")
    store = HookedStore(harness.memory)

    def go_away() -> None:
        store.before_read = lost

    def lost() -> None:
        store.before_read = lambda: None
        raise Unavailable("the store", "it is away")

    store.after_commit = go_away
    harness.store = store
    with pytest.raises(Unavailable):
        harness.add()
    harness.assert_nothing_left()
