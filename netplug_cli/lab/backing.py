"""What stands behind a lab's store: its servers or the way to them, its pools, and its objects in an API server.

``lifecycle`` says when. What a lab has of its own goes with its folder; ``withdrawal`` takes back what it has made on
somebody else's servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import assert_never

from netplug_cli.ctl.documents import read_documents, render_yaml
from netplug_cli.lab.folder import Claimed
from netplug_cli.lab.means import Means
from netplug_cli.lab.model import LABEL, POD_NAMESPACE, POOLS, Lab, Pod, Pool
from netplug_cli.lab.paths import Folder
from netplug_cli.lab.processes import Started
from netplug_cli.lab.relays import open_relays
from netplug_cli.lab.servers import require_etcd, start_servers, wait_until
from netplug_cli.lab.stores import FileStore, OwnServers, RunningServers, has_cluster
from netplug_core.flows import overview, resources
from netplug_core.resources.codec import API_VERSION
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.manifest import manifest_from_mapping

__all__ = ["addresses_held", "make_pod_object", "prepare", "require_servers"]


def require_servers(means: Means, folder: Folder, lab: Lab) -> None:
    """Return if somebody else's servers answer, where the lab's store is on such.

    Raises:
        NetplugError: they do not; nothing has been made for them yet.
    """
    if not isinstance(lab.store, RunningServers):
        return
    if has_cluster(lab.store):
        with means.cluster_of(lab, folder) as cluster:
            cluster.require_ready()
        return
    session = means.session_of(lab, folder)
    with session.store() as store:
        resources.find(store, [ippool_key(pool.name) for pool in POOLS], deadline=session.deadline())


def prepare(means: Means, held: Claimed, lab: Lab) -> Iterator[str]:
    """Make everything that the lab's pods need of their store, up to the pools; what was made, in lines.

    Raises:
        NetplugError: a server does not come up, or refuses something.
    """
    folder = held.folder
    match lab.store:
        case FileStore():
            pass
        case OwnServers() as own:
            with means.progress.working(" and ".join(["etcd", *(["kube-apiserver"] if own.apiserver else [])])):
                started = start_servers(means.namespaces, held, own)
                _wait(means, folder, lab, started)
            yield from (f"{server.name} runs on the node (process {server.pid})" for server in started)
        case RunningServers(places=places):
            started = open_relays(means.namespaces, held, lab.store)
            for server, (host, port) in zip(started, places, strict=True):
                yield f"{host} port {port} is relayed to from the node (process {server.pid})"
        case _:
            assert_never(lab.store)
    if has_cluster(lab.store):
        with means.progress.working("definitions, node and namespace"):
            yield from _make_objects(means, folder, lab)
    yield from _create_pools(means, folder, lab)


def make_pod_object(means: Means, folder: Folder, lab: Lab, pod: Pod) -> None:
    """Make the pod that one of the lab's stands for, where pods are objects."""
    if has_cluster(lab.store):
        with means.cluster_of(lab, folder) as cluster:
            cluster.make_pod(POD_NAMESPACE, pod.name, node=lab.node_name)


def addresses_held(means: Means, folder: Folder, lab: Lab) -> int:
    """How many addresses of the lab's pools are still held."""
    session = means.session_of(lab, folder)
    with session.store() as store:
        usage = overview.read_utilization(store, deadline=session.deadline())
    mine = {pool.name for pool in POOLS}
    return sum(pool.in_use for pool in usage if pool.name in mine)


def _wait(means: Means, folder: Folder, lab: Lab, started: tuple[Started, ...]) -> None:
    clock = means.session.clock
    wait_until(partial(require_etcd, means.namespaces, folder), started, clock)
    if not has_cluster(lab.store):
        return

    def require_ready() -> None:
        with means.cluster_of(lab, folder) as cluster:
            cluster.require_ready()

    wait_until(require_ready, started, clock)


def _make_objects(means: Means, folder: Folder, lab: Lab) -> Iterator[str]:
    with means.cluster_of(lab, folder) as cluster:
        count = cluster.install_definitions()
        if count:
            yield f"{count} definitions of custom objects installed"
        cluster.make_node(lab.node_name)
        cluster.make_namespace(POD_NAMESPACE)
    yield f"Node {lab.node_name} and Namespace {POD_NAMESPACE} made"


def _create_pools(means: Means, folder: Folder, lab: Lab) -> Iterator[str]:
    """As ``netplugctl create -f`` does, from a file that is left for the person to see."""
    with open(folder.pools_file, "w", encoding="utf-8") as file:
        file.write("---\n".join(render_yaml(_pool_document(pool, lab)) for pool in POOLS))
    session = means.session_of(lab, folder)
    with session.store() as store:
        for document in read_documents([folder.pools_file]):
            manifest = manifest_from_mapping(document.mapping, source=document.source)
            outcome = resources.create(store, manifest, pace=session.pace(), new_uid=session.new_uid)
            yield f"{outcome.key} {outcome.effect.value}"


def _pool_document(pool: Pool, lab: Lab) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": "IPPool",
        "metadata": {"name": pool.name, "labels": {LABEL: lab.uid}},
        "spec": {"cidr": str(pool.prefix), "blockSize": pool.block_length},
    }
