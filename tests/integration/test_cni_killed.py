"""Calls that die: killed by SIGKILL right after each of their effects, and what the runtime does next puts it right.

Each effect's victim has a pod of its own; beside them lives one container that must never notice anything. Everywhere
with the node's own file; with a real etcd and a real API server where they differ from it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest
from attrs import frozen

from netplug_core.datastore.protocol import Atomicity
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore, on_every_datastore
from tests.harness.servers.port_forward import OutageMode
from tests.harness.waiting import is_eventually, wait_until

pytestmark = pytest.mark.netns

T = TypeVar("T")
AT_ONCE = 3
STORE_WRITES = {
    "SqliteDatastore.commit",
    "SqliteDatastore._commit_transaction",
    "EtcdClient.write",
    "ApiConnection.send",
    "ApiClient.send",
}
"""The effects that a call has again if it loses a race for a record."""
KILLER_SCRIPT = os.path.join(os.path.dirname(__file__), "..", "harness", "processes", "plugin_killer.py")


@frozen
class KillScene:
    """A node on which calls die, a container that lives through it all, and what the node was like with it alone."""

    node: NetnsNode
    runtime: CNIRuntime
    plugin_datastore: PluginDatastore
    bystander: PodNamespace
    addresses: tuple[str, ...]
    before: list[str]
    conf: NetConfDict

    def run(self, command: str, pod: PodNamespace, *, kill_at: int) -> tuple[int, list[str]]:
        """Run a call that dies after an effect (0: it does not); its exit status and the effects it had."""
        path = self.node.file(f"{pod.name}.effects")
        valid = [{"containerID": self.bystander.name, "ifname": "eth0"}] if command == "GC" else None
        done = self.node.run_unchecked(
            sys.executable,
            "-IS",
            KILLER_SCRIPT,
            str(kill_at),
            path,
            self.runtime.executable("netplug"),
            "SIGKILL",
            stdin=json.dumps({**self.conf, "cni.dev/valid-attachments": valid}),
            env={**self.runtime.make_environ(command, pod), **self.variables(pod.name)},
        )
        with open(path, encoding="utf-8") as file:
            return done.returncode, file.read().split()

    def run_to_end(self, command: str, pod: PodNamespace) -> list[str]:
        """The effects of a call that nothing befalls."""
        status, effects = self.run(command, pod, kill_at=0)
        assert status == 0
        return effects

    def kill(
        self, command: str, effects: list[str], victims: dict[int, PodNamespace], *, at_once: int = AT_ONCE
    ) -> tuple[PodNamespace, ...]:
        """Let each victim's call die after the effect of that number; the victims."""

        def die(numbered: tuple[int, PodNamespace]) -> None:
            number, pod = numbered
            status, had = self.run(command, pod, kill_at=number)
            assert status == -signal.SIGKILL
            assert had == effects[:number] or has_lost_a_race(had, effects[:number]), (number, had, effects)

        run_in_parallel(die, victims.items(), at_once)
        return tuple(victims.values())

    def variables(self, container: str) -> dict[str, str]:
        """What a call for a container says beside the usual."""
        return {"CNI_CONTAINERID": container, "CNI_ARGS": self.plugin_datastore.make_cni_args(container)}

    def add(self, pod: PodNamespace, *, container: str = "") -> PluginReply:
        """An ADD that nothing befalls, for the pod's own container unless another is named."""
        return self.runtime.add(self.conf, pod, plugin="netplug", **self.variables(container or pod.name))

    def delete(self, pod: PodNamespace, *, container: str = "") -> None:
        """Its DEL."""
        self.runtime.delete(self.conf, pod, plugin="netplug", **self.variables(container or pod.name))

    def collect(self) -> None:
        """GC with the bystander as the only valid attachment."""
        self.runtime.collect(self.conf, self.bystander.name)

    def pod(self) -> PodNamespace:
        """A new pod."""
        (pod,) = self.pods(1)
        return pod

    def pods(self, count: int) -> tuple[PodNamespace, ...]:
        """So many new pods, of which the store's side knows."""
        made = self.node.make_pods(count)
        self.plugin_datastore.register_pods(made)
        return made

    def victims(self, numbers: list[int]) -> dict[int, PodNamespace]:
        """A new pod for each number."""
        return dict(zip(numbers, self.pods(len(numbers)), strict=True))

    def has_interface_left(self, pod: PodNamespace) -> bool:
        """Whether an interface of ours is in a pod."""
        return set(self.node.links(pod)) != {"lo"}

    def assert_clean(self) -> None:
        """Nothing is left of anybody but the survivor, and the survivor noticed nothing."""
        assert self.plugin_datastore.store.held() == {f"net1.{self.bystander.name}": self.addresses}
        assert self.plugin_datastore.store.handles() == {f"net1.{self.bystander.name}"}
        assert self.plugin_datastore.attached_containers() == [self.bystander.name]
        assert self.node.leftovers() == self.before
        assert all(self.node.can_ping(address, inside=self.bystander.name) for address in ("192.0.2.2", "2001:db8::2"))


