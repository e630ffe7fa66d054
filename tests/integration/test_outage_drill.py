"""An outage: the store goes away under attached pods, comes back, and every call is made again once.

While it is away, each DEL cleans the node's side, leaves a release record and succeeds, and each ADD ends with code 11
and leaves nothing. They are made at once, and none waits for the time-outs of others. When the store is back, the calls
that come by do the records, and nothing is left. So it is with a call between whose writes the store goes away. A call
has to end within its own deadline, from the first line of its own log to the last: the machine may start processes
slowly.

``make nightly`` attaches 110 pods, as many as a node may have.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attrs import frozen

from netplug_core.datastore.protocol import CALL_TIMEOUT_S
from netplug_core.flows.cni.call import ASSIGN_S, RELEASE_S, REMOVE_S
from netplug_core.flows.ipam.service import CLEANUP_TIMEOUT_S
from netplug_core.locks import DEL_LOCK_S, HOST_LOCK_S
from tests.harness.killer import killer_command
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.release_records import record_files
from tests.harness.servers.port_forward import OutageMode
from tests.harness.waiting import EMERGENCY_STOP_S, MARGIN_S, is_eventually

pytestmark = [pytest.mark.netns, pytest.mark.stress]

# The deadline of a DEL, and what a busy machine adds to it. An ADD has more time, but the first call to a store that is
# away ends it.
LIMIT_S = DEL_LOCK_S + REMOVE_S + RELEASE_S + MARGIN_S
# The deadline of an assignment, and the time in which it takes back what it has written.
ADD_LIMIT_S = HOST_LOCK_S + ASSIGN_S + CLEANUP_TIMEOUT_S + MARGIN_S
TRY_AGAIN = 11
COUNT = 110 if IS_DEEP else 12
AT_ONCE = 4  # calls while the store answers
ALL_CASES = [(name, mode) for name in ("etcdv3", "kubernetes") for mode in OutageMode]
# By day each store and each mode once or twice.
CASES = ALL_CASES if IS_DEEP else [
    ("etcdv3", OutageMode.SILENT), ("etcdv3", OutageMode.REFUSED), ("kubernetes", OutageMode.DROPPED),
]  # fmt: skip
MARKS = {"etcdv3": pytest.mark.etcd, "kubernetes": pytest.mark.apiserver}


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

    def attach_all(self, pods: Sequence[PodNamespace]) -> None:
        """Attach each pod, a few at a time; an ADD that a busy store kept waiting is made again, as a runtime does."""
        timed(f"{len(pods)} ADD", lambda: self._attach_all(pods))

    def _attach_all(self, pods: Sequence[PodNamespace]) -> list[PluginReply]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._attach, pods))

    def _attach(self, pod: PodNamespace) -> PluginReply:
        end = time.monotonic() + EMERGENCY_STOP_S
        while (reply := self.call("ADD", pod)).status:
            assert reply.code == TRY_AGAIN, reply
            assert time.monotonic() < end, reply
            assert self.call("DEL", pod).status == 0
        return reply

    def make_pods(self, count: int) -> tuple[PodNamespace, ...]:
        """So many new pods, of which the store's side knows."""
        pods = self.node.make_pods(count)
        self.plugin_datastore.register_pods(pods)
        return pods

    def host_interfaces(self) -> list[str]:
        """The host ends of pods."""
        return [name for name in self.node.links() if name.startswith("netp")]

    def collect(self) -> None:
        """A GC, which the runtime repeats while the store is too busy to answer, or a node process does a record."""
        replies = list[PluginReply]()

        def is_all_done() -> bool:
            replies[:] = [self._try_collect()]
            return replies[0].is_success_without_output and self.records() == []

        assert is_eventually(is_all_done), (self.records(), replies)

    def _try_collect(self) -> PluginReply:
        self.plugin_datastore.restart_ended()  # a hundred calls that give up may be the end of an old etcd
        reply = self.runtime.try_collect(self.conf)
        assert reply.is_success_without_output or reply.code == TRY_AGAIN, reply
        return reply

    def records(self) -> list[str]:
        """The names of the release records."""
        return record_files(str(self.conf["release_record_dir"]))

    def leftovers(self) -> list[str]:
        """What calls could leave on the node; not the empty table of packet filters that an outage leaves."""
        return [line for line in self.node.leftovers() if line != "COMMIT"]


def timed(what: str, run: Callable[[], list[PluginReply]]) -> list[PluginReply]:
    """Run some calls, and print the time and the CPU time of all, and what the longest took by its log."""
    began, before_s = time.monotonic(), children_cpu_s()
    replies = run()
    cpu_s = children_cpu_s() - before_s
    took_s, longest_s = time.monotonic() - began, max(reply.logged_s for reply in replies)
    print(  # noqa: T201 # the numbers are what this test is run for
        f"{what}: {took_s:.1f} s, {cpu_s:.1f} s of CPU; the longest call {longest_s:.1f} s by its log"
    )
    return replies


