"""ADDs and DELs of one node race, a hundred at a time: no address is held twice, and none for a container that is gone.

What the store's own records say is compared with what the runtime was answered, after every round and a GC: on a busy
machine a call may not get at the store in time: then a DEL leaves a release record, and an ADD is to be tried again. A
night has ten minutes of CPU time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random

import pytest
from attrs import define, field

from tests.harness.local_stores import IS_DEEP
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore

pytestmark = [pytest.mark.netns, pytest.mark.stress]

AT_ONCE = 100 if IS_DEEP else 40
TRY_AGAIN = 11
STORES = ["sqlite", *([pytest.param("etcdv3", marks=pytest.mark.etcd)] if IS_DEEP else [])]
NIGHT_CPU_S = 600.0 / len(STORES)


def children_cpu_s() -> float:
    """The CPU time of all processes that this one has waited for."""
    times = os.times()
    return times.children_user + times.children_system


def rounds() -> Iterator[int]:
    """Two rounds, or as many as a night takes."""
    end = children_cpu_s() + NIGHT_CPU_S
    for number in count():
        if number >= 2 and (not IS_DEEP or children_cpu_s() > end):
            return
        yield number


@define
class Race:
    """Containers of a node, and the addresses of those that are attached."""

    runtime: CNIRuntime
    conf: NetConfDict
    attached: dict[PodNamespace, tuple[str, ...]] = field(factory=dict)

    def call(self, pod: PodNamespace) -> None:
        """DEL of a container that is attached, once or twice, and ADD of one that is not."""
        if pod in self.attached:
            for _ in range(1 + len(pod.name) % 2):
                self.runtime.delete(self.conf, pod)
            del self.attached[pod]
            return
        reply = self.runtime.call("ADD", self.conf, pod)
        if reply.status == 0:
            self.attached[pod] = reply.addresses
        else:
            assert reply.code == TRY_AGAIN, reply
            self.runtime.delete(self.conf, pod)  # as a runtime does before it tries again


@pytest.mark.parametrize("plugin_datastore", STORES, indirect=True)
def test_adds_and_deletes_race(node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore) -> None:
    store, pods, chance = plugin_datastore.store, node.make_pods(AT_ONCE), Random(7)  # noqa: S311  # which calls race is no secret
    race = Race(runtime, runtime.make_netconf(**plugin_datastore.netconf_keys))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in rounds():
            chosen = pods[: AT_ONCE // 2] if number == 0 else chance.sample(pods, AT_ONCE)
            list(pool.map(race.call, chosen))
            runtime.collect(race.conf, *[pod.name for pod in race.attached])
            given = [address for addresses in race.attached.values() for address in addresses]
            assert len(set(given)) == len(given) == len(race.attached) > 0
            assert store.held() == {f"net1.{pod.name}": addresses for pod, addresses in race.attached.items()}
            assert store.handles() == {f"net1.{pod.name}" for pod in race.attached}
            assert len(store.endpoints()) == len(race.attached)
            assert len([name for name in node.links() if name.startswith("netp")]) == len(race.attached)
        list(pool.map(race.call, tuple(race.attached)))
    runtime.collect(race.conf)
    assert store.is_empty
    assert all(block.is_empty for block in store.blocks())
    assert not [name for name in node.links() if name.startswith("netp")]
