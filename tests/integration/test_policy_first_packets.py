"""The first packet that a container sends, on nodes with a real kubelet: it is judged as policy says, and not lost.

Each of many pods sends, as the first thing that it does, to pods that its policy denies and to one that it allows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.harness.runtimes.from_empty import NAMESPACE, EmptyCluster, open_empty_cluster
from tests.harness.runtimes.image import IMAGE
from tests.harness.runtimes.kubernetes import ClusterPod
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.runtimes, pytest.mark.cluster]

RUNS, TOGETHER, AT_ONCE = 100, 20, 10
INSTALLATION = """
apiVersion: operator.projectnetplug.org/v1
kind: Installation
metadata: {name: default}
spec:
  netplugNetwork:
    bgp: Disabled
    linuxPolicySetupTimeoutSeconds: 200
    ipPools: [{cidr: 10.65.0.0/16, encapsulation: VXLAN, natOutgoing: Disabled}]
"""
POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "first"},
    "spec": {
        "podSelector": {"matchLabels": {"app": "first"}},
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "allowed"}}}]}],
    },
}

# All three are sent to at once. One packet each: what is lost is not sent again.
SCRIPT = """
eval "near=\\$ALLOWED_${NODE#node-}"
ping -c 1 -W 2 $DENIED_1 & first=$!
ping -c 1 -W 2 $DENIED_2 & second=$!
ping -c 1 -W 30 $near || exit 3
wait $first && exit 4
wait $second && exit 5
exit 0
"""


@pytest.fixture(scope="module")
def cluster(node_image: Path, busybox_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmptyCluster]:
    """Two nodes on which netplug holds pods back, with a pod on each that is allowed, and one that is denied."""
    folder = tmp_path_factory.mktemp("cluster")
    with open_empty_cluster(folder, [busybox_image, node_image], "node-1", "node-2") as opened:
        tool = opened.make_tool(folder)
        applied = tool.run_command("install", "apply", "-f", tool.file(INSTALLATION), "--wait")
        assert applied.status == 0, applied
        kubectl = opened.cluster.run_kubectl
        kubectl("create", "namespace", NAMESPACE)
        for name in ("allowed", "denied"):
            opened.cluster.deploy(NAMESPACE, name, IMAGE, replicas=2)
        kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=json.dumps(POLICY))
        yield opened


def pods_of(cluster: EmptyCluster, name: str) -> dict[str, ClusterPod]:
    """The pods of a deployment, by the numbers of their nodes."""
    return {pod.node.removeprefix("node-"): pod for pod in cluster.cluster.pods(NAMESPACE, f"app={name}")}


def seen(cluster: EmptyCluster, pod: ClusterPod) -> int:
    """How many echo requests have come to a pod."""
    lines = cluster.cluster.run_inside(pod, "cat", "/proc/net/snmp").splitlines()
    names, values = (line.split() for line in lines if line.startswith("Icmp:"))
    return int(values[names.index("InEchos")])


def run_pods(cluster: EmptyCluster, name: str, variables: Mapping[str, str]) -> list[int]:
    """The exit statuses of many pods that send at once."""
    environment: list[object] = [{"name": each, "value": value} for each, value in variables.items()]
    environment.append({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", SCRIPT], "env": environment}
    template = {
        "metadata": {"labels": {"app": "first", "run": name}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    spec = {"completions": TOGETHER, "parallelism": AT_ONCE, "backoffLimit": TOGETHER, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    kubectl = cluster.cluster.run_kubectl
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=json.dumps(job))

    def ended() -> list[int]:
        listed = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-l", f"run={name}", "-o", "json"))["items"]
        statuses = [one for pod in listed for one in pod["status"].get("containerStatuses", ())]
        return [one["state"]["terminated"]["exitCode"] for one in statuses if "terminated" in one["state"]]

    wait_until(lambda: len(ended()) >= TOGETHER, "the pods have sent")
    found = ended()
    kubectl("-n", NAMESPACE, "delete", "job", name, "--timeout=290s")
    return found


def test_p_61_the_first_packet_is_judged_and_not_lost(cluster: EmptyCluster) -> None:
    """P-61: a denied pod, on the same node or the other one, sees nothing; an allowed one answers the first packet."""
    allowed, denied = pods_of(cluster, "allowed"), pods_of(cluster, "denied")
    assert (set(allowed), set(denied)) == ({"1", "2"}, {"1", "2"})
    before = [seen(cluster, pod) for pod in denied.values()]
    answered = sum(seen(cluster, pod) for pod in allowed.values())
    variables = {f"ALLOWED_{number}": pod.address for number, pod in allowed.items()}
    variables |= {f"DENIED_{number}": pod.address for number, pod in denied.items()}
    statuses = [each for run in range(RUNS // TOGETHER) for each in run_pods(cluster, f"first-{run}", variables)]
    assert statuses == [0] * RUNS
    assert [seen(cluster, pod) for pod in denied.values()] == before
    assert sum(seen(cluster, pod) for pod in allowed.values()) == answered + RUNS
