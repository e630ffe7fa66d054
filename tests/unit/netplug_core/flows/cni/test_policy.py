"""What an ADD does about policy: it closes the node for pods, and waits until that of its own is programmed."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.dataplane import MemoryDataplane
from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.filter import guard_table
from netplug_core.dataplane.protocol import KernelError, Link
from netplug_core.dataplane.ruleset import PacketTable
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.errors import UnhealthyStatus
from netplug_core.flows.cni.add import DeletedMeanwhile
from netplug_core.flows.cni.call import link_between
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.workload import EndpointStatus, WorkloadIdentity, render_status, status_file_of
from tests.harness.cni_node import BOOT_ID, DEFAULT_CONTAINER, DUAL_STACK, NODE, POD, CNINodeHarness, ContainerInterface

WORKLOAD = ContainerInterface(args=POD)
OTHER = ContainerInterface(id="c0", netns="/run/netns/c0")


def identity(container: ContainerInterface = WORKLOAD) -> WorkloadIdentity:
    return WorkloadIdentity(
        node=NODE,
        network="net1",
        container_id=container.id,
        interface=container.ifname,
        pod="test-pod-1",
        pod_namespace="test",
    )


LINK = link_between(identity(), WORKLOAD.netns)
PATH = f"{NetConf().endpoint_status_dir}/{status_file_of(identity())}"


def status_of(container: ContainerInterface, *addresses: str, boot_id: str = BOOT_ID) -> str:
    held = tuple(map(Address.parse, addresses))
    return render_status(EndpointStatus.expected_by(identity(container), held, boot_id=boot_id))


def write_status(harness: CNINodeHarness, *addresses: str, container: ContainerInterface = WORKLOAD) -> None:
    """What the node process writes when the policy of an endpoint is programmed."""
    harness.host.texts[PATH] = status_of(container, *addresses)


def at(harness: CNINodeHarness, seconds: float, act: Callable[[], object]) -> None:
    """Let the node process do something when so many seconds have passed; no lock is held at any look at the file."""

    def look(path: str) -> None:
        if path == PATH:
            assert harness.host.locks.held == frozenset()
            if harness.clock.monotonic() >= seconds:
                act()

    harness.host.before_read = look


def held_addresses(harness: CNINodeHarness) -> list[str]:
    return [str(address) for address in harness.allocations()]


def warnings(harness: CNINodeHarness) -> list[tuple[str, object]]:
    return [(text, fields["cause"]) for level, text, fields in harness.log.lines if level is Level.WARNING]


LATE = "policy is not programmed in time: the pod starts all the same"


def test_check_97_the_pod_starts_when_its_policy_is_programmed(harness: CNINodeHarness) -> None:
    at(harness, 1.0, lambda: write_status(harness, *held_addresses(harness)))
    added = harness.add(WORKLOAD, ipam=DUAL_STACK, policy_setup_timeout_seconds=3)
    assert 1.0 <= harness.clock.monotonic() < 1.2
    assert len(added.ips) == 2
    assert warnings(harness) == []
    assert harness.log.of(Level.INFO)[-2:] == ["waiting for policy", "policy is programmed"]


def test_policy_that_is_programmed_already_is_not_waited_for(harness: CNINodeHarness) -> None:
    at(harness, 0.0, lambda: write_status(harness))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0
    assert "waiting for policy" not in harness.log.of(Level.INFO)


def test_check_97_after_the_time_the_pod_starts_with_a_warning(harness: CNINodeHarness) -> None:
    at(harness, 0.0, lambda: None)
    harness.add(WORKLOAD, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == pytest.approx(3.0, abs=1e-6)
    assert warnings(harness) == [(LATE, "there is no such file")]
    assert len(harness.endpoints()) == 1


@pytest.mark.parametrize(
    "found, cause",
    [
        ("", "the file: it is not whole, or not JSON"),
        ('{"containerID": "c1", "ifaceNa', "the file: it is not whole, or not JSON"),
        (IsADirectoryError(21, "Is a directory"), "[Errno 21] Is a directory"),
        (OSError(27, "larger than 1048576 bytes"), "[Errno 27] larger than 1048576 bytes"),
    ],
)
def test_a_file_that_says_nothing_is_as_none(harness: CNINodeHarness, found: str | OSError, cause: str) -> None:
    harness.host.texts[PATH] = found
    harness.add(WORKLOAD, policy_setup_timeout_seconds=1)
    assert warnings(harness) == [(LATE, cause)]


def test_the_file_of_an_earlier_container_of_the_pod_is_waited_out(harness: CNINodeHarness) -> None:
    write_status(harness, container=ContainerInterface(id="c0"))
    at(harness, 2.0, lambda: write_status(harness))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=5)
    assert 2.0 <= harness.clock.monotonic() < 2.2
    harness.run("DEL", WORKLOAD)
    harness.host.texts[PATH] = status_of(ContainerInterface(id="c0"))
    at(harness, 99.0, lambda: None)
    harness.add(WORKLOAD, policy_setup_timeout_seconds=5)
    assert warnings(harness) == [(LATE, "it names the container 'c0'")]


def test_the_file_of_an_earlier_attachment_of_the_container_is_waited_out(harness: CNINodeHarness) -> None:
    write_status(harness, "10.65.0.99")
    harness.add(WORKLOAD, policy_setup_timeout_seconds=1)
    (address,) = held_addresses(harness)
    assert warnings(harness) == [(LATE, f"it does not have the address {address}/32")]


@pytest.mark.parametrize("container", [DEFAULT_CONTAINER, ContainerInterface(ifname="eth1")], ids=["eth0", "eth1"])
def test_a_container_that_is_no_pods_is_not_held_back(harness: CNINodeHarness, container: ContainerInterface) -> None:
    harness.add(container, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0
    assert harness.log.of(Level.WARNING) == []


def test_an_interface_without_an_endpoint_is_not_held_back(harness: CNINodeHarness) -> None:
    harness.memory.description = evolve(harness.memory.description, endpoints=EndpointStorage.PODS)
    harness.add(ContainerInterface(ifname="eth1", args=POD), policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0


def test_the_folder_of_the_configuration_counts(harness: CNINodeHarness) -> None:
    write_status(harness)
    harness.host.texts = {
        path.replace(NetConf().endpoint_status_dir, "/s"): x for path, x in harness.host.texts.items()
    }
    harness.add(WORKLOAD, policy_setup_timeout_seconds=3, endpoint_status_dir="/s")
    assert harness.clock.monotonic() == 0.0


def test_a_time_beyond_all_bounds_is_served(harness: CNINodeHarness) -> None:
    at(harness, 1.0, lambda: write_status(harness))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=10**400)
    assert 1.0 <= harness.clock.monotonic() < 1.2


def test_the_file_of_an_earlier_boot_is_waited_out(harness: CNINodeHarness) -> None:
    at(harness, 0.0, lambda: harness.host.texts.update({PATH: status_of(WORKLOAD, boot_id="earlier")}))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=1)
    assert warnings(harness) == [(LATE, "it was written before this machine was started again")]


def test_a_delete_during_the_wait_ends_it(harness: CNINodeHarness) -> None:
    """It is not kept away, and the ADD fails and leaves nothing."""
    at(harness, 1.0, lambda: harness.run("DEL", WORKLOAD))
    with pytest.raises(DeletedMeanwhile) as raised:
        harness.add(WORKLOAD, policy_setup_timeout_seconds=60)
    harness.host.before_read = lambda _path: None
    assert raised.value.code == 11
    assert harness.clock.monotonic() == pytest.approx(1.0, abs=1e-6)
    assert harness.log.of(Level.WARNING) == []
    harness.assert_nothing_left()


def test_an_interface_that_is_gone_without_a_del_takes_its_addresses_along(harness: CNINodeHarness) -> None:
    at(harness, 1.0, lambda: harness.dataplane.remove(LINK, deadline=Deadline.after(harness.clock, 1)))
    with pytest.raises(DeletedMeanwhile):
        harness.add(WORKLOAD, policy_setup_timeout_seconds=60)
    harness.host.before_read = lambda _path: None
    harness.assert_nothing_left()


def test_what_a_later_add_has_made_stays(harness: CNINodeHarness) -> None:
    """The attachment was deleted and made again before the first ADD could roll back."""

    def replace() -> None:
        harness.host.before_read = lambda _path: None
        harness.run("DEL", WORKLOAD)
        harness.host.before_lock = add_again

    def add_again() -> None:
        harness.host.before_lock = lambda: None
        harness.add(WORKLOAD)

    at(harness, 1.0, replace)
    with pytest.raises(DeletedMeanwhile):
        harness.add(WORKLOAD, policy_setup_timeout_seconds=60)
    assert len(harness.endpoints()) == len(harness.allocations()) == 1


def test_a_kernel_that_does_not_answer_ends_no_wait(harness: CNINodeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_dataplane: MemoryDataplane, _link: Link) -> bool:
        raise KernelError("looking for an interface", "no buffer space")

    monkeypatch.setattr(MemoryDataplane, "has_host_end", fail)
    at(harness, 1.0, lambda: write_status(harness))
    harness.add(WORKLOAD, policy_setup_timeout_seconds=60)
    assert harness.clock.monotonic() == pytest.approx(1.0, abs=1e-6)


def test_no_other_command_is_held_back(harness: CNINodeHarness) -> None:
    added = harness.add(WORKLOAD)
    harness.check(WORKLOAD, added, policy_setup_timeout_seconds=3)
    harness.run("STATUS", WORKLOAD, policy_setup_timeout_seconds=3)
    harness.run("DEL", WORKLOAD, policy_setup_timeout_seconds=3)
    harness.run("ADD", ContainerInterface(id="c2", args=POD), Plugin.IPAM, policy_setup_timeout_seconds=3)
    assert harness.clock.monotonic() == 0.0


# --- the guard --------------------------------------------------------------------------------------------------------


def test_the_first_add_makes_the_guard_before_its_link(harness: CNINodeHarness) -> None:
    links: list[tuple[str, ...]] = []
    harness.guard.on_look = lambda: links.append(harness.dataplane.names())
    harness.add(WORKLOAD, policy_guard=True)
    assert harness.guard.table == guard_table()
    assert links == [()]
    assert harness.log.of(Level.INFO)[0] == "no pod passes anything until its policy is programmed"
    assert harness.log.of(Level.WARNING) == []


def test_a_table_that_is_there_stays_as_it_is(harness: CNINodeHarness) -> None:
    harness.guard.table = programmed = PacketTable(name="netplug")
    harness.add(WORKLOAD, policy_guard=True)
    assert harness.guard.table is programmed
    assert harness.log.of(Level.WARNING) == []


def test_p_49_without_the_key_nothing_is_looked_at(harness: CNINodeHarness) -> None:
    harness.guard.unreadable = "it must not be asked"
    harness.add(WORKLOAD)
    assert harness.guard.table is None


def test_running_pods_without_a_table_are_not_cut_off(harness: CNINodeHarness) -> None:
    harness.add(OTHER)
    harness.add(WORKLOAD, policy_guard=True)
    assert harness.guard.table is None
    assert harness.log.of(Level.WARNING) == [
        "policy is not enforced: pods run on this node without its table, so no guard is made"
    ]


def test_a_table_that_comes_between_the_two_looks_is_no_problem(harness: CNINodeHarness) -> None:
    """Another ADD made it, and its link after it."""
    harness.add(OTHER)
    looks = iter((None, PacketTable(name="netplug")))

    def look() -> None:
        harness.guard.table = next(looks)

    harness.guard.on_look = look
    harness.add(WORKLOAD, policy_guard=True)
    assert harness.log.of(Level.WARNING) == []


@pytest.mark.parametrize("problem", [{"problem": "no library"}, {"unreadable": "no nftables"}])
def test_without_the_guard_the_add_fails_and_leaves_nothing(harness: CNINodeHarness, problem: dict[str, str]) -> None:
    for name, text in problem.items():
        setattr(harness.guard, name, text)
    with pytest.raises(KernelError) as raised:
        harness.add(WORKLOAD, policy_guard=True)
    assert raised.value.code == 123
    harness.assert_nothing_left()


def test_a_del_needs_no_guard(harness: CNINodeHarness) -> None:
    harness.add(WORKLOAD)
    harness.guard.problem = harness.guard.unreadable = "nothing works"
    harness.run("DEL", WORKLOAD, policy_guard=True)
    harness.assert_nothing_left()


@pytest.mark.parametrize(
    "found, text",
    [
        ({"unreadable": "no nftables"}, "looking for the table of policy: no nftables"),
        ({"problem": "no library"}, "no library"),
    ],
)
def test_status_says_what_every_add_would(harness: CNINodeHarness, found: dict[str, str], text: str) -> None:
    for name, problem in found.items():
        setattr(harness.guard, name, problem)
    with pytest.raises(UnhealthyStatus) as raised:
        harness.run("STATUS", policy_guard=True)
    assert str(raised.value) == text
    harness.run("STATUS")


def test_status_of_a_node_with_the_table_or_with_pods(harness: CNINodeHarness) -> None:
    """Then no ADD makes a table, so nothing is missing."""
    harness.run("STATUS", policy_guard=True)
    harness.guard.problem = "no library"
    harness.add(ContainerInterface(id="c0"))
    harness.run("STATUS", policy_guard=True)
    harness.run("DEL", ContainerInterface(id="c0"))
    harness.guard.table = PacketTable(name="netplug")
    harness.run("STATUS", policy_guard=True)
    assert harness.guard.table == PacketTable(name="netplug")
