"""The shipped role on a real API server: it is enough, and each right taken away makes one failure that names it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pytest
from attrs import evolve

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.installing.manifests import plugin_role
from netplug_backends.kubernetes.names import CrdMode
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.feed import follow
from netplug_core.errors import Unauthorized
from netplug_core.flows.ipam.affinities import relinquish_block
from netplug_core.flows.ipam.cache import followed_kinds, make_node_cache
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import Automatic, Specific
from netplug_core.ipam.model import BLOCK, HANDLE, Affinity, AffinityState, Block, affinity_key, host_owner
from netplug_core.ipam.outcome import PoolsExhausted
from netplug_core.records import Create, List
from netplug_core.resources.ippool import IPPool
from tests.harness.kube_workloads import NAMESPACE, NODE, attach, detach, new_pod
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    install_role,
    make_namespace,
    make_node,
    open_client,
    open_store,
)
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

_FOLLOW_S = 1.0  # a right that is missing shows at once
_POOL, _FIRST_BLOCK = Prefix.parse("10.65.0.0/24"), Prefix.parse("10.65.0.0/26")


def rights() -> list[tuple[str, str]]:
    """Every verb on every resource of the shipped role."""
    _account, role, _binding = plugin_role()
    rules = role["rules"]
    assert isinstance(rules, list)
    return [(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]


@pytest.fixture(scope="module")
def cluster(api_server: ApiServer) -> ApiServer:
    """A server with definitions of both groups, a namespace and a node."""
    for mode in CrdMode:
        install_definitions(api_server, mode)
    make_namespace(api_server, NAMESPACE)
    make_node(api_server, NODE)  # tests of another module may have made it
    labelled = {"metadata": {"labels": {"zone": "a"}}}
    api_server.request("PATCH", f"/api/v1/nodes/{NODE}", labelled, content_type="application/merge-patch+json")
    return api_server


@pytest.fixture
def fresh(cluster: ApiServer) -> Iterator[ApiServer]:
    """The server with one pool, which selects nodes, and nothing else; the whole role at the end."""
    pool = IPPool.for_prefix(_POOL, name="main")
    pool = evolve(pool, spec=evolve(pool.spec, node_selector="zone == 'a'"))
    for mode in CrdMode:
        delete_custom_objects(cluster, mode)
        with open_store(cluster, mode) as store:
            store.commit([Create(pool.key, pool)], deadline=deadline_in())
    yield cluster
    install_role(cluster)


def one_address(server: ApiServer, kubeconfig: str, mode: CrdMode = CrdMode.V1, pod: str = "web") -> None:
    """An ADD and a DEL that have to claim a block."""
    with open_store(server, mode, kubeconfig=kubeconfig) as store:
        detach(*attach(store, new_pod(server, pod)))


def one_address_in_v3(server: ApiServer, kubeconfig: str) -> None:
    """The same in the other group."""
    one_address(server, kubeconfig, CrdMode.V3)


def one_address_for_a_long_name(server: ApiServer, kubeconfig: str) -> None:
    """A pod whose endpoint's name is cut is found in the list of pods."""
    one_address(server, kubeconfig, pod="w" * 240)


def a_specific_address(server: ApiServer, kubeconfig: str) -> None:
    """The claim on the block of an address is looked up by its name."""
    with open_store(server, CrdMode.V1, kubeconfig=kubeconfig) as store:
        detach(*attach(store, new_pod(server), Specific(address=Address.parse("10.65.0.7"))))


def a_second_address(server: ApiServer, kubeconfig: str) -> None:
    """What a handle counts changes."""
    pod = new_pod(server)
    with open_store(server, CrdMode.V1) as store:
        attach(store, pod)
    with open_store(server, CrdMode.V1, kubeconfig=kubeconfig) as store:
        detach(*attach(store, pod, Automatic(family=Family.IPV4, count=2)))


def more_than_the_pool_has(server: ApiServer, kubeconfig: str) -> None:
    """Before a shortfall is reported, every block is looked at."""
    with open_store(server, CrdMode.V1, kubeconfig=kubeconfig) as store:
        attach(store, new_pod(server), Automatic(family=Family.IPV4, count=_POOL.size + 1))


def a_claim_on_anothers_block(server: ApiServer, kubeconfig: str) -> None:
    """The claim leads nowhere and goes with the next ADD."""
    key = affinity_key(host_owner(NODE), _FIRST_BLOCK)
    block = Block.new(_FIRST_BLOCK, owner=host_owner("elsewhere"), now_ns=0)
    with open_store(server, CrdMode.V1) as store:
        writes = [Create(key, Affinity(state=AffinityState.PENDING)), Create(block.key, block)]
        store.commit(writes, deadline=deadline_in())
    one_address(server, kubeconfig)


def the_last_address_of_nobodys_block(server: ApiServer, kubeconfig: str) -> None:
    """A block that its node has given up goes with its last address."""
    with open_store(server, CrdMode.V1) as store:
        ipam, workload = attach(store, new_pod(server))
        pace = Pace(clock=SystemClock(), deadline=deadline_in(), chance=random.random)
        block = store.read([List(BLOCK)], deadline=deadline_in()).list(List(BLOCK))[0].value.prefix
        relinquish_block(store, block, Emptiness.NOT_REQUIRED, pace=pace)
    with open_store(server, CrdMode.V1, kubeconfig=kubeconfig) as store:
        detach(evolve(ipam, datastore=store), workload)


