"""Addresses assigned and released on a real API server with nothing but the shipped rights.

Each right that is taken away makes one failure that names it; requests are counted where they arrive.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from attrs import evolve

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.layout import Mode
from netplug_backends.kubernetes.manifests import plugin_role
from netplug_core.addressing import Family, Prefix
from netplug_core.errors import Unauthorized
from netplug_core.ipam.block import BLOCK, block_key
from netplug_core.ipam.handle import HANDLE
from netplug_core.ipam.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.records import Create, Get, List
from netplug_core.resources.ippool import AllowedUse, IPPool
from netplug_core.workload.endpoint import Birth, removed, settled
from netplug_core.workload.identity import Workload
from tests.integration.kube_cluster import (
    empty,
    install_definitions,
    install_role,
    make_namespace,
    make_node,
    make_pod,
    open_store,
    soon,
)
from tests.integration.kube_server import ApiServer

pytestmark = pytest.mark.apiserver

_NUMBERS = count()
_NAMESPACE, _NODE = "allocation", "allocating"
_AGENT = "netplug/"


def rights() -> list[tuple[str, str]]:
    """Every verb on every resource of the shipped role that assigning and releasing in v1 mode needs."""
    _account, role, _binding = plugin_role()
    rules = role["rules"]
    assert isinstance(rules, list)
    granted = [(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]
    return [right for right in granted if right not in _SPARE]


# What one ADD and one DEL with room in the node's own block do not ask for.
_SPARE = [
    ("pods", "list"),  # an endpoint whose name was too long
    ("namespaces", "get"),  # annotations: with the orchestrator's part of ADD
    ("ipamconfigurations", "get"),  # of v3 mode
    ("blockaffinities", "delete"),  # the node's block stays its own
    ("blockaffinities", "get"),  # what another writer was first at
    ("ipamhandles", "update"),  # a second address
    ("ipamblocks", "delete"),
    ("ipamblocks", "list"),  # a shortfall only
    ("ipamhandles", "list"),  # the collector's
    ("clusterinformations", "list"),
    ("ippools", "get"),
    ("ipreservations", "get"),
]


@pytest.fixture(scope="module")
def cluster(api_server: ApiServer) -> ApiServer:
    """A server with definitions, a namespace and a node."""
    install_definitions(api_server, Mode.V1)
    make_namespace(api_server, _NAMESPACE)
    make_node(api_server, _NODE, labels={"zone": "a"})
    return api_server


@pytest.fixture
def fresh(cluster: ApiServer) -> Iterator[ApiServer]:
    """The server with one pool and nothing else."""
    empty(cluster, Mode.V1)
    pool = IPPool.over(Prefix.parse("10.65.0.0/24"), name="main")
    pool = evolve(pool, spec=evolve(pool.spec, node_selector="zone == 'a'"))
    with open_store(cluster, Mode.V1) as store:
        store.commit([Create(pool.key, pool)], deadline=soon())
    yield cluster
    install_role(cluster)


def attach(store: KubernetesDatastore, pod: str) -> tuple[BlockIPAM, Workload]:
    """Assign an address to a pod, as ADD does."""
    workload = Workload(
        node=_NODE, network="net", container_id=f"c{pod}", interface="eth0", pod=pod, pod_namespace=_NAMESPACE
    )
    ipam = BlockIPAM(datastore=store, clock=SystemClock(), chance=random.random)
    request = AssignRequest(
        handle=workload.handle,
        node=workload.node,
        wanted=(Automatic(family=Family.IPV4),),
        owner=workload.owner,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )
    ipam.assign(request, settled(workload, Birth(uid="u", time_ns=0)), deadline=soon())
    return ipam, workload


def detach(ipam: BlockIPAM, workload: Workload) -> None:
    """Release what a pod holds, as DEL does."""
    ipam.release(ReleaseRequest(handle=workload.handle), removed(workload), deadline=soon())


def new_pod(server: ApiServer) -> str:
    name = f"web-{next(_NUMBERS)}"
    make_pod(server, _NAMESPACE, name, node=_NODE)
    return name


def pod_annotation(server: ApiServer, pod: str) -> str:
    metadata = server.get(f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod}")["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["annotations"]["cni.projectnetplug.org/podIP"])


def test_the_shipped_rights_are_enough(fresh: ApiServer) -> None:
    kubeconfig = fresh.kubeconfig(install_role(fresh), name="plugin")
    pod = new_pod(fresh)
    with open_store(fresh, None, kubeconfig=kubeconfig) as store:
        ipam, workload = attach(store, pod)
        assert pod_annotation(fresh, pod).startswith("10.65.0.")
        detach(ipam, workload)
        assert pod_annotation(fresh, pod) == ""
        assert ipam.held(workload.handle, deadline=soon()).addresses == ()


@pytest.mark.parametrize("resource,verb", rights())
def test_each_right_is_needed_and_its_absence_named(fresh: ApiServer, resource: str, verb: str) -> None:
    kubeconfig = fresh.kubeconfig(install_role(fresh, without=(resource, verb)), name="poor")
    pod = new_pod(fresh)
    with open_store(fresh, Mode.V1, kubeconfig=kubeconfig) as store, pytest.raises(Unauthorized) as refusal:
        detach(*attach(store, pod))
    assert f'cannot {verb} resource "{resource}"' in str(refusal.value)
    assert "a right is missing" in str(refusal.value)


def test_what_was_written_before_a_missing_right_showed_is_taken_back(fresh: ApiServer) -> None:
    """The pod is the last of an ADD's writes: by then the address is held."""
    kubeconfig = fresh.kubeconfig(install_role(fresh, without=("pods/status", "patch")), name="poor")
    with open_store(fresh, Mode.V1, kubeconfig=kubeconfig) as store, pytest.raises(Unauthorized) as refusal:
        attach(store, new_pod(fresh))
    assert not hasattr(refusal.value, "__notes__"), refusal.value.__notes__
    with open_store(fresh, Mode.V1) as store:
        snapshot = store.read([List(HANDLE), List(BLOCK)], deadline=soon())
        assert snapshot.list(List(HANDLE)) == ()
        assert [record.value.held() for record in snapshot.list(List(BLOCK))] == [()]


def test_a_cold_process_asks_no_more_than_it_must(fresh: ApiServer) -> None:
    """One family, the node's own block with room, the group configured: every call by its name."""
    with open_store(fresh, Mode.V1) as store:
        attach(store, new_pod(fresh))
    pod = new_pod(fresh)
    before = len(fresh.requests(_AGENT))
    with open_store(fresh, Mode.V1) as store:
        ipam, workload = attach(store, pod)
    after = len(fresh.requests(_AGENT))
    with open_store(fresh, Mode.V1) as store:
        cold = BlockIPAM(datastore=store, clock=ipam.clock, chance=ipam.chance)
        detach(cold, workload)
    requests = fresh.requests(_AGENT)
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


def test_both_modes_are_found_out(fresh: ApiServer) -> None:
    """S-17: both groups are there: v1."""
    install_definitions(fresh, Mode.V3)
    key = block_key(Prefix.parse("10.65.0.0/26"))
    before = len(fresh.requests(_AGENT))
    with open_store(fresh, None) as store:
        assert store.read([Get(key)], deadline=soon()).find(key) is None
        store.read([Get(key)], deadline=soon())
    asked = fresh.requests(_AGENT)[before:]
    assert asked == [("get", "/apis"), ("get", "ipamblocks"), ("get", "ipamblocks")]
