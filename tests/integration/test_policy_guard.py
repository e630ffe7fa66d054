"""Closing a node for pods on a real kernel, in both families: by an ADD of a process of its own, before any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netplug_core.records import Create
from netplug_core.workload import parse_status
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply
from tests.harness.node_process import start_node_process
from tests.harness.policies import allow, key_of, make_profile
from tests.harness.policy_node import enforcing_variables
from tests.harness.running_calls import RunningCall
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.netns

DUAL_STACK = {"type": "netplug-ipam", "assign_ipv6": "true"}
HOST_ADDRESSES = ("192.0.2.1", "2001:db8::1")


@pytest.fixture
def conf(node: NetnsNode, runtime: CNIRuntime) -> NetConfDict:
    """A configuration with the guard, on a host with an address of each family."""
    for address in HOST_ADDRESSES:
        node.run("ip", "address", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo")
    return runtime.make_netconf(policy_guard=True, ipam=DUAL_STACK)


def tables(node: NetnsNode) -> list[str]:
    return node.run("nft", "list", "tables").splitlines()


def answers(node: NetnsNode, added: PluginReply, pod: str) -> set[bool]:
    """Whether the pod answers the host, and the host answers the pod, in each family."""
    to_pod = (node.can_ping(address) for address in added.addresses)
    return {*to_pod, *(node.can_ping(address, inside=pod) for address in HOST_ADDRESSES)}


def test_p_49_pods_are_closed_until_policy_is_programmed(
    node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict
) -> None:
    """P-49: both ways, also for the second pod, and until something opens them."""
    pods = node.make_pods(2)
    added = [runtime.add(conf, pod) for pod in pods]
    assert tables(node) == ["table inet netplug"]
    for reply, pod in zip(added, pods, strict=True):
        assert answers(node, reply, pod.name) == {False}
    node.run("nft", "delete", "table", "inet", "netplug")
    for reply, pod in zip(added, pods, strict=True):
        assert answers(node, reply, pod.name) == {True}


def test_p_49_without_the_key_pods_are_open_and_there_is_no_table(
    node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict
) -> None:
    """P-49."""
    pod = node.make_pod()
    added = runtime.add({**conf, "policy_guard": False}, pod)
    assert tables(node) == []
    assert answers(node, added, pod.name) == {True}


def test_running_pods_are_not_cut_off(node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict) -> None:
    """Policy was switched on a moment ago: the node process makes table and rules at once."""
    first, second = node.make_pods(2)
    added = runtime.add({**conf, "policy_guard": False}, first)
    warned = runtime.add(conf, second)
    assert "policy is not enforced: pods run on this node without its table" in warned.stderr
    assert tables(node) == []
    assert answers(node, added, first.name) == {True}


def test_a_table_that_is_there_is_left_alone(node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict) -> None:
    node.run("nft", "add table inet netplug; add chain inet netplug of-the-node-process")
    before = node.run("nft", "-j", "list", "ruleset")
    runtime.add(conf, node.make_pod())
    assert node.run("nft", "-j", "list", "ruleset") == before


def test_the_first_pods_of_a_boot_may_come_at_once(node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict) -> None:
    """One of them makes the table, and none of the others makes it anew or fails."""
    pods = node.make_pods(4)
    calls = [RunningCall(runtime, "ADD", conf, pod) for pod in pods]
    replies = [call.end() for call in calls]
    assert [reply.status for reply in replies] == [0] * len(pods)
    assert not [reply.stderr for reply in replies if "[WARNING]" in reply.stderr]
    handles = json.loads(node.run("nft", "-j", "list", "tables"))["nftables"][1:]
    assert [each["table"]["handle"] for each in handles] == [1]


def test_without_the_library_add_and_status_say_what_is_missing(
    node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict
) -> None:
    """And the ADD leaves nothing."""
    hidden = node.run("sh", "-c", "ls -d /usr/lib/*/libnftables.so.1 /usr/sbin/nft").split()
    binds = "; ".join(f"mount --bind /dev/null {path}" for path in hidden)
    pod = node.make_pod()
    before = node.leftovers()
    failed = [
        node.run_unchecked(
            "unshare", "-m", "sh", "-c", f'{binds}; exec "$0"', runtime.executable("netplug"),
            stdin=json.dumps({**conf, "cniVersion": "1.1.0"}), env=runtime.make_environ(command, pod),
        )
        for command in ("ADD", "STATUS")
    ]  # fmt: skip
    errors = [json.loads(each.stdout) for each in failed]
    assert [error["code"] for error in errors] == [123, 50]
    assert all("run: apt-get install libnftables1" in error["msg"] for error in errors)
    assert node.leftovers() == before
    assert node.store.is_empty


# --- with the node process --------------------------------------------------------------------------------------------

POD_ARGS = "K8S_POD_NAMESPACE=test;K8S_POD_NAME=test-pod-1"


def start_enforcing(node: NetnsNode) -> None:
    """A node process that enforces policy, where a profile allows what no policy denies."""
    profile = make_profile("net1", allow())
    with node.store.open() as store:
        store.commit([Create(key_of(profile), profile)], deadline=deadline_in())
    variables = {"NODENAME": "node-1", "NETPLUG_ENDPOINT_TO_HOST_ACTION": "Accept"}
    start_node_process(node, environ=enforcing_variables(node) | variables)


def test_p_63_a_pod_starts_closed_after_the_time_and_is_opened_by_the_node_process(
    node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict
) -> None:
    """P-63, and P-49: the process starts, and the pod is as policy says."""
    folder, pod = Path(node.file("endpoint-status")), node.make_pod()
    held = {**conf, "policy_setup_timeout_seconds": 1, "endpoint_status_dir": str(folder)}
    added = runtime.add(held, pod, CNI_ARGS=POD_ARGS)
    (warning,) = (line for line in added.stderr.splitlines() if "[WARNING]" in line)
    assert 'waited="1 s"' in warning
    assert f'path="{folder}/k8s test%2Ftest-pod-1 eth0"' in warning
    assert answers(node, added, pod.name) == {False}
    start_enforcing(node)
    file = folder / "k8s test%2Ftest-pod-1 eth0"
    wait_until(file.is_file, "the status file of the pod is there")
    assert file.stat().st_mode & 0o777 == 0o644
    assert parse_status(file.read_text()).container_id == pod.name
    assert answers(node, added, pod.name) == {True}
    runtime.delete(held, pod, CNI_ARGS=POD_ARGS)
    wait_until(lambda: not file.exists(), "the status file is gone with the pod")


def test_a_pod_that_is_held_back_is_open_when_it_starts(
    node: NetnsNode, runtime: CNIRuntime, conf: NetConfDict
) -> None:
    """By a process of its own; the node process follows the store, and writes the file once the kernel has it all."""
    start_enforcing(node)
    held = {**conf, "policy_setup_timeout_seconds": 3600, "endpoint_status_dir": node.file("endpoint-status")}
    for pod in node.make_pods(2):
        added = runtime.add(held, pod, CNI_ARGS=POD_ARGS)
        assert "[WARNING]" not in added.stderr
        assert answers(node, added, pod.name) == {True}
        runtime.delete(held, pod, CNI_ARGS=POD_ARGS)
