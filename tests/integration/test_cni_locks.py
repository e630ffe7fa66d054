"""The locks of a host between real calls: a holder that hangs, a file that cannot be locked, ADD against DEL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from netplug_backends.host.machine import FileLocks
from netplug_core.locks import HeldLock
from tests.harness.file_watch import watch_closes
from tests.harness.killer import killer_command
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace
from tests.harness.release_records import record_files
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.netns


def lock_file(node: NetnsNode) -> str:
    """The file that every call of the node locks."""
    return node.file("ipam.lock")


def take_host_lock(node: NetnsNode) -> HeldLock:
    """The host's lock, held by this process."""
    held = FileLocks().try_lock(lock_file(node), 0)
    assert held is not None
    return held


def waits_for_neighbour(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> bool:
    """Whether an ADD commits only after the host's lock is released, and with it; its first attempt fails."""
    held, conf = take_host_lock(node), runtime.make_netconf()
    with watch_closes(lock_file(node)) as watch, ThreadPoolExecutor() as pool:
        adding = pool.submit(runtime.add, conf, pod)
        watch.wait()  # an attempt that succeeds keeps the file open
        has_waited = node.store.is_empty
        held.release()
        added = adding.result()
    runtime.delete(conf, pod)
    return has_waited and "without the host lock" not in added.stderr


@pytest.mark.alone
def test_the_hosts_lock_is_waited_for(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 59: an ADD whose neighbour releases the lock in time goes on with it.

    On a busy machine it may be released too late, so there are several attempts.
    """
    assert any(waits_for_neighbour(node, runtime, pod) for _attempt in range(5))


@pytest.mark.alone
def test_a_holder_of_the_hosts_lock_that_hangs_does_not_stop_the_node(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """ADD goes on after two seconds, and DEL at once: a release takes no such lock."""
    held, conf = take_host_lock(node), runtime.make_netconf()
    added = runtime.add(conf, pod)
    assert "[WARNING]" in added.stderr
    assert "going on without the host lock" in added.stderr
    assert "another call has held it for 2 s" in added.stderr

    assert "lock" not in runtime.delete(conf, pod).stderr
    assert node.store.is_empty
    held.release()


@pytest.mark.alone
def test_a_lock_that_cannot_be_taken(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 59: ADD and DEL go on without it and log an error."""
    conf = runtime.make_netconf(ipam_lock_file=os.path.join(node.write_file("plain", ""), "lock"))
    added = runtime.add(conf, pod)

    assert "[ERROR]" in added.stderr
    assert "going on without the host lock" in added.stderr
    assert runtime.check(conf, pod, added).is_success_without_output
    runtime.delete(conf, pod)
    assert node.store.is_empty


# --- ADD against DEL -----------------------------------------------------------------------------------------------


def start_add(runtime: CNIRuntime, conf: NetConfDict, pod: PodNamespace, *, stop_at: int) -> subprocess.Popen[str]:
    """Start an ADD that stops (SIGSTOP) after its effect of that number; 0 is never."""
    node = runtime.node
    listed = node.file("effects")
    argv = killer_command(runtime.executable("netplug"), stop_at=stop_at, effects_file=listed, sent=signal.SIGSTOP)
    return subprocess.Popen(
        node.entering("", argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=runtime.make_environ("ADD", pod),
    )


def last_commit(runtime: CNIRuntime, conf: NetConfDict, pod: PodNamespace) -> int:
    """The number of the effect of an ADD that is the end of its commit; the pod is attached and detached for it."""
    with start_add(runtime, conf, pod, stop_at=0) as call:
        call.communicate(json.dumps(conf))
    with open(runtime.node.file("effects"), encoding="utf-8") as file:
        effects = file.read().split()
    runtime.delete(conf, pod)
    return max(number for number, effect in enumerate(effects, 1) if "commit" in effect)


@contextmanager
def stopped_add(runtime: CNIRuntime, conf: NetConfDict, pod: PodNamespace) -> Iterator[subprocess.Popen[str]]:
    """An ADD that has committed its addresses and has not made its interface; it is killed unless it has ended."""
    number = last_commit(runtime, conf, pod)
    with start_add(runtime, conf, pod, stop_at=number) as call:
        try:
            assert call.stdin is not None
            call.stdin.write(json.dumps(conf))
            call.stdin.close()
            _pid, status = os.waitpid(call.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            yield call
        finally:
            call.kill()


def test_a_del_does_not_come_between_the_commit_and_the_interface_of_an_add(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """The DEL leaves a release record; the ADD finds it before it answers, and undoes what it made."""
    before, conf = node.leftovers(), runtime.make_netconf()
    with stopped_add(runtime, conf, pod) as call:
        held = node.store.held()
        assert set(held) == {f"net1.{pod.name}"}
        assert set(node.links(pod)) == {"lo"}

        deleted = runtime.delete(conf, pod)
        assert "another call is at work on the interface 'eth0'" in deleted.stderr
        assert node.store.held() == held
        other = node.make_pod()
        runtime.add(conf, other)
        runtime.delete(conf, other)

        call.send_signal(signal.SIGCONT)
        assert call.stdout is not None
        printed = call.stdout.read()
    refused = PluginReply(1, printed, "")
    assert (refused.code, "was deleted while it was made" in refused.text) == (11, True)
    assert node.store.is_empty
    runtime.collect(conf)
    # A node process replays records in a task of its own.
    wait_until(lambda: record_files(str(conf["release_record_dir"])) == [], "the record is done")
    assert node.leftovers() == before


def test_the_del_of_an_add_that_was_killed_waits_for_nothing(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """The kernel releases the lock with the process."""
    before, conf = node.leftovers(), runtime.make_netconf()
    with stopped_add(runtime, conf, pod):
        pass
    runtime.delete(conf, pod)
    assert node.store.is_empty
    assert node.leftovers() == before


def test_a_second_add_waits_for_the_first_and_harms_nothing(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """It finds the interface there, as any second ADD does, and releases nothing."""
    conf = runtime.make_netconf()
    with stopped_add(runtime, conf, pod) as call:
        with watch_closes(lock_file(node)) as watch, ThreadPoolExecutor() as pool:
            adding = pool.submit(runtime.call, "ADD", conf, pod)
            watch.wait()  # the second one has found the lock of the attachment held
            assert not adding.done()
            call.send_signal(signal.SIGCONT)
            second = adding.result()
        assert call.stdout is not None
        printed = call.stdout.read()
    assert second.code == 121
    assert node.store.held() == {f"net1.{pod.name}": PluginReply(0, printed, "").addresses}
    assert node.can_ping(PluginReply(0, printed, "").addresses[0])
    runtime.delete(conf, pod)
