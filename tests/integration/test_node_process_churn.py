"""Many attachments come and go through one node process: nothing leaks, nothing is given twice, its memory stays flat.

A night has 5,000 of them on each datastore; ``make churn`` has 100,000 on etcd, what 24 hours may bring.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.harness.local_stores import IS_DEEP
from tests.harness.node import CNIRuntime, NetnsNode
from tests.harness.node_process import NodeProcessRuntime, start_node_process
from tests.harness.plugin_datastores import PluginDatastore

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.stress]

PODS = 50
ROUNDS = int(os.environ.get("NETPLUG_CHURN_ROUNDS") or (100 if IS_DEEP else 8))
QUARTER = ROUNDS // 4  # rounds after which the process has loaded and allocated what it needs
MAX_GROWTH_KIB = 5 * 1024
STORES = ["sqlite", *([pytest.param("etcdv3", marks=pytest.mark.etcd)] if IS_DEEP else [])]


@pytest.mark.parametrize("plugin_datastore", STORES, indirect=True)
def test_what_comes_and_goes_leaves_nothing(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore
) -> None:
    process = start_node_process(node)
    served = NodeProcessRuntime(node, runtime.bin_dir, process.socket)
    pods, conf = node.make_pods(PODS), served.make_netconf(**plugin_datastore.netconf_keys)
    before, memory_kib = node.leftovers(), list[int]()
    with ThreadPoolExecutor(16) as pool:
        for _ in range(ROUNDS):
            added = list(pool.map(partial(served.add, conf), pods))
            given = [address for reply in added for address in reply.addresses]
            assert len(set(given)) == len(given) == PODS * len(added[0].addresses)
            list(pool.map(partial(served.delete, conf), pods))
            memory_kib.append(process.memory_kib)
    # What calls at the same time need comes and goes; a leak stays, so it shows in the lowest value of a quarter.
    assert min(memory_kib[-QUARTER:]) - min(memory_kib[QUARTER : 2 * QUARTER]) < MAX_GROWTH_KIB, memory_kib
    served.collect(conf)  # a busy machine may have left release records
    assert plugin_datastore.store.is_empty
    assert node.leftovers() == before
