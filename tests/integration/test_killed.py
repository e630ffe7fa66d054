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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from attrs import frozen

from netplug_core.datastore.interface import Atomicity
from tests.integration.node import Cni, Conf, Node, Pod, Reply, eventually
from tests.integration.places import Place, everywhere

pytestmark = pytest.mark.netns

T = TypeVar("T")
HARNESS = os.path.join(os.path.dirname(__file__), "killed_at.py")


@frozen
class Scene:
    """A node on which calls die, a container that lives through it all, and what the node was like with it alone."""

    node: Node
    cni: Cni
    place: Place
    survivor: Pod
    addresses: tuple[str, ...]
    before: list[str]
    conf: Conf

    def run(self, command: str, pod: Pod, *, kill_at: int) -> tuple[int, list[str]]:
        """Run a call that dies after an effect (0: it does not); its exit status and the effects it had."""
        path = self.node.file(f"{pod.name}.effects")
        done = self.node.ended(
            sys.executable,
            "-IS",
            HARNESS,
            str(kill_at),
            path,
            self.cni.executable("netplug"),
            stdin=json.dumps(self.conf),
            env={**self.cni.environ(command, pod), **self.variables(pod.name)},
        )
        with open(path, encoding="utf-8") as file:
            return done.returncode, file.read().split()

    def rehearse(self, command: str, pod: Pod) -> list[str]:
        """The effects of a call that nothing befalls."""
        status, effects = self.run(command, pod, kill_at=0)
        assert status == 0
        return effects

    def kill(self, command: str, effects: list[str], victims: dict[int, Pod]) -> tuple[Pod, ...]:
        """Let each victim's call die after the effect of that number; the victims."""

        def die(numbered: tuple[int, Pod]) -> None:
            number, pod = numbered
            assert self.run(command, pod, kill_at=number) == (-signal.SIGKILL, effects[:number])

        at_once(die, victims.items())
        return tuple(victims.values())

    def variables(self, container: str) -> dict[str, str]:
        """What a call for a container says beside the usual."""
        return {"CNI_CONTAINERID": container, "CNI_ARGS": self.place.args(container)}

    def add(self, pod: Pod, *, container: str = "") -> Reply:
        """An ADD that nothing befalls, for the pod's own container unless another is named."""
        return self.cni.add(self.conf, pod, plugin="netplug", **self.variables(container or pod.name))

    def delete(self, pod: Pod, *, container: str = "") -> None:
        """Its DEL."""
        self.cni.delete(self.conf, pod, plugin="netplug", **self.variables(container or pod.name))

    def pod(self) -> Pod:
        """A new pod."""
        (pod,) = self.pods(1)
        return pod

    def pods(self, count: int) -> tuple[Pod, ...]:
        """So many new pods, of which the store's side knows."""
        made = self.node.pods(count)
        self.place.register(made)
        return made

    def victims(self, numbers: list[int]) -> dict[int, Pod]:
        """A new pod for each number."""
        return dict(zip(numbers, self.pods(len(numbers)), strict=True))

    def left(self, pod: Pod) -> bool:
        """Whether an interface of ours is in a pod."""
        return set(self.node.links(pod)) != {"lo"}

    def assert_clean(self) -> None:
        """Nothing is left of anybody but the survivor, and the survivor noticed nothing."""
        assert self.place.store.held() == {f"net1.{self.survivor.name}": self.addresses}
        assert self.place.store.handles() == {f"net1.{self.survivor.name}"}
        assert self.place.containers() == [self.survivor.name]
        assert self.node.traces() == self.before
        assert all(self.node.reaches(address, inside=self.survivor.name) for address in ("192.0.2.2", "2001:db8::2"))


def at_once(call: Callable[[T], object], items: Iterable[T]) -> None:
    """Call for every item, a few at a time; the first failure is raised."""
    with ThreadPoolExecutor(3) as runtime:
        list(runtime.map(call, items))


def every(effects: list[str]) -> list[int]:
    """The numbers of all effects, from 1."""
    return list(range(1, len(effects) + 1))


def turns(effects: list[str]) -> list[int]:
    """The numbers of all effects, but of one setting of the kernel after another only the last."""
    following = [*effects[1:], ""]
    return [n for n in every(effects) if not effects[n - 1] == following[n - 1] == "write"]


@pytest.fixture(params=["ipv4"])
def scene(node: Node, cni: Cni, place: Place, request: pytest.FixtureRequest) -> Scene:
    """A node with one container on it, whose calls are for one family or for both."""
    survivor = node.pod()
    place.register([survivor])
    both = cni.conf(cniVersion="1.1.0", ipam={"type": "netplug-ipam", "assign_ipv6": "true"}, **place.keys)
    addresses = cni.add(both, survivor, CNI_ARGS=place.args(survivor.name)).addresses
    conf = both if request.param == "dual-stack" else cni.conf(cniVersion="1.1.0", **place.keys)
    return Scene(node, cni, place, survivor, addresses, node.traces(), conf)


