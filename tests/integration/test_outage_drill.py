"""An outage: the store goes away under attached pods, comes back, and every call is made again once.

While it is away, each DEL cleans the node's side, leaves a release record and succeeds, and each ADD ends with code 11
and leaves nothing. They are made at once, and none waits for the time-outs of others. When the store is back, the calls
that come by do the records, and nothing is left. A call has to end within its own deadline, from the first line of its
own log to the last: the machine may start processes slowly.

``make nightly`` attaches 110 pods, as many as a node may have.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from attrs import frozen

from netplug_core.flows.cni.call import RELEASE_S, REMOVE_S
from netplug_core.flows.locks import DEL_LOCK_S
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.servers.port_forward import OutageMode

pytestmark = pytest.mark.netns

# The deadline of a DEL. An ADD has more time, but the first call to a store that is away ends it. Calls that wait for
# each other's time-outs of five seconds exceed this from the seventh on.
LIMIT_S = DEL_LOCK_S + REMOVE_S + RELEASE_S
AT_ONCE = 4  # calls while the store answers
CASES = [
    ("etcdv3", OutageMode.REFUSED, 8),
    ("etcdv3", OutageMode.SILENT, 20),
    ("etcdv3", OutageMode.DROPPED, 8),
    ("kubernetes", OutageMode.REFUSED, 20),
    ("kubernetes", OutageMode.SILENT, 8),
    *([("kubernetes", OutageMode.DROPPED, 8)] if IS_DEEP else ()),
]
MARKS = {"etcdv3": pytest.mark.etcd, "kubernetes": pytest.mark.apiserver}
STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \[", re.MULTILINE)


@frozen
class Drill:
    """A node, its runtime and the store that goes away."""

    node: NetnsNode
    runtime: CNIRuntime
    plugin_datastore: PluginDatastore
    conf: NetConfDict

    def call(self, command: str, pod: PodNamespace) -> PluginReply:
        """One call of a pod."""
        return self.runtime.call(
            command, self.conf, pod, plugin="netplug", CNI_ARGS=self.plugin_datastore.make_cni_args(pod.name)
        )

    def call_all(self, command: str, pods: Sequence[PodNamespace], *, at_once: int) -> list[PluginReply]:
        """One call for each pod, so many at a time, and a line about what they took."""
        return timed(f"{len(pods)} {command}", lambda: self._call_all(command, pods, at_once))

    def _call_all(self, command: str, pods: Sequence[PodNamespace], at_once: int) -> list[PluginReply]:
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda pod: self.call(command, pod), pods))

    def make_pods(self, count: int) -> tuple[PodNamespace, ...]:
        """So many new pods, of which the store's side knows."""
        pods = self.node.make_pods(count)
        self.plugin_datastore.register_pods(pods)
        return pods

    def host_interfaces(self) -> list[str]:
        """The host ends of pods."""
        return [name for name in self.node.links() if name.startswith("netp")]

    def records(self) -> list[str]:
        """The names of the release records."""
        folder = str(self.conf["release_record_dir"])
        return os.listdir(folder) if os.path.isdir(folder) else []

    def leftovers(self) -> list[str]:
        """What calls could leave on the node; not the empty table of packet filters that an outage leaves."""
        return [line for line in self.node.leftovers() if line != "COMMIT"]


def timed(what: str, run: Callable[[], list[PluginReply]]) -> list[PluginReply]:
    """Run some calls, and print the time and the CPU time of all, and what the longest took by its log."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    replies = run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took_s, longest_s = time.monotonic() - began, max(map(duration_s, replies))
    print(  # noqa: T201 # the numbers are what this test is run for
        f"{what}: {took_s:.1f} s, {cpu_s:.1f} s of CPU; the longest call {longest_s:.1f} s by its log"
    )
    return replies


def duration_s(reply: PluginReply) -> float:
    """The time between the first and the last line of a call's own log."""
    stamps = [datetime.fromisoformat(text) for text in STAMP.findall(reply.stderr)]
    assert len(stamps) > 1, reply
    return (stamps[-1] - stamps[0]).total_seconds()


@pytest.mark.parametrize(
    "plugin_datastore, mode, count",
    [pytest.param(*case, marks=MARKS[case[0]], id=f"{case[0]}-{case[1].name.lower()}") for case in CASES],
    indirect=["plugin_datastore"],
)
def test_an_outage(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore, mode: OutageMode, count: int
) -> None:
    count = 110 if IS_DEEP else count
    conf = runtime.make_netconf(log_level="DEBUG", cniVersion="1.1.0", **plugin_datastore.netconf_keys)
    drill = Drill(node, runtime, plugin_datastore, conf)
    before = drill.leftovers()
    attached, late = drill.make_pods(count), drill.make_pods(count)
    print(f"\n{plugin_datastore.name}: {mode.value}")  # noqa: T201
    assert {reply.status for reply in drill.call_all("ADD", attached, at_once=AT_ONCE)} == {0}
    held = plugin_datastore.store.held()
    assert len(held) == len(drill.host_interfaces()) == count

    assert plugin_datastore.outage is not None
    with plugin_datastore.outage(mode):
        deleted = drill.call_all("DEL", attached, at_once=count)
        added = drill.call_all("ADD", late, at_once=count)
    assert ({reply.status for reply in deleted}, {reply.code for reply in added}) == ({0}, {11})
    assert drill.host_interfaces() == []
    assert len(drill.records()) == count
    assert plugin_datastore.store.held() == held
    assert max(map(duration_s, (*deleted, *added))) < LIMIT_S

    # The runtime knows of no attachment that it would have to delete again; it repeats what failed.
    assert {reply.status for reply in drill.call_all("DEL", late, at_once=AT_ONCE)} == {0}
    runtime.collect(conf)
    assert drill.records() == []
    assert plugin_datastore.store.held() == {}
    assert plugin_datastore.store.handles() == set()
    assert plugin_datastore.attached_containers() == []
    assert drill.leftovers() == before