def children_cpu_s() -> float:
    """The CPU time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_calls_that_wait_for_each_others_timeouts_would_exceed_the_limit() -> None:
    assert COUNT * CALL_TIMEOUT_S > LIMIT_S


@pytest.mark.parametrize(
    "plugin_datastore, mode",
    [pytest.param(*case, marks=MARKS[case[0]], id=f"{case[0]}-{case[1].name.lower()}") for case in CASES],
    indirect=["plugin_datastore"],
)
def test_an_outage(node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore, mode: OutageMode) -> None:
    conf = runtime.make_netconf(log_level="DEBUG", cniVersion="1.1.0", **plugin_datastore.netconf_keys)
    drill = Drill(node, runtime, plugin_datastore, conf)
    before = drill.leftovers()
    attached, late = drill.make_pods(COUNT), drill.make_pods(COUNT)
    print(f"\n{plugin_datastore.name}: {mode.value}")  # noqa: T201
    drill.attach_all(attached)
    held = plugin_datastore.store.held()
    assert len(held) == len(drill.host_interfaces()) == COUNT

    assert plugin_datastore.outage is not None
    cpu_before_s = children_cpu_s()
    with plugin_datastore.outage(mode):
        deleted = drill.call_all("DEL", attached, at_once=COUNT)
        added = drill.call_all("ADD", late, at_once=COUNT)
        # So many processes at once wait for the CPU too, at most as long as all of them need it.
        limit_s = LIMIT_S + children_cpu_s() - cpu_before_s
        assert ({reply.status for reply in deleted}, {reply.code for reply in added}) == ({0}, {TRY_AGAIN})
        assert drill.host_interfaces() == []
        # A node process does the records by itself as soon as the store is back.
        assert len(drill.records()) == COUNT
        assert plugin_datastore.store.held() == held
    assert [reply for reply in (*deleted, *added) if reply.logged_s > limit_s] == []

    # The runtime knows of no attachment that it would have to delete again; it repeats what failed.
    assert {reply.status for reply in drill.call_all("DEL", late, at_once=AT_ONCE)} == {0}
    drill.collect()
    assert plugin_datastore.store.held() == {}
    assert plugin_datastore.store.handles() == set()
    assert plugin_datastore.attached_containers() == []
    assert drill.leftovers() == before


# --- in the middle of a call ----------------------------------------------------------------------------------------


def start_call(drill: Drill, command: str, pod: PodNamespace, *, stop_at: int) -> subprocess.Popen[str]:
    """Start a call that stops (SIGSTOP) after its effect of that number; 0 is never."""
    argv = killer_command(
        drill.runtime.executable("netplug"), stop_at=stop_at, effects_file=effects_file(drill), sent=signal.SIGSTOP
    )
    call = subprocess.Popen(
        drill.node.entering("", argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=drill.runtime.make_environ(command, pod, CNI_ARGS=drill.plugin_datastore.make_cni_args(pod.name)),
    )
    assert call.stdin is not None
    call.stdin.write(json.dumps(drill.conf))
    call.stdin.close()
    call.stdin = None  # communicate would flush it
    return call


def effects_file(drill: Drill) -> str:
    return drill.node.file("effects")


def first_write(drill: Drill, command: str, pod: PodNamespace) -> int:
    """The number of the effect of a call that is its first write to the store, and not its last."""
    with start_call(drill, command, pod, stop_at=0) as call:
        call.communicate()
    effects = Path(effects_file(drill)).read_text(encoding="utf-8").split()
    assert effects.count(drill.plugin_datastore.commit_function) > 1, effects
    return effects.index(drill.plugin_datastore.commit_function) + 1


def call_in_outage(drill: Drill, command: str, pod: PodNamespace, *, begins_after: int) -> PluginReply:
    """A call in the middle of which packets are lost, so that its connection is half-open; the store is back then."""
    assert drill.plugin_datastore.outage is not None
    with start_call(drill, command, pod, stop_at=begins_after) as call:
        _pid, status = os.waitpid(call.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status
        with drill.plugin_datastore.outage(OutageMode.DROPPED):
            call.send_signal(signal.SIGCONT)
            printed, logged = call.communicate(timeout=EMERGENCY_STOP_S)
    return PluginReply(call.returncode, printed, logged)


@pytest.mark.apiserver
@pytest.mark.parametrize("plugin_datastore", ["kubernetes"], indirect=True)
def test_packets_are_lost_between_the_writes_of_a_call(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore
) -> None:
    """An ADD leaves a handle without addresses until its DEL, and a DEL leaves a release record."""
    conf = runtime.make_netconf(log_level="DEBUG", cniVersion="1.1.0", **plugin_datastore.netconf_keys)
    drill = Drill(node, runtime, plugin_datastore, conf)
    before = drill.leftovers()
    first, second, third = drill.make_pods(3)
    assert drill.call("ADD", first).status == 0

    added = call_in_outage(drill, "ADD", third, begins_after=first_write(drill, "ADD", second))
    assert (added.code, plugin_datastore.attached_containers()) == (TRY_AGAIN, [first.name, second.name])
    assert added.logged_s < ADD_LIMIT_S
    assert f"net1.{third.name}" in plugin_datastore.store.handles() - plugin_datastore.store.held().keys()
    assert drill.call("DEL", third).status == 0

    deleted = call_in_outage(drill, "DEL", first, begins_after=first_write(drill, "DEL", second))
    assert (deleted.status, len(drill.records())) == (0, 1)
    assert deleted.logged_s < LIMIT_S
    assert drill.host_interfaces() == []
    assert f"net1.{first.name}" in plugin_datastore.store.handles()

    drill.collect()
    assert plugin_datastore.store.handles() == set()
    assert plugin_datastore.attached_containers() == []
    assert drill.leftovers() == before