def the_namespace_of_a_pod(server: ApiServer, kubeconfig: str) -> None:
    """Its annotations and labels come from the orchestrator."""
    orchestrator = KubernetesOrchestrator(open_client(server, kubeconfig=kubeconfig))
    try:
        assert orchestrator.find_namespace(NAMESPACE, deadline=deadline_in()) is not None
    finally:
        orchestrator.close()


def what_people_change(server: ApiServer, kubeconfig: str, mode: CrdMode = CrdMode.V1) -> None:
    """The node process follows it."""
    clock = SystemClock()
    with open_store(server, mode, kubeconfig=kubeconfig) as store:
        cache = make_node_cache(store, clock=clock)
        follow(store, cache, followed_kinds(store), deadline=Deadline.after(clock, _FOLLOW_S))


def the_pods_of_the_node(server: ApiServer, kubeconfig: str) -> None:
    """The node process follows them."""
    with open_store(server, CrdMode.V1, kubeconfig=kubeconfig) as store:
        list(store.watch_endpoints(NODE, deadline=deadline_in(_FOLLOW_S)))


def what_people_change_in_v3(server: ApiServer, kubeconfig: str) -> None:
    """The same in the other group."""
    what_people_change(server, kubeconfig, CrdMode.V3)


# What asks for a right that one ADD and one DEL, with no block yet, do without.
_NEEDED_FOR: Mapping[tuple[str, str], Callable[[ApiServer, str], None]] = MappingProxyType(
    {
        ("pods", "list"): one_address_for_a_long_name,
        ("pods", "watch"): the_pods_of_the_node,
        ("namespaces", "get"): the_namespace_of_a_pod,
        ("ipamconfigurations", "get"): one_address_in_v3,
        **{("ipamconfigurations", verb): what_people_change_in_v3 for verb in ("list", "watch")},
        **{
            (name, verb): what_people_change
            for name in ("clusterinformations", "ipamconfigs", "namespaces")
            for verb in ("list", "watch")
        },
        **{(name, "watch"): what_people_change for name in ("ippools", "ipreservations")},
        ("blockaffinities", "get"): a_specific_address,
        ("blockaffinities", "delete"): a_claim_on_anothers_block,
        ("ipamhandles", "update"): a_second_address,
        ("ipamblocks", "list"): more_than_the_pool_has,
        ("ipamblocks", "delete"): the_last_address_of_nobodys_block,
    }
)


_MET = [act for act in dict.fromkeys((one_address, *_NEEDED_FOR.values())) if act is not more_than_the_pool_has]


@pytest.mark.parametrize("act", _MET)
def test_the_shipped_rights_are_enough(fresh: ApiServer, act: Callable[[ApiServer, str], None]) -> None:
    kubeconfig = fresh.write_kubeconfig(install_role(fresh), name="plugin")
    act(fresh, kubeconfig)
    with open_store(fresh, CrdMode.V1) as store:
        blocks = store.read([List(BLOCK)], deadline=deadline_in()).list(List(BLOCK))
    assert [held for record in blocks for held in record.value.held()] == []


def test_the_shipped_rights_are_enough_to_find_out_that_nothing_is_left(fresh: ApiServer) -> None:
    kubeconfig = fresh.write_kubeconfig(install_role(fresh), name="plugin")
    with pytest.raises(PoolsExhausted):
        more_than_the_pool_has(fresh, kubeconfig)


@pytest.mark.parametrize("resource,verb", rights())
def test_each_right_is_needed_and_its_absence_named(fresh: ApiServer, resource: str, verb: str) -> None:
    kubeconfig = fresh.write_kubeconfig(install_role(fresh, without=(resource, verb)), name="poor")
    with pytest.raises(Unauthorized) as refusal:
        _NEEDED_FOR.get((resource, verb), one_address)(fresh, kubeconfig)
    assert f'cannot {verb} resource "{resource}"' in str(refusal.value)
    assert "a right is missing" in str(refusal.value)


def test_what_was_written_before_a_missing_right_showed_is_taken_back(fresh: ApiServer) -> None:
    """The pod is the last of an ADD's writes: by then the address is held."""
    kubeconfig = fresh.write_kubeconfig(install_role(fresh, without=("pods/status", "patch")), name="poor")
    with open_store(fresh, CrdMode.V1, kubeconfig=kubeconfig) as store, pytest.raises(Unauthorized) as refusal:
        attach(store, new_pod(fresh))
    assert not hasattr(refusal.value, "__notes__"), refusal.value.__notes__
    with open_store(fresh, CrdMode.V1) as store:
        snapshot = store.read([List(HANDLE), List(BLOCK)], deadline=deadline_in())
        assert snapshot.list(List(HANDLE)) == ()
        assert [record.value.held() for record in snapshot.list(List(BLOCK))] == [()]
