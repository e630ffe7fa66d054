"""Readiness gates and the wait for policy, by the installed executables on a node with real servers and files.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from netplug_backends.host.endpoint_status import EndpointStatusFolder, read_boot_id
from netplug_core.addressing import Address
from netplug_core.flows.cni.pods import LOOK_EVERY_S
from netplug_core.workload import EndpointStatus, WorkloadIdentity, parse_status, render_status
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.processes import gate_server
from tests.harness.running_calls import RunningCall
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.netns

POD_ARGS = "K8S_POD_NAMESPACE=test;K8S_POD_NAME=test-pod-1"
STATUS_FILE = "k8s test%2Ftest-pod-1 eth0"
FOREVER_S = 3600


def is_untouched(node: NetnsNode) -> bool:
    """Whether a call left nothing, or has done nothing yet."""
    return node.store.is_empty and set(node.links()) == {"lo", "up0"}


# --- readiness gates -------------------------------------------------------------------------------------------------


@pytest.fixture
def gates(node: NetnsNode) -> str:
    """The URL of a server of gates on the node, without a path."""
    server = node.start_process(sys.executable, "-m", gate_server.__name__, node.write_file("hits", ""))
    assert server.stdout is not None
    return f"http://127.0.0.1:{server.stdout.readline().strip()}"


def hits(node: NetnsNode) -> list[str]:
    return Path(node.file("hits")).read_text(encoding="utf-8").split()


def test_ready_gates(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, gates: str) -> None:
    """Check 95: each is asked once, a redirect counts as what it leads to; no other command but STATUS asks."""
    conf = runtime.make_netconf(cniVersion="1.1.0", readiness_gates=[f"{gates}/ready", f"{gates}/moved"])
    added = runtime.add(conf, pod)
    asked = ["/ready", "/moved", "/ready"]
    assert hits(node) == asked
    runtime.check(conf, pod, added)
    runtime.delete(conf, pod)
    assert hits(node) == asked
    assert runtime.call("STATUS", conf).is_success_without_output
    assert hits(node) == asked * 2


def test_nothing_is_done_before_the_gates_are_ready(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, gates: str
) -> None:
    """Check 95: no address, no interface and no lock; other calls go on meanwhile."""
    conf = runtime.make_netconf(
        readiness_gates=[f"{gates}/file{node.file('opened')}"], log_file_path=node.file("cni.log")
    )
    waiting = RunningCall(runtime, "ADD", conf, pod, POD_ARGS)
    wait_until(lambda: hits(node) != [], "the gate is asked")
    assert is_untouched(node)
    other, plain = node.make_pod(), runtime.make_netconf()
    runtime.add(plain, other)
    runtime.delete(conf, other)
    runtime.delete(conf, pod, CNI_ARGS=POD_ARGS)
    assert waiting.is_running
    node.write_file("opened", "")
    reply = waiting.end()
    assert len(reply.addresses) == 1
    assert f'answer="status 503" gate="readiness_gates[0] {gates}/file' in reply.stderr
    assert "waiting for a readiness gate" in Path(node.file("cni.log")).read_text(encoding="utf-8")
    runtime.delete(conf, pod, CNI_ARGS=POD_ARGS)
    assert is_untouched(node)


def test_gates_that_become_ready_and_that_do_not(node: NetnsNode, runtime: CNIRuntime, gates: str) -> None:
    """Check 96: after three failures success; a dead gate and a silent one are errors, with nothing left."""
    urls = {
        "late": f"{gates}/failing/3/times",
        "silent": f"{gates}/silent",
        "dead": "http://user:s3cr3t@127.0.0.1:1/dead?token=s3cr3t",
    }
    pods = dict(zip(urls, node.make_pods(len(urls)), strict=True))
    confs = {name: runtime.make_netconf(readiness_gates=[url]) for name, url in urls.items()}
    calls = {name: RunningCall(runtime, "ADD", confs[name], pods[name], POD_ARGS) for name in urls}
    replies = {name: call.end() for name, call in calls.items()}
    assert len(replies["late"].addresses) == 1
    assert hits(node).count("/failing/3/times") == 4
    runtime.delete(confs["late"], pods["late"], CNI_ARGS=POD_ARGS)
    for name, shown, answer in (("silent", urls["silent"], "no answer in time"), ("dead", "…", "Connection refused")):
        reply = replies[name]
        assert reply.code == 11
        assert reply.error["msg"] == (
            f"readiness_gates[0] {shown}: it is not ready within 30 s; its last answer: {answer}"
        )
        assert "s3cr3t" not in reply.stdout + reply.stderr
        runtime.delete(confs[name], pods[name], CNI_ARGS=POD_ARGS)
    assert is_untouched(node)


@pytest.mark.parametrize("value, code", [("http://127.0.0.1:1/", 6), ([""], 7), (["/abs"], 7), (["ftp://x"], 7)])
def test_what_is_no_list_of_urls_is_an_error_at_once(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, value: object, code: int
) -> None:
    """Check 96: and never one of a DEL."""
    conf = runtime.make_netconf(readiness_gates=value)
    reply = runtime.call("ADD", conf, pod)
    assert reply.code == code
    assert "readiness_gates" in reply.text
    assert is_untouched(node)
    runtime.delete(conf, pod)


def test_status_of_a_gate_that_is_not_ready(node: NetnsNode, runtime: CNIRuntime, gates: str) -> None:
    """Section 14.2: one probe, and no waiting."""
    conf = runtime.make_netconf(cniVersion="1.1.0", readiness_gates=[f"{gates}/failing/1/time"])
    reply = runtime.call("STATUS", conf)
    assert reply.code == 50
    assert reply.error["msg"] == f"readiness_gates[0] {gates}/failing/1/time: it is not ready; its answer: status 500"
    assert runtime.call("STATUS", conf).is_success_without_output


# --- policy ----------------------------------------------------------------------------------------------------------


def status_of(pod: PodNamespace, *addresses: str) -> str:
    """What the node process writes for the endpoint of a container."""
    workload = WorkloadIdentity(
        node="node-1",
        network="net1",
        container_id=pod.name,
        interface="eth0",
        pod="test-pod-1",
        pod_namespace="test",
    )
    held = tuple(map(Address.parse, addresses))
    return render_status(EndpointStatus.expected_by(workload, held, boot_id=read_boot_id()))


def wait_until_held(node: NetnsNode) -> None:
    """Return when a call, whose log is the node's ``cni.log``, waits for policy."""
    log = Path(node.file("cni.log"))
    wait_until(lambda: log.exists() and "waiting for policy" in log.read_text(), "the call waits")


