"""GC: what the runtime does not list goes; what it lists, and what is not this node's and network's, stays."""

import pytest

from netplug_core.cni.dispatch import Plugin
from netplug_core.errors import Unavailable
from netplug_core.log import Level
from netplug_core.testing.faults import FaultyDatastore, LostRequest
from tests.harness.cni_node import DUAL_STACK, POD, CNINodeHarness, ContainerInterface

ONE = ContainerInterface(id="one", netns="/run/netns/one")
TWO = ContainerInterface(id="two", netns="/run/netns/two", ifname="net0", args=POD)
BRIDGE = {"type": "bridge", "nodename": "node-1"}


def listed(*containers: ContainerInterface) -> dict[str, object]:
    return {"cni.dev/valid-attachments": [{"containerID": c.id, "ifname": c.ifname} for c in containers]}


def collect(
    harness: CNINodeHarness, *containers: ContainerInterface, plugin: Plugin = Plugin.MAIN, **changes: object
) -> None:
    assert harness.run("GC", ContainerInterface(), plugin, **listed(*containers), **changes) is None


def test_check_100_what_is_not_listed_goes(bench: CNINodeHarness) -> None:
    kept = bench.add(ONE)
    bench.add(TWO, ipam=DUAL_STACK)
    collect(bench, ONE)
    assert bench.handles() == ["net1.one"]
    assert [endpoint.spec.container_id for endpoint in bench.endpoints()] == ["one"]
    bench.check(ONE, kept)
    assert bench.log.lines[-1] == (Level.INFO, "leaked attachment given back", {"container": "two", "node": "node-1"})


def test_the_interface_counts_too(bench: CNINodeHarness) -> None:
    bench.add(ONE)
    bench.add(ContainerInterface(id="one", netns=ONE.netns, ifname="net0"))
    collect(bench, ONE)
    assert bench.handles() == ["net1.one"]


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_check_100_an_empty_list_frees_everything_of_this_node_and_network(bench: CNINodeHarness, key: str) -> None:
    bench.add(ONE)
    bench.add(TWO)
    bench.add(ContainerInterface(id="far", netns="/run/netns/far"), nodename="node-2")
    bench.add(ContainerInterface(id="other", netns="/run/netns/other"), name="net2")
    bench.run("GC", ONE, Plugin.MAIN, **{key: []})
    assert bench.handles() == ["net1.far", "net2.other"]
    assert sorted(endpoint.spec.container_id for endpoint in bench.endpoints()) == ["far", "other"]


@pytest.mark.parametrize("changes", [{}, {"cni.dev/valid-attachments": None}, {"cni.dev/attachments": None}])
@pytest.mark.parametrize("plugin", list(Plugin))
def test_check_100_without_a_list_nothing_is_freed(
    bench: CNINodeHarness, plugin: Plugin, changes: dict[str, object]
) -> None:
    bench.add(ONE)
    bench.run("GC", ONE, plugin, **changes)
    assert bench.handles() == ["net1.one"]
    assert bench.log.of(Level.WARNING) == ["GC without a list of valid attachments: nothing is done"]


def test_the_runtimes_interfaces_are_left_alone(bench: CNINodeHarness) -> None:
    bench.add(ONE)
    collect(bench)
    assert bench.dataplane.names(ONE.netns) == ("eth0",)


def test_a_pods_next_container_keeps_its_endpoint(bench: CNINodeHarness) -> None:
    old = ContainerInterface(id="old", netns="/run/netns/old", args=POD)
    new = ContainerInterface(id="new", netns="/run/netns/new", args=POD)
    bench.add(old)
    result = bench.add(new)
    collect(bench, new)
    assert bench.handles() == ["net1.new"]
    bench.check(new, result)
    assert [endpoint.spec.container_id for endpoint in bench.endpoints()] == ["new"]


def test_a_second_time_there_is_nothing_to_do(bench: CNINodeHarness) -> None:
    bench.add(ONE)
    collect(bench)
    commits = bench.memory.calls.commits
    collect(bench)
    assert bench.memory.calls.commits == commits
    assert (bench.handles(), bench.endpoints()) == ([], [])


def test_everything_is_tried_before_a_failure_is_told(bench: CNINodeHarness) -> None:
    for name in ("one", "three", "two"):
        bench.add(ContainerInterface(id=name, netns=f"/run/netns/{name}"))
    bench.store = FaultyDatastore(bench.memory, {1: LostRequest(), 3: LostRequest()})
    with pytest.raises(Unavailable) as refusal:
        collect(bench)
    lost = "the scripted datastore: the request was lost"
    assert (refusal.value.code, str(refusal.value)) == (
        11,
        f"GC: one/eth0: {lost}; two/eth0: {lost}",
    )
    assert bench.handles() == ["net1.one", "net1.two"]


def test_a_locked_cluster_means_try_again(bench: CNINodeHarness) -> None:
    bench.add(ONE)
    bench.set_ready()
    with pytest.raises(Unavailable, match=r"^GC: one/eth0: ClusterInformation default: .* locked$"):
        collect(bench)


@pytest.mark.parametrize("changes", [{"policy": {"type": "k8s"}}, {"mtu": -1}, {"ipam": {"type": "host-local"}}])
def test_a_setting_that_gc_does_not_use_stops_nothing(bench: CNINodeHarness, changes: dict[str, object]) -> None:
    bench.add(ONE)
    collect(bench, plugin=Plugin.MAIN, **changes)
    assert bench.handles() == []


def test_netplug_ipam_collects_under_another_main_plugin(bench: CNINodeHarness) -> None:
    for container in (ONE, TWO):
        bench.run("ADD", container, Plugin.IPAM, **BRIDGE)
    collect(bench, TWO, plugin=Plugin.IPAM, **BRIDGE)
    assert bench.handles() == ["net1.two.net0"]
