"""GC: what the runtime does not list goes; what it lists, and what is not this node's and network's, stays."""

import pytest

from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.protocol import KernelError
from netplug_core.datastore.protocol import CALL_TIMEOUT_S
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.cni.status import GC_S
from netplug_core.ipam.model import handle_key
from netplug_core.log import Level
from netplug_core.names import attachment_lock_offset
from netplug_core.records import Delete, Get
from netplug_core.testing.faults import FaultyDatastore, LostRequest
from tests.harness.cni_node import DUAL_STACK, LOCK_FILE, POD, CNINodeHarness, ContainerInterface
from tests.harness.stores import HookedStore

ONE = ContainerInterface(id="one", netns="/run/netns/one")
TWO = ContainerInterface(id="two", netns="/run/netns/two", ifname="net0", args=POD)
BRIDGE = {"type": "bridge", "nodename": "node-1"}


def listed(*containers: ContainerInterface) -> dict[str, object]:
    return {"cni.dev/valid-attachments": [{"containerID": c.id, "ifname": c.ifname} for c in containers]}


def collect(
    harness: CNINodeHarness, *containers: ContainerInterface, plugin: Plugin = Plugin.MAIN, **changes: object
) -> None:
    assert harness.run("GC", ContainerInterface(), plugin, **listed(*containers), **changes) is None


def test_check_100_what_is_not_listed_goes(harness: CNINodeHarness) -> None:
    kept = harness.add(ONE)
    harness.add(TWO, ipam=DUAL_STACK)
    collect(harness, ONE)
    assert harness.handles() == ["net1.one"]
    assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["one"]
    harness.check(ONE, kept)
    level, message, fields = harness.log.lines[-1]
    assert (level, message) == (Level.INFO, "leaked attachment released")
    assert fields == {"container": "two", "node": "node-1", "addresses": "10.65.0.1,fd00:65::80"}


def remove_handle(harness: CNINodeHarness, handle: str) -> None:
    record = harness.memory.read((Get(handle_key(handle)),), deadline=Deadline.after(harness.clock, 5)).find(
        handle_key(handle)
    )
    assert record is not None
    harness.commit(Delete(record.key, record.revision))


def test_an_address_that_no_handle_leads_to_is_released_after_its_interface(harness: CNINodeHarness) -> None:
    """GC said that it had given it back, and freed nothing."""
    harness.add(ONE)
    remove_handle(harness, "net1.one")
    effects: list[tuple[str, int]] = []
    harness.dataplane.before_effect = lambda effect: effects.append((effect, len(harness.allocations())))
    collect(harness)
    assert harness.allocations() == {}
    assert [held for _effect, held in effects] == [1]
    assert harness.log.lines[-1][2]["addresses"] == "10.65.0.0"
    assert harness.dataplane.names(ONE.netns) == ()


def test_an_attachment_that_a_del_released_meanwhile_is_not_reported_as_released(harness: CNINodeHarness) -> None:
    harness.add(ONE)
    waiting = [ONE]
    harness.store = HookedStore(inner=harness.memory)
    harness.store.after_read = lambda: harness.run("DEL", waiting.pop()) if waiting else None
    collect(harness)
    assert [line[1] for line in harness.log.lines[-2:]] == [
        "container detached", "leaked attachment holds nothing any more",
    ]  # fmt: skip


def test_the_interface_counts_too(harness: CNINodeHarness) -> None:
    harness.add(ONE)
    harness.add(ContainerInterface(id="one", netns=ONE.netns, ifname="net0"))
    collect(harness, ONE)
    assert harness.handles() == ["net1.one"]


@pytest.mark.parametrize("empty", [[], None])
@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_check_100_an_empty_list_frees_everything_of_this_node_and_network(
    harness: CNINodeHarness, key: str, empty: object
) -> None:
    """Runtimes in Go write an empty list as null: after a restart of a host, which GC is for, there is no container."""
    harness.add(ONE)
    harness.add(TWO)
    harness.add(ContainerInterface(id="far", netns="/run/netns/far"), nodename="node-2")
    harness.add(ContainerInterface(id="other", netns="/run/netns/other"), name="net2")
    harness.run("GC", ONE, Plugin.MAIN, **{key: empty})
    assert harness.handles() == ["net1.far", "net2.other"]
    assert sorted(endpoint.spec.container_id for endpoint in harness.endpoints()) == ["far", "other"]


@pytest.mark.parametrize("plugin", list(Plugin))
def test_check_100_without_a_list_nothing_is_freed(harness: CNINodeHarness, plugin: Plugin) -> None:
    harness.add(ONE)
    harness.run("GC", ONE, plugin)
    assert harness.handles() == ["net1.one"]
    assert harness.log.of(Level.WARNING) == ["GC without a list of valid attachments: nothing is freed"]


@pytest.mark.parametrize("value", [True, "True"])
@pytest.mark.parametrize("plugin", list(Plugin))
def test_gc_that_the_list_disables_frees_nothing_and_says_so(
    harness: CNINodeHarness, plugin: Plugin, value: object
) -> None:
    harness.add(ONE)
    collect(harness, plugin=plugin, disableGC=value)
    assert harness.handles() == ["net1.one"]
    assert harness.log.lines[-1] == (Level.INFO, "GC does nothing: disableGC is true", {"network": "net1"})
    collect(harness, plugin=plugin, disableGC=False)
    assert harness.handles() == []


