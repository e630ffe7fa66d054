"""The CNI commands with host-local, on a node of fakes and real files."""

import fcntl
import os
from pathlib import Path

import pytest

from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.cni.result import CNIRoute
from netplug_core.dataplane.protocol import KernelError, RouteConflict
from netplug_core.errors import ConfigurationError, LimitedConnectivity, Unavailable, UnhealthyStatus
from netplug_core.flows.cni.check import AddressesNotHeld
from netplug_core.ipam.allocation.request import DNS
from netplug_core.ipam.hostlocal.reserve import AddressHeld, Boot, RangesExhausted
from netplug_core.names import host_interface_name
from netplug_core.orchestrator.model import NamespaceFacts, PodFacts
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.cni_node import DEFAULT_CONTAINER, NODE, POD, CNINodeHarness, ContainerInterface

SECOND = ContainerInterface(id="c2", netns="/run/netns/c2")
V4, V6 = Prefix.parse("10.10.0.0/24"), Prefix.parse("fd10::/64")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "networks"


@pytest.fixture
def harness(folder: Path) -> CNINodeHarness:
    made = CNINodeHarness()
    made.config["ipam"] = ipam(folder, ranges=[[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd09::/64"}]])
    return made


def ipam(folder: Path, **keys: object) -> dict[str, object]:
    return {"type": "host-local", "dataDir": str(folder), **keys}


def files(folder: Path) -> dict[str, str]:
    """The address files of the network, with their texts."""
    found = (folder / "net1").iterdir() if (folder / "net1").exists() else ()
    return {
        file.name: file.read_bytes().decode()
        for file in found
        if file.is_file() and file.name != "lock" and not file.name.startswith((".netplug", "last_reserved"))
    }


def test_an_attachment(harness: CNINodeHarness, folder: Path) -> None:
    result = harness.add()
    assert [str(ip) for ip in result.ips] == ["10.9.0.2/32", "fd09::2/128"]
    assert {route.destination for route in result.routes} == {Prefix(family, 0, 0) for family in Family}
    assert files(folder) == {"10.9.0.2": "c1\r\neth0", "fd09::2": "c1\r\neth0"}
    assert (folder / "net1" / "last_reserved_ip.0").read_text() == "10.9.0.2"
    assert (folder / "net1" / "last_reserved_ip.1").read_text() == "fd09::2"
    (endpoint,) = harness.endpoints()
    assert [str(address) for address in endpoint.spec.addresses] == ["10.9.0.2", "fd09::2"]
    assert harness.allocations() == {}

    harness.check(DEFAULT_CONTAINER, result)
    harness.run("DEL")
    harness.run("DEL")
    assert files(folder) == {}
    harness.assert_nothing_left()


def test_a_second_container_and_a_second_interface_have_their_own(harness: CNINodeHarness, folder: Path) -> None:
    further = ContainerInterface(ifname="net1")
    for container in (DEFAULT_CONTAINER, SECOND, further):
        harness.add(container)
    assert files(folder)["10.9.0.4"] == "c1\r\nnet1"
    harness.run("DEL")
    assert sorted(files(folder)) == ["10.9.0.3", "10.9.0.4", "fd09::3", "fd09::4"]


def test_an_add_that_is_repeated_after_a_crash_gets_the_same_addresses(harness: CNINodeHarness, folder: Path) -> None:
    first = harness.add()
    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    assert harness.add().ips == first.ips
    assert len(files(folder)) == 2


def test_an_address_that_is_asked_for(harness: CNINodeHarness, folder: Path) -> None:
    result = harness.add(ContainerInterface(args="IP=10.9.0.42"))
    assert [str(ip.address) for ip in result.ips] == ["10.9.0.42", "fd09::2"]
    with pytest.raises(AddressHeld, match=r"10\.9\.0\.42 is held by container c1"):
        harness.add(ContainerInterface(id="c2", netns="/run/netns/c2", args="IP=10.9.0.42"))
    assert len(files(folder)) == 2
    again = harness.add(SECOND, runtimeConfig={"ips": ["fd09::77/64"]}, args={"cni": {"ips": ["10.9.0.9"]}})
    assert [str(ip.address) for ip in again.ips] == ["10.9.0.9", "fd09::77"]


def test_the_routes_and_name_servers_of_the_configuration(harness: CNINodeHarness, folder: Path) -> None:
    harness.host.texts["/etc/pods.conf"] = "nameserver 192.0.2.53\n"
    routes = [{"dst": "10.0.0.0/8", "gw": "10.9.0.1"}, {"dst": "fd00::/8"}]
    keys = ipam(folder, subnet="10.9.0.0/24", routes=routes, resolvConf="/etc/pods.conf")
    result = harness.add(ipam=keys)
    hop = Address.parse("169.254.1.1")
    assert result.dns == DNS(nameservers=("192.0.2.53",))
    assert result.routes == (CNIRoute(destination=Prefix.parse("10.0.0.0/8"), gateway=hop),)
    harness.check(DEFAULT_CONTAINER, result, ipam=keys)
    both = harness.add(SECOND, ipam=keys, include_default_routes=True)
    assert [str(route.destination) for route in both.routes] == ["0.0.0.0/0", "10.0.0.0/8"]


@pytest.mark.parametrize(
    "text,reason",
    [(None, "a file that exists"), (PermissionError("denied"), "denied")],
)
def test_name_servers_that_cannot_be_read(
    harness: CNINodeHarness, folder: Path, text: OSError | None, reason: str
) -> None:
    """STATUS says the same: every ADD would fail, until the file is there."""
    if text is not None:
        harness.host.texts["/etc/pods.conf"] = text
    keys = ipam(folder, subnet="10.9.0.0/24", resolvConf="/etc/pods.conf")
    expected = rf"ipam\.resolvConf: '/etc/pods\.conf' is not accepted; {reason}"
    with pytest.raises(ConfigurationError, match=expected) as refused:
        harness.add(ipam=keys)
    assert not folder.exists()
    with pytest.raises(UnhealthyStatus) as unhealthy:
        harness.run("STATUS", ipam=keys)
    assert (unhealthy.value.code, str(refused.value) in str(unhealthy.value)) == (50, True)
    harness.host.texts["/etc/pods.conf"] = ""
    harness.run("STATUS", ipam=keys)


def test_check_90_91_the_pod_cidrs_of_the_node(harness: CNINodeHarness, folder: Path) -> None:
    harness.pod_cidrs = (V4, V6)
    keys = ipam(folder, ranges=[[{"subnet": "usepodcidr"}], [{"subnet": "usePodCidrIPv6"}]])
    assert [str(ip.address) for ip in harness.add(ipam=keys).ips] == ["10.10.0.2", "fd10::2"]
    harness.run("STATUS", ipam=keys)
    harness.pod_cidrs = ()
    with pytest.raises(Unavailable, match=f"no podCidr for node {NODE}"):
        harness.add(SECOND, ipam=keys)
    with pytest.raises(UnhealthyStatus, match="no podCidr"):
        harness.run("STATUS", ipam=keys)
    harness.run("DEL", ipam=keys)
    assert files(folder) == {}


def test_a_bad_range_stops_an_add_and_never_a_teardown(harness: CNINodeHarness, folder: Path) -> None:
    bad = ipam(folder, subnet="10.9.0.0/32")
    harness.add()
    for command in ("ADD", "STATUS"):
        with pytest.raises(ConfigurationError, match=r"ipam\.subnet: '10\.9\.0\.0/32' is not accepted"):
            harness.add(SECOND, ipam=bad) if command == "ADD" else harness.run(command, ipam=bad)
    harness.run("DEL", ipam=bad)
    assert files(folder) == {}


@pytest.mark.parametrize("version", ["", "0.1.0", "0.2.0"])
def test_a_version_whose_result_has_one_address_of_a_family(
    harness: CNINodeHarness, folder: Path, version: str
) -> None:
    harness.config["cniVersion"] = version
    two = ipam(folder, ranges=[[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.8.0.0/24"}]])
    with pytest.raises(ConfigurationError, match=r"ranges\[1\]: .* leave one IPv4 range set"):
        harness.add(ipam=two)
    assert files(folder) == {}
    assert len(harness.add().ips) == 2
    assert len(harness.add(SECOND, ipam=two, cniVersion="0.3.0").ips) == 2


def test_a_gateway_of_another_family_stops_an_add_and_never_a_teardown(harness: CNINodeHarness, folder: Path) -> None:
    bad = ipam(folder, subnet="10.9.0.0/24", gateway="fd09::1")
    with pytest.raises(ConfigurationError, match=r"ipam\.gateway: 'fd09::1' is not accepted; an IPv4 address"):
        harness.add(SECOND, ipam=bad)
    assert not folder.exists()
    harness.add()
    harness.run("DEL", ipam=bad)
    assert files(folder) == {}


def test_full_ranges_leave_nothing(harness: CNINodeHarness, folder: Path) -> None:
    keys = ipam(folder, ranges=[[{"subnet": "fd09::/64"}], [{"subnet": "10.9.0.0/30"}]])
    harness.add(ipam=keys)
    with pytest.raises(RangesExhausted, match=r"no IP addresses available in range set: 10\.9\.0\.1-10\.9\.0\.2"):
        harness.add(SECOND, ipam=keys)
    assert sorted(files(folder)) == ["10.9.0.2", "fd09::2"]
    with pytest.raises(UnhealthyStatus, match="pools-exhausted: add a range"):
        harness.run("STATUS", ipam=keys)


def test_a_file_that_a_loss_of_power_left_empty_holds_its_address_until_no_other_is_left(
    harness: CNINodeHarness, folder: Path
) -> None:
    harness.config["ipam"] = ipam(folder, subnet="10.9.0.0/29")
    (folder / "net1").mkdir(parents=True)
    for last in (2, 4):
        (folder / "net1" / f"10.9.0.{last}").touch()
    given: list[str] = []
    for number in range(1, 6):
        result = harness.add(ContainerInterface(id=f"c{number}", netns=f"/run/netns/c{number}"))
        given.extend(str(ip.address) for ip in result.ips)
    assert given == ["10.9.0.3", "10.9.0.5", "10.9.0.6", "10.9.0.2", "10.9.0.4"]
    harness.run("STATUS", ipam=ipam(folder, subnet="10.9.0.0/28"))


def test_an_empty_file_that_another_program_is_about_to_fill_is_its_address(
    harness: CNINodeHarness, folder: Path
) -> None:
    """It holds the lock until it has written the text."""
    harness.config["ipam"] = ipam(folder, subnet="10.9.0.0/30")
    (folder / "net1").mkdir(parents=True)
    being_made = folder / "net1" / "10.9.0.2"
    with (folder / "net1" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        being_made.touch()
        with pytest.raises(Unavailable, match="another call holds the lock"):
            harness.add()
        being_made.write_text("other\r\neth0")
    with pytest.raises(RangesExhausted):
        harness.add()
    assert files(folder) == {"10.9.0.2": "other\r\neth0"}


def test_a_long_container_id_leaks_nothing(harness: CNINodeHarness, folder: Path) -> None:
    container = ContainerInterface(id="c" * 5001, netns="/run/netns/c2")
    harness.add(container)
    harness.run("DEL", container)
    assert files(folder) == {}


def test_without_the_note_of_the_boot_no_container_loses_its_address(harness: CNINodeHarness, folder: Path) -> None:
    """A clock that was set forward would make each file look older than the boot."""
    harness.config["ipam"] = ipam(folder, subnet="10.9.0.0/30")
    (folder / "net1" / ".netplug-boot").mkdir(parents=True)
    harness.add()
    harness.boot = Boot("next", 10_000_000_000_000_000_000)
    with pytest.raises(RangesExhausted):
        harness.add(SECOND)
    harness.run("DEL")
    harness.add(SECOND)


def test_the_address_of_a_container_that_ended_with_an_earlier_boot(harness: CNINodeHarness, folder: Path) -> None:
    harness.config["ipam"] = ipam(folder, subnet="10.9.0.0/30")
    harness.add()
    os.utime(folder / "net1" / "10.9.0.2", (1, 1))
    with pytest.raises(RangesExhausted):
        harness.add(SECOND)

    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    harness.boot = Boot("next", 10_000_000_000)
    harness.add(SECOND)
    assert files(folder) == {"10.9.0.2": "c2\r\neth0"}
    harness.run("DEL")
    assert files(folder) == {"10.9.0.2": "c2\r\neth0"}
    harness.boot = None
    with pytest.raises(RangesExhausted):
        harness.add(ContainerInterface(id="c3", netns="/run/netns/c3"))


def test_a_container_that_runs_loses_no_address_by_the_time_of_its_file(harness: CNINodeHarness, folder: Path) -> None:
    """The host's route to it is there, so the address cannot be attached a second time."""
    harness.config["ipam"] = ipam(folder, subnet="10.9.0.0/30")
    harness.boot = None
    harness.add()
    os.utime(folder / "net1" / "10.9.0.2", (1, 1))
    harness.boot = Boot("this", 10_000_000_000)
    with pytest.raises(RouteConflict):
        harness.add(SECOND)


def test_a_container_that_has_an_address_of_a_pool_releases_it(harness: CNINodeHarness, folder: Path) -> None:
    """The node's IPAM is changed while containers run."""
    harness.add_pool("main", "10.65.0.0/24")
    harness.add(ipam={"type": "netplug-ipam"})
    harness.add(SECOND)
    harness.run("DEL")
    harness.run("DEL", SECOND)
    assert files(folder) == {}
    harness.assert_nothing_left()

    harness.add(ipam={"type": "netplug-ipam"})
    harness.config["cni.dev/valid-attachments"] = []
    harness.run("GC")
    harness.assert_nothing_left()


def put_pod(harness: CNINodeHarness, **annotations: str) -> None:
    """The pod that the calls name, with annotations of netplug."""
    orchestrator = MemoryOrchestrator(clock=harness.clock)
    orchestrator.put_namespace(NamespaceFacts(name="test", uid=""))
    texts = tuple(sorted((f"cni.projectnetplug.org/{name}", text) for name, text in annotations.items()))
    orchestrator.put_pod(PodFacts(namespace="test", name="test-pod-1", uid="", node=NODE, annotations=texts))
    harness.orchestrator = orchestrator


def test_annotations_about_the_endpoint_work_and_those_about_addresses_are_refused(
    harness: CNINodeHarness, folder: Path
) -> None:
    put_pod(harness, hwAddr="ca:fe:ca:fe:ca:fe", floatingIPs='["192.0.2.9"]')
    result = harness.add(ContainerInterface(args=POD), feature_control={"floating_ips": True})
    assert result.interfaces[1].mac == "ca:fe:ca:fe:ca:fe"
    (endpoint,) = harness.endpoints()
    assert [str(nat.internal) for nat in endpoint.spec.ip_nats] == ["10.9.0.2"]
    harness.run("DEL", ContainerInterface(args=POD))

    for name, text in (("ipAddrs", '["10.9.0.7"]'), ("ipv4pools", '["main"]')):
        put_pod(harness, **{name: text})
        with pytest.raises(ConfigurationError, match=f"{name} is not compatible with configured IPAM: host-local"):
            harness.add(ContainerInterface(args=POD))
    assert files(folder) == {}


def test_gc_releases_what_is_not_listed(harness: CNINodeHarness, folder: Path) -> None:
    pod = ContainerInterface(args=POD)
    harness.add(pod)
    harness.add(SECOND)
    (folder / "net1" / "10.9.0.9").write_text("kept for the printer")
    harness.config["cni.dev/valid-attachments"] = [{"containerID": "c2", "ifname": "eth0"}]
    harness.run("GC")
    assert sorted(files(folder)) == ["10.9.0.3", "10.9.0.9", "fd09::3"]
    assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["c2"]
    assert harness.dataplane.names() == (
        host_interface_name(pod_namespace="", pod="", container_id="c2", ifname="eth0"),
    )


def test_check_says_what_is_not_held(harness: CNINodeHarness, folder: Path) -> None:
    result = harness.add()
    (folder / "net1" / "fd09::2").unlink()
    with pytest.raises(AddressesNotHeld, match="does not hold fd09::2"):
        harness.check(DEFAULT_CONTAINER, result)


@pytest.mark.parametrize("fault", [LostRace(), LostReply()])
def test_a_lost_race_or_reply_is_made_good(harness: CNINodeHarness, folder: Path, fault: Fault) -> None:
    harness.store = FaultyDatastore(harness.memory, {1: fault})
    harness.add()
    assert len(files(folder)) == 2
    assert len(harness.endpoints()) == 1


def test_a_store_that_is_away_leaves_nothing_of_an_add(harness: CNINodeHarness, folder: Path) -> None:
    harness.store = FaultyDatastore(harness.memory, {1: LostRequest()})
    with pytest.raises(Unavailable):
        harness.add()
    assert files(folder) == {}
    harness.assert_nothing_left()


def test_an_add_that_finds_its_files_and_fails_keeps_them_and_waits_for_no_lock(
    harness: CNINodeHarness, folder: Path
) -> None:
    """The ADD before it was killed between its files and the endpoint."""
    held, began = {"10.9.0.2": "c1\r\neth0", "fd09::2": "c1\r\neth0"}, harness.clock.monotonic()
    (folder / "net1").mkdir(parents=True)
    for name, text in held.items():
        (folder / "net1" / name).write_bytes(text.encode())
    (folder / "net1" / "lock").touch()
    with open(folder / "net1" / "lock", encoding="utf-8") as lock:

        def lock_folder_and_fail() -> None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            raise Unavailable("the store", "it went away")

        harness.store = FaultyDatastore(harness.memory, {1: RunBefore(lock_folder_and_fail)})
        with pytest.raises(Unavailable, match="it went away"):
            harness.add()
    assert files(folder) == held
    assert harness.clock.monotonic() == began


def test_a_del_without_the_store_is_finished_by_a_call_with_the_same_folder(
    harness: CNINodeHarness, folder: Path
) -> None:
    harness.store = FaultyDatastore(harness.memory, {2: LostRequest()})
    harness.add()
    harness.run("DEL")
    assert len(files(folder)) == 2
    harness.run("DEL", SECOND, ipam={"type": "netplug-ipam"})
    harness.run("DEL", SECOND, name="net2")
    assert len(files(folder)) == 2, "neither call knows the folder"
    harness.run("DEL", SECOND)
    assert files(folder) == {}
    harness.assert_nothing_left()


def test_a_dataplane_that_fails_leaves_nothing(harness: CNINodeHarness, folder: Path) -> None:
    def fail(effect: str) -> None:
        raise KernelError(effect, "Operation not permitted")

    harness.dataplane.before_effect = fail
    with pytest.raises(KernelError):
        harness.add()
    assert files(folder) == {}
    harness.assert_nothing_left()


def test_a_locked_cluster_leaves_nothing(harness: CNINodeHarness, folder: Path) -> None:
    harness.set_ready(is_ready=False)
    with pytest.raises(Unavailable, match="datastoreReady is false"):
        harness.add()
    assert files(folder) == {}
    with pytest.raises(UnhealthyStatus, match="datastoreReady is false"):
        harness.run("STATUS")
    harness.set_ready(is_ready=True)
    harness.add()
    harness.run("STATUS")


def test_the_mtu_has_to_carry_the_families_of_the_ranges(harness: CNINodeHarness, folder: Path) -> None:
    with pytest.raises(LimitedConnectivity, match=r"the MTU 1200 is too small for IPv6, which needs 1280$"):
        harness.run("STATUS", mtu=1200)
    with pytest.raises(ConfigurationError, match=r"the MTU 1200 is too small for IPv6, which needs 1280$"):
        harness.add(mtu=1200)
    assert files(folder) == {}
    harness.assert_nothing_left()
    harness.run("STATUS", mtu=1200, ipam=ipam(folder, subnet="10.9.0.0/24"))