def run_in_parallel(call: Callable[[T], object], items: Iterable[T], at_once: int = AT_ONCE) -> None:
    """Call for every item, a few at a time; the first failure is raised."""
    with ThreadPoolExecutor(at_once) as runtime:
        list(runtime.map(call, items))


def has_lost_a_race(had: list[str], expected: list[str]) -> bool:
    """Whether a call wrote again because another changed the block in between: it died some effects earlier.

    The other may be a victim that is dead already, whose last request the server was still at.
    """
    steps, expected_steps = ([name for name in some if name not in STORE_WRITES] for some in (had, expected))
    return len(had) == len(expected) and len(steps) < len(expected_steps) and steps == expected_steps[: len(steps)]


def all_numbers(effects: list[str]) -> list[int]:
    """The numbers of all effects, from 1."""
    return list(range(1, len(effects) + 1))


def numbers_without_repeated_settings(effects: list[str]) -> list[int]:
    """The numbers of all effects, but of one setting of the kernel after another only the last."""
    following = [*effects[1:], ""]
    return [n for n in all_numbers(effects) if not effects[n - 1] == following[n - 1] == "write_sysctl"]


def choose_numbers(effects: list[str], plugin_datastore: PluginDatastore) -> list[int]:
    """The numbers of the effects after which calls die.

    With a server, outside a deep run, these are every write to the store, and of each other kind of effect the first
    and the last: with the node's own file a call dies after each of them.
    """
    numbers = numbers_without_repeated_settings(effects)
    if IS_DEEP or plugin_datastore.name == "sqlite":
        return numbers
    first = {effects[n - 1]: n for n in reversed(numbers)}
    last = {effects[n - 1]: n for n in numbers}
    return [n for n in numbers if effects[n - 1] in STORE_WRITES or n in {first[effects[n - 1]], last[effects[n - 1]]}]


@pytest.fixture(params=["ipv4"])
def scene(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore, request: pytest.FixtureRequest
) -> KillScene:
    """A node with one container on it, whose calls are for one family or for both."""
    survivor = node.make_pod()
    plugin_datastore.register_pods([survivor])
    both = runtime.make_netconf(
        cniVersion="1.1.0", ipam={"type": "netplug-ipam", "assign_ipv6": "true"}, **plugin_datastore.netconf_keys
    )
    addresses = runtime.add(both, survivor, CNI_ARGS=plugin_datastore.make_cni_args(survivor.name)).addresses
    wait_until(node.has_local_routes, "the survivor's host interface has its link-local address")
    conf = (
        both
        if request.param == "dual-stack"
        else runtime.make_netconf(cniVersion="1.1.0", **plugin_datastore.netconf_keys)
    )
    return KillScene(node, runtime, plugin_datastore, survivor, addresses, node.leftovers(), conf)


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
    is_local = scene.plugin_datastore.name == "sqlite"
    numbers = all_numbers(effects) if is_local else choose_numbers(effects, scene.plugin_datastore)
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