@pytest.fixture
def effects(scene: Scene) -> list[str]:
    """What an ADD does to the world, in order: surely some of everything."""
    pod = scene.pod()
    found = scene.rehearse("ADD", pod)
    scene.delete(pod)
    counted = Counter(found)
    assert counted[scene.place.committed] >= scene.place.commits, counted
    assert counted["Channel.send"] >= 5, counted
    assert counted["write"] >= 6, counted
    assert found[-1] == "main", found
    return found


@everywhere
@pytest.mark.parametrize("scene", ["dual-stack"], indirect=True)
def test_add_killed_anywhere_then_del(scene: Scene, effects: list[str]) -> None:
    """After DEL no address, handle, endpoint, interface, route or setting is left."""
    numbers = every(effects) if scene.place.name == "sqlite" else turns(effects)
    victims = scene.kill("ADD", effects, scene.victims(numbers))
    assert scene.place.store.held() != {f"net1.{scene.survivor.name}": scene.addresses}
    at_once(scene.delete, victims)

    assert [pod for pod in victims if scene.left(pod)] == []
    scene.assert_clean()


def test_add_killed_anywhere_then_add(scene: Scene, effects: list[str]) -> None:
    """Another ADD succeeds; once the interface is there it is refused as any second ADD is, until DEL."""
    _looked, made, *_later = (number for number in every(effects) if effects[number - 1] == "Channel.send")
    *victims, last = scene.kill("ADD", effects, scene.victims(every(effects)[:made]))
    assert [scene.left(pod) for pod in (*victims, last)] == [False] * len(victims) + [True]

    def again(pod: Pod) -> None:
        reply = scene.add(pod)
        assert scene.place.store.held()[f"net1.{pod.name}"] == reply.addresses
        assert scene.node.reaches("192.0.2.2", inside=pod.name)
        scene.delete(pod)

    at_once(again, victims)
    assert scene.cni.call("ADD", scene.conf, last).code == 121
    scene.delete(last)
    again(last)
    scene.assert_clean()


def test_add_killed_anywhere_then_add_in_a_new_namespace(scene: Scene, effects: list[str]) -> None:
    """The container is started again under its id: ADD succeeds with the addresses that were held for it, if any."""
    victims = scene.kill("ADD", effects, scene.victims(turns(effects)))
    fresh, held = scene.node.pods(len(victims)), scene.place.store.held()

    def again(pods: tuple[Pod, Pod]) -> None:
        old, new = pods
        scene.node.remove(old)
        reply = scene.add(new, container=old.name)
        assert reply.addresses == held.get(f"net1.{old.name}", reply.addresses)
        assert scene.node.reaches("192.0.2.2", inside=new.name)
        scene.delete(new, container=old.name)

    at_once(again, zip(victims, fresh, strict=True))
    assert eventually(lambda: scene.node.traces() == scene.before)
    scene.assert_clean()


@everywhere
def test_add_killed_anywhere_then_gc(scene: Scene, effects: list[str]) -> None:
    """The machine lost the containers, and nobody ever asks for DEL: one GC gives everything back.

    GC goes by addresses. What an ordered store has of an assignment that got no further than its handle holds none;
    the collector would delete it, and so does a DEL.
    """
    victims = scene.kill("ADD", effects, scene.victims(turns(effects)))
    for pod in victims:
        scene.node.remove(pod)
    valid = [{"containerID": scene.survivor.name, "ifname": "eth0"}]
    reply = scene.cni.call("GC", {**scene.conf, "cni.dev/valid-attachments": valid})

    assert reply.is_silent_success, reply
    assert eventually(lambda: scene.node.traces() == scene.before)
    hollow = [pod for pod in victims if f"net1.{pod.name}" in scene.place.store.handles()]
    assert hollow == [] or scene.place.atomicity is Atomicity.ORDERED
    assert set(scene.place.store.held()) == {f"net1.{scene.survivor.name}"}
    at_once(scene.delete, hollow)
    scene.assert_clean()


@everywhere
def test_del_killed_anywhere_then_del(scene: Scene) -> None:
    """The next DEL finishes what the dead one began."""
    pod = scene.pod()
    scene.add(pod)
    effects = scene.rehearse("DEL", pod)
    assert {"Channel.send", scene.place.committed} <= set(effects)
    numbered = scene.victims(every(effects))
    at_once(scene.add, numbered.values())
    victims = scene.kill("DEL", effects, numbered)
    at_once(scene.delete, victims)

    assert [effects[n] for n, pod in enumerate(victims) if scene.left(pod)] == []
    scene.assert_clean()
