"""Addresses assigned and released on a real API server; requests are counted where they arrive."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import evolve

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family, Prefix
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Automatic
from netplug_core.ipam.model import block_key
from netplug_core.records import Create, Get
from netplug_core.resources.ippool import IPPool
from tests.harness.allocator.invariants import handle_counts_are_exact
from tests.harness.allocator.state import read_state
from tests.harness.kube_workloads import NAMESPACE, NODE, attach, detach, new_pod
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_namespace,
    make_node,
    open_store,
)
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

_AGENT = "netplug/"


@pytest.fixture(scope="module")
def cluster(api_server: ApiServer) -> ApiServer:
    """A server with definitions, a namespace and a node."""
    install_definitions(api_server, CrdMode.V1)
    make_namespace(api_server, NAMESPACE)
    make_node(api_server, NODE, labels={"zone": "a"})
    return api_server


@pytest.fixture
def fresh(cluster: ApiServer) -> ApiServer:
    """The server with one pool, which selects nodes, and nothing else."""
    delete_custom_objects(cluster, CrdMode.V1)
    pool = IPPool.for_prefix(Prefix.parse("10.65.0.0/24"), name="main")
    pool = evolve(pool, spec=evolve(pool.spec, node_selector="zone == 'a'"))
    with open_store(cluster, CrdMode.V1) as store:
        store.commit([Create(pool.key, pool)], deadline=deadline_in())
    return cluster


def test_a_cold_process_asks_no_more_than_it_must(fresh: ApiServer) -> None:
    """One family, the node's own block with room, the group configured: every call by its name."""
    with open_store(fresh, CrdMode.V1) as store:
        attach(store, new_pod(fresh))
    pod = new_pod(fresh)
    before = len(fresh.audited_requests(_AGENT))
    with open_store(fresh, CrdMode.V1) as store:
        ipam, workload = attach(store, pod)
    after = len(fresh.audited_requests(_AGENT))
    with open_store(fresh, CrdMode.V1) as store:
        cold = BlockIPAM(datastore=store, clock=ipam.clock, chance=ipam.chance)
        detach(cold, workload)
    requests = fresh.audited_requests(_AGENT)
    assert Counter(requests[before:after]) == Counter(
        [
            ("get", "clusterinformations"),
            ("get", "ipamconfigs"),
            ("get", "ipamhandles"),
            ("get", "nodes"),
            ("get", "pods"),
            ("list", "blockaffinities"),
            ("list", "ippools"),
            ("list", "ipreservations"),
            ("get", "ipamblocks"),
            ("create", "ipamhandles"),
            ("update", "ipamblocks"),
            ("patch", "pods/status"),
        ]
    )
    assert Counter(requests[after:]) == Counter(
        [
            ("get", "clusterinformations"),
            ("get", "ipamconfigs"),
            ("get", "ipamhandles"),
            ("get", "pods"),
            ("get", "ipamblocks"),
            ("update", "ipamblocks"),
            ("delete", "ipamhandles"),
            ("patch", "pods/status"),
        ]
    )


def test_pods_that_start_at_once_leave_handles_that_count_each_address_once(fresh: ApiServer) -> None:
    """Each pod has a process of its own, as without a node process; all of them want addresses of the same blocks."""
    six = IPPool.for_prefix(Prefix.parse("fd65::/112"), name="six")
    with open_store(fresh, CrdMode.V1) as store:
        store.commit([Create(six.key, six)], deadline=deadline_in())
    pods = [new_pod(fresh, "burst") for _ in range(16)]

    def add(pod: str) -> None:
        with open_store(fresh, CrdMode.V1) as store:
            attach(store, pod, Automatic(family=Family.IPV4), Automatic(family=Family.IPV6))

    with ThreadPoolExecutor(len(pods)) as threads:
        list(threads.map(add, pods))
    with open_store(fresh, CrdMode.V1) as store:
        state = read_state(store, deadline_in())
    assert len(state.held) == 2 * len(pods)
    assert len(state.handles) == len(pods)
    handle_counts_are_exact(state)


def test_both_modes_are_found_out(fresh: ApiServer) -> None:
    """S-17: both groups are there: v1."""
    install_definitions(fresh, CrdMode.V3)
    key = block_key(Prefix.parse("10.65.0.0/26"))
    before = len(fresh.audited_requests(_AGENT))
    with open_store(fresh, None) as store:
        assert store.read([Get(key)], deadline=deadline_in()).find(key) is None
        store.read([Get(key)], deadline=deadline_in())
    asked = fresh.audited_requests(_AGENT)[before:]
    assert asked == [("get", "/apis"), ("get", "ipamblocks"), ("get", "ipamblocks")]