def test_add_killed_anywhere_then_add_in_a_new_namespace(scene: KillScene, effects: list[str]) -> None:
    """The container is started again under its id: ADD succeeds with the addresses that were held for it, if any."""
    victims = scene.kill("ADD", effects, scene.victims(numbers_without_repeated_settings(effects)))
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


@on_every_datastore
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


@on_every_datastore
def test_del_killed_anywhere_then_del(scene: KillScene) -> None:
    """The next DEL finishes what the dead one began."""
    pod = scene.pod()
    scene.add(pod)
    effects = scene.run_to_end("DEL", pod)
    assert {"NetlinkSocket.send", scene.plugin_datastore.commit_function} <= set(effects)
    is_local = scene.plugin_datastore.name == "sqlite"
    numbers = all_numbers(effects) if is_local else choose_numbers(effects, scene.plugin_datastore)
    numbered = scene.victims(numbers)
    run_in_parallel(scene.add, numbered.values())
    victims = scene.kill("DEL", effects, numbered, at_once=1)  # they share a block, and no lock makes them take turns
    run_in_parallel(scene.delete, victims)

    assert [effects[n - 1] for n, pod in numbered.items() if scene.has_interface_left(pod)] == []
    scene.assert_clean()


@contextmanager
def outage(scene: KillScene) -> Iterator[None]:
    """The datastore is away: its server refuses connections, or its file cannot be opened."""
    if scene.plugin_datastore.outage is not None:
        with scene.plugin_datastore.outage(OutageMode.REFUSED):
            yield
        return
    away = scene.node.file("away")
    os.rename(scene.node.database, away)
    os.mkdir(scene.node.database)
    try:
        yield
    finally:
        os.rmdir(scene.node.database)
        os.rename(away, scene.node.database)


def release_records(scene: KillScene) -> list[str]:
    folder = str(scene.conf["release_record_dir"])
    return os.listdir(folder) if os.path.isdir(folder) else []


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_del_killed_anywhere_in_an_outage(scene: KillScene) -> None:
    """The next DEL leaves the record, if the dead one did not; all records are done once the datastore is back."""
    pod = scene.pod()
    scene.add(pod)
    with outage(scene):
        effects = scene.run_to_end("DEL", pod)
    assert {"NetlinkSocket.send", "write_file", "HostMachine.write_durably", "sync_folder"} <= set(effects)
    numbered = scene.victims(all_numbers(effects))
    run_in_parallel(scene.add, numbered.values())
    with outage(scene):
        victims = scene.kill("DEL", effects, numbered)
        run_in_parallel(scene.delete, victims)
        assert [pod for pod in victims if scene.has_interface_left(pod)] == []
    assert len([name for name in release_records(scene) if name.endswith(".json")]) > len(victims)

    scene.collect()
    assert [name for name in release_records(scene) if name.endswith(".json")] == []
    scene.assert_clean()


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_a_call_killed_anywhere_over_a_release_record(scene: KillScene) -> None:
    """A later GC finishes the record that the dead one was at. No address of another container is touched.

    A GC does all records; how many another call does within its 0.2 s depends on the machine.
    """

    def leave_record() -> PodNamespace:
        pod = scene.pod()
        scene.add(pod)
        with outage(scene):
            scene.delete(pod)
        return pod

    leave_record()
    effects = scene.run_to_end("GC", scene.bystander)
    assert effects.count("HostMachine.remove_file") == 1, effects
    for number in all_numbers(effects):
        old = leave_record()
        status, had = scene.run("GC", scene.bystander, kill_at=number)
        assert (status, had) == (-signal.SIGKILL, effects[:number])
        scene.collect()
        assert release_records(scene) == [], old
        scene.assert_clean()
