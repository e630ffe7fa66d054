"""Many outages, with calls killed at random points: each release record is done once, and no other address with it.

The pool has eight addresses, so a released address is soon another container's: a record that took effect twice would
take it away again.
"""

from __future__ import annotations

import random
import re
import secrets
import signal
from collections import Counter

import pytest
from attrs import define, evolve, field

from tests.harness.kill_scene import KillScene, open_kill_scene, outage, release_records
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore

pytestmark = [pytest.mark.netns, pytest.mark.stress]

PODS = 3
DONE = re.compile(r"release record done.* path=(\S+)")
DATASTORES_AND_OUTAGES = [
    ("sqlite", 100),
    pytest.param("etcdv3", 30, marks=pytest.mark.etcd),
    pytest.param("kubernetes", 30, marks=pytest.mark.apiserver),
]


def records(scene: KillScene) -> list[str]:
    """The records, without the files of writers that were killed: those go after a minute."""
    return [name for name in release_records(scene) if name.endswith(".json")]


@define
class Churn:
    """Pods that come and go on a node, whose calls may die, and the address that each of them must keep."""

    scene: KillScene
    chance: random.Random
    lengths: dict[str, int]
    alive: dict[str, tuple[PodNamespace, tuple[str, ...]]] = field(factory=dict)
    kills: Counter[str] = field(factory=Counter)

    def attach(self) -> None:
        """Add a pod. If its ADD dies, the runtime deletes it and tries again with a new one."""
        pod = self.scene.pod()
        while self.is_killed("ADD", pod):
            self.scene.delete(pod)
            pod = self.scene.pod()
        self.alive[pod.name] = (pod, self.scene.plugin_datastore.store.held()[f"net1.{pod.name}"])

    def detach(self) -> None:
        """Delete the oldest pod. If its DEL dies, the runtime repeats it."""
        pod, _addresses = self.alive.pop(next(iter(self.alive)))
        if self.is_killed("DEL", pod):
            self.scene.delete(pod)
        assert not self.scene.has_interface_left(pod)

    def is_killed(self, command: str, pod: PodNamespace) -> bool:
        """One call, every second of which dies after any of its effects; whether this one did."""
        number = self.chance.choice((0, self.chance.randint(1, self.lengths[command])))
        status, effects = self.scene.run(command, pod, kill_at=number)
        assert status in {0, -signal.SIGKILL}, (command, status, effects)
        self.kills[command] += status != 0
        return status != 0

    def collect(self) -> None:
        """The runtime's GC, which does what records are left: other calls have 0.2 s for them."""
        self.scene.runtime.collect(self.scene.conf, self.scene.bystander.name, *self.alive)
        assert records(self.scene) == []

    def assert_kept(self) -> None:
        """Every pod that lives still holds its own address."""
        held = self.scene.plugin_datastore.store.held()
        assert {f"net1.{name}": addresses for name, (_pod, addresses) in self.alive.items()}.items() <= held.items()


@pytest.mark.parametrize("plugin_datastore, outages", DATASTORES_AND_OUTAGES, indirect=["plugin_datastore"])
def test_each_record_of_many_outages_is_done_once(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore, outages: int
) -> None:
    seed = secrets.randbits(32)
    print(f"\nseed {seed}")  # noqa: T201 # with it the kills can be repeated
    plugin_datastore.store.add_pool("few", "10.66.0.0/29")
    log = node.file("calls.log")
    whole = open_kill_scene(node, runtime, plugin_datastore, is_dual_stack=False)
    ipam = {"type": "netplug-ipam", "ipv4_pools": ["few"]}
    scene = evolve(whole, conf={**whole.conf, "ipam": ipam, "log_file_path": log})
    first = scene.pod()
    lengths = {command: len(scene.run_to_end(command, first)) for command in ("ADD", "DEL")}
    churn = Churn(scene, random.Random(seed), lengths)  # noqa: S311 # not for secrets
    for _ in range(PODS):
        churn.attach()

    for _ in range(outages):
        with outage(scene):
            churn.detach()
        churn.assert_kept()
        # These do the record, or die over it; one of them gets the address.
        churn.attach()
        churn.detach()
        churn.attach()
        churn.assert_kept()
        churn.collect()
        churn.assert_kept()

    while churn.alive:
        churn.detach()
    scene.collect()
    assert records(scene) == []
    scene.assert_clean()
    with open(log, encoding="utf-8") as file:
        done = Counter(DONE.findall(file.read()))
    print(f"{outages} outages, {churn.kills.total()} calls killed, {done.total()} records done")  # noqa: T201
    assert max(done.values(), default=0) <= 1, done
    assert done
    assert min(churn.kills["ADD"], churn.kills["DEL"]) > 0
