"""The controllers in a cluster of some thousand pods, as the benchmark fills one: everything is known, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from attrs import frozen

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.check import check_ipam
from netplug_core.orchestrator.model import POD, PodFacts
from netplug_core.records import Get
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.cluster_filler import NAMESPACE, ClusterFiller
from tests.harness.controllers_process import open_controllers
from tests.harness.operator_process import OperatorProcess
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.kube_apiserver import start_api_server
from tests.harness.servers.kube_objects import install_definitions, make_namespace, open_store
from tests.harness.waiting import deadline_in, wait_until

pytestmark = [pytest.mark.apiserver, pytest.mark.cluster]

NODES, PODS_PER_NODE, PAGE = 60, 50, 500
TICKS = "netplug_controllers_collection_ticks_total "


@frozen(kw_only=True)
class Filled:
    """A filled cluster, its datastore, and the environment of the controllers."""

    filler: ClusterFiller
    store: Datastore
    cluster: Datastore
    environ: dict[str, str]


@pytest.fixture(params=[pytest.param("etcdv3", marks=pytest.mark.etcd), "kubernetes"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    with ExitStack() as stack:
        server = stack.enter_context(start_api_server(tmp_path))
        make_namespace(server, "kube-system")
        install_definitions(server, CrdMode.V1)
        environ = {"DATASTORE_TYPE": request.param, "KUBECONFIG": server.write_kubeconfig()}
        cluster: Datastore = stack.enter_context(open_store(server, CrdMode.V1))
        store = cluster
        etcd: EtcdCluster | None = None
        if request.param == "etcdv3":
            running: EtcdCluster = request.getfixturevalue("etcd")
            delete_all_entries(running)
            environ["ETCD_ENDPOINTS"] = ",".join(running.endpoints)
            store = stack.enter_context(closing(EtcdDatastore(make_client(running, clock=SystemClock()))))
            etcd = running
        filler = ClusterFiller(server=server, etcd=etcd, nodes=NODES, pods_per_node=PODS_PER_NODE)
        filler.fill()
        yield Filled(filler=filler, store=store, cluster=cluster, environ=environ)


def test_what_is_filled_is_what_the_product_reads(filled: Filled) -> None:
    filler = filled.filler
    report = check_ipam(filled.store, clock=SystemClock(), deadline=deadline_in())
    assert report.problems == 0, report
    wanted = Get(POD.key(NAMESPACE, filler.pod_name(NODES - 1, 7)))
    pod = filled.cluster.read([wanted], deadline=deadline_in()).find(wanted)
    assert pod is not None
    assert isinstance(pod.value, PodFacts)
    assert (pod.value.node, pod.value.addresses) == (filler.node_name(NODES - 1), (filler.address(NODES - 1, 7),))
    endpoint = Get(WORKLOAD_ENDPOINT.key(NAMESPACE, filler.endpoint_name(NODES - 1, 7)))
    assert filled.store.read([endpoint], deadline=deadline_in()).find(endpoint) is not None


def test_no_list_is_without_pages_and_nothing_is_freed(filled: Filled, tmp_path: Path) -> None:
    server = filled.filler.server
    with open_controllers(tmp_path, filled.environ, server) as controllers:
        process = controllers.start()
        wait_until(lambda: process.ask("/readyz")[0] == 200, "everything is known")
        wait_until(lambda: has_collected(process), "the collector has looked")
        assert "netplug_controllers_collection_freed_addresses_total 0.0" in process.ask("/metrics")[1]
        assert process.stop() == 0
    lists = server.audited_lists("netplug")  # the store of the test asks in the same name
    assert all("limit=" in target for target in lists), [target for target in lists if "limit=" not in target]
    pods = [target for target in lists if target.startswith("/api/v1/pods?")]
    assert len(pods) >= NODES * PODS_PER_NODE / PAGE


def has_collected(process: OperatorProcess) -> bool:
    """Whether the collector has looked once."""
    found = [each for each in process.ask("/metrics")[1].splitlines() if each.startswith(TICKS)]
    return bool(found) and not found[0].endswith(" 0.0")
