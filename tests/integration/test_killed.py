"""Calls that die: killed by SIGKILL right after each of their effects, and what the runtime does next puts it right.

Each effect's victim has a pod of its own; beside them lives one container that must never notice anything.
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

from tests.integration.node import Cni, Conf, Node, Pod, eventually

pytestmark = pytest.mark.netns

T = TypeVar("T")
HARNESS = os.path.join(os.path.dirname(__file__), "killed_at.py")


@frozen
class Scene:
    """A node on which calls die, a container that lives through it all, and what the node was like with it alone."""

    node: Node
    cni: Cni
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
            env=self.cni.environ(command, pod),
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

    def victims(self, numbers: list[int]) -> dict[int, Pod]:
        """A new pod for each number."""
        return dict(zip(numbers, self.node.pods(len(numbers)), strict=True))

    def left(self, pod: Pod) -> bool:
        """Whether an interface of ours is in a pod."""
        return set(self.node.links(pod)) != {"lo"}

    def assert_clean(self) -> None:
        """Nothing is left of anybody but the survivor, and the survivor noticed nothing."""
        assert self.node.store.held() == {f"net1.{self.survivor.name}": self.addresses}
        assert self.node.store.handles() == {f"net1.{self.survivor.name}"}
        assert [one.spec.container_id for one in self.node.store.endpoints().values()] == [self.survivor.name]
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
def scene(node: Node, cni: Cni, request: pytest.FixtureRequest) -> Scene:
    """A node with one container on it, whose calls are for one family or for both."""
    survivor = node.pod()
    both = cni.conf(cniVersion="1.1.0", ipam={"type": "netplug-ipam", "assign_ipv6": "true"})
    addresses = cni.add(both, survivor).addresses
    conf = both if request.param == "dual-stack" else cni.conf(cniVersion="1.1.0")
    return Scene(node, cni, survivor, addresses, node.traces(), conf)


@pytest.fixture
def effects(scene: Scene) -> list[str]:
    """What an ADD does to the world, in order: surely some of everything."""
    pod = scene.node.pod()
    found = scene.rehearse("ADD", pod)
    scene.cni.delete(scene.conf, pod)
    counted = Counter(found)
    assert counted["SqliteDatastore._finish"] == 1, counted
    assert counted["Channel.send"] >= 5, counted
    assert counted["write"] >= 6, counted
    assert found[-1] == "main", found
    return found


@pytest.mark.parametrize("scene", ["dual-stack"], indirect=True)
def test_add_killed_anywhere_then_del(scene: Scene, effects: list[str]) -> None:
    """After DEL no address, handle, endpoint, interface, route or setting is left."""
    victims = scene.kill("ADD", effects, scene.victims(every(effects)))
    assert scene.node.store.held() != {f"net1.{scene.survivor.name}": scene.addresses}
    at_once(lambda pod: scene.cni.delete(scene.conf, pod), victims)

    assert [effects[n] for n, pod in enumerate(victims) if scene.left(pod)] == []
    scene.assert_clean()


def test_add_killed_anywhere_then_add(scene: Scene, effects: list[str]) -> None:
    """Another ADD succeeds; once the interface is there it is refused as any second ADD is, until DEL."""
    _looked, made, *_later = (number for number in every(effects) if effects[number - 1] == "Channel.send")
    *victims, last = scene.kill("ADD", effects, scene.victims(every(effects)[:made]))
    assert [scene.left(pod) for pod in (*victims, last)] == [False] * len(victims) + [True]

    def again(pod: Pod) -> None:
        reply = scene.cni.add(scene.conf, pod)
        assert scene.node.store.held()[f"net1.{pod.name}"] == reply.addresses
        assert scene.node.reaches("192.0.2.2", inside=pod.name)
        scene.cni.delete(scene.conf, pod)

    at_once(again, victims)
    assert scene.cni.call("ADD", scene.conf, last).code == 121
    scene.cni.delete(scene.conf, last)
    again(last)
    scene.assert_clean()


def test_add_killed_anywhere_then_add_in_a_new_namespace(scene: Scene, effects: list[str]) -> None:
    """The container is started again under its id: ADD succeeds with the addresses that were held for it, if any."""
    victims = scene.kill("ADD", effects, scene.victims(turns(effects)))
    fresh, held = scene.node.pods(len(victims)), scene.node.store.held()

    def again(pods: tuple[Pod, Pod]) -> None:
        old, new = pods
        scene.node.remove(old)
        reply = scene.cni.add(scene.conf, new, CNI_CONTAINERID=old.name)
        assert reply.addresses == held.get(f"net1.{old.name}", reply.addresses)
        assert scene.node.reaches("192.0.2.2", inside=new.name)
        scene.cni.delete(scene.conf, new, CNI_CONTAINERID=old.name)

    at_once(again, zip(victims, fresh, strict=True))
    assert eventually(lambda: scene.node.traces() == scene.before)
    scene.assert_clean()


def test_add_killed_anywhere_then_gc(scene: Scene, effects: list[str]) -> None:
    """The machine lost the containers, and nobody ever asks for DEL: one GC gives everything back."""
    for pod in scene.kill("ADD", effects, scene.victims(turns(effects))):
        scene.node.remove(pod)
    valid = [{"containerID": scene.survivor.name, "ifname": "eth0"}]
    reply = scene.cni.call("GC", {**scene.conf, "cni.dev/valid-attachments": valid})

    assert reply.is_silent_success, reply
    assert eventually(lambda: scene.node.traces() == scene.before)
    scene.assert_clean()


def test_del_killed_anywhere_then_del(scene: Scene) -> None:
    """The next DEL finishes what the dead one began."""
    pod = scene.node.pod()
    scene.cni.add(scene.conf, pod)
    effects = scene.rehearse("DEL", pod)
    assert {"Channel.send", "SqliteDatastore._finish"} <= set(effects)
    numbered = scene.victims(every(effects))
    at_once(lambda pod: scene.cni.add(scene.conf, pod), numbered.values())
    victims = scene.kill("DEL", effects, numbered)
    at_once(lambda pod: scene.cni.delete(scene.conf, pod), victims)

    assert [effects[n] for n, pod in enumerate(victims) if scene.left(pod)] == []
    scene.assert_clean()
