"""Calls that die: killed by SIGKILL right after each of their effects, and what the runtime does next puts it right.

Each effect's victim has a pod of its own; beside them lives one container that must never notice anything. Everywhere
with the node's own file; with a real etcd and a real API server where they differ from it.
"""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from netplug_core.datastore.protocol import Atomicity
from tests.harness.kill_scene import (
    STORE_WRITES,
    KillScene,
    all_numbers,
    numbers_without_repeated_settings,
    open_kill_scene,
    outage,
    release_records,
    run_in_parallel,
)
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore, on_every_atomicity, on_every_datastore
from tests.harness.waiting import is_eventually, wait_until

pytestmark = pytest.mark.netns


def choose_numbers(effects: list[str], plugin_datastore: PluginDatastore) -> list[int]:
    """The numbers of the effects after which calls die.

    In a deep run these are all effects. Otherwise, of the settings of the kernel that follow each other only the last;
    and with a server every write to the store, and of each other kind of effect the first and the last.
    """
    if IS_DEEP:
        return all_numbers(effects)
    numbers = numbers_without_repeated_settings(effects)
    if plugin_datastore.name == "sqlite":
        return numbers
    first = {effects[n - 1]: n for n in reversed(numbers)}
    last = {effects[n - 1]: n for n in numbers}
    return [n for n in numbers if effects[n - 1] in STORE_WRITES or n in {first[effects[n - 1]], last[effects[n - 1]]}]


@pytest.fixture(params=["ipv4"])
def scene(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore, request: pytest.FixtureRequest
) -> KillScene:
    """A node with one container on it, whose calls are for one family or for both."""
    return open_kill_scene(node, runtime, plugin_datastore, is_dual_stack=request.param == "dual-stack")


@pytest.fixture
def effects(scene: KillScene) -> list[str]:
    """What an ADD does to the world, in order: surely some of everything."""
    pod = scene.pod()
    found = scene.run_to_end("ADD", pod)
    scene.delete(pod)
    counted = Counter(found)
    assert counted[scene.plugin_datastore.commit_function] >= scene.plugin_datastore.min_commits, counted
    assert counted["NetlinkSocket.send"] >= 5, counted
    assert counted["write_sysctl"] >= 6, counted
    assert found[-1] == "serve", found
    return found


@on_every_datastore
@pytest.mark.parametrize("scene", ["dual-stack"], indirect=True)
def test_add_killed_anywhere_then_del(scene: KillScene, effects: list[str]) -> None:
    """After DEL no address, handle, endpoint, interface, route or setting is left."""
    numbers = choose_numbers(effects, scene.plugin_datastore)
    victims = scene.kill("ADD", effects, scene.victims(numbers))
    assert scene.plugin_datastore.store.held() != {f"net1.{scene.bystander.name}": scene.addresses}
    run_in_parallel(scene.delete, victims)

    assert [pod for pod in victims if scene.has_interface_left(pod)] == []
    scene.assert_clean()


def test_add_killed_anywhere_then_add(scene: KillScene, effects: list[str]) -> None:
    """Another ADD succeeds; once the interface is there it is refused as any second ADD is, until DEL."""
    _looked, made, *_later = (number for number in all_numbers(effects) if effects[number - 1] == "NetlinkSocket.send")
    *victims, last = scene.kill("ADD", effects, scene.victims(all_numbers(effects)[:made]))
    assert [scene.has_interface_left(pod) for pod in (*victims, last)] == [False] * len(victims) + [True]

    def again(pod: PodNamespace) -> None:
        reply = scene.add(pod)
        assert scene.plugin_datastore.store.held()[f"net1.{pod.name}"] == reply.addresses
        assert scene.node.can_ping("192.0.2.2", inside=pod.name)
        scene.delete(pod)

    run_in_parallel(again, victims)
    assert scene.runtime.call("ADD", scene.conf, last).code == 121
    scene.delete(last)
    again(last)
    scene.assert_clean()


@pytest.mark.parametrize("scene", ["dual-stack"], indirect=True)
def test_add_killed_anywhere_then_resumed(scene: KillScene, effects: list[str]) -> None:
    """It has the whole result, with the addresses that were held, and the interface works; a DEL leaves nothing."""
    numbers = numbers_without_repeated_settings(effects)
    victims = scene.kill("ADD", effects, scene.victims(numbers if IS_DEEP else numbers[::3]))
    held = scene.plugin_datastore.store.held()

    def again(pod: PodNamespace) -> None:
        reply = scene.resume(pod)
        assert [ip.partition(":")[1] for ip in reply.addresses] == ["", ":"]
        assert reply.addresses == held.get(f"net1.{pod.name}", reply.addresses)
        assert scene.node.can_ping("192.0.2.2", inside=pod.name)
        assert scene.runtime.call("ADD", scene.conf, pod).code == 121
        scene.delete(pod)

    run_in_parallel(again, victims)
    scene.assert_clean()