def test_the_interface_goes_first(harness: CNINodeHarness) -> None:
    """If it cannot be removed, its address stays held, and the next attachment is tried."""
    harness.add(ONE)
    harness.add(TWO)

    def refuse(effect: str) -> None:
        raise KernelError(effect, "Device or resource busy")

    harness.dataplane.before_effect = refuse
    with pytest.raises(Unavailable, match=r"^GC: one/eth0: removing 'netp.*': Device .* busy; two/net0: removing "):
        collect(harness)
    assert harness.handles() == ["net1.one", "net1.two.net0"]
    harness.dataplane.before_effect = lambda effect: None
    collect(harness)
    harness.assert_nothing_left()
    assert (harness.dataplane.names(ONE.netns), harness.dataplane.names(TWO.netns)) == ((), ())


def test_netplug_ipam_leaves_the_interfaces_to_the_main_plugin(harness: CNINodeHarness) -> None:
    harness.add(ONE)
    collect(harness, plugin=Plugin.IPAM)
    assert (harness.handles(), harness.dataplane.names(ONE.netns)) == ([], ("eth0",))


def test_a_pods_next_container_keeps_its_endpoint(harness: CNINodeHarness) -> None:
    old = ContainerInterface(id="old", netns="/run/netns/old", args=POD)
    new = ContainerInterface(id="new", netns="/run/netns/new", args=POD)
    harness.add(old)
    result = harness.add(new)
    collect(harness, new)
    assert harness.handles() == ["net1.new"]
    harness.check(new, result)
    assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["new"]


def test_a_second_time_there_is_nothing_to_do(harness: CNINodeHarness) -> None:
    harness.add(ONE)
    collect(harness)
    commits = harness.memory.calls.commits
    collect(harness)
    assert harness.memory.calls.commits == commits
    assert (harness.handles(), harness.endpoints()) == ([], [])


def test_everything_is_tried_before_a_failure_is_raised(harness: CNINodeHarness) -> None:
    for name in ("one", "three", "two"):
        harness.add(ContainerInterface(id=name, netns=f"/run/netns/{name}"))
    harness.store = FaultyDatastore(harness.memory, {1: LostRequest(), 3: LostRequest()})
    with pytest.raises(Unavailable) as refusal:
        collect(harness)
    lost = "the scripted datastore: the request was lost"
    assert (refusal.value.code, str(refusal.value)) == (
        11,
        f"GC: one/eth0: {lost}; two/eth0: {lost}",
    )
    assert harness.handles() == ["net1.one", "net1.two"]


def test_a_locked_cluster_means_try_again(harness: CNINodeHarness) -> None:
    harness.add(ONE)
    harness.set_ready()
    with pytest.raises(Unavailable, match=r"^GC: one/eth0: ClusterInformation default: .* locked$"):
        collect(harness)


@pytest.mark.parametrize("changes", [{"policy": {"type": "k8s"}}, {"mtu": -1}, {"ipam": {"type": "host-local"}}])
def test_a_setting_that_gc_does_not_use_stops_nothing(harness: CNINodeHarness, changes: dict[str, object]) -> None:
    harness.add(ONE)
    collect(harness, plugin=Plugin.MAIN, **changes)
    assert harness.handles() == []


def test_netplug_ipam_collects_under_another_main_plugin(harness: CNINodeHarness) -> None:
    for container in (ONE, TWO):
        harness.run("ADD", container, Plugin.IPAM, **BRIDGE)
    collect(harness, TWO, plugin=Plugin.IPAM, **BRIDGE)
    assert harness.handles() == ["net1.two.net0"]


@pytest.mark.parametrize("plugin", list(Plugin))
def test_an_attachment_that_another_call_works_on_is_reported(harness: CNINodeHarness, plugin: Plugin) -> None:
    harness.add(ONE)
    harness.add(TWO)
    harness.host.locks.try_lock(LOCK_FILE, attachment_lock_offset("net1", "one", "eth0"))
    with pytest.raises(Unavailable, match=r"^GC: one/eth0: another call is at work .* within 2 s; repeat this call"):
        collect(harness, plugin=plugin, **(BRIDGE if plugin is Plugin.IPAM else {}))
    assert harness.handles() == ["net1.one"]


@pytest.mark.parametrize("plugin", list(Plugin))
def test_a_machine_without_a_name_of_its_own_frees_nothing(harness: CNINodeHarness, plugin: Plugin) -> None:
    """Another machine with that name may have assigned what is stored under it."""
    harness.add(ONE, nodename="localhost")
    harness.host.name = "localhost"
    with pytest.raises(ConfigurationError, match="set nodename"):
        collect(harness, plugin=plugin, **({"type": "bridge"} if plugin is Plugin.IPAM else {}), nodename=None)
    assert harness.handles() == ["net1.one"]


def test_a_store_that_goes_away_ends_a_gc_in_time(harness: CNINodeHarness) -> None:
    """Each release waits for the store's time-out; the rest is left to the next GC."""
    for number in range(20):
        harness.add(ContainerInterface(id=f"c{number:02}", netns=f"/run/netns/{number}"))
    store = HookedStore(harness.memory)

    def time_out() -> None:
        harness.clock.sleep(CALL_TIMEOUT_S)
        raise Unavailable("the store", "it is away")

    def go_away() -> None:
        store.before_read = time_out

    store.after_read = go_away
    harness.store = store
    with pytest.raises(Unavailable, match=r"c00/eth0: the store: it is away; .*; 8 more were not tried within 60 s$"):
        collect(harness)
    assert harness.clock.monotonic() == GC_S
    harness.store = harness.memory
    collect(harness)
    harness.assert_nothing_left()
