"""docs/sizing.md: the sizes of records, which are those of what ADDs store."""

import re
from hashlib import sha256
from pathlib import Path

from netplug_backends.etcdv3.layout import ETCD_JSON, LAYOUT
from netplug_core.clock import Deadline
from netplug_core.datastore.transaction import read_pages
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.records import Kind
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.cni_node import CNINodeHarness, ContainerInterface

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sizing.md"
PER_BLOCK = 64


def stored_bytes(harness: CNINodeHarness, kind: Kind[object]) -> list[int]:
    """The bytes of key and value of each record of a kind, as etcd gets them."""
    found = read_pages(harness.store, kind, deadline=Deadline.after(harness.clock, 5))
    return [len(LAYOUT.key(record.key)) + len(ETCD_JSON.encode(record.key, record.value)) for record in found]


def add_pods(count: int) -> CNINodeHarness:
    """A node with so many pods, whose names are as long as those of a Deployment usually are."""
    harness = CNINodeHarness()
    harness.config |= {"name": "k8s-pod-network", "nodename": "worker-0001.example.com"}
    harness.add_pool("main", "10.244.0.0/16")
    harness.set_ready(is_ready=True)
    for number in range(count):
        container = sha256(str(number).encode()).hexdigest()
        args = f"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=checkout-6d5f7c9b8d-{container[:5]}"
        interface = ContainerInterface(id=container, netns=f"/run/netns/{number}", args=args)
        harness.dataplane.add_namespace(interface.netns)
        harness.add(interface)
    return harness


def test_the_sizes_are_those_of_what_is_stored() -> None:
    one, full = add_pods(1), add_pods(PER_BLOCK)
    (handle,), (endpoint,) = stored_bytes(one, HANDLE), stored_bytes(one, WORKLOAD_ENDPOINT)
    (affinity,), (first,), (block,) = (stored_bytes(one, AFFINITY), stored_bytes(one, BLOCK), stored_bytes(full, BLOCK))
    page = PAGE.read_text()
    shown = re.findall(r"^\| (.*?) \|.*\| ([\d,]+) \|$", page, re.MULTILINE)
    assert dict(shown) == {
        "handle": f"{handle:,}",
        "workload endpoint": f"{endpoint:,}",
        "affinity": f"{affinity:,}",
        "block with one address": f"{first:,}",
        "block with 64 addresses": f"{block:,}",
        "in all, for each pod": f"{handle + endpoint + (block + affinity) // PER_BLOCK:,}",
    }