def test_add_killed_anywhere_then_add_in_a_new_namespace(scene: KillScene, effects: list[str]) -> None:
    """The container is started again under its id: ADD succeeds with the addresses that were held for it, if any."""
    numbers = numbers_without_repeated_settings(effects)
    victims = scene.kill("ADD", effects, scene.victims(numbers if IS_DEEP else numbers[::2]))
    fresh, held = scene.node.make_pods(len(victims)), scene.plugin_datastore.store.held()

    def again(pods: tuple[PodNamespace, PodNamespace]) -> None:
        old, new = pods
        scene.node.remove_pod(old)
        reply = scene.add(new, container=old.name)
        assert reply.addresses == held.get(f"net1.{old.name}", reply.addresses)
        assert scene.node.can_ping("192.0.2.2", inside=new.name)
        scene.delete(new, container=old.name)

    run_in_parallel(again, zip(victims, fresh, strict=True))
    assert is_eventually(lambda: scene.node.leftovers() == scene.before)
    scene.assert_clean()


@on_every_atomicity
def test_add_killed_anywhere_then_gc(scene: KillScene, effects: list[str]) -> None:
    """The machine lost the containers, and nobody ever asks for DEL: one GC gives everything back.

    GC goes by addresses. What an ordered store has of an assignment that got no further than its handle holds none;
    the collector would delete it, and so does a DEL.
    """
    victims = scene.kill("ADD", effects, scene.victims(choose_numbers(effects, scene.plugin_datastore)))
    for pod in victims:
        scene.node.remove_pod(pod)
    scene.collect()

    assert is_eventually(lambda: scene.node.leftovers() == scene.before)
    hollow = [pod for pod in victims if f"net1.{pod.name}" in scene.plugin_datastore.store.handles()]
    assert hollow == [] or scene.plugin_datastore.atomicity is Atomicity.ORDERED
    assert set(scene.plugin_datastore.store.held()) == {f"net1.{scene.bystander.name}"}
    run_in_parallel(scene.delete, hollow)
    scene.assert_clean()


@on_every_atomicity
def test_del_killed_anywhere_then_del(scene: KillScene) -> None:
    """The next DEL finishes what the dead one began."""
    pod = scene.pod()
    scene.add(pod)
    effects = scene.run_to_end("DEL", pod)
    assert {"NetlinkSocket.send", scene.plugin_datastore.commit_function} <= set(effects)
    numbers = choose_numbers(effects, scene.plugin_datastore)
    numbered = scene.victims(numbers)
    run_in_parallel(scene.add, numbered.values())
    victims = scene.kill("DEL", effects, numbered, at_once=1)  # they share a block, and no lock makes them take turns
    run_in_parallel(scene.delete, victims)

    assert [effects[n - 1] for n, pod in numbered.items() if scene.has_interface_left(pod)] == []
    scene.assert_clean()


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_del_killed_anywhere_in_an_outage(scene: KillScene) -> None:
    """Whether the dead one left a record or not, the next DEL leaves one; all are done once the datastore is back."""
    pods = scene.pods(2)
    run_in_parallel(scene.add, pods)
    with outage(scene):
        first, effects = (scene.run_to_end("DEL", pod) for pod in pods)
    # The first one also links the place of the datastore with the folder of its records.
    assert [name for name in first if name == "Folder.link"] == ["Folder.link"] * 2
    assert "Folder.link" not in effects
    assert {"NetlinkSocket.send", "Folder._written", "Folder.replace", "Folder.sync"} <= set(effects)
    numbers = all_numbers(effects)
    numbered = scene.victims(numbers if IS_DEEP else numbers[::2])
    run_in_parallel(scene.add, numbered.values())
    with outage(scene):
        # A node process does the first ones by itself, some time after the datastore is back.
        earlier = json_records(scene)
        victims = scene.kill("DEL", effects, numbered)
        run_in_parallel(scene.delete, victims)
        assert [pod for pod in victims if scene.has_interface_left(pod)] == []
        assert len(json_records(scene) - earlier) == len(victims)

    scene.collect()
    wait_until(lambda: not json_records(scene), "a node process is at none")
    scene.assert_clean()


@pytest.mark.alone
@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_a_call_killed_anywhere_over_a_release_record(scene: KillScene) -> None:
    """A later GC finishes the record that the dead one was at. No address of another container is touched.

    A GC does all records; how many another call does within its 0.2 s depends on the machine. A node process would do
    the record by itself before the call.
    """

    def leave_record() -> PodNamespace:
        pod = scene.pod()
        scene.add(pod)
        with outage(scene):
            scene.delete(pod)
        return pod

    leave_record()
    scene.run_to_end("GC", scene.bystander)  # it also notes which store it is, and that no earlier release left records
    leave_record()
    effects = scene.run_to_end("GC", scene.bystander)
    assert effects.count("_unlink") == 1, effects
    for number in all_numbers(effects) if IS_DEEP else numbers_without_repeated_settings(effects)[::4]:
        old = leave_record()
        status, had = scene.run("GC", scene.bystander, kill_at=number)
        assert (status, had) == (-signal.SIGKILL, effects[:number])
        scene.collect()
        assert release_records(scene) == [], old
        scene.assert_clean()


def json_records(scene: KillScene) -> frozenset[str]:
    """The records, without links and folders."""
    return frozenset(name for name in release_records(scene) if name.endswith(".json"))
