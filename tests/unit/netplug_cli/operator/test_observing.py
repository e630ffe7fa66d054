"""What is read of a cluster, and what is not, because nothing depends on it."""

from __future__ import annotations

import pytest

from netplug_cli.operator.world import INSTALLATION
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.operator.state import KUBEADM_CONFIG, ClusterMode, Json, ObjectRef, installed_refs
from netplug_core.resources.ippool import IPPool
from tests.harness.installations import network
from tests.harness.operator_cluster import SHIPPED, MemoryCluster, MemoryPools, make_loop, settle

SPEC = network(ipPools=[{"cidr": "10.0.0.0/16", "encapsulation": "VXLAN"}])
OVERLAY = ObjectRef("operator.projectnetplug.org/v1", "Installation", "overlay")
AWS_NODE = ObjectRef("apps/v1", "DaemonSet", "aws-node", "kube-system")


class Closed(MemoryCluster):
    """A cluster that refuses to show some objects."""

    closed: frozenset[ObjectRef] = frozenset()

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        if ref in self.closed:
            raise Unavailable("kubernetes API", f"{ref} is closed")
        return super().find(ref, deadline=deadline)


class Damaged(MemoryPools):
    """Pools of which one cannot be read."""

    def read(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[IPPool, ...]:
        raise Unavailable("kubernetes API", "IPPool(p) cannot be read")


@pytest.mark.parametrize("ref", [KUBEADM_CONFIG, AWS_NODE, OVERLAY])
def test_a_removal_reads_only_what_it_needs(ref: ObjectRef) -> None:
    cluster = Closed()
    cluster.install(SPEC)
    settle(make_loop(cluster, MemoryPools(cluster)))
    cluster.remove(INSTALLATION)
    cluster.closed = frozenset({ref})
    settle(make_loop(cluster, Damaged(cluster)))
    cluster.end_namespace()
    assert INSTALLATION not in cluster.objects
    assert not set(installed_refs(SHIPPED)) & cluster.objects.keys()


class Counting(MemoryCluster):
    """Counts the lists of pods."""

    lists = 0

    def list_pods(self, namespace: str, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        self.lists += 1
        return super().list_pods(namespace, label, deadline=deadline)


def test_pods_are_listed_only_while_something_is_awaited() -> None:
    cluster = Counting()
    loop = make_loop(cluster, MemoryPools(cluster))
    settle(loop)
    assert cluster.lists == 0
    cluster.install(SPEC)
    settle(loop)
    assert cluster.lists > 0
    cluster.roll_out()
    cluster.lists = 0
    settle(loop)
    assert cluster.conditions()["Ready"][0] == "True"
    assert cluster.lists == 0
    cluster.roll_out(available=1)
    settle(loop)
    assert cluster.lists > 0