def test_a_pod_is_held_back_until_its_policy_is_programmed(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """Check 97: files of others, half of a file and other kinds of files do not count; no lock is held meanwhile."""
    folder = Path(node.file("endpoint-status"))
    conf = runtime.make_netconf(
        policy_setup_timeout_seconds=FOREVER_S, endpoint_status_dir=str(folder), log_file_path=node.file("cni.log")
    )
    held = RunningCall(runtime, "ADD", conf, pod, POD_ARGS)
    wait_until_held(node)
    (held_addresses,) = node.store.held().values()
    assert len(node.store.endpoints()) == 1
    other = node.make_pod()
    plain = runtime.make_netconf()
    runtime.add(plain, other)
    runtime.delete(plain, other)

    folder.mkdir()
    path = folder / "k8s test%2Ftest-pod-1 eth0"
    whole = status_of(pod, *held_addresses)
    for text in ("", whole[: len(whole) // 2], status_of(other, *held_addresses), "x" * (3 << 20)):
        path.write_text(text)
        os.utime(path)
    path.unlink()
    os.mkfifo(path)
    path.unlink()
    path.mkdir()
    assert held.is_running
    path.rmdir()
    (folder / "new").write_text(whole)
    (folder / "new").rename(path)
    reply = held.end()
    assert reply.addresses == held_addresses
    assert "policy is programmed" in reply.stderr
    runtime.delete(conf, pod, CNI_ARGS=POD_ARGS)
    assert is_untouched(node)


@pytest.mark.parametrize("is_stale", [False, True], ids=["no-folder", "stale-file"])
def test_a_pod_starts_when_the_time_is_up(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, *, is_stale: bool
) -> None:
    """Check 97: with a warning, which has the file and why it did not count."""
    folder = Path(node.file("endpoint-status"))
    if is_stale:
        folder.mkdir()
        (folder / "k8s test%2Ftest-pod-1 eth0").write_text(status_of(PodNamespace("pod-0")))
    conf = runtime.make_netconf(policy_setup_timeout_seconds=1, endpoint_status_dir=str(folder))
    added = runtime.add(conf, pod, CNI_ARGS=POD_ARGS)
    (warning,) = (line for line in added.stderr.splitlines() if "[WARNING]" in line)
    assert "policy is not programmed in time: the pod starts all the same" in warning
    assert ("it names the container 'pod-0'" if is_stale else "there is no such file") in warning
    assert node.can_ping(added.addresses[0])
    runtime.delete(conf, pod, CNI_ARGS=POD_ARGS)
    assert is_untouched(node)


def test_p_62_the_file_ends_the_wait_at_once(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """P-62: not that of the pod's former container, but what the node process writes, well within a look's time."""
    folder = Path(node.file("endpoint-status"))
    EndpointStatusFolder(str(folder)).make_equal({STATUS_FILE: parse_status(status_of(PodNamespace("pod-0")))})
    conf = runtime.make_netconf(
        policy_setup_timeout_seconds=FOREVER_S, endpoint_status_dir=str(folder), log_file_path=node.file("cni.log")
    )
    held = RunningCall(runtime, "ADD", conf, pod, POD_ARGS)
    wait_until_held(node)
    (addresses,) = node.store.held().values()
    assert held.is_running
    EndpointStatusFolder(str(folder)).make_equal({STATUS_FILE: parse_status(status_of(pod, *addresses))})
    written = time.time()
    assert held.end().status == 0
    assert (folder / STATUS_FILE).stat().st_mode & 0o777 == 0o644
    (line,) = (line for line in Path(node.file("cni.log")).read_text().splitlines() if "policy is programmed" in line)
    ended = datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    assert ended.timestamp() - written < LOOK_EVERY_S / 2


def test_a_del_ends_the_wait(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    conf = runtime.make_netconf(
        policy_setup_timeout_seconds=FOREVER_S,
        endpoint_status_dir=node.file("endpoint-status"),
        log_file_path=node.file("cni.log"),
    )
    held = RunningCall(runtime, "ADD", conf, pod, POD_ARGS)
    wait_until_held(node)
    runtime.delete(conf, pod, CNI_ARGS=POD_ARGS)
    reply = held.end()
    assert reply.code == 11
    assert "was deleted while it was made" in reply.text
    assert is_untouched(node)


def test_a_time_below_zero_is_refused(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 97: before anything is allocated, and never by a DEL."""
    conf = runtime.make_netconf(policy_setup_timeout_seconds=-1)
    reply = runtime.call("ADD", conf, pod, CNI_ARGS=POD_ARGS)
    assert reply.code == 7
    assert "policy_setup_timeout_seconds: -1 is not accepted" in reply.text
    assert is_untouched(node)
    runtime.delete(conf, pod, CNI_ARGS=POD_ARGS)


def test_a_call_that_is_killed_while_it_waits_leaves_what_a_del_removes(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    conf = runtime.make_netconf(
        policy_setup_timeout_seconds=FOREVER_S,
        endpoint_status_dir=node.file("endpoint-status"),
        log_file_path=node.file("cni.log"),
    )
    held = RunningCall(runtime, "ADD", conf, pod, POD_ARGS)
    wait_until_held(node)
    held.process.kill()
    held.end()
    runtime.delete(conf, pod, CNI_ARGS=POD_ARGS)
    assert is_untouched(node)
